//! The wire that connects the processes of a world with its store and its cluster.
//!
//! A process asks, and its future waits until the world has answered; in between the world decides the fate of the
//! request. Nothing else is shared between the processes and the world.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use metes_core::keys::{Bytes, LeaseId};
use metes_core::txn::{Reply, Txn};
use metes_engine::kv::{About, Event, Failure, Hear, Kv, LeaseAge, Voice, Watch};
use metes_engine::random::random_below;
use metes_reconciler::api::{Api, ApiError, ClaimList, Node, Phase, Pod, PodFilter};
use tokio::time::Instant;

use super::ids::ProcessId;
use super::process::Outcome;

/// The requests of a process.
#[derive(Debug, Clone)]
pub(crate) enum Ask {
    Txn(Txn),
    Grant(LeaseId, Duration),
    Revoke(LeaseId),
    Age(LeaseId),
    Watch(Vec<Bytes>),
    About,
    ClusterUid,
    Pods(PodFilter),
    Nodes,
    /// By its name, in the only namespace that there is.
    Pod(String),
}

/// The answer to a request of a process.
#[derive(Debug)]
pub(crate) enum Answer {
    Reply(Result<Reply, Failure>),
    Done(Result<(), Failure>),
    Granted(Result<Duration, Failure>),
    Age(Result<Option<LeaseAge>, Failure>),
    /// With the revision from which on it shows changes.
    Watch(Result<(WatchId, i64), Failure>),
    About(Result<About, Failure>),
    ClusterUid(Result<String, ApiError>),
    Pods(Result<Vec<Pod>, ApiError>),
    Nodes(Result<Vec<Node>, ApiError>),
    Pod(Result<Option<(Pod, Phase)>, ApiError>),
}

impl Ask {
    pub(crate) fn failed(&self, failure: Failure) -> Answer {
        match self {
            Ask::Txn(_) => Answer::Reply(Err(failure)),
            Ask::Grant(..) => Answer::Granted(Err(failure)),
            Ask::Revoke(_) => Answer::Done(Err(failure)),
            Ask::Age(_) => Answer::Age(Err(failure)),
            Ask::Watch(_) => Answer::Watch(Err(failure)),
            Ask::About => Answer::About(Err(failure)),
            Ask::ClusterUid => Answer::ClusterUid(Err(api_error("read the namespace kube-system"))),
            Ask::Pods(_) => Answer::Pods(Err(api_error("list pods"))),
            Ask::Nodes => Answer::Nodes(Err(api_error("list nodes"))),
            Ask::Pod(_) => Answer::Pod(Err(api_error("read a pod"))),
        }
    }

    pub(crate) fn is_of_api(&self) -> bool {
        matches!(self, Ask::ClusterUid | Ask::Pods(_) | Ask::Nodes | Ask::Pod(_))
    }

    /// True if it changes the store.
    pub(crate) fn writes(&self) -> bool {
        match self {
            Ask::Txn(txn) => !txn.only_reads(),
            Ask::Grant(..) | Ask::Revoke(_) => true,
            _ => false,
        }
    }
}

fn api_error(asked: &str) -> ApiError {
    ApiError { asked: asked.to_owned(), why: "the world lets it fail".to_owned() }
}

/// One request under way. It leads nowhere when the process does not wait any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AskId(usize, u64);

/// One watch. It leads nowhere when the watch was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WatchId(usize, u64);

/// A request that was just made.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) id: AskId,
    pub(crate) process: ProcessId,
    /// The place of the endpoint that it goes to.
    pub(crate) at: usize,
    pub(crate) ask: Ask,
    pub(crate) until: Instant,
}

#[derive(Debug, Default)]
struct Slot<T> {
    use_number: u64,
    used: bool,
    state: Option<T>,
    waker: Option<Waker>,
}

/// Slots that are used again, told apart by how often they were.
#[derive(Debug)]
struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<usize>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slots<T> {
    fn open(&mut self) -> (usize, u64) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { use_number: 0, used: false, state: None, waker: None });
            self.slots.len() - 1
        });
        let slot = &mut self.slots[index];
        slot.use_number += 1;
        slot.used = true;
        (index, slot.use_number)
    }

    fn of(&mut self, index: usize, use_number: u64) -> Option<&mut Slot<T>> {
        self.slots.get_mut(index).filter(|slot| slot.used && slot.use_number == use_number)
    }

    fn close(&mut self, index: usize, use_number: u64) {
        if let Some(slot) = self.of(index, use_number) {
            slot.used = false;
            slot.state = None;
            slot.waker = None;
            self.free.push(index);
        }
    }

    /// Sets the state and takes the waker, if there is one. None if nobody is there to hear it.
    fn tell(&mut self, index: usize, use_number: u64, state: T) -> Option<Option<Waker>> {
        let slot = self.of(index, use_number)?;
        slot.state = Some(state);
        Some(slot.waker.take())
    }
}

/// The requests and watches that processes wait for, and the outcomes that they have reported.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    asks: RefCell<Slots<Answer>>,
    watches: RefCell<Slots<VecDeque<Option<Event>>>>,
    sent: RefCell<Vec<Sent>>,
    reported: RefCell<Vec<(ProcessId, Outcome)>>,
}

