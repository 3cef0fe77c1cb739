//! The key layout: every key is built and parsed here, and nowhere else.
//!
//! Each part of a key has a type or is checked on the way in, so that no value from a
//! configuration, an environment or a foreign record can leave its place in the tree.
//! Pure: no I/O.

use std::fmt;

use ring::digest;

use crate::pool::names::{CLUSTER_NAME, InvalidName, NO_CLUSTER, is_cluster_name, is_plain_name};
use crate::pool::record::Owner;
use crate::pool::{Addr, NetworkName, Page, RangeSet, Summary};

/// The longest node name: a DNS name.
const NODE_NAME_MAX: usize = 253;
/// The longest container id that is accepted.
const CONTAINER_ID_MAX: usize = 253;
/// The longest interface name, in bytes (the kernel's IFNAMSIZ less its zero byte).
const IFNAME_MAX: usize = 15;
/// The longest pod UID.
const POD_UID_MAX: usize = 64;
/// The longest scope: a range's own network, its first range and a page.
const SCOPE_MAX: usize = 256;

/// A key or a prefix of keys, as etcd sees it.
pub type Bytes = Vec<u8>;

/// The id of an etcd lease; always positive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub i64);

/// Tells the tickets of a queue apart: random, and always positive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TicketId(pub i64);

/// The queue that a run stands in: its network and first range, and with `spread` the
/// page where its node starts; `-` for a configuration without ranges.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope(String);

impl Scope {
    /// The queue of the first range of `sets`; `start` is the node's page for `spread`.
    #[must_use]
    pub fn of(sets: &[RangeSet], start: Option<Page>) -> Self {
        let Some(range) = sets.first().and_then(|set| set.ranges().first()) else {
            return Self("-".to_owned());
        };
        let base = Addr::from(range.subnet().network());
        let mut scope = format!("{},{:032x}-{}", range.network(), base.0, range.prefix_len());
        if let Some(page) = start {
            scope.push_str(&format!(",{:032x}", page.first().0));
        }
        Self(scope)
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

/// A key taken apart.
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
    /// `v1/net/<network>/cursor/<id>`
    Cursor(NetworkName, String),
    /// `v1/owner/<cluster>/<node>/<container>/<ifname>`
    Owner(Owner),
    /// `v1/pod/<cluster>/<uid>/<ifname>/<network>`
    Pod(PodInterface),
    /// `v1/tombstone/<cluster>/<node>/<container>/<ifname>`
    Tombstone(Owner),
    /// `v1/ticket/<scope>/<id>`
    Ticket(Scope, TicketId),
    /// `v1/tail/<scope>`
    Tail(Scope),
    /// `v1/fence/<node>`
    Fence(String),
    /// `v1/cluster/<cluster>`
    Cluster(String),
    /// `v1/orphan/<cluster>/<node>/<container>/<ifname>`
    Orphan(Owner),
    /// `v1/seen/<cluster>/<node>`
    Seen(String, String),
    /// `v1/lead/<cluster>`
    Lead(String),
    /// `v1/import/<cluster>`
    Import(String),
}

/// One interface of a pod in one network: what the pod index is kept by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodInterface {
    /// The cluster's name; empty for none. A static pod's UID is derived from its file, so two clusters may have the same.
    pub cluster: String,
    /// The pod's UID.
    pub uid: String,
    /// The interface's name.
    pub ifname: String,
    /// The network.
    pub network: NetworkName,
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

    /// What all writers have agreed on.
    #[must_use]
    pub fn meta(&self) -> Bytes {
        self.join("meta")
    }

    /// The three prefixes that hold allocations: without `meta` they must be empty.
    #[must_use]
    pub fn allocations(&self) -> [Bytes; 3] {
        [self.nets(), self.owners(), self.pods()]
    }

