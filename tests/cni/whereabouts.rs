//! The meaning of configurations written for whereabouts: every row of its acceptance tables, as metes has it.
//!
//! Rows keep their names (A01, C07, D22 ...). Where metes differs on purpose, the row says so. Rows that are the same
//! in every form stand once: requested addresses (D12) and names of networks in `hostlocal.rs`, documents without a
//! name, `ipam` or a version that is known (F08, D17) in `cni_contract.rs`.

use std::fs;
use std::net::IpAddr;

use serde_json::{Value, json};

use support::{Cluster, Node, Outcome, network, network_as, report};

/// One row: a configuration, and the events after it, step by step.
struct Case {
    row: &'static str,
    /// `ipam` sections that the steps choose from.
    ipams: Vec<Value>,
    steps: Vec<Step>,
}

/// One run of the plugin and how it must end: the addresses with their prefix lengths, or `error CODE words`
/// where each of the words stands in the error's text, or `ok`.
struct Step {
    verb: &'static str,
    container: String,
    ifname: &'static str,
    args: String,
    config: usize,
    expected: String,
}

fn case(row: &'static str, ipam: Value, steps: impl IntoIterator<Item = Step>) -> Case {
    cases_of(row, [ipam], steps)
}

/// A row with several configurations.
fn cases_of<const N: usize>(
    row: &'static str,
    ipams: [Value; N],
    steps: impl IntoIterator<Item = Step>,
) -> Case {
    Case { row, ipams: ipams.into(), steps: steps.into_iter().collect() }
}

fn step(verb: &'static str, container: &str, expected: &str) -> Step {
    let (container, expected) = (container.to_owned(), expected.to_owned());
    Step { verb, container, ifname: "eth0", args: String::new(), config: 0, expected }
}

fn add(container: &str, expected: &str) -> Step {
    step("ADD", container, expected)
}

fn del(container: &str) -> Step {
    step("DEL", container, "ok")
}

/// An ADD for a specific address.
fn ask(address: &str, expected: &str) -> Step {
    add(&format!("asks-{}", address.replace([':', '.', ',', '/'], "-")), expected)
        .args(&format!("IP={address}"))
}

