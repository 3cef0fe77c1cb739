//! `metes-reconciler`: frees the addresses that metes holds for pods that no longer exist.
//!
//! One pass, in the order in which it goes:
//!
//! - [`census`]: who holds addresses ([`holder`]), from etcd at one revision.
//! - [`api`]: what Kubernetes is asked; [`kubernetes`] asks a real cluster, [`world`] keeps the answers.
//! - [`seen`]: which nodes Kubernetes has had, so that one that is gone is told from one that never was.
//! - [`verdict`]: whether an owner is an orphan, and why; pure.
//! - [`sightings`]: for how long it has been seen as one; [`second_look`] asks for its pod once more.
//! - [`pass`]: all of it together; [`report`] is what came of it.
//!
//! Around it: [`once`] makes one pass for a CronJob. [`serve`] makes one after the other, as long as it is its turn
//! ([`lead`]), and answers over HTTP meanwhile ([`listen`]). [`ended`] says how a pass ended; [`metrics`] and [`events`]
//! tell of it.
//!
//! Besides passes ([`command`]): [`adopt`] writes down what running pods use after a restore; [`running`] says what that
//! is, and [`nad`] in which network. [`import`] writes down what whereabouts has handed out. Both put given addresses
//! under an owner ([`claim`]).
//!
//! What all of them have: a [`context`], in which the cluster makes sure that its name is its own ([`identity`]), and
//! [`error`].

pub mod adopt;
pub mod api;
pub mod census;
pub mod claim;
pub mod cli;
pub mod command;
pub mod context;
pub mod ended;
pub mod error;
pub mod events;
pub mod holder;
mod identity;
pub mod import;
pub mod kubernetes;
pub mod lead;
pub mod listen;
pub mod metrics;
pub mod nad;
mod object;
pub mod once;
pub mod pass;
pub mod report;
pub mod running;
pub mod second_look;
pub mod seen;
pub mod serve;
pub mod sightings;
pub mod verdict;
pub mod world;
