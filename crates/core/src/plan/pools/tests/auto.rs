//! `"pool": "auto"`: the pools say whom they are for.

use super::*;
use crate::pool::NodeLabels;
use crate::pool::auto::{AutoVerdict, auto_pools, judge};

/// A pool of one /29 with this third byte.
fn pool(name: &str, byte: u8, more: &str) -> String {
    format!(
        r#"{{"pool":"{name}","network":"blue","order":"lowest","ranges":[{{"range":"10.0.{byte}.0/29"}}]{more}}}"#
    )
}

/// Pods of these names ask in namespace `ns` on node `n`.
fn auto(id: &str, ns: u64) -> Ask {
    from(id, ns, PoolsWanted::of(vec![PoolElement::auto()]))
}

fn pool_of(held: &[Held]) -> Vec<&str> {
    held.iter().filter_map(|held| Some(held.pool.as_ref()?.name.as_str())).collect()
}

#[test]
fn the_pools_say_whom_they_are_for() {
    let team = pool("team", 1, r#","for":{"namespaces":"ns"},"priority":5"#);
    let rack = pool("rack", 2, r#","for":{"node_labels":{"rack":"7"}},"priority":9"#);
    let rest = pool("rest", 3, r#","for":{}"#);
    let plain = pool("plain", 4, "");
    let mut world = World::new(&[&team, &rack, &rest, &plain]);
    assert_eq!(pool_of(&world.hold(&auto("a", 5))), ["team"]);
    let in_rack = |id: &str| {
        let node_labels = NodeLabels::from([("rack".to_owned(), "7".to_owned())]);
        from(id, 5, PoolsWanted { node_labels, ..PoolsWanted::of(vec![PoolElement::auto()]) })
    };
    assert_eq!(pool_of(&world.hold(&in_rack("b"))), ["rack"]);
    let mut other = auto("c", 5);
    other.labels.pod.namespace = "other".into();
    assert_eq!(pool_of(&world.hold(&other)), ["rest"]);
    let both = from("d", 5, PoolsWanted::of(vec![PoolElement::auto(), PoolElement::of(vec![name("plain")])]));
    assert_eq!(pool_of(&world.hold(&both)), ["team", "plain"]);
    world.delete("rest");
    other = auto("e", 5);
    other.labels.pod.namespace = "other".into();
    let facts = "namespace other, pod p, network net, node n, cluster east, no node labels";
    assert_eq!(world.refusal(&other), PoolRefused::ForNobody(facts.to_owned()));
}

#[test]
fn no_commit_is_applied_after_a_pool_has_changed_whom_it_is_for() {
    let team = pool("team", 1, r#","for":{"namespaces":"ns"}"#);
    let other = pool("other", 2, r#","for":{"namespaces":"other"}"#);
    let mut world = World::new(&[&team, &other]);
    let held = world.hold(&auto("running", 5));
    let (txn, _) = world.commit(&auto("a", 5));
    // The pool that was chosen stays as it is.
    world.apply(&pool("other", 2, r#","for":{"namespaces":"*"},"priority":1"#));
    assert!(!world.store.apply(&txn).succeeded);
    assert_eq!(pool_of(&world.hold(&auto("a", 5))), ["other"]);
    // A running pod keeps what it has, and so does another sandbox of it.
    assert_eq!(world.hold(&auto("running", 6)), held);
    let mut again = auto("running", 7);
    again.owner = Owner::named(["east", "n", "again", "eth0"]).expect("plain names");
    assert_eq!(world.hold(&again), held);
    world.delete("other");
    world.delete("team");
    let mut third = auto("running", 8);
    third.owner = again.owner;
    assert_eq!(world.hold(&third), held, "there is no pool any more");
    assert!(matches!(world.refusal(&auto("b", 5)), PoolRefused::ForNobody(_)));
}

#[test]
fn pools_of_one_priority_are_used_one_after_the_other_and_no_pool_below_them() {
    let pools = [
        pool("a", 1, r#","for":{},"allow":{"namespaces":"x"},"priority":1"#),
        pool("b", 2, r#","for":{},"priority":1"#),
        pool("c", 3, r#","for":{},"priority":1"#),
        pool("below", 4, r#","for":{}"#),
    ];
    let world = World::new(&pools.each_ref().map(String::as_str));
    let asked = auto("p", 5);
    let mut change = Allotment::new(&asked, &world.keys);
    let mut seen = Snapshot::default();
    for _ in 0..2 {
        world.store.read(&change.unread(&seen), &mut seen);
    }
    assert!(change.unread(&seen).is_empty());
    // Pool a is not for this namespace.
    assert_eq!(subnet(&change, &seen), "10.0.2.0/29");
    assert!(turn_to_next(&mut change, &seen));
    assert_eq!(subnet(&change, &seen), "10.0.3.0/29");
    assert!(!turn_to_next(&mut change, &seen), "no pool of a lower priority is used");

    let world = World::new(&[&pools[0], &pools[3]]);
    let why = PoolRefused::NotAllowed { element: 0, name: name("a"), why: "namespace ns".into() };
    assert_eq!(world.refusal(&auto("p", 5)), why);
}

#[test]
fn the_host_file_bounds_what_is_chosen() {
    let world = World::new(&[&pool("a", 1, r#","for":{}"#), &pool("b", 2, r#","for":{}"#)]);
    let asking = |allowed: &[&str]| {
        let allowed = Some(allowed.iter().map(|one| name(one)).collect());
        from("p", 5, PoolsWanted { allowed, ..PoolsWanted::of(vec![PoolElement::auto()]) })
    };
    assert_eq!(pool_of(&world.commit(&asking(&["b", "c"])).1), ["b"]);
    assert_eq!(world.refusal(&asking(&["c"])), PoolRefused::NotOnNode(name("a")));
    let many: Vec<String> =
        (0..=POOLS_MAX as u8).map(|i| pool(&format!("p{i}"), i, r#","for":{}"#)).collect();
    let world = World::new(&many.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(world.refusal(&auto("p", 5)), PoolRefused::TooMany(POOLS_MAX + 1));
}

/// A pool that was read before what names it may be gone, or have been made since.
#[test]
fn what_is_chosen_is_read_together_with_what_it_is_chosen_by() {
    let mut world = World::new(&[&pool("a", 1, r#","for":{}"#)]);
    let (asked, keys) = (auto("p", 5), world.keys.clone());
    let change = Allotment::new(&asked, &keys);
    let mut seen = Snapshot::default();
    world.store.read(&[keys.pool(&name("b"))], &mut seen);
    world.apply(&pool("b", 2, r#","for":{},"priority":1"#));
    world.store.read(&[world.keys.pool_changes()], &mut seen);
    let unread = change.unread(&seen);
    assert_eq!(unread, [world.keys.pool_changes(), world.keys.pool(&name("b"))]);
    world.store.read(&unread, &mut seen);
    assert!(change.unread(&seen).is_empty());
    let asked = change.resolve(&seen).expect("it is known");
    assert!(asked.refused_by_pools().is_none());
}

#[test]
fn a_head_serves_by_the_facts_of_whoever_waits() {
    let mut world = World::new(&[
        &pool("rack", 2, r#","for":{"node_labels":{"rack":"7"}},"priority":9"#),
        &pool("rest", 3, r#","for":{}"#),
    ]);
    let node_labels = NodeLabels::from([("rack".to_owned(), "7".to_owned())]);
    let wanted = PoolsWanted { node_labels, ..PoolsWanted::of(vec![PoolElement::auto()]) };
    let asked = from("p", 5, wanted);
    let mut seen = Snapshot::default();
    let keys = world.keys.clone();
    let change = Allotment::new(&asked, &keys);
    for _ in 0..2 {
        world.store.read(&change.unread(&seen), &mut seen);
    }
    let scope = change.scope(&seen).expect("it is known");
    let (line, head, key) = world.waiting(&asked, &scope);
    let Planned { txn, effects } = world.batch(&scope, &line, &head);
    let mut changed = World { keys: world.keys.clone(), store: world.store.clone() };
    changed.apply(&pool("rest", 3, r#","for":{},"priority":10"#));
    assert!(effects.outcome(&changed.store.apply(&txn).found).gone.is_empty(), "it is for another pool now");
    assert_eq!(effects.outcome(&world.store.apply(&txn).found).gone, [key]);
    let own = world.store.get(&world.keys.owner(&asked.owner)).expect("a record");
    assert_eq!(pool_of(&OwnerRecord::decode(&own.value).expect("decodes").addresses), ["rack"]);
}

/// Some pools, each for some namespaces and racks.
fn some_pools() -> impl Strategy<Value = Vec<String>> {
    let selector = prop_oneof![
        Just(r#","for":{}"#),
        Just(r#","for":{"namespaces":"ns"}"#),
        Just(r#","for":{"namespaces":["a*","b"]}"#),
        Just(r#","for":{"node_labels":{"rack":["7","8"]}}"#),
        Just(r#","for":{"namespaces":"a*","node_labels":{"rack":"7"}}"#),
    ];
    let some = proptest::collection::btree_map(0..6_u8, (selector, -1..2_i32), 0..5);
    some.prop_map(|pools| {
        let text = |(byte, (selector, priority)): (u8, (&str, i32))| {
            pool(&format!("p{byte}"), byte, &format!(r#"{selector},"priority":{priority}"#))
        };
        pools.into_iter().map(text).collect()
    })
}

proptest! {
    /// An ADD takes the pool that `metes pool which` prints.
    #[test]
    fn an_add_takes_the_first_pool_that_is_judged_to_be_chosen(
        texts in some_pools(),
        namespace in prop_oneof![Just("ns"), Just("abc"), Just("b"), Just("")],
        rack in prop_oneof![Just("7"), Just("9")],
    ) {
        let world = World::new(&texts.iter().map(String::as_str).collect::<Vec<_>>());
        let node_labels = NodeLabels::from([("rack".to_owned(), rack.to_owned())]);
        let wanted = PoolsWanted { node_labels: node_labels.clone(), ..PoolsWanted::of(vec![PoolElement::auto()]) };
        let mut asked = from("p", 5, wanted);
        asked.labels.pod.namespace = namespace.to_owned();
        let definitions: Vec<PoolDefinition> =
            texts.iter().map(|text| serde_json::from_str(text).expect("a pool")).collect();
        let facts = Facts {
            cluster: "east", namespace, pod: "p", network: "net", node: "n", node_labels: &node_labels,
        };
        let auto = auto_pools(&definitions);
        let judged = judge(&auto, facts).find(|(_, verdict)| *verdict == AutoVerdict::Chosen);
        match (judged, world.plan(&asked)) {
            (Some((first, _)), Ok(Step::Commit(_))) => {
                let held = world.commit(&asked).1;
                prop_assert_eq!(pool_of(&held), [first.pool.as_str()]);
                let above = |pool: &PoolDefinition| {
                    pool.priority > first.priority
                        && pool.selector.as_ref().is_some_and(|selector| selector.mismatch(facts).is_none())
                };
                prop_assert!(!definitions.iter().any(above), "a pool above it is for the pod");
            }
            (None, Err(Refused::Pool(PoolRefused::ForNobody(_)))) => {}
            other => prop_assert!(false, "{other:?}"),
        }
    }
}
