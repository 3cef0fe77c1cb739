//! A pass of the reconciler on a real API server and a real etcd: the owners that keep their addresses, those that lose
//! them and when, the repairs, and the conditions that stop a pass.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{
    Cluster, Etcd, KubeApi, Node, Pass, Pod, Rule, Run, World, failing_reconciler, in_parallel, network,
    wait_for,
};

/// No grace at all.
const AT_ONCE: [&str; 4] = ["--grace", "0s", "--finished-grace", "0s"];
/// The longest time that a test waits for a grace of a few seconds to end.
const GRACE_MAX: Duration = Duration::from_secs(15);
/// For a store of 16 MiB.
const SMALL: &str = "--quota-backend-bytes=16777216";

fn this_boot() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("Linux has one");
    boot.trim().to_owned()
}

/// The only key that begins like this.
#[track_caller]
fn only_key(world: &World, prefix: &str) -> String {
    let keys = world.cluster.store().keys(prefix);
    assert_eq!(keys.len(), 1, "{keys:?}");
    keys[0].clone()
}

fn set_aside(world: &World, arguments: &[&str]) {
    let hold = ["hold", "--note", "x", "--network", "default", "--force"];
    let outcome = world.node.cli([&hold[..], arguments].concat());
    assert!(outcome.succeeded(), "{outcome}");
}

/// Waits until so many holds have time left.
fn wait_for_holds(world: &World, left: usize) {
    wait_for("the end of a hold's time", GRACE_MAX, || {
        let keys = world.cluster.store().keys("v1/hold/");
        if keys.len() == left { Ok(()) } else { Err(format!("{keys:?}")) }
    });
}

/// Changes a record as it stands in etcd; its value before.
#[track_caller]
fn rewrite(world: &World, key: &str, change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let store = world.cluster.store();
    let before = store.get(key).expect("the key exists");
    let mut record = serde_json::from_slice(&before).expect("a record is JSON");
    change(&mut record);
    store.put(key, record.to_string());
    before
}

// ---- who keeps what it has, and who does not

#[test]
fn a_pod_that_exists_keeps_what_it_has_whatever_its_annotations_say() {
    let world = World::new();
    let pod = |name: &str| world.api.pod(&world.namespace, name);
    let elsewhere = json!([{"name": "default/net", "interface": "eth0", "ips": ["192.0.2.1"]}]);
    let hash = "0123456789abcdef0123456789abcdef";
    let pods = [
        pod("pending"),
        pod("unbound").unbound(),
        pod("running").phase("Running"),
        pod("unknown").phase("Unknown"),
        pod("elsewhere").phase("Running").network_status(&elsewhere),
        pod("nowhere").phase("Running").network_status(&json!([])),
        pod("nonsense").phase("Running").annotation("k8s.v1.cni.cncf.io/network-status", "no JSON {"),
        pod("none-asked").phase("Running").annotation("k8s.v1.cni.cncf.io/networks", ""),
        pod("terminating").phase("Running"),
        pod("host-network").phase("Running").with(json!({"spec": {"hostNetwork": true}})),
    ]
    .map(support::PodBuilder::create);
    pods.iter().for_each(|pod| _ = world.attach(pod).run().address());
    let terminating = &pods[8];
    terminating.terminate();
    // The kubelet gives a static pod's own uid, the annotations of its mirror have it.
    pod("mirror").mirror_of(hash).phase("Running").create();
    world.attach_as("mirror", "mirror", hash).run().address();
    let image = pod("image").mirror_of("feed").phase("Running").create();
    world.attach(&image).run().address();
    pod("hash-only").annotation("kubernetes.io/config.hash", "cafe").phase("Running").create();
    world.attach_as("hash-only", "hash-only", "cafe").run().address();

    // A user who makes a pod writes its annotations.
    pod("thief").mirror_of(pods[2].uid()).phase("Succeeded").create();

    let before = world.held();
    world.pass(AT_ONCE).ok().kept(json!({"pod-exists": before.len()})).freed(json!({}));
    assert_eq!(world.held(), before);
    assert!(world.sightings().is_empty());
    terminating.delete();
    world.pass(AT_ONCE).ok().freed(json!({"pod-gone": 1}));
    assert!(!world.held().contains(&"terminating".to_owned()));
    world.cluster.assert_clean();
}

#[test]
fn what_is_set_aside_stays_until_its_time_is_over() {
    let world = World::new();
    let store = world.cluster.store();
    let pass = |flags: &[&str], holds: [usize; 2]| {
        let kept = json!({"set-aside": holds[0]});
        let pass = world.pass(AT_ONCE.iter().chain(flags)).ok().kept(kept).freed(json!({}));
        let report = &pass.report;
        assert_eq!([&report["holds"], &report["holds_ended"]], [holds[0], holds[1]], "{}", pass.outcome);
    };
    set_aside(&world, &["10.99.0.1"]);
    set_aside(&world, &["10.99.0.2", "10.99.0.3", "--for", "1h"]);
    set_aside(&world, &["10.99.0.4", "--for", "1s"]);
    wait_for_holds(&world, 2);
    // No flag makes a pass free a hold.
    pass(&["--force", "--unlabelled-after", "0s", "--dry-run"], [4, 1]);
    pass(&["--force", "--unlabelled-after", "0s"], [4, 1]);
    pass(&[], [3, 0]);
    // A hold whose key was deleted by hand is over, too; one without an end never is.
    store.delete_prefix("v1/hold/");
    pass(&[], [3, 2]);
    pass(&[], [1, 0]);
    let text = world.cluster.reconciler(&world.api).args(AT_ONCE).run();
    assert!(text.stdout.contains(" 1  set-aside\n"), "{text}");
    assert!(world.node.cli(["hold", "--remove", "10.99.0.1"]).succeeded());
    world.cluster.assert_nothing_held();
    world.cluster.assert_clean();
}

#[test]
fn a_hold_that_is_prolonged_during_a_pass_stays() {
    let world = World::new();
    let store = world.cluster.store();
    set_aside(&world, &["10.99.0.4", "--for", "1s"]);
    wait_for_holds(&world, 0);
    // The record was written again, or only the key of its time.
    let prolong = || set_aside(&world, &["10.99.0.4", "--for", "1h"]);
    let lease = || _ = store.put_leased("v1/hold/default/00000000000000000000ffff0a630004", "", 60);
    for (what, change) in [("key", &lease as &dyn Fn()), ("record", &prolong)] {
        store.delete_prefix("v1/hold/");
        let late = world.reconciler(&world.api).args(AT_ONCE).program(failing_reconciler());
        let mut late = late.env("METES_FAIL", "free.before=stop").spawn();
        late.wait_until_stopped();
        change();
        late.resume();
        let pass = Pass::of(late.wait()).ok().kept(json!({"set-aside": 1})).freed(json!({}));
        assert_eq!(pass.report["holds_ended"], 0, "{what}: {}", pass.outcome);
        assert_eq!(world.node.list().len(), 1, "{what}");
    }
    assert!(world.node.cli(["hold", "--remove", "10.99.0.4"]).succeeded());
    world.cluster.assert_nothing_held();
    world.cluster.assert_clean();
}

#[test]
fn a_pod_that_is_gone_gives_back_what_it_had() {
    let world = World::new();
    let gone = world.living("gone");
    let replaced = world.living("web-0");
    gone.delete();
    // Another pod of the same name inherits nothing.
    let heir = replaced.replace();
    let moved = world.living("moved");
    world.orphan("never");
    let args = format!("K8S_POD_NAMESPACE={};K8S_POD_NAME=", world.namespace);
    // Older runtimes give no uid: any pod of that name counts.
    world.hold("by-name", &format!("{args}{}", heir.name()));
    world.hold("by-name-gone", &format!("{args}gone"));

    world.pass(AT_ONCE).ok().kept(json!({"pod-exists": 2})).freed(json!({"pod-gone": 4}));
    assert_eq!(world.held(), ["by-name", moved.name()]);
    // The pod of that name lives on elsewhere.
    let address = world.attach(&heir).run().address();
    world.pass(AT_ONCE).ok().kept(json!({"pod-exists": 3})).freed(json!({}));
    assert_eq!(world.attach(&heir).run().address(), address);
    assert!(world.cluster.store().keys("v1/pod/").iter().all(|key| !key.contains(gone.uid())));
    world.cluster.assert_clean();
}

#[test]
fn a_finished_pod_gives_back_what_it_had_after_a_grace_of_its_own() {
    let world = World::new();
    let pods = ["Succeeded", "Failed"].map(|phase| {
        let pod = world.living(&phase.to_lowercase());
        pod.phase(phase);
        pod
    });
    let mirror = world.api.pod(&world.namespace, "mirror").mirror_of("beef").phase("Failed").create();
    world.attach_as("mirror", mirror.name(), "beef").run().address();
    world.hold("by-name", &format!("K8S_POD_NAMESPACE={};K8S_POD_NAME=succeeded", world.namespace));
    let leaving = world.living("leaving");
    leaving.phase("Succeeded").terminate();

    world.pass(["--grace", "0s"]).ok().kept(json!({"within-grace": 5})).freed(json!({}));
    assert_eq!(world.held().len(), 5);
    // A phase that no version of Kubernetes has is none in which nothing runs.
    pods[1].phase("Resting");
    let pass = world.pass(AT_ONCE).ok().freed(json!({"pod-finished": 4}));
    assert_eq!(pass.report["kept"].as_object().map(serde_json::Map::len), Some(1), "{}", pass.outcome);
    assert_eq!(world.held(), ["failed"]);
    leaving.delete();
    world.cluster.assert_clean();
}

