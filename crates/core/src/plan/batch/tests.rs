//! Batches on a store of a few keys.

use super::*;
use crate::keys::TicketId;
use crate::line::Waiting;
use crate::memory::Memory;
use crate::plan::ask::RunStamp;
use crate::plan::effects::Outcome;
use crate::pool::choose::Order;
use crate::pool::range::fixtures::{addr, cidr, set};
use crate::pool::{
    Addr, Caller, Held, Labels, NetworkName, Owner, OwnerRecord, Pod, RangesWanted, Reservation, RunStart,
    Tombstone, Wanted,
};
use crate::request::TicketRecord;
use crate::ticket::awaits_turn;
use crate::txn::Reply;

struct World {
    keys: Keys,
    store: Memory,
    scope: Scope,
    seen: Snapshot,
    tickets: Vec<Bytes>,
}

fn ask(id: &str) -> Ask {
    let sets = vec![
        set([cidr("10.0.0.0/24").bounds("10.0.0.1", "10.0.0.200")]),
        set([cidr("fd00::/64").bounds("fd00::1", "fd00::200")]),
    ];
    let uid = format!("uid-{id}").parse().ok();
    let pod = Pod { namespace: "ns".into(), name: id.to_owned(), uid };
    let stamp = RunStamp {
        start: RunStart { boot: "b".into(), ns: 5 },
        machine: "m".into(),
        created_at: "2026-01-01T00:00:00Z".into(),
    };
    let owner = Owner::named(["-", "n", id, "eth0"]).expect("plain names");
    Ask::new(owner, Labels { pod, cni_network: "net".into() }, Wanted::lowest_of(sets), stamp)
}

impl World {
    fn new() -> Self {
        let keys = Keys::new("/m/");
        let mut store = Memory::default();
        store.put(keys.meta(), Meta::first("s".into()).encode());
        let scope = Resolved::without_pools(&ask("any")).scope();
        Self { keys, store, scope, seen: Snapshot::default(), tickets: Vec::new() }
    }

    /// Stands in the queue.
    fn stand(&mut self, ticket: &TicketRecord) -> Bytes {
        let id = TicketId(self.tickets.len() as i64 + 1);
        let key = self.keys.ticket(&self.scope, id);
        self.store.put(key.clone(), ticket.encode());
        self.store.put(self.keys.tail(&self.scope), format!("{:016x}", id.0));
        self.tickets.push(key.clone());
        key
    }

    fn ask(&mut self, id: &str) -> Bytes {
        self.stand(&TicketRecord::asking(&ask(id), 1))
    }

    fn head(&self) -> Ticket {
        Ticket {
            key: self.keys.ticket(&self.scope, TicketId(1000)),
            create_revision: 1,
            lease: LeaseId(7),
            cluster: None,
            tombstones: LeaseId(7),
            tail: self.keys.tail(&self.scope),
            moved: self.keys.moved(&self.scope),
        }
    }

    fn line(&self, hands_over: bool) -> Line {
        let tickets: Vec<Entry> =
            self.tickets.iter().filter_map(|key| self.store.get(key).cloned()).collect();
        Line { hands_over, ..Line::new(&tickets, |_| false) }
    }

    /// Plans the next batch for this line, supplying what is asked for.
    fn plan(&mut self, line: &Line) -> Option<Planned> {
        for _ in 0..10 {
            match plan(&self.keys, &self.seen, &self.head(), &self.scope, line) {
                Ok(planned) => return planned,
                Err(lacking) => {
                    lacking.chunks(100).for_each(|ops| self.store.read_all(ops, &mut self.seen));
                }
            }
        }
        panic!("it goes on reading");
    }

    /// Applies a batch, and takes over what it shows. What its effects say of the queue is what became of it.
    fn apply(&mut self, Planned { txn, effects }: &Planned) -> Reply {
        let (stood, had_tail) = (self.standing(), self.has_tail());
        let reply = self.store.apply(txn);
        if reply.succeeded {
            let Outcome { gone, has_ended_queue, .. } = effects.outcome(&reply.found);
            assert_eq!(gone.into_iter().collect::<BTreeSet<_>>(), &stood - &self.standing());
            assert_eq!(has_ended_queue, had_tail && !self.has_tail());
            self.seen.apply(txn, &reply)
        } else {
            self.seen.absorb(&txn.otherwise, &reply)
        }
        reply
    }

