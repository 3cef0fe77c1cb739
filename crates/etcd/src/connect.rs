//! Connections that are being opened: to one endpoint beside the other, until the first stands.
//!
//! A slow attempt is not given up while it may still succeed. A member that is overloaded would shake hands for nothing
//! with a client that has left, and once more when it comes back: of thousands of clients that come at once, none would
//! get a connection. So the next endpoint is tried beside the slow one, as RFC 8305 ("Happy Eyeballs") does it with
//! addresses; but later than there if the slow one has accepted the connection: it is busy, and each further
//! handshake makes it busier. An attempt that the endpoint has not accepted costs it nothing, and is soon begun anew:
//! its host may have come back, or have another address.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use etcd_client as ec;
use hyper_util::client::legacy::connect::HttpConnector;
use tokio::time::Instant;
use tonic::transport::Endpoint;
use tower::ServiceExt;

use metes_core::limits;

/// All that is needed for a connection to one endpoint.
pub(crate) struct Opening {
    pub(crate) endpoint: Endpoint,
    /// With a user, it logs in.
    pub(crate) options: ec::ConnectOptions,
}

/// Why there is no connection.
pub(crate) enum NotOpened {
    /// None stands.
    Transport(tonic::transport::Error),
    /// The user could not log in.
    Login(ec::Error),
}

/// The attempts that are under way: one for each endpoint, at most.
pub(crate) struct Attempts(Vec<Option<Attempt>>);

struct Attempt {
    began: Instant,
    /// True as soon as the endpoint has accepted the connection; its handshake comes then.
    is_accepted: Arc<AtomicBool>,
    opening: Pin<Box<dyn Future<Output = Opened>>>,
}

type Opened = Result<ec::Client, NotOpened>;

impl Opening {
    /// Opens it. `is_accepted` is set as soon as the endpoint has accepted the connection.
    pub(crate) async fn open(self, is_accepted: Arc<AtomicBool>) -> Opened {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        let noted = tcp.map_response(move |stream| {
            is_accepted.store(true, Ordering::Relaxed);
            stream
        });
        let channel = self.endpoint.connect_with_connector(noted).await.map_err(NotOpened::Transport)?;
        let client = ec::Client::from_channel(ec::Channel::Tonic(channel), Some(self.options)).await;
        client.map_err(NotOpened::Login)
    }
}

impl Future for Attempt {
    type Output = Result<(ec::Client, Duration), NotOpened>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let began = self.began;
        let opened = self.opening.as_mut().poll(context);
        opened.map(|opened| opened.map(|client| (client, began.elapsed())))
    }
}

/// The output of the next that ends, with its index. It is taken out. Those that are left get on only during another
/// call; without any, it waits forever.
pub(crate) async fn next_of<F: Future + Unpin>(running: &mut [Option<F>]) -> (usize, F::Output) {
    poll_fn(|context| {
        for (index, place) in running.iter_mut().enumerate() {
            let Some(future) = place else { continue };
            if let Poll::Ready(output) = Pin::new(future).poll(context) {
                *place = None;
                return Poll::Ready((index, output));
            }
        }
        Poll::Pending
    })
    .await
}

impl Attempts {
    /// None yet, for so many endpoints.
    pub(crate) fn none(endpoints: usize) -> Self {
        Self((0..endpoints).map(|_| None).collect())
    }

    /// True if one to the endpoint of this index is under way which may still succeed.
    pub(crate) fn is_under_way(&self, index: usize) -> bool {
        let most = match self.accepted(index) {
            Some(_) => limits::HANDSHAKE_ATTEMPT,
            None => limits::CONNECT_ATTEMPT_ALONE,
        };
        self.0[index].as_ref().is_some_and(|attempt| attempt.began.elapsed() < most)
    }

    /// Begins one, in place of one that was under way for too long.
    pub(crate) fn begin(&mut self, index: usize, opening: Opening) {
        let is_accepted = Arc::new(AtomicBool::new(false));
        let opening = Box::pin(opening.open(is_accepted.clone()));
        self.0[index] = Some(Attempt { began: Instant::now(), is_accepted, opening });
    }

    /// The next that ends, with the index of its endpoint, and the time that a connection took.
    pub(crate) async fn next(&mut self) -> (usize, Result<(ec::Client, Duration), NotOpened>) {
        next_of(&mut self.0).await
    }

    /// When that to the endpoint of this index began, if the endpoint has accepted the connection.
    pub(crate) fn accepted(&self, index: usize) -> Option<Instant> {
        let attempt = self.0[index].as_ref()?;
        attempt.is_accepted.load(Ordering::Relaxed).then_some(attempt.began)
    }

    /// True if any endpoint has accepted a connection whose handshake is not over.
    pub(crate) fn is_any_accepted(&self) -> bool {
        (0..self.0.len()).any(|index| self.accepted(index).is_some())
    }
}
