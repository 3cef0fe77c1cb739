//! `metes usage`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::process::ExitCode;

use serde::Serialize;

use super::inventory::{Inventory, Row, holders};
use super::output::{ListFormat, ListOutput};
use super::overview::{Overview, between, merged};
use super::table::{CellForm, Column, Listed, many, or_dash};
use super::{CliError, Context, Terminal};
use metes_core::pool::known::{KnownRange, KnownState};
use metes_core::pool::names::PoolName;
use metes_core::pool::{Addr, NetworkName, Range, RangeCounts, Standing};
use metes_core::txn::Entry;
use metes_engine::kv::{Failure, Kv};
use metes_engine::walk::walk_between;

/// Prints the usage of each range.
pub(super) async fn usage<K: Kv>(
    context: &Context<'_, K>,
    output: &ListOutput,
    terminal: &mut Terminal<'_>,
) -> Result<ExitCode, CliError> {
    let counted = read(context).await.map_err(CliError::store("count the held addresses"))?;
    let usages = usages(&counted);
    terminal.list(&COLUMNS, usages.iter().collect(), output)?;
    let is_table = matches!(output.format, ListFormat::Table | ListFormat::Wide);
    if is_table && !output.no_headers {
        terminal.answer(&left(&usages))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The part of a store that few keys tell, with counts of addresses.
struct Counted {
    overview: Overview,
    counts: BTreeMap<AddressSpan, usize>,
    /// The holders of addresses of older ranges.
    left: Inventory,
}

/// A span to count in: the reserved or the cooling addresses of a network, from the first to the last one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct AddressSpan {
    what: CountedKeys,
    network: NetworkName,
    first: Addr,
    last: Addr,
}

/// The kind of the counted keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum CountedKeys {
    Held,
    Cooling,
}

/// Counts the addresses of each range of each network, and reads who holds those of older ranges.
async fn read<K: Kv>(context: &Context<'_, K>) -> Result<Counted, Failure> {
    let keys = context.session.keys;
    let mut counted =
        Counted { overview: context.overview().await?, counts: BTreeMap::new(), left: Inventory::default() };
    let networks = context.networks_beside(&counted.overview).await?;
    let spans: Vec<AddressSpan> = counted.spans(&networks).into_iter().collect();
    let of_keys = |AddressSpan { what, network, first, last }: &AddressSpan| match what {
        CountedKeys::Held => between(keys.ip(network, *first), keys.ip(network, *last)),
        CountedKeys::Cooling => between(keys.cooling(network, *first), keys.cooling(network, *last)),
    };
    let counts = context.count(&spans.iter().map(of_keys).collect::<Vec<_>>()).await?;
    let older = counted.overview.known();
    for KnownRange { range, .. } in older.iter().filter(|known| known.state == KnownState::Older) {
        let (first, last) = (range.first(), range.last());
        let span = AddressSpan { what: CountedKeys::Held, network: range.network().clone(), first, last };
        let see = |seen: &mut Inventory, entry: Entry| seen.see(keys, &entry);
        let (start, end) = of_keys(&span);
        let (left, _) = walk_between(context.session, (&start, &end), Inventory::default, see).await?;
        counted.left.take(left);
    }
    drop(older);
    counted.counts = spans.into_iter().zip(counts).collect();
    counted.left = context.with_owners(counted.left).await?;
    Ok(counted)
}

impl Counted {
    /// All that is to be counted, of the known ranges and of these networks.
    fn spans(&self, networks: &[NetworkName]) -> BTreeSet<AddressSpan> {
        let known = self.overview.known();
        let mut spans: BTreeSet<AddressSpan> = networks.iter().map(whole).collect();
        for KnownRange { range, .. } in &known {
            let network = range.network();
            let span = |what, first, last| AddressSpan { what, network: network.clone(), first, last };
            spans.insert(whole(network));
            spans.insert(span(CountedKeys::Held, range.first(), range.last()));
            for given in range.spans() {
                spans.insert(span(CountedKeys::Held, given.first, given.last));
                spans.insert(span(CountedKeys::Cooling, given.first, given.last));
            }
        }
        let of_network = |network: &NetworkName| {
            merged(known.iter().map(|known| &known.range).filter(move |range| range.network() == network))
        };
        let networks: BTreeSet<NetworkName> = spans.iter().map(|span| span.network.clone()).collect();
        for network in networks {
            let held = |(first, last)| AddressSpan {
                what: CountedKeys::Held,
                network: network.clone(),
                first,
                last,
            };
            spans.extend(of_network(&network).into_iter().map(held));
        }
        spans
    }

