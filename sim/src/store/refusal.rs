//! The refusals that need no look at the store, in the words of etcd.

use std::collections::BTreeSet;

use metes_core::keys::Bytes;
use metes_core::limits;
use metes_core::txn::{Compare, Op, Txn};
use metes_engine::kv::Failure;

/// The refusals of metes' etcd client, before anything is sent.
pub(super) fn fits(txn: &Txn) -> Result<(), Failure> {
    if txn.fits() {
        return Ok(());
    }
    Err(Failure::Refused(format!(
        "the transaction needs more than {} operations, or is too large",
        limits::TXN_OPS
    )))
}

/// The refusals of etcd before it looks at the store.
pub(super) fn well_formed(txn: &Txn) -> Result<(), Failure> {
    if is_nameless(txn) {
        return Err(refused("etcdserver: key is not provided"));
    }
    if Written::by(&txn.then).is_none() || Written::by(&txn.otherwise).is_none() {
        return Err(refused("etcdserver: duplicate key given in txn request"));
    }
    Ok(())
}

fn is_nameless(txn: &Txn) -> bool {
    let nameless = |compare: &Compare| compare.key().is_empty();
    txn.compares.iter().any(nameless) || txn.then.iter().chain(&txn.otherwise).any(has_no_key)
}

fn has_no_key(op: &Op) -> bool {
    match op {
        Op::Get(key) | Op::Put(key, ..) | Op::Delete(key) => key.is_empty(),
        Op::List(list) => list.start.is_empty(),
        // The client reads all keys instead.
        Op::Tickets(..) => false,
        Op::Nested(txn) => is_nameless(txn),
    }
}

/// The keys that a list of operations may write, with those nested in it.
#[derive(Debug, Default)]
struct Written<'t> {
    puts: BTreeSet<&'t Bytes>,
    deletes: BTreeSet<&'t Bytes>,
}

impl<'t> Written<'t> {
    /// None if a key is put and written elsewhere too, as far as etcd notices it: in its order, nested transactions
    /// come after the deletes around them and before the puts.
    fn by(ops: &'t [Op]) -> Option<Self> {
        let mut written = Self::default();
        written.deletes.extend(ops.iter().filter_map(|op| match op {
            Op::Delete(key) => Some(key),
            _ => None,
        }));
        for op in ops {
            if let Op::Nested(txn) = op {
                written.nest(Self::by(&txn.then)?, Self::by(&txn.otherwise)?)?;
            }
        }
        for op in ops {
            if let Op::Put(key, ..) = op {
                written.put(key)?;
            }
        }
        Some(written)
    }

    /// Adds the writes of both branches of a transaction.
    fn nest(&mut self, then: Self, otherwise: Self) -> Option<()> {
        then.puts.iter().try_for_each(|key| self.put(key))?;
        // Only one of the branches is taken.
        let others = otherwise.puts.difference(&then.puts);
        others.into_iter().try_for_each(|key| self.put(key))?;
        self.deletes.extend(then.deletes.into_iter().chain(otherwise.deletes));
        Some(())
    }

    fn put(&mut self, key: &'t Bytes) -> Option<()> {
        (!self.deletes.contains(key) && self.puts.insert(key)).then_some(())
    }
}

pub(super) fn has_put(txn: &Txn) -> bool {
    txn.then.iter().chain(&txn.otherwise).any(|op| match op {
        Op::Put(..) => true,
        Op::Nested(txn) => has_put(txn),
        _ => false,
    })
}

pub(super) fn no_space() -> Failure {
    Failure::NoSpace("etcdserver: mvcc: database space exceeded".to_owned())
}

pub(super) fn refused(why: &str) -> Failure {
    Failure::Refused(why.to_owned())
}
