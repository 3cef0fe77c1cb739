//! Tables of cases, and the answers that are compared with a file.
//!
//! A table never ends at its first failure: a fault of one row says little about the next.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::any::Any;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::{Value, json};

use support::{Cluster, Node, Outcome, Run, in_parallel};

const WORKERS: usize = 4;

/// The versions of the protocol, oldest first.
pub(crate) const VERSIONS: [&str; 7] = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];

/// Judges every row, then fails with the name and the fault of each that failed.
#[track_caller]
pub(crate) fn every<R: Send>(rows: impl IntoIterator<Item = (String, R)>, judge: impl Fn(R) + Sync) {
    let failures: Vec<String> = in_parallel(WORKERS, rows, |(name, row)| {
        let judged = catch_unwind(AssertUnwindSafe(|| judge(row)));
        judged.err().map(|panic| format!("== {name}\n{}", words(&*panic)))
    })
    .into_iter()
    .flatten()
    .collect();
    assert!(failures.is_empty(), "{} rows failed:\n{}", failures.len(), failures.join("\n"));
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

/// `golden/<name>-<shape>.json` as an answer in `version`. There is one file for all versions of one shape,
/// named after the newest of them.
pub(crate) fn golden(name: &str, version: &str) -> Value {
    let shape = match version {
        "0.1.0" | "0.2.0" => "0.2.0",
        "0.3.0" | "0.3.1" | "0.4.0" => "0.4.0",
        _ => "1.1.0",
    };
    let path = format!("{}/tests/cni/golden/{name}-{shape}.json", support::root().display());
    let text = fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut answer: Value = serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{path}: {error}"));
    answer["cniVersion"] = json!(version);
    answer
}

/// Everything that is held: reservations, owners and pods.
pub(crate) fn held(cluster: &Cluster) -> Vec<String> {
    let store = cluster.store();
    let keys = ["v1/net/", "v1/owner/", "v1/pod/"].into_iter().flat_map(|part| store.keys(part));
    keys.filter(|key| !key.starts_with("v1/net/") || key.contains("/ip/")).collect()
}

/// One row: a network on a fresh cluster, and its steps in turn.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    name: String,
    ipam: Value,
    steps: Vec<Step>,
}

/// A row around `ipam`, whose `type` is filled in.
pub(crate) fn case(name: &str, ipam: Value) -> Case {
    Case { name: name.to_owned(), ipam, steps: Vec::new() }
}

impl Case {
    pub(crate) fn then(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    /// Another container holds `address`.
    pub(crate) fn taken(self, address: &str) -> Self {
        let holder = format!("holder-of-{}", address.replace(':', "-"));
        self.then(add(&holder).args(&format!("IP={address}")).succeeds())
    }

    /// `address` was the last one handed out, and is free again.
    pub(crate) fn last(self, address: &str) -> Self {
        let was_here = |step: Step| step.args(&format!("IP={address}"));
        self.then(was_here(add("was-here")).succeeds()).then(was_here(del("was-here")))
    }

    /// `ADD` of a container that asks for nothing.
    pub(crate) fn gives<const N: usize>(self, container: &str, addresses: [&str; N]) -> Self {
        self.then(add(container).gives(addresses))
    }

    /// `ADD` of a container that asks for nothing.
    pub(crate) fn refuses(self, container: &str, code: u64) -> Self {
        self.then(add(container).fails(code))
    }

    fn judge(self) {
        let cluster = Cluster::new();
        let node = cluster.node("n1");
        for (index, step) in self.steps.iter().enumerate() {
            step.judge(index + 1, &cluster, &node, &self.ipam);
        }
        cluster.assert_clean();
    }
}

/// Judges every case on a cluster of its own.
#[track_caller]
pub(crate) fn every_case(cases: impl IntoIterator<Item = Case>) {
    every(cases.into_iter().map(|case| (case.name.clone(), case)), Case::judge);
}

/// One run of the plugin and the answer that it must give.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    verb: &'static str,
    container: String,
    ifname: String,
    version: Option<&'static str>,
    ipam: Option<Value>,
    more: Value,
    args: Option<String>,
    expected: Expected,
}

#[derive(Clone, Debug)]
enum Expected {
    Success,
    Addresses(Vec<String>),
    Answer(Value),
    Silence,
    Error(u64),
    Failure,
}

