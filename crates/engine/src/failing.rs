//! A store whose requests have failure points; only in a build with the feature `failpoints`.

use std::future::{Future, poll_fn};
use std::ops::Deref;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::follow::Follow;
use super::kv::{About, Failure, Hear, Kv, LeaseAge};
use crate::failpoints::{Boundary, Injected, Visit, lease, visit};
use metes_core::keys::{Bytes, LeaseId};
use metes_core::txn::{Reply, Txn};

/// A request passes through the three tasks of its connection before it is on the wire. Each of these pauses lets all
/// of them run until they have nothing to do, and looks at the socket.
const PAUSES: usize = 4;
/// The length of each.
const PAUSE: Duration = Duration::from_millis(2);

impl From<Injected> for Failure {
    fn from(injected: Injected) -> Self {
        let why = "a failure point".to_owned();
        match injected {
            Injected::Unknown => Failure::Unknown(why),
            Injected::Unreachable => Failure::Unreachable(why.into()),
            Injected::NoSpace => Failure::NoSpace(why),
        }
    }
}

/// A store with a failure point before and after each request to another store.
pub struct Failing<K>(pub K);

/// What is no request of [`Kv`] has no failure points.
impl<K> Deref for Failing<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.0
    }
}

impl<K: Kv> Failing<K> {
    async fn passing<T>(
        &self,
        name: &str,
        until: Instant,
        request: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let visit = visit(name);
        visit.pass(Boundary::Before)?;
        let mut request = pin!(request);
        let answer = match self.send(&visit, until, request.as_mut()).await? {
            Some(early) => early,
            None => request.await,
        };
        visit.pass(Boundary::Answered)?;
        answer
    }

    /// Sends the request, then passes the failure point. An answer that has come by then is returned afterwards.
    async fn send<T>(
        &self,
        visit: &Visit,
        until: Instant,
        mut request: Pin<&mut impl Future<Output = T>>,
    ) -> Result<Option<T>, Failure> {
        let mut early = None;
        if visit.is_marked(Boundary::Sent) {
            // Connects first, because the request cannot be sent without a connection.
            self.0.connect(until).await?;
            for _ in 0..PAUSES {
                if early.is_none() {
                    early = poll_once(request.as_mut()).await;
                }
                sleep(PAUSE).await;
            }
        }
        visit.pass(Boundary::Sent)?;
        Ok(early)
    }
}

async fn poll_once<T>(mut future: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    poll_fn(|context| {
        Poll::Ready(match future.as_mut().poll(context) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        })
    })
    .await
}

impl<K: Kv> Kv for Failing<K> {
    type Watch = K::Watch;

    async fn connect(&self, until: Instant) -> Result<(), Failure> {
        self.0.connect(until).await
    }

    async fn txn(&self, txn: &Txn, until: Instant) -> Result<Reply, Failure> {
        self.passing(txn.step, until, self.0.txn(txn, until)).await
    }

    async fn grant(&self, id: LeaseId, ttl: Duration, until: Instant) -> Result<Duration, Failure> {
        self.passing("grant", until, self.0.grant(id, lease(id.0, ttl), until)).await
    }

    async fn revoke(&self, id: LeaseId, until: Instant) -> Result<(), Failure> {
        self.passing("revoke", until, self.0.revoke(id, until)).await
    }

    async fn lease_age(&self, id: LeaseId, until: Instant) -> Result<Option<LeaseAge>, Failure> {
        self.passing("lease-age", until, self.0.lease_age(id, until)).await
    }

    async fn watch(&self, keys: &[Bytes], until: Instant) -> Result<Self::Watch, Failure> {
        self.passing("watch", until, self.0.watch(keys, until)).await
    }

    async fn about(&self, until: Instant) -> Result<About, Failure> {
        self.passing("about", until, self.0.about(until)).await
    }

    fn expect(&self, cluster: u64) {
        self.0.expect(cluster);
    }

    fn cluster(&self) -> Option<u64> {
        self.0.cluster()
    }

    fn has_refused(&self) -> bool {
        self.0.has_refused()
    }

    fn endpoints(&self) -> Vec<String> {
        self.0.endpoints()
    }

    async fn ask_each(&self, reads: &Txn, until: Instant, hear: &mut Hear<'_>) {
        self.0.ask_each(reads, until, hear).await;
    }

    fn leave_out(&self, places: &[usize]) {
        self.0.leave_out(places);
    }
}

impl<K: Follow> Follow for Failing<K> {
    type Changes = K::Changes;

    async fn follow(&self, prefix: &Bytes, from: i64, until: Instant) -> Result<Self::Changes, Failure> {
        self.0.follow(prefix, from, until).await
    }
}
