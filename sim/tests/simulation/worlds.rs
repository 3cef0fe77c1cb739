//! Worlds that seeds decide, in which the real code meets every fault that the model of etcd knows: a million
//! operations.
//!
//! SIM_BIN names an optimised `metes-sim`; without it the one of this build is taken, which is several times slower.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Output};

/// The short form of the campaign before a release. Some worlds end before they have used up all their operations.
const SHORT: [&str; 4] = ["--seeds", "3000", "--ops", "1200000"];
const OPERATIONS: u64 = 1_000_000;
/// All that may go wrong, and must.
const FAULTS: [&str; 43] = [
    "Kubernetes fails",
    "answer lost",
    "came from elsewhere",
    "clock went back",
    "compaction",
    "copied files",
    "crash",
    "died in a queue",
    "emptied",
    "ended watch",
    "foreign hand",
    "forged mark",
    "forsaken",
    "killed",
    "late",
    "late tombstone",
    "late watch",
    "lease of a free ended",
    "long leases",
    "long time",
    "mark of an image",
    "mute watch",
    "new leader",
    "newer",
    "newer ticket",
    "no space",
    "node not ready",
    "pause",
    "paused",
    "pool changed",
    "reboot",
    "request lost",
    "restored",
    "silent",
    "slow",
    "snapshot",
    "space noticed late",
    "stale",
    "suspended",
    "unreachable",
    "watch on a member that is behind",
    "watch that ends instead of an event",
    "watch that ends later",
];
/// The events around commits for others, and the fates of their makers. Each must have happened so often.
const BATCHES: [&str; 9] = [
    "batch",
    "came after the dead",
    "came after the dead in vain",
    "dropped out",
    "head died",
    "served",
    "ticket of a deleted owner",
    "turn given",
    "turn of one that is gone",
];
const OF_EACH: u64 = 50;
/// One world of each kind, and then some.
const SEEDS: u64 = 19;

fn sim(arguments: &[&str]) -> Output {
    let built = || PathBuf::from(env!("CARGO_BIN_EXE_metes-sim"));
    let binary = env::var_os("SIM_BIN").map_or_else(built, PathBuf::from);
    Command::new(binary).args(arguments).output().expect("metes-sim can be started")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_million_operations_violate_nothing() {
    let output = sim(&SHORT);
    let said = said(&output);
    assert!(output.status.success(), "{said}");
    let words: Vec<&str> = said.split([' ', ',']).collect();
    let operations =
        words.iter().position(|word| *word == "operations").and_then(|at| words[at - 1].parse().ok());
    assert!(operations >= Some(OPERATIONS), "{said}");
    let outcomes = said.lines().find_map(|line| line.strip_prefix("operations: ")).unwrap_or_default();
    for kind in BATCHES {
        let count = outcomes.split(", ").find_map(|outcome| {
            let (what, count) = outcome.rsplit_once(' ')?;
            (what == kind).then(|| count.parse::<u64>().ok())?
        });
        assert!(count >= Some(OF_EACH), "{kind}: {said}");
    }
    let faults = said.lines().find_map(|line| line.strip_prefix("faults: ")).unwrap_or_default();
    let happened: Vec<&str> =
        faults.split(", ").filter_map(|fault| Some(fault.rsplit_once(' ')?.0)).collect();
    assert_eq!(happened, FAULTS, "{said}");
}

#[test]
fn a_seed_plays_the_same_run_again() {
    for seed in 1..=SEEDS {
        let seed = seed.to_string();
        let again = ["--seeds", "1", "--ops", "300", "--seed", &seed, "--trace"];
        let (first, second) = (sim(&again), sim(&again));
        assert!(first.status.success(), "{}", said(&first));
        assert!(said(&first).contains("digest"), "{}", said(&first));
        assert_eq!(said(&first), said(&second), "seed {seed}");
    }
}
