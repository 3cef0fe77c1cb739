//! Ranges of any size and the three orders: the right addresses, however large the range is and however much
//! of it is excluded or full.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use etcd_client::TxnOp;
use serde_json::{Value, json};

use support::{Cluster, Node, Outcome, Store, network, report};

const PAGE_ADDRESSES: u32 = 4096;

/// One row: a configuration, and the answers of its runs, in order.
struct Case {
    row: &'static str,
    ipam: Value,
    runs: Vec<(Run, String)>,
}

/// One run of the plugin.
enum Run {
    /// An ADD of the container of this name; a second one with an address that it asks for.
    Add(&'static str),
    Ask(&'static str),
    Del(&'static str),
}

use Run::{Add, Ask, Del};

/// Each run answers with addresses and their prefix lengths, `error CODE`, or nothing (DEL).
fn case<const N: usize>(row: &'static str, ipam: Value, runs: [(Run, &str); N]) -> Case {
    Case { row, ipam, runs: runs.into_iter().map(|(run, expected)| (run, expected.to_owned())).collect() }
}

/// Plays every row in a cluster of its own, and names all that fail.
#[track_caller]
fn play(cases: impl IntoIterator<Item = Case>) {
    report(cases.into_iter().flat_map(|case| play_one(&case)).map(Some));
}

fn play_one(case: &Case) -> Vec<String> {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    let config = network(case.ipam.clone());
    let mut failures = Vec::new();
    for (run, expected) in &case.runs {
        let outcome = match run {
            Add(container) => node.add(container).config(&config),
            Ask(address) => {
                let container = format!("asks-{}", address.replace([':', '.'], "-"));
                node.add(&container).args(&format!("IP={address}")).config(&config)
            }
            Del(container) => node.del(container).config(&config),
        }
        .run();
        if said(&outcome) != *expected {
            failures.push(format!("expected {expected}, got {outcome}"));
        }
    }
    let check = cluster.check();
    if !check.succeeded() {
        failures.push(format!("metes check: {check}"));
    }
    failures.into_iter().map(|why| format!("{}: {why}", case.row)).collect()
}

fn said(outcome: &Outcome) -> String {
    match outcome.error_code() {
        Some(code) => format!("error {code}"),
        None if outcome.stdout.is_empty() => String::new(),
        None => outcome.addresses().join(" "),
    }
}

fn excluding(range: &str, exclude: &[&str]) -> Value {
    json!({"range": range, "exclude": exclude})
}

#[test]
fn giant_ranges() {
    let ends =
        |range: &str, start: &str, end: &str| json!({"range": range, "range_start": start, "range_end": end});
    play([
        case(
            "/8",
            json!({"range": "10.0.0.0/8"}),
            [
                (Add("a"), "10.0.0.1/8"),
                (Add("b"), "10.0.0.2/8"),
                (Ask("10.255.255.254"), "10.255.255.254/8"),
                (Ask("10.255.255.255"), "error 101"),
                (Ask("10.128.0.0"), "10.128.0.0/8"),
                (Del("a"), ""),
                (Add("c"), "10.0.0.1/8"),
            ],
        ),
        case(
            "0.0.0.0/0",
            json!({"range": "0.0.0.0/0"}),
            [
                (Add("a"), "0.0.0.1/0"),
                (Ask("255.255.255.254"), "255.255.255.254/0"),
                (Ask("255.255.255.255"), "error 101"),
            ],
        ),
        case(
            "fd00::/64",
            json!({"range": "fd00::/64"}),
            [
                (Add("a"), "fd00::1/64"),
                (Ask("fd00::ffff:ffff:ffff:fffe"), "fd00::ffff:ffff:ffff:fffe/64"),
                (Ask("fd00::ffff:ffff:ffff:ffff"), "error 101"),
                (Ask("fd00::8000:0:0:0"), "fd00::8000:0:0:0/64"),
            ],
        ),
        case("2000::/3", json!({"range": "2000::/3"}), [(Add("a"), "2000::1/3"), (Add("b"), "2000::2/3")]),
        case(
            "::/0",
            json!({"range": "::/0"}),
            [
                (Add("a"), "::1/0"),
                (Add("b"), "::2/0"),
                (Ask("ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe"), "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe/0"),
                (Ask("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), "error 101"),
            ],
        ),
        case(
            "the upper end of a /64",
            ends("fd00::/64", "fd00::ffff:ffff:ffff:fffd", "fd00::ffff:ffff:ffff:fffe"),
            [
                (Add("a"), "fd00::ffff:ffff:ffff:fffd/64"),
                (Add("b"), "fd00::ffff:ffff:ffff:fffe/64"),
                (Add("c"), "error 100"),
            ],
        ),
    ]);
}

/// Everything of a range but its last usable address.
fn all_but_the_last(base: Ipv4Addr, bits: u32) -> Vec<String> {
    let base = u32::from(base);
    let half = |n: u32| format!("{}/{n}", Ipv4Addr::from(base | !(u32::MAX >> (n - 1)) & (u32::MAX >> bits)));
    (bits + 1..=31).map(half).collect()
}

#[test]
fn excludes_cost_nothing() {
    let last = all_but_the_last(Ipv4Addr::new(10, 0, 0, 0), 8);
    let last: Vec<&str> = last.iter().map(String::as_str).collect();
    play([
        case(
            "half of a /8",
            excluding("10.0.0.0/8", &["10.0.0.0/9"]),
            [(Add("a"), "10.128.0.0/8"), (Add("b"), "10.128.0.1/8"), (Ask("10.127.255.255"), "error 101")],
        ),
        case("half of a /0", excluding("0.0.0.0/0", &["0.0.0.0/1"]), [(Add("a"), "128.0.0.0/0")]),
        case(
            "half of a /64",
            excluding("fd00::/64", &["fd00::/65"]),
            [(Add("a"), "fd00::8000:0:0:0/64"), (Add("b"), "fd00::8000:0:0:1/64")],
        ),
        case("half of ::/0", excluding("::/0", &["::/1"]), [(Add("a"), "8000::/0"), (Add("b"), "8000::1/0")]),
        case(
            "the upper half",
            excluding("fd00::/64", &["fd00::8000:0:0:0/65"]),
            [
                (Add("a"), "fd00::1/64"),
                (Ask("fd00::8000:0:0:0"), "error 101"),
                (Ask("fd00::7fff:ffff:ffff:ffff"), "fd00::7fff:ffff:ffff:ffff/64"),
            ],
        ),
        case(
            "all but the last of a /8",
            excluding("10.0.0.0/8", &last),
            [
                (Add("a"), "10.255.255.254/8"),
                (Add("b"), "error 100"),
                (Del("a"), ""),
                (Add("b"), "10.255.255.254/8"),
            ],
        ),
        case(
            "all of a /8",
            excluding("10.0.0.0/8", &["10.0.0.0/9", "10.128.0.0/9"]),
            [(Add("a"), "error 7")],
        ),
        case("all of ::/0", excluding("::/0", &["::/1", "8000::/1"]), [(Add("a"), "error 7")]),
        case(
            "excludes that overlap",
            excluding("fd00::/64", &["fd00::/66", "fd00::/65", "fd00::/72"]),
            [(Add("a"), "fd00::8000:0:0:0/64")],
        ),
        case(
            "an exclude across pages",
            json!({"range": "10.0.0.0/8", "range_start": "10.0.15.250", "exclude": ["10.0.15.252/30", "10.0.16.0/20"]}),
            [
                (Add("a"), "10.0.15.250/8"),
                (Add("b"), "10.0.15.251/8"),
                (Add("c"), "10.0.32.0/8"),
                (Add("d"), "10.0.32.1/8"),
            ],
        ),
    ]);
}

#[test]
fn across_a_page_boundary() {
    let four = |order: &str| json!({"range": "10.0.15.254-10.0.16.1/8", "order": order});
    let six = |order: &str| json!({"range": "fd00::ffe-fd00::1001/64", "order": order});
    play([
        case(
            "lowest",
            four("lowest"),
            [
                (Add("a"), "10.0.15.254/8"),
                (Add("b"), "10.0.15.255/8"),
                (Add("c"), "10.0.16.0/8"),
                (Add("d"), "10.0.16.1/8"),
                (Add("e"), "error 100"),
                (Del("b"), ""),
                (Del("c"), ""),
                (Add("e"), "10.0.15.255/8"),
                (Add("f"), "10.0.16.0/8"),
                (Add("g"), "error 100"),
            ],
        ),
        case(
            "next",
            four("next"),
            [
                (Add("a"), "10.0.15.254/8"),
                (Add("b"), "10.0.15.255/8"),
                (Del("a"), ""),
                (Add("c"), "10.0.16.0/8"),
                (Add("d"), "10.0.16.1/8"),
                (Add("e"), "10.0.15.254/8"),
                (Add("f"), "error 100"),
                (Del("c"), ""),
                (Add("f"), "10.0.16.0/8"),
            ],
        ),
        case(
            "lowest, IPv6",
            six("lowest"),
            [
                (Add("a"), "fd00::ffe/64"),
                (Add("b"), "fd00::fff/64"),
                (Add("c"), "fd00::1000/64"),
                (Add("d"), "fd00::1001/64"),
                (Add("e"), "error 100"),
            ],
        ),
        case(
            "next, IPv6",
            six("next"),
            [
                (Add("a"), "fd00::ffe/64"),
                (Add("b"), "fd00::fff/64"),
                (Del("b"), ""),
                (Add("c"), "fd00::1000/64"),
                (Add("d"), "fd00::1001/64"),
                (Add("e"), "fd00::fff/64"),
                (Add("f"), "error 100"),
            ],
        ),
    ]);
}

#[test]
fn order_next() {
    let next = |range: &str| json!({"range": range, "order": "next"});
    let dual = json!({"ipRanges": [{"range": "10.0.0.0/24"}, {"range": "fd00::/64"}], "order": "next"});
    play([
        case(
            "reuse is as late as possible",
            next("10.0.0.0/29"),
            [
                (Add("a"), "10.0.0.1/29"),
                (Del("a"), ""),
                (Add("a"), "10.0.0.2/29"),
                (Del("a"), ""),
                (Add("b"), "10.0.0.3/29"),
                (Add("c"), "10.0.0.4/29"),
                (Add("d"), "10.0.0.5/29"),
                (Add("e"), "10.0.0.6/29"),
                (Add("f"), "10.0.0.1/29"),
                (Add("g"), "10.0.0.2/29"),
                (Add("h"), "error 100"),
            ],
        ),
        case(
            "a failed ADD and an ADD again leave the place",
            next("10.0.0.0/8"),
            [
                (Add("a"), "10.0.0.1/8"),
                (Add("a"), "10.0.0.1/8"),
                (Ask("10.0.0.1"), "error 101"),
                (Add("b"), "10.0.0.2/8"),
            ],
        ),
        case(
            "an exclude is stepped over",
            json!({"range": "10.0.0.0/8", "order": "next", "exclude": ["10.0.0.2", "10.0.0.4/30", "10.0.0.8/30"]}),
            [(Add("a"), "10.0.0.1/8"), (Add("b"), "10.0.0.3/8"), (Del("a"), ""), (Add("c"), "10.0.0.12/8")],
        ),
        case(
            "wrapping over an exclude",
            json!({
                "range": "fd00::/64", "range_start": "fd00::ffff:ffff:ffff:fffd", "order": "next",
                "exclude": ["fd00::ffff:ffff:ffff:fffd"],
            }),
            [
                (Add("a"), "fd00::ffff:ffff:ffff:fffe/64"),
                (Add("b"), "error 100"),
                (Del("a"), ""),
                (Add("b"), "fd00::ffff:ffff:ffff:fffe/64"),
            ],
        ),
        case(
            "each set has a cursor of its own",
            dual,
            [
                (Add("a"), "10.0.0.1/24 fd00::1/64"),
                (Del("a"), ""),
                (Add("b"), "10.0.0.2/24 fd00::2/64"),
                (Add("c"), "10.0.0.3/24 fd00::3/64"),
                (Del("b"), ""),
                (Add("d"), "10.0.0.4/24 fd00::4/64"),
            ],
        ),
        case(
            "two sets of one range",
            json!({"ipRanges": [{"range": "10.0.0.0/29"}, {"range": "10.0.0.0/29"}], "order": "next"}),
            [
                (Add("a"), "10.0.0.1/29 10.0.0.2/29"),
                (Add("b"), "10.0.0.3/29 10.0.0.4/29"),
                (Add("c"), "10.0.0.5/29 10.0.0.6/29"),
                (Add("d"), "error 100"),
                (Del("b"), ""),
                (Add("d"), "10.0.0.3/29 10.0.0.4/29"),
            ],
        ),
        case(
            "host-local's form begins with it",
            json!({"subnet": "10.0.0.0/24"}),
            [(Add("a"), "10.0.0.2/24"), (Del("a"), ""), (Add("b"), "10.0.0.3/24")],
        ),
    ]);
}

/// A cursor belongs to its ranges, not to their place in a configuration, and all nodes share it.
#[test]
fn cursors_are_shared() {
    let cluster = Cluster::new();
    let (a, b) = (cluster.node("a"), cluster.node("b"));
    let sets = |sets: [&str; 2]| {
        network(json!({"ipRanges": sets.map(|range| json!({"range": range})), "order": "next"}))
    };
    let (forth, back) = (sets(["10.0.0.0/24", "fd00::/64"]), sets(["fd00::/64", "10.0.0.0/24"]));
    let rows = [
        (&a, &forth, "10.0.0.1/24 fd00::1/64"),
        (&b, &back, "fd00::2/64 10.0.0.2/24"),
        (&a, &back, "fd00::3/64 10.0.0.3/24"),
    ];
    for (i, (node, config, expected)) in rows.into_iter().enumerate() {
        let container = format!("c{i}");
        assert_eq!(said(&node.add(&container).config(config).run()), expected);
        node.del(&container).config(config).run().silent();
    }
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

fn spread(range: &str) -> Value {
    network(json!({"range": range, "order": "spread"}))
}

fn page_of(address: &str) -> u128 {
    number(address) / u128::from(PAGE_ADDRESSES)
}

fn number(address: &str) -> u128 {
    match address.parse().expect("an address") {
        IpAddr::V4(ip) => u128::from(u32::from(ip)),
        IpAddr::V6(ip) => u128::from(ip),
    }
}

#[test]
fn spread_starts_each_node_on_a_page_of_its_own() {
    for range in ["10.0.0.0/8", "fd00::/64", "::/0"] {
        let cluster = Cluster::new();
        let config = spread(range);
        let mut pages = BTreeSet::new();
        for name in ["node-1", "node-2", "node-3", "node-4"] {
            let node = cluster.node(name);
            let first = node.add("a").config(&config).run().address();
            pages.insert(page_of(&first));
            node.del("a").config(&config).run().silent();
            let second = node.add("b").config(&config).run().address();
            let third = node.add("c").config(&config).run().address();
            assert_eq!(number(&second), number(&first) + 1, "{range} on {name}: then it goes on as next");
            assert_eq!(number(&third), number(&first) + 2, "{range} on {name}");
            let again = node.add("c").config(&config).run().address();
            assert_eq!(again, third, "{range} on {name}");
        }
        assert_eq!(pages.len(), 4, "{range}: four nodes start on four pages");
        cluster.assert_clean();
    }
}

/// All that a range has, whichever page a node starts on.
#[test]
fn spread_wraps() {
    let ranges = [
        ("10.0.15.254-10.0.16.1/8", 4),
        ("fd00::ffe-fd00::1001/64", 4),
        ("10.0.0.0/29", 6),
        ("10.255.255.252-10.255.255.254/8", 3),
    ];
    for (range, size) in ranges {
        let cluster = Cluster::new();
        let nodes = ["node-1", "node-2", "node-3"].map(|name| cluster.node(name));
        let config = spread(range);
        let taken: BTreeSet<String> =
            (0..size).map(|i| nodes[i % 3].add(&format!("c{i}")).config(&config).run().address()).collect();
        assert_eq!(taken.len(), size, "{range}: {taken:?}");
        for node in &nodes {
            node.add("late").config(&config).run().error(100);
        }
        nodes[0].del("c0").config(&config).run().silent();
        let last = nodes[2].add("late").config(&config).run().address();
        assert!(taken.contains(&last), "{range}: {last}");
        cluster.assert_clean();
    }
}

#[test]
fn spread_keeps_to_limits() {
    let half = json!({"range": "fd00::/64", "exclude": ["fd00::/65"], "order": "spread"});
    let bounds = json!({
        "range": "10.0.0.0/8", "range_start": "10.9.0.0", "range_end": "10.9.255.255", "order": "spread",
    });
    let cluster = Cluster::new();
    for name in ["node-1", "node-2", "node-3"] {
        let node = cluster.node(name);
        let address = node.add("a").config(&network(half.clone())).run().address();
        assert!(number(&address) >= number("fd00::8000:0:0:0"), "{name}: {address} is excluded");
        let address = node.add("b").config(&network(bounds.clone())).run().address();
        assert!(address.starts_with("10.9."), "{name}: {address} is out of bounds");
    }
    cluster.assert_clean();
}

/// Fills the page at 10.0.0.0 as 137 containers of node `a` would, each with up to 30 addresses.
fn fill_first_page(store: &Store) {
    const EACH: u32 = 30;
    let scope = "default,00000000000000000000ffff0a000000-8";
    let first = u32::from(Ipv4Addr::new(10, 0, 0, 0));
    let mut entries = Vec::new();
    for (i, start) in (0..PAGE_ADDRESSES).step_by(EACH as usize).enumerate() {
        let container = format!("full-{i}");
        let addresses = (start..(start + EACH).min(PAGE_ADDRESSES)).map(|i| Ipv4Addr::from(first + i));
        let held: Vec<Value> = addresses.clone().map(|ip| json!({"ip": ip, "net": "default"})).collect();
        let record = json!({"v": 1, "addresses": held, "scope": scope, "cluster": "test", "cni": "net"});
        entries.push((format!("v1/owner/test/a/{container}/eth0"), record.to_string().into_bytes()));
        let owner = format!("test/a/{container}/eth0");
        let reservation = json!({"v": 1, "owner": owner, "at": "2026-01-02T03:04:05Z"});
        entries.extend(addresses.map(|ip| {
            let hex = format!("{:032x}", u128::from(ip.to_ipv6_mapped()));
            (format!("v1/net/default/ip/{hex}"), reservation.to_string().into_bytes())
        }));
    }
    let mut summary = vec![0; 512];
    summary[0] = 1;
    let page = "00000000000000000000ffff0a000000";
    entries.push((format!("v1/net/default/page/{page}"), vec![0xff; 512]));
    entries.push((format!("v1/net/default/summary/{page}"), summary));
    store.run(async |client| {
        for some in entries.chunks(128) {
            let puts = some.iter().map(|(key, value)| TxnOp::put(store.key(key), value.clone(), None));
            client.txn(etcd_client::Txn::new().and_then(puts.collect::<Vec<_>>())).await?;
        }
        Ok(())
    });
}

/// The first page of a /8 is full, down to its summary.
fn with_a_full_page() -> (Cluster, Node, Value) {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    let config = network(json!({"range": "10.0.0.0/8"}));
    // The first ADD of a prefix writes the meta, on which all writers agree.
    node.add("x").config(&config).run().ok();
    node.del("x").config(&config).run().silent();
    fill_first_page(cluster.store());
    let outcome = node.cli(["check", "-o", "json"]);
    assert_eq!(outcome.ok()["violations"], json!([]), "the page is filled as metes fills it: {outcome}");
    (cluster, node, config)
}

#[test]
fn a_full_page_is_stepped_over() {
    let (cluster, node, config) = with_a_full_page();
    for (container, expected) in [("a", "10.0.16.0"), ("b", "10.0.16.1")] {
        assert_eq!(node.add(container).config(&config).run().address(), expected);
    }
    node.add("c").args("IP=10.0.9.9").config(&config).run().error(101);
    let inside = network(json!({"range": "10.0.0.0/20"}));
    let error = node.add("c").config(&inside).run().error(100);
    assert!(
        error["msg"].as_str().is_some_and(|msg| msg.contains("10.0.0.0/20") && msg.contains("4094")),
        "{error}"
    );
    // One owner goes: the page is full no more, and the summary says so.
    node.del("full-50").config(&config).run().silent();
    let freed = Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 0, 0, 0)) + 50 * 30);
    let check = node.cli(["check", "-o", "json"]).ok();
    assert_eq!((&check["violations"], &check["harmless"]), (&json!([]), &json!([])));
    for i in 0..30_u32 {
        let address = node.add(&format!("d{i}")).config(&config).run().address();
        assert_eq!(address, Ipv4Addr::from(u32::from(freed) + i).to_string());
    }
    // The last of them has filled it again.
    let check = node.cli(["check", "-o", "json"]).ok();
    assert_eq!((&check["violations"], &check["harmless"]), (&json!([]), &json!([])));
    assert_eq!(node.add("e").config(&config).run().address(), "10.0.16.2");
    cluster.assert_clean();
}

/// Without its summary a full page costs a read, and `--repair` says again that it is full.
#[test]
fn a_full_page_without_its_summary() {
    let (cluster, node, config) = with_a_full_page();
    let summary = "v1/net/default/summary/00000000000000000000ffff0a000000";
    let as_it_was = cluster.store().get(summary);
    cluster.store().delete(summary);
    let check = node.cli(["check", "-o", "json"]).ok();
    assert_eq!(check["harmless"][0]["name"], "summary-misses-full");
    assert_eq!(node.add("a").config(&config).run().address(), "10.0.16.0");
    let repair = node.cli(["check", "--repair"]);
    assert!(repair.succeeded(), "{repair}");
    assert_eq!(cluster.store().get(summary), as_it_was);
    assert_eq!(node.add("b").config(&config).run().address(), "10.0.16.1");
    cluster.assert_clean();
}
