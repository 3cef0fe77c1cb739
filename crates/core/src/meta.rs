//! The meta of a prefix: only this file judges it and plans how it is written. Pure; `metes_engine::prefix` carries
//! that out.
//!
//! A prefix without a meta is new, or has lost it. So the transaction that writes the first meta compares that there
//! are no allocations. It writes nothing else (see `metes_engine::endpoints`), and no other transaction that gives
//! addresses writes a first meta.

use super::keys::Keys;
use super::txn::{Compare, Entry, Op, Txn};
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
    /// It has no meta: nothing was stored here, or the meta is lost.
    NoMeta,
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
            OutOfService::NoMeta => "it has no meta; `metes check` says what to do".to_owned(),
        }
    }
}

/// Checks that a store with this meta hands out addresses.
///
/// # Errors
/// [`OutOfService`]
pub fn judge(meta: Option<&Meta>) -> Result<(), OutOfService> {
    let meta = meta.ok_or(OutOfService::NoMeta)?;
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
