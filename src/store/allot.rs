//! What an ADD does next, from what it has read. Pure, so that a test can play every case, and a simulation makes the
//! same decisions.

use std::collections::BTreeSet;
use std::fmt;

use super::ask::{Ask, RunStamp, cursor, need_key};
use super::builder::{self, BitChanges, Builder};
use super::change::{Change, Commit, Step};
use super::fence::Fence;
use super::free::{self, Mode};
use super::keys::{Bytes, Keys, Scope};
use super::meta::{self, Emptiness, OutOfService};
use super::snapshot::{BadRecord, Snapshot};
use super::txn::{Entry, Op, Txn};
use crate::pool::choose::{Choice, Refusal, choose};
use crate::pool::record::{
    Caller, Held, Meta, Owner, OwnerRecord, PodIndex, Record, Reservation, Tombstone, Undecodable,
};
use crate::pool::{Addr, Bits, Need, NetworkName, Page, View};

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

/// Why an ADD ends without an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// A DEL of this owner began after this ADD.
    Deleted,
    /// A younger owner of the same interface of the same pod exists.
    Outlived(Owner),
    /// Another machine holds addresses under the names of this owner.
    OtherMachine(Box<OtherMachine>),
    /// The owner holds addresses that the configuration does not describe.
    Unfit(Vec<Held>),
    /// A requested address cannot be had.
    Address(Addr, NetworkName, Refusal),
    /// The store hands out nothing.
    OutOfService(OutOfService),
    /// A record does not decode.
    Bad(BadRecord),
    /// Records contradict each other.
    Contradiction(String),
}

/// A machine that holds addresses under an owner's names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherMachine {
    /// The owner.
    pub owner: Owner,
    /// The machine that holds them.
    pub theirs: String,
    /// The machine of this run.
    pub ours: String,
}

impl fmt::Display for OtherMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { owner, theirs, ours } = self;
        write!(f, "machine {theirs} holds addresses as {owner}, and this is machine {ours}")
    }
}

/// Why a decision cannot go on: it must read something, or it refuses.
enum Halt {
    Read(Vec<Op>),
    Refuse(Refused),
}

impl Halt {
    fn read(keys: Vec<Bytes>) -> Self {
        Halt::Read(keys.into_iter().map(Op::Get).collect())
    }
}

impl From<BadRecord> for Halt {
    fn from(bad: BadRecord) -> Self {
        Halt::Refuse(Refused::Bad(bad))
    }
}

/// An ADD as a change of what is held.
pub struct Allotment<'a> {
    ask: &'a Ask,
    keys: &'a Keys,
    /// Whether a tombstone of this owner was ever seen. Then nothing is taken over.
    was_deleted: bool,
}

impl<'a> Allotment<'a> {
    /// The change that `ask` asks for.
    #[must_use]
    pub fn new(ask: &'a Ask, keys: &'a Keys) -> Self {
        Self { ask, keys, was_deleted: false }
    }
}

impl Change for Allotment<'_> {
    type Done = Allotted;
    type Refused = Refused;

    fn owner(&self) -> &Owner {
        &self.ask.owner
    }

    fn scope(&self, _seen: &Snapshot) -> Option<Scope> {
        Some(self.ask.scope())
    }

    fn reads(&self, _seen: &Snapshot) -> Vec<Bytes> {
        self.ask.first_reads(self.keys)
    }

    fn own_keys(&self) -> Vec<Bytes> {
        let Self { ask, keys, .. } = *self;
        let mut own = vec![keys.owner(&ask.owner), keys.tombstone(&ask.owner)];
        own.extend(ask.index_keys(keys));
        own
    }

    fn learn(&mut self, seen: &Snapshot) {
        self.was_deleted |= seen.entry(&self.keys.tombstone(&self.ask.owner)).is_some();
    }

    fn plan(&self, seen: &Snapshot, fence: &Fence) -> Result<Step<Allotted>, Refused> {
        let Self { ask, keys, was_deleted } = *self;
        match (Deciding { ask, keys, snapshot: seen, fence, was_deleted }).decide() {
            Ok(step) => Ok(step),
            Err(Halt::Read(ops)) => Ok(Step::Read(ops)),
            Err(Halt::Refuse(why)) => Err(why),
        }
    }

    /// The owner's record says it, because a run writes its start there.
    fn applied(&self, commit: Commit<Allotted>, found: Option<&Entry>) -> Option<Allotted> {
        let record = OwnerRecord::decode(&found?.value).ok()?;
        let repeats = matches!(commit.done, Some(Allotted::Held(Added { repeats: true, .. })));
        let is_own = record.start.as_ref() == Some(&self.ask.stamp.start);
        is_own.then_some(Allotted::Held(Added { held: record.addresses, repeats }))
    }
}

