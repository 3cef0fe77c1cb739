//! Pools that change between two decisions.

mod auto;

use proptest::prelude::*;

use super::*;
use crate::fence::Fence;
use crate::keys::{LeaseId, Scope, TicketId};
use crate::line::Line;
use crate::memory::Memory;
use crate::plan::allot::{Added, Allotment, Allotted, Refused};
use crate::plan::ask::{Ask, RunStamp};
use crate::plan::batch;
use crate::plan::change::{Change, Step};
use crate::plan::effects::Planned;
use crate::pool::range::fixtures::{cidr, set};
use crate::pool::{
    Labels, Meta, Owner, OwnerRecord, Pod, PoolChanges, PoolRecord, Range, Record, RunStart, Standing, Wanted,
};
use crate::request::TicketRecord;
use crate::ticket::Ticket;
use crate::txn::{Op, Txn};

struct World {
    keys: Keys,
    store: Memory,
}

impl World {
    fn new(pools: &[&str]) -> Self {
        let mut world = Self { keys: Keys::new("/m/"), store: Memory::default() };
        world.store.put(world.keys.meta(), Meta::first("s".into()).encode());
        pools.iter().for_each(|pool| world.apply(pool));
        world
    }

    fn apply(&mut self, text: &str) {
        let definition: PoolDefinition = serde_json::from_str(text).expect(text);
        self.store.put(self.keys.pool(&definition.pool), PoolRecord::new(definition).encode());
        self.compile();
    }

    fn delete(&mut self, pool: &str) {
        let then = vec![Op::Delete(self.keys.pool(&name(pool)))];
        self.store.apply(&Txn { then, ..Txn::default() });
        self.compile();
    }

    /// Writes the key that every change of a pool writes besides.
    fn compile(&mut self) {
        let keys = self.store.keys().into_iter().filter(|key| key.starts_with("/m/v1/pool/"));
        let pool = |key: String| PoolRecord::decode(&self.store.get(key.as_bytes())?.value).ok();
        let pools: Vec<PoolDefinition> = keys.filter_map(pool).map(|record| record.definition).collect();
        self.store.put(self.keys.pool_changes(), PoolChanges::of(&pools).encode());
    }

    fn fence(&self) -> Fence {
        Fence::Lease { key: b"/m/v1/fence/n".to_vec(), lease: LeaseId(7) }
    }

    /// Decides, supplying what is asked for, until there is more to do than to read.
    fn plan(&self, ask: &Ask) -> Result<Step<Allotted>, Refused> {
        let change = Allotment::new(ask, &self.keys);
        let mut seen = Snapshot::default();
        for _ in 0..10 {
            match change.plan(&seen, &self.fence(), &Line::default()) {
                Ok(Step::Read(ops)) => self.store.read_all(&ops, &mut seen),
                other => return other,
            }
        }
        panic!("it goes on reading");
    }

    fn commit(&self, ask: &Ask) -> (Txn, Vec<Held>) {
        match self.plan(ask) {
            Ok(Step::Commit(commit)) => match commit.done {
                Some(Allotted::Held(Added { held, .. })) => (commit.txn, held),
                other => panic!("nothing is held: {other:?}"),
            },
            other => panic!("no commit: {other:?}"),
        }
    }

    fn hold(&mut self, ask: &Ask) -> Vec<Held> {
        let (txn, held) = self.commit(ask);
        assert!(self.store.apply(&txn).succeeded);
        held
    }

    /// A run waits behind the one at the head: the line, the head's ticket, and the key of the other one.
    fn waiting(&mut self, asked: &Ask, scope: &Scope) -> (Line, Ticket, Bytes) {
        let key = self.keys.ticket(scope, TicketId(1));
        let ticket = TicketRecord::asking(asked, 1);
        assert!(ticket.asks_for_addresses());
        self.store.put(key.clone(), ticket.encode());
        self.store.put(self.keys.tail(scope), format!("{:016x}", 1));
        let head = Ticket {
            key: self.keys.ticket(scope, TicketId(9)),
            create_revision: 1,
            lease: LeaseId(7),
            cluster: asked.owner.cluster.clone(),
            tombstones: LeaseId(7),
            tail: self.keys.tail(scope),
            moved: self.keys.moved(scope),
        };
        (Line::new(&[self.store.get(&key).expect("it waits").clone()], |_| false), head, key)
    }

