//! Holds for pods, on a real API server and a real etcd: the reconciler keeps those that are used, or whose pod exists,
//! and ends the others when their time is over.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{Outcome, Rule, World, in_parallel, network, wait_for};

/// The longest time that a test waits for a hold of a few seconds to end.
const END_MAX: Duration = Duration::from_secs(30);
const AT_ONCE: [&str; 2] = ["--grace", "0s"];

fn sticky(keep: &str) -> Value {
    network(json!({"range": "10.70.0.0/24", "sticky": "pod", "keep": keep}))
}

fn add(world: &World, container: &str, (pod, uid): (&str, &str), config: &Value) -> Outcome {
    world.node.add(container).config(config).pod(&world.namespace, pod, uid).run()
}

fn del(world: &World, container: &str, config: &Value) {
    world.node.del(container).config(config).run().silent();
}

/// Makes passes until one ends the holds; that pass.
fn wait_for_end(world: &World, flags: &[&str]) -> support::Pass {
    wait_for("the end of a hold", END_MAX, || {
        let pass = world.pass(flags).ok();
        let ended = pass.report["freed"]["unused"].as_u64();
        if ended.is_some() { Ok(pass) } else { Err(pass.outcome.to_string()) }
    })
}

#[test]
fn a_hold_stays_while_it_is_used_while_its_pod_exists_and_for_its_time() {
    let world = World::new();
    let config = sticky("3s");
    let pod = world.api.pod(&world.namespace, "db-0").phase("Running").create();
    assert_eq!(add(&world, "c1", ("db-0", pod.uid()), &config).address(), "10.70.0.1");
    world.pass(AT_ONCE).ok().kept(json!({"pod-exists": 1, "in-use": 1})).freed(json!({}));
    // Its container restarts.
    del(&world, "c1", &config);
    world.pass(AT_ONCE).ok().kept(json!({"subject-exists": 1})).freed(json!({}));
    assert!(world.sightings().is_empty());
    pod.delete();
    let unused = Instant::now();
    let pass = world.pass(AT_ONCE).ok().kept(json!({"within-grace": 1})).freed(json!({}));
    assert_eq!(pass.report["holds_of_pods"], json!({"unused": 1}));
    assert_eq!(world.sightings().len(), 1);
    let ended = wait_for_end(&world, &[&AT_ONCE[..], &["--events"]].concat());
    assert!(unused.elapsed() >= Duration::from_secs(3), "{:?}", unused.elapsed());
    let freed = &ended.report["freed_owners"][0];
    assert_eq!((&freed["pod"]["name"], &freed["container_id"]), (&json!("db-0"), &Value::Null));
    assert!(world.sightings().is_empty());
    world.cluster.assert_nothing_held();
    let events = world.api.get(&format!("/api/v1/namespaces/{}/events", world.namespace));
    let told: Vec<&Value> = events["items"].as_array().expect("a list").iter().collect();
    let event = told.iter().find(|event| event["reason"] == "HoldEnded").expect("an event");
    assert!(event["message"].as_str().is_some_and(|text| text.contains("10.70.0.1")), "{event}");
    world.cluster.assert_clean();
}

#[test]
fn a_pod_that_is_deleted_by_force_gives_its_seat_back_by_a_pass() {
    let world = World::new();
    let config = sticky("forever");
    assert_eq!(add(&world, "c1", ("db-0", "u1"), &config).address(), "10.70.0.1");
    let next = world.api.pod(&world.namespace, "db-0").phase("Running").create();
    add(&world, "c2", ("db-0", next.uid()), &config).error(11);
    // The old pod is gone for Kubernetes, and its container's DEL never comes.
    world.pass(AT_ONCE).ok().kept(json!({"in-use": 1})).freed(json!({"pod-gone": 1}));
    assert_eq!(add(&world, "c2", ("db-0", next.uid()), &config).address(), "10.70.0.1");
    del(&world, "c2", &config);
    next.delete();
    // Only a person ends this one.
    world.pass(AT_ONCE).ok().kept(json!({"set-aside": 1})).freed(json!({}));
    world.cluster.assert_clean();
}

