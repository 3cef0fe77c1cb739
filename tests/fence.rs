//! What keeps a commit without a place from being applied late: the run's own code on a real etcd, with a commit that
//! is held back on its way.

mod support;

use std::cell::{Cell, RefCell};
use std::time::Duration;

use metes::cni::Code;
use metes::commands::{Run, add};
use metes::local::{mark::MarkFile, spool::Spool};
use metes::pool::choose::Order;
use metes::pool::record::{Birth, Held, Labels, Owner};
use metes::store::allot::Ask;
use metes::store::etcd::{Etcd as EtcdStore, EtcdWatch};
use metes::store::free::{Free, Hints, Which};
use metes::store::keys::{Key, Keys, LeaseId};
use metes::store::kv::{About, Failure, Kv, LeaseAge};
use metes::store::txn::{Op, Reply, Txn};
use support::{Cluster, Etcd, plain_store, range_set};
use tokio::time::Instant;

const NODE: &str = "n1";

fn owner(container: &str) -> Owner {
    let (node, container_id, ifname) = (NODE.into(), container.into(), "net1".into());
    Owner { node, container_id, ifname, cluster: String::new() }
}
/// For what a test itself asks of etcd.
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
            // Nine seconds later what is left of a lease might be too short for a run.
            ("fifth", 9_000_000_003, None, 1),
        ] {
            let kv = world.meddling(fate);
            world.add(&kv, container, ns).await.expect("an address");
            assert_eq!(kv.grants.get(), grants, "{container}");
        }
    });
    assert_eq!(world.held().len(), 5);
    world.cluster.assert_clean();
}

/// Who passes a lease on as its own makes it look younger than it is, and a tombstone on it ends too early.
#[test]
fn a_del_leaves_only_a_lease_of_its_own_to_the_next() {
    let world = World::new();
    block_on(async {
        let kv = world.meddling(None);
        world.add(&kv, "c", 1).await.expect("an address");
        let owner = owner("c");
        let birth = Birth { boot: "b1".into(), ns: 2 };
        let mut lease = None;
        for is_new in [true, false] {
            let free = Free {
                kv: &kv,
                keys: &world.keys,
                owner: &owner,
                which: Which::OlderThan(&birth),
                tombstone: Some(&birth),
                until: Instant::now() + PATIENCE,
                hints: Cell::new(Hints { lease, ..Hints::default() }),
            };
            free.run().await.expect("it frees");
            let left = free.hints.get().lease;
            assert_eq!(left.is_some(), is_new);
            lease = lease.or(left);
        }
    });
    assert!(world.held().is_empty());
    world.cluster.assert_clean();
}

/// What happens to the first commit of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is held back, its run hears nothing, and then whoever called it is gone.
    Delayed,
    /// It is applied and its run hears nothing.
    AnswerLost,
    /// Its lease ends before it arrives: its run stood still for long.
    Outlived,
}

/// An etcd on whose way that happens.
struct Meddling<'a> {
    etcd: &'a EtcdStore,
    keys: &'a Keys,
    fate: RefCell<Option<Fate>>,
    held_back: RefCell<Option<Txn>>,
    /// How often something was only read.
    looks: Cell<u32>,
    /// How many leases were asked for.
    grants: Cell<u32>,
}

impl Meddling<'_> {
    /// The lease that a transaction writes the node's fence on.
    fn fence_of(&self, txn: &Txn) -> Option<LeaseId> {
        txn.then.iter().find_map(|op| match op {
            Op::Put(key, _, Some(lease)) if matches!(self.keys.parse(key), Ok(Key::Fence(_))) => Some(*lease),
            _ => None,
        })
    }

    async fn send(&self, txn: &Txn) -> Result<Reply, Failure> {
        self.etcd.txn(txn, Instant::now() + PATIENCE).await
    }
}

impl Kv for Meddling<'_> {
    type Watch = EtcdWatch;

    async fn connect(&self, until: Instant) {
        self.etcd.connect(until).await;
    }

    async fn txn(&self, txn: &Txn, until: Instant) -> Result<Reply, Failure> {
        self.looks.set(self.looks.get() + u32::from(txn.only_reads()));
        let Some(lease) = self.fence_of(txn) else { return self.etcd.txn(txn, until).await };
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
            Fate::Outlived => {
                self.etcd.revoke(lease, until).await?;
                self.etcd.txn(txn, until).await
            }
        }
    }

    async fn grant(&self, lease: LeaseId, ttl: Duration, until: Instant) -> Result<(), Failure> {
        self.grants.set(self.grants.get() + 1);
        self.etcd.grant(lease, ttl, until).await
    }

    async fn revoke(&self, lease: LeaseId, until: Instant) -> Result<(), Failure> {
        self.etcd.revoke(lease, until).await
    }

    async fn lease_age(&self, lease: LeaseId, until: Instant) -> Result<Option<LeaseAge>, Failure> {
        self.etcd.lease_age(lease, until).await
    }

    async fn watch(&self, key: &[u8], until: Instant) -> Result<EtcdWatch, Failure> {
        self.etcd.watch(key, until).await
    }

    async fn about(&self, until: Instant) -> Result<About, Failure> {
        self.etcd.about(until).await
    }
}

/// One node, whose runs meet a fate.
struct World {
    cluster: Cluster,
    keys: Keys,
    etcd: EtcdStore,
}

impl World {
    fn new() -> Self {
        let cluster = Cluster::new();
        let keys = Keys::new(cluster.prefix());
        let etcd = plain_store(&Etcd::shared().endpoint(), PATIENCE);
        Self { cluster, keys, etcd }
    }

    fn meddling(&self, fate: Option<Fate>) -> Meddling<'_> {
        Meddling {
            etcd: &self.etcd,
            keys: &self.keys,
            fate: RefCell::new(fate),
            held_back: RefCell::default(),
            looks: Cell::default(),
            grants: Cell::default(),
        }
    }

    fn run<'r>(
        &'r self,
        kv: &'r Meddling<'r>,
        ns: u64,
        awaited: &'r dyn Fn() -> bool,
    ) -> Run<'r, Meddling<'r>> {
        Run {
            kv,
            keys: &self.keys,
            node: NODE,
            cluster: "test",
            endpoints: &[],
            birth: Birth { boot: "b1".into(), ns },
            clock: &after_all_runs,
            deadline: Instant::now() + PATIENCE,
            awaited,
            spool: Spool::new(self.cluster.folder()),
            mark: MarkFile::new(self.cluster.folder()),
        }
    }

    async fn add(&self, kv: &Meddling<'_>, container: &str, ns: u64) -> Result<Vec<Held>, metes::cni::Error> {
        let awaited = || kv.held_back.borrow().is_none();
        let run = self.run(kv, ns, &awaited);
        let ask = Ask {
            owner: owner(container),
            birth: run.birth.clone(),
            labels: Labels::default(),
            created_at: "2026-01-02T03:04:05Z".into(),
            sets: vec![range_set("10.0.0.0/28", "10.0.0.1", "10.0.0.14")],
            requests: vec![None],
            statics: Vec::new(),
            order: Order::Lowest,
            node_seed: 0,
        };
        add::add(&run, &ask).await.map(|added| added.held)
    }

    fn held(&self) -> Vec<String> {
        let list = self.cluster.node("reader").list();
        list.iter().filter_map(|one| one["address"].as_str().map(str::to_owned)).collect()
    }
}

/// Births here are small numbers of nanoseconds, and no run sleeps through its deadline.
fn after_all_runs() -> Birth {
    Birth { boot: "b1".into(), ns: 1_000_000_000 }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(work)
}
