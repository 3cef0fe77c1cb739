//! Ranges of addresses: the assignable addresses of a configuration, as sorted spans.
//!
//! Nothing here costs more for a larger range; only the number of excludes counts.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};

use super::{Addr, NetworkName};

/// The address family of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Consecutive addresses, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// The lowest address.
    pub first: Addr,
    /// The highest address; never below `first`.
    pub last: Addr,
}

/// One range of a configuration, already parsed. The bounds are inclusive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeSpec {
    /// The uniqueness domain that the range's addresses are held in.
    pub network: NetworkName,
    /// The CIDR; host bits are dropped.
    pub subnet: IpNetwork,
    /// The lowest address that may be handed out.
    pub first: IpAddr,
    /// The highest address that may be handed out.
    pub last: IpAddr,
    /// Never handed out. Those of the other family are ignored.
    pub excludes: Vec<IpNetwork>,
    /// Gateways, never handed out. Those outside the bounds are ignored.
    pub never: Vec<IpAddr>,
    /// The gateway that results carry.
    pub gateway: Option<IpAddr>,
}

/// A range that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// A bound of the other family than the subnet's.
    #[error("{bound} and {subnet} are not of one address family")]
    MixedFamilies {
        /// The start or end of the range.
        bound: IpAddr,
        /// The range's CIDR.
        subnet: IpNetwork,
    },
    /// A subnet inside `::ffff:0:0/96`, where IPv4 is stored.
    #[error("{0} is an IPv4 network written as IPv6")]
    MappedSubnet(IpNetwork),
    /// A bound inside `::ffff:0:0/96`, where IPv4 is stored.
    #[error("{0} is an IPv4 address written as IPv6")]
    MappedBound(IpAddr),
    /// A start or end outside the subnet.
    #[error("{bound} is not in {subnet}")]
    OutsideSubnet {
        /// The start or end of the range.
        bound: IpAddr,
        /// The range's CIDR.
        subnet: IpNetwork,
    },
    /// A start above the end.
    #[error("the range's start {first} is above its end {last}")]
    Reversed {
        /// The start of the range.
        first: IpAddr,
        /// The end of the range.
        last: IpAddr,
    },
}

/// A list of ranges that cannot be one set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RangeSetError {
    /// No range at all.
    #[error("a range set needs at least one range")]
    Empty,
    /// One address cannot be taken from either of two families.
    #[error("{first} and {other} are in one range set but not of one address family")]
    MixedFamilies {
        /// The first range's CIDR.
        first: IpNetwork,
        /// The CIDR of the first range of another family.
        other: IpNetwork,
    },
}

/// Why an address of a range can, or cannot, be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Standing {
    /// It may be handed out.
    Assignable,
    /// It is not in the range's CIDR.
    OutsideSubnet,
    /// It is the network's own address, which the bounds leave out.
    NetworkAddress,
    /// It is the IPv4 broadcast address, which the bounds leave out.
    Broadcast,
    /// It is in the CIDR, but not between start and end.
    OutsideBounds,
    /// The configuration excludes it.
    Excluded,
    /// It is a gateway.
    Gateway,
}

/// One range of a configuration, with the addresses in it that may be handed out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "StoredRange", try_from = "StoredRange")]
pub struct Range {
    network: NetworkName,
    subnet: IpNetwork,
    cidr: Span,
    bounds: Span,
    /// Sorted.
    gateways: Vec<Addr>,
    /// Sorted, disjoint.
    spans: Vec<Span>,
    gateway: Option<IpAddr>,
}

/// Interchangeable ranges of one family, in the order in which they are used. Never empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Vec<Range>", try_from = "Vec<Range>")]
pub struct RangeSet {
    /// Shared, because a pool may have hundreds and an ADD copies its set for each decision.
    ranges: Arc<[Range]>,
}

/// A range as a ticket carries it to the run that decides.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredRange {
    net: NetworkName,
    subnet: String,
    first: IpAddr,
    last: IpAddr,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    never: Vec<IpAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gateway: Option<IpAddr>,
    /// The addresses that may be handed out.
    spans: Vec<(IpAddr, IpAddr)>,
}

