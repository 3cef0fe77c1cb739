//! The reconciler's questions to the Kubernetes API, and the API's failures.
//!
//! The interface is narrow, so that a model can replace it in tests for which a real cluster is not enough.

use std::future::Future;

/// A cluster that answers as Kubernetes does.
pub trait Api {
    /// The UID of the namespace kube-system: the identity of the cluster.
    fn cluster_uid(&self) -> impl Future<Output = Result<String, ApiError>>;

    /// Passes each pod to `see`. The list is of one moment after the call.
    fn pods(&self, which: PodFilter, see: &mut dyn FnMut(Pod)) -> impl Future<Output = Result<(), ApiError>>;

    /// Passes each node to `see`. The list is of one moment after the call.
    fn nodes(&self, see: &mut dyn FnMut(Node)) -> impl Future<Output = Result<(), ApiError>>;

    /// Passes the namespace, the name and the configuration of each NetworkAttachmentDefinition to `see`.
    fn definitions(
        &self,
        see: &mut dyn FnMut(&str, &str, &str),
    ) -> impl Future<Output = Result<(), ApiError>>;

    /// Passes the UID of each ResourceClaim to `see`, in all namespaces or in one. The list is of one moment after the
    /// call.
    fn claims(
        &self,
        namespace: Option<&str>,
        see: &mut dyn FnMut(&str),
    ) -> impl Future<Output = Result<ClaimList, ApiError>>;

    /// The pod of this name as it is now, with its phase; none if there is no such pod.
    fn pod(
        &self,
        namespace: &str,
        name: &str,
    ) -> impl Future<Output = Result<Option<(Pod, Phase)>, ApiError>>;
}

/// The pods to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodFilter {
    /// Every pod.
    All,
    /// Only pods that will never run again.
    Finished,
}

/// The API's answer to a listing of ResourceClaims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimList {
    /// All of them were shown.
    Shown,
    /// The API has no ResourceClaims, or does not let this program see them.
    Withheld,
}

/// The phase of a pod, as far as it tells if the pod may have running containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Pending, Running, Unknown, or a phase that this program does not know.
    Active,
    /// Succeeded or Failed.
    Finished,
}

impl Phase {
    /// The phase that `status.phase` names.
    pub(crate) fn of(phase: &str) -> Self {
        if matches!(phase, "Succeeded" | "Failed") { Phase::Finished } else { Phase::Active }
    }
}

/// A pod's names, and its state for multus.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// For the mirror of a static pod, the UIDs that the kubelet knows the pod by.
    pub static_uids: Vec<String>,
    /// The interfaces that multus wrote down for it, as they stand there.
    pub network_status: Option<String>,
    /// True if its interfaces may change at any moment: it is being deleted, or its sandbox is missing.
    pub is_in_flux: bool,
}

impl Pod {
    /// As `namespace/name`.
    pub(crate) fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// A node, and the state that it reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// True if its kubelet reports that it works.
    pub ready: bool,
    /// True if an administrator declares, by the taint node.kubernetes.io/out-of-service, that its machine is off.
    pub out_of_service: bool,
    /// The id of its present boot; empty if it never reported one.
    pub boot: String,
}

/// Why the Kubernetes API gave no answer that can be relied on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Kubernetes: cannot {asked}: {why}")]
pub struct ApiError {
    /// The request, for example "list pods".
    pub asked: String,
    /// The event that came instead of an answer.
    pub why: String,
}

impl ApiError {
    /// True if the API has nothing at that path. For a listing: the API does not know the kind.
    pub(crate) fn is_not_found(&self) -> bool {
        self.why.starts_with("404 ")
    }

    /// True if the API does not let this program see it.
    pub(crate) fn is_forbidden(&self) -> bool {
        self.why.starts_with("403 ")
    }
}
