//! A model of etcd in memory: synchronous, deterministic, and exact in all that metes can see of etcd.
//!
//! It answers as `metes_etcd::Etcd` does over a real etcd 3.6, word for word.
//! `sim/tests/simulation/differential.rs` holds it to that: the same requests go to both, and the answers must be
//! equal, revisions and the texts of refusals included.
//!
//! # Modelled, each with its place in etcd
//!
//! Files are those of etcd's `server` module.
//!
//! - A transaction (`etcdserver/txn/txn.go`, `Txn`): the compares are judged, then the operations of the branch that is
//!   *taken* are checked (`checkTxn`), then all of it is written under one revision. A lease that does not exist or a
//!   revision that cannot be read refuses the whole transaction before anything is written; in the other branch it does
//!   no harm. The first operation that is wrong gives the reason.
//! - A key written twice, or written and deleted, in one branch refuses the transaction, and this in *both* branches
//!   (`etcdserver/api/v3rpc/key.go`, `checkTxnRequest`, `checkIntervals`). Deleted twice is fine.
//! - A transaction inside a transaction (`compareToPath`, `checkTxn` in `txn.go`): all compares, of all depths, are
//!   judged before anything is written, then all branches that are taken are checked. Its writes count for
//!   `checkIntervals` in both of its branches, which may put the same key. One gap of etcd's is kept: a key that one
//!   nested transaction puts and a *later* one deletes is not noticed.
//! - Revisions (`storage/mvcc/kvstore_txn.go`): an empty store has 1; a transaction that changes something takes the
//!   next one, one that deletes nothing takes none. Later operations see what earlier ones of their transaction wrote,
//!   a list at a revision of its own does not.
//! - Lists (`executeRange`, `storage/mvcc/index.go`): an empty end reads one key, an end of one zero byte reads to the
//!   last key, a limit up to 0 is none, the count is of the whole range. [`Op::Tickets`] is sorted by
//!   create revision. Tickets that one transaction created stay in the order of their names; etcd keeps that order for
//!   up to 12 of them (it sorts with Go's `sort.Sort`, which is not stable beyond).
//! - Leases (`lease/lessor.go`): whole seconds, at least one and a half of the election timeout; an id is refused while
//!   it lives. A key hangs on the lease of its last put, or on none. A lease that ends or is revoked takes its keys
//!   with it under one revision, in the order of their names, or under none if it has no keys. A new leader gives every
//!   lease its whole time again, and the election timeout more, and spreads many of them (`Promote`); the rest of a
//!   lease is told without the fraction of a second. [`LeaseRules::late`] is the delay of their ends (`runLoop`).
//! - Compaction (`storage/mvcc/kvstore.go`): below its revision nothing can be read, at its revision all can; one that
//!   goes back or beyond the newest revision changes nothing.
//! - Out of space (`storage/quota.go`, `etcdserver/api/v3rpc/quota.go`, `applierV3Capped` and `quotaApplierV3` in
//!   `etcdserver/apply/apply.go`): a transaction with a put in any branch, nested ones too, is refused before anything
//!   else of it is judged, and so is a grant; deletes, reads and revokes go on. With
//!   [`Model::set_space_noticed_late`] a put is applied and answered with the same error, as the requests are that
//!   were on their way when the space ran out.
//! - Refusals of the client itself ([`Txn::fits`]).
//!
//! # Not modelled
//!
//! - Users and permissions; versions and the compares and orders that metes does not use.
//! - Order: leases that end in the same moment do so in the order of their ids; etcd gives no order. Nor does it say
//!   which of many leases a new leader gives more time.
//! - Lease checkpoints.
//! - Members, connections and time-outs: the user of the model decides which requests are lost, late or answered from
//!   [the past](Model::stale).
//! - A history without end: the last changes are kept, as many as [`Model::with_history`] says, and older ones are
//!   compacted, as by etcd's `--auto-compaction-mode=revision`.

mod digest;
mod leases;
mod log;
mod past;
mod path;
mod refusal;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use metes_core::keys::{Bytes, LeaseId};
use metes_core::txn::{Found, NestedReply, Op, Reply, Txn};
use metes_engine::kv::{About, Event, Failure, LeaseAge};

use digest::Digest;
pub use leases::LeaseRules;
use leases::Leases;
use log::{Change, Log};
use past::{NEWEST, Past};
pub use path::Path;
pub(crate) use path::with_nested;
use refusal::{fits, has_put, no_space, well_formed};

/// The number of changes kept for reads in the past, unless told otherwise.
const HISTORY: usize = 1024;

/// The name of a key, shared by all that speak of it.
type Key = Arc<[u8]>;

/// A record of the store.
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

