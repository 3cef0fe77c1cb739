//! Pods with what multus wrote about their interfaces.

use std::net::IpAddr;

use metes::pool::record;
use serde::{Deserialize, Deserializer};

use crate::api::{ApiError, Phase, Pod};
use crate::kubernetes::{Detail, Kubernetes};
use crate::object::{Annotations, Metadata};

/// A pod that has not finished, with what it said of its networks.
#[derive(Debug, Clone)]
pub struct Running {
    /// Which.
    pub pod: Pod,
    /// Where it runs; empty if it was never bound.
    pub node: String,
    /// Whether its containers were started.
    pub is_up: bool,
    /// The interfaces that it has; none if nobody wrote them down.
    pub interfaces: Option<Result<Vec<Interface>, String>>,
    /// Its addresses in the cluster's own network; none if it uses those of its node.
    pub own: Option<Vec<String>>,
    /// The UID that the kubelet gives to CNI.
    pub uid: String,
    /// The networks that it asked for, as in `namespace/name`.
    pub asked: Vec<String>,
}

/// One interface of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Interface {
    /// The network: `namespace/name`, or a name in the pod's own namespace, or, of the default
    /// network, the name of its configuration.
    #[serde(default)]
    pub name: String,
    /// Its name in the pod.
    #[serde(default)]
    pub interface: String,
    /// Its addresses, as written.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub ips: Vec<String>,
    /// Whether it is the pod's interface to the cluster's own network.
    #[serde(default)]
    pub default: bool,
}

fn null_is_empty<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// The interface to the cluster's own network, as the kubelet has it made.
const DEFAULT_INTERFACE: &str = "eth0";

impl Interface {
    /// The one to the cluster's own network.
    #[must_use]
    pub fn of_default_network(ips: Vec<String>) -> Self {
        Self { name: String::new(), interface: DEFAULT_INTERFACE.to_owned(), ips, default: true }
    }

    /// Its addresses.
    ///
    /// # Errors
    /// What is none.
    pub fn addresses(&self) -> Result<Vec<IpAddr>, String> {
        let parse = |text: &String| {
            let address = text.split('/').next().unwrap_or_default();
            address.parse().map_err(|_| text.clone())
        };
        self.ips.iter().map(parse).collect()
    }
}

impl Running {
    /// Shows every pod of the cluster to `see`, with what else is known of those that have not finished.
    ///
    /// # Errors
    /// [`ApiError`]
    pub async fn list(
        api: &Kubernetes,
        see: &mut dyn FnMut(&Pod, Phase, Option<Running>),
    ) -> Result<(), ApiError> {
        let mut see = |object: Object| {
            let phase = Phase::of(&object.status.phase);
            match phase {
                Phase::Finished => see(&object.metadata.into_pod(), phase, None),
                Phase::Active => {
                    let running = object.into_running();
                    see(&running.pod.clone(), phase, Some(running));
                }
            }
        };
        api.list("list pods", "/api/v1/pods", Detail::Whole, None, &mut see).await
    }

    /// How records call the pod: by the UID that the kubelet gives to CNI.
    #[must_use]
    pub fn label(&self) -> record::Pod {
        let Pod { namespace, name, .. } = &self.pod;
        record::Pod { namespace: namespace.clone(), name: name.clone(), uid: self.uid.clone() }
    }

    /// The full name of a network that this pod names.
    #[must_use]
    pub fn full_name(&self, network: &str) -> String {
        full_name(&self.pod.namespace, network)
    }
}

fn full_name(namespace: &str, network: &str) -> String {
    if network.contains('/') { network.to_owned() } else { format!("{namespace}/{network}") }
}

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
struct Spec {
    #[serde(rename = "nodeName", default)]
    node: String,
    #[serde(rename = "hostNetwork", default)]
    uses_host: bool,
}

#[derive(Default, Deserialize)]
struct Status {
    #[serde(default)]
    phase: String,
    #[serde(rename = "podIPs", default)]
    ips: Vec<PodIp>,
}

