//! Foreign writes in etcd: a key that somebody else has put among the keys of metes, or beside them, keeps its address
//! occupied and is named by `metes check`. No program of metes changes a byte of it.

use std::time::Duration;

use etcd_client::PutOptions;
use serde_json::{Value, json};
use support::{Cluster, KubeApi, Node, Outcome, Run, metes, network_as, report};

const META: &str = "v1/meta";
const PAGE: &str = "v1/net/default/page/00000000000000000000ffff0a000000";
const FULL: &str = "v1/net/default/summary/00000000000000000000ffff0a000000";
const IP: &str = "v1/net/default/ip/00000000000000000000ffff0a000001";
const NEXT_IP: &str = "v1/net/default/ip/00000000000000000000ffff0a000002";
const OWNER: &str = "v1/owner/test/a/c1/eth0";
const POD: &str = "v1/pod/test/u1/eth0/default";
const TOMBSTONE: &str = "v1/tombstone/test/a/c1/eth0";
const CLUSTER: &str = "v1/cluster/test";
const SIGHTING: &str = "v1/orphan/test/a/c1/eth0";
const LEAD: &str = "v1/lead/test";
/// The result of the last pass, and what a member of etcd says of itself.
const PASS: &str = "v1/pass/test";
const MEMBER: &str = "v1/member/10.0.0.9";
const IMPORT: &str = "v1/import/test";
const SEEN: &str = "v1/seen/test/a";
const OTHER_NODE: &str = "v1/node/test/other/-";
const GONE: &str = "v1/gone/test/other/-";
const FORGOTTEN: &str = "v1/forgotten";
const STRANGER: &str = "v1/stranger/0f/a1";
/// Of an address that nobody holds, in a network of its own.
const LACKING: &str = "v1/lacking/test/other/00000000000000000000ffff0a000009";
const SCOPE: &str = "default,00000000000000000000ffff0a000000";
/// The address that is held in every row before the foreign write.
const HELD: &str = "10.0.0.1";

/// Values that are no record of any kind.
const NO_RECORDS: [&[u8]; 5] = [b"", b"\0\xff\xfegarbage", b"{}", b"7", br#"{"v":"1"}"#];

fn config() -> Value {
    network_as("1.1.0", "net", json!({"range": "10.0.0.0/24", "order": "next"}))
}

fn expect(row: &str, is_right: bool, found: impl std::fmt::Display) -> Option<String> {
    (!is_right).then(|| format!("{row}: {found}"))
}

/// A program of metes, and how it is run.
type Actor<'a> = (&'static str, Box<dyn Fn() -> Outcome + 'a>);

/// A key's value with its revision: to write the same bytes again is a change too.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stored {
    value: Vec<u8>,
    mod_revision: i64,
    lease: i64,
}

/// A cluster with one container of a pod that Kubernetes does not know, at [`HELD`].
struct Scene {
    cluster: Cluster,
    node: Node,
    /// The answer of the ADD, as a CHECK is given it.
    result: Value,
    /// All that was stored then, except for keys on leases.
    stored: Vec<(String, Vec<u8>)>,
}

impl Scene {
    fn new() -> Self {
        let cluster = Cluster::new();
        let node = cluster.node_with("a", json!({"gc_grace_s": 0}));
        let result = node.add("c1").pod("ns", "web-0", "u1").config(&config()).run().ok();
        assert_eq!(result["ips"][0]["address"], json!(format!("{HELD}/24")));
        let mut stored = cluster.store().entries("v1/");
        stored.retain(|(key, _)| !key.starts_with("v1/fence/"));
        cluster.leave_unclean();
        Self { cluster, node, result, stored }
    }

    fn cursor(&self) -> String {
        let key = self.stored.iter().map(|(key, _)| key).find(|key| key.contains("/cursor/"));
        key.expect("order `next` has a cursor").clone()
    }

    /// Restores the store as it was when the scene was made, and then writes `value` under `key`.
    fn meddle(&self, key: &[u8], value: &[u8]) {
        let store = self.cluster.store();
        store.delete_prefix("");
        store.put_all(self.stored.clone());
        self.put(key, value);
    }

    /// Foreign keys need not be text.
    fn put(&self, key: &[u8], value: &[u8]) {
        let key = self.key(key);
        self.cluster.store().run(async |client| client.put(key, value, None).await);
    }

