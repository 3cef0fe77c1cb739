//! The owner of an address: repeated ADDs, retried sandboxes, DELs that come late, and DELs that wait.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{Cluster, Etcd, Node, Outcome, Run, network};

/// A DEL's deadline, with room for a process to start on a busy machine.
const DEL_MAX: Duration = Duration::from_millis(4500);

const UID: &str = "11111111-2222-3333-4444-555555555555";

/// `order: next`, so that an address that was freed and taken anew is another one.
fn config() -> Value {
    network(json!({"range": "10.40.0.0/24", "order": "next"}))
}

fn of_pod(run: Run, uid: &str) -> Run {
    run.args(&format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web-0;K8S_POD_UID={uid}"))
}

/// Every held address with its container.
fn held(node: &Node) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = node.list();
    list.iter().map(|held| (text(&held["address"]), text(&held["container_id"]))).collect()
}

fn pair(address: &str, container: &str) -> (String, String) {
    (address.to_owned(), container.to_owned())
}

#[test]
fn dual_stack_is_all_or_nothing() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    let config = network(json!({"ipRanges": [
        {"range": "10.41.0.0/24"},
        {"range": "fd41::/64", "range_start": "fd41::5", "range_end": "fd41::5"},
    ]}));
    assert_eq!(node.add("a").config(&config).run().addresses(), ["10.41.0.1/24", "fd41::5/64"]);
    let error = node.add("b").config(&config).run().error(100);
    assert!(error["msg"].as_str().is_some_and(|msg| msg.contains("fd41::")), "{error}");
    assert_eq!(held(&node), [pair("10.41.0.1", "a"), pair("fd41::5", "a")]);
    cluster.assert_clean();

    node.del("a").config(&config).run().silent();
    cluster.assert_nothing_held();
    assert_eq!(node.add("b").config(&config).run().addresses(), ["10.41.0.1/24", "fd41::5/64"]);
    node.del("b").config(&config).run().silent();
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

#[test]
fn a_repeated_add_returns_the_same_addresses() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    let address = node.add("a").config(&config()).run().address();
    for _ in 0..3 {
        assert_eq!(node.add("a").config(&config()).run().address(), address);
    }
    // Start, end and excludes may have changed since.
    let narrower = network(json!({"range": "10.40.0.0/24", "range_start": "10.40.0.100", "order": "next"}));
    assert_eq!(node.add("a").config(&narrower).run().address(), address);
    let without = network(json!({"range": "10.40.0.0/24", "exclude": ["10.40.0.0/25"], "order": "next"}));
    assert_eq!(node.add("a").config(&without).run().address(), address);
    assert_eq!(held(&node), [pair(&address, "a")]);

    let error = node.add("a").config(&network(json!({"range": "10.99.0.0/24"}))).run().error(7);
    assert!(error["msg"].as_str().is_some_and(|msg| msg.contains(&address)), "{error}");
    let more = network(json!({"ipRanges": [{"range": "10.40.0.0/24"}, {"range": "fd40::/64"}]}));
    node.add("a").config(&more).run().error(7);
    assert_eq!(held(&node), [pair(&address, "a")]);
    cluster.assert_clean();

    // Another interface of the same container is another owner.
    let other = node.add("a").ifname("net1").config(&config()).run().address();
    assert_ne!(other, address);
    node.del("a").config(&config()).run().silent();
    assert_eq!(held(&node), [pair(&other, "a")]);
    cluster.assert_clean();
}

#[test]
fn a_retried_sandbox_takes_over_the_addresses_of_its_pod() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    let dual = network(json!({
        "ipRanges": [{"range": "10.40.0.0/24"}, {"range": "fd40::/64"}],
        "order": "next",
    }));
    let addresses = of_pod(node.add("old"), UID).config(&dual).run().addresses();
    assert_eq!(of_pod(node.add("new"), UID).config(&dual).run().addresses(), addresses);
    assert!(held(&node).iter().all(|(_, container)| container == "new"), "{:?}", held(&node));
    assert_eq!(cluster.store().keys("v1/owner/"), ["v1/owner/test/n1/new/eth0"]);
    cluster.assert_clean();

    // The late DEL of the sandbox that was given up.
    of_pod(node.del("old"), UID).config(&dual).run().silent();
    assert_eq!(held(&node).len(), 2);
    assert!(held(&node).iter().all(|(_, container)| container == "new"), "{:?}", held(&node));
    cluster.assert_clean();

    assert_eq!(of_pod(node.add("newest"), UID).config(&dual).run().addresses(), addresses);
    of_pod(node.del("new"), UID).config(&dual).run().silent();
    of_pod(node.del("newest"), UID).config(&dual).run().silent();
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

