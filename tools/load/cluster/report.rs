//! The table of a cluster that was turned on, its marks, and the same as JSON.

use std::thread::available_parallelism;
use std::time::Duration;

use metes_core::limits;
use serde_json::{Map, Value, json};

use super::members::Used;
use crate::crew::{Shift, Timings, Wave};
use crate::report::NEARLY_ALL;

/// The most of etcd's processor that an ADD takes, in floors.
const MARK_CPU: f64 = 1.5;
/// The sizes of members that the processor's time is multiplied for, in cores.
const SIZES: [f64; 3] = [2.0, 4.0, 8.0];

/// Floors, or ADDs with the DELs of those that failed.
pub(super) struct Step {
    pub(super) what: &'static str,
    pub(super) shift: Shift,
    pub(super) used: Used,
}

pub(super) struct ClusterReport {
    pub(super) nodes: usize,
    pub(super) pods: usize,
    pub(super) networks: usize,
    pub(super) links: Duration,
    pub(super) in_flight: Option<usize>,
    pub(super) is_new: bool,
    /// Before the ADDs, and after them.
    pub(super) floors: [Step; 2],
    pub(super) adds: Step,
    pub(super) violations: Vec<String>,
    pub(super) doubles: usize,
}

/// The number of cores that each one used.
struct Shares {
    all: f64,
    etcd: f64,
    generator: f64,
    relays: f64,
    others: f64,
}

impl Step {
    fn seconds(&self) -> f64 {
        self.shift.elapsed.as_secs_f64()
    }

    /// Floors or ADDs that succeeded.
    fn done(&self) -> f64 {
        self.shift.log.main.count() as f64
    }

    fn per_second(&self) -> f64 {
        self.done() / self.seconds()
    }

    /// Milliseconds of the processors of all members, and of the one that used most, for each that succeeded.
    fn etcd_ms_each(&self) -> [f64; 2] {
        [self.used.etcd_cpu_s(), self.used.busiest_cpu_s()].map(|seconds| seconds * 1000.0 / self.done())
    }

    fn shares(&self) -> Shares {
        let all = available_parallelism().map_or(1.0, |cores| cores.get() as f64);
        let etcd = self.used.etcd_cpu_s() / self.seconds();
        let generator = self.shift.generator_cpu.as_secs_f64() / self.seconds();
        let relays = (self.used.own_cpu_s / self.seconds() - generator).max(0.0);
        let busy = self.used.machine_busy() * all;
        Shares { all, etcd, generator, relays, others: (busy - etcd - generator - relays).max(0.0) }
    }

    fn is_out_of_cores(&self) -> bool {
        self.used.machine_busy() >= NEARLY_ALL
    }

    /// As soon as it is known, because the whole run takes minutes.
    pub(super) fn print(&self) {
        let [p50, p99, max] = self.shift.log.main.percentiles_ms([50, 99, 100]);
        let [all, busiest] = self.etcd_ms_each();
        let Shares { etcd, generator, relays, others, .. } = self.shares();
        println!(
            "{:<13} {:>7} in {:>6.1} s, {:>5.0} a second; p50 {p50:.0}, p99 {p99:.0}, max {max:.0} ms; {} failed",
            self.what,
            self.done(),
            self.seconds(),
            self.per_second(),
            self.shift.log.failed(),
        );
        println!(
            "  each: etcd's processors {all:.2} ms, those of its busiest member {busiest:.2} ms; connections {:.2}, \
             requests {:.2}, watches {:.2}, proposals {:.2}, leases {:.3}, bytes of the store {:.0}",
            self.used.connections / self.done(),
            self.used.requests / self.done(),
            self.used.streams / self.done(),
            self.used.proposals / self.done(),
            self.used.leases_granted / self.done(),
            self.used.store_bytes / self.done(),
        );
        println!(
            "  connections: {:.0}, {:.0} a second, {:.0} ended in the handshake; leases granted: {:.0}; fsync {:.2} ms",
            self.used.connections,
            self.used.connections / self.seconds(),
            self.used.broken(),
            self.used.leases_granted,
            self.used.fsync_s * 1000.0 / self.used.fsyncs,
        );
        println!(
            "  cores: etcd {etcd:.2}, generator {generator:.2}, relays {relays:.2}, others {others:.2}; the generator \
             came late by {}",
            late(&self.shift.lateness)
        );
        for (index, member) in self.used.members.iter().enumerate() {
            println!(
                "  member {index}{}: {:.2} s of processors, {:.2} ms each; memory {:.0} MiB, at most {:.0}, {:.1} KiB \
                 more for each",
                if member.leads { ", leader" } else { "" },
                member.cpu_s,
                member.cpu_s * 1000.0 / self.done(),
                member.rss_mib,
                member.peak_mib,
                member.grown_mib * 1024.0 / self.done(),
            );
        }
        let dels = &self.shift.log.dels;
        if dels.count() > 0 {
            let [p50, p99, max] = dels.percentiles_ms([50, 99, 100]);
            println!("  DELs: {}; p50 {p50:.0}, p99 {p99:.0}, max {max:.0} ms", dels.count());
        }
        for (code, failures) in &self.shift.log.failures {
            println!("  failed: {} x {code}; one of them: {}", failures.count, failures.example);
        }
    }

