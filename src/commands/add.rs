//! ADD: an address for one interface of one container.

use tokio::time::Instant;

use super::{Run, errors, repair};
use crate::cni::error::{Code, Error};
use crate::limits;
use crate::local::mark::{Hints, Mark, NodeLease};
use crate::pool::record::{Held, Meta, OwnerRecord, Record, VERSION};
use crate::random::random_pause;
use crate::store::allot::{Ask, Decision, Refused, decide};
use crate::store::keys::{Bytes, Key, LeaseId};
use crate::store::kv::{Failure, Kv};
use crate::store::plan::Fence;
use crate::store::queue::{Behind, Queue, TICKET_OPS, Taken, Turn, new_lease, settle, stands};
use crate::store::snapshot::Snapshot;
use crate::store::txn::{Compare, List, Op, Reply, Txn};

/// What an ADD came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Added {
    /// The owner's addresses, in result order.
    pub held: Vec<Held>,
    /// Whether the owner held them before this run.
    pub repeats: bool,
}

/// Allots what `ask` asks for.
///
/// # Errors
/// A CNI error; then the owner holds nothing that it did not hold before, or a spooled DEL will
/// see to that.
pub async fn add<K: Kv>(run: &Run<'_, K>, ask: &Ask) -> Result<Added, Error> {
    for kept in run.spool.of(&ask.owner) {
        run.carry_out(&kept, run.session.until).await?;
    }
    let mut add = Add::new(run, ask);
    loop {
        run.must_go_on()?;
        match add.attempt().await? {
            Attempt::Held(added) => return Ok(added),
            Attempt::Again => tokio::time::sleep(random_pause(limits::RACE_PAUSE)).await,
            Attempt::Full(set) => add.look_for_stray_bits(set).await?,
        }
    }
}

/// Nobody heard the answer: what this run was given goes back, now or by the spool. What another run of this owner has
/// answered with since is that one's.
pub async fn undo<K: Kv>(run: &Run<'_, K>, ask: &Ask) {
    let spooled = run.to_spool(&ask.owner, ask.labels.pod.uid.as_ref(), true);
    if let Err(e) = run.free_spooled(&spooled, run.session.until).await
        && let Err(kept) = run.spool.keep(&spooled)
    {
        tracing::error!(error = %e, spool = %kept, "an address that nobody heard of cannot be given back");
    }
}

/// What one attempt came to.
enum Attempt {
    Held(Added),
    /// Lost, for now: from a new ticket.
    Again,
    Full(usize),
}

/// One ADD and what its attempts have taught it.
struct Add<'a, K> {
    run: &'a Run<'a, K>,
    ask: &'a Ask,
    own: Bytes,
    first_reads: Vec<Op>,
    /// The node's key that a commit without a ticket writes on its lease.
    fence: Bytes,
    /// The lease of this run; another run of the node may have left it.
    lease: Option<NodeLease>,
    /// Others were quicker where nobody seemed to queue, or were there a moment ago.
    must_queue: bool,
    /// What other runs of the node have left.
    hints: Hints,
    /// Somebody else was in the queue or quicker.
    met_others: bool,
    /// Evicted once: the ticket fences, and waiting again would only be longer.
    jumps_queue: bool,
    /// A tombstone of this owner was seen, so nothing is taken over.
    deleted_before: bool,
    /// The prefix was found without allocations by this run.
    is_first: bool,
    /// How many searches for stray bits were made.
    repairs: u32,
    /// The pages that earlier attempts have read. They may have changed since, which the commit
    /// notices; without them, a scan of many pages would begin anew with each attempt.
    pages: Snapshot,
    /// What this node had seen of the store before the first request.
    mark: Option<Mark>,
}

