//! What one ADD asks for, and the keys that it leads to. Pure.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::builder::Builder;
use super::keys::{Bytes, Keys, Scope, digest_hex};
use super::pools::{AskedPools, DecodedPools, PoolRefused};
use super::snapshot::Snapshot;
use crate::pool::asked::AskedRanges;
use crate::pool::choose::{Choice, Order, choose, spread_start};
use crate::pool::cooldown::Cooldown;
use crate::pool::definition::PoolDefinition;
use crate::pool::range::Standing;
use crate::pool::record::{Held, Labels, Meta, Owner, OwnerRecord, Record, Reservation, RunStart};
use crate::pool::selector::Facts;
use crate::pool::{Addr, Need, NetworkName, Page, PoolsWanted, RangeSet, Start, View, Wanted, Wish};

/// What one ADD asks for.
#[derive(Debug, Clone)]
pub struct Ask {
    /// For whom.
    pub owner: Owner,
    /// Labels for the records: the pod and the CNI network.
    pub labels: Labels,
    /// What is to be reserved. From pools: once they are read, see [`Ask::resolved`].
    pub wanted: Wanted,
    /// The pools that addresses are taken from; none if the configuration has ranges of its own.
    pub pools: Option<AskedPools>,
    /// Which run asks.
    pub stamp: RunStamp,
    /// Selects the node's page for `spread`.
    pub node_seed: u64,
}

/// What a run says of itself on the records that it writes.
#[derive(Debug, Clone)]
pub struct RunStamp {
    /// When it began.
    pub start: RunStart,
    /// The machine that it runs on; empty if that has no id.
    pub machine: String,
    /// The id of the store, if this is the first commit into an empty prefix.
    pub store_id: String,
    /// For people, on each reservation.
    pub created_at: String,
}

impl Ask {
    /// What a run asks for on behalf of `owner`.
    #[must_use]
    pub fn new(owner: Owner, labels: Labels, wanted: Wanted, stamp: RunStamp) -> Self {
        let digest = digest_hex(owner.node.as_str().as_bytes());
        let node_seed = u64::from_str_radix(&digest[..16], 16).unwrap_or_default();
        Self { owner, labels, wanted, pools: None, stamp, node_seed }
    }

    /// The ranges of its configuration, as they are kept; none if it has no range, or pools. A pool says itself which
    /// ranges it has.
    pub(super) fn asked_ranges(&self) -> Option<AskedRanges> {
        if self.pools.is_some() || self.wanted.sets.is_empty() {
            return None;
        }
        let (cluster, cni_network) = (self.owner.cluster.clone(), self.labels.cni_network.clone());
        let sets = self.wanted.sets.clone();
        Some(AskedRanges::new(cluster, cni_network, sets, self.stamp.created_at.clone()))
    }

    /// The same from pools, and from nothing else.
    #[must_use]
    pub fn from_pools(self, pools: PoolsWanted) -> Self {
        Self { wanted: Wanted::lowest_of(Vec::new()), pools: Some(AskedPools::new(pools)), ..self }
    }

