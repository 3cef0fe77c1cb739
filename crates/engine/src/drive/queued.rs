//! A change in the queue: it takes a ticket, waits for its turn or for another run that serves it, commits at the head,
//! and serves those behind.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::applied::{Applied, before};
use super::{Attempt, Attempted, Driver, Footing, Stopped};
use crate::kv::{Failure, Kv};
use crate::policy::FencePolicy;
use crate::queue::{Queue, Taken, Turn};
use crate::session::Session;
use metes_core::fence::Fence;
use metes_core::keys::{Bytes, NetworkAddress, Scope};
use metes_core::limits;
use metes_core::line::{Line, Waiting};
use metes_core::plan::batch;
use metes_core::plan::change::Change;
use metes_core::plan::effects::{Effects, Outcome, Planned};
use metes_core::snapshot::Snapshot;
use metes_core::ticket::Ticket;
use metes_core::txn::{Entry, Found, Op, Reply, Txn};

/// A run's knowledge at the head of its queue.
#[derive(Default)]
pub(super) struct Head {
    /// The others in the queue, as they were read last.
    pub(super) line: Line,
    /// True if nobody has given this run its turn, and it has not lost to a quicker run yet. Then it gives way to one.
    pub(super) gives_way: bool,
    /// True if nobody has given this run its turn, and it may find more tickets of deleted owners.
    is_impatient: bool,
    /// True if it has given a run its turn.
    has_given_turn: bool,
    /// True if it serves no free of another run: the lease for a tombstone of one of them has ended.
    leaves_frees: bool,
    /// Tickets that are gone.
    gone: BTreeSet<Bytes>,
    /// Addresses with stray bits that its last commit has set for runs which it could not serve.
    stray: Vec<NetworkAddress>,
    /// True if a run may wait that nobody has given its turn.
    pub(super) owes_turn: bool,
    /// True if it has carried out DELs of others after its own result.
    has_freed: bool,
    /// The time of a durable write.
    pub(super) latency: Duration,
    /// The queue as it was listed while the last commit was on its way.
    pub(super) listed: Option<Vec<Entry>>,
}

impl Head {
    /// Notes what a commit from the queue has done.
    pub(super) fn has_committed(&mut self, effects: &Effects, found: &[Found]) {
        let Outcome { gone, has_dropped, stray, has_given_turn, has_ended_queue } = effects.outcome(found);
        self.gone.extend(gone);
        self.is_impatient &= has_dropped;
        // A batch clears so many.
        let cleared = self.line.stray.len().min(limits::REPAIR_BITS);
        self.stray = self.line.stray.split_off(cleared);
        self.stray.extend(stray);
        let was_last = has_ended_queue && self.stray.is_empty();
        self.owes_turn &= !(was_last && self.has_served_all() || has_given_turn);
        self.has_given_turn |= has_given_turn;
    }

    /// Notes those who wait besides this run.
    pub(super) fn meet(&mut self, line: Line) {
        let Self { is_impatient, has_given_turn, leaves_frees, .. } = *self;
        self.line = Line { is_impatient, has_given_turn, leaves_frees, ..line };
    }

    /// True if a commit was refused because a lease has ended that is perhaps one of another run, for the tombstone of
    /// a free which the commit was to serve. From now on this head serves no such free.
    pub(super) fn leaves_frees_now(&mut self, failure: &Failure) -> bool {
        let may_be = matches!(failure, Failure::LeaseNotFound)
            && !self.leaves_frees
            && self.line.waiting.iter().any(Waiting::is_free);
        self.leaves_frees |= may_be;
        self.line.leaves_frees |= may_be;
        may_be
    }

    /// True if nobody is left of those who were read, apart from runs that have had their turn. The last one in the
    /// queue may have become the head out of impatience, with others before it.
    fn has_served_all(&self) -> bool {
        let is_left = |waiting: &Waiting| !waiting.has_its_turn() && !self.gone.contains(&waiting.ticket.key);
        !self.line.waiting.iter().any(is_left)
    }
}

