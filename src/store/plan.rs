//! Transactions that change what is held, built from what was read. Pure.
//!
//! A plan compares every key that it relies on with what was read, and reads all of them again
//! in its Else branch, so that a lost race costs one round trip and no more. A plan that relies
//! on a key that was not read yet asks for it instead.

use std::collections::{BTreeMap, BTreeSet};

use super::keys::{Bytes, Keys, LeaseId};
use super::snapshot::{BadRecord, Snapshot};
use super::txn::{Compare, Op, Txn};
use crate::pool::record::{Meta, Owner, OwnerRecord, PodIndex, Record, Reservation, RunStart, Tombstone};
use crate::pool::{Addr, Bits, NetworkName, Page};

/// A run's ticket in its queue, as the key was read after it was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket {
    /// The key.
    pub key: Bytes,
    /// What a commit compares: a ticket that was removed and made anew does not serve.
    pub create_revision: i64,
    /// The lease that the ticket hangs on.
    pub lease: LeaseId,
    /// The tail of the queue, and what it says as long as nobody has come after this ticket.
    pub tail: (Bytes, Vec<u8>),
}

impl Ticket {
    /// What removes the ticket, and with it the queue if it was the last one in it.
    #[must_use]
    pub fn removal(&self) -> [Op; 2] {
        let (tail, last) = self.tail.clone();
        [Op::Delete(self.key.clone()), Op::DeleteIf(tail, last)]
    }
}

/// What keeps a commit of an ADD from being applied late: after its run was stopped for long, has been evicted, or
/// has settled that it was not applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fence {
    /// A ticket in the queue: the commit compares that it stands, and removes it.
    Ticket(Ticket),
    /// A lease alone, where nobody queues: the commit writes `key` on it, and etcd refuses all of a transaction that
    /// writes on a lease which has ended.
    Lease {
        /// The node's key for this.
        key: Bytes,
        /// The lease. It was granted before the run's deadline.
        lease: LeaseId,
    },
}

/// A transaction, or the keys that must be read before it can be built.
pub type Planned = Result<Txn, Vec<Bytes>>;

/// Collects compares and operations; see the module's text.
pub struct Builder<'a> {
    snapshot: &'a Snapshot,
    txn: Txn,
    missing: Vec<Bytes>,
}

impl<'a> Builder<'a> {
    /// Starts a transaction on what was read, for a step of the protocol.
    #[must_use]
    pub fn new(step: &'static str, snapshot: &'a Snapshot) -> Self {
        Self { snapshot, txn: Txn { step, ..Txn::default() }, missing: Vec::new() }
    }

    /// The run must still have its ticket, which the transaction removes.
    pub fn leave(&mut self, ticket: &Ticket) {
        self.compare(Compare::Create(ticket.key.clone(), ticket.create_revision), ticket.key.clone());
        self.txn.then.extend(ticket.removal());
    }

    /// The transaction takes effect only as long as the fence stands.
    pub fn behind(&mut self, fence: &Fence) {
        match fence {
            Fence::Ticket(ticket) => self.leave(ticket),
            Fence::Lease { key, lease } => self.put_on(key.clone(), Vec::new(), *lease),
        }
    }

    /// The key must be as it was read.
    pub fn unchanged(&mut self, key: Bytes) {
        if !self.snapshot.knows(&key) {
            self.missing.push(key);
            return;
        }
        let revision = self.snapshot.mod_revision(&key);
        self.compare(Compare::Mod(key.clone(), revision), key);
    }

    /// The key must not exist, read or not.
    pub fn absent(&mut self, key: Bytes) {
        self.compare(Compare::Create(key.clone(), 0), key);
    }

    /// No key may begin with `prefix`.
    pub fn empty(&mut self, prefix: Bytes) {
        self.txn.compares.push(Compare::Empty(prefix));
    }

    /// Writes a key.
    pub fn put(&mut self, key: Bytes, value: Vec<u8>) {
        self.txn.then.push(Op::Put(key, value, None));
    }

    /// Writes a key that lives as long as a lease.
    pub fn put_on(&mut self, key: Bytes, value: Vec<u8>, lease: LeaseId) {
        self.txn.then.push(Op::Put(key, value, Some(lease)));
    }

    /// Deletes a key.
    pub fn delete(&mut self, key: Bytes) {
        self.txn.then.push(Op::Delete(key));
    }

