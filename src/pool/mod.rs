//! What is allotted: addresses, pages of bits, ranges, the choice, and the records kept of it.
//!
//! Everything here is pure: values in, values out. No I/O, no clock, no randomness, no logging.

pub mod address;
pub mod bitmap;
pub mod choose;
pub mod names;
pub mod range;
pub mod record;

pub use address::{Addr, Page, Summary};
pub use range::{Range, RangeSet};
pub use names::NetworkName;
