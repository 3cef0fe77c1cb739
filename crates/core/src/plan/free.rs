//! Freeing all that one owner holds, as a pure change. `metes_engine::release` carries it out.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use super::change::{Change, Commit, Step};
use super::effects::Planned;
use super::sticky;
use crate::builder::{BitChanges, Builder};
use crate::cooling::CoolingLeases;
use crate::fence::Fence;
use crate::keys::{Bytes, Keys, LeaseId, Scope};
use crate::known::LastWritten;
use crate::line::Line;
use crate::pool::{
    Addr, Caller, Clock, Cooling, Held, Meta, NetworkName, Owner, OwnerKind, OwnerRecord, PodIndex, Record,
    Reservation, RunStart, SeatRecord, Tombstone,
};
use crate::request::TicketRecord;
use crate::snapshot::{BadRecord, Snapshot};
use crate::txn::{Compare, Entry, Op};

/// The record of an owner that may be freed.
#[derive(Debug, Clone, Copy)]
pub enum FreeGuard<'a> {
    /// A record that is older than this start (DEL). A head that frees for another node has not that node's clock.
    OlderThan(&'a RunStart, Option<&'a Clock<'a>>),
    /// A record of the run of this start, or an older one.
    ///
    /// A DEL that was spooled before a reboot frees nothing that was reserved after the reboot.
    UpTo(&'a RunStart, &'a Clock<'a>),
    /// The record that the run of this start made, if no other run has answered with it since.
    Unanswered(&'a RunStart, &'a Clock<'a>),
    /// The record of this mod revision (a person's release, the reconciler).
    AsRead(i64),
}

impl<'a> FreeGuard<'a> {
    pub(crate) fn admits(self, record: &OwnerRecord, created: i64, modified: i64) -> bool {
        let of_record = record.start.as_ref().map(|start| (start, modified));
        match self {
            FreeGuard::OlderThan(start, _) => start.is_after(of_record, self.clock()),
            FreeGuard::UpTo(start, _) => {
                record.start.as_ref() == Some(start) || start.is_after(of_record, self.clock())
            }
            // A run that answers with a record writes it again.
            FreeGuard::Unanswered(start, _) => record.start.as_ref() == Some(start) && created == modified,
            FreeGuard::AsRead(revision) => revision == modified,
        }
    }

    /// The clock of the node whose starts are compared, if it is known.
    fn clock(self) -> Option<&'a Clock<'a>> {
        match self {
            FreeGuard::OlderThan(_, clock) => clock,
            FreeGuard::UpTo(_, clock) | FreeGuard::Unanswered(_, clock) => Some(clock),
            FreeGuard::AsRead(_) => None,
        }
    }
}

/// The result of freeing an owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Freed {
    /// The owner held nothing.
    Nothing,
    /// The owner's record may not be freed: a younger run wrote it, or answered with it, or a condition is not met.
    Younger,
    /// This other machine wrote the owner's record.
    Elsewhere(String),
    /// All of this was freed.
    Addresses(Vec<Held>),
}

/// One freeing of one owner.
#[derive(Debug, Clone, Copy)]
pub struct Free<'a> {
    /// The owner of the addresses.
    pub owner: &'a Owner,
    /// The record of it that may be freed.
    pub guard: FreeGuard<'a>,
    /// The caller. None if the machine does not matter (a person's release, the reconciler).
    pub caller: Option<Caller<'a>>,
    /// The start for the tombstone; none to leave no tombstone.
    pub tombstone: Option<&'a RunStart>,
    /// The owner under the names that its machine had before. What it holds under one of them is freed, too, unless
    /// another machine may have that name now.
    pub former: &'a [Former],
    /// Conditions of its own. While one of them is not met, the record stays.
    pub only_if: &'a [Compare],
}

impl<'a> Free<'a> {
    /// The free of what this owner holds, by the record alone: from any machine, under this name only, and without a
    /// tombstone.
    #[must_use]
    pub fn of(owner: &'a Owner, guard: FreeGuard<'a>) -> Self {
        Self { owner, guard, caller: None, tombstone: None, former: &[], only_if: &[] }
    }
}

/// An owner under a name that its machine had before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Former {
    /// The owner.
    pub owner: Owner,
    /// The own key of the machine under that name.
    pub own_key: Bytes,
    /// When this machine has written that key last, as far as it knows.
    pub written: Option<LastWritten>,
}

/// The owner under a former name under which it holds something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldFormerly {
    /// The owner.
    pub owner: Owner,
    /// True if the name is still this machine's; false if another one has used it since, or if that cannot be known.
    pub is_ours: bool,
}

