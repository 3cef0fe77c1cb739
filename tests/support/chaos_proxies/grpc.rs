//! A proxy before an etcd into which a test puts faults, one request at a time. It speaks HTTP/2 to both sides, hands
//! gRPC's bytes on as they are, and leaves alone all requests that no rule concerns. Watches pass through it.
//!
//! A request that has come whole is carried out whatever becomes of its client, as etcd does with one that was
//! proposed.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, request};
use metes_engine::random::split_mix;
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tonic::Code;

use super::wire::{Call, Kind, Verdict};
use super::{Serving, target};
use crate::wait_for;

const STRUCK_MAX: Duration = Duration::from_secs(30);
/// No answer of a test's etcd is larger, so nobody waits for a window.
const WINDOW_BYTES: u32 = 4 << 20;

/// On drop it closes every connection and forgets the requests that it holds back.
pub struct GrpcProxy {
    shared: Arc<GrpcShared>,
    serving: Serving,
}

/// A request that a rule has struck.
#[derive(Clone, Debug)]
pub struct Struck {
    pub call: Call,
    /// The verdict of etcd each time that it was handed on.
    pub verdicts: Vec<Verdict>,
}

impl GrpcProxy {
    /// Before an etcd without TLS, `http://HOST:PORT`.
    pub fn before(endpoint: &str) -> Self {
        let shared = Arc::new(GrpcShared {
            target: target(endpoint),
            rules: Mutex::default(),
            seen: Mutex::default(),
            struck: Mutex::default(),
        });
        let of_connections = Arc::clone(&shared);
        // Broken connections are the purpose of a proxy.
        let serving = Serving::start(move |socket| serve(Arc::clone(&of_connections), socket));
        Self { shared, serving }
    }

    /// The address for clients.
    pub fn endpoint(&self) -> String {
        self.serving.endpoint()
    }

    /// Adds a rule. A request obeys the first rule that concerns it; each rule counts it.
    pub fn rule(&self, rule: GrpcRule) -> &Self {
        assert!(rule.action.is_some(), "a rule says what happens");
        self.shared.rules.lock().expect("no rule panics").push(rule);
        self
    }

    /// Takes all rules away. Requests that hang or are held go on so.
    pub fn clear(&self) -> &Self {
        self.shared.rules.lock().expect("no rule panics").clear();
        self
    }

    /// The number of requests of a kind that have come.
    pub fn count(&self, kind: Kind) -> usize {
        self.shared.seen.lock().expect("nobody panics with it").iter().filter(|seen| **seen == kind).count()
    }

    /// Every request that a rule has struck, in the order of arrival.
    pub fn struck(&self) -> Vec<Struck> {
        self.shared.struck.lock().expect("nobody panics with it").clone()
    }

    /// Waits until rules have struck so often.
    #[track_caller]
    pub fn wait_struck(&self, times: usize) -> Vec<Struck> {
        wait_for(&format!("{times} requests to be struck"), STRUCK_MAX, || {
            let struck = self.struck();
            if struck.len() >= times { Ok(struck) } else { Err(format!("so far: {struck:?}")) }
        })
    }

    /// Waits until etcd has judged every struck request that was handed on or will be.
    #[track_caller]
    pub fn wait_judged(&self, times: usize) -> Vec<Verdict> {
        wait_for(&format!("{times} verdicts"), STRUCK_MAX * 2, || {
            let struck = self.struck();
            let verdicts: Vec<Verdict> = struck.iter().flat_map(|one| one.verdicts.clone()).collect();
            if verdicts.len() >= times { Ok(verdicts) } else { Err(format!("so far: {struck:?}")) }
        })
    }
}

/// A rule: the requests that it strikes, and their treatment: `GrpcRule::of(Kind::Commit).nth(1).lose(Loss::Reset)`.
pub struct GrpcRule {
    kind: Option<Kind>,
    predicate: Option<Predicate>,
    which: Which,
    seen: u32,
    action: Option<Treatment>,
}

type Predicate = Box<dyn FnMut(&Call) -> bool + Send>;

enum Which {
    All,
    Nth(u32),
    Every(u32),
    /// As many in a thousand, by a generator of this state.
    Chance(u64, u64),
}

/// The ways in which an answer gets lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The connection is reset.
    Reset,
    /// Nothing comes, and the connection stays.
    Silence,
}

#[derive(Clone)]
enum Treatment {
    Refuse(Code, String),
    Claim(Code, String),
    Lose(Loss),
    Delay(Duration),
    Hold(Gate),
    Twice,
    Stall,
}

