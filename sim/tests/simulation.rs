//! Worlds that seeds decide, in which the real code meets every fault that the model of etcd knows: a million operations.
//!
//! SIM_BIN names an optimised `metes-sim`; without it the one of this build is taken, which is several times slower.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Output};

/// The short form of what is played before a release. Some worlds end before they have used up what they may do.
const SHORT: [&str; 4] = ["--seeds", "3000", "--ops", "1200000"];
/// One world of each kind, and then some.
const SEEDS: u64 = 16;

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
