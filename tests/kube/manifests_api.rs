//! A real API server takes all of manifests/, strictly, and the objects that it then has keep the promises.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::OnceLock;
use std::time::Duration;

use metes_core::limits;
use serde_json::{Value, json};
use support::{KubeApi, Kubectl, Manifests, alone, wait_for};
use tempfile::TempDir;

const CRD_MAX: Duration = Duration::from_secs(30);
/// The folders that an operator applies as they are; the other ones are parts of these.
const WHOLE: [&str; 8] = [
    "",
    "byo-etcd",
    "adopt",
    "etcd-restore",
    "etcd-snapshots-copy",
    "import-whereabouts",
    "uninstall",
    "webhook",
];
/// The component that is taken along where metes serves the default network.
const HOST_NETWORK: (&str, &str) = ("  # - ../host-network\n", "  - ../host-network\n");
/// The workloads that need folders or the network of the node, or files of root in a claim. All others run under the
/// strictest policy.
const ON_THE_NODE: [&str; 7] = [
    "etcd",
    "metes-etcd-restore",
    "metes-etcd-snapshots-copy",
    "metes-etcd-snapshots-read",
    "metes-installer",
    "metes-signer",
    "metes-uninstall",
];
/// The label of etcd's nodes, which a kubelet cannot give itself: tests/kube/node_identity.rs shows it.
const OF_ETCD: &str = "metes.dev.node-restriction.kubernetes.io/etcd";
/// The workload that may wait until pods have a network, also where metes is the plugin that gives it to them.
const IN_A_POD_NETWORK: &str = "metes-webhook";
/// The ports of DNS and API servers, of Services and behind them.
const DNS_AND_API: [u64; 6] = [53, 443, 5353, 6443, 8443, 16443];
/// The taints of a node whose network is not up, and those that distributions give to nodes of the control plane.
const BEFORE_ITS_NETWORK: [(&str, &str); 8] = [
    ("node.kubernetes.io/not-ready", "NoSchedule"),
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/network-unavailable", "NoSchedule"),
    ("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule"),
    ("node-role.kubernetes.io/control-plane", "NoSchedule"),
    ("node-role.kubernetes.io/etcd", "NoExecute"),
    ("CriticalAddonsOnly", "NoSchedule"),
    ("CriticalAddonsOnly", "NoExecute"),
];
/// The account of workloads on the node, for clusters where an account must be allowed that. It has no rights in the
/// API.
const NODE_ACCOUNT: &str = "metes-node";
/// The account of the pods that ask for the certificates of their nodes.
const INSTALLER: &str = "metes-installer";
/// The component that gives all nodes one key.
const ONE_KEY: (&str, &str) = ("  # - ../one-key\n", "  - ../one-key\n");
/// The folders of overlays/: where the distribution's runtime looks for plugins, and which file says so, if one does.
const OVERLAYS: [(&str, &str, Option<&str>); 10] = [
    ("aks", "/opt/cni/bin", Some("/etc/containerd/config.toml")),
    ("eks", "/opt/cni/bin", Some("/etc/containerd/config.toml")),
    ("gke", "/home/kubernetes/bin", Some("/etc/containerd/config.toml")),
    ("k3s", "/var/lib/rancher/k3s/data/cni", Some("/var/lib/rancher/k3s/agent/etc/containerd/config.toml")),
    ("kind", "/opt/cni/bin", Some("/etc/containerd/config.toml")),
    ("microk8s", "/var/snap/microk8s/current/opt/cni/bin", None),
    ("minikube", "/opt/cni/bin", Some("/etc/containerd/config.toml")),
    ("openshift", "/var/lib/cni/bin", Some("/etc/crio/crio.conf")),
    ("rke2", "/opt/cni/bin", Some("/var/lib/rancher/rke2/agent/etc/containerd/config.toml")),
    ("talos", "/opt/cni/bin", Some("/etc/cri/containerd.toml")),
];

/// Everything in manifests/, applied once, folder by folder; examples by their file.
struct Applied {
    api: KubeApi,
    manifests: Manifests,
    objects: BTreeMap<String, Vec<Value>>,
    _folder: TempDir,
}

impl Applied {
    fn get() -> &'static Self {
        static APPLIED: OnceLock<Applied> = OnceLock::new();
        APPLIED.get_or_init(Self::make)
    }

    fn make() -> Self {
        let api = KubeApi::start();
        let folder = tempfile::tempdir().expect("a folder can be made");
        let kubectl = Kubectl::new(api.kubeconfig(folder.path()));
        api.install_crds();
        install_crds_of_others(&api);
        let manifests = Manifests::copy();
        let mut objects = BTreeMap::new();
        // The whole comes first: it brings the namespace.
        let mut sources: Vec<(String, String)> = kustomizations(&manifests)
            .into_iter()
            .map(|name| (name.clone(), manifests.kustomize(&name)))
            .collect();
        for name in manifests.files().into_iter().filter(|name| is_example(name)) {
            let text = fs::read_to_string(manifests.path(&name)).expect("it can be read");
            sources.push((name, text));
        }
        for (name, yaml) in sources {
            objects.insert(name.clone(), apply_and_delete(&api, &kubectl, &name, &yaml));
        }
        Self { api, manifests, objects, _folder: folder }
    }

    /// Each object, with the folder or file that it comes from.
    fn all(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.objects
            .iter()
            .flat_map(|(name, objects)| objects.iter().map(move |object| (name.as_str(), object)))
    }

    #[track_caller]
    fn one(&self, source: &str, kind: &str, name: &str) -> &Value {
        self.only(source, kind, name, |_| true)
    }

    #[track_caller]
    fn one_in(&self, namespace: &Value, source: &str, kind: &str, name: &str) -> &Value {
        self.only(source, kind, name, |object| object["metadata"]["namespace"] == *namespace)
    }

    #[track_caller]
    fn only(&self, source: &str, kind: &str, name: &str, is_it: impl Fn(&Value) -> bool) -> &Value {
        let objects = self.objects.get(source).unwrap_or_else(|| panic!("there is no {source}"));
        let mut found = objects
            .iter()
            .filter(|object| object["kind"] == kind && object["metadata"]["name"] == name && is_it(object));
        let one = found.next().unwrap_or_else(|| panic!("{source} has no {kind} {name}"));
        assert!(found.next().is_none(), "{source} has {kind} {name} twice");
        one
    }
}

/// Applies it twice. Returns the objects after the first time, which the second must not change.
fn apply_and_delete(api: &KubeApi, kubectl: &Kubectl, source: &str, yaml: &str) -> Vec<Value> {
    // An object of no namespace is there once: two tests must not have it at one time.
    let _alone = alone();
    let answered = kubectl.apply(yaml);
    let read = |objects: &[Value]| -> Vec<Value> {
        let mut all: Vec<Value> = objects.iter().map(|object| api.get(&api.path_of(object))).collect();
        // The server writes the same claim a second time.
        all.iter_mut().for_each(|object| drop(object["metadata"]["resourceVersion"].take()));
        all
    };
    let first = read(&answered);
    let second = read(&kubectl.apply(yaml));
    assert_eq!(first, second, "{source}: applied again, it changes");
    // Nobody here ends the deletion of a namespace.
    for object in first.iter().filter(|object| object["kind"] != "Namespace") {
        let path = api.path_of(object);
        if object["kind"] == "PersistentVolumeClaim" {
            // Nobody here lets it go when no pod uses it.
            api.patch(&path, &json!({"metadata": {"finalizers": null}}));
        }
        // A Job would otherwise wait for somebody who takes its pods along.
        api.ask("DELETE", &path, Some(&json!({"propagationPolicy": "Background"}))).ok(&path);
        assert!(api.find(&path).is_none(), "{path} stays");
    }
    first
}

/// The folders with a kustomization that somebody applies, the root as "".
fn kustomizations(manifests: &Manifests) -> Vec<String> {
    let files = manifests.files();
    let folders = files.iter().filter_map(|file| file.strip_suffix("kustomization.yaml"));
    folders
        .map(|folder| applied_as(folder.trim_end_matches('/')).to_owned())
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect()
}