/// A free in one mode, with its decisions.
pub struct Freeing<'a> {
    free: Free<'a>,
    keys: &'a Keys,
    mode: Mode,
    /// The conditions of the free, and those of its owner: a hold does not end while a container uses it.
    only_if: Vec<Compare>,
    /// The addresses of the owner when its record was last read.
    held: Vec<Held>,
    /// The owner under those former names under which it held something then.
    held_formerly: Vec<HeldFormerly>,
    /// For what cools; none if nothing does.
    leases: Option<&'a mut CoolingLeases>,
    /// The owner's record as it was decoded last, and the bytes that it was decoded from. It is kept because each step
    /// needs it.
    decoded: RefCell<Option<(Bytes, Rc<OwnerRecord>)>>,
}

impl Change for Freeing<'_> {
    type Done = Freed;
    type Refused = BadRecord;

    fn owner(&self) -> &Owner {
        self.free.owner
    }

    /// The queue that the record names, if pages are to be written. A scope that does not decode counts as none.
    fn scope(&self, seen: &Snapshot) -> Option<Scope> {
        let record = self.record(seen).ok()?.ok()?;
        let clears_bits = record.reserved().count() > self.cooling_of(&record).count();
        Scope::stored(&record.scope).ok().filter(|_| self.mode == Mode::Whole && clears_bits)
    }

    fn cooling(&mut self, seen: &Snapshot) -> Option<(Vec<u32>, &mut CoolingLeases)> {
        let record = self.record(seen).ok()?.ok()?;
        let cooldowns = self.cooling_of(&record).map(|(.., cooldown_s)| cooldown_s).collect();
        Some((cooldowns, self.leases.as_deref_mut()?))
    }

    fn forget_leases(&mut self) {
        if let Some(leases) = &mut self.leases {
            leases.forget();
        }
    }

    fn learn(&mut self, seen: &Snapshot) {
        if let Ok(Ok(record)) = self.record(seen) {
            self.held.clone_from(&record.addresses);
        }
        let is_held = |former: &&Former| {
            let record = seen.record::<OwnerRecord>(&self.keys.owner(&former.owner)).ok().flatten();
            record.is_some_and(|record| self.free.caller.is_none_or(|caller| caller.means(&record)))
        };
        for Former { owner, own_key, written } in self.free.former.iter().filter(is_held) {
            if self.held_formerly.iter().any(|held| held.owner == *owner) {
                continue;
            }
            let meta = seen.record::<Meta>(&self.keys.meta()).ok().flatten();
            let found = seen.mod_revision(own_key);
            let is_ours = written.as_ref().is_some_and(|written| written.is_last_of(meta.as_ref(), found));
            self.held_formerly.push(HeldFormerly { owner: owner.clone(), is_ours });
        }
    }

    /// Only a DEL asks others.
    fn ticket(&self, seen: &Snapshot, _epoch: u64, tombstones: LeaseId) -> TicketRecord {
        let Free { owner, guard, caller, tombstone, .. } = self.free;
        match (guard, caller, tombstone, self.record(seen)) {
            // A head has no lease for what cools.
            (FreeGuard::OlderThan(start, _), Some(caller), Some(_), Ok(Ok(record)))
                if !record.has_cooldown() =>
            {
                TicketRecord::freeing(owner, start, caller, tombstones, record.as_ref().clone())
            }
            _ => TicketRecord::of(owner.clone()),
        }
    }

    /// The tombstone.
    fn own_keys(&self, _seen: &Snapshot) -> Vec<Bytes> {
        vec![self.keys.tombstone(self.free.owner)]
    }

    /// Where addresses would cool, or the node had other names, a look comes first.
    fn plan_first(&self, left: &Snapshot, fence: &Fence) -> Option<Commit<Freed>> {
        let Ok(Ok(record)) = self.record(left) else { return None };
        let knows_all = self.base_keys().iter().all(|key| left.knows(key));
        if !knows_all || self.cooling_of(&record).next().is_some() {
            return None;
        }
        let freed = Freeable { owner: self.free.owner, record: &record, leases: None };
        let planned = transaction(self.keys, left, freed, self.tombstone(left), fence, Mode::Hinted);
        match self.commit(planned.ok()?, Freed::Addresses(record.addresses.clone())) {
            Step::Commit(commit) => Some(commit),
            Step::Read(_) | Step::Done(_) => None,
        }
    }

    fn proof(&self) -> Bytes {
        self.keys.tombstone(self.free.owner)
    }

    /// Its own tombstone says it: whoever puts that frees what it is for.
    fn served(&self, found: &Entry) -> Option<Freed> {
        let tombstone = Tombstone::decode(&found.value).ok()?;
        let is_own = self.free.tombstone == Some(&tombstone.start) && !self.held.is_empty();
        is_own.then(|| Freed::Addresses(self.held.clone()))
    }

    fn done_by_batch(&self) -> Option<Freed> {
        let asks = matches!(self.free.guard, FreeGuard::OlderThan(..)) && self.free.tombstone.is_some();
        let is_servable = !self.held.is_empty() && self.held.iter().all(|held| held.cooldown_s == 0);
        (asks && is_servable).then(|| Freed::Addresses(self.held.clone()))
    }

    /// All keys that freeing the record relies on, as far as they are known.
    fn reads(&self, seen: &Snapshot) -> Vec<Bytes> {
        let mut keys = self.base_keys();
        let record = match self.record(seen) {
            Ok(Ok(record)) if self.mode == Mode::Whole => record,
            _ => return keys,
        };
        for (network, address) in record.reserved() {
            keys.push(self.keys.ip(network, address));
            keys.push(self.keys.page(network, address.page()));
        }
        keys.extend(index_keys(self.keys, self.free.owner, &record));
        keys.extend(sticky::seat_key(self.keys, &record));
        keys.sort();
        keys.dedup();
        keys
    }

    fn plan(&self, seen: &Snapshot, fence: &Fence, _line: &Line) -> Result<Step<Freed>, BadRecord> {
        let base = self.base_keys();
        if !base.iter().all(|key| seen.knows(key)) {
            return Ok(Step::read(base));
        }
        let owner = self.free.owner;
        let record = match self.record(seen)? {
            Ok(record) => record,
            Err(stays) => return self.bury(seen, fence, stays),
        };
        let freed = Freeable { owner, record: &record, leases: self.leases.as_deref() };
        let mut planned = transaction(self.keys, seen, freed, self.tombstone(seen), fence, self.mode)?;
        if let Ok(Planned { txn, .. }) = &mut planned {
            txn.compares.extend_from_slice(&self.only_if);
            txn.otherwise.extend(self.conditions().map(Op::Get));
            txn.then.extend(self.note_of_hold().map(Op::Delete));
        }
        Ok(self.commit(planned, Freed::Addresses(record.addresses.clone())))
    }
}

