//! Assignments of addresses that stay with a pod's name.

use metes_core::pool::{Keep, SeatRecord, Sighting, Subject};

use super::*;

/// An assignment for pod `ns/NAME` with this UID, whose addresses stay with the name.
fn kept(name: &str, uid: &str, addresses: &[&str]) -> Assignment {
    let mut assignment = assignment_of(&format!("adopted-{uid}"), uid, addresses);
    assignment.labels.pod.name = name.to_owned();
    assignment.sticky = Some(Sticky { hold: hold_of(name), keep: Some(Keep::of_seconds(Some(60))) });
    assignment
}

fn hold_of(name: &str) -> Owner {
    let subject = Subject { namespace: "ns".to_owned(), name: name.to_owned() };
    Owner::of_pod("east".parse().expect("a name"), &subject, "net1".parse().expect("a name")).expect("names")
}

fn holder(assigned: Assigned) -> (Owner, i64) {
    match conflict(assigned).1 {
        Why::Holder { owner, revision, .. } => (owner, revision),
        other => panic!("no holder: {other:?}"),
    }
}

impl World {
    /// The addresses of a hold, and its user.
    fn hold(&self, name: &str) -> Option<(Vec<Held>, Option<String>)> {
        let record = self.store.get(&self.keys.owner(&hold_of(name)))?;
        let [seat, _] = self.keys.seats_of(&hold_of(name));
        let user = self.store.get(&seat).map(|entry| {
            let SeatRecord { user, .. } = SeatRecord::decode(&entry.value).expect("decodes");
            user.container_id.to_string()
        });
        Some((OwnerRecord::decode(&record.value).expect("decodes").addresses, user))
    }

    /// Ends the use of a hold, as a DEL does, and sees it as unused.
    fn leave(&mut self, user: &Assignment) {
        let record = self.record_of(user).expect("a record");
        let seat = record.seat.expect("it uses a hold");
        let index = index_key(&self.keys, user.labels.pod.uid.as_ref().expect("a UID").as_str());
        for key in [self.keys.owner(&user.owner), self.keys.seat(&seat), index] {
            self.store.apply(&Txn { then: vec![Op::Delete(key)], ..Txn::default() });
        }
        let sighting = Sighting::new("unused".to_owned(), 1, std::time::Duration::from_secs(60));
        self.store.put(self.keys.orphan(&seat.hold), sighting.encode());
    }

    fn sightings(&self) -> usize {
        self.store.keys().iter().filter(|key| key.contains("/orphan/")).count()
    }

    /// Carries out an assignment whose holders are all gone. Returns them.
    fn replace(&mut self, mut assignment: Assignment) -> Vec<Owner> {
        for _ in 0..4 {
            match self.carry_out(&assignment) {
                Assigned::Made(Made { held, replaced }) => {
                    assert_eq!(held, assignment.held);
                    return replaced;
                }
                other => {
                    let (owner, revision) = holder(other);
                    assignment.gone.push(Gone { owner, revision });
                }
            }
        }
        panic!("there is always another one");
    }
}

/// An import takes over many pods at once. The hold of one of them moves to another address while it is looked at for
/// the pod that has its former one.
#[test]
fn a_hold_that_changes_while_it_is_read_is_read_again() {
    let (former, next) = (kept("db-0", "u1", &["10.0.0.7"]), kept("db-0", "u2", &["10.0.0.8"]));
    let web = [kept("web-0", "u3", &["10.0.0.7"])];
    let mut free = 0;
    for moment in 0..6 {
        let mut world = World::new();
        world.carry_out(&former);
        let planned = world.plan_while(&web, |world, read| {
            if read == moment {
                world.replace(next.clone());
            }
        });
        match planned.expect("a plan") {
            Step::Done(ended) => assert_eq!(holder(ended.alone()).0, former.owner, "before read {moment}"),
            Step::Commit(_) => free += 1,
            Step::Read(_) => unreachable!("supplied"),
        }
    }
    assert!(free > 1, "it moves before the last read");
}

