//! Tests that need the machine for themselves: one at a time.

mod kill_matrix;
mod reconcile_size;
#[path = "../../tools/soak/soak/mod.rs"]
mod soak;
mod soak_minute;