    fn stored(&self, key: &[u8]) -> Option<Stored> {
        let key = self.key(key);
        let answer = self.cluster.store().run(async |client| client.get(key, None).await);
        answer.kvs().first().map(|kv| Stored {
            value: kv.value().to_vec(),
            mod_revision: kv.mod_revision(),
            lease: kv.lease(),
        })
    }

    fn key(&self, key: &[u8]) -> Vec<u8> {
        [self.cluster.prefix().as_bytes(), key].concat()
    }

    fn cli(&self, arguments: &[&str]) -> Run {
        Run::new(metes()).env("METES_CONF", self.node.host_file()).arguments(arguments)
    }

    /// Every program that writes to the store, one at a time.
    fn actors(&self) -> Vec<Actor<'_>> {
        let add = |id: &str| self.node.add(id).config(&config());
        let pod = |run: Run| run.pod("ns", "web-0", "u1");
        let sticky = |id: &str| {
            let mut config = config();
            config["ipam"]["sticky"] = json!("pod");
            self.node.add(id).config(&config)
        };
        let with_result = |mut config: Value| {
            config["prevResult"] = self.result.clone();
            config
        };
        let gc = || {
            let mut config = config();
            config["cni.dev/valid-attachments"] = json!([]);
            self.node.gc().config(&config).run()
        };
        let pass = || {
            let flags = ["-o", "json", "--grace", "0s", "--finished-grace", "0s"];
            self.cluster.reconciler(KubeApi::shared()).args(flags).run()
        };
        let apply = || {
            let file = self.cluster.folder().join("pool.yaml");
            std::fs::write(&file, "pool: storage\nranges:\n- range: 10.9.0.0/24\n").expect("written");
            self.cli(&["pool", "apply", "--yes", "-f", file.to_str().expect("a plain path")]).run()
        };
        vec![
            ("ADD of another container", Box::new(move || add("c2").run())),
            ("ADD of the same container", Box::new(move || pod(add("c1")).run())),
            ("ADD of the pod's next sandbox", Box::new(move || pod(add("c3")).run())),
            ("ADD that asks for the address", Box::new(move || add("c4").args("IP=10.0.0.1").run())),
            ("ADD that asks for the next address", Box::new(move || add("c4").args("IP=10.0.0.2").run())),
            ("ADD of a sticky network", Box::new(move || sticky("c6").pod("ns", "web-0", "u6").run())),
            ("CHECK", Box::new(move || self.node.check("c1").config(&with_result(config())).run())),
            ("DEL", Box::new(move || self.node.del("c1").config(&config()).run())),
            ("DEL of another container", Box::new(move || self.node.del("c9").config(&config()).run())),
            ("GC", Box::new(gc)),
            ("STATUS", Box::new(move || self.node.status().config(&config()).run())),
            (
                "release of the container",
                Box::new(|| self.cli(&["release", "--container", "c1", "-y"]).run()),
            ),
            ("release of the address", Box::new(|| self.cli(&["release", HELD, "-y"]).run())),
            ("check --repair", Box::new(|| self.cli(&["check", "--repair"]).run())),
            ("check --accept-store", Box::new(|| self.cli(&["check", "--accept-store", "--yes"]).run())),
            ("pool apply", Box::new(apply)),
            ("a pass of the reconciler", Box::new(pass)),
        ]
    }

    /// `metes check` fails and names the key, for people and for programs.
    fn judge_check(&self, row: &str, key: &[u8], name: &str) -> [Option<String>; 2] {
        let full = String::from_utf8_lossy(&self.key(key)).into_owned();
        let json = self.cli(&["check", "-o", "json"]).run();
        let found = json.json()["violations"].clone();
        let is_named = found
            .as_array()
            .is_some_and(|found| found.iter().any(|one| one["name"] == name && one["key"] == full.as_str()));
        let text = self.cli(&["check"]).run();
        let is_told = text.stdout.contains(&format!("violation {name}: "));
        [
            expect(row, is_named && json.status.code() == Some(1), format!("not named {name}: {json}")),
            expect(row, is_told && text.status.code() == Some(1), format!("not told as {name}: {text}")),
        ]
    }

    /// True if an answer gives [`HELD`] to somebody who is neither its container nor its pod.
    fn is_given_away(&self, actor: &str, outcome: &Outcome) -> bool {
        let is_entitled = ["ADD of the same container", "ADD of the pod's next sandbox"].contains(&actor);
        actor.starts_with("ADD")
            && !is_entitled
            && outcome.succeeded()
            && outcome.addresses() == [format!("{HELD}/24")]
    }

    /// Runs every program, each on the store as it was made and with `value` under `key`. `holds`: the address must
    /// stay occupied afterwards.
    fn judge(&self, row: &str, key: &[u8], value: &[u8], name: &str, holds: bool) -> Vec<Option<String>> {
        self.meddle(key, value);
        let row = format!("{row}, {:?}", String::from_utf8_lossy(&value[..value.len().min(40)]));
        let mut failures: Vec<Option<String>> = self.judge_check(&row, key, name).into();
        for (actor, run) in self.actors() {
            self.meddle(key, value);
            let before = self.stored(key);
            let outcome = run();
            let row = format!("{row}, {actor}");
            let after = self.stored(key);
            failures.extend([
                expect(&row, outcome.status.code().is_some(), format!("it was killed: {outcome}")),
                expect(&row, before == after, format!("{before:?} became {after:?}: {outcome}")),
                expect(&row, !self.is_given_away(actor, &outcome), format!("given away: {outcome}")),
            ]);
            if holds {
                let ask = self.node.add("c5").args("IP=10.0.0.1").config(&config()).run();
                let is_held = ask.error_code().is_some_and(|code| [101, 102].contains(&code));
                failures.push(expect(&row, is_held, format!("{HELD} is not occupied any more: {ask}")));
            }
        }
        failures
    }
}

