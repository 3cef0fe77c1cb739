//! Real kube-apiservers on free ports of the loopback, each with an etcd of its own.
//!
//! There is no controller, no scheduler and no kubelet: an object stays as it is until the test changes it.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::etcd::{Etcd, free_ports};
use super::http::{HttpsClient, Message};
use super::process::{signal, spawn_bound, stop, temporary, unique};
use super::store::Store;
use super::tls::Tls;
use super::tool::tool;
use super::wait::wait_for;

const READY_MAX: Duration = Duration::from_secs(120);
/// Another process may take a port between its choice and its use.
const START_TRIES_MAX: u32 = 5;
const LOG_TAIL_LINES: usize = 20;
const TOKEN: &str = "the-admin-of-a-test";
const KUBELET_TOKEN: &str = "a-kubelet-of-a-test";

/// The node whose kubelet a test may be.
pub const KUBELET: &str = "of-a-kubelet";

/// A running API server. Clones are the same server: a closure may own one. When the last goes the server is
/// killed and its data removed; it is killed too when the test process dies.
#[derive(Clone, Debug)]
pub struct KubeApi {
    server: Arc<Server>,
}

#[derive(Debug)]
struct Server {
    // Fields are dropped in this order: the server before its store.
    child: Mutex<Child>,
    client: Arc<HttpsClient>,
    access: Access,
    /// Path and namespacedness of a kind, as the server told them.
    kinds: Mutex<HashMap<(String, String), (String, bool)>>,
    etcd: Etcd,
    folder: TempDir,
}

/// The address of a server and the account that asks: the content of a kubeconfig.
#[derive(Clone, Debug)]
pub struct Access {
    pub url: String,
    /// None where `url` is plain HTTP.
    pub authority: Option<PathBuf>,
    pub token: String,
}

/// A target of a kubeconfig: a server, or a proxy before one.
pub trait Reachable {
    /// As its administrator.
    fn access(&self) -> Access;
}

impl Access {
    /// The same server as somebody else.
    pub fn with_token(self, token: &str) -> Self {
        Self { token: token.to_owned(), ..self }
    }

    /// Writes a kubeconfig into the folder; its path.
    pub fn kubeconfig(&self, folder: &Path) -> PathBuf {
        let mut cluster = json!({"server": self.url});
        if let Some(authority) = &self.authority {
            cluster["certificate-authority"] = json!(authority);
        }
        let text = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": {"token": self.token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        });
        fs::create_dir_all(folder).expect("a folder can be made");
        let path = folder.join(unique("kubeconfig"));
        fs::write(&path, text.to_string()).expect("a kubeconfig can be written");
        path
    }
}

impl Reachable for KubeApi {
    fn access(&self) -> Access {
        self.server.access.clone()
    }
}

/// The answer of the server.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub body: Value,
}

impl Answer {
    /// The body of an answer that is a success.
    #[track_caller]
    pub fn ok(self, what: &str) -> Value {
        assert!((200..300).contains(&self.status), "{what}: {} {}", self.status, self.body);
        self.body
    }
}

