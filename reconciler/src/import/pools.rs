//! The names of whereabouts' objects, and the addresses that their entries mean. Pure.
//!
//! A pool has the name `[network_name-][node-]range`, in which a hyphen replaces each colon and slash of the range. A
//! reservation of overlapping ranges has the name `[network_name-]address`, formed in the same way. The keys of a
//! pool's entries are numbers. Such a number is added to the address that the range begins with.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use metes_config::cni::address::{Zeros, parse_cidr, parse_ip};
use metes_core::pool::range::Range;
use metes_core::pool::{Addr, NetworkName};

use super::nads::{NadId, Ranges, Use};

/// A pool as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// `namespace/name`.
    pub(crate) title: String,
    pub(crate) name: String,
    /// Its range, as written.
    pub(crate) range: String,
    /// The entries by their keys.
    pub(crate) entries: BTreeMap<String, Entry>,
}

/// An entry of a pool, or a reservation of overlapping ranges. A field that an old whereabouts did not write is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(default)]
pub(crate) struct Entry {
    #[serde(rename = "id", alias = "containerid")]
    pub(crate) container_id: String,
    /// `namespace/name` of the pod.
    #[serde(rename = "podref")]
    pub(crate) pod: String,
    pub(crate) ifname: String,
}

/// The network of a pool's addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Domain {
    /// The network in which they are reserved.
    pub(crate) network: NetworkName,
    /// The node that the pool belongs to, if nodes have their own pools.
    pub(crate) node: Option<String>,
    cidr: Cidr,
}

/// Why nobody knows what a pool's addresses mean.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unclear {
    /// Its range cannot be read.
    #[error("its range {0:?} cannot be read")]
    Range(String),
    /// Its name is not one that whereabouts gives.
    #[error("its name does not end with its range")]
    Name,
    /// No definition uses its addresses.
    #[error("no NetworkAttachmentDefinition that metes can read has this range and network_name")]
    Unused,
    /// Definitions disagree about the network.
    #[error("NetworkAttachmentDefinitions disagree on enable_overlapping_ranges: {}", list(.0))]
    Disagree(Vec<NadId>),
}

/// Why an entry's key does not give an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadOffset {
    /// It is not a number.
    #[error("its key is not a number")]
    NoNumber,
    /// The number is too large.
    #[error("its address lies outside the range")]
    Outside,
}

fn list(nads: &[NadId]) -> String {
    nads.iter().map(NadId::to_string).collect::<Vec<_>>().join(", ")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cidr {
    /// The address as written: keys are added to it.
    base: Addr,
    first: Addr,
    last: Addr,
}

impl Cidr {
    fn parse(text: &str) -> Option<Self> {
        let cidr = parse_cidr(text, Zeros::Decimal)?;
        let (first, last) = (Addr::from(cidr.network()), Addr::from(cidr.broadcast()));
        Some(Self { base: Addr::from(cidr.ip()), first, last })
    }

    fn is(&self, range: &Range) -> bool {
        let subnet = range.subnet();
        (Addr::from(subnet.network()), Addr::from(subnet.broadcast())) == (self.first, self.last)
    }

    fn is_within(&self, range: &Range) -> bool {
        range.covers(self.first) && range.covers(self.last)
    }
}

impl Domain {
    /// Finds out which network a pool's addresses belong to.
    pub(crate) fn of(pool: &Pool, uses: &[&Use]) -> Result<Self, Unclear> {
        let cidr = Cidr::parse(&pool.range).ok_or_else(|| Unclear::Range(pool.range.clone()))?;
        let spellings = [pool.range.clone(), pool.range.replace("::/", "::0/")];
        let prefix =
            spellings.iter().find_map(|range| pool.name.strip_suffix(&range.replace([':', '/'], "-")));
        let prefix = prefix.ok_or(Unclear::Name)?;
        let is_whole = |ranges: &Ranges, range: &Range| ranges.prefix == prefix && cidr.is(range);
        let is_slice = |ranges: &Ranges, range: &Range| {
            let node = prefix.strip_prefix(&ranges.prefix).and_then(|node| node.strip_suffix('-'));
            ranges.is_sliced && node.is_some_and(|node| !node.is_empty()) && cidr.is_within(range)
        };
        // A network and a node may have the same name. The network is tried first.
        if let Some(network) = one_network(uses, &is_whole)? {
            return Ok(Self { network: network.clone(), node: None, cidr });
        }
        let network = one_network(uses, &is_slice)?.ok_or(Unclear::Unused)?.clone();
        let node = |ranges: &Ranges| Some(prefix.strip_prefix(&ranges.prefix)?.strip_suffix('-')?.to_owned());
        let readable = uses.iter().filter_map(|one| one.ranges.as_ref().ok());
        let nodes: BTreeSet<String> = readable.filter(|ranges| ranges.is_sliced).filter_map(node).collect();
        let node = nodes.iter().next().filter(|_| nodes.len() == 1).cloned();
        Ok(Self { network, node, cidr })
    }

    /// The address that an entry's key means.
    pub(crate) fn address(&self, key: &str) -> Result<Addr, BadOffset> {
        if key.is_empty() || !key.bytes().all(|b| b.is_ascii_digit()) {
            return Err(BadOffset::NoNumber);
        }
        // A number that is too large for any address is outside as well.
        let offset: u128 = key.parse().map_err(|_| BadOffset::Outside)?;
        let address = self.cidr.base.0.checked_add(offset).map(Addr).ok_or(BadOffset::Outside)?;
        if address > self.cidr.last { Err(BadOffset::Outside) } else { Ok(address) }
    }
}

/// The network of all ranges that match.
fn one_network<'a>(
    uses: &[&'a Use],
    fits: &dyn Fn(&Ranges, &Range) -> bool,
) -> Result<Option<&'a NetworkName>, Unclear> {
    let mut found: Vec<(&NetworkName, &NadId)> = Vec::new();
    for one in uses {
        let Ok(ranges) = &one.ranges else { continue };
        let ranges_of_sets = ranges.sets.iter().flat_map(|set| set.ranges());
        found.extend(
            ranges_of_sets.filter(|range| fits(ranges, range)).map(|range| (range.network(), &one.nad)),
        );
    }
    let network = found.first().map(|(network, _)| *network);
    if found.iter().all(|(other, _)| Some(*other) == network) {
        return Ok(network);
    }
    let mut nads: Vec<NadId> = found.into_iter().map(|(_, nad)| nad.clone()).collect();
    nads.sort();
    nads.dedup();
    Err(Unclear::Disagree(nads))
}

