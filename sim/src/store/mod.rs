//! A model of etcd in memory: synchronous, deterministic, and exact in all that metes can see of etcd.
//!
//! It answers as [`metes::store::etcd::Etcd`] does over a real etcd 3.6, word for word. `tests/differential.rs` holds it
//! to that: the same requests go to both, and the answers must be equal, revisions and the texts of refusals included.
//!
//! # What is modelled, and where etcd says so
//!
//! Files are those of etcd's `server` module.
//!
//! - A transaction (`etcdserver/txn/txn.go`, `Txn`): the compares are judged, then what the branch that is *taken* asks for is
//!   checked (`checkTxn`), then all of it is written under one revision. A lease that does not exist or a revision that
//!   cannot be read refuses the whole transaction before anything is written; in the other branch it does no harm. The
//!   first operation that is wrong gives the reason.
//! - A key written twice, or written and deleted, in one branch refuses the transaction, and this in *both* branches
//!   (`etcdserver/api/v3rpc/key.go`, `checkTxnRequest`, `checkIntervals`). Deleted twice is fine.
//! - Revisions (`storage/mvcc/kvstore_txn.go`): an empty store has 1; a transaction that changes something takes the next
//!   one, one that deletes nothing takes none. Later operations see what earlier ones of their transaction wrote, a list at
//!   a revision of its own does not.
//! - Lists (`executeRange`, `storage/mvcc/index.go`): an empty end reads one key, an end of one zero byte reads to the last key, a limit
//!   up to 0 is none, the count is of the whole range. A bound on the create revision, of [`Op::Places`], changes what is
//!   returned but not the count, and a bound of 0 is none. Places that one transaction created stay in the order of their names; so
//!   does etcd up to 12 of them (it sorts with Go's `sort.Sort`, which is not stable beyond).
//! - Leases (`lease/lessor.go`): whole seconds, at least 2 with the default election timeout; an id is refused while it lives. A key
//!   hangs on the lease of its last put, or on none. A lease that ends or is revoked takes its keys with it under one
//!   revision, in the order of their names, or under none if it has no keys. A new leader gives every lease its whole time
//!   again, and the election timeout more (`Promote`); what is left is told without the fraction of a second.
//! - Compaction (`storage/mvcc/kvstore.go`): below its revision nothing can be read, at its revision all can; one that goes back or
//!   beyond the newest revision changes nothing.
//! - Out of space (`storage/quota.go`, `etcdserver/api/v3rpc/quota.go`, `applierV3Capped` and `quotaApplierV3` in
//!   `etcdserver/apply/apply.go`): a transaction with a put in either branch is refused before anything else of it is judged, and
//!   so is a grant; deletes, reads and revokes go on. With [`Model::set_space_noticed_late`] a put is applied and answered with
//!   the same error, as the requests are that were on their way when the space ran out.
//! - What the client refuses by itself ([`Txn::fits`]).
//!
//! # What is not
//!
//! - Users and permissions; versions and the compares and orders that metes does not use.
//! - Late expiry: a lease ends here in the moment in which its time is over, in etcd half a second or more later (`runLoop`). Leases
//!   that end in the same moment do so in the order of their ids; etcd gives no order. Beyond 1,000 leases a new
//!   leader of etcd spreads them out.
//! - Members, connections and time-outs: whoever drives the model decides what is lost, late or answered from
//!   [the past](Model::stale).
//! - A history without end: of [`Model::with_history`] so many changes are kept, and what is older is compacted,
//!   as by etcd's `--auto-compaction-mode=revision`.

mod digest;
mod leases;
mod log;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use metes::limits;
use metes::store::keys::LeaseId;
use metes::store::kv::{About, Failure, LeaseAge};
use metes::store::txn::{Compare, Entry, Found, List, Op, QueueEnd, Reply, Txn};

use digest::Digest;
use leases::Leases;
use log::{Change, Log};

/// How many changes are kept for reads in the past, unless told otherwise.
const HISTORY: usize = 1024;
/// Stands for the newest revision, with what a transaction that is under way has written.
const NEWEST: i64 = i64::MAX;

/// The name of a key, shared by all that speak of it.
type Key = Arc<[u8]>;

/// What the store keeps under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The value.
    pub value: Arc<[u8]>,
    /// The revision that created it.
    pub create_revision: i64,
    /// The revision that wrote it last.
    pub mod_revision: i64,
    /// The lease it hangs on; 0 for none.
    pub lease: i64,
}

/// Whether there is space for more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Space {
    Enough,
    /// The alarm has not been raised yet: writes are applied and answered as if they were not.
    NoticedLate,
    Full,
}

/// A store that answers as etcd does.
#[derive(Debug, Clone)]
pub struct Model {
    records: BTreeMap<Key, Record>,
    revision: i64,
    leases: Leases,
    log: Log,
    space: Space,
    digest: Digest,
}

