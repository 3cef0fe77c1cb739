//! A first-in-first-out queue, in which a run waits with its ticket.
//!
//! The queue only saves contenders wasted work. An allocation is safe because of the compares of its commit and because
//! of its fence, which is the ticket of the run that gets the addresses. So nobody must wait for a dead run: a waiter
//! that has seen nothing move for some time goes to the head from where it stands, whoever is before it.

use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};

use super::kv::{Event, Failure, Kv, Watch};
use super::session::Session;
use crate::random::{random_pause, random_positive};
use metes_core::keys::{Bytes, LeaseId, Scope, TicketId};
use metes_core::limits;
use metes_core::pool::Record;
use metes_core::request::TicketRecord;
use metes_core::snapshot::Snapshot;
use metes_core::ticket::{Ticket, awaits_turn, has_carried_out, ticket_txn};
use metes_core::txn::{Entry, Op, Reply, Txn};

/// One queue, as one run sees it.
pub struct Queue<'a, K> {
    session: Session<'a, K>,
    scope: &'a Scope,
}

/// The end of a wait.
#[derive(Debug)]
pub enum Turn {
    /// The run is at the head.
    Head,
    /// The run decides for itself, and serves nobody.
    Alone,
    /// Nothing has moved for some time, so the run goes to the head from where it stands.
    Impatient,
    /// Another run has written this owner's record for it.
    Served(Entry),
    /// The run's ticket is gone.
    Gone,
    /// There is no time left to wait.
    OutOfTime,
}

/// A ticket, and the state of the queue when it was taken.
pub struct Taken<W> {
    /// The ticket.
    pub ticket: Ticket,
    /// True if nobody was before it.
    pub is_first: bool,
    /// True if what was to be carried out beside it was carried out.
    pub(crate) has_carried_out: bool,
    watch: Option<W>,
    /// When the queue moved last: the mod revision of [`Ticket::moved`].
    moved: i64,
    /// The time of a durable write.
    pub(crate) latency: Duration,
}

impl<W> Taken<W> {
    /// True if the queue has moved since the wait was over, by a later read of [`Ticket::moved`].
    pub(crate) fn sees_move(&mut self, seen: &Snapshot) -> bool {
        let last = seen.mod_revision(&self.ticket.moved);
        std::mem::replace(&mut self.moved, last) != last
    }
}

impl<'a, K: Kv> Queue<'a, K> {
    /// The queue of `scope`.
    pub fn new(session: Session<'a, K>, scope: &'a Scope) -> Self {
        Self { session, scope }
    }

    pub(crate) fn scope(&self) -> &Scope {
        self.scope
    }

