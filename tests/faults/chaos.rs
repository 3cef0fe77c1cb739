//! Requests to a real etcd that are refused, lost, late or doubled on their way, and connections that break or fall
//! silent: every run ends knowing the truth.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use etcd_client::{AlarmAction, AlarmOptions, AlarmType};
use metes_core::limits;
use metes_core::txn::{Op, Txn};
use metes_engine::kv::{Failure, Kv};
use metes_etcd::client as store;
use serde_json::{Value, json};
use support::chaos_proxies::{Call, Gate, GrpcProxy, GrpcRule, Kind, Loss, TcpFault, TcpProxy, Verdict};
use support::{
    Cluster, Etcd, Node, Outcome, Run, Tls, failing_metes, in_parallel, network, network_as, report, wait_for,
};
use tonic::Code;

/// A node whose requests go through a proxy.
fn node_behind(cluster: &Cluster, name: &str, endpoint: &str) -> Node {
    cluster.node_with(name, json!({"gc_grace_s": 0, "etcd": {"endpoints": [endpoint]}}))
}

/// The addresses of each container of a node, by the store.
fn held(cluster: &Cluster) -> BTreeMap<String, String> {
    let records = cluster.store().entries("v1/owner/");
    let addresses = |record: &[u8]| -> Vec<String> {
        let record: Value = serde_json::from_slice(record).expect("an owner record is JSON");
        let held = record["addresses"].as_array().expect("an owner holds addresses").clone();
        held.iter().map(|one| one["ip"].as_str().expect("an address").to_owned()).collect()
    };
    let container =
        |key: &str| key.split('/').nth(4).expect("v1/owner/cluster/node/container/ifname").to_owned();
    records.iter().map(|(key, record)| (container(key), addresses(record).join(","))).collect()
}

/// The answer of an ADD agrees with the store.
fn tells_the_truth(container: &str, outcome: &Outcome, held: &BTreeMap<String, String>) -> Option<String> {
    let stored = held.get(container);
    match outcome.succeeded() {
        true if stored == Some(&outcome.address()) => None,
        false if stored.is_none() && outcome.error_code() == Some(11) => None,
        _ => Some(format!("{container}: the store holds {stored:?}, but {outcome}")),
    }
}

/// On a busy machine, 3 s may be too short for a DEL. Then it is spooled, and a later run of its node does it.
fn wait_until_freed(cluster: &Cluster, node: &Node, config: &Value) {
    wait_for("all to be freed", PATIENCE, || match held(cluster) {
        none if none.is_empty() => Ok(()),
        held => {
            node.del("another").config(config).run().silent();
            Err(format!("{held:?}"))
        }
    });
}

fn assert_nothing_spooled(nodes: &[Node]) {
    let spooled: Vec<PathBuf> = nodes.iter().flat_map(Node::spooled_dels).collect();
    assert!(spooled.is_empty(), "left to later runs: {spooled:?}");
}

/// The connection breaks when an answer is lost; every 16th answer is lost in silence.
fn lose_answers(proxy: &GrpcProxy, kind: Kind) {
    proxy.rule(GrpcRule::of(kind).every(16).lose(Loss::Silence)).rule(GrpcRule::of(kind).lose(Loss::Reset));
}

/// On a busy machine, an ADD may lack the time to settle its commit. Then it says code 11, and a runtime asks again.
fn add_until_served(add: &Run) -> Outcome {
    const TRIES: usize = 4;
    let mut outcomes = (0..TRIES).map(|_| add.clone().run()).skip_while(|one| one.error_code() == Some(11));
    outcomes.next().unwrap_or_else(|| panic!("no time to settle in {TRIES} tries"))
}

/// On a busy machine, 20 seconds may be too short for a GC. The next one goes on.
fn gc_until_all_is_freed(node: &Node, config: &Value) {
    wait_for("a GC that frees all", PATIENCE * 4, || {
        let outcome = node.gc().config(config).run();
        if outcome.succeeded() || outcome.error_code() != Some(11) {
            outcome.silent();
            return Ok(());
        }
        Err(outcome.to_string())
    });
}

/// The owner records that were written or deleted by requests whose answer was lost. The head of a queue commits for
/// runs behind it, which then send no commit of their own.
fn done(proxy: &GrpcProxy, kind: Kind) -> usize {
    let struck = proxy.struck();
    let done = struck.iter().filter(|one| one.call.kind == kind && one.verdicts == [Verdict::Done]);
    done.flat_map(|one| &one.call.written).filter(|key| key.contains("/v1/owner/")).count()
}

#[test]
fn a_thousand_commits_whose_answer_is_lost() {
    const COMMITS: usize = 1000;
    const DELS: usize = 250;
    const NODES: usize = 8;
    /// More of them would only wait longer for a processor, of the 20 seconds that each ADD has.
    const WORKERS: usize = 12;
    let etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let proxy = GrpcProxy::before(&etcd.endpoint());
    let nodes: Vec<Node> =
        (0..NODES).map(|index| node_behind(&cluster, &format!("n{index}"), &proxy.endpoint())).collect();
    let configs: Vec<Value> = (0..NODES)
        .map(|index| {
            let range = format!("10.70.{}.0/22", 4 * (index % 4));
            network_as("1.1.0", "net", json!({"range": range, "network_name": format!("net{index}")}))
        })
        .collect();

    lose_answers(&proxy, Kind::Commit);
    let outcomes = in_parallel(WORKERS, 0..COMMITS, |index| {
        add_until_served(&nodes[index % NODES].add(&format!("c{index}")).config(&configs[index % NODES]))
    });
    let held_now = held(&cluster);
    report(
        outcomes.iter().enumerate().map(|(i, outcome)| tells_the_truth(&format!("c{i}"), outcome, &held_now)),
    );
    report(outcomes.iter().map(|outcome| (!outcome.succeeded()).then(|| outcome.to_string())));
    assert!(done(&proxy, Kind::Commit) >= COMMITS, "{} commits were applied", done(&proxy, Kind::Commit));
    assert_nothing_spooled(&nodes);
    cluster.assert_clean();

    proxy.clear();
    lose_answers(&proxy, Kind::Free);
    let deleted = in_parallel(8, 0..DELS, |index| {
        nodes[index % NODES].del(&format!("c{index}")).config(&configs[index % NODES]).run()
    });
    deleted.iter().for_each(Outcome::silent);
    assert!(done(&proxy, Kind::Free) >= DELS, "{} frees were applied", done(&proxy, Kind::Free));
    let held_now = held(&cluster);
    report(
        (0..DELS)
            .map(|i| held_now.get(&format!("c{i}")).map(|address| format!("c{i} still holds {address}"))),
    );
    assert_eq!(held_now.len(), COMMITS - DELS);
    assert_nothing_spooled(&nodes);
    cluster.assert_whole();

    // One GC that waits for missing answers has no time to free all that is left.
    proxy.clear().rule(GrpcRule::of(Kind::Free).lose(Loss::Reset));
    let before = done(&proxy, Kind::Free);
    in_parallel(2, nodes.iter().zip(&configs), |(node, config)| {
        let mut config = config.clone();
        config["cni.dev/valid-attachments"] = json!([]);
        gc_until_all_is_freed(node, &config);
    });
    assert!(done(&proxy, Kind::Free) >= before + COMMITS - DELS);
    cluster.assert_nothing_held();
    assert_nothing_spooled(&nodes);
    cluster.assert_whole();
}

