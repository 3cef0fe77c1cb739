//! The keys that a run has read so far: each with its entry, or as one that does not exist. Pure.

use std::collections::BTreeMap;

use super::keys::Bytes;
use super::txn::{Entry, Op, Reply, Txn, answered};
use crate::pool::{Record, Undecodable};

/// A stored value that does not decode, which stops a run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {why}")]
pub struct BadRecord {
    /// The key.
    pub key: String,
    /// The fault of its value.
    pub why: Undecodable,
}

impl BadRecord {
    /// The error for a page whose value is no bitmap.
    #[must_use]
    pub fn page(key: &[u8]) -> Self {
        let why = Undecodable::Malformed { kind: "page", reason: "not a bitmap of 512 bytes".to_owned() };
        Self { key: String::from_utf8_lossy(key).into_owned(), why }
    }
}

/// The newest known state of every key that was read.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    known: BTreeMap<Bytes, Known>,
    /// By prefix: the number of keys that began with it, and the store's revision then.
    counts: BTreeMap<Bytes, (i64, i64)>,
    /// Keys that were not read. A first request assumes that they do not exist.
    assumed_absent: Vec<Bytes>,
    /// The store's revision at the newest answer.
    pub revision: i64,
}

/// One key as it was read last, and the store's revision then.
#[derive(Debug, Clone)]
struct Known {
    entry: Option<Entry>,
    at: i64,
}

impl Snapshot {
    /// Adds the answers to `ops`, the branch of a transaction that etcd took, together with the answers of transactions
    /// inside it.
    pub fn absorb(&mut self, ops: &[Op], reply: &Reply) {
        self.revision = reply.revision;
        for (op, found) in answered(ops, &reply.found) {
            match op {
                Op::Get(key) => self.set(key, found.one().cloned()),
                Op::List(list) => _ = self.counts.insert(list.start.clone(), (found.count, reply.revision)),
                _ => {}
            }
        }
    }

    /// Sets a key's entry as of the snapshot's revision; none if the key did not exist.
    pub fn set(&mut self, key: &[u8], entry: Option<Entry>) {
        self.known.insert(key.to_vec(), Known { entry, at: self.revision });
    }

    /// Assumes that these keys do not exist. A transaction on this snapshot compares their absence, even if its plan
    /// does not use them.
    pub(crate) fn assume_absent(&mut self, keys: Vec<Bytes>) {
        keys.iter().for_each(|key| self.set(key, None));
        self.assumed_absent = keys;
    }

    /// The keys that are assumed not to exist.
    pub(crate) fn assumed_absent(&self) -> &[Bytes] {
        &self.assumed_absent
    }

    /// True if its keys were not read: another run has left them behind.
    pub(crate) fn is_hinted(&self) -> bool {
        !self.assumed_absent.is_empty()
    }

    /// All keys that are known, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&Bytes, Option<&Entry>)> {
        self.known.iter().map(|(key, known)| (key, known.entry.as_ref()))
    }

    /// Applies the writes of an applied transaction to the keys that were read before.
    pub fn apply(&mut self, txn: &Txn, reply: &Reply) {
        self.absorb(&txn.then, reply);
        for (op, _) in answered(&txn.then, &reply.found) {
            let (key, value) = match op {
                Op::Put(key, value, lease) => (key, Some((value, lease.map_or(0, |lease| lease.0)))),
                Op::Delete(key) => (key, None),
                _ => continue,
            };
            let Some(known) = self.known.get_mut(key) else { continue };
            let create_revision = known.entry.as_ref().map_or(reply.revision, |old| old.create_revision);
            let entry = value.map(|(value, lease)| Entry {
                key: key.clone(),
                value: value.clone(),
                create_revision,
                mod_revision: reply.revision,
                lease,
            });
            *known = Known { entry, at: reply.revision };
        }
    }

    /// Gives a key another value, and keeps its revisions as they were read. So a compare of the key still compares
    /// with the entry that was read.
    pub(crate) fn lay(&mut self, key: Bytes, value: Vec<u8>) {
        let known = self.known.entry(key.clone()).or_insert(Known { entry: None, at: self.revision });
        let bare = Entry { key, value: Vec::new(), create_revision: 0, mod_revision: 0, lease: 0 };
        known.entry.get_or_insert(bare).value = value;
    }

    /// Keeps only the keys for which `stays` is true.
    pub fn retain(&mut self, stays: impl Fn(&[u8]) -> bool) {
        self.known.retain(|key, _| stays(key));
        self.counts.clear();
    }

    /// The number of keys that begin with `prefix`. None unless they were counted when `key` was read last, or later.
    #[must_use]
    pub fn count(&self, prefix: &[u8], key: &[u8]) -> Option<i64> {
        let read_at = self.known.get(key)?.at;
        self.counts.get(prefix).filter(|(_, at)| *at >= read_at).map(|(count, _)| *count)
    }

    /// True if the key was read.
    #[must_use]
    pub fn knows(&self, key: &[u8]) -> bool {
        self.known.contains_key(key)
    }

    /// The store's revision when the key was read last; 0 if it was not.
    #[must_use]
    pub fn read_at(&self, key: &[u8]) -> i64 {
        self.known.get(key).map_or(0, |known| known.at)
    }

    /// True if the key was read at this revision or later.
    #[must_use]
    pub fn knows_since(&self, key: &[u8], revision: i64) -> bool {
        self.knows(key) && self.read_at(key) >= revision
    }

    /// The key as it was read; none if it does not exist or was not read.
    #[must_use]
    pub fn entry(&self, key: &[u8]) -> Option<&Entry> {
        self.known.get(key).and_then(|known| known.entry.as_ref())
    }

    /// All existing keys from `first` to `last`, inclusive, that were read at revision `since` or later.
    pub(crate) fn existing<'a>(
        &'a self,
        first: &[u8],
        last: &[u8],
        since: i64,
    ) -> impl Iterator<Item = &'a Entry> {
        let known = self.known.range(first.to_vec()..=last.to_vec());
        known.filter(move |(_, known)| known.at >= since).filter_map(|(_, known)| known.entry.as_ref())
    }

    /// The mod revision to compare with: 0 for a key that does not exist.
    #[must_use]
    pub fn mod_revision(&self, key: &[u8]) -> i64 {
        self.entry(key).map_or(0, |entry| entry.mod_revision)
    }

    /// The record under a key; none if it does not exist.
    ///
    /// # Errors
    /// [`BadRecord`] if there is something that does not decode.
    pub fn record<R: Record>(&self, key: &[u8]) -> Result<Option<R>, BadRecord> {
        let decode = |entry: &Entry| {
            R::decode(&entry.value)
                .map_err(|why| BadRecord { key: String::from_utf8_lossy(key).into_owned(), why })
        };
        self.entry(key).map(decode).transpose()
    }
}
