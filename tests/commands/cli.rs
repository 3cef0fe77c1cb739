//! The verbs for people: list, show, usage, check and release, and the help of metes.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use support::{
    Cluster, Etcd, Node, Outcome, Run, Store, failing_metes, metes, network, network_as, report, wait_for,
};

const PAGE: &str = "v1/net/default/page/00000000000000000000ffff0a000000";
const SUMMARY: &str = "v1/net/default/summary/00000000000000000000ffff0a000000";
const IP: &str = "v1/net/default/ip/00000000000000000000ffff0a000001";
const NEXT_IP: &str = "v1/net/default/ip/00000000000000000000ffff0a000002";
const OWNER: &str = "v1/owner/test/a/c1/eth0";
const POD: &str = "v1/pod/test/u1/eth0/default";
const TOMBSTONE: &str = "v1/tombstone/test/a/c1/eth0";
const META: &str = "v1/meta";

fn expect(row: &str, is_right: bool, found: impl std::fmt::Display) -> Option<String> {
    (!is_right).then(|| format!("{row}: {found}"))
}

fn range() -> Value {
    network(json!({"range": "10.0.0.0/24", "order": "next"}))
}

/// A node with one container of a pod at 10.0.0.1.
fn with_one(cluster: &Cluster) -> Node {
    let node = cluster.node("a");
    assert_eq!(add(&node, "c1", "u1").address(), "10.0.0.1");
    node
}

fn add(node: &Node, container: &str, uid: &str) -> Outcome {
    node.add(container).pod("ns", "web-0", uid).config(&range()).run()
}

/// Two networks on two nodes: 10.0.0.1 is held in both, and one owner holds two addresses.
fn populated() -> (Cluster, Node, Node) {
    let cluster = Cluster::new();
    let (a, b) = (cluster.node("a"), cluster.node("b"));
    let dual = json!({"ipRanges": [{"range": "10.0.0.0/24"}, {"range": "fd00::/64"}]});
    let lan = |ipam: Value| network_as("1.0.0", "lan", ipam);
    a.add("c1").pod("ns", "web-0", "u1").config(&lan(dual)).run().ok();
    b.add("c2")
        .ifname("net1")
        .pod("ns", "web-1", "u2")
        .config(&lan(json!({"range": "10.0.0.0/24"})))
        .run()
        .ok();
    a.add("c3").config(&network(json!({"range": "10.0.0.0/24", "network_name": "storage"}))).run().ok();
    b.add("c4")
        .pod("other", "web-0", "u4")
        .config(&network(json!({"addresses": [{"address": "192.0.2.1/24"}]})))
        .run()
        .ok();
    (cluster, a, b)
}

fn addresses(outcome: &Outcome) -> Vec<String> {
    let rows = outcome.ok();
    let rows = rows.as_array().unwrap_or_else(|| panic!("an array: {outcome}")).clone();
    let text = |row: &Value| {
        let network = row["network"].as_str().unwrap_or("-");
        format!("{network} {}", row["address"].as_str().unwrap_or("-"))
    };
    rows.iter().map(text).collect()
}

#[test]
fn list() {
    let (cluster, a, _) = populated();
    let rows = a.list();
    let created_at = rows[0]["created_at"].clone();
    let text = created_at.as_str().unwrap_or_default();
    assert!(text.len() == 20 && text.ends_with('Z') && text.as_bytes()[10] == b'T', "{created_at}");
    let expected = json!({
        "network": "default",
        "address": "10.0.0.1",
        "pool": null,
        "container_id": "c1",
        "ifname": "eth0",
        "pod": {"namespace": "ns", "name": "web-0", "uid": "u1"},
        "node": "a",
        "cluster": "test",
        "cni_network": "lan",
        "created_at": created_at,
        "hold": null,
        "kept": null,
    });
    assert_eq!(rows[0], expected);
    let fields = |row: &Value| row.as_object().expect("an object").keys().cloned().collect::<BTreeSet<_>>();
    for row in &rows {
        assert_eq!(fields(row), fields(&expected), "all rows have the same fields: {row}");
    }
    let filters: [(&[&str], &[&str]); 14] = [
        (
            &[],
            &["default 10.0.0.1", "default 10.0.0.2", "default fd00::1", "storage 10.0.0.1", "- 192.0.2.1"],
        ),
        (&["--network", "default"], &["default 10.0.0.1", "default 10.0.0.2", "default fd00::1"]),
        (&["--network", "storage"], &["storage 10.0.0.1"]),
        (&["--network", "nowhere"], &[]),
        (&["--node", "a"], &["default 10.0.0.1", "default fd00::1", "storage 10.0.0.1"]),
        (&["--node", "b"], &["default 10.0.0.2", "- 192.0.2.1"]),
        (&["--node", "c"], &[]),
        (&["--cluster", "test", "--node", "a"], &["default 10.0.0.1", "default fd00::1", "storage 10.0.0.1"]),
        (&["--cluster", "-"], &[]),
        (&["--pod", "ns/web-0"], &["default 10.0.0.1", "default fd00::1"]),
        (&["--pod", "other/web-0"], &["- 192.0.2.1"]),
        (&["--pod", "ns/web"], &[]),
        (
            &["--network", "default", "--node", "a", "--pod", "ns/web-0"],
            &["default 10.0.0.1", "default fd00::1"],
        ),
        (&["--network", "storage", "--node", "b"], &[]),
    ];
    report(filters.into_iter().flat_map(|(filter, expected)| {
        let row = format!("list {}", filter.join(" "));
        let json = a.cli([&["list", "-o", "json"], filter].concat());
        let (mut found, mut wanted) = (addresses(&json), expected.to_vec());
        found.sort();
        wanted.sort_unstable();
        let table = a.cli([&["list"], filter].concat());
        let lines: Vec<&str> = table.stdout.lines().collect();
        let is_table = table.succeeded()
            && lines
                .first()
                .is_some_and(|header| header.starts_with("NETWORK") && header.contains("ADDRESS"))
            && lines.len() == 1 + expected.len()
            && expected.iter().all(|row| {
                let (network, address) = row.split_once(' ').expect("two words");
                let cells = |line: &&str| line.split_whitespace().take(2).eq([network, address]);
                lines.iter().any(cells)
            });
        [expect(&row, found == wanted, json), expect(&row, is_table, table)]
    }));
    cluster.assert_clean();
}

#[test]
fn a_name_that_nobody_has_is_told() {
    let (cluster, a, _) = populated();
    let rows: [(&[&str], &str); 11] = [
        (
            &["--network", "default", "--namespace", "nss"],
            "there in namespace \"nss\"; did you mean \"ns\"?\n",
        ),
        (
            &["--network", "storaeg", "--namespace", "nss"],
            "in network \"storaeg\"; did you mean \"storage\"?\n",
        ),
        (&["--cluster", "tset"], "in cluster \"tset\"; did you mean \"test\"?\n"),
        (&["--namespace", "nosuch"], "metes: no address is held in namespace \"nosuch\"\n"),
        (&["--node", "nosuch"], "metes: no address is held on node \"nosuch\"\n"),
        (&["--network", "storaeg"], "in network \"storaeg\"; did you mean \"storage\"?\n"),
        (&["--pod", "ns/wbe-0"], "by pod \"ns/wbe-0\"; did you mean \"ns/web-0\"?\n"),
        (&["--cluster", "tset", "--node", "a"], "in cluster \"tset\"; did you mean \"test\"?\n"),
        // Each of these is known.
        (&["--network", "storage", "--node", "b"], ""),
        (&["--node", "a"], ""),
        (&[], ""),
    ];
    report(rows.map(|(filter, hint)| {
        let outcome = a.cli([&["list"], filter].concat());
        let is_right = match hint {
            "" => outcome.stderr.is_empty(),
            hint => outcome.stderr.ends_with(hint) && outcome.stderr.lines().count() == 1,
        };
        expect(&filter.join(" "), is_right && outcome.succeeded(), outcome)
    }));
    let released = a.cli(["release", "10.0.0.99", "--yes"]);
    assert_eq!(
        (released.status.code(), released.stdout.as_str(), released.stderr.as_str()),
        (Some(1), "", "metes: nobody holds 10.0.0.99, in any network: there is nothing to free\n"),
    );
    cluster.assert_clean();
}

#[test]
fn show() {
    let (cluster, a, _) = populated();
    let rows: [(&str, &[&str]); 6] = [
        ("10.0.0.1", &["default 10.0.0.1", "storage 10.0.0.1"]),
        ("FD00:0:0::1", &["default fd00::1"]),
        ("192.0.2.1", &["- 192.0.2.1"]),
        ("c1", &["default 10.0.0.1", "default fd00::1"]),
        ("c2", &["default 10.0.0.2"]),
        ("c4", &["- 192.0.2.1"]),
    ];
    report(rows.into_iter().flat_map(|(what, expected)| {
        let json = a.cli(["show", what, "-o", "json"]);
        let text = a.cli(["show", what]);
        let address = expected[0].split(' ').nth(1).expect("two words");
        let is_text = text.succeeded() && text.stdout.contains(address) && text.stdout.contains("container");
        [expect(what, addresses(&json) == expected, &json), expect(what, is_text, &text)]
    }));
    assert_eq!(
        a.cli(["show", "c1", "-o", "json"]).ok(),
        a.cli(["list", "--pod", "ns/web-0", "-o", "json"]).ok()
    );
    report(["10.0.0.9", "c9", "fd00::9"].map(|what| {
        let outcome = a.cli(["show", what]);
        let is_right = outcome.status.code() == Some(1)
            && outcome.stdout.is_empty()
            && outcome.stderr.contains(what)
            && outcome.stderr.lines().count() == 1;
        expect(what, is_right, outcome)
    }));
    cluster.assert_clean();
}

