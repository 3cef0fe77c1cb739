//! The next step of an ADD, from the keys that it has read. Pure, so that a test can play every case, and a simulation
//! makes the same decisions.

use std::borrow::Cow;

use super::ask::{Ask, RunStamp};
use super::batch::{self, Batch, Cursors};
use super::change::{Change, Commit, Step};
use super::effects::Planned;
use super::free::{self, Freeable, Mode};
use super::known_pool::DecodedPools;
use super::left::OwnerLeft;
use super::pick::{Picked, Picking, Picks};
use super::pools::ReadPools;
use super::refused::{Halt, require};
pub use super::refused::{OtherMachine, Refused, Seated};
use super::resolved::Resolved;
use super::source::Full;
use super::sticky::{self, NewRecords, Vacant};
use crate::builder::Builder;
use crate::cooling::CoolingLeases;
use crate::fence::Fence;
use crate::keys::{Bytes, HintName, Keys, LeaseId, NetworkAddress, Scope};
use crate::line::Line;
use crate::meta;
use crate::pool::{
    Caller, Clock, Held, Meta, Owner, OwnerRecord, PodIndex, PodUid, Record, Reservation, RunStart,
    SeatRecord, Tombstone, Wanted,
};
use crate::request::TicketRecord;
use crate::snapshot::Snapshot;
use crate::txn::Entry;

/// The end of an ADD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Allotted {
    /// The owner holds what it asked for.
    Held(Added),
    /// The ranges, or the pool, for one of its addresses have no free address.
    Full(Full),
}

/// The addresses of an owner after an ADD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Added {
    /// The addresses, in result order.
    pub held: Vec<Held>,
    /// The owner held them before this run.
    pub repeats: bool,
}

/// An ADD as a change of held addresses.
pub struct Allotment<'a> {
    /// The request. It has no texts of pools: those may change, so each decision uses them as they were read.
    ask: Cow<'a, Ask>,
    keys: &'a Keys,
    pools: DecodedPools,
    /// True if a tombstone of this owner was ever seen. Then this run takes no addresses over.
    was_deleted: bool,
    /// The leases for the cooling of addresses that an older sandbox has to give up.
    leases: CoolingLeases,
    /// The record of the ranges that the configuration asks for, if the commit is to write it.
    kept: Option<KeptRanges>,
    /// Addresses whose bits are thought to be stray.
    stray: Vec<NetworkAddress>,
    /// An owner whose addresses it may take over, as another run of the node has left it. A look reads its keys, too.
    older: Option<OwnerLeft>,
    /// The clock of the node. Without it, a start that is later than its own counts as younger.
    clock: Option<&'a Clock<'a>>,
}

/// The key and the value of the record of the ranges that a configuration asks for.
type KeptRanges = (Bytes, Vec<u8>);

impl<'a> Allotment<'a> {
    /// The change that `ask` asks for.
    #[must_use]
    pub fn new(ask: &'a Ask, keys: &'a Keys) -> Self {
        let (pools, leases) = (DecodedPools::default(), CoolingLeases::default());
        let (kept, stray, older, clock) = (None, Vec::new(), None, None);
        Self { ask: Cow::Borrowed(ask), keys, pools, was_deleted: false, leases, kept, stray, older, clock }
    }

    /// Compares starts by this clock of its node.
    #[must_use]
    pub fn by_clock(self, clock: &'a Clock<'a>) -> Self {
        Self { clock: Some(clock), ..self }
    }

    /// Expects to take over the addresses of this older sandbox of the pod.
    pub fn expect_older(&mut self, older: OwnerLeft) {
        self.older = Some(older);
    }

    /// Makes the commit also clear these bits, where it writes their pages, nobody holds their addresses and none is
    /// cooling.
    pub fn clear_stray(&mut self, stray: Vec<NetworkAddress>) {
        self.stray = stray;
    }

    /// Makes the commit also write the record of the ranges that the configuration asks for, unless `are_kept` is true
    /// of its key.
    pub fn keep_ranges(&mut self, are_kept: impl Fn(&[u8]) -> bool) {
        let Some(asked) = self.ask.asked_ranges() else { return };
        let key = self.keys.asked(&asked);
        if !are_kept(&key) {
            self.kept = asked.encode_to_keep().map(|value| (key, value));
        }
    }

