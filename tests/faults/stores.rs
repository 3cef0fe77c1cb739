//! A run knows its store: a restored one, at any address, is not the one that the node knows; nor is a member that was
//! begun anew, or a learner.

use std::time::Duration;

use serde_json::{Value, json};
use support::{Cluster, Etcd, Learner, Node, Relays, Run, Trio, network_as};

fn config() -> Value {
    network_as("1.1.0", "net", json!({"range": "10.0.0.0/24"}))
}

/// The addresses that a node's ADDs give to these containers.
fn add_all(node: &Node, containers: &[&str]) -> Vec<String> {
    containers.iter().map(|container| node.add(container).config(&config()).run().address()).collect()
}

/// Points the node at another etcd, as an operator does who has restored a snapshot on other hosts.
fn move_to(node: &Node, endpoints: &[String]) {
    node.change_host_file(json!({"etcd": {"endpoints": endpoints, "prefix": node_prefix(node)}}));
}

fn node_prefix(node: &Node) -> Value {
    let text = std::fs::read_to_string(node.host_file()).expect("a host file");
    let host: Value = serde_json::from_str(&text).expect("JSON");
    host["etcd"]["prefix"].clone()
}

/// Every verb of a node in a store that contradicts the node's knowledge.
fn assert_refused_everywhere(node: &Node, held: &str) {
    assert_eq!(node.status().config(&config()).run().error_code(), Some(50), "STATUS");
    node.gc().config(&config()).run().silent();
    assert_eq!(node.add("new").config(&config()).run().error_code(), Some(102), "ADD");
    node.del(held).config(&config()).run().silent();
    assert_eq!(node.spooled_dels().len(), 1, "the DEL waits for a store that contradicts nothing");
    let check = node.cli(["check"]);
    assert!(!check.succeeded() && check.stdout.contains("suspect"), "{check}");
}

#[test]
fn a_snapshot_restored_at_another_address_is_not_the_store_that_the_node_knows() {
    let mut etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let node = cluster.node("n1");
    add_all(&node, &["a"]);
    let snapshot = etcd.copy_data();
    add_all(&node, &["b", "c"]);
    let mut other = Etcd::start();
    other.restore_data(&snapshot);
    move_to(&node, &[other.endpoint()]);
    assert_refused_everywhere(&node, "b");
    move_to(&node, &[etcd.endpoint()]);
    assert!(node.add("d").config(&config()).run().succeeded(), "the store that it knows serves it");
    assert_eq!(node.spooled_dels().len(), 0, "and frees what waited");
    cluster.assert_clean();
}

#[test]
fn a_quiet_node_notices_a_restored_store_that_others_have_used_beyond_all_that_it_has_seen() {
    let mut etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let (quiet, busy) = (cluster.node("quiet"), cluster.node("busy"));
    add_all(&quiet, &["q0"]);
    let snapshot = etcd.copy_data();
    let before = cluster.store().revision();
    let given = add_all(&quiet, &["q1", "q2"]);
    let seen = cluster.store().revision();
    etcd.restore_data(&snapshot);
    // This node has seen nothing of the lost revisions.
    while cluster.store().revision() <= seen + 5 {
        let name = format!("b{}", cluster.store().revision());
        busy.add(&name).config(&config()).run().address();
    }
    assert!(before < seen);
    let doctor = quiet.cli(["doctor"]);
    assert!(!doctor.succeeded() && doctor.stdout.contains("puts the store under suspicion"), "{doctor}");
    assert_refused_everywhere(&quiet, "q1");
    let on_busy = busy.add("late").config(&config()).run();
    assert_eq!(on_busy.error_code(), Some(102), "the store is suspect for all: {given:?}");
    cluster.leave_unclean();
}

