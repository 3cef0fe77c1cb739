//! An owner's keys as the commit has left them that reserved its addresses. A later run of the node may plan on them
//! without reading them ([`super::first`]). They are hints: nothing relies on them. Pure.

use super::free::index_keys;
use super::sticky;
use crate::keys::{Bytes, Keys, Scope};
use crate::known::HighWater;
use crate::pool::{Meta, Owner, OwnerRecord, PodIndex, Record, Reservation, SeatRecord};
use crate::snapshot::Snapshot;
use crate::txn::Entry;

/// An owner's record, and the revision of the commit that wrote it together with all that belongs to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerLeft {
    /// The owner.
    pub owner: Owner,
    /// The value of its record.
    pub record: Vec<u8>,
    /// The mod revision of its record, its reservations, its index entries and its seat.
    pub revision: i64,
    /// The value of meta at that time.
    pub meta: Vec<u8>,
}

impl OwnerLeft {
    /// The record. None if it does not decode.
    #[must_use]
    pub fn record(&self) -> Option<OwnerRecord> {
        OwnerRecord::decode(&self.record).ok()
    }

    /// True if it is of the store, and of the epoch, that the node has seen.
    #[must_use]
    pub fn is_of(&self, seen: &HighWater) -> bool {
        Meta::decode(&self.meta).is_ok_and(|meta| seen.is_of(&meta))
    }

    /// True if it is an older sandbox of the same interface of a pod on the same node as `owner`, as far as its name
    /// tells. Its record tells the pod.
    #[must_use]
    pub fn is_before(&self, owner: &Owner) -> bool {
        let Owner { cluster, node, ifname, .. } = &self.owner;
        (cluster, node, ifname) == (&owner.cluster, &owner.node, &owner.ifname) && self.owner != *owner
    }

    /// The keys that a takeover of it relies on, besides the index.
    pub(crate) fn relied_on(&self, keys: &Keys) -> Vec<Bytes> {
        let Some(record) = self.record() else { return Vec::new() };
        let reserved = record.reserved().map(|(network, address)| keys.ip(network, address));
        reserved.chain([keys.owner(&self.owner)]).chain(sticky::seat_key(keys, &record)).collect()
    }

    /// Lays its keys over what is `known`, and meta if that is not known. Values that are for people are left empty: a
    /// plan compares revisions alone.
    pub fn lay_over(&self, keys: &Keys, known: &mut Snapshot) {
        let (Some(record), owner) = (self.record(), &self.owner) else { return };
        known.revision = self.revision;
        let lacks_meta = !known.knows(&keys.meta());
        let mut set = |key: Bytes, value: Vec<u8>| {
            let [create_revision, mod_revision] = [self.revision; 2];
            let entry = Entry { key, value, create_revision, mod_revision, lease: 0 };
            known.set(&entry.key.clone(), Some(entry));
        };
        for (network, address) in record.reserved() {
            let reservation = Reservation::new(owner.clone(), String::new());
            set(keys.ip(network, address), reservation.encode());
        }
        for key in index_keys(keys, owner, &record) {
            set(key, PodIndex::new(owner).encode());
        }
        if let Some(key) = sticky::seat_key(keys, &record) {
            set(key, SeatRecord::new(owner.clone(), record.labels.clone(), String::new()).encode());
        }
        set(keys.owner(owner), self.record.clone());
        if lacks_meta {
            set(keys.meta(), self.meta.clone());
        }
    }