/// The time that a network is bad.
const FAULT_LASTS: Duration = Duration::from_secs(1);
/// A run that lost one request, or a second of its network, has answered by then.
const ANSWERED_MAX: Duration = Duration::from_secs(12);
/// The next run is served by then, past what a dead one has left in the queue.
const SERVED_MAX: Duration = Duration::from_secs(8);
/// The longest time that the test itself waits for something.
const PATIENCE: Duration = Duration::from_secs(30);
/// A blocker's ticket in the queue; no run chooses this lease's id.
const BLOCKER: &str = "0000000000000001";

/// A prefix, a proxy and a node behind it; each case has its own.
struct Ground {
    cluster: Cluster,
    proxy: GrpcProxy,
    /// Behind the proxy.
    node: Node,
    /// Straight at etcd.
    other: Node,
    config: Value,
}

impl Ground {
    fn new(etcd: &Etcd) -> Self {
        Self::behind(etcd, GrpcProxy::endpoint)
    }

    /// With a node whose endpoint is made from the proxy.
    fn behind(etcd: &Etcd, endpoint: impl FnOnce(&GrpcProxy) -> String) -> Self {
        let cluster = Cluster::on(etcd);
        let proxy = GrpcProxy::before(&etcd.endpoint());
        let node = node_behind(&cluster, "n1", &endpoint(&proxy));
        let other = cluster.node("n2");
        let config = network(json!({"range": "10.71.0.0/24"}));
        // The first commit into a prefix is another one than those that follow.
        other.add("first").config(&config).run().address();
        Self { cluster, proxy, node, other, config }
    }

    fn add(&self, container: &str) -> Run {
        self.node.add(container).config(&self.config)
    }

    /// A DEL that looks.
    fn del(&self, container: &str) -> Run {
        self.node.forget_owners();
        self.hinted_del(container)
    }

    /// A DEL by the hints of its ADD, if there are any.
    fn hinted_del(&self, container: &str) -> Run {
        self.node.del(container).config(&self.config)
    }

    fn record(&self) -> Option<Vec<u8>> {
        self.cluster.store().get("v1/owner/test/n1/c/eth0")
    }

    /// Puts a ticket at the head of the queue, which stays until it is removed.
    fn block(&self) {
        let scope = self.cluster.store().queue_of("v1/owner/test/n2/first/eth0");
        self.cluster.store().put_leased(&format!("v1/ticket/{scope}/{BLOCKER}"), "{}", 60);
        self.cluster.store().put_leased(&format!("v1/tail/{scope}"), BLOCKER, 60);
    }

    fn unblock(&self) {
        let blockers =
            self.cluster.store().keys("v1/ticket/").into_iter().filter(|key| key.ends_with(BLOCKER));
        blockers.for_each(|key| self.cluster.store().delete(&key));
    }

    /// Keeps a ticket before the run until a rule has struck, or until the run waits if no rule is about waiting.
    fn run_in_queue(&self, run: Run, awaited: Kind) -> Outcome {
        self.block();
        let running = run.spawn();
        wait_for("the run to come to its queue", PATIENCE, || {
            let has_struck = !self.proxy.struck().is_empty();
            let waits = awaited != Kind::Watch && self.cluster.store().keys("v1/ticket/").len() == 2;
            if has_struck || waits { Ok(()) } else { Err(format!("{awaited:?}: not struck")) }
        });
        self.unblock();
        running.wait()
    }

    /// A DEL that a fault has cost most of its three seconds may leave it to the next run of its node.
    fn assert_freed_or_spooled(&self) {
        if self.record().is_some() {
            assert!(!self.node.spooled_dels().is_empty(), "neither freed nor spooled");
            self.add("another").run().address();
            self.del("another").run().silent();
        }
        assert!(self.record().is_none(), "it is still held");
    }

    /// The next run is served, everything can be given back, no invariant is broken, and nothing is left.
    fn assert_sound(&self) {
        self.assert_sound_by(Cluster::assert_clean);
    }

    /// The same after a DEL that was short of time or without space, or a run that left a queue while the head was
    /// about to serve it. Both leave stray bits.
    fn assert_sound_but_for_bits(&self) {
        self.assert_sound_by(Cluster::assert_whole);
    }

    fn assert_sound_by(&self, audit: impl Fn(&Cluster)) {
        self.proxy.clear();
        let next = self.other.add("next").config(&self.config).run();
        next.address();
        assert!(next.elapsed < SERVED_MAX, "served too late: {next}");
        audit(&self.cluster);
        self.del("c").run().silent();
        for container in ["first", "next"] {
            self.other.del(container).config(&self.config).run().silent();
        }
        // A ticket that was taken late stays until its lease ends, and DELs behind it are short of time.
        let mut left = self.cluster.store().keys("v1/");
        left.retain(|key| key.contains("/ip/") || key.starts_with("v1/owner/") || key.starts_with("v1/pod/"));
        assert!(left.is_empty(), "left behind: {left:?}");
        assert_nothing_spooled(&[self.node.clone(), self.other.clone()]);
        self.cluster.assert_whole();
    }
}

