//! The Helm chart says what manifests/ say, for each distribution and for choices together, and a real API server takes
//! an installation and an upgrade.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use metes_chart::chart::{Images, Source, write};
use metes_chart::choices::{Choices, FACTORS};
use metes_chart::render::{Renderer, marks};
use serde_json::{Value, json};
use support::{KubeApi, Kubectl, Manifests, Outcome, Run, root, tool};
use tempfile::TempDir;

use crate::manifests_api::install_crds_of_others;

const HELMS: [&str; 2] = ["helm-3", "helm-4"];
/// Choices that meet in an object, and some that do not.
const TOGETHER: [&[(&str, &str)]; 9] = [
    &[("hostNetwork", "true")],
    &[("ownEtcd", "true")],
    &[("distribution", "openshift"), ("hostNetwork", "true"), ("production", "true"), ("ipv6", "true")],
    &[("distribution", "talos"), ("ownEtcd", "true"), ("events", "true")],
    &[("distribution", "microk8s"), ("ownEtcd", "true"), ("hostNetwork", "true")],
    &[("distribution", "gke"), ("reconcilerDeployment", "true"), ("events", "true"), ("hostNetwork", "true")],
    &[("distribution", "rke2"), ("monitoring", "true"), ("webhook", "true"), ("production", "true")],
    &[("distribution", "openshift"), ("snapshotsCopy", "true"), ("webhook", "true"), ("hostNetwork", "true")],
    &[("distribution", "k3s"), ("ipv6", "true"), ("reconcilerDeployment", "true"), ("monitoring", "true")],
];

/// The chart, generated once.
struct Chart {
    folder: TempDir,
    source: Source,
}

impl Chart {
    fn get() -> &'static Self {
        static CHART: OnceLock<Chart> = OnceLock::new();
        CHART.get_or_init(|| {
            let folder = tempfile::tempdir().expect("a folder can be made");
            let images = Images {
                install: "localhost/metes-install:0.1.0".to_owned(),
                reconciler: "localhost/metes-reconciler:0.1.0".to_owned(),
                etcd: "quay.io/coreos/etcd:v3.6.14".to_owned(),
            };
            let version = env!("CARGO_PKG_VERSION").to_owned();
            let source = Source { root: root().to_owned(), kustomize: tool("kustomize"), version, images };
            write(&source, &folder.path().join("metes")).expect("it is generated");
            Self { folder, source }
        })
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("metes")
    }

    /// What helm makes of it with these values.
    #[track_caller]
    fn objects(&self, helm: &str, values: &Value) -> BTreeMap<String, Value> {
        let path = self.path();
        let values = values.to_string();
        let arguments = ["template", "metes", path.to_str().expect("it is text"), "--values", "-"];
        let outcome = run(helm, arguments.into_iter().chain(["--kube-version", "1.34.2"]), &values);
        assert!(outcome.succeeded(), "{helm} {values}\n{outcome}");
        objects(outcome.stdout.split("\n---\n").map(|text| text.trim_start_matches("---\n")))
    }
}

fn run<'a>(helm: &str, arguments: impl IntoIterator<Item = &'a str>, stdin: &str) -> Outcome {
    let home = tempfile::tempdir().expect("a folder can be made");
    Run::new(tool(helm)).env("HOME", home.path()).arguments(arguments).stdin(stdin).run()
}

/// The values that must be given, as base/metes.conf or byo-etcd/metes.conf has them.
fn required(own_etcd: bool, ipv6: bool) -> Value {
    let name = if own_etcd { "byo-etcd" } else { "base" };
    let text = fs::read_to_string(root().join(format!("manifests/{name}/metes.conf"))).expect("it is there");
    let file: Value = serde_json::from_str(&text).expect("it is JSON");
    // An addresses's form says the family.
    let endpoints = if ipv6 { json!(["https://[fd00::1]:12379"]) } else { file["etcd"]["endpoints"].clone() };
    json!({"cluster": "prod-1", "allowed": "any", "endpoints": endpoints})
}

