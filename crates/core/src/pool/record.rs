//! The records kept in etcd, versioned, and the order in time of an owner's runs.
//!
//! Every record is a JSON object whose `v` is [`VERSION`]. What does not decode is
//! somebody's all the same: it counts as occupied and is never overwritten or freed.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::auto::{AutoPool, auto_pools};
use super::definition::{PoolDefinition, PoolRange, is_default};
use super::names::{
    ClusterName, ContainerId, ContainerKind, InterfaceName, InvalidName, NO_CLUSTER, NodeName, PodUid,
    PoolName,
};
use super::{Addr, NetworkName};
use crate::limits;

/// The version of the stored records that this program reads and writes.
pub const VERSION: u32 = 1;

/// The epoch of a store that was never adopted.
pub const FIRST_EPOCH: u64 = 1;

/// Stands for an interface where an address is set aside.
const HOLD_IFNAME: &str = "hold";

/// The holder of an address: one interface of one container on one node of one cluster, or what stands there for
/// another [`OwnerKind`].
///
/// A node's name is unique in its cluster alone: several clusters may share a store.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Owner {
    /// The node's name, from the host file or derived from the machine.
    #[serde(deserialize_with = "stored_node")]
    pub node: NodeName,
    /// CNI_CONTAINERID.
    #[serde(rename = "container")]
    pub container_id: ContainerId,
    /// CNI_IFNAME.
    pub ifname: InterfaceName,
    /// The cluster's name from the host file, if it gives one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterName>,
}

/// The kind of an owner. Its names tell it, and nobody else reads them for that: who treats owners by their kind
/// matches this without a wildcard, so that a further kind does not compile before each of them has an arm for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnerKind {
    /// One interface of a container.
    Container(ContainerKind),
    /// An address that an operator has set aside, in its network.
    Aside(NetworkName, Addr),
    /// The addresses of a pod's interface that outlive each pod of that name. A pod that uses them has a [`Seat`].
    Subject(Subject),
    /// It stands where holds stand, and is none that this program knows. Only a person ends it.
    Unknown,
}

/// The name that a hold is for: that of a pod, whichever pod has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
}

/// The pod, of whichever UID.
impl From<Subject> for Pod {
    fn from(Subject { namespace, name }: Subject) -> Self {
        Self { namespace, name, uid: None }
    }
}

/// As kubectl writes it: `pod prod/db-0`.
impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, name } = self;
        write!(f, "pod {namespace}/{name}")
    }
}

impl Owner {
    /// The owner of these names, in the order of its key: cluster (`-` for none), node, container and interface.
    ///
    /// # Errors
    /// [`InvalidName`] for the first one that cannot stand in a key.
    pub fn named([cluster, node, container_id, ifname]: [&str; 4]) -> Result<Self, InvalidName> {
        Ok(Self {
            cluster: ClusterName::or_none(cluster)?,
            node: NodeName::stored(node)?,
            container_id: container_id.parse()?,
            ifname: ifname.parse()?,
        })
    }

    /// The owner of an address that is set aside. No container can have these names.
    #[must_use]
    pub fn of_hold(network: &NetworkName, address: Addr) -> Self {
        Self {
            node: NodeName::of_holds(network),
            container_id: ContainerId::of_hold(address),
            ifname: HOLD_IFNAME.parse().expect("a short word"),
            cluster: None,
        }
    }

    /// The owner of the addresses that outlive each pod of this name. No container can have these names.
    ///
    /// # Errors
    /// [`InvalidName`] if the pod's namespace or name cannot stand in a key.
    pub fn of_pod(
        cluster: ClusterName,
        Subject { namespace, name }: &Subject,
        ifname: InterfaceName,
    ) -> Result<Self, InvalidName> {
        let (node, container_id) = (NodeName::of_pods(namespace)?, name.parse()?);
        Ok(Self { node, container_id, ifname, cluster: Some(cluster) })
    }

    /// The kind of this owner. An address that is set aside belongs to no cluster, and a pod always to one.
    #[must_use]
    pub fn kind(&self) -> OwnerKind {
        if !self.node.is_of_holds() {
            return OwnerKind::Container(self.container_id.kind());
        }
        if let (Some(_), Some(namespace)) = (&self.cluster, self.node.namespace_of_pods()) {
            let name = self.container_id.as_str().to_owned();
            return OwnerKind::Subject(Subject { namespace: namespace.to_owned(), name });
        }
        match (self.node.network_of_holds(), self.container_id.held()) {
            (Some(network), Some(address)) if *self == Self::of_hold(&network, address) => {
                OwnerKind::Aside(network, address)
            }
            _ => OwnerKind::Unknown,
        }
    }

    /// True if this is the hold for the pods of a name.
    #[must_use]
    pub fn is_for_subject(&self) -> bool {
        matches!(self.kind(), OwnerKind::Subject(_))
    }

    /// The owner by the path that its keys end with.
    ///
    /// # Errors
    /// [`InvalidName`] if it has other parts than an owner's names.
    pub fn of_path(path: &str) -> Result<Self, InvalidName> {
        let parts: Vec<&str> = path.split('/').collect();
        let other = |_| InvalidName {
            what: "owner",
            found: path.to_owned(),
            expected: "cluster/node/container/interface",
        };
        Self::named(parts.try_into().map_err(other)?)
    }

    /// The path that its keys end with: cluster, node, container and interface.
    #[must_use]
    pub fn path(&self) -> String {
        let Self { node, container_id, ifname, .. } = self;
        format!("{}/{node}/{container_id}/{ifname}", self.cluster_or_dash())
    }

    /// The cluster's name as keys and people write it: `-` for none.
    #[must_use]
    pub fn cluster_or_dash(&self) -> &str {
        self.cluster.as_ref().map_or(NO_CLUSTER, ClusterName::as_str)
    }
}

/// In words, for people.
impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind() {
            OwnerKind::Aside(network, address) => {
                return write!(f, "the hold of {address} in network {network}");
            }
            OwnerKind::Subject(subject) => write!(f, "the hold for {} of {subject}", self.ifname)?,
            OwnerKind::Container(_) | OwnerKind::Unknown => {
                write!(f, "{} of container {} on {}", self.ifname, self.container_id, self.node)?;
            }
        }
        match &self.cluster {
            None => Ok(()),
            Some(cluster) => write!(f, " of cluster {cluster}"),
        }
    }
}

