//! Addresses that are set aside: who may, who gets them, and how it ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fs, thread};

use serde_json::{Value, json};

use support::{
    Cluster, Node, Outcome, Run, failing_metes, in_parallel, metes, network, network_as, report, wait_for,
};

const LONG: Duration = Duration::from_secs(30);

fn config() -> Value {
    network(json!({"range": "10.0.0.0/24", "network_name": "blue", "order": "lowest"}))
}

/// In network blue, of which the store may know nothing yet.
fn hold(node: &Node, arguments: &[&str]) -> Outcome {
    node.cli([&["hold", "--network", "blue"], known_or_not(arguments), arguments].concat())
}

fn known_or_not(arguments: &[&str]) -> &'static [&'static str] {
    if arguments.contains(&"--remove") { &[] } else { &["--force"] }
}

fn holds(node: &Node) -> Value {
    node.cli(["holds", "-o", "json"]).ok()
}

/// All that is held, and for how long.
fn stored(cluster: &Cluster) -> Vec<(String, Vec<u8>)> {
    ["v1/net/", "v1/owner/", "v1/hold/"].map(|prefix| cluster.store().entries(prefix)).concat()
}

fn exits(outcome: &Outcome, code: i32, words: &[&str]) -> Option<String> {
    let said = format!("{}{}", outcome.stdout, outcome.stderr);
    let is_right = outcome.status.code() == Some(code) && words.iter().all(|word| said.contains(word));
    (!is_right).then(|| format!("expected exit {code} and {words:?}: {outcome}"))
}

fn asks(node: &Node, container: &str, address: &str) -> Outcome {
    node.add(container).args(&format!("IP={address}")).config(&config()).run()
}

