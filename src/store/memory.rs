//! A store of a few keys in memory, for unit tests of plans and decisions, here and in the reconciler. No program uses
//! it.

use std::collections::BTreeMap;

use super::keys::Bytes;
use super::snapshot::Snapshot;
use super::txn::{Compare, Entry, Found, Op, Reply, Txn};

/// Keys with their revisions; evaluates transactions as etcd does.
#[derive(Debug, Default, Clone)]
pub struct Memory {
    entries: BTreeMap<Bytes, Entry>,
    revision: i64,
}

impl Memory {
    /// Puts a key at a revision of its own.
    pub fn put(&mut self, key: Bytes, value: impl Into<Vec<u8>>) {
        self.revision += 1;
        let create_revision = self.entries.get(&key).map_or(self.revision, |old| old.create_revision);
        let entry = Entry {
            key: key.clone(),
            value: value.into(),
            create_revision,
            mod_revision: self.revision,
            lease: 0,
        };
        self.entries.insert(key, entry);
    }

    /// The entry of a key.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// All keys, in order.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        self.entries.keys().map(|key| String::from_utf8_lossy(key).into_owned()).collect()
    }

    /// Reads keys into a snapshot.
    pub fn read(&self, keys: &[Bytes], snapshot: &mut Snapshot) {
        self.read_all(&keys.iter().cloned().map(Op::Get).collect::<Vec<_>>(), snapshot);
    }

    /// Carries out reads of any kind.
    pub fn read_all(&self, ops: &[Op], snapshot: &mut Snapshot) {
        let reply = self.clone().apply(&Txn::read(ops.to_vec()));
        snapshot.absorb(ops, &reply);
    }

    /// Applies a transaction.
    ///
    /// # Panics
    /// If etcd would refuse the transaction, for too many operations or for a key that is written twice.
    pub fn apply(&mut self, txn: &Txn) -> Reply {
        assert!(txn.fits(), "more than 128 operations: {txn:?}");
        let written: Vec<&Bytes> = txn
            .then
            .iter()
            .filter_map(|op| match op {
                Op::Put(key, ..) | Op::Delete(key) | Op::DeleteIf(key, _) => Some(key),
                _ => None,
            })
            .collect();
        let distinct: std::collections::BTreeSet<_> = written.iter().collect();
        assert_eq!(distinct.len(), written.len(), "a key is written twice: {txn:?}");
        let succeeded = txn.compares.iter().all(|compare| self.holds(compare));
        let ops = if succeeded { &txn.then } else { &txn.otherwise };
        let found = ops.iter().map(|op| self.carry_out(op)).collect();
        Reply { succeeded, revision: self.revision, found }
    }

    fn holds(&self, compare: &Compare) -> bool {
        let entry = |key: &Bytes| self.entries.get(key);
        match compare {
            Compare::Create(key, revision) => entry(key).map_or(0, |e| e.create_revision) == *revision,
            Compare::Mod(key, revision) => entry(key).map_or(0, |e| e.mod_revision) == *revision,
            Compare::Empty(prefix) => !self.entries.keys().any(|key| key.starts_with(prefix)),
        }
    }

    fn carry_out(&mut self, op: &Op) -> Found {
        match op {
            Op::Get(key) => {
                let entries: Vec<Entry> = self.entries.get(key).cloned().into_iter().collect();
                Found { count: entries.len() as i64, entries }
            }
            Op::Put(key, value, _) => {
                self.put(key.clone(), value.clone());
                Found::default()
            }
            Op::Delete(key) => {
                self.revision += 1;
                self.entries.remove(key);
                Found::default()
            }
            Op::DeleteIf(key, value) => {
                if self.entries.get(key).is_some_and(|entry| entry.value == *value) {
                    self.revision += 1;
                    self.entries.remove(key);
                }
                Found::default()
            }
            Op::List(list) => {
                let listed = self.entries.range(list.start.clone()..list.end.clone());
                let entries: Vec<Entry> = listed.map(|(_, entry)| entry.clone()).collect();
                Found { count: entries.len() as i64, entries }
            }
            Op::Tickets { .. } => Found::default(),
        }
    }
}