#[test]
fn what_belongs_to_no_pod_is_kept_unless_asked() {
    let world = World::new();
    world.node.add("cnitool").config(&World::config()).run().address();
    world.living("pod");
    world.pass(AT_ONCE).ok().kept(json!({"unlabelled": 1, "pod-exists": 1})).freed(json!({}));
    let flags = ["--unlabelled-after", "1h"];
    world.pass(AT_ONCE.iter().chain(&flags)).ok().kept(json!({"within-grace": 1, "pod-exists": 1}));
    let flags = ["--unlabelled-after", "0s"];
    world.pass(AT_ONCE.iter().chain(&flags)).ok().freed(json!({"unlabelled": 1}));
    assert_eq!(world.held(), ["pod"]);
    world.cluster.assert_clean();
}

#[test]
fn a_pod_that_the_api_cannot_be_asked_for_keeps_what_it_has() {
    let world = World::new();
    let namespace = &world.namespace;
    let proxy = world.proxy();
    let names = [
        String::new(),
        "K8S_POD_NAME=web-0".to_owned(),
        format!("K8S_POD_NAMESPACE={namespace}"),
        format!("K8S_POD_NAMESPACE={namespace};K8S_POD_NAME=Upper"),
        format!("K8S_POD_NAMESPACE={namespace};K8S_POD_NAME=a/b"),
        format!("K8S_POD_NAMESPACE={namespace};K8S_POD_NAME=.."),
        format!("K8S_POD_NAMESPACE={namespace};K8S_POD_NAME=../../../nodes/n1"),
        format!("K8S_POD_NAMESPACE={namespace};K8S_POD_NAME=a%2f..%2fb"),
        format!("K8S_POD_NAMESPACE={namespace};K8S_POD_NAME=a?b"),
        format!("K8S_POD_NAMESPACE={namespace};K8S_POD_NAME=a b"),
        format!("K8S_POD_NAMESPACE={namespace}/pods;K8S_POD_NAME=a"),
        format!("K8S_POD_NAMESPACE=..;K8S_POD_NAME={namespace}"),
    ];
    for (index, name) in names.iter().enumerate() {
        let args = format!("{name};K8S_POD_UID=gone-{index}-{namespace}");
        world.hold(&format!("c{index}"), args.trim_start_matches(';'));
        if !name.is_empty() {
            world.hold(&format!("d{index}"), name);
        }
    }
    let count = 2 * names.len() - 1;
    let pass = world.reconciler(&proxy).args(AT_ONCE).pass().ok();
    pass.kept(json!({"pod-unnamed": count})).freed(json!({}));
    assert!(
        proxy.asked_for("GET", "/api/v1/namespaces/").iter().all(|asked| asked.path.ends_with("kube-system"))
    );
    assert_eq!(world.held().len(), count);
    world.cluster.assert_clean();
}

/// A UID in the form of the API server's, which no pod has.
fn uid_of_nobody() -> String {
    let uid = std::fs::read_to_string("/proc/sys/kernel/random/uuid").expect("the kernel makes one");
    uid.trim().to_owned()
}

/// The kubelet's own UID for it is a digest, and the API shows no pod that mirrors it.
#[test]
fn a_static_pod_without_a_mirror_is_kept_while_its_node_works() {
    let world = World::new();
    for (name, boot) in [("at-work", this_boot()), ("rebooted", "another".to_owned())] {
        let node = world.node_name(name);
        world.api.node(&node).ready(true).boot_id(&boot);
        let uid = uid_of_nobody().replace('-', "");
        let add = world.cluster.node(&node).add(name).config(&World::config());
        add.pod(&world.namespace, name, &uid).run().address();
    }
    world.pass(AT_ONCE).ok().kept(json!({"static-pod": 1})).freed(json!({"pod-gone": 1}));
    assert_eq!(world.held(), ["at-work"]);
    world.cluster.assert_clean();
}

#[test]
fn records_of_other_clusters_of_none_and_of_nobody_are_kept() {
    let world = World::new();
    let uid = uid_of_nobody();
    for (container, cluster) in [("other", json!("test2")), ("none", Value::Null)] {
        let node = world.cluster.node_with(container, json!({"cluster": cluster}));
        let run = node.add(container).config(&World::config()).pod(&world.namespace, container, &uid);
        run.ifname(container).run().address();
    }
    world.orphan("unreadable");
    let own = format!("v1/owner/test/{}/unreadable/eth0", world.node.name());
    let store = world.cluster.store();
    let before = store.get(&own).expect("it holds an address");
    let kept = json!({"other-cluster": 1, "no-cluster": 1, "undecodable": 1});
    for unreadable in [&b"{\"v\":2}"[..], b"", b"\xff\xfe", b"{\"v\":1}"] {
        store.put(&own, unreadable);
        let flags = ["--force", "--unlabelled-after", "0s"];
        let pass = world.pass(AT_ONCE.iter().chain(&flags)).ok().kept(kept.clone()).freed(json!({}));
        let log = &pass.outcome.stderr;
        assert!(log.contains("does not decode") && log.contains("unreadable"), "{}", pass.outcome);
        assert_eq!(store.get(&own).as_deref(), Some(unreadable));
    }
    store.put(&own, before);
    world.pass(AT_ONCE).ok().freed(json!({"pod-gone": 1}));
    assert_eq!(world.held(), ["none", "other"]);
    world.cluster.assert_clean();
}

// ---- nodes

#[test]
fn a_node_that_is_not_ready_keeps_what_its_pods_had() {
    let world = World::new();
    let mut expected = Vec::new();
    for (name, condition) in
        [("ready", Some("True")), ("broken", Some("False")), ("lost", Some("Unknown")), ("new", None)]
    {
        let node_name = world.node_name(name);
        let object = world.api.node(&node_name);
        if let Some(status) = condition {
            object.condition(status, Duration::from_secs(3600)).boot_id(&this_boot());
        }
        let node = world.cluster.node(&node_name);
        let uid = uid_of_nobody();
        node.add(name).config(&World::config()).pod(&world.namespace, name, &uid).run().address();
        let finished = world.api.pod(&world.namespace, &format!("finished-{name}")).phase("Failed").create();
        let run = node.add(finished.name()).config(&World::config());
        run.pod(finished.namespace(), finished.name(), finished.uid()).run().address();
        if name != "ready" {
            expected.extend([format!("finished-{name}"), name.to_owned()]);
        }
    }
    expected.sort();
    world.orphan("no-node");
    let flags: Vec<&str> = AT_ONCE.to_vec();
    let kept = json!({"node-not-ready": 6});
    world.pass(&flags).ok().kept(kept).freed(json!({"pod-gone": 2, "pod-finished": 1}));
    assert_eq!(world.held(), expected);

    // Nobody can say that a container runs where there is no node.
    for name in ["broken", "lost", "new"] {
        world.api.node(&world.node_name(name)).delete();
    }
    let living = world.living("living");
    world.pass(&flags).ok().kept(json!({"pod-exists": 1})).freed(json!({"pod-gone": 3, "pod-finished": 3}));
    assert_eq!(world.held(), [living.name()]);
    world.api.node(&world.node_name("ready")).delete();
    world.cluster.assert_clean();
}

/// The pod of a StatefulSet asks for the address that it had, on another node.
#[test]
fn a_node_that_is_out_of_service_gives_back_what_its_pods_had() {
    let world = World::new();
    let name = world.node_name("dead");
    let object = world.api.node(&name);
    object.boot_id(&this_boot()).unreachable_for(Duration::from_secs(3600));
    let dead = world.cluster.node(&name);
    let pod = world.api.pod(&world.namespace, "web-0").node(&name).phase("Running").create();
    let attach = |node: &Node, pod: &Pod, container: &str| {
        let add = node.add(container).config(&World::config());
        let names =
            format!("K8S_POD_NAMESPACE={};K8S_POD_NAME=web-0;K8S_POD_UID={}", world.namespace, pod.uid());
        add.args(&format!("IgnoreUnknown=1;IP=10.70.0.77;{names}"))
    };
    assert_eq!(attach(&dead, &pod, "first").run().address(), "10.70.0.77");
    pod.delete();
    let heir = world.api.pod(&world.namespace, "web-0").create();
    attach(&world.node, &heir, "second").run().error(101);
    world.pass(AT_ONCE).ok().kept(json!({"node-not-ready": 1})).freed(json!({}));

    object.out_of_service(true);
    world.pass(["--grace", "1h"]).ok().kept(json!({"within-grace": 1}));
    world.pass(AT_ONCE).ok().freed(json!({"pod-gone": 1}));
    assert_eq!(attach(&world.node, &heir, "second").run().address(), "10.70.0.77");
    world.pass(AT_ONCE).ok().kept(json!({"pod-exists": 1})).freed(json!({}));
    object.delete();
    world.cluster.assert_clean();
}

/// A pod that was deleted by force may run on until its runtime calls DEL.
#[test]
fn a_node_at_work_has_more_time_for_its_dels() {
    let world = World::new();
    let orphan = |name: &str, boot: &str| {
        let node = world.node_name(name);
        world.api.node(&node).ready(true).boot_id(boot);
        let uid = uid_of_nobody();
        let add = world.cluster.node(&node).add(name).config(&World::config());
        add.pod(&world.namespace, name, &uid).run().address();
    };
    orphan("at-work", &this_boot());
    orphan("rebooted", "another");
    let flags = ["--grace", "0s", "--ready-grace", "2s"];
    world.pass(flags).ok().kept(json!({"within-grace": 1})).freed(json!({"pod-gone": 1}));
    assert_eq!(world.held(), ["at-work"]);
    assert_eq!(due(&world, &["--grace", "0s", "--ready-grace", "1h"]), 0);
    wait_for("the grace to end", GRACE_MAX, || match due(&world, &flags) {
        1 => Ok(()),
        other => Err(format!("{other} are due")),
    });
    // The longer of the two counts.
    assert_eq!(due(&world, &["--grace", "1h", "--ready-grace", "2s"]), 0);
    // A node that went down does not finish its work.
    world.api.node(&world.node_name("at-work")).ready(false);
    world.pass(flags).ok().kept(json!({"node-not-ready": 1}));
    world.api.node(&world.node_name("at-work")).out_of_service(true);
    world.pass(["--grace", "0s", "--ready-grace", "1h"]).ok().freed(json!({"pod-gone": 1}));
    ["at-work", "rebooted"].iter().for_each(|name| world.api.node(&world.node_name(name)).delete());
    world.cluster.assert_nothing_held();
    world.cluster.assert_clean();
}

