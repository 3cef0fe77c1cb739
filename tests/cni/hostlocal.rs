//! Configurations in host-local's form: the numbers are those of the acceptance cases.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::path::{Path, PathBuf};

use crate::golden::{Case, Step, VERSIONS, add, case, check, del, every, every_case, golden, held};
use serde_json::{Value, json};
use support::{Cluster, in_parallel, network, network_as};

const NOBODY: u32 = 65_534;
const RESOLV_CONF_BYTES_MAX: usize = 64 * 1024;

const INVALID: u64 = 7;
const FULL: u64 = 100;
const NOT_AVAILABLE: u64 = 101;

fn subnet(subnet: &str) -> Value {
    json!({"subnet": subnet})
}

/// One set of interchangeable subnets.
fn set<const N: usize>(subnets: [&str; N]) -> Value {
    json!({"ranges": [Vec::from(subnets.map(subnet))]})
}

fn requesting(ips: Value) -> Value {
    json!({"args": {"cni": {"ips": ips}}})
}

/// `ipam` is refused before anything is held.
fn refused(name: &str, ipam: Value) -> Case {
    case(name, ipam).refuses("ID", INVALID)
}

fn resolv_conf(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("resolv.conf");
    fs::write(&path, text).expect("a file can be written");
    path
}

fn two_families(resolv_conf: &Path) -> Value {
    json!({
        "ranges": [
            [{"subnet": "10.1.2.0/24"}, {"subnet": "10.2.2.0/24"}],
            [{"subnet": "2001:db8:1::/64"}],
        ],
        "routes": [
            {"dst": "0.0.0.0/0"},
            {"dst": "::/0"},
            {"dst": "192.168.0.0/16", "gw": "1.1.1.1"},
            {"dst": "2001:db8:2::/64", "gw": "2001:db8:3::1"},
        ],
        "resolvConf": resolv_conf,
    })
}

#[test]
fn both_families_in_every_version() {
    let versions = VERSIONS.map(Some).into_iter().chain([None]);
    every(versions.map(|version| (format!("T01, T02 {version:?}"), version)), |version| {
        let cluster = Cluster::new();
        let path = resolv_conf(cluster.folder(), "nameserver 192.0.2.3\n");
        let node = cluster.node_with("n1", json!({"resolv_conf": [path]}));
        let ipam = two_families(&path);
        let mut config = network_as("", "mynet", ipam);
        match version {
            None => _ = config.as_object_mut().expect("it is an object").remove("cniVersion"),
            Some(version) => config["cniVersion"] = json!(version),
        }
        let answer = node.add("ID").config(&config).run().ok();
        assert_eq!(answer, golden("hostlocal", version.unwrap_or("0.1.0")));

        node.del("ID").config(&config).run().silent();
        cluster.assert_nothing_held();
        let again = node.add("ID").config(&config).run();
        assert_eq!(again.addresses(), ["10.1.2.3/24", "2001:db8:1::3/64"], "{again}");
        cluster.assert_clean();
    });
}

#[test]
fn owners() {
    let net = || subnet("10.1.2.0/24");
    every_case([
        case("T04 the same container again", net())
            .gives("ID", ["10.1.2.2/24"])
            .gives("ID", ["10.1.2.2/24"])
            .gives("other", ["10.1.2.3/24"]),
        case("T05 two interfaces", net())
            .gives("ID", ["10.1.2.2/24"])
            .then(add("ID").ifname("eth1").gives(["10.1.2.3/24"]))
            .then(del("ID"))
            .then(check("ID").fails_somehow())
            .then(check("ID").ifname("eth1")),
        case("T07 CHECK", net())
            .then(check("ID").fails_somehow())
            .then(add("ID").succeeds())
            .then(check("ID"))
            .then(check("ID").version("0.4.0"))
            .then(check("ID").version("1.1.0"))
            .then(del("ID"))
            .then(check("ID").fails_somehow()),
    ]);
}

