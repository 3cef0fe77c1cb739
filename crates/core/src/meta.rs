//! The meta of a prefix: only this file judges it and plans how it is written. Pure; `metes_engine::prefix` carries
//! that out.
//!
//! A prefix without a meta is new, or has lost it. So the transaction that writes the first meta compares that there
//! are no allocations.

use super::builder::Builder;
use super::keys::Keys;
use super::snapshot::Snapshot;
use super::txn::{Compare, Entry, List, Op, Txn};
use crate::pool::{Meta, Record, VERSION};

/// Why a store hands out no addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutOfService {
    /// Only this version or a newer one may write to it.
    Newer(u32),
    /// It has gone back, was emptied or is another one, since this epoch.
    Suspect(u64),
    /// A migration is under way; why.
    Paused(String),
}

impl OutOfService {
    /// Why, for an operator.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            OutOfService::Newer(version) => {
                format!("only writers of version {version} or newer may write to it; use a newer metes")
            }
            OutOfService::Suspect(epoch) => {
                format!("it is under suspicion since epoch {epoch}; `metes check` says what to do")
            }
            OutOfService::Paused(why) => format!("a migration is under way: {why}"),
        }
    }
}

/// Checks that a store with this meta hands out addresses.
///
/// # Errors
/// [`OutOfService`]
pub fn judge(meta: &Meta) -> Result<(), OutOfService> {
    writable(meta).map_err(OutOfService::Newer)?;
    match (meta.suspect, &meta.paused) {
        (Some(epoch), _) => Err(OutOfService::Suspect(epoch)),
        (None, Some(why)) => Err(OutOfService::Paused(why.clone())),
        (None, None) => Ok(()),
    }
}

/// Checks that this program may write to a store with this meta.
///
/// # Errors
/// The oldest version that may.
pub fn writable(meta: &Meta) -> Result<(), u32> {
    if meta.min_writer > VERSION { Err(meta.min_writer) } else { Ok(()) }
}

/// Compares that the meta is as it was read, none if there was none. It compares the value: two copies of a store have
/// the same revisions.
#[must_use]
pub fn as_read(keys: &Keys, stored: Option<&Entry>) -> Compare {
    match stored {
        Some(entry) => Compare::Value(keys.meta(), entry.value.clone()),
        None => Compare::Mod(keys.meta(), 0),
    }
}

/// The transaction that replaces the meta that was read, none if there was none. `step` names it for logs and tests.
#[must_use]
pub fn replacement(keys: &Keys, step: &'static str, stored: Option<&Entry>, meta: &Meta) -> Txn {
    Txn {
        step,
        compares: vec![as_read(keys, stored)],
        then: vec![Op::Put(keys.meta(), meta.encode(), None)],
        ..Txn::default()
    }
}

/// The transaction that makes the first meta, in a prefix without allocations.
#[must_use]
pub fn founding(keys: &Keys, step: &'static str, meta: &Meta) -> Txn {
    let mut txn = replacement(keys, step, None, meta);
    txn.compares.extend(keys.allocations().into_iter().map(Compare::Empty));
    txn
}

/// Makes a commit rely on the meta as it was read, or write `first` into a prefix without allocations.
pub(crate) fn rely_on(keys: &Keys, seen: &Snapshot, first: &Meta, builder: &mut Builder<'_>) {
    let key = keys.meta();
    builder.same_value(key.clone());
    if seen.knows(&key) && seen.entry(&key).is_none() {
        keys.allocations().into_iter().for_each(|prefix| builder.empty(prefix));
        builder.put(key, first.encode());
        builder.effects.founds = true;
    }
}

/// The judgement of a prefix. One that has allocations and no meta has lost its meta.
pub(crate) enum Emptiness {
    /// It has a meta, or no allocations.
    Sound,
    /// It has allocations and no meta.
    Lost,
    /// Only these reads will tell.
    Unknown(Vec<Op>),
}

/// Judges a prefix whose meta was read.
pub(crate) fn emptiness(keys: &Keys, seen: &Snapshot) -> Emptiness {
    let meta = keys.meta();
    if seen.entry(&meta).is_some() {
        return Emptiness::Sound;
    }
    let prefixes = keys.allocations();
    // Another run may have been the first since it was counted.
    let counts = prefixes.iter().map(|prefix| seen.count(prefix, &meta)).collect::<Option<Vec<i64>>>();
    match counts {
        Some(counts) if counts.iter().all(|count| *count == 0) => Emptiness::Sound,
        Some(_) => Emptiness::Lost,
        None => {
            let count = |prefix: &Vec<u8>| Op::List(List { keys_only: true, ..List::prefix(prefix, 1) });
            Emptiness::Unknown(std::iter::once(Op::Get(meta)).chain(prefixes.iter().map(count)).collect())
        }
    }
}
