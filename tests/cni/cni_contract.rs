//! The protocol: the duties of every CNI plugin to its runtime, whatever it allocates.

use std::time::Duration;

use crate::golden::{VERSIONS, assert_refused, every, held};
use serde_json::{Value, json};
use support::{Cluster, Etcd, Node, Outcome, Run, in_parallel, metes, network, network_as, report};

/// Nothing listens there.
const CLOSED: &str = "http://127.0.0.1:1";
/// The longest time of a STATUS: runtimes set no deadline of their own for it.
const STATUS_MAX: Duration = Duration::from_secs(2);
const GC_LISTS: [&str; 2] = ["cni.dev/valid-attachments", "cni.dev/attachments"];

fn subnet() -> Value {
    json!({"subnet": "10.1.2.0/24"})
}

fn unreachable(cluster: &Cluster) -> Node {
    cluster.node_with("n1", json!({"etcd": {"endpoints": [CLOSED]}}))
}

fn run(node: &Node, verb: &str) -> Run {
    match verb {
        "ADD" => node.add("ID"),
        "DEL" => node.del("ID"),
        "CHECK" => node.check("ID"),
        other => node.plugin(other),
    }
}

/// Variables besides or instead of the usual ones; an empty one is missing.
type Env = &'static [(&'static str, &'static str)];

/// A run that is refused before etcd is asked.
struct Refused {
    verb: &'static str,
    env: Env,
    stdin: String,
    code: u64,
    /// The words that `msg` or `details` must have.
    names: &'static [&'static str],
}

