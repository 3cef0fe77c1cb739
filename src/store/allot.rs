//! What an ADD does next, from what it has read. Pure, so that a test can play every case, and a simulation makes the
//! same decisions.

use std::borrow::Cow;

use super::ask::{Ask, RunStamp};
use super::batch::{self, Batch, Cursors};
use super::builder::Builder;
use super::change::{Change, Commit, Step};
use super::cooling::CoolingLeases;
use super::effects::Planned;
use super::fence::Fence;
use super::free::{self, Freeable, Mode};
use super::keys::{Bytes, Keys, LeaseId, Scope};
use super::line::Line;
use super::meta::{self, Emptiness};
use super::pick::{Picked, Picking, Picks};
use super::pools::{AskedPools, DecodedPools};
use super::refused::{Halt, require};
pub use super::refused::{OtherMachine, Refused};
use super::request::TicketRecord;
use super::snapshot::Snapshot;
use super::txn::Entry;
use crate::pool::record::{Caller, Held, Meta, Owner, OwnerRecord, PodIndex, Record, Reservation, Tombstone};

/// What an ADD comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Allotted {
    /// The owner holds what it asked for.
    Held(Added),
    /// No address of this set is free.
    Full {
        /// The set.
        set: usize,
    },
}

/// What an owner holds after an ADD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Added {
    /// The addresses, in result order.
    pub held: Vec<Held>,
    /// Whether the owner held them before this run.
    pub repeats: bool,
}

/// An ADD as a change of what is held.
pub struct Allotment<'a> {
    /// As it was asked: what pools say is added to it for each decision, because they may change.
    ask: Cow<'a, Ask>,
    keys: &'a Keys,
    pools: DecodedPools,
    /// Whether a tombstone of this owner was ever seen. Then nothing is taken over.
    was_deleted: bool,
    /// For what an older sandbox has to give up.
    leases: CoolingLeases,
    /// What its commit keeps of the ranges that are asked for.
    kept: Option<KeptRanges>,
}

/// The key and the value that say which ranges a configuration asks for.
type KeptRanges = (Bytes, Vec<u8>);

impl<'a> Allotment<'a> {
    /// The change that `ask` asks for.
    #[must_use]
    pub fn new(ask: &'a Ask, keys: &'a Keys) -> Self {
        let (pools, leases) = (DecodedPools::default(), CoolingLeases::default());
        Self { ask: Cow::Borrowed(ask), keys, pools, was_deleted: false, leases, kept: None }
    }

    /// Says with its commit which ranges its configuration asks for, unless they are kept already under their key.
    pub fn keep_ranges(&mut self, are_kept: impl Fn(&[u8]) -> bool) {
        let Some(asked) = self.ask.asked_ranges() else { return };
        let key = self.keys.asked(&asked);
        if !are_kept(&key) {
            self.kept = asked.encode_to_keep().map(|value| (key, value));
        }
    }

    /// Turns to the next pool for an address, because the present one is full; false if there is none.
    pub fn turn_to_next_pool(&mut self, element: usize, seen: &Snapshot) -> bool {
        let has_next = |ask: &Ask| ask.pools.as_ref().is_some_and(|pools| pools.has_next(element));
        if !has_next(&self.as_known(seen)) {
            return false;
        }
        if let Some(pools) = self.ask.to_mut().pools.as_mut() {
            pools.wanted.turn_to_next(element);
        }
        true
    }

    /// Under which name a node remembers what `auto` chooses its pools by; none if it does not.
    #[must_use]
    pub fn auto_scope(&self) -> Option<Scope> {
        self.ask.pools.as_ref()?.auto_scope()
    }

    /// Under which name a node remembers the texts of its pools; none while it is not known which pools they are.
    #[must_use]
    pub fn pools_scope(&self, seen: &Snapshot) -> Option<Scope> {
        self.ask.pools_scope(self.keys, seen, &self.pools)
    }

    /// What it asks for now, by what was read; none if a pool was not read yet.
    #[must_use]
    pub fn asked(&self, seen: &Snapshot) -> Option<Cow<'_, Ask>> {
        self.ask.resolved(self.keys, seen, &self.pools).ok()
    }

    /// The cursors that it moves, by what was read.
    #[must_use]
    pub fn cursors(&self, seen: &Snapshot) -> Vec<Bytes> {
        self.as_known(seen).cursor_keys(self.keys)
    }

    /// The same without what pools would add, if one was not read yet.
    fn as_known(&self, seen: &Snapshot) -> Cow<'_, Ask> {
        self.asked(seen).unwrap_or(Cow::Borrowed(&self.ask))
    }
}

