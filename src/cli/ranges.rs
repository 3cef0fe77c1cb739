//! Ranges as far as they can be read off what is stored, and how much of each is used. Pure.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::inventory::Row;
use crate::pool::{Addr, NetworkName};

/// A range of addresses by its network address and prefix length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cidr {
    base: Addr,
    /// In its own family: 0..=32 for IPv4.
    prefix_len: u8,
}

impl Cidr {
    /// A range; none if the prefix length does not fit the family.
    #[must_use]
    pub fn new(base: Addr, prefix_len: u8) -> Option<Self> {
        (prefix_len <= bits(base)).then_some(Self { base, prefix_len })
    }

    /// The network and first range in the scope of an owner record; none for `-`.
    #[must_use]
    pub fn of_scope(scope: &str) -> Option<(NetworkName, Self)> {
        let mut parts = scope.split(',');
        let network = NetworkName::stored(parts.next()?).ok()?;
        Some((network, Self::parse(parts.next()?)?))
    }

    /// The range that a network is for alone, read from its name.
    #[must_use]
    pub fn of_network(network: &NetworkName) -> Option<Self> {
        Self::parse(network.as_str().split_once('@')?.1)
    }

    fn parse(text: &str) -> Option<Self> {
        let (base, prefix_len) = text.split_once('-')?;
        Self::new(Addr(u128::from_str_radix(base, 16).ok()?), prefix_len.parse().ok()?)
    }

    /// Whether an address lies in it.
    #[must_use]
    pub fn covers(&self, address: Addr) -> bool {
        address.is_v4() == self.base.is_v4() && (address.0 ^ self.base.0) & !self.host_mask() == 0
    }

    /// How many addresses can be handed out: all but the network and the broadcast address,
    /// or all where a range is too small to have them.
    #[must_use]
    pub fn size(&self) -> u128 {
        match bits(self.base) - self.prefix_len {
            0 => 1,
            1 => 2,
            _ => self.host_mask() - 1,
        }
    }

    /// The bits that differ between its addresses: their number less one.
    fn host_mask(&self) -> u128 {
        u128::MAX.checked_shr(128 - u32::from(bits(self.base) - self.prefix_len)).unwrap_or(0)
    }
}

fn bits(base: Addr) -> u8 {
    if base.is_v4() { 32 } else { 128 }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.prefix_len)
    }
}

/// How much of one range is used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// The network.
    pub network: NetworkName,
    /// The range; none for addresses outside every range known of.
    #[serde(serialize_with = "as_text")]
    pub range: Option<Cidr>,
    /// How many addresses it has to give; none without a range.
    pub size: Option<u128>,
    /// How many of them are held.
    pub used: u128,
    /// How many of them are not.
    pub free: Option<u128>,
}

fn as_text<S: serde::Serializer>(range: &Option<Cidr>, serializer: S) -> Result<S::Ok, S::Error> {
    match range {
        Some(range) => serializer.collect_str(range),
        None => serializer.serialize_none(),
    }
}

/// Counts the held addresses of each range of each network; an address counts in the smallest
/// range that it lies in. What is only recorded is in no network and is not counted.
#[must_use]
pub fn usage(rows: &[Row], ranges: &[(NetworkName, Cidr)]) -> Vec<Usage> {
    let mut known: BTreeMap<&NetworkName, Vec<Cidr>> = BTreeMap::new();
    let mut used: BTreeMap<(&NetworkName, Option<Cidr>), u128> = BTreeMap::new();
    for (network, range) in ranges {
        known.entry(network).or_default().push(*range);
        used.entry((network, Some(*range))).or_default();
    }
    for row in rows {
        let Some(network) = &row.network else { continue };
        let ranges = known.get(network).map_or(&[][..], Vec::as_slice);
        let smallest =
            ranges.iter().filter(|range| range.covers(row.address)).min_by_key(|range| range.size());
        *used.entry((network, smallest.copied())).or_default() += 1;
    }
    let mut usages: Vec<Usage> = used.into_iter().map(count).collect();
    // The row for what lies outside comes after the ranges of its network.
    usages.sort_by(|a, b| (&a.network, a.range.is_none()).cmp(&(&b.network, b.range.is_none())));
    usages
}

