//! Transactions as values: built by pure code, then sent by [`super::etcd`].

use super::keys::{Bytes, LeaseId, prefix_end};
use crate::limits;

/// A condition on the store at the moment a transaction is applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compare {
    /// The key's create revision (0: the key does not exist).
    Create(Bytes, i64),
    /// The key's mod revision (0: the key does not exist).
    Mod(Bytes, i64),
    /// No key begins with this.
    Empty(Bytes),
}

/// One operation of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Reads one key.
    Get(Bytes),
    /// Reads keys in order from `start` up to, without, `end`.
    List(List),
    /// Reads the names of at most `limit` tickets of a queue by age, of those created before `before` (none: all). The
    /// count in the answer is that of all tickets in the queue.
    Tickets {
        /// The prefix of the queue.
        queue: Bytes,
        /// Only tickets of a smaller create revision.
        before: Option<i64>,
        /// Which end of the queue.
        end: QueueEnd,
        /// How many.
        limit: i64,
    },
    /// Writes a key, attached to a lease if one is given.
    Put(Bytes, Vec<u8>, Option<LeaseId>),
    /// Deletes a key; no error if it does not exist.
    Delete(Bytes),
    /// Deletes a key if it has this value.
    DeleteIf(Bytes, Vec<u8>),
}

/// Which end of a queue to read first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueEnd {
    /// The head: the oldest ticket.
    Oldest,
    /// The tail: the youngest ticket.
    Youngest,
}

/// A read of many keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct List {
    /// The first key.
    pub start: Bytes,
    /// The first key that is not read any more.
    pub end: Bytes,
    /// At most so many.
    pub limit: i64,
    /// As of this revision (0: the newest).
    pub revision: i64,
    /// Without values.
    pub keys_only: bool,
}

impl List {
    /// All keys that begin with `prefix`, with their values, at most `limit` of them.
    #[must_use]
    pub fn prefix(prefix: &[u8], limit: i64) -> Self {
        Self { start: prefix.to_vec(), end: prefix_end(prefix), limit, revision: 0, keys_only: false }
    }
}

impl Op {
    /// Whether the operation changes the store.
    #[must_use]
    pub fn writes(&self) -> bool {
        matches!(self, Op::Put(..) | Op::Delete(_) | Op::DeleteIf(..))
    }
}

/// One atomic transaction: `then` if all of `compares` are true, else `otherwise`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Txn {
    /// The step of the protocol in one word, for logs, and for tests that stop a run there.
    pub step: &'static str,
    /// The conditions.
    pub compares: Vec<Compare>,
    /// What is done if all of them hold.
    pub then: Vec<Op>,
    /// What is done if one of them does not.
    pub otherwise: Vec<Op>,
}

impl Txn {
    /// A transaction that only reads: served by etcd without a proposal.
    #[must_use]
    pub fn read(ops: Vec<Op>) -> Self {
        Self { step: "read", then: ops, ..Self::default() }
    }

    /// Whether no branch of it changes the store.
    #[must_use]
    pub fn only_reads(&self) -> bool {
        !self.then.iter().chain(&self.otherwise).any(Op::writes)
    }

    /// Whether it stays within etcd's default limits: 128 operations in each list, 1.5 MiB in all.
    #[must_use]
    pub fn fits(&self) -> bool {
        // For etcd an operation with a condition is a transaction inside the transaction. It subtracts the longest list
        // of the outer one from what it allows for the inner one.
        let mut ops = self.then.iter().chain(&self.otherwise);
        let inner = usize::from(ops.any(|op| matches!(op, Op::DeleteIf(..))));
        let longest = self.compares.len().max(self.then.len()).max(self.otherwise.len()) + inner;
        let written = |op: &Op| if let Op::Put(key, value, _) = op { key.len() + value.len() } else { 0 };
        let bytes: usize = self.then.iter().chain(&self.otherwise).map(written).sum();
        longest <= limits::TXN_OPS && bytes <= limits::REQUEST_BYTES
    }
}

/// One key as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Bytes,
    /// Its value; empty in reads of names only.
    pub value: Vec<u8>,
    /// The revision that created it.
    pub create_revision: i64,
    /// The revision that wrote it last.
    pub mod_revision: i64,
    /// The lease it hangs on; 0 for none.
    pub lease: i64,
}

/// The answer to one operation: for a read what was found, else empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// The keys.
    pub entries: Vec<Entry>,
    /// How many keys the range has, also those that were not returned.
    pub count: i64,
}

impl Found {
    /// The only key of a read of one key.
    #[must_use]
    pub fn one(&self) -> Option<&Entry> {
        self.entries.first()
    }
}

/// The answer to a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Whether the compares were true.
    pub succeeded: bool,
    /// The store's revision after it.
    pub revision: i64,
    /// One answer for each operation of the branch that was taken.
    pub found: Vec<Found>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_inside_takes_one_from_what_fits() {
        let compares = |n: usize| (0..n).map(|i| Compare::Create(vec![i as u8], 0)).collect();
        let conditional = vec![Op::DeleteIf(b"k".to_vec(), b"v".to_vec())];
        for (count, then, fits) in [
            (limits::TXN_OPS, vec![Op::Delete(b"k".to_vec())], true),
            (limits::TXN_OPS + 1, Vec::new(), false),
            (limits::TXN_OPS - 1, conditional.clone(), true),
            (limits::TXN_OPS, conditional, false),
        ] {
            let txn = Txn { compares: compares(count), then, ..Txn::default() };
            assert_eq!(txn.fits(), fits, "{count} compares");
        }
    }
}