impl Change for Allotment<'_> {
    type Done = Allotted;
    type Refused = Refused;

    fn owner(&self) -> &Owner {
        &self.ask.owner
    }

    fn scope(&self, seen: &Snapshot) -> Option<Scope> {
        Some(self.asked(seen)?.scope())
    }

    fn unread(&self, seen: &Snapshot) -> Vec<Bytes> {
        self.ask.resolved(self.keys, seen, &self.pools).err().unwrap_or_default()
    }

    fn reads(&self, seen: &Snapshot) -> Vec<Bytes> {
        self.as_known(seen).first_reads(self.keys)
    }

    /// What a repetition and a takeover write belongs to the owner alone.
    fn is_unhindered(&self, seen: &Snapshot) -> bool {
        let mut own = self.as_known(seen).index_keys(self.keys);
        own.push(self.keys.owner(&self.ask.owner));
        own.iter().any(|key| seen.entry(key).is_some())
    }

    fn own_keys(&self, seen: &Snapshot) -> Vec<Bytes> {
        self.as_known(seen).own_keys(self.keys)
    }

    fn cooling(&mut self, seen: &Snapshot) -> Option<(Vec<u32>, &mut CoolingLeases)> {
        let asked = self.asked(seen)?;
        let given_up = older_owner(&asked, self.keys, seen).ok()??.record;
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
        let ask = match self.ask.resolved(keys, seen, &self.pools) {
            Ok(ask) => ask,
            Err(pools) => return Ok(Step::read(pools)),
        };
        let (leases, kept) = (&self.leases, self.kept.as_ref());
        match (Deciding { ask: &ask, keys, snapshot: seen, fence, line, was_deleted, leases, kept }).decide()
        {
            Ok(step) => Ok(step),
            Err(Halt::Read(ops)) => Ok(Step::Read(ops)),
            Err(Halt::Refuse(why)) => Err(why),
        }
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

    /// The owner's record says it, because it has the start of the run that asked.
    fn served(&self, found: &Entry) -> Option<Allotted> {
        let record = OwnerRecord::decode(&found.value).ok()?;
        let is_own = record.start.as_ref() == Some(&self.ask.stamp.start);
        is_own.then_some(Allotted::Held(Added { held: record.addresses, repeats: false }))
    }
}

struct Deciding<'a> {
    ask: &'a Ask,
    keys: &'a Keys,
    snapshot: &'a Snapshot,
    fence: &'a Fence,
    /// Those behind, if this run is at the head of its queue.
    line: &'a Line,
    was_deleted: bool,
    leases: &'a CoolingLeases,
    kept: Option<&'a KeptRanges>,
}

/// An older owner of the same interface of the same pod.
struct Older {
    owner: Owner,
    record: OwnerRecord,
}

