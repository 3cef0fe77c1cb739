//! `metes check --restore`: puts back what a mend deleted or replaced, each owner after a question of its own.

use std::path::Path;

use super::input::{answers_come_from_stdin, read_text};
use super::keeper::store_id;
use super::mend::WHILE_NOT_ALLOWED;
use super::{CliError, Context, Terminal};
use metes_audit::Report;
use metes_audit::mend::kept::{KeptGroup, groups};
use metes_audit::mend::restore::{Restore, Restores, Restoring, look};
use metes_core::limits;
use metes_core::pool::{Owner, OwnerKind};
use metes_engine::kv::Kv;
use metes_node::node;

const FIRST: &str = "make sure that the container still runs: what is put back is held for it";

/// Puts the records of the file back. Writes are reported in `notes`, everything else is told at once. Returns true if
/// all of the records stand afterwards.
pub(super) async fn restore_all<K: Kv>(
    context: &Context<'_, K>,
    (file, yes): (&Path, bool),
    report: &Report,
    notes: &mut Vec<String>,
    terminal: &mut Terminal<'_>,
) -> Result<bool, CliError> {
    if !yes {
        answers_come_from_stdin(file, "nothing was put back", "the file")?;
    }
    let (name, text) = read_text(file, limits::RESTORED_BYTES)?;
    let groups = groups(&text, context.session.keys, store_id(report));
    let groups = groups
        .map_err(|bad| CliError::Refused(format!("nothing was put back: {name} is not used: {bad}")))?;
    let now = node::timestamp();
    let Some(restores) = Restores::of(report, &now) else {
        return Err(CliError::Refused(format!("nothing was put back: {WHILE_NOT_ALLOWED}")));
    };
    let mut is_whole = true;
    for group in &groups {
        let session = context.renewed().session;
        let restoring = look(session, restores, group).await;
        let doing = || CliError::store(format!("put back {}", words(group)));
        match restoring.map_err(doing())? {
            Restoring::Stands => notes.push(format!("{} is there as it was", words(group))),
            Restoring::Needless(why) => {
                notes.push(format!("{} need not be put back: {}", words(group), why.join("; ")));
            }
            Restoring::Refused(why) => {
                is_whole = false;
                terminal.tell(&format!("metes: {} is not put back: {}", words(group), why.join("; ")));
            }
            Restoring::Possible(restore) => {
                let is_done = is_agreed(group, &restore, yes, terminal)
                    && {
                        let session = context.renewed().session;
                        let is_done = restore.carry_out(session, restores, group).await.map_err(doing())?;
                        if !is_done {
                            terminal.tell(
                            "metes: nothing was written: something of it changed at the same time; run it again",
                        );
                        }
                        is_done
                    };
                is_whole &= is_done;
                notes.extend(is_done.then(|| format!("put back {}", words(group))));
            }
        }
    }
    Ok(is_whole)
}

/// Tells all of it, and asks.
fn is_agreed(group: &KeptGroup, restore: &Restore, yes: bool, terminal: &mut Terminal<'_>) -> bool {
    terminal.tell(&words(group));
    restore.does.iter().for_each(|line| terminal.tell(&format!("  restoring {line}")));
    restore.leaves.iter().for_each(|line| terminal.tell(&format!("  it is not put back: {line}")));
    match group.owner.as_ref().map(Owner::kind) {
        Some(OwnerKind::Container(_) | OwnerKind::Unknown) => terminal.tell(&format!("  first: {FIRST}")),
        Some(OwnerKind::Aside(..) | OwnerKind::Subject(_)) | None => {}
    }
    let is_agreed = yes || (terminal.ask)("Put it back?");
    if !is_agreed {
        terminal.tell("metes: it was not put back: it was not confirmed (--yes skips the question)");
    }
    is_agreed
}

/// The group's owner, or else its keys.
fn words(group: &KeptGroup) -> String {
    let key = || group.entries.iter().map(|entry| String::from_utf8_lossy(&entry.key).into_owned()).collect();
    group.owner.as_ref().map_or_else(key, ToString::to_string)
}
