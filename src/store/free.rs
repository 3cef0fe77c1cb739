//! Giving back all that one owner holds: from a ticket in its queue when there is time, without
//! one when there is not, and with deletes alone when etcd is out of space.

use std::cell::Cell;

use tokio::time::Instant;

use super::keys::{Bytes, Keys, LeaseId, Scope};
use super::kv::{Failure, Kv, read_keys};
use super::plan::{self, Builder, Mode};
use super::queue::{Behind, Queue, TICKET_OPS, Turn, new_lease, stands};
use super::snapshot::{BadRecord, Snapshot};
use super::txn::{Op, Txn};
use crate::limits;
use crate::pool::Addr;
use crate::pool::record::{Caller, Held, Owner, OwnerRecord, RunStart};
use crate::random::random_pause;

/// Which record of an owner may be freed.
#[derive(Debug, Clone, Copy)]
pub enum FreeGuard<'a> {
    /// One older than this start (DEL, GC).
    OlderThan(&'a RunStart),
    /// One of the run that was `start`, or older; `boot` is the boot that this is judged in.
    ///
    /// A DEL that was spooled before the host came up anew says nothing of what was reserved since.
    UpTo {
        /// The start of the run.
        start: &'a RunStart,
        /// The present boot.
        boot: &'a str,
    },
    /// The one that the run of this start has made, if no other run has answered with it since.
    Unanswered(&'a RunStart),
    /// The one of this mod revision (a person's release, the reconciler).
    AsRead(i64),
}

impl FreeGuard<'_> {
    fn admits(self, record: &OwnerRecord, created: i64, modified: i64) -> bool {
        match self {
            FreeGuard::OlderThan(start) => start.is_after(record.start.as_ref()),
            FreeGuard::UpTo { start, boot } => record.start.as_ref().is_none_or(|of_record| {
                of_record == start
                    || start.is_after(Some(of_record)) && (of_record.boot != boot || start.boot == boot)
            }),
            // Whoever answers with a record writes it once more.
            FreeGuard::Unanswered(start) => record.start.as_ref() == Some(start) && created == modified,
            FreeGuard::AsRead(revision) => revision == modified,
        }
    }
}

/// What freeing an owner came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Freed {
    /// The owner held nothing.
    Nothing,
    /// The owner's record is not one that may be freed: a younger run wrote it, or answered with it.
    Younger,
    /// The owner's record is of another machine, the one that is named.
    Elsewhere(String),
    /// All of this was freed.
    Addresses(Vec<Held>),
}

/// Why an owner could not be freed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FreeError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] Failure),
    /// A record does not decode, and what cannot be read is never freed.
    #[error(transparent)]
    Bad(#[from] BadRecord),
}

/// Frees an owner as its record stands now, for a person or the reconciler: no tombstone is left,
/// and a record that is written anew meanwhile stays.
///
/// # Errors
/// [`FreeError`]
pub async fn release<K: Kv>(kv: &K, keys: &Keys, owner: &Owner, until: Instant) -> Result<Freed, FreeError> {
    let own = keys.owner(owner);
    let read = Txn::read(vec![Op::Get(own.clone())]);
    let reply = kv.txn(&read, until).await?;
    let Some(revision) = reply.found.first().and_then(|found| found.one()).map(|entry| entry.mod_revision)
    else {
        return Ok(Freed::Nothing);
    };
    let which = FreeGuard::AsRead(revision);
    Free { kv, keys, owner, which, caller: None, tombstone: None, until, hints: Cell::default() }.run().await
}

/// One freeing of one owner.
pub struct Free<'a, K> {
    /// The store.
    pub kv: &'a K,
    /// Its keys.
    pub keys: &'a Keys,
    /// Whose addresses.
    pub owner: &'a Owner,
    /// Which record of it.
    pub which: FreeGuard<'a>,
    /// Who asks; none if the record itself was looked at, whichever machine wrote it (a person's release, the reconciler).
    pub caller: Option<Caller<'a>>,
    /// The start for the tombstone; none to leave no tombstone.
    pub tombstone: Option<&'a RunStart>,
    /// When it must be over.
    pub until: Instant,
    /// What earlier runs of the node have left, and after this one what it has found: a lease only if it is a new one.
    pub hints: Cell<Hints>,
}