impl KubeApi {
    /// The server that all tests of this process share: each test has its own namespaces and nodes there, and sees
    /// those of the others. It lives as long as the process.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<KubeApi> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    /// A second one, which also has the kinds of Multus and whereabouts.
    pub fn shared_with_crds() -> &'static Self {
        static SHARED: OnceLock<KubeApi> = OnceLock::new();
        SHARED.get_or_init(|| {
            let api = Self::start();
            api.install_crds();
            api
        })
    }

    pub fn start() -> Self {
        // Not the shared one: an API server compacts the whole store every few minutes.
        let etcd = Etcd::start();
        let folder = temporary();
        let tls = Tls::create(&folder.path().join("tls"));
        let tokens = format!(
            "{TOKEN},admin,admin,system:masters\n\
             {KUBELET_TOKEN},system:node:{KUBELET},{KUBELET},system:nodes\n"
        );
        fs::write(folder.path().join("tokens"), tokens).expect("a file can be written");
        let (child, port) = start_server(folder.path(), &etcd, &tls);
        let url = format!("https://127.0.0.1:{port}");
        let access = Access { url, authority: Some(tls.ca()), token: TOKEN.to_owned() };
        let client = Arc::new(HttpsClient::new(port, &tls.ca()));
        let kinds = Mutex::default();
        let server = Server { child: Mutex::new(child), client, access, kinds, etcd, folder };
        Self { server: Arc::new(server) }
    }

    /// The store below the server, at the prefix of all its objects: for a world too large to be created through it.
    pub fn store(&self) -> Store {
        Store::open(&self.server.etcd, "/registry/")
    }

    /// A kubeconfig of the administrator in this folder.
    pub fn kubeconfig(&self, folder: &Path) -> PathBuf {
        self.access().kubeconfig(folder)
    }

    /// A kubeconfig with the identity of the kubelet of the node [`KUBELET`].
    pub fn kubeconfig_of_kubelet(&self, folder: &Path) -> PathBuf {
        self.access().with_token(KUBELET_TOKEN).kubeconfig(folder)
    }

    /// A kubeconfig of a service account, which is created where it is missing.
    pub fn kubeconfig_for_service_account(&self, folder: &Path, namespace: &str, name: &str) -> PathBuf {
        self.access().with_token(&self.service_account_token(namespace, name)).kubeconfig(folder)
    }

    /// A token of a service account, which is created where it is missing.
    pub fn service_account_token(&self, namespace: &str, name: &str) -> String {
        let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        self.create_missing(&accounts, &json!({"metadata": {"name": name}}));
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let answer = self.create(&format!("{accounts}/{name}/token"), &request);
        answer["status"]["token"].as_str().expect("a token is text").to_owned()
    }

    /// One object or one list; `path` begins with /api or /apis and may have a query.
    #[track_caller]
    pub fn get(&self, path: &str) -> Value {
        self.ask("GET", path, None).ok(path)
    }

    /// None where it does not exist.
    #[track_caller]
    pub fn find(&self, path: &str) -> Option<Value> {
        let answer = self.ask("GET", path, None);
        if answer.status == 404 { None } else { Some(answer.ok(path)) }
    }

    /// POST to a collection or a subresource.
    #[track_caller]
    pub fn create(&self, path: &str, object: &Value) -> Value {
        self.ask("POST", path, Some(object)).ok(path)
    }

    /// The same, where an object of this name may be there already.
    #[track_caller]
    pub fn create_missing(&self, path: &str, object: &Value) {
        let answer = self.ask("POST", path, Some(object));
        if answer.status != 409 {
            answer.ok(path);
        }
    }

    /// A JSON merge patch: `null` takes a field away, an array replaces the whole array.
    #[track_caller]
    pub fn patch(&self, path: &str, change: &Value) -> Value {
        self.ask("PATCH", path, Some(change)).ok(path)
    }

    /// Creates an object of any kind that the server knows, or changes it to this: fields that an earlier apply had
    /// and this one lacks go.
    #[track_caller]
    pub fn apply(&self, object: &Value) -> Value {
        let path = format!("{}?fieldManager=test&force=true", self.path_of(object));
        self.request("PATCH", &path, "application/apply-patch+yaml", Some(object)).ok(&path)
    }

    /// Without a grace period. One that is gone already is fine.
    #[track_caller]
    pub fn delete(&self, path: &str) {
        let answer = self.ask("DELETE", path, Some(&json!({"gracePeriodSeconds": 0})));
        if answer.status != 404 {
            answer.ok(path);
        }
    }

    /// The path of an object of this kind and name.
    #[track_caller]
    pub fn path_of(&self, object: &Value) -> String {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (resource, namespaced) = self.kind(&text(&object["apiVersion"]), &text(&object["kind"]));
        let metadata = &object["metadata"];
        let (group, plural) = resource.rsplit_once('/').expect("a resource has a group");
        let mut path = group.to_owned();
        if namespaced {
            let namespace = metadata["namespace"].as_str().unwrap_or("default");
            write!(path, "/namespaces/{namespace}").expect("text can be written");
        }
        format!("{path}/{plural}/{}", text(&metadata["name"]))
    }

    /// Any request, as the administrator; JSON goes out as the usual type for its method.
    #[track_caller]
    pub fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        self.request(method, path, kind, body)
    }

    #[track_caller]
    fn request(&self, method: &str, path: &str, kind: &str, body: Option<&Value>) -> Answer {
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = Message::new(format!("{method} {path} HTTP/1.1"), body)
            .with("Host", "127.0.0.1")
            .with("Authorization", format!("Bearer {TOKEN}"))
            .with("Accept", "application/json")
            .with("Content-Type", kind);
        let answer = self.server.client.send(&request).unwrap_or_else(|error| {
            panic!(
                "{method} {path}: {error}; the server's last words:\n{}",
                log_tail(self.server.folder.path())
            )
        });
        let text = || Value::String(String::from_utf8_lossy(&answer.body).into_owned());
        let body = serde_json::from_slice(&answer.body).unwrap_or_else(|_| text());
        Answer { status: answer.status(), body }
    }

    #[track_caller]
    fn kind(&self, version: &str, kind: &str) -> (String, bool) {
        let key = (version.to_owned(), kind.to_owned());
        if let Some(known) = self.server.kinds.lock().expect("nobody panics with it").get(&key) {
            return known.clone();
        }
        let base = if version.contains('/') { "apis" } else { "api" };
        let list = self.get(&format!("/{base}/{version}"));
        let resources = list["resources"].as_array().expect("a group has resources");
        let found = resources
            .iter()
            .filter_map(|resource| Some((resource, resource["name"].as_str()?)))
            .find(|(resource, name)| resource["kind"] == kind && !name.contains('/'))
            .map(|(resource, name)| (format!("/{base}/{version}/{name}"), resource["namespaced"] == true))
            .unwrap_or_else(|| panic!("the server knows no {kind} in {version}"));
        self.server.kinds.lock().expect("nobody panics with it").insert(key, found.clone());
        found
    }

    /// For a proxy before this server.
    pub(crate) fn client(&self) -> Arc<HttpsClient> {
        Arc::clone(&self.server.client)
    }

    /// SIGSTOP: connections stay open, nothing answers.
    pub fn stop(&self) {
        stop(&self.server.child.lock().expect("nobody panics with it"));
    }

    /// SIGCONT.
    pub fn resume(&self) {
        signal(&self.server.child.lock().expect("nobody panics with it"), Signal::CONT);
    }

    /// SIGKILL, and waits for the end: from here on connections are refused.
    pub fn kill(&self) {
        self.server.end();
    }

    pub fn log(&self) -> String {
        read_log(self.server.folder.path())
    }
}

