//! The key layout: every key is built and parsed here, and nowhere else.
//!
//! Each part of a key has a checked type, so that no value from a configuration, an environment or a foreign record
//! can leave its place in the tree, and building a key cannot fail. Pure: no I/O.

use std::fmt;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use ring::digest;

use crate::pool::{
    Addr, AskedRanges, ClusterName, InterfaceName, InvalidName, NO_CLUSTER, NetworkName, NodeName, OF_HOLDS,
    Owner, Page, PodIndex, PodUid, PoolDefinition, PoolName, PoolRange, Range, RangeSet, Seat, Summary,
};

/// The longest scope: a range's own network, and that range.
const SCOPE_MAX: usize = 256;

/// Stands in a key for a machine without an id.
const NO_MACHINE: &str = "-";

/// A key or a prefix of keys, as etcd sees it.
pub type Bytes = Vec<u8>;

/// The id of an etcd lease; always positive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub i64);

/// The id of a ticket in its queue; random and always positive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TicketId(pub i64);

/// An address in its network.
pub type NetworkAddress = (NetworkName, Addr);

/// The queue that a run stands in. Runs that write the same page stand in the same queue, as far as their
/// configurations show it: it has the network, and the page where the run begins. That is the node's page with
/// `spread`, else the page of the first range. A first range of several pages has a queue of its own; a configuration
/// without ranges has `-`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope(String);

impl Scope {
    /// The queue of the first range of `sets`; `start` is the node's page for `spread`.
    #[must_use]
    pub fn of(sets: &[RangeSet], start: Option<Page>) -> Self {
        let ranges = sets.first().map(RangeSet::ranges).unwrap_or_default();
        let has_start = |range: &&Range| {
            start.is_none_or(|page| (range.first().page()..=range.last().page()).contains(&page))
        };
        match ranges.iter().find(has_start).or(ranges.first()) {
            Some(range) => {
                let bounds = (range.first(), range.last());
                Self::of_range(range.network(), range.subnet(), bounds, start)
            }
            None => Self("-".to_owned()),
        }
    }

    /// The queue of a pool. Its first range counts, whatever state that has: so the queue stays when ranges are opened
    /// and closed.
    pub(crate) fn of_pool(pool: &PoolDefinition, start: Option<Page>) -> Self {
        let Some(PoolRange { range, .. }) = pool.ranges.first() else { return Self::of(&[], start) };
        let (first, last) = range.bounds();
        Self::of_range(&pool.network, range.subnet, (first.into(), last.into()), start)
    }

    fn of_range(
        network: &NetworkName,
        subnet: IpNetwork,
        (first, last): (Addr, Addr),
        start: Option<Page>,
    ) -> Self {
        let only = (first.page() == last.page()).then(|| first.page());
        Self(match start.or(only) {
            Some(page) => format!("{network},{:032x}", page.first().0),
            None => format!("{network},{:032x}-{}", Addr::from(subnet.network()).0, subnet.prefix()),
        })
    }

    /// Reads a scope back from a key or a record.
    ///
    /// # Errors
    /// [`InvalidName`] if it has characters that no scope has.
    pub fn stored(scope: &str) -> Result<Self, InvalidName> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-@,".contains(&b);
        if (1..=SCOPE_MAX).contains(&scope.len()) && scope.bytes().all(allowed) {
            return Ok(Self(scope.to_owned()));
        }
        Err(InvalidName { what: "scope", found: scope.to_owned(), expected: "A-Z a-z 0-9 . _ - @ ," })
    }

    /// The scope as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name under which a node keeps hints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HintName {
    class: HintClass,
    name: String,
}

crate::named_enum! {
    /// The class of a node's hints. Each has room of its own, so that hints of one class push out no other's.
    pub enum HintClass {
        /// Those of a scope, or of pools.
        Scope = "scope",
        /// Those of a hold.
        Hold = "hold",
    }
}

impl HintName {
    /// The record of a hold.
    pub(crate) fn of_hold(hold: &Owner) -> Self {
        Self { class: HintClass::Hold, name: hold.path() }
    }

    /// The texts of these pools.
    pub(crate) fn of_pools<'a>(pools: impl Iterator<Item = &'a PoolName>) -> Self {
        let names: Vec<&str> = pools.map(PoolName::as_str).collect();
        Self::of_scope(format!("pools,@{}", digest_hex(names.join("/").as_bytes())))
    }

    /// The record that `auto` chooses pools by.
    pub(crate) fn of_auto() -> Self {
        Self::of_scope("pools,@auto".to_owned())
    }

    fn of_scope(name: String) -> Self {
        Self { class: HintClass::Scope, name }
    }

    /// The class, with which the name of the file begins.
    #[must_use]
    pub fn class(&self) -> HintClass {
        self.class
    }

    /// The name of the file.
    #[must_use]
    pub fn file(&self) -> String {
        format!("{}-{}", self.class, digest_hex(self.name.as_bytes()))
    }
}

