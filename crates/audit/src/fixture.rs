//! A small tree, for tests: one owner with two addresses of one network.

use metes_core::keys::{Bytes, Keys, Scope, TicketId};
use metes_core::pool::bitmap::Bits;
use metes_core::pool::{
    Addr, Held, Labels, Meta, NetworkName, Owner, OwnerRecord, Page, Pod, PodIndex, Record, Reservation,
    RunStart, Tombstone,
};
use metes_core::txn::Entry;

pub(crate) const SCOPE: &str = "default,00000000000000000000ffff0a000000-24";

pub fn keys() -> Keys {
    Keys::new("/metes/")
}

pub(crate) fn owner() -> Owner {
    Owner::named(["east", "n1", "c1", "net1"]).expect("plain names")
}

pub(crate) fn labels() -> Labels {
    let pod = Pod { namespace: "ns".into(), name: "web-0".into(), uid: "u-1".parse().ok() };
    Labels { pod, cni_network: "mynet".into() }
}

/// The index entry of that owner's pod.
pub(crate) fn index_key() -> Bytes {
    let Owner { ifname, cluster, .. } = owner();
    let uid = "u-1".parse().expect("a UID");
    keys().pod(cluster.as_ref(), &uid, &ifname, &NetworkName::default())
}

pub fn addr(text: &str) -> Addr {
    Addr::from(text.parse::<std::net::IpAddr>().expect("an address"))
}

pub(crate) fn page() -> Page {
    addr("10.0.0.0").page()
}

pub fn entry(key: Bytes, value: Vec<u8>) -> Entry {
    Entry { key, value, create_revision: 1, mod_revision: 1, lease: 0 }
}

pub(crate) fn record(addresses: &[&str]) -> OwnerRecord {
    let network = Some(NetworkName::default());
    let held = |text: &&str| Held::new(text.parse().expect("ip"), network.clone());
    let start = RunStart { boot: "b".into(), ns: 1 };
    OwnerRecord::new(addresses.iter().map(held).collect(), Some(start), SCOPE.into(), labels())
}

pub(crate) fn reservation() -> Vec<u8> {
    Reservation::new(owner(), "2026-01-02T03:04:05Z".into()).encode()
}

pub(crate) fn bits(set: impl IntoIterator<Item = usize>) -> Vec<u8> {
    let mut bits = Bits::empty();
    set.into_iter().for_each(|bit| bits.set(bit));
    bits.to_bytes()
}

/// Everything that there may be, and all of it in order.
pub fn clean() -> Vec<Entry> {
    let (keys, network, owner) = (keys(), NetworkName::default(), owner());
    let scope = Scope::stored(SCOPE).expect("a scope");
    let tombstone = Tombstone::new(RunStart { boot: "b".into(), ns: 0 }).encode();
    let leased = |key, value| Entry { lease: 7, ..entry(key, value) };
    let cursor = [keys.nets(), b"default/cursor/0123456789abcdef0123456789abcdef".to_vec()].concat();
    vec![
        leased(keys.tombstone(&owner), tombstone),
        leased(keys.ticket(&scope, TicketId(7)), Vec::new()),
        leased(keys.tail(&scope), b"0000000000000007".to_vec()),
        leased(keys.fence(&owner.node), Vec::new()),
        entry(keys.meta(), Meta::first("0f".into()).encode()),
        entry(cursor, b"00000000000000000000ffff0a000002".to_vec()),
        entry(keys.ip(&network, addr("10.0.0.1")), reservation()),
        entry(keys.ip(&network, addr("10.0.0.2")), reservation()),
        entry(keys.page(&network, page()), bits([1, 2])),
        entry(keys.owner(&owner), record(&["10.0.0.1", "10.0.0.2"]).encode()),
        entry(index_key(), PodIndex::new(&owner).encode()),
    ]
}
