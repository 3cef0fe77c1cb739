//! The costs of `metes`, as ratios to the costs that nobody can avoid. hack/bench starts it, and names the programs.
//!
//! Whole processes are timed, from their start to their end, as a runtime waits for them. The modules, in the direction
//! in which the data flows:
//!
//! - [`options`]: the options.
//! - [`lab`]: the subjects: a server that writes to the disk, nodes, and programs.
//! - [`measure`]: one module for each section, and their common parts. Each adds rows to
//! - [`results`]: samples, storms and numbers by their names, made of [`samples`].
//! - [`marks`]: the goals, each judged by rows of one run; the median of several runs counts.
//! - [`output`]: a table, JSON, a chart.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark's table is its output")]

mod lab;
mod machine;
mod marks;
mod measure;
mod options;
mod output;
mod results;
mod samples;

use clap::Parser;

use machine::Machine;
use options::Options;
use output::{chart, json, table};
use results::Results;

fn main() {
    let options = Options::parse();
    let machine = Machine::here();
    println!("{machine}");
    let runs: Vec<Results> = (1..=options.runs).map(|run| measure::run(&options, run)).collect();
    let marks = marks::judge(&runs);
    let results = Results::pool(runs);
    print!("{}", table::of(&results, &marks));
    for (path, text) in [
        (&options.json, json::of(&machine, &options, &results, &marks)),
        (&options.svg, chart::of(&machine, &results)),
    ] {
        if let Some(path) = path {
            std::fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
    }
}
