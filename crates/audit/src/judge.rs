//! Judges the keys of a tree: bits against reservations, pages against summaries, and each the other way round; and the
//! holders by [`Inquiry`]. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::finding::{Finding, Kind};
use super::inquiry::Inquiry;
use super::ranges::{PoolCounts, counted_ranges};
use super::repair::{PageRepair, Repairs};
use super::seen::{Audit, Bitmap, Look, Network};
use super::{MetaState, Report};
use metes_core::keys::{Bytes, Keys};
use metes_core::pool::auto::auto_pools;
use metes_core::pool::bitmap::Bits;
use metes_core::pool::{Addr, AskedRanges, NetworkName, Page, RangeSet};
use metes_core::txn::Entry;

/// The most addresses that a sentence names; of more, it gives the number.
const NAMED: usize = 8;

/// The state of an audit that has seen all keys.
pub enum Looked {
    /// It has come to its end.
    Enough(Box<Report>),
    /// Records do not agree with each other. To say which, this audit must see some of the same keys once more.
    Again(Box<Audit>),
}

impl Audit {
    /// Judges the keys that were taken.
    pub(crate) fn finish(mut self) -> Looked {
        if let Look::First(links) = &mut self.look {
            let suspects = std::mem::take(links).suspects();
            if !suspects.is_empty() {
                self.look = Look::Second(Inquiry::new(suspects));
                return Looked::Again(Box::new(self));
            }
        }
        self.counts.networks = self.networks.len();
        let counts = self.counts;
        Looked::Enough(Box::new(Report { counts, ..judge(self) }))
    }

    /// Judges a tree that is at hand.
    #[must_use]
    pub fn judge<'a>(mut self, entries: impl Iterator<Item = &'a Entry> + Clone) -> Report {
        loop {
            entries.clone().for_each(|entry| self.see(entry));
            match self.finish() {
                Looked::Enough(report) => return *report,
                Looked::Again(audit) => self = *audit,
            }
        }
    }
}

fn judge(mut audit: Audit) -> Report {
    let mut report = Report { violations: std::mem::take(&mut audit.found), ..Report::default() };
    report.repairs.stale = std::mem::take(&mut audit.stale);
    judge_meta(&audit, &mut report);
    if let Look::Second(inquiry) = &audit.look {
        inquiry.judge(&audit.keys, &mut report);
    }
    report.ranges = counted_ranges(&audit);
    report.pools = audit.pools.values().map(|pool| PoolCounts::of(pool, &report.ranges)).collect();
    judge_auto(&audit, &mut report);
    judge_holds(&audit, &mut report);
    judge_lacking(&audit, &mut report);
    report.repairs.asked = asked_in_vain(&audit);
    for (name, network) in std::mem::take(&mut audit.networks) {
        let listed = ListedUnreserved { known: audit.listed.get(&name), may_be_more: audit.has_newer_owner };
        NetworkJudge { keys: &audit.keys, name: &name, network: &network, listed }.judge(&mut report);
        keep_summaries(name, network, &mut report.repairs);
    }
    report.repairs.meta_revision = match &audit.meta {
        MetaState::Known(meta, entry) if meta.paused.is_none() => Some(entry.mod_revision),
        MetaState::Missing => Some(0),
        MetaState::Known(..) | MetaState::Unreadable => None,
    };
    report.meta = audit.meta;
    report.violations.sort();
    report.harmless.sort();
    report
}

fn judge_auto(audit: &Audit, report: &mut Report) {
    if audit.pools_are_known && auto_pools(audit.pools.values()) != audit.auto {
        let what = "does not say whom the pools are for as they say it; `metes pool apply` of any of them corrects it";
        report.violations.push(Finding::new(Kind::PoolsMismatch, &audit.keys.pool_changes(), what));
    }
}

/// The notes of asked ranges that are of no use, each with its key and its mod revision: nobody holds an address of the
/// ranges, or a younger record has them too.
fn asked_in_vain(audit: &Audit) -> Vec<(Bytes, i64, AskedRanges)> {
    let is_of_no_use =
        |one| !is_held(audit, one) || audit.asked.iter().any(|other| one.is_within(&other.asked));
    let seen = audit.asked_keys.iter().zip(&audit.asked).filter(|(_, seen)| is_of_no_use(&seen.asked));
    seen.map(|(key, seen)| (key.clone(), seen.written, seen.asked.clone())).collect()
}

/// True if somebody holds an address from the first to the last one of a range.
fn is_held(audit: &Audit, asked: &AskedRanges) -> bool {
    asked.sets.iter().flat_map(RangeSet::ranges).any(|range| {
        let network = audit.networks.get(range.network());
        network.is_some_and(|network| network.ips.range(range.first()..=range.last()).next().is_some())
    })
}

