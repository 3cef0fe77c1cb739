//! Snapshots of etcd by the real program: kept, listed and restored.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use ring::digest::{SHA256, digest};
use serde_json::json;
use tempfile::TempDir;

struct Node {
    folder: TempDir,
}

impl Node {
    fn new() -> Self {
        let node = Self { folder: tempfile::tempdir().expect("a folder can be made") };
        fs::create_dir(node.path("snapshots")).expect("a folder can be made");
        let endpoints = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|ip| format!("https://{ip}:12379"));
        let template = json!({"cluster": "c1", "etcd": {"endpoints": endpoints}});
        node.write("template", template.to_string().as_bytes());
        node
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, content: &[u8]) {
        fs::write(self.path(name), content).expect("a file can be written");
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    /// What is in a folder, in order.
    fn names(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(folder)).expect("a folder can be listed").flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// As etcd ends a snapshot: with the digest of what is before.
    fn snapshot(&self, name: &str, content: &[u8]) -> Vec<u8> {
        let digest = digest(&SHA256, content).as_ref().to_vec();
        self.write(name, &[content, &digest].concat());
        digest
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_metes-install"))
            .args(arguments)
            .env_clear()
            .envs([("NODE_NAME", "alpha"), ("NODE_IP", "10.0.0.2"), ("PATH", "/usr/bin:/bin")])
            .current_dir(self.folder.path())
            .output()
            .expect("the program runs")
    }

    fn restore(&self) -> Output {
        let arguments = [
            "etcd-restore",
            "--template=template",
            "--snapshot=snapshots/restore.db",
            "--data-dir=etcd/data",
            "--etcdutl=./etcdutl",
        ];
        self.run(&arguments)
    }

    /// By a pod that may start again.
    fn restore_for(&self, uid: &str) -> Output {
        let name = format!("--once-for={uid}");
        self.run(&[
            "etcd-restore",
            "--template=template",
            "--snapshot=snapshots/restore.db",
            "--data-dir=etcd/data",
            "--etcdutl=./etcdutl",
            &name,
        ])
    }

    /// Stands for etcd's own program: hack/e2e runs that.
    fn etcdutl(&self, status: i32) {
        let script = format!(
            "#!/bin/sh\necho \"$@\" >said\n[ {status} = 0 ] || exit {status}\nmkdir -p \"$5\" && cp \"$3\" \"$5/db\"\n"
        );
        self.write("script", script.as_bytes());
        // Copied by another process: what this one has open to be written cannot be run.
        let copied =
            Command::new("install").arg("-m755").args([self.path("script"), self.path("etcdutl")]).status();
        assert!(copied.expect("install runs").success());
    }
}

#[track_caller]
fn said(output: &Output, succeeded: bool) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8(text).expect("it is text");
    assert_eq!(output.status.success(), succeeded, "{text}");
    text
}

#[test]
fn snapshots_are_listed_by_their_time() {
    let node = Node::new();
    for second in 0..3 {
        node.snapshot(&format!("snapshots/etcd-20200101T00000{second}Z.db"), &vec![7; 200_000]);
    }
    node.snapshot("snapshots/etcd-before-upgrade.db", b"a person's");
    let text = said(&node.run(&["snapshots", "--folder=snapshots"]), true);
    let expected = [2, 1, 0].map(|second| format!("etcd-20200101T00000{second}Z.db  196 KiB  alpha\n"));
    assert_eq!(text, expected.concat());
}

/// The name of a snapshot that was taken at this time.
fn name(at: &str) -> String {
    let date = Command::new("date").args(["-u", "+etcd-%Y%m%dT%H%M%SZ.db", "-d", at]).output();
    String::from_utf8(date.expect("date runs").stdout).expect("it is text").trim_end().to_owned()
}

