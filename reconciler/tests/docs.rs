//! docs/reconciler.md and the program agree.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use clap::CommandFactory;
use metes::audit::PoolCounts;
use metes::pool::NetworkName;
use metes_reconciler::cli::Cli;
use metes_reconciler::ended::{Ended, PassOutcome};
use metes_reconciler::metrics::Metrics;
use metes_reconciler::report::PassReport;
use metes_reconciler::verdict::{Free, Keep};

/// Defaults that the program finds out at run time.
const FOUND_OUT: [&str; 2] = ["--config", "--unlabelled-after"];

fn document() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reconciler.md");
    fs::read_to_string(path).expect("docs/reconciler.md")
}

/// The rows of the tables below a heading, split into cells, without header rows.
fn rows(heading: &str) -> Vec<Vec<String>> {
    let document = document();
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
    let source =
        |file: &str| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).expect(file);
    // That something changed is found by the pass, not by the verdict.
    let keeps =
        Keep::ALL.into_iter().filter(|keep| *keep != Keep::Changed).map(|keep| format!("Keep::{keep:?}"));
    let frees = Free::ALL.map(|free| format!("Free::{free:?}"));
    for reason in keeps.chain(frees) {
        for file in ["src/verdict/tests.rs", "../fuzz/src/verdict.rs"] {
            let is_there =
                source(file).split(|c: char| c != ':' && !c.is_alphanumeric()).any(|word| word == reason);
            assert!(is_there, "{file} lacks {reason}");
        }
    }
    let passes = source("../tests/reconcile.rs");
    for reason in Keep::ALL.map(Keep::name).into_iter().chain(Free::ALL.map(Free::name)) {
        assert!(passes.contains(&format!("\"{reason}\"")), "tests/reconcile.rs lacks {reason}");
    }
}

#[test]
fn every_metric_stands_there() {
    let mut report = PassReport::new("east", false);
    report.violations.insert("foreign-key", 1);
    let pool = "storage".parse().expect("a pool's name");
    let network = NetworkName::default();
    report.pools.push(PoolCounts { pool, network, size: 2, held: 1, free: 1, cooling: 0, draining: 0 });
    let mut metrics = Metrics::of_many_passes();
    metrics.ended(&Ended { report, trouble: None, took: Duration::ZERO, at: SystemTime::now() });
    let mut defined: Vec<String> = Vec::new();
    for line in metrics.text().lines().filter(|line| !line.starts_with('#')) {
        let (sample, _) = line.split_once(' ').expect("a sample and its value");
        let name = sample.strip_prefix("metes_reconciler_").expect("each has the prefix");
        defined.push(
            name.split('=').next().unwrap_or_default().to_owned() + if name.contains('=') { "}" } else { "" },
        );
    }
    defined.sort();
    defined.dedup();
    let mut documented: Vec<String> = rows("Metrics").iter().flat_map(|row| code(&row[0])).collect();
    documented.sort();
    assert_eq!(documented, defined);
    let outcomes = PassOutcome::ALL.map(|outcome| format!("`{}`", outcome.name()));
    let row = rows("Metrics").into_iter().find(|row| row[0].contains("passes_total")).expect("a row");
    assert!(outcomes.iter().all(|outcome| row[1].contains(outcome)), "{row:?}");
}
