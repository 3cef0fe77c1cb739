//! What the identity of a node's kubelet reaches: a real kube-apiserver with the Node authorizer and NodeRestriction.

use std::time::Duration;

use serde_json::{Value, json};
use support::{KUBELET, KubeApi, Kubectl, wait_for};
use tempfile::TempDir;

const OF_ETCD: &str = "metes.dev.node-restriction.kubernetes.io/etcd";
const KNOWN_MAX: Duration = Duration::from_secs(30);

/// A node that somebody has taken over, with the files of its kubelet.
struct Taken {
    api: &'static KubeApi,
    namespace: String,
    kubelet: Kubectl,
    _folder: TempDir,
}

impl Taken {
    fn new() -> Self {
        let (api, folder) = (KubeApi::shared(), tempfile::tempdir().expect("a folder can be made"));
        let kubelet = Kubectl::new(api.kubeconfig_of_kubelet(folder.path()));
        Self { api, namespace: api.new_namespace(), kubelet, _folder: folder }
    }

    fn secret(&self, name: &str) {
        let object = json!({"metadata": {"name": name}, "stringData": {"tls.key": "a key"}});
        self.api.create(&format!("/api/v1/namespaces/{}/secrets", self.namespace), &object);
    }

    /// A pod on a node, with a Secret.
    fn pod(&self, name: &str, node: &str, secret: &str) {
        let volume = json!({"name": "tls", "secret": {"secretName": secret}});
        self.api.pod(&self.namespace, name).node(node).with(json!({"spec": {"volumes": [volume]}})).create();
    }

    /// Reads the key in a Secret, or says why not.
    fn key_in(&self, secret: &str) -> Result<String, String> {
        let outcome = self.kubelet.run(["-n", &self.namespace, "get", "secret", secret, "-o", "json"], "");
        if !outcome.succeeded() {
            return Err(outcome.stderr);
        }
        Ok(outcome.json()["data"]["tls.key"].as_str().unwrap_or_default().to_owned())
    }
}

/// The pods with etcd's root and the authority's key run where the label is.
#[test]
fn a_kubelet_cannot_make_its_node_one_of_etcds() {
    let taken = Taken::new();
    let registered = |labels: Value| {
        let node =
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": KUBELET, "labels": labels}});
        taken.kubelet.run(["create", "-f", "-"], &node.to_string())
    };
    let refused = registered(json!({OF_ETCD: ""}));
    assert!(!refused.succeeded() && refused.stderr.contains(OF_ETCD), "{refused}");
    let outcome = registered(json!({"example.dev/usual": ""}));
    assert!(outcome.succeeded(), "{outcome}");
    let label = |label: &str| taken.kubelet.run(["label", "node", KUBELET, &format!("{label}=")], "");
    assert!(label("metes.dev/etcd").succeeded(), "a label of the usual kind would have been no protection");
    let refused = label(OF_ETCD);
    assert!(!refused.succeeded() && refused.stderr.contains("not allowed to modify labels"), "{refused}");
}

#[test]
fn a_kubelet_reads_the_secrets_of_its_own_pods_alone() {
    let taken = Taken::new();
    for secret in ["metes-node", "metes-etcd-server", "metes-ca"] {
        taken.secret(secret);
    }
    taken.pod("metes-installer", KUBELET, "metes-node");
    taken.pod("etcd-0", "another", "metes-etcd-server");
    // The server learns of pods a moment later.
    wait_for("the kubelet's own Secret", KNOWN_MAX, || taken.key_in("metes-node"));
    for secret in ["metes-etcd-server", "metes-ca"] {
        let refused = taken.key_in(secret).expect_err(secret);
        assert!(refused.contains("Forbidden"), "{refused}");
    }
}