impl<K: Kv> Driver<'_, K> {
    /// Takes a ticket, waits for its turn, and commits; or another run commits for it. Every way out removes the
    /// ticket.
    pub(super) async fn commit_in_queue<C: Change>(
        &mut self,
        change: &mut C,
        scope: &Scope,
        seen: &mut Snapshot,
    ) -> Attempted<C> {
        let queue = Queue::new(self.session, scope);
        let lease = self.ticket_lease().await?;
        let tombstones = self.tombstone_lease(lease).await?;
        // From now on another run may commit for this one. So the lease must have been granted before the deadline, as
        // for a commit of its own.
        if !(self.policy.is_wanted)() {
            return Err(Stopped::OutOfTime);
        }
        self.recall();
        let reads = self.reads(change, seen);
        let record = change.ticket(seen, self.epoch(seen), tombstones);
        let (leases, proof, mut is_repeated) = ((lease, tombstones), change.proof(), false);
        let beside = || self.own_key_beside_ticket();
        let taken = queue.take(leases, (&record, &proof), (&reads, &beside), seen, &mut is_repeated).await;
        let is_open = is_repeated || taken.as_ref().is_err_and(Failure::is_open);
        self.may_be_served |= is_open && record.asks_for_addresses();
        let taken = taken?;
        self.met_others |= !taken.is_first;
        // Before the wait, because a tombstone may end with its lease while this run waits.
        change.learn(seen);
        let ticket = taken.ticket.clone();
        let mut head = Head { latency: taken.latency, ..Head::default() };
        let mut attempted = self.stand(change, &queue, taken, &reads, &mut head, seen).await;
        if !matches!(attempted, Ok(Attempt::Committed(_))) {
            attempted = self.leave(change, &queue, &ticket, &mut head, attempted).await;
        }
        // If it fails, the others notice that the queue does not move.
        let _ = self.serve_others(&queue, &ticket, &mut head, seen).await;
        match attempted {
            // Perhaps an owner whose DEL waited held what this run asked for. So it is judged again, once.
            Err(Stopped::Refused(_)) if head.has_freed && !self.is_judged_again => {
                self.is_judged_again = true;
                Ok(Attempt::Again)
            }
            attempted => attempted,
        }
    }

    /// Waits for its turn, and then commits, unless another run has served it.
    async fn stand<C: Change>(
        &mut self,
        change: &mut C,
        queue: &Queue<'_, K>,
        mut taken: Taken<K::Watch>,
        reads: &[Op],
        head: &mut Head,
        seen: &mut Snapshot,
    ) -> Attempted<C> {
        let ticket = taken.ticket.clone();
        self.check_known(seen, before(ticket.create_revision)).await?;
        if taken.has_carried_out {
            self.has_put_beside(&ticket, seen);
        }
        let fence = Fence::Ticket(ticket.clone());
        let footing = Footing { scope: Some(queue.scope()), fence: &fence };
        if change.is_unhindered(seen) {
            // Nobody is before it, so those who have come since wait for it.
            head.owes_turn = taken.is_first;
            return self.commit(change, footing, head, seen).await;
        }
        let proof = change.proof();
        let mut has_given_way = false;
        // Where etcd is slow, it takes its ticket back in time: a head would serve it for nothing.
        let wait_until = self.policy.wait_until - (self.leaves(head) - limits::LEAVE.least);
        loop {
            let is_served = |found: &Entry| change.served(found).is_some();
            head.is_impatient = match queue.by(wait_until).wait(&mut taken, &proof, is_served).await? {
                Turn::Head => false,
                Turn::Alone => {
                    *head = Head { latency: head.latency, ..Head::default() };
                    self.session.read_all(reads.to_vec(), seen).await?;
                    return self.commit(change, footing, head, seen).await;
                }
                Turn::Impatient => true,
                Turn::Served(found) => {
                    self.acknowledge(Applied::shown(&found), seen).await?;
                    return Ok(Attempt::Committed(change.served(&found)));
                }
                Turn::Gone => {
                    // It ended with its lease.
                    self.lose_lease();
                    return Ok(Attempt::Again);
                }
                Turn::OutOfTime => return Err(Stopped::OutOfTime),
            };
            // Once. Where it is a neighbouring queue that is quicker, nobody serves this run.
            head.gives_way = head.is_impatient && !has_given_way;
            head.owes_turn = true;
            if !taken.is_first {
                head.meet(self.line(queue, &ticket, reads, seen).await?);
            }
            if head.is_impatient && taken.sees_move(seen) {
                // Another run has become the head meanwhile. It may be about to clear bits that it has set for dead
                // runs, and until then the range may seem to be full.
                head.owes_turn = false;
                continue;
            }
            taken.is_first = false;
            let attempted = match self.commit_in_line(change, &ticket, queue, head, seen).await? {
                Some(attempt) => Ok(attempt),
                None => self.commit(change, footing, head, seen).await,
            };
            match attempted {
                // Another run is at the head, and will probably serve this one.
                Ok(Attempt::GivesWay) => (has_given_way, head.owes_turn) = (true, false),
                attempted => return attempted,
            }
        }
    }

    /// Reads the runs that wait besides this one, and again the keys that this run relies on.
    pub(super) async fn line(
        &self,
        queue: &Queue<'_, K>,
        ticket: &Ticket,
        reads: &[Op],
        seen: &mut Snapshot,
    ) -> Result<Line, Failure> {
        let own = [&ticket.key, &ticket.moved].map(|key| Op::Get(key.clone()));
        let tickets = queue.tickets(&[&own, reads].concat(), seen).await?;
        Ok(Line::new(&tickets, |key| *key == ticket.key))
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
        head.line.waiting.insert(0, Waiting::of(own));
        let (reply, Planned { txn, effects }) = loop {
            self.recall();
            let Some(planned) = self.plan_batch(queue, ticket, &head.line, seen).await? else {
                head.line = Line::default();
                return Ok(None);
            };
            match self.session.txn(&planned.txn).await {
                Err(failure) if head.leaves_frees_now(&failure) => {}
                reply => break (reply?, planned),
            }
        };
        head.line.waiting.clear();
        if !reply.succeeded {
            seen.absorb(&txn.otherwise, &reply);
            return Ok(head.gives_way.then_some(Attempt::GivesWay));
        }
        seen.apply(&txn, &reply);
        head.has_committed(&effects, &reply.found);
        let is_served = effects.removes.contains(&ticket.key);
        Ok(is_served.then_some(Attempt::Committed(Some(done))))
    }

    /// The most time that a run takes to remove its ticket if it is not served.
    fn leaves(&self, head: &Head) -> Duration {
        match self.policy.fencing {
            // A free needs its time for the way without a ticket.
            FencePolicy::Nothing => limits::LEAVE.least,
            _ => limits::LEAVE.at(head.latency),
        }
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
        let Ok(reply) = queue.leave(ticket, &[change.proof()], self.leaves(head)).await else {
            self.may_be_served = true;
            return attempted;
        };
        head.owes_turn &= !(Ticket::END.is_carried_out(&reply.found) && head.has_served_all());
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

    /// Goes on after this run's ticket is gone: another run has served it, or the ticket has ended with its lease.
    pub(super) async fn after_ticket<C: Change>(
        &mut self,
        change: &C,
        head: &mut Head,
        seen: &mut Snapshot,
    ) -> Attempted<C> {
        head.owes_turn = false;
        let found = seen.entry(&change.proof()).cloned();
        match found.as_ref().and_then(|found| change.served(found)) {
            Some(done) => {
                self.acknowledge(Applied::found(found, seen.revision), seen).await?;
                Ok(Attempt::Committed(Some(done)))
            }
            None => {
                self.lose_lease();
                Ok(Attempt::Again)
            }
        }
    }

    /// Serves those who wait, after this run's own result is certain, for [`limits::HEAD_SERVES`]. Then it gives the
    /// next run its turn.
    async fn serve_others(
        &mut self,
        queue: &Queue<'_, K>,
        ticket: &Ticket,
        head: &mut Head,
        seen: &mut Snapshot,
    ) -> Result<(), Failure> {
        head.gone.insert(ticket.key.clone());
        let serves = limits::HEAD_SERVES.at(head.latency);
        let stop_at = Instant::now() + serves;
        // Its caller waits for the result that is certain.
        let until = self.session.until.min(stop_at + limits::HEAD_ENDS.at(head.latency));
        let queue = &queue.by(until);
        let mut lost = 0;
        while (head.owes_turn || !head.stray.is_empty())
            && lost < limits::CLEAR_TRIES
            && Instant::now() < until
        {
            let is_fresh = head.listed.is_none();
            let tickets = match head.listed.take() {
                _ if !head.owes_turn => Vec::new(),
                Some(tickets) => tickets,
                None => queue.tickets(&[], seen).await?,
            };
            let line = Line::new(&tickets, |key| head.gone.contains(key));
            let (hands_over, stray) = (Instant::now() >= stop_at, head.stray.clone());
            head.meet(Line { hands_over, stray, ..line });
            self.recall();
            let Planned { txn, effects } = match self.plan_batch(queue, ticket, &head.line, seen).await? {
                Some(planned) => planned,
                None if is_fresh => return Ok(()),
                // Others may have come since.
                None => continue,
            };
            let goes_on = head.owes_turn && !effects.hands_over();
            let listing = goes_on.then_some((queue, serves));
            let (committed, listed) = send(queue.session(), &txn, listing).await;
            let reply = match committed {
                Err(failure) if head.leaves_frees_now(&failure) => continue,
                committed => committed?,
            };
            if reply.succeeded {
                seen.apply(&txn, &reply);
                head.has_committed(&effects, &reply.found);
                head.has_freed |= !effects.removes.is_empty();
                head.listed = listed;
            } else {
                // Another run is at the head, too.
                seen.absorb(&txn.otherwise, &reply);
                lost += 1;
            }
        }
        Ok(())
    }

    /// The next batch for a line, after all that it relies on was read; none if there is nobody to serve and nobody to
    /// give a turn to.
    async fn plan_batch(
        &self,
        queue: &Queue<'_, K>,
        head: &Ticket,
        line: &Line,
        seen: &mut Snapshot,
    ) -> Result<Option<Planned>, Failure> {
        loop {
            match batch::plan(self.session.keys, seen, head, queue.scope(), line) {
                Ok(mut planned) => {
                    if let Some(planned) = &mut planned {
                        self.compare_own_key(&mut planned.txn, seen);
                    }
                    return Ok(planned);
                }
                Err(lacking) => queue.session().read_all(lacking, seen).await?,
            }
        }
    }
}