#[test]
fn the_hold_its_seat_and_its_user_are_made_together() {
    let mut world = World::new();
    let assignment = kept("db-0", "u1", &["10.0.0.5", "fd00::5"]);
    assert_eq!(world.carry_out(&assignment), made(&["10.0.0.5", "fd00::5"]));
    assert_eq!(world.hold("db-0"), Some((assignment.held.clone(), Some("adopted-u1".to_owned()))));
    let record = world.record_of(&assignment).expect("a record");
    assert_eq!(
        (record.addresses, record.seat.map(|seat| seat.hold)),
        (assignment.held.clone(), Some(hold_of("db-0")))
    );
    assert_eq!(world.index_of("u1").as_deref(), Some("adopted-u1"));
    assert!(holders(&world).iter().all(|(_, container)| container == "db-0"), "{:?}", holders(&world));
    // Another container of the pod counts as this one, whether its definition still keeps addresses or not.
    let again = Assignment { owner: assignment_of("c9", "u1", &[]).owner, ..assignment.clone() };
    for same in [assignment, Assignment { sticky: None, ..again.clone() }, again] {
        assert_eq!(world.carry_out(&same), Assigned::Present);
    }
}

#[test]
fn a_hold_with_these_addresses_gets_its_user() {
    let mut world = World::new();
    world.carry_out(&kept("db-0", "u1", &["10.0.0.5"]));
    let next = kept("db-0", "u2", &["10.0.0.5"]);
    assert_eq!(holder(world.carry_out(&next)).0, kept("db-0", "u1", &[]).owner);
    assert_eq!(world.replace(next.clone()), [kept("db-0", "u1", &[]).owner]);
    assert_eq!(world.hold("db-0"), Some((next.held.clone(), Some("adopted-u2".to_owned()))));
    assert_eq!(world.index_of("u1"), None);
    world.leave(&next);
    assert_eq!(world.carry_out(&kept("db-0", "u3", &["10.0.0.5"])), made(&["10.0.0.5"]));
    assert_eq!((world.index_of("u3").as_deref(), world.sightings()), (Some("adopted-u3"), 0));
}

#[test]
fn a_hold_with_other_addresses_is_replaced_in_a_suspect_store_alone() {
    for under in [Under::Suspect, Under::Pause] {
        let mut world = World::new();
        let before = kept("db-0", "u1", &["10.0.0.5", "10.0.0.6"]);
        world.carry_out(&before);
        world.leave(&before);
        if under == Under::Pause {
            world.put_meta(meta(None, Some("import")));
        }
        let next = Assignment { under, ..kept("db-0", "u2", &["10.0.0.6", "10.0.0.7"]) };
        if under == Under::Suspect {
            assert_eq!(world.replace(next.clone()), [hold_of("db-0")]);
            let held = next.held;
            assert_eq!(world.hold("db-0"), Some((held, Some("adopted-u2".to_owned()))));
            assert_eq!((holders(&world).len(), world.sightings()), (2, 0), "the other address is free");
        } else {
            assert_eq!(holder(world.carry_out(&next)).0, hold_of("db-0"), "the hold keeps what it has");
            let next = Assignment { held: vec![held("10.0.0.7")], ..next };
            assert_eq!(world.carry_out(&next), made(&["10.0.0.7"]));
            assert_eq!(world.record_of(&next).expect("a record").seat, None);
            assert_eq!(world.hold("db-0"), Some((before.held, None)));
        }
    }
}

#[test]
fn a_container_that_has_an_address_itself_goes_on_like_that() {
    let mut world = World::new();
    world.carry_out(&Assignment { sticky: None, ..kept("db-0", "u1", &["10.0.0.5"]) });
    let more = kept("db-0", "u1", &["10.0.0.5", "fd00::5"]);
    assert_eq!(world.carry_out(&more), made(&["fd00::5"]));
    assert_eq!((world.record_of(&more).expect("a record").seat, world.hold("db-0")), (None, None));
}

#[test]
fn the_record_of_a_user_gets_no_address_of_its_own() {
    let mut world = World::new();
    world.carry_out(&kept("db-0", "u1", &["10.0.0.5"]));
    let more = Assignment { sticky: None, ..kept("db-0", "u1", &["10.0.0.5", "fd00::5"]) };
    let (address, why) = conflict(world.carry_out(&more));
    assert_eq!((address.as_str(), why), ("fd00::5", Why::UsesHold(hold_of("db-0"))));
}

