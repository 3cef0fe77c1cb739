//! The real etcd: one endpoint per connection, and a failover loop of its own.
//!
//! etcd-client would balance over all endpoints, and its balancer prefers an endpoint that
//! refuses connections over one that is still shaking hands. Here a connection is opened to one
//! endpoint, eagerly, so that "never sent" is certain; every call has a timeout around it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::time::Duration;

use etcd_client as ec;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout};
use tonic::Code;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use super::keys::{Bytes, LeaseId};
use super::kv::{About, Event, Failure, Kv, LeaseAge, Watch};
use super::tried::Tried;
use super::txn::{Compare, Entry, Found, List, NestedReply, Op, Reply, Txn};
use crate::limits;
use crate::random::{random_below, random_pause};

/// How to reach an etcd; everything read and checked already.
#[derive(Clone)]
pub struct Access {
    /// `http://host:port` or `https://host:port`; at least one.
    pub endpoints: Vec<String>,
    /// The certificates, for `https`.
    pub tls: Option<Tls>,
    /// User and password, where etcd does not know users by their certificates.
    pub user: Option<(String, String)>,
    /// How long to try while no endpoint accepts a connection.
    pub give_up: Duration,
}

/// What TLS needs, as PEM.
#[derive(Clone)]
pub struct Tls {
    /// The certificates of the authorities that sign etcd's.
    pub ca: Vec<u8>,
    /// This client's certificate and key.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// The name in etcd's certificate, if it is not the endpoint's host.
    pub server_name: Option<String>,
}

impl Tls {
    /// Whether the files belong together: a certificate and its key are replaced one after the other.
    ///
    /// # Errors
    /// What does not fit, without any of its content.
    pub fn check(&self) -> Result<(), String> {
        let checked = Endpoint::from_static("https://localhost").tls_config(self.config());
        checked.map(|_| ()).map_err(|e| causes(&e))
    }

    fn config(&self) -> ClientTlsConfig {
        let mut config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&self.ca));
        if let Some((cert, key)) = &self.identity {
            config = config.identity(Identity::from_pem(cert, key));
        }
        if let Some(name) = &self.server_name {
            config = config.domain_name(name);
        }
        config
    }
}

/// A connection to one member at a time.
pub struct Etcd {
    access: Access,
    /// Counts the turns from one endpoint to the next; it selects the endpoint in use.
    turns: Cell<usize>,
    /// How many attempts to connect have failed since the last that did not.
    failed: Cell<usize>,
    /// What TLS said where an endpoint refused a connection, for each endpoint: the cause of much that follows, and
    /// often said only once.
    alerts: RefCell<Vec<Option<String>>>,
    /// Held while connecting, so that two requests at the start share one connection.
    client: Mutex<Option<ec::Client>>,
}

/// Why one attempt has brought no answer.
enum NoAnswer {
    /// Certainly not applied; another endpoint, or the same one later, may do it.
    Elsewhere(String),
    /// Certainly not applied: there is no connection, or TLS refused it after it seemed to stand.
    Refused(String),
    /// It ends here.
    Final(Failure),
}

impl Etcd {
    /// Prepares; nothing is sent before the first request.
    ///
    /// The first endpoint is chosen at random, so that many runs spread over the members.
    #[must_use]
    pub fn new(access: Access) -> Self {
        let first = random_below(access.endpoints.len() as u64) as usize;
        let [turns, failed] = [first, 0].map(Cell::new);
        let alerts = RefCell::new(vec![None; access.endpoints.len()]);
        Self { access, turns, failed, alerts, client: Mutex::new(None) }
    }