impl Default for Model {
    fn default() -> Self {
        Self::new()
    }
}

impl Model {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::with_history(HISTORY)
    }

    /// An empty store that keeps `changes` changes of single keys for reads in the past.
    #[must_use]
    pub fn with_history(changes: usize) -> Self {
        Self {
            records: BTreeMap::new(),
            revision: 1,
            leases: Leases::default(),
            log: Log::new(changes),
            space: Space::Enough,
            digest: Digest::default(),
        }
    }

    /// Carries out a transaction at the newest revision.
    ///
    /// # Errors
    /// As etcd: see the module.
    pub fn txn(&mut self, txn: &Txn) -> Result<Reply, Failure> {
        fits(txn)?;
        let puts = has_put(txn);
        if puts && self.space == Space::Full {
            return Err(no_space());
        }
        well_formed(txn)?;
        let now = self.at(NEWEST);
        let succeeded = txn.compares.iter().all(|compare| now.holds(compare));
        let ops = if succeeded { &txn.then } else { &txn.otherwise };
        now.check(ops)?;
        let next = self.revision + 1;
        let found = ops.iter().map(|op| self.carry_out(op, next)).collect();
        self.close_revision(next);
        if puts && self.space == Space::NoticedLate {
            return Err(no_space());
        }
        Ok(Reply { succeeded, revision: self.revision, found })
    }

    /// What a member answers to a transaction that only reads, if `revision` is the newest it has applied.
    ///
    /// # Errors
    /// As etcd: see the module.
    ///
    /// # Panics
    /// If the transaction writes, or `revision` is not between [`Model::oldest`] and [`Model::revision`].
    pub fn stale(&self, revision: i64, txn: &Txn) -> Result<Reply, Failure> {
        assert!(txn.only_reads(), "a member in the past can only be read: {txn:?}");
        assert!((self.oldest()..=self.revision).contains(&revision), "revision {revision} is not kept");
        fits(txn)?;
        well_formed(txn)?;
        let then = self.at(revision);
        let succeeded = txn.compares.iter().all(|compare| then.holds(compare));
        let ops = if succeeded { &txn.then } else { &txn.otherwise };
        then.check(ops)?;
        Ok(Reply { succeeded, revision, found: ops.iter().map(|op| then.read(op)).collect() })
    }

    /// Grants a lease of `ttl`, of which the whole seconds count.
    ///
    /// # Errors
    /// [`Failure::LeaseExists`], [`Failure::NoSpace`], or [`Failure::Refused`] for a time that is too long.
    pub fn grant(&mut self, lease: LeaseId, ttl: Duration) -> Result<(), Failure> {
        if self.space == Space::Full {
            return Err(no_space());
        }
        let granted = self.leases.grant(lease, ttl)?;
        self.digest.granted(lease, granted);
        if self.space == Space::NoticedLate { Err(no_space()) } else { Ok(()) }
    }

    /// Ends a lease and deletes the keys on it.
    ///
    /// # Errors
    /// [`Failure::LeaseNotFound`], which [`metes::store::kv::Kv::revoke`] does not tell.
    pub fn revoke(&mut self, lease: LeaseId) -> Result<(), Failure> {
        let keys = self.leases.end(lease).ok_or(Failure::LeaseNotFound)?;
        self.digest.ended(lease);
        let next = self.revision + 1;
        for key in keys {
            self.delete(&key, next);
        }
        self.close_revision(next);
        Ok(())
    }

    /// How old a lease is and how long it will live; none if it has ended.
    #[must_use]
    pub fn lease_age(&self, lease: LeaseId) -> Option<LeaseAge> {
        self.leases.age(lease)
    }

    /// Lets time pass: leases that end take their keys with them, each in a revision of its own.
    pub fn pass_time(&mut self, by: Duration) {
        let until = self.leases.now() + by;
        while let Some(lease) = self.leases.next_to_end(until) {
            let ended = self.revoke(lease);
            debug_assert!(ended.is_ok(), "a lease that is to end exists");
        }
        self.leases.set_now(until);
        self.digest.passed(by);
    }

    /// How long the model has been running, as far as [`Model::pass_time`] has told it.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.leases.now()
    }

    /// Another member becomes the leader: all leases start anew.
    pub fn promote_leader(&mut self) {
        self.leases.promote();
        self.digest.promoted();
    }

    /// Forgets what was before `revision`, if there is such a revision.
    pub fn compact(&mut self, revision: i64) {
        if revision <= self.revision {
            self.log.compact(self.revision, revision);
            self.digest.compacted(revision);
        }
    }

    /// Runs out of space, and raises the alarm that refuses every put; or has space again, with the alarm disarmed.
    pub fn set_space(&mut self, full: bool) {
        self.space = if full { Space::Full } else { Space::Enough };
        self.digest.space(self.space as u64);
    }

    /// Runs out of space while requests are on their way: until [`Model::set_space`] is called, every put and every
    /// grant is applied and then answered with [`Failure::NoSpace`].
    pub fn set_space_noticed_late(&mut self) {
        self.space = Space::NoticedLate;
        self.digest.space(self.space as u64);
    }

    /// What a healthy member says of itself.
    #[must_use]
    pub fn about(&self) -> About {
        let alarm = (self.space == Space::Full).then(|| "memberID:1 alarm:NOSPACE ".to_owned());
        About { version: "3.6.14".to_owned(), errors: alarm.into_iter().collect(), has_leader: true }
    }

    /// The newest revision.
    #[must_use]
    pub fn revision(&self) -> i64 {
        self.revision
    }

    /// The oldest revision that [`Model::stale`] and [`Model::changes_since`] know of.
    #[must_use]
    pub fn oldest(&self) -> i64 {
        self.log.oldest()
    }

    /// Which keys were written or deleted after `revision`, and by which revision; in order. For watches.
    pub fn changes_since(&self, revision: i64) -> impl Iterator<Item = (&[u8], i64)> {
        self.log.after(revision).map(|change| (&*change.key, change.revision))
    }

    /// Everything that is stored, in the order of the keys.
    pub fn entries(&self) -> impl Iterator<Item = (&[u8], &Record)> {
        self.records.iter().map(|(key, record)| (&**key, record))
    }

    /// What is stored under a key.
    #[must_use]
    pub fn entry(&self, key: &[u8]) -> Option<&Record> {
        self.records.get(key)
    }

    /// A number for all that has ever been done to this store: two runs that differ in a single change differ in it.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.digest.value()
    }

    fn at(&self, revision: i64) -> Past<'_> {
        Past { model: self, revision }
    }

    /// Does one operation of a transaction that will be `revision` if it changes anything.
    fn carry_out(&mut self, op: &Op, revision: i64) -> Found {
        match op {
            Op::Get(_) | Op::List(_) | Op::Places { .. } => return self.at(NEWEST).read(op),
            Op::Put(key, value, lease) => self.put(key, value, lease.map_or(0, |lease| lease.0), revision),
            Op::Delete(key) => self.delete(key, revision),
            // etcd judges the condition before it writes anything. No put of the same transaction can change its
            // outcome: a key must not be written beside it.
            Op::DeleteIf(key, value) => {
                if self.records.get(&**key).is_some_and(|record| *record.value == **value) {
                    self.delete(key, revision);
                }
            }
        }
        Found::default()
    }

    fn put(&mut self, key: &[u8], value: &[u8], lease: i64, revision: i64) {
        let (key, before) = match self.records.get_key_value(key) {
            Some((key, record)) => (Arc::clone(key), Some(record.clone())),
            None => (Key::from(key), None),
        };
        let old_lease = before.as_ref().map_or(0, |before| before.lease);
        if old_lease != lease {
            self.leases.detach(old_lease, &key);
            self.leases.attach(lease, &key);
        }
        let create_revision = before.as_ref().map_or(revision, |before| before.create_revision);
        let record = Record { value: value.into(), create_revision, mod_revision: revision, lease };
        self.digest.put(&key, value, lease);
        self.records.insert(Arc::clone(&key), record);
        self.log.push(Change { revision, key, before });
    }

    fn delete(&mut self, key: &[u8], revision: i64) {
        let Some((key, before)) = self.records.remove_entry(key) else { return };
        self.leases.detach(before.lease, &key);
        self.digest.deleted(&key);
        self.log.push(Change { revision, key, before: Some(before) });
    }

    /// Takes the revision, if anything was written under it.
    fn close_revision(&mut self, revision: i64) {
        if self.log.newest() == revision {
            self.revision = revision;
            self.log.trim();
        }
    }
}

