//! What a real API server makes of manifests/: it takes all of it, strictly, and what it then has keeps the promises.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::{Value, json};
use support::{KubeApi, Kubectl, Manifests, wait_for};
use tempfile::TempDir;

const CRD_MAX: Duration = Duration::from_secs(30);
/// What an operator applies as it is; the other folders are parts of these.
const WHOLE: [&str; 6] = ["", "byo-etcd", "adopt", "etcd-roles", "import-whereabouts", "uninstall"];
/// What must write to folders of the node or be in its network; all else runs under the strictest policy.
const ON_THE_NODE: [&str; 4] = ["etcd", "metes-etcd-snapshot", "metes-installer", "metes-uninstall"];
/// What must run where no pod has a network yet, because metes is to give it its addresses.
const IN_ITS_NETWORK: [&str; 3] = ["etcd", "metes-installer", "metes-uninstall"];

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
        install_cert_manager_crds(&api);
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
        let objects = self.objects.get(source).unwrap_or_else(|| panic!("there is no {source}"));
        let mut found =
            objects.iter().filter(|object| object["kind"] == kind && object["metadata"]["name"] == name);
        let one = found.next().unwrap_or_else(|| panic!("{source} has no {kind} {name}"));
        assert!(found.next().is_none(), "{source} has {kind} {name} twice");
        one
    }
}

/// Applies it twice; what the server has after the first time, which the second must not change.
fn apply_and_delete(api: &KubeApi, kubectl: &Kubectl, source: &str, yaml: &str) -> Vec<Value> {
    let answered = kubectl.apply(yaml);
    let read = |objects: &[Value]| -> Vec<Value> {
        objects.iter().map(|object| api.get(&api.path_of(object))).collect()
    };
    let first = read(&answered);
    let second = read(&kubectl.apply(yaml));
    assert_eq!(first, second, "{source}: applied again, it changes");
    // Nobody here ends the deletion of a namespace.
    for object in first.iter().filter(|object| object["kind"] != "Namespace") {
        let path = api.path_of(object);
        // A Job would otherwise wait for somebody who takes its pods along.
        api.ask("DELETE", &path, Some(&json!({"propagationPolicy": "Background"}))).ok(&path);
        assert!(api.find(&path).is_none(), "{path} stays");
    }
    first
}

/// The folders with a kustomization, the root as "".
fn kustomizations(manifests: &Manifests) -> Vec<String> {
    let files = manifests.files();
    let folders = files.iter().filter_map(|file| file.strip_suffix("kustomization.yaml"));
    folders
        .map(|folder| folder.trim_end_matches('/').to_owned())
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect()
}

fn is_example(file: &str) -> bool {
    file.starts_with("examples/") && file.ends_with(".yaml")
}

fn install_cert_manager_crds(api: &KubeApi) {
    for (kind, plural) in [("Issuer", "issuers"), ("Certificate", "certificates")] {
        let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        api.apply(&json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.cert-manager.io")},
            "spec": {
                "group": "cert-manager.io",
                "scope": "Namespaced",
                "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": any}}},
                }],
            },
        }));
        let list = format!("/apis/cert-manager.io/v1/{plural}");
        wait_for(&list, CRD_MAX, || {
            let discovered = api.ask("GET", "/apis/cert-manager.io/v1", None).body;
            let known = discovered["resources"]
                .as_array()
                .is_some_and(|all| all.iter().any(|one| one["kind"] == kind));
            let status = api.ask("GET", &list, None).status;
            if known && status == 200 { Ok(()) } else { Err(format!("{status}, {discovered}")) }
        });
    }
}

/// Kind and name of each document of a YAML file.
fn documents(text: &str) -> Vec<(String, String)> {
    let value = |line: &str, key: &str| line.strip_prefix(key).map(|rest| rest.trim().to_owned());
    let is_content = |line: &&str| !line.trim().is_empty() && !line.starts_with('#');
    text.split("\n---\n")
        .filter(|document| document.lines().any(|line| is_content(&line)))
        .map(|document| {
            let kind = document.lines().find_map(|line| value(line, "kind: "));
            let in_metadata = document.lines().skip_while(|line| *line != "metadata:");
            let name = in_metadata.skip(1).find_map(|line| value(line, "  name: "));
            (kind.expect("a document has a kind"), name.expect("a document has a name"))
        })
        .collect()
}

