//! The real etcd: one endpoint per connection, and a failover loop of its own.
//!
//! etcd-client would balance over all endpoints, and its balancer prefers an endpoint that
//! refuses connections over one that is still shaking hands. Here a connection is opened to one
//! endpoint, eagerly, so that "never sent" is certain; every call has a timeout around it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::error::Error;
use std::future::Future;
use std::time::Duration;

use etcd_client as ec;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tonic::transport::Endpoint;
use tonic::{Code, Status};

use super::cause::{self, Cause, Identified, Reading};
use super::connect::{Attempts, NotOpened, Opening, next_of};
use super::pace::Pace;
use super::probe::probe;
pub use super::tls::Tls;
use metes_core::keys::{Bytes, LeaseId};
use metes_core::limits::{self, Patience};
use metes_core::txn::{Compare, Entry, Found, List, NestedReply, Op, Reply, Txn};
use metes_engine::follow::{Changes, Follow, FollowEnd, KeyChange};
use metes_engine::kv::{About, Event, Failure, Hear, Kv, LeaseAge, Voice, Watch};
use metes_engine::obstacle::{NOT_RESOLVED, Obstacle};
use metes_engine::random::{random_below, random_pause};
use metes_engine::tried::Tried;

/// The access to an etcd; everything read and checked already.
#[derive(Clone)]
pub struct Access {
    /// `http://host:port` or `https://host:port`; at least one.
    pub endpoints: Vec<String>,
    /// The certificates, for `https`.
    pub tls: Option<Tls>,
    /// User and password, where etcd does not know users by their certificates.
    pub user: Option<(String, String)>,
    /// The prefix of all keys; only to be named where etcd denies it.
    pub prefix: String,
    /// The time to try while there is no connection.
    pub patience: Patience,
}

/// A connection to one member at a time.
pub struct Etcd {
    access: Access,
    /// Counts the turns from one endpoint to the next; it selects the endpoint in use.
    turns: Cell<usize>,
    /// The attempts to connect that have failed, or were waited for in vain, since the last that stood.
    failed: Cell<usize>,
    known: RefCell<Vec<EndpointState>>,
    /// The id of the etcd that this node knows, if it knows one.
    expected: Cell<Option<u64>>,
    /// The id of the etcd whose answers count: that of the first answer that was accepted.
    home: Cell<Option<u64>>,
    pace: Pace,
    /// Held while connecting, so that two requests at the start share one connection.
    connection: Mutex<Connection>,
}

/// The connection that is used, and those that may be.
struct Connection {
    open: Option<ec::Client>,
    /// By endpoint: one on which a request had no answer in time. A busy member must not serve another handshake for
    /// that.
    left: Vec<Option<ec::Client>>,
    /// Those that are being opened while there is none.
    attempts: Attempts,
}

#[derive(Debug, Clone, Default)]
struct EndpointState {
    /// True if it has answered a request.
    has_answered: bool,
    /// True if a request to it was waited for in vain, and it has answered none since.
    was_silent: bool,
    /// The id of its etcd, as it said last.
    cluster: Option<u64>,
    /// True if nothing more is sent to it.
    is_left_out: bool,
    /// True if its connection was kept after a request without an answer. A second one is a sign that it is dead.
    is_kept: bool,
    /// Why it does not let this client in: the cause of much that follows, and often said only once.
    shut: Option<Shut>,
}

/// Why an endpoint does not let this client in.
#[derive(Debug, Clone)]
enum Shut {
    /// Until somebody changes something.
    ForGood(Cause),
    /// What TLS said; it may be another the next time.
    ForNow(String),
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

/// An attempt without an answer, with what its error says about the endpoint.
type Unanswered = (NoAnswer, Reading);

impl Etcd {
    /// Prepares; nothing is sent before the first request.
    ///
    /// The first endpoint is chosen at random, so that many runs spread over the members.
    #[must_use]
    pub fn new(access: Access) -> Self {
        let first = random_below(access.endpoints.len() as u64) as usize;
        let [turns, failed] = [first, 0].map(Cell::new);
        let known = RefCell::new(vec![EndpointState::default(); access.endpoints.len()]);
        let [expected, home] = [None, None].map(Cell::new);
        let attempts = Attempts::none(access.endpoints.len());
        let left = access.endpoints.iter().map(|_| None).collect();
        let connection = Mutex::new(Connection { open: None, left, attempts });
        Self { access, turns, failed, known, expected, home, pace: Pace::default(), connection }
    }

