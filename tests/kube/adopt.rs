//! `metes-reconciler adopt`: after a restore, no address that a running pod uses is given to another one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};
use support::{
    ApiProxy, Cluster, Etcd, KubeApi, Node, Outcome, Pod, PodBuilder, Rule, failing_reconciler, network_as,
    wait_for,
};

const META: &str = "v1/meta";
const PODS: &str = "/api/v1/pods";
const NADS: &str = "/apis/k8s.cni.cncf.io/v1/network-attachment-definitions";
const CLAIMS: &str = "/apis/resource.k8s.io/v1/resourceclaims";
const SUSPECT: &str = r#"{"v":1,"min_writer":1,"id":"test","epoch":1,"suspect":1}"#;

/// Puts the store under suspicion; one that nobody has used is founded so.
fn suspect(world: &World) {
    let store = world.cluster.store();
    let meta = store.get(META).map(|meta| {
        let mut meta: Value = serde_json::from_slice(&meta).expect("a meta");
        meta["suspect"] = meta["epoch"].clone();
        meta.to_string()
    });
    store.put(META, meta.unwrap_or_else(|| SUSPECT.to_owned()));
}

/// A cluster of pods with a second interface, on a store of its own.
struct World {
    cluster: Cluster,
    api: &'static KubeApi,
    /// Shows this test's namespace only: the others' pods hold nothing in this store.
    proxy: ApiProxy,
    namespace: String,
    node: Node,
}

impl World {
    fn new() -> Self {
        Self::on(Cluster::new())
    }

    fn on(cluster: Cluster) -> Self {
        let api = KubeApi::shared_with_crds();
        let namespace = api.new_namespace();
        // Other tests use the same API server.
        let node = cluster.node(&format!("n1-{namespace}"));
        let world = Self { proxy: ApiProxy::before(api), cluster, api, namespace, node };
        world.only_own();
        world
    }

    fn only_own(&self) {
        self.proxy.clear();
        for path in [PODS, NADS, CLAIMS] {
            let namespace = self.namespace.clone();
            self.proxy.rule(Rule::get(path).edit(move |list| {
                if let Some(items) = list.get_mut("items").and_then(Value::as_array_mut) {
                    items.retain(|item| item["metadata"]["namespace"] == namespace.as_str());
                }
            }));
        }
    }

    /// Defines a network around `ipam` and returns its configuration as a runtime hands it on.
    fn network(&self, name: &str, ipam: Value) -> Value {
        let config = network_as("1.0.0", name, ipam);
        self.define(name, &config.to_string());
        config
    }

    fn define(&self, name: &str, config: &str) {
        self.api.apply(&json!({
            "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": {"namespace": self.namespace, "name": name}, "spec": {"config": config},
        }));
    }

    fn pod(&self, name: &str) -> PodBuilder {
        self.api.pod(&self.namespace, name).node(self.node.name()).phase("Running")
    }

    /// A running pod with net1 in `config`'s network, as the kubelet, multus and metes make it.
    fn attached(&self, name: &str, config: &Value) -> Attached {
        self.attach(self.pod(name), name, None, config)
    }

    /// `uid` is the UID that the kubelet knows, which may differ from the API's.
    fn attach(&self, pod: PodBuilder, container: &str, uid: Option<&str>, config: &Value) -> Attached {
        let pod = pod.create();
        let uid = uid.unwrap_or(pod.uid()).to_owned();
        let container = format!("{container}-sandbox");
        let mut attached = Attached { pod, uid, container, config: config.clone(), addresses: Vec::new() };
        let added = attached.add(&self.node, &attached.container);
        attached.addresses = added.addresses();
        attached.tell();
        attached
    }

    fn adopt(&self, args: &[&str]) -> Outcome {
        let output = ["adopt", "-o", "json"].into_iter().chain(args.iter().copied());
        self.cluster.reconciler(&self.proxy).args(output).run()
    }

    /// It took the store into service. Returns the report.
    #[track_caller]
    fn adopted(&self) -> Value {
        let outcome = self.adopt(&[]);
        let report = outcome.ok();
        assert_eq!(report["conflicts"], json!([]), "{outcome}");
        assert!(self.meta()["suspect"].is_null() && report["epoch"] == self.meta()["epoch"], "{outcome}");
        report
    }

    /// It found conflicts and left the store suspect. Returns of each the pod's name, the kind, and the address.
    #[track_caller]
    fn conflicts(&self, args: &[&str]) -> Vec<(String, String, String)> {
        let outcome = self.adopt(args);
        assert_eq!(outcome.status.code(), Some(1), "{outcome}");
        assert!(outcome.stderr.contains("conflicts"), "{outcome}");
        let meta = self.meta();
        assert_eq!(meta["suspect"], meta["epoch"], "{outcome}");
        let report = outcome.json();
        assert!(report["epoch"].is_null(), "{outcome}");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let conflicts = report["conflicts"].as_array().expect("an array");
        let short = |one: &Value| text(&one["pod"]).split('/').next_back().unwrap_or_default().to_owned();
        conflicts.iter().map(|one| (short(one), text(&one["kind"]), text(&one["address"]))).collect()
    }

    fn meta(&self) -> Value {
        serde_json::from_slice(&self.cluster.store().get(META).expect("there is meta")).expect("JSON")
    }

    /// The holder of each address: the container's id.
    fn holders(&self) -> BTreeMap<String, String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let listed = self.node.list();
        listed.iter().map(|one| (text(&one["address"]), text(&one["container_id"]))).collect()
    }

    /// Every one of these pods, and nobody else, holds the addresses that it uses.
    #[track_caller]
    fn assert_held(&self, pods: &[&Attached]) {
        let holders = self.holders();
        let mut used = BTreeMap::new();
        for attached in pods {
            for address in attached.ips() {
                let holder = holders.get(&address);
                let owners = [attached.container.clone(), format!("adopted-{}", attached.uid)];
                assert!(
                    holder.is_some_and(|holder| owners.contains(holder)),
                    "{address} of {} is held by {holder:?}",
                    attached.container
                );
                let before = used.insert(address, attached.container.clone());
                assert_eq!(before, None, "two pods of the test use one address");
            }
        }
        assert_eq!(holders.len(), used.len(), "{holders:?} {used:?}");
    }
}

/// A pod with its interface net1.
struct Attached {
    pod: Pod,
    uid: String,
    container: String,
    config: Value,
    /// With their prefix lengths.
    addresses: Vec<String>,
}

impl Attached {
    fn ips(&self) -> Vec<String> {
        self.addresses.iter().map(|cidr| cidr.split('/').next().expect("an address").to_owned()).collect()
    }

    /// As multus does when the interface is there.
    fn tell(&self) {
        let name = self.config["name"].as_str().expect("a network has a name");
        let network = format!("{}/{name}", self.pod.namespace());
        self.pod.network_status(&json!([
            {"name": "cbr0", "interface": "eth0", "ips": ["10.244.0.9"], "default": true, "dns": {}},
            {"name": network, "interface": "net1", "ips": self.ips(), "dns": {}},
        ]));
    }

    fn run(&self, run: support::Run) -> support::Run {
        run.ifname("net1").pod(self.pod.namespace(), self.pod.name(), &self.uid).config(&self.config)
    }

    fn add(&self, node: &Node, container: &str) -> Outcome {
        self.run(node.add(container)).run()
    }