impl<'a, K: Kv> Add<'a, K> {
    fn new(run: &'a Run<'a, K>, ask: &'a Ask) -> Self {
        let own = run.session.keys.owner(&ask.owner);
        let mark = run.mark.read();
        let hints = mark.as_ref().map(|mark| mark.hints.clone()).unwrap_or_default();
        let lease = hints.lease_for(&run.start);
        let mut first_reads: Vec<Op> = ask.first_reads(run.session.keys).into_iter().map(Op::Get).collect();
        // What does not fit beside the ticket's own operations is read when it is needed.
        first_reads.truncate(limits::TXN_OPS - TICKET_OPS);
        Self {
            run,
            ask,
            own,
            first_reads,
            fence: run.session.keys.fence(&run.identity.node),
            must_queue: lease.is_some() && hints.is_crowded(&run.start),
            lease,
            hints,
            met_others: false,
            jumps_queue: false,
            deleted_before: false,
            is_first: false,
            repairs: 0,
            pages: Snapshot::default(),
            mark,
        }
    }

    /// One attempt: looks, commits at once where nobody queues, and queues where others do.
    async fn attempt(&mut self) -> Result<Attempt, Error> {
        let scope = self.ask.scope();
        let queue = Queue::new(self.run.session.kv, self.run.session.keys, &scope);
        let mut snapshot = std::mem::take(&mut self.pages);
        let (lease, is_clear) = match &self.lease {
            Some(lease) if self.must_queue => (LeaseId(lease.id), false),
            _ => {
                let (lease, is_empty) = self.first_look(&queue, &mut snapshot).await?;
                self.note_tombstone(&snapshot);
                self.met_others |= !is_empty;
                (lease, is_empty && !self.must_queue && !self.went_back(&snapshot))
            }
        };
        let attempt = match is_clear {
            true => {
                let fence = Fence::Lease { key: self.fence.clone(), lease };
                self.at_head(&fence, &mut snapshot).await
            }
            false => self.in_queue(&queue, lease, &mut snapshot).await,
        };
        snapshot
            .retain(|key| matches!(self.run.session.keys.parse(key), Ok(Key::Page(..) | Key::Summary(..))));
        self.pages = snapshot;
        attempt
    }

    /// Reads what the decision will most likely need and whether anybody queues, and sees to a lease meanwhile.
    ///
    /// What matters of the lease is that it was granted before this run's deadline: a tombstone of a DEL that
    /// began later than this run lives longer ([`limits::TOMBSTONE_TTL`]).
    async fn first_look(
        &mut self,
        queue: &Queue<'_, K>,
        snapshot: &mut Snapshot,
    ) -> Result<(LeaseId, bool), Error> {
        let (kv, deadline) = (self.run.session.kv, self.run.session.until);
        if let Some(lease) = &self.lease {
            let is_empty = queue.is_empty(&self.first_reads, snapshot, deadline).await?;
            return Ok((LeaseId(lease.id), is_empty));
        }
        // Both travel together, on a connection that is there before.
        kv.connect(deadline).await;
        let give_up = deadline.min(Instant::now() + limits::UNREACHABLE);
        loop {
            let lease = new_lease();
            let (granted, is_empty) = tokio::join!(
                kv.grant(lease, limits::LEASE_TTL, deadline),
                queue.is_empty(&self.first_reads, snapshot, deadline)
            );
            match granted {
                Ok(()) => {
                    self.lease = Some(NodeLease { id: lease.0, since: self.run.start.clone() });
                    return Ok((lease, is_empty?));
                }
                Err(Failure::LeaseExists) => {}
                // A lease that was granted and not heard of ends by itself.
                Err(Failure::Unknown(_)) if Instant::now() + limits::RETRY_PAUSE < give_up => {
                    tokio::time::sleep(random_pause(limits::RETRY_PAUSE)).await;
                }
                Err(failure) => return Err(failure.into()),
            }
        }
    }

