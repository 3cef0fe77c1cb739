//! Nodes and pods, as they are and as Kubernetes knows them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use metes_core::pool::{Owner, record};
use metes_node::mark::MarkFile;
use metes_node::node::Identity;
use metes_reconciler::api::{self, Phase, PodFilter};

use super::ids::SandboxId;
use super::plan::{Plan, Twins};
use super::wire::{Answer, Ask};
use super::works::Boot;
use super::{CLUSTER, Setup, World, checked};
use crate::mutant::Guard;

const NAMESPACE: &str = "ns";
/// The one interface of each pod that gets addresses.
pub(crate) const IFNAME: &str = "net1";

/// A node.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) boot: Boot,
    pub(crate) number: usize,
    boots: u64,
    /// True while Kubernetes hears its kubelet.
    pub(crate) is_ready: bool,
    pub(crate) lost_until: Option<Duration>,
    /// Pods, by slot and UID, that were deleted while nobody heard of it: their containers may still run.
    pub(crate) unheard: Vec<(usize, String)>,
}

impl Node {
    pub(crate) fn new(number: usize, twins: Twins, folder: &Path) -> Self {
        let folder: PathBuf = folder.join(format!("m{number}"));
        let (machine, name, cluster) = match twins {
            Twins::None => (number, number, CLUSTER),
            Twins::OfOneCluster => (number, number / 2, CLUSTER),
            Twins::OfTwoClusters => (number, number / 2, [CLUSTER, "west"][number % 2]),
            Twins::OfOneMachine => (number / 2, number, CLUSTER),
        };
        let machine = format!("m{machine}");
        let identity =
            Identity { node: checked(&format!("n{name}")), cluster: Some(checked(cluster)), machine };
        let boot = Boot {
            id: format!("m{number}-b0"),
            identity,
            confused_with: None,
            since: Duration::ZERO,
            folder,
        };
        Self { boot, number, boots: 0, is_ready: true, lost_until: None, unheard: Vec::new() }
    }

    /// The files by which its machine knows its names, as they are now.
    pub(crate) fn image(&self) -> Option<Image> {
        let of_key = self.mark().read()?.seen.key?;
        let read = |name: &'static str| Some((name, std::fs::read(self.boot.folder.join(name)).ok()?));
        let files = ["names", "mark"].into_iter().filter_map(read).collect();
        Some(Image { of: self.number, key: of_key.name.into_bytes(), revision: of_key.revision, files })
    }

    /// The owner that a container's interface is on this node.
    pub(crate) fn owner(&self, container_id: &str) -> Owner {
        let Identity { node, cluster, .. } = self.boot.identity.clone();
        Owner { node, container_id: checked(container_id), ifname: checked(IFNAME), cluster }
    }

    pub(crate) fn mark(&self) -> MarkFile {
        self.boot.state().mark()
    }

    /// Comes up anew.
    pub(crate) fn reboot(&mut self, now: Duration) {
        self.boots += 1;
        self.boot.id = format!("m{}-b{}", self.number, self.boots);
        self.boot.since = now;
    }
}

/// The disk of a node, from which another one may be made.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) of: usize,
    /// The own key that the node had left in the store by then, and its revision.
    pub(crate) key: Vec<u8>,
    pub(crate) revision: i64,
    files: Vec<(&'static str, Vec<u8>)>,
}

impl Image {
    pub(crate) fn install(&self, folder: &Path) -> std::io::Result<()> {
        std::fs::create_dir_all(folder)?;
        self.files.iter().try_for_each(|(name, content)| std::fs::write(folder.join(name), content))
    }
}

/// The nodes of a world. Each has its identity, except for the part that the world's mutant leaves out.
pub(crate) fn nodes(setup: &Setup<'_>, plan: &Plan) -> Vec<Node> {
    let is_left_out = |guard| setup.mutant.is_some_and(|mutant| mutant.0 == guard);
    let mut nodes: Vec<Node> =
        (0..plan.nodes).map(|number| Node::new(number, plan.twins, setup.folder)).collect();
    for node in &mut nodes {
        let Identity { machine, cluster, .. } = &mut node.boot.identity;
        if is_left_out(Guard::OWNER_MACHINE) || is_left_out(Guard::OWNER_CLUSTER) {
            machine.clear();
        }
        if is_left_out(Guard::OWNER_CLUSTER) {
            *cluster = Some(checked(CLUSTER));
        }
    }
    if is_left_out(Guard::SPOOL_MACHINE) && plan.twins.share_a_name() {
        for number in 0..nodes.len() {
            nodes[number].boot.confused_with = Some(nodes[number ^ 1].boot.identity.clone());
        }
    }
    nodes
}

