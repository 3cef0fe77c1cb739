//! `metes usage`.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::IpAddr;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use super::hold::read_unused;
use super::inventory::{Inventory, Row, holders};
use super::output::{ListFormat, ListOutput};
use super::overview::{KeySpan, Overview, between, merged};
use super::selector::{self, Selector, WordKind};
use super::table::{CellForm, Column, Listed, many, or_dash};
use super::{CliError, Context, Terminal};
use metes_core::keys::{Keys, NetworkAddress};
use metes_core::pool::{Addr, KnownRange, KnownState, NetworkName, PoolName, Range, Standing};
use metes_core::txn::Entry;
use metes_engine::kv::{Failure, Kv};
use metes_engine::walk::walk_between;

#[derive(Debug, Args)]
pub(super) struct UsageArgs {
    /// Only ranges of this network or pool, or those that this address or prefix lies in or meets
    #[arg(value_name = "WHAT")]
    what: Option<String>,
    /// What WHAT is, if it may be several things
    #[arg(long = "as", value_enum, value_name = "KIND", requires = "what")]
    kind: Option<WordKind>,
    #[command(flatten)]
    output: ListOutput,
}

/// Prints the usage of each range.
pub(super) async fn usage<K: Kv>(
    context: &Context<'_, K>,
    args: &UsageArgs,
    terminal: &mut Terminal<'_>,
) -> Result<ExitCode, CliError> {
    let UsageArgs { what, kind, output } = args;
    let selector = match what {
        Some(what) => Some(selected(context, what, *kind).await?),
        None => None,
    };
    let counted = read(context).await.map_err(CliError::store("count the held addresses"))?;
    let mut usages = usages(&counted);
    if let Some(selector) = &selector {
        usages.retain(|usage| usage.is_of(selector));
        if usages.is_empty() {
            terminal.tell(&format!("metes: no range of {selector} is known; metes usage shows all"));
        }
    } else if usages.is_empty() {
        context.tell_if_unused(terminal).await.map_err(CliError::store("count the held addresses"))?;
    }
    terminal.list(&COLUMNS, usages.iter().collect(), output)?;
    let is_table = matches!(output.format, ListFormat::Table | ListFormat::Wide);
    if is_table && !output.no_headers {
        terminal.answer(&left(&usages))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What of the usage is meant.
async fn selected<K: Kv>(
    context: &Context<'_, K>,
    what: &str,
    kind: Option<WordKind>,
) -> Result<Selector, CliError> {
    let found = selector::find_among(context, what, kind, None, &[WordKind::Network, WordKind::Pool]).await;
    let found = found.map_err(CliError::store(format!("look up {what:?}")))?.map_err(CliError::Refused)?;
    match found.selector {
        selector @ (Selector::Network(_)
        | Selector::Pool(_)
        | Selector::Prefix(_)
        | Selector::Address(..)) => Ok(selector),
        other => Err(CliError::Refused(format!(
            "usage is of ranges: give a network, a pool, a prefix or an address; {what} is {other}, and metes list \
             {what} shows what that holds"
        ))),
    }
}

/// The part of a store that few keys tell, with counts of addresses.
struct Counted<'k> {
    keys: &'k Keys,
    overview: Overview,
    /// The addresses that stay with pods and that no container uses.
    unused: BTreeSet<NetworkAddress>,
    /// All networks of which anything is stored.
    networks: Vec<NetworkName>,
    /// The number of keys in each span. Before etcd has counted them, the spans that were asked for, each with 0.
    counts: RefCell<BTreeMap<KeySpan, usize>>,
    /// The holders of addresses of older ranges.
    left: Inventory,
}

/// Counts the addresses of each range of each network, and reads who holds those of older ranges.
async fn read<'k, K: Kv>(context: &Context<'k, K>) -> Result<Counted<'k>, Failure> {
    let keys = context.session.keys;
    let overview = context.overview().await?;
    let networks = context.networks_beside(&overview).await?;
    let counts = RefCell::default();
    let unused = read_unused(context).await?;
    let mut counted = Counted { keys, overview, unused, networks, counts, left: Inventory::default() };
    // This tells which counts are needed.
    usages(&counted);
    let spans: Vec<KeySpan> = counted.counts.take().into_keys().collect();
    let counts = context.count(&spans).await?;
    counted.counts = RefCell::new(spans.into_iter().zip(counts).collect());
    let mut left = Inventory::default();
    for KnownRange { range, state, .. } in counted.overview.known() {
        if state == KnownState::Older {
            let (start, end) = counted.held_keys(range.network(), range.first(), range.last());
            let see = |seen: &mut Inventory, entry: Entry| seen.see(keys, &entry);
            left.take(walk_between(context.session, (&start, &end), Inventory::default, see).await?.0);
        }
    }
    counted.left = context.with_owners(left).await?;
    Ok(counted)
}

