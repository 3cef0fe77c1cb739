//! What `metes` costs, as ratios to what nobody can avoid. Started by hack/bench, which names the programs.
//!
//! Whole processes are timed, from their start to their end, as a runtime waits for them. Each round runs every
//! kind once, so that a slow moment of the machine hits all of them alike. Storms stand between two storms of
//! the floor. The server writes to the disk as a real one does.

#![allow(clippy::print_stdout, reason = "a benchmark's table is its output")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{env, fs};

use serde_json::{Value, json};
use support::{Cluster, Etcd, EtcdOptions, Node, Outcome, Run, in_parallel, network, network_as, tool};

const ROUNDS: usize = 300;
/// Not counted: caches, pages of the binaries, etcd's first keys.
const ROUNDS_WARM_UP: usize = 10;
/// Held all the while, so that a page has something in it.
const HELD: usize = 64;
const STORM: usize = 2048;
const AT_A_TIME: usize = 128;
const NETWORKS: usize = 16;

const MARK_ADD_TO_FLOOR: f64 = 2.5;
const MARK_ADD_TO_HOST_LOCAL: f64 = 1.0;
const MARK_STORM_TO_FLOOR: f64 = 4.0;

fn main() {
    let json_file = json_file();
    let bench = Bench::new();
    let single = bench.measure_single();
    let storms = bench.measure_storms();
    bench.cluster.assert_clean();
    let marks = marks(&single, &storms);
    print_table(&single, &storms, &marks);
    if let Some(path) = json_file {
        let report = report(&single, &storms, &marks);
        fs::write(&path, format!("{report:#}\n")).expect("the report can be written");
    }
}

/// `--json FILE`, and nothing else.
fn json_file() -> Option<PathBuf> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match &arguments[..] {
        [] => None,
        [flag, file] if flag == "--json" => Some(file.into()),
        _ => panic!("usage: hack/bench [--json FILE]"),
    }
}

/// Everything that the measurements run against. The server goes last: the cluster is on it.
struct Bench {
    cluster: Cluster,
    node: Node,
    host_local: PathBuf,
    floor: PathBuf,
    endpoint: String,
    _etcd: Etcd,
}

/// The times of one kind of process, and how many of them failed.
#[derive(Default)]
struct Sample {
    times: Vec<Duration>,
    failures: usize,
}

#[derive(Default)]
struct Single {
    floor: Sample,
    add: Sample,
    check: Sample,
    del: Sample,
    host_local_add: Sample,
    host_local_del: Sample,
}

/// A crowd of processes at once.
struct Storm {
    wall: Duration,
    failures: usize,
}

struct Storms {
    floor: [Storm; 2],
    many_networks: Storm,
    one_network: Storm,
}

struct Mark {
    what: &'static str,
    value: f64,
    limit: String,
    met: bool,
}

impl Bench {
    fn new() -> Self {
        let etcd = Etcd::start_with(EtcdOptions { fsync: true, ..EtcdOptions::default() });
        let cluster = Cluster::on(&etcd);
        Self {
            node: cluster.node("bench"),
            host_local: tool("cni-plugins").join("host-local"),
            floor: env::var_os("FLOOR_BIN").expect("FLOOR_BIN names the floor").into(),
            endpoint: etcd.endpoint(),
            cluster,
            _etcd: etcd,
        }
    }

    fn measure_single(&self) -> Single {
        for index in 0..HELD {
            let held = format!("held-{index}");
            self.node.add(&held).config(&plain()).run().ok();
            self.host_local("ADD", &held).run().ok();
        }
        let mut single = Single::default();
        for round in 0..ROUNDS_WARM_UP + ROUNDS {
            if round == ROUNDS_WARM_UP {
                single = Single::default();
            }
            self.measure_round(round, &mut single);
        }
        single
    }

