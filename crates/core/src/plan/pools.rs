//! The pools of an ADD, and the ranges that they give it. Pure.
//!
//! A pool is read like all else that a decision relies on, and every commit compares it. So no address is given by a
//! text that has been replaced: not by a head that serves others, and not by a first commit that was planned on a hint.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;

use super::known_pool::{DecodedPools, KnownPool, open_set};
use super::source::{Full, Source, SourceSet};
use crate::keys::{Bytes, Keys};
use crate::pool::auto::{AutoPool, chosen};
use crate::pool::dns::PoolDns;
use crate::pool::{
    Addr, Facts, FromPool, Held, NetworkName, Order, POOLS_MAX, PoolDefinition, PoolElement, PoolName,
    PoolRoute, PoolsWanted, RangeState, place, some_of,
};
use crate::snapshot::{BadRecord, Snapshot};

/// The pools of one ADD, as they were read.
#[derive(Debug, Default)]
pub struct ReadPools {
    /// As the configuration asks for them, with the pools that `auto` has chosen.
    wanted: PoolsWanted,
    /// The pools of a hold's addresses that are for whoever asks, though `auto` chooses others, of a higher priority.
    outranked: Vec<PoolName>,
    known: BTreeMap<PoolName, Rc<KnownPool>>,
}

/// The sets that the pools of one ADD give, one for each element, and the order of allocation; or why they give none.
type GivenSets = Result<(Vec<SourceSet>, Order), PoolRefused>;

/// The part of a result that pools add besides addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolResult {
    /// Routes.
    pub routes: Vec<PoolRoute>,
    /// DNS.
    pub dns: PoolDns,
}

/// Why pools give no address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PoolRefused {
    /// There is no pool of this name.
    Missing(PoolName),
    /// No pool is for this ADD. The text has the facts about it.
    ForNobody(String),
    /// The host file does not allow the pools that are for this ADD. This is the first of them.
    NotOnNode(PoolName),
    /// More pools of one priority are for this ADD than an ADD reads.
    TooMany(usize),
    /// The pool of this element is not for this ADD: this fact is not among those that it allows.
    NotAllowed {
        /// Its position.
        element: usize,
        /// The pool.
        name: PoolName,
        /// The fact.
        why: String,
    },
    /// The pool does not say for how long its addresses stay with a pod's name.
    NotSticky(PoolName),
    /// No range of the pool of this element is open.
    Closed {
        /// Its position.
        element: usize,
    },
    /// An address is asked for that lies in no range of the pools, which these words name.
    Outside(Addr, String),
    /// An address is asked for that lies in a range which gives none.
    NotOpen(Addr, PoolName, RangeState),
    /// The record of a pool does not decode.
    Bad(BadRecord),
}

impl PoolRefused {
    /// True if it leaves no pool that an address could be of.
    pub(crate) fn leaves_no_pool(&self) -> bool {
        match self {
            Self::Missing(_)
            | Self::ForNobody(_)
            | Self::NotOnNode(_)
            | Self::TooMany(_)
            | Self::NotAllowed { .. }
            | Self::Bad(_) => true,
            Self::NotSticky(_) | Self::Closed { .. } | Self::Outside(..) | Self::NotOpen(..) => false,
        }
    }
}

/// The keys of all pools that may be used, and of what `auto` chooses them by.
pub(crate) fn pool_keys(wanted: &PoolsWanted, keys: &Keys) -> Vec<Bytes> {
    let changes = wanted.has_auto().then(|| keys.pool_changes());
    changes.into_iter().chain(wanted.names().map(|name| keys.pool(name))).collect()
}

/// The same with the pools that `auto` chooses by the keys that were read, and the reason if it chooses none.
///
/// # Errors
/// The keys that it is judged by, if they were not read yet.
pub(crate) fn choose(
    wanted: &PoolsWanted,
    keys: &Keys,
    seen: &Snapshot,
    facts: Facts<'_>,
    decoded: &DecodedPools,
) -> Result<(PoolsWanted, Option<PoolRefused>), Vec<Bytes>> {
    let mut with_names = wanted.clone();
    if !wanted.has_auto() {
        return Ok((with_names, None));
    }
    if !seen.knows(&keys.pool_changes()) {
        return Err(unread(wanted, pool_keys(wanted, keys), keys, seen));
    }
    let auto = decoded.auto(keys, seen).map_err(PoolRefused::Bad);
    let (names, refused) = match auto.and_then(|auto| names_for(wanted, &auto, facts)) {
        Ok(names) => (names, None),
        Err(why) => (Vec::new(), Some(why)),
    };
    for element in with_names.elements.iter_mut().filter(|element| element.auto) {
        element.names.clone_from(&names);
    }
    Ok((with_names, refused))
}

