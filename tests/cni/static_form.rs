//! Configurations in static's form, and static addresses beside a range.

use crate::golden::{VERSIONS, add, case, check, del, every, every_case, golden};
use serde_json::{Value, json};
use support::{Cluster, network, network_as};

const INVALID: u64 = 7;
const NOT_AVAILABLE: u64 = 101;

fn addresses<const N: usize>(addresses: [&str; N]) -> Value {
    let addresses = addresses.map(|address| json!({"address": address}));
    json!({"addresses": Vec::from(addresses)})
}

fn both_families() -> Value {
    json!({
        "addresses": [
            {"address": "10.10.0.1/24", "gateway": "10.10.0.254"},
            {"address": "3ffe:ffff:0:01ff::1/64", "gateway": "3ffe:ffff:0::1"},
        ],
        "routes": [
            {"dst": "0.0.0.0/0"},
            {"dst": "192.168.0.0/16", "gw": "10.10.5.1"},
            {"dst": "3ffe:ffff:0:01ff::1/64"},
        ],
        "dns": {"nameservers": ["8.8.8.8"], "domain": "example.com", "search": ["example.com"]},
    })
}

/// An answer in 1.0.0 without routes.
fn ips(ips: Value) -> Value {
    json!({"cniVersion": "1.0.0", "ips": ips})
}

#[test]
fn both_families_in_every_version() {
    every(VERSIONS.map(|version| (format!("S01 {version}"), version)), |version| {
        let cluster = Cluster::new();
        let node = cluster.node("n1");
        let config = network_as(version, "mynet", both_families());
        let expected = golden("static", version);
        assert_eq!(node.add("ID").config(&config).run().ok(), expected);
        assert_eq!(node.add("ID").config(&config).run().ok(), expected, "again");
        node.del("ID").config(&config).run().silent();
        cluster.assert_nothing_held();
        cluster.assert_clean();
    });
}

#[test]
fn what_is_given() {
    let two_defaults = json!({
        "addresses": [{"address": "10.10.0.1/24"}],
        "routes": [{"dst": "0.0.0.0/0", "gw": "10.10.0.254"}, {"dst": "0.0.0.0/0", "gw": "10.10.0.253"}],
    });
    let from_environment = "IP=10.10.0.1/24,11.11.0.1/24;GATEWAY=10.10.0.254";
    every_case([
        case("S02 two default routes", two_defaults.clone()).then(add("ID").answers(json!({
            "cniVersion": "1.0.0",
            "ips": [{"address": "10.10.0.1/24"}],
            "routes": two_defaults["routes"],
        }))),
        case("S04 CNI_ARGS alone", json!({}))
            .then(add("old").version("0.2.0").args(from_environment).gives(["10.10.0.1/24"]))
            .then(add("ID").args(from_environment).answers(ips(json!([
                {"address": "10.10.0.1/24", "gateway": "10.10.0.254"},
                {"address": "11.11.0.1/24"},
            ])))),
        case("S05 CNI_ARGS besides", json!({"addresses": both_families()["addresses"]})).then(
            add("ID").args("IP=10.10.0.7/24;GATEWAY=10.10.0.253").answers(ips(json!([
                {"address": "10.10.0.1/24", "gateway": "10.10.0.254"},
                {"address": "3ffe:ffff:0:1ff::1/64", "gateway": "3ffe:ffff::1"},
                {"address": "10.10.0.7/24", "gateway": "10.10.0.253"},
            ]))),
        ),
        case("args replace", json!({"addresses": both_families()["addresses"]})).then(
            add("ID")
                .args("IP=10.10.0.7/24")
                .with(json!({"args": {"cni": {"ips": ["10.10.0.8/24"]}}}))
                .answers(ips(json!([{"address": "10.10.0.8/24"}]))),
        ),
        case("runtimeConfig replaces args", addresses(["10.10.0.1/24"])).then(
            add("ID")
                .with(json!({
                    "args": {"cni": {"ips": ["10.10.0.8/24"]}},
                    "runtimeConfig": {"ips": ["10.10.0.9/24", "fd00::9/64"]},
                }))
                .answers(ips(json!([{"address": "10.10.0.9/24"}, {"address": "fd00::9/64"}]))),
        ),
        case("network and single addresses", addresses(["10.10.0.0/24", "10.10.1.1/32", "fd00::/128"]))
            .then(add("ID").gives(["10.10.0.0/24", "10.10.1.1/32", "fd00::/128"])),
        case("keys in any case", json!({"Addresses": [{"ADDRESS": "10.10.0.1/24"}]}))
            .then(add("ID").gives(["10.10.0.1/24"])),
    ]);
}

#[test]
fn what_is_refused() {
    let refused = |name: &str, ipam: Value| case(name, ipam).refuses("ID", INVALID).then(del("ID"));
    every_case([
        refused("S07 no prefix", addresses(["10.10.0.1"])),
        case("S07 no prefix in CNI_ARGS", json!({})).then(add("ID").args("IP=10.10.0.1").fails(4)),
        case("S07 no prefix in args", json!({}))
            .then(add("ID").with(json!({"args": {"cni": {"ips": ["10.10.0.1"]}}})).fails(INVALID)),
        case("S07 no prefix in runtimeConfig", json!({}))
            .then(add("ID").with(json!({"runtimeConfig": {"ips": ["10.10.0.1"]}})).fails(INVALID)),
        case("S08 no address", addresses([]))
            .then(add("ID").version("0.2.0").fails(INVALID))
            .then(add("ID").version("0.4.0").fails(INVALID))
            .then(add("ID").version("1.0.0").fails(INVALID))
            .then(del("ID")),
        refused("leading zeros", addresses(["10.10.0.01/24"])),
        refused("IPv4 written as IPv6", addresses(["::ffff:10.10.0.1/120"])),
        refused("a gateway that is none", json!({"addresses": [{"address": "10.0.0.1/8", "gateway": "x"}]})),
        refused("an entry without address", json!({"addresses": [{"gateway": "10.0.0.1"}]})),
        refused("a string for the list", json!({"addresses": "10.0.0.1/8"})),
        refused(
            "twice the same",
            json!({
                "network_name": "red",
                "addresses": [{"address": "10.0.0.1/8"}, {"address": "10.0.0.1/16"}],
            }),
        ),
        refused(
            "host-local's ranges besides",
            json!({
                "subnet": "10.1.2.0/24",
                "addresses": [{"address": "10.1.2.9/24"}],
            }),
        ),
        // resolvConf is host-local's word: a network that has it wants a subnet.
        refused(
            "resolvConf besides",
            json!({
                "resolvConf": "/etc/resolv.conf",
                "addresses": [{"address": "10.1.2.9/24"}],
            }),
        ),
    ]);
}

