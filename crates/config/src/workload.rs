//! Objects of Kubernetes that make pods with random names, and the networks of these pods. Pure.

use serde_json::Value;

use crate::nad;
use crate::selection::{Selection, selections};

/// The annotation by which a pod asks for networks.
const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";

/// An object whose pods have random names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// Like `Deployment work/web`.
    pub label: String,
    /// The networks that its pods ask for, as `namespace/name`; without a namespace if the object has none.
    pub networks: Vec<String>,
    /// The place of the pods' annotations in the document.
    pub key: String,
}

impl Workload {
    /// The workload that an object is; `path` is the object's place in its document. A StatefulSet is none: its pods
    /// have fixed names.
    #[must_use]
    pub fn of(object: &Value, path: &str) -> Option<Self> {
        let kind = object["kind"].as_str()?;
        let template = match kind {
            "Deployment" | "ReplicaSet" | "ReplicationController" | "DaemonSet" | "Job" => "/spec/template",
            "CronJob" => "/spec/jobTemplate/spec/template",
            _ => return None,
        };
        let annotations = object.pointer(template)?.pointer("/metadata/annotations")?;
        let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
        let (namespace, name) = (text("namespace"), text("name"));
        let full = |Selection { network, .. }: Selection| network.trim_start_matches('/').to_owned();
        let networks = selections(namespace, annotations[NETWORKS].as_str()?).into_iter().map(full).collect();
        let label = nad::label(namespace, name);
        let inside = format!("{template}/metadata/annotations").replace('/', ".");
        let key = format!("{path}{inside}");
        Some(Self { label: format!("{kind} {label}"), networks, key: key.trim_start_matches('.').to_owned() })
    }

    /// True if its pods ask for the network of this name. An object without a namespace may be for any one.
    #[must_use]
    pub(crate) fn asks_for(&self, network: &str) -> bool {
        let (namespace, name) = parts(network);
        self.networks
            .iter()
            .map(|asked| parts(asked))
            .any(|(of, asked)| asked == name && (of.is_none() || namespace.is_none() || of == namespace))
    }
}

/// The namespace, if there is one, and the name.
fn parts(full: &str) -> (Option<&str>, &str) {
    full.rsplit_once('/').map_or((None, full), |(namespace, name)| (Some(namespace), name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(kind: &str, metadata: Value, networks: &str) -> Value {
        let template = json!({"metadata": {"annotations": {NETWORKS: networks}}});
        let spec = match kind {
            "CronJob" => json!({"jobTemplate": {"spec": {"template": template}}}),
            _ => json!({"template": template}),
        };
        json!({"kind": kind, "metadata": metadata, "spec": spec})
    }

    #[test]
    fn networks_are_found_in_the_templates_of_pods_with_random_names() {
        let named = json!({"namespace": "work", "name": "web"});
        for (kind, key) in [
            ("Deployment", "items[2].spec.template.metadata.annotations"),
            ("CronJob", "items[2].spec.jobTemplate.spec.template.metadata.annotations"),
        ] {
            let workload =
                Workload::of(&object(kind, named.clone(), "a, other/b@net7"), "items[2]").expect("one");
            assert_eq!((workload.label, &*workload.key), (format!("{kind} work/web"), key));
            assert_eq!(workload.networks, ["work/a", "other/b"]);
        }
        assert_eq!(Workload::of(&object("StatefulSet", named.clone(), "a"), ""), None);
        assert_eq!(
            Workload::of(&json!({"kind": "Job", "metadata": named, "spec": {"template": {}}}), ""),
            None
        );
    }

    #[test]
    fn an_object_without_a_namespace_may_be_for_any() {
        let of = |metadata: Value| Workload::of(&object("Job", metadata, "a"), "").expect("one");
        let (with, without) = (of(json!({"namespace": "work", "name": "w"})), of(json!({"name": "w"})));
        for (network, is_with) in [("work/a", true), ("a", true), ("other/a", false)] {
            assert_eq!((with.asks_for(network), without.asks_for(network)), (is_with, true), "{network}");
        }
        assert!(!without.asks_for("work/b"));
    }
}