#[test]
fn an_address_that_is_set_aside_is_given_to_nobody() {
    let cluster = Cluster::new();
    let node = cluster.node_with("a", json!({"gc_grace_s": 0}));
    // The first write into an empty prefix.
    let held = hold(&node, &["10.0.0.1", "10.0.0.2", "--note", "a printer", "--for", "2h"]);
    report([exits(
        &held,
        0,
        &["10.0.0.1 of network blue is set aside for 2h\n10.0.0.2 of network blue is set aside for 2h\n"],
    )]);
    cluster.assert_clean();
    assert_eq!(node.add("c1").config(&config()).run().address(), "10.0.0.3");
    let refused = asks(&node, "c2", "10.0.0.2");
    assert_eq!(
        refused.error(101)["msg"],
        "the requested address 10.0.0.2 in network blue is set aside: a printer",
        "{refused}"
    );
    // Nobody but a person frees it.
    let mut gc = network_as("1.1.0", "net", json!({}));
    gc["cni.dev/valid-attachments"] = json!([]);
    node.gc().config(&gc).run().silent();
    node.del("00000000000000000000ffff0a000001").ifname("hold").config(&config()).run().silent();
    for arguments in [
        &["release", "10.0.0.1", "-y"][..],
        &["release", "--container", "00000000000000000000ffff0a000001", "-y"],
    ] {
        let remedy = "metes hold --remove 10.0.0.1 --network blue ends that";
        report([exits(&node.cli(arguments), 1, &[remedy])]);
    }
    let rows = holds(&node);
    let left = rows[0]["seconds_left"].as_u64().expect("it has an end");
    assert!((7100..=7200).contains(&left), "{rows}");
    let row = json!({
        "network": "blue", "address": "10.0.0.1", "note": "a printer", "created_at": rows[0]["created_at"],
        "for_seconds": 7200, "seconds_left": left, "pod": null, "used_by": null,
    });
    assert_eq!((&rows[0], rows.as_array().map(Vec::len)), (&row, Some(2)));
    report([
        exits(
            &node.cli(["holds"]),
            0,
            &[
                "NETWORK  ADDRESS   FOR  USED BY  NOTE       SINCE",
                "blue     10.0.0.1  -    -        a printer  20",
            ],
        ),
        exits(
            &node.cli(["holds", "--network", "red"]),
            0,
            &["NETWORK  ADDRESS  FOR  USED BY  NOTE  SINCE  LEFT  KEPT\n"],
        ),
        exits(&node.cli(["show", "10.0.0.1"]), 0, &["set aside:    a printer\nfor:          2h\n"]),
        exits(&node.cli(["list"]), 0, &["blue     10.0.0.1  -        -     set aside: a printer  -"]),
    ]);
    let list = node.list();
    assert_eq!(list[0]["hold"], json!({"note": "a printer", "for": 7200}), "{list:?}");
    let nobody = ["container_id", "ifname", "node", "cluster", "cni_network"];
    assert!(nobody.iter().all(|key| list[0][key].is_null()), "{list:?}");
    assert_eq!(node.cli(["list", "--node", "a", "-o", "json"]).ok(), json!([]), "it is on no node");

    // It ends when a person says so.
    report([exits(
        &hold(&node, &["--remove", "10.0.0.1-10.0.0.2"]),
        0,
        &["10.0.0.2 of network blue is not set aside any more"],
    )]);
    report([exits(
        &hold(&node, &["--remove", "10.0.0.1"]),
        1,
        &["10.0.0.1 of network blue is not set aside"],
    )]);
    assert_eq!(holds(&node), json!([]));
    assert!(cluster.store().keys("v1/hold/").is_empty());
    assert_eq!(asks(&node, "c2", "10.0.0.2").address(), "10.0.0.2");
    for container in ["c1", "c2"] {
        node.del(container).config(&config()).run().silent();
    }
    let usage = node.cli(["usage", "-o", "json"]).ok();
    let counts = |row: &Value| json!([row["network"], row["held"], row["set_aside"]]);
    assert_eq!(counts(&usage[0]), json!(["blue", 0, 0]), "{usage}");
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

#[test]
fn who_holds_an_address_is_named_and_keeps_it() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    assert_eq!(node.add("c1").pod("ns", "web-0", "u1").config(&config()).run().address(), "10.0.0.1");
    let by_pod =
        "cannot set 10.0.0.1 of network blue aside: pod ns/web-0 (eth0 of container c1 on a of cluster test)";
    let other = "cannot set 10.0.0.2 of network blue aside: it is set aside already: printer";
    let before = |words: &[&str], code, arguments: &[&str]| {
        let before = stored(&cluster);
        let outcome = hold(&node, arguments);
        let same = stored(&cluster) == before || code == 0;
        [exits(&outcome, code, words), (!same).then(|| format!("{arguments:?} has written something"))]
    };
    // One that is refused does not stop the next.
    report([exits(
        &hold(&node, &["10.0.0.1", "10.0.0.2", "--note", "printer"]),
        1,
        &[by_pod, "10.0.0.2 of network blue is set aside until"],
    )]);
    report(
        [
            before(&[by_pod], 1, &["10.0.0.1", "--note", "printer"]),
            before(&[other], 1, &["10.0.0.2", "--note", "scanner"]),
            before(&["stays set aside until it is removed"], 0, &["10.0.0.2", "--note", "printer"]),
            before(&["stays set aside for 1h"], 0, &["10.0.0.2", "--note", "printer", "--for", "1h"]),
            before(&["10.0.0.1 of network blue is not set aside; metes holds"], 1, &["--remove", "10.0.0.1"]),
        ]
        .concat(),
    );
    assert_eq!(holds(&node)[0]["for_seconds"], 3600);
    report(before(&["stays set aside until it is removed"], 0, &["10.0.0.2", "--note", "printer"]));
    assert_eq!(holds(&node)[0]["for_seconds"], Value::Null);
    assert_eq!(node.cli(["list", "--pod", "ns/web-0", "-o", "json"]).ok()[0]["address"], "10.0.0.1");
    // A lease that was of no use is not left behind for hours.
    let leases = cluster.store().run(async |client| client.leases().await);
    let own = |lease: i64| {
        let told = cluster.store().run(async |client| client.lease_time_to_live(lease, None).await);
        told.granted_ttl() == 7777
    };
    report(before(&[by_pod], 1, &["10.0.0.1", "--note", "printer", "--for", "7777s"]).map(|_| None));
    let since = cluster.store().run(async |client| client.leases().await);
    assert!(since.leases().len() <= leases.leases().len() + 8);
    assert!(!since.leases().iter().any(|lease| own(lease.id())), "the lease is still there");
    hold(&node, &["--remove", "10.0.0.2"]);
    node.del("c1").config(&config()).run().silent();
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

#[test]
fn wrong_words_are_refused_and_nothing_is_written() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    let long = "x".repeat(257);
    let rows: [(&[&str], &str); 16] = [
        (&["--note", "x"], "ADDRESS"),
        (&["10.0.0.1"], "--note"),
        (&["10.0.0.256", "--note", "x"], "expected an IPv4 or IPv6 address"),
        (&["10.0.0.1/24", "--note", "x"], "expected an address without /24, or the prefix 10.0.0.0/24"),
        (&["10.0.0.0/16", "--note", "x"], "it has 65536 addresses, and one hold 1024 at most"),
        (&["10.0.0.9-10.0.0.5", "--note", "x"], "the lower address first"),
        (&["::ffff:10.0.0.1", "--note", "x"], "write an IPv4 address as one"),
        (&["224.0.0.1", "--note", "x"], "an interface can have"),
        (&["10.0.0.1", "--note", ""], "1 to 256 bytes"),
        (&["10.0.0.1", "--note", "a\nb"], "without control characters"),
        (&["10.0.0.1", "--note", &long], "1 to 256 bytes"),
        (&["10.0.0.1", "--note", "x", "--for", "0s"], "at least 1s and at most 365d"),
        (&["10.0.0.1", "--note", "x", "--for", "8761h"], "at least 1s and at most 365d"),
        (&["10.0.0.1", "--note", "x", "--for", "-1h"], "-1"),
        (&["10.0.0.1", "--note", "x", "--remove"], "cannot be used with"),
        (&["10.0.0.1", "--remove", "--for", "1h"], "cannot be used with"),
    ];
    report(rows.into_iter().map(|(arguments, words)| exits(&hold(&node, arguments), 2, &[words])));
    report(["a/b", "", "..", "blue@0-24"].into_iter().map(|network| {
        let outcome = node.cli(["hold", "10.0.0.1", "--note", "x", "--network", network]);
        exits(&outcome, 2, &["network"])
    }));
    assert!(cluster.store().keys("").is_empty(), "nothing was written");
    // An address that stands by itself is no network's own, so the range need not be known.
    node.add("c1").config(&config()).run().address();
    let before = stored(&cluster);
    for (meta, words) in [
        (json!({"paused": "an import"}), "a migration is under way: an import"),
        (json!({"paused": null, "suspect": 1}), "under suspicion since epoch 1"),
        (json!({"suspect": null, "min_writer": 2}), "use a newer metes"),
    ] {
        cluster.store().change_meta(&meta);
        report([exits(
            &hold(&node, &["10.0.0.9", "--note", "x", "--for", "1h"]),
            1,
            &["cannot set 10.0.0.9 of network blue aside", words],
        )]);
    }
    cluster.store().change_meta(&json!({"min_writer": 1}));
    assert!(stored(&cluster) == before, "something was written");
    node.del("c1").config(&config()).run().silent();
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

/// Without `--network` the ranges say which one it is; a network that the store does not know is most likely misspelt.
#[test]
fn the_network_is_the_one_that_has_the_address_and_none_is_guessed() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    let held = |network: &str| cluster.store().keys(&format!("v1/net/{network}/ip/")).len();
    let aside = |arguments: &[&str]| node.cli([&["hold", "--note", "x"], arguments].concat());
    report([
        exits(
            &aside(&["10.57.0.100"]),
            1,
            &["cannot set 10.57.0.100 aside: it lies in no range", "no network yet"],
        ),
        exits(&aside(&["10.57.0.100", "--network", "storage"]), 1, &["network storage", "--force"]),
        exits(&aside(&["10.57.0.100", "--force"]), 2, &["--network"]),
    ]);
    assert!(cluster.store().keys("").is_empty(), "nothing was written");
    let text = "pool: storage\nnetwork: storage\nranges: [{range: 10.57.0.0/24}]\n---\n\
                pool: wide\nnetwork: wide\nranges: [{range: 10.57.0.128/25}]\n";
    let file = cluster.folder().join("pool.yaml");
    fs::write(&file, text).expect("written");
    assert!(node.cli(["pool", "apply", "--yes", "-f", file.to_str().expect("a plain path")]).succeeded());
    node.add("c1").config(&config()).run().address();
    report([
        exits(&aside(&["10.57.0.100"]), 0, &["10.57.0.100 of network storage is set aside"]),
        // The ranges that a configuration asks for tell the network, too. An address that is refused does not stop the
        // next.
        exits(
            &aside(&["10.57.0.200", "192.0.2.1", "10.0.0.7"]),
            1,
            &[
                "cannot set 10.57.0.200 aside: it lies in ranges of several networks, storage (10.57.0.0/24 of pool \
                 storage), wide (10.57.0.128/25 of pool wide); say which with --network",
                "cannot set 192.0.2.1 aside: it lies in no range",
                "The store knows blue, storage, wide.",
                "10.0.0.7 of network blue is set aside",
            ],
        ),
        exits(&aside(&["10.57.0.101", "--network", "storag"]), 1, &["storag", "did you mean \"storage\"?"]),
        exits(&aside(&["10.57.0.101", "--network", "quite-another"]), 1, &["knows blue, storage, wide"]),
        exits(&aside(&["10.57.0.200", "--network", "wide"]), 0, &["of network wide"]),
        exits(
            &aside(&["10.57.0.7", "--network", "wide"]),
            0,
            &["10.57.0.7 is in no known range of network wide", "10.57.0.7 of network wide is set aside"],
        ),
        exits(&aside(&["10.57.0.100", "--network", "new", "--force"]), 0, &["of network new"]),
    ]);
    assert_eq!(["storage", "wide", "blue", "new"].map(held), [1, 2, 2, 1]);
    assert_eq!(["storag", "quite-another", "default"].map(held), [0, 0, 0]);
    let removed =
        |address: &str, code, words: &[&str]| exits(&node.cli(["hold", "--remove", address]), code, words);
    report([
        removed("10.57.0.100", 1, &["10.57.0.100 is set aside in several networks, new, storage; say which"]),
        exits(&node.cli(["hold", "--remove", "10.57.0.100", "--network", "new"]), 0, &["of network new"]),
        removed("10.57.0.100", 0, &["10.57.0.100 of network storage is not set aside any more"]),
        removed("10.57.0.200", 0, &["10.57.0.200 of network wide is not set aside any more"]),
        removed("10.57.0.7", 0, &["10.57.0.7 of network wide is not set aside any more"]),
        removed("10.0.0.7", 0, &["of network blue"]),
        removed("10.0.0.7", 1, &["10.0.0.7 is not set aside; metes holds lists what is"]),
    ]);
    node.del("c1").config(&config()).run().silent();
    cluster.assert_nothing_held();
    cluster.assert_whole();
}

