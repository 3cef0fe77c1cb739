//! Mistakes in the way to reach etcd: a fault that cannot get better is named with its remedy, soon, and by all
//! programs in the same words; one that may get better is tried.

use std::fs;
use std::io::{Read, Write};
use std::iter;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use etcd_client::{Permission, PermissionType, UserAddOptions};
use metes_core::limits;
use serde_json::{Value, json};
use support::{
    Cluster, Etcd, EtcdOptions, KubeApi, Outcome, Reachable, Tls, in_parallel, network, network_as, report,
};

/// An error that cannot get better is told within this time.
const WITHIN: Duration = Duration::from_secs(2);
/// The same for a pass of the reconciler, which also reads the API.
const PASS_WITHIN: Duration = Duration::from_secs(6);
/// The time for which a run tries when things may get better, at least and at most.
const PATIENCE: [Duration; 2] = [Duration::from_secs(4), Duration::from_secs(9)];
const PAST: [&str; 2] = ["20200101000000Z", "20200102000000Z"];
const FUTURE: [&str; 2] = ["20800101000000Z", "20800102000000Z"];

fn range() -> Value {
    network(json!({"range": "10.0.0.0/24"}))
}

/// Checks that a run failed in time with this code, and with all words in `msg` and `details`.
fn judge(row: &str, outcome: &Outcome, code: u64, msg: &[&str], details: &[&str]) -> Option<String> {
    let error = serde_json::from_str::<Value>(&outcome.stdout).unwrap_or_default();
    let says = |key: &str, words: &[&str]| {
        let text = error[key].as_str().unwrap_or_default();
        words.iter().all(|word| text.contains(word))
    };
    let is_right = outcome.error_code() == Some(code) && says("msg", msg) && says("details", details);
    (!is_right || outcome.elapsed > WITHIN).then(|| format!("{row}: {outcome}"))
}

/// An endpoint with another scheme.
fn with_scheme(scheme: &str, endpoint: &str) -> String {
    let (_, address) = endpoint.split_once("://").expect("an endpoint has a scheme");
    format!("{scheme}://{address}")
}

/// A server that is no etcd: it says `words`, after it was spoken to or before.
fn stranger(words: &'static str, is_first: bool) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is a free port");
    let address = listener.local_addr().expect("it has one");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            thread::spawn(move || {
                let mut read = [0; 64];
                // A client that has left is none of its business.
                let _ = if is_first { Ok(0) } else { stream.read(&mut read) };
                let _ = stream.write_all(words.as_bytes());
                while is_first && stream.read(&mut read).is_ok_and(|count| count > 0) {}
            });
        }
    });
    address
}

/// An address that takes no connection and refuses none, as a host that is down. It ends with the sockets.
fn silent_address() -> (SocketAddr, Vec<TcpStream>, TcpListener) {
    /// An answer on loopback comes sooner.
    const ANSWERED: Duration = Duration::from_millis(100);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is a free port");
    let address = listener.local_addr().expect("it has one");
    // The kernel drops new connections when as many wait for `accept` as may.
    rustix::net::listen(&listener, 0).expect("it listens already");
    let waiting = iter::from_fn(|| TcpStream::connect_timeout(&address, ANSWERED).ok()).collect();
    (address, waiting, listener)
}

const BANNER: &str = "SSH-2.0-OpenSSH_9.2p1\r\n";
const HTTP_1: &str = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

