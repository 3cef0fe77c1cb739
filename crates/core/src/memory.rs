//! A store of a few keys in memory, for unit tests of plans and decisions, here and in the reconciler. No program uses
//! it.

use std::collections::{BTreeMap, BTreeSet};

use super::keys::Bytes;
use super::snapshot::Snapshot;
use super::txn::{Compare, Entry, Found, NestedReply, Op, Reply, Txn};

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
        self.write(key, value);
    }

    fn write(&mut self, key: Bytes, value: impl Into<Vec<u8>>) {
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

    #[cfg(test)]
    pub(crate) fn read(&self, keys: &[Bytes], snapshot: &mut Snapshot) {
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
        for ops in [&txn.then, &txn.otherwise] {
            let has_two = |key: &Bytes| panic!("a key is written twice: {}", String::from_utf8_lossy(key));
            Written::by(ops, &has_two);
        }
        let before = self.clone();
        self.revision += 1;
        let NestedReply { succeeded, found } = self.carry_out(txn, &before);
        let has_changed = self.entries != before.entries;
        self.revision -= i64::from(!has_changed);
        Reply { succeeded, revision: self.revision, found }
    }

    /// Carries out a transaction, whose compares are judged by what was there `before` the outermost one.
    fn carry_out(&mut self, txn: &Txn, before: &Self) -> NestedReply {
        let succeeded = txn.compares.iter().all(|compare| before.holds(compare));
        let found = txn.branch(succeeded).iter().map(|op| self.carry_out_op(op, before)).collect();
        NestedReply { succeeded, found }
    }

    fn holds(&self, compare: &Compare) -> bool {
        compare.is_met_by(match compare {
            Compare::Empty(prefix) => self.entries.values().find(|entry| entry.key.starts_with(prefix)),
            of_one_key => self.entries.get(of_one_key.key()),
        })
    }

    fn carry_out_op(&mut self, op: &Op, before: &Self) -> Found {
        match op {
            Op::Get(key) => {
                let entries: Vec<Entry> = self.entries.get(key).cloned().into_iter().collect();
                let count = entries.len() as i64;
                Found::read(entries, count)
            }
            Op::Put(key, value, _) => {
                self.write(key.clone(), value.clone());
                Found::default()
            }
            Op::Delete(key) => {
                self.entries.remove(key);
                Found::default()
            }
            Op::List(list) => {
                let listed = self.entries.range(list.start.clone()..list.end.clone());
                let entries: Vec<Entry> = listed.map(|(_, entry)| entry.clone()).collect();
                let count = entries.len() as i64;
                Found::read(entries, count)
            }
            Op::Tickets(..) => Found::default(),
            Op::Nested(txn) => Found { nested: Some(self.carry_out(txn, before)), ..Found::default() },
        }
    }
}

/// The keys that operations put, and those that they delete, with those of both branches of what is nested.
#[derive(Default)]
struct Written<'t> {
    put: BTreeSet<&'t Bytes>,
    deleted: BTreeSet<&'t Bytes>,
}

impl<'t> Written<'t> {
    /// A key that two operations put, or that one puts and another one deletes, is told. Two may delete it.
    fn by(ops: &'t [Op], has_two: &dyn Fn(&Bytes)) -> Self {
        let mut all = Self::default();
        for op in ops {
            let one = match op {
                Op::Put(key, ..) => Self { put: BTreeSet::from([key]), ..Self::default() },
                Op::Delete(key) => Self { deleted: BTreeSet::from([key]), ..Self::default() },
                Op::Nested(txn) => {
                    let mut either = Self::by(&txn.then, has_two);
                    either.add(Self::by(&txn.otherwise, has_two));
                    either
                }
                Op::Get(_) | Op::List(_) | Op::Tickets(..) => Self::default(),
            };
            let puts = one.put.iter().filter(|key| all.put.contains(*key) || all.deleted.contains(*key));
            puts.chain(one.deleted.intersection(&all.put)).for_each(|key| has_two(key));
            all.add(one);
        }
        all
    }

    fn add(&mut self, other: Self) {
        self.put.extend(other.put);
        self.deleted.extend(other.deleted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_nested_is_judged_by_what_was_there_before_and_read_from_the_branch_it_takes() {
        let key = |name: &str| name.as_bytes().to_vec();
        let mut memory = Memory::default();
        memory.put(key("a"), "1");
        let if_absent = |name: &str| {
            let compares = vec![Compare::Create(key(name), 0)];
            let then = vec![Op::Put(key("c"), b"3".to_vec(), None), Op::Get(key("b"))];
            Op::Nested(Box::new(Txn {
                compares,
                then,
                otherwise: vec![Op::Get(key(name))],
                ..Txn::default()
            }))
        };
        let put = Op::Put(key("b"), b"2".to_vec(), None);
        let txn = Txn { then: vec![put, if_absent("b")], ..Txn::default() };
        let reply = memory.apply(&txn);
        let mut snapshot = Snapshot::default();
        snapshot.absorb(&txn.then, &reply);
        assert!(
            snapshot.entry(b"b").is_some(),
            "b was put before it was read, and absent when it was judged"
        );
        assert!(memory.get(b"c").is_some());

        let txn = Txn { then: vec![if_absent("a")], ..Txn::default() };
        let reply = memory.apply(&txn);
        snapshot.absorb(&txn.then, &reply);
        assert_eq!(reply.found[0].nested.as_ref().map(|nested| nested.succeeded), Some(false));
        assert!(reply.succeeded && snapshot.entry(b"a").is_some());
    }
}