    /// True if etcd lets in only users that it knows. Only root may list roles then; and only an etcd without users
    /// answers an attempt to log in like that.
    ///
    /// # Errors
    /// [`Failure`], if it cannot be known.
    pub async fn asks_for_users(&self, until: Instant) -> Result<bool, Failure> {
        let asked = self.attempt(until, true, |client| async move {
            let mut auth = client.auth_client();
            if let Err(why) = auth.role_list().await {
                return says(&why, &["permission denied", "user name is empty"])
                    .map(|()| Users(true))
                    .ok_or(why);
            }
            match auth.authenticate("metes".to_owned(), String::new()).await {
                Err(why) if says(&why, &["authentication is not enabled"]).is_some() => Ok(Users(false)),
                Err(why) if says(&why, &["authentication failed"]).is_none() => Err(why),
                _ => Ok(Users(true)),
            }
        });
        asked.await.map(|Users(asked)| asked)
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
        T: Headed,
        F: Future<Output = Result<T, ec::Error>>,
    {
        self.attempt_each(limits::REQUEST_ATTEMPT, until, (again, |_| Elsewhere::Another), request).await
    }

    /// The same with so much time for each attempt. `elsewhere` says what an answer of another etcd is worth.
    async fn attempt_each<T, F>(
        &self,
        each: Duration,
        until: Instant,
        (again, elsewhere): (bool, impl Fn(&T) -> Elsewhere),
        request: impl Fn(ec::Client) -> F,
    ) -> Result<T, Failure>
    where
        T: Headed,
        F: Future<Output = Result<T, ec::Error>>,
    {
        let once = async |asked: &[bool], connected: &mut [bool]| {
            self.attempt_once((each, asked), until, connected, (&request, &elsewhere)).await
        };
        self.try_each(until, again, once).await
    }

    /// Calls `once` for one endpoint after the other. Its arguments are flags, one for each endpoint: whether it was
    /// asked in vain; and whether a connection stood, which `once` sets.
    async fn try_each<T>(
        &self,
        until: Instant,
        again: bool,
        once: impl AsyncFn(&[bool], &mut [bool]) -> Result<T, (usize, NoAnswer)>,
    ) -> Result<T, Failure> {
        let (mut tried, mut was_busy) = (Tried::new(), false);
        let mut asked: Vec<bool> = self.known.borrow().iter().map(|known| known.is_left_out).collect();
        let mut connected = vec![false; asked.len()];
        let (mut tries, mut last) = (0, String::new());
        loop {
            // Boxed: otherwise the futures around it nest too deeply for the compiler.
            let (index, attempt) = match Box::pin(once(&asked, &mut connected)).await {
                Ok(answer) => return Ok(answer),
                Err(unanswered) => unanswered,
            };
            let why = match attempt {
                NoAnswer::Final(Failure::Unknown(why)) if again => why,
                NoAnswer::Final(failure) if failure.is_open() && again => failure.to_string(),
                NoAnswer::Final(Failure::Unknown(why)) => return Err(Failure::Unknown(self.with_shut(why))),
                NoAnswer::Final(failure) => return Err(failure),
                NoAnswer::Elsewhere(why) | NoAnswer::Refused(why) => why,
            };
            // What is told of an endpoint that is shut for good is its cause.
            if self.cause(index).is_none() {
                last = why;
            }
            asked[index] = true;
            // The time that it has waited for a busy endpoint is none in which none could be reached.
            if was_busy && !self.pace.is_busy() {
                tried = Tried::new();
            }
            was_busy = self.pace.is_busy();
            let is_let_in = self.is_let_in(&connected);
            let all_shut = (0..self.access.endpoints.len()).all(|index| self.cause(index).is_some());
            let most = match (is_let_in, all_shut) {
                (true, _) => Duration::MAX,
                (false, false) if asked.contains(&false) => Duration::MAX,
                // Certificates are replaced one file after the other.
                (false, true) => self.access.patience.unreachable.min(limits::REPLACEMENT),
                (false, false) => self.pace.connecting_for(self.access.patience),
            };
            if !tried.may_go_on(most, until) {
                // An endpoint that lets this client in and does not answer is slow.
                return Err(match is_let_in {
                    true => Failure::Unknown(self.with_shut(last)),
                    false => self.unreachable(last),
                });
            }
            tries += 1;
            // The other endpoints are tried at once, the whole round again after a pause.
            if tries % self.access.endpoints.len() == 0 {
                sleep(random_pause(limits::RETRY_PAUSE)).await;
            }
        }
    }

    /// True if an endpoint has let this client in. A certificate that is refused is refused the next time too, whatever
    /// some attempts look like.
    fn is_let_in(&self, connected: &[bool]) -> bool {
        connected
            .iter()
            .zip(&*self.known.borrow())
            .any(|(connected, known)| *connected && known.shut.is_none())
    }

    /// Why this endpoint does not let this client in until somebody changes something.
    fn cause(&self, index: usize) -> Option<Cause> {
        match &self.known.borrow()[index].shut {
            Some(Shut::ForGood(cause)) => Some(cause.clone()),
            _ => None,
        }
    }

    /// The same of all endpoints, in words; none if there are no such.
    fn causes(&self) -> Option<Obstacle> {
        let endpoints = self.access.endpoints.iter().enumerate();
        let causes: Vec<_> = endpoints.filter_map(|(i, at)| Some((at.as_str(), self.cause(i)?))).collect();
        (!causes.is_empty()).then(|| self.in_words(causes.iter().map(|(at, cause)| (*at, cause))))
    }

    fn in_words<'a>(&self, causes: impl IntoIterator<Item = (&'a str, &'a Cause)>) -> Obstacle {
        cause::in_words(causes, self.access.tls.as_ref().and_then(Tls::common_name).as_deref())
    }

