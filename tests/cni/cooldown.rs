//! Cooling: a freed address is not given again for a while. hack/test plays many cycles of ADD and DEL short;
//! `COOLDOWN_CYCLES=5000` plays them long.

use std::collections::BTreeMap;
use std::env;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use support::{Cluster, Etcd, Node, Outcome, Store, Trio, in_parallel, network, wait_for};

/// Far above every cooldown here and the 15 seconds that it may take longer.
const LONG: Duration = Duration::from_secs(60);
/// The pods that come and go in a range of [`CYCLED`] addresses, in all and at a time, and the moves of the leader.
const CYCLES: usize = 350;
const AT_ONCE: usize = 8;
const LEADER_MOVES_EVERY: usize = 50;
const CYCLED: usize = 254;

/// Two addresses, 10.0.0.1 and 10.0.0.2.
fn two(cooldown: &str) -> Value {
    network(json!({"range": "10.0.0.0/30", "cooldown": cooldown}))
}

fn add(node: &Node, container: &str, config: &Value) -> Outcome {
    node.add(container).config(config).run()
}

fn del(node: &Node, container: &str, config: &Value) {
    node.del(container).config(config).run().silent();
}

fn cooling(store: &Store) -> Vec<String> {
    store.keys("v1/net/").into_iter().filter(|key| key.contains("/cooling/")).collect()
}

#[test]
fn a_freed_address_rests_and_then_is_given_again() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    let config = two("2s");
    assert_eq!(add(&node, "c1", &config).address(), "10.0.0.1");
    let freed = Instant::now();
    del(&node, "c1", &config);
    assert_eq!(add(&node, "c2", &config).address(), "10.0.0.2", "the lowest free one is cooling");
    let error = add(&node, "c3", &config).error(11);
    let text = error["msg"].as_str().expect("a text");
    assert!(text.contains("1 address is cooling") && text.contains("10.0.0.0/30"), "{text}");
    // It is no stray bit, and nothing is wrong.
    cluster.assert_clean();
    let given = wait_for("the end of the cooldown", LONG, || {
        let outcome = add(&node, "c3", &config);
        if outcome.succeeded() { Ok(outcome.address()) } else { Err(outcome.to_string()) }
    });
    assert!(freed.elapsed() >= Duration::from_secs(2), "{:?}", freed.elapsed());
    assert_eq!(given, "10.0.0.1");
    cluster.assert_clean();
}

#[test]
fn an_address_that_is_asked_for_rests_too() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    let config = two("1h");
    assert_eq!(add(&node, "c1", &config).address(), "10.0.0.1");
    del(&node, "c1", &config);
    let requested = |ipam: Value| {
        let error = node.add("c2").config(&network(ipam)).args("IP=10.0.0.1").run().error(11);
        error["msg"].as_str().expect("a text").to_owned()
    };
    // The cooldown of the configuration that asks does not matter.
    for ipam in [
        json!({"range": "10.0.0.0/30", "cooldown": "1h"}),
        json!({"range": "10.0.0.0/30"}),
        json!({"range": "10.0.0.0/30", "cooldown_when_full": "reuse"}),
    ] {
        assert!(requested(ipam).contains("10.0.0.1 of network default is cooling"));
    }
    let fixed = network(json!({"addresses": [{"address": "10.0.0.1/30"}], "network_name": "default"}));
    node.add("c3").config(&fixed).run().error(11);
    assert_eq!(add(&node, "c2", &config).address(), "10.0.0.2");
    cluster.assert_clean();
}

