//! Pods, with what multus wrote down about their interfaces.

use std::net::IpAddr;

use metes_config::selection::{Selection, full_name, selections};
use metes_core::pool::{InvalidName, record};
use serde::{Deserialize, Deserializer};

use crate::api::{ApiError, Phase, Pod};
use crate::kubernetes::{Detail, Kubernetes};
use crate::object::{Annotations, PodObject, PodStatus};

/// A pod that has not finished, and what is known about its networks.
#[derive(Debug, Clone)]
pub struct Running {
    /// The pod.
    pub pod: Pod,
    /// The node that it runs on; empty if it was never bound to one.
    pub(crate) node: String,
    /// True if its sandbox exists: its containers were started, or it has an address.
    pub(crate) is_up: bool,
    /// Its interfaces; none if nobody wrote them down.
    pub interfaces: Option<Result<Vec<Interface>, String>>,
    /// Its addresses in the cluster's own network; none if it uses the network of its node.
    pub(crate) own: Option<Vec<String>>,
    /// The UID that the kubelet gives to CNI.
    pub uid: String,
    /// The networks that it asked for in addition to the cluster's own, in their order.
    pub asked: Vec<Selection>,
    /// The network that it asked for instead of the cluster's own, as `namespace/name`.
    pub(crate) default_network: Option<String>,
    /// True if its kubelet reports that its sandbox is missing or is being made again.
    pub(crate) lacks_sandbox: bool,
}

/// One interface of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Interface {
    /// The network: `namespace/name`, or a name in the pod's own namespace. For the default network it is the name of
    /// its configuration.
    #[serde(default)]
    pub(crate) name: String,
    /// Its name in the pod.
    #[serde(default)]
    pub(crate) interface: String,
    /// Its addresses, as written.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub ips: Vec<String>,
    /// True if it connects the pod to the cluster's own network.
    #[serde(default)]
    pub(crate) default: bool,
}

fn null_is_empty<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// The namespace in which multus looks for a network that replaces the cluster's own.
const MULTUS: &str = "kube-system";
/// The name that the kubelet gives to the interface to the cluster's own network.
const DEFAULT_INTERFACE: &str = "eth0";

impl Interface {
    /// The interface to the cluster's own network.
    pub(crate) fn of_default_network(ips: Vec<String>) -> Self {
        Self { name: String::new(), interface: DEFAULT_INTERFACE.to_owned(), ips, default: true }
    }

    /// Its addresses.
    ///
    /// # Errors
    /// The text that is not an address.
    pub fn addresses(&self) -> Result<Vec<IpAddr>, String> {
        parse_addresses(&self.ips)
    }
}

/// Addresses as people write them, with or without a prefix length.
///
/// # Errors
/// The text that is not an address.
pub(crate) fn parse_addresses(ips: &[String]) -> Result<Vec<IpAddr>, String> {
    let parse = |text: &String| {
        let address = text.split('/').next().unwrap_or_default();
        address.parse().map_err(|_| text.clone())
    };
    ips.iter().map(parse).collect()
}

impl Running {
    /// Passes every pod of the cluster to `see`. For those that have not finished it also passes what is known about
    /// their networks.
    ///
    /// # Errors
    /// [`ApiError`]
    pub async fn list(
        api: &Kubernetes,
        see: &mut dyn FnMut(&Pod, Phase, Option<Running>),
    ) -> Result<(), ApiError> {
        let mut see = |running: Running, phase| match phase {
            Phase::Finished => see(&running.pod, phase, None),
            Phase::Active => see(&running.pod.clone(), phase, Some(running)),
        };
        Self::list_all(api, &mut see).await
    }

    /// Passes every pod of the cluster to `see`, finished pods too.
    pub(crate) async fn list_all(
        api: &Kubernetes,
        see: &mut dyn FnMut(Running, Phase),
    ) -> Result<(), ApiError> {
        let mut see = |object: PodObject| {
            let phase = Phase::of(&object.status.phase);
            see(object.into_running(), phase);
        };
        api.list("list pods", "/api/v1/pods", Detail::Whole, None, &mut see).await
    }

