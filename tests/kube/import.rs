//! `metes-reconciler import-whereabouts`: a cluster switches plugins, and every pod keeps its addresses.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{
    ApiProxy, Cluster, KubeApi, Node, Outcome, Pod, Rule, Run, failing_reconciler, network_as, wait_for,
};

const NADS: &str = "/apis/k8s.cni.cncf.io/v1/network-attachment-definitions";
const POOLS: &str = "/apis/whereabouts.cni.cncf.io/v1alpha1/ippools";
const RESERVATIONS: &str = "/apis/whereabouts.cni.cncf.io/v1alpha1/overlappingrangeipreservations";
const PODS_PATH: &str = "/api/v1/pods";
const META: &str = "v1/meta";
/// The annotation in which a pod asks for networks.
const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";
const PODS: usize = 120;
const KILLS: usize = 8;

/// A cluster that uses whereabouts, and metes' store, which is empty at first.
struct Switch {
    cluster: Cluster,
    api: &'static KubeApi,
    /// Shows this test's namespace only.
    proxy: ApiProxy,
    namespace: String,
    node: Node,
}

impl Switch {
    fn new() -> Self {
        let api = KubeApi::shared_with_crds();
        let cluster = Cluster::new();
        let (namespace, node) = (api.new_namespace(), cluster.node("n1"));
        let proxy = ApiProxy::before(api);
        let switch = Self { cluster, api, proxy, namespace, node };
        switch.only_own();
        switch
    }

    fn only_own(&self) {
        for path in [NADS, POOLS, RESERVATIONS, PODS_PATH] {
            let namespace = self.namespace.clone();
            self.proxy.rule(Rule::get(path).edit(move |list| {
                if let Some(items) = list.get_mut("items").and_then(Value::as_array_mut) {
                    items.retain(|item| item["metadata"]["namespace"] == namespace.as_str());
                }
            }));
        }
        let namespace = self.namespace.clone();
        self.proxy.rule(Rule::get("/api/v1/nodes").edit(move |list| {
            if let Some(items) = list.get_mut("items").and_then(Value::as_array_mut) {
                let is_own = |name: &Value| name.as_str().is_some_and(|name| name.ends_with(&namespace));
                items.retain(|item| is_own(&item["metadata"]["name"]));
            }
        }));
    }

    fn apply(&self, version: &str, kind: &str, name: &str, spec: Value) {
        let metadata = json!({"namespace": self.namespace, "name": name});
        self.api.apply(&json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}));
    }

    /// Defines a network, first for whereabouts, later for metes; its configuration as a runtime hands it on.
    fn network(&self, plugin: &str, name: &str, ipam: Value) -> Value {
        let mut ipam = ipam;
        ipam["type"] = json!(plugin);
        let config = network_as("1.0.0", name, ipam);
        self.define(name, &config);
        config
    }

    fn define(&self, name: &str, config: &Value) {
        let spec = json!({"config": config.to_string()});
        self.apply("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition", name, spec);
    }

    /// Changes a configuration to metes; it is returned.
    fn change(&self, name: &str, config: &Value) -> Value {
        let mut config = config.clone();
        config["ipam"]["type"] = json!("metes");
        self.define(name, &config);
        config
    }

    /// The entries are: key, pod's name, container, interface.
    fn pool(&self, name: &str, range: &str, entries: &[(&str, &str, &str, &str)]) {
        let entry = |(key, pod, id, ifname): &(&str, &str, &str, &str)| {
            let podref = if pod.is_empty() { String::new() } else { format!("{}/{pod}", self.namespace) };
            ((*key).to_owned(), json!({"id": id, "podref": podref, "ifname": ifname}))
        };
        let allocations: serde_json::Map<String, Value> = entries.iter().map(entry).collect();
        let spec = json!({"range": range, "allocations": allocations});
        self.apply("whereabouts.cni.cncf.io/v1alpha1", "IPPool", name, spec);
    }

    fn reservation(&self, name: &str, pod: &str, container: &str, ifname: &str) {
        let podref = format!("{}/{pod}", self.namespace);
        let spec = json!({"podref": podref, "containerid": container, "ifname": ifname});
        self.apply("whereabouts.cni.cncf.io/v1alpha1", "OverlappingRangeIPReservation", name, spec);
    }

    fn pod(&self, name: &str) -> Pod {
        self.api.pod(&self.namespace, name).phase("Running").create()
    }

    /// The status of a pod: network, interface, addresses.
    fn status(&self, interfaces: &[(&str, &str, &[&str])]) -> Value {
        let interface = |(network, interface, ips): &(&str, &str, &[&str])| {
            let name = format!("{}/{network}", self.namespace);
            json!({"name": name, "interface": interface, "ips": ips})
        };
        interfaces.iter().map(interface).collect()
    }

    /// The pods that were refused, by name, each with the reason.
    fn refusals(&self, report: &Value) -> BTreeSet<(String, String)> {
        let rows = report["not_taken_over"].as_array().unwrap_or_else(|| panic!("no list in {report}"));
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let short = |row: &Value| text(&row["pod"]).rsplit('/').next().unwrap_or_default().to_owned();
        rows.iter().map(|row| (short(row), text(&row["why"]))).collect()
    }

    fn prepared(&self, args: &[&str]) -> support::Reconciler {
        let all = ["import-whereabouts", "-o", "json"].into_iter().chain(args.iter().copied());
        self.cluster.reconciler(&self.proxy).args(all)
    }

    fn import(&self, args: &[&str]) -> Outcome {
        self.prepared(args).run()
    }

    #[track_caller]
    fn begin(&self) -> Value {
        let outcome = self.import(&["--begin"]);
        let report = outcome.ok();
        assert_eq!(report["paused"], json!(true), "{outcome}");
        report
    }

    /// Does not wait the seven minutes.
    #[track_caller]
    fn finish(&self) -> Value {
        let outcome = self.import(&["--finish", "--settle", "0s"]);
        let report = outcome.ok();
        assert_eq!(report["paused"], json!(false), "{outcome}");
        report
    }

    /// It refused. Returns the report.
    #[track_caller]
    fn refused(&self, args: &[&str], word: &str) -> Value {
        let outcome = self.import(args);
        assert_eq!(outcome.status.code(), Some(1), "{outcome}");
        assert!(outcome.stderr.contains(word), "{outcome}");
        let report = outcome.json();
        assert!(report["error"].as_str().is_some_and(|error| error.contains(word)), "{outcome}");
        report
    }

    fn is_on_hold(&self) -> bool {
        let Some(meta) = self.cluster.store().get(META) else { return false };
        let meta: Value = serde_json::from_slice(&meta).expect("meta is JSON");
        !meta["paused"].is_null()
    }

    /// Everything that is held: network, address, container and interface.
    fn held(&self) -> BTreeSet<String> {
        let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        let words = ["network", "address", "container_id", "ifname"];
        let row = |row: &Value| words.map(|word| text(&row[word])).join(" ");
        self.node.list().iter().map(row).collect()
    }

    #[track_caller]
    fn assert_held(&self, expected: &[&str]) {
        assert_eq!(self.held(), expected.iter().map(|one| (*one).to_owned()).collect());
    }

    fn run(&self, verb: &str, config: &Value, pod: &Pod, container: &str, ifname: &str) -> Run {
        let plugin = self.node.plugin(verb).container(container).ifname(ifname).netns("/run/netns/made-up");
        plugin.pod(&self.namespace, pod.name(), pod.uid()).config(config)
    }

    fn names(&self, report: &Value, list: &str, word: &str) -> BTreeSet<String> {
        let rows = report[list].as_array().unwrap_or_else(|| panic!("no {list} in {report}"));
        rows.iter().filter_map(|row| row[word].as_str()).map(str::to_owned).collect()
    }
}

