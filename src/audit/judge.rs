//! Judges what was seen of a tree: bits against reservations, reservations against owners,
//! owners against the pod index, pages against summaries, and each the other way round. Pure.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::finding::{Finding, Kind};
use super::repair::{PageRepair, Repairs};
use super::seen::{Audit, Bitmap, Holdings, Ip, Network};
use super::{MetaState, PoolCounts, Report};
use crate::pool::asked::AskedRanges;
use crate::pool::auto::auto_pools;
use crate::pool::bitmap::Bits;
use crate::pool::names::PodUid;
use crate::pool::record::Owner;
use crate::pool::{Addr, NetworkName, Page, RangeSet};
use crate::store::keys::{Keys, PodInterface};

/// How many addresses a sentence names before it only counts.
const NAMED: usize = 8;

impl Audit {
    /// Judges what was taken.
    #[must_use]
    pub fn finish(mut self) -> Report {
        self.counts.networks = self.networks.len();
        let counts = self.counts;
        Report { counts, ..judge(self) }
    }
}

fn judge(mut audit: Audit) -> Report {
    let mut report = Report { violations: std::mem::take(&mut audit.found), ..Report::default() };
    report.repairs.stale = std::mem::take(&mut audit.stale);
    judge_meta(&audit, &mut report);
    judge_owners(&audit, &mut report);
    judge_pods(&audit, &mut report);
    report.pools = audit.pools.values().map(|pool| PoolCounts::of(pool, &audit.networks)).collect();
    judge_auto(&audit, &mut report);
    judge_holds(&audit, &mut report);
    let asked = std::mem::take(&mut audit.asked);
    let is_of_no_use = |(_, _, one): &&(_, _, AskedRanges)| {
        !is_held(&audit, one) || asked.iter().any(|(_, _, other)| one.is_within(other))
    };
    report.repairs.asked = asked.iter().filter(is_of_no_use).cloned().collect();
    for (name, network) in std::mem::take(&mut audit.networks) {
        NetworkJudge { keys: &audit.keys, owners: &audit.owners, name: &name, network: &network }
            .judge(&mut report);
        keep_summaries(name, network, &mut report.repairs);
    }
    report.repairs.meta_revision = match &audit.meta {
        MetaState::Known(meta, revision) if meta.paused.is_none() => Some(*revision),
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

/// Whether somebody holds an address from the first to the last one of a range.
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

fn judge_owners(audit: &Audit, report: &mut Report) {
    let mut listed: BTreeMap<(&NetworkName, Addr), &Owner> = BTreeMap::new();
    for (owner, holdings) in &audit.owners {
        let Some(holdings) = holdings else { continue };
        for (network, address) in holdings.reserved() {
            let mut find = |kind, what| report.violations.push(owner_finding(audit, kind, owner, what));
            if let Some(other) = listed.insert((network, address), owner) {
                let what = format!("lists {address} of network {network}, as does {}", other);
                find(Kind::AddressListedTwice, what);
            }
            if let Some(what) = audit.missing_reservation(owner, network, address) {
                find(Kind::OwnerWithoutReservation, what);
            }
        }
        for network in audit.unindexed(owner, holdings) {
            let uid = holdings.pod_uid();
            // A younger owner of the pod that did not take over, and is freed since, leaves this behind;
            // it only keeps a retried sandbox from taking over.
            let what = format!("belongs to pod {uid}, whose index for network {network} is missing");
            report.harmless.push(owner_finding(audit, Kind::OwnerWithoutPodIndex, owner, what));
        }
    }
}

fn owner_finding(audit: &Audit, kind: Kind, owner: &Owner, what: String) -> Finding {
    Finding::new(kind, &audit.keys.owner(owner), what)
}

impl Holdings {
    fn pod_uid(&self) -> &str {
        self.uid.as_ref().map_or("", PodUid::as_str)
    }

    fn reserved(&self) -> impl Iterator<Item = (&NetworkName, Addr)> {
        self.addresses.iter().filter_map(|held| Some((held.network.as_ref()?, Addr::from(held.address))))
    }

    fn lists(&self, network: &NetworkName, address: Addr) -> bool {
        self.reserved().any(|held| held == (network, address))
    }
}

impl Audit {
    /// What is wrong with the reservation of an address that `owner` lists.
    fn missing_reservation(&self, owner: &Owner, network: &NetworkName, address: Addr) -> Option<String> {
        match self.networks.get(network).and_then(|network| network.ips.get(&address)) {
            None => Some(format!("lists {address} of network {network}, which is not reserved")),
            Some(Ip { owner: Some(holder), .. }) if **holder != *owner => {
                Some(format!("lists {address} of network {network}, which is reserved for {holder}"))
            }
            Some(_) => None,
        }
    }

    /// The networks in which no index entry stands for an owner of a pod. An entry that names a
    /// younger owner does; one that is wrong in itself is judged by itself.
    fn unindexed<'a>(&self, owner: &Owner, holdings: &'a Holdings) -> Vec<&'a NetworkName> {
        let Some(uid) = &holdings.uid else { return Vec::new() };
        let missing = |network: &&NetworkName| {
            let interface = PodInterface {
                cluster: owner.cluster.clone(),
                uid: uid.clone(),
                ifname: owner.ifname.clone(),
                network: (*network).clone(),
            };
            !self.pods.contains_key(&interface)
        };
        let mut networks: Vec<_> = holdings.reserved().map(|(network, _)| network).filter(missing).collect();
        networks.sort();
        networks.dedup();
        networks
    }
}

