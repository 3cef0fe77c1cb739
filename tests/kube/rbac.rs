//! The roles in manifests/ hold all that their accounts need, and nothing else: each account does its work with the
//! rules as they are delivered, fails with any one permission removed, and may do nothing beyond.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{MutexGuard, OnceLock};
use std::time::Duration;

use serde_json::{Value, json};
use support::{
    Cluster, KubeApi, Kubectl, Manifests, Node, Outcome, Pod, Reconciler, Run, alone, free_ports,
    metes_install, network_as, wait_for,
};
use tempfile::TempDir;

use crate::signer::{Site, sign_as};

const NAMESPACES: [&str; 2] = ["metes-system", "metes"];
/// The longest time until a change of a role counts.
const COUNTS_MAX: Duration = Duration::from_secs(30);
const PASS_MAX: Duration = Duration::from_secs(30);
const CLAIM: &str = "00000000-0000-0000-0000-00000000c1a1";

/// An account, and its work.
struct Account {
    name: &'static str,
    /// The folder of its role.
    folder: &'static str,
    /// Makes a world and does the account's work in it: all of it, or else the refusal of the API, with nothing done.
    work: fn(&Lab) -> Result<(), String>,
}

/// Every account of manifests/.
const ACCOUNTS: [Account; 7] = [
    Account { name: "metes-reconciler", folder: "reconciler", work: make_a_pass },
    Account { name: "metes-reconciler", folder: "events", work: make_a_pass_and_events },
    Account { name: "metes-adopt", folder: "adopt", work: adopt },
    Account { name: "metes-import-whereabouts", folder: "import-whereabouts", work: import },
    Account { name: "metes-certificates", folder: "etcd-certificates", work: store_certificates },
    Account { name: "metes-signer", folder: "signer", work: sign },
    Account { name: "metes-installer", folder: "installer", work: ask_for_a_certificate },
];

#[test]
fn the_reconciler() {
    prove("reconciler");
}

#[test]
fn the_reconciler_with_events() {
    prove("events");
}

/// A mass loss of nodes: the usual pass refuses, and a person looks, and then starts one that does not.
#[test]
fn a_person_frees_in_spite_of_the_brake() {
    let lab = Lab::new("metes-reconciler", "reconciler");
    let granted = Permission::of(lab.role()["rules"].as_array().expect("a role has rules"));
    lab.wait_until_granted(&granted, &granted);
    let world = World::new(&lab);
    for number in 0..51 {
        world.add(&format!("orphan{number}"), &format!("00000000-0000-0000-0000-{number:012}"));
    }
    let pass = |cronjob: &str| world.prepared("CronJob", cronjob, at_once).run();
    let usual = pass("metes-reconciler");
    assert_eq!(usual.status.code(), Some(3), "{usual}");
    let dry = pass("metes-reconciler-dry-run");
    assert!(dry.succeeded() && dry.stdout.contains("51"), "{dry}");
    assert_eq!(world.held().len(), 51, "{dry}");
    let forced = pass("metes-reconciler-force");
    assert!(forced.succeeded(), "{forced}");
    assert_eq!(world.held().len(), 0, "{forced}");
    world.cluster.assert_clean();
}

/// The leader is known from etcd: two replicas and their metrics need no more.
#[test]
fn the_reconciler_that_stays() {
    let lab = Lab::new("metes-reconciler", "reconciler-deployment");
    let granted = Permission::of(lab.role()["rules"].as_array().expect("a role has rules"));
    lab.wait_until_granted(&granted, &granted);
    let mut world = World::new(&lab);
    let pod = world.pod("living");
    let living = BTreeSet::from([(world.add("living", pod.uid()), "living".to_owned())]);
    world.orphan();
    let [port] = free_ports();
    let change = |arg: String| match arg.starts_with("--listen=") {
        true => format!("--listen=127.0.0.1:{port}"),
        false => at_once(arg),
    };
    let mut running = world.prepared("Deployment", "metes-reconciler", change).spawn();
    wait_for("a pass", PASS_MAX, || {
        assert!(running.is_running(), "it ended by itself");
        let held = world.held();
        if held == living { Ok(()) } else { Err(format!("{held:?}")) }
    });
    let container = &lab.one("Deployment", "metes-reconciler")["spec"]["template"]["spec"]["containers"][0];
    for (probe, page) in [("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")] {
        let asked = &container[probe]["httpGet"];
        assert_eq!((&asked["path"], &asked["port"]), (&json!(page), &json!("metrics")), "{probe}");
        assert_eq!(status_of(port, page), "200", "{probe}");
    }
    drop(running);
    world.cluster.assert_clean();
}