#[derive(Deserialize)]
struct PodIp {
    ip: String,
}

impl Object {
    fn into_running(self) -> Running {
        let Annotations { network_status, networks, .. } = &self.metadata.annotations;
        let interfaces = network_status.as_deref().filter(|text| !text.trim().is_empty());
        let interfaces =
            interfaces.map(|text| serde_json::from_str(text).map_err(|e: serde_json::Error| e.to_string()));
        let asked = asked(&self.metadata.namespace, networks.as_deref().unwrap_or_default());
        let own = self.status.ips.into_iter().map(|one| one.ip).collect();
        Running {
            interfaces,
            asked,
            own: Some(own).filter(|_| !self.spec.uses_host),
            uid: self.metadata.kubelets_uid(),
            node: self.spec.node,
            is_up: !matches!(self.status.phase.as_str(), "" | "Pending"),
            pod: self.metadata.into_pod(),
        }
    }
}

/// The networks of the annotation in which a pod asks for them: JSON, or names with commas between them.
fn asked(namespace: &str, text: &str) -> Vec<String> {
    #[derive(Deserialize)]
    struct Selection {
        name: String,
        namespace: Option<String>,
    }
    if let Ok(selections) = serde_json::from_str::<Vec<Selection>>(text) {
        let full = |s: Selection| full_name(s.namespace.as_deref().unwrap_or(namespace), &s.name);
        return selections.into_iter().map(full).collect();
    }
    let name = |part: &str| part.split('@').next().unwrap_or_default().trim().to_owned();
    let names = text.split(',').map(name).filter(|name| !name.is_empty());
    names.map(|name| full_name(namespace, &name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn running(annotations: serde_json::Value) -> Running {
        let object: Object = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u", "annotations": annotations},
            "spec": {"nodeName": "n1"},
            "status": {"phase": "Running"},
        }))
        .expect("a pod");
        object.into_running()
    }

    #[test]
    fn networks_are_asked_for_in_two_ways() {
        let key = "k8s.v1.cni.cncf.io/networks";
        for text in [
            "a, other/b@net7",
            r#"[{"name": "a"}, {"name": "b", "namespace": "other", "interface": "net7"}]"#,
        ] {
            assert_eq!(running(json!({key: text})).asked, ["ns/a", "other/b"], "{text}");
        }
        assert!(running(json!({})).asked.is_empty());
    }

    #[test]
    fn interfaces_are_read_as_multus_writes_them() {
        let key = "k8s.v1.cni.cncf.io/network-status";
        let text = r#"[{"name": "cbr0", "interface": "eth0", "ips": ["10.1.0.2"], "default": true, "dns": {}},
            {"name": "ns/a", "interface": "net1", "ips": ["10.0.0.9", "fd00::9/64"], "mac": "02:00:00:00:00:01"},
            {"name": "b", "interface": "net2", "ips": null}, {"name": "c", "ips": ["nonsense"]}]"#;
        let interfaces = running(json!({key: text})).interfaces.expect("written").expect("valid");
        assert!(interfaces[0].default && !interfaces[1].default);
        let addresses: Vec<String> =
            interfaces[1].addresses().expect("addresses").iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["10.0.0.9", "fd00::9"]);
        assert_eq!(interfaces[2].addresses(), Ok(Vec::new()));
        assert_eq!(interfaces[3].addresses(), Err("nonsense".to_owned()));
        assert!(running(json!({key: "no JSON"})).interfaces.expect("written").is_err());
        assert!(running(json!({})).interfaces.is_none());
    }

    #[test]
    fn a_static_pod_is_labelled_as_the_kubelet_knows_it() {
        let hash = json!({"kubernetes.io/config.mirror": "hash", "kubernetes.io/config.hash": "hash"});
        assert_eq!(running(hash).label().uid, "hash");
        assert_eq!(running(json!({})).label().uid, "u");
        assert_eq!(running(json!({"kubernetes.io/config.hash": "hash"})).label().uid, "u");
    }
}