/// Every case that panics, by its name.
fn cases<C: Send + std::fmt::Debug>(workers: usize, cases: Vec<C>, run: impl Fn(&C) + Sync) {
    let failures = in_parallel(workers, cases, |case| {
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(&case)));
        ended.err().map(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            format!("{case:?}: {}", text.unwrap_or_else(|| "panicked".to_owned()))
        })
    });
    report(failures);
}

/// A rule about commits must not strike requests that only read the same keys.
#[test]
fn requests_are_told_apart_by_what_they_write() {
    let ground = Ground::new(Etcd::shared());
    let kinds = [Kind::Grant, Kind::Look, Kind::Commit, Kind::Free, Kind::Bury];
    let seen = || kinds.map(|kind| ground.proxy.count(kind));
    ground.add("c").run().address();
    // A node that knows no store asks first which one this is.
    assert_eq!(seen(), [1, 2, 1, 0, 0]);
    ground.del("c").run().silent();
    assert_eq!(seen(), [2, 4, 1, 1, 0]);
    ground.del("c").run().silent();
    // Its one look also shows the addresses that the node held under former names.
    assert_eq!(seen(), [2, 5, 1, 1, 1]);
    let others = [Kind::Revoke, Kind::Watch, Kind::Ticket, Kind::Leave, Kind::Other];
    // The second DEL asks how long the lease will live that the first one has left.
    assert_eq!(others.map(|kind| ground.proxy.count(kind)), [0, 0, 0, 0, 1]);
    ground.assert_sound();
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    Refused,
    LostByReset,
    LostInSilence,
    /// For longer than a client waits for it.
    Delayed,
    /// Until the run has ended.
    Late,
    Doubled,
    Stalled,
}

impl Fault {
    const ALL: [Self; 7] = [
        Self::Refused,
        Self::LostByReset,
        Self::LostInSilence,
        Self::Delayed,
        Self::Late,
        Self::Doubled,
        Self::Stalled,
    ];

    fn befall(self, rule: GrpcRule, gate: &Gate) -> GrpcRule {
        match self {
            Self::Refused => rule.refuse(Code::Unavailable, "put in by a test"),
            Self::LostByReset => rule.lose(Loss::Reset),
            Self::LostInSilence => rule.lose(Loss::Silence),
            Self::Delayed => rule.delay(Duration::from_secs(2)),
            Self::Late => rule.hold(gate),
            Self::Doubled => rule.twice(),
            Self::Stalled => rule.stall(),
        }
    }
}

/// The moment of a run at which a fault strikes.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// An ADD where nobody queues.
    Add(Kind),
    /// An ADD that settles a commit whose answer was lost.
    Settle(Kind),
    AddInQueue(Kind),
    SettleInQueue(Kind),
    Del(Kind),
    /// A DEL by the hints of its ADD.
    HintedDel(Kind),
    DelInQueue(Kind),
    /// A DEL that finds nothing.
    DelOfNothing(Kind),
}

impl Moment {
    const ALL: [Self; 18] = [
        Self::Add(Kind::Grant),
        Self::Add(Kind::Look),
        Self::Add(Kind::Commit),
        Self::Settle(Kind::Revoke),
        Self::Settle(Kind::Look),
        Self::AddInQueue(Kind::Ticket),
        Self::AddInQueue(Kind::Watch),
        Self::AddInQueue(Kind::Commit),
        Self::SettleInQueue(Kind::Leave),
        Self::Del(Kind::Grant),
        Self::Del(Kind::Look),
        Self::Del(Kind::Free),
        Self::HintedDel(Kind::Other),
        Self::HintedDel(Kind::Free),
        Self::DelInQueue(Kind::Ticket),
        Self::DelInQueue(Kind::Watch),
        Self::DelInQueue(Kind::Free),
        Self::DelOfNothing(Kind::Bury),
    ];

    fn kind(self) -> Kind {
        match self {
            Self::Add(kind)
            | Self::Settle(kind)
            | Self::AddInQueue(kind)
            | Self::SettleInQueue(kind)
            | Self::Del(kind)
            | Self::HintedDel(kind)
            | Self::DelInQueue(kind)
            | Self::DelOfNothing(kind) => kind,
        }
    }
}

#[test]
fn each_request_meets_each_fault() {
    let etcd = Etcd::start();
    let all = Moment::ALL.iter().flat_map(|&moment| Fault::ALL.map(|fault| (moment, fault))).collect();
    cases(12, all, |&(moment, fault)| one_fault(&etcd, moment, fault));
}

