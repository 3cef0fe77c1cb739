//! `metes doctor`: it names each fault with its remedy, and goes on to everything else.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use etcd_client::{Permission, PermissionType, UserAddOptions};
use serde_json::{Value, json};
use support::{Cluster, Etcd, Node, Outcome, Tls, network, report, wait_for};

/// A person gets an answer within this time, however much fails. The machine may be busy.
const WITHIN: Duration = Duration::from_secs(6);
const SOON: Duration = Duration::from_secs(30);
const PAST: [&str; 2] = ["20200101000000Z", "20200102000000Z"];
const FUTURE: [&str; 2] = ["20800101000000Z", "20800102000000Z"];

fn range() -> Value {
    network(json!({"range": "10.0.0.0/24"}))
}

/// The lines of one run.
struct Told {
    lines: Vec<Value>,
    outcome: Outcome,
}

impl Told {
    #[track_caller]
    fn by(node: &Node) -> Self {
        Self::of(node.cli(["doctor", "-o", "json"]))
    }

    #[track_caller]
    fn of(outcome: Outcome) -> Self {
        let told = outcome.json();
        let lines = told["checks"].as_array().expect("it lists checks").clone();
        let is_bad = lines.iter().any(|line| line["verdict"] == "bad");
        assert_eq!(outcome.status.code(), Some(i32::from(is_bad)), "{outcome}");
        assert!(outcome.elapsed < WITHIN, "{outcome}");
        Self { lines, outcome }
    }

    /// True if a line about this has this verdict and all words, the remedy's among them.
    fn has(&self, check: &str, verdict: &str, words: &[&str]) -> bool {
        self.lines.iter().any(|line| {
            let text = format!("{} {}", line["what"], line["remedy"]);
            line["check"] == check
                && line["verdict"] == verdict
                && words.iter().all(|word| text.contains(word))
        })
    }

    #[track_caller]
    fn assert(&self, check: &str, verdict: &str, words: &[&str]) -> &Self {
        assert!(self.has(check, verdict, words), "no {verdict} {check} with {words:?}: {}", self.outcome);
        self
    }

    /// The names of the lines with this verdict, each once.
    fn with(&self, verdict: &str) -> Vec<&str> {
        let mut checks: Vec<&str> = self
            .lines
            .iter()
            .filter(|line| line["verdict"] == verdict)
            .filter_map(|line| line["check"].as_str())
            .collect();
        checks.dedup();
        checks
    }
}

#[test]
fn where_all_is_well_each_line_says_so_and_nothing_is_left_in_etcd() {
    let etcd = Etcd::start_mtls();
    let cluster = Cluster::on(&etcd);
    let node = cluster.node("a");
    let folder = node.host_file().parent().expect("it is in a folder").to_owned();
    let files = || fs::read_dir(&folder).expect("a folder").count();
    let files_before = files();
    let before = Told::by(&node);
    before.assert("store", "note", &["nothing is stored below", cluster.prefix()]);
    before.assert("mark", "note", &["no ADD or DEL has done its work here yet"]);
    assert_eq!(cluster.store().keys(""), [""; 0], "{}", before.outcome);
    assert_eq!(files(), files_before, "nothing is left on the node: {}", before.outcome);

    node.add("c").config(&range()).run().address();
    let keys = cluster.store().keys("");
    // A read may be slow on a machine that is busy.
    let told = wait_for("nothing to say", SOON, || {
        let told = Told::by(&node);
        match ["bad", "warn", "note"].iter().all(|verdict| told.with(verdict).is_empty()) {
            true => Ok(told),
            false => Err(told.outcome.to_string()),
        }
    });
    let host_file = node.host_file().display().to_string();
    let key = etcd.tls().expect("it has TLS").client_key().display().to_string();
    told.assert("host-file", "ok", &[&host_file, "METES_CONF", "root", "mode 0644"])
        .assert("file", "ok", &["key_file", &key, "mode 0600"])
        .assert("endpoint", "ok", &[&etcd.endpoint(), "etcd 3.", "leads", "a read took"])
        .assert("certificate", "ok", &["the client, metes", "left, until"])
        .assert("certificate", "ok", &["the authority, metes test authority"])
        .assert(
            "certificate",
            "ok",
            &["etcd, localhost for 127.0.0.1, localhost, etcd.test", &etcd.endpoint()],
        )
        .assert("clock", "ok", &["20"])
        .assert("read", "ok", &[cluster.prefix()])
        .assert("write", "ok", &["a write took"])
        .assert("store", "ok", &["in epoch 1"])
        .assert("mark", "ok", &["epoch 1"])
        .assert("name", "ok", &["node a of cluster test"])
        .assert("machine", "ok", &["machine"])
        .assert("others", "ok", &["no other machine"])
        .assert("spool", "ok", &["no DEL waits"]);
    assert_eq!(cluster.store().keys(""), keys, "it undoes what it writes");

    let text = node.cli(["doctor"]).stdout;
    assert!(text.starts_with("HOST FILE\n  ok    /") && text.contains("\nNODE\n  ok    node a"), "{text}");
    assert!(text.lines().count() < 25, "one screen: {text}");
    let yaml = node.cli(["doctor", "-o", "yaml"]);
    assert!(yaml.succeeded() && yaml.stdout.contains("\nchecks:\n- check: host-file\n"), "{yaml}");
    node.del("c").config(&range()).run().silent();
    cluster.assert_clean();
}