/// The answer of the server on this port of the loopback, without the body.
fn status_of(port: u16, page: &str) -> String {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("it listens");
    write!(stream, "GET {page} HTTP/1.0\r\n\r\n").expect("it is taken");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer.split(' ').nth(1).unwrap_or_default().to_owned()
}

#[test]
fn adoption() {
    prove("adopt");
}

#[test]
fn import_from_whereabouts() {
    prove("import-whereabouts");
}

#[test]
fn the_job_that_makes_certificates() {
    prove("etcd-certificates");
}

#[test]
fn the_signer() {
    prove("signer");
}

#[test]
fn the_installer() {
    prove("installer");
}

#[test]
fn no_account_is_left_out() {
    let manifests = Manifests::copy();
    let mut found = BTreeSet::new();
    for file in manifests.files().into_iter().filter(|file| file.ends_with(".yaml")) {
        let text = fs::read_to_string(manifests.path(&file)).expect("manifests are text");
        for document in
            text.split("\n---\n").filter(|text| text.contains("kind: ServiceAccount\nmetadata:\n"))
        {
            let name = document.lines().find_map(|line| line.strip_prefix("  name: "));
            found.insert(name.expect("an account has a name").to_owned());
        }
    }
    // It is for OpenShift's constraints alone: tests/kube/manifests_api.rs.
    assert!(found.remove("metes-node"));
    assert_eq!(found, ACCOUNTS.iter().map(|account| account.name.to_owned()).collect());
}

/// Each role, with all rules, with each permission less, and with each rule less.
fn prove(folder: &str) {
    let account = ACCOUNTS.iter().find(|account| account.folder == folder).expect("it is in the table");
    let mut lab = Lab::new(account.name, folder);
    lab.assert_bound_to_its_own_roles_only();
    for role in 0..lab.roles().len() {
        lab.proven = role;
        prove_role(account, &lab);
    }
}

fn prove_role(account: &Account, lab: &Lab) {
    let rules = lab.role()["rules"].as_array().expect("a role has rules").clone();
    let granted = Permission::of(&rules);
    assert_succeeds_with(account, lab, &rules);
    lab.assert_nothing_more();
    for one in &granted {
        let left: Vec<Value> = granted.iter().filter(|other| *other != one).map(Permission::rule).collect();
        assert_fails_with(account, lab, &left, &granted);
    }
    for index in 0..rules.len() {
        let mut left = rules.clone();
        left.remove(index);
        assert_fails_with(account, lab, &left, &granted);
    }
    assert_succeeds_with(account, lab, &rules);
}

fn assert_succeeds_with(account: &Account, lab: &Lab, rules: &[Value]) {
    let granted = Permission::of(rules);
    lab.set_rules(rules);
    lab.wait_until_granted(&granted, &granted);
    (account.work)(lab).unwrap_or_else(|refused| panic!("with all rules: {refused}"));
}

fn assert_fails_with(account: &Account, lab: &Lab, rules: &[Value], granted: &BTreeSet<Permission>) {
    let left = Permission::of(rules);
    lab.set_rules(rules);
    lab.wait_until_granted(&left, granted);
    let lost: Vec<&Permission> = granted.difference(&left).collect();
    let refused = (account.work)(lab).expect_err(&format!("{lost:?} is of no use"));
    let named = lost.iter().any(|one| refused.contains(&one.refusal()));
    assert!(named, "without {lost:?} it says: {refused}");
}

/// One thing that may be done; of any object where there is no name, in all namespaces where there is no namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Permission {
    group: String,
    resource: String,
    verb: String,
    name: Option<String>,
}

