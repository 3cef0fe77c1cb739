//! The certificates that `metes-install certificates` keeps in Secrets of a real kube-apiserver.

use std::collections::BTreeMap;
use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use support::{KubeApi, Manifests, Outcome, Run, metes_install};
use tempfile::TempDir;

const AUTHORITY: &str = "metes-ca";
const OF_NODES: &str = "metes-node-ca";
const OF_ETCD: [&str; 3] = ["metes-etcd-server", "metes-etcd-peer", "metes-signer"];
const OF_PODS: [&str; 5] =
    ["metes-reconciler", "metes-viewer", "metes-admin", "metes-metrics", "metes-webhook"];

/// The two namespaces of an installation.
struct Lab {
    api: &'static KubeApi,
    system: String,
    pods: String,
    manifests: Manifests,
    kubeconfig: PathBuf,
    _folder: TempDir,
}

impl Lab {
    fn new() -> Self {
        let (api, folder) = (KubeApi::shared(), tempfile::tempdir().expect("a folder can be made"));
        let (system, pods) = (api.new_namespace(), api.new_namespace());
        let kubeconfig = api.kubeconfig(folder.path());
        let manifests = Manifests::copy();
        manifests.edit("base/metes.conf", "change-me", "c1");
        Self { api, system, pods, manifests, kubeconfig, _folder: folder }
    }

    fn certificates(&self, arguments: &[&str]) -> Run {
        Run::new(metes_install())
            .env("KUBECONFIG", &self.kubeconfig)
            .env("NAMESPACE", &self.system)
            .env("PODS_NAMESPACE", &self.pods)
            .arguments(["certificates", &format!("--template={}", self.template().display())])
            .arguments(arguments)
    }

    fn template(&self) -> PathBuf {
        self.manifests.path("base/metes.conf")
    }

    #[track_caller]
    fn make(&self, arguments: &[&str]) {
        let outcome = self.certificates(arguments).run();
        assert!(outcome.succeeded(), "{outcome}");
    }

    fn path(&self, secret: &str) -> String {
        let namespace = if OF_PODS.contains(&secret) { &self.pods } else { &self.system };
        format!("/api/v1/namespaces/{namespace}/secrets/{secret}")
    }

    /// The ConfigMap with what nodes trust.
    fn trusted(&self) -> String {
        format!("/api/v1/namespaces/{}/configmaps/metes-ca", self.system)
    }

    /// A file of a Secret that has certificates.
    fn certificates_in(&self, secret: &str, file: &str) -> String {
        let base64 = self.api.get(&self.path(secret))["data"][file].as_str().expect("a file").to_owned();
        String::from_utf8(STANDARD.decode(base64).expect("base64")).expect("PEM")
    }

