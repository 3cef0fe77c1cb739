//! The store: keys, transactions as values, and the etcd that carries them out.
//!
//! - [`keys`], [`txn`], [`snapshot`], [`plan`]: pure; what is asked, and what was found.
//! - [`allot`]: what an ADD does next, given what it has read; pure.
//! - [`kv`]: what a store is; [`etcd`]: the real one.
//! - [`queue`]: a run's lease and its place among others.
//! - [`free`]: giving back all that an owner holds; [`claim`]: putting given addresses under an owner.

pub mod allot;
pub mod claim;
pub mod etcd;
pub mod free;
pub mod keys;
pub mod kv;
#[cfg(test)]
pub(crate) mod memory;
pub mod plan;
pub mod queue;
pub mod snapshot;
pub mod txn;
