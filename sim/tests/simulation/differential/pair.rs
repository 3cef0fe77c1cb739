//! The model beside a real etcd: every request goes to both, and the answers must be equal.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::{Debug, Write};
use std::rc::Rc;
use std::time::Duration;

use etcd_client as ec;
use metes_core::keys::{Bytes, LeaseId};
use metes_core::txn::{List, Op, Reply, Txn};
use metes_engine::kv::{Event, Failure, Kv, LeaseAge, Watch};
use metes_etcd::client::{Etcd as Client, EtcdWatch};
use metes_sim::store::Model;
use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinHandle, LocalSet};
use tokio::time::{Instant, timeout};

use support::{Etcd, plain_store};

/// The time for one request, and for one event of a watch.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// More than the changes of a whole test: only the test compacts.
const HISTORY: usize = 10_000_000;

/// No lease of a sequence ends by itself.
pub(crate) const LONG: Duration = Duration::from_secs(3600);

/// The answers of etcd to many transactions.
pub(crate) type Answers = Vec<Result<Reply, Failure>>;
/// The answers of etcd to many grants.
pub(crate) type Grants = Vec<Result<Duration, Failure>>;

/// A server of its own and the model of it, from the first revision on.
pub(crate) struct Pair {
    pub(crate) server: Etcd,
    pub(crate) model: Model,
    client: Rc<Client>,
    raw: ec::Client,
    watch: ec::WatchStream,
    watched: i64,
    /// Reads that etcd answered, by which the model's past is judged later.
    reads: Vec<(Txn, Reply)>,
    /// The count of each kind of answer: a test that provokes none of a kind proves nothing about it.
    pub(crate) tally: BTreeMap<String, usize>,
    /// The requests since the last [`Pair::forget`], for a failure.
    steps: RefCell<String>,
    runtime: Runtime,
}

