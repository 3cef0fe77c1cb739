//! A run's ticket in a first-in-first-out queue.
//!
//! The queue only saves contenders wasted work. An allocation is safe because of the compares of its commit and because
//! of its fence, which may be the ticket. So nobody must wait for a dead run: a waiter that has seen one head for too
//! long evicts it. If the evicted run wakes up, its ticket is gone and its commit fails.

use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};

use super::keys::{Bytes, LeaseId, Scope, TicketId};
use super::kv::{Failure, Kv, Watch};
use super::session::Session;
use super::snapshot::Snapshot;
use super::txn::{Compare, Entry, Op, QueueEnd, Reply, Txn};
use crate::limits;
use crate::pool::record::{Owner, PodIndex, Record};
use crate::random::{random, random_pause};

/// How many operations the transaction has that takes a ticket, without the reads for the run.
pub const TICKET_OPS: usize = 4;

/// A run's ticket in its queue, as the key was read after it was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket {
    /// The key.
    pub key: Bytes,
    /// A commit compares it, so a ticket that was removed and made again does not count.
    pub create_revision: i64,
    /// The lease that the ticket hangs on.
    pub lease: LeaseId,
    /// The key of the queue's tail, and its value while this ticket is the last one.
    pub tail: (Bytes, Vec<u8>),
}

impl Ticket {
    /// The operations that remove the ticket, and also the tail if it still names this ticket.
    #[must_use]
    pub fn removal(&self) -> [Op; 2] {
        let (tail, last) = self.tail.clone();
        [Op::Delete(self.key.clone()), Op::DeleteIf(tail, last)]
    }

    /// Whether the ticket still exists, by what was read last.
    #[must_use]
    pub fn stands(&self, seen: &Snapshot) -> bool {
        seen.entry(&self.key).is_some_and(|entry| entry.create_revision == self.create_revision)
    }
}

/// One queue, as one run sees it.
pub struct Queue<'a, K> {
    session: Session<'a, K>,
    scope: &'a Scope,
}

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// The run is at the head.
    Head,
    /// The run's ticket is gone.
    Evicted,
    /// There is no time left to wait.
    OutOfTime,
}

/// A ticket, and what stood before it when it was taken.
#[derive(Debug, Clone)]
pub struct Taken {
    /// The ticket.
    pub ticket: Ticket,
    /// What the ticket is behind.
    pub behind: Behind,
}

/// What a ticket is behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Behind {
    /// Nobody: it is at the head.
    Nobody,
    /// This ticket.
    Ticket(Bytes),
    /// The answer did not say it.
    Somebody,
}

impl<'a, K: Kv> Queue<'a, K> {
    /// The queue of `scope`.
    pub fn new(session: Session<'a, K>, scope: &'a Scope) -> Self {
        Self { session, scope }
    }

    /// Its scope.
    #[must_use]
    pub fn scope(&self) -> &Scope {
        self.scope
    }

    /// The same queue with another deadline.
    #[must_use]
    pub fn by(&self, until: Instant) -> Self {
        Self { session: self.session.by(until), scope: self.scope }
    }

    /// Takes a ticket on a lease that was granted before. The same transaction carries out `reads`.
    ///
    /// # Errors
    /// [`Failure`]; if the ticket was made all the same, it ends with its lease.
    pub async fn take(
        &self,
        lease: LeaseId,
        owner: &Owner,
        reads: &[Op],
        snapshot: &mut Snapshot,
    ) -> Result<Taken, Failure> {
        let until = self.session.until;
        // Runs of one node share leases, so a lease does not name a ticket.
        let id = TicketId(random_positive());
        let key = self.session.keys.ticket(self.scope, id);
        let tail = (self.session.keys.tail(self.scope), tail_value(id));
        let txn = ticket_txn(&key, &tail, lease, owner, reads);
        let mut placed = self.session.txn(&txn).await;
        // An etcd that accepts connections and never answers is treated like one that cannot be reached.
        let give_up = until.min(Instant::now() + limits::UNREACHABLE);
        // A request without an answer is sent again; it takes effect only once.
        while matches!(placed, Err(Failure::Unknown(_))) && Instant::now() + limits::RETRY_PAUSE < give_up {
            tokio::time::sleep(random_pause(limits::RETRY_PAUSE)).await;
            placed = self.session.txn(&txn).await;
        }
        let mut ticket = Ticket { key, create_revision: 0, lease, tail };
        if let Err(failure) = &placed
            && failure.is_open()
        {
            self.leave(&ticket).await;
        }
        let reply = placed?;
        let ops = if reply.succeeded { &txn.then } else { &txn.otherwise };
        snapshot.absorb(ops, &reply);
        let Some(entry) = snapshot.entry(&ticket.key) else { return Err(Failure::LeaseNotFound) };
        ticket.create_revision = entry.create_revision;
        let behind = match reply.found[0].one() {
            // The answer to a request that was sent twice may name this ticket, or one that came after it.
            _ if !reply.succeeded => Behind::Somebody,
            None => Behind::Nobody,
            Some(tail) => match parse_tail(&tail.value) {
                Some(id) => Behind::Ticket(self.session.keys.ticket(self.scope, id)),
                None => Behind::Somebody,
            },
        };
        Ok(Taken { ticket, behind })
    }