fn judge_pods(audit: &Audit, report: &mut Report) {
    for (PodInterface { cluster, uid, ifname, network }, owner) in &audit.pods {
        let Some(owner) = owner else { continue };
        let (kind, what) = match audit.owners.get(owner) {
            None => (Kind::PodIndexWithoutOwner, format!("names {}, which holds nothing", owner)),
            Some(Some(holdings)) if holdings.uid.as_ref() != Some(uid) => {
                let what = format!("names {}, which belongs to pod {:?}", owner, holdings.pod_uid());
                (Kind::PodIndexMismatch, what)
            }
            Some(Some(_)) if owner.ifname != *ifname => {
                (Kind::PodIndexMismatch, format!("names {}, another interface", owner))
            }
            Some(Some(_)) if owner.cluster != *cluster => {
                (Kind::PodIndexMismatch, format!("names {}, of another cluster", owner))
            }
            Some(Some(holdings)) if !holdings.reserved().any(|(held, _)| held == network) => {
                (Kind::PodIndexMismatch, format!("names {}, which holds nothing in it", owner))
            }
            Some(_) => continue,
        };
        let key = audit.keys.pod(cluster.as_ref(), uid, ifname, network);
        report.violations.push(Finding::new(kind, &key, what));
    }
}

/// The time of a hold goes with the hold. Should it stay, it stops nothing.
fn judge_holds(audit: &Audit, report: &mut Report) {
    if audit.bits_only {
        return;
    }
    for (network, address) in &audit.times_of_holds {
        if !audit.owners.contains_key(&Owner::of_hold(network, *address)) {
            let what = format!("is the time of a hold, and {address} is not set aside");
            let key = audit.keys.hold(network, *address);
            report.harmless.push(Finding::new(Kind::TimeWithoutHold, &key, what));
        }
    }
}

/// Judges one network.
struct NetworkJudge<'a> {
    keys: &'a Keys,
    owners: &'a BTreeMap<Rc<Owner>, Option<Holdings>>,
    name: &'a NetworkName,
    network: &'a Network,
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
            if let Some(what) = ip.owner.as_ref().and_then(|owner| self.missing_owner(owner, address)) {
                report.violations.push(Finding::new(Kind::ReservationWithoutOwner, &key, what));
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

    /// Whether the bit of an address is known to be clear.
    fn is_clear(&self, address: Addr) -> bool {
        match self.network.pages.get(&address.page()) {
            None => true,
            Some(bitmap) => bitmap.bits.as_ref().is_some_and(|bits| !bits.get(address.bit())),
        }
    }

    fn missing_owner(&self, owner: &Owner, address: Addr) -> Option<String> {
        match self.owners.get(owner) {
            None => Some(format!("reserved for {}, which has no owner record", owner)),
            Some(Some(holdings)) if !holdings.lists(self.name, address) => {
                Some(format!("reserved for {}, whose owner record does not list it", owner))
            }
            Some(_) => None,
        }
    }

    fn judge_pages(&self, report: &mut Report, repairs: &mut BTreeMap<Page, PageRepair>) {
        for (&page, bitmap) in &self.network.pages {
            let Some(bits) = &bitmap.bits else { continue };
            let stray: Vec<Addr> = bits
                .ones()
                .map(|bit| page.address(bit))
                .filter(|address| {
                    !self.network.ips.contains_key(address) && !self.network.cooling.contains(address)
                })
                .collect();
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

    /// Whether a page's summary calls it full; one that does not decode may.
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
