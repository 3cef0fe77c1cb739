//! The machine, the store and the cluster that a record, a mark or a spooled DEL belongs to. Those of another one are
//! neither used nor freed.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};
use support::{Cluster, Etcd, Node, Outcome, Run, in_parallel, network_as};

fn range() -> Value {
    network_as("1.1.0", "lan", json!({"range": "10.0.0.0/24"}))
}

fn address(node: &Node, container: &str) -> String {
    node.add(container).config(&range()).run().address()
}

/// `ADDRESS CLUSTER CONTAINER` of all that `metes list` shows with these arguments.
fn listed(node: &Node, arguments: &[&str]) -> Vec<String> {
    let all = [&["list", "-o", "json"], arguments].concat();
    let rows = node.cli(all).ok();
    let text = |row: &Value, key: &str| row[key].as_str().unwrap_or("-").to_owned();
    let row = |row: &Value| ["address", "cluster", "container_id"].map(|key| text(row, key)).join(" ");
    rows.as_array().expect("an array").iter().map(row).collect()
}

#[test]
fn two_clusters_with_a_node_of_one_name_share_a_prefix() {
    let cluster = Cluster::new();
    let [east, west] = ["east", "west"].map(|name| {
        let node = cluster.node_with(name, json!({"node_name": "worker-1", "cluster": name}));
        node.change_host_file(json!({"gc_grace_s": 0}));
        node
    });
    assert_eq!(address(&east, "c"), "10.0.0.1");
    assert_eq!(address(&west, "c"), "10.0.0.2", "the same container id is another container there");
    assert_eq!(listed(&east, &[]), ["10.0.0.1 east c", "10.0.0.2 west c"]);
    assert_eq!(listed(&east, &["--cluster", "west", "--node", "worker-1"]), ["10.0.0.2 west c"]);
    let shown = east.cli(["show", "c", "--cluster", "west", "-o", "json"]).ok();
    assert_eq!(shown[0]["cluster"], "west");

    // A GC for which nothing is valid frees owners of its own cluster alone.
    let mut none = range();
    none["cni.dev/valid-attachments"] = json!([]);
    west.gc().config(&none).run().silent();
    assert_eq!(listed(&east, &[]), ["10.0.0.1 east c"]);
    west.del("c").config(&range()).run().silent();
    assert_eq!(listed(&east, &[]), ["10.0.0.1 east c"]);
    assert_eq!(address(&west, "c"), "10.0.0.2");

    // A retried sandbox of a static pod, whose UID both clusters may have, takes over from its own cluster alone.
    let sandbox = |node: &Node, container: &str| {
        node.add(container).config(&range()).pod("kube-system", "proxy", "static-uid").run().address()
    };
    let (of_east, of_west) = (sandbox(&east, "first"), sandbox(&west, "first"));
    assert_ne!(of_east, of_west);
    assert_eq!(sandbox(&east, "second"), of_east);
    assert_eq!(sandbox(&west, "second"), of_west);

    // A person must say which one is meant.
    let unclear = east.cli(["release", "--container", "c", "--yes"]);
    assert!(unclear.stderr.contains("east and in west: say which with --cluster"), "{unclear}");
    assert!(east.cli(["release", "--container", "c", "--cluster", "west", "--yes"]).succeeded());
    assert_eq!(listed(&east, &[]).len(), 3);
    cluster.assert_clean();
}

#[test]
fn a_cluster_is_not_called_what_stands_for_none() {
    let cluster = Cluster::new();
    let node = cluster.node_with("a", json!({"cluster": "-"}));
    let refused = node.add("c").config(&range()).run().error(7);
    assert!(refused["msg"].as_str().is_some_and(|msg| msg.contains("cluster")), "{refused}");
    cluster.leave_unclean();
}

/// A run on another machine than this one.
fn elsewhere(cluster: &Cluster, run: Run) -> Outcome {
    run.on_machine(cluster.folder(), "0123456789abcdef0123456789abcdef\n")
}

/// A node, and another machine to which its host file was copied.
fn copied(cluster: &Cluster) -> [Node; 2] {
    ["original", "copy"].map(|folder| cluster.node_with(folder, json!({"node_name": "n1", "gc_grace_s": 0})))
}

/// The folder of a node's state.
fn state(node: &Node) -> PathBuf {
    let folder = fs::read_dir(node.spool()).expect("a spool folder").flatten().next();
    folder.expect("a folder of the prefix").path()
}