    /// True if an interface may be in the making, because nobody has written down the pod's interfaces yet.
    pub(crate) fn may_be_waiting(&self) -> bool {
        let is_attached = self.own.is_some() && !self.node.is_empty();
        is_attached && (self.interfaces.is_none() || self.lacks_sandbox)
    }

    /// The pod of this name as it is now; none if there is no such pod, or if it has finished.
    pub(crate) async fn get(api: &Kubernetes, namespace: &str, name: &str) -> Result<Option<Self>, ApiError> {
        let Some(object) = api.pod_object(namespace, name).await? else { return Ok(None) };
        let is_active = Phase::of(&object.status.phase) == Phase::Active;
        Ok(is_active.then(|| object.into_running()))
    }

    /// The interfaces that multus wrote down for this pod, with their names. Multus knows no name if the plugin speaks
    /// a version before 0.3.0. The name then follows from what the pod asked for, if only one name is possible.
    pub(crate) fn named(&self, interfaces: &[Interface]) -> Vec<Interface> {
        let told: Vec<Option<String>> = (0..interfaces.len()).map(|at| self.due(interfaces, at)).collect();
        // Networks that multus' own configuration adds to every pod come before those that this pod asked for.
        let is_as_due = |(one, due): (&Interface, &Option<String>)| {
            one.default || due.as_ref().is_some_and(|due| one.interface.is_empty() || one.interface == *due)
        };
        let is_regular = interfaces.iter().zip(&told).all(is_as_due);
        let name = |(one, due): (&Interface, Option<String>)| {
            let due = due.filter(|due| {
                one.interface.is_empty()
                    && (is_regular || one.default)
                    && interfaces.iter().all(|other| other.interface != *due)
            });
            Interface { interface: due.unwrap_or_else(|| one.interface.clone()), ..one.clone() }
        };
        interfaces.iter().zip(told).map(name).collect()
    }

    /// The name that the interface at this index must have, if it can be told.
    fn due(&self, interfaces: &[Interface], at: usize) -> Option<String> {
        if interfaces[at].default {
            return Some(DEFAULT_INTERFACE.to_owned());
        }
        let network = self.full_name(&interfaces[at].name);
        let is_it = |one: &&Interface| !one.default && self.full_name(&one.name) == network;
        let before = interfaces[..at].iter().filter(is_it).count();
        let asked: Vec<_> = self.asked.iter().enumerate().filter(|(_, one)| one.network == network).collect();
        if asked.len() != interfaces.iter().filter(is_it).count() {
            return None;
        }
        let (position, selection) = asked.get(before)?;
        Some(selection.interface.clone().unwrap_or_else(|| format!("net{}", position + 1)))
    }

    /// The pod as records name it: with the UID that the kubelet gives to CNI.
    ///
    /// # Errors
    /// [`InvalidName`] if it cannot be a UID.
    pub(crate) fn label(&self) -> Result<record::Pod, InvalidName> {
        let Pod { namespace, name, .. } = self.pod.clone();
        Ok(record::Pod { namespace, name, uid: Some(self.uid.parse()?) })
    }

    /// The full name of a network that this pod names.
    pub(crate) fn full_name(&self, network: &str) -> String {
        full_name(&self.pod.namespace, network)
    }
}

