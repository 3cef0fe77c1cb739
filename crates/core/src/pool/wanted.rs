//! The addresses that one interface is to have.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::address::Addr;
use super::choose::Order;
use super::cooldown::Cooldown;
use super::names::PoolName;
use super::range::{Range, RangeSet};
use super::record::Held;
use super::selector::NodeLabels;

/// The addresses that one ADD is to reserve: its configuration has ranges of its own, or names pools.
#[derive(Debug, Clone)]
pub enum Wanted {
    /// Addresses of these ranges, and static ones.
    Ranges(RangesWanted),
    /// Addresses of pools, and nothing else.
    Pools(PoolsWanted),
}

impl Wanted {
    /// The lowest free address of each set.
    #[must_use]
    pub fn lowest_of(sets: Vec<RangeSet>) -> Self {
        Self::Ranges(RangesWanted::lowest_of(sets))
    }
}

/// In words, as in "asks for ...".
impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let elements: Vec<String> = match self {
            Self::Ranges(RangesWanted { sets, requests, statics, .. }) => {
                let of_set = |(set, request): (&RangeSet, &Option<Addr>)| match request {
                    Some(address) => address.to_string(),
                    None => {
                        let ranges: Vec<_> = set.ranges().iter().map(Range::to_string).collect();
                        format!("an address of {}", some_of(&ranges))
                    }
                };
                let of_statics = statics.iter().map(|held| held.address.to_string());
                sets.iter().zip(requests).map(of_set).chain(of_statics).collect()
            }
            Self::Pools(PoolsWanted { elements, requests, .. }) => {
                let of_pools = elements.iter().map(|element| match element.names.as_slice() {
                    [] => "an address of the pool that `auto` chooses".to_owned(),
                    [name] => format!("an address of pool {name}"),
                    names => format!("an address of one of the pools {}", some_of(names)),
                });
                of_pools.chain(requests.iter().map(IpAddr::to_string)).collect()
            }
        };
        f.write_str(&some_of(&elements))
    }
}

/// The most things of a kind that a sentence names.
const NAMED_MAX: usize = 8;

/// The first of some things, in words, and how many more there are.
#[must_use]
pub fn some_of(all: &[impl ToString]) -> String {
    let mut named: Vec<String> = all.iter().take(NAMED_MAX).map(ToString::to_string).collect();
    named.extend((all.len() > NAMED_MAX).then(|| format!("and {} more", all.len() - NAMED_MAX)));
    named.join(", ")
}

impl From<RangesWanted> for Wanted {
    fn from(ranges: RangesWanted) -> Self {
        Self::Ranges(ranges)
    }
}

impl From<PoolsWanted> for Wanted {
    fn from(pools: PoolsWanted) -> Self {
        Self::Pools(pools)
    }
}

/// The addresses that one ADD is to reserve in the ranges of its configuration.
#[derive(Debug, Clone)]
pub struct RangesWanted {
    /// The range sets, in result order: one address is taken from each.
    pub sets: Vec<RangeSet>,
    /// One for each set: the address asked of it. The set covers it, but it may not be assignable.
    pub requests: Vec<Option<Addr>>,
    /// Static addresses, in result order after those of the sets. Those with a network are reserved in it.
    pub statics: Vec<Held>,
    /// The order of allocation.
    pub order: Order,
    /// The cooldown of the sets' addresses.
    pub cooldown: Cooldown,
}

impl RangesWanted {
    /// The lowest free address of each set.
    #[must_use]
    pub fn lowest_of(sets: Vec<RangeSet>) -> Self {
        Self {
            requests: vec![None; sets.len()],
            sets,
            statics: Vec::new(),
            order: Order::Lowest,
            cooldown: Cooldown::default(),
        }
    }
}

/// The most addresses that one interface may have from pools. The commit compares each pool besides all else.
pub const POOLED_MAX: usize = 16;
/// The most pools that one configuration may name. All of them are read in one request.
pub const POOLS_MAX: usize = 32;

