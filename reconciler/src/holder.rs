//! The owners that hold addresses, with the facts that the verdict needs.

use metes_core::pool::{ClusterName, ContainerKind, Owner, OwnerKind, Pod};

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
    /// True if it belongs to a ResourceClaim; see [`ContainerKind::Claim`].
    pub(crate) fn is_of_claim(&self) -> bool {
        let names_a_pod = |record: &OwnerFacts| record.pod.uid.is_none() && !record.pod.is_unknown();
        match self.owner.kind() {
            OwnerKind::Container(ContainerKind::Claim) => self.record.as_ref().is_some_and(names_a_pod),
            OwnerKind::Container(
                ContainerKind::Runtime | ContainerKind::Adopted | ContainerKind::Imported,
            )
            | OwnerKind::Aside(..)
            | OwnerKind::Subject(_)
            | OwnerKind::Unknown => false,
        }
    }
}

/// The facts of an owner record that the verdict needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerFacts {
    /// The cluster whose pods decide about it.
    pub stamp: Stamp,
    /// Its pod, if it is known.
    pub pod: Pod,
    /// The boot that it was reserved in; none in adopted records.
    pub boot: Option<String>,
    /// True if the pod index names another owner in every network in which it holds an address.
    pub replaced: bool,
    /// Its rules if it is a hold for a pod's name, which `pod` is then.
    pub hold: Option<HoldFacts>,
}

/// The rules of a hold for a pod's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HoldFacts {
    /// For how many seconds it stays after its last use; none: until a person ends it.
    pub seconds: Option<u64>,
    /// True if a container has a seat of it.
    pub is_used: bool,
}

/// The cluster whose pods can decide about a record.
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
    /// The meaning of the cluster's name on a record, in the cluster `ours`.
    pub(crate) fn of(stamped: Option<&ClusterName>, ours: &ClusterName) -> Self {
        match stamped {
            None => Stamp::None,
            Some(stamped) if stamped == ours => Stamp::Ours,
            Some(_) => Stamp::Other,
        }
    }
}
