//! The view of ranges in monitoring: a scrape of a real viewer, judged by Prometheus' own tool.

use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use support::{Etcd, Metrics, Node, Outcome, Run, World, network, serve_through, tool};

/// Orphans stay.
const GRACE: [&str; 4] = ["--grace", "1h", "--finished-grace", "1h"];

const ALERT_TESTS: [&str; 2] =
    [include_str!("monitoring/alerts.test.yaml"), include_str!("monitoring/alerts_of_days.test.yaml")];

fn promtool(arguments: &[&str], stdin: &str) -> Outcome {
    Run::new(tool("promtool")).arguments(arguments).stdin(stdin).run()
}

/// Prometheus' parser takes it, and its linter finds nothing.
#[track_caller]
fn assert_sound(scrape: &str) {
    let checked = promtool(&["check", "metrics"], scrape);
    assert!(checked.succeeded() && format!("{}{}", checked.stdout, checked.stderr).is_empty(), "{checked}");
}

fn apply(node: &Node, pool: &str) {
    let applied = node.pool(&["apply", "--yes", "-f", "-"], pool);
    assert!(applied.stdout.contains(": applied\n"), "{applied}");
}

/// Ranges of every kind, with addresses in every state.
fn filled() -> World {
    let world = World::new();
    world.living("alive");
    world.orphan("gone");
    let node = &world.node;
    let ranges = "[{range: 10.71.0.0/29}, {range: 10.72.0.0/30}]";
    let pool = format!("pool: storage\nnetwork: storage\ncooldown: 1h\nranges: {ranges}\n");
    apply(node, &pool);
    let config = network(json!({"pool": "storage"}));
    assert_eq!(node.add("c1").config(&config).run().address(), "10.71.0.1");
    node.add("c2").config(&config).run().address();
    node.del("c2").config(&config).run().silent();
    node.add("c3").config(&config).args("IP=10.72.0.1").run().address();
    apply(node, &pool.replace("10.72.0.0/30", "10.72.0.0/30, state: draining"));
    apply(node, "pool: tiny\nnetwork: tiny\nranges: [{range: 10.73.0.0/30}]\n");
    for hold in [&["10.73.0.1", "10.73.0.2"][..], &["10.99.0.1"]] {
        let held = node.cli([&["hold", "--note", "a test", "--network", "tiny"], hold].concat());
        assert!(held.succeeded(), "{held}");
    }
    let wide = network(json!({"range": "fd00:70::/64", "network_name": "six"}));
    node.add("c4").config(&wide).run().address();
    world
}

/// A pass, and the scrape of a viewer after it.
fn scrape(world: &World) -> String {
    let passed = world.cluster.reconciler(&world.api).args(GRACE).run();
    assert!(passed.succeeded(), "{passed}");
    world.shown()
}

#[test]
fn a_scrape_tells_of_each_range_how_full_it_is() {
    let world = filled();
    let body = scrape(&world);
    assert_sound(&body);
    let metrics = Metrics::parse(&body);
    let expect = |labels: &str, states: &[(&str, f64)]| {
        for (state, count) in states {
            assert_eq!(
                metrics.value(&format!("metes_addresses{{{labels},state=\"{state}\"}}")),
                *count,
                "{body}"
            );
        }
        assert_eq!(body.matches(&format!("{{{labels},state=")).count(), states.len(), "{body}");
    };
    expect(
        "network=\"default\",family=\"ipv4\",range=\"10.70.0.0/24\"",
        &[
            ("size", 254.0),
            ("held", 2.0),
            ("cooling", 0.0),
            ("free", 252.0),
            ("aside", 0.0),
            ("unused", 0.0),
            ("orphaned", 1.0),
        ],
    );
    expect(
        "network=\"storage\",pool=\"storage\",family=\"ipv4\",range=\"10.71.0.0/29\"",
        &[
            ("size", 6.0),
            ("held", 1.0),
            ("cooling", 1.0),
            ("free", 4.0),
            ("aside", 0.0),
            ("unused", 0.0),
            ("orphaned", 0.0),
        ],
    );
    expect(
        "network=\"storage\",pool=\"storage\",family=\"ipv4\",range=\"10.72.0.0/30\"",
        &[("draining", 1.0), ("aside", 0.0), ("unused", 0.0), ("orphaned", 0.0)],
    );
    expect(
        "network=\"tiny\",pool=\"tiny\",family=\"ipv4\",range=\"10.73.0.0/30\"",
        &[
            ("size", 2.0),
            ("held", 2.0),
            ("cooling", 0.0),
            ("free", 0.0),
            ("aside", 2.0),
            ("unused", 0.0),
            ("orphaned", 0.0),
        ],
    );
    expect("network=\"tiny\"", &[("outside", 1.0), ("aside", 1.0), ("unused", 0.0), ("orphaned", 0.0)]);
    let of_64 = (1_u128 << 64) as f64;
    expect(
        "network=\"six\",family=\"ipv6\",range=\"fd00:70::/64\"",
        &[
            ("size", of_64),
            ("held", 1.0),
            ("cooling", 0.0),
            ("free", of_64),
            ("aside", 0.0),
            ("unused", 0.0),
            ("orphaned", 0.0),
        ],
    );
    metrics.assert(&[("metes_ranges_omitted", 0.0)]);
    world.cluster.assert_clean();
}