/// Others hold these already.
fn held<'a>(addresses: &'a [&'a str], bits: u8) -> impl Iterator<Item = Step> + 'a {
    addresses.iter().map(move |address| ask(address, &format!("{address}/{bits}")))
}

impl Step {
    fn args(self, args: &str) -> Self {
        Self { args: args.to_owned(), ..self }
    }

    fn pod(self, name: &str, uid: &str) -> Self {
        self.args(&format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME={name};K8S_POD_UID={uid}"))
    }

    fn ifname(self, ifname: &'static str) -> Self {
        Self { ifname, ..self }
    }

    /// With another of the row's configurations than the first.
    fn with(self, config: usize) -> Self {
        Self { config, ..self }
    }

    fn run(&self, node: &Node, ipams: &[Value]) -> Result<(), String> {
        let run = if self.verb == "ADD" { node.add(&self.container) } else { node.del(&self.container) };
        let run = run.ifname(self.ifname).config(&network_as("0.3.1", "net", ipams[self.config].clone()));
        let outcome = if self.args.is_empty() { run } else { run.args(&self.args) }.run();
        fits(&self.expected, &outcome).map_err(|why| format!("{} {}: {why}", self.verb, self.container))
    }
}

/// Checks that a run ended as expected.
fn fits(expected: &str, outcome: &Outcome) -> Result<(), String> {
    let got = said(outcome);
    let fits = match expected.strip_prefix("error ") {
        Some(words) => {
            let (code, text) = got.strip_prefix("error ").and_then(|e| e.split_once(' ')).unwrap_or_default();
            let mut words = words.split(' ');
            words.next() == Some(code) && words.all(|word| text.contains(word))
        }
        None => got == canonical(expected),
    };
    if fits { Ok(()) } else { Err(format!("expected {expected}, got {got}")) }
}

/// `ok`, addresses, or `error CODE msg details`.
fn said(outcome: &Outcome) -> String {
    if outcome.succeeded() && outcome.stdout.is_empty() {
        return "ok".to_owned();
    }
    let Ok(json) = serde_json::from_str::<Value>(&outcome.stdout) else { return outcome.to_string() };
    if outcome.succeeded() {
        return canonical(&outcome.addresses().join(" "));
    }
    let text = |key: &str| json[key].as_str().unwrap_or_default().to_owned();
    format!("error {} {} {}", json["code"], text("msg"), text("details"))
}

/// Addresses in the one way that Rust writes them.
fn canonical(addresses: &str) -> String {
    let one = |text: &str| match text.split_once('/').map(|(ip, bits)| (ip.parse::<IpAddr>(), bits)) {
        Some((Ok(ip), bits)) => format!("{ip}/{bits}"),
        _ => text.to_owned(),
    };
    addresses.split(' ').map(one).collect::<Vec<_>>().join(" ")
}

/// Plays every row in a cluster of its own, and names all that fail.
#[track_caller]
fn play(cases: impl IntoIterator<Item = Case>) {
    report(cases.into_iter().flat_map(|case| play_one(&case)).map(Some));
}

fn play_one(case: &Case) -> Vec<String> {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    let steps = case.steps.iter().map(|step| step.run(&node, &case.ipams));
    let mut failures: Vec<String> = steps.filter_map(Result::err).collect();
    let check = cluster.check();
    if !check.succeeded() {
        failures.push(format!("metes check: {check}"));
    }
    failures.into_iter().map(|why| format!("{}: {why}", case.row)).collect()
}

#[test]
fn allocator() {
    let r29 = |exclude: Value| json!({"range": "192.168.0.0/29", "exclude": exclude});
    let r125 = |exclude: Value| json!({"range": "100::2:1/125", "exclude": exclude});
    let low = ["192.168.0.1", "192.168.0.2", "192.168.0.3"];
    let a22 = json!({"range": "192.168.0.0/28", "range_start": "192.168.0.1", "range_end": "192.168.0.6"});
    let a16 = json!({"range": "192.168.0.0/29", "range_start": "192.168.0.0", "exclude": ["192.168.0.4/30"]});
    let a17 = json!({"range": "100::2:1/125", "range_start": "100::2:1", "exclude": ["100::2:4/126"]});
    let mut a20 = a22.clone();
    a20["exclude"] = json!(["192.168.0.4/30"]);
    let a13 = json!(["192.168.0.0/30", "192.168.0.6/31", "192.168.0.8/31", "192.168.0.4/30"]);
    let a14 =
        json!(["192.168.0.0/30", "192.168.0.14/31", "192.168.0.4/30", "192.168.0.6/31", "192.168.0.8/31"]);
    let full = || [add("next", "error 100")];
    play([
        case("A01", json!({"range": "192.168.1.1/24"}), [add("next", "192.168.1.1/24")]),
        case("A02", json!({"range": "caa5::0/112"}), [add("next", "caa5::1/112")]),
        case("A04", json!({"range": "fd::1/116"}), [add("next", "fd::1/116")]),
        case("A05", json!({"range": "100::2:1/126"}), [add("next", "100::2:1/126")]),
        case("A07", r29(json!(["192.168.0.1"])), [add("next", "192.168.0.2/29")]),
        case("A08", r29(json!(["192.168.0.1/123"])), [add("next", "error 7 exclude 192.168.0.1/123")]),
        case("A10", r125(json!(["100::2:1"])), [add("next", "100::2:2/125")]),
        case("A11", r125(json!(["100::2::1"])), [add("next", "error 7 exclude 100::2::1")]),
        case("A13", json!({"range": "192.168.0.0/28", "exclude": a13}), [add("next", "192.168.0.10/28")]),
        case("A14", json!({"range": "192.168.0.0/28", "exclude": a14}), [add("next", "192.168.0.10/28")]),
        case("A16", a16, held(&low, 29).chain(full())),
        case("A17", a17, held(&["100::2:1", "100::2:2", "100::2:3"], 125).chain(full())),
        case(
            "A19: the end outside is refused",
            json!({"range": "192.168.0.0/29", "range_start": "192.168.0.0", "range_end": "192.168.0.8"}),
            [add("next", "error 7 range_end 192.168.0.8")],
        ),
        case("A20", a20, held(&low, 28).chain(full())),
        case("A22", a22.clone(), held(&low, 28).chain([add("next", "192.168.0.4/28")])),
        case(
            "A23",
            a22,
            held(&["192.168.0.1", "192.168.0.2", "192.168.0.5"], 28).chain([add("next", "192.168.0.3/28")]),
        ),
    ]);
}

/// CIDR, start, end, and the first and last address that can be had.
#[rustfmt::skip]
const EFFECTIVE_RANGES: [(&str, &str, &str, &str, &str, &str); 14] = [
    ("R01", "192.168.21.100/30", "", "", "192.168.21.101", "192.168.21.102"),
    ("R02", "192.168.2.200/27", "", "", "192.168.2.193", "192.168.2.222"),
    ("R04", "192.168.2.200/24", "192.168.2.23", "", "192.168.2.23", "192.168.2.254"),
    ("R05", "192.168.2.200/24", "", "192.168.2.100", "192.168.2.1", "192.168.2.100"),
    ("R10", "2001::0/116", "", "", "2001::1", "2001::ffe"),
    ("R11", "fd:db8:abcd:0012::0/96", "", "", "fd:db8:abcd:12::1", "fd:db8:abcd:12::ffff:fffe"),
    ("R13", "2001:db8:abcd:0012::0/64", "", "", "2001:db8:abcd:12::1", "2001:db8:abcd:12:ffff:ffff:ffff:fffe"),
    ("R14", "2001:db8:abcd:0012::0/64", "", "2001:db8:abcd:12::100", "2001:db8:abcd:12::1", "2001:db8:abcd:12::100"),
    ("R15", "2001:db8:abcd:0012::0/64", "2001:db8:abcd:12::50", "2001:db8:abcd:12::100",
        "2001:db8:abcd:12::50", "2001:db8:abcd:12::100"),
    ("R18", "2001:db8:abcd:0012::0/64", "2001:db8:abcd:12::100", "2001:db8:abcd:12::100",
        "2001:db8:abcd:12::100", "2001:db8:abcd:12::100"),
    ("R19", "2001:db8:480:603d::/64", "2001:db8:480:603d:304:403::", "2001:db8:480:603d:304:403:0:4",
        "2001:db8:480:603d:304:403::", "2001:db8:480:603d:304:403:0:4"),
    ("A15, D06: the start may be the network address", "10.0.0.0/29", "10.0.0.0", "", "10.0.0.1", "10.0.0.6"),
    ("A18, D06: the end may be the broadcast address", "10.0.0.0/29", "10.0.0.3", "10.0.0.7", "10.0.0.3", "10.0.0.6"),
    ("the first and last address of IPv6 too", "fd00::/125", "fd00::", "fd00::7", "fd00::1", "fd00::6"),
];

#[test]
fn effective_ranges() {
    play(EFFECTIVE_RANGES.into_iter().map(|(row, cidr, start, end, first, last)| {
        let mut ipam = json!({"range": cidr});
        for (key, bound) in [("range_start", start), ("range_end", end)] {
            if !bound.is_empty() {
                ipam[key] = json!(bound);
            }
        }
        let (_, bits) = cidr.split_once('/').expect("a CIDR has a slash");
        let mut steps = vec![
            add("first", &format!("{first}/{bits}")),
            ask(&beside(first, -1), "error 101"),
            ask(&beside(last, 1), "error 101"),
        ];
        if first != last {
            steps.push(ask(last, &format!("{last}/{bits}")));
        }
        case(row, ipam, steps)
    }));
}

fn beside(address: &str, offset: i128) -> String {
    match address.parse().expect("an address") {
        IpAddr::V4(ip) => {
            let ip = i128::from(u32::from(ip)) + offset;
            IpAddr::from(u32::try_from(ip).expect("it stays in IPv4").to_be_bytes())
        }
        IpAddr::V6(ip) => IpAddr::from(u128::from(ip).wrapping_add_signed(offset).to_be_bytes()),
    }
    .to_string()
}

#[test]
fn effective_ranges_on_purpose_different() {
    let bounds =
        |range: &str, start: &str, end: &str| json!({"range": range, "range_start": start, "range_end": end});
    let p = |tail: &str| format!("2001:db8:abcd:12{tail}");
    play([
        case(
            "R08",
            bounds("192.168.2.200/24", "192.168.1.150", "192.168.3.100"),
            [add("a", "error 7 range_start 192.168.1.150")],
        ),
        case(
            "R09",
            bounds("192.168.2.200/24", "192.168.2.100", "192.168.2.50"),
            [add("a", "error 7 range_end 192.168.2.50")],
        ),
        case(
            "R16",
            bounds(&p("::0/64"), "2000:db8:abcd:12::50", "2003:db8:abcd:12::100"),
            [add("a", "error 7 range_start 2000:db8:abcd:12::50")],
        ),
        case("R17", bounds(&p("::0/64"), &p("::100"), &p("::50")), [add("a", "error 7 range_end")]),
        case(
            "R20",
            json!({"range": "192.168.21.100/31"}),
            [
                add("a", "192.168.21.100/31"),
                add("b", "192.168.21.101/31"),
                add("c", "error 100"),
                del("a"),
                add("d", "192.168.21.100/31"),
            ],
        ),
        case("R21", json!({"range": "192.168.0.0/32"}), [add("a", "192.168.0.0/32"), add("b", "error 100")]),
        case(
            "R22",
            json!({"range": "2000::/127"}),
            [add("a", "2000::/127"), add("b", "2000::1/127"), add("c", "error 100")],
        ),
        case("R23", json!({"range": "2000::/128"}), [add("a", "2000::/128"), add("b", "error 100")]),
    ]);
}

#[test]
fn add_and_del() {
    let one_after_another = (0..12).flat_map(|i| {
        let (pod, address) = (format!("pod-{i}"), format!("192.168.1.{}/24", 11 + i));
        [add(&pod, &address), del(&pod), add(&pod, &address)]
    });
    play([
        case(
            "C01",
            json!({"range": "192.168.1.0/24"}),
            [add("old", "192.168.1.1/24").pod("p", "u1"), add("new", "192.168.1.1/24").pod("p", "u1")],
        ),
        case(
            "C01, the same container",
            json!({"range": "192.168.1.0/24"}),
            [add("a", "192.168.1.1/24"), add("a", "192.168.1.1/24")],
        ),
        case(
            "C02",
            json!({"range": "192.168.1.0/24", "gateway": "192.168.10.1"}),
            [add("a", "192.168.1.1/24"), del("a"), add("a", "192.168.1.1/24")],
        ),
        case("C04", json!({"range": "192.168.1.11-192.168.1.23/24"}), one_after_another),
        case("C05", json!({"range": "fd::1/116", "gateway": "fd::f:1"}), [add("a", "fd::1/116")]),
        case(
            "C07: the gateway is not handed out",
            json!({
                "range": "2001:db8:5422:0005::-2001:db8:5422:0005:7fff:ffff:ffff:ffff/64",
                "gateway": "2001:db8:5422:5::1",
            }),
            [add("a", "2001:db8:5422:5::2/64"), ask("2001:db8:5422:5::1", "error 101 gateway")],
        ),
        case(
            "C08",
            json!({"range": "fd00:0:0:10:0:0:3:1-fd00:0:0:10:0:0:3:6/64"}),
            [add("a", "fd00:0:0:10:0:0:3:1/64"), ask("fd00:0:0:10:0:0:3:7", "error 101")],
        ),
        case(
            "C10",
            json!({"range": "2001::1/116", "exclude": ["2001::0/128", "2001::1/128", "2001::2/128"]}),
            [add("a", "2001::3/116"), ask("2001::2", "error 101")],
        ),
        case(
            "C11",
            json!({"range": "caa5::0/112", "exclude": ["caa5::0/113"]}),
            [add("a", "caa5::8000/112")],
        ),
        case("C13", json!({"ipRanges": [{"range": "192.168.10.1/24"}]}), [add("a", "192.168.10.1/24")]),
        case(
            "C14",
            json!({"ipRanges": [{"range": "192.168.10.1/24"}, {"range": "abcd::1/64"}]}),
            [add("a", "192.168.10.1/24 abcd::1/64")],
        ),
        case("C16", json!({"range": "192.168.1.5-192.168.1.25/24"}), [add("a", "192.168.1.5/24")]),
        case(
            "C17",
            json!({"range": "192.168.1.0/24", "range_start": "192.168.1.5"}),
            [add("a", "192.168.1.5/24")],
        ),
        cases_of(
            "C19",
            [json!({"range": "192.168.22.0/24"}), json!({"range": "192.168.22.0/28"})],
            [add("a", "192.168.22.1/24"), add("b", "192.168.22.2/28").with(1)],
        ),
        cases_of(
            "C20",
            [
                json!({"range": "2001::2:3:0/124", "enable_overlapping_ranges": true}),
                json!({"range": "2001::2:3:0/126", "enable_overlapping_ranges": true}),
            ],
            [add("a", "2001::2:3:1/124"), add("b", "2001::2:3:2/126").with(1)],
        ),
    ]);
}

#[test]
fn configurations() {
    let zeros = |more: Value| {
        let mut ipam = json!({"range": "00192.00168.1.0/24"});
        ipam.as_object_mut().expect("an object").append(&mut more.as_object().expect("an object").clone());
        ipam
    };
    let leader = json!({
        "range": "192.168.1.5-192.168.1.25/24",
        "gateway": "192.168.10.1",
        "leader_lease_duration": 1500,
        "leader_renew_deadline": 1000,
        "leader_retry_period": 500,
        "kubernetes": {"kubeconfig": "/etc/cni/net.d/whereabouts.d/whereabouts.kubeconfig"},
        "sleep_for_race": 3600,
        "node_slice_size": "/28",
    });
    let overlap = |range: &str, on: bool| json!({"range": range, "enable_overlapping_ranges": on});
    play([
        case(
            "F01",
            leader,
            [
                add("a", "192.168.1.5/24"),
                ask("192.168.1.25", "192.168.1.25/24"),
                ask("192.168.1.26", "error 101"),
                ask("192.168.1.4", "error 101"),
                ask("192.168.2.5", "error 7 192.168.2.5"),
            ],
        ),
        cases_of(
            "F04",
            [overlap("10.0.0.0/24", true), overlap("10.0.0.0/25", true)],
            [add("a", "10.0.0.1/24"), add("b", "10.0.0.2/25").with(1)],
        ),
        cases_of(
            "F05",
            [overlap("10.0.0.0/24", false), overlap("10.0.0.0/25", false)],
            [
                add("a", "10.0.0.1/24"),
                add("b", "10.0.0.1/25").with(1),
                add("c", "10.0.0.2/24"),
                del("b").with(1),
                add("d", "10.0.0.1/25").with(1),
            ],
        ),
        case("F07", json!({"type": "static", "range": "10.0.0.0/24"}), [add("a", "error 7 static")]),
        case("F10", zeros(json!({})), [add("a", "192.168.1.1/24")]),
        case("F11", zeros(json!({"range_start": "00192.00168.1.44"})), [add("a", "192.168.1.44/24")]),
        case(
            "F12",
            zeros(json!({"range_start": "00192.00168.1.44", "range_end": "00192.00168.01.209"})),
            [ask("192.168.1.209", "192.168.1.209/24"), ask("192.168.1.210", "error 101")],
        ),
        case(
            "F13",
            json!({"range": "10.0.0.0/24", "reconciler_cron_expression": "30 4 * * *"}),
            [add("a", "10.0.0.1/24")],
        ),
        case("F14", json!({"range": "192.168.1.5-192.168.2.25/28"}), [add("a", "error 7 range 192.168.1.5")]),
    ]);
}

#[test]
fn corners() {
    let r = |range: &str| json!({"range": range});
    let bounds = |range: &str, key: &str, bound: &str| json!({"range": range, key: bound});
    let off = json!({
        "range": "caa5::/64", "range_start": "caa5:0:0:0:caa5::", "enable_overlapping_ranges": false,
    });
    let all_of = |count: u8| (1..=count).map(|i| format!("10.0.0.{i}/16")).collect::<Vec<_>>();
    let many = json!({"ipRanges": vec![r("10.0.0.0/16"); 30]});
    let d11 = all_of(120);
    let d11 = d11.chunks(30).enumerate().map(|(i, thirty)| add(&format!("many-{i}"), &thirty.join(" ")));
    play([
        case(
            "D01",
            r("10.0.0.0/30"),
            [add("a", "10.0.0.1/30"), add("b", "10.0.0.2/30"), add("c", "error 100 default 10.0.0.0/30 2")],
        ),
        case(
            "D02: the gateway is not handed out",
            bounds("10.0.0.0/24", "gateway", "10.0.0.1"),
            [add("a", "10.0.0.2/24"), ask("10.0.0.1", "error 101 gateway")],
        ),
        case(
            "D02, a route's gateway",
            json!({"range": "10.0.0.0/24", "routes": [{"dst": "10.9.0.0/16", "gw": "10.0.0.1"}]}),
            [add("a", "10.0.0.2/24"), ask("10.0.0.1", "error 101 gateway")],
        ),
        case("D04: refused", r("10.0.0.9-10.0.0.5/24"), [add("a", "error 7 range")]),
        case(
            "D05: trimmed",
            r("10.0.0.3 - 10.0.0.5/24"),
            [add("a", "10.0.0.3/24"), ask("10.0.0.5", "10.0.0.5/24"), ask("10.0.0.6", "error 101")],
        ),
        case(
            "D07: refused",
            bounds("10.0.0.0/24", "range_start", "10.0.1.5"),
            [add("a", "error 7 range_start 10.0.1.5")],
        ),
        case(
            "D08: refused",
            json!({"ipRanges": [{"range": "10.0.0.0/24"}], "exclude": ["10.0.0.0/28"]}),
            [add("a", "error 7 exclude")],
        ),
        case(
            "D09, start",
            bounds("10.0.0.0/24", "range_start", "ten"),
            [add("a", "error 7 range_start ten")],
        ),
        case(
            "D09, end",
            bounds("10.0.0.0/24", "range_end", "10.0.0"),
            [add("a", "error 7 range_end 10.0.0")],
        ),
        case("D09, range", r("10.0.0.0"), [add("a", "error 7 range 10.0.0.0")]),
        case("D09, gateway", bounds("10.0.0.0/24", "gateway", "gate"), [add("a", "error 7 gateway gate")]),
        case(
            "D10: two addresses",
            off,
            [
                add("a", "caa5::caa5:0:0:0/64"),
                add("b", "caa5::caa5:0:0:1/64"),
                add("c", "caa5::caa5:0:0:2/64"),
            ],
        ),
        cases_of(
            "D11: a small range in a busy large one",
            [many, r("10.0.0.0/24")],
            d11.chain([add("small", "10.0.0.121/24").with(1)]),
        ),
        case("D13", r("10.0.0.0/24"), [add("a", "10.0.0.1/24"), del("a")]),
        case("D14", r("10.0.0.0/24"), [del("nobody"), del("nobody")]),
        case(
            "D20",
            r("10.0.0.0/24"),
            [
                add("old", "10.0.0.1/24").pod("p", "u1"),
                add("new", "10.0.0.1/24").pod("p", "u1"),
                del("old").pod("p", "u1"),
                add("other", "10.0.0.2/24"),
                add("new", "10.0.0.1/24").pod("p", "u1"),
            ],
        ),
        case("D21: refused", json!({}), [add("a", "error 7"), del("a")]),
        cases_of(
            "D22: limits set later do not move a pod",
            [
                r("10.0.0.0/24"),
                json!({"range": "10.0.0.0/24", "exclude": ["10.0.0.0/28"]}),
                bounds("10.0.0.0/24", "range_start", "10.0.0.99"),
            ],
            [
                add("a", "10.0.0.1/24"),
                add("a", "10.0.0.1/24").with(1),
                add("b", "10.0.0.16/24").with(1),
                add("a", "10.0.0.1/24").with(2),
                add("b", "10.0.0.16/24").with(2),
                del("a").with(1),
                add("c", "10.0.0.1/24"),
            ],
        ),
    ]);
}

/// D19: a DEL of both families frees the second although the first is gone already.
#[test]
fn del_of_dual_stack_with_one_reservation_missing() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    let config = network(json!({"ipRanges": [{"range": "10.0.0.0/24"}, {"range": "fd00::/64"}]}));
    assert_eq!(node.add("a").config(&config).run().addresses(), ["10.0.0.1/24", "fd00::1/64"], "D19");
    cluster.store().delete("v1/net/default/ip/00000000000000000000ffff0a000001");
    node.del("a").config(&config).run().silent();
    cluster.assert_nothing_held();
    // Another record might list the address that nobody had reserved. An audit sees that none does, and clears its bit.
    assert!(node.cli(["check", "--repair"]).succeeded());
    cluster.assert_clean();
}

#[test]
fn pods() {
    let r = |range: &str| json!({"range": range});
    let named = |range: &str, name: &str| json!({"range": range, "network_name": name});
    let sets = json!({"ipRanges": [{"range": "11.11.0.0/16"}, {"range": "abcd::0/64"}]});
    let mut three = sets.clone();
    three["range"] = json!("10.10.0.0/16");
    let off = |range: &str| json!({"range": range, "enable_overlapping_ranges": false});
    play([
        case(
            "E02",
            r("10.10.0.0/16"),
            [
                add("a", "10.10.0.1/16").ifname("net1").pod("p", "u1"),
                add("a", "10.10.0.2/16").ifname("net2").pod("p", "u1"),
                add("a", "10.10.0.3/16").ifname("net3").pod("p", "u1"),
                del("a").ifname("net2").pod("p", "u1"),
                add("b", "10.10.0.2/16"),
            ],
        ),
        case("E03", sets, [add("a", "11.11.0.1/16 abcd::1/64")]),
        case("E03, range first", three, [add("a", "10.10.0.1/16 11.11.0.1/16 abcd::1/64")]),
        case(
            "E06",
            r("10.10.0.0/30"),
            [
                add("a", "10.10.0.1/30"),
                add("b", "10.10.0.2/30"),
                add("c", "error 100"),
                add("c", "error 100"),
            ],
        ),
        case(
            "E07",
            r("10.10.0.0/30"),
            [
                add("a", "10.10.0.1/30").pod("web-0", "u1"),
                add("b", "10.10.0.2/30").pod("web-1", "u2"),
                del("a").pod("web-0", "u1"),
                add("c", "10.10.0.1/30").pod("web-0", "u3"),
            ],
        ),
        case(
            "E08: the same pod reclaims both",
            r("10.10.0.0/16"),
            [
                add("old", "10.10.0.1/16").ifname("net1").pod("web-0", "u1"),
                add("old", "10.10.0.2/16").ifname("net2").pod("web-0", "u1"),
                add("new", "10.10.0.1/16").ifname("net1").pod("web-0", "u1"),
                add("new", "10.10.0.2/16").ifname("net2").pod("web-0", "u1"),
            ],
        ),
        case(
            "E08: another pod of that name does not",
            r("10.10.0.0/16"),
            [add("old", "10.10.0.1/16").pod("web-0", "u1"), add("new", "10.10.0.2/16").pod("web-0", "u2")],
        ),
        cases_of(
            "E09, on",
            [r("10.10.0.0/16"), r("10.10.0.0/17")],
            [add("a", "10.10.0.1/16"), add("b", "10.10.0.2/17").with(1)],
        ),
        cases_of(
            "E09, off",
            [off("10.10.0.0/16"), off("10.10.0.0/17")],
            [add("a", "10.10.0.1/16"), add("b", "10.10.0.1/17").with(1)],
        ),
        cases_of(
            "E09, off, the same range in two configurations",
            [
                off("10.10.0.0/16"),
                json!({"range": "10.10.0.7/16", "exclude": ["10.10.0.2"], "enable_overlapping_ranges": false}),
            ],
            [add("a", "10.10.0.1/16"), add("b", "10.10.0.3/16").with(1), add("c", "10.10.0.2/16")],
        ),
        cases_of(
            "E10, unnamed and named",
            [r("10.10.0.0/16"), named("10.10.0.0/16", "named-range")],
            [add("a", "10.10.0.1/16"), add("b", "10.10.0.1/16").with(1), add("c", "10.10.0.2/16")],
        ),
        cases_of(
            "E10, in one name",
            [named("10.10.0.0/16", "n"), named("10.10.0.0/17", "n")],
            [add("a", "10.10.0.1/16"), add("b", "10.10.0.2/17").with(1)],
        ),
    ]);
}

/// E01: a held address is recorded with its pod and interface, and gone after the DEL.
#[test]
fn recorded_with_pod_and_interface() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    let config = network(json!({"range": "10.10.0.0/16"}));
    node.add("c1").ifname("net1").pod("ns", "web-0", "uid-1").config(&config).run().ok();
    let list = node.list();
    assert_eq!(list.len(), 1, "E01: {list:?}");
    assert_eq!(list[0]["address"], "10.10.0.1", "E01");
    assert_eq!(list[0]["ifname"], "net1", "E01");
    assert_eq!(list[0]["pod"], json!({"namespace": "ns", "name": "web-0", "uid": "uid-1"}), "E01");
    cluster.assert_clean();
    node.del("c1").ifname("net1").pod("ns", "web-0", "uid-1").config(&config).run().silent();
    assert!(node.list().is_empty(), "E01");
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

#[test]
fn several_ranges() {
    let r = |range: &str| json!({"range": range});
    let ranges = |count: usize| json!({"ipRanges": vec![r("10.0.0.0/24"); count]});
    let dual = |first: &str, second: &str| json!({"ipRanges": [r(first), r(second)]});
    let thirty: Vec<String> = (1..=30).map(|i| format!("10.0.0.{i}/24")).collect();
    play([
        case(
            "#722: the same range twice",
            ranges(2),
            [
                add("a", "10.0.0.1/24 10.0.0.2/24"),
                add("a", "10.0.0.1/24 10.0.0.2/24"),
                add("b", "10.0.0.3/24 10.0.0.4/24"),
            ],
        ),
        case(
            "#722: overlapping ranges",
            dual("10.0.0.0/24", "10.0.0.0/28"),
            [add("a", "10.0.0.1/24 10.0.0.2/28")],
        ),
        case("30 ranges", ranges(30), [add("a", &thirty.join(" ")), del("a")]),
        case("31 ranges", ranges(31), [add("a", "error 7 30")]),
        case(
            "30 ranges and range",
            {
                let mut ipam = ranges(30);
                ipam["range"] = json!("10.0.0.0/24");
                ipam
            },
            [add("a", "error 7 30")],
        ),
        case(
            "an entry's own limits",
            json!({"ipRanges": [
                {"range": "10.0.0.0/24", "range_start": "10.0.0.9", "range_end": "10.0.0.10"},
                {"range": "fd00::/64", "exclude": ["fd00::/127"]},
            ]}),
            [
                add("a", "10.0.0.9/24 fd00::2/64"),
                add("b", "10.0.0.10/24 fd00::3/64"),
                add("c", "error 100 10.0.0.0/24"),
            ],
        ),
        case(
            "an entry without a range",
            json!({"ipRanges": [{"range_start": "10.0.0.9"}]}),
            [add("a", "error 7 ipRanges range")],
        ),
        case(
            "A-B inside an entry",
            json!({"ipRanges": [r("10.0.0.5-10.0.0.6/24")]}),
            [add("a", "10.0.0.5/24"), add("b", "10.0.0.6/24"), add("c", "error 100")],
        ),
        case(
            "a request for each family",
            dual("10.0.0.0/24", "fd00::/64"),
            [ask("10.0.0.9,fd00::9", "10.0.0.9/24 fd00::9/64"), ask("fd00::8", "10.0.0.1/24 fd00::8/64")],
        ),
        case("v4-mapped IPv6", r("::ffff:10.0.0.0/120"), [add("a", "error 7 range")]),
    ]);
}

/// All or nothing, whichever of the two ranges is full.
#[test]
fn dual_stack_is_all_or_nothing() {
    let rows = [
        ("the second is full", "fd00::/64", "10.0.0.0/30"),
        ("the first is full", "10.0.0.0/30", "fd00::/64"),
    ];
    for (row, first, second) in rows {
        let cluster = Cluster::new();
        let node = cluster.node("a");
        for container in ["a", "b"] {
            node.add(container).config(&network(json!({"range": "10.0.0.0/30"}))).run().ok();
        }
        let config = network(json!({"ipRanges": [{"range": first}, {"range": second}]}));
        node.add("c").config(&config).run().error(100);
        let held = node.list();
        assert!(held.iter().all(|row| row["container_id"] != "c"), "{row}: {held:?}");
        assert_eq!(held.len(), 2, "{row}: {held:?}");
        let owners = cluster.store().keys("v1/owner/");
        assert_eq!(owners, ["v1/owner/test/a/a/eth0", "v1/owner/test/a/b/eth0"], "{row}");
        assert!(cluster.store().keys("v1/ticket/").is_empty(), "{row}: a place is left");
        cluster.assert_clean();
    }
}

/// The gateway is told only with addresses of its family; routes and dns pass through.
#[test]
fn results() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    let ipam = json!({
        "ipRanges": [{"range": "10.0.0.0/24"}, {"range": "fd00::/64"}],
        "gateway": "10.0.0.254",
        "routes": [{"dst": "0.0.0.0/0"}, {"dst": "10.9.0.0/16", "gw": "10.0.0.253"}],
        "dns": {"nameservers": ["10.0.0.53"], "search": ["example.com"]},
    });
    let result = node.add("a").config(&network(ipam)).run().ok();
    let expected = json!({
        "cniVersion": "1.0.0",
        "ips": [{"address": "10.0.0.1/24", "gateway": "10.0.0.254"}, {"address": "fd00::1/64"}],
        "routes": [{"dst": "0.0.0.0/0"}, {"dst": "10.9.0.0/16", "gw": "10.0.0.253"}],
        "dns": {"nameservers": ["10.0.0.53"], "search": ["example.com"]},
    });
    assert_eq!(result, expected);
    let c02 = json!({"range": "192.168.1.0/24", "gateway": "192.168.10.1"});
    let result = node.add("b").config(&network(c02)).run().ok();
    assert_eq!(result["ips"], json!([{"address": "192.168.1.1/24", "gateway": "192.168.10.1"}]), "C02");
    cluster.assert_clean();
}