/// The folder with which this one is applied.
fn applied_as(folder: &str) -> &str {
    let component = folder.strip_suffix("/component").filter(|folder| folder.starts_with("overlays/"));
    // Two components change namespaces: `any_namespace_will_do` and `other_ways_are_applied_too` apply them.
    component.unwrap_or(if matches!(folder, "base" | "host-network" | "rename") { "" } else { folder })
}

fn is_example(file: &str) -> bool {
    file.starts_with("examples/") && file.ends_with(".yaml")
}

/// Installs the definitions of cert-manager and of the Prometheus operator, which take anything as `spec`.
pub(crate) fn install_crds_of_others(api: &KubeApi) {
    install_constraints(api);
    const CERT_MANAGER: &str = "cert-manager.io";
    const PROMETHEUS: &str = "monitoring.coreos.com";
    for (group, kind, plural) in [
        (CERT_MANAGER, "Issuer", "issuers"),
        (CERT_MANAGER, "Certificate", "certificates"),
        (PROMETHEUS, "PrometheusRule", "prometheusrules"),
        (PROMETHEUS, "ServiceMonitor", "servicemonitors"),
        (PROMETHEUS, "PodMonitor", "podmonitors"),
    ] {
        let spec = json!({"type": "object", "properties": {"spec": any_object()}});
        install_definition(api, (group, "v1"), [kind, plural, &kind.to_lowercase()], "Namespaced", spec);
        let list = format!("/apis/{group}/v1/{plural}");
        wait_for(&list, CRD_MAX, || {
            let discovered = api.ask("GET", &format!("/apis/{group}/v1"), None).body;
            let known = discovered["resources"]
                .as_array()
                .is_some_and(|all| all.iter().any(|one| one["kind"] == kind));
            let status = api.ask("GET", &list, None).status;
            if known && status == 200 { Ok(()) } else { Err(format!("{status}, {discovered}")) }
        });
    }
}

/// OpenShift's, which takes anything.
fn install_constraints(api: &KubeApi) {
    let names = ["SecurityContextConstraints", "securitycontextconstraints", "securitycontextconstraints"];
    install_definition(api, ("security.openshift.io", "v1"), names, "Cluster", any_object());
}

fn any_object() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// Installs a definition whose objects have this schema.
pub(crate) fn install_definition(
    api: &KubeApi,
    (group, version): (&str, &str),
    [kind, plural, singular]: [&str; 3],
    scope: &str,
    schema: Value,
) {
    api.apply(&json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"kind": kind, "plural": plural, "singular": singular},
            "versions": [{
                "name": version, "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
            }],
        },
    }));
}

/// The documents of a YAML file.
fn documents(text: &str) -> Vec<Value> {
    let parsed = text.split("\n---\n").map(|document| yaml_serde::from_str(document).expect("it is YAML"));
    parsed.filter(|document: &Value| !document.is_null()).collect()
}

#[test]
fn all_that_is_there_is_applied() {
    let applied = Applied::get();
    let mut count = 0;
    for file in applied.manifests.files() {
        let folder = applied_as(file.rsplit_once('/').map_or("", |(folder, _)| folder));
        let extension = file.rsplit_once('.').map_or("", |(_, extension)| extension);
        let text = fs::read_to_string(applied.manifests.path(&file)).expect("manifests are text");
        match extension {
            _ if file.ends_with("kustomization.yaml") => {
                assert!(applied.objects.contains_key(folder), "{file}")
            }
            "yaml" => {
                let source = if is_example(&file) { &file } else { folder };
                for document in documents(&text) {
                    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                    let (kind, name) = (text(&document["kind"]), text(&document["metadata"]["name"]));
                    applied.only(source, &kind, &name, |object| {
                        let namespace = &document["metadata"]["namespace"];
                        namespace.is_null() || object["metadata"]["namespace"] == *namespace
                    });
                    count += 1;
                }
            }
            // They come as a part of a ConfigMap.
            "conf" | "json" => {
                let key = file.rsplit('/').next().unwrap_or_default();
                let has_it =
                    |object: &&Value| object["kind"] == "ConfigMap" && object["data"][key] == text.as_str();
                assert!(applied.objects[folder].iter().any(|object| has_it(&object)), "{file}");
            }
            // Of no use to an API server.
            "conflist" | "md" | "metes-install" | "metes-reconciler" => {}
            _ => panic!("{file} is applied by nobody"),
        }
    }
    assert!(count > 40, "only {count} documents were found");
}

/// Somebody applies it as it is, and not as a part of something else.
fn is_whole(source: &str) -> bool {
    WHOLE.contains(&source) || source.starts_with("overlays/")
}

/// A workload and the template of its pods.
struct Workload {
    source: &'static str,
    object: &'static Value,
    template: &'static Value,
}

impl Workload {
    fn every() -> Vec<Self> {
        Applied::get().all().filter_map(|(source, object)| Self::in_object(source, object)).collect()
    }

    /// Those of what somebody applies as it is, where metes serves the default network.
    fn every_under_the_default_network() -> Vec<Self> {
        static RENDERED: OnceLock<Vec<(String, Value)>> = OnceLock::new();
        let rendered = RENDERED.get_or_init(|| {
            let manifests = Manifests::copy();
            manifests.edit("site/kustomization.yaml", HOST_NETWORK.0, HOST_NETWORK.1);
            let sources = kustomizations(&manifests).into_iter().filter(|source| is_whole(source));
            let objects = sources.map(|source| (source.clone(), documents(&manifests.kustomize(&source))));
            objects.flat_map(|(source, all)| all.into_iter().map(move |one| (source.clone(), one))).collect()
        });
        rendered.iter().filter_map(|(source, object)| Self::in_object(source, object)).collect()
    }

    fn in_object(source: &'static str, object: &'static Value) -> Option<Self> {
        let template = match object["kind"].as_str()? {
            "DaemonSet" | "Deployment" | "StatefulSet" | "Job" => &object["spec"]["template"],
            "CronJob" => &object["spec"]["jobTemplate"]["spec"]["template"],
            _ => return None,
        };
        Some(Self { source, object, template })
    }

    fn of(source: &'static str, kind: &str, name: &str) -> Self {
        let object = Applied::get().one(source, kind, name);
        let every = Self::every();
        every.into_iter().find(|one| std::ptr::eq(one.object, object)).expect("it has a template")
    }

    fn name(&self) -> &'static str {
        self.object["metadata"]["name"].as_str().expect("a workload has a name")
    }

    fn spec(&self) -> &'static Value {
        &self.template["spec"]
    }

    fn containers(&self) -> Vec<&'static Value> {
        let spec = self.spec();
        let both = [&spec["initContainers"], &spec["containers"]];
        both.into_iter().filter_map(Value::as_array).flatten().collect()
    }

    fn namespace(&self) -> &'static Value {
        &self.object["metadata"]["namespace"]
    }

    fn tolerates(&self, key: &str, effect: &str) -> bool {
        let tolerations = self.spec()["tolerations"].as_array();
        let meets = |value: &Value, one: &str| value.is_null() || value == one;
        tolerations.into_iter().flatten().any(|toleration| {
            toleration["operator"] == "Exists"
                && meets(&toleration["key"], key)
                && meets(&toleration["effect"], effect)
        })
    }

    fn volumes(&self) -> &'static [Value] {
        self.spec()["volumes"].as_array().map_or(&[], Vec::as_slice)
    }

    /// The folders of the node that it can write to, or those that it can only read.
    fn host_paths(&self, read_only: bool) -> BTreeSet<&'static str> {
        let containers = self.containers();
        let mounts = containers.iter().flat_map(|one| one["volumeMounts"].as_array()).flatten();
        let writable: BTreeSet<&str> =
            mounts.filter(|one| one["readOnly"] != true).filter_map(|one| one["name"].as_str()).collect();
        let volumes = self.volumes().iter();
        volumes
            .filter(|volume| volume["name"].as_str().is_some_and(|name| writable.contains(name) != read_only))
            .filter_map(|volume| volume["hostPath"]["path"].as_str())
            .collect()
    }

    /// The folder of the node for plugins, and its type, which the kubelet checks.
    fn plugins(&self) -> (&'static str, &'static str) {
        let volume = self.volumes().iter().find(|volume| volume["name"] == "cni-bin");
        let folder = &volume.expect("it is among the volumes")["hostPath"];
        (folder["path"].as_str().expect("a path"), folder["type"].as_str().expect("a type"))
    }

    /// A variable of its one container.
    fn variable(&self, name: &str) -> Option<&'static str> {
        let variables = self.containers()[0]["env"].as_array()?.iter();
        variables.filter(|one| one["name"] == name).find_map(|one| one["value"].as_str())
    }
}

