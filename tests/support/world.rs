//! A Kubernetes cluster and the addresses that metes holds for its pods.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};

use super::api_proxy::ApiProxy;
use super::cluster::{Cluster, Node};
use super::etcd::Etcd;
use super::kube::{KubeApi, Reachable};
use super::kube_objects::Pod;
use super::network;
use super::outcome::Outcome;
use super::reconcile::Reconciler;
use super::run::Run;

/// One test's share of an API server: a namespace and nodes of its own; and a store of its own.
#[derive(Debug)]
pub struct World {
    pub cluster: Cluster,
    pub api: KubeApi,
    pub namespace: String,
    /// The node of all runs that name no other one. Kubernetes does not know it.
    pub node: Node,
    next_uid: AtomicU32,
}

impl World {
    pub fn new() -> Self {
        Self::of(Cluster::new(), KubeApi::shared())
    }

    /// On a store of the test's own.
    pub fn on(etcd: &Etcd) -> Self {
        Self::of(Cluster::on(etcd), KubeApi::shared())
    }

    pub fn of(cluster: Cluster, api: &KubeApi) -> Self {
        let namespace = api.new_namespace();
        let node = cluster.node(&format!("n1-{namespace}"));
        Self { cluster, api: api.clone(), namespace, node, next_uid: AtomicU32::new(0) }
    }

    /// A name that no other test uses for a node: node objects belong to no namespace.
    pub fn node_name(&self, name: &str) -> String {
        format!("{name}-{}", self.namespace)
    }

    /// A range of 256 addresses.
    pub fn config() -> Value {
        network(json!({"range": "10.70.0.0/24"}))
    }

    /// An ADD for a pod, in a container of the pod's name.
    pub fn attach(&self, pod: &Pod) -> Run {
        self.attach_as(pod.name(), pod.name(), pod.uid())
    }

    /// An ADD for a pod of this namespace that need not exist.
    pub fn attach_as(&self, container: &str, name: &str, uid: &str) -> Run {
        self.node.add(container).config(&Self::config()).pod(&self.namespace, name, uid)
    }

    /// A pod that exists and holds an address, in a container of its name.
    #[track_caller]
    pub fn living(&self, name: &str) -> Pod {
        let pod = self.api.pod(&self.namespace, name).phase("Running").create();
        self.attach(&pod).run().address();
        pod
    }

    /// The address of a pod that does not exist, in a container of its name.
    #[track_caller]
    pub fn orphan(&self, name: &str) -> String {
        let number = self.next_uid.fetch_add(1, Ordering::Relaxed);
        let mut hasher = DefaultHasher::new();
        self.namespace.hash(&mut hasher);
        // In the form of the API server's: another one may be a static pod's.
        let uid = format!("{:08x}-0000-4000-8000-{number:012x}", hasher.finish() as u32);
        self.attach_as(name, name, &uid).run().address()
    }

    /// An ADD with CNI_ARGS as written.
    #[track_caller]
    pub fn hold(&self, container: &str, args: &str) {
        let args = format!("IgnoreUnknown=1;{args}");
        self.node.add(container).config(&Self::config()).args(&args).run().address();
    }

    /// The containers that hold addresses, each once.
    pub fn held(&self) -> Vec<String> {
        let list = self.node.list();
        let mut held: Vec<String> =
            list.iter().filter_map(|row| row["container_id"].as_str()).map(str::to_owned).collect();
        held.sort();
        held.dedup();
        held
    }

    /// The keys of the sightings that the cluster's reconciler remembers.
    pub fn sightings(&self) -> Vec<String> {
        self.cluster.store().keys("v1/orphan/test/")
    }

    pub fn proxy(&self) -> ApiProxy {
        ApiProxy::before(&self.api)
    }

    /// A pass that reports in JSON.
    pub fn reconciler(&self, api: &impl Reachable) -> Reconciler {
        self.cluster.reconciler(api).args(["-o", "json"])
    }

    #[track_caller]
    pub fn pass<S: AsRef<str>>(&self, flags: impl IntoIterator<Item = S>) -> Pass {
        self.reconciler(&self.api).args(flags).pass()
    }
}

/// The result of a pass that reports in JSON.
#[derive(Debug)]
pub struct Pass {
    pub code: Option<i32>,
    pub report: Value,
    pub outcome: Outcome,
}

impl Reconciler {
    /// Runs one pass, whose report is in JSON.
    #[track_caller]
    pub fn pass(self) -> Pass {
        Pass::of(self.run())
    }
}

impl Pass {
    #[track_caller]
    pub fn of(outcome: Outcome) -> Self {
        Self { code: outcome.status.code(), report: outcome.json(), outcome }
    }

    /// It ended well.
    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(self.code, Some(0), "should have succeeded: {}", self.outcome);
        assert_eq!(self.report["error"], Value::Null, "{}", self.outcome);
        self
    }

    /// It ended with this status, an error that has these words, and freed nothing.
    #[track_caller]
    pub fn refused(self, code: i32, words: &str) -> Self {
        assert_eq!(self.code, Some(code), "{}", self.outcome);
        let error = self.report["error"].as_str().unwrap_or_default();
        assert!(error.contains(words), "should have said {words:?}: {}", self.outcome);
        assert!(self.outcome.stderr.contains(error), "stderr has the error too: {}", self.outcome);
        self.freed(json!({}))
    }

    /// The owners that were kept, counted by reason, and nobody else.
    #[track_caller]
    pub fn kept(self, reasons: Value) -> Self {
        assert_eq!(self.report["kept"], reasons, "kept: {}", self.outcome);
        self
    }

    /// The owners that were freed, counted by reason, and nobody else.
    #[track_caller]
    pub fn freed(self, reasons: Value) -> Self {
        assert_eq!(self.done("freed"), reasons, "freed: {}", self.outcome);
        self
    }

    /// The work that was done, counted by kind. The report of an aborted pass lacks the rest.
    fn done(&self, field: &str) -> Value {
        let is_left_out = self.report["aborted"] == true && self.report[field].is_null();
        if is_left_out { json!({}) } else { self.report[field].clone() }
    }

    /// The repairs, counted by kind; those that are not named were not made.
    #[track_caller]
    pub fn repaired(self, expected: Value) -> Self {
        let mut repaired = self.done("repaired").as_object().expect("it is an object").clone();
        repaired.retain(|_, count| *count != 0);
        assert_eq!(Value::Object(repaired), expected, "repaired: {}", self.outcome);
        self
    }
}
