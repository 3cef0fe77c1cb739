//! Each guard of each transaction is left out once, and a world must notice.
//!
//! SIM_BIN names an optimised `metes-sim`; without it the one of this build is taken, which is several times slower.

use std::collections::BTreeSet;
use std::env;
use std::path::PathBuf;
use std::process::Command;

/// Worlds in which the guards are collected, and in how many of each kind each must be noticed: in as many that know
/// nothing of it, and if none of them does, in as many that strike at it and at nothing else.
const HUNT: [&str; 6] = ["--seeds", "200", "--ops", "30000", "--mutants", "100"];

/// What transactions rely on, by step, kind and key: none may go missing, and who adds one adds it here.
const GUARDS: [&str; 86] = [
    "bury/Mod/dead",
    "bury/Mod/own",
    "bury/Put/dead",
    "claim/Absent/ip",
    "claim/Create/place",
    "claim/DeleteIf/tail",
    "claim/Mod/dead",
    "claim/Mod/full",
    "claim/Mod/ip",
    "claim/Mod/meta",
    "claim/Mod/own",
    "claim/Mod/page",
    "claim/Mod/pod",
    "clear/Absent/ip",
    "clear/Mod/full",
    "clear/Mod/page",
    "commit/Absent/ip",
    "commit/Create/place",
    "commit/DeleteIf/tail",
    "commit/Empty/nets",
    "commit/Empty/owners",
    "commit/Empty/pods",
    "commit/Lease/fence",
    "commit/Mod/cursor",
    "commit/Mod/dead",
    "commit/Mod/full",
    "commit/Mod/ip",
    "commit/Mod/meta",
    "commit/Mod/own",
    "commit/Mod/page",
    "commit/Mod/pod",
    "delete-stale/Mod/dead",
    "delete-stale/Mod/full",
    "delete-stale/Mod/meta",
    "delete-stale/Mod/page",
    "evict/Create/place",
    "free-delete-only/Mod/ip",
    "free-delete-only/Mod/own",
    "free-delete-only/Mod/pod",
    "free-first/Create/place",
    "free-first/DeleteIf/tail",
    "free-first/Lease/fence",
    "free-first/Mod/full",
    "free-first/Mod/ip",
    "free-first/Mod/own",
    "free-first/Mod/page",
    "free-first/Mod/pod",
    "free-quick/Mod/dead",
    "free-quick/Mod/ip",
    "free-quick/Mod/own",
    "free-quick/Mod/pod",
    "free-quick/Put/dead",
    "free/Create/place",
    "free/DeleteIf/tail",
    "free/Mod/dead",
    "free/Mod/full",
    "free/Mod/ip",
    "free/Mod/own",
    "free/Mod/page",
    "free/Mod/pod",
    "free/Put/dead",
    "hold/Empty/nets",
    "hold/Empty/owners",
    "hold/Empty/pods",
    "hold/Mod/meta",
    "identity/Absent/cluster",
    "lead/Absent/lead",
    "lead/Mod/lead",
    "leave/DeleteIf/tail",
    "mark/Identity/machine",
    "mark/Identity/store",
    "mend/Absent/ip",
    "mend/Mod/full",
    "mend/Mod/ip",
    "mend/Mod/meta",
    "mend/Mod/page",
    "meta/Mod/meta",
    "owner/Identity/cluster",
    "owner/Identity/machine",
    "place/Absent/place",
    "settle/Delete/place",
    "settle/DeleteIf/tail",
    "settle/Revoke/lease",
    "spool/Identity/machine",
    "step-down/Mod/lead",
    "suspect/Mod/meta",
];

#[test]
fn every_guard_that_is_left_out_is_noticed() {
    let built = || PathBuf::from(env!("CARGO_BIN_EXE_metes-sim"));
    let binary = env::var_os("SIM_BIN").map_or_else(built, PathBuf::from);
    let output = Command::new(binary).args(HUNT).output().expect("metes-sim can be started");
    let said = String::from_utf8_lossy(&output.stdout);
    let guards = |how: &str| -> BTreeSet<String> {
        let lines = said.lines().filter_map(|line| line.strip_prefix(how)?.split_whitespace().next());
        lines.map(str::to_owned).collect()
    };
    let survivors = guards("survives ");
    assert!(survivors.is_empty(), "nobody notices that these are left out: {survivors:?}");
    assert_eq!(guards("noticed "), GUARDS.map(str::to_owned).into(), "the transactions rely on other things");
}
