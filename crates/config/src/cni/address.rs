//! Addresses and prefixes as configurations write them.
//!
//! IPv4 written as IPv6 (`::ffff:a.b.c.d`) is refused everywhere. metes keeps IPv4 in that form, so it would be a
//! second spelling of an IPv4 address.

use std::net::IpAddr;

use ipnetwork::IpNetwork;

/// The meaning of leading zeros in a number of an IPv4 address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Zeros {
    /// Decimal, as whereabouts reads it.
    Decimal,
    /// Nothing: it is refused, as host-local and static do.
    Refused,
}

/// The form that [`parse_ip`] accepts, in words.
pub(crate) const IP: &str = "an IPv4 or IPv6 address (not ::ffff:a.b.c.d)";

/// The form that [`parse_cidr`] accepts, in words.
pub(crate) const CIDR: &str = "an address with a prefix length, such as 10.0.0.0/24";

/// One address.
#[must_use]
pub fn parse_ip(text: &str, zeros: Zeros) -> Option<IpAddr> {
    let ip: IpAddr = match zeros {
        Zeros::Refused => text.parse().ok()?,
        Zeros::Decimal => without_leading_zeros(text).parse().ok()?,
    };
    match ip {
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => None,
        ip => Some(ip),
    }
}

/// An address with its prefix length; host bits are kept.
#[must_use]
pub fn parse_cidr(text: &str, zeros: Zeros) -> Option<IpNetwork> {
    let (ip, prefix_len) = text.split_once('/')?;
    network(parse_ip(ip, zeros)?, prefix_len)
}

/// A prefix, or one address as a prefix of full length. Host bits are cut off.
pub(crate) fn parse_prefix(text: &str, zeros: Zeros) -> Option<IpNetwork> {
    let whole = match text.split_once('/') {
        Some(_) => parse_cidr(text, zeros)?,
        None => IpNetwork::from(parse_ip(text, zeros)?),
    };
    Some(masked(whole))
}

/// The same prefix without host bits.
pub(crate) fn masked(network: IpNetwork) -> IpNetwork {
    IpNetwork::new(network.network(), network.prefix()).expect("the prefix length was valid before")
}

/// The address after this one, in its own family.
pub(crate) fn next(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(v4) => IpAddr::V4(u32::from(v4).wrapping_add(1).into()),
        IpAddr::V6(v6) => IpAddr::V6(u128::from(v6).wrapping_add(1).into()),
    }
}

/// The address before this one, in its own family.
pub(crate) fn previous(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(v4) => IpAddr::V4(u32::from(v4).wrapping_sub(1).into()),
        IpAddr::V6(v6) => IpAddr::V6(u128::from(v6).wrapping_sub(1).into()),
    }
}

fn network(ip: IpAddr, prefix_len: &str) -> Option<IpNetwork> {
    // u8's parser would also take a sign.
    let digits = !prefix_len.is_empty() && prefix_len.bytes().all(|b| b.is_ascii_digit());
    IpNetwork::new(ip, prefix_len.parse().ok().filter(|_| digits)?).ok()
}

fn without_leading_zeros(text: &str) -> String {
    if text.contains(':') {
        return text.to_owned();
    }
    let number = |part: &str| match part.trim_start_matches('0') {
        "" if !part.is_empty() => "0".to_owned(),
        rest => rest.to_owned(),
    };
    text.split('.').map(number).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leading_zeros_are_decimal_or_refused() {
        let ip = |text, zeros| parse_ip(text, zeros).map(|ip| ip.to_string());
        assert_eq!(ip("00192.00168.01.209", Zeros::Decimal).as_deref(), Some("192.168.1.209"));
        assert_eq!(ip("10.000.0.0", Zeros::Decimal).as_deref(), Some("10.0.0.0"));
        assert_eq!(ip("10.1.2.01", Zeros::Refused), None);
        for bad in ["", "10.1.2", "10..1.2", "1.2.3.x", "10.1.2.3 ", "0x1.2.3.4", "256.1.1.1", "fe80::1%eth0"]
        {
            assert_eq!(ip(bad, Zeros::Decimal), None, "{bad:?}");
        }
    }

    #[test]
    fn ipv4_in_ipv6_clothes_is_refused() {
        for zeros in [Zeros::Decimal, Zeros::Refused] {
            assert_eq!(parse_ip("::ffff:10.0.0.1", zeros), None);
            assert_eq!(parse_cidr("::ffff:a00:0/104", zeros), None);
            assert!(parse_cidr("::/0", zeros).is_some());
        }
    }

    #[test]
    fn prefixes_and_host_bits() {
        let cidr = |text| parse_cidr(text, Zeros::Refused).map(|n| n.to_string());
        assert_eq!(cidr("3ffe:ffff:0:01ff::1/64").as_deref(), Some("3ffe:ffff:0:1ff::1/64"));
        for bad in
            ["10.0.0.1", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/+8", "10.0.0.0/", "10.0.0.0/8/8", "::/129"]
        {
            assert_eq!(cidr(bad), None, "{bad:?}");
        }
        let prefix = |text| parse_prefix(text, Zeros::Refused).map(|n| n.to_string());
        assert_eq!(prefix("192.168.2.229/30").as_deref(), Some("192.168.2.228/30"));
        assert_eq!(prefix("100::2:1").as_deref(), Some("100::2:1/128"));
        assert_eq!(prefix("100::2::1"), None);
        assert_eq!(prefix("192.168.0.1/123"), None);
    }
}