/// The network and the address in the name of a reservation of overlapping ranges. `prefixes` are those of all
/// configurations, longest first.
pub(crate) fn reservation(name: &str, prefixes: &[String]) -> Option<(NetworkName, Addr)> {
    if let Some(address) = unhyphened(name) {
        return Some((NetworkName::default(), address));
    }
    prefixes.iter().filter(|prefix| !prefix.is_empty()).find_map(|prefix| {
        let address = unhyphened(name.strip_prefix(prefix.as_str())?)?;
        Some((NetworkName::configured(prefix.strip_suffix('-')?).ok()?, address))
    })
}

/// IPv4 addresses have no colons, so an address with hyphens is an IPv6 address.
fn unhyphened(text: &str) -> Option<Addr> {
    let ip: IpAddr = parse_ip(&text.replace('-', ":"), Zeros::Decimal)?;
    Some(Addr::from(ip))
}

#[cfg(test)]
mod tests {
    use super::super::nads::Nad;
    use super::*;

    fn uses(configs: &[&str]) -> Vec<Use> {
        let read = |(i, keys): (usize, &&str)| {
            let id = NadId { namespace: "ns".into(), name: format!("nad{i}") };
            let config = format!(r#"{{"name":"n","ipam":{{"type":"whereabouts",{keys}}}}}"#);
            Nad::read(id, "u".into(), "1".into(), Some(&config)).uses
        };
        configs.iter().enumerate().flat_map(read).collect()
    }

    fn domain(name: &str, range: &str, configs: &[&str]) -> Result<Domain, Unclear> {
        let uses = uses(configs);
        let pool =
            Pool { title: name.into(), name: name.into(), range: range.into(), entries: BTreeMap::new() };
        Domain::of(&pool, &uses.iter().collect::<Vec<_>>())
    }

    fn network(name: &str, range: &str, configs: &[&str]) -> String {
        domain(name, range, configs).expect(name).network.to_string()
    }

    const PLAIN: &str = r#""range":"10.0.0.0/8""#;
    const NAMED: &str = r#""range":"10.0.0.0/8","network_name":"test""#;
    const SLICED: &str = r#""range":"10.0.0.0/8","node_slice_size":"/24""#;
    const NAMED_SLICED: &str = r#""range":"10.0.0.0/8","network_name":"testnetwork","node_slice_size":"/24""#;
    const OFF: &str = r#""range":"10.0.0.0/8","enable_overlapping_ranges":false"#;

    #[test]
    fn each_form_of_a_name_leads_to_its_network() {
        assert_eq!(network("10.0.0.0-8", "10.0.0.0/8", &[PLAIN, NAMED]), "default");
        assert_eq!(network("test-10.0.0.0-8", "10.0.0.0/8", &[PLAIN, NAMED]), "test");
        assert_eq!(network("testnode-10.0.1.0-24", "10.0.1.0/24", &[PLAIN, SLICED]), "default");
        let named = network("testnetwork-testnode-10.0.1.0-24", "10.0.1.0/24", &[PLAIN, NAMED_SLICED]);
        assert_eq!(named, "testnetwork");
        assert_eq!(network("test-10.0.0.0-8", "10.0.0.0/8", &[SLICED, NAMED]), "test");
    }

    #[test]
    fn ipv6_names_in_every_spelling() {
        let nad = r#""ipRanges":[{"range":"10.1.0.0/16"},{"range":"fd00:1::/64"}]"#;
        assert_eq!(network("fd00-1---64", "fd00:1::/64", &[nad]), "default");
        assert_eq!(network("fd00-1--0-64", "fd00:1::/64", &[nad]), "default");
        assert_eq!(network("10.1.0.0-16", "10.1.0.0/16", &[nad]), "default");
    }

    #[test]
    fn a_range_without_overlap_has_its_own_network() {
        let own = "default@00000000000000000000ffff0a000000-8";
        assert_eq!(network("10.0.0.0-8", "10.0.0.0/8", &[OFF]), own);
        let Err(Unclear::Disagree(nads)) = domain("10.0.0.0-8", "10.0.0.0/8", &[PLAIN, OFF]) else {
            panic!("they disagree");
        };
        assert_eq!(nads.len(), 2);
    }

    #[test]
    fn names_that_are_nobodys_are_told_apart() {
        assert_eq!(domain("10.0.0.0-8", "10.0.0.0/x", &[PLAIN]), Err(Unclear::Range("10.0.0.0/x".into())));
        assert_eq!(domain("10.0.0.0-9", "10.0.0.0/8", &[PLAIN]), Err(Unclear::Name));
        assert_eq!(domain("other-10.0.0.0-8", "10.0.0.0/8", &[PLAIN]), Err(Unclear::Unused));
        assert_eq!(domain("10.0.0.0-9", "10.0.0.0/9", &[PLAIN]), Err(Unclear::Unused));
        assert_eq!(domain("node-192.168.0.0-24", "192.168.0.0/24", &[SLICED]), Err(Unclear::Unused));
    }

    #[test]
    fn keys_are_counted_from_where_the_range_begins() {
        let v4 = domain("10.0.0.0-8", "10.0.0.0/8", &[PLAIN]).expect("clear");
        assert_eq!(v4.address("259").expect("in it").to_string(), "10.0.1.3");
        assert_eq!(v4.address("16777215").expect("in it").to_string(), "10.255.255.255");
        assert_eq!(v4.address("16777216"), Err(BadOffset::Outside));
        for bad in ["", "-1", "+1", "x", "1.5"] {
            assert_eq!(v4.address(bad), Err(BadOffset::NoNumber), "{bad:?}");
        }
        let v6 = domain("fd00---64", "fd00::/64", &[r#""range":"fd00::/64""#]).expect("clear");
        let upper = v6.address("9223372036854775809").expect("in the upper half");
        assert_eq!(upper.to_string(), "fd00::8000:0:0:1");
        assert_eq!(v6.address("18446744073709551616"), Err(BadOffset::Outside));
        assert_eq!(v6.address(&"9".repeat(60)), Err(BadOffset::Outside));
        let wide = domain("fd00---16", "fd00::/16", &[r#""range":"fd00::/16""#]).expect("clear");
        assert_eq!(wide.address("18446744073709551617").expect("in it").to_string(), "fd00:0:0:1::1");
    }

    #[test]
    fn keys_of_a_range_with_host_bits_are_counted_from_the_address_as_written() {
        let keys = r#""range":"10.0.0.8/24""#;
        let domain = domain("10.0.0.8-24", "10.0.0.8/24", &[keys]).expect("clear");
        assert_eq!(domain.address("2").expect("in it").to_string(), "10.0.0.10");
        assert_eq!(domain.address("247").expect("in it").to_string(), "10.0.0.255");
        assert_eq!(domain.address("248"), Err(BadOffset::Outside));
    }

    #[test]
    fn reservations_name_a_network_and_an_address() {
        let prefixes = ["fd00-".to_owned(), "lab-".to_owned(), String::new()];
        let read =
            |name| reservation(name, &prefixes).map(|(network, address)| format!("{network} {address}"));
        assert_eq!(read("10.0.0.1").as_deref(), Some("default 10.0.0.1"));
        assert_eq!(read("fd00--1").as_deref(), Some("default fd00::1"));
        assert_eq!(read("fd00--0").as_deref(), Some("default fd00::"));
        assert_eq!(read("lab-10.0.0.1").as_deref(), Some("lab 10.0.0.1"));
        assert_eq!(read("lab-fd00--2").as_deref(), Some("lab fd00::2"));
        assert_eq!(read("fd00-10.0.0.1").as_deref(), Some("fd00 10.0.0.1"));
        assert_eq!(read("other-10.0.0.1"), None);
    }
}
