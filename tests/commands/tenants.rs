//! Users, roles and prefixes in etcd, as docs/security.md sets them up: all verbs work with the role that it names and
//! with nothing more, and another tenant's prefix is closed.

use std::fs;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use etcd_client::{
    Certificate, Client, ConnectOptions, Error, Identity, Permission, PermissionType, PutOptions, TlsOptions,
    UserAddOptions,
};
use serde_json::{Value, json};
use support::{
    Cluster, Etcd, KubeApi, Node, Outcome, Reconciler, Run, Tls, World, free_ports, in_parallel, network_as,
    report, wait_for,
};
use tokio::runtime::Builder;

const ADMINISTRATOR: &str = "metes-etcd-server";
const AT_ONCE: [&str; 4] = ["--grace", "0s", "--finished-grace", "0s"];
const SOON: Duration = Duration::from_secs(30);

fn config() -> Value {
    network_as("1.1.0", "net", json!({"range": "10.70.0.0/24"}))
}

fn expect(row: &str, is_right: bool, found: impl std::fmt::Display) -> Option<String> {
    (!is_right).then(|| format!("{row}: {found}"))
}

/// A request that etcd permits or not.
type Asked = for<'a> fn(&'a mut Client) -> Pin<Box<dyn Future<Output = Result<(), Error>> + 'a>>;

/// An etcd that knows its users by their certificates.
struct Server {
    etcd: Etcd,
}

impl Server {
    fn start() -> Self {
        Self { etcd: Etcd::start_mtls() }
    }

    /// A cluster of its own, for which the documented users and roles are there.
    fn with_a_cluster() -> (Self, Cluster) {
        let server = Self::start();
        let cluster = Cluster::on(&server.etcd);
        server.set_up(&[("/metes/", cluster.prefix()), ("/metes-east/", "/elsewhere/")]);
        (server, cluster)
    }

    fn tls(&self) -> &Tls {
        self.etcd.tls().expect("it has TLS")
    }

    /// The host file's keys of somebody with this common name.
    fn user(&self, common_name: &str) -> Value {
        let (cert, key) = self.client(common_name);
        json!({"etcd": {"cert_file": cert, "key_file": key}})
    }

    fn client(&self, common_name: &str) -> (PathBuf, PathBuf) {
        self.tls().client(&format!("user-{common_name}"), common_name)
    }

    fn run_as<T>(
        &self,
        (cert, key): &(PathBuf, PathBuf),
        work: impl AsyncFnOnce(&mut Client) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let read = |path: &Path| fs::read(path).expect("a certificate can be read");
        let identity = Identity::from_pem(read(cert), read(key));
        let tls = TlsOptions::new()
            .ca_certificate(Certificate::from_pem(read(&self.tls().ca())))
            .identity(identity);
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime can be built");
        runtime.block_on(async {
            let options = ConnectOptions::new().with_tls(tls);
            let mut client = Client::connect([self.etcd.endpoint()], Some(options)).await?;
            work(&mut client).await
        })
    }

    fn as_administrator<T>(&self, work: impl AsyncFnOnce(&mut Client) -> Result<T, Error>) -> T {
        let administrator = self.client(ADMINISTRATOR);
        self.run_as(&administrator, work).expect("the administrator may do it")
    }

    /// Carries out the commands of docs/security.md, with these prefixes for those that stand there. Switching
    /// authentication on, which nobody but the administrator survives, comes last.
    fn set_up(&self, prefixes: &[(&str, &str)]) {
        let mut commands = documented_commands();
        commands.sort_by_key(|words| words[..] == ["auth", "enable"]);
        assert!(commands.len() > 15, "docs/security.md has lost its commands: {commands:?}");
        for words in commands.iter().filter(|words| words[..2] != ["user", "delete"]) {
            self.carry_out(words, prefixes);
        }
    }

