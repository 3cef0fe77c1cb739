//! Each case of an assignment, on a store of a few keys. After each case the audit must find nothing wrong.

use metes_audit::Audit;
use metes_core::keys::{Key, LeaseId, TicketId};
use metes_core::memory::Memory;
use metes_core::pool::{Bits, RunStart};
use metes_core::ticket::Ticket;
use metes_core::txn::{Entry, Txn};

use super::*;
use crate::error::RunError;

mod sticky;

/// A suspect store, and the ticket with which the assignment under test is made.
struct World {
    keys: Keys,
    store: Memory,
    ticket: Ticket,
}

impl World {
    fn new() -> Self {
        let keys = Keys::new("/m/");
        let moved = keys.moved(&Scope::stored("-").expect("a scope"));
        let ticket = Ticket {
            key: Vec::new(),
            create_revision: 0,
            lease: LeaseId(7),
            cluster: None,
            tombstones: LeaseId(7),
            tail: Default::default(),
            moved,
        };
        let mut world = Self { keys, store: Memory::default(), ticket };
        world.put_meta(meta(Some(1), None));
        world
    }

    fn put_meta(&mut self, meta: Meta) {
        self.store.put(self.keys.meta(), meta.encode());
    }

    fn stand(&mut self) {
        let key = self.keys.ticket(&Scope::stored("-").expect("a scope"), TicketId(7));
        self.store.put(key.clone(), "");
        let create_revision = self.store.get(&key).expect("just put").create_revision;
        self.ticket = Ticket { key, create_revision, ..self.ticket.clone() };
    }

    /// Plans, and supplies each key that is asked for, until no more key must be read.
    fn plan(&mut self, assignment: &Assignment) -> Result<Step<Together>, AssignError> {
        self.plan_all(std::slice::from_ref(assignment))
    }

    fn plan_all(&mut self, assignments: &[Assignment]) -> Result<Step<Together>, AssignError> {
        self.plan_while(assignments, |_, _| {})
    }

    /// The same, with something that happens before each of the plan's reads, which it counts.
    fn plan_while(
        &mut self,
        assignments: &[Assignment],
        mut happens: impl FnMut(&mut Self, usize),
    ) -> Result<Step<Together>, AssignError> {
        self.stand();
        let mut snapshot = Snapshot::default();
        for read in 0..10 {
            match Assignments::new(&self.keys, assignments).plan(
                &snapshot,
                &Fence::Ticket(self.ticket.clone()),
                &Line::default(),
            )? {
                Step::Read(ops) => {
                    happens(self, read);
                    ops.chunks(metes_core::limits::TXN_OPS)
                        .for_each(|some| self.store.read_all(some, &mut snapshot));
                }
                other => return Ok(other),
            }
        }
        panic!("it goes on reading");
    }

    fn carry_out(&mut self, assignment: &Assignment) -> Assigned {
        self.carry_out_all(std::slice::from_ref(assignment)).alone()
    }

    fn carry_out_all(&mut self, assignments: &[Assignment]) -> Together {
        let ended = match self.plan_all(assignments).expect("a plan") {
            Step::Commit(commit) => {
                assert!(self.store.apply(&commit.txn).succeeded);
                commit.done.expect("it comes to something")
            }
            Step::Done(ended) => ended,
            Step::Read(_) => unreachable!("supplied"),
        };
        self.assert_sound();
        ended
    }

    /// Like [`carry_out_all`]; each owner that is in the way belongs to one of the assignments.
    fn trade(&mut self, mut assignments: Vec<Assignment>) -> (Together, Vec<Assignment>) {
        for _ in 0..200 {
            match self.carry_out_all(&assignments) {
                Together::Conflict(at, conflict) => match conflict.why {
                    Why::Holder { owner, revision, .. } => {
                        assignments[at].gone.push(Gone { owner, revision })
                    }
                    why => {
                        return (
                            Together::Conflict(at, Box::new(Conflict { why, ..*conflict })),
                            assignments,
                        );
                    }
                },
                ended => return (ended, assignments),
            }
        }
        panic!("there is always another one");
    }