/// The server's own policy judges each pod, as it would when the controllers create it.
#[test]
fn pods_have_no_more_rights_than_the_namespace_must_give() {
    let api = &Applied::get().api;
    for level in ["baseline", "restricted"] {
        let labels = json!({"pod-security.kubernetes.io/enforce": level});
        api.create_missing("/api/v1/namespaces", &json!({"metadata": {"name": level, "labels": labels}}));
    }
    for workload in Workload::every() {
        let name = workload.name();
        let pod = json!({"metadata": {"generateName": "p-"}, "spec": workload.spec()});
        let create = |namespace: &str| {
            api.ask("POST", &format!("/api/v1/namespaces/{namespace}/pods?dryRun=All"), Some(&pod))
        };
        create(workload.namespace().as_str().expect("it is in a namespace")).ok(name);
        if ON_THE_NODE.contains(&name) {
            assert_eq!(workload.namespace(), "metes-system", "{name}");
            let refused = create("baseline");
            assert_eq!(refused.status, 403, "{name} needs no privileged namespace: {}", refused.body);
        } else {
            create("restricted").ok(name);
        }
    }
    for (source, name, level) in [
        ("", "metes-system", "privileged"),
        ("", "metes", "restricted"),
        ("namespaces", "metes", "restricted"),
    ] {
        assert_eq!(level_of(Applied::get().one(source, "Namespace", name)), level, "{name}");
    }
}

/// The Pod Security Standard that a namespace enforces.
fn level_of(namespace: &Value) -> &Value {
    &namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
}

/// If metes serves the default network, a pod gets an address only when all of this has run.
#[test]
fn what_pods_wait_for_waits_for_no_pod() {
    let workloads = Workload::every_under_the_default_network();
    for workload in workloads.into_iter().filter(|one| one.name() != IN_A_POD_NETWORK) {
        let (name, spec) = (workload.name(), workload.spec());
        assert_eq!(spec["hostNetwork"], true, "{}: {name}", workload.source);
        for (key, effect) in BEFORE_ITS_NETWORK {
            assert!(workload.tolerates(key, effect), "{}: {name} waits for {key}:{effect}", workload.source);
        }
        // A DaemonSet and etcd belong to their nodes. A workload that may run elsewhere must not wait on a dead one.
        let is_kept_from =
            |key| !workload.tolerates(key, "NoSchedule") && !workload.tolerates(key, "NoExecute");
        if workload.object["kind"] != "DaemonSet" && name != "etcd" {
            assert!(is_kept_from("node.kubernetes.io/unreachable"), "{}: {name}", workload.source);
        }
        // On a node that is drained, a member would come back, be ready, and let the next node be drained.
        if workload.object["kind"] != "DaemonSet" {
            assert!(is_kept_from("node.kubernetes.io/unschedulable"), "{}: {name}", workload.source);
        }
        // Services have their names from DNS, which runs in pods; an address of IPv6 would need brackets.
        let text = format!("{:?}", workload.containers());
        assert!(!text.contains(".svc"), "{name} asks a Service: {text}");
        let endpoints = name != "etcd" && text.contains("ETCDCTL_ENDPOINTS");
        assert!(!endpoints, "{name} does not go by metes.conf: {text}");
    }
}

#[test]
fn containers_have_no_privileges_and_limits() {
    for workload in Workload::every() {
        let (name, spec) = (workload.name(), workload.spec());
        assert_eq!(spec["securityContext"]["seccompProfile"]["type"], "RuntimeDefault", "{name}");
        for key in ["hostPID", "hostIPC", "shareProcessNamespace"] {
            assert!(spec[key].is_null(), "{name}: {key}");
        }
        // The strictest policy does not allow it.
        assert!(ON_THE_NODE.contains(&name) || spec["hostNetwork"] != true, "{name}: hostNetwork");
        for container in workload.containers() {
            let security = &container["securityContext"];
            assert_ne!(security["privileged"], true, "{name}");
            assert_eq!(security["allowPrivilegeEscalation"], false, "{name}");
            assert_eq!(security["readOnlyRootFilesystem"], true, "{name}");
            assert_eq!(security["capabilities"], json!({"drop": ["ALL"]}), "{name}");
            for resource in ["cpu", "memory"] {
                assert!(container["resources"]["requests"][resource].is_string(), "{name}: {resource}");
            }
            assert!(container["resources"]["limits"]["memory"].is_string(), "{name}");
        }
        if !ON_THE_NODE.contains(&name) {
            assert_eq!(spec["securityContext"]["runAsNonRoot"], true, "{name}");
            assert_ne!(spec["securityContext"]["runAsUser"], 0, "{name}");
        }
    }
}

/// Only who asks the API has a token, and it is that of an account of its own, which comes along. With one key for all
/// nodes, an installer asks for none.
#[test]
fn tokens_are_for_those_who_need_one() {
    let applied = Applied::get();
    for workload in Workload::every() {
        let (name, account) = (workload.name(), &workload.spec()["serviceAccountName"]);
        let has_token = workload.spec()["automountServiceAccountToken"] == true;
        let asks = account != NODE_ACCOUNT && (account != INSTALLER || workload.source != "byo-etcd");
        assert_eq!(has_token, account.is_string() && asks, "{name}");
        assert!(has_token || workload.spec()["automountServiceAccountToken"] == false, "{name}");
        if let Some(account) = account.as_str() {
            let account = applied.one(workload.source, "ServiceAccount", account);
            assert_eq!(account["automountServiceAccountToken"], false, "{name}");
            assert_eq!(account["metadata"]["namespace"], workload.object["metadata"]["namespace"], "{name}");
        }
    }
}

#[test]
fn passes_end_before_the_next_and_leave_little_behind() {
    let cronjob = Workload::of("", "CronJob", "metes-reconciler");
    let spec = &cronjob.object["spec"];
    assert_eq!(
        (&spec["successfulJobsHistoryLimit"], &spec["failedJobsHistoryLimit"]),
        (&json!(1), &json!(3))
    );
    assert_eq!(spec["jobTemplate"]["spec"]["backoffLimit"], 0, "the next pass is the second try");
    let deadline = spec["jobTemplate"]["spec"]["activeDeadlineSeconds"].as_u64();
    assert!(spec["schedule"] == "*/5 * * * *" && deadline.is_some_and(|s| s < 300), "{spec}");
    assert_eq!(cronjob.spec()["restartPolicy"], "Never");
    assert!(cronjob.host_paths(false).is_empty() && cronjob.host_paths(true).is_empty());
    for workload in Workload::every().into_iter().filter(|one| one.object["kind"] == "CronJob") {
        let spec = &workload.object["spec"];
        // A Job whose pod is on a dead node does not end, and must not stop those that come after it.
        let by_policy = if spec["suspend"] == true { "Forbid" } else { "Replace" };
        assert_eq!(spec["concurrencyPolicy"], by_policy, "{}", workload.name());
        assert!(spec["jobTemplate"]["spec"]["activeDeadlineSeconds"].is_u64(), "{}", workload.name());
        let source = workload.source;
        let by_hand = matches!(source, "adopt" | "import-whereabouts")
            || ["-admin", "-force", "-dry-run", "-read"].iter().any(|end| workload.name().ends_with(end));
        assert_eq!(spec["suspend"] == true, by_hand, "{source}: {}", workload.name());
    }
}

