//! Many runs die while they queue, as when a node reboots or a rollout is aborted, and others come after them. The
//! links to etcd are slow, as between zones.

use std::net::Ipv4Addr;
use std::time::Duration;

use metes_core::pool::{Owner, Record, RunStart, Tombstone};
use metes_core::request::TicketRecord;
use serde_json::{Value, json};
use support::{Cluster, Etcd, Node, Outcome, Relays, Run, Running, in_parallel, network, wait_for};

const ONE_WAY: Duration = Duration::from_millis(20);
/// A run that dead ones hold up ends with its deadline, after 20 s.
const ANSWERED_MAX: Duration = Duration::from_secs(10);
/// A ticket, a lease, and at most one after a race with others that have their turns; and a share of the commits that
/// serve it.
const PROPOSALS_MAX: f64 = 6.0;
/// The longest until runs have taken their tickets, or have died.
const QUEUED_MAX: Duration = Duration::from_secs(60);
/// Tickets of the dead live as long as those of runs that are killed.
const TICKET_S: i64 = 30;
/// Processes at a time.
const WIDTH: usize = 16;
/// The ticket of a run that died first: all others queue behind it.
const FIRST: &str = "0000000000000001";

/// A range that some nodes use through slow links.
struct Scene {
    etcd: Etcd,
    cluster: Cluster,
    nodes: Vec<Node>,
    config: Value,
    /// The name of its queue.
    scope: String,
    _relays: Relays,
}

impl Scene {
    /// So many addresses of the range are held.
    fn new(range: &str, held: usize) -> Self {
        let etcd = Etcd::start();
        let cluster = Cluster::on(&etcd);
        let (relays, endpoint) = Relays::before_endpoint(&etcd.endpoint(), ONE_WAY);
        let slow = json!({"etcd": {"endpoints": [endpoint]}});
        let nodes: Vec<Node> = (0..4).map(|at| cluster.node_with(&format!("n{at}"), slow.clone())).collect();
        let config = network(json!({"range": range}));
        // These do not take the slow links.
        let near = cluster.node("n9");
        in_parallel(WIDTH, 0..held.max(1), |at| {
            near.add(&format!("held{at}")).config(&config).run().address()
        });
        let scope = cluster.store().queue_of("v1/owner/test/n9/held0/eth0");
        Self { etcd, cluster, nodes, config, scope, _relays: relays }
    }

    fn node(&self, at: usize) -> &Node {
        &self.nodes[at % self.nodes.len()]
    }

    fn add(&self, stem: &str, at: usize) -> Run {
        self.node(at).add(&format!("{stem}{at}")).config(&self.config)
    }

    fn tickets(&self) -> usize {
        self.cluster.store().keys(&format!("v1/ticket/{}/", self.scope)).len()
    }

    /// Leaves the ticket of a run that nobody can serve, and that is dead.
    fn leave_ticket(&self, id: &str, container: &str) {
        let ticket = TicketRecord::of(owner(container)).encode();
        let store = self.cluster.store();
        store.put_leased(&format!("v1/ticket/{}/{id}", self.scope), ticket, TICKET_S);
        store.put_leased(&format!("v1/tail/{}", self.scope), id, TICKET_S);
    }

    /// Begins these runs, and ends all of them as soon as each has its ticket.
    fn die_in_queue(&self, runs: Vec<Run>) {
        self.leave_ticket(FIRST, "first");
        let most = runs.len() + 1;
        let mut running: Vec<Running> = runs.into_iter().map(Run::spawn).collect();
        wait_for("tickets of all runs", QUEUED_MAX, || {
            // As long as they see it move, they wait.
            self.cluster.store().put(&format!("v1/moved/{}", self.scope), "");
            match self.tickets() {
                tickets if tickets >= most => Ok(()),
                tickets => Err(format!("{tickets} tickets")),
            }
        });
        running.iter_mut().for_each(Running::kill);
        drop(running.into_iter().map(Running::wait).collect::<Vec<_>>());
        self.cluster.store().delete(&format!("v1/moved/{}", self.scope));
    }

    /// All at once.
    fn run(&self, runs: Vec<Run>) -> Vec<Outcome> {
        let (begun, before) = (runs.len(), self.proposals());
        let outcomes = in_parallel(begun, runs, Run::run);
        let each = (self.proposals() - before) / begun as f64;
        assert!(each <= PROPOSALS_MAX, "{each} proposals for a run");
        let longest = outcomes.iter().map(|outcome| outcome.elapsed).max();
        assert!(longest < Some(ANSWERED_MAX), "the last answer came after {longest:?}");
        outcomes
    }

    fn proposals(&self) -> f64 {
        self.etcd.metric("etcd_server_proposals_committed_total", &[])
    }
}

fn owner(container: &str) -> Owner {
    Owner::named(["test", "n0", container, "eth0"]).expect("plain names")
}

#[track_caller]
fn assert_served(outcomes: &[Outcome]) {
    outcomes.iter().for_each(|outcome| _ = outcome.address());
}

