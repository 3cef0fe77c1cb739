//! `metes check --mend`: each kind of damage that somebody can do with etcdctl is mended by a command that asks first,
//! and takes no address from a container whose record still says that it has it.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use metes_audit::Kind;
use serde_json::{Value, json};
use support::{Cluster, Node, Outcome, Run, failing_metes, metes, network_as, report};

const META: &str = "v1/meta";
const PAGE: &str = "v1/net/default/page/00000000000000000000ffff0a000000";
const SUMMARY: &str = "v1/net/default/summary/00000000000000000000ffff0a000000";
const IP: &str = "v1/net/default/ip/00000000000000000000ffff0a000001";
const NEXT_IP: &str = "v1/net/default/ip/00000000000000000000ffff0a000002";
const FREE_IP: &str = "v1/net/default/ip/00000000000000000000ffff0a000007";
const OWNER: &str = "v1/owner/test/a/c1/eth0";
const NEXT_OWNER: &str = "v1/owner/test/a/c2/eth0";
const TWIN: &str = "v1/owner/test/a/c3/eth0";
const POD: &str = "v1/pod/test/u1/eth0/default";
const NEXT_POD: &str = "v1/pod/test/u2/eth0/default";
const TOMBSTONE: &str = "v1/tombstone/test/a/c1/eth0";
const HOLD: &str = "v1/owner/-/@default/00000000000000000000ffff0a000009/hold";
const TIME_OF_HOLD: &str = "v1/hold/default/00000000000000000000ffff0a000007";

fn config() -> Value {
    network_as("1.1.0", "net", json!({"range": "10.0.0.0/24", "order": "next"}))
}

fn expect(row: &str, is_right: bool, found: impl std::fmt::Display) -> Option<String> {
    (!is_right).then(|| format!("{row}: {found}"))
}

#[track_caller]
fn done(outcome: &Outcome) {
    assert!(outcome.succeeded(), "{outcome}");
}

/// A node with container c1 of pod ns/web-1 at 10.0.0.1, c2 of ns/web-2 at 10.0.0.2, 10.0.0.9 set aside, and a pool
/// that `auto` chooses.
struct Scene {
    cluster: Cluster,
    node: Node,
    stored: Vec<(String, Vec<u8>)>,
}

impl Scene {
    fn new() -> Self {
        let cluster = Cluster::new();
        let node = cluster.node("a");
        for at in ["1", "2"] {
            let add = node.add(&format!("c{at}")).pod("ns", &format!("web-{at}"), &format!("u{at}"));
            assert_eq!(add.config(&config()).run().address(), format!("10.0.0.{at}"));
        }
        done(&node.cli(["hold", "10.0.0.9", "--note", "printer"]));
        let pool = r#"{"pool": "storage", "ranges": [{"range": "10.9.0.0/24"}], "for": {"nodes": ["a"]}}"#;
        done(&node.pool(&["apply", "-f", "-", "--yes"], pool));
        let mut stored = cluster.store().entries("v1/");
        stored.retain(|(key, _)| !key.starts_with("v1/fence/"));
        cluster.leave_unclean();
        Self { cluster, node, stored }
    }

    fn get(&self, key: &str) -> Vec<u8> {
        let found = self.stored.iter().find(|(stored, _)| stored == key);
        found.unwrap_or_else(|| panic!("{key} is stored")).1.clone()
    }

    /// A record with one field changed.
    fn changed(&self, key: &str, field: &str, value: Value) -> Vec<u8> {
        let mut record: Value = serde_json::from_slice(&self.get(key)).expect("JSON");
        record[field] = value;
        record.to_string().into_bytes()
    }

    fn cursor(&self) -> &str {
        let key = self.stored.iter().map(|(key, _)| key).find(|key| key.contains("/cursor/"));
        key.expect("order `next` has a cursor")
    }

    /// The store as it was made, and then this damage.
    fn damage(&self, (key, done): &(String, Damage)) {
        let store = self.cluster.store();
        store.delete_prefix("");
        store.put_all(self.stored.clone());
        match done {
            Damage::Put(value) => store.put(key, value.clone()),
            Damage::Delete => store.delete(key),
            Damage::OnLease => _ = store.put_leased(key, self.get(key), 600),
        }
    }

    fn mend(&self, program: std::path::PathBuf, what: &str, flags: &[&str]) -> Run {
        self.check(program, &[&["--mend", what], flags].concat())
    }

    /// `metes check`, in the folder where it keeps the keys that a mend deletes.
    fn check(&self, program: std::path::PathBuf, flags: &[&str]) -> Run {
        let run = Run::new(program).env("METES_CONF", self.node.host_file()).within(self.cluster.folder());
        run.arguments([&["check"], flags].concat())
    }