/// An owner in a record, by the path that its keys end with.
mod as_path {
    use super::{Deserialize, Deserializer, Owner, Serializer};

    pub(super) fn serialize<S: Serializer>(owner: &Owner, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&owner.path())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Owner, D::Error> {
        Owner::of_path(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

fn stored_node<'de, D: Deserializer<'de>>(deserializer: D) -> Result<NodeName, D::Error> {
    NodeName::stored(&String::deserialize(deserializer)?).map_err(D::Error::custom)
}

/// When a run of the plugin began: boot id and nanoseconds of CLOCK_BOOTTIME.
///
/// No wall clock is in it, so on one host it only ever grows, until a snapshot of the host's memory is restored
/// ([`Clock`](super::Clock)). Runs of different boots are told apart, never compared by time.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RunStart {
    /// The kernel's random id of this boot.
    pub boot: String,
    /// CLOCK_BOOTTIME, in nanoseconds.
    pub ns: u64,
}

impl RunStart {
    /// True if this start is not of the boot that the node's clock `now`, read later, is of. One of the same boot that
    /// the clock has not reached is from before the clock went back, and counts as of another boot, too.
    #[must_use]
    pub fn is_of_another_boot(&self, now: &RunStart) -> bool {
        self.boot != now.boot || self.ns > now.ns
    }

    /// The time from `other` to this start; none if `other` is later, or of another boot.
    #[must_use]
    pub fn since(&self, other: &RunStart) -> Option<Duration> {
        let ns = self.ns.checked_sub(other.ns).filter(|_| self.boot == other.boot)?;
        Some(Duration::from_nanos(ns))
    }
}

/// Labels of the pod that an owner belongs to. Never its identity.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pod {
    /// K8S_POD_NAMESPACE.
    #[serde(rename = "ns", default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// K8S_POD_NAME.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// K8S_POD_UID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<PodUid>,
}

impl Pod {
    /// True if nothing is known of the pod (cnitool, podman).
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.namespace.is_empty() && self.name.is_empty() && self.uid.is_none()
    }
}

/// One address of an owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The address.
    #[serde(rename = "ip")]
    pub address: IpAddr,
    /// The network it is reserved in; none for a static address that is only recorded.
    #[serde(rename = "net", default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkName>,
    /// The pool that it was taken from; none if a configuration's own range has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<FromPool>,
    /// For how many seconds it rests after it was freed.
    #[serde(rename = "cooldown", default, skip_serializing_if = "is_default")]
    pub cooldown_s: u32,
}

impl Held {
    /// An address that was taken from no pool.
    #[must_use]
    pub fn new(address: IpAddr, network: Option<NetworkName>) -> Self {
        Self { address, network, pool: None, cooldown_s: 0 }
    }

    /// The addresses as arguments of a command.
    #[must_use]
    pub fn words(held: &[Self]) -> String {
        held.iter().map(|held| held.address.to_string()).collect::<Vec<_>>().join(" ")
    }

    /// The address with the network that it is reserved in; none for a static one that is only recorded.
    #[must_use]
    pub fn in_network(&self) -> Option<(&NetworkName, Addr)> {
        Some((self.network.as_ref()?, Addr::from(self.address)))
    }

    /// True if this address is among `all`, whatever a pool or a configuration said of it when it was given.
    #[must_use]
    pub fn is_among(&self, all: &[Held]) -> bool {
        all.iter().any(|one| (one.address, &one.network) == (self.address, &self.network))
    }
}

/// The properties that a pool gave an address when it was given. A repeated request is answered from them, whatever
/// became of the pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FromPool {
    /// The pool.
    pub name: PoolName,
    /// The prefix length of the address.
    #[serde(rename = "prefix")]
    pub prefix_len: u8,
    /// Its gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
}

impl FromPool {
    /// The properties from the first of these pools that has a range with the address, open or not; none if no pool has
    /// such a range. Several ranges may be of one prefix. If the address lies between the first and the last address of
    /// none of them, the prefix counts.
    #[must_use]
    pub fn of(pools: &[&PoolDefinition], held: &Held) -> Option<Self> {
        let of_network = || pools.iter().filter(|pool| held.network.as_ref() == Some(&pool.network));
        let has_given = of_network().find_map(|pool| Some((pool, pool.range_of(held.address)?)));
        let covers = |range: &&PoolRange| range.range.subnet.contains(held.address);
        let (pool, range) = has_given
            .or_else(|| of_network().find_map(|pool| Some((pool, pool.ranges.iter().find(covers)?))))?;
        let (prefix_len, gateway) = (range.range.subnet.prefix(), range.gateway);
        Some(Self { name: pool.pool.clone(), prefix_len, gateway })
    }
}

/// `v1/net/<network>/cooling/<hex>`: an address that was freed a short while ago. The lease that it hangs on says for
/// how long it rests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cooling {
    v: u32,
    /// For how long it rests at least, in seconds.
    pub(crate) cooldown_s: u32,
}

impl Cooling {
    /// A record of this program's version.
    #[must_use]
    pub fn new(cooldown_s: u32) -> Self {
        Self { v: VERSION, cooldown_s }
    }
}

/// `v1/pool/<pool>`: a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolRecord {
    v: u32,
    /// The pool.
    pub definition: PoolDefinition,
}

impl PoolRecord {
    /// A record of this program's version.
    #[must_use]
    pub fn new(definition: PoolDefinition) -> Self {
        Self { v: VERSION, definition }
    }
}

/// `v1/pools`: every change of any pool compares and writes it, so two changes that were made side by side cannot both
/// be checked against pools that the other one changes. It has what `auto` needs to know of all pools.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolChanges {
    v: u32,
    /// The pools that `auto` may choose, in the order of [`auto_pools`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub auto: Vec<AutoPool>,
}

impl PoolChanges {
    /// The record that belongs to these pools, which are all that there are.
    #[must_use]
    pub fn of<'a>(pools: impl IntoIterator<Item = &'a PoolDefinition>) -> Self {
        Self { v: VERSION, auto: auto_pools(pools) }
    }
}

