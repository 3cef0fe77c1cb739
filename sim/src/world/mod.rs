//! A world: nodes with pods whose sandboxes get and give back addresses, a store, a cluster, and everything that goes
//! wrong.
//!
//! - `plan`: all that the seed decides before anything happens.
//! - `process`, `works`, `wire`: the real code as processes, and their connection with the world.
//! - `turn`: one thing after the other: a process goes on, a request is applied or answered, or time passes.
//! - `requests`: the fates of requests; `events`: the faults beside them; `strike`: faults aimed at one guard.
//! - `kubelet`, `cluster`: the callers of the plugin, and the knowledge of Kubernetes.
//! - `truth`: the knowledge of the callers; `tree`: the content of the store; `laws`: the laws of transactions.
//! - `deaths`: many runs die in a queue, and others come after them.
//! - `restored`: the store goes back to a snapshot, and the nodes know better.
//! - `endpoints`: one endpoint of the list leads to another etcd.
//! - `heal`: the end: nothing fails any more, everything finishes, and nothing is left over.

mod batches;
mod cluster;
mod deaths;
mod endpoints;
mod events;
mod heal;
mod holds;
mod ids;
mod kubelet;
mod laws;
mod plan;
mod pools;
mod process;
mod requests;
mod restored;
mod strangers;
mod strike;
mod tree;
mod truth;
mod turn;
mod watches;
mod wire;
mod works;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::path::Path;
use std::rc::Rc;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use metes_core::keys::Keys;
use metes_core::pool::{InvalidName, Owner};
use tokio::time::Instant;

use crate::chance::Chance;
use crate::mutant::{Guard, Mutant};
use crate::store::Model;
use batches::Crowd;
use cluster::{Image, Node, PodSlot};
use deaths::Deaths;
use ids::ProcessId;
use plan::Plan;
pub use plan::Theme;
use process::{Process, Ready};
use requests::Step;
use tree::{Changes, Tree};
use truth::Truth;
use watches::OpenWatch;
use wire::{Sent, Wire};
use works::Shared;

/// The name of the cluster whose reconciler is at work.
const CLUSTER: &str = "east";

/// A name of this world.
fn checked<T: FromStr<Err = InvalidName>>(name: &str) -> T {
    name.parse().expect("the world's names keep the rules")
}
/// More turns than any world takes before it heals.
const TURNS: u64 = 1_000_000;
/// The most lines of the trace that are kept.
const TRACE_LINES: usize = 4000;

/// The world to play, and the way to play it.
#[derive(Debug, Clone, Copy)]
pub struct Setup<'a> {
    /// Decides everything.
    pub seed: u64,
    /// The kind of world.
    pub theme: Theme,
    /// The number of operations that are begun.
    pub operations: u64,
    /// The guard that is left out of the transactions.
    pub mutant: Option<&'a Mutant>,
    /// The guard that is struck at while a transaction that carries it is on its way.
    pub target: Option<Guard>,
    /// True if a trace is kept.
    pub traced: bool,
    /// True if the guards that occur are collected.
    pub collects: bool,
    /// An empty folder for the nodes' files.
    pub folder: &'a Path,
}

/// The result of a world.
#[derive(Debug, Clone, Default)]
pub struct Played {
    /// Equal for equal seeds.
    pub digest: u64,
    /// Operations that were begun.
    pub operations: u64,
    /// Transactions that were applied, reads too.
    pub transactions: u64,
    /// Faults, each with its count.
    pub faults: BTreeMap<&'static str, u64>,
    /// Outcomes of operations, each with its count.
    pub outcomes: BTreeMap<&'static str, u64>,
    /// The guards that occurred, if they were asked for.
    pub guards: BTreeSet<Guard>,
    /// The violation.
    pub violation: Option<String>,
    /// The trace, if it was asked for.
    pub trace: Vec<String>,
}

/// Plays one world to its end.
#[must_use]
pub fn play(setup: Setup<'_>) -> Played {
    metes_engine::random::seed(setup.seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O can be built");
    // The world yields by itself: it has many steps.
    runtime.block_on(tokio::task::unconstrained(async {
        let mut world = World::new(setup);
        let ended = world.live().await;
        world.played(ended.err())
    }))
}

/// The mod revisions of keys, as processes have seen them last.
type Seen = HashMap<(ProcessId, Vec<u8>), i64>;

/// A world under way.
struct World<'a> {
    setup: Setup<'a>,
    plan: Plan,
    chance: Chance,
    shared: Rc<Shared>,
    wire: Rc<Wire>,
    ready: Arc<Ready>,
    model: Model,
    tree: Tree,
    truth: Truth,
    changes: Changes,
    /// The revision up to which watches were served.
    watched: i64,
    watches: Vec<OpenWatch>,
    crowd: Crowd,
    deaths: Deaths,
    nodes: Vec<Node>,
    /// The disk of a node, as it was.
    image: Option<Image>,
    pods: Vec<PodSlot>,
    pods_made: u64,
    /// The ends of the orders that a person has given to the store.
    hold_until: Option<Duration>,
    newer_until: Option<Duration>,
    full_until: Option<Duration>,
    /// The end of the time in which etcd grants leases that are too long.
    long_leases_until: Option<Duration>,
    processes: Vec<Process>,
    processes_made: ProcessId,
    /// The steps that may happen next, in no order.
    steps: Vec<Step>,
    /// The steps that may happen only when their time has come.
    held: Vec<(Duration, Step)>,
    sent: Vec<Sent>,
    due: Vec<ProcessId>,
    /// The model's clock.
    passed: Duration,
    is_healing: bool,
    /// True while a person changes the store with other tools.
    is_by_hand: bool,
    spool_left: usize,
    /// The revision of each key that each process has seen last, where that is judged.
    seen: Option<Seen>,
    /// The revision up to which each ADD's node had seen the store before it was emptied, where that is judged.
    known: HashMap<ProcessId, i64>,
    /// The revision at which the store was emptied last.
    emptied: Option<i64>,
    /// The store as it was when a snapshot of it was taken.
    snapshot: Option<(Model, Tree)>,
    /// DELs that have begun in a store that their nodes know otherwise.
    doubting: HashSet<ProcessId>,
    /// The other etcd that the last endpoint leads to, where there is one.
    wrong: Option<Model>,
    /// The end of the time in which no other endpoint answers.
    silent_until: Option<Duration>,
    /// The machines that have come from elsewhere.
    strangers: HashSet<String>,
    /// Processes that were told that there is no space.
    without_space: HashSet<ProcessId>,
    /// The time at which a container left each hold for a pod last.
    left_at: HashMap<Owner, Duration>,
    /// The number of commits that each ADD has lost, where that is judged.
    lost: HashMap<ProcessId, u32>,
    result: Played,
}

