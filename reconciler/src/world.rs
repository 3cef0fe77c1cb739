//! What Kubernetes said of pods and nodes, as the verdict looks it up.

use std::collections::{HashMap, HashSet};

use metes::pool::record;

use crate::api::{Node, Phase, Pod};
use crate::holder::Holder;

/// The pods of a cluster, by what records may call them.
#[derive(Debug, Default)]
pub struct Pods {
    by_uid: HashMap<Box<str>, Phase>,
    /// The UIDs of the pods whose annotations say that they mirror this one. Whoever makes a pod writes its
    /// annotations: no pod's own UID is judged by those of another, and no mirror by what else claims to be one.
    by_static_uid: HashMap<Box<str>, Vec<Box<str>>>,
    by_name: HashMap<Box<str>, Phase>,
    /// The only names that are kept.
    wanted: HashSet<Box<str>>,
    seen: usize,
}

impl Pods {
    /// No pods yet; of names only those are kept that a record without a UID needs.
    #[must_use]
    pub fn for_holders(holders: &[Holder]) -> Self {
        let needs_name = |holder: &Holder| {
            let pod = &holder.record.as_ref()?.pod;
            (pod.uid.is_empty() && !pod.name.is_empty()).then(|| name_key(&pod.namespace, &pod.name))
        };
        Self { wanted: holders.iter().filter_map(needs_name).collect(), ..Self::default() }
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
        if pod.uid.is_empty() {
            self.by_name.get(&name_key(&pod.namespace, &pod.name)).copied()
        } else {
            self.by_uid.get(pod.uid.as_str()).copied().or_else(|| self.phase_of_mirrors(&pod.uid))
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
pub struct Nodes(HashMap<String, Node>);

impl Nodes {
    /// Takes a node.
    pub fn see(&mut self, node: Node) {
        self.0.insert(node.name.clone(), node);
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a node of this name exists.
    #[must_use]
    pub fn knows(&self, node: &str) -> bool {
        self.0.contains_key(node)
    }

    /// Whether a node exists and is not Ready. One that does not exist says nothing about its
    /// containers: there the pods alone count.
    #[must_use]
    pub fn is_cut_off(&self, node: &str) -> bool {
        self.0.get(node).is_some_and(|node| !node.ready)
    }

    /// Whether a node is known to run another boot than `boot`.
    #[must_use]
    pub fn has_rebooted_since(&self, node: &str, boot: Option<&str>) -> bool {
        let present = self.0.get(node).map(|node| node.boot.as_str()).filter(|boot| !boot.is_empty());
        matches!((present, boot), (Some(present), Some(boot)) if present != boot)
    }
}