/// What spares a run a request, and is never trusted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hints {
    /// A lease for tombstones, if etcd says that it lives for [`limits::TOMBSTONE_STANDS`] yet.
    pub lease: Option<LeaseId>,
    /// There are others in the queue.
    pub is_crowded: bool,
    /// No tombstone was left, though one was asked for: etcd has no space.
    pub lacks_tombstone: bool,
}

/// How a try ended.
enum Try {
    Done(Freed),
    /// Read everything again.
    Again,
    /// The queue takes too long.
    OutOfTime,
}

impl<K: Kv> Free<'_, K> {
    /// Frees the owner; may be repeated, and a repetition finds nothing left to do.
    ///
    /// # Errors
    /// [`FreeError`]
    pub async fn run(&self) -> Result<Freed, FreeError> {
        let mut snapshot = Snapshot::default();
        match self.take_turn(&mut snapshot).await {
            // Whatever of it was applied shows in what is read anew.
            Err(FreeError::Store(Failure::NoSpace(_))) => self.delete_only(&mut snapshot).await,
            freed => freed,
        }
    }

    async fn take_turn(&self, snapshot: &mut Snapshot) -> Result<Freed, FreeError> {
        let base = self.base_keys();
        let Hints { lease: hinted, is_crowded, .. } = self.hints.take();
        let mut must_queue = is_crowded;
        let mut lease = self.begin(hinted, &base, snapshot).await?;
        loop {
            match self.attempt(&mut lease, must_queue, snapshot).await {
                Ok(Try::Done(freed)) => {
                    // One that another run has left is known already, and older than this run.
                    let new = lease.filter(|_| lease != hinted);
                    self.hints.set(Hints { lease: new, ..self.hints.get() });
                    return Ok(freed);
                }
                Ok(Try::OutOfTime) => {
                    let known = self.lease(&mut lease).await?;
                    return match self.quick(known, snapshot).await {
                        Err(FreeError::Store(Failure::LeaseNotFound)) => {
                            let lease = self.lease(&mut None).await?;
                            self.quick(lease, snapshot).await
                        }
                        freed => freed,
                    };
                }
                Ok(Try::Again) => must_queue = true,
                Err(FreeError::Store(Failure::LeaseNotFound | Failure::Unknown(_)))
                    if Instant::now() < self.until =>
                {
                    lease = None;
                }
                Err(e) => return Err(e),
            }
            tokio::time::sleep(random_pause(limits::RACE_PAUSE)).await;
            self.read(base.clone(), snapshot).await?;
        }
    }

    /// Reads the record; the lease that its tombstone will hang on is granted meanwhile.
    async fn begin(
        &self,
        hinted: Option<LeaseId>,
        base: &[Bytes],
        snapshot: &mut Snapshot,
    ) -> Result<Option<LeaseId>, FreeError> {
        if self.tombstone.is_none() {
            self.read(base.to_vec(), snapshot).await?;
            return Ok(None);
        }
        // They travel together, on a connection that is there before.
        self.kv.connect(self.until).await;
        if let Some(lease) = hinted {
            let (age, read) =
                tokio::join!(self.kv.lease_age(lease, self.until), self.read(base.to_vec(), snapshot));
            read?;
            // A tombstone that ends too early lets in an ADD from before it. So etcd says how long it will stand, and not
            // whoever has left the lease.
            let stands = matches!(age, Ok(Some(age)) if age.left >= limits::TOMBSTONE_STANDS);
            return Ok(hinted.filter(|_| stands));
        }
        let lease = new_lease();
        let (granted, read) = tokio::join!(
            self.kv.grant(lease, limits::TOMBSTONE_TTL, self.until),
            self.read(base.to_vec(), snapshot)
        );
        read?;
        match granted {
            Ok(()) => Ok(Some(lease)),
            Err(Failure::Unknown(_)) => Ok(None),
            Err(failure) => Err(failure.into()),
        }
    }

    /// The lease, granted when it is needed first.
    async fn lease(&self, lease: &mut Option<LeaseId>) -> Result<LeaseId, Failure> {
        if let Some(lease) = lease {
            return Ok(*lease);
        }
        let ttl = if self.tombstone.is_some() { limits::TOMBSTONE_TTL } else { limits::LEASE_TTL };
        let new = new_lease();
        self.kv.grant(new, ttl, self.until).await?;
        *lease = Some(new);
        Ok(new)
    }

    fn base_keys(&self) -> Vec<Bytes> {
        vec![self.keys.owner(self.owner), self.keys.tombstone(self.owner)]
    }

    async fn read(&self, keys: Vec<Bytes>, snapshot: &mut Snapshot) -> Result<(), Failure> {
        read_keys(self.kv, &keys, snapshot, self.until).await
    }

    /// The owner's record as read, if it is one that may be freed.
    fn record(&self, snapshot: &Snapshot) -> Result<Result<OwnerRecord, Freed>, BadRecord> {
        let own = self.keys.owner(self.owner);
        let (Some(entry), Some(record)) = (snapshot.entry(&own), snapshot.record::<OwnerRecord>(&own)?)
        else {
            return Ok(Err(Freed::Nothing));
        };
        if self.caller.is_some_and(|caller| !caller.means(&record)) {
            return Ok(Err(Freed::Elsewhere(record.machine)));
        }
        let is_meant = self.which.admits(&record, entry.create_revision, entry.mod_revision);
        Ok(if is_meant { Ok(record) } else { Err(Freed::Younger) })
    }

    /// One try: nothing to free, or a commit; from a ticket in the queue that the record names, if others are in it.
    async fn attempt(
        &self,
        lease: &mut Option<LeaseId>,
        must_queue: bool,
        snapshot: &mut Snapshot,
    ) -> Result<Try, FreeError> {
        let record = match self.record(snapshot)? {
            Err(stays) => return self.bury(lease, snapshot, stays).await,
            Ok(record) => record,
        };
        let Ok(scope) = Scope::stored(&record.scope) else { return Ok(Try::OutOfTime) };
        let queue = Queue::new(self.kv, self.keys, &scope);
        let reads: Vec<Op> = self.reads(&record).into_iter().map(Op::Get).collect();
        if !must_queue && queue.is_empty(&reads, snapshot, self.until).await? {
            return self.commit_clear(lease, snapshot).await;
        }
        let lease = self.lease(lease).await?;
        let taken = queue.take(lease, self.owner, &reads, snapshot, self.until).await?;
        self.meet(taken.behind != Behind::Nobody);
        let tried = self.commit_at(&queue, &taken, &reads, snapshot).await;
        // A try that is done has removed its ticket in its commit.
        if !matches!(tried, Ok(Try::Done(Freed::Addresses(_)))) {
            queue.leave(&taken.ticket).await;
        }
        tried
    }

    fn meet(&self, others: bool) {
        let hints = self.hints.get();
        self.hints.set(Hints { is_crowded: hints.is_crowded || others, ..hints });
    }

    /// Frees where nobody queues. No fence is needed: a late copy finds another record, or none.
    async fn commit_clear(
        &self,
        lease: &mut Option<LeaseId>,
        snapshot: &mut Snapshot,
    ) -> Result<Try, FreeError> {
        loop {
            let Ok(record) = self.record(snapshot)? else { return Ok(Try::Again) };
            let tombstone = match self.tombstone {
                Some(start) => Some((start, self.lease(lease).await?)),
                None => None,
            };
            let txn = match plan::free(self.keys, snapshot, self.owner, &record, tombstone, Mode::Whole)? {
                Ok(txn) => txn,
                Err(missing) => {
                    self.read(missing, snapshot).await?;
                    continue;
                }
            };
            if self.kv.txn(&txn, self.until).await?.succeeded {
                return Ok(Try::Done(Freed::Addresses(record.addresses)));
            }
            self.meet(true);
            return Ok(Try::Again);
        }
    }

    async fn commit_at(
        &self,
        queue: &Queue<'_, K>,
        taken: &super::queue::Taken,
        reads: &[Op],
        snapshot: &mut Snapshot,
    ) -> Result<Try, FreeError> {
        let patience =
            self.until - limits::DEL_RESERVE.min(self.until.saturating_duration_since(Instant::now()));
        match queue.wait(taken, reads, snapshot, patience).await? {
            Turn::Head => {}
            // The ticket fences all the same when it is taken anew; but a DEL that was stopped for
            // so long has no time to queue again.
            Turn::Evicted | Turn::OutOfTime => return Ok(Try::OutOfTime),
        }
        loop {
            let record = match self.record(snapshot)? {
                Ok(record) => record,
                Err(_) => return Ok(Try::Again),
            };
            let tombstone = self.tombstone.map(|start| (start, taken.ticket.lease));
            let mode = Mode::From(&taken.ticket);
            let txn = match plan::free(self.keys, snapshot, self.owner, &record, tombstone, mode)? {
                Ok(txn) => txn,
                Err(missing) => {
                    self.read(missing, snapshot).await?;
                    continue;
                }
            };
            let reply = self.kv.txn(&txn, self.until).await?;
            if reply.succeeded {
                return Ok(Try::Done(Freed::Addresses(record.addresses)));
            }
            snapshot.absorb(&txn.otherwise, &reply);
            if !stands(snapshot, &taken.ticket) || Instant::now() >= patience {
                return Ok(Try::OutOfTime);
            }
        }
    }

    /// Everything that freeing the record will rely on.
    fn reads(&self, record: &OwnerRecord) -> Vec<Bytes> {
        let mut keys = self.base_keys();
        for held in &record.addresses {
            let Some(network) = &held.network else { continue };
            let address = Addr::from(held.address);
            keys.push(self.keys.ip(network, address));
            keys.push(self.keys.page(network, address.page()));
        }
        if let Some(uid) = &record.labels.pod.uid {
            for network in plan::networks(record) {
                let Owner { cluster, ifname, .. } = self.owner;
                keys.push(self.keys.pod(cluster.as_ref(), uid, ifname, network));
            }
        }
        keys.sort();
        keys.dedup();
        // What does not fit beside the ticket's own operations is read when the plan asks for it.
        keys.truncate(limits::TXN_OPS - TICKET_OPS);
        keys
    }

    /// Nothing that is meant: only the tombstone is left to put, if the owner still holds what was read.
    async fn bury(
        &self,
        lease: &mut Option<LeaseId>,
        snapshot: &mut Snapshot,
        stays: Freed,
    ) -> Result<Try, FreeError> {
        // Where a younger run of the container holds something, no older one can commit any more. An ADD that undoes
        // itself knows nothing of other runs: its own commit may be on its way yet.
        let is_over = stays == Freed::Younger && !matches!(self.which, FreeGuard::Unanswered(_));
        let Some(start) = self.tombstone.filter(|_| !is_over) else { return Ok(Try::Done(stays)) };
        let lease = self.lease(lease).await?;
        let mut builder = Builder::new("bury", snapshot);
        builder.unchanged(self.keys.owner(self.owner));
        plan::bury(self.keys, self.owner, start, lease, &mut builder)?;
        let Ok(txn) = builder.finish() else { return Ok(Try::Again) };
        if self.kv.txn(&txn, self.until).await?.succeeded {
            return Ok(Try::Done(stays));
        }
        Ok(Try::Again)
    }

    /// Frees without ticket and pages: the bits are left to be repaired.
    async fn quick(&self, lease: LeaseId, snapshot: &mut Snapshot) -> Result<Freed, FreeError> {
        let tombstone = self.tombstone.map(|start| (start, lease));
        self.without_ticket(Mode::Quick, tombstone, snapshot).await
    }

    /// Frees with deletes alone: etcd takes them even when it is out of space.
    async fn delete_only(&self, snapshot: &mut Snapshot) -> Result<Freed, FreeError> {
        self.hints.set(Hints { lacks_tombstone: self.tombstone.is_some(), ..self.hints.get() });
        self.without_ticket(Mode::DeleteOnly, None, snapshot).await
    }

    async fn without_ticket(
        &self,
        mode: Mode<'_>,
        tombstone: Option<(&RunStart, LeaseId)>,
        snapshot: &mut Snapshot,
    ) -> Result<Freed, FreeError> {
        loop {
            // Also settles an attempt that was refused with its outcome open: what it freed is gone.
            self.read(self.base_keys(), snapshot).await?;
            let record = match (self.record(snapshot)?, tombstone) {
                (Ok(record), _) => record,
                (Err(stays), Some((_, lease))) => match self.bury(&mut Some(lease), snapshot, stays).await? {
                    Try::Done(freed) => return Ok(freed),
                    Try::Again | Try::OutOfTime => continue,
                },
                (Err(stays), None) => return Ok(stays),
            };
            let planned = plan::free(self.keys, snapshot, self.owner, &record, tombstone, mode)?;
            let txn = match planned {
                Ok(txn) => txn,
                Err(missing) => {
                    self.read(missing, snapshot).await?;
                    match plan::free(self.keys, snapshot, self.owner, &record, tombstone, mode)? {
                        Ok(txn) => txn,
                        Err(_) => continue,
                    }
                }
            };
            match self.kv.txn(&txn, self.until).await {
                Ok(reply) if reply.succeeded => return Ok(Freed::Addresses(record.addresses)),
                Ok(reply) => snapshot.absorb(&txn.otherwise, &reply),
                // The compares hold for one record only: sending it again is safe.
                Err(Failure::Unknown(_)) if Instant::now() < self.until => {}
                Err(failure) => return Err(failure.into()),
            }
            tokio::time::sleep(random_pause(limits::RACE_PAUSE)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::record::Labels;

    #[test]
    fn only_the_record_that_was_meant_is_freed() {
        let start = |boot: &str, ns| RunStart { boot: boot.into(), ns };
        let record = |start| OwnerRecord::new(Vec::new(), start, "-".into(), Labels::default());
        let now = start("b", 10);
        let before_boot = start("a", 50);
        let older = FreeGuard::OlderThan(&now);
        let spooled = FreeGuard::UpTo { start: &now, boot: "b" };
        let spooled_before = FreeGuard::UpTo { start: &before_boot, boot: "b" };
        let unanswered = FreeGuard::Unanswered(&now);
        for (which, of, admitted) in [
            (older, None, true),
            (older, Some(start("b", 9)), true),
            (older, Some(start("b", 10)), false),
            (older, Some(start("b", 11)), false),
            (older, Some(start("a", 99)), true),
            (spooled, Some(start("b", 10)), true),
            (spooled, Some(start("b", 11)), false),
            (spooled, Some(start("a", 99)), true),
            // Spooled before the host came up anew: nothing that was reserved since is meant.
            (spooled_before, None, true),
            (spooled_before, Some(start("a", 50)), true),
            (spooled_before, Some(start("a", 51)), false),
            (spooled_before, Some(start("b", 1)), false),
            (unanswered, Some(start("b", 10)), true),
            (unanswered, Some(start("b", 9)), false),
            (unanswered, None, false),
            (FreeGuard::AsRead(7), Some(start("b", 1)), true),
            (FreeGuard::AsRead(8), Some(start("b", 1)), false),
        ] {
            assert_eq!(which.admits(&record(of.clone()), 7, 7), admitted, "{which:?} {of:?}");
        }
        assert!(!unanswered.admits(&record(Some(now.clone())), 6, 7), "another run has answered with it");
    }
}