    pub(crate) fn session(&self) -> Session<'a, K> {
        self.session
    }

    /// The same queue with another deadline.
    #[must_use]
    pub fn by(&self, until: Instant) -> Self {
        Self { session: self.session.by(until), scope: self.scope }
    }

    /// Takes a ticket on the first of two leases that were granted before; the second one is for tombstones. The same
    /// transaction carries out `reads`, and then the transaction inside that is `beside` it, which is asked for anew if
    /// the request is repeated. Meanwhile the watch is opened on which the run will wait. `is_repeated` tells whether
    /// the request was sent more than once: whatever comes of it, the run may have been served from another copy, or
    /// still be.
    ///
    /// # Errors
    /// [`Failure`]; if the ticket was made all the same, it ends with its lease.
    pub async fn take(
        &self,
        (lease, tombstones): (LeaseId, LeaseId),
        (record, proof): (&TicketRecord, &Bytes),
        (reads, beside): (&[Op], &dyn Fn() -> Option<Op>),
        snapshot: &mut Snapshot,
        is_repeated: &mut bool,
    ) -> Result<Taken<K::Watch>, Failure> {
        let Session { kv, keys, until } = self.session;
        // Runs of one node share leases, so a lease does not name a ticket.
        let key = keys.ticket(self.scope, TicketId(random_positive()));
        let (tail, moved) = (keys.tail(self.scope), keys.moved(self.scope));
        let cluster = record.owner.cluster.clone();
        let mut ticket = Ticket { key, create_revision: 0, lease, cluster, tombstones, tail, moved };
        let txn = || ticket_txn(&ticket, record, reads, beside());
        let watched = [ticket.key.clone(), proof.clone()];
        kv.connect(until).await?;
        // Without a ticket there is nothing to watch for. Without a watch, the run asks.
        let watch = async { Ok(kv.watch(&watched, until).await.ok()) };
        let (watch, (reply, latency, txn)) = match tokio::try_join!(watch, self.place(&txn, is_repeated)) {
            Ok(answered) => answered,
            Err(failure) => {
                if failure.is_open() || *is_repeated {
                    let _ = self.leave(&ticket, &[], limits::LEAVE.least).await;
                }
                return Err(failure);
            }
        };
        snapshot.absorb(txn.branch(reply.succeeded), &reply);
        let Some(entry) = snapshot.entry(&ticket.key) else { return Err(Failure::LeaseNotFound) };
        ticket.create_revision = entry.create_revision;
        Ok(Taken {
            // The answer to a request that was sent twice may name this ticket, or one that came after it.
            is_first: reply.succeeded && reply.found[0].one().is_none(),
            has_carried_out: has_carried_out(&reply),
            watch,
            moved: snapshot.mod_revision(&ticket.moved),
            latency,
            ticket,
        })
    }

    /// Sends the transaction that takes a ticket until it is answered; it takes effect only once. The time is that of
    /// the request that was answered. The time of one that was lost on a failed member is not that of a durable write.
    async fn place(
        &self,
        txn: &impl Fn() -> Txn,
        is_repeated: &mut bool,
    ) -> Result<(Reply, Duration, Txn), Failure> {
        let Session { kv, until, .. } = self.session;
        loop {
            let (began, txn) = (Instant::now(), txn());
            match self.session.txn(&txn).await {
                Err(Failure::Unknown(_)) if Instant::now() + limits::RETRY_PAUSE < until => {}
                placed => return placed.map(|reply| (reply, began.elapsed(), txn)),
            }
            *is_repeated = true;
            tokio::time::sleep(random_pause(limits::RETRY_PAUSE)).await;
            // The next request goes to another member. To connect is no part of it.
            kv.connect(until).await?;
        }
    }

    /// Waits until this run is at the head, another run has served it, or the session's deadline has come. `proof` is
    /// the key that another run writes when it serves this one. `is_served` tells by its entry whether it was written
    /// for this run.
    ///
    /// # Errors
    /// [`Failure`]; the ticket may still exist.
    pub async fn wait(
        &self,
        taken: &mut Taken<K::Watch>,
        proof: &Bytes,
        is_served: impl Fn(&Entry) -> bool,
    ) -> Result<Turn, Failure> {
        let Taken { ticket, is_first, watch, moved, latency, .. } = taken;
        if *is_first {
            return Ok(Turn::Head);
        }
        let mut patience = limits::PATIENCE.at(*latency);
        // A watch that was opened before the ticket was taken shows all that happens to it. Else one look is due.
        let shows_all = watch.as_ref().is_some_and(|watch| watch.since() < ticket.create_revision);
        let mut due = Instant::now() + patience + random_pause(patience);
        let mut look_at = if shows_all { due } else { Instant::now() };
        while Instant::now() < self.session.until {
            if Instant::now() >= look_at {
                if watch.is_none() {
                    *watch = Some(
                        self.session
                            .kv
                            .watch(&[ticket.key.clone(), proof.clone()], self.session.until)
                            .await?,
                    );
                }
                let keys = [&ticket.key, proof, &ticket.moved].map(|key| Op::Get(key.clone()));
                let began = Instant::now();
                let reply = self.session.txn(&Txn::read(keys.to_vec())).await?;
                let took = began.elapsed();
                let [own, record, last] = [0, 1, 2].map(|at| reply.found[at].one());
                match (own, record) {
                    (_, Some(record)) if is_served(record) => return Ok(Turn::Served(record.clone())),
                    (Some(own), _) if own.create_revision == ticket.create_revision => {
                        if own.mod_revision != own.create_revision {
                            return Ok(turn_of(own));
                        }
                    }
                    _ => return Ok(Turn::Gone),
                }
                let (awaits_turn, last) = (awaits_turn(last), last.map_or(0, |last| last.mod_revision));
                if Instant::now() >= due {
                    if last == *moved {
                        tracing::info!(queue = %self.scope, "the queue does not move; going to its head");
                        return Ok(Turn::Impatient);
                    }
                    *moved = last;
                    // A run that has its turn and does not use it may be dead, and so may be the next one.
                    patience = match awaits_turn {
                        true => limits::PATIENCE.at(*latency),
                        false => (patience * 2).min(limits::PATIENCE_AT_MOST.at(took)),
                    };
                    due = Instant::now() + patience + random_pause(patience);
                }
                look_at = due;
                continue;
            }
            let Some(open) = watch.as_mut() else { continue };
            // In this order, so that the result is not random.
            tokio::select! {
                biased;
                event = open.next() => match event {
                    Some(Event { key, entry: Some(entry) }) if key == *proof => {
                        if is_served(&entry) {
                            return Ok(Turn::Served(entry));
                        }
                    }
                    Some(Event { key, entry: None }) if key == ticket.key => {
                        // The owner's record was written with it, or the ticket has ended.
                        look_at = look_at.min(Instant::now() + limits::SERVED_WITHIN);
                    }
                    // The watch may be older than the ticket, and then it shows that, too.
                    Some(Event { key, entry: Some(entry) })
                        if key == ticket.key && entry.mod_revision > ticket.create_revision =>
                    {
                        return Ok(turn_of(&entry));
                    }
                    Some(_) => {}
                    None => {
                        // A pause, because a watch that ends as soon as it is opened would make this a busy loop.
                        tokio::time::sleep(random_pause(limits::RACE_PAUSE)).await;
                        (*watch, look_at) = (None, Instant::now());
                    }
                },
                () = sleep_until(look_at) => {}
                () = sleep_until(self.session.until) => {}
            }
        }
        Ok(Turn::OutOfTime)
    }

    /// Reads the oldest tickets, and carries out `reads`.
    pub(crate) async fn tickets(&self, reads: &[Op], snapshot: &mut Snapshot) -> Result<Vec<Entry>, Failure> {
        let queue = self.session.keys.queue(self.scope);
        let txn = Txn::read([&[Op::Tickets(queue, limits::LINE_TICKETS)], reads].concat());
        let mut reply = self.session.txn(&txn).await?;
        snapshot.absorb(&txn.then, &reply);
        Ok(std::mem::take(&mut reply.found[0].entries))
    }

    /// Removes a ticket and reads keys at the same revision, in at most so much time. After that nobody serves the run
    /// any more.
    ///
    /// # Errors
    /// [`Failure`] if it is not known whether the ticket was removed. Then it ends with its lease.
    pub async fn leave(&self, ticket: &Ticket, keys: &[Bytes], most: Duration) -> Result<Reply, Failure> {
        let then = ticket.removal().into_iter().chain(keys.iter().cloned().map(Op::Get)).collect();
        let txn = Txn { step: "leave", then, settles: true, ..Txn::default() };
        let session = self.session.by(Instant::now() + most);
        let left = match timeout(most, session.txn(&txn)).await {
            Ok(left) => left,
            Err(_) => Err(Failure::Unknown(format!("no answer in {} ms", most.as_millis()))),
        };
        if left.is_err() {
            tracing::info!(queue = %self.scope, "the ticket in the queue stays until its lease ends");
        }
        left
    }
}

