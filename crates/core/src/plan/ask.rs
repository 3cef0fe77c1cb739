//! An ADD as it is configured: it asks for addresses. Pure.

use serde::{Deserialize, Serialize};

use super::known_pool::DecodedPools;
use super::pools;
use crate::keys::{Bytes, HintName, Keys, digest_hex};
use crate::pool::{
    AskedRanges, ClusterName, Facts, InterfaceName, InvalidName, Keep, Labels, Owner, Pod, PoolsWanted,
    Record, Reservation, RunStart, Seat, Subject, Wanted,
};
use crate::snapshot::Snapshot;

/// An ADD as its caller asks for it. By what was read, it becomes a `Resolved`.
#[derive(Debug, Clone)]
pub struct Ask {
    /// For whom.
    pub owner: Owner,
    /// Labels for the records: the pod and the CNI network.
    pub labels: Labels,
    /// The addresses that it is to reserve.
    pub wanted: Wanted,
    /// The run that asks.
    pub stamp: RunStamp,
    /// The addresses belong to the pod's name; none: to the container.
    pub sticky: Option<Sticky>,
    /// Selects the node's page for `spread`.
    pub node_seed: u64,
}

/// The addresses of an ADD outlive the pod: a hold has them, and the container a seat of that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sticky {
    /// The owner of the addresses.
    pub hold: Owner,
    /// For how long a hold that is made now stays after its last use; none: its pools say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<Keep>,
}

impl Sticky {
    /// The hold for the interface of a pod.
    ///
    /// # Errors
    /// [`InvalidName`] if the pod's names cannot be part of a key.
    pub fn of_pod(
        cluster: ClusterName,
        pod: &Pod,
        ifname: InterfaceName,
        keep: Option<Keep>,
    ) -> Result<Self, InvalidName> {
        let subject = Subject { namespace: pod.namespace.clone(), name: pod.name.clone() };
        Ok(Self { hold: Owner::of_pod(cluster, &subject, ifname)?, keep })
    }
}

/// A run, as the records say that it writes.
#[derive(Debug, Clone)]
pub struct RunStamp {
    /// When it began.
    pub start: RunStart,
    /// The machine that it runs on; empty if that has no id.
    pub machine: String,
    /// For people, on each reservation.
    pub created_at: String,
}

impl Ask {
    /// A run asks on behalf of `owner`.
    #[must_use]
    pub fn new(owner: Owner, labels: Labels, wanted: impl Into<Wanted>, stamp: RunStamp) -> Self {
        let digest = digest_hex(owner.node.as_str().as_bytes());
        let node_seed = u64::from_str_radix(&digest[..16], 16).unwrap_or_default();
        Self { owner, labels, wanted: wanted.into(), stamp, sticky: None, node_seed }
    }

    /// The same for addresses that outlive the pod.
    #[must_use]
    pub fn sticky(self, sticky: Option<Sticky>) -> Self {
        Self { sticky, ..self }
    }

    /// The ranges of its configuration, as they are kept; none if it has no range, or pools. A pool says itself which
    /// ranges it has.
    pub(crate) fn asked_ranges(&self) -> Option<AskedRanges> {
        let Wanted::Ranges(ranges) = &self.wanted else { return None };
        if ranges.sets.is_empty() {
            return None;
        }
        let (cluster, cni_network) = (self.owner.cluster.clone(), self.labels.cni_network.clone());
        Some(AskedRanges::new(cluster, cni_network, ranges.sets.clone(), self.stamp.created_at.clone()))
    }

    /// Its pools, if it asks pools.
    pub(crate) fn pools(&self) -> Option<&PoolsWanted> {
        match &self.wanted {
            Wanted::Ranges(_) => None,
            Wanted::Pools(pools) => Some(pools),
        }
    }

    /// The name of the hints with the texts of its pools; none while its pools are not known.
    pub(crate) fn pools_hints(
        &self,
        keys: &Keys,
        seen: &Snapshot,
        decoded: &DecodedPools,
    ) -> Option<HintName> {
        let pools = self.pools()?;
        let (chosen, _) = pools::choose(pools, keys, seen, self.facts(pools), decoded).ok()?;
        Some(HintName::of_pools(chosen.names()))
    }

    /// The facts that pools may go by.
    pub(crate) fn facts<'a>(&'a self, pools: &'a PoolsWanted) -> Facts<'a> {
        Facts {
            cluster: self.owner.cluster.as_ref().map_or("", |cluster| cluster.as_str()),
            namespace: &self.labels.pod.namespace,
            pod: &self.labels.pod.name,
            network: &self.labels.cni_network,
            node: self.owner.node.as_str(),
            node_labels: &pools.node_labels,
        }
    }

    /// The reservation of one of its addresses, as it is stored.
    pub(crate) fn reservation(&self) -> Vec<u8> {
        let created_at = self.stamp.created_at.clone();
        Reservation::new(self.owner.clone(), created_at).encode()
    }

    /// The keys of its hold and of the seat that it takes; none if its addresses end with the container.
    pub(crate) fn hold_keys(&self, keys: &Keys) -> Option<[Bytes; 2]> {
        let Sticky { hold, .. } = self.sticky.as_ref()?;
        Some([keys.owner(hold), keys.seat(&Seat { hold: hold.clone(), n: Seat::FIRST })])
    }

    /// All keys that the first look needs while it is not known what its pools say.
    pub(crate) fn reads_without_pools(&self, keys: &Keys) -> Vec<Bytes> {
        let own = [keys.meta(), keys.owner(&self.owner), keys.tombstone(&self.owner)];
        own.into_iter()
            .chain(self.hold_keys(keys).into_iter().flatten())
            .chain(self.pools().into_iter().flat_map(|pools| pools::pool_keys(pools, keys)))
            .collect()
    }

    /// The ranges that it asks for.
    #[cfg(test)]
    pub(crate) fn ranges(&mut self) -> &mut crate::pool::RangesWanted {
        match &mut self.wanted {
            Wanted::Ranges(ranges) => ranges,
            Wanted::Pools(pools) => panic!("it asks pools: {pools:?}"),
        }
    }
}
