//! ADDs against an operator who changes their pool all the time. hack/test plays it short; `POOL_ROUNDS=1000` plays it
//! long.

use std::env;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use etcd_client::{EventType, WatchOptions};
use serde_json::{Value, json};

use support::{Cluster, Etcd, Node, network};

const PODS: usize = 8;
const ROUNDS: usize = 60;
const POOL: &str = "v1/pool/storage";
const RESERVATIONS: &str = "v1/net/blue/ip/";
/// Each range by its state at a round. There is always an open one.
const TEXTS: [[&str; 3]; 6] = [
    ["open", "open", "open"],
    ["open", "draining", "closed"],
    ["draining", "open", "draining"],
    ["closed", "closed", "open"],
    ["open", "closed", "open"],
    ["draining", "open", "open"],
];

fn text(round: usize) -> String {
    let mut text = "pool: storage\nnetwork: blue\norder: lowest\nfor: {}\nranges:\n".to_owned();
    for (at, state) in TEXTS[round % TEXTS.len()].iter().enumerate() {
        text.push_str(&format!("- {{range: 10.88.{at}.0/28, state: {state}}}\n"));
    }
    text
}

/// Starts and stops one pod after the other until the operator is done; how many got an address. Half of the loops name
/// the pool, and the others let it be chosen.
fn pods(node: &Node, index: usize, is_over: &AtomicBool) -> usize {
    let config = network(json!({"pool": if index < PODS / 2 { "storage" } else { "auto" }}));
    let mut started = 0;
    for number in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let container = format!("c{index}-{number}");
        let outcome = node.add(&container).pod("ns", &container, &container).config(&config).run();
        // Each range has more addresses than there are pods.
        assert!(outcome.succeeded(), "{outcome}");
        started += 1;
        node.del(&container).config(&config).run().silent();
    }
    started
}

/// The state of each range of the pool at this revision.
fn states(texts: &[(i64, Value)], revision: i64) -> Vec<String> {
    let (_, pool) = texts.iter().rev().find(|(written, _)| *written <= revision).expect("there was a pool");
    let ranges = pool["definition"]["ranges"].as_array().expect("ranges");
    ranges.iter().map(|range| range["state"].as_str().unwrap_or("open").to_owned()).collect()
}

#[test]
fn no_address_is_committed_by_a_text_that_was_replaced() {
    let rounds = env::var("POOL_ROUNDS").ok().map_or(ROUNDS, |rounds| rounds.parse().expect("a number"));
    let etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let nodes = [cluster.node("a"), cluster.node("b")];
    let operator = cluster.node("operator");
    let file = cluster.folder().join("pool.yaml");
    let apply = |round: usize| {
        fs::write(&file, text(round)).expect("written");
        let outcome = operator.cli(["pool", "apply", "--yes", "-f", file.to_str().expect("a plain path")]);
        // 3: somebody holds an address outside of the open ranges.
        assert!(matches!(outcome.status.code(), Some(0 | 3)), "{outcome}");
    };
    apply(0);
    let is_over = AtomicBool::new(false);
    let started: usize = thread::scope(|scope| {
        let pods: Vec<_> = (0..PODS)
            .map(|index| {
                let (node, is_over) = (&nodes[index % 2], &is_over);
                scope.spawn(move || pods(node, index, is_over))
            })
            .collect();
        (1..=rounds).for_each(apply);
        is_over.store(true, Ordering::Relaxed);
        pods.into_iter().map(|pods| pods.join().expect("no pod fails")).sum()
    });
    let History { texts, made } = history(&cluster);
    assert!(texts.len() > rounds / 2 && made.len() >= started, "{} texts, {started} pods", texts.len());
    for (revision, key) in made {
        // The last four digits are the third and the fourth number of the address.
        let third = usize::from_str_radix(&key[key.len() - 4..key.len() - 2], 16).expect("an address");
        let states = states(&texts, revision);
        assert_eq!(states[third], "open", "{key} at revision {revision}: {states:?}");
    }
    cluster.assert_nothing_held();
    // A DEL that was short of time among so many may leave a bit.
    cluster.assert_whole();
}

/// The events, by the store's revisions.
#[derive(Default)]
struct History {
    /// Every text of the pool.
    texts: Vec<(i64, Value)>,
    /// Every reservation that was made.
    made: Vec<(i64, String)>,
}

fn history(cluster: &Cluster) -> History {
    let store = cluster.store();
    let (pool, reservations) = (store.key(POOL), store.key(RESERVATIONS));
    let end = store.revision();
    store.run(async |client| {
        let mut history = History::default();
        let options = WatchOptions::new().with_prefix().with_start_revision(1);
        let mut watch = client.watch(store.key("v1/"), Some(options)).await?;
        let mut seen = 0;
        while seen < end {
            let answer = watch.message().await?.expect("the watch goes on");
            for event in answer.events() {
                let kv = event.kv().expect("an event has a key");
                seen = kv.mod_revision();
                let key = String::from_utf8_lossy(kv.key()).into_owned();
                match event.event_type() {
                    EventType::Put if key == pool => {
                        history.texts.push((seen, serde_json::from_slice(kv.value()).expect("JSON")));
                    }
                    EventType::Put if key.starts_with(&reservations) && kv.version() == 1 => {
                        history.made.push((seen, key));
                    }
                    EventType::Put | EventType::Delete => {}
                }
            }
        }
        Ok(history)
    })
}
