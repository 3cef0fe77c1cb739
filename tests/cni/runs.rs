//! The line that each run leaves for the metrics of its node.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::PathBuf;

use metes_core::limits::RUNS_BYTES;
use serde_json::{Value, json};
use support::{Cluster, Node, network};

fn range() -> Value {
    let mut config = network(json!({"range": "10.0.0.0/24"}));
    // STATUS and GC are of this version.
    config["cniVersion"] = json!("1.1.0");
    config
}

/// The file in the folder of the node's store, which a run has made.
fn file(node: &Node) -> PathBuf {
    let folders = fs::read_dir(node.spool()).expect("a run has made it").flatten().map(|entry| entry.path());
    let folder = folders.into_iter().find(|path| path.join("mark").exists()).expect("an ADD leaves a mark");
    folder.join("runs")
}

fn text(node: &Node) -> String {
    fs::read_to_string(file(node)).expect("readable")
}

/// The lines without the durations, which are of microseconds up to those of the longest run.
#[track_caller]
fn ends(node: &Node) -> Vec<String> {
    let without_micros = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let micros: u64 = words[2].parse().expect("a number");
        assert!((100..30_000_000).contains(&micros), "{line}");
        [&words[..2], &words[3..]].concat().join(" ")
    };
    text(node).lines().map(without_micros).collect()
}

#[test]
fn each_run_leaves_a_line_with_its_verb_and_its_code() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    node.add("a").config(&range()).run().ok();
    assert_eq!(fs::metadata(file(&node)).expect("it is there").permissions().mode() & 0o7777, 0o600);
    node.check("a").config(&range()).run().silent();
    node.status().config(&range()).run().silent();
    node.gc().config(&range()).run().silent();
    node.version().run().ok();
    node.add("b").config(&network(json!({"range": "nowhere"}))).run().error(7);
    let meta = cluster.store().get("v1/meta").expect("there is meta");
    let mut suspect: Value = serde_json::from_slice(&meta).expect("JSON");
    suspect["suspect"] = json!(1);
    cluster.store().put("v1/meta", suspect.to_string());
    node.add("b").config(&range()).run().error(102);
    node.status().config(&range()).run().error(50);
    cluster.store().put("v1/meta", meta);
    let alive: Value = serde_json::from_slice(&fs::read(node.host_file()).expect("readable")).expect("JSON");
    node.change_host_file(json!({"etcd": {"endpoints": ["http://127.0.0.1:1"]}}));
    node.add("b").config(&range()).run().error(11);
    node.del("a").config(&range()).run().silent();
    node.change_host_file(json!({"etcd": alive["etcd"]}));
    node.del("a").config(&range()).run().silent();
    let expected = [
        "ADD 0",
        "CHECK 0",
        "STATUS 0",
        "GC 0",
        "ADD 7",
        "ADD 102 suspect",
        "STATUS 50 suspect",
        "ADD 11",
        "DEL 0",
        "DEL 0",
    ];
    assert_eq!(ends(&node), expected);
    cluster.assert_clean();
}

#[test]
fn runs_at_the_same_time_leave_whole_lines() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    node.add("first").config(&range()).run().ok();
    std::thread::scope(|scope| {
        for at in 0..8 {
            let node = &node;
            scope.spawn(move || node.add(&format!("c{at}")).config(&range()).run().ok());
        }
    });
    assert_eq!(ends(&node), ["ADD 0"; 9]);
    cluster.assert_clean();
}

#[test]
fn a_file_that_is_full_or_not_the_nodes_own_takes_no_line_and_fails_no_run() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    node.add("a").config(&range()).run().ok();
    let (path, other) = (file(&node), cluster.folder().join("precious"));
    let full = "ADD 0 1\n".repeat(RUNS_BYTES as usize / 8);
    let stays = |what: &str, content: &str| {
        node.add("b").config(&range()).run().ok();
        node.del("b").config(&range()).run().silent();
        assert_eq!(fs::read_to_string(&path).expect("readable"), content, "{what}");
    };
    fs::write(&path, &full).expect("written");
    stays("full", &full);
    fs::write(&path, "theirs").expect("written");
    chown(&path, Some(12345), None).expect("root gives it away");
    stays("another user's", "theirs");
    fs::remove_file(&path).expect("it is there");
    fs::write(&other, "precious").expect("written");
    symlink(&other, &path).expect("a link can be made");
    stays("a link", "precious");
    fs::remove_file(&path).expect("it is there");
    fs::hard_link(&other, &path).expect("a link can be made");
    stays("another name", "precious");
    fs::remove_file(&path).expect("it is there");
    fs::create_dir(&path).expect("a folder can be made");
    node.add("b").config(&range()).run().ok();
    cluster.assert_clean();
}

#[test]
fn where_no_node_state_is_kept_a_run_makes_no_folder_for_its_line() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    node.status().config(&range()).run().silent();
    let is_folder = |entry: &fs::DirEntry| entry.path().is_dir();
    let folders = fs::read_dir(node.spool()).into_iter().flatten().flatten().filter(is_folder);
    assert_eq!(folders.count(), 0);
    cluster.assert_clean();
}