    /// Goes on to the next pool for an address whose present pool is full. Returns false if there is none.
    pub fn turn_to_next_pool(&mut self, full: &Full) -> bool {
        let Full::Pool { element, has_next: true, .. } = full else { return false };
        let Wanted::Pools(pools) = &mut self.ask.to_mut().wanted else { return false };
        pools.turn_to_next(*element);
        true
    }

    /// The name of the hints with `v1/pools`, by which `auto` chooses pools; none without `auto`.
    #[must_use]
    pub fn auto_hints(&self) -> Option<HintName> {
        self.ask.pools()?.has_auto().then(HintName::of_auto)
    }

    /// The name of the hints with the texts of its pools; none while its pools are not known.
    #[must_use]
    pub fn pools_hints(&self, seen: &Snapshot) -> Option<HintName> {
        self.ask.pools_hints(self.keys, seen, &self.pools)
    }

    /// The name of the hints with its hold; none if its addresses end with the container.
    #[must_use]
    pub fn hold_hints(&self) -> Option<HintName> {
        self.ask.sticky.as_ref().map(|sticky| HintName::of_hold(&sticky.hold))
    }

    /// True if it expects to take addresses over.
    #[must_use]
    pub fn expects_older(&self) -> bool {
        self.older.is_some()
    }

    /// The addresses whose bits it was to clear.
    #[must_use]
    pub fn stray(&self) -> &[NetworkAddress] {
        &self.stray
    }

    /// The owner that asks, and its pod if that is known.
    #[must_use]
    pub fn owner_and_pod(&self) -> (&Owner, Option<&PodUid>) {
        (&self.ask.owner, self.ask.labels.pod.uid.as_ref())
    }

    /// The keys of the cursors that its commit moves; none while its pools were not read.
    #[must_use]
    pub fn cursors(&self, seen: &Snapshot) -> Vec<Bytes> {
        self.resolve(seen).map(|asked| asked.cursor_keys(self.keys)).unwrap_or_default()
    }

    /// Its pools; none unless all of them were read.
    #[must_use]
    pub fn pools(&self, seen: &Snapshot) -> ReadPools {
        self.resolve(seen).ok().and_then(Resolved::into_pools).unwrap_or_default()
    }

    /// Resolves the request by the pools that were read. If some are missing, returns their keys.
    pub(crate) fn resolve(&self, seen: &Snapshot) -> Result<Resolved<'_>, Vec<Bytes>> {
        Resolved::of(&self.ask, self.keys, seen, &self.pools)
    }
}