fn set(words: &[&str]) -> BTreeSet<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn every_form_of_pool_is_taken_over_and_the_pods_live_on_under_metes() {
    let switch = Switch::new();
    let plain = switch.network("whereabouts", "plain", json!({"range": "10.0.0.0/8"}));
    let named = json!({"range": "10.0.0.0/8", "network_name": "test"});
    let named = switch.network("whereabouts", "named", named);
    let sliced = json!({"range": "10.64.0.0/10", "node_slice_size": "/24"});
    let sliced = switch.network("whereabouts", "sliced", sliced);
    let both = json!({"range": "10.0.0.0/8", "network_name": "testnetwork", "node_slice_size": "24"});
    let both = switch.network("whereabouts", "both", both);
    let own = json!({"range": "10.9.0.0/16", "enable_overlapping_ranges": false});
    let own = switch.network("whereabouts", "own", own);
    let dual = json!({"ipRanges": [{"range": "fd00:1::/64"}, {"range": "192.168.0.0/24"}]});
    let dual = switch.network("whereabouts", "dual", dual);
    switch.pool("10.0.0.0-8", "10.0.0.0/8", &[("259", "p", "c1", "net1")]);
    switch.pool("test-10.0.0.0-8", "10.0.0.0/8", &[("259", "p", "c1", "net2")]);
    switch.pool("n1-10.64.1.0-24", "10.64.1.0/24", &[("2", "p", "c1", "net3")]);
    switch.pool("testnetwork-n1-10.0.2.0-24", "10.0.2.0/24", &[("2", "p", "c1", "net4")]);
    switch.pool("10.9.0.0-16", "10.9.0.0/16", &[("5", "p", "c1", "net5")]);
    switch.pool("192.168.0.0-24", "192.168.0.0/24", &[("7", "p", "c1", "net6")]);
    switch.pool("fd00-1---64", "fd00:1::/64", &[("9223372036854775813", "p", "c1", "net6")]);
    let pod = switch.pod("p");

    let report = switch.import(&["--begin", "--page-size", "2"]).ok();
    assert_eq!((&report["not_taken_over"], &report["paused"]), (&json!([]), &json!(true)), "{report}");
    assert_eq!(report["taken_over"].as_array().map(Vec::len), Some(6), "{report}");
    assert_eq!(report["definitions_with_whereabouts"].as_array().map(Vec::len), Some(6), "{report}");
    let all = [
        "default 10.0.1.3 c1 net1",
        "test 10.0.1.3 c1 net2",
        "default 10.64.1.2 c1 net3",
        "testnetwork 10.0.2.2 c1 net4",
        "default@00000000000000000000ffff0a090000-16 10.9.0.5 c1 net5",
        "default fd00:1::8000:0:0:5 c1 net6",
        "default 192.168.0.7 c1 net6",
    ];
    switch.assert_held(&all);
    let listed = switch.node.list();
    assert!(listed.iter().all(|row| row["pod"]["uid"] == pod.uid() && row["node"] == "n1"), "{listed:?}");
    let of = |ifname: &str| {
        listed.iter().find(|row| row["ifname"] == ifname).expect("listed")["cni_network"].clone()
    };
    assert_eq!((of("net2"), of("net5"), of("net6")), (json!("named"), json!("own"), json!("dual")));

    let interfaces = [
        ("plain", &plain, "net1", vec!["10.0.1.3/8"]),
        ("named", &named, "net2", vec!["10.0.1.3/8"]),
        ("sliced", &sliced, "net3", vec!["10.64.1.2/10"]),
        ("both", &both, "net4", vec!["10.0.2.2/8"]),
        ("own", &own, "net5", vec!["10.9.0.5/16"]),
        ("dual", &dual, "net6", vec!["fd00:1::8000:0:0:5/64", "192.168.0.7/24"]),
    ];
    let changed = interfaces.map(|(name, config, ifname, ips)| (switch.change(name, config), ifname, ips));
    let error = switch.run("ADD", &changed[0].0, &pod, "c2", "net1").run().error(11);
    assert!(error["msg"].as_str().is_some_and(|msg| msg.contains("whereabouts")), "{error}");

    let report = switch.finish();
    assert_eq!((&report["present"], &report["taken_over"]), (&json!(6), &json!([])), "{report}");
    // People see the ranges at once, and an ADD that asks for them is no other configuration.
    let usage = switch.node.cli(["usage", "-o", "json"]).ok();
    let sizes = usage.as_array().expect("a list").iter().map(|range| range["size"].clone());
    assert!(sizes.clone().count() == 7 && sizes.clone().all(|size| !size.is_null()), "{usage}");
    let asked = || switch.cluster.store().keys("v1/asked/");
    let left = asked();
    for (config, ifname, ips) in &changed {
        let added = switch.run("ADD", config, &pod, "c1", ifname).run();
        assert_eq!(added.addresses(), *ips, "{added}");
        let mut with_result = config.clone();
        with_result["prevResult"] = added.ok();
        switch.run("CHECK", &with_result, &pod, "c1", ifname).run().silent();
    }
    assert_eq!(asked(), left);
    switch.assert_held(&all);
    for (config, ifname, _) in &changed {
        switch.run("DEL", config, &pod, "c1", ifname).run().silent();
    }
    switch.cluster.assert_nothing_held();
    switch.cluster.assert_clean();
}

