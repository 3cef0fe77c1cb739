//! Waits until nobody holds an address of a range any more.

use std::time::Duration;

use super::effect::FoldedPool;
use crate::inventory::Inventory;
use crate::{CliError, Context, Terminal};
use tokio::time::Instant;

use metes_core::pool::{PoolDefinition, PoolRecord, RangeState};
use metes_core::snapshot::Snapshot;
use metes_core::txn::{Found, List, Op, Txn};
use metes_engine::kv::{Failure, Kv};

/// The pause before it looks again.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
/// A line names so many holders.
const HOLDERS_SHOWN: i64 = 5;

/// Waits until nobody holds an address of the range of this text, whoever gave it; says how many are left each time
/// that changes. It ends before with an error, after the time of `--timeout`, or if somebody opens the range again.
pub(super) async fn wait_until_empty<K: Kv>(
    context: &Context<'_, K>,
    pool: &PoolDefinition,
    range: &str,
    terminal: &mut Terminal<'_>,
) -> Result<(), CliError> {
    let folded = FoldedPool::new(pool);
    let found = folded.ranges().find(|(written, _)| written.range.to_string() == range);
    let Some((written, addresses)) = found else {
        return Err(CliError::Refused(format!("pool {} has no range {range} any more", pool.pool)));
    };
    let keys = context.session.keys;
    let pool_key = keys.pool(&pool.pool);
    let reservation = |address| keys.ip(&pool.network, address);
    let end = [reservation(addresses.last()), vec![0]].concat();
    let list = List {
        start: reservation(addresses.first()),
        end,
        limit: HOLDERS_SHOWN,
        revision: 0,
        keys_only: false,
    };
    let look = Txn::read(vec![Op::Get(pool_key.clone()), Op::List(list)]);
    let goes_on = |failure| match failure {
        Failure::Unreachable(_) | Failure::Unknown(_) => Ok(format!("{failure}; it goes on")),
        failure => Err(CliError::store(format!("see who is left in {range}"))(failure)),
    };
    let mut said = String::new();
    let until = context.timeout.map(|timeout| Instant::now() + timeout);
    loop {
        let mut context = context.renewed();
        let session = &mut context.session;
        // The last look gets some time, too.
        session.until = until.map_or(session.until, |until| session.until.min(until + LOOK_PAUSE));
        let line = match session.txn(&look).await {
            Ok(reply) => {
                let mut seen = Snapshot::default();
                seen.absorb(&look.then, &reply);
                let stored = seen.record::<PoolRecord>(&pool_key).ok().flatten();
                let now = stored.and_then(|stored| {
                    stored.definition.ranges.into_iter().find(|range| range.range == written.range)
                });
                if now.is_some_and(|now| now.state == RangeState::Open) {
                    return Err(CliError::Refused(format!(
                        "range {range} of pool {} was opened again by somebody else meanwhile",
                        pool.pool
                    )));
                }
                match reply.found.get(1) {
                    Some(found) if found.count > 0 => {
                        left_words(&context, range, found).await.or_else(goes_on)?
                    }
                    _ => break,
                }
            }
            Err(failure) => goes_on(failure)?,
        };
        if line != said {
            terminal.tell(&line);
            said = line;
        }
        let next = Instant::now() + LOOK_PAUSE;
        match until {
            Some(until) if Instant::now() >= until => {
                let why = format!("the time of --timeout is over, and no new address of it is given: {said}");
                return Err(CliError::Refused(why));
            }
            until => tokio::time::sleep_until(until.map_or(next, |until| until.min(next))).await,
        }
    }
    terminal.answer(&format!("pool {}: nobody holds an address of {range}\n", pool.pool))
}

/// `3 addresses of 10.0.0.0/24 are held: 10.0.0.1 by ns/web-0 on n1, ...`
async fn left_words<K: Kv>(context: &Context<'_, K>, range: &str, found: &Found) -> Result<String, Failure> {
    let mut inventory = Inventory::default();
    found.entries.iter().for_each(|entry| inventory.see(context.session.keys, entry));
    let inventory = context.with_owners(inventory).await?;
    let holders = inventory.rows.iter().map(|row| {
        let pod = row.holder_words();
        if let (Some(words), true) = (&pod, row.is_set_aside()) {
            return format!("{} {words}", row.address);
        }
        let owner = row.owner().map_or_else(|| "somebody unknown".to_owned(), ToString::to_string);
        format!("{} by {}", row.address, pod.map(|pod| format!("{pod}, ")).unwrap_or_default() + &owner)
    });
    let named = holders.collect::<Vec<_>>().join("; ");
    let more = found.count - found.entries.len() as i64;
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    Ok(format!("held in {range}: {} ({named}{more})", found.count))
}
