//! Addresses that outlive a pod, while runs stop at the wrong moment, persons and operators change what a run has read,
//! and etcd is out of space.

use std::time::Duration;

use serde_json::{Value, json};
use support::{Cluster, Etcd, Node, Run, Stopping, network, wait_for};

const PATIENCE: Duration = Duration::from_secs(30);
/// The least that etcd grants.
const LEASE_S: &str = "2";

fn sticky() -> Value {
    network(json!({"range": "10.0.0.0/24", "sticky": "pod"}))
}

fn add(node: &Node, container: &str, (pod, uid): (&str, &str), config: &Value) -> Run {
    node.add(container).config(config).pod("prod", pod, uid)
}

fn del(node: &Node, container: &str, config: &Value) {
    node.del(container).config(config).run().silent();
}

/// What is stored of holds and of their users.
fn stored(cluster: &Cluster) -> Vec<String> {
    let mut keys = cluster.store().keys("v1/owner/");
    keys.extend(cluster.store().keys("v1/seat/"));
    keys
}

#[test]
fn a_first_pod_whose_lease_ends_or_whose_del_overtakes_it_leaves_no_hold() {
    for is_deleted in [true, false] {
        let cluster = Cluster::new();
        let (node, other) = (cluster.node("a"), cluster.node("b"));
        add(&other, "first", ("web", "u0"), &network(json!({"range": "10.0.0.0/24"}))).run().address();
        let before = stored(&cluster);
        let late = add(&node, "c1", ("db-0", "u1"), &sticky()).env("METES_FAIL_LEASE", LEASE_S);
        let mut late = Stopping::start(&cluster, "late", late, &["commit#1.before"]);
        late.at("commit#1.before");
        if is_deleted {
            del(&node, "c1", &sticky());
        } else {
            let leases = async |client: &mut etcd_client::Client| client.leases().await;
            let passed = late.passed();
            let granted: Vec<&str> = passed.iter().filter_map(|line| line.strip_prefix("lease ")).collect();
            assert!(!granted.is_empty(), "{passed:?}");
            wait_for("its lease to end", PATIENCE, || {
                let left = cluster.store().run(leases);
                let is_left = |lease: &str| left.leases().iter().any(|one| one.id().to_string() == lease);
                if granted.iter().any(|lease| is_left(lease)) { Err("not yet".to_owned()) } else { Ok(()) }
            });
            // Another one has the address by then.
            add(&other, "c2", ("db-0", "u2"), &sticky()).run().address();
        }
        late.end().error(11);
        if is_deleted {
            assert_eq!(stored(&cluster), before);
        } else {
            let seats = cluster.store().keys("v1/seat/");
            assert_eq!(seats.len(), 1, "{seats:?}");
            del(&other, "c2", &sticky());
        }
        cluster.assert_clean();
    }
}

#[test]
fn a_head_serves_no_first_pod_whose_name_has_a_hold_by_then() {
    let cluster = Cluster::new();
    let [a, b, c] = ["a", "b", "c"].map(|name| cluster.node(name));
    let plain = network(json!({"range": "10.0.0.0/24"}));
    let mut head = Stopping::at_head(&cluster, a.add("head").config(&plain), &["batch#1.before"], || {
        b.add("first").config(&plain).run().address();
    });
    let tickets = |count: usize| {
        wait_for("the queue", PATIENCE, || {
            let tickets = cluster.store().keys("v1/ticket/").len();
            if tickets == count { Ok(()) } else { Err(format!("{tickets} tickets")) }
        });
    };
    let waits = add(&c, "c1", ("db-0", "u1"), &sticky()).spawn();
    tickets(2);
    head.run.resume();
    head.at("batch#1.before");
    // The head has chosen an address for the pod. A person is quicker.
    let kept = ["hold", "10.0.0.99", "--network", "default", "--pod", "prod/db-0", "--interface", "eth0"];
    let kept = a.cli(kept);
    assert!(kept.succeeded(), "{kept}");
    head.end().address();
    assert_eq!(waits.wait().address(), "10.0.0.99");
    assert_eq!(cluster.store().keys("v1/seat/").len(), 1);
    // At most the bit of the address that was chosen for nothing.
    assert!(cluster.stray_bits().len() <= 1);
    let repaired = a.cli(["check", "--repair"]);
    assert!(repaired.succeeded(), "{repaired}");
    cluster.assert_clean();
}

#[test]
fn a_pool_that_is_changed_while_a_pod_joins_is_judged_by_its_new_text() {
    let text = |range: &str, keep: &str| format!("pool: storage\n{keep}ranges:\n- range: {range}\n");
    let config = network(json!({"pool": "storage", "sticky": "pod"}));
    // By the new text, another range refuses its hold, and a missing `keep` refuses only new ones.
    for (range, keep, code) in [("10.9.0.0/24", "keep: 7d\n", Some(7)), ("10.0.0.0/24", "", None)] {
        for (is_known, point) in [(true, "commit-first#1.before"), (false, "commit#1.before")] {
            let cluster = Cluster::new();
            let (earlier, node) = (cluster.node("a"), cluster.node("b"));
            let applied = node.pool(&["apply", "-f", "-", "--yes"], &text("10.0.0.0/24", "keep: 7d\n"));
            assert!(applied.succeeded(), "{applied}");
            let earlier = if is_known { &node } else { &earlier };
            let address = add(earlier, "c0", ("db-0", "u0"), &config).run().address();
            del(earlier, "c0", &config);
            let join = add(&node, "c1", ("db-0", "u1"), &config);
            let mut join = Stopping::start(&cluster, "join", join, &[point]);
            join.at(point);
            let changed = node.pool(&["apply", "-f", "-", "--yes"], &text(range, keep));
            assert!(matches!(changed.status.code(), Some(0 | 3)), "{changed}");
            let joined = join.end();
            match code {
                Some(code) => _ = joined.error(code),
                None => assert_eq!(joined.address(), address),
            }
            cluster.assert_clean();
        }
    }
}

#[test]
fn out_of_space_a_pod_gives_its_hold_back_and_no_other_gets_it() {
    let etcd = Etcd::with_args(&["--quota-backend-bytes=16777216"]);
    let cluster = Cluster::on(&etcd);
    let node = cluster.node("a");
    let address = add(&node, "c1", ("db-0", "u1"), &sticky()).run().address();
    add(&node, "c2", ("db-1", "u2"), &sticky()).run().address();
    del(&node, "c2", &sticky());
    cluster.store().fill();
    for (container, pod, uid) in [("c3", "db-1", "u3"), ("c4", "db-2", "u4")] {
        add(&node, container, (pod, uid), &sticky()).run().error(103);
    }
    del(&node, "c1", &sticky());
    assert_eq!(cluster.store().keys("v1/seat/"), Vec::<String>::new());
    assert_eq!(cluster.store().keys("v1/owner/").len(), 2, "the two holds stay");
    let show = node.cli(["show", &address, "-o", "json"]).json();
    assert_eq!(show[0]["kept"]["used"], json!(false), "{show}");
    cluster.assert_clean();
}
