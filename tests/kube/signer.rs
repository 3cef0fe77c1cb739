//! The signer of nodes' certificates with a real kube-apiserver, and an etcd that asks for users.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use etcd_client::{GetOptions, UserAddOptions};
use serde_json::{Value, json};
use support::{
    Etcd, KubeApi, Kubectl, Pod, Reachable, Run, Running, Store, Tls, metes_install, report, spawn_bound,
    temporary, tool, wait_for,
};
use tempfile::TempDir;

const ACCOUNT: &str = "metes-installer";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const DECIDED_MAX: Duration = Duration::from_secs(60);
const CLUSTER: &str = "c1";
const DAY: i64 = 24 * 3600;
const P256: &[&str] = &["ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"];

/// A cluster with an etcd for one test at a time: a signer denies what it finds of others.
struct Lab {
    api: &'static KubeApi,
    namespace: String,
    site: Site,
    _one: MutexGuard<'static, ()>,
}

impl Deref for Lab {
    type Target = Site;

    fn deref(&self) -> &Site {
        &self.site
    }
}

/// An etcd that asks for users, and the files that the signer's pod has mounted.
pub(crate) struct Site {
    etcd: Etcd,
    folder: TempDir,
    /// The number of keys that were made.
    keys: AtomicU32,
}

impl Lab {
    fn new() -> Self {
        static ONE: Mutex<()> = Mutex::new(());
        static SERVER: OnceLock<KubeApi> = OnceLock::new();
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let api = SERVER.get_or_init(KubeApi::start);
        let lab = Self { api, namespace: api.new_namespace(), site: Site::new(), _one: one };
        for name in [ACCOUNT, "another"] {
            let_it_ask(api, &lab.namespace, name);
        }
        lab
    }

    fn signer(&self, arguments: &[&str]) -> Running {
        Run::new(metes_install())
            .env("KUBECONFIG", self.api.kubeconfig(self.folder.path()))
            .env("NAMESPACE", &self.namespace)
            .arguments(["signer", "--template=metes.conf", "--authority=node-ca"])
            .arguments(arguments)
            .within(self.folder.path())
            .spawn()
    }

    fn node(&self, number: u32) -> Asker<'_> {
        let name = format!("{}-n{number}", self.namespace);
        self.api.node(&name);
        self.asker(&format!("installer-{number}"), &name, ACCOUNT)
    }

    fn asker(&self, pod: &str, node: &str, account: &str) -> Asker<'_> {
        let spec = json!({"spec": {"serviceAccountName": account}});
        let pod = self.api.pod(&self.namespace, pod).node(node).with(spec).create();
        Asker { api: self.api, site: &self.site, pod, node: node.to_owned(), account: account.to_owned() }
    }

    fn status(&self, request: &str) -> Value {
        self.api.get(&format!("{REQUESTS}/{request}"))["status"].clone()
    }

    /// Waits until the request has a certificate, and returns that.
    #[track_caller]
    fn signed(&self, request: &str) -> String {
        wait_for("a certificate", DECIDED_MAX, || {
            let status = self.status(request);
            let pem = STANDARD.decode(status["certificate"].as_str().ok_or(status.to_string())?);
            String::from_utf8(pem.expect("base64")).map_err(|e| e.to_string())
        })
    }

    /// Waits until the request is denied, and returns the message.
    #[track_caller]
    fn denied(&self, request: &str) -> String {
        wait_for("a decision", DECIDED_MAX, || {
            let status = self.status(request);
            assert!(status["certificate"].is_null(), "it is signed: {status}");
            let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
            let denied = conditions.iter().find(|one| one["type"] == "Denied" || one["type"] == "Failed");
            denied.map(|one| one["message"].to_string()).ok_or(status.to_string())
        })
    }
}

impl Site {
    pub(crate) fn new() -> Self {
        let site = Self { etcd: Etcd::start_mtls(), folder: temporary(), keys: AtomicU32::new(0) };
        site.write_files();
        site.roles();
        site
    }