impl PodObject {
    fn into_running(mut self) -> Running {
        let network_status = self.metadata.annotations.network_status.take();
        let Annotations { networks, default_network, .. } = &self.metadata.annotations;
        let interfaces = network_status.as_deref().filter(|text| !text.trim().is_empty());
        let interfaces =
            interfaces.map(|text| serde_json::from_str(text).map_err(|e: serde_json::Error| e.to_string()));
        // Multus adds no interface to a pod that uses the network of its node.
        let is_attached = !self.spec.uses_host;
        let networks = networks.as_deref().filter(|_| is_attached).unwrap_or_default();
        let asked = selections(&self.metadata.namespace, networks);
        let lacks_sandbox = self.status.lacks_sandbox();
        let PodStatus { phase, ips, .. } = self.status;
        let own: Vec<String> = ips.into_iter().map(|one| one.ip).collect();
        let default_network = default_network.as_deref().filter(|_| is_attached).unwrap_or_default();
        let default_network = selections(MULTUS, default_network).into_iter().next();
        Running {
            interfaces,
            asked,
            default_network: default_network.map(|one| one.network),
            lacks_sandbox,
            is_up: !own.is_empty() || !matches!(phase.as_str(), "" | "Pending"),
            own: Some(own).filter(|_| is_attached),
            uid: self.metadata.kubelets_uid(),
            node: self.spec.node,
            pod: self.metadata.into_pod(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn running(annotations: serde_json::Value) -> Running {
        let object: PodObject = serde_json::from_value(json!({
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
            let asked = [("ns/a", None), ("other/b", Some("net7"))].map(|(network, interface)| Selection {
                network: network.to_owned(),
                interface: interface.map(str::to_owned),
            });
            assert_eq!(running(json!({key: text})).asked, asked, "{text}");
        }
        assert!(running(json!({})).asked.is_empty());
        let own = running(json!({"v1.multus-cni.io/default-network": "a"}));
        assert_eq!(own.default_network.as_deref(), Some("kube-system/a"));
    }

    #[test]
    fn what_uses_the_network_of_its_node_asks_for_none() {
        let object: PodObject = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u",
                "annotations": {"k8s.v1.cni.cncf.io/networks": "a"}},
            "spec": {"nodeName": "n1", "hostNetwork": true},
        }))
        .expect("a pod");
        assert!(object.into_running().asked.is_empty());
    }

    #[test]
    fn an_interface_without_a_name_gets_it_where_only_one_can_be_meant() {
        let status = |name: &str, interface: &str| Interface {
            name: name.to_owned(),
            interface: interface.to_owned(),
            ips: Vec::new(),
            default: name == "cbr0",
        };
        for (asked, listed, names) in [
            ("a", &[("cbr0", "eth0"), ("ns/a", "")][..], &["eth0", "net1"][..]),
            ("a", &[("cbr0", ""), ("a", "")], &["eth0", "net1"]),
            ("b,a@data", &[("ns/b", ""), ("ns/a", "")], &["net1", "data"]),
            ("b,a,a", &[("ns/b", "net1"), ("ns/a", ""), ("ns/a", "")], &["net1", "net2", "net3"]),
            // One of the two is missing, and nobody knows which.
            ("a,a", &[("ns/a", "")], &[""]),
            // Another network comes before those that the pod asked for.
            ("a", &[("kube-system/all", "net1"), ("ns/a", "")], &["net1", ""]),
            ("b,a", &[("ns/b", "net3"), ("ns/a", "")], &["net3", ""]),
            ("a", &[("ns/b", "")], &[""]),
            ("b,a@net1", &[("ns/b", ""), ("ns/a", "net1")], &["", "net1"]),
            // An interface that has a name keeps it.
            ("a@data", &[("ns/a", "net1")], &["net1"]),
        ] {
            let pod = running(json!({"k8s.v1.cni.cncf.io/networks": asked}));
            let listed: Vec<Interface> = listed.iter().map(|(name, one)| status(name, one)).collect();
            let named: Vec<String> = pod.named(&listed).into_iter().map(|one| one.interface).collect();
            assert_eq!(named, names, "{asked} {listed:?}");
        }
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
        assert_eq!(running(hash).uid, "hash");
        assert_eq!(running(json!({})).uid, "u");
        assert_eq!(running(json!({"kubernetes.io/config.hash": "hash"})).uid, "u");
    }
}
