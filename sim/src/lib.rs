//! metes on a model of etcd that fails as a test wants, one step after the other.
//!
//! A seed decides a **world** ([`world`]): some nodes, pods on them, tiny pools of addresses, and what may go wrong.
//! The processes of a world run the very functions that the programs run: `add`, `del`, `gc`, `check`, the spool, the
//! reconciler's pass, repair, accept, release and hold. They are interleaved request by request. They talk to a model
//! of the store through the interface of the real one ([`metes_engine::kv::Kv`]), and to a model of the cluster through
//! that of Kubernetes ([`metes_reconciler::api::Api`]). The clock is tokio's paused clock, which the world alone moves.
//! So one seed always gives the same run.
//!
//! After every revision of the store the world is judged: by the invariants of the store, by the answers that callers
//! got, and by the laws of transactions. At the end of a world nothing fails any more, everything finishes, and nothing
//! may be left over.
//!
//! - [`store`]: the model of etcd, proven against a real etcd by `sim/tests/simulation/differential.rs`.
//! - [`world`]: a world; read its `mod.rs` first.
//! - [`mutant`]: leaves out one guard of a transaction, which the worlds must notice.
//! - [`campaign`]: many worlds.

pub mod campaign;
mod chance;
pub mod mutant;
pub mod store;
pub mod world;
