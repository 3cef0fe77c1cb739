//! ADDs beside others that are killed or stand still, members that are killed, and an etcd that is far away.

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::lab::{Floor, Lab, NODES, Wire, of_pod, plain_network};
use crate::measure::storms::show_failures;
use crate::options::{Options, Section};
use crate::results::{Data, Results, Suffix};
use crate::samples::{Sample, Storm};
use support::{
    Cluster, EtcdOptions, MEMBERS, Node, Outcome, Relays, Running, SlowTrio, in_parallel, spawn_bound,
};

/// The storms on one member, and on three whose links are slow.
const STORM_MAX: usize = 1000;
const AT_A_TIME: usize = 64;
const LINK_MS: u64 = 5;

/// The ADDs while members are killed.
const RESTARTS_ADDS: usize = 420;
const RESTARTS_AT_A_TIME: usize = 12;
const CALM_ADDS: usize = 60;
const RESTARTS_EVERY: Duration = Duration::from_secs(5);
/// An ADD has seven seconds left when it goes on.
const STOPPED_FOR: Duration = Duration::from_secs(13);
const BUSY_LOOPS: usize = 6;

/// The time that each byte takes to an etcd that is far away, and as long back.
const FAR: Duration = Duration::from_millis(300);
const FAR_ROUNDS: usize = 5;

pub(crate) fn measure(options: &Options, results: &mut Results) {
    let count = options.storm.min(STORM_MAX);
    storms(&Lab::new(options, Wire::Plain), &Suffix::default(), count, results);
    let slow = Suffix { name: format!("-{LINK_MS}ms"), what: format!(", {LINK_MS} ms") };
    storms(&Lab::on_slow_links(options, Some(Duration::from_millis(LINK_MS))), &slow, count, results);
    restarts("restarts", "idle", results);
    let busy: Vec<Busy> = (0..BUSY_LOOPS).map(|_| Busy::start()).collect();
    restarts("restarts-busy", "busy", results);
    drop(busy);
    far(options, results);
}

/// Storms over one network in which a share is killed, each between two in which nobody is.
fn storms(lab: &Lab, Suffix { name, what }: &Suffix, count: usize, results: &mut Results) {
    let storm = |stem: &str, fates: Vec<Fate>| {
        let start = Instant::now();
        let each = adds(&lab.nodes, stem, fates, AT_A_TIME);
        (start.elapsed().as_secs_f64(), each)
    };
    let all_live = || vec![Fate::Lives; count];
    // Not counted: it makes the nodes' folders.
    storm("warm-up", all_live());
    let (mut before_s, each) = storm("none", all_live());
    let mut lived = vec![Storm { wall_s: before_s, floor_s: before_s, each }];
    let mut died = Vec::new();
    for killed in [2, 10] {
        let plan = Plan { killed, stopped: 0, life_ms: lived[lived.len() - 1].each.percentile(50) };
        let (wall_s, each) = storm(&format!("killed-{killed}"), plan.fates(count));
        let (after_s, none) = storm(&format!("none-after-{killed}"), all_live());
        died.push((killed, Storm { wall_s, floor_s: f64::midpoint(before_s, after_s), each }));
        lived.push(Storm { wall_s: after_s, floor_s: after_s, each: none });
        before_s = after_s;
    }
    let mut add = |killed: usize, storms| {
        let (name, text) =
            (format!("killed-{killed}{name}"), format!("{count} ADDs, {killed} % killed{what}"));
        results.add(Section::Deaths, name, text, Data::Storm(storms));
    };
    add(0, lived);
    died.into_iter().for_each(|(killed, storm)| add(killed, vec![storm]));
    lab.cluster.assert_whole();
}

/// ADDs of which half are killed or stopped, on three members that are killed and started again one after the other.
fn restarts(name: &str, what: &str, results: &mut Results) {
    let mut trio = SlowTrio::start(&EtcdOptions { fsync: true, ..EtcdOptions::default() }, None);
    let cluster = Cluster::on_slow_trio(&trio);
    let nodes: Vec<Node> = (0..NODES).map(|index| cluster.node(&format!("node-{index}"))).collect();
    // One after the other: the stopped ones leave little of a crowd, and whoever is to be killed must still live.
    let calm = adds(&nodes, "calm", vec![Fate::Lives; CALM_ADDS], 1);
    let plan = Plan { killed: 45, stopped: 5, life_ms: calm.percentile(50) };
    let (done, is_done) = mpsc::channel::<()>();
    let sample = thread::scope(|scope| {
        scope.spawn(|| {
            let is_done = is_done;
            for member in (0..MEMBERS).cycle() {
                if is_done.recv_timeout(RESTARTS_EVERY) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
                trio.relaunch(member);
            }
        });
        let sample = adds(&nodes, "restarts", plan.fates(RESTARTS_ADDS), RESTARTS_AT_A_TIME);
        drop(done);
        sample
    });
    let what = format!("{RESTARTS_ADDS} ADDs, members restart, {what}");
    results.add(Section::Deaths, name, what, Data::Times(sample, None));
    trio.wait_until_ready();
    cluster.assert_whole();
}

