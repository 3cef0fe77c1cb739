//! The addresses to draw: parts of networks, with the addresses that their ranges give. Pure.

use ipnetwork::IpNetwork;

use crate::inventory::Inventory;
use metes_core::pool::{Addr, KnownRange, KnownState, NetworkName, PoolName, Range, Span, known_ranges};

/// A block of more addresses than 2 to this power is drawn as far as something is held in it.
const WHOLE_BITS: u32 = 24;

/// The area to draw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Drawn {
    Network(NetworkName),
    Pool(PoolName),
    /// In one network, or in each.
    Prefix(Option<NetworkName>, IpNetwork),
}

/// A block of addresses: 2 to a power, and the first is a multiple of that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) first: Addr,
    /// The power.
    pub(super) bits: u32,
}

impl Block {
    /// The smallest one that has both addresses.
    pub(super) fn of(span: Span) -> Self {
        let bits = u128::BITS - (span.first.0 ^ span.last.0).leading_zeros();
        Self { first: Addr(span.first.0 & !low(bits)), bits }
    }

    pub(super) fn last(self) -> Addr {
        Addr(self.first.0 | low(self.bits))
    }

    pub(super) fn span(self) -> Span {
        Span { first: self.first, last: self.last() }
    }

    /// As people write it: a prefix, or an address alone.
    pub(super) fn text(self) -> String {
        let all = if self.first.is_v4() && self.bits <= 32 { 32 } else { 128 };
        match self.bits {
            0 => self.first.to_string(),
            bits => format!("{}/{}", self.first, all - bits),
        }
    }
}

fn low(bits: u32) -> u128 {
    u128::MAX.checked_shr(u128::BITS - bits).unwrap_or(0)
}

/// A part of a network that makes one picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Area {
    pub(super) network: NetworkName,
    pub(super) block: Block,
    /// The addresses that ranges give, sorted and disjoint.
    pub(super) given: Vec<Span>,
    /// The block that was asked for, if only the part is drawn in which something is held.
    pub(super) part_of: Option<Block>,
}

/// A range, and which of its addresses are given.
#[derive(Clone, Copy)]
struct Giving<'a> {
    range: &'a Range,
    given: &'a [Span],
}

impl<'a> Giving<'a> {
    /// Nobody asks for an older one any more.
    fn of(known: &'a KnownRange<'_>) -> Self {
        let given = if known.state == KnownState::Older { &[] } else { known.range.spans() };
        Self { range: &known.range, given }
    }
}

/// The parts that are drawn, by network and address.
pub(super) fn areas(inventory: &Inventory, drawn: &Drawn) -> Vec<Area> {
    let known = known_ranges(inventory.pools.iter(), &inventory.asked);
    let is_meant = |KnownRange { range, pool, .. }: &&KnownRange<'_>| match drawn {
        Drawn::Network(network) => range.network() == network,
        Drawn::Pool(wanted) => *pool == Some(wanted),
        Drawn::Prefix(network, _) => network.as_ref().is_none_or(|network| range.network() == network),
    };
    let ranges: Vec<Giving<'_>> = known.iter().filter(is_meant).map(Giving::of).collect();
    let areas = match drawn {
        Drawn::Prefix(network, prefix) => of_prefix(inventory, network.as_ref(), *prefix, &ranges),
        Drawn::Network(network) if ranges.is_empty() => of_rows(inventory, network),
        _ => of_ranges(&ranges),
    };
    areas.into_iter().map(|area| as_far_as_held(inventory, area)).collect()
}

