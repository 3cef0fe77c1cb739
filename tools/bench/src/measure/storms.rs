//! Thousands of processes, 128 at a time, as when a cluster starts again. Each storm stands between two storms of the
//! floor.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Instant;

use etcd_client::GetOptions;
use serde_json::{Value, json};

use crate::lab::{Floor, Lab, NODES, Wire, of_pod, plain_network};
use crate::options::{Options, Section};
use crate::results::{Data, Results, Suffix};
use crate::samples::{Sample, Storm, float};
use support::{Node, Outcome, Run, Store, in_parallel};

const AT_A_TIME: usize = 128;
const NETWORKS: usize = 16;
/// Of each storm; all are counted.
const FAILURES_SHOWN: usize = 3;

pub(crate) fn measure(options: &Options, results: &mut Results) {
    let lab = Lab::new(options, Wire::Plain);
    let count = options.storm;
    let mut weather = Weather::new(&lab, Section::Storms, Suffix::default(), count);
    let mut many = Load::many_networks(&lab, "many");
    let mut one = Load::one_network(&lab, "one");
    weather.storm(results, "add-16", "ADDs over 16 networks", || many.add(count));
    weather.storm(results, "add-1", "ADDs over one network", || one.add(count));
    weather.storm(results, "mixed-16", "ADDs and DELs mixed over 16 networks", || many.mix(count));
    weather.storm(results, "mixed-1", "ADDs and DELs mixed over one network", || one.mix(count));
    weather.storm(results, "del-16", "DELs over 16 networks", || many.del());
    weather.storm(results, "del-1", "DELs over one network", || one.del());
    let mut double = Load::one_network(&lab, "double");
    weather.storm(results, "add-1-double", "ADDs over one network", || double.add(2 * count));
    let moved = Cell::new(0);
    let mut kept = Load::kept(&lab, "kept", &moved);
    weather.storm(results, "first-1", "first pods of their names over one network", || kept.add(count));
    kept.del();
    weather.storm(results, "join-1-hinted", "pods that come back to their nodes", || kept.again());
    kept.del();
    moved.set(1);
    weather.storm(results, "join-1", "pods that come back on other nodes", || kept.again());
    kept.del();
    if let Some(peer) = &lab.peer {
        let mut load = Load::of_peer(&lab);
        let over = match peer.networks() {
            1 => "over one network".to_owned(),
            networks => format!("over {networks} networks"),
        };
        let name = peer.name();
        weather.storm(results, "peer-add", &format!("{name} ADDs {over}"), || load.add(count));
        weather.storm(results, "peer-del", &format!("{name} DELs {over}"), || load.del());
    }
    weather.report_floor(results);
    lab.cluster.assert_whole();
}

/// Storms in a row, with the floor's between them.
pub(crate) struct Weather<'a> {
    lab: &'a Lab,
    section: Section,
    suffix: Suffix,
    count: usize,
    floors: Vec<(f64, Sample)>,
}

/// The outcome of a storm.
pub(crate) struct Blown {
    wall_s: f64,
    each: Sample,
}

impl<'a> Weather<'a> {
    pub(crate) fn new(lab: &'a Lab, section: Section, suffix: Suffix, count: usize) -> Self {
        // This maps the binaries' pages and makes the nodes' folders, so that no storm pays for it.
        for (index, node) in lab.nodes.iter().enumerate() {
            let id = format!("warm-up-{index}");
            let config = plain_network("warm-up");
            of_pod(node.add(&id), &id).config(&config).run().ok();
            of_pod(node.del(&id), &id).config(&config).run().silent();
        }
        let mut weather = Self { lab, section, suffix, count, floors: Vec::new() };
        weather.floor();
        weather
    }

    pub(crate) fn storm(
        &mut self,
        results: &mut Results,
        name: &str,
        what: &str,
        storm: impl FnOnce() -> Blown,
    ) {
        let before_s = self.floors.last().map_or(f64::NAN, |(wall_s, _)| *wall_s);
        let Blown { wall_s, each } = storm();
        let for_as_many = float(each.count()) / float(self.count);
        let floor_s = f64::midpoint(before_s, self.floor()) * for_as_many;
        let what = format!("{} {what}", each.count());
        self.row(results, name, &what, Storm { wall_s, floor_s, each });
    }

