//! An ADD, resolved by the keys that were read: the sets that give its addresses, and the keys that follow from the
//! sets. Pure.

use std::collections::BTreeSet;

use super::ask::Ask;
use super::known_pool::DecodedPools;
use super::pools::{PoolRefused, ReadPools};
use super::source::{Full, Source, SourceSet};
use crate::builder::Builder;
use crate::keys::{Bytes, Keys, NetworkAddress, Scope};
use crate::pool::choose::{Choice, Order, choose, spread_start};
use crate::pool::range::Standing;
use crate::pool::{
    Addr, Held, Need, NetworkName, Owner, OwnerRecord, Page, PoolName, Range, RangeSet, RangesWanted, Start,
    View, Wanted, Wish,
};
use crate::snapshot::Snapshot;

/// An ADD of which it is known which ranges give its addresses.
#[derive(Debug)]
pub(crate) struct Resolved<'a> {
    /// As it was asked.
    pub(crate) ask: &'a Ask,
    /// One address is taken from each, in result order; or why its pools give none.
    sets: Result<Vec<SourceSet>, PoolRefused>,
    /// Static addresses, in result order after those of the sets.
    statics: &'a [Held],
    order: Order,
    /// The pools that it names; none if it has ranges of its own.
    pools: Option<ReadPools>,
}

impl<'a> Resolved<'a> {
    /// Resolves `ask` by the keys that were read. Without pools it needs none.
    ///
    /// # Errors
    /// The keys of the pools that were not read yet.
    pub(crate) fn of(
        ask: &'a Ask,
        keys: &Keys,
        seen: &Snapshot,
        decoded: &DecodedPools,
    ) -> Result<Self, Vec<Bytes>> {
        let wanted = match &ask.wanted {
            Wanted::Ranges(ranges) => return Ok(Self::of_ranges(ask, ranges)),
            Wanted::Pools(pools) => pools,
        };
        // A hold that was not read yet is read with all other keys that a decision needs.
        let hold = ask.hold_keys(keys).and_then(|[hold, _]| seen.record::<OwnerRecord>(&hold).ok()?);
        let held = hold.map(|hold| hold.addresses).unwrap_or_default();
        let (pools, given) = ReadPools::read(wanted, &held, (keys, seen), ask.facts(wanted), decoded)?;
        let (sets, order) = match given {
            Ok((sets, order)) => (Ok(sets), order),
            Err(why) => (Err(why), Order::Lowest),
        };
        Ok(Self { ask, sets, statics: &[], order, pools: Some(pools) })
    }

    /// Resolves one that has ranges of its own.
    #[cfg(test)]
    pub(crate) fn without_pools(ask: &'a Ask) -> Self {
        match &ask.wanted {
            Wanted::Ranges(ranges) => Self::of_ranges(ask, ranges),
            Wanted::Pools(pools) => panic!("it asks pools: {pools:?}"),
        }
    }

    fn of_ranges(ask: &'a Ask, ranges: &'a RangesWanted) -> Self {
        let RangesWanted { sets, requests, statics, order, cooldown } = ranges;
        let source_set = |(i, set): (usize, &RangeSet)| SourceSet {
            set: set.clone(),
            request: requests.get(i).copied().flatten(),
            source: Source::Config(*cooldown),
        };
        let sets = sets.iter().enumerate().map(source_set).collect();
        Self { ask, sets: Ok(sets), statics, order: *order, pools: None }
    }

    /// The sets that addresses are taken from.
    pub(crate) fn sets(&self) -> &[SourceSet] {
        self.sets.as_deref().unwrap_or_default()
    }

    /// Why its pools give no address, if they do not.
    pub(crate) fn refused_by_pools(&self) -> Option<&PoolRefused> {
        self.sets.as_ref().err()
    }

    /// Its pools, as they were read.
    pub(crate) fn into_pools(self) -> Option<ReadPools> {
        self.pools
    }

    /// A set that has no free address.
    pub(crate) fn full(&self, set: usize) -> Full {
        let SourceSet { set: ranges, source, .. } = &self.sets()[set];
        match source {
            Source::Config(cooldown) => Full::Ranges(ranges.clone(), *cooldown),
            Source::Pool(pool) => Full::Pool {
                element: set,
                pool: pool.clone(),
                open: Some(ranges.clone()),
                has_next: self.pools.as_ref().is_some_and(|pools| pools.has_next(set)),
            },
        }
    }

    /// The pool to report as full when the request's pools give no address.
    pub(crate) fn gives_nothing(&self) -> Option<Full> {
        self.pools.as_ref()?.gives_nothing(self.refused_by_pools()?)
    }

