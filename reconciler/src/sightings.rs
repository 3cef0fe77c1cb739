//! The orphans that earlier passes of this cluster saw: one key for each. The age of the key's lease tells for how long
//! it has been an orphan.
//!
//! No clock of this machine counts: etcd tells the age of a lease. All orphans that one pass sees for the first time
//! share a lease. If a record was written again, or is an orphan for another reason than before, it counts as seen for
//! the first time.
//!
//! A new leader of etcd begins the time of all leases anew. So a pass writes an older sighting again, with its age so
//! far: then a new leader costs an hour at most.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use metes_core::keys::{Bytes, Key, Keys};
use metes_core::limits;
use metes_core::pool::{ClusterName, Owner, Record, Sighting};
use metes_core::txn::{Compare, Entry, Op, Txn};
use metes_engine::kv::{Failure, Kv};
use metes_engine::session::{Session, new_lease};
use metes_engine::walk::walk;

use crate::holder::Holder;
use crate::verdict::{Free, Graces, Orphan};

/// The shortest life of a sighting's lease, however short the grace is, because passes may be rare.
pub(crate) const REMEMBERED: Duration = Duration::from_secs(24 * 3600);
/// The lease lives this many times longer than the longest grace.
const GRACES: u32 = 4;
/// A sighting whose lease is so old is written again.
const WRITTEN_AGAIN: Duration = Duration::from_secs(3600);
/// The sightings of holds that one transaction writes: each is a transaction inside, with three compares.
const TOGETHER: usize = 96;
/// The longest lease that etcd grants is 9,000,000,000 s. This is a round number of years below that.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The life of a sighting's lease if what is seen must be so for as long as `grace`.
pub(crate) fn remembered_for(grace: Duration) -> Duration {
    REMEMBERED.max(grace.saturating_mul(GRACES)).min(LONGEST)
}

/// The memory of the passes of one cluster.
#[derive(Clone, Copy)]
pub(crate) struct Memory<'a, K> {
    pub(crate) session: Session<'a, K>,
    pub(crate) cluster: &'a ClusterName,
}

/// The memory of each owner.
#[derive(Debug, Default)]
pub(crate) struct Sightings(BTreeMap<Owner, SeenOrphan>);

#[derive(Debug)]
struct SeenOrphan {
    key: Bytes,
    /// None if it does not decode.
    sighting: Option<Sighting>,
    /// The mod revision of the sighting.
    revision: i64,
    /// None if its lease is gone: then nobody can say for how long it has been an orphan.
    lease_age: Option<Duration>,
}

impl SeenOrphan {
    /// For how long it has been an orphan.
    fn age(&self) -> Option<Duration> {
        let until_written = Duration::from_secs(self.sighting.as_ref()?.age_s);
        Some(until_written + self.lease_age?)
    }
}

impl Sightings {
    /// For how long this owner's record has been seen as an orphan for this reason.
    pub(crate) fn seen_for(&self, holder: &Holder, reason: Free) -> Duration {
        self.of(holder, reason).and_then(SeenOrphan::age).unwrap_or_default()
    }

    /// The compare that fails if the sighting has changed since.
    pub(crate) fn unchanged(&self, keys: &Keys, owner: &Owner) -> Compare {
        let seen = self.0.get(owner);
        Compare::Mod(keys.orphan(owner), seen.map_or(0, |seen| seen.revision))
    }

    fn of(&self, holder: &Holder, reason: Free) -> Option<&SeenOrphan> {
        let is_it = |seen: &&SeenOrphan| {
            let sighting = seen.sighting.as_ref();
            sighting.is_some_and(|s| s.reason == reason.name() && s.revision == holder.revision)
                && seen.lease_age.is_some()
        };
        self.0.get(&holder.owner).filter(is_it)
    }
}

