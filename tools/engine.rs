//! The costs of the pure engine: no etcd, no clock, no disk. Run with `cargo bench --bench engine`.
//!
//! One ADD waits about a millisecond for etcd, so all of this together should stay well below a tenth of that. The
//! mark: a scan of a full /12 through its summary takes less than 50 microseconds.
//!
//! "Choose" is the search in a view that is complete. "Decide" is all that an ADD does between two round trips: it
//! reads its snapshot, decodes the pages into a view, searches, and makes the transaction.

#![allow(missing_docs, reason = "criterion's macros make public functions without any")]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::net::IpAddr;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use metes_core::fence::Fence;
use metes_core::keys::{Bytes, Keys, LeaseId, Scope};
use metes_core::plan::allot::{Allotment, Allotted, Refused};
use metes_core::plan::ask::{Ask, RunStamp};
use metes_core::plan::change::{Change, Step};
use metes_core::pool::choose::{Choice, choose};
use metes_core::pool::{
    Addr, Bits, Held, Labels, Meta, NetworkName, Owner, OwnerRecord, Page, Pod, Range, RangeSet, RangeSpec,
    Record, Reservation, RunStart, Start, View, Wanted, Wish,
};
use metes_core::snapshot::Snapshot;
use metes_core::txn::{Entry, Found, Op, Reply};

const PAGE_ADDRESSES: usize = 4096;
/// In the middle of a page, where half of the words have been passed.
const MIDDLE: usize = PAGE_ADDRESSES / 2;
/// The store's revision when everything in a snapshot was read.
const REVISION: i64 = 1_000_000;
/// More rounds of reading than any decision here needs.
const ROUNDS_MAX: usize = 64;

criterion_group! {
    name = engine;
    config = Criterion::default().warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    targets = bench_choose, bench_decide, bench_codec
}
criterion_main!(engine);

fn bench_choose(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("choose");
    for (what, case) in choose_cases() {
        let Case { set, view, is_full } = &case;
        let step = choose(&[wish(set)], view);
        let expected =
            if *is_full { matches!(step, Choice::Full { .. }) } else { matches!(step, Choice::Chosen(_)) };
        assert!(expected, "{what}: {step:?}");
        group.bench_function(what, |bencher| {
            bencher.iter(|| choose(black_box(&[wish(set)]), black_box(view)))
        });
    }
    group.finish();
}

fn bench_decide(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decide");
    for (what, store) in decide_cases() {
        let snapshot = store.read_all();
        let is_full = matches!(store.decide(&snapshot), Ok(Step::Done(Allotted::Full(_))));
        assert_eq!(is_full, what.starts_with("full"), "{what}");
        group.bench_function(what, |bencher| bencher.iter(|| store.decide(black_box(&snapshot))));
    }
    let store = Store::new("10.0.0.0/8");
    group.bench_function("first reads", |bencher| {
        let nothing = Snapshot::default();
        bencher.iter(|| Allotment::new(black_box(&store.ask), &store.keys).reads(black_box(&nothing)));
    });
    group.finish();
}

fn bench_codec(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("codec");
    let page = half_full();
    let stored = page.to_bytes();
    group.bench_function("encode a page", |bencher| bencher.iter(|| black_box(&page).to_bytes()));
    group.bench_function("decode a page", |bencher| bencher.iter(|| Bits::from_bytes(black_box(&stored))));
    bench_record(&mut group, "reservation", &reservation());
    bench_record(&mut group, "owner record", &owner_record());
    bench_record(&mut group, "meta", &Meta::first("0f".repeat(16)));
    let keys = Keys::new("/metes/");
    let address = addr("10.0.0.1");
    let key = keys.ip(&NetworkName::default(), address);
    group.bench_function("make a key", |bencher| {
        bencher.iter(|| black_box(&keys).ip(&NetworkName::default(), black_box(address)));
    });
    group.bench_function("parse a key", |bencher| bencher.iter(|| black_box(&keys).parse(black_box(&key))));
    group.finish();
}

fn bench_record<R: Record>(
    group: &mut criterion::BenchmarkGroup<'_, criterion::measurement::WallTime>,
    what: &str,
    record: &R,
) {
    let stored = record.encode();
    group.bench_function(BenchmarkId::new("encode", what), |bencher| {
        bencher.iter(|| black_box(record).encode());
    });
    group.bench_function(BenchmarkId::new("decode", what), |bencher| {
        bencher.iter(|| R::decode(black_box(&stored)));
    });
}