    /// Compares the pools that addresses are taken from, so that none is given by a text that has been replaced.
    pub(crate) fn rely_on_pools(&self, keys: &Keys, builder: &mut Builder<'_>) {
        let used = self.pools.as_ref().map(|pools| pools.keys_of(keys, pools.used())).unwrap_or_default();
        used.into_iter().for_each(|pool| builder.unchanged(pool));
    }

    /// Compares the pools by which it may use the addresses of a hold.
    pub(crate) fn rely_on_pools_of_hold(&self, pools: &[PoolName], keys: &Keys, builder: &mut Builder<'_>) {
        let used = self.pools.as_ref().map(|all| all.keys_of(keys, pools.iter())).unwrap_or_default();
        used.into_iter().for_each(|pool| builder.unchanged(pool));
    }

    /// The page where this node starts in the first set, for `spread`.
    fn start_page(&self, set: &RangeSet) -> Option<Page> {
        self.order.starts_per_node().then(|| spread_start(set, self.ask.node_seed).page())
    }

    /// The queue to stand in.
    pub(crate) fn scope(&self) -> Scope {
        let Some(SourceSet { set, source, .. }) = self.sets().first() else { return Scope::of(&[], None) };
        let start = self.start_page(set);
        match source {
            Source::Config(_) => Scope::of(std::slice::from_ref(set), start),
            Source::Pool(pool) => Scope::of_pool(&pool.definition, start),
        }
    }

    /// All keys that the first look needs, also those of the pages that will most likely serve.
    pub(crate) fn first_reads(&self, keys: &Keys) -> Vec<Bytes> {
        let mut reads = vec![keys.meta()];
        reads.extend(self.cursor_keys(keys));
        reads.extend(self.own_keys(keys));
        reads.extend(self.ask.hold_keys(keys).map(|[hold, _]| hold));
        reads.extend(self.pools.iter().flat_map(|pools| pools.keys(keys)));
        reads.extend(self.cooling_keys(keys));
        if let Choice::Need(needs) = choose(&self.wishes(keys, &Snapshot::default()), &View::default()) {
            reads.extend(needs.iter().map(|need| need_key(keys, need)));
        }
        let mut seen = BTreeSet::new();
        reads.retain(|key| seen.insert(key.clone()));
        reads
    }

    /// The keys that every decision needs.
    pub(crate) fn base_keys(&self, keys: &Keys) -> Vec<Bytes> {
        let hold = self.ask.hold_keys(keys).map(|[hold, _]| hold);
        [keys.meta()].into_iter().chain(self.own_keys(keys)).chain(hold).collect()
    }

    /// The cursor of each set, if the order has one.
    pub(crate) fn cursor_keys(&self, keys: &Keys) -> Vec<Bytes> {
        if !self.order.uses_cursor() {
            return Vec::new();
        }
        self.sets().iter().map(|of| self.cursor_key(keys, &of.set)).collect()
    }

    fn cursor_key(&self, keys: &Keys, set: &RangeSet) -> Bytes {
        keys.cursor(set, self.start_page(set))
    }

    /// The keys that no other run writes, and that do not exist before its first commit: the owner's, its pod's, and
    /// the seat that it takes. The hold of that seat may exist.
    pub(crate) fn own_keys(&self, keys: &Keys) -> Vec<Bytes> {
        let mut own = vec![keys.owner(&self.ask.owner), keys.tombstone(&self.ask.owner)];
        own.extend(self.index_keys(keys));
        own.extend(self.ask.hold_keys(keys).map(|[_, seat]| seat));
        own
    }

    pub(crate) fn index_keys(&self, keys: &Keys) -> Vec<Bytes> {
        let Some(uid) = &self.ask.labels.pod.uid else { return Vec::new() };
        let Owner { cluster, ifname, .. } = &self.ask.owner;
        let index = |network: &NetworkName| keys.pod(cluster.as_ref(), uid, ifname, network);
        self.networks().into_iter().map(index).collect()
    }

    /// The keys that say whether an address which is asked for is cooling. A scan steps over those that are.
    pub(crate) fn cooling_keys(&self, keys: &Keys) -> impl Iterator<Item = Bytes> {
        self.named_addresses().map(|(network, address)| keys.cooling(network, address))
    }

    /// The addresses that are asked for, requested from a set or static.
    pub(crate) fn named_addresses(&self) -> impl Iterator<Item = (&NetworkName, Addr)> {
        let requested = self.sets().iter().filter_map(|SourceSet { set, request, .. }| {
            let address = (*request)?;
            Some((set.covers(address)?.network(), address))
        });
        requested.chain(self.pinned())
    }

    /// The static addresses that are reserved.
    pub(crate) fn pinned(&self) -> impl Iterator<Item = (&NetworkName, Addr)> {
        self.statics.iter().filter_map(|held| Some((held.network.as_ref()?, Addr::from(held.address))))
    }