    fn carry_out(&self, words: &[String], prefixes: &[(&str, &str)]) {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let own = |key: &str| in_this_test(key, prefixes);
        self.as_administrator(async |client| match words[..] {
            ["user", "add", name, "--no-password"] => {
                let options = UserAddOptions::new().with_no_pwd();
                client.user_add(name, "", Some(options)).await.map(drop)
            }
            ["user", "delete", name] => client.user_delete(name).await.map(drop),
            ["user", "grant-role", user, role] => client.user_grant_role(user, role).await.map(drop),
            ["role", "add", role] => client.role_add(role).await.map(drop),
            ["role", "grant-permission", role, "--prefix=true", rights, key] => {
                let permission = Permission::new(rights_of(rights), own(key)).with_prefix();
                client.role_grant_permission(role, permission).await.map(drop)
            }
            ["role", "grant-permission", role, rights, first, end] => {
                let permission = Permission::new(rights_of(rights), own(first)).with_range_end(own(end));
                client.role_grant_permission(role, permission).await.map(drop)
            }
            ["role", "grant-permission", role, rights, key] => {
                let permission = Permission::new(rights_of(rights), own(key));
                client.role_grant_permission(role, permission).await.map(drop)
            }
            ["auth", "enable"] => client.auth_enable().await.map(drop),
            _ => panic!("this test does not know the command {words:?}"),
        });
    }

    fn switch_off(&self) {
        self.as_administrator(async |client| client.auth_disable().await);
    }
}

/// A key or the end of a range as a command names it, with this test's prefix and cluster.
fn in_this_test(key: &str, prefixes: &[(&str, &str)]) -> String {
    // The end of a prefix is the prefix with a higher last byte.
    let after = |prefix: &str| format!("{}0", prefix.trim_end_matches('/'));
    let own = prefixes.iter().find_map(|(documented, prefix)| {
        let below = key.strip_prefix(documented).map(|key| format!("{prefix}{key}"));
        below.or_else(|| (key == after(documented)).then(|| after(prefix)))
    });
    own.unwrap_or_else(|| panic!("no prefix of this test stands for {key}")).replace("/prod-1/", "/test/")
}

fn rights_of(name: &str) -> PermissionType {
    match name {
        "readwrite" => PermissionType::Readwrite,
        "read" => PermissionType::Read,
        other => panic!("rights {other}"),
    }
}

/// The arguments of each `etcdctl` in docs/security.md.
fn documented_commands() -> Vec<Vec<String>> {
    let path = support::root().join("docs/security.md");
    let text = fs::read_to_string(path).expect("docs/security.md is there");
    let commands = text.lines().filter_map(|line| line.strip_prefix("$ etcdctl "));
    commands.map(|command| command.split_whitespace().map(str::to_owned).collect()).collect()
}

fn with_result(node: &Node, container: &str) -> Value {
    let mut config = config();
    config["prevResult"] = node.add(container).config(&config).run().ok();
    config
}

fn gc(node: &Node, valid: &Value) -> Run {
    let mut config = config();
    config["cni.dev/valid-attachments"] = valid.clone();
    node.gc().config(&config)
}

