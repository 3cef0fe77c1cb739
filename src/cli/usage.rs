//! `metes usage`.

use std::process::ExitCode;

use super::args::{Format, UsageArgs};
use super::ranges::{self, Usage};
use super::table::{or_dash, table};
use super::{Failed, Store, Terminal};
use crate::store::kv::Kv;

/// Shows how much of each range is used.
pub(super) async fn usage<K: Kv>(
    store: &Store<'_, K>,
    args: &UsageArgs,
    terminal: &mut Terminal<'_>,
) -> Result<ExitCode, Failed> {
    let inventory = store.inventory("count the held addresses").await?;
    let usages = ranges::usage(&inventory.rows, &inventory.ranges);
    match args.output.format {
        Format::Json => terminal.answer_json(&usages)?,
        Format::Table => {
            let rows: Vec<[String; 5]> = usages.iter().map(cells).collect();
            terminal.answer(&table(["NETWORK", "RANGE", "SIZE", "USED", "FREE"], &rows))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn cells(usage: &Usage) -> [String; 5] {
    let number = |number: Option<u128>| or_dash(number.map(|n| n.to_string()).as_deref());
    let range = usage.range.map(|range| range.to_string());
    [
        usage.network.to_string(),
        or_dash(range.as_deref()),
        number(usage.size),
        usage.used.to_string(),
        number(usage.free),
    ]
}
