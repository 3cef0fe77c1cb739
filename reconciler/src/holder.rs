//! What the verdict needs to know of an owner that holds addresses.

use std::rc::Rc;

use metes::pool::names::{ClusterName, ContainerKind};
use metes::pool::record::{Owner, OwnerKind, Pod};

/// An owner with its record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The owner.
    pub owner: Owner,
    /// The mod revision of its record. A free compares it.
    pub revision: i64,
    /// The content of its record; none if it does not decode.
    pub record: Option<OwnerFacts>,
}

impl Holder {
    /// Whether it belongs to a ResourceClaim; see [`ContainerKind::Claim`].
    #[must_use]
    pub fn is_of_claim(&self) -> bool {
        let names_a_pod = |record: &OwnerFacts| record.pod.uid.is_none() && !record.pod.is_unknown();
        match self.owner.kind() {
            OwnerKind::Container(ContainerKind::Claim) => self.record.as_ref().is_some_and(names_a_pod),
            OwnerKind::Container(
                ContainerKind::Runtime | ContainerKind::Adopted | ContainerKind::Imported,
            )
            | OwnerKind::Aside(..)
            | OwnerKind::Unknown => false,
        }
    }
}

/// What the verdict needs of an owner record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerFacts {
    /// Which cluster's pods decide about it.
    pub stamp: Stamp,
    /// Its pod, if it is known.
    pub pod: Pod,
    /// The boot that it was reserved in; none in adopted records.
    pub boot: Option<Rc<str>>,
    /// Whether the pod index names another owner in every network in which it holds an address.
    pub replaced: bool,
}

/// Which cluster's pods can decide about a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stamp {
    /// This cluster's.
    Ours,
    /// Another's.
    Other,
    /// Nobody knows.
    None,
}

impl Stamp {
    /// What the cluster's name on a record means in the cluster `ours`.
    #[must_use]
    pub fn of(stamped: Option<&ClusterName>, ours: &ClusterName) -> Self {
        match stamped {
            None => Stamp::None,
            Some(stamped) if stamped == ours => Stamp::Ours,
            Some(_) => Stamp::Other,
        }
    }
}
