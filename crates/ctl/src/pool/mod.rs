//! `metes pool`: named pools, as an operator sees and changes them.
//!
//! - `text`: what an operator writes; `effect`, `words`: what a change does, in words; `from_nad`: the pools that the
//!   ranges of a network make. All pure.
//! - `change`: how a change is told, asked for and carried out.
//! - `show` (with list, status and export), `wait`, `which`: one verb each.
//!
//! Exit codes: 0 done, 1 refused or failed, 3 done, and addresses are held outside of the open ranges.

mod change;
mod effect;
mod from_nad;
mod held;
mod show;
pub(super) mod text;
mod wait;
mod which;
mod words;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::input::{answers_come_from_stdin, read_text};
use super::{CliError, Context, Terminal};
use change::{HowToChange, change};
use metes_core::limits;
use metes_core::plan::pool_change::{PoolIntent, StoredPools};
use metes_core::pool::{PoolDefinition, PoolName, PoolRange, RangeState};
use metes_engine::kv::Kv;
pub(super) use show::{LIST_COLUMNS, STATUS_COLUMNS};
use show::{PoolListArgs, PoolShowArgs, PoolStatusArgs};
use which::PoolWhichArgs;

/// Done, and addresses are held outside of the open ranges.
const HELD_OUTSIDE: u8 = 3;