/// A set, what is known of it, and how the choice ends.
struct Case {
    set: RangeSet,
    view: View,
    is_full: bool,
}

fn choose_cases() -> Vec<(&'static str, Case)> {
    let view = |subnet: &str, pages: &[Bits], summary: Option<Bits>| {
        let set = set(subnet);
        let first = set.ranges()[0].first().page();
        let mut view = View::default();
        for (page, bits) in (first.0..).zip(pages) {
            view.set_page(&NetworkName::default(), Page(page), bits.clone());
        }
        if let Some(bits) = summary {
            view.set_summary(&NetworkName::default(), first.summary(), bits);
        }
        let is_full = pages.iter().all(Bits::is_full);
        Case { set, view, is_full }
    };
    let full_12_but_last: Vec<Bits> =
        (0..256).map(|page| if page == 255 { all_but(4094) } else { Bits::full() }).collect();
    vec![
        (
            "a full /12 by its summary (the mark: 50 us)",
            view("10.0.0.0/12", &[Bits::full()], Some(Bits::full())),
        ),
        ("a full /12 by its 256 pages", view("10.0.0.0/12", &vec![Bits::full(); 256], None)),
        (
            "a /12 whose last address is free, by its 256 pages",
            view("10.0.0.0/12", &full_12_but_last, Some(Bits::empty())),
        ),
        ("a full /8 by its summary", view("10.0.0.0/8", &[Bits::full()], Some(Bits::full()))),
        ("an empty /8", view("10.0.0.0/8", &[Bits::empty()], None)),
        ("a half-full page", view("10.0.0.0/20", &[half_full()], None)),
        ("a page with one free bit", view("10.0.0.0/20", &[all_but(4094)], Some(Bits::empty()))),
        ("an empty /64", view("fd00::/64", &[Bits::empty()], None)),
        (
            "a /64 whose first page is full",
            view("fd00::/64", &[Bits::full(), half_full()], Some(Bits::empty())),
        ),
    ]
}

fn decide_cases() -> Vec<(&'static str, Store)> {
    let store = |subnet: &str, pages: &[(usize, Bits)], summary: Option<Bits>| {
        let mut store = Store::new(subnet);
        pages.iter().for_each(|(page, bits)| store.put_page(*page, bits));
        if let Some(bits) = summary {
            store.put_summary(&bits);
        }
        store
    };
    // The summary is of 4096 pages, the /12 of its first 256.
    let all_but_last_page = all_but(255);
    vec![
        ("commit in an empty /8", store("10.0.0.0/8", &[], None)),
        ("commit in a half-full page", store("10.0.0.0/20", &[(0, half_full())], None)),
        ("commit in a page with one free bit", store("10.0.0.0/20", &[(0, all_but(4094))], None)),
        ("commit in an empty /64", store("fd00::/64", &[], None)),
        (
            "commit in a /12 with one free address",
            store("10.0.0.0/12", &[(0, Bits::full()), (255, all_but(4094))], Some(all_but_last_page)),
        ),
        (
            "full /12 by its summary (the mark: 50 us)",
            store("10.0.0.0/12", &[(0, Bits::full())], Some(Bits::full())),
        ),
    ]
}

/// The content of an imaginary etcd, and an ADD that reads it.
struct Store {
    ask: Ask,
    first_page: Page,
    keys: Keys,
    entries: BTreeMap<Bytes, Entry>,
    fence: Fence,
}

impl Store {
    fn new(subnet: &str) -> Self {
        let set = set(subnet);
        let first_page = set.ranges()[0].first().page();
        let ask = ask(set);
        let keys = Keys::new("/metes/");
        let fence = Fence::Lease { key: keys.fence(&owner().node), lease: LeaseId(7) };
        let mut store = Self { ask, first_page, keys, entries: BTreeMap::new(), fence };
        store.put(store.keys.meta(), Meta::first("0f".repeat(16)).encode());
        store
    }

    fn put_page(&mut self, index: usize, bits: &Bits) {
        let page = Page(self.first_page.0 + index as u128);
        self.put(self.keys.page(&NetworkName::default(), page), bits.to_bytes());
    }

    fn put_summary(&mut self, bits: &Bits) {
        let key = self.keys.summary(&NetworkName::default(), self.first_page.summary());
        self.put(key, bits.to_bytes());
    }

