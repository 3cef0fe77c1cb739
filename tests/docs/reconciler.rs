//! docs/reconciler.md, docs/monitoring.md and the program agree.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use clap::CommandFactory;
use metes_audit::CountedRange;
use metes_core::pool::{NetworkName, RangeCounts};
use metes_reconciler::cli::Cli;
use metes_reconciler::ended::{Ended, PassOutcome};
use metes_reconciler::exposition::Exposition;
use metes_reconciler::last_pass;
use metes_reconciler::metrics::{self, Totals};
use metes_reconciler::range_metrics::RangeRows;
use metes_reconciler::report::PassReport;
use metes_reconciler::verdict::{Free, Keep};

use crate::read;

/// Defaults that the program finds out at run time.
const FOUND_OUT: [&str; 2] = ["--config", "--unlabelled-after"];

fn document(name: &str) -> String {
    read(format!("docs/{name}"))
}

/// The rows of the tables below a heading of docs/reconciler.md.
fn rows(heading: &str) -> Vec<Vec<String>> {
    rows_of(&document("reconciler.md"), heading)
}

/// The rows of the tables below a heading, split into cells, without header rows.
fn rows_of(document: &str, heading: &str) -> Vec<Vec<String>> {
    let (_, section) = document.split_once(&format!("\n## {heading}\n")).expect(heading);
    let section = section.split("\n## ").next().unwrap_or_default();
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let rows = section.lines().filter(|line| line.starts_with("| `")).map(cells);
    rows.map(|row| row[1..row.len() - 1].to_vec()).collect()
}

/// The words in backticks.
fn code(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn every_flag_stands_there_with_its_variable_and_its_default() {
    let mut documented = BTreeMap::new();
    for row in rows("Flags") {
        let flag = code(&row[0]).first().cloned().expect("a flag");
        assert!(row[3].len() > 5, "{flag} says nothing");
        documented.insert(flag, (code(&row[1]).join(""), code(&row[2]).join("")));
    }
    let command = Cli::command();
    let mut defined = BTreeMap::new();
    for argument in command.get_arguments() {
        let flag = format!("--{}", argument.get_long().expect("every argument is a long flag"));
        let env = argument.get_env().unwrap_or_default().to_string_lossy().into_owned();
        let switch = argument.get_action().takes_values();
        let defaults: Vec<_> = argument.get_default_values().iter().filter(|_| switch).collect();
        let mut default: String = defaults.iter().map(|value| value.to_string_lossy()).collect();
        if FOUND_OUT.contains(&flag.as_str()) {
            assert!(default.is_empty(), "{flag}");
            default = documented.get(&flag).map(|(_, default)| default.clone()).unwrap_or_default();
        }
        defined.insert(flag, (env, default));
    }
    assert_eq!(documented, defined);
}

#[test]
fn every_reason_stands_there_with_what_to_do() {
    for (heading, reasons) in [
        ("Why an owner keeps what it has", Keep::ALL.map(Keep::name).to_vec()),
        ("Why an owner is freed", Free::ALL.map(Free::name).to_vec()),
    ] {
        let mut documented: Vec<String> = rows(heading).iter().flat_map(|row| code(&row[0])).collect();
        let mut reasons: Vec<String> = reasons.into_iter().map(str::to_owned).collect();
        documented.sort();
        reasons.sort();
        assert_eq!(documented, reasons, "{heading}");
        assert!(rows(heading).iter().all(|row| row.len() == 3 && !row[2].is_empty()), "{heading}");
    }
}

#[test]
fn every_reason_is_tested() {
    // These two are found by the pass, not by the verdict.
    let is_of_the_verdict = |keep: &Keep| !matches!(keep, Keep::Changed | Keep::NetworkDoubtful);
    let keeps = Keep::ALL.into_iter().filter(is_of_the_verdict).map(|keep| format!("Keep::{keep:?}"));
    let frees = Free::ALL.map(|free| format!("Free::{free:?}"));
    for reason in keeps.chain(frees) {
        for file in ["reconciler/src/verdict/tests.rs", "fuzz/src/verdict.rs"] {
            let is_there =
                read(file).split(|c: char| c != ':' && !c.is_alphanumeric()).any(|word| word == reason);
            assert!(is_there, "{file} lacks {reason}");
        }
    }
    let passes = ["tests/kube/reconcile.rs", "tests/kube/sticky.rs"].map(read).concat();
    for reason in Keep::ALL.map(Keep::name).into_iter().chain(Free::ALL.map(Free::name)) {
        assert!(passes.contains(&format!("\"{reason}\"")), "tests/kube lacks {reason}");
    }
}

/// A range of a pool with one address that is held.
fn range(given: bool, range: Option<&str>) -> CountedRange {
    let counts = RangeCounts { size: 1, held: 1, ..RangeCounts::default() };
    CountedRange {
        network: NetworkName::default(),
        pool: "storage".parse().ok(),
        range: range.map(str::to_owned),
        is_ipv6: false,
        is_given: given,
        counts,
        unused: 0,
        orphaned: 0,
    }
}

/// The name and the labels of each sample, as documents have them: `name{label,label}`.
fn defined(metrics: &str) -> Vec<String> {
    let samples = metrics.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let (sample, _) = line.rsplit_once(' ').expect("a sample and its value");
        let (name, labels) = sample.split_once('{').unwrap_or((sample, ""));
        let names: Vec<&str> = labels.split(',').filter_map(|pair| Some(pair.split_once('=')?.0)).collect();
        if names.is_empty() { name.to_owned() } else { format!("{name}{{{}}}", names.join(",")) }
    });
    samples.collect()
}

