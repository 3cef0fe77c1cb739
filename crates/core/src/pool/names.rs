//! Checked names: a value that has one of these types cannot leave its place in the key tree.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::Addr;

/// The longest network name that a configuration may give, in characters.
pub(crate) const NETWORK_NAME_MAX: usize = 63;

/// The text for "no cluster" in a key and on a command line.
pub const NO_CLUSTER: &str = "-";

/// The first character of the name that stands for a node in the owner of a hold.
pub(crate) const OF_HOLDS: char = '@';

/// Begins that name where the hold is for a pod's name; the pod's namespace follows.
const OF_PODS: &str = "@pod.";

/// The longest name of a namespace, as Kubernetes bounds it.
const NAMESPACE_MAX: usize = 63;

/// The word that a configuration writes in place of a pool's name: the pools decide whom they are for. No pool has this
/// name.
pub const AUTO: &str = "auto";

/// Begins the container id of an owner that an adoption made up. No runtime gives such an id.
const ADOPTED: &str = "adopted-";

/// Begins the container id of an owner that an import made up. No runtime gives such an id.
const IMPORTED: &str = "imported-";

/// A name that cannot be used as part of a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {found:?} is not valid: expected {expected}")]
pub struct InvalidName {
    /// The purpose of the name, as a user knows it.
    pub(crate) what: &'static str,
    /// The text that was found.
    pub(crate) found: String,
    /// The rule that it breaks.
    pub expected: &'static str,
}

/// A uniqueness domain: inside one network no address is held twice.
///
/// Either a configured name (`[A-Za-z0-9._-]{1,63}`), or one derived from it for a
/// range with a domain of its own: `<name>@<32 hex digits>-<prefix length>`, which
/// no configured name can spell.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NetworkName(String);

impl NetworkName {
    /// The name that a configuration gave.
    ///
    /// # Errors
    /// [`InvalidName`] if it is empty, too long, `.` or `..`, or has other characters.
    pub fn configured(name: &str) -> Result<Self, InvalidName> {
        if is_plain_name(name, NETWORK_NAME_MAX) {
            return Ok(Self(name.to_owned()));
        }
        Err(InvalidName {
            what: "network_name",
            found: name.to_owned(),
            expected: "1 to 63 characters from A-Z a-z 0-9 . _ - (and not \".\" or \"..\")",
        })
    }

    /// The domain of one range alone: `base` is the range's network address and
    /// `prefix_len` its prefix length in its own family (so 0..=32 for IPv4).
    #[must_use]
    pub fn of_range(&self, base: Addr, prefix_len: u8) -> Self {
        Self(format!("{}@{:032x}-{prefix_len}", self.0, base.0))
    }

