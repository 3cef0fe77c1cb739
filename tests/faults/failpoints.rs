//! Failure points: a released program has none, and a run that panics at one answers all the same.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use support::{
    Cluster, Run, Running, failing_metes, failing_reconciler, metes, network, reconciler, wait_for,
};

const STEP_MAX: Duration = Duration::from_secs(30);

fn config() -> Value {
    network(json!({"range": "10.60.0.0/24"}))
}

/// The texts that a build with failure points must contain.
const TRACES: [&str; 2] = ["METES_FAIL", "failpoint"];

fn traces(program: PathBuf) -> Vec<&'static str> {
    let bytes = fs::read(&program).unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let has = |trace: &&str| bytes.windows(trace.len()).any(|window| window == trace.as_bytes());
    TRACES.into_iter().filter(has).collect()
}

#[test]
fn what_is_released_has_no_failure_points() {
    for program in [metes(), reconciler()] {
        assert_eq!(traces(program.clone()), [""; 0], "{}", program.display());
    }
    for program in [failing_metes(), failing_reconciler()] {
        assert_eq!(traces(program.clone()), TRACES, "{}", program.display());
    }
}

#[test]
fn what_is_released_does_not_read_their_environment() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    let list = cluster.folder().join("list");
    let plan = "read.before=kill,commit-first.before=panic,commit.before=panic,print.before=exit,\
                free.before=kill";
    let armed = |run: Run| run.config(&config()).env("METES_FAIL", plan).env("METES_FAIL_LIST", &list);
    armed(node.add("c1")).run().address();
    armed(node.del("c1")).run().silent();
    assert!(!list.exists());
    assert_ne!(armed(node.add("c2").program(failing_metes())).run().status.code(), Some(0));
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

/// Stops the run at a point of its own.
fn stopped_at(run: Run, point: &str) -> Running {
    let mut running = run.program(failing_metes()).env("METES_FAIL", format!("{point}=stop")).spawn();
    wait_for(point, STEP_MAX, || {
        assert!(running.is_running(), "{point} was not passed");
        if running.has_stopped() { Ok(()) } else { Err("it runs".to_owned()) }
    });
    running
}

#[test]
fn a_request_is_with_etcd_when_it_is_sent_and_not_before() {
    // Of its own: leases belong to no prefix.
    let etcd = support::Etcd::start();
    let cluster = Cluster::on(&etcd);
    let node = cluster.node("n1");
    let store = cluster.store();
    let has = |key: &str| !store.keys(key).is_empty();
    let granted = || !store.run(async |client| client.leases().await).leases().is_empty();
    let held = || has("v1/owner/test/n1/c1/");
    let freed = || !has("v1/owner/test/n1/c1/");
    let buried = || has("v1/tombstone/test/n1/c2/");
    let (add, del, early) = (node.add("c1"), node.del("c1"), node.del("c2"));
    let cases: [(&Run, &str, &dyn Fn() -> bool); 4] = [
        (&add, "grant", &granted),
        (&add, "commit", &held),
        (&del, "free", &freed),
        (&early, "bury", &buried),
    ];
    for (run, request, is_done) in cases {
        let run = run.clone().config(&config());
        // Killed when it is dropped.
        stopped_at(run.clone(), &format!("{request}.before"));
        assert!(!is_done(), "{request} was there before it was sent");
        stopped_at(run, &format!("{request}.sent"));
        wait_for(request, STEP_MAX, || if is_done() { Ok(()) } else { Err("not there".to_owned()) });
    }
    cluster.assert_clean();
}

#[test]
fn a_panic_is_answered_and_the_del_after_it_finds_all() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    for (number, point) in [
        "read.before",
        "grant.before",
        "grant.sent",
        "read.answered",
        "commit.before",
        "commit.sent",
        "commit.answered",
        "mark.before",
        "print.before",
    ]
    .into_iter()
    .enumerate()
    {
        // Of its own, so that no run before has left it a lease.
        let node = cluster.node(&format!("n{number}"));
        let panicking = node.add("c1").config(&config()).program(failing_metes());
        let ended = panicking.env("METES_FAIL", format!("{point}=panic")).run();
        ended.error(999);
        assert!(ended.stderr.contains("has panicked"), "{point}: {ended}");
        node.del("c1").config(&config()).run().silent();
        cluster.assert_nothing_held();
    }
    // An answer stands.
    let late = node.add("c1").config(&config()).program(failing_metes());
    let ended = late.env("METES_FAIL", "print.after=panic").run();
    assert!(ended.stderr.contains("has panicked"), "{ended}");
    let answered = ended.address();
    assert_eq!(node.add("c1").config(&config()).run().address(), answered);
    node.del("c1").config(&config()).run().silent();
    cluster.assert_nothing_held();
    for point in ["read.before", "free.before", "free.sent", "free.answered", "free-hinted.sent"] {
        node.add("c1").config(&config()).run().address();
        if !point.starts_with("free-hinted") {
            node.forget_owners();
        }
        let panicking = node.del("c1").config(&config()).program(failing_metes());
        panicking.env("METES_FAIL", format!("{point}=panic")).run().error(999);
        node.del("c1").config(&config()).run().silent();
        cluster.assert_nothing_held();
    }
    cluster.assert_clean();
}