#[test]
fn a_hold_in_the_way_ends_after_its_user() {
    for is_kept in [true, false] {
        let mut world = World::new();
        let user = kept("db-0", "u1", &["10.0.0.5"]);
        world.carry_out(&user);
        let mut other = kept("web", "u2", &["10.0.0.5"]);
        other.sticky = other.sticky.filter(|_| is_kept);
        let mut replaced = world.replace(other);
        replaced.sort();
        let mut expected = [hold_of("db-0"), user.owner];
        expected.sort();
        assert_eq!(replaced, expected);
        assert_eq!((world.hold("db-0"), world.hold("web").is_some()), (None, is_kept));
    }
}

#[test]
fn holds_of_each_others_addresses_are_put_right_in_one_transaction() {
    let mut world = World::new();
    world.carry_out(&kept("db-0", "u0", &["10.0.0.5"]));
    world.carry_out(&kept("db-1", "u1", &["10.0.0.6"]));
    let next = vec![kept("db-0", "v0", &["10.0.0.6"]), kept("db-1", "v1", &["10.0.0.5"])];
    let (ended, next) = world.trade(next);
    assert!(matches!(ended, Together::Made(_)), "{ended:?}");
    for (name, assignment) in ["db-0", "db-1"].into_iter().zip(&next) {
        let user = assignment.owner.container_id.to_string();
        assert_eq!(world.hold(name), Some((assignment.held.clone(), Some(user))));
    }
    assert_eq!(world.carry_out_all(&next), Together::Present);
}

/// Each key that a plan with a hold relies on beside those of every assignment.
#[test]
fn whatever_changes_about_a_hold_before_the_commit_fails_it() {
    let user = kept("db-0", "u1", &["10.0.0.5"]);
    let [own, hold] = [user.owner.clone(), hold_of("db-0")];
    for next in [
        kept("db-0", "u2", &["10.0.0.5"]),
        kept("db-0", "u2", &["10.0.0.6"]),
        kept("web", "u2", &["10.0.0.5"]),
    ] {
        for is_used in [true, false] {
            let mut world = World::new();
            world.carry_out(&user);
            if !is_used {
                world.leave(&user);
            }
            let revision = |owner: &Owner| {
                world.store.get(&world.keys.owner(owner)).map_or(0, |entry| entry.mod_revision)
            };
            let gone = [&own, &hold].map(|owner| Gone { owner: owner.clone(), revision: revision(owner) });
            let next = Assignment { gone: gone.to_vec(), ..next.clone() };
            let Step::Commit(Commit { txn, .. }) = world.plan(&next).expect("a plan") else {
                panic!("no commit")
            };
            let before = world.store.clone();
            let mut changed = vec![world.keys.owner(&hold), world.keys.seats_of(&hold)[0].clone()];
            changed.extend(is_used.then(|| world.keys.owner(&own)));
            for key in changed {
                world.store = before.clone();
                let is_there = world.store.get(&key).is_some();
                match is_there {
                    true => {
                        _ = world.store.apply(&Txn { then: vec![Op::Delete(key.clone())], ..Txn::default() })
                    }
                    false => world.store.put(key.clone(), "x"),
                }
                assert!(!world.store.apply(&txn).succeeded, "{}", String::from_utf8_lossy(&key));
            }
            world.store = before;
            assert!(world.store.apply(&txn).succeeded);
            world.assert_sound();
        }
    }
}

#[test]
fn a_seat_whose_user_has_no_record_is_for_a_person() {
    let mut world = World::new();
    let user = kept("db-0", "u1", &["10.0.0.5"]);
    world.carry_out(&user);
    world.store.apply(&Txn { then: vec![Op::Delete(world.keys.owner(&user.owner))], ..Txn::default() });
    let Step::Done(ended) = world.plan(&kept("db-0", "u2", &["10.0.0.5"])).expect("a plan") else {
        panic!("it is made")
    };
    assert!(matches!(conflict(ended.alone()).1, Why::NoRecord { owner, .. } if owner == user.owner));
}
