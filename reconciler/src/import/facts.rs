//! The facts about pools, pods and definitions that the import needs. Pure.

use std::collections::{HashMap, HashSet};
use std::fmt;

use metes_config::selection::Selection;
use metes_core::pool::{Addr, ClusterName, Held, InterfaceName, NetworkName, Owner, OwnerRecord, PodUid};

use super::nads::Use;
use super::pools::{Entry, Pool};
use crate::api::Phase;
use crate::running::{Interface, Running};

/// The name that an entry gives to its pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodRef {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl PodRef {
    /// Reads `namespace/name`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (namespace, name) = text.split_once('/')?;
        let is_whole = !namespace.is_empty() && !name.is_empty() && !name.contains('/');
        is_whole.then(|| Self { namespace: namespace.to_owned(), name: name.to_owned() })
    }
}

impl fmt::Display for PodRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The facts about a pod that the import needs.
#[derive(Debug, Clone)]
pub struct PodFacts {
    /// The UID that the plugin gets.
    pub(crate) uid: String,
    /// The node that it runs on; none before it is scheduled.
    pub(crate) node: Option<String>,
    /// `Active` if it may run.
    pub(crate) phase: Phase,
    /// The interfaces that multus wrote down, or why they cannot be read; none if nobody wrote them down.
    pub(crate) interfaces: Option<Result<Vec<Interface>, String>>,
    /// The networks that it asked for.
    pub(crate) asked: Vec<Selection>,
    /// True if its sandbox exists.
    pub(crate) is_up: bool,
}

impl PodFacts {
    /// Keeps what is needed of a pod.
    pub(crate) fn of(pod: Running, phase: Phase) -> Self {
        let named = |interfaces: &Vec<Interface>| pod.named(interfaces);
        let interfaces = pod.interfaces.as_ref().map(|told| told.as_ref().map(named).map_err(String::clone));
        Self {
            uid: pod.uid,
            node: Some(pod.node).filter(|node| !node.is_empty()),
            phase,
            interfaces,
            asked: pod.asked,
            is_up: pod.is_up,
        }
    }

    /// A pod that is gone. All that is known is that it may still run on this node.
    pub(super) fn cut_off(node: &str) -> Self {
        let (uid, asked) = (String::new(), Vec::new());
        // A pod that is known to run comes before it.
        let phase = Phase::Finished;
        Self { uid, node: Some(node.to_owned()), phase, interfaces: None, asked, is_up: false }
    }

    /// True if a record with this pod UID belongs to the pod.
    pub(super) fn goes_by(&self, uid: Option<&PodUid>) -> bool {
        self.uid == uid.map_or("", PodUid::as_str)
    }

    pub(super) fn told(&self) -> &[Interface] {
        match &self.interfaces {
            Some(Ok(interfaces)) => interfaces,
            _ => &[],
        }
    }
}

/// The addresses that metes holds for pods of this cluster, by pod UID.
#[derive(Debug, Default)]
pub struct HeldByPods(HashMap<PodUid, Vec<(InterfaceName, NetworkName, Addr)>>);

impl HeldByPods {
    pub(crate) fn see(&mut self, owner: &Owner, record: &OwnerRecord) {
        let Some(uid) = &record.labels.pod.uid else { return };
        let place =
            |held: &Held| Some((owner.ifname.clone(), held.network.clone()?, Addr::from(held.address)));
        self.0.entry(uid.clone()).or_default().extend(record.addresses.iter().filter_map(place));
    }

    /// The interfaces of a pod, and what each holds.
    pub(super) fn of(&self, uid: &str) -> &[(InterfaceName, NetworkName, Addr)] {
        self.0.get(uid).map_or(&[], Vec::as_slice)
    }
}

/// A reservation of overlapping ranges, as it was read.
#[derive(Debug, Clone)]
pub struct Reservation {
    /// `namespace/name`.
    pub(crate) title: String,
    pub(crate) name: String,
    pub(crate) entry: Entry,
}

/// Everything that was read.
#[derive(Debug)]
pub struct World<'a> {
    /// The pools.
    pub pools: &'a [Pool],
    /// The reservations of overlapping ranges.
    pub reservations: &'a [Reservation],
    /// The `ipam` sections that ask for addresses.
    pub uses: &'a [&'a Use],
    /// The definitions that use neither plugin, as `namespace/name`.
    pub others: &'a HashSet<String>,
    /// The pods that entries name, and those that use something besides the cluster's own network.
    pub pods: &'a HashMap<PodRef, PodFacts>,
    /// The addresses that metes already holds for pods.
    pub held: &'a HeldByPods,
    /// The nodes that are not Ready: pods that are gone may still run there.
    pub cut_off: &'a [String],
    /// This cluster's name.
    pub cluster: &'a ClusterName,
}