    /// Tries `request` on one endpoint after the other until it is answered or `until` is near.
    ///
    /// `again` says whether an attempt whose outcome is open may be repeated.
    async fn attempt<T, F>(
        &self,
        until: Instant,
        again: bool,
        request: impl Fn(ec::Client) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, ec::Error>>,
    {
        let mut tried = Tried::new();
        let mut connected = vec![false; self.access.endpoints.len()];
        let mut tries = 0;
        loop {
            let why = match self.attempt_once(until, &mut connected, &request).await {
                Ok(answer) => return Ok(answer),
                Err(NoAnswer::Final(failure)) if failure.is_open() && again => failure.to_string(),
                Err(NoAnswer::Final(failure)) => return Err(self.with_alert(failure)),
                Err(NoAnswer::Elsewhere(why) | NoAnswer::Refused(why)) => why,
            };
            let is_let_in = self.is_let_in(&connected);
            let most = if is_let_in { Duration::MAX } else { self.access.give_up };
            if !tried.may_go_on(most, until) {
                // An endpoint that lets this client in and does not answer is slow.
                let failure = if is_let_in { Failure::Unknown(why) } else { Failure::Unreachable(why) };
                return Err(self.with_alert(failure));
            }
            tries += 1;
            // The other endpoints are tried at once, the whole round again after a pause.
            if tries % self.access.endpoints.len() == 0 {
                sleep(random_pause(limits::RETRY_PAUSE)).await;
            }
        }
    }

    /// Whether an endpoint has let this client in. A certificate that is refused is refused the next time too, whatever
    /// some attempts look like.
    fn is_let_in(&self, connected: &[bool]) -> bool {
        connected.iter().zip(&*self.alerts.borrow()).any(|(connected, alert)| *connected && alert.is_none())
    }

    /// Adds the cause to a failure that does not name it.
    fn with_alert(&self, failure: Failure) -> Failure {
        let alerts = self.alerts.borrow();
        let add = |why: String| match alerts.iter().flatten().next() {
            Some(alert) if !why.contains(ALERT) => {
                format!("{why}; etcd refused a connection before: {alert}")
            }
            _ => why,
        };
        match failure {
            Failure::Unreachable(why) => Failure::Unreachable(add(why)),
            Failure::Unknown(why) => Failure::Unknown(add(why)),
            other => other,
        }
    }

    async fn attempt_once<T, F>(
        &self,
        until: Instant,
        connected: &mut [bool],
        request: &impl Fn(ec::Client) -> F,
    ) -> Result<T, NoAnswer>
    where
        F: Future<Output = Result<T, ec::Error>>,
    {
        let (client, turn) = self.client(until).await?;
        let index = turn % self.access.endpoints.len();
        let attempt = match self.send(client, until, index, request).await {
            Ok(answer) => return Ok(answer),
            Err(attempt) => attempt,
        };
        connected[index] |= !matches!(attempt, NoAnswer::Refused(_));
        // Whoever settles what is open asks another member: this one may be cut off.
        if !matches!(&attempt, NoAnswer::Final(failure) if !failure.is_open()) {
            self.turn_away(turn).await;
        }
        Err(attempt)
    }

    /// Sends one request to the endpoint of this index.
    async fn send<T, F>(
        &self,
        client: ec::Client,
        until: Instant,
        index: usize,
        request: &impl Fn(ec::Client) -> F,
    ) -> Result<T, NoAnswer>
    where
        F: Future<Output = Result<T, ec::Error>>,
    {
        let left = until.saturating_duration_since(Instant::now()).min(limits::REQUEST_ATTEMPT);
        match timeout(left, request(client)).await {
            Ok(Ok(answer)) => {
                // What another member has refused says nothing any more.
                self.alerts.borrow_mut().fill(None);
                Ok(answer)
            }
            Ok(Err(e)) => {
                let attempt = judge(e);
                if let NoAnswer::Refused(why) = &attempt {
                    self.alerts.borrow_mut()[index] = Some(why.clone());
                }
                Err(attempt)
            }
            Err(_) => {
                let why = format!("{}: no answer in {} ms", self.access.endpoints[index], left.as_millis());
                Err(NoAnswer::Final(Failure::Unknown(why)))
            }
        }
    }

    /// The open connection, or a new one to the endpoint whose turn it is; and that turn.
    async fn client(&self, until: Instant) -> Result<(ec::Client, usize), NoAnswer> {
        let mut open = self.client.lock().await;
        let turn = self.turns.get();
        if let Some(client) = &*open {
            return Ok((client.clone(), turn));
        }
        let others = self.access.endpoints.len() - 1;
        // If none accepts a connection in time it is the network or this machine that is slow.
        let is_last = self.failed.get() >= others;
        let limit = if is_last { limits::CONNECT_ATTEMPT_ALONE } else { limits::CONNECT_ATTEMPT };
        let limit = limit.min(until.saturating_duration_since(Instant::now()));
        let connected = match timeout(limit, self.open()).await {
            Ok(connected) => connected,
            Err(_) => Err(NoAnswer::Refused(format!("no connection in {} ms", limit.as_millis()))),
        };
        let client = connected.map_err(|attempt| {
            let endpoint = self.endpoint();
            // Before the lock is let go: who waits for it must not wait for the same endpoint once more.
            self.turns.set(turn.wrapping_add(1));
            self.failed.set(self.failed.get().saturating_add(1));
            match attempt {
                NoAnswer::Refused(why) => NoAnswer::Refused(format!("{endpoint}: {why}")),
                other => other,
            }
        })?;
        self.failed.set(0);
        *open = Some(client.clone());
        Ok((client, turn))
    }

    async fn open(&self) -> Result<ec::Client, NoAnswer> {
        let channel = self.channel()?.connect().await.map_err(|e| NoAnswer::Refused(causes(&e)))?;
        let mut options = ec::ConnectOptions::new().with_require_leader(true);
        if let Some((user, password)) = &self.access.user {
            options = options.with_user(user, password);
        }
        ec::Client::from_channel(ec::Channel::Tonic(channel), Some(options)).await.map_err(judge)
    }

    fn channel(&self) -> Result<Endpoint, NoAnswer> {
        let wrong = |e: tonic::transport::Error| NoAnswer::Final(Failure::Refused(causes(&e)));
        let endpoint = Endpoint::from_shared(self.endpoint().to_owned()).map_err(wrong)?.tcp_nodelay(true);
        let Some(tls) = &self.access.tls else { return Ok(endpoint) };
        endpoint.tls_config(tls.config()).map_err(wrong)
    }

    fn endpoint(&self) -> &str {
        &self.access.endpoints[self.turns.get() % self.access.endpoints.len()]
    }

    /// Leaves the endpoint of `turn`, unless another request has done so: the next request goes to
    /// the next endpoint.
    async fn turn_away(&self, turn: usize) {
        let mut open = self.client.lock().await;
        if self.turns.get() == turn {
            *open = None;
            self.turns.set(turn.wrapping_add(1));
        }
    }
}

impl Kv for Etcd {
    type Watch = EtcdWatch;