#[test]
fn every_metric_stands_there() {
    let mut report = PassReport::new("east", false);
    report.violations.insert("foreign-key", 1);
    report.certificates.insert("client", 1);
    report.lacking.networks.insert(NetworkName::default());
    let pass =
        last_pass::record(&Ended { report, trouble: None, took: Duration::ZERO, at: SystemTime::now() });
    let mut text = Exposition::default();
    metrics::expose(&pass, &mut text);
    RangeRows::of(vec![range(true, Some("10.0.0.0/32"))]).expose(&mut text);
    Totals::default().expose(&mut text);
    let mut defined = defined(&text.into_text());
    defined.sort();
    defined.dedup();
    let document = document("monitoring.md");
    let rows = ["Addresses", "Passes"].map(|heading| rows_of(&document, heading)).concat();
    let mut documented: Vec<String> = rows.iter().flat_map(|row| code(&row[0])).collect();
    documented.retain(|name| name.starts_with("metes_"));
    // tests/kube/serve.rs asks a viewer for its own.
    documented.retain(|name| !name.starts_with("metes_viewer_"));
    documented.sort();
    assert_eq!(documented, defined);
    let outcomes = PassOutcome::ALL.map(|outcome| format!("`{}`", outcome.name()));
    let row = rows.iter().find(|row| row[0].contains("passes_total")).expect("a row");
    assert!(outcomes.iter().all(|outcome| row[1].contains(outcome)), "{row:?}");
}

#[test]
fn every_state_of_addresses_stands_there() {
    let mut text = Exposition::default();
    let ranges = [range(true, Some("a")), range(false, Some("b")), range(false, None)];
    RangeRows::of(ranges.to_vec()).expose(&mut text);
    let text = text.into_text();
    let defined: BTreeSet<&str> =
        text.split("state=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let document = document("monitoring.md");
    let rows = rows_of(&document, "Addresses");
    let documented: Vec<String> = rows.iter().flat_map(|row| code(&row[0])).collect();
    let documented: BTreeSet<&str> =
        documented.iter().map(String::as_str).filter(|state| !state.starts_with("metes_")).collect();
    assert_eq!(documented, defined);
}
