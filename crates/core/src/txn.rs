//! Transactions as values: built by pure code, then sent by `metes_etcd::client`.

use super::keys::{Bytes, LeaseId, prefix_end};
use crate::limits;

/// The number of operations that the node's own key needs in each list: those for its former name included, and for
/// meta where it is read.
const OWN_KEY_OPS: usize = 3;

/// A condition on the store at the moment a transaction is applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compare {
    /// The key's create revision (0: the key does not exist).
    Create(Bytes, i64),
    /// The key's mod revision (0: the key does not exist).
    Mod(Bytes, i64),
    /// The key was written at this revision or later. It is false for a key that does not exist.
    NotOlder(Bytes, i64),
    /// The key was last written before this revision, or does not exist.
    Older(Bytes, i64),
    /// The key's value. It is false for a key that does not exist.
    Value(Bytes, Vec<u8>),
    /// No key begins with this.
    Empty(Bytes),
}

impl Compare {
    /// The key, or the prefix of keys, that it looks at.
    #[must_use]
    pub fn key(&self) -> &Bytes {
        match self {
            Compare::Create(key, _)
            | Compare::Mod(key, _)
            | Compare::NotOlder(key, _)
            | Compare::Older(key, _)
            | Compare::Value(key, _)
            | Compare::Empty(key) => key,
        }
    }

    /// True if the condition is met where this is the entry of its key, or of a key that begins with its prefix.
    #[must_use]
    pub fn is_met_by(&self, entry: Option<&Entry>) -> bool {
        let modified = entry.map_or(0, |entry| entry.mod_revision);
        match self {
            Compare::Create(_, revision) => entry.map_or(0, |entry| entry.create_revision) == *revision,
            Compare::Mod(_, revision) => modified == *revision,
            Compare::NotOlder(_, revision) => modified >= *revision,
            Compare::Older(_, revision) => modified < *revision,
            Compare::Value(_, value) => entry.is_some_and(|entry| entry.value == *value),
            Compare::Empty(_) => entry.is_none(),
        }
    }
}

/// One operation of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Reads one key.
    Get(Bytes),
    /// Reads keys in order from `start` up to, without, `end`.
    List(List),
    /// Reads the oldest tickets of the queue whose tickets begin with this, at most so many. The count in the answer is
    /// that of all tickets in the queue.
    Tickets(Bytes, i64),
    /// Writes a key, attached to a lease if one is given.
    Put(Bytes, Vec<u8>, Option<LeaseId>),
    /// Deletes a key; no error if it does not exist.
    Delete(Bytes),
    /// A transaction inside the transaction: it takes a branch of its own, and does not stop the outer one. etcd judges
    /// all compares, these too, before it writes anything. A key must not be put in it and written elsewhere too.
    Nested(Box<Txn>),
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
    /// True if the operation changes the store.
    #[must_use]
    pub fn writes(&self) -> bool {
        match self {
            Op::Put(..) | Op::Delete(_) => true,
            Op::Nested(txn) => !txn.only_reads(),
            Op::Get(_) | Op::List(_) | Op::Tickets(..) => false,
        }
    }
}

/// One atomic transaction: `then` if all of `compares` are true, else `otherwise`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Txn {
    /// The step of the protocol in one word, for logs, and for tests that stop a run there.
    pub step: &'static str,
    /// The conditions.
    pub compares: Vec<Compare>,
    /// The operations if all of them hold.
    pub then: Vec<Op>,
    /// The operations if one of them does not.
    pub otherwise: Vec<Op>,
    /// It is a part of a walk through many keys, for which etcd may need long.
    pub is_walk: bool,
    /// It finds out what became of another transaction. It may be sent to each endpoint, and only an answer of the etcd
    /// to which the other one went counts.
    pub settles: bool,
}

impl Txn {
    /// A transaction that only reads: served by etcd without a proposal, unless one is nested in it.
    #[must_use]
    pub fn read(ops: Vec<Op>) -> Self {
        Self { step: "read", then: ops, ..Self::default() }
    }

    /// A listing that is a part of a walk.
    #[must_use]
    pub fn walk(list: List) -> Self {
        Self { is_walk: true, ..Self::read(vec![Op::List(list)]) }
    }

    /// True if no branch of it changes the store.
    #[must_use]
    pub fn only_reads(&self) -> bool {
        !self.then.iter().chain(&self.otherwise).any(Op::writes)
    }

