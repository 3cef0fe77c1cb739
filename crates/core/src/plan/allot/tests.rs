//! Each case of a decision, on a store of a few keys.

use super::*;
use crate::keys::{Key, LeaseId, TicketId};
use crate::memory::Memory;
use crate::meta::OutOfService;
use crate::plan::free::Burying;
use crate::pool::choose::Order;
use crate::pool::choose::Refusal;
use crate::pool::range::fixtures::{self, addr, cidr};
use crate::pool::{Bits, Labels, NetworkName, Pod, RangeSet, RangesWanted, RunStart, Wanted};
use crate::ticket::Ticket;
use crate::txn::{Op, Txn};

/// A store, and the ticket that the run under test stands in.
struct World {
    keys: Keys,
    store: Memory,
    ticket: Ticket,
    /// The clock of the node.
    now: u64,
}

impl World {
    fn new() -> Self {
        let keys = Keys::new("/m/");
        let mut world = Self {
            ticket: Ticket {
                key: Vec::new(),
                create_revision: 0,
                lease: LeaseId(7),
                cluster: None,
                tombstones: LeaseId(7),
                moved: b"moved".to_vec(),
                tail: Default::default(),
            },
            keys,
            store: Memory::default(),
            now: u64::MAX,
        };
        world.store.put(world.keys.meta(), Meta::first("s".into()).encode());
        world.stand();
        world
    }

    /// Takes a new ticket.
    fn stand(&mut self) {
        let key = self.keys.ticket(&Scope::stored("-").expect("a scope"), TicketId(7));
        self.store.put(key.clone(), "");
        let create_revision = self.store.get(&key).expect("just put").create_revision;
        self.ticket = Ticket { key, create_revision, ..self.ticket.clone() };
    }

    fn fence(&self) -> Fence {
        Fence::Ticket(self.ticket.clone())
    }

    fn run(&mut self, ask: &Ask) -> Planned {
        self.run_as(ask, false)
    }

    /// Decides, supplying what is asked for, until there is more to do than to read.
    fn run_as(&mut self, ask: &Ask, was_deleted: bool) -> Planned {
        let mut snapshot = Snapshot::default();
        for _ in 0..10 {
            let now = || start(self.now);
            let clock = Clock::new(&now);
            let allotment = Allotment::new(ask, &self.keys).by_clock(&clock);
            match (Allotment { was_deleted, ..allotment }).plan(&snapshot, &self.fence(), &Line::default()) {
                Ok(Step::Read(ops)) => self.store.read_all(&ops, &mut snapshot),
                other => return other,
            }
        }
        panic!("it goes on reading");
    }

    /// Runs to a commit and applies it; the addresses.
    fn hold(&mut self, ask: &Ask) -> Vec<String> {
        self.stand();
        match self.run(ask) {
            Ok(Step::Commit(commit)) => {
                assert!(self.store.apply(&commit.txn).succeeded);
                added(commit).held.iter().map(|held| held.address.to_string()).collect()
            }
            other => panic!("no commit: {other:?}"),
        }
    }

    /// Frees all that an owner holds, as a DEL from a new ticket does.
    fn free(&mut self, owner: &Owner) {
        self.stand();
        let own = self.keys.owner(owner);
        let record = OwnerRecord::decode(&self.store.get(&own).expect("held").value).expect("decodes");
        let mut snapshot = Snapshot::default();
        for _ in 0..10 {
            match free::transaction(
                &self.keys,
                &snapshot,
                Freeable { owner, record: &record, leases: None },
                None,
                &self.fence(),
                Mode::Whole,
            ) {
                Ok(Ok(planned)) => return assert!(self.store.apply(&planned.txn).succeeded),
                Ok(Err(missing)) => self.store.read(&missing, &mut snapshot),
                Err(bad) => panic!("{bad}"),
            }
        }
        panic!("it goes on reading");
    }

