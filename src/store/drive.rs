//! The one way to change what is held.
//!
//! ADD, DEL, GC, release, adopt and import differ in what they want. Each says so in a [`Change`]: a pure function from
//! what was read to the next step. The driver carries out the steps of all of them in the same way:
//!
//! ```text
//!          nobody queues                      applied
//!   look ----------------------------> commit --------> done
//!    |                                  ^   |
//!    | others queue                     |   | lost: plan again on what the answer read; then take a ticket
//!    v                  at the head     |   | open: settle (store::settle), then look again
//!   ticket ---> wait -------------------+   |
//!     ^                                     |
//!     +-------------------------------------+
//! ```
//!
//! A change without a contender costs one read and one durable write. `Driver::commit` is the only place that sends a
//! commit, and `Driver::look` the only one that sends a first request.

use std::time::Duration;

use tokio::time::Instant;

use super::batch;
use super::change::{Change, Commit, Step};
use super::fence::Fence;
use super::first::{self, FirstRequest};
use super::keys::{Bytes, Keys, LeaseId, Scope};
use super::kv::{Failure, Kv};
use super::line::{Line, NetworkAddress, Waiting};
use super::meta::{self, HighWater};
use super::session::Session;
use super::settle::settle;
use super::snapshot::Snapshot;
use super::ticket::{Queue, TICKET_OPS, Taken, Ticket, Turn, new_lease};
use super::tried::Tried;
use super::txn::{Compare, Entry, Op, Reply, Txn};
use crate::limits;
use crate::pool::record::{FIRST_EPOCH, Meta};
use crate::random::random_pause;

/// What prevents that a commit of a change is applied late.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FencePolicy {
    /// A ticket; where nobody queues, a lease alone, on which the commit writes this key (ADD).
    LeaseOrTicket(Bytes),
    /// A ticket (adopt, import).
    Ticket,
    /// Nothing: it compares the revision of the record that it frees, so a late copy finds another one (DEL, GC,
    /// release).
    Nothing,
}

impl FencePolicy {
    /// How many commits a run may lose before it queues.
    fn tries(&self) -> u32 {
        match self {
            FencePolicy::LeaseOrTicket(_) => limits::CLEAR_TRIES,
            FencePolicy::Ticket => 0,
            FencePolicy::Nothing => 1,
        }
    }
}

/// When a run takes a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseUse {
    /// With its first request: each of its commits needs one.
    Always,
    /// With its ticket.
    ForTicket,
}

/// A lease that another run of the node has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedLease {
    /// The lease. Whether it exists is for etcd to say.
    pub id: LeaseId,
    /// How long it must still live by what etcd says; none: any time is enough.
    pub stands: Option<Duration>,
}

/// What lease a run uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeasePolicy {
    /// When it takes one.
    pub used: LeaseUse,
    /// How long one that it grants lives.
    pub ttl: Duration,
    /// One that it may use instead of a new one.
    pub shared: Option<SharedLease>,
}

/// What lease the tickets of a run hang on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TicketLease {
    /// The lease of its commits: nothing ever revokes that.
    OfCommits,
    /// Another one, because who settles a commit revokes its lease. Perhaps another run of the node has left one.
    Own(Option<LeaseId>),
}

/// What differs between verbs in how a change is carried out.
pub struct Policy<'a> {
    /// What prevents that its commits are applied late.
    pub fencing: FencePolicy,
    /// What lease its commits use, and when.
    pub lease: LeasePolicy,
    /// The lease for its tickets.
    pub tickets: TicketLease,
    /// Whether others queued a moment ago. Then it takes a ticket at once.
    pub is_crowded: bool,
    /// Until when it waits for its turn.
    pub wait_until: Instant,
    /// What this node has seen of the store; it is compared with what the store answers.
    pub high_water: Option<HighWater>,
    /// What another run of the node has left behind of the scope. If there is something, and a shared lease, the first
    /// request is a commit ([`super::first`]).
    pub remembered: Option<Snapshot>,
    /// Whether the change is still wanted.
    pub is_wanted: &'a dyn Fn() -> bool,
}

/// Why a change was not made.
#[derive(Debug)]
pub enum Stopped<D, R> {
    /// By what was read, the change cannot be made.
    Refused(R),
    /// The store failed.
    Failed(Failure),
    /// Nobody knows whether a commit was applied. It may still be applied, and would then come to this.
    Unsettled(Option<D>, Failure),
    /// The store has gone back, was emptied or is another one, since this epoch. It is now marked as suspect.
    Suspect(u64),
    /// This etcd is too old.
    TooOld(String),
    /// There is no time left, or the change is not wanted any more.
    OutOfTime,
}