    /// No endpoint lets this client in: `why` of those that may the next time, which is empty if there are none.
    fn unreachable(&self, why: String) -> Failure {
        Failure::Unreachable(match self.causes() {
            Some(causes) if why.is_empty() => causes,
            Some(causes) => Obstacle::from(why).and(causes),
            None => self.with_shut(why).into(),
        })
    }

    /// Adds why endpoints do not let this client in, where the failure does not say it.
    fn with_shut(&self, why: String) -> String {
        if let Some(causes) = self.causes() {
            return if why.is_empty() { causes.what } else { format!("{why}; {causes}") };
        }
        let known = self.known.borrow();
        let mut alerts = known.iter().filter_map(|known| match &known.shut {
            Some(Shut::ForNow(alert)) => Some(alert),
            _ => None,
        });
        match alerts.next() {
            Some(alert) if !why.contains(ALERT) => {
                format!("{why}; etcd refused a connection before: {alert}")
            }
            _ => why,
        }
    }

    async fn attempt_once<T, F>(
        &self,
        (least, asked): (Duration, &[bool]),
        until: Instant,
        connected: &mut [bool],
        (request, elsewhere): (&impl Fn(ec::Client) -> F, &impl Fn(&T) -> Elsewhere),
    ) -> Result<T, (usize, NoAnswer)>
    where
        T: Headed,
        F: Future<Output = Result<T, ec::Error>>,
    {
        let (client, turn) = self.connection(until).await?;
        let index = self.index(turn);
        let is_last = asked.iter().enumerate().all(|(other, was_asked)| *was_asked || other == index);
        // An endpoint that has answered nothing yet may be silent, and another one quick.
        let EndpointState { has_answered, was_silent, .. } = self.known.borrow()[index];
        let least = if is_last || has_answered { least } else { least.min(limits::REQUEST_ATTEMPT) };
        let began = Instant::now();
        let limit = self.pace.attempt(least, until.saturating_duration_since(began), was_silent);
        let sent = self.send(client, (limit, until), index, request).await;
        let (attempt, reading) =
            match sent.and_then(|answer| self.accept(answer, (index, is_last), elsewhere)) {
                Ok(answer) => return Ok(answer),
                Err(unanswered) => unanswered,
            };
        self.learn(index, &attempt, reading, until).await;
        connected[index] |= !matches!(attempt, NoAnswer::Refused(_));
        // Whoever settles what is open asks another member: this one may be cut off.
        if !matches!(&attempt, NoAnswer::Final(failure) if !failure.is_open()) {
            self.turn_away(turn, began.elapsed() >= limit).await;
        }
        Err((index, attempt))
    }

    /// The open connection, or a new one, and its turn. Why there is none is kept.
    async fn connection(&self, until: Instant) -> Result<(ec::Client, usize), (usize, NoAnswer)> {
        match self.client(until).await {
            Ok(connection) => Ok(connection),
            Err((index, (attempt, reading))) => {
                self.learn(index, &attempt, reading, until).await;
                Err((index, attempt))
            }
        }
    }

    /// The endpoint whose turn it is.
    fn index(&self, turn: usize) -> usize {
        turn % self.access.endpoints.len()
    }

    /// Keeps why the endpoint of this index does not let this client in, if the error says so, or the endpoint itself.
    async fn learn(&self, index: usize, attempt: &NoAnswer, reading: Reading, until: Instant) {
        let has_answered = self.known.borrow()[index].has_answered;
        let cause = match reading {
            Reading::Lasting(cause) => Some(cause),
            Reading::Unclear if !has_answered => {
                let endpoint = self.access.endpoints[index].as_str();
                let is_alone = self.access.endpoints.len() == 1;
                let limit = if is_alone { limits::CONNECT_ATTEMPT_ALONE } else { limits::CONNECT_ATTEMPT };
                let until = until.min(Instant::now() + limit);
                timeout_at(until, probe(endpoint, self.tls_of(endpoint))).await.ok().flatten()
            }
            Reading::Unclear | Reading::Passing => None,
        };
        let shut = &mut self.known.borrow_mut()[index].shut;
        match (cause, attempt) {
            (Some(cause), _) => *shut = Some(Shut::ForGood(cause)),
            (None, NoAnswer::Refused(why)) if shut.is_none() && why.contains(ALERT) => {
                *shut = Some(Shut::ForNow(why.clone()));
            }
            _ => {}
        }
    }