    /// The operations of the branch that is taken if the compares are `true`, or are not.
    #[must_use]
    pub fn branch(&self, succeeded: bool) -> &[Op] {
        if succeeded { &self.then } else { &self.otherwise }
    }

    /// True if it stays within etcd's default limits: 128 operations in each list, 1.5 MiB in all.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.bytes() <= limits::REQUEST_BYTES && self.fits_into(limits::TXN_OPS)
    }

    /// The same with room for what the driver adds to a commit: the node's own key.
    pub(crate) fn fits_with_own_key(&self) -> bool {
        self.bytes() <= limits::REQUEST_BYTES && self.fits_into(limits::TXN_OPS - OWN_KEY_OPS)
    }

    /// etcd subtracts the longest list of a transaction from what it allows for those inside it.
    fn fits_into(&self, most: usize) -> bool {
        let longest = self.compares.len().max(self.then.len()).max(self.otherwise.len());
        let Some(left) = most.checked_sub(longest) else { return false };
        self.then.iter().chain(&self.otherwise).all(|op| match op {
            Op::Nested(txn) => txn.fits_into(left),
            _ => true,
        })
    }

    /// The number of bytes of its puts.
    fn bytes(&self) -> usize {
        let written = |op: &Op| match op {
            Op::Put(key, value, _) => key.len() + value.len(),
            Op::Nested(txn) => txn.bytes(),
            _ => 0,
        };
        self.then.iter().chain(&self.otherwise).map(written).sum()
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
    /// The number of keys of the range, also those that were not returned.
    pub count: i64,
    /// The answer to an [`Op::Nested`].
    pub nested: Option<NestedReply>,
}

/// The answer to a transaction inside a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NestedReply {
    /// True if its compares were true.
    pub succeeded: bool,
    /// One answer for each operation of the branch that was taken.
    pub found: Vec<Found>,
}

impl Found {
    /// The answer to a read.
    #[must_use]
    pub fn read(entries: Vec<Entry>, count: i64) -> Self {
        Self { entries, count, nested: None }
    }

    /// The only key of a read of one key.
    #[must_use]
    pub fn one(&self) -> Option<&Entry> {
        self.entries.first()
    }
}

/// The answer to a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// True if the compares were true.
    pub succeeded: bool,
    /// The store's revision after it.
    pub revision: i64,
    /// One answer for each operation of the branch that was taken.
    pub found: Vec<Found>,
}

/// Each of `ops` with its answer, in order; of a nested transaction, those of the branch that was taken.
#[must_use]
pub fn answered<'t>(ops: &'t [Op], found: &'t [Found]) -> Vec<(&'t Op, &'t Found)> {
    let each = ops.iter().zip(found).map(|(op, found)| match (op, &found.nested) {
        (Op::Nested(txn), Some(reply)) => answered(txn.branch(reply.succeeded), &reply.found),
        _ => vec![(op, found)],
    });
    each.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_inside_takes_one_from_what_fits() {
        let compares = |n: usize| (0..n).map(|i| Compare::Create(vec![i as u8], 0)).collect();
        let one = Txn { compares: compares(1), then: vec![Op::Delete(b"k".to_vec())], ..Txn::default() };
        let conditional = vec![Op::Nested(Box::new(one))];
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

    #[test]
    fn what_is_nested_has_what_the_longest_list_around_it_leaves() {
        let gets = |n: usize| vec![Op::Get(b"k".to_vec()); n];
        let nested = |then: Vec<Op>| Op::Nested(Box::new(Txn { then, ..Txn::default() }));
        let of = |otherwise: Vec<Op>| Txn { then: gets(100), otherwise, ..Txn::default() };
        assert!(of(vec![nested(gets(28)); 100]).fits());
        assert!(!of(vec![nested(gets(29))]).fits());
        let two_deep = |n: usize| of(vec![nested([vec![nested(gets(n))], gets(19)].concat())]);
        assert!(two_deep(8).fits());
        assert!(!two_deep(9).fits());
        let half = Op::Put(b"k".to_vec(), vec![0; limits::REQUEST_BYTES / 2], None);
        assert!(of(vec![half.clone()]).fits());
        assert!(!of(vec![nested(vec![half.clone()]), nested(vec![half])]).fits());
    }
}