/// `v1/owner/<cluster>/<node>/<container>/<ifname>`: all that one owner holds, in result order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerRecord {
    v: u32,
    /// The owner's addresses in result order, static ones too.
    pub addresses: Vec<Held>,
    /// The start of the run that wrote the record; none in adopted records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<RunStart>,
    /// The machine of that run (see `local::node`); empty in adopted and imported records, and where a machine has no
    /// id.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub machine: String,
    /// The queue that the run stood in (see `keys::Scope`). It is stored without the network that it begins with, if
    /// that is the network of the first address.
    pub(crate) scope: String,
    /// Labels.
    #[serde(flatten)]
    pub labels: Labels,
    /// It is a hold; none if a container has the addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<HoldNote>,
    /// The container uses the addresses of a hold, in this seat. Then it has reserved none of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seat: Option<Seat>,
}

/// The note on a hold: on an address that is set aside, or on the addresses that outlive a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldNote {
    /// Why, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// For how many seconds; none: until an operator removes it. Of an address that is set aside, `v1/hold` says
    /// whether the time is over. Of the addresses of a pod, it is the time after their last use.
    #[serde(rename = "for", default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
}

/// The use of a hold by one container: the place that it takes, of those that the hold has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Seat {
    /// The owner of the addresses.
    #[serde(with = "as_path")]
    pub hold: Owner,
    /// The number of the seat.
    pub n: u8,
}

impl Seat {
    /// The number of the seat that a pod takes.
    pub const FIRST: u8 = 0;

    /// All numbers that a seat may have. The second one is for the target of a live migration.
    pub const NUMBERS: [u8; 2] = [Self::FIRST, 1];
}

/// The part of a record besides its owner that is for people and for the reconciler.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Labels {
    /// The pod, as far as it is known.
    #[serde(default, skip_serializing_if = "Pod::is_unknown")]
    pub pod: Pod,
    /// The CNI network's `name`.
    #[serde(rename = "cni")]
    pub cni_network: String,
}

impl OwnerRecord {
    /// The addresses that rest after they are freed, with their networks and for how many seconds.
    pub fn cooling(&self) -> impl Iterator<Item = (&NetworkName, Addr, u32)> {
        self.own().filter_map(|held| {
            let network = held.network.as_ref().filter(|_| held.cooldown_s > 0)?;
            Some((network, Addr::from(held.address), held.cooldown_s))
        })
    }

    /// True if an address rests after it is freed.
    pub(crate) fn has_cooldown(&self) -> bool {
        self.cooling().next().is_some()
    }

    /// The addresses that are reserved for this owner, with their networks.
    pub fn reserved(&self) -> impl Iterator<Item = (&NetworkName, Addr)> {
        self.own().filter_map(Held::in_network)
    }

    /// All addresses that it uses in networks: its own, or those of the hold that it uses.
    pub fn used(&self) -> impl Iterator<Item = (&NetworkName, Addr)> {
        self.addresses.iter().filter_map(Held::in_network)
    }

    /// The addresses that are its own: those of a hold that it uses are not.
    fn own(&self) -> impl Iterator<Item = &Held> {
        self.addresses.iter().filter(|_| self.seat.is_none())
    }

    /// A record of this program's version.
    #[must_use]
    pub fn new(addresses: Vec<Held>, start: Option<RunStart>, scope: String, labels: Labels) -> Self {
        let machine = String::new();
        Self { v: VERSION, addresses, start, machine, scope, labels, hold: None, seat: None }
    }

    /// The record of an address that is set aside. Nobody queues for it.
    #[must_use]
    pub fn of_hold(network: &NetworkName, address: Addr, hold: HoldNote) -> Self {
        let held = Held::new(address.ip(), Some(network.clone()));
        Self { hold: Some(hold), ..Self::new(vec![held], None, "-".to_owned(), Labels::default()) }
    }

    /// The record of a hold for a pod's name, as the first pod of that name makes it. No run and no pod is in it: it
    /// outlives them.
    #[must_use]
    pub fn of_subject(addresses: Vec<Held>, scope: String, cni_network: String, hold: HoldNote) -> Self {
        let labels = Labels { cni_network, ..Labels::default() };
        Self { hold: Some(hold), ..Self::new(addresses, None, scope, labels) }
    }

    /// The record of an owner that uses a hold in this seat; none: it has its addresses itself.
    #[must_use]
    pub fn in_seat(self, seat: Option<Seat>) -> Self {
        Self { seat, ..self }
    }

    /// The network that the stored scope lacks, if it does.
    fn network_of_scope(&self) -> &str {
        let of_first = self.addresses.iter().find_map(|held| held.network.as_ref());
        of_first.map_or("", NetworkName::as_str)
    }

    /// The record as a run on this machine writes it.
    pub(crate) fn on_machine(self, machine: &str) -> Self {
        Self { machine: machine.to_owned(), ..self }
    }
}

/// The caller that asks about a container with the owner's names. Node names and container ids may be the same on two
/// machines: a host file was copied, or a container id is derived from a path, as cnitool does.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a> {
    /// The machine that it is asked on.
    pub machine: &'a str,
    /// The pod's UID, if it is known.
    pub pod_uid: Option<&'a PodUid>,
}

impl Caller<'_> {
    /// True if the record is of the very container that is asked about: its machine is this one, or is not known, or
    /// the container is one of the same pod. A machine may have got another id: it was installed anew, or has a new one
    /// at each boot.
    #[must_use]
    pub fn means(self, record: &OwnerRecord) -> bool {
        let is_same_pod = self.pod_uid.is_some() && self.pod_uid == record.labels.pod.uid.as_ref();
        record.machine.is_empty() || record.machine == self.machine || is_same_pod
    }
}

/// `v1/net/<network>/ip/<hex>`: one held address. That it exists is what holds the address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    v: u32,
    /// The holder. Its record has the labels.
    #[serde(with = "as_path")]
    pub owner: Owner,
    /// When it was made, RFC 3339 in UTC; for people only.
    #[serde(rename = "at")]
    pub created_at: String,
    /// Why the address is set aside; none if a container has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<HoldNote>,
}