#[test]
fn the_next_address() {
    let small = || subnet("10.0.0.0/29");
    every_case([
        case("T08 fresh /29", set(["10.0.0.0/29"])).gives("ID", ["10.0.0.2/29"]),
        case("T08 fresh /64", set(["2001:db8:1::/64"])).gives("ID", ["2001:db8:1::2/64"]),
        case("T08 fresh /30", set(["10.0.0.0/30"])).then(add("ID").answers(json!({
            "cniVersion": "1.0.0",
            "ips": [{"address": "10.0.0.2/30", "gateway": "10.0.0.1"}],
        }))),
        case("T10 after the last one", small()).last("10.0.0.5").gives("ID", ["10.0.0.6/29"]),
        case("T11 over taken ones", small())
            .taken("10.0.0.4")
            .taken("10.0.0.5")
            .last("10.0.0.3")
            .gives("ID", ["10.0.0.6/29"]),
        case("T14 round to the last one", small())
            .taken("10.0.0.2")
            .taken("10.0.0.4")
            .taken("10.0.0.5")
            .taken("10.0.0.6")
            .last("10.0.0.3")
            .gives("ID", ["10.0.0.3/29"]),
        case("T16 round to the first range", set(["10.0.0.0/30", "10.0.1.0/30", "10.0.2.0/30"]))
            .last("10.0.2.2")
            .gives("ID", ["10.0.0.2/30"]),
        case("T17 a full /30", subnet("10.0.0.0/30")).taken("10.0.0.2").refuses("ID", FULL),
        case("T17 two full /30", set(["10.0.0.0/30", "10.0.1.0/30"]))
            .taken("10.0.0.2")
            .taken("10.0.1.2")
            .refuses("ID", FULL),
        case("T17 a full /29", small())
            .taken("10.0.0.2")
            .taken("10.0.0.3")
            .taken("10.0.0.4")
            .taken("10.0.0.5")
            .taken("10.0.0.6")
            .refuses("ID", FULL),
        case("T19 a restarted container", small())
            .gives("ID", ["10.0.0.2/29"])
            .then(del("ID"))
            .gives("ID", ["10.0.0.3/29"]),
    ]);
}

#[test]
fn a_last_address_outside_the_set_counts_as_none() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    let cursor = || cluster.store().entries("v1/net/default/cursor/");
    node.add("other").config(&network(subnet("10.0.0.128/25"))).run().ok();
    let [(_, outside)] = cursor().try_into().expect("one set has one cursor");

    let small = network(subnet("10.0.0.0/29"));
    node.add("taken").args("IP=10.0.0.2").config(&small).run().ok();
    for (key, _) in cursor() {
        cluster.store().put(&key, outside.clone());
    }
    assert_eq!(node.add("ID").config(&small).run().address(), "10.0.0.3", "T13");
    cluster.assert_clean();
}

#[test]
fn a_crowd_fills_a_range() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    let config = network(subnet("10.1.2.0/26"));
    let outcomes = in_parallel(8, 0..62, |i| node.add(&format!("c{i}")).config(&config).run());
    let (given, refused): (Vec<_>, Vec<_>) = outcomes.iter().partition(|outcome| outcome.succeeded());
    let addresses: BTreeSet<_> = given.iter().map(|outcome| outcome.address()).collect();
    assert_eq!((given.len(), addresses.len(), refused.len()), (61, 61, 1), "T20");
    refused[0].error(FULL);
    cluster.assert_clean();
}