    /// Takes a ticket, waits for its turn, and commits from there.
    async fn in_queue(
        &mut self,
        queue: &Queue<'_, K>,
        lease: LeaseId,
        snapshot: &mut Snapshot,
    ) -> Result<Attempt, Error> {
        let (owner, reads, until) = (&self.ask.owner, &self.first_reads, self.run.session.until);
        let taken = match queue.take(lease, owner, reads, snapshot, until).await {
            Ok(taken) => taken,
            Err(Failure::LeaseNotFound) => return Ok(self.without_lease()),
            Err(failure) => return Err(failure.into()),
        };
        self.met_others |= taken.behind != Behind::Nobody;
        // Noted at once: while this run waits the tombstone may end with its lease.
        self.note_tombstone(snapshot);
        let attempt = self.wait_in(queue, &taken, snapshot).await;
        if !matches!(attempt, Ok(Attempt::Held(_))) {
            queue.leave(&taken.ticket).await;
        }
        attempt
    }

    async fn wait_in(
        &mut self,
        queue: &Queue<'_, K>,
        taken: &Taken,
        snapshot: &mut Snapshot,
    ) -> Result<Attempt, Error> {
        self.check_mark(snapshot).await?;
        let turn = match self.jumps_queue {
            true => Turn::Head,
            false => queue.wait(taken, &self.first_reads, snapshot, self.run.session.until).await?,
        };
        match turn {
            Turn::Head => self.at_head(&Fence::Ticket(taken.ticket.clone()), snapshot).await,
            Turn::Evicted => {
                self.jumps_queue = true;
                Ok(Attempt::Again)
            }
            Turn::OutOfTime => self.run.must_go_on().map(|()| Attempt::Again),
        }
    }

    /// Decides, reads what the decision lacks, and commits; until done, lost, or too long at it.
    async fn at_head(&mut self, fence: &Fence, snapshot: &mut Snapshot) -> Result<Attempt, Error> {
        let leave_at = Instant::now() + limits::HEAD_WORK;
        let mut lost = 1;
        while Instant::now() < leave_at {
            self.note_tombstone(snapshot);
            self.prepare_first(snapshot).await?;
            let decision = decide(self.ask, self.run.session.keys, snapshot, fence, self.deleted_before);
            let (txn, added) = match decision {
                Decision::Read(keys) => {
                    self.run.session.read(&keys, snapshot).await?;
                    continue;
                }
                Decision::Full { set } => return Ok(Attempt::Full(set)),
                Decision::Refuse(why) => return Err(why.into()),
                Decision::FreeFirst(txn) => (txn, None),
                Decision::Commit { txn, held, repeats } => (txn, Some(Added { held, repeats })),
            };
            self.run.must_go_on()?;
            match self.run.session.txn(&txn).await {
                Ok(reply) if reply.succeeded => return Ok(self.committed(added, snapshot, &reply)),
                Ok(reply) => {
                    snapshot.absorb(&txn.otherwise, &reply);
                    // The store may have been emptied or exchanged since it was looked at.
                    self.check_mark(snapshot).await?;
                }
                Err(failure) if failure.is_open() => {
                    let repeats = added.is_some_and(|added| added.repeats);
                    return self.settle(fence, repeats, failure).await;
                }
                Err(Failure::LeaseNotFound) => return Ok(self.without_lease()),
                Err(failure) => return Err(failure.into()),
            }
            self.met_others = true;
            match fence {
                Fence::Ticket(ticket) if !stands(snapshot, ticket) => {
                    self.jumps_queue = true;
                    return Ok(Attempt::Again);
                }
                Fence::Lease { .. } if lost == limits::CLEAR_TRIES => {
                    self.must_queue = true;
                    return Ok(Attempt::Again);
                }
                _ => lost += 1,
            }
            self.is_first = false;
            tokio::time::sleep(random_pause(limits::RACE_PAUSE)).await;
        }
        // Where commits are so slow, others are on their way too.
        self.must_queue |= lost > 1;
        Ok(Attempt::Again)
    }