    /// The prefix of all networks.
    #[must_use]
    pub fn nets(&self) -> Bytes {
        self.join("net/")
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

    /// One address of a network.
    #[must_use]
    pub fn ip(&self, network: &NetworkName, address: Addr) -> Bytes {
        self.join(&format!("net/{network}/ip/{:032x}", address.0))
    }

    /// The cursor of a range set; `start` is the node's page for `spread`.
    ///
    /// Its id is a digest of the ranges as they stand in their network (first and last
    /// address of each), so that it does not depend on a set's position in a configuration.
    #[must_use]
    pub fn cursor(&self, set: &RangeSet, start: Option<Page>) -> Bytes {
        let mut canonical = String::new();
        for range in set.ranges() {
            canonical.push_str(&format!("{:032x}-{:032x};", range.first().0, range.last().0));
        }
        if let Some(page) = start {
            canonical.push_str(&format!("@{:032x}", page.first().0));
        }
        let network = set.ranges()[0].network();
        self.join(&format!("net/{network}/cursor/{}", digest_hex(canonical.as_bytes())))
    }

    /// An owner's record.
    ///
    /// # Errors
    /// [`InvalidName`] if a part of the owner cannot stand in a key.
    pub fn owner(&self, owner: &Owner) -> Result<Bytes, InvalidName> {
        Ok(self.join(&format!("owner/{}", owner_path(owner)?)))
    }

    /// The prefix of the owner records of one node of a cluster, whose name may be empty.
    ///
    /// # Errors
    /// [`InvalidName`] if a name cannot stand in a key.
    pub fn owners_of(&self, cluster: &str, node: &str) -> Result<Bytes, InvalidName> {
        check_node(node)?;
        Ok(self.join(&format!("owner/{}/{node}/", cluster_part(cluster)?)))
    }

    /// An owner's tombstone.
    ///
    /// # Errors
    /// [`InvalidName`] if a part of the owner cannot stand in a key.
    pub fn tombstone(&self, owner: &Owner) -> Result<Bytes, InvalidName> {
        Ok(self.join(&format!("tombstone/{}", owner_path(owner)?)))
    }

    /// Where the cluster's identity is kept, so that no two clusters take one name.
    ///
    /// # Errors
    /// [`InvalidName`] if the name cannot stand in a key.
    pub fn cluster(&self, cluster: &str) -> Result<Bytes, InvalidName> {
        check_cluster(cluster)?;
        Ok(self.join(&format!("cluster/{cluster}")))
    }

    /// The prefix of all clusters' identities.
    #[must_use]
    pub fn clusters(&self) -> Bytes {
        self.join("cluster/")
    }

    /// Whose turn it is among the reconcilers of a cluster that run all the time.
    ///
    /// # Errors
    /// [`InvalidName`] if the name cannot stand in a key.
    pub fn lead(&self, cluster: &str) -> Result<Bytes, InvalidName> {
        check_cluster(cluster)?;
        Ok(self.join(&format!("lead/{cluster}")))
    }

    /// What a cluster's NetworkAttachmentDefinitions were like when an import looked at them last.
    ///
    /// # Errors
    /// [`InvalidName`] if the name cannot stand in a key.
    pub fn import(&self, cluster: &str) -> Result<Bytes, InvalidName> {
        check_cluster(cluster)?;
        Ok(self.join(&format!("import/{cluster}")))
    }

    /// The prefix of all that a cluster's reconciler remembers of orphans.
    ///
    /// # Errors
    /// [`InvalidName`] if the name cannot stand in a key.
    pub fn orphans(&self, cluster: &str) -> Result<Bytes, InvalidName> {
        check_cluster(cluster)?;
        Ok(self.join(&format!("orphan/{cluster}/")))
    }

    /// What the reconciler of an owner's cluster remembers of it if it saw it as an orphan.
    ///
    /// # Errors
    /// [`InvalidName`] if a part of the owner cannot stand in a key.
    pub fn orphan(&self, owner: &Owner) -> Result<Bytes, InvalidName> {
        Ok(self.join(&format!("orphan/{}", owner_path(owner)?)))
    }

    /// The prefix of the names of all nodes that a cluster's reconciler has seen.
    ///
    /// # Errors
    /// [`InvalidName`] if the name cannot stand in a key.
    pub fn seen_nodes(&self, cluster: &str) -> Result<Bytes, InvalidName> {
        check_cluster(cluster)?;
        Ok(self.join(&format!("seen/{cluster}/")))
    }

    /// That a cluster's reconciler has seen a node of this name.
    ///
    /// # Errors
    /// [`InvalidName`] if one of the names cannot stand in a key.
    pub fn seen_node(&self, cluster: &str, node: &str) -> Result<Bytes, InvalidName> {
        check_cluster(cluster)?;
        check_node(node)?;
        Ok(self.join(&format!("seen/{cluster}/{node}")))
    }

    /// The index entry of one interface of a pod in one network; the cluster's name may be empty.
    ///
    /// # Errors
    /// [`InvalidName`] if the cluster's name, the UID or the interface name cannot stand in a key.
    pub fn pod(
        &self,
        cluster: &str,
        uid: &str,
        ifname: &str,
        network: &NetworkName,
    ) -> Result<Bytes, InvalidName> {
        let cluster = cluster_part(cluster)?;
        check_uid(uid)?;
        check_ifname(ifname)?;
        Ok(self.join(&format!("pod/{cluster}/{uid}/{ifname}/{network}")))
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

    /// Which ticket of a queue was taken last.
    #[must_use]
    pub fn tail(&self, scope: &Scope) -> Bytes {
        self.join(&format!("tail/{scope}"))
    }

    /// What a node's commits write on their lease, so that etcd refuses them once it has ended.
    ///
    /// # Errors
    /// [`InvalidName`] if the name cannot stand in a key.
    pub fn fence(&self, node: &str) -> Result<Bytes, InvalidName> {
        check_node(node)?;
        Ok(self.join(&format!("fence/{node}")))
    }

    /// Takes a key below the root apart.
    ///
    /// # Errors
    /// [`ForeignKey`] if it is none that metes writes.
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
#[error("{0:?} is no key of metes")]
pub struct ForeignKey(pub String);

fn parse_path(path: &str) -> Option<Key> {
    let parts: Vec<&str> = path.split('/').collect();
    match parts[..] {
        ["meta"] => Some(Key::Meta),
        ["net", network, kind, name] => parse_net(NetworkName::stored(network).ok()?, kind, name),
        ["owner", ref owner @ ..] => parse_owner(owner).map(Key::Owner),
        ["tombstone", ref owner @ ..] => parse_owner(owner).map(Key::Tombstone),
        ["orphan", ref owner @ ..] => parse_owner(owner).map(Key::Orphan),
        ["seen", cluster, node] => {
            check_cluster(cluster).and_then(|()| check_node(node)).ok()?;
            Some(Key::Seen(cluster.to_owned(), node.to_owned()))
        }
        ["pod", cluster, uid, ifname, network] => {
            check_uid(uid).and_then(|()| check_ifname(ifname)).ok()?;
            Some(Key::Pod(PodInterface {
                cluster: parse_cluster(cluster)?,
                uid: uid.to_owned(),
                ifname: ifname.to_owned(),
                network: NetworkName::stored(network).ok()?,
            }))
        }
        ["ticket", scope, id] => Some(Key::Ticket(Scope::stored(scope).ok()?, parse_ticket(id)?)),
        ["tail", scope] => Some(Key::Tail(Scope::stored(scope).ok()?)),
        ["fence", node] => check_node(node).ok().map(|()| Key::Fence(node.to_owned())),
        ["cluster", name] => check_cluster(name).ok().map(|()| Key::Cluster(name.to_owned())),
        ["lead", name] => check_cluster(name).ok().map(|()| Key::Lead(name.to_owned())),
        ["import", name] => check_cluster(name).ok().map(|()| Key::Import(name.to_owned())),
        _ => None,
    }
}

fn parse_net(network: NetworkName, kind: &str, name: &str) -> Option<Key> {
    if kind == "cursor" {
        return (name.len() == 32 && is_lower_hex(name)).then(|| Key::Cursor(network, name.to_owned()));
    }
    let address = parse_address(name)?;
    match kind {
        "ip" => Some(Key::Ip(network, address)),
        "page" => (address.page().first() == address).then(|| Key::Page(network, address.page())),
        "summary" => {
            let summary = address.page().summary();
            (summary.first() == address).then_some(Key::Summary(network, summary))
        }
        _ => None,
    }
}

fn parse_address(hex: &str) -> Option<Addr> {
    (hex.len() == 32 && is_lower_hex(hex)).then(|| u128::from_str_radix(hex, 16).ok())?.map(Addr)
}

fn parse_ticket(hex: &str) -> Option<TicketId> {
    (hex.len() == 16 && is_lower_hex(hex)).then(|| i64::from_str_radix(hex, 16).ok())?.map(TicketId)
}

fn is_lower_hex(s: &str) -> bool {
    s.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

fn parse_owner(parts: &[&str]) -> Option<Owner> {
    let &[cluster, node, container_id, ifname] = parts else { return None };
    let owner = Owner {
        node: node.to_owned(),
        container_id: container_id.to_owned(),
        ifname: ifname.to_owned(),
        cluster: parse_cluster(cluster)?,
    };
    owner_path(&owner).is_ok().then_some(owner)
}

fn owner_path(owner: &Owner) -> Result<String, InvalidName> {
    cluster_part(&owner.cluster)?;
    check_node(&owner.node)?;
    check_container(&owner.container_id)?;
    check_ifname(&owner.ifname)?;
    let cluster = owner.cluster_or_dash();
    Ok(format!("{cluster}/{}/{}/{}", owner.node, owner.container_id, owner.ifname))
}

/// A cluster's name as it stands in keys where there may be none.
fn cluster_part(name: &str) -> Result<&str, InvalidName> {
    if name.is_empty() {
        return Ok(NO_CLUSTER);
    }
    check_cluster(name).map(|()| name)
}

fn parse_cluster(part: &str) -> Option<String> {
    match part {
        NO_CLUSTER => Some(String::new()),
        name => check_cluster(name).ok().map(|()| name.to_owned()),
    }
}

fn check_node(node: &str) -> Result<(), InvalidName> {
    expect(
        is_plain_name(node, NODE_NAME_MAX),
        "node name",
        node,
        "1 to 253 characters out of A-Z a-z 0-9 . _ -",
    )
}

fn check_cluster(name: &str) -> Result<(), InvalidName> {
    expect(is_cluster_name(name), "cluster name", name, CLUSTER_NAME)
}

fn check_container(id: &str) -> Result<(), InvalidName> {
    expect(
        is_plain_name(id, CONTAINER_ID_MAX),
        "container id",
        id,
        "1 to 253 characters out of A-Z a-z 0-9 . _ -",
    )
}

fn check_ifname(ifname: &str) -> Result<(), InvalidName> {
    let fits = (1..=IFNAME_MAX).contains(&ifname.len())
        && !ifname.contains(['/', ':'])
        && !ifname.contains(char::is_whitespace)
        && ifname != "."
        && ifname != "..";
    expect(fits, "interface name", ifname, "1 to 15 bytes without / : or blanks")
}

fn check_uid(uid: &str) -> Result<(), InvalidName> {
    let fits =
        (1..=POD_UID_MAX).contains(&uid.len()) && uid.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    expect(fits, "pod UID", uid, "1 to 64 characters out of A-Z a-z 0-9 -")
}

fn expect(ok: bool, what: &'static str, found: &str, expected: &'static str) -> Result<(), InvalidName> {
    if ok { Ok(()) } else { Err(InvalidName { what, found: found.to_owned(), expected }) }
}

/// A name of 32 hex digits for any bytes: half of their SHA-256.
#[must_use]
pub fn digest_hex(bytes: &[u8]) -> String {
    let digest = digest::digest(&digest::SHA256, bytes);
    digest.as_ref()[..16].iter().map(|b| format!("{b:02x}")).collect()
}

/// The first key after all keys that begin with `prefix`.
#[must_use]
pub fn prefix_end(prefix: &[u8]) -> Bytes {
    let mut end = prefix.to_vec();
    // A prefix of metes ends in a slash, so its last byte can always be raised.
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> Keys {
        Keys::new("/metes/")
    }

    fn owner() -> Owner {
        Owner {
            node: "n-1.example".into(),
            container_id: "c_1".into(),
            ifname: "net1".into(),
            cluster: "east".into(),
        }
    }

    fn addr(s: &str) -> Addr {
        Addr::from(s.parse::<std::net::IpAddr>().expect("an address"))
    }

    #[test]
    fn golden_keys_and_back() {
        let net = NetworkName::default();
        let a = addr("10.1.2.3");
        let scope = Scope::stored("default,00000000000000000000ffff0a000000-8").expect("scope");
        let pod = PodInterface {
            cluster: "east".into(),
            uid: "u-1".into(),
            ifname: "net1".into(),
            network: net.clone(),
        };
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
                keys().owner(&owner()).expect("owner"),
                "/metes/v1/owner/east/n-1.example/c_1/net1",
                Key::Owner(owner()),
            ),
            (
                keys().tombstone(&owner()).expect("tombstone"),
                "/metes/v1/tombstone/east/n-1.example/c_1/net1",
                Key::Tombstone(owner()),
            ),
            (
                keys().owner(&Owner { cluster: String::new(), ..owner() }).expect("owner"),
                "/metes/v1/owner/-/n-1.example/c_1/net1",
                Key::Owner(Owner { cluster: String::new(), ..owner() }),
            ),
            (
                keys().pod("east", "u-1", "net1", &net).expect("pod"),
                "/metes/v1/pod/east/u-1/net1/default",
                Key::Pod(pod.clone()),
            ),
            (
                keys().pod("", "u-1", "net1", &net).expect("pod"),
                "/metes/v1/pod/-/u-1/net1/default",
                Key::Pod(PodInterface { cluster: String::new(), ..pod }),
            ),
            (
                keys().orphan(&owner()).expect("orphan"),
                "/metes/v1/orphan/east/n-1.example/c_1/net1",
                Key::Orphan(owner()),
            ),
            (
                keys().seen_node("east", "n-1.example").expect("seen"),
                "/metes/v1/seen/east/n-1.example",
                Key::Seen("east".into(), "n-1.example".into()),
            ),
            (keys().cluster("east").expect("cluster"), "/metes/v1/cluster/east", Key::Cluster("east".into())),
            (keys().lead("east").expect("lead"), "/metes/v1/lead/east", Key::Lead("east".into())),
            (keys().import("east").expect("import"), "/metes/v1/import/east", Key::Import("east".into())),
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
            (
                keys().fence("n-1.example").expect("fence"),
                "/metes/v1/fence/n-1.example",
                Key::Fence("n-1.example".into()),
            ),
        ];
        for (built, golden, parsed) in cases {
            assert_eq!(String::from_utf8_lossy(&built), golden);
            assert_eq!(keys().parse(&built), Ok(parsed), "{golden}");
        }
    }

    #[test]
    fn no_part_leaves_its_place() {
        for bad in ["", "..", "a/b", "a b", "\u{0}"] {
            assert!(keys().owner(&Owner { node: bad.into(), ..owner() }).is_err(), "{bad:?}");
            assert!(keys().owner(&Owner { container_id: bad.into(), ..owner() }).is_err(), "{bad:?}");
            assert!(keys().fence(bad).is_err(), "{bad:?}");
            assert!(keys().pod("east", bad, "net1", &NetworkName::default()).is_err(), "{bad:?}");
            assert!(keys().seen_node("east", bad).is_err(), "{bad:?}");
            assert!(keys().seen_node(bad, "n1").is_err(), "{bad:?}");
        }
        // What stands for no cluster in a key is no cluster's name.
        for bad in ["..", "a/b", "a b", "\u{0}", "-"] {
            assert!(keys().owner(&Owner { cluster: bad.into(), ..owner() }).is_err(), "{bad:?}");
            assert!(keys().pod(bad, "u-1", "net1", &NetworkName::default()).is_err(), "{bad:?}");
        }
        for bad in ["", ".", "a/b", "a b", "sixteen-bytes-xx"] {
            assert!(keys().owner(&Owner { ifname: bad.into(), ..owner() }).is_err(), "{bad:?}");
        }
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