    /// Sends one request to the endpoint of this index. It may take `most`.
    async fn send<T, F>(
        &self,
        client: ec::Client,
        (most, until): (Duration, Instant),
        index: usize,
        request: &impl Fn(ec::Client) -> F,
    ) -> Result<T, Unanswered>
    where
        F: Future<Output = Result<T, ec::Error>>,
    {
        let began = Instant::now();
        let limit = until.min(began + most);
        match timeout_at(limit, request(client)).await {
            Ok(Ok(answer)) => {
                self.pace.answered(began.elapsed());
                self.has_answered(index);
                Ok(answer)
            }
            Ok(Err(e)) => Err(self.judge(index, e)),
            Err(_) => {
                let endpoint = &self.access.endpoints[index];
                let why = match limit < until {
                    true => format!("{endpoint}: no answer in {} ms", most.as_millis()),
                    // What was left of the time may be next to nothing, and says nothing about etcd.
                    false => format!("{endpoint}: no answer until the time was over"),
                };
                Err((NoAnswer::Final(Failure::Unknown(why)), Reading::Passing))
            }
        }
    }

    /// Takes an answer that counts. One of another etcd than the known one does not count as long as another endpoint
    /// may answer; if none is of the known etcd, the caller judges what it says.
    fn accept<T: Headed>(
        &self,
        answer: T,
        (index, is_last): (usize, bool),
        elsewhere: &impl Fn(&T) -> Elsewhere,
    ) -> Result<T, Unanswered> {
        let Some(cluster) = answer.cluster().filter(|id| *id != 0) else { return Ok(answer) };
        self.known.borrow_mut()[index].cluster = Some(cluster);
        let expected = self.home.get().or(self.expected.get());
        let may_judge = self.home.get().is_none() && is_last;
        match elsewhere(&answer) {
            _ if expected.is_none_or(|expected| expected == cluster) => {}
            Elsewhere::Decided => {}
            Elsewhere::Another if may_judge => {}
            Elsewhere::Another | Elsewhere::Nothing => {
                let endpoint = &self.access.endpoints[index];
                let why = format!(
                    "{endpoint} is of another etcd (cluster id {cluster:x}) than the one in use (cluster id {:x})",
                    expected.unwrap_or_default()
                );
                tracing::warn!("an endpoint is skipped: {why}");
                return Err((NoAnswer::Elsewhere(why), Reading::Passing));
            }
        }
        if self.home.get().is_none() {
            self.home.set(Some(cluster));
        }
        Ok(answer)
    }

    /// What endpoints have refused says nothing any more. Whoever has named the others wrongly reads it in the log.
    fn has_answered(&self, index: usize) {
        let mut known = self.known.borrow_mut();
        // If it was shut, it has been corrected meanwhile.
        known[index] = EndpointState {
            has_answered: true,
            was_silent: false,
            is_kept: false,
            shut: None,
            ..known[index]
        };
        for (endpoint, known) in self.access.endpoints.iter().zip(&mut *known) {
            if let Some(Shut::ForGood(cause)) = known.shut.take() {
                let Obstacle { what, remedy } = self.in_words([(endpoint.as_str(), &cause)]);
                tracing::warn!(
                    "an endpoint of etcd cannot be used, and another one serves: {what}; {remedy}"
                );
            }
        }
    }