    fn del(&self, node: &Node) -> Outcome {
        self.run(node.del(&self.container)).run()
    }

    fn check(&self, node: &Node) -> Outcome {
        let ips: Vec<Value> = self.addresses.iter().map(|cidr| json!({"address": cidr})).collect();
        let mut config = self.config.clone();
        config["prevResult"] = json!({"cniVersion": "1.0.0", "ips": ips});
        self.run(node.check(&self.container)).config(&config).run()
    }

    /// The pod and its sandbox go as they should.
    fn end(&self, node: &Node) {
        self.del(node).silent();
        self.pod.delete();
    }
}

#[test]
fn after_the_restore_of_an_old_backup_every_pod_keeps_its_address() {
    let mut etcd = Etcd::start();
    let world = World::on(Cluster::on(&etcd));
    let config = world.network("blue", json!({"range": "10.70.0.0/24"}));
    let [kept, gone, twin] = ["kept", "gone", "twin"].map(|name| world.attached(name, &config));
    let backup = etcd.copy_data();
    let newer = world.attached("newer", &config);
    gone.end(&world.node);
    // Leaves a gap, which the lowest free address fills.
    let heir = world.attached("heir", &config);
    assert_eq!(heir.addresses, gone.addresses);
    etcd.restore_data(&backup);

    let refused = newer.add(&world.node, "late").error(102);
    let details = refused["details"].as_str().expect("it says what to do");
    assert!(details.contains("metes-reconciler adopt"), "{details}");
    assert!(world.cluster.check().stdout.contains("metes-reconciler adopt"));

    let before = world.cluster.store().revision();
    let dry = world.adopt(&["--dry-run"]).ok();
    assert_eq!(world.cluster.store().revision(), before, "a dry run writes nothing at all");
    assert_eq!(
        (dry["present"].as_u64(), dry["adopted"].as_array().map(Vec::len)),
        (Some(2), Some(2)),
        "{dry}"
    );
    assert_eq!(dry["epoch"], Value::Null);

    let report = world.adopted();
    assert_eq!(report["adopted"], dry["adopted"]);
    assert_eq!(report["replaced"][0]["container"], "gone-sandbox", "{report}");
    assert_eq!(report["epoch"], 2);
    world.assert_held(&[&kept, &twin, &newer, &heir]);

    // The high-water mark of this node is of an earlier epoch, and does not count any more.
    let fresh = world.attached("fresh", &config);
    world.assert_held(&[&kept, &twin, &newer, &heir, &fresh]);
    for pod in [&kept, &newer, &heir] {
        pod.check(&world.node).silent();
    }
    world.cluster.assert_clean();

    let again = world.adopted();
    assert_eq!((again["present"].as_u64(), &again["adopted"]), (Some(5), &json!([])), "{again}");
    assert_eq!(again["epoch"], 3, "a restore that cannot be seen is taken for one");
    world.attached("later", &config);
    world.cluster.assert_clean();
}

#[test]
fn what_was_adopted_lives_as_long_as_its_pod() {
    let world = World::new();
    let config = world.network("blue", json!({"range": "10.70.0.0/24"}));
    let [retried, deleted] = ["retried", "deleted"].map(|name| world.attached(name, &config));
    world.cluster.store().delete_prefix("v1/");
    assert_eq!(world.adopted()["adopted"].as_array().map(Vec::len), Some(2));
    let adopted = |attached: &Attached| format!("adopted-{}", attached.uid);
    assert_eq!(world.holders()[&retried.ips()[0]], adopted(&retried));

    // The sandbox is made anew: the addresses adopted for its pod are taken over.
    let second = retried.add(&world.node, "second-sandbox");
    assert_eq!(second.addresses(), retried.addresses);
    assert_eq!(world.holders()[&retried.ips()[0]], "second-sandbox");
    retried.check(&world.node).error(102);

    // A DEL knows the sandbox and nothing of the pod.
    deleted.check(&world.node).silent();
    deleted.del(&world.node).silent();
    assert_eq!(world.holders()[&deleted.ips()[0]], adopted(&deleted));
    // CNI's garbage collection does not know whether its container is among the valid ones.
    let mut gc = network_as("1.1.0", "blue", json!({"range": "10.70.0.0/24"}));
    gc["cni.dev/valid-attachments"] = json!([]);
    world.node.change_host_file(json!({"gc_grace_s": 0}));
    world.node.gc().config(&gc).run().silent();
    assert_eq!(world.holders().get(&deleted.ips()[0]), Some(&adopted(&deleted)));

    // The pass does, once the pod is gone.
    let pass = || world.cluster.reconciler(&world.proxy).args(["--grace", "0s", "-o", "json"]).run().ok();
    // That collection has freed the address that this pod reports, so a pass would free nothing in the network.
    retried.pod.delete();
    assert_eq!(pass()["addresses_freed"], 0);
    deleted.pod.delete();
    let told = pass();
    assert_eq!(told["freed"], json!({"pod-gone": 1}), "{told}");
    assert_eq!(world.holders().get(&deleted.ips()[0]), None);
    world.cluster.assert_clean();
}

#[test]
fn addresses_that_outlive_their_pods_are_adopted_for_the_pods_names() {
    let mut etcd = Etcd::start();
    let world = World::on(Cluster::on(&etcd));
    let config = world.network("keep", json!({"range": "10.74.0.0/24", "sticky": "pod", "keep": "1h"}));
    let plain = world.network("plain", json!({"range": "10.74.0.0/24"}));
    let names = ["kept", "restarted", "moved", "ended", "idle", "left", "right"];
    let [kept, restarted, moved, ended, idle, left, right] = names.map(|name| world.attached(name, &config));
    idle.end(&world.node);
    let backup = etcd.copy_data();
    // One pod was made anew, a hold was ended and made anew with another address, the address of one that was ended
    // went to another pod, and two have exchanged theirs.
    restarted.end(&world.node);
    let restarted = world.attached("restarted", &config);
    moved.end(&world.node);
    ended.end(&world.node);
    for pod in [&moved, &ended] {
        assert!(world.node.cli(["hold", "--remove", &pod.ips()[0]]).succeeded());
    }
    let heirs = [world.attached("heir", &plain), world.attached("guest", &plain)];
    let before = moved.addresses;
    let moved = world.attached("moved", &config);
    assert!(heirs[0].addresses == before && moved.addresses != before, "{:?}", moved.addresses);
    for pod in [&left, &right] {
        pod.end(&world.node);
        assert!(world.node.cli(["hold", "--remove", &pod.ips()[0]]).succeeded());
    }
    let before = [left.addresses, right.addresses];
    let [right, left] = ["right", "left"].map(|name| world.attached(name, &config));
    assert_eq!([&right.addresses, &left.addresses], [&before[0], &before[1]]);
    let newer = world.attached("newer", &config);
    etcd.restore_data(&backup);

    let dry = world.adopt(&["--dry-run"]).ok();
    let report = world.adopted();
    let count = |report: &Value| (report["adopted"].as_array().map(Vec::len), report["present"].as_u64());
    assert_eq!((count(&dry), count(&report)), ((Some(7), Some(1)), (Some(7), Some(1))), "{dry} {report}");
    let replaced = report["replaced"].as_array().expect("a list");
    let text = |value: &Value| value["container"].as_str().unwrap_or_default().to_owned();
    let replaced: BTreeSet<String> = replaced.iter().map(text).collect();
    let of =
        |names: &[&str], end: &str| names.iter().map(|name| format!("{name}{end}")).collect::<BTreeSet<_>>();
    let ended = ["ended", "moved", "left", "right"];
    let sandboxes = of(&[&ended[..], &["restarted"]].concat(), "-sandbox");
    assert_eq!(replaced, of(&ended, "").into_iter().chain(sandboxes).collect(), "{report}");
    world.cluster.assert_clean();

    // Its sandbox's DEL knows nothing of the adopted user, so the next pod waits until a pass has judged that.
    restarted.end(&world.node);
    let next = world.pod("restarted").create();
    let again = Attached { uid: next.uid().to_owned(), pod: next, container: "next".to_owned(), ..restarted };
    let refused = again.add(&world.node, "next-sandbox").error(11);
    assert!(refused["msg"].as_str().is_some_and(|text| text.contains("adopted-")), "{refused}");
    let pass = world.cluster.reconciler(&world.proxy).args(["--grace", "0s", "-o", "json"]).run().ok();
    assert_eq!(pass["freed"], json!({"pod-gone": 1}), "{pass}");
    assert_eq!(again.add(&world.node, "next-sandbox").addresses(), again.addresses);
    for pod in [kept, moved, newer, left, right] {
        pod.check(&world.node).silent();
        pod.end(&world.node);
        let pass = world.cluster.reconciler(&world.proxy).args(["--grace", "0s", "-o", "json"]).run();
        assert!(pass.succeeded(), "{pass}");
        let next = world.attached(pod.pod.name(), &config);
        assert_eq!(next.addresses, pod.addresses);
    }
    assert_eq!(world.attached("idle", &config).addresses, idle.addresses);
    world.cluster.assert_clean();
}