/// The table below relies on this: where nothing is wrong, every program does its work.
#[test]
fn without_foreign_hands_everybody_does_its_work() {
    let scene = Scene::new();
    let frees =
        ["DEL", "GC", "release of the container", "release of the address", "a pass of the reconciler"];
    let refused = ["ADD that asks for the address"];
    report(scene.actors().into_iter().flat_map(|(actor, run)| {
        scene.meddle(b"beside", b"");
        let outcome = run();
        let is_held = scene.stored(IP.as_bytes()).is_some();
        [
            expect(actor, outcome.succeeded() != refused.contains(&actor), &outcome),
            expect(actor, is_held != frees.contains(&actor), format!("held: {is_held}, after {outcome}")),
        ]
    }));
}

/// A record of this kind as a newer version would write it, and one with a field of a wrong type.
fn changed(scene: &Scene, key: &str, change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let found = scene.stored.iter().find(|(stored, _)| stored == key);
    let mut record = match found {
        Some((_, value)) => serde_json::from_slice(value).expect("a record is JSON"),
        None => {
            json!({"v": 1, "start": {"boot": "b", "ns": 1}, "uid": "u", "reason": "pod-gone", "revision": 1, "grace": 1,
            "digest": "0f", "holder": "h", "outcome": "success", "at_ms": 1, "took_ms": 1, "figures": {}, "by": {}})
        }
    };
    change(&mut record);
    record.to_string().into_bytes()
}

/// Records that do not decode: of no kind, of a newer version, and with a field that is something else.
fn no_records(scene: &Scene, key: &str, field: &str) -> Vec<Vec<u8>> {
    let mut values: Vec<Vec<u8>> = NO_RECORDS.map(<[u8]>::to_vec).into();
    values.push(changed(scene, key, |record| record["v"] = json!(2)));
    values.push(changed(scene, key, |record| record["v"] = json!(u64::MAX)));
    values.push(changed(scene, key, |record| record[field] = json!({"unexpected": [1, 2, 3]})));
    values.push(changed(scene, key, |record| _ = record.as_object_mut().expect("an object").remove(field)));
    values
}

fn is_newer(value: &[u8]) -> bool {
    let record = serde_json::from_slice::<Value>(value).ok();
    record.and_then(|record| record["v"].as_u64()).is_some_and(|version| version > 1)
}