#[test]
fn a_member_that_was_begun_anew_alone_takes_no_del_and_gives_no_address() {
    let trio = Trio::start();
    let cluster = Cluster::on_trio(&trio);
    let node = cluster.node("n1");
    let containers = ["a", "b", "c", "d", "e", "f", "g", "h"];
    add_all(&node, &containers);
    let lost = Etcd::start();
    let mut endpoints = trio.endpoints();
    endpoints[0] = lost.endpoint();
    move_to(&node, &endpoints);
    for container in containers {
        node.del(container).config(&config()).run().silent();
    }
    assert_eq!(node.spooled_dels().len(), 0, "two members have served them all");
    let fresh = cluster.node("n2");
    move_to(&fresh, &endpoints);
    let refused = fresh.add("x").config(&config()).run().error(102);
    let text = refused["msg"].as_str().unwrap_or_default();
    assert!(text.contains(&lost.endpoint()) && text.contains("not of one store"), "{refused}");
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

#[test]
fn a_learner_is_passed_by() {
    let etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let node = cluster.node("n1");
    let learner = Learner::of(&etcd);
    // A learner says nothing to a node that knows no store yet.
    add_all(&node, &["first"]);
    node.del("first").config(&config()).run().silent();
    move_to(&node, &[learner.endpoint(), etcd.endpoint()]);
    for round in 0..8 {
        let container = format!("c{round}");
        node.add(&container).config(&config()).run().address();
        node.status().config(&config()).run().silent();
        node.del(&container).config(&config()).run().silent();
    }
    assert_eq!(node.spooled_dels().len(), 0);
    move_to(&node, &[learner.endpoint()]);
    let alone = node.add("x").config(&config()).run().error(11);
    let details = alone["details"].as_str().unwrap_or_default();
    assert!(details.contains("etcdctl member promote"), "{alone}");
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

/// Its host file may name the wrong prefix now: on an empty one, every address would be given once more.
fn use_prefix(node: &Node, prefix: &Value) {
    node.change_host_file(json!({"etcd": {"prefix": prefix}}));
}

#[test]
fn a_machine_that_has_used_another_prefix_founds_no_store() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    add_all(&node, &["a"]);
    let prefix = node_prefix(&node);
    let moved = json!(format!("{}other/", prefix.as_str().expect("a prefix")));
    use_prefix(&node, &moved);
    assert_prefix_refused(&node, &prefix, &moved);
    node.del("b").config(&config()).run().silent();
    for command in [&["hold", "10.0.0.9", "--network", "default", "--note", "x"][..], &["doctor"]] {
        let told = node.cli(command.iter().copied());
        assert!(!told.succeeded() && told.to_string().contains("this machine has used"), "{told}");
    }
    let written = cluster.store().keys("other/v1/");
    assert!(written.iter().all(|key| key.contains("/tombstone/")), "no store was founded: {written:?}");
    node.change_host_file(json!({"other_prefixes": [prefix]}));
    assert_eq!(add_all(&node, &["b"]).len(), 1, "a second store was meant");
    node.del("b").config(&config()).run().silent();
    use_prefix(&node, &prefix);
    add_all(&node, &["c"]);
    assert_eq!(node.list().len(), 2);
    cluster.assert_clean();
}

/// ADD and STATUS name both prefixes, and the key that allows both.
#[track_caller]
fn assert_prefix_refused(node: &Node, used: &Value, named: &Value) {
    let refused = node.add("refused").config(&config()).run().error(102);
    let [used, named] = [used, named].map(|prefix| prefix.as_str().expect("a prefix"));
    let text = refused["msg"].as_str().unwrap_or_default();
    assert!(text.contains(&format!("has used the prefix {used} ")), "{refused}");
    assert!(text.contains(&format!("its host file names {named},")), "{refused}");
    assert!(refused["details"].to_string().contains("`other_prefixes`"), "{refused}");
    assert_eq!(node.status().config(&config()).run().error_code(), Some(50));
}

#[test]
fn a_prefix_that_was_changed_to_another_store_gives_no_address_and_loses_no_del() {
    let cluster = Cluster::new();
    let [node, other] = ["n1", "n2"].map(|name| cluster.node(name));
    let prefix = node_prefix(&node);
    let moved = json!(format!("{}other/", prefix.as_str().expect("a prefix")));
    use_prefix(&other, &moved);
    let theirs = add_all(&other, &["x"]);
    assert_eq!(add_all(&node, &["a"]), theirs, "each store gives its own addresses");
    use_prefix(&node, &moved);
    assert_prefix_refused(&node, &prefix, &moved);
    // No other verb makes the prefix one that the node has used.
    let lost = node.del("a").config(&config()).run().error(11);
    assert!(lost["msg"].to_string().contains("has used the prefix"), "{lost}");
    let unknown = node.del("unknown").config(&config()).run();
    unknown.silent();
    assert!(unknown.stderr.contains("nothing is known of this container there"), "{unknown}");
    assert!(!node.check("unknown").config(&config()).run().succeeded());
    node.gc().config(&config()).run().silent();
    assert_prefix_refused(&node, &prefix, &moved);
    assert_eq!(other.list().len(), 1, "nothing was given");
    use_prefix(&node, &prefix);
    node.del("a").config(&config()).run().silent();
    assert!(node.list().is_empty());
    // A node that uses both by two host files says so.
    use_prefix(&node, &moved);
    node.change_host_file(json!({"other_prefixes": [prefix]}));
    assert_eq!(add_all(&node, &["b"]).len(), 1);
    cluster.assert_clean();
}

#[test]
fn a_machine_of_another_cluster_founds_a_store_only_if_a_person_agrees() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    add_all(&node, &["a"]);
    cluster.store().delete_prefix("v1/");
    node.change_host_file(json!({"cluster": "west"}));
    let refused = node.add("b").config(&config()).run().error(102);
    let text = refused["msg"].as_str().unwrap_or_default();
    assert!(text.contains("has used the store of") && text.contains("cluster test"), "{refused}");
    assert_eq!(node.status().config(&config()).run().error_code(), Some(50));
    let accepted = node.cli(["check", "--accept-store", "--yes"]);
    assert!(accepted.succeeded() && accepted.stdout.contains("began a new store"), "{accepted}");
    add_all(&node, &["b"]);
    cluster.assert_clean();
}