impl<D, R> From<Failure> for Stopped<D, R> {
    fn from(failure: Failure) -> Self {
        Stopped::Failed(failure)
    }
}

impl<D, R> From<meta::FoundingError> for Stopped<D, R> {
    fn from(e: meta::FoundingError) -> Self {
        match e {
            meta::FoundingError::Failed(failure) => Stopped::Failed(failure),
            meta::FoundingError::TooOld(text) => Stopped::TooOld(text),
        }
    }
}

type Attempted<C> =
    Result<Attempt<<C as Change>::Done>, Stopped<<C as Change>::Done, <C as Change>::Refused>>;

/// What one attempt came to.
enum Attempt<D> {
    /// A commit was applied, and its ticket was removed with it. Without a result there is more to do.
    Committed(Option<D>),
    /// Nothing was to be written.
    Done(D),
    /// It was lost, and another attempt follows.
    Again,
    /// It was lost to another run at the head of the queue, while this run was there out of impatience.
    GivesWay,
}

/// How the next attempt begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Approach {
    /// With a look; a ticket only where others queue.
    Look,
    /// With a ticket: others were there, or quicker.
    Queue,
}

/// What a run knows at the head of its queue.
#[derive(Default)]
struct Head {
    /// The others in the queue, as they were read last.
    line: Line,
    /// Tickets that are gone.
    gone: Vec<Bytes>,
    /// Addresses with stray bits that its last commit has set for runs which it could not serve.
    stray: Vec<NetworkAddress>,
    /// Whether somebody may wait whom nobody has given a turn.
    owes_turn: bool,
    /// Whether nobody has given this run its turn. Then it gives way to whoever is quicker.
    gives_way: bool,
}

impl Head {
    /// Notes what a commit from the queue has done.
    fn has_committed(&mut self, keys: &Keys, ticket: &Ticket, txn: &Txn, reply: &Reply) {
        self.gone.extend(batch::served(txn, &reply.found));
        self.stray = batch::left_out(keys, txn, &reply.found);
        let was_last = ticket.was_last(txn, &reply.found) && self.stray.is_empty();
        self.owes_turn = !was_last && !batch::hands_over(txn);
    }
}

/// The last commit that was acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acknowledged {
    /// The store's revision after it.
    pub revision: i64,
    /// The scope of the pages that this run has written. None if it wrote none, or if another run has served it.
    pub scope: Option<Scope>,
}

/// Carries out the changes of one run, one after the other, and remembers between them what it has learned.
pub struct Driver<'a, K> {
    session: Session<'a, K>,
    policy: Policy<'a>,
    approach: Approach,
    lease: Option<LeaseId>,
    tickets: TicketLease,
    /// How long the shared lease must still live; none once etcd has confirmed it.
    unconfirmed: Option<Duration>,
    met_others: bool,
    /// Whether something may be reserved for this run although it fails: another run may have served it, or still
    /// serve it, without its knowledge; or a store that has gone back has applied its commit.
    may_be_served: bool,
    acknowledged: Option<Acknowledged>,
    first: FirstRequest,
    /// What earlier attempts have read and written of the keys that all runs of the scope share. They may have changed
    /// since; a commit notices that. Without them, each attempt would read many pages again.
    shared: Snapshot,
}

impl<'a, K: Kv> Driver<'a, K> {
    /// A driver that has done nothing yet.
    #[must_use]
    pub fn new(session: Session<'a, K>, policy: Policy<'a>) -> Self {
        let lease = policy.lease.shared.map(|shared| shared.id);
        let is_ready = match policy.tickets {
            TicketLease::Own(lease) => lease.is_some(),
            TicketLease::OfCommits => lease.is_some() || policy.lease.used == LeaseUse::ForTicket,
        };
        let must_queue = policy.is_crowded && is_ready || policy.fencing == FencePolicy::Ticket;
        Self {
            session,
            approach: if must_queue { Approach::Queue } else { Approach::Look },
            lease,
            tickets: policy.tickets,
            unconfirmed: policy.lease.shared.and_then(|shared| shared.stands),
            met_others: false,
            may_be_served: false,
            acknowledged: None,
            first: FirstRequest::Look,
            shared: Snapshot::default(),
            policy,
        }
    }

    /// The lease that it used last, if it is not known to have ended.
    #[must_use]
    pub fn lease(&self) -> Option<LeaseId> {
        self.lease
    }

