//! A caller starts and stops pods as a kubelet does, one after the other, and some of its calls go wrong.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Soak;
use super::processes::End;
use super::report::code;
use support::chaos_proxies::next_random;
use support::{Outcome, Run};

/// The pods of all callers fit into a network, and not many more.
const PODS_MAX: usize = 5;
/// The number of sandboxes that a pod gets before it is given up.
const SANDBOXES_MAX: u32 = 4;
const PAUSE: Duration = Duration::from_millis(50);
const DEL_MAX: Duration = Duration::from_secs(60);

const NO_FREE_ADDRESS: &str = "100";
/// The least that etcd holds of 62 addresses, soon after none was free. DELs, a GC and spools may have freed some
/// since.
const FULL_MIN: usize = 31;
/// The answers that an ADD under faults may give: try again, no free address, out of space.
const ADD_MAY: [&str; 5] = ["ok", "killed", "11", NO_FREE_ADDRESS, "103"];
/// The answers that a DEL may give: it spools the frees that it cannot do.
const DEL_MAY: [&str; 2] = ["ok", "killed"];
const OTHERS_MAY: [&str; 3] = ["ok", "killed", "11"];
const STATUS_MAY: [&str; 4] = ["ok", "killed", "11", "50"];

pub(super) struct Caller<'s> {
    soak: &'s Soak,
    name: String,
    random: u64,
    made: u64,
    pods: Vec<Sandbox>,
    /// ADDs that nobody waits for any more.
    abandoned: Vec<u64>,
}

/// A pod's attachment to one network.
#[derive(Clone, Debug)]
struct Sandbox {
    container: String,
    /// Node and network.
    at: (usize, usize),
    uid: String,
    result: Value,
}

impl<'s> Caller<'s> {
    pub(super) fn new(soak: &'s Soak, index: u64, seed: u64) -> Self {
        Self {
            soak,
            name: format!("k{index}"),
            random: seed,
            made: 0,
            pods: Vec::new(),
            abandoned: Vec::new(),
        }
    }

    /// Works until the soak is over; then it deletes all that it has.
    pub(super) fn work(&mut self) {
        while !self.soak.is_over() {
            self.step();
            self.reap(Some(Duration::ZERO));
        }
        self.reap(None);
        for pod in std::mem::take(&mut self.pods) {
            self.delete(&pod);
        }
        let forgotten = self.soak.ledger().take_forgotten();
        for (at, container) in forgotten {
            self.delete(&Sandbox { container, at, uid: String::new(), result: Value::Null });
        }
    }

    fn step(&mut self) {
        if self.pods.is_empty() || self.pods.len() < PODS_MAX && self.one_in(2) {
            let (nodes, networks) = (self.soak.nodes.len() as u64, self.soak.networks.len() as u64);
            let at = (self.below(nodes) as usize, self.below(networks) as usize);
            let uid = self.fresh("uid");
            return self.start(at, &uid);
        }
        let index = self.below(self.pods.len() as u64) as usize;
        match self.below(100) {
            0..52 => self.remove(index),
            52..66 => self.check(index),
            66..76 => self.repeat(index),
            76..88 => self.replace(index),
            88..92 => self.add_again(index),
            92..95 => self.forget(index),
            95..98 => self.collect(index),
            _ => self.ask_status(index),
        }
    }

    /// Starts a pod. After each ADD that failed it calls DEL and tries a new sandbox.
    fn start(&mut self, at: (usize, usize), uid: &str) {
        for _ in 0..SANDBOXES_MAX {
            let container = self.fresh("c");
            self.soak.ledger().begins(at, &container);
            let sandbox = Sandbox { container, at, uid: uid.to_owned(), result: Value::Null };
            if let Some(result) = self.add(&sandbox) {
                self.pods.push(Sandbox { result, ..sandbox });
                return;
            }
            self.delete(&sandbox);
            if self.soak.is_over() {
                return;
            }
            thread::sleep(PAUSE);
        }
    }

    fn remove(&mut self, index: usize) {
        let pod = self.pods.swap_remove(index);
        self.delete(&pod);
    }

    /// The sandbox has died: a new one takes the addresses over, or finds them freed.
    fn replace(&mut self, index: usize) {
        let old = self.pods.swap_remove(index);
        self.soak.ledger().closes(&old.container);
        let is_late = self.one_in(2);
        if !is_late {
            self.delete(&old);
        }
        self.start(old.at, &old.uid);
        if is_late {
            self.delete(&old);
        }
    }

    /// Adds the same container again after its DEL.
    fn add_again(&mut self, index: usize) {
        let pod = self.pods.swap_remove(index);
        self.delete(&pod);
        self.soak.ledger().begins(pod.at, &pod.container);
        match self.add(&pod) {
            Some(result) => self.pods.push(Sandbox { result, ..pod }),
            None => self.delete(&pod),
        }
    }

    /// Repeats an ADD that has succeeded.
    fn repeat(&mut self, index: usize) {
        let pod = self.pods[index].clone();
        let outcome = self.run("ADD", self.add_run(&pod), &ADD_MAY);
        self.answered(&pod, &outcome);
    }

    fn check(&mut self, index: usize) {
        let pod = &self.pods[index];
        let mut config = self.soak.networks[pod.at.1].config.clone();
        config["prevResult"] = pod.result.clone();
        let run = self.attachment("CHECK", pod).config(&config);
        self.run("CHECK", run, &OTHERS_MAY);
    }

    fn forget(&mut self, index: usize) {
        let pod = self.pods.swap_remove(index);
        self.soak.ledger().is_forgotten(pod.at, &pod.container);
    }