impl GrpcRule {
    /// Requests of one kind.
    pub fn of(kind: Kind) -> Self {
        Self { kind: Some(kind), ..Self::any() }
    }

    /// Every request.
    pub fn any() -> Self {
        Self { kind: None, predicate: None, which: Which::All, seen: 0, action: None }
    }

    /// Only those that this says yes to.
    pub fn when(mut self, predicate: impl FnMut(&Call) -> bool + Send + 'static) -> Self {
        self.predicate = Some(Box::new(predicate));
        self
    }

    /// Only those that write a key with this in its name.
    pub fn writing(self, part: &str) -> Self {
        let part = part.to_owned();
        self.when(move |call| call.written.iter().any(|key| key.contains(&part)))
    }

    /// Only the nth of all that it would concern, from 1 on.
    pub fn nth(self, nth: u32) -> Self {
        Self { which: Which::Nth(nth), ..self }
    }

    /// Only each nth.
    pub fn every(self, nth: u32) -> Self {
        Self { which: Which::Every(nth), ..self }
    }

    /// So many in a thousand, chosen by `seed`.
    pub fn chance(self, per_mille: u64, seed: u64) -> Self {
        Self { which: Which::Chance(per_mille, seed), ..self }
    }

    /// Answers with an error, and does not hand it on.
    pub fn refuse(self, code: Code, text: &str) -> Self {
        self.act(Treatment::Refuse(code, text.to_owned()))
    }

    /// Hands it on, and answers with an error, whatever etcd says.
    pub fn claim(self, code: Code, text: &str) -> Self {
        self.act(Treatment::Claim(code, text.to_owned()))
    }

    /// Hands it on, and does not answer.
    pub fn lose(self, loss: Loss) -> Self {
        self.act(Treatment::Lose(loss))
    }

    /// Hands it on later, whether its client still waits or not.
    pub fn delay(self, pause: Duration) -> Self {
        self.act(Treatment::Delay(pause))
    }

    /// Hands it on when the gate is opened.
    pub fn hold(self, gate: &Gate) -> Self {
        self.act(Treatment::Hold(gate.clone()))
    }

    /// Hands it on twice, one after the other, and answers with the first answer.
    pub fn twice(self) -> Self {
        self.act(Treatment::Twice)
    }

    /// Neither hands it on nor answers.
    pub fn stall(self) -> Self {
        self.act(Treatment::Stall)
    }

    fn act(self, action: Treatment) -> Self {
        Self { action: Some(action), ..self }
    }

    /// Counts the request if it is one of its kind, and tells whether it is the one.
    fn concerns(&mut self, call: &Call) -> bool {
        let is_alike = self.kind.is_none_or(|kind| kind == call.kind)
            && self.predicate.as_mut().is_none_or(|predicate| predicate(call));
        if !is_alike {
            return false;
        }
        self.seen += 1;
        match &mut self.which {
            Which::All => true,
            Which::Nth(nth) => self.seen == *nth,
            Which::Every(nth) => self.seen.is_multiple_of(*nth),
            Which::Chance(per_mille, state) => next_random(state) % 1000 < *per_mille,
        }
    }
}

/// The next number of a generator, which is the same for the same seed everywhere.
pub fn next_random(state: &mut u64) -> u64 {
    let number;
    (*state, number) = split_mix(*state);
    number
}

/// Holds requests back until it is opened; then it is open for good.
#[derive(Clone, Debug)]
pub struct Gate(Arc<watch::Sender<bool>>);

impl Gate {
    pub fn shut() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }

    pub fn open(&self) {
        self.0.send_replace(true);
    }

    async fn pass(&self) {
        let mut state = self.0.subscribe();
        // The sender lives as long as this gate.
        let _ = state.wait_for(|is_open| *is_open).await;
    }
}

struct GrpcShared {
    target: SocketAddr,
    rules: Mutex<Vec<GrpcRule>>,
    seen: Mutex<Vec<Kind>>,
    struck: Mutex<Vec<Struck>>,
}

impl GrpcShared {
    /// Every rule counts the request, also where an earlier one decides.
    fn decide(&self, call: &Call) -> Option<(usize, Treatment)> {
        self.seen.lock().expect("nobody panics with it").push(call.kind);
        let mut decided = None;
        for rule in self.rules.lock().expect("no rule panics").iter_mut() {
            if rule.concerns(call) && decided.is_none() {
                decided.clone_from(&rule.action);
            }
        }
        let action = decided?;
        let mut struck = self.struck.lock().expect("nobody panics with it");
        struck.push(Struck { call: call.clone(), verdicts: Vec::new() });
        Some((struck.len() - 1, action))
    }

