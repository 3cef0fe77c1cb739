//! `metes-reconciler`: frees the addresses that metes holds for pods that no longer exist.
//!
//! One pass, in its order:
//!
//! - [`census`]: the owners that hold addresses ([`holder`]), from etcd at one revision.
//! - [`api`]: the questions to Kubernetes. [`kubernetes`] asks a real cluster, and [`world`] keeps the answers.
//! - [`seen`]: the nodes that Kubernetes has had. They tell a node that is gone from one that never existed.
//! - [`verdict`]: orphan or not, and why; pure.
//! - [`sightings`]: for how long it has been an orphan. [`second_look`] asks for its pod once more.
//! - [`lacking`]: the addresses that running pods report ([`reported`]) and no record holds for them ([`held`]).
//! - [`pass`]: all of it together. [`report`] is the result.
//!
//! Around a pass: [`once`] makes one pass for a CronJob. [`serve`] makes passes again and again while it leads
//! ([`lead`]), and also answers over HTTP ([`listen`]). [`ended`] is the end of a pass: [`last_pass`] leaves it in
//! etcd, and [`events`] report it.
//!
//! `view` shows what is in etcd: [`metrics`] of the last pass, and in [`range_metrics`] the addresses of ranges.
//! [`exposition`] is the format of all metrics.
//!
//! Besides passes ([`command`]): after a restore, [`adopt`] reserves again the addresses of running pods. [`running`]
//! reads them, `resource_claims` reads those that DRA drivers gave, and [`nad`] finds their networks. [`import`]
//! reserves the addresses that whereabouts has handed out. Both reserve given addresses for an owner ([`assign`]).
//!
//! [`webhook`] judges networks when somebody writes them; it uses neither etcd nor a [`context`].
//!
//! All others use a [`context`], in which the cluster makes sure that its name is its own (`identity`), and
//! [`error`].

pub mod adopt;
pub mod api;
pub mod assign;
pub mod census;
pub mod cli;
pub mod command;
pub mod context;
pub mod ended;
pub mod error;
pub mod events;
pub mod held;
pub mod holder;
pub mod holds;
mod identity;
pub mod import;
pub mod kubernetes;
pub mod lacking;
pub mod last_pass;
pub mod lead;
mod machines;
pub mod metrics;
pub mod nad;
mod object;
pub mod once;
pub mod pass;
pub mod pools;
pub mod range_metrics;
pub mod report;
pub mod reported;
mod resource_claims;
pub mod running;
pub mod second_look;
pub mod seen;
pub mod serve;
pub mod sightings;
pub mod signals;
pub mod verdict;
mod view;
pub mod webhook;
pub mod world;

pub use metes_serve::{exposition, listen, shared};