fn one_fault(etcd: &Etcd, moment: Moment, fault: Fault) {
    let ground = Ground::new(etcd);
    if matches!(moment, Moment::Del(_) | Moment::HintedDel(_) | Moment::DelInQueue(_)) {
        ground.add("c").run().address();
    }
    if matches!(moment, Moment::HintedDel(_)) {
        // The lease of its tombstone is that of a DEL before.
        ground.add("earlier").run().address();
        ground.hinted_del("earlier").run().silent();
    }
    let gate = Gate::shut();
    let is_armed = Arc::new(AtomicBool::new(true));
    if matches!(moment, Moment::Settle(_) | Moment::SettleInQueue(_)) {
        is_armed.store(false, Ordering::Relaxed);
        let arm = Arc::clone(&is_armed);
        let commit = GrpcRule::of(Kind::Commit).when(move |_| !arm.swap(true, Ordering::Relaxed));
        ground.proxy.rule(commit.lose(Loss::Reset));
    }
    let rule = GrpcRule::of(moment.kind()).when(move |_| is_armed.load(Ordering::Relaxed)).nth(1);
    ground.proxy.rule(fault.befall(rule, &gate));
    let outcome = match moment {
        Moment::Add(_) | Moment::Settle(_) => ground.add("c").run(),
        Moment::AddInQueue(kind) | Moment::SettleInQueue(kind) => ground.run_in_queue(ground.add("c"), kind),
        Moment::Del(_) | Moment::DelOfNothing(_) => ground.del("c").run(),
        Moment::HintedDel(_) => ground.hinted_del("c").run(),
        Moment::DelInQueue(kind) => ground.run_in_queue(ground.del("c"), kind),
    };
    assert!(outcome.elapsed < ANSWERED_MAX, "answered too late: {outcome}");
    let struck = ground.proxy.struck();
    assert!(struck.iter().any(|one| one.call.kind == moment.kind()), "not struck: {struck:?}");
    match moment {
        Moment::Add(_) | Moment::Settle(_) | Moment::AddInQueue(_) | Moment::SettleInQueue(_) => {
            let address = outcome.address();
            assert_eq!(held(&ground.cluster).get("c"), Some(&address), "{outcome}");
        }
        Moment::Del(_) | Moment::HintedDel(_) | Moment::DelInQueue(_) | Moment::DelOfNothing(_) => {
            outcome.silent();
            ground.assert_freed_or_spooled();
        }
    }
    let before = ground.record();
    gate.open();
    if !matches!(moment.kind(), Kind::Watch) {
        assert_late_ones_do_nothing(&ground.proxy, moment.kind(), fault);
    }
    assert_eq!(ground.record(), before, "a late request changed something");
    match moment {
        Moment::Add(_) | Moment::Settle(_) | Moment::DelOfNothing(_) => ground.assert_sound(),
        _ => ground.assert_sound_but_for_bits(),
    }
}

/// A request that arrives after its run has ended, or twice, does nothing.
fn assert_late_ones_do_nothing(proxy: &GrpcProxy, kind: Kind, fault: Fault) {
    let writes_once = matches!(kind, Kind::Commit | Kind::Free | Kind::Bury | Kind::Ticket);
    let judged =
        || proxy.struck().into_iter().rfind(|one| one.call.kind == kind).expect("it was struck").verdicts;
    let verdicts = wait_for("etcd to judge what came late", PATIENCE, || match (fault, judged()) {
        (Fault::Doubled, verdicts) if verdicts.len() < 2 => Err(format!("{verdicts:?}")),
        (Fault::Late, verdicts) if verdicts.is_empty() => Err("nothing".to_owned()),
        (_, verdicts) => Ok(verdicts),
    });
    // A ticket that comes again when its run has left serves nobody, and ends with its lease.
    let may_come_late = kind == Kind::Ticket && matches!(fault, Fault::Late);
    match fault {
        Fault::Late if writes_once && !may_come_late => {
            assert_ne!(verdicts, [Verdict::Done], "it came too late")
        }
        Fault::Doubled if writes_once => assert_ne!(verdicts[1], Verdict::Done, "it was done twice"),
        _ => {}
    }
}

/// The event between the death of an ADD and its commit's arrival.
#[derive(Clone, Copy, Debug)]
enum Meanwhile {
    /// Its lease ends by itself.
    Expiry,
    /// Its lease is ended.
    Revocation,
    /// Its container is deleted.
    Deletion,
    /// Its pod gets another sandbox.
    Replacement,
}

#[test]
fn a_commit_that_comes_after_all_is_over_is_refused() {
    let etcd = Etcd::start();
    let all = [Meanwhile::Expiry, Meanwhile::Revocation, Meanwhile::Deletion, Meanwhile::Replacement]
        .into_iter()
        .flat_map(|meanwhile| [(meanwhile, false), (meanwhile, true)])
        .collect();
    cases(8, all, |&(meanwhile, in_queue)| late_commit(&etcd, meanwhile, in_queue));
}

fn late_commit(etcd: &Etcd, meanwhile: Meanwhile, in_queue: bool) {
    // This ends all leases, so the test needs an etcd of its own.
    let alone = matches!(meanwhile, Meanwhile::Revocation).then(Etcd::start);
    let ground = Ground::new(alone.as_ref().unwrap_or(etcd));
    let pod = |run: Run| run.pod("ns", "web-0", "uid-1");
    let gate = Gate::shut();
    let commit = GrpcRule::of(Kind::Commit).nth(1);
    // Its lease is as short as can be, and was granted before.
    let expired = Duration::from_secs(8);
    let short = |run: Run| run.program(failing_metes()).env("METES_FAIL", "").env("METES_FAIL_LEASE", "2");
    ground.proxy.rule(match meanwhile {
        Meanwhile::Expiry => commit.delay(expired),
        _ => commit.hold(&gate),
    });
    if in_queue {
        ground.block();
    }
    let add = pod(ground.add("c"));
    let mut add = if matches!(meanwhile, Meanwhile::Expiry) { short(add) } else { add }.spawn();
    if in_queue {
        wait_for("a ticket in the queue", PATIENCE, || {
            match ground.cluster.store().keys("v1/ticket/").len() {
                2 => Ok(()),
                other => Err(format!("{other} tickets")),
            }
        });
        ground.unblock();
    }
    ground.proxy.wait_struck(1);
    add.kill();
    add.wait();
    match meanwhile {
        Meanwhile::Expiry => {}
        Meanwhile::Revocation => ground.cluster.store().run(async |client| {
            for lease in client.leases().await?.leases() {
                client.lease_revoke(lease.id()).await?;
            }
            Ok(())
        }),
        Meanwhile::Deletion => ground.del("c").run().silent(),
        Meanwhile::Replacement => _ = pod(ground.add("d")).run().address(),
    }
    let before = ground.cluster.store().entries("v1/owner/");
    gate.open();
    let verdicts = ground.proxy.wait_judged(1);
    assert_ne!(verdicts, [Verdict::Done], "it was applied");
    assert_eq!(ground.cluster.store().entries("v1/owner/"), before);
    pod(ground.del("d")).run().silent();
    ground.assert_sound_but_for_bits();
}

/// The words of etcd, and their truth: it may have done the work all the same.
#[derive(Clone, Copy, Debug)]
struct Says {
    code: Code,
    text: &'static str,
    is_done: bool,
}

