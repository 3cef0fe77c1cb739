//! `metes-reconciler webhook`: judges networks when somebody writes them to the Kubernetes API.
//!
//! - [`review`]: the answer to a request for admission; pure.
//! - [`identity`]: the server's certificate and key, which may be renewed while it runs.
//! - [`server`]: HTTPS, with bounds for everything.
//!
//! It asks neither etcd nor Kubernetes.

pub mod identity;
pub mod review;
pub mod server;

pub use server::run;
