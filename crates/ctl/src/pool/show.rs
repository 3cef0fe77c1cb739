//! `metes pool list`, `show`, `status` and `export`.

use clap::Args;
use serde::Serialize;

use super::effect::FoldedPool;
use super::held::HeldOfPools;
use super::{text, words};
use crate::output::{ListOutput, Output};
use crate::table::{CellForm, Column, Listed, or_dash, printable, table};
use crate::{CliError, Context, Terminal};
use metes_core::plan::pool_change::StoredPools;
use metes_core::pool::{NetworkName, Order, PoolDefinition, PoolName, PoolRange, RangeCounts, RangeState};
use metes_engine::kv::Kv;
use metes_engine::walk::walk;

#[derive(Debug, Args)]
pub(crate) struct PoolListArgs {
    /// Only pools of this network
    #[arg(long, value_parser = NetworkName::stored)]
    network: Option<NetworkName>,
    #[command(flatten)]
    output: ListOutput,
}

#[derive(Debug, Args)]
pub(crate) struct PoolShowArgs {
    /// The pool
    name: PoolName,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct PoolStatusArgs {
    /// Only this pool
    name: Option<PoolName>,
    /// Only pools of this network
    #[arg(long, value_parser = NetworkName::stored)]
    network: Option<NetworkName>,
    #[command(flatten)]
    output: ListOutput,
}

/// Lists the pools.
pub(super) async fn list<K: Kv>(
    context: &Context<'_, K>,
    args: &PoolListArgs,
    terminal: &mut Terminal<'_>,
) -> Result<(), CliError> {
    let pools = read(context, terminal).await?;
    let keys = context.session.keys;
    let rows = pools.iter().filter(|pool| is_of(pool, args.network.as_ref()));
    let rows: Vec<_> = rows.map(|pool| ListedPool::new(pool, pools.revision_of(keys, &pool.pool))).collect();
    tell_none(rows.is_empty(), args.network.as_ref(), terminal);
    terminal.list(&LIST_COLUMNS, rows, &args.output)
}

fn tell_none(is_empty: bool, network: Option<&NetworkName>, terminal: &mut Terminal<'_>) {
    if let (true, Some(network)) = (is_empty, network) {
        terminal.tell(&format!("metes: no pool has network {network}; metes pool list shows all"));
    }
}

fn is_of(pool: &PoolDefinition, network: Option<&NetworkName>) -> bool {
    network.is_none_or(|network| pool.network == *network)
}

/// Prints pools as documents that `apply` takes.
pub(super) async fn export<K: Kv>(
    context: &Context<'_, K>,
    name: Option<&PoolName>,
    terminal: &mut Terminal<'_>,
) -> Result<(), CliError> {
    let pools = read(context, terminal).await?;
    terminal.answer(&text::export(chosen(&pools, name)?))
}

/// Shows one pool with all that it says, and how much of it is held. `apply` takes what it prints as JSON or YAML.
pub(super) async fn show<K: Kv>(
    context: &Context<'_, K>,
    args: &PoolShowArgs,
    terminal: &mut Terminal<'_>,
) -> Result<(), CliError> {
    let inventory = context.inventory("read the pool").await?;
    let pools = &inventory.pools;
    tell_bad(pools, terminal);
    let pool = pools.get(&args.name).ok_or_else(|| missing(&args.name, pools))?;
    let shown = ShownPool::new(
        pool,
        pools.revision_of(context.session.keys, &pool.pool),
        &HeldOfPools::new(&inventory),
    );
    terminal.document(&shown, args.output.format, || shown.words())
}

/// Counts what is held of each pool, or of one.
pub(super) async fn status<K: Kv>(
    context: &Context<'_, K>,
    args: &PoolStatusArgs,
    terminal: &mut Terminal<'_>,
) -> Result<(), CliError> {
    let inventory = context.inventory("count what is held of the pools").await?;
    tell_bad(&inventory.pools, terminal);
    let pools = chosen(&inventory.pools, args.name.as_ref())?;
    let pools = pools.into_iter().filter(|pool| is_of(pool, args.network.as_ref()));
    let held = HeldOfPools::new(&inventory);
    let rows: Vec<_> = pools.map(|pool| PoolUse::new(pool, &held)).collect();
    tell_none(rows.is_empty(), args.network.as_ref(), terminal);
    terminal.list(&STATUS_COLUMNS, rows, &args.output)
}

fn missing(name: &PoolName, pools: &StoredPools) -> CliError {
    CliError::Refused(words::missing(name, pools))
}

pub(super) async fn read<K: Kv>(
    context: &Context<'_, K>,
    terminal: &mut Terminal<'_>,
) -> Result<StoredPools, CliError> {
    let keys = context.session.keys;
    let see = |pools: &mut StoredPools, entry| pools.see(keys, &entry);
    let walked = walk(context.session, &keys.pools_and_changes(), StoredPools::default, see).await;
    let (pools, _) = walked.map_err(CliError::store("read the pools"))?;
    tell_bad(&pools, terminal);
    Ok(pools)
}

fn tell_bad(pools: &StoredPools, terminal: &mut Terminal<'_>) {
    pools.bad().iter().for_each(|bad| terminal.tell_damaged(bad));
}

/// The pool of this name, or all.
fn chosen<'p>(pools: &'p StoredPools, name: Option<&PoolName>) -> Result<Vec<&'p PoolDefinition>, CliError> {
    match name {
        None => Ok(pools.iter().collect()),
        Some(name) => Ok(vec![pools.get(name).ok_or_else(|| missing(name, pools))?]),
    }
}