    fn json(&self) -> Value {
        let times = |timings: &Timings| {
            let [p50, p90, p99, max] = timings.percentiles_ms([50, 90, 99, 100]);
            json!({"count": timings.count(), "p50_ms": p50, "p90_ms": p90, "p99_ms": p99, "max_ms": max})
        };
        let Shares { all, etcd, generator, relays, others } = self.shares();
        let log = &self.shift.log;
        let failures: Map<String, Value> = log
            .failures
            .iter()
            .map(|(code, failures)| {
                (code.clone(), json!({"count": failures.count, "example": failures.example}))
            })
            .collect();
        let waves = log.waves.iter().map(
            |(number, Wave { begun, failed })| json!({"number": number, "begun": begun, "failed": failed}),
        );
        let members = self.used.members.iter().map(|member| {
            json!({"leads": member.leads, "cpu_s": member.cpu_s, "broken_connections": member.broken,
                   "memory_mib": member.rss_mib, "memory_most_mib": member.peak_mib,
                   "memory_grown_mib": member.grown_mib})
        });
        let [all_ms, busiest_ms] = self.etcd_ms_each();
        json!({
            "what": self.what, "elapsed_s": self.seconds(), "main": times(&log.main), "dels": times(&log.dels),
            "pods": times(&log.pods), "waves": waves.collect::<Vec<_>>(), "failures": failures,
            "etcd_cpu_ms_each": all_ms, "busiest_member_cpu_ms_each": busiest_ms,
            "connections": self.used.connections, "requests": self.used.requests, "streams": self.used.streams,
            "proposals": self.used.proposals, "leases_granted": self.used.leases_granted,
            "leases_revoked": self.used.leases_revoked, "store_bytes": self.used.store_bytes,
            "fsyncs": self.used.fsyncs, "fsync_s": self.used.fsync_s, "members": members.collect::<Vec<_>>(),
            "cores": {"all": all, "etcd": etcd, "generator": generator, "relays": relays, "others": others},
            "generator_late": times(&self.shift.lateness),
        })
    }
}

impl ClusterReport {
    /// ADDs that pods need in all.
    fn wanted(&self) -> usize {
        self.nodes * self.pods * self.networks
    }

    /// etcd's processor for an ADD, in floors: of all members, and of the busiest one.
    fn ratios(&self) -> [f64; 2] {
        let each = |step: &Step| step.etcd_ms_each();
        let [before, after] = self.floors.each_ref();
        let all = before.done() + after.done();
        let weighted =
            |which: usize| (each(before)[which] * before.done() + each(after)[which] * after.done()) / all;
        [0, 1].map(|which| each(&self.adds)[which] / weighted(which))
    }

    pub(super) fn is_sound(&self) -> bool {
        self.violations.is_empty() && self.doubles == 0
    }

