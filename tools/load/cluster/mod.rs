//! A cluster that is turned on: every node wants its pods' networks at once.
//!
//! A node has what a node with the plugin has: its names, machine id, certificate and state folder. Each run of the
//! plugin connects anew, shakes hands with TLS, does all that the plugin's process does, and goes. They are real runs
//! with their own deadlines, and `pod` says in which order Multus and kubelet would start them. The store is three real
//! members with fsync, and relays delay what they tell each other.
//!
//! Floors before and after it, from the same nodes in the same way, say what a connection and a put cost on this
//! machine at this time. The mark is a ratio of one run: etcd's processor time for an ADD, divided by that for a floor.
//!
//! Generator and members share the machine's cores, and the generator goes first: nodes have cores of their own. The
//! ratio does not suffer from that, and times do: the report says who used the cores, and how late the generator came
//! to answers that were there. With `--in-flight`, fewer pods are started at a time; the others are of nodes that are
//! turned on later. A pod keeps its turn from its first network to its last one: if pods took turns network by network,
//! a node would wait so long in between that no two of its ADDs shared a lease.
//!
//! Nodes have a mark of an earlier boot, with `--new` they have nothing: then the first run of each asks all endpoints.

mod floor;
mod host;
mod members;
mod pod;
mod report;

use std::fs;
use std::process::{self, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use metes_etcd::client::{Access, Etcd};
use support::temporary_in_memory;
use tempfile::TempDir;
use tokio::sync::Semaphore;

use self::floor::Floors;
use self::host::{Host, Site};
use self::members::{Members, Used};
use self::report::{ClusterReport, Step};
use crate::args::Args;
use crate::audited::{doubles, violations};
use crate::crew::{Client, Crew};
use crate::server::block_on;

/// A pod that fails is not tried again after this time.
const TRIED_FOR: Duration = Duration::from_secs(300);
/// In the earlier boot, which is not measured: so many pods at a time.
const EARLIER_IN_FLIGHT: usize = 32;
/// The id of that boot.
const EARLIER: &str = "0b3a2c64-5f0e-4d0c-9d5e-6b1f4f3c2a10";

struct Cluster<'a> {
    args: &'a Args,
    /// In memory: a node that spools waits for a disk of its own, not for etcd's.
    folder: TempDir,
    prefix: String,
    members: Members,
    access: Vec<Access>,
}

/// Measures, prints, and returns success if no address is held twice and the audit finds nothing.
pub(crate) fn power_on(args: &Args) -> ExitCode {
    let prefix = format!("/metes-load-{}/", process::id());
    let members = Members::start(args.cluster_links(), &prefix);
    let access = members.access(args.nodes);
    let cluster = Cluster { args, folder: temporary_in_memory(), prefix, members, access };
    let report = cluster.measure();
    report.print();
    if let Some(path) = &args.json {
        fs::write(path, format!("{:#}\n", report.json())).expect("the report can be written");
    }
    // The table has said what is wrong.
    if report.is_sound() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Cluster<'_> {
    fn measure(&self) -> ClusterReport {
        if !self.args.new {
            self.boot_earlier();
        }
        let halves = [self.args.pod_networks().div_ceil(2), self.args.pod_networks() / 2];
        let before = self.floors(halves[0]);
        let adds = self.adds();
        let after = self.floors(halves[1]);
        let held = &adds.shift.log.held;
        let kv = Etcd::new(self.access[0].clone());
        ClusterReport {
            nodes: self.args.nodes,
            pods: self.args.pods,
            networks: self.args.pod_networks(),
            links: self.args.cluster_links(),
            in_flight: self.args.in_flight,
            is_new: self.args.new,
            doubles: doubles(held.iter()),
            violations: block_on(violations(&kv, &self.prefix)),
            floors: [before, after],
            adds,
        }
    }

    /// Leaves a mark on each node, and no hint that holds beyond that boot.
    fn boot_earlier(&self) {
        let site = Site {
            name: "earlier",
            networks: 1,
            pods: 1,
            boot: Some(EARLIER),
            turns: Arc::new(Semaphore::new(EARLIER_IN_FLIGHT)),
            ..self.site()
        };
        let step = self.step("earlier boot", async |index| Host::of(&site, index));
        assert_eq!(step.shift.log.main.count(), self.args.nodes, "each node has a mark");
    }

    fn adds(&self) -> Step {
        let site = self.site();
        self.step("ADDs", async |index| Host::of(&site, index))
    }

    /// So many in each line: half of a pod's networks.
    fn floors(&self, each: usize) -> Step {
        let turns = self.turns();
        let floors = |index: usize| {
            Floors::of(self.access[index].clone(), index, [self.args.pods, each], turns.clone())
        };
        self.step("floors", async |index| floors(index))
    }

    fn site(&self) -> Site<'_> {
        Site {
            access: &self.access,
            prefix: &self.prefix,
            folder: self.folder.path(),
            name: "network",
            networks: self.args.pod_networks(),
            pods: self.args.pods,
            order: self.args.order,
            boot: None,
            turns: self.turns(),
        }
    }

    fn turns(&self) -> Arc<Semaphore> {
        Arc::new(Semaphore::new(self.args.in_flight.unwrap_or(Semaphore::MAX_PERMITS)))
    }

    fn step<C, M>(&self, what: &'static str, make: M) -> Step
    where
        C: Client + 'static,
        M: AsyncFn(usize) -> C + Sync,
    {
        let Args { nodes, threads, .. } = *self.args;
        let crew = Crew { clients: nodes, threads: threads.min(nodes), window: TRIED_FOR };
        let mut before = Used::default();
        let shift = crew.work(make, || before = self.members.read());
        let now = self.members.read();
        self.members.end_leases(&self.access[0]);
        let step = Step { what, shift, used: now.since(&before) };
        step.print();
        step
    }
}