#[test]
fn an_etcd_that_was_lost_is_rebuilt() {
    let mut etcd = Etcd::start();
    let empty = etcd.copy_data();
    let world = World::on(Cluster::on(&etcd));
    let dual =
        world.network("dual", json!({"ipRanges": [{"range": "10.71.0.0/24"}, {"range": "fd71::/64"}]}));
    let listed = json!({"cniVersion": "1.0.0", "name": "listed", "plugins": [
        {"type": "macvlan", "ipam": {"type": "metes", "subnet": "10.72.0.0/24", "order": "spread"}},
        {"type": "tuning"},
    ]});
    world.define("listed", &listed.to_string());
    let mut of_list = listed["plugins"][0].clone();
    of_list["name"] = json!("listed");
    of_list["cniVersion"] = json!("1.0.0");
    let own = world.network("own", json!({"range": "10.73.0.0/24", "enable_overlapping_ranges": false}));
    let fixed = world.network(
        "fixed",
        json!({
            "network_name": "fixed", "addresses": [{"address": "192.0.2.9/24"}],
        }),
    );
    let mirror = world.pod("static-n1").mirror_of("0123456789abcdef");
    let pods = [
        world.attached("dual", &dual),
        world.attached("listed", &of_list),
        world.attached("own", &own),
        world.attached("fixed", &fixed),
        world.attach(mirror, "static", Some("0123456789abcdef"), &dual),
    ];
    assert_eq!(pods[0].addresses.len(), 2);
    // A pod whose sandbox is still being made has no status yet, and is left out.
    world.pod("pending").phase("Pending").annotation("k8s.v1.cni.cncf.io/networks", "dual").create();
    world.pod("done").phase("Succeeded").annotation("k8s.v1.cni.cncf.io/networks", "dual").create();
    etcd.restore_data(&empty);

    pods[0].add(&world.node, "late").error(102);
    assert_eq!(world.cluster.store().keys("v1/owner/"), Vec::<String>::new());
    let report = world.adopted();
    assert_eq!(report["adopted"].as_array().map(Vec::len), Some(pods.len()), "{report}");
    world.assert_held(&pods.iter().collect::<Vec<_>>());
    for pod in &pods {
        pod.check(&world.node).silent();
        assert_eq!(pod.add(&world.node, &format!("{}-again", pod.container)).addresses(), pod.addresses);
    }
    world.cluster.assert_clean();
}

#[test]
fn allocations_that_have_lost_their_meta_are_put_under_suspicion_first() {
    let etcd = Etcd::start();
    let world = World::on(Cluster::on(&etcd));
    let config = world.network("blue", json!({"range": "10.70.0.0/24"}));
    let pods = ["a", "b"].map(|name| world.attached(name, &config));
    world.cluster.store().delete(META);
    let before = world.cluster.store().revision();
    world.adopt(&["--dry-run"]).ok();
    assert_eq!(world.cluster.store().revision(), before);
    assert_eq!(world.cluster.store().get(META), None);
    let report = world.adopted();
    assert_eq!((report["present"].as_u64(), report["epoch"].as_u64()), (Some(2), Some(2)), "{report}");
    world.assert_held(&[&pods[0], &pods[1]]);
    world.cluster.assert_clean();
}

#[test]
fn what_is_set_aside_is_not_taken_for_a_pod_that_uses_it() {
    let world = World::new();
    let config = world.network("net", json!({"range": "10.60.0.0/24", "order": "lowest"}));
    let pod = world.attached("web-0", &config);
    world.node.del(&pod.container).ifname("net1").config(&config).run().silent();
    let hold = ["hold", "10.60.0.1", "--note", "printer"];
    assert!(world.node.cli(hold).succeeded());
    world.cluster.store().change_meta(&json!({"suspect": 1}));
    let outcome = world.adopt(&[]);
    let why = "held by the hold of 10.60.0.1 in network default: set-aside";
    assert!(outcome.status.code() == Some(1) && outcome.stdout.contains(why), "{outcome}");
    assert!(
        world.node.cli(["hold", "--remove", "10.60.0.1"]).succeeded(),
        "a hold ends while the store is suspect"
    );
    world.adopted();
    world.assert_held(&[&pod]);
    world.cluster.assert_clean();
}

