//! Repairs without harm: bits, summaries, and keys that a lease should have removed.
//!
//! A repair relies on nothing but its compares: the page's mod revision, the absence (or the mod revision) of each
//! reservation, the summary's mod revision and meta's. If one of them has changed, nothing happens, and another audit
//! finds the rest. A record that does not decode is never touched.

use std::collections::{BTreeMap, BTreeSet};

use super::seen::Bitmap;
use metes_core::keys::Bytes;
use metes_core::limits;
use metes_core::pool::bitmap::Bits;
use metes_core::pool::{AskedRanges, NetworkName, Page, Summary};
use metes_core::txn::{Compare, Op, Txn};
use metes_engine::kv::{Failure, Kv};
use metes_engine::session::Session;

/// The repairs that an audit found.
#[derive(Debug, Default)]
pub struct Repairs {
    /// Meta's mod revision (0: missing); none if this program may not write to this tree.
    pub(super) meta_revision: Option<i64>,
    pub(super) pages: Vec<PageRepair>,
    pub(super) summaries: BTreeMap<(NetworkName, Summary), Bitmap>,
    /// Keys to delete, with their mod revisions.
    pub(super) stale: Vec<(Bytes, i64)>,
    /// Pages and summaries without a set bit, with their mod revisions: as good as none.
    pub(super) empty: Vec<(Bytes, i64)>,
    /// The notes of asked ranges to delete, with mod revisions: ranges of which nobody holds an address, and those that
    /// lie in ranges that younger notes ask for.
    pub(super) asked: Vec<(Bytes, i64, AskedRanges)>,
}

/// One page whose bits, or whose bit in the summary, are not as they should be.
#[derive(Debug)]
pub(super) struct PageRepair {
    pub(super) network: NetworkName,
    pub(super) page: Page,
    revision: i64,
    bits: Bits,
    /// Set bits without a reservation.
    pub(super) clear: Vec<usize>,
    /// Clear bits with a reservation, and its mod revision.
    pub(super) set: Vec<(usize, i64)>,
}

/// The counts of a repair.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Repaired {
    /// Stray bits that were cleared.
    pub cleared: usize,
    /// Bits of reservations that were set.
    pub set: usize,
    /// Bits of summaries that were set or cleared.
    pub summaries: usize,
    /// Tombstones and tickets that were deleted.
    pub deleted: usize,
    /// The number of empty pages and summaries, and of notes of ranges asked for long ago, that were deleted.
    pub emptied: usize,
    /// Empty pages and summaries, and notes of ranges that were asked for long ago, that were deleted.
    pub lost: usize,
}

impl Repairs {
    /// True if there is nothing to repair.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty() && self.stale.is_empty()
    }

    /// Leaves the bits of these networks as they are.
    pub fn spare(&mut self, networks: &BTreeSet<NetworkName>) {
        self.pages.retain(|page| !networks.contains(&page.network));
    }

    /// True if this program may write to this tree. It may not if the tree is a newer program's, if meta does not
    /// decode, or while a migration is under way.
    #[must_use]
    pub fn allowed(&self) -> bool {
        self.meta_revision.is_some()
    }
}

impl Repaired {
    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            cleared: self.cleared + other.cleared,
            set: self.set + other.set,
            summaries: self.summaries + other.summaries,
            deleted: self.deleted + other.deleted,
            emptied: self.emptied + other.emptied,
            lost: self.lost + other.lost,
        }
    }
}

/// Repairs the findings of an audit, and deletes pages and summaries without a set bit: a missing one says the same and
/// costs nothing. So it does with notes of ranges that were asked for long before `now` (RFC 3339), if nobody holds an
/// address of them or a younger record has them too.
///
/// # Errors
/// As [`repair`].
pub async fn tidy<K: Kv>(
    session: Session<'_, K>,
    mut repairs: Repairs,
    now: &str,
) -> Result<Repaired, Failure> {
    let mut stale = std::mem::take(&mut repairs.empty);
    let is_old = |asked: &AskedRanges| asked.age(now).is_some_and(|age| age >= limits::ASKED_FORGOTTEN);
    let asked = repairs.asked.drain(..).filter(|(_, _, asked)| is_old(asked));
    stale.extend(asked.map(|(key, revision, _)| (key, revision)));
    let empty = Repairs { meta_revision: repairs.meta_revision, stale, ..Repairs::default() };
    let repaired = repair(session, repairs).await?;
    let Repaired { deleted, lost, .. } = repair(session, empty).await?;
    Ok(repaired.and(Repaired { emptied: deleted, lost, ..Repaired::default() }))
}

/// Repairs the findings of an audit, as far as they have not changed since.
///
/// # Errors
/// [`Failure`]; the repairs until then stay, and another repair does the rest.
pub async fn repair<K: Kv>(session: Session<'_, K>, repairs: Repairs) -> Result<Repaired, Failure> {
    let Repairs { meta_revision: Some(meta_revision), pages, summaries, stale, .. } = repairs else {
        return Ok(Repaired::default());
    };
    let meta = Compare::Mod(session.keys.meta(), meta_revision);
    let mut repair = Repair { session, meta, summaries, repaired: Repaired::default() };
    for page in pages {
        repair.repair_page(page).await?;
    }
    repair.delete_stale(&stale).await?;
    Ok(repair.repaired)
}