/// The turn of a run whose ticket a head has written again.
fn turn_of(ticket: &Entry) -> Turn {
    match TicketRecord::decode(&ticket.value) {
        Ok(record) if record.is_decided_alone() => Turn::Alone,
        Ok(_) | Err(_) => Turn::Head,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::future::pending;

    use super::*;
    use crate::kv::{About, LeaseAge};
    use metes_core::keys::Keys;
    use metes_core::memory::Memory;
    use metes_core::pool::Owner;

    /// A store that answers in 10 ms, except for requests whose answers are lost with a failed member.
    #[derive(Default)]
    struct Members {
        store: RefCell<Memory>,
        /// The time that each request takes besides.
        slow_by: Cell<Duration>,
        requests: Cell<u32>,
        /// A key that others write before each request.
        busy: RefCell<Option<Bytes>>,
        to_lose: Cell<u32>,
        /// No watch is confirmed, and after a request was lost nobody can connect.
        are_cut_off: Cell<bool>,
        connects: Cell<u32>,
    }

    struct Silent;

    impl Watch for Silent {
        fn since(&self) -> i64 {
            0
        }

        async fn next(&mut self) -> Option<Event> {
            pending().await
        }
    }

    impl Kv for Members {
        type Watch = Silent;

        async fn connect(&self, _: Instant) -> Result<(), Failure> {
            self.connects.set(self.connects.get() + 1);
            match self.are_cut_off.get() && self.connects.get() > 1 {
                true => Err(Failure::Unreachable("no connection".to_owned().into())),
                false => Ok(()),
            }
        }

        async fn txn(&self, txn: &Txn, _: Instant) -> Result<Reply, Failure> {
            if let Some(left) = self.to_lose.get().checked_sub(1) {
                self.to_lose.set(left);
                self.store.borrow_mut().apply(txn);
                tokio::time::sleep(limits::REQUEST_ATTEMPT).await;
                return Err(Failure::Unknown("no answer".into()));
            }
            tokio::time::sleep(Duration::from_millis(10) + self.slow_by.get()).await;
            self.requests.set(self.requests.get() + 1);
            if let Some(busy) = self.busy.borrow().clone() {
                let then = vec![Op::Put(busy, Vec::new(), None)];
                self.store.borrow_mut().apply(&Txn { then, ..Txn::default() });
            }
            Ok(self.store.borrow_mut().apply(txn))
        }

        async fn grant(&self, _: LeaseId, ttl: Duration, _: Instant) -> Result<Duration, Failure> {
            Ok(ttl)
        }

        async fn revoke(&self, _: LeaseId, _: Instant) -> Result<(), Failure> {
            Ok(())
        }

        async fn lease_age(&self, _: LeaseId, _: Instant) -> Result<Option<LeaseAge>, Failure> {
            Ok(None)
        }

        async fn watch(&self, _: &[Bytes], until: Instant) -> Result<Silent, Failure> {
            if self.are_cut_off.get() {
                tokio::time::sleep_until(until).await;
            }
            Ok(Silent)
        }

        async fn about(&self, _: Instant) -> Result<About, Failure> {
            Err(Failure::Unknown("nobody asks".into()))
        }

        fn expect(&self, _: u64) {}

        fn cluster(&self) -> Option<u64> {
            None
        }

        fn has_refused(&self) -> bool {
            false
        }

        fn endpoints(&self) -> Vec<String> {
            vec!["model".to_owned()]
        }
    }

    /// The key of the owner's record.
    fn proof() -> Bytes {
        b"/m/o/x".to_vec()
    }

    async fn take(queue: &Queue<'_, Members>, is_repeated: &mut bool) -> Result<Taken<Silent>, Failure> {
        let record = TicketRecord::of(Owner::named(["-", "n1", "c1", "eth0"]).expect("names"));
        let (leases, mut seen) = ((LeaseId(7), LeaseId(7)), Snapshot::default());
        queue.take(leases, (&record, &proof()), (&[], &|| None), &mut seen, is_repeated).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_was_lost_makes_nobody_patient() {
        let members = Members::default();
        let (keys, scope) = (Keys::new("/m/"), Scope::stored("s").expect("a scope"));
        let until = Instant::now() + limits::ADD_DEADLINE;
        let queue = Queue::new(Session { kv: &members, keys: &keys, until }, &scope);
        assert!(take(&queue, &mut false).await.expect("a ticket").is_first, "of a run that dies");
        members.to_lose.set(1);
        let mut taken = take(&queue, &mut false).await.expect("another ticket");
        let began = Instant::now();
        let turn = queue.wait(&mut taken, &proof(), |_| false).await;
        assert!(matches!(turn, Ok(Turn::Impatient)), "{turn:?}");
        assert!(began.elapsed() < 3 * limits::PATIENCE.least, "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiter_looks_more_rarely_where_requests_take_long() {
        let members = Members { slow_by: Cell::new(Duration::from_secs(2)), ..Members::default() };
        let (keys, scope) = (Keys::new("/m/"), Scope::stored("s").expect("a scope"));
        let until = Instant::now() + 2 * limits::ADD_DEADLINE;
        let queue = Queue::new(Session { kv: &members, keys: &keys, until }, &scope);
        assert!(take(&queue, &mut false).await.expect("a ticket").is_first);
        let mut taken = take(&queue, &mut false).await.expect("another ticket");
        members.busy.replace(Some(taken.ticket.moved.clone()));
        members.requests.set(0);
        let turn = queue.wait(&mut taken, &proof(), |_| false).await;
        assert!(matches!(turn, Ok(Turn::OutOfTime)), "the queue moves all the time: {turn:?}");
        let looks = members.requests.get();
        assert!((2..=4).contains(&looks), "{looks} looks in 36 s");
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_that_is_cut_off_takes_its_ticket_back_and_ends() {
        let members = Members { to_lose: Cell::new(1), are_cut_off: Cell::new(true), ..Members::default() };
        let (keys, scope) = (Keys::new("/m/"), Scope::stored("s").expect("a scope"));
        let began = Instant::now();
        let session = Session { kv: &members, keys: &keys, until: began + limits::ADD_DEADLINE };
        let queue = Queue::new(session, &scope);
        let mut is_repeated = false;
        let taken = take(&queue, &mut is_repeated).await;
        assert!(matches!(taken, Err(Failure::Unreachable(_))));
        assert!(is_repeated, "the commit of another run may be for it");
        assert!(began.elapsed() < 2 * limits::REQUEST_ATTEMPT, "{:?}", began.elapsed());
        let tickets = Txn::read(vec![Op::Tickets(keys.queue(&scope), 9)]);
        let found = members.store.borrow_mut().apply(&tickets).found;
        assert!(found[0].entries.is_empty(), "{found:?}");
    }
}