/// So a restore of a store that only a person has written to since is noticed.
#[test]
fn a_command_that_writes_raises_the_mark_of_its_node() {
    let mut etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let node = cluster.node("n1");
    add_all(&node, &["a"]);
    let hold = |address: &str| node.cli(["hold", address, "--network", "default", "--note", "x"]);
    for command in ["hold", "pool"] {
        let snapshot = etcd.copy_data();
        let done = match command {
            "hold" => hold("10.0.0.9"),
            _ => {
                let pool = "pool: p\nnetwork: storage\nranges:\n- range: 10.9.0.0/24\n";
                node.pool(&["apply", "--yes", "-f", "-"], pool)
            }
        };
        assert!(done.succeeded(), "{done}");
        etcd.restore_data(&snapshot);
        let refused = hold("10.0.0.8");
        assert!(!refused.succeeded() && refused.stderr.contains("this node knows a store"), "{refused}");
        node.add("b").config(&config()).run().error(102);
        assert!(node.cli(["check", "--accept-store", "--yes"]).succeeded());
        add_all(&node, &["b"]);
    }
    cluster.assert_clean();
}

/// A node of the cluster that uses this etcd alone, under the same prefix, and has an address there.
fn founded_elsewhere(cluster: &Cluster, etcd: &Etcd) -> Node {
    let node = cluster.node("elsewhere");
    move_to(&node, &[etcd.endpoint()]);
    add_all(&node, &["elsewhere"]);
    node
}

/// That an error names each of these endpoints.
fn assert_names(text: &str, endpoints: &[String]) {
    assert!(endpoints.iter().all(|endpoint| text.contains(endpoint)), "{text}");
}

/// Two etcds that were begun with etcd's defaults: cluster id and member id follow from name and peer URL.
fn with_equal_ids() -> (Etcd, Etcd) {
    let peer = "http://localhost:2380";
    let args = [format!("--initial-advertise-peer-urls={peer}"), format!("--initial-cluster=test={peer}")];
    let args = args.each_ref().map(String::as_str);
    (Etcd::with_args(&args), Etcd::with_args(&args))
}