pub(super) const POOL_AFTER_HELP: &str = "\
A pool as a file for `metes pool apply -f`:

  pool: storage
  network: storage            # no address is held twice in it; pools may share one
  ranges:
  - {range: 10.56.0.0/16, gateway: 10.56.255.254, exclude: [10.56.0.0/28]}
  - {range: 10.57.0.5-10.57.0.9/20, state: draining}     # open (default), draining or closed
  order: next                 # lowest, next or spread
  routes: [{dst: 10.0.0.0/8, gw: 10.56.255.254}]
  dns: {nameservers: [10.56.0.53], search: [storage.example]}
  allow: {clusters: [prod-1], namespaces: [\"team-*\"], nodes: [\"gpu-*\"]}
  for: {node_labels: {rack: \"7\"}}     # \"pool\": \"auto\" means this pool on such nodes
  priority: 10                # higher first; 0 if it is not given
  note: owner netops

Only `pool` and `ranges` are needed. A network uses it with `\"ipam\": {\"type\": \"metes\", \"pool\": \"storage\"}`.

Exit codes: 0 done, 1 refused or failed (nothing is written for what is refused), 2 wrong usage,
3 done, but somebody still holds addresses outside of the open ranges.";

#[derive(Debug, Subcommand)]
pub(super) enum PoolVerb {
    /// List the pools
    #[command(visible_aliases = ["ls", "get"])]
    List(PoolListArgs),
    /// Show one pool, and how much of each range is held
    Show(PoolShowArgs),
    /// Count how many addresses of each pool are held and free
    ///
    /// SIZE, HELD and FREE count the open ranges. DRAINING and CLOSED count what is still held in such
    /// ranges. OUTSIDE counts addresses of the pool that are in none of its ranges any more. COOLING counts
    /// addresses that were freed a short while ago, and so are not free. ASIDE counts the held addresses that
    /// are set aside.
    Status(PoolStatusArgs),
    /// Make or change the pools of a file
    ///
    /// Prints what changes, and who holds addresses outside of the open ranges after it. Asks, and
    /// writes each pool in one transaction. As soon as it has returned, no pod gets an address by the old
    /// text. Running pods keep their addresses. If a pool of the file is wrong, nothing is written.
    Apply(PoolApplyArgs),
    /// Print what `apply` would change
    Diff(PoolFileArgs),
    /// Give out no more addresses of a range that is to become empty; pods keep those that they have
    ///
    /// To pods, `drain` and `close` are the same. Drain a range that you give up, and wait until it is empty. Close one
    /// that is to stay unused: a pool can be deleted when all its ranges are closed.
    Drain(PoolDrainArgs),
    /// Give out no more addresses of a range, for good; pods keep those that they have
    ///
    /// To pods, it is the same as `drain`. A pool can be deleted when all its ranges are closed.
    Close(PoolRangeArgs),
    /// Give out addresses of a range again
    Open(PoolRangeArgs),
    /// Delete a pool of which all ranges are closed and no address is held
    Delete {
        /// The pool
        name: PoolName,
        /// Do not ask
        #[arg(short = 'y', long)]
        yes: bool,
    },
    /// Print pools as YAML that `apply` takes
    Export {
        /// Only this pool
        name: Option<PoolName>,
    },
    /// Make pools from the ranges of a NetworkAttachmentDefinition, and print them as YAML that `apply` takes
    ///
    /// It changes nothing and does not ask etcd. Apply the pools first, then the definition that
    /// --nad prints. Running pods keep their addresses. Stderr says what will be different.
    FromNad(PoolFromNadArgs),
    /// Say which pools `"pool": "auto"` chooses for a pod, and why
    ///
    /// A value that you do not give is unknown, as for the plugin if the runtime does not say it. Node,
    /// cluster and node labels come from the host file. With --node of another node, only the labels that you
    /// give are known. The exit code is 1 if there is no pool for the pod.
    Which(PoolWhichArgs),
}

/// The file with pools.
#[derive(Debug, Args)]
pub(super) struct PoolFileArgs {
    /// A file with pools in YAML or JSON; it may have several documents; - for stdin
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    file: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct PoolApplyArgs {
    #[command(flatten)]
    file: PoolFileArgs,
    /// Only print what would change
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(short = 'y', long)]
    yes: bool,
}

/// One range of a pool.
#[derive(Debug, Args)]
pub(super) struct PoolRangeArgs {
    /// The pool
    name: PoolName,
    /// The range, exactly as `metes pool show` prints it; not needed for the only one of its pool
    #[arg(long)]
    range: Option<String>,
    /// Do not ask
    #[arg(short = 'y', long)]
    yes: bool,
}

#[derive(Debug, Args)]
pub(super) struct PoolDrainArgs {
    #[command(flatten)]
    range: PoolRangeArgs,
    /// Wait until nobody holds an address of the range; each time the holders change, print who is left
    #[arg(long)]
    wait: bool,
}

#[derive(Debug, Args)]
pub(super) struct PoolFromNadArgs {
    /// The definition in YAML or JSON, as kubectl prints it, or a CNI configuration; - for stdin
    file: PathBuf,
    /// The name of the pool, or what its name begins with if there are several; without it, the
    /// definition's name
    #[arg(long, value_name = "POOL")]
    name: Option<PoolName>,
    /// Print the definition that uses the pools, not the pools
    #[arg(long)]
    nad: bool,
}

/// Carries out one verb of pools.
pub(super) async fn pool<K: Kv>(
    context: &Context<'_, K>,
    verb: &PoolVerb,
    terminal: &mut Terminal<'_>,
) -> Result<ExitCode, CliError> {
    match verb {
        PoolVerb::List(args) => show::list(context, args, terminal).await?,
        PoolVerb::Show(args) => show::show(context, args, terminal).await?,
        PoolVerb::Status(args) => show::status(context, args, terminal).await?,
        PoolVerb::Export { name } => show::export(context, name.as_ref(), terminal).await?,
        PoolVerb::FromNad(args) => from_nad(args, terminal)?,
        PoolVerb::Which(args) => return which::which(context, args, terminal).await,
        PoolVerb::Diff(file) => {
            let how = HowToChange { yes: false, dry_run: true };
            return apply(context, file, how, terminal).await;
        }
        PoolVerb::Apply(args) => {
            let how = HowToChange { yes: args.yes, dry_run: args.dry_run };
            return apply(context, &args.file, how, terminal).await;
        }
        PoolVerb::Drain(args) => {
            let code = set_state(context, &args.range, RangeState::Draining, terminal).await?;
            if !args.wait {
                return Ok(code);
            }
            let inventory = context.renewed().inventory("read the pool").await?;
            let Some(pool) = inventory.pools.get(&args.range.name) else {
                return Err(CliError::Refused(format!("pool {} was deleted meanwhile", args.range.name)));
            };
            let range = args.range.of(pool).map_err(CliError::Refused)?.range.to_string();
            wait::wait_until_empty(context, pool, &range, terminal).await?;
        }
        PoolVerb::Close(args) => return set_state(context, args, RangeState::Closed, terminal).await,
        PoolVerb::Open(args) => return set_state(context, args, RangeState::Open, terminal).await,
        PoolVerb::Delete { name, yes } => {
            let how = HowToChange { yes: *yes, dry_run: false };
            let wanting = |_: &StoredPools| Ok(vec![PoolIntent::Delete(name.clone())]);
            change(context, &wanting, how, terminal).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn apply<K: Kv>(
    context: &Context<'_, K>,
    file: &PoolFileArgs,
    how: HowToChange,
    terminal: &mut Terminal<'_>,
) -> Result<ExitCode, CliError> {
    if !how.yes && !how.dry_run {
        answers_come_from_stdin(&file.file, "nothing was changed", "the pools")?;
    }
    let (name, text) = read_text(&file.file, limits::INPUT_BYTES)?;
    let pools =
        text::parse(&name, &text).map_err(|why| CliError::Refused(format!("nothing was changed: {why}")))?;
    for pool in &pools {
        let tell = |(_, what)| terminal.tell(&format!("metes: pool {}: {what}", pool.pool));
        pool.needless_excludes().for_each(tell);
    }
    let wanting = |_: &StoredPools| Ok(pools.iter().cloned().map(PoolIntent::put).collect());
    Ok(exit_code(change(context, &wanting, how, terminal).await?))
}

fn from_nad(args: &PoolFromNadArgs, terminal: &mut Terminal<'_>) -> Result<(), CliError> {
    let (name, text) = read_text(&args.file, limits::INPUT_BYTES)?;
    let moved = from_nad::move_to_pools(&text, args.name.as_ref());
    let moved = moved.map_err(|why| CliError::Refused(format!("{name}: {why}")))?;
    moved.notes.iter().for_each(|note| terminal.tell(&format!("{name}: {note}")));
    terminal.answer(&if args.nad { moved.definition } else { moved.pools })
}

/// Sets the state of one range.
async fn set_state<K: Kv>(
    context: &Context<'_, K>,
    args: &PoolRangeArgs,
    state: RangeState,
    terminal: &mut Terminal<'_>,
) -> Result<ExitCode, CliError> {
    let wanting = |pools: &StoredPools| {
        let stored = pools.get(&args.name).ok_or_else(|| words::missing(&args.name, pools))?;
        let chosen = args.of(stored)?;
        let mut pool = stored.clone();
        pool.ranges.iter_mut().filter(|range| *range == chosen).for_each(|range| range.state = state);
        Ok(vec![PoolIntent::put(pool)])
    };
    let how = HowToChange { yes: args.yes, dry_run: false };
    Ok(exit_code(change(context, &wanting, how, terminal).await?))
}

impl PoolRangeArgs {
    /// The range of this pool that is meant.
    fn of<'p>(&self, pool: &'p PoolDefinition) -> Result<&'p PoolRange, String> {
        let name = &pool.pool;
        let ranges =
            || pool.ranges.iter().map(|range| range.range.to_string()).collect::<Vec<_>>().join(", ");
        match (&self.range, &pool.ranges[..]) {
            (None, [only]) => Ok(only),
            (None, _) => Err(format!("pool {name} has several ranges: say which with --range: {}", ranges())),
            (Some(wanted), all) => all
                .iter()
                .find(|range| range.range.to_string() == *wanted)
                .ok_or_else(|| format!("pool {name} has no range {wanted:?}: it has {}", ranges())),
        }
    }
}

fn exit_code(outside: usize) -> ExitCode {
    if outside == 0 { ExitCode::SUCCESS } else { ExitCode::from(HELD_OUTSIDE) }
}
