//! One commit for many runs. Pure.
//!
//! The run at the head of a queue decides for itself and then, in order, for those behind it: each decision is the same
//! function, on the keys that were read with the writes of the decisions before laid over them. All of them are one
//! transaction:
//!
//! ```text
//! compares   meta, and every page, summary and cursor that is written
//! then       the pages, summaries and cursors
//!            for each run served, a nested transaction:
//!               compares   its ticket; no tombstone, no owner record, no index entry, no reservation, no cooldown
//!               then       its reservations, owner record and index entries; its ticket is removed
//!               else       a transaction inside:
//!                  compares   its ticket; its owner's tombstone is not older than the ticket
//!                  then       its ticket is removed
//! ```
//!
//! So one run that cannot be served any more does not stop the others. It leaves stray bits, which are harmless. The
//! ticket is the fence of its run, whoever commits: a run that has left has no ticket, and nobody can serve it.
//!
//! A run whose owner was deleted after it took its ticket is probably dead, and nobody waits for its answer. So its
//! ticket goes, whatever kind of run it is. The revisions say what was first, because starts of two boots do not. If
//! the run lives, it sees that its ticket is gone, and takes another one.
//!
//! A head refuses nobody: a run whose answer may be a refusal gets its turn, and decides for itself.

use std::collections::{BTreeMap, BTreeSet};

use super::ask::Ask;
use super::effects::{Planned, Position, Serving, Turn};
use super::free::{self, Burying, FreeGuard};
use super::known_pool::DecodedPools;
use super::pick::{Picked, Picking, Picks};
use super::refused::{Halt, require};
use super::resolved::{Resolved, cursor};
use super::sticky::NewRecords;
use crate::builder::{self, BitChanges, Builder};
use crate::keys::{Bytes, Key, Keys, LeaseId, NetworkAddress, Scope};
use crate::limits;
use crate::line::{Line, Waiting};
use crate::meta;
use crate::pool::{Caller, Meta, Owner, OwnerRecord, PodIndex, Record, RunStart, Tombstone};
use crate::request::{Asked, FreeRequest, TicketRecord};
use crate::snapshot::Snapshot;
use crate::ticket::Ticket;
use crate::txn::{Compare, Entry, Op, Txn};

/// The most runs that a batch serves, and the lower limits to try if so many do not fit into one transaction.
pub(crate) const SIZES: [usize; 3] = [96, 48, 16];
/// If not even those fit, the first run that waits gets its turn.
const NOBODY: usize = 0;

/// The most frees that a batch reads for, and the usual number of compares of one free.
const FREES: usize = 20;
const FREE_COMPARES: usize = 7;

/// A head's decision for an ADD that waits.
enum Decision {
    /// It is served.
    Serves(Add),
    /// By what was read, the run gets no address. It has errors of its own, and may find room.
    Refuses,
    /// It is left for its own turn.
    Leaves,
}

/// The choice of a commit about the cursors of `next` and `spread`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cursors {
    Moved,
    Kept,
}

/// A commit for several runs in the making.
pub(crate) struct Batch<'a> {
    keys: &'a Keys,
    snapshot: &'a Snapshot,
    /// The snapshot with the writes so far laid over it: new values, and the revisions as they were read.
    laid_over: Snapshot,
    changes: BitChanges,
    cursors: BTreeMap<Bytes, Vec<u8>>,
    pools: DecodedPools,
    /// The keys of pools that are read again if a run drops out.
    read_again: BTreeSet<Bytes>,
    /// The owners' keys that are written. No key may be written twice.
    written: BTreeSet<Bytes>,
}

/// An ADD that is to be served: its transaction, and its fields of [`Serving`].
struct Add {
    txn: Txn,
    ticket: Bytes,
    addresses: Vec<NetworkAddress>,
    end: Option<Position>,
    drop: Option<Position>,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(keys: &'a Keys, snapshot: &'a Snapshot) -> Self {
        Self {
            keys,
            snapshot,
            laid_over: snapshot.clone(),
            changes: BitChanges::default(),
            cursors: BTreeMap::new(),
            pools: DecodedPools::default(),
            read_again: BTreeSet::new(),
            written: BTreeSet::new(),
        }
    }