    fn tls(&self) -> &Tls {
        self.etcd.tls().expect("it has TLS")
    }

    /// A signer that forgets soon, and whose log can be read while it runs.
    fn signer_with_log(&self, namespace: &str, kubeconfig: &Path, log: &Path) -> Child {
        spawn_bound(&metes_install(), |command| {
            command.args(["signer", "--template=metes.conf", "--authority=node-ca", "--forget-seconds=1"]);
            command.env("KUBECONFIG", kubeconfig).env("NAMESPACE", namespace).current_dir(self.folder.path());
            command.stderr(File::create(log).expect("a file can be made"));
        })
        .expect("it starts")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What the signer's pod has mounted. The authority of etcd is that of nodes, too.
    fn write_files(&self) {
        let (cert, key) = self.tls().client("signer", "metes-signer");
        let template = json!({"cluster": CLUSTER, "etcd": {
            "endpoints": [self.etcd.endpoint()], "server_name": "etcd.test",
            "ca_file": self.tls().ca(), "cert_file": cert, "key_file": key,
        }});
        fs::write(self.path("metes.conf"), template.to_string()).expect("a file can be written");
        fs::create_dir(self.path("node-ca")).expect("a folder can be made");
        let ca = self.tls().ca();
        for (from, to) in [(ca.clone(), "node-ca/tls.crt"), (ca.with_extension("key"), "node-ca/tls.key")] {
            fs::copy(from, self.path(to)).expect("a file can be copied");
        }
        let (cert, key) = self.tls().client("members", "metes-etcd-server");
        let files = json!({"trusted-ca-file": self.tls().ca(), "cert-file": cert, "key-file": key});
        let base = json!({"client-transport-security": files}).to_string();
        fs::write(self.path("base.json"), base).expect("a file can be written");
    }

    /// A verb that runs in the pod of a member.
    fn member(&self, arguments: &[&str]) -> Run {
        Run::new(metes_install())
            .arguments(arguments)
            .arguments(["--node-ip=127.0.0.1", "--template=metes.conf", "--base=base.json"])
            .within(self.folder.path())
    }

    fn roles(&self) {
        let set = self.member(&["etcd-roles"]).run();
        assert!(set.succeeded(), "{set}");
    }

    /// The store as the user of a certificate.
    fn as_user(&self, client: &(PathBuf, PathBuf)) -> Store {
        Store::open(&self.etcd, "/").as_client(self.tls(), client)
    }

    fn as_root(&self) -> Store {
        self.as_user(&self.tls().client("root", "metes-etcd-server"))
    }

    /// A new key, and a request for it: its path without the end, and the text.
    fn pkcs10(&self, subject: &str, algorithm: &[&str], more: &[&str]) -> (PathBuf, String) {
        let number = self.keys.fetch_add(1, Ordering::Relaxed);
        let path = self.path(&format!("key-{number}"));
        let made = Command::new("openssl")
            .args(["req", "-new", "-nodes", "-newkey"])
            .args(algorithm)
            .arg("-keyout")
            .arg(path.with_extension("key"))
            .args(["-subj", subject])
            .args(more)
            .output()
            .expect("openssl runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        (path, String::from_utf8(made.stdout).expect("PEM"))
    }

    /// The users of nodes in etcd.
    fn users(&self) -> BTreeSet<String> {
        let all = self.as_root().run(async |client| client.auth_client().user_list().await);
        all.users().iter().filter(|user| user.starts_with("metes-node/")).cloned().collect()
    }

    /// It goes up with each change of users and roles.
    fn auth_revision(&self) -> u64 {
        let (cert, key) = self.tls().client("root", "metes-etcd-server");
        let option = |name: &str, file: PathBuf| format!("--{name}={}", file.display());
        let outcome = Run::new(tool("etcd-clients").join("etcdctl"))
            .arguments(["auth", "status", &format!("--endpoints={}", self.etcd.endpoint())])
            .arguments([option("cacert", self.tls().ca()), option("cert", cert), option("key", key)])
            .run();
        let line = outcome.stdout.lines().find_map(|line| line.strip_prefix("AuthRevision: "));
        line.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{outcome}"))
    }

    /// The serials that are recorded for a user.
    fn recorded(&self, user: &str) -> Vec<String> {
        let found = self.as_root().get(&format!("metes-signer/node/{user}"));
        let record: Value = found.map_or(Value::Null, |text| serde_json::from_slice(&text).expect("JSON"));
        let all = record["issued"].as_array().into_iter().flatten();
        all.map(|one| one["serial"].as_str().expect("a serial").to_owned()).collect()
    }

    /// The seconds for which etcd still refuses a certificate of this user.
    fn refused_for(&self, user: &str) -> i64 {
        self.as_root().run(async |client| {
            let all = GetOptions::new().with_prefix();
            let all = client.get("/metes-signer/revoked/", Some(all)).await?;
            let lease = all.kvs().iter().find(|one| one.value() == user.as_bytes()).expect("a key").lease();
            client.lease_time_to_live(lease, None).await.map(|left| left.ttl())
        })
    }
}

/// Makes an account whose pods may ask.
pub(crate) fn let_it_ask(api: &KubeApi, namespace: &str, name: &str) {
    let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    api.create_missing(&accounts, &json!({"metadata": {"name": name}}));
    let version = "rbac.authorization.k8s.io/v1";
    api.apply(&json!({
        "apiVersion": version, "kind": "ClusterRole", "metadata": {"name": "ask"},
        "rules": [{
            "apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"], "verbs": ["create"],
        }],
    }));
    api.apply(&json!({
        "apiVersion": version, "kind": "ClusterRoleBinding", "metadata": {"name": format!("ask-{namespace}-{name}")},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "ask"},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    }));
}