#[test]
fn usage() {
    let (cluster, a, _) = populated();
    let small = network(json!({"range": "10.7.0.0/30", "network_name": "small"}));
    let alone = network(json!({"range": "10.8.0.0/24", "enable_overlapping_ranges": false}));
    for container in ["d1", "d2"] {
        a.add(container).config(&small).run().ok();
    }
    a.add("e1").config(&alone).run().ok();
    let rows = a.cli(["usage", "-o", "json"]).ok();
    let rows = rows.as_array().expect("an array");
    let seen: Vec<Value> = rows
        .iter()
        .map(|row| json!([row["network"], row["range"], row["state"], row["size"], row["held"], row["free"]]))
        .collect();
    let row = |network: &str, range: &str, size: u64, held: u64| {
        json!([network, range, "asked", size.to_string(), held, (size - held).to_string()])
    };
    let own = "default@00000000000000000000ffff0a080000-24";
    report(
        [
            row("default", "10.0.0.0/24", 254, 2),
            row("storage", "10.0.0.0/24", 254, 1),
            row("small", "10.7.0.0/30", 2, 2),
            row(own, "10.8.0.0/24", 254, 1),
        ]
        .map(|row| expect("usage", seen.contains(&row), format!("{row} is not in {seen:?}"))),
    );
    let held: u64 = rows.iter().filter_map(|row| row["held"].as_u64()).sum();
    assert_eq!(held, 7, "every reserved address counts once: {rows:?}");
    let table = a.cli(["usage"]);
    let cells = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let lines: Vec<Vec<String>> = table.stdout.lines().map(cells).collect();
    let header =
        ["NETWORK", "RANGE", "STATE", "SIZE", "HELD", "FREE", "USED", "COOLING", "ASIDE", "UNUSED", "FOR"];
    assert_eq!(lines[0][..11], header, "{table}");
    let small = ["small", "10.7.0.0/30", "asked", "for", "2", "2", "0", "100%", "0", "0", "0"];
    assert!(lines.iter().any(|line| line.starts_with(&small.map(str::to_owned))), "{table}");
    cluster.assert_clean();
}

#[test]
fn usage_is_exact_and_knows_what_nobody_asks_for_any_more() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    let of = |range: Value| network(json!({"ipRanges": [range, {"range": "fd00::/64"}]}));
    let limits = json!({"range_start": "10.0.0.10", "range_end": "10.0.0.19", "exclude": ["10.0.0.12/31"]});
    let mut wide = json!({"range": "10.0.0.0/24"});
    wide.as_object_mut().expect("an object").extend(limits.as_object().expect("an object").clone());
    for container in ["c1", "c2", "c3"] {
        node.add(container).config(&of(wide.clone())).run().ok();
    }
    let asked = |store: &Store| store.entries("v1/asked/");
    let once = asked(cluster.store());
    assert_eq!(once.len(), 1, "{once:?}");
    // The next ADD would write it again, were it not young.
    let (key, record) = once[0].clone();
    cluster.store().delete(&key);
    node.add("c4").config(&of(wide.clone())).run().ok();
    assert_eq!(asked(cluster.store()), [], "it is written again only after a while");
    cluster.store().put(&key, record);
    let rows = node.cli(["usage", "-o", "json"]).ok();
    let seen = |rows: &Value, keys: [&str; 4]| -> Vec<Vec<Value>> {
        let rows = rows.as_array().expect("an array").iter();
        rows.map(|row| keys.map(|key| row[key].clone()).to_vec()).collect()
    };
    let keys = ["range", "state", "size", "free"];
    let six = json!(["fd00::/64", "asked", "18446744073709551614", "18446744073709551610"]);
    let four = json!(["10.0.0.10-10.0.0.19/24", "asked", "8", "4"]);
    assert_eq!(json!(seen(&rows, keys)), json!([four, six]));

    // 10.0.0.10, 10.0.0.11 and 10.0.0.14 are held by then, and 10.0.0.15.
    let narrow = json!({"range": "10.0.0.0/28", "range_start": "10.0.0.10"});
    node.add("c5").config(&of(narrow)).run().ok();
    let rows = node.cli(["usage", "-o", "json"]).ok();
    let old =
        rows.as_array().expect("an array").iter().find(|row| row["state"] == "older").expect("the old one");
    assert_eq!(old["range"], "10.0.0.10-10.0.0.19/24", "{rows:#}");
    assert_eq!(old["left"][0]["address"], "10.0.0.15", "{rows:#}");
    let table = node.cli(["usage"]);
    assert!(
        table.stdout.contains(
            "10.0.0.10-10.0.0.19/24 of network default: 1 address is held that no newer range gives"
        ),
        "{table}"
    );
    cluster.assert_clean();
}

/// Everything that lists, with how many rows it has in a populated store, and a name that it prints.
const LISTS: [(&[&str], usize, &str); 8] = [
    (&["list"], 6, "storage/10.0.0.1"),
    (&["show", "10.0.0.1"], 2, "default/10.0.0.1"),
    (&["usage"], 4, "10.0.0.0/24"),
    (&["top", "--by", "pod"], 4, "other/web-0"),
    (&["leaks"], 0, ""),
    (&["holds"], 1, "default/10.0.0.9"),
    (&["pool", "list"], 1, "made"),
    (&["pool", "status"], 1, "made"),
];

#[test]
fn lists_have_one_set_of_flags() {
    let (cluster, a, _) = populated();
    a.cli(["hold", "10.0.0.9", "--network", "default", "--note", "printer"]).ok_text();
    let pool = r#"{"pool": "made", "ranges": [{"range": "10.4.0.0/24"}]}"#;
    a.pool(&["apply", "-f", "-", "--yes"], pool).ok_text();
    report(LISTS.into_iter().flat_map(|(list, rows, name)| {
        let run = |flags: &[&str]| a.cli([list, flags].concat());
        let of = |what: &str| format!("{} {what}", list.join(" "));
        let json = run(&["-o", "json"]).ok();
        let yaml: Result<Value, _> = yaml_serde::from_str(run(&["-o", "yaml"]).ok_text());
        let names = run(&["-o", "name"]);
        let wide = run(&["-o", "wide", "--no-headers"]);
        let header = run(&["-o", "wide"]).ok_text().lines().next().unwrap_or_default().to_owned();
        let fields: Vec<&str> = header.split("  ").map(str::trim).filter(|field| !field.is_empty()).collect();
        let wrong = run(&["--sort-by", "nosuch"]);
        let names_fields = fields.iter().all(|field| wrong.stderr.contains(field));
        let sorted = fields.iter().find_map(|field| {
            let sorted = run(&["--sort-by", &field.to_lowercase(), "-o", "json"]);
            let is_whole = sorted.succeeded() && sorted.json().as_array().map(Vec::len) == Some(rows);
            expect(&of(field), is_whole, sorted)
        });
        [
            expect(&of("json"), json.as_array().map(Vec::len) == Some(rows), &json),
            expect(&of("yaml"), yaml.as_ref().ok() == Some(&json), format!("{yaml:?} {json}")),
            expect(&of("name"), name.is_empty() || names.ok_text().lines().any(|line| line == name), &names),
            expect(&of("name"), names.ok_text().lines().count() == rows, &names),
            expect(&of("wide"), wide.ok_text().lines().count() == rows, &wide),
            expect(&of("sort"), wrong.status.code() == Some(2) && names_fields, &wrong),
            sorted,
        ]
    }));
    let sorted = a.cli(["ls", "--sort-by", "address", "-o", "name"]);
    let last = ["default/10.0.0.9", "/192.0.2.1", "default/fd00::1"];
    assert_eq!(sorted.ok_text().lines().skip(3).collect::<Vec<_>>(), last, "{sorted}");
    assert_eq!(addresses(&a.cli(["get", "--namespace", "other", "-o", "json"])), ["- 192.0.2.1"]);
    assert_eq!(a.cli(["pool", "ls", "--network", "storage", "-o", "json"]).ok(), json!([]));
    a.cli(["hold", "--remove", "10.0.0.9"]).ok_text();
    cluster.assert_clean();
}

#[test]
fn ids_are_shortened_in_tables_and_accepted_so() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    let (id, other) = ("0123456789ab".to_owned() + &"c".repeat(52), "f".repeat(64));
    for container in [&id, &other] {
        add(&node, container, &container[..4]).ok();
    }
    let table = node.cli(["list"]);
    assert!(table.ok_text().contains("  0123456789ab\n") && !table.stdout.contains(&id), "{table}");
    assert!(node.cli(["list", "-o", "wide"]).ok_text().contains(&id));
    let shown = node.cli(["show", "0123456789ab", "-o", "json"]).ok();
    assert_eq!(shown[0]["container_id"], json!(id), "{shown}");
    cluster.assert_clean();
}

#[test]
fn a_name_means_the_same_to_all_commands() {
    let (cluster, a, _) = populated();
    let listed = |arguments: &[&str]| -> BTreeSet<String> {
        let outcome = a.cli([arguments, &["-o", "name"]].concat());
        outcome.ok_text().lines().map(str::to_owned).collect()
    };
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    let of_default: &[&str] = &["default/10.0.0.1", "default/10.0.0.2", "default/fd00::1"];
    for (what, expected) in [
        ("default", of_default),
        ("b", &["default/10.0.0.2", "/192.0.2.1"]),
        ("other", &["/192.0.2.1"]),
        ("ns/web-0", &["default/10.0.0.1", "default/fd00::1"]),
        ("fd00::1", &["default/fd00::1"]),
        ("10.0.0.2/31", &["default/10.0.0.2"]),
    ] {
        for command in ["list", "show"] {
            assert_eq!(listed(&[command, what]), names(expected), "{command} {what}");
        }
    }
    assert_eq!(listed(&["list", "default", "--node", "b"]), names(&["default/10.0.0.2"]));
    assert_eq!(listed(&["list", "default", "--limit", "1"]), names(&["default/10.0.0.1"]));
    let ranges = listed(&["usage"]);
    let of_storage = listed(&["usage", "storage"]);
    assert!(!of_storage.is_empty() && of_storage.is_subset(&ranges), "{of_storage:?} of {ranges:?}");
    assert_eq!(listed(&["usage", "storage", "--as", "network"]), of_storage);
    for (arguments, words) in [
        (&["list", "defalt"][..], "no network, pool, namespace, node or container of that name is known"),
        (&["list", "defalt"], "did you mean \"default\"?"),
        (&["show", "othr"], "did you mean \"other\"?"),
        (&["usage", "storag"], "no network or pool of that name is known; did you mean \"storage\"?"),
        (&["usage", "ns/web-0"], "usage is of ranges"),
        (&["list", "10.0.0.1", "--watch"], "10.0.0.1 is address 10.0.0.1"),
        (&["list", "10.0.0.0/40"], "10.0.0.0/40 is not a prefix"),
        (&["map", "10.0.0.0/40"], "10.0.0.0/40 is not a prefix"),
        (&["map", "defalt"], "no network or pool \"defalt\" is known; did you mean \"default\"?"),
        (&["release", "ns/web-9", "-y"], "no container of the pod ns/web-9 holds an address"),
    ] {
        let outcome = a.cli(arguments);
        assert!(outcome.status.code() == Some(1) && outcome.stderr.contains(words), "{words}: {outcome}");
    }
    let nobody = a.cli(["list", "192.0.2.7"]);
    assert!(nobody.succeeded() && nobody.stderr.contains("nothing is held of address 192.0.2.7"), "{nobody}");
    let freed = a.cli(["release", "ns/web-0", "-y"]);
    assert!(freed.ok_text().contains("10.0.0.1 of network default, fd00::1 of network default"), "{freed}");
    assert_eq!(listed(&["list", "default"]), names(&["default/10.0.0.2"]));
    cluster.assert_clean();
}