#[test]
fn the_installer_writes_to_three_folders_of_the_node() {
    let installer = Workload::of("", "DaemonSet", "metes-installer");
    let folders = ["/opt/cni/bin", "/etc/cni/net.d/metes.d"];
    let writable = BTreeSet::from([folders[0], folders[1], "/var/lib/cni/metes"]);
    assert_eq!(installer.host_paths(false), writable);
    assert_eq!(installer.host_paths(true), BTreeSet::from(["/etc/containerd"]));
    assert_eq!(installer.spec()["tolerations"], json!([{"operator": "Exists"}]));
    let uninstall = Workload::of("uninstall", "DaemonSet", "metes-uninstall");
    assert_eq!(uninstall.host_paths(false), BTreeSet::from([folders[0], folders[1], "/var/lib/cni"]));
}

#[test]
fn each_distribution_gets_the_plugin_where_its_runtime_looks() {
    let applied = Applied::get();
    let files = applied.manifests.files();
    let names: BTreeSet<&str> =
        files.iter().filter_map(|file| file.strip_prefix("overlays/")?.split('/').next()).collect();
    assert_eq!(names, OVERLAYS.iter().map(|overlay| overlay.0).collect());
    let page = fs::read_to_string(support::root().join("docs/install.md")).expect("the page");
    for (name, bin_dir, config) in OVERLAYS {
        let overlay = format!("overlays/{name}");
        assert!(
            page.contains(&format!("| `manifests/{overlay}` | `{bin_dir}` |")),
            "docs/install.md lacks {name}"
        );
        let text = fs::read_to_string(applied.manifests.path(&overlay).join("kustomization.yaml"));
        assert!(text.is_ok_and(|text| text.contains("# https://")), "{name} names no document");
        let source = |folder: &str| -> &'static str {
            applied.objects.get_key_value(folder).unwrap_or_else(|| panic!("there is no {folder}")).0
        };
        let installer = Workload::of(source(&overlay), "DaemonSet", "metes-installer");
        // The kubelet of Talos cannot look at it. Elsewhere a folder that is missing must not be made.
        let asked = if name == "talos" { "" } else { "Directory" };
        assert_eq!(installer.plugins(), (bin_dir, asked), "{name}");
        assert_eq!(installer.variable("NODE_BIN_DIR"), Some(bin_dir), "{name}");
        assert_eq!(installer.variable("RUNTIME_CONFIG"), config, "{name}");
        let folder = config.and_then(|config| config.rsplit_once('/')).map(|(folder, _)| folder);
        assert_eq!(installer.host_paths(true), folder.into_iter().collect(), "{name}");
        assert_eq!(
            installer.host_paths(false),
            BTreeSet::from([bin_dir, "/etc/cni/net.d/metes.d", "/var/lib/cni/metes"]),
            "{name}"
        );
        let own = format!("{overlay}/uninstall");
        let uninstall = if applied.objects.contains_key(&own) { source(&own) } else { "uninstall" };
        assert_eq!(
            Workload::of(uninstall, "DaemonSet", "metes-uninstall").plugins(),
            (bin_dir, asked),
            "{name}"
        );
        // Nodes may have any taints.
        assert_eq!(installer.spec()["tolerations"], json!([{"operator": "Exists"}]), "{name}");
        assert_eq!(level_of(applied.one(&overlay, "Namespace", "metes-system")), "privileged", "{name}");
    }
}

/// The installer looks at it once a minute, and a member of etcd when it starts.
#[test]
fn a_changed_host_file_restarts_no_pod() {
    let manifests = Manifests::copy();
    let others = || -> Vec<String> {
        let built = manifests.kustomize("");
        let documents = built.split("\n---\n").filter(|one| !one.contains("\nkind: ConfigMap\n"));
        documents.map(str::to_owned).collect()
    };
    let before = others();
    manifests.edit("base/metes.conf", "192.0.2.13", "192.0.2.14");
    assert_eq!(others(), before);
    assert!(before.iter().any(|one| one.contains("\nkind: StatefulSet\n")), "etcd is among them");
}

/// etcdctl takes an address of IPv6 only in brackets, and Kubernetes gives it without them.
#[test]
fn with_addresses_of_ipv6_etcdctl_gets_them_in_brackets() {
    let manifests = Manifests::copy();
    let endpoint = || -> String {
        let built = manifests.kustomize("");
        let (_, rest) = built.split_once("- name: ETCDCTL_ENDPOINTS\n").expect("etcd's pods have it");
        rest.lines().next().unwrap_or_default().trim().to_owned()
    };
    assert_eq!(endpoint(), "value: https://$(NODE_IP):12379");
    manifests.edit("base/kustomization.yaml", "components:\n", "components:\n  - ../ipv6\n");
    assert_eq!(endpoint(), "value: https://[$(NODE_IP)]:12379");
}

/// As GKE judges it: a pod of such a class needs a quota for it in its namespace.
#[test]
fn gke_has_a_quota_for_every_critical_class() {
    let quota = Applied::get().one("overlays/gke", "ResourceQuota", "metes-critical-pods");
    let scope = &quota["spec"]["scopeSelector"]["matchExpressions"][0];
    assert_eq!((&scope["scopeName"], &scope["operator"]), (&json!("PriorityClass"), &json!("In")));
    let classes = scope["values"].as_array().expect("it names classes");
    for workload in Workload::every().into_iter().filter(|one| one.source == "overlays/gke") {
        let class = &workload.spec()["priorityClassName"];
        let has_quota = classes.contains(class) && *workload.namespace() == quota["metadata"]["namespace"];
        assert!(class.is_null() || has_quota, "{}: {class}", workload.name());
    }
    assert_eq!(classes.len(), 2);
}

/// The server's own authorizer says which security context constraints the accounts of the pods may use.
#[test]
fn openshift_lets_each_account_use_what_its_pods_need() {
    let source = "overlays/openshift";
    let api = &Applied::get().api;
    for name in ["privileged", "nonroot-v2"] {
        api.apply(&json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": format!("system:openshift:scc:{name}")},
            "rules": [{
                "apiGroups": ["security.openshift.io"], "resources": ["securitycontextconstraints"],
                "resourceNames": [name], "verbs": ["use"],
            }],
        }));
    }
    for (namespace, name) in [
        ("metes-system", "metes-node-scc"),
        ("metes-system", "metes-signer-scc"),
        ("metes-system", "metes-scc"),
        ("metes", "metes-scc"),
    ] {
        let mut object = Applied::get().one_in(&json!(namespace), source, "RoleBinding", name).clone();
        object["metadata"] = json!({"name": name, "namespace": namespace});
        api.apply(&object);
    }
    let may_use = |namespace: &str, account: &str, scc: &str| {
        let group = format!("system:serviceaccounts:{namespace}");
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {
                "user": format!("system:serviceaccount:{namespace}:{account}"),
                "groups": ["system:serviceaccounts", group, "system:authenticated"],
                "resourceAttributes": {
                    "group": "security.openshift.io", "resource": "securitycontextconstraints",
                    "name": scc, "namespace": namespace, "verb": "use",
                },
            },
        });
        api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", &review)["status"]["allowed"] == true
    };
    wait_for("the bindings to count", CRD_MAX, || {
        let counts = may_use("metes-system", NODE_ACCOUNT, "privileged")
            && ["metes-system", "metes"].iter().all(|namespace| may_use(namespace, "default", "nonroot-v2"));
        if counts { Ok(()) } else { Err("not yet".to_owned()) }
    });
    let is_of_openshift = |one: &Workload| one.source.starts_with(source);
    for workload in Workload::every().into_iter().filter(is_of_openshift) {
        let (name, spec) = (workload.name(), workload.spec());
        let account = spec["serviceAccountName"].as_str().unwrap_or("default");
        let on_the_node = ON_THE_NODE.contains(&name);
        let namespace = workload.namespace().as_str().expect("it is in a namespace");
        assert_eq!(may_use(namespace, account, "privileged"), on_the_node, "{name}");
        assert!(may_use(namespace, account, "nonroot-v2"), "{name}");
        if !on_the_node {
            assert_allowed_by_nonroot(&workload);
        }
        let selinux = &spec["securityContext"]["seLinuxOptions"]["type"];
        assert_eq!(selinux == "spc_t", on_the_node, "{name}: {selinux}");
    }
    let namespace = Applied::get().one(source, "Namespace", "metes-system");
    assert_eq!(namespace["metadata"]["annotations"]["openshift.io/node-selector"], "");
}