impl Reservation {
    /// A record of this program's version.
    #[must_use]
    pub fn new(owner: Owner, created_at: String) -> Self {
        Self { v: VERSION, owner, created_at, hold: None }
    }

    /// The reservation that belongs to an owner's record.
    #[must_use]
    pub fn of_record(owner: &Owner, record: &OwnerRecord, created_at: String) -> Self {
        let hold = record.hold.clone();
        Self { hold, ..Self::new(owner.clone(), created_at) }
    }

    /// The reservation of an address that is set aside.
    #[must_use]
    pub fn of_hold(network: &NetworkName, address: Addr, hold: HoldNote, created_at: String) -> Self {
        let owner = Owner::of_hold(network, address);
        Self { hold: Some(hold), ..Self::new(owner, created_at) }
    }
}

/// `v1/seat/<cluster>/@pod.<namespace>/<name>/<ifname>/<n>`: a container uses the addresses of this hold. While it
/// exists, the hold does, too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeatRecord {
    v: u32,
    /// The user: the container.
    #[serde(with = "as_path")]
    pub user: Owner,
    /// Labels.
    #[serde(flatten)]
    pub labels: Labels,
    /// When it was taken, RFC 3339 in UTC; for people only.
    #[serde(rename = "at")]
    pub taken_at: String,
}

impl SeatRecord {
    /// A record of this program's version.
    #[must_use]
    pub fn new(user: Owner, labels: Labels, taken_at: String) -> Self {
        Self { v: VERSION, user, labels, taken_at }
    }
}

/// `v1/pod/<cluster>/<uid>/<ifname>/<network>`: the youngest owner of that interface of that pod. Its cluster and its
/// interface are those of the key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodIndex {
    v: u32,
    #[serde(deserialize_with = "stored_node")]
    node: NodeName,
    #[serde(rename = "container")]
    container_id: ContainerId,
}

impl PodIndex {
    /// A record of this program's version, under a key of this owner's cluster and interface.
    #[must_use]
    pub fn new(Owner { node, container_id, .. }: &Owner) -> Self {
        Self { v: VERSION, node: node.clone(), container_id: container_id.clone() }
    }

    /// True if it names this owner, whose cluster and interface are those of the key.
    #[must_use]
    pub fn names(&self, owner: &Owner) -> bool {
        (&self.node, &self.container_id) == (&owner.node, &owner.container_id)
    }

    /// The owner that it names under a key of this cluster and interface.
    #[must_use]
    pub fn owner(self, cluster: Option<&ClusterName>, ifname: &InterfaceName) -> Owner {
        let Self { node, container_id, .. } = self;
        Owner { node, container_id, ifname: ifname.clone(), cluster: cluster.cloned() }
    }
}

/// `v1/tombstone/<cluster>/<node>/<container>/<ifname>`: a DEL of this owner was here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tombstone {
    v: u32,
    /// The start of that DEL.
    pub start: RunStart,
}

impl Tombstone {
    /// A record of this program's version.
    #[must_use]
    pub fn new(start: RunStart) -> Self {
        Self { v: VERSION, start }
    }
}

/// `v1/cluster/<cluster>`: which Kubernetes cluster goes by that name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterId {
    v: u32,
    /// The UID of its namespace kube-system, which lives as long as the cluster.
    pub uid: String,
}

impl ClusterId {
    /// A record of this program's version.
    #[must_use]
    pub fn new(uid: String) -> Self {
        Self { v: VERSION, uid }
    }
}

/// `v1/orphan/<cluster>/<node>/<container>/<ifname>`: the cluster's reconciler saw this owner as an orphan. Its own age
/// and that of the lease that it hangs on tell for how long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sighting {
    v: u32,
    /// The reason why it is an orphan.
    pub reason: String,
    /// The mod revision of the owner record that was judged.
    pub revision: i64,
    /// For how many seconds it must have been one before it is freed; for people.
    #[serde(rename = "grace")]
    pub grace_s: u64,
    /// For how many seconds it had been one when the record was written. The age of the lease comes on top.
    #[serde(rename = "age", default, skip_serializing_if = "is_default")]
    pub age_s: u64,
}

/// The reason in a [`Sighting`] of an owner that belongs to no pod.
pub const UNLABELLED: &str = "unlabelled";

impl Sighting {
    /// A record of this program's version.
    #[must_use]
    pub fn new(reason: String, revision: i64, grace: Duration) -> Self {
        Self { v: VERSION, reason, revision, grace_s: grace.as_secs(), age_s: 0 }
    }

    /// The same, of an owner that has been an orphan for so long.
    #[must_use]
    pub fn since(self, age: Duration) -> Self {
        Self { age_s: age.as_secs(), ..self }
    }
}

/// `v1/seen/<cluster>/<node>`: Kubernetes had a node of this name when the cluster's reconciler looked. That the key
/// exists is all that it says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenNode {
    v: u32,
}

impl SeenNode {
    /// A record of this program's version.
    #[must_use]
    pub fn new() -> Self {
        Self { v: VERSION }
    }
}

impl Default for SeenNode {
    fn default() -> Self {
        Self::new()
    }
}

/// `v1/node/<cluster>/<node>/<machine>`: the node's own key. Its mod revision counts: a run knows that the store has
/// not forgotten what the node saw of it. The rest is for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    v: u32,
    /// The boot of the run that wrote it.
    pub(crate) boot: String,
    /// The version of metes that wrote it.
    pub(crate) version: String,
    /// When, RFC 3339 in UTC.
    pub(crate) at: String,
}

impl NodeRecord {
    /// A record of this program.
    #[must_use]
    pub fn new(boot: String, at: String) -> Self {
        Self { v: VERSION, boot, version: env!("CARGO_PKG_VERSION").to_owned(), at }
    }
}

/// `v1/forgotten`: a pass has deleted keys of nodes that Kubernetes has not had for long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forgotten {
    v: u32,
    /// The highest mod revision of such a key.
    pub revision: i64,
}

impl Forgotten {
    /// A record of this program's version.
    #[must_use]
    pub fn new(revision: i64) -> Self {
        Self { v: VERSION, revision }
    }
}

