//! The model of etcd against a real etcd: the same requests, and equal answers.
//!
//! Each test has servers of its own, because the model knows everything that was ever written to its server.

mod generate;
mod pair;

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::time::{Duration, Instant};

use etcd_client::{AlarmAction, AlarmOptions, AlarmType, CompactionOptions};
use metes_core::keys::{Bytes, LeaseId};
use metes_core::limits;
use metes_core::txn::{List, Op, Txn};
use metes_engine::kv::{Event, Failure, Watch};
use metes_sim::store::{LeaseRules, Model};

use generate::{Random, Space};
use pair::{LONG, Pair};
use support::{Etcd, in_parallel, wait_for};

/// The number of servers that are asked at the same time.
const SERVERS: usize = 3;
const SEQUENCES: usize = 2_000;
const STEPS: usize = 20;
/// The least number of answers of every kind, or the sequences prove less than they should.
const OF_EACH_KIND: usize = 40;
/// The time for etcd's own work.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// Another seed makes other sequences.
fn seed() -> u64 {
    env::var("SIM_SEED").map_or(1, |seed| seed.parse().expect("SIM_SEED is a number"))
}

#[test]
fn random_sequences_are_answered_as_by_etcd() {
    let tallies = in_parallel(SERVERS, 0..SERVERS, |server| {
        let mut pair = Pair::new(Etcd::start());
        for number in (server..SEQUENCES).step_by(SERVERS) {
            let mut sequence = Sequence::new(number);
            sequence.steps(&mut pair);
            sequence.end(&mut pair);
        }
        pair.tally
    });
    let mut tally: BTreeMap<String, usize> = BTreeMap::new();
    for (kind, count) in tallies.into_iter().flatten() {
        *tally.entry(kind).or_default() += count;
    }
    assert_eq!(tally.len(), 15, "kinds of answers: {tally:#?}");
    assert!(tally.values().all(|count| *count >= OF_EACH_KIND), "too few of a kind: {tally:#?}");
}

/// Random steps in a key space of their own.
struct Sequence {
    random: Random,
    space: Space,
    first: i64,
}

impl Sequence {
    fn new(number: usize) -> Self {
        let seed = seed().wrapping_mul(1_000_003).wrapping_add(number as u64);
        Self { random: Random::new(seed), space: Space::new(number), first: 0 }
    }

    fn steps(&mut self, pair: &mut Pair) {
        self.first = pair.model.revision();
        pair.forget(&format!("in the space {:?}:", String::from_utf8_lossy(&self.space.prefix)));
        for _ in 0..STEPS {
            self.step(pair);
        }
        pair.compare_changes();
    }

    fn end(mut self, pair: &mut Pair) {
        let made = (pair.model.revision() - self.first) as usize;
        let revisions = [0, 0].map(|_| self.first + self.random.below(made + 1) as i64);
        pair.compare_past(&self.space.prefix, revisions);
        for lease in self.space.leases {
            // Some have ended before.
            let _ = pair.revoke(lease);
        }
        pair.compare_changes();
    }