#[test]
fn an_address_that_nobody_holds_is_told_what_it_is() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    let config = network(json!({
        "range": "10.0.0.0/24", "range_start": "10.0.0.8", "gateway": "10.0.0.254", "exclude": ["10.0.0.16/30"],
        "cooldown": "10m",
    }));
    assert_eq!(node.add("c1").config(&config).run().address(), "10.0.0.8");
    node.del("c1").config(&config).run().silent();
    report(
        [
            ("10.0.0.8", &["it is cooling for 10m ", "s more in "][..]),
            ("10.0.0.9", &["it is free in "]),
            ("10.0.0.17", &["it is excluded in "]),
            ("10.0.0.254", &["it is a gateway in "]),
            ("10.0.0.0", &["it is the network's own address in "]),
            ("10.0.0.255", &["it is the broadcast address in "]),
            ("default/10.0.0.5", &["it is outside of the range's bounds in "]),
            ("10.9.0.1", &["no known range has it; metes show /10.9.0.1 looks for"]),
        ]
        .map(|(address, words)| {
            let outcome = node.cli(["show", address]);
            let is_known = outcome.stderr.contains(" of network default (asked for by configurations)");
            let is_right = words.iter().all(|words| outcome.stderr.contains(words))
                && is_known == (address != "10.9.0.1")
                && outcome.status.code() == Some(1);
            expect(address, is_right, outcome)
        }),
    );
    cluster.assert_clean();
}

/// On a terminal of so many columns.
fn on_a_terminal(node: &Node, columns: u32, arguments: &str) -> String {
    let command = format!("stty cols {columns}; {} {arguments}", metes().display());
    let run = Run::new("script").env("METES_CONF", node.host_file()).env("TERM", "xterm");
    run.arguments(["-qec", &command, "/dev/null"]).run().ok_text().replace('\r', "")
}

#[test]
fn a_table_fits_its_terminal_and_is_whole_in_a_pipe() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    let pod = "a-pod-with-a-name-that-is-much-too-long-for-a-terminal";
    node.add(&"c".repeat(64)).pod("ns", pod, "u1").config(&range()).run().ok();
    let shown = on_a_terminal(&node, 80, "list");
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[0].starts_with("\u{1b}[1mNETWORK") && lines[0].ends_with("AGE\u{1b}[0m"), "{shown:?}");
    assert!(lines[1].contains('\u{2026}') && lines[1].chars().count() <= 80, "{shown:?}");
    assert!(lines[1].contains("10.0.0.1 "), "{shown:?}");
    assert!(on_a_terminal(&node, 80, "list -o wide").contains(pod));
    let plain = node.cli(["list"]);
    assert!(plain.ok_text().contains(pod) && !plain.stdout.contains('\u{1b}'), "{plain}");
    cluster.store().put("v1/junk", "junk");
    let red = on_a_terminal(&node, 80, "check; true");
    assert!(red.contains("\u{1b}[31mviolation foreign-key"), "{red:?}");
    let run = Run::new("script").env("METES_CONF", node.host_file()).env("NO_COLOR", "1");
    let plain = run.arguments(["-qec", &format!("{} list", metes().display()), "/dev/null"]).run();
    assert!(plain.stdout.contains("NETWORK") && !plain.stdout.contains('\u{1b}'), "{plain}");
    cluster.leave_unclean();
}

/// The names of pods of a StatefulSet have 45 characters here, and differ in the last one.
#[test]
fn no_table_is_wider_than_its_terminal_and_no_two_rows_look_alike() {
    let cluster = Cluster::new();
    let node = cluster.node("gpu-rack-07-node-0123456789.example.internal");
    let stem = "a-database-of-the-accounting-department-east";
    let storage = |range: &str| network(json!({"range": range, "network_name": "storage-of-the-east-side"}));
    for index in 0..3 {
        let pod = format!("{stem}{index}");
        for (range, ifname) in [("10.0.0.0/24", "net1"), ("10.1.0.0/16", "net2")] {
            let add = node.add(&format!("{index}").repeat(64)).ifname(ifname);
            add.pod("team-of-the-accounting", &pod, &format!("u{index}")).config(&storage(range)).run().ok();
        }
        let address = format!("10.0.0.{}", 100 + index);
        let network = "storage-of-the-east-side";
        let note = format!("a printer in the hall of the accounting department, at desk number {index}");
        assert!(node.cli(["hold", &address, "--network", network, "--note", &note]).succeeded());
        let pool = json!({
            "pool": format!("pool-of-the-accounting-department-{index}"), "network": network,
            "ranges": [{"range": format!("10.{}.0.0/24", 10 + index)}],
        });
        node.cli_run(["pool", "apply", "-y", "-f", "-"]).stdin(pool.to_string()).run().ok_text();
    }
    for columns in [80, 160] {
        for command in [
            "list",
            "list --no-headers",
            "usage",
            "top",
            "top --by namespace",
            "holds",
            "pool list",
            "pool status",
            "pool show pool-of-the-accounting-department-1",
        ] {
            let shown = on_a_terminal(&node, columns, command);
            let rows: Vec<&str> = shown.lines().filter(|line| !line.is_empty()).collect();
            assert!(!rows.is_empty(), "{command}: {shown:?}");
            let mut seen = BTreeSet::new();
            for row in rows {
                let row = row.replace("\u{1b}[1m", "").replace("\u{1b}[0m", "");
                let width = row.chars().count();
                assert!(width <= columns as usize, "{command}: {width} of {columns} columns: {row:?}");
                assert!(seen.insert(row.clone()), "{command}, {columns} columns: two rows are {row:?}");
            }
        }
    }
    cluster.assert_clean();
}

#[test]
fn what_is_misspelt_is_told_with_what_may_be_meant() {
    for (wrong, meant) in [
        (&["lsit"][..], "'list'"),
        (&["realese", "10.0.0.1"], "'release'"),
        (&["list", "--netwrok", "a"], "'--network'"),
        (&["list", "-o", "yml"], "yaml"),
    ] {
        let outcome = bare(wrong);
        assert!(outcome.status.code() == Some(2) && outcome.stderr.contains(meant), "{outcome}");
    }
    // The flag that overrules the brake.
    let outcome = Run::new(support::reconciler()).arguments(["--once"]).run();
    assert!(outcome.status.code() == Some(2) && !outcome.stderr.contains("--force"), "{outcome}");
}

#[test]
fn endpoints_and_a_time_are_given_by_hand() {
    let cluster = Cluster::new();
    let node = with_one(&cluster);
    let host: Value =
        serde_json::from_slice(&std::fs::read(node.host_file()).expect("it is there")).expect("JSON");
    let endpoint = host["etcd"]["endpoints"][0].as_str().expect("a URL").to_owned();
    // Nothing answers there, and nothing refuses.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let dead = format!("http://{}", silent.local_addr().expect("it has one"));
    node.change_host_file(json!({"etcd": {"endpoints": [dead]}}));
    let slow = node.cli(["list", "--timeout", "1s"]);
    assert!(slow.status.code() == Some(1) && slow.stderr.contains("etcd"), "{slow}");
    assert!(slow.elapsed < std::time::Duration::from_secs(5), "{slow}");
    let given = node.cli(["list", "-o", "json", "--endpoints", &format!("{dead},{endpoint}")]);
    assert_eq!(addresses(&given), ["default 10.0.0.1"]);
    for (wrong, why) in
        [("nonsense", "not an endpoint"), ("https://127.0.0.1:1", "ca_file"), ("http://192.0.2.1:1", "http")]
    {
        let refused = node.cli(["list", "--endpoints", wrong]);
        assert!(refused.status.code() == Some(1) && refused.stderr.contains(why), "{refused}");
    }
    node.write_host_file(host.to_string());
    cluster.assert_clean();
}