#[test]
fn without_etcd_it_says_all_else() {
    let mut etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let node = cluster.node("a");
    node.add("c").config(&range()).run().address();
    etcd.kill();
    node.del("c").config(&range()).run().silent();
    for file in node.spooled_dels() {
        let hour_ago = SystemTime::now() - Duration::from_secs(3600);
        fs::File::options().write(true).open(file).and_then(|file| file.set_modified(hour_ago)).expect("set");
    }
    let told = Told::by(&node);
    told.assert("endpoint", "bad", &[&etcd.endpoint(), "refused", "check that etcd runs"])
        .assert("read", "note", &["no endpoint serves"])
        .assert("spool", "warn", &["1 DEL waits", "the oldest for 1 h", "the next ADD or DEL"])
        .assert("name", "ok", &["node a"])
        .assert("clock", "note", &["no certificate"]);
    assert_eq!(told.with("bad"), ["endpoint"], "{}", told.outcome);

    // It is stopped: connections are accepted, and nothing answers.
    etcd.restart();
    etcd.stop();
    Told::by(&node).assert("endpoint", "bad", &[&etcd.endpoint(), "no answer"]);
    etcd.resume();
    // The next run carries out the spooled DEL.
    node.del("c").config(&range()).run().silent();
    Told::by(&node).assert("spool", "ok", &["no DEL waits"]);
    cluster.assert_whole();
}

#[test]
fn a_host_file_that_does_not_say_who_chooses_is_a_warning() {
    let cluster = Cluster::new();
    let rows = [
        (json!({"allowed": null}), true),
        (json!({"allowed": "any"}), false),
        (json!({"allowed": {}}), false),
        (json!({"allowed": null, "pools_only": true}), false),
    ];
    for (keys, is_warned) in rows {
        let told = Told::by(&cluster.node_with("a", keys.clone()));
        let words = ["allowed", "pools_only", "--print-allowed", "any"];
        assert_eq!(told.has("host-file", "warn", &words), is_warned, "{keys}: {}", told.outcome);
    }
    cluster.assert_clean();
}

#[test]
fn one_endpoint_of_three_that_is_down_is_a_warning() {
    let etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let localhost = etcd.endpoint().replace("127.0.0.1", "localhost");
    let endpoints = json!([etcd.endpoint(), "http://127.0.0.1:1", localhost]);
    let node = cluster.node_with("a", json!({"etcd": {"endpoints": endpoints}}));
    let told = Told::by(&node);
    told.assert("endpoint", "ok", &[&etcd.endpoint(), "leads"])
        .assert("endpoint", "ok", &[&localhost])
        .assert("endpoint", "warn", &["http://127.0.0.1:1", "refused", "another endpoint serves"])
        .assert("write", "ok", &[]);
    // One that belongs to another cluster.
    let other = Etcd::shared();
    node.change_host_file(json!({"etcd": {"endpoints": [etcd.endpoint(), other.endpoint()]}}));
    Told::by(&node).assert("cluster", "bad", &["different etcd clusters"]);
    // The option goes before the host file.
    let told = Told::of(node.cli(["doctor", "-o", "json", "--endpoints", "http://127.0.0.1:1"]));
    told.assert("endpoint", "bad", &["http://127.0.0.1:1"]);
    assert!(!told.outcome.stdout.contains(&etcd.endpoint()), "{}", told.outcome);
    cluster.assert_clean();
}

