//! The real store: connections to etcd, TLS, and the reasons why an endpoint does not serve this client.

pub mod cause;
pub mod certificate;
pub mod client;
mod connect;
pub mod handshake;
mod pace;
mod probe;
pub mod tls;

pub use client::{Access, Etcd, Tls};
#[cfg(feature = "failpoints")]
use metes_engine::failing::Failing;

/// The store that programs use.
#[cfg(not(feature = "failpoints"))]
pub type Store = Etcd;
/// The store that programs use.
#[cfg(feature = "failpoints")]
pub type Store = Failing<Etcd>;

/// Prepares the store; nothing is sent before the first request.
#[must_use]
pub fn open(access: Access) -> Store {
    let etcd = Etcd::new(access);
    #[cfg(feature = "failpoints")]
    let etcd = Failing(etcd);
    etcd
}
