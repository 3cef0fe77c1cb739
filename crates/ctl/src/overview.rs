//! The part of a store that few keys tell: the ranges that are asked for, the pools, and the addresses that are set
//! aside.
//!
//! With that, networks are found, addresses counted and the first ones read without a look at everything. etcd counts
//! all keys of a listing, also where it returns one: so no listing here covers a range that may hold a million, except
//! to count them.

use std::collections::BTreeSet;

use super::Context;
use super::inventory::Inventory;
use metes_core::keys::{Bytes, Key, NetworkAddress, prefix_end};
use metes_core::limits;
use metes_core::pool::{Addr, KnownRange, NetworkName, OwnerKind, Range, known_ranges};
use metes_core::txn::{Entry, Found, List, Op, Txn};
use metes_engine::kv::{Failure, Kv};
use metes_engine::walk::walk;

/// The number of addresses that the first listing within a range covers. Each listing that finds few doubles it.
const WIDTH: u128 = 4096;

/// The part of a store that few keys tell.
#[derive(Debug, Default)]
pub(super) struct Overview {
    /// The ranges that are asked for, and the pools; no address.
    pub(super) inventory: Inventory,
    /// The addresses that are set aside.
    pub(super) aside: BTreeSet<NetworkAddress>,
}

/// Keys from the first up to, without, the second one.
pub(super) type KeySpan = (Bytes, Bytes);

impl Overview {
    /// The ranges of all pools and of all configurations, each once, by network.
    pub(super) fn known(&self) -> Vec<KnownRange<'_>> {
        known_ranges(self.inventory.pools.iter(), &self.inventory.asked)
    }

    /// The ranges of configurations and pools.
    fn ranges(&self) -> Vec<Range> {
        let asked = self.inventory.asked.iter().flat_map(|seen| seen.asked.ranges()).cloned();
        let of_pools = self.inventory.pools.iter().flat_map(|pool| pool.all_ranges().unwrap_or_default());
        asked.chain(of_pools).collect()
    }

    /// The networks that it knows.
    fn networks(&self) -> BTreeSet<Bytes> {
        let ranges = self.ranges();
        let of_ranges = ranges.iter().map(Range::network);
        let networks = of_ranges.chain(self.aside.iter().map(|(network, _)| network));
        networks.map(|network| network.as_str().as_bytes().to_vec()).collect()
    }
}

/// The first and last addresses of ranges, in order, without those that lie in others or overlap.
pub(super) fn merged<'r>(ranges: impl IntoIterator<Item = &'r Range>) -> Vec<(Addr, Addr)> {
    let mut spans: Vec<(Addr, Addr)> =
        ranges.into_iter().map(|range| (range.first(), range.last())).collect();
    spans.sort_unstable();
    let mut merged: Vec<(Addr, Addr)> = Vec::new();
    for (first, last) in spans {
        match merged.last_mut() {
            Some((_, before)) if first <= *before => *before = (*before).max(last),
            _ => merged.push((first, last)),
        }
    }
    merged
}