/// `v1/lacking/<cluster>/<network>/<hex>`: the cluster's reconciler saw a running pod report this address, and the
/// store holds it for nobody or for somebody else. What one pass alone saw is on a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lacking {
    v: u32,
    /// The epoch in which it was seen. When a later one begins, a person has looked at it.
    pub epoch: u64,
    /// The pod, as `namespace/name`.
    pub pod: String,
    /// Its UID in the API.
    pub uid: String,
    /// True if two passes in a row saw it.
    pub certain: bool,
}

impl Lacking {
    /// A record of this program's version, of an address that one pass saw.
    #[must_use]
    pub fn new(epoch: u64, pod: String, uid: String) -> Self {
        Self { v: VERSION, epoch, pod, uid, certain: false }
    }
}

/// `v1/import/<cluster>`: what an import from whereabouts saw last of the NetworkAttachmentDefinitions. The age of the
/// lease that it hangs on tells for how long they have been so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Definitions {
    v: u32,
    /// A digest of which ones there are, and in which version.
    pub digest: String,
    /// The UIDs of the pods whose networks may still have been at work when somebody first looked at them after that;
    /// none if nobody has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Vec<String>>,
}

impl Definitions {
    /// A record of this program's version.
    #[must_use]
    pub fn new(digest: String, waiting: Option<Vec<String>>) -> Self {
        Self { v: VERSION, digest, waiting }
    }
}

/// `v1/lead/<cluster>`: which reconciler of those that run all the time makes the passes. It hangs on a
/// lease, so that one that dies is replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leader {
    v: u32,
    /// A name that no other process has.
    pub holder: String,
}

impl Leader {
    /// A record of this program's version.
    #[must_use]
    pub fn new(holder: String) -> Self {
        Self { v: VERSION, holder }
    }
}

/// `v1/pass/<cluster>`: the result of the last pass, for metrics.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassRecord {
    v: u32,
    /// In one word.
    pub outcome: String,
    /// True if the pass found that the store went back in time.
    #[serde(default, skip_serializing_if = "is_default")]
    pub suspect: bool,
    /// When it ended, in milliseconds since 1970, by the clock of its machine.
    pub at_ms: u64,
    /// Its duration, in milliseconds.
    pub took_ms: u64,
    /// Figures by name.
    pub figures: BTreeMap<String, u64>,
    /// Those of which there are several: by reason, state, network or kind.
    pub by: BTreeMap<String, BTreeMap<String, u64>>,
}

impl PassRecord {
    /// A record of this program's version, without figures.
    #[must_use]
    pub fn new(outcome: String) -> Self {
        Self { v: VERSION, outcome, ..Self::default() }
    }
}

/// `v1/member/<ip>`: what a member of etcd says of itself, for metrics.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberRecord {
    v: u32,
    /// When its newest snapshot was taken, in seconds since 1970; none if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<u64>,
    /// When the first of its certificates ends, in seconds since 1970; none if that is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_end: Option<u64>,
}

impl MemberRecord {
    /// A record of this program's version.
    #[must_use]
    pub fn new(snapshot: Option<u64>, certificate_end: Option<u64>) -> Self {
        Self { v: VERSION, snapshot, certificate_end }
    }
}

/// `v1/meta`: what all writers of this prefix have agreed on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    v: u32,
    /// The oldest version of a writer that may still write.
    pub min_writer: u32,
    /// Tells this store from others: 32 hex digits, drawn when the meta is made.
    pub id: String,
    /// Counts how often the store was adopted after a restore; starts at 1.
    pub epoch: u64,
    /// Set while the store is under suspicion of having gone back in time: the epoch in which it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspect: Option<u64>,
    /// The ids of the stores in whose place this one is, the oldest first: a node that knows one of them follows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaces: Vec<String>,
    /// Set while a migration is under way: why ADD must wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<String>,
    /// When the store was paused, RFC 3339 in UTC; for people only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_since: Option<String>,
    /// Fields that newer programs have written. Older programs write them back as they were.
    #[serde(flatten)]
    rest: serde_json::Map<String, serde_json::Value>,
}

/// Stands for the id of a store that nobody can tell.
const ANY_STORE: &str = "*";

impl Meta {
    /// The state of a prefix that nothing was written to yet; `id` is a new one.
    #[must_use]
    pub fn first(id: String) -> Self {
        Self {
            v: VERSION,
            min_writer: VERSION,
            id,
            epoch: FIRST_EPOCH,
            suspect: None,
            replaces: Vec::new(),
            paused: None,
            paused_since: None,
            rest: serde_json::Map::new(),
        }
    }

    /// It is in the place of the store with this id. The oldest are forgotten.
    pub fn replace(&mut self, store: &str) {
        if store != self.id && !self.has_replaced(store) {
            self.replaces.push(store.to_owned());
        }
        let too_many = self.replaces.len().saturating_sub(limits::STORES_REPLACED);
        self.replaces.drain(..too_many);
    }

    /// The state of a store that a person takes into service in place of one that was lost, whose id nobody can tell.
    #[must_use]
    pub fn in_place_of_any(id: String) -> Self {
        Self { replaces: vec![ANY_STORE.to_owned()], ..Self::first(id) }
    }

    /// True if it is in the place of the store with this id.
    #[must_use]
    pub fn has_replaced(&self, store: &str) -> bool {
        self.replaces.iter().any(|replaced| replaced == store || replaced == ANY_STORE)
    }

    /// ADD works again.
    pub fn end_pause(&mut self) {
        (self.paused, self.paused_since) = (None, None);
    }

    /// The version of the records in this prefix.
    #[must_use]
    pub fn schema(&self) -> u32 {
        self.v
    }
}

fn article(noun: &str) -> &'static str {
    if noun.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" }
}

/// A stored value that this program cannot make sense of.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Undecodable {
    /// Not the JSON object that belongs here.
    #[error("not {} {kind} record: {reason}", article(kind))]
    Malformed {
        /// The kind of record.
        kind: &'static str,
        /// The parser's words.
        reason: String,
    },
    /// Written by a program of another version.
    #[error("a {kind} record of version {found}; this program reads version {VERSION}")]
    Version {
        /// The kind of record.
        kind: &'static str,
        /// Its version.
        found: u64,
    },
}

