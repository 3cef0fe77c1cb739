//! Which machine, which store and which cluster a record, a mark or a spooled DEL belongs to: what is of another one is
//! neither used nor freed.

mod support;

use serde_json::{Value, json};

use support::{Cluster, Node, network_as};

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

    // A GC for which nothing is valid frees what is of its own cluster alone.
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
