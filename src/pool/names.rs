//! Checked names: a value that has one of these types cannot leave its place in the key tree.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Addr;

/// The longest network name that a configuration may give, in characters.
pub const NETWORK_NAME_MAX: usize = 63;

/// The longest cluster name, in characters.
const CLUSTER_NAME_MAX: usize = 63;

/// What a cluster may be called.
pub const CLUSTER_NAME: &str = "1 to 63 characters out of A-Z a-z 0-9 . _ - (and not \".\", \"..\" or \"-\")";

/// What stands for "no cluster" in a key and on a command line.
pub const NO_CLUSTER: &str = "-";

/// A name that cannot be used as part of a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {found:?} is not valid: expected {expected}")]
pub struct InvalidName {
    /// What the name is for, as a user knows it.
    pub what: &'static str,
    /// What was found.
    pub found: String,
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
            expected: "1 to 63 characters out of A-Z a-z 0-9 . _ - (and not \".\" or \"..\")",
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

/// Whether a cluster may be called so.
#[must_use]
pub fn is_cluster_name(name: &str) -> bool {
    is_plain_name(name, CLUSTER_NAME_MAX) && name != NO_CLUSTER
}

/// Whether `name` is 1..=`max` characters out of `[A-Za-z0-9._-]`, and not `.` or `..`.
#[must_use]
pub fn is_plain_name(name: &str, max: usize) -> bool {
    (1..=max).contains(&name.len())
        && name != "."
        && name != ".."
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
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
    fn a_configured_name_never_spells_a_ranges_own_domain() {
        let own = NetworkName::default().of_range(Addr(0xffff_0a00_0000), 24);
        assert_eq!(own.as_str(), "default@00000000000000000000ffff0a000000-24");
        assert!(NetworkName::configured(own.as_str()).is_err());
        assert_eq!(NetworkName::stored(own.as_str()), Ok(own));
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