    pub(crate) fn report_floor(self, results: &mut Results) {
        let what = format!("{} floors", self.count);
        let storms = float(self.floors.len());
        let mean_s = self.floors.iter().map(|(wall_s, _)| wall_s).sum::<f64>() / storms;
        let mut each = Sample::default();
        self.floors.iter().for_each(|(_, sample)| each.pool(sample.clone()));
        self.row(results, "floor-storm", &what, Storm { wall_s: mean_s, floor_s: mean_s, each });
    }

    fn row(&self, results: &mut Results, name: &str, what: &str, storm: Storm) {
        let Suffix { name: name_end, what: what_end } = &self.suffix;
        let (name, what) = (format!("{name}{name_end}"), format!("{what}{what_end}"));
        results.add(self.section, name, what, Data::Storm(vec![storm]));
    }

    fn floor(&mut self) -> f64 {
        let (wall_s, outcomes) = blow((0..self.count).map(|_| self.lab.floor(Floor::Put)));
        show_failures(&outcomes);
        self.floors.push((wall_s, Sample::of(&outcomes)));
        wall_s
    }
}

/// Runs all of them. Returns how long that took, and the outcome of each in their order.
fn blow(runs: impl IntoIterator<Item = Run>) -> (f64, Vec<Outcome>) {
    let runs: Vec<Run> = runs.into_iter().collect();
    let start = Instant::now();
    let outcomes = in_parallel(AT_A_TIME, runs, |run| run.run());
    (start.elapsed().as_secs_f64(), outcomes)
}

pub(crate) fn show_failures(outcomes: &[Outcome]) {
    let failed = outcomes.iter().filter(|outcome| !outcome.succeeded());
    failed.take(FAILURES_SHOWN).for_each(|outcome| eprintln!("{outcome}"));
}

/// Of the commits that wrote the keys below `prefix`.
fn revisions(store: &Store, prefix: &str) -> Vec<i64> {
    let options = GetOptions::new().with_prefix().with_keys_only();
    let answer = store.run(async |client| client.get(store.key(prefix), Some(options)).await);
    answer.kvs().iter().map(|entry| entry.mod_revision()).collect()
}

/// Attachments of one kind, numbered: pod after pod, each with an interface in every network. The pods are spread over
/// the nodes.
pub(crate) struct Load<'a> {
    name: String,
    networks: usize,
    runner: Box<Runner<'a>>,
    /// The revision of each reservation that the store holds in these networks, where it can be asked.
    reservations: Box<dyn Fn() -> Option<Vec<i64>> + 'a>,
    /// The addresses of each attachment.
    held: BTreeMap<usize, Vec<String>>,
    next: usize,
}

/// Runs a verb for an attachment: its number and its container.
type Runner<'a> = dyn Fn(Verb, usize, &str) -> Run + 'a;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verb {
    Add,
    Del,
}

impl<'a> Load<'a> {
    pub(crate) fn many_networks(lab: &'a Lab, name: &str) -> Self {
        Self::of_metes(lab, name, NETWORKS)
    }

    pub(crate) fn one_network(lab: &'a Lab, name: &str) -> Self {
        Self::of_metes(lab, name, 1)
    }

    fn of_metes(lab: &'a Lab, name: &str, networks: usize) -> Self {
        let configs: Vec<(String, Value)> = (0..networks)
            .map(|index| format!("{name}-{index}"))
            .map(|network| (format!("v1/net/{network}/ip/"), plain_network(&network)))
            .collect();
        let prefixes: Vec<String> = configs.iter().map(|(prefix, _)| prefix.clone()).collect();
        let runner = move |verb, number: usize, id: &str| {
            let node = Self::node(lab, number / networks);
            let run = match verb {
                Verb::Add => node.add(id),
                Verb::Del => node.del(id),
            };
            of_pod(run, id).config(&configs[number % networks].1)
        };
        let store = lab.cluster.store();
        let held = move || Some(prefixes.iter().flat_map(|prefix| revisions(store, prefix)).collect());
        Self::new(name, networks, runner, held)
    }

    /// Pods whose addresses in one network outlive them, each on a node that is `moved` further than its first one.
    fn kept(lab: &'a Lab, name: &str, moved: &'a Cell<usize>) -> Self {
        let mut config = plain_network(name);
        config["ipam"]["sticky"] = json!("pod");
        let runner = move |verb, number: usize, id: &str| {
            let node = Self::node(lab, number + moved.get());
            let run = match verb {
                Verb::Add => node.add(id),
                Verb::Del => node.del(id),
            };
            of_pod(run, id).config(&config)
        };
        Self::new(name, 1, runner, move || Some(revisions(lab.cluster.store(), "v1/seat/")))
    }

