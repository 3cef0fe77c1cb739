//! The world that a test sets up in a [`KubeApi`]: namespaces, nodes, pods and the kinds of other projects.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::kube::KubeApi;
use super::process::unique;
use super::wait::{in_parallel, wait_for};

const CRD_MAX: Duration = Duration::from_secs(30);
const CREATE_WORKERS: usize = 8;
/// Keeps an object that is being deleted.
const FINALIZER: &str = "metes.test/kept";
/// The annotation in which multus reports the interfaces of a pod.
const NETWORK_STATUS: &str = "k8s.v1.cni.cncf.io/network-status";

impl KubeApi {
    /// Creates it where it is missing.
    pub fn namespace(&self, name: &str) {
        self.create_missing("/api/v1/namespaces", &json!({"metadata": {"name": name}}));
    }

    /// A namespace that no other test has; its name.
    pub fn new_namespace(&self) -> String {
        let name = unique("ns");
        self.namespace(&name);
        name
    }

    /// The UID that identifies a cluster.
    pub fn kube_system_uid(&self) -> String {
        uid(&self.get("/api/v1/namespaces/kube-system"))
    }

    /// A pod on node "n1", Pending and without annotations, once [`PodBuilder::create`] is called.
    pub fn pod(&self, namespace: &str, name: &str) -> PodBuilder {
        let object = json!({
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "none"}]},
        });
        PodBuilder { api: self.clone(), object, status: Value::Null }
    }

    /// Many at once; their handles stand in the same order.
    pub fn create_pods(&self, pods: impl IntoIterator<Item = PodBuilder>) -> Vec<Pod> {
        in_parallel(CREATE_WORKERS, pods, PodBuilder::create)
    }

    /// A node, which is created where it is missing: with no status at all, so neither Ready nor not.
    pub fn node(&self, name: &str) -> KubeNode {
        self.create_missing("/api/v1/nodes", &json!({"metadata": {"name": name}}));
        KubeNode { api: self.clone(), path: format!("/api/v1/nodes/{name}") }
    }

    /// NetworkAttachmentDefinition, IPPool and OverlappingRangeIPReservation; they can be used when this returns.
    pub fn install_crds(&self) {
        for (group, version, kind, plural, spec) in crds() {
            let name = format!("{plural}.{group}");
            self.apply(&crd(&name, group, version, kind, plural, &spec));
            wait_for(&name, CRD_MAX, || self.serves(&name, &format!("/apis/{group}/{version}"), plural));
        }
    }

    /// Established, in discovery and answering: these do not come at the same moment.
    fn serves(&self, name: &str, group: &str, plural: &str) -> Result<(), String> {
        let crd = self.get(&format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"));
        let conditions = crd["status"]["conditions"].as_array().cloned().unwrap_or_default();
        if !conditions.iter().any(|one| one["type"] == "Established" && one["status"] == "True") {
            return Err(format!("its conditions are {conditions:?}"));
        }
        let resources =
            self.ask("GET", group, None).body["resources"].as_array().cloned().unwrap_or_default();
        if !resources.iter().any(|resource| resource["name"] == plural) {
            return Err(format!("{group} has {resources:?}"));
        }
        let answer = self.ask("GET", &format!("{group}/{plural}?limit=1"), None);
        if answer.status == 200 { Ok(()) } else { Err(answer.body.to_string()) }
    }
}

/// A pod that is being described.
#[derive(Clone, Debug)]
pub struct PodBuilder {
    api: KubeApi,
    object: Value,
    status: Value,
}

impl PodBuilder {
    /// The node that it is bound to; the node object need not exist.
    pub fn node(mut self, name: &str) -> Self {
        self.object["spec"]["nodeName"] = json!(name);
        self
    }

    /// Not scheduled yet.
    pub fn unbound(mut self) -> Self {
        self.object["spec"]["nodeName"] = Value::Null;
        self
    }