#[test]
fn no_verb_lets_a_node_trust_one_of_two_etcds() {
    let (etcd, wrong) = (Etcd::start(), Etcd::start());
    let cluster = Cluster::on(&etcd);
    let (node, elsewhere) = (cluster.node("n1"), founded_elsewhere(&cluster, &wrong));
    add_all(&node, &["a"]);
    let endpoints = [etcd.endpoint(), wrong.endpoint()];
    for verb in ["STATUS", "CHECK", "GC", "DEL"] {
        // Which endpoint a run asks first is drawn.
        for round in 0..4 {
            let fresh = cluster.node(&format!("{}{round}", verb.to_lowercase()));
            move_to(&fresh, &endpoints);
            match verb {
                "STATUS" => {
                    let status = fresh.status().config(&config()).run();
                    assert_eq!(status.error_code(), Some(50), "{status}");
                    assert_names(&status.to_string(), &endpoints);
                }
                "CHECK" => _ = fresh.check("x").config(&config()).run(),
                "GC" => {
                    let mut listed = config();
                    listed["cni.dev/valid-attachments"] = json!([]);
                    assert_eq!(fresh.gc().config(&listed).run().error_code(), Some(102));
                }
                _ => {
                    fresh.del("x").config(&config()).run().silent();
                    assert_eq!(fresh.spooled_dels().len(), 1, "it waits until it is known where to free");
                }
            }
            let refused = fresh.add("x").config(&config()).run().error(102);
            assert_names(refused["msg"].as_str().unwrap_or_default(), &endpoints);
        }
    }
    assert_eq!((node.list().len(), elsewhere.list().len()), (1, 1), "nobody got an address of either store");
    cluster.assert_clean();
}

#[test]
fn no_command_founds_a_store_in_one_of_two_etcds() {
    let (etcd, wrong) = (Etcd::start(), Etcd::start());
    let cluster = Cluster::on(&etcd);
    add_all(&cluster.node("n1"), &["a"]);
    let endpoints = [etcd.endpoint(), wrong.endpoint()];
    for round in 0..4 {
        let admin = cluster.node(&format!("admin{round}"));
        move_to(&admin, &endpoints);
        let pool = "pool: p\nnetwork: storage\nranges:\n- range: 10.9.0.0/24\n";
        for refused in [
            admin.cli(["hold", "10.0.0.9", "--network", "default", "--note", "x", "--force"]),
            admin.pool(&["apply", "--yes", "-f", "-"], pool),
            admin.cli(["check", "--accept-store", "--yes"]),
        ] {
            assert!(!refused.succeeded(), "{refused}");
            assert_names(&refused.stderr, &endpoints);
        }
    }
    let elsewhere = cluster.node("elsewhere");
    move_to(&elsewhere, &[wrong.endpoint()]);
    let accepted = elsewhere.cli(["check", "--accept-store", "--yes"]);
    assert!(accepted.stdout.contains("began a new store"), "nothing was founded there: {accepted}");
    cluster.assert_clean();
}

#[test]
fn while_the_real_members_are_silent_nobody_joins_the_etcd_that_answers() {
    let (trio, wrong) = (Trio::start(), Etcd::start());
    let cluster = Cluster::on_trio(&trio);
    let (node, elsewhere) = (cluster.node("n1"), founded_elsewhere(&cluster, &wrong));
    add_all(&node, &["a"]);
    let mut endpoints = trio.endpoints();
    endpoints[2] = wrong.endpoint();
    let fresh = cluster.node("fresh");
    move_to(&fresh, &endpoints);
    (0..3).for_each(|member| trio.stop(member));
    let refused = fresh.add("x").config(&config()).run().error(11);
    assert_names(refused["msg"].as_str().unwrap_or_default(), &endpoints);
    assert!(refused["details"].as_str().is_some_and(|text| text.contains("more than half")), "{refused}");
    fresh.del("x").config(&config()).run().silent();
    assert_eq!(fresh.spooled_dels().len(), 1);
    (0..3).for_each(|member| trio.resume(member));
    fresh.add("x").config(&config()).run().error(102);
    assert_eq!((node.list().len(), elsewhere.list().len()), (1, 1));
    cluster.assert_clean();
}

