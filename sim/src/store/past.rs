//! Reading: the store as it is, or as it was.

use std::collections::BTreeMap;
use std::ops::Bound;

use metes_core::txn::{Compare, Entry, Found, List, Op};
use metes_engine::kv::Failure;

use super::refusal::refused;
use super::{Model, Record};

/// Stands for the newest revision, with the writes of a transaction that is under way.
pub(super) const NEWEST: i64 = i64::MAX;

/// The store as it was at a revision.
#[derive(Clone, Copy)]
pub(super) struct Past<'a> {
    pub(super) model: &'a Model,
    pub(super) revision: i64,
}

impl<'a> Past<'a> {
    pub(super) fn holds(&self, compare: &Compare) -> bool {
        match compare {
            Compare::Create(key, revision) => {
                self.get(key).map_or(0, |record| record.create_revision) == *revision
            }
            Compare::Mod(key, revision) => self.modified(key) == *revision,
            Compare::NotOlder(key, revision) => self.modified(key) >= *revision,
            Compare::Older(key, revision) => self.modified(key) < *revision,
            Compare::Value(key, value) => self.get(key).is_some_and(|record| *record.value == **value),
            Compare::Empty(prefix) => self.is_empty(Span::Prefix(prefix)),
        }
    }

    /// Checks that an operation can be done.
    pub(super) fn check_op(&self, op: &Op) -> Result<(), Failure> {
        let newest = self.revision.min(self.model.revision);
        match op {
            Op::List(list) if list.revision == 0 => Ok(()),
            Op::List(list) if list.revision > newest => {
                Err(refused("etcdserver: mvcc: required revision is a future revision"))
            }
            Op::List(list) if list.revision < self.model.log.compacted_at(newest) => Err(Failure::Compacted),
            Op::Put(_, _, Some(lease)) if !self.model.leases.exists(*lease) => Err(Failure::LeaseNotFound),
            _ => Ok(()),
        }
    }

    pub(super) fn read(&self, op: &Op) -> Found {
        match op {
            Op::Get(key) => {
                let entries: Vec<Entry> =
                    self.get(key).map(|record| entry(key, record)).into_iter().collect();
                let count = entries.len() as i64;
                Found::read(entries, count)
            }
            Op::List(list) => self.list(list),
            Op::Tickets(queue, limit) => self.tickets(queue, *limit),
            Op::Put(..) | Op::Delete(_) | Op::Nested(_) => Found::default(),
        }
    }

    fn list(&self, list: &List) -> Found {
        let revision = if list.revision > 0 { list.revision } else { self.revision };
        let all = Past { revision, ..*self }.select(Span::of(list));
        let chosen = all.iter().take(limit(list.limit));
        let read = if list.keys_only { name } else { entry };
        Found::read(chosen.map(|(key, record)| read(key, record)).collect(), all.len() as i64)
    }

    fn tickets(&self, queue: &[u8], most: i64) -> Found {
        let mut tickets = self.select(Span::Prefix(queue));
        let count = tickets.len() as i64;
        tickets.sort_by_key(|(_, record)| record.create_revision);
        let chosen = tickets.iter().take(limit(most));
        Found::read(chosen.map(|(key, record)| entry(key, record)).collect(), count)
    }

    fn get(&self, key: &[u8]) -> Option<&'a Record> {
        match self.model.log.after(self.revision).find(|change| *change.key == *key) {
            Some(change) => change.before.as_ref(),
            None => self.model.records.get(key),
        }
    }

    /// The mod revision of a key, which is 0 for one that does not exist.
    fn modified(&self, key: &[u8]) -> i64 {
        self.get(key).map_or(0, |record| record.mod_revision)
    }

    fn is_empty(&self, span: Span<'_>) -> bool {
        if self.revision == NEWEST {
            self.model.range(span).next().is_none()
        } else {
            self.select(span).is_empty()
        }
    }

    /// The keys of a range, in order.
    fn select(&self, span: Span<'_>) -> Vec<(&'a [u8], &'a Record)> {
        let now = self.model.range(span);
        let mut later =
            self.model.log.after(self.revision).filter(|change| span.contains(&change.key)).peekable();
        if later.peek().is_none() {
            return now.collect();
        }
        // The oldest of the later changes has the record of then: it is the last to be undone.
        let mut then: BTreeMap<&[u8], &Record> = now.collect();
        for change in later.rev() {
            match &change.before {
                Some(record) => then.insert(&change.key, record),
                None => then.remove(&*change.key),
            };
        }
        then.into_iter().collect()
    }
}

/// The keys that a request means.
#[derive(Clone, Copy)]
enum Span<'a> {
    One(&'a [u8]),
    From(&'a [u8]),
    Between(&'a [u8], &'a [u8]),
    Prefix(&'a [u8]),
}

impl<'a> Span<'a> {
    fn of(list: &'a List) -> Self {
        match &*list.end {
            [] => Span::One(&list.start),
            [0] => Span::From(&list.start),
            end => Span::Between(&list.start, end),
        }
    }

    fn first(self) -> &'a [u8] {
        match self {
            Span::One(first) | Span::From(first) | Span::Between(first, _) | Span::Prefix(first) => first,
        }
    }

    /// True if a key that is not before the first is within.
    fn reaches(self, key: &[u8]) -> bool {
        match self {
            Span::One(only) => key == only,
            Span::From(_) => true,
            Span::Between(_, end) => key < end,
            Span::Prefix(prefix) => key.starts_with(prefix),
        }
    }

    fn contains(self, key: &[u8]) -> bool {
        key >= self.first() && self.reaches(key)
    }
}

impl Model {
    fn range(&self, span: Span<'_>) -> impl Iterator<Item = (&[u8], &Record)> {
        let from = (Bound::Included(span.first()), Bound::Unbounded);
        let onwards = self.records.range::<[u8], _>(from);
        onwards.map(|(key, record)| (&**key, record)).take_while(move |(key, _)| span.reaches(key))
    }
}

fn limit(limit: i64) -> usize {
    usize::try_from(limit).ok().filter(|limit| *limit > 0).unwrap_or(usize::MAX)
}

pub(super) fn entry(key: &[u8], record: &Record) -> Entry {
    Entry { value: record.value.to_vec(), ..name(key, record) }
}

fn name(key: &[u8], record: &Record) -> Entry {
    Entry {
        key: key.to_vec(),
        value: Vec::new(),
        create_revision: record.create_revision,
        mod_revision: record.mod_revision,
        lease: record.lease,
    }
}