/// A pod takes the seat and gives it back while a pass is about to end its hold: between the question for the pod and
/// the free.
#[test]
fn a_use_during_a_pass_begins_the_time_anew() {
    let world = Arc::new(World::new());
    let config = sticky("1s");
    assert_eq!(add(&world, "c1", ("db-0", "u1"), &config).address(), "10.70.0.1");
    del(&world, "c1", &config);
    world.pass(AT_ONCE).ok().kept(json!({"within-grace": 1}));
    let proxy = world.proxy();
    let path = format!("/api/v1/namespaces/{}/pods/db-0", world.namespace);
    let (other, its_config) = (world.clone(), config.clone());
    proxy.rule(Rule::get(&path).before(move || {
        add(&other, "c2", ("db-0", "u2"), &its_config).address();
        del(&other, "c2", &its_config);
    }));
    let pass = wait_for("a pass that looks twice", END_MAX, || {
        let pass = world.reconciler(&proxy).args(AT_ONCE).pass().ok();
        if proxy.asked_for("GET", &path).is_empty() { Err(pass.outcome.to_string()) } else { Ok(pass) }
    });
    pass.kept(json!({"changed": 1})).freed(json!({}));
    assert_eq!(add(&world, "c3", ("db-0", "u3"), &config).address(), "10.70.0.1");
    del(&world, "c3", &config);
    wait_for_end(&world, &AT_ONCE);
    world.cluster.assert_clean();
}

#[test]
fn many_holds_that_end_at_once_stop_no_orphan_and_short_ones_have_a_brake() {
    const HOLDS: usize = 60;
    let world = World::new();
    let run = |config: &Value, name: &str| {
        in_parallel(8, 0..HOLDS, |i| {
            let (container, pod) = (format!("{name}-c{i}"), format!("{name}-{i}"));
            add(&world, &container, (&pod, &format!("{name}-u{i}")), config).address();
            del(&world, &container, config);
        });
    };
    run(&sticky("1s"), "short");
    run(&sticky("2h"), "long");
    world.pass(AT_ONCE).ok().kept(json!({"within-grace": 2 * HOLDS}));
    world.orphan("gone");
    let braked = wait_for("the brake", END_MAX, || {
        let pass = world.pass(AT_ONCE);
        if pass.code == Some(1) { Ok(pass) } else { Err(pass.outcome.to_string()) }
    });
    let error = braked.report["error"].as_str().unwrap_or_default();
    assert!(error.contains(&format!("{HOLDS} holds for pods")), "{}", braked.outcome);
    // Two passes may have come before.
    let held = world.node.list();
    assert!(held.len() == 2 * HOLDS, "the orphan is freed, and no hold is: {}", held.len());
    world.pass(["--grace", "0s", "--force"]).ok().freed(json!({"unused": HOLDS}));
    world.cluster.assert_clean();
}

/// The API answers with an empty list. A hold that is used stays, and for one that is due the name is asked for.
#[test]
fn an_api_that_lists_no_pod_ends_no_hold_of_one() {
    let world = World::new();
    let config = sticky("1s");
    let [used, unused] = ["db-0", "db-1"].map(|name| {
        let pod = world.api.pod(&world.namespace, name).phase("Running").create();
        add(&world, name, (name, pod.uid()), &config).address();
        pod
    });
    del(&world, unused.name(), &config);
    let proxy = world.proxy();
    proxy.rule(Rule::get("/api/v1/pods").edit(|list| list["items"] = json!([])));
    world.reconciler(&proxy).args(AT_ONCE).pass();
    let path = format!("/api/v1/namespaces/{}/pods/db-1", world.namespace);
    let pass = wait_for("the name to be asked for", END_MAX, || {
        let pass = world.reconciler(&proxy).args(AT_ONCE).pass();
        if proxy.asked_for("GET", &path).is_empty() { Err(pass.outcome.to_string()) } else { Ok(pass) }
    });
    assert_eq!(pass.report["freed"], json!({}), "{}", pass.outcome);
    assert_eq!(world.node.list().len(), 2);
    assert_eq!(add(&world, "db-1", ("db-1", unused.uid()), &config).address(), "10.70.0.2");
    drop(used);
    world.cluster.assert_clean();
}
