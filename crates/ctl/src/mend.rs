//! `metes check --mend`: mends what is damaged, each finding after a question of its own.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use super::keeper::Keeper;
use super::repair::{read, repair_all};
use super::{CliError, Context, Terminal};
use metes_audit::mend::{Mend, Mending, Mends, Related, look};
use metes_audit::{Finding, Kind, Report};
use metes_config::keys::did_you_mean;
use metes_core::keys::Bytes;
use metes_engine::kv::Kv;
use metes_node::node;

/// Why nothing is written.
pub(super) const WHILE_NOT_ALLOWED: &str =
    "a migration is under way, or this version of metes may not write to the store; `metes check` says which";
/// The most rounds: after each, it looks for findings that a mend has brought to light, or has made possible to mend.
const ROUNDS: usize = 64;
/// The most wrong letters in the name of a kind for which that kind is still suggested.
const KIND_TYPOS: usize = 6;

/// The findings that are to be mended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MendTarget {
    /// All violations.
    All,
    /// Those of a kind.
    Kind(Kind),
    /// Those about a key, as it is printed.
    Key(String),
}

impl fmt::Display for MendTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MendTarget::All => f.write_str("all"),
            MendTarget::Kind(kind) => kind.fmt(f),
            MendTarget::Key(key) => f.write_str(key),
        }
    }
}

pub(super) fn mend_target(text: &str) -> Result<MendTarget, String> {
    match text {
        "all" => Ok(MendTarget::All),
        key if key.starts_with('/') => Ok(MendTarget::Key(key.to_owned())),
        kind => named_kind(kind)
            .map(MendTarget::Kind)
            .map_err(|why| format!("it is not a key of etcd, which begins with /, and {why}")),
    }
}

pub(super) fn named_kind(text: &str) -> Result<Kind, String> {
    Kind::named(text).ok_or_else(|| {
        let known = Kind::ALL.map(Kind::name);
        let near = did_you_mean(text, &known, KIND_TYPOS);
        format!("there is no such kind{near}; `metes check --explain all` names them all")
    })
}

/// The request of a person.
pub(super) struct MendAsked<'a> {
    pub(super) target: &'a MendTarget,
    /// The file that keeps what is deleted and replaced.
    pub(super) backup: Option<&'a Path>,
    pub(super) yes: bool,
}

/// Mends the findings of the target, and audits again. Mends are reported in `notes`, everything else is told at once.
pub(super) async fn mend_all<K: Kv>(
    context: &Context<'_, K>,
    MendAsked { target, backup, yes }: MendAsked<'_>,
    mut report: Report,
    notes: &mut Vec<String>,
    terminal: &mut Terminal<'_>,
) -> Result<Report, CliError> {
    let mut mending = MendUnderWay {
        yes,
        keeper: Keeper::new(backup),
        has_found: false,
        settled: BTreeSet::new(),
        told: BTreeSet::new(),
        mended: 0,
        needs_repair: false,
    };
    for _ in 0..ROUNDS {
        let chosen = mending.chosen(&report, target);
        if chosen.is_empty() {
            break;
        }
        mending.has_found = true;
        let before = mending.mended;
        mending.round(context, &report, &chosen, notes, terminal).await?;
        report = if mending.needs_repair { repair_all(context, notes).await? } else { read(context).await? };
        if mending.mended == before {
            break;
        }
    }
    if *target == MendTarget::All && report.violations.iter().any(|found| found.kind == Kind::ForeignKey) {
        notes.push("`all` leaves foreign keys: `metes check --mend foreign-key` deletes them".to_owned());
    }
    notes.extend(mending.keeper.words());
    match target {
        _ if mending.has_found => {}
        MendTarget::All => notes.push("nothing to mend".to_owned()),
        MendTarget::Kind(kind) => notes.push(format!("nothing to mend: there is no {kind}")),
        MendTarget::Key(key) => {
            return Err(CliError::Refused(format!(
                "nothing was mended: metes check finds nothing wrong with {key}"
            )));
        }
    }
    Ok(report)
}

