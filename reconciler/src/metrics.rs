//! Metrics of passes and of ranges, and the file for them.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::UNIX_EPOCH;

use crate::ended::{Ended, PassOutcome, Trouble};
use crate::error::RunError;
use crate::exposition::Exposition;
use crate::holds::HoldState;
use crate::pass::PassError;
use crate::range_metrics::RangeRows;
use crate::verdict::{Free, Keep};

const PASSES: &str = "metes_reconciler_passes_total";
const FREED: &str = "metes_reconciler_freed_total";

/// The mode of the file: the program that collects it need not be root.
const FILE_MODE: u32 = 0o644;

/// The metrics of the passes so far.
#[derive(Debug, Default)]
pub struct Metrics {
    /// The metrics of the last pass, already formatted; empty if there was no pass.
    last: String,
    /// The metrics of all passes; none if the program makes only one.
    totals: Option<Totals>,
}

#[derive(Debug, Default)]
struct Totals {
    passes: BTreeMap<PassOutcome, usize>,
    freed: BTreeMap<Free, usize>,
    leads: bool,
}

impl Metrics {
    /// The metrics of a program that makes one pass.
    pub(crate) fn of_one_pass(ended: &Ended) -> Self {
        let mut metrics = Self::default();
        metrics.ended(ended);
        metrics
    }

    /// The metrics of a program that makes many passes.
    #[must_use]
    pub fn of_many_passes() -> Self {
        Self { last: String::new(), totals: Some(Totals::default()) }
    }

    /// Takes a pass that has ended.
    pub fn ended(&mut self, ended: &Ended) {
        let mut text = of_pass(ended);
        if let Some(ranges) = &ended.report.ranges {
            RangeRows::of(ranges.clone()).expose(&mut text);
        }
        self.last = text.into_text();
        let Some(totals) = &mut self.totals else { return };
        *totals.passes.entry(ended.outcome()).or_default() += 1;
        // A dry run frees nothing.
        let freed = if ended.report.dry_run { BTreeMap::new() } else { ended.report.freed_by_reason() };
        for (reason, count) in freed {
            *totals.freed.entry(reason).or_default() += count;
        }
    }

    /// Takes whether this process makes the passes. If it does not, another process reports the last pass.
    pub(crate) fn leads(&mut self, leads: bool) {
        if !leads {
            self.last.clear();
        }
        if let Some(totals) = &mut self.totals {
            totals.leads = leads;
        }
    }

    /// All metrics, formatted.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = Exposition(self.last.clone());
        if let Some(totals) = &self.totals {
            text.gauge(
                "metes_reconciler_leader",
                "Whether this process makes the passes.",
                usize::from(totals.leads),
            );
            let passes = PassOutcome::ALL.map(|outcome| (outcome.name(), of(&totals.passes, outcome)));
            text.labelled(PASSES, "counter", "Passes since the start.", "outcome", passes);
            let freed = Free::ALL.map(|why| (why.name(), of(&totals.freed, why)));
            text.labelled(FREED, "counter", "Owners freed since the start.", "reason", freed);
        }
        text.into_text()
    }

    /// Writes the metrics into a file, which is complete at any moment. A failure is only logged: it does not fail the
    /// pass.
    pub(crate) fn write(&self, path: &Path) {
        if let Err(e) = write_whole(path, self.text().as_bytes()) {
            tracing::error!(file = %path.display(), error = %e, "the metrics cannot be written");
        }
    }
}

fn of<K: Ord>(counts: &BTreeMap<K, usize>, key: K) -> usize {
    counts.get(&key).copied().unwrap_or_default()
}