/// As OpenShift's constraints nonroot-v2 judge a pod, beside what every pod here has.
fn assert_allowed_by_nonroot(workload: &Workload) {
    let (name, spec) = (workload.name(), workload.spec());
    assert_eq!(spec["securityContext"]["runAsNonRoot"], true, "{name}");
    assert_ne!(spec["hostNetwork"], true, "{name}");
    for volume in workload.volumes() {
        let kinds = ["configMap", "emptyDir", "projected", "secret"];
        assert!(kinds.iter().any(|kind| !volume[kind].is_null()), "{name}: {volume}");
    }
}

/// A node's installer is ready only if its plugin works, so a bad image stops after one step.
#[test]
fn a_new_plugin_reaches_few_nodes_at_a_time() {
    let spec = &Workload::of("", "DaemonSet", "metes-installer").object["spec"];
    assert_eq!(spec["updateStrategy"]["rollingUpdate"]["maxUnavailable"], "2%");
    let wait = spec["minReadySeconds"].as_u64().map(Duration::from_secs);
    assert!(wait > Some(limits::ADD_DEADLINE), "{wait:?}");
}

#[test]
fn etcd_is_three_members_that_speak_to_nobody_without_a_certificate() {
    let applied = Applied::get();
    let etcd = Workload::of("", "StatefulSet", "etcd");
    assert_eq!(etcd.object["spec"]["replicas"], 3);
    assert_eq!(etcd.spec()["hostNetwork"], true);
    let apart = &etcd.spec()["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    assert_eq!(apart[0]["topologyKey"], "kubernetes.io/hostname");
    assert_eq!(apart[0]["labelSelector"]["matchLabels"], etcd.object["spec"]["selector"]["matchLabels"]);
    assert_eq!(applied.one("", "PodDisruptionBudget", "etcd")["spec"]["maxUnavailable"], 1);

    let configs = etcd.volumes().iter().flat_map(|volume| volume["projected"]["sources"].as_array());
    let mut names = configs.flatten().filter_map(|one| one["configMap"]["name"].as_str());
    let name = names.find(|name| name.starts_with("metes-etcd-")).expect("its name tells its content");
    let text = applied.one("", "ConfigMap", name)["data"]["etcd.json"].as_str().expect("it is text");
    let config: Value = serde_json::from_str(text).expect("etcd.json is JSON");
    let container = &etcd.spec()["containers"][0];
    assert!(quota_of(container) <= memory_of(container) / 4 * 3);
    assert_eq!(config["enable-grpc-gateway"], false);
    assert_eq!(config["tls-min-version"], "TLS1.3");
    assert_eq!(
        (&config["auto-compaction-mode"], &config["auto-compaction-retention"]),
        (&json!("periodic"), &json!("1h"))
    );
    for side in ["client-transport-security", "peer-transport-security"] {
        assert_eq!(config[side]["client-cert-auth"], true, "{side}");
        assert!(config[side]["trusted-ca-file"].is_string(), "{side}");
    }
    // The way in which a member begins is found out before each start of etcd, also if only its container starts again.
    assert!(config["initial-cluster-state"].is_null());
    assert_eq!(container["command"], json!(["/tools/metes-install"]));
    assert_eq!(container["args"][0], "etcd");
    let mounts = container["volumeMounts"].as_array().expect("it has mounts");
    let folders: BTreeSet<&str> = mounts.iter().filter_map(|one| one["mountPath"].as_str()).collect();
    for folder in ["/tools", "/etc/metes", "/run/etcd", "/var/lib/etcd", "/etc/etcd/server", "/etc/etcd/peer"]
    {
        assert!(folders.contains(folder), "{folder}");
    }
}

/// The bytes that etcd keeps. It maps its whole database, so a member that has filled its quota needs as much memory.
fn quota_of(etcd: &Value) -> u64 {
    let args = etcd["args"].as_array().expect("it has arguments");
    let mut quotas = args.iter().filter_map(|one| one.as_str()?.strip_prefix("--quota-bytes="));
    quotas.next().and_then(|bytes| bytes.parse().ok()).expect("it has a quota")
}

fn memory_of(etcd: &Value) -> u64 {
    let limit = etcd["resources"]["limits"]["memory"].as_str().and_then(|text| text.strip_suffix("Gi"));
    limit.and_then(|gib| gib.parse::<u64>().ok()).expect("a limit in GiB") << 30
}

/// Guaranteed memory and processors, and a disk of its own, without which the member does not start.
#[test]
fn production_gives_etcd_what_a_million_interfaces_take() {
    let manifests = Manifests::copy();
    manifests.edit("base/kustomization.yaml", "components:\n", "components:\n  - ../production\n");
    let built = manifests.kustomize("");
    let etcd = built.split("\n---\n").find(|one| one.contains("\nkind: StatefulSet\n")).expect("etcd");
    let applied = Applied::get();
    let folder = tempfile::tempdir().expect("a folder can be made");
    let kubectl = Kubectl::new(applied.api.kubeconfig(folder.path()));
    let renamed = etcd.replace("\n  name: etcd\n", "\n  name: etcd-production\n");
    let objects = apply_and_delete(&applied.api, &kubectl, "production", &renamed);
    let spec = &objects[0]["spec"]["template"]["spec"];
    let container = &spec["containers"][0];
    let all =
        [&spec["initContainers"], &spec["containers"]].into_iter().filter_map(Value::as_array).flatten();
    for one in all {
        assert_eq!(one["resources"]["requests"], one["resources"]["limits"], "it is not guaranteed: {one}");
    }
    assert_eq!(container["resources"]["limits"], json!({"cpu": "2", "memory": "4Gi"}));
    assert_eq!((quota_of(container), memory_of(container)), (3 << 30, 4 << 30));
    let volumes = spec["volumes"].as_array().expect("it has volumes");
    let data = volumes.iter().find(|one| one["name"] == "data").expect("it has data");
    assert_eq!(data["hostPath"]["type"], "Directory");
    let usual = Workload::of("", "StatefulSet", "etcd");
    let usual = usual.volumes().iter().find(|one| one["name"] == "data").expect("it has data");
    assert_eq!(data["hostPath"]["path"], usual["hostPath"]["path"], "a restore knows one folder");
}

/// Without its ConfigMap the Jobs are as before. With it, they have the file where the documentation says.
#[test]
fn adopt_takes_the_default_network_that_a_person_names() {
    let docs = fs::read_to_string(support::root().join("docs/operations.md"));
    let docs = docs.expect("it is there");
    let (name, file) = ("metes-default-network", "default-network.conflist");
    assert!(docs.contains(&format!("create configmap {name} --from-literal=path=/etc/metes/{file}")));
    assert!(docs.contains(&format!("--from-file={file}=")));
    for cronjob in ["metes-adopt", "metes-adopt-dry-run"] {
        let workload = Workload::of("adopt", "CronJob", cronjob);
        let container = workload.containers()[0];
        let variable = &container["env"][0];
        assert_eq!(variable["name"], "METES_RECONCILER_DEFAULT_NETWORK");
        let reference = json!({"name": name, "key": "path", "optional": true});
        assert_eq!(variable["valueFrom"]["configMapKeyRef"], reference, "{cronjob}");
        assert_eq!(container["volumeMounts"][0]["mountPath"], "/etc/metes");
        let whole = json!({"configMap": {"name": name, "optional": true}});
        assert!(volume_sources(&workload).contains(&&whole), "{cronjob}");
    }
}

/// The keys of etcd's root and of the authorities. A node that is taken over must not get a pod that has them.
#[test]
fn keys_of_etcd_are_in_pods_on_its_nodes_alone() {
    let mut with_key = BTreeSet::new();
    for workload in Workload::every() {
        let name = workload.name();
        for source in volume_sources(&workload) {
            let secret = &source["secret"];
            let named = secret["secretName"].as_str().or(secret["name"].as_str()).unwrap_or_default();
            let items = secret["items"].as_array();
            let has_key = items.is_none_or(|items| items.iter().any(|item| item["key"] == "tls.key"));
            let is_strong =
                ["metes-ca", "metes-node-ca", "metes-etcd-server", "metes-etcd-peer", "metes-signer"];
            if has_key && is_strong.contains(&named) {
                assert_eq!(workload.spec()["nodeSelector"], json!({OF_ETCD: ""}), "{name}");
                with_key.insert((name, named));
            }
        }
    }
    let expected = [
        ("etcd", "metes-etcd-peer"),
        ("etcd", "metes-etcd-server"),
        ("metes-signer", "metes-node-ca"),
        ("metes-signer", "metes-signer"),
    ];
    assert_eq!(with_key, BTreeSet::from(expected));
    // An account reads the authority's key: its pods run there, too. tests/kube/rbac.rs has the rights of all others.
    let workloads = Workload::every().into_iter();
    let readers: Vec<Workload> =
        workloads.filter(|one| one.spec()["serviceAccountName"] == "metes-certificates").collect();
    assert!(readers.iter().any(|one| one.source.is_empty()));
    for reader in readers {
        assert_eq!(reader.spec()["nodeSelector"], json!({OF_ETCD: ""}), "{}", reader.source);
    }
}

/// A pod takes connections at the ports that it serves, and makes them to DNS, the API server and etcd.
#[test]
fn policies_let_pods_do_their_work_and_no_more() {
    let applied = Applied::get();
    let policies: Vec<&Value> =
        applied.objects["namespaces"].iter().filter(|one| one["kind"] == "NetworkPolicy").collect();
    let ports = |policies: &[&Value], direction: &str| -> BTreeSet<u64> {
        let rules = policies.iter().flat_map(|one| one["spec"][direction].as_array()).flatten();
        let ports = rules.flat_map(|rule| rule["ports"].as_array().expect("no rule opens all ports"));
        ports.map(|port| port["port"].as_u64().expect("a number")).collect()
    };
    let of_etcd: BTreeSet<u64> = ["base", "byo-etcd"]
        .iter()
        .map(|folder| {
            let text = fs::read(applied.manifests.path(folder).join("metes.conf")).expect("it is there");
            let conf: Value = serde_json::from_slice(&text).expect("JSON");
            let endpoint = conf["etcd"]["endpoints"][0].as_str().expect("an endpoint");
            endpoint.rsplit(':').next().and_then(|port| port.parse().ok()).expect("it has a port")
        })
        .collect();
    let in_a_pod_network = |one: &Workload| one.spec()["hostNetwork"] != true && !is_example(one.source);
    for workload in Workload::every().into_iter().filter(in_a_pod_network) {
        let name = workload.name();
        let labels = &workload.template["metadata"]["labels"];
        let counts = |one: &&&Value| {
            one["metadata"]["namespace"] == *workload.namespace()
                && selects(&one["spec"]["podSelector"], labels)
        };
        let its: Vec<&Value> = policies.iter().filter(counts).copied().collect();
        for kind in ["Ingress", "Egress"] {
            let types = |one: &&Value| one["spec"]["policyTypes"].as_array().cloned().unwrap_or_default();
            assert!(its.iter().any(|one| types(one).contains(&json!(kind))), "{name}: any {kind}");
        }
        let served = workload.containers().into_iter().flat_map(|one| one["ports"].as_array()).flatten();
        let served: BTreeSet<u64> = served.filter_map(|port| port["containerPort"].as_u64()).collect();
        let taken = ports(&its, "ingress");
        assert!(served.is_subset(&taken), "{name} serves {served:?}, and {taken:?} are open");
        // The certificates' Job has no key for etcd.
        let expected: BTreeSet<u64> = match name {
            IN_A_POD_NETWORK => BTreeSet::new(),
            "metes-certificates" => DNS_AND_API.into(),
            _ => of_etcd.iter().copied().chain(DNS_AND_API).collect(),
        };
        assert_eq!(ports(&its, "egress"), expected, "{name}");
    }
}

fn selects(selector: &Value, labels: &Value) -> bool {
    let by_label = selector["matchLabels"].as_object().into_iter().flatten();
    let by_list = selector["matchExpressions"].as_array().into_iter().flatten();
    by_label.into_iter().all(|(key, value)| labels[key] == *value)
        && by_list.into_iter().all(|one| {
            let key = one["key"].as_str().expect("a key");
            let is_listed = one["values"].as_array().expect("values").contains(&labels[key]);
            match one["operator"].as_str() {
                Some("In") => is_listed,
                Some("NotIn") => !is_listed,
                other => panic!("{other:?}"),
            }
        })
}

/// A snapshot is for all members, and each of their nodes has its own of every day.
#[test]
fn each_node_of_etcd_keeps_snapshots_and_can_be_restored() {
    let etcd = Workload::of("", "StatefulSet", "etcd");
    let (data, snapshots) = ("/var/lib/metes-etcd/member", "/var/lib/metes-etcd-snapshots");
    assert_eq!(etcd.spec()["nodeSelector"], json!({OF_ETCD: ""}));
    assert_eq!(etcd.host_paths(false), BTreeSet::from([data, snapshots]));
    let care = &etcd.spec()["containers"][1];
    assert_eq!(care["args"], json!(["etcd-care", "--keep=7", "--crl=/var/lib/etcd/data.crl"]));
    let mounts = care["volumeMounts"].as_array().expect("it has mounts");
    let folders: BTreeSet<&str> = mounts.iter().filter_map(|one| one["mountPath"].as_str()).collect();
    assert_eq!(folders, BTreeSet::from(["/etc/metes", "/etc/etcd/server", "/snapshots", "/var/lib/etcd"]));
    let restore = Workload::of("etcd-restore", "DaemonSet", "metes-etcd-restore");
    assert_eq!(restore.spec()["nodeSelector"], etcd.spec()["nodeSelector"]);
    assert_eq!(restore.host_paths(true), BTreeSet::from([snapshots]), "a snapshot is only read");
    assert_eq!(restore.host_paths(false), BTreeSet::from([data]));
}

/// After the last member has taken its own. Copies stay twice as long as what they are copies of.
#[test]
fn snapshots_are_copied_to_a_claim_each_night() {
    let claim = json!({"claimName": "metes-etcd-snapshots"});
    let of = |name| Workload::of("etcd-snapshots-copy", "CronJob", name);
    let (copy, read) = (of("metes-etcd-snapshots-copy"), of("metes-etcd-snapshots-read"));
    for workload in [&copy, &read] {
        assert_eq!(workload.spec()["nodeSelector"], json!({OF_ETCD: ""}), "all of etcd is in a copy");
        assert!(workload.volumes().iter().any(|one| one["persistentVolumeClaim"] == claim));
    }
    let spec = &copy.object["spec"];
    assert_eq!((&spec["schedule"], &spec["timeZone"]), (&json!("7 4 * * *"), &json!("Etc/UTC")));
    assert_eq!(copy.containers()[0]["args"], json!(["snapshot-copy", "--from=/node", "--keep=14"]));
    assert_eq!(copy.host_paths(true), BTreeSet::from(["/var/lib/metes-etcd-snapshots"]));
    assert!(copy.host_paths(false).is_empty(), "the node's own stay as they are");
    assert!(read.host_paths(true).is_empty() && read.host_paths(false).is_empty());
}

/// Every object that pods name is there, or made by the makers of the certificates.
#[test]
fn what_pods_name_comes_along() {
    let applied = Applied::get();
    let in_its = |object: &'static Value, name: &'static Value| {
        (object["metadata"]["namespace"].as_str().expect("a namespace"), name.as_str().expect("a name"))
    };
    let of_kind = |source: &str, kind: &str| -> Vec<&'static Value> {
        applied.objects[source].iter().filter(|object| object["kind"] == kind).collect()
    };
    let certificates: BTreeSet<(&str, &str)> = of_kind("etcd-cert-manager", "Certificate")
        .into_iter()
        .map(|object| in_its(object, &object["spec"]["secretName"]))
        .collect();
    let named = |resource: &str| -> BTreeSet<(&str, &str)> {
        let roles = of_kind("etcd-certificates", "Role").into_iter();
        let rules = roles
            .flat_map(|role| role["rules"].as_array().into_iter().flatten().map(move |rule| (role, rule)));
        let of_it = rules.filter(|(_, rule)| rule["resources"] == json!([resource]));
        of_it
            .flat_map(|(role, rule)| {
                rule["resourceNames"].as_array().into_iter().flatten().map(move |name| in_its(role, name))
            })
            .collect()
    };
    let mut made = named("secrets");
    // The component one-key goes with cert-manager: no signer, and no authority of its own.
    let [one_key, of_signer] = [["metes-node"].as_slice(), &["metes-node-ca", "metes-signer"]]
        .map(|names| names.iter().map(|name| ("metes-system", *name)).collect::<BTreeSet<_>>());
    let with_one_key: BTreeSet<_> = made.difference(&of_signer).chain(&one_key).copied().collect();
    assert_eq!(with_one_key, certificates, "the Job and cert-manager make the same");
    made.extend(one_key);
    let trusted = named("configmaps");
    for workload in Workload::every() {
        let name = workload.name();
        for source in volume_sources(&workload) {
            let secret = source["secret"]["secretName"].as_str().or(source["secret"]["name"].as_str());
            let namespace = workload.namespace();
            if let Some(secret) = secret {
                let place = (namespace.as_str().expect("a namespace"), secret);
                assert!(made.contains(&place), "{name} names the Secret {place:?}");
            }
            let config = source["configMap"]["name"].as_str();
            let Some(config) = config.filter(|_| WHOLE[..2].contains(&workload.source)) else { continue };
            if trusted.contains(&(namespace.as_str().expect("a namespace"), config)) {
                assert_eq!(workload.source, "", "{name}: the Job makes it");
                continue;
            }
            let data = &applied.one_in(namespace, workload.source, "ConfigMap", config)["data"];
            for item in source["configMap"]["items"].as_array().into_iter().flatten() {
                let key = item["key"].as_str().expect("an item has a key");
                assert!(data[key].is_string(), "{name} names {key} of {config}");
            }
        }
    }
}

