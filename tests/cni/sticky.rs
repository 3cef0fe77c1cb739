//! Addresses that outlive a pod: a hold for the pod's name, and a seat for the container that uses it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use support::{Cluster, Node, Outcome, in_parallel, network};

/// Six addresses, which stay with a pod's name.
fn sticky() -> Value {
    network(json!({"range": "10.0.0.0/29", "sticky": "pod"}))
}

fn add(node: &Node, container: &str, (pod, uid): (&str, &str), config: &Value) -> Outcome {
    node.add(container).config(config).pod("prod", pod, uid).run()
}

fn del(node: &Node, container: &str, config: &Value) {
    node.del(container).config(config).run().silent();
}

/// The text of an error, with its details.
#[track_caller]
fn refused(outcome: &Outcome, code: u64) -> String {
    let error = outcome.error(code);
    format!("{}; {}", error["msg"].as_str().expect("a text"), error["details"].as_str().unwrap_or_default())
}

/// `metes holds`, without its headers, one line each.
fn holds(node: &Node) -> Vec<Vec<String>> {
    let shown = node.cli(["holds", "-o", "json"]);
    let words = |row: &Value| {
        let pod = |key: &str| row["pod"][key].as_str().unwrap_or("-").to_owned();
        let user = row["used_by"]["container_id"].as_str().unwrap_or("-").to_owned();
        vec![row["address"].as_str().expect("an address").to_owned(), pod("name"), pod("ifname"), user]
    };
    shown.json().as_array().expect("a list").iter().map(words).collect()
}

#[test]
fn a_pod_that_comes_back_has_its_address_on_any_node() {
    let cluster = Cluster::new();
    let (one, other) = (cluster.node("a"), cluster.node("b"));
    assert_eq!(add(&one, "c0", ("other-0", "u0"), &sticky()).address(), "10.0.0.1");
    assert_eq!(add(&one, "c1", ("db-0", "u1"), &sticky()).address(), "10.0.0.2");
    one.check("c1").config(&sticky()).pod("prod", "db-0", "u1").run().silent();
    cluster.assert_clean();
    del(&one, "c0", &sticky());
    del(&one, "c1", &sticky());
    // Nothing of it is free.
    assert_eq!(add(&other, "c2", ("web-0", "u2"), &sticky()).address(), "10.0.0.3");
    for (node, container, uid) in [(&one, "c3", "u3"), (&other, "c4", "u4"), (&one, "c5", "u5")] {
        let added = add(node, container, ("db-0", uid), &sticky());
        assert_eq!(added.address(), "10.0.0.2", "{container}");
        let shown = node.cli(["list", "-o", "json"]).json();
        let row = shown.as_array().expect("rows").iter().find(|row| row["address"] == "10.0.0.2").cloned();
        let row = row.expect("it is held");
        assert_eq!((&row["container_id"], &row["kept"]["used"]), (&json!(container), &json!(true)));
        cluster.assert_clean();
        del(node, container, &sticky());
    }
    assert_eq!(holds(&one)[1], ["10.0.0.2", "db-0", "eth0", "-"]);
    let usage = one.cli(["usage", "-o", "json"]).json();
    assert_eq!((&usage[0]["held"], &usage[0]["unused"]), (&json!(3), &json!(2)), "{usage}");
    cluster.assert_clean();
}