fn of_pass(ended: &Ended) -> Exposition {
    let report = &ended.report;
    let outcome = ended.outcome();
    let mut text = Exposition::default();
    let good = matches!(outcome, PassOutcome::Success | PassOutcome::Paused);
    text.gauge(
        "metes_reconciler_last_pass_success",
        "Whether the last pass did all that it should.",
        usize::from(good),
    );
    text.gauge(
        "metes_reconciler_last_pass_duration_seconds",
        "How long the last pass took.",
        ended.took.as_secs_f64(),
    );
    let at = ended.at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    text.gauge("metes_reconciler_last_pass_timestamp_seconds", "When the last pass ended.", at);
    text.gauge("metes_reconciler_owners", "Owner records that were read.", report.scanned.owners);
    text.gauge("metes_reconciler_reservations", "Reservations that were read.", report.scanned.addresses);
    text.gauge("metes_reconciler_pods", "Pods that Kubernetes has.", report.scanned.pods);
    text.gauge("metes_reconciler_nodes", "Nodes that Kubernetes has.", report.scanned.nodes);
    text.gauge(
        "metes_reconciler_orphans",
        "Owners without a living pod, those within their grace too.",
        report.orphans,
    );
    let kept = Keep::ALL.map(|why| (why.name(), of(&report.kept, why)));
    text.labelled("metes_reconciler_kept", "gauge", "Owners that keep what they have.", "reason", kept);
    let counts = report.freed_by_reason();
    let freed = Free::ALL.map(|why| (why.name(), of(&counts, why)));
    text.labelled(
        "metes_reconciler_freed",
        "gauge",
        "Owners freed; in a dry run those that would be.",
        "reason",
        freed,
    );
    text.gauge(
        "metes_reconciler_holds",
        "Addresses that are set aside, before some were freed.",
        report.holds.found,
    );
    text.gauge(
        "metes_reconciler_holds_ended",
        "Addresses freed because their time aside is over.",
        report.holds.ended,
    );
    let holds = HoldState::ALL.map(|state| (state.name(), of(&report.holds_of_pods, state)));
    text.labelled("metes_holds", "gauge", "Holds for pods, before some were ended.", "state", holds);
    let lacking = report.lacking.by_network();
    let lacking = lacking.iter().map(|(network, count)| (network.as_str(), *count));
    text.labelled(
        "metes_reconciler_lacking",
        "gauge",
        "Addresses that running pods report and the store lacks.",
        "network",
        lacking,
    );
    let repaired = [
        ("bits_cleared", report.repaired.cleared),
        ("bits_set", report.repaired.set),
        ("summaries", report.repaired.summaries),
        ("stale_deleted", report.repaired.deleted),
        ("empty_deleted", report.repaired.emptied),
    ];
    text.labelled("metes_reconciler_repaired", "gauge", "What was put right in the store.", "what", repaired);
    text.gauge("metes_reconciler_stray", "Bits that stood for no reservation.", report.stray_bits);
    let violations = report.violations.iter().map(|(kind, count)| (*kind, *count));
    text.labelled(
        "metes_reconciler_violations",
        "gauge",
        "What `metes check` calls violations.",
        "kind",
        violations,
    );
    text.gauge(
        "metes_reconciler_brake",
        "Whether nothing was freed: too many orphans.",
        usize::from(outcome == PassOutcome::Brake),
    );
    let paused = usize::from(outcome == PassOutcome::Paused);
    text.gauge("metes_reconciler_paused", "Whether nothing was done: a migration is under way.", paused);
    let suspect = matches!(ended.trouble, Some(Trouble::Pass(PassError::Run(RunError::Suspect(_)))));
    text.gauge(
        "metes_reconciler_suspect",
        "Whether nothing was done: etcd went back in time.",
        usize::from(suspect),
    );
    let ends = report.certificates.iter().map(|(certificate, not_after)| (*certificate, not_after));
    text.labelled(
        "metes_certificate_not_after_timestamp_seconds",
        "gauge",
        "Until when a certificate for etcd is valid.",
        "certificate",
        ends,
    );
    text
}

fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    // The collector reads every file whose name ends in .prom, so the temporary name must not.
    let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(name);
    let written = write_new(&temporary, content).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    // A process with this id may have died while writing. The file that it left is removed, so that nothing is written
    // through a link.
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut file: File = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path)?;
    // The mode must not depend on the umask.
    file.set_permissions(Permissions::from_mode(FILE_MODE))?;
    file.write_all(content)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::report::PassReport;

    /// Only the leader reports the last pass of a cluster. Each process still reports what it did itself.
    #[test]
    fn whoever_leads_no_more_tells_of_no_last_pass() {
        let mut metrics = Metrics::of_many_passes();
        metrics.leads(true);
        let (took, at) = (Duration::ZERO, SystemTime::UNIX_EPOCH);
        metrics.ended(&Ended { report: PassReport::new("east", false), trouble: None, took, at });
        let led = metrics.text();
        assert!(led.contains("last_pass_success 1") && led.contains("_leader 1"), "{led}");
        metrics.leads(false);
        let follows = metrics.text();
        assert!(!follows.contains("last_pass") && !follows.contains("_kept"), "{follows}");
        assert!(follows.contains("_leader 0"), "{follows}");
        assert!(follows.contains("passes_total{outcome=\"success\"} 1"), "{follows}");
    }
}