/// A commit that cannot be settled is left to a spooled DEL, except for addresses that an earlier answer gave the
/// container.
#[test]
fn a_repeated_add_that_cannot_settle_its_commit_keeps_what_it_was_told() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    let unsettled = |container: &str, step: &str| {
        let run = node.add(container).config(&config()).program(failing_metes());
        let plan = format!("{step}.answered=error:unknown,revoke.before=error:unreachable");
        run.env("METES_FAIL", plan).run().error(11);
    };
    let spooled = || node.spooled_dels().len();
    let told = node.add("c1").config(&config()).run().address();
    unsettled("c1", "commit");
    assert_eq!(spooled(), 0);
    // One that is not repeated leaves a DEL, which the next run carries out.
    unsettled("c2", "commit-first");
    assert_eq!(spooled(), 1);
    assert_eq!(node.add("c1").config(&config()).run().address(), told);
    assert_eq!(spooled(), 0);
    let list = node.list();
    assert!(list.len() == 1 && list[0]["container_id"] == "c1", "{list:?}");
    node.del("c1").config(&config()).run().silent();
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

/// An ADD takes over an address of a pool that is not for the pod any more. After its commit the ADD reads that pool
/// for the result, and that read may fail.
#[test]
fn an_add_that_cannot_read_a_pool_for_its_result_holds_nothing() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    let apply = |pool: &str, network: u8, namespace: &str| {
        let range = format!("10.{network}.0.0/24");
        let text = format!("pool: {pool}\nranges: [{{range: {range}}}]\nfor: {{namespaces: {namespace}}}\n");
        let applied = node.cli_run(["pool", "apply", "--yes", "-f", "-"]).stdin(text).run();
        assert!(applied.succeeded(), "{applied}");
    };
    let auto = network(json!({"pool": "auto"}));
    apply("later", 62, "ns");
    for read in 1.. {
        apply("first", 61, "ns");
        let add =
            |container: String| node.add(&container).pod("ns", "web-0", &format!("u-{read}")).config(&auto);
        let old = add(format!("old{read}")).run().address();
        apply("first", 61, "other");
        let failing = add(format!("new{read}")).program(failing_metes());
        let ended = failing.env("METES_FAIL", format!("read#{read}.before=error:unreachable")).run();
        if ended.succeeded() {
            assert_eq!(ended.address(), old);
            assert!(read > 2, "a look, and the pool that gave the address");
            break;
        }
        ended.error(11);
        let held = cluster.store().keys(&format!("v1/owner/test/n1/new{read}/"));
        assert!(held.is_empty() && node.spooled_dels().is_empty(), "read {read}: {held:?}");
    }
    cluster.assert_whole();
}

#[test]
fn a_point_that_is_misspelt_is_told() {
    let cluster = Cluster::new();
    for wrong in ["commit=kill", "commit.after-all=kill", "commit.sent=explode", "commit.sent"] {
        let run = cluster.node("n1").add("c1").config(&config()).program(failing_metes());
        let ended = run.env("METES_FAIL", wrong).run();
        assert!(!ended.succeeded() && ended.stderr.contains("METES_FAIL"), "{wrong}: {ended}");
    }
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

/// The command has done its work, and the next run raises the mark.
#[test]
fn a_hold_that_was_written_succeeds_where_etcd_goes_away_after_it() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    node.add("c1").config(&config()).run().address();
    let list = cluster.folder().join("list");
    let hold = |address: &str, plan: &str| {
        let command = ["hold", address, "--network", "default", "--note", "x"];
        let run = node.cli_run(command).program(failing_metes()).env("METES_FAIL_LIST", &list);
        if plan.is_empty() { run.run() } else { run.env("METES_FAIL", plan).run() }
    };
    let done = hold("10.60.0.8", "");
    assert!(done.succeeded(), "{done}");
    let passed = fs::read_to_string(&list).expect("the points were listed");
    let is_request = |point: &&str| point.ends_with(".before") && !point.starts_with("mark#");
    let last = passed.lines().rfind(is_request).expect("a request was sent");
    assert!(last.starts_with("read#"), "{passed}");
    let done = hold("10.60.0.9", &format!("{last}=error:unreachable"));
    assert!(done.succeeded() && done.stderr.contains("not in this node's mark"), "{done}");
    cluster.assert_clean();
}
