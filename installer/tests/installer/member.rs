//! How the members of manifests/ begin, with real etcds: each is the program that a pod runs, which becomes etcd.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;
use std::{env, process};

use crate::support::wait_for;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use etcd_client::{
    Certificate, Client, ConnectOptions, Error, GetOptions, Identity, TlsOptions, UserAddOptions,
};
use serde_json::{Value, json};
use tempfile::TempDir;

const REQUEST_MAX: Duration = Duration::from_secs(5);

fn tool_etcd() -> PathBuf {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    let ask = || {
        let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("../hack/tool");
        let output = Command::new(tool).arg("etcd").output().expect("hack/tool runs");
        let text = String::from_utf8(output.stdout).expect("a text");
        PathBuf::from(text.lines().last().expect("hack/tool prints a path"))
    };
    FOUND.get_or_init(|| env::var_os("ETCD").map_or_else(ask, PathBuf::from)).clone()
}

/// Nodes of one machine: each has an address of the loopback, with the ports of manifests/, and a folder.
struct Nodes {
    folder: TempDir,
    /// The first three bytes of all addresses.
    net: String,
}

impl Nodes {
    /// `metes.conf` names the first three. The certificates are good for four.
    fn new(test: u8) -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        // Those of tests that run at the same time differ, also of other processes.
        let net = format!("127.{}.{}", 64 + process::id() % 128, test);
        let nodes = Self { folder, net };
        nodes.name_members(&[1, 2, 3, 4]);
        let mut made =
            nodes.installer(&["certificates", "--namespace=metes", "--ca=none", "--out=secrets.json"]);
        assert!(made.output().expect("metes-install runs").status.success());
        nodes.unpack_secrets();
        nodes.name_members(&[1, 2, 3]);
        nodes
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn ip(&self, node: u8) -> String {
        format!("{}.{node}", self.net)
    }

    fn data(&self, node: u8) -> PathBuf {
        self.path(&format!("data-{node}"))
    }

    fn endpoint(&self, node: u8) -> String {
        format!("https://{}:12379", self.ip(node))
    }

    fn name_members(&self, nodes: &[u8]) {
        let endpoints: Vec<String> = nodes.iter().map(|node| self.endpoint(*node)).collect();
        let template = json!({"cluster": "c1", "etcd": {"endpoints": endpoints}});
        fs::write(self.path("new.conf"), template.to_string()).expect("a file can be written");
        // A step may be reading it.
        fs::rename(self.path("new.conf"), self.path("metes.conf")).expect("it can be renamed");
    }

    fn installer(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        // It ends with the thread of its test.
        command.args(["--pdeathsig", "KILL", env!("CARGO_BIN_EXE_metes-install")]);
        command.args(arguments).arg("--template=metes.conf").current_dir(self.folder.path());
        command
    }

    fn unpack_secrets(&self) {
        let text = fs::read(self.path("secrets.json")).expect("it is there");
        let list: Value = serde_json::from_slice(&text).expect("JSON");
        for secret in list["items"].as_array().expect("a list") {
            let folder = self.path(secret["metadata"]["name"].as_str().expect("a name"));
            fs::create_dir_all(&folder).expect("a folder can be made");
            for (file, data) in secret["data"].as_object().expect("data") {
                let content = STANDARD.decode(data.as_str().expect("a text")).expect("base64");
                fs::write(folder.join(file), content).expect("a file can be written");
            }
        }
    }

    /// manifests/etcd/etcd.json with the folders of this test.
    fn write_base(&self, node: u8, token: &str) {
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
    fn start(&self, node: u8) -> Pod<'_> {
        self.start_with(node, "metes")
    }