impl<'a> Freeing<'a> {
    /// The change that frees in this mode. Without leases nothing cools.
    #[must_use]
    pub fn new(free: Free<'a>, keys: &'a Keys, mode: Mode, leases: Option<&'a mut CoolingLeases>) -> Self {
        let (held, held_formerly, decoded) = Default::default();
        let seats = match free.owner.kind() {
            OwnerKind::Subject(_) => keys.seats_of(free.owner).to_vec(),
            OwnerKind::Container(_) | OwnerKind::Aside(..) | OwnerKind::Unknown => Vec::new(),
        };
        let are_free = seats.into_iter().map(|seat| Compare::Create(seat, 0));
        let only_if = free.only_if.iter().cloned().chain(are_free).collect();
        Self { free, keys, mode, only_if, held, held_formerly, leases, decoded }
    }

    /// The addresses of the owner when its record was last read.
    #[must_use]
    pub fn held(&self) -> &[Held] {
        &self.held
    }

    /// The owner under each former name of its machine under which it holds something, as far as that was read.
    #[must_use]
    pub fn held_formerly(&self) -> &[HeldFormerly] {
        &self.held_formerly
    }

    /// The addresses of a record that cool when it is freed.
    fn cooling_of<'r>(
        &self,
        record: &'r OwnerRecord,
    ) -> impl Iterator<Item = (&'r NetworkName, Addr, u32)> + use<'r> {
        let cools = self.leases.is_some();
        record.cooling().filter(move |_| cools)
    }

    fn base_keys(&self) -> Vec<Bytes> {
        let base = [self.keys.owner(self.free.owner), self.keys.tombstone(self.free.owner)];
        let of_former = |former: &Former| [self.keys.owner(&former.owner), former.own_key.clone()];
        let meta = self.free.former.first().map(|_| self.keys.meta());
        let former = self.free.former.iter().flat_map(of_former).chain(meta);
        base.into_iter().chain(self.note_of_hold()).chain(former).chain(self.conditions()).collect()
    }

    /// The keys that its conditions look at.
    fn conditions(&self) -> impl Iterator<Item = Bytes> {
        self.only_if.iter().map(|compare| compare.key().clone())
    }

    /// The owner's record as read, if it is one that may be freed.
    fn record(&self, seen: &Snapshot) -> Result<Result<Rc<OwnerRecord>, Freed>, BadRecord> {
        let key = self.keys.owner(self.free.owner);
        let (Some(entry), Some(record)) = (seen.entry(&key), self.decoded(seen, &key)?) else {
            return Ok(Err(Freed::Nothing));
        };
        if self.free.caller.is_some_and(|caller| !caller.means(&record)) {
            return Ok(Err(Freed::Elsewhere(record.machine.clone())));
        }
        let is_meant = self.free.guard.admits(&record, entry.create_revision, entry.mod_revision);
        let may_end = self.only_if.iter().all(|compare| compare.is_met_by(seen.entry(compare.key())));
        Ok(if is_meant && may_end { Ok(record) } else { Err(Freed::Younger) })
    }

    /// The owner's record under `key`, decoded once for each value.
    fn decoded(&self, seen: &Snapshot, key: &[u8]) -> Result<Option<Rc<OwnerRecord>>, BadRecord> {
        let Some(entry) = seen.entry(key) else { return Ok(None) };
        let mut decoded = self.decoded.borrow_mut();
        if let Some((_, record)) = decoded.as_ref().filter(|(value, _)| *value == entry.value) {
            return Ok(Some(record.clone()));
        }
        let record = seen.record::<OwnerRecord>(key)?.map(Rc::new);
        *decoded = record.clone().map(|record| (entry.value.clone(), record));
        Ok(record)
    }

    /// The key that goes with a hold, if this frees one: that of its time, or the sighting of an unused one. None if it
    /// is known that there is no such key.
    fn note_of_hold(&self) -> Option<Bytes> {
        let key = match self.free.owner.kind() {
            OwnerKind::Aside(network, address) => self.keys.hold(&network, address),
            OwnerKind::Subject(_) => self.keys.orphan(self.free.owner),
            OwnerKind::Container(_) | OwnerKind::Unknown => return None,
        };
        let is_absent = Compare::Create(key.clone(), 0);
        (!self.only_if.contains(&is_absent)).then_some(key)
    }

    /// The start for the tombstone. Where this frees for a run of an earlier boot, a tombstone of the present boot is
    /// enough and stays: it was put after every run of an earlier boot had read. One of an earlier boot may have been
    /// read by the ADD that is to be stopped.
    fn tombstone(&self, seen: &Snapshot) -> Option<Burying<'_>> {
        let (start, clock) = (self.free.tombstone?, self.free.guard.clock());
        let key = self.keys.tombstone(self.free.owner);
        let is_enough = |standing: &Tombstone, clock: &Clock<'_>| {
            clock.is_of_another_boot(start, 0)
                && !clock.is_of_another_boot(&standing.start, seen.mod_revision(&key))
        };
        let standing = seen.record::<Tombstone>(&key).ok().flatten();
        let is_needed = !standing.zip(clock).is_some_and(|(standing, clock)| is_enough(&standing, clock));
        is_needed.then_some(Burying { start, clock })
    }

    /// There is nothing to free. Only the tombstone is put, if the owner's record is still as it was read.
    fn bury(&self, seen: &Snapshot, fence: &Fence, stays: Freed) -> Result<Step<Freed>, BadRecord> {
        let owner = self.free.owner;
        // A tombstone is needed also where a younger run of the container holds something: others may free that, and
        // then an older run, which still waits, could be served.
        let (Some(tombstone), Some(lease)) = (self.tombstone(seen), fence.lease()) else {
            return Ok(Step::Done(stays));
        };
        let mut builder = Builder::new("bury", seen);
        builder.unchanged(self.keys.owner(owner));
        // A store that has gone back uses its revisions a second time. Without a record, only the tombstone's value
        // shows that.
        builder.same_value(self.keys.tombstone(owner));
        bury(self.keys, owner, &tombstone, lease, &mut builder)?;
        Ok(self.commit(builder.planned(), stays))
    }

    fn commit(&self, planned: Result<Planned, Vec<Bytes>>, done: Freed) -> Step<Freed> {
        match planned {
            Ok(planned) => Step::Commit(Commit::new(planned, Some(done), self.keys.owner(self.free.owner))),
            Err(missing) => Step::read(missing),
        }
    }
}