    /// Serves the present line.
    fn serve(&mut self) -> Reply {
        let line = self.line(false);
        let batch = self.plan(&line).expect("a batch");
        self.apply(&batch)
    }

    /// The owner's IPv4 addresses.
    fn held(&self, id: &str) -> Option<String> {
        let entry = self.store.get(&self.keys.owner(&ask(id).owner))?;
        let record = OwnerRecord::decode(&entry.value).expect("decodes");
        assert_eq!(record.start, Some(ask(id).stamp.start), "it is the record of the run that asked");
        for (network, address) in record.reserved() {
            let entry = self.store.get(&self.keys.ip(network, address)).expect("reserved");
            assert_eq!(Reservation::decode(&entry.value).expect("decodes").owner, ask(id).owner);
            let page = self.store.get(&self.keys.page(network, address.page())).expect("a page");
            assert!(crate::pool::Bits::from_bytes(&page.value).expect("bits").get(address.bit()));
        }
        Some(record.addresses[0].address.to_string())
    }

    /// The tickets that are there.
    fn standing(&self) -> BTreeSet<Bytes> {
        self.tickets.iter().filter(|key| self.store.get(key).is_some()).cloned().collect()
    }

    fn is_told_to_decide_alone(&self, at: usize) -> bool {
        let ticket = self.store.get(&self.tickets[at]).map(|ticket| TicketRecord::decode(&ticket.value));
        ticket.is_some_and(|ticket| ticket.expect("decodes").is_decided_alone())
    }

    fn has_tail(&self) -> bool {
        self.store.get(&self.keys.tail(&self.scope)).is_some()
    }
}

#[test]
fn those_who_wait_are_served_in_order_by_one_commit() {
    let mut world = World::new();
    for id in ["a", "b", "c"] {
        world.ask(id);
    }
    let reply = world.serve();
    assert!(reply.succeeded);
    for (id, address) in [("a", "10.0.0.1"), ("b", "10.0.0.2"), ("c", "10.0.0.3")] {
        assert_eq!(world.held(id).as_deref(), Some(address));
    }
    assert!(world.tickets.iter().all(|key| world.store.get(key).is_none()), "tickets are gone");
    assert!(!world.has_tail(), "nobody waits any more");
    // The next batch goes on from there, on what the first one has written.
    world.ask("d");
    world.serve();
    assert_eq!(world.held("d").as_deref(), Some("10.0.0.4"));
}

#[test]
fn one_that_cannot_be_served_any_more_does_not_stop_the_others() {
    type Spoil = fn(&mut World, Addr);
    let spoils: [Spoil; 5] = [
        |world, _| {
            let ticket = world.tickets[0].clone();
            world.store.apply(&Txn { then: vec![Op::Delete(ticket)], ..Txn::default() });
        },
        |world, _| {
            // Another run of its name stands there now.
            let ticket = world.tickets[0].clone();
            world.store.apply(&Txn { then: vec![Op::Delete(ticket.clone())], ..Txn::default() });
            world.store.put(ticket, "");
        },
        |world, _| {
            let tombstone = Tombstone::new(RunStart { boot: "b".into(), ns: 9 });
            world.store.put(world.keys.tombstone(&ask("a").owner), tombstone.encode());
        },
        |world, _| {
            world.store.put(
                world.keys.owner(&ask("a").owner),
                Resolved::without_pools(&ask("a")).record(Vec::new()).encode(),
            )
        },
        |world, address| {
            world.store.put(world.keys.ip(&NetworkName::default(), address), ask("x").reservation());
        },
    ];
    for (case, spoil) in spoils.into_iter().enumerate() {
        let mut world = World::new();
        world.ask("a");
        world.ask("b");
        let line = world.line(false);
        let batch = world.plan(&line).expect("a batch");
        spoil(&mut world, addr("10.0.0.1"));
        let before = world.store.get(&world.keys.owner(&ask("a").owner)).cloned();
        let reply = world.apply(&batch);
        assert!(reply.succeeded, "case {case}");
        assert_eq!(world.store.get(&world.keys.owner(&ask("a").owner)), before.as_ref(), "case {case}");
        assert_eq!(world.held("b").as_deref(), Some("10.0.0.2"), "case {case}");
        // The ticket of an owner that was deleted since goes, too.
        let is_deleted = world.store.get(&world.keys.tombstone(&ask("a").owner)).is_some();
        let gone = &world.tickets[usize::from(!is_deleted)..2];
        assert_eq!(batch.effects.outcome(&reply.found).gone, gone, "case {case}");
    }
}