impl From<Range> for StoredRange {
    fn from(range: Range) -> Self {
        Self {
            subnet: range.subnet.to_string(),
            first: range.bounds.first.ip(),
            last: range.bounds.last.ip(),
            never: range.gateways.iter().map(|address| address.ip()).collect(),
            gateway: range.gateway,
            spans: range.spans.iter().map(|span| (span.first.ip(), span.last.ip())).collect(),
            net: range.network,
        }
    }
}

impl TryFrom<StoredRange> for Range {
    type Error = String;

    fn try_from(stored: StoredRange) -> Result<Self, String> {
        let subnet = stored.subnet.parse().map_err(|_| format!("{} is not a CIDR", stored.subnet))?;
        let mut range = Self::new(RangeSpec {
            network: stored.net,
            subnet,
            first: stored.first,
            last: stored.last,
            excludes: Vec::new(),
            never: stored.never,
            gateway: stored.gateway,
        })
        .map_err(|e| e.to_string())?;
        let spans: Vec<Span> = stored
            .spans
            .iter()
            .map(|&(first, last)| Span { first: first.into(), last: last.into() })
            .collect();
        let is_within = |span: &Span| {
            span.first <= span.last && range.spans.iter().any(|all| span.within(*all) == Some(*span))
        };
        if !spans.iter().all(is_within) || spans.windows(2).any(|pair| pair[0].last >= pair[1].first) {
            return Err(format!("{} has addresses that cannot be handed out", stored.subnet));
        }
        range.spans = spans;
        Ok(range)
    }
}

pub(super) fn identify_length(length: usize, bytes: &mut Vec<u8>) {
    bytes.extend((length as u64).to_be_bytes());
}

pub(super) fn identify_text(text: &str, bytes: &mut Vec<u8>) {
    identify_length(text.len(), bytes);
    bytes.extend(text.as_bytes());
}

impl From<RangeSet> for Vec<Range> {
    fn from(set: RangeSet) -> Self {
        set.ranges.to_vec()
    }
}

impl TryFrom<Vec<Range>> for RangeSet {
    type Error = RangeSetError;

    fn try_from(ranges: Vec<Range>) -> Result<Self, RangeSetError> {
        Self::new(ranges)
    }
}

impl Family {
    /// The family of a configured address or network.
    fn of(is_ipv4: bool) -> Self {
        if is_ipv4 { Self::V4 } else { Self::V6 }
    }
}

impl Span {
    /// All addresses of a CIDR.
    fn of_cidr(cidr: IpNetwork) -> Self {
        let first = Addr::from(cidr.network());
        let prefix = match cidr {
            IpNetwork::V4(v4) => u32::from(v4.prefix()) + 96,
            IpNetwork::V6(v6) => u32::from(v6.prefix()),
        };
        let host_bits = u128::MAX.checked_shr(prefix).unwrap_or(0);
        Self { first, last: Addr(first.0 | host_bits) }
    }

    fn of_ipv4() -> Self {
        Self { first: IpAddr::V4(Ipv4Addr::UNSPECIFIED).into(), last: IpAddr::V4(Ipv4Addr::BROADCAST).into() }
    }

    /// True if `address` is in it.
    #[must_use]
    pub fn contains(self, address: Addr) -> bool {
        self.first <= address && address <= self.last
    }

    /// The number of its addresses, at most `u128::MAX`.
    #[must_use]
    pub fn size(self) -> u128 {
        (self.last.0 - self.first.0).saturating_add(1)
    }

    /// The part of it that is in `window` too.
    #[must_use]
    pub fn within(self, window: Span) -> Option<Span> {
        Self::between(self.first.max(window.first), self.last.min(window.last))
    }

    /// The addresses from `first` to `last`, if there are any.
    fn between(first: Addr, last: Addr) -> Option<Span> {
        (first <= last).then_some(Span { first, last })
    }

    /// The addresses above `address`.
    pub(super) fn above(self, address: Addr) -> Option<Span> {
        let next = Addr(address.0.checked_add(1)?);
        Self::between(self.first.max(next), self.last)
    }

