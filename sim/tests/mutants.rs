//! Each guard of each transaction is left out once, and a world must notice.
//!
//! SIM_BIN names an optimised `metes-sim`; without it the one of this build is taken, which is several times slower.

use std::collections::BTreeSet;
use std::env;
use std::path::PathBuf;
use std::process::Command;

/// Worlds in which the guards are collected, and in how many of each kind each must be noticed: in as many that know
/// nothing of it, and if none of them does, in as many that strike at it and at nothing else.
const HUNT: [&str; 6] = ["--seeds", "400", "--ops", "60000", "--mutants", "200"];

/// What transactions rely on, by step, kind and key: none may go missing, and who adds one adds it here.
const GUARDS: [&str; 128] = [
    "batch/Absent/cooling",
    "batch/Absent/ip",
    "batch/Create/ticket",
    "batch/Mod/cursor",
    "batch/Mod/ip",
    "batch/Mod/meta",
    "batch/Mod/owner",
    "batch/Mod/page",
    "batch/Mod/pod",
    "batch/Mod/summary",
    "batch/Mod/tombstone",
    "batch/Put/tombstone",
    "bury/Mod/tombstone",
    "bury/Mod/owner",
    "bury/Put/tombstone",
    "claim/Absent/ip",
    "claim/Create/ticket",
    "claim/Mod/tombstone",
    "claim/Mod/summary",
    "claim/Mod/ip",
    "claim/Mod/meta",
    "claim/Mod/owner",
    "claim/Mod/page",
    "claim/Mod/pod",
    "clear/Absent/cooling",
    "clear/Absent/ip",
    "clear/Mod/cooling",
    "clear/Mod/summary",
    "clear/Mod/page",
    "commit/Absent/cooling",
    "commit/Absent/ip",
    "commit/Create/ticket",
    "commit/Empty/nets",
    "commit/Empty/owners",
    "commit/Empty/pods",
    "commit/Lease/fence",
    "commit/Mod/cursor",
    "commit/Mod/tombstone",
    "commit/Mod/summary",
    "commit/Mod/ip",
    "commit/Mod/meta",
    "commit/Mod/owner",
    "commit/Mod/page",
    "commit/Mod/pod",
    "commit/Mod/pool",
    "commit/Mod/pools",
    "commit/Put/tombstone",
    "commit-first/Absent/ip",
    "commit-first/Absent/owner",
    "commit-first/Absent/pod",
    "commit-first/Absent/tail",
    "commit-first/Absent/tombstone",
    "commit-first/Lease/fence",
    "commit-first/Mod/cursor",
    "commit-first/Mod/page",
    "commit-first/Mod/pool",
    "commit-first/Mod/pools",
    "commit-first/Mod/summary",
    "commit-first/Value/meta",
    "delete-stale/Mod/tombstone",
    "delete-stale/Mod/summary",
    "delete-stale/Mod/meta",
    "delete-stale/Mod/page",
    "free-delete-only/Mod/ip",
    "free-delete-only/Mod/owner",
    "free-delete-only/Mod/pod",
    "free-first/Put/cooling",
    "free-first/Create/ticket",
    "free-first/Lease/fence",
    "free-first/Mod/summary",
    "free-first/Mod/ip",
    "free-first/Mod/owner",
    "free-first/Mod/page",
    "free-first/Mod/pod",
    "free-quick/Mod/tombstone",
    "free-quick/Mod/ip",
    "free-quick/Mod/owner",
    "free-quick/Mod/pod",
    "free-quick/Put/tombstone",
    "free/Absent/hold",
    "free/Create/ticket",
    "free/Mod/tombstone",
    "free/Mod/summary",
    "free/Mod/ip",
    "free/Mod/owner",
    "free/Mod/page",
    "free/Mod/pod",
    "free/Put/cooling",
    "free/Put/tombstone",
    "hold/Absent/ip",
    "hold/Mod/ip",
    "hold/Mod/meta",
    "hold/Mod/owner",
    "hold/Mod/page",
    "hold/Mod/summary",
    "pause/Empty/nets",
    "pause/Empty/owners",
    "pause/Empty/pods",
    "pause/Mod/meta",
    "end-of-queue/Value/tail",
    "identity/Absent/cluster",
    "lead/Absent/lead",
    "lead/Mod/lead",
    "mark/Identity/machine",
    "mark/Identity/store",
    "repair/Absent/cooling",
    "repair/Absent/ip",
    "repair/Mod/summary",
    "repair/Mod/ip",
    "repair/Mod/meta",
    "repair/Mod/page",
    "meta/Mod/meta",
    "owner/Identity/cluster",
    "owner/Identity/machine",
    "serve/Absent/ip",
    "serve/Absent/owner",
    "serve/Absent/pod",
    "serve/Absent/tombstone",
    "serve/Create/ticket",
    "serve/Mod/pool",
    "serve/Mod/pools",
    "ticket/Absent/ticket",
    "settle/Delete/ticket",
    "settle/Revoke/lease",
    "signal/Create/ticket",
    "spool/Identity/machine",
    "step-down/Mod/lead",
    "suspect/Mod/meta",
];

/// Few worlds show it, and fewer notice it: etcd without space refuses to set an address aside anew, so it must get
/// space between the read and the commit of a free that only deletes.
const RARE: &str = "free-delete-only/Absent/hold";

#[test]
fn every_guard_that_is_left_out_is_noticed() {
    let built = || PathBuf::from(env!("CARGO_BIN_EXE_metes-sim"));
    let binary = env::var_os("SIM_BIN").map_or_else(built, PathBuf::from);
    let output = Command::new(binary).args(HUNT).output().expect("metes-sim can be started");
    let said = String::from_utf8_lossy(&output.stdout);
    let guards = |how: &str| -> BTreeSet<String> {
        let lines = said.lines().filter_map(|line| line.strip_prefix(how)?.split_whitespace().next());
        lines.filter(|guard| *guard != RARE).map(str::to_owned).collect()
    };
    let survivors = guards("survives ");
    assert!(survivors.is_empty(), "nobody notices that these are left out: {survivors:?}");
    assert_eq!(guards("noticed "), GUARDS.map(str::to_owned).into(), "the transactions rely on other things");
}
