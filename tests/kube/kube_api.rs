//! The API server of the reconciler's tests, and the faults before it, do as they say.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::{Value, json};
use support::{ApiProxy, KubeApi, Rule};
use tempfile::TempDir;

const PODS: usize = 25;

#[test]
fn a_server_starts_with_a_kube_system_of_its_own() {
    let api = KubeApi::start();
    assert_ne!(api.kube_system_uid(), KubeApi::shared().kube_system_uid());
    api.kill();
}

#[test]
fn pods_go_through_their_life() {
    let api = KubeApi::shared();
    let namespace = api.new_namespace();
    let pod = api.pod(&namespace, "web-0").node("there").annotation("some", "thing").create();
    let read = pod.get();
    assert_eq!(read["metadata"]["uid"], pod.uid());
    assert_eq!(read["metadata"]["annotations"]["some"], "thing");
    assert_eq!(read["spec"]["nodeName"], "there");
    assert_eq!(read["status"]["phase"], "Pending");
    for phase in ["Running", "Unknown", "Failed", "Succeeded"] {
        pod.phase(phase);
        assert_eq!(pod.get()["status"]["phase"], phase);
    }
    pod.network_status(&json!([{"name": "default/net", "interface": "net1", "ips": ["10.0.0.1"]}]));
    let status = pod.get()["metadata"]["annotations"]["k8s.v1.cni.cncf.io/network-status"].to_string();
    assert!(status.contains("net1"), "{status}");

    pod.terminate();
    assert!(pod.get()["metadata"]["deletionTimestamp"].is_string());
    let next = pod.replace();
    assert_ne!(next.uid(), pod.uid());
    assert!(next.exists() && !pod.exists());
    next.delete();
    assert!(!next.exists());
    next.delete();

    let mirror = api.pod(&namespace, "static").mirror_of("0123").phase("Running").create().get();
    assert_eq!(mirror["metadata"]["annotations"]["kubernetes.io/config.mirror"], "0123");
    assert_eq!(mirror["status"]["phase"], "Running");
    let unbound = api.pod(&namespace, "unbound").unbound().create().get();
    assert!(unbound["spec"]["nodeName"].is_null());
}

#[test]
fn nodes_boot_and_get_lost() {
    let api = KubeApi::shared();
    let name = api.new_namespace();
    let node = api.node(&name);
    node.ready(true).boot_id("first");
    api.node(&name).boot_id("second").unreachable_for(Duration::from_secs(3600));
    let read = node.get();
    assert_eq!(read["status"]["nodeInfo"]["bootID"], "second");
    let ready = &read["status"]["conditions"][0];
    assert_eq!(ready["status"], "Unknown");
    let since = humantime::parse_rfc3339(ready["lastTransitionTime"].as_str().expect("a time is text"));
    assert!(since.expect("it is a time").elapsed().expect("it has been") >= Duration::from_secs(3600));
    node.delete();
    assert!(api.find(&format!("/api/v1/nodes/{name}")).is_none());
}

#[test]
fn objects_of_other_projects_can_be_applied() {
    let api = KubeApi::shared_with_crds();
    let namespace = api.new_namespace();
    let mut pool = json!({
        "apiVersion": "whereabouts.cni.cncf.io/v1alpha1",
        "kind": "IPPool",
        "metadata": {"namespace": namespace, "name": "10.0.0.0-24"},
        "spec": {"range": "10.0.0.0/24", "allocations": {"1": {"id": "c1", "podref": "a/b", "ifname": "net1"}}},
    });
    api.apply(&pool);
    pool["spec"]["allocations"] = json!({"2": {"id": "c2", "podref": "a/b", "ifname": "net1"}});
    api.apply(&pool);
    let path = format!("/apis/whereabouts.cni.cncf.io/v1alpha1/namespaces/{namespace}/ippools/10.0.0.0-24");
    assert_eq!(api.get(&path)["spec"]["allocations"], pool["spec"]["allocations"]);
    for (version, kind, spec) in [
        ("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition", json!({"config": "{}"})),
        ("whereabouts.cni.cncf.io/v1alpha1", "OverlappingRangeIPReservation", json!({"podref": "a/b"})),
    ] {
        let metadata = json!({"namespace": namespace, "name": "one"});
        let object = json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec});
        let created = api.apply(&object);
        assert_eq!(created["spec"], object["spec"]);
    }
    api.delete(&path);
    assert!(api.find(&path).is_none());
}