/// The keys that say which nodes of this world Kubernetes has had.
fn seen_nodes(world: &World) -> Vec<String> {
    let mut keys = world.cluster.store().keys("v1/seen/test/");
    keys.retain(|key| key.contains(&world.namespace));
    keys
}

/// Another cluster by the same name has pods that this API knows nothing of.
#[test]
fn what_is_of_a_node_that_kubernetes_never_had_is_not_judged_by_its_pods() {
    let world = World::new();
    world.orphan("strange");
    let flags = ["--grace", "0s", "--finished-grace", "0s", "--unknown-node-grace", "1d"];
    for _ in 0..2 {
        let pass = world.pass(flags).ok().kept(json!({"node-unknown": 1})).freed(json!({}));
        let told = &pass.outcome.stderr;
        assert!(told.contains("never had") && told.contains(world.node.name()), "{told}");
    }
    assert_eq!(world.held(), ["strange"]);
    // Many of them stop no pass: nobody judges them yet.
    in_parallel(4, 0..60, |index| world.orphan(&format!("strange{index}")));
    world.pass(flags).ok().kept(json!({"node-unknown": 61})).freed(json!({}));
    let short = ["--grace", "0s", "--unknown-node-grace", "2s"];
    // When their grace is over, they do.
    wait_for("their grace to end", GRACE_MAX, || {
        let pass = world.pass(short);
        if pass.code == Some(3) { Ok(()) } else { Err(pass.outcome.to_string()) }
    });
    let left = world.held().len();
    world.pass(flags.iter().chain(&["--force"])).ok().freed(json!({"pod-gone": left}));

    world.orphan("late");
    wait_for("its grace to end", GRACE_MAX, || {
        match world.pass(short).ok().report["freed"]["pod-gone"].as_u64() {
            Some(1) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    world.cluster.assert_nothing_held();
    world.cluster.assert_clean();
}

#[test]
fn a_node_that_was_deleted_is_remembered_as_long_as_it_has_records() {
    let world = World::new();
    let flags = ["--grace", "0s", "--unknown-node-grace", "1d"];
    let object = world.api.node(world.node.name());
    object.ready(true).boot_id(&this_boot());
    let key = format!("v1/seen/test/{}", world.node.name());
    world.pass([&flags[..], &["--dry-run"]].concat()).ok();
    assert!(seen_nodes(&world).is_empty());
    // Also before it holds anything.
    world.pass(flags).ok();
    assert_eq!(seen_nodes(&world), [key.as_str()]);
    world.orphan("scaled-down");
    world.living("elsewhere");
    object.delete();
    world.pass(flags).ok().freed(json!({"pod-gone": 1})).kept(json!({"pod-exists": 1}));
    world.pass(flags).ok();
    assert_eq!(seen_nodes(&world), [key.as_str()]);
    // Out of its name alone nobody can be told from another cluster's.
    world.node.del("elsewhere").config(&World::config()).run().silent();
    world.pass(flags).ok();
    assert!(seen_nodes(&world).is_empty());
    world.orphan("strange");
    world.pass(flags).ok().kept(json!({"node-unknown": 1}));
    // A record that does not decode says nothing, and stays as it is.
    world.cluster.store().put(&key, "?");
    world.pass(flags).ok().kept(json!({"node-unknown": 1}));
    world.api.node(world.node.name()).ready(true);
    world.pass(flags).ok().freed(json!({"pod-gone": 1}));
    assert_eq!(world.cluster.store().get(&key).as_deref(), Some(&b"?"[..]));
    let check = world.cluster.check();
    assert!(check.stdout.contains("undecodable-note") && check.stdout.contains(&key), "{check}");
    world.api.node(world.node.name()).delete();
}

/// Its runs tell a restored store by the key; one that comes back must not take a sound store for a restored one.
#[test]
fn the_key_of_a_machine_that_kubernetes_has_not_had_for_long_is_deleted_and_missed_by_nobody() {
    let world = World::new();
    let object = world.api.node(world.node.name());
    object.ready(true).boot_id(&this_boot());
    world.living("a");
    let node_keys = || world.cluster.store().keys("v1/node/");
    let [key] = &node_keys()[..] else { panic!("one node: {:?}", node_keys()) };
    let flags = ["--grace", "0s", "--unknown-node-grace", "0s", "--machine-grace", "2s"];
    let pass = || world.pass(flags).ok();
    let gone = || world.cluster.store().keys("v1/gone/");
    // It is in Kubernetes, then it holds something.
    pass();
    object.delete();
    pass();
    assert!(gone().is_empty(), "{:?}", gone());
    world.node.del("a").config(&World::config()).run().silent();
    world.pass(flags.iter().chain(&["--dry-run"])).ok();
    assert!(gone().is_empty(), "{:?}", gone());
    pass();
    assert_eq!((gone().len(), node_keys().len()), (1, 1), "it is gone for a moment only");
    // An ADD says that it is not.
    world.node.add("b").config(&World::config()).run().address();
    world.node.del("b").config(&World::config()).run().silent();
    let first = world.cluster.store().get(&gone()[0]);
    pass();
    assert!(world.cluster.store().get(&gone()[0]) != first, "its time begins anew");
    wait_for("its grace to end", GRACE_MAX, || {
        pass();
        if node_keys().is_empty() { Ok(()) } else { Err(format!("{:?}", node_keys())) }
    });
    assert!(gone().is_empty(), "{:?}", gone());
    world.node.add("b").config(&World::config()).run().address();
    assert_eq!(node_keys(), [key.as_str()], "its next ADD leaves it again");
    world.node.del("b").config(&World::config()).run().silent();
    // Not deleted by a pass, it was lost.
    world.cluster.store().delete(key);
    world.node.add("c").config(&World::config()).run().error(102);
    world.cluster.leave_unclean();
}

/// As a DRA driver for networks does: the claim's UID as container id, the name of a pod, and no UID.
#[test]
fn what_a_resource_claim_has_lives_as_long_as_the_claim() {
    let world = World::new();
    let claims = format!("/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims", world.namespace);
    let claim = |name: &str| {
        let object = json!({"metadata": {"name": name}, "spec": {"devices": {}}});
        let uid = world.api.create(&claims, &object)["metadata"]["uid"].clone();
        let uid = uid.as_str().expect("a claim has a UID").to_owned();
        world.hold(&uid, &format!("K8S_POD_NAMESPACE={};K8S_POD_NAME={name}", world.namespace));
        uid
    };
    let (kept, gone) = (claim("kept"), claim("gone"));
    // A pod's name says nothing: the one has a pod that has finished, the other one that runs.
    world.api.pod(&world.namespace, "kept").phase("Succeeded").create();
    world.api.pod(&world.namespace, "gone").phase("Running").create();
    world.pass(AT_ONCE).ok().kept(json!({"claim-exists": 2})).freed(json!({}));

    world.api.delete(&format!("{claims}/gone"));
    let group = "/apis/resource.k8s.io";
    for (rule, words) in [
        (Rule::get(group).status(404), "404"),
        (Rule::get(group).status(403), "403"),
        (Rule::get(&format!("{group}/v1/resourceclaims")).status(403), "403"),
    ] {
        let proxy = world.proxy();
        proxy.rule(rule);
        let pass = world.reconciler(&proxy).args(AT_ONCE).pass().ok();
        let pass = pass.kept(json!({"claim-unknown": 2})).freed(json!({}));
        assert!(pass.outcome.stderr.contains(words), "{}", pass.outcome);
    }
    // An API that fails is another thing than one that has no claims.
    for path in [group.to_owned(), format!("{group}/v1/resourceclaims")] {
        let proxy = world.proxy();
        proxy.rule(Rule::get(&path).status(500));
        world.reconciler(&proxy).args(AT_ONCE).pass().refused(1, "list resourceclaims");
    }
    // Nothing relies on one listing alone.
    let proxy = world.proxy();
    proxy.rule(Rule::get(&format!("{group}/v1/resourceclaims")).edit(|list| list["items"] = json!([])));
    let pass = world.reconciler(&proxy).args(AT_ONCE).pass().ok();
    pass.kept(json!({"changed": 1})).freed(json!({"claim-gone": 1}));
    assert_eq!(world.held(), [kept.as_str()]);

    // Without such records nobody asks for claims.
    world.api.delete(&format!("{claims}/kept"));
    world.pass(["--grace", "1h"]).ok().kept(json!({"within-grace": 1}));
    world.pass(AT_ONCE).ok().freed(json!({"claim-gone": 1}));
    let proxy = world.proxy();
    world.reconciler(&proxy).args(AT_ONCE).pass().ok();
    assert!(proxy.asked_for("GET", group).is_empty(), "{gone}");
    world.cluster.assert_nothing_held();
    world.cluster.assert_clean();
}

#[test]
fn a_node_that_calls_itself_otherwise_than_kubernetes_does_is_named() {
    let world = World::new();
    world.living("web");
    let says = "on nodes that Kubernetes does not know";
    let told = world.pass(AT_ONCE).ok().outcome.stderr;
    assert!(told.contains(says) && told.contains(world.node.name()), "{told}");

    let object = world.api.node(world.node.name());
    object.ready(true).boot_id(&this_boot());
    let told = world.pass(AT_ONCE).ok().outcome.stderr;
    assert!(!told.contains(says), "{told}");
    object.delete();
    world.cluster.assert_clean();
}

/// A pod with two sandboxes of different nodes' names: so the second does not take over the addresses of the first.
struct Sandboxes<'a> {
    world: &'a World,
    pod: Pod,
    first: Node,
}

impl<'a> Sandboxes<'a> {
    fn new(world: &'a World, name: &str, config: &Value) -> Self {
        let pod = world.api.pod(&world.namespace, name).phase("Running").create();
        let first = world.cluster.node(&world.node_name(name));
        let sandboxes = Self { world, pod, first };
        sandboxes.attach(&sandboxes.first, &format!("{name}-1"), config).run().ok();
        sandboxes
    }

    fn attach(&self, node: &Node, container: &str, config: &Value) -> Run {
        node.add(container).config(config).pod(self.pod.namespace(), self.pod.name(), self.pod.uid())
    }

    fn second(&self, config: &Value) {
        let node = &self.world.node;
        self.attach(node, &format!("{}-2", self.pod.name()), config).run().ok();
    }

    fn boots(&self, boot: &str) {
        self.world.api.node(self.first.name()).ready(true).boot_id(boot);
    }
}

#[test]
fn after_a_reboot_a_sandbox_is_freed_only_if_a_newer_one_has_all() {
    let world = World::new();
    let one = World::config();
    let ranges = json!([{"range": "10.71.0.0/24"}, {"range": "10.72.0.0/24"}]);
    let two = network(json!({"ipRanges": ranges, "enable_overlapping_ranges": false}));
    let half = network(json!({"range": "10.71.0.0/24", "enable_overlapping_ranges": false}));

    // Only the boot differs.
    Sandboxes::new(&world, "rebooted", &one).boots("another");
    // A newer sandbox, and no other boot.
    let running = Sandboxes::new(&world, "running", &one);
    running.boots(&this_boot());
    running.second(&one);
    // A newer sandbox, and a node that never told its boot.
    let silent = Sandboxes::new(&world, "silent", &one);
    world.api.node(silent.first.name()).ready(true);
    silent.second(&one);
    // A newer sandbox that has a part of it.
    let partly = Sandboxes::new(&world, "partly", &two);
    partly.boots("another");
    partly.second(&half);
    // Both.
    let replaced = Sandboxes::new(&world, "replaced", &two);
    replaced.boots("another");
    replaced.second(&two);
    // Both, and the node is out of reach.
    let lost = Sandboxes::new(&world, "lost", &one);
    lost.boots("another");
    world.api.node(lost.first.name()).ready(false);
    lost.second(&one);
    // Both, and nothing says that the newer one is: the index is lost.
    let unindexed = Sandboxes::new(&world, "unindexed", &one);
    unindexed.boots("another");
    unindexed.second(&one);
    world.cluster.store().delete_prefix(&format!("v1/pod/test/{}/", unindexed.pod.uid()));
    // Both, with addresses that no network has, for which there is no index.
    let fixed = json!({"cniVersion": "1.0.0", "name": "net", "type": "bridge",
        "ipam": {"type": "metes", "addresses": [{"address": "192.0.2.7/24"}]}});
    let unlisted = Sandboxes::new(&world, "unlisted", &fixed);
    unlisted.boots("another");
    unlisted.second(&fixed);
    // An older program's record, without a start.
    let unstarted = Sandboxes::new(&world, "unstarted", &one);
    let own = format!("v1/owner/test/{}/unstarted-1/eth0", unstarted.first.name());
    rewrite(&world, &own, |record| _ = record.as_object_mut().expect("an object").remove("start"));
    unstarted.boots("another");
    unstarted.second(&one);

    let mut expected = world.held();
    expected.retain(|container| container != "replaced-1");
    let pass = world.pass(AT_ONCE).ok().kept(json!({"pod-exists": 15, "node-not-ready": 1}));
    let pass = pass.freed(json!({"sandbox-replaced": 1}));
    assert_eq!(pass.report["addresses_freed"], 2, "{}", pass.outcome);
    assert_eq!(world.held(), expected);
    // The addresses of the newer one are still found through the pod.
    let again = world.cluster.node(world.node.name());
    let moved = replaced.attach(&again, "replaced-3", &two).run().addresses();
    assert_eq!(moved.len(), 2);
    assert!(!world.held().contains(&"replaced-2".to_owned()));

    // A pod that is gone needs no newer sandbox.
    for sandboxes in [&running, &partly] {
        sandboxes.pod.delete();
    }
    world.pass(AT_ONCE).ok().freed(json!({"pod-gone": 4}));
    for name in
        ["rebooted", "running", "silent", "partly", "replaced", "lost", "unstarted", "unindexed", "unlisted"]
    {
        world.api.node(&world.node_name(name)).delete();
    }
    world.cluster.assert_clean();
}

/// An API server of the test's own: a pass compares the reports of all pods of a cluster.
struct Reporting {
    world: World,
    network: String,
}

impl Reporting {
    /// A network in which pods have their addresses.
    fn new() -> Self {
        let world = World::of(Cluster::new(), &KubeApi::start());
        world.api.install_crds();
        world.api.apply(&json!({
            "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": {"namespace": world.namespace, "name": "net"},
            "spec": {"config": World::config().to_string()},
        }));
        let network = format!("{}/net", world.namespace);
        Self { world, network }
    }

    fn tell(&self, pod: &Pod, address: &str) {
        pod.network_status(&json!([{"name": self.network, "interface": "eth0", "ips": [address]}]));
    }

    /// A running pod with an address that multus has written down.
    fn running(&self, name: &str) -> (Pod, String) {
        let pod = self.world.api.pod(&self.world.namespace, name).phase("Running").create();
        let address = self.world.attach(&pod).run().address();
        self.tell(&pod, &address);
        (pod, address)
    }

    /// The store forgets a pod's address, as if it had been restored from an older backup.
    fn forget(&self, pod: &Pod) {
        self.world.node.del(pod.name()).config(&World::config()).run().silent();
    }

    /// A pass that is certain of these addresses and frees nothing in these networks.
    #[track_caller]
    fn pass(&self, flags: &[&str], lacking: &[&str], doubtful: &[&str]) -> Pass {
        let pass = self.world.pass(AT_ONCE.iter().chain(flags)).ok();
        let rows = pass.report["lacking"].as_array().expect("an array");
        let told: Vec<&str> = rows.iter().filter_map(|row| row["address"].as_str()).collect();
        assert_eq!(told, lacking, "{}", pass.outcome);
        assert_eq!(pass.report["doubtful"], json!(doubtful), "{}", pass.outcome);
        pass
    }

    fn notes(&self) -> Vec<String> {
        self.world.cluster.store().keys("v1/lacking/")
    }
}

#[test]
fn an_address_that_two_passes_see_and_the_store_lacks_stops_all_frees_in_its_network() {
    let scene = Reporting::new();
    let world = &scene.world;
    let (kept, _) = scene.running("kept");
    let (lost, address) = scene.running("lost");
    scene.pass(&[], &[], &[]);
    scene.forget(&lost);
    // The older time has left this: the pod of this record is gone, and a running pod uses its address.
    assert_eq!(world.orphan("gone"), address);
    let other = json!({"range": "10.71.0.0/24", "network_name": "other"});
    let args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=gone;K8S_POD_UID=gone";
    world.node.add("elsewhere").config(&network(other)).args(args).run().address();
    set_aside(world, &["10.70.0.200", "--for", "1s"]);
    wait_for_holds(world, 0);

    // A dry run remembers nothing. One pass may be wrong: it says nothing yet, and frees nothing either.
    scene.pass(&["--dry-run"], &[], &["default"]);
    assert!(scene.notes().is_empty());
    let first = scene.pass(&[], &[], &["default"]).freed(json!({"pod-gone": 1}));
    assert_eq!(first.report["kept"]["network-doubtful"], 1, "{}", first.outcome);
    assert_eq!(first.report["holds_ended"], 0, "{}", first.outcome);
    let second = scene.pass(&["--events"], &[&address], &["default"]).freed(json!({}));
    let words = format!("pod {}/lost reports {address} of network default", world.namespace);
    assert!(second.outcome.stderr.contains(&words), "{}", second.outcome);
    world.viewed().assert(&[("lacking{network=\"default\"}", 1.0)]);
    let events = world.api.get(&format!("/api/v1/namespaces/{}/events", world.namespace));
    let [event] = &events["items"].as_array().expect("an array")[..] else { panic!("{events}") };
    assert_eq!([&event["reason"], &event["involvedObject"]["uid"]], ["AddressLacking", lost.uid()]);
    assert!(event["message"].as_str().is_some_and(|text| text.contains(&address)), "{event}");

    // It stays so without the pod, and another pass says it again without another event.
    lost.delete();
    scene.pass(&["--events"], &[&address], &["default"]).freed(json!({}));
    let events = world.api.get(&format!("/api/v1/namespaces/{}/events", world.namespace));
    assert_eq!(events["items"].as_array().map(Vec::len), Some(1), "{events}");
    assert!(world.held().contains(&"gone".to_owned()));
    let check = world.node.cli(["check"]);
    assert!(!check.succeeded() && check.stdout.contains("address-lacking"), "{check}");

    // A person has looked: the next epoch begins.
    assert!(world.node.cli(["check", "--accept-store", "--yes"]).succeeded());
    let freed = scene.pass(&[], &[], &[]).freed(json!({"pod-gone": 1}));
    assert_eq!(freed.report["holds_ended"], 1, "{}", freed.outcome);
    assert!(scene.notes().is_empty());
    assert_eq!(world.held(), [kept.name()]);
    world.cluster.assert_clean();
}

#[test]
fn what_a_person_has_accepted_is_not_told_again_and_adopt_settles_the_rest() {
    let scene = Reporting::new();
    let world = &scene.world;
    let (accepted, first) = scene.running("accepted");
    let (later, second) = scene.running("later");
    scene.forget(&accepted);
    scene.pass(&[], &[], &["default"]);
    scene.pass(&[], &[&first], &["default"]);
    assert!(world.node.cli(["check", "--accept-store", "--yes"]).succeeded());
    scene.pass(&[], &[], &[]);
    scene.pass(&[], &[], &[]);
    // Another address is another loss.
    scene.forget(&later);
    scene.pass(&[], &[], &["default"]);
    scene.pass(&[], &[&second], &["default"]);
    let adopted = world.reconciler(&world.api).args(["adopt"]).run();
    assert!(adopted.succeeded(), "{adopted}");
    scene.pass(&[], &[], &[]);
    assert!(scene.notes().is_empty());
    assert_eq!(world.held().len(), 2);
    world.cluster.assert_clean();
}

#[test]
fn a_pod_that_ends_or_is_made_anew_lacks_nothing() {
    let scene = Reporting::new();
    let world = &scene.world;
    let pods = ["again", "ends", "finished", "anew", "held"].map(|name| scene.running(name));
    let [again, ends, finished, anew, _] = &pods;
    pods.iter().take(4).for_each(|(pod, _)| scene.forget(pod));
    ends.0.terminate();
    finished.0.phase("Succeeded");
    anew.0.status(json!({"conditions": [{"type": "PodReadyToStartContainers", "status": "False"}]}));
    scene.pass(&[], &[], &["default"]);
    assert_eq!(scene.notes().len(), 1, "only one pod is none of these");
    // A sighting of one pass alone is forgotten: the pod's next ADD has come meanwhile.
    assert_eq!(world.attach(&again.0).run().address(), again.1);
    scene.pass(&[], &[], &[]);
    assert!(scene.notes().is_empty());
    scene.forget(&again.0);
    scene.pass(&[], &[], &["default"]);
    // A report of another network, of none of metes, or one that cannot be read, says nothing.
    scene.tell(&again.0, "192.0.2.1");
    scene.pass(&[], &[], &[]);
    again.0.annotate("k8s.v1.cni.cncf.io/network-status", "no JSON {");
    scene.pass(&[], &[], &[]);
    ends.0.delete();
    world.cluster.assert_clean();
}

// ---- the grace

/// The number of owners that a real pass with this grace would free now.
fn due(world: &World, flags: &[&str]) -> u64 {
    let flags = [flags, &["--dry-run"]].concat();
    let pass = world.pass(flags).ok();
    pass.report["freed"].as_object().expect("an object").values().filter_map(Value::as_u64).sum()
}

#[test]
fn after_a_power_cut_a_pass_looks_up_many_sandboxes_at_once() {
    const RECORDS: usize = 1_000;
    let etcd = Etcd::start();
    let world = World::on(&etcd);
    world.api.node(world.node.name()).ready(true).boot_id("second-boot");
    let pod = world.living("p");
    let record = json!({
        "v": 1, "addresses": [{"ip": "10.210.0.1", "net": "default"}], "start": {"boot": "first-boot", "ns": 1},
        "scope": "-", "cluster": "test", "cni": "net",
        "pod": {"ns": world.namespace, "name": "p", "uid": pod.uid()},
    });
    let key = |i| format!("v1/owner/test/{}/c{i}/eth0", world.node.name());
    world.cluster.store().put_all((0..RECORDS).map(|i| (key(i), record.to_string().into_bytes())));

    let requests = || etcd.metric("grpc_server_started_total", &["etcdserverpb.KV"]);
    let before = requests();
    world.pass(["--dry-run", "--force"]).ok().kept(json!({"pod-exists": 1, "within-grace": RECORDS}));
    let asked = requests() - before;
    assert!(asked > 0.0 && asked < RECORDS as f64 / 10.0, "{asked} requests for {RECORDS} sandboxes");
    world.cluster.leave_unclean();
}

#[test]
fn an_orphan_is_freed_when_it_was_seen_as_one_for_long_enough() {
    // Two passes see all orphans within this time.
    const GRACE: Duration = Duration::from_secs(6);
    let flags = ["--grace", "6s", "--finished-grace", "6s"];
    let world = World::new();
    let begin = Instant::now();
    for name in ["plain", "added-again", "killed-in-between"] {
        world.orphan(name);
    }
    let finished = world.living("finished");
    finished.phase("Succeeded");
    let stays_finished = world.living("stays-finished");
    stays_finished.phase("Failed");
    let by_name = format!("K8S_POD_NAMESPACE={};K8S_POD_NAME=comes-back", world.namespace);
    world.hold("comes-back", &by_name);
    let gone = format!("gone-{}", world.namespace);
    world.attach_as("deleted", "deleted", &gone).run().address();
    let others = format!("v1/orphan/test2/{}/plain/eth0", world.node.name());
    world.cluster.store().put_leased(
        &others,
        r#"{"v":1,"reason":"pod-gone","revision":1,"grace":300}"#,
        3600,
    );

    world.pass(flags).ok().kept(json!({"within-grace": 7})).freed(json!({}));
    let remembered = world.cluster.store().entries("v1/orphan/test/");
    assert_eq!(remembered.len(), 7);
    // The second sight does not begin anew.
    world.pass(flags).ok().kept(json!({"within-grace": 7})).freed(json!({}));
    assert_eq!(world.cluster.store().entries("v1/orphan/test/"), remembered);
    wait_for("the grace to end", GRACE_MAX, || match due(&world, &flags) {
        7 => Ok(()),
        other => Err(format!("{other} are due")),
    });
    assert!(begin.elapsed() >= GRACE, "freed too early: {:?}", begin.elapsed());
    assert_eq!(due(&world, &["--grace", "1h", "--finished-grace", "1h"]), 0);

    let again = format!("00000000-{}-1", world.namespace);
    world.attach_as("added-again", "added-again", &again).run().address();
    finished.delete();
    world.api.pod(&world.namespace, "comes-back").create();
    world.node.del("deleted").config(&World::config()).run().silent();

    let pass = world.pass(flags).ok().kept(json!({"within-grace": 2, "pod-exists": 1}));
    pass.freed(json!({"pod-gone": 2, "pod-finished": 1}));
    assert_eq!(world.held(), ["added-again", "comes-back", "finished"]);
    let left: Vec<String> = world.sightings();
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(left.iter().all(|key| key.contains("added-again") || key.contains("finished")), "{left:?}");
    assert!(world.cluster.store().get(&others).is_some(), "it is another cluster's");
    world.cluster.assert_clean();
}

#[test]
fn no_grace_leaves_no_memory() {
    let world = World::new();
    world.orphan("a");
    world.pass(["--grace", "1h"]).ok().kept(json!({"within-grace": 1}));
    assert_eq!(world.sightings().len(), 1);
    world.orphan("b");
    world.pass(AT_ONCE).ok().freed(json!({"pod-gone": 2}));
    assert!(world.sightings().is_empty());
    world.cluster.assert_nothing_held();
    world.cluster.assert_clean();
}

/// Copied into another etcd by a tool that knows no leases, or written by hand.
#[test]
fn a_memory_whose_lease_is_gone_counts_from_now_on() {
    let world = World::new();
    world.orphan("a");
    world.pass(["--grace", "2s"]).ok();
    let key = only_key(&world, "v1/orphan/test/");
    let value = world.cluster.store().get(&key).expect("it was just there");
    world.cluster.store().put(&key, value);
    wait_for("the grace to end", GRACE_MAX, || {
        let pass = world.pass(["--grace", "2s"]).ok();
        if pass.report["freed"]["pod-gone"] == 1 { Ok(()) } else { Err(pass.outcome.to_string()) }
    });
    // A memory that does not decode keeps nobody either.
    world.orphan("b");
    let key = format!("v1/orphan/test/{}/b/eth0", world.node.name());
    world.cluster.store().put(&key, "?");
    wait_for("the grace to end", GRACE_MAX, || {
        let pass = world.pass(["--grace", "1s"]).ok();
        if pass.report["freed"]["pod-gone"] == 1 { Ok(()) } else { Err(pass.outcome.to_string()) }
    });
    assert!(world.sightings().is_empty());
    world.cluster.assert_nothing_held();
    world.cluster.assert_clean();
}

// ---- what is freed, and what is repaired

#[test]
fn an_owner_is_freed_whole_and_nobody_else_with_it() {
    let world = World::new();
    let ranges = json!([
        {"range": "10.73.0.0/24"},
        {"range": "fd00:73::/112"},
        {"range": "10.74.0.0/30"},
    ]);
    let dual = network(json!({"ipRanges": ranges, "enable_overlapping_ranges": false}));
    let pod = world.api.pod(&world.namespace, "dual").phase("Running").create();
    let attach = |container: &str, pod: &Pod| {
        world.node.add(container).config(&dual).pod(pod.namespace(), pod.name(), pod.uid())
    };
    let had = attach("dual", &pod).run().addresses();
    assert_eq!(had.len(), 3);
    let store = world.cluster.store();
    let neighbour = world.node.add("neighbour").config(&network(json!({
        "range": "10.73.0.0/24", "enable_overlapping_ranges": false})));
    let neighbour = neighbour.run().address();
    assert_eq!(store.keys("v1/pod/").len(), 3);
    pod.delete();

    let pass = world.pass(AT_ONCE).ok().freed(json!({"pod-gone": 1})).kept(json!({"unlabelled": 1}));
    let report = &pass.report;
    assert_eq!((&report["addresses_freed"], &report["orphans"]), (&json!(3), &json!(1)));
    let owner = &report["freed_owners"][0];
    assert_eq!(owner["container_id"], "dual");
    assert_eq!(owner["node"], world.node.name());
    assert_eq!(owner["ifname"], "eth0");
    assert_eq!(owner["reason"], "pod-gone");
    assert_eq!(owner["pod"], json!({"namespace": pod.namespace(), "name": "dual", "uid": pod.uid()}));
    let told = |address: &String| address.split('/').next().map(|address| json!(address));
    let freed =
        owner["addresses"].as_array().expect("an array").iter().map(|held| Some(held["address"].clone()));
    assert!(freed.eq(had.iter().map(told)), "{owner}");

    assert!(store.keys("v1/pod/").is_empty());
    assert_eq!(world.held(), ["neighbour"]);
    let check = world.cluster.check();
    assert!(check.succeeded() && check.stdout.contains("0 stray bits"), "{check}");
    // The same addresses can be had again, and the neighbour's is not among them.
    let next = world.living("next");
    world.node.del("next").config(&World::config()).run().silent();
    let again = attach("next", &next).run().addresses();
    assert_eq!(again, had);
    assert!(!again.iter().any(|address| address.starts_with(&format!("{neighbour}/"))));
    world.cluster.assert_clean();
}

#[test]
fn an_orphan_that_cannot_be_freed_does_not_keep_the_others() {
    let world = World::new();
    for i in 0..12 {
        world.orphan(&format!("before-{i:02}"));
        world.orphan(&format!("later-{i:02}"));
    }
    world.orphan("c-too-many");
    let key = only_key(&world, &format!("v1/owner/test/{}/c-too-many/", world.node.name()));
    // No transaction of etcd's takes them all.
    rewrite(&world, &key, |record| {
        let held = (0..200).map(|i| json!({"ip": format!("10.201.0.{i}"), "net": "default"}));
        record["addresses"].as_array_mut().expect("an array").extend(held);
    });
    let pass = world.pass(AT_ONCE).freed(json!({"pod-gone": 24}));
    let error = pass.report["error"].as_str().unwrap_or_default();
    assert!(pass.code == Some(1) && error.starts_with("1 orphans cannot be freed"), "{}", pass.outcome);
    assert_eq!(world.held(), ["c-too-many"]);
    world.cluster.leave_unclean();
}

#[test]
fn a_record_that_lies_gives_back_only_what_is_its_own() {
    let world = World::new();
    let store = world.cluster.store();
    let living = world.living("living");
    let address = world.attach(&living).run().address();
    let own = |container: &str| format!("v1/owner/test/{}/{container}/eth0", world.node.name());
    let ip = |address: &str| {
        let address: std::net::Ipv4Addr = address.parse().expect("an address");
        format!("v1/net/default/ip/{:032x}", address.to_ipv6_mapped().to_bits())
    };
    // Lists an address that another owner holds, and one that nobody holds.
    world.orphan("liar");
    rewrite(&world, &own("liar"), |record| {
        let addresses = record["addresses"].as_array_mut().expect("an array");
        addresses.extend([&address, "10.70.0.200"].map(|ip| json!({"ip": ip, "net": "default"})));
    });
    // Its queue is none.
    world.orphan("queueless");
    rewrite(&world, &own("queueless"), |record| record["scope"] = json!("no/queue!"));
    // Its reservation does not decode, so somebody else may hold the address.
    let unreadable = world.orphan("unreadable");
    store.put(&ip(&unreadable), "?");

    let pass = world.pass(AT_ONCE).ok().kept(json!({"pod-exists": 1})).freed(json!({"pod-gone": 3}));
    assert_eq!(pass.report["violations"], json!({"undecodable-reservation": 1}), "{}", pass.outcome);
    assert_eq!(store.get(&ip(&unreadable)).as_deref(), Some(&b"?"[..]));
    assert_eq!(world.held(), ["living"]);
    assert_eq!(world.attach(&living).run().address(), address);
    let next = world.node.add("next").config(&World::config()).args(&format!("IP={unreadable}"));
    next.run().error(101);
    let next = world.node.add("next").config(&World::config()).args(&format!("IP={address}"));
    next.run().error(101);
    store.delete(&ip(&unreadable));
    world.pass(AT_ONCE).ok().repaired(json!({"bits_cleared": 1}));
    world.cluster.assert_clean();
}

/// A world in which everything is out of order that a pass may put in order, and something that it may not.
struct Disorder {
    world: World,
    undecodable: (String, Vec<u8>),
}

impl Disorder {
    fn in_world(world: World) -> Self {
        let store = world.cluster.store();
        let living = world.living("living");
        world.orphan("orphan");
        let page = only_key(&world, "v1/net/default/page/");
        let mut bits = store.get(&page).expect("it exists");
        // Three bits of nobody, far from everybody's.
        bits[400] |= 0b111;
        store.put(&page, bits.clone());
        // Empty ones, of a range that nobody uses any more.
        let far = format!("v1/net/default/page/{:032x}", 0xffff_0a50_0000_u128);
        let full = format!("v1/net/far/summary/{:032x}", 0);
        store.put(&far, vec![0; 512]);
        store.put(&full, vec![0; 512]);
        // Only nobody's bits.
        let stray = format!("v1/net/far/page/{:032x}", 0xffff_0a50_0000_u128);
        let mut one = vec![0; 512];
        one[7] = 1;
        store.put(&stray, one);
        let start = json!({"boot": "earlier", "ns": 1});
        store.put("v1/tombstone/test/n1/c/eth0", json!({"v": 1, "start": start}).to_string());
        store.put_leased("v1/tombstone/test/n1/d/eth0", json!({"v": 1, "start": start}).to_string(), 3600);
        store.put("v1/ticket/-/0000000000000007", "{}");
        store.put_leased("v1/ticket/-/0000000000000008", "{}", 3600);
        let key = format!("v1/net/default/page/{:032x}", 0xffff_0a60_0000_u128);
        let undecodable = (key, b"no bits".to_vec());
        store.put(&undecodable.0, undecodable.1.clone());
        drop(living);
        Self { world, undecodable }
    }
}

#[test]
fn a_pass_repairs_what_can_be_repaired_without_harm() {
    let Disorder { world, undecodable } = Disorder::in_world(World::new());
    let store = world.cluster.store();
    let (key, value) = &undecodable;
    let pass = world.pass(AT_ONCE).ok().kept(json!({"pod-exists": 1})).freed(json!({"pod-gone": 1}));
    assert_eq!(pass.report["stray_bits"], 4, "{}", pass.outcome);
    let pass = pass.repaired(json!({"bits_cleared": 4, "stale_deleted": 2, "empty_deleted": 2}));
    assert_eq!(pass.report["violations"]["undecodable-page"], 1, "{}", pass.outcome);
    assert_eq!(store.keys("v1/tombstone/"), ["v1/tombstone/test/n1/d/eth0"]);
    assert_eq!(store.keys("v1/ticket/"), ["v1/ticket/-/0000000000000008"]);
    assert_eq!(store.get(key).as_ref(), Some(value));
    assert!(store.keys("v1/net/far/summary/").is_empty());
    // A page that was emptied is as good as none, and goes with the next pass at the latest.
    world.pass(AT_ONCE).ok().repaired(json!({"empty_deleted": 1}));
    assert!(store.keys("v1/net/far/").is_empty());
    world.pass(AT_ONCE).ok().repaired(json!({}));
    store.delete(key);
    assert_eq!(world.held(), ["living"]);
    world.cluster.assert_clean();
}

#[test]
fn a_dry_run_writes_nothing_at_all() {
    let etcd = Etcd::start();
    let within_grace = |world: &World, what: &str, flags: &[&str], code: i32| {
        let store = world.cluster.store();
        let leases = || store.run(async |client| client.leases().await).leases().len();
        let before = (store.revision(), leases());
        let pass = world.pass([&["--dry-run"], flags].concat());
        assert_eq!(pass.code, Some(code), "{what}: {}", pass.outcome);
        assert_eq!((store.revision(), leases()), before, "{what}: {}", pass.outcome);
        assert_eq!(pass.report["dry_run"], true);
        pass
    };
    let untouched = |world: &World, what: &str, flags: &[&str], code: i32| {
        within_grace(world, what, &[&AT_ONCE[..], flags].concat(), code)
    };

    let world = World::on(&etcd);
    untouched(&world, "a new prefix", &[], 0).freed(json!({}));
    world.orphan("a");
    world.living("b");
    let pass = untouched(&world, "a first pass", &[], 0).freed(json!({"pod-gone": 1}));
    assert_eq!(pass.report["freed_owners"][0]["container_id"], "a");
    let kept = json!({"pod-exists": 1, "within-grace": 1});
    within_grace(&world, "within the grace", &["--grace", "1h"], 0).kept(kept);
    world.pass(["--grace", "1h"]).ok();
    untouched(&world, "seen before", &[], 0).freed(json!({"pod-gone": 1}));
    world.api.pod(&world.namespace, "a").create();
    world.hold("c", &format!("K8S_POD_NAMESPACE={};K8S_POD_NAME=a", world.namespace));
    untouched(&world, "a pod of that name", &[], 0).kept(json!({"pod-exists": 2}));
    in_parallel(4, 0..60, |index| world.orphan(&format!("many{index}")));
    untouched(&world, "the brake", &[], 3).freed(json!({}));
    untouched(&world, "no brake", &["--force"], 0).freed(json!({"pod-gone": 61}));
    world.cluster.assert_clean();

    let disorder = Disorder::in_world(World::on(&etcd));
    let pass = untouched(&disorder.world, "disorder", &[], 0).repaired(json!({}));
    assert_eq!((&pass.report["stray_bits"], pass.report["freed"]["pod-gone"].as_u64()), (&json!(4), Some(1)));
    disorder.world.cluster.leave_unclean();
    for (what, meta) in STATES.iter().copied() {
        disorder.world.cluster.store().put("v1/meta", meta);
        untouched(&disorder.world, what, &["--force"], i32::from(what != "paused")).freed(json!({}));
    }
}

#[test]
fn a_pass_counts_what_is_held_of_each_pool() {
    let world = World::new();
    let texts = "pool: storage\nranges:\n- {range: 10.80.0.0/29}\n- {range: 10.81.0.0/30}\norder: lowest\n---\n\
                 pool: other\nnetwork: blue\nranges: [{range: 10.80.0.0/30}]\n";
    let apply = |text: &str| world.node.pool(&["apply", "--yes", "-f", "-"], text);
    assert!(apply(texts).succeeded());
    let config = network(json!({"pool": "storage"}));
    for name in ["lives", "gone", "stays"] {
        let pod = world.api.pod(&world.namespace, name).phase("Running").create();
        world.attach(&pod).config(&config).run().address();
        if name == "gone" {
            pod.delete();
        }
    }
    let counted = |expected: Value| {
        let pass = world.pass(AT_ONCE);
        assert_eq!((pass.code, &pass.report["pools"]), (Some(0), &expected), "{}", pass.outcome);
        pass
    };
    let counts = |pool: &str, network: &str, [size, held, free, draining]: [u32; 4]| {
        json!({
            "pool": pool, "network": network, "size": size, "held": held, "free": free, "cooling": 0,
            "draining": draining,
        })
    };
    let other = counts("other", "blue", [2, 0, 2, 0]);
    let storage = counts("storage", "default", [8, 2, 6, 0]);
    // The counts after the frees of the pass.
    counted(json!([other, storage])).freed(json!({"pod-gone": 1}));
    let drained = world.node.pool(&["drain", "storage", "--range", "10.80.0.0/29", "--yes"], "");
    assert_eq!(drained.status.code(), Some(3), "{drained}");
    let storage = counts("storage", "default", [2, 0, 2, 2]);
    counted(json!([other, storage]));
    // One that does not decode is told, and stops nothing.
    let text = world.cluster.store().get("v1/pool/other").expect("it is there");
    world.cluster.store().put("v1/pool/other", "?");
    let pass = counted(json!([storage])).ok();
    assert_eq!(pass.report["violations"], json!({"undecodable-pool": 1}), "{}", pass.outcome);
    world.cluster.store().put("v1/pool/other", text);
    world.cluster.assert_clean();
}

// ---- the brake

#[test]
fn suspiciously_many_orphans_are_not_freed() {
    let world = World::new();
    let held = |count: usize| assert_eq!(world.held().len(), count);
    in_parallel(4, 0..40, |index| {
        world.node.add(&format!("kept{index}")).config(&World::config()).run().address()
    });
    in_parallel(4, 0..60, |index| world.orphan(&format!("orphan{index}")));
    let pass = world.pass(AT_ONCE).refused(3, "60 of 100 records");
    assert_eq!(pass.report["orphans"], 60);
    held(100);
    // Orphans that are not due yet count, too: something went wrong all the same.
    world.pass(["--grace", "1h"]).refused(3, "--force");
    held(100);
    // Records of others make no orphan less suspicious.
    let other = world.cluster.node_with("other", json!({"cluster": "test2"}));
    let wide = network(json!({"range": "10.75.0.0/16"}));
    in_parallel(4, 0..250, |index| other.add(&format!("other{index}")).config(&wide).run().address());
    world.pass(AT_ONCE).refused(3, "60 of 100 records");
    world.pass(AT_ONCE.iter().chain(&["--force"])).ok().freed(json!({"pod-gone": 60}));
    held(290);
    world.cluster.assert_clean();

    let world = World::new();
    in_parallel(4, 0..50, |index| world.orphan(&format!("orphan{index}")));
    world.pass(AT_ONCE).ok().freed(json!({"pod-gone": 50}));
    in_parallel(4, 0..51, |index| world.orphan(&format!("orphan{index}")));
    world.pass(AT_ONCE).refused(3, "51 of 51 records");
    // A fifth of 300 are no more than usual.
    let wide = network(json!({"range": "10.75.0.0/16"}));
    in_parallel(4, 0..249, |index| world.node.add(&format!("kept{index}")).config(&wide).run().address());
    in_parallel(4, 51..60, |index| world.orphan(&format!("orphan{index}")));
    world.orphan("one-too-many");
    world.pass(AT_ONCE).ok().freed(json!({"pod-gone": 61})).kept(json!({"unlabelled": 249}));
    world.cluster.assert_clean();
}

// ---- what stops a pass

/// Metas that nobody may free under, by their text; the words of the error stand beside the tests.
const STATES: [(&str, &str); 5] = [
    ("suspect", r#"{"v":1,"min_writer":1,"id":"0f","epoch":3,"suspect":3}"#),
    ("newer writers", r#"{"v":1,"min_writer":2,"id":"0f","epoch":1}"#),
    ("a newer schema", r#"{"v":2,"min_writer":2,"id":"0f","epoch":1}"#),
    ("nonsense", "nonsense"),
    ("paused", r#"{"v":1,"min_writer":1,"id":"0f","epoch":1,"paused":"import under way"}"#),
];

#[test]
fn containers_without_pods_are_not_suspicious_before_their_time() {
    let world = World::new();
    in_parallel(4, 0..60, |index| {
        world.node.add(&format!("podman{index}")).config(&World::config()).run().address()
    });
    world.orphan("orphan");
    let flags = AT_ONCE.iter().copied();
    let pass = world.pass(flags.clone().chain(["--unlabelled-after", "30d"])).ok();
    pass.freed(json!({"pod-gone": 1})).kept(json!({"within-grace": 60}));
    // All at once they are.
    world.pass(flags.chain(["--unlabelled-after", "0s"])).refused(3, "60 of 60 records");
    world.cluster.assert_clean();
}

#[test]
fn a_store_that_is_suspect_newer_or_on_hold_is_left_alone() {
    let world = World::new();
    let store = world.cluster.store();
    world.orphan("a");
    store.put(&format!("v1/net/far/page/{:032x}", 0xffff_0a50_0000_u128), vec![0; 512]);
    let good = store.get("v1/meta").expect("an ADD has written it");
    let words = ["adopt", "version 2", "version 2", "v1/meta"];
    for (what, meta) in STATES {
        store.put("v1/meta", meta);
        // Where the store is for this version, the pass says what it has found.
        let entries = || {
            let mut entries = store.entries("");
            entries.retain(|(key, _)| !key.starts_with("v1/pass/") || !["suspect", "paused"].contains(&what));
            entries
        };
        let before = entries();
        let pass = world.pass(AT_ONCE.iter().chain(&["--force"]));
        match STATES.iter().position(|(name, _)| *name == what).and_then(|index| words.get(index)) {
            Some(words) => _ = pass.refused(1, words),
            None => {
                let pass = pass.ok().freed(json!({}));
                assert_eq!(pass.report["paused"], "import under way");
            }
        }
        assert_eq!(entries(), before, "{what}: something was written");
    }
    store.delete("v1/meta");
    world.pass(AT_ONCE).refused(1, "v1/meta");
    assert_eq!(world.held(), ["a"]);
    // Reservations or bits alone are a contradiction too.
    store.delete_prefix("v1/owner/");
    let before = store.entries("v1/net/");
    world.pass(AT_ONCE).refused(1, "v1/meta");
    assert_eq!(store.entries("v1/net/"), before);
    store.put("v1/meta", good);
    world.cluster.leave_unclean();
}

#[test]
fn another_cluster_under_the_same_name_frees_nothing() {
    let world = World::new();
    let other = KubeApi::start();
    world.orphan("a");
    world.living("b");
    world.pass(["--grace", "1h"]).ok();
    let registered: Value = serde_json::from_slice(
        &world.cluster.store().get("v1/cluster/test").expect("a pass has registered it"),
    )
    .expect("it is JSON");
    assert_eq!(registered["uid"], world.api.kube_system_uid());
    let before = world.cluster.store().entries("");
    let pass = world.reconciler(&other).args(AT_ONCE).args(["--force"]).pass();
    let pass = pass.refused(1, &other.kube_system_uid());
    let error = pass.report["error"].as_str().unwrap_or_default();
    assert!(error.contains(&world.api.kube_system_uid()) && error.contains("test"), "{error}");
    assert_eq!(world.cluster.store().entries(""), before);
    assert_eq!(world.held(), ["a", "b"]);

    // Under a name of its own it judges its own alone.
    let host = world.cluster.node_with("elsewhere", json!({"cluster": "elsewhere"}));
    let pass = world.reconciler(&other).config(host.host_file()).args(AT_ONCE).pass().ok();
    pass.kept(json!({"other-cluster": 2})).freed(json!({}));
    let keys = world.cluster.store().keys("v1/cluster/");
    assert_eq!(keys, ["v1/cluster/elsewhere", "v1/cluster/test"]);
    world.cluster.assert_clean();

    for unreadable in ["", "?", r#"{"v":2,"uid":"x"}"#] {
        world.cluster.store().put("v1/cluster/test", unreadable);
        world.pass(AT_ONCE).refused(1, "v1/cluster/test");
    }
    world.cluster.leave_unclean();
    assert_eq!(world.held(), ["a", "b"]);
    other.kill();
}

/// It ended with status 1 and these words on stderr, and there is no report.
#[track_caller]
fn assert_told(outcome: &support::Outcome, words: &[&str]) {
    assert_eq!(outcome.status.code(), Some(1), "{outcome}");
    for word in words {
        assert!(outcome.stderr.contains(word), "should have said {word:?}: {outcome}");
    }
}

#[test]
fn what_is_configured_wrong_is_named() {
    let world = World::new();
    world.orphan("a");
    let pass = || world.reconciler(&world.api).args(AT_ONCE);
    let nameless = world.cluster.node_with("nameless", json!({"cluster": null}));
    assert_told(&pass().config(nameless.host_file()).run(), &["`cluster`", "host file"]);
    assert_told(&pass().config("/does/not/exist").run(), &["/does/not/exist"]);
    assert_told(&pass().kubeconfig("/no/kubeconfig").run(), &["/no/kubeconfig"]);
    let broken = world.cluster.folder().join("broken");
    fs::write(&broken, "{]").expect("written");
    assert_told(&pass().kubeconfig(&broken).run(), &["broken"]);

    // Nobody listens there.
    let nobody = json!({"etcd": {"endpoints": ["http://127.0.0.1:1"]}});
    let cut_off = world.cluster.node_with("cut-off", nobody);
    assert_told(&pass().config(cut_off.host_file()).run(), &["etcd", "127.0.0.1:1"]);
    let mut access = support::Reachable::access(&world.api);
    access.url = "https://127.0.0.1:1".to_owned();
    let kubeconfig = access.kubeconfig(world.cluster.folder());
    let outcome = pass().kubeconfig(kubeconfig).run();
    assert_told(&outcome, &["https://127.0.0.1:1", "kube-system", "refused"]);
    // Somebody else than the server that the kubeconfig trusts.
    let strange = Etcd::start_mtls();
    let access = support::Access {
        authority: Some(strange.tls().expect("it has TLS").ca()),
        ..support::Reachable::access(&world.api)
    };
    let kubeconfig = access.kubeconfig(world.cluster.folder());
    assert_told(&pass().kubeconfig(kubeconfig).run(), &["certificate"]);
    let stranger = support::Reachable::access(&world.api).with_token("nobody's");
    let kubeconfig = stranger.kubeconfig(world.cluster.folder());
    assert_told(&pass().kubeconfig(kubeconfig).run(), &["401", "Unauthorized"]);

    for (flags, code) in [(["--grace", "soon"], 2), (["--page-size", "0"], 2), (["--timeout", "-1s"], 2)] {
        let outcome = world.reconciler(&world.api).args(flags).run();
        assert_eq!(outcome.status.code(), Some(code), "{outcome}");
    }
    assert_eq!(world.held(), ["a"]);
    world.cluster.assert_clean();
}

#[test]
fn the_environment_says_what_flags_say_and_proxies_are_ignored() {
    let world = World::new();
    world.orphan("a");
    let kubeconfig = world.api.kubeconfig(world.cluster.folder());
    let run = Run::new(support::reconciler())
        .env("METES_CONF", world.cluster.node("reconciler").host_file())
        .env("KUBECONFIG", &kubeconfig)
        .env("METES_RECONCILER_OUTPUT", "json")
        .env("METES_RECONCILER_GRACE", "0s")
        .env("METES_RECONCILER_UNKNOWN_NODE_GRACE", "0s")
        .env("HTTPS_PROXY", "http://127.0.0.1:1")
        .env("HTTP_PROXY", "http://127.0.0.1:1")
        .env("ALL_PROXY", "http://127.0.0.1:1");
    let dry = Pass::of(run.clone().env("METES_RECONCILER_DRY_RUN", "true").run()).ok();
    assert_eq!(dry.report["dry_run"], true);
    assert_eq!(world.held(), ["a"]);
    Pass::of(run.run()).ok().freed(json!({"pod-gone": 1}));
    world.cluster.assert_nothing_held();
    world.cluster.assert_clean();
}

#[test]
fn the_report_for_people_names_what_happened() {
    let world = World::new();
    let address = world.orphan("leaked");
    world.living("living");
    let text = |flags: &[&str]| {
        let outcome = world.cluster.reconciler(&world.api).args(AT_ONCE).args(flags).run();
        assert!(outcome.succeeded(), "{outcome}");
        outcome.stdout.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let dry = text(&["--dry-run"]);
    let pod = format!("pod {}/leaked", world.namespace);
    for words in ["would be freed 1 pod-gone", &pod, "kept 1 pod-exists", "2 owners"] {
        assert!(dry.contains(words), "should have said {words:?}: {dry}");
    }
    assert!(dry.contains(&address), "a dry run names the addresses too: {dry}");
    let real = text(&[]);
    for words in ["freed 1 pod-gone", "container leaked", &pod, &address, "cluster test", "kept 1 pod-exists"]
    {
        assert!(real.contains(words), "should have said {words:?}: {real}");
    }
    let outcome = world.reconciler(&world.api).args(AT_ONCE).run();
    assert!(outcome.json()["scanned"]["pods"].as_u64().is_some_and(|pods| pods >= 1), "{outcome}");
    world.cluster.assert_clean();
}

// ---- etcd

#[test]
fn an_etcd_that_is_down_or_goes_down_is_told() {
    let mut etcd = Etcd::start();
    let world = World::on(&etcd);
    world.orphan("a");
    etcd.kill();
    let begin = Instant::now();
    world.pass(AT_ONCE).refused(1, "etcd cannot be reached");
    assert!(begin.elapsed() < Duration::from_secs(20));
    etcd.restart();
    etcd.stop();
    let begin = Instant::now();
    let pass = world.reconciler(&world.api).args(AT_ONCE).args(["--timeout", "3s"]).pass();
    assert_eq!(pass.code, Some(1), "{}", pass.outcome);
    assert!(begin.elapsed() < Duration::from_secs(10));
    etcd.resume();
    world.pass(AT_ONCE).ok().freed(json!({"pod-gone": 1}));
    world.cluster.assert_nothing_held();
    world.cluster.assert_clean();
}

/// Fills the store until it refuses; the keys lie outside of every test's prefix.
fn fill(world: &World) {
    let full = world.cluster.store().try_run(async |client| {
        for index in 0..64 {
            client.put(format!("/filling/{index}"), vec![b'x'; 1 << 20], None).await?;
        }
        Ok(())
    });
    let error = full.expect_err("the store should be full");
    assert!(error.to_string().contains("database space exceeded"), "{error}");
}

#[test]
fn out_of_space_what_is_due_is_freed_all_the_same() {
    let etcd = Etcd::with_args(&[SMALL]);
    let world = World::on(&etcd);
    world.living("living");
    for index in 0..12 {
        world.orphan(&format!("seen{index}"));
    }
    world.pass(["--grace", "2s"]).ok().kept(json!({"pod-exists": 1, "within-grace": 12}));
    world.orphan("new");
    wait_for("the grace to end", GRACE_MAX, || match due(&world, &["--grace", "2s"]) {
        12 => Ok(()),
        other => Err(format!("{other} are due")),
    });
    fill(&world);
    // An orphan that is seen for the first time cannot be remembered; that holds up nobody who is due.
    let pass = world.pass(["--grace", "2s"]);
    assert_eq!(pass.code, Some(1), "{}", pass.outcome);
    assert!(pass.outcome.stderr.contains("out of space"), "{}", pass.outcome);
    let pass = pass.freed(json!({"pod-gone": 12})).kept(json!({"pod-exists": 1, "within-grace": 1}));
    assert_eq!(pass.report["addresses_freed"], 12);
    assert_eq!(world.held(), ["living", "new"]);
    world.cluster.assert_whole();
    let pass = world.pass(AT_ONCE).freed(json!({"pod-gone": 1}));
    assert!(pass.code == Some(1) && pass.outcome.stderr.contains("out of space"), "{}", pass.outcome);
    assert_eq!(world.held(), ["living"]);
    assert!(world.sightings().is_empty());
    world.cluster.assert_whole();
}

#[test]
fn a_key_that_a_group_may_read_is_the_reconcilers_only_if_the_group_is_its_own() {
    let etcd = Etcd::start_mtls();
    let world = World::on(&etcd);
    let key = etcd.tls().expect("it has TLS").client_key();
    let mode =
        |mode| fs::set_permissions(&key, fs::Permissions::from_mode(mode)).expect("its mode can be set");
    let own = rustix::process::getegid().as_raw();
    let strange = own + 4242;
    let refused = |what: &str| {
        let outcome = world.reconciler(&world.api).args(AT_ONCE).run();
        assert_told(&outcome, &["key_file"]);
        assert!(outcome.stderr.contains("mode"), "{what}: {outcome}");
        assert!(!outcome.stderr.contains("PRIVATE KEY"), "{outcome}");
    };
    for (bits, group) in [(0o600, own), (0o400, own), (0o640, own), (0o440, own), (0o600, strange)] {
        mode(0o600);
        world.orphan(&format!("c{bits:o}-{group}"));
        chown(&key, None, Some(group)).expect("root may do this");
        mode(bits);
        world.pass(AT_ONCE).ok().freed(json!({"pod-gone": 1}));
    }
    for (bits, group) in [(0o640, strange), (0o660, own), (0o644, own), (0o604, own), (0o650, own)] {
        chown(&key, None, Some(group)).expect("root may do this");
        mode(bits);
        refused(&format!("{bits:o} of group {group}"));
    }
    // In a container it is one of the supplementary groups.
    chown(&key, None, Some(strange)).expect("root may do this");
    mode(0o640);
    world.reconciler(&world.api).args(AT_ONCE).in_groups(&[strange]).pass().ok();
    // Nodes run the plugin as root, which needs no group.
    chown(&key, None, Some(own)).expect("root may do this");
    mode(0o640);
    world.attach_as("c", "c", "uid").run().error(7);
    mode(0o600);
    world.attach_as("c", "c", "uid").run().address();
    world.cluster.assert_clean();
}