    fn count(&self, what: CountedKeys, network: &NetworkName, first: Addr, last: Addr) -> usize {
        let span = AddressSpan { what, network: network.clone(), first, last };
        self.counts.get(&span).copied().unwrap_or_default()
    }

    /// The number of addresses that are set aside, from the first to the last one.
    fn aside(&self, network: &NetworkName, first: Addr, last: Addr) -> usize {
        self.overview.aside.range((network.clone(), first)..=(network.clone(), last)).count()
    }

    /// The number of held and free addresses of a range.
    fn of_range(&self, range: &Range) -> RangeCounts {
        let (network, first, last) = (range.network(), range.first(), range.last());
        let given =
            |what| range.spans().iter().map(|span| self.count(what, network, span.first, span.last)).sum();
        let (taken, cooling): (usize, usize) = (given(CountedKeys::Held), given(CountedKeys::Cooling));
        RangeCounts {
            size: range.size(),
            held: self.count(CountedKeys::Held, network, first, last),
            set_aside: self.aside(network, first, last),
            cooling,
            free: range.size().saturating_sub((taken + cooling) as u128),
        }
    }
}

/// All addresses of a network.
fn whole(network: &NetworkName) -> AddressSpan {
    let (first, last) = (Addr(0), Addr(u128::MAX));
    AddressSpan { what: CountedKeys::Held, network: network.clone(), first, last }
}

/// The usage of one range.
#[derive(Serialize)]
struct RangeUsage<'a> {
    network: NetworkName,
    /// None for addresses outside every range that is known of.
    range: Option<String>,
    /// The pool that it belongs to; none if configurations ask for it.
    pool: Option<&'a PoolName>,
    /// The state of the range; none for addresses outside.
    #[serde(serialize_with = "state_text")]
    state: Option<KnownState>,
    /// The number of addresses that it can hand out; none without a range. It is a text, because some programs round
    /// large numbers.
    #[serde(serialize_with = "as_text")]
    size: Option<u128>,
    held: usize,
    #[serde(serialize_with = "as_text")]
    free: Option<u128>,
    /// The number of cooling ones.
    cooling: usize,
    /// The number of held ones that are set aside.
    set_aside: usize,
    /// The CNI networks that ask for it, with their clusters.
    asked_by: Vec<String>,
    /// When one of them last did.
    asked_at: Option<&'a str>,
    /// If it is older: who holds an address that no other range gives.
    left: Vec<&'a Row>,
}

/// The word of a table for what a range is good for.
fn word(state: Option<KnownState>) -> &'static str {
    match state {
        Some(KnownState::Asked) => "asked for",
        Some(state) => state.name(),
        None => "-",
    }
}

fn state_text<S: serde::Serializer>(state: &Option<KnownState>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(state.map_or("outside", KnownState::name))
}

fn as_text<S: serde::Serializer>(number: &Option<u128>, serializer: S) -> Result<S::Ok, S::Error> {
    match number {
        Some(number) => serializer.collect_str(number),
        None => serializer.serialize_none(),
    }
}

/// Counts the held addresses of each range of each network. Where ranges overlap, an address counts in each. What is
/// only recorded is in no network and is not counted.
fn usages(counted: &Counted) -> Vec<RangeUsage<'_>> {
    let known = counted.overview.known();
    let mut of_networks: BTreeMap<&NetworkName, Vec<&KnownRange<'_>>> = BTreeMap::new();
    known.iter().for_each(|known| of_networks.entry(known.range.network()).or_default().push(known));
    let mut usages: Vec<RangeUsage<'_>> = Vec::new();
    for (network, known) in &of_networks {
        let is_given = |row: &Row| {
            let gives = |known: &&&KnownRange<'_>| known.range.standing(row.address) == Standing::Assignable;
            known.iter().filter(gives).any(|known| known.state != KnownState::Older)
        };
        for KnownRange { range, text, pool, state, asked } in known {
            let rows = counted.left.between(network, range.first(), range.last());
            let left = rows.iter().filter(|row| *state == KnownState::Older && !is_given(row));
            let mut asked_by: Vec<String> = asked.iter().map(|seen| seen.asked_by()).collect();
            asked_by.sort();
            asked_by.dedup();
            usages.push(RangeUsage {
                range: Some(text.clone()),
                pool: *pool,
                state: Some(*state),
                asked_by,
                asked_at: asked.iter().map(|seen| seen.asked.asked_at.as_str()).max(),
                left: left.collect(),
                ..RangeUsage::counted((*network).clone(), counted.of_range(range))
            });
        }
    }
    for (network, held, set_aside) in outside(counted, &of_networks) {
        let counts = RangeCounts { held, set_aside, ..RangeCounts::default() };
        let at = usages.partition_point(|usage| usage.network <= *network);
        let outside = RangeUsage::counted(network.clone(), counts);
        usages.insert(at, RangeUsage { size: None, free: None, ..outside });
    }
    usages
}

