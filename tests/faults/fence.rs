//! The fence keeps a commit without a ticket from being applied late: the plugin's code runs on a real etcd, and a
//! commit is held back on its way.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use metes::commands::{Run, add, del};
use metes_config::cni::Code;
use metes_core::keys::{Bytes, Key, Keys, LeaseId};
use metes_core::limits;
use metes_core::plan::allot::Allotment;
use metes_core::plan::change::Change;
use metes_core::plan::free::{Free, FreeGuard, Freed};
use metes_core::pool::{Held, Labels, Owner, RunStart, Wanted};
use metes_core::snapshot::Snapshot;
use metes_core::txn::{Op, Reply, Txn};
use metes_engine::kv::{Failure, Kv, LeaseAge};
use metes_engine::release::{self, FreeHints, Left};
use metes_engine::session::Session;
use metes_etcd::client::{Etcd as EtcdStore, EtcdWatch};
use metes_node::node::Identity;
use metes_node::spool::Spooled;
use metes_node::state::NodeState;
use serde_json::json;
use support::{Cluster, Etcd, left_to_etcd, network, plain_store, range_set};
use tokio::time::Instant;

const NODE: &str = "n1";

fn owner(container: &str) -> Owner {
    Owner::named(["-", NODE, container, "net1"]).expect("plain names")
}
/// The longest time of a request of the test itself.
const PATIENCE: Duration = Duration::from_secs(10);

#[test]
fn a_commit_that_arrives_after_its_run_has_ended_changes_nothing() {
    let world = World::new();
    block_on(async {
        world.add(&world.meddling(None), "first", 1).await.expect("an address");
        let kv = world.meddling(Some(Fate::Delayed));
        let ended = world.add(&kv, "late", 2).await;
        assert_eq!(ended.expect_err("whoever called is gone after the commit was sent").code, Code::TryAgain);
        // Nothing that the commit compares has changed meanwhile.
        let late = kv.held_back.take().expect("a commit was held back");
        assert_eq!(kv.send(&late).await.map(|reply| reply.succeeded), Err(Failure::LeaseNotFound));
    });
    assert_eq!(world.held(), ["10.0.0.1"]);
    world.cluster.assert_clean();
}

#[test]
fn a_commit_whose_answer_is_lost_is_found_to_be_applied() {
    let world = World::new();
    block_on(async {
        let kv = world.meddling(Some(Fate::AnswerLost));
        let held = world.add(&kv, "c", 1).await.expect("it settles that the commit was applied");
        assert_eq!(held[0].address.to_string(), "10.0.0.1");
    });
    assert_eq!(world.held(), ["10.0.0.1"]);
    world.cluster.assert_clean();
}

#[test]
fn a_run_whose_lease_has_ended_looks_again_before_it_commits() {
    let world = World::new();
    block_on(async {
        world.add(&world.meddling(None), "first", 1).await.expect("an address");
        let [undisturbed, outlived] = [world.meddling(None), world.meddling(Some(Fate::Outlived))];
        world.add(&undisturbed, "second", 2).await.expect("nothing is in its way");
        world.add(&outlived, "third", 3).await.expect("it has time left");
        assert_eq!(outlived.looks.get(), undisturbed.looks.get() + 1);
    });
    world.cluster.assert_clean();
}

#[test]
fn runs_of_one_node_share_a_lease_and_replace_one_that_has_ended() {
    let world = World::new();
    block_on(async {
        for (container, ns, fate, grants) in [
            ("first", 1, None, 1),
            ("second", 2, None, 0),
            ("third", 3, Some(Fate::Outlived), 1),
            ("fourth", 4, None, 0),
            // Two minutes later the rest of a lease might be too short for a run.
            ("fifth", 120_000_000_003, None, 1),
        ] {
            let kv = world.meddling(fate);
            world.add(&kv, container, ns).await.expect("an address");
            assert_eq!(kv.grants.get(), grants, "{container}");
        }
    });
    assert_eq!(world.held().len(), 5);
    world.cluster.assert_clean();
}

