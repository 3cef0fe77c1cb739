//! What Kubernetes said of pods, ResourceClaims and nodes, as the verdict looks it up.

use std::collections::{BTreeMap, HashMap, HashSet};

use metes::pool::record;

use crate::api::{Node, Phase, Pod};
use crate::holder::Holder;

/// The pods of a cluster, and the ResourceClaims that some records are of, by what records may call them.
#[derive(Debug, Default)]
pub struct Pods {
    by_uid: HashMap<Box<str>, Phase>,
    /// The UIDs of the pods whose annotations say that they mirror this one. Whoever makes a pod writes its
    /// annotations: no pod's own UID is judged by those of another, and no mirror by what else claims to be one.
    by_static_uid: HashMap<Box<str>, Vec<Box<str>>>,
    by_name: HashMap<Box<str>, Phase>,
    /// The only names that are kept.
    wanted: HashSet<Box<str>>,
    claims: HashSet<Box<str>>,
    /// Whether there are no other claims than those that were seen.
    knows_all_claims: bool,
    /// The only claims that are kept.
    wanted_claims: HashSet<Box<str>>,
    seen: usize,
}

impl Pods {
    /// No pods yet; of names only those are kept that a record without a UID needs, of claims those that have a record.
    #[must_use]
    pub fn for_holders(holders: &[Holder]) -> Self {
        let needs_name = |holder: &Holder| {
            let pod = &holder.record.as_ref()?.pod;
            let goes_by_name = pod.uid.is_none() && !pod.name.is_empty() && !holder.is_of_claim();
            goes_by_name.then(|| name_key(&pod.namespace, &pod.name))
        };
        let of_claims = holders.iter().filter(|holder| holder.is_of_claim());
        Self {
            wanted: holders.iter().filter_map(needs_name).collect(),
            wanted_claims: of_claims.map(|holder| holder.owner.container_id.as_str().into()).collect(),
            ..Self::default()
        }
    }

    /// Whether any record is a claim's.
    #[must_use]
    pub fn wants_claims(&self) -> bool {
        !self.wanted_claims.is_empty()
    }

    /// Takes the UID of a claim.
    pub fn see_claim(&mut self, uid: &str) {
        if self.wanted_claims.contains(uid) {
            self.claims.insert(uid.into());
        }
    }

    /// All claims that there are were taken.
    pub fn no_more_claims(&mut self) {
        self.knows_all_claims = true;
    }

    /// Whether the claim of this UID exists; none if nobody can say.
    #[must_use]
    pub fn has_claim(&self, uid: &str) -> Option<bool> {
        self.knows_all_claims.then(|| self.claims.contains(uid))
    }

    /// Takes a pod; one that is seen twice has the phase that was seen last.
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

    /// How many pods were taken, those that were taken again as finished counted once.
    #[must_use]
    pub fn len(&self) -> usize {
        self.seen
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.seen == 0
    }

    /// The phase of a record's pod; none if it does not exist. The name counts only where no UID is
    /// known: another pod of that name is another pod.
    #[must_use]
    pub fn phase(&self, pod: &record::Pod) -> Option<Phase> {
        match &pod.uid {
            None => self.by_name.get(&name_key(&pod.namespace, &pod.name)).copied(),
            Some(uid) => {
                self.by_uid.get(uid.as_str()).copied().or_else(|| self.phase_of_mirrors(uid.as_str()))
            }
        }
    }

    /// As long as one of those that claim to mirror a static pod may run, it may.
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
    /// In an order of their own: a pass writes down the new ones.
    present: BTreeMap<String, Node>,
    /// The names of those that an earlier pass saw, and of these.
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

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.present.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.present.is_empty()
    }

    /// The names of those that there are.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.present.keys().map(String::as_str)
    }

    /// Whether a node of this name exists.
    #[must_use]
    pub fn knows(&self, node: &str) -> bool {
        self.present.contains_key(node)
    }

    /// Whether a node of this name exists or is known to have existed. Another one may be a node of another
    /// cluster.
    #[must_use]
    pub fn has_known(&self, node: &str) -> bool {
        self.knows(node) || self.remembered.contains(node)
    }

    /// Whether a node exists, is not Ready, and may run all the same. One that does not exist says nothing about
    /// its containers: there the pods alone count.
    #[must_use]
    pub fn is_cut_off(&self, node: &str) -> bool {
        self.present.get(node).is_some_and(|node| !node.ready && !is_off(node))
    }

    /// Whether nothing of this boot can run on a node any more: the node is known to run another one, or is off.
    #[must_use]
    pub fn has_lost(&self, node: &str, boot: Option<&str>) -> bool {
        let Some(node) = self.present.get(node) else { return false };
        let runs_another = boot.is_some_and(|boot| !node.boot.is_empty() && node.boot != boot);
        is_off(node) || runs_another
    }

    /// Whether a node is at work and may have a container of this boot: then its runtime still has to call DEL.
    #[must_use]
    pub fn owes_del(&self, node: &str, boot: Option<&str>) -> bool {
        self.present.get(node).is_some_and(|node| node.ready) && !self.has_lost(node, boot)
    }
}

/// A node whose kubelet says that it works is not off, whoever forgot to take the taint away.
fn is_off(node: &Node) -> bool {
    node.out_of_service && !node.ready
}