    /// The commit that serves it.
    fn batch(&self, scope: &Scope, line: &Line, head: &Ticket) -> Planned {
        let mut seen = Snapshot::default();
        loop {
            match batch::plan(&self.keys, &seen, head, scope, line) {
                Ok(planned) => return planned.expect("a batch"),
                Err(lacking) => self.store.read_all(&lacking, &mut seen),
            }
        }
    }

    fn refusal(&self, ask: &Ask) -> PoolRefused {
        match self.plan(ask) {
            Err(Refused::Pool(why)) => why,
            other => panic!("not refused: {other:?}"),
        }
    }
}

const STORAGE: &str = r#"{"pool":"storage","network":"blue","order":"lowest",
    "ranges":[{"range":"10.0.0.0/29","gateway":"10.0.0.6"}]}"#;
const DRAINED: &str = r#"{"pool":"storage","network":"blue","order":"lowest",
    "ranges":[{"range":"10.0.0.0/29","gateway":"10.0.0.6","state":"draining"},{"range":"10.0.1.0/29"}]}"#;
const MOVED: &str = r#"{"pool":"storage","network":"blue","ranges":[{"range":"10.9.0.0/29"}]}"#;
const SPILL: &str = r#"{"pool":"spill","network":"blue","ranges":[{"range":"10.0.2.0/29"}]}"#;
const TEAM: &str = r#"{"pool":"storage","network":"blue","ranges":[{"range":"10.0.0.0/29"}],
    "allow":{"namespaces":["team-*"]}}"#;

fn name(name: &str) -> PoolName {
    name.parse().expect("a name")
}

fn elements(elements: &[&[&str]]) -> PoolsWanted {
    let element = |names: &&[&str]| PoolElement::of(names.iter().map(|one| name(one)).collect());
    PoolsWanted::of(elements.iter().map(element).collect())
}

fn from(id: &str, ns: u64, pools: PoolsWanted) -> Ask {
    let pod = Pod { namespace: "ns".into(), name: "p".into(), uid: format!("u-{id}").parse().ok() };
    let start = RunStart { boot: "b".into(), ns };
    let stamp = RunStamp { start, machine: "m".into(), created_at: String::new() };
    let owner = Owner::named(["east", "n", id, "eth0"]).expect("plain names");
    Ask::new(owner, Labels { pod, cni_network: "net".into() }, pools, stamp)
}

fn ask(id: &str) -> Ask {
    from(id, 5, elements(&[&["storage"]]))
}

/// The subnet that an ADD takes its address from.
fn subnet(change: &Allotment<'_>, seen: &Snapshot) -> String {
    change.resolve(seen).expect("it is known").sets()[0].set.ranges()[0].subnet().to_string()
}

/// Turns to the next pool, because this one is full.
fn turn_to_next(change: &mut Allotment<'_>, seen: &Snapshot) -> bool {
    let full = change.resolve(seen).expect("it is known").full(0);
    change.turn_to_next_pool(&full)
}

fn addresses(held: &[Held]) -> Vec<String> {
    held.iter().map(|held| held.address.to_string()).collect()
}

#[test]
fn an_address_comes_with_what_its_pool_says_of_it() {
    let mut world = World::new(&[STORAGE]);
    let held = world.hold(&ask("a"));
    let gateway = "10.0.0.6".parse().ok();
    let pool = Some(FromPool { name: name("storage"), prefix_len: 29, gateway });
    assert_eq!(
        held,
        [Held { pool, ..Held::new("10.0.0.1".parse().expect("ip"), NetworkName::configured("blue").ok()) }]
    );
    let own = world.store.get(&world.keys.owner(&ask("a").owner)).expect("a record");
    assert_eq!(OwnerRecord::decode(&own.value).expect("decodes").addresses, held);
}

#[test]
fn an_address_has_the_gateway_of_its_own_range_and_the_name_of_its_own_pool() {
    // Ranges of one prefix, and a pool whose ranges an older one has drained.
    let ranges = r#"{"pool":"storage","ranges":[{"range":"10.0.0.5-10.0.0.5/24","gateway":"10.0.0.1"},
        {"range":"10.0.0.20-10.0.0.30/24","gateway":"10.0.0.2"},
        {"range":"10.0.0.140-10.0.0.150/25","gateway":"10.0.0.129"}],"order":"lowest"}"#;
    let mut world = World::new(&[ranges]);
    let asking = |id: &str, address: &str| {
        let requests = vec![address.parse().expect("an address")];
        from(id, 5, PoolsWanted { requests, ..elements(&[&["storage"]]) })
    };
    for (address, expected) in
        [("10.0.0.5", (24, "10.0.0.1")), ("10.0.0.20", (24, "10.0.0.2")), ("10.0.0.141", (25, "10.0.0.129"))]
    {
        let pool = world.hold(&asking(address, address))[0].pool.clone().expect("it is from a pool");
        assert_eq!((pool.prefix_len, pool.gateway), (expected.0, expected.1.parse().ok()), "{address}");
    }
    let [old, new] = ["old", "new"].map(|name| {
        let state = if name == "old" { "draining" } else { "open" };
        format!(r#"{{"pool":"{name}","ranges":[{{"range":"10.5.0.0/29","state":"{state}"}}]}}"#)
    });
    let mut world = World::new(&[&old, &new]);
    let mut element = elements(&[&["old", "new"]]);
    element.elements[0].at = 1;
    let pool = world.hold(&from("a", 5, element))[0].pool.clone().expect("it is from a pool");
    assert_eq!(pool.name, name("new"));
}

