//! `"pool": "auto"`: pools say whom they are for, and `metes pool which` says which ones are chosen.

use serde_json::{Value, json};

use support::{Cluster, Node, Outcome, Run, metes, network, report};

const POOLS: &str = "\
pool: team
network: blue
ranges: [{range: 10.61.0.0/30}]
for: {namespaces: team-*}
priority: 5
---
pool: team-more
network: blue
ranges: [{range: 10.62.0.0/29}]
for: {namespaces: [team-a]}
priority: 5
routes: [{dst: 10.0.0.0/8, gw: 10.62.0.6}]
---
pool: rack-7
network: blue
ranges: [{range: 10.67.0.0/29}]
for: {node_labels: {rack: '7'}, networks: net}
allow: {namespaces: [team-a, ns]}
priority: 9
---
pool: rest
network: blue
ranges: [{range: 10.69.0.0/29}]
for: {namespaces: ns}
---
pool: nobodys
network: blue
ranges: [{range: 10.70.0.0/29}]
";

fn pool(node: &Node, arguments: &[&str], stdin: &str) -> Outcome {
    let run = Run::new(metes()).env("METES_CONF", node.host_file()).arguments(["pool"]);
    run.arguments(arguments).stdin(stdin).run()
}

fn apply(node: &Node, text: &str) {
    let outcome = pool(node, &["apply", "--yes", "-f", "-"], text);
    assert!(outcome.succeeded(), "{outcome}");
}

fn add_as(node: &Node, namespace: &str, container: &str) -> Outcome {
    let auto = network(json!({"pool": "auto"}));
    node.add(container).pod(namespace, "web-0", &format!("u-{container}")).config(&auto).run()
}

/// The answer of `which`: the pools, and for each other pool the reason why it is not used.
fn which(node: &Node, arguments: &[&str]) -> (Outcome, Value) {
    let outcome = pool(node, &[&["which", "-o", "json"], arguments].concat(), "");
    let answer = serde_json::from_str(&outcome.stdout).unwrap_or_default();
    (outcome, answer)
}

#[test]
fn pools_are_chosen_by_namespace_and_rack_and_as_which_says() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    let rack = cluster.node_with("b", json!({"node_labels": {"rack": "7", "zone": "x"}}));
    apply(&node, POOLS);
    let of = |node: &Node, namespace: &str, container: &str| {
        let (outcome, answer) =
            which(node, &["--namespace", namespace, "--pod", "web-0", "--network", "net"]);
        assert!(outcome.succeeded(), "{outcome}");
        let address = add_as(node, namespace, container).address();
        let held = node.list();
        let held = held.iter().find(|row| row["address"] == *address);
        let pool = held.expect("it is held")["pool"].clone();
        assert!(answer["pools"].as_array().is_some_and(|pools| pools.contains(&pool)), "{answer} {pool}");
        address
    };
    assert_eq!(of(&node, "team-b", "c1"), "10.61.0.1");
    assert_eq!(of(&node, "ns", "c2"), "10.69.0.1");
    assert_eq!(of(&rack, "team-a", "c3"), "10.67.0.1");
    assert_eq!(of(&rack, "ns", "c4"), "10.67.0.2");
    // Pools of one priority are used one after the other.
    assert_eq!(of(&node, "team-a", "c5"), "10.61.0.2");
    assert_eq!(of(&node, "team-a", "c6"), "10.62.0.1");
    assert_eq!(add_as(&node, "team-a", "c6").ok()["routes"][0]["gw"], "10.62.0.6");
    // A pool of lower priority does not stand in for a higher one that has no room, or that does not allow the pod.
    let full = add_as(&node, "team-b", "c7").error(100);
    assert!(full["msg"].as_str().is_some_and(|msg| msg.contains("pool team ")), "{full}");
    let refused = add_as(&rack, "team-b", "c8").error(7);
    assert_eq!(refused["msg"], "pool rack-7 is not for namespace team-b");
    let nobody = add_as(&node, "other", "c9").error(7);
    assert_eq!(
        nobody["msg"],
        "no pool is for namespace other, pod web-0, network net, node a, cluster test, no node labels"
    );

    let (outcome, answer) = which(&node, &["--namespace", "other", "--label", "rack=8"]);
    assert_eq!(outcome.status.code(), Some(1), "{outcome}");
    let why = |answer: &Value| -> Vec<(String, Option<String>)> {
        let judged = answer["judged"].as_array().expect("an array");
        let one = |judged: &Value| {
            (judged["pool"].as_str().expect("a name").to_owned(), judged["why"].as_str().map(str::to_owned))
        };
        judged.iter().map(one).collect()
    };
    let expect = |pairs: &[(&str, &str)]| -> Vec<(String, Option<String>)> {
        let pair =
            |(pool, why): &(&str, &str)| ((*pool).to_owned(), (!why.is_empty()).then(|| (*why).to_owned()));
        pairs.iter().map(pair).collect()
    };
    assert_eq!(
        why(&answer),
        expect(&[
            ("rack-7", "it is not for no network"),
            ("team", "it is not for namespace other"),
            ("team-more", "it is not for namespace other"),
            ("rest", "it is not for namespace other"),
        ])
    );
    assert_eq!(answer["facts"]["node_labels"], json!({"rack": "8"}));
    // Labels are those of the host file, but not for another node.
    let (_, answer) = which(&rack, &["--namespace", "ns", "--network", "net"]);
    assert_eq!(
        why(&answer),
        expect(&[
            ("rack-7", ""),
            ("team", "it is not for namespace ns"),
            ("team-more", "it is not for namespace ns"),
            ("rest", "pool rack-7 has a higher priority"),
        ])
    );
    let (_, answer) = which(&rack, &["--namespace", "ns", "--network", "net", "--node", "z"]);
    assert_eq!(answer["pools"], json!(["rest"]));
    let text = pool(&rack, &["which", "--namespace", "team-b", "--network", "net"], "");
    report([
        exits(
            &text,
            1,
            "no pool\nnamespace team-b, no pod, network net, node b, cluster test, node labels rack=7",
        ),
        exits(
            &text,
            1,
            "rack-7     9         no    networks net; node_labels rack=7  its `allow` is not for",
        ),
    ]);
    cluster.assert_clean();
}