/// As each night: a copy of the newest one, if it is new and whole.
#[test]
fn the_newest_snapshot_is_copied_to_another_disk() {
    let node = Node::new();
    fs::create_dir(node.path("claim")).expect("a folder can be made");
    let copy = || node.run(&["snapshot-copy", "--from=snapshots", "--folder=claim", "--keep=2"]);
    assert!(said(&copy(), false).contains("snapshots has no snapshot"));
    let yesterday = name("25 hours ago");
    node.snapshot(&format!("snapshots/{yesterday}"), b"of yesterday");
    let text = said(&copy(), false);
    assert!(
        text.contains(&format!("{yesterday}, the newest snapshot in snapshots, is older than a day")),
        "{text}"
    );
    let today = name("1 hour ago");
    node.write(&format!("snapshots/{today}"), b"half of one");
    assert!(said(&copy(), false).contains(&format!("snapshots/{today} is not a whole snapshot")));
    assert_eq!(node.names("claim"), [""; 0]);

    node.snapshot(&format!("snapshots/{today}"), b"of today");
    for old in ["etcd-20200101T000000Z.db", "etcd-20200102T000000Z.db"] {
        node.snapshot(&format!("claim/{old}"), b"of a member on another node");
    }
    let text = said(&copy(), true);
    assert!(text.contains(&format!("copied to claim/{today}, 1 KiB")), "{text}");
    assert_eq!(node.names("claim"), ["etcd-20200102T000000Z.db", &today]);
    let mode = fs::metadata(node.path(&format!("claim/{today}"))).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(said(&copy(), true).contains("is there already"));
    // A disk that has lost a part of it.
    node.write(&format!("claim/{today}"), b"half of one");
    assert!(said(&copy(), true).contains("copied to"));

    let print = |arguments: &[&str]| node.run(&[&["snapshot-print", "--folder=claim"], arguments].concat());
    let read = |name: &str| fs::read(node.path(name)).expect("it is there");
    assert_eq!(print(&[]).stdout, read(&format!("snapshots/{today}")));
    assert_eq!(print(&["etcd-20200102T000000Z.db"]).stdout, read("claim/etcd-20200102T000000Z.db"));
    node.write(&format!("claim/{today}"), b"half of one");
    let refused = print(&[]);
    assert!(said(&refused, false).contains("is not a whole snapshot") && refused.stdout.is_empty());
}

#[test]
fn a_member_is_restored_and_what_it_had_is_set_aside() {
    let node = Node::new();
    let digest = node.snapshot("snapshots/restore.db", b"the content");
    fs::create_dir_all(node.path("etcd/data/member/snap")).expect("a folder can be made");
    node.write("etcd/data/member/snap/db", b"before");
    // What a killed run has left.
    fs::create_dir_all(node.path("etcd/data.restoring/member")).expect("a folder can be made");
    node.etcdutl(0);
    let text = said(&node.restore(), true);
    assert!(text.contains("restored member 10.0.0.2"), "{text}");
    let names = node.names("etcd");
    assert!(names.len() == 2 && names[0] == "data" && names[1].starts_with("data.old-20"), "{names:?}");
    assert_eq!(node.names("etcd/data"), ["db"]);
    assert_eq!(node.read(&format!("etcd/{}/member/snap/db", names[1])), "before");
    let token: String = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    let members = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|ip| format!("{ip}=https://{ip}:12380")).join(",");
    assert_eq!(
        node.read("said").trim(),
        format!(
            "snapshot restore snapshots/restore.db --data-dir etcd/data.restoring --name 10.0.0.2 \
             --initial-cluster {members} --initial-cluster-token restored-{token} \
             --initial-advertise-peer-urls https://10.0.0.2:12380"
        )
    );
}

#[test]
fn a_restore_that_is_refused_leaves_the_member_as_it_is() {
    let node = Node::new();
    node.snapshot("snapshots/restore.db", b"the content");
    fs::create_dir_all(node.path("etcd/data/member/snap")).expect("a folder can be made");
    node.write("etcd/data/member/snap/db", b"before");
    node.etcdutl(0);
    // As etcd holds its database.
    let database = File::open(node.path("etcd/data/member/snap/db")).expect("it is there");
    database.lock().expect("nobody else has it");
    let text = said(&node.restore(), false);
    assert!(text.contains("etcd is running on etcd/data: scale the StatefulSet down"), "{text}");
    drop(database);
    node.etcdutl(1);
    assert!(said(&node.restore(), false).contains("etcdutl failed"));
    node.etcdutl(0);
    node.write("snapshots/restore.db", b"half of one");
    assert!(said(&node.restore(), false).contains("is not a whole snapshot"));
    fs::remove_file(node.path("snapshots/restore.db")).expect("it is there");
    assert!(said(&node.restore(), false).contains("cannot read snapshots/restore.db"));
    assert_eq!(node.names("etcd"), ["data"]);
    assert_eq!(node.read("etcd/data/member/snap/db"), "before");
}

/// The sandbox of a pod is made again when its node reboots: by then etcd may have written.
#[test]
fn a_pod_restores_once() {
    let node = Node::new();
    node.snapshot("snapshots/restore.db", b"the content");
    fs::create_dir(node.path("etcd")).expect("a folder can be made");
    node.etcdutl(0);
    said(&node.restore_for("u-1"), true);
    node.write("etcd/data/written-since", b"");
    let text = said(&node.restore_for("u-1"), true);
    assert!(text.contains("was restored before by this pod"), "{text}");
    assert_eq!(node.names("etcd/data"), ["db", "written-since"]);
    said(&node.restore_for("u-2"), true);
    assert_eq!(node.names("etcd/data"), ["db"]);
}

#[test]
fn the_program_copies_itself() {
    let node = Node::new();
    said(&node.run(&["copy", "--out=metes-install"]), true);
    let copy = Command::new(node.path("metes-install")).arg("--version").output().expect("it runs");
    assert!(said(&copy, true).starts_with("metes-install "));
}