#[test]
fn whatever_nobody_can_decide_leaves_the_store_suspect() {
    let etcd = Etcd::start();
    let world = World::on(Cluster::on(&etcd));
    let config = world.network("blue", json!({"range": "10.70.0.0/24"}));
    let store = world.cluster.store();
    let uses = |name: &str, network: &str, ips: Value| {
        let network = format!("{}/{network}", world.namespace);
        world.pod(name).network_status(&json!([{"name": network, "interface": "net1", "ips": ips}])).create()
    };
    // Held by a pod that exists and whose status does not name the address.
    let quiet = world.attached("quiet", &config);
    quiet.pod.annotate("k8s.v1.cni.cncf.io/network-status", "");
    let mut pods = vec![uses("held", "blue", json!(quiet.ips()))];
    pods.push(uses("twin-1", "blue", json!(["10.70.0.100"])));
    pods.push(uses("twin-2", "blue", json!(["10.70.0.100"])));
    pods.push(uses("outside", "blue", json!(["10.99.0.1"])));
    pods.push(uses("lost", "no-such", json!(["10.70.0.101"])));
    world.define("file", "");
    pods.push(uses("file", "file", json!(["10.70.0.102"])));
    pods.push(uses("silent", "blue", json!([])));
    pods.push(world.pod("unknown").annotation("k8s.v1.cni.cncf.io/networks", "blue").create());
    pods.push(world.pod("garbled").annotation("k8s.v1.cni.cncf.io/network-status", "{").create());
    let garbage = "v1/net/default/ip/00000000000000000000ffff0a460068";
    store.put(garbage, "garbage");
    pods.push(uses("garbage", "blue", json!(["10.70.0.104"])));
    // Held by another cluster, and by a pod that is gone and whose node does not answer.
    let other = world.cluster.node_with("other", json!({"cluster": "other"}));
    let foreign = other.add("foreign").pod("ns", "foreign", "u-1").config(&config).run().address();
    pods.push(uses("foreign", "blue", json!([foreign])));
    let cut = world.cluster.node(&format!("cut-{}", world.namespace));
    let cut_off = world.api.node(cut.name());
    cut_off.ready(false);
    let away = cut
        .add("away")
        .pod("ns", "away", "00000000-0000-4000-8000-000000000002")
        .config(&config)
        .run()
        .address();
    pods.push(uses("away", "blue", json!([away])));
    // A reservation whose owner has no record.
    let torn = world.node.add("torn").pod("ns", "torn", "u-3").config(&config).run().address();
    let torn_key = format!("v1/owner/test/{}/torn/eth0", world.node.name());
    let record = store.get(&torn_key).expect("a record");
    store.delete(&torn_key);
    pods.push(uses("torn", "blue", json!([torn])));

    let row = |pod: &str, kind: &str, address: &str| (pod.to_owned(), kind.to_owned(), address.to_owned());
    let mut expected = vec![
        row("away", "held", &away),
        row("file", "unknown-network", ""),
        row("foreign", "held", &foreign),
        row("garbage", "undecodable", "10.70.0.104"),
        row("garbled", "no-status", ""),
        row("held", "held", &quiet.ips()[0]),
        row("lost", "unknown-network", ""),
        row("outside", "outside", "10.99.0.1"),
        row("silent", "no-status", ""),
        row("torn", "contradiction", &torn),
        row("twin-2", "two-users", "10.70.0.100"),
        row("unknown", "no-status", ""),
    ];
    assert_eq!(world.conflicts(&[]), expected);
    let after = store.revision();
    assert_eq!(world.conflicts(&["--dry-run"]), expected);
    assert_eq!(store.revision(), after);
    quiet.add(&world.node, "late").error(102);

    // A person says of two networks that they are not metes'.
    let [lost, file] = ["no-such", "file"].map(|name| format!("{}/{name}", world.namespace));
    expected.retain(|(_, kind, _)| kind != "unknown-network");
    assert_eq!(world.conflicts(&["--not-metes", &lost, "--not-metes", &file]), expected);

    // When all conflicts are settled, the store goes into service.
    cut_off.ready(true);
    store.delete(garbage);
    store.put(&torn_key, record);
    for pod in pods.iter().filter(|pod| !["away", "twin-1", "garbage", "torn"].contains(&pod.name())) {
        pod.delete();
    }
    quiet.tell();
    let report = world.adopted();
    let replaced: Vec<&str> = report["replaced"]
        .as_array()
        .expect("an array")
        .iter()
        .filter_map(|owner| owner["container"].as_str())
        .collect();
    assert_eq!(replaced, ["away", "torn"], "{report}");
    world.cluster.assert_clean();
}

