use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use tokio::time::Instant;

use super::accept::{Accepted, BeginError, accept, begin, finish};
use super::fixture::{self, addr, bits, entry, keys, owner, page};
use super::repair::{Repaired, repair};
use super::*;
use metes_core::keys::{Bytes, Keys, LeaseId};
use metes_core::pool::bitmap::Bits;
use metes_core::pool::range::fixtures::{cidr, set};
use metes_core::pool::{AskedRanges, Cooling, Owner, Page, PodIndex, RangeCounts, Record};
use metes_core::txn::{Compare, Entry, Found, List, Op, Reply, Txn};
use metes_engine::kv::{About, Event, LeaseAge, Watch};
use metes_engine::prefix::MetaError;
use metes_engine::walk::walk;

fn judge(entries: &[Entry]) -> Report {
    Audit::new(&keys()).judge(entries.iter())
}

fn net() -> NetworkName {
    NetworkName::default()
}

/// The clean tree with one key changed by `change`, which takes it away by returning none.
fn with(key: &Bytes, change: impl Fn(Entry) -> Option<Entry>) -> Vec<Entry> {
    let entries = fixture::clean().into_iter();
    entries.filter_map(|entry| if entry.key == *key { change(entry) } else { Some(entry) }).collect()
}

fn without(key: &Bytes) -> Vec<Entry> {
    with(key, |_| None)
}

fn valued(key: &Bytes, value: impl Into<Vec<u8>>) -> Vec<Entry> {
    let value = value.into();
    with(key, |entry| Some(Entry { value: value.clone(), ..entry }))
}

fn leased(key: &Bytes, lease: i64) -> Vec<Entry> {
    with(key, |entry| Some(Entry { lease, ..entry }))
}

fn and(key: Bytes, value: Vec<u8>) -> Vec<Entry> {
    let mut entries = fixture::clean();
    entries.push(entry(key, value));
    entries
}

fn names(findings: &[Finding]) -> Vec<&'static str> {
    findings.iter().map(|finding| finding.kind.name()).collect()
}

fn key_of(part: &str) -> Bytes {
    let keys: Vec<Bytes> = fixture::clean().into_iter().map(|entry| entry.key).collect();
    keys.into_iter().find(|key| String::from_utf8_lossy(key).contains(part)).expect("a key")
}

#[test]
fn a_clean_tree_has_nothing_to_report() {
    let report = judge(&fixture::clean());
    assert_eq!((names(&report.violations), names(&report.harmless)), (vec![], vec![]));
    assert!(report.repairs.is_empty() && report.stray_bits.is_empty());
    let counts = Counts {
        networks: 1,
        reservations: 2,
        cooling: 0,
        owners: 1,
        pods: 1,
        pages: 1,
        summaries: 0,
        tombstones: 1,
        tickets: 1,
    };
    assert_eq!(report.counts, counts);
    assert!(judge(&[]).violations.is_empty());
}

#[test]
fn what_does_not_decode_is_named_by_its_kind_and_nothing_else() {
    for (part, name) in [
        ("/page/", "undecodable-page"),
        ("/ip/", "undecodable-reservation"),
        ("/owner/", "undecodable-owner"),
        ("/pod/", "undecodable-pod-index"),
        ("/tombstone/", "undecodable-tombstone"),
        ("/cursor/", "undecodable-cursor"),
        ("/meta", "undecodable-meta"),
    ] {
        let report = judge(&valued(&key_of(part), "garbage"));
        assert_eq!(names(&report.violations), [name], "{part}");
        assert!(report.repairs.is_empty(), "{part}");
    }
    let summary = keys().summary(&net(), page().summary());
    assert_eq!(names(&judge(&and(summary, vec![0; 511])).violations), ["undecodable-summary"]);
}

/// A newer program may have other records, other keys, and other rules for leases.
#[test]
fn what_a_newer_program_wrote_is_named_as_newer_and_nothing_else() {
    let newer = r#"{"v":2,"later":true}"#;
    for part in ["/ip/", "/owner/", "/pod/", "/tombstone/", "/cursor/", "/ticket/", "/fence/"] {
        for lease in [0, 7] {
            let key = key_of(part);
            let change = |entry| Some(Entry { lease, value: newer.into(), ..entry });
            let report = judge(&with(&key, change));
            // Their values are not read, and on a lease nothing is wrong with them.
            let is_unread = ["/ticket/", "/fence/"].contains(&part) && lease != 0;
            let expected = if is_unread { &[][..] } else { &["record-newer"] };
            assert_eq!(names(&report.violations), expected, "{part} {lease}");
            assert!(report.repairs.is_empty() && report.harmless.is_empty(), "{part} {lease}");
        }
    }
    for key in
        [b"/metes/v1/later/x".to_vec(), keys().pool(&"a".parse().expect("a name")), keys().pool_changes()]
    {
        let report = judge(&and(key.clone(), newer.into()));
        assert_eq!(names(&report.violations), ["record-newer"], "{}", String::from_utf8_lossy(&key));
        let what = "is of version 2, and this metes reads version 1: use a metes of that version";
        assert_eq!(report.violations[0].what, what);
    }
}