#[test]
fn an_imported_interface_passes_check_and_is_deleted_without_any_add_of_metes() {
    let switch = Switch::new();
    let config = switch.network("whereabouts", "net", json!({"range": "10.0.0.0/24"}));
    switch.pool("10.0.0.0-24", "10.0.0.0/24", &[("5", "p", "c1", "net1"), ("6", "q", "c2", "net1")]);
    let (p, q) = (switch.pod("p"), switch.pod("q"));
    switch.begin();
    let mut config = switch.change("net", &config);
    switch.finish();
    config["prevResult"] = json!({"cniVersion": "1.0.0", "ips": [{"address": "10.0.0.5/24"}]});
    switch.run("CHECK", &config, &p, "c1", "net1").run().silent();
    switch.run("DEL", &config, &p, "c1", "net1").run().silent();
    switch.assert_held(&["default 10.0.0.6 c2 net1"]);
    // The other one's DEL goes to whereabouts, whose configuration the runtime has kept.
    q.delete();
    let pass = switch.cluster.reconciler(&switch.proxy).args(["--grace", "0s"]).run();
    assert!(pass.succeeded(), "{pass}");
    switch.cluster.assert_nothing_held();
    switch.cluster.assert_clean();
}

#[test]
fn the_pause_ends_only_when_no_whereabouts_can_be_at_work() {
    let switch = Switch::new();
    let config = switch.network("whereabouts", "net", json!({"range": "10.0.0.0/24"}));
    let list = json!({"cniVersion": "1.0.0", "name": "list", "plugins": [network_as("1.0.0", "x", json!({
        "type": "whereabouts", "range": "10.5.0.0/24",
    }))]});
    switch.define("list", &list);
    switch.pool("10.0.0.0-24", "10.0.0.0/24", &[("1", "p", "c1", "net1")]);
    let (pod, new) = (switch.pod("p"), switch.pod("new"));
    switch.refused(&["--finish"], "--begin first");
    switch.begin();
    let report = switch.refused(&["--finish", "--settle", "0s"], "whereabouts still hands out addresses");
    let expected = ["list", "net"].map(|name| format!("{}/{name}", switch.namespace));
    assert_eq!(report["definitions_with_whereabouts"], json!(expected), "{report}");

    let config = switch.change("net", &config);
    let mut metes = list.clone();
    metes["plugins"][0]["ipam"]["type"] = json!("metes");
    switch.define("list", &metes);
    let report = switch.refused(&["--finish"], "whereabouts may still be at work");
    let error = report["error"].as_str().expect("text");
    assert!(error.contains("must not have changed for 7m") && error.contains("--wait"), "{error}");
    switch.run("ADD", &config, &new, "c9", "net1").run().error(11);
    assert!(switch.is_on_hold());
    // A pass does nothing meanwhile.
    let pass = switch.cluster.reconciler(&switch.proxy).args(["-o", "json", "--grace", "0s"]).run();
    assert!(pass.ok()["paused"].is_string(), "{pass}");

    // A change starts the waiting time again.
    switch.define("list", &network_as("1.0.0", "x", json!({"range": "10.6.0.0/24"})));
    let start = Instant::now();
    let outcome = switch.import(&["--finish", "--wait", "--settle", "3s"]);
    assert!(outcome.succeeded(), "{outcome}");
    assert!(start.elapsed() > Duration::from_secs(2), "it did not wait: {outcome}");
    assert!(!switch.is_on_hold());
    assert_eq!(switch.cluster.store().keys("v1/import/"), Vec::<String>::new());
    let address = switch.run("ADD", &config, &new, "c9", "net1").run().address();
    assert_eq!(address, "10.0.0.2");
    switch.run("DEL", &config, &pod, "c1", "net1").run().silent();
    switch.assert_held(&["default 10.0.0.2 c9 net1"]);
    switch.cluster.assert_clean();
}

#[test]
fn what_cannot_be_taken_over_is_told_and_keeps_the_pause() {
    let switch = Switch::new();
    let config = switch.network("whereabouts", "net", json!({"range": "10.0.0.0/24"}));
    switch.network("whereabouts", "on", json!({"range": "10.7.0.0/24"}));
    switch.network("whereabouts", "off", json!({"range": "10.7.0.0/24", "enable_overlapping_ranges": false}));
    let refused =
        switch.network("whereabouts", "bad", json!({"range": "10.8.0.0/24", "range_start": "10.9.0.1"}));
    let metes = network_as("1.0.0", "metes", json!({"range": "10.0.0.0/16"}));
    let (taken, _gone) = (switch.pod("taken"), switch.pod("done").phase("Succeeded"));
    switch.run("ADD", &metes, &taken, "m1", "net1").run().ok();
    for pod in ["good", "clash", "outside", "unused", "unsure", "bad"] {
        switch.pod(pod);
    }
    switch.pool(
        "10.0.0.0-24",
        "10.0.0.0/24",
        &[
            ("1", "clash", "c1", "net1"),
            ("2", "good", "c2", "net1"),
            ("3", "gone", "c3", "net1"),
            ("4", "done", "c4", "net1"),
            ("5", "", "c5", "net1"),
            ("256", "outside", "c6", "net1"),
            ("what", "gone", "c7", "net1"),
        ],
    );
    switch.pool("10.6.0.0-24", "10.6.0.0/24", &[("1", "unused", "c8", "net1")]);
    switch.pool("10.7.0.0-24", "10.7.0.0/24", &[("1", "unsure", "c9", "net1")]);
    switch.pool("10.8.0.0-24", "10.8.0.0/24", &[("1", "bad", "c10", "net1")]);

    let report = switch.refused(&["--begin"], "5 addresses of running pods could not be taken over");
    let short = |report: &Value, list: &str| -> BTreeSet<String> {
        let names = switch.names(report, list, "pod");
        names.iter().map(|name| name.rsplit('/').next().unwrap_or_default().to_owned()).collect()
    };
    let running = ["clash", "outside", "unused", "unsure", "bad"];
    assert_eq!(
        short(&report, "not_taken_over"),
        [&running[..], &[""]].concat().iter().map(|s| (*s).to_owned()).collect()
    );
    assert_eq!(short(&report, "taken_over"), set(&["good", "done"]));
    assert_eq!(report["stale"].as_array().map(Vec::len), Some(2), "{report}");
    let why = |pod: &str| {
        let rows = report["not_taken_over"].as_array().expect("a list");
        let row =
            rows.iter().find(|row| row["pod"].as_str().is_some_and(|name| name.ends_with(pod))).expect(pod);
        row["why"].as_str().expect("a reason").to_owned()
    };
    for (pod, word) in [
        ("/clash", "metes holds it for net1 of pod"),
        ("/outside", "outside the range"),
        ("/unused", "no NetworkAttachmentDefinition"),
        ("/unsure", "disagree on enable_overlapping_ranges"),
        ("/bad", "no NetworkAttachmentDefinition that metes can read"),
    ] {
        assert!(why(pod).contains(word), "{}", why(pod));
    }
    let unusable = report["unusable_definitions"].to_string();
    assert!(unusable.contains("/bad") && unusable.contains("range_start"), "{unusable}");
    let held = ["default 10.0.0.1 m1 net1", "default 10.0.0.2 c2 net1", "default 10.0.0.4 c4 net1"];
    switch.assert_held(&held);

    for (name, range) in [("on", "10.7.0.0/24"), ("off", "10.7.0.0/24"), ("bad", "10.8.0.0/24")] {
        switch.network("metes", name, json!({"range": range}));
    }
    switch.change("net", &config);
    drop(refused);
    let report = switch.refused(&["--finish", "--settle", "0s"], "ADD stays paused");
    // With the configurations put right, their pods are taken over.
    assert_eq!(short(&report, "taken_over"), set(&["unsure", "bad"]));
    assert!(switch.is_on_hold());
    let outcome = switch.import(&["--finish", "--settle", "0s", "--force"]);
    assert!(outcome.succeeded(), "{outcome}");
    assert_eq!(short(&outcome.json(), "not_taken_over"), set(&["", "clash", "outside", "unused"]));
    assert!(!switch.is_on_hold());
    switch.cluster.assert_clean();
}