#[test]
fn a_person_ends_a_cooldown_at_once_and_frees_nothing_by_that() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    let config = two("1h");
    let other = network(json!({"range": "10.0.0.0/30", "cooldown": "1h", "network_name": "other"}));
    let wants_it = || node.add("c2").config(&config).args("IP=10.0.0.1").run();
    let end = |arguments: &[&str]| node.cli([&["release", "--now"], arguments].concat());
    let says = |outcome: &Outcome, code: i32, words: &str| {
        let said = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(outcome.status.code() == Some(code) && said.contains(words), "{words:?} {outcome}");
    };
    assert_eq!(add(&node, "c1", &config).address(), "10.0.0.1");
    // Somebody holds it.
    let held = "10.0.0.1 of network default is not cooling: it is held by eth0 of container c1 on a of cluster test; \
                metes release default/10.0.0.1 frees it";
    says(&end(&["10.0.0.1"]), 1, held);
    says(&end(&["10.0.0.1", "--yes"]), 1, held);
    assert_eq!(node.list().len(), 1);
    // It cools, in two networks.
    add(&node, "c9", &other).ok();
    del(&node, "c9", &other);
    del(&node, "c1", &config);
    wants_it().error(11);
    says(&end(&["10.0.0.1"]), 1, "cooling in the networks default and other: say which with --network");
    says(&end(&["default/10.0.0.1"]), 0, "10.0.0.1 of network default is not cooling any more");
    assert_eq!(cooling(cluster.store()).len(), 1, "the other network's stays");
    cluster.assert_clean();
    assert_eq!(wants_it().address(), "10.0.0.1");
    says(&end(&["10.0.0.1"]), 0, "10.0.0.1 of network other is not cooling any more");
    // One that is refused does not stop the others, and one that is free is no mistake.
    let several = end(&["default/10.0.0.1", "10.0.0.2", "10.0.0.9"]);
    says(&several, 1, "held by eth0 of container c2");
    says(&several, 1, "10.0.0.2 is neither held nor cooling: there is nothing to do");
    says(&several, 1, "10.0.0.9 is neither held nor cooling: there is nothing to do");
    says(&end(&["10.0.0.2"]), 0, "there is nothing to do");
    says(&end(&["ns/web-0"]), 1, "no cooldown was ended: --now takes addresses");
    cluster.assert_clean();
}

#[test]
fn where_all_are_cooling_the_longest_may_be_used_again() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    let config = two("1h");
    for container in ["c1", "c2"] {
        add(&node, container, &config).ok();
    }
    // The second one first.
    del(&node, "c2", &config);
    del(&node, "c1", &config);
    assert_eq!(cooling(cluster.store()).len(), 2);
    let text = add(&node, "c3", &config).error(11)["msg"].to_string();
    assert!(text.contains("2 addresses are cooling"), "{text}");
    let reusing = network(json!({"range": "10.0.0.0/30", "cooldown": "1h", "cooldown_when_full": "reuse"}));
    assert_eq!(add(&node, "c3", &reusing).address(), "10.0.0.2");
    assert_eq!(add(&node, "c4", &reusing).address(), "10.0.0.1");
    assert!(cooling(cluster.store()).is_empty());
    add(&node, "c5", &reusing).error(100);
    cluster.assert_clean();
}

#[test]
fn whoever_frees_lets_an_address_rest() {
    let cluster = Cluster::new();
    let node = cluster.node_with("a", json!({"gc_grace_s": 0}));
    let config = two("1h");
    let frees: [(&str, &dyn Fn()); 4] = [
        ("DEL", &|| del(&node, "c1", &config)),
        ("release", &|| assert!(node.cli(["release", "10.0.0.1", "--yes"]).succeeded())),
        ("GC", &|| {
            let mut config = two("1h");
            config["cni.dev/valid-attachments"] = json!([]);
            config["cniVersion"] = json!("1.1.0");
            node.gc().config(&config).run().silent();
        }),
        ("release --no-cooldown", &|| {
            assert!(node.cli(["release", "10.0.0.1", "--no-cooldown", "--yes"]).succeeded());
        }),
    ];
    for (who, free) in frees {
        assert_eq!(add(&node, "c1", &config).address(), "10.0.0.1", "{who}");
        free();
        let cools = usize::from(who != "release --no-cooldown");
        assert_eq!(cooling(cluster.store()).len(), cools, "{who}");
        assert!(node.list().is_empty(), "{who}");
        // As if the time were over.
        cooling(cluster.store()).iter().for_each(|key| cluster.store().delete(key));
        let repaired = node.cli(["check", "--repair"]);
        assert!(repaired.succeeded(), "{who}: {repaired}");
    }
    cluster.assert_clean();
}