const fn says(code: Code, text: &'static str) -> Says {
    Says { code, text, is_done: false }
}

const fn says_though_done(code: Code, text: &'static str) -> Says {
    Says { code, text, is_done: true }
}

const NO_SPACE: &str = "etcdserver: mvcc: database space exceeded";

/// Refused before it is proposed: sent again at once.
const SENT_AGAIN: [Says; 3] = [
    says(Code::ResourceExhausted, "etcdserver: too many requests"),
    says(Code::InvalidArgument, "etcdserver: revision of auth store is old"),
    says(Code::Unavailable, "etcdserver: no leader"),
];

/// Nobody knows whether it was done.
const OPEN: [Says; 13] = [
    says(Code::Unavailable, "etcdserver: request timed out"),
    says_though_done(Code::Unavailable, "etcdserver: request timed out"),
    says_though_done(
        Code::Unavailable,
        "etcdserver: request timed out, possibly due to previous leader failure",
    ),
    says_though_done(Code::Unavailable, "etcdserver: request timed out, possibly due to connection lost"),
    says(Code::Unavailable, "etcdserver: server stopped"),
    says_though_done(Code::Unavailable, "etcdserver: server stopped"),
    says_though_done(Code::Unavailable, "etcdserver: leader changed"),
    says(Code::Cancelled, "Timeout expired"),
    says_though_done(Code::Cancelled, "Timeout expired"),
    says_though_done(Code::DeadlineExceeded, "context deadline exceeded"),
    says(Code::Unknown, "what nobody has heard of"),
    says_though_done(Code::Unknown, "what nobody has heard of"),
    says_though_done(Code::ResourceExhausted, NO_SPACE),
];

/// Refused for good.
const FINAL: [(Says, u64); 4] = [
    (says(Code::PermissionDenied, "etcdserver: permission denied"), 104),
    (says(Code::Unauthenticated, "etcdserver: invalid auth token"), 104),
    (says(Code::InvalidArgument, "etcdserver: duplicate key given in txn request"), 103),
    (says(Code::ResourceExhausted, NO_SPACE), 103),
];

impl Says {
    fn to(self, rule: GrpcRule) -> GrpcRule {
        if self.is_done { rule.claim(self.code, self.text) } else { rule.refuse(self.code, self.text) }
    }
}

#[test]
fn what_etcd_refuses_before_it_is_proposed_is_sent_again() {
    let etcd = Etcd::start();
    let kinds = [Kind::Grant, Kind::Look, Kind::Commit];
    let all = SENT_AGAIN.iter().flat_map(|&says| kinds.map(|kind| (says, kind))).collect();
    cases(4, all, |&(says, kind)| {
        let ground = Ground::new(&etcd);
        ground.proxy.rule(says.to(GrpcRule::of(kind).nth(1)));
        let outcome = ground.add("c").run();
        assert_eq!(held(&ground.cluster).get("c"), Some(&outcome.address()));
        assert_eq!(ground.proxy.count(Kind::Revoke), 0, "there is nothing to settle");
        ground.proxy.clear().rule(says.to(GrpcRule::of(Kind::Free).nth(1)));
        ground.del("c").run().silent();
        assert_eq!(ground.proxy.count(Kind::Free), 2);
        assert!(ground.record().is_none());
        ground.assert_sound();
    });
}

#[test]
fn a_commit_of_which_nobody_knows_is_settled() {
    let etcd = Etcd::start();
    cases(8, OPEN.to_vec(), |&says| {
        let ground = Ground::new(&etcd);
        ground.proxy.rule(says.to(GrpcRule::of(Kind::Commit).nth(1)));
        let outcome = ground.add("c").run();
        assert_eq!(held(&ground.cluster).get("c"), Some(&outcome.address()));
        assert_ne!(ground.proxy.count(Kind::Revoke), 0, "its lease is ended before it is believed");
        let commits = if says.is_done { 1 } else { 2 };
        assert_eq!(ground.proxy.count(Kind::Commit), commits, "what was done is not done again");
        ground.proxy.clear().rule(says.to(GrpcRule::of(Kind::Free).nth(1)));
        ground.del("c").run().silent();
        assert!(ground.record().is_none());
        ground.assert_sound();
    });
}

#[test]
fn a_commit_that_is_refused_for_good_leaves_nothing() {
    let etcd = Etcd::start();
    cases(4, FINAL.to_vec(), |&(says, code)| {
        let ground = Ground::new(&etcd);
        ground.proxy.rule(says.to(GrpcRule::of(Kind::Commit)));
        ground.add("c").run().error(code);
        assert_eq!(ground.proxy.count(Kind::Commit), 1, "nothing else would come of it");
        assert!(ground.record().is_none());
        assert_nothing_spooled(std::slice::from_ref(&ground.node));
        ground.cluster.assert_clean();
        ground.proxy.clear();
        ground.add("c").run().address();
        ground.assert_sound();
    });
}

/// Out of space, every put is refused; deletes are done.
#[test]
fn a_free_that_etcd_has_no_space_for_is_done_with_deletes() {
    let etcd = Etcd::start();
    cases(2, vec![false, true], |&is_done| {
        let ground = Ground::new(&etcd);
        ground.add("c").run().address();
        let puts = |call: &Call| {
            call.kind == Kind::Bury
                || call.kind == Kind::Free && call.written.iter().any(|key| key.contains("/v1/tombstone/"))
        };
        let rule =
            Says { code: Code::ResourceExhausted, text: NO_SPACE, is_done }.to(GrpcRule::any().when(puts));
        ground.proxy.rule(rule);
        ground.del("c").run().silent();
        assert!(ground.record().is_none());
        assert_eq!(ground.proxy.count(Kind::Free), if is_done { 1 } else { 2 });
        ground.assert_sound_but_for_bits();
    });
}