#[test]
fn certificates_that_end_are_told_before_and_after() {
    let etcd = Etcd::start_mtls();
    let cluster = Cluster::on(&etcd);
    let tls = etcd.tls().expect("it has TLS");
    let client = |(cert, key): (PathBuf, PathBuf)| json!({"etcd": {"cert_file": cert, "key_file": key}});
    let expired = cluster.node_with("past", client(tls.dated_client("past", PAST[0], PAST[1])));
    Told::by(&expired)
        .assert("endpoint", "bad", &["expired or is not valid yet", "renew"])
        .assert("certificate", "bad", &["the client, metes", "expired", "2020-01-02T00:00:00Z", "renew"])
        .assert("certificate", "ok", &["etcd, localhost"])
        .assert("clock", "ok", &[]);
    let early = cluster.node_with("future", client(tls.dated_client("future", FUTURE[0], FUTURE[1])));
    Told::by(&early)
        .assert("certificate", "bad", &["the client, metes", "not valid before 2080-01-01T00:00:00Z"])
        .assert("clock", "bad", &["2080-01-01T00:00:00Z", "set this node's clock"]);
    // Ten years of which days are left.
    let end =
        humantime::format_rfc3339_seconds(SystemTime::now() + Duration::from_secs(5 * 86_400)).to_string();
    let end: String = end.chars().filter(|c| c.is_ascii_digit()).collect::<String>() + "Z";
    let soon = cluster.node_with("soon", client(tls.dated_client("soon", PAST[0], &end)));
    let told = Told::by(&soon);
    told.assert("certificate", "warn", &["the client, metes", " d", "left", "renew"]);
    assert_eq!(told.with("bad"), [""; 0], "{}", told.outcome);

    let etcd = Etcd::start_mtls_with(|tls: &Tls| tls.date_server(PAST[0], PAST[1]));
    let other = Cluster::on(&etcd);
    Told::by(&other.node("a"))
        .assert("endpoint", "bad", &[&etcd.endpoint(), "etcd's certificate has expired"])
        .assert("certificate", "bad", &["etcd, localhost", "expired", "2020-01-02T00:00:00Z"])
        .assert("certificate", "ok", &["the client, metes"]);
    other.leave_unclean();
    cluster.assert_clean();
}

#[test]
fn rights_are_tried_by_a_read_and_a_write() {
    let etcd = Etcd::start_mtls();
    let cluster = Cluster::on(&etcd);
    let tls = etcd.tls().expect("it has TLS");
    let root = cluster.store().as_client(tls, &tls.client("root", "root"));
    root.run(async |client| {
        let nameless = || Some(UserAddOptions::new().with_no_pwd());
        for (role, kind) in [("own", PermissionType::Readwrite), ("viewer", PermissionType::Read)] {
            client.role_add(role).await?;
            let there = Permission::new(kind, cluster.prefix()).with_prefix();
            client.role_grant_permission(role, there).await?;
        }
        for (user, role) in [("root", "root"), ("metes", "own"), ("viewer", "viewer")] {
            client.user_add(user, "", nameless()).await?;
            client.user_grant_role(user, role).await?;
        }
        client.user_add("nobody", "", nameless()).await?;
        client.auth_enable().await
    });
    let by = |name: &str| {
        let (cert, key) = tls.client(&format!("by-{name}"), name);
        Told::by(&cluster.node_with(name, json!({"etcd": {"cert_file": cert, "key_file": key}})))
    };
    let own = by("metes");
    own.assert("write", "ok", &[]).assert("others", "ok", &[]);
    assert_eq!(own.with("bad"), [""; 0], "{}", own.outcome);
    let viewer = by("viewer");
    viewer.assert("read", "ok", &[]).assert(
        "write",
        "bad",
        &["user viewer", cluster.prefix(), "grant-permission"],
    );
    assert_eq!(viewer.with("bad"), ["write"], "{}", viewer.outcome);
    let nobody = by("nobody");
    nobody
        .assert("read", "bad", &["user nobody", cluster.prefix(), "grant-permission"])
        .assert("write", "bad", &["user nobody"])
        .assert("name", "ok", &["node nobody"]);
    assert!(!nobody.with("bad").contains(&"endpoint"), "it is reached: {}", nobody.outcome);
    root.run(async |client| client.auth_disable().await);
    cluster.assert_clean();
}

#[test]
fn an_etcd_without_space_and_one_that_is_too_old_are_named() {
    let etcd = Etcd::with_args(&["--quota-backend-bytes=16777216"]);
    let cluster = Cluster::on(&etcd);
    let node = cluster.node("a");
    node.add("c").config(&range()).run().address();
    cluster.store().fill();
    Told::by(&node)
        .assert("endpoint", "bad", &["refuses writes", "NOSPACE", "compact and defragment"])
        .assert("read", "ok", &[])
        .assert("write", "bad", &["out of space", "compact and defragment"]);
    cluster.assert_whole();

    let old = Etcd::start_version_34();
    let cluster = Cluster::on(&old);
    Told::by(&cluster.node("a")).assert("endpoint", "bad", &["etcd 3.4", "too old", "newer etcd"]);
    cluster.leave_unclean();
}