/// The store as it was at a revision.
#[derive(Clone, Copy)]
struct Past<'a> {
    model: &'a Model,
    revision: i64,
}

impl<'a> Past<'a> {
    fn holds(&self, compare: &Compare) -> bool {
        match compare {
            Compare::Create(key, revision) => {
                self.get(key).map_or(0, |record| record.create_revision) == *revision
            }
            Compare::Mod(key, revision) => self.get(key).map_or(0, |record| record.mod_revision) == *revision,
            Compare::Empty(prefix) => self.is_empty(Span::Prefix(prefix)),
        }
    }

    /// Whether every operation of the branch that is taken can be done.
    fn check(&self, ops: &[Op]) -> Result<(), Failure> {
        let newest = self.revision.min(self.model.revision);
        ops.iter().try_for_each(|op| match op {
            Op::List(list) if list.revision == 0 => Ok(()),
            Op::List(list) if list.revision > newest => {
                Err(refused("etcdserver: mvcc: required revision is a future revision"))
            }
            Op::List(list) if list.revision < self.model.log.compacted_at(newest) => Err(Failure::Compacted),
            Op::Put(_, _, Some(lease)) if !self.model.leases.exists(*lease) => Err(Failure::LeaseNotFound),
            _ => Ok(()),
        })
    }