#[test]
fn two_forms_together() {
    let base = json!({"range": "10.0.0.0/24"});
    let rows = [
        ("#601: rangeStart", json!({"range": "10.0.0.0/24", "rangeStart": "10.0.0.5"}), "range rangeStart"),
        ("rangeEnd", json!({"range": "10.0.0.0/24", "rangeEnd": "10.0.0.5"}), "range rangeEnd"),
        ("subnet", json!({"range": "10.0.0.0/24", "subnet": "10.0.0.0/24"}), "range subnet"),
        ("ranges", json!({"range": "10.0.0.0/24", "ranges": [[{"subnet": "10.1.0.0/24"}]]}), "range ranges"),
        (
            "range_start with subnet",
            json!({"subnet": "10.0.0.0/24", "range_start": "10.0.0.5"}),
            "subnet range_start",
        ),
        ("exclude with subnet", json!({"subnet": "10.0.0.0/24", "exclude": ["10.0.0.5"]}), "subnet exclude"),
        ("resolvConf", json!({"range": "10.0.0.0/24", "resolvConf": "/etc/resolv.conf"}), "range resolvConf"),
        (
            "inside ipRanges",
            json!({"ipRanges": [{"range": "10.0.0.0/24", "rangeStart": "10.0.0.5"}]}),
            "ipRanges rangeStart",
        ),
    ];
    play(rows.into_iter().map(|(row, ipam, keys)| {
        // A DEL works, even if the configuration has been spoilt.
        cases_of(
            row,
            [ipam, base.clone()],
            [
                add("a", &format!("error 7 {keys}")),
                add("b", "10.0.0.1/24").with(1),
                del("b"),
                add("c", "10.0.0.1/24").with(1),
            ],
        )
    }));
}