/// The number of addresses of each network that lie in no known range, and the number of these that are set aside.
fn outside<'a>(
    counted: &'a Counted,
    of_networks: &BTreeMap<&NetworkName, Vec<&KnownRange<'_>>>,
) -> Vec<(&'a NetworkName, usize, usize)> {
    let networks: BTreeSet<&NetworkName> = counted.counts.keys().map(|span| &span.network).collect();
    let outside = networks.into_iter().map(|network| {
        let known = of_networks.get(network).map_or(&[][..], Vec::as_slice);
        let (all, last) = (Addr(0), Addr(u128::MAX));
        let mut held = counted.count(CountedKeys::Held, network, all, last);
        let mut set_aside = counted.aside(network, all, last);
        for (first, last) in merged(known.iter().map(|known| &known.range)) {
            held = held.saturating_sub(counted.count(CountedKeys::Held, network, first, last));
            set_aside = set_aside.saturating_sub(counted.aside(network, first, last));
        }
        (network, held, set_aside)
    });
    outside.filter(|(_, held, _)| *held > 0).collect()
}

impl RangeUsage<'_> {
    fn counted(network: NetworkName, counts: RangeCounts) -> Self {
        let RangeCounts { size, held, set_aside, cooling, free } = counts;
        Self {
            network,
            range: None,
            pool: None,
            state: None,
            size: Some(size),
            held,
            free: Some(free),
            cooling,
            set_aside,
            asked_by: Vec::new(),
            asked_at: None,
            left: Vec::new(),
        }
    }
}

/// The columns of usages.
pub(super) const COLUMNS: [Column; 10] = [
    ("NETWORK", CellForm::Text),
    ("RANGE", CellForm::Whole),
    ("STATE", CellForm::Whole),
    ("SIZE", CellForm::Whole),
    ("HELD", CellForm::Whole),
    ("FREE", CellForm::Whole),
    ("COOLING", CellForm::Whole),
    ("ASIDE", CellForm::Whole),
    ("FOR", CellForm::Text),
    ("LAST ASKED", CellForm::Whole),
];

impl Listed for RangeUsage<'_> {
    fn cells(&self) -> Vec<String> {
        let number = |number: Option<u128>| or_dash(number.map(|n| n.to_string()).as_deref());
        let asked_by = self.asked_by.join(", ");
        vec![
            self.network.to_string(),
            self.name(),
            word(self.state).to_owned(),
            number(self.size),
            self.held.to_string(),
            number(self.free),
            self.cooling.to_string(),
            self.set_aside.to_string(),
            self.pool.map_or_else(|| or_dash(Some(&asked_by)), |pool| format!("pool {pool}")),
            or_dash(self.asked_at),
        ]
    }

    fn name(&self) -> String {
        or_dash(self.range.as_deref())
    }
}

