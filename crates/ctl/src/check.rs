//! `metes check`.

use std::borrow::Cow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use clap::Args;
use serde::Serialize;

use super::mend::{MendAsked, MendTarget, mend_all, mend_target, named_kind};
use super::output::Output;
use super::repair::{read, repair_until_clean, repaired_words};
use super::restore::restore_all;
use super::table::{Screen, many, printable};
use super::{CliError, Context, Terminal, no_store};
use metes_audit::accept::{Accepted, accept};
use metes_audit::pause::{self, Ended};
use metes_audit::{Counts, Explanation, Finding, Kind, MetaState, Report};
use metes_core::known::HighWater;
use metes_engine::kv::Kv;
use metes_engine::session::Session;

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("asks").multiple(true).args(["accept_store", "resume", "mend", "restore"]))]
pub(super) struct CheckArgs {
    /// Say what a kind of violation means and what to do; `all` for all kinds
    #[arg(long, value_name = "KIND", value_parser = kinds, conflicts_with_all = ["repair", "asks"])]
    pub(super) explain: Option<Explained>,
    /// Repair bits that do not match the reservations, and delete tombstones and tickets in queues
    /// that no lease would ever remove; never touches what cannot be decoded
    #[arg(long)]
    repair: bool,
    /// Mend what a repair does not touch: all findings of a kind, the one with this key, or `all`. Says for each what
    /// is there and what would be done, and asks first. May free what a container had
    #[arg(long, value_name = "KIND|KEY|all", value_parser = mend_target)]
    mend: Option<MendTarget>,
    /// The file that keeps what --mend deletes and replaces. It must not exist. The default is one in the current
    /// folder that is named after the time
    #[arg(long, value_name = "FILE", requires = "mend")]
    backup: Option<PathBuf>,
    /// Put back what a --mend deleted or replaced, by the file that keeps it: all that an owner had, where nothing
    /// stands there since. Asks first
    #[arg(long, value_name = "FILE", conflicts_with = "mend")]
    restore: Option<PathBuf>,
    /// Take a store into service again that was restored from a backup, with what it holds; asks first
    #[arg(long)]
    accept_store: bool,
    /// End the pause of a migration that will not be finished, so that ADD gives out addresses again;
    /// asks first. Works without Kubernetes, and from every cluster that shares the store
    #[arg(long)]
    resume: bool,
    /// Do not ask
    #[arg(short = 'y', long, requires = "asks")]
    yes: bool,
    #[command(flatten)]
    output: Output,
}

/// The kinds of findings that are to be explained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Explained(pub(super) Vec<Kind>);

fn kinds(text: &str) -> Result<Explained, String> {
    if text == "all" {
        return Ok(Explained(Kind::ALL.to_vec()));
    }
    named_kind(text).map(|kind| Explained(vec![kind]))
}