/// A gateway is put at an address that a pod holds: its next sandbox must not answer with that address.
#[test]
fn a_retried_sandbox_gets_no_address_that_is_nobodys_now() {
    let with = |keys: Value| {
        let mut ipam = json!({"range": "10.40.0.0/24", "order": "lowest"});
        keys.as_object().into_iter().flatten().for_each(|(key, value)| ipam[key] = value.clone());
        network(ipam)
    };
    let wide = with(json!({"range": "10.40.0.0/23"}));
    for (row, before, after, asked, expected) in [
        ("a gateway", with(json!({})), with(json!({"gateway": "10.40.0.1"})), None, "10.40.0.2"),
        (
            "a gateway outside of start and end",
            with(json!({})),
            with(json!({"gateway": "10.40.0.1", "range_start": "10.40.0.9"})),
            None,
            "10.40.0.9",
        ),
        ("the broadcast address", wide, with(json!({})), Some("10.40.0.255"), "10.40.0.1"),
    ] {
        let cluster = Cluster::new();
        let node = cluster.node("n1");
        let mut old = of_pod(node.add("old"), UID).config(&before);
        if let Some(ip) = asked {
            old = old.args(&format!("IP={ip};K8S_POD_UID={UID}"));
        }
        let held_before = old.run().address();
        assert_eq!(of_pod(node.add("new"), UID).config(&after).run().address(), expected, "{row}");
        assert_eq!(held(&node), [pair(expected, "new")], "{row}: {held_before} was freed first");
        cluster.assert_clean();
    }
}

#[test]
fn nobody_else_takes_over() {
    let cluster = Cluster::new();
    let (node, elsewhere) = (cluster.node("n1"), cluster.node("n2"));
    let mut addresses = vec![of_pod(node.add("a"), UID).config(&config()).run().address()];
    // A pod of the same name that was made anew, e.g. of a StatefulSet.
    addresses.push(of_pod(node.add("b"), "another-uid").config(&config()).run().address());
    // The same pod's other interface.
    addresses.push(of_pod(node.add("c").ifname("net1"), UID).config(&config()).run().address());
    // Nobody knows the UID.
    let unknown = "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web-0";
    addresses.push(node.add("d").args(unknown).config(&config()).run().address());
    addresses.push(node.add("e").args(unknown).config(&config()).run().address());
    // A static pod may have the same UID on two nodes.
    addresses.push(of_pod(elsewhere.add("f"), UID).config(&config()).run().address());
    let mut distinct = addresses.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), addresses.len(), "{addresses:?}");
    assert_eq!(held(&node).len(), addresses.len());
    cluster.assert_clean();

    for container in ["a", "b", "d", "e"] {
        of_pod(node.del(container), UID).config(&config()).run().silent();
    }
    of_pod(node.del("c").ifname("net1"), UID).config(&config()).run().silent();
    of_pod(elsewhere.del("f"), UID).config(&config()).run().silent();
    cluster.assert_nothing_held();
    cluster.assert_whole();
}

#[test]
fn after_a_del_of_its_own_an_owner_takes_over_nothing() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    let of_a = of_pod(node.add("a"), UID).config(&config()).run().address();
    of_pod(node.del("b"), UID).config(&config()).run().silent();
    let of_b = of_pod(node.add("b"), UID).config(&config()).run().address();
    assert_ne!(of_a, of_b);
    assert_eq!(held(&node), [pair(&of_a, "a"), pair(&of_b, "b")]);
    cluster.assert_clean();

    // Freed by its owner alone: the index names b by now.
    of_pod(node.del("a"), UID).config(&config()).run().silent();
    assert_eq!(held(&node), [pair(&of_b, "b")]);
    cluster.assert_clean();
    of_pod(node.del("b"), UID).config(&config()).run().silent();
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

#[test]
fn addresses_that_do_not_fit_any_more_are_freed_and_fresh_ones_chosen() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    of_pod(node.add("old"), UID).config(&config()).run().address();
    let moved = network(json!({"range": "10.140.0.0/24"}));
    assert_eq!(of_pod(node.add("new"), UID).config(&moved).run().address(), "10.140.0.1");
    assert_eq!(held(&node), [pair("10.140.0.1", "new")]);
    cluster.assert_clean();

    // From one address to two.
    let dual = network(json!({"ipRanges": [{"range": "10.140.0.0/24"}, {"range": "fd40::/64"}]}));
    let addresses = of_pod(node.add("newest"), UID).config(&dual).run().addresses();
    assert_eq!(addresses, ["10.140.0.1/24", "fd40::1/64"]);
    assert_eq!(held(&node), [pair("10.140.0.1", "newest"), pair("fd40::1", "newest")]);
    cluster.assert_clean();
    of_pod(node.del("newest"), UID).config(&dual).run().silent();
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

