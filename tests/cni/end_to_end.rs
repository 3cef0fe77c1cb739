//! Real containers: cnitool, real main plugins that delegate to metes, real network namespaces.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};
use support::{Bridge, Cluster, Cnitool, Etcd, Netns, Node, Tls, bridge_plugin, in_parallel, network};

/// A bare address out of `address/length`.
fn bare(address: &str) -> &str {
    address.split('/').next().unwrap_or_default()
}

fn held(node: &Node) -> Vec<String> {
    let text = |held: &Value| held["address"].as_str().unwrap_or_default().to_owned();
    node.list().iter().map(text).collect()
}

#[test]
fn two_containers_on_a_bridge_reach_each_other() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    let (bridge, first, second) = (Bridge::new(), Netns::new(), Netns::new());
    let ipam = json!({
        "type": "metes",
        "ipRanges": [{"range": "10.188.1.0/24"}, {"range": "fd00:188:1::/64"}],
    });
    let cnitool = Cnitool::new(&node, "1.0.0", json!([bridge_plugin(&bridge, &ipam)]));

    let given = cnitool.add(&first).run().addresses();
    assert_eq!(given, ["10.188.1.1/24", "fd00:188:1::1/64"]);
    assert_eq!(first.addresses("eth0"), given);
    // Before a second port may give the bridge another MAC, which its own CHECK refuses.
    cnitool.check(&first).run().silent();
    let other = cnitool.add(&second).run().addresses();
    assert_eq!(other, ["10.188.1.2/24", "fd00:188:1::2/64"]);
    second.ping(bare(&given[0]));
    first.ping(bare(&other[0]));
    cnitool.check(&second).run().silent();
    assert!(node.list().iter().all(|held| held["cni_network"] == cnitool.network()), "{:?}", node.list());
    cluster.assert_clean();

    cnitool.del(&first).run().silent();
    assert_eq!(held(&node), ["10.188.1.2", "fd00:188:1::2"]);
    cnitool.del(&second).run().silent();
    // As runtimes do.
    cnitool.del(&second).run().silent();
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

#[test]
fn two_containers_on_ptp_reach_their_gateway() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    let (first, second) = (Netns::new(), Netns::new());
    // host-local's form: the gateway is the first address, and so is not handed out.
    let ipam = json!({
        "type": "metes",
        "ranges": [[{"subnet": "10.188.2.0/24"}]],
        // With a gateway of its own: the older ptp does not find a route without one at CHECK.
        "routes": [{"dst": "10.188.0.0/16", "gw": "10.188.2.1"}],
    });
    let cnitool = Cnitool::new(&node, "0.4.0", json!([{"type": "ptp", "ipam": ipam}]));
    let given: Vec<String> = [&first, &second].map(|netns| cnitool.add(netns).run().address()).to_vec();
    assert_eq!(given, ["10.188.2.2", "10.188.2.3"]);
    assert_eq!(first.addresses("eth0"), ["10.188.2.2/24"]);
    first.ping("10.188.2.1");
    second.ping("10.188.2.1");
    cnitool.check(&first).run().silent();
    cluster.assert_clean();
    for netns in [&first, &second] {
        cnitool.del(netns).run().silent();
    }
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

#[test]
fn status_and_gc_of_a_network_on_a_bridge() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    let (bridge, netns) = (Bridge::new(), Netns::new());
    let ipam = json!({"type": "metes", "range": "10.188.3.0/24"});
    let cnitool = Cnitool::new(&node, "1.1.0", json!([bridge_plugin(&bridge, &ipam)]));
    cnitool.status(&netns).run().silent();
    assert_eq!(cnitool.add(&netns).run().addresses(), ["10.188.3.1/24"]);
    cnitool.check(&netns).run().silent();
    // Another network of the node is none of this GC's business.
    node.add("other").config(&network(json!({"range": "10.188.3.0/24"}))).run().address();
    cluster.assert_clean();

    // libcni sends a DEL for what cnitool knows, and then a GC, which no real main plugin forwards.
    cnitool.gc(&netns).run().silent();
    assert_eq!(held(&node), ["10.188.3.2"]);
    cnitool.gc(&netns).run().silent();
    assert_eq!(held(&node), ["10.188.3.2"]);
    cluster.assert_clean();
}