impl Permission {
    fn new(group: &str, resource: &str, verb: &str) -> Self {
        Self { group: group.into(), resource: resource.into(), verb: verb.into(), name: None }
    }

    fn named(self, name: &str) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// The single permissions that rules come to, which may not say "all".
    fn of(rules: &[Value]) -> BTreeSet<Self> {
        let mut all = BTreeSet::new();
        for rule in rules {
            let words = |key: &str| -> Vec<&str> {
                rule[key].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
            };
            let names = words("resourceNames");
            let names: Vec<Option<&str>> =
                if names.is_empty() { vec![None] } else { names.into_iter().map(Some).collect() };
            for group in words("apiGroups") {
                for resource in words("resources") {
                    for verb in words("verbs") {
                        assert!(![group, resource, verb].contains(&"*"), "{rule}");
                        for name in &names {
                            let one = Self::new(group, resource, verb);
                            all.insert(name.map_or(one.clone(), |name| one.named(name)));
                        }
                    }
                }
            }
        }
        all
    }

    fn rule(&self) -> Value {
        let mut rule = json!({"apiGroups": [self.group], "resources": [self.resource], "verbs": [self.verb]});
        if let Some(name) = &self.name {
            rule["resourceNames"] = json!([name]);
        }
        rule
    }

    fn covers(&self, other: &Self) -> bool {
        let any_name = Self { name: None, ..other.clone() };
        self == other || *self == any_name
    }

    /// The words of the API server to an account that lacks it.
    fn refusal(&self) -> String {
        let Self { group, resource, verb, .. } = self;
        if resource == "signers" {
            return format!("not permitted to {verb} requests with signerName");
        }
        format!("cannot {verb} resource \"{resource}\" in API group \"{group}\"")
    }
}

/// An account with its manifests applied, on a server that one test at a time has for itself: some work takes in all
/// pods that there are.
struct Lab {
    account: &'static str,
    /// Where the account is.
    namespace: &'static str,
    /// The place of the role that is proven, among all.
    proven: usize,
    api: &'static KubeApi,
    objects: Vec<Value>,
    folder: TempDir,
    kubeconfig: PathBuf,
    _alone: MutexGuard<'static, ()>,
}

impl Lab {
    fn new(account: &'static str, folder: &str) -> Self {
        static SERVER: OnceLock<KubeApi> = OnceLock::new();
        let alone = alone();
        let api = SERVER.get_or_init(KubeApi::start);
        api.install_crds();
        NAMESPACES.iter().for_each(|name| api.namespace(name));
        let manifests = Manifests::copy().kustomize(folder);
        let folder = tempfile::tempdir().expect("a folder can be made");
        let objects = Kubectl::new(api.kubeconfig(folder.path())).apply(&manifests);
        let is_account = |object: &&Value| object["kind"] == "ServiceAccount";
        let its = objects.iter().find(is_account).map(|account| &account["metadata"]["namespace"]);
        let namespace = NAMESPACES.into_iter().find(|name| its.is_some_and(|its| its == name));
        let namespace = namespace.expect("an account is in one of them");
        let kubeconfig = api.kubeconfig_for_service_account(folder.path(), namespace, account);
        Self { account, namespace, proven: 0, api, objects, folder, kubeconfig, _alone: alone }
    }

    fn one(&self, kind: &str, name: &str) -> &Value {
        let is_it = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
        self.objects.iter().find(is_it).unwrap_or_else(|| panic!("there is no {kind} {name}"))
    }

    /// One, or one for each namespace.
    fn roles(&self) -> Vec<&Value> {
        let kinds = ["Role", "ClusterRole"];
        self.objects.iter().filter(|one| kinds.iter().any(|kind| one["kind"] == *kind)).collect()
    }

    fn role(&self) -> &Value {
        self.roles()[self.proven]
    }

