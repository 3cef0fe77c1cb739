//! metes: a cluster-wide CNI IPAM plugin coordinated through etcd.
//!
//! Read the modules in this order:
//!
//! - [`cni`]: what a runtime says (environment, stdin) and what it hears (result, error).
//! - [`config`]: the network configuration and the host file, folded into one checked type.
//! - [`pool`]: addresses, pages, ranges, the choice of a free address, the stored records.
//! - [`store`]: keys, transactions as values, and the etcd that carries them out.
//! - [`local`]: what a run knows and keeps on its own node.
//! - [`plugin`]: one run of the plugin, from stdin to stdout.
//! - [`commands`]: the verbs of CNI; `commands::add` reads like the section ADD of the design.
//! - [`audit`]: proves the invariants of a whole tree, and repairs what may be repaired.
//! - [`cli`]: the verbs for people.
//!
//! `cni`, `config`, `pool` and the key layout are pure: no I/O, no clock, no logging in them.

pub mod audit;
pub mod cli;
pub mod cni;
pub mod commands;
pub mod config;
#[cfg(feature = "failpoints")]
pub mod failpoints;
pub mod limits;
pub mod local;
pub mod named;
pub mod plugin;
pub mod pool;
pub mod random;
pub mod store;