    fn restore(&self, file: &Path, flags: &[&str]) -> Outcome {
        let file = file.to_str().expect("a name in UTF-8");
        self.check(metes(), &[&["--restore", file], flags].concat()).run()
    }

    fn add_lowest(&self, container: &str) -> String {
        let lowest = network_as("1.1.0", "net", json!({"range": "10.0.0.0/24", "order": "lowest"}));
        self.node.add(container).config(&lowest).run().address()
    }

    fn holders(&self) -> BTreeSet<String> {
        let rows = self.node.list();
        let text = |row: &Value| row.as_str().unwrap_or("-").to_owned();
        rows.iter().map(|row| format!("{} {}", text(&row["address"]), text(&row["container_id"]))).collect()
    }
}

enum Damage {
    Put(Vec<u8>),
    Delete,
    OnLease,
}

/// The holders of all addresses, if nothing was freed.
const ALL: &[&str] = &["10.0.0.1 c1", "10.0.0.2 c2", "10.0.0.9 -"];

/// One kind of damage: its kind, the damage, and the holders after it was mended.
type Row = (Kind, (String, Damage), &'static [&'static str]);

fn rows(scene: &Scene) -> Vec<Row> {
    let garbage = |key: &str| (key.to_owned(), Damage::Put(b"\0garbage".to_vec()));
    let put = |key: &str, value: Vec<u8>| (key.to_owned(), Damage::Put(value));
    let without_c1 = &["10.0.0.2 c2", "10.0.0.9 -"];
    let mut full = vec![0; 512];
    full[0] = 0xff;
    full[511] = 0xff;
    vec![
        (Kind::ForeignKey, garbage("v1/junk"), ALL),
        (Kind::UndecodablePage, garbage(PAGE), ALL),
        (Kind::UndecodableSummary, garbage(SUMMARY), ALL),
        // Its owner's record says whose it is.
        (Kind::UndecodableReservation, garbage(IP), ALL),
        // Nobody's record does.
        (Kind::UndecodableReservation, garbage(FREE_IP), ALL),
        (Kind::UndecodableOwner, garbage(OWNER), without_c1),
        (Kind::UndecodableOwner, garbage(HOLD), &ALL[..2]),
        (Kind::UndecodablePodIndex, garbage(POD), ALL),
        (Kind::UndecodableTombstone, garbage(TOMBSTONE), ALL),
        (Kind::UndecodableCursor, garbage(scene.cursor()), ALL),
        (Kind::UndecodableCluster, garbage("v1/cluster/test"), ALL),
        (Kind::UndecodableNote, garbage("v1/seen/test/a"), ALL),
        (Kind::UndecodablePool, garbage("v1/pool/storage"), ALL),
        (Kind::UndecodablePool, garbage("v1/pools"), ALL),
        (Kind::PoolsMismatch, put("v1/pools", br#"{"v":1}"#.to_vec()), ALL),
        (Kind::PoolsMismatch, ("v1/pools".to_owned(), Damage::Delete), ALL),
        (Kind::ReservationWithoutBit, (PAGE.to_owned(), Damage::Delete), ALL),
        (Kind::ReservationWithoutOwner, (OWNER.to_owned(), Damage::Delete), without_c1),
        // The reservation of a hold has all that its record had.
        (Kind::ReservationWithoutOwner, (HOLD.to_owned(), Damage::Delete), ALL),
        (Kind::OwnerWithoutReservation, (IP.to_owned(), Damage::Delete), ALL),
        // The other's: its own record does not list it, and the first one's does.
        (Kind::OwnerWithoutReservation, put(IP, scene.get(NEXT_IP)), ALL),
        (Kind::AddressListedTwice, put(TWIN, scene.get(OWNER)), ALL),
        (
            Kind::PodIndexWithoutOwner,
            put("v1/pod/test/u9/eth0/default", scene.changed(POD, "container", json!("c9"))),
            ALL,
        ),
        (Kind::PodIndexMismatch, put(POD, scene.get(NEXT_POD)), ALL),
        (Kind::HoldMismatch, put(HOLD, scene.changed(HOLD, "addresses", json!([]))), &ALL[..2]),
        (Kind::ReservationOnLease, (IP.to_owned(), Damage::OnLease), ALL),
        (Kind::RecordOnLease, (OWNER.to_owned(), Damage::OnLease), ALL),
        (Kind::RecordOnLease, (META.to_owned(), Damage::OnLease), ALL),
        (Kind::StaleWithoutLease, put("v1/fence/a", Vec::new()), ALL),
        (Kind::StaleWithoutLease, put(TIME_OF_HOLD, Vec::new()), ALL),
        (Kind::SummarySaysFull, put(SUMMARY, full), ALL),
    ]
}

fn is_clean(check: &Outcome) -> bool {
    check.succeeded() && check.json()["violations"] == json!([])
}

#[test]
fn each_kind_of_damage_is_mended_after_a_question() {
    let scene = Scene::new();
    let store = scene.cluster.store();
    let rows = rows(&scene);
    // These need another step, or none, and `metes check --mend` says which.
    let others = [
        Kind::UndecodableMeta,
        Kind::MetaMissing,
        Kind::Suspect,
        Kind::SchemaNewer,
        Kind::RecordNewer,
        Kind::AddressLacking,
        Kind::EtcdTooOld,
        Kind::OwnerWithoutPodIndex,
        Kind::TimeWithoutHold,
        Kind::CoolingMismatch,
        Kind::StrayBit,
        Kind::SummaryMissesFull,
        // These have a test of their own.
        Kind::UndecodableSeat,
        Kind::UserWithoutSeat,
        Kind::SeatWithoutUser,
        Kind::SeatWithoutHold,
    ];
    let tried: BTreeSet<Kind> = rows.iter().map(|(kind, ..)| *kind).chain(others).collect();
    let missing: Vec<&Kind> = Kind::ALL.iter().filter(|kind| !tried.contains(kind)).collect();
    assert!(missing.is_empty(), "no damage of {missing:?} is mended here");
    report(rows.into_iter().flat_map(|(kind, damage, held)| {
        scene.damage(&damage);
        let row = format!("{kind}, {}", damage.0);
        let check = scene.node.cli(["check", "-o", "json"]);
        let names = |found: &Value| {
            found["violations"].as_array().is_some_and(|all| all.iter().any(|one| one["name"] == kind.name()))
        };
        let is_found = check.status.code() == Some(1) && names(&check.json());
        let before = store.entries("v1/");
        let declined = scene.mend(metes(), kind.name(), &[]).stdin("n\n".repeat(9)).run();
        let is_repaired =
            matches!(kind, Kind::ReservationWithoutBit | Kind::SummarySaysFull) || damage.0 == "v1/fence/a";
        let is_untouched = is_repaired
            || store.entries("v1/") == before
                && declined.status.code() == Some(1)
                && declined.stderr.contains("Mend it?")
                && declined.stderr.contains("there is: ");
        // A newer metes may have written a foreign key, so `all` leaves it.
        let what = if kind == Kind::ForeignKey { kind.name() } else { "all" };
        let mended = scene.mend(metes(), what, &["--yes", "-o", "json"]).run();
        let after = scene.node.cli(["check", "-o", "json"]);
        let holders = scene.holders();
        [
            expect(&row, is_found, format!("not found: {check}")),
            expect(&row, is_untouched, format!("written without consent: {declined}")),
            expect(
                &row,
                is_clean(&mended) && is_clean(&after),
                format!("not mended: {mended}, then {after}"),
            ),
            expect(&row, holders.iter().eq(held), format!("{holders:?} after {mended}")),
        ]
    }));
}

/// Two records claim an address, and it is reserved for neither, or for one of them: the other one is freed.
#[test]
fn of_two_who_list_an_address_one_is_freed() {
    let scene = Scene::new();
    let twin = (TWIN.to_owned(), Damage::Put(scene.get(OWNER)));
    scene.damage(&twin);
    let one = scene.mend(metes(), "address-listed-twice", &["--yes"]).run();
    assert!(one.stderr.contains("it is reserved for eth0 of container c1 on a"), "{one}");
    assert!(one.stderr.contains("deletes the record of eth0 of container c3 on a"), "{one}");
    scene.damage(&twin);
    scene.cluster.store().delete(IP);
    let refused = scene.mend(metes(), "owner-without-reservation", &["--yes"]).run();
    assert!(refused.stderr.contains("--mend address-listed-twice"), "{refused}");
    let neither = scene.mend(metes(), "address-listed-twice", &["--yes"]).run();
    assert!(neither.stderr.contains("it is reserved for neither"), "{neither}");
    assert!(
        neither.stderr.contains("reserves 10.0.0.1 of network default for eth0 of container c1"),
        "{neither}"
    );
    assert!(neither.succeeded() && scene.holders().iter().eq(ALL), "{neither}");
    scene.cluster.assert_clean();
    // A record whose address is reserved for another one's record is freed as a whole.
    scene.damage(&twin);
    let freed = scene.mend(metes(), "owner-without-reservation", &["--yes"]).run();
    assert!(freed.succeeded() && scene.holders().iter().eq(ALL), "{freed}");
    scene.cluster.assert_clean();
}

/// The other one may use it, so that no ADD may give it.
#[test]
fn an_address_that_two_list_and_nobody_has_reserved_is_not_given_when_one_is_deleted() {
    let scene = Scene::new();
    scene.damage(&(TWIN.to_owned(), Damage::Put(scene.get(OWNER))));
    scene.cluster.store().delete(IP);
    scene.node.del("c3").config(&config()).run().silent();
    let repaired = scene.node.cli(["check", "--repair"]);
    assert!(repaired.stdout.contains("1 violation, 0 stray bits"), "{repaired}");
    let lowest = network_as("1.1.0", "net", json!({"range": "10.0.0.0/24", "order": "lowest"}));
    assert_eq!(scene.node.add("c4").config(&lowest).run().address(), "10.0.0.3");
    let mended = scene.mend(metes(), "owner-without-reservation", &["--yes"]).run();
    assert!(mended.succeeded() && scene.holders().contains("10.0.0.1 c1"), "{mended}");
    // Nor where its page must be written anew.
    scene.cluster.store().delete(IP);
    scene.cluster.store().put(PAGE, "garbage");
    // A record that does not decode may list some of them, too.
    scene.cluster.store().put(TWIN, "garbage");
    let refused = scene.mend(metes(), "undecodable-page", &["--yes"]).run();
    assert!(refused.stderr.contains("--mend undecodable-owner"), "{refused}");
    assert_eq!(scene.cluster.store().get(PAGE).as_deref(), Some(&b"garbage"[..]));
    scene.cluster.store().delete(TWIN);
    let page = scene.mend(metes(), "undecodable-page", &["--yes"]).run();
    assert!(page.stderr.contains("4 of these addresses are held"), "{page}");
    done(&scene.mend(metes(), "owner-without-reservation", &["--yes"]).run());
    assert!(scene.cluster.check().stdout.contains(" 0 stray bits; 4 addresses"));
    // Once nobody lists it, its bit is a stray one.
    scene.cluster.store().delete(IP);
    scene.node.del("c1").config(&config()).run().silent();
    done(&scene.node.cli(["check", "--repair"]));
    assert_eq!(scene.node.add("c5").config(&lowest).run().address(), "10.0.0.1");
    scene.cluster.assert_clean();
}

/// Everything that would be freed is named, with container, node and pod, of which the index knows the UID. If a key is
/// given, only that is mended.
#[test]
fn it_says_what_stands_there_and_mends_the_key_that_is_given() {
    let scene = Scene::new();
    scene.damage(&(OWNER.to_owned(), Damage::Put(b"\0garbage".to_vec())));
    scene.cluster.store().put("v1/junk", "theirs");
    let key = |key: &str| format!("{}{key}", scene.cluster.prefix());
    let asked = scene.mend(metes(), &key(OWNER), &[]).stdin("n\n").run();
    for words in [
        "there is: the record of eth0 of container c1 on a of cluster test (of the pod with the UID u1), which does \
         not decode",
        "mending frees 10.0.0.1 of network default",
        "first: delete the pod",
    ] {
        assert!(asked.stderr.contains(words), "{words}: {asked}");
    }
    let junk = scene.mend(metes(), &key("v1/junk"), &["--yes"]).run();
    assert!(junk.stdout.contains("mended foreign-key"), "{junk}");
    assert!(scene.cluster.store().get(OWNER).is_some(), "{junk}");
    let none = scene.mend(metes(), &key("v1/junk"), &["--yes"]).run();
    assert!(
        !none.succeeded() && none.stderr.contains("nothing was mended: metes check finds nothing"),
        "{none}"
    );
    let freed = scene.mend(metes(), "undecodable-owner", &[]).stdin("y\n").run();
    assert!(freed.succeeded(), "{freed}");
    scene.cluster.assert_clean();
}

/// The device that an address is set aside for may use it, and no container does.
#[test]
fn an_address_that_is_set_aside_stays_so_if_its_note_is_known() {
    let scene = Scene::new();
    scene.damage(&(HOLD.to_owned(), Damage::Delete));
    let mended = scene.mend(metes(), "reservation-without-owner", &["--yes"]).run();
    let does = "mending writes the record of the hold of 10.0.0.9 in network default anew, with the note \"printer\"";
    assert!(
        mended.succeeded() && mended.stderr.contains(does) && !mended.stderr.contains("first:"),
        "{mended}"
    );
    assert_eq!(scene.cluster.store().get(HOLD), Some(scene.get(HOLD)), "{mended}");
    scene.damage(&(HOLD.to_owned(), Damage::Put(b"\0garbage".to_vec())));
    let freed = scene.mend(metes(), "undecodable-owner", &["--yes"]).run();
    assert!(
        freed.succeeded()
            && freed.stderr.contains("first: make sure that what the address was set aside for"),
        "{freed}"
    );
    scene.cluster.assert_clean();
}

/// A key that could be somebody else's is not mended along with the rest.
#[test]
fn what_may_be_of_others_is_not_mended_by_the_way() {
    let scene = Scene::new();
    let store = scene.cluster.store();
    let garbage = || Damage::Put(b"\0garbage".to_vec());
    scene.damage(&("v1/junk".to_owned(), garbage()));
    let all = scene.mend(metes(), "all", &["--yes"]).run();
    assert!(all.stdout.contains("`metes check --mend foreign-key` deletes them"), "{all}");
    assert!(store.get("v1/junk").is_some(), "{all}");
    // The record that does not decode may list the address.
    scene.damage(&(IP.to_owned(), garbage()));
    store.put(OWNER, "garbage");
    let reservation = scene.mend(metes(), "undecodable-reservation", &["--yes"]).run();
    assert!(reservation.stderr.contains("run `metes check --mend undecodable-owner` first"), "{reservation}");
    assert!(store.get(IP).is_some(), "{reservation}");
    // Several kinds at once, meta on a lease among them, whose mend changes what all others rely on.
    scene.damage(&(META.to_owned(), Damage::OnLease));
    store.put(POD, "garbage");
    store.put(NEXT_POD, "garbage");
    let all = scene.mend(metes(), "all", &["--yes"]).run();
    assert!(all.succeeded() && all.stdout.matches("mended ").count() == 3, "{all}");
    scene.cluster.assert_clean();
}

#[test]
fn what_changes_before_it_is_written_stays() {
    let scene = Scene::new();
    let store = scene.cluster.store();
    let late = |what: &str, between: &dyn Fn()| {
        let run = scene.mend(failing_metes(), what, &["--yes"]).env("METES_FAIL", "mend.before=stop");
        let mut late = run.spawn();
        late.wait_until_stopped();
        between();
        late.resume();
        late.wait()
    };
    let damaged = (OWNER.to_owned(), Damage::Put(b"\0garbage".to_vec()));
    scene.damage(&damaged);
    let whole = scene.get(OWNER);
    let refused = late("undecodable-owner", &|| store.put(OWNER, whole.clone()));
    assert!(refused.stderr.contains("nothing was written"), "{refused}");
    assert!(refused.succeeded() && scene.holders().iter().eq(ALL), "{refused}");
    // A reservation that it would free.
    scene.damage(&damaged);
    let refused = late("undecodable-owner", &|| store.put(IP, scene.get(NEXT_IP)));
    assert!(refused.stderr.contains("nothing was written"), "{refused}");
    assert_eq!(store.get(OWNER).as_deref(), Some(&b"\0garbage"[..]));
    // A pause of a migration.
    scene.damage(&damaged);
    let refused = late("undecodable-owner", &|| store.change_meta(&json!({"paused": "moving"})));
    assert!(refused.stderr.contains("nothing was written"), "{refused}");
    let paused = scene.mend(metes(), "all", &["--yes"]).run();
    assert!(paused.stderr.contains("a migration is under way"), "{paused}");
    // Bits change with each ADD, and decide nothing.
    scene.damage(&damaged);
    let done = late("undecodable-owner", &|| {
        scene.node.add("c4").config(&config()).run().ok();
    });
    assert!(done.succeeded() && scene.holders().contains("10.0.0.3 c4"), "{done}");
    scene.cluster.assert_clean();
}

/// If meta is damaged or gone, a person must say that the rest of the store is all.
#[test]
fn a_store_without_meta_is_not_mended_but_accepted() {
    let scene = Scene::new();
    scene.damage(&(META.to_owned(), Damage::Delete));
    let missing = scene.mend(metes(), "meta-missing", &["--yes"]).run();
    assert!(
        missing.status.code() == Some(1) && missing.stderr.contains("metes-reconciler adopt"),
        "{missing}"
    );
    assert!(scene.cluster.store().get(META).is_none());
    scene.damage(&(META.to_owned(), Damage::Put(b"\0garbage".to_vec())));
    scene.cluster.store().put(POD, "garbage");
    let damaged = scene.mend(metes(), "all", &["--yes"]).run();
    assert!(
        damaged.stdout.contains("mended undecodable-meta") && damaged.status.code() == Some(1),
        "{damaged}"
    );
    assert!(scene.cluster.store().get(META).is_none(), "{damaged}");
    done(&scene.node.cli(["check", "--accept-store", "--yes"]));
    assert!(scene.cluster.store().get(POD).is_none(), "{damaged}");
    assert!(scene.holders().iter().eq(ALL));
    scene.cluster.assert_clean();
}

/// The file that a mend says it has made.
#[track_caller]
fn kept_in(mended: &Outcome) -> PathBuf {
    let words = "metes: what is deleted or replaced is kept in ";
    let file = mended.stderr.lines().find_map(|line| line.strip_prefix(words));
    PathBuf::from(file.unwrap_or_else(|| panic!("no file is named: {mended}")))
}

/// A newer metes serves other nodes, and its pods run.
#[test]
fn what_a_newer_metes_wrote_is_never_mended_and_never_given_away() {
    let scene = Scene::new();
    let store = scene.cluster.store();
    let newer = |key: &str| {
        let mut record: Value = serde_json::from_slice(&scene.get(key)).expect("JSON");
        record["v"] = json!(2);
        record["later"] = json!({"a": [1]});
        (key.to_owned(), record.to_string().into_bytes())
    };
    let garbage = |key: &str| (key.to_owned(), b"garbage".to_vec());
    // A newer record may list its address without a reservation.
    let lost = |key: &str| (key.to_owned(), Vec::new());
    let rows = [
        vec![newer(OWNER)],
        vec![newer(OWNER), newer(IP), newer(POD)],
        vec![newer(OWNER), lost(IP)],
        vec![newer(OWNER), garbage(PAGE)],
        vec![newer(OWNER), lost(NEXT_OWNER), lost(NEXT_POD)],
        vec![newer(OWNER), lost(NEXT_OWNER), lost(NEXT_POD), garbage(NEXT_IP)],
        // The record of an owner is damaged, and a reservation for it is a newer program's.
        vec![garbage(OWNER), newer(IP)],
        vec![newer("v1/pool/storage"), garbage("v1/pools")],
        vec![("v1/cluster/test".to_owned(), br#"{"v":2}"#.to_vec())],
    ];
    report(rows.into_iter().flat_map(|damage| {
        let row = format!("{:?}", damage.iter().map(|(key, _)| key).collect::<Vec<_>>());
        scene.damage(&("v1/none".to_owned(), Damage::Delete));
        for (key, value) in damage {
            if value.is_empty() { store.delete(&key) } else { store.put(&key, value) }
        }
        let stored = || {
            let mut stored = store.entries("v1/");
            stored
                .retain(|(key, _)| ["owner", "pod", "pools", "pool", "net", "cluster"].contains(&part(key)));
            stored
        };
        let before = stored();
        let check = scene.node.cli(["check"]);
        let of_version = "is of version 2, and this metes reads version 1: use a metes of that version";
        let is_told = check.status.code() == Some(1)
            && check.stdout.contains("violation record-newer: ")
            && check.stdout.contains(of_version);
        done_or_told(&scene.node.cli(["check", "--repair"]));
        let mended = ["all", "record-newer", "reservation-without-owner", "undecodable-owner"]
            .map(|what| scene.mend(metes(), what, &["--yes"]).run());
        let after = stored();
        [
            expect(&row, is_told, format!("not told: {check}")),
            expect(&row, mended.iter().all(|run| run.status.code() == Some(1)), format!("{mended:?}")),
            expect(&row, after == before, format!("it was changed: {mended:?}")),
        ]
    }));
    // The address of a newer record stays taken.
    scene.damage(&(OWNER.to_owned(), Damage::Put(newer(OWNER).1)));
    let all = scene.mend(metes(), "all", &["--yes"]).run();
    assert!(all.stderr.contains("it is not mended here: Use a metes that reads the version"), "{all}");
    assert_eq!(scene.add_lowest("c4"), "10.0.0.3", "after {all}");
    // A metes of that version finds it as it was.
    store.put(OWNER, scene.get(OWNER));
    scene.cluster.assert_clean();
}

fn part(key: &str) -> &str {
    key.split('/').nth(1).unwrap_or_default()
}

/// It says that something is wrong, and does not fail otherwise.
#[track_caller]
fn done_or_told(outcome: &Outcome) {
    assert!(outcome.stdout.contains("as of revision"), "{outcome}");
}

#[test]
fn what_a_mend_deletes_is_kept_and_whole_owners_are_put_back() {
    let scene = Scene::new();
    let store = scene.cluster.store();
    // The record does not decode, and comes back so, with its reservation.
    scene.damage(&(OWNER.to_owned(), Damage::Put(b"\xff\0garbage".to_vec())));
    let before = store.entries("v1/");
    let freed = scene.mend(metes(), "undecodable-owner", &["--yes"]).run();
    done(&freed);
    let file = kept_in(&freed);
    assert!(
        freed.stdout.contains(&format!("in {}: `metes check --restore FILE`", file.display())),
        "{freed}"
    );
    assert_eq!(fs::metadata(&file).expect("it is there").permissions().mode() & 0o7777, 0o600);
    assert_ne!(store.entries("v1/"), before, "{freed}");
    let declined = scene.restore(&file, &[]);
    assert!(declined.status.code() == Some(1) && declined.stderr.contains("Put it back?"), "{declined}");
    assert!(store.get(OWNER).is_none(), "{declined}");
    let restored = scene.restore(&file, &["--yes"]);
    assert!(restored.stdout.contains("put back eth0 of container c1 on a of cluster test"), "{restored}");
    assert_eq!(store.entries("v1/"), before, "{restored}");
    // A record that decodes, of a container that uses an address which is reserved for another one.
    scene.damage(&(IP.to_owned(), Damage::Put(scene.get(NEXT_IP))));
    let freed = scene.mend(metes(), "owner-without-reservation", &["--yes"]).run();
    let file = kept_in(&freed);
    let refused = scene.restore(&file, &["--yes"]);
    let who = "is not put back: 10.0.0.1 of network default is reserved for eth0 of container c2 on a of cluster test \
               (pod ns/web-2)";
    assert!(refused.status.code() == Some(1) && refused.stderr.contains(who), "{refused}");
    done(&scene.mend(metes(), "reservation-without-owner", &["--yes"]).run());
    assert_eq!(scene.add_lowest("c4"), "10.0.0.1");
    let taken = scene.restore(&file, &["--yes"]);
    assert!(
        taken.status.code() == Some(1) && taken.stderr.contains("reserved for eth0 of container c4"),
        "{taken}"
    );
    scene.node.del("c4").config(&config()).run().silent();
    let restored = scene.restore(&file, &["--yes"]);
    assert!(restored.succeeded() && scene.holders().iter().eq(ALL), "{restored}");
    assert_eq!(
        [OWNER, POD, PAGE].map(|key| store.get(key)),
        [OWNER, POD, PAGE].map(|key| Some(scene.get(key)))
    );
    let again = scene.restore(&file, &["--yes"]);
    assert!(again.succeeded() && again.stdout.contains("is there as it was"), "{again}");
    scene.cluster.assert_clean();
}

#[test]
fn what_was_taken_since_is_not_put_back_and_the_others_are() {
    let scene = Scene::new();
    let store = scene.cluster.store();
    scene.damage(&(OWNER.to_owned(), Damage::Put(b"garbage".to_vec())));
    store.put(NEXT_OWNER, "garbage");
    let freed = scene.mend(metes(), "undecodable-owner", &["--yes", "--backup", "owners"]).run();
    let file = kept_in(&freed);
    assert!(freed.succeeded() && file.ends_with("owners"), "{freed}");
    assert_eq!(scene.add_lowest("c4"), "10.0.0.1");
    let restored = scene.restore(&file, &["--yes"]);
    let refused = "metes: eth0 of container c1 on a of cluster test is not put back: 10.0.0.1 of network default is \
                   reserved for eth0 of container c4";
    assert!(restored.status.code() == Some(1) && restored.stderr.contains(refused), "{restored}");
    assert!(restored.stdout.contains("put back eth0 of container c2"), "{restored}");
    let holders = ["10.0.0.1 c4", "10.0.0.2 c2", "10.0.0.9 -"];
    assert!(scene.holders().iter().eq(&holders) && store.get(OWNER).is_none(), "{restored}");
    assert_eq!(
        [NEXT_IP, NEXT_POD].map(|key| store.get(key)),
        [NEXT_IP, NEXT_POD].map(|key| Some(scene.get(key)))
    );
    // A DEL says that the container is gone.
    scene.node.del("c4").config(&config()).run().silent();
    scene.node.del("c1").config(&config()).run().silent();
    let gone = scene.restore(&file, &["--yes"]);
    assert!(
        gone.stderr.contains("a DEL of eth0 of container c1 on a of cluster test was there since"),
        "{gone}"
    );
    assert!(!scene.holders().contains("10.0.0.1 c1"), "{gone}");
    // A key of nobody comes back byte for byte, but for one that somebody has written since.
    store.put("v1/junk", [0xff, 0]);
    store.put("v1/junk2", "theirs");
    let junk = kept_in(&scene.mend(metes(), "foreign-key", &["--yes"]).run());
    store.put("v1/junk2", "new");
    let foreign = scene.restore(&junk, &["--yes"]);
    assert_eq!(store.get("v1/junk"), Some(vec![0xff, 0]), "{foreign}");
    assert_eq!(store.get("v1/junk2").as_deref(), Some(&b"new"[..]), "{foreign}");
    assert!(foreign.stderr.contains("has another value since: \"new\""), "{foreign}");
    // Nor is a file used in another store.
    store.change_meta(&json!({"id": "another"}));
    let other = scene.restore(&junk, &["--yes"]);
    assert!(other.stderr.contains("is not used: it is of the store"), "{other}");
    scene.cluster.leave_unclean();
}

/// The lease outlives the key, so the rest of the time is known.
#[test]
fn a_hold_is_put_back_with_what_is_left_of_its_time() {
    let scene = Scene::new();
    let store = scene.cluster.store();
    done(&scene.node.cli(["hold", "10.0.0.20", "--note", "guest", "--for", "1h"]));
    let record = "v1/owner/-/@default/00000000000000000000ffff0a000014/hold";
    let whole = store.get(record).expect("the hold is stored");
    store.put(record, "garbage");
    let freed = scene.mend(metes(), "undecodable-owner", &["--yes"]).run();
    assert!(freed.succeeded() && store.keys("v1/hold/").is_empty(), "{freed}");
    let restored = scene.restore(&kept_in(&freed), &["--yes"]);
    assert!(restored.stdout.contains("put back the hold of 10.0.0.20"), "{restored}");
    store.put(record, whole);
    let holds = scene.node.cli(["holds", "-o", "json"]).ok();
    let left = holds.as_array().expect("a list").iter().find(|hold| hold["address"] == "10.0.0.20");
    assert!(
        left.is_some_and(|hold| hold["seconds_left"].as_u64().is_some_and(|left| left > 3500)),
        "{holds}"
    );
    scene.cluster.assert_clean();
}

#[test]
fn nothing_is_mended_that_cannot_be_kept() {
    let scene = Scene::new();
    let store = scene.cluster.store();
    scene.damage(&(OWNER.to_owned(), Damage::Put(b"garbage".to_vec())));
    fs::write(scene.cluster.folder().join("taken"), "other").expect("written");
    let before = store.entries("v1/");
    for file in ["taken", "missing/file"] {
        let refused = scene.mend(metes(), "all", &["--yes", "--backup", file]).run();
        assert!(refused.status.code() == Some(1) && refused.stderr.contains(file), "{refused}");
        assert!(refused.stderr.contains("--backup FILE names another file"), "{refused}");
        assert_eq!(store.entries("v1/"), before, "{refused}");
    }
    assert_eq!(fs::read(scene.cluster.folder().join("taken")).expect("it is there"), b"other");
}

/// Each row is damage that another tool has done to the seat of a pod's container, and its mend. In the end the pod is
/// deleted, and the next one of its name has its address.
#[test]
fn a_seat_that_is_damaged_is_mended_or_the_pod_must_go() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    let (seat, own, hold) =
        ("v1/seat/test/@pod.ns/db-0/eth0/0", "v1/owner/test/a/c1/eth0", "v1/owner/test/@pod.ns/db-0/eth0");
    let config = network_as("1.1.0", "net", json!({"range": "10.0.0.0/24", "sticky": "pod"}));
    let store = cluster.store();
    let (delete, garbage) = (|key: &str| store.delete(key), |key: &str| store.put(key, "garbage"));
    let rows: [(Kind, &dyn Fn(), bool); 4] = [
        (Kind::UserWithoutSeat, &|| delete(seat), true),
        (Kind::SeatWithoutUser, &|| delete(own), true),
        (Kind::UndecodableSeat, &|| garbage(seat), true),
        (Kind::SeatWithoutHold, &|| delete(hold), false),
    ];
    for (kind, damage, is_mended) in rows {
        let add = |container: &str, uid: &str| {
            node.add(container).config(&config).pod("ns", "db-0", uid).run().address()
        };
        assert_eq!(add("c1", "u1"), "10.0.0.1", "{kind}");
        damage();
        let found = node.cli(["check"]);
        assert!(!found.succeeded() && found.to_string().contains(kind.name()), "{kind}: {found}");
        let mend = |file: &str| {
            let file = cluster.folder().join(format!("{kind}-{file}"));
            node.cli(["check", "--mend", "all", "--yes", "--backup", file.to_str().expect("a name in UTF-8")])
        };
        let mended = mend("one");
        assert_eq!(node.cli(["check"]).succeeded(), is_mended, "{kind}: {mended}");
        node.del("c1").config(&config).run().silent();
        let mended = mend("two");
        let after = node.cli(["check"]);
        assert!(after.succeeded(), "{kind}: {mended}, then {after}");
        assert_eq!(add("c2", "u2"), "10.0.0.1", "{kind}");
        node.del("c2").config(&config).run().silent();
        cluster.assert_clean();
    }
}