    pub(super) fn print(&self) {
        let Self { nodes, pods, networks, .. } = self;
        let log = &self.adds.shift.log;
        let [p50, p99, _] = log.pods.percentiles_ms([50, 99, 100]).map(|ms| ms / 1000.0);
        println!();
        println!(
            "{nodes} nodes, pods a node {pods}, networks a pod {networks}, links {} ms one way, at most {} pods at a \
             time, {}",
            self.links.as_millis(),
            self.in_flight.map_or("any number of".to_owned(), |pods| pods.to_string()),
            if self.is_new { "new nodes and a new store" } else { "nodes that know the store" },
        );
        let (up, seconds) = (log.pods.count(), self.adds.seconds());
        println!("{up} of {} pods after {seconds:.1} s (p50 {p50:.1}, p99 {p99:.1})", nodes * pods);
        for (number, Wave { begun, failed }) in &log.waves {
            println!("  try {number}: {begun} pods, {failed} failed");
        }
        let [all, busiest] = self.ratios();
        verdict(
            "etcd's processors for an ADD, in floors",
            format!("{all:.2}"),
            all <= MARK_CPU,
            &format!("{MARK_CPU:.2}"),
        );
        println!("{:<42} {busiest:>9.2}", "  those of its busiest member");
        let failed = self.failed();
        let is_whole = failed == 0 && log.held.len() == self.wanted();
        verdict(&format!("ADDs of {} that failed", self.wanted()), failed.to_string(), is_whole, "0");
        verdict("addresses held twice", self.doubles.to_string(), self.doubles == 0, "0");
        let count = self.violations.len();
        verdict("violations found by the audit", count.to_string(), count == 0, "0");
        self.violations.iter().take(10).for_each(|finding| println!("  {finding}"));
        // What failed has cost more than an ADD.
        if failed == 0 {
            self.print_sizes();
        }
        self.print_doubts();
    }

    /// ADDs.
    fn failed(&self) -> usize {
        let failures = self.adds.shift.log.failures.iter().filter(|(code, _)| code.starts_with("ADD"));
        failures.map(|(_, failures)| failures.count).sum()
    }

    /// ADDs a second by the processors of the busiest member, and the time for all of them.
    fn served(&self, cores: f64) -> (f64, f64) {
        let [_, busiest_ms] = self.adds.etcd_ms_each();
        let per_second = cores * 1000.0 / busiest_ms;
        (per_second, self.wanted() as f64 / per_second)
    }

    fn print_sizes(&self) {
        println!(
            "multiplied, not measured: cores of a member / processor time of the busiest one for an ADD"
        );
        for cores in SIZES {
            let (per_second, seconds) = self.served(cores);
            println!("  {cores} cores: {per_second:.0} ADDs a second, all of them in {seconds:.1} s");
        }
    }

    /// What is this machine's rather than etcd's.
    fn print_doubts(&self) {
        let Shares { all, etcd, generator, relays, others } = self.adds.shares();
        if self.adds.is_out_of_cores() {
            println!(
                "All {all} cores were busy: etcd {etcd:.2}, generator and relays {:.2}, others {others:.2}. So times \
                 and failures are those of this machine; members with cores of their own answer sooner.",
                generator + relays
            );
        }
        let floors: usize = self.floors.iter().map(|step| step.shift.log.failed()).sum();
        if floors > 0 {
            println!("{floors} floors failed, too: the machine is not up to so many at a time.");
        }
        let [p99] = self.adds.shift.lateness.percentiles_ms([99]);
        if p99 >= limits::CONNECT_ATTEMPT.as_secs_f64() * 1000.0 {
            println!(
                "The generator came late by {}. A run waits {} ms for a connection: what failed may be the \
                 generator's own fault. --in-flight makes it quicker.",
                late(&self.adds.shift.lateness),
                limits::CONNECT_ATTEMPT.as_millis()
            );
        }
    }

    pub(super) fn json(&self) -> Value {
        let sizes = SIZES.map(|cores| {
            let (per_second, seconds) = self.served(cores);
            json!({"cores": cores, "adds_per_second": per_second, "seconds": seconds})
        });
        let [all, busiest] = self.ratios();
        json!({
            "nodes": self.nodes, "pods": self.pods, "networks": self.networks,
            "links_ms": self.links.as_secs_f64() * 1000.0, "in_flight": self.in_flight, "new": self.is_new,
            "floors": self.floors.each_ref().map(Step::json), "adds": self.adds.json(),
            "ratio": all, "ratio_of_the_busiest": busiest, "mark": MARK_CPU, "multiplied": sizes,
            "doubles": self.doubles, "violations": self.violations,
        })
    }
}

fn verdict(what: &str, value: String, is_met: bool, mark: &str) {
    let verdict = if is_met { "met" } else { "NOT MET" };
    println!("{what:<42} {value:>9}   mark {mark}  {verdict}");
}

fn late(lateness: &Timings) -> String {
    let [p50, p99, max] = lateness.percentiles_ms([50, 99, 100]);
    format!("p50 {p50:.0}, p99 {p99:.0}, max {max:.0} ms")
}