impl<'a> World<'a> {
    fn new(setup: Setup<'a>) -> Self {
        let chance = Chance::new(setup.seed);
        let plan = Plan::new(setup.theme, setup.operations, &chance);
        let wire = Rc::new(Wire::default());
        let shared = Shared {
            keys: Keys::new("/m/"),
            cluster: checked(CLUSTER),
            wire: wire.clone(),
            endpoints: plan.endpoints,
            start: Instant::now(),
            suspended: Cell::default(),
            ticks: Cell::default(),
        };
        let nodes = cluster::nodes(&setup, &plan);
        let model = Model::new().with_leases(plan.leases);
        let truth = Truth::new(plan.fenced());
        let pods = (0..plan.pods).map(|_| PodSlot::default()).collect();
        Self {
            setup,
            plan,
            chance,
            shared: Rc::new(shared),
            wire,
            ready: Arc::default(),
            model,
            tree: Tree::new(),
            truth,
            changes: Changes::default(),
            watched: 1,
            watches: Vec::new(),
            crowd: Crowd::default(),
            deaths: Deaths::default(),
            nodes,
            image: None,
            pods,
            pods_made: 0,
            hold_until: None,
            newer_until: None,
            full_until: None,
            long_leases_until: None,
            processes: Vec::new(),
            processes_made: 0,
            steps: Vec::new(),
            held: Vec::new(),
            sent: Vec::new(),
            due: Vec::new(),
            passed: Duration::ZERO,
            is_healing: false,
            is_by_hand: false,
            spool_left: 0,
            seen: None,
            known: HashMap::new(),
            emptied: None,
            snapshot: None,
            doubting: HashSet::new(),
            wrong: None,
            silent_until: None,
            strangers: HashSet::new(),
            without_space: HashSet::new(),
            left_at: HashMap::new(),
            lost: HashMap::new(),
            result: Played::default(),
        }
    }

    /// All of it: operations with faults, then the healing.
    async fn live(&mut self) -> Result<(), String> {
        let theme = self.setup.theme;
        self.note(|| format!("begins: {theme:?}"));
        if self.plan.events.hand > 0 || self.setup.target.is_some() || self.chance.one_in(8) {
            self.seen = Some(Seen::default());
        }
        if self.plan.theme == Theme::Endpoints {
            self.begin_wrong();
        }
        if self.plan.full_pages {
            self.fill_pages()?;
        }
        self.open_pools()?;
        let mut turns_left = TURNS;
        while self.result.operations < self.plan.operations || !self.is_quiet() {
            turns_left -= 1;
            if turns_left == 0 {
                let left: Vec<_> = self.processes.iter().map(|process| process.work.name()).collect();
                return Err(format!("nothing goes on any more: {left:?}"));
            }
            self.turn().await?;
        }
        if theme == Theme::Dead {
            self.die_in_queues().await?;
        }
        self.heal().await?;
        self.has_wasted_little()
    }

    fn now(&self) -> Duration {
        self.shared.now()
    }

    fn count(&mut self, fault: &'static str) {
        *self.result.faults.entry(fault).or_default() += 1;
    }

    /// Writes an event to the trace, if there is one.
    fn note(&mut self, what: impl FnOnce() -> String) {
        if self.setup.traced {
            let line = format!("{:>12.6} {}", self.now().as_secs_f64(), what());
            if self.result.trace.len() >= TRACE_LINES {
                self.result.trace.drain(..TRACE_LINES / 4);
            }
            self.result.trace.push(line);
        }
    }

    fn played(mut self, violation: Option<String>) -> Played {
        let mut played = std::mem::take(&mut self.result);
        played.digest = self.model.digest() ^ played.operations.rotate_left(32) ^ played.transactions;
        played.violation = violation;
        played
    }
}

impl fmt::Debug for World<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("setup", &self.setup).finish_non_exhaustive()
    }
}