    /// Notes what one run takes.
    pub(crate) fn take(&mut self, asked: &Resolved<'_>, picks: &Picks) -> Result<(), Halt> {
        for (network, address) in picks.all() {
            let picking = Picking { asked, keys: self.keys, snapshot: self.snapshot, goes_by_bits: false };
            picking.refuse_bad_page(network, address.page())?;
            let reserved = picking.reserved_in(network, address.page());
            let key = self.keys.page(network, address.page());
            let Some(mut bits) = builder::bits(&self.laid_over, &key) else { continue };
            // A reservation under a clear bit gets its bit. One that has its bit may be freed by this very batch.
            let missing = reserved.into_iter().filter(|taken| !bits.get(taken.bit())).collect::<Vec<_>>();
            for taken in missing.into_iter().chain([*address]) {
                self.changes.set(network, taken);
                bits.set(taken.bit());
            }
            self.laid_over.lay(key, bits.to_bytes());
        }
        let mut seen = BTreeSet::new();
        for (key, (_, address)) in asked.cursor_keys(self.keys).into_iter().zip(&picks.taken) {
            let undecodable = self.snapshot.entry(&key).is_some() && cursor(&key, self.snapshot).is_none();
            // Two sets with the same ranges have one cursor. The address of the first one is written.
            if seen.insert(key.clone()) && !undecodable {
                let value = address.to_string().into_bytes();
                self.laid_over.lay(key.clone(), value.clone());
                self.cursors.insert(key, value);
            }
        }
        self.written.insert(self.keys.owner(&asked.ask.owner));
        self.written.extend(asked.index_keys(self.keys));
        self.written.extend(asked.ask.hold_keys(self.keys).into_iter().flatten());
        self.written.extend(picks.all().map(|(network, address)| self.keys.ip(network, *address)));
        Ok(())
    }