#[test]
fn a_service_account_may_do_what_its_role_says() {
    let api = KubeApi::shared();
    let namespace = api.new_namespace();
    let folder = folder();
    let kubeconfig = api.kubeconfig_for_service_account(folder.path(), &namespace, "reader");
    let list = ["get", "pods", "-n", &namespace, "-o", "json"];
    assert!(!kubectl(&kubeconfig, list).status.success());
    for object in [
        json!({"kind": "Role", "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]}),
        json!({
            "kind": "RoleBinding",
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
            "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": "reader"}],
        }),
    ] {
        let mut object = object;
        object["apiVersion"] = json!("rbac.authorization.k8s.io/v1");
        object["metadata"] = json!({"namespace": namespace, "name": "reader"});
        api.apply(&object);
    }
    support::wait_for("the role to count", Duration::from_secs(10), || {
        let output = kubectl(&kubeconfig, list);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(error) }
    });
    let admin = api.kubeconfig(folder.path());
    assert!(kubectl(&admin, ["get", "nodes"]).status.success());
}

#[test]
fn lists_come_in_pages_and_the_proxy_tells_what_was_asked() {
    let world = World::new();
    let mut names = BTreeSet::new();
    let mut next = String::new();
    loop {
        let page = world.curl(&format!("{}?limit=10&continue={next}", world.pods)).ok();
        let items = page["items"].as_array().expect("a list has items");
        names.extend(items.iter().map(|pod| pod["metadata"]["name"].to_string()));
        page["metadata"]["continue"].as_str().unwrap_or_default().clone_into(&mut next);
        if next.is_empty() {
            break;
        }
    }
    assert_eq!(names.len(), PODS);
    let asked = world.proxy.asked_for("GET", &world.pods);
    assert_eq!(asked.len(), 3);
    assert_eq!(asked[0].parameter("limit"), Some("10"));
    assert_eq!(asked[2].accept, "application/json");
}

#[test]
fn one_connection_carries_many_requests() {
    let world = World::new();
    let url = format!("{}{}", world.url(), world.pods);
    let output = Command::new("curl")
        .args(["--silent", "--noproxy", "*", "--write-out", "%{num_connects} ", "--output", "/dev/null"])
        .args([&url, "--output", "/dev/null", &url, "--output", "/dev/null", &url])
        .output()
        .expect("curl runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1 0 0 ");
}

#[test]
fn errors_are_answered_where_a_rule_says_so() {
    let world = World::new();
    world.proxy.rule(Rule::get(&world.pods).nth(2).status(500));
    let page = format!("{}?limit=10", world.pods);
    assert_eq!([200, 500, 200], [(); 3].map(|()| world.curl(&page).status));

    world.proxy.clear().rule(Rule::get(&world.pods).later_pages().status(410));
    let first = world.curl(&page).ok();
    let next = first["metadata"]["continue"].as_str().expect("there are more pages");
    let second = world.curl(&format!("{page}&continue={next}"));
    assert_eq!((second.status, second.body["reason"].as_str()), (410, Some("Expired")));

    world.proxy.clear().rule(Rule::get(&world.pods).answer(200, "no JSON"));
    assert_eq!(world.curl(&page).body, json!("no JSON"));
    world.proxy.clear().rule(Rule::get(&world.pods).edit(|list| list["items"] = json!([])));
    assert_eq!(world.curl(&page).ok()["items"], json!([]));
}

#[test]
fn rules_tell_methods_and_places_apart() {
    let world = World::new();
    world
        .proxy
        .rule(Rule::of("DELETE", &world.pods).status(403))
        .rule(Rule::any("/api/v1/nodes").status(503));
    let pods = world.curl(&world.pods);
    assert_eq!([pods.status, world.curl("/api/v1/nodes").status], [200, 503]);
    let folder = folder();
    let kubeconfig = world.proxy.kubeconfig(folder.path());
    let output = kubectl(&kubeconfig, ["delete", "pod", "pod-0", "--wait=false", "-n", &world.namespace]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("put in by a test"), "{error}");
    assert!(world.api.find(&format!("{}/pod-0", world.pods)).is_some());
}