/// #59: they are accepted, and named in the log.
#[test]
fn keys_without_effect_are_named_in_the_log() {
    let cluster = Cluster::new();
    let log = cluster.folder().join("log");
    let node = cluster.node_with("a", json!({"log_file": log}));
    let ipam = json!({
        "ipRanges": [{"range": "10.0.0.0/24", "enable_l3": true}],
        "exclude_gateway": true,
        "log_flie": "x",
        "routes": [{"dst": "10.9.0.0/16", "via": "10.0.0.1"}],
        "dns": {"nameserver": ["10.0.0.1"]},
        "kubernetes": {"kubeconfig": "/x"},
        "leader_lease_duration": 1500,
        "node_slice_size": "/24",
        "configuration_path": "/nowhere",
        "log_file": "/proc/nowhere",
    });
    assert_eq!(node.add("a").config(&network(ipam)).run().addresses(), ["10.0.0.1/24"]);
    let log = fs::read_to_string(log).expect("there is a log");
    let rows = [
        ("ipRanges[0].enable_l3", "unknown"),
        ("exclude_gateway", "unknown"),
        ("log_flie", "`log_file`?"),
        ("routes[0].via", "unknown"),
        ("dns.nameserver", "nameservers"),
        ("kubernetes", "kubernetes"),
        ("leader_lease_duration", "leader_lease_duration"),
        ("node_slice_size", "node_slice_size"),
        ("configuration_path", "configuration_path"),
        ("ipam.log_file", "no effect"),
    ];
    let named = |key: &str, nearest: &str| {
        let lines: Vec<&str> = log.lines().filter(|line| line.contains(key)).collect();
        lines.len() == 1 && lines[0].contains(nearest)
    };
    let failures: Vec<&str> =
        rows.iter().filter(|(key, nearest)| !named(key, nearest)).map(|(key, _)| *key).collect();
    assert!(failures.is_empty(), "not named exactly once, with the nearest key: {failures:?} in\n{log}");
    cluster.assert_clean();
}