#[test]
fn runs_that_were_killed_and_deleted_hold_nobody_up() {
    const DEAD: usize = 60;
    let scene = Scene::new("10.90.0.0/26", 25);
    scene.die_in_queue((0..DEAD).map(|at| scene.add("dead", at)).collect());
    in_parallel(WIDTH, 0..DEAD, |at| {
        scene.node(at).del(&format!("dead{at}")).config(&scene.config).run().silent();
    });
    // 37 addresses are free, and each dead run would have taken one.
    assert_served(&scene.run((0..25).map(|at| scene.add("living", at)).collect()));
    scene.cluster.assert_whole();
}

#[test]
fn dead_runs_that_nobody_can_serve_hold_nobody_up() {
    for (range, are_deleted) in [("10.91.0.0/24", true), ("10.92.0.0/24", false)] {
        let scene = Scene::new(range, 1);
        for at in 0..150 {
            scene.leave_ticket(&format!("{:016x}", at + 2), &format!("dead{at}"));
        }
        let tombstone = Tombstone::new(RunStart { boot: "another".into(), ns: 1 }).encode();
        for at in (0..150).filter(|_| are_deleted) {
            let key = format!("v1/tombstone/test/n0/dead{at}/eth0");
            scene.cluster.store().put_leased(&key, tombstone.clone(), 900);
        }
        assert_served(&scene.run((0..15).map(|at| scene.add("living", at)).collect()));
        if are_deleted {
            assert_eq!(scene.tickets(), 0, "tickets of deleted owners are gone");
        }
        scene.cluster.leave_unclean();
    }
}

#[test]
fn dead_runs_that_ask_for_addresses_hold_nobody_up() {
    let scene = Scene::new("10.93.0.0/20", 1);
    let asks = |stem: &str, at: usize, address: Ipv4Addr| {
        scene.add(stem, at).args(&format!("IgnoreUnknown=1;IP={address}"))
    };
    let address = |at: usize| Ipv4Addr::new(10, 93, 7, u8::try_from(at).expect("few"));
    scene.die_in_queue((0..10).map(|at| asks("dead", at, address(at))).collect());
    in_parallel(WIDTH, 0..10, |at| {
        scene.node(at).del(&format!("dead{at}")).config(&scene.config).run().silent();
    });
    // Some ask for what dead runs have asked for.
    let outcomes = scene.run((0..25).map(|at| asks("living", at, address(at))).collect());
    assert_served(&outcomes);
    for (at, outcome) in outcomes.iter().enumerate() {
        assert_eq!(outcome.address(), address(at).to_string());
    }
    scene.cluster.assert_whole();
}

#[test]
fn where_few_addresses_are_free_behind_a_dead_run_all_others_say_so_at_once() {
    const FREE: usize = 10;
    const ALL: usize = 60;
    let scene = Scene::new("10.95.0.0/26", 62 - FREE);
    scene.leave_ticket(FIRST, "first");
    let outcomes = scene.run((0..ALL).map(|at| scene.add("living", at)).collect());
    let (served, refused): (Vec<&Outcome>, Vec<&Outcome>) =
        outcomes.iter().partition(|outcome| outcome.succeeded());
    assert_eq!(served.len(), FREE);
    refused.into_iter().for_each(|outcome| _ = outcome.error(100));
    scene.cluster.leave_unclean();
}

/// A run behind the dead DEL asks for the address that the DEL would have freed.
#[test]
fn what_a_dead_del_would_have_freed_is_given() {
    let scene = Scene::new("10.96.0.0/24", 1);
    let node = &scene.nodes[0];
    let freed = node.add("freed").config(&scene.config).run().address();
    node.forget_owners();
    scene.die_in_queue(vec![node.del("freed").config(&scene.config)]);
    let asking = scene.add("living", 1).args(&format!("IgnoreUnknown=1;IP={freed}"));
    assert_eq!(scene.run(vec![asking])[0].address(), freed);
    scene.cluster.leave_unclean();
}

/// A head that would serve it can commit nothing: etcd refuses a transaction that puts a key on such a lease.
#[test]
fn a_dead_del_whose_tombstones_lease_has_ended_holds_nobody_up() {
    let scene = Scene::new("10.94.0.0/24", 1);
    let node = &scene.nodes[0];
    node.add("freed").config(&scene.config).run().address();
    // By its hints, a DEL waits in no queue.
    node.forget_owners();
    scene.die_in_queue(vec![node.del("freed").config(&scene.config)]);
    let store = scene.cluster.store();
    let tickets = store.entries(&format!("v1/ticket/{}/", scene.scope));
    let asked = tickets.iter().filter_map(|(_, ticket)| serde_json::from_slice::<Value>(ticket).ok());
    let lease = asked.filter_map(|ticket| ticket["free"]["lease"].as_i64()).next().expect("a DEL waits");
    store.run(async |client| client.lease_revoke(lease).await);
    assert_served(&scene.run((0..3).map(|at| scene.add("living", at)).collect()));
    scene.cluster.leave_unclean();
}