#[test]
fn a_commit_of_somebody_else_stops_the_whole_batch() {
    let mut world = World::new();
    world.ask("a");
    let line = world.line(false);
    let batch = world.plan(&line).expect("a batch");
    let page = world.keys.page(&NetworkName::default(), addr("10.0.0.1").page());
    world.store.put(page, vec![0xff; 512]);
    assert!(!world.apply(&batch).succeeded);
    assert_eq!(world.held("a"), None);
    // It was read again with the answer, and the range is full now: the run decides alone.
    let batch = world.plan(&line).expect("a batch");
    assert!(batch.effects.outcome(&world.apply(&batch).found).gone.is_empty());
    assert!(world.is_told_to_decide_alone(0));
}

/// A head that refuses nobody gives all those who find no address their turns at once. It goes on itself.
#[test]
fn those_who_get_no_address_decide_alone_and_all_at_once() {
    let mut world = World::new();
    for id in 0..150 {
        let mut ask = ask(&format!("c{id}"));
        ask.ranges().sets[0] = set([cidr("10.0.0.0/24").bounds("10.0.0.1", "10.0.0.10")]);
        world.stand(&TicketRecord::asking(&ask, 1));
    }
    world.serve();
    assert_eq!(world.standing().len(), 140, "ten have an address, and who is served last may yet drop out");
    let mut commits = 0;
    while !(10..150).all(|at| world.is_told_to_decide_alone(at)) {
        let line = world.line(false);
        let batch = world.plan(&line).expect("turns");
        assert!(batch.txn.fits() && !batch.effects.hands_over());
        assert!(world.apply(&batch).succeeded);
        commits += 1;
    }
    assert_eq!(commits, 2);
    assert!(world.plan(&world.line(false)).is_none(), "nobody is left for this head");
}

/// Tombstones that a DEL has put since these runs took their tickets, and one that is older than a ticket.
#[test]
fn the_tickets_of_owners_that_were_deleted_since_go_whatever_they_ask_for() {
    let mut world = World::new();
    world.ask("held");
    world.serve();
    let bury = |world: &mut World, id: &str| {
        let tombstone = Tombstone::new(RunStart { boot: "another".into(), ns: 1 });
        world.store.put(world.keys.tombstone(&ask(id).owner), tombstone.encode());
    };
    bury(&mut world, "again");
    let del = freeing(&world, "held", 3);
    let asks = world.ask("asks");
    let alone = world.stand(&TicketRecord::of(ask("alone").owner));
    let del = world.stand(&del);
    let again = world.ask("again");
    let had_its_turn = world.stand(&TicketRecord::of(ask("turn").owner));
    let ticket = world.store.get(&had_its_turn).expect("it stands").value.clone();
    world.store.put(had_its_turn.clone(), ticket);
    ["asks", "alone", "held", "turn"].iter().for_each(|id| bury(&mut world, id));
    let mut gone = BTreeSet::new();
    for _ in 0..2 {
        let line = Line { is_impatient: true, ..world.line(false) };
        let Some(batch) = world.plan(&line) else { break };
        let reply = world.apply(&batch);
        gone.extend(batch.effects.outcome(&reply.found).gone);
    }
    assert_eq!(gone, BTreeSet::from([asks, alone, del, had_its_turn]));
    assert_eq!(world.standing(), BTreeSet::from([again]), "its owner came back after it was deleted");
    assert!(!world.has_tail(), "the tail named one of them");
    assert!(world.held("held").is_some(), "that DEL had read an older record");
}