    fn hints_left(&self) -> Hints {
        let crowded = if self.met_others { Some((self.run.clock)()) } else { self.hints.crowded.clone() };
        Hints { lease: self.lease.clone(), crowded, ..self.hints.clone() }
    }

    /// The lease has ended: what was read under it may be too old to commit on.
    fn without_lease(&mut self) -> Attempt {
        self.lease = None;
        // Its ticket went with it; nobody was evicted.
        self.jumps_queue = false;
        Attempt::Again
    }

    fn committed(&self, added: Option<Added>, snapshot: &Snapshot, reply: &Reply) -> Attempt {
        let meta = snapshot.record::<Meta>(&self.run.session.keys.meta()).ok().flatten();
        // Where there was none this commit has made it.
        let Meta { id, epoch, .. } = meta.unwrap_or_else(|| self.ask.first_meta());
        self.run.raise_mark(id, epoch, reply.revision, self.hints_left());
        added.map_or(Attempt::Again, Attempt::Held)
    }

    /// Nobody knows whether the commit was applied: find out, so that no late copy can be.
    async fn settle(&mut self, fence: &Fence, repeats: bool, why: Failure) -> Result<Attempt, Error> {
        tracing::info!(%why, "settling a commit with an open outcome");
        if matches!(fence, Fence::Lease { .. }) {
            self.lease = None;
        }
        let found = match settle(self.run.session.kv, fence, &self.own, self.run.session.until).await {
            Ok(found) => found,
            // What the owner held before this run stays: it was another run's answer.
            Err(failure) if repeats => return Err(failure.into()),
            Err(failure) => return Err(self.spool_own(&failure)),
        };
        let record = found.map(|entry| OwnerRecord::decode(&entry.value));
        match record {
            Some(Ok(record)) if record.start.as_ref() == Some(&self.run.start) => {
                Ok(Attempt::Held(Added { held: record.addresses, repeats }))
            }
            // Not applied, and etcd says that it would not be.
            _ if matches!(why, Failure::NoSpace(_)) => Err(why.into()),
            _ => Ok(Attempt::Again),
        }
    }

    /// Cannot settle in time: what the commit left behind is freed later, unless another run of the owner has answered
    /// with it since.
    fn spool_own(&self, failure: &Failure) -> Error {
        let text = format!("it is not known whether the address was reserved: {failure}");
        let error = Error::new(Code::TryAgain, text);
        let spooled = self.run.to_spool(&self.ask.owner, self.ask.labels.pod.uid.as_ref(), true);
        match self.run.spool.keep(&spooled) {
            Ok(()) => error.with_details("a spooled DEL frees it; the request may be repeated"),
            Err(e) => {
                error.with_details(format!("and a DEL cannot be spooled ({e}); run DEL for this container"))
            }
        }
    }

    fn note_tombstone(&mut self, snapshot: &Snapshot) {
        let dead = self.run.session.keys.tombstone(&self.ask.owner);
        self.deleted_before |= snapshot.entry(&dead).is_some();
    }

    /// A prefix without meta is a new one, or one that has lost it; only a new one is written to.
    async fn prepare_first(&mut self, snapshot: &mut Snapshot) -> Result<(), Error> {
        let meta = self.run.session.keys.meta();
        if self.is_first || !snapshot.knows(&meta) || snapshot.entry(&meta).is_some() {
            return Ok(());
        }
        let one = |prefix: Bytes| Op::List(List { keys_only: true, ..List::prefix(&prefix, 1) });
        let mut ops = vec![Op::Get(meta)];
        ops.extend(self.run.session.keys.allocations().into_iter().map(one));
        let read = Txn::read(ops);
        let reply = self.run.session.txn(&read).await?;
        // Another run may have been the first meanwhile.
        snapshot.absorb(&read.then, &reply);
        let has_meta = reply.found[0].one().is_some();
        if !has_meta && reply.found[1..].iter().any(|found| found.count > 0) {
            let text = format!(
                "{}meta is missing while allocations exist",
                String::from_utf8_lossy(&self.run.session.keys.root())
            );
            return Err(Refused::Contradiction(text).into());
        }
        if !has_meta {
            self.check_version().await?;
        }
        self.is_first = true;
        Ok(())
    }