impl Change for Allotment<'_> {
    type Done = Allotted;
    type Refused = Refused;

    fn owner(&self) -> &Owner {
        &self.ask.owner
    }

    fn scope(&self, seen: &Snapshot) -> Option<Scope> {
        Some(self.resolve(seen).ok()?.scope())
    }

    fn unread(&self, seen: &Snapshot) -> Vec<Bytes> {
        self.resolve(seen).err().unwrap_or_default()
    }

    fn reads(&self, seen: &Snapshot) -> Vec<Bytes> {
        let reads = match self.resolve(seen) {
            Ok(asked) => asked.first_reads(self.keys),
            Err(_) => self.ask.reads_without_pools(self.keys),
        };
        let of_older = self.older.iter().flat_map(|older| older.relied_on(self.keys));
        let unread = of_older.filter(|key| !reads.contains(key)).collect::<Vec<_>>();
        reads.into_iter().chain(unread).collect()
    }

    /// A repetition and a takeover write only keys that belong to the owner alone, and so does a run that takes a seat
    /// of its hold.
    fn is_unhindered(&self, seen: &Snapshot) -> bool {
        let Ok(asked) = self.resolve(seen) else { return false };
        let own = asked.index_keys(self.keys).into_iter().chain([self.keys.owner(&self.ask.owner)]);
        let hold = self.ask.hold_keys(self.keys).map(|[hold, _]| hold);
        own.chain(hold).any(|key| seen.entry(&key).is_some())
    }

    fn own_keys(&self, seen: &Snapshot) -> Vec<Bytes> {
        self.resolve(seen).map(|asked| asked.own_keys(self.keys)).unwrap_or_default()
    }

    fn cooling(&mut self, seen: &Snapshot) -> Option<(Vec<u32>, &mut CoolingLeases)> {
        let asked = self.resolve(seen).ok()?;
        let given_up = older_owner(&asked, self.keys, seen, self.clock).ok()??.record;
        let cooldowns = given_up.cooling().map(|(.., cooldown_s)| cooldown_s);
        let needed = if asked.gives(&given_up.addresses) { Vec::new() } else { cooldowns.collect() };
        drop(asked);
        Some((needed, &mut self.leases))
    }

    fn forget_leases(&mut self) {
        self.leases.forget();
    }

    fn learn(&mut self, seen: &Snapshot) {
        self.was_deleted |= seen.entry(&self.keys.tombstone(&self.ask.owner)).is_some();
    }

    fn plan(&self, seen: &Snapshot, fence: &Fence, line: &Line) -> Result<Step<Allotted>, Refused> {
        let Self { keys, was_deleted, .. } = *self;
        let asked = match self.resolve(seen) {
            Ok(asked) => asked,
            Err(pools) => return Ok(Step::read(pools)),
        };
        let Self { leases, stray, .. } = self;
        let clock = self.clock;
        let (asked, kept) = (&asked, self.kept.as_ref());
        let deciding =
            Deciding { asked, keys, snapshot: seen, fence, line, was_deleted, leases, kept, stray, clock };
        match deciding.decide() {
            Ok(step) => Ok(step),
            Err(Halt::Read(ops)) => Ok(Step::Read(ops)),
            Err(Halt::Refuse(why)) => Err(why),
        }
    }

    fn plan_first(&self, left: &Snapshot, fence: &Fence) -> Option<Commit<Allotted>> {
        let Ok(Step::Commit(mut commit)) = self.plan(left, fence, &Line::default()) else { return None };
        commit.txn.step = "commit-first";
        Some(commit)
    }

    fn applied(&self, commit: Commit<Allotted>, found: Option<&Entry>) -> Option<Allotted> {
        let Allotted::Held(added) = self.served(found?)? else { return None };
        let repeats = matches!(commit.done, Some(Allotted::Held(Added { repeats: true, .. })));
        Some(Allotted::Held(Added { repeats, ..added }))
    }

    fn proof(&self) -> Bytes {
        self.keys.owner(&self.ask.owner)
    }

    fn ticket(&self, _seen: &Snapshot, epoch: u64, _tombstones: LeaseId) -> TicketRecord {
        TicketRecord::asking(&self.ask, epoch)
    }

    /// The owner's record proves it: it has the start of the run that asked.
    fn served(&self, found: &Entry) -> Option<Allotted> {
        let record = OwnerRecord::decode(&found.value).ok()?;
        let is_own = record.start.as_ref() == Some(&self.ask.stamp.start);
        is_own.then_some(Allotted::Held(Added { held: record.addresses, repeats: false }))
    }
}

struct Deciding<'a> {
    asked: &'a Resolved<'a>,
    keys: &'a Keys,
    snapshot: &'a Snapshot,
    fence: &'a Fence,
    /// The runs that wait behind this one, if it is at the head of its queue.
    line: &'a Line,
    was_deleted: bool,
    leases: &'a CoolingLeases,
    kept: Option<&'a KeptRanges>,
    stray: &'a [NetworkAddress],
    /// The node's clock.
    clock: Option<&'a Clock<'a>>,
}

/// An older owner of the same interface of the same pod.
struct Older {
    owner: Owner,
    record: OwnerRecord,
}