/// A DEL that passed on another one's lease would make the lease look younger than it is, and a tombstone on that lease
/// would end too early.
#[test]
fn a_del_leaves_only_a_lease_of_its_own_to_the_next() {
    let world = World::new();
    block_on(async {
        let kv = world.meddling(None);
        world.add(&kv, "c", 1).await.expect("an address");
        let first = world.free(&kv, "c", 2, FreeHints::default()).await;
        let lease = first.expect("it has granted one");
        world.add(&kv, "c", 3).await.expect("an address");
        let second = world.free(&kv, "c", 4, FreeHints { lease: Some(lease), ..FreeHints::default() }).await;
        assert_eq!(second, None, "it has used the other's");
    });
    assert!(world.held().is_empty());
    world.cluster.assert_clean();
}

/// A node's file may be wrong about a lease. A tombstone that ended too early would let an earlier ADD commit.
#[test]
fn a_tombstone_hangs_on_no_lease_that_ends_too_early() {
    let world = World::new();
    block_on(async {
        let kv = world.meddling(None);
        for (ttl_s, container, serves) in [(20, "short", false), (599, "hardly", false), (900, "long", true)]
        {
            world.add(&kv, container, 1).await.expect("an address");
            let lease = LeaseId(1_000 + ttl_s);
            world
                .etcd
                .grant(lease, Duration::from_secs(ttl_s as u64), Instant::now() + PATIENCE)
                .await
                .expect("granted");
            let hints = FreeHints { lease: Some(lease), ..FreeHints::default() };
            let grants = kv.grants.get();
            world.free(&kv, container, 2, hints).await;
            assert_eq!(kv.grants.get() - grants, u32::from(!serves), "{container}");
            let dead = world.keys.tombstone(&owner(container));
            let found = kv.send(&Txn::read(vec![Op::Get(dead)])).await.expect("read");
            let hangs_on = found.found[0].one().expect("a tombstone").lease;
            assert_eq!(hangs_on == lease.0, serves, "{container}");
        }
        let ended = FreeHints { lease: Some(LeaseId(7)), ..FreeHints::default() };
        world.add(&kv, "ended", 1).await.expect("an address");
        world.free(&kv, "ended", 2, ended).await;
    });
    assert!(world.held().is_empty());
    world.cluster.assert_clean();
}

/// A fence that stands for longer could outlive the tombstone of a later DEL.
#[test]
fn an_add_refuses_a_lease_that_etcd_has_made_too_long() {
    let world = World::new();
    block_on(async {
        let kv = world.meddling(None);
        kv.granted.set(Some(limits::FENCE_MOST + Duration::from_secs(1)));
        let refused = world.add(&kv, "c", 1).await.expect_err("its lease lives too long");
        assert_eq!(refused.code, Code::Refused);
        assert!(refused.msg.contains("granted 191 s for a lease of 180 s"), "{}", refused.msg);
        assert!(refused.details.contains("--election-timeout"), "{}", refused.details);
        assert!(world.held().is_empty());
        kv.granted.set(Some(limits::FENCE_MOST));
        world.add(&kv, "c", 2).await.expect("this long is fine");
        // A DEL frees with any lease that etcd grants, and leaves such a lease to nobody.
        kv.granted.set(Some(limits::FENCE_MOST + Duration::from_secs(1)));
        world.let_others_queue(&kv).await;
        let left = world.freed(&kv, "c", 3, FreeHints::default()).await;
        assert_eq!((kv.tickets.borrow().len(), left.tickets), (1, None));
    });
    assert!(world.held().is_empty());
    world.cluster.assert_clean();
}