#[test]
fn an_address_in_use_that_no_pool_has_is_taken_over_or_refused() {
    let switch = Switch::new();
    let net = switch.network("whereabouts", "net", json!({"range": "10.0.0.0/24"}));
    let dual = json!({"ipRanges": [{"range": "10.1.0.0/24"}, {"range": "fd01::/64"}]});
    switch.network("whereabouts", "dual", dual);
    switch.network("static", "other", json!({"addresses": [{"address": "10.0.0.90/24"}]}));
    switch.pool("10.0.0.0-24", "10.0.0.0/24", &[("60", "owner", "c1", "net1"), ("61", "gone", "c2", "net1")]);
    switch.pool("10.1.0.0-24", "10.1.0.0/24", &[("5", "half", "c3", "net1")]);
    let pod = |name: &str, asked: &str, status: &[(&str, &str, &[&str])]| {
        let pod = switch.api.pod(&switch.namespace, name).phase("Running");
        let pod = if asked.is_empty() { pod } else { pod.annotation(NETWORKS, asked) };
        let pod = if status.is_empty() { pod } else { pod.network_status(&switch.status(status)) };
        pod.create()
    };
    pod("owner", "net", &[("net", "net1", &["10.0.0.60"])]);
    let lost = pod("lost", "net", &[("net", "net1", &["10.0.0.50"])]);
    let heir = pod("heir", "net", &[("net", "net1", &["10.0.0.61"])]);
    let nameless = pod("nameless", "net", &[("net", "", &["10.0.0.51"])]);
    pod("half", "dual", &[("dual", "net1", &["10.1.0.5", "fd01::5"])]);
    pod("not-ours", "other", &[("other", "net1", &["10.0.0.90"])]);
    pod("elsewhere", "", &[("on-the-nodes", "net1", &["192.0.2.1"])]);
    for (name, asked, status) in [
        ("thief", "net", &[("net", "net1", &["10.0.0.60"][..])][..]),
        ("outside", "net", &[("net", "net1", &["10.99.0.1"])]),
        ("undefined", "", &[("on-the-nodes", "net1", &["10.0.0.70"])]),
        ("no-address", "net", &[("net", "net1", &["what"])]),
        ("silent", "net", &[]),
        ("unlisted", "net, dual", &[("net", "net1", &["10.0.0.52"])]),
    ] {
        pod(name, asked, status);
    }
    let garbled = switch.api.pod(&switch.namespace, "garbled").phase("Running").annotation(NETWORKS, "net");
    garbled.annotation("k8s.v1.cni.cncf.io/network-status", "{").create();

    let report = switch.refused(&["--begin"], "could not be taken over");
    let refusals = switch.refusals(&report);
    let words = [
        ("garbled", "it cannot be read"),
        ("no-address", "is not an address"),
        ("outside", "outside every range"),
        ("silent", "neither its annotation network-status nor a pool says its address"),
        ("thief", "given to pod"),
        ("undefined", "nobody knows"),
        ("unlisted", "neither its annotation network-status nor a pool says its address"),
    ];
    for (pod, words) in words {
        assert!(refusals.iter().any(|(of, why)| of == pod && why.contains(words)), "{pod}: {refusals:?}");
    }
    let pods: BTreeSet<&str> = refusals.iter().map(|(pod, _)| pod.as_str()).collect();
    assert_eq!(pods, words.map(|(pod, _)| pod).into(), "{report}");
    let imported = |pod: &Pod, address: &str| format!("default {address} imported-{} net1", pod.uid());
    let unlisted =
        switch.held().into_iter().find(|row| row.contains("10.0.0.52")).expect("what it does tell");
    let expected = BTreeSet::from([
        "default 10.0.0.60 c1 net1".to_owned(),
        "default 10.1.0.5 c3 net1".to_owned(),
        // With the address that the pool has for the same interface.
        "default fd01::5 c3 net1".to_owned(),
        imported(&lost, "10.0.0.50"),
        imported(&nameless, "10.0.0.51"),
        // The entry's own pod is gone.
        imported(&heir, "10.0.0.61"),
        unlisted,
    ]);
    assert_eq!(switch.held(), expected);
    // The addresses that metes holds for them now are missing nowhere.
    switch.change("net", &net);
    let again = switch.refused(&["--begin"], "could not be taken over");
    assert_eq!((&again["taken_over"], switch.held()), (&json!([]), expected), "{again}");
    switch.cluster.assert_clean();
}