impl Wire {
    /// The requests that were made since it was called last.
    pub(crate) fn take_sent(&self, into: &mut Vec<Sent>) {
        into.append(&mut self.sent.borrow_mut());
    }

    /// The outcomes that were reported since the last call.
    pub(crate) fn take_reported(&self) -> Vec<(ProcessId, Outcome)> {
        std::mem::take(&mut self.reported.borrow_mut())
    }

    /// A process reports how it has ended.
    pub(crate) fn report(&self, process: ProcessId, outcome: Outcome) {
        self.reported.borrow_mut().push((process, outcome));
    }

    /// True if anybody waits for the answer.
    pub(crate) fn is_awaited(&self, id: AskId) -> bool {
        self.asks.borrow_mut().of(id.0, id.1).is_some()
    }

    /// Answers, if anybody waits for it.
    pub(crate) fn answer(&self, id: AskId, answer: Answer) {
        let told = self.asks.borrow_mut().tell(id.0, id.1, answer);
        if let Some(Some(waker)) = told {
            waker.wake();
        }
    }

    /// A watch that somebody will wait for.
    pub(crate) fn open_watch(&self) -> WatchId {
        let (index, use_number) = self.watches.borrow_mut().open();
        WatchId(index, use_number)
    }

    /// True if somebody still has the watch.
    pub(crate) fn is_watched(&self, id: WatchId) -> bool {
        self.watches.borrow_mut().of(id.0, id.1).is_some()
    }

    /// Lets a watch show something, or its end.
    pub(crate) fn show(&self, id: WatchId, event: Option<Event>) {
        let mut watches = self.watches.borrow_mut();
        let Some(slot) = watches.of(id.0, id.1) else { return };
        slot.state.get_or_insert_default().push_back(event);
        if let Some(waker) = slot.waker.take() {
            waker.wake();
        }
    }
}

/// The id of every etcd.
pub(crate) const CLUSTER_ID: u64 = 1;

/// One process's end of the wire. Like a client, it stays with an endpoint as long as that answers.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    wire: Rc<Wire>,
    process: ProcessId,
    /// The endpoint in use.
    at: Cell<usize>,
    /// By endpoint, true if nothing more is sent to it.
    left_out: RefCell<Vec<bool>>,
}

/// For requests to Kubernetes: the pass that makes them ends them.
const FOR_EVER: Duration = Duration::from_secs(3600);

impl Line {
    /// A process that may ask so many endpoints.
    pub(crate) fn new(wire: Rc<Wire>, process: ProcessId, endpoints: usize) -> Self {
        let at = if endpoints > 1 { random_below(endpoints as u64) as usize } else { 0 };
        Self { wire, process, at: Cell::new(at), left_out: RefCell::new(vec![false; endpoints]) }
    }

    fn ask(&self, ask: Ask, until: Instant) -> Asked {
        self.ask_at(self.at.get(), ask, until)
    }

    fn ask_at(&self, at: usize, ask: Ask, until: Instant) -> Asked {
        let (index, use_number) = self.wire.asks.borrow_mut().open();
        let id = AskId(index, use_number);
        self.wire.sent.borrow_mut().push(Sent { id, process: self.process, at, ask, until });
        Asked { wire: self.wire.clone(), id }
    }

    /// The next request goes to the next endpoint, if this one has not answered.
    fn turn_from<T>(&self, answer: Result<T, Failure>) -> Result<T, Failure> {
        if matches!(answer, Err(Failure::Unreachable(_) | Failure::Unknown(_))) {
            self.turn();
        }
        answer
    }

    fn turn(&self) {
        let left_out = self.left_out.borrow();
        let next = (1..=left_out.len()).map(|by| (self.at.get() + by) % left_out.len());
        self.at.set(next.clone().find(|at| !left_out[*at]).unwrap_or(self.at.get()));
    }

    fn ask_api(&self, ask: Ask) -> Asked {
        self.ask(ask, Instant::now() + FOR_EVER)
    }
}

/// Waits for an answer.
struct Asked {
    wire: Rc<Wire>,
    id: AskId,
}

impl Future for Asked {
    type Output = Answer;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        let mut asks = self.wire.asks.borrow_mut();
        let slot = asks.of(self.id.0, self.id.1).expect("it is open until it is dropped");
        match slot.state.take() {
            Some(answer) => Poll::Ready(answer),
            None => {
                slot.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.wire.asks.borrow_mut().close(self.id.0, self.id.1);
    }
}

/// Waits for changes.
pub(crate) struct Watching {
    wire: Rc<Wire>,
    id: WatchId,
    since: i64,
    has_ended: bool,
}

impl Watch for Watching {
    fn since(&self) -> i64 {
        self.since
    }

