//! A run whose node has left hints sends its commit first: one request, one durable write. These are an ADD in a scope,
//! a DEL, and a takeover. By etcd's own count.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use support::{Cluster, Etcd, Node, network};

fn range(third: u8) -> Value {
    network(json!({"range": format!("10.81.{third}.0/24")}))
}

fn add(node: &Node, container: &str, range: &Value) -> String {
    node.add(container).config(range).run().address()
}

/// The hints of a node, one file for each scope.
fn hints(node: &Node) -> Vec<PathBuf> {
    let folder = fs::read_dir(node.spool()).expect("a spool folder").flatten().next();
    let files = fs::read_dir(folder.expect("a folder of the prefix").path().join("scopes"));
    files.expect("a run has left hints").flatten().map(|entry| entry.path()).collect()
}

/// The cost of work to etcd: requests for keys, and proposals.
fn cost(etcd: &Etcd, work: impl FnOnce()) -> [u64; 2] {
    let count = || {
        let keys = ["grpc_service=\"etcdserverpb.KV\""];
        let requests = etcd.metric("grpc_server_started_total", &keys);
        [requests, etcd.metric("etcd_server_proposals_committed_total", &[])].map(|count| count as u64)
    };
    let before = count();
    work();
    let after = count();
    [after[0] - before[0], after[1] - before[1]]
}

/// The cost of a look and a commit.
const LOOK_AND_COMMIT: [u64; 2] = [2, 1];
/// The cost of a DEL without hints: it reads the owner's record, then what that names, and frees.
const LOOKS_AND_FREE: [u64; 2] = [3, 1];

#[test]
fn an_add_whose_hints_hold_is_one_request_and_one_proposal() {
    let etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let node = cluster.node("n1");
    let configs = ["lowest", "next", "spread"].into_iter().enumerate().map(|(index, order)| {
        let mut config = range(index as u8);
        config["ipam"]["order"] = json!(order);
        (order, config)
    });
    let configs: Vec<(&str, Value)> = configs.collect();
    for (order, config) in &configs {
        add(&node, &format!("{order}-0"), config);
        for number in 1..4 {
            let one = cost(&etcd, || drop(add(&node, &format!("{order}-{number}"), config)));
            assert_eq!(one, [1, 1], "{order} {number}");
        }
    }
    // These ranges lie in one page, and share a file. None has displaced what another one needs.
    assert_eq!(hints(&node).len(), 1);
    for (order, config) in &configs {
        let again = cost(&etcd, || drop(add(&node, &format!("{order}-again"), config)));
        assert_eq!(again, [1, 1], "{order}");
    }
    // A DEL changes the page, too.
    node.del("lowest-1").config(&range(0)).run().silent();
    assert_eq!(cost(&etcd, || assert_eq!(add(&node, "after-a-del", &range(0)), "10.81.0.2")), [1, 1]);
    // Without hints, or with torn ones, it looks.
    for file in hints(&node) {
        let whole = fs::read(&file).expect("readable");
        fs::write(&file, &whole[..whole.len() / 2]).expect("written");
    }
    assert_eq!(cost(&etcd, || drop(add(&node, "torn", &range(0)))), LOOK_AND_COMMIT);
    assert_eq!(cost(&etcd, || drop(add(&node, "whole", &range(0)))), [1, 1]);
    cluster.assert_clean();
}