#[test]
fn a_head_that_has_seen_nothing_move_gives_several_turns() {
    let mut world = World::new();
    for id in 0..20 {
        world.stand(&TicketRecord::of(ask(&format!("c{id}")).owner));
    }
    world.ask("living");
    let is_told =
        |world: &World| world.store.get(&world.keys.moved(&world.scope)).map(|moved| moved.value.clone());
    let turns = |batch: &Planned| batch.effects.turns.len();
    let patient = world.plan(&world.line(false)).expect("a batch");
    let line = Line { is_impatient: true, ..world.line(false) };
    let impatient = world.plan(&line).expect("a batch");
    assert_eq!([&patient, &impatient].map(turns), [1, limits::TURNS]);
    world.apply(&impatient);
    assert!(world.held("living").is_some());
    assert!(is_told(&world).is_some_and(|moved| !moved.is_empty()), "those who wait stay impatient");
    world.ask("next");
    let line = Line { is_impatient: true, ..world.line(false) };
    let second = world.plan(&line).expect("a batch");
    world.apply(&second);
    world.ask("last");
    let line = Line { is_impatient: true, ..world.line(false) };
    let third = world.plan(&line).expect("a batch");
    world.apply(&third);
    assert_eq!([turns(&second), turns(&third)], [limits::TURNS, 4]);
    world.ask("alone");
    world.serve();
    assert_eq!(is_told(&world), Some(Vec::new()));
}

/// An ask for this address of the IPv4 range.
fn ask_for(id: &str, address: &str) -> Ask {
    let mut ask = ask(id);
    ask.ranges().requests[0] = Some(addr(address));
    ask
}

#[test]
fn addresses_that_are_asked_for_are_given_by_the_head() {
    let mut world = World::new();
    for (id, address) in [("a", "10.0.0.9"), ("b", "10.0.0.9"), ("c", "10.0.0.1"), ("d", "10.0.0.7")] {
        world.stand(&TicketRecord::asking(&ask_for(id, address), 1));
    }
    world.ask("e");
    let line = world.line(false);
    let batch = world.plan(&line).expect("a batch");
    // An address that was asked for, and freed, cools, and its bit was cleared with another tool.
    world.store.put(world.keys.cooling(&NetworkName::default(), addr("10.0.0.7")), "");
    world.apply(&batch);
    assert_eq!(
        ["a", "c", "e"].map(|id| world.held(id).expect("served")),
        ["10.0.0.9", "10.0.0.1", "10.0.0.2"]
    );
    assert_eq!(["b", "d"].map(|id| world.held(id)), [None, None]);
    // Both decide for themselves.
    while let Some(batch) = world.plan(&world.line(false)) {
        world.apply(&batch);
    }
    let has_turn =
        |at: usize| Waiting::of(world.store.get(&world.tickets[at]).expect("waits").clone()).has_its_turn();
    assert!(has_turn(1) && has_turn(3) && world.is_told_to_decide_alone(1));
}

#[test]
fn many_who_ask_for_addresses_of_as_many_pages_fit() {
    let mut world = World::new();
    let page_of = |at: usize| {
        let range = cidr("10.0.0.0/8");
        let mut ask = ask(&format!("c{at}"));
        ask.ranges().sets[0] = set([range]);
        ask.ranges().requests[0] = Some(addr(&format!("10.{}.{}.9", at / 16, at % 16 * 16)));
        ask
    };
    world.scope = Resolved::without_pools(&page_of(0)).scope();
    (0..150).for_each(|at| _ = world.stand(&TicketRecord::asking(&page_of(at), 1)));
    let mut commits = 0;
    while world.has_tail() {
        assert!(world.serve().succeeded);
        commits += 1;
    }
    assert!((0..150).all(|at| world.held(&format!("c{at}")).is_some()));
    assert!(commits <= 10, "{commits}");
}