    /// The addresses from `address` on.
    pub(super) fn from(self, address: Addr) -> Option<Span> {
        Self::between(self.first.max(address), self.last)
    }

    /// The addresses up to and including `address`.
    pub(super) fn up_to(self, address: Addr) -> Option<Span> {
        Self::between(self.first, self.last.min(address))
    }

    /// The addresses below `address`.
    pub(super) fn below(self, address: Addr) -> Option<Span> {
        let previous = Addr(address.0.checked_sub(1)?);
        Self::between(self.first, self.last.min(previous))
    }
}

impl Range {
    /// Checks a range of a configuration and works out its assignable addresses.
    ///
    /// # Errors
    /// [`RangeError`] if the families differ, a bound is outside the subnet, the start is
    /// above the end, or IPv4 is written as IPv6.
    pub fn new(spec: RangeSpec) -> Result<Self, RangeError> {
        let cidr = Span::of_cidr(spec.subnet);
        let subnet = canonical(spec.subnet);
        if subnet.is_ipv6() && cidr.first.is_v4() {
            return Err(RangeError::MappedSubnet(subnet));
        }
        let bounds = Span { first: bound(spec.first, subnet, cidr)?, last: bound(spec.last, subnet, cidr)? };
        if bounds.first > bounds.last {
            return Err(RangeError::Reversed { first: spec.first, last: spec.last });
        }
        let gateways = sorted_within(&spec.never, bounds);
        let spans = without(bounds, withheld(subnet, bounds, &spec.excludes, &gateways));
        let (network, gateway) = (spec.network, spec.gateway);
        Ok(Self { network, subnet, cidr, bounds, gateways, spans, gateway })
    }

    /// Appends the bytes that tell it from all other ranges. The length of each list stands before it, so no two ranges
    /// append the same.
    pub(super) fn identify(&self, bytes: &mut Vec<u8>) {
        let Self { network, subnet, cidr: _, bounds, gateways, spans, gateway } = self;
        identify_text(network.as_str(), bytes);
        bytes.push(subnet.prefix());
        let gateway: Vec<Addr> = gateway.iter().copied().map(Addr::from).collect();
        let of_spans: Vec<Addr> = spans.iter().flat_map(|span| [span.first, span.last]).collect();
        for list in [&[subnet.ip().into(), bounds.first, bounds.last], &*gateway, gateways, &of_spans] {
            identify_length(list.len(), bytes);
            list.iter().for_each(|address| bytes.extend(address.0.to_be_bytes()));
        }
    }

    /// The uniqueness domain that the addresses are held in.
    #[must_use]
    pub fn network(&self) -> &NetworkName {
        &self.network
    }

    /// The CIDR, without host bits.
    #[must_use]
    pub fn subnet(&self) -> IpNetwork {
        self.subnet
    }

    /// The prefix length in the range's own family.
    #[must_use]
    pub fn prefix_len(&self) -> u8 {
        self.subnet.prefix()
    }

    /// The gateway that results carry.
    #[must_use]
    pub fn gateway(&self) -> Option<IpAddr> {
        self.gateway
    }

    /// The address family.
    #[must_use]
    pub fn family(&self) -> Family {
        Family::of(self.subnet.is_ipv4())
    }

    /// The lower bound, excluded or not.
    #[must_use]
    pub fn first(&self) -> Addr {
        self.bounds.first
    }

    /// The upper bound, excluded or not.
    #[must_use]
    pub fn last(&self) -> Addr {
        self.bounds.last
    }

    /// True if `address` is in the CIDR; start, end and excludes are set aside.
    ///
    /// An IPv4 address is in no IPv6 range, not even in `::/0`, whose numbers include it.
    #[must_use]
    pub fn covers(&self, address: Addr) -> bool {
        self.cidr.contains(address) && Family::of(address.is_v4()) == self.family()
    }

