//! The cost of each verb to etcd's log, by etcd's own count: a proposal is a durable write on every member.

use serde_json::{Value, json};
use support::{Cluster, Etcd, Node, network};

/// Each verb so often.
const RUNS: usize = 20;

#[test]
fn a_verb_proposes_no_more_than_it_must() {
    let etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let node = cluster.node("n1");
    let config = network(json!({"range": "10.80.0.0/24"}));
    let id = |i: usize| format!("c{i}");
    let first_of =
        |node: &Node| Count::since(&etcd, || _ = node.add("first").config(&config).run().address());
    let (founds, joins) = (first_of(&node), first_of(&cluster.node("n2")));
    // The first ADD of a prefix makes its meta alone, before it gives an address. A node that joins only reads before.
    for (cost, most) in [(founds, 2.0), (joins, 1.0)] {
        assert!(cost.proposals > 0.0 && cost.proposals <= most + cost.leases, "{cost:?}");
    }
    // The other node has written the page since. A wrong hint costs a proposal.
    node.add("again").config(&config).run().address();
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
    // Where nobody contends: a commit each, and a lease for all runs of the node within a while. A free that etcd
    // handles before the grant of its lease is sent again.
    for (verb, cost, of_lease) in [("ADD", adds, 1.0), ("DEL", dels, 2.0)] {
        let most = RUNS as f64 + of_lease * cost.leases;
        assert!(cost.proposals > 0.0 && cost.proposals <= most, "{verb}: {cost:?}");
        assert!(cost.leases < RUNS as f64 / 4.0, "{verb}: {cost:?}");
    }
    // And the leases' ends, which nobody waits for: etcd ends each with one more.
    let store = cluster.store();
    for lease in store.run(async |client| client.leases().await).leases() {
        store.run(async |client| client.lease_revoke(lease.id()).await);
    }
    let whole = Count::of(&etcd).after(&begin);
    // The lease of the ADD before all the others ends among them, and one free may have been sent again.
    assert!(whole.proposals <= 2.0 * (RUNS as f64 + whole.leases) + 2.0, "{whole:?}");
    cluster.assert_clean();
}

/// The counts of etcd.
#[derive(Clone, Copy, Debug)]
struct Count {
    proposals: f64,
    /// Leases that were granted.
    leases: f64,
}

impl Count {
    fn of(etcd: &Etcd) -> Self {
        Self {
            proposals: etcd.metric("etcd_server_proposals_committed_total", &[]),
            leases: etcd.metric("etcd_debugging_lease_granted_total", &[]),
        }
    }

    fn since(etcd: &Etcd, work: impl FnOnce()) -> Self {
        let before = Self::of(etcd);
        work();
        Self::of(etcd).after(&before)
    }

    fn after(self, before: &Self) -> Self {
        Self { proposals: self.proposals - before.proposals, leases: self.leases - before.leases }
    }
}
