//! `metes top`.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::filter::Filter;
use super::input::count;
use super::inventory::Row;
use super::list::AskedNames;
use super::output::ListOutput;
use super::table::{CellForm, Column, Listed, or_dash};
use super::{CliError, Context, Terminal};
use metes_core::pool::NetworkName;
use metes_engine::kv::Kv;

#[derive(Debug, Args)]
pub(super) struct TopArgs {
    /// Whose addresses are counted together
    #[arg(long, value_enum, default_value_t = Consumer::Namespace)]
    by: Consumer,
    /// Show only so many, those with the most addresses; the default is all
    #[arg(long = "most", value_name = "COUNT", allow_negative_numbers = true, value_parser = count)]
    most: Option<usize>,
    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    output: ListOutput,
}

/// The holders whose addresses are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Consumer {
    /// All pods of a namespace
    Namespace,
    /// A pod
    Pod,
    /// All containers of a node
    Node,
    /// All of a network
    Network,
}

/// Counts what each namespace, pod, node or network holds, the largest first.
pub(super) async fn top<K: Kv>(
    context: &Context<'_, K>,
    args: &TopArgs,
    terminal: &mut Terminal<'_>,
) -> Result<ExitCode, CliError> {
    let inventory = context.held(&args.filter).await.map_err(CliError::store("count who holds addresses"))?;
    let wanted = inventory.rows.iter().filter(|row| row.is_wanted(&args.filter));
    let mut counts = counts(wanted, args.by);
    if counts.is_empty() {
        let told = AskedNames::of(&args.filter).tell(context, &args.filter, &inventory, terminal).await;
        told.map_err(CliError::store("count who holds addresses"))?;
    }
    counts.truncate(args.most.unwrap_or(usize::MAX));
    let columns = [Column::new(args.by.header(), CellForm::Name), HELD];
    let ListOutput { format, no_headers, sort_by } = &args.output;
    // Each name of the first column means it, whatever is counted.
    let sort_by = sort_by
        .as_deref()
        .map(|field| if field.eq_ignore_ascii_case(HELD.header) { HELD.header } else { columns[0].header });
    let output = ListOutput { format: *format, no_headers: *no_headers, sort_by: sort_by.map(str::to_owned) };
    terminal.list(&columns, counts, &output)?;
    Ok(ExitCode::SUCCESS)
}

/// A consumer, and the number of its addresses.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct ConsumerCount {
    /// None for addresses of which it is not known, or that no container has.
    name: Option<String>,
    held: usize,
}

fn counts<'r>(rows: impl Iterator<Item = &'r Row>, by: Consumer) -> Vec<ConsumerCount> {
    let mut held: BTreeMap<Option<String>, usize> = BTreeMap::new();
    for row in rows {
        let pod = row.holder.as_ref().map(|holder| &holder.labels.pod).filter(|pod| !pod.name.is_empty());
        let name = match by {
            Consumer::Namespace => pod.map(|pod| pod.namespace.clone()),
            Consumer::Pod => pod.map(|pod| format!("{}/{}", pod.namespace, pod.name)),
            Consumer::Node => row.container().map(|owner| owner.node.to_string()),
            Consumer::Network => row.network.as_ref().map(NetworkName::to_string),
        };
        *held.entry(name).or_default() += 1;
    }
    let mut counts: Vec<_> = held.into_iter().map(|(name, held)| ConsumerCount { name, held }).collect();
    counts.sort_by_key(|count| Reverse(count.held));
    counts
}

const HELD: Column = Column::new("HELD", CellForm::Count);

/// The columns to sort consumers by: all headers that the first column may have, and its name in JSON.
pub(super) const SORTED_BY: [Column; 6] = [
    Column::new("NAME", CellForm::Name),
    Column::new("NAMESPACE", CellForm::Name),
    Column::new("POD", CellForm::Name),
    Column::new("NODE", CellForm::Name),
    Column::new("NETWORK", CellForm::Name),
    HELD,
];

impl Consumer {
    fn header(self) -> &'static str {
        match self {
            Consumer::Namespace => "NAMESPACE",
            Consumer::Pod => "POD",
            Consumer::Node => "NODE",
            Consumer::Network => "NETWORK",
        }
    }
}

impl Listed for ConsumerCount {
    fn cells(&self) -> Vec<String> {
        vec![self.name(), self.held.to_string()]
    }

    fn name(&self) -> String {
        or_dash(self.name.as_deref())
    }
}
