//! Changes of pools: told, asked for, and carried out in one transaction each.

use super::effect::{PoolEffect, held};
use super::held::HeldOfPools;
use super::words;
use crate::{CliError, Context, Terminal};
use metes_core::limits;
use metes_core::plan::pool_change::{PoolChangeRefused, PoolIntent, StoredPools};
use metes_engine::kv::{Failure, Kv};
use metes_engine::random::random_pause;

/// The most times that a change is judged. It is judged anew if another change came first, or if etcd did not answer.
const TRIES: usize = 5;

/// The way in which a change is carried out.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct HowToChange {
    /// Without asking.
    pub(super) yes: bool,
    /// Only tell what would change.
    pub(super) dry_run: bool,
}

/// Makes the intents from the stored pools, or a sentence that says why the wish makes no sense.
pub(super) type Wanting<'a> = &'a dyn Fn(&StoredPools) -> Result<Vec<PoolIntent>, String>;

struct JudgedIntent {
    intent: PoolIntent,
    effect: PoolEffect,
    is_change: bool,
}

/// Carries out the intents; all of them are judged before the first one is written. Returns the number of addresses of
/// the pools that are held outside of the open ranges afterwards.
pub(super) async fn change<K: Kv>(
    context: &Context<'_, K>,
    wanting: Wanting<'_>,
    how: HowToChange,
    terminal: &mut Terminal<'_>,
) -> Result<usize, CliError> {
    let mut told: Option<Vec<String>> = None;
    let mut changing = ChangeUnderWay::default();
    for _ in 0..TRIES {
        let context = context.renewed();
        let mut inventory = context.inventory("read the pools").await?;
        let intents = wanting(&inventory.pools).map_err(CliError::Refused)?;
        let mut ahead = inventory.pools.clone();
        let lacks_store = ahead.lacks_store(context.session.keys);
        if lacks_store {
            ahead.assume_founded(context.session.keys);
        }
        let all_held = HeldOfPools::new(&inventory);
        let mut judged = Vec::new();
        for intent in intents {
            let effect = PoolEffect::of(&intent, &ahead, &all_held);
            let held = held(ahead.get(intent.pool()), &all_held);
            let is_change = match ahead.plan(context.session.keys, &intent, &held) {
                Ok(txn) => txn.is_some(),
                // It is gone by the request that was not answered.
                Err(PoolChangeRefused::Missing(_)) if changing.unanswered.is_some() => false,
                Err(PoolChangeRefused::Missing(name)) => {
                    return Err(CliError::Refused(words::missing(&name, &ahead)));
                }
                Err(why) => return Err(refused(&why)),
            };
            ahead.assume(&intent);
            judged.push(JudgedIntent { intent, effect, is_change });
        }
        changing.settle(&judged, terminal)?;
        let outside = || judged.iter().map(|judged| judged.effect.outside).sum();
        let effects: Vec<String> = judged.iter().map(|judged| judged.effect.words.clone()).collect();
        let is_any_change = judged.iter().any(|judged| judged.is_change);
        let mut changes = judged.iter().zip(&effects).enumerate().filter(|(_, (judged, _))| judged.is_change);
        let is_told = told.as_ref().is_some_and(|told| changes.all(|(at, (_, effect))| told[at] == *effect));
        if !is_told {
            terminal.answer(&effects.concat())?;
        }
        if how.dry_run || (!is_any_change && !changing.has_written) {
            return Ok(outside());
        }
        if is_any_change {
            const UNDONE: &str = "nothing was changed";
            _ = context.must_know_store(UNDONE).await?;
            terminal.confirm(how.yes || is_told, "Apply these changes?", UNDONE)?;
            if lacks_store {
                context.renewed().must_have_store(UNDONE).await?;
                told = Some(effects);
                continue;
            }
        }
        told = Some(effects);
        // How long a person thinks does not count.
        let context = context.renewed();
        let held = |intent: &PoolIntent| held(inventory.pools.get(intent.pool()), &all_held);
        let planned: Vec<_> = judged
            .iter()
            .filter(|judged| judged.is_change)
            .map(|judged| (&judged.intent, held(&judged.intent)))
            .collect();
        let mut is_done = true;
        for (intent, held) in planned {
            let plan = inventory.pools.plan(context.session.keys, intent, &held);
            let Some(txn) = plan.map_err(|why| refused(&why))? else { continue };
            match context.session.txn(&txn).await {
                Ok(reply) if reply.succeeded => {
                    inventory.pools.applied(intent, &txn, &reply);
                    changing.written(intent, terminal)?;
                    continue;
                }
                Ok(_) => {}
                Err(failure) if failure.is_open() => {
                    changing.unanswered = Some((intent.clone(), failure));
                    tokio::time::sleep(random_pause(limits::RETRY_PAUSE)).await;
                }
                Err(failure) => return Err(failed(intent, failure)),
            }
            is_done = false;
            break;
        }
        if is_done {
            context.remember_store().await;
            return left_outside(&context, wanting).await;
        }
    }
    match changing.unanswered {
        Some((intent, failure)) => Err(failed(&intent, failure)),
        None => Err(CliError::Refused(format!(
            "others changed pools at the same time, {TRIES} times: try again when they have finished"
        ))),
    }
}

/// The result of a change so far.
#[derive(Default)]
struct ChangeUnderWay {
    has_written: bool,
    /// The change that was sent last and not answered.
    unanswered: Option<(PoolIntent, Failure)>,
}

impl ChangeUnderWay {
    fn written(&mut self, intent: &PoolIntent, terminal: &mut Terminal<'_>) -> Result<(), CliError> {
        self.has_written = true;
        terminal.answer(&match intent {
            PoolIntent::Put(definition) => format!("pool {}: applied\n", definition.pool),
            PoolIntent::Delete(name) => format!("pool {name}: deleted\n"),
        })
    }

    /// Tells that the request without an answer was carried out, if it was. If it was not, it is sent anew. A late copy
    /// is refused then, because both compare `v1/pools`.
    fn settle(&mut self, judged: &[JudgedIntent], terminal: &mut Terminal<'_>) -> Result<(), CliError> {
        let Some((sent, _)) = &self.unanswered else { return Ok(()) };
        let is_as_sent = judged.iter().any(|judged| !judged.is_change && judged.intent == *sent);
        if is_as_sent && let Some((sent, _)) = self.unanswered.take() {
            self.written(&sent, terminal)?;
        }
        Ok(())
    }
}

/// Once a change is applied, no ADD that planned on the old text can commit. So this reading is exact.
async fn left_outside<K: Kv>(context: &Context<'_, K>, wanting: Wanting<'_>) -> Result<usize, CliError> {
    let inventory = context.inventory("read who holds addresses of the pools").await?;
    let intents = wanting(&inventory.pools).unwrap_or_default();
    let all_held = HeldOfPools::new(&inventory);
    let outside = |intent: &PoolIntent| PoolEffect::of(intent, &inventory.pools, &all_held).outside;
    Ok(intents.iter().map(outside).sum())
}

fn refused(why: &PoolChangeRefused) -> CliError {
    CliError::Refused(format!("nothing was changed: {why}"))
}

fn failed(intent: &PoolIntent, failure: Failure) -> CliError {
    CliError::store(format!("change pool {}", intent.pool()))(failure)
}
