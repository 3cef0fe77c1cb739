//! The model of allotment: addresses, pages of bits, ranges, the choice, and the records kept of it.
//!
//! Everything here is pure: values in, values out. No I/O, no clock, no randomness, no logging.

pub mod address;
pub mod asked;
pub mod auto;
pub mod bitmap;
pub mod choose;
mod clock;
pub mod cooldown;
pub mod definition;
pub mod dns;
pub mod keep;
pub mod known;
pub mod names;
pub mod range;
mod range_counts;
pub mod record;
mod scan;
pub mod selector;
pub mod view;
mod wanted;
pub mod wish;

pub use address::{Addr, Page, Summary};
pub use asked::*;
pub use bitmap::Bits;
pub use choose::{Choice, Order, Pick, Refusal, choose, spread_start};
pub use clock::Clock;
pub use cooldown::*;
pub use definition::*;
pub use keep::Keep;
pub use known::*;
pub use names::*;
pub use range::{Family, Range, RangeError, RangeSet, RangeSetError, RangeSpec, Span, Standing};
pub use range_counts::RangeCounts;
pub use record::*;
pub use selector::*;
pub use view::{Need, View};
pub use wanted::{POOLED_MAX, POOLS_MAX, PoolElement, PoolsWanted, RangesWanted, Wanted, place, some_of};
pub use wish::{Start, Wish};
