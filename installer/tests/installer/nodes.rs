//! Members of etcd as manifests/ run them, on addresses of this machine: each is the program that a pod runs, which
//! becomes etcd.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;
use std::{env, process};

use crate::support::wait_for;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use etcd_client::{Certificate, Client, ConnectOptions, Error, GetOptions, Identity, TlsOptions};
use serde_json::{Value, json};
use tempfile::TempDir;

const REQUEST_MAX: Duration = Duration::from_secs(5);

/// A program of hack/tool, or the one that this variable names.
pub(crate) fn tool(name: &str, variable: &str) -> PathBuf {
    if let Some(path) = env::var_os(variable) {
        return path.into();
    }
    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("../hack/tool");
    let output = Command::new(tool).arg(name).output().expect("hack/tool runs");
    let text = String::from_utf8(output.stdout).expect("a text");
    PathBuf::from(text.lines().last().expect("hack/tool prints a path"))
}

fn tool_etcd() -> PathBuf {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| tool("etcd", "ETCD")).clone()
}

/// Nodes of one machine: each has an address of the loopback, with the ports of manifests/, and a folder.
pub(crate) struct Nodes {
    folder: TempDir,
    /// The first three bytes of all addresses.
    net: String,
}

impl Nodes {
    /// `metes.conf` names the first three. The certificates are good for four.
    pub(crate) fn new(test: u8) -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        // Those of tests that run at the same time differ, also of other processes.
        let net = format!("127.{}.{}", 64 + process::id() % 128, test);
        let nodes = Self { folder, net };
        nodes.name_members(&[1, 2, 3, 4]);
        let mut made =
            nodes.installer(&["certificates", "--one-key", "--namespace=metes-system", "--out=secrets.json"]);
        assert!(made.output().expect("metes-install runs").status.success());
        nodes.unpack_secrets();
        nodes.name_members(&[1, 2, 3]);
        nodes
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn ip(&self, node: u8) -> String {
        format!("{}.{node}", self.net)
    }

    pub(crate) fn data(&self, node: u8) -> PathBuf {
        self.path(&format!("data-{node}"))
    }

    pub(crate) fn endpoint(&self, node: u8) -> String {
        format!("https://{}:12379", self.ip(node))
    }

    pub(crate) fn name_members(&self, nodes: &[u8]) {
        let endpoints: Vec<String> = nodes.iter().map(|node| self.endpoint(*node)).collect();
        let template = json!({"cluster": "c1", "etcd": {"endpoints": endpoints}});
        fs::write(self.path("new.conf"), template.to_string()).expect("a file can be written");
        // A step may be reading it.
        fs::rename(self.path("new.conf"), self.path("metes.conf")).expect("it can be renamed");
    }

    pub(crate) fn installer(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        // It ends with the thread of its test.
        command.args(["--pdeathsig", "KILL", env!("CARGO_BIN_EXE_metes-install")]);
        command.args(arguments).arg("--template=metes.conf").current_dir(self.folder.path());
        command
    }

    pub(crate) fn unpack_secrets(&self) {
        let text = fs::read(self.path("secrets.json")).expect("it is there");
        let list: Value = serde_json::from_slice(&text).expect("JSON");
        let items = list["items"].as_array().expect("a list").iter();
        for secret in items.filter(|one| one["kind"] == "Secret") {
            let folder = self.path(secret["metadata"]["name"].as_str().expect("a name"));
            fs::create_dir_all(&folder).expect("a folder can be made");
            for (file, data) in secret["data"].as_object().expect("data") {
                let content = STANDARD.decode(data.as_str().expect("a text")).expect("base64");
                fs::write(folder.join(file), content).expect("a file can be written");
            }
        }
    }

    /// manifests/etcd/etcd.json with the folders of this test.
    pub(crate) fn write_base(&self, node: u8, token: &str) {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/etcd/etcd.json");
        let text = fs::read_to_string(manifest).expect("it is there");
        let in_folder = |name: &str| self.path(name).display().to_string();
        let text = text
            .replace("/etc/etcd/server", &in_folder("metes-etcd-server"))
            .replace("/etc/etcd/peer", &in_folder("metes-etcd-peer"));
        let mut base: Value = serde_json::from_str(&text).expect("JSON");
        base["data-dir"] = json!(self.data(node));
        base["listen-metrics-urls"] = json!(format!("http://{}:12381", self.ip(node)));
        base["initial-cluster-token"] = json!(token);
        base["unsafe-no-fsync"] = json!(true);
        fs::write(self.path(&format!("base-{node}.json")), base.to_string()).expect("a file can be written");
    }