#[test]
fn a_spooled_del_lets_it_rest_and_a_retried_sandbox_does_not() {
    let mut etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let node = cluster.node("a");
    let config = two("1h");
    let sandbox = |container: &str| node.add(container).pod("ns", "p", "u-1").config(&config).run();
    assert_eq!(sandbox("s1").address(), "10.0.0.1");
    assert_eq!(sandbox("s2").address(), "10.0.0.1", "the pod keeps it");
    assert!(cooling(cluster.store()).is_empty());
    let files = node.spooled();
    etcd.kill();
    node.del("s2").pod("ns", "p", "u-1").config(&config).run().silent();
    assert_eq!(node.spooled().len(), files.len() + 1);
    etcd.restart();
    // The next run carries it out after its answer.
    assert_eq!(add(&node, "c2", &config).address(), "10.0.0.2");
    assert_eq!(node.spooled(), files);
    assert_eq!(cooling(cluster.store()).len(), 1);
    cluster.assert_clean();
}

#[test]
fn the_dels_of_a_node_share_a_lease_for_each_cooldown() {
    let etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let node = cluster.node("a");
    let range = |subnet: &str, cooldown: &str| network(json!({"range": subnet, "cooldown": cooldown}));
    let (short, long) = (range("10.0.0.0/24", "1m"), range("10.1.0.0/24", "1h"));
    for (config, count) in [(&short, 5), (&long, 5)] {
        (0..count).for_each(|i| {
            _ = add(&node, &format!("{}{i}", config["ipam"]["cooldown"]).replace('"', ""), config).ok()
        });
    }
    let leases = || etcd.metric("etcd_debugging_lease_granted_total", &[]);
    // The first ones bring the lease for tombstones, and one for each cooldown.
    del(&node, "1m0", &short);
    del(&node, "1h0", &long);
    let granted = leases();
    for i in 1..5 {
        del(&node, &format!("1m{i}"), &short);
        del(&node, &format!("1h{i}"), &long);
    }
    assert_eq!(leases(), granted, "no other lease");
    assert_eq!(cooling(cluster.store()).len(), 10);
    cluster.assert_clean();
}

#[test]
fn pools_have_cooldowns_of_their_own() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    let apply = |text: &str| {
        let outcome = node.pool(&["apply", "--yes", "-f", "-"], text);
        assert!(outcome.succeeded(), "{outcome}");
    };
    apply("pool: rests\nranges: [{range: 10.0.0.0/30}]\norder: lowest\ncooldown: 1h\n");
    apply("pool: none\nranges: [{range: 10.0.1.0/30}]\norder: lowest\n");
    let both = network(json!({"pools": ["rests", "none"]}));
    assert_eq!(add(&node, "c1", &both).addresses(), ["10.0.0.1/30", "10.0.1.1/30"]);
    // The present text of the pool does not matter: the record has its cooldown.
    apply("pool: rests\nranges: [{range: 10.0.0.0/30}]\norder: lowest\n");
    del(&node, "c1", &both);
    assert_eq!(add(&node, "c2", &both).addresses(), ["10.0.0.2/30", "10.0.1.1/30"]);
    let status = || node.pool(&["status", "rests", "-o", "json"], "").ok()[0].clone();
    let counts = ["size", "held", "free", "cooling"].map(|key| status()[key].as_u64());
    assert_eq!(counts, [Some(2), Some(1), Some(0), Some(1)]);
    let text = add(&node, "c3", &both).error(11)["msg"].to_string();
    assert!(text.contains("rests") && text.contains("1 address is cooling"), "{text}");
    cluster.assert_clean();
}

