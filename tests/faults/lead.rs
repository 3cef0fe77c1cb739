//! The turns of reconcilers that stay: candidates on a real etcd that meet between a look and a write.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use metes_core::keys::{Bytes, Keys, LeaseId};
use metes_core::txn::{Op, Reply, Txn};
use metes_engine::kv::{Failure, Kv, LeaseAge};
use metes_etcd::client::{Etcd as EtcdStore, EtcdWatch};
use metes_reconciler::lead::{Candidate, Leadership};
use support::{Cluster, Etcd, left_to_etcd, plain_store, wait_for};
use tokio::time::Instant;

const PATIENCE: Duration = Duration::from_secs(10);
/// Longer than a test takes.
const LONG: Duration = Duration::from_secs(600);
const KEY: &str = "v1/lead/test";

#[test]
fn of_two_claims_that_race_one_leads() {
    let world = World::new();
    let [fast, slow] = [world.candidate("fast", LONG), world.candidate("slow", LONG)];
    // Both have seen that nobody leads.
    let meeting = world.between("lead", async {
        assert_eq!(fast.claim(&world.etcd, until()).await, Ok(Leadership::Leader));
    });
    let standing = block_on(slow.claim(&meeting, until()));
    assert_eq!(standing, Ok(Leadership::Follower("fast".to_owned())));
    assert_eq!(world.leader().as_deref(), Some("fast"));
    world.cluster.assert_clean();
}

#[test]
fn a_lead_that_was_lost_is_not_kept() {
    let world = World::new();
    let [old, new] = [world.candidate("old", LONG), world.candidate("new", LONG)];
    assert_eq!(block_on(old.claim(&world.etcd, until())), Ok(Leadership::Leader));
    // It has seen that it leads, and was stopped for longer than its claim holds.
    let meeting = world.between("lead", async {
        world.end_the_lead().await;
        assert_eq!(new.claim(&world.etcd, until()).await, Ok(Leadership::Leader));
    });
    assert_eq!(block_on(old.claim(&meeting, until())), Ok(Leadership::Follower("new".to_owned())));
    assert_eq!(world.leader().as_deref(), Some("new"));
    world.cluster.assert_clean();
}

#[test]
fn nobody_resigns_for_another() {
    let world = World::new();
    let [old, new] = [world.candidate("old", LONG), world.candidate("new", LONG)];
    assert_eq!(block_on(new.claim(&world.etcd, until())), Ok(Leadership::Leader));
    assert_eq!(block_on(old.resign(&world.etcd, until())), Ok(()));
    assert_eq!(world.leader().as_deref(), Some("new"));
    assert_eq!(block_on(new.resign(&world.etcd, until())), Ok(()));
    assert_eq!(world.leader(), None);

    assert_eq!(block_on(old.claim(&world.etcd, until())), Ok(Leadership::Leader));
    // It has seen that it leads, and another one does when it gives that up.
    let meeting = world.between("step-down", async {
        world.end_the_lead().await;
        assert_eq!(new.claim(&world.etcd, until()).await, Ok(Leadership::Leader));
    });
    assert_eq!(block_on(old.resign(&meeting, until())), Ok(()));
    assert_eq!(world.leader().as_deref(), Some("new"));
    world.cluster.assert_clean();
}

#[test]
fn a_claim_ends_with_its_lease() {
    let world = World::new();
    let [dead, next] = [world.candidate("dead", Duration::from_secs(2)), world.candidate("next", LONG)];
    assert_eq!(block_on(dead.claim(&world.etcd, until())), Ok(Leadership::Leader));
    wait_for("the lead", PATIENCE, || match block_on(next.claim(&world.etcd, until())) {
        Ok(Leadership::Leader) => Ok(()),
        other => Err(format!("{other:?}")),
    });
    world.cluster.assert_clean();
}

fn until() -> Instant {
    Instant::now() + PATIENCE
}

fn block_on<T>(what: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(what)
}

struct World {
    cluster: Cluster,
    keys: Keys,
    etcd: EtcdStore,
}

impl World {
    fn new() -> Self {
        let cluster = Cluster::new();
        let keys = Keys::new(cluster.prefix());
        Self { keys, etcd: plain_store(&Etcd::shared().endpoint(), PATIENCE), cluster }
    }

    fn candidate(&self, name: &str, ttl: Duration) -> Candidate {
        Candidate { key: self.keys.lead(&"test".parse().expect("a plain name")), name: name.to_owned(), ttl }
    }

    /// As its lease does.
    async fn end_the_lead(&self) {
        let key = self.keys.lead(&"test".parse().expect("a plain name"));
        let txn = Txn { step: "test", then: vec![Op::Delete(key)], ..Txn::default() };
        self.etcd.txn(&txn, until()).await.expect("etcd takes it");
    }

    fn leader(&self) -> Option<String> {
        let value = self.cluster.store().get(KEY)?;
        let record: serde_json::Value = serde_json::from_slice(&value).expect("a record is JSON");
        record["holder"].as_str().map(str::to_owned)
    }

    /// The store, where this happens right before the first transaction of that step.
    fn between<'a>(&'a self, step: &'static str, event: impl Future<Output = ()> + 'a) -> Between<'a> {
        Between { etcd: &self.etcd, step, event: RefCell::new(Some(Box::pin(event))) }
    }
}

/// A store in which something happens between a look and a write.
struct Between<'a> {
    etcd: &'a EtcdStore,
    step: &'static str,
    event: RefCell<Option<Pin<Box<dyn Future<Output = ()> + 'a>>>>,
}

impl Kv for Between<'_> {
    type Watch = EtcdWatch;

    async fn connect(&self, until: Instant) -> Result<(), Failure> {
        self.etcd.connect(until).await
    }

    async fn txn(&self, txn: &Txn, until: Instant) -> Result<Reply, Failure> {
        let event = if txn.step == self.step { self.event.take() } else { None };
        if let Some(event) = event {
            event.await;
        }
        self.etcd.txn(txn, until).await
    }

    async fn grant(&self, lease: LeaseId, ttl: Duration, until: Instant) -> Result<Duration, Failure> {
        self.etcd.grant(lease, ttl, until).await
    }

    async fn revoke(&self, lease: LeaseId, until: Instant) -> Result<(), Failure> {
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
