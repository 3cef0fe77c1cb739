//! The branches that a transaction takes, with those inside it.

use metes_core::txn::{Found, NestedReply, Op, Txn};
use metes_engine::kv::Failure;

use super::past::Past;

/// The branch of a transaction that is taken, and of each transaction inside it.
#[derive(Debug)]
pub struct Path<'t> {
    step: &'static str,
    succeeded: bool,
    ops: Vec<Branch<'t>>,
}

/// One operation of the branch that is taken.
#[derive(Debug)]
struct Branch<'t> {
    op: &'t Op,
    /// If it is a transaction.
    inner: Option<Path<'t>>,
}

impl<'t> Path<'t> {
    /// True if the compares of the outermost transaction are true.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        self.succeeded
    }

    /// Every operation that will be done, each with the step of the transaction it is in; in order.
    #[must_use]
    pub fn effects(&self) -> Vec<(&'static str, &'t Op)> {
        let mut effects = Vec::new();
        self.collect(&mut effects);
        effects
    }

    /// The transactions that are directly inside the branch that is taken, and whether their own compares are true.
    #[must_use]
    pub fn nested(&self) -> Vec<(&'t Txn, bool)> {
        let nested = self.ops.iter().filter_map(|Branch { op, inner }| match (op, inner) {
            (Op::Nested(txn), Some(inner)) => Some((&**txn, inner.succeeded)),
            _ => None,
        });
        nested.collect()
    }

    fn collect(&self, effects: &mut Vec<(&'static str, &'t Op)>) {
        for Branch { op, inner } in &self.ops {
            match inner {
                Some(inner) => inner.collect(effects),
                None => effects.push((self.step, op)),
            }
        }
    }

    /// Carries out every operation with `carry_out`, but not [`Op::Nested`].
    pub(super) fn answer(&self, carry_out: &mut impl FnMut(&Op) -> Found) -> NestedReply {
        let found = self.ops.iter().map(|Branch { op, inner }| match inner {
            Some(inner) => Found { nested: Some(inner.answer(carry_out)), ..Found::default() },
            None => carry_out(op),
        });
        NestedReply { succeeded: self.succeeded, found: found.collect() }
    }
}

/// A transaction, and those inside it, of all depths.
pub(crate) fn with_nested(txn: &Txn) -> Vec<&Txn> {
    let inner = txn.then.iter().chain(&txn.otherwise).filter_map(|op| match op {
        Op::Nested(txn) => Some(with_nested(txn)),
        _ => None,
    });
    std::iter::once(txn).chain(inner.flatten()).collect()
}

impl Past<'_> {
    /// The branches that a transaction takes.
    pub(super) fn path<'t>(&self, txn: &'t Txn) -> Path<'t> {
        let succeeded = txn.compares.iter().all(|compare| self.holds(compare));
        let ops = txn.branch(succeeded).iter().map(|op| {
            let inner = match op {
                Op::Nested(txn) => Some(self.path(txn)),
                _ => None,
            };
            Branch { op, inner }
        });
        Path { step: txn.step, succeeded, ops: ops.collect() }
    }

    /// Checks that every operation of the branches that are taken can be done.
    pub(super) fn check(&self, path: &Path<'_>) -> Result<(), Failure> {
        path.ops.iter().try_for_each(|Branch { op, inner }| match inner {
            Some(inner) => self.check(inner),
            None => self.check_op(op),
        })
    }
}
