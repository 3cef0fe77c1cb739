//! Bad input through the real binary: either it is refused with a CNI error and nothing is written, or it gives a valid
//! result. However large, deep or odd the input is, the answer is an orderly one.
//!
//! The tables of single mistakes are in `tests/cni/cni_contract.rs` and `tests/cni/host_file.rs`. `hack/fuzz` looks for
//! bytes that break what must be true for any input.

use std::ffi::OsString;
use std::fs;
use std::net::IpAddr;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use support::{
    Cluster, Dice, Etcd, Outcome, Run, Store, in_parallel, metes, mutate_bytes, mutate_json, network,
    network_as, report,
};

const CASES: u64 = 5_000;
/// With fewer cases of either kind, the mutations are too wild or too tame to prove anything.
const OF_EACH_KIND: usize = 1_000;
const WORKERS: usize = 4;
const VERSIONS: [&str; 7] = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];
/// Stand in a host file for etcd's endpoint and for the folder until it is written, so that a case does not depend on
/// their lengths: it is the same wherever and whenever it runs.
const ENDPOINT: &str = "ETCD-OF-THE-LAB";
const FOLDER: &str = "/FOLDER-OF-THE-LAB";
/// Refused before the store is asked.
const UNASKED: [u64; 5] = [1, 4, 6, 7, 8];
/// Refused because of the store: no free address, not this one, or a CHECK of a container that holds none.
const ASKED: [u64; 3] = [100, 101, 102];
const MIB: usize = 1 << 20;

/// The number of a case is its seed, so a case can be run alone.
#[test]
fn mutated_input_is_refused_or_served() {
    let etcd = Etcd::start();
    let folder = support::temporary();
    let lab = Lab { store: Store::open(&etcd, "/"), endpoint: etcd.endpoint(), folder: folder.path() };
    let all: Vec<Case> = (0..CASES).map(|number| lab.case(number)).collect();
    let judged = in_parallel(WORKERS, &all, |case| (case, case.run(), case.left()));
    report(judged.iter().map(|(case, outcome, left)| judge(case, outcome, left)));
    let (served, refused): (Vec<_>, Vec<_>) =
        judged.into_iter().partition(|(_, outcome, _)| outcome.succeeded());
    let counts = (served.len(), refused.len());
    assert!(counts.0 >= OF_EACH_KIND && counts.1 >= OF_EACH_KIND, "served and refused: {counts:?}");
    lab.refused_write_nothing(refused.iter().map(|(case, ..)| *case));
}

struct Lab<'a> {
    store: Store,
    endpoint: String,
    folder: &'a Path,
}