#[test]
fn a_network_of_one_range_alone_and_ipv6_have_holds_too() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    let alone =
        network(json!({"range": "10.8.0.0/24", "enable_overlapping_ranges": false, "order": "lowest"}));
    let six = network(json!({"range": "fd00::/64", "order": "lowest"}));
    let own = "default@00000000000000000000ffff0a080000-24";
    report([exits(&node.cli(["hold", "10.8.0.1", "--network", own, "--force", "--note", "x"]), 0, &[own])]);
    assert_eq!(node.add("c1").config(&alone).run().address(), "10.8.0.2");
    assert_eq!(node.add("c2").config(&six).run().address(), "fd00::1");
    node.del("c2").config(&six).run().silent();
    report([exits(
        &node.cli(["hold", "FD00::1", "--note", "y"]),
        0,
        &["fd00::1 of network default is set aside"],
    )]);
    assert_eq!(node.add("c2").config(&six).run().address(), "fd00::2");
    let listed: Vec<Value> =
        holds(&node).as_array().into_iter().flatten().map(|row| row["network"].clone()).collect();
    assert_eq!(listed, ["default", own]);
    report([
        exits(&node.cli(["hold", "--remove", "10.8.0.1"]), 0, &[own]),
        exits(&node.cli(["hold", "--remove", "fd00::1"]), 0, &[]),
    ]);
    for container in ["c1", "c2"] {
        node.del(container).config(&alone).run().silent();
    }
    cluster.assert_nothing_held();
    cluster.assert_whole();
}

