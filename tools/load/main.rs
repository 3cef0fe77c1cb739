//! Measures the ADDs that 1 to 1,000 virtual nodes get through on a real etcd, next to plain puts on the same etcd.
//! hack/load starts it; `hack/load --help` shows the flags. With `--cluster` it turns 2,000 nodes on at once instead:
//! see [`cluster`].
//!
//! A virtual node has what a node with the plugin has: a name, a state folder and a connection of its own. It sends one
//! request after the other through [`metes::commands`]. Only the start of a process and of a connection are left out.
//!
//! There are three parts, and each step of them is bounded in time:
//! - ADDs on many networks; before and after them as many clients do plain puts of a reservation's size. The mark is
//!   0.4: the ADDs a second, divided by (the puts a second / the proposals that etcd counts for each ADD).
//! - The same with a network chosen at random for each ADD, so that nodes meet.
//! - The curve for one network as nodes are added. A thousand nodes that wait should not be slower than ten.
//!
//! # What limits it
//!
//! Each row shows what was used meanwhile: the cores of etcd (its own metric), of this generator (the CPU time of its
//! threads) and of all others (also the kernel's work for disk and loopback), and for how much of the time etcd's log
//! waited for the disk. The last column follows from these:
//! - `cores`: nearly all cores of the machine were busy.
//! - `disk`: etcd's log waited for the disk nearly all the time.
//! - `turns`: neither; requests waited for each other. On many networks they wait in etcd's log, which writes one batch
//!   after the other: 64 clients on two quiet cores keep etcd at one core and its log in fsync half of the time, for
//!   puts and ADDs alike. On one network each ADD has to see the commit of the one before it. Where etcd's cores grow
//!   with the nodes and the ADDs do not, the queue is what costs: `perf record -g -p` on etcd's process shows how much.
//!
//! The generator's thread is not the limit: it is busy for 0.6 of the time, and a second one changes nothing. But it
//! takes a core from etcd, and an ADD costs it about six times as much as a put. So the ratio is too low rather than
//! too high.
//!
//! The report also tells how many steps other processes disturbed. Of such a run only the ratios mean something.
//!
//! The leases of a step are ended before the next one begins (`Server::end_leases`). The lease of an ADD ends 30 s
//! later, which is one more proposal, and a step of a few seconds does not show it. With `--seconds 120` it shows.
//!
//! No two addresses that are held at the end may be the same, and the audit of `metes check` must find nothing.

#![allow(clippy::print_stdout, reason = "the table is its output")]

mod args;
mod audited;
mod cluster;
mod crew;
mod node;
mod puts;
mod report;
mod server;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs, process};

use clap::Parser;
use metes_core::limits;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tempfile::TempDir;

use args::Args;
use audited::doubles;
use crew::{Crew, Shift};
use node::{Node, Pick, Place};
use puts::Putter;
use report::{Beside, Report, Row};
use server::{Reading, Server};

fn main() -> ExitCode {
    let args = Args::parse();
    raise_file_limit();
    if args.cluster {
        return cluster::power_on(&args);
    }
    let load = Load::new(args);
    Report::print_heading();
    let report = load.measure();
    load.server.remove(&[&load.prefix, &load.puts_prefix]);
    report.print();
    if let Some(path) = &load.args.json {
        fs::write(path, format!("{:#}\n", report.json())).expect("the report can be written");
    }
    // The table has said what is wrong.
    if report.is_sound() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A thousand nodes need a thousand connections.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).expect("a process may use all that it is allowed");
}

/// The parts that all steps use.
struct Load {
    args: Args,
    server: Server,
    prefix: String,
    puts_prefix: String,
    folder: TempDir,
}

impl Load {
    fn new(args: Args) -> Self {
        let server = Server::new(args.endpoint.as_deref(), args.links());
        let id = process::id();
        let (prefix, puts_prefix) = (format!("/metes-load-{id}/"), format!("/metes-load-puts-{id}/"));
        Self { args, server, prefix, puts_prefix, folder: folder(id) }
    }

    fn measure(&self) -> Report {
        // The first ADD of a prefix makes its meta, which the others would all wait for.
        self.adds("warm-up", 1, 1, Pick::Own);
        let Args { clients, rounds, .. } = self.args;
        let networks = self.args.networks();
        let beside_puts: Vec<Beside> = (1..=rounds)
            .map(|round| {
                self.beside_puts(|| self.adds(&format!("many-{round}"), clients, networks, Pick::Own))
            })
            .collect();
        let random = self.beside_puts(|| self.adds("random", clients, networks, Pick::Random));
        let curve: Vec<Row> =
            self.args.curve().map(|nodes| self.adds(&format!("one-{nodes}"), nodes, 1, Pick::Own)).collect();
        let mut report = Report { many: beside_puts, random, curve, findings: self.audit(), doubles: 0 };
        report.doubles = doubles(report.rows().flat_map(|row| &row.shift.log.held));
        report
    }

    /// Measures ADDs between two runs of puts, so that a slow moment of the machine hits both alike.
    fn beside_puts(&self, adds: impl FnOnce() -> Row) -> Beside {
        let before = self.puts();
        let adds = adds();
        Beside { adds, puts: [before, self.puts()] }
    }

    fn puts(&self) -> Row {
        let endpoints = self.server.endpoints();
        let make = async |index: usize| {
            let endpoint = &endpoints[index % endpoints.len()];
            Putter::connect(endpoint, &self.puts_prefix, index).await
        };
        self.step("puts", self.args.clients, 0, |crew, begin| crew.work(make, begin))
    }

    fn adds(&self, step: &str, nodes: usize, networks: usize, pick: Pick) -> Row {
        let place = Place {
            endpoints: self.server.endpoints(),
            prefix: &self.prefix,
            folder: self.folder.path(),
            step: step.to_owned(),
            networks,
            pick,
            order: self.args.order,
            dels: self.args.dels,
        };
        let make = async |index| Node::connect(&place, index).await;
        self.step(step, nodes, networks, |crew, begin| crew.work(make, begin))
    }

    fn step(
        &self,
        what: &str,
        clients: usize,
        networks: usize,
        work: impl FnOnce(Crew, &mut dyn FnMut()) -> Shift,
    ) -> Row {
        let window = self.args.window();
        let crew = Crew { clients, threads: self.args.threads.min(clients), window };
        let mut before = Reading::default();
        let shift = work(crew, &mut || before = self.server.read());
        let used = self.server.read().since(&before);
        self.server.end_leases();
        let row = Row { what: what.to_owned(), clients, networks, window, shift, used };
        row.print();
        row
    }

    fn audit(&self) -> Vec<String> {
        let kv = support::plain_store(self.server.endpoint(), limits::UNREACHABLE);
        server::block_on(audited::violations(&kv, &self.prefix))
    }
}

/// A folder on the disk on which the etcd of the tests has its data. It is removed at the end; the next run removes
/// what a killed run has left there.
fn folder(id: u32) -> TempDir {
    let base = env::var_os("METES_TEST_FOLDER").expect("METES_TEST_FOLDER names a folder");
    let base: PathBuf = Path::new(&base).join("run");
    fs::create_dir_all(&base).expect("the folder of all runs can be made");
    TempDir::with_prefix_in(format!("{id}-load-"), base).expect("a temporary folder can be made")
}