    /// Decides for at most `runs` of those who wait, and says who has the next turn.
    pub(crate) fn serve<'l>(
        &mut self,
        line: &'l Line,
        head: &Ticket,
        scope: &Scope,
        runs: usize,
        builder: &mut Builder<'_>,
    ) -> Result<(), Halt> {
        let Some(meta) = self.snapshot.record::<Meta>(&self.keys.meta())? else { return Ok(()) };
        // A store that hands out nothing still lets those who wait have their turns, one after the other.
        let is_in_service = meta::judge(Some(&meta)).is_ok();
        self.read_for_frees(line, head, scope)?;
        let mut adds: Vec<Add> = Vec::new();
        let mut served = 0;
        // Those who must decide for themselves, those who get no address, and those whom this head does not reach.
        let (mut alone, mut refused, mut kept) = (Vec::new(), Vec::new(), Vec::new());
        let mut ends_with_add = false;
        let mut all_are_served = true;
        // Each of them may have a cursor of its own. What all of them lack is read at once.
        let mut lacking: Vec<Op> = Vec::new();
        let hands_over = line.hands_over || runs == NOBODY;
        let may_have_turn = |waiting: &Waiting| !waiting.has_its_turn() && waiting.ticket.key != head.key;
        for (at, waiting) in line.waiting.iter().enumerate() {
            // Whoever has the next turn is kept, so that it goes on where this head stops.
            let is_last = at + 1 == line.waiting.len();
            let has_no_room =
                served == runs || waiting.is_free() && builder.compares() + FREE_COMPARES > runs;
            let has_next = |alone: &[&Waiting]| alone.iter().any(|waiting| may_have_turn(waiting));
            let is_kept = has_no_room || hands_over && is_last && !has_next(&alone);
            let decision = match &waiting.asked {
                _ if is_kept => None,
                _ if !is_in_service => Some(Decision::Leaves),
                // A node may write no record of another cluster, where etcd knows its users.
                Some(asked) if asked.owner().cluster != head.cluster => Some(Decision::Leaves),
                Some(Asked::Add(ask, epoch)) if *epoch == meta.epoch => {
                    match self.decide(waiting, ask, head, scope) {
                        Err(Halt::Read(ops)) => {
                            lacking.extend(
                                ops.into_iter().filter(|op| !lacking.contains(op)).collect::<Vec<_>>(),
                            );
                            served += 1;
                            if lacking.len() < limits::TXN_OPS {
                                continue;
                            }
                            break;
                        }
                        decided => Some(decided?),
                    }
                }
                Some(Asked::Free(owner, request)) if !leaves(line, head, waiting) => {
                    if self.free(waiting, (owner, request), scope, builder)? {
                        ends_with_add = false;
                        served += 1;
                        continue;
                    }
                    Some(Decision::Leaves)
                }
                Some(Asked::Add(..) | Asked::Free(..)) | None => Some(Decision::Leaves),
            };
            let left = match decision {
                Some(Decision::Serves(add)) => {
                    ends_with_add = true;
                    adds.push(add);
                    served += 1;
                    continue;
                }
                Some(Decision::Refuses) => &mut refused,
                Some(Decision::Leaves) => &mut alone,
                None => &mut kept,
            };
            left.push(waiting);
            // Where nothing has moved, those who had their turn are dead.
            all_are_served &= line.is_impatient && waiting.has_its_turn();
        }
        if !lacking.is_empty() {
            return Err(Halt::Read(lacking));
        }
        let mut room = (runs + 1).saturating_sub(served);
        let most = if line.is_impatient { limits::TURNS } else { 1 };
        let without_turn = |left: &[&'l Waiting]| -> Vec<&'l Waiting> {
            left.iter().copied().filter(|waiting| may_have_turn(waiting)).collect()
        };
        let mut turns: Vec<(&Waiting, bool)> = Vec::new();
        let nexts = without_turn(&alone);
        turns.extend(nexts.into_iter().take(most.min(room)).map(|waiting| (waiting, false)));
        if turns.is_empty() && hands_over {
            turns.extend(without_turn(&kept).first().map(|waiting| (*waiting, false)));
        }
        room = room.saturating_sub(turns.len());
        // Who is served may drop out, and what is freed has room for others. So they are refused by a commit that
        // serves nobody.
        if served == 0 {
            turns.extend(without_turn(&refused).into_iter().take(room).map(|waiting| (waiting, true)));
            room = (runs + 1).saturating_sub(turns.len());
        }
        if line.has_given_turn || turns.iter().any(|(_, is_alone)| !is_alone) {
            builder.rewrite(&head.moved, Ticket::turn_given());
        }
        for (waiting, is_alone) in &turns {
            let (ticket, is_alone) = (waiting.ticket.key.clone(), *is_alone);
            let place = builder.nest(self.signal(waiting, head, is_alone));
            builder.effects.turns.push(Turn { place, ticket, is_alone });
        }
        if line.is_impatient {
            let given: BTreeSet<&Bytes> = turns.iter().map(|(waiting, _)| &waiting.ticket.key).collect();
            let left = alone.iter().chain(&refused).chain(&kept).copied();
            let others = left.filter(|one| !given.contains(&one.ticket.key) && one.ticket.key != head.key);
            for (txn, waiting) in others.filter_map(|one| Some((self.drop(one, head)?, one))).take(room) {
                let place = builder.nest(txn);
                builder.effects.drops.push((place, waiting.ticket.key.clone()));
            }
        }
        // Nobody waits any more, if nobody has come since the line was read.
        if let (true, Some(last)) = (all_are_served, line.waiting.last()) {
            let end = head.end_of_queue(&last.ticket.key);
            match adds.last_mut() {
                // Only if that one is served. A run that drops out is still in the queue.
                Some(add) if ends_with_add => {
                    add.end = Some(Position(add.txn.then.len()));
                    add.txn.then.push(Op::Nested(Box::new(end)));
                }
                _ => {
                    let end = builder.nest(end);
                    builder.effects.ends.push(end);
                }
            }
        }
        for Add { txn, ticket, addresses, end, drop } in adds {
            let place = builder.nest(txn);
            builder.effects.serves.push(Serving { place, ticket, addresses, end, drop });
        }
        Ok(())
    }

    /// Gives a run its turn: its ticket is written again, which it watches. A ticket that is gone stays gone, one that
    /// another head has written stays as it is, and that of a deleted owner goes.
    fn signal(&self, waiting: &Waiting, head: &Ticket, is_alone: bool) -> Txn {
        let Entry { key, value, create_revision, mod_revision, lease } = &waiting.ticket;
        let lease = (*lease != 0).then_some(LeaseId(*lease));
        let value = match TicketRecord::decode(value) {
            Ok(record) if is_alone => record.decided_alone().encode(),
            _ => value.clone(),
        };
        let mut txn = Txn {
            step: "signal",
            compares: vec![Compare::Mod(key.clone(), *mod_revision)],
            then: vec![Op::Put(key.clone(), value, lease)],
            ..Txn::default()
        };
        if let (Some(owner), Some(drop)) = (&waiting.owner, self.drop(waiting, head)) {
            txn.compares.push(Compare::Older(self.keys.tombstone(owner), *create_revision));
            txn.otherwise.push(Op::Nested(Box::new(drop)));
        }
        txn
    }

    /// Removes the ticket of a run whose owner was deleted after the run took it. None if it is not known whose it is.
    fn drop(&self, waiting: &Waiting, head: &Ticket) -> Option<Txn> {
        let (ticket, owner) = (&waiting.ticket, waiting.owner.as_ref()?);
        Some(Txn {
            step: "drop",
            compares: vec![
                Compare::Create(ticket.key.clone(), ticket.create_revision),
                Compare::NotOlder(self.keys.tombstone(owner), ticket.create_revision),
            ],
            then: head.removal_of(&ticket.key).to_vec(),
            ..Txn::default()
        })
    }

    /// Clears stray bits, as many as fit, as long as nobody holds their addresses and none is cooling. Those who wait
    /// may have these addresses.
    fn clear(&mut self, stray: &[NetworkAddress], builder: &mut Builder<'_>) {
        for (network, address) in stray.iter().take(limits::REPAIR_BITS) {
            let keys = [self.keys.ip(network, *address), self.keys.cooling(network, *address)];
            if keys.iter().any(|key| self.snapshot.entry(key).is_some()) {
                continue;
            }
            keys.into_iter().for_each(|key| builder.absent(key));
            self.changes.clear(network, *address);
            let page = self.keys.page(network, address.page());
            if let (true, Some(mut bits)) =
                (self.laid_over.knows(&page), builder::bits(&self.laid_over, &page))
            {
                bits.clear(address.bit());
                self.laid_over.lay(page, bits.to_bytes());
            }
        }
    }

    /// Asks for all that the frees of the line rely on, by what their runs have read.
    fn read_for_frees(&self, line: &Line, head: &Ticket, scope: &Scope) -> Result<(), Halt> {
        let is_served = |owner: &Owner, request: &FreeRequest| {
            owner.cluster == head.cluster && request.record.scope == scope.as_str()
        };
        let waiting = line.waiting.iter().filter(|waiting| !leaves(line, head, waiting));
        let frees = waiting.filter_map(|waiting| match &waiting.asked {
            Some(Asked::Free(owner, request)) if is_served(owner, request) => Some((owner, request)),
            _ => None,
        });
        let mut keys = Vec::new();
        for (owner, request) in frees.take(FREES) {
            keys.extend([self.keys.owner(owner), self.keys.tombstone(owner)]);
            keys.extend(free::index_keys(self.keys, owner, &request.record));
            for (network, address) in request.record.reserved() {
                keys.extend([self.keys.ip(network, address), self.keys.page(network, address.page())]);
            }
        }
        require(self.snapshot, keys)
    }

    /// Frees the addresses of the owner of a waiting DEL. Returns false if the DEL is left for its own turn.
    ///
    /// All compares are those of the whole batch: where a reservation stays, its bit must not be cleared.
    fn free(
        &mut self,
        waiting: &Waiting,
        (owner, request): (&Owner, &FreeRequest),
        scope: &Scope,
        builder: &mut Builder<'_>,
    ) -> Result<bool, Halt> {
        let FreeRequest { start, machine, pod_uid, lease, .. } = request;
        let (own, tombstone) = (self.keys.owner(owner), self.keys.tombstone(owner));
        if !self.snapshot.knows(&own) || self.written.contains(&own) {
            return Ok(false);
        }
        let Some(entry) = self.snapshot.entry(&own) else {
            return self.bury(waiting, (owner, request), builder);
        };
        let Ok(Some(record)) = self.snapshot.record::<OwnerRecord>(&own) else { return Ok(false) };
        let caller = Caller { machine, pod_uid: pod_uid.as_ref() };
        // The DEL has judged the record that it read. A later one may be of a later boot, which no start of an earlier
        // one can be compared with. A head has not the clock of the DEL's node: what that clock alone shows to be older
        // is left to the DEL itself. A record that was put again since the DEL took its ticket is left to the DEL, too:
        // an ADD has answered with that record.
        let is_meant = record == request.record
            && entry.mod_revision < waiting.ticket.create_revision
            && FreeGuard::OlderThan(start, None).admits(&record, entry.create_revision, entry.mod_revision);
        let is_meant = is_meant && !record.has_cooldown() && record.seat.is_none();
        let is_younger = self.is_after_tombstone(start, &tombstone);
        let index = free::index_keys(self.keys, owner, &record);
        let held = record.reserved().map(|(network, address)| self.keys.ip(network, address));
        let keys: Vec<Bytes> = index.into_iter().chain(held).chain([own.clone()]).collect();
        if !(is_meant && is_younger && caller.means(&record) && record.scope == scope.as_str())
            || keys.iter().any(|key| self.written.contains(key))
        {
            return Ok(false);
        }
        builder.exactly(waiting.ticket.key.clone(), waiting.ticket.create_revision);
        builder.unchanged(own.clone());
        builder.delete(own.clone());
        free::free_reservations(self.keys, owner, &record, builder, &mut self.changes);
        free::free_index(self.keys, owner, &record, builder);
        let tombstone = Burying { start, clock: None };
        free::bury(self.keys, owner, &tombstone, LeaseId(*lease), builder)?;
        builder.delete(waiting.ticket.key.clone());
        builder.effects.removes.push(waiting.ticket.key.clone());
        self.written.extend(keys);
        Ok(true)
    }

    /// True if a run of this start is younger than the tombstone under `key`, as far as a head can tell: it has not the
    /// clock of the run's node. False if the tombstone does not decode.
    fn is_after_tombstone(&self, start: &RunStart, key: &[u8]) -> bool {
        let Ok(standing) = self.snapshot.record::<Tombstone>(key) else { return false };
        let put_at = self.snapshot.mod_revision(key);
        start.is_after(standing.as_ref().map(|standing| (&standing.start, put_at)), None)
    }

    /// Serves a DEL whose owner holds nothing any more: others have freed it. It leaves its tombstone.
    fn bury(
        &mut self,
        waiting: &Waiting,
        (owner, request): (&Owner, &FreeRequest),
        builder: &mut Builder<'_>,
    ) -> Result<bool, Halt> {
        let (own, tombstone) = (self.keys.owner(owner), self.keys.tombstone(owner));
        if !self.is_after_tombstone(&request.start, &tombstone) {
            return Ok(false);
        }
        builder.exactly(waiting.ticket.key.clone(), waiting.ticket.create_revision);
        builder.unchanged(own.clone());
        let burying = Burying { start: &request.start, clock: None };
        free::bury(self.keys, owner, &burying, LeaseId(request.lease), builder)?;
        builder.delete(waiting.ticket.key.clone());
        builder.effects.removes.push(waiting.ticket.key.clone());
        self.written.insert(own);
        Ok(true)
    }

    /// The decision for one run, with the transaction that serves it.
    fn decide(
        &mut self,
        waiting: &Waiting,
        ask: &Ask,
        head: &Ticket,
        scope: &Scope,
    ) -> Result<Decision, Halt> {
        let asked = &Resolved::of(ask, self.keys, self.snapshot, &self.pools).map_err(Halt::read)?;
        // A repetition, a takeover or a deleted owner, as an earlier batch has found, or another run of this batch is
        // of the same owner or pod.
        let is_known = |key: &Bytes| self.written.contains(key) || self.snapshot.entry(key).is_some();
        let hold = ask.hold_keys(self.keys).map(|[hold, _]| hold);
        let relied_on = asked.own_keys(self.keys).into_iter().chain(asked.cooling_keys(self.keys));
        if relied_on.chain(hold).any(|key| is_known(&key)) {
            return Ok(Decision::Leaves);
        }
        if asked.refused_by_pools().is_some() {
            return Ok(Decision::Refuses);
        }
        if asked.scope() != *scope {
            return Ok(Decision::Leaves);
        }
        let (own, tombstone) = (self.keys.owner(&ask.owner), self.keys.tombstone(&ask.owner));
        let picking = Picking { asked, keys: self.keys, snapshot: &self.laid_over, goes_by_bits: true };
        let picks = match picking.pick() {
            Ok(Picked::Addresses(picks)) => picks,
            Ok(Picked::Full { .. } | Picked::Refused { .. }) | Err(Halt::Refuse(_)) => {
                return Ok(Decision::Refuses);
            }
            Err(halt) => return Err(halt),
        };
        // A bit may be clear though its address is held, by a run that this batch frees.
        if picks.all().any(|(network, address)| self.written.contains(&self.keys.ip(network, *address))) {
            return Ok(Decision::Leaves);
        }
        let Ok(allotted) = NewRecords::of(asked, &picks.taken) else { return Ok(Decision::Refuses) };
        self.take(asked, &picks)?;
        let mut builder = Builder::new("serve", self.snapshot);
        builder.exactly(waiting.ticket.key.clone(), waiting.ticket.create_revision);
        builder.absent(tombstone);
        builder.absent(own.clone());
        asked.cooling_keys(self.keys).for_each(|key| builder.absent(key));
        asked.rely_on_pools(self.keys, &mut builder);
        allotted.reserve(picks.all(), self.keys, ask, &mut builder);
        for key in free::index_keys(self.keys, &ask.owner, &allotted.record) {
            builder.absent(key.clone());
            builder.put(key, PodIndex::new(&ask.owner).encode());
        }
        builder.put(own, allotted.record.encode());
        builder.delete(waiting.ticket.key.clone());
        let Ok(mut txn) = builder.finish() else { return Ok(Decision::Leaves) };
        // If a pool has changed, all that rely on it drop out. It may be large, so the first of them alone reads it.
        txn.otherwise.retain(|op| match op {
            Op::Get(key) if matches!(self.keys.parse(key), Ok(Key::Pool(_) | Key::PoolChanges)) => {
                self.read_again.insert(key.clone())
            }
            _ => true,
        });
        let drop = self.drop(waiting, head).map(|drop| {
            txn.otherwise.push(Op::Nested(Box::new(drop)));
            Position(txn.otherwise.len() - 1)
        });
        let (ticket, addresses) = (waiting.ticket.key.clone(), picks.all().cloned().collect());
        Ok(Decision::Serves(Add { txn, ticket, addresses, end: None, drop }))
    }

    /// Also clears bits that are thought to be stray, on pages that are written anyway.
    pub(crate) fn clear_noted(&mut self, stray: &[NetworkAddress]) {
        self.changes.clear_stray(stray);
    }

    /// Adds what all of them have written together.
    pub(crate) fn finish(self, cursors: Cursors, builder: &mut Builder<'_>) {
        self.changes.plan(self.keys, builder);
        if cursors == Cursors::Kept {
            return;
        }
        for (key, value) in self.cursors {
            builder.unchanged(key.clone());
            builder.put(key, value);
        }
    }
}

