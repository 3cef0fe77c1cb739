//! A pass over as many pods and addresses as the largest clusters have stays small.

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::Duration;

use metes_core::keys::Keys;
use metes_core::pool::{
    Addr, Bits, Held, Labels, Meta, NetworkName, Owner, OwnerRecord, Page, Pod, PodIndex, PodUid, Record,
    Reservation, RunStart,
};
use serde_json::{Value, json};
use support::{Cluster, Etcd, KubeApi, wait_for};

const OWNERS: u32 = 100_000;
/// The last of the owners have no pod.
const ORPHANS: u32 = 40;
const NODES: u32 = 500;
/// The most that one pass may take, by the promise of the documentation.
const MEMORY_MAX_KIB: u64 = 50 << 10;
const CPU_MAX: Duration = Duration::from_secs(10);
/// The time for the API server to take in the pods that were written below it.
const KNOWN_MAX: Duration = Duration::from_secs(120);
const FIRST: u32 = 0x0a00_0001;
const NAMESPACES: u32 = 50;
/// Pods of these are as large as real ones: some ten pages of them, listed last, when all others are kept already.
const LARGE_NAMESPACES: [u32; 2] = [8, 9];
/// The size of a pod with several containers and interfaces when all its managers have written to it.
const LARGE_BYTES: usize = 30 << 10;

#[test]
fn a_hundred_thousand_addresses_and_pods_fit_into_50_mb_and_10_s_of_cpu() {
    let _alone = support::alone();
    let etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    cluster.store().put_all(world(&cluster));
    let api = KubeApi::start();
    let [usual, large] = [template(1), template(40)];
    assert!(large.len() >= LARGE_BYTES, "{}", large.len());
    let template = |index| if LARGE_NAMESPACES.contains(&(index % NAMESPACES)) { &large } else { &usual };
    api.store().put_all((0..OWNERS - ORPHANS).map(|index| pod(template(index), index)));
    wait_for("the API server to have read all pods", KNOWN_MAX, || {
        let tried = cluster.reconciler(&api).args(["--dry-run"]).run();
        if tried.succeeded() { Ok(()) } else { Err(tried.to_string()) }
    });

    let pass = cluster.reconciler(&api).args(["--grace", "0s", "-o", "json"]).spawn();
    let used = watch(pass.pid());
    let report = pass.wait().ok();
    assert_eq!(report["scanned"]["owners"], OWNERS);
    assert_eq!(report["scanned"]["addresses"], OWNERS - ORPHANS);
    assert_eq!(report["scanned"]["pods"], OWNERS - ORPHANS);
    assert_eq!(report["freed"], json!({"pod-gone": ORPHANS}));
    assert_eq!(report["kept"], json!({"pod-exists": OWNERS - ORPHANS}));
    assert!(used.memory_kib > 0 && used.memory_kib <= MEMORY_MAX_KIB, "{used:?}");
    assert!(used.cpu <= CPU_MAX, "{used:?}");
    cluster.assert_clean();
}

/// The use of a process until shortly before its end.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    /// The most that was resident at once.
    memory_kib: u64,
    /// In user and kernel together.
    cpu: Duration,
}

/// Looks until the process ends. The kernel keeps the peak of its memory, and its times, as long as it lives.
fn watch(pid: u32) -> Used {
    let mut used = Used::default();
    while let Some(now) = usage(pid) {
        used = now;
        thread::sleep(Duration::from_millis(5));
    }
    used
}

fn usage(pid: u32) -> Option<Used> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    // A process that has ended and is not waited for has no memory any more.
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let memory_kib = peak.trim().trim_end_matches(" kB").parse().ok()?;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some(Used { memory_kib, cpu: Duration::from_millis(ticks * 10) })
}

/// Every key that `OWNERS` runs of the plugin would have left.
fn world(cluster: &Cluster) -> impl Iterator<Item = (String, Vec<u8>)> {
    let keys = Keys::new(cluster.prefix());
    let prefix = cluster.prefix().to_owned();
    let network = NetworkName::default();
    let mut pages: BTreeMap<Page, Bits> = BTreeMap::new();
    for index in 0..OWNERS {
        let address = address(index);
        pages.entry(address.page()).or_insert_with(Bits::empty).set(address.bit());
    }
    let pages: Vec<_> =
        pages.into_iter().map(|(page, bits)| (keys.page(&network, page), bits.to_bytes())).collect();
    let meta = [(keys.meta(), Meta::first("s".into()).encode())];
    let owners = (0..OWNERS).flat_map(move |index| owner(&keys, index));
    meta.into_iter().chain(pages).chain(owners).map(move |(key, value)| {
        let key = String::from_utf8(key).expect("keys are text");
        (key.strip_prefix(&prefix).expect("it is below the prefix").to_owned(), value)
    })
}