    /// The other plugin's networks are what its configurations say.
    fn of_peer(lab: &'a Lab) -> Self {
        let peer = lab.peer.as_ref().expect("there is a peer");
        let runner = move |verb, number: usize, id: &str| {
            let verb = if verb == Verb::Add { "ADD" } else { "DEL" };
            peer.run(verb, id, number)
        };
        Self::new("peer", peer.networks(), runner, || None)
    }

    fn new(
        name: &str,
        networks: usize,
        runner: impl Fn(Verb, usize, &str) -> Run + 'a,
        reservations: impl Fn() -> Option<Vec<i64>> + 'a,
    ) -> Self {
        Self {
            name: name.to_owned(),
            networks,
            runner: Box::new(runner),
            reservations: Box::new(reservations),
            held: BTreeMap::new(),
            next: 0,
        }
    }

    fn node(lab: &Lab, pod: usize) -> &Node {
        &lab.nodes[pod % NODES]
    }

    /// This many attachments that hold nothing yet.
    pub(crate) fn add(&mut self, count: usize) -> Blown {
        let jobs = self.fresh(count).map(|number| (Verb::Add, number)).collect();
        self.blow(jobs)
    }

    /// All that have held something.
    fn again(&mut self) -> Blown {
        let jobs = (0..self.next).map(|number| (Verb::Add, number)).collect();
        self.blow(jobs)
    }

    /// All that hold something.
    pub(crate) fn del(&mut self) -> Blown {
        let jobs = self.held.keys().map(|number| (Verb::Del, *number)).collect();
        self.blow(jobs)
    }

    /// This many runs in all: DELs of attachments that hold something, and after each the ADD of a new one.
    fn mix(&mut self, count: usize) -> Blown {
        let old: Vec<usize> = self.held.keys().copied().take(count / 2).collect();
        let new = self.fresh(old.len());
        let jobs = old.into_iter().zip(new).flat_map(|(old, new)| [(Verb::Del, old), (Verb::Add, new)]);
        let jobs = jobs.collect();
        self.blow(jobs)
    }

    fn fresh(&mut self, count: usize) -> Range<usize> {
        let first = self.next;
        self.next += count;
        first..self.next
    }

    fn blow(&mut self, jobs: Vec<(Verb, usize)>) -> Blown {
        let run = |(verb, number): &(Verb, usize)| {
            (self.runner)(*verb, *number, &format!("{}-{number}", self.name))
        };
        let (wall_s, outcomes) = blow(jobs.iter().map(run));
        let mut each = Sample::of(&outcomes);
        show_failures(&outcomes);
        for ((verb, number), outcome) in jobs.iter().zip(&outcomes) {
            match verb {
                _ if !outcome.succeeded() => {}
                Verb::Add => _ = self.held.insert(*number, outcome.addresses()),
                Verb::Del => _ = self.held.remove(number),
            }
        }
        each.failures += twice_held(&self.held, self.networks) + self.astray();
        Blown { wall_s, each }
    }

    /// The difference between what the store holds and what the answers say.
    fn astray(&self) -> usize {
        (self.reservations)().map_or(0, |revisions| revisions.len().abs_diff(self.held.len()))
    }

    /// The number of reservations that one commit made, on average over those that the store holds.
    pub(crate) fn per_commit(&self) -> Option<f64> {
        let revisions = (self.reservations)()?;
        let commits: BTreeSet<&i64> = revisions.iter().collect();
        Some(float(revisions.len()) / float(commits.len()))
    }
}

/// Attachments whose addresses another one in the same network has too.
fn twice_held(held: &BTreeMap<usize, Vec<String>>, networks: usize) -> usize {
    let mut seen = BTreeSet::new();
    held.iter().filter(|(number, held)| !seen.insert((*number % networks, *held))).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_be_held_once_in_each_network() {
        let held = |addresses: &[&str]| {
            addresses
                .iter()
                .enumerate()
                .map(|(number, address)| (number, vec![(*address).to_owned()]))
                .collect()
        };
        let addresses: BTreeMap<usize, Vec<String>> = held(&["10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.1"]);
        assert_eq!([1, 2, 4].map(|networks| twice_held(&addresses, networks)), [2, 1, 0]);
    }
}