    fn refusal(&mut self, ask: &Ask) -> Refused {
        match self.run(ask) {
            Err(why) => why,
            other => panic!("not refused: {other:?}"),
        }
    }

    fn ip(&self, address: &str) -> Bytes {
        self.keys.ip(&NetworkName::default(), addr(address))
    }
}

type Planned = Result<Step<Allotted>, Refused>;

fn added(commit: Commit<Allotted>) -> Added {
    match commit.done {
        Some(Allotted::Held(added)) => added,
        other => panic!("nothing is held: {other:?}"),
    }
}

fn set(subnet: &str, first: &str, last: &str) -> RangeSet {
    fixtures::set([cidr(subnet).bounds(first, last)])
}

fn owner(container: &str) -> Owner {
    Owner::named(["east", "n", container, "eth0"]).expect("plain names")
}

/// The index entry of pod "u".
fn index_key(keys: &Keys) -> Bytes {
    let Owner { ifname, cluster, .. } = owner("any");
    keys.pod(cluster.as_ref(), &"u".parse().expect("a UID"), &ifname, &NetworkName::default())
}

fn start(ns: u64) -> RunStart {
    RunStart { boot: "b".into(), ns }
}

/// A run of container `id`, started at `ns`, of the pod `uid`, on one /29.
fn ask(id: &str, ns: u64, uid: &str) -> Ask {
    let pod = Pod { namespace: "ns".into(), name: "p".into(), uid: uid.parse().ok() };
    let labels = Labels { pod, cni_network: "net".into() };
    let wanted = Wanted::lowest_of(vec![set("10.0.0.0/29", "10.0.0.1", "10.0.0.6")]);
    let created_at = "2026-01-01T00:00:00Z".into();
    let run = RunStamp { start: start(ns), machine: "m".into(), created_at };
    Ask::new(owner(id), labels, wanted, run)
}

/// The same with something else wanted.
fn with(ask: Ask, change: impl FnOnce(&mut RangesWanted)) -> Ask {
    let mut ask = ask;
    change(ask.ranges());
    ask
}

#[test]
fn addresses_go_lowest_first_and_a_repetition_gets_the_same() {
    let mut world = World::new();
    assert_eq!(world.hold(&ask("a", 1, "")), ["10.0.0.1"]);
    assert_eq!(world.hold(&ask("b", 2, "")), ["10.0.0.2"]);
    assert_eq!(world.hold(&ask("a", 3, "")), ["10.0.0.1"]);
}

#[test]
fn without_a_meta_nothing_is_given() {
    let mut world = World::new();
    world.store = Memory::default();
    assert_eq!(world.refusal(&ask("a", 1, "")), Refused::OutOfService(OutOfService::NoMeta));
}

#[test]
fn a_repetition_keeps_the_younger_of_two_starts() {
    for (first, second, kept) in [(1, 5, 5), (5, 1, 5)] {
        let mut world = World::new();
        world.hold(&ask("a", first, ""));
        world.hold(&ask("a", second, ""));
        let own = world.keys.owner(&owner("a"));
        let record = OwnerRecord::decode(&world.store.get(&own).expect("a record").value).expect("decodes");
        assert_eq!(record.start, Some(start(kept)));
    }
}

#[test]
fn a_commit_fails_when_anything_it_relied_on_has_changed() {
    let asked = ask("a", 1, "u");
    let changes: [fn(&World) -> Bytes; 6] = [
        |w| w.keys.owner(&owner("a")),
        |w| w.keys.tombstone(&owner("a")),
        |w| w.keys.meta(),
        |w| w.keys.page(&NetworkName::default(), addr("10.0.0.1").page()),
        |w| w.ip("10.0.0.1"),
        |w| index_key(&w.keys),
    ];
    for (i, change) in changes.iter().enumerate() {
        let mut world = World::new();
        let Ok(Step::Commit(Commit { txn, .. })) = world.run(&asked) else { panic!("no commit") };
        world.store.put(change(&world), "changed");
        assert!(!world.store.apply(&txn).succeeded, "change {i} went unnoticed");
    }
}