    /// The lease of its own that its last ticket hung on, if that is not known to have ended.
    #[must_use]
    pub fn own_ticket_lease(&self) -> Option<LeaseId> {
        if let TicketLease::Own(lease) = self.tickets { lease } else { None }
    }

    /// Whether somebody else was in the queue, or quicker.
    #[must_use]
    pub fn met_others(&self) -> bool {
        self.met_others
    }

    /// Whether something may be reserved for this run although it fails.
    #[must_use]
    pub fn may_be_served(&self) -> bool {
        self.may_be_served
    }

    /// The last commit that was acknowledged. A second call returns none.
    pub fn take_acknowledged(&mut self) -> Option<Acknowledged> {
        self.acknowledged.take()
    }

    /// What the first request came to.
    #[must_use]
    pub fn first(&self) -> FirstRequest {
        self.first
    }

    /// What is known of the keys that all runs of the scope share: pages, summaries, cursors, and meta.
    #[must_use]
    pub fn shared(&self) -> &Snapshot {
        &self.shared
    }

    /// Forgets what was read: others have changed some of it.
    pub fn forget_shared(&mut self) {
        self.shared = Snapshot::default();
    }

    /// From now on it waits up to the session's deadline.
    pub fn use_all_time(&mut self) {
        self.policy.wait_until = self.session.until;
    }

    /// Carries out one change.
    ///
    /// # Errors
    /// [`Stopped`]
    pub async fn run<C: Change>(&mut self, change: &mut C) -> Result<C::Done, Stopped<C::Done, C::Refused>> {
        loop {
            if !(self.policy.is_wanted)() {
                return Err(Stopped::OutOfTime);
            }
            // On the heap, because the futures around this are large and deeply nested already.
            match Box::pin(self.attempt(change)).await {
                Ok(Attempt::Done(done) | Attempt::Committed(Some(done))) => return Ok(done),
                Ok(Attempt::Committed(None) | Attempt::Again | Attempt::GivesWay) => {}
                Err(Stopped::Failed(failure)) if self.passes(&failure) => self.lose_lease(),
                Err(stopped) => return Err(stopped),
            }
            if Instant::now() >= self.session.until {
                return Err(Stopped::OutOfTime);
            }
            tokio::time::sleep(random_pause(limits::RACE_PAUSE)).await;
        }
    }

    /// Whether another attempt may follow this failure. If a lease has ended, what was read under it may be too old for
    /// a commit. If a free has no answer, the next read shows whether it was applied.
    fn passes(&self, failure: &Failure) -> bool {
        match failure {
            Failure::LeaseNotFound => true,
            Failure::Unknown(_) => {
                self.policy.fencing == FencePolicy::Nothing && Instant::now() < self.session.until
            }
            _ => false,
        }
    }

    /// A lease has ended, of its commits or of its tickets.
    fn lose_lease(&mut self) {
        self.lease = None;
        if let TicketLease::Own(lease) = &mut self.tickets {
            *lease = None;
        }
    }

    async fn attempt<C: Change>(&mut self, change: &mut C) -> Attempted<C> {
        let mut seen = std::mem::take(&mut self.shared);
        let attempted = self.attempt_on(change, &mut seen).await;
        let keys = self.session.keys;
        seen.retain(|key| first::is_shared(keys, key));
        self.shared = seen;
        attempted
    }

    /// Looks if that is due. Commits at once if nobody queues, else queues.
    async fn attempt_on<C: Change>(&mut self, change: &mut C, seen: &mut Snapshot) -> Attempted<C> {
        let looks = self.approach == Approach::Look;
        let known = change.scope(seen);
        let lacks_lease = self.lease.is_none()
            && self.policy.lease.used == LeaseUse::Always
            && self.tickets == TicketLease::OfCommits;
        let mut has_looked = false;
        if let (Some(scope), Some(remembered), true) = (&known, self.policy.remembered.take(), looks) {
            if let Some(attempt) = self.commit_first(change, scope, remembered, seen).await? {
                return Ok(attempt);
            }
            has_looked = self.first == FirstRequest::Missed;
        }
        if !has_looked && (looks || known.is_none() || lacks_lease) {
            self.look(change, known.as_ref(), seen).await?;
        }
        // A free learns its queue from the record that it frees.
        let Some(scope) = change.scope(seen) else { return self.commit_alone(change, None, seen).await };
        if looks && known.is_none() {
            self.session.read_all(self.first_reads(change, Some(&scope), seen), seen).await?;
        }
        let others_queue = looks && seen.entry(&self.session.keys.tail(&scope)).is_some();
        self.met_others |= others_queue;
        // Only a write proves that a store has gone back: the one that takes a ticket.
        let waits = others_queue && !change.is_unhindered(seen);
        if !looks || waits || self.is_doubtful(seen) {
            return self.commit_in_queue(change, &scope, seen).await;
        }
        self.commit_alone(change, Some(&scope), seen).await
    }

