//! metes: a cluster-wide CNI IPAM plugin coordinated through etcd.
//!
//! - [`plugin`]: one run of the plugin, from stdin to stdout.
//! - [`commands`]: the verbs of CNI.

pub mod commands;
pub mod plugin;