impl Deciding<'_> {
    fn decide(&self) -> Result<Step<Allotted>, Halt> {
        require(self.snapshot, self.asked.base_keys(self.keys))?;
        self.judge_meta()?;
        let was_deleted = self.judge_tombstone()? || self.was_deleted;
        let own = self.keys.owner(&self.asked.ask.owner);
        let mine = self.snapshot.record::<OwnerRecord>(&own)?;
        let older = older_owner(self.asked, self.keys, self.snapshot, self.clock)?;
        match (mine, older) {
            (Some(record), _) => self.repeat(record),
            (None, Some(older)) if !was_deleted && self.asked.gives(&older.record.addresses) => {
                self.take_over(&older)
            }
            (None, Some(older)) if !was_deleted => self.free_first(&older),
            (None, _) => self.take_new(),
        }
    }

    fn take_new(&self) -> Result<Step<Allotted>, Halt> {
        if let Some(vacant) = Vacant::of(self.asked, self.keys, self.snapshot)? {
            return self.take_seat(vacant);
        }
        if let Some(full) = self.asked.gives_nothing() {
            return Ok(Step::Done(Allotted::Full(full)));
        }
        let refused = self.asked.refused_by_pools().cloned();
        match refused.or_else(|| sticky::must_be_sticky(self.asked).err()) {
            Some(why) => Err(Halt::Refuse(Refused::Pool(why))),
            None => match self.picking().pick()? {
                Picked::Full { set } => Ok(Step::Done(Allotted::Full(self.asked.full(set)))),
                Picked::Refused { address, why } => Err(self.picking().refuse(address, why)),
                Picked::Addresses(picks) => self.allot(&picks),
            },
        }
    }

    fn picking(&self) -> Picking<'_> {
        Picking { asked: self.asked, keys: self.keys, snapshot: self.snapshot, goes_by_bits: false }
    }

    fn judge_meta(&self) -> Result<(), Halt> {
        let meta = self.snapshot.record::<Meta>(&self.keys.meta())?;
        meta::judge(meta.as_ref()).map_err(|why| Halt::Refuse(Refused::OutOfService(why)))
    }

    /// True if there is an older tombstone. A younger one ends this run.
    fn judge_tombstone(&self) -> Result<bool, Halt> {
        let dead = self.keys.tombstone(&self.asked.ask.owner);
        match self.snapshot.record::<Tombstone>(&dead)? {
            None => Ok(false),
            Some(tombstone) if self.is_after(&tombstone.start, &dead) => Ok(true),
            Some(_) => Err(Halt::Refuse(Refused::Deleted)),
        }
    }

    /// True if this run is younger than what started at `other`, as `key` says.
    fn is_after(&self, other: &RunStart, key: &[u8]) -> bool {
        let put_at = self.snapshot.mod_revision(key);
        self.asked.ask.stamp.start.is_after(Some((other, put_at)), self.clock)
    }

    /// The owner holds addresses already. They are the answer, if they fit.
    fn repeat(&self, record: OwnerRecord) -> Result<Step<Allotted>, Halt> {
        let Ask { owner, labels, stamp: RunStamp { machine, .. }, .. } = self.asked.ask;
        let caller = Caller { machine, pod_uid: labels.pod.uid.as_ref() };
        if !caller.means(&record) {
            let (owner, theirs, ours) = (owner.clone(), record.machine, machine.clone());
            let other = OtherMachine { owner, theirs, ours };
            return Err(Halt::Refuse(Refused::OtherMachine(Box::new(other))));
        }
        if !self.asked.fits(&record.addresses) {
            return Err(Halt::Refuse(Refused::Unfit(record.addresses, self.asked.ask.wanted.to_string())));
        }
        let mut builder = self.commit_builder();
        for key in self.reservations_of(&self.asked.ask.owner, &record)? {
            builder.unchanged(key);
        }
        self.must_sit(&self.asked.ask.owner, &record)?;
        // Another run may have served this one without its knowledge.
        let repeats = record.start.as_ref() != Some(&self.asked.ask.stamp.start);
        let start = match record.start {
            Some(other) if !self.is_after(&other, &self.keys.owner(owner)) => other,
            _ => self.asked.ask.stamp.start.clone(),
        };
        // Scope and labels stay as they are, because reservations and pod index were written with them.
        let addresses = self.asked.kept(record.addresses);
        let seat = record.seat;
        let record = OwnerRecord::new(addresses, Some(start), record.scope, record.labels);
        let record = record.on_machine(machine).in_seat(seat);
        self.put_owner(&mut builder, &record);
        Ok(self.commit(finish(builder)?, record.addresses, repeats))
    }

    /// A retried sandbox of the same pod inherits all addresses of the older one.
    fn take_over(&self, older: &Older) -> Result<Step<Allotted>, Halt> {
        let mut builder = self.commit_builder();
        for key in self.reservations_of(&older.owner, &older.record)? {
            builder.unchanged(key.clone());
            builder.put(key, self.asked.ask.reservation());
        }
        let own = self.keys.owner(&older.owner);
        builder.unchanged(own.clone());
        builder.delete(own);
        if let Some(seat) = &older.record.seat {
            self.must_sit(&older.owner, &older.record)?;
            builder.goes_with(&self.keys.seat(seat), &self.keys.owner(&older.owner));
            sticky::put_seat(self.keys, seat, self.asked.ask, &mut builder);
        }
        let addresses = self.asked.kept(older.record.addresses.clone());
        let mut record = self.asked.record(addresses).in_seat(older.record.seat.clone());
        if self.asked.refused_by_pools().is_some() {
            // A record names its queue by its ranges, and these pools have none now. So it keeps the older record's
            // queue.
            record.scope.clone_from(&older.record.scope);
        }
        self.put_owner(&mut builder, &record);
        Ok(self.commit(finish(builder)?, record.addresses, false))
    }

    /// The pod's name has addresses already, and no container uses them.
    fn take_seat(&self, vacant: Vacant) -> Result<Step<Allotted>, Halt> {
        let mut builder = self.commit_builder_without_pools();
        vacant.take(self.keys, self.asked, &mut builder);
        let Vacant { seat, record: OwnerRecord { addresses, scope, .. }, .. } = vacant;
        let mut record = self.asked.record(self.asked.kept(addresses)).in_seat(Some(seat));
        record.scope = scope;
        self.put_owner(&mut builder, &record);
        Ok(self.commit(finish(builder)?, record.addresses, false))
    }

    fn free_first(&self, older: &Older) -> Result<Step<Allotted>, Halt> {
        let Older { owner, record } = older;
        let freed = Freeable { owner, record, leases: Some(self.leases) };
        let planned = free::transaction(self.keys, self.snapshot, freed, None, self.fence, Mode::First)?;
        Ok(Step::Commit(Commit::new(planned.map_err(Halt::read)?, None, self.proof())))
    }

    fn commit(&self, planned: Planned, held: Vec<Held>, repeats: bool) -> Step<Allotted> {
        let done = Allotted::Held(Added { held, repeats });
        Step::Commit(Commit::new(planned, Some(done), self.proof()))
    }

    fn proof(&self) -> Bytes {
        self.keys.owner(&self.asked.ask.owner)
    }

    /// The keys of a record's reservations. Each must exist and name `owner`.
    fn reservations_of(&self, owner: &Owner, record: &OwnerRecord) -> Result<Vec<Bytes>, Halt> {
        let keys: Vec<Bytes> =
            record.reserved().map(|(network, address)| self.keys.ip(network, address)).collect();
        self.require_with(&keys, self.keys.owner(owner))?;
        for key in &keys {
            let found = self.snapshot.record::<Reservation>(key)?.map(|reservation| reservation.owner);
            if found.as_ref() != Some(owner) {
                let holder = found.map_or_else(|| "nobody".to_owned(), |holder| holder.to_string());
                let key = String::from_utf8_lossy(key);
                let text = format!("{key} is held by {holder}, but the record of {owner} claims it");
                return Err(Halt::Refuse(Refused::Contradiction(text)));
            }
        }
        Ok(keys)
    }

    /// The seat that an owner's record names must name the owner. The seat is not compared: one transaction writes
    /// both.
    fn must_sit(&self, owner: &Owner, record: &OwnerRecord) -> Result<(), Halt> {
        let Some(key) = sticky::seat_key(self.keys, record) else { return Ok(()) };
        self.require_with(std::slice::from_ref(&key), self.keys.owner(owner))?;
        let user = self.snapshot.record::<SeatRecord>(&key)?.map(|seat| seat.user);
        if user.as_ref() == Some(owner) {
            return Ok(());
        }
        let user = user.map_or_else(|| "nobody".to_owned(), |user| user.to_string());
        let key = String::from_utf8_lossy(&key);
        let text = format!("{key} is taken by {user}, but the record of {owner} claims it");
        Err(Halt::Refuse(Refused::Contradiction(text)))
    }

    /// The commit that reserves the picked addresses. At the head of a queue it also serves the runs behind, as many as
    /// fit.
    fn allot(&self, picks: &Picks) -> Result<Step<Allotted>, Halt> {
        let allotted = NewRecords::of(self.asked, &picks.taken);
        let allotted = allotted.map_err(|why| Halt::Refuse(Refused::Pool(why)))?;
        let served = if self.line.is_empty() { &[][..] } else { &batch::SIZES[..] };
        // If many sets are in different networks and all their pages fill up at once, the transaction is too large.
        // Then the cursors are left out; they only guide the next choice.
        let tries = served.iter().map(|&runs| (runs, Cursors::Moved));
        let alone = [(0, Cursors::Moved), (0, Cursors::Kept)];
        for (runs, cursors) in tries.chain(alone) {
            let planned = self.plan_allotment(picks, &allotted, (runs, cursors))?;
            if planned.txn.fits_with_own_key() || cursors == Cursors::Kept {
                return Ok(self.commit(planned, allotted.record.addresses, false));
            }
        }
        unreachable!("the last try is taken in any case")
    }

    fn plan_allotment(
        &self,
        picks: &Picks,
        allotted: &NewRecords,
        (runs, cursors): (usize, Cursors),
    ) -> Result<Planned, Halt> {
        let mut builder = self.commit_builder();
        allotted.reserve(picks.all(), self.keys, self.asked.ask, &mut builder);
        self.asked.cooling_keys(self.keys).for_each(|key| builder.absent(key));
        self.put_owner(&mut builder, &allotted.record);
        // This record is for people only. Like the cursors, it is left out if the transaction has no room for it.
        if let (Some((key, value)), Cursors::Moved) = (self.kept, cursors) {
            builder.put(key.clone(), value.clone());
            builder.effects.asked = Some((key.clone(), value.clone()));
        }
        let mut batch = Batch::new(self.keys, self.snapshot);
        batch.take(self.asked, picks)?;
        if let (Fence::Ticket(ticket), true) = (self.fence, runs > 0) {
            batch.serve(self.line, ticket, &self.asked.scope(), runs, &mut builder)?;
        }
        if let (Fence::Lease { .. }, Cursors::Moved) = (self.fence, cursors) {
            batch.clear_noted(self.stray);
        }
        batch.finish(cursors, &mut builder);
        finish(builder)
    }

    /// Every commit of an ADD relies on its fence, tombstone, meta and pools.
    fn commit_builder(&self) -> Builder<'_> {
        let mut builder = self.commit_builder_without_pools();
        self.asked.rely_on_pools(self.keys, &mut builder);
        builder
    }

    fn commit_builder_without_pools(&self) -> Builder<'_> {
        let mut builder = Builder::new("commit", self.snapshot);
        self.fence.guard(&mut builder);
        builder.same_value(self.keys.meta());
        builder.unchanged(self.keys.tombstone(&self.asked.ask.owner));
        builder
    }

    /// Writes the owner's record and its pod index.
    fn put_owner(&self, builder: &mut Builder<'_>, record: &OwnerRecord) {
        let own = self.keys.owner(&self.asked.ask.owner);
        builder.unchanged(own.clone());
        for key in free::index_keys(self.keys, &self.asked.ask.owner, record) {
            builder.unchanged(key.clone());
            builder.put(key, PodIndex::new(&self.asked.ask.owner).encode());
        }
        builder.put(own, record.encode());
    }

    /// As [`require`], but reads missing keys in one request with the record that names them. A key that was deleted
    /// between two reads would look like a contradiction. So would a key that was read before the record was written.
    fn require_with(&self, keys: &[Bytes], record: Bytes) -> Result<(), Halt> {
        let written = self.snapshot.mod_revision(&record);
        match keys.iter().all(|key| self.snapshot.knows_since(key, written)) {
            true => Ok(()),
            false => Err(Halt::read(keys.iter().cloned().chain([record]).collect())),
        }
    }
}