fn address(index: u32) -> Addr {
    Addr::from(std::net::IpAddr::from((FIRST + index).to_be_bytes()))
}

/// The three keys of one owner.
fn owner(keys: &Keys, index: u32) -> [(Vec<u8>, Vec<u8>); 3] {
    let network = NetworkName::default();
    let owner = Owner::named(["test", &node(index), &format!("{index:064x}"), "net1"]).expect("plain names");
    let uid: PodUid = uid(index).parse().expect("a UID");
    let pod = Pod { namespace: namespace(index), name: name(index), uid: Some(uid.clone()) };
    let labels = Labels { pod, cni_network: "storage".into() };
    let start = RunStart { boot: format!("{:032x}", index % NODES), ns: u64::from(index) + 1 };
    let held = Held::new((FIRST + index).to_be_bytes().into(), Some(network.clone()));
    let scope = "default,00000000000000000000ffff0a000000-8".to_owned();
    let record = OwnerRecord::new(vec![held], Some(start), scope, labels.clone());
    let reservation = Reservation::new(owner.clone(), "2026-01-02T03:04:05Z".into());
    [
        (keys.ip(&network, address(index)), reservation.encode()),
        (keys.owner(&owner), record.encode()),
        (keys.pod(owner.cluster.as_ref(), &uid, &owner.ifname, &network), PodIndex::new(&owner).encode()),
    ]
}

/// A pod as the API server keeps it.
fn pod(template: &str, index: u32) -> (String, Vec<u8>) {
    let (namespace, name) = (namespace(index), name(index));
    let values = [("NAMESPACE", &namespace), ("NAME", &name), ("UID", &uid(index)), ("NODE", &node(index))];
    let text = values.iter().fold(template.to_owned(), |text, (word, value)| text.replace(word, value));
    (format!("pods/{namespace}/{name}"), text.into_bytes())
}

/// A pod with so many times the least that a pod has in metadata and the rest.
fn template(times: usize) -> String {
    let status = json!([{"name": "storage", "interface": "net1", "ips": ["10.0.0.1"]}]).to_string();
    let status = status.repeat(4 * times);
    let managers = ["kubectl-create", "kubelet", "multus"]
        .map(|manager| vec![managed(manager); times.div_ceil(4)])
        .concat();
    let metadata = json!({
        "namespace": "NAMESPACE",
        "name": "NAME",
        "uid": "UID",
        "creationTimestamp": "2026-01-02T03:04:05Z",
        "labels": {"app": "training", "rank": "NAME", "job-name": "NAME", "pod-template-hash": "5d4f8c7b9"},
        "annotations": {"k8s.v1.cni.cncf.io/networks": "storage", "k8s.v1.cni.cncf.io/network-status": status},
        "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "training", "uid": "UID"}],
        "managedFields": managers,
    });
    let env = vec![json!({"name": "SOME", "value": "thing"}); 10 * times];
    let container = json!({"name": "main", "image": "registry.invalid/training:1", "env": env});
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"nodeName": "NODE", "containers": [container]},
        "status": {"phase": "Running"},
    })
    .to_string()
}

fn managed(manager: &str) -> Value {
    let fields = json!({
        "f:metadata": {
            "f:annotations": {"f:k8s.v1.cni.cncf.io/network-status": {}},
            "f:labels": {"f:app": {}, "f:rank": {}},
        },
        "f:spec": {"f:containers": {"k:{\"name\":\"main\"}": {".": {}, "f:image": {}, "f:name": {}, "f:env": {}}}},
    });
    json!({"manager": manager, "operation": "Update", "apiVersion": "v1", "time": "2026-01-02T03:04:05Z",
        "fieldsType": "FieldsV1", "fieldsV1": fields})
}

fn node(index: u32) -> String {
    format!("gpu-node-{:04}.cluster.example", index % NODES)
}

fn namespace(index: u32) -> String {
    format!("team-{}", index % NAMESPACES)
}

fn name(index: u32) -> String {
    format!("distributed-training-worker-{index:06}")
}

fn uid(index: u32) -> String {
    format!("6f1c2a3b-4d5e-4f60-8a7b-{index:012x}")
}