    pub fn annotation(mut self, name: &str, value: &str) -> Self {
        self.object["metadata"]["annotations"][name] = json!(value);
        self
    }

    pub fn label(mut self, name: &str, value: &str) -> Self {
        self.object["metadata"]["labels"][name] = json!(value);
        self
    }

    /// The image of a static pod: the kubelet's own uid for it is `hash`, which it puts in both annotations.
    pub fn mirror_of(self, hash: &str) -> Self {
        self.annotation("kubernetes.io/config.mirror", hash).annotation("kubernetes.io/config.hash", hash)
    }

    /// The annotation in which multus tells the interfaces of a pod: an array.
    pub fn network_status(self, interfaces: &Value) -> Self {
        self.annotation(NETWORK_STATUS, &interfaces.to_string())
    }

    /// Pending, Running, Succeeded, Failed or Unknown.
    pub fn phase(mut self, phase: &str) -> Self {
        self.status["phase"] = json!(phase);
        self
    }

    /// More keys of the object: `{"spec": {"hostNetwork": true}}`.
    pub fn with(mut self, keys: Value) -> Self {
        merge(&mut self.object, keys);
        self
    }

    #[track_caller]
    pub fn create(self) -> Pod {
        let namespace = self.object["metadata"]["namespace"].as_str().expect("a pod has a namespace");
        let name = self.object["metadata"]["name"].as_str().expect("a pod has a name").to_owned();
        let pods = format!("/api/v1/namespaces/{namespace}/pods");
        let created = self.api.create(&pods, &self.object);
        let namespace = namespace.to_owned();
        let path = format!("{pods}/{name}");
        let pod = Pod { api: self.api, path, namespace, name, uid: uid(&created) };
        if !self.status.is_null() {
            pod.status(self.status);
        }
        pod
    }
}

/// A pod that was created. Clones are the same pod: a closure may own one.
#[derive(Clone, Debug)]
pub struct Pod {
    api: KubeApi,
    path: String,
    namespace: String,
    name: String,
    uid: String,
}

impl Pod {
    pub fn uid(&self) -> &str {
        &self.uid
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// As the server has it now.
    pub fn get(&self) -> Value {
        self.api.get(&self.path)
    }

    pub fn exists(&self) -> bool {
        self.api.find(&self.path).is_some_and(|pod| uid(&pod) == self.uid)
    }

    /// Pending, Running, Succeeded, Failed or Unknown.
    #[track_caller]
    pub fn phase(&self, phase: &str) -> &Self {
        self.status(json!({"phase": phase}))
    }

    /// Changes keys of its status: `{"podIP": ..., "conditions": [...]}`.
    #[track_caller]
    pub fn status(&self, keys: Value) -> &Self {
        self.api.patch(&format!("{}/status", self.path), &json!({"status": keys}));
        self
    }

    #[track_caller]
    pub fn annotate(&self, name: &str, value: &str) -> &Self {
        self.api.patch(&self.path, &json!({"metadata": {"annotations": {name: value}}}));
        self
    }

    /// As [`PodBuilder::network_status`].
    #[track_caller]
    pub fn network_status(&self, interfaces: &Value) -> &Self {
        self.annotate(NETWORK_STATUS, &interfaces.to_string())
    }

    /// From here on it has a deletionTimestamp and does not go, in any phase.
    #[track_caller]
    pub fn terminate(&self) -> &Self {
        self.api.patch(&self.path, &json!({"metadata": {"finalizers": [FINALIZER]}}));
        self.api.ask("DELETE", &self.path, Some(&json!({}))).ok(&self.path);
        self
    }

    /// It is gone when this returns, also after [`Pod::terminate`].
    #[track_caller]
    pub fn delete(&self) {
        let kept = self.api.find(&self.path).is_some_and(|pod| !pod["metadata"]["finalizers"].is_null());
        if kept {
            self.api.patch(&self.path, &json!({"metadata": {"finalizers": null}}));
        }
        self.api.delete(&self.path);
    }

    /// Deletes it and creates another of the same name, as a StatefulSet does.
    #[track_caller]
    pub fn replace(&self) -> Self {
        let node = self.get()["spec"]["nodeName"].clone();
        self.delete();
        self.api.pod(&self.namespace, &self.name).with(json!({"spec": {"nodeName": node}})).create()
    }
}

/// A node object. Each call changes it at once.
#[derive(Clone, Debug)]
pub struct KubeNode {
    api: KubeApi,
    path: String,
}

impl KubeNode {
    /// Since now.
    #[track_caller]
    pub fn ready(&self, ready: bool) -> &Self {
        self.condition(if ready { "True" } else { "False" }, Duration::ZERO)
    }