/// The space that the store has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Space {
    Enough,
    /// The alarm has not been raised yet: writes are applied, and the answer says that they were refused.
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

    /// The same model, with these rules for leases.
    #[must_use]
    pub fn with_leases(mut self, rules: LeaseRules) -> Self {
        self.leases.rules = rules;
        self
    }

    /// From now on it grants no lease that is shorter, whatever is asked for.
    pub fn grant_at_least(&mut self, least: Duration) {
        self.leases.rules.least = least;
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
        let path = now.path(txn);
        now.check(&path)?;
        let next = self.revision + 1;
        let NestedReply { succeeded, found } = self.take(&path, next);
        self.close_revision(next);
        if puts && self.space == Space::NoticedLate {
            return Err(no_space());
        }
        Ok(Reply { succeeded, revision: self.revision, found })
    }

    /// The answer of a member to a transaction that only reads, if `revision` is the newest it has applied.
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
        let path = then.path(txn);
        then.check(&path)?;
        let NestedReply { succeeded, found } = path.answer(&mut |op| then.read(op));
        Ok(Reply { succeeded, revision, found })
    }

    /// The branches that a transaction takes as the store is now.
    #[must_use]
    pub fn path<'t>(&self, txn: &'t Txn) -> Path<'t> {
        self.at(NEWEST).path(txn)
    }

    /// Grants a lease of `ttl`, of which the whole seconds count, and tells for how long.
    ///
    /// # Errors
    /// [`Failure::LeaseExists`], [`Failure::NoSpace`], or [`Failure::Refused`] for a time that is too long.
    pub fn grant(&mut self, lease: LeaseId, ttl: Duration) -> Result<Duration, Failure> {
        if self.space == Space::Full {
            return Err(no_space());
        }
        let granted = self.leases.grant(lease, ttl)?;
        self.digest.granted(lease, granted);
        if self.space == Space::NoticedLate { Err(no_space()) } else { Ok(granted) }
    }

    /// Ends a lease and deletes the keys on it.
    ///
    /// # Errors
    /// [`Failure::LeaseNotFound`], which [`metes_engine::kv::Kv::revoke`] does not tell.
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

    /// The age of a lease and the rest of its life; none if it has ended.
    #[must_use]
    pub fn lease_age(&self, lease: LeaseId) -> Option<LeaseAge> {
        self.leases.age(lease)
    }

    /// The time that a lease will live; after a new leader, this may be more than it was granted for.
    #[must_use]
    pub fn lease_rest(&self, lease: LeaseId) -> Option<Duration> {
        self.leases.rest(lease)
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

    /// The time that the model has been running, as far as [`Model::pass_time`] has told it.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.leases.now()
    }

    /// Another member becomes the leader: all leases start anew.
    pub fn promote_leader(&mut self) {
        self.leases.promote();
        self.digest.promoted();
    }

    /// Begins again with the content of a snapshot, as after `etcdutl snapshot restore`, with its revision raised by
    /// `bump` (`--bump-revision`).
    pub fn restore(&mut self, snapshot: &Self, bump: i64) {
        let now = self.now();
        *self = snapshot.clone();
        self.revision += bump;
        // Its first leader gives every lease its whole time again.
        self.leases.set_now(now);
        self.leases.promote();
        self.digest.promoted();
    }

    /// Forgets all before `revision`, if there is such a revision.
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

    /// The answer of a healthy member about itself.
    #[must_use]
    pub fn about(&self) -> About {
        let alarm = (self.space == Space::Full).then(|| "memberID:1 alarm:NOSPACE ".to_owned());
        About {
            version: "3.6.14".to_owned(),
            errors: alarm.into_iter().collect(),
            cluster: 1,
            member: 2,
            leader: 2,
        }
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

    /// The keys that were written or deleted after `revision`, each with the revision that did it; in order.
    pub fn changes_since(&self, revision: i64) -> impl Iterator<Item = (&[u8], i64)> {
        self.log.after(revision).map(|change| (&*change.key, change.revision))
    }

    /// The events of a watch on `keys` from `revision` on, in order.
    #[must_use]
    pub fn events_since(&self, revision: i64, keys: &[Bytes]) -> Vec<Event> {
        let changes: Vec<&Change> =
            self.log.after(revision).filter(|change| keys.iter().any(|key| **key == *change.key)).collect();
        let shown = changes.iter().enumerate().map(|(at, change)| {
            let next = changes[at + 1..].iter().find(|next| next.key == change.key);
            let record = next.map_or_else(|| self.records.get(&change.key), |next| next.before.as_ref());
            Event { key: change.key.to_vec(), entry: record.map(|record| past::entry(&change.key, record)) }
        });
        shown.collect()
    }

    /// Everything that is stored, in the order of the keys.
    pub fn entries(&self) -> impl Iterator<Item = (&[u8], &Record)> {
        self.records.iter().map(|(key, record)| (&**key, record))
    }

    /// The record under a key.
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

    /// Does the operations of a transaction, whose revision is `revision` if it changes anything.
    fn take(&mut self, path: &Path<'_>, revision: i64) -> NestedReply {
        path.answer(&mut |op| {
            match op {
                Op::Put(key, value, lease) => {
                    self.put(key, value, lease.map_or(0, |lease| lease.0), revision);
                }
                Op::Delete(key) => self.delete(key, revision),
                Op::Get(_) | Op::List(_) | Op::Tickets(..) => return self.at(NEWEST).read(op),
                Op::Nested(_) => {}
            }
            Found::default()
        })
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

#[cfg(test)]
mod tests {
    use metes_core::txn::List;

    use super::*;

    fn put(key: &str, value: &str) -> Txn {
        Txn { then: vec![Op::Put(key.into(), value.into(), None)], ..Txn::default() }
    }

    fn all(revision: i64) -> Txn {
        Txn::read(vec![Op::List(List { revision, ..List::prefix(b"/", 0) })])
    }

    fn delete(key: &str) -> Txn {
        Txn { then: vec![Op::Delete(key.into())], ..Txn::default() }
    }

    #[test]
    fn what_is_beyond_the_history_is_compacted() {
        let mut model = Model::with_history(3);
        let mut told = BTreeMap::from([(1, model.txn(&all(0)).unwrap())]);
        for txn in
            [put("/a", "1"), put("/b", "1"), put("/a", "2"), delete("/b"), put("/c", "1"), put("/b", "2")]
        {
            model.txn(&txn).unwrap();
            told.insert(model.revision(), model.txn(&all(0)).unwrap());
        }
        assert_eq!((model.oldest(), model.revision()), (4, 7));
        for (revision, reply) in told {
            if revision < 4 {
                assert_eq!(model.txn(&all(revision)), Err(Failure::Compacted));
            } else {
                assert_eq!(model.stale(revision, &all(0)).unwrap(), reply);
                assert_eq!(model.txn(&all(revision)).unwrap().found, reply.found);
            }
        }
        let changes: Vec<_> =
            model.changes_since(4).map(|(key, revision)| (key.to_vec(), revision)).collect();
        assert_eq!(changes, [(b"/b".to_vec(), 5), (b"/c".to_vec(), 6), (b"/b".to_vec(), 7)]);
    }

    #[test]
    fn a_transaction_beyond_the_history_is_dropped_as_a_whole() {
        let mut model = Model::with_history(1);
        let then = ["/a", "/b"].map(|key| Op::Put(key.into(), Vec::new(), None)).into();
        let reply = model.txn(&Txn { then, ..Txn::default() }).unwrap();
        assert_eq!((reply.revision, model.oldest(), model.changes_since(1).count()), (2, 2, 0));
        assert_eq!(model.txn(&put("/a", "1")).unwrap().revision, 3);
        assert_eq!(model.changes_since(2).count(), 1);
    }

    #[test]
    fn a_member_in_the_past_has_not_compacted_yet() {
        let mut model = Model::new();
        for value in ["1", "2", "3", "4"] {
            model.txn(&put("/a", value)).unwrap();
        }
        model.compact(4);
        model.txn(&put("/a", "5")).unwrap();
        assert!(model.stale(4, &all(2)).is_ok(), "it was compacted when revision 5 was the newest");
        assert_eq!(model.stale(5, &all(2)), Err(Failure::Compacted));
        assert_eq!(model.txn(&all(3)), Err(Failure::Compacted));
        assert!(model.txn(&all(4)).is_ok());
        let beyond = model.stale(4, &all(5));
        assert!(matches!(beyond, Err(Failure::Refused(_))), "revision 5 has not come there: {beyond:?}");
    }

    #[test]
    fn every_difference_shows_in_the_digest() {
        let second = Duration::from_secs(1);
        let differences: [fn(&mut Model); 9] = [
            |_| {},
            |model| drop(model.txn(&put("/b", "1"))),
            |model| drop(model.txn(&put("/a", "2"))),
            |model| drop(model.txn(&delete("/a"))),
            |model| drop(model.grant(LeaseId(2), Duration::from_secs(30))),
            |model| drop(model.revoke(LeaseId(1))),
            |model| model.pass_time(Duration::from_millis(1)),
            |model| model.promote_leader(),
            |model| model.set_space(true),
        ];
        let digests: std::collections::BTreeSet<u64> = differences
            .iter()
            .map(|difference| {
                let mut model = Model::new();
                model.grant(LeaseId(1), 30 * second).unwrap();
                model.txn(&put("/a", "1")).unwrap();
                difference(&mut model);
                model.pass_time(second);
                model.digest()
            })
            .collect();
        assert_eq!(digests.len(), differences.len());
    }
}
