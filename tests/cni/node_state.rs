//! The state of a node between runs: spooled frees, the highest revision seen, and answers that nobody read.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use metes_core::limits::DRAIN_ENTRIES;
use metes_node::node::start;
use serde_json::{Value, json};
use support::{Cluster, Node, Outcome, Run, metes, network, network_as, wait_for};

/// For what the harness itself waits for.
const PATIENCE: Duration = Duration::from_secs(30);

fn range() -> Value {
    network(json!({"range": "10.0.0.0/24"}))
}

/// The node's folder for its store: the one that holds the mark.
fn state(node: &Node) -> PathBuf {
    let mark = fs::read_dir(node.spool()).expect("a run has made it").flatten().map(|entry| entry.path());
    mark.into_iter().find(|path| path.join("mark").exists()).expect("a mark is kept after an ADD")
}

/// A spooled DEL of `container`, as a run of another boot would have left it.
fn spool(node: &Node, name: &str, container: &str, boot: &str, ns: u64) -> PathBuf {
    spool_as(node, &machine(node), name, container, boot, ns)
}

/// The machine that this node's runs are on.
fn machine(node: &Node) -> String {
    let file =
        fs::read_to_string(state(node).join("mark")).expect("a node that has held something has a mark");
    let mark: Value = serde_json::from_str(file.lines().nth(1).expect("a second line")).expect("JSON");
    mark["whose"]["machine"].as_str().expect("this machine has an id").to_owned()
}

fn spool_as(node: &Node, machine: &str, name: &str, container: &str, boot: &str, ns: u64) -> PathBuf {
    let folder = state(node).join("spool");
    fs::create_dir_all(&folder).expect("a folder can be made");
    let owner = json!({"node": node.name(), "container": container, "ifname": "eth0", "cluster": "test"});
    let file = folder.join(format!("{name}.del"));
    fs::write(
        &file,
        json!({"owner": owner, "machine": machine, "start": {"boot": boot, "ns": ns}}).to_string(),
    )
    .expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(&file, mode).expect("its mode can be set");
    file
}

fn holders(node: &Node) -> Vec<String> {
    let mut holders: Vec<String> =
        node.list().iter().map(|row| row["container_id"].as_str().unwrap_or_default().to_owned()).collect();
    holders.sort();
    holders
}

#[test]
fn a_del_spooled_before_a_reboot_frees_nothing_reserved_since() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    node.add("a").config(&range()).run().ok();
    let file = spool(&node, "0123", "a", "an-earlier-boot", u64::MAX);
    node.add("b").config(&range()).run().ok();
    assert_eq!(holders(&node), ["a", "b"]);
    assert!(!file.exists(), "it is carried out, and finds nothing that it meant");
    cluster.assert_clean();
}

/// Runs it with a boot-time clock that is an hour ahead. To later runs of the node, their clock went back since: their
/// host may be a virtual machine that was put back to a snapshot of its memory.
fn an_hour_ahead(run: Run) -> Outcome {
    let program = metes().display().to_string();
    run.program("unshare").arguments(["--time", "--boottime", "3600", "--fork", &program]).run()
}

#[test]
fn what_was_left_before_the_clock_went_back_is_freed_and_refuses_no_sandbox() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    an_hour_ahead(node.add("a").config(&range())).ok();
    node.del("a").config(&range()).run().silent();
    cluster.assert_nothing_held();

    let of_pod = |run: Run| run.config(&range()).pod("ns", "web-0", "u1");
    let first = an_hour_ahead(of_pod(node.add("b1"))).address();
    assert_eq!(of_pod(node.add("b2")).run().address(), first, "the pod's next sandbox");
    an_hour_ahead(node.del("c").config(&range())).silent();
    node.add("c").config(&range()).run().ok();

    an_hour_ahead(node.add("d").config(&range())).ok();
    let mut none = network_as("1.1.0", "net", json!({"range": "10.0.0.0/24"}));
    none["cni.dev/valid-attachments"] = json!([]);
    node.gc().config(&none).run().silent();
    assert_eq!(holders(&node), ["b2", "c"], "what is of the present is within the grace of GC");
    cluster.assert_clean();
}

#[test]
fn a_del_spooled_before_the_clock_went_back_frees_nothing_reserved_since() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    node.add("since").config(&range()).run().ok();
    an_hour_ahead(node.add("before").config(&range())).ok();
    let alive: Value = serde_json::from_slice(&fs::read(node.host_file()).expect("readable")).expect("JSON");
    node.change_host_file(json!({"etcd": {"endpoints": ["http://127.0.0.1:1"]}}));
    for container in ["since", "before"] {
        an_hour_ahead(node.del(container).config(&range())).silent();
    }
    node.change_host_file(json!({"etcd": alive["etcd"]}));
    node.add("another").config(&range()).run().ok();
    assert_eq!(holders(&node), ["another", "since"]);
    assert!(node.spooled_dels().is_empty());
    cluster.assert_clean();
}

/// DELs may wait in the former folder.
#[test]
fn a_changed_spool_dir_is_told() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    node.add("a").config(&range()).run().ok();
    let told = |stderr: &str| stderr.contains("`spool_dir` was changed, or the folder was emptied");
    assert!(!told(&node.cli(["doctor"]).to_string()));
    node.change_host_file(json!({"spool_dir": cluster.folder().join("elsewhere")}));
    assert!(told(&node.cli(["doctor"]).to_string()));
    assert!(told(&node.add("b").config(&range()).run().stderr));
    let again = node.add("c").config(&range()).run();
    assert!(!told(&again.stderr), "it is said once: {again}");
    cluster.assert_clean();
}

