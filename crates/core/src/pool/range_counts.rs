//! The numbers of held and free addresses of a range. Pure.

use serde::Serialize;

use super::Addr;
use super::range::{Range, Standing};

/// The addresses of one range, counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct RangeCounts {
    /// The number of addresses that the range gives: its excludes and gateways are no part of it.
    pub size: u128,
    /// The number held from its first address to its last one, given by it or not.
    pub held: usize,
    /// The number of those of `size` that are neither held nor cooling.
    pub free: u128,
    /// The number of those of `held` that are set aside.
    pub set_aside: usize,
    /// The number of those of `size` that are cooling, and so are not free.
    pub cooling: usize,
}

impl RangeCounts {
    /// Counts `held`, the addresses that are held from the range's first to its last one, each with a flag for set
    /// aside; and `cooling`, those of them that are cooling. Both are in order.
    pub fn of(
        range: &Range,
        held: impl Iterator<Item = (Addr, bool)>,
        cooling: impl Iterator<Item = Addr>,
    ) -> Self {
        let gives = |address: Addr| range.standing(address) == Standing::Assignable;
        let mut counts = Self { size: range.size(), ..Self::default() };
        let mut taken: u128 = 0;
        let mut cooling = cooling.filter(|address| gives(*address)).peekable();
        for (address, is_set_aside) in held {
            counts.held += 1;
            counts.set_aside += usize::from(is_set_aside);
            taken += u128::from(gives(address));
            while cooling.next_if(|at| *at < address).is_some() {
                counts.cooling += 1;
            }
            cooling.next_if_eq(&address);
        }
        counts.cooling += cooling.count();
        counts.free = counts.size.saturating_sub(taken + counts.cooling as u128);
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::range::fixtures::{addr, cidr};

    #[test]
    fn what_is_held_or_cooling_is_not_free_and_counts_once() {
        let range = cidr("10.0.0.0/28").exclude(&["10.0.0.2/32"]).range();
        let held = [("10.0.0.2", false), ("10.0.0.5", true), ("10.0.0.6", false)]
            .map(|(at, aside)| (addr(at), aside));
        let cooling = ["10.0.0.2", "10.0.0.4", "10.0.0.5", "10.0.0.9"].map(addr);
        let counts = RangeCounts::of(&range, held.into_iter(), cooling.into_iter());
        assert_eq!(counts, RangeCounts { size: 13, held: 3, set_aside: 1, cooling: 2, free: 9 });
    }
}