impl From<&Scope> for HintName {
    fn from(scope: &Scope) -> Self {
        Self::of_scope(scope.0.clone())
    }
}

/// A parsed key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// `v1/meta`
    Meta,
    /// `v1/net/<network>/page/<hex>`
    Page(NetworkName, Page),
    /// `v1/net/<network>/summary/<hex>`
    Summary(NetworkName, Summary),
    /// `v1/net/<network>/ip/<hex>`
    Ip(NetworkName, Addr),
    /// `v1/net/<network>/cooling/<hex>`
    Cooling(NetworkName, Addr),
    /// `v1/net/<network>/cursor/<id>`
    Cursor(NetworkName, String),
    /// `v1/owner/<cluster>/<node>/<container>/<ifname>`
    Owner(Owner),
    /// `v1/seat/<cluster>/@pod.<namespace>/<name>/<ifname>/<n>`
    Seat(Seat),
    /// `v1/pod/<cluster>/<uid>/<ifname>/<network>`
    Pod(PodInterface),
    /// `v1/tombstone/<cluster>/<node>/<container>/<ifname>`
    Tombstone(Owner),
    /// `v1/ticket/<scope>/<id>`
    Ticket(Scope, TicketId),
    /// `v1/tail/<scope>`
    Tail(Scope),
    /// `v1/moved/<scope>`.
    Moved(Scope),
    /// `v1/fence/<node>`
    Fence(NodeName),
    /// `v1/node/<cluster>/<node>/<machine>`
    Node(NodeKey),
    /// `v1/gone/<cluster>/<node>/<machine>`
    GoneMachine(NodeKey),
    /// `v1/forgotten`
    Forgotten,
    /// `v1/stranger/<store>/<machine>`
    Stranger(String, String),
    /// `v1/cluster/<cluster>`
    Cluster(ClusterName),
    /// `v1/orphan/<cluster>/<node>/<container>/<ifname>`
    Orphan(Owner),
    /// `v1/seen/<cluster>/<node>`
    Seen(ClusterName, NodeName),
    /// `v1/lacking/<cluster>/<network>/<hex>`
    Lacking(ClusterName, NetworkName, Addr),
    /// `v1/lead/<cluster>`
    Lead(ClusterName),
    /// `v1/pass/<cluster>`
    Pass(ClusterName),
    /// `v1/member/<ip>`
    Member(IpAddr),
    /// `v1/import/<cluster>`
    Import(ClusterName),
    /// `v1/pool/<pool>`
    Pool(PoolName),
    /// `v1/pools`
    PoolChanges,
    /// `v1/hold/<network>/<hex>`
    Hold(NetworkName, Addr),
    /// `v1/asked/<digest>`
    Asked(String),
}

/// One interface of a pod in one network: the key of the pod index.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodInterface {
    /// The cluster's name, if it has one. A static pod's UID is derived from its file, so two clusters may have the
    /// same.
    pub cluster: Option<ClusterName>,
    /// The pod's UID.
    pub uid: PodUid,
    /// The interface's name.
    pub ifname: InterfaceName,
    /// The network.
    pub network: NetworkName,
}

impl PodInterface {
    /// The owner that the entry under this key names.
    #[must_use]
    pub fn owner(&self, index: PodIndex) -> Owner {
        index.owner(self.cluster.as_ref(), &self.ifname)
    }
}

/// The names in a node's own key, which its runs leave in the store.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeKey {
    /// The cluster's name, if it has one.
    pub cluster: Option<ClusterName>,
    /// The node's name.
    pub node: NodeName,
    /// 32 hex digits that tell the machine from others of the same name; empty if it has no id.
    pub machine: String,
}

/// All keys below one prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    root: String,
}

impl Keys {
    /// The keys below `prefix`, which starts and ends with a slash.
    #[must_use]
    pub fn new(prefix: &str) -> Self {
        debug_assert!(prefix.starts_with('/') && prefix.ends_with('/'));
        Self { root: format!("{prefix}v1/") }
    }

    /// The prefix of everything that metes keeps.
    #[must_use]
    pub fn root(&self) -> Bytes {
        self.root.clone().into_bytes()
    }

    /// The key of the meta.
    #[must_use]
    pub fn meta(&self) -> Bytes {
        self.join("meta")
    }

    /// The three prefixes of allocations. Without a meta they must be empty.
    #[must_use]
    pub fn allocations(&self) -> [Bytes; 3] {
        [self.nets(), self.owners(), self.pods()]
    }

    /// The prefix of all networks.
    #[must_use]
    pub fn nets(&self) -> Bytes {
        self.join("net/")
    }

    /// The prefix of one network.
    #[must_use]
    pub fn net(&self, network: &NetworkName) -> Bytes {
        self.join(&format!("net/{network}/"))
    }

    /// The prefix of all owner records.
    #[must_use]
    pub fn owners(&self) -> Bytes {
        self.join("owner/")
    }

    /// The prefix of the pod index.
    #[must_use]
    pub fn pods(&self) -> Bytes {
        self.join("pod/")
    }