    /// The queue that its record names. None if it does not decode.
    #[must_use]
    pub fn scope(&self) -> Option<Scope> {
        Scope::stored(&self.record()?.scope).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fence::Fence;
    use crate::keys::LeaseId;
    use crate::line::Line;
    use crate::memory::Memory;
    use crate::plan::change::{Change, Commit, Step};
    use crate::plan::effects::Outcome;
    use crate::plan::first::commit_first;
    use crate::plan::free::{Free, FreeGuard, Freed, Freeing, Mode};
    use crate::pool::{Addr, Bits, Held, Labels, NetworkName, RunStart, Tombstone};
    use crate::txn::{Op, Reply, Txn};

    const FENCE: Fence = Fence::Unfenced { lease: Some(LeaseId(7)) };

    fn start(ns: u64) -> RunStart {
        RunStart { boot: "b".into(), ns }
    }

    struct World {
        keys: Keys,
        owner: Owner,
        network: NetworkName,
        address: Addr,
        store: Memory,
    }

    impl World {
        /// An owner holds an address. All its keys were written at one revision.
        fn new() -> Self {
            let keys = Keys::new("/m/");
            let owner = Owner::named(["east", "n", "c", "eth0"]).expect("plain names");
            let (network, ip) = (NetworkName::default(), std::net::Ipv4Addr::new(10, 0, 0, 1).into());
            let mut labels = Labels::default();
            labels.pod.uid = "u".parse().ok();
            let held = vec![Held::new(ip, Some(network.clone()))];
            let record = OwnerRecord::new(held, Some(start(5)), "-".into(), labels);
            let mut store = Memory::default();
            store.put(keys.meta(), Meta::first("s".into()).encode());
            let mut bits = Bits::empty();
            bits.set(Addr::from(ip).bit());
            let page = keys.page(&network, Addr::from(ip).page());
            let index = index_keys(&keys, &owner, &record).remove(0);
            let reservation = Reservation::new(owner.clone(), String::new());
            let then = [
                (page, bits.to_bytes()),
                (keys.ip(&network, ip.into()), reservation.encode()),
                (index, PodIndex::new(&owner).encode()),
                (keys.owner(&owner), record.encode()),
            ]
            .map(|(key, value)| Op::Put(key, value, None))
            .to_vec();
            assert!(store.apply(&Txn { step: "commit", then, ..Txn::default() }).succeeded);
            Self { keys, owner, network, address: ip.into(), store }
        }

        fn page(&self) -> Bytes {
            self.keys.page(&self.network, self.address.page())
        }

        fn left(&self) -> OwnerLeft {
            let entry = |key: Bytes| self.store.get(&key).cloned().expect("it exists");
            let record = entry(self.keys.owner(&self.owner));
            OwnerLeft {
                owner: self.owner.clone(),
                revision: record.mod_revision,
                record: record.value,
                meta: entry(self.keys.meta()).value,
            }
        }

        /// The first request of a DEL that began at this time, on the page as it is and on what was left.
        fn first(&self, left: &OwnerLeft, began: u64) -> Option<Commit<Freed>> {
            let now = start(began);
            let free =
                Free { tombstone: Some(&now), ..Free::of(&self.owner, FreeGuard::OlderThan(&now, None)) };
            let change = Freeing::new(free, &self.keys, Mode::Whole, None);
            let mut known = Snapshot::default();
            self.store.read(&[self.page()], &mut known);
            left.lay_over(&self.keys, &mut known);
            let look = change.reads(&known).into_iter().map(Op::Get).collect();
            commit_first(&change, &self.keys, &FENCE, &known, (None, look))
        }

        fn is_bit_set(&self) -> bool {
            let page = self.store.get(&self.page()).and_then(|page| Bits::from_bytes(&page.value));
            page.is_some_and(|bits| bits.get(self.address.bit()))
        }

        fn assert_freed(&self) {
            for key in self.left_keys() {
                assert!(self.store.get(&key).is_none(), "{}", String::from_utf8_lossy(&key));
            }
            assert!(self.store.get(&self.keys.tombstone(&self.owner)).is_some());
        }

        fn left_keys(&self) -> Vec<Bytes> {
            let index = self.keys.pod(
                self.owner.cluster.as_ref(),
                &"u".parse().expect("a UID"),
                &self.owner.ifname,
                &self.network,
            );
            vec![self.keys.owner(&self.owner), self.keys.ip(&self.network, self.address), index]
        }
    }

    #[test]
    fn a_free_by_what_was_left_is_one_request() {
        let mut world = World::new();
        let commit = world.first(&world.left(), 6).expect("a commit");
        assert!(matches!(&commit.done, Some(Freed::Addresses(held)) if held.len() == 1));
        let reply = world.store.apply(&commit.txn);
        assert!(reply.succeeded && commit.effects.outcome(&reply.found).stray.is_empty());
        world.assert_freed();
        assert!(!world.is_bit_set());
        // Late copies of it, and a repetition, do nothing.
        assert!(!world.store.apply(&commit.txn).succeeded);
    }

    #[test]
    fn a_page_that_has_changed_keeps_the_bit_and_refuses_nothing() {
        let mut world = World::new();
        let commit = world.first(&world.left(), 6).expect("a commit");
        let mut bits =
            Bits::from_bytes(&world.store.get(&world.page()).expect("a page").value).expect("bits");
        bits.set(99);
        world.store.put(world.page(), bits.to_bytes());
        let reply = world.store.apply(&commit.txn);
        assert!(reply.succeeded);
        let Outcome { stray, .. } = commit.effects.outcome(&reply.found);
        assert_eq!(stray, [(world.network.clone(), world.address)]);
        world.assert_freed();
        assert!(world.is_bit_set());
        // The answer shows the page as it is.
        let mut seen = Snapshot::default();
        seen.apply(&commit.txn, &reply);
        assert_eq!(seen.entry(&world.page()), world.store.get(&world.page()));
    }

    #[test]
    fn whatever_differs_from_what_was_left_refuses_the_free_and_its_answer_is_a_look() {
        let before = World::new();
        let [own, reserved, index] = before.left_keys().try_into().expect("three keys");
        let dead = before.keys.tombstone(&before.owner);
        let again = |key: &Bytes| before.store.get(key).map(|entry| entry.value.clone()).expect("it exists");
        let older = Tombstone::new(start(1)).encode();
        for (what, key, value) in [
            ("a repeated ADD", own.clone(), again(&own)),
            ("a damaged reservation", reserved, b"{}".to_vec()),
            ("a younger sandbox", index.clone(), again(&index)),
            ("a DEL before", dead, older),
            ("another store", before.keys.meta(), Meta::first("other".into()).encode()),
        ] {
            let mut world = World::new();
            let commit = world.first(&world.left(), 6).expect("a commit");
            world.store.put(key.clone(), value.clone());
            let reply: Reply = world.store.apply(&commit.txn);
            assert!(!reply.succeeded, "{what}");
            let mut seen = Snapshot::default();
            seen.absorb(&commit.txn.otherwise, &reply);
            assert_eq!(seen.entry(&key).map(|entry| &entry.value), Some(&value), "{what}");
            let now = start(6);
            let free =
                Free { tombstone: Some(&now), ..Free::of(&world.owner, FreeGuard::OlderThan(&now, None)) };
            let change = Freeing::new(free, &world.keys, Mode::Whole, None);
            let step = change.plan(&seen, &FENCE, &Line::default());
            assert!(!matches!(step, Ok(Step::Read(_))), "{what}: nothing more is to be read");
        }
    }

    #[test]
    fn what_was_left_and_does_not_allow_a_free_sends_nothing() {
        let world = World::new();
        assert!(world.first(&world.left(), 5).is_none(), "the ADD is not older");
        let torn = OwnerLeft { record: b"{".to_vec(), ..world.left() };
        assert!(world.first(&torn, 6).is_none());
    }
}
