//! The soak: callers, faults, and the promises that must hold. hack/soak and tests/alone/soak_minute.rs run it.

mod caller;
mod ledger;
mod nemesis;
mod processes;
mod report;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use etcd_client::GetOptions;
use serde_json::{Value, json};

use caller::Caller;
use ledger::Ledger;
use nemesis::Nemesis;
use processes::Processes;
pub(crate) use report::Report;
use support::chaos_proxies::{GrpcProxy, TcpProxy, next_random};
use support::{Cluster, Node, Run, Trio, in_parallel, network_as};

/// Enough to keep two cores busy while some wait.
pub(crate) const CALLERS: u64 = 24;
/// The age at which GC frees an owner: longer than a process is ever stopped.
const GC_GRACE_S: u64 = 20;
const DRAIN_MAX: Duration = Duration::from_secs(60);
/// The beginning of IPv4 addresses' names in keys.
const IPV4: &str = "00000000000000000000ffff";

/// The options of a soak.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// For how long callers start something new.
    pub(crate) lasts: Duration,
    pub(crate) seed: u64,
    pub(crate) callers: u64,
}

/// The parts that all callers share.
pub(crate) struct Soak {
    cluster: Cluster,
    nodes: Vec<Node>,
    networks: Vec<Network>,
    ledger: Mutex<Ledger>,
    processes: Processes,
    report: Mutex<Report>,
    is_over: AtomicBool,
}

/// A network, with the configuration that a caller hands to the plugin.
struct Network {
    name: &'static str,
    config: Value,
}

/// The proxies that some nodes are behind.
struct Proxies {
    grpc: Vec<GrpcProxy>,
    tcp: Vec<TcpProxy>,
}

/// A seed that nobody has chosen.
pub(crate) fn random_seed() -> u64 {
    getrandom::u64().expect("the kernel has random numbers")
}

pub(crate) fn run(plan: Plan) -> Report {
    let trio = Trio::start();
    let proxies = Proxies {
        grpc: trio.endpoints().iter().map(|endpoint| GrpcProxy::before(endpoint)).collect(),
        tcp: trio.endpoints().iter().map(|endpoint| TcpProxy::before(endpoint)).collect(),
    };
    let soak = Soak::new(&trio, &proxies, plan);
    let mut nemesis = Nemesis::new(&soak, trio, proxies, plan.seed);
    thread::scope(|scope| {
        for index in 0..plan.callers {
            let mut seed = plan.seed ^ index.wrapping_mul(0x0123_4567_89ab_cdef);
            let mut caller = Caller::new(&soak, index, next_random(&mut seed));
            thread::Builder::new()
                .name(format!("caller{index}"))
                .spawn_scoped(scope, move || caller.work())
                .expect("a thread starts");
        }
        // A panic here must not leave the callers at work forever.
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| nemesis.work(plan.lasts)));
        soak.is_over.store(true, Ordering::Relaxed);
        if let Err(panic) = ended {
            std::panic::resume_unwind(panic);
        }
    });
    soak.end();
    // The servers must live until here.
    drop(nemesis);
    soak.report.into_inner().expect("nobody panics with it")
}

impl Soak {
    fn new(trio: &Trio, proxies: &Proxies, plan: Plan) -> Self {
        let cluster = Cluster::on_trio(trio);
        let usual = json!({"gc_grace_s": GC_GRACE_S});
        let behind =
            |endpoints: Vec<String>| json!({"gc_grace_s": GC_GRACE_S, "etcd": {"endpoints": endpoints}});
        let mut nodes: Vec<Node> =
            (0..4).map(|index| cluster.node_with(&format!("n{index}"), usual.clone())).collect();
        nodes.push(cluster.node_with("grpc", behind(proxies.grpc.iter().map(GrpcProxy::endpoint).collect())));
        nodes.push(cluster.node_with("tcp", behind(proxies.tcp.iter().map(TcpProxy::endpoint).collect())));
        // Small, so that an address that is freed is soon given again.
        let networks = vec![
            Network::new("lowest", json!({"range": "10.80.0.0/26", "order": "lowest"})),
            Network::new("next", json!({"range": "10.81.0.0/26", "order": "next"})),
            Network::new("both", json!({"ipRanges": [{"range": "10.82.0.0/26"}, {"range": "fd82::/122"}]})),
        ];
        Self {
            cluster,
            nodes,
            networks,
            ledger: Mutex::new(Ledger::new()),
            processes: Processes::default(),
            report: Mutex::new(Report::new(plan.seed)),
            is_over: AtomicBool::new(false),
        }
    }

    /// True if callers wind down: the time is over, or something is wrong already.
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed) || !self.report().is_sound()
    }

    fn report(&self) -> std::sync::MutexGuard<'_, Report> {
        self.report.lock().expect("nobody panics with it")
    }

    fn ledger(&self) -> std::sync::MutexGuard<'_, Ledger> {
        self.ledger.lock().expect("nobody panics with it")
    }

    fn violated(&self, what: impl Into<Option<String>>) {
        if let Some(what) = what.into() {
            self.report().violations.push(what);
        }
    }

    /// The number of IPv4 addresses that etcd holds in a network now; none if no member answers.
    fn held_in(&self, network: &str) -> Option<usize> {
        let store = self.cluster.store();
        let prefix = store.key(&format!("v1/net/{network}/ip/{IPV4}"));
        let options = GetOptions::new().with_prefix().with_count_only();
        let counted = store.try_run(async |client| client.get(prefix, Some(options)).await);
        counted.ok().map(|answer| answer.count() as usize)
    }

    /// Looks for what is left when all faults are over and every caller has deleted what it had.
    fn end(&self) {
        let spooled = in_parallel(2, 0..self.nodes.len(), |node| self.drain(node));
        spooled.into_iter().for_each(|left| self.violated(left));
        let check = self.cluster.check();
        if !check.succeeded() {
            self.violated(format!("metes check: {check}"));
        }
        let mut left = self.cluster.store().keys("v1/");
        left.retain(|key| key.contains("/ip/") || key.starts_with("v1/owner/") || key.starts_with("v1/pod/"));
        if !left.is_empty() {
            self.violated(format!("left behind: {left:?}"));
        }
        let ledger = self.ledger();
        let overlaps = ledger.overlaps();
        let mut report = self.report();
        report.intervals = ledger.count();
        report.overlaps = ledger.doubles() + overlaps.len();
        report.violations.extend(overlaps.into_iter().chain(ledger.open()));
    }

    /// Lets runs of the node carry out its spool; says what is left after a minute.
    fn drain(&self, node: usize) -> Option<String> {
        let start = Instant::now();
        let mut turn = 0;
        loop {
            let mut spooled = self.nodes[node].spooled();
            spooled.retain(|path| path.extension().is_some_and(|ext| ext == "del"));
            if spooled.is_empty() {
                return None;
            }
            if start.elapsed() > DRAIN_MAX {
                return Some(format!("never carried out: {spooled:?}"));
            }
            turn += 1;
            let container = format!("drain{node}-{turn}");
            for verb in ["ADD", "DEL"] {
                self.attachment(verb, &container, node, 0).run();
            }
        }
    }

    fn attachment(&self, verb: &str, container: &str, node: usize, network: usize) -> Run {
        self.nodes[node]
            .plugin(verb)
            .container(container)
            .ifname("eth0")
            .netns(format!("/run/netns/made-up-{container}"))
            .config(&self.networks[network].config)
    }
}

impl Network {
    fn new(name: &'static str, mut ipam: Value) -> Self {
        ipam["network_name"] = json!(name);
        Self { name, config: network_as("1.1.0", name, ipam) }
    }
}
