//! A minute of the soak: real processes, three members of etcd, a fault every 5 s. hack/soak runs it for longer.

use std::time::Duration;

use crate::soak::{CALLERS, Plan};

/// A loaded machine does a third of what a quiet one does.
const PROCESSES_MIN: u64 = 600;

#[test]
fn no_address_is_held_twice_in_a_minute_of_faults() {
    let _alone = support::alone();
    let seed = crate::soak::random_seed();
    let report = crate::soak::run(Plan { lasts: Duration::from_secs(60), seed, callers: CALLERS });
    assert!(report.is_sound(), "seed {seed}:\n{report}");
    assert!(
        report.processes() >= PROCESSES_MIN && report.faults() >= 6,
        "seed {seed}: too little was done:\n{report}"
    );
}