#[test]
fn records_that_do_not_decode() {
    let rows = [
        // The key, its name in check, a field that it cannot be without, whether the address must stay occupied.
        (IP, "undecodable-reservation", "owner", true),
        (NEXT_IP, "undecodable-reservation", "owner", false),
        (OWNER, "undecodable-owner", "addresses", true),
        ("v1/owner/test/a/c8/eth0", "undecodable-owner", "addresses", false),
        (POD, "undecodable-pod-index", "node", false),
        ("v1/seat/test/@pod.ns/web-0/eth0/0", "undecodable-seat", "user", false),
        (TOMBSTONE, "undecodable-tombstone", "start", false),
        (CLUSTER, "undecodable-cluster", "uid", false),
        ("v1/pool/storage", "undecodable-pool", "definition", false),
        ("v1/pools", "undecodable-pool", "v", false),
        (
            "v1/owner/-/@default/00000000000000000000ffff0a000009/hold",
            "undecodable-owner",
            "addresses",
            false,
        ),
    ];
    let scene = Scene::new();
    report(rows.into_iter().flat_map(|(key, name, field, holds)| {
        let judge = |value: Vec<u8>| {
            let name = if is_newer(&value) { "record-newer" } else { name };
            scene.judge(key, key.as_bytes(), &value, name, holds)
        };
        no_records(&scene, key, field).into_iter().flat_map(judge).collect::<Vec<_>>()
    }));
}

/// A newer schema is named as such; nobody hands out anything beside a meta that cannot be read.
#[test]
fn a_meta_that_does_not_decode() {
    let scene = Scene::new();
    report(no_records(&scene, META, "epoch").into_iter().flat_map(|value| {
        let name = if is_newer(&value) { "schema-newer" } else { "undecodable-meta" };
        scene.judge(META, META.as_bytes(), &value, name, true)
    }));
}

#[test]
fn bitmaps_and_cursors_that_are_none() {
    let scene = Scene::new();
    let lengths = [0, 1, 511, 513, 4096, 1 << 20];
    let bitmaps = lengths.map(|length| vec![0; length]);
    let cursors: [&[u8]; 6] = [b"", b"\0\xff", b"300.1.1.1", b"10.0.0.1/24", b"{\"v\":1}", &[b'0'; 33]];
    let of = |key: &str, name: &str, holds: bool, values: &[Vec<u8>]| -> Vec<Option<String>> {
        values.iter().flat_map(|value| scene.judge(key, key.as_bytes(), value, name, holds)).collect()
    };
    report(
        [
            of(PAGE, "undecodable-page", true, &bitmaps),
            of(FULL, "undecodable-summary", false, &bitmaps),
            of(&scene.cursor(), "undecodable-cursor", false, &cursors.map(<[u8]>::to_vec)),
        ]
        .concat(),
    );
}

#[test]
fn keys_that_are_none() {
    let scene = Scene::new();
    let keys: [&[u8]; 20] = [
        b"v1/",
        b"v1/junk",
        b"v1/meta/",
        b"v1/meta2",
        b"v1/net/default/ip/xyz",
        b"v1/net/default/ip/00000000000000000000FFFF0A000001",
        b"v1/net/default/ip/00000000000000000000ffff0a000001/x",
        b"v1/net/default/page/00000000000000000000ffff0a000001",
        b"v1/net/default/summary/00000000000000000000ffff0a001000",
        b"v1/net/default/cursor/short",
        b"v1/net/default/unknown/00000000000000000000ffff0a000001",
        b"v1/net/bad name/ip/00000000000000000000ffff0a000001",
        b"v1/net//ip/00000000000000000000ffff0a000001",
        b"v1/owner/test/a/c1",
        b"v1/owner/test/a/../eth0",
        b"v1/owner/test/a/c1/sixteen-bytes-xx",
        b"v1/pod/test/u1/eth0/\xff\xfe",
        b"v1/tombstone/a",
        b"v1/ticket/a/b/c",
        b"v1/fence/\0",
    ];
    report(keys.into_iter().flat_map(|key| {
        let row = String::from_utf8_lossy(key).into_owned();
        scene.judge(&row, key, b"\0garbage", "foreign-key", false)
    }));
}

/// More than one answer of etcd can hold: programs that read the whole tree read it in smaller parts.
#[test]
fn values_of_any_size() {
    const MIB: usize = 1 << 20;
    let scene = Scene::new();
    scene.meddle(b"beside", b"");
    let large = |i: usize| (format!("v1/owner/test/a/large-{i:02}/eth0"), vec![b'x'; MIB]);
    (0..20).map(large).for_each(|(key, value)| scene.put(key.as_bytes(), &value));
    let check = scene.cli(&["check", "-o", "json"]).run();
    let named = check.json()["violations"].as_array().map(Vec::len);
    assert_eq!((check.status.code(), named), (Some(1), Some(20)), "{}", check.stderr);
    let add = scene.node.add("c2").config(&config()).run();
    assert_eq!(add.address(), "10.0.0.2");
    let flags = ["-o", "json", "--grace", "0s"];
    let pass = scene.cluster.reconciler(KubeApi::shared()).args(flags).run();
    assert_eq!(pass.ok()["kept"], json!({"undecodable": 20, "unlabelled": 1}), "{pass}");
    assert_eq!(pass.json()["freed"], json!({"pod-gone": 1}), "{pass}");
    for (key, value) in (0..20).map(large) {
        assert!(
            scene.stored(key.as_bytes()).is_some_and(|stored| stored.value == value),
            "{key} was changed"
        );
    }
}