    async fn next(&mut self) -> Option<Event> {
        if self.has_ended {
            return None;
        }
        let event = poll_fn(|context| {
            let mut watches = self.wire.watches.borrow_mut();
            let slot = watches.of(self.id.0, self.id.1).expect("it is open until it is dropped");
            match slot.state.as_mut().and_then(VecDeque::pop_front) {
                Some(event) => Poll::Ready(event),
                None => {
                    slot.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await;
        self.has_ended = event.is_none();
        event
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.wire.watches.borrow_mut().close(self.id.0, self.id.1);
    }
}

/// A world answers each question with its own kind of answer.
macro_rules! heard {
    ($answer:expr, $kind:path) => {
        match $answer {
            $kind(heard) => heard,
            other => unreachable!("an answer to another question: {other:?}"),
        }
    };
}

impl Kv for Line {
    type Watch = Watching;

    async fn connect(&self, _until: Instant) -> Result<(), Failure> {
        Ok(())
    }

    async fn txn(&self, txn: &Txn, until: Instant) -> Result<Reply, Failure> {
        let answer = heard!(self.ask(Ask::Txn(txn.clone()), until).await, Answer::Reply);
        self.turn_from(answer)
    }

    async fn grant(&self, lease: LeaseId, ttl: Duration, until: Instant) -> Result<Duration, Failure> {
        let answer = heard!(self.ask(Ask::Grant(lease, ttl), until).await, Answer::Granted);
        self.turn_from(answer)
    }

    async fn revoke(&self, lease: LeaseId, until: Instant) -> Result<(), Failure> {
        heard!(self.ask(Ask::Revoke(lease), until).await, Answer::Done)
    }

    async fn lease_age(&self, lease: LeaseId, until: Instant) -> Result<Option<LeaseAge>, Failure> {
        heard!(self.ask(Ask::Age(lease), until).await, Answer::Age)
    }

    async fn watch(&self, keys: &[Bytes], until: Instant) -> Result<Watching, Failure> {
        let (id, since) = heard!(self.ask(Ask::Watch(keys.to_vec()), until).await, Answer::Watch)?;
        Ok(Watching { wire: self.wire.clone(), id, since, has_ended: false })
    }

    fn expect(&self, _: u64) {}

    fn cluster(&self) -> Option<u64> {
        Some(CLUSTER_ID)
    }

    fn has_refused(&self) -> bool {
        false
    }

    fn endpoints(&self) -> Vec<String> {
        (0..self.left_out.borrow().len()).map(|at| format!("e{at}")).collect()
    }

    async fn ask_each(&self, reads: &Txn, until: Instant, hear: &mut Hear<'_>) {
        let places = 0..self.left_out.borrow().len();
        let mut asked: Vec<Option<Asked>> =
            places.clone().map(|at| Some(self.ask_at(at, Ask::Txn(reads.clone()), until))).collect();
        let mut wait_until = until;
        for _ in places {
            let next = poll_fn(|context| {
                for (place, asked) in asked.iter_mut().enumerate() {
                    let Some(asking) = asked else { continue };
                    if let Poll::Ready(answer) = Pin::new(asking).poll(context) {
                        *asked = None;
                        return Poll::Ready((place, answer));
                    }
                }
                Poll::Pending
            });
            let Ok((place, answer)) = tokio::time::timeout_at(wait_until, next).await else { return };
            // All etcds were begun with etcd's defaults, so their ids are equal, and those of their first members.
            let member = place as u64 % 2;
            let voice = heard!(answer, Answer::Reply);
            match hear(place, voice.map(|reply| Voice { cluster: CLUSTER_ID, member, reply })) {
                None => return,
                Some(sooner) => wait_until = sooner,
            }
        }
    }

    fn leave_out(&self, places: &[usize]) {
        places.iter().for_each(|place| self.left_out.borrow_mut()[*place] = true);
        self.turn();
    }

    async fn about(&self, until: Instant) -> Result<About, Failure> {
        heard!(self.ask(Ask::About, until).await, Answer::About)
    }
}

impl Api for Line {
    async fn cluster_uid(&self) -> Result<String, ApiError> {
        heard!(self.ask_api(Ask::ClusterUid).await, Answer::ClusterUid)
    }

    async fn pods(&self, which: PodFilter, see: &mut dyn FnMut(Pod)) -> Result<(), ApiError> {
        heard!(self.ask_api(Ask::Pods(which)).await, Answer::Pods)?.into_iter().for_each(see);
        Ok(())
    }

    async fn nodes(&self, see: &mut dyn FnMut(Node)) -> Result<(), ApiError> {
        heard!(self.ask_api(Ask::Nodes).await, Answer::Nodes)?.into_iter().for_each(see);
        Ok(())
    }

    async fn definitions(&self, _see: &mut dyn FnMut(&str, &str, &str)) -> Result<(), ApiError> {
        Ok(())
    }

    async fn claims(
        &self,
        _namespace: Option<&str>,
        _see: &mut dyn FnMut(&str),
    ) -> Result<ClaimList, ApiError> {
        Ok(ClaimList::Withheld)
    }

    async fn pod(&self, _namespace: &str, name: &str) -> Result<Option<(Pod, Phase)>, ApiError> {
        heard!(self.ask_api(Ask::Pod(name.to_owned())).await, Answer::Pod)
    }
}