#[test]
fn who_must_decide_alone_gets_a_turn_once_and_is_then_passed() {
    let other_epoch = TicketRecord::asking(&ask("a"), 2);
    let other_scope = {
        let mut ask = ask("a");
        ask.ranges().sets.reverse();
        TicketRecord::asking(&ask, 1)
    };
    let other_cluster = {
        let owner = Owner::named(["east", "n", "a", "eth0"]).expect("plain names");
        TicketRecord::asking(&Ask { owner, ..ask("a") }, 1)
    };
    for alone in [TicketRecord::of(ask("a").owner), other_epoch, other_scope, other_cluster] {
        let mut world = World::new();
        let first = world.stand(&alone);
        world.ask("b");
        let created = world.store.get(&first).expect("stands").create_revision;
        let line = world.line(false);
        let batch = world.plan(&line).expect("a batch");
        assert!(batch.effects.hands_over());
        world.apply(&batch);
        let entry = world.store.get(&first).expect("it stands still");
        assert_eq!(entry.create_revision, created);
        assert_ne!(entry.mod_revision, created, "its turn was signalled");
        assert!(world.held("b").is_some() && world.held("a").is_none());
        assert!(world.has_tail(), "somebody waits");
        // It does nothing. The next head passes it.
        world.ask("c");
        let line = world.line(false);
        let batch = world.plan(&line).expect("a batch");
        assert!(!batch.effects.hands_over());
        world.apply(&batch);
        assert!(world.held("c").is_some());
    }
}

#[test]
fn a_turn_is_not_given_to_a_ticket_that_is_gone() {
    let mut world = World::new();
    let first = world.stand(&TicketRecord::of(ask("a").owner));
    world.ask("b");
    let line = world.line(false);
    let batch = world.plan(&line).expect("a batch");
    world.store.apply(&Txn { then: vec![Op::Delete(first.clone())], ..Txn::default() });
    let reply = world.apply(&batch);
    assert!(reply.succeeded && !batch.effects.outcome(&reply.found).has_given_turn);
    assert_eq!(world.store.get(&first), None);
}

#[test]
fn a_head_that_stops_keeps_the_last_one_and_gives_it_the_turn() {
    let mut world = World::new();
    let keys: Vec<Bytes> = ["a", "b", "c"].iter().map(|id| world.ask(id)).collect();
    let line = world.line(true);
    let batch = world.plan(&line).expect("a batch");
    assert!(batch.effects.hands_over());
    world.apply(&batch);
    assert!(world.held("a").is_some() && world.held("b").is_some() && world.held("c").is_none());
    let kept = world.store.get(&keys[2]).expect("stands");
    assert_ne!(kept.mod_revision, kept.create_revision);
    assert!(Waiting::of(kept.clone()).has_its_turn());
}

#[test]
fn two_runs_of_one_pod_are_not_served_together() {
    let mut world = World::new();
    let mut older = ask("a");
    older.labels.pod.uid = ask("b").labels.pod.uid;
    world.stand(&TicketRecord::asking(&older, 1));
    world.ask("b");
    world.ask("b");
    let line = world.line(false);
    let batch = world.plan(&line).expect("a batch");
    let reply = world.apply(&batch);
    assert!(reply.succeeded, "no key is written twice");
    assert_eq!(batch.effects.outcome(&reply.found).gone.len(), 1);
}

#[test]
fn cursors_move_to_the_last_one_and_a_full_queue_fits() {
    let mut world = World::new();
    for at in 0..150 {
        let mut ask = ask(&format!("c{at}"));
        ask.ranges().order = Order::Next;
        world.stand(&TicketRecord::asking(&ask, 1));
    }
    let line = world.line(false);
    let batch = world.plan(&line).expect("a batch");
    assert!(batch.txn.fits());
    let reply = world.apply(&batch);
    assert_eq!(batch.effects.outcome(&reply.found).gone.len(), SIZES[0]);
    assert!(world.has_tail());
    let cursor = world.keys.cursor(&ask("any").ranges().sets[0], None);
    assert_eq!(
        world.store.get(&cursor).expect("a cursor").value,
        format!("10.0.0.{}", SIZES[0]).into_bytes()
    );
    let line = world.line(false);
    let batch = world.plan(&line).expect("a batch");
    let reply = world.apply(&batch);
    assert_eq!(batch.effects.outcome(&reply.found).gone.len(), 150 - SIZES[0]);
    assert!(!world.has_tail());
}