/// An ordered list of single addresses inside of a range: others are never given, by no order.
#[test]
fn picked_addresses() {
    let picked =
        |list: Value| json!({"range": "10.0.0.0/24", "exclude": ["10.0.0.8"], "pick_addresses": list});
    let three = || picked(json!(["10.0.0.9", "10.0.0.8", "10.0.0.5", "10.0.0.7"]));
    let mut next = three();
    next["order"] = json!("next");
    play([
        case(
            "in their order, without what is excluded",
            three(),
            [
                add("a", "10.0.0.9/24"),
                add("b", "10.0.0.5/24"),
                add("c", "10.0.0.7/24"),
                add("d", "error 100 size 3, held 3"),
                del("b"),
                ask("10.0.0.6", "error 101 10.0.0.6"),
                ask("10.0.0.8", "error 101 10.0.0.8"),
                add("d", "10.0.0.5/24"),
                del("a"),
                ask("10.0.0.9", "10.0.0.9/24"),
            ],
        ),
        case(
            "after the last one",
            next,
            [
                add("a", "10.0.0.9/24"),
                del("a"),
                add("b", "10.0.0.5/24"),
                del("b"),
                add("c", "10.0.0.7/24"),
                del("c"),
                add("d", "10.0.0.9/24"),
            ],
        ),
        cases_of(
            "once in a network, whoever lists it",
            [json!({"range": "10.0.0.0/24"}), picked(json!(["10.0.0.1", "10.0.0.2"]))],
            [add("a", "10.0.0.1/24"), add("b", "10.0.0.2/24").with(1), add("c", "10.0.0.3/24")],
        ),
        case(
            "of each range its own",
            json!({
                "range": "10.0.0.0/24", "pick_addresses": ["10.0.0.7"],
                "ipRanges": [{"range": "fd00::/64", "pick_addresses": ["fd00::9", "fd00::3"]}],
            }),
            [add("a", "10.0.0.7/24 fd00::9/64"), add("b", "error 100")],
        ),
        case(
            "outside of the range",
            picked(json!(["10.0.1.5"])),
            [add("a", "error 7 pick_addresses 10.0.1.5")],
        ),
        case("none", picked(json!([])), [add("a", "error 7 pick_addresses")]),
        case("all excluded", picked(json!(["10.0.0.8"])), [add("a", "error 7 left")]),
    ]);
}

