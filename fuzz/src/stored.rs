//! The content of etcd: the bytes as a key, and as the value of every kind of key. Anybody may have written them.

use metes_core::keys::{Key, Keys, PodInterface, Scope};
use metes_core::pool::{
    AskedRanges, Bits, ClusterId, Cooling, Definitions, Forgotten, Lacking, Leader, MemberRecord, Meta,
    NetworkName, NodeRecord, OwnerRecord, PassRecord, PodIndex, PoolChanges, PoolRecord, Record, Reservation,
    SeatRecord, SeenNode, Sighting, Tombstone, VERSION,
};
use serde_json::Value;

pub(super) fn stored(data: &[u8]) {
    check_key(data);
    check_bits(data);
    check_record::<OwnerRecord>(data);
    check_record::<Reservation>(data);
    check_record::<PodIndex>(data);
    check_record::<Tombstone>(data);
    check_record::<ClusterId>(data);
    check_record::<Sighting>(data);
    check_record::<SeenNode>(data);
    check_record::<NodeRecord>(data);
    check_record::<Forgotten>(data);
    check_record::<Lacking>(data);
    check_record::<Definitions>(data);
    check_record::<PoolRecord>(data);
    check_record::<PoolChanges>(data);
    check_record::<Leader>(data);
    check_record::<PassRecord>(data);
    check_record::<MemberRecord>(data);
    check_record::<Meta>(data);
    check_record::<Cooling>(data);
    check_record::<AskedRanges>(data);
    check_record::<SeatRecord>(data);
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(name) = NetworkName::stored(text) {
        assert_eq!(name.as_str(), text);
        assert!(!text.contains('/'), "a network leaves its place in the tree: {text:?}");
    }
    if let Ok(scope) = Scope::stored(text) {
        assert_eq!(scope.as_str(), text);
        assert!(!text.contains('/'), "a scope leaves its place in the tree: {text:?}");
    }
}

/// A key that can be parsed is exactly the key that metes would write.
fn check_key(bytes: &[u8]) {
    let keys = Keys::new("/metes/");
    let Ok(key) = keys.parse(bytes) else { return };
    let written = match &key {
        Key::Meta => keys.meta(),
        Key::Page(network, page) => keys.page(network, *page),
        Key::Summary(network, summary) => keys.summary(network, *summary),
        Key::Ip(network, address) => keys.ip(network, *address),
        Key::Cooling(network, address) => keys.cooling(network, *address),
        Key::Cursor(network, id) => format!("/metes/v1/net/{network}/cursor/{id}").into_bytes(),
        Key::Owner(owner) => keys.owner(owner),
        Key::Pod(PodInterface { cluster, uid, ifname, network }) => {
            keys.pod(cluster.as_ref(), uid, ifname, network)
        }
        Key::Seat(seat) => keys.seat(seat),
        Key::Tombstone(owner) => keys.tombstone(owner),
        Key::Ticket(scope, id) => keys.ticket(scope, *id),
        Key::Tail(scope) => keys.tail(scope),
        Key::Moved(scope) => keys.moved(scope),
        Key::Fence(node) => keys.fence(node),
        Key::Node(node) => keys.node(node),
        Key::GoneMachine(node) => keys.gone_machine(node),
        Key::Forgotten => keys.forgotten(),
        Key::Stranger(store, machine) => keys.stranger(store, machine),
        Key::Cluster(name) => keys.cluster(name),
        Key::Orphan(owner) => keys.orphan(owner),
        Key::Lacking(cluster, network, address) => keys.lacking(cluster, network, *address),
        Key::Seen(cluster, node) => keys.seen_node(cluster, node),
        Key::Lead(name) => keys.lead(name),
        Key::Pass(name) => keys.pass(name),
        Key::Member(node) => keys.member(*node),
        Key::Import(name) => keys.import(name),
        Key::Pool(name) => keys.pool(name),
        Key::PoolChanges => keys.pool_changes(),
        Key::Hold(network, address) => keys.hold(network, *address),
        Key::Asked(digest) => format!("/metes/v1/asked/{digest}").into_bytes(),
    };
    assert_eq!(written, bytes, "{key:?}");
}

fn check_bits(bytes: &[u8]) {
    let Some(bits) = Bits::from_bytes(bytes) else {
        assert_ne!(bytes.len(), 512);
        return;
    };
    assert_eq!(bits.to_bytes(), bytes);
    let ones: Vec<usize> = bits.ones().collect();
    assert_eq!(ones.len(), bits.count());
    assert!(ones.iter().all(|index| bytes[index / 8] & (1 << (index % 8)) != 0));
    assert_eq!(bits.is_full(), bits.first_clear(0, 4095).is_none());
    assert_eq!(bits.is_empty(), ones.is_empty());
}

/// A record that decodes says the same when it is written again, and is of this version.
fn check_record<R: Record + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    let record = match R::decode(bytes) {
        Ok(record) => record,
        Err(e) => {
            assert!(!e.to_string().is_empty());
            return;
        }
    };
    // A key that nobody reads may hold what is no text.
    if let Ok(json) = serde_json::from_slice::<Value>(bytes) {
        assert_eq!(json["v"].as_u64(), Some(VERSION.into()), "{json}");
    }
    let written = record.encode();
    let again = R::decode(&written);
    assert_eq!(again.as_ref(), Ok(&record));
    assert_eq!(again.map(|again| again.encode()), Ok(written));
}