/// One for each network that has something there.
fn of_prefix(
    inventory: &Inventory,
    network: Option<&NetworkName>,
    prefix: IpNetwork,
    ranges: &[Giving<'_>],
) -> Vec<Area> {
    let span = Span { first: prefix.network().into(), last: prefix.broadcast().into() };
    let held = inventory.rows.iter().filter(|row| span.contains(row.address));
    let held =
        held.filter_map(|row| row.network.as_ref()).filter(|one| network.is_none_or(|wanted| wanted == *one));
    let meets = |range: &&Range| span.within(Span { first: range.first(), last: range.last() }).is_some();
    let met = ranges.iter().map(|giving| giving.range).filter(meets);
    let mut networks: Vec<&NetworkName> = met.map(Range::network).collect();
    networks.extend(held);
    networks.sort_unstable();
    networks.dedup();
    let area = |network: &NetworkName| {
        let of_network = ranges.iter().filter(|giving| giving.range.network() == network);
        let given =
            of_network.flat_map(|giving| giving.given).filter_map(|given| given.within(span)).collect();
        Area { network: network.clone(), block: Block::of(span), given: joined(given), part_of: None }
    };
    networks.into_iter().map(area).collect()
}

/// A network whose ranges nobody knows: as far as something is held.
fn of_rows(inventory: &Inventory, network: &NetworkName) -> Vec<Area> {
    let rows = inventory.rows.iter().filter(|row| row.network.as_ref() == Some(network));
    let addresses: Vec<Addr> = rows.map(|row| row.address).collect();
    let (Some(first), Some(last)) = (addresses.iter().min(), addresses.iter().max()) else {
        return Vec::new();
    };
    let block = Block::of(Span { first: *first, last: *last });
    vec![Area { network: network.clone(), block, given: Vec::new(), part_of: None }]
}

/// One for each range; those that meet make one together.
fn of_ranges(ranges: &[Giving<'_>]) -> Vec<Area> {
    let mut blocks: Vec<(Block, Giving<'_>)> =
        ranges.iter().map(|giving| (block_of(giving.range), *giving)).collect();
    // The largest first: of the others, each lies in one of them or meets none.
    blocks.sort_by_key(|(block, _)| std::cmp::Reverse(block.bits));
    let mut areas: Vec<Area> = Vec::new();
    for (block, Giving { range, given }) in blocks {
        match areas.iter_mut().find(|area| area.network == *range.network() && meet(area.block, block)) {
            Some(area) => area.given.extend(given),
            None => areas.push(Area {
                network: range.network().clone(),
                block,
                given: given.to_vec(),
                part_of: None,
            }),
        }
    }
    for area in &mut areas {
        area.given = joined(std::mem::take(&mut area.given));
    }
    areas.sort_by(|a, b| (&a.network, a.block.first).cmp(&(&b.network, b.block.first)));
    areas
}

/// From the range's first address to its last one; the whole prefix where only the network's own address and the like
/// are missing.
fn block_of(range: &Range) -> Block {
    let cidr = Span { first: range.subnet().network().into(), last: range.subnet().broadcast().into() };
    let bounds = Span { first: range.first(), last: range.last() };
    let is_whole = bounds.first.0 - cidr.first.0 <= 1 && cidr.last.0 - bounds.last.0 <= 1;
    Block::of(if is_whole { cidr } else { bounds })
}

/// True if the blocks overlap. CIDR blocks overlap only by containment.
fn meet(one: Block, other: Block) -> bool {
    one.span().within(other.span()).is_some()
}

/// Sorted and disjoint.
fn joined(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_unstable();
    let mut joined: Vec<Span> = Vec::new();
    for span in spans {
        match joined.last_mut() {
            Some(last) if span.first.0 <= last.last.0.saturating_add(1) => {
                last.last = last.last.max(span.last)
            }
            _ => joined.push(span),
        }
    }
    joined
}

fn as_far_as_held(inventory: &Inventory, area: Area) -> Area {
    if area.block.bits <= WHOLE_BITS {
        return area;
    }
    let rows = inventory.between(&area.network, area.block.first, area.block.last());
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return area };
    let mut part = Block::of(Span { first: first.address, last: last.address });
    // Some free addresses around them show how much room there is.
    part = Block { bits: part.bits.max(8), first: Addr(part.first.0 & !low(part.bits.max(8))) };
    Area { block: part, part_of: Some(area.block), ..area }
}

#[cfg(test)]
mod tests {
    use super::*;
    use metes_core::pool::range::fixtures::addr;

    fn span(first: &str, last: &str) -> Span {
        Span { first: addr(first), last: addr(last) }
    }

    #[test]
    fn blocks_are_powers_of_two_and_aligned() {
        for (first, last, text) in [
            ("10.0.0.0", "10.0.0.255", "10.0.0.0/24"),
            ("10.0.0.5", "10.0.0.9", "10.0.0.0/28"),
            ("10.0.0.255", "10.0.1.0", "10.0.0.0/23"),
            ("10.0.0.7", "10.0.0.7", "10.0.0.7"),
            ("0.0.0.0", "255.255.255.255", "0.0.0.0/0"),
            ("fd00::", "fd00::ffff:ffff:ffff:ffff", "fd00::/64"),
            ("::1", "ffff::", "::/0"),
        ] {
            let block = Block::of(span(first, last));
            assert_eq!(block.text(), text);
            assert!(block.span().contains(addr(first)) && block.span().contains(addr(last)), "{text}");
        }
    }

    #[test]
    fn ranges_that_meet_make_one_area() {
        let range = |cidr: &str| metes_core::pool::range::fixtures::cidr(cidr).range();
        let ranges = ["10.0.0.0/25", "10.0.0.128/25", "10.0.0.0/24", "10.0.2.0/24"].map(range);
        let part =
            metes_core::pool::range::fixtures::cidr("10.0.3.0/24").bounds("10.0.3.8", "10.0.3.14").range();
        let giving = |range| Giving { range, given: Range::spans(range) };
        let all: Vec<Giving<'_>> = ranges.iter().chain([&part]).map(giving).collect();
        let areas = of_ranges(&all);
        let texts: Vec<String> = areas.iter().map(|area| area.block.text()).collect();
        assert_eq!(texts, ["10.0.0.0/24", "10.0.2.0/24", "10.0.3.8/29"]);
        assert_eq!(areas[0].given, [span("10.0.0.1", "10.0.0.254")]);
    }

    #[test]
    fn spans_that_meet_are_joined() {
        let spans =
            vec![span("10.0.0.5", "10.0.0.9"), span("10.0.0.1", "10.0.0.4"), span("10.0.0.11", "10.0.0.12")];
        assert_eq!(joined(spans), [span("10.0.0.1", "10.0.0.9"), span("10.0.0.11", "10.0.0.12")]);
    }
}