    /// The open connection, or the first that stands of those to the endpoint whose turn it is and to those whose turn
    /// it was; and its turn. A failure has the index of its endpoint.
    async fn client(&self, until: Instant) -> Result<(ec::Client, usize), (usize, Unanswered)> {
        let mut connection = self.connection.lock().await;
        let Connection { open, left, attempts } = &mut *connection;
        let count = self.access.endpoints.len();
        for _ in 0..count {
            let index = self.index(self.turns.get());
            if !self.known.borrow()[index].is_left_out {
                break;
            }
            (*open, *attempts) = (None, Attempts::none(count));
            self.turns.set(self.turns.get().wrapping_add(1));
        }
        let turn = self.turns.get();
        let index = self.index(turn);
        *open = open.take().or_else(|| left[index].take());
        if let Some(client) = open {
            return Ok((client.clone(), turn));
        }
        // Before the lock is let go: a request that waits for it must not wait for the same endpoint once more.
        let pass_on = || {
            self.turns.set(turn.wrapping_add(1));
            self.failed.set(self.failed.get().saturating_add(1));
        };
        if !attempts.is_under_way(index) {
            match self.opening(index) {
                Ok(opening) => attempts.begin(index, opening),
                Err(wrong) => {
                    pass_on();
                    return Err((index, wrong));
                }
            }
        }
        // If none accepts a connection in time it is the network or this machine that is slow.
        let is_last = self.failed.get() >= count - 1;
        let limit = if is_last { limits::CONNECT_ATTEMPT_ALONE } else { limits::CONNECT_ATTEMPT };
        let left_until = || until.saturating_duration_since(Instant::now());
        let limit = limit.min(left_until());
        let mut ended = timeout(limit, attempts.next()).await;
        if ended.is_err() && !is_last && attempts.accepted(index).is_some() {
            // It is busy. A second handshake at once would make the others as busy.
            let more = limits::HANDSHAKE_ALONE.saturating_sub(limits::CONNECT_ATTEMPT).min(left_until());
            ended = timeout(more, attempts.next()).await;
        }
        self.pace.note_busy(attempts.is_any_accepted());
        match ended {
            Ok((first, Ok((client, took)))) => {
                *attempts = Attempts::none(count);
                self.pace.connected(took);
                self.failed.set(0);
                let turn = turn.wrapping_add((first + count - index) % count);
                self.turns.set(turn);
                self.known.borrow_mut()[first].is_kept = false;
                *open = Some(client.clone());
                Ok((client, turn))
            }
            Ok((failed, Err(why))) => {
                if failed == index {
                    pass_on();
                }
                Err((failed, self.not_opened(failed, why)))
            }
            Err(_) => {
                pass_on();
                let endpoint = &self.access.endpoints[index];
                let or_name = if has_name(endpoint) { NOT_RESOLVED } else { "" };
                let why = match attempts.accepted(index) {
                    Some(began) => format!(
                        "{endpoint} has accepted a connection {} ms ago, and the handshake is not over: it is \
                         overloaded, or hangs",
                        began.elapsed().as_millis()
                    ),
                    None => format!("{endpoint}: no connection in {} ms{or_name}", limit.as_millis()),
                };
                Err((index, (NoAnswer::Refused(why), Reading::Passing)))
            }
        }
    }

    fn opening(&self, index: usize) -> Result<Opening, Unanswered> {
        let endpoint = self.channel(&self.access.endpoints[index])?;
        let mut options = ec::ConnectOptions::new().with_require_leader(true);
        if let Some((user, password)) = &self.access.user {
            options = options.with_user(user, password);
        }
        Ok(Opening { endpoint, options })
    }

    fn not_opened(&self, index: usize, why: NotOpened) -> Unanswered {
        match why {
            NotOpened::Transport(e) => {
                let why = format!("{}: {}", self.access.endpoints[index], causes(&e));
                (NoAnswer::Refused(why), cause::read(&e, self.has_certificate()))
            }
            NotOpened::Login(e) => match self.judge(index, e) {
                // It was the login that got no answer, and nothing else was sent.
                (NoAnswer::Final(Failure::Unknown(why)), reading) => (NoAnswer::Refused(why), reading),
                judged => judged,
            },
        }
    }

    fn channel(&self, endpoint: &str) -> Result<Endpoint, Unanswered> {
        let wrong =
            |e: tonic::transport::Error| (NoAnswer::Final(Failure::Refused(causes(&e))), Reading::Passing);
        let channel = Endpoint::from_shared(endpoint.to_owned()).map_err(wrong)?;
        match self.tls_of(endpoint) {
            Some(tls) => channel.tls_config(tls.transport()).map_err(wrong),
            None => Ok(channel),
        }
    }

    /// The TLS files, if the endpoint is to speak it.
    fn tls_of(&self, endpoint: &str) -> Option<&Tls> {
        self.access.tls.as_ref().filter(|_| endpoint.starts_with("https://"))
    }

    fn has_certificate(&self) -> bool {
        self.access.tls.as_ref().is_some_and(|tls| tls.identity.is_some())
    }

    /// Leaves the endpoint of `turn`, unless another request has done so: the next request goes to the next endpoint.
    /// The connection is kept for its next turn if its member `may_be_busy`, but not twice without an answer.
    async fn turn_away(&self, turn: usize, may_be_busy: bool) {
        let mut connection = self.connection.lock().await;
        if self.turns.get() == turn {
            let index = self.index(turn);
            let EndpointState { was_silent, is_kept, .. } = &mut self.known.borrow_mut()[index];
            if may_be_busy {
                self.pace.unanswered();
                *was_silent = true;
            }
            *is_kept = may_be_busy && !*is_kept;
            connection.left[index] = connection.open.take().filter(|_| *is_kept);
            self.turns.set(turn.wrapping_add(1));
        }
    }

