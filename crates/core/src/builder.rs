//! Builds transactions that change held addresses, on the keys that were read. Pure.
//!
//! A plan compares every key that it relies on with the state that was read. Its Else branch reads all of them again,
//! so a lost race costs one round trip. If a plan relies on a key that was not read yet, it asks for the key instead.

use std::collections::{BTreeMap, BTreeSet};

use super::keys::{Bytes, Keys, LeaseId, NetworkAddress};
use super::snapshot::Snapshot;
use super::txn::{Compare, Op, Txn};
use crate::plan::effects::{Clearing, Effects, Planned, Position};
use crate::pool::{Addr, Bits, NetworkName, Page};

/// Collects compares and operations; see the module's text.
pub struct Builder<'a> {
    snapshot: &'a Snapshot,
    txn: Txn,
    /// The effects of the transaction.
    pub(crate) effects: Effects,
    missing: Vec<Bytes>,
}

impl<'a> Builder<'a> {
    /// Starts a transaction on the keys that were read, for a step of the protocol.
    #[must_use]
    pub fn new(step: &'static str, snapshot: &'a Snapshot) -> Self {
        let (txn, effects) = (Txn { step, ..Txn::default() }, Effects::default());
        Self { snapshot, txn, effects, missing: Vec::new() }
    }

    /// The snapshot.
    #[must_use]
    pub fn seen(&self) -> &'a Snapshot {
        self.snapshot
    }

    /// Compares that the key was created at this revision.
    pub(crate) fn exactly(&mut self, key: Bytes, create_revision: i64) {
        self.compare(Compare::Create(key.clone(), create_revision), key);
    }

    /// Compares that the key is as it was read.
    pub fn unchanged(&mut self, key: Bytes) {
        if !self.snapshot.knows(&key) {
            self.missing.push(key);
            return;
        }
        let revision = self.snapshot.mod_revision(&key);
        self.compare(Compare::Mod(key.clone(), revision), key);
    }

    /// Relies on a key that changes only together with `other`, which is compared. It must not have been read before
    /// `other` was written. One that was not read at all, but left behind, is compared too: it may be damaged.
    pub(crate) fn goes_with(&mut self, key: &Bytes, other: &[u8]) {
        if !self.snapshot.knows_since(key, self.snapshot.mod_revision(other)) {
            self.missing.push(key.clone());
        } else if self.snapshot.is_hinted() {
            self.unchanged(key.clone());
        }
    }

    /// Compares that the key has the value that was read, whichever revision wrote it, or still does not exist.
    pub fn same_value(&mut self, key: Bytes) {
        match self.snapshot.entry(&key) {
            Some(entry) => self.compare(Compare::Value(key.clone(), entry.value.clone()), key),
            None => self.unchanged(key),
        }
    }

    /// Compares that the key was last written before this revision, or does not exist.
    pub fn older(&mut self, key: Bytes, revision: i64) {
        self.compare(Compare::Older(key.clone(), revision), key);
    }

    /// Compares that the key does not exist, whether it was read or not.
    pub fn absent(&mut self, key: Bytes) {
        self.compare(Compare::Create(key.clone(), 0), key);
    }

    pub(crate) fn compares(&self) -> usize {
        self.txn.compares.len()
    }

    /// The number of its operations so far.
    pub(crate) fn operations(&self) -> usize {
        self.txn.then.len()
    }

    /// Gives another value to a key that it writes.
    pub(crate) fn rewrite(&mut self, key: &[u8], other: Vec<u8>) {
        for op in &mut self.txn.then {
            if let Op::Put(written, value, _) = op
                && written == key
            {
                value.clone_from(&other);
            }
        }
    }

    /// Adds an operation.
    pub(crate) fn push(&mut self, op: Op) {
        self.txn.then.push(op);
    }

    /// Adds a transaction inside, and returns its place.
    pub(crate) fn nest(&mut self, txn: Txn) -> Position {
        self.push(Op::Nested(Box::new(txn)));
        Position(self.txn.then.len() - 1)
    }

    /// Writes a key.
    pub fn put(&mut self, key: Bytes, value: Vec<u8>) {
        self.txn.then.push(Op::Put(key, value, None));
    }

    /// Writes a key on a lease.
    pub fn put_on(&mut self, key: Bytes, value: Vec<u8>, lease: LeaseId) {
        self.txn.then.push(Op::Put(key, value, Some(lease)));
    }

    /// Deletes a key.
    pub fn delete(&mut self, key: Bytes) {
        self.txn.then.push(Op::Delete(key));
    }

    /// The transaction alone, where nobody asks for its effects.
    ///
    /// # Errors
    /// The keys that were relied on and not read.
    pub fn finish(self) -> Result<Txn, Vec<Bytes>> {
        self.planned().map(|planned| planned.txn)
    }

    /// The transaction with its effects.
    ///
    /// # Errors
    /// The keys that were relied on and not read.
    pub fn planned(self) -> Result<Planned, Vec<Bytes>> {
        let Self { snapshot, mut txn, effects, missing } = self;
        txn.compares.extend(snapshot.assumed_absent().iter().map(|key| Compare::Create(key.clone(), 0)));
        if missing.is_empty() { Ok(Planned { txn, effects }) } else { Err(missing) }
    }

    /// The transaction as a part of another one, which compares the keys that are assumed not to exist.
    fn part(self) -> Result<Txn, Vec<Bytes>> {
        if self.missing.is_empty() { Ok(self.txn) } else { Err(self.missing) }
    }

    /// A compare is added only once, because etcd limits their number in a transaction. The compares of keys that are
    /// assumed not to exist are added in the end.
    fn compare(&mut self, compare: Compare, key: Bytes) {
        let read = Op::Get(key);
        let is_added_in_the_end = self.snapshot.assumed_absent().contains(compare.key());
        if !is_added_in_the_end && !self.txn.compares.contains(&compare) {
            self.txn.compares.push(compare);
        }
        if !self.txn.otherwise.contains(&read) {
            self.txn.otherwise.push(read);
        }
    }
}