#[test]
fn static_addresses() {
    let fixed = |address: &str| json!({"addresses": [{"address": address}]});
    let mut named = fixed("192.0.2.5/24");
    named["network_name"] = json!("n");
    let with_range = |address: &str| json!({"range": "10.0.0.0/24", "addresses": [{"address": address}]});
    let gateway =
        json!({"range": "10.0.0.0/24", "addresses": [{"address": "192.0.2.5/24", "gateway": "10.0.0.1"}]});
    play([
        case(
            "only recorded: given again",
            fixed("192.0.2.5/24"),
            [
                add("a", "192.0.2.5/24"),
                add("a", "192.0.2.5/24"),
                add("b", "192.0.2.5/24"),
                del("a"),
                del("b"),
            ],
        ),
        case(
            "reserved where a network is named",
            named.clone(),
            [
                add("a", "192.0.2.5/24"),
                add("a", "192.0.2.5/24"),
                add("b", "error 101 192.0.2.5"),
                del("a"),
                add("b", "192.0.2.5/24"),
            ],
        ),
        case(
            "reserved inside a range",
            with_range("10.0.0.1/24"),
            [
                add("a", "10.0.0.2/24 10.0.0.1/24"),
                add("b", "error 101 10.0.0.1"),
                del("a"),
                add("b", "10.0.0.2/24 10.0.0.1/24"),
            ],
        ),
        case(
            "outside a range: given again",
            with_range("192.0.2.5/24"),
            [add("a", "10.0.0.1/24 192.0.2.5/24"), add("b", "10.0.0.2/24 192.0.2.5/24")],
        ),
        case("a gateway of theirs is not handed out", gateway, [add("a", "10.0.0.2/24 192.0.2.5/24")]),
        cases_of(
            "a pod does not get another's static address",
            [json!({"range": "10.0.0.0/24"}), with_range("10.0.0.1/24")],
            [add("a", "10.0.0.1/24"), add("b", "error 101 10.0.0.1").with(1)],
        ),
        case("no address at all", json!({"addresses": []}), [add("a", "error 7"), del("a")]),
        case(
            "asked for by CNI_ARGS",
            json!({}),
            [add("a", "192.0.2.9/24").args("IP=192.0.2.9/24"), del("a")],
        ),
        case("asked for without a prefix", json!({}), [add("a", "error 4 192.0.2.9").args("IP=192.0.2.9")]),
        case("not an address", fixed("192.0.2.300/24"), [add("a", "error 7 addresses 192.0.2.300/24")]),
        case("without a prefix", fixed("192.0.2.5"), [add("a", "error 7 addresses 192.0.2.5")]),
    ]);
}

/// A static address is listed with its owner, in no network if it is only recorded.
#[test]
fn static_addresses_are_listed() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    let ipam = json!({"addresses": [{"address": "192.0.2.5/24"}]});
    node.add("c1").config(&network(ipam.clone())).run().ok();
    let list = node.list();
    assert_eq!(list.len(), 1, "{list:?}");
    assert_eq!((&list[0]["address"], &list[0]["network"]), (&json!("192.0.2.5"), &Value::Null));
    assert_eq!(list[0]["container_id"], "c1");
    node.del("c1").config(&network(ipam)).run().silent();
    assert!(node.list().is_empty());
    cluster.assert_nothing_held();
    cluster.assert_clean();
}
