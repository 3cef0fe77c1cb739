//! Leases: how long each lives, and which keys hang on it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use metes_core::keys::LeaseId;
use metes_engine::kv::{Failure, LeaseAge};

use super::Key;
use super::refusal::refused;

/// The longest time that etcd grants.
const LONGEST: Duration = Duration::from_secs(9_000_000_000);
/// A new leader spreads leases if there are so many.
const MANY: u64 = 1000;
/// It lets so many of those end in a second.
const ENDS_PER_SECOND: u64 = 750;

/// The ways in which an etcd lets leases live beyond the time that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseRules {
    /// Its election timeout. A new leader adds it to the time of every lease, and none is shorter than one and a half
    /// of it.
    pub election_timeout: Duration,
    /// The number of leases of others, which would end before all that are known.
    pub others: u64,
    /// The most time by which a lease is revoked too late. The id of a lease decides how much of this it has.
    pub late: Duration,
    /// No lease that it grants now is shorter than this.
    pub least: Duration,
}

impl Default for LeaseRules {
    /// A server with default flags and nothing else to do.
    fn default() -> Self {
        Self {
            election_timeout: Duration::from_secs(1),
            others: 0,
            late: Duration::ZERO,
            least: Duration::ZERO,
        }
    }
}

impl LeaseRules {
    /// The time that it grants to a lease for which `asked` was asked.
    #[must_use]
    pub fn granted(&self, asked: Duration) -> Duration {
        let shortest = (self.election_timeout * 3 / 2).as_millis().div_ceil(1000) as u64;
        Duration::from_secs(asked.as_secs().max(shortest)).max(self.least)
    }

    /// The most that a new leader adds to the time of a lease.
    #[must_use]
    pub fn prolonged(&self) -> Duration {
        self.election_timeout + spread(self.others + MANY)
    }

    fn revoked(&self, ends: Duration, id: LeaseId) -> Duration {
        ends + self.late / 100 * (id.0.unsigned_abs() % 101) as u32
    }
}

/// The time that so many leases take which end one after the other.
fn spread(leases: u64) -> Duration {
    Duration::from_nanos(1_000_000_000 * leases / ENDS_PER_SECOND)
}

#[derive(Debug, Clone)]
struct Lease {
    granted: Duration,
    ends: Duration,
    keys: BTreeSet<Key>,
}

/// All leases and the clock they live by.
#[derive(Debug, Clone, Default)]
pub(super) struct Leases {
    pub(super) rules: LeaseRules,
    leases: BTreeMap<LeaseId, Lease>,
    /// The same leases by the time at which they are revoked.
    revoked: BTreeSet<(Duration, LeaseId)>,
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
        let granted = self.rules.granted(ttl);
        let ends = self.now + granted;
        self.leases.insert(id, Lease { granted, ends, keys: BTreeSet::new() });
        self.revoked.insert((self.rules.revoked(ends, id), id));
        Ok(granted)
    }

    /// Ends a lease; the keys that were on it, in order, or none if there is no such lease.
    pub(super) fn end(&mut self, id: LeaseId) -> Option<BTreeSet<Key>> {
        let lease = self.leases.remove(&id)?;
        self.revoked.remove(&(self.rules.revoked(lease.ends, id), id));
        Some(lease.keys)
    }

    /// The lease that ends next, if it does so until then.
    pub(super) fn next_to_end(&self, until: Duration) -> Option<LeaseId> {
        self.revoked.first().filter(|(revoked, _)| *revoked <= until).map(|(_, id)| *id)
    }

    pub(super) fn exists(&self, id: LeaseId) -> bool {
        self.leases.contains_key(&id)
    }

    pub(super) fn age(&self, id: LeaseId) -> Option<LeaseAge> {
        let Lease { granted, ends, .. } = *self.leases.get(&id)?;
        // A lease whose time is over is none for metes' client.
        if self.now >= ends + Duration::from_secs(1) {
            return None;
        }
        // etcd tells whole seconds, and metes' client of it adds one for the fraction that is left out.
        let whole = ends.saturating_sub(self.now).as_secs();
        Some(LeaseAge { granted, left: Duration::from_secs(whole + 1).min(granted) })
    }

    pub(super) fn rest(&self, id: LeaseId) -> Option<Duration> {
        Some(self.leases.get(&id)?.ends.saturating_sub(self.now))
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

    /// Each lease has its whole time again, and the election timeout more. Of many that would end together, the later
    /// ones get more, in the order in which they end.
    pub(super) fn promote(&mut self) {
        let LeaseRules { election_timeout, others, .. } = self.rules;
        let left = |(id, lease): (&LeaseId, &Lease)| (lease.granted + election_timeout, *id);
        let mut order: Vec<_> = self.leases.iter().map(left).collect();
        order.sort_unstable();
        let spreads = order.len() as u64 + others >= MANY;
        let mut base = order.first().map_or(Duration::ZERO, |(left, _)| *left);
        let mut next = base + Duration::from_secs(1);
        let mut ending = others;
        self.revoked.clear();
        for (left, id) in order {
            let mut delay = Duration::ZERO;
            ending += 1;
            if left > next {
                (base, next, ending) = (left, left + Duration::from_secs(1), 1);
            } else if spreads && ending > ENDS_PER_SECOND {
                delay = spread(ending).saturating_sub(left - base);
                next = base + delay;
            }
            let ends = self.now + left + delay;
            self.revoked.insert((self.rules.revoked(ends, id), id));
            if let Some(lease) = self.leases.get_mut(&id) {
                lease.ends = ends;
            }
        }
    }

    pub(super) fn now(&self) -> Duration {
        self.now
    }

    pub(super) fn set_now(&mut self, now: Duration) {
        self.now = now;
    }
}