impl Undecodable {
    /// True if a newer program wrote it.
    #[must_use]
    pub fn is_newer(&self) -> bool {
        matches!(self, Self::Version { found, .. } if *found > u64::from(VERSION))
    }
}

#[derive(Deserialize)]
struct Versioned {
    v: u64,
}

/// The version of a stored value, of whatever kind, that a newer program wrote.
#[must_use]
pub fn newer_version(value: &[u8]) -> Option<u64> {
    let Versioned { v } = serde_json::from_slice(value).ok()?;
    (v > u64::from(VERSION)).then_some(v)
}

/// A record with a version of its own.
pub trait Record: Serialize + DeserializeOwned {
    /// The name of this kind of record for people.
    const KIND: &'static str;

    /// The bytes to store.
    fn encode(&self) -> Vec<u8> {
        to_json(self)
    }

    /// Reads stored bytes.
    ///
    /// # Errors
    /// [`Undecodable`] if they are not such a record, or one of another version.
    fn decode(bytes: &[u8]) -> Result<Self, Undecodable> {
        from_json(bytes, Self::KIND)
    }
}

fn to_json(record: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(record).expect("records have only string keys")
}

fn from_json<R: DeserializeOwned>(bytes: &[u8], kind: &'static str) -> Result<R, Undecodable> {
    let malformed = |e: serde_json::Error| Undecodable::Malformed { kind, reason: e.to_string() };
    let Versioned { v } = serde_json::from_slice(bytes).map_err(malformed)?;
    if v != u64::from(VERSION) {
        return Err(Undecodable::Version { kind, found: v });
    }
    serde_json::from_slice(bytes).map_err(malformed)
}

impl Record for OwnerRecord {
    const KIND: &'static str = "owner";

    fn encode(&self) -> Vec<u8> {
        let rest = self.scope.strip_prefix(self.network_of_scope()).filter(|rest| rest.starts_with(','));
        let scope = rest.unwrap_or(&self.scope).to_owned();
        to_json(&Self { scope, ..self.clone() })
    }

    fn decode(bytes: &[u8]) -> Result<Self, Undecodable> {
        let mut record: Self = from_json(bytes, Self::KIND)?;
        if record.scope.starts_with(',') {
            record.scope = format!("{}{}", record.network_of_scope(), record.scope);
        }
        Ok(record)
    }
}
impl Record for Reservation {
    const KIND: &'static str = "reservation";
}
impl Record for SeatRecord {
    const KIND: &'static str = "seat";
}
impl Record for PodIndex {
    const KIND: &'static str = "pod index";
}
impl Record for Tombstone {
    const KIND: &'static str = "tombstone";
}
impl Record for ClusterId {
    const KIND: &'static str = "cluster";
}
impl Record for Sighting {
    const KIND: &'static str = "sighting";
}
impl Record for SeenNode {
    const KIND: &'static str = "seen node";
}
impl Record for NodeRecord {
    const KIND: &'static str = "node";
}
impl Record for Forgotten {
    const KIND: &'static str = "forgotten nodes";
}
impl Record for Lacking {
    const KIND: &'static str = "lacking address";
}
impl Record for Cooling {
    const KIND: &'static str = "cooling";
}
impl Record for PoolRecord {
    const KIND: &'static str = "pool";
}
impl Record for PoolChanges {
    const KIND: &'static str = "pool changes";
}
impl Record for Definitions {
    const KIND: &'static str = "definitions";
}
impl Record for PassRecord {
    const KIND: &'static str = "last pass";
}
impl Record for MemberRecord {
    const KIND: &'static str = "member";
}
impl Record for Leader {
    const KIND: &'static str = "leader";
}
impl Record for Meta {
    const KIND: &'static str = "meta";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::AskedRanges;

    fn owner() -> Owner {
        Owner::named(["east", "n1", "c1", "net1"]).expect("checked names")
    }

    fn labels() -> Labels {
        let pod =
            Pod { namespace: "ns".into(), name: "web-0".into(), uid: Some("u-1".parse().expect("a UID")) };
        Labels { pod, cni_network: "mynet".into() }
    }