impl Drop for Lab {
    fn drop(&mut self) {
        // A signer makes users for all nodes that there are.
        for path in [REQUESTS, "/api/v1/nodes"] {
            for one in self.api.get(path)["items"].as_array().into_iter().flatten() {
                self.api.delete(&format!("{path}/{}", one["metadata"]["name"].as_str().unwrap_or_default()));
            }
        }
    }
}

/// A pod on a node, with its token.
struct Asker<'a> {
    api: &'static KubeApi,
    site: &'a Site,
    pod: Pod,
    node: String,
    account: String,
}

impl Asker<'_> {
    fn user(&self) -> String {
        format!("metes-node/{CLUSTER}/{}", self.node)
    }

    fn subject(&self) -> String {
        format!("/CN={}", self.user().replace('/', "\\/"))
    }

    /// Asks as the installer does. The path of the key, without its end, and the name of the request.
    fn asks(&self) -> (PathBuf, String) {
        let (key, text) = self.site.pkcs10(&self.subject(), P256, &[]);
        (key, self.sends(&text))
    }

    fn sends(&self, pkcs10: &str) -> String {
        self.sends_for(pkcs10, &["digital signature", "client auth"])
    }

    fn sends_for(&self, pkcs10: &str, usages: &[&str]) -> String {
        self.sends_with(&self.token(true), pkcs10, usages)
    }

    fn token(&self, is_bound: bool) -> String {
        let (namespace, account) = (self.pod.namespace(), &self.account);
        let mut request =
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        if is_bound {
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod", "name": self.pod.name(), "uid": self.pod.uid(),
            });
            request["spec"]["boundObjectRef"] = pod;
        }
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
        self.api.create(&path, &request)["status"]["token"].as_str().expect("a token").to_owned()
    }

    fn sends_with(&self, token: &str, pkcs10: &str, usages: &[&str]) -> String {
        let kubeconfig = self.api.access().with_token(token).kubeconfig(self.site.folder.path());
        let object = json!({
            "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
            "metadata": {"generateName": "metes-node-"},
            "spec": {
                "signerName": "metes.dev/etcd-client", "usages": usages, "expirationSeconds": 1_209_600,
                "request": STANDARD.encode(pkcs10),
            },
        });
        let created = Kubectl::new(kubeconfig).run(["create", "-o", "json", "-f", "-"], &object.to_string());
        created.ok()["metadata"]["name"].as_str().expect("a name").to_owned()
    }
}