#[test]
fn of_a_pool_it_is_counted_and_a_drain_names_it() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    let text = "pool: storage\nnetwork: blue\nranges: [{range: 10.0.0.0/24}]\norder: lowest\n";
    let file = cluster.folder().join("pool.yaml");
    fs::write(&file, text).expect("written");
    let file = file.to_str().expect("a plain path");
    assert!(node.cli(["pool", "apply", "--yes", "-f", file]).succeeded());
    assert!(hold(&node, &["10.0.0.1", "--note", "printer"]).succeeded());
    let from_pool = network(json!({"pool": "storage"}));
    assert_eq!(node.add("c1").config(&from_pool).run().address(), "10.0.0.2");
    let refused = node.add("c2").args("IP=10.0.0.1").config(&from_pool).run();
    assert!(
        refused.error(101)["msg"].as_str().is_some_and(|msg| msg.ends_with("is set aside: printer")),
        "{refused}"
    );
    let status = node.cli(["pool", "status", "-o", "json"]).ok();
    let counts = ["size", "held", "free", "set_aside"].map(|key| status[0][key].as_u64());
    assert_eq!(counts, [254, 2, 252, 1].map(Some), "{status}");
    let shown = node.cli(["pool", "show", "storage", "-o", "json"]).ok();
    assert_eq!(shown["status"]["ranges"][0]["set_aside"], 1, "{shown}");
    let usage = node.cli(["usage", "-o", "json"]).ok();
    assert_eq!([&usage[0]["held"], &usage[0]["set_aside"]], [2, 1], "{usage}");
    let drained = node.cli(["pool", "drain", "storage", "--yes"]);
    report([exits(&drained, 3, &["10.0.0.1  -        -     set aside: printer"])]);
    node.del("c1").config(&from_pool).run().silent();
    let said = cluster.folder().join("said");
    let command = format!(
        "exec {} pool drain storage --range 10.0.0.0/24 --yes --wait >{} 2>&1",
        metes().display(),
        said.display()
    );
    let mut waiting = Run::new("sh").env("METES_CONF", node.host_file()).arguments(["-c", &command]).spawn();
    let says = |words: &str| {
        let text = fs::read_to_string(&said).unwrap_or_default();
        if text.contains(words) { Ok(()) } else { Err(text) }
    };
    wait_for("the drain to see the hold", LONG, || {
        says("held in 10.0.0.0/24: 1 (10.0.0.1 set aside: printer)")
    });
    assert!(waiting.is_running());
    assert!(hold(&node, &["--remove", "10.0.0.1"]).succeeded());
    assert!(waiting.wait().succeeded());
    assert_eq!(says("nobody holds"), Ok(()));
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