/// Copies the state of a node to another one, as a copy of its disk would.
fn clone_disk(from: &Node, to: &Node) {
    let source = from.spool();
    let copied = Command::new("cp").arg("-a").arg(&source).arg(to.spool()).status().expect("cp can be run");
    assert!(copied.success());
}

fn container_of(node: &Node) -> Vec<String> {
    listed(node, &[]).iter().map(|row| row.rsplit(' ').next().expect("a container").to_owned()).collect()
}

#[test]
fn a_container_of_another_machine_under_the_same_names_is_another_one() {
    let cluster = Cluster::new();
    let [original, copy] = copied(&cluster);
    let first = address(&original, "c");

    let refused = elsewhere(&cluster, copy.add("c").config(&range()));
    let text = refused.error(7)["msg"].as_str().expect("a text").to_owned();
    let machines =
        text.split(' ').filter(|word| word.len() == 32 && word.bytes().all(|b| b.is_ascii_hexdigit()));
    assert_eq!(machines.count(), 2, "it names both machines: {text}");

    let left = elsewhere(&cluster, copy.del("c").config(&range()));
    left.silent();
    assert!(left.stderr.contains("another machine holds addresses"), "{left}");
    let mut none = range();
    none["cni.dev/valid-attachments"] = json!([]);
    elsewhere(&cluster, copy.gc().config(&none)).silent();
    assert_eq!(listed(&original, &[]), [format!("{first} test c")]);
    let mut previous = range();
    previous["prevResult"] = json!({"cniVersion": "1.1.0", "ips": [{"address": format!("{first}/24")}]});
    elsewhere(&cluster, copy.check("c").config(&previous)).error(102);
    original.check("c").config(&previous).run().silent();
    original.del("c").config(&range()).run().silent();
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

#[test]
fn a_machine_without_an_id_makes_one_and_keeps_it() {
    let cluster = Cluster::new();
    let [node, copy] = copied(&cluster);
    let first = node.add("c").config(&range()).on_machine(cluster.folder(), "").address();
    assert!(node.spool().join("machine").is_file());
    assert_eq!(
        node.add("c").config(&range()).on_machine(cluster.folder(), "").address(),
        first,
        "it knows itself again"
    );
    copy.add("c").config(&range()).on_machine(cluster.folder(), "").error(7);
    node.del("c").config(&range()).on_machine(cluster.folder(), "").silent();
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

/// A machine that was installed anew under its name, or whose id is new at each boot.
#[test]
fn a_pod_is_the_same_on_a_machine_with_another_id() {
    let cluster = Cluster::new();
    let [original, copy] = copied(&cluster);
    let of_pod = |run: Run| run.config(&range()).pod("ns", "web-0", "u1");
    let first = of_pod(original.add("c1")).run().address();
    assert_eq!(elsewhere(&cluster, of_pod(copy.add("c1"))).address(), first, "a repeat");
    assert_eq!(elsewhere(&cluster, of_pod(copy.add("c2"))).address(), first, "a retried sandbox");
    // The same pod on the former machine asks for it.
    of_pod(original.del("c2")).run().silent();
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

#[test]
fn a_del_that_was_spooled_on_another_machine_is_not_carried_out() {
    let cluster = Cluster::new();
    let [original, copy] = copied(&cluster);
    address(&original, "c");
    let endpoints = |endpoints: Value| json!({"etcd": {"endpoints": endpoints}});
    let host: Value =
        serde_json::from_slice(&fs::read(original.host_file()).expect("readable")).expect("JSON");
    original.change_host_file(endpoints(json!(["http://127.0.0.1:1"])));
    original.del("c").config(&range()).run().silent();
    original.change_host_file(endpoints(host["etcd"]["endpoints"].clone()));
    clone_disk(&original, &copy);

    // On the machine where the copy runs, and there in another cluster as well.
    let said = elsewhere(&cluster, copy.add("d").config(&range()));
    assert!(said.stderr.contains("spooled DELs of another machine or cluster"), "{said}");
    let silent = elsewhere(&cluster, copy.add("d").config(&range()));
    assert!(!silent.stderr.contains("spooled DELs"), "it is said once: {silent}");
    copy.change_host_file(json!({"cluster": "west"}));
    copy.add("e").config(&range()).run().ok();
    assert!(container_of(&original).contains(&"c".to_owned()), "{:?}", listed(&original, &[]));
    assert!(!copy.spooled_dels().is_empty(), "the entry stays");

    // On its own machine it is carried out.
    original.add("f").config(&range()).run().ok();
    assert!(!container_of(&original).contains(&"c".to_owned()), "{:?}", listed(&original, &[]));
    cluster.assert_clean();
}

#[test]
fn a_mark_that_was_copied_with_a_disk_holds_nobody_up() {
    let cluster = Cluster::new();
    let [original, copy] = copied(&cluster);
    for container in ["a", "b"] {
        address(&original, container);
    }
    clone_disk(&original, &copy);
    cluster.store().delete_prefix("v1/");
    // For the machine whose mark it is, this store has forgotten something; for the others it is a new store.
    assert_eq!(elsewhere(&cluster, copy.add("c").config(&range())).address(), "10.0.0.1");
    let mark = fs::read_to_string(state(&copy).join("mark")).expect("a mark");
    original.add("c2").config(&range()).run().error(102);
    fs::write(state(&original).join("mark"), mark).expect("written");
    assert!(cluster.node("auditor").cli(["check", "--accept-store", "--yes"]).succeeded());
    assert_eq!(address(&original, "c3"), "10.0.0.2");
    cluster.assert_clean();
}

/// STATUS and `metes check` on this node tell whether the store is suspect.
#[track_caller]
fn assert_told(node: &Node, is_suspect: bool) {
    let status = node.status().config(&range()).run();
    let check = node.cli(["check"]);
    assert_eq!(status.error_code(), is_suspect.then_some(50), "{status}");
    assert_eq!(check.stdout.contains("violation suspect"), is_suspect, "{check}");
    assert_eq!(check.succeeded(), !is_suspect, "{check}");
}

#[test]
fn a_store_that_was_emptied_under_running_pods_is_suspect() {
    let cluster = Cluster::new();
    let [node, other] = ["n1", "n2"].map(|name| cluster.node(name));
    for container in ["a", "b"] {
        address(&node, container);
    }
    assert_told(&node, false);
    cluster.store().delete_prefix("v1/");
    // Before any ADD has looked, and after it.
    assert_told(&node, true);
    node.add("c").config(&range()).run().error(102);
    assert_told(&node, true);
    // Nobody is told to restart a pod that is well.
    let check = node.check("a").config(&range()).run();
    assert!(check.error(102)["msg"].to_string().contains("not the store that was in use"), "{check}");
    other.add("d").config(&range()).run().error(102);
    assert_told(&other, true);
    assert!(listed(&node, &[]).is_empty(), "nothing was handed out");

    assert!(node.cli(["check", "--accept-store", "--yes"]).succeeded());
    assert_told(&node, false);
    assert_told(&other, false);
    node.add("c").config(&range()).run().ok();
    assert_told(&node, false);
    cluster.assert_clean();
}

/// The mark of a node is raised while its other runs read.
#[test]
fn no_store_is_suspect_beside_adds_of_the_same_node() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    address(&node, "a");
    in_parallel(8, 0..160, |at| {
        if at % 2 == 0 {
            node.add(&format!("c{at}")).config(&range()).run().ok();
        } else {
            node.status().config(&range()).run().silent();
        }
    });
    cluster.assert_clean();
}

#[test]
fn another_store_in_place_of_the_known_one_is_suspect() {
    let cluster = Cluster::new();
    // One node, with and without its memory.
    let [node, other] = copied(&cluster);
    address(&node, "a");
    cluster.store().delete_prefix("v1/");
    // Another store begins where nobody has seen the first one, and it gets to a later revision.
    for container in ["b", "c", "d"] {
        address(&other, container);
    }
    assert_told(&node, true);
    // Its records may be of another time: a GC frees nothing of it.
    let mut none = range();
    none["cni.dev/valid-attachments"] = json!([]);
    node.gc().config(&none).run().silent();
    assert_eq!(listed(&node, &[]).len(), 3);
    node.add("e").config(&range()).run().error(102);
    assert_told(&other, true);
    assert!(node.cli(["check", "--accept-store", "--yes"]).succeeded());
    assert_told(&node, false);
    address(&node, "e");
    cluster.assert_clean();
}

/// By the name that the machine has by itself, by one of the host file, and in another cluster.
#[test]
fn a_del_frees_what_its_node_holds_under_the_names_that_it_had_before() {
    let etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let node = cluster.node_with("n", json!({"node_name": null}));
    let names = [
        json!({}),
        json!({"node_name": "worker-1"}),
        json!({"cluster": "renamed"}),
        json!({"cluster": null}),
    ];
    for (name, container) in names.iter().zip(["a", "b", "c", "d"]) {
        node.change_host_file(name.clone());
        address(&node, container);
    }
    // Nothing was added under this name yet.
    node.change_host_file(json!({"node_name": "worker-2"}));
    for container in ["a", "b", "c"] {
        let del = node.del(container).config(&range()).run();
        del.silent();
        assert!(del.stderr.contains("under a name that this node had before"), "{del}");
    }
    let quiet = node.del("unknown").config(&range()).run();
    assert!(quiet.stderr.is_empty(), "{quiet}");
    let held: Vec<String> = cluster.store().keys("v1/owner/");
    assert_eq!(held, ["v1/owner/-/worker-1/d/eth0"]);
    // A DEL that had to wait is carried out under another name than it was spooled.
    etcd.stop();
    node.del("d").config(&range()).run().silent();
    etcd.resume();
    node.change_host_file(json!({"node_name": "worker-3", "cluster": "east"}));
    address(&node, "e");
    node.del("e").config(&range()).run().silent();
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

/// The file of names in a node's folder.
fn names(node: &Node) -> PathBuf {
    let folders = fs::read_dir(node.spool()).expect("a run has made it").flatten().map(|entry| entry.path());
    let names = folders.map(|folder| folder.join("names")).find(|names| names.exists());
    names.expect("a name is kept before the first ADD")
}

#[test]
fn a_former_name_whose_file_is_lost_or_damaged_is_taken_from_the_mark() {
    for damage in [None, Some("damaged")] {
        let cluster = Cluster::new();
        let node = cluster.node("n1");
        for container in ["a", "b"] {
            address(&node, container);
        }
        match damage {
            None => fs::remove_file(names(&node)).expect("removed"),
            Some(text) => fs::write(names(&node), text).expect("written"),
        }
        node.change_host_file(json!({"node_name": "n2"}));
        // Before the first ADD under the new name, and after it.
        let del = node.del("a").config(&range()).run();
        del.silent();
        assert_eq!(
            del.stderr.contains("the former names of this node are not known"),
            damage.is_some(),
            "{del}"
        );
        address(&node, "c");
        node.del("b").config(&range()).run().silent();
        assert_eq!(cluster.store().keys("v1/owner/"), ["v1/owner/test/n2/c/eth0"]);
        node.del("c").config(&range()).run().silent();
        cluster.assert_nothing_held();
        cluster.assert_clean();
    }
}

/// Both run on this machine, so they have one machine id.
#[test]
fn a_clone_frees_nothing_that_its_living_original_holds() {
    let cluster = Cluster::new();
    let [original, clone] = ["original", "clone"].map(|name| cluster.node(name));
    for container in ["a", "b"] {
        address(&original, container);
    }
    clone_disk(&original, &clone);
    address(&original, "since");
    let frees_nothing = |container: &str| {
        let del = clone.del(container).config(&range()).run();
        del.silent();
        assert!(del.stderr.contains("another machine with the same machine id"), "{del}");
        assert_eq!(listed(&original, &["--node", "original"]).len(), 3);
    };
    // The clone sees the key of its original before, and has none of its own yet.
    clone.status().config(&range()).run().silent();
    frees_nothing("a");
    let told = clone.cli(["doctor"]).to_string();
    assert!(told.contains("a DEL frees nothing under node original of cluster test"), "{told}");
    address(&clone, "own");
    frees_nothing("b");
    clone.del("own").config(&range()).run().silent();
    for container in ["a", "b", "since"] {
        original.del(container).config(&range()).run().silent();
    }
    assert!(listed(&original, &[]).is_empty(), "the original frees its own");
    cluster.assert_whole();
}

/// There, revisions may be those of another time.
#[test]
fn a_former_name_of_an_earlier_epoch_proves_nothing() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    address(&node, "a");
    node.change_host_file(json!({"node_name": "n2"}));
    let meta = cluster.store().get("v1/meta").expect("there is meta");
    let mut meta: Value = serde_json::from_slice(&meta).expect("JSON");
    meta["epoch"] = json!(2);
    cluster.store().put("v1/meta", meta.to_string());
    let del = node.del("a").config(&range()).run();
    del.silent();
    assert!(del.stderr.contains("nothing is freed under a name that this node had before"), "{del}");
    assert_eq!(container_of(&node), ["a"]);
    cluster.assert_clean();
}