#[test]
fn a_second_pod_of_the_name_waits_until_the_first_container_is_gone() {
    let cluster = Cluster::new();
    let (one, other) = (cluster.node("a"), cluster.node("b"));
    assert_eq!(add(&one, "c1", ("db-0", "u1"), &sticky()).address(), "10.0.0.1");
    // It was deleted by force, and its node does not answer.
    let text = refused(&add(&other, "c2", ("db-0", "u2"), &sticky()), 11);
    for word in
        ["the hold for eth0 of pod prod/db-0", "container c1 on node a", "metes release --container c1"]
    {
        assert!(text.contains(word), "{word}: {text}");
    }
    // Another interface of it is another hold.
    let second = other.add("c2").ifname("net1").config(&sticky()).pod("prod", "db-0", "u2").run();
    assert_eq!(second.address(), "10.0.0.2");
    // A retried sandbox of the first pod takes the seat over, and the late DEL of the older one frees nothing.
    assert_eq!(add(&one, "c3", ("db-0", "u1"), &sticky()).address(), "10.0.0.1");
    del(&one, "c1", &sticky());
    refused(&add(&other, "c2", ("db-0", "u2"), &sticky()), 11);
    // A person says that the container is gone.
    assert!(one.cli(["release", "--container", "c3", "--yes"]).succeeded());
    assert_eq!(add(&other, "c2", ("db-0", "u2"), &sticky()).address(), "10.0.0.1");
    // The first pod's runtime comes back, and asks once more for what it had.
    refused(&add(&one, "c4", ("db-0", "u1"), &sticky()), 11);
    cluster.assert_clean();
}

/// The bytes of each record are held by `record::golden_records`.
#[test]
fn an_add_without_it_stores_no_key_and_no_field_of_it() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    let plain = network(json!({"range": "10.0.0.0/29"}));
    add(&node, "c1", ("db-0", "u1"), &plain).address();
    let stored = cluster.store().entries("v1/");
    let kinds: BTreeSet<&str> = stored.iter().filter_map(|(key, _)| key.split('/').nth(1)).collect();
    assert_eq!(kinds, ["asked", "fence", "meta", "net", "node", "owner", "pod"].into());
    for (key, value) in stored {
        let text = String::from_utf8_lossy(&value);
        assert!(!key.contains("/@") && !text.contains("seat") && !text.contains("hold"), "{key}: {text}");
    }
    cluster.assert_clean();
}

#[test]
fn a_retried_sandbox_gets_no_seat_that_another_container_has() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    add(&node, "c1", ("db-0", "u1"), &sticky()).address();
    assert_eq!(add(&node, "c2", ("db-0", "u1"), &sticky()).address(), "10.0.0.1", "it takes over");
    let seat = "v1/seat/test/@pod.prod/db-0/eth0/0";
    let text = String::from_utf8(cluster.store().get(seat).expect("a seat")).expect("JSON");
    cluster.store().put(seat, text.replace("/c2/", "/c9/"));
    let why = refused(&add(&node, "c3", ("db-0", "u1"), &sticky()), 102);
    assert!(why.contains(seat) && why.contains("c2"), "{why}");
    cluster.store().put(seat, text);
    assert_eq!(add(&node, "c3", ("db-0", "u1"), &sticky()).address(), "10.0.0.1");
    cluster.assert_clean();
}

#[test]
fn of_many_first_pods_of_one_name_one_gets_the_address() {
    let cluster = Cluster::new();
    let nodes: Vec<Node> = (0..4).map(|i| cluster.node(&format!("n{i}"))).collect();
    let outcomes = in_parallel(8, 0..8_usize, |i| {
        add(&nodes[i % 4], &format!("c{i}"), ("db-0", &format!("u{i}")), &sticky())
    });
    let served: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.succeeded()).collect();
    assert_eq!(served.len(), 1, "{outcomes:?}");
    assert!(outcomes.iter().all(|outcome| outcome.succeeded() || outcome.error_code() == Some(11)));
    assert_eq!(holds(&nodes[0]).len(), 1);
    cluster.assert_whole();
}

#[test]
fn a_full_range_and_a_draining_one_serve_the_names_that_they_have() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    let pool =
        |state: &str| format!("pool: storage\nkeep: 7d\nranges:\n- range: 10.0.0.0/30\n  state: {state}\n");
    assert!(node.pool(&["apply", "-f", "-", "--yes"], &pool("open")).succeeded());
    let config = network(json!({"pool": "storage", "sticky": "pod"}));
    for (i, address) in ["10.0.0.1", "10.0.0.2"].iter().enumerate() {
        let pod = format!("db-{i}");
        assert_eq!(add(&node, &format!("c{i}"), (&pod, &format!("u{i}")), &config).address(), *address);
        del(&node, &format!("c{i}"), &config);
    }
    refused(&add(&node, "c2", ("db-2", "u2"), &config), 100);
    let drained = node.pool(&["apply", "-f", "-", "--yes"], &pool("draining"));
    assert_eq!(drained.status.code(), Some(3), "{drained}");
    assert_eq!(add(&node, "c3", ("db-1", "u3"), &config).address(), "10.0.0.2");
    let row = &node.cli(["show", "10.0.0.2", "-o", "json"]).json()[0];
    assert_eq!((&row["pool"], &row["kept"]["for"]), (&json!("storage"), &json!(604_800)));
    cluster.assert_clean();
}

