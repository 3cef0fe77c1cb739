//! `metes usage`.

use std::collections::BTreeMap;
use std::process::ExitCode;

use serde::Serialize;

use super::args::{Format, UsageArgs};
use super::inventory::Row;
use super::ranges::Cidr;
use super::table::{or_dash, table};
use super::{CliError, Context, Terminal};
use crate::pool::NetworkName;
use crate::store::kv::Kv;

/// Shows how much of each range is used.
pub(super) async fn usage<K: Kv>(
    context: &Context<'_, K>,
    args: &UsageArgs,
    terminal: &mut Terminal<'_>,
) -> Result<ExitCode, CliError> {
    let inventory = context.inventory("count the held addresses").await?;
    let usages = usages(&inventory.rows, &inventory.ranges);
    match args.output.format {
        Format::Json => terminal.answer_json(&usages)?,
        Format::Table => {
            let rows: Vec<[String; 6]> = usages.iter().map(cells).collect();
            terminal.answer(&table(["NETWORK", "RANGE", "SIZE", "USED", "FREE", "ASIDE"], &rows))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// How many addresses of one range are held.
#[derive(Serialize)]
struct Usage {
    network: NetworkName,
    /// None for addresses outside every range that is known of.
    #[serde(serialize_with = "as_text")]
    range: Option<Cidr>,
    /// How many addresses it can hand out; none without a range.
    size: Option<u128>,
    used: u128,
    free: Option<u128>,
    /// How many of the used ones are set aside.
    set_aside: u128,
}

fn as_text<S: serde::Serializer>(range: &Option<Cidr>, serializer: S) -> Result<S::Ok, S::Error> {
    match range {
        Some(range) => serializer.collect_str(range),
        None => serializer.serialize_none(),
    }
}

/// Counts the held addresses of each range of each network. An address counts in the smallest range that it lies in.
/// What is only recorded is in no network and is not counted.
fn usages(rows: &[Row], ranges: &[(NetworkName, Cidr)]) -> Vec<Usage> {
    let mut known: BTreeMap<&NetworkName, Vec<Cidr>> = BTreeMap::new();
    let mut used: BTreeMap<(&NetworkName, Option<Cidr>), [u128; 2]> = BTreeMap::new();
    for (network, range) in ranges {
        known.entry(network).or_default().push(*range);
        used.entry((network, Some(*range))).or_default();
    }
    for row in rows {
        let Some(network) = &row.network else { continue };
        let ranges = known.get(network).map_or(&[][..], Vec::as_slice);
        let smallest =
            ranges.iter().filter(|range| range.covers(row.address)).min_by_key(|range| range.size());
        let [used, set_aside] = used.entry((network, smallest.copied())).or_default();
        *used += 1;
        *set_aside += u128::from(row.is_set_aside());
    }
    let mut usages: Vec<Usage> = used.into_iter().map(count).collect();
    // The row for what lies outside comes after the ranges of its network.
    usages.sort_by(|a, b| (&a.network, a.range.is_none()).cmp(&(&b.network, b.range.is_none())));
    usages
}

fn count(((network, range), [used, set_aside]): ((&NetworkName, Option<Cidr>), [u128; 2])) -> Usage {
    let size = range.map(|range| range.size());
    let free = size.map(|size| size.saturating_sub(used));
    Usage { network: network.clone(), range, size, used, free, set_aside }
}

fn cells(usage: &Usage) -> [String; 6] {
    let number = |number: Option<u128>| or_dash(number.map(|n| n.to_string()).as_deref());
    let range = usage.range.map(|range| range.to_string());
    [
        usage.network.to_string(),
        or_dash(range.as_deref()),
        number(usage.size),
        usage.used.to_string(),
        number(usage.free),
        usage.set_aside.to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::fixture::addr;

    #[test]
    fn addresses_count_in_the_smallest_range_of_their_own_network() {
        let network = |name: &str| NetworkName::stored(name).expect("a network");
        let cidr = |base, prefix_len| Cidr::new(addr(base), prefix_len).expect("a range");
        let row = |name: Option<&str>, address| Row {
            network: name.map(network),
            address: addr(address),
            holder: None,
            pool: None,
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
            usages(&rows, &ranges).iter().map(|u| serde_json::to_string(u).expect("json")).collect();
        assert_eq!(
            text,
            [
                r#"{"network":"a","range":"10.0.0.0/16","size":65534,"used":1,"free":65533,"set_aside":0}"#,
                r#"{"network":"a","range":"10.0.1.0/24","size":254,"used":1,"free":253,"set_aside":0}"#,
                r#"{"network":"a","range":null,"size":null,"used":1,"free":null,"set_aside":0}"#,
                r#"{"network":"b","range":null,"size":null,"used":1,"free":null,"set_aside":0}"#,
            ]
        );
    }
}