/// The work of the signer's account: it signs a request of a new node, and deletes the user of one that is gone. Or
/// else the log with what the API refuses.
pub(crate) fn sign_as(
    site: &Site,
    api: &'static KubeApi,
    namespace: &str,
    kubeconfig: &Path,
) -> Result<(), String> {
    let_it_ask(api, namespace, ACCOUNT);
    let gone = format!("metes-node/{CLUSTER}/gone");
    let _ = site.as_root().try_run(async |client| {
        let options = UserAddOptions::new().with_no_pwd();
        client.auth_client().user_add(gone.as_str(), "", Some(options)).await
    });
    let name = format!("n{}", site.keys.fetch_add(1, Ordering::Relaxed));
    api.node(&name);
    let spec = json!({"spec": {"serviceAccountName": ACCOUNT}});
    let pod = api.pod(namespace, &name).node(&name).with(spec).create();
    let asker = Asker { api, site, pod, node: name.clone(), account: ACCOUNT.to_owned() };
    let path = format!("{REQUESTS}/{}", asker.asks().1);
    let log = site.path(&format!("log-{name}"));
    let mut signer = site.signer_with_log(namespace, kubeconfig, &log);
    let done = wait_for("its work, or a refusal", DECIDED_MAX, || {
        let said = fs::read_to_string(&log).expect("it is there");
        let is_signed = !api.get(&path)["status"]["certificate"].is_null();
        match said.contains("forbidden") {
            true => Ok(Err(said)),
            false if is_signed && !site.users().contains(&gone) => Ok(Ok(())),
            false => Err(said),
        }
    });
    let _ = signer.kill();
    let _ = signer.wait();
    asker.pod.delete();
    [path, format!("/api/v1/nodes/{name}")].iter().for_each(|path| api.delete(path));
    done
}

/// Writes a certificate beside its key; both paths.
fn write(key: &Path, certificate: &str) -> (PathBuf, PathBuf) {
    let path = key.with_extension("pem");
    fs::write(&path, certificate).expect("a file can be written");
    (path, key.with_extension("key"))
}

/// The words of openssl about a certificate.
fn shown(certificate: &Path, arguments: &[&str]) -> String {
    let shown =
        Command::new("openssl").args(["x509", "-noout", "-in"]).arg(certificate).args(arguments).output();
    let shown = shown.expect("openssl runs");
    assert!(shown.status.success(), "{shown:?}");
    String::from_utf8(shown.stdout).expect("text").trim().to_owned()
}

/// A certificate that etcd refuses would fail each ADD of the node.
#[test]
fn no_certificate_is_given_that_etcd_does_not_trust() {
    let lab = Lab::new();
    let other = Tls::create(&lab.path("other"));
    let [trusted, key] = [lab.tls().ca(), lab.tls().ca().with_extension("key")];
    let place = |ca: &Path, key: &Path| {
        for (from, to) in [(ca, "node-ca/tls.crt"), (key, "node-ca/tls.key")] {
            fs::copy(from, lab.path(to)).expect("a file can be copied");
        }
    };
    place(&other.ca(), &other.ca().with_extension("key"));
    let (log, kubeconfig) = (lab.path("log"), lab.api.kubeconfig(lab.folder.path()));
    let mut signer = lab.signer_with_log(&lab.namespace, &kubeconfig, &log);
    let (_, request) = lab.node(1).asks();
    wait_for("the reason", DECIDED_MAX, || {
        let said = fs::read_to_string(&log).expect("it is there");
        if said.contains("does not trust the authority of nodes") { Ok(()) } else { Err(said) }
    });
    assert!(lab.status(&request)["conditions"].is_null(), "it is undecided");
    place(&trusted, &key);
    lab.signed(&request);
    signer.kill().expect("it runs");
    signer.wait().expect("it has ended");
}