#[test]
fn a_commit_fails_from_a_ticket_that_was_lost_even_if_it_was_made_anew() {
    let mut world = World::new();
    let Ok(Step::Commit(Commit { txn, .. })) = world.run(&ask("a", 1, "")) else { panic!("no commit") };
    let key = world.ticket.key.clone();
    world.store.apply(&Txn { then: vec![Op::Delete(key)], ..Txn::default() });
    assert!(!world.store.clone().apply(&txn).succeeded);
    world.stand();
    assert!(!world.store.apply(&txn).succeeded);
}

#[test]
fn a_commit_where_nobody_queues_writes_on_its_lease_and_removes_no_ticket() {
    let world = World::new();
    let mut snapshot = Snapshot::default();
    let ask = ask("a", 1, "");
    let fence = Fence::Lease { key: world.keys.fence(&owner("a").node), lease: LeaseId(9) };
    let txn = loop {
        match Allotment::new(&ask, &world.keys).plan(&snapshot, &fence, &Line::default()) {
            Ok(Step::Read(ops)) => world.store.read_all(&ops, &mut snapshot),
            Ok(Step::Commit(commit)) => break commit.txn,
            other => panic!("no commit: {other:?}"),
        }
    };
    let on_lease: Vec<_> = txn.then.iter().filter(|op| matches!(op, Op::Put(_, _, Some(_)))).collect();
    assert_eq!(on_lease, [&Op::Put(b"/m/v1/fence/n".to_vec(), Vec::new(), Some(LeaseId(9)))]);
    assert!(txn.then.iter().all(|op| !matches!(op, Op::Delete(_))), "{txn:?}");
}

#[test]
fn an_owner_freed_between_two_reads_is_no_contradiction() {
    let mut world = World::new();
    let ask = ask("a", 1, "");
    world.hold(&ask);
    let again = Ask { stamp: RunStamp { start: start(2), ..ask.stamp.clone() }, ..ask.clone() };
    let mut snapshot = Snapshot::default();
    let mut is_freed = false;
    let decided = loop {
        match Allotment::new(&again, &world.keys).plan(&snapshot, &world.fence(), &Line::default()) {
            Ok(Step::Read(ops)) => {
                // Its record was read, its reservation was not.
                if !is_freed && ops.contains(&Op::Get(world.ip("10.0.0.1"))) {
                    is_freed = true;
                    world.stand();
                    world.free(&ask.owner);
                }
                world.store.read_all(&ops, &mut snapshot);
            }
            other => break other,
        }
    };
    let Ok(Step::Commit(commit)) = decided else { panic!("{decided:?}") };
    assert!(is_freed && !added(commit).repeats);
}

