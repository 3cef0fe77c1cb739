//! The costs of commands for people in a network that holds very many addresses, beside one that holds ten.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use metes_core::keys::{Keys, Scope};
use metes_core::pool::{Addr, NetworkName};
use serde_json::json;

use super::size::fill::{self, HeldRun};
use crate::lab::{Lab, Wire, of_pod};
use crate::options::{Options, Section};
use crate::results::{Data, Results};
use crate::samples::Sample;
use support::{Cluster, Node, metes, network_as};

/// The number of addresses that the small network holds.
const FEW: usize = 10;
const NETWORK: &str = "filled";
const BASE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 0);
const TIMES: usize = 20;
/// The number of runs of a command that takes seconds.
const TIMES_WHOLE: usize = 3;
/// Longer than any mark, so that it is measured how far a command is from it.
const PATIENCE: &str = "--timeout=10m";
const LOOK: Duration = Duration::from_millis(10);

pub(crate) fn measure(options: &Options, results: &mut Results) {
    let lab = Lab::new(options, Wire::Plain);
    for (size, held) in [("few", FEW), ("many", options.held)] {
        let filled = Filled::new(&lab, held);
        let address = Addr(Addr::from(IpAddr::from(BASE)).0 + 1 + held as u128 / 2).to_string();
        let asked: [(&str, Vec<&str>, usize); 3] = [
            ("show", vec!["show", &address], TIMES),
            ("list", vec!["list", "--network", NETWORK, "--limit", "100"], TIMES),
            ("usage", vec!["usage"], TIMES_WHOLE),
        ];
        for (name, arguments, times) in asked {
            let what = format!("metes {} where {held} are held", arguments.join(" "));
            let sample = filled.sample(&arguments, times);
            results.add_times(
                Section::Commands,
                format!("{name}-{size}"),
                what,
                sample,
                &format!("{name}-few"),
            );
        }
        let (time, mib) = filled.check();
        let mut add = |name: &str, what: &str, value, unit| {
            let what = format!("metes check where {held} are held: {what}");
            let name = format!("{name}-{size}");
            results.add(Section::Commands, name, what, Data::Number(vec![value], unit));
        };
        add("check", "time", time.as_secs_f64(), "s");
        add("check-memory", "resident memory at most", mib, "MiB");
        filled.cluster.leave_unclean();
    }
    lab.cluster.assert_whole();
}

/// A network that holds so many addresses, under a prefix of its own.
struct Filled {
    cluster: Cluster,
    node: Node,
}

impl Filled {
    fn new(lab: &Lab, held: usize) -> Self {
        let cluster = Cluster::on(lab.etcd());
        let node = cluster.node("node");
        // It writes meta, and which ranges are asked for.
        let config =
            network_as("1.0.0", NETWORK, json!({"range": format!("{BASE}/8"), "network_name": NETWORK}));
        of_pod(node.add("first"), "first").config(&config).run().ok();
        of_pod(node.del("first"), "first").config(&config).run().silent();
        eprintln!("  filling {BASE}/8 with {held} addresses");
        let base = Addr::from(IpAddr::from(BASE));
        let run = HeldRun {
            network: NetworkName::configured(NETWORK).expect("a plain name"),
            scope: Scope::stored(&format!("{NETWORK},{:032x}-8", base.0)).expect("a scope's characters"),
            first: Addr(base.0 + 1),
            count: held,
        };
        fill::put(cluster.store(), run.entries(&Keys::new(cluster.prefix())));
        Self { cluster, node }
    }

    fn sample(&self, arguments: &[&str], times: usize) -> Sample {
        let mut sample = Sample::default();
        for _ in 0..times {
            let outcome = self.node.cli([arguments, &[PATIENCE]].concat());
            assert!(outcome.succeeded(), "{outcome}");
            sample.add(outcome.elapsed);
        }
        sample
    }

    /// The time that `metes check` takes, and the most memory that it has, in MiB.
    fn check(&self) -> (Duration, f64) {
        let mut check = Command::new(metes());
        check.env("METES_CONF", self.node.host_file()).args(["check", PATIENCE]);
        let begin = Instant::now();
        let mut check = check.stdout(Stdio::null()).spawn().expect("the program can be started");
        let mut kib: f64 = 0.0;
        let status = loop {
            if let Some(status) = check.try_wait().expect("it can be waited for") {
                break status;
            }
            let status = fs::read_to_string(format!("/proc/{}/status", check.id())).unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok()).unwrap_or(kib);
            std::thread::sleep(LOOK);
        };
        assert!(status.success(), "metes check: {status}");
        (begin.elapsed(), kib / 1024.0)
    }
}
