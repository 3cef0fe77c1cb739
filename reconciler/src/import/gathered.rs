//! What is to be done with each entry. Pure.

use std::collections::HashSet;
use std::net::IpAddr;

use metes::pool::names::ContainerId;
use metes::pool::record::{Held, Labels, Owner};
use metes::store::keys::Scope;

/// One interface of one container, and what it is to hold.
#[derive(Debug, Clone)]
pub struct Group {
    /// Who.
    pub owner: Owner,
    /// The addresses, in the order that an ADD would answer in.
    pub held: Vec<Held>,
    /// What is noted on its records.
    pub labels: Labels,
    /// The queue to stand in.
    pub scope: Scope,
    /// Whether its pod may run.
    pub is_running: bool,
}

/// An entry that stands for nothing any more: its pod is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stale {
    /// Where it stands.
    pub at: String,
    /// The pod.
    pub pod: String,
    /// The address, if it is known.
    pub address: Option<IpAddr>,
}

/// An entry whose pod is gone and may run on a node that is not heard of.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Kept {
    /// Where it stands.
    pub at: String,
    /// The pod.
    pub pod: String,
    /// The address, if it is known.
    pub address: Option<IpAddr>,
    /// The nodes that it may run on. With more than one nobody but a person can tell when it is gone.
    pub nodes: Vec<String>,
}

/// An entry that cannot be taken over.
#[derive(Debug, Clone)]
pub struct Refused {
    /// Where it stands.
    pub at: String,
    /// The pod that it names.
    pub pod: String,
    /// The address, if it is known.
    pub address: Option<IpAddr>,
    /// Why.
    pub why: String,
    /// Whether its pod may run.
    pub is_running: bool,
}

/// What is to be done.
#[derive(Debug, Default)]
pub struct Gathered {
    /// Those that are to hold something, those whose pod may run first.
    pub groups: Vec<Group>,
    /// Those whose pod is gone.
    pub stale: Vec<Stale>,
    /// Those whose pod is gone and may run all the same.
    pub kept: Vec<Kept>,
    /// Those that cannot be taken over.
    pub refused: Vec<Refused>,
    /// How many entries there are in all.
    pub entries: usize,
    /// All containers that entries name.
    pub containers: HashSet<ContainerId>,
}