/// etcd makes the lease of a commit longer, and both ADD and DEL count with it. It elects itself within its election
/// timeout, so the test has not the longest that there is.
#[test]
fn a_long_election_timeout_is_read_and_served() {
    let etcd = Etcd::with_args(&["--election-timeout=24000", "--heartbeat-interval=1000"]);
    let store = plain_store(&etcd.endpoint(), PATIENCE);
    let granted = block_on(store.grant(LeaseId(7), limits::LEASE_TTL, Instant::now() + PATIENCE));
    assert_eq!(granted, Ok(Duration::from_secs(36)));
    let cluster = Cluster::on(&etcd);
    let (node, config) = (cluster.node("n1"), network(json!({"range": "10.0.0.0/28"})));
    node.add("c").config(&config).run().address();
    node.del("c").config(&config).run().silent();
    cluster.assert_clean();
}

/// On the lease of its tombstone, a dead DEL would be in the way of others for minutes.
#[test]
fn the_ticket_of_a_del_hangs_on_a_short_lease_that_others_share() {
    let world = World::new();
    block_on(async {
        let kv = world.meddling(None);
        let mut hints = FreeHints::default();
        for (container, grants) in [("first", 2), ("second", 0)] {
            world.add(&world.meddling(None), container, 1).await.expect("an address");
            world.let_others_queue(&kv).await;
            let before = kv.grants.get();
            let left = world.freed(&kv, container, 2, hints).await;
            assert_eq!(kv.grants.get() - before, grants, "{container}");
            let lease = left.lease.or(hints.lease);
            hints = FreeHints { lease, tickets: left.tickets.or(hints.tickets), ..hints };
            let dead = world.keys.tombstone(&owner(container));
            let found = kv.send(&Txn::read(vec![Op::Get(dead)])).await.expect("read");
            let on = LeaseId(found.found[0].one().expect("a tombstone").lease);
            assert_eq!((Some(on), world.granted_for(on).await), (hints.lease, limits::TOMBSTONE_TTL));
        }
        let tickets = kv.tickets.borrow().clone();
        assert_eq!(tickets, [hints.tickets, hints.tickets].map(|lease| lease.expect("one is left")));
        assert_eq!(world.granted_for(tickets[0]).await, limits::LEASE_TTL);
    });
    assert!(world.held().is_empty());
    world.cluster.assert_clean();
}

/// A DEL that is spooled while another one is under way is of its own, and may be meant for an ADD in between.
#[test]
fn a_del_forgets_what_was_spooled_before_it_and_nothing_younger() {
    let world = World::new();
    let owner = owner("c");
    let left = block_on(async {
        let kv = world.meddling(None);
        world.add(&kv, "c", 1).await.expect("an address");
        let run = world.run(&kv, 3, &|| true);
        for ns in [2, 3, 4] {
            let start = RunStart { boot: "b1".into(), ns };
            let (machine, pod_uid) = (String::new(), None);
            let spooled = Spooled { owner: owner.clone(), start, machine, pod_uid, unanswered: false };
            run.spool.keep(&spooled).expect("it can be spooled");
        }
        assert_eq!(del::del(&run, &owner, None).await, Ok(del::Done::Freed));
        run.spool.of(&owner)
    });
    let left: Vec<u64> = left.iter().map(|kept| kept.spooled.start.ns).collect();
    assert_eq!(left, [4]);
    assert!(world.held().is_empty());
    world.cluster.assert_clean();
}

/// Two ADDs of one container at once: the younger one cannot settle its commit, and the older one has answered.
#[test]
fn what_a_younger_add_has_spooled_leaves_what_an_older_one_has_answered_with() {
    let world = World::new();
    block_on(async {
        let kv = world.meddling(None);
        let awaited = || true;
        let run = |ns| world.run(&kv, ns, &awaited);
        let held = world.add(&kv, "c", 1).await.expect("an address");
        let spooled = |ns| Spooled {
            owner: owner("c"),
            start: RunStart { boot: "b1".into(), ns },
            machine: String::new(),
            pod_uid: None,
            unanswered: true,
        };
        let later = run(3);
        later.spool.keep(&spooled(2)).expect("kept");
        later.drain_spool().await;
        assert_eq!(world.held(), [held[0].address.to_string()]);
        // Its own commit cannot take effect any more, because its tombstone stands.
        let dead = world.keys.tombstone(&owner("c"));
        let found = kv.send(&Txn::read(vec![Op::Get(dead)])).await.expect("read");
        assert!(found.found[0].one().is_some());
        assert!(later.spool.some(9, 0).is_empty(), "it is carried out");
        // A spooled DEL of the run that made the address frees it.
        later.spool.keep(&spooled(1)).expect("kept");
        later.drain_spool().await;
    });
    assert!(world.held().is_empty());
    world.cluster.assert_clean();
}

