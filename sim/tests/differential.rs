//! The model of etcd against a real etcd: the same requests, and equal answers.
//!
//! Each test has servers of its own, because the model knows everything that was ever written to its server.

#[path = "differential/generate.rs"]
mod generate;
#[path = "differential/pair.rs"]
mod pair;
#[path = "../../tests/support/mod.rs"]
mod support;

use std::env;
use std::time::{Duration, Instant};

use metes::store::keys::LeaseId;

use generate::{Random, Space};
use pair::Pair;
use support::{Etcd, in_parallel};

/// As many servers are asked at the same time.
const SERVERS: usize = 3;
const SEQUENCES: usize = 2_000;
const STEPS: usize = 20;
/// No lease of a sequence ends by itself.
const LONG: Duration = Duration::from_secs(3600);

/// Another seed makes other sequences.
fn seed() -> u64 {
    env::var("SIM_SEED").map_or(1, |seed| seed.parse().expect("SIM_SEED is a number"))
}

#[test]
fn random_sequences_are_answered_as_by_etcd() {
    let start = Instant::now();
    in_parallel(SERVERS, 0..SERVERS, |server| {
        let mut pair = Pair::new(Etcd::start());
        for number in (server..SEQUENCES).step_by(SERVERS) {
            sequence(&mut pair, number);
        }
    });
    eprintln!("{SEQUENCES} sequences in {:?}", start.elapsed());
}

/// Steps in a key space of their own.
fn sequence(pair: &mut Pair, number: usize) {
    let seed = seed().wrapping_mul(1_000_003).wrapping_add(number as u64);
    let mut random = Random::new(seed);
    let mut space = Space::new(number);
    let first = pair.model.revision();
    pair.forget(&format!("sequence {number}:"));
    for _ in 0..STEPS {
        step(pair, &mut random, &mut space);
    }
    pair.compare_changes();
    let made = (pair.model.revision() - first) as usize;
    pair.compare_past(&space.prefix, (0..2).map(|_| first + random.below(made + 1) as i64));
    for lease in space.leases {
        let _ = pair.revoke(lease);
    }
    pair.compare_changes();
}

fn step(pair: &mut Pair, random: &mut Random, space: &mut Space) {
    match random.below(100) {
        0..8 => {
            let lease = if random.chance(80) { space.next_lease() } else { space.some_lease(random) };
            if pair.grant(lease, LONG).is_ok() && !space.leases.contains(&lease) {
                space.leases.push(lease);
            }
        }
        8..13 => {
            let _ = pair.revoke(space.some_lease(random));
        }
        13..16 => {
            pair.lease_age(space.some_lease(random), LONG);
        }
        16..18 => short_lease(pair, random, space),
        18..20 => {
            let near = pair.model.revision() - 10 + random.below(12) as i64;
            pair.compact(near.max(1));
        }
        _ => {
            let _ = pair.txn(&space.txn(random, &pair.model));
        }
    }
}

/// etcd makes some times longer and refuses others; the lease is gone before any of them is over.
fn short_lease(pair: &mut Pair, random: &mut Random, space: &mut Space) {
    let lease: LeaseId = space.next_lease();
    space.leases.push(lease);
    let millis = *random.one_of(&[0, 999, 1000, 2999, 5_000, 9_000_000_000_000, 9_000_000_001_000]);
    let start = Instant::now();
    if pair.grant(lease, Duration::from_millis(millis)).is_ok() {
        pair.lease_age(lease, start.elapsed() + Duration::from_secs(1));
        let _ = pair.revoke(lease);
    }
}
