//! The objects that the import reads from Kubernetes: whereabouts' objects, the NetworkAttachmentDefinitions, and pods.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde::Deserialize;

use super::facts::{PodFacts, PodRef, Reservation};
use super::nads::{Nad, NadId};
use super::pools::{Entry, Pool};
use crate::api::{Api, ApiError, Phase};
use crate::kubernetes::{Detail, Kubernetes};
use crate::running::Running;

/// The API path of whereabouts' objects.
const WHEREABOUTS: &str = "/apis/whereabouts.cni.cncf.io/v1alpha1";

/// Every NetworkAttachmentDefinition, sorted by name.
///
/// # Errors
/// [`ApiError`]
pub async fn nads(api: &Kubernetes) -> Result<Vec<Nad>, ApiError> {
    let mut nads = Vec::new();
    let mut see = |object: Object<NadSpec>| {
        let VersionedMetadata { name, namespace, uid, resource_version } = object.metadata;
        let config = object.spec.and_then(|spec| spec.config);
        nads.push(Nad::read(NadId { namespace, name }, uid, resource_version, config.as_deref()));
    };
    let path = "/apis/k8s.cni.cncf.io/v1/network-attachment-definitions";
    api.list("list NetworkAttachmentDefinitions", path, Detail::Whole, None, &mut see).await?;
    nads.sort_by(|one, other| one.id.cmp(&other.id));
    Ok(nads)
}

/// Every pool, sorted by name.
///
/// # Errors
/// [`ApiError`]
pub async fn pools(api: &Kubernetes) -> Result<Vec<Pool>, ApiError> {
    let mut pools = Vec::new();
    let mut see = |object: Object<PoolSpec>| {
        let title = object.metadata.title();
        let PoolSpec { range, allocations } = object.spec.unwrap_or_default();
        pools.push(Pool { title, name: object.metadata.name, range, entries: allocations });
    };
    let path = format!("{WHEREABOUTS}/ippools");
    api.list("list IPPools", &path, Detail::Whole, None, &mut see).await?;
    pools.sort_by(|one, other| one.title.cmp(&other.title));
    Ok(pools)
}

/// Every reservation of overlapping ranges, sorted by name.
///
/// # Errors
/// [`ApiError`]
pub async fn reservations(api: &Kubernetes) -> Result<Vec<Reservation>, ApiError> {
    let mut found = Vec::new();
    let mut see = |object: Object<Entry>| {
        let (title, entry) = (object.metadata.title(), object.spec.unwrap_or_default());
        found.push(Reservation { title, name: object.metadata.name, entry });
    };
    let path = format!("{WHEREABOUTS}/overlappingrangeipreservations");
    api.list("list OverlappingRangeIPReservations", &path, Detail::Whole, None, &mut see).await?;
    found.sort_by(|one, other| one.title.cmp(&other.title));
    Ok(found)
}

/// The pods that are `wanted`, and the pods that may run and use something besides the cluster's own network.
///
/// # Errors
/// [`ApiError`]
pub async fn pods(api: &Kubernetes, wanted: &HashSet<PodRef>) -> Result<HashMap<PodRef, PodFacts>, ApiError> {
    let mut pods = HashMap::new();
    let mut see = |pod: Running, phase| {
        let of = PodRef { namespace: pod.pod.namespace.clone(), name: pod.pod.name.clone() };
        let is_using = phase == Phase::Active && (pod.interfaces.is_some() || !pod.asked.is_empty());
        if is_using || wanted.contains(&of) {
            pods.insert(of, PodFacts::of(pod, phase));
        }
    };
    Running::list_all(api, &mut see).await?;
    Ok(pods)
}

/// The UIDs of the pods for which whereabouts may be at work: see [`Running::may_be_waiting`].
pub(crate) async fn waiting(api: &Kubernetes) -> Result<BTreeSet<String>, ApiError> {
    let mut waiting = BTreeSet::new();
    let mut see = |pod: Running, phase| {
        if phase == Phase::Active && pod.may_be_waiting() {
            waiting.insert(pod.pod.uid);
        }
    };
    Running::list_all(api, &mut see).await?;
    Ok(waiting)
}

/// The names of the nodes that are not Ready.
pub(crate) async fn cut_off_nodes(api: &Kubernetes) -> Result<Vec<String>, ApiError> {
    let mut nodes = Vec::new();
    api.nodes(&mut |node| nodes.extend((!node.ready).then_some(node.name))).await?;
    nodes.sort();
    Ok(nodes)
}

#[derive(Deserialize)]
struct Object<S> {
    metadata: VersionedMetadata,
    spec: Option<S>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct VersionedMetadata {
    name: String,
    #[serde(default)]
    namespace: String,
    uid: String,
    resource_version: String,
}

impl VersionedMetadata {
    fn title(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

#[derive(Deserialize)]
struct NadSpec {
    config: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PoolSpec {
    range: String,
    allocations: BTreeMap<String, Entry>,
}
