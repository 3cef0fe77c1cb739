//! The orphans that earlier passes of this cluster saw: one key for each. The age of the key's lease tells for how long
//! it has been an orphan.
//!
//! No clock of this machine counts: etcd tells the age of a lease. All orphans that one pass sees for the first time
//! share a lease. If a record was written again, or is an orphan for another reason than before, it counts as seen for
//! the first time.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use metes_core::keys::{Bytes, Key};
use metes_core::limits;
use metes_core::pool::{ClusterName, Owner, Record, Sighting};
use metes_core::txn::{Entry, Op, Txn};
use metes_engine::kv::{Failure, Kv};
use metes_engine::session::{Session, new_lease};
use metes_engine::walk::walk;

use crate::holder::Holder;
use crate::verdict::{Free, Graces, Orphan};

/// The shortest life of a sighting's lease, however short the grace is, because passes may be rare.
pub(crate) const REMEMBERED: Duration = Duration::from_secs(24 * 3600);
/// The lease lives this many times longer than the longest grace.
const GRACES: u32 = 4;
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
    /// None if its lease is gone: then nobody can say for how long it has been an orphan.
    age: Option<Duration>,
}

impl Sightings {
    /// For how long this owner's record has been seen as an orphan for this reason.
    pub(crate) fn seen_for(&self, holder: &Holder, reason: Free) -> Duration {
        self.of(holder, reason).and_then(|seen| seen.age).unwrap_or_default()
    }

    fn of(&self, holder: &Holder, reason: Free) -> Option<&SeenOrphan> {
        let is_it = |seen: &&SeenOrphan| {
            let sighting = seen.sighting.as_ref();
            sighting.is_some_and(|s| s.reason == reason.name() && s.revision == holder.revision)
                && seen.age.is_some()
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
            let age = ages.get(&entry.lease).copied();
            Some((owner, SeenOrphan { key: entry.key, sighting: Sighting::decode(&entry.value).ok(), age }))
        };
        Ok(Sightings(entries.into_iter().filter_map(seen).collect()))
    }

    /// Forgets owners that are no longer orphans, and remembers new orphans, except those that need not wait.
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
        let is_new = |(holder, orphan): &&(&Holder, Orphan)| {
            !orphan.grace.is_zero() && known.of(holder, orphan.reason).is_none()
        };
        let news: Vec<_> = orphans.iter().filter(is_new).collect();
        if news.is_empty() {
            return Ok(());
        }
        let Session { kv, until, .. } = self.session;
        let lease = new_lease();
        kv.grant(lease, remembered_for(graces.longest()), until).await?;
        let put = |(holder, orphan): &(&Holder, Orphan)| {
            let sighting = Sighting::new(orphan.reason.name().to_owned(), holder.revision, orphan.grace);
            Op::Put(self.session.keys.orphan(&holder.owner), sighting.encode(), Some(lease))
        };
        self.write("sightings", news.into_iter().map(put).collect()).await
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