/// The part of a free that its transaction does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Everything.
    Whole,
    /// Everything, by keys that were not read. It clears only the bits of pages that are as they are thought to be.
    Hinted,
    /// Everything, as one step of an ADD that goes on afterwards.
    First,
    /// Everything but pages; stray bits are left.
    Quick,
    /// Only deletes, which etcd takes even when it is out of space.
    DeleteOnly,
}

impl Mode {
    fn step(self) -> &'static str {
        match self {
            Mode::Whole => "free",
            Mode::Hinted => "free-hinted",
            Mode::First => "free-first",
            Mode::Quick => "free-quick",
            Mode::DeleteOnly => "free-delete-only",
        }
    }
}

/// The part that one transaction frees.
#[derive(Clone, Copy)]
pub(crate) struct Freeable<'a> {
    pub(crate) owner: &'a Owner,
    pub(crate) record: &'a OwnerRecord,
    /// The leases for what cools; none if nothing does.
    pub(crate) leases: Option<&'a CoolingLeases>,
}

/// A tombstone to be put.
pub(crate) struct Burying<'a> {
    pub(crate) start: &'a RunStart,
    /// The clock of the node of the start; none where nobody has that clock.
    pub(crate) clock: Option<&'a Clock<'a>>,
}

/// Frees all that an owner holds, behind `fence`.
///
/// Compares the mod revisions of the owner record and of each reservation. It does not touch a reservation that names
/// another owner. The caller judges whether the record may be freed. `tombstone` is put on the fence's lease, unless
/// there is a younger one.
///
/// # Errors
/// [`BadRecord`] if the owner's tombstone does not decode.
pub(crate) fn transaction(
    keys: &Keys,
    snapshot: &Snapshot,
    freed: Freeable<'_>,
    tombstone: Option<Burying<'_>>,
    fence: &Fence,
    mode: Mode,
) -> Result<Result<Planned, Vec<Bytes>>, BadRecord> {
    let Freeable { owner, record, leases } = freed;
    let mut builder = Builder::new(mode.step(), snapshot);
    fence.guard(&mut builder);
    let own = keys.owner(owner);
    builder.unchanged(own.clone());
    builder.delete(own);
    let mut changes = BitChanges::default();
    free_reservations(keys, owner, record, &mut builder, &mut changes);
    free_index(keys, owner, record, &mut builder);
    free_seat(keys, owner, record, &mut builder);
    if let Some(leases) = leases {
        cool(keys, record, leases, &mut builder, &mut changes);
    }
    match mode {
        Mode::Whole | Mode::First => changes.plan(keys, &mut builder),
        Mode::Hinted => {
            // A store that has gone back, or is another one, is judged before anything is freed.
            builder.same_value(keys.meta());
            changes.clear_inside("free-bits", keys, &mut builder);
        }
        Mode::Quick | Mode::DeleteOnly => changes.leave(&mut builder),
    }
    if let (Some(tombstone), Some(lease)) = (tombstone, fence.lease()) {
        bury(keys, owner, &tombstone, lease, &mut builder)?;
    }
    Ok(builder.planned())
}

