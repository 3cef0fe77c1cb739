//! Each guard of each transaction is left out once, and a world must notice.
//!
//! SIM_BIN names an optimised `metes-sim`; without it the one of this build is taken, which is several times slower.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Worlds in which the guards are collected, and in how many of each kind each must be noticed: in as many that know
/// nothing of it, and if none of them does, in as many that strike at it and at nothing else.
const HUNT: [&str; 6] = ["--seeds", "800", "--ops", "120000", "--mutants", "200"];

/// All guards that transactions rely on, by step, kind and key, each with the world that noticed its absence in the
/// last hunt: that world is played first. None may go missing. A guard alone is one of [`RARE`] that the last hunt has
/// found nowhere. After a change of the protocol or of the worlds, hack/sim with [`HUNT`], `--known` and `--keep`
/// writes the file anew: without that the hunt searches, for minutes.
const GUARDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/simulation/guards.txt");

/// Hardly any world notices these. A free that only deletes is for an etcd without space, and a command that sets the
/// address aside needs space: etcd must get it between the read and the commit. In another store than the one that a
/// node's hint is of, the owner's record must have the very same revision; and in a store that has gone back during a
/// DEL, the tombstone of another DEL of that owner. An address that cools has its bit, so a head gives it only where
/// another tool has cleared the bit, and only to a run that asks for this address. And a ticket is made again under its
/// key only by a late copy of the request that took it.
const RARE: [&str; 5] = [
    "drop/Create/ticket",
    "free-delete-only/Absent/hold",
    "free-hinted/Value/meta",
    "bury/Value/tombstone",
    "serve/Absent/cooling",
];

#[test]
fn every_guard_that_is_left_out_is_noticed() {
    let built = || PathBuf::from(env!("CARGO_BIN_EXE_metes-sim"));
    let binary = env::var_os("SIM_BIN").map_or_else(built, PathBuf::from);
    let output =
        Command::new(binary).args(HUNT).args(["--known", GUARDS]).output().expect("metes-sim can be started");
    let said = String::from_utf8_lossy(&output.stdout);
    let first_words = |text: &str| -> BTreeSet<String> {
        let words = text.lines().filter_map(|line| line.split_whitespace().next());
        words.filter(|guard| !RARE.contains(guard)).map(str::to_owned).collect()
    };
    let guards = |how| {
        first_words(&said.lines().filter_map(|line| line.strip_prefix(how)).collect::<Vec<_>>().join("\n"))
    };
    let survivors = guards("survives ");
    assert!(survivors.is_empty(), "these can be left out, and no world notices: {survivors:?}");
    let known = fs::read_to_string(GUARDS).expect("the list of guards");
    assert_eq!(guards("noticed "), first_words(&known), "the transactions rely on other things");
}