#[test]
fn what_such_an_address_cannot_be_is_refused_with_the_remedy() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    let nameless = cluster.node_with("b", json!({"cluster": null}));
    let refuse = |outcome: Outcome, words: &[&str]| {
        let text = refused(&outcome, 7);
        words.iter().for_each(|word| assert!(text.contains(word), "{word}: {text}"));
    };
    let db = |container: &str, config: &Value| add(&node, container, ("db-0", "u1"), config);
    refuse(add(&nameless, "c1", ("db-0", "u1"), &sticky()), &["`ipam.sticky`", "`cluster`"]);
    let unnamed = node.add("c1").config(&sticky()).args("IgnoreUnknown=1;K8S_POD_NAME=db-0").run();
    refuse(unnamed, &["K8S_POD_NAMESPACE, K8S_POD_UID"]);
    let both = json!({"range": "10.0.0.0/29", "sticky": "pod", "addresses": [{"address": "10.0.0.5/29"}]});
    refuse(db("c1", &network(both)), &["`ipam.sticky`", "`addresses`"]);
    refuse(
        db("c1", &network(json!({"range": "10.0.0.0/29", "sticky": "vm"}))),
        &["ipam.sticky", "\"pod\"", "\"vm\""],
    );
    let keep = json!({"range": "10.0.0.0/29", "sticky": "pod", "keep": "2y"});
    refuse(db("c1", &network(keep)), &["ipam.keep", "365d", "\"2y\""]);
    assert!(
        node.pool(&["apply", "-f", "-", "--yes"], "pool: plain\nranges:\n- range: 10.1.0.0/29\n").succeeded()
    );
    let plain = network(json!({"pool": "plain", "sticky": "pod"}));
    refuse(db("c1", &plain), &["pool plain", "`keep`"]);
    let beside = network(json!({"pool": "plain", "sticky": "pod", "keep": "1d"}));
    refuse(db("c1", &beside), &["ipam.keep", "belongs to the pool"]);
    // The network became dual stack, or moved. No ADD renumbers.
    assert_eq!(db("c1", &sticky()).address(), "10.0.0.1");
    del(&node, "c1", &sticky());
    let dual = network(
        json!({"ranges": [[{"subnet": "10.0.0.0/29"}], [{"subnet": "fd00::/120"}]], "sticky": "pod"}),
    );
    refuse(
        db("c2", &dual),
        &["the hold for eth0 of pod prod/db-0", "10.0.0.1", "metes hold --remove 10.0.0.1"],
    );
    let moved = network(json!({"range": "10.2.0.0/29", "sticky": "pod"}));
    refuse(db("c2", &moved), &["10.0.0.1", "metes hold --remove 10.0.0.1"]);
    let removed = node.cli(["hold", "--remove", "10.0.0.1"]);
    assert!(removed.succeeded(), "{removed}");
    assert_eq!(db("c2", &moved).address(), "10.2.0.1");
    cluster.assert_clean();
}

