//! Decides whether an owner's pod is gone. Pure: it uses only what was read.
//!
//! Two questions are asked about an owner. Is there anybody who may use its addresses? If not, has there been nobody
//! for long enough? In doubt the owner keeps what it has.

use std::time::Duration;

use metes_core::pool::{OwnerKind, record};

use crate::api::Phase;
use crate::holder::{HoldFacts, Holder, OwnerFacts, Stamp};
use crate::world::{Nodes, Pods};

/// The longest name that Kubernetes gives to a pod or a namespace.
const NAME_MAX: usize = 253;

/// The fate of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verdict {
    /// It keeps what it has.
    Keep(Keep),
    /// All that it has is freed.
    Free(Free),
}

metes_core::named_enum! {
    /// Why an owner keeps what it has.
    pub enum Keep {
        /// Its pod exists and has not finished.
        PodExists = "pod-exists",
        /// Its ResourceClaim exists.
        ClaimExists = "claim-exists",
        /// It belongs to a ResourceClaim, and nobody can say whether the claim exists.
        ClaimUnknown = "claim-unknown",
        /// Its node exists and is not Ready: containers may run there without anybody knowing.
        NodeNotReady = "node-not-ready",
        /// It is an orphan, but Kubernetes has never had its node: it may belong to another cluster with the same name.
        /// It has not been seen as an orphan for long enough to decide.
        NodeUnknown = "node-unknown",
        /// It is an orphan, but has not been seen as one for long enough.
        WithinGrace = "within-grace",
        /// It belongs to no pod that is known (cnitool, podman).
        Unlabelled = "unlabelled",
        /// It is no container: an operator has set its address aside, or keeps it for a pod's name forever, or this
        /// program does not know its kind.
        SetAside = "set-aside",
        /// It is a hold for a pod's name, and a container uses it.
        InUse = "in-use",
        /// It is a hold for a pod's name, and there is a pod of that name.
        SubjectExists = "subject-exists",
        /// No pod has its UID, and the API server has not given that: it may be of a static pod without a mirror, which
        /// the API never shows. Its node works and has not been started again since.
        StaticPod = "static-pod",
        /// It has a pod's UID but no name to ask the API by, or a name without its namespace.
        PodUnnamed = "pod-unnamed",
        /// Its record has another cluster's name.
        OtherCluster = "other-cluster",
        /// Its record has no cluster's name: no cluster's pods can decide about it.
        NoCluster = "no-cluster",
        /// Its record does not decode.
        Undecodable = "undecodable",
        /// Running pods use addresses of a network of its own that the store lacks. Nothing is freed there.
        NetworkDoubtful = "network-doubtful",
        /// Something about it changed during the pass. The next pass looks again.
        Changed = "changed",
    }
}

metes_core::named_enum! {
    /// Why an owner is an orphan. The sightings in etcd use these names too.
    pub enum Free {
        /// Its pod does not exist.
        PodGone = "pod-gone",
        /// Its pod has succeeded or failed.
        PodFinished = "pod-finished",
        /// Its ResourceClaim does not exist.
        ClaimGone = "claim-gone",
        /// Its node was started again since, and a newer sandbox of its pod has addresses of its own.
        SandboxReplaced = "sandbox-replaced",
        /// It belongs to no known pod, and the options say to free such owners after a time.
        Unlabelled = "unlabelled",
        /// It is a hold for a pod's name, no container uses it, and there is no pod of that name.
        Unused = "unused",
    }
}

/// For how long an orphan of each kind must have been seen as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Graces {
    /// Its pod or claim is gone, or its pod has a newer sandbox.
    pub gone: Duration,
    /// As `gone`, if its node works and the node's runtime must still call DEL; never less than `gone`.
    pub ready: Duration,
    /// Its pod or claim is missing, and Kubernetes has never had its node; never less than for a known node.
    pub unknown_node: Duration,
    /// Its pod has finished.
    pub finished: Duration,
    /// It belongs to no known pod; none if such owners are never freed.
    pub unlabelled: Option<Duration>,
    /// A machine's own key, if Kubernetes does not have its node and it holds nothing.
    pub machine: Duration,
}

impl Graces {
    /// No graces; an owner that belongs to no pod is never freed.
    pub const NONE: Graces = Graces {
        gone: Duration::ZERO,
        ready: Duration::ZERO,
        unknown_node: Duration::ZERO,
        finished: Duration::ZERO,
        unlabelled: None,
        machine: Duration::ZERO,
    };

    /// The longest grace.
    pub(crate) fn longest(&self) -> Duration {
        let Graces { gone, ready, unknown_node, finished, unlabelled, machine: _ } = *self;
        gone.max(ready).max(unknown_node).max(finished).max(unlabelled.unwrap_or_default())
    }
}

/// An owner that nobody can be using.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Orphan {
    /// Why it is an orphan.
    pub(crate) reason: Free,
    /// For how long it must have been seen as an orphan.
    pub(crate) grace: Duration,
    /// Why it keeps what it has until then.
    pub(crate) meanwhile: Keep,
}

/// Judges an owner by the result of [`orphaned`]. `seen_for` is how long it has been seen as an orphan for that reason.
#[must_use]
pub fn judge(orphaned: Result<Orphan, Keep>, seen_for: Duration) -> Verdict {
    match orphaned {
        Err(keep) => Verdict::Keep(keep),
        Ok(orphan) if seen_for < orphan.grace => Verdict::Keep(orphan.meanwhile),
        Ok(orphan) => Verdict::Free(orphan.reason),
    }
}