fn volume_sources(workload: &Workload) -> Vec<&'static Value> {
    let mut sources = Vec::new();
    for volume in workload.volumes() {
        sources.push(volume);
        sources.extend(volume["projected"]["sources"].as_array().into_iter().flatten());
    }
    sources
}

#[test]
fn services_and_budgets_select_pods() {
    for source in WHOLE.into_iter().chain(["reconciler-deployment"]) {
        let objects = &Applied::get().objects[source];
        let workloads = Workload::every();
        let workloads: Vec<&Workload> = workloads.iter().filter(|one| one.source == source).collect();
        for object in objects {
            let selector = match object["kind"].as_str() {
                Some("Service") => &object["spec"]["selector"],
                Some("PodDisruptionBudget") => &object["spec"]["selector"]["matchLabels"],
                _ => continue,
            };
            let selector = selector.as_object().expect("it selects");
            let selected: Vec<&&Workload> = workloads
                .iter()
                .filter(|one| {
                    selector.iter().all(|(key, value)| one.template["metadata"]["labels"][key] == *value)
                })
                .collect();
            assert_eq!(selected.len(), 1, "{source}: {}", object["metadata"]["name"]);
            let ports = object["spec"]["ports"].as_array().into_iter().flatten();
            for port in ports.map(|port| &port["targetPort"]) {
                let containers = selected[0].containers();
                let mut named = containers.iter().flat_map(|one| one["ports"].as_array()).flatten();
                assert!(named.any(|one| one["name"] == *port), "{source}: port {port}");
            }
        }
    }
}