impl Lab<'_> {
    /// On an empty store each of them is refused again, and not a single revision is made.
    fn refused_write_nothing<'a>(&self, cases: impl Iterator<Item = &'a Case>) {
        self.store.delete_prefix("");
        let before = self.store.revision();
        let again = in_parallel(WORKERS, cases, |case| (case.number, case.run()));
        report(again.into_iter().map(|(number, outcome)| {
            outcome.succeeded().then(|| format!("case {number} was refused before: {outcome}"))
        }));
        assert_eq!(self.store.revision(), before, "something that was refused was written");
        assert_eq!(self.store.keys(""), Vec::<String>::new());
    }

    fn case(&self, number: u64) -> Case {
        let mut dice = Dice::new(number);
        let mut case = self.valid(number, &mut dice);
        for _ in 0..dice.below(4) {
            match dice.below(20) {
                0 => case.args = mutate_bytes(&mut dice, &case.args),
                1 => mutate_environment(&mut dice, &mut case.environment),
                2..5 => case.host = mutated_host(&mut dice, &case),
                5..9 => case.stdin = mutate_bytes(&mut dice, &case.stdin),
                _ => case.stdin = mutate_json(&mut dice, &case.stdin),
            }
        }
        case.host = self.filled_in(&case.host);
        fs::write(&case.host_file, &case.host).expect("a host file");
        fs::set_permissions(&case.host_file, fs::Permissions::from_mode(0o600)).expect("its mode");
        case
    }

    fn valid(&self, number: u64, dice: &mut Dice) -> Case {
        let verb = dice.pick(&VERBS);
        let spool = format!("{number}.spool");
        let environment = [
            ("CNI_COMMAND", verb),
            ("CNI_CONTAINERID", "c1"),
            ("CNI_IFNAME", "eth0"),
            ("CNI_NETNS", "/run/netns/made-up"),
            ("CNI_PATH", "/opt/cni/bin"),
        ];
        let host = json!({
            "etcd": {"endpoints": [ENDPOINT], "prefix": format!("/c{number}/")},
            "node_name": "n1", "cluster": "east", "spool_dir": format!("{FOLDER}/{spool}"), "gc_grace_s": 60,
            "allowed": {"default": ["10.0.0.0/8", "192.0.2.0/24", "fd00::/8"], "blue": ["10.0.0.0/8", "fd00::/64"]},
        });
        let (config, args) = valid_config(dice, verb);
        Case {
            number,
            environment: environment.map(|(name, value)| (name, value.as_bytes().to_vec())).to_vec(),
            args: args.as_bytes().to_vec(),
            stdin: config.to_string().into_bytes(),
            host: host.to_string().into_bytes(),
            host_file: self.folder.join(format!("{number}.conf")),
            spool: self.folder.join(spool),
        }
    }

    /// The host file as it is written.
    fn filled_in(&self, host: &[u8]) -> Vec<u8> {
        let folder = self.folder.display().to_string();
        let places = [(FOLDER, folder.as_bytes()), (ENDPOINT, self.endpoint.as_bytes())];
        places.into_iter().fold(host.to_vec(), |text, (place, real)| replaced(&text, place, real))
    }
}

/// Another host file that keeps the lab's etcd, its folder and a prefix of its own, so that it leads to nobody else's.
fn mutated_host(dice: &mut Dice, case: &Case) -> Vec<u8> {
    let is_ours = |text: &[u8]| match serde_json::from_slice::<Value>(text) {
        Ok(file) => leads_here(case, &file) && leading_keys(text) <= 4,
        Err(_) => true,
    };
    let tries = std::iter::repeat_with(|| match dice.below(3) {
        0 => mutate_bytes(dice, &case.host),
        _ => mutate_json(dice, &case.host),
    });
    tries.take(20).find(|text| is_ours(text)).unwrap_or_else(|| case.host.clone())
}

fn leads_here(case: &Case, file: &Value) -> bool {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (spool, prefix) = (text(&file["spool_dir"]), text(&file["etcd"]["prefix"]));
    let is_inside = spool.starts_with(&format!("{FOLDER}/")) && !spool.contains("..");
    let is_own = is_inside
        && prefix.contains(&format!("c{}", case.number))
        && file["etcd"]["endpoints"] == json!([ENDPOINT])
        && file.get("log_file").is_none();
    // A text that is no object is refused.
    is_own || !file.is_object()
}

/// `text`, which may be no UTF-8, with `real` wherever `place` stands in it.
fn replaced(text: &[u8], place: &str, real: &[u8]) -> Vec<u8> {
    let at = text.windows(place.len()).position(|part| part == place.as_bytes());
    let Some(at) = at else { return text.to_vec() };
    let rest = replaced(&text[at + place.len()..], place, real);
    [&text[..at], real, &rest].concat()
}

/// The number of keys of a file that say where it leads to, in any case of letters: once more may mean elsewhere.
fn leading_keys(text: &[u8]) -> usize {
    let text = String::from_utf8_lossy(text).to_ascii_lowercase();
    ["\"etcd", "\"endpoints", "\"prefix", "\"spool_dir", "\"log_file"]
        .iter()
        .map(|key| text.matches(key).count())
        .sum()
}