    /// CHECK and DEL need an ADD before them; what has no such need changes its place with every round.
    fn measure_round(&self, round: usize, single: &mut Single) {
        let id = format!("round-{round}");
        for turn in 0..3 {
            match (round + turn) % 3 {
                0 => single.floor.take(&self.floor().run()),
                1 => {
                    single.add.take(&self.node.add(&id).config(&plain()).run());
                    single.check.take(&self.node.check(&id).config(&plain()).run());
                    single.del.take(&self.node.del(&id).config(&plain()).run());
                }
                _ => {
                    single.host_local_add.take(&self.host_local("ADD", &id).run());
                    single.host_local_del.take(&self.host_local("DEL", &id).run());
                }
            }
        }
    }

    fn measure_storms(&self) -> Storms {
        let first = self.floor_storm();
        let many_networks = self.add_storm("many", NETWORKS);
        let second = self.floor_storm();
        let one_network = self.add_storm("one", 1);
        Storms { floor: [first, second], many_networks, one_network }
    }

    fn floor_storm(&self) -> Storm {
        let start = Instant::now();
        let outcomes = in_parallel(AT_A_TIME, 0..STORM, |_| self.floor().run());
        let wall = start.elapsed();
        Storm { wall, failures: outcomes.iter().filter(|outcome| !outcome.succeeded()).count() }
    }

    fn add_storm(&self, name: &str, networks: usize) -> Storm {
        let configs: Vec<Value> = (0..networks).map(|index| storm_network(name, index)).collect();
        let start = Instant::now();
        let outcomes = in_parallel(AT_A_TIME, 0..STORM, |index| {
            let id = format!("{name}-{index}");
            self.node.add(&id).config(&configs[index % networks]).run()
        });
        let wall = start.elapsed();
        Storm { wall, failures: storm_failures(&outcomes, networks) }
    }

    fn floor(&self) -> Run {
        let prefix = format!("/floor{}", self.cluster.prefix());
        Run::new(&self.floor).env("FLOOR_ENDPOINT", &self.endpoint).env("FLOOR_PREFIX", prefix)
    }

    fn host_local(&self, command: &str, id: &str) -> Run {
        let data = self.cluster.folder().join("host-local");
        let ipam = json!({"type": "host-local", "subnet": "10.64.0.0/16", "dataDir": data});
        Run::new(&self.host_local)
            .env("CNI_COMMAND", command)
            .cni_path(parent(&self.host_local))
            .container(id)
            .ifname("eth0")
            .netns("/run/netns/made-up")
            .config(&network(ipam))
    }
}

impl Sample {
    fn take(&mut self, outcome: &Outcome) {
        self.times.push(outcome.elapsed);
        self.failures += usize::from(!outcome.succeeded());
    }

    fn percentile_ms(&self, percent: usize) -> f64 {
        let mut times = self.times.clone();
        times.sort();
        let index = (times.len() * percent).div_ceil(100).max(1) - 1;
        times[index].as_secs_f64() * 1000.0
    }
}

impl Single {
    fn rows(&self) -> [(&'static str, &Sample); 6] {
        [
            ("floor", &self.floor),
            ("metes ADD", &self.add),
            ("metes CHECK", &self.check),
            ("metes DEL", &self.del),
            ("host-local ADD", &self.host_local_add),
            ("host-local DEL", &self.host_local_del),
        ]
    }
}

impl Storms {
    fn floor_s(&self) -> f64 {
        self.floor.iter().map(|storm| storm.wall.as_secs_f64()).sum::<f64>() / 2.0
    }

