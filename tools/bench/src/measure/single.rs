//! One process after the other. Each round runs every kind once, so that a slow moment of the machine hits all of them
//! alike.

use serde_json::{Value, json};

use crate::lab::{Floor, Lab, Wire, of_pod, plain_network, uid};
use crate::options::{Options, Section};
use crate::results::Results;
use crate::samples::Sample;
use support::{Node, Run};

/// Rounds that are not counted: they fill caches, map the binaries' pages and write etcd's first keys.
pub(crate) const ROUNDS_WARM_UP: usize = 10;
/// Addresses that are held all the time, so that the page is not empty.
const HELD: usize = 64;

pub(crate) fn measure(options: &Options, results: &mut Results) {
    let lab = Lab::new(options, Wire::Plain);
    let config = plain_network("single");
    hold_some(&lab, &config);
    let mut single = Single::default();
    for round in 0..ROUNDS_WARM_UP + options.rounds {
        if round == ROUNDS_WARM_UP {
            single = Single::default();
        }
        single.round(&lab, &config, round);
    }
    lab.cluster.assert_clean();
    single.report(&lab, results);
}

fn hold_some(lab: &Lab, config: &Value) {
    for index in 0..HELD {
        let held = format!("held-{index}");
        of_pod(lab.node().add(&held), &held).config(config).run().ok();
        lab.host_local("ADD", &held).run().ok();
    }
}

#[derive(Default)]
struct Single {
    floors: Floors,
    verbs: Verbs,
    add_alone: Sample,
    new_add: Sample,
    quiet_add: Sample,
    join: Sample,
    leave: Sample,
    status: Sample,
    host_local_add: Sample,
    host_local_del: Sample,
    peer_add: Sample,
    peer_del: Sample,
}

/// The processes that do nothing but what nobody can avoid.
#[derive(Default)]
pub(crate) struct Floors {
    put: Sample,
    read: Sample,
}

/// One attachment of a node that has run before.
#[derive(Default)]
pub(crate) struct Verbs {
    add: Sample,
    check: Sample,
    del: Sample,
}

impl Single {
    /// Runs every kind once, in an order that moves with every round; a CHECK and a DEL always follow their ADD.
    fn round(&mut self, lab: &Lab, config: &Value, round: usize) {
        const TURNS: usize = 8;
        let id = format!("round-{round}");
        for turn in 0..TURNS {
            match (round + turn) % TURNS {
                0 => self.floors.round(lab),
                1 => self.verbs.round(lab.node(), &id, config),
                2 => self.first(lab, &id, config),
                3 => self.alone(lab, &id),
                4 => self.join(lab, &id),
                5 => {
                    let mut with_status = config.clone();
                    with_status["cniVersion"] = json!("1.1.0");
                    self.status.take(&lab.node().status().config(&with_status).run());
                }
                6 => {
                    self.host_local_add.take(&lab.host_local("ADD", &id).run());
                    self.host_local_del.take(&lab.host_local("DEL", &id).run());
                }
                _ => {
                    let Some(peer) = &lab.peer else { continue };
                    self.peer_add.take(&peer.run("ADD", &id, 0).run());
                    self.peer_del.take(&peer.run("DEL", &id, 0).run());
                }
            }
        }
    }

    /// The first ADDs of a node that has no folder of its own yet, and of one that only knows the store.
    fn first(&mut self, lab: &Lab, id: &str, config: &Value) {
        let new = lab.cluster.node(&format!("new-{id}"));
        let quiet = lab.quiet_node(&format!("quiet-{id}"));
        let id = format!("first-{id}");
        for (node, sample) in [(new, &mut self.new_add), (quiet, &mut self.quiet_add)] {
            sample.take(&of_pod(node.add(&id), &id).config(config).run());
            of_pod(node.del(&id), &id).config(config).run().silent();
        }
    }

    /// Nobody else writes in this network, so all that the node remembers of it holds.
    fn alone(&mut self, lab: &Lab, id: &str) {
        let id = format!("alone-{id}");
        self.add_alone.take(&of_pod(lab.nodes[1].add(&id), &id).config(&plain_network("alone")).run());
    }

    /// A pod that comes back to its node, with the address that has outlived it, and its DEL.
    fn join(&mut self, lab: &Lab, id: &str) {
        let (node, id) = (&lab.nodes[2], format!("join-{id}"));
        let mut config = plain_network("kept");
        config["ipam"]["sticky"] = json!("pod");
        let of_pod = |run: Run| run.pod("bench", "db-0", &uid(&id)).config(&config);
        self.join.take(&of_pod(node.add(&id)).run());
        self.leave.take(&of_pod(node.del(&id)).run());
    }

    fn report(self, lab: &Lab, results: &mut Results) {
        self.floors.report(Section::Single, results);
        self.verbs.report(Section::Single, results);
        results.add_times(Section::Single, "status", "STATUS", self.status, "read-floor");
        let mut add = |name, what: &str, sample| {
            results.add_times(Section::Single, name, what, sample, "floor");
        };
        add("add-alone", "ADD of a node that adds alone", self.add_alone);
        add("quiet-add", "ADD of a quiet node", self.quiet_add);
        add("new-add", "ADD of a new node", self.new_add);
        add("join", "ADD of a pod that comes back", self.join);
        add("leave", "DEL of such a pod", self.leave);
        add("host-local-add", "host-local ADD", self.host_local_add);
        add("host-local-del", "host-local DEL", self.host_local_del);
        if let Some(peer) = &lab.peer {
            add("peer-add", &format!("{} ADD", peer.name()), self.peer_add);
            add("peer-del", &format!("{} DEL", peer.name()), self.peer_del);
        }
    }
}

impl Floors {
    pub(crate) fn round(&mut self, lab: &Lab) {
        self.put.take(&lab.floor(Floor::Put).run());
        self.read.take(&lab.floor(Floor::Read).run());
    }

    pub(crate) fn report(self, section: Section, results: &mut Results) {
        results.add_times(section, "floor", "floor: connect, one durable put", self.put, "floor");
        results.add_times(section, "read-floor", "floor: connect, one read", self.read, "floor");
    }
}

impl Verbs {
    pub(crate) fn round(&mut self, node: &Node, id: &str, config: &Value) {
        let added = of_pod(node.add(id), id).config(config).run();
        self.add.take(&added);
        let mut with_result = config.clone();
        if added.succeeded() {
            with_result["prevResult"] = added.json();
        }
        self.check.take(&of_pod(node.check(id), id).config(&with_result).run());
        self.del.take(&of_pod(node.del(id), id).config(&with_result).run());
    }

    pub(crate) fn report(self, section: Section, results: &mut Results) {
        results.add_times(section, "add", "ADD", self.add, "floor");
        results.add_times(section, "check", "CHECK", self.check, "read-floor");
        results.add_times(section, "del", "DEL", self.del, "floor");
    }
}
