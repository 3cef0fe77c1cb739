//! The store: keys, transactions as values, and the etcd that carries them out.
//!
//! - [`keys`], [`txn`], [`snapshot`]: what is asked, and what was found; pure.
//! - [`builder`]: transactions that change what is held, built from what was read; [`effects`]: what they do for
//! others; pure.
//! - [`change`]: what a change decides; [`allot`] (ADD, of an [`ask`]), [`free`] and [`hold`] are three; pure.
//! - [`drive`]: the one way in which a change is carried out, with [`first`], [`ticket`], [`fence`] and [`settle`];
//!   [`release`] drives frees.
//! - [`pools`]: what an ADD from pools asks for; [`pool_change`]: the operator's changes of pools; pure.
//! - [`meta`]: the one judge and the one writer of a prefix's meta. [`known`]: whether a store is the one that a node
//!   knows; pure.
//! - [`repair`]: clears stray bits for an ADD that finds its range full.
//! - [`kv`]: what a store is; [`etcd`]: the real one; [`session`]: what a run holds of it.
//! - [`cause`]: why an endpoint of etcd does not serve this client, in words; [`certificate`]: what a certificate says
//!   of itself; pure. [`handshake`]: the certificate that an endpoint shows.
//! - [`follow`]: all changes of a prefix, as they happen.
//! - [`walk`]: reads all keys of a prefix at one revision.
//! - [`memory`]: a store for unit tests.

pub mod allot;
pub mod ask;
pub mod batch;
pub mod builder;
pub mod cause;
pub mod certificate;
pub mod change;
pub mod cooling;
pub mod drive;
pub mod effects;
pub mod etcd;
#[cfg(feature = "failpoints")]
pub mod failing;
pub mod fence;
pub mod first;
pub mod follow;
pub mod free;
pub mod handshake;
pub mod hold;
pub mod keys;
pub mod known;
pub mod known_pool;
pub mod kv;
pub mod line;
pub mod memory;
pub mod meta;
pub mod obstacle;
mod pick;
pub mod policy;
pub mod pool_change;
pub mod pools;
pub mod prefix;
mod probe;
pub mod queue;
mod refused;
pub mod release;
pub mod repair;
pub mod request;
mod resolved;
pub mod session;
pub mod settle;
pub mod snapshot;
pub mod source;
pub mod ticket;
pub mod tls;
pub mod tried;
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