impl Counted<'_> {
    fn held_keys(&self, network: &NetworkName, first: Addr, last: Addr) -> KeySpan {
        between(self.keys.ip(network, first), self.keys.ip(network, last))
    }

    fn count(&self, span: KeySpan) -> usize {
        *self.counts.borrow_mut().entry(span).or_default()
    }

    /// The numbers of held addresses, from the first to the last one.
    fn held(&self, network: &NetworkName, first: Addr, last: Addr) -> HeldCounts {
        let among = |addresses: &BTreeSet<NetworkAddress>| {
            addresses.range((network.clone(), first)..=(network.clone(), last)).count()
        };
        HeldCounts {
            held: self.count(self.held_keys(network, first, last)),
            set_aside: among(&self.overview.aside),
            unused: among(&self.unused),
        }
    }

    /// The number of free and of cooling addresses of a range.
    fn free(&self, range: &Range) -> (u128, usize) {
        let (keys, network) = (self.keys, range.network());
        let (mut taken, mut cooling) = (0, 0);
        for span in range.spans() {
            taken += self.held(network, span.first, span.last).held;
            let cooling_keys = between(keys.cooling(network, span.first), keys.cooling(network, span.last));
            cooling += self.count(cooling_keys);
        }
        (range.size().saturating_sub((taken + cooling) as u128), cooling)
    }
}

/// Numbers of held addresses.
#[derive(Clone, Copy)]
struct HeldCounts {
    held: usize,
    /// Those that are set aside.
    set_aside: usize,
    /// Those that stay with pods and that no container uses.
    unused: usize,
}

#[derive(Serialize)]
struct RangeUsage<'a> {
    network: NetworkName,
    /// None for addresses outside every range that is known of.
    range: Option<String>,
    /// Its first and last address.
    #[serde(skip)]
    span: Option<(Addr, Addr)>,
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
    /// The number of held ones that stay with pods and that no container uses.
    unused: usize,
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
fn usages<'a>(counted: &'a Counted<'_>) -> Vec<RangeUsage<'a>> {
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
            let (free, cooling) = counted.free(range);
            usages.push(RangeUsage {
                range: Some(text.clone()),
                span: Some((range.first(), range.last())),
                pool: *pool,
                state: Some(*state),
                asked_by,
                asked_at: asked.iter().map(|seen| seen.asked.asked_at.as_str()).max(),
                left: left.collect(),
                size: Some(range.size()),
                free: Some(free),
                cooling,
                ..RangeUsage::of((*network).clone(), counted.held(network, range.first(), range.last()))
            });
        }
    }
    for (network, held) in outside(counted, &of_networks) {
        let at = usages.partition_point(|usage| usage.network <= *network);
        usages.insert(at, RangeUsage::of(network.clone(), held));
    }
    usages
}

/// The numbers of addresses of each network that lie in no known range.
fn outside<'a>(
    counted: &'a Counted<'_>,
    of_networks: &BTreeMap<&NetworkName, Vec<&KnownRange<'_>>>,
) -> Vec<(&'a NetworkName, HeldCounts)> {
    let outside = counted.networks.iter().map(|network| {
        let known = of_networks.get(network).map_or(&[][..], Vec::as_slice);
        let mut outside = counted.held(network, Addr(0), Addr(u128::MAX));
        for (first, last) in merged(known.iter().map(|known| &known.range)) {
            let inside = counted.held(network, first, last);
            outside.held = outside.held.saturating_sub(inside.held);
            outside.set_aside = outside.set_aside.saturating_sub(inside.set_aside);
            outside.unused = outside.unused.saturating_sub(inside.unused);
        }
        (network, outside)
    });
    outside.filter(|(_, counts)| counts.held > 0).collect()
}

impl RangeUsage<'_> {
    /// Held addresses of no range.
    fn of(network: NetworkName, HeldCounts { held, set_aside, unused }: HeldCounts) -> Self {
        Self {
            network,
            range: None,
            span: None,
            pool: None,
            state: None,
            size: None,
            held,
            free: None,
            cooling: 0,
            set_aside,
            unused,
            asked_by: Vec::new(),
            asked_at: None,
            left: Vec::new(),
        }
    }
}

