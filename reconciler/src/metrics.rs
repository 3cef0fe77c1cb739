//! The metrics of passes: those of the last one, and the sums of a program that makes many. Pure.

use std::collections::BTreeMap;

use metes_core::pool::PassRecord;

use crate::ended::{Ended, PassOutcome};
use crate::exposition::Exposition;
use crate::report::of;
use crate::verdict::Free;

/// The figures of a pass, and their meaning. Each is the metric `metes_reconciler_NAME`.
const FIGURES: [(&str, &str); 8] = [
    ("owners", "Owner records that were read."),
    ("reservations", "Reservations that were read."),
    ("pods", "Pods that Kubernetes has."),
    ("nodes", "Nodes that Kubernetes has."),
    ("orphans", "Owners without a living pod, those within their grace too."),
    ("holds", "Addresses that are set aside, before some were freed."),
    ("holds_ended", "Addresses freed because their time aside is over."),
    ("stray", "Bits that stood for no reservation."),
];

/// The figures of a pass of which there are several: their name, the metric, its label and its meaning.
const BY: [(&str, &str, &str, &str); 7] = [
    ("kept", "metes_reconciler_kept", "reason", "Owners that keep what they have."),
    ("freed", "metes_reconciler_freed", "reason", "Owners freed."),
    ("holds_of_pods", "metes_holds", "state", "Holds for pods, before some were ended."),
    (
        "lacking",
        "metes_reconciler_lacking",
        "network",
        "Addresses that running pods report and the store lacks.",
    ),
    ("repaired", "metes_reconciler_repaired", "what", "What was put right in the store."),
    ("violations", "metes_reconciler_violations", "kind", "What `metes check` calls violations."),
    (
        "certificates",
        "metes_certificate_not_after_timestamp_seconds",
        "certificate",
        "Until when a certificate for etcd is valid.",
    ),
];

/// Adds the metrics of the last pass.
pub fn expose(pass: &PassRecord, text: &mut Exposition) {
    let is = |outcomes: &[PassOutcome]| u8::from(outcomes.iter().any(|one| one.name() == pass.outcome));
    let good = is(&[PassOutcome::Success, PassOutcome::Paused]);
    let seconds = |ms: u64| ms as f64 / 1000.0;
    for (name, help, value) in [
        ("last_pass_success", "Whether the last pass did all that it should.", f64::from(good)),
        ("last_pass_duration_seconds", "How long the last pass took.", seconds(pass.took_ms)),
        ("last_pass_timestamp_seconds", "When the last pass ended.", seconds(pass.at_ms)),
        ("brake", "Whether nothing was freed: too many orphans.", f64::from(is(&[PassOutcome::Brake]))),
        (
            "paused",
            "Whether nothing was done: a migration is under way.",
            f64::from(is(&[PassOutcome::Paused])),
        ),
        ("suspect", "Whether nothing was done: etcd went back in time.", f64::from(u8::from(pass.suspect))),
    ] {
        text.gauge(&format!("metes_reconciler_{name}"), help, value);
    }
    for (name, help) in FIGURES {
        let value = pass.figures.get(name).copied().unwrap_or_default();
        text.gauge(&format!("metes_reconciler_{name}"), help, value);
    }
    for (name, metric, label, help) in BY {
        text.labelled(metric, "gauge", help, label, pass.by.get(name).into_iter().flatten());
    }
}

/// The sums of a program that makes many passes.
#[derive(Debug, Default)]
pub struct Totals {
    passes: BTreeMap<PassOutcome, usize>,
    freed: BTreeMap<Free, usize>,
    /// True if this process makes the passes.
    pub(crate) leads: bool,
}

impl Totals {
    /// Adds a pass that has ended.
    pub fn ended(&mut self, ended: &Ended) {
        *self.passes.entry(ended.outcome()).or_default() += 1;
        // A dry run frees nothing.
        let freed = if ended.report.dry_run { BTreeMap::new() } else { ended.report.freed_by_reason() };
        for (reason, count) in freed {
            *self.freed.entry(reason).or_default() += count;
        }
    }

    /// Adds the metrics of these sums.
    pub fn expose(&self, text: &mut Exposition) {
        text.gauge(
            "metes_reconciler_leader",
            "Whether this process makes the passes.",
            usize::from(self.leads),
        );
        let passes = PassOutcome::ALL.map(|outcome| (outcome.name(), of(&self.passes, outcome)));
        let name = "metes_reconciler_passes_total";
        text.labelled(name, "counter", "Passes since the start.", "outcome", passes);
        let freed = Free::ALL.map(|why| (why.name(), of(&self.freed, why)));
        let name = "metes_reconciler_freed_total";
        text.labelled(name, "counter", "Owners freed since the start.", "reason", freed);
    }
}
