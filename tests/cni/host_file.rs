//! The host file: every key, the faults that make it untrusted, and the rights that it takes from network
//! configurations.

use std::fs;
use std::io::ErrorKind;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::time::Duration;

use etcd_client::{Permission, PermissionType};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use serde_json::{Value, json};

use support::{Cluster, Etcd, KubeApi, Node, Outcome, Run, metes, network, network_as, report, wait_for};

const SECRET: &str = "s3cret-content";
/// The longest time that the test itself waits for something.
const SOON: Duration = Duration::from_secs(20);

/// `expected` is `ok`, or a code and words that its text has.
fn judge(row: &str, expected: &str, outcome: &Outcome) -> Option<String> {
    let mut words = expected.split(' ');
    let fits = match words.next() {
        Some("ok") => outcome.succeeded(),
        code => {
            let found = outcome.error_code().map(|code| code.to_string());
            found.as_deref() == code && words.all(|word| outcome.stdout.contains(word))
        }
    };
    let leaks = outcome.stdout.contains(SECRET) || outcome.stderr.contains(SECRET);
    (!fits || leaks).then(|| format!("{row}: expected {expected} and no secret, got {outcome}"))
}

fn range() -> Value {
    network(json!({"range": "10.0.0.0/24"}))
}

/// ADD and DEL, so that the next row finds nothing.
fn add_and_del(row: &str, expected: &str, node: &Node) -> Option<String> {
    let failure = judge(row, expected, &node.add("a").config(&range()).run());
    let del = node.del("a").config(&range()).run();
    failure.or_else(|| (expected == "ok").then(|| judge(row, "ok", &del)).flatten())
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode can be set");
}

fn secret_file(folder: &Path, name: &str, mode: u32) -> std::path::PathBuf {
    let path = folder.join(name);
    fs::write(&path, SECRET).expect("a file can be written");
    set_mode(&path, mode);
    path
}

/// An endpoint where nobody listens.
fn dead_endpoint() -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    format!("http://{}", listener.local_addr().expect("it has an address"))
}

const USUAL_PLACE: &str = "/etc/cni/net.d/metes.d/metes.conf";

/// Hides the folder where state is kept by default. A mark there would make a real installation on this machine refuse
/// its first ADD.
const HIDDEN: &str = "mount -t tmpfs none /var/lib && exec \"$0\"";

/// A plugin run without METES_CONF.
fn without_host_file(run: Run) -> Run {
    assert!(!Path::new(USUAL_PLACE).exists(), "this machine has a host file");
    let program = metes().display().to_string();
    run.without("METES_CONF").program("unshare").arguments(["--mount", "sh", "-e", "-c", HIDDEN, &program])
}

/// The same, where the runtime lets networks say where etcd is.
fn by_network(run: Run) -> Run {
    without_host_file(run).env("METES_ALLOW_NAD_ETCD", "1")
}

/// A server of whoever writes networks.
struct Tenants(TcpListener);

impl Tenants {
    fn new() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        listener.set_nonblocking(true).expect("it need not block");
        Self(listener)
    }

    fn host(&self) -> String {
        self.0.local_addr().expect("it has an address").to_string()
    }

    /// Everybody who asks it has ended.
    #[track_caller]
    fn assert_never_asked(&self) {
        assert_eq!(self.0.accept().map(|_| ()).map_err(|e| e.kind()), Err(ErrorKind::WouldBlock));
    }
}