/// A free that only deletes leaves stray bits. Many ADDs at once find the range full of them, and one of them clears as
/// many as fit into a transaction. Those that are left then are cleared when they are in the way again.
#[test]
fn what_was_freed_without_space_serves_all_that_come_after() {
    const HELD: usize = 62;
    const ADDS: usize = 24;
    let etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let node = cluster.node("n1");
    let config = network(json!({"range": "10.73.0.0/26"}));
    let add = |container: String| node.add(&container).config(&config).run();
    for round in 0..4 {
        let full = in_parallel(8, 0..HELD, |index| add(format!("c{index}-{round}")));
        full.iter().for_each(|outcome| _ = outcome.address());
        add("one-too-many".to_owned()).error(100);
        set_alarm(&cluster, AlarmType::Nospace, AlarmAction::Activate);
        in_parallel(8, 0..HELD, |index| {
            node.del(&format!("c{index}-{round}")).config(&config).run().silent()
        });
        wait_until_freed(&cluster, &node, &config);
        set_alarm(&cluster, AlarmType::Nospace, AlarmAction::Deactivate);
        let served = in_parallel(ADDS, 0..ADDS, |index| add(format!("d{index}-{round}")));
        report(served.iter().map(|outcome| (!outcome.succeeded()).then(|| outcome.to_string())));
        in_parallel(8, 0..ADDS, |index| {
            node.del(&format!("d{index}-{round}")).config(&config).run().silent()
        });
        wait_until_freed(&cluster, &node, &config);
    }
    cluster.assert_whole();
}

/// An ADD that is older than the DEL may still be on its way: only the tombstone keeps it from reserving addresses that
/// nobody gives back.
#[test]
fn a_spooled_del_stays_until_etcd_has_space_for_its_tombstone() {
    let etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let node = cluster.node("n1");
    let config = network(json!({"range": "10.74.0.0/24"}));
    let del = |container: &str| node.del(container).config(&config).run().silent();
    let has_tombstone = || cluster.store().keys("v1/tombstone/").iter().any(|key| key.contains("/c/"));
    node.add("c").config(&config).run().address();
    node.change_host_file(json!({"etcd": {"endpoints": ["http://127.0.0.1:1"]}}));
    del("c");
    node.change_host_file(json!({"etcd": {"endpoints": [etcd.endpoint()]}}));
    let left = node.spooled_dels();
    assert_eq!(left.len(), 1, "{left:?}");

    set_alarm(&cluster, AlarmType::Nospace, AlarmAction::Activate);
    wait_for("another run to carry it out", PATIENCE, || {
        del("another");
        if held(&cluster).is_empty() { Ok(()) } else { Err("it is held".to_owned()) }
    });
    // Each of these DELs lacks a tombstone of its own, and is spooled, too.
    let stays = || left.iter().all(|file| node.spooled_dels().contains(file));
    assert!(stays(), "a run that carried it out has forgotten it");
    del("c");
    assert!(stays(), "the runtime's next DEL has forgotten it");
    assert!(!has_tombstone());

    set_alarm(&cluster, AlarmType::Nospace, AlarmAction::Deactivate);
    wait_for("the tombstone", PATIENCE, || {
        del("another");
        if node.spooled_dels().is_empty() { Ok(()) } else { Err("it is spooled".to_owned()) }
    });
    assert!(has_tombstone());
    cluster.assert_nothing_held();
    cluster.assert_whole();
}

/// Out of space, or with members whose data differ, etcd answers requests that only read.
#[test]
fn an_alarm_under_which_etcd_takes_no_writes_is_told() {
    let etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let node = cluster.node("n1");
    let config = network_as("1.1.0", "net", json!({"range": "10.75.0.0/24"}));
    let status = || node.status().config(&config).run();
    for (alarm, word, remedy) in
        [(AlarmType::Nospace, "NOSPACE", "defragment"), (AlarmType::Corrupt, "CORRUPT", "replace the member")]
    {
        let is_told = |error: &Value| error["details"].as_str().is_some_and(|text| text.contains(remedy));
        // It leaves its node a lease.
        node.add("c").config(&config).run().address();
        status().silent();
        set_alarm(&cluster, alarm, AlarmAction::Activate);
        let error = status().error(50);
        assert!(error["msg"].as_str().is_some_and(|text| text.contains(word)) && is_told(&error), "{error}");
        for node in [&node, &cluster.node(word)] {
            let refused = node.add("refused").config(&config).run();
            assert!(is_told(&refused.error(103)), "{refused}");
            assert!(refused.elapsed < ANSWERED_MAX, "answered too late: {refused}");
            assert!(node.spooled_dels().is_empty(), "nothing was reserved");
        }
        node.del("c").config(&config).run().silent();
        set_alarm(&cluster, alarm, AlarmAction::Deactivate);
        wait_for("the DEL to be done", PATIENCE, || {
            node.del("another").config(&config).run().silent();
            let is_done = held(&cluster).is_empty() && node.spooled_dels().is_empty();
            if is_done { Ok(()) } else { Err(format!("{:?} and {:?}", held(&cluster), node.spooled_dels())) }
        });
    }
    status().silent();
    cluster.assert_whole();
}

fn set_alarm(cluster: &Cluster, alarm: AlarmType, action: AlarmAction) {
    cluster.store().run(async |client| {
        let status = client.status().await?;
        let mut member = AlarmOptions::new();
        member.with_member(status.header().expect("an answer has a header").member_id());
        client.alarm(action, alarm, Some(member)).await
    });
}

/// The moment at which a network turns bad for a run.
#[derive(Clone, Copy, Debug)]
enum Turn {
    /// Before it comes.
    Connection,
    /// While etcd has its commit.
    Request,
    /// While it waits in a queue.
    Watch,
}

#[test]
fn a_network_that_is_bad_for_a_second_fails_no_add() {
    let etcd = Etcd::start();
    let faults = [
        TcpFault::Reset,
        TcpFault::Blackhole,
        TcpFault::HalfOpen,
        TcpFault::Delay(Duration::from_millis(100)),
        TcpFault::Cut(0),
        TcpFault::Cut(400),
    ];
    let turns = [Turn::Connection, Turn::Request, Turn::Watch];
    let all = turns.into_iter().flat_map(|turn| faults.map(|fault| (turn, fault))).collect();
    cases(9, all, |&(turn, fault)| bad_network(&etcd, turn, fault));
}