/// A run that can never settle its commit leaves a DEL, which means that very commit alone.
#[test]
fn what_an_add_has_spooled_leaves_what_another_add_has_answered_with_since() {
    let world = World::new();
    block_on(async {
        let awaited = || true;
        let silent = world.meddling(Some(Fate::Silent));
        let error = world.add(&silent, "c", 2).await.expect_err("nobody tells it what became of its commit");
        assert_eq!(error.code, Code::TryAgain);
        let kv = world.meddling(None);
        let later = world.run(&kv, 4, &awaited);
        assert_eq!(later.spool.some(9, 0).len(), 1);
        // An ADD of the same container that began before looks into the spool no more.
        let (folder, aside) = (world.cluster.folder().join("spool"), world.cluster.folder().join("aside"));
        std::fs::rename(&folder, &aside).expect("moved");
        let held = world.add(&kv, "c", 1).await.expect("it repeats what the other has reserved");
        std::fs::rename(&aside, &folder).expect("moved back");
        later.drain_spool().await;
        assert!(later.spool.some(9, 0).is_empty(), "it is carried out");
        assert_eq!(world.held(), [held[0].address.to_string()]);
        // It is freed if no ADD has answered with it.
        let silent = world.meddling(Some(Fate::Silent));
        world.add(&silent, "d", 5).await.expect_err("nobody tells it what became of its commit");
        later.drain_spool().await;
    });
    assert_eq!(world.held().len(), 1);
    world.cluster.assert_clean();
}

/// For etcd it costs almost nothing to count reservations; to list them, it walks over every key.
#[test]
fn a_full_range_is_counted_and_not_listed() {
    let world = World::new();
    block_on(async {
        let kv = world.meddling(None);
        for number in 0..14 {
            world.add(&kv, &format!("c{number}"), number + 1).await.expect("an address");
        }
        kv.read.set(0);
        let full = world.add(&kv, "one-too-many", 100).await.expect_err("it is full");
        assert_eq!(full.code, Code::NoFreeAddress);
        assert!(kv.read.get() < 14, "{} keys were read", kv.read.get());
    });
    world.cluster.assert_clean();
}

/// The fate of the first commit of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is held back, its run hears nothing, and then its caller is gone.
    Delayed,
    /// It is applied and its run hears nothing.
    AnswerLost,
    /// It is applied, and from then on its run hears nothing at all.
    Silent,
    /// Its lease ends before it arrives: its run stood still for long.
    Outlived,
}

/// An etcd, and the fates of requests on their way to it.
struct Meddling<'a> {
    etcd: &'a EtcdStore,
    keys: &'a Keys,
    fate: RefCell<Option<Fate>>,
    held_back: RefCell<Option<Txn>>,
    /// The number of transactions that only read.
    looks: Cell<u32>,
    /// The number of leases that were asked for.
    grants: Cell<u32>,
    /// The time that etcd says it granted the leases of commits and tickets, if it is not the real one.
    granted: Cell<Option<Duration>>,
    /// The leases that tickets were taken on.
    tickets: RefCell<Vec<LeaseId>>,
    /// The number of keys that were read.
    read: Cell<usize>,
    is_silent: Cell<bool>,
}