struct Case {
    number: u64,
    environment: Vec<(&'static str, Vec<u8>)>,
    args: Vec<u8>,
    stdin: Vec<u8>,
    host: Vec<u8>,
    host_file: PathBuf,
    spool: PathBuf,
}

impl Case {
    fn run(&self) -> Outcome {
        let run = Run::new(metes()).env("METES_CONF", self.host_file.as_os_str()).stdin(self.stdin.clone());
        let args = OsString::from_vec(self.args.clone());
        let set = |run: Run, (name, value): &(&'static str, Vec<u8>)| {
            run.env(name, OsString::from_vec(value.clone()))
        };
        self.environment.iter().fold(run.env("CNI_ARGS", args), set).run()
    }

    /// The files in the node's folder.
    fn left(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(&self.spool) else { return Vec::new() };
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    fn verb(&self) -> String {
        String::from_utf8_lossy(&self.environment[0].1).into_owned()
    }

    fn describe(&self) -> String {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let variables = self.environment.iter().map(|(name, value)| format!("{name}={}", text(value)));
        format!(
            "case {}\n{:?}\nCNI_ARGS={}\nstdin {}\nhost file {}",
            self.number,
            variables.collect::<Vec<_>>(),
            text(&self.args),
            text(&self.stdin),
            text(&self.host)
        )
    }
}

/// The fault of an answer.
fn judge(case: &Case, outcome: &Outcome, left: &[String]) -> Option<String> {
    let wrong = if outcome.stderr.contains("panicked") || outcome.error_code() == Some(999) {
        Some("it panicked".to_owned())
    } else if outcome.succeeded() {
        judge_answer(case, outcome)
    } else {
        judge_error(case, outcome, left)
    };
    wrong.map(|wrong| format!("{wrong}: {}\n{outcome}", case.describe()))
}

fn judge_error(case: &Case, outcome: &Outcome, left: &[String]) -> Option<String> {
    let Ok(error) = serde_json::from_str::<Value>(&outcome.stdout) else {
        return Some("no JSON on stdout".to_owned());
    };
    let Some(code) = error["code"].as_u64() else { return Some("no code".to_owned()) };
    let says = |key: &str| error[key].as_str().is_some_and(|text| !text.is_empty());
    let is_version = |version: &Value| VERSIONS.iter().any(|known| version == known);
    let is_known = UNASKED.contains(&code)
        || ASKED.contains(&code) && (code == 102) == (case.verb() == "CHECK")
        || code == 50 && case.verb() == "STATUS" && no_add_can_use_host_file(case, &error["msg"]);
    // A run that has asked the store notes the revision that it saw.
    let may_leave: &[&str] = if ASKED.contains(&code) { &["mark"] } else { &[] };
    match () {
        () if outcome.status.code() != Some(1) => Some("the exit status is not 1".to_owned()),
        () if !is_known => Some("an unexpected code".to_owned()),
        () if !says("msg") => Some("no msg".to_owned()),
        () if error.get("details").is_some() && !says("details") => Some("empty details".to_owned()),
        () if error.get("cniVersion").is_some_and(|version| !is_version(version)) => {
            Some("an unknown version".to_owned())
        }
        () if left.iter().any(|file| !may_leave.contains(&file.as_str())) => {
            Some(format!("it left {left:?}"))
        }
        () => None,
    }
}

/// A STATUS that has not asked etcd gives the answer of an ADD of any network: a key of the host file is unclear.
fn no_add_can_use_host_file(case: &Case, why: &Value) -> bool {
    let attachment =
        ["CNI_COMMAND=ADD", "CNI_CONTAINERID=c1", "CNI_IFNAME=eth0", "CNI_NETNS=/run/netns/made-up"];
    let run = Run::new(metes()).env("METES_CONF", case.host_file.as_os_str());
    let variables = attachment.iter().filter_map(|variable| variable.split_once('='));
    let run = variables.fold(run, |run, (name, value)| run.env(name, value)).cni_path("/opt/cni/bin");
    let add = run.config(&network(json!({"subnet": "10.0.0.0/24"}))).run();
    add.error_code() == Some(7) && add.json()["msg"] == *why
}

fn judge_answer(case: &Case, outcome: &Outcome) -> Option<String> {
    if case.verb() != "ADD" {
        let is_silent = outcome.stdout.is_empty();
        return (!is_silent).then(|| "it should be silent".to_owned());
    }
    let Ok(result) = serde_json::from_str::<Value>(&outcome.stdout) else {
        return Some("no JSON on stdout".to_owned());
    };
    let Some(version) = result["cniVersion"].as_str().filter(|version| VERSIONS.contains(version)) else {
        return Some("no version that was asked for".to_owned());
    };
    if version != "0.1.0" && !String::from_utf8_lossy(&case.stdin).contains(version) {
        return Some("another version than was asked for".to_owned());
    }
    let is_old = version < "0.3.0";
    if result.get("ips").is_some() == is_old {
        return Some("another version's shape".to_owned());
    }
    let addresses = outcome.addresses();
    if addresses.is_empty() {
        return Some("no address".to_owned());
    }
    let given = prefixes(case);
    let fits = |address: &str| {
        cidr(address)
            .is_some_and(|(ip, length)| given.iter().any(|one| contains(*one, ip) && one.1 == length))
    };
    addresses.iter().find(|address| !fits(address)).map(|address| format!("{address} is in no range"))
}

/// Everything in a case that reads as an address with a prefix length.
fn prefixes(case: &Case) -> Vec<(IpAddr, u8)> {
    let mut texts = Vec::new();
    if let Ok(config) = serde_json::from_slice(&case.stdin) {
        collect(&config, &mut texts);
    }
    // A key may stand there twice, and serde_json keeps one of the two.
    texts.extend(String::from_utf8_lossy(&case.stdin).split('"').map(str::to_owned));
    texts.extend(String::from_utf8_lossy(&case.args).split([';', ',', '=']).map(str::to_owned));
    texts.iter().filter_map(|text| cidr(text.rsplit('-').next()?.trim())).collect()
}

fn collect(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => texts.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| collect(item, texts)),
        Value::Object(keys) => keys.values().for_each(|value| collect(value, texts)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// An address and its prefix length; leading zeros of IPv4 are whereabouts' way.
fn cidr(text: &str) -> Option<(IpAddr, u8)> {
    let (ip, length) = text.split_once('/')?;
    let plain =
        |part: &str| part.parse::<u32>().map_or_else(|_| part.to_owned(), |number| number.to_string());
    let decimal = ip.split('.').map(plain).collect::<Vec<_>>().join(".");
    let ip = ip.parse().or_else(|_| decimal.parse()).ok()?;
    Some((ip, length.parse().ok()?))
}

fn contains((network, length): (IpAddr, u8), ip: IpAddr) -> bool {
    let shared =
        |a: u128, b: u128, bits: u32| (a ^ b).checked_shr(bits - u32::from(length)).unwrap_or(0) == 0;
    match (network, ip) {
        (IpAddr::V4(a), IpAddr::V4(b)) => shared(u32::from(a).into(), u32::from(b).into(), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => shared(a.into(), b.into(), 128),
        _ => false,
    }
}

const VERBS: [&str; 8] = ["ADD", "ADD", "ADD", "ADD", "DEL", "CHECK", "GC", "STATUS"];

/// The labels of a pod.
const LABELS: &str = "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web;K8S_POD_UID=6f1c-7";

/// A configuration in one of the three forms, and CNI_ARGS that go with it.
fn valid_config(dice: &mut Dice, verb: &str) -> (Value, &'static str) {
    let routes = json!([{"dst": "0.0.0.0/0"}, {"dst": "192.168.0.0/16", "gw": "10.0.0.2", "mtu": 1400}]);
    let kind = dice.below(9);
    let ipam = match kind {
        0 => json!({"range": "10.0.0.0/24", "exclude": ["10.0.0.4/30"], "gateway": "10.0.0.1"}),
        1 => json!({"range": "10.0.0.0/16", "range_start": "10.0.0.9", "range_end": "10.0.0.99"}),
        2 => json!({"range": "10.0.0.5-10.0.0.50/24", "network_name": "blue", "order": "spread"}),
        3 => {
            json!({"ipRanges": [{"range": "10.0.0.0/24"}, {"range": "fd00::/64"}], "enable_overlapping_ranges": false})
        }
        4 => json!({"subnet": "10.0.0.0/24", "rangeStart": "10.0.0.9", "routes": routes}),
        5 => {
            json!({"ranges": [[{"subnet": "10.0.0.0/24"}, {"subnet": "10.0.1.0/24"}]], "gateway": "10.0.0.254"})
        }
        6 => json!({"range": "010.000.0.0/24", "addresses": [{"address": "fd00::7/64"}]}),
        7 => json!({"subnet": "fd00::/120", "rangeEnd": "fd00::80", "order": "lowest"}),
        _ => json!({"addresses": [{"address": "10.0.0.9/24", "gateway": "10.0.0.1"}], "routes": routes,
            "dns": {"nameservers": ["10.0.0.3"], "search": ["example.com"]}}),
    };
    // The newer verbs are of newer versions.
    let versions = match verb {
        "GC" | "STATUS" => &VERSIONS[6..],
        "CHECK" => &VERSIONS[4..],
        _ => &VERSIONS[..],
    };
    let mut config = network_as(dice.pick(versions), "net", ipam);
    let args = match dice.below(4) {
        0 if kind < 7 => "IP=10.0.0.20",
        1 if kind < 7 => {
            config["runtimeConfig"] = json!({"ips": ["10.0.0.20/24"]});
            ""
        }
        2 => LABELS,
        _ => "",
    };
    if dice.below(4) == 0 {
        config["prevResult"] =
            json!({"cniVersion": config["cniVersion"], "ips": [{"address": "10.0.0.9/24"}]});
        config["cni.dev/valid-attachments"] = json!([{"containerID": "a", "ifname": "eth0"}]);
    }
    (config, args)
}

fn mutate_environment(dice: &mut Dice, environment: &mut [(&'static str, Vec<u8>)]) {
    let at = dice.below(environment.len() as u64) as usize;
    let value = mutate_bytes(dice, &environment[at].1);
    // Without a command it is a program for people.
    if at > 0 || !value.is_empty() && std::str::from_utf8(&value).is_ok() {
        environment[at].1 = value;
    }
}

/// A configuration of this many bytes, which says the same without most of them.
fn padded(config: &Value, size: usize) -> String {
    let text = config.to_string();
    let blanks = " ".repeat(size - text.len());
    text + &blanks
}

fn with_ipam(key: &str, value: &str) -> String {
    format!(
        r#"{{"cniVersion":"1.0.0","name":"net","ipam":{{"type":"metes","subnet":"10.1.2.0/24","{key}":{value}}}}}"#
    )
}

fn nested(depth: usize) -> String {
    "[".repeat(depth) + &"]".repeat(depth)
}

fn listed(item: &str, count: usize) -> String {
    format!("[{}]", vec![item; count].join(","))
}

/// `0` stands for success.
#[test]
fn size_depth_and_odd_bytes_are_bounded() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    let plain = network(json!({"subnet": "10.1.2.0/24"}));
    let bytes = |text: &str| text.as_bytes().to_vec();
    let with_byte = |byte: u8| {
        let mut text = bytes(&with_ipam("log_level", "\"x\""));
        let at = text.iter().rposition(|found| *found == b'x').expect("it is there");
        text[at] = byte;
        text
    };
    let rows: Vec<(&str, u64, Vec<u8>)> = vec![
        ("1 MiB", 0, bytes(&padded(&plain, MIB))),
        ("1 MiB and a byte", 6, bytes(&padded(&plain, MIB + 1))),
        ("much more than that", 6, vec![b' '; 64 * MIB]),
        ("as deep as it is long", 6, bytes(&nested(MIB / 2))),
        ("deep inside of a key", 6, bytes(&with_ipam("odd", &nested(10_000)))),
        ("deep, but not too deep", 0, bytes(&with_ipam("odd", &nested(100)))),
        ("a number that no float holds", 6, bytes(&with_ipam("odd", "1e999"))),
        (
            "a number that no integer holds",
            7,
            bytes(&with_ipam("routes", r#"[{"dst":"0.0.0.0/0","mtu":99999999999999999999}]"#)),
        ),
        ("a fraction", 7, bytes(&with_ipam("routes", r#"[{"dst":"0.0.0.0/0","mtu":1.5}]"#))),
        ("a very long number", 0, bytes(&with_ipam("odd", &"7".repeat(100_000)[..300]))),
        ("zero byte", 6, with_byte(0)),
        ("control character", 6, with_byte(0x1f)),
        ("no UTF-8", 6, with_byte(0xff)),
        ("half of a character", 6, bytes(&with_ipam("log_level", r#""\ud800""#))),
        ("a zero byte that is written out", 7, bytes(&with_ipam("network_name", r#""a\u0000b""#))),
        ("a byte order mark", 6, [b"\xef\xbb\xbf".to_vec(), bytes(&plain.to_string())].concat()),
        ("UTF-16", 6, plain.to_string().encode_utf16().flat_map(u16::to_le_bytes).collect()),
        ("keys twice", 7, bytes(&with_ipam("SUBNET", r#""10.1.2.0/24""#))),
        (
            "as many unknown keys as fit",
            0,
            bytes(&with_ipam("a", &format!("1{}", r#","b":1"#.repeat(150_000)))),
        ),
        ("as many routes as fit", 0, bytes(&with_ipam("routes", &listed(r#"{"dst":"0.0.0.0/0"}"#, 40_000)))),
        ("as many excludes as fit, for as many addresses as may be picked", 0, bytes(&picked())),
        (
            "as many ranges as fit",
            7,
            bytes(&with_ipam("ranges", &listed(r#"[{"subnet":"10.2.0.0/24"}]"#, 30_000))),
        ),
        (
            "too many addresses",
            7,
            bytes(&network(json!({"addresses": vec![json!({"address": "10.1.2.9/24"}); 31]})).to_string()),
        ),
        ("a name as long as it can be", 7, bytes(&json!({"name": "\u{e9}".repeat(MIB / 3)}).to_string())),
    ];
    let failures = in_parallel(WORKERS, rows.into_iter().enumerate(), |(at, (name, code, stdin))| {
        let outcome = node.add(&format!("c{at}")).stdin(stdin).run();
        wrong(name, code, outcome)
    });
    report(failures);
    cluster.assert_clean();
}

fn picked() -> String {
    let picked: Vec<String> = (0..256).map(|i| format!("10.{}.0.9", i % 256)).collect();
    let excluded: Vec<String> = (0..50_000).map(|i| format!("10.250.{}.{}", i / 250, i % 250)).collect();
    network(json!({"range": "10.0.0.0/8", "pick_addresses": picked, "exclude": excluded})).to_string()
}

fn wrong(name: &str, code: u64, outcome: Outcome) -> Option<String> {
    let found = if outcome.succeeded() { 0 } else { outcome.error_code().unwrap_or(u64::MAX) };
    let has_panicked = outcome.stderr.contains("panicked");
    let is_json = outcome.succeeded() || outcome.status.code() == Some(1);
    let short: String = outcome.to_string().chars().take(2000).collect();
    (found != code || has_panicked || !is_json).then(|| format!("{name}: expected {code}, got {short}"))
}

#[test]
fn variables_are_bounded() {
    // The kernel's bound for one variable, with its name and a zero byte.
    const LONGEST: usize = 128 << 10;
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    let config = network(json!({"subnet": "10.1.2.0/24"}));
    let long =
        |start: &str, name: &str| format!("{start}{}", "x".repeat(LONGEST - name.len() - start.len() - 2));
    let rows: Vec<(&str, u64, &str, Vec<u8>)> = vec![
        ("a long container id", 4, "CNI_CONTAINERID", "c".repeat(254).into_bytes()),
        ("the longest container id", 0, "CNI_CONTAINERID", "c".repeat(253).into_bytes()),
        ("as long as can be", 4, "CNI_CONTAINERID", long("", "CNI_CONTAINERID").into_bytes()),
        ("an id that is no UTF-8", 4, "CNI_CONTAINERID", b"c\xff".to_vec()),
        ("a long pod name", 4, "CNI_ARGS", long("K8S_POD_NAME=", "CNI_ARGS").into_bytes()),
        ("a long UID", 4, "CNI_ARGS", format!("K8S_POD_UID={}", "u".repeat(65)).into_bytes()),
        ("a line break in a label", 4, "CNI_ARGS", b"K8S_POD_NAME=a\nb".to_vec()),
        ("very many pairs", 0, "CNI_ARGS", "IgnoreUnknown=1;".repeat(8_000).into_bytes()[..127_999].to_vec()),
        (
            "very many addresses",
            7,
            "CNI_ARGS",
            format!("IP={}", "10.1.2.9,10.1.3.9,".repeat(7_000)).into_bytes(),
        ),
        ("a command that is no UTF-8", 0, "CNI_COMMAND", b"ADD\xff".to_vec()),
        ("a long interface name", 4, "CNI_IFNAME", "\u{e9}".repeat(8).into_bytes()),
    ];
    let failures =
        in_parallel(WORKERS, rows.into_iter().enumerate(), |(at, (name, code, variable, value))| {
            let run = node.add(&format!("c{at}")).env(variable, OsString::from_vec(value));
            wrong(name, code, run.config(&config).run())
        });
    report(failures);
    cluster.assert_clean();
}

#[test]
fn host_files_are_bounded() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    let good = fs::read_to_string(node.host_file()).expect("it is there");
    let add = |container: &str| node.add(container).config(&network(json!({"subnet": "10.1.2.0/24"}))).run();
    let with = |key: &str, value: &str| {
        let open = good.strip_suffix('}').expect("it is an object");
        format!("{open},\"{key}\":{value}}}")
    };
    let rows: Vec<(&str, u64, Vec<u8>)> = vec![
        ("1 MiB", 0, format!("{good}{}", " ".repeat(MIB - good.len())).into_bytes()),
        ("1 MiB and a byte", 7, format!("{good}{}", " ".repeat(MIB + 1 - good.len())).into_bytes()),
        ("deep", 7, with("odd", &nested(10_000)).into_bytes()),
        ("no UTF-8", 7, [good.as_bytes(), b"\xff"].concat()),
        ("zero bytes", 7, vec![0; 100]),
        ("a number that no float holds", 7, with("odd", "1e999").into_bytes()),
        ("a number that no integer holds", 7, with("gc_grace_s", "99999999999999999999").into_bytes()),
        ("twice, the last one wrong", 7, with("NODE_NAME", "\"a/b\"").into_bytes()),
        (
            "as many unknown keys as fit",
            0,
            with("a", &format!("1{}", r#","b":1"#.repeat(150_000))).into_bytes(),
        ),
    ];
    let failures = rows.into_iter().enumerate().map(|(at, (name, code, file))| {
        node.write_host_file(file);
        wrong(name, code, add(&format!("c{at}")))
    });
    let failures: Vec<_> = failures.collect();
    node.write_host_file(&good);
    report(failures);
    cluster.assert_clean();
}