#[test]
fn nobody_is_served_while_the_store_hands_out_nothing() {
    let mut world = World::new();
    world.ask("a");
    let mut meta = Meta::first("s".into());
    meta.paused = Some("a migration".into());
    world.store.put(world.keys.meta(), meta.encode());
    let line = world.line(false);
    let batch = world.plan(&line).expect("a turn");
    assert!(batch.effects.hands_over(), "it has its own error to tell");
    let reply = world.apply(&batch);
    assert!(batch.effects.outcome(&reply.found).gone.is_empty() && world.held("a").is_none());
}

fn freeing(world: &World, id: &str, ns: u64) -> TicketRecord {
    let owner = ask(id).owner;
    let entry = world.store.get(&world.keys.owner(&owner)).expect("held");
    let record = OwnerRecord::decode(&entry.value).expect("decodes");
    let caller = Caller { machine: "m", pod_uid: None };
    TicketRecord::freeing(&owner, &RunStart { boot: "b".into(), ns }, caller, LeaseId(9), record)
}

#[test]
fn dels_are_served_beside_adds_and_their_bits_are_cleared() {
    let mut world = World::new();
    for id in ["a", "b", "c"] {
        world.ask(id);
    }
    world.serve();
    let del = freeing(&world, "b", 9);
    world.stand(&del);
    world.ask("d");
    // A DEL that began before what it is to free was made.
    let early = freeing(&world, "c", 3);
    let early = world.stand(&early);
    let line = world.line(false);
    let batch = world.plan(&line).expect("a batch");
    assert!(world.apply(&batch).succeeded);
    assert_eq!(world.held("b"), None);
    let tombstone = world.store.get(&world.keys.tombstone(&ask("b").owner)).expect("a tombstone");
    assert_eq!(Tombstone::decode(&tombstone.value).expect("decodes").start.ns, 9);
    assert_eq!(world.held("d").as_deref(), Some("10.0.0.4"), "what is freed is taken by the next batch");
    assert!(world.held("c").is_some() && world.store.get(&early).is_some(), "it is left for its own turn");
    world.ask("e");
    world.serve();
    assert_eq!(world.held("e").as_deref(), Some("10.0.0.2"));
}

#[test]
fn a_del_whose_owner_holds_nothing_any_more_leaves_its_tombstone() {
    let mut world = World::new();
    world.ask("a");
    world.serve();
    let del = freeing(&world, "a", 9);
    world.stand(&del);
    world.store.apply(&Txn { then: vec![Op::Delete(world.keys.owner(&ask("a").owner))], ..Txn::default() });
    world.serve();
    let tombstone = world.store.get(&world.keys.tombstone(&ask("a").owner)).expect("a tombstone");
    assert_eq!(Tombstone::decode(&tombstone.value).expect("decodes").start.ns, 9);
    assert!(world.standing().is_empty() && !world.has_tail());
}

#[test]
fn a_head_may_leave_the_frees_of_others() {
    let mut world = World::new();
    world.ask("a");
    world.serve();
    let del = freeing(&world, "a", 9);
    let ticket = world.stand(&del);
    world.ask("b");
    let line = Line { leaves_frees: true, ..world.line(false) };
    let batch = world.plan(&line).expect("a batch");
    world.apply(&batch);
    assert!(world.held("a").is_some() && world.held("b").is_some());
    assert!(Waiting::of(world.store.get(&ticket).expect("it waits").clone()).has_its_turn());
}

#[test]
fn a_reservation_that_stays_keeps_its_bit() {
    let mut world = World::new();
    world.ask("a");
    world.serve();
    let del = freeing(&world, "a", 9);
    let ticket = world.stand(&del);
    let line = world.line(false);
    let batch = world.plan(&line).expect("a batch");
    // The DEL has left meanwhile.
    world.store.apply(&Txn { then: vec![Op::Delete(ticket)], ..Txn::default() });
    assert!(!world.apply(&batch).succeeded);
    assert!(world.held("a").is_some());
}