fn bad_network(etcd: &Etcd, turn: Turn, fault: TcpFault) {
    let mut tcp = None;
    let ground = Ground::behind(etcd, |grpc| tcp.insert(TcpProxy::before(&grpc.endpoint())).endpoint());
    let tcp = tcp.expect("it is asked for the endpoint");
    let be_bad_for_a_second = || {
        tcp.set(fault);
        thread::sleep(FAULT_LASTS);
        tcp.set(TcpFault::Pass);
    };
    let outcome = match turn {
        Turn::Connection => {
            tcp.set(fault);
            let add = ground.add("c").spawn();
            be_bad_for_a_second();
            add.wait()
        }
        Turn::Request => {
            let gate = Gate::shut();
            ground.proxy.rule(GrpcRule::of(Kind::Commit).nth(1).hold(&gate));
            let add = ground.add("c").spawn();
            ground.proxy.wait_struck(1);
            tcp.set(fault);
            gate.open();
            ground.proxy.wait_judged(1);
            be_bad_for_a_second();
            add.wait()
        }
        Turn::Watch => {
            ground.block();
            let add = ground.add("c").spawn();
            wait_for("a watch", PATIENCE, || match ground.proxy.count(Kind::Watch) {
                0 => Err("none".to_owned()),
                _ => Ok(()),
            });
            tcp.set(fault);
            ground.unblock();
            be_bad_for_a_second();
            add.wait()
        }
    };
    assert_eq!(held(&ground.cluster).get("c"), Some(&outcome.address()));
    assert!(outcome.elapsed < ANSWERED_MAX, "answered too late: {outcome}");
    ground.assert_sound();
}

/// One of two endpoints is bad for good, from some time on. A node that knows no store would wait for more than half.
#[test]
fn an_endpoint_that_stays_bad_is_left_for_a_good_one() {
    let etcd = Etcd::start();
    let faults =
        [TcpFault::Reset, TcpFault::Blackhole, TcpFault::HalfOpen, TcpFault::Cut(0), TcpFault::Cut(400)];
    cases(5, faults.to_vec(), |&fault| {
        let cluster = Cluster::on(&etcd);
        let bad = TcpProxy::before(&etcd.endpoint());
        let node = cluster.node_with("n1", json!({"etcd": {"endpoints": [bad.endpoint(), etcd.endpoint()]}}));
        let config = network(json!({"range": "10.72.0.0/24"}));
        node.add("first").config(&config).run().address();
        node.del("first").config(&config).run().silent();
        bad.set(fault);
        for index in 0..4 {
            let container = format!("c{index}");
            let add = node.add(&container).config(&config).run();
            assert_eq!(held(&cluster).get(&container), Some(&add.address()));
            assert!(add.elapsed < ANSWERED_MAX, "answered too late: {add}");
        }
        // The bad endpoint costs each DEL a part of its three seconds: on a busy machine, the rest may be too short.
        in_parallel(4, 0..4, |index| node.del(&format!("c{index}")).config(&config).run().silent());
        wait_until_freed(&cluster, &node, &config);
        cluster.assert_whole();
    });
}