/// A repair under way.
struct Repair<'a, K> {
    session: Session<'a, K>,
    /// The compare that begins every transaction.
    meta: Compare,
    /// As they are now, this repair's own changes included.
    summaries: BTreeMap<(NetworkName, Summary), Bitmap>,
    repaired: Repaired,
}

impl<K: Kv> Repair<'_, K> {
    /// Repairs a page in as many transactions as it needs; each builds on the one before.
    async fn repair_page(&mut self, mut page: PageRepair) -> Result<(), Failure> {
        loop {
            let step = page.step();
            let summary = self.summary_after(&page, &step);
            let txn = self.transaction(&page, &step, summary.as_ref());
            let reply = self.session.txn(&txn).await?;
            if !reply.succeeded {
                self.repaired.lost += 1;
                return Ok(());
            }
            if let Some(bits) = summary {
                let key = (page.network.clone(), page.page.summary());
                self.summaries.insert(key, Bitmap { revision: reply.revision, bits: Some(bits) });
                self.repaired.summaries += 1;
            }
            self.repaired.cleared += step.clear.len();
            self.repaired.set += step.set.len();
            page.advance(step, reply.revision);
            if page.is_done() {
                return Ok(());
            }
        }
    }

    /// The summary as it must be after `step`; none if it need not, or must not, be written.
    fn summary_after(&self, page: &PageRepair, step: &RepairStep) -> Option<Bits> {
        let summary = self.summaries.get(&(page.network.clone(), page.page.summary()))?;
        let mut bits = summary.bits.clone()?;
        let (bit, full) = (page.page.bit(), step.bits.is_full());
        if bits.get(bit) == full {
            return None;
        }
        if full {
            bits.set(bit)
        } else {
            bits.clear(bit)
        }
        Some(bits)
    }

    fn transaction(&self, page: &PageRepair, step: &RepairStep, summary: Option<&Bits>) -> Txn {
        let key = self.session.keys.page(&page.network, page.page);
        let ip = |bit| self.session.keys.ip(&page.network, page.page.address(bit));
        let cooling = |bit| self.session.keys.cooling(&page.network, page.page.address(bit));
        let mut txn = Txn { step: "repair", compares: vec![self.meta.clone()], ..Txn::default() };
        txn.compares.push(Compare::Mod(key.clone(), page.revision));
        txn.compares.extend(step.clear.iter().map(|&bit| Compare::Create(ip(bit), 0)));
        txn.compares.extend(step.clear.iter().map(|&bit| Compare::Create(cooling(bit), 0)));
        txn.compares.extend(step.set.iter().map(|&(bit, revision)| Compare::Mod(ip(bit), revision)));
        if step.bits != page.bits {
            txn.then.push(Op::Put(key, step.bits.to_bytes(), None));
        }
        if let Some(bits) = summary {
            let id = page.page.summary();
            let key = self.session.keys.summary(&page.network, id);
            let revision = self.summaries.get(&(page.network.clone(), id)).map_or(0, |s| s.revision);
            txn.compares.push(Compare::Mod(key.clone(), revision));
            txn.then.push(Op::Put(key, bits.to_bytes(), None));
        }
        txn
    }

    /// Deletes the keys that no lease will: each by itself, so that one that changed does not keep the others.
    async fn delete_stale(&mut self, stale: &[(Bytes, i64)]) -> Result<(), Failure> {
        for (key, revision) in stale {
            let txn = Txn {
                step: "delete-stale",
                compares: vec![self.meta.clone(), Compare::Mod(key.clone(), *revision)],
                then: vec![Op::Delete(key.clone())],
                ..Txn::default()
            };
            if self.session.txn(&txn).await?.succeeded {
                self.repaired.deleted += 1;
            } else {
                self.repaired.lost += 1;
            }
        }
        Ok(())
    }
}

/// The changes of one transaction to a page, and the page after them.
struct RepairStep {
    clear: Vec<usize>,
    set: Vec<(usize, i64)>,
    bits: Bits,
}

impl PageRepair {
    /// A page as it was read; revision 0 if it does not exist.
    pub(super) fn new(network: NetworkName, page: Page, revision: i64, bits: Bits) -> Self {
        Self { network, page, revision, bits, clear: Vec::new(), set: Vec::new() }
    }

    fn step(&self) -> RepairStep {
        let set: Vec<_> = self.set.iter().copied().take(limits::REPAIR_BITS).collect();
        let clear: Vec<_> = self.clear.iter().copied().take(limits::REPAIR_BITS - set.len()).collect();
        let mut bits = self.bits.clone();
        set.iter().for_each(|&(bit, _)| bits.set(bit));
        clear.iter().for_each(|&bit| bits.clear(bit));
        RepairStep { clear, set, bits }
    }

    fn advance(&mut self, step: RepairStep, revision: i64) {
        if step.bits != self.bits {
            self.revision = revision;
        }
        self.bits = step.bits;
        self.set.drain(..step.set.len());
        self.clear.drain(..step.clear.len());
    }

    fn is_done(&self) -> bool {
        self.set.is_empty() && self.clear.is_empty()
    }
}
