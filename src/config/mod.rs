//! The network configuration and the host file, each folded into one checked type.
//!
//! Three forms of `ipam` that users already write are told apart by their keys
//! ([`network`]): those of whereabouts, of host-local and
//! of static. What may be asked of etcd, and by whom, comes from the host
//! file ([`host`]) and is folded into [`settings`].

pub mod command;
pub mod etcd;
pub mod host;
mod hostlocal;
pub mod keys;
pub mod network;
mod requests;
pub mod resolv;
mod results;
mod sections;
pub mod settings;
mod statics;
mod whereabouts;

pub use command::StoreCommand;
pub use host::HostFile;
pub use network::{Config, Static};
pub use settings::{IpamSettings, Settings};