#[test]
fn all_that_is_there_is_applied() {
    let applied = Applied::get();
    let mut count = 0;
    for file in applied.manifests.files() {
        let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
        let extension = file.rsplit_once('.').map_or("", |(_, extension)| extension);
        let text = fs::read_to_string(applied.manifests.path(&file)).expect("manifests are text");
        match extension {
            _ if file.ends_with("kustomization.yaml") => {
                assert!(applied.objects.contains_key(folder), "{file}")
            }
            "yaml" => {
                let source = if is_example(&file) { &file } else { folder };
                for (kind, name) in documents(&text) {
                    applied.one(source, &kind, &name);
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

/// A workload and the template of its pods.
struct Workload {
    source: &'static str,
    object: &'static Value,
    template: &'static Value,
}

impl Workload {
    fn every() -> Vec<Self> {
        let of = |(source, object): (&'static str, &'static Value)| {
            let template = match object["kind"].as_str()? {
                "DaemonSet" | "Deployment" | "StatefulSet" | "Job" => &object["spec"]["template"],
                "CronJob" => &object["spec"]["jobTemplate"]["spec"]["template"],
                _ => return None,
            };
            Some(Self { source, object, template })
        };
        Applied::get().all().filter_map(of).collect()
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

    fn volumes(&self) -> &'static [Value] {
        self.spec()["volumes"].as_array().map_or(&[], Vec::as_slice)
    }

    /// The folders of the node that it can write to.
    fn host_paths(&self) -> BTreeSet<&'static str> {
        self.volumes().iter().filter_map(|volume| volume["hostPath"]["path"].as_str()).collect()
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
        create("metes").ok(name);
        if ON_THE_NODE.contains(&name) {
            let refused = create("baseline");
            assert_eq!(refused.status, 403, "{name} needs no privileged namespace: {}", refused.body);
        } else {
            create("restricted").ok(name);
        }
    }
    let namespace = Applied::get().one("", "Namespace", "metes");
    let enforced = &namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"];
    assert_eq!(enforced, "privileged", "some need it");
}

#[test]
fn containers_have_no_privileges_and_limits() {
    for workload in Workload::every() {
        let (name, spec) = (workload.name(), workload.spec());
        assert_eq!(spec["securityContext"]["seccompProfile"]["type"], "RuntimeDefault", "{name}");
        for key in ["hostPID", "hostIPC", "shareProcessNamespace"] {
            assert!(spec[key].is_null(), "{name}: {key}");
        }
        assert_eq!(spec["hostNetwork"] == true, IN_ITS_NETWORK.contains(&name), "{name}: hostNetwork");
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

/// Only who asks the API has a token, and it is that of an account of its own, which comes along.
#[test]
fn tokens_are_for_those_who_need_one() {
    let applied = Applied::get();
    for workload in Workload::every() {
        let (name, account) = (workload.name(), &workload.spec()["serviceAccountName"]);
        let has_token = workload.spec()["automountServiceAccountToken"] == true;
        assert_eq!(has_token, account.is_string(), "{name}");
        assert!(has_token || workload.spec()["automountServiceAccountToken"] == false, "{name}");
        if let Some(account) = account.as_str() {
            let account = applied.one(workload.source, "ServiceAccount", account);
            assert_eq!(account["automountServiceAccountToken"], false, "{name}");
            assert_eq!(account["metadata"]["namespace"], workload.object["metadata"]["namespace"], "{name}");
        }
    }
}

#[test]
fn passes_do_not_overlap_and_leave_little_behind() {
    let cronjob = Workload::of("", "CronJob", "metes-reconciler");
    let spec = &cronjob.object["spec"];
    assert_eq!(spec["concurrencyPolicy"], "Forbid");
    assert_eq!(
        (&spec["successfulJobsHistoryLimit"], &spec["failedJobsHistoryLimit"]),
        (&json!(1), &json!(3))
    );
    assert_eq!(spec["jobTemplate"]["spec"]["backoffLimit"], 0, "the next pass is the second try");
    assert_eq!(cronjob.spec()["restartPolicy"], "Never");
    assert!(cronjob.host_paths().is_empty());
    for workload in Workload::every().into_iter().filter(|one| one.object["kind"] == "CronJob") {
        let spec = &workload.object["spec"];
        assert_eq!(spec["concurrencyPolicy"], "Forbid", "{}", workload.name());
        assert!(spec["jobTemplate"]["spec"]["activeDeadlineSeconds"].is_u64(), "{}", workload.name());
        let source = workload.source;
        let by_hand = matches!(source, "adopt" | "etcd-roles" | "import-whereabouts");
        assert_eq!(spec["suspend"] == true, by_hand, "{source}");
    }
}

#[test]
fn the_installer_reaches_two_folders_of_the_node() {
    let installer = Workload::of("", "DaemonSet", "metes-installer");
    let folders = ["/opt/cni/bin", "/etc/cni/net.d/metes.d"];
    assert_eq!(installer.host_paths(), BTreeSet::from(folders));
    assert_eq!(installer.spec()["tolerations"], json!([{"operator": "Exists"}]));
    let uninstall = Workload::of("uninstall", "DaemonSet", "metes-uninstall");
    assert_eq!(uninstall.host_paths(), BTreeSet::from([folders[0], folders[1], "/var/lib/cni"]));
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
    assert_eq!(config["quota-backend-bytes"], 8_u64 << 30);
    assert_eq!(
        (&config["auto-compaction-mode"], &config["auto-compaction-retention"]),
        (&json!("periodic"), &json!("1h"))
    );
    for side in ["client-transport-security", "peer-transport-security"] {
        assert_eq!(config[side]["client-cert-auth"], true, "{side}");
        assert!(config[side]["trusted-ca-file"].is_string(), "{side}");
    }
}

/// What pods name is there, or made by those who make the certificates.
#[test]
fn what_pods_name_comes_along() {
    let applied = Applied::get();
    let certificates: BTreeSet<&str> = applied.objects["etcd-cert-manager"]
        .iter()
        .filter_map(|object| object["spec"]["secretName"].as_str())
        .collect();
    let rules = &applied.one("", "Role", "metes-certificates")["rules"];
    let patched =
        rules.as_array().expect("a role has rules").iter().find(|rule| rule["verbs"] == json!(["patch"]));
    let made: BTreeSet<&str> = patched.expect("it may patch")["resourceNames"]
        .as_array()
        .expect("by name")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    assert_eq!(made, certificates, "the Job and cert-manager make the same");
    for workload in Workload::every() {
        let name = workload.name();
        for source in volume_sources(&workload) {
            let secret = source["secret"]["secretName"].as_str().or(source["secret"]["name"].as_str());
            if let Some(secret) = secret {
                assert!(made.contains(secret), "{name} names the Secret {secret}");
            }
            let config = source["configMap"]["name"].as_str();
            let Some(config) = config.filter(|_| WHOLE[..2].contains(&workload.source)) else { continue };
            let data = &applied.one(workload.source, "ConfigMap", config)["data"];
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
        let (old, new) = (format!("newName: {image}\n"), format!("newName: registry.example/{image}\n"));
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

/// The choices that the documentation offers.
#[test]
fn other_ways_are_applied_too() {
    let applied = Applied::get();
    let other = Manifests::copy();
    other.edit("kustomization.yaml", "  - reconciler\n", "  - reconciler-deployment\n");
    other.edit("kustomization.yaml", "  - etcd-certificates\n", "  - etcd-cert-manager\n");
    other.edit("kustomization.yaml", "components:\n", "components:\n  - events\n");
    let folder = tempfile::tempdir().expect("a folder can be made");
    let kubectl = Kubectl::new(applied.api.kubeconfig(folder.path()));
    let objects = apply_and_delete(&applied.api, &kubectl, "other ways", &other.kustomize(""));
    let of_kind = |kind: &str| -> Vec<&Value> { objects.iter().filter(|one| one["kind"] == kind).collect() };
    let deployment = of_kind("Deployment")[0];
    let spec = &deployment["spec"]["template"]["spec"];
    let args = spec["containers"][0]["args"].as_array().expect("it has arguments");
    assert!(args.contains(&json!("--events")), "{args:?}");
    assert!(spec["containers"][0]["image"].as_str().is_some_and(|image| image.contains(':')), "{spec}");
    let cronjobs: BTreeSet<&str> =
        of_kind("CronJob").iter().filter_map(|one| one["metadata"]["name"].as_str()).collect();
    assert_eq!(cronjobs, BTreeSet::from(["metes-etcd-defrag", "metes-etcd-snapshot"]));
    assert_eq!(of_kind("Certificate").len(), 5);
    assert!(of_kind("Job").is_empty() && of_kind("Role").is_empty());
}