#[test]
fn a_store_that_hands_out_nothing_is_named_with_the_way_out() {
    let mut etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let node = cluster.node("a");
    let before = etcd.copy_data();
    node.add("c").config(&range()).run().address();
    let store = cluster.store();
    store.change_meta(&json!({"paused": "whereabouts is imported"}));
    Told::by(&node).assert("store", "warn", &["whereabouts is imported", "--resume"]);
    store.change_meta(&json!({"paused": null, "suspect": 1}));
    Told::by(&node).assert("store", "bad", &["suspect", "metes-reconciler adopt"]);
    store.change_meta(&json!({"suspect": null, "min_writer": 99}));
    let newer = Told::by(&node);
    newer.assert("store", "bad", &["version 99", "newer metes"]);
    assert!(!newer.outcome.stdout.contains("a write took"), "it writes nothing there: {}", newer.outcome);
    store.put("v1/meta", "garbage");
    Told::by(&node).assert("store", "bad", &["meta cannot be read", "metes check"]);
    // The node knows a store that has had more.
    etcd.restore_data(&before);
    let told = Told::by(&node);
    told.assert("mark", "bad", &["went back in time", "under suspicion", "metes-reconciler adopt"]).assert(
        "store",
        "note",
        &["nothing is stored"],
    );
    cluster.assert_clean();
}

/// No reconciler of the new cluster frees what a lost DEL leaves under the old name.
#[test]
fn a_cluster_that_was_renamed_is_bad() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    node.add("c").config(&range()).run().address();
    node.change_host_file(json!({"cluster": "another"}));
    Told::by(&node).assert("mark", "bad", &["as a node of cluster test", "write the name of cluster test"]);
    node.change_host_file(json!({"cluster": "test"}));
    Told::by(&node).assert("mark", "ok", &[]);
    node.del("c").config(&range()).run().silent();
    cluster.assert_clean();
}

#[test]
fn another_machine_under_this_nodes_name_is_named() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    for container in ["own", "copied"] {
        node.add(container).config(&range()).run().address();
    }
    let store = cluster.store();
    let key = "v1/owner/test/a/copied/eth0";
    let record = store.get(key).expect("it has a record");
    let mut foreign: Value = serde_json::from_slice(&record).expect("it is JSON");
    foreign["machine"] = json!("f".repeat(32));
    store.put(key, foreign.to_string());
    let told = Told::by(&node);
    told.assert(
        "others",
        "warn",
        &["another machine, which records name ffffffff", "1 record", "container copied", "node_name"],
    );
    assert_eq!(told.with("bad"), [""; 0], "{}", told.outcome);
    store.put(key, record);
    Told::by(&node).assert("others", "ok", &[]);
    for container in ["own", "copied"] {
        node.del(container).config(&range()).run().silent();
    }
    cluster.assert_clean();
}