/// metes leaves alone all keys beside its own tree: a later layout, or another program's keys under the prefix.
#[test]
fn what_lies_beside_the_tree_is_left_alone() {
    let scene = Scene::new();
    report(["junk", "v2/meta", "v10/net/default/ip/x", "east/v1/meta"].into_iter().flat_map(|key| {
        let mut failures = Vec::new();
        for (actor, run) in scene.actors() {
            scene.meddle(key.as_bytes(), b"theirs");
            let before = scene.stored(key.as_bytes());
            let outcome = run();
            let after = scene.stored(key.as_bytes());
            let row = format!("{key}, {actor}");
            failures.push(expect(&row, before == after, format!("{before:?} became {after:?}: {outcome}")));
        }
        failures
    }));
}

/// A record with fields that this version does not know is not refused. A program that need not change it leaves it
/// alone.
#[test]
fn unknown_fields_stay() {
    let scene = Scene::new();
    let keys = [META, IP, OWNER, POD];
    report(keys.into_iter().flat_map(|key| {
        let value = changed(&scene, key, |record| record["later"] = json!({"a": [1]}));
        let strangers = [
            "ADD of another container",
            "ADD that asks for the address",
            "CHECK",
            "DEL of another container",
            "STATUS",
            "check --repair",
        ];
        let mut failures = Vec::new();
        for (actor, run) in scene.actors().into_iter().filter(|(actor, _)| strangers.contains(actor)) {
            scene.meddle(key.as_bytes(), &value);
            let before = scene.stored(key.as_bytes());
            let outcome = run();
            let after = scene.stored(key.as_bytes());
            let row = format!("{key}, {actor}");
            failures.extend([
                expect(&row, before == after, format!("{before:?} became {after:?}: {outcome}")),
                expect(&row, !scene.is_given_away(actor, &outcome), format!("given away: {outcome}")),
            ]);
        }
        scene.meddle(key.as_bytes(), &value);
        let check = scene.cli(&["check"]).run();
        failures.push(expect(key, check.succeeded(), check));
        let del = scene.node.del("c1").config(&config()).run();
        let left = scene.stored(IP.as_bytes());
        failures.push(expect(key, del.succeeded() && left.is_none(), format!("its own DEL frees it: {del}")));
        failures
    }));
}

/// A note of the reconciler or of a member of etcd holds no address. Garbage there is named, only its writer writes
/// over it, and no orphan is freed earlier because of it.
#[test]
fn notes_that_are_none() {
    let scene = Scene::new();
    let rows = [
        (SIGHTING, "reason"),
        (LEAD, "holder"),
        (PASS, "outcome"),
        (MEMBER, "v"),
        (IMPORT, "digest"),
        (SEEN, "v"),
        (OTHER_NODE, "boot"),
        (GONE, "reason"),
        (FORGOTTEN, "revision"),
        (STRANGER, "boot"),
        (LACKING, "uid"),
    ];
    report(rows.into_iter().flat_map(|(key, field)| {
        let mut failures = Vec::new();
        for value in no_records(&scene, key, field) {
            let row = format!("{key}, {:?}", String::from_utf8_lossy(&value));
            scene.meddle(key.as_bytes(), &value);
            let name = if is_newer(&value) { "record-newer" } else { "undecodable-note" };
            failures.extend(scene.judge_check(&row, key.as_bytes(), name));
            for (actor, run) in scene.actors() {
                if key == SIGHTING && actor == "a pass of the reconciler" {
                    continue;
                }
                scene.meddle(key.as_bytes(), &value);
                let before = scene.stored(key.as_bytes());
                let outcome = run();
                let after = scene.stored(key.as_bytes());
                let row = format!("{row}, {actor}");
                failures.push(expect(
                    &row,
                    before == after,
                    format!("{before:?} became {after:?}: {outcome}"),
                ));
            }
            scene.meddle(key.as_bytes(), &value);
            let flags = ["-o", "json", "--grace", "1h"];
            let pass = scene.cluster.reconciler(KubeApi::shared()).args(flags).run();
            let is_kept = pass.succeeded() && pass.json()["kept"] == json!({"within-grace": 1});
            failures.push(expect(&row, is_kept, format!("freed before its time: {pass}")));
        }
        failures
    }));
}