/// The reservations of a record, with their bits: those that name `owner` are deleted.
///
/// The bit of an address that is not reserved stays: another record may list the address, too. If none does, an audit
/// takes it for a stray one.
pub fn free_reservations(
    keys: &Keys,
    owner: &Owner,
    record: &OwnerRecord,
    builder: &mut Builder<'_>,
    changes: &mut BitChanges,
) {
    for (network, address) in record.reserved() {
        let key = keys.ip(network, address);
        builder.unchanged(key.clone());
        match builder.seen().record::<Reservation>(&key) {
            Ok(Some(reservation)) if reservation.owner == *owner => {
                builder.delete(key);
                changes.clear(network, address);
            }
            Ok(_) | Err(_) => {}
        }
    }
}

/// The addresses of a record that are freed and have a cooldown keep their bits, and each gets a key that says so.
fn cool(
    keys: &Keys,
    record: &OwnerRecord,
    leases: &CoolingLeases,
    builder: &mut Builder<'_>,
    changes: &mut BitChanges,
) {
    for (network, address, cooldown_s) in record.cooling() {
        if let (true, Some(lease)) = (changes.keeps(network, address), leases.get(cooldown_s)) {
            builder.put_on(keys.cooling(network, address), Cooling::new(cooldown_s).encode(), lease);
        }
    }
}

/// The index entries of a record: those that name `owner` are deleted.
pub fn free_index(keys: &Keys, owner: &Owner, record: &OwnerRecord, builder: &mut Builder<'_>) {
    for key in index_keys(keys, owner, record) {
        builder.unchanged(key.clone());
        if matches!(builder.seen().record::<PodIndex>(&key), Ok(Some(index)) if index.names(owner)) {
            builder.delete(key);
        }
    }
}