    /// Ready is Unknown, as the node controller writes for a node that it has not heard of for that long.
    #[track_caller]
    pub fn unreachable_for(&self, time: Duration) -> &Self {
        self.condition("Unknown", time)
    }

    /// Ready has had this status, "True", "False" or "Unknown", for that long.
    #[track_caller]
    pub fn condition(&self, status: &str, time: Duration) -> &Self {
        let since = humantime::format_rfc3339_seconds(SystemTime::now() - time).to_string();
        self.status(json!({"conditions": [{
            "type": "Ready", "status": status, "reason": "Test", "message": "",
            "lastHeartbeatTime": since, "lastTransitionTime": since,
        }]}))
    }

    /// As an administrator says that its machine is off.
    #[track_caller]
    pub fn out_of_service(&self, off: bool) -> &Self {
        let taint = json!({"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"});
        let taints = if off { json!([taint]) } else { json!([]) };
        self.api.patch(&self.path, &json!({"spec": {"taints": taints}}));
        self
    }

    #[track_caller]
    pub fn boot_id(&self, id: &str) -> &Self {
        self.status(json!({"nodeInfo": {"bootID": id}}))
    }

    /// Changes keys of its status.
    #[track_caller]
    pub fn status(&self, keys: Value) -> &Self {
        self.api.patch(&format!("{}/status", self.path), &json!({"status": keys}));
        self
    }

    pub fn get(&self) -> Value {
        self.api.get(&self.path)
    }

    pub fn uid(&self) -> String {
        uid(&self.get())
    }

    #[track_caller]
    pub fn delete(&self) {
        self.api.delete(&self.path);
    }
}

fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().expect("an object of the server has a uid").to_owned()
}

fn merge(into: &mut Value, keys: Value) {
    match (into, keys) {
        (Value::Object(into), Value::Object(keys)) => {
            for (key, value) in keys {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, value) => *into = value,
    }
}

type Crd = (&'static str, &'static str, &'static str, &'static str, Value);

/// Group, version, kind, plural, and the fields of `spec` that metes reads.
fn crds() -> [Crd; 3] {
    let text = json!({"type": "string"});
    let allocation = json!({"type": "object", "properties": {"id": text, "podref": text, "ifname": text}});
    let whereabouts = "whereabouts.cni.cncf.io";
    [
        (
            "k8s.cni.cncf.io",
            "v1",
            "NetworkAttachmentDefinition",
            "network-attachment-definitions",
            json!({"config": text}),
        ),
        (
            whereabouts,
            "v1alpha1",
            "IPPool",
            "ippools",
            json!({"range": text, "allocations": {"type": "object", "additionalProperties": allocation}}),
        ),
        (
            whereabouts,
            "v1alpha1",
            "OverlappingRangeIPReservation",
            "overlappingrangeipreservations",
            json!({"containerid": text, "podref": text, "ifname": text}),
        ),
    ]
}

fn crd(name: &str, group: &str, version: &str, kind: &str, plural: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{
                "name": version,
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {"spec": {"type": "object", "properties": spec}},
                }},
            }],
        },
    })
}
