//! STATUS while etcd is away: a node that knows its store bears that for 5 minutes, and nothing else for a moment.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use metes_core::keys::digest_hex;
use metes_core::limits;
use serde_json::{Value, json};
use support::chaos_proxies::{GrpcProxy, GrpcRule, Kind};
use support::{Cluster, Etcd, Node, in_parallel, network_as, report, wait_for};

fn config() -> Value {
    network_as("1.1.0", "net", json!({"range": "10.0.0.0/24"}))
}

/// A node that has reserved an address, so that it knows its store.
fn knowing(cluster: &Cluster) -> Node {
    let node = cluster.node("n1");
    node.add("c").config(&config()).run().address();
    node
}

fn assert_borne(node: &Node) {
    let outcome = node.status().config(&config()).run();
    assert!(outcome.succeeded() && outcome.stdout.is_empty(), "{outcome}");
}

/// The record of an outage in the node's folder for its store.
fn record(node: &Node) -> PathBuf {
    let folders = fs::read_dir(node.spool()).expect("a run has made it").flatten().map(|entry| entry.path());
    let folder = folders.into_iter().find(|folder| folder.join("mark").exists());
    folder.expect("a mark is kept after an ADD").join("outage")
}

/// Rewrites the record.
fn change(node: &Node, change: impl FnOnce(&mut Value)) {
    let path = record(node);
    let text = fs::read_to_string(&path).expect("there is a record");
    let mut content = serde_json::from_str(text.lines().nth(1).expect("a second line")).expect("JSON");
    change(&mut content);
    let content = content.to_string();
    fs::write(&path, format!("{}\n{content}", digest_hex(content.as_bytes()))).expect("written");
}

/// Lets the outage have begun so much earlier by the boot-time clock.
fn age(node: &Node, by: Duration) {
    change(node, |content| {
        let since = &mut content["kept"]["since"]["ns"];
        let ns = since.as_u64().expect("nanoseconds").checked_sub(by.as_nanos() as u64);
        *since = json!(ns.expect("this machine has run for longer"));
    });
}

#[test]
fn an_outage_is_borne_for_five_minutes_and_no_longer() {
    /// A STATUS may take so long here.
    const SLACK: Duration = Duration::from_secs(60);
    let mut etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let node = knowing(&cluster);
    assert_borne(&node);
    assert!(!record(&node).exists(), "nothing is noted while etcd answers");

    etcd.kill();
    assert_borne(&node);
    let noted = fs::read(record(&node)).expect("it is noted");
    let mode = fs::metadata(record(&node)).expect("it is there").permissions().mode();
    assert!(mode & 0o7777 == 0o600 && noted.len() <= 4096, "{mode:o}, {} bytes", noted.len());
    in_parallel(8, 0..8, |_| assert_borne(&node));
    assert_eq!(fs::read(record(&node)).expect("it stays"), noted, "the first one counts");
    let doctor = node.cli(["doctor"]).stdout;
    assert!(doctor.contains("warn  etcd has answered no STATUS for"), "{doctor}");

    age(&node, limits::STATUS_GRACE - SLACK);
    assert_borne(&node);
    age(&node, SLACK);
    let error = node.status().config(&config()).run().error(50);
    let told = ["refused", "etcd has answered no STATUS for 3", "check that etcd runs"];
    assert!(told.iter().all(|words| error.to_string().contains(words)), "{error}");
    let doctor = node.cli(["doctor"]).stdout;
    assert!(doctor.contains("bad   etcd has answered no STATUS for 5 min"), "{doctor}");

    // An ADD and a DEL neither end it nor begin one.
    etcd.restart();
    node.add("d").config(&config()).run().address();
    node.del("d").config(&config()).run().silent();
    etcd.kill();
    node.status().config(&config()).run().error(50);
    etcd.restart();
    assert_borne(&node);
    assert!(!record(&node).exists(), "etcd has answered");
    etcd.kill();
    node.del("c").config(&config()).run().silent();
    assert!(!record(&node).exists(), "only STATUS notes it");
    assert_borne(&node);
    etcd.restart();
    node.del("c").config(&config()).run().silent();
    cluster.assert_nothing_held();
    cluster.assert_whole();
}

#[test]
fn a_record_that_says_nothing_here_gives_no_time() {
    let mut etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let node = knowing(&cluster);
    let blocked = record(&node);
    let rows: [(&str, &dyn Fn()); 5] = [
        ("another boot", &|| change(&node, |content| content["kept"]["since"]["boot"] = json!("another"))),
        ("the future", &|| change(&node, |content| content["kept"]["since"]["ns"] = json!(u64::MAX))),
        ("another machine", &|| change(&node, |content| content["whose"]["machine"] = json!("f".repeat(32)))),
        ("another cluster", &|| change(&node, |content| content["whose"]["cluster"] = json!("other"))),
        ("damage", &|| fs::write(&blocked, "garbage").expect("written")),
    ];
    for (row, spoil) in rows {
        etcd.kill();
        assert_borne(&node);
        spoil();
        for _ in ["first", "again"] {
            let outcome = node.status().config(&config()).run();
            assert_eq!(outcome.error_code(), Some(50), "{row}: {outcome}");
        }
        assert!(node.cli(["doctor"]).stdout.contains("warn  STATUS fails at once"), "{row}");
        etcd.restart();
        assert_borne(&node);
        assert!(!blocked.exists(), "{row}: etcd has answered");
    }
    // A folder in its place: nothing can be kept.
    fs::create_dir(&blocked).expect("a folder can be made");
    etcd.kill();
    node.status().config(&config()).run().error(50);
    fs::remove_dir(&blocked).expect("it is empty");
    etcd.restart();
    cluster.assert_clean();
}

