//! metes on a model of etcd that fails as a test wants, one step after the other.
//!
//! - [`store`]: the model, proven against a real etcd by `tests/differential.rs`.

pub mod store;
