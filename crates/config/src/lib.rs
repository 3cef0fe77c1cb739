//! The host file and the network configuration, each read into one checked type.
//!
//! 1. [`host`] reads the host file. [`settings`] has what it says, or what keys of `ipam` may say without one.
//! 2. [`network`] reads `ipam`. Users already write it in three forms, which differ in their keys: those of
//!    whereabouts, of host-local and of static.
//! 3. [`command`] puts together the input of each verb.
//! 4. [`nad`] finds metes in the configuration of a network, [`selection`] and [`workload`] the networks of pods, and
//!    [`validate`] the mistakes of networks.

pub mod allowed;
pub mod cni;
pub mod command;
pub mod etcd;
pub mod host;
mod hostlocal;
pub mod keys;
pub mod nad;
pub mod network;
pub mod pools;
mod requests;
pub mod resolv;
mod results;
mod sections;
pub mod selection;
pub mod settings;
mod statics;
pub mod validate;
mod whereabouts;
pub mod workload;

pub use command::StoreCommand;
pub use network::{Config, Static};
pub use settings::{HostFile, IpamSettings, Settings, Source};