pub(crate) fn add(container: &str) -> Step {
    Step::new("ADD", container, Expected::Success)
}

pub(crate) fn del(container: &str) -> Step {
    Step::new("DEL", container, Expected::Silence)
}

pub(crate) fn check(container: &str) -> Step {
    Step::new("CHECK", container, Expected::Silence)
}

impl Step {
    fn new(verb: &'static str, container: &str, expected: Expected) -> Self {
        Self {
            verb,
            container: container.to_owned(),
            ifname: "eth0".to_owned(),
            version: Some("1.0.0"),
            ipam: None,
            more: json!({}),
            args: None,
            expected,
        }
    }

    pub(crate) fn ifname(self, name: &str) -> Self {
        Self { ifname: name.to_owned(), ..self }
    }

    pub(crate) fn version(self, version: impl Into<Option<&'static str>>) -> Self {
        Self { version: version.into(), ..self }
    }

    /// Another `ipam` than the case's.
    pub(crate) fn ipam(self, ipam: Value) -> Self {
        Self { ipam: Some(ipam), ..self }
    }

    /// More keys of the network configuration: `args`, `runtimeConfig`, `prevResult`.
    pub(crate) fn with(self, more: Value) -> Self {
        Self { more, ..self }
    }

    /// CNI_ARGS.
    pub(crate) fn args(self, args: &str) -> Self {
        Self { args: Some(args.to_owned()), ..self }
    }

    pub(crate) fn succeeds(self) -> Self {
        self.expects(Expected::Success)
    }

    /// Addresses with their prefix lengths, in this order.
    pub(crate) fn gives<const N: usize>(self, addresses: [&str; N]) -> Self {
        self.expects(Expected::Addresses(addresses.map(str::to_owned).into()))
    }

    pub(crate) fn answers(self, answer: Value) -> Self {
        self.expects(Expected::Answer(answer))
    }

    /// It is refused with this code, and nothing more or less is held than before.
    pub(crate) fn fails(self, code: u64) -> Self {
        self.expects(Expected::Error(code))
    }

    /// It is refused in a way that has no code of its own.
    pub(crate) fn fails_somehow(self) -> Self {
        self.expects(Expected::Failure)
    }

    fn expects(self, expected: Expected) -> Self {
        Self { expected, ..self }
    }

    fn judge(&self, number: usize, cluster: &Cluster, node: &Node, ipam: &Value) {
        let before = held(cluster);
        let mut outcome = self.prepare(node, ipam).run();
        outcome.what = format!("step {number}, {} {:?}", outcome.what.trim(), self.args);
        match &self.expected {
            Expected::Success => _ = outcome.ok(),
            Expected::Addresses(addresses) => assert_eq!(&outcome.addresses(), addresses, "{outcome}"),
            Expected::Answer(answer) => assert_eq!(&outcome.ok(), answer, "{outcome}"),
            Expected::Silence => outcome.silent(),
            Expected::Error(code) => _ = outcome.error(*code),
            Expected::Failure => _ = assert_refused(&outcome),
        }
        if matches!(self.expected, Expected::Error(_) | Expected::Failure) {
            assert_eq!(held(cluster), before, "held before and after are not the same: {outcome}");
        }
    }

    fn prepare(&self, node: &Node, ipam: &Value) -> Run {
        let run = match self.verb {
            "ADD" => node.add(&self.container),
            "DEL" => node.del(&self.container),
            _ => node.check(&self.container),
        };
        let run = run.ifname(&self.ifname).config(&self.config(ipam));
        match &self.args {
            None => run,
            Some(args) => run.args(args),
        }
    }

    fn config(&self, ipam: &Value) -> Value {
        let mut config = json!({"name": "mynet", "type": "ipvlan"});
        config["ipam"] = self.ipam.clone().unwrap_or_else(|| ipam.clone());
        if let Some(version) = self.version {
            config["cniVersion"] = json!(version);
        }
        if let Some(ipam) = config["ipam"].as_object_mut() {
            ipam.entry("type").or_insert_with(|| json!("metes"));
        }
        for (key, value) in self.more.as_object().expect("keys are an object") {
            config[key] = value.clone();
        }
        config
    }
}

/// It failed with an error object; the object.
#[track_caller]
pub(crate) fn assert_refused(outcome: &Outcome) -> Value {
    outcome.error(outcome.error_code().unwrap_or_default())
}