#[test]
fn every_verb_works_with_the_documented_role() {
    let (server, cluster) = Server::with_a_cluster();
    let world = World::of(cluster, KubeApi::shared());
    let cluster = &world.cluster;
    let node = cluster.node_with("a", json!({"gc_grace_s": 0}));
    let operator = cluster.node_with("operator", server.user("metes-admin"));
    let host_file = cluster.node_with("passes", server.user("metes-reconciler")).host_file();
    let reconciler = || world.reconciler(&world.api).config(&host_file);
    let pass = |flags: &[&str]| reconciler().args(flags).pass();

    // A crowd queues, watches and shares leases.
    let outcomes = in_parallel(24, 0..24, |i| node.add(&format!("c{i}")).config(&config()).run());
    let mut addresses: Vec<String> = outcomes.iter().map(Outcome::address).collect();
    addresses.sort();
    addresses.dedup();
    assert_eq!(addresses.len(), 24, "{addresses:?}");
    node.check("c0").config(&with_result(&node, "c0")).run().silent();
    node.status().config(&config()).run().silent();
    node.version().config(&config()).run().ok();
    node.del("c0").config(&config()).run().silent();
    gc(&node, &json!([{"containerID": "c1", "ifname": "eth0"}])).run().silent();
    assert_eq!(node.list().len(), 1);
    // Proxies are nobody's business, by TLS neither.
    let proxies = ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"];
    let proxied = |run: Run| proxies.into_iter().fold(run, |run, name| run.env(name, "http://127.0.0.1:1"));
    assert_eq!(proxied(node.add("c2").config(&config())).run().addresses().len(), 1);

    for arguments in [&["list"][..], &["usage"], &["show", "10.70.0.1"], &["doctor"]] {
        let outcome = node.cli(arguments);
        assert!(outcome.succeeded(), "{outcome}");
    }
    let repaired = operator.cli(["check", "--repair"]);
    assert!(repaired.succeeded(), "{repaired}");
    let check = node.cli(["check"]);
    assert!(check.succeeded() && !check.stdout.contains("not known"), "it may ask for the version: {check}");
    assert!(operator.cli(["release", "--node", "a", "--container", "c2", "--yes"]).succeeded());
    let mut sticky = config();
    sticky["ipam"]["sticky"] = json!("pod");
    let kept = node.add("kept").config(&sticky).pod("ns", "db-0", "u1").run().addresses();
    node.del("kept").config(&sticky).run().silent();
    assert_eq!(node.add("again").config(&sticky).pod("ns", "db-0", "u2").run().addresses(), kept);
    node.del("again").config(&sticky).run().silent();
    assert!(operator.cli(["hold", "--remove", kept[0].split('/').next().expect("an address")]).succeeded());

    world.orphan("gone");
    pass(&["--grace", "1h"]).ok().kept(json!({"unlabelled": 1, "within-grace": 1}));
    // The memory of a pass has an age, which is a lease's.
    pass(&["--grace", "1h", "--dry-run"]).ok().kept(json!({"unlabelled": 1, "within-grace": 1}));
    pass(&AT_ONCE).ok().freed(json!({"pod-gone": 1}));
    a_reconciler_that_stays_leads(&world, reconciler());
    a_suspect_store_is_adopted(&world, &node, reconciler);
    an_import_is_begun_and_given_up(reconciler);

    node.del("c1").config(&config()).run().silent();
    cluster.assert_nothing_held();
    cluster.assert_clean();
    server.switch_off();
}

#[test]
fn a_node_uses_pools_and_cannot_change_them() {
    let (server, cluster) = Server::with_a_cluster();
    let node = cluster.node("a");
    let operator = cluster.node_with("operator", server.user("metes-admin"));
    let folder = cluster.folder();
    let write = |range: &str| {
        let file = folder.join("pool.yaml");
        fs::write(&file, format!("pool: storage\nranges:\n- range: {range}\nfor: {{}}\n")).expect("written");
        file.to_str().expect("a plain path").to_owned()
    };
    let file = write("10.71.0.0/24");
    let refused = node.cli(["pool", "apply", "--yes", "-f", &file]);
    assert!(!refused.succeeded() && refused.stderr.contains("permission"), "{refused}");
    let applied = operator.cli(["pool", "apply", "--yes", "-f", &file]);
    assert!(applied.succeeded(), "{applied}");
    let pool = network_as("1.1.0", "net", json!({"pool": "storage"}));
    assert_eq!(node.add("c1").config(&pool).run().address(), "10.71.0.1");
    node.add("c2").config(&network_as("1.1.0", "net", json!({"pool": "storag"}))).run().error(7);
    let which = ["pool", "which", "--namespace", "ns"];
    for arguments in [&["list"][..], &["pool", "list"], &["pool", "show", "storage"], &which, &["check"]] {
        let outcome = node.cli(arguments);
        assert!(outcome.succeeded(), "{outcome}");
    }
    for arguments in [
        &["hold", "10.71.0.9", "--note", "x", "--for", "1h"][..],
        &["holds"],
        &["hold", "--remove", "10.71.0.9"],
    ] {
        let outcome = operator.cli(arguments);
        assert!(outcome.succeeded() && outcome.stdout.contains("10.71.0.9"), "{outcome}");
    }
    let wider = write("10.0.0.0/8");
    for arguments in [&["pool", "apply", "--yes", "-f", &wider][..], &["pool", "delete", "--yes", "storage"]]
    {
        let outcome = node.cli(arguments);
        assert!(!outcome.succeeded(), "{outcome}");
    }
    node.del("c1").config(&pool).run().silent();
    let auto = network_as("1.1.0", "net", json!({"pool": "auto"}));
    assert_eq!(node.add("c3").config(&auto).run().address(), "10.71.0.2");
    node.del("c3").config(&auto).run().silent();
    cluster.assert_whole();
    server.switch_off();
}