fn judge_meta(audit: &Audit, report: &mut Report) {
    if audit.has_allocations() && !audit.meta_seen {
        let what = "missing, although there are allocations: ADD fails until somebody accepts the store";
        report.violations.push(Finding::new(Kind::MetaMissing, &audit.keys.meta(), what));
    }
}

/// The time of a hold goes with the hold. Should it stay, it stops nothing.
fn judge_holds(audit: &Audit, report: &mut Report) {
    if matches!(audit.look, Look::Bits) {
        return;
    }
    for (network, address) in audit.times_of_holds.difference(&audit.set_aside) {
        let what = format!("is the time of a hold, and {address} is not set aside");
        let key = audit.keys.hold(network, *address);
        report.harmless.push(Finding::new(Kind::TimeWithoutHold, &key, what));
    }
}

/// A sighting of an earlier epoch is no violation: a person has accepted it. A pass, which looks at bits alone, reports
/// its own sightings itself.
fn judge_lacking(audit: &Audit, report: &mut Report) {
    if matches!(audit.look, Look::Bits) {
        return;
    }
    let epoch = match &audit.meta {
        MetaState::Known(meta, _) => meta.epoch,
        MetaState::Missing | MetaState::Unreadable => 0,
    };
    for (key, address, lacking) in &audit.lacking {
        if lacking.certain && lacking.epoch >= epoch {
            let what = format!("pod {} reports {address}, which the store does not hold for it", lacking.pod);
            report.violations.push(Finding::new(Kind::AddressLacking, key, what));
        }
    }
}

/// The addresses that owner records list, and that are not reserved.
struct ListedUnreserved<'a> {
    known: Option<&'a BTreeSet<Addr>>,
    /// True if a record of a newer program may list any other address.
    may_be_more: bool,
}

struct NetworkJudge<'a> {
    keys: &'a Keys,
    name: &'a NetworkName,
    network: &'a Network,
    listed: ListedUnreserved<'a>,
}