    fn start_with(&self, node: u8, token: &str) -> Pod<'_> {
        let _ = fs::remove_file(self.path(&format!("etcd-{node}.json")));
        self.start_again(node, token)
    }

    /// The container of a pod that has run before: what that has written is still there.
    fn start_again(&self, node: u8, token: &str) -> Pod<'_> {
        self.write_base(node, token);
        let log = File::create(self.path(&format!("log-{node}"))).expect("a file can be made");
        let child = self
            .installer(&["etcd"])
            .args([format!("--node-ip={}", self.ip(node)), format!("--base=base-{node}.json")])
            .arg(format!("--out=etcd-{node}.json"))
            .arg(format!("--etcd={}", tool_etcd().display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the program starts");
        Pod { nodes: self, node, child }
    }

    fn start_all<const N: usize>(&self, nodes: [u8; N]) -> [Pod<'_>; N] {
        nodes.map(|node| self.start(node))
    }

    fn client_options(&self) -> ConnectOptions {
        let read = |file: &str| fs::read(self.path("metes-etcd-server").join(file)).expect("it is there");
        let tls = TlsOptions::new()
            .ca_certificate(Certificate::from_pem(read("ca.crt")))
            .identity(Identity::from_pem(read("tls.crt"), read("tls.key")));
        ConnectOptions::new().with_tls(tls).with_timeout(REQUEST_MAX).with_connect_timeout(REQUEST_MAX)
    }

    /// Asks the etcd of one node.
    fn ask<T>(
        &self,
        node: u8,
        request: impl AsyncFnOnce(&mut Client) -> Result<T, Error>,
    ) -> Result<T, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime can be made").block_on(async {
            let connected = Client::connect([self.endpoint(node)], Some(self.client_options())).await;
            match connected {
                Ok(mut client) => request(&mut client).await.map_err(|e| e.to_string()),
                Err(e) => Err(e.to_string()),
            }
        })
    }

    #[track_caller]
    fn put(&self, node: u8, key: &str) {
        wait_for("a write", || self.ask(node, async |client| client.put(key, "value", None).await).map(drop));
    }

    /// What this node itself has on its disk.
    fn has(&self, node: u8, key: &str) -> Result<(), String> {
        let options = GetOptions::new().with_serializable();
        let count = self.ask(node, async |client| Ok(client.get(key, Some(options)).await?.count()))?;
        if count == 1 { Ok(()) } else { Err(format!("{count} keys {key}")) }
    }

    #[track_caller]
    fn assert_has(&self, node: u8, key: &str) {
        wait_for(&format!("node {node} to have {key}"), || self.has(node, key));
    }

    /// The nodes in etcd's list, of which all have started.
    fn listed(&self, node: u8) -> Result<Vec<(u64, String)>, String> {
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
    fn members(&self, nodes: &[u8]) -> Vec<u64> {
        let expected: Vec<String> = nodes.iter().map(|node| self.endpoint(*node)).collect();
        wait_for("the list of members", || {
            let (ids, urls): (Vec<_>, Vec<_>) = self.listed(nodes[0])?.into_iter().unzip();
            if urls == expected { Ok(ids) } else { Err(format!("{urls:?}")) }
        })
    }

    /// Removes a member. If the answer of a try has come too late, the next one finds it removed.
    #[track_caller]
    fn remove(&self, id: u64) {
        wait_for("the removal", || match self.ask(1, async |client| client.member_remove(id).await) {
            Err(last) if !last.contains("member not found") => Err(last),
            _ => Ok(()),
        });
    }

    fn wipe(&self, node: u8) {
        fs::remove_dir_all(self.data(node)).expect("it can be removed");
    }
}

/// A program that becomes etcd as soon as it knows how this member begins. Ends with its value.
struct Pod<'a> {
    nodes: &'a Nodes,
    node: u8,
    child: Child,
}

