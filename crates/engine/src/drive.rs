//! The driver: the only way to change held addresses.
//!
//! ADD, DEL, GC, release, adopt and import want different things. Each is a [`Change`]: a pure function from the keys
//! that were read to the next step. The driver carries out the steps of all of them in the same way:
//!
//! ```text
//!          nobody queues                      applied
//!   look ----------------------------> commit --------> done
//!    |                                  ^   |
//!    | others queue                     |   | lost: plan again on what the answer read; then take a ticket
//!    v                  at the head     |   | open: settle (`settle.rs`), then look again
//!   ticket ---> wait -------------------+   |
//!     ^                                     |
//!     +-------------------------------------+
//! ```
//!
//! A change without a contender costs one read and one durable write; with the hints that another run of the node has
//! left behind, the write alone ([`metes_core::plan::first`]). The first request as a commit is in
//! `drive/hinted.rs`, the way through the queue in `drive/queued.rs`.

use std::time::Duration;

use tokio::time::Instant;

use self::applied::Applied;
use self::queued::{Head, send};
use super::kv::{Failure, Kv};
use super::policy::{FencePolicy, LeaseUse, Policy, TicketLease};
use super::prefix::Doubt;
use super::queue::Queue;
use super::session::Session;
use super::settle::settle;
use crate::random::random_pause;
use metes_core::fence::Fence;
use metes_core::keys::{Bytes, LeaseId, NetworkAddress, Scope};
use metes_core::known::HighWater;
use metes_core::limits;
use metes_core::plan::change::{Change, Commit, Step};
use metes_core::plan::first::{self, FirstRequest};
use metes_core::snapshot::Snapshot;
use metes_core::ticket::TICKET_OPS;
use metes_core::txn::{Entry, Op};

mod applied;
mod hinted;
mod leases;
mod queued;
mod witnessed;

/// There was no time left for a change: other runs were ahead of it or quicker, or etcd was slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the time for this request is over")]
pub struct OutOfTime;

impl OutOfTime {
    /// Its possible reasons, for people. All programs use the same words.
    pub const REASONS: &'static str =
        "etcd answers too slowly, too many runs contend for this range, or the host was suspended";
}

/// The reason why the driver has not made a change. An ADD can meet all of them. A free, a hold and an assignment have
/// errors of their own, with the reasons that they can meet.
#[derive(Debug)]
pub enum Stopped<D, R> {
    /// By the keys that were read, the change cannot be made.
    Refused(R),
    /// The store failed.
    Failed(Failure),
    /// It is not known whether a commit was applied. It may still be applied, and then has this result.
    Unsettled(Option<D>, Failure),
    /// The store has gone back, was emptied or is another one.
    Suspect(Doubt),
    /// There is no time left, or the change is not wanted any more.
    OutOfTime,
}

impl<D, R> From<Failure> for Stopped<D, R> {
    fn from(failure: Failure) -> Self {
        Stopped::Failed(failure)
    }
}

type Attempted<C> =
    Result<Attempt<<C as Change>::Done>, Stopped<<C as Change>::Done, <C as Change>::Refused>>;

/// The result of one attempt.
enum Attempt<D> {
    /// A commit was applied, and its ticket was removed with it. Without a result there is more to do.
    Committed(Option<D>),
    /// Nothing was to be written.
    Done(D),
    /// It has no result yet, and another attempt follows.
    Again,
    /// Its commit has lost to that of another head of the queue, and this run was a head only out of impatience.
    GivesWay,
}

/// The queue of a commit, if it has one, and its fence.
#[derive(Clone, Copy)]
struct Footing<'a> {
    scope: Option<&'a Scope>,
    fence: &'a Fence,
}

/// The start of the next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Approach {
    /// With a look. It takes a ticket only if other runs queue.
    Look,
    /// With a ticket: other runs were in the queue, or were quicker.
    Queue,
}

/// The last commit that was acknowledged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Acknowledged {
    /// The scope of the pages that this run has written. None if it wrote none, or if another run has served it.
    pub scope: Option<Scope>,
    /// The key and the value of the record that it has written about the ranges that a configuration asks for.
    pub asked: Option<(Bytes, Vec<u8>)>,
    /// The entry of the change's proof, as the commit has left it. None if the commit did not write it.
    pub proof: Option<Entry>,
    /// Addresses that it has freed without clearing their bits.
    pub stray: Vec<NetworkAddress>,
}