fn bad_env(verb: &'static str, env: Env, names: &'static [&'static str]) -> Refused {
    Refused { verb, env, stdin: network_as("1.1.0", "mynet", subnet()).to_string(), code: 4, names }
}

fn bad_stdin(verb: &'static str, stdin: impl ToString, code: u64, names: &'static [&'static str]) -> Refused {
    Refused { verb, env: &[], stdin: stdin.to_string(), code, names }
}

fn bad_version(verb: &'static str, version: &str, code: u64, names: &'static [&'static str]) -> Refused {
    bad_stdin(verb, network_as(version, "mynet", subnet()), code, names)
}

/// Runs each row on a cluster of its own, whose part of the store must stay empty.
#[track_caller]
fn every_refused<const N: usize>(rows: [(&str, Refused); N]) {
    every(rows.map(|(name, row)| (name.to_owned(), row)), |row| {
        let cluster = Cluster::new();
        let node = cluster.node("n1");
        let mut run = run(&node, row.verb);
        for (name, value) in row.env {
            run = run.env(name, *value);
        }
        let outcome = run.stdin(row.stdin).run();
        let error = outcome.error(row.code);
        assert_shape(&error, &outcome);
        let text = format!("{} {}", error["msg"], error["details"]);
        for name in row.names {
            assert!(text.contains(name), "{name:?} is not named: {outcome}");
        }
        assert_eq!(cluster.store().keys(""), Vec::<String>::new(), "{outcome}");
        cluster.assert_clean();
    });
}

fn assert_shape(error: &Value, outcome: &Outcome) {
    let keys = error.as_object().expect("an error is an object");
    for (key, value) in keys {
        let fits = match key.as_str() {
            "code" => value.is_u64(),
            "cniVersion" | "msg" | "details" => value.as_str().is_some_and(|text| !text.is_empty()),
            _ => false,
        };
        assert!(fits, "{key} has no place in an error: {outcome}");
    }
}

#[test]
fn without_a_command_it_says_what_it_is() {
    let rows = ["unset", "empty"].map(|name| (format!("T59 CNI_COMMAND {name}"), name));
    every(rows, |name| {
        let run = Run::new(metes());
        let run = if name == "empty" { run.env("CNI_COMMAND", "") } else { run };
        let outcome = run.run();
        outcome.silent();
        let versions = format!("CNI protocol versions supported: {}", VERSIONS.join(", "));
        assert!(outcome.stderr.lines().any(|line| line == versions), "{outcome}");
        assert!(outcome.stderr.lines().count() >= 2, "it says nothing of itself: {outcome}");
    });
}

#[test]
fn a_bad_environment_is_refused() {
    every_refused([
        (
            "T60 ADD: all are missing",
            bad_env(
                "ADD",
                &[("CNI_CONTAINERID", ""), ("CNI_NETNS", ""), ("CNI_IFNAME", ""), ("CNI_PATH", "")],
                &["CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME,CNI_PATH"],
            ),
        ),
        ("T60 ADD: one is missing", bad_env("ADD", &[("CNI_NETNS", "")], &["CNI_NETNS"])),
        ("T60 CHECK needs a netns", bad_env("CHECK", &[("CNI_NETNS", "")], &["CNI_NETNS"])),
        ("T60 DEL needs none", bad_env("DEL", &[("CNI_NETNS", ""), ("CNI_IFNAME", "")], &["[CNI_IFNAME]"])),
        ("T60 GC: CNI_PATH", bad_env("GC", &[("CNI_PATH", "")], &["[CNI_PATH]"])),
        ("T60 STATUS: CNI_PATH", bad_env("STATUS", &[("CNI_PATH", "")], &["[CNI_PATH]"])),
        ("T61 a slash in the id", bad_env("ADD", &[("CNI_CONTAINERID", "a/b")], &["a/b"])),
        ("T61 an id that begins with a dot", bad_env("ADD", &[("CNI_CONTAINERID", "..")], &[".."])),
        ("T61 a blank in the id", bad_env("DEL", &[("CNI_CONTAINERID", "a b")], &["a b"])),
        (
            "T61 invalid comes before missing",
            bad_env("ADD", &[("CNI_CONTAINERID", "?id"), ("CNI_NETNS", "")], &["?id"]),
        ),
        ("T62 a long ifname", bad_env("ADD", &[("CNI_IFNAME", "a234567890123456")], &["interface name"])),
        ("T63 ifname .", bad_env("ADD", &[("CNI_IFNAME", ".")], &["interface name"])),
        ("T63 ifname ..", bad_env("DEL", &[("CNI_IFNAME", "..")], &["interface name"])),
        ("T64 ifname with /", bad_env("ADD", &[("CNI_IFNAME", "a/b")], &["interface name"])),
        ("T64 ifname with :", bad_env("ADD", &[("CNI_IFNAME", "a:b")], &["interface name"])),
        ("T64 ifname with a blank", bad_env("CHECK", &[("CNI_IFNAME", "a\tb")], &["interface name"])),
        ("T69 an unknown command", bad_env("NOPE", &[], &["NOPE"])),
        ("T69 a command in small letters", bad_env("add", &[], &["add"])),
    ]);
}

#[test]
fn bad_stdin_is_refused() {
    every_refused([
        ("T65 empty", bad_stdin("ADD", "", 6, &[])),
        ("T65 not JSON", bad_stdin("ADD", "{", 6, &[])),
        ("T65 trailing junk", bad_stdin("ADD", r#"{"name":"n"} x"#, 6, &[])),
        ("T65 two documents", bad_stdin("ADD", r#"{"name":"n"}{"name":"n"}"#, 6, &[])),
        ("T65 an array", bad_stdin("ADD", "[]", 6, &[])),
        ("T65 a name that is none", bad_stdin("ADD", r#"{"name":5}"#, 6, &[])),
        ("T65 DEL", bad_stdin("DEL", "[]", 6, &[])),
        ("T65 GC", bad_stdin("GC", "", 6, &[])),
        ("T66 no name", bad_stdin("ADD", r#"{"cniVersion":"1.0.0","ipam":{}}"#, 7, &["name"])),
        ("T66 an empty name", bad_stdin("DEL", r#"{"name":""}"#, 7, &["name"])),
        ("T66 null", bad_stdin("ADD", "null", 7, &["name"])),
        ("T67 a name with a slash", bad_stdin("ADD", r#"{"name":"a/b"}"#, 7, &["name", "a/b"])),
        ("T67 a name that begins with a dot", bad_stdin("ADD", r#"{"name":".a"}"#, 7, &["name", ".a"])),
        ("T69 an unknown command, stdin first", bad_stdin("NOPE", "[]", 6, &[])),
        ("T69 an unknown command, name first", bad_stdin("NOPE", "{}", 7, &["name"])),
    ]);
}

#[test]
fn versions_that_do_not_fit_are_refused() {
    every_refused([
        ("T70 ADD 0.3", bad_version("ADD", "0.3", 1, &["0.3", "1.1.0"])),
        ("T70 ADD 1.0", bad_version("ADD", "1.0", 1, &["1.0"])),
        ("T70 ADD abc", bad_version("ADD", "abc", 1, &["abc"])),
        ("T70 ADD 1.2.0", bad_version("ADD", "1.2.0", 1, &["1.2.0"])),
        ("T70 DEL 1.2.0", bad_version("DEL", "1.2.0", 1, &["1.2.0"])),
        ("T72 CHECK 1.2.0", bad_version("CHECK", "1.2.0", 1, &["CHECK"])),
        ("T72 GC 2.0.0", bad_version("GC", "2.0.0", 1, &["GC"])),
        ("T72 STATUS 1.1.1", bad_version("STATUS", "1.1.1", 1, &["STATUS"])),
        ("T72 CHECK abc", bad_version("CHECK", "abc", 6, &["abc"])),
        ("T72 GC abc", bad_version("GC", "abc", 6, &["abc"])),
        ("T72 STATUS abc", bad_version("STATUS", "abc", 6, &["abc"])),
    ]);
}

/// Callers compare a plugin's words about a version that does not know the verb with the words of the CNI library.
#[test]
fn a_version_that_does_not_know_the_verb_is_refused_in_the_librarys_words() {
    let table = [
        ("CHECK", "", "config version does not allow CHECK"),
        ("CHECK", "0.1.0", "config version does not allow CHECK"),
        ("CHECK", "0.3.1", "config version does not allow CHECK"),
        ("GC", "1.0.0", "config version does not allow GC"),
        ("STATUS", "1.0.0", "config version does not allow STATUS"),
        ("CHECK", "1.2.0", "plugin version does not allow CHECK"),
    ];
    every(table.map(|row| (format!("T71, T72 {} {:?}", row.0, row.1), row)), |(verb, version, msg)| {
        let cluster = Cluster::new();
        let outcome = run(&cluster.node("n1"), verb).config(&network_as(version, "mynet", subnet())).run();
        let error = outcome.error(1);
        assert_eq!((&error["msg"], error.get("details")), (&json!(msg), None), "{outcome}");
        cluster.assert_clean();
    });
}

#[test]
fn a_network_without_addresses_is_refused() {
    every_refused([
        ("T73 no ipam", bad_stdin("ADD", r#"{"cniVersion":"1.0.0","name":"n"}"#, 7, &["ipam"])),
        ("T73 null", bad_stdin("ADD", r#"{"cniVersion":"1.0.0","name":"n","ipam":null}"#, 7, &["ipam"])),
        ("T73 a string", bad_stdin("ADD", r#"{"cniVersion":"1.0.0","name":"n","ipam":"x"}"#, 7, &["ipam"])),
        ("T74 {}", bad_stdin("ADD", r#"{"cniVersion":"1.0.0","name":"n","ipam":{}}"#, 7, &["ipam"])),
    ]);
}

/// Users who may write a network configuration must not choose the store that the node talks to.
#[test]
fn a_host_file_alone_names_the_store() {
    let beside = |verb: &'static str, key: &'static str, value: Value| {
        let mut ipam = subnet();
        ipam[key] = value;
        bad_stdin(verb, network_as("1.1.0", "mynet", ipam), 7, &["etcd"])
    };
    every_refused([
        ("ADD etcd", beside("ADD", "etcd", json!({"endpoints": [CLOSED]}))),
        ("ADD etcd in capitals", beside("ADD", "ETCD", json!({"prefix": "/other/"}))),
        ("ADD etcd_host", beside("ADD", "etcd_host", json!(CLOSED))),
        ("ADD etcd_ca_cert_file", beside("ADD", "etcd_ca_cert_file", json!("/etc/passwd"))),
        ("CHECK etcd_key_file", beside("CHECK", "etcd_key_file", json!("/etc/shadow"))),
        ("STATUS etcd_host", beside("STATUS", "etcd_host", json!(CLOSED))),
        ("GC etcd_host", beside("GC", "etcd_host", json!(CLOSED))),
    ]);
}

#[test]
fn its_own_netns_is_refused() {
    let rows = ["ADD", "DEL"].map(|verb| (format!("T58, T75 {verb}"), verb));
    every(rows, |verb| {
        let cluster = Cluster::new();
        let node = cluster.node("n1");
        let config = network(subnet());
        let own = || run(&node, verb).netns("/proc/self/ns/net").config(&config);
        let before = cluster.store().keys("");
        own().run().error(8);
        own().env("CNI_NETNS_OVERRIDE", "0").run().error(8);
        assert_eq!(cluster.store().keys(""), before);
        for yes in ["1", "true", "TRUE"] {
            own().env("CNI_NETNS_OVERRIDE", yes).run().ok();
        }
        node.del("ID").netns("").config(&config).run().silent();
        cluster.assert_nothing_held();
        cluster.assert_clean();
    });
}

#[test]
fn version_needs_nothing() {
    let expected = json!({"cniVersion": "1.1.0", "supportedVersions": VERSIONS});
    for stdin in ["", "garbage", r#"{"cniVersion":"0.2.0"}"#, ""] {
        let outcome = Run::new(metes()).env("CNI_COMMAND", "VERSION").stdin(stdin).run();
        assert_eq!(outcome.ok(), expected, "T76");
        assert!(outcome.stdout.ends_with("}\n"), "T76: {outcome}");
    }
}

#[test]
fn status_and_gc_need_the_path_only() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    let config = network_as("1.1.0", "mynet", subnet());
    for verb in ["STATUS", "STATUS", "GC", "GC"] {
        node.plugin(verb).config(&config).run().silent();
    }
    cluster.assert_clean();
}

/// The keys that each version allows for one address, and for routes that have more than a gateway.
#[test]
fn results_have_the_shape_of_their_version() {
    let rich =
        json!({"dst": "10.9.0.0/16", "mtu": 1400, "advmss": 1360, "priority": 5, "table": 7, "scope": 0});
    let ipam = json!({"subnet": "10.1.2.0/24", "routes": [rich, {"dst": "fd00::/8"}]});
    let shape = |version: &str| match version {
        "0.1.0" | "0.2.0" => json!({
            "ip4": {"ip": "10.1.2.2/24", "gateway": "10.1.2.1", "routes": [{"dst": "10.9.0.0/16"}]},
            "dns": {},
        }),
        "0.3.0" | "0.3.1" | "0.4.0" => json!({
            "ips": [{"version": "4", "address": "10.1.2.2/24", "gateway": "10.1.2.1"}],
            "routes": ipam["routes"],
            "dns": {},
        }),
        _ => json!({
            "ips": [{"address": "10.1.2.2/24", "gateway": "10.1.2.1"}],
            "routes": ipam["routes"],
        }),
    };
    every(VERSIONS.map(|version| (version.to_owned(), version)), |version| {
        let cluster = Cluster::new();
        let node = cluster.node("n1");
        let config = network_as(version, "mynet", ipam.clone());
        let mut expected = shape(version);
        expected["cniVersion"] = json!(version);
        for _ in ["first", "again"] {
            assert_eq!(node.add("ID").config(&config).run().ok(), expected);
        }
        cluster.assert_clean();
    });
}

#[test]
fn keys_match_in_any_case() {
    let rows = [
        (
            "any case",
            r#"{"CNIVersion":"1.0.0","NAME":"n","Ipam":{"Type":"metes","SUBNET":"10.1.2.0/24"},
                "RUNTIMECONFIG":{"IPS":["10.1.2.9"]}}"#,
        ),
        (
            "the last version and name",
            r#"{"cniVersion":"9.9.9","name":"a/b","name":"n","cniversion":"1.0.0",
                "ipam":{"type":"metes","subnet":"10.1.2.0/24","rangeStart":"10.1.2.9"}}"#,
        ),
        (
            "unknown keys",
            r#"{"cniVersion":"1.0.0","name":"n","type":"ipvlan","master":"eth0","deviceID":"0000:00:02.1",
                "pciBusID":"0000:00:02.1","capabilities":{"ips":true},"args":{"cni":{"ips":["10.1.2.9"],"x":1},"y":{}},
                "prevResult":{"cniVersion":"1.0.0","ips":[{"address":"10.7.7.7/24"}],"interfaces":[]},
                "ipam":{"type":"metes","subnet":"10.1.2.0/24"}}"#,
        ),
    ];
    every(rows.map(|(name, stdin)| (name.to_owned(), stdin)), |stdin| {
        let cluster = Cluster::new();
        let outcome = cluster.node("n1").add("ID").stdin(stdin).run();
        let expected = json!({
            "cniVersion": "1.0.0",
            "ips": [{"address": "10.1.2.9/24", "gateway": "10.1.2.1"}],
        });
        assert_eq!(outcome.ok(), expected, "{outcome}");
        cluster.assert_clean();
    });
}

/// An ADD that accepted such a configuration would give wrong addresses. A DEL frees all that is held, whatever the
/// keys are.
#[test]
fn a_configuration_that_would_give_others_than_are_meant_is_refused() {
    let ipam = |keys: &str| format!(r#""ipam":{{"type":"metes",{keys}}}"#);
    let range = || ipam(r#""range":"10.1.2.0/24""#);
    let rows: [(&str, String, &[&str]); 14] = [
        (
            "a slip",
            ipam(r#""range":"10.1.2.0/24","excludes":["10.1.2.0/25"]"#),
            &["`ipam.excludes`", "`exclude`"],
        ),
        (
            "a slip in any case",
            ipam(r#""range":"10.1.2.0/24","Exlude":["10.1.2.0/25"]"#),
            &["Exlude", "`exclude`"],
        ),
        (
            "a slip beside a known key",
            ipam(r#""subnet":"10.1.2.0/24","range_strat":"10.1.2.9""#),
            &["`ipam.range_strat`", "`range_start`"],
        ),
        (
            "a slip of a gateway",
            ipam(r#""range":"10.1.2.0/24","gatway":"10.1.2.1""#),
            &["gatway", "`gateway`"],
        ),
        ("a slip of a network", ipam(r#""range":"10.1.2.0/24","networkName":"red""#), &["`network_name`"]),
        (
            "a slip in an entry",
            ipam(r#""ipRanges":[{"range":"10.1.2.0/24","range_strt":"10.1.2.9"}]"#),
            &["`ipam.ipRanges[0].range_strt`", "`range_start`"],
        ),
        (
            "a slip in a set",
            ipam(r#""ranges":[[{"subnet":"10.1.2.0/24","rangeEnds":"10.1.2.9"}]]"#),
            &["`ipam.ranges[0][0].rangeEnds`", "`rangeEnd`"],
        ),
        (
            "a slip of a request",
            format!(r#"{},"runtimeConfig":{{"ip":["10.1.2.9"]}}"#, range()),
            &["`runtimeConfig.ip`", "`ips`"],
        ),
        (
            "a key twice",
            ipam(r#""range":"10.1.2.0/24","Range":"10.1.2.0/25""#),
            &["`ipam.range`", "`ipam.Range`"],
        ),
        ("a key twice alike", ipam(r#""range":"10.1.2.0/24","range":"10.1.2.0/24""#), &["`ipam.range`"]),
        ("ipam twice", format!("{},{}", range(), range().replace("ipam", "IPAM")), &["`ipam`", "`IPAM`"]),
        (
            "a request twice",
            format!(r#"{},"args":{{"cni":{{"ips":["10.1.2.9"],"IPs":[]}}}}"#, range()),
            &["`args.cni.ips`", "`args.cni.IPs`"],
        ),
        (
            "nothing left",
            ipam(r#""range":"10.1.2.0/30","exclude":["10.1.2.1","10.1.2.2/32"]"#),
            &["`ipam.range`", "no address is left"],
        ),
        (
            "nothing left of one range",
            ipam(r#""range":"10.1.2.0/24","ipRanges":[{"range":"fd00::/64","exclude":["fd00::/48"]}]"#),
            &["`ipam.ipRanges[0].range`", "no address is left"],
        ),
    ];
    every(rows.map(|(name, ipam, words)| (name.to_owned(), (ipam, words))), |(ipam, words)| {
        let cluster = Cluster::new();
        let node = cluster.node("n1");
        let config = format!(r#"{{"cniVersion":"1.0.0","name":"n",{ipam}}}"#);
        node.add("ID").config(&network(subnet())).run().ok();
        let before = held(&cluster);
        for run in [node.add("ID"), node.add("other"), node.check("ID")] {
            let outcome = run.stdin(config.as_str()).run();
            let error = outcome.error(7);
            for word in words {
                assert!(error["msg"].as_str().is_some_and(|msg| msg.contains(word)), "{word}: {outcome}");
            }
        }
        assert_eq!(held(&cluster), before);
        node.del("ID").stdin(config).run().silent();
        cluster.assert_nothing_held();
        cluster.assert_clean();
    });
}

/// If a misspelt request were ignored, the container would get another address than it asked for.
#[test]
fn a_misspelt_ip_in_cni_args_is_refused() {
    let rows = ["ip=10.1.2.9", "Ip=10.1.2.9", "IP =10.1.2.9", " IP=10.1.2.9", "iP\t="]
        .map(|pair| (pair.to_owned(), pair));
    every(rows, |pair| {
        let cluster = Cluster::new();
        let node = cluster.node("n1");
        let config = network(subnet());
        for args in [pair.to_owned(), format!("IgnoreUnknown=1;{pair}"), format!("{pair};IgnoreUnknown=1")] {
            let outcome = node.add("ID").args(&args).config(&config).run();
            let msg = outcome.error(4)["msg"].to_string();
            assert!(msg.contains("CNI_ARGS") && msg.contains(r#"did you mean \"IP\"?"#), "{outcome}");
            cluster.assert_nothing_held();
            node.add("ID").config(&config).run().ok();
            node.check("ID").args(&args).config(&config).run().silent();
            node.del("ID").args(&args).config(&config).run().silent();
            cluster.assert_nothing_held();
        }
        cluster.assert_clean();
    });
}

/// A runtime passes on why an ADD failed; the log stays on the node.
#[test]
fn the_error_of_an_add_says_what_else_is_odd() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    let ipam = |keys: Value| {
        let mut ipam = json!({
            "subnet": "10.1.2.0/30", "gateway": "10.1.2.2", "rangeStart": "10.1.2.2", "dataDir": "/x", "flavour": 1,
            "log_file": "/x", "routes": [{"dst": "10.9.0.0/16", "via": "10.1.2.2"}],
        });
        ipam.as_object_mut().expect("an object").extend(keys.as_object().expect("an object").clone());
        network(ipam)
    };
    let cut_off = cluster.node_with("n2", json!({"etcd": {"endpoints": [CLOSED]}}));
    let notes = [
        "`ipam.dataDir` is ignored",
        "unknown key `ipam.flavour`",
        "unknown key `ipam.routes[0].via`",
        "`ipam.log_file` has no effect",
    ];
    let rows = [
        ("full", &node, ipam(json!({})), "", 100),
        ("not available", &node, ipam(json!({})), "IP=10.1.2.2", 101),
        ("invalid", &node, ipam(json!({"subnet": "10.1.2.0/33"})), "", 7),
        ("a slip", &node, ipam(json!({"Gatway": "10.1.2.1"})), "", 7),
        ("no etcd", &cut_off, ipam(json!({})), "", 11),
    ];
    for (name, node, config, args, code) in rows {
        let outcome = node.add("ID").args(args).config(&config).run();
        let error = outcome.error(code);
        let details = error["details"].as_str().unwrap_or_default();
        for note in notes {
            assert_eq!(details.matches(note).count(), 1, "{name}, {note}: {outcome}");
        }
    }
    cluster.assert_clean();
}

#[test]
fn a_requested_address_that_is_held_is_refused_with_its_holder() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    let address = node.add("c1").pod("ns", "web-0", "u1").config(&network(subnet())).run().address();
    let refused = node.add("c2").args(&format!("IP={address}")).config(&network(subnet())).run();
    let msg = refused.error(101)["msg"].as_str().unwrap_or_default().to_owned();
    assert!(
        msg.contains(" has been held by eth0 of container c1 on n1 of cluster test (pod ns/web-0) since 2"),
        "{refused}"
    );
    cluster.assert_clean();
}

/// A caller that never closes stdin gets an error by the verb's deadline. A VERSION does not read stdin.
#[test]
fn a_stdin_that_stays_open_is_not_awaited_for_ever() {
    let rows = [("ADD", 20), ("DEL", 3), ("CHECK", 5), ("STATUS", 1), ("GC", 20), ("NOPE", 1)];
    let rows = rows.map(|(verb, seconds)| (verb.to_owned(), (verb, Duration::from_secs(seconds))));
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    let config = network_as("1.1.0", "mynet", subnet());
    let failures = in_parallel(rows.len(), rows, |(verb, (command, deadline))| {
        let outcome = run(&node, command).config(&config).keeps_stdin_open().run();
        let text = outcome.stdout.to_ascii_lowercase();
        let fits = outcome.error_code() == Some(5)
            && text.contains("error reading from stdin")
            && !text.contains("not found")
            && !text.contains("no such file")
            && outcome.elapsed >= deadline
            && outcome.elapsed < deadline + Duration::from_secs(5);
        (!fits).then(|| format!("{verb}: {outcome}"))
    });
    report(failures);
    let version = run(&node, "VERSION").keeps_stdin_open().run();
    assert_eq!(version.ok()["supportedVersions"], json!(VERSIONS));
    assert!(version.elapsed < Duration::from_secs(5), "{version}");
    assert_eq!(cluster.store().keys(""), Vec::<String>::new());
    cluster.assert_clean();
}

/// A verbose log does not get into stdout.
#[test]
fn stdout_carries_one_document() {
    let cluster = Cluster::new();
    let node = cluster.node_with("n1", json!({"log_level": "debug"}));
    let config = network_as("1.1.0", "mynet", json!({"subnet": "10.1.2.0/24", "unknown": 1}));
    // Reading it as JSON fails if there is more than one document.
    node.add("ID").config(&config).run().json();
    for verb in ["CHECK", "STATUS", "GC", "DEL"] {
        run(&node, verb).config(&config).run().silent();
    }
    assert_refused(&run(&node, "CHECK").config(&config).run());
    cluster.assert_clean();
}

#[test]
fn an_error_names_its_version_and_what_to_do() {
    let full = || json!({"subnet": "10.1.2.0/30", "gateway": "10.1.2.2", "rangeStart": "10.1.2.2"});
    let rows = VERSIONS.map(|version| (version.to_owned(), version));
    every(rows, |version| {
        let cluster = Cluster::new();
        let node = cluster.node("n1");
        let refused = |ipam: Value, args: &str, code| {
            let outcome = node.add("ID").args(args).config(&network_as(version, "mynet", ipam)).run();
            let error = outcome.error(code);
            assert_shape(&error, &outcome);
            assert_eq!(error["cniVersion"], version, "{outcome}");
            error
        };
        let error = refused(full(), "", 100);
        assert!(error["details"].is_string(), "{error}");
        for word in ["default", "10.1.2"] {
            assert!(error["msg"].as_str().is_some_and(|msg| msg.contains(word)), "{word}: {error}");
        }
        let error = refused(subnet(), "IP=10.1.2.1", 101);
        assert!(error["details"].is_string() && error["msg"].to_string().contains("10.1.2.1"), "{error}");
        refused(json!({"subnet": 5}), "", 7);
        refused(subnet(), "FOO", 4);
        cluster.assert_clean();
    });
}

#[test]
fn a_del_does_not_depend_on_the_configuration() {
    let other = json!({"type": "metes", "range": "192.168.0.0/16", "network_name": "other"});
    let rows = [
        ("the same", subnet()),
        ("null", Value::Null),
        ("empty", json!({})),
        ("a string", json!("metes")),
        ("two forms", json!({"subnet": "10.1.2.0/24", "range": "10.1.2.0/24"})),
        ("malformed", json!({"type": "metes", "subnet": 5, "ranges": {}, "routes": "x", "order": []})),
        ("changed", other),
        ("etcd beside a host file", json!({"subnet": "10.1.2.0/24", "etcd": {"endpoints": [CLOSED]}})),
        ("old names of etcd", json!({"subnet": "10.1.2.0/24", "etcd_host": CLOSED})),
        ("a resolvConf that is gone", json!({"subnet": "10.1.2.0/24", "resolvConf": "/nonexistent"})),
    ];
    every(rows.map(|(name, ipam)| (name.to_owned(), ipam)), |ipam| {
        let cluster = Cluster::new();
        let node = cluster.node("n1");
        let mut config = network_as("1.0.0", "mynet", subnet());
        let add = |config: &Value| node.add("ID").config(config).run().ok();
        add(&config);
        config["ipam"] = ipam;
        let del = || node.del("ID").config(&config).args("A=b=c").netns("").run().silent();
        del();
        cluster.assert_nothing_held();
        del();
        cluster.assert_clean();
    });
}

#[test]
fn a_del_without_ipam_frees_too() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    node.add("ID").config(&network(subnet())).run().ok();
    for container in ["unknown", "ID", "ID"] {
        node.del(container).config(&json!({"cniVersion": "1.0.0", "name": "net"})).run().silent();
    }
    cluster.assert_nothing_held();
    let previous = json!({"cniVersion": "0.2.0", "ips": "x"});
    let config = json!({"cniVersion": "1.0.0", "name": "net", "prevResult": previous});
    node.del("ID").config(&config).run().silent();
    cluster.assert_clean();
}

#[test]
fn a_del_frees_one_interface_of_one_container_on_one_node() {
    let cluster = Cluster::new();
    let (one, two) = (cluster.node("n1"), cluster.node("n2"));
    let config = network(subnet());
    let owners = [(&one, "a", "eth0"), (&one, "a", "eth1"), (&one, "b", "eth0"), (&two, "a", "eth0")];
    for (node, container, ifname) in owners {
        node.add(container).ifname(ifname).config(&config).run().ok();
    }
    one.del("a").config(&config).run().silent();
    one.check("a").config(&config).run().error_code().expect("it is freed");
    for (node, container, ifname) in &owners[1..] {
        node.check(container).ifname(ifname).config(&config).run().silent();
    }
    cluster.assert_whole();
}

#[test]
fn check_judges_the_previous_result() {
    let previous = |ips: Value| json!({"cniVersion": "1.0.0", "ips": ips});
    let own = json!({"address": "10.1.2.2/24", "gateway": "10.1.2.1"});
    let foreign = json!({"address": "172.16.0.9/24"});
    let stolen = json!({"address": "10.1.2.77/24"});
    let rows = [
        ("none", Value::Null, true),
        ("own", previous(json!([own])), true),
        ("own and a foreign one", previous(json!([foreign, own])), true),
        ("a foreign one alone", previous(json!([foreign])), true),
        ("without addresses", previous(json!([])), true),
        ("one of ours that is not its own", previous(json!([stolen])), false),
        ("own and one that is not", previous(json!([own, stolen])), false),
    ];
    let rows = rows.map(|(name, previous, is_fine)| (name.to_owned(), (previous, is_fine)));
    every(rows, |(previous, is_fine)| {
        let cluster = Cluster::new();
        let node = cluster.node("n1");
        let mut config = network(subnet());
        node.add("ID").config(&config).run().ok();
        config["prevResult"] = previous;
        for _ in ["first", "again"] {
            let outcome = node.check("ID").config(&config).run();
            if is_fine { outcome.silent() } else { _ = assert_refused(&outcome) }
        }
        cluster.assert_clean();
    });
}

#[test]
fn status_says_when_etcd_is_down() {
    let cluster = Cluster::new();
    let node = unreachable(&cluster);
    for _ in ["first", "again"] {
        let outcome = node.status().config(&network_as("1.1.0", "mynet", subnet())).run();
        assert_eq!(outcome.error(50)["cniVersion"], "1.1.0");
        assert!(outcome.elapsed < STATUS_MAX, "{outcome}");
    }
    cluster.assert_clean();
}

/// A server that hangs is worse than one that is gone: nothing refuses the connection.
#[test]
fn status_says_when_etcd_hangs() {
    let etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let node = cluster.node("n1");
    let status = || node.status().config(&network_as("1.1.0", "mynet", subnet())).run();
    status().silent();
    etcd.stop();
    let outcome = status();
    etcd.resume();
    outcome.error(50);
    assert!(outcome.elapsed < STATUS_MAX, "{outcome}");
    cluster.assert_clean();
}

#[test]
fn without_etcd_only_a_del_succeeds() {
    let rows = ["ADD", "CHECK", "GC", "DEL"].map(|verb| (verb.to_owned(), verb));
    every(rows, |verb| {
        let cluster = Cluster::new();
        let node = unreachable(&cluster);
        let config = with_list(&network_as("1.1.0", "mynet", subnet()), GC_LISTS[0], json!([]));
        let outcome = run(&node, verb).config(&config).run();
        if verb == "DEL" {
            outcome.silent();
            assert_eq!(node.spooled().len(), 1, "{:?}", node.spooled());
        } else {
            assert!(outcome.error(11)["details"].is_string(), "{outcome}");
            assert!(node.spooled_dels().is_empty(), "{:?}", node.spooled());
        }
        cluster.assert_clean();
    });
}

#[test]
fn a_del_that_etcd_missed_is_carried_out_by_the_next_run() {
    let cluster = Cluster::new();
    let config = network(subnet());
    let node = cluster.node("n1");
    node.add("ID").config(&config).run().ok();
    let before = node.spooled();
    for _ in 0..2 {
        unreachable(&cluster).del("ID").config(&config).run().silent();
        assert_eq!(node.spooled().len(), before.len() + 1, "one for each owner");
    }
    assert_eq!(held(&cluster).len(), 2, "an owner and its reservation");

    cluster.node("n1").add("other").config(&config).run().ok();
    let holders: Vec<Value> = node.list().iter().map(|row| row["container_id"].clone()).collect();
    assert_eq!(holders, ["other"]);
    assert_eq!(node.spooled(), before);
    cluster.assert_clean();
}

/// containerd and Multus take these words in the error of a DEL for a success.
#[test]
fn a_failed_del_never_says_that_something_is_not_there() {
    let good = || network(subnet());
    let named = |name: &str| network_as("1.0.0", name, subnet());
    let down = |spool: &str| json!({"etcd": {"endpoints": [CLOSED]}, "spool_dir": spool});
    let rows: [(&str, u64, Value, Env, Value); 11] = [
        ("no spool: below a file", 11, down("/dev/null/spool"), &[], good()),
        ("no spool: below /proc", 11, down("/proc/nonexistent/spool"), &[], good()),
        ("no host file", 7, json!({}), &[("METES_CONF", "/nonexistent/not found")], good()),
        ("a missing CA", 7, json!({"etcd": {"ca_file": "/nonexistent/ca.pem"}}), &[], good()),
        (
            "a missing password",
            7,
            json!({"etcd": {"username": "u", "password_file": "/nonexistent/not found"}}),
            &[],
            good(),
        ),
        ("a key of the host file", 7, json!({"gc_grace_s": "not found"}), &[], good()),
        ("the id of the container", 4, json!({}), &[("CNI_CONTAINERID", "not found")], good()),
        ("the name of the interface", 4, json!({}), &[("CNI_IFNAME", "not found")], good()),
        ("the name of the network", 7, json!({}), &[], named("no such file or directory")),
        ("its version", 1, json!({}), &[], network_as("Not Found", "net", subnet())),
        ("what stdin is", 6, json!({}), &[], json!("not found")),
    ];
    let rows = rows.map(|(name, code, host, env, config)| (name.to_owned(), (code, host, env, config)));
    every(rows, |(code, host, env, config)| {
        let cluster = Cluster::new();
        let node = cluster.node_with("n1", host);
        let run = env.iter().fold(node.del("ID"), |run, (name, value)| run.env(name, *value));
        let outcome = run.config(&config).run();
        outcome.error(code);
        let text = outcome.stdout.to_lowercase();
        for phrase in ["not found", "no such file or directory"] {
            assert!(!text.contains(phrase), "{outcome}");
        }
        cluster.assert_clean();
    });
}

#[test]
fn a_host_file_that_is_named_must_be_there() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    let config = network_as("1.1.0", "mynet", subnet());
    for verb in ["ADD", "CHECK", "DEL", "STATUS", "GC"] {
        let gone = cluster.folder().join("gone.conf");
        run(&node, verb).env("METES_CONF", gone).config(&config).run().error(7);
    }
    assert_eq!(cluster.store().keys(""), Vec::<String>::new());
    cluster.assert_clean();
}

fn with_list(config: &Value, key: &str, list: Value) -> Value {
    let mut config = config.clone();
    config[key] = list;
    config
}

/// Containers `a` and `b`, and `a` under other names, in a cluster where GC frees even the youngest owner.
struct Attached {
    cluster: Cluster,
    node: Node,
    config: Value,
}

impl Attached {
    fn new(host: Value) -> Self {
        let cluster = Cluster::new();
        let node = cluster.node_with("n1", host);
        let config = network_as("1.1.0", "mynet", subnet());
        let other = network_as("1.1.0", "other", subnet());
        node.add("a").config(&config).run().ok();
        node.add("b").config(&config).run().ok();
        node.add("b").ifname("eth1").config(&config).run().ok();
        node.add("a").ifname("eth9").config(&other).run().ok();
        cluster.node("n2").add("a").config(&config).run().ok();
        Self { cluster, node, config }
    }

    /// The owners that still hold something, as `node/container/ifname`.
    fn owners(&self) -> Vec<String> {
        let keys = self.cluster.store().keys("v1/owner/");
        keys.iter().map(|key| key.trim_start_matches("v1/owner/test/").to_owned()).collect()
    }
}

const ELSEWHERE: [&str; 2] = ["n1/a/eth9", "n2/a/eth0"];

#[test]
fn gc_frees_what_is_not_listed() {
    let attachment = |id: &str, ifname: &str| json!({"containerID": id, "ifname": ifname});
    let a = || json!([attachment("a", "eth0")]);
    let b = || json!([attachment("b", "eth1"), attachment("unknown", "eth0")]);
    let [new, old] = GC_LISTS;
    let all = ["n1/a/eth0", "n1/b/eth0", "n1/b/eth1"];
    let rows: [(&str, Value, &[&str]); 8] = [
        ("one is valid", json!({new: a()}), &all[..1]),
        ("under the old name", json!({old: a()}), &all[..1]),
        ("under both names", json!({new: b(), old: b()}), &all[1..]),
        ("none is valid", json!({new: []}), &[]),
        ("null", json!({new: null}), &[]),
        ("null under both names", json!({new: null, old: null}), &[]),
        ("no list", json!({}), &all),
        (
            "all are valid",
            json!({new: all.map(|owner| {
                let parts: Vec<&str> = owner.split('/').collect();
                attachment(parts[1], parts[2])
            })}),
            &all,
        ),
    ];
    let rows = rows.map(|(name, lists, left)| (name.to_owned(), (lists, left)));
    every(rows, |(lists, left)| {
        let attached = Attached::new(json!({"gc_grace_s": 0}));
        let mut config = attached.config.clone();
        for (key, list) in lists.as_object().expect("keys are an object") {
            config[key] = list.clone();
        }
        let mut expected: Vec<&str> = left.iter().copied().chain(ELSEWHERE).collect();
        expected.sort_unstable();
        for _ in ["first", "again"] {
            attached.node.gc().config(&config).run().silent();
            assert_eq!(attached.owners(), expected);
        }
        let reservations = held(&attached.cluster).iter().filter(|key| key.contains("/ip/")).count();
        assert_eq!(reservations, expected.len());
        attached.cluster.assert_clean();
    });
}

/// A runtime lists the interfaces that it made. Multus adds others to the same container, perhaps in a network of the
/// same name.
#[test]
fn gc_keeps_the_other_interfaces_of_a_container_that_is_listed() {
    let attached = Attached::new(json!({"gc_grace_s": 0}));
    let gc = |list: Value| {
        attached.node.gc().config(&with_list(&attached.config, GC_LISTS[0], list)).run().silent();
        attached.owners()
    };
    let running = json!([{"containerID": "b", "ifname": "eth0"}]);
    assert_eq!(gc(running), ["n1/a/eth9", "n1/b/eth0", "n1/b/eth1", "n2/a/eth0"]);
    // Its container is gone.
    assert_eq!(gc(json!([])), ELSEWHERE);
    attached.cluster.assert_clean();
}

#[test]
fn gc_leaves_the_young_alone() {
    let attached = Attached::new(json!({}));
    let before = held(&attached.cluster);
    for key in GC_LISTS {
        attached.node.gc().config(&with_list(&attached.config, key, json!([]))).run().silent();
    }
    assert_eq!(held(&attached.cluster), before);
    attached.cluster.assert_clean();
}

#[test]
fn a_malformed_list_is_no_empty_list() {
    let rows = [
        ("a string", json!("x")),
        ("an object", json!({})),
        ("a list of strings", json!(["a"])),
        ("no id", json!([{"ifname": "eth0"}])),
    ];
    every(rows.map(|(name, list)| (name.to_owned(), list)), |list| {
        let attached = Attached::new(json!({"gc_grace_s": 0}));
        let before = held(&attached.cluster);
        for key in GC_LISTS {
            let config = with_list(&attached.config, key, list.clone());
            assert_refused(&attached.node.gc().config(&config).run());
        }
        assert_eq!(held(&attached.cluster), before);
        attached.cluster.assert_clean();
    });
}