    /// What an error of etcd's means: whether it was applied, and whether another try makes sense.
    ///
    /// The words are those of etcd's `rpctypes`; its status codes alone do not tell.
    fn judge(&self, index: usize, error: ec::Error) -> Unanswered {
        let ec::Error::GRpcStatus(status) = error else {
            return (NoAnswer::Final(Failure::Refused(error.to_string())), Reading::Passing);
        };
        let endpoint = &self.access.endpoints[index];
        let text = status.message();
        let says = |words: &str| text.contains(words);
        let why = text.to_owned();
        if let Some(source) = status.source() {
            // It is not etcd that says this.
            let full = format!("{endpoint}: {}", causes(&status));
            let reading = cause::read(source, self.has_certificate());
            // A client may send before the server has judged its certificate: nothing was read of it.
            return match full.contains(ALERT) {
                true => (NoAnswer::Refused(full), reading),
                false => (NoAnswer::Final(Failure::Unknown(full)), reading),
            };
        }
        if says("no leader") || says("too many requests") || says("auth store is old") {
            return (NoAnswer::Elsewhere(why), Reading::Passing);
        }
        let not_here = |cause| (NoAnswer::Refused(format!("{endpoint}: {why}")), Reading::Lasting(cause));
        // A learner has applied nothing of it, and says the same to every request but its status.
        if says("rpc not supported for learner") {
            return not_here(Cause::Learner);
        }
        if cause::is_not_etcd(text) {
            return not_here(Cause::NotEtcd);
        }
        let denied = || Failure::Denied(cause::denied(text, &self.identified(), &self.access.prefix));
        let failure = match status.code() {
            _ if says("requested lease not found") => Failure::LeaseNotFound,
            _ if says("lease already exists") => Failure::LeaseExists,
            _ if says("database space exceeded") => Failure::NoSpace(why),
            _ if says("corrupt cluster") => Failure::Corrupt(why),
            _ if says("has been compacted") => Failure::Compacted,
            Code::PermissionDenied | Code::Unauthenticated => denied(),
            Code::InvalidArgument | Code::FailedPrecondition
                if says("user name is empty") || says("authentication") =>
            {
                denied()
            }
            Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange | Code::Unimplemented => {
                Failure::Refused(why)
            }
            Code::NotFound | Code::AlreadyExists => Failure::Refused(why),
            code => Failure::Unknown(if why.is_empty() { format!("{code:?}") } else { why }),
        };
        (NoAnswer::Final(failure), Reading::Passing)
    }

    /// What the endpoint answers to these reads. They are linearizable: a member without a quorum does not answer, nor
    /// does a learner.
    async fn voice(&self, reads: &Txn, until: Instant) -> Result<Voice, Failure> {
        let answer = self
            .attempt(until, true, |client| async move { client.kv_client().txn(to_etcd(reads)).await })
            .await?;
        let ids = answer.header().map(|header| (header.cluster_id(), header.member_id()));
        let (cluster, member) = ids.unwrap_or_default();
        Ok(Voice { cluster, member, reply: from_etcd(answer) })
    }

    /// An error does not say of which etcd it is. So an endpoint that knows no lease is asked for its cluster, because
    /// another etcd never had the lease.
    async fn confirm_no_lease(&self, lease: LeaseId, until: Instant) -> Result<(), Failure> {
        match self.lease_age(lease, until).await? {
            None => Ok(()),
            Some(_) => {
                Err(Failure::Unknown("another etcd has said that the lease does not exist".to_owned()))
            }
        }
    }

    /// As whom etcd knows this client: a user that is named goes before a certificate.
    fn identified(&self) -> Identified {
        let by_certificate =
            || self.access.tls.as_ref().and_then(Tls::common_name).map(Identified::Certificate);
        let user = self.access.user.as_ref().map(|(user, _)| Identified::User(user.clone()));
        user.or_else(by_certificate).unwrap_or(Identified::Nobody)
    }
}

/// What an answer of another etcd than the one in use is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Elsewhere {
    /// It was applied, so its compares have decided: it is the answer.
    Decided,
    /// Another endpoint is asked; if none is of the etcd in use, it is the answer.
    Another,
    /// It is no answer.
    Nothing,
}

/// An answer of etcd that says of which cluster it is.
trait Headed {
    fn cluster(&self) -> Option<u64>;
}

macro_rules! headed {
    ($($answer:ident),*) => {$(
        impl Headed for ec::$answer {
            fn cluster(&self) -> Option<u64> {
                self.header().map(ec::ResponseHeader::cluster_id)
            }
        }
    )*};
}

headed!(TxnResponse, LeaseGrantResponse, LeaseRevokeResponse, LeaseTimeToLiveResponse, StatusResponse);

/// True if etcd asks for users.
struct Users(bool);

