//! A run knows its store: a restored one, at any address, is not the one that the node knows; nor is a member that was
//! begun anew, or a learner.

use serde_json::{Value, json};
use support::{Cluster, Etcd, Learner, Node, Trio, network_as};

fn config() -> Value {
    network_as("1.1.0", "net", json!({"range": "10.0.0.0/24"}))
}

/// The addresses that a node's ADDs give to these containers.
fn add_all(node: &Node, containers: &[&str]) -> Vec<String> {
    containers.iter().map(|container| node.add(container).config(&config()).run().address()).collect()
}

/// Points the node at another etcd, as an operator does who has restored a snapshot on other hosts.
fn move_to(node: &Node, endpoints: &[String]) {
    node.change_host_file(json!({"etcd": {"endpoints": endpoints, "prefix": node_prefix(node)}}));
}

fn node_prefix(node: &Node) -> Value {
    let text = std::fs::read_to_string(node.host_file()).expect("a host file");
    let host: Value = serde_json::from_str(&text).expect("JSON");
    host["etcd"]["prefix"].clone()
}

/// Every verb of a node in a store that contradicts the node's knowledge.
fn assert_refused_everywhere(node: &Node, held: &str) {
    assert_eq!(node.status().config(&config()).run().error_code(), Some(50), "STATUS");
    node.gc().config(&config()).run().silent();
    assert_eq!(node.add("new").config(&config()).run().error_code(), Some(102), "ADD");
    node.del(held).config(&config()).run().silent();
    assert_eq!(node.spooled_dels().len(), 1, "the DEL waits for a store that contradicts nothing");
    let check = node.cli(["check"]);
    assert!(!check.succeeded() && check.stdout.contains("suspect"), "{check}");
}

#[test]
fn a_snapshot_restored_at_another_address_is_not_the_store_that_the_node_knows() {
    let mut etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let node = cluster.node("n1");
    add_all(&node, &["a"]);
    let snapshot = etcd.copy_data();
    add_all(&node, &["b", "c"]);
    let mut other = Etcd::start();
    other.restore_data(&snapshot);
    move_to(&node, &[other.endpoint()]);
    assert_refused_everywhere(&node, "b");
    move_to(&node, &[etcd.endpoint()]);
    assert!(node.add("d").config(&config()).run().succeeded(), "the store that it knows serves it");
    assert_eq!(node.spooled_dels().len(), 0, "and frees what waited");
    cluster.assert_clean();
}

#[test]
fn a_quiet_node_notices_a_restored_store_that_others_have_used_beyond_all_that_it_has_seen() {
    let mut etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let (quiet, busy) = (cluster.node("quiet"), cluster.node("busy"));
    add_all(&quiet, &["q0"]);
    let snapshot = etcd.copy_data();
    let before = cluster.store().revision();
    let given = add_all(&quiet, &["q1", "q2"]);
    let seen = cluster.store().revision();
    etcd.restore_data(&snapshot);
    // This node has seen nothing of the lost revisions.
    while cluster.store().revision() <= seen + 5 {
        let name = format!("b{}", cluster.store().revision());
        busy.add(&name).config(&config()).run().address();
    }
    assert!(before < seen);
    let doctor = quiet.cli(["doctor"]);
    assert!(!doctor.succeeded() && doctor.stdout.contains("puts the store under suspicion"), "{doctor}");
    assert_refused_everywhere(&quiet, "q1");
    let on_busy = busy.add("late").config(&config()).run();
    assert_eq!(on_busy.error_code(), Some(102), "the store is suspect for all: {given:?}");
    cluster.leave_unclean();
}