/// Nobody but a person ends such a hold, so no pass remembers it as an orphan.
#[test]
fn a_hold_without_an_end_counts_as_unused_from_its_last_use() {
    let world = World::new();
    let config =
        network(json!({"range": "10.75.0.0/29", "network_name": "kept", "sticky": "pod", "keep": "forever"}));
    world.node.add("c1").pod("ns", "db-0", "u1").config(&config).run().address();
    let unused = |expected: f64| {
        let name =
            "metes_addresses{network=\"kept\",family=\"ipv4\",range=\"10.75.0.0/29\",state=\"unused\"}";
        world.viewed().assert(&[(name, expected)]);
    };
    unused(0.0);
    world.node.del("c1").pod("ns", "db-0", "u1").config(&config).run().silent();
    unused(1.0);
    world.cluster.assert_clean();
}

#[test]
fn metrics_say_when_the_certificates_for_etcd_end() {
    let etcd = Etcd::start_mtls();
    let world = World::on(&etcd);
    let tls = etcd.tls().expect("it has TLS");
    let (cert_file, key_file) = tls.dated_client("dated", "20200101000000Z", "20300102030405Z");
    let node = world.cluster.node("dated");
    node.change_host_file(json!({"etcd": {"cert_file": cert_file, "key_file": key_file}}));
    let passed = world.cluster.reconciler(&world.api).config(node.host_file()).run();
    assert!(passed.succeeded(), "{passed}");
    let text = world.shown();
    let metrics = Metrics::parse(&text);
    let ends = |certificate: &str| {
        let name = "metes_certificate_not_after_timestamp_seconds";
        metrics.value(&format!("{name}{{certificate=\"{certificate}\"}}"))
    };
    assert_eq!(ends("client"), 1_893_553_445.0);
    assert!(ends("ca") > ends("client") - 1e9);
    assert_sound(&text);
    world.cluster.assert_clean();
}

// ---- manifests/monitoring

fn manifest(name: &str) -> String {
    let path = support::root().join("manifests/monitoring").join(name);
    fs::read_to_string(path).expect(name)
}

/// The rules as Prometheus itself reads them, in a folder: made of the manifest as docs/monitoring.md says.
fn rules(folder: &Path) -> PathBuf {
    let manifest = support::root().join("manifests/monitoring/rules.yaml");
    let path = folder.join("rules.yaml");
    let document = include_str!("../../docs/monitoring.md");
    let command = document.lines().find(|line| line.starts_with("sed ")).expect("the document has a command");
    let command =
        command.replace("manifests/monitoring/rules.yaml", manifest.to_str().expect("a plain path"));
    let made = Run::new("bash").arguments(["-c", &command]).run();
    assert!(made.succeeded(), "{made}");
    fs::write(&path, made.stdout).expect("a file can be written");
    path
}

/// Each expression of the dashboard, with values in the place of its variables.
fn expressions(dashboard: &Value) -> Vec<String> {
    let panels = dashboard["panels"].as_array().expect("it has panels");
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().expect("it shows something"));
    let expressions = targets.map(|target| target["expr"].as_str().expect("an expression"));
    expressions.map(|one| one.replace("$network", ".*").replace("$__rate_interval", "5m")).collect()
}

/// The words of an expression that are names of metrics.
fn names(expression: &str) -> BTreeSet<String> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && !"_:".contains(c));
    words.filter(|word| word.starts_with("metes")).map(str::to_owned).collect()
}