/// Why nobody can be using what an owner holds.
///
/// # Errors
/// Why somebody may be using it.
pub fn orphaned(holder: &Holder, pods: &Pods, nodes: &Nodes, graces: &Graces) -> Result<Orphan, Keep> {
    let record = holder.record.as_ref().ok_or(Keep::Undecodable)?;
    match holder.owner.kind() {
        OwnerKind::Container(_) => {}
        OwnerKind::Subject(_) => return unused(record, pods),
        OwnerKind::Aside(..) | OwnerKind::Unknown => return Err(Keep::SetAside),
    }
    must_be_ours(record)?;
    let node = holder.owner.node.as_str();
    let owes_del = nodes.owes_del(node, record.boot.as_deref());
    let reason = if record.pod.is_unknown() {
        Free::Unlabelled
    } else if holder.is_of_claim() {
        claim_reason(holder, record, pods)?
    } else {
        pod_reason(record, pods, (nodes.has_lost(node, record.boot.as_deref()), owes_del))?
    };
    let usual = match reason {
        // No container is one.
        Free::Unused => return Err(Keep::SetAside),
        Free::Unlabelled => graces.unlabelled.ok_or(Keep::Unlabelled)?,
        Free::PodFinished => graces.finished,
        Free::PodGone | Free::ClaimGone | Free::SandboxReplaced => {
            if owes_del {
                graces.ready.max(graces.gone)
            } else {
                graces.gone
            }
        }
    };
    let is_this_clusters = match reason {
        Free::Unlabelled | Free::Unused => true,
        // The cluster has a pod with exactly this UID, wherever it ran.
        Free::PodFinished => record.pod.uid.is_some() || nodes.has_known(node),
        Free::PodGone | Free::ClaimGone | Free::SandboxReplaced => nodes.has_known(node),
    };
    let (grace, meanwhile) = if !is_this_clusters && graces.unknown_node > usual {
        (graces.unknown_node, Keep::NodeUnknown)
    } else {
        (usual, Keep::WithinGrace)
    };
    if nodes.is_cut_off(node) { Err(Keep::NodeNotReady) } else { Ok(Orphan { reason, grace, meanwhile }) }
}

fn must_be_ours(record: &OwnerFacts) -> Result<(), Keep> {
    match record.stamp {
        Stamp::Ours => Ok(()),
        Stamp::Other => Err(Keep::OtherCluster),
        Stamp::None => Err(Keep::NoCluster),
    }
}

/// Why nobody uses a hold for a pod's name. A seat alone keeps it, whatever Kubernetes says of the pod. A pod of that
/// name, whichever, may be about to take one.
fn unused(record: &OwnerFacts, pods: &Pods) -> Result<Orphan, Keep> {
    must_be_ours(record)?;
    let HoldFacts { seconds, is_used } = record.hold.ok_or(Keep::SetAside)?;
    if is_used {
        return Err(Keep::InUse);
    }
    if pods.phase(&record.pod).is_some() {
        return Err(Keep::SubjectExists);
    }
    let seconds = seconds.ok_or(Keep::SetAside)?;
    match is_named(&record.pod) {
        true => {
            let grace = Duration::from_secs(seconds);
            Ok(Orphan { reason: Free::Unused, grace, meanwhile: Keep::WithinGrace })
        }
        false => Err(Keep::PodUnnamed),
    }
}

/// The pod's name decides nothing here: a claim may exist longer than the pod that the record names, and other pods may
/// use it.
fn claim_reason(holder: &Holder, record: &OwnerFacts, pods: &Pods) -> Result<Free, Keep> {
    match pods.has_claim(holder.owner.container_id.as_str()) {
        None => Err(Keep::ClaimUnknown),
        Some(true) => Err(Keep::ClaimExists),
        Some(false) if !is_named(&record.pod) => Err(Keep::PodUnnamed),
        Some(false) => Ok(Free::ClaimGone),
    }
}

fn pod_reason(
    record: &OwnerFacts,
    pods: &Pods,
    (has_lost_its_boot, owes_del): (bool, bool),
) -> Result<Free, Keep> {
    let may_be_static = record.pod.uid.as_ref().is_some_and(|uid| !uid.is_of_api());
    match pods.phase(&record.pod) {
        Some(Phase::Active) if record.replaced && has_lost_its_boot => Ok(Free::SandboxReplaced),
        Some(Phase::Active) => Err(Keep::PodExists),
        _ if !is_named(&record.pod) => Err(Keep::PodUnnamed),
        Some(Phase::Finished) => Ok(Free::PodFinished),
        None if may_be_static && owes_del => Err(Keep::StaticPod),
        None => Ok(Free::PodGone),
    }
}

/// True if the API can be asked for a record's pod: both names are there, and Kubernetes could have given them. They
/// come from any caller of the plugin, and must not lead to another path of the API.
pub(crate) fn is_named(pod: &record::Pod) -> bool {
    let is_plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, b'-' | b'.');
    let is_name = |name: &str| {
        (1..=NAME_MAX).contains(&name.len())
            && name.bytes().all(is_plain)
            && name.bytes().next().is_some_and(|c| c != b'.')
    };
    is_name(&pod.namespace) && is_name(&pod.name)
}

#[cfg(test)]
mod tests;