#[test]
fn what_a_retried_sandbox_gives_up_rests() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    let sandbox = |container: &str, config: &Value| {
        node.add(container).pod("ns", "p", "u-1").config(config).run().address()
    };
    let other = network(json!({"range": "10.0.9.0/30", "cooldown": "1h"}));
    assert_eq!(sandbox("s1", &two("1h")), "10.0.0.1");
    assert_eq!(sandbox("s2", &other), "10.0.9.1");
    assert_eq!(cooling(cluster.store()).len(), 1);
    assert_eq!(add(&node, "c1", &two("1h")).address(), "10.0.0.2");
    cluster.assert_clean();
}

#[test]
fn what_is_set_aside_while_it_is_cooling_rests_no_longer() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    let config = two("1h");
    add(&node, "c1", &config).ok();
    del(&node, "c1", &config);
    assert_eq!(cooling(cluster.store()).len(), 1);
    assert!(node.cli(["hold", "10.0.0.1", "--note", "switch"]).succeeded());
    assert!(cooling(cluster.store()).is_empty(), "no address is held and cooling");
    add(&node, "c2", &config).ok();
    add(&node, "c3", &config).error(100);
    assert!(node.cli(["hold", "--remove", "10.0.0.1"]).succeeded());
    assert_eq!(add(&node, "c3", &config).address(), "10.0.0.1");
    cluster.assert_clean();
}

/// An address was freed after its DEL began, and was given before its ADD ended. Between these two are at least two
/// seconds, by one clock.
#[test]
fn in_many_cycles_under_moving_leaders_no_address_is_given_too_early() {
    let cycles = env::var("COOLDOWN_CYCLES").ok().map_or(CYCLES, |cycles| cycles.parse().expect("a number"));
    let trio = Trio::start();
    let cluster = Cluster::on_trio(&trio);
    let nodes = [cluster.node("a"), cluster.node("b")];
    let config = network(json!({"range": "10.90.0.0/24", "cooldown": "2s"}));
    let freed: Mutex<BTreeMap<String, Instant>> = Mutex::default();
    let given = in_parallel(AT_ONCE, 0..cycles, |cycle| {
        if cycle % LEADER_MOVES_EVERY == LEADER_MOVES_EVERY - 1 {
            trio.move_leader(trio.follower());
        }
        let (node, container) = (&nodes[cycle % nodes.len()], format!("c{cycle}"));
        let address = wait_for("an address that does not cool", LONG, || {
            let outcome = add(node, &container, &config);
            if outcome.succeeded() { Ok(outcome.address()) } else { Err(outcome.to_string()) }
        });
        let now = Instant::now();
        let mut freed = freed.lock().expect("no cycle fails");
        let rested = freed.insert(address, now).map(|since| now - since);
        drop(freed);
        del(node, &container, &config);
        rested
    });
    let rested: Vec<Duration> = given.into_iter().flatten().collect();
    assert!(rested.len() >= cycles.saturating_sub(CYCLED), "only {} were given again", rested.len());
    let least = rested.iter().min().expect("there are more cycles than addresses");
    assert!(*least >= Duration::from_secs(2), "{least:?}");
    cluster.assert_nothing_held();
    // Bits of addresses that have rested are left until somebody needs them.
    cluster.assert_whole();
}

#[test]
fn wrong_cooldowns_are_refused() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    for (ipam, words) in [
        (json!({"range": "10.0.0.0/30", "cooldown": "60"}), ["ipam.cooldown", "60s"]),
        (json!({"range": "10.0.0.0/30", "cooldown": "25h"}), ["ipam.cooldown", "24h"]),
        (json!({"range": "10.0.0.0/30", "cooldown": 60}), ["ipam.cooldown", "found 60"]),
        (json!({"range": "10.0.0.0/30", "cooldown_when_full": "no"}), ["cooldown_when_full", "reuse"]),
        (json!({"pool": "p", "cooldown": "60s"}), ["ipam.pool", "ipam.cooldown"]),
        (json!({"range": "10.0.0.0/30", "cooldwn": "60s"}), ["cooldwn", "cooldown"]),
    ] {
        let error = add(&node, "c1", &network(ipam.clone())).error(7);
        let text = error.to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{ipam}: {text}");
    }
    cluster.assert_clean();
}