/// Audits the tree; before that, ends a pause, accepts the store or repairs the tree where that was asked.
pub(super) async fn check<K: Kv>(
    context: &Context<'_, K>,
    args: &CheckArgs,
    terminal: &mut Terminal<'_>,
) -> Result<ExitCode, CliError> {
    let mut notes = Vec::new();
    let too_old = etcd_too_old(context.session, &mut notes).await;
    let mut report = read(context).await?;
    if args.resume {
        confirm_end_of_pause(&report, args.yes, terminal)?;
        notes.push(resume(context.renewed().session, &report).await?);
        report = read(context).await?;
    }
    if args.accept_store {
        // Before anybody is asked: it is this store that is meant, and no other one of the list.
        _ = context.must_agree("the store was not accepted").await?;
        confirm_acceptance(context, &report, args.yes, terminal)?;
        notes.push(accept_store(&context.renewed(), &report).await?);
        report = read(context).await?;
    }
    if args.repair {
        let repaired;
        (report, repaired) = repair_until_clean(context, report, &mut notes).await?;
        notes.push(repaired_words(repaired));
    }
    if let Some(target) = &args.mend {
        let asked = MendAsked { target, backup: args.backup.as_deref(), yes: args.yes };
        report = mend_all(context, asked, report, &mut notes, terminal).await?;
    }
    let mut is_whole = true;
    if let Some(file) = &args.restore {
        is_whole = restore_all(context, (file, args.yes), &report, &mut notes, terminal).await?;
        report = read(context).await?;
    }
    if let Some(known) = context.known() {
        let another = forgotten(context, &known, &report).await?;
        report.violations.extend(another);
    }
    report.violations.extend(too_old);
    let pause = Pause::of(&report);
    notes.extend(pause.as_ref().map(|pause| format!("{}; metes check --resume ends it", pause.words())));
    let answer = Answer::new(&report, pause.as_ref(), &notes);
    let screen = terminal.screen;
    terminal.document(&answer, args.output.format, || text(&report, &notes, screen))?;
    Ok(if report.violations.is_empty() && is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the meaning and the remedy of each of these kinds of findings.
pub(super) fn explain(Explained(kinds): &Explained) -> String {
    let words = |kind: &Kind| {
        let Explanation { meaning, remedy } = kind.explain();
        format!("{kind}\n  {meaning}\n  {remedy}\n")
    };
    kinds.iter().map(words).collect::<Vec<_>>().join("\n")
}

/// The violation of an etcd that is too old. A version that cannot be asked for is only noted:
/// etcd may keep it from users without the right to see it.
async fn etcd_too_old<K: Kv>(session: Session<'_, K>, notes: &mut Vec<String>) -> Option<Finding> {
    match session.kv.about(session.until).await {
        Ok(about) => about.too_old().map(|what| Finding::new(Kind::EtcdTooOld, b"etcd", what)),
        Err(failure) => {
            notes.push(format!("etcd's version is not known: {failure}"));
            None
        }
    }
}

async fn accept_store<K: Kv>(context: &Context<'_, K>, report: &Report) -> Result<String, CliError> {
    let (session, known) = (context.session, context.known());
    let accepted = accept(session, report, known.as_ref()).await;
    match accepted.map_err(|why| no_store(why, "the store may not be accepted"))? {
        Accepted::NotNeeded => Ok("the store is not suspect: there is nothing to accept".to_owned()),
        Accepted::Epoch(epoch) => Ok(format!("accepted the store: epoch {epoch} begins")),
        Accepted::Made(epoch) => {
            Ok(format!("accepted the store: its missing meta was made anew, epoch {epoch} begins"))
        }
        Accepted::Founded => Ok("began a new store: nothing was stored here".to_owned()),
        Accepted::Unreadable => Err(CliError::Refused(format!(
            "the store cannot be accepted: {} is not for this version of metes; metes check says more",
            String::from_utf8_lossy(&session.keys.meta())
        ))),
        Accepted::Changed => Err(CliError::Refused(
            "the store was not accepted: somebody else changed its meta at the same time; run it again"
                .to_owned(),
        )),
    }
}

/// The violation of a store that has forgotten what this node has seen of it, unless its meta says so already.
async fn forgotten<K: Kv>(
    context: &Context<'_, K>,
    known: &HighWater,
    report: &Report,
) -> Result<Option<Finding>, CliError> {
    let keys = context.session.keys;
    match &report.meta {
        MetaState::Unreadable => return Ok(None),
        MetaState::Known(meta, _) if meta.suspect.is_some() => return Ok(None),
        // Allocations without meta are a violation of their own.
        MetaState::Missing if report.lacks_meta() => return Ok(None),
        MetaState::Known(..) | MetaState::Missing => {}
    }
    let what = format!(
        "this node knows a store that was at revision {} of epoch {}, and this one went back, was emptied or is \
         another one: the next ADD here puts it under suspicion",
        known.revision, known.epoch
    );
    let (is_another, _) = context.renewed().compared(Some(known)).await?;
    Ok(is_another.then(|| Finding::new(Kind::Suspect, &keys.meta(), what)))
}

/// A migration that is under way.
#[derive(Serialize)]
struct Pause<'a> {
    /// Why ADD waits.
    why: &'a str,
    /// Since when, by the clock of whoever began it.
    since: Option<&'a str>,
}

impl<'a> Pause<'a> {
    fn of(report: &'a Report) -> Option<Self> {
        let MetaState::Known(meta, _) = &report.meta else { return None };
        Some(Self { why: meta.paused.as_deref()?, since: meta.paused_since.as_deref() })
    }

    fn words(&self) -> String {
        let Self { why, since } = self;
        let Some(since) = since else { return format!("a migration is under way: {why}") };
        let age = age(since, SystemTime::now()).map(|age| format!(", {age} ago")).unwrap_or_default();
        format!("a migration is under way since {since}{age}: {why}")
    }
}

/// For people, by two clocks; none if they do not agree that it lies in the past.
fn age(since: &str, now: SystemTime) -> Option<String> {
    let age = now.duration_since(humantime::parse_rfc3339(since).ok()?).ok()?.as_secs();
    let whole = match age {
        0..60 => age,
        60..86_400 => age / 60 * 60,
        _ => age / 3600 * 3600,
    };
    Some(humantime::format_duration(Duration::from_secs(whole)).to_string())
}

/// Asks whether the store, if it is under suspicion or empty, is to be taken into service.
fn confirm_acceptance<K: Kv>(
    context: &Context<'_, K>,
    report: &Report,
    yes: bool,
    terminal: &mut Terminal<'_>,
) -> Result<(), CliError> {
    let known = context.known();
    if !report.can_be_accepted(known.as_ref()) {
        return Ok(());
    }
    if report.is_empty() {
        terminal.tell("nothing is stored here");
        let question = "Begin a new store here? If this cluster has used another one, it gives addresses that are \
                        in use.";
        return terminal.confirm(yes, question, "no store was begun");
    }
    let Counts { networks, reservations, .. } = report.counts;
    let why = match &report.meta {
        MetaState::Known(meta, _) if known.is_some_and(|known| known.store != meta.id) => {
            "is not the one that this node knows"
        }
        MetaState::Known(meta, _) if meta.suspect.is_none() => "lacks addresses that pods report",
        _ => "is suspect",
    };
    terminal.tell(&format!(
        "the store {why}; it holds {} in {}",
        many(reservations, "address"),
        many(networks, "network")
    ));
    let question = "Take it into service? From then on ADD gives every address that it does not hold, also one \
                    that a container uses.";
    terminal.confirm(yes, question, "the store was not accepted")
}

/// Asks whether the pause, if there is one, is to be ended.
fn confirm_end_of_pause(report: &Report, yes: bool, terminal: &mut Terminal<'_>) -> Result<(), CliError> {
    let Some(pause) = Pause::of(report) else { return Ok(()) };
    terminal.tell(&pause.words());
    let question = "End the pause? From then on ADD hands out addresses, those too that the migration has not \
                    taken over.";
    terminal.confirm(yes, question, "the pause stays")
}

async fn resume<K: Kv>(session: Session<'_, K>, report: &Report) -> Result<String, CliError> {
    let ended = pause::end(session, report).await;
    match ended.map_err(CliError::store("end the pause"))? {
        Ended::Done => Ok("ended the pause: ADD hands out addresses again".to_owned()),
        Ended::NotPaused => Ok("no migration is under way: there is no pause to end".to_owned()),
        Ended::Unreadable => Err(CliError::Refused(format!(
            "the pause cannot be ended: {} is not for this version of metes; metes check says more",
            String::from_utf8_lossy(&session.keys.meta())
        ))),
        Ended::Changed => Err(CliError::Refused(
            "the pause was not ended: somebody else changed the store's meta at the same time; run it again"
                .to_owned(),
        )),
    }
}

fn text(report: &Report, notes: &[String], screen: Screen) -> String {
    let mut lines: Vec<String> = notes.to_vec();
    lines.extend(report.violations.iter().map(|finding| format!("violation {finding}")));
    lines.extend(report.harmless.iter().map(|finding| format!("harmless  {finding}")));
    let Counts { networks, reservations, owners, .. } = report.counts;
    lines.push(format!(
        "{}, {}; {} in {}, {}, as of revision {}",
        many(report.violations.len(), "violation"),
        many(report.stray_bits.len(), "stray bit"),
        many(reservations, "address"),
        many(networks, "network"),
        many(owners, "owner"),
        report.revision,
    ));
    if !report.violations.is_empty() {
        lines.push(
            "`metes check --explain KIND` says what a kind of violation means, and what to do".to_owned(),
        );
    }
    let coloured = |line: &String| match printable(line) {
        line if line.starts_with("violation ") => screen.red(&line) + "\n",
        line => line.into_owned() + "\n",
    };
    lines.iter().map(coloured).collect()
}

/// The answer for programs.
#[derive(Serialize)]
struct Answer<'a> {
    revision: i64,
    violations: Vec<FindingJson<'a>>,
    harmless: Vec<FindingJson<'a>>,
    stray_bits: Vec<StrayJson<'a>>,
    counts: Counts,
    pause: Option<&'a Pause<'a>>,
    notes: &'a [String],
}

