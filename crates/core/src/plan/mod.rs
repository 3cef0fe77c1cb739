//! The plan of each change: its next step, from a snapshot.
//!
//! - [`change`]: a change, as the engine carries it out. [`allot`] (ADD), [`free`] and [`hold`] are three.
//! - `sticky`: addresses that outlive a pod. [`hold_for`]: those that a person keeps for one.
//! - [`given`]: the part of a change that reserves an address which is given, not chosen.
//! - [`first`]: a commit that is sent as the first request. [`left`]: an owner's keys, for such a commit.
//! - [`batch`]: one commit for many runs of a queue.
//! - [`ask`], [`pools`]: the request of an ADD, and its pools. [`pool_change`]: an operator's change of a pool.

pub mod allot;
pub mod ask;
pub mod batch;
pub mod change;
pub mod effects;
pub mod first;
pub mod free;
pub mod given;
pub mod hold;
pub mod hold_for;
pub mod known_pool;
pub mod left;
pub mod pick;
pub mod pool_change;
pub mod pools;
pub mod refused;
pub mod resolved;
pub mod source;
mod sticky;
