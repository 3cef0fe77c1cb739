//! Many runs at once: no address twice, nothing left behind, whatever the ranges and the order.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;

use metes_core::keys::{Keys, LeaseId, Scope};
use metes_core::limits;
use metes_core::pool::Owner;
use metes_core::request::TicketRecord;
use metes_core::snapshot::Snapshot;
use metes_engine::kv::Failure;
use metes_engine::queue::{Queue, Turn};
use metes_engine::session::Session;
use serde_json::{Value, json};
use support::{Cluster, Etcd, EtcdOptions, Node, Outcome, SlowTrio, in_parallel, network, plain_store};
use tokio::time::Instant;

const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Processes at a time.
const WIDTH: usize = 16;
const STORM: usize = 1000;

/// Adds one container for each configuration, `WIDTH` at a time, spread over the nodes.
fn add_all(nodes: &[Node], configs: &[&Value]) -> Vec<Outcome> {
    in_parallel(WIDTH, configs.iter().enumerate(), |(index, config)| {
        nodes[index % nodes.len()].add(&format!("c{index}")).config(config).run()
    })
}

fn delete_all(nodes: &[Node], configs: &[&Value]) {
    let outcomes = in_parallel(WIDTH, configs.iter().enumerate(), |(index, config)| {
        nodes[index % nodes.len()].del(&format!("c{index}")).config(config).run()
    });
    outcomes.iter().for_each(Outcome::silent);
}

#[track_caller]
fn assert_distinct(addresses: &[String]) {
    let mut seen = BTreeSet::new();
    let twice: Vec<&String> = addresses.iter().filter(|address| !seen.insert(*address)).collect();
    assert!(twice.is_empty(), "given to more than one container: {twice:?}");
}

/// Adds all, proves that the answers of the runs are unique and equal to the store, and frees all.
fn storm(nodes: &[&str], configs: &[&Value]) {
    let cluster = Cluster::new();
    let nodes: Vec<Node> = nodes.iter().map(|name| cluster.node(name)).collect();
    let addresses: Vec<String> = add_all(&nodes, configs).iter().map(Outcome::address).collect();
    assert_distinct(&addresses);
    cluster.assert_clean();
    let said: BTreeSet<&str> = addresses.iter().map(String::as_str).collect();
    let list = nodes[0].list();
    let stored: BTreeSet<&str> = list.iter().filter_map(|held| held["address"].as_str()).collect();
    assert_eq!(said, stored);
    delete_all(&nodes, configs);
    cluster.assert_nothing_held();
    cluster.assert_whole();
}

#[test]
fn a_thousand_adds_in_one_range() {
    let config = network(json!({"range": "10.20.0.0/22"}));
    storm(&["n1"], &[&config; STORM]);
}

#[test]
fn a_thousand_adds_over_two_overlapping_ranges() {
    // Both take the lowest address. The larger range has two pages, and so a queue of its own: every ADD races. The
    // smaller range alone has room for all of them, so that none can be full whoever wins.
    let whole = network(json!({"range": "10.20.0.0/19"}));
    let half = network(json!({"range": "10.20.0.0/22"}));
    let configs: Vec<&Value> = (0..STORM).map(|index| if index % 2 == 0 { &half } else { &whole }).collect();
    storm(&["n1"], &configs);
}

#[test]
fn a_thousand_adds_in_order_next_over_four_nodes() {
    let whole = network(json!({"range": "10.20.0.0/22", "order": "next"}));
    let half = network(json!({"range": "10.20.2.0/23", "order": "next"}));
    let configs: Vec<&Value> = (0..STORM).map(|index| if index % 10 < 3 { &half } else { &whole }).collect();
    storm(&["n1", "n2", "n3", "n4"], &configs);
}

#[test]
fn a_thousand_adds_in_order_spread_over_four_nodes() {
    let config = network(json!({"range": "10.20.0.0/22", "order": "spread"}));
    storm(&["n1", "n2", "n3", "n4"], &[&config; STORM]);
}