    /// A binding to a role of somebody else could come to mean more: some roles are gathered from others.
    fn assert_bound_to_its_own_roles_only(&self) {
        let kind =
            |object: &&Value| object["kind"].as_str().is_some_and(|kind| kind.ends_with("RoleBinding"));
        let bindings: Vec<&Value> = self.objects.iter().filter(kind).collect();
        let account = json!({"kind": "ServiceAccount", "name": self.account, "namespace": self.namespace});
        let of = |role: &Value, binding: &Value| {
            let (to, metadata) = (&binding["roleRef"], &role["metadata"]);
            to["kind"] == role["kind"]
                && to["name"] == metadata["name"]
                && binding["metadata"]["namespace"] == metadata["namespace"]
                && binding["subjects"] == json!([account])
        };
        let roles = self.roles();
        assert_eq!(bindings.len(), roles.len(), "one binding is enough");
        for role in roles {
            assert!(bindings.iter().any(|binding| of(role, binding)), "{role} {bindings:?}");
        }
    }

    /// All that the account may do in a namespace, or in all.
    fn granted(&self, namespace: Option<&str>) -> BTreeSet<Permission> {
        let counts = |role: &&Value| limit(role).is_none_or(|limit| namespace == Some(limit));
        let rules = |role: &Value| role["rules"].as_array().expect("a role has rules").clone();
        let rules: Vec<Value> = self.roles().into_iter().filter(counts).flat_map(rules).collect();
        Permission::of(&rules)
    }

    fn set_rules(&self, rules: &[Value]) {
        self.api.patch(&self.api.path_of(self.role()), &json!({"rules": rules}));
    }

    fn wait_until_granted(&self, granted: &BTreeSet<Permission>, of: &BTreeSet<Permission>) {
        wait_for("the rules to count", COUNTS_MAX, || {
            let wrong = of.iter().find(|one| self.may(limit(self.role()), one) != granted.contains(one));
            wrong.map_or(Ok(()), |one| Err(format!("{one:?}")))
        });
    }

    /// The answer of the server's own authorizer for the account.
    fn may(&self, namespace: Option<&str>, permission: &Permission) -> bool {
        let Permission { group, resource, verb, name } = permission;
        let (resource, sub) = resource.split_once('/').unwrap_or((resource, ""));
        let review = self.api.create(
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            &json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {
                "user": format!("system:serviceaccount:{}:{}", self.namespace, self.account),
                "groups": [
                    "system:serviceaccounts", format!("system:serviceaccounts:{}", self.namespace),
                    "system:authenticated",
                ],
                "resourceAttributes": {
                    "group": group, "resource": resource, "subresource": sub, "verb": verb,
                    "name": name.clone().unwrap_or_default(), "namespace": namespace.unwrap_or_default(),
                },
            }}),
        );
        review["status"]["allowed"] == true
    }

    fn assert_nothing_more(&self) {
        let nobody = self.api.kubeconfig_for_service_account(self.folder.path(), self.namespace, "nobody");
        for namespace in NAMESPACES.into_iter().chain(["default", "kube-system"]) {
            let (own, anybody) = (rules_of(&self.kubeconfig, namespace), rules_of(&nobody, namespace));
            let own: BTreeSet<Permission> = own.difference(&anybody).cloned().collect();
            assert_eq!(own, self.granted(Some(namespace)), "in {namespace}");
        }
        for (namespace, one) in dangerous() {
            let is_meant = self.granted(namespace).iter().any(|granted| granted.covers(&one));
            assert_eq!(self.may(namespace, &one), is_meant, "{} in {namespace:?}: {one:?}", self.account);
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for object in &self.objects {
            self.api.ask(
                "DELETE",
                &self.api.path_of(object),
                Some(&json!({"propagationPolicy": "Background"})),
            );
        }
    }
}

/// The namespace that a role is limited to.
fn limit(role: &Value) -> Option<&str> {
    role["metadata"]["namespace"].as_str()
}

/// The permissions of an account in a namespace, as the server tells the account itself.
fn rules_of(kubeconfig: &Path, namespace: &str) -> BTreeSet<Permission> {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": namespace},
    });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let answer = Kubectl::new(kubeconfig).run(["create", "--raw", path, "-f", "-"], &review.to_string()).ok();
    assert_eq!(answer["status"]["incomplete"], false, "{answer}");
    Permission::of(answer["status"]["resourceRules"].as_array().expect("there are rules"))
}

