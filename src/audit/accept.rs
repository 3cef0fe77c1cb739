//! Takes a store that may have gone back in time into service again.
//!
//! Only a person can say that what a restored store holds is what the cluster uses. The next
//! epoch begins: high-water marks of an earlier one do not count any more.

use tokio::time::Instant;

use super::{MetaState, Report};
use crate::pool::record::{Meta, Record};
use crate::store::keys::Keys;
use crate::store::kv::{Failure, Kv};
use crate::store::txn::{Compare, Op, Txn};

/// What became of a request to accept the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    /// It was not under suspicion; nothing was written.
    NotNeeded,
    /// It was; this epoch begins.
    Epoch(u64),
    /// Its allocations had no meta; one was made, of this epoch.
    Made(u64),
    /// Its meta is not for this program; nothing was written.
    Unreadable,
    /// Its meta changed meanwhile; nothing was written.
    Changed,
}

/// The meta to write, with the mod revision that it replaces; none if nothing is to be done.
fn successor(report: &Report) -> Option<(Meta, i64)> {
    let (mut meta, replaces) = match &report.meta {
        MetaState::Missing if report.lacks_meta() => (Meta::first(), 0),
        MetaState::Known(meta, revision) if meta.suspect.is_some() => (meta.clone(), *revision),
        _ => return None,
    };
    // Every node that worked with these allocations knew the epoch before, the first one at least.
    meta.epoch = meta.epoch.max(meta.suspect.unwrap_or_default()) + 1;
    meta.suspect = None;
    Some((meta, replaces))
}

impl Report {
    /// Whether there are allocations without a meta.
    #[must_use]
    pub fn lacks_meta(&self) -> bool {
        self.violations.iter().any(|finding| finding.kind == super::Kind::MetaMissing)
    }
}

/// Accepts the store that `report` is of, if it is under suspicion.
///
/// # Errors
/// [`Failure`]; with one that leaves the outcome open, asking again does no harm.
pub async fn accept<K: Kv>(
    kv: &K,
    keys: &Keys,
    report: &Report,
    until: Instant,
) -> Result<Accepted, Failure> {
    if report.meta == MetaState::Unreadable {
        return Ok(Accepted::Unreadable);
    }
    let Some((meta, replaces)) = successor(report) else { return Ok(Accepted::NotNeeded) };
    let txn = Txn {
        compares: vec![Compare::Mod(keys.meta(), replaces)],
        then: vec![Op::Put(keys.meta(), meta.encode(), None)],
        otherwise: Vec::new(),
    };
    if !kv.txn(&txn, until).await?.succeeded {
        return Ok(Accepted::Changed);
    }
    Ok(if replaces == 0 { Accepted::Made(meta.epoch) } else { Accepted::Epoch(meta.epoch) })
}