    fn assert_sound(&self) {
        let names = self.store.keys();
        let entries = names.iter().map(|key| self.store.get(key.as_bytes()).expect("listed"));
        // This store keeps no leases.
        let is_on_lease = |entry: &&Entry| {
            matches!(self.keys.parse(&entry.key), Ok(Key::Ticket(..) | Key::Moved(_) | Key::Orphan(_)))
        };
        let report = Audit::new(&self.keys).judge(entries.filter(|entry| !is_on_lease(entry)));
        let wrong: Vec<_> = report.violations.iter().map(ToString::to_string).collect();
        let wrong: Vec<_> = wrong.iter().filter(|text| !text.contains("suspect")).collect();
        assert!(wrong.is_empty() && report.stray_bits.is_empty(), "{wrong:?} {:?}", report.stray_bits);
    }

    fn record_of(&self, assignment: &Assignment) -> Option<OwnerRecord> {
        let entry = self.store.get(&self.keys.owner(&assignment.owner))?;
        Some(OwnerRecord::decode(&entry.value).expect("decodes"))
    }

    fn index_of(&self, uid: &str) -> Option<String> {
        let entry = self.store.get(&index_key(&self.keys, uid))?;
        let index = PodIndex::decode(&entry.value).expect("decodes");
        Some(index.owner(None, &"net1".parse().expect("a name")).container_id.to_string())
    }
}

fn meta(suspect: Option<u64>, hold: Option<&str>) -> Meta {
    let mut meta = Meta::first("s".into());
    meta.suspect = suspect;
    meta.paused = hold.map(str::to_owned);
    meta
}

fn held(address: &str) -> Held {
    Held::new(address.parse().expect("an address"), Some(NetworkName::default()))
}

fn index_key(keys: &Keys, uid: &str) -> Bytes {
    let Owner { ifname, cluster, .. } = assignment_of("any", uid, &[]).owner;
    keys.pod(cluster.as_ref(), &uid.parse().expect("a UID"), &ifname, &NetworkName::default())
}

fn assignment_of(container: &str, uid: &str, addresses: &[&str]) -> Assignment {
    let pod = Pod { namespace: "ns".into(), name: format!("pod-{uid}"), uid: uid.parse().ok() };
    Assignment {
        owner: Owner::named(["east", "n", container, "net1"]).expect("plain names"),
        held: addresses.iter().map(|address| held(address)).collect(),
        scope: Scope::stored("-").expect("a scope"),
        labels: Labels { pod, cni_network: "mynet".into() },
        created_at: "2026-01-02T03:04:05Z".into(),
        sticky: None,
        under: Under::Suspect,
        gone: Vec::new(),
    }
}

fn made(addresses: &[&str]) -> Assigned {
    let held = addresses.iter().map(|address| held(address)).collect();
    Assigned::Made(Made { held, replaced: Vec::new() })
}

fn conflict(assigned: Assigned) -> (String, Why) {
    match assigned {
        Assigned::Conflict(conflict) => (conflict.held.address.to_string(), conflict.why),
        other => panic!("no conflict: {other:?}"),
    }
}

#[test]
fn what_nobody_holds_is_made_and_then_present() {
    let mut world = World::new();
    let assignment = assignment_of("c1", "u1", &["10.0.0.5", "fd00::5"]);
    assert_eq!(world.carry_out(&assignment), made(&["10.0.0.5", "fd00::5"]));
    let record = world.record_of(&assignment).expect("a record");
    assert_eq!((record.addresses.len(), record.start), (2, None));
    assert_eq!(world.index_of("u1").as_deref(), Some("c1"));
    let before = world.store.keys();
    assert_eq!(world.carry_out(&assignment), Assigned::Present);
    assert_eq!(world.store.keys().len(), before.len() + 1, "only the ticket of the second try is new");
}

#[test]
fn an_owner_that_holds_a_part_gets_the_rest() {
    let mut world = World::new();
    world.carry_out(&assignment_of("c1", "u1", &["10.0.0.5"]));
    let more = assignment_of("c1", "u1", &["fd00::5", "10.0.0.5"]);
    assert_eq!(world.carry_out(&more), made(&["fd00::5"]));
    let record = world.record_of(&more).expect("a record");
    assert_eq!(record.addresses, [held("10.0.0.5"), held("fd00::5")]);
}