    /// The owner's addresses if it gets these, one from each set, in result order.
    pub(crate) fn held(&self, taken: &[NetworkAddress]) -> Vec<Held> {
        let given = self.sets().iter().zip(taken).map(|(of, address)| of.source.give(address));
        given.chain(self.statics.iter().cloned()).collect()
    }

    /// The owner's addresses if it keeps these, which it, or an older owner, holds already.
    pub(crate) fn kept(&self, held: Vec<Held>) -> Vec<Held> {
        let Some(pools) = &self.pools else { return held };
        held.into_iter().enumerate().map(|(element, held)| pools.keep(element, held)).collect()
    }

    /// The owner's record with these addresses.
    pub(crate) fn record(&self, held: Vec<Held>) -> OwnerRecord {
        let scope = self.scope().as_str().to_owned();
        OwnerRecord::new(held, Some(self.ask.stamp.start.clone()), scope, self.ask.labels.clone())
            .on_machine(&self.ask.stamp.machine)
    }

    /// Every network that this configuration can reserve in.
    fn networks(&self) -> BTreeSet<&NetworkName> {
        let of_ranges = self.sets().iter().flat_map(|of| of.set.ranges()).map(Range::network);
        let of_pools = self.pools.iter().flat_map(ReadPools::networks);
        of_ranges.chain(of_pools).chain(self.pinned().map(|(network, _)| network)).collect()
    }

    pub(crate) fn wishes(&self, keys: &Keys, snapshot: &Snapshot) -> Vec<Wish<'_>> {
        let start = |set: &RangeSet| match self.order {
            Order::Lowest => Start::Lowest,
            Order::Next | Order::Spread => match cursor(&self.cursor_key(keys, set), snapshot) {
                Some(last) => Start::After(last),
                None if self.order.starts_per_node() => Start::At(spread_start(set, self.ask.node_seed)),
                None => Start::Lowest,
            },
        };
        let sets = self.sets().iter();
        sets.map(|SourceSet { set, request, .. }| Wish { set, start: start(set), request: *request })
            .collect()
    }

    /// True if this configuration could give what an owner holds. Start, end and excludes may have changed since;
    /// ranges, networks and static addresses may not. Of a pool only its name counts.
    pub(crate) fn fits(&self, addresses: &[Held]) -> bool {
        if let Some(pools) = &self.pools {
            return pools.fits(addresses);
        }
        let sets = self.sets();
        let (from_sets, statics) = addresses.split_at(sets.len().min(addresses.len()));
        from_sets.len() == sets.len()
            && statics == self.statics
            && sets.iter().zip(from_sets).all(|(of, held)| of.fits(held))
    }

    /// The pools by which it may use the addresses of a hold; none of them if it has ranges of its own.
    ///
    /// # Errors
    /// The addresses are none that it could give; or the reason why its pools allow nothing.
    pub(crate) fn of_hold(&self, addresses: &[Held]) -> Result<Vec<PoolName>, Option<PoolRefused>> {
        let (Some(pools), Wanted::Pools(wanted)) = (&self.pools, &self.ask.wanted) else {
            return if self.fits(addresses) { Ok(Vec::new()) } else { Err(None) };
        };
        let chosen = self.refused_by_pools().filter(|why| why.leaves_no_pool()).cloned();
        pools.of_hold(addresses, self.ask.facts(wanted)).map_err(|why| why.or(chosen))
    }

    /// True if this sandbox may inherit what another sandbox of the pod holds: it fits, and no address of it is now a
    /// gateway, network or broadcast address.
    pub(crate) fn gives(&self, addresses: &[Held]) -> bool {
        if let Some(pools) = &self.pools {
            return pools.fits(addresses) && addresses.iter().all(|held| pools.is_no_gateway(held));
        }
        let is_nobodys = |(SourceSet { set, .. }, held): (&SourceSet, &Held)| {
            let standing = set.standing(Addr::from(held.address));
            // A gateway may lie outside of start and end.
            set.ranges().iter().any(|range| range.gateway() == Some(held.address))
                || matches!(standing, Standing::Gateway | Standing::NetworkAddress | Standing::Broadcast)
        };
        self.fits(addresses) && !self.sets().iter().zip(addresses).any(is_nobodys)
    }
}

/// The last address handed out. A cursor that does not decode counts as none, and is not overwritten.
pub(crate) fn cursor(key: &[u8], snapshot: &Snapshot) -> Option<Addr> {
    let entry = snapshot.entry(key)?;
    let ip: std::net::IpAddr = std::str::from_utf8(&entry.value).ok()?.parse().ok()?;
    Some(Addr::from(ip))
}

pub(crate) fn need_key(keys: &Keys, need: &Need) -> Bytes {
    match need {
        Need::Page(network, page) => keys.page(network, *page),
        Need::Summary(network, summary) => keys.summary(network, *summary),
        Need::Reservation(network, address) => keys.ip(network, *address),
    }
}