/// The owner that the pod index names, if it is on this node, is not this run's owner, and is older than this run.
fn older_owner(
    asked: &Resolved<'_>,
    keys: &Keys,
    snapshot: &Snapshot,
    clock: Option<&Clock<'_>>,
) -> Result<Option<Older>, Halt> {
    let ask = asked.ask;
    for key in asked.index_keys(keys) {
        let Some(index) = snapshot.record::<PodIndex>(&key)? else { continue };
        let mine = &ask.owner;
        let owner = index.owner(mine.cluster.as_ref(), &mine.ifname);
        if owner == *mine || owner.node != mine.node {
            continue;
        }
        let own = keys.owner(&owner);
        require(snapshot, vec![own.clone()])?;
        let Some(record) = snapshot.record::<OwnerRecord>(&own)? else { continue };
        if record.labels.pod.uid != ask.labels.pod.uid {
            continue;
        }
        let other = record.start.as_ref().map(|start| (start, snapshot.mod_revision(&own)));
        if !ask.stamp.start.is_after(other, clock) {
            return Err(Halt::Refuse(Refused::Outlived(owner)));
        }
        return Ok(Some(Older { owner, record }));
    }
    Ok(None)
}

fn finish(builder: Builder<'_>) -> Result<Planned, Halt> {
    builder.planned().map_err(Halt::read)
}

#[cfg(test)]
mod tests;
