//! ADDs from pools, each beside one from the same ranges in the configuration itself. Every kind has a network and a
//! node of its own, so what the node remembers of it holds. Each round runs every kind once.

use serde_json::{Value, json};

use crate::lab::{Lab, Wire, of_pod};
use crate::measure::single::{Floors, ROUNDS_WARM_UP};
use crate::options::{Options, Section};
use crate::results::Results;
use crate::samples::Sample;
use support::{in_parallel, network_as};

/// The numbers of ranges in each pair. A range has 253 addresses.
const RANGES: [usize; 2] = [2, 200];
/// The number of cooling addresses in one page.
const COOLING: usize = 4000;
/// The number of processes that make them so at once.
const AT_ONCE: usize = 64;

struct AddKind {
    name: String,
    what: String,
    config: Value,
    /// The row that it is compared with.
    base: String,
    add: Sample,
}

pub(crate) fn measure(options: &Options, results: &mut Results) {
    let lab = Lab::new(options, Wire::Plain);
    let mut kinds: Vec<AddKind> = RANGES.into_iter().flat_map(|ranges| pair(&lab, ranges)).collect();
    kinds.push(beside_cooling(&lab));
    let mut floors = Floors::default();
    for round in 0..ROUNDS_WARM_UP + options.rounds {
        if round == ROUNDS_WARM_UP {
            floors = Floors::default();
            kinds.iter_mut().for_each(|kind| kind.add = Sample::default());
        }
        floors.round(&lab);
        let turns = kinds.len();
        for turn in 0..turns {
            let at = (round + turn) % turns;
            let AddKind { name, config, add, .. } = &mut kinds[at];
            let (node, id) = (&lab.nodes[at], format!("{name}-{round}"));
            add.take(&of_pod(node.add(&id), &id).config(config).run());
            // With few ranges, what is held must not fill them.
            of_pod(node.del(&id), &id).config(config).run().silent();
        }
    }
    floors.report(Section::Pools, results);
    for AddKind { name, what, base, add, .. } in kinds {
        results.add_times(Section::Pools, name, what, add, &base);
    }
    lab.cluster.assert_clean();
}

/// The same ranges in a configuration and in a pool.
fn pair(lab: &Lab, ranges: usize) -> [AddKind; 2] {
    let subnets = |net: usize| (0..ranges).map(move |at| format!("10.{net}.{at}.0/24"));
    let [of_config, of_pool] = ["config", "pool"].map(|form| format!("{form}-{ranges}"));
    let set: Vec<Value> = subnets(66).map(|subnet| json!({"subnet": subnet})).collect();
    let own = json!({"ranges": [set], "network_name": of_config});
    // host-local's form has a gateway for each range, the first address.
    let written: Vec<Value> = (0..ranges)
        .zip(subnets(67))
        .map(|(at, subnet)| json!({"range": subnet, "gateway": format!("10.67.{at}.1")}))
        .collect();
    let pool = json!({"pool": of_pool, "network": of_pool, "ranges": written});
    let applied = lab.node().pool(&["apply", "--yes", "-f", "-"], &pool.to_string());
    assert!(applied.succeeded(), "{applied}");
    let kind = |name: &str, what: &str, ipam: Value, base: &str| AddKind {
        name: name.to_owned(),
        what: format!("ADD from {what} of {ranges} ranges"),
        config: network_as("1.0.0", name, ipam),
        base: base.to_owned(),
        add: Sample::default(),
    };
    [
        kind(&of_config, "a configuration", own, "floor"),
        kind(&of_pool, "a pool", json!({"pool": of_pool}), &of_config),
    ]
}

/// A pool of one page, most of whose addresses are cooling: another pool of its network has freed them.
fn beside_cooling(lab: &Lab) -> AddKind {
    let pool = |name: &str, cooldown: &str| {
        let ranges = [json!({"range": "10.68.0.0/20"})];
        json!({"pool": name, "network": "cooling", "ranges": ranges, "order": "lowest", "cooldown": cooldown})
    };
    for pool in [pool("resting", "1h"), pool("beside", "0s")] {
        let applied = lab.node().pool(&["apply", "--yes", "-f", "-"], &pool.to_string());
        assert!(applied.succeeded(), "{applied}");
    }
    let network = |name: &str| network_as("1.0.0", name, json!({"pool": name}));
    let resting = network("resting");
    let ids: Vec<String> = (0..COOLING).map(|at| format!("resting-{at}")).collect();
    in_parallel(AT_ONCE, ids.iter().enumerate(), |(at, id)| {
        let node = &lab.nodes[at % lab.nodes.len()];
        of_pod(node.add(id), id).config(&resting).run().ok();
        of_pod(node.del(id), id).config(&resting).run().silent();
    });
    AddKind {
        name: "cooling".to_owned(),
        what: format!("ADD beside {COOLING} that cool"),
        config: network("beside"),
        base: "pool-2".to_owned(),
        add: Sample::default(),
    }
}