impl RangeUsage<'_> {
    fn is_of(&self, selector: &Selector) -> bool {
        let meets = |first: IpAddr, last: IpAddr| {
            self.span.is_some_and(|span| span.0 <= Addr::from(last) && Addr::from(first) <= span.1)
        };
        match selector {
            Selector::Network(network) => self.network == *network,
            Selector::Pool(pool) => self.pool == Some(pool),
            Selector::Prefix(prefix) => meets(prefix.network(), prefix.broadcast()),
            Selector::Address(network, address) => {
                meets(*address, *address) && network.as_ref().is_none_or(|network| self.network == *network)
            }
            _ => false,
        }
    }
}

pub(super) const COLUMNS: [Column; 12] = [
    Column::new("NETWORK", CellForm::Name),
    Column::new("RANGE", CellForm::Whole),
    Column::new("STATE", CellForm::Whole).spare(2),
    Column::new("SIZE", CellForm::Count),
    Column::new("HELD", CellForm::Count),
    Column::new("FREE", CellForm::Count),
    Column::new("USED", CellForm::Whole),
    Column::new("COOLING", CellForm::Whole).spare(3),
    Column::new("ASIDE", CellForm::Whole).spare(4),
    Column::new("UNUSED", CellForm::Whole).spare(5),
    Column::new("FOR", CellForm::Text),
    Column::new("LAST ASKED", CellForm::Time("LAST ASKED")).spare(6),
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
            or_dash(self.size.and_then(|size| percent(self.held, size)).as_deref()),
            self.cooling.to_string(),
            self.set_aside.to_string(),
            self.unused.to_string(),
            self.pool.map_or_else(|| or_dash(Some(&asked_by)), |pool| format!("pool {pool}")),
            or_dash(self.asked_at),
        ]
    }

    fn name(&self) -> String {
        or_dash(self.range.as_deref())
    }
}

/// How much of a range is held; none if it gives no address.
fn percent(held: usize, size: u128) -> Option<String> {
    let percent = (held as u128 * 100).checked_div(size)?;
    Some(if percent == 0 && held > 0 { "<1%".to_owned() } else { format!("{percent}%") })
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
    use std::sync::LazyLock;

    use super::*;
    use metes_core::pool::range::fixtures::addr;
    use metes_core::pool::range::fixtures::{cidr, set};
    use metes_core::pool::{AskedRanges, AskedSeen, RangeSpec};

    /// A record of CNI network `net`, made and last written at these revisions.
    fn asked(spec: RangeSpec, asked_at: &str, revisions: (i64, i64)) -> AskedSeen {
        let asked = AskedRanges::new(None, "net".into(), vec![set([spec])], asked_at.into());
        AskedSeen { asked, created: revisions.0, written: revisions.1 }
    }

    /// The counts of a store with these configurations and these addresses.
    fn counted(asked: Vec<AskedSeen>, held: &[(&str, &str)]) -> Counted<'static> {
        static KEYS: LazyLock<Keys> = LazyLock::new(|| Keys::new("/metes/"));
        let row = |(network, address): &(&str, &str)| Row {
            network: Some(NetworkName::stored(network).expect("a network")),
            address: addr(address),
            holder: None,
            pool: None,
            kept: None,
        };
        let mut left = Inventory::default();
        left.rows = held.iter().map(row).collect();
        let left = left.sorted();
        let mut networks: Vec<_> = left.rows.iter().filter_map(|row| row.network.clone()).collect();
        networks.dedup();
        let key = |row: &Row| row.network.as_ref().map(|network| KEYS.ip(network, row.address));
        let held: Vec<_> = left.rows.iter().filter_map(key).collect();
        let mut overview = Overview::default();
        overview.inventory.asked = asked;
        let (unused, counts) = Default::default();
        let counted = Counted { keys: &KEYS, overview, unused, networks, counts, left };
        usages(&counted);
        let mut counts = counted.counts.borrow_mut();
        for ((start, end), count) in &mut *counts {
            *count = held.iter().filter(|key| (start..end).contains(key)).count();
        }
        drop(counts);
        counted
    }

    fn lines(counted: &Counted<'_>) -> Vec<String> {
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
                "set_aside": 0, "unused": 0, "asked_by": ["net"], "asked_at": "2026-01-02T03:04:05Z", "left": [],
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