    /// One page of a network.
    #[must_use]
    pub fn page(&self, network: &NetworkName, page: Page) -> Bytes {
        self.join(&format!("net/{network}/page/{:032x}", page.first().0))
    }

    /// One summary of a network.
    #[must_use]
    pub fn summary(&self, network: &NetworkName, summary: Summary) -> Bytes {
        self.join(&format!("net/{network}/summary/{:032x}", summary.first().0))
    }

    /// The prefix of the addresses of a network.
    #[must_use]
    pub fn ips(&self, network: &NetworkName) -> Bytes {
        self.join(&format!("net/{network}/ip/"))
    }

    /// The prefix of the addresses of a network that lie in a prefix of addresses. Some others may begin with it.
    #[must_use]
    pub fn ips_of(&self, network: &NetworkName, prefix: IpNetwork) -> Bytes {
        let first = Addr::from(prefix.network());
        let bits = usize::from(prefix.prefix()) + if first.is_v4() { 96 } else { 0 };
        let digits = &format!("{:032x}", first.0)[..bits / 4];
        self.join(&format!("net/{network}/ip/{digits}"))
    }

    /// One address of a network.
    #[must_use]
    pub fn ip(&self, network: &NetworkName, address: Addr) -> Bytes {
        self.join(&format!("net/{network}/ip/{:032x}", address.0))
    }

    /// The prefix of the addresses of a network that are cooling.
    #[must_use]
    pub fn all_cooling(&self, network: &NetworkName) -> Bytes {
        self.join(&format!("net/{network}/cooling/"))
    }

    /// The key that exists while an address of a network is cooling.
    #[must_use]
    pub fn cooling(&self, network: &NetworkName, address: Addr) -> Bytes {
        self.join(&format!("net/{network}/cooling/{:032x}", address.0))
    }

    /// The cursor of a range set; `start` is the node's page for `spread`.
    ///
    /// Its id is a digest of the ranges as they stand in their network (first and last
    /// address of each), so that it does not depend on a set's position in a configuration.
    #[must_use]
    pub fn cursor(&self, set: &RangeSet, start: Option<Page>) -> Bytes {
        let numbers = set.ranges().iter().flat_map(|range| [range.first(), range.last()]);
        let mut canonical: Vec<u8> = numbers.flat_map(|address| address.0.to_be_bytes()).collect();
        if let Some(page) = start {
            canonical.push(b'@');
            canonical.extend(page.first().0.to_be_bytes());
        }
        let network = set.ranges()[0].network();
        self.join(&format!("net/{network}/cursor/{}", digest_hex(&canonical)))
    }

    /// An owner's record.
    #[must_use]
    pub fn owner(&self, owner: &Owner) -> Bytes {
        self.join(&format!("owner/{}", owner.path()))
    }

    /// The prefix of the owner records of one node of a cluster.
    #[must_use]
    pub fn owners_of(&self, cluster: Option<&ClusterName>, node: &NodeName) -> Bytes {
        self.join(&format!("owner/{}/{node}/", cluster_part(cluster)))
    }

    /// One seat of a hold.
    #[must_use]
    pub fn seat(&self, Seat { hold, n }: &Seat) -> Bytes {
        self.join(&format!("seat/{}/{n}", hold.path()))
    }

    /// All seats that a hold may have. While none of them exists, no container uses it.
    #[must_use]
    pub fn seats_of(&self, hold: &Owner) -> [Bytes; Seat::NUMBERS.len()] {
        Seat::NUMBERS.map(|n| self.seat(&Seat { hold: hold.clone(), n }))
    }

    /// The prefix of all seats.
    #[must_use]
    pub fn seats(&self) -> Bytes {
        self.join("seat/")
    }

    /// An owner's tombstone.
    #[must_use]
    pub fn tombstone(&self, owner: &Owner) -> Bytes {
        self.join(&format!("tombstone/{}", owner.path()))
    }

    /// The key that the runs of a node leave in the store. A store that has an older one than the node knows has
    /// forgotten something.
    #[must_use]
    pub fn node(&self, node: &NodeKey) -> Bytes {
        self.join(&format!("node/{}", machine_path(node)))
    }

    /// The prefix of the keys of one cluster's nodes.
    #[must_use]
    pub fn nodes_of(&self, cluster: &ClusterName) -> Bytes {
        self.join(&format!("node/{cluster}/"))
    }

    /// The prefix of the machines that a cluster's reconciler has seen to be gone.
    #[must_use]
    pub fn gone_machines(&self, cluster: &ClusterName) -> Bytes {
        self.join(&format!("gone/{cluster}/"))
    }

    /// The key that says that a cluster's reconciler has seen that this machine is gone.
    #[must_use]
    pub fn gone_machine(&self, node: &NodeKey) -> Bytes {
        self.join(&format!("gone/{}", machine_path(node)))
    }

    /// The key whose value is the highest mod revision of a node's key that a pass has deleted.
    #[must_use]
    pub fn forgotten(&self) -> Bytes {
        self.join("forgotten")
    }

