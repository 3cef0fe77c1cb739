//! metes on a model of etcd that fails as a test wants, one step after the other.
//!
//! A **world** ([`world`]) is decided by its seed: some nodes, pods on them, tiny pools of addresses, and what may go
//! wrong. In it run, as processes that are interleaved request by request, the very functions that the programs run:
//! `add`, `del`, `gc`, `check`, the spool, the reconciler's pass, repair, accept and release. They find a store behind
//! the interface of the real one ([`metes::store::kv::Kv`]) and a cluster behind that of Kubernetes
//! ([`metes_reconciler::api::Api`]). The clock is tokio's, stands still, and goes on only when the world lets it.
//! Nothing else happens in a world: one seed, one run.
//!
//! After every revision of the store it is judged: by what must be true of the store, by what callers were told, and by
//! what no transaction may do. At the end of a world nothing fails any more, everything finishes, and what is left over
//! must go.
//!
//! - [`store`]: the model of etcd, proven against a real etcd by `tests/differential.rs`.
//! - [`world`]: a world; read its `mod.rs` first.
//! - [`mutant`]: one guard of a transaction left out, which the worlds must notice.
//! - [`campaign`]: many worlds.

pub mod campaign;
mod chance;
pub mod mutant;
pub mod store;
pub mod world;