#[test]
fn another_owner_of_the_same_interface_of_the_pod_counts() {
    let mut world = World::new();
    world.carry_out(&assignment_of("sandbox", "u1", &["10.0.0.5"]));
    assert_eq!(world.carry_out(&assignment_of("adopted-u1", "u1", &["10.0.0.5"])), Assigned::Present);
    let rest = assignment_of("adopted-u1", "u1", &["10.0.0.5", "10.0.0.6"]);
    assert_eq!(world.carry_out(&rest), made(&["10.0.0.6"]));
    assert_eq!(world.record_of(&rest).expect("a record").addresses, [held("10.0.0.6")]);
    assert_eq!(world.index_of("u1").as_deref(), Some("sandbox"), "the index keeps naming the younger one");
    let mut other = assignment_of("adopted-u1", "u1", &["10.0.0.5"]);
    other.owner.ifname = "net2".parse().expect("an interface name");
    assert!(matches!(conflict(world.carry_out(&other)).1, Why::Holder { .. }), "another interface");
}

#[test]
fn a_pod_is_known_by_its_uid_and_by_its_name_only_where_that_is_missing() {
    for (uid, name, cluster, same) in [
        ("", "pod-u1", "east", true),
        ("", "pod-u1", "west", false),
        ("", "pod-u2", "east", false),
        ("", "", "east", false),
        ("u2", "pod-u1", "east", false),
        ("u1", "other", "east", true),
        ("u1", "other", "", true),
        ("u1", "other", "west", false),
    ] {
        let mut world = World::new();
        let mut holder = assignment_of("sandbox", uid, &["10.0.0.5"]);
        holder.labels.pod.name = name.into();
        holder.owner.cluster = cluster.parse().ok();
        world.carry_out(&holder);
        let assigned = world.carry_out(&assignment_of("adopted-u1", "u1", &["10.0.0.5"]));
        assert_eq!(assigned == Assigned::Present, same, "{uid} {name} {cluster}: {assigned:?}");
    }
}

/// An assignment does not know with what cooldown, or from what pool, an address was given.
#[test]
fn an_address_is_the_same_whatever_its_record_says_of_it() {
    let mut world = World::new();
    let mut old = assignment_of("old", "u0", &["10.0.0.4", "10.0.0.5"]);
    old.held.iter_mut().for_each(|held| held.cooldown_s = 60);
    world.carry_out(&old);
    assert_eq!(world.carry_out(&assignment_of("old", "u0", &["10.0.0.4"])), Assigned::Present);
    let mut assignment = assignment_of("c1", "u1", &["10.0.0.5"]);
    let Why::Holder { owner, revision, .. } = conflict(world.carry_out(&assignment)).1 else {
        panic!("its record lists it")
    };
    assignment.gone = vec![Gone { owner: owner.clone(), revision }];
    let replaced = Made { held: vec![held("10.0.0.5")], replaced: vec![owner] };
    assert_eq!(world.carry_out(&assignment), Assigned::Made(replaced));
    assert_eq!(world.record_of(&old), None);
}

#[test]
fn a_holder_is_replaced_as_a_whole_if_it_was_judged_as_it_stands() {
    let mut world = World::new();
    let old = assignment_of("old", "u0", &["10.0.0.4", "10.0.0.5"]);
    world.carry_out(&old);
    let mut assignment = assignment_of("c1", "u1", &["10.0.0.5"]);
    let (address, Why::Holder { owner, record, revision }) = conflict(world.carry_out(&assignment)) else {
        panic!("not held");
    };
    assert_eq!(
        (address.as_str(), &owner, record.labels.pod),
        ("10.0.0.5", &old.owner, old.labels.pod.clone())
    );
    assignment.gone = vec![Gone { owner: owner.clone(), revision: revision - 1 }];
    assert!(matches!(conflict(world.carry_out(&assignment)).1, Why::Holder { .. }), "written since");
    assignment.gone = vec![Gone { owner: owner.clone(), revision }];
    let replaced = Made { held: vec![held("10.0.0.5")], replaced: vec![owner] };
    assert_eq!(world.carry_out(&assignment), Assigned::Made(replaced));
    assert_eq!((world.record_of(&old), world.index_of("u0")), (None, None));
    let free = world.keys.ip(&NetworkName::default(), Addr::from(held("10.0.0.4").address));
    assert!(world.store.get(&free).is_none(), "all of the old owner is freed");
}