impl Headed for Users {
    fn cluster(&self) -> Option<u64> {
        None
    }
}

/// Something if etcd's answer has one of these words.
fn says(why: &ec::Error, words: &[&str]) -> Option<()> {
    let ec::Error::GRpcStatus(status) = why else { return None };
    words.iter().any(|words| status.message().contains(words)).then_some(())
}

impl Headed for EtcdWatch {
    fn cluster(&self) -> Option<u64> {
        Some(self.cluster)
    }
}

/// The changes of a prefix say it with each of them; only commands for people follow them.
impl Headed for ec::WatchStream {
    fn cluster(&self) -> Option<u64> {
        None
    }
}

impl Kv for Etcd {
    type Watch = EtcdWatch;

    async fn connect(&self, until: Instant) -> Result<(), Failure> {
        self.try_each(until, true, async |_, _| self.connection(until).await.map(|_| ())).await
    }

    async fn txn(&self, txn: &Txn, until: Instant) -> Result<Reply, Failure> {
        if !txn.fits() {
            let why =
                format!("the transaction needs more than {} operations, or is too large", limits::TXN_OPS);
            return Err(Failure::Refused(why));
        }
        let each = if txn.is_walk { limits::WALK_ATTEMPT } else { limits::REQUEST_ATTEMPT };
        let elsewhere = |answer: &ec::TxnResponse| match txn.branch(answer.succeeded()).iter().any(Op::writes)
        {
            _ if txn.settles => Elsewhere::Nothing,
            true => Elsewhere::Decided,
            false => Elsewhere::Another,
        };
        let again = txn.only_reads() || txn.settles;
        self.attempt_each(each, until, (again, elsewhere), |client| async move {
            let mut kv = client.kv_client().max_decoding_message_size(limits::REPLY_BYTES);
            kv.txn(to_etcd(txn)).await
        })
        .await
        .map(from_etcd)
    }

    async fn grant(&self, lease: LeaseId, ttl: Duration, until: Instant) -> Result<Duration, Failure> {
        let ttl = ttl.as_secs() as i64;
        let options = ec::LeaseGrantOptions::new().with_id(lease.0);
        let granted = self.attempt(until, false, |client| {
            let options = options.clone();
            async move { client.lease_client().grant(ttl, Some(options)).await }
        });
        Ok(Duration::from_secs(u64::try_from(granted.await?.ttl()).unwrap_or_default()))
    }