/// Asks as an installer on a node does, and is refused by the signer: then it has looked at the answer.
fn ask_for_a_certificate(lab: &Lab) -> Result<(), String> {
    const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let folder = tempfile::tempdir().expect("a folder can be made");
    fs::create_dir(folder.path().join("bin")).expect("a folder can be made");
    let file = |name: &str| folder.path().join(name).display().to_string();
    fs::write(file("ca.crt"), "an authority").expect("a file can be written");
    let etcd = json!({
        "endpoints": ["https://10.0.0.1:1"],
        "ca_file": file("ca.crt"), "cert_file": file("tls.crt"), "key_file": file("tls.key"),
    });
    let template = json!({"cluster": "c1", "allowed": "any", "etcd": etcd});
    fs::write(file("template"), template.to_string()).expect("a file can be written");
    let options = [("template", "template"), ("bin-dir", "bin"), ("host-dir", "host")];
    let mut running = Run::new(metes_install())
        .env("KUBECONFIG", &lab.kubeconfig)
        .env("NODE_NAME", "n1")
        .arguments(["install", "--once", "--signer=metes.dev/etcd-client"])
        .arguments(options.map(|(name, path)| format!("--{name}={}", file(path))))
        .spawn();
    let denied = json!({"status": {"conditions": [
        {"type": "Denied", "status": "True", "reason": "Test", "message": "by this test"},
    ]}});
    let mut asked = BTreeSet::new();
    while running.is_running() && asked.is_empty() {
        for request in lab.api.get(REQUESTS)["items"].as_array().expect("a list") {
            let name = request["metadata"]["name"].as_str().expect("a name").to_owned();
            lab.api.patch(&format!("{REQUESTS}/{name}/approval"), &denied);
            asked.insert(name);
        }
    }
    // Without the right to look, it tries until its pass is over.
    let outcome = running.wait();
    asked.iter().for_each(|name| lab.api.delete(&format!("{REQUESTS}/{name}")));
    if outcome.stderr.contains("by this test") { Ok(()) } else { Err(outcome.stderr) }
}

/// The permissions that only their own account should have.
fn dangerous() -> Vec<(Option<&'static str>, Permission)> {
    let core = |resource, verb| Permission::new("", resource, verb);
    let rbac = |resource, verb| Permission::new("rbac.authorization.k8s.io", resource, verb);
    let nads = |verb| Permission::new("k8s.cni.cncf.io", "network-attachment-definitions", verb);
    let whereabouts = |resource, verb| Permission::new("whereabouts.cni.cncf.io", resource, verb);
    let mut all = Vec::new();
    for namespace in [None, Some("metes-system"), Some("metes"), Some("kube-system"), Some("default")] {
        let mut add = |one: Permission| all.push((namespace, one));
        for verb in ["get", "list", "watch", "create", "update", "patch", "delete"] {
            add(core("secrets", verb));
            add(core("configmaps", verb));
        }
        for verb in ["get", "watch", "create", "update", "patch", "delete", "deletecollection"] {
            add(core("pods", verb));
            add(nads(verb));
            add(whereabouts("ippools", verb));
            add(whereabouts("overlappingrangeipreservations", verb));
        }
        for name in [
            "metes-ca",
            "metes-node-ca",
            "metes-node",
            "metes-signer",
            "metes-etcd-server",
            "metes-etcd-peer",
            "another",
        ] {
            add(core("configmaps", "get").named(name));
            add(core("configmaps", "patch").named(name));
            add(core("secrets", "get").named(name));
            add(core("secrets", "patch").named(name));
            add(core("secrets", "delete").named(name));
        }
        for verb in ["create", "get", "list", "watch", "patch", "update", "delete"] {
            add(Permission::new("certificates.k8s.io", "certificatesigningrequests", verb));
        }
        for resource in ["certificatesigningrequests/approval", "certificatesigningrequests/status"] {
            add(Permission::new("certificates.k8s.io", resource, "update"));
        }
        for resource in ["pods/exec", "pods/eviction", "pods/ephemeralcontainers", "serviceaccounts/token"] {
            add(core(resource, "create"));
        }
        add(core("events", "create"));
        add(core("pods/status", "patch"));
        add(core("pods/log", "get"));
        add(core("serviceaccounts", "impersonate"));
        add(Permission::new("apps", "daemonsets", "patch"));
        add(Permission::new("batch", "jobs", "create"));
        add(rbac("roles", "escalate"));
        add(rbac("rolebindings", "create"));
    }
    for verb in ["get", "list", "watch", "create", "update", "patch", "delete"] {
        all.push((None, core("nodes", verb)));
        all.push((None, core("namespaces", verb)));
        all.push((None, core("namespaces", verb).named("default")));
        all.push((None, core("namespaces", verb).named("kube-system")));
    }
    let certificates = |resource, verb| Permission::new("certificates.k8s.io", resource, verb);
    for verb in ["get", "list", "watch", "create", "update", "delete"] {
        all.push((None, certificates("certificatesigningrequests", verb)));
    }
    for name in ["metes.dev/etcd-client", "kubernetes.io/kube-apiserver-client"] {
        all.extend(["approve", "sign"].map(|verb| (None, certificates("signers", verb).named(name))));
    }
    for resource in ["certificatesigningrequests/approval", "certificatesigningrequests/status"] {
        all.push((None, certificates(resource, "update")));
    }
    all.extend(["nodes/status", "nodes/proxy"].map(|resource| (None, core(resource, "patch"))));
    all.extend(["escalate", "bind", "update"].map(|verb| (None, rbac("clusterroles", verb))));
    all
}

