//! Entries, pods and definitions of a small cluster, and the owners that follow from them.

use super::super::facts::HeldByPods;
use super::super::nads::{Nad, NadId};
use super::*;

struct Cluster {
    nads: Vec<Nad>,
    pools: Vec<Pool>,
    reservations: Vec<Reservation>,
    pods: HashMap<PodRef, PodFacts>,
    others: HashSet<String>,
    held: HeldByPods,
    cut_off: Vec<String>,
}

fn entry(pod: &str, container_id: &str, ifname: &str) -> Entry {
    Entry { pod: pod.into(), container_id: container_id.into(), ifname: ifname.into() }
}

impl Cluster {
    fn new() -> Self {
        let mut cluster = Self {
            nads: Vec::new(),
            pools: Vec::new(),
            reservations: Vec::new(),
            pods: HashMap::new(),
            others: HashSet::new(),
            held: HeldByPods::default(),
            cut_off: Vec::new(),
        };
        cluster.nad("a", r#""range":"10.0.0.0/24""#);
        cluster.pod("ns/p1", "u1", Phase::Active);
        cluster.pod("ns/p2", "u2", Phase::Active);
        cluster
    }

    fn nad(&mut self, name: &str, keys: &str) {
        let id = NadId { namespace: "ns".into(), name: name.into() };
        let config = format!(r#"{{"name":"net-{name}","ipam":{{"type":"whereabouts",{keys}}}}}"#);
        self.nads.push(Nad::read(id, "u".into(), "1".into(), Some(&config)));
    }

    fn pool(&mut self, name: &str, range: &str, entries: &[(&str, Entry)]) {
        let entries = entries.iter().map(|(key, entry)| ((*key).to_owned(), entry.clone())).collect();
        self.pools.push(Pool {
            title: format!("kube-system/{name}"),
            name: name.into(),
            range: range.into(),
            entries,
        });
    }

    fn reservation(&mut self, name: &str, entry: Entry) {
        self.reservations.push(Reservation {
            title: format!("kube-system/{name}"),
            name: name.into(),
            entry,
        });
    }

    fn pod(&mut self, named: &str, uid: &str, phase: Phase) {
        let (uid, node) = (uid.into(), Some("n1".into()));
        let facts = PodFacts { uid, node, phase, interfaces: None, asked: Vec::new(), is_up: true };
        self.pods.insert(PodRef::parse(named).expect("a name"), facts);
    }

    fn gather(&self) -> Gathered {
        let uses: Vec<&Use> = self.nads.iter().flat_map(|nad| &nad.uses).collect();
        gather(&World {
            pools: &self.pools,
            reservations: &self.reservations,
            uses: &uses,
            others: &self.others,
            pods: &self.pods,
            held: &self.held,
            cut_off: &self.cut_off,
            cluster: &"east".parse().expect("a cluster's name"),
        })
    }
}

fn addresses(group: &Group) -> Vec<String> {
    group.held.iter().map(|held| held.address.to_string()).collect()
}

#[test]
fn all_addresses_of_an_interface_belong_to_one_owner_in_the_order_of_the_ranges() {
    let mut cluster = Cluster::new();
    cluster.nad("dual", r#""ipRanges":[{"range":"fd00::/64"},{"range":"10.1.0.0/16"}]"#);
    cluster.pool("10.1.0.0-16", "10.1.0.0/16", &[("5", entry("ns/p1", "c1", "net1"))]);
    cluster.pool("fd00---64", "fd00::/64", &[("7", entry("ns/p1", "c1", "net1"))]);
    cluster.pool("10.0.0.0-24", "10.0.0.0/24", &[("9", entry("ns/p1", "c1", "net2"))]);
    let found = cluster.gather();
    assert_eq!(found.groups.len(), 2);
    assert_eq!(addresses(&found.groups[0]), ["fd00::7", "10.1.0.5"]);
    assert_eq!(found.groups[0].labels.cni_network, "net-dual");
    assert_eq!(addresses(&found.groups[1]), ["10.0.0.9"]);
    assert_eq!(found.groups[1].owner, Owner::named(["east", "n1", "c1", "net2"]).expect("plain names"));
    assert_eq!(found.groups[1].labels.pod.uid, "u1".parse().ok());
}

#[test]
fn entries_of_pods_that_are_gone_are_stale() {
    let mut cluster = Cluster::new();
    cluster.pod("ns/later", "u9", Phase::Active);
    cluster.pods.get_mut(&PodRef::parse("ns/later").expect("a name")).expect("is there").node = None;
    let entries = [("1", entry("ns/gone", "c1", "net1")), ("2", entry("ns/later", "c2", "net1"))];
    cluster.pool("10.0.0.0-24", "10.0.0.0/24", &entries);
    let found = cluster.gather();
    assert!(found.groups.is_empty() && found.refused.is_empty());
    assert_eq!(found.stale.len(), 2);
    assert_eq!(found.stale[0].address, Some("10.0.0.1".parse().expect("an address")));
}

#[test]
fn what_cannot_be_understood_is_refused_and_only_running_pods_count() {
    let mut cluster = Cluster::new();
    cluster.pod("ns/done", "u3", Phase::Finished);
    cluster.pool(
        "10.0.0.0-24",
        "10.0.0.0/24",
        &[
            ("256", entry("ns/p1", "c1", "net1")),
            ("1", entry("", "c1", "net1")),
            ("2", entry("ns/p1", "../c1", "net1")),
            ("x", entry("ns/done", "c1", "net1")),
        ],
    );
    cluster.pool("10.9.0.0-24", "10.9.0.0/24", &[("1", entry("ns/p2", "c2", "net1"))]);
    let found = cluster.gather();
    assert!(found.groups.is_empty());
    let running = found.refused.iter().map(|one| (one.pod.as_str(), one.is_running)).collect::<Vec<_>>();
    assert_eq!(running, [("", false), ("ns/p1", true), ("ns/p1", true), ("ns/done", false), ("ns/p2", true)]);
}

#[test]
fn one_address_goes_to_one_pod() {
    let mut cluster = Cluster::new();
    cluster.nad("wide", r#""range":"10.0.0.0/16""#);
    cluster.pod("ns/done", "u3", Phase::Finished);
    cluster.pool("10.0.0.0-16", "10.0.0.0/16", &[("1", entry("ns/done", "c0", "net1"))]);
    cluster.pool("10.0.0.0-24", "10.0.0.0/24", &[("1", entry("ns/p2", "c2", "net1"))]);
    let found = cluster.gather();
    assert_eq!(found.groups.len(), 1);
    assert_eq!(found.groups[0].labels.pod.name, "p2");
    assert!(found.refused.len() == 1 && found.refused[0].why.contains("ns/p2"), "{:?}", found.refused);
}

#[test]
fn a_reservation_counts_where_no_pool_says_the_same() {
    let mut cluster = Cluster::new();
    cluster.nad("lab", r#""range":"10.0.0.0/24","network_name":"lab""#);
    cluster.pool("10.0.0.0-24", "10.0.0.0/24", &[("1", entry("ns/p1", "c1", "net1"))]);
    cluster.reservation("10.0.0.1", entry("ns/p1", "", "net1"));
    cluster.reservation("lab-10.0.0.1", entry("ns/p2", "", ""));
    cluster.reservation("10.0.0.3", entry("ns/gone", "", ""));
    cluster.reservation("what", entry("ns/p2", "", ""));
    let found = cluster.gather();
    assert_eq!(found.groups.len(), 2);
    let made_up = Owner::named(["east", "n1", "imported-u2", "imported"]).expect("plain names");
    let group = found.groups.iter().find(|group| group.owner == made_up).expect("p2's");
    assert_eq!(group.held[0].network.as_ref().map(NetworkName::as_str), Some("lab"));
    assert_eq!((found.stale.len(), found.refused.len()), (1, 1));
}

#[test]
fn what_an_old_entry_lacks_comes_from_the_pods_annotation() {
    let mut cluster = Cluster::new();
    cluster.nad("b", r#""range":"10.0.0.0/24""#);
    let told = Interface {
        name: "ns/b".into(),
        interface: "net3".into(),
        ips: vec!["10.0.0.4".into()],
        default: false,
    };
    let p1 = PodRef::parse("ns/p1").expect("a name");
    cluster.pods.get_mut(&p1).expect("is there").interfaces = Some(Ok(vec![told]));
    let entries = [("4", entry("ns/p1", "c1", "")), ("5", entry("ns/p2", "c2", "net1"))];
    cluster.pool("10.0.0.0-24", "10.0.0.0/24", &entries);
    let found = cluster.gather();
    let group = |id: &str| found.groups.iter().find(|one| one.owner.container_id == *id).expect(id);
    assert_eq!(group("c1").owner.ifname.as_str(), "net3");
    assert_eq!(group("c1").labels.cni_network, "net-b");
    // Either configuration may have asked for it.
    assert_eq!(group("c2").labels.cni_network, "");
}

#[test]
fn static_addresses_come_after_those_of_the_ranges() {
    let mut cluster = Cluster::new();
    let keys = r#""range":"10.5.0.0/24","addresses":[{"address":"192.168.0.9/24"}]"#;
    cluster.nad("static", keys);
    cluster.pool("10.5.0.0-24", "10.5.0.0/24", &[("4", entry("ns/p1", "c1", "net1"))]);
    let found = cluster.gather();
    assert_eq!(addresses(&found.groups[0]), ["10.5.0.4", "192.168.0.9"]);
    assert_eq!(found.groups[0].held[1].network, None);
}