/// The labels of a pod's records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Labelling {
    /// As the kubelet does it.
    #[default]
    Whole,
    /// Without the UID.
    Named,
    /// Not at all: the records are of no pod.
    None,
    /// As a static pod without a mirror: with a UID of the kubelet's, of which the API knows nothing.
    Static,
}

/// The state of a pod in Kubernetes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Life {
    /// There is none of this name.
    #[default]
    None,
    Active,
    Finished,
}

/// A pod's name, and the pod that has it now.
#[derive(Debug, Default)]
pub(crate) struct PodSlot {
    /// No pod gets the name for so many operations.
    pub(crate) rests: u32,
    pub(crate) uid: String,
    pub(crate) name: String,
    pub(crate) node: usize,
    pub(crate) config: usize,
    pub(crate) labelling: Labelling,
    pub(crate) life: Life,
    /// Its containers are to end.
    pub(crate) is_doomed: bool,
    pub(crate) sandboxes: u64,
    /// The number of pods that have had the name.
    pub(crate) generation: u64,
    pub(crate) current: Option<SandboxId>,
    /// Earlier sandboxes whose DEL, as far as the runtime has heard, has not succeeded.
    pub(crate) old: Vec<SandboxId>,
}

impl PodSlot {
    pub(crate) fn labels(&self) -> record::Pod {
        let (namespace, name) = (NAMESPACE.to_owned(), self.name.clone());
        match self.labelling {
            Labelling::Whole | Labelling::Static => {
                record::Pod { namespace, name, uid: Some(checked(&self.uid)) }
            }
            Labelling::Named => record::Pod { namespace, name, uid: None },
            Labelling::None => record::Pod::default(),
        }
    }

    fn as_told(&self) -> api::Pod {
        api::Pod {
            namespace: NAMESPACE.to_owned(),
            name: self.name.clone(),
            uid: self.uid.clone(),
            ..api::Pod::default()
        }
    }

    fn phase(&self) -> Option<Phase> {
        match self.life {
            _ if matches!(self.labelling, Labelling::None | Labelling::Static) => None,
            Life::None => None,
            Life::Active => Some(Phase::Active),
            Life::Finished => Some(Phase::Finished),
        }
    }
}

impl World<'_> {
    /// Answers as Kubernetes does.
    pub(crate) fn ask_api(&mut self, ask: &Ask, is_rogue: bool) -> Answer {
        match ask {
            // It has the same pods, as if it had been restored from the first cluster's backup. The two must not go by
            // one name.
            Ask::ClusterUid if is_rogue => Answer::ClusterUid(Ok("uid-of-another".to_owned())),
            Ask::ClusterUid => Answer::ClusterUid(Ok("uid-of-east".to_owned())),
            Ask::Pods(which) => {
                let is_meant = |phase: Phase| *which == PodFilter::All || phase == Phase::Finished;
                let pods = self.pods.iter().filter(|pod| pod.phase().is_some_and(is_meant));
                Answer::Pods(Ok(pods.map(PodSlot::as_told).collect()))
            }
            Ask::Nodes => {
                // Two machines of one name have one Node, which says of neither that it was started again.
                let of_name = |name: &metes_core::pool::NodeName| {
                    self.nodes
                        .iter()
                        .filter(move |other| other.boot.identity.node == *name)
                        .collect::<Vec<_>>()
                };
                let told = |node: &Node| {
                    let twins = of_name(&node.boot.identity.node);
                    api::Node {
                        name: node.boot.identity.node.to_string(),
                        ready: twins.iter().all(|twin| twin.is_ready),
                        out_of_service: false,
                        boot: if twins.len() == 1 { node.boot.id.clone() } else { String::new() },
                    }
                };
                let is_here = |node: &&Node| node.boot.identity.cluster == Some(checked(CLUSTER));
                let nodes = self.nodes.iter().filter(is_here).filter(|node| !self.is_absent(node));
                Answer::Nodes(Ok(nodes.map(told).collect()))
            }
            Ask::Pod(name) => {
                let pod = self.pods.iter().find(|pod| pod.name == *name);
                Answer::Pod(Ok(pod.and_then(|pod| Some((pod.as_told(), pod.phase()?)))))
            }
            _ => unreachable!("that is for the store"),
        }
    }
}