    fn read(&self, op: &Op) -> Found {
        match op {
            Op::Get(key) => {
                let entries: Vec<Entry> =
                    self.get(key).map(|record| entry(key, record)).into_iter().collect();
                Found { count: entries.len() as i64, entries }
            }
            Op::List(list) => self.list(list),
            Op::Places { queue, before, end, limit } => self.places(queue, *before, *end, *limit),
            Op::Put(..) | Op::Delete(_) | Op::DeleteIf(..) => Found::default(),
        }
    }

    fn list(&self, list: &List) -> Found {
        let revision = if list.revision > 0 { list.revision } else { self.revision };
        let all = Past { revision, ..*self }.select(Span::of(list));
        let chosen = all.iter().take(limit(list.limit));
        let read = if list.keys_only { name } else { entry };
        Found { entries: chosen.map(|(key, record)| read(key, record)).collect(), count: all.len() as i64 }
    }

    fn places(&self, queue: &[u8], before: Option<i64>, end: QueueEnd, most: i64) -> Found {
        let mut places = self.select(Span::Prefix(queue));
        let count = places.len() as i64;
        // To etcd a bound of 0 is none.
        if let Some(bound) = before.map(|before| before - 1).filter(|bound| *bound != 0) {
            places.retain(|(_, record)| record.create_revision <= bound);
        }
        match end {
            QueueEnd::Oldest => places.sort_by_key(|(_, record)| record.create_revision),
            QueueEnd::Youngest => places.sort_by_key(|(_, record)| std::cmp::Reverse(record.create_revision)),
        }
        let chosen = places.iter().take(limit(most));
        Found { entries: chosen.map(|(key, record)| name(key, record)).collect(), count }
    }

    fn get(&self, key: &[u8]) -> Option<&'a Record> {
        match self.model.log.after(self.revision).find(|change| *change.key == *key) {
            Some(change) => change.before.as_ref(),
            None => self.model.records.get(key),
        }
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
        // The oldest of the later changes tells what was there: it is the last to be undone.
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

/// Which keys a request means.
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

    /// Whether a key that is not before the first is within.
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

/// What etcd's client of metes refuses before anything is sent.
fn fits(txn: &Txn) -> Result<(), Failure> {
    if txn.fits() {
        return Ok(());
    }
    Err(Failure::Refused(format!(
        "the transaction needs more than {} operations, or is too large",
        limits::TXN_OPS
    )))
}

/// What etcd refuses before it looks at the store.
fn well_formed(txn: &Txn) -> Result<(), Failure> {
    let nameless = |compare: &Compare| match compare {
        Compare::Create(key, _) | Compare::Mod(key, _) | Compare::Empty(key) => key.is_empty(),
    };
    if txn.compares.iter().any(nameless) || txn.then.iter().chain(&txn.otherwise).any(has_no_key) {
        return Err(refused("etcdserver: key is not provided"));
    }
    if writes_twice(&txn.then) || writes_twice(&txn.otherwise) {
        return Err(refused("etcdserver: duplicate key given in txn request"));
    }
    Ok(())
}

fn has_no_key(op: &Op) -> bool {
    match op {
        Op::Get(key) | Op::Put(key, ..) | Op::Delete(key) | Op::DeleteIf(key, _) => key.is_empty(),
        Op::List(list) => list.start.is_empty(),
        // The client reads all keys instead.
        Op::Places { .. } => false,
    }
}

fn writes_twice(ops: &[Op]) -> bool {
    ops.iter().enumerate().any(|(index, op)| {
        let Op::Put(key, ..) = op else { return false };
        let written = |other: &Op| match other {
            Op::Put(other, ..) | Op::Delete(other) | Op::DeleteIf(other, _) => other == key,
            Op::Get(_) | Op::List(_) | Op::Places { .. } => false,
        };
        ops.iter().enumerate().any(|(other, op)| other != index && written(op))
    })
}

fn has_put(txn: &Txn) -> bool {
    txn.then.iter().chain(&txn.otherwise).any(|op| matches!(op, Op::Put(..)))
}

fn no_space() -> Failure {
    Failure::NoSpace("etcdserver: mvcc: database space exceeded".to_owned())
}

fn refused(why: &str) -> Failure {
    Failure::Refused(why.to_owned())
}

fn limit(limit: i64) -> usize {
    usize::try_from(limit).ok().filter(|limit| *limit > 0).unwrap_or(usize::MAX)
}

fn entry(key: &[u8], record: &Record) -> Entry {
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