/// The result so far.
struct MendUnderWay {
    yes: bool,
    keeper: Keeper,
    has_found: bool,
    /// The mended keys, and those that may not be mended.
    settled: BTreeSet<(Kind, Bytes)>,
    /// The other messages so far, so that none is repeated. After a mend, their findings are looked at once more.
    told: BTreeSet<String>,
    mended: usize,
    /// True if something is left for a repair: what needs no question, or bits of what was mended.
    needs_repair: bool,
}

impl MendUnderWay {
    fn chosen(&self, report: &Report, target: &MendTarget) -> Vec<Finding> {
        let is_meant = |finding: &&Finding| match target {
            // A newer metes may have written it, so it must be asked for.
            MendTarget::All => finding.kind != Kind::ForeignKey,
            MendTarget::Kind(kind) => finding.kind == *kind,
            MendTarget::Key(key) => finding.key_text() == *key,
        };
        // What is harmless needs no mending, unless it is asked for.
        let harmless = report.harmless.iter().filter(|_| *target != MendTarget::All);
        let meant = report.violations.iter().chain(harmless).filter(is_meant);
        meant.filter(|finding| !self.settled.contains(&settled(finding))).cloned().collect()
    }

    /// Mends each of these, where somebody agrees.
    async fn round<K: Kv>(
        &mut self,
        context: &Context<'_, K>,
        report: &Report,
        chosen: &[Finding],
        notes: &mut Vec<String>,
        terminal: &mut Terminal<'_>,
    ) -> Result<(), CliError> {
        let session = context.renewed().session;
        let related = Related::read(session, &chosen.iter().collect::<Vec<_>>()).await;
        let related = related.map_err(CliError::store("read what is to be mended"))?;
        let now = node::timestamp();
        for finding in chosen {
            let Some(mends) = Mends::of(finding.kind, report, &related, &now) else {
                self.tell(finding, WHILE_NOT_ALLOWED, terminal);
                continue;
            };
            // How long a person thinks does not count.
            let session = context.renewed().session;
            let mending = look(session, mends, finding).await;
            match mending.map_err(CliError::store(format!("read what {} is about", finding.key_text())))? {
                Mending::Changed => {}
                Mending::ByRepair => self.needs_repair = true,
                Mending::Instead(what) => self.tell(finding, &what, terminal),
                Mending::Possible(mend) => {
                    if !self.is_agreed(finding, &mend, terminal) {
                        self.settled.insert(settled(finding));
                        continue;
                    }
                    self.keeper.keep(context.session.keys, report, &mend.kept, terminal)?;
                    let session = context.renewed().session;
                    let doing = || CliError::store(format!("mend {}", finding.key_text()));
                    match mend.carry_out(session, mends, finding).await.map_err(doing())? {
                        true => {
                            self.settled.insert(settled(finding));
                            self.mended += 1;
                            self.needs_repair = true;
                            notes.push(format!("mended {}: {}", finding.kind, finding.key_text()));
                            // All other plans of this round rely on meta as it was.
                            if finding.key == session.keys.meta() {
                                return Ok(());
                            }
                        }
                        false => terminal.tell(
                            "metes: nothing was written: something of it changed at the same time; run it again",
                        ),
                    }
                }
            }
        }
        Ok(())
    }

    /// Says once what is to be done about it elsewhere.
    fn tell(&mut self, finding: &Finding, instead: &str, terminal: &mut Terminal<'_>) {
        if self.told.insert(format!("{finding}: {instead}")) {
            terminal.tell(&finding.to_string());
            terminal.tell(&format!("  it is not mended here: {instead}"));
        }
    }

    /// Tells all of it, and asks.
    fn is_agreed(&self, finding: &Finding, mend: &Mend, terminal: &mut Terminal<'_>) -> bool {
        terminal.tell(&finding.to_string());
        mend.stands.iter().for_each(|line| terminal.tell(&format!("  there is: {line}")));
        mend.does.iter().for_each(|line| terminal.tell(&format!("  mending {line}")));
        mend.first.iter().for_each(|line| terminal.tell(&format!("  first: {line}")));
        let is_agreed = self.yes || (terminal.ask)("Mend it?");
        if !is_agreed {
            terminal.tell("metes: it was not mended: it was not confirmed (--yes skips the question)");
        }
        is_agreed
    }
}

fn settled(finding: &Finding) -> (Kind, Bytes) {
    (finding.kind, finding.key.clone())
}
