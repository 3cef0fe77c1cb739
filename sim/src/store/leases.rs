//! Leases: how long each lives, and which keys hang on it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use metes::store::keys::LeaseId;
use metes::store::kv::{Failure, LeaseAge};

use super::Key;
use super::refusal::refused;

/// The shortest time that etcd grants: one and a half of its election timeout, in whole seconds.
const SHORTEST: Duration = Duration::from_secs(2);
/// The longest time that etcd grants.
const LONGEST: Duration = Duration::from_secs(9_000_000_000);
/// What a new leader adds to the time of every lease.
const ELECTION_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
struct Lease {
    granted: Duration,
    ends: Duration,
    keys: BTreeSet<Key>,
}

/// All leases and the clock they live by.
#[derive(Debug, Clone, Default)]
pub(super) struct Leases {
    leases: BTreeMap<LeaseId, Lease>,
    /// The same leases by the time at which they end.
    ends: BTreeSet<(Duration, LeaseId)>,
    now: Duration,
}

impl Leases {
    /// Grants a lease and tells for how long.
    pub(super) fn grant(&mut self, id: LeaseId, ttl: Duration) -> Result<Duration, Failure> {
        let ttl = Duration::from_secs(ttl.as_secs());
        if ttl > LONGEST {
            return Err(refused("etcdserver: too large lease TTL"));
        }
        if self.exists(id) {
            return Err(Failure::LeaseExists);
        }
        let granted = ttl.max(SHORTEST);
        let ends = self.now + granted;
        self.leases.insert(id, Lease { granted, ends, keys: BTreeSet::new() });
        self.ends.insert((ends, id));
        Ok(granted)
    }

    /// Ends a lease; the keys that were on it, in order, or none if there is no such lease.
    pub(super) fn end(&mut self, id: LeaseId) -> Option<BTreeSet<Key>> {
        let lease = self.leases.remove(&id)?;
        self.ends.remove(&(lease.ends, id));
        Some(lease.keys)
    }

    /// The lease that ends next, if it does so until then.
    pub(super) fn next_to_end(&self, until: Duration) -> Option<LeaseId> {
        self.ends.first().filter(|(ends, _)| *ends <= until).map(|(_, id)| *id)
    }

    pub(super) fn exists(&self, id: LeaseId) -> bool {
        self.leases.contains_key(&id)
    }

    pub(super) fn age(&self, id: LeaseId) -> Option<LeaseAge> {
        let Lease { granted, ends, .. } = *self.leases.get(&id)?;
        // etcd tells whole seconds, and metes' client of it adds one for the fraction that is left out.
        let whole = ends.saturating_sub(self.now).as_secs();
        Some(LeaseAge { granted, left: Duration::from_secs(whole + 1).min(granted) })
    }

    pub(super) fn attach(&mut self, id: i64, key: &Key) {
        if let Some(lease) = self.leases.get_mut(&LeaseId(id)) {
            lease.keys.insert(Key::clone(key));
        }
    }

    pub(super) fn detach(&mut self, id: i64, key: &Key) {
        if let Some(lease) = self.leases.get_mut(&LeaseId(id)) {
            lease.keys.remove(key);
        }
    }

    pub(super) fn promote(&mut self) {
        self.ends.clear();
        for (id, lease) in &mut self.leases {
            lease.ends = self.now + ELECTION_TIMEOUT + lease.granted;
            self.ends.insert((lease.ends, *id));
        }
    }

    pub(super) fn now(&self) -> Duration {
        self.now
    }

    pub(super) fn set_now(&mut self, now: Duration) {
        self.now = now;
    }
}
