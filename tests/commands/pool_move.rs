//! A network moves from ranges of its own into pools while pods start and stop: `metes pool from-nad`.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::{Value, json};

use support::{Cluster, Node, Outcome, Run, in_parallel, metes, network};

/// Pods that run from before the move until after it.
const STEADY: [&str; 6] = ["s0", "s1", "s2", "s3", "s4", "s5"];
const LOOPS: usize = 4;
/// The pods that a loop starts by the ranges, and at least by the pools.
const ROUNDS: usize = 5;

fn add(node: &Node, container: &str, config: &Value) -> Outcome {
    node.add(container).pod("ns", container, container).config(config).run()
}

fn definition(config: &Value) -> String {
    let object = json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": "storage", "namespace": "ns", "resourceVersion": "7"},
        "spec": {"config": config.to_string()},
    });
    object.to_string()
}

/// The output of `metes pool from-nad`, and the configuration of the definition with the pools.
fn moved(node: &Node, nad: &str) -> (String, Value) {
    let from_nad = |more: &[&str]| {
        let run = Run::new(metes()).env("METES_CONF", node.host_file());
        let outcome = run.arguments(["pool", "from-nad", "-"]).arguments(more).stdin(nad).run();
        assert!(outcome.succeeded() && outcome.stderr.is_empty(), "{outcome}");
        outcome.stdout
    };
    let printed = from_nad(&["--nad"]);
    // A block of YAML, in which the configuration is the only part in braces.
    let (_, config) = printed.split_once("config: |").expect("a block");
    let config = &config[config.find('{').expect("JSON")..=config.rfind('}').expect("JSON")];
    (from_nad(&[]), serde_json::from_str(config).expect("JSON"))
}

#[test]
fn a_network_moves_into_pools_under_load_and_nobody_is_renumbered() {
    let own = json!({
        "network_name": "blue", "gateway": "10.56.0.254",
        "ipRanges": [{"range": "10.56.0.9-10.56.0.60/24", "exclude": ["10.56.0.16/29"]}, {"range": "fd00:56::/120"}],
        "routes": [{"dst": "10.0.0.0/8", "gw": "10.56.0.254"}],
    });
    let host_local = json!({
        "network_name": "green",
        "ranges": [[{"subnet": "10.57.0.0/27"}, {"subnet": "10.58.0.0/27", "gateway": "10.58.0.9"}]],
    });
    for ipam in [own, host_local] {
        let cluster = Cluster::new();
        let nodes = [cluster.node("a"), cluster.node("b")];
        let before = network(ipam);
        let first: Vec<Value> = STEADY.iter().map(|pod| add(&nodes[0], pod, &before).ok()).collect();
        let (pools, after) = moved(&nodes[0], &definition(&before));
        assert!(after["ipam"].get("pool").or(after["ipam"].get("pools")).is_some(), "{after}");
        let file = cluster.folder().join("pools.yaml");
        fs::write(&file, pools).expect("it can be written");

        let is_switched = AtomicBool::new(false);
        thread::scope(|scope| {
            let loops: Vec<_> = (0..LOOPS)
                .map(|at| {
                    let (node, before, after) = (&nodes[at % 2], &before, &after);
                    let is_switched = &is_switched;
                    scope.spawn(move || {
                        let mut by_pools = 0;
                        for number in 0.. {
                            let of_pools = is_switched.load(Ordering::Relaxed);
                            by_pools += usize::from(of_pools);
                            if by_pools > ROUNDS {
                                return;
                            }
                            let (pod, config) =
                                (format!("c{at}-{number}"), if of_pools { after } else { before });
                            assert!(add(node, &pod, config).succeeded(), "{pod}");
                            // A pod that was started by the ranges may stop by the pools.
                            let config = if number % 2 == 0 { after } else { config };
                            node.del(&pod).config(config).run().silent();
                        }
                    })
                })
                .collect();
            let applied = nodes[1].cli(["pool", "apply", "--yes", "-f", file.to_str().expect("a path")]);
            assert!(applied.succeeded(), "{applied}");
            is_switched.store(true, Ordering::Relaxed);
            loops.into_iter().for_each(|pods| pods.join().expect("no pod fails"));
        });
        let steady: Vec<(&str, &Value)> = STEADY.into_iter().zip(&first).collect();
        let again = in_parallel(4, &steady, |(pod, _)| add(&nodes[0], pod, &after).ok());
        for ((pod, first), again) in steady.iter().zip(again) {
            assert_eq!(again["ips"], first["ips"], "{pod}");
            assert_eq!(again["routes"], first["routes"], "{pod}");
            let mut check = after.clone();
            check["prevResult"] = (*first).clone();
            nodes[0].check(pod).config(&check).run().silent();
        }
        let sandbox = nodes[0].add("s0x").pod("ns", "s0", "s0").config(&after).run().ok();
        assert_eq!(sandbox["ips"], first[0]["ips"], "another sandbox of the pod has its addresses");
        nodes[0].del("s0x").config(&after).run().silent();
        for pod in STEADY {
            nodes[0].del(pod).config(&after).run().silent();
        }
        cluster.assert_nothing_held();
        cluster.assert_whole();
    }
}