/// Pods and addresses for one piece of work; gone with it, because the next must not meet them.
struct World<'a> {
    lab: &'a Lab,
    cluster: Cluster,
    namespace: String,
    node: Node,
    objects: Vec<String>,
}

impl<'a> World<'a> {
    fn new(lab: &'a Lab) -> Self {
        let cluster = Cluster::new();
        let node = cluster.node("n1");
        Self { lab, cluster, namespace: lab.api.new_namespace(), node, objects: Vec::new() }
    }

    fn pod(&mut self, name: &str) -> Pod {
        let pod = self.lab.api.pod(&self.namespace, name).phase("Running").create();
        self.objects.push(format!("/api/v1/namespaces/{}/pods/{name}", self.namespace));
        pod
    }

    fn apply(&mut self, version: &str, kind: &str, name: &str, spec: &Value) {
        let metadata = json!({"namespace": self.namespace, "name": name});
        let object = json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec});
        self.lab.api.apply(&object);
        self.objects.push(self.lab.api.path_of(&object));
    }

    /// Defines the network "net" and returns its configuration.
    fn network(&mut self, plugin: &str) -> Value {
        let config = network_as("1.0.0", "net", json!({"type": plugin, "range": "10.70.0.0/24"}));
        let spec = json!({"config": config.to_string()});
        self.apply("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition", "net", &spec);
        config
    }

    /// An ADD of the runtime for a pod of this UID, as net1 of the container of its name; its address.
    #[track_caller]
    fn add(&self, name: &str, uid: &str) -> String {
        let config = network_as("1.0.0", "net", json!({"range": "10.70.0.0/24"}));
        let add = self.node.add(name).ifname("net1").config(&config);
        add.pod(&self.namespace, name, uid).run().address()
    }

    #[track_caller]
    fn orphan(&self) -> String {
        self.add("orphan", "00000000-0000-0000-0000-000000000000")
    }

    /// An ADD of a DRA driver for a ResourceClaim that does not exist.
    #[track_caller]
    fn orphan_of_claim(&self) {
        let config = network_as("1.0.0", "net", json!({"range": "10.70.0.0/24"}));
        let args = format!("IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME=living", self.namespace);
        self.node.add(CLAIM).ifname("net1").config(&config).args(&args).run().address();
    }

    /// Every held address with its container.
    fn held(&self) -> BTreeSet<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let list = self.node.list();
        list.iter().map(|row| (text(&row["address"]), text(&row["container_id"]))).collect()
    }

    #[track_caller]
    fn assert_held(&self, address: &str, container: &str) {
        assert_eq!(self.held(), BTreeSet::from([(address.to_owned(), container.to_owned())]));
    }

    /// The program as the account, with the arguments of the manifest.
    fn prepared(&self, kind: &str, name: &str, change: impl Fn(String) -> String) -> Reconciler {
        let spec = &self.lab.one(kind, name)["spec"];
        let spec = if kind == "CronJob" { &spec["jobTemplate"]["spec"] } else { spec };
        let args = spec["template"]["spec"]["containers"][0]["args"].as_array().expect("it has arguments");
        let args = args.iter().filter_map(Value::as_str).filter(|arg| !arg.starts_with("--config="));
        let reconciler = self.cluster.reconciler(self.lab.api).kubeconfig(&self.lab.kubeconfig);
        reconciler.args(args.map(|arg| change(arg.to_owned())))
    }

    /// One run; a refusal leaves every address as it is.
    #[track_caller]
    fn reconciler(&self, cronjob: &str, change: impl Fn(String) -> String) -> Result<Outcome, String> {
        let before = self.held();
        let outcome = self.prepared("CronJob", cronjob, change).run();
        if outcome.succeeded() {
            return Ok(outcome);
        }
        assert_eq!(outcome.status.code(), Some(1), "{outcome}");
        assert_eq!(self.held(), before, "{outcome}");
        // A hold or a suspicion stays, until somebody with more rights goes on.
        self.cluster.leave_unclean();
        Err(outcome.stderr)
    }
}