#[test]
fn alerts_fire_when_they_should() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let rules = rules(folder.path());
    let checked = promtool(&["check", "rules", "--lint-fatal", rules.to_str().expect("a plain path")], "");
    assert!(checked.succeeded(), "{checked}");
    for tests in ALERT_TESTS {
        let file = folder.path().join("alerts.test.yaml");
        fs::write(&file, tests).expect("a file can be written");
        let tested = promtool(&["test", "rules", file.to_str().expect("a plain path")], "");
        assert!(tested.succeeded(), "{tested}");
    }
    // Each has a test, and a row in the document.
    let text = fs::read_to_string(&rules).expect("it was written");
    let alerts = text.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    for alert in alerts {
        let name = format!("alertname: {alert}\n");
        assert!(ALERT_TESTS.iter().any(|tests| tests.contains(&name)), "{alert}");
        assert!(include_str!("../../docs/monitoring.md").contains(&format!("\n| `{alert}` | ")), "{alert}");
    }
}

#[test]
fn etcd_tells_what_the_alerts_ask_it_for() {
    let etcd = Etcd::start();
    let rules = manifest("rules.yaml");
    let words = rules.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let names: BTreeSet<&str> = words.filter(|word| word.starts_with("etcd_")).collect();
    assert!(names.len() > 3, "{names:?}");
    for name in names {
        assert!(etcd.metrics().contains(&format!("\n{name}")), "{name}");
    }
}

#[test]
fn the_dashboard_and_the_alerts_ask_for_what_is_there() {
    let world = World::new();
    world.living("alive");
    world.cluster.store().put("v1/member/10.0.0.1", r#"{"v":1,"snapshot":7,"certificate_end":9}"#);
    let server = serve_through(&world, &world.api, "1m", &GRACE);
    let (_, of_server) = server.get("/metrics").expect("it answers");
    server.end();
    let body = scrape(&world) + &of_server;
    let types = body.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let mut there: BTreeSet<String> = types.map(str::to_owned).collect();
    // Those of nodes are shown by installers, with the names in the document.
    let document = include_str!("../../docs/monitoring.md").split('`');
    let of_nodes = document.filter(|word| word.starts_with("metes_node_"));
    let of_nodes = of_nodes.filter_map(|word| word.split('{').next());
    there.extend(of_nodes.flat_map(|name| [name.to_owned(), format!("{name}_bucket")]));
    let dashboard: Value = serde_json::from_str(&manifest("dashboard.json")).expect("it is JSON");
    let expressions = expressions(&dashboard);
    assert!(expressions.len() > 10, "{expressions:?}");
    // An expression that Prometheus can record, it can ask.
    let folder = tempfile::tempdir().expect("a folder can be made");
    let recorded: Vec<Value> = (0..)
        .zip(&expressions)
        .map(|(number, expression)| json!({"record": format!("panel:{number}"), "expr": expression}))
        .collect();
    let file = folder.path().join("panels.yaml");
    let groups = json!({"groups": [{"name": "panels", "rules": recorded}]});
    fs::write(&file, groups.to_string()).expect("a file can be written");
    let checked = promtool(&["check", "rules", file.to_str().expect("a plain path")], "");
    assert!(checked.succeeded(), "{checked}");

    let rules = fs::read_to_string(rules(folder.path())).expect("it was written");
    let recorded = rules.lines().filter_map(|line| line.trim().strip_prefix("- record: "));
    there.extend(recorded.map(str::to_owned));
    let asked =
        expressions.iter().map(String::as_str).chain(rules.lines().filter(|line| line.contains("metes")));
    let asked = asked.filter(|line| !line.contains("name: ") && !line.contains("summary: "));
    for expression in asked.filter(|line| !line.contains("description: ")) {
        let missing: Vec<String> =
            names(expression).difference(&there).filter(|name| *name != "metes").cloned().collect();
        assert!(missing.is_empty(), "{missing:?} of {expression} are in no scrape");
    }
    // No two panels lie on each other.
    let mut taken = BTreeSet::new();
    for panel in dashboard["panels"].as_array().expect("it has panels") {
        let at = |key: &str| panel["gridPos"][key].as_u64().expect("a number");
        let cells =
            (at("x")..at("x") + at("w")).flat_map(|x| (at("y")..at("y") + at("h")).map(move |y| (x, y)));
        for cell in cells {
            assert!(cell.0 < 24 && taken.insert(cell), "{} lies on another", panel["title"]);
        }
    }
    world.cluster.assert_clean();
}