    async fn connect(&self, until: Instant) {
        // Why it failed, and whether another endpoint will do, is the requests' business.
        let _ = self.client(until).await;
    }

    async fn txn(&self, txn: &Txn, until: Instant) -> Result<Reply, Failure> {
        if !txn.fits() {
            let why =
                format!("the transaction needs more than {} operations, or is too large", limits::TXN_OPS);
            return Err(Failure::Refused(why));
        }
        let reads = txn.only_reads();
        self.attempt(until, reads, |client| async move {
            let mut kv = client.kv_client().max_decoding_message_size(limits::REPLY_BYTES);
            kv.txn(to_etcd(txn)).await
        })
        .await
        .map(from_etcd)
    }

    async fn grant(&self, lease: LeaseId, ttl: Duration, until: Instant) -> Result<(), Failure> {
        let ttl = ttl.as_secs() as i64;
        let options = ec::LeaseGrantOptions::new().with_id(lease.0);
        self.attempt(until, false, |client| {
            let options = options.clone();
            async move { client.lease_client().grant(ttl, Some(options)).await }
        })
        .await
        .map(|_| ())
    }

    async fn revoke(&self, lease: LeaseId, until: Instant) -> Result<(), Failure> {
        let revoked =
            self.attempt(until, true, |client| async move { client.lease_client().revoke(lease.0).await });
        match revoked.await {
            Ok(_) | Err(Failure::LeaseNotFound) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    async fn lease_age(&self, lease: LeaseId, until: Instant) -> Result<Option<LeaseAge>, Failure> {
        let told =
            self.attempt(until, true, |client| async move {
                client.lease_client().time_to_live(lease.0, None).await
            })
            .await?;
        // etcd answers for a lease that does not exist too, with a negative rest.
        let seconds = |s: i64| u64::try_from(s).ok().map(Duration::from_secs);
        // It tells whole seconds and leaves the rest out: of an age that is too small nobody comes to harm.
        let rounded_up = |left: Duration| left + Duration::from_secs(1);
        Ok(seconds(told.ttl())
            .zip(seconds(told.granted_ttl()))
            .map(|(left, granted)| LeaseAge { granted, left: rounded_up(left).min(granted) }))
    }

    async fn watch(&self, keys: &[Bytes], until: Instant) -> Result<EtcdWatch, Failure> {
        self.attempt(until, true, |client| async move { EtcdWatch::open(&client, keys).await }).await
    }

    async fn about(&self, until: Instant) -> Result<About, Failure> {
        let status = self
            .attempt(until, true, |client| async move { client.maintenance_client().status().await })
            .await?;
        Ok(About {
            version: status.version().to_owned(),
            errors: status.errors().to_vec(),
            has_leader: status.leader() != 0,
        })
    }
}

/// Watches on keys of a real etcd, on one stream.
pub struct EtcdWatch {
    /// None if no key was to be watched, or not all can be.
    stream: Option<ec::WatchStream>,
    since: i64,
    /// What etcd has shown and nobody has taken.
    shown: VecDeque<Event>,
}

impl EtcdWatch {
    /// Returns when etcd has confirmed a watch on each key.
    async fn open(client: &ec::Client, keys: &[Bytes]) -> Result<Self, ec::Error> {
        let mut watch = Self { stream: None, since: 0, shown: VecDeque::new() };
        let Some((first, others)) = keys.split_first() else { return Ok(watch) };
        let stream = watch.stream.insert(client.watch_client().watch(first.clone(), None).await?);
        for key in others {
            stream.watch(key.clone(), None).await?;
        }
        let mut confirmed = 0;
        while confirmed < keys.len()
            && let Some(stream) = &mut watch.stream
        {
            let answer = stream.message().await?;
            if let Some(answer) = answer.as_ref().filter(|answer| answer.created()) {
                confirmed += 1;
                watch.since = watch.since.max(answer.header().map_or(0, ec::ResponseHeader::revision));
            }
            watch.take(answer);
        }
        Ok(watch)
    }

    /// Takes what etcd says; none if the stream has ended.
    fn take(&mut self, answer: Option<ec::WatchResponse>) {
        let Some(answer) = answer.filter(|answer| !answer.canceled()) else {
            self.stream = None;
            return;
        };
        self.shown.extend(answer.events().iter().filter_map(|event| {
            let kv = event.kv()?;
            let is_put = event.event_type() == ec::EventType::Put;
            Some(Event { key: kv.key().to_vec(), entry: is_put.then(|| entry(kv)) })
        }));
    }
}

impl Watch for EtcdWatch {
    fn since(&self) -> i64 {
        self.since
    }

    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.shown.pop_front() {
                return Some(event);
            }
            let answer = self.stream.as_mut()?.message().await;
            self.take(answer.unwrap_or_default());
        }
    }
}

/// What rustls says of an alert from the other side.
const ALERT: &str = "received fatal alert";

/// What an error of etcd's means: whether it was applied, and whether another try makes sense.
///
/// The words are those of etcd's `rpctypes`; its status codes alone do not tell.
fn judge(error: ec::Error) -> NoAnswer {
    let ec::Error::GRpcStatus(status) = error else {
        return NoAnswer::Final(Failure::Refused(error.to_string()));
    };
    let text = status.message();
    let says = |words: &str| text.contains(words);
    let why = text.to_owned();
    let full = causes_of_status(&status);
    if full.contains(ALERT) {
        // A client may send before the server has judged its certificate: nothing was read of it.
        return NoAnswer::Refused(full);
    }
    if says("no leader") || says("too many requests") || says("auth store is old") {
        return NoAnswer::Elsewhere(why);
    }
    NoAnswer::Final(match status.code() {
        _ if says("requested lease not found") => Failure::LeaseNotFound,
        _ if says("lease already exists") => Failure::LeaseExists,
        _ if says("database space exceeded") => Failure::NoSpace(why),
        _ if says("corrupt cluster") => Failure::Corrupt(why),
        _ if says("has been compacted") => Failure::Compacted,
        Code::PermissionDenied | Code::Unauthenticated => Failure::Denied(why),
        Code::InvalidArgument if says("user name is empty") || says("authentication") => Failure::Denied(why),
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange | Code::Unimplemented => {
            Failure::Refused(why)
        }
        Code::NotFound | Code::AlreadyExists => Failure::Refused(why),
        code => Failure::Unknown(if why.is_empty() { format!("{code:?}") } else { full }),
    })
}

fn causes_of_status(status: &tonic::Status) -> String {
    match std::error::Error::source(status) {
        Some(source) => format!("{}: {}", status.message(), causes(source)),
        None => status.message().to_owned(),
    }
}

/// The chain of causes of an error, outermost first, without repetition.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let words = cause.to_string();
        if !text.ends_with(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        next = cause.source();
    }
    text
}