    /// The first request as a commit, planned on what another run has left behind. None: it was not sent, because the
    /// change must look first, or it was missed, and the answer shows what a look shows.
    async fn commit_first<C: Change>(
        &mut self,
        change: &mut C,
        scope: &Scope,
        remembered: Snapshot,
        seen: &mut Snapshot,
    ) -> Result<Option<Attempt<C::Done>>, Stopped<C::Done, C::Refused>> {
        let (FencePolicy::LeaseOrTicket(key), Some(lease)) = (&self.policy.fencing, self.lease) else {
            return Ok(None);
        };
        let fence = Fence::Lease { key: key.clone(), lease };
        let keys = self.session.keys;
        let look = (keys.tail(scope), self.first_reads(change, Some(scope), seen));
        let Some(commit) = first::commit_first(change, keys, &fence, &remembered, look) else {
            return Ok(None);
        };
        match self.session.txn(&commit.txn).await {
            Ok(reply) if reply.succeeded => {
                self.first = FirstRequest::Applied;
                *seen = remembered;
                seen.apply(&commit.txn, &reply);
                self.acknowledge(Some(scope), reply.revision, seen).await?;
                Ok(Some(Attempt::Committed(commit.done)))
            }
            Ok(reply) => {
                self.first = FirstRequest::Missed;
                seen.absorb(&commit.txn.otherwise, &reply);
                change.learn(seen);
                // Unlike that of a look, this answer is to a write.
                self.check_high_water(seen).await?;
                Ok(None)
            }
            Err(failure) if failure.is_open() => {
                *seen = remembered;
                self.settle_commit(change, &fence, commit, failure, seen).await.map(Some)
            }
            Err(failure) => Err(failure.into()),
        }
    }

    /// The first request: reads what the plan will most likely need, and whether anybody queues. Meanwhile a lease is
    /// granted or confirmed.
    ///
    /// The lease of an ADD must be granted before the run's deadline. Then the tombstone of a DEL that begins later
    /// than this run lives longer than the lease ([`limits::TOMBSTONE_TTL`]).
    async fn look<C: Change>(
        &mut self,
        change: &mut C,
        scope: Option<&Scope>,
        seen: &mut Snapshot,
    ) -> Result<(), Failure> {
        let Session { kv, until, .. } = self.session;
        let session = self.session;
        let read = session.read_all(self.first_reads(change, scope, seen), seen);
        match (self.lease, self.unconfirmed.take()) {
            (Some(lease), Some(stands)) => {
                // Connected first, so that both requests travel together.
                kv.connect(until).await;
                let (age, read) = tokio::join!(kv.lease_age(lease, until), read);
                read?;
                // If a tombstone ends too early, an older ADD can still commit. So etcd is asked how long the lease
                // lives, not the run that left it.
                let is_confirmed = matches!(age, Ok(Some(age)) if age.left >= stands);
                self.lease = self.lease.filter(|_| is_confirmed);
            }
            (None, _) if self.policy.lease.used == LeaseUse::Always => {
                kv.connect(until).await;
                let lease = new_lease();
                let (granted, read) = tokio::join!(kv.grant(lease, self.policy.lease.ttl, until), read);
                read?;
                match granted {
                    Ok(()) => self.lease = Some(lease),
                    // If it was granted and the answer was lost, it ends by itself.
                    Err(Failure::Unknown(_) | Failure::LeaseExists) => {}
                    Err(failure) => return Err(failure),
                }
            }
            _ => read.await?,
        }
        change.learn(seen);
        Ok(())
    }

    fn first_reads<C: Change>(&self, change: &C, scope: Option<&Scope>, seen: &Snapshot) -> Vec<Op> {
        let tail = scope.map(|scope| Op::Get(self.session.keys.tail(scope)));
        tail.into_iter().chain(reads(change, seen)).collect()
    }

    /// The lease for a commit where nobody queues.
    async fn fence_lease(&mut self) -> Result<LeaseId, Failure> {
        let lease = match self.lease {
            Some(lease) => lease,
            None => self.granted(self.policy.lease.ttl).await?,
        };
        self.lease = Some(lease);
        Ok(lease)
    }

