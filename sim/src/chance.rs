//! Numbers that a seed decides.

use std::cell::Cell;

use metes_engine::random::split_mix;

/// A generator of its own for each world.
#[derive(Debug)]
pub(crate) struct Chance(Cell<u64>);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        let chance = Self(Cell::new(seed ^ 0x5851_f42d_4c95_7f2d));
        // Neighbouring seeds begin with numbers that have nothing in common.
        chance.next();
        chance
    }

    pub(crate) fn next(&self) -> u64 {
        let (state, number) = split_mix(self.0.get());
        self.0.set(state);
        number
    }

    /// A number below `bound`, which is not 0.
    pub(crate) fn below(&self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// A number from `least` to `most`, both included.
    pub(crate) fn between(&self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// True in `parts` of 10,000 cases.
    pub(crate) fn happens(&self, parts: u32) -> bool {
        parts > 0 && self.below(10_000) < u64::from(parts)
    }

    pub(crate) fn one_in(&self, cases: u64) -> bool {
        self.below(cases) == 0
    }

    pub(crate) fn index(&self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    pub(crate) fn pick<'a, T>(&self, of: &'a [T]) -> &'a T {
        &of[self.index(of.len())]
    }
}