impl Meddling<'_> {
    /// The lease that a transaction writes the node's fence on.
    fn fence_of(&self, txn: &Txn) -> Option<LeaseId> {
        txn.then.iter().find_map(|op| match op {
            Op::Put(key, _, Some(lease)) if matches!(self.keys.parse(key), Ok(Key::Fence(_))) => Some(*lease),
            _ => None,
        })
    }

    /// The time that a run has: one that nobody answers takes all of it.
    fn patience(&self) -> Duration {
        let is_to_be_silent = *self.fate.borrow() == Some(Fate::Silent);
        if is_to_be_silent { Duration::from_secs(1) } else { PATIENCE }
    }

    async fn send(&self, txn: &Txn) -> Result<Reply, Failure> {
        self.etcd.txn(txn, Instant::now() + PATIENCE).await
    }
}

impl Kv for Meddling<'_> {
    type Watch = EtcdWatch;

    async fn connect(&self, until: Instant) -> Result<(), Failure> {
        self.etcd.connect(until).await
    }

    async fn txn(&self, txn: &Txn, until: Instant) -> Result<Reply, Failure> {
        self.looks.set(self.looks.get() + u32::from(txn.only_reads()));
        self.tickets.borrow_mut().extend(txn.then.iter().filter_map(|op| match op {
            Op::Put(key, _, lease) if matches!(self.keys.parse(key), Ok(Key::Ticket(..))) => *lease,
            _ => None,
        }));
        let Some(lease) = self.fence_of(txn) else {
            let reply = self.etcd.txn(txn, until).await?;
            let read = reply.found.iter().map(|found| found.entries.len()).sum::<usize>();
            self.read.set(self.read.get() + read);
            return Ok(reply);
        };
        let Some(fate) = self.fate.borrow_mut().take() else { return self.etcd.txn(txn, until).await };
        match fate {
            Fate::Delayed => {
                self.held_back.replace(Some(txn.clone()));
                Err(Failure::Unknown("held back".into()))
            }
            Fate::AnswerLost => {
                assert!(self.send(txn).await?.succeeded, "nobody is in its way");
                Err(Failure::Unknown("lost".into()))
            }
            Fate::Silent => {
                assert!(self.send(txn).await?.succeeded, "nobody is in its way");
                self.is_silent.set(true);
                Err(Failure::Unknown("lost".into()))
            }
            Fate::Outlived => {
                self.etcd.revoke(lease, until).await?;
                self.etcd.txn(txn, until).await
            }
        }
    }

    async fn grant(&self, lease: LeaseId, ttl: Duration, until: Instant) -> Result<Duration, Failure> {
        self.grants.set(self.grants.get() + 1);
        let granted = self.etcd.grant(lease, ttl, until).await?;
        Ok(self
            .granted
            .get()
            .filter(|_| ttl == limits::FENCE_TTL || ttl == limits::LEASE_TTL)
            .unwrap_or(granted))
    }

    async fn revoke(&self, lease: LeaseId, until: Instant) -> Result<(), Failure> {
        if self.is_silent.get() {
            return Err(Failure::Unknown("nobody answers".into()));
        }
        self.etcd.revoke(lease, until).await
    }

    async fn lease_age(&self, lease: LeaseId, until: Instant) -> Result<Option<LeaseAge>, Failure> {
        self.etcd.lease_age(lease, until).await
    }

    async fn watch(&self, keys: &[Bytes], until: Instant) -> Result<EtcdWatch, Failure> {
        self.etcd.watch(keys, until).await
    }

    left_to_etcd!();
}

/// One node, whose runs meet a fate.
struct World {
    cluster: Cluster,
    node: NodeState,
    keys: Keys,
    etcd: EtcdStore,
}

impl World {
    fn new() -> Self {
        let cluster = Cluster::new();
        let keys = Keys::new(cluster.prefix());
        let etcd = plain_store(&Etcd::shared().endpoint(), PATIENCE);
        let identity = Identity::of(NODE.parse().expect("a plain name"));
        let node =
            NodeState { identity, folder: cluster.folder().to_owned(), endpoints: Vec::new(), all: None };
        Self { cluster, node, keys, etcd }
    }

