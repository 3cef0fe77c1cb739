//! What the import reads from Kubernetes: whereabouts' objects, the NetworkAttachmentDefinitions, and pods.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Deserialize;

use super::gather::{PodFacts, PodRef, Reservation};
use super::nads::{Nad, NadId};
use super::pools::{Entry, Pool};
use crate::api::{ApiError, Phase};
use crate::kubernetes::{Detail, Kubernetes};
use crate::object::{self, PodStatus};

/// Where the API has whereabouts' objects.
const WHEREABOUTS: &str = "/apis/whereabouts.cni.cncf.io/v1alpha1";

/// Every NetworkAttachmentDefinition, in the order of their names.
///
/// # Errors
/// [`ApiError`]
pub async fn nads(api: &Kubernetes) -> Result<Vec<Nad>, ApiError> {
    let mut nads = Vec::new();
    let mut see = |object: Object<NadSpec>| {
        let Metadata { name, namespace, uid, resource_version } = object.metadata;
        let config = object.spec.and_then(|spec| spec.config);
        nads.push(Nad::read(NadId { namespace, name }, uid, resource_version, config.as_deref()));
    };
    let path = "/apis/k8s.cni.cncf.io/v1/network-attachment-definitions";
    api.list("list NetworkAttachmentDefinitions", path, Detail::Whole, None, &mut see).await?;
    nads.sort_by(|one, other| one.id.cmp(&other.id));
    Ok(nads)
}

/// Every pool, in the order of their names.
///
/// # Errors
/// [`ApiError`]
pub async fn pools(api: &Kubernetes) -> Result<Vec<Pool>, ApiError> {
    let mut pools = Vec::new();
    let mut see = |object: Object<PoolSpec>| {
        let title = object.metadata.title();
        let PoolSpec { range, allocations } = object.spec.unwrap_or_default();
        let entries = allocations.into_iter().map(|(key, one)| (key, one.into_entry())).collect();
        pools.push(Pool { title, name: object.metadata.name, range, entries });
    };
    let path = format!("{WHEREABOUTS}/ippools");
    api.list("list IPPools", &path, Detail::Whole, None, &mut see).await?;
    pools.sort_by(|one, other| one.title.cmp(&other.title));
    Ok(pools)
}

/// Every reservation of overlapping ranges, in the order of their names.
///
/// # Errors
/// [`ApiError`]
pub async fn reservations(api: &Kubernetes) -> Result<Vec<Reservation>, ApiError> {
    let mut found = Vec::new();
    let mut see = |object: Object<ReservationSpec>| {
        let title = object.metadata.title();
        let ReservationSpec { container_id, pod, ifname } = object.spec.unwrap_or_default();
        let entry = Entry { container_id, pod, ifname };
        found.push(Reservation { title, name: object.metadata.name, entry });
    };
    let path = format!("{WHEREABOUTS}/overlappingrangeipreservations");
    api.list("list OverlappingRangeIPReservations", &path, Detail::Whole, None, &mut see).await?;
    found.sort_by(|one, other| one.title.cmp(&other.title));
    Ok(found)
}

/// Those of the pods that are `wanted`.
///
/// # Errors
/// [`ApiError`]
pub async fn pods(api: &Kubernetes, wanted: &HashSet<PodRef>) -> Result<HashMap<PodRef, PodFacts>, ApiError> {
    let mut pods = HashMap::new();
    let mut see = |pod: PodObject| {
        let of = PodRef { namespace: pod.metadata.namespace.clone(), name: pod.metadata.name.clone() };
        if wanted.contains(&of) {
            pods.insert(of, pod.into_facts());
        }
    };
    api.list("list pods", "/api/v1/pods", Detail::Whole, None, &mut see).await?;
    Ok(pods)
}

#[derive(Deserialize)]
struct Object<S> {
    metadata: Metadata,
    spec: Option<S>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    #[serde(default)]
    namespace: String,
    uid: String,
    resource_version: String,
}

impl Metadata {
    fn title(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

#[derive(Deserialize)]
struct NadSpec {
    config: Option<String>,
}

#[derive(Default, Deserialize)]
struct PoolSpec {
    #[serde(default)]
    range: String,
    #[serde(default)]
    allocations: BTreeMap<String, Allocation>,
}

#[derive(Deserialize)]
struct Allocation {
    #[serde(default)]
    id: String,
    #[serde(default)]
    podref: String,
    #[serde(default)]
    ifname: String,
}

impl Allocation {
    fn into_entry(self) -> Entry {
        Entry { container_id: self.id, pod: self.podref, ifname: self.ifname }
    }
}

#[derive(Default, Deserialize)]
struct ReservationSpec {
    #[serde(rename = "containerid", default)]
    container_id: String,
    #[serde(rename = "podref", default)]
    pod: String,
    #[serde(default)]
    ifname: String,
}

#[derive(Deserialize)]
struct PodObject {
    metadata: object::Metadata,
    #[serde(default)]
    spec: PodSpec,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Default, Deserialize)]
struct PodSpec {
    #[serde(rename = "nodeName")]
    node: Option<String>,
}

impl PodObject {
    fn into_facts(self) -> PodFacts {
        let uid = self.metadata.kubelets_uid();
        let interfaces = self.metadata.annotations.network_status;
        let interfaces = interfaces.and_then(|text| serde_json::from_str(&text).ok());
        PodFacts {
            uid,
            node: self.spec.node.filter(|node| !node.is_empty()),
            phase: Phase::of(&self.status.phase),
            interfaces: interfaces.unwrap_or_default(),
        }
    }
}
