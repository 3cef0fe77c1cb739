//! Thousands of real plugin processes on a real etcd of three members, with a fault every few seconds. hack/soak starts
//! it; `hack/soak --help` shows the flags.
//!
//! The callers write down the holder of each address, with the time: from the answer of an ADD to the start of the DEL
//! or GC that may free it. No two such intervals of one address may overlap, whatever breaks meanwhile. At the end all
//! faults are over and everything is deleted: nothing may be left, and `metes check` must find nothing.
//!
//! The same seed gives the same faults in the same order, and the same choices to each caller. The meetings of the
//! processes depend on the machine.

#![allow(clippy::print_stdout, reason = "the report is its output")]

mod soak;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use soak::Plan;

/// Runs real plugin processes on a real etcd of three members, with a fault every 5 s; exits with 1 if an address
/// was ever held twice, or anything else is wrong at the end.
#[derive(Parser)]
#[command(name = "hack/soak", bin_name = "hack/soak")]
struct Args {
    /// For how long new pods are started.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1440))]
    minutes: u64,
    /// The seed of an earlier run, for the same faults and choices; without it a random one.
    #[arg(long)]
    seed: Option<u64>,
    /// How many callers there are at a time.
    #[arg(long, default_value_t = soak::CALLERS, value_parser = clap::value_parser!(u64).range(1..=256))]
    callers: u64,
}

fn main() -> ExitCode {
    let Args { minutes, seed, callers } = Args::parse();
    let seed = seed.unwrap_or_else(soak::random_seed);
    println!("seed {seed}");
    let report = soak::run(Plan { lasts: Duration::from_secs(minutes * 60), seed, callers });
    println!("{report}");
    if report.is_sound() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
