//! ADDs on an etcd of three members of which one has failed, next to three that are well.

use crate::lab::{of_pod, plain_network};
use crate::measure::single::ROUNDS_WARM_UP;
use crate::options::{Options, Section};
use crate::results::Results;
use crate::samples::Sample;
use support::{Cluster, EtcdOptions, Node, Trio};

/// A third of all runs tries the failed member first, and waits for it for up to two seconds.
const ROUNDS_MAX: usize = 150;

pub(crate) fn measure(options: &Options, results: &mut Results) {
    let mut trio = Trio::start_with(EtcdOptions { fsync: true, ..EtcdOptions::default() });
    let cluster = Cluster::on_trio(&trio);
    let node = cluster.node("node");
    let rounds = options.rounds.min(ROUNDS_MAX);
    let mut row = |name, what: &str| {
        adds(&node, &format!("{name}-warm-up"), ROUNDS_WARM_UP);
        let sample = adds(&node, name, rounds);
        results.add_times(Section::Cluster, name, what, sample, "add-healthy");
    };
    row("add-healthy", "ADD, three members that are well");
    // A follower fails, not the leader: an election would take etcd more than a second.
    let member = trio.follower();
    trio.kill(member);
    row("add-killed", "ADD, one of them killed");
    trio.restart(member);
    trio.blackhole(member);
    row("add-cut-off", "ADD, one of them cut off");
    trio.heal(member);
    trio.stop(member);
    row("add-stopped", "ADD, one of them stopped");
    trio.resume(member);
    cluster.assert_whole();
}

fn adds(node: &Node, name: &str, count: usize) -> Sample {
    let config = plain_network("cluster");
    let mut sample = Sample::default();
    for index in 0..count {
        let id = format!("{name}-{index}");
        sample.take(&of_pod(node.add(&id), &id).config(&config).run());
    }
    sample
}