#[test]
fn connections_end_or_hang_where_a_rule_says_so() {
    let world = World::new();
    world.proxy.rule(Rule::get(&world.pods).cut_after(100));
    let answer = world.curl(&world.pods);
    assert_eq!((answer.status, answer.exit), (200, Some(18)), "curl's exit status for a part of a file");
    assert_eq!(answer.body.as_str().map(str::len), Some(100));

    world.proxy.clear().rule(Rule::get(&world.pods).hang_up());
    assert_eq!(world.curl(&world.pods).exit, Some(52), "curl's exit status for no answer");

    world.proxy.clear().rule(Rule::get(&world.pods).hang());
    assert_eq!(world.curl_for("2", &world.pods).exit, Some(28), "curl's exit status for a timeout");
}

#[test]
fn the_world_can_change_just_before_a_request() {
    let world = World::new();
    let pod = world.api.pod(&world.namespace, "changing").create();
    let path = format!("{}/changing", world.pods);
    let changing = pod.clone();
    world.proxy.rule(Rule::get(&path).nth(2).before(move || changing.delete()));
    assert_eq!(world.curl(&path).ok()["metadata"]["uid"], pod.uid());
    assert_eq!(world.curl(&path).status, 404);
}

/// Pods behind a proxy.
struct World {
    api: &'static KubeApi,
    proxy: ApiProxy,
    namespace: String,
    /// The path of their list.
    pods: String,
}

/// An answer as curl saw it.
struct Curled {
    status: u16,
    exit: Option<i32>,
    body: Value,
}

impl Curled {
    fn ok(self) -> Value {
        assert_eq!((self.status, self.exit), (200, Some(0)), "{}", self.body);
        self.body
    }
}

impl World {
    fn new() -> Self {
        let api = KubeApi::shared();
        let namespace = api.new_namespace();
        let pods = api.create_pods((0..PODS).map(|index| api.pod(&namespace, &format!("pod-{index}"))));
        assert_eq!(pods.len(), PODS);
        let pods = format!("/api/v1/namespaces/{namespace}/pods");
        Self { api, proxy: ApiProxy::before(api), namespace, pods }
    }

    /// From the kubeconfig, as a client finds it.
    fn url(&self) -> String {
        let folder = folder();
        let text = fs::read(self.proxy.kubeconfig(folder.path())).expect("there is a kubeconfig");
        let kubeconfig: Value = serde_json::from_slice(&text).expect("it is JSON");
        kubeconfig["clusters"][0]["cluster"]["server"].as_str().expect("it has a server").to_owned()
    }

    fn curl(&self, path: &str) -> Curled {
        self.curl_for("20", path)
    }

    /// Waits for that many seconds at most.
    fn curl_for(&self, seconds: &str, path: &str) -> Curled {
        let Output { status, stdout, .. } = Command::new("curl")
            .args([
                "--silent",
                "--noproxy",
                "*",
                "--max-time",
                seconds,
                "--header",
                "Accept: application/json",
            ])
            .args(["--write-out", "\n%{http_code}", &format!("{}{path}", self.url())])
            .output()
            .expect("curl runs");
        let stdout = String::from_utf8(stdout).expect("an answer is text");
        let (body, code) = stdout.rsplit_once('\n').expect("curl writes a status");
        Curled {
            status: code.parse().expect("it is a number"),
            exit: status.code(),
            body: serde_json::from_str(body).unwrap_or_else(|_| json!(body)),
        }
    }
}

fn kubectl<const N: usize>(kubeconfig: &std::path::Path, arguments: [&str; N]) -> Output {
    Command::new(support::tool("kubectl"))
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args(arguments)
        .env("HOME", kubeconfig.parent().expect("a file is in a folder"))
        .output()
        .expect("kubectl runs")
}

fn folder() -> TempDir {
    TempDir::new().expect("a folder can be made")
}