    async fn revoke(&self, lease: LeaseId, until: Instant) -> Result<(), Failure> {
        let revoked =
            self.attempt(until, true, |client| async move { client.lease_client().revoke(lease.0).await });
        match revoked.await {
            Ok(_) => Ok(()),
            Err(Failure::LeaseNotFound) => self.confirm_no_lease(lease, until).await,
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

    fn expect(&self, cluster: u64) {
        self.expected.set(Some(cluster).filter(|id| *id != 0));
    }

    fn cluster(&self) -> Option<u64> {
        self.home.get()
    }

    fn has_refused(&self) -> bool {
        let own = self.home.get().or(self.expected.get());
        let is_other = |id: u64| own.is_some_and(|own| own != id);
        self.known.borrow().iter().any(|known| known.shut.is_some() || known.cluster.is_some_and(is_other))
    }

    fn endpoints(&self) -> Vec<String> {
        self.access.endpoints.clone()
    }

    fn leave_out(&self, places: &[usize]) {
        let mut known = self.known.borrow_mut();
        for place in places {
            tracing::warn!(
                "an endpoint is left out: {} has forgotten what this node has seen, and another one has not",
                self.access.endpoints[*place]
            );
            known[*place].is_left_out = true;
        }
        // Its etcd may have been the one in use.
        self.home.set(None);
    }

    async fn ask_each(&self, reads: &Txn, until: Instant, hear: &mut Hear<'_>) {
        if self.access.endpoints.len() == 1 {
            hear(0, self.voice(reads, until).await);
            return;
        }
        // Each by a client of its own: it waits, tries again and names causes as for any request.
        let alone = |endpoint: &String| {
            Etcd::new(Access { endpoints: vec![endpoint.clone()], ..self.access.clone() })
        };
        let clients: Vec<Etcd> = self.access.endpoints.iter().map(alone).collect();
        let mut asked: Vec<_> =
            clients.iter().map(|client| Some(Box::pin(client.voice(reads, until)))).collect();
        // A client that gives up at its deadline still says why.
        let mut wait_until = until + limits::CONNECT_ATTEMPT;
        for _ in &clients {
            let Ok((place, voice)) = timeout_at(wait_until, next_of(&mut asked)).await else { return };
            match hear(place, voice) {
                None => return,
                Some(sooner) if sooner < until => wait_until = sooner,
                Some(_) => {}
            }
        }
    }

    async fn about(&self, until: Instant) -> Result<About, Failure> {
        let status = self
            .attempt(until, true, |client| async move { client.maintenance_client().status().await })
            .await?;
        Ok(About {
            version: status.version().to_owned(),
            errors: status.errors().to_vec(),
            cluster: status.header().map_or(0, ec::ResponseHeader::cluster_id),
            member: status.header().map_or(0, ec::ResponseHeader::member_id),
            leader: status.leader(),
        })
    }
}

/// Watches on keys of a real etcd, on one stream.
pub struct EtcdWatch {
    /// None if no key was to be watched, or not all can be.
    stream: Option<ec::WatchStream>,
    since: i64,
    /// The id of the etcd that has confirmed them.
    cluster: u64,
    /// Events that etcd has shown and nobody has taken.
    shown: VecDeque<Event>,
}

impl EtcdWatch {
    /// Returns when etcd has confirmed a watch on each key.
    async fn open(client: &ec::Client, keys: &[Bytes]) -> Result<Self, ec::Error> {
        let mut watch = Self { stream: None, since: 0, cluster: 0, shown: VecDeque::new() };
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
                watch.cluster = answer.header().map_or(0, ec::ResponseHeader::cluster_id);
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

/// The words of rustls for an alert from the other side.
const ALERT: &str = "received fatal alert";

/// What tonic says of every error of a connection, before its cause.
const SAYS_NOTHING: &str = "transport error";

/// The chain of causes of an error, outermost first, without repetition.
fn causes(error: &(dyn Error + 'static)) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let said = match error.downcast_ref::<Status>() {
            Some(status) => status.message().to_owned(),
            None => error.to_string(),
        };
        if said != SAYS_NOTHING && !words.last().is_some_and(|last| last.ends_with(&said)) {
            words.push(said);
        }
        next = error.source();
    }
    words.join(": ")
}

fn to_etcd(txn: &Txn) -> ec::Txn {
    let compares: Vec<_> = txn.compares.iter().map(compare_to_etcd).collect();
    let ops = |ops: &[Op]| ops.iter().map(op_to_etcd).collect::<Vec<_>>();
    ec::Txn::new().when(compares).and_then(ops(&txn.then)).or_else(ops(&txn.otherwise))
}

fn compare_to_etcd(compare: &Compare) -> ec::Compare {
    let equal = ec::CompareOp::Equal;
    // etcd knows no "at least". For a key that does not exist it compares 0.
    let before = |revision: &i64| revision.saturating_sub(1);
    match compare {
        Compare::Create(key, revision) => ec::Compare::create_revision(key.clone(), equal, *revision),
        Compare::Mod(key, revision) => ec::Compare::mod_revision(key.clone(), equal, *revision),
        Compare::NotOlder(key, revision) => {
            ec::Compare::mod_revision(key.clone(), ec::CompareOp::Greater, before(revision))
        }
        Compare::Older(key, revision) => {
            ec::Compare::mod_revision(key.clone(), ec::CompareOp::Less, *revision)
        }
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

impl Follow for Etcd {
    type Changes = EtcdChanges;

    async fn follow(&self, prefix: &Bytes, from: i64, until: Instant) -> Result<EtcdChanges, Failure> {
        let options = ec::WatchOptions::new().with_prefix().with_prev_key().with_start_revision(from);
        self.attempt(until, true, |client| {
            let options = options.clone();
            async move { client.watch_client().watch(prefix.clone(), Some(options)).await }
        })
        .await
        .map(EtcdChanges)
    }
}

/// The changes of a prefix of a real etcd.
pub struct EtcdChanges(ec::WatchStream);

impl Changes for EtcdChanges {
    async fn next(&mut self) -> Result<Vec<KeyChange>, FollowEnd> {
        let answer = self.0.message().await.ok().flatten().ok_or(FollowEnd::Lost)?;
        match answer.compact_revision() {
            0 if answer.canceled() => Err(FollowEnd::Lost),
            0 => Ok(answer.events().iter().filter_map(key_change).collect()),
            first => Err(FollowEnd::Compacted(first)),
        }
    }
}

fn key_change(event: &ec::Event) -> Option<KeyChange> {
    let kv = event.kv()?;
    let is_put = event.event_type() == ec::EventType::Put;
    Some(KeyChange {
        revision: kv.mod_revision(),
        key: kv.key().to_vec(),
        before: event.prev_kv().map(|before| before.value().to_vec()),
        after: is_put.then(|| kv.value().to_vec()),
    })
}
/// True if an endpoint is named by a name, and not by an address.
fn has_name(endpoint: &str) -> bool {
    let host = endpoint.parse::<tonic::transport::Uri>().ok().and_then(|uri| uri.host().map(str::to_owned));
    host.is_some_and(|host| host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_err())
}