#[test]
fn a_port_that_speaks_something_else_is_named() {
    let plain = Etcd::start();
    let mut secured = Etcd::start_mtls();
    let tls = secured.tls().expect("it has TLS").clone();
    let peers = format!("https://{}", secured.peer_address());
    let file = |path: PathBuf| path.display().to_string();
    secured.restart_with(&[
        &format!("--listen-peer-urls={peers}"),
        &format!("--peer-trusted-ca-file={}", file(tls.ca())),
        &format!("--peer-cert-file={}", file(tls.server_cert())),
        &format!("--peer-key-file={}", file(tls.server_key())),
    ]);
    let cluster = Cluster::on(&secured);
    let no_tls = json!({"ca_file": null, "cert_file": null, "key_file": null});
    let (http_1, banner) = (stranger(HTTP_1, false), stranger(BANNER, true));
    let rows = [
        ("http to TLS", with_scheme("http", &secured.endpoint()), "this port speaks TLS", "https://"),
        ("https to a plain port", with_scheme("https", &plain.endpoint()), "does not speak TLS", "http://"),
        ("the port for members", format!("http://{}", plain.peer_address()), "HTTP/2", "2379"),
        ("the port for members, with TLS", peers, "HTTP/2", "2379"),
        (
            "https to the port for members",
            format!("https://{}", plain.peer_address()),
            "not speak TLS",
            "http://",
        ),
        ("HTTP/1", format!("http://{http_1}"), "HTTP/2", "2379"),
        ("https to HTTP/1", format!("https://{http_1}"), "does not speak TLS", "http://"),
        ("a banner", format!("http://{banner}"), "another protocol", "2379"),
        ("https to a banner", format!("https://{banner}"), "another protocol", "2379"),
    ];
    report(in_parallel(4, rows.into_iter().enumerate(), |(i, (row, endpoint, what, remedy))| {
        let node = cluster.node_with(&format!("n{i}"), json!({"etcd": {"endpoints": [endpoint]}}));
        if endpoint.starts_with("http://") {
            node.change_host_file(json!({"etcd": no_tls}));
        }
        judge(row, &node.add("c").config(&range()).run(), 11, &[&endpoint, what], &[remedy])
    }));
    // It speaks HTTP/2, too.
    let api = KubeApi::shared().access();
    let keys = json!({"etcd": {"endpoints": [api.url], "ca_file": api.authority}});
    let add = cluster.node_with("api", keys).add("c").config(&range()).run();
    report([judge("kube-apiserver", &add, 11, &[&api.url, "is not etcd's service"], &["2379"])]);
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

/// A server with TLS whose certificates `prepare` has changed, and a cluster on it.
fn secured(prepare: impl Fn(&Tls)) -> (Etcd, Cluster) {
    let etcd = Etcd::start_mtls_with(prepare);
    let cluster = Cluster::on(&etcd);
    (etcd, cluster)
}

#[test]
fn a_certificate_of_etcd_that_does_not_do_is_named() {
    let elsewhere = Ipv4Addr::new(127, 0, 0, 9);
    let rows = [
        ("expired", secured(|tls| tls.date_server(PAST[0], PAST[1])), ["has expired", "renew"]),
        ("not valid yet", secured(|tls| tls.date_server(FUTURE[0], FUTURE[1])), ["not valid yet", "clock"]),
        ("another name", secured(|tls| tls.renew_server("server", elsewhere)), ["127.0.0.9", "server_name"]),
        ("version 1", secured(Tls::make_server_version_1), ["cannot be used", "version 3"]),
    ];
    report(in_parallel(2, &rows, |(row, (etcd, cluster), [what, remedy])| {
        let add = cluster.node("a").add("c").config(&range()).run();
        // Nobody reaches this store.
        cluster.leave_unclean();
        judge(row, &add, 11, &[&etcd.endpoint(), what], &[remedy])
    }));
}

/// A node with an identity is told who gives it another one. What it cannot free is freed when it has that.
#[test]
fn a_nodes_own_certificate_that_does_not_do_is_the_signers_business() {
    let lists = tempfile::tempdir().expect("a folder can be made");
    let list = lists.path().join("list.der");
    let etcd = Etcd::start_with(EtcdOptions {
        mtls: true,
        args: vec![format!("--client-crl-file={}", list.display())],
        ..EtcdOptions::default()
    });
    let tls = etcd.tls().expect("it has TLS");
    let cluster = Cluster::on(&etcd);
    let user = "metes-node/c1/n1";
    let foreign = Tls::create(&cluster.folder().join("foreign"));
    let revoked = tls.client("revoked", user);
    tls.revoke(&revoked.0, &list);
    let rows = [
        ("expired", tls.dated_client_of("past", user, PAST), "expired or is not valid yet"),
        ("of tomorrow", tls.dated_client_of("future", user, FUTURE), "expired or is not valid yet"),
        ("of another authority", foreign.client("another", user), "does not trust the CA"),
        ("revoked", revoked, "as it does if the client certificate is revoked"),
    ];
    report(in_parallel(4, rows.into_iter().enumerate(), |(i, (row, (cert, key), words))| {
        let node = cluster.node_with(&format!("n{i}"), json!({"etcd": {"cert_file": cert, "key_file": key}}));
        let signer = "metes-signer gives this node another certificate";
        let failed = judge(row, &node.add("c").config(&range()).run(), 11, &[words], &[signer]);
        node.del("c").config(&range()).run().silent();
        let spooled = node.spooled_dels().len();
        failed.or_else(|| (spooled != 1).then(|| format!("{row}: {spooled} DELs wait")))
    }));
    cluster.assert_nothing_held();
    cluster.leave_unclean();
}

#[test]
fn files_for_tls_that_do_not_do_are_named() {
    let (etcd, cluster) = secured(|_| {});
    let tls = etcd.tls().expect("it has TLS");
    let old = Etcd::start_with(EtcdOptions {
        mtls: true,
        args: vec!["--tls-max-version=TLS1.2".to_owned()],
        ..EtcdOptions::default()
    });
    let foreign = Tls::create(&cluster.folder().join("foreign"));
    let client = |(cert, key): (PathBuf, PathBuf)| json!({"cert_file": cert, "key_file": key});
    let no_client = json!({"cert_file": null, "key_file": null});
    let at_old = json!({
        "endpoints": [old.endpoint()], "ca_file": old.tls().expect("it has TLS").ca(), "cert_file": null,
        "key_file": null,
    });
    let garbage = cluster.folder().join("garbage.pem");
    let pem = "-----BEGIN CERTIFICATE-----\nMAMCAQA=\n-----END CERTIFICATE-----\n";
    fs::write(&garbage, pem).expect("a file can be written");
    let key = tls.client_key();
    let endpoint = etcd.endpoint();
    let rows = [
        ("no client certificate", no_client, 11, [&endpoint, "wants a client certificate"], "cert_file"),
        ("the same with TLS 1.2", at_old, 11, [&old.endpoint(), "wants a client certificate"], "cert_file"),
        (
            "a client of another CA",
            client((foreign.client_cert(), foreign.client_key())),
            11,
            [&endpoint, "CA of the client certificate"],
            "--trusted-ca-file",
        ),
        (
            "an expired client",
            client(tls.dated_client("past", PAST[0], PAST[1])),
            11,
            [&endpoint, "expired"],
            "renew",
        ),
        (
            "a client of tomorrow",
            client(tls.dated_client("future", FUTURE[0], FUTURE[1])),
            11,
            [&endpoint, "not valid yet"],
            "clock",
        ),
        (
            "a certificate for servers",
            client((tls.server_cert(), tls.server_key())),
            11,
            [&endpoint, "refuses the client certificate"],
            "clientAuth",
        ),
        (
            "version 1",
            client(tls.version_1_client("old")),
            7,
            ["cert_file", "not of X.509 version 3"],
            "openssl",
        ),
        (
            "another's key",
            json!({"key_file": foreign.client_key()}),
            7,
            ["cert_file", "do not belong together"],
            "key_file must hold the key",
        ),
        ("another CA", json!({"ca_file": foreign.ca()}), 11, [&endpoint, "not signed by a CA"], "ca_file"),
        (
            "a key for the CA",
            json!({"ca_file": key}),
            7,
            ["ca_file", "does not hold certificates"],
            "CERTIFICATE",
        ),
        (
            "no CA in the file",
            json!({"ca_file": garbage}),
            7,
            ["ca_file", "no certificate that can be"],
            "CA",
        ),
        (
            "another name",
            json!({"server_name": "other.test"}),
            11,
            ["not for other.test", "etcd.test"],
            "server_name",
        ),
    ];
    report(in_parallel(4, rows.into_iter().enumerate(), |(i, (row, keys, code, msg, details))| {
        let node = cluster.node_with(&format!("n{i}"), json!({"etcd": keys}));
        judge(row, &node.add("c").config(&range()).run(), code, &msg, &[details])
    }));
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

/// A password in a file of its own.
fn password(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, text).expect("a file can be written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("a mode can be set");
    path
}

#[test]
fn a_user_who_may_not_is_named_with_the_prefix() {
    const SECRET: &str = "open sesame";
    let etcd = Etcd::start_with_cheap_passwords();
    let cluster = Cluster::on(&etcd);
    let prefix = cluster.prefix();
    let good = password(cluster.folder(), "good", SECRET);
    let wrong = password(cluster.folder(), "wrong", "not it");
    let login = |user: &str, file: &Path| json!({"etcd": {"username": user, "password_file": file}});
    let judge_both = |(row, keys, msg, details): (&str, Value, &[&str], &str)| {
        let node = cluster.node_with("a", keys);
        let [add, del] = [node.add("c"), node.del("c")].map(|run| run.config(&range()).run());
        [add, del].map(|outcome| judge(row, &outcome, 104, msg, &[details]))
    };
    let early = login("metes", &good);
    let early =
        judge_both(("no authentication", early, &["user metes", "is not enabled"], "etcdctl auth enable"));
    cluster.store().run(async |client| {
        for user in ["root", "metes"] {
            client.user_add(user, SECRET, None).await?;
        }
        client.user_grant_role("root", "root").await?;
        client.auth_enable().await
    });
    let rows: [(&str, Value, &[&str], &str); 4] = [
        ("a wrong password", login("metes", &wrong), &["user metes", "password is wrong"], "password_file"),
        ("an unknown user", login("nobody", &good), &["user nobody", "not known"], "username"),
        ("no user", json!({}), &["wants a user", prefix, "none is named"], "username"),
        ("a user without rights", login("metes", &good), &["user metes", prefix], "grant-permission"),
    ];
    report(rows.into_iter().flat_map(judge_both).chain(early));
    cluster.store().as_user("root", SECRET).run(async |client| client.auth_disable().await);
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

#[test]
fn a_user_by_certificate_is_named_by_its_common_name() {
    let (etcd, cluster) = secured(|_| {});
    let tls = etcd.tls().expect("it has TLS");
    let root = cluster.store().as_client(tls, &tls.client("root", "root"));
    root.run(async |client| {
        let nameless = || Some(UserAddOptions::new().with_no_pwd());
        client.role_add("elsewhere").await?;
        let there = Permission::new(PermissionType::Readwrite, "/elsewhere/").with_prefix();
        client.role_grant_permission("elsewhere", there).await?;
        for (user, role) in [("root", "root"), ("metes-node", "elsewhere")] {
            client.user_add(user, "", nameless()).await?;
            client.user_grant_role(user, role).await?;
        }
        client.auth_enable().await
    });
    let node = cluster.node("a");
    let words = ["user metes-node (the common name", cluster.prefix()];
    let add = judge("ADD", &node.add("c").config(&range()).run(), 104, &words, &["grant-permission"]);
    let list = node.cli(["list"]);
    let says = |words: &[&str]| words.iter().all(|word| list.stderr.contains(word));
    let list = (!says(&words) || !says(&["grant-permission"])).then(|| list.to_string());
    report([add, list]);
    root.run(async |client| client.auth_disable().await);
    cluster.assert_clean();
}

#[test]
fn all_verbs_commands_and_the_reconciler_say_the_same() {
    let (etcd, cluster) = secured(|_| {});
    let node = cluster.node("a");
    node.add("held").config(&range()).run().address();
    node.add("known").config(&range()).run().address();
    let plain = with_scheme("http", &etcd.endpoint());
    node.change_host_file(json!({
        "etcd": {"endpoints": [plain], "ca_file": null, "cert_file": null, "key_file": null},
    }));
    let (what, remedy) = ("this port speaks TLS", "write https://");
    let status = network_as("1.1.0", "net", json!({"range": "10.0.0.0/24"}));
    let mut failures = vec![
        // It knows the range, and its first request is its commit.
        judge("ADD", &node.add("c").config(&range()).run(), 11, &[&plain, what], &[remedy]),
        judge("STATUS", &node.status().config(&status).run(), 50, &[&plain, what], &[remedy]),
    ];
    let del = node.del("held").config(&range()).run();
    let is_logged = [&plain, what, remedy].iter().all(|word| del.stderr.contains(*word));
    let is_told = del.succeeded() && is_logged && del.elapsed < WITHIN;
    failures.push((!is_told || node.spooled().is_empty()).then(|| format!("DEL: {del}")));
    let pass = cluster.reconciler(KubeApi::shared()).config(node.host_file()).run();
    for (row, outcome, within) in [("list", node.cli(["list"]), WITHIN), ("a pass", pass, PASS_WITHIN)] {
        let is_told = [&plain, what, remedy].iter().all(|word| outcome.stderr.contains(*word));
        let is_right = is_told && !outcome.succeeded() && outcome.elapsed < within;
        failures.push((!is_right).then(|| format!("{row}: {outcome}")));
    }
    report(failures);
    // The next run carries out the spooled DEL.
    let node = cluster.node("a");
    node.del("known").config(&range()).run().silent();
    node.del("c").config(&range()).run().silent();
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

#[test]
fn one_wrong_endpoint_of_three_fails_no_run_and_is_in_the_log() {
    /// Enough that one of them begins with the wrong endpoint, which each does by one chance in three.
    const RUNS: usize = 40;
    let etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let log = cluster.folder().join("log");
    let wrong = format!("http://{}", etcd.peer_address());
    let localhost = etcd.endpoint().replace("127.0.0.1", "localhost");
    let endpoints = json!([wrong, etcd.endpoint(), localhost]);
    let node = cluster.node_with("a", json!({"log_file": log}));
    // A node that knows no store yet needs more than half of the endpoints.
    node.add("first").config(&range()).run().ok();
    node.del("first").config(&range()).run().silent();
    node.change_host_file(json!({"etcd": {"endpoints": endpoints}}));
    let is_named = || {
        let log = fs::read_to_string(&log).unwrap_or_default();
        log.lines().any(|line| line.contains(&wrong) && line.contains("2379"))
    };
    let mut runs = 0;
    while !is_named() {
        assert!(runs < RUNS, "{wrong} is not in the log");
        for run in [node.add("c"), node.del("c")] {
            let outcome = run.config(&range()).run();
            assert!(outcome.succeeded() && outcome.elapsed < WITHIN, "{outcome}");
        }
        runs += 1;
    }
    // If none serves, each is named.
    let other = format!("http://{}", stranger(BANNER, true));
    node.change_host_file(json!({"etcd": {"endpoints": [wrong, other]}}));
    let add = node.add("c").config(&range()).run();
    report([judge(
        "two wrong ones",
        &add,
        11,
        &[&wrong, &other, "not speak HTTP/2", "another protocol"],
        &["2379"],
    )]);
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

#[test]
fn what_may_get_better_is_tried_for_its_time() {
    let etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let wrong = format!("http://{}", etcd.peer_address());
    let silent_ones = [(); 3].map(|()| silent_address());
    let silent = silent_ones.each_ref().map(|(address, ..)| format!("http://{address}"));
    let rows = [
        ("refused", json!(["http://127.0.0.1:1"]), &["http://127.0.0.1:1", "refused"][..]),
        // The resolver alone decides how soon it is known that there is none.
        ("no such name", json!(["http://nosuch.invalid:2379"]), &["http://nosuch.invalid:2379"]),
        ("no route", json!(["http://192.0.2.1:2379"]), &["http://192.0.2.1:2379"]),
        ("no answer", json!([silent[0]]), &[&silent[0], "no connection in 1500 ms"]),
        ("no answer from three", json!(silent), &["no connection in 1500 ms"]),
        // One of them may come up.
        (
            "one is wrong, one is down",
            json!([wrong, "http://127.0.0.1:1"]),
            &[&wrong, "127.0.0.1:1", "HTTP/2"],
        ),
    ];
    report(in_parallel(rows.len(), rows.into_iter().enumerate(), |(i, (row, endpoints, words))| {
        let keys = json!({"etcd": {"endpoints": endpoints}, "allow_plaintext": true});
        let add = cluster.node_with(&format!("n{i}"), keys).add("c").config(&range()).run();
        let text = add.error(11)["msg"].to_string();
        let is_right =
            words.iter().all(|word| text.contains(word)) && (PATIENCE[0]..PATIENCE[1]).contains(&add.elapsed);
        (!is_right).then(|| format!("{row}: {add}"))
    }));
    // A DEL has a spool and tries for less, and each endpoint once.
    for endpoints in [&silent[..1], &silent] {
        let keys = json!({"etcd": {"endpoints": endpoints}, "allow_plaintext": true});
        let node = cluster.node_with(&format!("d{}", endpoints.len()), keys);
        let del = node.del("c").config(&range()).run();
        assert!(del.succeeded() && del.elapsed < limits::DEL_DEADLINE, "{del}");
        assert_eq!(node.spooled().len(), 1);
    }
    cluster.assert_clean();
}