#[test]
fn ranges() {
    let capability = || json!({"runtimeConfig": {"ipRanges": [[{"subnet": "12.1.3.0/24"}]]}});
    let halves = |second: &str| {
        json!({"ranges": [[
            {"subnet": "10.1.2.0/24", "rangeEnd": "10.1.2.127"},
            {"subnet": "10.1.2.0/24", "rangeStart": second},
        ]]})
    };
    every_case([
        case("T22 three sources", json!({"subnet": "10.1.2.0/24", "ranges": [[{"subnet": "11.1.2.0/24"}]]}))
            .then(add("ID").version("0.3.1").with(capability()).gives([
                "12.1.3.2/24",
                "10.1.2.2/24",
                "11.1.2.2/24",
            ])),
        case("T23 the capability alone", json!({}))
            .then(add("ID").with(capability()).gives(["12.1.3.2/24"]))
            .then(check("ID").with(capability()))
            .then(del("ID"))
            .then(add("next").with(capability()).gives(["12.1.3.3/24"]))
            .refuses("none", INVALID),
        case(
            "T25 start and end",
            json!({"subnet": "10.0.0.0/29", "rangeStart": "10.0.0.6", "rangeEnd": "10.0.0.7"}),
        )
        .gives("a", ["10.0.0.6/29"])
        .gives("b", ["10.0.0.7/29"])
        .refuses("c", FULL),
        case(
            "T26 nothing but the gateway",
            json!({"subnet": "10.1.2.0/24", "rangeStart": "10.1.2.9", "rangeEnd": "10.1.2.9", "gateway": "10.1.2.9"}),
        )
        .refuses("ID", FULL),
        case("T28 an empty gateway", json!({"subnet": "10.1.2.0/24", "gateway": ""})).then(
            add("ID").answers(json!({
                "cniVersion": "1.0.0",
                "ips": [{"address": "10.1.2.2/24", "gateway": "10.1.2.1"}],
            })),
        ),
        case("T31 the smallest of IPv6", subnet("fd00::/126")).gives("ID", ["fd00::2/126"]),
        case("T35 two halves", halves("10.1.2.128")).gives("ID", ["10.1.2.2/24"]),
        case("T37 one of each family", json!({"ranges": [[subnet("10.1.2.0/24")], [subnet("fd00::/64")]]}))
            .then(add("ID").version("0.2.0").answers(json!({
                "cniVersion": "0.2.0",
                "ip4": {"ip": "10.1.2.2/24", "gateway": "10.1.2.1"},
                "ip6": {"ip": "fd00::2/64", "gateway": "fd00::1"},
                "dns": {},
            }))),
        case("T37 two of a family", json!({"ranges": [[subnet("10.1.2.0/24")], [subnet("10.1.3.0/24")]]}))
            .then(add("ID").version("0.2.0").gives(["10.1.2.2/24"]))
            .then(add("ID").version(None).gives(["10.1.2.2/24"]))
            .then(add("ID").version("0.3.0").gives(["10.1.2.2/24", "10.1.3.2/24"]))
            .then(add("other").version("0.3.0").gives(["10.1.2.3/24", "10.1.3.3/24"]))
            .then(del("ID").version("0.2.0"))
            .then(add("next").version("0.3.0").args("IP=10.1.2.2,10.1.3.2").gives(["10.1.2.2/24", "10.1.3.2/24"])),
        case("keys in any case", json!({"SUBNET": "10.1.2.0/24", "RangeSTART": "10.1.2.20"}))
            .gives("ID", ["10.1.2.20/24"]),
        refused("T29 leading zeros", json!({"subnet": "10.1.2.0/24", "gateway": "10.1.2.01"})),
        refused("T31 a /31", subnet("192.0.2.0/31")),
        refused("T31 a /32", subnet("192.0.2.0/32")),
        refused("T31 a /127", subnet("fd00::/127")),
        refused("T32 start outside", json!({"subnet": "192.0.2.0/24", "rangeStart": "192.0.3.0"})),
        refused("T32 end outside", json!({"subnet": "192.0.2.0/24", "rangeEnd": "192.0.4.0"})),
        refused(
            "T32 end before start",
            json!({"subnet": "192.0.2.0/24", "rangeStart": "192.0.2.50", "rangeEnd": "192.0.2.40"}),
        ),
        refused(
            "T34 sets that overlap",
            json!({"ranges": [
                (["10.1.2.0/24", "10.2.2.0/24"].map(subnet)),
                (["10.1.4.0/24", "10.1.6.0/24", "10.1.8.0/24", "10.1.2.0/24"].map(subnet)),
            ]}),
        ),
        refused("T35 halves that overlap", halves("10.1.2.127")),
        refused("T38 an empty set", json!({"ranges": [[]]})),
        refused("T38 no set", json!({"ranges": []})),
        refused("T38 an empty range", json!({"ranges": [[{}]]})),
        refused("host bits", subnet("10.1.2.1/24")),
        refused("families in one set", set(["10.1.2.0/24", "fd00::/64"])),
        refused("IPv4 written as IPv6", subnet("::ffff:10.1.2.0/120")),
    ]);
}