#[test]
fn what_a_pod_asked_for_and_its_status_does_not_list_is_told() {
    let world = World::new();
    world.network("blue", json!({"range": "10.70.0.0/24"}));
    // Multus knows nothing of the interface of such a plugin.
    let old = network_as("0.2.0", "old", json!({"range": "10.71.0.0/24"}));
    world.define("old", &old.to_string());
    world.define("other", r#"{"cniVersion": "1.0.0", "type": "macvlan", "ipam": {"type": "dhcp"}}"#);
    let networks = "k8s.v1.cni.cncf.io/networks";
    let full = |name: &str| format!("{}/{name}", world.namespace);
    let own = json!({"name": "cbr0", "interface": "eth0", "ips": ["10.244.0.9"], "default": true});
    let asks = |name: &str, asked: &str| world.pod(name).annotation(networks, asked);
    // Listed without a name: it is the second of those that were asked for.
    let nameless = asks("nameless", "blue, old").network_status(&json!([
        own,
        {"name": full("blue"), "interface": "net1", "ips": ["10.70.0.9"]},
        {"name": full("old"), "ips": ["10.71.0.9"]},
    ]));
    let nameless = nameless.create();
    suspect(&world);
    let report = world.adopted();
    let rows = report["adopted"].as_array().expect("a list");
    let interfaces: Vec<&str> = rows.iter().filter_map(|row| row["interface"].as_str()).collect();
    assert_eq!(interfaces, ["net1", "net2"], "{report}");
    let again = world.node.add("again").ifname("net2").pod(nameless.namespace(), "nameless", nameless.uid());
    assert_eq!(again.config(&old).run().address(), "10.71.0.9", "its next sandbox finds it");

    // An interface whose name is unknown is found by the reservations for the pod.
    let twice = asks("twice", "old, old").create();
    let run = world.node.add("twice").ifname("net2").pod(twice.namespace(), "twice", twice.uid());
    let address = run.config(&old).run().address();
    twice.network_status(&json!([own, {"name": full("old"), "ips": [address]}]));
    let mut pods = vec![twice];
    let blue = json!({"name": full("blue"), "interface": "net1", "ips": ["10.70.0.20"]});
    let listed = json!([own, blue]);
    pods.push(asks("unlisted", "blue, old@data, other").network_status(&listed).create());
    let listed = json!([own, {"name": full("old"), "ips": ["10.71.0.30"]}]);
    pods.push(asks("unsure", "old, old").network_status(&listed).create());
    let own_network = "v1.multus-cni.io/default-network";
    pods.push(
        world.pod("replaced").annotation(own_network, &full("blue")).network_status(&json!([own])).create(),
    );
    pods.push(asks("undefined", "no-such").network_status(&json!([own])).create());
    // Its sandbox is there, though its first container waits for another one.
    let starting = asks("starting", "blue").phase("Pending").create();
    starting.status(json!({"podIPs": [{"ip": "10.244.0.7"}]}));
    pods.push(starting);
    // Multus attaches nothing to it.
    asks("on-host", "blue").with(json!({"spec": {"hostNetwork": true}})).create();
    suspect(&world);
    let row = |pod: &str, kind: &str, address: &str| (pod.to_owned(), kind.to_owned(), address.to_owned());
    let expected = [
        row("replaced", "no-status", ""),
        row("starting", "no-status", ""),
        row("twice", "no-status", ""),
        row("undefined", "unknown-network", ""),
        row("unlisted", "no-status", ""),
        row("unsure", "no-status", ""),
        row("unsure", "no-status", "10.71.0.30"),
    ];
    assert_eq!(world.conflicts(&[]), expected);
    let interface = world.adopt(&["--dry-run"]).json()["conflicts"].to_string();
    assert!(interface.contains(r#""interface":"data""#), "{interface}");
    for pod in pods {
        pod.delete();
    }
    world.adopted();
    world.cluster.assert_clean();
}

/// The pods use the addresses that the next one held, as after a new start of their node.
fn shift(pods: &mut [Attached]) {
    let first = pods[0].addresses.clone();
    for i in 0..pods.len() {
        pods[i].addresses = pods.get(i + 1).map_or_else(|| first.clone(), |next| next.addresses.clone());
        pods[i].tell();
    }
}

/// Each pod keeps the address that it uses, and gets it again.
#[track_caller]
fn assert_used(world: &World, pods: &[Attached]) {
    world.assert_held(&pods.iter().collect::<Vec<_>>());
    for pod in pods {
        assert_eq!(pod.add(&world.node, &format!("{}-again", pod.container)).addresses(), pod.addresses);
    }
    world.cluster.assert_clean();
}

#[test]
fn pods_that_changed_addresses_among_them_are_put_right_together() {
    let etcd = Etcd::start();
    let world = World::on(Cluster::on(&etcd));
    let plain = world.network("blue", json!({"range": "10.70.0.0/24"}));
    let dual = json!({"ipRanges": [{"range": "10.71.0.0/24"}, {"range": "fd71::/64"}]});
    let dual = world.network("dual", dual);
    let mut pair = ["a", "b"].map(|name| world.attached(name, &plain));
    let mut ring = ["r1", "r2", "r3", "r4"].map(|name| world.attached(name, &plain));
    // The addresses of one family changed places, the others stayed.
    let mut halves = ["h1", "h2"].map(|name| world.attached(name, &dual));
    // Not a ring: the last one uses an address that nobody held, and nobody uses the one that the first held.
    let mut chain = ["c1", "c2"].map(|name| world.attached(name, &plain));
    let unused = chain[0].ips()[0].clone();
    shift(&mut pair);
    shift(&mut ring);
    let (first, second) = halves.split_at_mut(1);
    std::mem::swap(&mut first[0].addresses[0], &mut second[0].addresses[0]);
    chain[0].addresses = chain[1].addresses.clone();
    chain[1].addresses = vec!["10.70.0.77/24".to_owned()];
    for pod in halves.iter().chain(&chain) {
        pod.tell();
    }
    let all = || pair.iter().chain(&ring).chain(&halves).chain(&chain);
    suspect(&world);
    let before = world.cluster.store().revision();
    let dry = world.adopt(&["--dry-run"]).ok();
    assert_eq!(world.cluster.store().revision(), before);
    let report = world.adopted();
    assert_eq!(report["adopted"], dry["adopted"]);
    assert_eq!(report["adopted"].as_array().map(Vec::len), Some(10), "{report}");
    assert_eq!(report["present"], 0, "{report}");
    let holders = world.holders();
    for pod in all() {
        for address in pod.ips() {
            assert_eq!(holders[&address], format!("adopted-{}", pod.uid), "{address}");
        }
    }
    assert_eq!(holders[&unused], chain[0].container, "nobody says that it is free");
    for pod in pair.iter().chain(&ring).chain(&halves) {
        assert_eq!(pod.add(&world.node, &format!("{}-again", pod.container)).addresses(), pod.addresses);
    }
    world.cluster.assert_clean();
    assert_eq!(world.adopted()["adopted"], json!([]));
}

#[test]
fn who_gives_up_an_address_must_say_so_and_get_what_it_uses() {
    let world = World::new();
    let config = world.network("blue", json!({"range": "10.70.0.0/24"}));
    let mut pods = ["a", "b"].map(|name| world.attached(name, &config));
    // Nobody here knows the addresses that the other cluster uses.
    let other = world.cluster.node_with("other", json!({"cluster": "other"}));
    let foreign = other.add("foreign").pod("ns", "foreign", "u-1").config(&config).run().address();
    let before = world.holders();
    pods[0].addresses = pods[1].addresses.clone();
    pods[1].addresses = vec![format!("{foreign}/24")];
    pods.iter().for_each(Attached::tell);
    suspect(&world);
    let row = |pod: &str, address: &str| (pod.to_owned(), "held".to_owned(), address.to_owned());
    let expected = [row("a", &pods[0].ips()[0]), row("b", &foreign)];
    assert_eq!(world.conflicts(&[]), expected, "neither is made while the other cannot be");
    assert_eq!(world.holders(), before);

    // The kubelet may have written that status before the backup was made.
    pods[1].addresses = vec!["10.70.0.77/24".to_owned()];
    pods[1].tell();
    let node = world.api.node(world.node.name());
    node.ready(false);
    assert_eq!(world.conflicts(&[]), expected[..1], "the node is not heard of");
    node.delete();
    let report = world.adopted();
    assert_eq!(report["adopted"][0]["pod"], format!("{}/a", world.namespace), "{report}");
    world.cluster.assert_clean();
}

#[test]
fn a_trade_that_is_killed_leaves_nothing_doubled_and_is_finished_by_the_next_run() {
    let world = World::new();
    let config = world.network("blue", json!({"range": "10.70.0.0/24"}));
    let kill = |point: &str| {
        let adopt = world.cluster.reconciler(&world.proxy).program(failing_reconciler()).args(["adopt"]);
        adopt.env("METES_FAIL", format!("{point}=kill")).run()
    };
    // More than one transaction takes, so it is a sequence of them.
    let mut pods: Vec<Attached> = (0..40).map(|i| world.attached(&format!("p{i}"), &config)).collect();
    for (points, ring) in [
        (&["assign.before", "assign.sent", "assign.answered"][..], 5),
        (&["assign#1.answered", "assign#3.sent", "assign#20.answered"], 40),
    ] {
        for point in points {
            shift(&mut pods[..ring]);
            suspect(&world);
            let killed = kill(point);
            assert!(!killed.succeeded() && !world.meta()["suspect"].is_null(), "{killed}");
            let listed = world.holders();
            let uids: std::collections::BTreeSet<&String> = listed.values().collect();
            assert_eq!(uids.len(), listed.len(), "no pod holds two of them at {point}");
            world.adopted();
            world.assert_held(&pods.iter().collect::<Vec<_>>());
        }
    }
    assert_used(&world, &pods);
}

#[test]
fn an_adoption_that_is_killed_is_run_again() {
    let world = World::new();
    let plain = world.network("blue", json!({"range": "10.70.0.0/24"}));
    let kept = world.network("keep", json!({"range": "10.70.0.0/24", "sticky": "pod"}));
    let config = |i: usize| if i.is_multiple_of(2) { &plain } else { &kept };
    let pods: Vec<Attached> = (0..24).map(|i| world.attached(&format!("p{i}"), config(i))).collect();
    for kill_at in [0, 1, 7, 15] {
        world.cluster.store().delete_prefix("v1/");
        let mut running = world.cluster.reconciler(&world.proxy).args(["adopt"]).spawn();
        wait_for("some of it to be done", Duration::from_secs(30), || {
            let done = world.cluster.store().keys("v1/owner/").len();
            let is_marked = world.cluster.store().get(META).is_some();
            if done >= kill_at && is_marked { Ok(()) } else { Err(format!("{done}")) }
        });
        running.kill();
        running.wait();
        let done = world.cluster.store().keys("v1/owner/").len();
        // A hold has a record beside that of its user.
        if done < pods.len() + pods.len() / 2 {
            assert!(!world.meta()["suspect"].is_null(), "half of it is no clean run");
            pods[0].add(&world.node, "late").error(102);
        }
        world.adopted();
        world.assert_held(&pods.iter().collect::<Vec<_>>());
    }
    world.cluster.assert_clean();
}

#[test]
fn an_etcd_that_stops_in_the_middle_costs_a_second_run_at_most() {
    let etcd = Etcd::start();
    let world = World::on(Cluster::on(&etcd));
    let config = world.network("blue", json!({"range": "10.70.0.0/24"}));
    let pods: Vec<Attached> = (0..24).map(|i| world.attached(&format!("p{i}"), &config)).collect();
    world.cluster.store().delete_prefix("v1/");
    let running = world.cluster.reconciler(&world.proxy).args(["adopt"]).spawn();
    wait_for("some of it to be done", Duration::from_secs(30), || {
        let done = world.cluster.store().keys("v1/owner/").len();
        if done > 2 { Ok(()) } else { Err(format!("{done}")) }
    });
    etcd.stop();
    // This lasts longer than one attempt of a request, so the outcome of the request is open.
    std::thread::sleep(Duration::from_secs(3));
    etcd.resume();
    let outcome = running.wait();
    if !outcome.succeeded() {
        assert!(outcome.stderr.contains("run it again"), "{outcome}");
        assert!(!world.meta()["suspect"].is_null(), "{outcome}");
        world.adopted();
    }
    world.assert_held(&pods.iter().collect::<Vec<_>>());
    world.cluster.assert_clean();
}

#[test]
fn two_at_once_come_to_the_same_end() {
    let world = World::new();
    let config = world.network("blue", json!({"range": "10.70.0.0/24"}));
    let pods: Vec<Attached> = (0..12).map(|i| world.attached(&format!("p{i}"), &config)).collect();
    world.cluster.store().delete_prefix("v1/");
    let start = || world.cluster.reconciler(&world.proxy).args(["adopt"]).spawn();
    let both = [start(), start()].map(support::Running::wait);
    assert!(both.iter().any(Outcome::succeeded), "{}{}", both[0], both[1]);
    for ended in both.iter().filter(|ended| !ended.succeeded()) {
        assert!(ended.stderr.contains("somebody else changed"), "{ended}");
    }
    world.assert_held(&pods.iter().collect::<Vec<_>>());
    assert!(world.meta()["suspect"].is_null());
    world.cluster.assert_clean();
}

#[test]
fn an_api_that_cannot_be_relied_on_takes_nothing_into_service() {
    let world = World::new();
    let config = world.network("blue", json!({"range": "10.70.0.0/24"}));
    let pod = world.attached("a", &config);
    world.cluster.store().delete_prefix("v1/");
    for path in [PODS, NADS, "/api/v1/nodes"] {
        for fault in [Rule::get(path).status(500), Rule::get(path).cut_after(40), Rule::get(path).status(403)]
        {
            world.proxy.clear().rule(fault);
            let outcome = world.adopt(&[]);
            assert_eq!(outcome.status.code(), Some(1), "{path}: {outcome}");
            assert!(outcome.json()["error"].is_string(), "{path}: {outcome}");
            assert_eq!(world.meta()["suspect"], json!(1), "{path}: {outcome}");
            assert!(world.holders().is_empty(), "{path}");
        }
    }
    world.proxy.clear().rule(Rule::get(PODS).hang());
    let outcome = world.adopt(&["--timeout", "2s"]);
    assert!(outcome.stderr.contains("--timeout") && outcome.json()["error"].is_string(), "{outcome}");
    assert_eq!(world.meta()["suspect"], json!(1));
    // Another cluster's API is noticed before anything is written.
    world.only_own();
    let registered = json!({"v": 1, "uid": "another"}).to_string();
    world.cluster.store().put("v1/cluster/test", registered);
    world.cluster.store().delete(META);
    let outcome = world.adopt(&[]);
    assert!(outcome.stderr.contains("kube-system") && !outcome.succeeded(), "{outcome}");
    assert_eq!(world.cluster.store().get(META), None);
    world.cluster.store().delete("v1/cluster/test");
    world.adopted();
    world.assert_held(&[&pod]);
    world.cluster.assert_clean();
}

#[test]
fn an_adoption_that_is_aborted_tells_what_was_done_and_no_table_of_zeros() {
    let world = World::new();
    let config = world.network("blue", json!({"range": "10.70.0.0/24"}));
    let pods: Vec<Attached> = (0..12).map(|i| world.attached(&format!("p{i}"), &config)).collect();
    let text = |outcome: &Outcome| -> Vec<String> { outcome.stdout.lines().map(str::to_owned).collect() };
    let adopt = |args: &[&str]| {
        world.cluster.reconciler(&world.proxy).program(failing_reconciler()).args(["adopt"]).args(args)
    };
    world.cluster.store().delete_prefix("v1/");
    world.proxy.rule(Rule::get("/api/v1/nodes").status(500));
    let nothing = adopt(&[]).run();
    assert_eq!(text(&nothing), ["cluster test: aborted; nothing was done"], "{nothing}");
    assert!(nothing.stderr.contains("list nodes"), "{nothing}");
    let json = adopt(&["-o", "json"]).run().json();
    let fields: Vec<&String> = json.as_object().expect("an object").keys().collect();
    assert_eq!(fields, ["aborted", "cluster", "dry_run", "error", "revision", "scanned"], "{json}");
    assert_eq!((&json["aborted"], &json["scanned"]["networks"]), (&json!(true), &json!(1)), "{json}");
    world.only_own();
    // etcd is out of space in the middle.
    let some = adopt(&[]).env("METES_FAIL", "assign#4.before=error:nospace").run();
    let lines = text(&some);
    assert_eq!(lines[0], "cluster test: aborted; what was done until then:", "{some}");
    assert!(lines.len() > 1 && lines[1..].iter().all(|line| line.contains("net1 of pod")), "{some}");
    let json = adopt(&["-o", "json"]).env("METES_FAIL", "assign#1.before=error:nospace").run().json();
    assert!(json["aborted"] == true && json["conflicts"].is_null(), "{json}");
    // A run that has ended reports all that it has done.
    let report = world.adopted();
    assert_eq!((&report["aborted"], &report["error"]), (&json!(false), &Value::Null), "{report}");
    world.assert_held(&pods.iter().collect::<Vec<_>>());
    world.cluster.assert_clean();
}

#[test]
fn a_holder_that_comes_back_before_it_is_replaced_keeps_what_it_has() {
    let world = World::new();
    let config = world.network("blue", json!({"range": "10.70.0.0/24"}));
    let holder = world.attached("holder", &config);
    suspect(&world);
    let status = json!([{"name": "blue", "interface": "net1", "ips": holder.ips()}]);
    world.pod("claimant").network_status(&status).create();
    // In the listing it is missing, and a second look finds it.
    let namespace = world.namespace.clone();
    world.proxy.clear().rule(Rule::get(PODS).edit(move |list| {
        if let Some(items) = list.get_mut("items").and_then(Value::as_array_mut) {
            items.retain(|item| {
                item["metadata"]["namespace"] == namespace.as_str() && item["metadata"]["name"] != "holder"
            });
        }
    }));
    for path in [NADS, CLAIMS] {
        let namespace = world.namespace.clone();
        world.proxy.rule(Rule::get(path).edit(move |list| {
            if let Some(items) = list.get_mut("items").and_then(Value::as_array_mut) {
                items.retain(|item| item["metadata"]["namespace"] == namespace.as_str());
            }
        }));
    }
    let found = world.conflicts(&[]);
    assert_eq!(found, [("claimant".to_owned(), "held".to_owned(), holder.ips()[0].clone())]);
    assert_eq!(world.holders()[&holder.ips()[0]], holder.container);
    world.cluster.store().put(META, r#"{"v":1,"min_writer":1,"id":"test","epoch":1}"#);
    world.cluster.assert_clean();
}

#[test]
fn the_clusters_own_network_is_adopted_from_what_the_pods_say() {
    let world = World::new();
    let list = json!({"cniVersion": "1.0.0", "name": "cbr0", "plugins": [
        {"type": "bridge", "ipam": {"type": "metes", "subnet": "10.75.0.0/24"}}, {"type": "portmap"},
    ]});
    let file = world.cluster.folder().join("10-cbr0.conflist");
    std::fs::write(&file, list.to_string()).expect("a file can be written");
    let config = network_as("1.0.0", "cbr0", json!({"subnet": "10.75.0.0/24"}));
    let pod = world.pod("own").create();
    let add = |container: &str| world.node.add(container).pod(pod.namespace(), pod.name(), pod.uid());
    let address = add("first").config(&config).run().address();
    pod.status(json!({"podIPs": [{"ip": address}]}));
    let on_host = json!({"spec": {"hostNetwork": true}});
    world.pod("on-host").with(on_host).create().status(json!({"podIPs": [{"ip": "192.0.2.1"}]}));
    world.cluster.store().delete_prefix("v1/");
    let file = file.to_str().expect("a plain name");
    let report = world.adopt(&["--default-network", file]).ok();
    assert_eq!(report["adopted"][0]["addresses"][0]["ip"], address.as_str(), "{report}");
    assert_eq!(add("second").config(&config).run().address(), address);
    let wrong = world.adopt(&["--default-network", "/no/such/file"]);
    assert!(!wrong.succeeded() && wrong.stderr.contains("/no/such/file"), "{wrong}");
    world.cluster.assert_clean();
}

#[test]
fn a_cluster_without_multus_has_no_networks_to_look_up() {
    let world = World::new();
    let file = world.cluster.folder().join("cbr0.conf");
    let config = network_as("1.0.0", "cbr0", json!({"subnet": "10.75.0.0/24"}));
    std::fs::write(&file, config.to_string()).expect("a file can be written");
    let api = KubeApi::start();
    let adopt = |args: &[&str]| world.cluster.reconciler(&api).args(["adopt"]).args(args).run();
    let outcome = adopt(&[]);
    assert_eq!(outcome.status.code(), Some(1), "{outcome}");
    for words in [
        "cannot list network-attachment-definitions: 404",
        "this cluster has no NetworkAttachmentDefinitions",
        "--default-network FILE",
        "ConfigMap metes-default-network (docs/operations.md)",
    ] {
        assert!(outcome.stderr.contains(words), "{words}: {outcome}");
    }
    assert_eq!(world.meta()["suspect"], json!(1));
    let adopted = adopt(&["--default-network", file.to_str().expect("a plain name")]);
    assert!(adopted.succeeded(), "{adopted}");
    assert_eq!(world.meta()["suspect"], Value::Null);
    world.cluster.assert_clean();
}

#[test]
fn no_pod_adopts_more_than_its_networks_give_an_interface() {
    let world = World::new();
    let config = world.network("blue", json!({"range": "10.70.0.0/24"}));
    let honest = world.attached("honest", &config);
    world.cluster.store().delete_prefix("v1/");
    let network = format!("{}/blue", world.namespace);
    let says =
        |name: &str, interfaces: Vec<Value>| world.pod(name).network_status(&json!(interfaces)).create();
    let interface = |ips: Vec<String>| json!({"name": network, "interface": "net1", "ips": ips});
    let address = |i: usize| format!("10.70.0.{i}");
    // Everybody who may patch a pod can write its annotations.
    let wide = says("wide", vec![interface((20..60).map(address).collect())]);
    let often = says("often", (100..250).map(|i| interface(vec![address(i)])).collect());

    let conflicts = world.conflicts(&[]);
    assert!(conflicts.iter().all(|(_, kind, _)| kind == "too-many"), "{conflicts:?}");
    let pods: std::collections::BTreeSet<&str> = conflicts.iter().map(|(pod, ..)| pod.as_str()).collect();
    assert_eq!(pods.into_iter().collect::<Vec<_>>(), ["often", "wide"]);
    // That costs one address at most, which a pass frees with the pod.
    assert!(world.holders().len() <= 2, "{:?}", world.holders());
    wide.delete();
    often.delete();
    world.adopted();
    let outcome =
        world.cluster.reconciler(&world.proxy).args(["--grace", "0s", "--force", "-o", "json"]).run();
    outcome.ok();
    world.assert_held(&[&honest]);
    world.cluster.assert_clean();
}

#[test]
fn a_store_that_clusters_share_waits_for_all_of_them() {
    let mut etcd = Etcd::start();
    let world = World::on(Cluster::on(&etcd));
    let config = world.network("blue", json!({"range": "10.70.0.0/24"}));
    let here = world.attached("here", &config);
    // Another cluster at the same prefix: its reconciler has made a pass, and then one of its pods came.
    let there = world.cluster.node_with("there", json!({"cluster": "elsewhere"}));
    let pass = || world.cluster.reconciler(&world.proxy).config(there.host_file()).args(["-o", "json"]).run();
    pass().ok();
    let backup = etcd.copy_data();
    let late = there.add("late").pod("ns", "late", "u-late").config(&config).run().address();
    etcd.restore_data(&backup);

    let outcome = world.adopt(&[]);
    assert_eq!(outcome.status.code(), Some(1), "{outcome}");
    assert!(outcome.stderr.contains("elsewhere") && outcome.stderr.contains("--last"), "{outcome}");
    assert!(!world.meta()["suspect"].is_null(), "{outcome}");
    let next = there.add("next").pod("ns", "next", "u-next").config(&config).run();
    next.error(102);

    // A store that was lost knows of no other clusters, so a person has to say that there is one.
    let registered = world.cluster.store().get("v1/cluster/elsewhere").expect("a pass has registered it");
    world.cluster.store().delete("v1/cluster/elsewhere");
    assert_eq!(world.adopt(&["--not-last"]).status.code(), Some(1));
    assert!(!world.meta()["suspect"].is_null());
    world.cluster.store().put("v1/cluster/elsewhere", registered);

    // Its own adoption would have written it down by now.
    assert_ne!(here.ips()[0], late);
    world.adopt(&["--last"]).ok();
    assert!(world.meta()["suspect"].is_null());
    world.cluster.assert_clean();
}

#[test]
fn only_the_mirror_of_a_static_pod_goes_by_another_uid() {
    let world = World::new();
    let config = world.network("blue", json!({"range": "10.70.0.0/24"}));
    let victim = world.attached("victim", &config);
    let claims_to_be = world.pod("liar").annotation("kubernetes.io/config.hash", &victim.uid);
    let liar = world.attach(claims_to_be, "liar", None, &config);
    world.cluster.store().delete_prefix("v1/");
    world.adopted();
    world.assert_held(&[&victim, &liar]);
    for pod in [&victim, &liar] {
        assert_eq!(pod.add(&world.node, &format!("{}-again", pod.container)).addresses(), pod.addresses);
    }
    world.cluster.assert_clean();
}

#[test]
fn the_record_of_an_earlier_sandbox_is_kept_from_garbage_collection() {
    let mut etcd = Etcd::start();
    let world = World::on(Cluster::on(&etcd));
    let config = world.network("blue", json!({"range": "10.70.0.0/24"}));
    let pod = world.attached("a", &config);
    let backup = etcd.copy_data();
    // The sandbox is made anew and takes the address over; the backup knows the first one.
    assert_eq!(pod.add(&world.node, "second").addresses(), pod.addresses);
    pod.del(&world.node).silent();
    etcd.restore_data(&backup);
    world.adopted();

    let mut gc = network_as("1.1.0", "blue", json!({"range": "10.70.0.0/24"}));
    gc["cni.dev/valid-attachments"] = json!([{"containerID": "second", "ifname": "net1"}]);
    world.node.change_host_file(json!({"gc_grace_s": 0}));
    world.node.gc().config(&gc).run().silent();
    assert_eq!(world.holders().keys().collect::<Vec<_>>(), pod.ips().iter().collect::<Vec<_>>());
    let other = world.attached("b", &config);
    assert_ne!(other.addresses, pod.addresses, "a running pod uses it");
    world.cluster.assert_clean();
}

#[test]
fn a_definition_gets_no_more_than_the_host_file_allows() {
    let world = World::new();
    suspect(&world);
    let allows = |prefix: &str| {
        let keys = json!({"allowed": {"prod": [prefix]}});
        world.cluster.node_with("strict", keys).host_file()
    };
    // Everybody who may write definitions can name any network.
    world.define(
        "theirs",
        &network_as("1.0.0", "theirs", json!({"network_name": "prod", "range": "10.99.0.0/24"})).to_string(),
    );
    let network = format!("{}/theirs", world.namespace);
    let says = json!([{"name": network, "interface": "net1", "ips": ["10.99.0.7"]}]);
    world.pod("theirs").network_status(&says).create();
    let adopt = |prefix: &str| {
        let run = world.cluster.reconciler(&world.proxy).config(allows(prefix));
        run.args(["adopt", "-o", "json"]).run()
    };
    let outcome = adopt("10.1.0.0/24");
    assert_eq!(outcome.status.code(), Some(1), "{outcome}");
    assert_eq!(outcome.json()["conflicts"][0]["kind"], "unknown-network", "{outcome}");
    assert_eq!(world.holders(), BTreeMap::new());
    adopt("10.99.0.0/16").ok();
    assert_eq!(world.holders().len(), 1);
    world.cluster.assert_clean();
}

// ---- ResourceClaims

/// A claim with one device, as a DRA driver that calls CNI plugins leaves it.
struct ClaimOf<'a> {
    world: &'a World,
    uid: String,
    pod: Pod,
}

impl<'a> ClaimOf<'a> {
    fn new(world: &'a World, name: &str, parameters: Value, address: &str) -> Self {
        let pod = world.pod(&format!("{name}-pod")).create();
        let claims = format!("/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims", world.namespace);
        let spec = json!({"devices": {"requests": [{"name": "net", "exactly": {"deviceClassName": "cni"}}]}});
        let created = world.api.create(&claims, &json!({"metadata": {"name": name}, "spec": spec}));
        let device = json!({"driver": "cni.example", "pool": "n1", "device": "d1"});
        let mut result = device.clone();
        result["request"] = json!("net");
        let opaque = json!({"driver": "cni.example", "parameters": parameters});
        let config = json!([{"requests": ["net"], "source": "FromClaim", "opaque": opaque}]);
        let mut reported = device;
        reported["networkData"] = json!({"interfaceName": "net1", "ips": [format!("{address}/24")]});
        let status = json!({
            "allocation": {"devices": {"results": [result], "config": config}},
            "reservedFor": [{"resource": "pods", "name": pod.name(), "uid": pod.uid()}],
            "devices": [reported],
        });
        world.api.patch(&format!("{claims}/{name}/status"), &json!({"status": status}));
        let uid = created["metadata"]["uid"].as_str().expect("it has a UID").to_owned();
        Self { world, uid, pod }
    }

    /// The driver's call of the plugin: without the pod's UID.
    fn run(&self, run: support::Run, config: &Value) -> Outcome {
        let (namespace, name) = (&self.world.namespace, self.pod.name());
        let args = format!("IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name}");
        run.ifname("net1").config(config).args(&args).run()
    }
}

#[test]
fn what_a_resource_claim_uses_is_reserved_for_it_again() {
    let world = World::new();
    let config = network_as("1.0.0", "dra", json!({"range": "10.66.0.0/24"}));
    let parameters = json!({"kind": "CNI", "ifName": "net1", "config": config});
    let claims = [("kept", "10.66.0.1"), ("lost", "10.66.0.2")]
        .map(|(name, address)| ClaimOf::new(&world, name, parameters.clone(), address));
    for claim in &claims {
        claim.run(world.node.add(&claim.uid), &config).address();
    }
    let [kept, lost] = &claims;
    // The backup is older than this one.
    lost.run(world.node.del(&lost.uid), &config).silent();
    world.cluster.store().delete_prefix("v1/tombstone/");
    suspect(&world);
    let report = world.adopted();
    assert_eq!(report["present"], 1, "{report}");
    assert_eq!(report["adopted"][0]["pod"], format!("{}/lost-pod", world.namespace), "{report}");
    let expected = [("10.66.0.1", &kept.uid), ("10.66.0.2", &lost.uid)];
    let expected = expected.map(|(address, uid)| (address.to_owned(), uid.clone()));
    assert_eq!(world.holders(), BTreeMap::from(expected));
    assert_eq!(world.adopted()["present"], 2);
    // The driver's own DEL frees it.
    lost.run(world.node.del(&lost.uid), &config).silent();
    assert_eq!(world.holders().len(), 1);
    world.cluster.assert_clean();
}

#[test]
fn a_resource_claim_that_cannot_be_placed_is_a_conflict() {
    let world = World::new();
    suspect(&world);
    let config = |range: &str| json!({"config": network_as("1.0.0", "dra", json!({"range": range}))});
    ClaimOf::new(&world, "outside", config("10.66.1.0/24"), "10.66.0.1");
    ClaimOf::new(&world, "first", config("10.66.0.0/24"), "10.66.0.3");
    ClaimOf::new(&world, "second", config("10.66.0.0/24"), "10.66.0.3");
    let text = config("10.66.0.0/24")["config"].to_string();
    ClaimOf::new(&world, "as-text", json!({"config": text}), "10.66.0.4");
    ClaimOf::new(&world, "unknown", json!({"interface": {"name": "net1"}}), "10.66.0.5");
    let other = json!({"config": {"cniVersion": "1.0.0", "name": "x", "type": "macvlan", "ipam": {"type": "static"}}});
    ClaimOf::new(&world, "other", other, "10.66.0.6");
    let found = world.conflicts(&[]);
    let short: Vec<(&str, &str)> = found.iter().map(|(pod, kind, _)| (pod.as_str(), kind.as_str())).collect();
    let expected =
        [("outside-pod", "outside"), ("second-pod", "two-users"), ("unknown-pod", "unknown-network")];
    assert_eq!(short, expected, "{found:?}");
    let adopted = world.adopt(&["--not-metes", "cni.example"]);
    assert!(adopted.succeeded(), "{adopted}");
    world.cluster.assert_clean();
}
