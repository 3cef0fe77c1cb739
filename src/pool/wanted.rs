//! The addresses that one interface is to have.

use super::address::Addr;
use super::choose::Order;
use super::range::RangeSet;
use super::record::Held;

/// What one ADD is to reserve.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The range sets, in result order: one address is taken from each.
    pub sets: Vec<RangeSet>,
    /// One for each set: the address asked of it. The set covers it, but it may not be assignable.
    pub requests: Vec<Option<Addr>>,
    /// Static addresses, in result order after those of the sets. Those with a network are reserved in it.
    pub statics: Vec<Held>,
    /// The order of allocation.
    pub order: Order,
}

impl Wanted {
    /// The lowest free address of each set.
    #[must_use]
    pub fn lowest_of(sets: Vec<RangeSet>) -> Self {
        Self { requests: vec![None; sets.len()], sets, statics: Vec::new(), order: Order::Lowest }
    }
}
