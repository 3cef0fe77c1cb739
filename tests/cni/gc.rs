//! GC among more owners than one listing has, and beside an ADD of an owner that it is about to free.

use std::time::{Duration, Instant};

use metes::commands::{Run, add};
use metes_core::keys::Keys;
use metes_core::limits::LIST_KEYS;
use metes_core::pool::{Labels, Owner, RunStart, Wanted};
use metes_engine::session::Session;
use metes_node::node::Identity;
use metes_node::state::NodeState;
use serde_json::{Value, json};
use support::{Cluster, Etcd, Node, failing_metes, network_as, plain_store, range_set, wait_for};

/// The longest time of a request of the test itself.
const PATIENCE: Duration = Duration::from_secs(60);
const NETWORK: &str = "net";

/// The configuration of a GC, with the containers whose interface is there.
fn config<'a>(valid: impl IntoIterator<Item = &'a String>) -> Value {
    let mut config = network_as("1.1.0", NETWORK, json!({"range": "10.0.0.0/20"}));
    let attachment = |container: &String| json!({"containerID": container, "ifname": "eth0"});
    config["cni.dev/valid-attachments"] = valid.into_iter().map(attachment).collect();
    config
}

fn holders(node: &Node) -> Vec<String> {
    let container = |row: &Value| row["container_id"].as_str().unwrap_or_default().to_owned();
    let mut holders: Vec<String> = node.list().iter().map(container).collect();
    holders.sort();
    holders
}

/// Leaves the records of that many ADDs; the plugin's code runs in this process.
fn hold(cluster: &Cluster, containers: &[String]) {
    let keys = Keys::new(cluster.prefix());
    let kv = plain_store(&Etcd::shared().endpoint(), PATIENCE);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let identity =
        Identity { cluster: "test".parse().ok(), ..Identity::of("n1".parse().expect("a plain name")) };
    let node = NodeState { identity, folder: cluster.folder().to_owned(), endpoints: Vec::new(), all: None };
    let clock = || RunStart { boot: "an-earlier-boot".into(), ns: 1 };
    runtime.block_on(async {
        for container in containers {
            let session = Session { kv: &kv, keys: &keys, until: (Instant::now() + PATIENCE).into() };
            let run = Run::new(session, &node, clock(), &clock, &|| true);
            let owner = Owner::named(["test", "n1", container, "eth0"]).expect("plain names");
            let labels = Labels { cni_network: NETWORK.into(), ..Labels::default() };
            let wanted = Wanted::lowest_of(vec![range_set("10.0.0.0/20", "10.0.0.1", "10.0.15.254")]);
            let ask = run.ask(owner, labels, wanted);
            add::add(&run, &ask).await.expect("an address");
        }
    });
}

#[test]
fn what_is_stale_among_more_owners_than_one_listing_has_is_freed() {
    let listed = usize::try_from(LIST_KEYS).expect("a small number");
    let cluster = Cluster::new();
    let containers: Vec<String> = (0..listed + 5).map(|index| format!("c{index:04}")).collect();
    hold(&cluster, &containers);
    // On both sides of the end of the first listing, and at the very end.
    let stale = [0, listed / 2, listed - 1, listed, listed + 2, listed + 4].map(|index| &containers[index]);
    let valid: Vec<String> = containers.iter().filter(|one| !stale.contains(one)).cloned().collect();
    let node = cluster.node("n1");
    node.gc().config(&config(&valid)).run().silent();
    assert_eq!(holders(&node), valid);
    cluster.assert_clean();
}

/// The runtime tries an ADD once more while GC looks at the leftovers of the first try.
#[test]
fn what_is_written_anew_after_gc_has_listed_it_stays() {
    let cluster = Cluster::new();
    let node = cluster.node_with("n1", json!({"gc_grace_s": 0}));
    let config = config([]);
    let told = node.add("c").config(&config).run().address();
    // Its second read is the listing.
    let gc = node.gc().config(&config).program(failing_metes()).env("METES_FAIL", "read#2.answered=stop");
    let mut gc = gc.spawn();
    wait_for("GC to have listed", PATIENCE, || {
        assert!(gc.is_running(), "it did not pass the listing");
        if gc.has_stopped() { Ok(()) } else { Err("it is on its way".to_owned()) }
    });
    assert_eq!(node.add("c").config(&config).run().address(), told);
    gc.resume();
    gc.wait().silent();
    assert_eq!(holders(&node), ["c"]);
    // Owners that were not touched since are freed.
    node.gc().config(&config).run().silent();
    cluster.assert_nothing_held();
    cluster.assert_clean();
}
