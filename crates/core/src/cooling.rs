//! The leases that the keys of cooling addresses hang on.
//!
//! A freed address with a cooldown keeps its bit, and gets a key on a lease. As long as the key stands, nobody clears
//! the bit, so no scan finds the address, and no ADD pays for that. After that the bit is a stray one. Only etcd
//! measures the time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::keys::LeaseId;
use crate::limits;

/// The time of a lease for this cooldown, if it is granted now.
#[must_use]
pub fn ttl(cooldown_s: u32) -> Duration {
    Duration::from_secs(cooldown_s.into()) + limits::COOLING_SHARED
}

/// Leases by the cooldown that they are for, in seconds.
#[derive(Debug, Clone, Default)]
pub struct CoolingLeases {
    known: BTreeMap<u32, CoolingLease>,
}

#[derive(Debug, Clone, Copy)]
struct CoolingLease {
    id: LeaseId,
    usable_until: Instant,
    is_new: bool,
}

impl CoolingLeases {
    /// Takes over a lease that another run of the node has left, and that is of this age `now`.
    pub fn left_behind(&mut self, cooldown_s: u32, id: LeaseId, age: Duration, now: Instant) {
        let usable_until = now + limits::COOLING_USED_WITHIN.saturating_sub(age);
        self.known.insert(cooldown_s, CoolingLease { id, usable_until, is_new: false });
    }

    /// Takes over a lease that was asked for at `asked`.
    pub fn granted(&mut self, cooldown_s: u32, id: LeaseId, asked: Instant) {
        let usable_until = asked + limits::COOLING_USED_WITHIN;
        self.known.insert(cooldown_s, CoolingLease { id, usable_until, is_new: true });
    }

    /// True if a free that is planned now needs another lease for this cooldown.
    pub fn lacks(&self, cooldown_s: u32, now: Instant) -> bool {
        self.known.get(&cooldown_s).is_none_or(|lease| lease.usable_until <= now)
    }

    pub(crate) fn get(&self, cooldown_s: u32) -> Option<LeaseId> {
        self.known.get(&cooldown_s).map(|lease| lease.id)
    }

    /// Takes over those that another free was granted.
    pub fn learn(&mut self, other: Self) {
        self.known.extend(other.known.into_iter().filter(|(_, lease)| lease.is_new));
    }

    /// One of them has ended.
    pub(crate) fn forget(&mut self) {
        self.known.clear();
    }

    /// Those that were granted since.
    pub fn new_ones(&self) -> impl Iterator<Item = (u32, LeaseId)> {
        self.known.iter().filter(|(_, lease)| lease.is_new).map(|(cooldown_s, lease)| (*cooldown_s, lease.id))
    }
}