/// True if a head leaves a run for its own turn because that asks for a free.
fn leaves(line: &Line, head: &Ticket, waiting: &Waiting) -> bool {
    line.leaves_frees && waiting.is_free() && waiting.ticket.key != head.key
}

/// The next commit of a head that has its own answer; none if there is nobody to serve and nobody to give a turn to.
///
/// # Errors
/// The keys to read before.
pub fn plan(
    keys: &Keys,
    seen: &Snapshot,
    head: &Ticket,
    scope: &Scope,
    line: &Line,
) -> Result<Option<Planned>, Vec<Op>> {
    let try_one = |runs| -> Result<Option<Planned>, Halt> {
        let mut builder = Builder::new("batch", seen);
        require(seen, vec![keys.meta()])?;
        builder.same_value(keys.meta());
        builder.push(head.moves_queue());
        let mut batch = Batch::new(keys, seen);
        batch.clear(&line.stray, &mut builder);
        batch.serve(line, head, scope, runs, &mut builder)?;
        batch.finish(Cursors::Moved, &mut builder);
        let is_idle = builder.operations() == 1;
        let planned = builder.planned().map_err(Halt::read)?;
        Ok((!is_idle).then_some(planned))
    };
    for runs in SIZES.into_iter().chain([NOBODY]) {
        match try_one(runs) {
            Ok(Some(planned)) if !planned.txn.fits_with_own_key() => {}
            Ok(planned) => return Ok(planned),
            Err(Halt::Read(ops)) => return Err(ops),
            Err(Halt::Refuse(_)) => return Ok(None),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
