//! Random numbers, to spread runs and to tell them apart. Not for secrets.

use std::cell::Cell;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::Duration;

thread_local! {
    static SEEDED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// From here on this thread's numbers follow from `seed`: for simulations, which must be able to play the same run
/// again. Two threads, or two processes, with one seed draw the same numbers.
pub fn seed(seed: u64) {
    SEEDED.set(Some(seed));
}

/// A random number; if the kernel has none to give, the seed of a fresh hash map serves.
#[must_use]
pub fn random() -> u64 {
    match SEEDED.get() {
        Some(state) => {
            let (state, number) = split_mix(state);
            SEEDED.set(Some(state));
            number
        }
        None => getrandom::u64().unwrap_or_else(|_| RandomState::new().hash_one(0_u8)),
    }
}

/// An id that nobody else draws: 32 hex digits.
#[must_use]
pub fn random_id() -> String {
    format!("{:016x}{:016x}", random(), random())
}

/// A number below `bound` (0 for 0).
#[must_use]
pub fn random_below(bound: u64) -> u64 {
    random() % bound.max(1)
}

/// A positive number, as etcd wants it for a lease.
pub(crate) fn random_positive() -> i64 {
    ((random() >> 1) as i64).max(1)
}

/// A random pause from a tenth of `longest` up to `longest`.
#[must_use]
pub fn random_pause(longest: Duration) -> Duration {
    let longest = longest.as_micros() as u64;
    Duration::from_micros(longest / 10 + random_below(longest - longest / 10))
}

/// The next state and number of a SplitMix64 generator, by Guy Steele, Doug Lea and Christine Flood: for whoever draws
/// numbers of its own from a seed.
#[must_use]
pub fn split_mix(state: u64) -> (u64, u64) {
    let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (state, mixed ^ (mixed >> 31))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_what_follows() {
        let draw = |with| {
            seed(with);
            [random(), random(), random()]
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }
}