/// A busy member must not let the same client in again and again, and a dead connection must not be used for long. Each
/// connection logs in once.
#[test]
fn a_connection_is_kept_once_after_a_request_without_an_answer() {
    const SECRET: &str = "secret";
    let etcd = Etcd::start_with_cheap_passwords();
    let cluster = Cluster::on(&etcd);
    cluster.store().run(async |client| {
        client.user_add("root", SECRET, None).await?;
        client.user_grant_role("root", "root").await?;
        client.auth_enable().await
    });
    let is_login = |call: &Call| call.path.ends_with("/Authenticate");
    let get = Txn::read(vec![Op::Get(b"/a/key".to_vec())]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    for (stalled, expected_logins) in [(1, 1), (2, 2)] {
        let mut left = stalled;
        let is_to_stall = move |_: &Call| {
            let is_to_stall = left > 0;
            left -= usize::from(is_to_stall);
            is_to_stall
        };
        let proxy = GrpcProxy::before(&etcd.endpoint());
        proxy
            .rule(GrpcRule::any().when(is_login).delay(Duration::ZERO))
            .rule(GrpcRule::of(Kind::Look).when(is_to_stall).stall());
        let kv = store::Etcd::new(store::Access {
            endpoints: vec![proxy.endpoint()],
            tls: None,
            user: Some(("root".to_owned(), SECRET.to_owned())),
            prefix: String::new(),
            patience: ANSWERED_MAX.into(),
        });
        let answer =
            runtime.block_on(async { kv.txn(&get, tokio::time::Instant::now() + ANSWERED_MAX).await });
        answer.expect("the last request has an answer");
        let struck = proxy.struck();
        let (logins, looks): (Vec<_>, Vec<_>) = struck.iter().partition(|struck| is_login(&struck.call));
        assert_eq!((logins.len(), looks.len()), (expected_logins, stalled), "{struck:?}");
    }
    cluster.store().as_user("root", SECRET).run(async |client| client.auth_disable().await);
    cluster.assert_clean();
}

/// Multus and the runtime send two DELs for each network of a pod whose ADD has failed. If each of them asked, an
/// overloaded etcd would have more to do than with the ADD.
#[test]
fn what_follows_an_add_without_an_answer_costs_etcd_next_to_nothing() {
    let etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let proxy = GrpcProxy::before(&etcd.endpoint());
    let node = node_behind(&cluster, "n1", &proxy.endpoint());
    let config = network(json!({"range": "10.73.0.0/24"}));
    cluster.node("another").add("c").config(&config).run().address();
    // It leaves a mark, and a lease for tombstones.
    node.del("none").config(&config).run().silent();
    proxy.rule(GrpcRule::of(Kind::Look).stall());
    node.add("c").config(&config).run().error(11);
    let grants = proxy.count(Kind::Grant);
    assert_eq!(grants, 2, "a lease for the DEL, and one for the ADD");
    proxy.clear();
    let calls = || [Kind::Look, Kind::Bury, Kind::Free, Kind::Other].map(|kind| proxy.count(kind));
    let before = calls();
    for container in ["c", "d", "c", "d"] {
        node.del(container).config(&config).run().silent();
    }
    assert_eq!(calls(), before, "they did not ask");
    assert_eq!(node.spooled_dels().len(), 2, "one for each owner");
    node.add("e").config(&config).run().address();
    assert_eq!(node.spooled_dels().len(), 0, "the ADD has carried them out");
    assert_eq!(proxy.count(Kind::Grant), grants, "the leases of the node have served for all that");
    let holders: Vec<String> = held(&cluster).into_keys().collect();
    assert_eq!(holders, ["c", "e"]);
    cluster.leave_unclean();
}

/// The spool may be unwritable for minutes, and etcd well again a moment later.
#[test]
fn a_del_that_cannot_be_spooled_asks_etcd_though_another_run_got_no_answer() {
    let etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let proxy = GrpcProxy::before(&etcd.endpoint());
    let node = node_behind(&cluster, "n1", &proxy.endpoint());
    let config = network(json!({"range": "10.75.0.0/24"}));
    node.add("c").config(&config).run().address();
    proxy.rule(GrpcRule::of(Kind::Look).stall());
    node.add("d").config(&network(json!({"range": "10.76.0.0/24"}))).run().error(11);
    // A file where the folder should be.
    let mark = node.spooled().into_iter().find(|file| file.ends_with("mark")).expect("the ADD has left it");
    let spool = mark.with_file_name("spool");
    assert!(!spool.exists());
    std::fs::write(&spool, "").expect("a file can be written");
    proxy.clear();
    node.del("c").config(&config).run().silent();
    assert!(held(&cluster).is_empty());
    cluster.leave_unclean();
}

/// Of thousands of runs that try again at once, one would win.
#[test]
fn a_run_that_loses_a_slow_commit_takes_a_ticket() {
    let etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let proxy = GrpcProxy::before(&etcd.endpoint());
    let (near, far) = (cluster.node("near"), node_behind(&cluster, "far", &proxy.endpoint()));
    let config = network(json!({"range": "10.74.0.0/24"}));
    let gate = Gate::shut();
    proxy.rule(GrpcRule::of(Kind::Commit).nth(1).hold(&gate));
    let add = far.add("c").config(&config).spawn();
    proxy.wait_struck(1);
    let until = Instant::now() + 2 * limits::CLEAR_WITHIN;
    near.add("quicker").config(&config).run().address();
    thread::sleep(until.saturating_duration_since(Instant::now()));
    gate.open();
    add.wait().address();
    assert_eq!((proxy.count(Kind::Ticket), held(&cluster).len()), (1, 2));
    cluster.leave_unclean();
}

/// One of two members refuses the certificate, as long as it runs; the other one answers, and then has no leader for a
/// while.
#[test]
fn what_one_member_refuses_says_nothing_of_another_that_has_answered() {
    /// The time that a run tries where nobody lets it in, and the time that the member that does has no leader.
    const GIVE_UP: Duration = Duration::from_secs(2);
    const LEADERLESS: Duration = Duration::from_secs(5);
    /// The refusals that come first: now and then the connection is gone before the words are read.
    const REFUSALS: usize = 6;
    let etcd = Etcd::start();
    let mut strict = Etcd::start_mtls();
    let folder = tempfile::tempdir().expect("a folder can be made");
    let stranger = Tls::create(folder.path());
    let read = |path: PathBuf| std::fs::read(path).expect("a certificate can be read");
    let tls = store::Tls {
        ca: read(strict.tls().expect("it has TLS").ca()),
        identity: Some((read(stranger.client_cert()), read(stranger.client_key()))),
        server_name: None,
    };
    let proxy = GrpcProxy::before(&etcd.endpoint());
    let endpoints = vec![strict.endpoint(), proxy.endpoint()];
    let access = store::Access {
        endpoints,
        tls: Some(tls),
        user: None,
        prefix: String::new(),
        patience: GIVE_UP.into(),
    };
    let alone = store::Access { endpoints: vec![strict.endpoint()], ..access.clone() };
    let kv = store::Etcd::new(access);
    let no_leader = |rule: GrpcRule| rule.refuse(Code::Unavailable, "etcdserver: no leader");
    let get = Txn::read(vec![Op::Get(b"/refusal/key".to_vec())]);
    let put = Txn { then: vec![Op::Put(b"/refusal/key".to_vec(), Vec::new(), None)], ..get.clone() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let send = |txn: &Txn| runtime.block_on(kv.txn(txn, tokio::time::Instant::now() + ANSWERED_MAX));

    // Between two answers of this member it asks the other one.
    let mut left = REFUSALS;
    proxy.rule(no_leader(GrpcRule::any().when(move |_| {
        left = left.saturating_sub(1);
        left > 0
    })));
    send(&get).expect("the other member answers");
    assert_eq!(proxy.struck().len(), REFUSALS - 1);
    strict.kill();

    proxy.clear().rule(GrpcRule::any().nth(1).refuse(Code::Unavailable, "etcdserver: request timed out"));
    let open = send(&put).expect_err("nobody knows whether it was done").to_string();
    assert!(open.contains("timed out") && !open.contains("refused"), "it tells of another member: {open}");

    // This is also true while the other one refuses it again and again.
    for is_there in [false, true] {
        if is_there {
            strict.restart();
        }
        let began = Instant::now();
        proxy.clear().rule(no_leader(GrpcRule::any().when(move |_| began.elapsed() < LEADERLESS)));
        send(&get).expect("it waits for the member that lets it in");
        assert!(began.elapsed() >= LEADERLESS);
    }
    // If it is the only endpoint, the run does not wait.
    let kv = store::Etcd::new(alone);
    let began = Instant::now();
    let refused = runtime.block_on(kv.txn(&get, tokio::time::Instant::now() + ANSWERED_MAX));
    assert!(
        matches!(&refused, Err(Failure::Unreachable(why)) if why.what.contains("certificate")),
        "{refused:?}"
    );
    assert!(began.elapsed() < GIVE_UP + LEADERLESS, "{:?}", began.elapsed());
}