    async fn check_version(&self) -> Result<(), Error> {
        let about = self.run.session.kv.about(self.run.session.until).await?;
        about.too_old().map_or(Ok(()), |text| Err(Error::new(Code::Refused, text)))
    }

    /// Whether the store seems to have forgotten something that this node has seen.
    fn went_back(&self, snapshot: &Snapshot) -> bool {
        let Some(mark) = &self.mark else { return false };
        let meta = snapshot.record::<Meta>(&self.run.session.keys.meta());
        // What does not decode is refused for what it is.
        meta.is_ok_and(|meta| mark.contradicts(meta.as_ref(), snapshot.revision))
    }

    /// Marks a store that has gone back, was emptied or is another one. Only an answer to a write is proof of that, such
    /// as the one that took the ticket, or a commit's that was refused.
    async fn check_mark(&self, snapshot: &Snapshot) -> Result<(), Error> {
        let Some(mark) = &self.mark else { return Ok(()) };
        if !self.went_back(snapshot) {
            return Ok(());
        }
        let meta_key = self.run.session.keys.meta();
        let Ok(meta) = snapshot.record::<Meta>(&meta_key) else { return Ok(()) };
        // Nothing is written for programs that are newer than this one: the decision refuses.
        if meta.as_ref().is_some_and(|meta| meta.min_writer > VERSION) {
            return Ok(());
        }
        if meta.as_ref().is_none_or(|meta| meta.suspect.is_none()) {
            let mut suspect = meta.unwrap_or_else(|| self.ask.first_meta());
            suspect.epoch = mark.epoch;
            suspect.suspect = Some(mark.epoch);
            let txn = Txn {
                step: "suspect",
                compares: vec![Compare::Mod(meta_key.clone(), snapshot.mod_revision(&meta_key))],
                then: vec![Op::Put(meta_key, suspect.encode(), None)],
                otherwise: Vec::new(),
            };
            self.run.session.txn(&txn).await?;
        }
        Err(errors::suspect(mark.epoch))
    }

    /// Before answering that nothing is free: bits without reservations are repaired, and the ADD goes on if that found
    /// something, or if somebody else has repaired or freed something meanwhile.
    async fn look_for_stray_bits(&mut self, set: usize) -> Result<(), Error> {
        if self.repairs < limits::REPAIRS {
            self.repairs += 1;
            if repair::repair_some(self.run, &self.ask.sets[set], &self.pages).await? {
                // Some page is another than this run knows, and the next attempt reads but the first ones by itself.
                self.pages = Snapshot::default();
                return Ok(());
            }
        }
        Err(full(self.ask, set))
    }
}

/// How many ranges of a set are named when it is full.
const RANGES_NAMED: usize = 8;

fn full(ask: &Ask, set: usize) -> Error {
    let ranges = ask.sets[set].ranges();
    let mut names: Vec<String> = ranges
        .iter()
        .take(RANGES_NAMED)
        .map(|range| format!("{} ({} to {})", range.subnet(), range.first(), range.last()))
        .collect();
    if ranges.len() > RANGES_NAMED {
        names.push(format!("and {} more", ranges.len() - RANGES_NAMED));
    }
    let size = ask.sets[set].size();
    let network = ranges[0].network();
    Error::new(
        Code::NoFreeAddress,
        format!("no free address in network {network}, range {}: size {size}, held {size}", names.join(", ")),
    )
    .with_details(
        "`metes usage` and `metes list` show who holds them; a larger range, or fewer excludes, makes room",
    )
}