#[test]
fn a_reservation_under_a_clear_bit_is_taken_and_gets_its_bit() {
    let mut world = World::new();
    world.hold(&ask("a", 1, ""));
    let page = world.keys.page(&NetworkName::default(), addr("10.0.0.1").page());
    world.store.put(page.clone(), Bits::empty().to_bytes());
    let asked = ask("b", 2, "");
    world.stand();
    let mut snapshot = Snapshot::default();
    let mut attempts = Vec::new();
    for _ in 0..10 {
        match Allotment::new(&asked, &world.keys).plan(&snapshot, &world.fence(), &Line::default()) {
            Ok(Step::Read(ops)) => world.store.read_all(&ops, &mut snapshot),
            Ok(Step::Commit(commit)) => {
                let (txn, held) = (commit.txn.clone(), added(commit).held);
                let reply = world.store.apply(&txn);
                attempts.push((held[0].address.to_string(), reply.succeeded));
                if reply.succeeded {
                    break;
                }
                snapshot.absorb(&txn.otherwise, &reply);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(attempts, [("10.0.0.1".to_owned(), false), ("10.0.0.2".to_owned(), true)]);
    let bits = Bits::from_bytes(&world.store.get(&page).expect("a page").value).expect("512 bytes");
    assert_eq!(bits.ones().collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn a_page_that_does_not_decode_is_full_and_stays() {
    let mut world = World::new();
    let page = world.keys.page(&NetworkName::default(), addr("10.0.0.1").page());
    world.store.put(page.clone(), "garbage");
    assert!(matches!(world.refusal(&ask("a", 1, "")), Refused::Bad(bad) if bad.key.as_bytes() == page));
    assert_eq!(world.store.get(&page).expect("still there").value, b"garbage");
}

#[test]
fn records_that_do_not_decode_end_the_run() {
    let asked = ask("a", 1, "u");
    let keys: [fn(&World) -> Bytes; 4] = [
        |w| w.keys.owner(&owner("a")),
        |w| w.keys.tombstone(&owner("a")),
        |w| w.keys.meta(),
        |w| index_key(&w.keys),
    ];
    for key in keys {
        let mut world = World::new();
        world.store.put(key(&world), "garbage");
        assert!(matches!(world.refusal(&asked), Refused::Bad(_)));
    }
}

#[test]
fn meta_holds_runs_back() {
    let meta = |change: fn(&mut Meta)| {
        let mut meta = Meta::first("s".into());
        change(&mut meta);
        meta
    };
    for (meta, expected) in [
        (meta(|m| m.suspect = Some(3)), Refused::OutOfService(OutOfService::Suspect(3))),
        (
            meta(|m| m.paused = Some("import".into())),
            Refused::OutOfService(OutOfService::Paused("import".into())),
        ),
        (meta(|m| m.min_writer = 2), Refused::OutOfService(OutOfService::Newer(2))),
    ] {
        let mut world = World::new();
        world.store.put(world.keys.meta(), meta.encode());
        assert_eq!(world.refusal(&ask("a", 1, "")), expected);
    }
}

#[test]
fn a_younger_tombstone_ends_the_run_and_an_older_one_does_not() {
    let mut world = World::new();
    let dead = world.keys.tombstone(&owner("a"));
    world.store.put(dead.clone(), Tombstone::new(start(5)).encode());
    assert_eq!(world.refusal(&ask("a", 4, "")), Refused::Deleted);
    assert_eq!(world.hold(&ask("a", 6, "")), ["10.0.0.1"]);
}

#[test]
fn a_retried_sandbox_takes_over_and_nobody_else_does() {
    let mut world = World::new();
    assert_eq!(world.hold(&ask("a", 1, "u")), ["10.0.0.1"]);
    assert_eq!(world.hold(&ask("other-pod", 2, "v")), ["10.0.0.2"]);
    assert_eq!(world.hold(&ask("b", 3, "u")), ["10.0.0.1"]);
    assert!(!world.store.keys().iter().any(|key| key.ends_with("/owner/east/n/a/eth0")));
    let reservation = Reservation::decode(&world.store.get(&world.ip("10.0.0.1")).expect("held").value);
    assert_eq!(reservation.expect("decodes").owner, owner("b"));
    let mut elsewhere = ask("c", 4, "u");
    elsewhere.owner.node = "m".parse().expect("a node name");
    assert_eq!(world.hold(&elsewhere), ["10.0.0.3"]);
}

#[test]
fn nothing_is_taken_over_from_another_cluster() {
    for (theirs, ours, address) in [
        ("east", "west", "10.0.0.2"),
        ("east", "east", "10.0.0.1"),
        ("", "east", "10.0.0.2"),
        ("", "", "10.0.0.1"),
    ] {
        let of = |cluster: &str, mut ask: Ask| {
            ask.owner.cluster = cluster.parse().ok();
            ask
        };
        let mut world = World::new();
        world.hold(&of(theirs, ask("a", 1, "u")));
        assert_eq!(world.hold(&of(ours, ask("b", 2, "u"))), [address], "{theirs:?} {ours:?}");
    }
}

#[test]
fn nothing_is_taken_over_after_a_tombstone_of_ones_own() {
    let mut world = World::new();
    world.hold(&ask("a", 1, "u"));
    world.stand();
    let Ok(Step::Commit(commit)) = world.run_as(&ask("b", 3, "u"), true) else { panic!("no commit") };
    let held = added(commit).held;
    assert_eq!(held[0].address.to_string(), "10.0.0.2");
    let dead = world.keys.tombstone(&owner("b"));
    world.store.put(dead, Tombstone::new(start(2)).encode());
    assert_eq!(world.hold(&ask("b", 3, "u")), ["10.0.0.2"]);
}

#[test]
fn an_older_sandbox_yields_to_a_younger_one() {
    let mut world = World::new();
    world.hold(&ask("b", 3, "u"));
    assert_eq!(world.refusal(&ask("a", 1, "u")), Refused::Outlived(owner("b")));
}

/// The host is a virtual machine that was put back to a snapshot of its memory.
#[test]
fn what_the_clock_has_not_reached_is_older() {
    let mut world = World::new();
    world.hold(&ask("b", 7, "u"));
    world.hold(&ask("c", 7, "v"));
    let dead = world.keys.tombstone(&owner("d"));
    world.store.put(dead, Tombstone::new(start(6)).encode());
    world.now = 5;
    assert_eq!(world.hold(&ask("a", 3, "u")), ["10.0.0.1"], "a takeover");
    assert_eq!(world.hold(&ask("c", 4, "v")), ["10.0.0.2"], "a repetition");
    let record = world.store.get(&world.keys.owner(&owner("c"))).expect("it is held").value.clone();
    assert_eq!(OwnerRecord::decode(&record).expect("decodes").start, Some(start(4)), "of the younger run");
    assert_eq!(world.hold(&ask("d", 4, "w")), ["10.0.0.3"], "the DEL was older");
}

#[test]
fn what_does_not_fit_is_freed_first() {
    let mut world = World::new();
    world.hold(&ask("a", 1, "u"));
    let mut moved = ask("b", 2, "u");
    moved.ranges().sets = vec![set("10.9.0.0/29", "10.9.0.1", "10.9.0.6")];
    world.stand();
    let Ok(Step::Commit(Commit { txn, done: None, .. })) = world.run(&moved) else {
        panic!("not freed first")
    };
    assert!(world.store.apply(&txn).succeeded);
    assert!(world.store.get(&world.ip("10.0.0.1")).is_none());
    assert_eq!(world.hold(&moved), ["10.9.0.1"]);
}

#[test]
fn an_owner_that_holds_something_else_is_told_so() {
    let mut world = World::new();
    world.hold(&ask("a", 1, ""));
    let mut moved = ask("a", 2, "");
    moved.ranges().sets = vec![set("10.9.0.0/29", "10.9.0.1", "10.9.0.6")];
    assert!(matches!(world.refusal(&moved), Refused::Unfit(..)));
    let mut narrowed = ask("a", 3, "");
    narrowed.ranges().sets = vec![set("10.0.0.0/29", "10.0.0.4", "10.0.0.5")];
    assert_eq!(world.hold(&narrowed), ["10.0.0.1"]);
    let wanting = |ns, address| with(ask("a", ns, ""), |wanted| wanted.requests = vec![Some(addr(address))]);
    assert_eq!(world.hold(&wanting(4, "10.0.0.1")), ["10.0.0.1"]);
    assert!(matches!(world.refusal(&wanting(5, "10.0.0.2")), Refused::Unfit(..)));
}

#[test]
fn a_request_is_judged_by_its_reservation_not_its_bit() {
    let mut world = World::new();
    let page = world.keys.page(&NetworkName::default(), addr("10.0.0.1").page());
    let mut bits = Bits::empty();
    bits.set(3);
    world.store.put(page, bits.to_bytes());
    let mut asked = ask("a", 1, "");
    asked.ranges().requests = vec![Some(addr("10.0.0.3"))];
    assert_eq!(world.hold(&asked), ["10.0.0.3"]);
    asked.owner = owner("b");
    let refused = world.refusal(&asked);
    let Refused::Held(address, _, held) = &refused else { panic!("{refused:?}") };
    assert_eq!((*address, &held.owner), (addr("10.0.0.3"), &owner("a")));
}

#[test]
fn a_reserved_static_address_is_never_picked_for_a_set() {
    let mut world = World::new();
    let fixed = Held::new(addr("10.0.0.1").ip(), Some(NetworkName::default()));
    let mut asked = ask("a", 1, "");
    asked.ranges().statics = vec![fixed.clone()];
    assert_eq!(world.hold(&asked), ["10.0.0.2", "10.0.0.1"]);
    let mut again = ask("b", 2, "");
    again.ranges().statics = vec![fixed];
    assert!(matches!(world.refusal(&again), Refused::Held(_, _, held) if held.owner == owner("a")));
}

#[test]
fn next_goes_round_and_spread_starts_where_the_node_does() {
    let mut world = World::new();
    let mut asked = ask("a", 1, "");
    asked.ranges().order = Order::Next;
    assert_eq!(world.hold(&asked), ["10.0.0.1"]);
    world.free(&owner("a"));
    assert_eq!(world.hold(&asked), ["10.0.0.2"]);
}

#[test]
fn what_is_read_first_is_all_that_a_range_with_room_needs() {
    for order in [Order::Lowest, Order::Next, Order::Spread] {
        let mut world = World::new();
        world.hold(&with(ask("before", 1, "u-before"), |wanted| wanted.order = order));
        world.stand();
        let asked = with(ask("a", 2, "u"), |wanted| wanted.order = order);
        let mut snapshot = Snapshot::default();
        let first = Allotment::new(&asked, &world.keys).reads(&Snapshot::default());
        world.store.read(&first, &mut snapshot);
        let decision = Allotment::new(&asked, &world.keys).plan(&snapshot, &world.fence(), &Line::default());
        assert!(matches!(decision, Ok(Step::Commit(_))), "{order:?}: {decision:?}");
        let has_cursor = first.iter().any(|key| matches!(world.keys.parse(key), Ok(Key::Cursor(..))));
        assert_eq!(has_cursor, order != Order::Lowest, "{order:?}");
    }
}

#[test]
fn spread_begins_and_queues_by_the_page_of_its_node_and_no_other_order_does() {
    let wide = |order, node_seed| {
        let sets = vec![set("10.0.0.0/16", "10.0.0.1", "10.0.255.254")];
        let asked = with(ask("a", 1, ""), |wanted| (wanted.sets, wanted.order) = (sets, order));
        Ask { node_seed, ..asked }
    };
    for (order, of_second, of_third) in [
        (Order::Lowest, "10.0.0.1", "10.0.0.1"),
        (Order::Next, "10.0.0.1", "10.0.0.1"),
        (Order::Spread, "10.0.16.0", "10.0.32.0"),
    ] {
        let (second, third) = (wide(order, 1), wide(order, 2));
        assert_eq!(World::new().hold(&second), [of_second], "{order:?}");
        assert_eq!(World::new().hold(&third), [of_third], "{order:?}");
        let [one, other] = [&second, &third].map(|asked| Resolved::without_pools(asked).scope());
        assert_eq!(one == other, order != Order::Spread, "{order:?}");
    }
}

#[test]
fn what_is_reserved_for_another_is_neither_answered_nor_freed() {
    let mut world = World::new();
    world.hold(&ask("a", 1, ""));
    let theirs = Reservation::new(owner("b"), String::new()).encode();
    world.store.put(world.ip("10.0.0.1"), theirs.clone());
    match world.refusal(&ask("a", 2, "")) {
        Refused::Contradiction(text) => {
            assert!(text.contains("is held by eth0 of container b on n"), "{text}")
        }
        other => panic!("{other:?}"),
    }
    world.free(&owner("a"));
    assert_eq!(world.store.get(&world.ip("10.0.0.1")).map(|entry| entry.value.clone()), Some(theirs));
}

#[test]
fn a_free_leaves_the_youngest_tombstone() {
    let mut world = World::new();
    let (owner, dead) = (owner("a"), world.keys.tombstone(&owner("a")));
    for (born, left) in [(5, 5), (7, 7), (6, 7)] {
        let record = OwnerRecord::new(Vec::new(), None, "-".into(), Labels::default());
        let own = world.keys.owner(&owner);
        world.store.put(own.clone(), record.encode());
        let mut snapshot = Snapshot::default();
        world.store.read(&[own, dead.clone()], &mut snapshot);
        let start = start(born);
        let fence = Fence::Unfenced { lease: Some(LeaseId(7)) };
        let planned = free::transaction(
            &world.keys,
            &snapshot,
            Freeable { owner: &owner, record: &record, leases: None },
            Some(Burying { start: &start, clock: None }),
            &fence,
            Mode::Whole,
        );
        assert!(world.store.apply(&planned.expect("names").expect("all was read").txn).succeeded);
        let standing = Tombstone::decode(&world.store.get(&dead).expect("it is left").value);
        assert_eq!(standing.expect("decodes").start.ns, left, "after one of {born}");
    }
}

#[test]
fn a_static_address_takes_nothing_but_itself() {
    let pinned = |sets, request: Option<&str>| {
        let statics = vec![Held::new(addr("10.0.0.1").ip(), Some(NetworkName::default()))];
        let requests = vec![request.map(addr)];
        with(ask("a", 1, ""), |wanted| {
            *wanted = RangesWanted { requests, statics, ..RangesWanted::lowest_of(sets) }
        })
    };
    let small = || vec![set("10.0.0.0/29", "10.0.0.1", "10.0.0.6")];
    assert_eq!(World::new().hold(&pinned(small(), Some("10.0.0.2"))), ["10.0.0.2", "10.0.0.1"]);
    let taken = World::new().refusal(&pinned(small(), Some("10.0.0.1")));
    assert!(matches!(taken, Refused::Address(_, _, Refusal::Taken)), "{taken:?}");
    // Its bit is that of another address in every other page.
    let other_page = vec![set("10.0.16.0/29", "10.0.16.1", "10.0.16.6")];
    assert_eq!(World::new().hold(&pinned(other_page, None)), ["10.0.16.1", "10.0.0.1"]);
}

#[test]
fn sets_of_the_same_ranges_have_one_cursor_and_one_that_does_not_decode_stays() {
    let twice =
        || vec![set("10.0.0.0/29", "10.0.0.1", "10.0.0.6"), set("10.0.0.0/29", "10.0.0.1", "10.0.0.6")];
    let both = |id, ns| {
        with(ask(id, ns, ""), |wanted| {
            *wanted = RangesWanted { order: Order::Next, ..RangesWanted::lowest_of(twice()) }
        })
    };
    let mut world = World::new();
    let cursor = world.keys.cursor(&twice()[0], None);
    assert_eq!(world.hold(&both("a", 1)), ["10.0.0.1", "10.0.0.2"]);
    assert_eq!(world.store.get(&cursor).expect("put").value, b"10.0.0.1");
    world.store.put(cursor.clone(), "nonsense");
    world.hold(&both("b", 2));
    assert_eq!(world.store.get(&cursor).expect("it stays").value, b"nonsense");
}

#[test]
fn an_address_in_a_page_that_does_not_decode_is_not_given_even_on_request() {
    let mut world = World::new();
    let page = world.keys.page(&NetworkName::default(), addr("10.0.0.3").page());
    world.store.put(page, "garbage");
    let mut requested = ask("a", 1, "");
    requested.ranges().requests = vec![Some(addr("10.0.0.3"))];
    let mut fixed = ask("a", 1, "");
    fixed.ranges().sets = Vec::new();
    fixed.ranges().requests = Vec::new();
    fixed.ranges().statics = vec![Held::new(addr("10.0.0.4").ip(), Some(NetworkName::default()))];
    for asked in [requested, fixed] {
        assert!(matches!(world.refusal(&asked), Refused::Bad(_)));
    }
}

#[test]
fn a_repetition_keeps_the_labels_that_the_reservation_was_made_with() {
    let mut world = World::new();
    world.hold(&ask("a", 1, "u"));
    world.stand();
    let Ok(Step::Commit(commit)) = world.run(&ask("a", 2, "")) else { panic!("no commit") };
    let (txn, repeats) = (commit.txn.clone(), added(commit).repeats);
    assert!(repeats);
    assert!(world.store.apply(&txn).succeeded);
    let own = world.keys.owner(&owner("a"));
    let record = OwnerRecord::decode(&world.store.get(&own).expect("held").value).expect("decodes");
    assert_eq!(record.labels.pod.uid, "u".parse().ok());
}

#[test]
fn thirty_networks_whose_pages_all_fill_up_fit_into_one_transaction() {
    let mut world = World::new();
    let mut asked = ask("a", 1, "u");
    asked.ranges().order = Order::Next;
    asked.ranges().requests = vec![None; 30];
    asked.ranges().sets = (0..30)
        .map(|i| {
            let name = NetworkName::configured(&format!("n{i}")).expect("a name");
            let spec = cidr("10.0.0.0/8").to("10.0.15.254").network(name.as_str());
            let mut bits = Bits::full();
            bits.clear(9);
            world.store.put(world.keys.page(&name, addr("10.0.0.9").page()), bits.to_bytes());
            fixtures::set([spec])
        })
        .collect();
    assert_eq!(world.hold(&asked), ["10.0.0.9"; 30]);
}

#[test]
fn thirty_sets_fit_into_one_transaction() {
    let mut world = World::new();
    let mut asked = ask("a", 1, "u");
    asked.ranges().sets = (0..30).map(|_| set("10.0.0.0/8", "10.0.0.1", "10.255.255.254")).collect();
    asked.ranges().requests = vec![None; 30];
    assert_eq!(world.hold(&asked).len(), 30);
}

#[test]
fn a_page_that_becomes_full_is_noted_in_its_summary_and_freeing_takes_that_back() {
    let mut world = World::new();
    let mut bits = Bits::full();
    bits.clear(9);
    let address = addr("10.0.0.9");
    let page = world.keys.page(&NetworkName::default(), address.page());
    let full = world.keys.summary(&NetworkName::default(), address.page().summary());
    world.store.put(page, bits.to_bytes());
    let mut asked = ask("a", 1, "");
    asked.ranges().sets = vec![set("10.0.0.0/8", "10.0.0.1", "10.0.15.254")];
    assert_eq!(world.hold(&asked), ["10.0.0.9"]);
    let summary =
        |world: &World| Bits::from_bytes(&world.store.get(&full).expect("a summary").value).expect("512");
    assert!(summary(&world).get(address.page().bit()));
    world.free(&owner("a"));
    assert!(!summary(&world).get(address.page().bit()));
}

/// Another run has served this one meanwhile, or repeated its ADD.
#[test]
fn a_reservation_that_was_read_before_its_record_was_written_is_read_again() {
    let mut world = World::new();
    let ask = ask("a", 5, "u");
    let ip = world.ip("10.0.0.1");
    let mut snapshot = Snapshot::default();
    world.store.read(std::slice::from_ref(&ip), &mut snapshot);
    assert_eq!(world.hold(&ask), ["10.0.0.1"]);
    let allotment = Allotment::new(&ask, &world.keys);
    world.store.read(&allotment.reads(&Snapshot::default()), &mut snapshot);
    let Ok(Step::Read(ops)) = allotment.plan(&snapshot, &world.fence(), &Line::default()) else {
        panic!("it must read {} again", String::from_utf8_lossy(&ip))
    };
    assert!(ops.contains(&Op::Get(ip)));
}