#[test]
fn nodes_with_a_range_each_in_one_page_share_a_queue() {
    const NODES: usize = 64;
    /// A lease, at most two commits that are lost, and a ticket; and the commits that serve it with others.
    const PROPOSALS_MAX: f64 = 5.0;
    let trio = SlowTrio::start(&EtcdOptions::default(), Some(Duration::from_millis(10)));
    let cluster = Cluster::on_slow_trio(&trio);
    let own = |index: usize| {
        let range = format!("10.25.{}.{}/28", index / 16, index % 16 * 16);
        (cluster.node(&format!("n{index}")), network(json!({"range": range, "order": "next"})))
    };
    let nodes: Vec<(Node, Value)> = (0..NODES).map(own).collect();
    let proposals = || trio.members()[0].metric("etcd_server_proposals_committed_total", &[]);
    let first = network(json!({"range": "10.26.0.0/24"}));
    nodes[0].0.add("first").config(&first).run().address();

    let before = proposals();
    let added = in_parallel(NODES, &nodes, |(node, config)| node.add("c").config(config).run());
    let each = (proposals() - before) / NODES as f64;
    assert_distinct(&added.iter().map(Outcome::address).collect::<Vec<_>>());
    assert!(each <= PROPOSALS_MAX, "{each} proposals for an ADD");

    nodes[0].0.del("first").config(&first).run().silent();
    let freed = in_parallel(WIDTH, &nodes, |(node, config)| node.del("c").config(config).run());
    freed.iter().for_each(Outcome::silent);
    cluster.assert_nothing_held();
    cluster.assert_whole();
}

#[test]
fn spread_over_many_pages_gives_each_node_its_own() {
    // Sixteen pages of 4096.
    let config = network(json!({"range": "10.64.0.0/16", "order": "spread"}));
    storm(&["n1", "n2", "n3", "n4"], &[&config; 200]);
}

#[test]
fn a_full_range_says_so_and_a_del_makes_room() {
    let cluster = Cluster::new();
    let nodes = [cluster.node("n1")];
    let config = network(json!({"range": "10.21.0.0/24", "network_name": "small"}));
    let outcomes = add_all(&nodes, &[&config; 254]);
    let addresses: Vec<String> = outcomes.iter().map(Outcome::address).collect();
    assert_distinct(&addresses);

    let error = nodes[0].add("late").config(&config).run().error(100);
    let msg = error["msg"].as_str().unwrap_or_default();
    for part in ["small", "10.21.0.0/24", "size 254", "held 254"] {
        assert!(msg.contains(part), "no {part:?} in {msg:?}");
    }
    let many = in_parallel(WIDTH, 0..WIDTH, |i| nodes[0].add(&format!("many{i}")).config(&config).run());
    many.iter().for_each(|outcome| _ = outcome.error(100));

    nodes[0].del("c100").config(&config).run().silent();
    assert_eq!(nodes[0].add("late").config(&config).run().address(), addresses[100]);
    nodes[0].add("later").config(&config).run().error(100);
    nodes[0].del("late").config(&config).run().silent();
    delete_all(&nodes, &[&config; 254]);
    cluster.assert_nothing_held();
    cluster.assert_whole();
}

#[test]
fn del_del_and_add_of_one_owner_at_once_leave_what_the_add_said() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    let config = network(json!({"range": "10.22.0.0/24"}));
    for round in 0..40 {
        if round % 2 == 0 {
            node.add("c").config(&config).run().address();
        }
        // Each verb is the first to start in some rounds.
        let order = [["DEL", "DEL", "ADD"], ["DEL", "ADD", "DEL"], ["ADD", "DEL", "DEL"]][round % 3];
        let outcomes = in_parallel(3, order, |verb| match verb {
            "ADD" => (verb, node.add("c").config(&config).run()),
            _ => (verb, node.del("c").config(&config).run()),
        });
        let mut answered = None;
        for (verb, outcome) in &outcomes {
            match *verb {
                "DEL" => outcome.silent(),
                _ if outcome.succeeded() => answered = Some(outcome.address()),
                // A DEL that began later may end it.
                _ => _ = outcome.error(11),
            }
        }
        let list = node.list();
        let held: Vec<&str> = list.iter().filter_map(|held| held["address"].as_str()).collect();
        let is_consistent = match held[..] {
            [] => true,
            [address] => answered.as_deref() == Some(address),
            _ => false,
        };
        assert!(is_consistent, "round {round}, {order:?}: ADD said {answered:?}, held is {held:?}");
        cluster.assert_clean();
        node.del("c").config(&config).run().silent();
        cluster.assert_nothing_held();
    }
    node.add("c").config(&config).run().address();
    node.del("c").config(&config).run().silent();
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