#[test]
fn whatever_changes_before_the_commit_fails_it() {
    let assignment = assignment_of("c1", "u1", &["10.0.0.5"]);
    let owner = assignment.owner.clone();
    let keys = Keys::new("/m/");
    let network = NetworkName::default();
    let address = Addr::from(held("10.0.0.5").address);
    let start = RunStart { boot: "b".into(), ns: 1 };
    let record = OwnerRecord::new(Vec::new(), None, "-".into(), Labels::default()).encode();
    let reservation = Reservation::new(owner.clone(), String::new()).encode();
    for (key, value) in [
        (keys.meta(), Meta::first("s".into()).encode()),
        (keys.owner(&owner), record),
        (keys.tombstone(&owner), Tombstone::new(start).encode()),
        (keys.ip(&network, address), reservation),
        (keys.page(&network, address.page()), vec![0; 512]),
        (index_key(&keys, "u1"), PodIndex::new(&owner).encode()),
    ] {
        let mut world = World::new();
        let Step::Commit(Commit { txn, .. }) = world.plan(&assignment).expect("a plan") else {
            panic!("no commit")
        };
        world.store.put(key.clone(), value);
        assert!(!world.store.apply(&txn).succeeded, "{}", String::from_utf8_lossy(&key));
    }
    let mut world = World::new();
    let Step::Commit(Commit { txn, .. }) = world.plan(&assignment).expect("a plan") else {
        panic!("no commit")
    };
    world.store.apply(&Txn { then: vec![Op::Delete(world.ticket.key.clone())], ..Txn::default() });
    assert!(!world.store.apply(&txn).succeeded, "its ticket is gone");
}

#[test]
fn what_does_not_decode_is_occupied() {
    let network = NetworkName::default();
    let address = Addr::from(held("10.0.0.5").address);
    let keys = Keys::new("/m/");
    for key in [keys.ip(&network, address), keys.page(&network, address.page())] {
        let mut world = World::new();
        world.store.put(key.clone(), "garbage");
        let assignment = assignment_of("c1", "u1", &["10.0.0.5"]);
        let Step::Done(ended) = world.plan(&assignment).expect("a plan") else { panic!("it commits") };
        let (_, Why::Undecodable(bad)) = conflict(ended.alone()) else { panic!("another reason") };
        assert_eq!(bad.key.as_bytes(), key);
    }
    for key in [keys.owner(&assignment_of("c1", "u1", &[]).owner), index_key(&keys, "u1")] {
        let mut world = World::new();
        world.store.put(key, "garbage");
        let assignment = assignment_of("c1", "u1", &["10.0.0.5"]);
        assert!(matches!(world.plan(&assignment), Err(AssignError::Bad(_))));
    }
}

#[test]
fn a_reservation_without_its_owners_record_is_in_the_way() {
    let mut world = World::new();
    let old = assignment_of("old", "u0", &["10.0.0.5"]);
    let key = world.keys.ip(&NetworkName::default(), Addr::from(held("10.0.0.5").address));
    world.store.put(key, Reservation::new(old.owner.clone(), String::new()).encode());
    let assignment = assignment_of("c1", "u1", &["10.0.0.5"]);
    let Step::Done(ended) = world.plan(&assignment).expect("a plan") else { panic!("it commits") };
    let (_, Why::NoRecord { owner }) = conflict(ended.alone()) else { panic!("another reason") };
    assert_eq!(owner, old.owner);
}

#[test]
fn an_owner_that_was_deleted_gets_nothing() {
    let mut world = World::new();
    let assignment = assignment_of("c1", "u1", &["10.0.0.5"]);
    let start = RunStart { boot: "b".into(), ns: 1 };
    let dead = world.keys.tombstone(&assignment.owner);
    world.store.put(dead, Tombstone::new(start).encode());
    let Step::Done(ended) = world.plan(&assignment).expect("a plan") else { panic!("it commits") };
    assert_eq!(conflict(ended.alone()).1, Why::Deleted);
}

#[test]
fn an_index_entry_that_names_nobody_who_is_there_is_written_anew() {
    let mut world = World::new();
    let assignment = assignment_of("c1", "u1", &["10.0.0.5"]);
    let key = index_key(&world.keys, "u1");
    let lost = assignment_of("lost", "u1", &[]).owner;
    world.store.put(key, PodIndex::new(&lost).encode());
    assert_eq!(world.carry_out(&assignment), made(&["10.0.0.5"]));
    assert_eq!(world.index_of("u1").as_deref(), Some("c1"));
}