#[test]
fn the_pod_of_the_installer_gets_a_certificate_for_its_node() {
    let lab = Lab::new();
    let _signer = lab.signer(&[]);
    let asker = lab.node(1);
    let (key, request) = asker.asks();
    let client = write(&key, &lab.signed(&request));
    let text = shown(&client.0, &["-subject", "-nameopt", "RFC2253"]);
    assert_eq!(text, format!("subject=CN={}", asker.user()));
    let serial = shown(&client.0, &["-serial"]).replace("serial=", "").to_lowercase();
    assert_eq!(lab.recorded(&asker.user()), [serial]);
    let store = lab.as_user(&client);
    store.put("metes/v1/fence/x", "1");
    assert!(store.try_run(async |client| client.put("/other/x", "1", None).await).is_err());
    assert!(store.try_run(async |client| client.get("/metes-signer/", None).await).is_err());

    // All that a request wants beside its key counts for nothing.
    let wishes = [
        "-addext",
        "subjectAltName=DNS:etcd.test,IP:127.0.0.1",
        "-addext",
        "extendedKeyUsage=serverAuth",
        "-addext",
        "basicConstraints=critical,CA:TRUE",
    ];
    let (key, pkcs10) = lab.pkcs10(&format!("/O=system:masters{}", asker.subject()), P256, &wishes);
    let (certificate, _) = write(&key, &lab.signed(&asker.sends(&pkcs10)));
    let text = shown(&certificate, &["-text"]);
    for word in ["system:masters", "etcd.test", "127.0.0.1", "Server Authentication", "CA:TRUE"] {
        assert!(!text.contains(word), "{word}: {text}");
    }
    assert!(text.contains("TLS Web Client Authentication") && text.contains("Digital Signature"), "{text}");
    let verified = Command::new("openssl")
        .args(["verify", "-x509_strict", "-purpose", "sslclient", "-CAfile"])
        .args([lab.tls().ca(), certificate.clone()])
        .output()
        .expect("openssl runs");
    assert!(verified.status.success(), "{verified:?}");
    let ends_within = |seconds: i64| {
        let seconds = seconds.to_string();
        let mut run = Command::new("openssl");
        run.args(["x509", "-noout", "-checkend", &seconds, "-in"]).arg(&certificate);
        !run.output().expect("openssl runs").status.success()
    };
    assert!(!ends_within(13 * DAY) && ends_within(15 * DAY), "{text}");
    assert_eq!(lab.recorded(&asker.user()).len(), 2);
}

#[test]
fn a_node_with_a_long_name_is_known_by_a_digest() {
    let lab = Lab::new();
    let signer = lab.signer(&[]);
    let node = format!("{}-{}", lab.namespace, "n".repeat(60));
    lab.api.node(&node);
    let asker = lab.asker("installer", &node, ACCOUNT);
    let digest = ring::digest::digest(&ring::digest::SHA256, asker.user().as_bytes());
    let digits: String = digest.as_ref()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    let user = format!("metes-node/{digits}");
    let (_, pkcs10) = lab.pkcs10(&format!("/CN=metes-node\\/{digits}"), P256, &[]);
    lab.signed(&asker.sends(&pkcs10));
    assert_eq!(lab.users(), BTreeSet::from([user]));
    // Nor does a signer that has never seen the node forget which one it was.
    drop(signer);
    lab.api.delete(&format!("/api/v1/nodes/{node}"));
    let _signer = lab.signer(&["--forget-seconds=1"]);
    wait_for("the user to go", DECIDED_MAX, || {
        let users = lab.users();
        if users.is_empty() { Ok(()) } else { Err(format!("{users:?}")) }
    });
}