impl<K: Kv> Context<'_, K> {
    /// Reads the few keys of an overview.
    pub(super) async fn overview(&self) -> Result<Overview, Failure> {
        let keys = self.session.keys;
        let mut overview = Overview::default();
        for prefix in [keys.all_asked(), keys.pools(), keys.hold_owners()] {
            let see = |seen: &mut Vec<Entry>, entry| seen.push(entry);
            let (entries, _) = walk(self.session, &prefix, Vec::new, see).await?;
            for entry in entries {
                let Ok(Key::Owner(owner)) = keys.parse(&entry.key) else {
                    overview.inventory.see(keys, &entry);
                    continue;
                };
                match owner.kind() {
                    OwnerKind::Aside(network, address) => _ = overview.aside.insert((network, address)),
                    OwnerKind::Container(_) | OwnerKind::Subject(_) | OwnerKind::Unknown => {}
                }
            }
        }
        Ok(overview)
    }

    /// The networks of which anything is stored, or said by what few keys say.
    pub(super) async fn networks(&self) -> Result<Vec<NetworkName>, Failure> {
        self.networks_beside(&self.overview().await?).await
    }

    /// The same, where few keys were read before.
    pub(super) async fn networks_beside(&self, overview: &Overview) -> Result<Vec<NetworkName>, Failure> {
        let names = self.names(&self.session.keys.nets(), overview.networks()).await?;
        Ok(names.iter().filter_map(|name| NetworkName::stored(name).ok()).collect())
    }

    /// The names that stand between a prefix and the next slash, and those that are known to: below these nothing is
    /// listed.
    pub(super) async fn names(&self, prefix: &Bytes, known: BTreeSet<Bytes>) -> Result<Vec<String>, Failure> {
        let below = |name: &[u8]| [prefix, name, b"/"].concat();
        let mut names = known;
        // Each is passed over as a whole: its subtree, or the key itself if that is all of it.
        let mut passed: BTreeSet<KeySpan> = names.iter().map(|name| span_of(&below(name))).collect();
        loop {
            let starts = std::iter::once(prefix.clone()).chain(passed.iter().map(|(_, end)| end.clone()));
            let ends = passed.iter().map(|(start, _)| start.clone()).chain([prefix_end(prefix)]);
            let gaps: Vec<KeySpan> = starts.zip(ends).filter(|(start, end)| start < end).collect();
            let before = passed.len();
            for found in self.look_between(&gaps, &mut 0).await? {
                let Some(Entry { key, .. }) = found.one() else { continue };
                let rest = &key[prefix.len()..];
                let name = rest.split(|byte| *byte == b'/').next().unwrap_or_default();
                let is_all = name.len() == rest.len();
                passed.insert(if is_all {
                    (key.clone(), [key, &[0][..]].concat())
                } else {
                    span_of(&below(name))
                });
                names.insert(name.to_vec());
            }
            if passed.len() == before {
                return Ok(names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect());
            }
        }
    }

    /// Counts the keys of each span, all at one revision.
    pub(super) async fn count(&self, spans: &[KeySpan]) -> Result<Vec<usize>, Failure> {
        let found = self.look_between(spans, &mut 0).await?;
        Ok(found.iter().map(|found| usize::try_from(found.count).unwrap_or_default()).collect())
    }

    /// Reads the first key of each span, and the number of its keys.
    async fn look_between(&self, spans: &[KeySpan], revision: &mut i64) -> Result<Vec<Found>, Failure> {
        let mut all = Vec::new();
        for some in spans.chunks(limits::TXN_OPS) {
            let list = |(start, end): &KeySpan| {
                let (start, end) = (start.clone(), end.clone());
                Op::List(List { start, end, limit: 1, revision: *revision, keys_only: true })
            };
            let reply = self.session.txn(&Txn::read(some.iter().map(list).collect())).await?;
            *revision = reply.revision;
            all.extend(reply.found);
        }
        Ok(all)
    }

    /// Reads the first so many addresses of a network.
    pub(super) async fn first_of_network(
        &self,
        network: &NetworkName,
        most: usize,
    ) -> Result<Inventory, Failure> {
        let ranges = self.overview().await?.ranges();
        let mut reading = FirstAddresses { context: self, network, most, inventory: Inventory::default() };
        let mut at = Some(Addr(0));
        for (first, last) in merged(ranges.iter().filter(|range| range.network() == network)) {
            if let Some(before) = first.0.checked_sub(1) {
                reading.read(at, Addr(before), u128::MAX).await?;
            }
            reading.read(Some(first), last, WIDTH).await?;
            at = last.0.checked_add(1).map(Addr);
        }
        reading.read(at, Addr(u128::MAX), u128::MAX).await?;
        let inventory = reading.inventory;
        self.with_owners(inventory).await
    }
}

/// All keys that begin with this.
fn span_of(prefix: &[u8]) -> KeySpan {
    (prefix.to_vec(), prefix_end(prefix))
}

/// The first addresses of a network, as they are read.
struct FirstAddresses<'a, 'c, K> {
    context: &'a Context<'c, K>,
    network: &'a NetworkName,
    most: usize,
    inventory: Inventory,
}

impl<K: Kv> FirstAddresses<'_, '_, K> {
    /// Reads from one address to another, at first so many at once, as far as more are wanted.
    async fn read(&mut self, from: Option<Addr>, last: Addr, mut width: u128) -> Result<(), Failure> {
        let keys = self.context.session.keys;
        let mut from = from.filter(|from| *from <= last);
        while let (Some(at), 1..) = (from, self.most) {
            let to = last.min(Addr(at.0.saturating_add(width - 1)));
            let (start, end) = between(keys.ip(self.network, at), keys.ip(self.network, to));
            let limit = limits::LIST_KEYS.min(i64::try_from(self.most).unwrap_or(i64::MAX));
            let list = List { start, end, limit, revision: 0, keys_only: false };
            let reply = self.context.session.txn(&Txn::read(vec![Op::List(list)])).await?;
            let Some(found) = reply.found.into_iter().next() else { return Ok(()) };
            let has_more = found.count > found.entries.len() as i64;
            let last_found = found.entries.last().and_then(|entry| match keys.parse(&entry.key) {
                Ok(Key::Ip(_, address)) => Some(address),
                _ => None,
            });
            self.most -= found.entries.len().min(self.most);
            found.entries.iter().for_each(|entry| self.inventory.see(keys, entry));
            let done = if has_more { last_found.unwrap_or(to) } else { to };
            from = done.0.checked_add(1).map(Addr).filter(|next| *next <= last);
            width = width.saturating_mul(2);
        }
        Ok(())
    }
}

pub(super) fn between(first: Bytes, last: Bytes) -> KeySpan {
    (first, [last, vec![0]].concat())
}
