//! An etcd that is too old for metes is named as such, wherever its age shows.

use serde_json::json;
use support::{Cluster, Etcd, network, network_as};

#[test]
fn an_etcd_that_is_too_old_is_named() {
    let etcd = Etcd::start_version_34();
    let cluster = Cluster::on(&etcd);
    let node = cluster.node("n1");
    let ipam = json!({"range": "10.30.0.0/24"});

    let error = node.add("c1").config(&network(ipam.clone())).run().error(103);
    let msg = error["msg"].as_str().unwrap_or_default();
    assert!(msg.contains("3.4.") && msg.contains("3.5.6"), "both versions are named: {msg}");

    let error = node.status().config(&network_as("1.1.0", "net", ipam)).run().error(50);
    let msg = error["msg"].as_str().unwrap_or_default();
    assert!(msg.contains("3.4.") && msg.contains("3.5.6"), "both versions are named: {msg}");

    let check = cluster.check();
    assert_eq!(check.status.code(), Some(1), "{check}");
    assert!(
        check.stdout.contains("3.4.") && check.stdout.contains("3.5.6"),
        "both versions are named: {check}"
    );

    // The refused ADD wrote nothing that stays.
    cluster.assert_nothing_held();
    assert_eq!(cluster.store().get("v1/meta"), None);
    cluster.leave_unclean();
}