#[test]
fn a_del_whose_hints_hold_is_one_request_and_one_proposal() {
    let etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let [node, other] = ["n1", "n2"].map(|name| cluster.node(name));
    let config = range(0);
    let del = |node: &Node, container: &str| node.del(container).config(&config).run().silent();
    for container in ["a", "b", "c", "d", "e", "f"] {
        add(&node, container, &config);
    }
    // The lease of its tombstone is granted beside the free. Where etcd handles the free before the grant, it is sent
    // again. Later DELs share the lease.
    let first = cost(&etcd, || del(&node, "b"));
    assert!([[1, 2], [2, 3]].contains(&first), "{first:?}");
    assert_eq!(cost(&etcd, || del(&node, "a")), [1, 1]);
    cluster.assert_clean();
    assert_eq!(add(&node, "again", &config), "10.81.0.1");
    // The page has changed since, and its bit stays. The next ADD of the node on that page clears it.
    add(&other, "g", &config);
    assert_eq!(cost(&etcd, || del(&node, "c")), [1, 1]);
    assert_eq!(cluster.stray_bits().len(), 1);
    add(&node, "h", &config);
    cluster.assert_clean();
    // A repeated ADD has written the record again.
    add(&node, "d", &config);
    assert_eq!(cost(&etcd, || del(&node, "d")), LOOKS_AND_FREE);
    // Nobody trusts a hint: without it, or with a damaged one, a DEL looks.
    let whole = fs::read(node.owner_hints()).expect("there are hints");
    let damaged: Vec<u8> = whole.iter().map(|byte| byte.wrapping_add(1)).collect();
    fs::write(node.owner_hints(), damaged).expect("written");
    assert_eq!(cost(&etcd, || del(&node, "e")), LOOKS_AND_FREE);
    fs::write(node.owner_hints(), &whole).expect("written");
    // The same owner, freed and added anew behind the back of the hint.
    let before = fs::read(node.owner_hints()).expect("there are hints");
    assert!(node.cli(["release", "10.81.0.6", "--yes"]).succeeded());
    let address = add(&node, "f", &config);
    fs::write(node.owner_hints(), before).expect("written");
    del(&node, "f");
    assert!(node.list().iter().all(|row| row["address"] != json!(address)), "it is freed all the same");
    cluster.assert_clean();
}

/// Stray bits fill the range again and again, and no ADD fails for them.
#[test]
fn a_thousand_pods_pass_through_a_range_of_fourteen_addresses() {
    let etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let nodes = ["n1", "n2", "n3"].map(|name| cluster.node(name));
    let config = network(json!({"range": "10.82.0.0/28"}));
    for pod in 0..1_000 {
        let node = &nodes[pod % nodes.len()];
        add(node, &format!("c{pod}"), &config);
        if let Some(oldest) = pod.checked_sub(12) {
            let node = &nodes[oldest % nodes.len()];
            node.del(&format!("c{oldest}")).config(&config).run().silent();
        }
    }
    cluster.assert_whole();
}

#[test]
fn a_takeover_whose_hints_hold_is_one_request_and_one_proposal() {
    let etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let node = cluster.node("n1");
    let sandbox =
        |container: &str| node.add(container).pod("ns", "p", "uid-p").config(&range(0)).run().address();
    let address = sandbox("first");
    assert_eq!(cost(&etcd, || assert_eq!(sandbox("second"), address)), [1, 1]);
    // Without hints it reads whom the index names, and then what that one holds.
    let hints = fs::read(node.owner_hints()).expect("there are hints");
    node.forget_owners();
    let [requests, proposals] = cost(&etcd, || assert_eq!(sandbox("third"), address));
    assert!(requests > 2 && proposals == 2, "{requests} {proposals}");
    // A hint of an older sandbox than the present one.
    fs::write(node.owner_hints(), hints).expect("written");
    assert_eq!(sandbox("fourth"), address);
    node.del("third").pod("ns", "p", "uid-p").config(&range(0)).run().silent();
    let holders: Vec<Value> = node.list().iter().map(|row| row["container_id"].clone()).collect();
    assert_eq!(holders, ["fourth"]);
    cluster.assert_clean();
}