#[test]
fn the_wait_ends_early_once_every_older_pod_has_its_interfaces() {
    let switch = Switch::new();
    let config = switch.network("whereabouts", "net", json!({"range": "10.0.0.0/24"}));
    let pool = |entries: &[(&str, &str, &str, &str)]| switch.pool("10.0.0.0-24", "10.0.0.0/24", entries);
    pool(&[("1", "there", "c1", "net1")]);
    let status = |ip: &str| switch.status(&[("net", "net1", &[ip])]);
    let pod = |name: &str| switch.api.pod(&switch.namespace, name);
    let there = pod("there").phase("Running").network_status(&status("10.0.0.1")).create();
    let older = pod("older").annotation(NETWORKS, "net").create();
    pod("on-host").with(json!({"spec": {"hostNetwork": true}})).create();
    pod("unbound").unbound().create();
    switch.begin();
    let config = switch.change("net", &config);
    // Its sandbox is made anew, by a whereabouts as well.
    let sandbox = |status: &str| {
        there.status(json!({"conditions": [{"type": "PodReadyToStartContainers", "status": status}]}));
    };
    sandbox("False");
    switch.refused(&["--finish", "--dry-run"], "at work for 2 pods");
    switch.refused(&["--finish"], "at work for 2 pods");
    // Pods that are made from now on find the changed definition, and wait for metes.
    let younger = pod("younger").annotation(NETWORKS, "net").create();
    switch.run("ADD", &config, &younger, "c9", "net1").run().error(11);
    sandbox("True");
    switch.refused(&["--finish"], "at work for 1 pods");
    pool(&[("1", "there", "c1", "net1"), ("2", "older", "c2", "net1")]);
    let waiting = switch.prepared(&["--finish", "--wait"]).spawn();
    older.network_status(&status("10.0.0.2"));
    let outcome = waiting.wait();
    assert_eq!(outcome.ok()["paused"], json!(false), "{outcome}");
    switch.assert_held(&["default 10.0.0.1 c1 net1", "default 10.0.0.2 c2 net1"]);
    assert_eq!(switch.run("ADD", &config, &younger, "c9", "net1").run().address(), "10.0.0.3");
    switch.cluster.assert_clean();
}

#[test]
fn an_entry_whose_pod_is_gone_from_a_node_that_is_not_heard_of_is_kept() {
    let switch = Switch::new();
    let config = switch.network("whereabouts", "net", json!({"range": "10.0.0.0/24"}));
    let sliced = json!({"range": "10.64.0.0/10", "node_slice_size": "/24"});
    switch.network("whereabouts", "sliced", sliced);
    let name = |node: &str| format!("{node}-{}", switch.namespace);
    let [cut, well, other] = ["cut", "well", "other"].map(|node| switch.api.node(&name(node)));
    for (node, ready) in [(&cut, false), (&well, true), (&other, true)] {
        node.ready(ready);
    }
    switch.pool("10.0.0.0-24", "10.0.0.0/24", &[("1", "gone", "c1", "net1")]);
    for (node, third, container) in [("cut", 1, "c2"), ("well", 2, "c3")] {
        let range = format!("10.64.{third}.0/24");
        let pool = format!("{}-10.64.{third}.0-24", name(node));
        switch.pool(&pool, &range, &[("2", "gone-too", container, "net1")]);
    }
    let report = switch.begin();
    let on = |node: &str| json!([name(node)]);
    let kept = report["kept"].as_array().expect("a list");
    assert!(kept.len() == 2 && kept.iter().all(|row| row["nodes"] == on("cut")), "{report}");
    assert_eq!(report["stale"].as_array().map(Vec::len), Some(1), "its node is well: {report}");
    switch.assert_held(&["default 10.0.0.1 c1 net1", "default 10.64.1.2 c2 net1"]);
    // The container's own DEL finds it there.
    let node = switch.cluster.node(&name("cut"));
    node.del("c1").ifname("net1").config(&config).run().silent();
    switch.assert_held(&["default 10.64.1.2 c2 net1"]);

    // It may run on either of two nodes, and only a person knows when it is gone.
    other.ready(false);
    switch.pool("10.0.0.0-24", "10.0.0.0/24", &[("7", "gone", "c7", "net1")]);
    let report = switch.begin();
    let kept = report["kept"].as_array().expect("a list");
    let nodes = json!([name("cut"), name("other")]);
    assert!(kept.iter().any(|row| row["address"] == "10.0.0.7" && row["nodes"] == nodes), "{report}");
    switch.change("net", &config);
    switch.network("metes", "sliced", json!({"range": "10.64.0.0/10"}));
    switch.finish();
    for node in [&cut, &other] {
        node.ready(true);
    }
    let pass = switch.cluster.reconciler(&switch.proxy).args(["--grace", "0s"]).run();
    assert!(pass.succeeded(), "{pass}");
    switch.assert_held(&["default 10.0.0.7 c7 net1"]);
    assert!(switch.node.cli(["release", "10.0.0.7", "--yes"]).succeeded());
    switch.cluster.assert_clean();
}

#[test]
fn a_definition_that_is_changed_during_the_last_import_keeps_the_pause() {
    let switch = Switch::new();
    let config = switch.network("whereabouts", "net", json!({"range": "10.0.0.0/24"}));
    switch.pool("10.0.0.0-24", "10.0.0.0/24", &[("1", "p", "c1", "net1")]);
    switch.pod("p");
    switch.begin();
    let changed = switch.change("net", &config);
    // Back to whereabouts, after it was seen that none is left.
    let (api, namespace) = (switch.api.clone(), switch.namespace.clone());
    let back = json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"namespace": namespace, "name": "net"}, "spec": {"config": config.to_string()},
    });
    switch.proxy.clear().rule(Rule::get(POOLS).before(move || _ = api.apply(&back)));
    switch.only_own();
    switch.refused(&["--finish", "--settle", "0s"], "was changed meanwhile");
    assert!(switch.is_on_hold());
    switch.proxy.clear();
    switch.only_own();
    switch.define("net", &changed);
    switch.finish();
    switch.cluster.assert_clean();
}

#[test]
fn a_meta_that_is_changed_between_read_and_write_keeps_what_was_changed() {
    let switch = Switch::new();
    let config = switch.network("whereabouts", "net", json!({"range": "10.0.0.0/24"}));
    let store = switch.cluster.store();
    let meta = || -> Value { serde_json::from_slice(&store.get(META).expect("meta")).expect("JSON") };
    let raced = |args: &[&str], epoch: u64| {
        let import = switch.prepared(args).program(failing_reconciler());
        let mut running = import.env("METES_FAIL", "pause.before=stop").spawn();
        running.wait_until_stopped();
        let mut changed = meta();
        changed["epoch"] = json!(epoch);
        store.put(META, changed.to_string());
        running.resume();
        running.wait().ok();
        assert_eq!(meta()["epoch"], json!(epoch), "{args:?}");
    };
    switch.begin();
    switch.import(&["--cancel"]).ok();
    raced(&["--begin"], 7);
    assert!(switch.is_on_hold());
    let since = meta()["paused_since"].as_str().expect("for people").to_owned();
    let check = switch.node.cli(["check"]);
    assert!(check.stdout.contains(&since) && check.stdout.contains("in cluster test"), "{check}");
    switch.change("net", &config);
    raced(&["--cancel"], 8);
    assert!(!switch.is_on_hold() && meta()["paused_since"].is_null());
    switch.cluster.assert_clean();
}