impl Server {
    fn end(&self) {
        // It may be dead already, and a failing test must show its own failure.
        if let Ok(mut child) = self.child.lock() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

fn start_server(folder: &Path, etcd: &Etcd, tls: &Tls) -> (Child, u16) {
    for _ in 0..START_TRIES_MAX {
        let [port] = free_ports();
        let mut child = spawn(folder, etcd, tls, port);
        let client = HttpsClient::new(port, &tls.ca());
        let ready = wait_for("kube-apiserver to answer", READY_MAX, || {
            if child.try_wait().expect("an own child can be asked").is_some() {
                return Ok(false);
            }
            ready(&client).map(|()| true)
        });
        if ready {
            return (child, port);
        }
        let taken = read_log(folder).contains("address already in use");
        assert!(taken, "kube-apiserver ended at once; its last words:\n{}", log_tail(folder));
    }
    panic!("no free port for kube-apiserver in {START_TRIES_MAX} tries");
}

/// kube-system is made by the server itself, a moment after it says that it is ready.
fn ready(client: &HttpsClient) -> Result<(), String> {
    for path in ["/readyz", "/api/v1/namespaces/kube-system"] {
        let request = Message::new(format!("GET {path} HTTP/1.1"), [])
            .with("Host", "127.0.0.1")
            .with("Authorization", format!("Bearer {TOKEN}"));
        let answer = client.send(&request).map_err(|error| error.to_string())?;
        if answer.status() != 200 {
            return Err(format!("{path}: {}", String::from_utf8_lossy(&answer.body)));
        }
    }
    Ok(())
}

fn spawn(folder: &Path, etcd: &Etcd, tls: &Tls, port: u16) -> Child {
    let program = tool("kube-apiserver");
    let log = File::options().create(true).append(true).open(folder.join("log")).expect("a log can be made");
    let errors = log.try_clone().expect("a file handle can be doubled");
    spawn_bound(&program, |command| {
        command.args(flags(folder, etcd, tls, port)).current_dir(folder);
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
    })
    .unwrap_or_else(|error| panic!("cannot start {}: {error}", program.display()))
}

fn flags(folder: &Path, etcd: &Etcd, tls: &Tls, port: u16) -> Vec<String> {
    let with_path = |flag: &str, path: &Path| format!("--{flag}={}", path.display());
    let mut flags: Vec<String> = [
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        // There is nothing that the service "kubernetes" could lead to.
        "--endpoint-reconciler-type=none",
        "--service-cluster-ip-range=10.96.0.0/24",
        // As the installers of clusters have it.
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        // Nobody makes the account "default" of a new namespace, and no pod of a test needs it.
        "--disable-admission-plugins=ServiceAccount",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--enable-priority-and-fairness=false",
        "--profiling=false",
    ]
    .map(str::to_owned)
    .into();
    flags.push(format!("--etcd-servers={}", etcd.endpoint()));
    flags.push(format!("--secure-port={port}"));
    flags.push(with_path("tls-cert-file", &tls.server_cert()));
    flags.push(with_path("tls-private-key-file", &tls.server_key()));
    // Any pair serves for tokens that live as long as a test.
    flags.push(with_path("service-account-key-file", &tls.server_cert()));
    flags.push(with_path("service-account-signing-key-file", &tls.server_key()));
    flags.push(with_path("token-auth-file", &folder.join("tokens")));
    flags
}

fn read_log(folder: &Path) -> String {
    fs::read_to_string(folder.join("log")).unwrap_or_default()
}

fn log_tail(folder: &Path) -> String {
    let log = read_log(folder);
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
}