    /// The files of each Secret that is there.
    fn secrets(&self) -> BTreeMap<&'static str, Value> {
        let all = [AUTHORITY, OF_NODES].into_iter().chain(OF_ETCD).chain(OF_PODS);
        let data = |name| Some((name, self.api.find(&self.path(name))?["data"].clone()));
        all.filter_map(data).collect()
    }

    /// The names of the Secrets that are not as they were.
    fn changed_since(&self, before: &BTreeMap<&'static str, Value>) -> Vec<&'static str> {
        let differs = |(name, now): (&'static str, Value)| (before.get(name) != Some(&now)).then_some(name);
        self.secrets().into_iter().filter_map(differs).collect()
    }

    /// Refused with these words, and nothing is written.
    #[track_caller]
    fn refused(&self, words: &[&str]) {
        let before = self.secrets();
        for arguments in [[].as_slice(), &["--renew"]] {
            let Outcome { stderr, status, .. } = self.certificates(arguments).run();
            assert!(!status.success() && words.iter().all(|words| stderr.contains(words)), "{stderr}");
        }
        assert_eq!(self.secrets(), before);
    }
}

#[test]
fn each_secret_is_where_its_pods_are() {
    let lab = Lab::new();
    lab.make(&[]);
    let secrets = lab.secrets();
    assert_eq!(secrets.len(), 2 + OF_ETCD.len() + OF_PODS.len());
    let names = |namespace: &str| -> Vec<Value> {
        let list = lab.api.get(&format!("/api/v1/namespaces/{namespace}/secrets"));
        list["items"].as_array().expect("a list").iter().map(|one| one["metadata"]["name"].clone()).collect()
    };
    assert_eq!(names(&lab.system).len(), 2 + OF_ETCD.len());
    assert_eq!(names(&lab.pods).len(), OF_PODS.len());
    for (name, files) in &secrets {
        let is_authority = [AUTHORITY, OF_NODES].contains(name);
        assert!(is_authority || files["ca.crt"] == secrets[AUTHORITY]["tls.crt"], "{name}");
    }
}

/// All that an installer may read of them, and it has no key.
#[test]
fn nodes_are_told_whom_to_trust() {
    let lab = Lab::new();
    lab.make(&[]);
    let authority = |name| lab.certificates_in(name, "tls.crt");
    let expected = json!({"ca.crt": authority(AUTHORITY), "nodes.crt": authority(OF_NODES)});
    assert_eq!(lab.api.get(&lab.trusted())["data"], expected);
    lab.api.delete(&lab.trusted());
    lab.make(&[]);
    assert_eq!(lab.api.get(&lab.trusted())["data"], expected);
    // While an authority is replaced by hand, it has both.
    let both = json!({"data": {"ca.crt": format!("{}{}", authority(OF_NODES), authority(AUTHORITY))}});
    lab.api.patch(&lab.trusted(), &both);
    lab.make(&["--renew"]);
    assert_eq!(lab.api.get(&lab.trusted())["data"]["ca.crt"], both["data"]["ca.crt"]);
    // Of an installation before this one, which is gone.
    lab.api.patch(&lab.trusted(), &json!({"data": {"ca.crt": authority(OF_NODES)}}));
    let delete = format!("kubectl -n {} delete configmap metes-ca", lab.system);
    lab.refused(&["metes-ca has another authority", &delete]);
}

/// From one key for all nodes: that installation has no authority of nodes.
#[test]
fn etcds_secret_is_made_anew_until_it_lets_nodes_in() {
    let lab = Lab::new();
    lab.make(&["--one-key"]);
    assert!(lab.api.find(&lab.path("metes-node")).is_some());
    let clients = lab.certificates_in("metes-etcd-server", "clients.crt");
    for authority in [AUTHORITY, OF_NODES] {
        assert!(clients.contains(&lab.certificates_in(authority, "tls.crt")), "{authority}");
    }
    lab.api.patch(&lab.path("metes-etcd-server"), &json!({"data": {"clients.crt": null}}));
    lab.api.delete(&lab.path(OF_NODES));
    let before = lab.secrets();
    lab.make(&[]);
    assert_eq!(lab.changed_since(&before), ["metes-etcd-server", OF_NODES]);
    let clients = lab.certificates_in("metes-etcd-server", "clients.crt");
    assert!(clients.contains(&lab.certificates_in(OF_NODES, "tls.crt")));
}

/// The Job of manifests/ runs at each sync of a GitOps tool: it changes only what is not as it should be.
#[test]
fn good_certificates_are_kept_and_a_renewal_keeps_the_authority() {
    let lab = Lab::new();
    lab.make(&[]);
    let before = lab.secrets();
    lab.make(&[]);
    assert_eq!(lab.changed_since(&before), [""; 0]);
    // Half of their time is not left any more, as a longer time shows.
    lab.make(&["--days=800"]);
    assert_eq!(lab.changed_since(&before).len(), 8);
    let before = lab.secrets();
    lab.make(&["--days=800"]);
    assert_eq!(lab.changed_since(&before), [""; 0]);
    // The members have other addresses.
    lab.manifests.edit("base/metes.conf", "192.0.2.13", "192.0.2.14");
    lab.make(&["--days=800"]);
    assert_eq!(lab.changed_since(&before), ["metes-etcd-peer", "metes-etcd-server"]);
    let before = lab.secrets();
    lab.make(&["--renew"]);
    let changed = lab.changed_since(&before);
    assert!(
        changed.len() == 8 && ![AUTHORITY, OF_NODES].iter().any(|name| changed.contains(name)),
        "{changed:?}"
    );
    for name in changed {
        assert_eq!(lab.secrets()[name]["ca.crt"], before[AUTHORITY]["tls.crt"], "{name}");
    }
}

#[test]
fn an_authority_that_is_gone_is_not_replaced_in_silence() {
    let lab = Lab::new();
    lab.make(&[]);
    let delete = |names: &[&str]| names.iter().for_each(|name| lab.api.delete(&lab.path(name)));
    delete(&[AUTHORITY, "metes-etcd-peer", "metes-viewer", "metes-admin", "metes-metrics", "metes-webhook"]);
    let commands = [
        format!("kubectl -n {} delete secret metes-etcd-server metes-signer", lab.system),
        format!("kubectl -n {} delete configmap metes-ca", lab.system),
        format!("kubectl -n {} delete secret metes-reconciler", lab.pods),
    ];
    lab.refused(&["metes-ca is gone", "Restore it", &commands[0], &commands[1], &commands[2]]);
    // Somebody has put another one there.
    let other = Lab::new();
    other.make(&[]);
    let mut another = other.api.get(&other.path(AUTHORITY));
    another["metadata"] = json!({"name": AUTHORITY, "namespace": lab.system});
    lab.api.create(&format!("/api/v1/namespaces/{}/secrets", lab.system), &another);
    lab.refused(&["metes-ca has another authority", "Restore it", &commands[0], &commands[1], &commands[2]]);
    delete(&[AUTHORITY, "metes-etcd-server", "metes-signer", "metes-reconciler"]);
    lab.api.delete(&lab.trusted());
    lab.make(&[]);
    assert_eq!(lab.secrets().len(), 10, "a person has deleted the Secrets");
}

/// Nodes whose identities are of an authority that etcd does not know would all be cut off.
#[test]
fn the_nodes_authority_is_not_replaced_in_silence_either() {
    let (lab, other) = (Lab::new(), Lab::new());
    [&lab, &other].iter().for_each(|lab| lab.make(&[]));
    let command = format!("kubectl -n {} delete secret metes-etcd-server", lab.system);
    lab.api.delete(&lab.path(OF_NODES));
    lab.refused(&["metes-node-ca is gone", "Restore it", &command]);
    let mut another = other.api.get(&other.path(OF_NODES));
    another["metadata"] = json!({"name": OF_NODES, "namespace": lab.system});
    lab.api.create(&format!("/api/v1/namespaces/{}/secrets", lab.system), &another);
    lab.refused(&["metes-node-ca has another authority", "Restore it", &command]);
    lab.api.delete(&lab.path("metes-etcd-server"));
    lab.make(&[]);
    let nodes = |file: &str| lab.api.get(&lab.trusted())["data"][file].clone();
    assert_eq!(nodes("nodes.crt"), json!(other.certificates_in(OF_NODES, "tls.crt")));
}

/// As docs/security.md replaces an authority without an interruption.
#[test]
fn a_secret_may_have_a_second_authority() {
    let (lab, other) = (Lab::new(), Lab::new());
    [&lab, &other].iter().for_each(|lab| lab.make(&[]));
    let text = |lab: &Lab| lab.certificates_in(AUTHORITY, "tls.crt");
    let both = format!("{}{}", text(&other), text(&lab).replace('\n', "\r\n"));
    lab.api.patch(&lab.path("metes-signer"), &json!({"stringData": {"ca.crt": both}}));
    let before = lab.secrets();
    lab.make(&[]);
    assert_eq!(lab.changed_since(&before), [""; 0]);
}

/// The Job of an installation and one that a person starts.
#[test]
fn runs_at_the_same_time_end_with_one_authority() {
    let lab = Lab::new();
    let runs: Vec<_> = (0..4).map(|_| lab.certificates(&[]).spawn()).collect();
    let outcomes: Vec<Outcome> = runs.into_iter().map(support::Running::wait).collect();
    assert!(outcomes.iter().any(Outcome::succeeded), "{}", outcomes[0]);
    for refused in outcomes.iter().filter(|one| !one.succeeded()) {
        assert!(refused.stderr.contains("cannot create the Secret"), "{refused}");
    }
    let secrets = lab.secrets();
    for name in OF_ETCD.into_iter().chain(OF_PODS) {
        assert_eq!(secrets[name]["ca.crt"], secrets[AUTHORITY]["tls.crt"], "{name}");
    }
}