/// The record of a newer program may list any address, so nothing but a metes of that version may clear its bit.
#[test]
fn a_bit_that_a_newer_programs_record_may_need_is_not_a_stray_one() {
    let page = keys().page(&net(), page());
    let stray = |owner: &str| {
        let mut tree = valued(&page, bits([1, 2, 9]));
        tree.iter_mut().filter(|entry| entry.key == keys().owner(&fixture::owner())).for_each(|entry| {
            entry.value = owner.into();
        });
        let whole = judge(&tree);
        let of_bits = wait(audit_bits(on(&Model::new(tree)), BTreeSet::new())).expect("reads");
        assert_eq!(of_bits.stray_bits, whole.stray_bits);
        (whole.stray_bits.len(), whole.repairs.is_empty())
    };
    assert_eq!(stray(r#"{"v":2}"#), (0, true));
    assert_eq!(stray("garbage"), (1, false));
}

#[test]
fn whatever_hangs_on_the_wrong_lease_is_named() {
    for (part, lease, name) in [
        ("/ip/", 7, "reservation-on-lease"),
        ("/owner/", 7, "record-on-lease"),
        ("/pod/", 7, "record-on-lease"),
        ("/page/", 7, "record-on-lease"),
        ("/cursor/", 7, "record-on-lease"),
        ("/meta", 7, "record-on-lease"),
        ("/tombstone/", 0, "stale-without-lease"),
        ("/ticket/", 0, "stale-without-lease"),
        ("/tail/", 0, "stale-without-lease"),
        ("/fence/", 0, "stale-without-lease"),
    ] {
        assert_eq!(names(&judge(&leased(&key_of(part), lease)).violations), [name], "{part}");
    }
}

#[test]
fn meta_says_whether_the_store_may_be_used() {
    let meta = keys().meta();
    for (value, name) in [
        (r#"{"v":2,"min_writer":1,"id":"0f","epoch":1}"#, "schema-newer"),
        (r#"{"v":1,"min_writer":2,"id":"0f","epoch":1}"#, "schema-newer"),
        (r#"{"v":1,"min_writer":1,"id":"0f","epoch":3,"suspect":3}"#, "suspect"),
    ] {
        let report = judge(&valued(&meta, value));
        assert_eq!(names(&report.violations), [name], "{value}");
        assert_eq!(report.repairs.allowed(), name == "suspect", "{value}");
    }
    assert!(
        !judge(&valued(&meta, r#"{"v":1,"min_writer":1,"id":"0f","epoch":1,"paused":"move"}"#))
            .repairs
            .allowed()
    );
    assert_eq!(names(&judge(&without(&meta)).violations), ["meta-missing"]);
}

#[test]
fn bits_reservations_and_owners_are_held_against_each_other() {
    let keys = keys();
    let own = keys.owner(&owner());
    let index = fixture::index_key();
    let first = keys.ip(&net(), addr("10.0.0.1"));
    let page_key = keys.page(&net(), page());
    let summary = keys.summary(&net(), page().summary());
    let other = Owner { container_id: "c2".parse().expect("a container id"), ..owner() };
    let others_record = fixture::record(&["10.0.0.1"]).encode();
    let mut another_pod = fixture::record(&["10.0.0.1", "10.0.0.2"]);
    another_pod.labels.pod.uid = "u-2".parse().ok();
    for (entries, expected) in [
        (valued(&page_key, bits([2])), vec!["reservation-without-bit"]),
        (without(&page_key), vec!["reservation-without-bit"; 2]),
        (without(&first), vec!["owner-without-reservation"]),
        (
            without(&own),
            vec!["reservation-without-owner", "reservation-without-owner", "pod-index-without-owner"],
        ),
        (valued(&own, fixture::record(&["10.0.0.1"]).encode()), vec!["reservation-without-owner"]),
        (without(&index), vec![]),
        (valued(&own, another_pod.encode()), vec!["pod-index-mismatch"]),
        (and(keys.owner(&other), others_record), vec!["owner-without-reservation", "address-listed-twice"]),
        (and(summary, bits([page().bit()])), vec!["summary-says-full"]),
        (and(b"/metes/v1/stranger".to_vec(), Vec::new()), vec!["foreign-key"]),
    ] {
        let mut found = names(&judge(&entries).violations);
        let mut expected = expected;
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected);
    }
}

#[test]
fn an_owner_whose_younger_sandbox_is_gone_may_lack_its_index() {
    let index = fixture::index_key();
    let report = judge(&without(&index));
    assert_eq!(
        (names(&report.violations), names(&report.harmless)),
        (vec![], vec!["owner-without-pod-index"])
    );
}

/// It reads no reservations for a fault of the index, and has time of its own.
#[tokio::test(start_paused = true)]
async fn a_second_look_reads_what_it_needs_in_its_own_time() {
    let [index, ip] = [fixture::index_key(), keys().ip(&net(), addr("10.0.0.1"))];
    let tree = fixture::clean().len();
    let no_owner = Owner::named(["east", "n1", "c9", "net1"]).expect("plain names");
    for (what, entries, read) in [
        ("nothing", fixture::clean(), tree),
        ("its owner again, and the index, which is empty", without(&index), tree - 1 + 1),
        ("its owner and the index that does not decode", valued(&index, "garbage"), tree + 2),
        ("its owner and the networks", without(&ip), tree - 1 + 4),
        ("its owner and the index", valued(&index, PodIndex::new(&no_owner).encode()), tree + 2),
    ] {
        let model = Model { takes: Duration::from_secs(1), ..Model::new(entries) };
        let session = on(&model).by(Instant::now() + Duration::from_millis(2500));
        audit(session).await.expect("it has time");
        assert_eq!(model.read.get(), read, "{what}");
    }
}

#[test]
fn an_index_may_name_a_younger_owner_of_the_same_pod_only() {
    let keys = keys();
    let younger = Owner { container_id: "c2".parse().expect("a container id"), ..owner() };
    let index = fixture::index_key();
    let mut entries = valued(&index, PodIndex::new(&younger).encode());
    assert_eq!(names(&judge(&entries).violations), ["pod-index-without-owner"]);
    entries.push(entry(keys.owner(&younger), fixture::record(&[]).encode()));
    assert_eq!(names(&judge(&entries).violations), ["pod-index-mismatch"]);
}

#[test]
fn lone_bits_and_unsaid_full_pages_are_harmless() {
    let page_key = keys().page(&net(), page());
    let report = judge(&valued(&page_key, bits([1, 2, 9])));
    assert_eq!((names(&report.violations), names(&report.harmless)), (vec![], vec!["stray-bit"]));
    assert_eq!(report.stray_bits, [(net(), addr("10.0.0.9"))]);
    assert_eq!(report.harmless[0].what, "1 bit is set without a reservation: 10.0.0.9");
    let report = judge(&valued(&page_key, bits(0..4096)));
    assert_eq!(names(&report.harmless), ["stray-bit", "summary-misses-full"]);
    assert!(
        report.harmless[0].what.starts_with("4094 bits are set without a reservation: 10.0.0.0, 10.0.0.3,")
    );
}

#[test]
fn a_repair_leaves_the_bit_of_what_an_owner_lists_without_a_reservation() {
    let key = keys().ip(&net(), addr("10.0.0.1"));
    let orphans = std::rc::Rc::new(std::collections::BTreeSet::new());
    for audit in [Audit::new(&keys()), Audit::of_bits(&keys(), orphans)] {
        let report = audit.judge(without(&key).iter());
        assert!(report.repairs.is_empty() && report.stray_bits.is_empty(), "{report:?}");
        assert_eq!(names(&report.harmless), [""; 0]);
    }
    // A network that only a record names has no key.
    let elsewhere = NetworkName::stored("elsewhere").expect("a name");
    let mut record = fixture::record(&["10.0.0.9"]);
    record.addresses[0].network = Some(elsewhere);
    let report = judge(&and(
        keys().owner(&Owner::named(["east", "n1", "c2", "net1"]).expect("names")),
        record.encode(),
    ));
    assert_eq!((names(&report.violations), report.counts.networks), (vec!["owner-without-reservation"], 1));
    // When the record does not list it any more, nobody can be using it.
    let own = keys().owner(&owner());
    let other = fixture::record(&["10.0.0.2"]).encode();
    let entries: Vec<Entry> = without(&key).into_iter().filter(|entry| entry.key != own).collect();
    let entries = [entries, vec![entry(own, other)]].concat();
    let report = judge(&entries);
    assert_eq!(report.stray_bits, [(net(), addr("10.0.0.1"))]);
    let model = Model::new(entries);
    let repaired = wait(repair(on(&model), report.repairs)).expect("it is repaired");
    assert_eq!((repaired.cleared, repaired.lost), (1, 0));
}

/// A store that is a map. It carries out one transaction after the other, and `meddle` runs
/// before each, as others would write in between.
struct Model {
    tree: RefCell<BTreeMap<Bytes, Entry>>,
    revision: RefCell<i64>,
    meddle: fn(&mut BTreeMap<Bytes, Entry>),
    /// The number of reads of a pinned revision that are yet to fail.
    compactions: Cell<usize>,
    /// The most keys of an answer.
    most: usize,
    /// The number of answers that had more.
    refused: Cell<usize>,
    /// The time that each answer takes.
    takes: Duration,
    /// The number of keys read.
    read: Cell<usize>,
}

struct NoWatch;

impl Watch for NoWatch {
    fn since(&self) -> i64 {
        0
    }

    async fn next(&mut self) -> Option<Event> {
        None
    }
}

impl Model {
    fn new(entries: Vec<Entry>) -> Self {
        let tree = entries.into_iter().map(|entry| (entry.key.clone(), entry)).collect();
        Self {
            tree: RefCell::new(tree),
            revision: RefCell::new(1),
            meddle: |_| {},
            compactions: Cell::new(0),
            most: usize::MAX,
            refused: Cell::new(0),
            takes: Duration::ZERO,
            read: Cell::new(0),
        }
    }

    fn holds(tree: &BTreeMap<Bytes, Entry>, compare: &Compare) -> bool {
        compare.is_met_by(match compare {
            Compare::Empty(prefix) => tree.values().find(|entry| entry.key.starts_with(prefix)),
            of_one_key => tree.get(of_one_key.key()),
        })
    }

    fn apply(tree: &mut BTreeMap<Bytes, Entry>, op: &Op, revision: i64) -> Found {
        match op {
            Op::List(list) => {
                let all: Vec<Entry> = tree
                    .range(list.start.clone()..list.end.clone())
                    .map(|(_, entry)| entry.clone())
                    .collect();
                let count = all.len() as i64;
                return Found::read(all.into_iter().take(list.limit as usize).collect(), count);
            }
            Op::Put(key, value, _) => {
                let created = tree.get(key).map_or(revision, |entry| entry.create_revision);
                let new = entry(key.clone(), value.clone());
                tree.insert(key.clone(), Entry { create_revision: created, mod_revision: revision, ..new });
            }
            Op::Delete(key) => drop(tree.remove(key)),
            Op::Nested(_) => unreachable!("an audit takes no ticket"),
            Op::Get(key) => {
                let entries: Vec<Entry> = tree.get(key).cloned().into_iter().collect();
                let count = entries.len() as i64;
                return Found::read(entries, count);
            }
            other => panic!("{other:?}"),
        }
        Found::default()
    }
}

impl Kv for Model {
    type Watch = NoWatch;

    async fn connect(&self, _: Instant) -> Result<(), Failure> {
        Ok(())
    }

    async fn txn(&self, txn: &Txn, until: Instant) -> Result<Reply, Failure> {
        assert!(txn.fits());
        tokio::time::sleep(self.takes).await;
        if Instant::now() > until {
            return Err(Failure::Unknown("no answer in time".to_owned()));
        }
        let pinned = |op: &Op| matches!(op, Op::List(list) if list.revision != 0);
        if self.compactions.get() > 0 && txn.then.iter().any(pinned) {
            self.compactions.set(self.compactions.get() - 1);
            return Err(Failure::Compacted);
        }
        let tree = &mut *self.tree.borrow_mut();
        if !txn.only_reads() {
            (self.meddle)(tree);
        }
        let succeeded = txn.compares.iter().all(|compare| Model::holds(tree, compare));
        let ops = if succeeded { &txn.then } else { &txn.otherwise };
        let mut revision = self.revision.borrow_mut();
        *revision += i64::from(ops.iter().any(Op::writes));
        let found: Vec<Found> = ops.iter().map(|op| Model::apply(tree, op, *revision)).collect();
        if found.iter().any(|found| found.entries.len() > self.most) {
            self.refused.set(self.refused.get() + 1);
            return Err(Failure::Refused("the answer is too large".to_owned()));
        }
        self.read.set(self.read.get() + found.iter().map(|found| found.entries.len()).sum::<usize>());
        Ok(Reply { succeeded, revision: *revision, found })
    }

    async fn grant(&self, _: LeaseId, _: Duration, _: Instant) -> Result<Duration, Failure> {
        Err(Failure::LeaseExists)
    }

    async fn revoke(&self, _: LeaseId, _: Instant) -> Result<(), Failure> {
        unreachable!("an audit revokes nothing")
    }

    async fn lease_age(&self, _: LeaseId, _: Instant) -> Result<Option<LeaseAge>, Failure> {
        Ok(None)
    }

    async fn watch(&self, _: &[Bytes], _: Instant) -> Result<NoWatch, Failure> {
        Ok(NoWatch)
    }

    fn expect(&self, _: u64) {}

    fn cluster(&self) -> Option<u64> {
        None
    }

    fn has_refused(&self) -> bool {
        false
    }

    fn endpoints(&self) -> Vec<String> {
        vec!["model".to_owned()]
    }

    async fn about(&self, _: Instant) -> Result<About, Failure> {
        Ok(About { version: "3.6.0".into(), errors: Vec::new(), cluster: 1, member: 2, leader: 2 })
    }
}

#[test]
fn the_bit_of_an_address_that_is_cooling_is_no_stray_one() {
    let stray = addr("10.0.0.9");
    let key = keys().cooling(&net(), stray);
    let mut entries = valued(&key_of("/page/"), bits([1, 2, 9]));
    assert_eq!(judge(&entries).stray_bits, [(net(), stray)]);
    entries.push(Entry { lease: 7, ..entry(key.clone(), Cooling::new(60).encode()) });
    let report = judge(&entries);
    assert!(report.violations.is_empty() && report.harmless.is_empty() && report.repairs.is_empty());
    assert_eq!(report.counts.cooling, 1);
    entries.last_mut().expect("one").lease = 0;
    assert_eq!(names(&judge(&entries).violations), ["stale-without-lease"]);
}

#[test]
fn an_address_that_cools_and_is_reserved_or_has_no_bit_is_told() {
    for (address, words) in [("10.0.0.1", "is reserved"), ("10.0.0.9", "its bit is not set")] {
        let key = keys().cooling(&net(), addr(address));
        let mut entries = fixture::clean();
        entries.push(Entry { lease: 7, ..entry(key, Cooling::new(60).encode()) });
        let report = judge(&entries);
        assert!(report.violations.is_empty() && report.repairs.is_empty());
        assert_eq!(names(&report.harmless), ["cooling-mismatch"]);
        assert!(report.harmless[0].what.contains(words), "{}", report.harmless[0]);
    }
}

#[test]
fn an_audit_of_bits_repairs_the_same_and_leaves_owners_aside() {
    let mut tree = fixture::clean();
    tree.retain(|entry| !entry.key.starts_with(b"/metes/v1/owner/"));
    let page = keys().page(&metes_core::pool::NetworkName::default(), page());
    tree.iter_mut().filter(|entry| entry.key == page).for_each(|entry| entry.value = bits([1, 2, 9]));
    let model = Model::new(tree);
    let whole = wait(audit(on(&model))).expect("reads");
    let of_bits = wait(audit_bits(on(&model), BTreeSet::new())).expect("reads");
    assert_eq!(of_bits.stray_bits, whole.stray_bits);
    assert_eq!(of_bits.counts, whole.counts);
    assert!(!whole.violations.is_empty() && of_bits.violations.is_empty());
}

#[test]
fn what_is_empty_is_deleted_only_by_a_tidying() {
    let mut tree = fixture::clean();
    let (empty, summary) = (addr("10.9.0.0").page(), addr("10.9.0.0").page().summary());
    let network = metes_core::pool::NetworkName::default();
    tree.push(entry(keys().page(&network, empty), bits([])));
    tree.push(entry(keys().summary(&network, summary), bits([])));
    let model = Model::new(tree);
    let (repaired, report) = wait(repaired(&model));
    assert_eq!(repaired, Repaired::default());
    let tidied = wait(repair::tidy(on(&model), report.repairs, "")).expect("tidies");
    assert_eq!(tidied, Repaired { emptied: 2, ..Repaired::default() });
    let report = wait(audit(on(&model))).expect("reads");
    assert_eq!((report.counts.pages, report.counts.summaries), (1, 0));
}

#[test]
fn what_was_asked_for_long_ago_and_nobody_holds_is_forgotten_by_a_tidying() {
    let asked = |subnet: &str, asked_at: &str| {
        let asked = AskedRanges::new(None, "net".into(), vec![set([cidr(subnet)])], asked_at.into());
        entry(keys().asked(&asked), asked.encode())
    };
    let mut tree = fixture::clean();
    let old = "2026-01-01T00:00:00Z";
    // The fixture holds an address of the first.
    let (held, young) = (asked("10.0.0.0/24", old), asked("10.7.0.0/24", "2026-01-01T00:00:01Z"));
    // A younger one has all of the last.
    let within = asked("10.0.0.0/25", "2025-12-31T00:00:00Z");
    tree.extend([held.clone(), young.clone(), asked("10.8.0.0/24", old), within]);
    let model = Model::new(tree);
    let report = wait(audit(on(&model))).expect("reads");
    assert!(report.violations.is_empty() && report.repairs.is_empty());
    let tidied = wait(repair::tidy(on(&model), report.repairs, "2026-01-08T00:00:00Z")).expect("tidies");
    assert_eq!(tidied, Repaired { emptied: 2, ..Repaired::default() });
    let mut left: Vec<Bytes> = vec![held.key, young.key];
    left.sort();
    let stored = wait(on(&model).txn(&Txn::read(vec![Op::List(List::prefix(&keys().all_asked(), 9))])));
    let found: Vec<Bytes> =
        stored.expect("reads").found[0].entries.iter().map(|entry| entry.key.clone()).collect();
    assert_eq!(found, left);
}

fn wait<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime").block_on(work)
}

fn on(model: &Model) -> Session<'_, Model> {
    static KEYS: LazyLock<Keys> = LazyLock::new(keys);
    Session { kv: model, keys: &KEYS, until: soon() }
}

fn soon() -> Instant {
    Instant::now() + metes_core::limits::CLI_DEADLINE
}

async fn repaired(model: &Model) -> (Repaired, Report) {
    let report = audit(on(model)).await.expect("reads");
    let repaired = repair(on(model), report.repairs).await.expect("repairs");
    (repaired, audit(on(model)).await.expect("reads"))
}

#[test]
fn a_full_page_of_stray_bits_is_repaired_in_steps() {
    let keys = keys();
    let summary = keys.summary(&net(), page().summary());
    let mut entries = valued(&keys.page(&net(), page()), bits(0..4096));
    entries.push(entry(summary.clone(), bits([page().bit(), 5])));
    let model = Model::new(entries);
    let (repaired, after) = wait(repaired(&model));
    assert_eq!(repaired, Repaired { cleared: 4094, summaries: 2, ..Repaired::default() });
    assert_eq!((names(&after.violations), names(&after.harmless)), (vec![], vec![]));
    let tree = model.tree.borrow();
    assert_eq!(Bits::from_bytes(&tree[&summary].value), Some(Bits::empty()));
    let left = Bits::from_bytes(&tree[&keys.page(&net(), page())].value).expect("bits");
    assert_eq!(left.ones().collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn missing_bits_are_set_and_what_no_lease_removes_is_deleted() {
    let mut entries = leased(&key_of("/tombstone/"), 0);
    entries.retain(|entry| entry.key != keys().page(&net(), page()));
    let (repaired, after) = wait(repaired(&Model::new(entries)));
    assert_eq!(repaired, Repaired { set: 2, deleted: 1, ..Repaired::default() });
    assert_eq!(names(&after.violations), Vec::<&str>::new());
}

#[test]
fn a_bit_whose_address_was_handed_out_meanwhile_stays() {
    let mut model = Model::new(valued(&keys().page(&net(), page()), bits([1, 2, 9])));
    model.meddle = |tree| {
        let key = keys().ip(&net(), addr("10.0.0.9"));
        tree.insert(key.clone(), entry(key, fixture::reservation()));
    };
    let (repaired, after) = wait(repaired(&model));
    assert_eq!(repaired, Repaired { lost: 1, ..Repaired::default() });
    assert!(after.stray_bits.is_empty());
}

#[test]
fn nothing_is_repaired_in_a_newer_programs_tree() {
    let mut entries = valued(&keys().meta(), r#"{"v":9}"#);
    entries.push(entry(keys().page(&net(), Page(page().0 + 1)), bits([3])));
    let (repaired, after) = wait(repaired(&Model::new(entries)));
    assert_eq!((repaired, after.stray_bits.len()), (Repaired::default(), 1));
}

#[test]
fn a_store_is_accepted_once_and_only_if_suspect() {
    let accepted = |entries: Vec<Entry>| {
        let model = Model::new(entries);
        wait(async {
            let mut outcomes = Vec::new();
            for _ in 0..2 {
                let report = audit(on(&model)).await.expect("reads");
                outcomes.push(accept(on(&model), &report, None).await.expect("answers"));
            }
            outcomes
        })
    };
    let meta = keys().meta();
    let suspect = valued(&meta, r#"{"v":1,"min_writer":1,"id":"0f","epoch":3,"suspect":3}"#);
    assert_eq!(accepted(suspect), [Accepted::Epoch(4), Accepted::NotNeeded]);
    assert_eq!(accepted(without(&meta)), [Accepted::Made(2), Accepted::NotNeeded]);
    assert_eq!(accepted(fixture::clean()), [Accepted::NotNeeded; 2]);
    assert_eq!(accepted(Vec::new()), [Accepted::Founded, Accepted::NotNeeded]);
    assert_eq!(accepted(valued(&meta, "garbage")), [Accepted::Unreadable; 2]);
}

#[test]
fn an_adoption_begins_under_suspicion_and_always_ends_in_the_next_epoch() {
    let meta = keys().meta();
    let suspect = r#"{"v":1,"min_writer":1,"id":"0f","epoch":3,"suspect":3}"#;
    let paused = r#"{"v":1,"min_writer":1,"id":"0f","epoch":3,"paused":"moving"}"#;
    for (entries, during, after) in [
        (valued(&meta, suspect), 3, 4),
        (valued(&meta, paused), 3, 4),
        (without(&meta), 1, 2),
        (fixture::clean(), 1, 2),
        (Vec::new(), 1, 2),
    ] {
        let model = Model::new(entries);
        let begun = wait(begin(on(&model))).expect("begins");
        assert_eq!(begun.0.suspect, Some(during));
        assert_eq!(wait(begin(on(&model))).as_ref(), Ok(&begun), "it has begun");
        assert_eq!(wait(finish(on(&model), &begun)), Ok(Some(after)));
        assert_eq!(wait(finish(on(&model), &begun)), Ok(None), "it has changed since");
        let ended = model.tree.borrow()[&meta].clone();
        let ended = Meta::decode(&ended.value).expect("decodes");
        assert_eq!((ended.epoch, ended.suspect, ended.paused), (after, None, begun.0.paused));
    }
    let newer = Model::new(valued(&meta, r#"{"v":1,"min_writer":2,"id":"0f","epoch":1}"#));
    assert_eq!(wait(begin(on(&newer))), Err(MetaError::Newer(2).into()));
    let garbage = Model::new(valued(&meta, "garbage"));
    assert!(matches!(wait(begin(on(&garbage))), Err(BeginError::Meta(MetaError::Bad(_)))));
}

#[test]
fn what_is_held_of_a_pool_is_counted() {
    // Two addresses are held: 10.0.0.1 and 10.0.0.2.
    for (ranges, expected) in [
        (r#"{"range":"10.0.0.0/29"}"#, (6, 2, 4, 0)),
        (r#"{"range":"10.0.0.0/29","exclude":["10.0.0.1"]}"#, (5, 2, 4, 0)),
        (r#"{"range":"10.0.0.2-10.0.0.5/29","gateway":"10.0.0.6"}"#, (4, 1, 3, 0)),
        (r#"{"range":"10.0.0.0/30","state":"draining"},{"range":"10.0.0.8/29"}"#, (6, 0, 6, 2)),
        (r#"{"range":"10.0.0.0/30","state":"closed"}"#, (0, 0, 0, 2)),
    ] {
        let pool =
            format!(r#"{{"v":1,"definition":{{"pool":"a","network":"default","ranges":[{ranges}]}}}}"#);
        let key = |name: &str| keys().pool(&name.parse().expect("a name"));
        let mut entries = and(key("a"), pool.clone().into());
        entries
            .push(entry(key("b"), pool.replace(r#""pool":"a","network":"default""#, r#""pool":"b""#).into()));
        entries.push(entry(key("named-otherwise"), pool.into()));
        entries.push(entry(key("odd"), b"?".to_vec()));
        let report = judge(&entries);
        assert_eq!(names(&report.violations), ["undecodable-pool"; 2], "{ranges}");
        for (counts, name) in report.pools.iter().zip(["a", "b"]) {
            assert_eq!((counts.pool.as_str(), counts.network.as_str()), (name, "default"));
            assert_eq!((counts.size, counts.held, counts.free, counts.draining), expected, "{ranges}");
        }
        assert_eq!(report.pools.len(), 2);
    }
}

#[test]
fn each_range_is_counted_and_what_lies_outside_of_all() {
    let asked = |subnet: &str, asked_at: &str, revisions| {
        let asked = AskedRanges::new(None, "net".into(), vec![set([cidr(subnet)])], asked_at.into());
        let (create_revision, mod_revision) = revisions;
        Entry { create_revision, mod_revision, ..entry(keys().asked(&asked), asked.encode()) }
    };
    let mut tree = fixture::clean();
    // The fixture holds 10.0.0.1 and 10.0.0.2. Of these two the wider one is older.
    tree.push(asked("10.0.0.0/29", "2026-01-01T00:00:00Z", (3, 3)));
    tree.push(asked("10.0.0.2/31", "2026-01-02T00:00:00Z", (5, 5)));
    let pool = r#"{"v":1,"definition":{"pool":"p","network":"default","ranges":[
        {"range":"10.0.0.0/30","state":"closed"},{"range":"10.7.0.0/30"}]}}"#;
    tree.push(entry(keys().pool(&"p".parse().expect("a name")), pool.into()));
    let model = Model::new(tree);
    let report = wait(audit_bits(on(&model), BTreeSet::from([owner()]))).expect("reads");
    let line = |range: &CountedRange| {
        let RangeCounts { size, held, free, .. } = range.counts;
        let CountedRange { range, is_given, orphaned, .. } = range;
        format!("{} {is_given}: {size} {held} {free} {orphaned}", range.as_deref().unwrap_or("-"))
    };
    let expected = ["10.0.0.0/30 false: 2 2 0 2", "10.0.0.2/31 true: 2 1 1 1", "10.7.0.0/30 true: 2 0 2 0"];
    assert_eq!(report.ranges.iter().map(line).collect::<Vec<_>>(), expected);
    assert_eq!((report.pools[0].draining, report.pools[0].size), (2, 2));
    let mut tree = fixture::clean();
    tree.push(asked("10.0.0.2/31", "2026-01-02T00:00:00Z", (5, 5)));
    let report = wait(audit_bits(on(&Model::new(tree)), BTreeSet::new())).expect("reads");
    let expected = ["10.0.0.2/31 true: 2 1 1 0", "- false: 0 1 0 0"];
    assert_eq!(report.ranges.iter().map(line).collect::<Vec<_>>(), expected);
    // Two configurations ask for one range, and only one of them has an exclude.
    let mut tree = fixture::clean();
    for (name, spec) in [("a", cidr("10.0.0.0/29").exclude(&["10.0.0.4/30"])), ("b", cidr("10.0.0.0/29"))] {
        let asked = AskedRanges::new(None, name.into(), vec![set([spec])], "2026-01-02T00:00:00Z".into());
        tree.push(entry(keys().asked(&asked), asked.encode()));
    }
    let report = wait(audit_bits(on(&Model::new(tree)), BTreeSet::new())).expect("reads");
    assert_eq!(report.ranges.iter().map(line).collect::<Vec<_>>(), ["10.0.0.0/29 true: 6 2 4 0"]);
}

#[test]
fn what_auto_chooses_by_is_what_the_pools_say() {
    let pool = |selector: &str| {
        format!(r#"{{"v":1,"definition":{{"pool":"a","ranges":[{{"range":"10.0.0.0/24"}}]{selector}}}}}"#)
    };
    let key = keys().pool(&"a".parse().expect("a name"));
    for (selector, changes, expected) in [
        ("", None, &[][..]),
        ("", Some(r#"{"v":1}"#), &[]),
        (r#","for":{},"priority":7"#, Some(r#"{"v":1,"auto":[{"pool":"a","priority":7,"for":{}}]}"#), &[]),
        (r#","for":{},"priority":7"#, Some(r#"{"v":1,"auto":[{"pool":"a","for":{}}]}"#), &["pools-mismatch"]),
        (r#","for":{}"#, None, &["pools-mismatch"]),
        ("", Some(r#"{"v":1,"auto":[{"pool":"b","for":{}}]}"#), &["pools-mismatch"]),
        (r#","for":{}"#, Some("?"), &["undecodable-pool"]),
    ] {
        let mut entries = and(key.clone(), pool(selector).into());
        entries.extend(changes.map(|changes| entry(keys().pool_changes(), changes.into())));
        assert_eq!(names(&judge(&entries).violations), expected, "{selector} {changes:?}");
    }
}

#[test]
fn a_walk_starts_over_when_its_revision_is_compacted() {
    let mut entries = fixture::clean();
    entries.extend(
        (1..=metes_core::limits::WALK_KEYS as u128)
            .map(|n| entry(keys().page(&net(), Page(page().0 + n)), bits([]))),
    );
    for (compactions, fails) in [(0, false), (1, false), (4, false), (5, true)] {
        let model = Model { compactions: Cell::new(compactions), ..Model::new(entries.clone()) };
        let count = |seen: &mut usize, _: Entry| *seen += 1;
        let seen = wait(walk(on(&model), &keys().root(), || 0, count));
        let expected = if fails { Err(Failure::Compacted) } else { Ok((entries.len(), 1)) };
        assert_eq!(seen, expected, "{compactions}");
    }
}

/// Each refused answer was made and sent in vain.
#[test]
fn a_walk_whose_answers_are_too_large_asks_for_less_and_stays_with_it() {
    let page = |n: u128| entry(keys().page(&net(), Page(page().0 + n)), bits([]));
    let entries: Vec<Entry> = (1..=10_000).map(page).collect();
    let keys_in_all = entries.len();
    let model = Model { most: 300, ..Model::new(entries) };
    let count = |seen: &mut usize, _: Entry| *seen += 1;
    let seen = wait(walk(on(&model), &keys().root(), || 0, count)).expect("reads");
    assert_eq!(seen, (keys_in_all, 1));
    assert!((2..=10).contains(&model.refused.get()), "{}", model.refused.get());
}

#[test]
fn a_tree_of_many_pages_is_read_to_its_end() {
    let page = |n: u128| entry(keys().page(&net(), Page(page().0 + n)), bits([0]));
    let mut entries = fixture::clean();
    entries.extend((1..=2 * metes_core::limits::WALK_KEYS as u128).map(page));
    let keys_in_all = entries.len();
    let count = |seen: &mut usize, _: Entry| *seen += 1;
    let model = Model::new(entries);
    let seen = wait(walk(on(&model), &keys().root(), || 0, count)).expect("reads");
    assert_eq!(seen, (keys_in_all, 1));
    let report = wait(audit(on(&model))).expect("reads");
    assert_eq!(report.stray_bits.len(), 2 * metes_core::limits::WALK_KEYS as usize);
}