struct Deciding<'a> {
    ask: &'a Ask,
    keys: &'a Keys,
    snapshot: &'a Snapshot,
    fence: &'a Fence,
    was_deleted: bool,
}

/// Whether a commit moves the cursors of `next` and `spread`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cursors {
    Moved,
    Kept,
}

/// An older owner of the same interface of the same pod.
struct Older {
    owner: Owner,
    record: OwnerRecord,
}

impl Deciding<'_> {
    fn decide(&self) -> Result<Step<Allotted>, Halt> {
        self.require(self.ask.base_keys(self.keys))?;
        self.judge_meta()?;
        let was_deleted = self.judge_tombstone()? || self.was_deleted;
        let own = self.keys.owner(&self.ask.owner);
        let mine = self.snapshot.record::<OwnerRecord>(&own)?;
        let older = self.older_owner()?;
        match (mine, older) {
            (Some(record), _) => self.repeat(record),
            (None, Some(older)) if !was_deleted && self.ask.gives(&older.record.addresses) => {
                self.take_over(&older)
            }
            (None, Some(older)) if !was_deleted => self.free_first(&older),
            (None, _) => self.choose(),
        }
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

    /// The owner on this node that the pod index names, if it is another and older than this run.
    fn older_owner(&self) -> Result<Option<Older>, Halt> {
        for key in self.ask.index_keys(self.keys) {
            let Some(index) = self.snapshot.record::<PodIndex>(&key)? else { continue };
            let owner = index.owner;
            let mine = &self.ask.owner;
            let is_here =
                (&owner.cluster, &owner.node, &owner.ifname) == (&mine.cluster, &mine.node, &mine.ifname);
            if owner == *mine || !is_here {
                continue;
            }
            let own = self.keys.owner(&owner);
            self.require(vec![own.clone()])?;
            let Some(record) = self.snapshot.record::<OwnerRecord>(&own)? else { continue };
            if record.labels.pod.uid != self.ask.labels.pod.uid {
                continue;
            }
            if !self.ask.stamp.start.is_after(record.start.as_ref()) {
                return Err(Halt::Refuse(Refused::Outlived(owner)));
            }
            return Ok(Some(Older { owner, record }));
        }
        Ok(None)
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
        let start = match record.start {
            Some(other) if !self.ask.stamp.start.is_after(Some(&other)) => other,
            _ => self.ask.stamp.start.clone(),
        };
        // Scope and labels stay as they are, because reservations and pod index were written with them.
        let record = OwnerRecord::new(record.addresses, Some(start), record.scope, record.labels);
        let record = record.on_machine(machine);
        self.put_owner(&mut builder, &record);
        Ok(self.commit(finish(builder)?, record.addresses, true))
    }

    /// A retried sandbox of the same pod inherits all addresses of the older one.
    fn take_over(&self, older: &Older) -> Result<Step<Allotted>, Halt> {
        let mut builder = self.commit_builder();
        for key in self.reservations_of(&older.owner, &older.record)? {
            builder.unchanged(key.clone());
            builder.put(key, self.reservation());
        }
        let own = self.keys.owner(&older.owner);
        builder.unchanged(own.clone());
        builder.delete(own);
        let record = self.new_record(older.record.addresses.clone());
        self.put_owner(&mut builder, &record);
        Ok(self.commit(finish(builder)?, record.addresses, false))
    }

    fn free_first(&self, older: &Older) -> Result<Step<Allotted>, Halt> {
        let Older { owner, record } = older;
        let planned =
            free::transaction(self.keys, self.snapshot, (owner, record), None, self.fence, Mode::First)?;
        Ok(Step::Commit(Commit { txn: planned.map_err(Halt::read)?, done: None, proof: self.proof() }))
    }

    fn commit(&self, txn: Txn, held: Vec<Held>, repeats: bool) -> Step<Allotted> {
        Step::Commit(Commit { txn, done: Some(Allotted::Held(Added { held, repeats })), proof: self.proof() })
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

    /// Chooses free addresses from the pages that are known.
    fn choose(&self) -> Result<Step<Allotted>, Halt> {
        let wishes = self.ask.wishes(self.keys, self.snapshot);
        let mut view = View::default();
        let mut needs = BTreeSet::new();
        let pinned: Vec<(NetworkName, Addr)> = self
            .ask
            .wanted
            .statics
            .iter()
            .filter_map(|held| Some((held.network.clone()?, Addr::from(held.address))))
            .collect();
        self.pin(&pinned, &mut view, &mut needs)?;
        loop {
            match choose(&wishes, &view) {
                Choice::Need(more) => self.supply(&more, &pinned, &mut view, &mut needs)?,
                Choice::Full { set } => {
                    self.refuse_bad_pages(&needs)?;
                    return Ok(Step::Done(Allotted::Full { set }));
                }
                Choice::Refused { set, address, why } => {
                    let network = self.ask.wanted.sets[set]
                        .covers(address)
                        .map_or_else(NetworkName::default, |range| range.network().clone());
                    return Err(Halt::Refuse(Refused::Address(address, network, why)));
                }
                Choice::Chosen(picks) => {
                    let taken: Vec<_> = picks.into_iter().map(|pick| (pick.network, pick.address)).collect();
                    return self.allot(&taken, &pinned);
                }
            }
        }
    }

    /// A page that does not decode counts as full. But then the answer is not that the range is full.
    fn refuse_bad_pages(&self, needs: &BTreeSet<Need>) -> Result<(), Halt> {
        for need in needs {
            if let Need::Page(network, page) = need {
                self.refuse_bad_page(network, *page)?;
            }
        }
        Ok(())
    }

    fn refuse_bad_page(&self, network: &NetworkName, page: Page) -> Result<(), Halt> {
        let key = self.keys.page(network, page);
        if builder::bits(self.snapshot, &key).is_some() {
            return Ok(());
        }
        let why = Undecodable::Malformed { kind: "page", reason: "not a bitmap of 512 bytes".to_owned() };
        Err(BadRecord { key: String::from_utf8_lossy(&key).into_owned(), why }.into())
    }

    /// Reserved static addresses come first, so that no set picks one of them.
    fn pin(
        &self,
        pinned: &[(NetworkName, Addr)],
        view: &mut View,
        needs: &mut BTreeSet<Need>,
    ) -> Result<(), Halt> {
        let mut wanted = Vec::new();
        for (network, address) in pinned {
            wanted.push(Need::Reservation(network.clone(), *address));
            wanted.push(Need::Page(network.clone(), address.page()));
        }
        self.supply(&wanted, pinned, view, needs)?;
        let mut seen = BTreeSet::new();
        for (network, address) in pinned {
            let held = self.snapshot.entry(&self.keys.ip(network, *address)).is_some();
            if held || !seen.insert((network, address)) {
                return Err(Halt::Refuse(Refused::Address(*address, network.clone(), Refusal::Taken)));
            }
        }
        Ok(())
    }

    /// Puts what is known into the view, or asks for what is not.
    fn supply(
        &self,
        wanted: &[Need],
        pinned: &[(NetworkName, Addr)],
        view: &mut View,
        needs: &mut BTreeSet<Need>,
    ) -> Result<(), Halt> {
        self.require(wanted.iter().map(|need| need_key(self.keys, need)).collect())?;
        for need in wanted {
            needs.insert(need.clone());
            let key = need_key(self.keys, need);
            match need {
                Need::Page(network, page) => view.set_page(network, *page, self.page(network, *page, pinned)),
                Need::Summary(network, summary) => {
                    // A summary that does not decode says nothing, so the pages themselves are read.
                    let bits = builder::bits(self.snapshot, &key).unwrap_or_else(Bits::empty);
                    view.set_summary(network, *summary, bits);
                }
                Need::Reservation(network, address) => {
                    // A set must not pick an address that is requested besides the sets.
                    let is_pinned = pinned.iter().any(|(n, a)| n == network && a == address);
                    view.set_held(network, *address, is_pinned || self.snapshot.entry(&key).is_some());
                }
            }
        }
        Ok(())
    }

    /// A page on which the bits of all known reservations are set. If the page does not decode, all its bits are.
    fn page(&self, network: &NetworkName, page: Page, pinned: &[(NetworkName, Addr)]) -> Bits {
        let key = self.keys.page(network, page);
        let Some(mut bits) = builder::bits(self.snapshot, &key) else { return Bits::full() };
        for address in self.reserved_in(network, page) {
            bits.set(address.bit());
        }
        for (_, address) in pinned.iter().filter(|(n, a)| n == network && a.page() == page) {
            bits.set(address.bit());
        }
        bits
    }

    /// The reservations of a page that were read at the page's last write or later. One that was read earlier may have
    /// been freed by that write.
    fn reserved_in(&self, network: &NetworkName, page: Page) -> Vec<Addr> {
        let (first, last) = (self.keys.ip(network, page.first()), self.keys.ip(network, page.last()));
        let written = self.snapshot.mod_revision(&self.keys.page(network, page));
        self.snapshot
            .existing(&first, &last, written)
            .filter_map(|entry| match self.keys.parse(&entry.key) {
                Ok(super::keys::Key::Ip(_, address)) => Some(address),
                _ => None,
            })
            .collect()
    }

    /// The commit of newly taken addresses.
    fn allot(
        &self,
        taken: &[(NetworkName, Addr)],
        pinned: &[(NetworkName, Addr)],
    ) -> Result<Step<Allotted>, Halt> {
        let (txn, held) = self.plan_allotment(taken, pinned, Cursors::Moved)?;
        if txn.fits() {
            return Ok(self.commit(txn, held, false));
        }
        // If many sets are in different networks and all their pages fill up at once, the transaction is too large.
        // Then the cursors are left out; they only guide the next choice.
        let (txn, held) = self.plan_allotment(taken, pinned, Cursors::Kept)?;
        Ok(self.commit(txn, held, false))
    }

    fn plan_allotment(
        &self,
        taken: &[(NetworkName, Addr)],
        pinned: &[(NetworkName, Addr)],
        cursors: Cursors,
    ) -> Result<(Txn, Vec<Held>), Halt> {
        let mut builder = self.commit_builder();
        let mut changes = BitChanges::default();
        for (network, address) in taken.iter().chain(pinned) {
            self.refuse_bad_page(network, address.page())?;
            let key = self.keys.ip(network, *address);
            builder.absent(key.clone());
            builder.put(key, self.reservation());
            for reserved in self.reserved_in(network, address.page()) {
                changes.set(network, reserved);
            }
            changes.set(network, *address);
        }
        changes.plan(self.keys, &mut builder);
        if cursors == Cursors::Moved {
            self.put_cursors(taken, &mut builder);
        }
        let mut held: Vec<Held> = taken
            .iter()
            .map(|(network, address)| Held { address: address.ip(), network: Some(network.clone()) })
            .collect();
        held.extend(self.ask.wanted.statics.iter().cloned());
        let record = self.new_record(held);
        self.put_owner(&mut builder, &record);
        Ok((finish(builder)?, record.addresses))
    }

    fn put_cursors(&self, taken: &[(NetworkName, Addr)], builder: &mut Builder<'_>) {
        if !self.ask.wanted.order.uses_cursor() {
            return;
        }
        let mut seen = BTreeSet::new();
        for (set, (_, address)) in self.ask.wanted.sets.iter().zip(taken) {
            let key = self.keys.cursor(set, self.ask.start_page(set));
            let undecodable = self.snapshot.entry(&key).is_some() && cursor(&key, self.snapshot).is_none();
            // Two sets with the same ranges have one cursor. The address of the first one is written.
            if seen.insert(key.clone()) && !undecodable {
                builder.unchanged(key.clone());
                builder.put(key, address.to_string().into_bytes());
            }
        }
    }

    /// What every commit of an ADD relies on: its fence, tombstone, meta.
    fn commit_builder(&self) -> Builder<'_> {
        let mut builder = Builder::new("commit", self.snapshot);
        self.fence.guard(&mut builder);
        meta::rely_on(self.keys, self.snapshot, &self.ask.first_meta(), &mut builder);
        builder.unchanged(self.keys.tombstone(&self.ask.owner));
        builder
    }

    fn new_record(&self, held: Vec<Held>) -> OwnerRecord {
        let scope = self.ask.scope().as_str().to_owned();
        OwnerRecord::new(held, Some(self.ask.stamp.start.clone()), scope, self.ask.labels.clone())
            .on_machine(&self.ask.stamp.machine)
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

    fn reservation(&self) -> Vec<u8> {
        let Ask { owner, labels, stamp: RunStamp { created_at, .. }, .. } = self.ask;
        Reservation::new(owner.clone(), labels.clone(), created_at.clone()).encode()
    }

    /// As [`Self::require`], but reads missing keys together with the record that names them: something that was freed
    /// between two reads would look like a contradiction.
    fn require_with(&self, keys: &[Bytes], record: Bytes) -> Result<(), Halt> {
        match keys.iter().all(|key| self.snapshot.knows(key)) {
            true => Ok(()),
            false => Err(Halt::read(keys.iter().cloned().chain([record]).collect())),
        }
    }

    fn require(&self, keys: Vec<Bytes>) -> Result<(), Halt> {
        let missing: Vec<Bytes> = keys.into_iter().filter(|key| !self.snapshot.knows(key)).collect();
        if missing.is_empty() { Ok(()) } else { Err(Halt::read(missing)) }
    }
}

fn finish(builder: Builder<'_>) -> Result<Txn, Halt> {
    builder.finish().map_err(Halt::read)
}

#[cfg(test)]
mod tests;
