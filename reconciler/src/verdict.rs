//! Whether an owner's pod is gone: pure, from what was read alone.
//!
//! Two questions are asked of an owner, the second only if the first says "orphan": is there anybody
//! who may use its addresses, and has it been seen without anybody for long enough? In
//! doubt it keeps what it has.

use std::fmt;
use std::time::Duration;

use metes::pool::record;

use crate::api::Phase;
use crate::holder::{Holder, Stamp};
use crate::world::{Nodes, Pods};

/// The longest name that Kubernetes gives a pod or a namespace.
const NAME_MAX: usize = 253;

/// What happens to an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verdict {
    /// It keeps what it has.
    Keep(Keep),
    /// All that it has is freed.
    Free(Free),
}

/// Why an owner keeps what it has. Reports, logs and metrics name these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Keep {
    /// Its pod exists and has not finished.
    PodExists,
    /// Its node exists and is not Ready: containers may run there that nobody knows of.
    NodeNotReady,
    /// It would be freed, but has not been seen as an orphan for long enough.
    WithinGrace,
    /// It belongs to no pod that is known (cnitool, podman).
    Unlabelled,
    /// It has a pod's UID but no name to ask the API by, or a name without its namespace.
    PodUnnamed,
    /// It is stamped with another cluster's name.
    OtherCluster,
    /// It is stamped with no cluster's name: no pods can speak for it.
    NoCluster,
    /// Its record does not decode.
    Undecodable,
    /// Something about it changed while the pass was at work: the next one looks again.
    Changed,
}

/// Why an owner is an orphan. Reports, logs, metrics and the memory in etcd name these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Free {
    /// Its pod does not exist.
    PodGone,
    /// Its pod has succeeded or failed.
    PodFinished,
    /// Its node was started anew since, and a newer sandbox of its pod holds addresses of its own.
    SandboxReplaced,
    /// It belongs to no pod that is known, and such are to be freed after a time.
    Unlabelled,
}

impl Keep {
    /// Every reason.
    pub const ALL: [Keep; 9] = [
        Keep::PodExists,
        Keep::NodeNotReady,
        Keep::WithinGrace,
        Keep::Unlabelled,
        Keep::PodUnnamed,
        Keep::OtherCluster,
        Keep::NoCluster,
        Keep::Undecodable,
        Keep::Changed,
    ];

    /// The reason, in words joined by hyphens.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Keep::PodExists => "pod-exists",
            Keep::NodeNotReady => "node-not-ready",
            Keep::WithinGrace => "within-grace",
            Keep::Unlabelled => "unlabelled",
            Keep::PodUnnamed => "pod-unnamed",
            Keep::OtherCluster => "other-cluster",
            Keep::NoCluster => "no-cluster",
            Keep::Undecodable => "undecodable",
            Keep::Changed => "changed",
        }
    }
}

impl Free {
    /// Every reason.
    pub const ALL: [Free; 4] = [Free::PodGone, Free::PodFinished, Free::SandboxReplaced, Free::Unlabelled];

    /// The reason, in words joined by hyphens.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Free::PodGone => "pod-gone",
            Free::PodFinished => "pod-finished",
            Free::SandboxReplaced => "sandbox-replaced",
            Free::Unlabelled => "unlabelled",
        }
    }
}

impl fmt::Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Free {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// For how long each kind of orphan must have been seen as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Graces {
    /// One whose pod is gone or has a newer sandbox.
    pub gone: Duration,
    /// One whose pod has finished.
    pub finished: Duration,
    /// One of no known pod; none: such are never freed.
    pub unlabelled: Option<Duration>,
}

impl Graces {
    /// The grace of an orphan.
    #[must_use]
    pub fn of(&self, reason: Free) -> Duration {
        match reason {
            Free::PodGone | Free::SandboxReplaced => self.gone,
            Free::PodFinished => self.finished,
            Free::Unlabelled => self.unlabelled.unwrap_or(Duration::MAX),
        }
    }

    /// The longest of them.
    #[must_use]
    pub fn longest(&self) -> Duration {
        self.gone.max(self.finished).max(self.unlabelled.unwrap_or_default())
    }
}

/// Judges an owner by what [`orphaned`] said of it; `seen_for` is how long it has been seen as that very orphan.
#[must_use]
pub fn judge(orphaned: Result<Free, Keep>, seen_for: Duration, graces: &Graces) -> Verdict {
    match orphaned {
        Err(keep) => Verdict::Keep(keep),
        Ok(reason) if seen_for < graces.of(reason) => Verdict::Keep(Keep::WithinGrace),
        Ok(reason) => Verdict::Free(reason),
    }
}

/// Why nobody can be using what an owner holds.
///
/// # Errors
/// Why somebody may.
pub fn orphaned(holder: &Holder, pods: &Pods, nodes: &Nodes, graces: &Graces) -> Result<Free, Keep> {
    let record = holder.record.as_ref().ok_or(Keep::Undecodable)?;
    match record.stamp {
        Stamp::Ours => {}
        Stamp::Other => return Err(Keep::OtherCluster),
        Stamp::None => return Err(Keep::NoCluster),
    }
    let node = &holder.owner.node;
    let reason = if record.pod.is_unknown() {
        graces.unlabelled.map(|_| Free::Unlabelled).ok_or(Keep::Unlabelled)?
    } else {
        match pods.phase(&record.pod) {
            Some(Phase::Active)
                if record.replaced && nodes.has_rebooted_since(node, record.boot.as_deref()) =>
            {
                Free::SandboxReplaced
            }
            Some(Phase::Active) => return Err(Keep::PodExists),
            _ if !is_named(&record.pod) => return Err(Keep::PodUnnamed),
            Some(Phase::Finished) => Free::PodFinished,
            None => Free::PodGone,
        }
    };
    if nodes.is_cut_off(node) { Err(Keep::NodeNotReady) } else { Ok(reason) }
}

/// Whether the API can be asked for a record's pod: both names are there, and such as Kubernetes gives.
/// They come from whoever ran the plugin, and must not lead anywhere else.
#[must_use]
pub fn is_named(pod: &record::Pod) -> bool {
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
