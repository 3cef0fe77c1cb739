//! The parts that are read of all objects of the API.

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::api::{ApiError, Pod};

/// The name of an object, and its annotations.
#[derive(Deserialize)]
pub(crate) struct Metadata {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) namespace: String,
    pub(crate) uid: String,
    /// Since when it is being deleted.
    #[serde(rename = "deletionTimestamp", default)]
    pub(crate) deletion: Option<IgnoredAny>,
    #[serde(default)]
    pub(crate) annotations: Annotations,
}

/// The annotations of a pod that are read.
#[derive(Default, Deserialize)]
pub(crate) struct Annotations {
    /// By this annotation and the next one the kubelet knows the static pod that a pod mirrors.
    #[serde(rename = "kubernetes.io/config.mirror")]
    pub(crate) mirror: Option<String>,
    #[serde(rename = "kubernetes.io/config.hash")]
    pub(crate) hash: Option<String>,
    /// The interfaces that multus gave it.
    #[serde(rename = "k8s.v1.cni.cncf.io/network-status")]
    pub(crate) network_status: Option<String>,
    /// The networks that it asked for.
    #[serde(rename = "k8s.v1.cni.cncf.io/networks")]
    pub(crate) networks: Option<String>,
    /// The network that it asked for instead of the cluster's own.
    #[serde(rename = "v1.multus-cni.io/default-network")]
    pub(crate) default_network: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct PodObject {
    pub(crate) metadata: Metadata,
    #[serde(default)]
    pub(crate) spec: PodSpec,
    #[serde(default)]
    pub(crate) status: PodStatus,
}

#[derive(Default, Deserialize)]
pub(crate) struct PodSpec {
    #[serde(rename = "nodeName", default)]
    pub(crate) node: String,
    #[serde(rename = "hostNetwork", default)]
    pub(crate) uses_host: bool,
}

#[derive(Default, Deserialize)]
pub(crate) struct PodStatus {
    #[serde(default)]
    pub(crate) phase: String,
    #[serde(rename = "podIPs", default)]
    pub(crate) ips: Vec<PodIp>,
    #[serde(default)]
    pub(crate) conditions: Vec<Condition>,
}

#[derive(Deserialize)]
pub(crate) struct PodIp {
    pub(crate) ip: String,
}

/// A condition of a pod or a node.
#[derive(Deserialize)]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) status: String,
}

impl Condition {
    pub(crate) fn says(&self, kind: &str, status: &str) -> bool {
        self.kind == kind && self.status == status
    }
}

impl PodStatus {
    /// True if the kubelet reports that the pod's sandbox is missing or is being made again.
    pub(crate) fn lacks_sandbox(&self) -> bool {
        self.conditions.iter().any(|one| one.says("PodReadyToStartContainers", "False"))
    }
}

impl Metadata {
    /// An answer about another object says nothing about this one.
    pub(crate) fn check(&self, asked: &str, namespace: &str, name: &str) -> Result<(), ApiError> {
        if self.namespace == namespace && self.name == name && !self.uid.is_empty() {
            return Ok(());
        }
        let why = format!("it answered with {}/{}", self.namespace, self.name);
        Err(ApiError { asked: asked.to_owned(), why })
    }

    /// The UID that the kubelet gives to CNI. It differs from the pod's own UID only for the mirror of a static pod.
    /// The second annotation alone proves nothing, because anybody can write it.
    pub(crate) fn kubelets_uid(&self) -> String {
        let Annotations { mirror, hash, .. } = &self.annotations;
        mirror.as_ref().map_or(&self.uid, |mirror| hash.as_ref().unwrap_or(mirror)).clone()
    }

    pub(crate) fn into_pod(self) -> Pod {
        let Annotations { mirror, hash, network_status, .. } = self.annotations;
        Pod {
            namespace: self.namespace,
            name: self.name,
            uid: self.uid,
            static_uids: mirror.into_iter().chain(hash).collect(),
            network_status,
            is_in_flux: self.deletion.is_some(),
        }
    }
}