/// With other tools, by whoever has the key of a node.
#[test]
fn a_nodes_key_is_refused_what_nodes_do_not_write() {
    let (server, cluster) = Server::with_a_cluster();
    let stolen = server.client("metes-node");
    let own = |key: &str| cluster.store().key(key);
    let hex = "00000000000000000000ffff0a460009";
    let keys = [
        own("v1/pool/storage"),
        own("v1/pools"),
        own(&format!("v1/hold/net/{hex}")),
        own(&format!("v1/owner/-/@net/{hex}/hold")),
        own("v1/owner/other/a/c1/eth0"),
        own("v1/pod/other/u1/eth0/net"),
        own("v1/seat/other/@pod.ns/db-0/eth0/0"),
        own("v1/tombstone/other/a/c1/eth0"),
        own("v1/node/other/a/m"),
        own("v1/gone/test/a/m"),
        own("v1/forgotten"),
        own("v1/cluster/test"),
        own("v1/seen/test/a"),
        own(&format!("v1/lacking/test/net/{hex}")),
        own("v1/lead/test"),
        own("v1/import/test"),
        own("v1/pass/test"),
        own("v1/member/10.0.0.1"),
        "/elsewhere/v1/meta".to_owned(),
        "/metes-signer/revoked/1".to_owned(),
        "/".to_owned(),
    ];
    let refused = |row: &str, outcome: Result<(), Error>| {
        let is_refused = outcome.as_ref().is_err_and(|e| e.to_string().contains("permission denied"));
        expect(row, is_refused, format!("{outcome:?}"))
    };
    let of_keys = keys.iter().flat_map(|key| {
        let put = server.run_as(&stolen, async |client| client.put(key.as_str(), "", None).await.map(drop));
        let deleted =
            server.run_as(&stolen, async |client| client.delete(key.as_str(), None).await.map(drop));
        [refused(&format!("put {key}"), put), refused(&format!("delete {key}"), deleted)]
    });
    let asked: [(&str, Asked); 10] = [
        ("add a member", |client| {
            Box::pin(async { client.member_add(["http://127.0.0.1:1"], None).await.map(drop) })
        }),
        ("add a user", |client| Box::pin(async { client.user_add("mine", "x", None).await.map(drop) })),
        ("take a role", |client| {
            Box::pin(async { client.user_grant_role("metes-node", "root").await.map(drop) })
        }),
        ("change a role", |client| {
            let all = Permission::new(PermissionType::Readwrite, "/").with_prefix();
            Box::pin(async { client.role_grant_permission("metes-node", all).await.map(drop) })
        }),
        ("switch authentication off", |client| Box::pin(async { client.auth_disable().await.map(drop) })),
        ("take a snapshot", |client| Box::pin(async { client.snapshot().await?.message().await.map(drop) })),
        ("compact", |client| Box::pin(async { client.compact(1, None).await.map(drop) })),
        ("defragment", |client| Box::pin(async { client.defragment().await.map(drop) })),
        ("move the leader", |client| Box::pin(async { client.move_leader(1).await.map(drop) })),
        ("read what the signer keeps", |client| {
            Box::pin(async { client.get("/metes-signer/node/a", None).await.map(drop) })
        }),
    ];
    let of_requests =
        asked.map(|(row, ask)| refused(row, server.run_as(&stolen, async |client| ask(client).await)));
    report(of_keys.chain(of_requests));
    server.switch_off();
    cluster.assert_clean();
}