#[test]
fn a_full_range_says_how_many_are_set_aside() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    let small = network(json!({"range": "10.0.0.0/29", "network_name": "blue", "exclude": ["10.0.0.6"]}));
    assert!(hold(&node, &["10.0.0.1", "10.0.0.2", "10.0.0.6", "10.0.0.9", "--note", "x"]).succeeded());
    for container in ["c1", "c2", "c3"] {
        node.add(container).config(&small).run().address();
    }
    let full = node.add("c4").config(&small).run();
    let msg = "size 5, held 5; 2 of them are set aside";
    assert!(full.error(100)["msg"].as_str().is_some_and(|found| found.ends_with(msg)), "{full}");
    let text = "pool: tiny\nnetwork: blue\nranges: [{range: 10.0.0.9-10.0.0.9/24}]\n";
    let file = cluster.folder().join("pool.yaml");
    fs::write(&file, text).expect("written");
    assert!(node.cli(["pool", "apply", "--yes", "-f", file.to_str().expect("a plain path")]).succeeded());
    let full = node.add("c4").config(&network(json!({"pool": "tiny"}))).run();
    let msg = "size 1, held 1; 1 of them is set aside";
    assert!(full.error(100)["msg"].as_str().is_some_and(|found| found.ends_with(msg)), "{full}");
    for container in ["c1", "c2", "c3"] {
        node.del(container).config(&small).run().silent();
    }
    assert!(hold(&node, &["--remove", "10.0.0.1", "10.0.0.2", "10.0.0.6", "10.0.0.9"]).succeeded());
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