impl Drop for World<'_> {
    fn drop(&mut self) {
        for path in &self.objects {
            self.lab.api.ask("DELETE", path, Some(&json!({"gracePeriodSeconds": 0})));
        }
    }
}

fn at_once(arg: String) -> String {
    if arg.starts_with("--grace=") { "--grace=0s".to_owned() } else { arg }
}

fn make_a_pass(lab: &Lab) -> Result<(), String> {
    let (_, events) = pass(lab)?;
    assert_eq!(events, json!([]));
    Ok(())
}

/// A pass is worth more than its events: it succeeds without them, and its log says why there are none.
fn make_a_pass_and_events(lab: &Lab) -> Result<(), String> {
    let (outcome, events) = pass(lab)?;
    let about = |event: &Value| event["involvedObject"]["name"] == "orphan";
    let told = events.as_array().is_some_and(|events| events.iter().any(about));
    if told { Ok(()) } else { Err(outcome.stderr) }
}

/// A pass that succeeded, and the events after it. It is worth something without knowing any ResourceClaims: then it
/// says why, and keeps their addresses. It says, too, that it cannot know the reports of pods.
fn pass(lab: &Lab) -> Result<(Outcome, Value), String> {
    let mut world = World::new(lab);
    let pod = world.pod("living");
    let address = world.add("living", pod.uid());
    world.orphan();
    let outcome = world.reconciler("metes-reconciler", at_once)?;
    if outcome.stderr.contains("what running pods report is not compared") {
        world.cluster.leave_unclean();
        return Err(outcome.stderr);
    }
    world.assert_held(&address, "living");
    world.orphan_of_claim();
    let of_claims = world.reconciler("metes-reconciler", at_once)?;
    world.cluster.assert_clean();
    if world.held().iter().any(|(_, container)| container == CLAIM) {
        return Err(of_claims.stderr);
    }
    world.assert_held(&address, "living");
    let events = lab.api.get(&format!("/api/v1/namespaces/{}/events", world.namespace));
    Ok((outcome, events["items"].clone()))
}

/// A pod uses an address that etcd, which is of an older time, has for one that is gone.
fn adopt(lab: &Lab) -> Result<(), String> {
    let mut world = World::new(lab);
    let config = world.network("metes");
    let pod = world.pod("living");
    let address = world.add("living", pod.uid());
    let del = world.node.del("living").ifname("net1").config(&config);
    del.pod(&world.namespace, "living", pod.uid()).run().silent();
    assert_eq!(world.orphan(), address);
    let network = format!("{}/net", world.namespace);
    pod.network_status(&json!([{"name": network, "interface": "net1", "ips": [address]}]));
    world.reconciler("metes-adopt-dry-run", |arg| arg)?;
    world.assert_held(&address, "orphan");
    world.reconciler("metes-adopt", |arg| arg)?;
    world.assert_held(&address, &format!("adopted-{}", pod.uid()));
    world.cluster.assert_clean();
    Ok(())
}

