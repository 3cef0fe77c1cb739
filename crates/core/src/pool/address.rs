//! Addresses as numbers, and the pages and summaries that they fall into.
//!
//! Every address is 128 bits wide: IPv4 is held as its v4-mapped IPv6 address
//! (`::ffff:a.b.c.d`), so that one key layout and one bitmap serve both families.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Addresses in one page: a page is the bitmap of 4096 consecutive addresses.
pub const PAGE_ADDRESSES: usize = 4096;

/// Bits of an address that select a bit in its page.
const PAGE_SHIFT: u32 = 12;

/// Bits of an address below the summary it falls into: 4096 pages of 4096 addresses.
const SUMMARY_SHIFT: u32 = 24;

/// The first address of `::ffff:0:0/96`, where IPv4 lives.
const V4_BASE: u128 = 0xffff_0000_0000;

/// One address, as a 128-bit number (IPv4 in its v4-mapped form).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Addr(pub u128);

/// One page, named by its position among all pages: `address >> 12`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Page(pub u128);

/// One summary, named by its position among all summaries: `address >> 24`.
/// Its bit i says that page i of the 4096 pages below it is full.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Summary(pub u128);

impl Addr {
    /// The page that holds this address's bit.
    #[must_use]
    pub fn page(self) -> Page {
        Page(self.0 >> PAGE_SHIFT)
    }

    /// The index (0..4096) of this address's bit in its page.
    #[must_use]
    pub fn bit(self) -> usize {
        (self.0 as usize) & (PAGE_ADDRESSES - 1)
    }

    /// The address as people write it: IPv4 for a v4-mapped address, else IPv6.
    #[must_use]
    pub fn ip(self) -> IpAddr {
        if self.is_v4() {
            IpAddr::V4(Ipv4Addr::from(self.0 as u32))
        } else {
            IpAddr::V6(Ipv6Addr::from(self.0))
        }
    }

    /// True for an IPv4 address in its v4-mapped form.
    #[must_use]
    pub fn is_v4(self) -> bool {
        self.0 >> 32 == V4_BASE >> 32
    }
}

impl From<IpAddr> for Addr {
    fn from(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(v4) => Addr(V4_BASE | u128::from(u32::from(v4))),
            IpAddr::V6(v6) => Addr(u128::from(v6)),
        }
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ip().fmt(f)
    }
}

impl fmt::Debug for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Page {
    /// The first address of this page.
    #[must_use]
    pub fn first(self) -> Addr {
        Addr(self.0 << PAGE_SHIFT)
    }

    /// The last address of this page.
    #[must_use]
    pub fn last(self) -> Addr {
        Addr(self.0 << PAGE_SHIFT | (PAGE_ADDRESSES as u128 - 1))
    }

    /// The address whose bit is `bit` (0..4096).
    #[must_use]
    pub fn address(self, bit: usize) -> Addr {
        Addr(self.0 << PAGE_SHIFT | bit as u128)
    }

    /// The summary with the bit that tells if this page is full.
    #[must_use]
    pub fn summary(self) -> Summary {
        Summary(self.0 >> (SUMMARY_SHIFT - PAGE_SHIFT))
    }

    /// The index (0..4096) of this page's bit in its summary.
    #[must_use]
    pub fn bit(self) -> usize {
        (self.0 as usize) & (PAGE_ADDRESSES - 1)
    }
}

impl Summary {
    /// The first address below this summary.
    #[must_use]
    pub fn first(self) -> Addr {
        Addr(self.0 << SUMMARY_SHIFT)
    }

    /// The last page below this summary.
    pub(crate) fn last_page(self) -> Page {
        Page(self.0 << (SUMMARY_SHIFT - PAGE_SHIFT) | (PAGE_ADDRESSES as u128 - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(s: &str) -> Addr {
        Addr::from(s.parse::<IpAddr>().expect("an address"))
    }

    #[test]
    fn ipv4_is_stored_v4_mapped_and_prints_as_ipv4() {
        assert_eq!(addr("10.1.2.3").0, 0xffff_0a01_0203);
        assert_eq!(addr("10.1.2.3").to_string(), "10.1.2.3");
        assert_eq!(addr("fd00::1").to_string(), "fd00::1");
        assert_eq!(addr("::1").to_string(), "::1");
    }

    #[test]
    fn pages_are_aligned_at_absolute_addresses() {
        let a = addr("10.0.31.7");
        assert_eq!(a.page().first(), addr("10.0.16.0"));
        assert_eq!(a.page().last(), addr("10.0.31.255"));
        assert_eq!(a.page().address(a.bit()), a);
        assert_eq!(a.page().summary().first(), addr("10.0.0.0"));
        assert_eq!(a.page().summary().last_page().last(), addr("10.255.255.255"));
        assert_eq!(a.page().bit(), 1);
    }
}