#[test]
fn many_dels_fit_into_few_batches() {
    let mut world = World::new();
    let ids: Vec<String> = (0..60).map(|at| format!("c{at}")).collect();
    ids.iter().for_each(|id| _ = world.ask(id));
    world.serve();
    for id in &ids {
        let del = freeing(&world, id, 9);
        world.stand(&del);
    }
    let mut batches = 0;
    while world.has_tail() {
        let line = world.line(false);
        let batch = world.plan(&line).expect("a batch");
        assert!(batch.txn.fits() && world.apply(&batch).succeeded);
        batches += 1;
    }
    assert!(ids.iter().all(|id| world.held(id).is_none()));
    assert!(batches <= 6, "{batches} batches");
}

#[test]
fn the_bit_of_a_run_that_was_left_out_is_cleared_by_the_next_commit() {
    let mut world = World::new();
    let gone = world.ask("a");
    let line = world.line(false);
    let batch = world.plan(&line).expect("a batch");
    world.store.apply(&Txn { then: vec![Op::Delete(gone)], ..Txn::default() });
    let reply = world.apply(&batch);
    let stray = batch.effects.outcome(&reply.found).stray;
    assert_eq!(stray.len(), 2, "one of each family: {stray:?}");
    let (network, address) = stray[0].clone();
    let page = world.keys.page(&network, address.page());
    let has_bit = |world: &World| {
        let entry = world.store.get(&page).expect("a page");
        crate::pool::Bits::from_bytes(&entry.value).expect("bits").get(address.bit())
    };
    assert!(has_bit(&world));
    // Somebody asked for that very address meanwhile.
    let line = Line { stray: stray.clone(), ..Line::default() };
    let clearing = world.plan(&line).expect("a commit");
    let mut taken = world.store.clone();
    taken.put(world.keys.ip(&network, address), "");
    assert!(!taken.apply(&clearing.txn).succeeded);
    // Those who wait after a turn stay impatient.
    for has_given_turn in [true, false] {
        let line = Line { stray: stray.clone(), has_given_turn, ..Line::default() };
        let mut store = world.store.clone();
        assert!(store.apply(&world.plan(&line).expect("a commit").txn).succeeded);
        assert_eq!(awaits_turn(store.get(&world.keys.moved(&world.scope))), has_given_turn);
    }
    assert!(world.apply(&clearing).succeeded && !has_bit(&world));
}

#[test]
fn what_a_batch_frees_under_a_clear_bit_it_does_not_hand_out() {
    let mut world = World::new();
    world.ask("a");
    world.serve();
    let del = freeing(&world, "a", 9);
    world.stand(&del);
    let waits = world.ask("b");
    let line = world.line(false);
    world.plan(&line).expect("a batch, after all that the DEL relies on was read");
    // The page was written after that, and another tool has cleared the bit.
    let page = world.keys.page(&NetworkName::default(), addr("10.0.0.1").page());
    world.store.put(page.clone(), crate::pool::Bits::empty().to_bytes());
    world.store.read(&[page], &mut world.seen);
    // A key that is written twice would panic.
    assert!(world.serve().succeeded);
    assert!(world.held("a").is_none() && world.held("b").is_none());
    assert!(world.store.get(&waits).is_some(), "it waits for the next batch");
    world.serve();
    assert_eq!(world.held("b").as_deref(), Some("10.0.0.1"));
}

#[test]
fn a_batch_frees_only_the_record_that_the_del_has_read() {
    let mut world = World::new();
    world.ask("a");
    world.serve();
    let del = freeing(&world, "a", 9);
    // A run of the next boot, whose start no start of this boot can be compared with.
    let own = world.keys.owner(&ask("a").owner);
    let mut later = ask("a");
    later.stamp.start = RunStart { boot: "later".into(), ns: 1 };
    let held = OwnerRecord::decode(&world.store.get(&own).expect("held").value).expect("decodes").addresses;
    world.store.put(own.clone(), Resolved::without_pools(&later).record(held).encode());
    let written = world.store.get(&own).cloned();
    world.seen = Snapshot::default();
    world.stand(&del);
    world.serve();
    assert_eq!(world.store.get(&own), written.as_ref());
}