    /// The stored formats are a promise to every other version of metes.
    #[test]
    fn golden_records() {
        let held = vec![
            Held::new("10.0.0.1".parse().expect("ip"), Some(NetworkName::default())),
            Held::new("fd00::1".parse().expect("ip"), None),
        ];
        let start = RunStart { boot: "b0".into(), ns: 7 };
        let record = OwnerRecord::new(held, Some(start.clone()), "-".into(), labels()).on_machine("0f");
        check(
            &record,
            concat!(
                r#"{"v":1,"addresses":[{"ip":"10.0.0.1","net":"default"},{"ip":"fd00::1"}],"#,
                r#""start":{"boot":"b0","ns":7},"machine":"0f","scope":"-","#,
                r#""pod":{"ns":"ns","name":"web-0","uid":"u-1"},"cni":"mynet"}"#,
            ),
        );
        let scope = "default,00000000000000000000ffff0a000000-8";
        check(
            &OwnerRecord { scope: scope.into(), ..record.clone() },
            concat!(
                r#"{"v":1,"addresses":[{"ip":"10.0.0.1","net":"default"},{"ip":"fd00::1"}],"#,
                r#""start":{"boot":"b0","ns":7},"machine":"0f","scope":",00000000000000000000ffff0a000000-8","#,
                r#""pod":{"ns":"ns","name":"web-0","uid":"u-1"},"cni":"mynet"}"#,
            ),
        );
        let of_another =
            OwnerRecord { scope: "blue,00000000000000000000ffff0a000000".into(), ..record.clone() };
        assert_eq!(OwnerRecord::decode(&of_another.encode()), Ok(of_another));
        check(
            &Reservation::new(owner(), "2026-01-02T03:04:05Z".into()),
            r#"{"v":1,"owner":"east/n1/c1/net1","at":"2026-01-02T03:04:05Z"}"#,
        );
        let (network, address) = (NetworkName::default(), Addr(0xffff_0a00_0001));
        let hold = HoldNote { note: "printer".into(), seconds: Some(60) };
        check(
            &OwnerRecord::of_hold(&network, address, HoldNote { seconds: None, ..hold.clone() }),
            concat!(
                r#"{"v":1,"addresses":[{"ip":"10.0.0.1","net":"default"}],"scope":"-","cni":"","#,
                r#""hold":{"note":"printer"}}"#,
            ),
        );
        check(
            &Reservation::of_hold(&network, address, hold, "2026-01-02T03:04:05Z".into()),
            concat!(
                r#"{"v":1,"owner":"-/@default/00000000000000000000ffff0a000001/hold","#,
                r#""at":"2026-01-02T03:04:05Z","hold":{"note":"printer","for":60}}"#,
            ),
        );
        let subject = Subject { namespace: "ns".into(), name: "web-0".into() };
        let (cluster, ifname) = (owner().cluster.expect("it has one"), owner().ifname);
        let hold = Owner::of_pod(cluster, &subject, ifname).expect("plain names");
        let held = vec![Held::new("10.0.0.1".parse().expect("ip"), Some(network.clone()))];
        let note = HoldNote { note: String::new(), seconds: Some(60) };
        check(
            &OwnerRecord::of_subject(held.clone(), "-".into(), "mynet".into(), note),
            concat!(
                r#"{"v":1,"addresses":[{"ip":"10.0.0.1","net":"default"}],"scope":"-","cni":"mynet","#,
                r#""hold":{"for":60}}"#,
            ),
        );
        let seat = Some(Seat { hold, n: Seat::FIRST });
        check(
            &OwnerRecord { seat, ..OwnerRecord::new(held, None, "-".into(), labels()) },
            concat!(
                r#"{"v":1,"addresses":[{"ip":"10.0.0.1","net":"default"}],"scope":"-","#,
                r#""pod":{"ns":"ns","name":"web-0","uid":"u-1"},"cni":"mynet","#,
                r#""seat":{"hold":"east/@pod.ns/web-0/net1","n":0}}"#,
            ),
        );
        check(
            &SeatRecord::new(owner(), labels(), "2026-01-02T03:04:05Z".into()),
            concat!(
                r#"{"v":1,"user":"east/n1/c1/net1","#,
                r#""pod":{"ns":"ns","name":"web-0","uid":"u-1"},"cni":"mynet","at":"2026-01-02T03:04:05Z"}"#,
            ),
        );
        check(&PodIndex::new(&owner()), r#"{"v":1,"node":"n1","container":"c1"}"#);
        check(&Tombstone::new(start), r#"{"v":1,"start":{"boot":"b0","ns":7}}"#);
        let net = serde_json::from_str(
            r#"[[{"net":"default","subnet":"10.0.0.0/29","first":"10.0.0.1","last":"10.0.0.6",
                "never":["10.0.0.6"],"gateway":"10.0.0.6","spans":[["10.0.0.1","10.0.0.5"]]}]]"#,
        );
        let asked =
            AskedRanges::new(None, "mynet".into(), net.expect("ranges"), "2026-01-02T03:04:05Z".into());
        check(
            &asked,
            concat!(
                r#"{"v":1,"cni_network":"mynet","sets":[[{"net":"default","subnet":"10.0.0.0/29","#,
                r#""first":"10.0.0.1","last":"10.0.0.6","never":["10.0.0.6"],"gateway":"10.0.0.6","#,
                r#""spans":[["10.0.0.1","10.0.0.5"]]}]],"asked_at":"2026-01-02T03:04:05Z"}"#
            ),
        );
        check(&Cooling::new(60), r#"{"v":1,"cooldown_s":60}"#);
        check(&ClusterId::new("u-0".into()), r#"{"v":1,"uid":"u-0"}"#);
        check(
            &Sighting::new("pod-gone".into(), 7, Duration::from_secs(300)),
            r#"{"v":1,"reason":"pod-gone","revision":7,"grace":300}"#,
        );
        let sighting = Sighting::new("unused".into(), 7, Duration::from_secs(300));
        check(
            &sighting.since(Duration::from_secs(60)),
            r#"{"v":1,"reason":"unused","revision":7,"grace":300,"age":60}"#,
        );
        check(&SeenNode::new(), r#"{"v":1}"#);
        let of_node = NodeRecord::new("b0".into(), "2026-01-02T03:04:05Z".into());
        check(
            &NodeRecord { version: "0.1.0".into(), ..of_node },
            r#"{"v":1,"boot":"b0","version":"0.1.0","at":"2026-01-02T03:04:05Z"}"#,
        );
        check(&Forgotten::new(7), r#"{"v":1,"revision":7}"#);
        check(
            &Lacking::new(2, "ns/web-0".into(), "u-0".into()),
            r#"{"v":1,"epoch":2,"pod":"ns/web-0","uid":"u-0","certain":false}"#,
        );
        check(&Definitions::new("0f".into(), None), r#"{"v":1,"digest":"0f"}"#);
        check(&Leader::new("web-0-1f".into()), r#"{"v":1,"holder":"web-0-1f"}"#);
        let figures = BTreeMap::from([("owners".to_owned(), 3)]);
        let by = BTreeMap::from([("kept".to_owned(), BTreeMap::from([("pod-exists".to_owned(), 2)]))]);
        check(
            &PassRecord { at_ms: 7, took_ms: 5, figures, by, ..PassRecord::new("success".into()) },
            concat!(
                r#"{"v":1,"outcome":"success","at_ms":7,"took_ms":5,"figures":{"owners":3},"#,
                r#""by":{"kept":{"pod-exists":2}}}"#,
            ),
        );
        check(&MemberRecord::new(Some(7), Some(9)), r#"{"v":1,"snapshot":7,"certificate_end":9}"#);
        check(&MemberRecord::new(None, None), r#"{"v":1}"#);
        check(&Meta::first("0f".into()), r#"{"v":1,"min_writer":1,"id":"0f","epoch":1}"#);
        check(
            &Meta::in_place_of_any("0f".into()),
            r#"{"v":1,"min_writer":1,"id":"0f","epoch":1,"replaces":["*"]}"#,
        );
        let pool =
            serde_json::from_str(r#"{"pool":"a","ranges":[{"range":"10.0.0.0/24"}]}"#).expect("a pool");
        check(
            &PoolRecord::new(pool),
            r#"{"v":1,"definition":{"pool":"a","network":"default","ranges":[{"range":"10.0.0.0/24"}]}}"#,
        );
        check(&PoolChanges::of([]), r#"{"v":1}"#);
        let pool = serde_json::from_str(
            r#"{"pool":"a","for":{"nodes":["n"]},"priority":7,"ranges":[{"range":"10.0.0.0/24"}]}"#,
        );
        check(
            &PoolChanges::of([&pool.expect("a pool")]),
            r#"{"v":1,"auto":[{"pool":"a","priority":7,"for":{"nodes":["n"]}}]}"#,
        );
    }

    #[test]
    fn an_owner_is_read_by_its_path() {
        for path in ["east/n1/c1/net1", "-/n1/c1/net1", "east/@pod.ns/web-0/net1"] {
            assert_eq!(Owner::of_path(path).expect("an owner").path(), path);
        }
        for other in ["", "east/n1/c1", "east/n1/c1/net1/0", "east//c1/net1", "east/n 1/c1/net1"] {
            assert!(Owner::of_path(other).is_err(), "{other}");
        }
    }

    #[test]
    fn an_owner_is_a_hold_by_all_of_its_names() {
        let (network, address) = (NetworkName::default(), Addr(0xffff_0a00_0001));
        let hold = Owner::of_hold(&network, address);
        assert_eq!(hold.kind(), OwnerKind::Aside(network, address));
        assert_eq!(hold.to_string(), "the hold of 10.0.0.1 in network default");
        let hex = "00000000000000000000ffff0a000001";
        let container = OwnerKind::Container;
        let uid: PodUid = "u-1".parse().expect("a UID");
        let (adopted, imported) = (ContainerId::adopted(&uid), ContainerId::imported("u-1").expect("an id"));
        for (other, kind) in [
            (["-", "n1", hex, "hold"], container(ContainerKind::Runtime)),
            (["-", "n1", adopted.as_str(), "net1"], container(ContainerKind::Adopted)),
            (["east", "n1", imported.as_str(), "net1"], container(ContainerKind::Imported)),
            (["east", "n1", "0b1f1c2e-93a4-4b0e-8f5e-6D2f1a7c9e00", "net1"], container(ContainerKind::Claim)),
            (
                ["east", "n1", "0b1f1c2e-93a4-4b0e-8f5e-6d2f1a7c9e0", "net1"],
                container(ContainerKind::Runtime),
            ),
            (["-", "@default", "c1", "hold"], OwnerKind::Unknown),
            (["-", "@default", "ffff0a000001", "hold"], OwnerKind::Unknown),
            (["-", "@default", hex, "eth0"], OwnerKind::Unknown),
            (["east", "@default", hex, "hold"], OwnerKind::Unknown),
            (["-", "@pod.prod", "db-0", "net1"], OwnerKind::Unknown),
        ] {
            let owner = Owner::named(other).expect("names that may stand in a key");
            assert_eq!(owner.kind(), kind, "{other:?}");
        }
        // A network may be named like the pods of a namespace. Then the cluster tells them apart.
        let network = NetworkName::configured("pod.prod").expect("a network");
        let aside = Owner::of_hold(&network, address);
        assert_eq!(aside.kind(), OwnerKind::Aside(network, address));
        let subject = Subject { namespace: "prod".into(), name: hex.into() };
        let owner = Owner::named(["east", "@pod.prod", hex, "hold"]).expect("names that may stand in a key");
        assert_eq!(owner.kind(), OwnerKind::Subject(subject));
        assert_eq!(owner.to_string(), format!("the hold for hold of pod prod/{hex} of cluster east"));
    }

    fn check<R: Record + PartialEq + std::fmt::Debug>(record: &R, golden: &str) {
        assert_eq!(String::from_utf8(record.encode()).expect("utf-8"), golden);
        assert_eq!(&R::decode(golden.as_bytes()).expect("decodes"), record);
    }

    #[test]
    fn what_is_not_ours_does_not_decode() {
        assert!(matches!(Meta::decode(b"\x00garbage"), Err(Undecodable::Malformed { .. })));
        assert!(matches!(Meta::decode(b"{}"), Err(Undecodable::Malformed { .. })));
        assert_eq!(Meta::decode(br#"{"v":2}"#), Err(Undecodable::Version { kind: "meta", found: 2 }));
        for (value, newer) in [
            (&br#"{"v":2,"later":[]}"#[..], Some(2)),
            (br#"{"v":1}"#, None),
            (br#"{"v":0}"#, None),
            (br#"{"v":"2"}"#, None),
            (b"2", None),
            (&[0; 512], None),
        ] {
            assert_eq!(newer_version(value), newer, "{value:?}");
            assert_eq!(Meta::decode(value).expect_err("no meta").is_newer(), newer.is_some(), "{value:?}");
        }
    }

    #[test]
    fn what_newer_programs_have_agreed_on_is_written_back() {
        let text = br#"{"v":1,"min_writer":1,"id":"0f","epoch":1,"later":{"a":[1]}}"#;
        let mut meta = Meta::decode(text).expect("decodes");
        meta.paused = Some("import".to_owned());
        let written = Meta::decode(&meta.encode()).expect("decodes");
        assert_eq!(written, meta);
        meta.paused = None;
        assert_eq!(meta.encode(), text);
    }

    #[test]
    fn a_record_of_another_machine_is_of_another_container_unless_the_pod_is_the_same() {
        for (machine, uid, of_record, record_uid, expected) in [
            ("a", "", "a", "", true),
            ("a", "", "b", "", false),
            ("a", "u", "b", "u", true),
            ("a", "u", "b", "v", false),
            ("a", "", "b", "u", false),
            ("a", "u", "b", "", false),
            ("a", "", "", "", true),
            ("", "", "b", "", false),
        ] {
            let mut labels = labels();
            let uid = uid.parse().ok();
            labels.pod.uid = record_uid.parse().ok();
            let record = OwnerRecord::new(Vec::new(), None, "-".into(), labels).on_machine(of_record);
            let caller = Caller { machine, pod_uid: uid.as_ref() };
            assert_eq!(caller.means(&record), expected, "{caller:?} {of_record:?} {record_uid:?}");
        }
    }
}