fn exits(outcome: &Outcome, code: i32, words: &str) -> Option<String> {
    let is_right = outcome.status.code() == Some(code) && outcome.stdout.contains(words);
    (!is_right).then(|| format!("expected exit {code} and {words:?}: {outcome}"))
}

#[test]
fn a_namespace_moves_to_another_pool_and_its_running_pods_stay() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    let text = |pool: &str, range: &str, namespaces: &str| {
        format!(
            "pool: {pool}\nnetwork: {pool}\nranges: [{{range: {range}}}]\nfor: {{namespaces: [{namespaces}]}}\n\
                 routes: [{{dst: {range}}}]\n"
        )
    };
    apply(&node, &format!("{}---\n{}", text("one", "10.71.0.0/24", "ns"), text("two", "10.72.0.0/24", "x")));
    let first = add_as(&node, "ns", "c1").ok();
    assert_eq!(first["ips"][0]["address"], "10.71.0.1/24");
    let diff = pool(&node, &["diff", "-f", "-"], &text("two", "10.72.0.0/24", "x, ns"));
    report([exits(&diff, 0, "for: namespaces x, now namespaces x ns")]);
    // As soon as `apply` has returned, the next pod follows, also if the pool that it came from did not change.
    apply(&node, &(text("two", "10.72.0.0/24", "x, ns") + "priority: 1\n"));
    assert_eq!(add_as(&node, "ns", "c2").address(), "10.72.0.1");
    // A container that runs keeps its address, with the routes of the pool that gave it.
    let again = add_as(&node, "ns", "c1").ok();
    assert_eq!((&again["ips"], &again["routes"]), (&first["ips"], &first["routes"]));
    assert_eq!(again["routes"][0]["dst"], "10.71.0.0/24");
    let exported = pool(&node, &["export"], "").stdout;
    assert!(exported.contains("for:\n  namespaces:\n  - x\n  - ns\npriority: 1\n"), "{exported}");
    let shown = pool(&node, &["show", "two"], "").stdout;
    assert!(shown.contains("for:      namespaces x ns\npriority: 1\n"), "{shown}");
    for container in ["c1", "c2"] {
        node.del(container).config(&network(json!({"pool": "auto"}))).run().silent();
    }
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

/// A pod's name keeps its address as long as the pool that gave it is for the pod, whatever pools are added.
#[test]
fn a_name_keeps_its_address_when_a_pool_of_a_higher_priority_is_for_it_too() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    let text = |pool: &str, range: &str, namespaces: &str, priority: i32| {
        format!(
            "pool: {pool}\nnetwork: {pool}\nkeep: 7d\nranges: [{{range: {range}}}]\nfor: {{namespaces: \
             {namespaces}}}\npriority: {priority}\n"
        )
    };
    let config = network(json!({"pool": "auto", "sticky": "pod"}));
    let add = |container: &str, pod: &str| {
        node.add(container).pod("ns", pod, &format!("u-{container}")).config(&config).run()
    };
    let del = |container: &str| node.del(container).config(&config).run().silent();
    apply(&node, &text("old", "10.73.0.0/24", "ns", 0));
    assert_eq!(add("c1", "db-0").address(), "10.73.0.1");
    del("c1");
    apply(&node, &text("new", "10.74.0.0/24", "ns", 5));
    // With the node's hints, and without.
    for container in ["c2", "c3"] {
        assert_eq!(add(container, "db-0").address(), "10.73.0.1");
        node.check(container).pod("ns", "db-0", &format!("u-{container}")).config(&config).run().silent();
        del(container);
        node.forget_owners();
    }
    assert_eq!(add("c4", "db-1").address(), "10.74.0.1", "a new name follows the priority");
    // The pool that gave it is not for the pod any more.
    apply(&node, &text("old", "10.73.0.0/24", "other", 0));
    let refused = add("c5", "db-0").error(7);
    assert!(refused["msg"].as_str().is_some_and(|msg| msg.contains("10.73.0.1")), "{refused}");
    apply(&node, &text("old", "10.73.0.0/24", "ns", 0));
    assert_eq!(add("c5", "db-0").address(), "10.73.0.1");
    cluster.assert_clean();
}

