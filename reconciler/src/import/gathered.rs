//! The work to be done with each entry. Pure.

use std::collections::HashSet;
use std::net::IpAddr;

use metes_core::keys::Scope;
use metes_core::plan::ask::Sticky;
use metes_core::pool::{ContainerId, Held, Labels, Owner};

/// One interface of one container, and the addresses that it is to hold.
#[derive(Debug, Clone)]
pub struct Group {
    /// The owner.
    pub owner: Owner,
    /// The addresses, in the order of an ADD's result.
    pub held: Vec<Held>,
    pub(crate) labels: Labels,
    /// The hold that they stay with, if the definition keeps them for the pod's name.
    pub(crate) sticky: Option<Sticky>,
    /// The scope whose queue its assignment waits in.
    pub(crate) scope: Scope,
    /// True if its pod may run.
    pub(crate) is_running: bool,
}

/// An entry without a meaning: its pod is gone.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Stale {
    /// Where it was found.
    pub at: String,
    pub(crate) pod: String,
    /// The address, if it is known.
    pub(crate) address: Option<IpAddr>,
}

/// An entry of a pod that is gone and may still run on a node that nothing is heard from.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Kept {
    /// Where it was found.
    pub(crate) at: String,
    pub(crate) pod: String,
    /// The address, if it is known.
    pub(crate) address: Option<IpAddr>,
    /// The nodes that the pod may run on. If there are several, only a person can tell when it is gone.
    pub(crate) nodes: Vec<String>,
}

/// An entry that cannot be taken over.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Refused {
    /// Where it was found.
    pub at: String,
    /// The pod that it names.
    pub(crate) pod: String,
    /// The address, if it is known.
    pub(crate) address: Option<IpAddr>,
    pub(crate) why: String,
    /// True if its pod may run.
    #[serde(rename = "running")]
    pub(crate) is_running: bool,
}

/// The work to be done.
#[derive(Debug, Default)]
pub struct Gathered {
    /// The interfaces that will hold something, first those whose pods may run.
    pub groups: Vec<Group>,
    /// The entries whose pod is gone.
    pub stale: Vec<Stale>,
    /// The entries whose pod is gone and may still run.
    pub(crate) kept: Vec<Kept>,
    /// The entries that cannot be taken over.
    pub refused: Vec<Refused>,
    /// The number of all entries.
    pub entries: usize,
    /// All containers that the entries name.
    pub(crate) containers: HashSet<ContainerId>,
}