impl Pod<'_> {
    fn log(&self) -> String {
        fs::read_to_string(self.nodes.path(&format!("log-{}", self.node))).expect("it is there")
    }

    fn is_etcd(&self) -> bool {
        let name = fs::read_to_string(format!("/proc/{}/comm", self.child.id())).expect("it is a process");
        name.trim_end() == "etcd"
    }

    /// Waits for its end, and returns whether it was a success.
    #[track_caller]
    fn ended(&mut self) -> bool {
        wait_for(&format!("the end of node {}", self.node), || match self.child.try_wait() {
            Ok(Some(status)) => Ok(status.success()),
            _ => Err(self.log()),
        })
    }

    /// Waits until etcd runs.
    #[track_caller]
    fn runs(&self) {
        wait_for("etcd to run", || if self.is_etcd() { Ok(()) } else { Err(self.log()) });
    }

    #[track_caller]
    fn says(&self, words: &str) {
        wait_for(words, || if self.log().contains(words) { Ok(()) } else { Err(self.log()) });
    }

    #[track_caller]
    fn still_waits(&mut self) {
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
fn run_all(pods: [Pod<'_>; 3]) -> [Pod<'_>; 3] {
    pods.iter().for_each(Pod::runs);
    pods
}

#[test]
fn three_empty_members_begin_and_begin_again_with_and_without_their_data() {
    let nodes = Nodes::new(1);
    // One after the other: none begins alone.
    let [mut first, second] = nodes.start_all([1, 2]);
    first.says(&format!("waits for {}", nodes.ip(3)));
    first.still_waits();
    let pods = run_all([first, second, nodes.start(3)]);
    nodes.put(1, "first");
    let ids = nodes.members(&[1, 2, 3]);
    drop(pods);

    // Each with its data, and nobody waits for anybody.
    let alone = nodes.start(1);
    alone.runs();
    let pods = nodes.start_all([2, 3]);
    nodes.put(2, "second");
    assert_eq!(nodes.members(&[1, 2, 3]), ids);
    (1..=3).for_each(|node| nodes.assert_has(node, "first"));
    drop((alone, pods));

    // All is lost.
    (1..=3).for_each(|node| nodes.wipe(node));
    let _pods = run_all(nodes.start_all([1, 2, 3]));
    nodes.put(1, "third");
    nodes.members(&[1, 2, 3]);
    assert!(nodes.has(1, "first").is_err());
}

/// Empties the disk of node 3 of a running etcd, and starts it again.
#[track_caller]
fn replace_disk<'a>(nodes: &'a Nodes, third: Pod<'_>, start: impl FnOnce(&'a Nodes) -> Pod<'a>) -> Pod<'a> {
    let old = nodes.members(&[1, 2, 3]);
    drop(third);
    nodes.put(1, "while it was away");
    nodes.wipe(3);
    let third = start(nodes);
    third.runs();
    let new = nodes.members(&[1, 2, 3]);
    assert_eq!(new[..2], old[..2]);
    assert_ne!(new[2], old[2], "{}", third.log());
    for key in ["before", "while it was away"] {
        nodes.assert_has(3, key);
    }
    third
}

#[test]
fn a_member_whose_disk_is_emptied_joins_again() {
    let nodes = Nodes::new(2);
    let [_first, _second, third] = run_all(nodes.start_all([1, 2, 3]));
    nodes.put(1, "before");
    let third = replace_disk(&nodes, third, |nodes| nodes.start(3));
    // Its pod has joined before: under that id it must not begin once more with nothing.
    replace_disk(&nodes, third, |nodes| nodes.start_again(3, "metes"));
}

/// Whatever has become of metes.conf: somebody may be writing it.
#[test]
fn a_container_that_starts_again_with_its_data_asks_nobody() {
    let nodes = Nodes::new(8);
    let [_first, _second, third] = run_all(nodes.start_all([1, 2, 3]));
    let ids = nodes.members(&[1, 2, 3]);
    drop(third);
    nodes.put(1, "while it was away");
    fs::write(nodes.path("metes.conf"), "{").expect("a file can be written");
    let third = nodes.start_again(3, "metes");
    nodes.assert_has(3, "while it was away");
    nodes.name_members(&[1, 2, 4]);
    assert_eq!(nodes.members(&[1, 2, 3]), ids);
    // One that was removed does not come back by itself: another node may be in its place.
    drop(third);
    nodes.remove(ids[2]);
    let mut third = nodes.start_again(3, "metes");
    third.ended();
    assert!(nodes.data(3).join("member/wal").is_dir());
    assert_eq!(nodes.members(&[1, 2]), ids[..2]);
}

/// With one member there is nobody who could tell that its data are lost.
#[test]
fn a_single_member_does_not_begin_twice_in_one_pod() {
    let nodes = Nodes::new(9);
    nodes.name_members(&[1]);
    let first = nodes.start(1);
    nodes.put(1, "before");
    drop(first);
    nodes.wipe(1);
    let mut first = nodes.start_again(1, "metes");
    assert!(!first.ended());
    first.says("is empty, and etcd has run in this pod");
}

#[test]
fn it_joins_again_where_etcd_has_users_and_roles() {
    let nodes = Nodes::new(3);
    let [_first, _second, third] = run_all(nodes.start_all([1, 2, 3]));
    nodes.put(1, "before");
    let enabled = nodes.ask(1, async |client| {
        for user in ["root", "metes-etcd-server"] {
            client.user_add(user, "", Some(UserAddOptions::new().with_no_pwd())).await?;
            client.user_grant_role(user, "root").await?;
        }
        client.auth_enable().await
    });
    enabled.expect("users can be added");
    replace_disk(&nodes, third, |nodes| nodes.start(3));
}

#[test]
fn a_node_that_metes_conf_names_instead_of_a_lost_one_takes_its_place() {
    let nodes = Nodes::new(4);
    let [_first, _second, third] = run_all(nodes.start_all([1, 2, 3]));
    nodes.put(1, "before");
    let old = nodes.members(&[1, 2, 3]);
    drop(third);
    nodes.name_members(&[1, 2, 4]);
    let fourth = nodes.start(4);
    fourth.runs();
    assert_eq!(nodes.members(&[1, 2, 4])[..2], old[..2], "{}", fourth.log());
    nodes.assert_has(4, "before");
}

#[test]
fn the_folder_of_a_removed_member_is_moved_aside() {
    let nodes = Nodes::new(5);
    let [_first, _second, third] = run_all(nodes.start_all([1, 2, 3]));
    nodes.put(1, "before");
    let old = nodes.members(&[1, 2, 3]);
    drop(third);
    nodes.remove(old[2]);
    let third = nodes.start(3);
    third.runs();
    third.says("is of a member that was removed from etcd");
    assert!(nodes.path("data-3.removed-1/member/wal").is_dir());
    nodes.members(&[1, 2, 3]);
    nodes.assert_has(3, "before");
}

#[test]
fn an_empty_member_waits_for_the_others_if_they_are_down() {
    let nodes = Nodes::new(6);
    let pods = run_all(nodes.start_all([1, 2, 3]));
    nodes.put(1, "before");
    nodes.members(&[1, 2, 3]);
    drop(pods);
    nodes.wipe(3);
    let mut third = nodes.start(3);
    third.says("start the others");
    // One alone is no majority, and the third must not begin anew beside it.
    let first = nodes.start(1);
    first.runs();
    third.says("It joins them as soon as it is let in");
    third.still_waits();
    let second = nodes.start(2);
    second.runs();
    third.runs();
    nodes.members(&[1, 2, 3]);
    nodes.assert_has(3, "before");
}

#[test]
fn data_of_another_etcd_are_refused() {
    let nodes = Nodes::new(7);
    let [_first, _second, third] = run_all(nodes.start_all([1, 2, 3]));
    nodes.members(&[1, 2, 3]);
    drop(third);
    nodes.wipe(3);
    // One member alone begins at once.
    nodes.name_members(&[3]);
    let alone = nodes.start_with(3, "another");
    alone.runs();
    nodes.put(3, "other");
    drop(alone);
    nodes.name_members(&[1, 2, 3]);
    // The others can be asked: those that cannot keep nobody from starting.
    nodes.put(1, "own");
    let mut third = nodes.start(3);
    assert!(!third.ended());
    third.says("is of another etcd");
    assert!(nodes.data(3).join("member").is_dir());
}