/// ADDs and holds of the same page come from everywhere: each address has one owner, and nobody fails.
#[test]
fn holds_and_adds_meet_and_each_address_has_one_owner() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    let done = AtomicBool::new(false);
    let (held, added) = thread::scope(|scope| {
        let adding: Vec<_> = (0..4)
            .map(|n| {
                let (node, done) = (cluster.node(&format!("n{n}")), &done);
                scope.spawn(move || {
                    let mut added = Vec::new();
                    for at in 0..40 {
                        if done.load(Ordering::Relaxed) {
                            break;
                        }
                        added.push(node.add(&format!("c{n}-{at}")).config(&config()).run().address());
                    }
                    added
                })
            })
            .collect();
        let held = in_parallel(2, (1..=60).step_by(3), |at| {
            let address = format!("10.0.0.{at}");
            (hold(&node, &[&address, "--note", "x"]), address)
        });
        done.store(true, Ordering::Relaxed);
        let added: Vec<String> =
            adding.into_iter().flat_map(|adding| adding.join().expect("no ADD fails")).collect();
        (held, added)
    });
    let mut all = added.clone();
    for (outcome, address) in &held {
        match outcome.succeeded() {
            true => all.push(address.clone()),
            false => assert!(outcome.stderr.contains("aside: eth0 of container"), "{outcome}"),
        }
    }
    assert!(held.iter().any(|(outcome, _)| outcome.succeeded()), "no hold was made");
    let count = all.len();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), count, "an address has two owners");
    assert_eq!(node.list().len(), count);
    cluster.assert_clean();
}

const MAKES: [&str; 5] = ["10.0.0.5", "--note", "printer", "--for", "1h"];
const REMOVES: [&str; 2] = ["--remove", "10.0.0.5"];

/// A store in which holds are made and removed by programs that end early.
struct Scene {
    cluster: Cluster,
    node: Node,
}

impl Scene {
    /// An empty prefix, or one that has had a hold.
    fn new(is_empty: bool) -> Self {
        let cluster = Cluster::new();
        let node = cluster.node("a");
        let scene = Self { cluster, node };
        if !is_empty {
            scene.hold(&MAKES);
            scene.hold(&REMOVES);
        }
        scene
    }

    fn hold(&self, arguments: &[&str]) {
        let outcome = hold(&self.node, arguments);
        assert!(outcome.succeeded(), "{outcome}");
    }

    fn failing(&self, arguments: &[&str], name: &str, value: &str) -> Outcome {
        let run = Run::new(failing_metes()).env("METES_CONF", self.node.host_file()).env(name, value);
        let run = run.arguments(["hold", "--network", "blue"]);
        run.arguments(known_or_not(arguments)).arguments(arguments).run()
    }

    /// The points that a run passes.
    fn points(&self, arguments: &[&str], landmark: &str) -> Vec<String> {
        let list = self.cluster.folder().join("passed");
        assert!(self.failing(arguments, "METES_FAIL_LIST", list.to_str().expect("a plain path")).succeeded());
        let passed = fs::read_to_string(list).expect("it has passed points");
        let points: Vec<String> =
            passed.lines().filter(|line| line.contains('.')).map(str::to_owned).collect();
        assert!(points.iter().any(|point| point.starts_with(landmark)), "{points:?}");
        points
    }

    /// Checks that all of a hold is there, or nothing, and that the tree is sound; the fault otherwise.
    fn judge(&self, row: &str) -> Option<String> {
        // In one read: a request of the killed run may still be on its way.
        let keys = self.cluster.store().keys("v1/");
        let count = |prefix: &str| keys.iter().filter(|key| key.starts_with(prefix)).count();
        let counts = ["v1/owner/-/@blue/", "v1/net/blue/ip/", "v1/hold/blue/"].map(count);
        let check = self.node.cli(["check"]);
        let is_sound = check.succeeded() && check.stdout.contains(", 0 stray bits");
        (![[0; 3], [1; 3]].contains(&counts) || !is_sound).then(|| format!("{row}: {counts:?}, {check}"))
    }