/// The seat of a record, if it names `owner`: it is deleted. If it was read, it is not compared: a transaction that
/// writes it writes the record, too.
pub fn free_seat(keys: &Keys, owner: &Owner, record: &OwnerRecord, builder: &mut Builder<'_>) {
    let Some(key) = sticky::seat_key(keys, record) else { return };
    builder.goes_with(&key, &keys.owner(owner));
    if matches!(builder.seen().record::<SeatRecord>(&key), Ok(Some(seat)) if seat.user == *owner) {
        builder.delete(key);
    }
}

/// The index entries of a record.
pub fn index_keys(keys: &Keys, owner: &Owner, record: &OwnerRecord) -> Vec<Bytes> {
    let Some(uid) = &record.labels.pod.uid else { return Vec::new() };
    let key = |network| keys.pod(owner.cluster.as_ref(), uid, &owner.ifname, network);
    networks(record).into_iter().map(key).collect()
}

/// True if the pod index names another owner in every network in which an owner holds an address: a younger sandbox of
/// its pod has addresses of its own. An entry that does not decode, or is not in the snapshot, names nobody.
#[must_use]
pub fn is_replaced(keys: &Keys, owner: &Owner, record: &OwnerRecord, index: &Snapshot) -> bool {
    let names_another = |key: &Bytes| match index.record::<PodIndex>(key) {
        Ok(Some(index)) => !index.names(owner),
        Ok(None) | Err(_) => false,
    };
    let entries = index_keys(keys, owner, record);
    !entries.is_empty() && entries.iter().all(names_another)
}

/// The networks that a record's addresses are reserved in, each once.
#[must_use]
pub fn networks(record: &OwnerRecord) -> BTreeSet<&NetworkName> {
    record.addresses.iter().filter_map(|held| held.network.as_ref()).collect()
}

