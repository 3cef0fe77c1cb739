//! What is refused without a look at the store, in the words of etcd.

use metes::limits;
use metes::store::kv::Failure;
use metes::store::txn::{Compare, Op, Txn};

/// What etcd's client of metes refuses before anything is sent.
pub(super) fn fits(txn: &Txn) -> Result<(), Failure> {
    if txn.fits() {
        return Ok(());
    }
    Err(Failure::Refused(format!(
        "the transaction needs more than {} operations, or is too large",
        limits::TXN_OPS
    )))
}

/// What etcd refuses before it looks at the store.
pub(super) fn well_formed(txn: &Txn) -> Result<(), Failure> {
    let nameless = |compare: &Compare| match compare {
        Compare::Create(key, _) | Compare::Mod(key, _) | Compare::Empty(key) => key.is_empty(),
    };
    if txn.compares.iter().any(nameless) || txn.then.iter().chain(&txn.otherwise).any(has_no_key) {
        return Err(refused("etcdserver: key is not provided"));
    }
    if writes_twice(&txn.then) || writes_twice(&txn.otherwise) {
        return Err(refused("etcdserver: duplicate key given in txn request"));
    }
    Ok(())
}

fn has_no_key(op: &Op) -> bool {
    match op {
        Op::Get(key) | Op::Put(key, ..) | Op::Delete(key) | Op::DeleteIf(key, _) => key.is_empty(),
        Op::List(list) => list.start.is_empty(),
        // The client reads all keys instead.
        Op::Tickets { .. } => false,
    }
}

fn writes_twice(ops: &[Op]) -> bool {
    ops.iter().enumerate().any(|(index, op)| {
        let Op::Put(key, ..) = op else { return false };
        let written = |other: &Op| match other {
            Op::Put(other, ..) | Op::Delete(other) | Op::DeleteIf(other, _) => other == key,
            Op::Get(_) | Op::List(_) | Op::Tickets { .. } => false,
        };
        ops.iter().enumerate().any(|(other, op)| other != index && written(op))
    })
}

pub(super) fn has_put(txn: &Txn) -> bool {
    txn.then.iter().chain(&txn.otherwise).any(|op| matches!(op, Op::Put(..)))
}

pub(super) fn no_space() -> Failure {
    Failure::NoSpace("etcdserver: mvcc: database space exceeded".to_owned())
}

pub(super) fn refused(why: &str) -> Failure {
    Failure::Refused(why.to_owned())
}
