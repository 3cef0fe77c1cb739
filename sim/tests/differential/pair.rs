//! The model beside a real etcd: every request goes to both, and the answers must be equal.

use std::cell::RefCell;
use std::fmt::{Debug, Write};
use std::time::Duration;

use etcd_client as ec;
use metes::store::etcd::Etcd as Client;
use metes::store::keys::LeaseId;
use metes::store::kv::{Failure, Kv, LeaseAge};
use metes::store::txn::{List, Op, Reply, Txn};
use metes_sim::store::Model;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, timeout};

use crate::support::{Etcd, plain_store};

/// For one request, and for one event of a watch.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// More than the changes of a whole test: what is compacted is what the test compacts.
const HISTORY: usize = 10_000_000;

/// A server of its own and the model of it, from the first revision on.
pub(crate) struct Pair {
    pub(crate) server: Etcd,
    pub(crate) model: Model,
    client: Client,
    raw: ec::Client,
    watch: ec::WatchStream,
    watched: i64,
    /// Reads that etcd answered, by which the model's past is judged later.
    reads: Vec<(Txn, Reply)>,
    /// What was asked since the last [`Pair::forget`], for a failure.
    steps: RefCell<String>,
    runtime: Runtime,
}

impl Pair {
    pub(crate) fn new(server: Etcd) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime can be built");
        let client = plain_store(&server.endpoint(), ANSWER_MAX);
        let (raw, watch) = runtime.block_on(open(&server));
        Self {
            server,
            model: Model::with_history(HISTORY),
            client,
            raw,
            watch,
            watched: 1,
            reads: Vec::new(),
            steps: RefCell::default(),
            runtime,
        }
    }

    /// What follows is a new sequence.
    pub(crate) fn forget(&mut self, what: &str) {
        *self.steps.borrow_mut() = format!("{what}\n");
    }

    pub(crate) fn txn(&mut self, txn: &Txn) -> Result<Reply, Failure> {
        let real = self.runtime.block_on(self.client.txn(txn, until()));
        let model = self.model.txn(txn);
        self.same(txn, &real, &model);
        if let Ok(reply) = &real
            && txn.only_reads()
        {
            self.reads.push((txn.clone(), reply.clone()));
        }
        real
    }

    pub(crate) fn grant(&mut self, lease: LeaseId, ttl: Duration) -> Result<(), Failure> {
        let real = self.runtime.block_on(self.client.grant(lease, ttl, until()));
        let model = self.model.grant(lease, ttl);
        self.same(&("grant", lease, ttl), &real, &model);
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
        real
    }

    /// Both tell the age of a lease. Time passes in the real store only, in which at most `passed` has passed since
    /// the lease was granted.
    pub(crate) fn lease_age(&mut self, lease: LeaseId, passed: Duration) -> Option<LeaseAge> {
        let real = self.runtime.block_on(self.client.lease_age(lease, until())).expect("etcd tells");
        let model = self.model.lease_age(lease);
        let granted = |age: Option<LeaseAge>| age.map(|age| age.granted);
        self.same(&("age", lease), &granted(real), &granted(model));
        if let (Some(real), Some(model)) = (real, model) {
            let least = model.left.saturating_sub(passed + Duration::from_secs(1));
            assert!((least..=model.left).contains(&real.left), "{lease:?}: {real:?}, not {model:?}");
        }
        real
    }

    /// Compacts; etcd's refusal to go back, or beyond what there is, is what the model does without a word.
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

    pub(crate) fn errors(&self) -> Vec<String> {
        self.runtime.block_on(self.client.about(until())).expect("etcd tells").errors
    }

    /// Many transactions at once, on the real store only.
    pub(crate) fn storm(&self, txns: &[Txn]) -> Vec<Result<Reply, Failure>> {
        let wait = async {
            let mut answers = Vec::new();
            let mut asked: Vec<_> = txns.iter().map(|txn| Box::pin(self.client.txn(txn, until()))).collect();
            // The first poll of each sends it.
            for asked in &mut asked {
                answers.push(futures_poll(asked.as_mut()).await);
            }
            for (answer, asked) in answers.iter_mut().zip(asked) {
                if answer.is_none() {
                    *answer = Some(asked.await);
                }
            }
            answers.into_iter().flatten().collect()
        };
        self.runtime.block_on(wait)
    }

    /// The server is started again: a new leader. Connections and the watch are opened anew.
    pub(crate) fn restart(&mut self) {
        self.server.restart();
        self.model.promote_leader();
        (self.raw, self.watch) = self.runtime.block_on(open(&self.server));
        self.watched = self.model.revision();
    }

    /// A watch on everything must have seen what the model says has changed, in this order.
    pub(crate) fn compare_changes(&mut self) {
        let model: Vec<(Vec<u8>, i64)> =
            self.model.changes_since(self.watched).map(|(key, revision)| (key.to_vec(), revision)).collect();
        let real = self.events(model.len());
        assert_eq!(real, model, "what a watch saw; {}", self.steps.borrow());
        self.watched = self.model.revision();
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

    /// What etcd answered to reads earlier is what the model's past answers now; and a list at an old revision shows
    /// the same in both.
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

    #[track_caller]
    fn same<T: Debug + PartialEq>(&self, asked: &impl Debug, real: &T, model: &T) {
        note(&self.steps, asked, real);
        assert_eq!(model, real, "the model (left) is not as etcd (right); {}", self.steps.borrow());
    }
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

/// One poll; what it brought, if it brought something.
async fn futures_poll<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    let mut future = future;
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(match future.as_mut().poll(context) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        })
    })
    .await
}