fn to_etcd(txn: &Txn) -> ec::Txn {
    let compares: Vec<_> = txn.compares.iter().map(compare_to_etcd).collect();
    let ops = |ops: &[Op]| ops.iter().map(op_to_etcd).collect::<Vec<_>>();
    ec::Txn::new().when(compares).and_then(ops(&txn.then)).or_else(ops(&txn.otherwise))
}

fn compare_to_etcd(compare: &Compare) -> ec::Compare {
    let equal = ec::CompareOp::Equal;
    match compare {
        Compare::Create(key, revision) => ec::Compare::create_revision(key.clone(), equal, *revision),
        Compare::Mod(key, revision) => ec::Compare::mod_revision(key.clone(), equal, *revision),
        Compare::Value(key, value) => ec::Compare::value(key.clone(), equal, value.clone()),
        Compare::Empty(prefix) => ec::Compare::create_revision(prefix.clone(), equal, 0).with_prefix(),
    }
}

fn op_to_etcd(op: &Op) -> ec::TxnOp {
    match op {
        Op::Get(key) => ec::TxnOp::get(key.clone(), None),
        Op::List(list) => ec::TxnOp::get(list.start.clone(), Some(list_options(list))),
        Op::Tickets(queue, limit) => ec::TxnOp::get(queue.clone(), Some(tickets_options(*limit))),
        Op::Put(key, value, lease) => {
            let options = lease.map(|lease| ec::PutOptions::new().with_lease(lease.0));
            ec::TxnOp::put(key.clone(), value.clone(), options)
        }
        Op::Delete(key) => ec::TxnOp::delete(key.clone(), None),
        Op::Nested(txn) => ec::TxnOp::txn(to_etcd(txn)),
    }
}

