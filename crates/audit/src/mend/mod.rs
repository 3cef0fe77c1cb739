//! Mends the findings that a repair must not touch, because a person has to decide: keys that do not decode, and
//! records that do not fit together.
//!
//! - [`Related`]: the other records of the tree that a mend depends on, read in one walk.
//! - `plan`: the state before a mend, and the mend as one transaction; pure.
//! - [`look`] reads the keys that a plan needs, and [`Mend::carry_out`] commits it.
//! - [`kept`]: the file that keeps what a mend deletes and replaces; [`restore`] puts it back.
//!
//! The transaction compares the mod revision of all that was read, and meta's.

pub mod kept;
mod plan;
mod related;
pub mod restore;

use super::Report;
use super::finding::{Finding, Kind};
use kept::KeptEntry;
use metes_core::keys::{Bytes, Key, Keys};
use metes_core::snapshot::Snapshot;
use metes_core::txn::{Compare, Txn};
use metes_engine::kv::{Failure, Kv};
use metes_engine::repair::needed_bits;
use metes_engine::session::Session;
use plan::Planner;
pub use related::Related;

/// The most attempts to plan and commit a mend. Each follows a write of a page by others.
const TRIES: usize = 8;

/// The remedy for a finding.
#[derive(Debug)]
pub enum Mending {
    /// This, after somebody has agreed.
    Possible(Mend),
    /// [`super::repair`] does it, and needs not ask.
    ByRepair,
    /// This, in a sentence.
    Instead(String),
    /// Nothing: it has changed since it was found.
    Changed,
}

/// A mend of one finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mend {
    /// The state before the mend, and the owners that have a part in it.
    pub stands: Vec<String>,
    /// The writes and deletions of the mend.
    pub does: Vec<String>,
    /// The check that a person must have made before; none if the mend cannot do harm.
    pub first: Option<&'static str>,
    /// The keys that it deletes or replaces, as they are; pages and summaries only if they do not decode.
    pub kept: Vec<KeptEntry>,
    txn: Txn,
}

/// The part that mends of one audit have in common.
#[derive(Debug, Clone, Copy)]
pub struct Mends<'a> {
    /// The revision of the audit.
    audited: i64,
    /// The records that were read for the mends.
    related: &'a Related,
    /// The time that a reservation gets that is made again.
    now: &'a str,
    /// The mod revision that meta must have; none if meta is what is mended.
    meta_revision: Option<i64>,
}

impl<'a> Mends<'a> {
    /// The mends of a kind of findings of an audit, at this time (RFC 3339, for people). None if this program may not
    /// write to the tree: meta does not decode, or is a newer program's, or a migration is under way. Then only a
    /// damaged meta can be mended.
    #[must_use]
    pub fn of(kind: Kind, report: &Report, related: &'a Related, now: &'a str) -> Option<Self> {
        let meta_revision = report.repairs.meta_revision;
        let is_possible = meta_revision.is_some() || kind == Kind::UndecodableMeta;
        is_possible.then_some(Self { audited: report.revision, related, now, meta_revision })
    }
}

/// Reads the keys of a finding, and plans its mend.
///
/// # Errors
/// [`Failure`]
pub async fn look<K: Kv>(
    session: Session<'_, K>,
    mends: Mends<'_>,
    finding: &Finding,
) -> Result<Mending, Failure> {
    let mut seen = Snapshot::default();
    let mut wanted = vec![finding.key.clone()];
    let bits = match (finding.kind, session.keys.parse(&finding.key)) {
        (Kind::UndecodablePage, Ok(Key::Page(network, page))) => {
            Some(needed_bits(session, &network, page).await?)
        }
        _ => None,
    };
    loop {
        session.read(&wanted, &mut seen).await?;
        let (keys, kind) = (session.keys, finding.kind);
        let planner = Planner { keys, seen: &seen, mends, kind, bits: bits.as_ref() };
        match planner.plan(finding) {
            Ok(mending) => return Ok(mending),
            Err(missing) => wanted = missing,
        }
    }
}

impl Mend {
    /// Commits it. If others have only written pages and summaries meanwhile, it is planned anew. Returns whether it
    /// was applied: else something of it changed, and nothing was written.
    ///
    /// # Errors
    /// [`Failure`]; with one that leaves the outcome open, another audit shows it.
    pub async fn carry_out<K: Kv>(
        self,
        session: Session<'_, K>,
        mends: Mends<'_>,
        finding: &Finding,
    ) -> Result<bool, Failure> {
        let mut mend = self;
        for _ in 0..TRIES {
            if session.txn(&mend.txn).await?.succeeded {
                return Ok(true);
            }
            match look(session, mends, finding).await? {
                Mending::Possible(again) if again.relies_on(session.keys) == mend.relies_on(session.keys) => {
                    mend = again;
                }
                _ => return Ok(false),
            }
        }
        Ok(false)
    }

    /// The compares of the transaction, except those of bits, which change with each ADD.
    fn relies_on(&self, keys: &Keys) -> Vec<&Compare> {
        let is_of_bits = |key: &Bytes| matches!(keys.parse(key), Ok(Key::Page(..) | Key::Summary(..)));
        self.txn.compares.iter().filter(|compare| !is_of_bits(compare.key())).collect()
    }
}