#[test]
fn each_network_of_a_pod_costs_one_request_and_one_proposal() {
    const NETWORKS: usize = 16;
    let etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let node = cluster.node("n1");
    let networks = (0..NETWORKS).map(|number| {
        let config = network(json!({"range": "10.85.0.0/24", "network_name": format!("network-{number}")}));
        (format!("net{number}"), config)
    });
    let networks: Vec<(String, Value)> = networks.collect();
    let pod = |container: &str, uid: &str| {
        let add = |(ifname, config): &(String, Value)| {
            let add = node.add(container).ifname(ifname).pod("ns", uid, uid).config(config);
            add.run().address()
        };
        networks.iter().map(add).collect::<Vec<String>>()
    };
    let dels = |container: &str, uid: &str| {
        for (ifname, config) in networks.iter().rev() {
            node.del(container).ifname(ifname).pod("ns", uid, uid).config(config).run().silent();
        }
    };
    // The node learns of the networks, and gets leases for ADDs and for tombstones.
    pod("first", "uid-1");
    dels("first", "uid-1");
    let each = [NETWORKS as u64; 2];
    let mut addresses = Vec::new();
    assert_eq!(cost(&etcd, || addresses = pod("second", "uid-2")), each, "ADDs");
    assert_eq!(cost(&etcd, || assert_eq!(pod("third", "uid-2"), addresses)), each, "takeovers");
    assert_eq!(cost(&etcd, || dels("third", "uid-2")), each, "DELs");
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

#[test]
fn an_add_from_a_pool_costs_what_one_from_a_range_does() {
    let etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let node = cluster.node("n1");
    let config = network(json!({"pool": "storage"}));
    let write = |range: &str| {
        let definition = json!({"pool": "storage", "ranges": [{"range": range}]});
        cluster.store().put("v1/pool/storage", json!({"v": 1, "definition": definition}).to_string());
    };
    write("10.90.0.0/24");
    assert_eq!(add(&node, "first", &config), "10.90.0.1");
    for number in 2..5 {
        let one = cost(&etcd, || {
            assert_eq!(add(&node, &format!("c{number}"), &config), format!("10.90.0.{number}"));
        });
        assert_eq!(one, [1, 1], "{number}");
    }
    // The commit by the old text is refused, and its answer has the new one, whose page is read then.
    write("10.91.0.0/24");
    assert_eq!(cost(&etcd, || assert_eq!(add(&node, "changed", &config), "10.91.0.1")), [3, 2]);
    // A repetition is answered from the record.
    assert_eq!(add(&node, "first", &config), "10.90.0.1");
    cluster.assert_clean();
}

#[test]
fn a_pod_that_comes_back_costs_no_more_than_another() {
    let etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let (one, other) = (cluster.node("n1"), cluster.node("n2"));
    let definition = json!({"pool": "storage", "ranges": [{"range": "10.91.0.0/29"}], "keep": "1d"});
    cluster.store().put("v1/pool/storage", json!({"v": 1, "definition": definition}).to_string());
    let plain = network(json!({"range": "10.90.0.0/24"}));
    let by_range = network(json!({"range": "10.90.0.0/24", "sticky": "pod"}));
    let by_pool = network(json!({"pool": "storage", "sticky": "pod"}));
    let join = |node: &Node, container: &str, config: &Value| {
        let pod = container.split('-').next().expect("a name");
        node.add(container).config(config).pod("prod", pod, container).run().address()
    };
    // They take the nodes' leases, and read the pool once.
    for node in [&one, &other] {
        add(node, &format!("first-of-{}", node.name()), &plain);
        add(node, &format!("of-pool-{}", node.name()), &network(json!({"pool": "storage"})));
    }
    let del = |node: &Node, container: &str, config: &Value| {
        cost(&etcd, || node.del(container).config(config).run().silent())
    };
    add(&one, "plain", &plain);
    let plain_del = del(&one, "plain", &plain);
    for (network, config) in [("range", &by_range), ("pool", &by_pool)] {
        let id = |number: u32| format!("{network}-{number}");
        let mut address = String::new();
        assert_eq!(cost(&etcd, || address = join(&one, &id(0), config)), LOOK_AND_COMMIT, "{network}");
        for number in 1..4 {
            let freed = del(&one, &id(number - 1), config);
            assert!(
                freed[0] <= plain_del[0] && freed[1] <= plain_del[1],
                "{network}: {freed:?} {plain_del:?}"
            );
            let again = cost(&etcd, || assert_eq!(join(&one, &id(number), config), address));
            assert_eq!(again, [1, 1], "{network} {number}");
        }
        del(&one, &id(3), config);
        // This node does not know the hold yet.
        let moved = cost(&etcd, || assert_eq!(join(&other, &id(4), config), address));
        assert_eq!(moved, LOOK_AND_COMMIT, "{network}");
        del(&other, &id(4), config);
    }
    cluster.assert_clean();
}

#[test]
fn an_add_whose_pool_is_chosen_costs_what_one_from_a_range_does() {
    let etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let node = cluster.node("n1");
    let config = network(json!({"pool": "auto"}));
    let write = |priority: u8| {
        let pools = ["a", "b"].map(|pool| {
            let priority = if pool == "b" { priority } else { 1 };
            json!({"pool": pool, "for": {"namespaces": ["ns"]}, "priority": priority})
        });
        let mut sorted = pools.to_vec();
        sorted.sort_by_key(|pool| -pool["priority"].as_i64().expect("a number"));
        cluster.store().put("v1/pools", json!({"v": 1, "auto": sorted}).to_string());
        for (pool, range) in pools.iter().zip(["10.92.0.0/24", "10.93.0.0/24"]) {
            let mut definition = pool.clone();
            definition["ranges"] = json!([{"range": range}]);
            let name = pool["pool"].as_str().expect("a name");
            cluster
                .store()
                .put(&format!("v1/pool/{name}"), json!({"v": 1, "definition": definition}).to_string());
        }
    };
    let add = |container: &str| node.add(container).pod("ns", "p", container).config(&config).run().address();
    write(0);
    assert_eq!(add("first"), "10.92.0.1");
    for number in 2..5 {
        let one = cost(&etcd, || assert_eq!(add(&format!("c{number}")), format!("10.92.0.{number}")));
        assert_eq!(one, [1, 1], "{number}");
    }
    // Another pool is for this namespace now: its text and its page are read after the commit that is refused.
    write(2);
    assert_eq!(cost(&etcd, || assert_eq!(add("changed"), "10.93.0.1")), [4, 2]);
    assert_eq!(add("first"), "10.92.0.1");
    cluster.assert_clean();
}

#[test]
fn a_wrong_hint_costs_a_proposal_and_no_request() {
    let etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let [node, other] = ["n1", "n2"].map(|name| cluster.node(name));
    add(&node, "a", &range(0));
    add(&other, "b", &range(0));
    // The page has changed since.
    let mut address = String::new();
    assert_eq!(cost(&etcd, || address = add(&node, "c", &range(0))), [2, 2]);
    assert_eq!(address, "10.81.0.3");
    // An address that this container holds already is its answer, whatever the hints say.
    assert_eq!(add(&node, "c", &range(0)), address);
    cluster.assert_clean();
}

#[test]
fn nodes_that_take_turns_on_a_range_stop_trying() {
    let etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let nodes = ["n1", "n2"].map(|name| cluster.node(name));
    let leases = || etcd.metric("etcd_debugging_lease_granted_total", &[]) as u64;
    let granted = leases();
    const TURNS: u64 = 20;
    let [_, proposals] = cost(&etcd, || {
        for turn in 0..TURNS {
            nodes.iter().for_each(|node| drop(add(node, &format!("c{turn}"), &range(0))));
        }
    });
    // Each of the two may miss once in the first second, once in the next two, in the next four, and so on.
    let wasted = proposals - 2 * TURNS - (leases() - granted);
    assert!(wasted <= 2 * 7, "{wasted} of {proposals} proposals were for nothing");
    cluster.assert_clean();
}

#[test]
fn a_store_that_went_back_and_took_a_first_commit_is_suspect_and_keeps_nothing_of_it() {
    the_next_add_is_refused_after_a_restore(|_| ());
}

/// Its ticket gets the very revision that the node has seen last.
#[test]
fn a_store_that_went_back_by_one_commit_is_suspect_to_an_add_without_hints() {
    the_next_add_is_refused_after_a_restore(|node| {
        hints(node).iter().for_each(|file| fs::remove_file(file).expect("a file can be removed"));
    });
}

fn the_next_add_is_refused_after_a_restore(meanwhile: impl FnOnce(&Node)) {
    let mut etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let node = cluster.node("n1");
    add(&node, "a", &range(0));
    let backup = etcd.copy_data();
    // The hints for the first range stay true in the backup.
    add(&node, "b", &range(1));
    etcd.restore_data(&backup);
    meanwhile(&node);
    node.add("c").config(&range(0)).run().error(102);
    let holders: Vec<Value> = node.list().iter().map(|row| row["container_id"].clone()).collect();
    assert_eq!(holders, ["a"]);
    assert_eq!(node.spooled_dels().len(), 0, "it was freed at once");
    node.add("d").config(&range(1)).run().error(102);
    cluster.node("n2").add("e").config(&range(0)).run().error(102);
    assert!(node.cli(["check", "--accept-store", "--yes"]).succeeded());
    assert_eq!(add(&node, "f", &range(0)), "10.81.0.2");
    cluster.assert_clean();
}