    fn end(self) {
        self.cluster.assert_nothing_held();
        self.cluster.assert_clean();
    }
}

/// All or nothing is there whenever the program ends, and the same command then does the rest.
#[test]
fn every_request_of_a_hold_may_be_the_last_one() {
    let mut failures = Vec::new();
    for is_empty in [true, false] {
        let scene = Scene::new(is_empty);
        let points = scene.points(&MAKES, "hold");
        scene.hold(&REMOVES);
        scene.end();
        assert!(points.len() >= 9, "{points:?}");
        for point in points {
            let scene = Scene::new(is_empty);
            let killed = scene.failing(&MAKES, "METES_FAIL", &format!("{point}=kill"));
            assert!(!killed.succeeded(), "{point}: {killed}");
            failures.push(scene.judge(&format!("hold {point}, {is_empty}")));
            scene.hold(&MAKES);
            failures.push((holds(&scene.node)[0]["for_seconds"] != 3600).then(|| format!("{point}: no end")));
            scene.hold(&REMOVES);
            scene.end();
        }
    }
    let scene = Scene::new(true);
    scene.hold(&MAKES);
    for point in scene.points(&REMOVES, "free") {
        scene.hold(&MAKES);
        let killed = scene.failing(&REMOVES, "METES_FAIL", &format!("{point}=kill"));
        assert!(!killed.succeeded(), "{point}: {killed}");
        failures.push(scene.judge(&format!("remove {point}")));
        let again = hold(&scene.node, &REMOVES);
        failures.push((holds(&scene.node) != json!([])).then(|| format!("{point}: {again}")));
    }
    report(failures);
    scene.end();
}

#[test]
fn a_request_that_was_not_answered_is_neither_made_twice_nor_given_up() {
    let scene = Scene::new(false);
    for point in ["hold.before", "hold.sent", "hold.answered", "grant.sent"] {
        let outcome = scene.failing(&MAKES, "METES_FAIL", &format!("{point}=error:unknown"));
        report([exits(&outcome, 0, &["set aside for 1h"]), scene.judge(point)]);
        assert!(holds(&scene.node)[0]["seconds_left"].as_u64().is_some_and(|left| left > 3000), "{point}");
        scene.hold(&REMOVES);
    }
    scene.end();
}

/// When its time is over, the key that says so has gone. A new hold may follow at once, whoever frees it.
#[test]
fn a_hold_whose_time_is_over_gives_way_to_another_hold() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    assert!(hold(&node, &["10.0.0.5", "--note", "a", "--for", "1s"]).succeeded());
    wait_for("the end of its time", LONG, || {
        let left = cluster.store().keys("v1/hold/");
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
    assert_eq!(holds(&node)[0]["seconds_left"], 0);
    report([
        exits(&node.cli(["holds"]), 0, &["over"]),
        exits(&asks(&node, "c1", "10.0.0.5"), 1, &["is set aside: a"]),
    ]);
    report([exits(&hold(&node, &["10.0.0.5", "--note", "b"]), 0, &["is set aside until it is removed"])]);
    assert_eq!(holds(&node)[0]["note"], "b");
    // The time of no hold is told, and ends by itself.
    cluster.store().put_leased("v1/hold/blue/00000000000000000000ffff0a000009", "", 30);
    let check = node.cli(["check"]);
    report([exits(&check, 0, &["harmless  time-without-hold: ", "10.0.0.9 is not set aside"])]);
    let own = "v1/owner/-/@blue/00000000000000000000ffff0a000005/hold";
    let record = cluster.store().get(own).expect("it is there");
    let other = String::from_utf8_lossy(&record).replace(r#","hold":{"note":"b"}"#, "");
    cluster.store().put(own, other);
    report([exits(&node.cli(["check"]), 1, &["violation hold-mismatch: "])]);
    cluster.store().put(own, record);
    cluster.store().delete("v1/hold/blue/00000000000000000000ffff0a000009");
    assert!(hold(&node, &["--remove", "10.0.0.5"]).succeeded());
    cluster.assert_nothing_held();
    cluster.assert_clean();
}