#[test]
fn a_hold_is_made_beforehand_or_for_the_pod_that_has_the_addresses() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    let hold = |address: &str, pod: &str, more: &[&str]| {
        let usual = ["hold", address, "--pod", pod, "--interface", "eth0", "--network", "default", "--force"];
        node.cli(usual.iter().chain(more).copied())
    };
    let made = hold("10.0.0.5", "prod/db-0", &["--keep", "forever", "--note", "primary"]);
    assert!(made.succeeded(), "{made}");
    assert_eq!(add(&node, "c1", ("db-0", "u1"), &sticky()).address(), "10.0.0.5");
    // A pod of a network that was not sticky goes on with its address.
    let plain = network(json!({"range": "10.0.0.0/29"}));
    assert_eq!(add(&node, "c2", ("db-1", "u2"), &plain).address(), "10.0.0.1");
    for (pod, word) in [("prod/db-2", "has held the address since"), ("prod/db-0", "metes hold --remove")] {
        let refused = hold("10.0.0.1", pod, &[]);
        assert!(!refused.succeeded() && refused.to_string().contains(word), "{pod}: {refused}");
    }
    let made = hold("10.0.0.1", "prod/db-1", &["--keep", "1h"]);
    assert!(made.succeeded() && made.to_string().contains("the container that has them"), "{made}");
    assert_eq!(holds(&node), [["10.0.0.1", "db-1", "eth0", "c2"], ["10.0.0.5", "db-0", "eth0", "c1"],]);
    cluster.assert_clean();
    del(&node, "c2", &plain);
    assert_eq!(add(&node, "c3", ("db-1", "u3"), &sticky()).address(), "10.0.0.1");
    // Its time changes, and nothing else.
    assert!(hold("10.0.0.1", "prod/db-1", &["--keep", "30d"]).succeeded());
    let kept = node.cli(["show", "10.0.0.1", "-o", "json"]).json();
    assert_eq!(kept[0]["kept"], json!({"for": 2_592_000, "used": true}));
    // Handed over, the address ends with the container.
    let ended = node.cli(["hold", "--remove", "10.0.0.1"]);
    assert!(ended.succeeded() && ended.to_string().contains("container c3"), "{ended}");
    node.check("c3").config(&sticky()).pod("prod", "db-1", "u3").run().silent();
    cluster.assert_clean();
    del(&node, "c3", &sticky());
    assert_eq!(node.list().len(), 1);
    // An unused one is free at once.
    del(&node, "c1", &sticky());
    assert!(node.cli(["hold", "--remove", "10.0.0.5"]).succeeded());
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

#[test]
fn holds_of_many_pods_come_from_a_file() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    let file = cluster.folder().join("holds");
    let path = file.to_str().expect("a plain path");
    let from_file = |text: &str| {
        std::fs::write(&file, text).expect("written");
        node.cli(["hold", "-f", path, "--network", "default", "--force", "--keep", "30d"])
    };
    for (text, told) in [
        (
            "prod/db-0 eth0 10.0.0.2\nprod/db-1 10.0.0.3\n",
            "line 2: expected NAMESPACE/NAME INTERFACE ADDRESS..., found no address after 10.0.0.3",
        ),
        ("# none\n", "names no pod"),
        ("prod/db-0\n", "line 1: expected NAMESPACE/NAME INTERFACE ADDRESS..."),
        ("db-0 eth0 10.0.0.2\n", "line 1: \"db-0\": expected NAMESPACE/NAME"),
        ("prod/db-0 eth0 10.0.0.2/24\n", "line 1: \"10.0.0.2/24\": expected an IPv4 or IPv6 address"),
    ] {
        let refused = from_file(text);
        assert!(!refused.succeeded() && refused.to_string().contains(told), "{told}: {refused}");
    }
    cluster.assert_nothing_held();
    assert_eq!(
        add(&node, "c1", ("web-0", "u1"), &network(json!({"range": "10.0.0.0/29"}))).address(),
        "10.0.0.1"
    );
    let made = from_file(
        "# databases\nprod/db-0 eth0 10.0.0.5\nprod/db-1 eth0 10.0.0.1\n\nprod/db-2 eth0 10.0.0.2\n",
    );
    // One is taken, which does not stop the others.
    assert!(!made.succeeded() && made.to_string().contains("has held the address since"), "{made}");
    assert_eq!(holds(&node), [["10.0.0.2", "db-2", "eth0", "-"], ["10.0.0.5", "db-0", "eth0", "-"]]);
    assert_eq!(add(&node, "c2", ("db-0", "u2"), &sticky()).address(), "10.0.0.5");
    cluster.assert_clean();
}