/// The virtual machine was put back to a snapshot of its memory while the DEL was in the queue. The ADD that the
/// runtime repeats seems to be older than the DEL.
#[test]
fn a_batch_frees_no_record_that_was_put_again_since_the_del_took_its_ticket() {
    let mut world = World::new();
    world.ask("a");
    world.serve();
    let del = freeing(&world, "a", 9);
    world.stand(&del);
    let own = world.keys.owner(&ask("a").owner);
    let record = world.store.get(&own).expect("held").value.clone();
    world.store.put(own, record);
    world.seen = Snapshot::default();
    world.serve();
    assert_eq!(world.held("a").as_deref(), Some("10.0.0.1"));
}

#[test]
fn reservations_that_were_read_before_their_page_was_deleted_hold_nothing() {
    let mut world = World::new();
    for id in ["a", "b"] {
        world.ask(id);
    }
    world.serve();
    let network = NetworkName::default();
    let ips = ["10.0.0.1", "10.0.0.2"].map(|ip| world.keys.ip(&network, addr(ip)));
    let page = world.keys.page(&network, addr("10.0.0.1").page());
    world.store.read(&ips, &mut world.seen);
    let then = ips.into_iter().chain([page.clone()]).map(Op::Delete).collect();
    world.store.apply(&Txn { then, ..Txn::default() });
    world.store.read(&[page], &mut world.seen);
    for id in ["c", "d"] {
        world.ask(id);
    }
    let line = world.line(false);
    let batch = world.plan(&line).expect("a batch");
    let reply = world.apply(&batch);
    assert_eq!(batch.effects.outcome(&reply.found).gone.len(), 2);
    // The second one is decided on the page as the first one has left it.
    assert_eq!(["c", "d"].map(|id| world.held(id).expect("it was served")), ["10.0.0.1", "10.0.0.2"]);
}

#[test]
fn a_del_that_fits_into_no_batch_gets_its_turn() {
    let mut world = World::new();
    let (mut held, owner) = (Vec::new(), ask("wide").owner);
    for at in 0..60 {
        let network = NetworkName::configured(&format!("n{at}")).expect("a name");
        let address = addr("10.0.0.1");
        world.store.put(world.keys.ip(&network, address), ask("wide").reservation());
        world.store.put(world.keys.page(&network, address.page()), crate::pool::Bits::empty().to_bytes());
        held.push(Held::new(address.ip(), Some(network)));
    }
    world.store.put(world.keys.owner(&owner), Resolved::without_pools(&ask("wide")).record(held).encode());
    let del = freeing(&world, "wide", 9);
    let wide = world.stand(&del);
    world.ask("b");
    world.serve();
    let kept = Waiting::of(world.store.get(&wide).expect("it waits").clone());
    assert!(kept.has_its_turn());
}

/// One that asks for an address of a /28 of its own, in the page of all others.
fn of_own_range(at: usize) -> Ask {
    let range = cidr(&format!("10.0.{}.{}/28", at / 16, at % 16 * 16));
    let wanted = RangesWanted { order: Order::Next, ..RangesWanted::lowest_of(vec![set([range])]) };
    Ask { wanted: wanted.into(), ..ask(&format!("c{at}")) }
}

#[test]
fn runs_of_many_ranges_of_a_page_are_served_together_and_each_moves_its_own_cursor() {
    let mut world = World::new();
    world.scope = Resolved::without_pools(&of_own_range(0)).scope();
    let asks: Vec<Ask> = (0..200).map(of_own_range).collect();
    for ask in &asks {
        assert_eq!(Resolved::without_pools(ask).scope(), world.scope);
        world.stand(&TicketRecord::asking(ask, 1));
    }
    let mut commits = 0;
    while asks.iter().any(|ask| world.store.get(&world.keys.owner(&ask.owner)).is_none()) {
        // It does not read one cursor after the other.
        assert!(world.serve().succeeded);
        commits += 1;
    }
    assert!(commits <= 5, "{commits}");
    for (at, ask) in asks.iter().enumerate() {
        let asked = Resolved::without_pools(ask);
        let first = asked.sets()[0].set.ranges()[0].first();
        assert_eq!(world.held(&format!("c{at}")), Some(first.to_string()));
        let cursor = world.store.get(&asked.cursor_keys(&world.keys)[0]).expect("a cursor");
        assert_eq!(cursor.value, first.to_string().into_bytes());
    }
}
