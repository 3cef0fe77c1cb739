//! The wishes that a choice of addresses fulfils.

use super::{Addr, RangeSet};

/// The most needs that one step asks for: as many as one small transaction reads.
pub(crate) const MAX_NEEDS: usize = 16;

/// The place where the search of a set begins. It always goes over the whole set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// At the first range's start: the lowest free address.
    Lowest,
    /// Right after this address, round all ranges, and at last to this address itself.
    After(Addr),
    /// At this address, and round all ranges.
    At(Addr),
}

/// One range set from which one address is wanted.
#[derive(Debug, Clone, Copy)]
pub struct Wish<'a> {
    /// The set.
    pub set: &'a RangeSet,
    /// The place to begin, unless an address is requested.
    pub start: Start,
    /// The address that it must be.
    pub request: Option<Addr>,
}