    fn put(&mut self, key: Bytes, value: Vec<u8>) {
        let entry = Entry { key: key.clone(), value, create_revision: 1, mod_revision: 1, lease: 0 };
        self.entries.insert(key, entry);
    }

    fn decide(&self, snapshot: &Snapshot) -> Result<Step<Allotted>, Refused> {
        Allotment::new(&self.ask, &self.keys).plan(snapshot, &self.fence, &metes_core::line::Line::default())
    }

    /// Adds all that the decision asks for, as round trips would.
    fn read_all(&self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        let first = Allotment::new(&self.ask, &self.keys).reads(&snapshot);
        self.read(first.into_iter().map(Op::Get).collect(), &mut snapshot);
        for _ in 0..ROUNDS_MAX {
            match self.decide(&snapshot) {
                Ok(Step::Read(ops)) => self.read(ops, &mut snapshot),
                _ => return snapshot,
            }
        }
        panic!("it goes on reading");
    }

    fn read(&self, ops: Vec<Op>, snapshot: &mut Snapshot) {
        let found = |op: &Op| match op {
            Op::Get(key) => self.entries.get(key).cloned().into_iter().collect(),
            other => panic!("nothing else is read where a meta is: {other:?}"),
        };
        let found = ops.iter().map(|op| Found::read(found(op), 0)).collect();
        let reply = Reply { succeeded: true, revision: REVISION, found };
        snapshot.absorb(&ops, &reply);
    }
}

fn ask(set: RangeSet) -> Ask {
    let machine = "0f".repeat(16);
    let stamp = RunStamp { start: start(), machine, created_at: "2026-01-01T00:00:00Z".to_owned() };
    Ask::new(owner(), labels(), Wanted::lowest_of(vec![set]), stamp)
}

fn wish(set: &RangeSet) -> Wish<'_> {
    Wish { set, start: Start::Lowest, request: None }
}

fn set(subnet: &str) -> RangeSet {
    let subnet: ipnetwork::IpNetwork = subnet.parse().expect("a subnet");
    let (first, last) = bounds(subnet);
    let spec = RangeSpec {
        network: NetworkName::default(),
        subnet,
        first,
        last,
        excludes: Vec::new(),
        never: Vec::new(),
        gateway: None,
    };
    RangeSet::new(vec![Range::new(spec).expect("a range")]).expect("a set")
}

fn bounds(subnet: ipnetwork::IpNetwork) -> (IpAddr, IpAddr) {
    match subnet {
        ipnetwork::IpNetwork::V4(subnet) => (subnet.network().into(), subnet.broadcast().into()),
        ipnetwork::IpNetwork::V6(subnet) => (subnet.network().into(), subnet.broadcast().into()),
    }
}

fn half_full() -> Bits {
    let mut bits = Bits::empty();
    (0..MIDDLE).for_each(|bit| bits.set(bit));
    bits
}

fn all_but(free: usize) -> Bits {
    let mut bits = Bits::full();
    bits.clear(free);
    bits
}

fn addr(text: &str) -> Addr {
    Addr::from(text.parse::<IpAddr>().expect("an address"))
}

fn owner() -> Owner {
    Owner::named(["east", "worker-17.example", &"4f".repeat(32), "eth0"]).expect("good names")
}

fn start() -> RunStart {
    RunStart { boot: "5a1e3c1e-6a53-4d43-9a3b-2d5f2a9d1c07".to_owned(), ns: 123_456_789_012 }
}

fn labels() -> Labels {
    let pod = Pod {
        namespace: "production".to_owned(),
        name: "frontend-7d4b9c6f5d-x2x7k".to_owned(),
        uid: "0c7f3f0e-3d6e-4a55-a4e3-7a7c7f2f3b11".parse().ok(),
    };
    Labels { pod, cni_network: "net".to_owned() }
}

fn reservation() -> Reservation {
    Reservation::new(owner(), "2026-01-01T00:00:00Z".to_owned())
}

fn owner_record() -> OwnerRecord {
    let held = Held::new(addr("10.0.0.1").ip(), Some(NetworkName::default()));
    let scope = Scope::of(&[set("10.0.0.0/8")], None).as_str().to_owned();
    OwnerRecord::new(vec![held], Some(start()), scope, labels())
}