#[test]
fn requested_addresses() {
    let net = || subnet("10.1.2.0/24");
    let two = || json!({"ranges": [[subnet("10.1.2.0/24")], [subnet("10.1.3.0/24")]]});
    let asking = |ip: &str| add("ID").with(requesting(json!([ip])));
    every_case([
        case("T40 args.cni.ips", net()).then(asking("10.1.2.88").gives(["10.1.2.88/24"])),
        case("T40 with a prefix", net()).then(asking("10.1.2.88/24").gives(["10.1.2.88/24"])),
        case("T40 with a wrong prefix", net()).then(asking("10.1.2.88/16").gives(["10.1.2.88/24"])),
        case("T41 a taken one", net())
            .then(asking("10.1.2.88").gives(["10.1.2.88/24"]))
            .then(add("other").with(requesting(json!(["10.1.2.88"]))).fails(NOT_AVAILABLE))
            .then(asking("10.1.2.88").gives(["10.1.2.88/24"]))
            .gives("plain", ["10.1.2.89/24"]),
        case("T43 two of one set", two())
            .then(add("ID").with(requesting(json!(["10.1.2.88", "10.1.2.77"]))).fails(INVALID))
            .then(add("ID").with(requesting(json!(["10.1.3.88"]))).gives(["10.1.2.2/24", "10.1.3.88/24"])),
        case("T43 one of two sets is taken", two())
            .taken("10.1.3.88")
            .then(add("ID").with(requesting(json!(["10.1.2.88", "10.1.3.88"]))).fails(NOT_AVAILABLE)),
        case("T44 three times the same", net()).then(
            add("ID")
                .args("IP=10.1.2.88")
                .with(json!({
                    "args": {"cni": {"ips": ["10.1.2.88"]}},
                    "runtimeConfig": {"ips": ["10.1.2.88/24"]},
                }))
                .gives(["10.1.2.88/24"]),
        ),
        case("T46 network, broadcast, gateway, foreign", net())
            .then(asking("10.1.2.0").fails(NOT_AVAILABLE))
            .then(asking("10.1.2.255").fails(NOT_AVAILABLE))
            .then(asking("10.1.2.1").fails(NOT_AVAILABLE))
            .then(asking("10.9.9.9").fails(INVALID))
            .then(asking("fd00::9").fails(INVALID)),
        case("T46 outside of start and end", json!({"subnet": "10.1.2.0/24", "rangeEnd": "10.1.2.99"}))
            .then(asking("10.1.2.100").fails(NOT_AVAILABLE)),
        case("T52 runtimeConfig.ips", net())
            .then(add("ID").with(json!({"runtimeConfig": {"ips": ["10.1.2.44"]}})).gives(["10.1.2.44/24"])),
        case("T52 in another case", net())
            .then(add("ID").with(json!({"RuntimeConfig": {"IPs": ["10.1.2.44"]}})).gives(["10.1.2.44/24"])),
        case("T53 what is no address", net())
            .then(add("ID").with(json!({"runtimeConfig": {"ips": ["foo"]}})).fails(INVALID))
            .then(add("ID").with(requesting(json!("10.1.2.3"))).fails(INVALID))
            .then(asking("10.1.2.03").fails(INVALID)),
        case("null everywhere", net()).then(
            add("ID")
                .with(json!({"args": null, "runtimeConfig": null, "prevResult": null}))
                .gives(["10.1.2.2/24"]),
        ),
    ]);
}