    /// Waits until this ticket is the head, or until the session's deadline. At the head, `reads` have been read again.
    ///
    /// # Errors
    /// [`Failure`]; the ticket may still exist.
    pub async fn wait(&self, taken: &Taken, reads: &[Op], snapshot: &mut Snapshot) -> Result<Turn, Failure> {
        let ticket = &taken.ticket;
        let mut patience = Patience::default();
        let mut survey_at = Instant::now() + limits::SURVEY_AFTER;
        let survey_by = Instant::now() + limits::SURVEY_AT_LATEST;
        let mut newest = newest_revision(reads, snapshot);
        let mut before = match &taken.behind {
            Behind::Nobody => return Ok(Turn::Head),
            Behind::Ticket(key) => Some(key.clone()),
            Behind::Somebody => None,
        };
        while Instant::now() < self.session.until {
            if let Some(key) = &before {
                match self.stand_behind(key, ticket, reads, snapshot, survey_at).await? {
                    Look::Gone => return Ok(Turn::Evicted),
                    Look::Head => return Ok(Turn::Head),
                    Look::Behind if Instant::now() < survey_at => continue,
                    Look::Behind => {}
                }
                let latest = newest_revision(reads, snapshot);
                if latest > newest && Instant::now() < survey_by {
                    // Something has changed, so the queue probably moves.
                    newest = latest;
                    survey_at = (Instant::now() + limits::SURVEY_AFTER).min(survey_by);
                    continue;
                }
            }
            let (head, last, others) = match self.survey(ticket, reads, snapshot).await? {
                Survey::Gone => return Ok(Turn::Evicted),
                Survey::Head => return Ok(Turn::Head),
                Survey::Behind { head, last, others } => (head, last, others),
            };
            match patience.see(&head, if head.key == last { 1 } else { others }) {
                PatienceVerdict::Until(at) => {
                    survey_at = at;
                    before = Some(last);
                }
                PatienceVerdict::NoMore => {
                    self.evict(ticket, &head).await?;
                    patience.has_evicted();
                    before = None;
                }
            }
        }
        Ok(Turn::OutOfTime)
    }

    /// Waits until the ticket before is gone, or until `look_at`, and looks. The cost for etcd does not depend on the
    /// length of the queue. If the ticket before left from the middle of the queue, this run goes on too early, and its
    /// commit or another run's is lost.
    async fn stand_behind(
        &self,
        before: &[u8],
        ticket: &Ticket,
        reads: &[Op],
        snapshot: &mut Snapshot,
        look_at: Instant,
    ) -> Result<Look, Failure> {
        // A watch from now shows no earlier change. So open it, look once more, then wait.
        let mut watch = self.session.kv.watch(&[before.to_vec()], self.session.until).await?;
        let mut is_over = false;
        loop {
            let ops = vec![Op::Get(before.to_vec()), Op::Get(ticket.key.clone())];
            let reply = self.read(ops, reads, snapshot).await?;
            match reply.found[0].one() {
                _ if !ticket.stands(snapshot) => return Ok(Look::Gone),
                None => return Ok(Look::Head),
                Some(_) if is_over => {
                    // A pause, because a watch that ends as soon as it is opened would make this a busy loop.
                    tokio::time::sleep(random_pause(limits::RACE_PAUSE)).await;
                    return Ok(Look::Behind);
                }
                Some(_) => {}
            }
            // In this order, so that the result is not random.
            tokio::select! {
                biased;
                _ = watch.next() => {}
                () = sleep_until(look_at) => {}
                () = sleep_until(self.session.until) => return Ok(Look::Behind),
            }
            is_over = true;
        }
    }