#[test]
fn a_request_that_is_not_of_the_nodes_own_pod_is_denied() {
    let lab = Lab::new();
    let (one, two) = (lab.node(1), lab.node(2));
    let (_, of_one) = lab.pkcs10(&one.subject(), P256, &[]);
    let another = lab.asker("another", &one.node, "another");
    let unregistered = lab.asker("unregistered", &format!("{}-n9", lab.namespace), ACCOUNT);
    let (deleted, replaced) = (lab.node(3), lab.node(4));
    let usual = ["digital signature", "client auth"];
    let (rsa, p384) = (["rsa:2048"], ["ec", "-pkeyopt", "ec_paramgen_curve:secp384r1"]);
    let foreign = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"generateName": "metes-node-"},
        "spec": {
            "signerName": "metes.dev/etcd-client", "usages": usual, "request": STANDARD.encode(&of_one),
        },
    });
    let by_admin =
        lab.api.create(REQUESTS, &foreign)["metadata"]["name"].as_str().expect("a name").to_owned();
    let approved = two.sends(&of_one);
    let mut object = lab.api.get(&format!("{REQUESTS}/{approved}"));
    object["status"]["conditions"] = json!([{"type": "Approved", "status": "True", "reason": "Test"}]);
    lab.api.ask("PUT", &format!("{REQUESTS}/{approved}/approval"), Some(&object)).ok("an approval");
    let cases = [
        ("an administrator", by_admin, "foreign account"),
        ("another account", another.sends(&of_one), "foreign account"),
        ("no pod", one.sends_with(&one.token(false), &of_one, &usual), "token of a pod"),
        ("another node", two.sends(&of_one), "another node's name"),
        ("approved by somebody else", approved, "another node's name"),
        ("no node", unregistered.asks().1, "is not in the API yet: its kubelet registers it"),
        ("a deleted pod", deleted.asks().1, "there is no pod"),
        ("a pod that was replaced", replaced.asks().1, "foreign pod"),
        (
            "a server",
            one.sends_for(&of_one, &["digital signature", "client auth", "server auth"]),
            "wrong usages",
        ),
        ("fewer usages", one.sends_for(&of_one, &["client auth"]), "wrong usages"),
        ("RSA", one.sends(&lab.pkcs10(&one.subject(), &rsa, &[]).1), "not one of P-256"),
        ("P-384", one.sends(&lab.pkcs10(&one.subject(), &p384, &[]).1), "not one of P-256"),
        (
            "the name of an administrator",
            one.sends(&lab.pkcs10("/CN=root", P256, &[]).1),
            "another node's name",
        ),
        (
            "much",
            one.sends(&lab.pkcs10(&one.subject(), P256, &["-addext", &long_name()]).1),
            "8192 are the most",
        ),
    ];
    deleted.pod.delete();
    replaced.pod.replace();
    let _signer = lab.signer(&[]);
    report(cases.iter().map(|(name, request, words)| {
        let message = lab.denied(request);
        (!message.contains(words)).then(|| format!("{name}: {message}"))
    }));
    assert!(!lab.users().contains(&unregistered.user()));
    // What was denied once is asked again, and goes on.
    lab.api.node(&unregistered.node);
    lab.signed(&unregistered.asks().1);
    assert!(lab.users().contains(&unregistered.user()));
}

/// A restored etcd lacks users of nodes that have valid certificates.
#[test]
fn a_node_whose_user_is_missing_gets_it_back() {
    let lab = Lab::new();
    let _signer = lab.signer(&["--forget-seconds=60"]);
    let asker = lab.node(1);
    let (key, request) = asker.asks();
    let client = write(&key, &lab.signed(&request));
    let user = asker.user();
    lab.as_root().run(async |client| client.auth_client().user_delete(user.as_str()).await);
    let put = || {
        let put =
            lab.as_user(&client).try_run(async |client| client.put("/metes/v1/fence/x", "1", None).await);
        put.map_err(|e| e.to_string())
    };
    wait_for("the user to be back", DECIDED_MAX, put);
}

/// An extension that is longer than a whole request may be.
fn long_name() -> String {
    let names: Vec<String> = (0..200).map(|number| format!("DNS:{number}.{}", "n".repeat(40))).collect();
    format!("subjectAltName={}", names.join(","))
}