impl Pair {
    pub(crate) fn new(server: Etcd) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime can be built");
        let client = Rc::new(plain_store(&server.endpoint(), ANSWER_MAX));
        let (raw, watch) = runtime.block_on(open(&server));
        Self {
            server,
            model: Model::with_history(HISTORY),
            client,
            raw,
            watch,
            watched: 1,
            reads: Vec::new(),
            tally: BTreeMap::new(),
            steps: RefCell::default(),
            runtime,
        }
    }

    /// Begins a new sequence.
    pub(crate) fn forget(&mut self, what: &str) {
        *self.steps.borrow_mut() = format!("{what}\n");
    }

    pub(crate) fn txn(&mut self, txn: &Txn) -> Result<Reply, Failure> {
        // The disk of a busy machine may stand still for longer than a run has time for a request.
        let patient = Txn { is_walk: true, ..txn.clone() };
        let real = self.runtime.block_on(self.client.txn(&patient, until()));
        let model = self.model.txn(txn);
        self.same(txn, &real, &model);
        self.count(match &real {
            Ok(reply) if txn.only_reads() => format!("read, {}", reply.succeeded),
            Ok(reply) => format!("write, {}", reply.succeeded),
            Err(failure) => format!("txn: {failure}"),
        });
        if let Ok(reply) = &real
            && txn.only_reads()
        {
            self.reads.push((txn.clone(), reply.clone()));
        }
        real
    }

    pub(crate) fn grant(&mut self, lease: LeaseId, ttl: Duration) -> Result<Duration, Failure> {
        let real = self.runtime.block_on(self.client.grant(lease, ttl, until()));
        let model = self.model.grant(lease, ttl);
        self.same(&("grant", lease, ttl), &real, &model);
        self.count(format!("grant: {:?}", real.as_ref().map(|_| ())));
        real
    }

    /// Revokes below metes' own client, which takes a lease that has ended for one that it ended.
    pub(crate) fn revoke(&mut self, lease: LeaseId) -> Result<(), Failure> {
        let revoked = self.runtime.block_on(bounded(self.raw.lease_client().revoke(lease.0)));
        let real = match revoked {
            Ok(_) => Ok(()),
            Err(ec::Error::GRpcStatus(status)) if status.message().contains("requested lease not found") => {
                Err(Failure::LeaseNotFound)
            }
            Err(error) => panic!("etcd revokes: {error}"),
        };
        let model = self.model.revoke(lease);
        self.same(&("revoke", lease), &real, &model);
        self.count(format!("revoke: {real:?}"));
        real
    }

    /// Both tell the age of a lease. Time passes in the real store only, in which at most `passed` has passed since
    /// the lease was granted.
    pub(crate) fn lease_age(&mut self, lease: LeaseId, passed: Duration) -> Option<LeaseAge> {
        let real = self.real_age(lease);
        let model = self.model.lease_age(lease);
        let granted = |age: Option<LeaseAge>| age.map(|age| age.granted);
        self.same(&("age", lease), &granted(real), &granted(model));
        if let (Some(real), Some(model)) = (real, model) {
            let least = model.left.saturating_sub(passed + Duration::from_secs(1));
            assert!((least..=model.left).contains(&real.left), "{lease:?}: {real:?}, not {model:?}");
        }
        real
    }

    /// The age of a lease by etcd alone.
    pub(crate) fn real_age(&self, lease: LeaseId) -> Option<LeaseAge> {
        self.runtime.block_on(self.client.lease_age(lease, until())).expect("etcd tells")
    }

    /// A transaction that only etcd carries out.
    pub(crate) fn real_txn(&self, txn: &Txn) -> Reply {
        self.runtime.block_on(self.client.txn(txn, until())).expect("etcd does as it is asked")
    }

    /// Compacts. etcd refuses to go back, or beyond its newest revision; the model does nothing then, without a word.
    pub(crate) fn compact(&mut self, revision: i64) {
        let compacted = self.runtime.block_on(bounded(self.raw.compact(revision, None)));
        note(&self.steps, &("compact", revision), &compacted.is_ok());
        self.model.compact(revision);
        self.reads.clear();
    }

    /// Anything else, on the real store only.
    pub(crate) fn real<T>(&mut self, work: impl AsyncFnOnce(&mut ec::Client) -> Result<T, ec::Error>) -> T {
        self.runtime.block_on(work(&mut self.raw)).expect("etcd does as it is asked")
    }

    /// The alarms are the same, whichever member raised them.
    pub(crate) fn compare_alarms(&self) {
        let without_member = |errors: &[String]| -> Vec<String> {
            errors.iter().map(|error| error.replace(|letter: char| letter.is_ascii_digit(), "")).collect()
        };
        let real = self.runtime.block_on(self.client.about(until())).expect("etcd tells");
        let model = self.model.about();
        self.same(&"about", &without_member(&real.errors), &without_member(&model.errors));
    }

    /// Many requests at once, on the real store only. In the midst of them a lease without keys is revoked, upon which
    /// etcd writes to its file at once; behind it leases are granted too.
    pub(crate) fn storm(&mut self, txns: &[Txn], lease: LeaseId, leases: &[LeaseId]) -> (Answers, Grants) {
        let local = LocalSet::new();
        let ask = |txn: &Txn| {
            let (client, txn) = (Rc::clone(&self.client), txn.clone());
            local.spawn_local(async move { client.txn(&txn, until()).await })
        };
        let grant = |lease: &LeaseId| {
            let (client, lease) = (Rc::clone(&self.client), *lease);
            local.spawn_local(async move { client.grant(lease, LONG, until()).await })
        };
        let (before, after) = txns.split_at(txns.len() / 2);
        let mut asked: Vec<_> = before.iter().map(ask).collect();
        let client = Rc::clone(&self.client);
        let revoked = local.spawn_local(async move { client.revoke(lease, until()).await });
        let granted: Vec<_> = leases.iter().map(grant).collect();
        asked.extend(after.iter().map(ask));
        let answers = local.block_on(&self.runtime, async {
            revoked.await.expect("no request panics").expect("etcd revokes");
            (all(asked).await, all(granted).await)
        });
        self.model.revoke(lease).expect("the model revokes");
        answers
    }

    /// The rest of a lease in etcd, in whole seconds; more than was granted after a new leader.
    pub(crate) fn real_rest(&self, lease: LeaseId) -> Duration {
        let asked = async { self.raw.lease_client().time_to_live(lease.0, None).await };
        let told = self.runtime.block_on(bounded(asked)).expect("etcd tells");
        Duration::from_secs(told.ttl().try_into().expect("the lease lives"))
    }

    /// The server is started again: a new leader. Connections and the watch are opened anew.
    pub(crate) fn restart(&mut self) {
        self.server.restart();
        self.model.promote_leader();
        self.client = Rc::new(plain_store(&self.server.endpoint(), ANSWER_MAX));
        (self.raw, self.watch) = self.runtime.block_on(open(&self.server));
        self.watched = self.model.revision();
    }

    /// A watch on everything must have seen the changes of the model, in this order.
    pub(crate) fn compare_changes(&mut self) {
        let model: Vec<(Vec<u8>, i64)> =
            self.model.changes_since(self.watched).map(|(key, revision)| (key.to_vec(), revision)).collect();
        let real = self.events(model.len());
        assert_eq!(real, model, "what a watch saw; {}", self.steps.borrow());
        self.watched = self.model.revision();
    }

    /// Watches on some keys, as metes opens them.
    pub(crate) fn watch(&mut self, keys: &[Bytes]) -> EtcdWatch {
        self.runtime.block_on(self.client.watch(keys, until())).expect("etcd watches")
    }

    /// The next event of a watch; none if it has ended.
    pub(crate) fn next(&self, watch: &mut EtcdWatch) -> Option<Event> {
        self.runtime.block_on(bounded(watch.next()))
    }

    /// At least `count` events of the watch.
    pub(crate) fn events(&mut self, count: usize) -> Vec<(Vec<u8>, i64)> {
        let mut events = Vec::new();
        while events.len() < count {
            let message = self.runtime.block_on(bounded(self.watch.message()));
            let message = message.expect("the watch lives").expect("the watch lives");
            assert!(!message.canceled(), "the watch ended");
            let kvs = message.events().iter().filter_map(ec::Event::kv);
            events.extend(kvs.map(|kv| (kv.key().to_vec(), kv.mod_revision())));
        }
        events
    }

    /// Answers of etcd to earlier reads are those of the model's past now; and a list at an old revision shows the same
    /// in both.
    pub(crate) fn compare_past(&mut self, prefix: &[u8], revisions: impl IntoIterator<Item = i64>) {
        for (txn, reply) in &self.reads {
            let model = self.model.stale(reply.revision, txn);
            assert_eq!(model.as_ref(), Ok(reply), "{txn:?}; {}", self.steps.borrow());
        }
        self.reads.clear();
        for revision in revisions {
            let then = Txn::read(vec![Op::List(List { revision, ..List::prefix(prefix, 0) })]);
            let now = Txn::read(vec![Op::List(List::prefix(prefix, 0))]);
            if let Ok(real) = self.txn(&then) {
                let model = self.model.stale(revision, &now).expect("the model's past can be read");
                assert_eq!(model.found, real.found, "at revision {revision}; {}", self.steps.borrow());
            }
        }
        self.reads.clear();
    }

    fn count(&mut self, kind: String) {
        *self.tally.entry(kind).or_default() += 1;
    }

    #[track_caller]
    fn same<T: Debug + PartialEq>(&self, asked: &impl Debug, real: &T, model: &T) {
        note(&self.steps, asked, real);
        assert_eq!(model, real, "the model (left) is not as etcd (right); {}", self.steps.borrow());
    }
}

async fn all<T>(asked: Vec<JoinHandle<T>>) -> Vec<T> {
    let mut answers = Vec::new();
    for asked in asked {
        answers.push(asked.await.expect("no request panics"));
    }
    answers
}

fn note(steps: &RefCell<String>, asked: &impl Debug, answered: &impl Debug) {
    writeln!(steps.borrow_mut(), "{asked:?}\n    {answered:?}").expect("a string takes all");
}

fn until() -> Instant {
    Instant::now() + ANSWER_MAX
}

async fn bounded<F: Future>(asked: F) -> F::Output {
    timeout(ANSWER_MAX, asked).await.expect("etcd answers in time")
}

/// A connection, and a watch on everything from now on.
async fn open(server: &Etcd) -> (ec::Client, ec::WatchStream) {
    let mut raw = ec::Client::connect([server.endpoint()], None).await.expect("etcd takes connections");
    let options = ec::WatchOptions::new().with_all_keys();
    let mut watch = raw.watch("", Some(options)).await.expect("etcd watches");
    let confirmed = watch.message().await.expect("etcd confirms").expect("etcd confirms");
    assert!(confirmed.created());
    (raw, watch)
}