/// A node may have nothing but STATUS for days.
#[test]
fn a_status_carries_out_what_waits_in_the_spool_within_its_own_time() {
    let mut etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let proxy = GrpcProxy::before(&etcd.endpoint());
    let node = cluster.node_with("n1", json!({"etcd": {"endpoints": [proxy.endpoint()]}}));
    node.add("c").config(&config()).run().ok();
    etcd.kill();
    node.del("c").config(&config()).run().silent();
    node.status().config(&config()).run().silent();
    assert_eq!(node.spooled_dels().len(), 1, "an outage that is borne leaves it");
    etcd.restart();
    // What is sent for an entry is not answered: STATUS ends all the same, and the entry stays.
    for kind in [Kind::Free, Kind::Bury, Kind::Grant] {
        proxy.rule(GrpcRule::of(kind).stall());
    }
    let began = Instant::now();
    node.status().config(&config()).run().silent();
    let took = began.elapsed();
    assert!(took < limits::DEL_DEADLINE, "{took:?}");
    assert_eq!(node.spooled_dels().len(), 1);
    proxy.clear();
    wait_for("a STATUS to carry it out", limits::STATUS_GRACE, || {
        node.status().config(&config()).run().silent();
        if node.spooled_dels().is_empty() { Ok(()) } else { Err("it waits".to_owned()) }
    });
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

#[test]
fn a_verdict_is_told_at_once() {
    const SECRET: &str = "open sesame";
    let etcd = Etcd::start_mtls();
    let cluster = Cluster::on(&etcd);
    let node = knowing(&cluster);
    let tls = etcd.tls().expect("it has TLS");
    let dead = "https://127.0.0.1:1";
    let plain = etcd.endpoint().replace("https://", "http://");
    let past = tls.dated_client("past", "20200101000000Z", "20200102000000Z");
    let no_tls = json!({"endpoints": [plain], "ca_file": null, "cert_file": null, "key_file": null});
    let host_file = fs::read(node.host_file()).expect("readable");
    let rows = [
        ("http to TLS", json!({"etcd": no_tls}), Some("this port speaks TLS")),
        (
            "a port without TLS, and a dead one",
            json!({"etcd": {"endpoints": [dead, format!("https://{}", etcd.peer_address())]}}),
            Some("does not speak TLS"),
        ),
        (
            "an expired certificate",
            json!({"etcd": {"cert_file": past.0, "key_file": past.1}}),
            Some("expired"),
        ),
        ("no such file", json!({"etcd": {"ca_file": "/nowhere/ca.crt"}}), Some("/nowhere/ca.crt")),
        ("another name", json!({"etcd": {"server_name": "other.test"}}), Some("not for other.test")),
        ("a slip", json!({"allowd": {}}), Some("allowd")),
        ("no node", json!({"etcd": {"endpoints": [dead]}}), None),
    ];
    report(rows.into_iter().map(|(row, keys, verdict)| {
        node.change_host_file(keys);
        let outcome = node.status().config(&config()).run();
        let is_right = match verdict {
            Some(words) => !outcome.succeeded() && outcome.stdout.contains(words),
            None => outcome.succeeded() && record(&node).exists(),
        };
        node.write_host_file(&host_file);
        assert_borne(&node);
        (!is_right).then(|| format!("{row}: {outcome}"))
    }));

    // A user who may not, and a store under suspicion.
    cluster.store().change_meta(&json!({"suspect": 1}));
    node.status().config(&config()).run().error(50);
    cluster.store().change_meta(&json!({"suspect": null}));
    let root = cluster.store().as_client(tls, &tls.client("root", "root"));
    root.run(async |client| {
        for user in ["root", "metes"] {
            client.user_add(user, SECRET, None).await?;
        }
        client.user_grant_role("root", "root").await?;
        client.auth_enable().await
    });
    let denied = node.status().config(&config()).run().error(50);
    assert!(denied.to_string().contains("user metes"), "{denied}");
    root.run(async |client| client.auth_disable().await);

    // Another etcd answers, and the known one does not.
    let other = Etcd::start();
    let endpoints = json!([other.endpoint(), "http://127.0.0.1:1"]);
    node.change_host_file(json!({"etcd": {
        "endpoints": endpoints, "ca_file": null, "cert_file": null, "key_file": null,
    }}));
    node.status().config(&config()).run().error(50);
    node.write_host_file(&host_file);
    cluster.assert_clean();
}

#[test]
fn after_a_verdict_an_outage_is_borne_for_no_moment() {
    let mut etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let node = knowing(&cluster);
    let fails = || drop(node.status().config(&config()).run().error(50));
    let suspect = |value: Value| cluster.store().change_meta(&json!({"suspect": value}));
    for row in ["no outage before", "an outage before"] {
        suspect(json!(1));
        fails();
        etcd.kill();
        fails();
        fails();
        let doctor = node.cli(["doctor"]).stdout;
        assert!(doctor.contains("warn  STATUS fails at once"), "{row}: {doctor}");
        etcd.restart();
        fails();
        suspect(Value::Null);
        assert_borne(&node);
        assert!(!record(&node).exists(), "{row}: etcd has answered well");
        etcd.kill();
        assert_borne(&node);
        etcd.restart();
    }
    assert_borne(&node);
    cluster.assert_clean();
}
