//! What the reconciler asks of the Kubernetes API, and the ways it fails.
//!
//! The interface is narrow, so that a model can stand in where a real cluster cannot be made to do
//! what a test wants.

use std::future::Future;

/// A cluster that answers like Kubernetes.
pub trait Api {
    /// The UID of the namespace kube-system: the identity of the cluster.
    fn cluster_uid(&self) -> impl Future<Output = Result<String, ApiError>>;

    /// Shows pods to `see`, all of them as of one moment that lies after the call.
    fn pods(&self, which: PodFilter, see: &mut dyn FnMut(Pod)) -> impl Future<Output = Result<(), ApiError>>;

    /// Shows every node to `see`, all as of one moment that lies after the call.
    fn nodes(&self, see: &mut dyn FnMut(Node)) -> impl Future<Output = Result<(), ApiError>>;

    /// Shows the UID of each ResourceClaim to `see`, in all namespaces or in one, all as of one moment that lies after
    /// the call.
    fn claims(
        &self,
        namespace: Option<&str>,
        see: &mut dyn FnMut(&str),
    ) -> impl Future<Output = Result<ClaimList, ApiError>>;

    /// The pod of this name as it is now, and its phase; none if there is none.
    fn pod(
        &self,
        namespace: &str,
        name: &str,
    ) -> impl Future<Output = Result<Option<(Pod, Phase)>, ApiError>>;
}

/// Which pods to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodFilter {
    /// Every pod.
    All,
    /// Those that will never run again.
    Finished,
}

/// Whether ResourceClaims can be spoken of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimList {
    /// All of them were shown.
    Shown,
    /// The API has none, or does not let this program see them.
    Withheld,
}

/// Whether a pod may have containers that run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Pending, Running, Unknown, or one that this program does not know.
    Active,
    /// Succeeded or Failed.
    Finished,
}

impl Phase {
    /// What `status.phase` says.
    #[must_use]
    pub fn of(phase: &str) -> Self {
        if matches!(phase, "Succeeded" | "Failed") { Phase::Finished } else { Phase::Active }
    }
}

/// Which pod it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// For the mirror of a static pod, the UIDs that the kubelet knows the pod by.
    pub static_uids: Vec<String>,
}

/// What is known of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Whether its kubelet says that it works.
    pub ready: bool,
    /// Whether an administrator says that its machine is off, by the taint node.kubernetes.io/out-of-service.
    pub out_of_service: bool,
    /// The id of its present boot; empty if it never told.
    pub boot: String,
}

/// Why the Kubernetes API gave no answer that can be relied on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the Kubernetes API failed to {asked}: {why}")]
pub struct ApiError {
    /// What was asked, as in "list pods".
    pub asked: String,
    /// What came instead.
    pub why: String,
}