fn count(((network, range), used): ((&NetworkName, Option<Cidr>), u128)) -> Usage {
    let size = range.map(|range| range.size());
    let free = size.map(|size| size.saturating_sub(used));
    Usage { network: network.clone(), range, size, used, free }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(text: &str) -> Addr {
        Addr::from(text.parse::<std::net::IpAddr>().expect("an address"))
    }

    fn cidr(base: &str, prefix_len: u8) -> Cidr {
        Cidr::new(addr(base), prefix_len).expect("a range")
    }

    fn network(name: &str) -> NetworkName {
        NetworkName::stored(name).expect("a network")
    }

    #[test]
    fn sizes_leave_out_what_is_never_handed_out() {
        for (base, prefix_len, size) in [
            ("10.0.0.0", 24, 254),
            ("10.0.0.0", 30, 2),
            ("10.0.0.0", 31, 2),
            ("10.0.0.1", 32, 1),
            ("0.0.0.0", 0, (1 << 32) - 2),
            ("fd00::", 64, (1 << 64) - 2),
            ("fd00::", 127, 2),
            ("fd00::", 128, 1),
            ("::", 0, u128::MAX - 1),
        ] {
            assert_eq!(cidr(base, prefix_len).size(), size, "{base}/{prefix_len}");
        }
    }

    #[test]
    fn a_range_covers_its_own_addresses_only() {
        let range = cidr("10.0.1.0", 24);
        assert!(range.covers(addr("10.0.1.0")) && range.covers(addr("10.0.1.255")));
        assert!(!range.covers(addr("10.0.2.0")) && !range.covers(addr("fd00::1")));
        assert!(cidr("0.0.0.0", 0).covers(addr("255.1.2.3")));
        assert!(!cidr("::", 0).covers(addr("10.0.0.1")));
        assert!(cidr("::", 0).covers(addr("fd00::1")));
        assert!(Cidr::new(addr("10.0.0.0"), 33).is_none());
    }

    #[test]
    fn ranges_are_read_off_scopes_and_names() {
        let hex = "00000000000000000000ffff0a000000";
        let found = Some((network("n"), cidr("10.0.0.0", 8)));
        assert_eq!(Cidr::of_scope(&format!("n,{hex}-8")), found);
        assert_eq!(Cidr::of_scope(&format!("n,{hex}-8,{hex}")), found);
        assert_eq!(Cidr::of_scope("-"), None);
        assert_eq!(Cidr::of_scope("n,junk"), None);
        assert_eq!(Cidr::of_network(&network(&format!("n@{hex}-8"))), Some(cidr("10.0.0.0", 8)));
        assert_eq!(Cidr::of_network(&network("n")), None);
    }

    #[test]
    fn addresses_count_in_the_smallest_range_of_their_own_network() {
        let row = |name: Option<&str>, address| Row {
            network: name.map(network),
            address: addr(address),
            holder: None,
        };
        let rows = [
            row(Some("a"), "10.0.0.1"),
            row(Some("a"), "10.0.1.1"),
            row(Some("a"), "192.0.2.1"),
            row(Some("b"), "10.0.0.1"),
            row(None, "10.0.0.9"),
        ];
        let ranges = [(network("a"), cidr("10.0.0.0", 16)), (network("a"), cidr("10.0.1.0", 24))];
        let text: Vec<String> =
            usage(&rows, &ranges).iter().map(|u| serde_json::to_string(u).expect("json")).collect();
        assert_eq!(
            text,
            [
                r#"{"network":"a","range":"10.0.0.0/16","size":65534,"used":1,"free":65533}"#,
                r#"{"network":"a","range":"10.0.1.0/24","size":254,"used":1,"free":253}"#,
                r#"{"network":"a","range":null,"size":null,"used":1,"free":null}"#,
                r#"{"network":"b","range":null,"size":null,"used":1,"free":null}"#,
            ]
        );
    }
}