    fn step(&mut self, pair: &mut Pair) {
        let Self { random, space, .. } = self;
        // Done or refused: all that counts is that the model does the same.
        match random.below(100) {
            0..8 => {
                let lease = if random.chance(80) { space.next_lease() } else { space.some_lease(random) };
                if pair.grant(lease, LONG).is_ok() {
                    space.leases.push(lease);
                }
            }
            8..13 => {
                let _ = pair.revoke(space.some_lease(random));
            }
            13..16 => {
                pair.lease_age(space.some_lease(random), LONG);
            }
            16..18 => self.odd_lease(pair),
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
    fn odd_lease(&mut self, pair: &mut Pair) {
        let lease = self.space.next_lease();
        self.space.leases.push(lease);
        let millis = [0, 999, 1000, 2999, 5_000, 9_000_000_000_000, 9_000_000_001_000];
        let start = Instant::now();
        if pair.grant(lease, Duration::from_millis(*self.random.one_of(&millis))).is_ok() {
            pair.lease_age(lease, start.elapsed());
            let _ = pair.revoke(lease);
        }
    }
}

/// Events of one key come in order; etcd gives no order to events of one revision in different watches.
#[test]
fn watches_show_what_happens_as_in_etcd() {
    let mut pair = Pair::new(Etcd::start());
    let mut watches = Vec::new();
    for number in 0..20 {
        let mut sequence = Sequence::new(number);
        // Some changes before, of which it shows none.
        sequence.steps(&mut pair);
        let keys = sequence.space.some_keys(3);
        let watch = pair.watch(&keys);
        assert_eq!(watch.since(), pair.model.revision());
        sequence.steps(&mut pair);
        watches.push((watch, keys));
        sequence.end(&mut pair);
    }
    let mut kinds = BTreeSet::new();
    for (watch, keys) in &mut watches {
        let model = pair.model.events_since(watch.since(), keys);
        let real: Vec<_> = model.iter().map(|_| pair.next(watch).expect("the watch lives")).collect();
        let of = |key: &Bytes, events: &[Event]| -> Vec<Event> {
            events.iter().filter(|event| event.key == *key).cloned().collect()
        };
        for key in keys {
            assert_eq!(of(key, &model), of(key, &real));
        }
        kinds.extend(real.iter().map(|event| event.entry.as_ref().map(|entry| entry.lease != 0)));
    }
    assert_eq!(kinds.len(), 3, "deletes, puts and puts on leases: {kinds:?}");
    pair.restart();
    for (watch, _) in &mut watches {
        assert_eq!((pair.next(watch), pair.next(watch)), (None, None), "the connection is gone");
    }
}

/// Many spaces share one wait. If the machine was too slow to have all leases at the same time, it is tried again.
#[test]
fn leases_end_as_in_etcd() {
    for factor in [1, 2, 4] {
        let short_ttls = SHORT_TTLS.map(|ttl| ttl * factor);
        let mut pair = Pair::new(Etcd::start());
        let start = Instant::now();
        let leases = lease_out(&mut pair, short_ttls);
        if start.elapsed() < short_ttls[0] {
            return compare_ends(&mut pair, start, &leases, short_ttls);
        }
    }
    panic!("setting up took longer than the leases live, three times");
}

const SHORT_TTLS: [Duration; 3] = [Duration::from_secs(4), Duration::from_secs(5), Duration::from_secs(6)];
const SPACES: usize = 40;

/// Leases of all kinds, and keys that moved among them.
fn lease_out(pair: &mut Pair, short_ttls: [Duration; 3]) -> BTreeMap<LeaseId, Duration> {
    let mut leases = BTreeMap::new();
    for number in 0..SPACES {
        let mut random = Random::new(seed().wrapping_add(number as u64));
        let mut space = Space::new(number);
        for ttl in short_ttls.into_iter().chain([LONG]) {
            let lease = space.next_lease();
            pair.grant(lease, ttl).expect("a lease is granted");
            space.leases.push(lease);
            leases.insert(lease, ttl);
        }
        for _ in 0..8 {
            let _ = pair.txn(&space.txn(&mut random, &pair.model));
        }
    }
    // This one gets 2 s of etcd, which may not end before everything is set up either.
    let shortest = LeaseId(i64::MAX);
    pair.grant(shortest, Duration::from_secs(1)).expect("a lease is granted");
    pair.txn(&put(b"/shortest", b"", Some(shortest))).expect("a key is written");
    leases.insert(shortest, Duration::from_secs(2));
    pair.compare_changes();
    leases
}

fn compare_ends(
    pair: &mut Pair,
    start: Instant,
    leases: &BTreeMap<LeaseId, Duration>,
    short_ttls: [Duration; 3],
) {
    let before = pair.model.revision();
    let lease_of: BTreeMap<Bytes, LeaseId> =
        pair.model.entries().map(|(key, record)| (key.to_vec(), LeaseId(record.lease))).collect();
    // The model has granted all at the same time: each ends when its time is over, and not before.
    let moment = Duration::from_nanos(1);
    let mut ended = 0;
    for ttl in [Duration::from_secs(2)].into_iter().chain(short_ttls) {
        pair.model.pass_time(ttl - moment - pair.model.now());
        assert_eq!(pair.model.changes_since(before).count(), ended, "{ttl:?} is not over");
        pair.model.pass_time(moment);
        let all = pair.model.changes_since(before).count();
        assert!(all > ended, "{ttl:?} is over");
        ended = all;
    }

    let mut groups: BTreeMap<i64, Vec<Bytes>> = BTreeMap::new();
    let mut seen = 0;
    while seen < ended {
        for (key, revision) in pair.events(1) {
            let ttl = leases[&lease_of[&key]];
            assert!(start.elapsed() >= ttl, "{key:?} ended before {ttl:?}");
            groups.entry(revision).or_default().push(key);
            seen += 1;
        }
    }
    let mut modelled: BTreeMap<i64, Vec<Bytes>> = BTreeMap::new();
    for (key, revision) in pair.model.changes_since(before) {
        modelled.entry(revision).or_default().push(key.to_vec());
    }
    // Each lease took its keys under one revision, in order; which lease was first is not certain.
    assert!(groups.keys().eq(modelled.keys()), "revisions: {groups:?}, not {modelled:?}");
    let all = |groups: BTreeMap<i64, Vec<Bytes>>| groups.into_values().collect::<BTreeSet<_>>();
    assert_eq!(all(groups), all(modelled));

    for (lease, ttl) in leases {
        // Leases without keys may end a little later than the last that had some.
        if *ttl < LONG {
            wait_for("a lease to end", WAIT_MAX, || {
                pair.real_age(*lease).map_or(Ok(()), |age| Err(format!("{age:?}")))
            });
            pair.txn(&put(b"/late", b"", Some(*lease))).expect_err("the lease has ended");
            pair.grant(*lease, LONG).expect("its id is free again");
        } else {
            pair.lease_age(*lease, start.elapsed());
        }
    }
    pair.txn(&Txn::read(vec![Op::List(List::prefix(b"/", 0))])).expect("all is read");
}

#[test]
fn a_new_leader_starts_leases_anew_as_in_etcd() {
    let mut pair = Pair::new(Etcd::start());
    let lease = LeaseId(7);
    let ttl = Duration::from_secs(60);
    let before = Instant::now();
    pair.grant(lease, ttl).expect("a lease is granted");
    let after = Instant::now();
    pair.txn(&put(b"/key", b"", Some(lease))).expect("a key is written");
    wait_for("two seconds of a lease", WAIT_MAX, || {
        let age = pair.real_age(lease).expect("the lease lives");
        if age.age() >= Duration::from_secs(2) { Ok(()) } else { Err(format!("{age:?}")) }
    });

    // The moment in which etcd looked is somewhere in between.
    pair.model.pass_time(after.elapsed());
    let age = pair.lease_age(lease, before.elapsed()).expect("the lease lives");
    assert!(age.age() >= Duration::from_secs(2), "{age:?}");

    let restarted = Instant::now();
    pair.restart();
    let age = pair.lease_age(lease, restarted.elapsed()).expect("the lease lives");
    assert!(age.left + restarted.elapsed() + Duration::from_secs(1) >= ttl, "{age:?}");
    pair.revoke(lease).expect("it can be revoked");
    pair.compare_changes();
    pair.txn(&Txn::read(vec![Op::List(List::prefix(b"/", 0))])).expect("all is read");
}

/// etcd does not say which of them get more time.
#[test]
fn a_new_leader_spreads_many_leases_as_in_etcd() {
    let mut pair = Pair::new(Etcd::start());
    let leases: Vec<LeaseId> = (1..=3_000).map(LeaseId).collect();
    for lease in &leases {
        pair.grant(*lease, Duration::from_secs(600)).expect("a lease is granted");
    }
    let alone = LeaseId(9_000);
    pair.grant(alone, LONG).expect("a lease is granted");
    let restarted = Instant::now();
    pair.restart();
    let end = |lease: &LeaseId| restarted.elapsed() + pair.real_rest(*lease);
    let mut real: Vec<Duration> = leases.iter().chain([&alone]).map(end).collect();
    let mut model: Vec<Duration> =
        leases.iter().chain([&alone]).map(|lease| pair.model.lease_rest(*lease).expect("it lives")).collect();
    real.sort_unstable();
    model.sort_unstable();
    // The rest of a lease is told without the fraction of a second, and the moment of the election is not known.
    let [first, second] = [&real, &model].map(|ends| ends[0]);
    for (real, model) in real.iter().zip(&model) {
        let [real, model] = [*real - first, *model - second];
        assert!(real.abs_diff(model) < Duration::from_millis(1500), "{real:?}, not {model:?}");
    }
    let spread = model[2_999] - second;
    assert!(spread >= Duration::from_secs(3), "{spread:?}");
}

#[test]
fn a_long_election_timeout_makes_leases_longer_as_in_etcd() {
    // etcd elects itself within this time, when it is started and when it is started again.
    let election_timeout = Duration::from_secs(24);
    let mut pair = Pair::new(Etcd::with_args(&["--election-timeout=24000", "--heartbeat-interval=1000"]));
    pair.model =
        Model::with_history(10).with_leases(LeaseRules { election_timeout, ..LeaseRules::default() });
    let [short, long] = [LeaseId(1), LeaseId(2)];
    assert_eq!(pair.grant(short, limits::LEASE_TTL), Ok(Duration::from_secs(36)));
    assert_eq!(pair.grant(long, limits::TOMBSTONE_TTL), Ok(limits::TOMBSTONE_TTL));
    let restarted = Instant::now();
    pair.restart();
    for lease in [short, long] {
        let (real, model) = (pair.real_rest(lease), pair.model.lease_rest(lease).expect("it lives"));
        let least = model.saturating_sub(restarted.elapsed() + Duration::from_secs(1));
        assert!((least..=model).contains(&real), "{real:?}, not {model:?}");
    }
}

const QUOTA: u64 = 1 << 20;

/// It writes to its file when it is asked for a hash or revokes a lease. No timer makes it write before.
fn small_server() -> Pair {
    Pair::new(Etcd::with_args(&[&format!("--quota-backend-bytes={QUOTA}"), "--backend-batch-interval=1h"]))
}

#[test]
fn without_space_it_answers_as_etcd() {
    let mut pair = small_server();
    let mut sequences: Vec<Sequence> = (0..60).map(Sequence::new).collect();
    let mut all = |pair: &mut Pair| sequences.iter_mut().for_each(|sequence| sequence.steps(pair));
    all(&mut pair);
    pair.compare_alarms();

    fill(&mut pair);
    pair.model.set_space(true);
    pair.tally.clear();
    pair.txn(&put(b"/summary/a", b"", None)).expect_err("there is no space");
    pair.compare_alarms();
    all(&mut pair);
    let tally = &pair.tally;
    for kind in ["write, true", "txn: etcd is out of space: etcdserver: mvcc: database space exceeded"] {
        assert!(tally.get(kind).is_some_and(|count| *count >= OF_EACH_KIND), "{kind}: {tally:#?}");
    }
    let grant = "grant: Err(NoSpace(\"etcdserver: mvcc: database space exceeded\"))";
    assert!(tally.get(grant).is_some_and(|count| *count >= OF_EACH_KIND), "{grant}: {tally:#?}");

    empty(&mut pair);
    pair.model.set_space(false);
    pair.compare_alarms();
    all(&mut pair);
    for sequence in sequences {
        sequence.end(&mut pair);
    }
}

/// Fills the store to beyond its quota with a last write that just fits.
fn fill(pair: &mut Pair) {
    while settled_size(pair) < QUOTA {
        fill_a_bit(pair, limits::TXN_OPS);
    }
}

/// A value of which etcd's file has one in each page of 4 kB: the file grows by much more than etcd reckons.
const FILLER: usize = 2100;
/// The size that etcd reckons for it: 256 bytes, and key and value.
const RECKONED: u64 = 256 + 13 + FILLER as u64;

/// One write of as many values as fit, or of `most`.
fn fill_a_bit(pair: &mut Pair, most: usize) {
    let left = QUOTA - settled_size(pair);
    let count = most.min(((left - 1) / RECKONED) as usize);
    let first = fillers(pair).count();
    let filler = |number: usize| Op::Put(format!("/filler/{number:05}").into(), vec![b'x'; FILLER], None);
    let then = (first..first + count).map(filler).collect();
    pair.txn(&Txn { then, ..Txn::default() }).expect("it fits");
}

fn fillers(pair: &Pair) -> impl Iterator<Item = Bytes> {
    let keys = pair.model.entries().map(|(key, _)| key.to_vec());
    keys.filter(|key| key.starts_with(b"/filler/"))
}

/// The size of the file. Asked for a hash, etcd writes what it has not written yet.
fn settled_size(pair: &mut Pair) -> u64 {
    pair.real(async |client| client.hash().await);
    pair.real(async |client| client.status().await).db_size() as u64
}

/// Deletes the fillers, gives the space back and disarms the alarm.
fn empty(pair: &mut Pair) {
    let keys: Vec<Bytes> = fillers(pair).collect();
    for keys in keys.chunks(limits::TXN_OPS) {
        let then = keys.iter().cloned().map(Op::Delete).collect();
        pair.txn(&Txn { then, ..Txn::default() }).expect("deleting needs no space");
    }
    let revision = pair.model.revision();
    let physical = CompactionOptions::new().with_physical();
    pair.real(async |client| client.compact(revision, Some(physical)).await);
    pair.model.compact(revision);
    pair.real(async |client| client.defragment().await);
    pair.real(async |client| {
        let alarms = client.alarm(AlarmAction::Get, AlarmType::Nospace, None).await?;
        for alarm in alarms.alarms() {
            let mut member = AlarmOptions::new();
            member.with_member(alarm.member_id());
            client.alarm(AlarmAction::Deactivate, AlarmType::Nospace, Some(member)).await?;
        }
        Ok(())
    });
}

/// Writes that are on their way when the space runs out are applied and refused at once. They must be on their way in
/// the moment in which etcd writes to its file, so it is tried until some are.
#[test]
fn what_is_applied_without_space_is_told_as_by_etcd() {
    assert!((0..50).any(|_| applied_late() > 0), "no write was applied and refused");
}

/// True if etcd's answer is the model's. An answer that did not come in time stays unknown.
fn is_told<T: PartialEq>(model: &Result<T, Failure>, answer: &Result<T, Failure>) -> bool {
    model == answer || matches!(answer, Err(Failure::Unknown(_)))
}

/// The number of writes that were applied and refused.
fn applied_late() -> usize {
    let mut pair = small_server();
    let last = 48;
    while settled_size(&mut pair) + last as u64 * RECKONED < QUOTA {
        fill_a_bit(&mut pair, last / 4);
    }
    let lease = LeaseId(1);
    let leases: Vec<LeaseId> = (2..12).map(LeaseId).collect();
    pair.grant(lease, LONG).expect("a lease is granted");
    let key = |number: usize| format!("/storm/{number:05}").into_bytes();
    let txns: Vec<Txn> = (0..100).map(|number| put(&key(number), b"x", None)).collect();
    // The file has no space for all of this. Until etcd writes to it, it takes the next writes for affordable.
    fill_a_bit(&mut pair, last);
    let (answers, grants) = pair.storm(&txns, lease, &leases);

    let names = Txn::read(vec![Op::List(List { keys_only: true, ..List::prefix(b"/storm/", 0) })]);
    let mut applied: Vec<(i64, usize)> = Vec::new();
    for entry in &pair.real_txn(&names).found[0].entries {
        let number = (0..txns.len()).find(|number| key(*number) == entry.key);
        applied.push((entry.mod_revision, number.expect("nobody else writes")));
    }
    applied.sort_unstable();
    let mut late = 0;
    for (_, number) in &applied {
        let answer = &answers[*number];
        pair.model.set_space(false);
        if matches!(answer, Err(Failure::NoSpace(_))) {
            pair.model.set_space_noticed_late();
            late += 1;
        }
        let model = pair.model.txn(&txns[*number]);
        assert!(is_told(&model, answer), "{answer:?}, not {model:?}");
    }

    for (lease, answer) in leases.iter().zip(&grants) {
        match (answer, pair.real_age(*lease)) {
            (_, None) => pair.model.set_space(true),
            (Ok(_), _) => pair.model.set_space(false),
            _ => pair.model.set_space_noticed_late(),
        }
        let model = pair.model.grant(*lease, LONG);
        assert!(is_told(&model, answer), "{answer:?}, not {model:?}");
        pair.lease_age(*lease, LONG);
    }

    let done: BTreeSet<usize> = applied.into_iter().map(|(_, number)| number).collect();
    if done.len() < txns.len() || late > 0 {
        pair.model.set_space(true);
        pair.compare_alarms();
    }
    for number in (0..txns.len()).filter(|number| !done.contains(number)) {
        let (model, answer) = (pair.model.txn(&txns[number]), &answers[number]);
        assert!(is_told(&model, answer), "{answer:?}, not {model:?}");
    }
    pair.compare_changes();
    pair.txn(&names).expect("all is read");
    late
}

fn put(key: &[u8], value: &[u8], lease: Option<LeaseId>) -> Txn {
    Txn { then: vec![Op::Put(key.to_vec(), value.to_vec(), lease)], ..Txn::default() }
}