/// By kind, namespace and name; without what a chart has to say in another way.
fn objects<'a>(texts: impl Iterator<Item = &'a str>) -> BTreeMap<String, Value> {
    let mut objects = BTreeMap::new();
    for text in texts {
        let mut object: Value = yaml_serde::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let kind = object["kind"].as_str().expect("it has a kind").to_owned();
        let metadata = &mut object["metadata"];
        if kind == "Job" {
            let name = metadata["name"].as_str().expect("it has a name").trim_end_matches("-1").to_owned();
            metadata["name"] = name.into();
        }
        if kind == "Namespace"
            && let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut)
        {
            annotations.remove("helm.sh/resource-policy");
            if annotations.is_empty() {
                metadata.as_object_mut().expect("an object").remove("annotations");
            }
        }
        let id = format!("{kind} {} {}", metadata["namespace"], metadata["name"]);
        if id.contains("\"metes-config\"") {
            let file = object["data"]["metes.conf"].as_str().expect("a host file");
            let mut file: Value = serde_json::from_str(file).expect("it is JSON");
            // These are values.
            file.as_object_mut().expect("an object").retain(|key, _| key == "etcd");
            file["etcd"]["endpoints"].take();
            object["data"]["metes.conf"] = file;
        }
        assert!(objects.insert(id.clone(), object).is_none(), "{id} is there twice");
    }
    objects
}

#[track_caller]
fn assert_same(found: &BTreeMap<String, Value>, expected: &BTreeMap<String, Value>, of: &str) {
    let ids = |objects: &BTreeMap<String, Value>| objects.keys().cloned().collect::<Vec<_>>();
    assert_eq!(ids(found), ids(expected), "{of}");
    for (id, object) in expected {
        assert_eq!(found[id], *object, "{of}: {id}");
    }
}

#[test]
fn the_chart_of_each_distribution_is_its_overlay() {
    let (chart, manifests) = (Chart::get(), Manifests::copy());
    for distribution in FACTORS[0].options {
        let folder = match *distribution {
            "kubeadm" => String::new(),
            name => format!("overlays/{name}"),
        };
        let yaml = manifests.kustomize(&folder);
        let mut values = required(false, false);
        values["distribution"] = json!(distribution);
        for helm in HELMS {
            let found = chart.objects(helm, &values);
            assert_same(&found, &objects(yaml.split("\n---\n")), &format!("{helm} {distribution}"));
        }
    }
}

#[test]
fn values_together_are_what_the_edits_together_are() {
    let chart = Chart::get();
    let mut renderer = Renderer::new(chart.source.root.join("manifests"), chart.source.kustomize.clone());
    for chosen in TOGETHER {
        let mut choices = Choices::default();
        for (name, option) in chosen {
            choices = choices.with_named(name, option).expect("it exists");
        }
        let mut values = required(choices.has("ownEtcd"), choices.has("ipv6"));
        for (name, option) in chosen.iter().filter(|(name, _)| *name != "ipv6") {
            values[*name] = if *name == "distribution" { json!(option) } else { json!(true) };
        }
        let rendered = renderer.objects(choices).expect("it is rendered");
        let texts: Vec<String> =
            rendered.values().map(|text| without_marks(text, &chart.source.images)).collect();
        let found = chart.objects("helm-4", &values);
        assert_same(&found, &objects(texts.iter().map(String::as_str)), &format!("{chosen:?}"));
    }
}

fn without_marks(text: &str, images: &Images) -> String {
    text.replace(marks::INSTALL, &images.install)
        .replace(marks::RECONCILER, &images.reconciler)
        .replace(marks::ETCD, &images.etcd)
        .replace(marks::SYSTEM_NAMESPACE, "metes-system")
        .replace(marks::NAMESPACE, "metes")
}

#[test]
fn values_reach_the_objects() {
    let mut values = required(false, false);
    values["hostFile"] = json!({"log_level": "debug", "etcd": {"prefix": "/a/"}});
    values["systemNamespace"] = json!("net-system");
    values["namespace"] = json!("net");
    values["imagePullSecrets"] = json!([{"name": "registry"}]);
    let objects = Chart::get().objects("helm-4", &values);
    let of = |id: &str| objects.get(id).unwrap_or_else(|| panic!("{id} is not among {:?}", objects.keys()));
    for namespace in ["net-system", "net"] {
        assert!(objects.contains_key(&format!("Namespace null \"{namespace}\"")));
        let file = &of(&format!("ConfigMap \"{namespace}\" \"metes-config\""))["data"]["metes.conf"];
        assert_eq!(file["etcd"]["prefix"], "/a/", "{file}");
        assert_eq!(file["etcd"]["server_name"], "metes-etcd", "{file}");
    }
    let pods = [
        ("DaemonSet \"net-system\" \"metes-installer\"", "/spec/template/spec"),
        ("StatefulSet \"net-system\" \"etcd\"", "/spec/template/spec"),
        ("CronJob \"net\" \"metes-reconciler\"", "/spec/jobTemplate/spec/template/spec"),
        ("Job \"net-system\" \"metes-certificates\"", "/spec/template/spec"),
    ];
    for (id, path) in pods {
        let pod = of(id).pointer(path).expect("it has a pod");
        assert_eq!(pod["imagePullSecrets"], json!([{"name": "registry"}]), "{id}");
    }
    let text = serde_json::to_string(&objects).expect("it is JSON");
    assert!(
        !text.contains("\"metes-system\"") && !text.contains("\"metes.metes"),
        "the usual names are left"
    );
}

