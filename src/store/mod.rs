//! The store: keys, transactions as values, and the etcd that carries them out.
//!
//! - [`keys`], [`txn`], [`snapshot`], [`plan`]: pure; what is asked, and what was found.
//! - [`allot`]: what an ADD does next, given what it has read; pure.
//! - [`kv`]: what a store is; [`etcd`]: the real one; [`session`]: a store, its keys and a deadline.
//! - [`walk`]: reads all keys of a prefix at one revision.
//! - [`queue`]: a run's lease and its ticket among others.
//! - [`free`]: giving back all that an owner holds.
//! - [`memory`]: a store for unit tests.

pub mod allot;
pub mod etcd;
#[cfg(feature = "failpoints")]
pub mod failing;
pub mod free;
pub mod keys;
pub mod kv;
pub mod memory;
pub mod plan;
pub mod queue;
pub mod session;
pub mod snapshot;
pub mod txn;
pub mod walk;

/// The store that programs use.
#[cfg(not(feature = "failpoints"))]
pub type Store = etcd::Etcd;
/// The store that programs use.
#[cfg(feature = "failpoints")]
pub type Store = failing::Failing<etcd::Etcd>;

/// Prepares the store; nothing is sent before the first request.
#[must_use]
pub fn open(access: etcd::Access) -> Store {
    let etcd = etcd::Etcd::new(access);
    #[cfg(feature = "failpoints")]
    let etcd = failing::Failing(etcd);
    etcd
}