    /// The key that says that this machine knows another store, and has come to this one with a host file that names
    /// other endpoints than before.
    #[must_use]
    pub fn stranger(&self, store: &str, machine: &str) -> Bytes {
        let machine = if machine.is_empty() { NO_MACHINE } else { machine };
        self.join(&format!("stranger/{store}/{machine}"))
    }

    /// The prefix of the machines that know this other store.
    #[must_use]
    pub fn strangers_from(&self, store: &str) -> Bytes {
        self.join(&format!("stranger/{store}/"))
    }

    /// The key of a cluster's identity, so that no two clusters use one name.
    #[must_use]
    pub fn cluster(&self, cluster: &ClusterName) -> Bytes {
        self.join(&format!("cluster/{cluster}"))
    }

    /// The prefix of all clusters' identities.
    #[must_use]
    pub fn clusters(&self) -> Bytes {
        self.join("cluster/")
    }

    /// The key that names the leading one of a cluster's long-running reconcilers.
    #[must_use]
    pub fn lead(&self, cluster: &ClusterName) -> Bytes {
        self.join(&format!("lead/{cluster}"))
    }

    /// The key of the result of a cluster's last pass.
    #[must_use]
    pub fn pass(&self, cluster: &ClusterName) -> Bytes {
        self.join(&format!("pass/{cluster}"))
    }

    /// The prefix of what the members of etcd say of themselves.
    #[must_use]
    pub fn members(&self) -> Bytes {
        self.join("member/")
    }

    /// The key in which the member of etcd on this node says when its last snapshot was taken.
    #[must_use]
    pub fn member(&self, node: IpAddr) -> Bytes {
        self.join(&format!("member/{node}"))
    }

    /// The key of a cluster's NetworkAttachmentDefinitions as an import last saw them.
    #[must_use]
    pub fn import(&self, cluster: &ClusterName) -> Bytes {
        self.join(&format!("import/{cluster}"))
    }

    /// A pool.
    #[must_use]
    pub fn pool(&self, pool: &PoolName) -> Bytes {
        self.join(&format!("pool/{pool}"))
    }

    /// The prefix of all pools.
    #[must_use]
    pub fn pools(&self) -> Bytes {
        self.join("pool/")
    }

    /// The prefix of all pools, and of the key that every change of a pool writes.
    #[must_use]
    pub fn pools_and_changes(&self) -> Bytes {
        self.join("pool")
    }

    /// The key that every change of a pool writes.
    #[must_use]
    pub fn pool_changes(&self) -> Bytes {
        self.join("pools")
    }

    /// The key that exists until the time of a hold is over; a hold without an end has no such key.
    #[must_use]
    pub fn hold(&self, network: &NetworkName, address: Addr) -> Bytes {
        self.join(&format!("hold/{network}/{:032x}", address.0))
    }

    /// The prefix of all holds whose time is not over.
    #[must_use]
    pub fn holds(&self) -> Bytes {
        self.join("hold/")
    }

    /// The key of the ranges that a configuration asks for; see [`AskedRanges::identity`].
    #[must_use]
    pub fn asked(&self, asked: &AskedRanges) -> Bytes {
        self.join(&format!("asked/{}", digest_hex(&asked.identity())))
    }

    /// The prefix of the ranges that all configurations ask for.
    #[must_use]
    pub fn all_asked(&self) -> Bytes {
        self.join("asked/")
    }

    /// The prefix of the owner records of all addresses that are set aside.
    #[must_use]
    pub fn hold_owners(&self) -> Bytes {
        self.join(&format!("owner/{NO_CLUSTER}/{OF_HOLDS}"))
    }

    /// The prefix of the owner records of the addresses of one network that are set aside.
    #[must_use]
    pub fn hold_owners_of(&self, network: &NetworkName) -> Bytes {
        self.owners_of(None, &NodeName::of_holds(network))
    }

    /// The prefix of the owner records of a cluster's holds for pods.
    #[must_use]
    pub fn pod_holds(&self, cluster: &ClusterName) -> Bytes {
        self.join(&format!("owner/{cluster}/{OF_HOLDS}"))
    }

    /// The prefix of the orphans that a cluster's reconciler has seen.
    #[must_use]
    pub fn orphans(&self, cluster: &ClusterName) -> Bytes {
        self.join(&format!("orphan/{cluster}/"))
    }

    /// The note that the reconciler has seen this owner as an orphan.
    #[must_use]
    pub fn orphan(&self, owner: &Owner) -> Bytes {
        self.join(&format!("orphan/{}", owner.path()))
    }

    /// The prefix of the names of all nodes that a cluster's reconciler has seen.
    #[must_use]
    pub fn seen_nodes(&self, cluster: &ClusterName) -> Bytes {
        self.join(&format!("seen/{cluster}/"))
    }

    /// The key that says that a cluster's reconciler has seen a node of this name.
    #[must_use]
    pub fn seen_node(&self, cluster: &ClusterName, node: &NodeName) -> Bytes {
        self.join(&format!("seen/{cluster}/{node}"))
    }