    /// The lease for a ticket.
    async fn ticket_lease(&mut self) -> Result<LeaseId, Failure> {
        let lease = match self.tickets {
            TicketLease::OfCommits => return self.fence_lease().await,
            TicketLease::Own(Some(lease)) => lease,
            TicketLease::Own(None) => self.granted(limits::LEASE_TTL).await?,
        };
        self.tickets = TicketLease::Own(Some(lease));
        Ok(lease)
    }

    /// A lease that is granted now.
    async fn granted(&self, ttl: Duration) -> Result<LeaseId, Failure> {
        let until = self.session.until;
        let mut tried = Tried::new();
        loop {
            let lease = new_lease();
            match self.session.kv.grant(lease, ttl, until).await {
                Ok(()) => return Ok(lease),
                Err(Failure::LeaseExists) => {}
                Err(Failure::Unknown(_)) if tried.may_go_on(limits::UNREACHABLE, until) => {
                    tokio::time::sleep(random_pause(limits::RETRY_PAUSE)).await;
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Commits where nobody queues.
    async fn commit_alone<C: Change>(
        &mut self,
        change: &mut C,
        scope: Option<&Scope>,
        seen: &mut Snapshot,
    ) -> Attempted<C> {
        let lease = match self.policy.lease.used {
            LeaseUse::Always => Some(self.fence_lease().await?),
            LeaseUse::ForTicket => None,
        };
        let fence = match (&self.policy.fencing, lease) {
            (FencePolicy::LeaseOrTicket(key), Some(lease)) => Fence::Lease { key: key.clone(), lease },
            _ => Fence::Unfenced { lease },
        };
        self.commit(change, (scope, &fence), &mut Head::default(), seen).await
    }

    /// Takes a ticket, waits for its turn, and commits; or another run commits for it. Every way out removes the
    /// ticket.
    async fn commit_in_queue<C: Change>(
        &mut self,
        change: &mut C,
        scope: &Scope,
        seen: &mut Snapshot,
    ) -> Attempted<C> {
        let queue = Queue::new(self.session, scope);
        let lease = self.ticket_lease().await?;
        // From now on another run may commit for this one. So the lease must have been granted before the deadline, as
        // for a commit of its own.
        if !(self.policy.is_wanted)() {
            return Err(Stopped::OutOfTime);
        }
        let reads = reads(change, seen);
        let record = change.ticket(seen, self.epoch(seen), lease);
        let mut is_repeated = false;
        let taken = queue.take(lease, (&record, &change.proof()), &reads, seen, &mut is_repeated).await;
        let is_open = is_repeated || taken.as_ref().is_err_and(Failure::is_open);
        self.may_be_served |= is_open && record.asks_for_addresses();
        let taken = taken?;
        self.met_others |= !taken.is_first;
        // Before the wait, because a tombstone may end with its lease while this run waits.
        change.learn(seen);
        let ticket = taken.ticket.clone();
        let mut head = Head::default();
        let mut attempted = self.stand(change, &queue, taken, &reads, &mut head, seen).await;
        if !matches!(attempted, Ok(Attempt::Committed(_))) {
            attempted = self.leave(change, &queue, &ticket, &mut head, attempted).await;
        }
        if head.owes_turn || !head.stray.is_empty() {
            self.serve_others(&queue, &ticket, head, seen).await;
        }
        attempted
    }

    async fn stand<C: Change>(
        &mut self,
        change: &mut C,
        queue: &Queue<'_, K>,
        mut taken: Taken<K::Watch>,
        reads: &[Op],
        head: &mut Head,
        seen: &mut Snapshot,
    ) -> Attempted<C> {
        self.check_high_water(seen).await?;
        let ticket = taken.ticket.clone();
        let fence = Fence::Ticket(ticket.clone());
        if change.is_unhindered(seen) {
            return self.commit(change, (Some(queue.scope()), &fence), head, seen).await;
        }
        let proof = change.proof();
        let mut has_given_way = false;
        loop {
            let is_served = |found: &Entry| change.served(found).is_some();
            head.gives_way =
                match queue.by(self.policy.wait_until).wait(&mut taken, &proof, is_served).await? {
                    Turn::Head => false,
                    // Once. Where it is a neighbouring queue that is quicker, nobody serves this run.
                    Turn::Impatient => !has_given_way,
                    Turn::Served(found) => {
                        self.acknowledge(None, found.mod_revision, seen).await?;
                        return Ok(Attempt::Committed(change.served(&found)));
                    }
                    Turn::Gone => {
                        // It ended with its lease.
                        self.lose_lease();
                        return Ok(Attempt::Again);
                    }
                    Turn::OutOfTime => return Err(Stopped::OutOfTime),
                };
            head.owes_turn = true;
            if !taken.is_first {
                head.line = self.line(queue, &ticket, reads, seen).await?;
            }
            taken.is_first = false;
            let attempted = match self.commit_in_line(change, &ticket, queue, head, seen).await? {
                Some(attempt) => Ok(attempt),
                None => self.commit(change, (Some(queue.scope()), &fence), head, seen).await,
            };
            match attempted {
                // Another run is at the head, and will probably serve this one.
                Ok(Attempt::GivesWay) => (has_given_way, head.owes_turn) = (true, false),
                attempted => return attempted,
            }
        }
    }

    /// A DEL at the head is served like those behind it, by a batch. None if it has to go on alone.
    async fn commit_in_line<C: Change>(
        &mut self,
        change: &C,
        ticket: &Ticket,
        queue: &Queue<'_, K>,
        head: &mut Head,
        seen: &mut Snapshot,
    ) -> Result<Option<Attempt<C::Done>>, Stopped<C::Done, C::Refused>> {
        let (Some(done), Some(own), false) =
            (change.done_by_batch(), seen.entry(&ticket.key).cloned(), head.line.is_empty())
        else {
            return Ok(None);
        };
        let mut line = std::mem::take(&mut head.line);
        line.waiting.insert(0, Waiting::of(own));
        while Instant::now() < self.policy.wait_until {
            let txn = match batch::plan(self.session.keys, seen, ticket, queue.scope(), &line) {
                Step::Read(ops) => {
                    self.session.read_all(ops, seen).await?;
                    continue;
                }
                Step::Done(()) => return Ok(None),
                Step::Commit(commit) => commit.txn,
            };
            let reply = self.session.txn(&txn).await?;
            if !reply.succeeded {
                seen.absorb(&txn.otherwise, &reply);
                return Ok(head.gives_way.then_some(Attempt::GivesWay));
            }
            seen.apply(&txn, &reply);
            head.has_committed(self.session.keys, ticket, &txn, &reply);
            let is_served = head.gone.contains(&ticket.key);
            return Ok(is_served.then_some(Attempt::Committed(Some(done))));
        }
        Ok(None)
    }

    /// Reads who waits besides this run, and again what it relies on.
    async fn line(
        &self,
        queue: &Queue<'_, K>,
        ticket: &Ticket,
        reads: &[Op],
        seen: &mut Snapshot,
    ) -> Result<Line, Failure> {
        let own = [Op::Get(ticket.key.clone())];
        let tickets = queue.tickets(&[&own, reads].concat(), seen).await?;
        Ok(Line::new(&tickets, |key| *key == ticket.key))
    }

    /// Leaves the queue without a commit. If another run has served this one before it left, that is the result, unless
    /// this run has found that it must not be.
    async fn leave<C: Change>(
        &mut self,
        change: &C,
        queue: &Queue<'_, K>,
        ticket: &Ticket,
        head: &mut Head,
        attempted: Attempted<C>,
    ) -> Attempted<C> {
        let Ok(reply) = queue.leave(ticket, &[change.proof()]).await else {
            self.may_be_served = true;
            return attempted;
        };
        let removal = Txn { then: ticket.removal().to_vec(), ..Txn::default() };
        head.owes_turn &= !ticket.was_last(&removal, &reply.found);
        let found = reply.found.last().and_then(|found| found.one());
        let Some(done) = found.and_then(|found| change.served(found)) else { return attempted };
        match attempted {
            Err(Stopped::OutOfTime | Stopped::Failed(_)) if !(self.policy.is_wanted)() => {}
            Ok(_) | Err(Stopped::OutOfTime | Stopped::Failed(_)) => {
                return Ok(Attempt::Committed(Some(done)));
            }
            Err(_) => {}
        }
        self.may_be_served = true;
        attempted
    }

    /// Plans, reads what the plan lacks, and commits, until it is done or has lost.
    async fn commit<C: Change>(
        &mut self,
        change: &mut C,
        (scope, fence): (Option<&Scope>, &Fence),
        head: &mut Head,
        seen: &mut Snapshot,
    ) -> Attempted<C> {
        let mut lost = 0;
        while Instant::now() < self.session.until {
            change.learn(seen);
            if let Fence::Ticket(ticket) = fence
                && !ticket.stands(seen)
            {
                return self.after_ticket(change, head, seen).await;
            }
            if change.scope(seen).as_ref() != scope {
                // Another queue is the right one now.
                return Ok(Attempt::Again);
            }
            let commit = match change.plan(seen, fence, &head.line).map_err(Stopped::Refused)? {
                Step::Read(ops) => {
                    self.session.read_all(ops, seen).await?;
                    continue;
                }
                Step::Done(done) => return Ok(Attempt::Done(done)),
                Step::Commit(commit) => commit,
            };
            if commit.txn.compares.iter().any(|compare| matches!(compare, Compare::Empty(_))) {
                meta::check_version(self.session).await?;
            }
            if !(self.policy.is_wanted)() {
                return Err(Stopped::OutOfTime);
            }
            match self.session.txn(&commit.txn).await {
                Ok(reply) if reply.succeeded => {
                    seen.apply(&commit.txn, &reply);
                    if let Fence::Ticket(ticket) = fence {
                        head.has_committed(self.session.keys, ticket, &commit.txn, &reply);
                    }
                    self.acknowledge(scope, reply.revision, seen).await?;
                    return Ok(Attempt::Committed(commit.done));
                }
                Ok(reply) => {
                    seen.absorb(&commit.txn.otherwise, &reply);
                    // The store may have been emptied or exchanged since it was looked at.
                    self.check_high_water(seen).await?;
                }
                Err(failure) if failure.is_open() && self.policy.fencing != FencePolicy::Nothing => {
                    return self.settle_commit(change, fence, commit, failure, seen).await;
                }
                Err(failure) => return Err(failure.into()),
            }
            lost += 1;
            self.met_others = true;
            match fence {
                Fence::Ticket(ticket) if !ticket.stands(seen) => continue,
                Fence::Ticket(_) if head.gives_way => return Ok(Attempt::GivesWay),
                // A free has another way for the time that is left: one without a ticket.
                Fence::Ticket(_) if Instant::now() >= self.policy.wait_until => {
                    return Err(Stopped::OutOfTime);
                }
                Fence::Ticket(_) => {}
                Fence::Lease { .. } | Fence::Unfenced { .. } if lost < self.policy.fencing.tries() => {}
                Fence::Lease { .. } | Fence::Unfenced { .. } => break,
            }
            tokio::time::sleep(random_pause(limits::RACE_PAUSE)).await;
            if let (Fence::Ticket(ticket), Some(scope), false) = (fence, scope, head.line.is_empty()) {
                // Who was quicker has probably served some of them.
                head.line =
                    self.line(&Queue::new(self.session, scope), ticket, &reads(change, seen), seen).await?;
            }
        }
        // Others were quicker. If commits are slow, more are on their way.
        if lost > 0 {
            self.approach = Approach::Queue;
        }
        Ok(Attempt::Again)
    }

    /// What follows when this run's ticket is gone: another run has served it, or the ticket has ended with its lease.
    async fn after_ticket<C: Change>(
        &mut self,
        change: &C,
        head: &mut Head,
        seen: &mut Snapshot,
    ) -> Attempted<C> {
        head.owes_turn = false;
        let found = seen.entry(&change.proof());
        match found.and_then(|found| change.served(found)) {
            Some(done) => {
                self.acknowledge(None, seen.revision, seen).await?;
                Ok(Attempt::Committed(Some(done)))
            }
            None => {
                self.lose_lease();
                Ok(Attempt::Again)
            }
        }
    }

    /// Serves those who wait, after this run's own result is certain, for [`limits::HEAD_SERVES`]. Then it gives the
    /// next run its turn. If anything fails, the others notice that the queue does not move.
    async fn serve_others(&self, queue: &Queue<'_, K>, ticket: &Ticket, mut head: Head, seen: &mut Snapshot) {
        head.gone.push(ticket.key.clone());
        let stop_at = Instant::now() + limits::HEAD_SERVES;
        let mut listed: Option<Vec<Entry>> = None;
        let mut lost = 0;
        while (head.owes_turn || !head.stray.is_empty())
            && lost < limits::CLEAR_TRIES
            && Instant::now() < self.session.until
        {
            let is_fresh = listed.is_none();
            let tickets = match listed.take() {
                Some(tickets) => tickets,
                None if !head.owes_turn => Vec::new(),
                None => match queue.tickets(&[], seen).await {
                    Ok(tickets) => tickets,
                    Err(_) => return,
                },
            };
            head.line = Line::new(&tickets, |key| head.gone.iter().any(|gone| gone == key));
            head.line.hands_over = Instant::now() >= stop_at;
            head.line.stray.clone_from(&head.stray);
            let txn = match batch::plan(self.session.keys, seen, ticket, queue.scope(), &head.line) {
                Step::Read(ops) => {
                    if self.session.read_all(ops, seen).await.is_err() {
                        return;
                    }
                    listed = Some(tickets);
                    continue;
                }
                Step::Done(()) if is_fresh => return,
                Step::Done(()) => continue,
                Step::Commit(commit) => commit.txn,
            };
            // The next listing travels with the commit.
            let mut ignored = Snapshot::default();
            let (committed, next) = tokio::join!(self.session.txn(&txn), async {
                if batch::hands_over(&txn) || !head.owes_turn {
                    None
                } else {
                    queue.tickets(&[], &mut ignored).await.ok()
                }
            });
            match committed {
                Ok(reply) if reply.succeeded => {
                    seen.apply(&txn, &reply);
                    head.has_committed(self.session.keys, ticket, &txn, &reply);
                    listed = next;
                }
                // Another run is at the head, too.
                Ok(reply) => {
                    seen.absorb(&txn.otherwise, &reply);
                    lost += 1;
                }
                Err(_) => return,
            }
        }
    }

    /// The store's epoch, as far as it is known.
    fn epoch(&self, seen: &Snapshot) -> u64 {
        let meta = seen.record::<Meta>(&self.session.keys.meta()).ok().flatten();
        let known = self.policy.high_water.as_ref().map(|known| known.epoch);
        meta.map(|meta| meta.epoch).or(known).unwrap_or(FIRST_EPOCH)
    }

    /// A commit was applied at `revision`, by this run or for it. Only now is it certain that the store which applied
    /// it has forgotten nothing.
    async fn acknowledge<D, R>(
        &mut self,
        scope: Option<&Scope>,
        revision: i64,
        seen: &mut Snapshot,
    ) -> Result<(), Stopped<D, R>> {
        let keys = self.session.keys;
        if let Some(known) = &self.policy.high_water
            && known.contradicts_applied(keys, seen, revision)
        {
            let accused = async {
                self.session.read(&[keys.meta()], seen).await?;
                known.accuse(self.session, seen).await
            };
            if let Err(why) = accused.await {
                tracing::warn!(%why, "the store has gone back, and cannot be marked as suspect now");
            }
            self.may_be_served = true;
            return Err(Stopped::Suspect(known.epoch));
        }
        self.acknowledged = Some(Acknowledged { revision, scope: scope.cloned() });
        Ok(())
    }

    /// Nobody knows whether a commit was applied. Finds out, and makes sure that no late copy of it is applied.
    async fn settle_commit<C: Change>(
        &mut self,
        change: &C,
        fence: &Fence,
        commit: Commit<C::Done>,
        why: Failure,
        seen: &mut Snapshot,
    ) -> Attempted<C> {
        tracing::info!(%why, "settling a commit with an open outcome");
        if matches!(fence, Fence::Lease { .. }) {
            self.lease = None;
        }
        if let Err(failure) = settle(self.session, fence, &commit.proof, seen).await {
            return Err(Stopped::Unsettled(commit.done, failure));
        }
        let found = seen.entry(&commit.proof).cloned();
        match change.applied(commit, found.as_ref()) {
            Some(done) => {
                self.acknowledge(None, seen.revision, seen).await?;
                Ok(Attempt::Committed(Some(done)))
            }
            // It was not applied, and etcd would refuse it again.
            None if matches!(why, Failure::NoSpace(_)) => Err(why.into()),
            None => Ok(Attempt::Again),
        }
    }

    /// Whether the store seems to have forgotten something that this node has seen.
    fn is_doubtful(&self, seen: &Snapshot) -> bool {
        self.policy.high_water.as_ref().is_some_and(|known| known.contradicts_read(self.session.keys, seen))
    }

    /// Marks a store that has gone back, was emptied or is another one. Only the answer to a write proves that: to
    /// taking a ticket, or to a commit that was refused.
    async fn check_high_water<D, R>(&self, seen: &Snapshot) -> Result<(), Stopped<D, R>> {
        match &self.policy.high_water {
            Some(known) if self.is_doubtful(seen) => match known.accuse(self.session, seen).await? {
                Some(epoch) => Err(Stopped::Suspect(epoch)),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }
}

/// What a change reads first, as much as fits beside a ticket's own operations. The plan asks for the rest.
fn reads<C: Change>(change: &C, seen: &Snapshot) -> Vec<Op> {
    change.reads(seen).into_iter().take(limits::TXN_OPS - TICKET_OPS).map(Op::Get).collect()
}