    fn collect(&mut self, index: usize) {
        let at = self.pods[index].at;
        let valid = self.soak.ledger().collects(at);
        let valid: Vec<Value> = valid.iter().map(|id| json!({"containerID": id, "ifname": "eth0"})).collect();
        let mut config = self.soak.networks[at.1].config.clone();
        config["cni.dev/valid-attachments"] = json!(valid);
        let run = self.soak.nodes[at.0].gc().config(&config);
        self.run("GC", run, &OTHERS_MAY);
    }

    fn ask_status(&mut self, index: usize) {
        let (node, network) = self.pods[index].at;
        let run = self.soak.nodes[node].status().config(&self.soak.networks[network].config);
        self.run("STATUS", run, &STATUS_MAY);
    }

    /// Runs an ADD and returns its result, if there is one. Now and then the ADD is killed, run twice, or abandoned.
    fn add(&mut self, sandbox: &Sandbox) -> Option<Value> {
        let run = self.add_run(sandbox);
        let outcome = match self.below(100) {
            0..4 => {
                let id = self.soak.processes.start(run);
                thread::sleep(Duration::from_micros(self.below(25_000)));
                self.soak.processes.kill(id);
                self.finish("ADD", id, &ADD_MAY)
            }
            4..8 => {
                let patience = Duration::from_micros(self.below(25_000));
                let id = self.soak.processes.start(run);
                match self.soak.processes.wait(id, Some(patience)) {
                    End::Done(outcome, was_stopped) => self.done("ADD", outcome, was_stopped, &ADD_MAY),
                    End::RunsOn(id) => {
                        self.abandoned.push(id);
                        return None;
                    }
                }
            }
            8..12 => {
                let other = self.soak.processes.start(run.clone());
                let outcome = self.run("ADD", run, &ADD_MAY);
                let other = self.finish("ADD", other, &ADD_MAY);
                let first = self.answered(sandbox, &outcome);
                return self.answered(sandbox, &other).or(first);
            }
            _ => self.run("ADD", run, &ADD_MAY),
        };
        self.answered(sandbox, &outcome)
    }

    fn answered(&self, sandbox: &Sandbox, outcome: &Outcome) -> Option<Value> {
        let network = self.soak.networks[sandbox.at.1].name;
        if code(outcome) == NO_FREE_ADDRESS {
            let known = self.soak.ledger().owners_in(network);
            // Those that the ledger does not know hang on DELs that are under way, or in a spool.
            if let Some(held) = self.soak.held_in(network) {
                self.soak.report().was_full(held, known);
                let is_false = held < FULL_MIN;
                self.soak.violated(is_false.then(|| format!("with {held} held in {network}: {outcome}")));
            }
        }
        if !outcome.succeeded() {
            return None;
        }
        let owner = &sandbox.container;
        let wrong = self.soak.ledger().answered(network, owner, &outcome.addresses());
        self.soak.violated(wrong);
        Some(outcome.ok())
    }

    /// Calls DEL until it succeeds, as a kubelet does; now and then two at once.
    fn delete(&mut self, sandbox: &Sandbox) {
        self.soak.ledger().closes(&sandbox.container);
        let start = Instant::now();
        loop {
            let run = self.attachment("DEL", sandbox).config(&self.soak.networks[sandbox.at.1].config);
            let other = self.one_in(16).then(|| self.soak.processes.start(run.clone()));
            let outcome = self.run("DEL", run, &DEL_MAY);
            if let Some(other) = other {
                self.finish("DEL", other, &DEL_MAY);
            }
            if outcome.succeeded() {
                return self.soak.ledger().is_gone(sandbox.at, &sandbox.container);
            }
            if start.elapsed() > DEL_MAX {
                return self.soak.violated(format!("not deleted in {DEL_MAX:?}: {outcome}"));
            }
            thread::sleep(PAUSE);
        }
    }

    /// Takes note of abandoned ADDs that have ended.
    fn reap(&mut self, patience: Option<Duration>) {
        for id in std::mem::take(&mut self.abandoned) {
            match self.soak.processes.wait(id, patience) {
                End::Done(outcome, was_stopped) => _ = self.done("ADD", outcome, was_stopped, &ADD_MAY),
                End::RunsOn(id) => self.abandoned.push(id),
            }
        }
    }

    fn run(&self, verb: &str, run: Run, may: &[&str]) -> Outcome {
        self.finish(verb, self.soak.processes.start(run), may)
    }

    fn finish(&self, verb: &str, id: u64, may: &[&str]) -> Outcome {
        match self.soak.processes.wait(id, None) {
            End::Done(outcome, was_stopped) => self.done(verb, outcome, was_stopped, may),
            End::RunsOn(_) => unreachable!("it was waited for"),
        }
    }

    fn done(&self, verb: &str, outcome: Outcome, was_stopped: bool, may: &[&str]) -> Outcome {
        self.soak.report().ended(verb, &outcome, was_stopped);
        if !may.contains(&code(&outcome).as_str()) {
            self.soak.violated(format!("{outcome}"));
        }
        outcome
    }

    fn add_run(&self, sandbox: &Sandbox) -> Run {
        self.attachment("ADD", sandbox).pod("ns", &sandbox.uid, &sandbox.uid)
    }

    fn attachment(&self, verb: &str, sandbox: &Sandbox) -> Run {
        self.soak.attachment(verb, &sandbox.container, sandbox.at.0, sandbox.at.1)
    }

    fn fresh(&mut self, stem: &str) -> String {
        self.made += 1;
        format!("{stem}-{}-{}", self.name, self.made)
    }

    fn below(&mut self, bound: u64) -> u64 {
        next_random(&mut self.random) % bound
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}