fn names_for(
    wanted: &PoolsWanted,
    auto: &[AutoPool],
    facts: Facts<'_>,
) -> Result<Vec<PoolName>, PoolRefused> {
    let mut names = chosen(auto, facts);
    let Some(first) = names.first().cloned() else {
        return Err(PoolRefused::ForNobody(facts.to_string()));
    };
    if let Some(allowed) = &wanted.allowed {
        names.retain(|name| allowed.contains(name));
    }
    match names.len() {
        0 => Err(PoolRefused::NotOnNode(first)),
        1..=POOLS_MAX => Ok(names),
        many => Err(PoolRefused::TooMany(many)),
    }
}

/// The pools of these addresses that `auto` would choose if there were no pool of a higher priority.
fn outranked(wanted: &PoolsWanted, auto: &[AutoPool], facts: Facts<'_>, held: &[Held]) -> Vec<PoolName> {
    let is_for_it = |name: &PoolName| {
        auto.iter().any(|pool| pool.pool == *name && pool.selector.mismatch(facts).is_none())
            && wanted.allowed.as_ref().is_none_or(|allowed| allowed.contains(name))
            && !wanted.names().any(|chosen| chosen == name)
    };
    pools_of(held).into_iter().filter(|name| is_for_it(name)).cloned().collect()
}

/// The keys that must be read before the pools say what they give. Those of pools that `auto` has chosen are read
/// together with what it has chosen them by: one that was read before that may have been made or deleted since.
fn unread(wanted: &PoolsWanted, all: Vec<Bytes>, keys: &Keys, seen: &Snapshot) -> Vec<Bytes> {
    let changes = keys.pool_changes();
    let has_auto = wanted.has_auto();
    let since = if has_auto { seen.mod_revision(&changes).min(seen.read_at(&changes)) } else { 0 };
    let is_unread = |key: &Bytes| !seen.knows_since(key, since);
    match all.iter().any(is_unread) {
        true if has_auto => all,
        _ => all.into_iter().filter(is_unread).collect(),
    }
}

impl ReadPools {
    /// The pools by the keys that were read, and the ranges that they give. `held` are the addresses of the hold, if
    /// there is one.
    ///
    /// # Errors
    /// The keys of the pools that were not read yet.
    pub(crate) fn read(
        wanted: &PoolsWanted,
        held: &[Held],
        (keys, seen): (&Keys, &Snapshot),
        facts: Facts<'_>,
        decoded: &DecodedPools,
    ) -> Result<(Self, GivenSets), Vec<Bytes>> {
        let (wanted, mut refused) = choose(wanted, keys, seen, facts, decoded)?;
        let auto = wanted.has_auto().then(|| decoded.auto(keys, seen).unwrap_or_default());
        let outranked = outranked(&wanted, &auto.unwrap_or_default(), facts, held);
        let mut read = Self { wanted, outranked, known: BTreeMap::new() };
        let unread = unread(&read.wanted, read.keys(keys), keys, seen);
        if !unread.is_empty() {
            return Err(unread);
        }
        for name in read.wanted.names().chain(&read.outranked) {
            match decoded.read(keys, seen, name) {
                Ok(Some(pool)) => _ = read.known.insert(name.clone(), pool),
                Ok(None) => {}
                // A pool that is not used now does not matter.
                Err(_) if !read.used().any(|used| used == name) => {}
                Err(why) => refused = Some(PoolRefused::Bad(why)),
            }
        }
        read.pass_over(facts);
        let given = refused.map_or_else(|| read.give(facts), Err);
        Ok((read, given))
    }

    /// A pool that gives nothing because it has no open range, or nothing for whoever asks while the next one may.
    pub(crate) fn gives_nothing(&self, why: &PoolRefused) -> Option<Full> {
        let has_next = |element: &usize| self.has_next(*element);
        let element = match why {
            PoolRefused::Closed { element } => Some(*element),
            PoolRefused::NotAllowed { element, .. } => Some(*element).filter(has_next),
            PoolRefused::Outside(..) | PoolRefused::NotOpen(..) => {
                (0..self.wanted.elements.len()).find(has_next)
            }
            PoolRefused::Missing(_)
            | PoolRefused::ForNobody(_)
            | PoolRefused::NotOnNode(_)
            | PoolRefused::TooMany(_)
            | PoolRefused::NotSticky(_)
            | PoolRefused::Bad(_) => None,
        }?;
        let pool = self.known.get(self.wanted.elements.get(element)?.name()?)?.clone();
        Some(Full::Pool { element, pool, open: None, has_next: self.has_next(element) })
    }