    /// Why `address` can, or cannot, be asked for. A gateway that is also excluded is a gateway.
    #[must_use]
    pub fn standing(&self, address: Addr) -> Standing {
        if !self.covers(address) {
            Standing::OutsideSubnet
        } else if !self.bounds.contains(address) {
            self.standing_beyond_bounds(address)
        } else if self.spans_within(Span { first: address, last: address }).next().is_some() {
            Standing::Assignable
        } else if self.gateways.binary_search(&address).is_ok() {
            Standing::Gateway
        } else {
            Standing::Excluded
        }
    }

    fn standing_beyond_bounds(&self, address: Addr) -> Standing {
        if address == self.cidr.first {
            Standing::NetworkAddress
        } else if address == self.cidr.last && self.family() == Family::V4 {
            Standing::Broadcast
        } else {
            Standing::OutsideBounds
        }
    }

    /// The assignable addresses as sorted, disjoint spans: the bounds without the excludes
    /// and the gateways.
    #[must_use]
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// The assignable addresses inside `window`, as sorted, disjoint spans.
    pub(super) fn spans_within(&self, window: Span) -> impl Iterator<Item = Span> + '_ {
        let start = self.spans.partition_point(|span| span.last < window.first);
        self.spans[start..].iter().map_while(move |span| span.within(window))
    }

    /// The number of assignable addresses, at most `u128::MAX`.
    #[must_use]
    pub fn size(&self) -> u128 {
        self.spans.iter().fold(0, |sum, span| sum.saturating_add(span.size()))
    }

    /// Start to end, both included.
    pub(super) fn bounds(&self) -> Span {
        self.bounds
    }
}

/// The CIDR, or first and last address with the prefix length if the range has not all that the CIDR has.
impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (self.bounds.first.ip(), self.bounds.last.ip());
        if (first, last) == usable(self.subnet) {
            return write!(f, "{}", self.subnet);
        }
        write!(f, "{first}-{last}/{}", self.subnet.prefix())
    }
}

impl RangeSet {
    /// A set of the given ranges, which are used in that order.
    ///
    /// # Errors
    /// [`RangeSetError`] if there is none, or if they are not of one family.
    pub fn new(ranges: Vec<Range>) -> Result<Self, RangeSetError> {
        let first = ranges.first().ok_or(RangeSetError::Empty)?;
        match ranges.iter().find(|range| range.family() != first.family()) {
            None => Ok(Self { ranges: ranges.into() }),
            Some(other) => Err(RangeSetError::MixedFamilies { first: first.subnet(), other: other.subnet() }),
        }
    }

    /// The ranges, in the order in which they are used.
    #[must_use]
    pub fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    /// The address family of every range.
    #[must_use]
    pub fn family(&self) -> Family {
        self.ranges[0].family()
    }

    /// The range whose CIDR covers `address`; start, end and excludes are set aside.
    ///
    /// Of several the one that may hand it out, then the one whose bounds include it.
    #[must_use]
    pub fn covers(&self, address: Addr) -> Option<&Range> {
        self.position(address).map(|at| &self.ranges[at])
    }

    /// The position of the range that [`RangeSet::covers`] finds.
    pub(crate) fn position(&self, address: Addr) -> Option<usize> {
        let find = |fits: &dyn Fn(&Range) -> bool| self.ranges.iter().position(fits);
        find(&|range| range.standing(address) == Standing::Assignable)
            .or_else(|| find(&|range| range.covers(address) && range.bounds.contains(address)))
            .or_else(|| find(&|range| range.covers(address)))
    }

    /// Why `address` can, or cannot, be asked for from this set.
    #[must_use]
    pub fn standing(&self, address: Addr) -> Standing {
        self.covers(address).map_or(Standing::OutsideSubnet, |range| range.standing(address))
    }

    /// The number of assignable addresses, at most `u128::MAX`. An address in two ranges counts twice.
    #[must_use]
    pub fn size(&self) -> u128 {
        self.ranges.iter().fold(0, |sum, range| sum.saturating_add(range.size()))
    }
}

/// The same network without host bits.
fn canonical(subnet: IpNetwork) -> IpNetwork {
    IpNetwork::new(subnet.network(), subnet.prefix()).expect("the prefix length of a network is valid")
}