#[test]
fn cni_args() {
    let net = || subnet("10.1.2.0/24");
    let gives = |args: &str, address: &str| {
        let step = add("ID").args(args);
        case(&format!("T47, T49 {args}"), net()).then(step.gives([address]))
    };
    let fails = |args: &str| {
        let step = add("ID").args(args);
        case(&format!("T49, T50 {args}"), net())
            .then(step.fails(4))
            .then(add("ID").gives(["10.1.2.2/24"]))
            .then(check("ID").args(args))
            .then(del("ID").args(args))
            .then(del("ID").args(args))
    };
    every_case([
        gives("IP=10.1.2.10", "10.1.2.10/24"),
        gives("IP=10.1.2.11/24", "10.1.2.11/24"),
        gives("IP=", "10.1.2.2/24"),
        gives("FOO=BAR;IgnoreUnknown=1", "10.1.2.2/24"),
        gives("FOO=BAR;IgnoreUnknown=TRUE", "10.1.2.2/24"),
        gives("IP=10.1.2.10;IP=10.1.2.12", "10.1.2.12/24"),
        gives(
            "IgnoreUnknown=true;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=;K8S_POD_UID=;MAC=;IP=10.1.2.10,",
            "10.1.2.10/24",
        ),
        fails("FOO=BAR"),
        fails("FOO=BAR;IgnoreUnknown=0"),
        fails("FOO=BAR;IgnoreUnknown=yes"),
        fails("ip=10.1.2.10"),
        fails("ip=10.1.2.10;IgnoreUnknown=1"),
        fails("FOO"),
        fails("IgnoreUnknown=1;"),
        fails("A=b=c;IgnoreUnknown=1"),
        fails("IP=foo"),
        fails("IP=10.1.2.010"),
        case("T48 a list of both families", json!({"ranges": [[net()], [subnet("fd00::/64")]]})).then(
            add("ID").args("IgnoreUnknown=1;IP=fd00::44,10.1.2.44/24").gives(["10.1.2.44/24", "fd00::44/64"]),
        ),
    ]);
}

#[test]
fn resolv_conf_is_read_as_the_resolver_does() {
    let text = "# comment\n; another\nnameserver 192.0.2.3\nnameserver 2001:db8::3\ndomain example.com\n\
                search a.example b.example\nsearch c.example\noptions ndots:5\noptions timeout:1 rotate\n";
    let cluster = Cluster::new();
    let path = resolv_conf(cluster.folder(), text);
    let config = network(json!({"subnet": "10.1.2.0/24", "resolvConf": path, "dns": {"domain": "ignored"}}));
    let answer = cluster.node_with("n1", json!({"resolv_conf": [path]})).add("ID").config(&config).run().ok();
    let expected = json!({
        "nameservers": ["192.0.2.3", "2001:db8::3"],
        "domain": "example.com",
        "search": ["a.example", "b.example", "c.example"],
        "options": ["ndots:5", "timeout:1", "rotate"],
    });
    assert_eq!(answer["dns"], expected, "T55");
    cluster.assert_clean();
}

/// A network's author must not read files of the node through it.
#[test]
fn resolv_conf_is_a_regular_file_of_root() {
    type Make = fn(&Path);
    let rows: [(&str, Make); 6] = [
        ("T55 missing", |_| ()),
        ("a folder", |path| fs::create_dir(path).expect("a folder can be made")),
        ("a device", |path| symlink("/dev/zero", path).expect("a link can be made")),
        ("a FIFO", |path| make_fifo(path)),
        ("somebody else's", |path| {
            fs::write(path, "nameserver 192.0.2.3\n").expect("a file can be written");
            chown(path, Some(NOBODY), None).expect("root may give files away");
        }),
        ("too large", |path| {
            fs::write(path, "#".repeat(RESOLV_CONF_BYTES_MAX + 1)).expect("a file can be written");
        }),
    ];
    every(rows.map(|(name, make)| (name.to_owned(), make)), |make| {
        let cluster = Cluster::new();
        let path = cluster.folder().join("resolv.conf");
        let node = cluster.node_with("n1", json!({"resolv_conf": [path]}));
        make(&path);
        let config = network(json!({"subnet": "10.1.2.0/24", "resolvConf": path}));
        crate::golden::assert_refused(&node.add("ID").config(&config).run());
        assert_eq!(held(&cluster), Vec::<String>::new());
        node.del("ID").config(&config).run().silent();
        cluster.assert_clean();
    });
}

