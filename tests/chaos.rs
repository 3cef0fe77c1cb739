//! Requests to a real etcd that are refused, lost, late or doubled on their way, and connections that break or fall
//! silent: every run ends knowing the truth.

mod support;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{
    Cluster, Etcd, Gate, GrpcProxy, GrpcRule, Kind, Loss, Node, Outcome, Run, TcpFault, TcpProxy, Verdict,
    in_parallel, network, network_as, report, wait_for,
};
use tonic::Code;

/// A node whose requests go through a proxy.
fn node_behind(cluster: &Cluster, name: &str, endpoint: &str) -> Node {
    cluster.node_with(name, json!({"gc_grace_s": 0, "etcd": {"endpoints": [endpoint]}}))
}

/// What the store says each container of a node holds.
fn held(cluster: &Cluster) -> BTreeMap<String, String> {
    let records = cluster.store().entries("v1/own/");
    let addresses = |record: &[u8]| -> Vec<String> {
        let record: Value = serde_json::from_slice(record).expect("an owner record is JSON");
        let held = record["addresses"].as_array().expect("an owner holds addresses").clone();
        held.iter().map(|one| one["ip"].as_str().expect("an address").to_owned()).collect()
    };
    let container = |key: &str| key.split('/').nth(3).expect("v1/own/node/container/ifname").to_owned();
    records.iter().map(|(key, record)| (container(key), addresses(record).join(","))).collect()
}

/// What an ADD said is what the store says.
fn tells_the_truth(container: &str, outcome: &Outcome, held: &BTreeMap<String, String>) -> Option<String> {
    let stored = held.get(container);
    match outcome.succeeded() {
        true if stored == Some(&outcome.address()) => None,
        false if stored.is_none() && outcome.error_code() == Some(11) => None,
        _ => Some(format!("{container}: the store holds {stored:?}, but {outcome}")),
    }
}

fn assert_nothing_spooled(nodes: &[Node]) {
    let spooled: Vec<_> = nodes
        .iter()
        .flat_map(Node::spooled)
        .filter(|path| path.extension().is_some_and(|ext| ext == "del"))
        .collect();
    assert!(spooled.is_empty(), "left to later runs: {spooled:?}");
}

/// Losing the answer takes the connection with it; every 16th is lost in silence.
fn lose_answers(proxy: &GrpcProxy, kind: Kind) {
    proxy.rule(GrpcRule::of(kind).every(16).lose(Loss::Silence)).rule(GrpcRule::of(kind).lose(Loss::Reset));
}

fn done(proxy: &GrpcProxy, kind: Kind) -> usize {
    let struck = proxy.struck();
    struck.iter().filter(|one| one.call.kind == kind && one.verdicts == [Verdict::Done]).count()
}

#[test]
fn a_thousand_commits_whose_answer_is_lost() {
    const COMMITS: usize = 1000;
    const DELS: usize = 250;
    const NODES: usize = 8;
    let etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let proxy = GrpcProxy::before(&etcd.endpoint());
    let nodes: Vec<Node> =
        (0..NODES).map(|index| node_behind(&cluster, &format!("n{index}"), &proxy.endpoint())).collect();
    let configs: Vec<Value> = (0..NODES)
        .map(|index| network_as("1.1.0", "net", json!({"range": format!("10.70.{}.0/22", 4 * (index % 4)), "network_name": format!("net{index}")})))
        .collect();

    lose_answers(&proxy, Kind::Commit);
    let outcomes = in_parallel(24, 0..COMMITS, |index| {
        nodes[index % NODES].add(&format!("c{index}")).config(&configs[index % NODES]).run()
    });
    assert!(done(&proxy, Kind::Commit) >= COMMITS, "{} commits were applied", done(&proxy, Kind::Commit));
    let held_now = held(&cluster);
    report(
        outcomes.iter().enumerate().map(|(i, outcome)| tells_the_truth(&format!("c{i}"), outcome, &held_now)),
    );
    let failed = outcomes.iter().filter(|outcome| !outcome.succeeded()).count();
    assert_eq!(failed, 0, "each had the time to settle its commit");
    assert_nothing_spooled(&nodes);
    cluster.assert_clean();

    proxy.clear();
    lose_answers(&proxy, Kind::Free);
    let deleted = in_parallel(24, 0..DELS, |index| {
        nodes[index % NODES].del(&format!("c{index}")).config(&configs[index % NODES]).run()
    });
    deleted.iter().for_each(Outcome::silent);
    assert!(done(&proxy, Kind::Free) >= DELS, "{} frees were applied", done(&proxy, Kind::Free));
    let held_now = held(&cluster);
    report(
        (0..DELS)
            .map(|i| held_now.get(&format!("c{i}")).map(|address| format!("c{i} still holds {address}"))),
    );
    assert_eq!(held_now.len(), COMMITS - DELS);
    assert_nothing_spooled(&nodes);
    cluster.assert_clean();

    // What is left is more than one GC does in its time if it waits for answers that do not come.
    proxy.clear().rule(GrpcRule::of(Kind::Free).lose(Loss::Reset));
    let before = done(&proxy, Kind::Free);
    in_parallel(2, nodes.iter().zip(&configs), |(node, config)| {
        let mut config = config.clone();
        config["cni.dev/valid-attachments"] = json!([]);
        node.gc().config(&config).run().silent();
    });
    assert!(done(&proxy, Kind::Free) >= before + COMMITS - DELS);
    cluster.assert_nothing_held();
    assert_nothing_spooled(&nodes);
    cluster.assert_clean();
}
