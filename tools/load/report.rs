//! The table, the marks, and the same as JSON.

use std::thread::available_parallelism;
use std::time::Duration;

use serde_json::{Value, json};

use crate::crew::{Shift, Timings};
use crate::server::Reading;

/// The least ratio of ADDs a second to (puts a second / proposals for each ADD).
const MARK_MANY: f64 = 0.40;

const COLUMNS: usize = 14;
const WIDTHS: [usize; COLUMNS] = [12, 5, 8, 8, 9, 9, 8, 9, 8, 6, 6, 6, 6, 6];
const HEADING: [[&str; COLUMNS]; 2] = [
    ["", "", "", "", "", "", "", "proposals", "requests", "cores:", "", "", "log in", ""],
    [
        "step", "nodes", "networks", "per s", "p50 ms", "p99 ms", "failures", "each", "each", "etcd", "load",
        "others", "fsync", "limit",
    ],
];

/// The nodes that a crowd is compared with, and how many ADDs a second it gets through at least, next to these.
const FEW: usize = 10;
const MARK_CROWD: f64 = 1.0;

/// The share of all cores, or of the time, from which on there is not enough of it.
pub(crate) const NEARLY_ALL: f64 = 0.9;
/// The share of all cores from which on others disturb a step: the kernel takes less for disk and loopback.
const OTHERS_MAX: f64 = 0.2;

/// One step.
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) clients: usize,
    /// None for puts.
    pub(crate) networks: usize,
    pub(crate) window: Duration,
    pub(crate) shift: Shift,
    pub(crate) used: Reading,
}

/// ADDs, and the puts right before and after them.
pub(crate) struct Beside {
    pub(crate) adds: Row,
    pub(crate) puts: [Row; 2],
}

/// All steps.
pub(crate) struct Report {
    /// One for each round; at least one.
    pub(crate) many: Vec<Beside>,
    pub(crate) random: Beside,
    pub(crate) curve: Vec<Row>,
    pub(crate) findings: Vec<String>,
    pub(crate) doubles: usize,
}

/// The number of cores that each one used.
struct Cores {
    all: f64,
    etcd: f64,
    generator: f64,
    others: f64,
}

impl Row {
    /// The rate in a second, from the start to the last answer: the window would be too short where one ADD takes
    /// longer.
    fn per_second(&self, timings: &Timings) -> f64 {
        timings.count() as f64 / self.shift.elapsed.as_secs_f64()
    }

    fn main_per_second(&self) -> f64 {
        self.per_second(&self.shift.log.main)
    }

    /// ADDs and DELs, or puts, that succeeded.
    fn done(&self) -> f64 {
        (self.shift.log.main.count() + self.shift.log.dels.count()) as f64
    }

    fn proposals_each(&self) -> f64 {
        self.used.proposals / self.done()
    }

    fn requests_each(&self) -> f64 {
        self.used.requests / self.done()
    }

    fn cores(&self) -> Cores {
        let all = available_parallelism().map_or(1.0, |cores| cores.get() as f64);
        let elapsed = self.shift.elapsed.as_secs_f64();
        let etcd = self.used.etcd_cpu_s / elapsed;
        let generator = self.shift.generator_cpu.as_secs_f64() / elapsed;
        let others = (self.used.machine_busy() * all - etcd - generator).max(0.0);
        Cores { all, etcd, generator, others }
    }

    /// The share of the time in which etcd's log waited for the disk.
    fn disk(&self) -> f64 {
        self.used.fsync_s / self.shift.elapsed.as_secs_f64()
    }

    /// The limit of the step; `turns` if requests waited for each other.
    fn limit(&self) -> &'static str {
        match self.used.machine_busy() >= NEARLY_ALL {
            true => "cores",
            false if self.disk() >= NEARLY_ALL => "disk",
            false => "turns",
        }
    }

    /// Prints the row as soon as it is known, because the whole run takes minutes.
    pub(crate) fn print(&self) {
        let log = &self.shift.log;
        let Cores { etcd, generator, others, .. } = self.cores();
        let [p50, p99] = log.main.percentiles_ms([50, 99]);
        print_cells([
            self.what.clone(),
            self.clients.to_string(),
            self.networks.to_string(),
            format!("{:.0}", self.main_per_second()),
            format!("{p50:.1}"),
            format!("{p99:.1}"),
            log.failed().to_string(),
            format!("{:.2}", self.proposals_each()),
            format!("{:.1}", self.requests_each()),
            format!("{etcd:.2}"),
            format!("{generator:.2}"),
            format!("{others:.2}"),
            format!("{:.0}%", self.disk() * 100.0),
            self.limit().to_owned(),
        ]);
        if log.dels.count() > 0 {
            let [p50, p99] = log.dels.percentiles_ms([50, 99]);
            let per_second = self.per_second(&log.dels);
            println!("  and of DELs: {per_second:.0} per s, p50 {p50:.1} ms, p99 {p99:.1} ms");
        }
        for (code, failures) in &log.failures {
            println!("  failed: {} x {code}: {}", failures.count, failures.example);
        }
    }

    fn json(&self) -> Value {
        let log = &self.shift.log;
        let times = |timings: &Timings| {
            let [p50, p90, p99, max] = timings.percentiles_ms([50, 90, 99, 100]);
            json!({"count": timings.count(), "per_second": self.per_second(timings),
                   "p50_ms": p50, "p90_ms": p90, "p99_ms": p99, "max_ms": max})
        };
        let failures: serde_json::Map<String, Value> = log
            .failures
            .iter()
            .map(|(code, failures)| {
                (code.clone(), json!({"count": failures.count, "example": failures.example}))
            })
            .collect();
        let Cores { all, etcd, generator, others } = self.cores();
        json!({
            "what": self.what, "clients": self.clients, "networks": self.networks,
            "window_s": self.window.as_secs_f64(), "elapsed_s": self.shift.elapsed.as_secs_f64(),
            "main": times(&log.main), "dels": times(&log.dels), "failures": failures,
            "proposals_each": self.proposals_each(), "requests_each": self.requests_each(),
            "leases_not_found": self.used.leases_not_found, "fsyncs": self.used.fsyncs,
            "fsync_share": self.disk(), "limit": self.limit(),
            "cores": {"all": all, "etcd": etcd, "generator": generator, "others": others},
        })
    }
}