    /// Reads who is at the head, and who is right before this run. etcd sorts all tickets for this, and walks over all
    /// that existed since the last compaction.
    async fn survey(
        &self,
        ticket: &Ticket,
        reads: &[Op],
        snapshot: &mut Snapshot,
    ) -> Result<Survey, Failure> {
        let ops = vec![
            self.tickets(None, QueueEnd::Oldest, 1),
            self.tickets(Some(ticket.create_revision), QueueEnd::Youngest, 1),
            Op::Get(ticket.key.clone()),
        ];
        let reply = self.read(ops, reads, snapshot).await?;
        let (all, older) = (&reply.found[0], &reply.found[1]);
        Ok(match (all.one(), older.one()) {
            _ if !ticket.stands(snapshot) => Survey::Gone,
            (Some(head), Some(last)) => {
                Survey::Behind { head: head.clone(), last: last.key.clone(), others: all.count - 1 }
            }
            _ => Survey::Head,
        })
    }

    /// Carries out `ops`, and what `reads` ask for.
    async fn read(&self, mut ops: Vec<Op>, reads: &[Op], snapshot: &mut Snapshot) -> Result<Reply, Failure> {
        ops.extend_from_slice(reads);
        let txn = Txn::read(ops);
        let reply = self.session.txn(&txn).await?;
        snapshot.absorb(&txn.then, &reply);
        Ok(reply)
    }