/// A note that an address is cooling counts by its key alone.
#[test]
fn a_note_of_cooling_that_is_none() {
    let scene = Scene::new();
    let key = "v1/net/default/cooling/00000000000000000000ffff0a000009";
    report(scene.judge(key, key.as_bytes(), b"\0garbage", "undecodable-note", false));
}

/// A note of asked ranges is for people alone.
#[test]
fn a_note_of_asked_ranges_that_is_none() {
    let scene = Scene::new();
    let key = "v1/asked/00000000000000000000000000000000";
    report(scene.judge(key, key.as_bytes(), b"\0garbage", "undecodable-note", false));
}

/// The time of a hold that hangs on no lease would never be over. It is named, and only a person ends it.
#[test]
fn a_time_of_a_hold_that_would_never_end() {
    let scene = Scene::new();
    let key = "v1/hold/default/00000000000000000000ffff0a000009";
    report(scene.judge(key, key.as_bytes(), b"\0garbage", "stale-without-lease", false));
}

/// Tickets, tails and fences are between runs, and hold no address either. Garbage there only makes runs wait for a
/// bounded time.
#[test]
fn tickets_tails_and_fences_that_are_none() {
    let scene = Scene::new();
    let ticket = format!("v1/ticket/{SCOPE}/0000000000000001");
    let tail = format!("v1/tail/{SCOPE}");
    let of_ticket = "0000000000000001";
    let rows: [(&str, Vec<(&str, &str)>); 7] = [
        ("a ticket", vec![(&ticket, "\0garbage")]),
        ("a tail of nobody", vec![(&tail, "ffffffffffffffff")]),
        ("a tail that is none", vec![(&tail, "\0garbage")]),
        ("an empty tail", vec![(&tail, "")]),
        ("a ticket and its tail", vec![(&ticket, "\0garbage"), (&tail, of_ticket)]),
        ("a ticket and no tail of it", vec![(&ticket, ""), (&tail, "\0garbage")]),
        ("a fence", vec![("v1/fence/a", "\0garbage")]),
    ];
    report(rows.into_iter().flat_map(|(row, keys)| {
        let mut failures = Vec::new();
        for leased in [false, true] {
            let row = format!("{row}, on a lease: {leased}");
            let meddle = || {
                scene.meddle(META.as_bytes(), &scene.stored[position(&scene, META)].1);
                for (key, value) in &keys {
                    put(&scene, key, value, leased);
                }
            };
            meddle();
            if !leased {
                failures.extend(scene.judge_check(&row, keys[0].0.as_bytes(), "stale-without-lease"));
            }
            let add = scene.node.add("c2").config(&config()).run();
            let is_served = add.succeeded() && add.address() != HELD && add.elapsed < Duration::from_secs(5);
            failures.push(expect(&row, is_served, format!("served late, or not: {add}")));
            meddle();
            let del = scene.node.del("c1").config(&config()).run();
            failures.push(expect(&row, del.succeeded() && del.elapsed < Duration::from_secs(4), &del));
            meddle();
            let ask = scene.node.add("c4").args("IP=10.0.0.1").config(&config()).run();
            failures.push(expect(&row, ask.error_code() == Some(101), format!("given away: {ask}")));
            let repaired = scene.cli(&["check", "--repair"]).run();
            failures.push(expect(&row, repaired.succeeded(), format!("not repaired: {repaired}")));
        }
        failures
    }));
}

fn position(scene: &Scene, key: &str) -> usize {
    scene.stored.iter().position(|(stored, _)| stored == key).expect("it is stored")
}

fn put(scene: &Scene, key: &str, value: &str, leased: bool) {
    let key = scene.key(key.as_bytes());
    scene.cluster.store().run(async |client| {
        let lease = if leased { client.lease_grant(600, None).await?.id() } else { 0 };
        client.put(key, value, Some(PutOptions::new().with_lease(lease))).await
    });
}