/// Makes cnitool forget its attachments, so that its GC sends no DEL for them.
fn forget(cnitool: &Cnitool) {
    let own = format!("{}-", cnitool.network());
    let entries = fs::read_dir("/var/lib/cni/results").expect("cnitool keeps its results there");
    let results = entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(&own));
    let removed = results.map(|entry| fs::remove_file(entry.path()).expect("a result can be removed"));
    assert_eq!(removed.count(), 1);
}

#[test]
fn status_says_that_etcd_is_down_through_a_main_plugin() {
    let mut etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let (bridge, netns) = (Bridge::new(), Netns::new());
    let ipam = json!({"type": "metes", "range": "10.188.4.0/24"});
    let cnitool = Cnitool::new(&cluster.node("n1"), "1.1.0", json!([bridge_plugin(&bridge, &ipam)]));
    cnitool.status(&netns).run().silent();
    etcd.kill();
    let status = cnitool.status(&netns).run();
    assert!(!status.succeeded(), "{status}");
    assert!(status.elapsed < Duration::from_secs(3), "{status}");
    etcd.restart();
    cnitool.status(&netns).run().silent();
    cluster.assert_clean();
}

#[test]
fn metes_alone_in_a_conflist_answers_every_verb() {
    let cluster = Cluster::new();
    let node = cluster.node_with("n1", json!({"gc_grace_s": 0}));
    let (first, second) = (Netns::new(), Netns::new());
    let ipam = json!({"type": "metes", "range": "10.188.5.0/24"});
    // cnitool gives its GC no list, without which nothing is freed; this one says that nothing is valid.
    let plugin = json!({"type": "metes", "ipam": ipam, "cni.dev/valid-attachments": []});
    let cnitool = Cnitool::new(&node, "1.1.0", json!([plugin]));
    cnitool.status(&first).run().silent();
    assert_eq!(cnitool.add(&first).run().address(), "10.188.5.1");
    assert_eq!(cnitool.add(&second).run().address(), "10.188.5.2");
    let list = node.list();
    let container = list[0]["container_id"].as_str().unwrap_or_default();
    let digits = container.strip_prefix("cnitool-").unwrap_or_default();
    assert!(digits.len() == 20 && digits.bytes().all(|b| b.is_ascii_hexdigit()), "{container}");
    cnitool.check(&first).run().silent();
    cnitool.del(&first).run().silent();
    assert_eq!(held(&node), ["10.188.5.2"]);
    // Another network of the node is none of this GC's business.
    node.add("other").config(&network(json!({"range": "10.188.5.0/24"}))).run().address();
    forget(&cnitool);
    cnitool.gc(&first).run().silent();
    assert_eq!(held(&node), ["10.188.5.1"]);
    cluster.assert_clean();
}

#[test]
fn mutual_tls() {
    let etcd = Etcd::start_mtls();
    let cluster = Cluster::on(&etcd);
    let node = cluster.node("n1");
    let config = network(json!({"range": "10.188.6.0/24"}));
    let added = node.add("c").config(&config).run();
    assert_eq!(added.address(), "10.188.6.1");
    let mut with_result = config.clone();
    with_result["prevResult"] = added.ok();
    node.check("c").config(&with_result).run().silent();
    node.status().config(&with_version(&config, "1.1.0")).run().silent();

    let stranger = Tls::create(&cluster.folder().join("stranger"));
    let wrong_authority = cluster.node_with("n2", json!({"etcd": {"ca_file": stranger.ca()}}));
    let nobody = cluster.node_with("n3", json!({"etcd": {"cert_file": null, "key_file": null}}));
    let impostor = cluster.node_with(
        "n4",
        json!({"etcd": {"cert_file": stranger.client_cert(), "key_file": stranger.client_key()}}),
    );
    in_parallel(3, [&wrong_authority, &nobody, &impostor], |node| {
        // A DEL is spooled.
        node.del("d").config(&config).run().silent();
        let error = node.add("d").config(&config).run().error(11);
        let text = error.to_string().to_lowercase();
        let is_named = text.contains("certificate") || text.contains("unknownca");
        assert!(is_named, "{} is told what is wrong: {error}", node.name());
        assert!(!text.contains("private key"), "{error}");
    });
    assert_eq!(held(&node), ["10.188.6.1"]);
    node.del("c").config(&config).run().silent();
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

fn with_version(config: &Value, version: &str) -> Value {
    let mut config = config.clone();
    config["cniVersion"] = json!(version);
    config
}
