//! Kubernetes' answers about pods, ResourceClaims and nodes, in the form that the verdict needs.

use std::collections::{BTreeMap, HashMap, HashSet};

use metes_core::pool::record;

use crate::api::{Node, Phase, Pod};
use crate::holder::{Holder, OwnerFacts};

/// The pods of a cluster and the ResourceClaims of some records, by the names and UIDs that records may use for them.
#[derive(Debug, Default)]
pub struct Pods {
    by_uid: HashMap<Box<str>, Phase>,
    /// For each static pod's UID, the UIDs of the pods whose annotations say that they mirror it. Anybody who makes a
    /// pod writes its annotations. So they never change the phase of a pod under its own UID, and each mirror is kept
    /// by itself.
    by_static_uid: HashMap<Box<str>, Vec<Box<str>>>,
    by_name: HashMap<Box<str>, Phase>,
    /// Only these names are kept.
    wanted: HashSet<Box<str>>,
    claims: HashSet<Box<str>>,
    /// True once all existing claims were seen.
    knows_all_claims: bool,
    /// Only these claims are kept.
    wanted_claims: HashSet<Box<str>>,
    seen: usize,
}

impl Pods {
    /// No pods yet. Only the names that a record without a UID needs are kept, and only the claims that have a record.
    #[must_use]
    pub fn for_holders(holders: &[Holder]) -> Self {
        let mut pods = Self::default();
        holders.iter().for_each(|holder| pods.want(holder));
        pods
    }

    /// Keeps what this record needs of what is taken from now on.
    pub(crate) fn want(&mut self, holder: &Holder) {
        let Some(OwnerFacts { pod, .. }) = &holder.record else { return };
        if holder.is_of_claim() {
            self.wanted_claims.insert(holder.owner.container_id.as_str().into());
        } else if pod.uid.is_none() && !pod.name.is_empty() {
            self.wanted.insert(name_key(&pod.namespace, &pod.name));
        }
    }

    /// True if any record belongs to a claim.
    pub(crate) fn wants_claims(&self) -> bool {
        !self.wanted_claims.is_empty()
    }

    /// Takes the UID of a claim.
    pub fn see_claim(&mut self, uid: &str) {
        if self.wanted_claims.contains(uid) {
            self.claims.insert(uid.into());
        }
    }

    /// All existing claims were taken.
    pub fn no_more_claims(&mut self) {
        self.knows_all_claims = true;
    }

    /// True if the claim with this UID exists; none if nobody can say.
    pub(crate) fn has_claim(&self, uid: &str) -> Option<bool> {
        self.knows_all_claims.then(|| self.claims.contains(uid))
    }

    /// Takes a pod. If a pod is taken twice, the last phase counts.
    pub fn see(&mut self, pod: &Pod, phase: Phase) {
        self.seen += usize::from(phase == Phase::Active);
        self.by_uid.insert(pod.uid.as_str().into(), phase);
        for uid in &pod.static_uids {
            let mirrors = self.by_static_uid.entry(uid.as_str().into()).or_default();
            if mirrors.iter().all(|known| **known != *pod.uid) {
                mirrors.push(pod.uid.as_str().into());
            }
        }
        let name = name_key(&pod.namespace, &pod.name);
        if self.wanted.contains(&name) {
            self.by_name.insert(name, phase);
        }
    }

    /// True if the pod with this UID in the API may have running containers.
    pub(crate) fn is_active(&self, uid: &str) -> bool {
        self.by_uid.get(uid) == Some(&Phase::Active)
    }

    /// The number of pods taken. A pod that was taken again as finished counts once.
    #[must_use]
    pub fn count(&self) -> usize {
        self.seen
    }

    /// The phase of a record's pod; none if the pod does not exist. The name counts only if the record has no UID:
    /// another pod may have the same name.
    pub(crate) fn phase(&self, pod: &record::Pod) -> Option<Phase> {
        match &pod.uid {
            None => self.by_name.get(&name_key(&pod.namespace, &pod.name)).copied(),
            Some(uid) => {
                self.by_uid.get(uid.as_str()).copied().or_else(|| self.phase_of_mirrors(uid.as_str()))
            }
        }
    }

    /// A static pod may run as long as one of the pods that say they mirror it may run.
    fn phase_of_mirrors(&self, static_uid: &str) -> Option<Phase> {
        let mirrors = self.by_static_uid.get(static_uid)?;
        let may_run = mirrors.iter().any(|uid| self.by_uid.get(uid) == Some(&Phase::Active));
        Some(if may_run { Phase::Active } else { Phase::Finished })
    }
}

fn name_key(namespace: &str, name: &str) -> Box<str> {
    format!("{namespace}/{name}").into()
}

/// The nodes of a cluster.
#[derive(Debug, Default)]
pub struct Nodes {
    /// Sorted, because a pass writes down the new ones.
    present: BTreeMap<String, Node>,
    /// The names of the nodes that an earlier pass saw, and of the present ones.
    remembered: HashSet<String>,
}

impl Nodes {
    /// Takes a node.
    pub fn see(&mut self, node: Node) {
        self.present.insert(node.name.clone(), node);
    }

    /// Takes the name of a node that exists or existed.
    pub fn remember(&mut self, node: String) {
        self.remembered.insert(node);
    }

    /// The number of present nodes.
    pub(crate) fn count(&self) -> usize {
        self.present.len()
    }

    /// The names of the present nodes.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.present.keys().map(String::as_str)
    }

    /// True if a node of this name exists.
    pub(crate) fn knows(&self, node: &str) -> bool {
        self.present.contains_key(node)
    }

    /// True if a node of this name exists, or is known to have existed. Any other node may belong to another cluster.
    pub(crate) fn has_known(&self, node: &str) -> bool {
        self.knows(node) || self.remembered.contains(node)
    }

    /// True if a node exists, is not Ready, and may still run containers. A node that does not exist says nothing about
    /// its containers: only the pods count then.
    pub(crate) fn is_cut_off(&self, node: &str) -> bool {
        self.present.get(node).is_some_and(|node| !node.ready && !is_off(node))
    }

    /// True if nothing of this boot can still run on a node, because the node is known to be in another boot, or is
    /// off.
    pub(crate) fn has_lost(&self, node: &str, boot: Option<&str>) -> bool {
        let Some(node) = self.present.get(node) else { return false };
        let runs_another = boot.is_some_and(|boot| !node.boot.is_empty() && node.boot != boot);
        is_off(node) || runs_another
    }

    /// True if a node works and may have a container of this boot. Then its runtime must still call DEL.
    pub(crate) fn owes_del(&self, node: &str, boot: Option<&str>) -> bool {
        self.present.get(node).is_some_and(|node| node.ready) && !self.has_lost(node, boot)
    }
}

/// If a node's kubelet reports that it works, the node is not off: somebody forgot to remove the taint.
fn is_off(node: &Node) -> bool {
    node.out_of_service && !node.ready
}