#[test]
fn whatever_is_named_is_shown() {
    let (cluster, a, b) = populated();
    let pool = r#"{"pool": "made", "network": "storage", "ranges": [{"range": "10.4.0.0/24"}]}"#;
    let twin = r#"{"pool": "default", "ranges": [{"range": "10.5.0.0/24"}]}"#;
    for pool in [pool, twin] {
        a.pool(&["apply", "-f", "-", "--yes"], pool).ok_text();
    }
    b.add("made").config(&network(json!({"pool": "made"}))).run().ok();
    let of_storage = ["storage 10.0.0.1", "storage 10.4.0.1"];
    let of_default = ["default 10.0.0.1", "default 10.0.0.2", "default fd00::1"];
    let rows: [(&[&str], &[&str]); 15] = [
        (&["10.0.0.1/16"], &["default 10.0.0.1", "storage 10.0.0.1"]),
        (&["10.0.0.1", "--network", "storage"], &["storage 10.0.0.1"]),
        (&["storage/10.0.0.1"], &["storage 10.0.0.1"]),
        (&["/192.0.2.1"], &["- 192.0.2.1"]),
        (&["192.0.2.1/24"], &["- 192.0.2.1"]),
        (&["test/a/c1/eth0"], &["default 10.0.0.1", "default fd00::1"]),
        (&["ns/web-0"], &["default 10.0.0.1", "default fd00::1"]),
        (&["other/web-0"], &["- 192.0.2.1"]),
        (&["storage"], &of_storage),
        (&["10.0.0.0/24", "--network", "default"], &of_default[..2]),
        (&["10.0.0.0/23"], &["default 10.0.0.1", "default 10.0.0.2", "storage 10.0.0.1"]),
        (&["192.0.2.0/24"], &["- 192.0.2.1"]),
        (&["fd00::/63"], &["default fd00::1"]),
        (&["made", "--as", "pool"], &of_storage[1..]),
        (&["default", "--as", "network"], &of_default),
    ];
    report(rows.into_iter().flat_map(|(what, expected)| {
        let json = a.cli([&["show", "-o", "json"], what].concat());
        let text = a.cli([&["show"], what].concat());
        let row = what.join(" ");
        [expect(&row, addresses(&json) == expected, &json), expect(&row, text.succeeded(), &text)]
    }));
    for (what, words) in [
        ("made", &["could be several", "--as pool", "--as container"][..]),
        ("default", &["could be several", "--as network or --as pool"]),
        ("nosuch", &["no network, pool, namespace, node or container"]),
        ("10.9.0.0/16", &["no address of prefix 10.9.0.0/16 is held"]),
        ("ns/nosuch", &["pod ns/nosuch holds no address"]),
        ("10.9.0.0/33", &["10.9.0.0/33 is not a prefix", "must be 0 to 32"]),
        ("storage/10.0.0.256", &["10.0.0.256 is not an address"]),
        ("stroage/10.0.0.2", &["no network stroage is known; did you mean \"storage\"?"]),
        ("storage/10.0.0.2", &["storage/10.0.0.2 is not held"]),
        ("/10.0.0.1", &["10.0.0.1 is not recorded as a static address", "metes show 10.0.0.1"]),
    ] {
        let outcome = a.cli(["show", what]);
        assert!(outcome.status.code() == Some(1) && outcome.stdout.is_empty(), "{outcome}");
        assert!(words.iter().all(|word| outcome.stderr.contains(word)), "{outcome}");
    }
    cluster.assert_clean();
}

/// By etcd's own count. Thousands of addresses would cost more requests if all were read.
#[test]
fn what_is_looked_up_costs_no_more_than_it_needs() {
    const ADDRESSES: usize = 3000;
    let etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let (a, b) = (cluster.node("a"), cluster.node("b"));
    add(&a, "c1", "u1").ok();
    b.add("c2").config(&network(json!({"range": "10.0.0.0/24", "network_name": "storage"}))).run().ok();
    let record = |key: &str| cluster.store().get(key).expect("it is there");
    let (ip, owner) = (record(IP), String::from_utf8(record(OWNER)).expect("JSON"));
    let many = (0..ADDRESSES).flat_map(|at| {
        let address = format!("0000ffff0a{:02x}{:02x}07", 1 + at / 256, at % 256);
        let ip_key = format!("v1/net/default/ip/0000000000000000{address}");
        [(ip_key, ip.clone()), (format!("v1/owner/test/z/m{at}/eth0"), owner.clone().into_bytes())]
    });
    cluster.store().put_all(many);
    let requests = |arguments: &[&str], code: i32| {
        let count = || etcd.metric("grpc_server_started_total", &["grpc_method=\"Txn\""]);
        let before = count();
        let outcome = a.cli(arguments);
        assert_eq!(outcome.status.code(), Some(code), "{outcome}");
        count() - before
    };
    let rows: [(&[&str], i32, f64); 13] = [
        // The reservation; and its owner's record, which names the pool.
        (&["show", "10.0.0.99", "--network", "default"], 1, 4.0),
        (&["show", "10.0.0.1", "--network", "default"], 0, 2.0),
        // Without a network: the asked ranges, the pools, the addresses set aside, and the rest, which these do not
        // tell.
        (&["show", "10.0.0.1"], 0, 6.0),
        (&["list", "--network", "default", "--limit", "2"], 0, 7.0),
        (&["show", "10.0.0.0/24", "--network", "default"], 0, 2.0),
        // The record, and the keys of its addresses.
        (&["show", "test/a/c1/eth0"], 0, 2.0),
        (&["list", "--network", "storage"], 0, 2.0),
        (&["list", "--node", "a", "--cluster", "test"], 0, 2.0),
        // And the clusters.
        (&["list", "--node", "a"], 0, 4.0),
        // Nobody has it, and among so many owners no static address is looked for: they are counted.
        (&["show", "10.0.0.99"], 1, 10.0),
        // The names of clusters, nodes and networks, which are looked up in more steps the more there are.
        (&["list", "--node", "nosuch"], 0, 9.0),
        (&["list", "--node", "a", "--namespace", "nosuch"], 0, 4.0),
        (&["list", "--network", "nosuch"], 0, 5.0),
    ];
    report(rows.map(|(arguments, code, most)| {
        let count = requests(arguments, code);
        expect(&arguments.join(" "), count == most, format!("{count} requests, expected {most}"))
    }));
    let static_one = json!({"addresses": [{"address": "192.0.2.1/24"}]});
    a.add("c3").config(&network(static_one)).run().ok();
    let unsought = a.cli(["show", "192.0.2.1"]);
    assert!(unsought.stderr.contains("metes show /192.0.2.1 looks for a static address"), "{unsought}");
    assert!(a.cli(["show", "/192.0.2.1"]).ok_text().contains("192.0.2.1"));
    let similar = a.cli(["list", "--namespace", "nss"]);
    assert!(
        similar.stderr.contains("no address is held in namespace \"nss\"; did you mean \"ns\"?"),
        "{similar}"
    );
    let most = requests(&["list"], 0);
    assert!(most > 6.0, "all is read where all is asked for");
    // Its networks, who has it there, all that this owner holds; then the release itself.
    let released = requests(&["release", "10.0.0.1", "--network", "default", "--yes"], 0);
    assert!(released < most + 6.0 && released <= 12.0, "{released} requests");
    cluster.leave_unclean();
}

#[test]
fn nothing_is_held() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    for verb in ["list", "usage"] {
        assert_eq!(node.cli([verb, "-o", "json"]).ok(), json!([]), "{verb}");
        assert_eq!(node.cli([verb]).stdout.lines().count(), 1, "{verb}: only the header");
    }
    let check = node.cli(["check", "-o", "json"]).ok();
    assert_eq!(check["violations"], json!([]));
    assert!(cluster.store().keys("").is_empty(), "looking writes nothing");
    cluster.assert_clean();
}

#[test]
fn what_a_check_finds_is_explained() {
    let cluster = Cluster::new();
    let node = with_one(&cluster);
    cluster.store().put("v1/odd", b"?".to_vec());
    let check = node.cli(["check"]);
    assert_eq!(check.status.code(), Some(1), "{check}");
    assert!(check.stdout.contains("violation foreign-key: "), "{check}");
    assert!(check.stdout.ends_with("says what a kind of violation means, and what to do\n"), "{check}");
    cluster.store().delete("v1/odd");
    assert!(!node.cli(["check"]).stdout.contains("--explain"), "nothing is to be explained");
    // It needs no etcd and no host file.
    let explain = |kind: &str| {
        Run::new(metes()).env("METES_CONF", "/nowhere").arguments(["check", "--explain", kind]).run()
    };
    let text = explain("foreign-key").stdout;
    assert!(text.starts_with("foreign-key\n  Another program writes below the prefix"), "{text}");
    assert!(explain("all").stdout.contains("\nstray-bit\n"));
    assert!(explain("foreign-keys").stderr.contains("did you mean \"foreign-key\"?"));
    cluster.assert_clean();
}

fn release(node: &Node, arguments: &[&str], answer: &str) -> Outcome {
    let run = Run::new(metes()).env("METES_CONF", node.host_file()).arguments(["release"]);
    run.arguments(arguments).stdin(answer).run()
}

#[test]
fn release_asks() {
    let cluster = Cluster::new();
    let node = with_one(&cluster);
    let before = cluster.store().entries("v1/");
    report([("no", "n\n"), ("nothing", ""), ("an empty line", "\n"), ("another word", "maybe\n")].map(
        |(row, answer)| {
            let outcome = release(&node, &["10.0.0.1"], answer);
            let is_right = outcome.status.code() == Some(1)
                && outcome.stdout.is_empty()
                && outcome.stderr.contains("10.0.0.1")
                && outcome.stderr.contains("c1")
                && cluster.store().entries("v1/") == before;
            expect(row, is_right, outcome)
        },
    ));
    for answer in ["y\n", "Yes\n"] {
        let outcome = release(&node, &["10.0.0.1"], answer);
        assert!(outcome.succeeded() && outcome.stdout.contains("10.0.0.1"), "{outcome}");
        cluster.assert_nothing_held();
        assert_eq!(add(&node, "c2", "u2").addresses().len(), 1);
        let outcome = release(&node, &["--container", "c2", "--yes"], "");
        assert!(outcome.succeeded(), "{outcome}");
        assert!(!outcome.stderr.contains('?'), "it does not ask: {outcome}");
        cluster.assert_nothing_held();
        node.add("c1").args("IP=10.0.0.1").config(&range()).run().ok();
    }
    cluster.assert_clean();
}

/// Between the question and the answer the container is deleted, and another run takes its names.
#[test]
fn release_frees_only_what_it_has_shown() {
    let cluster = Cluster::new();
    let node = with_one(&cluster);
    let mut release = Command::new(metes());
    release.env_clear().env("METES_CONF", node.host_file()).args(["release", "10.0.0.1"]);
    release.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut release = release.spawn().expect("it starts");
    let mut shown = Vec::new();
    let mut stderr = release.stderr.take().expect("it is piped");
    while !shown.ends_with(b"[y/N] ") {
        let mut byte = [0];
        stderr.read_exact(&mut byte).expect("it asks");
        shown.extend(byte);
    }
    node.del("c1").config(&range()).run().silent();
    assert_eq!(node.add("c1").args("IP=10.0.0.1").config(&range()).run().address(), "10.0.0.1");
    release.stdin.take().expect("it is piped").write_all(b"y\n").expect("it listens");
    let mut told = String::new();
    stderr.read_to_string(&mut told).expect("text");
    assert_eq!(release.wait().expect("it ends").code(), Some(1), "{told}");
    assert!(told.contains("written anew meanwhile"), "{told}");
    assert_eq!(node.list().len(), 1, "what was taken since stays");
    cluster.assert_clean();
}