#[test]
fn every_image_has_a_version_and_is_renamed_in_one_place() {
    let renamed = Manifests::copy();
    for image in ["metes-install", "metes-reconciler"] {
        let (old, new) =
            (format!("newName: localhost/{image}\n"), format!("newName: registry.example/{image}\n"));
        renamed.edit("images/kustomization.yaml", &old, &new);
    }
    for source in WHOLE {
        let workloads: Vec<Workload> =
            Workload::every().into_iter().filter(|one| one.source == source).collect();
        assert!(!workloads.is_empty(), "{source}");
        for container in workloads.iter().flat_map(Workload::containers) {
            let image = container["image"].as_str().expect("a container has an image");
            let (_, tag) = image.rsplit_once(':').unwrap_or_default();
            assert!(tag.contains('.'), "{source}: {image}");
        }
        let yaml = renamed.kustomize(source);
        let images =
            yaml.lines().filter_map(|line| line.trim_start_matches(['-', ' ']).strip_prefix("image: "));
        for image in images {
            assert!(
                image.starts_with("registry.example/metes-") || !image.contains("metes"),
                "{source}: {image}"
            );
        }
    }
}

/// A GitOps tool creates what is missing and changes what differs: a Job that is deleted when it is done would be
/// created forever, and one whose image changes cannot be changed.
#[test]
fn a_gitops_tool_finds_nothing_to_do_and_can_upgrade() {
    let applied = Applied::get();
    let folder = tempfile::tempdir().expect("a folder can be made");
    let kubectl = Kubectl::new(applied.api.kubeconfig(folder.path()));
    let others = Manifests::copy();
    others.edit("base/kustomization.yaml", "components:\n", "components:\n  - ../gitops\n");
    let job = |text: String| -> String {
        let mut documents = text.split("\n---\n").filter(|one| one.contains("\nkind: Job\n"));
        let job = documents.next().expect("there is a Job").to_owned();
        assert!(documents.next().is_none(), "there is one Job");
        // Another name than the other tests have.
        job.replace("name: metes-certificates\n", "name: metes-certificates-gitops\n")
    };
    let (first, usual) = (job(others.kustomize("")), applied.one("", "Job", "metes-certificates"));
    let objects = kubectl.apply(&first);
    assert!(usual["spec"]["ttlSecondsAfterFinished"].is_u64(), "kubectl apply needs it gone: {usual}");
    assert!(objects[0]["spec"]["ttlSecondsAfterFinished"].is_null(), "{}", objects[0]);
    let annotations = &objects[0]["metadata"]["annotations"];
    assert_eq!(annotations["argocd.argoproj.io/hook"], "Sync");
    assert_eq!(annotations["argocd.argoproj.io/hook-delete-policy"], "BeforeHookCreation");
    assert_eq!(annotations["kustomize.toolkit.fluxcd.io/force"], "enabled");

    others.edit(
        "images/kustomization.yaml",
        &format!("newTag: {}\n", env!("CARGO_PKG_VERSION")),
        "newTag: 99.0.0\n",
    );
    let second = job(others.kustomize(""));
    let refused = kubectl.run(["apply", "--server-side", "-f", "-"], &second);
    assert!(!refused.succeeded() && refused.stderr.contains("immutable"), "{refused}");
    // Argo CD and Flux do this where these annotations stand, and so does a person who does not want to wait.
    let path = applied.api.path_of(&objects[0]);
    let delete =
        || applied.api.ask("DELETE", &path, Some(&json!({"propagationPolicy": "Background"}))).ok(&path);
    delete();
    kubectl.apply(&second);
    delete();
}