/// The changes that a transaction makes to the bits of pages, and through them to summaries.
#[derive(Debug, Default)]
pub struct BitChanges {
    changes: BTreeMap<(NetworkName, Page), PageChange>,
}

#[derive(Debug, Clone, Default)]
struct PageChange {
    set: BTreeSet<usize>,
    clear: BTreeSet<usize>,
    /// Bits that are thought to be stray.
    stray: BTreeSet<usize>,
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

    /// Leaves the address's bit as it is. Returns true if it was to be cleared.
    pub(crate) fn keeps(&mut self, network: &NetworkName, address: Addr) -> bool {
        let at = (network.clone(), address.page());
        let Some(change) = self.changes.get_mut(&at) else { return false };
        let was_cleared = change.clear.remove(&address.bit());
        if change.clear.is_empty() && change.set.is_empty() {
            self.changes.remove(&at);
        }
        was_cleared
    }

    /// Bits of addresses that are thought to be free are to be cleared on the pages that are written anyway.
    pub(crate) fn clear_stray(&mut self, stray: &[NetworkAddress]) {
        for (network, address) in stray {
            if let Some(change) = self.changes.get_mut(&(network.clone(), address.page())) {
                change.stray.insert(address.bit());
            }
        }
    }

    fn page(&mut self, network: &NetworkName, address: Addr) -> &mut PageChange {
        self.changes.entry((network.clone(), address.page())).or_default()
    }

    /// Adds the changes to a transaction. A page or summary that does not decode is not touched: all of it counts as
    /// taken, and this program never hands out an address of it.
    pub fn plan(&self, keys: &Keys, builder: &mut Builder<'_>) {
        let mut summaries: BTreeMap<Bytes, Vec<(usize, bool)>> = BTreeMap::new();
        for ((network, page), change) in &self.changes {
            let key = keys.page(network, *page);
            builder.unchanged(key.clone());
            let Some(before) = bits(builder.snapshot, &key) else { continue };
            let after = change.apply(&before);
            if let Some(part) = change.without_stray((keys, network, *page), (&before, &after)) {
                builder.nest(part);
                continue;
            }
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

    /// Clears the bits, each page in a transaction `step` of its own inside `builder`'s. So a page that has changed
    /// since it was read refuses nothing: its bits stay. The answer shows it anew.
    ///
    /// Of full pages with one summary, only the first one is cleared: etcd refuses a transaction that puts a key twice.
    pub(crate) fn clear_inside(&self, step: &'static str, keys: &Keys, builder: &mut Builder<'_>) {
        let mut put = BTreeSet::new();
        let mut is_put_once = |op: &Op| match op {
            Op::Put(key, ..) => put.insert(key.clone()),
            _ => true,
        };
        for ((network, page), change) in &self.changes {
            let addresses = change.cleared(network, *page).collect();
            let mut inside = Builder::new(step, builder.snapshot);
            let changes = BTreeMap::from([((network.clone(), *page), change.clone())]);
            BitChanges { changes }.plan(keys, &mut inside);
            match inside.part() {
                Ok(txn) if !txn.then.is_empty() && txn.then.iter().all(&mut is_put_once) => {
                    let place = builder.nest(txn);
                    builder.effects.clears.push(Clearing { place, addresses });
                }
                Ok(_) | Err(_) => builder.effects.stray.extend(addresses),
            }
        }
    }

    /// Leaves the bits as they are.
    pub(crate) fn leave(&self, builder: &mut Builder<'_>) {
        for ((network, page), change) in &self.changes {
            builder.effects.stray.extend(change.cleared(network, *page));
        }
    }
}

impl PageChange {
    /// The addresses whose bits are to be cleared.
    fn cleared<'a>(
        &'a self,
        network: &'a NetworkName,
        page: Page,
    ) -> impl Iterator<Item = NetworkAddress> + use<'a> {
        self.clear.iter().map(move |bit| (network.clone(), page.address(*bit)))
    }

    /// Writes the page without its stray bits, if none of their addresses is reserved or cools; else with them. So a
    /// bit that is not stray refuses nothing. None if there are no such bits, or a summary would have to be written.
    fn without_stray(
        &self,
        (keys, network, page): (&Keys, &NetworkName, Page),
        (before, after): (&Bits, &Bits),
    ) -> Option<Txn> {
        let stray: Vec<usize> =
            self.stray.iter().copied().filter(|bit| before.get(*bit) && !self.set.contains(bit)).collect();
        if stray.is_empty() || before.is_full() || after.is_full() {
            return None;
        }
        let addresses = stray.iter().map(|bit| page.address(*bit));
        let absent =
            addresses.flat_map(|address| [keys.ip(network, address), keys.cooling(network, address)]);
        let mut cleared = after.clone();
        stray.iter().for_each(|bit| cleared.clear(*bit));
        let put = |bits: &Bits| vec![Op::Put(keys.page(network, page), bits.to_bytes(), None)];
        Some(Txn {
            step: "clear-noted",
            compares: absent.map(|key| Compare::Create(key, 0)).collect(),
            then: put(&cleared),
            otherwise: put(after),
            ..Txn::default()
        })
    }

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
