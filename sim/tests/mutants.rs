//! Each guard of each transaction is left out once, and a world must notice.
//!
//! SIM_BIN names an optimised `metes-sim`; without it the one of this build is taken, which is several times slower.

use std::collections::BTreeSet;
use std::env;
use std::path::PathBuf;
use std::process::Command;

/// Worlds in which the guards are collected, and in how many of each kind each must be noticed: in as many that know
/// nothing of it, and if none of them does, in as many that strike at it.
const HUNT: [&str; 6] = ["--seeds", "200", "--ops", "30000", "--mutants", "40"];

#[test]
fn every_guard_that_is_left_out_is_noticed() {
    let built = || PathBuf::from(env!("CARGO_BIN_EXE_metes-sim"));
    let binary = env::var_os("SIM_BIN").map_or_else(built, PathBuf::from);
    let output = Command::new(binary).args(HUNT).output().expect("metes-sim can be started");
    let said = String::from_utf8_lossy(&output.stdout);
    let survivors: BTreeSet<&str> = said.lines().filter_map(|line| line.strip_prefix("survives ")).collect();
    let noticed = said.lines().filter(|line| line.starts_with("noticed ")).count();
    assert!(noticed > 0, "{said}");
    assert!(survivors.is_empty(), "nobody notices that these are left out: {survivors:?}");
}