fn list_options(list: &List) -> ec::GetOptions {
    let options = ec::GetOptions::new()
        .with_range(list.end.clone())
        .with_limit(list.limit)
        .with_revision(list.revision);
    if list.keys_only { options.with_keys_only() } else { options }
}

fn tickets_options(limit: i64) -> ec::GetOptions {
    let (by, order) = (ec::SortTarget::Create, ec::SortOrder::Ascend);
    ec::GetOptions::new().with_prefix().with_sort(by, order).with_limit(limit)
}

fn from_etcd(answer: ec::TxnResponse) -> Reply {
    let revision = answer.header().map_or(0, ec::ResponseHeader::revision);
    let NestedReply { succeeded, found } = nested_from_etcd(&answer);
    Reply { succeeded, revision, found }
}

fn nested_from_etcd(answer: &ec::TxnResponse) -> NestedReply {
    let found = answer.op_responses().into_iter().map(|response| match response {
        ec::TxnOpResponse::Get(got) => Found::read(got.kvs().iter().map(entry).collect(), got.count()),
        ec::TxnOpResponse::Txn(inner) => Found { nested: Some(nested_from_etcd(&inner)), ..Found::default() },
        _ => Found::default(),
    });
    NestedReply { succeeded: answer.succeeded(), found: found.collect() }
}

fn entry(kv: &ec::KeyValue) -> Entry {
    Entry {
        key: kv.key().to_vec(),
        value: kv.value().to_vec(),
        create_revision: kv.create_revision(),
        mod_revision: kv.mod_revision(),
        lease: kv.lease(),
    }
}