#[test]
fn no_commit_that_was_planned_on_the_old_text_is_applied() {
    for next in [DRAINED, MOVED, STORAGE] {
        let mut world = World::new(&[STORAGE]);
        let (txn, _) = world.commit(&ask("a"));
        world.apply(next);
        assert!(!world.store.apply(&txn).succeeded, "{next}");
    }
    let mut world = World::new(&[STORAGE]);
    let (txn, _) = world.commit(&ask("a"));
    world.delete("storage");
    assert!(!world.store.apply(&txn).succeeded);
}

#[test]
fn a_running_pod_is_never_renumbered() {
    for next in [DRAINED, MOVED, TEAM] {
        let mut world = World::new(&[STORAGE]);
        let held = world.hold(&ask("a"));
        world.apply(next);
        assert_eq!(world.hold(&from("a", 6, elements(&[&["storage"]]))), held, "repeated, {next}");
        // Another sandbox of the same pod.
        let mut again = from("a", 7, elements(&[&["storage"]]));
        again.owner = Owner::named(["east", "n", "again", "eth0"]).expect("plain names");
        assert_eq!(world.hold(&again), held, "taken over, {next}");
    }
    let mut world = World::new(&[STORAGE]);
    let held = world.hold(&ask("a"));
    world.delete("storage");
    assert_eq!(world.hold(&from("a", 6, elements(&[&["storage"]]))), held, "the pool is gone");
    assert_eq!(world.refusal(&ask("b")), PoolRefused::Missing(name("storage")));
}

#[test]
fn what_is_drained_is_given_to_nobody_else() {
    let mut world = World::new(&[DRAINED]);
    assert_eq!(addresses(&world.hold(&ask("a"))), ["10.0.1.1"]);
}