/// The question waits for the slow ones: the etcd that answers first is the wrong one.
#[test]
fn members_that_answer_late_are_heard_before_a_node_joins() {
    let (trio, wrong) = (Trio::start(), Etcd::start());
    let cluster = Cluster::on_trio(&trio);
    let (node, elsewhere) = (cluster.node("n1"), founded_elsewhere(&cluster, &wrong));
    add_all(&node, &["a"]);
    let late = Duration::from_millis(300);
    let (_links, mut endpoints): (Vec<Relays>, Vec<String>) =
        trio.endpoints().iter().take(2).map(|member| Relays::before_endpoint(member, late)).unzip();
    endpoints.push(wrong.endpoint());
    for round in 0..3 {
        let fresh = cluster.node(&format!("fresh{round}"));
        move_to(&fresh, &endpoints);
        let refused = fresh.add("x").config(&config()).run().error(102);
        assert_names(refused["msg"].as_str().unwrap_or_default(), &endpoints);
    }
    assert_eq!((node.list().len(), elsewhere.list().len()), (1, 1), "nobody got an address of either store");
    cluster.assert_clean();
}

#[test]
fn a_new_node_needs_more_than_half_of_its_endpoints_and_a_known_one_a_single_one() {
    let etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let (known, fresh) = (cluster.node("known"), cluster.node("fresh"));
    add_all(&known, &["a"]);
    let [dead] = support::free_ports();
    let endpoints = [etcd.endpoint(), format!("http://127.0.0.1:{dead}")];
    move_to(&known, &endpoints);
    move_to(&fresh, &endpoints);
    add_all(&known, &["b"]);
    let refused = fresh.add("x").config(&config()).run().error(11);
    assert_names(refused["msg"].as_str().unwrap_or_default(), &endpoints);
    // One member under two names is one.
    let twice = [etcd.endpoint(), etcd.endpoint().replace("127.0.0.1", "localhost")];
    move_to(&fresh, &twice);
    add_all(&fresh, &["x"]);
    cluster.assert_clean();
}

/// Both say that there is nothing, so they agree. What a node founds in one of them shows that they are two.
#[test]
fn etcds_with_equal_ids_are_told_apart_by_what_is_founded() {
    let (etcd, other) = with_equal_ids();
    let cluster = Cluster::on(&etcd);
    let endpoints = [etcd.endpoint(), other.endpoint()];
    for number in 0..6 {
        let node = cluster.node(&format!("n{number}"));
        move_to(&node, &endpoints);
        let refused = node.add("x").config(&config()).run().error(102);
        assert_names(refused["msg"].as_str().unwrap_or_default(), &endpoints);
    }
    for one in [&etcd, &other] {
        let alone = cluster.node("alone");
        move_to(&alone, &[one.endpoint()]);
        assert_eq!(alone.list().len(), 0, "no address was given");
    }
    cluster.assert_clean();
}

/// Its host file named a wrong etcd. Corrected, it must not put the store of all others under suspicion.
#[test]
fn a_node_whose_host_file_was_wrong_is_refused_alone_and_a_second_one_accuses() {
    let (etcd, wrong) = (Etcd::start(), Etcd::start());
    let cluster = Cluster::on(&etcd);
    let right = cluster.node("right");
    add_all(&right, &["a"]);
    let stranger = cluster.node("stranger");
    move_to(&stranger, &[wrong.endpoint()]);
    add_all(&stranger, &["s"]);
    move_to(&stranger, &[etcd.endpoint()]);
    stranger.del("s").config(&config()).run().silent();
    assert_eq!(stranger.spooled_dels().len(), 1, "the store that it knows may hold the address");
    for _ in 0..2 {
        let refused = stranger.add("t").config(&config()).run().error(102);
        assert!(refused["msg"].as_str().is_some_and(|text| text.contains("have changed since")), "{refused}");
    }
    assert_eq!(cluster.store().keys("v1/stranger/").len(), 1, "one key, however often it asks");
    right.status().config(&config()).run().silent();
    add_all(&right, &["b"]);
    right.del("b").config(&config()).run().silent();
    // A second machine that knows the other store: it is the store that has moved.
    let second = cluster.node("second");
    let on_second = |run: Run| run.config(&config()).on_machine(cluster.folder(), "0123456789abcdef");
    move_to(&second, &[wrong.endpoint()]);
    on_second(second.add("u")).address();
    move_to(&second, &[etcd.endpoint()]);
    on_second(second.add("v")).error(102);
    assert_eq!(right.add("c").config(&config()).run().error_code(), Some(102), "now it is suspect for all");
    let accepted = right.cli(["check", "--accept-store", "--yes"]);
    assert!(accepted.stdout.contains("accepted the store"), "{accepted}");
    add_all(&right, &["w"]);
    add_all(&stranger, &["w"]);
    on_second(second.add("w")).address();
    cluster.assert_clean();
}