/// The holders of addresses that only older ranges give.
fn left(usages: &[RangeUsage<'_>]) -> String {
    let mut text = String::new();
    for usage in usages.iter().filter(|usage| !usage.left.is_empty()) {
        let (range, count) = (usage.name(), usage.left.len());
        let (addresses, verb) = (many(count, "address"), if count == 1 { "is" } else { "are" });
        let network = &usage.network;
        let _ = writeln!(
            text,
            "\n{range} of network {network}: {addresses} {verb} held that no newer range gives"
        );
        text.push_str(&holders(&usage.left));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use metes_core::pool::RangeSpec;
    use metes_core::pool::asked::AskedRanges;
    use metes_core::pool::known::AskedSeen;
    use metes_core::pool::range::fixtures::addr;
    use metes_core::pool::range::fixtures::{cidr, set};

    /// A record of CNI network `net`, made and last written at these revisions.
    fn asked(spec: RangeSpec, asked_at: &str, revisions: (i64, i64)) -> AskedSeen {
        let asked = AskedRanges::new(None, "net".into(), vec![set([spec])], asked_at.into());
        AskedSeen { asked, created: revisions.0, written: revisions.1 }
    }

    /// The counts of a store with these configurations and these addresses.
    fn counted(asked: Vec<AskedSeen>, held: &[(&str, &str)]) -> Counted {
        let row = |(network, address): &(&str, &str)| Row {
            network: Some(NetworkName::stored(network).expect("a network")),
            address: addr(address),
            holder: None,
            pool: None,
        };
        let mut left = Inventory::default();
        left.rows = held.iter().map(row).collect();
        let mut overview = Overview::default();
        overview.inventory.asked = asked;
        let mut counted = Counted { overview, counts: BTreeMap::new(), left: left.sorted() };
        let networks: Vec<NetworkName> =
            counted.left.rows.iter().filter_map(|row| row.network.clone()).collect();
        let count = |span: AddressSpan| {
            let held = counted.left.between(&span.network, span.first, span.last).len();
            (span.clone(), if span.what == CountedKeys::Held { held } else { 0 })
        };
        counted.counts = counted.spans(&networks).into_iter().map(count).collect();
        counted
    }

    fn lines(counted: &Counted) -> Vec<String> {
        let line = |usage: &RangeUsage<'_>| {
            let left: Vec<String> = usage.left.iter().map(|row| row.address.to_string()).collect();
            format!("{} {left:?}", usage.cells()[..6].join(" "))
        };
        usages(counted).iter().map(line).collect()
    }

    #[test]
    fn sizes_are_exact_and_addresses_outside_of_all_ranges_are_counted_apart() {
        let spec = cidr("10.0.0.0/24").bounds("10.0.0.10", "10.0.0.19").exclude(&["10.0.0.12/31"]);
        let wide = cidr("fd00::/64").network("six");
        let counted = counted(
            vec![asked(spec, "2026-01-02T03:04:05Z", (5, 7)), asked(wide, "2026-01-02T03:04:05Z", (6, 6))],
            &[("default", "10.0.0.12"), ("default", "10.0.0.15"), ("default", "10.0.0.9"), ("b", "10.0.0.1")],
        );
        assert_eq!(
            lines(&counted),
            [
                "b - - - 1 - []",
                "default 10.0.0.10-10.0.0.19/24 asked for 8 2 7 []",
                "default - - - 1 - []",
                "six fd00::/64 asked for 18446744073709551614 0 18446744073709551614 []",
            ]
        );
        let json = serde_json::to_value(&usages(&counted)[1..]).expect("JSON");
        assert_eq!(
            json[2],
            serde_json::json!({
                "network": "six", "range": "fd00::/64", "pool": null, "state": "asked",
                "size": "18446744073709551614", "held": 0, "free": "18446744073709551614", "cooling": 0,
                "set_aside": 0, "asked_by": ["net"], "asked_at": "2026-01-02T03:04:05Z", "left": [],
            })
        );
    }

    #[test]
    fn a_range_is_older_if_its_cni_network_asks_for_another_one_since() {
        let old = |written| asked(cidr("10.0.0.0/24"), "2026-01-02T03:04:05Z", (5, written));
        let new = |asked_at| asked(cidr("10.0.0.0/25"), asked_at, (20, 20));
        let held = [("default", "10.0.0.1"), ("default", "10.0.0.200")];
        let of = |old, new| lines(&counted(vec![old, new], &held));
        let narrowed = [
            "default 10.0.0.0/25 asked for 126 1 125 []",
            "default 10.0.0.0/24 older 254 2 252 [\"10.0.0.200\"]",
        ];
        // Nobody has written the old one since the new one was made.
        assert_eq!(of(old(10), new("2026-01-02T03:05:00Z")), narrowed);
        // Somebody has, but only the new one is asked for in the last hour.
        assert_eq!(of(old(30), new("2026-01-02T04:04:05Z")), narrowed);
        let both = "default 10.0.0.0/24 asked for 254 2 252 []";
        assert_eq!(of(old(30), new("2026-01-02T04:04:04Z"))[1], both);
        // Ranges that do not overlap may be for different nodes or namespaces.
        let elsewhere = asked(cidr("10.1.0.0/25"), "2026-01-02T04:04:05Z", (20, 20));
        assert_eq!(of(old(10), elsewhere)[0], both);
    }
}