    /// True if there is another pool for an element.
    pub(crate) fn has_next(&self, element: usize) -> bool {
        self.wanted.elements.get(element).is_some_and(PoolElement::has_next)
    }

    /// Leaves out pools that `auto` has chosen and that do not allow whoever asks, if one does. Every change of a pool
    /// changes what `auto` is judged by, so a commit notices if one of them allows it now.
    fn pass_over(&mut self, facts: Facts<'_>) {
        let Self { wanted, known, .. } = self;
        let refuses =
            |name: &PoolName| known.get(name).is_some_and(|known| known.definition.refuses(facts).is_some());
        for PoolElement { names, at, .. } in wanted.elements.iter_mut().filter(|element| element.auto) {
            match names.iter().all(refuses) {
                true => names.truncate(1),
                false => names.retain(|name| !refuses(name)),
            }
            // There may be fewer of them than when it turned to this one.
            *at = (*at).min(names.len().saturating_sub(1));
        }
    }

    /// The keys of all pools that may be used, and of what `auto` chooses them by.
    pub(crate) fn keys(&self, keys: &Keys) -> Vec<Bytes> {
        let outranked = self.outranked.iter().map(|name| keys.pool(name));
        pool_keys(&self.wanted, keys).into_iter().chain(outranked).collect()
    }