impl Beside {
    /// The ADDs (and DELs) a second, as a part of what etcd could do if it only wrote.
    fn ratio(&self) -> f64 {
        let per_second = self.adds.done() / self.adds.shift.elapsed.as_secs_f64();
        let puts = self.puts.iter().map(Row::main_per_second).sum::<f64>() / 2.0;
        per_second / (puts / self.adds.proposals_each())
    }

    fn rows(&self) -> impl Iterator<Item = &Row> {
        [&self.puts[0], &self.adds, &self.puts[1]].into_iter()
    }

    fn json(&self) -> Value {
        json!({"adds": self.adds.json(), "puts": self.puts.each_ref().map(Row::json), "ratio": self.ratio()})
    }
}

impl Report {
    /// The heading of the rows that are printed one by one.
    pub(crate) fn print_heading() {
        HEADING.into_iter().for_each(print_cells);
    }

    /// The rounds' ratios, the smallest first.
    fn ratios(&self) -> Vec<f64> {
        let mut ratios: Vec<f64> = self.many.iter().map(Beside::ratio).collect();
        ratios.sort_by(f64::total_cmp);
        ratios
    }

    /// The curve's last point, and its ADDs a second next to those of a few nodes.
    fn crowd(&self) -> Option<(usize, f64)> {
        let few = self.curve.iter().find(|row| row.clients == FEW)?;
        let crowd = self.curve.last().filter(|row| row.clients > FEW)?;
        Some((crowd.clients, crowd.main_per_second() / few.main_per_second()))
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.many.iter().chain([&self.random]).flat_map(Beside::rows).chain(&self.curve)
    }

    /// In how many steps other processes took much of the machine.
    fn disturbed(&self) -> usize {
        let is_disturbed = |row: &&Row| {
            let Cores { all, others, .. } = row.cores();
            others > OTHERS_MAX * all
        };
        self.rows().filter(is_disturbed).count()
    }

    pub(crate) fn is_sound(&self) -> bool {
        self.findings.is_empty() && self.doubles == 0
    }

    pub(crate) fn print(&self) {
        let ratios = self.ratios();
        let (smallest, median, largest) = (ratios[0], ratios[ratios.len() / 2], ratios[ratios.len() - 1]);
        let verdict = if median >= MARK_MANY { "met" } else { "NOT MET" };
        println!();
        println!(
            "ADDs / (puts / proposals each)       {median:>6.2}   mark {MARK_MANY:.2}  {verdict}   \
             ({smallest:.2} to {largest:.2})"
        );
        println!("the same on random networks          {:>6.2}", self.random.ratio());
        if let Some((nodes, ratio)) = self.crowd() {
            let verdict = if ratio >= MARK_CROWD { "met" } else { "NOT MET" };
            let what = format!("one network, {nodes} nodes / {FEW} nodes");
            println!("{what:<36} {ratio:>6.2}   mark {MARK_CROWD:.2}  {verdict}");
        }
        println!("steps that other processes disturbed {:>6}   of {}", self.disturbed(), self.rows().count());
        println!("addresses held twice                 {:>6}   mark 0", self.doubles);
        println!("violations found by the audit        {:>6}   mark 0", self.findings.len());
        self.findings.iter().take(10).for_each(|finding| println!("  {finding}"));
    }

    pub(crate) fn json(&self) -> Value {
        let crowd = |(nodes, ratio)| json!({"nodes": nodes, "ratio": ratio, "mark": MARK_CROWD});
        json!({
            "many": self.many.iter().map(Beside::json).collect::<Vec<_>>(),
            "random": self.random.json(),
            "curve": self.curve.iter().map(Row::json).collect::<Vec<_>>(),
            "ratios": self.ratios(), "mark": MARK_MANY,
            "crowd": self.crowd().map(crowd), "disturbed": self.disturbed(),
            "doubles": self.doubles, "violations": self.findings,
        })
    }
}

/// One line of the table: the first cell to the left, the others to the right.
fn print_cells(cells: [impl std::fmt::Display; COLUMNS]) {
    let cells = cells.map(|cell| cell.to_string());
    let mut line = format!("{:<1$}", cells[0], WIDTHS[0]);
    for (cell, width) in cells.iter().zip(WIDTHS).skip(1) {
        line.push_str(&format!(" {cell:>width$}"));
    }
    println!("{line}");
}