#[test]
fn a_sandbox_whose_container_is_in_the_pools_keeps_what_was_taken_over_for_it() {
    let switch = Switch::new();
    let dual = json!({"ipRanges": [{"range": "10.1.0.0/24"}, {"range": "fd01::/64"}]});
    switch.network("whereabouts", "dual", dual);
    let v4 = |entries: &[(&str, &str, &str, &str)]| switch.pool("10.1.0.0-24", "10.1.0.0/24", entries);
    v4(&[("5", "p", "c1", "net1"), ("6", "p", "c2", "net2")]);
    switch.pool("fd01---64", "fd01::/64", &[("5", "p", "c1", "net1"), ("6", "p", "c2", "net2")]);
    let pod = switch.pod("p");
    switch.begin();
    let held = [
        "default 10.1.0.5 c1 net1",
        "default fd01::5 c1 net1",
        "default 10.1.0.6 c2 net2",
        "default fd01::6 c2 net2",
    ];
    switch.assert_held(&held);
    // One of two pools names the present sandbox of an interface, and the other one still the one before.
    v4(&[("5", "p", "c3", "net1"), ("6", "p", "c2", "net2")]);
    let report = switch.begin();
    assert_eq!(report["moved"], json!([]), "{report}");
    switch.assert_held(&held);
    // An address that went from one interface to the other is still the pod's, and is not moved.
    v4(&[("6", "p", "c4", "net1")]);
    switch.pool("fd01---64", "fd01::/64", &[("9", "gone", "c9", "net1")]);
    let report = switch.refused(&["--begin"], "1 addresses of running pods");
    assert!(
        switch.refusals(&report).iter().all(|(of, why)| of == "p" && why.contains("net2 of pod")),
        "{report}"
    );
    assert!(switch.held().contains(held[2]), "{report}");
    drop(pod);
    switch.cluster.assert_clean();
}

#[test]
fn an_import_that_is_aborted_tells_what_was_done_and_no_table_of_zeros() {
    let switch = Switch::new();
    switch.network("whereabouts", "net", json!({"range": "10.0.0.0/24"}));
    switch.pool("10.0.0.0-24", "10.0.0.0/24", &[("1", "p", "c1", "net1")]);
    switch.pod("p");
    let import = || switch.cluster.reconciler(&switch.proxy).args(["import-whereabouts", "--begin"]).run();
    switch.proxy.clear().rule(Rule::get(POOLS).status(500));
    switch.only_own();
    let net = format!("{}/net", switch.namespace);
    let expected = format!(
        "cluster test: aborted; nothing was done\nADD of metes is paused\n\
         to be changed from whereabouts to metes: {net}\n"
    );
    let nothing = import();
    assert_eq!((nothing.status.code(), nothing.stdout), (Some(1), expected));
    let json = switch.refused(&["--begin"], "list IPPools");
    assert!(json["aborted"] == true && json["paused"] == true, "{json}");
    for nothing in ["taken_over", "present", "moved", "stale", "kept", "not_taken_over"] {
        assert_eq!(json.get(nothing), None, "{json}");
    }
    switch.proxy.clear();
    switch.only_own();
    assert_eq!(switch.begin()["aborted"], json!(false));
    switch.cluster.assert_clean();
}

#[test]
fn what_changes_between_the_steps_is_followed() {
    let switch = Switch::new();
    let config = switch.network("whereabouts", "net", json!({"range": "10.0.0.0/24"}));
    let entries = [("1", "gone", "c1", "net1"), ("2", "again", "c2", "net1"), ("3", "freed", "c3", "net1")];
    switch.pool("10.0.0.0-24", "10.0.0.0/24", &entries);
    let (gone, again, freed) = (switch.pod("gone"), switch.pod("again"), switch.pod("freed"));
    assert_eq!(switch.begin()["taken_over"].as_array().map(Vec::len), Some(3));
    let report = switch.begin();
    assert_eq!((&report["present"], &report["taken_over"]), (&json!(3), &json!([])), "{report}");

    // The address of a pod that is gone was given to another, a sandbox was made anew, a reservation
    // was left alone, and one was freed though its pod runs.
    gone.delete();
    switch.pod("heir");
    switch.pod("alone");
    switch.pool("10.0.0.0-24", "10.0.0.0/24", &[("1", "heir", "c4", "net1"), ("2", "again", "c5", "net1")]);
    switch.reservation("10.0.0.9", "alone", "", "net1");
    switch.reservation("10.0.0.1", "heir", "c4", "net1");
    switch.reservation("10.0.0.8", "gone", "c1", "net1");
    switch.change("net", &config);
    let report = switch.finish();
    let alone = switch.api.get(&format!("/api/v1/namespaces/{}/pods/alone", switch.namespace));
    let alone = alone["metadata"]["uid"].as_str().expect("a UID").to_owned();
    switch.assert_held(&[
        "default 10.0.0.1 c4 net1",
        "default 10.0.0.2 c5 net1",
        "default 10.0.0.3 c3 net1",
        &format!("default 10.0.0.9 imported-{alone} net1"),
    ]);
    assert_eq!(report["taken_over"].as_array().map(Vec::len), Some(3), "{report}");
    let heir =
        report["taken_over"].as_array().and_then(|rows| rows.iter().find(|row| row["container_id"] == "c4"));
    assert_eq!(heir.expect("taken over")["replaced"][0]["container"], "c1", "{report}");
    assert_eq!(report["moved"][0]["container"], "c2", "{report}");
    assert_eq!(report["given_up_by_whereabouts"][0]["address"], "10.0.0.3", "{report}");
    assert_eq!(report["stale"].as_array().map(Vec::len), Some(1), "{report}");
    drop((again, freed));
    switch.cluster.assert_clean();
}

#[test]
fn a_pod_made_anew_by_metes_takes_over_what_was_imported_for_it() {
    let switch = Switch::new();
    let config = switch.network("whereabouts", "net", json!({"range": "10.0.0.0/24"}));
    switch.pool("10.0.0.0-24", "10.0.0.0/24", &[("7", "p", "c1", "net1")]);
    let pod = switch.pod("p");
    switch.begin();
    let config = switch.change("net", &config);
    switch.finish();
    // The node was started anew: another sandbox of the same pod.
    let address = switch.run("ADD", &config, &pod, "c2", "net1").run().address();
    assert_eq!(address, "10.0.0.7");
    switch.assert_held(&["default 10.0.0.7 c2 net1"]);
    switch.cluster.assert_clean();
}