/// Nothing is called free that may be held, and no address is freed where two may be meant.
#[test]
fn release_knows_what_it_cannot_read_and_what_is_only_recorded() {
    let cluster = Cluster::new();
    let node = with_one(&cluster);
    let recorded = json!({"type": "metes", "addresses": [{"address": "10.0.0.1/24"}]});
    let config = json!({"cniVersion": "1.0.0", "name": "net", "ipam": recorded});
    node.add("c2").config(&config).run().ok();
    let both = release(&node, &["10.0.0.1", "--yes"], "");
    assert!(both.status.code() == Some(1) && both.stderr.contains("--container"), "{both}");
    assert!(release(&node, &["--container", "c2", "--yes"], "").succeeded());
    let (store, owner) = (cluster.store(), "v1/owner/test/a/c1/eth0");
    let whole = store.get(owner).expect("c1 has a record");
    store.put(owner, "garbage");
    for arguments in [&["--container", "c1", "--yes"][..], &["-f", "-", "--yes"]] {
        let refused = release(&node, arguments, "test/a/c1/eth0\n");
        let told = refused.stderr.contains("metes check --mend undecodable-owner");
        assert!(refused.status.code() == Some(1) && told, "{arguments:?}: {refused}");
    }
    store.put(owner, whole);
    assert!(release(&node, &["10.0.0.1", "--yes"], "").succeeded());
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

#[test]
fn release_frees_a_whole_owner() {
    let rows: [(&[&str], &[&str]); 5] = [
        (&["fd00::1"], &["- 192.0.2.1", "default 10.0.0.2", "storage 10.0.0.1"]),
        (&["10.0.0.1", "--network", "default"], &["- 192.0.2.1", "default 10.0.0.2", "storage 10.0.0.1"]),
        (
            &["10.0.0.1", "--network", "storage"],
            &["- 192.0.2.1", "default 10.0.0.1", "default 10.0.0.2", "default fd00::1"],
        ),
        (&["--container", "c1"], &["- 192.0.2.1", "default 10.0.0.2", "storage 10.0.0.1"]),
        (&["192.0.2.1"], &["default 10.0.0.1", "default 10.0.0.2", "default fd00::1", "storage 10.0.0.1"]),
    ];
    for (arguments, left) in rows {
        let (cluster, a, _) = populated();
        let outcome = release(&a, &[arguments, &["--yes"]].concat(), "");
        assert!(outcome.succeeded(), "{outcome}");
        let mut found = addresses(&a.cli(["list", "-o", "json"]));
        found.sort();
        assert_eq!(found, left, "release {arguments:?}");
        cluster.assert_clean();
    }
}

#[test]
fn several_are_released_after_one_question() {
    let (cluster, a, _) = populated();
    let outcome = release(&a, &["10.0.0.2", "storage/10.0.0.1"], "y\n");
    assert!(outcome.succeeded() && outcome.stderr.matches('?').count() == 1, "{outcome}");
    assert_eq!(outcome.stdout.lines().count(), 2, "{outcome}");
    let names = a.cli(["list", "-o", "name"]).ok_text().to_owned();
    assert_eq!(names.lines().count(), 3, "{names}");
    let asks = release(&a, &["-f", "-"], &names);
    assert!(asks.status.code() == Some(1) && asks.stderr.contains("--yes"), "{asks}");
    let wrong = release(&a, &["-f", "-", "--yes"], &(names.clone() + "nonsense\n"));
    assert!(wrong.status.code() == Some(1) && wrong.stderr.contains("line 4"), "{wrong}");
    assert_eq!(a.list().len(), 3, "nothing was freed");
    let file = cluster.folder().join("names");
    std::fs::write(&file, format!("# leaked\n\ndefault/10.0.0.9\ntest/a/gone/eth0\n{names}"))
        .expect("a file");
    let outcome = release(&a, &["-f", file.to_str().expect("a path"), "--yes"], "");
    assert!(
        outcome.succeeded() && outcome.stderr.contains("nobody holds 10.0.0.9, in any network"),
        "{outcome}"
    );
    assert!(outcome.stderr.contains("container gone on a of cluster test holds nothing"), "{outcome}");
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

#[test]
fn top_counts_who_holds_the_most() {
    let (cluster, a, _) = populated();
    a.add("c5").pod("ns", "web-2", "u5").config(&range()).run().ok();
    for (arguments, expected) in [
        (&["--by", "node"][..], json!([{"name": "a", "held": 4}, {"name": "b", "held": 2}])),
        (&[], json!([{"name": "ns", "held": 4}, {"name": null, "held": 1}, {"name": "other", "held": 1}])),
        (&["--by", "pod", "--most", "1"], json!([{"name": "ns/web-0", "held": 2}])),
        (
            &["--by", "network", "--node", "a"],
            json!([{"name": "default", "held": 3}, {"name": "storage", "held": 1}]),
        ),
    ] {
        let top = a.cli([&["top", "-o", "json"], arguments].concat());
        assert_eq!(top.ok(), expected, "{arguments:?}");
    }
    for (by, header) in [("namespace", "NAMESPACE"), ("pod", "POD"), ("node", "NODE"), ("network", "NETWORK")]
    {
        let table = a.cli(["top", "--by", by, "--sort-by", by]);
        let words: Vec<&str> =
            table.ok_text().lines().next().unwrap_or_default().split_whitespace().collect();
        assert_eq!(words, [header, "HELD"], "{table}");
    }
    let sorted = a.cli(["top", "--by", "node", "--sort-by", "name", "--no-headers"]);
    assert_eq!(sorted.ok_text(), "a  4\nb  2\n");
    assert_eq!(a.cli(["top", "--by", "node", "--sort-by", "held", "--no-headers"]).ok_text(), "b  2\na  4\n");
    cluster.assert_clean();
}

/// The suspected owners, each with the reason.
fn suspected(node: &Node, filter: &[&str]) -> Vec<(String, String)> {
    let leaks = node.cli([&["leaks", "-o", "json"], filter].concat()).ok();
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let rows = leaks.as_array().expect("an array").iter();
    rows.map(|row| (text(&row["container_id"]), text(&row["why"]))).collect()
}

#[test]
fn leaks_are_suspected_with_why_and_released() {
    let cluster = Cluster::new();
    let (a, b) = (cluster.node("a"), cluster.node("b"));
    let store = cluster.store();
    for (node, id, uid) in
        [(&a, "c1", "u1"), (&a, "c2", "u2"), (&b, "c3", "u3"), (&b, "c4", "u4"), (&b, "c5", "u5")]
    {
        add(node, id, uid).ok();
    }
    assert_eq!(suspected(&a, &[]), []);
    let of = |id: &str, why: &str| (id.to_owned(), why.to_owned());
    // The reconciler's notes of this very record, and of one that was written again since.
    let revision = |key: &str| {
        let key = store.key(key);
        store.run(async |client| Ok(client.get(key, None).await?.kvs()[0].mod_revision()))
    };
    let sighting =
        |revision: i64| format!(r#"{{"v":1,"reason":"pod-gone","revision":{revision},"grace":1800}}"#);
    store.put_leased("v1/orphan/test/a/c1/eth0", sighting(revision(OWNER)), 600);
    store.put_leased("v1/orphan/test/b/c5/eth0", sighting(1), 600);
    store.put_leased("v1/orphan/test/b/c4/eth0", sighting(1).replace("pod-gone", "unlabelled"), 600);
    // A younger sandbox of the same pod, which did not take over. It may be that a DEL is due.
    change(store, "v1/pod/test/u3/eth0/default", |record| record["container"] = json!("c4"));
    // Reserved in an earlier boot of its node: another container of it was attached since. It may yet be taken over.
    change(store, "v1/owner/test/a/c2/eth0", |record| record["start"]["boot"] = json!("an-earlier-one"));
    add(&a, "c6", "u6").ok();
    assert_eq!(suspected(&a, &[]).len(), 1, "each is no proof");
    // Both together are.
    change(store, "v1/pod/test/u2/eth0/default", |record| record["container"] = json!("c6"));
    let found = suspected(&a, &[]);
    assert!(found[0].1.starts_with("the reconciler has seen it as an orphan for "), "{found:?}");
    assert!(found[0].0 == "c1" && found[0].1.ends_with(" (pod-gone): it frees it after 30m"), "{found:?}");
    let why = "its node was started again, and a younger sandbox of its pod has addresses of its own";
    assert_eq!(found[1..], [of("c2", why)]);
    assert_eq!(suspected(&a, &["--node", "b"]), []);
    let names = a.cli(["leaks", "-o", "name", "--node", "a"]);
    assert_eq!(names.ok_text(), "test/a/c1/eth0\ntest/a/c2/eth0\n");
    assert!(release(&a, &["-f", "-", "--yes"], &names.stdout).succeeded());
    assert_eq!(suspected(&a, &["--node", "a"]), []);
    // The same names once more, when another container has got the address.
    a.add("c7").args("IP=10.0.0.1").config(&range()).run().ok();
    let again = release(&a, &["-f", "-", "--yes"], &names.stdout);
    assert!(
        again.succeeded() && again.stderr.contains("container c1 on a of cluster test holds nothing"),
        "{again}"
    );
    assert_eq!(a.list().len(), 5, "what is not suspected stays");
    cluster.leave_unclean();
}

/// A watch with its output in a file, so that a test can read it meanwhile.
fn watching(node: &Node, file: &std::path::Path, arguments: &str) -> support::Running {
    let command = format!("exec {} {arguments} >{}", metes().display(), file.display());
    Run::new("sh").env("METES_CONF", node.host_file()).arguments(["-c", &command]).spawn()
}

fn wait_for_lines(file: &std::path::Path, expected: &[&str]) {
    wait_for("the lines of a watch", WATCH_MAX, || {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let is_there = |line: &&&str| text.lines().any(|found| found == **line);
        match expected.iter().all(|line| is_there(&line)) {
            true => Ok(()),
            false => Err(text),
        }
    });
}

const WATCH_MAX: std::time::Duration = std::time::Duration::from_secs(60);

#[test]
fn a_watch_shows_what_happens_and_goes_on_after_a_compaction() {
    let mut etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let node = cluster.node("a");
    let resting = network(json!({"range": "10.0.0.0/24", "order": "next", "cooldown": "1h"}));
    let file = cluster.folder().join("watched");
    let json = cluster.folder().join("json");
    let watch = watching(&node, &file, "list --watch-only -o name --namespace ns");
    let list = watching(&node, &json, "list --watch -o json");
    wait_for("two watches", WATCH_MAX, || match etcd.metric("etcd_debugging_mvcc_watcher_total", &[]) {
        2.0.. => Ok(()),
        count => Err(count.to_string()),
    });
    node.add("c1").pod("ns", "web-0", "u1").config(&resting).run().ok();
    // The same once more changes nothing.
    node.add("c1").pod("ns", "web-0", "u1").config(&resting).run().ok();
    add(&node, "c2", "u2").ok();
    node.del("c1").config(&resting).run().silent();
    node.cli(["hold", "10.0.0.9", "--note", "printer"]).ok_text();
    wait_for_lines(&file, &["given default/10.0.0.1", "given default/10.0.0.2", "freed default/10.0.0.1"]);
    wait_for_lines(&file, &["cooling default/10.0.0.1"]);
    // Meanwhile etcd is started again, and the events until then are compacted.
    watch.stop();
    etcd.restart();
    add(&node, "c3", "u3").ok();
    add(&node, "c4", "u4").ok();
    let revision = cluster.store().revision();
    cluster.store().run(async |client| client.compact(revision, None).await);
    watch.resume();
    add(&node, "c5", "u5").ok();
    let last = node.list().into_iter().find(|row| row["container_id"] == "c5").expect("it is held");
    wait_for_lines(&file, &[&format!("given default/{}", last["address"].as_str().expect("an address"))]);
    watch.interrupt();
    let ended = watch.wait();
    assert!(ended.succeeded() && ended.stderr.contains("connection to etcd was lost"), "{ended}");
    assert!(ended.stderr.contains("has compacted all revisions before"), "{ended}");
    let shown = std::fs::read_to_string(&file).expect("it is there");
    assert_eq!(shown.matches("given default/10.0.0.1\n").count(), 1, "{shown}");
    assert!(!shown.contains("aside"), "it is filtered: {shown}");
    list.interrupt();
    assert!(list.wait().succeeded());
    let shown = std::fs::read_to_string(&json).expect("it is there");
    let lines: Vec<Value> =
        shown.lines().skip(1).map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(shown.starts_with("[]\n") && lines.iter().any(|line| line["event"] == "aside"), "{shown}");
    assert_eq!((&lines[0]["event"], &lines[0]["container_id"]), (&json!("given"), &json!("c1")));
    for event in ["given", "freed", "cooling"] {
        let of_pod = |line: &&Value| line["event"] == event && line["pod"]["name"] == "web-0";
        assert!(lines.iter().any(|line| of_pod(&line)), "{event}: {shown}");
    }
    // For a time, and for one who reads no more.
    assert!(node.cli(["list", "--watch-only", "--timeout", "3s"]).ok_text().is_empty());
    node.cli(["hold", "--remove", "10.0.0.9"]).ok_text();
    cluster.assert_clean();
}

#[test]
fn release_refuses() {
    let (cluster, a, b) = populated();
    for node in [&a, &b] {
        node.add("same").config(&network(json!({"range": "10.9.0.0/24"}))).run().ok();
    }
    let before = cluster.store().entries("v1/");
    let rows: [(&[&str], i32, &str); 9] = [
        (&["10.0.0.1", "--yes"], 1, "--network"),
        (&["10.0.0.9", "--yes"], 1, "10.0.0.9"),
        (&["10.0.0.2", "--network", "storage", "--yes"], 1, "storage"),
        (&["--container", "c9", "--yes"], 1, "c9"),
        (&["--container", "c", "--yes"], 1, "c"),
        (&["--container", "same", "--yes"], 1, "--node"),
        (&["--yes"], 2, ""),
        (&["nonsense", "--yes"], 2, "nonsense"),
        (&["10.0.0.1", "--container", "c1", "--yes"], 2, "--container"),
    ];
    report(rows.map(|(arguments, status, word)| {
        let outcome = release(&a, arguments, "");
        let is_right = outcome.status.code() == Some(status)
            && outcome.stdout.is_empty()
            && outcome.stderr.contains(word)
            && cluster.store().entries("v1/") == before;
        expect(&format!("release {arguments:?}"), is_right, outcome)
    }));
    assert!(release(&a, &["--container", "same", "--node", "b", "--yes"], "").succeeded());
    cluster.assert_clean();
}

/// The names of the findings of `metes check`, with the count of each.
fn violations(outcome: &Outcome) -> Vec<String> {
    let found = outcome.json()["violations"].clone();
    let found = found.as_array().unwrap_or_else(|| panic!("an array: {outcome}")).clone();
    let mut names: Vec<String> =
        found.iter().map(|one| one["name"].as_str().unwrap_or("?").to_owned()).collect();
    names.dedup();
    names
}

fn change(store: &Store, key: &str, change: impl FnOnce(&mut Value)) {
    let mut record = serde_json::from_slice(&store.get(key).expect("the key exists")).expect("it is JSON");
    change(&mut record);
    store.put(key, record.to_string());
}

fn bitmap(set: &[usize]) -> Vec<u8> {
    let mut bytes = vec![0; 512];
    set.iter().for_each(|bit| bytes[bit / 8] |= 1 << (bit % 8));
    bytes
}

/// A name, the way to break the store, the findings of check, and the findings left after `--repair`.
type Breakage = (&'static str, fn(&Store), &'static [&'static str], &'static [&'static str]);

const BREAKAGES: [Breakage; 20] = [
    ("nothing", |_| (), &[], &[]),
    ("a stray bit", |store| store.put(PAGE, bitmap(&[1, 7])), &[], &[]),
    ("a page is gone", |store| store.delete(PAGE), &["reservation-without-bit"], &[]),
    ("a bit is clear", |store| store.put(PAGE, bitmap(&[])), &["reservation-without-bit"], &[]),
    (
        "an owner is gone",
        |store| store.delete(OWNER),
        &["pod-index-without-owner", "reservation-without-owner"],
        &["pod-index-without-owner", "reservation-without-owner"],
    ),
    (
        "an owner lists less",
        |store| change(store, OWNER, |record| record["addresses"] = json!([])),
        &["pod-index-mismatch", "reservation-without-owner"],
        &["pod-index-mismatch", "reservation-without-owner"],
    ),
    (
        "a reservation is gone",
        |store| store.delete(IP),
        &["owner-without-reservation"],
        &["owner-without-reservation"],
    ),
    (
        "a reservation is another's",
        |store| change(store, IP, |record| record["owner"] = json!("test/a/x/eth0")),
        &["owner-without-reservation", "reservation-without-owner"],
        &["owner-without-reservation", "reservation-without-owner"],
    ),
    ("an index is gone", |store| store.delete(POD), &[], &[]),
    (
        "an index of nobody",
        |store| {
            store.put("v1/pod/test/u9/eth0/default", r#"{"v":1,"node":"a","container":"x"}"#);
        },
        &["pod-index-without-owner"],
        &["pod-index-without-owner"],
    ),
    (
        "an index of another pod",
        |store| {
            store.put("v1/pod/test/u9/eth0/default", r#"{"v":1,"node":"a","container":"c1"}"#);
        },
        &["pod-index-mismatch"],
        &["pod-index-mismatch"],
    ),
    (
        "two owners list one address",
        |store| {
            let record = store.get(OWNER).expect("it exists");
            store.put("v1/owner/test/a/x/eth0", record);
        },
        &["address-listed-twice", "owner-without-reservation"],
        &["address-listed-twice", "owner-without-reservation"],
    ),
    (
        "a reservation on a lease",
        |store| {
            let record = store.get(IP).expect("it exists");
            store.put_leased(IP, record, 600);
        },
        &["reservation-on-lease"],
        &["reservation-on-lease"],
    ),
    (
        "an owner on a lease",
        |store| {
            let record = store.get(OWNER).expect("it exists");
            store.put_leased(OWNER, record, 600);
        },
        &["record-on-lease"],
        &["record-on-lease"],
    ),
    (
        "a tombstone without a lease",
        |store| store.put("v1/tombstone/test/a/x/eth0", r#"{"v":1,"start":{"boot":"b","ns":1}}"#),
        &["stale-without-lease"],
        &[],
    ),
    (
        "a ticket without a lease",
        |store| store.put("v1/ticket/-/0000000000000001", ""),
        &["stale-without-lease"],
        &[],
    ),
    ("a summary says full", |store| store.put(SUMMARY, bitmap(&[0])), &["summary-says-full"], &[]),
    ("a foreign key", |store| store.put("v1/junk", "junk"), &["foreign-key"], &["foreign-key"]),
    ("no meta", |store| store.delete(META), &["meta-missing"], &["meta-missing"]),
    (
        "a newer schema",
        |store| store.put(META, r#"{"v":2,"min_writer":2,"id":"test","epoch":1}"#),
        &["schema-newer"],
        &["schema-newer"],
    ),
];

/// Clean and harmless is exit 0, each violation exit 1 and its name; `--repair` repairs what it may.
#[test]
fn check_names_every_violation() {
    report(BREAKAGES.into_iter().flat_map(|(row, break_it, expected, left)| {
        let cluster = Cluster::new();
        let node = with_one(&cluster);
        break_it(cluster.store());
        let before = cluster.store().entries("v1/");
        let failures = [
            judge_check(row, expected, &node.cli(["check", "-o", "json"])),
            judge_text(row, expected, &node.cli(["check"])),
            expect(row, cluster.store().entries("v1/") == before, "check alone has written something"),
            judge_check(&format!("{row}, repaired"), left, &node.cli(["check", "--repair", "-o", "json"])),
            judge_check(&format!("{row}, afterwards"), left, &node.cli(["check", "-o", "json"])),
        ];
        cluster.leave_unclean();
        failures
    }));
}

fn judge_check(row: &str, expected: &[&str], outcome: &Outcome) -> Option<String> {
    let mut expected: Vec<&str> = expected.to_vec();
    let mut found = violations(outcome);
    expected.sort_unstable();
    found.sort();
    let status = i32::from(!expected.is_empty());
    expect(
        row,
        found == expected && outcome.status.code() == Some(status),
        format!("{expected:?}: {outcome}"),
    )
}

fn judge_text(row: &str, expected: &[&str], outcome: &Outcome) -> Option<String> {
    let is_named = expected.iter().all(|name| outcome.stdout.contains(&format!("violation {name}")));
    let status = i32::from(!expected.is_empty());
    expect(row, is_named && outcome.status.code() == Some(status), outcome)
}

#[test]
fn lone_bits_are_reported_and_cleared() {
    let cluster = Cluster::new();
    let node = with_one(&cluster);
    cluster.store().put(PAGE, bitmap(&[1, 7]));
    let check = node.cli(["check", "-o", "json"]).ok();
    assert_eq!(check["stray_bits"], json!([{"network": "default", "address": "10.0.0.7"}]));
    let text = node.cli(["check"]);
    assert!(
        text.succeeded() && text.stdout.contains("stray-bit") && text.stdout.contains("10.0.0.7"),
        "{text}"
    );
    assert!(text.stdout.contains("1 stray bit"), "{text}");
    // Until then the address is passed over, but a run that requests it gets it.
    node.add("c7").args("IP=10.0.0.7").config(&range()).run().ok();
    node.del("c7").config(&range()).run().silent();
    cluster.store().put(PAGE, bitmap(&[1, 7]));
    let repaired = node.cli(["check", "--repair", "-o", "json"]).ok();
    assert_eq!(repaired["stray_bits"], json!([]));
    assert_eq!(cluster.store().get(PAGE).as_deref(), Some(&bitmap(&[1])[..]));
    cluster.assert_clean();
}

/// Garbage under every kind of key: check names it, and no ADD, DEL, release or repair touches it.
#[test]
fn what_does_not_decode_is_never_touched() {
    const GARBAGE: &str = "\u{0}garbage";
    const NEWER: &str = r#"{"v":9}"#;
    let cursor = {
        let cluster = Cluster::new();
        with_one(&cluster);
        cluster.assert_clean();
        let keys = cluster.store().keys("v1/net/default/cursor/");
        keys.into_iter().next().expect("there is a cursor")
    };
    let rows = [
        (PAGE, "undecodable-page", GARBAGE, "102"),
        (SUMMARY, "undecodable-summary", GARBAGE, ""),
        (IP, "undecodable-reservation", GARBAGE, "10.0.0.2"),
        (IP, "record-newer", NEWER, "10.0.0.2"),
        (NEXT_IP, "undecodable-reservation", GARBAGE, "10.0.0.3"),
        (OWNER, "undecodable-owner", GARBAGE, "10.0.0.2"),
        (OWNER, "record-newer", NEWER, "10.0.0.2"),
        (POD, "undecodable-pod-index", GARBAGE, "10.0.0.2"),
        (TOMBSTONE, "undecodable-tombstone", GARBAGE, "10.0.0.2"),
        (&cursor, "undecodable-cursor", GARBAGE, ""),
        (META, "undecodable-meta", GARBAGE, "102"),
    ];
    report(rows.into_iter().flat_map(|(key, name, garbage, expected)| {
        let cluster = Cluster::new();
        let node = with_one(&cluster);
        cluster.store().put(key, garbage);
        let row = format!("{garbage:?} at {key}");
        let named = |outcome: &Outcome| {
            outcome.status.code() == Some(1) && violations(outcome).iter().any(|found| found == name)
        };
        let check = node.cli(["check", "-o", "json"]);
        let untouched = |after: &Outcome| {
            let found = cluster.store().get(key);
            expect(&row, found.as_deref() == Some(garbage.as_bytes()), format!("{found:?} after {after}"))
        };
        // Another container gets another address, or none.
        let other = node.add("c2").config(&range()).run();
        let got = other.error_code().map_or_else(|| other.address(), |code| code.to_string());
        let mut failures = vec![
            expect(&row, named(&check), &check),
            expect(&row, expected.is_empty() || got == expected, format!("expected {expected}: {other}")),
            expect(&row, got != "10.0.0.1", &other),
            untouched(&other),
        ];
        let runs = [
            node.add("c1").pod("ns", "web-0", "u1").config(&range()),
            node.add("c3").pod("ns", "web-0", "u1").config(&range()),
            node.del("c1").config(&range()),
            Run::new(metes()).env("METES_CONF", node.host_file()).arguments([
                "release",
                "--container",
                "c1",
                "-y",
            ]),
            node.add("c4").config(&range()),
        ];
        failures.push(runs.into_iter().find_map(|run| untouched(&run.run())));
        if [IP, OWNER].contains(&key) {
            let ask = node.add("c5").args("IP=10.0.0.1").config(&range()).run();
            failures.push(expect(&row, ask.error_code() == Some(101), format!("10.0.0.1 stays held: {ask}")));
        }
        let repair = node.cli(["check", "--repair", "-o", "json"]);
        failures.extend([expect(&row, named(&repair), &repair), untouched(&repair)]);
        cluster.leave_unclean();
        failures
    }));
}

/// A record that does not decode counts as held, and is shown as far as it is known.
#[test]
fn what_does_not_decode_is_listed() {
    let cluster = Cluster::new();
    let node = with_one(&cluster);
    cluster.store().put(IP, "garbage");
    let outcome = node.cli(["list", "-o", "json"]);
    assert_eq!(addresses(&outcome), ["default 10.0.0.1"], "{outcome}");
    assert!(outcome.json()[0]["container_id"].is_null(), "{outcome}");
    assert!(outcome.stderr.contains(IP), "it is named: {outcome}");
    let outcome = release(&node, &["10.0.0.1", "--yes"], "");
    assert_eq!(outcome.status.code(), Some(1), "{outcome}");
    node.add("c9").args("IP=10.0.0.1").config(&range()).run().error(101);
    cluster.leave_unclean();
}

/// A store that may have gone back in time serves no ADD until somebody accepts it.
#[test]
fn a_suspect_store_is_accepted() {
    let cluster = Cluster::new();
    let node = with_one(&cluster);
    add(&node, "c2", "u2").ok();
    let mut gc = network_as("1.1.0", "net", json!({"range": "10.0.0.0/24"}));
    gc["cni.dev/valid-attachments"] = json!([]);
    node.change_host_file(json!({"gc_grace_s": 0}));
    let suspect = json!({"v": 1, "min_writer": 1, "id": id_of(&cluster), "epoch": 1, "suspect": 1});
    cluster.store().put(META, suspect.to_string());
    let check = node.cli(["check", "-o", "json"]);
    assert_eq!((check.status.code(), violations(&check)), (Some(1), vec!["suspect".to_owned()]), "{check}");
    add(&node, "c3", "u3").error(102);
    node.gc().config(&gc).run().silent();
    assert_eq!(node.list().len(), 2, "GC frees nothing");
    node.del("c2").config(&range()).run().silent();
    assert_eq!(node.list().len(), 1, "DEL works");
    // A repair does not accept the store.
    assert_eq!(node.cli(["check", "--repair"]).status.code(), Some(1));
    add(&node, "c3", "u3").error(102);
    let accept = |answer: &str| {
        let run = Run::new(metes()).env("METES_CONF", node.host_file());
        run.arguments(["check", "--accept-store"]).stdin(answer).run()
    };
    for answer in ["", "n\n"] {
        let refused = accept(answer);
        assert_eq!((refused.status.code(), refused.stdout.as_str()), (Some(1), ""), "{refused}");
        for words in ["the store is suspect; it holds 1 address in 1 network", "[y/N]", "not accepted"] {
            assert!(refused.stderr.contains(words), "{words}: {refused}");
        }
        add(&node, "c3", "u3").error(102);
    }
    let accepted = accept("y\n");
    assert!(accepted.succeeded() && accepted.stdout.contains("epoch 2"), "{accepted}");
    let meta: Value =
        serde_json::from_slice(&cluster.store().get(META).expect("there is meta")).expect("JSON");
    assert_eq!((&meta["epoch"], &meta["suspect"]), (&json!(2), &Value::Null));
    assert_eq!(add(&node, "c3", "u3").addresses().len(), 1);
    let again = node.cli(["check", "--accept-store"]);
    assert!(!again.stderr.contains("[y/N]"), "{again}");
    assert!(again.succeeded() && !again.stdout.contains("epoch 3"), "there is nothing to accept: {again}");
    cluster.assert_clean();
}

fn id_of(cluster: &Cluster) -> String {
    let meta = cluster.store().get(META).expect("there is meta");
    let meta: Value = serde_json::from_slice(&meta).expect("JSON");
    meta["id"].as_str().expect("a store has an id").to_owned()
}

#[test]
fn what_meta_says() {
    let rows = [
        ("no meta", None, "102", true),
        ("a newer schema", Some(r#"{"v":2,"min_writer":2,"id":"test","epoch":1}"#), "102", false),
        ("only newer writers", Some(r#"{"v":1,"min_writer":2,"id":"test","epoch":1}"#), "102", false),
        (
            "a migration",
            Some(r#"{"v":1,"min_writer":1,"id":"test","epoch":1,"paused":"moving"}"#),
            "11",
            false,
        ),
        ("garbage", Some("garbage"), "102", false),
    ];
    report(rows.into_iter().flat_map(|(row, meta, code, accepted)| {
        let cluster = Cluster::new();
        let node = with_one(&cluster);
        // The id is that of this store; another id would be refused for itself.
        let id = id_of(&cluster);
        let meta = meta.map(|meta| meta.replace("test", &id));
        match &meta {
            Some(meta) => cluster.store().put(META, meta.clone()),
            None => cluster.store().delete(META),
        }
        let refused = add(&node, "c2", "u2");
        let is_refused = refused.error_code().is_some_and(|found| found.to_string() == code);
        let accept = node.cli(["check", "--accept-store", "--yes"]);
        let after = add(&node, "c2", "u2");
        let kept = accepted || cluster.store().get(META) == meta.map(String::into_bytes);
        cluster.leave_unclean();
        [
            expect(row, is_refused, format!("expected {code}: {refused}")),
            expect(row, after.succeeded() == accepted, format!("after {accept}\n{after}")),
            expect(row, kept, "meta was changed"),
        ]
    }));
}

#[test]
fn a_pause_is_named_and_ended_by_a_person() {
    let cluster = Cluster::new();
    let node = with_one(&cluster);
    let before = cluster.store().get(META).expect("there is meta");
    let mut held: Value = serde_json::from_slice(&before).expect("JSON");
    (held["paused"], held["paused_since"]) = (json!("moving"), json!("2026-01-02T03:04:05Z"));
    cluster.store().put(META, held.to_string());
    let cancel = |program: std::path::PathBuf, arguments: &[&str], answer: &str| {
        let run = Run::new(program).env("METES_CONF", node.host_file()).arguments(["check", "--resume"]);
        run.arguments(arguments).stdin(answer)
    };
    let check = node.cli(["check"]);
    assert!(check.succeeded() && check.stdout.contains("since 2026-01-02T03:04:05Z, "), "{check}");
    assert!(check.stdout.contains(" ago: moving; metes check --resume"), "{check}");
    let told = node.cli(["check", "-o", "json"]).ok();
    assert_eq!(told["pause"], json!({"why": "moving", "since": "2026-01-02T03:04:05Z"}));
    for answer in ["", "n\n", "\n"] {
        let refused = cancel(metes(), &[], answer).run();
        assert_eq!(refused.status.code(), Some(1), "{refused}");
        assert!(refused.stderr.contains("moving") && refused.stderr.contains("[y/N]"), "{refused}");
        add(&node, "c2", "u2").error(11);
    }
    // Somebody else changes meta in the last moment.
    let late = cancel(failing_metes(), &["--yes"], "").env("METES_FAIL", "pause.before=stop");
    let mut late = late.spawn();
    late.wait_until_stopped();
    held["epoch"] = json!(7);
    cluster.store().put(META, held.to_string());
    late.resume();
    let late = late.wait();
    assert!(late.status.code() == Some(1) && late.stderr.contains("somebody else"), "{late}");
    assert_eq!(cluster.store().get(META), Some(held.to_string().into_bytes()));

    let ended = cancel(metes(), &[], "y\n").run();
    assert!(ended.succeeded() && ended.stdout.contains("ended the pause"), "{ended}");
    held.as_object_mut().expect("an object").retain(|key, _| !key.starts_with("paused"));
    let after: Value = serde_json::from_slice(&cluster.store().get(META).expect("meta")).expect("JSON");
    assert_eq!(after, held, "nothing else is changed");
    let again = cancel(metes(), &["--yes"], "").run();
    assert!(again.succeeded() && again.stdout.contains("no pause to end"), "{again}");
    cluster.store().put(META, before);
    assert_eq!(add(&node, "c2", "u2").address(), "10.0.0.2");
    for meta in ["garbage", r#"{"v":1,"min_writer":2,"epoch":1,"paused":"moving"}"#] {
        cluster.store().put(META, meta);
        let refused = cancel(metes(), &["--yes"], "").run();
        assert!(refused.status.code() == Some(1) && refused.stderr.contains("cannot be ended"), "{refused}");
        assert_eq!(cluster.store().get(META).as_deref(), Some(meta.as_bytes()));
    }
    cluster.leave_unclean();
}

fn bare(arguments: &[&str]) -> Outcome {
    Run::new(metes()).arguments(arguments).run()
}

#[test]
fn metes_says_what_it_is() {
    let outcome = bare(&[]);
    assert!(outcome.succeeded() && outcome.stdout.is_empty(), "{outcome}");
    let versions = "CNI protocol versions supported: 0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0";
    assert!(outcome.stderr.contains(versions), "{outcome}");
    let help = bare(&["--help"]);
    assert!(help.succeeded() && help.stderr.is_empty(), "{help}");
    for word in ["list", "show", "usage", "check", "release", "METES_CONF", "CNI", "\"type\": \"metes\""] {
        assert!(help.stdout.contains(word), "the help lacks {word}: {help}");
    }
    assert!(bare(&["--version"]).ok_text().starts_with("metes "));
    let (_, commands) = help.stdout.split_once("\nCommands:\n").expect("the help lists the commands");
    let page = support::root().join("docs/commands.md");
    let page = std::fs::read_to_string(page).expect("docs/commands.md");
    let named =
        commands.lines().take_while(|line| !line.is_empty()).filter_map(|line| line.strip_prefix("  "));
    let verbs: Vec<&str> =
        named.filter_map(|line| line.split(' ').next().filter(|verb| !verb.is_empty())).collect();
    assert!(verbs.len() > 5, "{help}");
    for verb in verbs.into_iter().filter(|verb| *verb != "help") {
        assert!(bare(&[verb, "--help"]).ok_text().contains("Usage: metes"), "{verb}");
        assert!(page.contains(&format!("\n# metes {verb}")), "docs/commands.md shows no `metes {verb}`");
    }
    for wrong in [&["lsit"][..], &["list", "--pod", "web"], &["list", "-o", "xml"], &["show"], &["release"]] {
        let outcome = bare(wrong);
        assert!(outcome.status.code() == Some(2) && outcome.stdout.is_empty(), "{outcome}");
        assert!(outcome.stderr.contains("--help"), "{outcome}");
    }
}

#[test]
fn a_shell_completes_commands_and_flags() {
    for shell in ["bash", "zsh", "fish"] {
        let script = bare(&["completion", shell, "--config", "/nowhere/metes.conf"]);
        for word in ["leaks", "no-headers", "sarif", "__complete"] {
            assert!(script.ok_text().contains(word), "{shell}, {word}");
        }
    }
}

#[test]
fn versions() {
    let cluster = Cluster::new();
    let node = with_one(&cluster);
    let client = bare(&["version", "--config", "/nowhere/metes.conf"]);
    assert!(client.ok_text().starts_with("metes 0.") && client.stdout.lines().count() == 1, "{client}");
    let id = id_of(&cluster);
    let asked = node.cli(["version", "--server", "-o", "json"]).ok();
    let server = &asked["server"];
    assert_eq!(server["store"], json!({"records": 1, "min_writer": 1, "epoch": 1, "id": id}), "{asked}");
    assert!(
        server["members"][0]["version"].as_str().is_some_and(|version| version.starts_with("3.")),
        "{asked}"
    );
    let endpoint = server["members"][0]["endpoint"].as_str().expect("a URL");
    let half = node.cli(["version", "--server", "--endpoints", &format!("http://127.0.0.1:1,{endpoint}")]);
    assert!(half.ok_text().contains(&id) && half.stdout.contains("http://127.0.0.1:1"), "{half}");
    let none = node.cli(["version", "--server", "--endpoints", "http://127.0.0.1:1"]);
    assert!(none.status.code() == Some(1) && none.stdout.contains("metes 0."), "{none}");
    cluster.assert_clean();
}

trait Text {
    fn ok_text(&self) -> &str;
}

impl Text for Outcome {
    #[track_caller]
    fn ok_text(&self) -> &str {
        assert!(self.succeeded(), "{self}");
        &self.stdout
    }
}

#[test]
fn the_host_file_of_a_person() {
    let cluster = Cluster::new();
    let node = with_one(&cluster);
    let file = node.host_file();
    let file = file.to_str().expect("a path is a text");
    let named = bare(&["list", "-o", "json", "--config", file]);
    assert_eq!(addresses(&named), ["default 10.0.0.1"]);
    let missing = bare(&["list", "--config", "/nowhere/metes.conf"]);
    assert!(missing.status.code() == Some(1) && missing.stderr.contains("/nowhere/metes.conf"), "{missing}");
    assert!(missing.stdout.is_empty(), "{missing}");
    node.change_host_file(json!({"etcd": {"endpoints": ["http://127.0.0.1:1"]}}));
    let outcome = node.cli(["list"]);
    assert!(outcome.status.code() == Some(1) && outcome.stdout.is_empty(), "{outcome}");
    assert!(outcome.stderr.starts_with("metes: "), "{outcome}");
    cluster.assert_clean();
}

/// A far tip may lead to a flag that writes.
#[test]
fn an_unknown_flag_suggests_only_what_is_like_it() {
    for (arguments, tip) in [
        (&["list", "--namespce", "x"][..], Some("'--namespace'")),
        (&["check", "--network", "x"], None),
        (&["release", "--all"], None),
        (&["usage", "--network", "x"], None),
    ] {
        let outcome = Run::new(metes()).arguments(arguments).run();
        let tipped = outcome.stderr.split("tip: ").nth(1);
        assert!(tipped.is_some() == tip.is_some(), "{outcome}");
        assert!(tip.is_none_or(|tip| tipped.is_some_and(|tipped| tipped.contains(tip))), "{outcome}");
        assert!(!outcome.stderr.contains("--restore"), "{outcome}");
    }
}

/// A laptop: neither a host file nor an etcd.
#[test]
fn without_a_host_file_an_etcd_that_cannot_be_reached_is_to_be_named() {
    let outcome = Run::new("unshare")
        .arguments(["--net", metes().to_str().expect("a plain path"), "list", "--timeout", "1s"])
        .run();
    let words = "looked at --config, METES_CONF and /etc/cni/net.d/metes.d/metes.conf): give --config FILE";
    assert!(outcome.status.code() == Some(1) && outcome.stderr.contains(words), "{outcome}");
}

/// Who looks at another prefix than the nodes sees nothing, and must not take that for an answer.
#[test]
fn where_nothing_was_ever_stored_the_prefix_is_named() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    let words = format!("nothing is stored below {}: ", cluster.prefix());
    let commands = ["list", "usage"];
    let told = |command: &str| {
        let outcome = node.cli([command]);
        assert!(outcome.succeeded(), "{outcome}");
        outcome.stderr.contains(&words)
    };
    assert!(commands.iter().all(|command| told(command)));
    node.add("c").config(&range()).run().address();
    node.del("c").config(&range()).run().silent();
    assert!(!commands.iter().any(|command| told(command)));
    cluster.assert_clean();
}

#[test]
fn an_empty_metes_conf_is_none() {
    let run = |arguments: &[&str]| Run::new(metes()).env("METES_CONF", "").arguments(arguments).run();
    // It needs neither a host file nor etcd.
    assert!(run(&["completion", "bash"]).ok_text().contains("metes"));
    let missing = Run::new(metes()).env("METES_CONF", "/etc/hosts").arguments(["map"]).run();
    assert!(missing.stderr.contains("metes map") && !missing.stderr.contains("--config"), "{missing}");
    let reconciler = Run::new(support::reconciler())
        .env("METES_CONF", "")
        .arguments(["webhook", "--cert-file", "/nonexistent", "--key-file", "/x"])
        .run();
    assert!(reconciler.stderr.contains("/nonexistent"), "{reconciler}");
}
