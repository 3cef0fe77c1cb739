//! What each verb costs etcd's log, by etcd's own count: a proposal is a durable write on every member.

mod support;

use std::time::Duration;

use serde_json::{Value, json};
use support::{Cluster, Etcd, network, wait_for};

/// Each verb so often.
const RUNS: usize = 20;
/// Leases live for 30 s, and etcd ends some of them a moment later.
const LEASES_END_MAX: Duration = Duration::from_secs(60);

#[test]
fn a_verb_proposes_no_more_than_it_must() {
    let etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let node = cluster.node("n1");
    let config = network(json!({"range": "10.80.0.0/24"}));
    let id = |i: usize| format!("c{i}");
    // The first ADD of a prefix also makes its meta.
    node.add("first").config(&config).run().address();
    let begin = Count::of(&etcd);

    let mut results = Vec::new();
    let adds = Count::since(&etcd, || {
        results = (0..RUNS).map(|i| node.add(&id(i)).config(&config).run().ok()).collect::<Vec<Value>>();
    });
    let checks = Count::since(&etcd, || {
        for (i, result) in results.iter().enumerate() {
            let mut config = config.clone();
            config["prevResult"] = result.clone();
            node.check(&id(i)).config(&config).run().silent();
        }
    });
    let statuses = Count::since(&etcd, || {
        let config = json!({"cniVersion": "1.1.0", "name": "net", "type": "bridge", "ipam": config["ipam"]});
        (0..RUNS).for_each(|_| node.status().config(&config).run().silent());
    });
    let dels =
        Count::since(&etcd, || (0..RUNS).for_each(|i| node.del(&id(i)).config(&config).run().silent()));

    assert_eq!([checks.proposals, statuses.proposals], [0.0, 0.0], "CHECK and STATUS only read");
    // A lease, a place, a commit. A place that arrived before its lease was proposed for nothing and again.
    for (verb, cost) in [("ADD", adds), ("DEL", dels)] {
        assert!(cost.proposals > 0.0 && cost.proposals <= cost.allowed(3, RUNS), "{verb}: {cost:?}");
    }
    // And the lease's end, which nobody waits for.
    wait_for("all leases to end", LEASES_END_MAX, || {
        let [granted, revoked] = ["granted", "revoked"]
            .map(|what| etcd.metric(&format!("etcd_debugging_lease_{what}_total"), &[]));
        if granted == revoked { Ok(()) } else { Err(format!("{revoked} of {granted} have")) }
    });
    let whole = Count::of(&etcd).after(&begin);
    // The lease of the ADD before all the others ends among them.
    assert!(whole.proposals <= whole.allowed(4, 2 * RUNS) + 1.0, "{whole:?}");
    cluster.assert_clean();
}

/// What etcd has counted.
#[derive(Clone, Copy, Debug)]
struct Count {
    proposals: f64,
    /// Transactions that named a lease which was not there (yet).
    leases_not_found: f64,
}

impl Count {
    fn of(etcd: &Etcd) -> Self {
        let txns = ["grpc_method=\"Txn\"", "grpc_code=\"NotFound\""];
        Self {
            proposals: etcd.metric("etcd_server_proposals_committed_total", &[]),
            leases_not_found: etcd.metric("grpc_server_handled_total", &txns),
        }
    }

    fn since(etcd: &Etcd, work: impl FnOnce()) -> Self {
        let before = Self::of(etcd);
        work();
        Self::of(etcd).after(&before)
    }

    fn after(self, before: &Self) -> Self {
        Self {
            proposals: self.proposals - before.proposals,
            leases_not_found: self.leases_not_found - before.leases_not_found,
        }
    }

    fn allowed(&self, each: usize, runs: usize) -> f64 {
        (each * runs) as f64 + self.leases_not_found
    }
}
