//! The care of etcd's members with real etcds: users and roles, snapshots, defragmentation.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::SystemTime;

use etcd_client::{Client, Error, GetOptions};
use serde_json::Value;

use crate::nodes::{Nodes, Pod, tool};
use crate::support::wait_for;

const CARED: [&str; 7] = [
    "root",
    "metes-etcd-server",
    "metes-signer",
    "metes-node",
    "metes-reconciler",
    "metes-viewer",
    "metes-admin",
];

/// A verb of `metes-install` for the member on a node.
pub(crate) fn verb(nodes: &Nodes, verb: &str, node: u8) -> Command {
    nodes.write_base(node, "metes");
    let mut command = nodes.installer(&[verb]);
    command.args([format!("--node-ip={}", nodes.ip(node)), format!("--base=base-{node}.json")]);
    command
}

fn snapshots_of(nodes: &Nodes, node: u8) -> PathBuf {
    let folder = nodes.path(&format!("snapshots-{node}"));
    fs::create_dir_all(&folder).expect("a folder can be made");
    folder
}

/// The first node has the only member, which answers.
pub(crate) fn one_member(nodes: &Nodes) -> Pod<'_> {
    nodes.name_members(&[1]);
    let pod = nodes.start(1);
    pod.runs();
    // The client may be later than etcd.
    wait_for("etcd to answer", || nodes.ask(1, async |client| client.status().await));
    pod
}

/// The container beside a member. Ends with its value.
pub(crate) struct Care<'a> {
    nodes: &'a Nodes,
    child: Child,
}

impl<'a> Care<'a> {
    pub(crate) fn of(nodes: &'a Nodes, node: u8) -> Self {
        let log = File::create(nodes.path("care-log")).expect("a file can be made");
        let child = verb(nodes, "etcd-care", node)
            .arg(format!("--folder={}", snapshots_of(nodes, node).display()))
            .arg(format!("--crl=data-{node}.crl"))
            .stdin(Stdio::null())
            .stderr(log)
            .spawn();
        Self { nodes, child: child.expect("the program starts") }
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.nodes.path("care-log")).expect("it is there")
    }

    #[track_caller]
    pub(crate) fn says(&self, words: &str) {
        wait_for(words, || if self.log().contains(words) { Ok(()) } else { Err(self.log()) });
    }
}

impl Drop for Care<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[track_caller]
pub(crate) fn succeeds(mut command: Command) -> String {
    let output = command.output().expect("the program starts");
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{text}");
    text
}

/// etcdctl with the members' certificate.
fn etcdctl(nodes: &Nodes, node: u8, words: &[&str]) -> Output {
    let server = nodes.path("metes-etcd-server");
    let file = |option: &str, name: &str| format!("--{option}={}", server.join(name).display());
    let run = Command::new(tool("etcd-clients", "ETCD_CLIENTS").join("etcdctl"))
        .arg(format!("--endpoints={}", nodes.endpoint(node)))
        .args([file("cacert", "ca.crt"), file("cert", "tls.crt"), file("key", "tls.key")])
        .args(words)
        .output();
    run.expect("etcdctl runs")
}

/// The roles of each user, and the permissions of each role.
fn rights(nodes: &Nodes, node: u8) -> BTreeMap<String, Vec<String>> {
    let found = nodes.ask(node, async |client| {
        let mut auth = client.auth_client();
        let mut found = BTreeMap::new();
        for user in auth.user_list().await?.users() {
            found.insert(format!("user {user}"), auth.user_get(user.as_str()).await?.roles().to_vec());
        }
        for role in auth.role_list().await?.roles() {
            let permissions = auth.role_get(role.as_str()).await?.permissions();
            let line = |p: &etcd_client::Permission| {
                let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
                format!("{} {} {}", p.get_type(), text(p.key()), text(p.range_end()))
            };
            found.insert(format!("role {role}"), permissions.iter().map(line).collect());
        }
        Ok(found)
    });
    found.expect("it can be read")
}