/// A DEL that etcd does not answer is spooled; returns the file.
#[track_caller]
fn spool_del(node: &Node, container: &str) -> PathBuf {
    let del = node.del(container).config(&config()).run();
    del.silent();
    assert!(del.elapsed < DEL_MAX, "{del}");
    let files = node.spooled_dels();
    assert_eq!(files.len(), 1, "{files:?}");
    let mode = fs::metadata(&files[0]).expect("a spooled DEL is a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    files[0].clone()
}

#[test]
fn a_spooled_del_is_carried_out_before_a_later_add_and_frees_nothing_younger() {
    let etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let node = cluster.node("n1");
    let before = node.add("c").config(&config()).run().address();
    etcd.stop();
    let file = spool_del(&node, "c");
    etcd.resume();
    let aside = node.spool().with_extension("aside");
    fs::copy(&file, &aside).expect("a spooled DEL can be copied");

    // In the order `next` the same address would say that nothing was freed in between.
    let address = node.add("c").config(&config()).run().address();
    assert_ne!(address, before);
    assert_eq!(held(&node), [pair(&address, "c")]);
    assert!(node.spooled_dels().is_empty(), "{:?}", node.spooled_dels());
    cluster.assert_clean();

    // As if the file had not been removed: the owner's own next run, and another's.
    fs::copy(&aside, &file).expect("it can be put back");
    assert_eq!(node.add("c").config(&config()).run().address(), address);
    assert!(node.spooled_dels().is_empty(), "{:?}", node.spooled_dels());
    fs::copy(&aside, &file).expect("it can be put back");
    node.add("other").config(&config()).run().address();
    assert!(node.spooled_dels().is_empty(), "{:?}", node.spooled_dels());
    fs::copy(&aside, &file).expect("it can be put back");
    node.del("other").config(&config()).run().silent();
    assert!(node.spooled_dels().is_empty(), "{:?}", node.spooled_dels());
    assert_eq!(held(&node), [pair(&address, "c")]);
    cluster.assert_clean();
    node.del("c").config(&config()).run().silent();
    cluster.assert_nothing_held();
}

#[test]
fn a_spooled_del_is_carried_out_by_another_run_of_its_node() {
    let mut etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let (node, elsewhere) = (cluster.node("n1"), cluster.node("n2"));
    let address = node.add("c").config(&config()).run().address();
    etcd.kill();
    spool_del(&node, "c");
    etcd.restart();

    elsewhere.add("d").config(&config()).run().address();
    assert_eq!(node.spooled_dels().len(), 1);
    assert!(held(&node).contains(&pair(&address, "c")), "{:?}", held(&node));
    let other = node.add("e").config(&config()).run().address();
    assert!(node.spooled_dels().is_empty(), "{:?}", node.spooled_dels());
    assert!(held(&node).contains(&pair(&other, "e")), "{:?}", held(&node));
    assert!(!held(&node).iter().any(|(_, container)| container == "c"), "{:?}", held(&node));
    cluster.assert_clean();
}

#[test]
fn a_repeated_del_replaces_the_spooled_one() {
    let mut etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let node = cluster.node("n1");
    node.add("c").config(&config()).run().address();
    etcd.kill();
    spool_del(&node, "c");
    etcd.restart();
    node.del("c").config(&config()).run().silent();
    assert!(node.spooled_dels().is_empty(), "{:?}", node.spooled_dels());
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

#[test]
fn a_del_that_can_neither_be_done_nor_spooled_fails() {
    let mut etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    // A file where the folder should be.
    let taken = cluster.folder().join("taken");
    fs::write(&taken, "").expect("a file can be written");
    let node = cluster.node_with("n1", json!({"spool_dir": taken}));
    node.add("c").config(&config()).run().address();
    etcd.kill();
    let error = node.del("c").config(&config()).run().error(11);
    let text = error.to_string().to_lowercase();
    assert!(!text.contains("not found") && !text.contains("no such file or directory"), "{text}");
    etcd.restart();
    assert_eq!(held(&node).len(), 1);
    node.del("c").config(&config()).run().silent();
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

/// The scope of the queue that the runs of `container` stand in, as its owner record names it.
fn queue_of(cluster: &Cluster, node: &str, container: &str) -> String {
    cluster.store().queue_of(&format!("v1/owner/test/{node}/{container}/eth0"))
}

/// The number of stray bits that `metes check` reports; it reports nothing else.
#[track_caller]
fn stray_bits(node: &Node) -> usize {
    let report = node.cli(["check", "-o", "json"]).ok();
    assert_eq!(report["violations"], json!([]));
    report["stray_bits"].as_array().map_or(0, Vec::len)
}

#[test]
fn a_del_that_is_short_of_time_frees_and_an_add_in_need_repairs_the_bit() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    let small = network(json!({"range": "10.42.0.0/30"}));
    let first = node.add("a").config(&small).run().address();
    node.add("b").config(&small).run().address();
    node.add("c").config(&small).run().error(100);
    // By its hints, a DEL waits for no turn.
    node.forget_owners();

    // Somebody stands at the head of the queue, and the queue moves, but the DEL's turn does not come.
    let scope = queue_of(&cluster, "n1", "a");
    let (ticket, tail) = (format!("v1/ticket/{scope}/0000000000000001"), format!("v1/tail/{scope}"));
    cluster.store().put_leased(&ticket, "{}", 60);
    cluster.store().put_leased(&tail, "0000000000000001", 60);
    let is_over = AtomicBool::new(false);
    let del = thread::scope(|threads| {
        threads.spawn(|| {
            let until = Instant::now() + DEL_MAX;
            while !is_over.load(Ordering::Relaxed) && Instant::now() < until {
                cluster.store().put_leased(&format!("v1/moved/{scope}"), "", 60);
            }
        });
        let del = node.del("a").config(&small).run();
        is_over.store(true, Ordering::Relaxed);
        del
    });
    del.silent();
    assert!(del.elapsed < DEL_MAX, "{del}");
    cluster.store().delete(&ticket);
    cluster.store().delete(&tail);
    assert_eq!(held(&node).len(), 1);
    assert_eq!(stray_bits(&node), 1);

    assert_eq!(node.add("c").config(&small).run().address(), first);
    assert_eq!(stray_bits(&node), 0);
    node.add("d").config(&small).run().error(100);
    for container in ["b", "c"] {
        node.del(container).config(&small).run().silent();
    }
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

/// A run reads only the first of many pages by itself, and a repair of another one must be seen all the same.
#[test]
fn a_stray_bit_on_the_last_of_many_pages_is_found() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    let ranges: Vec<Value> = (0..7)
        .map(|page| {
            let address = format!("10.44.{}.1", 16 * page);
            json!({"subnet": "10.44.0.0/16", "rangeStart": address, "rangeEnd": address, "gateway": "10.44.255.1"})
        })
        .collect();
    let wide = network(json!({"ranges": [ranges]}));
    let names: Vec<String> = (0..7).map(|index| format!("c{index}")).collect();
    let mut held = names.iter().map(|name| node.add(name).config(&wide).run().address());
    let last = held.by_ref().last().expect("seven are held");
    let pages = cluster.store().entries("v1/net/default/page/");
    node.del("c6").config(&wide).run().silent();
    pages.into_iter().for_each(|(key, page)| cluster.store().put(&key, page));
    assert_eq!(stray_bits(&node), 1);
    assert_eq!(node.add("c7").config(&wide).run().address(), last);
    node.add("more").config(&wide).run().error(100);
    for name in names.iter().map(String::as_str).take(6).chain(["c7"]) {
        node.del(name).config(&wide).run().silent();
    }
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

#[test]
fn a_range_full_of_stray_bits_is_not_full() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    // Six usable addresses.
    let small = network(json!({"range": "10.43.0.0/29"}));
    let names: Vec<String> = (0..6).map(|index| format!("c{index}")).collect();
    names.iter().for_each(|name| _ = node.add(name).config(&small).run().address());
    let pages = cluster.store().entries("v1/net/default/page/");
    names.iter().for_each(|name| node.del(name).config(&small).run().silent());
    // The page as it was when all six were held.
    pages.into_iter().for_each(|(key, page)| cluster.store().put(&key, page));
    assert_eq!(stray_bits(&node), 6);
    assert!(node.list().is_empty());

    let outcomes: Vec<Outcome> = names.iter().map(|name| node.add(name).config(&small).run()).collect();
    let mut addresses: Vec<String> = outcomes.iter().map(Outcome::address).collect();
    addresses.sort();
    addresses.dedup();
    assert_eq!(addresses.len(), 6);
    node.add("more").config(&small).run().error(100);
    names.iter().for_each(|name| node.del(name).config(&small).run().silent());
    assert_eq!(stray_bits(&node), 0);
    cluster.assert_nothing_held();
    cluster.assert_clean();
}
