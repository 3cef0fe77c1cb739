//! A store that fails, and runs that end at the wrong moment.

mod chaos;
mod failpoints;
mod faults;
mod fence;
mod lead;
mod quorum;
#[path = "../../tools/soak/soak/mod.rs"]
mod soak;
mod soak_minute;
mod stores;
mod unreachable;