/// A member that was made an etcd of its own keeps the id of the etcd, and has lost what came after.
#[test]
fn a_member_that_has_forgotten_is_passed_by_where_the_others_have_not() {
    let (mut forked, mut sound) = with_equal_ids();
    let cluster = Cluster::on(&sound);
    let node = cluster.node("n1");
    add_all(&node, &["a", "b"]);
    let before = sound.copy_data();
    add_all(&node, &["c", "d"]);
    forked.restore_data(&before);
    move_to(&node, &[forked.endpoint(), sound.endpoint()]);
    for round in 0..12 {
        let container = format!("e{round}");
        node.add(&container).config(&config()).run().address();
        node.del(&container).config(&config()).run().silent();
        node.check("d").config(&config()).run().silent();
    }
    assert_eq!(node.spooled_dels().len(), 0);
    node.status().config(&config()).run().silent();
    node.del("c").config(&config()).run().silent();
    move_to(&node, &[sound.endpoint()]);
    assert_eq!(node.list().len(), 3, "what was freed is free in the sound one");
    cluster.assert_clean();
}

/// The mark of suspicion in the etcd that has forgotten says nothing about the store that this node knows.
#[test]
fn a_suspicion_counts_in_the_known_store_alone() {
    let (mut forked, mut sound) = with_equal_ids();
    let cluster = Cluster::on(&sound);
    let (node, witness) = (cluster.node("n1"), cluster.node("n2"));
    add_all(&witness, &["a"]);
    let before = sound.copy_data();
    add_all(&witness, &["b"]);
    add_all(&node, &["c"]);
    forked.restore_data(&before);
    move_to(&witness, &[forked.endpoint()]);
    witness.add("d").config(&config()).run().error(102);
    move_to(&node, &[forked.endpoint(), sound.endpoint()]);
    let mut listed = config();
    listed["cni.dev/valid-attachments"] = json!([{"containerID": "c", "ifname": "net1"}]);
    // Which endpoint a run asks first is drawn.
    for _ in 0..8 {
        node.check("c").config(&config()).run().silent();
        node.gc().config(&listed).run().silent();
        node.status().config(&config()).run().silent();
    }
    // Where the etcd that has forgotten is the only endpoint, every verb refuses it.
    move_to(&node, &[forked.endpoint()]);
    assert_refused_everywhere(&node, "c");
    move_to(&node, &[sound.endpoint()]);
    add_all(&node, &["e"]);
    cluster.assert_clean();
}

/// Its epoch is later than that of the store which the node knows. But nobody has taken it into service for that one.
#[test]
fn a_trial_etcd_that_was_accepted_once_is_not_followed() {
    let (etcd, mut trial) = (Etcd::start(), Etcd::start());
    let cluster = Cluster::on(&etcd);
    let node = cluster.node("n1");
    add_all(&node, &["a"]);
    let elsewhere = cluster.node("elsewhere");
    move_to(&elsewhere, &[trial.endpoint()]);
    let empty = trial.copy_data();
    add_all(&elsewhere, &["x"]);
    trial.restore_data(&empty);
    elsewhere.add("y").config(&config()).run().error(102);
    assert!(elsewhere.cli(["check", "--accept-store", "--yes"]).succeeded());
    add_all(&elsewhere, &["y"]);
    move_to(&node, &[trial.endpoint()]);
    node.add("b").config(&config()).run().error(102);
    assert_eq!(elsewhere.list().len(), 1, "it gives this node nothing");
    move_to(&node, &[etcd.endpoint()]);
    add_all(&node, &["b"]);
    cluster.assert_clean();
}