/// Nothing keeps to the usual namespaces with the component rename. Certificates of cert-manager are left out here:
/// docs/install.md says so.
#[test]
fn any_namespace_will_do() {
    let applied = Applied::get();
    let folder = tempfile::tempdir().expect("a folder can be made");
    let kubectl = Kubectl::new(applied.api.kubeconfig(folder.path()));
    let other = Manifests::copy();
    other.edit("base/metes.conf", "change-me", "c1");
    other.edit("site/kustomization.yaml", "  # - ../rename\n", "  - ../rename\n");
    // The first one brings the namespaces.
    for whole in WHOLE.into_iter().chain(["monitoring", "overlays/openshift", "overlays/gke"]) {
        let yaml = other.kustomize(whole);
        for word in ["metes-system", "metes.svc", "namespace: metes\n", "from: metes/", "value: metes\n"] {
            assert!(!yaml.contains(word), "{whole} has {word:?}: {yaml}");
        }
        for object in apply_and_delete(&applied.api, &kubectl, whole, &yaml) {
            let name = &object["metadata"]["name"];
            if object["kind"] == "ClusterRoleBinding" && name == INSTALLER {
                assert_eq!(object["subjects"][0]["namespace"], "net-system", "the account is there");
            }
            let named = [&object].into_iter().chain(object["subjects"].as_array().into_iter().flatten());
            for namespace in
                named.map(|one| one["metadata"]["namespace"].as_str().or(one["namespace"].as_str()))
            {
                assert!(
                    matches!(namespace, None | Some("net-system" | "net")),
                    "{whole}: {name}: {namespace:?}"
                );
            }
        }
    }
}

/// With each way to certificates: by the Job, by cert-manager, or of an authority of one's own.
#[test]
fn one_key_for_all_nodes_needs_no_signer() {
    let applied = Applied::get();
    let folder = tempfile::tempdir().expect("a folder can be made");
    let kubectl = Kubectl::new(applied.api.kubeconfig(folder.path()));
    let [job, cert_manager] = [Manifests::copy(), Manifests::copy()];
    for one in [&job, &cert_manager] {
        one.edit("base/kustomization.yaml", ONE_KEY.0, ONE_KEY.1);
    }
    cert_manager.edit("base/kustomization.yaml", "  - ../etcd-certificates\n", "  - ../etcd-cert-manager\n");
    for (name, manifests, whole) in [
        ("by a Job", &job, ""),
        ("on OpenShift", &job, "overlays/openshift"),
        ("by cert-manager", &cert_manager, ""),
        ("of your own", &applied.manifests, "byo-etcd"),
    ] {
        let objects = apply_and_delete(&applied.api, &kubectl, name, &manifests.kustomize(whole));
        let of = |kind: &str, wanted: &str| {
            let is_it = |one: &&Value| one["kind"] == kind && one["metadata"]["name"] == wanted;
            objects.iter().find(is_it)
        };
        assert!(objects.iter().all(|one| one["metadata"]["name"] != "metes-signer"), "{name}");
        assert!(of("ClusterRole", INSTALLER).is_none() && of("ClusterRoleBinding", INSTALLER).is_none());
        let installer = &of("DaemonSet", INSTALLER).expect(name)["spec"]["template"]["spec"];
        assert_eq!(installer["automountServiceAccountToken"], false, "{name}");
        let env = installer["containers"][0]["env"].as_array().expect("variables");
        assert!(env.len() == 4 && env.iter().all(|one| one["name"] != "SIGNER"), "{name}: {env:?}");
        let volumes = installer["volumes"].as_array().expect("volumes").iter();
        let sources = volumes.filter_map(|one| one["projected"]["sources"].as_array()).flatten();
        let names: Vec<[&Value; 2]> =
            sources.map(|one| [&one["configMap"]["name"], &one["secret"]["name"]]).collect();
        let expected = [[json!("metes-config"), Value::Null], [Value::Null, json!("metes-node")]];
        assert_eq!(names, expected.each_ref().map(|pair| pair.each_ref()), "{name}");
        if let Some(job) = of("Job", "metes-certificates") {
            let args = &job["spec"]["template"]["spec"]["containers"][0]["args"];
            assert_eq!(args, &json!(["certificates", "--one-key"]), "{name}");
            let roles = objects.iter().filter(|one| one["kind"] == "Role").map(Value::to_string);
            assert_eq!(roles.filter(|role| role.contains("\"metes-node\"")).count(), 1, "{name}");
        }
        let makes = of("Job", "metes-certificates").is_some() || of("Certificate", "metes-node").is_some();
        assert_eq!(makes, whole != "byo-etcd", "{name}");
    }
}

/// The choices that the documentation offers.
#[test]
fn other_ways_are_applied_too() {
    let applied = Applied::get();
    let other = Manifests::copy();
    other.edit("base/kustomization.yaml", "  - ../reconciler\n", "  - ../reconciler-deployment\n");
    other.edit("base/kustomization.yaml", "  - ../etcd-certificates\n", "  - ../etcd-cert-manager\n");
    other.edit("base/kustomization.yaml", ONE_KEY.0, ONE_KEY.1);
    other.edit("base/kustomization.yaml", "components:\n", "components:\n  - ../events\n");
    other.edit("site/kustomization.yaml", HOST_NETWORK.0, HOST_NETWORK.1);
    other.edit("base/kustomization.yaml", "  - ../viewer\n", "  - ../viewer\n  - ../etcd-snapshots-copy\n");
    let folder = tempfile::tempdir().expect("a folder can be made");
    let kubectl = Kubectl::new(applied.api.kubeconfig(folder.path()));
    let objects = apply_and_delete(&applied.api, &kubectl, "other ways", &other.kustomize(""));
    let of_kind = |kind: &str| -> Vec<&Value> { objects.iter().filter(|one| one["kind"] == kind).collect() };
    let deployment =
        of_kind("Deployment").into_iter().find(|one| one["metadata"]["name"] == "metes-reconciler");
    let deployment = deployment.expect("the reconciler");
    let spec = &deployment["spec"]["template"]["spec"];
    let args = spec["containers"][0]["args"].as_array().expect("it has arguments");
    assert!(args.contains(&json!("--events")), "{args:?}");
    assert!(spec["containers"][0]["image"].as_str().is_some_and(|image| image.contains(':')), "{spec}");
    // A node has room for one of its replicas: a rollout must end where there is no other node. Pod Security allows it.
    assert_eq!(spec["hostNetwork"], true);
    let namespace =
        objects.iter().find(|one| one["metadata"]["name"] == "metes" && one["kind"] == "Namespace");
    assert_eq!(level_of(namespace.expect("the namespace")), "privileged");
    let rollout = &deployment["spec"]["strategy"]["rollingUpdate"];
    assert_eq!((&rollout["maxSurge"], &rollout["maxUnavailable"]), (&json!(0), &json!(1)));
    let cronjobs: BTreeSet<&str> =
        of_kind("CronJob").iter().filter_map(|one| one["metadata"]["name"].as_str()).collect();
    assert_eq!(
        cronjobs,
        BTreeSet::from([
            "metes-admin",
            "metes-etcd-snapshots-copy",
            "metes-etcd-snapshots-read",
            "metes-reconciler-dry-run",
            "metes-reconciler-force",
        ])
    );
    assert_eq!(of_kind("Certificate").len(), 9);
    let makes_certificates = |one: &&Value| one["metadata"]["name"] == "metes-certificates";
    assert!(of_kind("Job").is_empty() && !of_kind("Role").iter().any(makes_certificates));
    // OpenShift allows folders of the node to this account and type alone.
    let openshift = other.kustomize("overlays/openshift");
    let copies: Vec<&str> =
        openshift.split("\n---\n").filter(|one| one.contains("\n  name: metes-etcd-snapshots-")).collect();
    assert_eq!(copies.len(), 2);
    for copy in copies {
        assert!(
            copy.contains(" serviceAccountName: metes-node\n") && copy.contains(" type: spc_t\n"),
            "{copy}"
        );
    }
}