#[derive(Serialize)]
struct FindingJson<'a> {
    name: &'static str,
    key: Cow<'a, str>,
    what: &'a str,
}

#[derive(Serialize)]
struct StrayJson<'a> {
    network: &'a str,
    address: String,
}

impl<'a> Answer<'a> {
    fn new(report: &'a Report, pause: Option<&'a Pause<'a>>, notes: &'a [String]) -> Self {
        let stray = |(network, address): &'a (metes_core::pool::NetworkName, metes_core::pool::Addr)| {
            StrayJson { network: network.as_str(), address: address.to_string() }
        };
        Self {
            revision: report.revision,
            violations: report.violations.iter().map(FindingJson::new).collect(),
            harmless: report.harmless.iter().map(FindingJson::new).collect(),
            stray_bits: report.stray_bits.iter().map(stray).collect(),
            counts: report.counts,
            pause,
            notes,
        }
    }
}

impl<'a> FindingJson<'a> {
    fn new(finding: &'a Finding) -> Self {
        Self { name: finding.kind.name(), key: finding.key_text(), what: &finding.what }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_violation_has_a_line_with_its_name() {
        let mut report = Report { revision: 7, ..Report::default() };
        report.violations.push(Finding::new(Kind::Suspect, b"/metes/v1/meta", "why"));
        assert_eq!(
            text(&report, &["a note".to_owned()], Screen::default()),
            "a note\nviolation suspect: /metes/v1/meta: why\n\
             1 violation, 0 stray bits; 0 addresses in 0 networks, 0 owners, as of revision 7\n\
             `metes check --explain KIND` says what a kind of violation means, and what to do\n"
        );
        let json = serde_json::to_value(Answer::new(&report, None, &[])).expect("json");
        assert_eq!(json["violations"][0]["name"], "suspect");
        assert_eq!(json["stray_bits"], serde_json::json!([]));
        assert_eq!(json["pause"], serde_json::Value::Null);
    }

    #[test]
    fn a_pause_is_told_with_its_age_as_far_as_clocks_agree() {
        let now = humantime::parse_rfc3339("2026-01-02T03:04:05Z").expect("a time");
        for (since, expected) in [
            ("2026-01-02T03:03:55Z", Some("10s")),
            ("2026-01-02T01:02:05Z", Some("2h 2m")),
            ("2025-12-31T00:04:06Z", Some("2days 2h")),
            ("2026-01-02T03:04:06Z", None),
            ("yesterday", None),
        ] {
            assert_eq!(age(since, now).as_deref(), expected, "{since}");
        }
    }
}