/// A pod has an address of whereabouts, which metes holds for one that is gone.
fn import(lab: &Lab) -> Result<(), String> {
    let mut world = World::new(lab);
    let config = network_as("1.0.0", "net", json!({"range": "10.70.0.0/24"}));
    world.network("whereabouts");
    world.pod("living");
    let address = world.orphan();
    let offset = address.rsplit('.').next().expect("it has four parts").to_owned();
    let podref = format!("{}/living", world.namespace);
    let entry = json!({"id": "sandbox", "podref": podref, "ifname": "net1"});
    let pool = json!({"range": "10.70.0.0/24", "allocations": {offset: entry}});
    world.apply("whereabouts.cni.cncf.io/v1alpha1", "IPPool", "10.70.0.0-24", &pool);
    let reservation = json!({"podref": podref, "containerid": "sandbox", "ifname": "net1"});
    world.apply("whereabouts.cni.cncf.io/v1alpha1", "OverlappingRangeIPReservation", &address, &reservation);
    world.reconciler("metes-import-dry-run", |arg| arg)?;
    world.assert_held(&address, "orphan");
    world.reconciler("metes-import-begin", |arg| arg)?;
    world.assert_held(&address, "sandbox");
    // Given up, and begun again.
    world.reconciler("metes-import-cancel", |arg| arg)?;
    world.add("meanwhile", "00000000-0000-0000-0000-000000000000");
    world.node.del("meanwhile").ifname("net1").config(&config).run().silent();
    world.reconciler("metes-import-begin", |arg| arg)?;
    world.network("metes");
    let no_wait = |arg: String| if arg == "--wait" { "--settle=0s".to_owned() } else { arg };
    world.reconciler("metes-import-finish", no_wait)?;
    world.assert_held(&address, "sandbox");
    world.cluster.assert_clean();
    Ok(())
}

/// One etcd serves all of its runs.
fn sign(lab: &Lab) -> Result<(), String> {
    static SITE: OnceLock<Site> = OnceLock::new();
    sign_as(SITE.get_or_init(Site::new), lab.api, lab.namespace, &lab.kubeconfig)
}

/// Does the work of the Job, from the beginning.
fn store_certificates(lab: &Lab) -> Result<(), String> {
    let in_system = ["metes-ca", "metes-node-ca", "metes-etcd-server", "metes-etcd-peer", "metes-signer"]
        .map(|name| (name, "metes-system"));
    let in_pods = ["metes-reconciler", "metes-viewer", "metes-admin", "metes-metrics", "metes-webhook"]
        .map(|name| (name, "metes"));
    let secrets = in_system.into_iter().chain(in_pods);
    let paths: Vec<String> =
        secrets.map(|(name, namespace)| format!("/api/v1/namespaces/{namespace}/secrets/{name}")).collect();
    let trusted = "/api/v1/namespaces/metes-system/configmaps/metes-ca";
    paths.iter().for_each(|path| lab.api.delete(path));
    lab.api.delete(trusted);
    let manifests = Manifests::copy();
    manifests.edit("base/metes.conf", "change-me", "c1");
    let container = &lab.one("Job", "metes-certificates")["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["env"][1], json!({"name": "PODS_NAMESPACE", "value": "metes"}));
    let args = container["args"].as_array().expect("it has arguments");
    let made = Run::new(metes_install())
        .env("KUBECONFIG", &lab.kubeconfig)
        .env("NAMESPACE", lab.namespace)
        .env("PODS_NAMESPACE", "metes")
        .arguments(args.iter().filter_map(Value::as_str))
        .arguments([format!("--template={}", manifests.path("base/metes.conf").display())])
        .run();
    if !made.succeeded() {
        return Err(made.stderr);
    }
    paths.iter().for_each(|path| assert!(lab.api.get(path)["data"]["tls.crt"].is_string(), "{path}"));
    Ok(())
}