#[test]
fn two_signers_make_few_users_at_a_time_and_one_certificate_for_each_request() {
    let lab = Lab::new();
    let old = lab.node(0);
    let first = lab.signer(&[]);
    lab.signed(&old.asks().1);
    drop(first);
    let askers: Vec<Asker<'_>> = (1..=8).map(|number| lab.node(number)).collect();
    let requests: Vec<(PathBuf, String)> = askers.iter().map(Asker::asks).collect();
    let before = lab.auth_revision();
    let start = Instant::now();
    let _signers = [lab.signer(&[]), lab.signer(&[])];
    // A node that has a user already does not wait for the others.
    let (_, again) = old.asks();
    lab.signed(&again);
    let unsigned = |(_, request): &&(PathBuf, String)| lab.status(request)["certificate"].is_null();
    assert!(requests.iter().any(|request| unsigned(&request)), "there was nothing to wait for");
    wait_for("all certificates", DECIDED_MAX, || {
        let users = lab.users().len() as u64 - 1;
        // Each signer begins with one, and makes another each second.
        let most = 2 * (start.elapsed().as_secs() + 1);
        assert!(users <= most, "{users} users in {:?}", start.elapsed());
        let left = requests.iter().filter(unsigned).count();
        if left == 0 { Ok(()) } else { Err(format!("{left} are left")) }
    });
    assert_eq!(lab.auth_revision() - before, 2 * askers.len() as u64, "two changes for each user");
    for (asker, (key, request)) in askers.iter().zip(&requests) {
        let client = write(key, &lab.signed(request));
        let serial = shown(&client.0, &["-serial"]).replace("serial=", "").to_lowercase();
        assert!(lab.recorded(&asker.user()).contains(&serial), "{request}");
        lab.as_user(&client).put("metes/v1/fence/x", "1");
    }
}

#[test]
fn the_user_of_a_node_that_is_gone_is_deleted() {
    let lab = Lab::new();
    let _signer = lab.signer(&["--forget-seconds=2"]);
    let (stays, goes) = (lab.node(1), lab.node(2));
    for asker in [&stays, &goes] {
        lab.signed(&asker.asks().1);
    }
    // An etcd may serve several clusters.
    lab.as_root().run(async |client| {
        let options = UserAddOptions::new().with_no_pwd();
        client.auth_client().user_add("metes-node/c2/gone", "", Some(options)).await
    });
    lab.api.delete(&format!("/api/v1/nodes/{}", goes.node));
    let left = BTreeSet::from([stays.user(), "metes-node/c2/gone".to_owned()]);
    wait_for("the user to go", DECIDED_MAX, || {
        let users = lab.users();
        if users == left { Ok(()) } else { Err(format!("{users:?}")) }
    });
    // A person may still revoke its certificate.
    assert_eq!(lab.recorded(&goes.user()).len(), 1);
    assert_eq!(lab.recorded(&stays.user()).len(), 1);
}

/// Its user stays: without it, the next request would make another one.
#[test]
fn a_revoked_node_gets_no_certificate_again() {
    let lab = Lab::new();
    let _signer = lab.signer(&["--forget-seconds=1"]);
    let (known, unknown, marker) = (lab.node(1), lab.node(2), lab.node(3));
    for asker in [&known, &marker] {
        lab.signed(&asker.asks().1);
    }
    for asker in [&known, &unknown] {
        let revoked = lab.member(&["revoke", &asker.node]).run();
        assert!(revoked.succeeded(), "{revoked}");
        let message = lab.denied(&asker.asks().1);
        assert!(message.contains(&format!("node {} was revoked", asker.node)), "{message}");
    }
    // Refused for longer than a certificate is valid, and not forever.
    assert!((15 * DAY..=16 * DAY).contains(&lab.refused_for(&known.user())));
    for asker in [&known, &unknown, &marker] {
        lab.api.delete(&format!("/api/v1/nodes/{}", asker.node));
    }
    wait_for("the user of another node to go", DECIDED_MAX, || {
        let users = lab.users();
        if users.contains(&marker.user()) { Err(format!("{users:?}")) } else { Ok(()) }
    });
    assert_eq!(lab.users(), BTreeSet::from([known.user(), unknown.user()]));
}
