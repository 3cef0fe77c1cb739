//! ADDs in networks that hold very many addresses, in turn with ADDs in an empty one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use metes_core::keys::{Keys, Scope};
use metes_core::pool::{Addr, NetworkName};
use serde_json::{Value, json};

use super::add_and_del;
use super::fill::{self, HeldRun};
use crate::lab::{Lab, Wire, of_pod};
use crate::measure::single::ROUNDS_WARM_UP;
use crate::options::{Options, Section};
use crate::results::{Data, Results};
use crate::samples::{Sample, float};
use support::{Cluster, Etcd, Node, network_as};

/// For each part of a listing, etcd counts all that is left of it: a walk over twice as much takes four times as long.
const CHECKED_AT_MOST: usize = 300_000;

pub(super) fn measure(options: &Options, results: &mut Results) {
    let lab = Lab::new(options, Wire::Plain);
    let held = options.held.min(assignable(8) - 1);
    let last = last_free(held);
    let of_last = format!("of the last one of a /{}", last.prefix_len);
    let v4 = |network, held| Range { network, base: V4_BASE, prefix_len: 8, held };
    let v6 = |network, held| Range { network, base: V6_BASE, prefix_len: 64, held };
    let mut cases = [
        (["add-empty", "requests-empty"], "in an empty /8".to_owned(), v4("empty", 0)),
        (["add-8", "requests-8"], format!("in a /8 that holds {held}"), v4("filled-8", held)),
        (["add-64", "requests-64"], format!("in a /64 that holds {held}"), v6("filled-64", held)),
        (["add-last", "requests-last"], of_last, last),
    ]
    .map(|(names, what, range)| Case::new(&lab, names, what, &range));
    for round in 0..ROUNDS_WARM_UP + options.rounds {
        for turn in 0..cases.len() {
            let case = &mut cases[(round + turn) % 4];
            let time = add_and_del(&case.node, &format!("round-{round}"), &case.config);
            if round >= ROUNDS_WARM_UP {
                case.sample.add(time);
            }
        }
    }
    for case in &mut cases {
        case.requests_per_add = requests_per_add(lab.etcd(), &case.node, &case.config);
        case.assert_clean();
    }
    lab.cluster.assert_whole();
    for case in cases {
        let what = format!("ADD {}", case.what);
        results.add_times(Section::Size, case.name, what, case.sample, "add-empty");
        let what = format!("round trips of an ADD {}", case.what);
        results.add(Section::Size, case.requests, what, Data::Number(vec![case.requests_per_add], ""));
    }
}

/// A network whose ADDs are timed. It has a prefix of its own, so that the tree of `metes check` is bounded.
struct Case {
    cluster: Cluster,
    node: Node,
    held: usize,
    name: &'static str,
    requests: &'static str,
    what: String,
    config: Value,
    sample: Sample,
    requests_per_add: f64,
}

impl Case {
    fn new(lab: &Lab, [name, requests]: [&'static str; 2], what: String, range: &Range) -> Self {
        let cluster = Cluster::on(lab.etcd());
        let (node, config) = (cluster.node("node"), range.config());
        // The very first ADD writes meta.
        add_and_del(&node, "first", &config);
        if range.held > 0 {
            eprintln!("  filling {}/{} with {} addresses", range.base, range.prefix_len, range.held);
            let keys = Keys::new(cluster.prefix());
            // The empty page that they left is overwritten.
            fill::put(cluster.store(), range.held_run().entries(&keys));
        }
        let held = range.held;
        Self {
            cluster,
            node,
            held,
            name,
            requests,
            what,
            config,
            sample: Sample::default(),
            requests_per_add: f64::NAN,
        }
    }

    fn assert_clean(&self) {
        if self.held <= CHECKED_AT_MOST {
            return self.cluster.assert_whole();
        }
        eprintln!(
            "  not checked: {} addresses are more than one `metes check` gets through in time",
            self.held
        );
        self.cluster.leave_unclean();
    }
}

/// A range, and how many of its addresses are held from the lowest on.
struct Range {
    network: &'static str,
    base: IpAddr,
    prefix_len: u32,
    held: usize,
}

impl Range {
    fn config(&self) -> Value {
        let range = format!("{}/{}", self.base, self.prefix_len);
        network_as("1.0.0", self.network, json!({"range": range, "network_name": self.network}))
    }

    fn held_run(&self) -> HeldRun {
        let base = Addr::from(self.base);
        let scope = format!("{},{:032x}-{}", self.network, base.0, self.prefix_len);
        HeldRun {
            network: NetworkName::configured(self.network).expect("a plain name"),
            scope: Scope::stored(&scope).expect("a scope's characters"),
            // The lowest address is the network's own.
            first: Addr(base.0 + 1),
            count: self.held,
        }
    }
}

/// The smallest IPv4 range that `--held` addresses fill, and one address is left: a /12 for a million.
fn last_free(held: usize) -> Range {
    let prefix_len = (8..=28).rev().find(|len| assignable(*len) > held).unwrap_or(8);
    Range { network: "last", base: V4_BASE, prefix_len, held: assignable(prefix_len) - 1 }
}

/// Without the network's own address and broadcast.
fn assignable(prefix_len: u32) -> usize {
    (1 << (32 - prefix_len)) - 2
}

const V4_BASE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 0));
const V6_BASE: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0));

/// Round trips as etcd counts them. The lease, which is granted during the first one, is not among them; neither is a
/// ticket that arrived before its lease and was refused.
fn requests_per_add(etcd: &Etcd, node: &Node, config: &Value) -> f64 {
    const TRIES: usize = 20;
    let mut requests = 0.0;
    for index in 0..TRIES {
        let id = format!("counted-{index}");
        let before = requests_answered(etcd);
        of_pod(node.add(&id), &id).config(config).run().ok();
        requests += requests_answered(etcd) - before;
        of_pod(node.del(&id), &id).config(config).run().silent();
    }
    requests / float(TRIES)
}

fn requests_answered(etcd: &Etcd) -> f64 {
    let answered = |method: &str| {
        let labels = [format!("grpc_method=\"{method}\""), "grpc_code=\"OK\"".to_owned()];
        etcd.metric("grpc_server_handled_total", &[&labels[0], &labels[1]])
    };
    answered("Txn") + answered("Range")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_addresses_are_a_slash_12_with_one_free() {
        for (held, prefix_len, left) in [(1_000_000, 12, 1_048_573), (100_000, 15, 131_069), (10, 28, 13)] {
            let range = last_free(held);
            assert_eq!((range.prefix_len, range.held), (prefix_len, left), "{held}");
        }
    }
}