#[test]
fn what_a_sticky_definition_keeps_is_imported_for_the_name_of_its_pod() {
    let switch = Switch::new();
    let ipam = json!({"ipRanges": [{"range": "10.0.0.0/24"}, {"range": "fd00::/64"}], "sticky": "pod", "keep": "1h"});
    let config = switch.network("whereabouts", "net", ipam);
    switch.pool("10.0.0.0-24", "10.0.0.0/24", &[("7", "db-0", "c1", "net1"), ("8", "db-1", "c2", "net1")]);
    switch.pool("fd00---64", "fd00::/64", &[("7", "db-0", "c1", "net1")]);
    let (pod, other) = (switch.pod("db-0"), switch.pod("db-1"));
    // A person has kept an address for the other one. It is no mistake of whereabouts.
    let name = format!("{}/db-1", switch.namespace);
    let hold = [
        "hold",
        "10.0.0.99",
        "fd00::99",
        "--network",
        "default",
        "--force",
        "--pod",
        &name,
        "--interface",
        "net1",
    ];
    let held = switch.node.cli(hold);
    assert!(held.succeeded(), "{held}");
    switch.begin();
    let config = switch.change("net", &config);
    let report = switch.finish();
    assert_eq!((&report["present"], &report["taken_over"]), (&json!(2), &json!([])), "{report}");
    switch.run("DEL", &config, &pod, "c1", "net1").run().silent();
    switch.run("DEL", &config, &other, "c2", "net1").run().silent();
    let again = |pod: Pod, container: &str| {
        let name = pod.name().to_owned();
        pod.delete();
        switch.run("ADD", &config, &switch.pod(&name), container, "net1").run().addresses()
    };
    assert_eq!(again(other, "c3"), ["10.0.0.99/24", "fd00::99/64"]);
    assert_eq!(again(pod, "c4"), ["10.0.0.7/24", "fd00::7/64"]);
    switch.cluster.assert_clean();
}

/// Until the definitions change, whereabouts gives the address of a pod that is gone to another one.
#[test]
fn a_hold_that_an_earlier_import_has_made_is_no_obstacle() {
    let switch = Switch::new();
    let config = json!({"range": "10.0.0.0/24", "sticky": "pod"});
    let config = switch.network("whereabouts", "net", config);
    switch.pool("10.0.0.0-24", "10.0.0.0/24", &[("7", "db-0", "c1", "net1")]);
    let first = switch.pod("db-0");
    switch.begin();
    first.delete();
    let (next, web) = (switch.pod("db-0"), switch.pod("web-0"));
    // A container of the pod that is gone has left an entry.
    let entries = [("7", "web-0", "c7", "net1"), ("8", "db-0", "c2", "net1"), ("9", "db-0", "c0", "net1")];
    switch.pool("10.0.0.0-24", "10.0.0.0/24", &entries);
    next.network_status(&switch.status(&[("net", "net1", &["10.0.0.8"])]));
    let config = switch.change("net", &config);
    let report = switch.finish();
    assert_eq!(report["not_taken_over"], json!([]), "{report}");
    for (pod, container, address) in [(next, "c2", "10.0.0.8"), (web, "c7", "10.0.0.7")] {
        switch.run("DEL", &config, &pod, container, "net1").run().silent();
        let name = pod.name().to_owned();
        pod.delete();
        let again =
            switch.run("ADD", &config, &switch.pod(&name), &format!("{container}-next"), "net1").run();
        assert_eq!(again.address(), address);
    }
    switch.cluster.assert_clean();
}

#[test]
fn a_static_pod_is_known_by_the_kubelets_uid() {
    let switch = Switch::new();
    switch.network("whereabouts", "net", json!({"range": "10.0.0.0/24"}));
    switch.pool("10.0.0.0-24", "10.0.0.0/24", &[("7", "static-n1", "c1", "net1")]);
    switch.api.pod(&switch.namespace, "static-n1").mirror_of("0123abc").phase("Running").create();
    switch.begin();
    assert_eq!(switch.node.list()[0]["pod"]["uid"], "0123abc");
    switch.cluster.assert_clean();
}

#[test]
fn a_dry_run_writes_nothing() {
    let switch = Switch::new();
    let config = switch.network("whereabouts", "net", json!({"range": "10.0.0.0/24"}));
    switch.pool("10.0.0.0-24", "10.0.0.0/24", &[("7", "p", "c1", "net1")]);
    switch.pod("p");
    let entries = |switch: &Switch| switch.cluster.store().entries("");
    let outcome = switch.import(&["--begin", "--dry-run"]);
    assert_eq!(switch.names(&outcome.ok(), "taken_over", "container_id"), set(&["c1"]), "{outcome}");
    assert_eq!(entries(&switch), Vec::new());
    switch.begin();
    switch.change("net", &config);
    let before = entries(&switch);
    let outcome = switch.import(&["--finish", "--settle", "0s", "--dry-run"]);
    assert_eq!(outcome.ok()["present"], json!(1), "{outcome}");
    switch.refused(&["--finish", "--dry-run"], "whereabouts may still be at work");
    assert_eq!(entries(&switch), before);
    switch.cluster.assert_clean();
}

