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

use std::process::ExitCode;

use super::args::{PoolArgs, PoolFileArgs, PoolFromNadArgs, PoolRangeArgs, PoolVerb};
use super::input::{answers_come_from_stdin, read_text};
use super::{CliError, Context, Terminal};
use crate::limits;
use crate::pool::definition::{PoolDefinition, RangeState};
use crate::store::kv::Kv;
use crate::store::pool_change::{PoolIntent, StoredPools};
use change::{HowToChange, change};
pub(super) use show::{LIST_COLUMNS, STATUS_COLUMNS};

/// Done, and addresses are held outside of the open ranges.
const HELD_OUTSIDE: u8 = 3;

/// Carries out one verb of pools.
pub(super) async fn pool<K: Kv>(
    context: &Context<'_, K>,
    args: &PoolArgs,
    terminal: &mut Terminal<'_>,
) -> Result<ExitCode, CliError> {
    match &args.verb {
        PoolVerb::List(args) => show::list(context, args, terminal).await?,
        PoolVerb::Show(args) => show::show(context, args, terminal).await?,
        PoolVerb::Status(args) => show::status(context, args, terminal).await?,
        PoolVerb::Export(args) => show::export(context, args.name.as_ref(), terminal).await?,
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
            wait::wait_until_empty(context, pool, &args.range.range, terminal).await?;
        }
        PoolVerb::Close(args) => return set_state(context, args, RangeState::Closed, terminal).await,
        PoolVerb::Open(args) => return set_state(context, args, RangeState::Open, terminal).await,
        PoolVerb::Delete(args) => {
            let how = HowToChange { yes: args.yes, dry_run: false };
            let wanting = |_: &StoredPools| Ok(vec![PoolIntent::Delete(args.name.clone())]);
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
        let mut pool = stored.clone();
        let Some(range) = pool.ranges.iter_mut().find(|range| range.range.to_string() == args.range) else {
            return Err(no_such_range(stored, &args.range));
        };
        range.state = state;
        Ok(vec![PoolIntent::put(pool)])
    };
    let how = HowToChange { yes: args.yes, dry_run: false };
    Ok(exit_code(change(context, &wanting, how, terminal).await?))
}

fn no_such_range(pool: &PoolDefinition, range: &str) -> String {
    let ranges: Vec<String> = pool.ranges.iter().map(|range| range.range.to_string()).collect();
    format!("pool {} has no range {range:?}: it has {}", pool.pool, ranges.join(", "))
}

fn exit_code(outside: usize) -> ExitCode {
    if outside == 0 { ExitCode::SUCCESS } else { ExitCode::from(HELD_OUTSIDE) }
}