/// A pool in a list.
#[derive(Serialize)]
struct ListedPool<'a> {
    pool: &'a PoolName,
    network: &'a NetworkName,
    ranges: usize,
    /// The number of addresses of its open ranges.
    size: u128,
    #[serde(serialize_with = "as_text")]
    order: Order,
    note: &'a str,
    revision: i64,
}

fn as_text<T: std::fmt::Display, S: serde::Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

impl<'a> ListedPool<'a> {
    fn new(pool: &'a PoolDefinition, revision: i64) -> Self {
        let open = pool.open_ranges(&[]).unwrap_or_default();
        Self {
            pool: &pool.pool,
            network: &pool.network,
            ranges: pool.ranges.len(),
            size: open.iter().fold(0, |sum: u128, range| sum.saturating_add(range.size())),
            order: pool.order(),
            note: &pool.note,
            revision,
        }
    }
}

/// The columns of a list of pools.
pub(crate) const LIST_COLUMNS: [Column; 6] = [
    Column::new("POOL", CellForm::Name),
    Column::new("NETWORK", CellForm::Name),
    Column::new("RANGES", CellForm::Whole),
    Column::new("SIZE", CellForm::Count),
    Column::new("ORDER", CellForm::Whole).spare(1),
    Column::new("NOTE", CellForm::Text),
];

impl Listed for ListedPool<'_> {
    fn cells(&self) -> Vec<String> {
        vec![
            self.pool.to_string(),
            self.network.to_string(),
            self.ranges.to_string(),
            self.size.to_string(),
            self.order.to_string(),
            or_dash(Some(self.note)),
        ]
    }

    fn name(&self) -> String {
        self.pool.to_string()
    }
}

/// A pool as `apply` takes it, and what `apply` ignores: its status.
#[derive(Serialize)]
struct ShownPool<'a> {
    #[serde(flatten)]
    pool: &'a PoolDefinition,
    status: ShownStatus,
}

#[derive(Serialize)]
struct ShownStatus {
    revision: i64,
    /// The number of addresses that were taken from it and lie in none of its ranges.
    outside: usize,
    /// In the order of the pool's own.
    ranges: Vec<ShownRange>,
}

#[derive(Serialize)]
struct ShownRange {
    range: String,
    #[serde(flatten)]
    counts: RangeCounts,
}

impl<'a> ShownPool<'a> {
    fn new(pool: &'a PoolDefinition, revision: i64, held: &HeldOfPools<'_>) -> Self {
        let folded = FoldedPool::new(pool);
        let range = |(written, range): (&PoolRange, &_)| ShownRange {
            range: written.range.to_string(),
            counts: held.inventory.counts(range),
        };
        let ranges = folded.ranges().map(range).collect();
        Self { pool, status: ShownStatus { revision, outside: folded.outside_of_all(held), ranges } }
    }