    /// The same with the ranges that its pools have by what was read. One without pools is complete as it is.
    ///
    /// # Errors
    /// The keys of the pools that were not read yet.
    pub fn resolved(
        &self,
        keys: &Keys,
        seen: &Snapshot,
        decoded: &DecodedPools,
    ) -> Result<Cow<'_, Self>, Vec<Bytes>> {
        let Some(pools) = &self.pools else { return Ok(Cow::Borrowed(self)) };
        let (pools, wanted) = pools.read(keys, seen, self.facts(pools), decoded)?;
        let wanted = wanted.unwrap_or_else(|| self.wanted.clone());
        Ok(Cow::Owned(Self { wanted, pools: Some(pools), ..self.clone() }))
    }

    /// Under which name a node remembers the texts of its pools; none while it is not known which pools they are.
    pub(super) fn pools_scope(&self, keys: &Keys, seen: &Snapshot, decoded: &DecodedPools) -> Option<Scope> {
        let pools = self.pools.as_ref()?;
        let (chosen, _) = pools.choose(keys, seen, self.facts(pools), decoded).ok()?;
        chosen.scope()
    }

    /// What its pools may go by.
    fn facts<'a>(&'a self, pools: &'a AskedPools) -> Facts<'a> {
        Facts {
            cluster: self.owner.cluster.as_ref().map_or("", |cluster| cluster.as_str()),
            namespace: &self.labels.pod.namespace,
            pod: &self.labels.pod.name,
            network: &self.labels.cni_network,
            node: self.owner.node.as_str(),
            node_labels: &pools.wanted.node_labels,
        }
    }

    /// Why its pools give no address, if they do not.
    pub(super) fn refused_by_pools(&self) -> Option<&PoolRefused> {
        self.pools.as_ref()?.refused.as_ref()
    }

    /// Compares the pools that addresses are taken from, so that none is given by a text that has been replaced.
    pub(super) fn rely_on_pools(&self, keys: &Keys, builder: &mut Builder<'_>) {
        let used = self.pools.as_ref().map(|pools| pools.used_keys(keys)).unwrap_or_default();
        used.into_iter().for_each(|pool| builder.unchanged(pool));
    }

    /// The meta of a store that this ADD is the first to write to.
    #[must_use]
    pub fn first_meta(&self) -> Meta {
        Meta::first(self.stamp.store_id.clone())
    }

    /// The page where this node starts in the first set, for `spread`.
    #[must_use]
    pub fn start_page(&self, set: &RangeSet) -> Option<Page> {
        self.wanted.order.starts_per_node().then(|| spread_start(set, self.node_seed).page())
    }

    /// The queue to stand in.
    #[must_use]
    pub fn scope(&self) -> Scope {
        let sets = &self.wanted.sets;
        let start = sets.first().and_then(|set| self.start_page(set));
        match self.pools.as_ref().and_then(|pools| pools.of_element(0)) {
            Some(pool) if !sets.is_empty() => Scope::of_pool(pool, start),
            _ => Scope::of(sets, start),
        }
    }

    /// All keys that the first look needs, also those of the pages that will most likely serve.
    #[must_use]
    pub fn first_reads(&self, keys: &Keys) -> Vec<Bytes> {
        let mut reads = self.base_keys(keys);
        reads.extend(self.pools.iter().flat_map(|pools| pools.keys(keys)));
        reads.extend(self.cooling_keys(keys));
        if let Choice::Need(needs) = choose(&self.wishes(keys, &Snapshot::default()), &View::default()) {
            reads.extend(needs.iter().map(|need| need_key(keys, need)));
        }
        let mut seen = BTreeSet::new();
        reads.retain(|key| seen.insert(key.clone()));
        reads
    }

    pub(super) fn base_keys(&self, keys: &Keys) -> Vec<Bytes> {
        let mut base = vec![keys.meta()];
        base.extend(self.cursor_keys(keys));
        base.extend(self.own_keys(keys));
        base
    }

    /// The cursor of each set, if the order has one.
    pub(super) fn cursor_keys(&self, keys: &Keys) -> Vec<Bytes> {
        if !self.wanted.order.uses_cursor() {
            return Vec::new();
        }
        self.wanted.sets.iter().map(|set| keys.cursor(set, self.start_page(set))).collect()
    }

    /// The keys that no other run writes, and that do not exist before its first commit: the owner's, and its pod's.
    pub(super) fn own_keys(&self, keys: &Keys) -> Vec<Bytes> {
        let mut own = vec![keys.owner(&self.owner), keys.tombstone(&self.owner)];
        own.extend(self.index_keys(keys));
        own
    }

    pub(super) fn index_keys(&self, keys: &Keys) -> Vec<Bytes> {
        let Some(uid) = &self.labels.pod.uid else { return Vec::new() };
        let Owner { cluster, ifname, .. } = &self.owner;
        let index = |network: &NetworkName| keys.pod(cluster.as_ref(), uid, ifname, network);
        self.networks().into_iter().map(index).collect()
    }

    /// What is said of cooling where the address of this set is taken from.
    #[must_use]
    pub fn cooldown(&self, set: usize) -> Cooldown {
        match &self.pools {
            None => self.wanted.cooldown,
            Some(pools) => pools.of_element(set).map(PoolDefinition::cooldown).unwrap_or_default(),
        }
    }

    /// The keys that say whether an address which is asked for is cooling. A scan steps over those that are.
    pub(super) fn cooling_keys<'a>(&'a self, keys: &'a Keys) -> impl Iterator<Item = Bytes> + 'a {
        self.named_addresses().map(|(network, address)| keys.cooling(network, address))
    }

    /// The addresses that are asked for, requested from a set or static.
    pub(super) fn named_addresses(&self) -> impl Iterator<Item = (&NetworkName, Addr)> {
        let requested = self.wanted.sets.iter().zip(&self.wanted.requests).filter_map(|(set, request)| {
            let address = (*request)?;
            Some((set.covers(address)?.network(), address))
        });
        let statics = self.wanted.statics.iter();
        requested.chain(statics.filter_map(|held| Some((held.network.as_ref()?, Addr::from(held.address)))))
    }

    /// What the owner holds if it gets these addresses, in result order.
    pub(super) fn held<'a>(&self, taken: impl Iterator<Item = &'a (NetworkName, Addr)>) -> Vec<Held> {
        let held = |(set, (network, address)): (usize, &(NetworkName, Addr))| Held {
            cooldown_s: self.cooldown(set).time.seconds(),
            ..Held::new(address.ip(), Some(network.clone()))
        };
        let held = taken.enumerate().map(held);
        match &self.pools {
            None => held.chain(self.wanted.statics.iter().cloned()).collect(),
            Some(pools) => held.enumerate().map(|(element, held)| pools.give(element, held)).collect(),
        }
    }

    /// What the owner keeps of what it, or an older owner, holds already.
    pub(super) fn kept(&self, held: Vec<Held>) -> Vec<Held> {
        let Some(pools) = &self.pools else { return held };
        held.into_iter().enumerate().map(|(element, held)| pools.keep(element, held)).collect()
    }

    /// The owner's record with these addresses.
    pub(super) fn record(&self, held: Vec<Held>) -> OwnerRecord {
        let scope = self.scope().as_str().to_owned();
        OwnerRecord::new(held, Some(self.stamp.start.clone()), scope, self.labels.clone())
            .on_machine(&self.stamp.machine)
    }

    /// The reservation of one of its addresses, as it is stored.
    pub(super) fn reservation(&self) -> Vec<u8> {
        let created_at = self.stamp.created_at.clone();
        Reservation::new(self.owner.clone(), self.labels.clone(), created_at).encode()
    }

    /// Every network that this configuration can reserve in.
    fn networks(&self) -> BTreeSet<&NetworkName> {
        let of_ranges = self.wanted.sets.iter().flat_map(RangeSet::ranges).map(crate::pool::Range::network);
        let of_pools = self.pools.iter().flat_map(AskedPools::networks);
        of_ranges
            .chain(of_pools)
            .chain(self.wanted.statics.iter().filter_map(|held| held.network.as_ref()))
            .collect()
    }

    pub(super) fn wishes(&self, keys: &Keys, snapshot: &Snapshot) -> Vec<Wish<'_>> {
        let start = |set: &RangeSet| match self.wanted.order {
            Order::Lowest => Start::Lowest,
            Order::Next | Order::Spread => match cursor(&keys.cursor(set, self.start_page(set)), snapshot) {
                Some(last) => Start::After(last),
                None if self.wanted.order.starts_per_node() => Start::At(spread_start(set, self.node_seed)),
                None => Start::Lowest,
            },
        };
        let wish = |(i, set)| Wish {
            set,
            start: start(set),
            request: self.wanted.requests.get(i).copied().flatten(),
        };
        self.wanted.sets.iter().enumerate().map(wish).collect()
    }

    /// Whether this configuration could give what an owner holds. Start, end and excludes may have changed since;
    /// ranges, networks and static addresses may not. Of a pool only its name counts.
    #[must_use]
    pub fn fits(&self, addresses: &[Held]) -> bool {
        if let Some(pools) = &self.pools {
            return pools.fits(addresses);
        }
        let (from_sets, statics) = addresses.split_at(self.wanted.sets.len().min(addresses.len()));
        from_sets.len() == self.wanted.sets.len()
            && statics == self.wanted.statics
            && from_sets.iter().enumerate().all(|(i, held)| self.fits_set(i, held))
    }

    /// Whether this sandbox may inherit what another sandbox of the pod holds: it fits, and no address of it is now a
    /// gateway, network or broadcast address.
    pub(super) fn gives(&self, addresses: &[Held]) -> bool {
        if let Some(pools) = &self.pools {
            return pools.fits(addresses) && addresses.iter().all(|held| pools.is_no_gateway(held));
        }
        let is_nobodys = |(set, held): (&RangeSet, &Held)| {
            let standing = set.standing(Addr::from(held.address));
            // A gateway may lie outside of start and end.
            set.ranges().iter().any(|range| range.gateway() == Some(held.address))
                || matches!(standing, Standing::Gateway | Standing::NetworkAddress | Standing::Broadcast)
        };
        self.fits(addresses) && !self.wanted.sets.iter().zip(addresses).any(is_nobodys)
    }

    fn fits_set(&self, set: usize, held: &Held) -> bool {
        let address = Addr::from(held.address);
        let in_range = self.wanted.sets[set]
            .ranges()
            .iter()
            .any(|range| range.covers(address) && held.network.as_ref() == Some(range.network()));
        in_range && self.wanted.requests.get(set).copied().flatten().is_none_or(|wanted| wanted == address)
    }
}

/// The last address handed out. A cursor that does not decode counts as none, and is not overwritten.
pub(super) fn cursor(key: &[u8], snapshot: &Snapshot) -> Option<Addr> {
    let entry = snapshot.entry(key)?;
    let ip: std::net::IpAddr = std::str::from_utf8(&entry.value).ok()?.parse().ok()?;
    Some(Addr::from(ip))
}

pub(super) fn need_key(keys: &Keys, need: &Need) -> Bytes {
    match need {
        Need::Page(network, page) => keys.page(network, *page),
        Need::Summary(network, summary) => keys.summary(network, *summary),
        Need::Reservation(network, address) => keys.ip(network, *address),
    }
}
