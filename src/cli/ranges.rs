//! Ranges, as far as they can be read off what is stored. Pure.

use std::fmt;

use crate::pool::{Addr, NetworkName};

/// A range of addresses by its network address and prefix length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cidr {
    base: Addr,
    /// In its own family: 0..=32 for IPv4.
    prefix_len: u8,
}

impl Cidr {
    /// A range; none if the prefix length does not fit the family.
    pub(super) fn new(base: Addr, prefix_len: u8) -> Option<Self> {
        (prefix_len <= bits(base)).then_some(Self { base, prefix_len })
    }

    /// The network and first range in the scope of an owner record; none for `-`.
    pub(super) fn of_scope(scope: &str) -> Option<(NetworkName, Self)> {
        let mut parts = scope.split(',');
        let network = NetworkName::stored(parts.next()?).ok()?;
        Some((network, Self::parse(parts.next()?)?))
    }

    /// The range that a network is for alone, read from its name.
    pub(super) fn of_network(network: &NetworkName) -> Option<Self> {
        Self::parse(network.as_str().split_once('@')?.1)
    }

    fn parse(text: &str) -> Option<Self> {
        let (base, prefix_len) = text.split_once('-')?;
        Self::new(Addr(u128::from_str_radix(base, 16).ok()?), prefix_len.parse().ok()?)
    }

    /// Whether an address lies in it.
    pub(super) fn covers(&self, address: Addr) -> bool {
        address.is_v4() == self.base.is_v4() && (address.0 ^ self.base.0) & !self.host_mask() == 0
    }

    /// How many addresses can be handed out: all but the network and the broadcast address,
    /// or all where a range is too small to have them.
    pub(super) fn size(&self) -> u128 {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::fixture::addr;

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
}