#[test]
fn claims_are_made_only_while_add_waits() {
    let suspect = meta(Some(1), None);
    let hold = meta(None, Some("import"));
    let both = meta(Some(1), Some("import"));
    for (meta, under, works) in [
        (Meta::first("s".into()), Under::Suspect, false),
        (Meta::first("s".into()), Under::Pause, false),
        (suspect.clone(), Under::Suspect, true),
        (suspect, Under::Pause, false),
        (hold.clone(), Under::Pause, true),
        (hold, Under::Suspect, false),
        (both.clone(), Under::Suspect, true),
        (both, Under::Pause, false),
    ] {
        let mut world = World::new();
        world.put_meta(meta.clone());
        let assignment = Assignment { under, ..assignment_of("c1", "u1", &["10.0.0.5"]) };
        let planned = world.plan(&assignment);
        match works {
            true => assert!(matches!(planned, Ok(Step::Commit(_))), "{meta:?} {under:?}"),
            false => assert_eq!(planned.err(), Some(AssignError::InService), "{meta:?} {under:?}"),
        }
    }
    let mut world = World::new();
    let mut newer = meta(Some(1), None);
    newer.min_writer = VERSION + 1;
    world.put_meta(newer);
    let planned = world.plan(&assignment_of("c1", "u1", &["10.0.0.5"]));
    assert_eq!(planned.err(), Some(AssignError::Newer(VERSION + 1)));
}

#[test]
fn addresses_without_a_network_are_recorded_only() {
    let mut world = World::new();
    let mut assignment = assignment_of("c1", "u1", &["10.0.0.5"]);
    assignment.held.push(Held::new("192.0.2.1".parse().expect("an address"), None));
    assert_eq!(world.carry_out(&assignment), made(&["10.0.0.5"]));
    assert_eq!(world.record_of(&assignment).expect("a record").addresses, assignment.held);
}

#[test]
fn the_last_bit_of_a_page_fills_its_summary() {
    let mut world = World::new();
    let network = NetworkName::default();
    let page = Addr::from(held("10.0.0.5").address).page();
    let mut bits = Bits::empty();
    (0..4096).filter(|bit| *bit != 5).for_each(|bit| bits.set(bit));
    world.store.put(world.keys.page(&network, page), bits.to_bytes());
    let assignment = assignment_of("c1", "u1", &["10.0.0.5"]);
    let Step::Commit(Commit { txn, .. }) = world.plan(&assignment).expect("a plan") else {
        panic!("no commit")
    };
    assert!(world.store.apply(&txn).succeeded);
    let summary = world.store.get(&world.keys.summary(&network, page.summary())).expect("a summary");
    assert_eq!(Bits::from_bytes(&summary.value).expect("decodes").count(), 1);
}

/// Assignments of pods u0, u1, ... in a store where each holds one address and one more. Each is assigned what the next
/// one holds.
fn round(world: &mut World, pods: usize) -> Vec<Assignment> {
    let (uid, moves) = (|i: usize| format!("u{i}"), |i: usize| format!("10.0.0.{}", i % pods + 1));
    let stays = |i: usize| format!("fd00::{:x}", i + 1);
    for i in 0..pods {
        world.carry_out(&assignment_of(&format!("old{i}"), &uid(i), &[&moves(i), &stays(i)]));
    }
    let next = |i: usize| assignment_of(&format!("adopted-u{i}"), &uid(i), &[&moves(i + 1), &stays(i)]);
    (0..pods).map(next).collect()
}

fn holders(world: &World) -> Vec<(String, String)> {
    let nets = world.store.keys().into_iter().filter(|key| key.contains("/ip/"));
    let holder = |key: String| {
        let entry = world.store.get(key.as_bytes()).expect("listed");
        let Ok(Key::Ip(_, address)) = world.keys.parse(&entry.key) else { unreachable!() };
        let reservation = Reservation::decode(&entry.value).expect("decodes");
        (address.ip().to_string(), reservation.owner.container_id.to_string())
    };
    nets.map(holder).collect()
}

