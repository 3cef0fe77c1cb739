//! `-o json` and `-o yaml` of every command that prints a table.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use support::{Cluster, Node, Outcome, Run, metes, network, report};

/// Every command with `-o`, as it is called in the cluster of the test.
const FORMATTED: [&[&str]; 15] = [
    &["list"],
    &["show", "10.56.0.1"],
    &["usage"],
    &["map", "10.56.0.0/24"],
    &["top"],
    &["leaks"],
    &["check"],
    &["holds"],
    &["pool", "list"],
    &["pool", "show", "storage"],
    &["pool", "status"],
    &["pool", "which", "--namespace", "ns", "--network", "test"],
    &["validate"],
    &["doctor"],
    &["version", "--server"],
];
/// These may find something wrong; they print all the same.
const MAY_FAIL: [&str; 3] = ["check", "validate", "doctor"];
const POOL: &str =
    "{pool: storage, ranges: [{range: 10.56.0.0/24, exclude: [10.56.0.128/28]}], for: {}, cooldown: 1h}";
/// A network that `validate` warns of.
const SUSPICIOUS: &str = r#"{"cniVersion": "1.0.0", "name": "test", "type": "bridge",
    "ipam": {"type": "metes", "range": "10.0.0.0/24", "gatway": "10.0.0.1"}}"#;

/// The commands that take `-o`, in the words of their help.
fn formatted(command: &[&str]) -> BTreeSet<String> {
    let help = Run::new(metes()).arguments(command).arguments(["--help"]).run();
    assert!(help.succeeded(), "{help}");
    let listed = help.stdout.split_once("\nCommands:\n").map_or("", |(_, listed)| listed);
    let names =
        listed.lines().take_while(|line| !line.is_empty()).filter_map(|line| line.split_whitespace().next());
    let mut found: BTreeSet<String> = names
        .filter(|name| *name != "help")
        .flat_map(|name| formatted(&[command, &[name]].concat()))
        .collect();
    if help.stdout.contains("--output <") {
        found.insert(command.join(" "));
    }
    found
}

/// A cluster in which each of the commands has something to print.
fn furnished() -> (Cluster, Node) {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    let done = |outcome: Outcome| assert!(outcome.succeeded(), "{outcome}");
    done(node.pool(&["apply", "--yes", "-f", "-"], POOL));
    for (container, uid) in [("c1", "u1"), ("c2", "u2")] {
        let config = network(json!({"pool": "storage"}));
        node.add(container).pod("ns", "web-0", uid).config(&config).run().ok();
    }
    done(node.cli(["hold", "10.56.0.9", "--note", "printer: \"x\"\u{e9}"]));
    done(node.cli(["release", "--container", "c2", "--yes"]));
    let store = cluster.store();
    let key = store.key("v1/owner/test/a/c1/eth0");
    let revision = store.run(async |client| Ok(client.get(key, None).await?.kvs()[0].mod_revision()));
    let orphan = json!({"v": 1, "reason": "pod-gone", "revision": revision, "grace": 1800});
    store.put_leased("v1/orphan/test/a/c1/eth0", orphan.to_string(), 600);
    (cluster, node)
}

/// Durations and counts are others each time.
fn without_digits(mut value: Value) -> Value {
    match &mut value {
        Value::String(text) => text.retain(|c| !c.is_ascii_digit()),
        Value::Array(values) => values.iter_mut().for_each(|value| *value = without_digits(value.take())),
        Value::Number(number) => *number = 0.into(),
        Value::Object(keys) => keys.values_mut().for_each(|value| *value = without_digits(value.take())),
        _ => {}
    }
    value
}

#[test]
fn each_table_is_also_printed_as_json_and_as_the_same_yaml() {
    let named: BTreeSet<String> = formatted(&[]);
    let tried = |command: &&[&str]| {
        let words = if command[0] == "pool" { 2 } else { 1 };
        command[..words].join(" ")
    };
    assert_eq!(
        FORMATTED.iter().map(tried).collect::<BTreeSet<_>>(),
        named,
        "the test has every command with -o"
    );
    let (cluster, node) = furnished();
    report(FORMATTED.map(|command| {
        let print = |format: &str| node.cli_run(command).arguments(["-o", format]).stdin(SUSPICIOUS).run();
        let (json, yaml) = (print("json"), print("yaml"));
        let is_done = |outcome: &Outcome| outcome.succeeded() || MAY_FAIL.contains(&command[0]);
        let as_json: Result<Value, _> = serde_json::from_str(&json.stdout);
        let as_yaml: Result<Value, _> = yaml_serde::from_str(&yaml.stdout);
        let mut printed = (as_json.unwrap_or(Value::Null), as_yaml.unwrap_or(Value::Bool(false)));
        // What ends by itself is counted, too.
        if ["doctor", "check"].contains(&command[0]) {
            printed = (without_digits(printed.0), without_digits(printed.1));
        }
        let is_empty = printed.0 == json!([]) || printed.0 == json!({});
        let is_right = is_done(&json) && is_done(&yaml) && printed.0 == printed.1 && !is_empty;
        (!is_right).then(|| format!("{}: {json}\n{yaml}", command.join(" ")))
    }));
    cluster.leave_unclean();
}