#[test]
fn adds_of_one_owner_at_once_agree() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    let config = network(json!({"range": "10.23.0.0/24", "order": "next"}));
    for round in 0..20 {
        let container = format!("c{round}");
        let said = in_parallel(3, 0..3, |_| node.add(&container).config(&config).run().address());
        assert!(said.iter().all(|address| *address == said[0]), "round {round}: {said:?}");
    }
    assert_eq!(node.list().len(), 20);
    in_parallel(4, 0..20, |round| node.del(&format!("c{round}")).config(&config).run().silent());
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

#[test]
fn a_storm_of_ranges_of_one_address_has_one_winner_each() {
    const RANGES: u32 = 64;
    const CONTENDERS: u32 = 4;
    let cluster = Cluster::new();
    let nodes: Vec<Node> = (0..CONTENDERS).map(|index| cluster.node(&format!("n{index}"))).collect();
    let config = |range: u32| {
        let address = Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 24, 0, 1)) + range);
        network(json!({"range": "10.24.0.0/24", "range_start": address, "range_end": address}))
    };
    let jobs: Vec<(u32, u32)> = (0..RANGES).flat_map(|r| (0..CONTENDERS).map(move |c| (r, c))).collect();
    let name = |range: u32, contender: u32| format!("c{range}-{contender}");
    let outcomes = in_parallel(WIDTH, jobs.clone(), |(range, contender)| {
        let outcome = nodes[contender as usize].add(&name(range, contender)).config(&config(range)).run();
        (range, outcome)
    });
    let mut winners: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for (range, outcome) in &outcomes {
        let winners = winners.entry(*range).or_default();
        if outcome.succeeded() {
            winners.push(outcome.address());
        } else {
            outcome.error(100);
        }
    }
    for (range, winners) in &winners {
        let expected = Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 24, 0, 1)) + range);
        assert_eq!(winners[..], [expected.to_string()], "range {range}");
    }
    cluster.assert_clean();
    in_parallel(WIDTH, jobs, |(range, contender)| {
        nodes[contender as usize].del(&name(range, contender)).config(&config(range)).run().silent();
    });
    cluster.assert_nothing_held();
    cluster.assert_whole();
}

#[test]
fn who_stands_behind_another_does_not_take_its_own_ticket_for_a_turn() {
    let cluster = Cluster::new();
    let (keys, etcd) = (Keys::new(cluster.prefix()), plain_store(&Etcd::shared().endpoint(), ANSWER_MAX));
    let lease = cluster.store().run(async |client| client.lease_grant(60, None).await).id();
    let scope = Scope::stored("crowd,00000000000000000000ffff0a000000-8").expect("a scope's characters");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let session = Session { kv: &etcd, keys: &keys, until: Instant::now() + ANSWER_MAX };
        let queue = Queue::new(session, &scope);
        let owner = |name| Owner::named(["-", "node", name, "eth0"]).expect("plain names");
        let take = async |name| {
            let record = TicketRecord::of(owner(name));
            let (proof, seen) = (keys.owner(&record.owner), &mut Snapshot::default());
            let leases = (LeaseId(lease), LeaseId(lease));
            let taken = queue.take(leases, (&record, &proof), (&[], &|| None), seen, &mut false).await;
            taken.expect("etcd takes a ticket")
        };
        assert!(take("first").await.is_first);
        // Half of the time after which it would lose patience.
        let waiting = queue.by(Instant::now() + limits::PATIENCE.least / 2);
        let turn = waiting.wait(&mut take("second").await, &keys.owner(&owner("second")), |_| false).await;
        // A request of the wait that is on its way at that moment has no answer.
        assert!(matches!(turn, Ok(Turn::OutOfTime) | Err(Failure::Unknown(_))), "{turn:?}");
    });
    cluster.leave_unclean();
}
