//! `metes usage`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;

use super::args::{ListFormat, UsageArgs};
use super::inventory::{AskedSeen, Inventory, Row, holders};
use super::table::{CellForm, Column, Listed, or_dash};
use super::{CliError, Context, Terminal};
use crate::pool::definition::RangeState;
use crate::pool::names::PoolName;
use crate::pool::{NetworkName, Range, RangeCounts, Standing};
use crate::store::kv::Kv;

/// If nobody has asked for ranges for so long, and others of the same CNI network were asked for since, they are older.
const OLDER: Duration = Duration::from_secs(3600);

/// Shows how much of each range is used.
pub(super) async fn usage<K: Kv>(
    context: &Context<'_, K>,
    args: &UsageArgs,
    terminal: &mut Terminal<'_>,
) -> Result<ExitCode, CliError> {
    let inventory = context.inventory("count the held addresses").await?;
    let usages = usages(&inventory);
    terminal.list(&COLUMNS, usages.iter().collect(), &args.output)?;
    let is_table = matches!(args.output.format, ListFormat::Table | ListFormat::Wide);
    if is_table && !args.output.no_headers {
        terminal.answer(&left(&usages))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// How much of one range is used.
#[derive(Serialize)]
struct RangeUsage<'a> {
    network: NetworkName,
    /// None for addresses outside every range that is known of.
    range: Option<String>,
    /// The pool that it belongs to; none if configurations ask for it.
    pool: Option<&'a PoolName>,
    state: UsageState,
    /// How many addresses it can hand out; none without a range. As text, because some programs round large numbers.
    #[serde(serialize_with = "as_text")]
    size: Option<u128>,
    held: usize,
    #[serde(serialize_with = "as_text")]
    free: Option<u128>,
    /// How many are cooling.
    cooling: usize,
    /// How many of the held ones are set aside.
    set_aside: usize,
    /// The CNI networks that ask for it, with their clusters.
    asked_by: Vec<String>,
    /// When one of them last did.
    asked_at: Option<&'a str>,
    /// If it is older: who holds an address that no other range gives.
    left: Vec<&'a Row>,
}

/// What a range is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum UsageState {
    /// Of a pool.
    Open,
    Draining,
    Closed,
    /// A configuration asks for it.
    Asked,
    /// Its CNI networks have asked for other ranges since.
    Older,
    /// There is no range that gives these.
    Outside,
}

impl UsageState {
    fn word(self) -> &'static str {
        match self {
            UsageState::Open => "open",
            UsageState::Draining => "draining",
            UsageState::Closed => "closed",
            UsageState::Asked => "asked for",
            UsageState::Older => "older",
            UsageState::Outside => "-",
        }
    }

    fn of_pool(state: RangeState) -> Self {
        match state {
            RangeState::Open => UsageState::Open,
            RangeState::Draining => UsageState::Draining,
            RangeState::Closed => UsageState::Closed,
        }
    }
}

fn as_text<S: serde::Serializer>(number: &Option<u128>, serializer: S) -> Result<S::Ok, S::Error> {
    match number {
        Some(number) => serializer.collect_str(number),
        None => serializer.serialize_none(),
    }
}

/// A range, and where it comes from.
struct KnownRange<'a> {
    range: Range,
    /// As people write it.
    text: String,
    pool: Option<&'a PoolName>,
    state: UsageState,
    asked: Vec<&'a AskedSeen>,
}

/// The ranges of all pools and of all configurations, each once, by network.
fn known_ranges(inventory: &Inventory) -> Vec<KnownRange<'_>> {
    let mut known = Vec::new();
    for pool in inventory.pools.iter() {
        for (written, range) in pool.ranges.iter().zip(pool.all_ranges().unwrap_or_default()) {
            let (text, state) = (written.range.to_string(), UsageState::of_pool(written.state));
            known.push(KnownRange { range, text, pool: Some(&pool.pool), state, asked: Vec::new() });
        }
    }
    let of_pools = known.len();
    for seen in &inventory.asked {
        for range in seen.asked.sets.iter().flat_map(|set| set.ranges()) {
            match known[of_pools..].iter_mut().find(|known| known.range == *range) {
                Some(known) => known.asked.push(seen),
                None => known.push(KnownRange {
                    range: range.clone(),
                    text: range.to_string(),
                    pool: None,
                    state: UsageState::Asked,
                    asked: vec![seen],
                }),
            }
        }
    }
    let is_older = |seen: &&AskedSeen| inventory.asked.iter().any(|other| other.came_after(seen, OLDER));
    for known in &mut known[of_pools..] {
        if known.asked.iter().all(is_older) {
            known.state = UsageState::Older;
        }
    }
    known.sort_by(|a, b| order(a).cmp(&order(b)));
    known
}

fn order<'a>(known: &'a KnownRange<'_>) -> impl Ord + use<'a> {
    let KnownRange { range, text, pool, .. } = known;
    (range.network(), range.first(), range.last(), pool.map(PoolName::as_str), text)
}

