//! The held addresses and their pods, in a few bytes for each. Pure.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use metes_core::pool::Addr;

use crate::api::Pod;

/// Addresses, each with a name of the pod that it is held for: a UID, or `namespace/name` if the record has none. Only
/// digests are kept. If two were equal by chance, an address that the store lacks would go unnoticed, nothing else.
#[derive(Debug, Default)]
pub(crate) struct HeldAddresses {
    hasher: RandomState,
    digests: HashSet<u64>,
}

impl HeldAddresses {
    /// Takes an address that is held for a pod, in whatever network.
    pub(crate) fn see(&mut self, address: Addr, pod: &str) {
        let digest = self.hasher.hash_one((address, pod));
        self.digests.insert(digest);
    }

    /// True if an address is held for a pod.
    pub(crate) fn has(&self, address: Addr, pod: &Pod) -> bool {
        let is_for = |name: &str| self.digests.contains(&self.hasher.hash_one((address, name)));
        is_for(&pod.uid) || pod.static_uids.iter().any(|uid| is_for(uid)) || is_for(&pod.full_name())
    }
}
