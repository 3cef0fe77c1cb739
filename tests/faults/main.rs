//! A store that fails, and runs that end at the wrong moment.

mod chaos;
mod failpoints;
mod faults;
mod fence;
mod lead;
mod outage;
mod quorum;
mod sticky;
mod stores;
mod unreachable;
