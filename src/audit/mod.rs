//! Proves the invariants of a whole tree, read at one revision.
//!
//! - [`Audit`] takes keys one by one, and then judges them together; pure.
//! - [`finding`]: what it may find; `explain`: what that means; [`repair`]: what of it can be repaired without harm.
//! - [`accept`]: takes a store that went back in time into service again; [`pause`]: ends the pause of a migration.

pub mod accept;
mod explain;
pub mod finding;
#[cfg(test)]
pub(crate) mod fixture;
mod judge;
pub mod pause;
mod pools;
pub mod repair;
mod seen;

pub use explain::Explanation;
pub use finding::{Finding, Kind};
pub use pools::PoolCounts;
pub use seen::Audit;

use crate::pool::record::Meta;
use crate::pool::{Addr, NetworkName};
use crate::store::kv::{Failure, Kv};
use crate::store::session::Session;
use crate::store::walk::walk;

/// What an audit found.
#[derive(Debug, Default)]
pub struct Report {
    /// The revision that was read.
    pub revision: i64,
    /// What must not be, in the order of the keys.
    pub violations: Vec<Finding>,
    /// What may be and costs a little, in the order of the keys.
    pub harmless: Vec<Finding>,
    /// Each set bit without a reservation.
    pub stray_bits: Vec<(NetworkName, Addr)>,
    /// How much was read.
    pub counts: Counts,
    /// How much of each pool is held, by name.
    pub pools: Vec<PoolCounts>,
    /// What all writers have agreed on.
    pub meta: MetaState,
    /// What can be repaired.
    pub repairs: repair::Repairs,
}

/// How much a tree holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// Networks with any key.
    pub networks: usize,
    /// Reservations, those that do not decode too.
    pub reservations: usize,
    /// Addresses that are cooling.
    pub cooling: usize,
    /// Owner records.
    pub owners: usize,
    /// Pod index entries.
    pub pods: usize,
    /// Pages.
    pub pages: usize,
    /// Summaries.
    pub summaries: usize,
    /// Tombstones.
    pub tombstones: usize,
    /// Tickets of queues.
    pub tickets: usize,
}

/// The meta of a tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum MetaState {
    /// There is none.
    #[default]
    Missing,
    /// There is one that this program cannot read, or that is not for it.
    Unreadable,
    /// There is one, of this mod revision.
    Known(Meta, i64),
}

/// Audits the whole tree at one revision.
///
/// # Errors
/// [`Failure`] if it could not be read to its end.
pub async fn audit<K: Kv>(session: Session<'_, K>) -> Result<Report, Failure> {
    audit_from(session, || Audit::new(session.keys)).await
}

/// Audits bits and what hangs on leases at one revision, and leaves owners aside: for a program that
/// does this every few minutes and has to stay small.
///
/// # Errors
/// As [`audit`].
pub async fn audit_bits<K: Kv>(session: Session<'_, K>) -> Result<Report, Failure> {
    audit_from(session, || Audit::of_bits(session.keys)).await
}

async fn audit_from<K: Kv>(session: Session<'_, K>, fresh: impl Fn() -> Audit) -> Result<Report, Failure> {
    let root = session.keys.root();
    let (audit, revision) = walk(session, &root, fresh, |audit: &mut Audit, entry| audit.see(&entry)).await?;
    Ok(Report { revision, ..audit.finish() })
}

#[cfg(test)]
mod tests;