    /// The transaction, or what must be read first.
    ///
    /// # Errors
    /// The keys that were relied on and not read.
    pub fn finish(self) -> Planned {
        if self.missing.is_empty() { Ok(self.txn) } else { Err(self.missing) }
    }

    /// Said twice it takes no more of what etcd takes in one transaction.
    fn compare(&mut self, compare: Compare, key: Bytes) {
        if self.txn.compares.contains(&compare) {
            return;
        }
        self.txn.compares.push(compare);
        self.txn.otherwise.push(Op::Get(key));
    }
}

/// What a transaction does to the bits of pages, and through them to summaries.
#[derive(Debug, Default)]
pub struct BitChanges {
    changes: BTreeMap<(NetworkName, Page), PageChange>,
}

#[derive(Debug, Default)]
struct PageChange {
    set: BTreeSet<usize>,
    clear: BTreeSet<usize>,
}

impl BitChanges {
    /// The address's bit is to be set.
    pub fn set(&mut self, network: &NetworkName, address: Addr) {
        self.page(network, address).set.insert(address.bit());
    }

    /// The address's bit is to be cleared.
    pub fn clear(&mut self, network: &NetworkName, address: Addr) {
        self.page(network, address).clear.insert(address.bit());
    }

    fn page(&mut self, network: &NetworkName, address: Addr) -> &mut PageChange {
        self.changes.entry((network.clone(), address.page())).or_default()
    }

    /// Adds the changes to a transaction. A page or summary that does not decode is left alone:
    /// it is occupied as a whole, and nothing of it was ever handed out by this program.
    pub fn plan(&self, keys: &Keys, builder: &mut Builder<'_>) {
        let mut summaries: BTreeMap<Bytes, Vec<(usize, bool)>> = BTreeMap::new();
        for ((network, page), change) in &self.changes {
            let key = keys.page(network, *page);
            builder.unchanged(key.clone());
            let Some(before) = bits(builder.snapshot, &key) else { continue };
            let after = change.apply(&before);
            if before.is_full() != after.is_full() {
                let summary = keys.summary(network, page.summary());
                summaries.entry(summary).or_default().push((page.bit(), after.is_full()));
            }
            if before != after {
                builder.put(key, after.to_bytes());
            }
        }
        for (key, full) in summaries {
            plan_summary(key, &full, builder);
        }
    }
}

impl PageChange {
    fn apply(&self, before: &Bits) -> Bits {
        let mut after = before.clone();
        self.clear.iter().for_each(|bit| after.clear(*bit));
        self.set.iter().for_each(|bit| after.set(*bit));
        after
    }
}

fn plan_summary(key: Bytes, full: &[(usize, bool)], builder: &mut Builder<'_>) {
    builder.unchanged(key.clone());
    let Some(mut summary) = bits(builder.snapshot, &key) else { return };
    for &(page, is_full) in full {
        if is_full { summary.set(page) } else { summary.clear(page) }
    }
    builder.put(key, summary.to_bytes());
}

/// The bits under a key that was read: none set if it does not exist; none if it does not decode.
#[must_use]
pub fn bits(snapshot: &Snapshot, key: &[u8]) -> Option<Bits> {
    match snapshot.entry(key) {
        None => Some(Bits::empty()),
        Some(entry) => Bits::from_bytes(&entry.value),
    }
}

/// How much of a free is done in its transaction.
#[derive(Debug, Clone, Copy)]
pub enum Mode<'a> {
    /// Everything, from a ticket in the owner's queue.
    From(&'a Ticket),
    /// Everything, as part of an ADD that goes on after it.
    Behind(&'a Fence),
    /// Everything, where nobody queues: the record's revision is all that a free must compare.
    Whole,
    /// Without ticket and pages: bits are left to be repaired.
    Quick,
    /// Only deletes, which etcd takes even when it is out of space.
    DeleteOnly,
}

impl Mode<'_> {
    fn step(self) -> &'static str {
        match self {
            Mode::From(_) | Mode::Whole => "free",
            Mode::Behind(_) => "free-first",
            Mode::Quick => "free-quick",
            Mode::DeleteOnly => "free-delete-only",
        }
    }
}