/// A request with the certificate of this user.
fn as_user<T>(
    nodes: &Nodes,
    user: &str,
    request: impl AsyncFnOnce(&mut Client) -> Result<T, Error>,
) -> Result<T, String> {
    nodes.ask_as(user, 1, request)
}

/// The page for Prometheus of the first member, asked with the certificate in this Secret.
fn metrics(nodes: &Nodes, secret: Option<&str>) -> Result<String, String> {
    let file = |secret: &str, name: &str| nodes.path(secret).join(name);
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--fail", "--max-time", "10", "--noproxy", "*", "--cacert"]);
    curl.arg(file("metes-node", "ca.crt"));
    if let Some(secret) = secret {
        curl.arg("--cert").arg(file(secret, "tls.crt")).arg("--key").arg(file(secret, "tls.key"));
    }
    let output = curl.arg(format!("https://{}:12384/metrics", nodes.ip(1))).output().expect("curl runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

#[test]
fn authentication_is_on_soon_and_a_user_that_was_deleted_stays_away() {
    let nodes = Nodes::new(10);
    let _pod = one_member(&nodes);
    let care = Care::of(&nodes, 1);
    care.says("switched authentication on");
    let put = |user: &str, key: &str| as_user(&nodes, user, async |client| client.put(key, "", None).await);
    assert!(put("metes-node", "/metes/v1/fence/x").is_ok());
    for (user, key) in [
        ("metes-node", "/metes/v1/pool/a"),
        ("metes-node", "/other/x"),
        ("metes-reconciler", "/metes/v1/pool/a"),
        ("metes-viewer", "/metes/v1/fence/x"),
    ] {
        let refused = put(user, key).expect_err(key);
        assert!(refused.contains("permission denied"), "{user} {key}: {refused}");
    }
    assert!(put("metes-admin", "/metes/v1/pool/a").is_ok());
    let page = metrics(&nodes, Some("metes-metrics")).expect("it is shown");
    assert!(page.contains("\netcd_server_has_leader 1\n"), "{page}");
    metrics(&nodes, None).expect_err("without a certificate");
    let refused =
        as_user(&nodes, "metes-metrics", async |client| client.get("/metes/v1/fence/x", None).await);
    assert!(refused.is_err(), "it is no user of etcd");
    let read = as_user(&nodes, "metes-viewer", async |client| client.get("/metes/v1/fence/x", None).await);
    assert_eq!(read.expect("it may read").count(), 1);

    // A node is locked out, and the pod starts again.
    drop(care);
    let deleted = nodes.ask(1, async |client| client.user_delete("metes-node").await);
    deleted.expect("the members' user may");
    fs::remove_dir_all(snapshots_of(&nodes, 1)).expect("it is there");
    // Taken while the clock was wrong: it keeps no later one away.
    let of_the_future = snapshots_of(&nodes, 1).join("etcd-20990101T000000Z.db");
    fs::write(of_the_future, "a snapshot").expect("a file can be written");
    let care = Care::of(&nodes, 1);
    care.says("took the snapshot");
    assert!(put("metes-node", "/metes/v1/fence/x").is_err(), "{}", care.log());
    // A person may bring it back.
    succeeds(verb(&nodes, "etcd-roles", 1));
    assert!(put("metes-node", "/metes/v1/fence/x").is_ok());
}

#[test]
fn the_viewer_is_told_when_the_newest_snapshot_was_taken() {
    let nodes = Nodes::new(27);
    let _pod = one_member(&nodes);
    let gone =
        nodes.ask(1, async |client| client.put("/metes/v1/member/192.0.2.1", r#"{"v":1}"#, None).await);
    gone.expect("etcd takes it");
    let began = SystemTime::UNIX_EPOCH.elapsed().expect("it is later").as_secs();
    let care = Care::of(&nodes, 1);
    let own = format!("/metes/v1/member/{}", nodes.ip(1));
    let told = wait_for("what the member says", || {
        let all = GetOptions::new().with_prefix();
        let found = nodes.ask(1, async |client| client.get("/metes/v1/member/", Some(all)).await);
        let found = found.map_err(|e| e.to_string())?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let told: Vec<_> = found.kvs().iter().map(|kv| (text(kv.key()), text(kv.value()))).collect();
        let is_told = matches!(&told[..], [(key, value)] if *key == own && value.contains("snapshot"));
        if is_told { Ok(told) } else { Err(format!("{told:?}, {}", care.log())) }
    });
    let record: Value = serde_json::from_str(&told[0].1).expect("JSON");
    let taken = record["snapshot"].as_u64().expect("a time");
    assert!((began..began + 300).contains(&taken), "{told:?}");
}

/// The commands that docs/security.md has for an etcd that somebody else runs, by etcdctl.
#[test]
fn users_and_roles_are_those_that_are_documented() {
    let nodes = Nodes::new(11);
    let pod = one_member(&nodes);
    let text = succeeds(verb(&nodes, "etcd-roles", 1));
    assert!(text.contains("switched authentication on"), "{text}");
    let made = rights(&nodes, 1);
    for user in CARED {
        assert!(made.contains_key(&format!("user {user}")), "{made:?}");
    }
    drop(pod);
    nodes.wipe(1);
    let _pod = one_member(&nodes);
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/security.md");
    let page = fs::read_to_string(page).expect("it is there");
    let commands = page.lines().filter_map(|line| line.strip_prefix("$ etcdctl "));
    for command in commands.take_while(|command| *command != "auth enable") {
        let command = command.replace("/prod-1/", "/c1/");
        let output = etcdctl(&nodes, 1, &command.split(' ').collect::<Vec<_>>());
        assert!(output.status.success(), "{command}: {output:?}");
    }
    assert_eq!(rights(&nodes, 1), made);
}

#[test]
fn what_was_half_done_is_finished_and_what_is_too_wide_is_taken_away() {
    let nodes = Nodes::new(12);
    let _pod = one_member(&nodes);
    for words in [
        &["role", "add", "metes-node"][..],
        &["role", "grant-permission", "metes-node", "--prefix=true", "readwrite", "/"],
        &["user", "add", "root", "--no-password"],
    ] {
        assert!(etcdctl(&nodes, 1, words).status.success(), "{words:?}");
    }
    let text = succeeds(verb(&nodes, "etcd-roles", 1));
    assert!(text.contains("gave the role metes-node 15 permissions, and took 1"), "{text}");
    assert!(text.contains("switched authentication on"), "{text}");
    let text = succeeds(verb(&nodes, "etcd-roles", 1));
    assert_eq!(text, "metes-install: users and roles are as they should be, and authentication is on\n");
}

#[test]
fn snapshots_are_whole_private_and_the_newest_are_kept() {
    let nodes = Nodes::new(13);
    nodes.name_members(&[1]);
    let folder = snapshots_of(&nodes, 1);
    let old = |second: u8| folder.join(format!("etcd-20200101T00000{second}Z.db"));
    for second in 0..5 {
        fs::write(old(second), "old").expect("a file can be written");
    }
    fs::write(folder.join("etcd-before-upgrade.db"), "a person's").expect("a file can be written");
    // A process that was killed has left it.
    fs::write(folder.join(".new.db"), "half").expect("a file can be written");
    let take = || {
        let mut command = verb(&nodes, "etcd-snapshot", 1);
        command.arg(format!("--folder={}", folder.display())).arg("--keep=3");
        command
    };
    let refused = take().output().expect("the program starts");
    assert!(!refused.status.success(), "no etcd runs");
    assert!(old(0).exists() && old(4).exists(), "nothing is removed for a snapshot that was not taken");
    let pod = nodes.start(1);
    pod.runs();
    nodes.put(1, "before");
    let text = succeeds(take());
    assert!(text.contains("took the snapshot"), "{text}");
    let mut names: Vec<String> = fs::read_dir(&folder)
        .expect("it can be listed")
        .map(|entry| entry.expect("it can be listed").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    let [third, second, newest, persons] = &names[..] else { panic!("{names:?}") };
    assert_eq!((third.as_str(), second.as_str()), ("etcd-20200101T000003Z.db", "etcd-20200101T000004Z.db"));
    assert_eq!(persons, "etcd-before-upgrade.db");
    let newest = folder.join(newest);
    assert_eq!(fs::metadata(&newest).expect("it is there").permissions().mode() & 0o777, 0o600);
    let mut restore = Command::new(tool("etcd-clients", "ETCD_CLIENTS").join("etcdutl"));
    restore.args(["snapshot", "restore"]).arg(newest).arg("--data-dir").arg(nodes.path("restored"));
    succeeds(restore);
}

/// Without a majority there are no users, and no file can be made in /proc.
#[test]
fn what_fails_in_one_pass_hides_nothing_else() {
    let nodes = Nodes::new(16);
    let [_first, second, third] = nodes.start_all([1, 2, 3]);
    nodes.put(1, "before");
    drop((second, third));
    symlink("/proc", nodes.path("snapshots-1")).expect("a link can be made");
    let care = Care::of(&nodes, 1);
    care.says("no snapshot: ");
    let said = care.log();
    let line = said.lines().find(|line| line.contains("no snapshot: ")).unwrap_or_default();
    assert!(line.contains("it is not known if etcd asks for users: "), "{said}");
}

#[test]
fn a_copy_of_a_snapshot_restores_a_member() {
    let nodes = Nodes::new(15);
    let _pod = one_member(&nodes);
    nodes.put(1, "before");
    let folder = snapshots_of(&nodes, 1);
    let mut take = verb(&nodes, "etcd-snapshot", 1);
    take.arg(format!("--folder={}", folder.display()));
    succeeds(take);
    fs::create_dir(nodes.path("claim")).expect("a folder can be made");
    let claim = format!("--folder={}", nodes.path("claim").display());
    let mut copy = Command::new(env!("CARGO_BIN_EXE_metes-install"));
    copy.arg("snapshot-copy").arg(format!("--from={}", folder.display())).arg(&claim);
    succeeds(copy);
    let printed = File::create(nodes.path("restore.db")).expect("a file can be made");
    let mut print = Command::new(env!("CARGO_BIN_EXE_metes-install"));
    print.arg("snapshot-print").arg(&claim).stdout(printed);
    assert!(print.status().expect("the program starts").success());
    let mut restore = Command::new(tool("etcd-clients", "ETCD_CLIENTS").join("etcdutl"));
    restore.args(["snapshot", "restore"]).arg(nodes.path("restore.db"));
    restore.arg("--data-dir").arg(nodes.path("restored"));
    succeeds(restore);
}

#[test]
fn a_member_that_is_defragmented_does_not_lead() {
    let nodes = Nodes::new(14);
    let pods = nodes.start_all([1, 2, 3]);
    nodes.put(1, "before");
    nodes.members(&[1, 2, 3]);
    for node in [1, 2, 3] {
        wait_for("the defragmentation", || {
            let output = verb(&nodes, "etcd-defragment", node).output().expect("the program starts");
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            if output.status.success() && text.contains("defragmented: ") { Ok(()) } else { Err(text) }
        });
        let status = nodes.ask(node, async |client| client.status().await).expect("it answers");
        let me = status.header().expect("it has a header").member_id();
        assert_ne!(status.leader(), me, "node {node} leads");
    }
    let [_first, _second, third] = pods;
    drop(third);
    let output = verb(&nodes, "etcd-defragment", 1).output().expect("the program starts");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("does not answer"), "{text}");
}