#[test]
fn what_went_round_is_put_right_in_one_transaction() {
    for pods in [2, 3, 7] {
        let mut world = World::new();
        let assignments = round(&mut world, pods);
        let (Together::Made(made), assignments) = world.trade(assignments) else {
            panic!("{pods} are not made")
        };
        assert!(made.iter().all(|made| made.held.len() == 2), "what stayed is written anew: {made:?}");
        for (i, assignment) in assignments.iter().enumerate() {
            assert_eq!(world.record_of(assignment).expect("a record").addresses, assignment.held);
            assert_eq!(world.index_of(&format!("u{i}")), Some(format!("adopted-u{i}")));
        }
        let records = world.store.keys().into_iter().filter(|key| key.contains("/owner/")).count();
        assert_eq!((records, holders(&world).len()), (pods, 2 * pods), "nothing of the old owners is left");
        assert_eq!(world.carry_out_all(&assignments), Together::Present);
    }
}

#[test]
fn an_owner_gives_up_what_it_holds_itself() {
    let mut world = World::new();
    let old = |i: usize| format!("10.0.0.{}", i % 2 + 1);
    let of = |i: usize, address: &str| {
        assignment_of(&format!("adopted-u{i}"), &format!("u{i}"), &[address, &format!("fd00::{i}")])
    };
    (0..2).for_each(|i| _ = world.carry_out(&of(i, &old(i))));
    let assignments: Vec<Assignment> = (0..2).map(|i| of(i, &old(i + 1))).collect();
    let (Together::Made(_), assignments) = world.trade(assignments) else { panic!("not made") };
    for assignment in &assignments {
        assert_eq!(world.record_of(assignment).expect("a record").addresses, assignment.held);
    }
    assert_eq!(holders(&world).len(), 4);
}

#[test]
fn one_after_the_other_they_come_to_the_same_end() {
    for pods in [2, 5] {
        let mut world = World::new();
        let assignments = round(&mut world, pods);
        let mut expected = world.store.clone();
        let (Together::Made(_), assignments) = world.trade(assignments) else { panic!("not made") };
        std::mem::swap(&mut world.store, &mut expected);
        let gone: Vec<Gone> = assignments.iter().flat_map(|assignment| assignment.gone.clone()).collect();
        for assignment in &assignments {
            // The store is consistent after each assignment: another run can finish what a crash between two
            // assignments leaves.
            let assignment = Assignment { gone: gone.clone(), ..assignment.clone() };
            assert!(matches!(world.carry_out(&assignment), Assigned::Made(_)));
        }
        let one_by_one = holders(&world);
        std::mem::swap(&mut world.store, &mut expected);
        assert_eq!(one_by_one, holders(&world));
    }
}

#[test]
fn more_than_etcd_takes_in_one_transaction_is_refused_as_a_whole() {
    let mut world = World::new();
    let assignments = round(&mut world, 40);
    let before = holders(&world);
    let (Together::Conflict(_, conflict), _) = world.trade(assignments) else { panic!("it fits") };
    assert_eq!(conflict.why, Why::TooMany);
    assert_eq!(holders(&world), before);
}

#[test]
fn a_holder_that_was_written_since_is_not_replaced() {
    let mut world = World::new();
    let old = assignment_of("old", "u0", &["10.0.0.4", "10.0.0.5"]);
    world.carry_out(&old);
    let own = world.keys.owner(&old.owner);
    let revision = world.store.get(&own).expect("a record").mod_revision;
    let gone = vec![Gone { owner: old.owner.clone(), revision }];
    let assignment = Assignment { gone, ..assignment_of("c1", "u1", &["10.0.0.5"]) };
    let Step::Commit(Commit { txn, .. }) = world.plan(&assignment).expect("a plan") else {
        panic!("no commit")
    };
    // It gets an address in another network. None of its earlier addresses changes. If its record were deleted, the new
    // address would have no record.
    let mut more = assignment_of("old", "u0", &["10.0.0.6"]);
    more.held[0].network = Some(NetworkName::configured("other").expect("a name"));
    let Step::Commit(Commit { txn: other, .. }) = world.plan(&more).expect("a plan") else {
        panic!("no commit")
    };
    for op in other.then {
        if let Op::Put(key, value, _) = op {
            world.store.put(key, value);
        }
    }
    assert!(!world.store.apply(&txn).succeeded);
    world.assert_sound();
}

#[test]
fn a_claim_that_waited_too_long_does_not_blame_the_connection() {
    let ended = RunError::of_assignment(Stopped::OutOfTime.into()).expect("it ends a run").to_string();
    assert_eq!(ended, format!("{OutOfTime}; {}", OutOfTime::REASONS));
    assert!(!ended.contains("cannot be reached") && !ended.contains("did not answer"), "{ended}");
}