#[test]
fn wrong_selectors_are_refused_with_their_place() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    let with = |more: &str| format!("pool: a\nranges: [{{range: 10.0.0.0/24}}]\n{more}\n");
    let texts = [
        (with("for: {nodes: []}"), "for.nodes: the list is empty: write a pattern"),
        (with("for: {nodes: 7}"), "for.nodes: invalid type: integer `7`, expected a pattern or a list"),
        (
            with("for: {node: a}"),
            "for: unknown field `node` (did you mean `nodes`?), expected one of `clusters`",
        ),
        (with("for: {node_labels: rack}"), "for.node_labels: invalid type: string \"rack\", expected a map"),
        (with("allow: {pods: [[a]]}"), "allow.pods"),
        (
            with("for: {}\npriority: high"),
            "priority: invalid type: string \"high\", expected a whole number from",
        ),
        (with("for: {}\npriority: 3000000000"), "priority: invalid value"),
        (with("priority: 7"), "without `for` it uses none"),
        (with("").replace("pool: a", "pool: auto"), "no pool can be named `auto`"),
    ];
    report(texts.map(|(text, words)| {
        let outcome = pool(&node, &["apply", "--yes", "-f", "-"], &text);
        let is_right = outcome.status.code() == Some(1)
            && outcome.stderr.contains(words)
            && outcome.stderr.contains("stdin:");
        (!is_right).then(|| format!("expected {words}: {outcome}"))
    }));
    assert!(cluster.store().keys("").is_empty(), "nothing was written");
    for (labels, words) in [
        (json!({"": "7"}), "`node_labels` has a name that no label can have"),
        (json!({"a b": "7"}), "`node_labels` has a name that no label can have"),
        (json!({"rack": 7}), "without control characters, found a number"),
        (json!({"rack": "x".repeat(64)}), "`node_labels.rack` must be a string of at most 63 bytes"),
        (json!(["rack"]), "`node_labels` must be an object, found an array"),
        (
            (0..65).map(|i| (format!("l{i}"), json!("x"))).collect(),
            "`node_labels` has 65 labels: expected at most 64",
        ),
    ] {
        let node = cluster.node_with("b", json!({"node_labels": labels}));
        let error = add_as(&node, "ns", "c1").error(7);
        assert!(error["msg"].as_str().is_some_and(|msg| msg.contains(words)), "{words}: {error}");
    }
    for (ipam, words) in [
        (json!({"pools": [["auto", "a"]]}), "`ipam.pools` has \"auto\" among other pools"),
        (json!({"pool": "auto", "pools": ["a"]}), "cannot be combined"),
        (json!({"pool": "Auto"}), "there is no pool \"Auto\""),
    ] {
        let error = node.add("c1").config(&network(ipam)).run().error(7);
        assert!(error["msg"].as_str().is_some_and(|msg| msg.contains(words)), "{words}: {error}");
    }
    cluster.assert_clean();
}

#[test]
fn a_host_file_bounds_what_auto_chooses() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    apply(&node, POOLS);
    let bounded = |pools: Value| {
        cluster.node_with("b", json!({"pools_only": true, "allowed": {"blue": {"pools": pools}}}))
    };
    assert_eq!(add_as(&bounded(json!(["team-more"])), "team-a", "c1").address(), "10.62.0.1");
    let refused = add_as(&bounded(json!(["rest"])), "team-a", "c2").error(7);
    assert_eq!(refused["msg"], "pool team, which `auto` chooses, may not be used on this node");
    let (_, answer) = which(&bounded(json!(["team-more"])), &["--namespace", "team-a"]);
    assert_eq!(answer["pools"], json!(["team-more"]));
    // Of these, the pod's namespace may use one alone.
    let red = json!({"pools": ["team"], "namespaces": ["team-b"]});
    let blue = json!({"pools": ["team-more"], "namespaces": ["team-a"]});
    let split = cluster.node_with("c", json!({"allowed": {"red": red, "blue": blue}}));
    assert_eq!(add_as(&split, "team-a", "c3").address(), "10.62.0.2");
    let (_, answer) = which(&split, &["--namespace", "team-a"]);
    assert_eq!(answer["pools"], json!(["team-more"]));
    cluster.assert_clean();
}