#[test]
fn pools_that_give_nothing_say_why() {
    let world = World::new(&[TEAM]);
    let not_allowed =
        PoolRefused::NotAllowed { element: 0, name: name("storage"), why: "namespace ns".into() };
    assert_eq!(world.refusal(&ask("a")), not_allowed);
    let asking = |address: &str| {
        let requests = vec![address.parse().expect("an address")];
        from("a", 5, PoolsWanted { requests, ..elements(&[&["storage"]]) })
    };
    let world = World::new(&[DRAINED]);
    let draining = PoolRefused::NotOpen(
        "10.0.0.2".parse::<std::net::IpAddr>().expect("ip").into(),
        name("storage"),
        RangeState::Draining,
    );
    assert_eq!(world.refusal(&asking("10.0.0.2")), draining);
    let outside = world.refusal(&asking("10.7.0.2"));
    assert!(
        matches!(&outside, PoolRefused::Outside(_, of) if of.starts_with("storage (10.0.0.0/29")),
        "{outside:?}"
    );
    assert_eq!(addresses(&world.commit(&asking("10.0.1.4")).1), ["10.0.1.4"]);
    let closed = STORAGE.replace(r#""gateway":"10.0.0.6""#, r#""state":"closed""#);
    assert!(matches!(
        World::new(&[&closed]).plan(&ask("a")),
        Ok(Step::Done(Allotted::Full(Full::Pool { element: 0, .. })))
    ));
}

#[test]
fn of_several_pools_the_next_is_used_when_one_is_full() {
    let world = World::new(&[STORAGE, SPILL]);
    let asked = from("a", 5, elements(&[&["storage", "spill"]]));
    let mut change = Allotment::new(&asked, &world.keys);
    let mut seen = Snapshot::default();
    world.store.read(&[world.keys.pool(&name("storage")), world.keys.pool(&name("spill"))], &mut seen);
    assert!(turn_to_next(&mut change, &seen));
    assert_eq!(subnet(&change, &seen), "10.0.2.0/29");
    assert!(!turn_to_next(&mut change, &seen), "there is no third");
}

#[test]
fn a_pool_that_cannot_give_an_address_is_passed_over_if_there_is_another() {
    let closed = STORAGE.replace(r#""gateway":"10.0.0.6""#, r#""state":"closed""#);
    for first in [TEAM, &closed] {
        let world = World::new(&[first, SPILL]);
        let asked = from("a", 5, elements(&[&["storage", "spill"]]));
        assert!(
            matches!(world.plan(&asked), Ok(Step::Done(Allotted::Full(Full::Pool { element: 0, .. })))),
            "{first}"
        );
    }
    // An address of the second pool is asked for.
    let world = World::new(&[STORAGE, SPILL]);
    let requests = vec!["10.0.2.3".parse().expect("an address")];
    let mut wanted = PoolsWanted { requests, ..elements(&[&["storage", "spill"]]) };
    assert!(matches!(
        world.plan(&from("a", 5, wanted.clone())),
        Ok(Step::Done(Allotted::Full(Full::Pool { element: 0, .. })))
    ));
    wanted.turn_to_next(0);
    assert_eq!(addresses(&world.commit(&from("a", 5, wanted)).1), ["10.0.2.3"]);
}

#[test]
fn routes_are_those_of_the_pool_that_gave_the_address() {
    let with_route = |pool: &str, gw: &str| {
        let end = format!(r#","routes":[{{"dst":"10.0.0.0/8","gw":"{gw}"}}]}}"#);
        format!("{}{end}", pool.strip_suffix('}').expect("an object"))
    };
    let mut world = World::new(&[&with_route(STORAGE, "10.0.0.6"), &with_route(SPILL, "10.0.2.6")]);
    let asked = from("a", 5, elements(&[&["spill"]]));
    let held = world.hold(&asked);
    // The same pod's network names two pools now, of which the other one is first.
    let asked = from("a", 6, elements(&[&["storage", "spill"]]));
    let mut seen = Snapshot::default();
    world.store.read(&[world.keys.pool(&name("storage")), world.keys.pool(&name("spill"))], &mut seen);
    let routes = Allotment::new(&asked, &world.keys).pools(&seen).in_result(&held, &[]).routes;
    assert_eq!(routes.iter().map(|route| route.gw).collect::<Vec<_>>(), ["10.0.2.6".parse().ok()]);
}

#[test]
fn a_ticket_with_pools_that_no_configuration_can_name_is_left_alone() {
    let ticket = TicketRecord::asking(&ask("a"), 1).encode();
    let text = String::from_utf8(ticket).expect("it is text");
    assert!(TicketRecord::decode(text.as_bytes()).expect("decodes").asked().is_some());
    for names in [r#"{"at":0,"names":[]}"#, r#"{"at":1,"names":["storage"]}"#] {
        let changed = text.replace(r#"{"at":0,"names":["storage"]}"#, names);
        assert_ne!(changed, text);
        assert!(TicketRecord::decode(changed.as_bytes()).expect("decodes").asked().is_none(), "{names}");
    }
}

#[test]
fn a_record_under_another_name_is_no_pool() {
    let mut world = World::new(&[]);
    let definition: PoolDefinition = serde_json::from_str(SPILL).expect("a pool");
    world.store.put(world.keys.pool(&name("storage")), PoolRecord::new(definition).encode());
    assert!(matches!(world.refusal(&ask("a")), PoolRefused::Bad(_)));
}

#[test]
fn a_network_moves_into_a_pool_and_nobody_is_renumbered() {
    let mut world = World::new(&[STORAGE]);
    let ranges = cidr("10.0.0.0/29").bounds("10.0.0.1", "10.0.0.5").network("blue");
    let mut before = from("a", 4, elements(&[]));
    before.wanted = Wanted::lowest_of(vec![set([ranges])]);
    let held = world.hold(&before);
    assert_eq!((addresses(&held), &held[0].pool), (vec!["10.0.0.1".to_owned()], &None));
    let now = world.hold(&ask("a"));
    assert_eq!(addresses(&now), ["10.0.0.1"]);
    assert_eq!(now[0].pool.as_ref().map(|pool| pool.prefix_len), Some(29));
    assert_eq!(addresses(&world.hold(&ask("b"))), ["10.0.0.2"]);
}

#[test]
fn a_head_serves_by_the_newest_text_and_its_commit_notices_a_change() {
    let mut world = World::new(&[STORAGE]);
    let asked = ask("a");
    let mut seen = Snapshot::default();
    world.store.read(&[world.keys.pool(&name("storage"))], &mut seen);
    let scope = Allotment::new(&asked, &world.keys).scope(&seen).expect("it is known");
    let (line, head, key) = world.waiting(&asked, &scope);
    let Planned { txn, effects } = world.batch(&scope, &line, &head);
    let mut changed = World { keys: world.keys.clone(), store: world.store.clone() };
    changed.apply(MOVED);
    let reply = changed.store.apply(&txn);
    assert!(effects.outcome(&reply.found).gone.is_empty(), "the text has changed");
    let reply = world.store.apply(&txn);
    assert_eq!(effects.outcome(&reply.found).gone, [key]);
    let own = world.store.get(&world.keys.owner(&asked.owner)).expect("a record");
    let record = OwnerRecord::decode(&own.value).expect("decodes");
    assert_eq!(record.addresses[0].pool.as_ref().map(|pool| &pool.name), Some(&name("storage")));
}

#[test]
fn a_head_serves_runs_of_another_pool_in_its_page() {
    let [one, other] = [("one", "10.0.0.0/28"), ("other", "10.0.0.16/28")].map(|(pool, range)| {
        format!(r#"{{"pool":"{pool}","network":"blue","ranges":[{{"range":"{range}"}}]}}"#)
    });
    let mut world = World::new(&[&one, &other]);
    let [head, waits] = [from("a", 5, elements(&[&["one"]])), from("b", 5, elements(&[&["other"]]))];
    let scope_of = |world: &World, asked: &Ask| {
        let mut seen = Snapshot::default();
        world.store.read(&["one", "other"].map(|pool| world.keys.pool(&name(pool))), &mut seen);
        Allotment::new(asked, &world.keys).scope(&seen).expect("it is known")
    };
    let scope = scope_of(&world, &head);
    assert_eq!(scope, scope_of(&world, &waits));
    // The first range of the text counts, though it gives nothing.
    world.apply(&one.replace(r#"0.0/28"}"#, r#"0.0/28","state":"closed"},{"range":"10.9.0.0/16"}"#));
    assert_eq!(scope, scope_of(&world, &head));
    let (line, ticket, key) = world.waiting(&waits, &scope);
    let Planned { txn, effects } = world.batch(&scope, &line, &ticket);
    let reply = world.store.apply(&txn);
    assert_eq!(effects.outcome(&reply.found).gone, [key]);
}

/// The text of a pool of some /29 out of one /24, each open or not.
fn some_pool() -> impl Strategy<Value = String> {
    let state = prop_oneof![Just("open"), Just("draining"), Just("closed")];
    let order = prop_oneof![Just("lowest"), Just("next"), Just("spread")];
    (proptest::collection::btree_map(0..8_u8, state, 1..5), order).prop_map(|(ranges, order)| {
        let range =
            |(at, state): (&u8, &&str)| format!(r#"{{"range":"10.0.0.{}/29","state":"{state}"}}"#, at * 8);
        let ranges: Vec<String> = ranges.iter().map(range).collect();
        format!(r#"{{"pool":"storage","network":"blue","ranges":[{}],"order":"{order}"}}"#, ranges.join(","))
    })
}

proptest! {
    #[test]
    fn no_address_outside_of_the_open_ranges_is_ever_given(texts in proptest::collection::vec(some_pool(), 1..6)) {
        let mut world = World::new(&[]);
        let mut pods = 0_u32;
        for text in &texts {
            // What was planned before the change is not applied after it.
            let late = world.plan(&ask("late"));
            world.apply(text);
            if let Ok(Step::Commit(late)) = late {
                prop_assert!(!world.store.apply(&late.txn).succeeded);
            }
            let pool: PoolDefinition = serde_json::from_str(text).expect("it is sound");
            let open = pool.open_ranges(&[]).expect("ranges");
            for _ in 0..9 {
                pods += 1;
                match world.plan(&ask(&format!("c{pods}"))) {
                    Ok(Step::Commit(_)) => {
                        let held = world.hold(&ask(&format!("c{pods}")));
                        let address = Addr::from(held[0].address);
                        let gives = |range: &Range| range.standing(address) == Standing::Assignable;
                        prop_assert!(open.iter().any(gives), "{text}: {address}");
                    }
                    Ok(Step::Done(Allotted::Full(_))) => {
                        let size: u128 = open.iter().map(Range::size).sum();
                        prop_assert!(size <= u128::from(pods), "{text}");
                    }
                    other => prop_assert!(false, "{other:?}"),
                }
            }
        }
    }
}