    fn judged(&self, index: usize, call: &Call, answer: &WholeAnswer) {
        let verdict = answer.verdict(call);
        self.struck.lock().expect("nobody panics with it")[index].verdicts.push(verdict);
    }
}

/// A connection broke, or a stream was given up: somebody's business, but not a test's.
struct Broken;

impl<E: std::error::Error> From<E> for Broken {
    fn from(_: E) -> Self {
        Self
    }
}

/// All requests of one connection, each in a task of its own; it ends with the connection.
async fn serve(shared: Arc<GrpcShared>, socket: TcpStream) -> Result<(), Broken> {
    socket.set_nodelay(true)?;
    // Closed by this side, it is reset.
    socket.set_zero_linger()?;
    let server = TcpStream::connect(shared.target).await?;
    server.set_nodelay(true)?;
    let mut settings = h2::client::Builder::new();
    settings.initial_window_size(WINDOW_BYTES).initial_connection_window_size(WINDOW_BYTES);
    let (sender, connection) = settings.handshake::<_, Bytes>(server).await?;
    let broken = Arc::new(Notify::new());
    let ended = Arc::clone(&broken);
    tokio::spawn(async move {
        let _ = connection.await;
        ended.notify_one();
    });
    let mut settings = h2::server::Builder::new();
    settings.initial_window_size(WINDOW_BYTES).initial_connection_window_size(WINDOW_BYTES);
    let mut client = settings.handshake::<_, Bytes>(socket).await?;
    loop {
        let next = tokio::select! {
            next = client.accept() => next,
            () = broken.notified() => None,
        };
        let Some(next) = next else { return Ok(()) };
        let (request, respond) = next?;
        let exchange =
            Exchange { shared: Arc::clone(&shared), sender: sender.clone(), broken: Arc::clone(&broken) };
        tokio::spawn(exchange.carry(request, respond));
    }
}

/// One request and its answer.
struct Exchange {
    shared: Arc<GrpcShared>,
    sender: h2::client::SendRequest<Bytes>,
    /// Notified, the client's connection is reset.
    broken: Arc<Notify>,
}

/// A whole answer.
struct WholeAnswer {
    head: Response<()>,
    body: Bytes,
    trailers: Option<HeaderMap>,
}

impl Exchange {
    async fn carry(mut self, request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
        let (head, body) = request.into_parts();
        let done = match Call::is_stream(head.uri.path()) {
            true => self.stream(head, body, respond).await,
            false => match self.unary(head, body).await {
                Ok(Some(answer)) => answer.send(&mut respond),
                Ok(None) => {
                    // Kept open for as long as the client's patience lasts: dropped, it would be reset.
                    std::future::poll_fn(|context| respond.poll_reset(context))
                        .await
                        .map(|_| ())
                        .map_err(Broken::from)
                }
                Err(broken) => Err(broken),
            },
        };
        if done.is_err() {
            self.broken.notify_one();
        }
    }

    /// The answer for the client, or none.
    async fn unary(&mut self, head: request::Parts, body: RecvStream) -> Result<Option<WholeAnswer>, Broken> {
        let (body, _) = collect(body).await?;
        let call = Call::read(head.uri.path(), &body);
        let Some((index, action)) = self.shared.decide(&call) else {
            return self.forward(&head, &body).await.map(Some);
        };
        match &action {
            Treatment::Refuse(code, text) => return Ok(Some(WholeAnswer::error(*code, text))),
            Treatment::Stall => return Ok(None),
            Treatment::Delay(pause) => tokio::time::sleep(*pause).await,
            Treatment::Hold(gate) => gate.pass().await,
            Treatment::Claim(..) | Treatment::Lose(_) | Treatment::Twice => {}
        }
        let answer = self.forward(&head, &body).await?;
        self.shared.judged(index, &call, &answer);
        match action {
            Treatment::Claim(code, text) => Ok(Some(WholeAnswer::error(code, &text))),
            Treatment::Lose(Loss::Silence) => Ok(None),
            Treatment::Lose(Loss::Reset) => Err(Broken),
            Treatment::Twice => {
                let second = self.forward(&head, &body).await?;
                self.shared.judged(index, &call, &second);
                Ok(Some(answer))
            }
            _ => Ok(Some(answer)),
        }
    }

    async fn forward(&mut self, head: &request::Parts, body: &Bytes) -> Result<WholeAnswer, Broken> {
        let mut sender = self.sender.clone().ready().await?;
        let (answer, mut sending) = sender.send_request(request_like(head), false)?;
        sending.send_data(body.clone(), true)?;
        let (head, body) = answer.await?.into_parts();
        let (body, trailers) = collect(body).await?;
        Ok(WholeAnswer { head: Response::from_parts(head, ()), body, trailers })
    }