/// Frees all that an owner holds.
///
/// Compares the mod revisions of the owner record and of each reservation, and leaves a
/// reservation that names another owner. Whether the record may be freed at all is for the
/// caller to judge. `tombstone` is put unless a younger one stands there.
///
/// # Errors
/// [`BadRecord`] if the owner's names cannot stand in a key or its tombstone does not decode.
pub fn free(
    keys: &Keys,
    snapshot: &Snapshot,
    owner: &Owner,
    record: &OwnerRecord,
    tombstone: Option<(&RunStart, LeaseId)>,
    mode: Mode<'_>,
) -> Result<Planned, BadRecord> {
    let mut builder = Builder::new(mode.step(), snapshot);
    match mode {
        Mode::From(ticket) => builder.leave(ticket),
        Mode::Behind(fence) => builder.behind(fence),
        Mode::Whole | Mode::Quick | Mode::DeleteOnly => {}
    }
    let own = keys.owner(owner);
    builder.unchanged(own.clone());
    builder.delete(own);
    let mut changes = BitChanges::default();
    free_reservations(keys, owner, record, &mut builder, &mut changes);
    free_index(keys, owner, record, &mut builder);
    if !matches!(mode, Mode::Quick | Mode::DeleteOnly) {
        changes.plan(keys, &mut builder);
    }
    if let (Some((start, lease)), false) = (tombstone, matches!(mode, Mode::DeleteOnly)) {
        bury(keys, owner, start, lease, &mut builder)?;
    }
    Ok(builder.finish())
}

/// The reservations of a record, with their bits: those that name `owner` are deleted.
pub fn free_reservations(
    keys: &Keys,
    owner: &Owner,
    record: &OwnerRecord,
    builder: &mut Builder<'_>,
    changes: &mut BitChanges,
) {
    for held in &record.addresses {
        let Some(network) = &held.network else { continue };
        let address = Addr::from(held.address);
        let key = keys.ip(network, address);
        builder.unchanged(key.clone());
        match builder.snapshot.record::<Reservation>(&key) {
            Ok(Some(reservation)) if reservation.owner == *owner => {
                builder.delete(key);
                changes.clear(network, address);
            }
            // A stray bit: nobody's, so it goes with the owner that was thought to hold it.
            Ok(None) => changes.clear(network, address),
            Ok(Some(_)) | Err(_) => {}
        }
    }
}

/// The index entries of a record: those that name `owner` are deleted.
pub fn free_index(keys: &Keys, owner: &Owner, record: &OwnerRecord, builder: &mut Builder<'_>) {
    let Some(uid) = &record.labels.pod.uid else { return };
    for network in networks(record) {
        let key = keys.pod(owner.cluster.as_ref(), uid, &owner.ifname, network);
        builder.unchanged(key.clone());
        if matches!(builder.snapshot.record::<PodIndex>(&key), Ok(Some(index)) if index.owner == *owner) {
            builder.delete(key);
        }
    }
}

/// The networks that a record's addresses are reserved in, each once.
#[must_use]
pub fn networks(record: &OwnerRecord) -> BTreeSet<&NetworkName> {
    record.addresses.iter().filter_map(|held| held.network.as_ref()).collect()
}

/// Puts a tombstone on `lease`, unless a younger one stands there.
///
/// # Errors
/// [`BadRecord`] if what stands there does not decode.
pub fn bury(
    keys: &Keys,
    owner: &Owner,
    start: &RunStart,
    lease: LeaseId,
    builder: &mut Builder<'_>,
) -> Result<(), BadRecord> {
    let key = keys.tombstone(owner);
    builder.unchanged(key.clone());
    let standing = builder.snapshot.record::<Tombstone>(&key)?;
    if start.is_after(standing.as_ref().map(|tombstone| &tombstone.start)) {
        builder.put_on(key, Tombstone::new(start.clone()).encode(), lease);
    }
    Ok(())
}

/// Relies on the prefix's meta: as it was read, or, in a prefix without allocations, made now.
pub fn rely_on_meta(keys: &Keys, first: &Meta, builder: &mut Builder<'_>) {
    let key = keys.meta();
    let missing = builder.snapshot.knows(&key) && builder.snapshot.entry(&key).is_none();
    builder.unchanged(key.clone());
    if missing {
        keys.allocations().into_iter().for_each(|prefix| builder.empty(prefix));
        builder.put(key, first.encode());
    }
}
