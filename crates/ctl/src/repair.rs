//! Audits the tree, and repairs what needs no question: for `metes check` and its `--mend`.

use super::{CliError, Context};
use metes_audit::repair::{Repaired, repair};
use metes_audit::{Report, audit};
use metes_engine::kv::Kv;

/// A repair looks so often again for changes made meanwhile.
const REPAIR_ROUNDS: usize = 4;

/// Audits what is stored, in a time of its own.
pub(super) async fn read<K: Kv>(context: &Context<'_, K>) -> Result<Report, CliError> {
    audit(context.renewed().session).await.map_err(CliError::store("check what is stored"))
}

/// Repairs what can be repaired and audits again, until nothing is left or rounds are used up.
pub(super) async fn repair_until_clean<K: Kv>(
    context: &Context<'_, K>,
    mut report: Report,
    notes: &mut Vec<String>,
) -> Result<(Report, Repaired), CliError> {
    let mut total = Repaired::default();
    for _ in 0..REPAIR_ROUNDS {
        if report.repairs.is_empty() {
            break;
        }
        if !report.repairs.allowed() {
            notes.push(
                "nothing is repaired while this version of metes may not write to the store".to_owned(),
            );
            break;
        }
        let repairs = std::mem::take(&mut report.repairs);
        let repaired = repair(context.renewed().session, repairs).await;
        total = total.and(repaired.map_err(CliError::store("repair what is stored"))?);
        report = read(context).await?;
    }
    Ok((report, total))
}

/// Audits again, and repairs what a mend has left to it.
pub(super) async fn repair_all<K: Kv>(
    context: &Context<'_, K>,
    notes: &mut Vec<String>,
) -> Result<Report, CliError> {
    let report = read(context).await?;
    let (report, repaired) = repair_until_clean(context, report, notes).await?;
    if repaired != Repaired::default() {
        notes.push(repaired_words(repaired));
    }
    Ok(report)
}

pub(super) fn repaired_words(repaired: Repaired) -> String {
    if repaired == Repaired::default() {
        return "nothing to repair".to_owned();
    }
    let Repaired { cleared, set, summaries, deleted, lost, .. } = repaired;
    let mut words = format!(
        "repaired: stray bits cleared: {cleared}, bits of reservations set: {set}, bits of summaries \
         corrected: {summaries}, stale keys deleted: {deleted}"
    );
    if lost > 0 {
        words.push_str(&format!("; changed meanwhile and left as it was: {lost}"));
    }
    words
}