    /// A pod of the StatefulSet on this node.
    pub(crate) fn start(&self, node: u8) -> Pod<'_> {
        self.start_with(node, "metes")
    }

    pub(crate) fn start_with(&self, node: u8, token: &str) -> Pod<'_> {
        let _ = fs::remove_dir_all(self.path(&format!("run-{node}")));
        self.start_again(node, token)
    }

    /// The container of a pod that has run before: what that has written is still there.
    pub(crate) fn start_again(&self, node: u8, token: &str) -> Pod<'_> {
        self.write_base(node, token);
        fs::create_dir_all(self.path(&format!("run-{node}"))).expect("a folder can be made");
        let log = File::create(self.path(&format!("log-{node}"))).expect("a file can be made");
        let child = self
            .installer(&["etcd"])
            .args([format!("--node-ip={}", self.ip(node)), format!("--base=base-{node}.json")])
            .arg(format!("--out=run-{node}/etcd.json"))
            .arg(format!("--etcd={}", tool_etcd().display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the program starts");
        Pod { nodes: self, node, child }
    }

    pub(crate) fn start_all<const N: usize>(&self, nodes: [u8; N]) -> [Pod<'_>; N] {
        nodes.map(|node| self.start(node))
    }

    fn client_options(&self, secret: &str) -> ConnectOptions {
        let read = |file: &str| fs::read(self.path(secret).join(file)).expect("it is there");
        let tls = TlsOptions::new()
            .ca_certificate(Certificate::from_pem(read("ca.crt")))
            .identity(Identity::from_pem(read("tls.crt"), read("tls.key")));
        ConnectOptions::new().with_tls(tls).with_timeout(REQUEST_MAX).with_connect_timeout(REQUEST_MAX)
    }

    /// Asks the etcd of one node, as a member does.
    pub(crate) fn ask<T>(
        &self,
        node: u8,
        request: impl AsyncFnOnce(&mut Client) -> Result<T, Error>,
    ) -> Result<T, String> {
        self.ask_as("metes-etcd-server", node, request)
    }

    /// The same with the certificate of this Secret.
    pub(crate) fn ask_as<T>(
        &self,
        secret: &str,
        node: u8,
        request: impl AsyncFnOnce(&mut Client) -> Result<T, Error>,
    ) -> Result<T, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime can be made").block_on(async {
            let connected = Client::connect([self.endpoint(node)], Some(self.client_options(secret))).await;
            match connected {
                Ok(mut client) => request(&mut client).await.map_err(|e| e.to_string()),
                Err(e) => Err(e.to_string()),
            }
        })
    }

    #[track_caller]
    pub(crate) fn put(&self, node: u8, key: &str) {
        wait_for("a write", || self.ask(node, async |client| client.put(key, "value", None).await).map(drop));
    }

    /// What this node itself has on its disk.
    pub(crate) fn has(&self, node: u8, key: &str) -> Result<(), String> {
        let options = GetOptions::new().with_serializable();
        let count = self.ask(node, async |client| Ok(client.get(key, Some(options)).await?.count()))?;
        if count == 1 { Ok(()) } else { Err(format!("{count} keys {key}")) }
    }

    #[track_caller]
    pub(crate) fn assert_has(&self, node: u8, key: &str) {
        wait_for(&format!("node {node} to have {key}"), || self.has(node, key));
    }

    /// The nodes in etcd's list, of which all have started.
    pub(crate) fn listed(&self, node: u8) -> Result<Vec<(u64, String)>, String> {
        let list = self.ask(node, async |client| client.member_list().await)?;
        let mut listed = Vec::new();
        for member in list.members() {
            if member.client_urls().is_empty() {
                return Err(format!("{:?} has not started", member.peer_urls()));
            }
            listed.push((member.id(), member.client_urls().concat()));
        }
        listed.sort_by(|(_, one), (_, other)| one.cmp(other));
        Ok(listed)
    }

    /// Waits until these are the members, and returns their ids.
    #[track_caller]
    pub(crate) fn members(&self, nodes: &[u8]) -> Vec<u64> {
        let expected: Vec<String> = nodes.iter().map(|node| self.endpoint(*node)).collect();
        wait_for("the list of members", || {
            let (ids, urls): (Vec<_>, Vec<_>) = self.listed(nodes[0])?.into_iter().unzip();
            if urls == expected { Ok(ids) } else { Err(format!("{urls:?}")) }
        })
    }

    /// Removes a member. If the answer of a try has come too late, the next one finds it removed.
    #[track_caller]
    pub(crate) fn remove(&self, id: u64) {
        wait_for("the removal", || match self.ask(1, async |client| client.member_remove(id).await) {
            Err(last) if !last.contains("member not found") => Err(last),
            _ => Ok(()),
        });
    }

    pub(crate) fn wipe(&self, node: u8) {
        fs::remove_dir_all(self.data(node)).expect("it can be removed");
    }
}

/// A program that becomes etcd as soon as it knows how this member begins. Ends with its value.
pub(crate) struct Pod<'a> {
    nodes: &'a Nodes,
    node: u8,
    child: Child,
}

impl Pod<'_> {
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.nodes.path(&format!("log-{}", self.node))).expect("it is there")
    }

    pub(crate) fn is_etcd(&self) -> bool {
        let name = fs::read_to_string(format!("/proc/{}/comm", self.child.id())).expect("it is a process");
        name.trim_end() == "etcd"
    }

    /// Waits for its end, and returns whether it was a success.
    #[track_caller]
    pub(crate) fn ended(&mut self) -> bool {
        wait_for(&format!("the end of node {}", self.node), || match self.child.try_wait() {
            Ok(Some(status)) => Ok(status.success()),
            _ => Err(self.log()),
        })
    }

    /// Waits until etcd runs.
    #[track_caller]
    pub(crate) fn runs(&self) {
        wait_for("etcd to run", || if self.is_etcd() { Ok(()) } else { Err(self.log()) });
    }

    #[track_caller]
    pub(crate) fn says(&self, words: &str) {
        wait_for(words, || if self.log().contains(words) { Ok(()) } else { Err(self.log()) });
    }

    #[track_caller]
    pub(crate) fn still_waits(&mut self) {
        let status = self.child.try_wait().expect("it can be asked");
        assert!(status.is_none() && !self.is_etcd(), "{status:?}: {}", self.log());
    }
}

impl Drop for Pod<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until each of them is an etcd.
#[track_caller]
pub(crate) fn run_all(pods: [Pod<'_>; 3]) -> [Pod<'_>; 3] {
    pods.iter().for_each(Pod::runs);
    pods
}