    fn meddling(&self, fate: Option<Fate>) -> Meddling<'_> {
        Meddling {
            etcd: &self.etcd,
            keys: &self.keys,
            fate: RefCell::new(fate),
            held_back: RefCell::default(),
            looks: Cell::default(),
            grants: Cell::default(),
            granted: Cell::default(),
            tickets: RefCell::default(),
            read: Cell::default(),
            is_silent: Cell::default(),
        }
    }

    fn run<'r>(
        &'r self,
        kv: &'r Meddling<'r>,
        ns: u64,
        awaited: &'r dyn Fn() -> bool,
    ) -> Run<'r, Meddling<'r>> {
        let session = Session { kv, keys: &self.keys, until: Instant::now() + kv.patience() };
        Run::new(session, &self.node, RunStart { boot: "b1".into(), ns }, &after_all_runs, awaited)
    }

    async fn add(
        &self,
        kv: &Meddling<'_>,
        container: &str,
        ns: u64,
    ) -> Result<Vec<Held>, metes_config::cni::Error> {
        let awaited = || kv.held_back.borrow().is_none();
        let run = self.run(kv, ns, &awaited);
        let wanted = Wanted::lowest_of(vec![range_set("10.0.0.0/28", "10.0.0.1", "10.0.0.14")]);
        let ask = run.ask(owner(container), Labels::default(), wanted);
        add::add(&run, &ask).await.map(|added| added.held)
    }

    /// Frees the addresses of a container, as its DEL that was started at `ns`; returns the lease that it leaves to the
    /// next.
    async fn free(
        &self,
        kv: &Meddling<'_>,
        container: &str,
        ns: u64,
        hints: FreeHints<'_>,
    ) -> Option<LeaseId> {
        self.freed(kv, container, ns, hints).await.lease
    }

    /// The same; returns all that it leaves.
    async fn freed(&self, kv: &Meddling<'_>, container: &str, ns: u64, hints: FreeHints<'_>) -> Left {
        let (owner, start) = (owner(container), RunStart { boot: "b1".into(), ns });
        let free = Free { tombstone: Some(&start), ..Free::of(&owner, FreeGuard::OlderThan(&start, None)) };
        let session = Session { kv, keys: &self.keys, until: Instant::now() + PATIENCE };
        let (freed, left) = release::carry_out(session, free, (hints, None), None).await.expect("it frees");
        assert!(matches!(freed, Freed::Addresses(_)), "{freed:?}");
        left
    }

    async fn granted_for(&self, lease: LeaseId) -> Duration {
        let age = self.etcd.lease_age(lease, Instant::now() + PATIENCE).await.expect("etcd tells");
        age.expect("the lease lives").granted
    }

    /// Somebody has queued in every queue, and has not said that it left.
    async fn let_others_queue(&self, kv: &Meddling<'_>) {
        let wanted = Wanted::lowest_of(vec![range_set("10.0.0.0/28", "10.0.0.1", "10.0.0.14")]);
        let ask = self.run(kv, 1, &|| true).ask(owner("other"), Labels::default(), wanted);
        let scope = Allotment::new(&ask, &self.keys).scope(&Snapshot::default()).expect("it has ranges");
        let tail = Op::Put(self.keys.tail(&scope), b"other".to_vec(), None);
        kv.send(&Txn { then: vec![tail], ..Txn::default() }).await.expect("a tail is written");
    }

    fn held(&self) -> Vec<String> {
        let list = self.cluster.node("reader").list();
        list.iter().filter_map(|one| one["address"].as_str().map(str::to_owned)).collect()
    }
}

/// Starts here are small numbers of nanoseconds, and no run sleeps through its deadline.
fn after_all_runs() -> RunStart {
    RunStart { boot: "b1".into(), ns: 1_000_000_000 }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(work)
}