#[test]
fn check_asks_the_records() {
    let conf = || json!({"addresses": [{"address": "10.10.0.1/24", "gateway": "10.10.0.254"}]});
    let previous = |version: &str, ip: Value| json!({"prevResult": {"cniVersion": version, "ips": [ip]}});
    let own = || json!({"address": "10.10.0.1/24", "gateway": "10.10.0.254"});
    let after_add = |name: &str| case(name, conf()).then(add("ID").succeeds());
    every_case([
        after_add("S10 no prevResult").then(check("ID")),
        after_add("S10 equal").then(check("ID").with(previous("1.0.0", own()))),
        // Only the content of the records is judged: another plugin may have changed the gateway.
        after_add("S10 another gateway").then(
            check("ID").with(previous("1.0.0", json!({"address": "10.10.0.1/24", "gateway": "10.10.0.9"}))),
        ),
        after_add("S10 absent from prevResult")
            .then(check("ID").with(previous("1.0.0", json!({"address": "10.20.0.1/24"})))),
        after_add("S10 prevResult of another version")
            .then(check("ID").with(previous("0.4.0", own())).fails_somehow()),
        after_add("after DEL").then(del("ID")).then(check("ID").fails_somehow()),
        case("before ADD", conf()).then(check("ID").fails_somehow()),
    ]);
}

#[test]
fn reserved_or_only_recorded() {
    let recorded = || addresses(["10.10.0.1/24"]);
    let mut named = addresses(["10.10.0.1/24"]);
    named["network_name"] = json!("red");
    let mut ranged = addresses(["10.10.0.9/24"]);
    ranged["range"] = json!("10.10.0.0/24");
    let mut beside = addresses(["10.20.0.9/24"]);
    beside["range"] = json!("10.10.0.0/24");
    every_case([
        case("neither range nor name: given again", recorded())
            .gives("a", ["10.10.0.1/24"])
            .gives("b", ["10.10.0.1/24"])
            .then(del("a"))
            .then(check("b"))
            .then(del("b")),
        case("network_name: unique", named.clone())
            .gives("a", ["10.10.0.1/24"])
            .refuses("b", NOT_AVAILABLE)
            .gives("a", ["10.10.0.1/24"])
            .then(del("a"))
            .gives("b", ["10.10.0.1/24"]),
        case("network_name: unique among requests too", json!({"network_name": "red"}))
            .then(add("a").args("IP=10.10.0.1/24").gives(["10.10.0.1/24"]))
            .then(add("b").with(json!({"runtimeConfig": {"ips": ["10.10.0.1/16"]}})).fails(NOT_AVAILABLE))
            .then(add("c").args("IP=10.10.0.2/24,10.10.0.1/24").fails(NOT_AVAILABLE)),
        case("network_name: seen by a range of the network", named).gives("a", ["10.10.0.1/24"]).then(
            add("b").ipam(json!({"range": "10.10.0.0/24", "network_name": "red"})).gives(["10.10.0.2/24"]),
        ),
        case("in the range: unique, after the range's own", ranged)
            .gives("a", ["10.10.0.1/24", "10.10.0.9/24"])
            .refuses("b", NOT_AVAILABLE)
            .then(add("c").ipam(json!({"range": "10.10.0.0/24"})).args("IP=10.10.0.9").fails(NOT_AVAILABLE))
            .then(del("a"))
            .gives("b", ["10.10.0.1/24", "10.10.0.9/24"]),
        case("outside the range: given again", beside)
            .gives("a", ["10.10.0.1/24", "10.20.0.9/24"])
            .gives("b", ["10.10.0.2/24", "10.20.0.9/24"]),
    ]);
}

#[test]
fn both_kinds_are_listed() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    let mut reserved = addresses(["10.10.0.1/24"]);
    reserved["network_name"] = json!("red");
    node.add("reserved").config(&network(reserved)).run().ok();
    node.add("recorded").config(&network(addresses(["10.10.0.1/24", "fd00::1/64"]))).run().ok();
    let rows: Vec<_> = node.list().iter().map(brief).collect();
    let expected = [
        json!(["red", "10.10.0.1", "reserved"]),
        json!([null, "10.10.0.1", "recorded"]),
        json!([null, "fd00::1", "recorded"]),
    ];
    assert_eq!(rows, expected);
    let shown = node.cli(["show", "fd00::1", "-o", "json"]).ok();
    assert_eq!(
        shown.as_array().map(|rows| rows.iter().map(brief).collect()),
        Some(vec![expected[2].clone()])
    );
    cluster.assert_clean();
}

fn brief(row: &Value) -> Value {
    json!([row["network"], row["address"], row["container_id"]])
}