    fn words(&self) -> String {
        let Self { pool, status } = self;
        let lines = [
            ("pool", pool.pool.to_string()),
            ("network", pool.network.to_string()),
            ("revision", status.revision.to_string()),
            ("order", pool.order().to_string()),
            ("cooldown", words::cooldown(pool)),
            ("keep", words::keep(pool)),
            ("routes", words::routes(pool)),
            ("dns", words::dns(pool)),
            ("allow", words::allow(pool)),
            ("for", words::chosen_for(pool)),
            ("priority", pool.priority.to_string()),
            ("note", words::note(pool)),
            ("outside", status.outside.to_string()),
        ];
        let line =
            |(name, value): (&str, String)| format!("{:<10}{}\n", format!("{name}:"), printable(&value));
        let head: String = lines.into_iter().map(line).collect();
        let cells = |(shown, written): (&ShownRange, &PoolRange)| {
            let RangeCounts { size, held, free, set_aside, cooling } = shown.counts;
            [
                shown.range.clone(),
                written.state.name().to_owned(),
                or_dash(written.gateway.map(|gateway| gateway.to_string()).as_deref()),
                size.to_string(),
                held.to_string(),
                free.to_string(),
                set_aside.to_string(),
                cooling.to_string(),
                words::exclude(written),
            ]
        };
        let rows: Vec<[String; 9]> = status.ranges.iter().zip(&pool.ranges).map(cells).collect();
        head + &table(
            ["RANGE", "STATE", "GATEWAY", "SIZE", "HELD", "FREE", "ASIDE", "COOLING", "EXCLUDE"],
            &rows,
        )
    }
}

/// The use of a pool.
#[derive(Serialize)]
struct PoolUse<'a> {
    pool: &'a PoolName,
    network: &'a NetworkName,
    /// Of its open ranges, as `held` and `free`.
    size: u128,
    held: usize,
    free: u128,
    /// Held in draining ranges.
    draining: usize,
    /// Held in closed ranges.
    closed: usize,
    /// Taken from this pool, and in none of its ranges.
    outside: usize,
    /// Set aside, among those that are held in its ranges.
    set_aside: usize,
    /// Cooling in its ranges, and not free.
    cooling: usize,
}

impl<'a> PoolUse<'a> {
    fn new(pool: &'a PoolDefinition, held: &HeldOfPools<'_>) -> Self {
        let folded = FoldedPool::new(pool);
        let counted = folded.ranges().map(|(written, range)| (written.state, held.inventory.counts(range)));
        let all: Vec<(RangeState, RangeCounts)> = counted.collect();
        let of = |state| all.iter().filter(move |(of, _)| *of == state).map(|(_, counts)| counts);
        let held_in = |state| of(state).map(|counts| counts.held).sum();
        let sum =
            |number: fn(&RangeCounts) -> u128| of(RangeState::Open).map(number).fold(0, u128::saturating_add);
        Self {
            pool: &pool.pool,
            network: &pool.network,
            size: sum(|counts| counts.size),
            held: held_in(RangeState::Open),
            free: sum(|counts| counts.free),
            draining: held_in(RangeState::Draining),
            closed: held_in(RangeState::Closed),
            outside: folded.outside_of_all(held),
            set_aside: all.iter().map(|(_, counts)| counts.set_aside).sum(),
            cooling: all.iter().map(|(_, counts)| counts.cooling).sum(),
        }
    }
}

/// The columns of what is used of pools.
pub(crate) const STATUS_COLUMNS: [Column; 10] = [
    Column::new("POOL", CellForm::Name),
    Column::new("NETWORK", CellForm::Name),
    Column::new("SIZE", CellForm::Count),
    Column::new("HELD", CellForm::Count),
    Column::new("FREE", CellForm::Count),
    Column::new("DRAINING", CellForm::Whole).spare(1),
    Column::new("CLOSED", CellForm::Whole).spare(2),
    Column::new("OUTSIDE", CellForm::Whole).spare(3),
    Column::new("ASIDE", CellForm::Whole).spare(4),
    Column::new("COOLING", CellForm::Whole).spare(5),
];

impl Listed for PoolUse<'_> {
    fn cells(&self) -> Vec<String> {
        vec![
            self.pool.to_string(),
            self.network.to_string(),
            self.size.to_string(),
            self.held.to_string(),
            self.free.to_string(),
            self.draining.to_string(),
            self.closed.to_string(),
            self.outside.to_string(),
            self.set_aside.to_string(),
            self.cooling.to_string(),
        ]
    }

    fn name(&self) -> String {
        self.pool.to_string()
    }
}