    /// The prefix of all addresses that running pods of any cluster report, and that the store lacks.
    #[must_use]
    pub fn all_lacking(&self) -> Bytes {
        self.join("lacking/")
    }

    /// The key that says that a cluster's reconciler saw a pod report this address, which the store lacks.
    #[must_use]
    pub fn lacking(&self, cluster: &ClusterName, network: &NetworkName, address: Addr) -> Bytes {
        self.join(&format!("lacking/{cluster}/{network}/{:032x}", address.0))
    }

    /// The index entry of one interface of a pod in one network.
    #[must_use]
    pub fn pod(
        &self,
        cluster: Option<&ClusterName>,
        uid: &PodUid,
        ifname: &InterfaceName,
        network: &NetworkName,
    ) -> Bytes {
        self.join(&format!("pod/{}/{uid}/{ifname}/{network}", cluster_part(cluster)))
    }

    /// The prefix of all tickets in one queue.
    #[must_use]
    pub fn queue(&self, scope: &Scope) -> Bytes {
        self.join(&format!("ticket/{scope}/"))
    }

    /// One run's ticket in a queue.
    #[must_use]
    pub fn ticket(&self, scope: &Scope, id: TicketId) -> Bytes {
        self.join(&format!("ticket/{scope}/{:016x}", id.0))
    }

    /// The tail of a queue: it names the ticket that was taken last.
    #[must_use]
    pub fn tail(&self, scope: &Scope) -> Bytes {
        self.join(&format!("tail/{scope}"))
    }

    /// The key that shows when a queue moved last: every commit from the queue writes it.
    #[must_use]
    pub fn moved(&self, scope: &Scope) -> Bytes {
        self.join(&format!("moved/{scope}"))
    }

    /// The key that a node's commits write on their lease, so that etcd refuses them after the lease has ended.
    #[must_use]
    pub fn fence(&self, node: &NodeName) -> Bytes {
        self.join(&format!("fence/{node}"))
    }

    /// Takes a key below the root apart.
    ///
    /// # Errors
    /// [`ForeignKey`] if metes writes no such key.
    pub fn parse(&self, key: &[u8]) -> Result<Key, ForeignKey> {
        std::str::from_utf8(key)
            .ok()
            .and_then(|key| key.strip_prefix(&self.root))
            .and_then(parse_path)
            .ok_or_else(|| ForeignKey(String::from_utf8_lossy(key).into_owned()))
    }

    fn join(&self, rest: &str) -> Bytes {
        [self.root.as_bytes(), rest.as_bytes()].concat()
    }
}

/// A key under the prefix that metes does not write.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a key of metes")]
pub struct ForeignKey(pub String);

fn parse_path(path: &str) -> Option<Key> {
    let parts: Vec<&str> = path.split('/').collect();
    match parts[..] {
        ["meta"] => Some(Key::Meta),
        ["net", network, kind, name] => parse_net(NetworkName::stored(network).ok()?, kind, name),
        ["owner", ref owner @ ..] => parse_owner(owner).map(Key::Owner),
        ["seat", ref hold @ .., n] => parse_seat(hold, n).map(Key::Seat),
        ["tombstone", ref owner @ ..] => parse_owner(owner).map(Key::Tombstone),
        ["orphan", ref owner @ ..] => parse_owner(owner).map(Key::Orphan),
        ["seen", cluster, node] => Some(Key::Seen(cluster.parse().ok()?, node.parse().ok()?)),
        ["lacking", cluster, network, address] => Some(Key::Lacking(
            cluster.parse().ok()?,
            NetworkName::stored(network).ok()?,
            parse_address(address)?,
        )),
        ["pod", cluster, uid, ifname, network] => Some(Key::Pod(PodInterface {
            cluster: ClusterName::or_none(cluster).ok()?,
            uid: uid.parse().ok()?,
            ifname: ifname.parse().ok()?,
            network: NetworkName::stored(network).ok()?,
        })),
        ["ticket", scope, id] => Some(Key::Ticket(Scope::stored(scope).ok()?, parse_ticket(id)?)),
        ["tail", scope] => Some(Key::Tail(Scope::stored(scope).ok()?)),
        ["moved", scope] => Some(Key::Moved(Scope::stored(scope).ok()?)),
        ["fence", node] => node.parse().ok().map(Key::Fence),
        ["node", cluster, node, machine] => parse_node(cluster, node, machine).map(Key::Node),
        ["gone", cluster, node, machine] => parse_node(cluster, node, machine).map(Key::GoneMachine),
        ["forgotten"] => Some(Key::Forgotten),
        ["stranger", store, machine] if is_machine(store) => {
            Some(Key::Stranger(store.to_owned(), parse_machine(machine)?))
        }
        ["cluster", name] => name.parse().ok().map(Key::Cluster),
        ["lead", name] => name.parse().ok().map(Key::Lead),
        ["pass", name] => name.parse().ok().map(Key::Pass),
        ["member", node] => parse_member(node).map(Key::Member),
        ["import", name] => name.parse().ok().map(Key::Import),
        ["pool", name] => name.parse().ok().map(Key::Pool),
        ["pools"] => Some(Key::PoolChanges),
        ["asked", digest] => is_digest(digest).then(|| Key::Asked(digest.to_owned())),
        ["hold", network, address] => {
            Some(Key::Hold(NetworkName::stored(network).ok()?, parse_address(address)?))
        }
        _ => None,
    }
}