/// Sends a commit. The listing of the queue for the next one travels with it, if a queue is named. The commit's answer
/// waits for it so long, at most.
pub(super) async fn send<K: Kv>(
    session: Session<'_, K>,
    txn: &Txn,
    queue: Option<(&Queue<'_, K>, Duration)>,
) -> (Result<Reply, Failure>, Option<Vec<Entry>>) {
    let Some((queue, most)) = queue else { return (session.txn(txn).await, None) };
    let mut ignored = Snapshot::default();
    let listing = timeout(most, queue.tickets(&[], &mut ignored));
    let (committed, listed) = tokio::join!(session.txn(txn), listing);
    (committed, listed.ok().and_then(Result::ok))
}

#[cfg(test)]
mod tests {
    use super::*;
    use metes_core::keys::{Keys, TicketId};
    use metes_core::plan::effects::Position;
    use metes_core::txn::NestedReply;

    /// A dead run is before those that wait, and the last one of them becomes the head out of impatience.
    #[test]
    fn the_last_in_the_queue_goes_on_as_long_as_somebody_is_before_it() {
        let keys = Keys::new("/m/");
        let scope = Scope::stored("s").expect("a scope");
        let key = |id| keys.ticket(&scope, TicketId(id));
        let entry = |id, turn| Entry {
            key: key(id),
            value: Vec::new(),
            create_revision: id,
            mod_revision: id + turn,
            lease: 7,
        };
        let effects = Effects { removes: vec![key(9)], ends: vec![Position(1)], ..Effects::default() };
        let end = NestedReply { succeeded: true, found: vec![Found::default()] };
        let found = vec![Found::default(), Found { nested: Some(end), ..Found::default() }];
        let owes = |tickets: &[Entry], gone: &[Bytes]| {
            let line = Line::new(tickets, |_| false);
            let gone = gone.iter().cloned().collect();
            let mut head = Head { line, owes_turn: true, gone, ..Head::default() };
            head.has_committed(&effects, &found);
            head.owes_turn
        };
        assert!(owes(&[entry(1, 0), entry(2, 0)], &[key(1)]), "one is left");
        assert!(!owes(&[entry(1, 0), entry(2, 0)], &[key(1), key(2)]));
        assert!(!owes(&[entry(1, 3)], &[]), "it had its turn");
        assert!(!owes(&[], &[]));
    }
}
