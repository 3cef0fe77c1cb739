//! Proves the invariants of a whole tree, read at one revision.
//!
//! - [`Audit`] takes keys one by one, and then judges them together; pure. `links` tests that records agree with each
//!   other; `inquiry` names those that do not.
//! - [`finding`]: the kinds of findings; `explain`: their meaning; [`repair`]: repairs that cannot do harm.
//! - [`mend`]: repairs that a person must agree to.
//! - [`accept`]: takes a store that went back in time into service again; [`pause`]: ends the pause of a migration.

pub mod accept;
mod explain;
pub mod finding;
#[cfg(any(test, feature = "fixtures"))]
#[allow(missing_docs, reason = "for unit tests, also those of other crates")]
pub mod fixture;
mod inquiry;
mod judge;
mod links;
pub mod mend;
pub mod pause;
mod ranges;
pub mod repair;
mod seen;

pub use explain::Explanation;
pub use finding::{Finding, Kind};
pub use judge::Looked;
pub use ranges::{CountedRange, PoolCounts};
pub use seen::Audit;

use std::collections::BTreeSet;
use std::rc::Rc;

use tokio::time::Instant;

use metes_core::limits;
use metes_core::pool::{Addr, Meta, NetworkName, Owner};
use metes_core::txn::Entry;
use metes_engine::kv::{Failure, Kv};
use metes_engine::session::Session;
use metes_engine::walk::{unless_compacted, walk_parts};

/// The result of an audit.
#[derive(Debug, Default)]
pub struct Report {
    /// The revision that was read.
    pub revision: i64,
    /// The broken invariants, in the order of the keys.
    pub violations: Vec<Finding>,
    /// The findings that only cost a little, in the order of the keys.
    pub harmless: Vec<Finding>,
    /// Each set bit without a reservation.
    pub stray_bits: Vec<(NetworkName, Addr)>,
    /// The number of keys of each kind.
    pub counts: Counts,
    /// The held and free addresses of each pool, by name.
    pub pools: Vec<PoolCounts>,
    /// The held and free addresses of each range, by network.
    pub ranges: Vec<CountedRange>,
    /// The record on which all writers have agreed.
    pub meta: MetaState,
    /// The repairs that cannot do harm.
    pub repairs: repair::Repairs,
}

/// The size of a tree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// Networks with any key.
    pub networks: usize,
    /// Reservations, those that do not decode too.
    pub reservations: usize,
    /// Addresses that are cooling.
    pub(crate) cooling: usize,
    /// Owner records.
    pub owners: usize,
    /// Pod index entries.
    pub(crate) pods: usize,
    pub(crate) pages: usize,
    pub(crate) summaries: usize,
    pub(crate) tombstones: usize,
    pub(crate) tickets: usize,
}

/// The meta of a tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum MetaState {
    /// There is none.
    #[default]
    Missing,
    /// There is one that this program cannot read, or that is not for it.
    Unreadable,
    /// There is one, in this key.
    Known(Box<Meta>, Entry),
}

/// Audits the whole tree at one revision.
///
/// # Errors
/// [`Failure`] if it could not be read to its end.
pub async fn audit<K: Kv>(session: Session<'_, K>) -> Result<Report, Failure> {
    audit_from(session, limits::WALK_KEYS, || Audit::new(session.keys)).await
}

/// Audits bits and the keys on leases at one revision, and leaves owners aside: for a program that does this every few
/// minutes and has to stay small. Addresses of `idle` owners are counted apart.
///
/// # Errors
/// As [`audit`].
pub async fn audit_bits<K: Kv>(session: Session<'_, K>, idle: BTreeSet<Owner>) -> Result<Report, Failure> {
    let idle = Rc::new(idle);
    audit_from(session, limits::LIST_KEYS, || Audit::of_bits(session.keys, idle.clone())).await
}

/// A second look at the same revision names the suspects of the first one. It has as much time as the first.
async fn audit_from<K: Kv>(
    session: Session<'_, K>,
    limit: i64,
    fresh: impl Fn() -> Audit,
) -> Result<Report, Failure> {
    let time = session.until.saturating_duration_since(Instant::now());
    unless_compacted(async || {
        let (mut session, mut audit, mut revision) = (session, fresh(), 0);
        loop {
            let bounds = audit.bounds();
            let parts = bounds.each_ref().map(|bound| &bound[..]);
            revision = walk_parts(session, parts, (limit, revision), |entry| audit.see(&entry)).await?;
            match audit.finish() {
                Looked::Enough(report) => return Ok(Report { revision, ..*report }),
                Looked::Again(again) => audit = *again,
            }
            session = session.by(Instant::now() + time);
        }
    })
    .await
}

#[cfg(test)]
mod tests;