/// Only the form that metes writes.
fn parse_member(node: &str) -> Option<IpAddr> {
    node.parse().ok().filter(|ip: &IpAddr| ip.to_string() == node)
}

fn machine_path(NodeKey { cluster, node, machine }: &NodeKey) -> String {
    let machine = if machine.is_empty() { NO_MACHINE } else { machine };
    format!("{}/{node}/{machine}", cluster_part(cluster.as_ref()))
}

fn parse_node(cluster: &str, node: &str, machine: &str) -> Option<NodeKey> {
    let machine = parse_machine(machine)?;
    Some(NodeKey { cluster: ClusterName::or_none(cluster).ok()?, node: node.parse().ok()?, machine })
}

fn parse_machine(machine: &str) -> Option<String> {
    match machine {
        NO_MACHINE => Some(String::new()),
        machine => is_machine(machine).then(|| machine.to_owned()),
    }
}

/// True if it may tell a machine from others; what metes makes are 32 hex digits.
fn is_machine(text: &str) -> bool {
    (1..=32).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric())
}

fn parse_net(network: NetworkName, kind: &str, name: &str) -> Option<Key> {
    if kind == "cursor" {
        return is_digest(name).then(|| Key::Cursor(network, name.to_owned()));
    }
    let address = parse_address(name)?;
    match kind {
        "ip" => Some(Key::Ip(network, address)),
        "cooling" => Some(Key::Cooling(network, address)),
        "page" => (address.page().first() == address).then(|| Key::Page(network, address.page())),
        "summary" => {
            let summary = address.page().summary();
            (summary.first() == address).then_some(Key::Summary(network, summary))
        }
        _ => None,
    }
}

/// True if it is what [`digest_hex`] makes.
fn is_digest(text: &str) -> bool {
    text.len() == 32 && is_lower_hex(text)
}

fn parse_address(hex: &str) -> Option<Addr> {
    is_digest(hex).then(|| u128::from_str_radix(hex, 16).ok())?.map(Addr)
}

fn parse_ticket(hex: &str) -> Option<TicketId> {
    (hex.len() == 16 && is_lower_hex(hex)).then(|| i64::from_str_radix(hex, 16).ok())?.map(TicketId)
}