#[test]
fn a_store_that_is_not_to_be_used_is_left_alone() {
    let switch = Switch::new();
    switch.network("whereabouts", "net", json!({"range": "10.0.0.0/24"}));
    switch.pool("10.0.0.0-24", "10.0.0.0/24", &[("7", "p", "c1", "net1")]);
    switch.pod("p");
    let store = switch.cluster.store();
    for (meta, word) in [
        (r#"{"v":1,"min_writer":1,"id":"test","epoch":1,"suspect":1}"#, "back in time"),
        (r#"{"v":1,"min_writer":9,"id":"test","epoch":1}"#, "newer metes-reconciler"),
        (
            r#"{"v":1,"min_writer":1,"id":"test","epoch":1,"paused":"of another cluster"}"#,
            "another migration",
        ),
        ("what", "cannot be decoded"),
    ] {
        store.put(META, meta);
        switch.refused(&["--begin"], word);
        assert_eq!(store.get(META), Some(meta.as_bytes().to_vec()));
    }
    store.delete(META);
    store.put("v1/cluster/test", r#"{"v":1,"uid":"of-another-cluster"}"#);
    switch.refused(&["--begin"], "kube-system");
    store.delete("v1/cluster/test");
    store.put("v1/owner/test/n1/c9/net1", "lost its meta");
    switch.refused(&["--begin"], "the store has lost keys");
    store.delete_prefix("");
    switch.begin();
    switch.cluster.assert_clean();
}

#[test]
fn killed_at_any_moment_it_is_run_again() {
    for ipam in [json!({"range": "10.0.0.0/24"}), json!({"range": "10.0.0.0/24", "sticky": "pod"})] {
        killed_at_any_moment(ipam);
    }
}

fn killed_at_any_moment(ipam: Value) {
    let switch = Switch::new();
    let is_kept = ipam["sticky"].is_string();
    let config = switch.network("whereabouts", "net", ipam);
    let names: Vec<String> = (1..=PODS).map(|i| i.to_string()).collect();
    let pods =
        names.iter().map(|name| switch.api.pod(&switch.namespace, &format!("p{name}")).phase("Running"));
    switch.api.create_pods(pods);
    let ids: Vec<(String, String)> =
        names.iter().map(|name| (format!("p{name}"), format!("c{name}"))).collect();
    let entries: Vec<(&str, &str, &str, &str)> = names
        .iter()
        .zip(&ids)
        .map(|(key, (pod, id))| (key.as_str(), pod.as_str(), id.as_str(), "net1"))
        .collect();
    switch.pool("10.0.0.0-24", "10.0.0.0/24", &entries);
    // A hold has a record beside that of its user.
    let records = if is_kept { 2 } else { 1 };
    let owners = || switch.cluster.store().keys("v1/owner/").len() / records;
    let mut partial = 0;
    for at_least in (0..PODS).step_by(PODS / KILLS) {
        let mut running = switch.prepared(&["--begin"]).spawn();
        wait_for("it to get so far", Duration::from_secs(30), || {
            let far = if at_least == 0 { switch.is_on_hold() } else { owners() >= at_least };
            if far || !running.is_running() { Ok(()) } else { Err(format!("{} owners", owners())) }
        });
        if running.is_running() {
            running.kill();
        }
        running.wait();
        assert!(switch.is_on_hold());
        partial += usize::from(owners() < PODS);
        // A finish that comes too early does not end the pause either.
        switch.refused(&["--finish", "--settle", "0s"], "whereabouts still hands out addresses");
    }
    assert!(partial > 1, "no kill came in the middle");
    switch.begin();
    switch.change("net", &config);
    switch.finish();
    let expected: BTreeSet<String> = (1..=PODS).map(|i| format!("default 10.0.0.{i} c{i} net1")).collect();
    assert_eq!(switch.held(), expected);
    assert_eq!(switch.cluster.store().keys("v1/seat/").len(), if is_kept { PODS } else { 0 });
    switch.cluster.assert_clean();
}

#[test]
fn an_api_that_fails_ends_it_and_the_pause_stays() {
    let switch = Switch::new();
    let config = switch.network("whereabouts", "net", json!({"range": "10.0.0.0/24"}));
    for i in 1..=3 {
        let network = format!("10.{i}.0.0/24");
        switch.pool(&format!("10.{i}.0.0-24"), &network, &[("1", "p", &format!("c{i}"), "net1")]);
    }
    switch.pool("10.0.0.0-24", "10.0.0.0/24", &[("1", "p", "c1", "net1")]);
    switch.pod("p");
    let faults = [
        (NADS, 403),
        (POOLS, 500),
        (RESERVATIONS, 404),
        ("/api/v1/pods", 429),
        ("/api/v1/namespaces/kube-system", 500),
    ];
    let fail = |rule: Rule, args: &[&str]| {
        switch.proxy.clear().rule(rule);
        switch.only_own();
        switch.refused(args, "run it again");
        switch.proxy.clear();
        switch.only_own();
    };
    for (path, status) in faults {
        fail(Rule::get(path).status(status), &["--begin"]);
        assert_eq!(switch.held(), BTreeSet::new(), "{path}");
    }
    fail(Rule::get(POOLS).later_pages().status(410), &["--begin", "--page-size", "1"]);
    fail(Rule::get("/api/v1/pods").cut_after(100), &["--begin"]);
    assert!(switch.is_on_hold() && switch.held().is_empty());
    switch.change("net", &config);
    for (path, status) in faults {
        fail(Rule::get(path).status(status), &["--finish", "--settle", "0s"]);
        assert!(switch.is_on_hold(), "{path}");
    }
    // Three pools have no definition.
    switch.refused(&["--finish", "--settle", "0s"], "3 addresses of running pods");
    switch.import(&["--finish", "--settle", "0s", "--force"]).ok();
    switch.assert_held(&["default 10.0.0.1 c1 net1"]);
    switch.cluster.assert_clean();
}

#[test]
fn a_switch_can_be_given_up() {
    let switch = Switch::new();
    switch.network("whereabouts", "net", json!({"range": "10.0.0.0/24"}));
    switch.pool("10.0.0.0-24", "10.0.0.0/24", &[("1", "p", "c1", "net1")]);
    let pod = switch.pod("p");
    switch.refused(&["--cancel"], "no import is under way");
    switch.begin();
    let outcome = switch.import(&["--cancel"]);
    assert_eq!(outcome.ok()["paused"], json!(false), "{outcome}");
    assert!(!switch.is_on_hold());
    // An address that was taken over stays with its pod, and is freed with it.
    let other = network_as("1.0.0", "other", json!({"range": "10.0.0.0/24"}));
    let address = switch.run("ADD", &other, &pod, "c2", "net2").run().address();
    assert_eq!(address, "10.0.0.2");
    pod.delete();
    let pass = switch.cluster.reconciler(&switch.proxy).args(["--grace", "0s"]).run();
    assert!(pass.succeeded(), "{pass}");
    switch.cluster.assert_nothing_held();
    switch.cluster.assert_clean();
}

#[test]
fn wrong_usage_is_told() {
    let cluster = Cluster::new();
    let usage = |args: &[&str]| {
        let all = ["import-whereabouts"].into_iter().chain(args.iter().copied());
        let outcome = cluster.reconciler(KubeApi::shared()).args(all).run();
        assert_eq!(outcome.status.code(), Some(2), "{outcome}");
    };
    for args in [&[][..], &["--begin", "--finish"], &["--begin", "--wait"], &["--cancel", "--force"]] {
        usage(args);
    }
    cluster.assert_clean();
}

#[test]
fn people_read_what_was_done_and_what_comes_next() {
    let switch = Switch::new();
    switch.network("whereabouts", "net", json!({"range": "10.0.0.0/24"}));
    switch.pool("10.0.0.0-24", "10.0.0.0/24", &[("7", "p", "c1", "net1"), ("8", "gone", "c2", "net1")]);
    switch.pod("p");
    let outcome = switch.cluster.reconciler(&switch.proxy).args(["import-whereabouts", "--begin"]).run();
    assert!(outcome.succeeded(), "{outcome}");
    let net = format!("{}/net", switch.namespace);
    for line in [
        &format!("taken over: net1 of pod {}/p, container c1 on n1: 10.0.0.7", switch.namespace),
        "10.0.0.8 of pod",
        "ADD of metes is paused",
        &format!("to be changed from whereabouts to metes: {net}"),
    ] {
        assert!(outcome.stdout.contains(line), "{line:?} is missing in {outcome}");
    }
    switch.cluster.assert_clean();
}