/// Calls that take several requests, where each request takes long.
fn far(options: &Options, results: &mut Results) {
    let lab = Lab::new(options, Wire::Plain);
    let (_relays, endpoint) = Relays::before_endpoint(&lab.etcd().endpoint(), FAR);
    let node = lab.cluster.node_with("far", json!({"etcd": {"endpoints": [endpoint]}}));
    let network = plain_network("far");
    let mut rows = [
        ("far-floor", "floor", Sample::default()),
        ("far-add", "ADD", Sample::default()),
        ("far-repeat", "ADD again", Sample::default()),
        ("far-takeover", "takeover", Sample::default()),
        ("far-del", "DEL", Sample::default()),
    ];
    for round in 0..FAR_ROUNDS {
        let pod = format!("pod-{round}");
        // The pod's first sandbox, and the one that follows it.
        let [first, second] = ["first", "second"].map(|sandbox| format!("{sandbox}-{round}"));
        let attach = |run| of_pod(run, &pod).config(&network);
        let runs = [
            lab.floor(Floor::Put).env("FLOOR_ENDPOINT", &endpoint),
            attach(node.add(&first)),
            attach(node.add(&first)),
            attach(node.add(&second)),
            attach(node.del(&second)),
        ];
        for ((_, _, sample), run) in rows.iter_mut().zip(runs) {
            let outcome = run.run();
            show_failures(std::slice::from_ref(&outcome));
            sample.take(&outcome);
        }
    }
    for (name, what, sample) in rows {
        let what = format!("{what}, {} ms a request", 2 * FAR.as_millis());
        results.add_times(Section::Deaths, name, what, sample, "far-floor");
    }
    lab.cluster.assert_whole();
}

/// An ADD for each fate, in a network of their own. Returns the times of those that were not killed; an address that
/// two of them have counts as a failure.
fn adds(nodes: &[Node], network: &str, fates: Vec<Fate>, at_a_time: usize) -> Sample {
    let config = plain_network(network);
    let jobs: Vec<(usize, Fate)> = fates.into_iter().enumerate().collect();
    let outcomes = in_parallel(at_a_time, jobs, |(number, fate)| {
        let id = format!("{network}-{number}");
        fate.befall(of_pod(nodes[number % nodes.len()].add(&id), &id).config(&config).spawn())
    });
    let was_killed = |outcome: &Outcome| outcome.status.signal() == Some(Signal::KILL.as_raw());
    let living: Vec<Outcome> = outcomes.into_iter().filter(|outcome| !was_killed(outcome)).collect();
    show_failures(&living);
    let answers: Vec<&Outcome> = living.iter().filter(|outcome| outcome.succeeded()).collect();
    let addresses: BTreeSet<Vec<String>> = answers.iter().map(|outcome| outcome.addresses()).collect();
    let mut sample = Sample::of(&living);
    sample.failures += answers.len() - addresses.len();
    sample
}

/// The fate of a process, with its time after the start.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Lives,
    Killed(Duration),
    Stopped(Duration),
}

impl Fate {
    fn befall(self, mut run: Running) -> Outcome {
        match self {
            Fate::Lives => {}
            Fate::Killed(after) => {
                thread::sleep(after);
                run.kill();
            }
            Fate::Stopped(after) => {
                thread::sleep(after);
                run.stop();
                thread::sleep(STOPPED_FOR);
                run.resume();
            }
        }
        run.wait()
    }
}

/// The shares of processes that do not live on, in percent, and the usual length of a life.
struct Plan {
    killed: usize,
    stopped: usize,
    life_ms: f64,
}

impl Plan {
    /// The same for the same plan: who is struck, and at which moment of a usual life.
    fn fates(&self, count: usize) -> Vec<Fate> {
        let mut random = Random(0x5eed);
        let [killed, stopped] = [self.killed, self.stopped].map(|percent| count * percent / 100);
        let mut fates: Vec<Fate> = (0..count)
            .map(|index| {
                let after = Duration::from_secs_f64(random.fraction() * self.life_ms / 1000.0);
                match index {
                    _ if index < killed => Fate::Killed(after),
                    _ if index < killed + stopped => Fate::Stopped(after),
                    _ => Fate::Lives,
                }
            })
            .collect();
        for last in (1..count).rev() {
            fates.swap(last, random.below(last + 1));
        }
        fates
    }
}

/// Splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed >> 32) as u32
    }

    /// From 0 up to 1.
    fn fraction(&mut self) -> f64 {
        f64::from(self.next()) / (f64::from(u32::MAX) + 1.0)
    }

    fn below(&mut self, bound: usize) -> usize {
        self.next() as usize % bound
    }
}

/// A process that keeps one core busy until it is dropped.
struct Busy(Child);

impl Busy {
    fn start() -> Self {
        let loops = |command: &mut std::process::Command| {
            command.args(["-c", "while :; do :; done"]);
        };
        Self(spawn_bound("sh".as_ref(), loops).expect("a shell can be started"))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        // It ends in no other way.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(life_ms: f64) -> Plan {
        Plan { killed: 45, stopped: 5, life_ms }
    }

    #[test]
    fn as_many_are_struck_as_the_plan_says_and_within_a_life() {
        let fates = plan(10.0).fates(420);
        let is_killed = |fate: &&Fate| matches!(fate, Fate::Killed(after) if after.as_millis() < 10);
        let is_stopped = |fate: &&Fate| matches!(fate, Fate::Stopped(after) if after.as_millis() < 10);
        let lives = |fate: &&Fate| **fate == Fate::Lives;
        let count = |is: &dyn Fn(&&Fate) -> bool| fates.iter().filter(|fate| is(fate)).count();
        assert_eq!([count(&is_killed), count(&is_stopped), count(&lives)], [189, 21, 210]);
    }

    #[test]
    fn the_struck_are_spread_evenly_and_the_same_each_time() {
        let fates = plan(10.0).fates(400);
        assert_eq!(fates, plan(10.0).fates(400));
        let early = fates[..200].iter().filter(|fate| **fate == Fate::Lives).count();
        assert!((70..=130).contains(&early), "{early} of the first 200 live");
        let moments = fates.iter().filter_map(|fate| match fate {
            Fate::Killed(after) => Some(after.as_secs_f64() * 1000.0),
            _ => None,
        });
        let mean = moments.sum::<f64>() / 180.0;
        assert!((4.0..=6.0).contains(&mean), "{mean} ms");
    }
}
