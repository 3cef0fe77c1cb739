//! Carries out changes on a store: the driver, the queue, and the settling of open outcomes.
//!
//! - [`kv`]: a store, and the ways in which it fails; [`obstacle`]: a lasting one, in words. [`session`]: a store with
//!   keys and a deadline.
//! - [`drive`]: the one driver that carries out a change, by a [`policy`]; [`queue`], [`settle`]: its parts;
//!   [`release`]: frees.
//! - [`endpoints`]: asks all of them which store they are, and founds one. [`prefix`]: replaces its meta.
//!   [`repair`]: clears stray bits for an ADD that finds its range full.
//! - [`walk`]: reads all keys at one revision. [`follow`]: all changes of a prefix.
//! - [`random`], [`tried`]: random numbers, and the time spent on attempts.

pub mod drive;
pub mod endpoints;
#[cfg(feature = "failpoints")]
pub mod failing;
#[cfg(feature = "failpoints")]
pub mod failpoints;
pub mod follow;
pub mod kv;
pub mod obstacle;
pub mod policy;
pub mod prefix;
pub mod queue;
pub mod random;
pub mod release;
pub mod repair;
pub mod session;
pub mod settle;
pub mod tried;
pub mod walk;