/// docs/security.md says it, so that nobody relies on more.
#[test]
fn a_nodes_key_can_do_what_is_documented() {
    let (server, cluster) = Server::with_a_cluster();
    let other = cluster.node("other");
    let address = other.add("c1").config(&config()).run().address();
    let stolen = server.client("metes-node");
    let write = |key: &str, value: &str| {
        let key = cluster.store().key(key);
        server.run_as(&stolen, async |client| client.put(key.as_str(), value, None).await).expect("it may");
    };
    let held = cluster.store().keys("v1/net/").into_iter().find(|key| key.contains("/ip/")).expect("held");
    write("v1/owner/test/other/c1/eth0", "falsified");
    write(&held, "falsified");
    write("v1/asked/large", &"x".repeat(1 << 20));
    for _ in 0..100 {
        server.run_as(&stolen, async |client| client.lease_grant(1 << 30, None).await).expect("it may");
    }
    let free = |key: &str| {
        let key = cluster.store().key(key);
        server.run_as(&stolen, async |client| client.delete(key.as_str(), None).await).expect("it may");
    };
    free("v1/owner/test/other/c1/eth0");
    free(&held);
    assert_eq!(other.list(), [Value::Null; 0], "{address} is free, and its pod has it still");
    write("v1/meta", r#"{"v":1,"suspect":1}"#);
    server.switch_off();
    cluster.leave_unclean();
}

fn a_reconciler_that_stays_leads(world: &World, reconciler: Reconciler) {
    let [port] = free_ports();
    let listen = format!("127.0.0.1:{port}");
    let running = reconciler.args(["--listen", &listen, "--every", "1s"]).spawn();
    wait_for("somebody to lead", SOON, || match world.cluster.store().keys("v1/lead/") {
        leads if leads.is_empty() => Err("nobody leads".to_owned()),
        _ => Ok(()),
    });
    running.terminate();
    let outcome = running.wait();
    assert!(outcome.succeeded(), "{outcome}");
    assert_eq!(world.cluster.store().keys("v1/lead/"), [""; 0], "it hands over");
}

fn a_suspect_store_is_adopted(world: &World, node: &Node, reconciler: impl Fn() -> Reconciler) {
    world.cluster.store().change_meta(&json!({"suspect": 1}));
    node.add("c3").config(&config()).run().error(102);
    world.api.install_crds();
    let adopt = |args: &[&str]| reconciler().args(["adopt"]).args(args).run();
    for args in [&["--dry-run"][..], &[]] {
        let outcome = adopt(args);
        assert!(outcome.succeeded(), "{outcome}");
    }
    node.add("c3").config(&config()).run().address();
    node.del("c3").config(&config()).run().silent();
}

fn an_import_is_begun_and_given_up(reconciler: impl Fn() -> Reconciler) {
    for step in ["--begin", "--cancel"] {
        let outcome = reconciler().args(["import-whereabouts", step]).run();
        assert!(outcome.succeeded(), "{outcome}");
    }
}

/// The permissions that the lease of a run needs: more than to put and delete keys.
#[test]
fn leases_are_for_every_user_and_end_only_with_the_right_to_their_keys() {
    let (server, cluster) = Server::with_a_cluster();
    let own = cluster.store().key("v1/fence/a");
    let lease = cluster.store().run(async |client| {
        let lease = client.lease_grant(60, None).await?.id();
        client.put(own.as_str(), "", Some(PutOptions::new().with_lease(lease))).await?;
        client.lease_time_to_live(lease, None).await?;
        Ok(lease)
    });
    let east = server.client("metes-east");
    assert!(
        server.run_as(&east, async |client| client.lease_revoke(lease).await).is_err(),
        "another tenant's"
    );
    cluster.store().run(async |client| client.lease_revoke(lease).await);
    assert_eq!(cluster.store().get("v1/fence/a"), None);
    server.switch_off();
    cluster.assert_clean();
}

/// The verbs of CNI, each of which asks etcd for something.
fn verbs(node: &Node) -> Vec<(&'static str, Run)> {
    let mut previous = config();
    previous["prevResult"] =
        json!({"cniVersion": "1.1.0", "ips": [{"address": "10.70.0.1/24"}], "interfaces": []});
    vec![
        ("ADD", node.add("c1").config(&config())),
        ("ADD of another", node.add("c2").config(&config())),
        ("CHECK", node.check("c1").config(&previous)),
        ("GC", gc(node, &json!([]))),
        ("DEL", node.del("c1").config(&config())),
    ]
}

const READERS: [&[&str]; 9] = [
    &["list", "--watch-only", "--timeout", "1s"],
    &["list"],
    &["usage"],
    &["map", "10.70.0.0/24"],
    &["show", "10.70.0.1"],
    &["check"],
    &["holds"],
    &["top"],
    &["leaks"],
];
const WRITERS: [&[&str]; 6] = [
    &["release", "--now", "10.70.0.1"],
    &["hold", "10.70.0.9", "--note", "x", "--for", "1h"],
    &["hold", "--remove", "10.70.0.9"],
    &["release", "10.70.0.1", "--yes"],
    &["release", "--container", "c1", "--yes"],
    &["check", "--accept-store", "--yes"],
];

/// Everything that `node` may ask is refused: with code 104, and in words for people.
fn judge_refused(row: &str, node: &Node) -> Vec<Option<String>> {
    let mut failures = Vec::new();
    for (verb, run) in verbs(node) {
        let outcome = run.run();
        failures.push(expect(
            &format!("{row}, {verb}"),
            outcome.error_code() == Some(104) && outcome.stdout.contains("permission"),
            &outcome,
        ));
    }
    let status = node.status().config(&config()).run();
    let is_told = [50, 104].contains(&status.error_code().unwrap_or_default());
    failures.push(expect(&format!("{row}, STATUS"), is_told, &status));
    for arguments in READERS.into_iter().chain(WRITERS) {
        let outcome = node.cli(arguments);
        let is_refused = outcome.status.code() == Some(1)
            && outcome.stdout.is_empty()
            && outcome.stderr.contains("permission");
        failures.push(expect(&format!("{row}, {arguments:?}"), is_refused, &outcome));
    }
    // It goes on to the checks that need no rights.
    let doctor = node.cli(["doctor"]);
    let is_told = ["cannot be read", "permission", "node "].iter().all(|words| doctor.stdout.contains(words));
    let is_told = is_told && doctor.status.code() == Some(1);
    failures.push(expect(&format!("{row}, doctor"), is_told, &doctor));
    // The version of etcd is for everybody.
    let version = node.cli(["version", "--server"]);
    let is_told =
        ["ETCD", "store: it cannot be read", "permission"].iter().all(|words| version.stdout.contains(words));
    let is_told = is_told && version.status.code() == Some(1);
    failures.push(expect(&format!("{row}, version"), is_told, &version));
    failures
}

#[test]
fn another_tenants_prefix_is_closed() {
    let server = Server::start();
    let (west, east) = (Cluster::on(&server.etcd), Cluster::on(&server.etcd));
    server.set_up(&[("/metes/", west.prefix()), ("/metes-east/", east.prefix())]);
    let of_east = east.node_with("a", server.user("metes-east"));
    let of_west = west.node("a");
    for node in [&of_east, &of_west] {
        node.add("c1").pod("ns", "web-0", "u1").config(&config()).run().address();
    }
    let tree = |cluster: &Cluster| {
        let prefix = cluster.prefix().to_owned();
        server.as_administrator(async |client| {
            let options = etcd_client::GetOptions::new().with_prefix();
            let answer = client.get(prefix, Some(options)).await?;
            let entry =
                |kv: &etcd_client::KeyValue| (kv.key().to_vec(), kv.value().to_vec(), kv.mod_revision());
            let mut entries: Vec<_> = answer.kvs().iter().map(entry).collect();
            // They end with their leases.
            entries.retain(|(key, ..)| !String::from_utf8_lossy(key).contains("/v1/fence/"));
            Ok(entries)
        })
    };
    let before = [tree(&west), tree(&east)];
    let with = |cluster: &Cluster, name: &str, keys: Value| cluster.node_with(name, keys);
    let rows = [
        ("the west's user in the east", with(&east, "w", json!({}))),
        ("the east's user in the west", with(&west, "e", server.user("metes-east"))),
        ("a user without roles", with(&west, "s", server.user("stranger"))),
        ("one whose name is nobody's", with(&east, "n", server.user("nobody-by-that-name"))),
    ];
    server.as_administrator(async |client| {
        client.user_add("stranger", "", Some(UserAddOptions::new().with_no_pwd())).await
    });
    report(rows.into_iter().flat_map(|(row, node)| judge_refused(row, &node)));

    // A pass of the reconciler with the wrong certificate frees nothing and says why.
    let wrong = with(&east, "reconciler", json!({}));
    let pass = east.reconciler(KubeApi::shared()).config(wrong.host_file()).args(AT_ONCE).run();
    assert!(pass.status.code() != Some(0) && pass.stderr.contains("permission"), "{pass}");
    assert_eq!([tree(&west), tree(&east)], before, "nothing was changed");

    // A user who only looks.
    let viewer = west.node_with("v", server.user("metes-viewer"));
    report(READERS.into_iter().map(|arguments| {
        let outcome = viewer.cli(arguments);
        expect(&format!("a viewer, {arguments:?}"), outcome.succeeded(), outcome)
    }));
    let version = viewer.cli(["version", "--server"]);
    assert!(version.succeeded() && version.stdout.contains("\nstore "), "{version}");
    let refused = viewer.add("c7").config(&config()).run();
    assert_eq!(refused.error_code(), Some(104), "{refused}");
    assert_eq!(viewer.cli(["release", "10.70.0.1", "--yes"]).status.code(), Some(1));
    assert_eq!([tree(&west), tree(&east)], before, "nothing was changed");

    for node in [&of_east, &of_west] {
        node.del("c1").config(&config()).run().silent();
    }
    server.switch_off();
    for cluster in [&west, &east] {
        cluster.assert_nothing_held();
        cluster.assert_clean();
    }
}

/// A node that is lost is locked out at once, and no other with it.
#[test]
fn a_user_for_each_node() {
    const DOCUMENTED: &str = "metes-node-worker-1";
    const ANOTHER: &str = "metes-node-worker-2";
    let (server, cluster) = Server::with_a_cluster();
    // The first one is the document's own.
    for words in documented_commands().iter().filter(|words| words.iter().any(|word| word == DOCUMENTED)) {
        let another = words.iter().map(|word| word.replace(DOCUMENTED, ANOTHER)).collect::<Vec<_>>();
        if another[1] != "delete" {
            server.carry_out(&another, &[]);
        }
    }
    let [lost, stays] = [DOCUMENTED, ANOTHER].map(|user| cluster.node_with(user, server.user(user)));
    for node in [&lost, &stays] {
        node.add("c1").config(&config()).run().address();
    }
    let delete = documented_commands().into_iter().find(|words| words[..2] == ["user", "delete"]);
    server.carry_out(&delete.expect("docs/security.md says how a node is locked out"), &[]);
    report(judge_refused("a deleted user", &lost));
    stays.add("c2").config(&config()).run().address();
    assert_eq!(stays.list().len(), 3);
    server.switch_off();
    cluster.assert_clean();
}

/// While an authority is replaced, both are trusted.
#[test]
fn a_file_of_two_authorities() {
    let server = Server::start();
    let cluster = Cluster::on(&server.etcd);
    let other = Tls::create(&cluster.folder().join("other"));
    let read = |path: PathBuf| fs::read_to_string(path).expect("a certificate can be read");
    let both = cluster.folder().join("both.pem");
    for (row, text) in [
        ("the new one first", read(other.ca()) + &read(server.tls().ca())),
        ("the new one last", read(server.tls().ca()) + &read(other.ca())),
    ] {
        fs::write(&both, text).expect("a file can be written");
        let node = cluster.node_with("a", json!({"etcd": {"ca_file": both}}));
        assert!(node.add("c1").config(&config()).run().succeeded(), "{row}");
        node.del("c1").config(&config()).run().silent();
    }
    cluster.assert_clean();
}
