//! The flags that choose among the held addresses.

use std::fmt;

use clap::Args;

use metes_core::pool::{NetworkName, Owner, Pod};

/// A choice of owners by where they are.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct Place {
    /// Only what is held on nodes of this name
    #[arg(long)]
    pub(super) node: Option<String>,
    /// Only what is held by nodes of this cluster; - for those whose host file names no cluster
    #[arg(long)]
    pub(super) cluster: Option<String>,
}

impl Place {
    /// True if the owner is there.
    pub(super) fn holds(&self, owner: &Owner) -> bool {
        self.node.as_ref().is_none_or(|node| owner.node == **node)
            && self.cluster.as_ref().is_none_or(|cluster| owner.cluster_or_dash() == cluster)
    }

    /// True if nothing is asked of it.
    pub(super) fn is_anywhere(&self) -> bool {
        self.node.is_none() && self.cluster.is_none()
    }
}

/// In words, each with a blank before.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(node) = &self.node {
            write!(f, " on node {node}")?;
        }
        match &self.cluster {
            Some(cluster) => write!(f, " in cluster {cluster}"),
            None => Ok(()),
        }
    }
}

/// A choice of held addresses.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct Filter {
    /// Only addresses of this network
    #[arg(long, value_parser = NetworkName::stored)]
    pub(super) network: Option<NetworkName>,
    #[command(flatten)]
    pub(super) place: Place,
    /// Only addresses of pods in this namespace
    #[arg(short, long)]
    pub(super) namespace: Option<String>,
    /// Only addresses of this pod
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = pod_name)]
    pub(super) pod: Option<PodName>,
}

impl Filter {
    /// True if all addresses are meant.
    pub(super) fn is_empty(&self) -> bool {
        let Self { network, place, namespace, pod } = self;
        network.is_none() && place.is_anywhere() && namespace.is_none() && pod.is_none()
    }

    /// What both mean; none if both say the same kind of thing.
    pub(super) fn and(&self, more: Filter) -> Option<Self> {
        fn either<T: Clone>(one: &Option<T>, other: Option<T>) -> Option<Option<T>> {
            match (one, other) {
                (Some(_), Some(_)) => None,
                (one, other) => Some(one.clone().or(other)),
            }
        }
        Some(Self {
            network: either(&self.network, more.network)?,
            place: Place {
                node: either(&self.place.node, more.place.node)?,
                cluster: either(&self.place.cluster, more.place.cluster)?,
            },
            namespace: either(&self.namespace, more.namespace)?,
            pod: either(&self.pod, more.pod)?,
        })
    }

    /// True if addresses of this pod are meant.
    pub(super) fn is_of(&self, pod: &Pod) -> bool {
        self.namespace.as_ref().is_none_or(|wanted| pod.namespace == *wanted)
            && self.pod.as_ref().is_none_or(|wanted| wanted.is(pod))
    }

    /// The network, if nothing else is asked of addresses.
    pub(super) fn network_alone(&self) -> Option<&NetworkName> {
        let Self { network, place, namespace, pod } = self;
        let is_alone = place.is_anywhere() && namespace.is_none() && pod.is_none();
        network.as_ref().filter(|_| is_alone)
    }

    /// True if all that is stored must be read to find what is meant.
    pub(super) fn needs_everything(&self) -> bool {
        let Self { network, place, namespace, pod } = self;
        network.is_none() && place.node.is_none() && namespace.is_none() && pod.is_none()
    }
}

/// In words, each with a blank before.
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(network) = &self.network {
            write!(f, " in network {network}")?;
        }
        write!(f, "{}", self.place)?;
        if let Some(namespace) = &self.namespace {
            write!(f, " in namespace {namespace}")?;
        }
        match &self.pod {
            Some(PodName { namespace, name }) => write!(f, " by pod {namespace}/{name}"),
            None => Ok(()),
        }
    }
}

/// A pod as a person names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PodName {
    /// Its namespace.
    pub(super) namespace: String,
    /// Its name.
    pub(super) name: String,
}

impl PodName {
    /// True if that pod is meant.
    pub(super) fn is(&self, pod: &Pod) -> bool {
        pod.namespace == self.namespace && pod.name == self.name
    }
}

pub(super) fn pod_name(text: &str) -> Result<PodName, String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok(PodName { namespace: namespace.to_owned(), name: name.to_owned() })
        }
        _ => Err("expected NAMESPACE/NAME".to_owned()),
    }
}