#[test]
fn files_that_cannot_be_used_are_named_and_the_rest_is_looked_at() {
    let etcd = Etcd::start_mtls();
    let cluster = Cluster::on(&etcd);
    let node = cluster.node("a");
    let good = fs::read_to_string(node.host_file()).expect("a host file");
    let set_mode = |path: PathBuf, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode can be set");
    };
    let expect = |row: &str, check, verdict, words: &[&str], goes_on: bool| {
        let told = Told::by(&node);
        let is_right = told.has(check, verdict, words) && goes_on == told.has("name", "ok", &["node a"]);
        (!is_right).then(|| format!("{row}: {}", told.outcome))
    };
    let mut failures = Vec::new();
    node.write_host_file("{\"etcd\": {},}");
    failures.push(expect("a comma too many", "host-file", "bad", &["line 1"], false));
    node.write_host_file(&good);
    set_mode(node.host_file(), 0o666);
    failures.push(expect("a host file for all", "host-file", "bad", &["0666", "belong to root"], false));
    node.write_host_file(&good);
    node.change_host_file(json!({"allowd": {}}));
    let path = node.host_file().display().to_string();
    failures.push(expect("a slip", "host-file", "bad", &[&path, "allowd", "allowed"], true));
    node.write_host_file(&good);
    node.change_host_file(json!({"colour": "red", "log_level": "loud"}));
    failures.push(expect("an unknown key", "host-file", "warn", &["colour"], true));
    let expected = ["`log_level` must be error, warning, info or debug"];
    failures.push(expect("no level", "host-file", "warn", &expected, true));
    node.write_host_file(&good);
    node.change_host_file(json!({"etcd": {"endpoints": ["https://127.0.0.1:1", "http://192.0.2.1:2379"]}}));
    let refused = ["plain http", "allow_plaintext"];
    failures.push(expect("plain http", "host-file", "bad", &refused, true));
    failures.push(expect("the same", "endpoint", "bad", &["https://127.0.0.1:1", "refused"], true));
    node.write_host_file(&good);
    let key = cluster.folder().join("other.key");
    fs::copy(etcd.tls().expect("it has TLS").client_key(), &key).expect("a key can be copied");
    set_mode(key.clone(), 0o644);
    node.change_host_file(json!({"etcd": {"key_file": key}}));
    failures.push(expect("a key for all", "file", "bad", &["0644", "other.key"], true));
    let accepts = [&*etcd.endpoint(), "accepts connections"];
    failures.push(expect("the same", "endpoint", "note", &accepts, true));
    node.change_host_file(json!({"etcd": {"key_file": "/nowhere/client.key"}}));
    failures.push(expect("no key", "file", "bad", &["/nowhere/client.key", "does not exist"], true));
    let other = Tls::create(&cluster.folder().join("foreign"));
    node.change_host_file(json!({"etcd": {"key_file": other.client_key()}}));
    failures.push(expect("another's key", "file", "bad", &["do not belong together"], true));
    node.write_host_file(&good);
    failures.push(expect("as before", "endpoint", "ok", &[], true));
    node.change_host_file(json!({"spool_dir": "/proc/nope"}));
    let refused = ["no run can keep anything in /proc/nope/", "written in /proc: ", "`spool_dir`"];
    failures.push(expect("a spool_dir that cannot be made", "spool", "bad", &refused, true));
    failures.push(expect("the same", "mark", "note", &["no run can keep it"], true));
    node.change_host_file(json!({"spool_dir": node.host_file()}));
    failures.push(expect("a spool_dir that is a file", "spool", "bad", &["is not a folder"], true));
    report(failures);
    let none = Told::of(node.cli(["doctor", "-o", "json", "--config", "/nowhere/metes.conf"]));
    none.assert("host-file", "bad", &["/nowhere/metes.conf", "does not exist"]);
    cluster.assert_clean();
}

/// The key that it writes goes with its lease, if it is killed in between.
#[test]
fn what_a_killed_doctor_leaves_ends_by_itself() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    let killed = support::Run::new(support::failing_metes())
        .env("METES_CONF", node.host_file())
        .env("METES_FAIL", "doctor.answered=kill")
        .arguments(["doctor"])
        .run();
    assert!(!killed.succeeded(), "{killed}");
    assert_eq!(cluster.store().keys("v1/fence/").len(), 1, "{killed}");
    assert!(cluster.check().succeeded());
    wait_for("the key to end with its lease", SOON, || match cluster.store().keys("") {
        keys if keys.is_empty() => Ok(()),
        keys => Err(format!("{keys:?}")),
    });
    cluster.assert_clean();
}

/// An address of this machine that is not one of the loopback: the kernel takes it for 127.0.0.1.
#[test]
fn an_etcd_that_lets_anybody_in_is_told_where_it_is_reached_over_a_network() {
    let etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let endpoint = etcd.endpoint().replace("127.0.0.1", "0.0.0.0");
    assert_ne!(endpoint, etcd.endpoint());
    let keys = json!({"allow_plaintext": true, "etcd": {"endpoints": [endpoint]}});
    let node = cluster.node_with("over-a-network", keys);
    Told::by(&node).assert("users", "bad", &["etcd asks for no users", "docs/security.md"]);
    let at_home = Told::by(&cluster.node("at-home"));
    assert!(at_home.lines.iter().all(|line| line["check"] != "users"), "{}", at_home.outcome);
    let check = node.cli(["check"]);
    assert!(check.succeeded() && check.stderr.contains("etcd asks for no users"), "{check}");
    let check = cluster.node("at-home").cli(["check"]);
    assert!(check.stderr.is_empty(), "{check}");
    cluster.assert_clean();
    cluster.store().run(async |client| {
        client.user_add("root", "a password", None).await?;
        client.user_grant_role("root", "root").await?;
        client.auth_enable().await
    });
    Told::by(&node).assert("users", "ok", &["etcd asks for users"]);
}