#[test]
fn invalid_host_files() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    let etcd = |keys: Value| json!({"etcd": keys});
    let rows = [
        ("not JSON", "{\"node_name\": \"s3cret-content\",".to_owned(), "7 metes.conf"),
        (
            "a comma too many",
            "{\"node_name\": \"s3cret-content\",}".to_owned(),
            "7 metes.conf trailing comma at line 1 column 32",
        ),
        (
            "a comma too few",
            "{\"node_name\": \"s3cret-content\"\n\"cluster\": \"a\"}".to_owned(),
            "7 metes.conf expected `,` line 2 column 1",
        ),
        (
            "YAML",
            "node_name: s3cret-content\n".to_owned(),
            "7 metes.conf no { at line 1 begins YAML is not read",
        ),
        ("YAML in braces", "{node_name: s3cret-content}".to_owned(), "7 metes.conf key must be a string"),
        ("empty", String::new(), "7 metes.conf is empty"),
        ("an array", "[\"s3cret-content\"]".to_owned(), "7 metes.conf"),
        ("etcd", json!({"etcd": SECRET}).to_string(), "7 etcd"),
        ("etcd.endpoints, type", etcd(json!({"endpoints": SECRET})).to_string(), "7 endpoints"),
        (
            "etcd.endpoints, scheme",
            etcd(json!({"endpoints": ["ftp://s3cret-content:1"]})).to_string(),
            "7 endpoints",
        ),
        ("etcd.endpoints, port", etcd(json!({"endpoints": ["http://127.0.0.1"]})).to_string(), "7 endpoints"),
        ("etcd.prefix", etcd(json!({"prefix": "a b"})).to_string(), "7 prefix"),
        ("etcd.prefix, dots", etcd(json!({"prefix": "/a/../b/"})).to_string(), "7 prefix"),
        ("etcd.ca_file without https", etcd(json!({"ca_file": "/ca.pem"})).to_string(), "7 https"),
        (
            "https without etcd.ca_file",
            etcd(json!({"endpoints": ["https://127.0.0.1:1"]})).to_string(),
            "7 ca_file",
        ),
        (
            "etcd.cert_file without key_file",
            etcd(json!({"endpoints": ["https://127.0.0.1:1"], "ca_file": "/ca", "cert_file": "/c"}))
                .to_string(),
            "7 cert_file key_file",
        ),
        ("etcd.ca_file, relative", etcd(json!({"ca_file": "ca.pem"})).to_string(), "7 ca_file"),
        ("etcd.server_name", etcd(json!({"server_name": "a b"})).to_string(), "7 server_name"),
        ("etcd.username alone", etcd(json!({"username": SECRET})).to_string(), "7 username"),
        ("etcd.password_file alone", etcd(json!({"password_file": "/p"})).to_string(), "7 username"),
        (
            "etcd.password_file, relative",
            etcd(json!({"username": "u", "password_file": "p"})).to_string(),
            "7 password_file",
        ),
        ("etcd_password alone", json!({"etcd_password": SECRET}).to_string(), "7 username"),
        (
            "etcd_host and endpoints",
            json!({"etcd": {"endpoints": ["http://127.0.0.1:1"]}, "etcd_host": "127.0.0.1:1"}).to_string(),
            "7 etcd_host endpoints",
        ),
        ("node_name", json!({"node_name": "a/b"}).to_string(), "7 node_name"),
        ("node_name, dots", json!({"node_name": ".."}).to_string(), "7 node_name"),
        ("cluster", json!({"cluster": 5}).to_string(), "7 cluster"),
        ("spool_dir", json!({"spool_dir": "spool"}).to_string(), "7 spool_dir"),
        ("gc_grace_s, negative", json!({"gc_grace_s": -1}).to_string(), "7 gc_grace_s"),
        ("gc_grace_s, text", json!({"gc_grace_s": "300"}).to_string(), "7 gc_grace_s"),
        ("log_file", json!({"log_file": 5}).to_string(), "7 log_file"),
        ("allow_plaintext", json!({"allow_plaintext": SECRET}).to_string(), "7 allow_plaintext"),
        ("allowed", json!({"allowed": ["10.0.0.0/8"]}).to_string(), "7 allowed"),
        ("allowed, word", json!({"allowed": "all"}).to_string(), "7 allowed any --print-allowed"),
        ("allowed, prefix", json!({"allowed": {"default": ["10.0.0.0/40"]}}).to_string(), "7 allowed"),
        ("allowed, network", json!({"allowed": {"a/b": ["10.0.0.0/8"]}}).to_string(), "7 allowed"),
    ];
    report(rows.into_iter().map(|(row, text, expected)| {
        node.write_host_file(text);
        judge(row, expected, &node.add("a").config(&range()).run())
    }));
    cluster.assert_clean();
}

