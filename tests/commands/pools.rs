//! Named pools: the operator's commands, and the addresses that pods get from them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use support::{Cluster, Node, Outcome, Run, failing_metes, metes, network, report, wait_for};

const LONG: Duration = Duration::from_secs(30);

const STORAGE: &str = "\
pool: storage
network: blue
ranges:
- {range: 10.56.0.0/29, gateway: 10.56.0.6, exclude: [10.56.0.5]}
- {range: 10.57.0.5-10.57.0.9/24, state: closed}
order: lowest
routes: [{dst: 10.0.0.0/8, gw: 10.56.0.6}]
dns: {nameservers: [10.56.0.53], domain: a.test, search: [a.test]}
allow: {namespaces: [\"team-*\", ns]}
note: 'owner: netops'
";
const SIX: &str = "pool: six\nnetwork: blue\nranges:\n- {range: 'fd00:56::/64'}\norder: lowest\n";
const SPILL: &str = "pool: spill\nnetwork: blue\nranges:\n- {range: 10.58.0.0/29}\norder: lowest\n";

fn apply(node: &Node, text: &str) -> Outcome {
    node.pool(&["apply", "--yes", "-f", "-"], text)
}

fn applied(node: &Node, texts: &[&str]) {
    let outcome = apply(node, &texts.join("---\n"));
    assert!(outcome.succeeded(), "{outcome}");
}

/// A test's cluster with a node and these pools.
fn cluster_with(texts: &[&str]) -> (Cluster, Node) {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    applied(&node, texts);
    (cluster, node)
}

fn from(pool: &str) -> Value {
    network(json!({"pool": pool}))
}

fn add(node: &Node, container: &str, config: &Value) -> Outcome {
    node.add(container).pod("ns", &format!("pod-{container}"), &format!("u-{container}")).config(config).run()
}

fn exits(outcome: &Outcome, code: i32, words: &[&str]) -> Option<String> {
    let said = format!("{}{}", outcome.stdout, outcome.stderr);
    let is_right = outcome.status.code() == Some(code) && words.iter().all(|word| said.contains(word));
    (!is_right).then(|| format!("expected exit {code} and {words:?}: {outcome}"))
}

fn status(node: &Node, pool_name: &str) -> Value {
    node.pool(&["status", pool_name, "-o", "json"], "").ok()[0].clone()
}

#[test]
fn what_is_applied_is_listed_shown_and_exported() {
    let (cluster, node) = cluster_with(&[STORAGE, SIX]);
    let list = node.pool(&["list", "-o", "json"], "").ok();
    let storage = json!({
        "pool": "storage", "network": "blue", "ranges": 2, "size": 4, "order": "lowest", "note": "owner: netops",
        "revision": list[1]["revision"],
    });
    assert_eq!((&list[0]["pool"], &list[1]), (&json!("six"), &storage));
    assert_eq!(node.pool(&["list"], "").stdout.lines().count(), 3);
    assert_eq!(add(&node, "c1", &from("storage")).address(), "10.56.0.1");
    let shown = node.pool(&["show", "storage", "-o", "json"], "").ok();
    let expected = json!({
        "pool": "storage", "network": "blue",
        "ranges": [
            {"range": "10.56.0.0/29", "gateway": "10.56.0.6", "exclude": ["10.56.0.5/32"]},
            {"range": "10.57.0.5-10.57.0.9/24", "state": "closed"},
        ],
        "order": "lowest", "routes": [{"dst": "10.0.0.0/8", "gw": "10.56.0.6"}],
        "dns": {"nameservers": ["10.56.0.53"], "domain": "a.test", "search": ["a.test"]},
        "allow": {"namespaces": ["team-*", "ns"]}, "note": "owner: netops",
        "status": {
            "revision": storage["revision"], "outside": 0,
            "ranges": [
                {"range": "10.56.0.0/29", "size": 4, "held": 1, "free": 3, "set_aside": 0, "cooling": 0},
                {"range": "10.57.0.5-10.57.0.9/24", "size": 5, "held": 0, "free": 5, "set_aside": 0, "cooling": 0},
            ],
        },
    });
    assert_eq!(shown, expected);
    let text = node.pool(&["show", "storage"], "");
    for line in [
        "allow:    namespaces team-* ns\n",
        "routes:   10.0.0.0/8 via 10.56.0.6\n",
        "dns:      10.56.0.53; domain a.test; search a.test\n",
        "10.57.0.5-10.57.0.9/24  closed  -          5     0     5     0      0        -\n",
    ] {
        assert!(text.stdout.contains(line), "{line}: {text}");
    }
    let counted = json!({
        "pool": "storage", "network": "blue", "size": 4, "held": 1, "free": 3, "draining": 0, "closed": 0, "outside": 0,
        "set_aside": 0, "cooling": 0,
    });
    assert_eq!(status(&node, "storage"), counted);
    assert_eq!(node.pool(&["status"], "").stdout.lines().count(), 3);

    // The rows of held addresses name the pool.
    assert_eq!(node.list()[0]["pool"], "storage");
    let block = node.cli(["show", "10.56.0.1"]);
    assert!(block.stdout.contains("pool:         storage\n"), "{block}");

    let exported = node.pool(&["export"], "").stdout;
    let listed = || node.pool(&["list", "-o", "json"], "").ok();
    let before = listed();
    let again = apply(&node, &exported);
    report([exits(&again, 0, &["pool storage: nothing changes", "pool six: nothing changes"])]);
    assert_eq!(listed(), before, "nothing was written, so the revisions are the same");
    let other = Cluster::new();
    let there = other.node("a");
    applied(&there, &[&exported]);
    assert_eq!(there.pool(&["export"], "").stdout, exported);
    assert_eq!(there.pool(&["export", "six"], "").stdout, exported.split("---\n").next().expect("a pool"));
    other.assert_clean();
    cluster.assert_clean();
}

#[test]
fn what_show_prints_can_be_edited_and_applied() {
    let text = "\
pool: storage
network: blue
ranges:
- {range: 10.56.0.0/24, gateway: 10.56.0.254, exclude: [10.56.0.5, 10.56.0.128/28]}
- {range: 10.57.0.5-10.57.0.9/24, state: draining}
- {range: 10.58.0.0/24, state: closed}
cooldown: 90s
cooldown_when_full: reuse
keep: 1h
for: {namespaces: [ns], node_labels: {rack: [\"7\"]}}
priority: 3
";
    let (cluster, node) = cluster_with(&[text, SIX]);
    add(&node, "c1", &from("storage")).ok();
    let listed = || node.pool(&["list", "-o", "json"], "").ok();
    let before = listed();
    for (pool, format) in [("storage", "yaml"), ("storage", "json"), ("six", "yaml"), ("six", "json")] {
        let shown = node.pool(&["show", pool, "-o", format], "").stdout;
        assert!(shown.contains("status") && shown.contains("revision"), "{shown}");
        let unchanged = format!("pool {pool}: nothing changes");
        report([
            exits(&node.pool(&["diff", "-f", "-"], &shown), 0, &[&unchanged]),
            exits(&apply(&node, &shown), 0, &[&unchanged]),
        ]);
    }
    assert_eq!(listed(), before, "nothing was written, so the revisions are the same");

    // A change of the text is carried out, one of the status is not.
    let shown = node.pool(&["show", "storage", "-o", "yaml"], "").stdout;
    let edited = shown.replace("cooldown: 1m 30s", "cooldown: 2m").replace("held: 1", "held: 7");
    report([exits(&apply(&node, &edited), 0, &["pool storage: applied", "cooldown: 1m 30s", "now 2m"])]);
    let again = node.pool(&["show", "storage", "-o", "json"], "").ok();
    assert_eq!(
        (&again["cooldown"], &again["status"]["ranges"][0]["held"]),
        (&json!("2m"), &json!(1)),
        "{again}"
    );
    let stored = cluster.store().get("v1/pool/storage").expect("it is stored");
    assert!(!String::from_utf8_lossy(&stored).contains("status"), "nobody reads it");
    let slip = apply(&node, &edited.replace("status:", "statsu:"));
    report([exits(&slip, 1, &["unknown field `statsu`", "nothing was changed"])]);
    cluster.assert_clean();
}

#[test]
fn a_change_is_told_asked_for_and_written_only_then() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    let file = cluster.folder().join("pools.yaml");
    fs::write(&file, STORAGE).expect("a file can be written");
    let file = file.to_str().expect("a path");
    let slipped = STORAGE.replace("exclude: [10.56.0.5]", "exclude: [10.56.0.5, 10.65.0.4/31]");
    let told = "metes: pool storage: `ranges[0].exclude[1]` excludes nothing: 10.65.0.4/31 is outside of 10.56.0.0/29";
    report([
        exits(&node.pool(&["diff", "-f", "-"], &slipped), 0, &[told]),
        exits(&node.pool(&["diff", "-f", file], ""), 0, &["pool storage of network blue is new"]),
        exits(&node.pool(&["apply", "--dry-run", "-f", file], ""), 0, &["10.56.0.0/29 open: addresses 4"]),
        exits(&node.pool(&["apply", "-f", file], "n\n"), 1, &["Apply these changes?", "nothing was changed"]),
        exits(&node.pool(&["apply", "-f", "-"], STORAGE), 1, &["give --yes"]),
        exits(&node.pool(&["apply", "-f", "/nowhere"], ""), 1, &["cannot read /nowhere"]),
    ]);
    assert!(cluster.store().keys("").is_empty(), "nothing was written");
    report([exits(&node.pool(&["apply", "-f", file], "y\n"), 0, &["pool storage: applied"])]);
    assert_eq!(cluster.store().keys("v1/"), ["v1/meta", "v1/pool/storage", "v1/pools"]);

    let changed = STORAGE
        .replace("10.56.0.0/29, gateway: 10.56.0.6, exclude: [10.56.0.5]", "10.56.0.0/29, gateway: 10.56.0.6")
        .replace("state: closed", "state: draining")
        .replace("owner: netops", "owner: ops")
        .replace("domain: a.test, ", "");
    let diff = node.pool(&["diff", "-f", "-"], &(changed + "keep: 7d\n---\n" + SIX));
    report([exits(
        &diff,
        0,
        &[
            "10.56.0.0/29: exclude 10.56.0.5/32, now -, addresses gained: 1",
            "10.57.0.5-10.57.0.9/24: state closed, now draining",
            "dns: 10.56.0.53; domain a.test; search a.test, now 10.56.0.53; search a.test",
            "keep: -, now 7days",
            "note: owner: netops, now owner: ops",
            "pool six of network blue is new",
        ],
    )]);
    cluster.assert_clean();
}

#[test]
fn wrong_texts_are_refused_and_nothing_is_written() {
    let (cluster, node) = cluster_with(&[STORAGE]);
    let before = cluster.store().entries("");
    let pool_of = |ranges: &str| format!("pool: new\nnetwork: blue\nranges: [{ranges}]\n");
    let large = format!("{}note: {}\n", pool_of("{range: 10.1.0.0/24}"), "x".repeat(64 << 10));
    report(
        [
            (String::new(), "stdin has no pool in it"),
            ("pool: [".to_owned(), "stdin:2:1: it is not YAML"),
            (
                large,
                "stdin:1:1: it has 65598 bytes: a pool has at most 65536; make two pools of it",
            ),
            (
                pool_of("{range: 10.1.0.0/33}"),
                "ranges[0].range: \"10.1.0.0/33\" is not a range: expected a prefix such as 10.0.0.0/24, or first and \
                 last address such as 10.0.0.5-10.0.0.9/24",
            ),
            (
                pool_of("{range: 10.1.0.9-10.1.0.5/24}"),
                "its start 10.1.0.9 is above its end 10.1.0.5",
            ),
            (
                pool_of("{range: 10.1.0.0/24, gateway: 10.2.0.1}"),
                "ranges[0].gateway: 10.2.0.1 is outside of 10.1.0.0/24: write an address of it",
            ),
            (
                pool_of("{range: 10.1.0.0/24, gatway: 10.1.0.1}"),
                "unknown field `gatway` (did you mean `gateway`?), expected one of `range`, `gateway`, `exclude`, \
                 `state`",
            ),
            (
                pool_of("{range: 10.1.0.0/24}, {range: 10.1.0.0/25}"),
                "ranges[1].range: 10.1.0.0/25 overlaps 10.1.0.0/24 of ranges[0]: give each its own first and last \
                 address",
            ),
            (
                "pool: a/b\nranges: [{range: 10.1.0.0/24}]\n".to_owned(),
                "pool: pool name \"a/b\" is not valid: expected 1 to 63 characters from A-Z a-z 0-9 . _ - (and not \
                 \".\" or \"..\")",
            ),
            (
                pool_of("{range: 10.1.0.0/24}").replace("blue", "b/c"),
                "network: network_name \"b/c\" is not valid: expected 1 to 63 characters",
            ),
            ("pol: a\n".to_owned(), "unknown field `pol` (did you mean `pool`?), expected one of `pool`, "),
            ("pol: a\n".to_owned(), "stdin:1:1: "),
            (pool_of("10.1.0.0/24"), "expected a range, such as {range: 10.0.0.0/24}"),
            (format!("{SIX}---\n{SIX}"), ":7:1: pool six stands in the file twice: keep one of them"),
            // The first document is sound.
            (format!("{SIX}---\npool: b\nranges: []\n"), ": ranges: it is empty: write at least one range"),
            (
                format!("{SIX}---\n{}", pool_of("{range: 10.56.0.0/30}")),
                "overlaps 10.56.0.0/29 of pool storage",
            ),
            (
                format!(
                    "{}---\n{}",
                    SPILL,
                    SPILL.replace("spill", "other").replace("/29}", "/29, gateway: 10.58.0.1}")
                ),
                "range 10.58.0.0/29 of pool other overlaps 10.58.0.0/29 of pool spill",
            ),
            (
                pool_of("{range: 10.56.0.0/24}").replace("24}", "24, gateway: 10.56.0.200}"),
                "/24 with gateway",
            ),
        ]
        .map(|(text, expected)| exits(&apply(&node, &text), 1, &[expected])),
    );
    assert_eq!(cluster.store().entries(""), before);
    // Where they agree, pools may share addresses.
    let agrees = STORAGE.replace("pool: storage", "pool: twin");
    report([exits(
        &apply(&node, &agrees),
        0,
        &["10.56.0.0/29 shares addresses with 10.56.0.0/29 of pool storage"],
    )]);
    cluster.assert_clean();
}

#[test]
fn a_store_out_of_service_takes_no_change() {
    let (cluster, node) = cluster_with(&[STORAGE]);
    report(
        [
            (json!({"suspect": 1}), "under suspicion"),
            (json!({"paused": "import"}), "a migration is under way: import"),
            (json!({"min_writer": 9}), "version 9 or newer"),
        ]
        .map(|(keys, expected)| {
            cluster.store().change_meta(&keys);
            let outcome = apply(&node, SIX);
            cluster.store().change_meta(&json!({"suspect": null, "paused": null, "min_writer": 1}));
            exits(&outcome, 1, &[expected])
        }),
    );
    cluster.store().put("v1/pool/odd", b"?".to_vec());
    report([
        exits(&apply(&node, SIX), 1, &["cannot be decoded", "v1/pool/odd"]),
        exits(&node.pool(&["list"], ""), 0, &["cannot decode", "storage"]),
    ]);
    cluster.store().delete("v1/pool/odd");
    cluster.assert_clean();
}

#[test]
fn pods_get_addresses_from_pools() {
    let (cluster, node) = cluster_with(&[STORAGE, SIX, SPILL]);
    let added = add(&node, "c1", &from("storage"));
    assert_eq!(added.addresses(), ["10.56.0.1/29"], "{added}");
    let result = added.ok();
    assert_eq!(result["ips"][0]["gateway"], "10.56.0.6");
    assert_eq!(result["routes"], json!([{"dst": "10.0.0.0/8", "gw": "10.56.0.6"}]));

    assert_eq!(
        result["dns"],
        json!({"nameservers": ["10.56.0.53"], "domain": "a.test", "search": ["a.test"]})
    );

    let own = json!({"nameservers": ["10.56.0.53", "10.9.9.9"], "domain": "c.test", "options": ["ndots:2"]});
    let dual = network(json!({"pools": ["storage", "six"], "dns": own}));
    let added = add(&node, "c2", &dual);
    let both = json!({
        "nameservers": ["10.56.0.53", "10.9.9.9"], "domain": "c.test", "search": ["a.test"], "options": ["ndots:2"],
    });
    assert_eq!(added.ok()["dns"], both, "the pool's, and then the network's, whose domain counts");
    assert_eq!(added.addresses(), ["10.56.0.2/29", "fd00:56::1/64"], "{added}");
    let asked = node
        .add("c3")
        .args("IP=10.56.0.4;IgnoreUnknown=1;K8S_POD_NAMESPACE=ns")
        .config(&from("storage"))
        .run();
    assert_eq!(asked.address(), "10.56.0.4");

    let spill = network(json!({"pools": [["storage", "spill"], ["six"]]}));
    assert_eq!(add(&node, "c4", &spill).addresses(), ["10.56.0.3/29", "fd00:56::2/64"]);
    assert_eq!(add(&node, "c5", &spill).addresses(), ["10.58.0.1/29", "fd00:56::3/64"]);
    assert_eq!(add(&node, "c5", &spill).addresses(), ["10.58.0.1/29", "fd00:56::3/64"], "it is repeated");
    let pools: Vec<Value> = node.list().iter().map(|row| row["pool"].clone()).collect();
    assert_eq!(pools.iter().filter(|pool| **pool == "spill").count(), 1, "{pools:?}");

    let full = add(&node, "c6", &from("storage")).error(100).to_string();
    assert!(full.contains("pool storage of network blue: size 4, held 4"), "{full}");
    for container in ["c1", "c2", "c3", "c4", "c5"] {
        node.del(container).config(&from("storage")).run().silent();
    }
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

#[test]
fn what_is_not_given_is_told_with_its_reason() {
    let (cluster, node) = cluster_with(&[STORAGE, SPILL]);
    let only = cluster.node_with("b", json!({"pools_only": true}));
    let some = cluster.node_with("c", json!({"allowed": {"blue": {"pools": ["spill"]}}}));
    let range = network(json!({"range": "10.99.0.0/24"}));
    let fixed = network(json!({"addresses": [{"address": "10.99.0.7/24"}]}));
    let asking = |address: &str| {
        let args = format!("IP={address};IgnoreUnknown=1;K8S_POD_NAMESPACE=ns");
        node.add("c").args(&args).config(&from("storage")).run()
    };
    report(
        [
            (
                add(&node, "c", &from("storag")),
                7,
                "there is no pool \\\"storag\\\"; did you mean \\\"storage\\\"?",
            ),
            (add(&node, "c", &from("elsewhere")), 7, "there is no pool \\\"elsewhere\\\""),
            (node.add("c").config(&from("storage")).run(), 7, "pool storage is not for no namespace"),
            (
                node.add("c").pod("other", "p", "u").config(&from("storage")).run(),
                7,
                "pool storage is not for namespace other",
            ),
            (add(&only, "c", &range), 7, "pools alone"),
            (add(&only, "c", &fixed), 7, "pools alone"),
            (add(&some, "c", &from("storage")), 7, "pool storage may not be used on this node"),
            (asking("10.57.0.7"), 101, "in a range of pool storage that is closed"),
            (asking("10.1.0.7"), 101, "in no range of pool storage (10.56.0.0/29"),
            (asking("10.56.0.5"), 101, "10.56.0.5"),
            (add(&node, "c", &network(json!({"pool": "storage", "range": "10.0.0.0/24"}))), 7, "pool"),
        ]
        .map(|(outcome, code, word)| {
            let is_right = outcome.error_code() == Some(code) && outcome.stdout.contains(word);
            (!is_right).then(|| format!("expected code {code} and {word}: {outcome}"))
        }),
    );
    assert_eq!(add(&only, "d", &from("spill")).address(), "10.58.0.1");
    assert_eq!(add(&some, "e", &from("spill")).address(), "10.58.0.2");
    cluster.assert_clean();
}

#[test]
fn who_holds_an_address_of_a_shrunk_pool_keeps_it() {
    let (cluster, node) = cluster_with(&[STORAGE]);
    let config = from("storage");
    let first = add(&node, "c1", &config);
    assert_eq!(add(&node, "c2", &config).address(), "10.56.0.2");
    let moved = STORAGE
        .replace("{range: 10.56.0.0/29, gateway: 10.56.0.6, exclude: [10.56.0.5]}", "{range: 10.59.0.0/24}");
    let shrunk = apply(&node, &moved);
    report([
        exits(
            &shrunk,
            3,
            &[
                "10.56.0.0/29: removed, addresses lost: 4",
                "10.59.0.0/24: new, open, addresses gained: 254",
                "held outside of the open ranges: 2",
                "10.56.0.1  test     a     ns/pod-c1",
                "pool storage: applied",
            ],
        ),
        exits(&apply(&node, &moved), 3, &["nothing changes"]),
        exits(&node.pool(&["diff", "-f", "-"], &moved), 3, &["held outside of the open ranges: 2"]),
        exits(&apply(&node, &moved.replace("network: blue", "network: green")), 1, &["held in blue (2 now)"]),
    ]);
    assert_eq!(status(&node, "storage")["outside"], 2);
    assert_eq!(
        add(&node, "c1", &config).ok()["ips"],
        first.ok()["ips"],
        "a repeated ADD is answered as before"
    );
    let mut check = config.clone();
    check["prevResult"] = first.ok();
    node.check("c1").config(&check).run().silent();
    // Another sandbox of the pod takes its address over.
    let again = node.add("c1b").pod("ns", "pod-c1", "u-c1").config(&config).run();
    assert_eq!(again.address(), "10.56.0.1");
    assert_eq!(add(&node, "c3", &config).address(), "10.59.0.1", "others get an address by the new text");

    // Back, with another gateway: who runs with the old one is told.
    let other = STORAGE.replace("gateway: 10.56.0.6", "gateway: 10.56.0.4");
    report([exits(
        &apply(&node, &other),
        3,
        &[
            "10.59.0.0/24: removed, addresses lost: 254",
            "held outside of the open ranges: 1",
            "running pods that keep another gateway or prefix length: 2",
        ],
    )]);
    assert_eq!(node.check("c1b").config(&check).run().error_code(), None);
    cluster.assert_clean();
}

#[test]
fn a_pool_is_drained_closed_opened_and_deleted() {
    let (cluster, node) = cluster_with(&[STORAGE]);
    let config = from("storage");
    for container in ["c1", "c2"] {
        add(&node, container, &config).ok();
    }
    let drain =
        |more: &[&str]| node.pool(&[&["drain", "storage", "--range", "10.56.0.0/29"], more].concat(), "n\n");
    report([
        exits(
            &node.pool(&["drain", "storag", "--range", "10.56.0.0/29"], ""),
            1,
            &["did you mean \"storage\"?"],
        ),
        exits(
            &node.pool(&["drain", "storage", "--range", "10.56.0.0/28"], ""),
            1,
            &["no range \"10.56.0.0/28\": it has 10.56.0.0/29, 10.57.0.5-10.57.0.9/24"],
        ),
        exits(&drain(&[]), 1, &["state open, now draining", "addresses lost: 4", "nothing was changed"]),
        exits(&drain(&["--yes"]), 3, &["held outside of the open ranges: 2", "pool storage: applied"]),
        exits(&drain(&["--yes"]), 3, &["nothing changes"]),
        exits(
            &node.pool(&["delete", "storage", "--yes"], ""),
            1,
            &["10.56.0.0/29 is draining", "2 addresses are held"],
        ),
    ]);
    assert_eq!(status(&node, "storage")["draining"], 2);
    let full = add(&node, "c3", &config).error(100).to_string();
    assert!(
        full.contains("no range of it is open") || full.contains("no range of the pool is open"),
        "{full}"
    );

    let open = |range: &str| node.pool(&["open", "storage", "--yes", "--range", range], "");
    report([exits(&open("10.57.0.5-10.57.0.9/24"), 3, &["state closed, now open", "addresses gained: 5"])]);
    assert_eq!(add(&node, "c3", &config).address(), "10.57.0.5");

    let wait = ["pool", "drain", "storage", "--range", "10.56.0.0/29", "--yes", "--wait"];
    let some_time = [&wait[..], &["--timeout", "1s"]].concat();
    let waited = node.cli(some_time);
    report([exits(&waited, 1, &["the time of --timeout is over", "held in 10.56.0.0/29: 2"])]);
    assert!(waited.elapsed >= Duration::from_secs(1), "{waited}");
    let waiting = Run::new(metes()).env("METES_CONF", node.host_file()).arguments(wait).spawn();
    node.del("c1").config(&config).run().silent();
    node.del("c2").config(&config).run().silent();
    report([exits(&waiting.wait(), 0, &["nobody holds an address of 10.56.0.0/29"])]);

    let close = |range: &str| node.pool(&["close", "storage", "--yes", "--range", range], "");
    report([
        exits(&close("10.56.0.0/29"), 0, &["state draining, now closed"]),
        exits(
            &close("10.57.0.5-10.57.0.9/24"),
            3,
            &["state open, now closed", "held outside of the open ranges: 1"],
        ),
        exits(&node.pool(&["delete", "storage", "--yes"], ""), 1, &["not deleted: 1 address is held"]),
    ]);
    node.del("c3").config(&config).run().silent();
    report([
        exits(&node.pool(&["delete", "storage"], "n\n"), 1, &["nothing was changed"]),
        exits(&node.pool(&["delete", "storage", "--yes"], ""), 0, &["pool storage: deleted"]),
        exits(&node.pool(&["delete", "storag", "--yes"], ""), 1, &["there is no pool \"storag\""]),
    ]);
    assert!(!cluster.store().keys("v1/").contains(&"v1/pool/storage".to_owned()));
    add(&node, "c4", &config).error(7);
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

#[test]
fn a_drain_that_waits_says_who_is_left() {
    let (cluster, node) = cluster_with(&[SPILL]);
    let config = from("spill");
    for container in ["c1", "c2"] {
        add(&node, container, &config).ok();
    }
    let mut command = std::process::Command::new(metes());
    command.args(["pool", "drain", "spill", "--range", "10.58.0.0/29", "--yes", "--wait"]);
    command.env_clear().env("METES_CONF", node.host_file()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut waiting = command.spawn().expect("it can be run");
    let mut said = BufReader::new(waiting.stderr.take().expect("stderr is piped")).lines();
    let mut next = || said.next().map(|line| line.expect("a line")).unwrap_or_default();
    let of = |at: u8| format!("10.58.0.{at} by ns/pod-c{at}, eth0 of container c{at} on a of cluster test");
    assert_eq!(next(), format!("held in 10.58.0.0/29: 2 ({}; {})", of(1), of(2)));
    node.del("c1").config(&config).run().silent();
    assert_eq!(next(), format!("held in 10.58.0.0/29: 1 ({})", of(2)));
    node.del("c2").config(&config).run().silent();
    assert_eq!(next(), "");
    assert!(waiting.wait().expect("it ends").success());
    cluster.assert_clean();
}

#[test]
fn operators_who_change_pools_at_once_do_not_cross() {
    let (cluster, node) = cluster_with(&[SIX]);
    // Each alone is sound, and any two of them overlap with other gateways.
    let texts: Vec<String> = (1..7)
        .map(|at| {
            format!("pool: p{at}\nnetwork: blue\nranges: [{{range: 10.60.0.0/24, gateway: 10.60.0.{at}}}]\n")
        })
        .collect();
    let outcomes = support::in_parallel(6, &texts, |text| apply(&node, text));
    let done = outcomes.iter().filter(|outcome| outcome.succeeded()).count();
    assert_eq!(done, 1, "{outcomes:?}");
    let refused = outcomes.iter().filter(|outcome| !outcome.succeeded());
    report(refused.map(|outcome| exits(outcome, 1, &["overlaps 10.60.0.0/24 of pool"])));
    cluster.assert_clean();
}

#[test]
fn who_was_overtaken_is_asked_again_only_if_the_effect_is_another_one() {
    let (cluster, node) = cluster_with(&[STORAGE]);
    let file = cluster.folder().join("pools.yaml");
    fs::write(&file, STORAGE.replace("order: lowest", "order: next")).expect("a file can be written");
    let overtaken = |answers: &str, other: &str| {
        let run = Run::new(failing_metes())
            .env("METES_CONF", node.host_file())
            .env("METES_FAIL", "pool.before=stop");
        let run = run.arguments(["pool", "apply", "-f", file.to_str().expect("a path")]).stdin(answers);
        let mut run = run.spawn();
        run.wait_until_stopped();
        applied(&node, &[other]);
        run.resume();
        run.wait()
    };
    let other_note = STORAGE.replace("owner: netops", "owner: others");
    let again = overtaken("y\n", &other_note);
    report([exits(
        &again,
        1,
        &["order: lowest, now next", "note: owner: others, now owner: netops", "not confirmed"],
    )]);
    assert!(node.pool(&["export"], "").stdout.contains("owner: others"), "it was not overwritten");
    let same = overtaken("y\n", SIX);
    report([exits(&same, 0, &["pool storage: applied"])]);
    assert_eq!(same.stderr.matches("[y/N]").count(), 1, "{same}");
    applied(&node, &[STORAGE]);
    report([exits(&overtaken("y\ny\n", &other_note), 0, &["pool storage: applied"])]);
    cluster.assert_clean();
}

#[test]
fn a_change_that_was_not_answered_is_settled() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    for (at, point) in ["pool.answered", "pool.before", "pool.sent"].into_iter().enumerate() {
        let failing = |arguments: &[&str], text: &str| {
            let run = Run::new(failing_metes()).env("METES_CONF", node.host_file()).arguments(["pool"]);
            run.arguments(arguments).env("METES_FAIL", format!("{point}=error:unknown")).stdin(text).run()
        };
        let text = STORAGE.replace("10.56.0.", &format!("10.56.{at}."));
        let outcome = failing(&["apply", "-f", "-", "--yes"], &text);
        let written = outcome.stdout.matches("pool storage: applied").count();
        report([exits(&outcome, 0, &["pool storage: applied"])]);
        assert_eq!(written, 1, "{outcome}");
        assert!(node.pool(&["export"], "").stdout.contains(&format!("10.56.{at}.0/29")));
        let close = ["close", "storage", "--yes", "--range", &format!("10.56.{at}.0/29")];
        report([
            exits(&failing(&close, ""), 0, &["pool storage: applied"]),
            exits(&failing(&["delete", "storage", "--yes"], ""), 0, &["pool storage: deleted"]),
        ]);
        assert_eq!(node.pool(&["list", "-o", "json"], "").ok(), json!([]));
    }
    cluster.assert_clean();
}

#[test]
fn when_a_drain_has_returned_nobody_gets_an_address_of_the_range_any_more() {
    let two =
        "pool: two\nnetwork: blue\nranges: [{range: 10.61.0.0/26}, {range: 10.62.0.0/24}]\norder: lowest\n";
    let (cluster, node) = cluster_with(&[two]);
    let config = from("two");
    let held = || {
        let rows = node.list();
        let of_range =
            |row: &&Value| row["address"].as_str().is_some_and(|address| address.starts_with("10.61."));
        rows.iter().filter(of_range).map(|row| row["address"].to_string()).collect::<Vec<_>>()
    };
    let done = AtomicBool::new(false);
    let (before, after) = std::thread::scope(|scope| {
        let adding: Vec<_> = (0..4)
            .map(|at| {
                let (node, config, done) = (cluster.node(&format!("n{at}")), &config, &done);
                scope.spawn(move || {
                    // A few more after the drain has returned.
                    let mut more = 5;
                    for container in 0.. {
                        more -= usize::from(done.load(Ordering::Relaxed));
                        if more == 0 {
                            break;
                        }
                        add(&node, &format!("c{at}x{container}"), config).ok();
                    }
                })
            })
            .collect();
        wait_for("some addresses to be held", LONG, || {
            if held().len() > 4 { Ok(()) } else { Err("too few".to_owned()) }
        });
        let drained = node.pool(&["drain", "two", "--range", "10.61.0.0/26", "--yes"], "");
        let before = held();
        done.store(true, Ordering::Relaxed);
        adding.into_iter().for_each(|adding| adding.join().expect("all are added"));
        report([exits(&drained, 3, &["pool two: applied"])]);
        (before, held())
    });
    assert_eq!(before, after);
    assert!(node.list().len() > before.len(), "others got addresses of the other range");
    cluster.assert_clean();
}