    /// Hands on each part as it comes, both ways, until one side ends.
    async fn stream(
        &mut self,
        head: request::Parts,
        body: RecvStream,
        mut respond: SendResponse<Bytes>,
    ) -> Result<(), Broken> {
        let call = Call::read(head.uri.path(), &[]);
        let mut loses = None;
        match self.shared.decide(&call).map(|(_, action)| action) {
            Some(Treatment::Refuse(code, text) | Treatment::Claim(code, text)) => {
                return WholeAnswer::error(code, &text).send(&mut respond);
            }
            Some(Treatment::Stall) => {
                std::future::poll_fn(|context| respond.poll_reset(context)).await?;
                return Ok(());
            }
            Some(Treatment::Delay(pause)) => tokio::time::sleep(pause).await,
            Some(Treatment::Hold(gate)) => gate.pass().await,
            Some(Treatment::Lose(loss)) => loses = Some(loss),
            Some(Treatment::Twice) | None => {}
        }
        let mut sender = self.sender.clone().ready().await?;
        let (answer, sending) = sender.send_request(request_like(&head), false)?;
        let there = pump(body, sending);
        let back = async {
            let (head, body) = answer.await?.into_parts();
            match loses {
                Some(Loss::Reset) => return Err(Broken),
                Some(Loss::Silence) => return std::future::pending().await,
                None => {}
            }
            let ends = body.is_end_stream();
            let sending = respond.send_response(Response::from_parts(head, ()), ends)?;
            if ends { Ok(()) } else { pump(body, sending).await }
        };
        tokio::pin!(there, back);
        tokio::select! {
            done = &mut back => done,
            done = &mut there => match done {
                // The client has said all; the answer goes on.
                Ok(()) => back.await,
                // It has given up, which ends etcd's side with this function.
                Err(Broken) => Ok(()),
            },
        }
    }
}

impl WholeAnswer {
    /// gRPC's answer without a message.
    fn error(code: Code, text: &str) -> Self {
        let mut head = Response::new(());
        *head.status_mut() = StatusCode::OK;
        let headers = head.headers_mut();
        headers.insert("content-type", HeaderValue::from_static("application/grpc"));
        headers.insert("grpc-status", HeaderValue::from(code as i32));
        headers.insert("grpc-message", HeaderValue::from_str(text).expect("a message of plain letters"));
        Self { head, body: Bytes::new(), trailers: None }
    }

    fn send(self, respond: &mut SendResponse<Bytes>) -> Result<(), Broken> {
        let ends = self.body.is_empty() && self.trailers.is_none();
        let mut sending = respond.send_response(self.head, ends)?;
        if ends {
            return Ok(());
        }
        sending.send_data(self.body, self.trailers.is_none())?;
        self.trailers.map_or(Ok(()), |trailers| Ok(sending.send_trailers(trailers)?))
    }

    fn verdict(&self, call: &Call) -> Verdict {
        // Where there is no message the trailers travel as headers.
        let said = |name| {
            let value = self.trailers.as_ref().and_then(|trailers| trailers.get(name));
            let value = value.or_else(|| self.head.headers().get(name));
            value.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).unwrap_or_default()
        };
        match said("grpc-status").as_str() {
            "0" => call.verdict(&self.body),
            _ => Verdict::Refused(said("grpc-message")),
        }
    }
}

fn request_like(head: &request::Parts) -> Request<()> {
    let mut request = Request::new(());
    *request.method_mut() = head.method.clone();
    *request.uri_mut() = head.uri.clone();
    *request.version_mut() = head.version;
    *request.headers_mut() = head.headers.clone();
    request
}

async fn collect(mut body: RecvStream) -> Result<(Bytes, Option<HeaderMap>), Broken> {
    let mut whole = BytesMut::new();
    while let Some(part) = body.data().await {
        let part = part?;
        body.flow_control().release_capacity(part.len())?;
        whole.extend_from_slice(&part);
    }
    Ok((whole.freeze(), body.trailers().await?))
}

async fn pump(mut from: RecvStream, mut to: SendStream<Bytes>) -> Result<(), Broken> {
    while let Some(part) = from.data().await {
        let part = part?;
        from.flow_control().release_capacity(part.len())?;
        to.send_data(part, false)?;
    }
    match from.trailers().await? {
        Some(trailers) => to.send_trailers(trailers)?,
        None => to.send_data(Bytes::new(), true)?,
    }
    Ok(())
}

impl fmt::Debug for GrpcProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrpcProxy").field("address", &self.serving.address).finish_non_exhaustive()
    }
}