#[test]
fn a_missing_or_wrong_value_is_named() {
    let path = Chart::get().path();
    let path = path.to_str().expect("it is text");
    let of = |values: &Value, more: &[&str]| {
        let arguments = ["template", "metes", path, "--kube-version", "1.34.2", "--values", "-"];
        let outcome = run("helm-4", arguments.into_iter().chain(more.iter().copied()), &values.to_string());
        assert!(!outcome.succeeded(), "{outcome}");
        outcome.stderr
    };
    let with = |key: &str, value: Value| {
        let mut values = required(false, false);
        values[key] = value;
        values
    };
    for (values, words) in [
        (json!({}), "missing properties 'cluster', 'endpoints', 'allowed'"),
        (with("cluster", json!("change-me")), "at '/cluster'"),
        (with("endpoints", json!(["10.0.0.11:12379"])), "at '/endpoints/0'"),
        (with("allowed", json!("storage")), "at '/allowed'"),
        (with("distribution", json!("k8s")), "at '/distribution'"),
        (with("hostnetwork", json!(true)), "additional properties 'hostnetwork' not allowed"),
    ] {
        let said = of(&values, &[]);
        assert!(said.contains(words), "{values}: {said}");
    }
    let said = of(&required(false, false), &["--namespace", "metes"]);
    assert!(
        said.contains("the chart makes the namespace metes: install the release in another one"),
        "{said}"
    );
}

#[test]
fn helm_finds_no_fault_and_a_real_server_takes_installation_and_upgrade() {
    let chart = Chart::get();
    let path = chart.path();
    let path = path.to_str().expect("it is text");
    for helm in HELMS {
        // helm lint takes a file, but not stdin.
        let values = chart.folder.path().join(format!("{helm}.json"));
        fs::write(&values, required(false, false).to_string()).expect("it can be written");
        let outcome = run(helm, ["lint", "--strict", path, "--values", text(&values)], "");
        assert!(outcome.succeeded() && !outcome.stdout.contains("[WARNING]"), "{outcome}");

        let api = KubeApi::start();
        install_crds_of_others(&api);
        let folder = tempfile::tempdir().expect("a folder can be made");
        let kubeconfig = api.kubeconfig(folder.path());
        let release = ["--namespace", "metes-release", "--create-namespace", "--values", text(&values)];
        let of = |arguments: &[&str]| {
            let all = arguments.iter().copied().chain(["--kubeconfig", text(&kubeconfig)]);
            let outcome = run(helm, all, "");
            assert!(outcome.succeeded(), "{outcome}");
        };
        of(&[&["install", "metes", path], &release[..]].concat());
        let kubectl = Kubectl::new(kubeconfig.clone());
        let job = |name: &str| {
            let arguments = ["-n", "metes-system", "get", "job", name, "-o", "name", "--ignore-not-found"];
            kubectl.run(arguments, "").stdout
        };
        assert_eq!(job("metes-certificates-1"), "job.batch/metes-certificates-1\n", "{helm}");
        // A changed image would be refused for a Job that is there.
        of(&[
            &["upgrade", "metes", path, "--set", "images.install=localhost/metes-install:99"],
            &release[..],
        ]
        .concat());
        assert_eq!(job("metes-certificates-1"), "", "{helm}");
        assert_eq!(job("metes-certificates-2"), "job.batch/metes-certificates-2\n", "{helm}");
        of(&["uninstall", "metes", "--namespace", "metes-release"]);
        let left = kubectl.run(["get", "namespace", "metes-system", "metes", "-o", "name"], "");
        assert_eq!(left.stdout, "namespace/metes-system\nnamespace/metes\n", "{helm}: {left}");
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("it is text")
}