/// A node that comes up starts many pods at once: the others see what the first has written, before its mark says so.
#[test]
fn the_first_runs_of_a_node_at_once_miss_no_state() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    let runs: Vec<_> = (0..24).map(|i| node.add(&format!("c{i}")).config(&range()).spawn()).collect();
    for run in runs {
        let outcome = run.wait();
        assert!(
            outcome.succeeded() && !outcome.stderr.contains("this node has used this store before"),
            "{outcome}"
        );
    }
    cluster.assert_clean();
}

#[test]
fn an_entry_that_cannot_be_carried_out_holds_up_no_other() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    for container in ["a", "b", "c"] {
        node.add(container).config(&range()).run().ok();
    }
    cluster.store().put("v1/owner/test/n1/newer/eth0", r#"{"v":2}"#);
    let now = start().expect("Linux has a boot id");
    for (name, container) in [("0", "newer"), ("1", "a"), ("2", "b"), ("3", "newer")] {
        spool(&node, name, container, &now.boot, now.ns);
    }
    node.check("c").config(&range()).run().silent();
    let held: Vec<String> = holders(&node).into_iter().filter(|id| id != "newer").collect();
    assert_eq!(held, ["c"]);
    assert_eq!(node.spooled_dels().len(), 2);
    cluster.leave_unclean();
}

/// A run takes some of the spooled DELs, and not always the same.
#[test]
fn more_entries_that_cannot_be_carried_out_than_one_run_takes_hold_up_no_other() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    node.add("a").config(&range()).run().ok();
    cluster.store().put("v1/owner/test/n1/newer/eth0", r#"{"v":2}"#);
    let now = start().expect("Linux has a boot id");
    for index in 0..2 * DRAIN_ENTRIES {
        spool(&node, &format!("{index:02}"), "newer", &now.boot, now.ns);
    }
    let last = spool(&node, "last", "a", &now.boot, now.ns);
    wait_for("the last entry to be carried out", PATIENCE, || {
        node.del("nobody").config(&range()).run().silent();
        if last.exists() { Err("it is spooled".to_owned()) } else { Ok(()) }
    });
    assert_eq!(cluster.store().keys("v1/owner/"), ["v1/owner/test/n1/newer/eth0"]);
    cluster.leave_unclean();
}

#[test]
fn a_node_whose_endpoints_move_still_carries_out_what_it_spooled() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    node.add("a").config(&range()).run().ok();
    let alive: Value = serde_json::from_slice(&fs::read(node.host_file()).expect("readable")).expect("JSON");
    node.change_host_file(json!({"etcd": {"endpoints": ["http://127.0.0.1:1"]}}));
    node.del("a").config(&range()).run().silent();
    node.change_host_file(json!({"etcd": alive["etcd"]}));
    node.add("b").config(&range()).run().ok();
    assert_eq!(holders(&node), ["b"]);
    cluster.assert_clean();
}

/// Runs an ADD whose answer nobody reads.
fn add_unread(node: &Node, container: &str, config: &Value) {
    let mut child = Command::new(metes())
        .env_clear()
        .envs(node.environment())
        .envs([
            ("CNI_COMMAND", "ADD"),
            ("CNI_CONTAINERID", container),
            ("CNI_NETNS", "/run/netns/made-up"),
            ("CNI_IFNAME", "eth0"),
            ("CNI_PATH", "/opt/cni/bin"),
            ("CNI_ARGS", "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=db-0;K8S_POD_UID=u1"),
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the plugin starts");
    drop(child.stdout.take());
    let mut stdin = child.stdin.take().expect("stdin is piped");
    stdin.write_all(config.to_string().as_bytes()).expect("it reads its configuration");
    drop(stdin);
    assert!(!child.wait().expect("it ends").success(), "an answer that nobody reads is no success");
}

#[test]
fn an_address_that_nobody_heard_of_is_given_back_and_one_that_was_answered_before_is_not() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    add_unread(&node, "a", &range());
    cluster.assert_nothing_held();
    let first = node.add("b").config(&range()).run().address();
    add_unread(&node, "b", &range());
    assert_eq!(holders(&node), ["b"]);
    assert_eq!(node.add("b").config(&range()).run().address(), first);
    cluster.assert_clean();
}

#[test]
fn a_hold_that_nobody_heard_of_ends_with_its_first_use() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    let mut sticky = range();
    sticky["ipam"]["sticky"] = json!("pod");
    add_unread(&node, "a", &sticky);
    cluster.assert_nothing_held();
    let add = |container: &str| node.add(container).config(&sticky).pod("ns", "db-0", "u1").run().address();
    let address = add("b");
    node.del("b").config(&sticky).run().silent();
    // This one was made before.
    add_unread(&node, "c", &sticky);
    assert_eq!(add("d"), address);
    cluster.assert_clean();
}

#[test]
fn a_store_of_an_earlier_epoch_is_suspect() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    node.add("a").config(&range()).run().ok();
    // A restored store is of the epoch that it was of when the snapshot was taken.
    let before = cluster.store().get("v1/meta").expect("there is meta");
    adopt_by_hand(&cluster);
    node.add("b").config(&range()).run().ok();
    cluster.store().put("v1/meta", before);
    node.add("c").config(&range()).run().error(102);
    // Every node is held back now, and DEL works.
    cluster.node("n2").add("c").config(&range()).run().error(102);
    node.del("a").config(&range()).run().silent();
    assert!(node.cli(["check", "--accept-store", "--yes"]).succeeded());
    node.add("c").config(&range()).run().ok();
    cluster.assert_clean();
}

/// The next epoch begins, as after an adoption.
fn adopt_by_hand(cluster: &Cluster) {
    let meta = cluster.store().get("v1/meta").expect("there is meta");
    let mut meta: Value = serde_json::from_slice(&meta).expect("JSON");
    meta["epoch"] = json!(2);
    cluster.store().put("v1/meta", meta.to_string());
}