/// Nor learn which files are there.
#[test]
fn a_resolv_conf_that_the_host_file_does_not_name_is_not_looked_at() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    let good = resolv_conf(cluster.folder(), "nameserver 192.0.2.3\n");
    let paths = [good.as_path(), cluster.folder(), Path::new("/nonexistent")];
    let refusals = paths.map(|path| {
        let config = network(json!({"subnet": "10.1.2.0/24", "resolvConf": path}));
        node.add("ID").config(&config).run().error(7)
    });
    assert!(refusals.iter().all(|refusal| refusal["details"] == refusals[0]["details"]), "{refusals:?}");
    assert!(refusals[0]["details"].to_string().contains("`resolv_conf` in the host file"), "{refusals:?}");
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

fn make_fifo(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status().expect("mkfifo runs");
    assert!(made.success());
}

#[test]
fn routes_go_through_as_written() {
    let routed = |routes: Value| json!({"subnet": "10.1.2.0/24", "routes": routes});
    let answer = |routes: Value| {
        add("ID").answers(json!({
            "cniVersion": "1.0.0",
            "ips": [{"address": "10.1.2.2/24", "gateway": "10.1.2.1"}],
            "routes": routes,
        }))
    };
    every_case([
        refused("T56 a bad gw", routed(json!([{"dst": "0.0.0.0/0", "gw": "1.2.3.x"}]))),
        refused("T56 no dst", routed(json!([{"gw": "10.1.2.1"}]))),
        case("T56 host bits", routed(json!([{"dst": "3ffe:ffff:0:01ff::1/64"}])))
            .then(answer(json!([{"dst": "3ffe:ffff:0:1ff::1/64"}]))),
        case("T56 zeros", routed(json!([{"dst": "10.9.0.0/16", "table": 0, "scope": 0, "mtu": 0}])))
            .then(answer(json!([{"dst": "10.9.0.0/16", "table": 0, "scope": 0}]))),
        case("a gw is never handed out", routed(json!([{"dst": "0.0.0.0/0", "gw": "10.1.2.2"}])))
            .gives("ID", ["10.1.2.3/24"]),
    ]);
}

#[test]
fn the_name_of_the_cni_network_separates_nothing() {
    let cluster = Cluster::new();
    let (one, two) = (cluster.node("n1"), cluster.node("n2"));
    let runs = [(&one, "red"), (&one, "blue"), (&two, "red"), (&two, "blue")];
    let outcomes = in_parallel(4, runs, |(node, name)| {
        node.add(name).config(&network_as("1.0.0", name, subnet("10.1.2.0/24"))).run()
    });
    let addresses: BTreeSet<_> = outcomes.iter().map(|outcome| outcome.address()).collect();
    let expected: BTreeSet<_> = (2..6).map(|host| format!("10.1.2.{host}")).collect();
    assert_eq!(addresses, expected, "T80");
    cluster.assert_clean();
}

#[test]
fn own_keys() {
    let ordered = |order: &str| json!({"subnet": "10.1.2.0/24", "order": order});
    let named = |name: &str| json!({"subnet": "10.1.2.0/24", "network_name": name});
    let restarted = |order: &str| {
        case(&format!("order {order}"), ordered(order)).then(add("a").succeeds()).then(del("a"))
    };
    let red = |step: Step| step.ipam(named("red"));
    every_case([
        restarted("lowest").gives("a", ["10.1.2.2/24"]),
        restarted("next").gives("a", ["10.1.2.3/24"]),
        // One page holds the whole range, so every node starts at its first address.
        restarted("spread").gives("a", ["10.1.2.3/24"]),
        refused("order any", ordered("any")),
        case("network_name", named("blue"))
            .gives("a", ["10.1.2.2/24"])
            .then(red(add("b")).gives(["10.1.2.2/24"]))
            .gives("c", ["10.1.2.3/24"])
            .then(red(add("d")).args("IP=10.1.2.3").gives(["10.1.2.3/24"]))
            .then(red(add("e")).args("IP=10.1.2.3").fails(NOT_AVAILABLE)),
        refused("network_name with a slash", named("a/b")),
        refused("network_name with an at", named("a@b")),
        refused("network_name of 64 bytes", named(&"n".repeat(64))),
        case("network_name of 63 bytes", named(&"n".repeat(63))).gives("a", ["10.1.2.2/24"]),
    ]);
}