#[test]
fn a_member_that_was_begun_anew_alone_takes_no_del_and_gives_no_address() {
    let trio = Trio::start();
    let cluster = Cluster::on_trio(&trio);
    let node = cluster.node("n1");
    let containers = ["a", "b", "c", "d", "e", "f", "g", "h"];
    add_all(&node, &containers);
    let lost = Etcd::start();
    let mut endpoints = trio.endpoints();
    endpoints[0] = lost.endpoint();
    move_to(&node, &endpoints);
    for container in containers {
        node.del(container).config(&config()).run().silent();
    }
    assert_eq!(node.spooled_dels().len(), 0, "two members have served them all");
    let fresh = cluster.node("n2");
    move_to(&fresh, &endpoints);
    let refused = fresh.add("x").config(&config()).run().error(102);
    let text = refused["msg"].as_str().unwrap_or_default();
    assert!(text.contains(&lost.endpoint()) && text.contains("different etcds"), "{refused}");
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

#[test]
fn a_learner_is_passed_by() {
    let etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let node = cluster.node("n1");
    let learner = Learner::of(&etcd);
    move_to(&node, &[learner.endpoint(), etcd.endpoint()]);
    for round in 0..8 {
        let container = format!("c{round}");
        node.add(&container).config(&config()).run().address();
        node.status().config(&config()).run().silent();
        node.del(&container).config(&config()).run().silent();
    }
    assert_eq!(node.spooled_dels().len(), 0);
    move_to(&node, &[learner.endpoint()]);
    let alone = node.add("x").config(&config()).run().error(11);
    let details = alone["details"].as_str().unwrap_or_default();
    assert!(details.contains("etcdctl member promote"), "{alone}");
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

/// Its host file may name the wrong prefix now: on an empty one, every address would be given once more.
fn use_prefix(node: &Node, prefix: &Value) {
    node.change_host_file(json!({"etcd": {"prefix": prefix}}));
}

#[test]
fn a_machine_that_has_used_another_prefix_founds_no_store() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    add_all(&node, &["a"]);
    let prefix = node_prefix(&node);
    let moved = json!(format!("{}other/", prefix.as_str().expect("a prefix")));
    use_prefix(&node, &moved);
    assert_prefix_refused(&node, &prefix, &moved);
    node.del("b").config(&config()).run().silent();
    for command in [&["hold", "10.0.0.9", "--network", "default", "--note", "x"][..], &["doctor"]] {
        let told = node.cli(command.iter().copied());
        assert!(!told.succeeded() && told.to_string().contains("this machine has used"), "{told}");
    }
    let written = cluster.store().keys("other/v1/");
    assert!(written.iter().all(|key| key.contains("/tombstone/")), "no store was founded: {written:?}");
    node.change_host_file(json!({"other_prefixes": [prefix]}));
    assert_eq!(add_all(&node, &["b"]).len(), 1, "a second store was meant");
    node.del("b").config(&config()).run().silent();
    use_prefix(&node, &prefix);
    add_all(&node, &["c"]);
    assert_eq!(node.list().len(), 2);
    cluster.assert_clean();
}

/// ADD and STATUS name both prefixes, and the key that allows both.
#[track_caller]
fn assert_prefix_refused(node: &Node, used: &Value, named: &Value) {
    let refused = node.add("refused").config(&config()).run().error(102);
    let [used, named] = [used, named].map(|prefix| prefix.as_str().expect("a prefix"));
    let text = refused["msg"].as_str().unwrap_or_default();
    assert!(text.contains(&format!("has used the prefix {used} ")), "{refused}");
    assert!(text.contains(&format!("its host file names {named},")), "{refused}");
    assert!(refused["details"].to_string().contains("`other_prefixes`"), "{refused}");
    assert_eq!(node.status().config(&config()).run().error_code(), Some(50));
}

#[test]
fn a_prefix_that_was_changed_to_another_store_gives_no_address_and_loses_no_del() {
    let cluster = Cluster::new();
    let [node, other] = ["n1", "n2"].map(|name| cluster.node(name));
    let prefix = node_prefix(&node);
    let moved = json!(format!("{}other/", prefix.as_str().expect("a prefix")));
    use_prefix(&other, &moved);
    let theirs = add_all(&other, &["x"]);
    assert_eq!(add_all(&node, &["a"]), theirs, "each store gives its own addresses");
    use_prefix(&node, &moved);
    assert_prefix_refused(&node, &prefix, &moved);
    // No other verb makes the prefix one that the node has used.
    let lost = node.del("a").config(&config()).run().error(11);
    assert!(lost["msg"].to_string().contains("has used the prefix"), "{lost}");
    let unknown = node.del("unknown").config(&config()).run();
    unknown.silent();
    assert!(unknown.stderr.contains("nothing is known of this container there"), "{unknown}");
    assert!(!node.check("unknown").config(&config()).run().succeeded());
    node.gc().config(&config()).run().silent();
    assert_prefix_refused(&node, &prefix, &moved);
    assert_eq!(other.list().len(), 1, "nothing was given");
    use_prefix(&node, &prefix);
    node.del("a").config(&config()).run().silent();
    assert!(node.list().is_empty());
    // A node that uses both by two host files says so.
    use_prefix(&node, &moved);
    node.change_host_file(json!({"other_prefixes": [prefix]}));
    assert_eq!(add_all(&node, &["b"]).len(), 1);
    cluster.assert_clean();
}

#[test]
fn a_machine_of_another_cluster_founds_a_store_only_if_a_person_agrees() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    add_all(&node, &["a"]);
    cluster.store().delete_prefix("v1/");
    node.change_host_file(json!({"cluster": "west"}));
    let refused = node.add("b").config(&config()).run().error(102);
    let text = refused["msg"].as_str().unwrap_or_default();
    assert!(text.contains("has used the store of") && text.contains("cluster test"), "{refused}");
    assert_eq!(node.status().config(&config()).run().error_code(), Some(50));
    let accepted = node.cli(["check", "--accept-store", "--yes"]);
    assert!(accepted.succeeded() && accepted.stdout.contains("began a new store"), "{accepted}");
    add_all(&node, &["b"]);
    cluster.assert_clean();
}

/// So a restore of a store that only a person has written to since is noticed.
#[test]
fn a_command_that_writes_raises_the_mark_of_its_node() {
    let mut etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let node = cluster.node("n1");
    add_all(&node, &["a"]);
    let hold = |address: &str| node.cli(["hold", address, "--network", "default", "--note", "x"]);
    for command in ["hold", "pool"] {
        let snapshot = etcd.copy_data();
        let done = match command {
            "hold" => hold("10.0.0.9"),
            _ => {
                let pool = "pool: p\nnetwork: storage\nranges:\n- range: 10.9.0.0/24\n";
                node.pool(&["apply", "--yes", "-f", "-"], pool)
            }
        };
        assert!(done.succeeded(), "{done}");
        etcd.restore_data(&snapshot);
        let refused = hold("10.0.0.8");
        assert!(!refused.succeeded() && refused.stderr.contains("this node knows a store"), "{refused}");
        node.add("b").config(&config()).run().error(102);
        assert!(node.cli(["check", "--accept-store", "--yes"]).succeeded());
        add_all(&node, &["b"]);
    }
    cluster.assert_clean();
}