/// If a key decides which addresses may be given and metes does not understand it, no address is given or kept.
#[test]
fn an_add_does_not_go_by_an_unclear_host_file() {
    let cluster = Cluster::new();
    let node = cluster.node_with("a", json!({"allowed": null}));
    let good = fs::read_to_string(node.host_file()).expect("it is there");
    let with = |keys: &str| format!("{},{keys}}}", good.strip_suffix('}').expect("it is an object"));
    let rows = [
        ("a slip", with(r#""alowed":{"default":["10.9.0.0/16"]}"#), "7 alowed allowed"),
        (
            "a key twice",
            with(r#""allowed":{"default":["10.9.0.0/16"]},"Allowed":{"default":["10.0.0.0/8"]}"#),
            "7 allowed Allowed",
        ),
        (
            "a network twice",
            with(r#""allowed":{"default":["10.9.0.0/16"],"default":["10.0.0.0/8"]}"#),
            "7 allowed.default twice",
        ),
        ("a slip in etcd", good.replace(r#""prefix""#, r#""prefixs""#), "7 prefixs `prefix`"),
        (
            "etcd's at the top level",
            with(r#""endpoints":["http://127.0.0.1:1"]"#),
            "7 endpoints `etcd.endpoints`",
        ),
        (
            "the top level's in etcd",
            good.replace(r#""prefix""#, r#""allow_plaintext":true,"prefix""#),
            "7 etcd.allow_plaintext `allow_plaintext`",
        ),
        ("a slip of the cluster", good.replace(r#""cluster""#, r#""clustr""#), "7 clustr `cluster`"),
        ("another word for the node", good.replace(r#""node_name""#, r#""node""#), "7 node `node_name`"),
    ];
    let of_store =
        ["a slip in etcd", "etcd's at the top level", "a slip of the cluster", "another word for the node"];
    report(rows.into_iter().flat_map(|(row, text, expected)| {
        node.write_host_file(&good);
        let before = judge(row, "ok", &node.add("held").config(&range()).run());
        node.write_host_file(text);
        let add = judge(row, expected, &node.add("a").config(&range()).run());
        // A DEL must not fail over that, and its log says it. But it must not look into another store, or for others.
        let word = expected.split(' ').nth(1).expect("a word");
        let may_go_on = !of_store.contains(&row);
        let check = node.check("held").config(&range()).run();
        let del = node.del("held").config(&range()).run();
        let judge_other = |outcome: &Outcome| {
            let is_logged = !may_go_on || outcome.stderr.contains("WARN") && outcome.stderr.contains(word);
            let wrong = judge(row, if may_go_on { "ok" } else { expected }, outcome);
            wrong.or_else(|| (!is_logged).then(|| format!("{row}: {outcome}")))
        };
        let [check, del] = [check, del].map(|outcome| judge_other(&outcome));
        let status = node.status().config(&network_as("1.1.0", "net", json!({"range": "10.0.0.0/24"}))).run();
        let status = judge(row, &expected.replacen('7', "50", 1), &status);
        // A person who runs a command means the store of this file, not the one that its other keys name.
        let told = |outcome: Outcome| {
            let is_told = !outcome.succeeded() && outcome.stderr.contains(word);
            (!is_told).then(|| format!("{row}: {outcome}"))
        };
        let hold = node.cli(["hold", "10.0.0.9", "--note", "x"]);
        let pass = cluster.reconciler(KubeApi::shared()).config(node.host_file()).run();
        let doctor = node.cli(["doctor"]);
        let is_bad = !doctor.succeeded()
            && doctor.stdout.lines().any(|l| l.trim_start().starts_with("bad") && l.contains(word));
        let doctor = (!is_bad).then(|| format!("{row}: {doctor}"));
        let validate = node.cli(["validate", node.host_file().to_str().expect("a plain path")]);
        let is_error = !validate.succeeded() && validate.stdout.contains(word);
        let validate = (!is_error).then(|| format!("{row}: {validate}"));
        [before, add, check, del, status, told(hold), told(pass), doctor, validate]
    }));
    node.write_host_file(&good);
    node.del("held").config(&range()).run().silent();
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

#[test]
fn trust_in_the_host_file() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    let file = node.host_file();
    let modes = [
        (0o644, "ok"),
        (0o600, "ok"),
        (0o444, "ok"),
        (0o664, "7 0664"),
        (0o646, "7 0646"),
        (0o666, "7 0666"),
    ];
    report(modes.into_iter().map(|(mode, expected)| {
        set_mode(&file, mode);
        add_and_del(&format!("mode {mode:04o}"), expected, &node)
    }));
    set_mode(&file, 0o644);
    chown(&file, Some(1), None).expect("root can give a file away");
    report([add_and_del("another user's", "7 metes.conf", &node)]);
    chown(&file, Some(0), None).expect("root can take a file");
    let run = || node.add("a").config(&range());
    let missing = cluster.folder().join("nowhere.conf");
    report([
        judge("missing", "7 METES_CONF nowhere.conf", &run().env("METES_CONF", &missing).run()),
        judge("a folder", "7 METES_CONF", &run().env("METES_CONF", cluster.folder()).run()),
        judge(
            "missing, DEL",
            "7 METES_CONF",
            &node.del("a").config(&range()).env("METES_CONF", &missing).run(),
        ),
    ]);
    assert!(cluster.store().keys("v1/net/default/ip/").is_empty(), "nothing is held");
    cluster.assert_clean();
}

#[test]
fn endpoints_and_prefix() {
    let cluster = Cluster::new();
    let dead = dead_endpoint();
    let live = Etcd::shared().endpoint();
    let with = |keys: Value| cluster.node_with("a", json!({"etcd": keys}));
    // A node that knows no store asks for more than half of the endpoints.
    report([
        add_and_del(
            "a new node, and one of two is dead",
            "11 more than half",
            &with(json!({"endpoints": [dead, live]})),
        ),
        add_and_del("the live endpoint alone", "ok", &with(json!({"endpoints": [live]}))),
        add_and_del("the first endpoint is dead", "ok", &with(json!({"endpoints": [dead, live]}))),
        add_and_del("the second endpoint is dead", "ok", &with(json!({"endpoints": [live, dead]}))),
        judge(
            "all endpoints are dead",
            "50",
            &cluster
                .node_with("new", json!({"etcd": {"endpoints": [dead]}}))
                .status()
                .config(&status())
                .run(),
        ),
    ]);
    let own = cluster.prefix().trim_matches('/').to_owned();
    for written in [format!("/{own}/"), format!("/{own}"), own] {
        let node = with(json!({"endpoints": [live], "prefix": written}));
        node.add("a").config(&range()).run().ok();
        assert_eq!(cluster.store().keys("v1/owner/"), ["v1/owner/test/a/a/eth0"], "prefix {written:?}");
        node.del("a").config(&range()).run().silent();
    }
    // Another prefix is another store.
    let other = Cluster::new();
    for node in [cluster.node("a"), other.node("a")] {
        assert_eq!(node.add("b").config(&range()).run().address(), "10.0.0.1");
    }
    other.assert_clean();
    cluster.assert_clean();
}

fn status() -> Value {
    network_as("1.1.0", "net", json!({"range": "10.0.0.0/24"}))
}

#[test]
fn tls() {
    let etcd = Etcd::start_mtls();
    let cluster = Cluster::on(&etcd);
    let tls = etcd.tls().expect("it has TLS");
    let copy = |name: &str, mode: u32| {
        let path = cluster.folder().join(name);
        fs::copy(tls.client_key(), &path).expect("a key can be copied");
        set_mode(&path, mode);
        path
    };
    let key = |mode: u32| json!({"key_file": copy(&format!("key-{mode:o}"), mode)});
    let host = etcd.endpoint();
    let host = host.strip_prefix("https://").expect("it has TLS");
    let whereabouts = json!({
        "etcd": {"endpoints": null, "ca_file": null, "cert_file": null, "key_file": null},
        "etcd_host": host,
        "etcd_ca_cert_file": tls.ca(),
        "etcd_cert_file": tls.client_cert(),
        "etcd_key_file": tls.client_key(),
    });
    let secret =
        |mode: u32| json!({"key_file": secret_file(cluster.folder(), &format!("secret-{mode:o}"), mode)});
    let rows = [
        ("ca_file, cert_file and key_file", json!({}), "ok"),
        ("server_name in the certificate", json!({"server_name": "etcd.test"}), "ok"),
        ("key of mode 0400", key(0o400), "ok"),
        ("key of mode 0600", key(0o600), "ok"),
        ("key of mode 0640", key(0o640), "7 key_file key-640"),
        ("key of mode 0644", secret(0o644), "7 key_file secret-644"),
        ("key that is none", secret(0o600), "7"),
        ("missing key", json!({"key_file": "/nowhere/client.key"}), "7 key_file /nowhere/client.key"),
        ("missing ca_file", json!({"ca_file": "/nowhere/ca.pem"}), "7 ca_file /nowhere/ca.pem"),
    ];
    let rows = rows.into_iter().map(|(row, keys, expected)| (row, json!({"etcd": keys}), expected));
    let rows = rows.chain([("whereabouts' names", whereabouts, "ok")]);
    report(rows.enumerate().map(|(i, (row, keys, expected))| {
        let node = cluster.node_with(&format!("node-{i}"), keys);
        add_and_del(row, expected, &node)
    }));
    cluster.assert_clean();
}

/// A program that replaces a file in place empties it first, and writes it in pieces.
#[test]
fn files_for_tls_that_are_being_written_are_read_again() {
    let etcd = Etcd::start_mtls();
    let cluster = Cluster::on(&etcd);
    let tls = etcd.tls().expect("it has TLS");
    let files = [("ca_file", tls.ca()), ("cert_file", tls.client_cert()), ("key_file", tls.client_key())];
    for (key, original) in &files {
        let whole = fs::read(original).expect("it can be read");
        for (state, half) in [("empty", &whole[..0]), ("half", &whole[..whole.len() / 2])] {
            let path = secret_file(cluster.folder(), &format!("{key}-{state}.pem"), 0o600);
            fs::write(&path, half).expect("it can be written");
            let node = cluster.node_with(&format!("{key}-{state}"), json!({"etcd": {*key: path}}));
            let reads = Reads::of(&path);
            let add = node.add("c").config(&range()).spawn();
            reads.wait_for_one();
            fs::write(&path, &whole).expect("it can be written");
            let outcome = add.wait();
            assert!(outcome.succeeded(), "{key}, {state}: {outcome}");
            // Nobody completes it.
            fs::write(&path, half).expect("it can be written");
            let error = node.add("d").config(&range()).run().error(7);
            assert!(error["msg"].as_str().is_some_and(|msg| msg.contains(key)), "{key}, {state}: {error}");
        }
    }
    cluster.assert_clean();
}

/// Tells when a file was opened, read and closed.
struct Reads(OwnedFd);

impl Reads {
    fn of(path: &Path) -> Self {
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).expect("the kernel has inotify");
        inotify::add_watch(&fd, path, WatchFlags::CLOSE_NOWRITE).expect("a file can be watched");
        Self(fd)
    }

    fn wait_for_one(&self) {
        let mut buffer = [MaybeUninit::uninit(); 256];
        let mut events = inotify::Reader::new(&self.0, &mut buffer);
        wait_for("a file to be read", SOON, || events.next().map(|_| ()).map_err(|e| e.to_string()));
    }
}

#[test]
fn users_of_etcd() {
    let etcd = Etcd::start_with_cheap_passwords();
    let cluster = Cluster::on(&etcd);
    let prefix = cluster.prefix().to_owned();
    cluster.store().run(async |client| {
        client.user_add("root", SECRET, None).await?;
        client.user_grant_role("root", "root").await?;
        client.role_add("metes").await?;
        let all = Permission::new(PermissionType::Readwrite, prefix.as_str()).with_prefix();
        client.role_grant_permission("metes", all).await?;
        client.user_add("metes", SECRET, None).await?;
        client.user_grant_role("metes", "metes").await?;
        client.auth_enable().await
    });
    let folder = cluster.folder();
    let good = secret_file(folder, "password", 0o600);
    let open = secret_file(folder, "open", 0o644);
    let with_newline = folder.join("newline");
    fs::write(&with_newline, format!("{SECRET}\n")).expect("a file can be written");
    set_mode(&with_newline, 0o600);
    let login = |user: &str, file: &Path| json!({"etcd": {"username": user, "password_file": file}});
    let rows = [
        ("username and password_file", login("metes", &good), "ok"),
        ("a newline at the end", login("metes", &with_newline), "ok"),
        ("etcd_username and etcd_password", json!({"etcd_username": "metes", "etcd_password": SECRET}), "ok"),
        ("a password that others may read", login("metes", &open), "7 password_file"),
        ("a missing password", login("metes", Path::new("/nowhere/p")), "7 password_file"),
        (
            "two passwords",
            json!({"etcd": {"username": "metes", "password_file": good}, "etcd_password": SECRET}),
            "7 password_file etcd_password",
        ),
    ];
    report(rows.into_iter().enumerate().map(|(i, (row, keys, expected))| {
        add_and_del(row, expected, &cluster.node_with(&format!("node-{i}"), keys))
    }));
    cluster.store().as_user("root", SECRET).run(async |client| client.auth_disable().await);
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

#[test]
fn plain_http_is_for_the_loopback() {
    let cluster = Cluster::new();
    let etcd = |endpoint: &str| json!({"etcd": {"endpoints": [endpoint]}});
    let allowed = |endpoint: &str| json!({"etcd": {"endpoints": [endpoint]}, "allow_plaintext": true});
    let live = Etcd::shared().endpoint();
    let localhost = live.replace("127.0.0.1", "localhost");
    let rows = [
        ("127.0.0.1", etcd(&live), "ok"),
        ("localhost", etcd(&localhost), "ok"),
        ("another machine", etcd("http://192.0.2.1:2379"), "7 endpoints allow_plaintext"),
        ("another machine by name", etcd("http://etcd.invalid:2379"), "7 endpoints allow_plaintext"),
        ("another machine without a scheme", etcd("192.0.2.1:2379"), "7 endpoints allow_plaintext"),
        (
            "etcd_host",
            json!({"etcd": {"endpoints": null}, "etcd_host": "192.0.2.1:2379"}),
            "7 allow_plaintext",
        ),
        ("one of several", json!({"etcd": {"endpoints": [live, "http://192.0.2.1:2379"]}}), "7 endpoints"),
        ("with leave", allowed("http://192.0.2.1:2379"), "50"),
    ];
    report(rows.into_iter().enumerate().map(|(i, (row, keys, expected))| {
        judge(row, expected, &cluster.node_with(&format!("node-{i}"), keys).status().config(&status()).run())
    }));
    let proxies = ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "grpc_proxy"];
    let run = cluster.node("a").add("a").config(&range());
    let run = proxies.into_iter().fold(run, |run, name| run.env(name, "http://127.0.0.1:1"));
    report([judge("proxies are ignored", "ok", &run.run())]);
    cluster.assert_clean();
}

#[test]
fn names_of_node_and_cluster() {
    let cluster = Cluster::new();
    let row = |node: &Node| {
        node.add("c").config(&range()).run().ok();
        let list = node.list();
        assert_eq!(list.len(), 1, "{list:?}");
        list[0]["node"].as_str().expect("a node is a text").to_owned()
    };
    let named = cluster.node_with("a", json!({"node_name": "other-name", "cluster": "east"}));
    assert_eq!(row(&named), "other-name");
    let records = cluster.store().entries("v1/net/default/ip/");
    let record: Value = serde_json::from_slice(&records[0].1).expect("a reservation is JSON");
    assert_eq!(record["owner"], "east/other-name/c/eth0");
    named.del("c").config(&range()).run().silent();
    let unnamed = cluster.node_with("b", json!({"node_name": null}));
    let host = fs::read_to_string("/proc/sys/kernel/hostname").expect("a host has a name");
    let name = row(&unnamed);
    let digits = name.strip_prefix(&format!("{}-", host.trim())).expect("it begins with the host's name");
    assert!(digits.len() == 8 && digits.bytes().all(|b| b.is_ascii_hexdigit()), "{name}");
    unnamed.del("c").config(&range()).run().silent();
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

#[test]
fn spool_dir() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    node.add("a").config(&range()).run().ok();
    let folder = cluster.folder().join("elsewhere");
    let alive = json!({"endpoints": [Etcd::shared().endpoint()]});
    node.change_host_file(json!({"spool_dir": folder, "etcd": {"endpoints": [dead_endpoint()]}}));
    node.del("a").config(&range()).run().silent();
    assert!(node.spooled_dels().is_empty(), "not in the old folder");
    let entries = files(&folder);
    let spooled: Vec<_> =
        entries.iter().filter(|file| file.extension().is_some_and(|e| e == "del")).collect();
    assert_eq!(spooled.len(), 1, "{entries:?}");
    let mode = fs::metadata(spooled[0]).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // A DEL that cannot be spooled fails, and not in words that runtimes take for success.
    fs::write(cluster.folder().join("blocked"), "").expect("a file can be written");
    node.change_host_file(json!({"spool_dir": cluster.folder().join("blocked")}));
    let error = node.del("a").config(&range()).run().error(11).to_string().to_lowercase();
    assert!(!error.contains("not found") && !error.contains("no such file or directory"), "{error}");
    // The next run that reaches etcd carries it out.
    node.change_host_file(json!({"spool_dir": folder, "etcd": alive}));
    node.status().config(&status()).run().silent();
    node.add("b").config(&range()).run().ok();
    assert!(!files(&folder).iter().any(|file| file.extension().is_some_and(|e| e == "del")));
    let held: Vec<Value> = node.list().iter().map(|row| row["container_id"].clone()).collect();
    assert_eq!(held, ["b"]);
    cluster.assert_clean();
}

fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.map(|entry| entry.expect("an entry can be read").path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn gc_grace_s() {
    let cluster = Cluster::new();
    let mut gc = status();
    gc["cni.dev/valid-attachments"] = json!([]);
    for (row, keys, left) in [
        ("by default 300", json!({}), 1),
        ("300", json!({"gc_grace_s": 300}), 1),
        ("none", json!({"gc_grace_s": 0}), 0),
    ] {
        let node = cluster.node_with("a", keys);
        node.add("a").config(&status()).run().ok();
        node.gc().config(&gc).run().silent();
        assert_eq!(node.list().len(), left, "{row}");
    }
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

#[test]
fn log_file_and_level() {
    let cluster = Cluster::new();
    let unknown = network(json!({"range": "10.0.0.0/24", "flavour": []}));
    let logged = |level: Value, i: usize| {
        let log = cluster.folder().join(format!("log-{i}"));
        let node = cluster.node_with("a", json!({"log_file": log, "log_level": level}));
        node.add("a").config(&unknown).run().ok();
        (
            fs::read_to_string(&log).unwrap_or_default(),
            fs::metadata(&log).map(|m| m.permissions().mode() & 0o777),
        )
    };
    // At each of these a warning is written, or not.
    let rows = [
        (Value::Null, true),
        (json!("debug"), true),
        (json!("verbose"), true),
        (json!("info"), true),
        (json!("warning"), true),
        (json!("error"), false),
        (json!("panic"), false),
        (json!("loud"), true),
    ];
    report(rows.into_iter().enumerate().map(|(i, (level, expected))| {
        let (text, mode) = logged(level.clone(), i);
        let right = text.contains("flavour") == expected && mode.is_ok_and(|mode| mode == 0o600);
        (!right).then(|| format!("log_level {level}: {text:?}"))
    }));
    let node = cluster.node_with("a", json!({"log_file": cluster.folder().join("no/such/folder")}));
    let outcome = node.add("a").config(&unknown).run();
    report([
        judge("a log that cannot be opened", "ok", &outcome),
        (!outcome.stderr.contains("flavour")).then(|| format!("it goes to stderr then: {outcome}")),
    ]);
    cluster.assert_clean();
}

#[test]
fn the_log_is_not_written_through_a_link() {
    let cluster = Cluster::new();
    let target = cluster.folder().join("target");
    fs::write(&target, "precious").expect("a file can be written");
    let link = cluster.folder().join("link");
    symlink(&target, &link).expect("a link can be made");
    let node = cluster.node_with("a", json!({"log_file": link, "log_level": "debug"}));
    let unknown = network(json!({"range": "10.0.0.0/24", "flavour": []}));
    assert_eq!(node.add("a").config(&unknown).run().address(), "10.0.0.1");
    assert_eq!(fs::read_to_string(&target).expect("it is there"), "precious");
    cluster.assert_clean();
}

#[test]
fn networks_do_not_say_which_etcd() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    let rows = [
        ("etcd", json!({"endpoints": ["http://127.0.0.1:1"]})),
        ("etcd_host", json!("127.0.0.1:1")),
        ("etcd_username", json!(SECRET)),
        ("etcd_password", json!(SECRET)),
        ("etcd_key_file", json!("/x")),
        ("etcd_cert_file", json!("/x")),
        ("etcd_ca_cert_file", json!("/x")),
        ("ca_file", json!("/x")),
        ("cert_file", json!("/x")),
        ("key_file", json!("/x")),
        ("password_file", json!("/x")),
    ];
    report(rows.into_iter().flat_map(|(key, value)| {
        node.add("held").config(&range()).run().ok();
        let config = network(json!({"range": "10.0.0.0/24", (key): value}));
        let add = judge(key, &format!("7 {key}"), &node.add("b").config(&config).run());
        let del = judge(key, "ok", &node.del("held").config(&config).run());
        let left = node.list().len();
        [add, del, (left != 0).then(|| format!("{key}: DEL has left {left}"))]
    }));
    // Other keys of the host are ignored.
    let elsewhere = cluster.folder().join("nad.log");
    let config = network(json!({
        "range": "10.0.0.0/24",
        "kubernetes": {"kubeconfig": "/nowhere"},
        "dataDir": "/nowhere",
        "log_file": elsewhere,
        "log_level": "debug",
        "flavour": [],
    }));
    report([judge("ignored keys", "ok", &node.add("a").config(&config).run())]);
    assert!(!elsewhere.exists(), "a network cannot name a log file beside a host file");
    cluster.assert_clean();
}

#[test]
fn configuration_path() {
    let cluster = Cluster::new();
    let other = Cluster::new();
    let (node, elsewhere) = (cluster.node("a"), other.node("elsewhere"));
    let config = network(json!({"range": "10.0.0.0/24", "configuration_path": elsewhere.host_file()}));
    // Beside a host file it is ignored.
    node.add("a").config(&config).run().ok();
    assert_eq!(cluster.store().keys("v1/owner/"), ["v1/owner/test/a/a/eth0"]);
    assert!(other.store().keys("").is_empty(), "nothing is written elsewhere");
    // Without one, and with leave, it names it.
    by_network(node.add("a").config(&config)).run().ok();
    assert_eq!(other.store().keys("v1/owner/"), ["v1/owner/test/elsewhere/a/eth0"]);
    // Then it is trusted like any host file, and rules like any.
    let mut refused = config.clone();
    refused["ipam"]["etcd"] = json!({"endpoints": ["http://127.0.0.1:1"]});
    report([judge("etcd too", "7 etcd", &by_network(node.add("b").config(&refused)).run())]);
    set_mode(&elsewhere.host_file(), 0o664);
    report([judge(
        "group-writable",
        "7 configuration_path",
        &by_network(node.add("b").config(&config)).run(),
    )]);
    set_mode(&elsewhere.host_file(), 0o644);
    by_network(node.del("a").config(&config)).run().silent();
    assert!(other.store().keys("v1/owner/").is_empty());
    other.assert_clean();
    cluster.assert_clean();
}

/// A tenant writes networks: without a host file no run goes by one, and a DEL is not lost.
#[test]
fn without_a_host_file_no_network_is_asked_where_etcd_is() {
    let (cluster, tenants) = (Cluster::new(), Tenants::new());
    let node = cluster.node("a");
    let asking = |keys: Value| {
        let mut config = status();
        config["cni.dev/valid-attachments"] = json!([]);
        config["ipam"].as_object_mut().expect("an object").extend(keys.as_object().expect("keys").clone());
        config
    };
    let password = secret_file(cluster.folder(), "password", 0o600);
    let endpoint = format!("http://{}", tenants.host());
    let etcd = json!({"endpoints": [endpoint], "username": "u", "password_file": password});
    let rows = [
        ("nothing", json!({})),
        ("etcd", json!({"etcd": etcd})),
        ("etcd_host", json!({"etcd_host": tenants.host()})),
        ("configuration_path", json!({"configuration_path": node.host_file()})),
    ];
    node.add("held").config(&status()).run().ok();
    let expected = format!("7 {USUAL_PLACE} docs/install.md METES_ALLOW_NAD_ETCD=1");
    report(rows.iter().flat_map(|(row, keys)| {
        let config = asking(keys.clone());
        let runs = [node.add("b"), node.del("held"), node.check("held"), node.gc()];
        let refused = |run: Run| judge(row, &expected, &without_host_file(run.config(&config)).run());
        let other = |value: &str| {
            let run = without_host_file(node.add("b").config(&config)).env("METES_ALLOW_NAD_ETCD", value);
            judge(&format!("{row}, {value:?}"), &expected, &run.run())
        };
        let status = without_host_file(node.status().config(&config)).run();
        let status = judge(row, &expected.replacen('7', "50", 1), &status);
        let others = ["", "0", "true", "1 "].map(other);
        runs.map(refused).into_iter().chain([status]).chain(others).collect::<Vec<_>>()
    }));
    tenants.assert_never_asked();
    without_host_file(node.version().stdin("{}")).run().ok();
    assert_eq!(node.list().len(), 1, "the address is still held");
    node.del("held").config(&asking(json!({}))).run().silent();
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

/// With leave the network says where etcd is, and still names no secret.
#[test]
fn etcd_of_a_network_without_a_host_file() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    let live = Etcd::shared().endpoint();
    let host = live.strip_prefix("http://").expect("it has no TLS");
    let sections = [
        ("etcd", json!({"range": "10.0.0.0/24", "etcd": {"endpoints": [live], "prefix": cluster.prefix()}})),
        (
            "etcd_host",
            json!({"range": "10.0.0.0/24", "etcd_host": host, "etcd": {"prefix": cluster.prefix()}}),
        ),
    ];
    for (row, ipam) in sections {
        let config = network(ipam);
        by_network(node.add("a").config(&config)).run().ok();
        assert_eq!(cluster.store().keys("v1/owner/").len(), 1, "{row}");
        by_network(node.del("a").config(&config)).run().silent();
        cluster.assert_nothing_held();
    }
    let config = network(json!({"range": "10.0.0.0/24", "etcd": {"endpoints": ["http://192.0.2.1:2379"]}}));
    report([judge("plain http", "7 endpoints", &by_network(node.add("a").config(&config)).run())]);
    let tenants = Tenants::new();
    let secret = secret_file(cluster.folder(), "secret", 0o600);
    let inside = ["key_file", "cert_file", "password_file", "username"];
    let beside = ["etcd_key_file", "etcd_cert_file", "etcd_password", "etcd_username"];
    report(inside.into_iter().chain(beside).flat_map(|key| {
        let mut ipam =
            json!({"range": "10.0.0.0/24", "etcd": {"endpoints": [format!("http://{}", tenants.host())]}});
        (if inside.contains(&key) { &mut ipam["etcd"] } else { &mut ipam })[key] = json!(secret);
        let config = network(ipam);
        let expected = format!("7 {key} belongs host file");
        let judged = |run: Run| judge(key, &expected, &by_network(run.config(&config)).run());
        [node.add("a"), node.del("a")].map(judged)
    }));
    tenants.assert_never_asked();
    // Nor does it name a file that root writes.
    let log = cluster.folder().join("log");
    let etcd = json!({"endpoints": [live], "prefix": cluster.prefix()});
    let config = network(json!({"range": "10.0.0.0/24", "log_file": log, "flavour": 1, "etcd": etcd}));
    let add = by_network(node.add("a").config(&config)).run();
    let is_told = add.stderr.contains("`ipam.log_file` has no effect");
    assert!(add.succeeded() && is_told && !log.exists(), "{add}");
    by_network(node.del("a").config(&config)).run().silent();
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

#[test]
fn allowed() {
    let cluster = Cluster::new();
    let rules = json!({"default": ["10.0.0.0/16"], "n": ["fd00::/64", "10.1.0.0/24"]});
    let node = cluster.node_with("a", json!({"allowed": rules}));
    let named = |range: &str, name: &str| json!({"range": range, "network_name": name});
    let fixed = |address: &str| json!({"addresses": [{"address": address}]});
    let both = |range: &str, address: &str| json!({"range": range, "addresses": [{"address": address}]});
    let rows = [
        ("inside", json!({"range": "10.0.1.0/24"}), "", "ok"),
        ("all of it", json!({"range": "10.0.0.0/16"}), "", "ok"),
        ("wider", json!({"range": "10.0.0.0/8"}), "", "7 default"),
        ("beside", json!({"range": "10.1.0.0/24"}), "", "7 default"),
        (
            "one of two",
            json!({"ipRanges": [{"range": "10.0.1.0/24"}, {"range": "fd00::/64"}]}),
            "",
            "7 default",
        ),
        ("another network", named("fd00::/64", "n"), "", "ok"),
        ("another network's second", named("10.1.0.0/24", "n"), "", "ok"),
        ("another network, outside", named("10.0.1.0/24", "n"), "", "7 n"),
        ("a network that is not listed", named("10.0.1.0/24", "m"), "", "7 m"),
        ("a range for itself", json!({"range": "10.0.1.0/24", "enable_overlapping_ranges": false}), "", "ok"),
        (
            "a range for itself, outside",
            json!({"range": "10.2.0.0/24", "enable_overlapping_ranges": false}),
            "",
            "7 default",
        ),
        ("host-local's form", json!({"subnet": "10.2.0.0/24"}), "", "7 default"),
        ("a static address", fixed("10.0.9.9/24"), "", "ok"),
        ("a static address outside", fixed("192.0.2.9/24"), "", "7 192.0.2.9"),
        ("a static address beside a range", both("10.0.1.0/24", "192.0.2.9/24"), "", "7 192.0.2.9"),
        ("a request", json!({"range": "10.0.1.0/24"}), "IP=10.0.1.77", "ok"),
        ("a request without a range", json!({}), "IP=10.0.9.8/24", "ok"),
        ("a request without a range, outside", json!({}), "IP=192.0.2.9/24", "7 192.0.2.9"),
    ];
    report(rows.into_iter().map(|(row, ipam, args, expected)| {
        let config = network(ipam);
        let outcome = node.add("a").args(args).config(&config).run();
        node.del("a").config(&config).run().silent();
        judge(row, expected, &outcome)
    }));
    cluster.assert_nothing_held();
    // A rule that is set later does not stop a DEL.
    let config = network(json!({"range": "10.0.1.0/24"}));
    node.add("a").config(&config).run().ok();
    node.change_host_file(json!({"allowed": null}));
    node.change_host_file(json!({"allowed": {}}));
    report([judge("nothing is allowed", "7 default", &node.add("b").config(&config).run())]);
    node.del("a").config(&config).run().silent();
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

/// The runtime says whose pod it is; nothing that a tenant writes does.
#[test]
fn namespaces_of_allowed() {
    let cluster = Cluster::new();
    let range = ["10.0.0.0/24"];
    let red = |namespaces: Value| json!({"red": {"prefixes": range, "pools": ["storage"], "namespaces": namespaces}});
    let allowed = |namespaces: Value| json!({"allowed": red(namespaces)});
    let node = cluster.node_with("a", allowed(json!(["team-a"])));
    let pool = r#"{"pool":"storage","network":"red","ranges":[{"range":"10.0.0.0/24"}]}"#;
    assert!(node.pool(&["apply", "-f", "-", "--yes"], pool).succeeded());
    let named = |mut config: Value| {
        config["ipam"]["network_name"] = json!("red");
        config
    };
    let ranges = named(network(json!({"range": "10.0.0.0/24"})));
    let fixed = named(network(json!({"addresses": [{"address": "10.0.0.9/24"}]})));
    let mut capability = named(network(json!({})));
    capability["runtimeConfig"] = json!({"ipRanges": [[{"subnet": "10.0.0.0/24"}]]});
    let mut posing = ranges.clone();
    posing["args"] = json!({"cni": {"K8S_POD_NAMESPACE": "team-a"}});
    posing["prevResult"] = json!({"cniVersion": "1.0.0", "ips": [{"address": "10.0.0.9/24"}]});
    let sticky = json!({"range": "10.0.0.0/24", "sticky": "pod"});
    let configs = [
        ("a range", ranges.clone()),
        ("a static address", fixed),
        ("ranges of the capability", capability),
        ("a sticky address", named(network(sticky))),
        ("a pool", network(json!({"pool": "storage"}))),
        ("a pool of several", network(json!({"pools": [["storage"]]}))),
        ("claims of a network", posing),
    ];
    let pod = |namespace: &str| {
        format!("IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME=p;K8S_POD_UID=u")
    };
    let rows = [
        ("its own", pod("team-a"), "ok"),
        ("another", pod("team-b"), "7 pods of namespace team-b storage_or_red namespaces allowed"),
        ("another case", pod("Team-A"), "7 Team-A storage_or_red namespaces"),
        ("none", "IgnoreUnknown=1".to_owned(), "7 K8S_POD_NAMESPACE storage_or_red namespaces"),
        ("another key", "IgnoreUnknown=1;k8s_pod_namespace=team-a".to_owned(), "7 K8S_POD_NAMESPACE"),
        ("two", format!("{};K8S_POD_NAMESPACE=team-a", pod("team-b")), "4 K8S_POD_NAMESPACE"),
    ];
    report(configs.iter().flat_map(|(form, config)| {
        let (node, pool) = (&node, config["ipam"].to_string().contains("pool"));
        rows.iter().map(move |(row, args, expected)| {
            let expected = expected.replace("storage_or_red", if pool { "storage" } else { "red" });
            let outcome = node.add("c").args(args).config(config).run();
            node.del("c").args(args).config(config).run().silent();
            judge(&format!("{form}, {row}"), &expected, &outcome)
        })
    }));
    let asking = format!("{};IP=10.0.0.9", pod("team-b"));
    report([judge("a request", "7 team-b red", &node.add("c").args(&asking).config(&ranges).run())]);
    // The pods that run keep their addresses, and give them back.
    let [held, freed] = ["held", "freed"].map(|container| (container, pod("team-a")));
    for (container, args) in [&held, &freed] {
        node.add(container).args(&args.replace("=u", &format!("={container}"))).config(&ranges).run().ok();
    }
    let node = cluster.node_with("a", allowed(json!([])));
    let mut check = ranges.clone();
    check["prevResult"] = json!({"cniVersion": "1.0.0", "ips": []});
    let gc = with_attachments(&ranges, json!([{"containerID": "held", "ifname": "eth0"}]));
    report([
        judge("nobody may", "7 team-a red", &node.add("c").args(&pod("team-a")).config(&ranges).run()),
        judge("CHECK", "ok", &node.check("held").args(&pod("team-a")).config(&check).run()),
        judge("DEL", "ok", &node.del("freed").args(&pod("team-a")).config(&ranges).run()),
        judge("GC", "ok", &node.gc().config(&gc).run()),
    ]);
    let containers: Vec<Value> = node.list().iter().map(|row| row["container_id"].clone()).collect();
    assert!(containers.contains(&json!("held")) && !containers.contains(&json!("freed")), "{containers:?}");
    node.del("held").config(&ranges).run().silent();
    cluster.assert_clean();
}

fn with_attachments(config: &Value, valid: Value) -> Value {
    let mut config = config.clone();
    config["cniVersion"] = json!("1.1.0");
    config["cni.dev/valid-attachments"] = valid;
    config
}

/// Keys without effect are named in the log, and nothing of them but the name.
#[test]
fn unknown_keys() {
    let cluster = Cluster::new();
    let log = cluster.folder().join("log");
    let keys = json!({
        "log_file": log, "loglevel": SECRET, "enable_overlapping_ranges": true, "etcd": {"user_name": SECRET},
    });
    let node = cluster.node_with("a", keys);
    report([judge("unknown keys", "ok", &node.add("a").config(&range()).run())]);
    let log = fs::read_to_string(log).expect("there is a log");
    let missing = |words: [&str; 2]| !log.lines().any(|line| words.iter().all(|word| line.contains(word)));
    let rows =
        [["loglevel", "log_level"], ["user_name`", "username"], ["enable_overlapping_ranges", "unknown"]];
    report(
        rows.into_iter().map(|words| missing(words).then(|| format!("{words:?} is not in the log:\n{log}"))),
    );
    assert!(!log.contains(SECRET), "{log}");
    cluster.assert_clean();
}