impl<K: Kv> Memory<'_, K> {
    /// Reads what earlier passes saw.
    pub(crate) async fn recall(&self) -> Result<Sightings, Failure> {
        let prefix = self.session.keys.orphans(self.cluster);
        let see = |entries: &mut Vec<Entry>, entry| entries.push(entry);
        let (entries, _) = walk(self.session, &prefix, Vec::new, see).await?;
        let ages = self.session.lease_ages(entries.iter().map(|entry| entry.lease).collect()).await?;
        let seen = |entry: Entry| {
            let Ok(Key::Orphan(owner)) = self.session.keys.parse(&entry.key) else { return None };
            let (lease_age, revision) = (ages.get(&entry.lease).copied(), entry.mod_revision);
            let sighting = Sighting::decode(&entry.value).ok();
            Some((owner, SeenOrphan { key: entry.key, sighting, revision, lease_age }))
        };
        Ok(Sightings(entries.into_iter().filter_map(seen).collect()))
    }

    /// Forgets owners that are no longer orphans, and remembers new orphans, except those that need not wait. What is
    /// remembered of a hold must still be so when it is written: a pod may use the hold meanwhile, and then its time
    /// begins anew.
    ///
    /// # Errors
    /// [`Failure`]; for what was not remembered, the next pass counts as the first.
    pub(crate) async fn update(
        &self,
        known: &Sightings,
        orphans: &[(&Holder, Orphan)],
        graces: &Graces,
    ) -> Result<(), Failure> {
        let still: HashSet<&Owner> = orphans.iter().map(|(holder, _)| &holder.owner).collect();
        let over = known.0.iter().filter(|(owner, _)| !still.contains(owner));
        self.write("sightings", over.map(|(_, seen)| Op::Delete(seen.key.clone())).collect()).await?;
        let is_due = |(holder, orphan): &&(&Holder, Orphan)| {
            let is_old = |seen: &SeenOrphan| seen.lease_age >= Some(WRITTEN_AGAIN);
            !orphan.grace.is_zero() && known.of(holder, orphan.reason).is_none_or(is_old)
        };
        let (mut puts, mut of_holds) = (Vec::new(), Vec::new());
        let Session { kv, keys, until } = self.session;
        let lease = new_lease();
        let mut longest = graces.longest();
        for (holder, orphan) in orphans.iter().filter(is_due) {
            let age = known.seen_for(holder, orphan.reason);
            let sighting = Sighting::new(orphan.reason.name().to_owned(), holder.revision, orphan.grace);
            let put = Op::Put(keys.orphan(&holder.owner), sighting.since(age).encode(), Some(lease));
            if orphan.reason != Free::Unused {
                puts.push(put);
                continue;
            }
            longest = longest.max(orphan.grace);
            let seats = keys.seats_of(&holder.owner).map(|seat| Compare::Create(seat, 0));
            let compares = seats.into_iter().chain([known.unchanged(keys, &holder.owner)]).collect();
            let txn = Txn { step: "sighting", compares, then: vec![put], ..Txn::default() };
            of_holds.push(Op::Nested(Box::new(txn)));
        }
        if puts.is_empty() && of_holds.is_empty() {
            return Ok(());
        }
        kv.grant(lease, remembered_for(longest), until).await?;
        self.write("sightings", puts).await?;
        for some in of_holds.chunks(TOGETHER) {
            self.session.txn(&Txn { step: "sightings", then: some.to_vec(), ..Txn::default() }).await?;
        }
        Ok(())
    }

    /// Forgets owners that were freed.
    ///
    /// # Errors
    /// [`Failure`]; what was not forgotten vanishes with its lease.
    pub(crate) async fn forget<'o>(&self, owners: impl Iterator<Item = &'o Owner>) -> Result<(), Failure> {
        let forget = |owner| Op::Delete(self.session.keys.orphan(owner));
        self.write("sightings", owners.map(forget).collect()).await
    }

    /// Each of these writes may be lost or repeated without harm.
    pub(crate) async fn write(&self, step: &'static str, ops: Vec<Op>) -> Result<(), Failure> {
        for ops in ops.chunks(limits::TXN_OPS) {
            let txn = Txn { step, then: ops.to_vec(), ..Txn::default() };
            self.session.txn(&txn).await?;
        }
        Ok(())
    }
}