/// Counts the held addresses of each range of each network. Where ranges overlap, an address counts in each. What is
/// only recorded is in no network and is not counted.
fn usages(inventory: &Inventory) -> Vec<RangeUsage<'_>> {
    let known = known_ranges(inventory);
    let mut of_networks: BTreeMap<&NetworkName, Vec<&KnownRange<'_>>> = BTreeMap::new();
    known.iter().for_each(|known| of_networks.entry(known.range.network()).or_default().push(known));
    let mut usages: Vec<RangeUsage<'_>> = Vec::new();
    for (network, known) in &of_networks {
        let is_given = |row: &Row| {
            let gives = |known: &&&KnownRange<'_>| known.range.standing(row.address) == Standing::Assignable;
            known.iter().filter(gives).any(|known| known.state != UsageState::Older)
        };
        for KnownRange { range, text, pool, state, asked } in known {
            let rows = inventory.between(network, range.first(), range.last());
            let left = rows.iter().filter(|row| *state == UsageState::Older && !is_given(row));
            let mut asked_by: Vec<String> = asked.iter().map(|seen| seen.asked_by()).collect();
            asked_by.sort();
            asked_by.dedup();
            usages.push(RangeUsage {
                range: Some(text.clone()),
                pool: *pool,
                state: *state,
                asked_by,
                asked_at: asked.iter().map(|seen| seen.asked.asked_at.as_str()).max(),
                left: left.collect(),
                ..RangeUsage::counted((*network).clone(), inventory.counts(range))
            });
        }
    }
    for (network, held, set_aside) in outside(inventory, &of_networks) {
        let counts = RangeCounts { held, set_aside, ..RangeCounts::default() };
        let at = usages.partition_point(|usage| usage.network <= *network);
        let outside = RangeUsage::counted(network.clone(), counts);
        usages.insert(at, RangeUsage { size: None, free: None, ..outside });
    }
    usages
}

/// How many addresses of each network lie in no range that is known of, and how many of these are set aside.
fn outside<'a>(
    inventory: &'a Inventory,
    of_networks: &BTreeMap<&NetworkName, Vec<&KnownRange<'_>>>,
) -> Vec<(&'a NetworkName, usize, usize)> {
    let mut outside: BTreeMap<&NetworkName, (usize, usize)> = BTreeMap::new();
    for row in &inventory.rows {
        let Some(network) = &row.network else { continue };
        let known = of_networks.get(network).map_or(&[][..], Vec::as_slice);
        if !known.iter().any(|known| (known.range.first()..=known.range.last()).contains(&row.address)) {
            let (held, set_aside) = outside.entry(network).or_default();
            *held += 1;
            *set_aside += usize::from(row.is_set_aside());
        }
    }
    outside.into_iter().map(|(network, (held, set_aside))| (network, held, set_aside)).collect()
}

impl RangeUsage<'_> {
    fn counted(network: NetworkName, counts: RangeCounts) -> Self {
        let RangeCounts { size, held, set_aside, cooling, free } = counts;
        Self {
            network,
            range: None,
            pool: None,
            state: UsageState::Outside,
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
            self.state.word().to_owned(),
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

/// Who holds addresses that only older ranges give.
fn left(usages: &[RangeUsage<'_>]) -> String {
    let mut text = String::new();
    for usage in usages.iter().filter(|usage| !usage.left.is_empty()) {
        let (range, count) = (usage.name(), usage.left.len());
        let verb = if count == 1 { "1 address is" } else { &format!("{count} addresses are") };
        let _ =
            writeln!(text, "\n{range} of network {}: {verb} held that no newer range gives", usage.network);
        text.push_str(&holders(&usage.left));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::fixture::addr;
    use crate::pool::RangeSpec;
    use crate::pool::asked::AskedRanges;
    use crate::pool::range::fixtures::{cidr, set};

    /// A record of CNI network `net`, made and last written at these revisions.
    fn asked(spec: RangeSpec, asked_at: &str, revisions: (i64, i64)) -> AskedSeen {
        let asked = AskedRanges::new(None, "net".into(), vec![set([spec])], asked_at.into());
        AskedSeen { asked: asked.expect("a small one"), created: revisions.0, written: revisions.1 }
    }

    fn inventory(asked: Vec<AskedSeen>, held: &[(&str, &str)]) -> Inventory {
        let row = |(network, address): &(&str, &str)| Row {
            network: Some(NetworkName::stored(network).expect("a network")),
            address: addr(address),
            holder: None,
            pool: None,
        };
        let mut inventory = Inventory::default();
        (inventory.asked, inventory.rows) = (asked, held.iter().map(row).collect());
        inventory.sorted()
    }

    fn lines(inventory: &Inventory) -> Vec<String> {
        let line = |usage: &RangeUsage<'_>| {
            let left: Vec<String> = usage.left.iter().map(|row| row.address.to_string()).collect();
            format!("{} {left:?}", usage.cells()[..6].join(" "))
        };
        usages(inventory).iter().map(line).collect()
    }

    #[test]
    fn sizes_are_exact_and_addresses_outside_of_all_ranges_are_counted_apart() {
        let spec = cidr("10.0.0.0/24").bounds("10.0.0.10", "10.0.0.19").exclude(&["10.0.0.12/31"]);
        let wide = cidr("fd00::/64").network("six");
        let inventory = inventory(
            vec![asked(spec, "2026-01-02T03:04:05Z", (5, 7)), asked(wide, "2026-01-02T03:04:05Z", (6, 6))],
            &[("default", "10.0.0.12"), ("default", "10.0.0.15"), ("default", "10.0.0.9"), ("b", "10.0.0.1")],
        );
        assert_eq!(
            lines(&inventory),
            [
                "b - - - 1 - []",
                "default 10.0.0.10-10.0.0.19/24 asked for 8 2 7 []",
                "default - - - 1 - []",
                "six fd00::/64 asked for 18446744073709551614 0 18446744073709551614 []",
            ]
        );
        let json = serde_json::to_value(&usages(&inventory)[1..]).expect("JSON");
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
        let of = |old, new| lines(&inventory(vec![old, new], &held));
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