fn is_lower_hex(s: &str) -> bool {
    s.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

fn parse_owner(parts: &[&str]) -> Option<Owner> {
    Owner::named(parts.try_into().ok()?).ok()
}

fn parse_seat(hold: &[&str], n: &str) -> Option<Seat> {
    let hold = parse_owner(hold).filter(|hold| hold.is_for_subject())?;
    let n = Seat::NUMBERS.into_iter().find(|known| known.to_string() == n)?;
    Some(Seat { hold, n })
}

/// A cluster's name in a key, or `-` for none.
fn cluster_part(cluster: Option<&ClusterName>) -> &str {
    cluster.map_or(NO_CLUSTER, ClusterName::as_str)
}

/// A name of 32 hex digits for any bytes: half of their SHA-256.
#[must_use]
pub fn digest_hex(bytes: &[u8]) -> String {
    let digest = digest::digest(&digest::SHA256, bytes);
    let half = digest.as_ref()[..16].iter().fold(0, |half: u128, byte| half << 8 | u128::from(*byte));
    format!("{half:032x}")
}

/// The first key after all keys that begin with `prefix`.
#[must_use]
pub fn prefix_end(prefix: &[u8]) -> Bytes {
    let mut end = prefix.to_vec();
    // A prefix of metes ends in a slash or an at sign, so its last byte can always be raised.
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;

    use super::*;
    use crate::pool::range::fixtures::{cidr, set};

    fn keys() -> Keys {
        Keys::new("/metes/")
    }

    fn owner() -> Owner {
        Owner::named(["east", "n-1.example", "c_1", "net1"]).expect("checked names")
    }

    fn checked<T: FromStr<Err = InvalidName>>(name: &str) -> T {
        name.parse().expect("a checked name")
    }

    fn addr(s: &str) -> Addr {
        Addr::from(s.parse::<std::net::IpAddr>().expect("an address"))
    }

    #[test]
    fn golden_keys_and_back() {
        let net = NetworkName::default();
        let a = addr("10.1.2.3");
        let scope = Scope::stored("default,00000000000000000000ffff0a000000-8").expect("scope");
        let (east, node): (ClusterName, NodeName) = (checked("east"), checked("n-1.example"));
        let own = NodeKey { cluster: Some(east.clone()), node: node.clone(), machine: "0f".repeat(16) };
        let bare = NodeKey { cluster: None, machine: String::new(), ..own.clone() };
        let pool: PoolName = checked("storage");
        let node_ip: IpAddr = "fd00::1".parse().expect("an address");
        let pod = PodInterface {
            cluster: Some(east.clone()),
            uid: checked("u-1"),
            ifname: checked("net1"),
            network: net.clone(),
        };
        let sets = vec![set([cidr("10.0.0.0/24")])];
        let asked = AskedRanges::new(Some(east.clone()), "mynet".into(), sets, String::new());
        let hold = Owner::named(["east", "@pod.prod", "db-0", "net1"]).expect("checked names");
        let seat = Seat { hold, n: 1 };
        let cases: Vec<(Bytes, &str, Key)> = vec![
            (keys().meta(), "/metes/v1/meta", Key::Meta),
            (
                keys().page(&net, a.page()),
                "/metes/v1/net/default/page/00000000000000000000ffff0a010000",
                Key::Page(net.clone(), a.page()),
            ),
            (
                keys().summary(&net, a.page().summary()),
                "/metes/v1/net/default/summary/00000000000000000000ffff0a000000",
                Key::Summary(net.clone(), a.page().summary()),
            ),
            (
                keys().ip(&net, a),
                "/metes/v1/net/default/ip/00000000000000000000ffff0a010203",
                Key::Ip(net.clone(), a),
            ),
            (
                keys().cooling(&net, a),
                "/metes/v1/net/default/cooling/00000000000000000000ffff0a010203",
                Key::Cooling(net.clone(), a),
            ),
            (keys().owner(&owner()), "/metes/v1/owner/east/n-1.example/c_1/net1", Key::Owner(owner())),
            (keys().seat(&seat), "/metes/v1/seat/east/@pod.prod/db-0/net1/1", Key::Seat(seat.clone())),
            (
                keys().tombstone(&owner()),
                "/metes/v1/tombstone/east/n-1.example/c_1/net1",
                Key::Tombstone(owner()),
            ),
            (
                keys().owner(&Owner { cluster: None, ..owner() }),
                "/metes/v1/owner/-/n-1.example/c_1/net1",
                Key::Owner(Owner { cluster: None, ..owner() }),
            ),
            (
                keys().pod(Some(&east), &pod.uid, &pod.ifname, &net),
                "/metes/v1/pod/east/u-1/net1/default",
                Key::Pod(pod.clone()),
            ),
            (
                keys().pod(None, &pod.uid, &pod.ifname, &net),
                "/metes/v1/pod/-/u-1/net1/default",
                Key::Pod(PodInterface { cluster: None, ..pod }),
            ),
            (keys().orphan(&owner()), "/metes/v1/orphan/east/n-1.example/c_1/net1", Key::Orphan(owner())),
            (
                keys().seen_node(&east, &node),
                "/metes/v1/seen/east/n-1.example",
                Key::Seen(east.clone(), node.clone()),
            ),
            (
                keys().lacking(&east, &net, a),
                "/metes/v1/lacking/east/default/00000000000000000000ffff0a010203",
                Key::Lacking(east.clone(), net.clone(), a),
            ),
            (
                keys().node(&own),
                "/metes/v1/node/east/n-1.example/0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f",
                Key::Node(own.clone()),
            ),
            (keys().node(&bare), "/metes/v1/node/-/n-1.example/-", Key::Node(bare.clone())),
            (keys().gone_machine(&bare), "/metes/v1/gone/-/n-1.example/-", Key::GoneMachine(bare.clone())),
            (keys().forgotten(), "/metes/v1/forgotten", Key::Forgotten),
            (
                keys().stranger("0f", "a1"),
                "/metes/v1/stranger/0f/a1",
                Key::Stranger("0f".into(), "a1".into()),
            ),
            (keys().stranger("0f", ""), "/metes/v1/stranger/0f/-", Key::Stranger("0f".into(), String::new())),
            (keys().cluster(&east), "/metes/v1/cluster/east", Key::Cluster(east.clone())),
            (keys().lead(&east), "/metes/v1/lead/east", Key::Lead(east.clone())),
            (keys().pass(&east), "/metes/v1/pass/east", Key::Pass(east.clone())),
            (keys().member(node_ip), "/metes/v1/member/fd00::1", Key::Member(node_ip)),
            (keys().import(&east), "/metes/v1/import/east", Key::Import(east.clone())),
            (
                keys().ticket(&scope, TicketId(0x1f)),
                "/metes/v1/ticket/default,00000000000000000000ffff0a000000-8/000000000000001f",
                Key::Ticket(scope.clone(), TicketId(0x1f)),
            ),
            (
                keys().tail(&scope),
                "/metes/v1/tail/default,00000000000000000000ffff0a000000-8",
                Key::Tail(scope.clone()),
            ),
            (keys().fence(&node), "/metes/v1/fence/n-1.example", Key::Fence(node.clone())),
            (keys().pool(&pool), "/metes/v1/pool/storage", Key::Pool(pool.clone())),
            (keys().pool_changes(), "/metes/v1/pools", Key::PoolChanges),
            (
                keys().hold(&net, a),
                "/metes/v1/hold/default/00000000000000000000ffff0a010203",
                Key::Hold(net.clone(), a),
            ),
            (
                keys().asked(&asked),
                "/metes/v1/asked/8ff4aa40c9c366294dfe41641a13e532",
                Key::Asked("8ff4aa40c9c366294dfe41641a13e532".to_owned()),
            ),
            (
                keys().owner(&Owner::of_hold(&net, a)),
                "/metes/v1/owner/-/@default/00000000000000000000ffff0a010203/hold",
                Key::Owner(Owner::of_hold(&net, a)),
            ),
        ];
        for (built, golden, parsed) in cases {
            assert_eq!(String::from_utf8_lossy(&built), golden);
            assert_eq!(keys().parse(&built), Ok(parsed), "{golden}");
        }
    }

    #[test]
    fn ranges_of_one_page_share_a_queue() {
        let page = Some(addr("10.1.32.0").page());
        let of = |subnet: &str, start| Scope::of(&[set([cidr(subnet).network("blue")])], start).0;
        for (subnet, start, scope) in [
            ("10.0.0.0/28", None, "blue,00000000000000000000ffff0a000000"),
            ("10.0.15.240/28", None, "blue,00000000000000000000ffff0a000000"),
            ("10.0.0.0/20", None, "blue,00000000000000000000ffff0a000000"),
            ("10.0.16.0/28", None, "blue,00000000000000000000ffff0a001000"),
            ("10.0.0.0/19", None, "blue,00000000000000000000ffff0a000000-19"),
            ("10.1.0.0/16", page, "blue,00000000000000000000ffff0a012000"),
            ("10.1.32.16/28", page, "blue,00000000000000000000ffff0a012000"),
            ("fd00::/116", None, "blue,fd000000000000000000000000000000"),
        ] {
            assert_eq!(of(subnet, start), scope, "{subnet}");
            assert_eq!(Scope::stored(scope), Ok(Scope(scope.to_owned())));
        }
        // Its bounds count, not its prefix.
        let slice = cidr("10.0.0.0/16").bounds("10.0.33.1", "10.0.33.9").network("blue");
        assert_eq!(Scope::of(&[set([slice])], None).0, of("10.0.32.0/28", None));
        // Ranges of one set may be in networks of their own.
        let two = set([cidr("10.0.0.0/24").network("blue"), cidr("10.1.32.0/24").network("red")]);
        assert_eq!(Scope::of(&[two], page).0, "red,00000000000000000000ffff0a012000");
        assert_eq!(Scope::of(&[], None).0, "-");
    }

    #[test]
    fn a_pool_keeps_its_queue_when_its_first_range_is_closed() {
        let pool = |text: &str| -> PoolDefinition { serde_json::from_str(text).expect("a pool") };
        let open =
            r#"{"pool":"p","network":"blue","ranges":[{"range":"10.0.0.16/28"},{"range":"10.7.0.0/16"}]}"#;
        let closed = open.replace(r#"16/28""#, r#"16/28","state":"closed""#);
        let scopes = [open, &closed].map(|text| Scope::of_pool(&pool(text), None).0);
        assert_eq!(scopes, ["blue,00000000000000000000ffff0a000000"; 2]);
        let start = Some(addr("10.7.32.0").page());
        assert_eq!(Scope::of_pool(&pool(open), start).0, "blue,00000000000000000000ffff0a072000");
    }

    #[test]
    fn a_scope_has_no_slash() {
        assert!(Scope::stored("a/b").is_err());
    }

    #[test]
    fn foreign_keys_are_named_as_such() {
        for foreign in [
            "/metes/v1/",
            "/metes/v1/net/default/page/00000000000000000000ffff0a010001",
            "/metes/v1/net/default/summary/00000000000000000000ffff0a010000",
            "/metes/v1/net/default/ip/xyz",
            "/metes/v1/net/default/ip/00000000000000000000FFFF0A010203",
            "/metes/v1/owner/n/c",
            "/metes/v1/owner/n/c/net1",
            "/metes/v1/seat/east/@pod.prod/db-0/net1",
            "/metes/v1/seat/east/@pod.prod/db-0/net1/2",
            "/metes/v1/seat/east/@pod.prod/db-0/net1/00",
            "/metes/v1/seat/east/n-1.example/c_1/net1/0",
            "/metes/v1/member/fd00:0::1",
            "/metes/v1/node/east/n",
            "/metes/v1/node/east/n/m_",
            "/metes/v2/meta",
            "/other",
        ] {
            assert!(keys().parse(foreign.as_bytes()).is_err(), "{foreign}");
        }
        assert!(keys().parse(b"/metes/v1/\xff").is_err());
    }

    #[test]
    fn a_prefix_ends_right_after_its_last_key() {
        assert_eq!(prefix_end(b"/a/"), b"/a0");
    }
}
