//! Ranges of addresses: what a configuration lets be handed out, as sorted spans.
//!
//! Nothing here costs more for a larger range; only the number of excludes counts.

use std::net::{IpAddr, Ipv4Addr};

use ipnetwork::IpNetwork;

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

/// What a configuration says of one range, already parsed. The bounds are inclusive.
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
#[derive(Debug, Clone, PartialEq, Eq)]
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeSet {
    ranges: Vec<Range>,
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

    /// All of IPv4.
    fn of_ipv4() -> Self {
        Self { first: IpAddr::V4(Ipv4Addr::UNSPECIFIED).into(), last: IpAddr::V4(Ipv4Addr::BROADCAST).into() }
    }

    /// Whether `address` is in it.
    #[must_use]
    pub fn contains(self, address: Addr) -> bool {
        self.first <= address && address <= self.last
    }

    /// How many addresses it has, at most `u128::MAX`.
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
    /// Checks what a configuration says of a range and works out what may be handed out.
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

    /// Whether `address` is in the CIDR; start, end and excludes are set aside.
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

    /// How many addresses are assignable, at most `u128::MAX`.
    #[must_use]
    pub fn size(&self) -> u128 {
        self.spans.iter().fold(0, |sum, span| sum.saturating_add(span.size()))
    }

    /// Start to end, both included.
    pub(super) fn bounds(&self) -> Span {
        self.bounds
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
            None => Ok(Self { ranges }),
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
    #[must_use]
    pub fn position(&self, address: Addr) -> Option<usize> {
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

    /// How many addresses are assignable, at most `u128::MAX`. What lies in two ranges counts twice.
    #[must_use]
    pub fn size(&self) -> u128 {
        self.ranges.iter().fold(0, |sum, range| sum.saturating_add(range.size()))
    }
}

/// The same network without host bits.
fn canonical(subnet: IpNetwork) -> IpNetwork {
    IpNetwork::new(subnet.network(), subnet.prefix()).expect("the prefix length of a network is valid")
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

/// What the bounds contain but must not be handed out, in any order, overlaps and all.
///
/// An IPv6 range leaves out all of `::ffff:0:0/96`: what is stored there is IPv4.
fn withheld(subnet: IpNetwork, bounds: Span, excludes: &[IpNetwork], gateways: &[Addr]) -> Vec<Span> {
    let excludes = excludes.iter().map(|&exclude| Span::of_cidr(exclude));
    let same_family = excludes.filter(|exclude| exclude.first.is_v4() == subnet.is_ipv4());
    let gateways = gateways.iter().map(|&address| Span { first: address, last: address });
    let ipv4 = subnet.is_ipv6().then(Span::of_ipv4);
    same_family.chain(gateways).chain(ipv4).filter_map(|span| span.within(bounds)).collect()
}

/// What is left of `bounds` without the `holes`, sorted and disjoint.
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