/// True if a gateway is reached from a subnet without a further route. A next hop of IPv6 is often one of the link.
#[must_use]
pub fn is_on_link(subnet: IpNetwork, gateway: IpAddr) -> bool {
    subnet.contains(gateway) || matches!(gateway, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

/// The words after the key in a sentence of [`excludes_nothing`].
pub const EXCLUDES_NOTHING: &str = "excludes nothing";

/// A sentence about an exclude that is wholly outside of the subnet of its range; none about any other.
#[must_use]
pub fn excludes_nothing(key: &str, exclude: IpNetwork, subnet: IpNetwork) -> Option<String> {
    let overlaps = subnet.contains(exclude.network()) || exclude.contains(subnet.network());
    (!overlaps).then(|| format!("`{key}` {EXCLUDES_NOTHING}: {exclude} is outside of {subnet}"))
}

/// First and last address of a subnet without its network and broadcast address, in both families. A /31, /32, /127 or
/// /128 has neither.
#[must_use]
pub fn usable(subnet: IpNetwork) -> (IpAddr, IpAddr) {
    let (all, bits) = (Span::of_cidr(subnet), if subnet.is_ipv4() { 32 } else { 128 });
    if subnet.prefix() + 1 >= bits {
        return (all.first.ip(), all.last.ip());
    }
    (Addr(all.first.0 + 1).ip(), Addr(all.last.0 - 1).ip())
}

/// One bound of a range as a number, checked against its subnet.
fn bound(bound: IpAddr, subnet: IpNetwork, cidr: Span) -> Result<Addr, RangeError> {
    let address = Addr::from(bound);
    if bound.is_ipv4() != subnet.is_ipv4() {
        Err(RangeError::MixedFamilies { bound, subnet })
    } else if bound.is_ipv6() && address.is_v4() {
        Err(RangeError::MappedBound(bound))
    } else if !cidr.contains(address) {
        Err(RangeError::OutsideSubnet { bound, subnet })
    } else {
        Ok(address)
    }
}

fn sorted_within(addresses: &[IpAddr], bounds: Span) -> Vec<Addr> {
    let mut found: Vec<Addr> =
        addresses.iter().map(|&ip| Addr::from(ip)).filter(|&address| bounds.contains(address)).collect();
    found.sort_unstable();
    found
}

/// The spans inside the bounds that must not be handed out, in any order, overlaps and all.
///
/// An IPv6 range leaves out all of `::ffff:0:0/96`: addresses that are stored there are IPv4.
fn withheld(subnet: IpNetwork, bounds: Span, excludes: &[IpNetwork], gateways: &[Addr]) -> Vec<Span> {
    let excludes = excludes.iter().map(|&exclude| Span::of_cidr(exclude));
    let same_family = excludes.filter(|exclude| exclude.first.is_v4() == subnet.is_ipv4());
    let gateways = gateways.iter().map(|&address| Span { first: address, last: address });
    let ipv4 = subnet.is_ipv6().then(Span::of_ipv4);
    same_family.chain(gateways).chain(ipv4).filter_map(|span| span.within(bounds)).collect()
}

/// The rest of `bounds` without the `holes`, sorted and disjoint.
fn without(bounds: Span, mut holes: Vec<Span>) -> Vec<Span> {
    holes.sort_unstable();
    let mut spans = Vec::with_capacity(holes.len() + 1);
    let mut rest = Some(bounds);
    for hole in holes {
        let Some(left) = rest else { break };
        spans.extend(left.below(hole.first));
        rest = left.above(hole.last);
    }
    spans.extend(rest);
    spans
}

/// Ranges for tests, as a configuration would compute them.
/// Ranges for unit tests, also those of other crates.
#[cfg(any(test, feature = "fixtures"))]
#[allow(missing_docs, clippy::missing_panics_doc, clippy::unwrap_used, reason = "for tests alone")]
pub mod fixtures {
    use super::*;

    pub fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    pub fn addr(text: &str) -> Addr {
        ip(text).into()
    }

    pub fn net(text: &str) -> IpNetwork {
        text.parse().expect("a network")
    }

    pub fn span(first: &str, last: &str) -> Span {
        Span { first: addr(first), last: addr(last) }
    }

    /// A CIDR with whereabouts' bounds: without the first and the last address, if there are more.
    pub fn cidr(text: &str) -> RangeSpec {
        let all = Span::of_cidr(net(text));
        let trim = u128::from(all.size() > 2);
        RangeSpec {
            network: NetworkName::default(),
            subnet: net(text),
            first: family_ip(net(text), all.first.0 + trim),
            last: family_ip(net(text), all.last.0 - trim),
            excludes: Vec::new(),
            never: Vec::new(),
            gateway: None,
        }
    }

    /// A CIDR as host-local reads it: the first usable address is the gateway.
    pub fn host_local(text: &str) -> RangeSpec {
        let mut spec = cidr(text);
        spec.gateway = Some(spec.first);
        spec.never = vec![spec.first];
        spec
    }

    fn family_ip(subnet: IpNetwork, number: u128) -> IpAddr {
        if subnet.is_ipv4() { Addr(number).ip() } else { IpAddr::V6(number.into()) }
    }

    impl RangeSpec {
        pub fn bounds(mut self, first: &str, last: &str) -> Self {
            (self.first, self.last) = (ip(first), ip(last));
            self
        }

        pub fn from(mut self, first: &str) -> Self {
            self.first = ip(first);
            self
        }

        pub fn to(mut self, last: &str) -> Self {
            self.last = ip(last);
            self
        }

        pub fn exclude(mut self, excludes: &[&str]) -> Self {
            self.excludes = excludes.iter().map(|text| net(text)).collect();
            self
        }

        pub fn never(mut self, gateways: &[&str]) -> Self {
            self.never = gateways.iter().map(|text| ip(text)).collect();
            self
        }

        pub fn network(mut self, name: &str) -> Self {
            self.network = NetworkName::configured(name).expect("a name");
            self
        }

        pub fn range(self) -> Range {
            Range::new(self).expect("a range")
        }
    }

    pub fn set(specs: impl IntoIterator<Item = RangeSpec>) -> RangeSet {
        RangeSet::new(specs.into_iter().map(RangeSpec::range).collect()).expect("a set")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::fixtures::*;
    use super::*;

    #[test]
    fn spans_leave_out_excludes_and_gateways() {
        fn check(spec: RangeSpec, expected: &[(&str, &str)]) {
            let expected: Vec<Span> = expected.iter().map(|(first, last)| span(first, last)).collect();
            let label = format!("{spec:?}");
            assert_eq!(spec.range().spans(), expected, "{label}");
        }
        check(
            cidr("10.0.0.0/29").exclude(&["10.0.0.2/32", "10.0.0.3/32"]).never(&["10.0.0.5"]),
            &[("10.0.0.1", "10.0.0.1"), ("10.0.0.4", "10.0.0.4"), ("10.0.0.6", "10.0.0.6")],
        );
        check(cidr("10.0.0.0/29").exclude(&["10.0.0.0/8", "10.0.0.4/32"]), &[]);
        check(cidr("10.0.0.0/29").exclude(&["::/0"]), &[("10.0.0.1", "10.0.0.6")]);
        check(cidr("fd00::/126").exclude(&["0.0.0.0/0"]).never(&["fd01::1"]), &[("fd00::1", "fd00::2")]);
    }

    #[test]
    fn the_end_of_all_numbers_is_no_special_case() {
        let all = || cidr("::/0").bounds("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff").range();
        assert_eq!(all().size(), u128::MAX - u128::from(u32::MAX));
        assert_eq!(all().spans().len(), 2, "all but IPv4");
        assert_eq!(all().standing(addr("10.0.0.1")), Standing::OutsideSubnet);
        let upper = cidr("::/0").exclude(&["::/1"]).range();
        assert_eq!(upper.spans(), [span("8000::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe")]);
        let lower = cidr("::/0").exclude(&["8000::/1"]).range();
        assert_eq!(lower.spans().last().map(|span| span.last), Some(Addr(u128::MAX >> 1)));
        assert_eq!(cidr("0.0.0.0/0").range().size(), (1 << 32) - 2);
    }

    #[test]
    fn many_and_huge_excludes_cost_nothing() {
        let mut spec = cidr("fd00::/16");
        spec.excludes = (0..5000u128)
            .map(|n| {
                IpNetwork::new(IpAddr::V6(((0xfd00 << 112) + (n << 100)).into()), 120).expect("a network")
            })
            .collect();
        let range = spec.range();
        assert_eq!(range.spans().len(), 4096, "the rest lies outside");
        assert_eq!(range.size(), (1 << 112) - (256 * 4096) - 1, "the network address is one of the excluded");
    }

    #[test]
    fn a_range_that_cannot_be_is_refused() {
        fn check(spec: RangeSpec, expected: &str) {
            let label = format!("{spec:?}");
            assert_eq!(
                Range::new(spec).map_err(|error| error.to_string()),
                Err(expected.to_owned()),
                "{label}"
            );
        }
        let v4 = || cidr("10.0.0.0/24");
        check(v4().from("fd00::1"), "fd00::1 and 10.0.0.0/24 are not of one address family");
        check(v4().from("::ffff:10.0.0.1"), "::ffff:10.0.0.1 and 10.0.0.0/24 are not of one address family");
        check(v4().to("10.0.1.0"), "10.0.1.0 is not in 10.0.0.0/24");
        check(v4().from("9.9.9.9"), "9.9.9.9 is not in 10.0.0.0/24");
        check(v4().bounds("10.0.0.9", "10.0.0.5"), "the range's start 10.0.0.9 is above its end 10.0.0.5");
        check(cidr("::ffff:10.0.0.0/120"), "::ffff:10.0.0.0/120 is an IPv4 network written as IPv6");
        check(cidr("::/64").from("::ffff:10.0.0.1"), "::ffff:10.0.0.1 is an IPv4 address written as IPv6");
    }

    #[test]
    fn a_range_says_what_the_configuration_said() {
        let range = host_local("10.1.2.3/24").range();
        assert_eq!((range.subnet(), range.prefix_len()), (net("10.1.2.0/24"), 24));
        assert_eq!((range.first(), range.last()), (addr("10.1.2.1"), addr("10.1.2.254")));
        assert_eq!(range.gateway(), Some(ip("10.1.2.1")));
        assert_eq!((range.family(), cidr("fd00::/64").range().family()), (Family::V4, Family::V6));
        assert_eq!(range.network(), &NetworkName::default());
    }

    #[test]
    fn standing_names_the_reason() {
        fn check(spec: &RangeSpec, address: &str, expected: Standing) {
            assert_eq!(spec.clone().range().standing(addr(address)), expected, "{address} in {spec:?}");
        }
        let v4 = host_local("10.1.2.0/24").to("10.1.2.100").exclude(&["10.1.2.8/31", "10.1.2.1/32"]);
        check(&v4, "10.1.2.0", Standing::NetworkAddress);
        check(&v4, "10.1.2.255", Standing::Broadcast);
        check(&v4, "10.1.2.1", Standing::Gateway);
        check(&v4, "10.1.2.7", Standing::Assignable);
        check(&v4, "10.1.2.9", Standing::Excluded);
        check(&v4, "10.1.2.101", Standing::OutsideBounds);
        check(&v4, "10.9.9.9", Standing::OutsideSubnet);
        check(&v4, "fd00::1", Standing::OutsideSubnet);
        let explicit = cidr("10.1.2.0/24").bounds("10.1.2.0", "10.1.2.255");
        check(&explicit, "10.1.2.0", Standing::Assignable);
        check(&explicit, "10.1.2.255", Standing::Assignable);
        let v6 = cidr("fd00::/120");
        check(&v6, "fd00::", Standing::NetworkAddress);
        check(&v6, "fd00::ff", Standing::OutsideBounds);
    }

    #[test]
    fn a_set_has_ranges_of_one_family() {
        assert_eq!(RangeSet::new(Vec::new()), Err(RangeSetError::Empty));
        let mixed = RangeSet::new(vec![cidr("10.0.0.0/24").range(), cidr("fd00::/64").range()]);
        let (first, other) = (net("10.0.0.0/24"), net("fd00::/64"));
        assert_eq!(mixed, Err(RangeSetError::MixedFamilies { first, other }));
    }

    #[test]
    fn a_set_finds_the_range_that_would_hand_an_address_out() {
        let halves = set([cidr("10.0.0.0/24").to("10.0.0.127"), cidr("10.0.0.0/24").from("10.0.0.128")]);
        assert_eq!(halves.position(addr("10.0.0.127")), Some(0));
        assert_eq!(halves.position(addr("10.0.0.128")), Some(1));
        assert_eq!(halves.position(addr("10.0.0.255")), Some(0), "covered by both, in the bounds of none");
        assert_eq!(halves.covers(addr("10.0.1.0")), None);
        assert_eq!(halves.standing(addr("10.0.1.0")), Standing::OutsideSubnet);
        assert_eq!(halves.standing(addr("10.0.0.255")), Standing::Broadcast);
        assert_eq!((halves.size(), halves.family(), halves.ranges().len()), (254, Family::V4, 2));
    }

    proptest! {
        #[test]
        fn spans_size_and_standing_agree_with_a_look_at_every_address(
            (v6, prefix, at) in (any::<bool>(), 0..8u8, 0..256u128),
            (low, high) in (0..256u128, 0..256u128),
            excludes in prop::collection::vec((0..256u128, 0..8u8), 0..6),
            never in prop::collection::vec(0..256u128, 0..4),
        ) {
            let (base, bits) = if v6 { (u128::MAX - 255, 128) } else { (addr("10.0.15.128").0, 32) };
            let to_ip = |n: u128| if v6 { IpAddr::V6((base + n).into()) } else { Addr(base + n).ip() };
            let small = |n, host: u8| IpNetwork::new(to_ip(n), bits - host).expect("a network");
            let subnet = small(at, prefix);
            let cidr = Span::of_cidr(subnet);
            let inside = |n: u128| Addr(cidr.first.0 + n % cidr.size()).max(cidr.first);
            let (low, high) = (inside(low).min(inside(high)), inside(low).max(inside(high)));
            let to_family = |a: Addr| if v6 { IpAddr::V6(a.0.into()) } else { a.ip() };
            let excludes: Vec<IpNetwork> = excludes.into_iter().map(|(n, host)| small(n, host)).collect();
            let never: Vec<IpAddr> = never.into_iter().map(to_ip).collect();
            let range = Range::new(RangeSpec {
                network: NetworkName::default(), subnet, first: to_family(low), last: to_family(high),
                excludes: excludes.clone(), never: never.clone(), gateway: None,
            }).expect("a range");

            let naive = |a: Addr| {
                let ip = to_family(a);
                if !subnet.contains(ip) { Standing::OutsideSubnet }
                else if (a < low || a > high) && ip == subnet.network() { Standing::NetworkAddress }
                else if (a < low || a > high) && !v6 && ip == subnet.broadcast() { Standing::Broadcast }
                else if a < low || a > high { Standing::OutsideBounds }
                else if never.contains(&ip) { Standing::Gateway }
                else if excludes.iter().any(|exclude| exclude.contains(ip)) { Standing::Excluded }
                else { Standing::Assignable }
            };
            let mut assignable = 0;
            for address in (0..256).map(|n| Addr(base + n)) {
                prop_assert_eq!(range.standing(address), naive(address), "{:?}", address);
                assignable += u128::from(naive(address) == Standing::Assignable);
            }
            prop_assert_eq!(range.size(), assignable);
            prop_assert!(range.spans().windows(2).all(|pair| pair[0].last.0 + 1 < pair[1].first.0));
            prop_assert!(range.spans().iter().all(|span| span.first <= span.last));
        }
    }
}
