//! Counts the held addresses of each range and of each pool. Pure.

use std::collections::BTreeMap;

use serde::Serialize;

use super::seen::{Audit, Ip, Network};
use metes_core::pool::{Addr, KnownState, NetworkName, PoolDefinition, PoolName, RangeCounts, known_ranges};

/// The counts of one range, or of the addresses outside of all ranges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedRange {
    /// The network.
    pub network: NetworkName,
    /// The pool that the range belongs to; none if configurations ask for it.
    pub pool: Option<PoolName>,
    /// The range, as people write it; none for the addresses outside of all ranges that are given from or empty.
    pub range: Option<String>,
    /// True if its addresses are IPv6. Those outside may be of both families.
    pub is_ipv6: bool,
    /// True if addresses of it are given: a pool has it open, or a configuration asks for it.
    pub is_given: bool,
    /// Its addresses. Those outside have no size.
    pub counts: RangeCounts,
    /// The number of held addresses that an orphan holds.
    pub orphaned: usize,
    /// The number of held addresses that stay with a pod's name and that no pod uses.
    pub unused: usize,
}

/// Counts each range of pools and configurations, and then the addresses of each network outside of them. Ranges that
/// are older are none. Where ranges overlap, an address counts in each. If configurations ask for a range with
/// different excludes or gateways, the one that gives the most counts.
pub(super) fn counted_ranges(audit: &Audit) -> Vec<CountedRange> {
    let nobody = Network::default();
    let mut counted: Vec<CountedRange> = Vec::new();
    let mut spans: BTreeMap<NetworkName, Vec<(Addr, Addr)>> = BTreeMap::new();
    for known in known_ranges(audit.pools.values(), &audit.asked) {
        if known.state == KnownState::Older {
            continue;
        }
        let range = &known.range;
        let network = audit.networks.get(range.network()).unwrap_or(&nobody);
        let bounds = range.first()..=range.last();
        let held = network.ips.range(bounds.clone());
        let row = CountedRange {
            network: range.network().clone(),
            pool: known.pool.cloned(),
            range: Some(known.text),
            is_ipv6: range.first().ip().is_ipv6(),
            is_given: matches!(known.state, KnownState::Open | KnownState::Asked),
            orphaned: held.clone().filter(|(_, ip)| ip.is_orphaned).count(),
            unused: held.clone().filter(|(_, ip)| ip.is_unused).count(),
            counts: RangeCounts::of(
                range,
                held.map(|(address, ip)| (*address, ip.is_set_aside)),
                network.cooling.range(bounds).copied(),
            ),
        };
        // Rows of one text follow each other.
        match counted.last_mut().filter(|last| last.is_of_same_name(&row)) {
            Some(last) if row.counts.size > last.counts.size => *last = row,
            Some(_) => {}
            None => counted.push(row),
        }
        spans.entry(range.network().clone()).or_default().push((range.first(), range.last()));
    }
    let outside = audit.networks.iter().map(|(name, network)| {
        let spans = spans.remove(name).unwrap_or_default();
        outside(name, network, spans)
    });
    counted.extend(outside.filter(|outside| outside.counts.held > 0));
    counted
}

impl CountedRange {
    fn is_of_same_name(&self, other: &Self) -> bool {
        (&self.network, &self.pool, &self.range) == (&other.network, &other.pool, &other.range)
    }
}

/// The addresses of a network outside of these spans.
fn outside(name: &NetworkName, network: &Network, mut spans: Vec<(Addr, Addr)>) -> CountedRange {
    spans.sort_unstable();
    let mut spans = spans.into_iter().peekable();
    let mut covered = None;
    let mut is_outside = |address: Addr| {
        while let Some((_, last)) = spans.next_if(|(first, _)| *first <= address) {
            covered = covered.max(Some(last));
        }
        covered.is_none_or(|last| last < address)
    };
    let outside: Vec<&Ip> =
        network.ips.iter().filter(|(address, _)| is_outside(**address)).map(|(_, ip)| ip).collect();
    let counts = RangeCounts {
        held: outside.len(),
        set_aside: outside.iter().filter(|ip| ip.is_set_aside).count(),
        ..RangeCounts::default()
    };
    let orphaned = outside.iter().filter(|ip| ip.is_orphaned).count();
    let unused = outside.iter().filter(|ip| ip.is_unused).count();
    let network = name.clone();
    CountedRange {
        network,
        pool: None,
        range: None,
        is_ipv6: false,
        is_given: false,
        counts,
        orphaned,
        unused,
    }
}

/// The held and free addresses of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PoolCounts {
    pub(crate) pool: PoolName,
    pub(crate) network: NetworkName,
    /// The addresses that its open ranges give, held or not.
    pub(crate) size: u128,
    /// Held in open ranges, by whomever.
    pub(crate) held: usize,
    /// The addresses of `size` that nobody holds and that are not cooling.
    pub(crate) free: u128,
    /// The addresses of `size` that are cooling.
    pub(crate) cooling: usize,
    /// Held in draining and closed ranges, by whomever.
    pub(crate) draining: usize,
}

impl PoolCounts {
    pub(super) fn of(definition: &PoolDefinition, ranges: &[CountedRange]) -> Self {
        let PoolDefinition { pool, network, .. } = definition;
        let (pool, name) = (pool.clone(), network.clone());
        let mut counts = Self { pool, network: name, size: 0, held: 0, free: 0, cooling: 0, draining: 0 };
        for CountedRange { is_given, counts: of_range, .. } in
            ranges.iter().filter(|range| range.pool.as_ref() == Some(&definition.pool))
        {
            if !is_given {
                counts.draining += of_range.held;
                continue;
            }
            counts.size = counts.size.saturating_add(of_range.size);
            counts.held += of_range.held;
            counts.cooling += of_range.cooling;
            counts.free = counts.free.saturating_add(of_range.free);
        }
        counts
    }
}