impl Deciding<'_> {
    fn decide(&self) -> Result<Step<Allotted>, Halt> {
        require(self.snapshot, self.ask.base_keys(self.keys))?;
        self.judge_meta()?;
        let was_deleted = self.judge_tombstone()? || self.was_deleted;
        let own = self.keys.owner(&self.ask.owner);
        let mine = self.snapshot.record::<OwnerRecord>(&own)?;
        let older = older_owner(self.ask, self.keys, self.snapshot)?;
        match (mine, older) {
            (Some(record), _) => self.repeat(record),
            (None, Some(older)) if !was_deleted && self.ask.gives(&older.record.addresses) => {
                self.take_over(&older)
            }
            (None, Some(older)) if !was_deleted => self.free_first(&older),
            (None, _) => self.take_new(),
        }
    }

    fn take_new(&self) -> Result<Step<Allotted>, Halt> {
        if let Some(set) = self.ask.pools.as_ref().and_then(AskedPools::full_element) {
            return Ok(Step::Done(Allotted::Full { set }));
        }
        match self.ask.refused_by_pools() {
            Some(why) => Err(Halt::Refuse(Refused::Pool(why.clone()))),
            None => match self.picking().pick()? {
                Picked::Full { set } => Ok(Step::Done(Allotted::Full { set })),
                Picked::Addresses(picks) => self.allot(&picks),
            },
        }
    }

    fn picking(&self) -> Picking<'_> {
        Picking { ask: self.ask, keys: self.keys, snapshot: self.snapshot }
    }

    fn judge_meta(&self) -> Result<(), Halt> {
        let key = self.keys.meta();
        if let Some(meta) = self.snapshot.record::<Meta>(&key)? {
            return meta::judge(&meta).map_err(|why| Halt::Refuse(Refused::OutOfService(why)));
        }
        match meta::emptiness(self.keys, self.snapshot) {
            Emptiness::Sound => Ok(()),
            Emptiness::Unknown(reads) => Err(Halt::Read(reads)),
            Emptiness::Lost => {
                let text = format!("{} is missing while allocations exist", String::from_utf8_lossy(&key));
                Err(Halt::Refuse(Refused::Contradiction(text)))
            }
        }
    }

    /// Whether there is an older tombstone. A younger one ends this run.
    fn judge_tombstone(&self) -> Result<bool, Halt> {
        let dead = self.keys.tombstone(&self.ask.owner);
        match self.snapshot.record::<Tombstone>(&dead)? {
            None => Ok(false),
            Some(tombstone) if self.ask.stamp.start.is_after(Some(&tombstone.start)) => Ok(true),
            Some(_) => Err(Halt::Refuse(Refused::Deleted)),
        }
    }

    /// The owner holds addresses already. They are the answer, if they fit.
    fn repeat(&self, record: OwnerRecord) -> Result<Step<Allotted>, Halt> {
        let Ask { owner, labels, stamp: RunStamp { machine, .. }, .. } = self.ask;
        let caller = Caller { machine, pod_uid: labels.pod.uid.as_ref() };
        if !caller.means(&record) {
            let (owner, theirs, ours) = (owner.clone(), record.machine, machine.clone());
            let other = OtherMachine { owner, theirs, ours };
            return Err(Halt::Refuse(Refused::OtherMachine(Box::new(other))));
        }
        if !self.ask.fits(&record.addresses) {
            return Err(Halt::Refuse(Refused::Unfit(record.addresses)));
        }
        let mut builder = self.commit_builder();
        for key in self.reservations_of(&self.ask.owner, &record)? {
            builder.unchanged(key);
        }
        // Another run may have served this one without its knowledge.
        let repeats = record.start.as_ref() != Some(&self.ask.stamp.start);
        let start = match record.start {
            Some(other) if !self.ask.stamp.start.is_after(Some(&other)) => other,
            _ => self.ask.stamp.start.clone(),
        };
        // Scope and labels stay as they are, because reservations and pod index were written with them.
        let addresses = self.ask.kept(record.addresses);
        let record = OwnerRecord::new(addresses, Some(start), record.scope, record.labels);
        let record = record.on_machine(machine);
        self.put_owner(&mut builder, &record);
        Ok(self.commit(finish(builder)?, record.addresses, repeats))
    }

    /// A retried sandbox of the same pod inherits all addresses of the older one.
    fn take_over(&self, older: &Older) -> Result<Step<Allotted>, Halt> {
        let mut builder = self.commit_builder();
        for key in self.reservations_of(&older.owner, &older.record)? {
            builder.unchanged(key.clone());
            builder.put(key, self.ask.reservation());
        }
        let own = self.keys.owner(&older.owner);
        builder.unchanged(own.clone());
        builder.delete(own);
        let mut record = self.ask.record(self.ask.kept(older.record.addresses.clone()));
        if self.ask.refused_by_pools().is_some() {
            // Its pools have no ranges now, by which it would know its queue.
            record.scope.clone_from(&older.record.scope);
        }
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
        self.keys.owner(&self.ask.owner)
    }

    /// The reservations of a record. Each must exist and name `owner`.
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

    /// The commit of newly taken addresses. At the head of a queue it serves those behind, as many as fit.
    fn allot(&self, picks: &Picks) -> Result<Step<Allotted>, Halt> {
        let held = self.ask.held(picks.taken.iter());
        let record = self.ask.record(held);
        let served = if self.line.is_empty() { &[][..] } else { &batch::SIZES[..] };
        // If many sets are in different networks and all their pages fill up at once, the transaction is too large.
        // Then the cursors are left out; they only guide the next choice.
        let tries = served.iter().map(|&runs| (runs, Cursors::Moved));
        let alone = [(0, Cursors::Moved), (0, Cursors::Kept)];
        for (runs, cursors) in tries.chain(alone) {
            let planned = self.plan_allotment(picks, &record, (runs, cursors))?;
            if planned.txn.fits_with_own_key() || cursors == Cursors::Kept {
                return Ok(self.commit(planned, record.addresses, false));
            }
        }
        unreachable!("the last try is taken in any case")
    }

    fn plan_allotment(
        &self,
        picks: &Picks,
        record: &OwnerRecord,
        (runs, cursors): (usize, Cursors),
    ) -> Result<Planned, Halt> {
        let mut builder = self.commit_builder();
        for (network, address) in picks.all() {
            let key = self.keys.ip(network, *address);
            builder.absent(key.clone());
            builder.put(key, self.ask.reservation());
        }
        self.ask.cooling_keys(self.keys).for_each(|key| builder.absent(key));
        self.put_owner(&mut builder, record);
        // Like the cursors, it helps people and is left out where there is no room.
        if let (Some((key, value)), Cursors::Moved) = (self.kept, cursors) {
            builder.put(key.clone(), value.clone());
            builder.effects.asked = Some((key.clone(), value.clone()));
        }
        let mut batch = Batch::new(self.keys, self.snapshot);
        batch.take(self.ask, picks)?;
        if let (Fence::Ticket(ticket), true) = (self.fence, runs > 0) {
            batch.serve(self.line, ticket, &self.ask.scope(), runs, &mut builder)?;
        }
        batch.finish(cursors, &mut builder);
        finish(builder)
    }

    /// What every commit of an ADD relies on: its fence, tombstone, meta.
    fn commit_builder(&self) -> Builder<'_> {
        let mut builder = Builder::new("commit", self.snapshot);
        self.fence.guard(&mut builder);
        meta::rely_on(self.keys, self.snapshot, &self.ask.first_meta(), &mut builder);
        builder.unchanged(self.keys.tombstone(&self.ask.owner));
        self.ask.rely_on_pools(self.keys, &mut builder);
        builder
    }

    /// Writes the owner's record and its pod index.
    fn put_owner(&self, builder: &mut Builder<'_>, record: &OwnerRecord) {
        let own = self.keys.owner(&self.ask.owner);
        builder.unchanged(own.clone());
        for key in free::index_keys(self.keys, &self.ask.owner, record) {
            builder.unchanged(key.clone());
            builder.put(key, PodIndex::new(self.ask.owner.clone()).encode());
        }
        builder.put(own, record.encode());
    }

    /// As [`require`], but reads missing keys together with the record that names them: something that was freed
    /// between two reads would look like a contradiction. So would what was read before the record was written.
    fn require_with(&self, keys: &[Bytes], record: Bytes) -> Result<(), Halt> {
        let written = self.snapshot.mod_revision(&record);
        match keys.iter().all(|key| self.snapshot.knows_since(key, written)) {
            true => Ok(()),
            false => Err(Halt::read(keys.iter().cloned().chain([record]).collect())),
        }
    }
}

/// The owner on this node that the pod index names, if it is another and older than this run.
fn older_owner(ask: &Ask, keys: &Keys, snapshot: &Snapshot) -> Result<Option<Older>, Halt> {
    for key in ask.index_keys(keys) {
        let Some(index) = snapshot.record::<PodIndex>(&key)? else { continue };
        let owner = index.owner;
        let mine = &ask.owner;
        let is_here =
            (&owner.cluster, &owner.node, &owner.ifname) == (&mine.cluster, &mine.node, &mine.ifname);
        if owner == *mine || !is_here {
            continue;
        }
        let own = keys.owner(&owner);
        require(snapshot, vec![own.clone()])?;
        let Some(record) = snapshot.record::<OwnerRecord>(&own)? else { continue };
        if record.labels.pod.uid != ask.labels.pod.uid {
            continue;
        }
        if !ask.stamp.start.is_after(record.start.as_ref()) {
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