/// Carries out the changes of one run, one after the other, and keeps what it has learned from one for the next.
pub struct Driver<'a, K> {
    session: Session<'a, K>,
    policy: Policy<'a>,
    approach: Approach,
    lease: Option<LeaseId>,
    /// True if this run has got its lease from etcd, and has not left it for other runs yet.
    is_new: bool,
    tickets: TicketLease,
    /// The time that the shared lease must still live; none once etcd has confirmed it.
    unconfirmed: Option<Duration>,
    met_others: bool,
    /// The number of commits that this run has lost.
    lost: u32,
    /// True if addresses may be reserved for this run although it fails. Another run may have served it, or may still
    /// serve it, without its knowledge; or a store that has gone back in time has applied its commit.
    may_be_served: bool,
    /// True if it was refused, and has carried out DELs of others since.
    is_judged_again: bool,
    acknowledged: Option<Acknowledged>,
    /// The node's knowledge of the store before the last request; none if it knew nothing.
    known: Option<HighWater>,
    /// The revision at which this run put the node's key.
    put_at: Option<i64>,
    /// True if a pass has deleted the node's key.
    is_forgotten: bool,
    /// The state of the store by the answers that contradict nothing.
    seen_store: Option<HighWater>,
    /// The epoch since which the store is suspect; set if this run frees in it all the same.
    suspect: Option<u64>,
    first: FirstRequest,
    /// The keys that all runs of the scope share, as earlier attempts have read and written them. They may have changed
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
        let must_queue =
            policy.is_crowded && is_ready && !policy.looks_first || policy.fencing == FencePolicy::Ticket;
        Self {
            session,
            approach: if must_queue { Approach::Queue } else { Approach::Look },
            lease,
            is_new: false,
            tickets: policy.tickets,
            unconfirmed: policy.lease.shared.and_then(|shared| shared.stands),
            met_others: false,
            lost: 0,
            may_be_served: false,
            is_judged_again: false,
            acknowledged: None,
            known: None,
            put_at: None,
            is_forgotten: false,
            seen_store: None,
            suspect: None,
            first: FirstRequest::Look,
            shared: Snapshot::default(),
            policy,
        }
    }

    /// Begins with keys as another run has left them behind. They only tell which keys to read: a look reads them anew.
    #[must_use]
    pub fn expecting(self, shared: Snapshot) -> Self {
        Self { shared, ..self }
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

    /// True if another run was in the queue, or was quicker.
    #[must_use]
    pub fn met_others(&self) -> bool {
        self.met_others
    }

    /// True if addresses may be reserved for this run although it fails.
    #[must_use]
    pub fn may_be_served(&self) -> bool {
        self.may_be_served
    }

    /// Takes the last commit that was acknowledged, so that it is returned only once.
    pub fn take_acknowledged(&mut self) -> Option<Acknowledged> {
        self.acknowledged.take()
    }

    /// Notes that other runs may use the lease of its commits. From now on it puts no ticket on that lease.
    pub fn share_lease(&mut self) {
        self.is_new = false;
    }

    /// The state of the store by its answers, as far as they contradict nothing; for the node's mark.
    #[must_use]
    pub fn seen_store(&self) -> Option<&HighWater> {
        self.seen_store.as_ref()
    }

    /// The epoch since which the store is suspect; none unless this run has freed in it all the same.
    pub(crate) fn suspect(&self) -> Option<u64> {
        self.suspect
    }

    /// The result of the first request.
    #[must_use]
    pub fn first(&self) -> FirstRequest {
        self.first
    }

    /// The keys that all runs of the scope share, as far as they are known: pages, summaries, cursors, and meta.
    #[must_use]
    pub fn shared(&self) -> &Snapshot {
        &self.shared
    }

    /// Forgets these keys: other runs have changed some of them.
    pub fn forget_shared(&mut self) {
        self.shared = Snapshot::default();
    }

    /// Makes it wait for its turn up to the session's deadline from now on.
    pub(crate) fn use_all_time(&mut self) {
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
                Err(Stopped::Failed(failure)) if self.passes(&failure) => {
                    self.lose_lease();
                    change.forget_leases();
                }
                Err(stopped) => return Err(stopped),
            }
            if Instant::now() >= self.session.until {
                return Err(Stopped::OutOfTime);
            }
            self.pause(limits::RACE_PAUSE_ALONE).await;
        }
    }

    /// Waits after a lost race: twice as long after each, up to `most`, and never longer than a quarter of the time
    /// that is left.
    async fn pause(&self, most: Duration) {
        let doubled = limits::RACE_PAUSE * 2_u32.saturating_pow(self.lost.saturating_sub(1).min(16));
        let left = self.session.until.saturating_duration_since(Instant::now());
        tokio::time::sleep(random_pause(doubled.min(most).min(left / 4))).await;
    }

    /// True if another attempt may follow this failure. If a lease has ended, the keys that were read under it may be
    /// too old for a commit. If a free has no answer, the next read shows whether it was applied.
    fn passes(&self, failure: &Failure) -> bool {
        match failure {
            Failure::LeaseNotFound => true,
            Failure::Unknown(_) => {
                self.policy.fencing == FencePolicy::Nothing && Instant::now() < self.session.until
            }
            _ => false,
        }
    }

    /// Forgets its leases: that of its commits or that of its tickets has ended.
    fn lose_lease(&mut self) {
        self.lease = None;
        if let TicketLease::Own(lease) = &mut self.tickets {
            *lease = None;
        }
    }

    async fn attempt<C: Change>(&mut self, change: &mut C) -> Attempted<C> {
        self.recall();
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
        let left = self.policy.remembered.take().filter(|_| looks);
        let known = change.scope(seen).or_else(|| change.scope(left.as_ref()?));
        let lacks_lease = self.lease.is_none()
            && self.policy.lease.used == LeaseUse::Always
            && self.tickets == TicketLease::OfCommits;
        let mut has_looked = false;
        if let Some(left) = left {
            if let Some(attempt) = self.commit_first(change, known.as_ref(), left, seen).await? {
                return Ok(attempt);
            }
            has_looked = self.first == FirstRequest::Missed;
        }
        if !has_looked && (looks || known.is_none() || lacks_lease) {
            self.look(change, known.as_ref(), seen).await?;
            self.judge_look(seen).await?;
        }
        // The pools that `auto` chooses are known after the look, and their texts after these reads.
        for _ in 0..limits::CHOICE_READS {
            let unread = change.unread(seen);
            if unread.is_empty() {
                break;
            }
            self.session.read(&unread, seen).await?;
        }
        self.supply_cooling(change, seen).await?;
        // A free learns its queue from the record that it frees.
        let Some(scope) = change.scope(seen) else { return self.commit_alone(change, None, seen).await };
        // An ADD from a pool whose text was not known, or has changed, learns its queue from the look.
        if looks && known.as_ref() != Some(&scope) {
            self.session.read_all(self.first_reads(change, Some(&scope), seen), seen).await?;
        }
        let others_queue = looks && seen.entry(&self.session.keys.tail(&scope)).is_some();
        self.met_others |= others_queue;
        // Only a write proves that a store has gone back: the one that takes a ticket.
        let waits = others_queue && !change.is_unhindered(seen);
        if !looks || waits || self.is_doubtful(seen, seen.revision) {
            return self.commit_in_queue(change, &scope, seen).await;
        }
        self.commit_alone(change, Some(&scope), seen).await
    }

    /// Judges the answer to a look. An ADD that doubts the store takes a ticket, and the answer to that is the proof.
    async fn judge_look<D, R>(&mut self, seen: &mut Snapshot) -> Result<(), Stopped<D, R>> {
        if !self.is_doubtful(seen, seen.revision) {
            self.witness(seen, seen.revision);
        } else if self.policy.fencing == FencePolicy::Nothing {
            self.confirm(seen).await?;
        }
        Ok(())
    }

    /// The first request: reads the keys that the plan will most likely need, and the tail, which shows whether other
    /// runs queue. Meanwhile a lease is granted or confirmed.
    ///
    /// The lease of an ADD must be granted before the run's deadline. Then the tombstone of a DEL that begins later
    /// than this run lives longer than the lease ([`limits::TOMBSTONE_TTL`]).
    async fn look<C: Change>(
        &mut self,
        change: &mut C,
        scope: Option<&Scope>,
        seen: &mut Snapshot,
    ) -> Result<(), Failure> {
        let session = self.session;
        let reads = self.first_reads(change, scope, seen);
        let for_lease = self.for_lease();
        let (read, leased) = self.beside_lease(for_lease, session.read_all(reads, seen)).await?;
        read?;
        leased?;
        change.learn(seen);
        Ok(())
    }

    fn first_reads<C: Change>(&self, change: &C, scope: Option<&Scope>, seen: &Snapshot) -> Vec<Op> {
        let tail = scope.map(|scope| Op::Get(self.session.keys.tail(scope)));
        tail.into_iter().chain(self.reads(change, seen)).collect()
    }

    /// The reads by which the store is judged, and the first reads of a change, as many as fit beside a ticket's own
    /// operations. The plan asks for the rest.
    fn reads<C: Change>(&self, change: &C, seen: &Snapshot) -> Vec<Op> {
        let mut reads = self.judged_by();
        let of_change = change.reads(seen).into_iter().map(Op::Get);
        reads.extend(of_change.filter(|read| !reads.contains(read)).collect::<Vec<_>>());
        reads.truncate(limits::TXN_OPS - TICKET_OPS);
        reads
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
        self.commit(change, Footing { scope, fence: &fence }, &mut Head::default(), seen).await
    }

    /// Plans, reads the keys that the plan lacks, and commits, until it is done or has lost.
    async fn commit<C: Change>(
        &mut self,
        change: &mut C,
        Footing { scope, fence }: Footing<'_>,
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
            self.supply_cooling(change, seen).await?;
            let mut commit = match change.plan(seen, fence, &head.line).map_err(Stopped::Refused)? {
                Step::Read(ops) => {
                    self.session.read_all(ops, seen).await?;
                    continue;
                }
                Step::Done(done) => return Ok(Attempt::Done(done)),
                Step::Commit(commit) => commit,
            };
            if !(self.policy.is_wanted)() {
                return Err(Stopped::OutOfTime);
            }
            self.recall();
            self.add_own_key(&mut commit, fence, seen);
            // Where a crowd was met, more runs have come since the queue was read. So it is listed again beside the
            // commit.
            let crowd = match (fence, scope) {
                (Fence::Ticket(_), Some(scope))
                    if head.owes_turn && (self.policy.is_crowded || self.met_others) =>
                {
                    Some(Queue::new(self.session, scope))
                }
                _ => None,
            };
            let began = Instant::now();
            let listing = crowd.as_ref().map(|queue| (queue, limits::HEAD_SERVES.at(head.latency)));
            let (committed, listed) = send(self.session, &commit.txn, listing).await;
            let was_slow = began.elapsed() > limits::CLEAR_WITHIN;
            match committed {
                Ok(reply) if reply.succeeded => {
                    seen.apply(&commit.txn, &reply);
                    if matches!(fence, Fence::Ticket(_)) {
                        head.listed = listed;
                        head.has_committed(&commit.effects, &reply.found);
                    }
                    self.acknowledge(Applied::own(scope, &commit, &reply), seen).await?;
                    return Ok(Attempt::Committed(commit.done));
                }
                Ok(reply) => {
                    seen.absorb(&commit.txn.otherwise, &reply);
                    // The store may have been emptied or exchanged since it was looked at.
                    self.check_known(seen, seen.revision).await?;
                }
                Err(failure) if failure.is_open() && self.policy.fencing != FencePolicy::Nothing => {
                    return self.settle_commit(change, fence, commit, failure, seen).await;
                }
                Err(failure) if head.leaves_frees_now(&failure) => continue,
                Err(failure) => return Err(failure.into()),
            }
            lost += 1;
            self.lost += 1;
            self.met_others = true;
            match fence {
                Fence::Ticket(ticket) if !ticket.stands(seen) => continue,
                Fence::Ticket(_) if head.gives_way => return Ok(Attempt::GivesWay),
                // A free has another way for the time that is left: one without a ticket.
                Fence::Ticket(_) if Instant::now() >= self.policy.wait_until => {
                    return Err(Stopped::OutOfTime);
                }
                Fence::Ticket(_) => {}
                Fence::Lease { .. } | Fence::Unfenced { .. }
                    if lost < self.policy.fencing.tries() && !was_slow => {}
                Fence::Lease { .. } | Fence::Unfenced { .. } => break,
            }
            self.pause(match fence {
                Fence::Ticket(_) => limits::RACE_PAUSE_WITH_TICKET,
                Fence::Lease { .. } | Fence::Unfenced { .. } => limits::RACE_PAUSE_ALONE,
            })
            .await;
            if let (Fence::Ticket(ticket), Some(scope), false) = (fence, scope, head.line.is_empty()) {
                // The run that was quicker has probably served some of the line.
                let reads = self.reads(change, seen);
                head.meet(self.line(&Queue::new(self.session, scope), ticket, &reads, seen).await?);
            }
        }
        // Others were quicker. If commits are slow, more are on their way.
        if lost > 0 {
            self.approach = Approach::Queue;
        }
        Ok(Attempt::Again)
    }

    /// Takes note of an applied commit. Only its answer makes certain that the store which applied it has forgotten
    /// nothing.
    async fn acknowledge<D, R>(
        &mut self,
        Applied { at, puts_own_key, noted }: Applied,
        seen: &mut Snapshot,
    ) -> Result<(), Stopped<D, R>> {
        if puts_own_key {
            self.put_at = Some(at.revision);
        }
        self.acknowledge_store(at, seen).await?;
        self.acknowledged = Some(noted);
        Ok(())
    }

    /// Finds out whether a commit with an open outcome was applied, and makes sure that no late copy of it is applied.
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
                self.acknowledge(Applied::found(found, seen.revision), seen).await?;
                Ok(Attempt::Committed(Some(done)))
            }
            // The commit was not applied, and etcd would refuse it again.
            None if matches!(why, Failure::NoSpace(_)) => Err(why.into()),
            None => Ok(Attempt::Again),
        }
    }
}