    /// Removes the oldest tickets before `ticket`, if `head` is still the first of them.
    async fn evict(&self, ticket: &Ticket, head: &Entry) -> Result<(), Failure> {
        let oldest = self.tickets(Some(ticket.create_revision), QueueEnd::Oldest, limits::EVICT_TICKETS);
        let reply = self.session.txn(&Txn::read(vec![oldest])).await?;
        let stale = reply.found.first().map(|found| found.entries.as_slice()).unwrap_or_default();
        let txn = Txn {
            step: "evict",
            compares: vec![Compare::Create(head.key.clone(), head.create_revision)],
            then: stale.iter().map(|entry| Op::Delete(entry.key.clone())).collect(),
            otherwise: Vec::new(),
        };
        tracing::info!(queue = %self.scope, tickets = stale.len(), "evicting runs that do not move");
        match self.session.txn(&txn).await {
            // The next look shows whether it was applied.
            Ok(_) | Err(Failure::Unknown(_)) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Removes a ticket, in at most [`limits::LEAVE`]. If that fails, the ticket ends with its lease.
    pub async fn leave(&self, ticket: &Ticket) {
        let txn = Txn { step: "leave", then: ticket.removal().to_vec(), ..Txn::default() };
        let session = self.session.by(Instant::now() + limits::LEAVE);
        if !matches!(timeout(limits::LEAVE, session.txn(&txn)).await, Ok(Ok(_))) {
            tracing::info!(queue = %self.scope, "the ticket in the queue stays until its lease ends");
        }
    }

    fn tickets(&self, before: Option<i64>, end: QueueEnd, limit: i64) -> Op {
        Op::Tickets { queue: self.session.keys.queue(self.scope), before, end, limit }
    }
}

/// What a look at the ticket before showed.
enum Look {
    Gone,
    Head,
    Behind,
}

/// What a look at the whole queue showed.
enum Survey {
    Gone,
    Head,
    Behind {
        head: Entry,
        /// The ticket right before this run's.
        last: Bytes,
        /// How many other tickets there are, before and after this one.
        others: i64,
    },
}

/// The transaction that takes a ticket, and reads what the run needs.
fn ticket_txn(key: &Bytes, tail: &(Bytes, Vec<u8>), lease: LeaseId, owner: &Owner, reads: &[Op]) -> Txn {
    // For people who look at a queue; no program reads it.
    let value = PodIndex::new(owner.clone()).encode();
    let mut then = vec![
        Op::Get(tail.0.clone()),
        Op::Put(tail.0.clone(), tail.1.clone(), Some(lease)),
        Op::Put(key.clone(), value, Some(lease)),
        Op::Get(key.clone()),
    ];
    let mut otherwise = vec![Op::Get(tail.0.clone()), Op::Get(key.clone())];
    then.extend_from_slice(reads);
    otherwise.extend_from_slice(reads);
    Txn { step: "ticket", compares: vec![Compare::Create(key.clone(), 0)], then, otherwise }
}

/// The newest revision of the keys that a run reads and that the commits of its queue write.
fn newest_revision(reads: &[Op], snapshot: &Snapshot) -> i64 {
    let revision = |op: &Op| match op {
        Op::Get(key) => snapshot.mod_revision(key),
        _ => 0,
    };
    reads.iter().map(revision).max().unwrap_or(0)
}

/// The value of a tail that names this ticket.
fn tail_value(id: TicketId) -> Vec<u8> {
    format!("{:016x}", id.0).into_bytes()
}

/// What the tail of a queue names.
fn parse_tail(value: &[u8]) -> Option<TicketId> {
    i64::from_str_radix(std::str::from_utf8(value).ok()?, 16).ok().map(TicketId)
}

/// A new random lease id; positive, as etcd wants it.
#[must_use]
pub fn new_lease() -> LeaseId {
    LeaseId(random_positive())
}

fn random_positive() -> i64 {
    ((random() >> 1) as i64).max(1)
}

/// How long a waiter has seen one head, counted only while etcd answers.
#[derive(Debug, Default)]
struct Patience {
    seen: Option<Seen>,
    has_evicted: bool,
}

#[derive(Debug)]
struct Seen {
    create_revision: i64,
    since: Instant,
    /// When it was last seen, shortly before its time was over.
    confirmed: Option<Instant>,
}

/// What to do about a head.
enum PatienceVerdict {
    /// Look again then.
    Until(Instant),
    /// Evict it.
    NoMore,
}

impl Patience {
    /// Notes the head that is seen now, by a waiter with `before` tickets before its own.
    ///
    /// While etcd is silent, a head cannot move. So the wait ends only after two looks, [`limits::EVICT_CONFIRM`]
    /// apart, that etcd has both answered in time.
    fn see(&mut self, head: &Entry, before: i64) -> PatienceVerdict {
        let now = Instant::now();
        let wait = self.wait(before);
        let new = Seen { create_revision: head.create_revision, since: now, confirmed: None };
        let seen = match &mut self.seen {
            Some(seen) if seen.create_revision == head.create_revision => seen,
            other => other.insert(new),
        };
        let due = seen.since + wait.saturating_sub(limits::EVICT_CONFIRM);
        if now < due {
            return PatienceVerdict::Until(due);
        }
        let confirmed = seen.confirmed.map(|at| (at, now.duration_since(at)));
        match confirmed {
            Some((at, gap)) if gap < limits::EVICT_CONFIRM => {
                PatienceVerdict::Until(at + limits::EVICT_CONFIRM)
            }
            Some((_, gap)) if gap < limits::EVICT_CONFIRM + limits::EVICT_SLOW_LOOK => {
                PatienceVerdict::NoMore
            }
            _ => {
                seen.confirmed = Some(now);
                PatienceVerdict::Until(now + limits::EVICT_CONFIRM)
            }
        }
    }

    fn wait(&self, before: i64) -> Duration {
        let after = if self.has_evicted { limits::EVICT_AFTER_ONE } else { limits::EVICT_AFTER };
        let tickets = u32::try_from(before).unwrap_or(u32::MAX);
        (after + limits::EVICT_PER_TICKET.saturating_mul(tickets)).min(limits::EVICT_AT_MOST)
    }

    fn has_evicted(&mut self) {
        self.has_evicted = true;
        self.seen = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(create_revision: i64) -> Entry {
        Entry {
            key: b"head".to_vec(),
            value: Vec::new(),
            create_revision,
            mod_revision: create_revision,
            lease: 1,
        }
    }

    /// Looks at one head when it is time, and once more at each of `silences`. Returns how long it takes until the head
    /// may be evicted, in milliseconds.
    async fn bear(patience: &mut Patience, before: i64, silence_ms: u64) -> u128 {
        let start = Instant::now();
        let mut silence = Duration::from_millis(silence_ms);
        loop {
            match patience.see(&head(1), before) {
                PatienceVerdict::NoMore => return start.elapsed().as_millis(),
                PatienceVerdict::Until(at) => sleep_until(at + std::mem::take(&mut silence)).await,
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_dead_head_is_waited_for_for_two_seconds_and_a_little_for_each_ticket() {
        for (before, expected) in [(1, 2020), (10, 2200), (100, 4000), (100_000, 4000)] {
            assert_eq!(bear(&mut Patience::default(), before, 0).await, expected, "{before} before");
        }
        let mut patience = Patience::default();
        patience.has_evicted();
        assert_eq!(bear(&mut patience, 1, 0).await, 320);
    }

    #[tokio::test(start_paused = true)]
    async fn silence_does_not_count() {
        let late = bear(&mut Patience::default(), 1, 5000).await;
        assert!(late >= 1720 + 5000 + 300, "evicted after {late} ms");
    }

    #[tokio::test(start_paused = true)]
    async fn each_head_has_its_own_time() {
        let mut patience = Patience::default();
        assert!(matches!(patience.see(&head(1), 1), PatienceVerdict::Until(_)));
        tokio::time::sleep(Duration::from_secs(3)).await;
        let PatienceVerdict::Until(at) = patience.see(&head(2), 1) else { panic!("evicted at first sight") };
        assert_eq!((at - Instant::now()).as_millis(), 1720);
    }
}