    fn rows(&self) -> [(&'static str, f64, usize); 3] {
        let floor_failures = self.floor.iter().map(|storm| storm.failures).sum();
        [
            ("x floor (mean of two)", self.floor_s(), floor_failures),
            ("x ADD over 16 networks", self.many_networks.wall.as_secs_f64(), self.many_networks.failures),
            ("x ADD over one network", self.one_network.wall.as_secs_f64(), self.one_network.failures),
        ]
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().expect("a program lies in a folder")
}

fn plain() -> Value {
    network(json!({"range": "10.65.0.0/16", "network_name": "single"}))
}

fn storm_network(name: &str, index: usize) -> Value {
    let ipam =
        json!({"range": format!("10.{}.0.0/16", 100 + index), "network_name": format!("{name}-{index}")});
    network_as("1.0.0", &format!("{name}-{index}"), ipam)
}

/// Failed processes, and successful ones whose address another one has too.
fn storm_failures(outcomes: &[Outcome], networks: usize) -> usize {
    let mut seen = BTreeSet::new();
    let fresh = |(index, outcome): (usize, &Outcome)| {
        outcome.succeeded() && seen.insert((index % networks, outcome.addresses()))
    };
    outcomes.len() - outcomes.iter().enumerate().map(fresh).filter(|&good| good).count()
}

fn marks(single: &Single, storms: &Storms) -> Vec<Mark> {
    let add = single.add.percentile_ms(50);
    let mark = |what, value: f64, limit: f64, met| Mark { what, value, limit: format!("{limit}"), met };
    let to_floor = add / single.floor.percentile_ms(50);
    let to_host_local = add / single.host_local_add.percentile_ms(50);
    let storm = storms.many_networks.wall.as_secs_f64() / storms.floor_s();
    let failures = single.rows().iter().map(|(_, sample)| sample.failures).sum::<usize>()
        + storms.rows().iter().map(|(_, _, failures)| failures).sum::<usize>();
    vec![
        mark("ADD p50 / floor p50", to_floor, MARK_ADD_TO_FLOOR, to_floor <= MARK_ADD_TO_FLOOR),
        mark(
            "ADD p50 / host-local ADD p50",
            to_host_local,
            MARK_ADD_TO_HOST_LOCAL,
            to_host_local < MARK_ADD_TO_HOST_LOCAL,
        ),
        mark(
            "storm over 16 networks / floor storm",
            storm,
            MARK_STORM_TO_FLOOR,
            storm <= MARK_STORM_TO_FLOOR,
        ),
        mark("failures", count(failures), 0.0, failures == 0),
    ]
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).expect("the counts are small"))
}

fn print_table(single: &Single, storms: &Storms, marks: &[Mark]) {
    let floor = single.floor.percentile_ms(50);
    println!("{:<38} {:>8} {:>12} {:>12} {:>9}", "", "x floor", "p50, or wall", "p95", "failures");
    for (what, sample) in single.rows() {
        let [p50, p95] = [50, 95].map(|percent| sample.percentile_ms(percent));
        println!(
            "{:<38} {:>8.2} {p50:>9.2} ms {p95:>9.2} ms {:>9}",
            format!("{what} ({ROUNDS})"),
            p50 / floor,
            sample.failures
        );
    }
    for (what, wall_s, failures) in storms.rows() {
        let what = format!("{STORM} {what}");
        println!("{what:<38} {:>8.2} {wall_s:>10.2} s {:>12} {failures:>9}", wall_s / storms.floor_s(), "");
    }
    println!();
    for Mark { what, value, limit, met } in marks {
        let verdict = if *met { "met" } else { "NOT MET" };
        println!("{what:<38} {value:>8.2}   mark {limit:<5} {verdict}");
    }
}

fn report(single: &Single, storms: &Storms, marks: &[Mark]) -> Value {
    let floor = single.floor.percentile_ms(50);
    let rows = single.rows().map(|(what, sample)| {
        let [p50, p95] = [50, 95].map(|percent| sample.percentile_ms(percent));
        json!({"what": what, "to_floor": p50 / floor, "p50_ms": p50, "p95_ms": p95, "count": sample.times.len(),
               "failures": sample.failures})
    });
    let storm_rows = storms.rows().map(|(what, wall_s, failures)| {
        json!({"what": what, "to_floor": wall_s / storms.floor_s(), "wall_s": wall_s, "count": STORM,
               "at_a_time": AT_A_TIME, "failures": failures})
    });
    let marks: Vec<Value> = marks
        .iter()
        .map(|mark| json!({"what": mark.what, "value": mark.value, "limit": mark.limit, "met": mark.met}))
        .collect();
    json!({"single": rows, "storms": storm_rows, "marks": marks})
}