    /// Reads a network's name back from a key.
    ///
    /// # Errors
    /// [`InvalidName`] if it is neither of the two forms.
    pub fn stored(name: &str) -> Result<Self, InvalidName> {
        let (base, range) = match name.split_once('@') {
            None => (name, None),
            Some((base, range)) => (base, Some(range)),
        };
        if is_plain_name(base, NETWORK_NAME_MAX) && range.is_none_or(is_range_suffix) {
            return Ok(Self(name.to_owned()));
        }
        Err(InvalidName {
            what: "network",
            found: name.to_owned(),
            expected: "a network name, or <name>@<32 hex digits>-<prefix length>",
        })
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for NetworkName {
    /// The network of a configuration that names none.
    fn default() -> Self {
        Self("default".to_owned())
    }
}

impl TryFrom<String> for NetworkName {
    type Error = InvalidName;

    fn try_from(name: String) -> Result<Self, InvalidName> {
        Self::stored(&name)
    }
}

impl From<NetworkName> for String {
    fn from(name: NetworkName) -> String {
        name.0
    }
}

impl fmt::Display for NetworkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for NetworkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// Defines a type of names that all keep one rule: of 1 to `$max` bytes, `$fits` says whether a text keeps it, and
/// `$expected` says it to people.
macro_rules! checked_name {
    ($(#[$doc:meta])* $name:ident, $what:literal, $max:literal, $fits:expr, $expected:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The rule, in words for people.
            pub const EXPECTED: &'static str = $expected;

            /// The longest that it can be, in bytes.
            pub const MAX_LEN: usize = $max;

            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        /// The one way to a checked name; an [`InvalidName`] if the text breaks the rule.
        impl FromStr for $name {
            type Err = InvalidName;

            fn from_str(text: &str) -> Result<Self, InvalidName> {
                let fits: fn(&str) -> bool = $fits;
                if (1..=Self::MAX_LEN).contains(&text.len()) && fits(text) {
                    return Ok(Self(text.to_owned()));
                }
                Err(InvalidName { what: $what, found: text.to_owned(), expected: Self::EXPECTED })
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidName;

            fn try_from(text: String) -> Result<Self, InvalidName> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, text: &str) -> bool {
                self.0 == text
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", self.0)
            }
        }
    };
}

checked_name!(
    /// A node's name, unique in its cluster.
    NodeName,
    "node name",
    253,
    is_plain,
    "1 to 253 characters from A-Z a-z 0-9 . _ -"
);

checked_name!(
    /// What a runtime calls a container: CNI_CONTAINERID.
    ContainerId,
    "container id",
    253,
    is_plain,
    "1 to 253 characters from A-Z a-z 0-9 . _ -"
);

checked_name!(
    /// The name of a network interface in its container: CNI_IFNAME.
    InterfaceName,
    "interface name",
    15, // The kernel's IFNAMSIZ less its zero byte.
    |text| !text.contains(['/', ':']) && !text.contains(char::is_whitespace) && text != "." && text != "..",
    "1 to 15 bytes without / : or blanks"
);

checked_name!(
    /// The UID of a pod.
    PodUid,
    "pod UID",
    64,
    |text| text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'),
    "1 to 64 characters from A-Z a-z 0-9 -"
);

checked_name!(
    /// The name of a cluster among those that share a store.
    ClusterName,
    "cluster name",
    63,
    |text| is_plain(text) && text != NO_CLUSTER,
    "1 to 63 characters from A-Z a-z 0-9 . _ - (and not \".\", \"..\" or \"-\")"
);

checked_name!(
    /// The name of a pool.
    PoolName,
    "pool name",
    63,
    is_plain,
    "1 to 63 characters from A-Z a-z 0-9 . _ - (and not \".\" or \"..\")"
);

impl NodeName {
    /// Stands where an owner has its node, for the addresses of `network` that are set aside. No host file can spell
    /// it.
    pub(crate) fn of_holds(network: &NetworkName) -> Self {
        Self(format!("{OF_HOLDS}{network}"))
    }

    /// The network whose addresses are set aside under this name; none if it is the name of a node.
    pub(super) fn network_of_holds(&self) -> Option<NetworkName> {
        NetworkName::stored(self.0.strip_prefix(OF_HOLDS)?).ok()
    }

    /// Stands where an owner has its node, for the holds of the pods of `namespace`. No host file can spell it.
    ///
    /// # Errors
    /// [`InvalidName`] if it is no namespace's name.
    pub(super) fn of_pods(namespace: &str) -> Result<Self, InvalidName> {
        if is_plain_name(namespace, NAMESPACE_MAX) {
            return Ok(Self(format!("{OF_PODS}{namespace}")));
        }
        let expected = "1 to 63 characters from A-Z a-z 0-9 . _ -";
        Err(InvalidName { what: "namespace", found: namespace.to_owned(), expected })
    }

    /// The namespace of the pods that this name stands for; none if it stands for none. `@pod.NAME` may also stand for
    /// the network `pod.NAME`: the owner's cluster tells which ([`super::Owner::kind`]).
    pub(super) fn namespace_of_pods(&self) -> Option<&str> {
        self.0.strip_prefix(OF_PODS).filter(|namespace| is_plain_name(namespace, NAMESPACE_MAX))
    }

    /// True if it stands for something that is no node.
    pub(super) fn is_of_holds(&self) -> bool {
        self.0.starts_with(OF_HOLDS)
    }

    /// Reads a name back from a key or a record: that of a node, or what stands there in the owner of a hold.
    ///
    /// # Errors
    /// [`InvalidName`] if it is neither.
    pub(crate) fn stored(text: &str) -> Result<Self, InvalidName> {
        let Some(network) = text.strip_prefix(OF_HOLDS) else { return text.parse() };
        let name = Self(text.to_owned());
        match name.namespace_of_pods() {
            Some(_) => Ok(name),
            None => NetworkName::stored(network).map(|network| Self::of_holds(&network)),
        }
    }
}

impl ClusterName {
    /// Reads a cluster's name where `-` stands for none.
    ///
    /// # Errors
    /// [`InvalidName`] if it is neither.
    pub fn or_none(text: &str) -> Result<Option<Self>, InvalidName> {
        if text == NO_CLUSTER { Ok(None) } else { text.parse().map(Some) }
    }
}

/// The origin of a container id, as its spelling tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerKind {
    /// A runtime gave it.
    Runtime,
    /// It stands for the containers of a pod that was found running after a restore.
    Adopted,
    /// It stands for a container that an import found no id of.
    Imported,
    /// It is a UUID. A DRA driver for networks gives a ResourceClaim's UID, and with it the name of one pod that the
    /// claim is reserved for, without the pod's UID: where a record says more, or less, it is no claim's. A runtime's
    /// own ids are not UUIDs.
    Claim,
}

impl ContainerId {
    /// Stands for the containers of a pod that was found running after a restore.
    #[must_use]
    pub fn adopted(uid: &PodUid) -> Self {
        // A UID has only characters that a container id may have, and is much shorter.
        Self(format!("{ADOPTED}{uid}"))
    }

    /// Stands for a container that an import found no id of; `pod` is its pod's UID, or what else tells it from others.
    ///
    /// # Errors
    /// [`InvalidName`] if `pod` cannot stand in a key.
    pub fn imported(pod: &str) -> Result<Self, InvalidName> {
        format!("{IMPORTED}{pod}").parse()
    }

    /// Stands for a container where this address is set aside.
    pub(super) fn of_hold(address: Addr) -> Self {
        Self(format!("{:032x}", address.0))
    }

    /// The address that this stands for where one is set aside.
    pub(super) fn held(&self) -> Option<Addr> {
        u128::from_str_radix(&self.0, 16).ok().map(Addr)
    }

    /// The id's origin.
    pub(super) fn kind(&self) -> ContainerKind {
        match &*self.0 {
            id if id.starts_with(ADOPTED) => ContainerKind::Adopted,
            id if id.starts_with(IMPORTED) => ContainerKind::Imported,
            id if is_uuid(id) => ContainerKind::Claim,
            _ => ContainerKind::Runtime,
        }
    }
}

/// True if `name` is 1..=`max` characters out of `[A-Za-z0-9._-]`, and not `.` or `..`.
#[must_use]
pub fn is_plain_name(name: &str, max: usize) -> bool {
    (1..=max).contains(&name.len()) && is_plain(name)
}

fn is_plain(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    name != "." && name != ".." && name.bytes().all(allowed)
}

impl PodUid {
    /// True if the API server can have given it. The kubelet gives a static pod another one, a digest without hyphens.
    #[must_use]
    pub fn is_of_api(&self) -> bool {
        is_uuid(self.as_str())
    }
}

fn is_uuid(text: &str) -> bool {
    let is_hyphen_where_due = |(at, byte): (usize, u8)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    text.len() == 36 && text.bytes().enumerate().all(is_hyphen_where_due)
}

fn is_range_suffix(suffix: &str) -> bool {
    suffix.split_once('-').is_some_and(|(base, len)| {
        base.len() == 32
            && base.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
            && len.parse::<u8>().is_ok_and(|n| n <= 128 && n.to_string() == len)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leaves_its_place_in_a_key() {
        for bad in ["", "..", "a/b", "a b", "\u{0}"] {
            assert!(bad.parse::<NodeName>().is_err(), "{bad:?}");
            assert!(bad.parse::<ContainerId>().is_err(), "{bad:?}");
            assert!(bad.parse::<PodUid>().is_err(), "{bad:?}");
        }
        // What stands for no cluster in a key is no cluster's name.
        for bad in ["", "..", "a/b", "a b", "\u{0}", "-"] {
            assert!(bad.parse::<ClusterName>().is_err(), "{bad:?}");
        }
        for bad in ["", ".", "a/b", "a b", "sixteen-bytes-xx"] {
            assert!(bad.parse::<InterfaceName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_configured_name_never_spells_a_ranges_own_domain() {
        let own = NetworkName::default().of_range(Addr(0xffff_0a00_0000), 24);
        assert_eq!(own.as_str(), "default@00000000000000000000ffff0a000000-24");
        assert!(NetworkName::configured(own.as_str()).is_err());
        assert_eq!(NetworkName::stored(own.as_str()), Ok(own));
    }

    #[test]
    fn what_stands_for_a_node_where_addresses_are_set_aside_is_no_nodes_name() {
        let network = NetworkName::default();
        for network in [network.of_range(Addr(0xffff_0a00_0000), 24), network] {
            let name = NodeName::of_holds(&network);
            assert_eq!(name.network_of_holds(), Some(network));
            assert!(name.as_str().parse::<NodeName>().is_err());
            assert_eq!(NodeName::stored(name.as_str()), Ok(name));
        }
        for bad in ["@", "@@", "@a/b", "@..", "a@b", "@pod.a@b"] {
            assert!(NodeName::stored(bad).is_err(), "{bad:?}");
        }
        let node = NodeName::stored("n1").expect("a node's name");
        assert_eq!(node.network_of_holds(), None);
        let longest = "x".repeat(NAMESPACE_MAX);
        let name = NodeName::of_pods(&longest).expect("a namespace");
        assert_eq!(name.namespace_of_pods(), Some(&*longest));
        assert!(name.as_str().parse::<NodeName>().is_err());
        assert_eq!(NodeName::stored(name.as_str()), Ok(name));
        for bad in ["", "..", "a/b", &"x".repeat(NAMESPACE_MAX + 1)] {
            assert!(NodeName::of_pods(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn names_that_would_leave_their_place_are_refused() {
        for bad in ["", ".", "..", "a/b", "a b", "ä", "a@b", &"x".repeat(64)] {
            assert!(NetworkName::configured(bad).is_err(), "{bad:?}");
        }
        for bad in
            ["a@", "a@0-24", "@00000000000000000000ffff0a000000-24", "a@00000000000000000000ffff0a000000-024"]
        {
            assert!(NetworkName::stored(bad).is_err(), "{bad:?}");
        }
    }
}