    /// The keys that a commit relies on that uses these pools, each once: theirs, and `v1/pools` if `auto` has chosen.
    pub(crate) fn keys_of<'p>(
        &self,
        keys: &Keys,
        used: impl Iterator<Item = &'p PoolName>,
    ) -> BTreeSet<Bytes> {
        let changes = self.wanted.has_auto().then(|| keys.pool_changes());
        changes.into_iter().chain(used.map(|name| keys.pool(name))).collect()
    }

    /// The pools that addresses are taken from, one for each, in result order.
    pub(crate) fn used(&self) -> impl Iterator<Item = &PoolName> {
        self.wanted.elements.iter().filter_map(PoolElement::name)
    }

    /// The pools that these addresses are from, without those that may be used now.
    #[must_use]
    pub fn unused(&self, held: &[Held]) -> Vec<PoolName> {
        let is_unused = |name: &&PoolName| !self.wanted.names().any(|wanted| wanted == *name);
        pools_of(held).into_iter().filter(is_unused).cloned().collect()
    }

    /// The part of a result that the pools of these addresses add, as they are now. `unused` are those of
    /// [`ReadPools::unused`] that exist.
    #[must_use]
    pub fn in_result(&self, held: &[Held], unused: &[PoolDefinition]) -> PoolResult {
        let definition =
            |name: &PoolName| self.definition(name).or_else(|| unused.iter().find(|pool| pool.pool == *name));
        let mut result = PoolResult::default();
        for pool in pools_of(held).into_iter().filter_map(definition) {
            result.routes.extend_from_slice(&pool.routes);
            result.dns.join(&pool.dns);
        }
        result
    }

    fn definition(&self, name: &PoolName) -> Option<&PoolDefinition> {
        self.known.get(name).map(|known| &known.definition)
    }

    fn definitions(&self) -> impl Iterator<Item = &PoolDefinition> {
        self.known.values().map(|known| &known.definition)
    }

    /// The networks of all pools that may be used.
    pub(crate) fn networks(&self) -> impl Iterator<Item = &NetworkName> {
        self.definitions().map(|pool| &pool.network)
    }

    /// True if an owner may keep these addresses: each is from a pool of its element, or lies in a range of one, and
    /// those that are asked for are among them. Of `auto` it may be from any pool: whom a pool is for may have changed
    /// since.
    pub(crate) fn fits(&self, addresses: &[Held]) -> bool {
        let of_element = |(element, held): (&PoolElement, &Held)| {
            held.pool.as_ref().is_some_and(|from| element.auto || element.names.contains(&from.name))
                || self.gave(&element.names, held).is_some()
        };
        addresses.len() == self.wanted.elements.len()
            && self.wanted.elements.iter().zip(addresses).all(of_element)
            && self.wanted.requests.iter().all(|asked| addresses.iter().any(|held| held.address == *asked))
    }

    /// The pools by which a pod may use the addresses of a hold: for each the first one of its element that has it and
    /// allows this pod now. The state of a range does not matter. Nor does it matter for `auto` whether there is a pool
    /// of a higher priority by now: a pod's name keeps its addresses as long as their own pool is for the pod.
    ///
    /// # Errors
    /// That pool has no such address; or the reason why it allows nothing.
    pub(crate) fn of_hold(
        &self,
        addresses: &[Held],
        facts: Facts<'_>,
    ) -> Result<Vec<PoolName>, Option<PoolRefused>> {
        let PoolsWanted { elements, requests, .. } = &self.wanted;
        let is_held = |asked: &IpAddr| addresses.iter().any(|held| held.address == *asked);
        if addresses.len() != elements.len() || !requests.iter().all(is_held) {
            return Err(None);
        }
        let of_element = |(at, (element, held)): (usize, (&PoolElement, &Held))| {
            let outranked = self.outranked.iter().filter(|_| element.auto);
            let known = element.names.iter().chain(outranked).filter_map(|name| self.definition(name));
            let has_it = known.filter(|pool| FromPool::of(&[pool], held).is_some());
            let mut refused = None;
            for pool in has_it {
                match pool.refuses(facts) {
                    None => return Ok(pool.pool.clone()),
                    Some(why) => {
                        let name = pool.pool.clone();
                        refused = refused.or(Some(PoolRefused::NotAllowed { element: at, name, why }));
                    }
                }
            }
            Err(refused)
        };
        elements.iter().zip(addresses).enumerate().map(of_element).collect()
    }

    /// True if no range of the pools has this address as its gateway.
    pub(crate) fn is_no_gateway(&self, held: &Held) -> bool {
        !self.definitions().any(|pool| {
            held.network.as_ref() == Some(&pool.network)
                && pool.ranges.iter().any(|range| range.gateway == Some(held.address))
        })
    }

    /// An address that an owner keeps. If a configuration's own range has given it, one of the element's pools has it
    /// from now on.
    pub(crate) fn keep(&self, element: usize, held: Held) -> Held {
        if held.pool.is_some() {
            return held;
        }
        let names = self.wanted.elements.get(element).map(|element| element.names.as_slice());
        let pool = self.gave(names.unwrap_or_default(), &held);
        Held { pool, ..held }
    }

    /// The first of these pools that has the address, with its prefix length and gateway.
    fn gave(&self, names: &[PoolName], held: &Held) -> Option<FromPool> {
        FromPool::of(&names.iter().filter_map(|name| self.definition(name)).collect::<Vec<_>>(), held)
    }

    /// The range sets of the pools that are used. The order of allocation is the first pool's, unless one is asked for.
    fn give(&self, facts: Facts<'_>) -> GivenSets {
        let (mut sets, mut sources) = (Vec::new(), Vec::new());
        let mut order = self.wanted.order;
        for (element, name) in self.used().enumerate() {
            let known = self.known.get(name).ok_or_else(|| PoolRefused::Missing(name.clone()))?;
            let KnownPool { definition: pool, open, .. } = &**known;
            if let Some(why) = pool.refuses(facts) {
                return Err(PoolRefused::NotAllowed { element, name: name.clone(), why });
            }
            let open = match &self.wanted.never[..] {
                [] => open.clone(),
                never => open_set(pool, never),
            };
            sets.push(open.ok_or(PoolRefused::Closed { element })?);
            sources.push(Source::Pool(known.clone()));
            order = order.or(Some(pool.order()));
        }
        let requests = self.wanted.requests.iter().map(|&ip| Addr::from(ip));
        let requests = place(requests, &sets).map_err(|address| self.refuse(address))?;
        let sets = sets.into_iter().zip(requests).zip(sources);
        let sets = sets.map(|((set, request), source)| SourceSet { set, request, source }).collect();
        Ok((sets, order.unwrap_or(Order::Next)))
    }

    /// Why no pool gives an address that was asked for.
    fn refuse(&self, address: Addr) -> PoolRefused {
        for name in self.used() {
            let Some(pool) = self.definition(name) else { continue };
            let state = pool.range_of(address.ip()).map(|range| range.state);
            if let Some(state) = state.filter(|state| *state != RangeState::Open) {
                return PoolRefused::NotOpen(address, name.clone(), state);
            }
        }
        let pools = self.used().filter_map(|name| self.definition(name));
        let words = pools.map(|pool| {
            let ranges: Vec<_> = pool.ranges.iter().map(|range| range.range.to_string()).collect();
            format!("{} ({})", pool.pool, some_of(&ranges))
        });
        PoolRefused::Outside(address, some_of(&words.collect::<Vec<_>>()))
    }
}

fn pools_of(held: &[Held]) -> BTreeSet<&PoolName> {
    held.iter().filter_map(|held| held.pool.as_ref()).map(|from| &from.name).collect()
}

#[cfg(test)]
mod tests;