/// Puts a tombstone on `lease`, unless there is a younger one. One of the same start is put again: its lease may end
/// sooner.
///
/// # Errors
/// [`BadRecord`] if the present one does not decode.
pub(crate) fn bury(
    keys: &Keys,
    owner: &Owner,
    Burying { start, clock }: &Burying<'_>,
    lease: LeaseId,
    builder: &mut Builder<'_>,
) -> Result<(), BadRecord> {
    let key = keys.tombstone(owner);
    builder.unchanged(key.clone());
    let standing = builder.seen().record::<Tombstone>(&key)?.map(|tombstone| tombstone.start);
    let put_at = builder.seen().mod_revision(&key);
    if start.is_after(standing.as_ref().map(|standing| (standing, put_at)), *clock)
        || standing.as_ref() == Some(*start)
    {
        builder.put_on(key, Tombstone::new((*start).clone()).encode(), lease);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;
    use crate::pool::{Bits, Labels};

    #[test]
    fn only_the_record_that_was_meant_is_freed() {
        let start = |boot: &str, ns| RunStart { boot: boot.into(), ns };
        let record = |start| OwnerRecord::new(Vec::new(), start, "-".into(), Labels::default());
        let now = start("b", 10);
        let before_boot = start("a", 50);
        let (read, before_read) = (|| start("b", 12), start("b", 20));
        let clock = Clock::new(&read);
        let older = FreeGuard::OlderThan(&now, Some(&clock));
        let elsewhere = FreeGuard::OlderThan(&now, None);
        let spooled = FreeGuard::UpTo(&now, &clock);
        let spooled_before = FreeGuard::UpTo(&before_boot, &clock);
        let spooled_before_clock_went_back = FreeGuard::UpTo(&before_read, &clock);
        let unanswered = FreeGuard::Unanswered(&now, &clock);
        for (which, of, admitted) in [
            (older, None, true),
            (older, Some(start("b", 9)), true),
            (older, Some(start("b", 10)), false),
            (older, Some(start("b", 11)), false),
            (older, Some(start("a", 99)), true),
            // The DEL has taken until 12, and no run of this boot can have begun later.
            (older, Some(start("b", 12)), false),
            (older, Some(start("b", 13)), true),
            (elsewhere, Some(start("b", 13)), false),
            (spooled, Some(start("b", 13)), true),
            (spooled_before_clock_went_back, Some(start("b", 20)), true),
            (spooled_before_clock_went_back, Some(start("b", 19)), true),
            (spooled_before_clock_went_back, Some(start("b", 21)), false),
            (spooled_before_clock_went_back, Some(start("b", 11)), false),
            (spooled_before_clock_went_back, Some(start("a", 99)), true),
            (spooled, Some(start("b", 10)), true),
            (spooled, Some(start("b", 11)), false),
            (spooled, Some(start("a", 99)), true),
            // It was spooled before a reboot, so it frees nothing that was reserved after the reboot.
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

    /// An older ADD may still be in the queue, and others may free the younger record, which stands in its way.
    #[test]
    fn a_del_that_finds_a_younger_record_leaves_its_tombstone() {
        let start = |ns| RunStart { boot: "b".into(), ns };
        let owner = Owner::named(["east", "n", "c", "eth0"]).expect("plain names");
        let keys = Keys::new("/m/");
        let mut store = Memory::default();
        let record = OwnerRecord::new(Vec::new(), Some(start(11)), "-".into(), Labels::default());
        store.put(keys.owner(&owner), record.encode());
        let now = start(10);
        let free = Free { tombstone: Some(&now), ..Free::of(&owner, FreeGuard::OlderThan(&now, None)) };
        let change = Freeing::new(free, &keys, Mode::Whole, None);
        let mut seen = Snapshot::default();
        store.read(&change.reads(&seen), &mut seen);
        let fence = Fence::Lease { key: b"/m/v1/fence/n".to_vec(), lease: LeaseId(7) };
        let Ok(Step::Commit(commit)) = change.plan(&seen, &fence, &Line::default()) else {
            panic!("nothing is written")
        };
        assert_eq!(commit.done, Some(Freed::Younger));
        assert!(store.apply(&commit.txn).succeeded);
        let mut after = Snapshot::default();
        store.read(&[keys.tombstone(&owner), keys.owner(&owner)], &mut after);
        let tombstone = after.record::<Tombstone>(&keys.tombstone(&owner)).expect("it decodes");
        assert_eq!(tombstone, Some(Tombstone::new(now.clone())));
        assert!(after.entry(&keys.owner(&owner)).is_some(), "the younger record stays");
    }

    /// The DEL has read before the store went back. By then a younger DEL has put its tombstone, at the revision of the
    /// one that was read.
    #[test]
    fn a_tombstone_with_the_revision_of_another_one_is_not_replaced() {
        let start = |ns| RunStart { boot: "b".into(), ns };
        let owner = Owner::named(["east", "n", "c", "eth0"]).expect("plain names");
        let (keys, now) = (Keys::new("/m/"), start(20));
        let free = Free { tombstone: Some(&now), ..Free::of(&owner, FreeGuard::OlderThan(&now, None)) };
        let change = Freeing::new(free, &keys, Mode::Whole, None);
        let store = |standing| {
            let mut store = Memory::default();
            store.put(keys.tombstone(&owner), Tombstone::new(start(standing)).encode());
            store
        };
        let [mut as_read, mut younger] = [10, 30].map(store);
        let mut seen = Snapshot::default();
        as_read.read(&change.reads(&seen), &mut seen);
        let fence = Fence::Unfenced { lease: Some(LeaseId(7)) };
        let Ok(Step::Commit(commit)) = change.plan(&seen, &fence, &Line::default()) else {
            panic!("nothing is written")
        };
        assert!(!younger.apply(&commit.txn).succeeded);
        assert!(as_read.apply(&commit.txn).succeeded);
    }

    /// An ADD has planned beside the tombstone of an earlier DEL. Its commit is held back, the DEL that was meant for
    /// it is spooled, and the host boots anew.
    #[test]
    fn a_spooled_del_of_an_earlier_boot_replaces_all_tombstones_but_those_of_the_present_one() {
        let start = |boot: &str, ns| RunStart { boot: boot.into(), ns };
        let owner = Owner::named(["east", "n", "c", "eth0"]).expect("plain names");
        let (keys, spooled) = (Keys::new("/m/"), start("a", 30));
        let now = || start("b", 40);
        let (of, clock) = (&spooled, &Clock::new(&now));
        let guards = [FreeGuard::UpTo(of, clock), FreeGuard::Unanswered(of, clock)];
        let rows = [
            (None, true),
            (Some(start("a", 10)), true),
            (Some(start("z", 99)), true),
            // Its lease may end sooner than the one that is put now.
            (Some(start("a", 30)), true),
            (Some(start("b", 1)), false),
            // From before the clock went back.
            (Some(start("b", 41)), true),
        ];
        for (guard, (standing, is_put)) in
            guards.iter().flat_map(|guard| rows.iter().map(move |row| (*guard, row)))
        {
            let free = Free { tombstone: Some(&spooled), ..Free::of(&owner, guard) };
            let change = Freeing::new(free, &keys, Mode::Whole, None);
            let (mut store, mut seen) = (Memory::default(), Snapshot::default());
            if let Some(standing) = standing {
                store.put(keys.tombstone(&owner), Tombstone::new(standing.clone()).encode());
            }
            store.read(&change.reads(&seen), &mut seen);
            let fence = Fence::Unfenced { lease: Some(LeaseId(7)) };
            let puts = match change.plan(&seen, &fence, &Line::default()).expect("it decodes") {
                Step::Commit(commit) => commit.txn.then.iter().any(|op| matches!(op, Op::Put(..))),
                step => !matches!(step, Step::Done(Freed::Nothing)),
            };
            assert_eq!(puts, *is_put, "{guard:?} {standing:?}");
        }
    }

    /// Their summary can be put only once.
    #[test]
    fn of_two_full_pages_a_hinted_free_clears_one() {
        let owner = Owner::named(["east", "n", "c", "eth0"]).expect("plain names");
        let (keys, network) = (Keys::new("/m/"), NetworkName::default());
        let addresses = [0, 7].map(|second| std::net::Ipv4Addr::new(10, second, 0, 1).into());
        let held = addresses.map(|address| Held::new(address, Some(network.clone()))).to_vec();
        let record = OwnerRecord::new(held, None, "-".into(), Labels::default());
        let pages = addresses.map(|address| Addr::from(address).page());
        let summary = keys.summary(&network, pages[0].summary());
        let mut bits = Bits::empty();
        let mut store = Memory::default();
        for (address, page) in addresses.into_iter().zip(pages) {
            bits.set(page.bit());
            store.put(keys.page(&network, page), Bits::full().to_bytes());
            store.put(
                keys.ip(&network, address.into()),
                Reservation::new(owner.clone(), String::new()).encode(),
            );
        }
        store.put(summary.clone(), bits.to_bytes());
        let read = |store: &Memory| {
            let mut seen = Snapshot::default();
            let of_pages = pages.map(|page| keys.page(&network, page));
            let of_addresses = addresses.map(|address| keys.ip(&network, address.into()));
            let all: Vec<Bytes> = of_pages.into_iter().chain(of_addresses).chain([summary.clone()]).collect();
            store.read(&all, &mut seen);
            seen
        };
        let seen = read(&store);
        let mut builder = Builder::new("free-hinted", &seen);
        let mut changes = BitChanges::default();
        free_reservations(&keys, &owner, &record, &mut builder, &mut changes);
        changes.clear_inside("free-bits", &keys, &mut builder);
        let planned = builder.planned().expect("all was read");
        assert_eq!(planned.effects.stray, [(network.clone(), addresses[1].into())]);
        assert!(store.apply(&planned.txn).succeeded);
        let after = read(&store);
        let is_full = |key: &[u8]| crate::builder::bits(&after, key).expect("it decodes").is_full();
        assert_eq!(pages.map(|page| is_full(&keys.page(&network, page))), [false, true]);
        bits.clear(pages[0].bit());
        assert_eq!(crate::builder::bits(&after, &summary), Some(bits));
    }

    /// With its bit cleared, the next ADD would give the address although the other container may use it.
    #[test]
    fn an_address_that_two_records_list_and_nobody_has_reserved_keeps_its_bit() {
        let owner = Owner::named(["east", "n", "c", "eth0"]).expect("plain names");
        let keys = Keys::new("/m/");
        let network = NetworkName::default();
        let [own, listed] = [1, 2].map(|last| std::net::Ipv4Addr::new(10, 0, 0, last).into());
        let held = [own, listed].map(|address| Held::new(address, Some(network.clone()))).to_vec();
        let mut store = Memory::default();
        let record = OwnerRecord::new(held, None, "-".into(), Labels::default());
        store.put(keys.owner(&owner), record.encode());
        let reservation = Reservation::new(owner.clone(), String::new());
        store.put(keys.ip(&network, own.into()), reservation.encode());
        let mut bits = Bits::empty();
        [1, 2].into_iter().for_each(|bit| bits.set(bit));
        let page = keys.page(&network, Addr::from(own).page());
        store.put(page.clone(), bits.to_bytes());
        let free = Free::of(&owner, FreeGuard::AsRead(1));
        let change = Freeing::new(free, &keys, Mode::Whole, None);
        let mut seen = Snapshot::default();
        for _ in 0..2 {
            store.read(&change.reads(&seen), &mut seen);
        }
        let step = change.plan(&seen, &Fence::Unfenced { lease: None }, &Line::default());
        let Ok(Step::Commit(commit)) = step else { panic!("nothing is written") };
        assert!(store.apply(&commit.txn).succeeded);
        bits.clear(1);
        assert_eq!(store.get(&page).map(|entry| entry.value.clone()), Some(bits.to_bytes()));
    }
}