/// The addresses that one ADD is to take from pools. The pools say their ranges as they are read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolsWanted {
    /// One address is taken from each element, in result order.
    pub elements: Vec<PoolElement>,
    /// The order of allocation, if it is not to be the pool's.
    #[serde(default, with = "super::definition::text", skip_serializing_if = "Option::is_none")]
    pub order: Option<Order>,
    /// Addresses that are asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<IpAddr>,
    /// Gateways that the configuration names besides. They are never given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub never: Vec<IpAddr>,
    /// The labels of the node, by which a pool may say whom it is for.
    #[serde(default, skip_serializing_if = "NodeLabels::is_empty")]
    pub node_labels: NodeLabels,
    /// The pools that `auto` may choose on this node; none: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<BTreeSet<PoolName>>,
}

/// Pools that one address is taken from: the first of them that has a free one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolElement {
    /// In the order in which they are used. A configuration names at least one, or none for `auto`.
    pub names: Vec<PoolName>,
    /// The position of the one that is used now.
    pub(crate) at: usize,
    /// It is `auto`: the names are those of the pools that are chosen by what was read.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) auto: bool,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl PoolElement {
    /// These pools, of which the first is used.
    #[must_use]
    pub fn of(names: Vec<PoolName>) -> Self {
        Self { names, at: 0, auto: false }
    }

    /// The pools that are for the asker.
    #[must_use]
    pub fn auto() -> Self {
        Self { auto: true, ..Self::of(Vec::new()) }
    }

    /// The pool that is used now; none if none is chosen.
    #[must_use]
    pub fn name(&self) -> Option<&PoolName> {
        self.names.get(self.at)
    }

    /// True if there is another pool after the one that is used now.
    pub(crate) fn has_next(&self) -> bool {
        self.at + 1 < self.names.len()
    }
}

impl PoolsWanted {
    /// One address from each of these elements.
    #[must_use]
    pub fn of(elements: Vec<PoolElement>) -> Self {
        let (order, requests, never) = (None, Vec::new(), Vec::new());
        Self { elements, order, requests, never, node_labels: NodeLabels::default(), allowed: None }
    }

    /// True if an element is `auto`.
    #[must_use]
    pub fn has_auto(&self) -> bool {
        self.elements.iter().any(|element| element.auto)
    }

    /// Turns to the next pool of an element, because the present one is full.
    pub(crate) fn turn_to_next(&mut self, element: usize) {
        if let Some(element) = self.elements.get_mut(element) {
            element.at += 1;
        }
    }

    /// True if somebody else may decide for it: each element has a pool or is `auto`, and there are no more than a
    /// configuration may name.
    pub(crate) fn is_servable(&self) -> bool {
        let is_sound = |element: &PoolElement| match element.auto {
            true => element.names.is_empty() && element.at < POOLS_MAX,
            false => element.at < element.names.len(),
        };
        (1..=POOLED_MAX).contains(&self.elements.len())
            && self.names().count() <= POOLS_MAX
            && self.elements.iter().all(is_sound)
            && self.requests.len() <= POOLED_MAX
    }

    /// All pools that it may use.
    pub fn names(&self) -> impl Iterator<Item = &PoolName> {
        self.elements.iter().flat_map(|element| &element.names)
    }
}

/// The requested address of each set: of the first set without one that has it between the bounds of a range, else of
/// the first one whose subnets cover it, because that one can say why it does not give it.
///
/// # Errors
/// The first address that has no set.
pub fn place(requests: impl IntoIterator<Item = Addr>, sets: &[RangeSet]) -> Result<Vec<Option<Addr>>, Addr> {
    let mut placed = vec![None; sets.len()];
    for address in requests {
        let free = || (0..sets.len()).filter(|&set| placed[set].is_none());
        let holds = |set: &usize| {
            let mut ranges = sets[*set].ranges().iter();
            ranges.any(|range| range.covers(address) && range.first() <= address && address <= range.last())
        };
        let set = free().find(holds).or_else(|| free().find(|set| sets[*set].covers(address).is_some()));
        placed[set.ok_or(address)?] = Some(address);
    }
    Ok(placed)
}
