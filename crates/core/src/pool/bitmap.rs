//! A bitmap of 4096 bits: a page of addresses, or a summary of pages.

use std::fmt;

use super::address::PAGE_ADDRESSES;

const WORD_BITS: usize = u64::BITS as usize;

/// Words in one bitmap.
const WORDS: usize = PAGE_ADDRESSES / WORD_BITS;

/// Bytes of a stored bitmap.
pub(crate) const STORED_BYTES: usize = PAGE_ADDRESSES / 8;

/// 4096 bits. Stored as 512 raw bytes: bit i is in byte i/8 under the mask 1 << (i % 8).
///
/// Every index must be below 4096; a larger one is a broken invariant of the caller and panics.
#[derive(Clone, PartialEq, Eq)]
pub struct Bits(Box<[u64; WORDS]>);

impl Bits {
    /// No bit set.
    #[must_use]
    pub fn empty() -> Self {
        Self(Box::new([0; WORDS]))
    }

    /// Every bit set.
    #[must_use]
    pub fn full() -> Self {
        Self(Box::new([u64::MAX; WORDS]))
    }

    /// Reads a stored bitmap; none unless it is exactly 512 bytes.
    #[must_use]
    pub fn from_bytes(stored: &[u8]) -> Option<Self> {
        if stored.len() != STORED_BYTES {
            return None;
        }
        let (chunks, _) = stored.as_chunks::<8>();
        let mut bits = Self::empty();
        for (word, chunk) in bits.0.iter_mut().zip(chunks) {
            *word = u64::from_le_bytes(*chunk);
        }
        Some(bits)
    }

    /// The 512 bytes to store.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// True if bit `index` is set.
    #[must_use]
    pub fn get(&self, index: usize) -> bool {
        self.0[index / WORD_BITS] & mask(index) != 0
    }

    /// Sets bit `index`.
    pub fn set(&mut self, index: usize) {
        self.0[index / WORD_BITS] |= mask(index);
    }

    /// Clears bit `index`.
    pub fn clear(&mut self, index: usize) {
        self.0[index / WORD_BITS] &= !mask(index);
    }

    /// The number of set bits.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// True if every bit is set.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.0.iter().all(|&word| word == u64::MAX)
    }

    /// True if no bit is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    /// The lowest clear bit in `from..=to_inclusive`. An empty interval has none.
    #[must_use]
    pub fn first_clear(&self, from: usize, to_inclusive: usize) -> Option<usize> {
        if from > to_inclusive {
            return None;
        }
        let first_word = from / WORD_BITS;
        (first_word..=to_inclusive / WORD_BITS)
            .find_map(|at| {
                let below = if at == first_word { mask(from) - 1 } else { 0 };
                let candidates = !(self.0[at] | below);
                (candidates != 0).then(|| at * WORD_BITS + candidates.trailing_zeros() as usize)
            })
            .filter(|&found| found <= to_inclusive)
    }

    /// The indices of the set bits, in ascending order.
    pub fn ones(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(at, &word)| {
            std::iter::successors(Some(word), |rest| Some(rest & rest.wrapping_sub(1)))
                .take_while(|&rest| rest != 0)
                .map(move |rest| at * WORD_BITS + rest.trailing_zeros() as usize)
        })
    }
}

impl fmt::Debug for Bits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bits({} of {PAGE_ADDRESSES} set)", self.count())
    }
}

fn mask(index: usize) -> u64 {
    1 << (index % WORD_BITS)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn bits(set: impl IntoIterator<Item = usize>) -> Bits {
        let mut bits = Bits::empty();
        set.into_iter().for_each(|index| bits.set(index));
        bits
    }

    #[test]
    fn a_bit_is_stored_in_byte_i_div_8_under_mask_1_shl_i_mod_8() {
        for index in [0, 1, 7, 8, 63, 64, 65, 4095] {
            let stored = bits([index]).to_bytes();
            assert_eq!(stored.len(), STORED_BYTES);
            assert_eq!(stored[index / 8], 1 << (index % 8), "{index}");
            assert_eq!(stored.iter().filter(|&&byte| byte != 0).count(), 1, "{index}");
        }
    }

    #[test]
    fn only_512_bytes_are_a_bitmap() {
        for len in [0, 511, 513, 1024] {
            assert_eq!(Bits::from_bytes(&vec![0; len]), None, "{len}");
        }
        assert_eq!(Bits::from_bytes(&[0; 512]), Some(Bits::empty()));
        assert!(Bits::from_bytes(&[0xff; 512]).is_some_and(|bits| bits.is_full()));
    }

    #[test]
    fn the_first_clear_bit_is_looked_for_inside_the_interval_only() {
        fn check(set: &Bits, (from, to): (usize, usize), expected: Option<usize>) {
            assert_eq!(set.first_clear(from, to), expected, "{from}..={to}");
        }
        let low = bits(0..128);
        check(&low, (0, 127), None);
        check(&low, (0, 128), Some(128));
        check(&low, (130, 4095), Some(130));
        check(&low, (5, 4), None);
        let full = bits(0..4096);
        check(&full, (0, 4095), None);
        let mut last = full.clone();
        last.clear(4095);
        check(&last, (0, 4095), Some(4095));
        check(&last, (0, 4094), None);
        assert!(full.is_full() && !last.is_full());
    }

    proptest! {
        #[test]
        fn bits_agree_with_a_set_of_numbers(
            ops in prop::collection::vec((0..3u8, 0..4096usize, 0..200usize), 0..60),
            probe in (0..4096usize, 0..4096usize),
        ) {
            let (mut bits, mut naive) = (Bits::empty(), BTreeSet::new());
            for (op, from, len) in ops {
                for index in from..(from + len).min(4096) {
                    if op == 0 {
                        bits.clear(index);
                        naive.remove(&index);
                    } else {
                        bits.set(index);
                        naive.insert(index);
                    }
                }
            }
            prop_assert_eq!(bits.count(), naive.len());
            prop_assert_eq!(bits.is_empty(), naive.is_empty());
            prop_assert_eq!(bits.get(probe.0), naive.contains(&probe.0));
            prop_assert_eq!(bits.ones().collect::<Vec<_>>(), naive.iter().copied().collect::<Vec<_>>());
            let first_clear = (probe.0..=probe.1).find(|index| !naive.contains(index));
            prop_assert_eq!(bits.first_clear(probe.0, probe.1), first_clear);
            prop_assert_eq!(Bits::from_bytes(&bits.to_bytes()), Some(bits));
        }
    }
}