impl NetworkJudge<'_> {
    fn judge(&self, report: &mut Report) {
        let mut repairs: BTreeMap<Page, PageRepair> = BTreeMap::new();
        self.judge_reservations(report, &mut repairs);
        self.judge_cooling(report);
        self.judge_pages(report, &mut repairs);
        self.judge_summaries(report, &mut repairs);
        self.find_empty(report, &repairs);
        report.repairs.pages.extend(repairs.into_values());
    }

    /// The repair of a page whose bits are known, those of a missing page too.
    fn repair<'m>(
        &self,
        repairs: &'m mut BTreeMap<Page, PageRepair>,
        page: Page,
    ) -> Option<&'m mut PageRepair> {
        let (revision, bits) = match self.network.pages.get(&page) {
            None => (0, Bits::empty()),
            Some(bitmap) => (bitmap.revision, bitmap.bits.clone()?),
        };
        let new = || PageRepair::new(self.name.clone(), page, revision, bits);
        Some(repairs.entry(page).or_insert_with(new))
    }

    fn judge_reservations(&self, report: &mut Report, repairs: &mut BTreeMap<Page, PageRepair>) {
        for (&address, ip) in &self.network.ips {
            let key = self.keys.ip(self.name, address);
            if self.is_clear(address) {
                let what = format!("the bit of {address} is not set");
                report.violations.push(Finding::new(Kind::ReservationWithoutBit, &key, what));
                if let Some(repair) = self.repair(repairs, address.page()) {
                    repair.set.push((address.bit(), ip.revision));
                }
            }
        }
    }

    fn judge_cooling(&self, report: &mut Report) {
        for &address in &self.network.cooling {
            let what = if self.network.ips.contains_key(&address) {
                format!("{address} is cooling, and it is reserved")
            } else if self.is_clear(address) {
                format!(
                    "{address} is cooling, and its bit is not set: it may be given before its cooldown is over"
                )
            } else {
                continue;
            };
            let key = self.keys.cooling(self.name, address);
            report.harmless.push(Finding::new(Kind::CoolingMismatch, &key, what));
        }
    }

    /// True if the bit of an address is known to be clear.
    fn is_clear(&self, address: Addr) -> bool {
        match self.network.pages.get(&address.page()) {
            None => true,
            Some(bitmap) => bitmap.bits.as_ref().is_some_and(|bits| !bits.get(address.bit())),
        }
    }

    fn judge_pages(&self, report: &mut Report, repairs: &mut BTreeMap<Page, PageRepair>) {
        for (&page, bitmap) in &self.network.pages {
            let Some(bits) = &bitmap.bits else { continue };
            let stray: Vec<Addr> =
                bits.ones().map(|bit| page.address(bit)).filter(|address| self.is_stray(*address)).collect();
            let key = self.keys.page(self.name, page);
            if !stray.is_empty() {
                report.harmless.push(Finding::new(Kind::StrayBit, &key, stray_words(&stray)));
                if let Some(repair) = self.repair(repairs, page) {
                    repair.clear.extend(stray.iter().map(|address| address.bit()));
                }
                report.stray_bits.extend(stray.into_iter().map(|address| (self.name.clone(), address)));
            }
            if bits.is_full() && !self.says_full(page) {
                let what = "full, but its summary does not say so: every scan reads it in vain";
                report.harmless.push(Finding::new(Kind::SummaryMissesFull, &key, what));
                self.repair(repairs, page);
            }
        }
    }

    /// True if nothing needs the set bit of an address. An address that is not reserved may still be in use by the
    /// container whose record lists it: with its bit cleared, the next ADD would give it a second time.
    fn is_stray(&self, address: Addr) -> bool {
        let Network { ips, cooling, .. } = self.network;
        let ListedUnreserved { known, may_be_more } = self.listed;
        let is_listed = may_be_more || known.is_some_and(|listed| listed.contains(&address));
        !ips.contains_key(&address) && !cooling.contains(&address) && !is_listed
    }

    /// True if a page's summary calls it full; one that does not decode may.
    fn says_full(&self, page: Page) -> bool {
        let summary = self.network.summaries.get(&page.summary());
        summary.is_some_and(|bitmap| bitmap.bits.as_ref().is_none_or(|bits| bits.get(page.bit())))
    }

    fn judge_summaries(&self, report: &mut Report, repairs: &mut BTreeMap<Page, PageRepair>) {
        for (&summary, bitmap) in &self.network.summaries {
            let Some(bits) = &bitmap.bits else { continue };
            for bit in bits.ones() {
                let page = Page(summary.first().page().0 | bit as u128);
                let known = match self.network.pages.get(&page) {
                    None => Some(false),
                    Some(bitmap) => bitmap.bits.as_ref().map(Bits::is_full),
                };
                if known == Some(false) {
                    let what =
                        format!("calls the page of {} to {} full, which is not", page.first(), page.last());
                    let key = self.keys.summary(self.name, summary);
                    report.violations.push(Finding::new(Kind::SummarySaysFull, &key, what));
                    self.repair(repairs, page);
                }
            }
        }
    }

    /// Pages and summaries without a set bit that no repair is about to fill.
    fn find_empty(&self, report: &mut Report, repairs: &BTreeMap<Page, PageRepair>) {
        let is_empty = |bitmap: &Bitmap| bitmap.bits.as_ref().is_some_and(|bits| *bits == Bits::empty());
        let pages = self.network.pages.iter().filter(|(page, _)| !repairs.contains_key(page));
        let pages = pages.map(|(&page, bitmap)| (self.keys.page(self.name, page), bitmap));
        let being_repaired = |summary| repairs.keys().any(|page| page.summary() == summary);
        let summaries = self.network.summaries.iter().filter(|(summary, _)| !being_repaired(**summary));
        let summaries = summaries.map(|(&summary, bitmap)| (self.keys.summary(self.name, summary), bitmap));
        let empty = pages.chain(summaries).filter(|(_, bitmap)| is_empty(bitmap));
        report.repairs.empty.extend(empty.map(|(key, bitmap)| (key, bitmap.revision)));
    }
}

/// Keeps the summaries that a repair of this network may have to change.
fn keep_summaries(name: NetworkName, network: Network, repairs: &mut Repairs) {
    let Network { summaries, .. } = network;
    for page in repairs.pages.iter().filter(|page| page.network == name) {
        let summary = page.page.summary();
        let bitmap = summaries.get(&summary).cloned();
        let bitmap = bitmap.unwrap_or_else(|| Bitmap { revision: 0, bits: Some(Bits::empty()) });
        repairs.summaries.insert((name.clone(), summary), bitmap);
    }
}

fn stray_words(stray: &[Addr]) -> String {
    let mut named: Vec<String> = stray.iter().take(NAMED).map(Addr::to_string).collect();
    if stray.len() > NAMED {
        named.push("...".to_owned());
    }
    format!("{} set without a reservation: {}", bits_of(stray.len()), named.join(", "))
}

fn bits_of(count: usize) -> String {
    if count == 1 { "1 bit is".to_owned() } else { format!("{count} bits are") }
}
