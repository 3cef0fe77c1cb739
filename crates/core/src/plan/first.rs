//! The first request of a run as a commit, planned on keys that another run of the node has left behind. Pure.
//!
//! These keys are hints, and nothing relies on them: the transaction compares all that its plan assumed. If anything
//! differs, the Else branch reads what a first look reads, so a wrong hint costs a proposal and no wait.

use super::change::{Change, Commit};
use crate::fence::Fence;
use crate::keys::{Bytes, Key, Keys};
use crate::snapshot::Snapshot;
use crate::txn::{Compare, Op, Txn};

/// The result of the first request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstRequest {
    /// It was a look.
    Look,
    /// It was a commit, which was applied.
    Applied,
    /// It was a commit, which was refused.
    Missed,
}

/// The commit that `change` sends as its first request if the store is as `remembered`, and `tail` and the run's own
/// keys do not exist. None if the change must look first.
///
/// `look` is what a first look reads. Without a `tail` others may queue.
pub fn commit_first<C: Change>(
    change: &C,
    keys: &Keys,
    fence: &Fence,
    remembered: &Snapshot,
    (tail, look): (Option<Bytes>, Vec<Op>),
) -> Option<Commit<C::Done>> {
    let mut remembered = remembered.clone();
    // The first meta of a store is for a run that has looked.
    remembered.entry(&keys.meta())?;
    // Those that exist are hints of an older sandbox of its pod.
    let own_keys = change.own_keys(&remembered).into_iter();
    remembered.assume_absent(own_keys.filter(|key| remembered.entry(key).is_none()).collect());
    // A change that a hint makes impossible may be possible all the same, and one that a hint shows as done may not be
    // done.
    let mut commit = change.plan_first(&remembered, fence)?;
    commit.done.as_ref()?;
    let Txn { compares, otherwise, .. } = &mut commit.txn;
    compares.extend(tail.filter(|_| !change.is_unhindered(&remembered)).map(|tail| Compare::Create(tail, 0)));
    for op in look {
        if !otherwise.contains(&op) {
            otherwise.push(op);
        }
    }
    commit.txn.fits_with_own_key().then_some(commit)
}

/// True if a key is worth remembering: the plans of all runs of a scope rely on it, or those of all pods of one name.
#[must_use]
pub fn is_shared(keys: &Keys, key: &[u8]) -> bool {
    match keys.parse(key) {
        Ok(
            Key::Meta | Key::Page(..) | Key::Summary(..) | Key::Cursor(..) | Key::Pool(_) | Key::PoolChanges,
        ) => true,
        Ok(key) => is_of_hold(&key),
        Err(_) => false,
    }
}

/// True if it is the record of a hold for a pod's name.
#[must_use]
pub fn is_of_hold(key: &Key) -> bool {
    matches!(key, Key::Owner(owner) if owner.is_for_subject())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::LeaseId;
    use crate::line::Line;
    use crate::memory::Memory;
    use crate::plan::allot::{Added, Allotment, Allotted};
    use crate::plan::ask::{Ask, RunStamp};
    use crate::plan::change::Step;
    use crate::pool::choose::Order;
    use crate::pool::range::fixtures::{cidr, set};
    use crate::pool::{
        Labels, Meta, NetworkName, Owner, OwnerRecord, Pod, PodIndex, RangesWanted, Record, RunStart,
        Tombstone,
    };
    use crate::txn::Entry;

    struct World {
        keys: Keys,
        store: Memory,
        fence: Fence,
    }

    impl World {
        fn new() -> Self {
            let keys = Keys::new("/m/");
            let mut store = Memory::default();
            store.put(keys.meta(), Meta::first("s".into()).encode());
            let fence = Fence::Lease { key: b"/m/v1/fence/n".to_vec(), lease: LeaseId(7) };
            Self { keys, store, fence }
        }

        /// Looks and commits; what that leaves behind.
        fn hold(&mut self, ask: &Ask) -> Snapshot {
            let change = Allotment::new(ask, &self.keys);
            let mut seen = Snapshot::default();
            self.store.read(&change.reads(&seen), &mut seen);
            let Ok(Step::Commit(commit)) = change.plan(&seen, &self.fence, &Line::default()) else {
                panic!("no commit")
            };
            let reply = self.store.apply(&commit.txn);
            assert!(reply.succeeded);
            seen.apply(&commit.txn, &reply);
            seen.retain(|key| is_shared(&self.keys, key));
            seen
        }

        fn first(&self, ask: &Ask, remembered: &Snapshot) -> Option<Commit<Allotted>> {
            let change = Allotment::new(ask, &self.keys);
            let tail = self.keys.tail(&change.scope(&Snapshot::default()).expect("it has ranges"));
            let reads = change.reads(&Snapshot::default());
            let look = std::iter::once(&tail).chain(&reads).cloned().map(Op::Get).collect();
            commit_first(&change, &self.keys, &self.fence, remembered, (Some(tail), look))
        }
    }

    fn ask(container: &str, order: Order) -> Ask {
        let set = set([cidr("10.0.0.0/29").bounds("10.0.0.1", "10.0.0.3")]);
        let pod =
            Pod { namespace: "ns".into(), name: "p".into(), uid: format!("u-{container}").parse().ok() };
        let start = RunStart { boot: "b".into(), ns: 5 };
        let stamp = RunStamp { start, machine: "m".into(), created_at: String::new() };
        Ask::new(
            Owner::named(["east", "n", container, "eth0"]).expect("plain names"),
            Labels { pod, cni_network: "net".into() },
            RangesWanted { order, ..RangesWanted::lowest_of(vec![set]) },
            stamp,
        )
    }

    fn address(commit: &Commit<Allotted>) -> String {
        match &commit.done {
            Some(Allotted::Held(Added { held, .. })) => held[0].address.to_string(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn commits_follow_each_other_without_a_look() {
        for order in Order::ALL {
            let mut world = World::new();
            let mut remembered = world.hold(&ask("a", order));
            for (container, expected) in [("b", "10.0.0.2"), ("c", "10.0.0.3")] {
                let commit = world.first(&ask(container, order), &remembered).expect("a commit");
                assert_eq!(address(&commit), expected, "{order:?}");
                let reply = world.store.apply(&commit.txn);
                assert!(reply.succeeded, "{order:?}");
                remembered.apply(&commit.txn, &reply);
                remembered.retain(|key| is_shared(&world.keys, key));
            }
            // All addresses are taken. That is no answer, because others may have freed some.
            assert!(world.first(&ask("d", order), &remembered).is_none(), "{order:?}");
        }
    }

    #[test]
    fn whatever_differs_from_the_hints_refuses_the_commit_and_its_answer_is_a_look() {
        let mut new = ask("b", Order::Next);
        let keys = Keys::new("/m/");
        let other_store = Meta::first("other".into()).encode();
        let index = PodIndex::new(&ask("older", Order::Next).owner).encode();
        let record = OwnerRecord::new(Vec::new(), None, "-".into(), Labels::default()).encode();
        let tombstone = Tombstone::new(RunStart { boot: "b".into(), ns: 1 }).encode();
        let [own, dead] = [keys.owner(&new.owner), keys.tombstone(&new.owner)];
        let set = new.ranges().sets[0].clone();
        let scope = Allotment::new(&new, &keys).scope(&Snapshot::default()).expect("it has ranges");
        let network = NetworkName::default();
        let changes = [
            ("meta", keys.meta(), other_store),
            ("page", keys.page(&network, set.ranges()[0].first().page()), vec![0; 512]),
            ("cursor", keys.cursor(&set, None), b"10.0.0.3".to_vec()),
            (
                "reservation",
                keys.ip(&network, "10.0.0.2".parse::<std::net::IpAddr>().expect("an address").into()),
                b"{}".to_vec(),
            ),
            ("record", own, record),
            ("tombstone", dead, tombstone),
            (
                "index",
                Allotment::new(&new, &keys).own_keys(&Snapshot::default()).pop().expect("it has one"),
                index,
            ),
            ("tail", keys.tail(&scope), b"7".to_vec()),
        ];
        for (what, key, value) in changes {
            let mut world = World::new();
            let remembered = world.hold(&ask("a", Order::Next));
            let commit = world.first(&new, &remembered).expect("a commit");
            world.store.put(key.clone(), value.clone());
            let reply = world.store.apply(&commit.txn);
            assert!(!reply.succeeded, "{what}");
            let mut seen = Snapshot::default();
            seen.absorb(&commit.txn.otherwise, &reply);
            assert_eq!(seen.entry(&key).map(|entry| &entry.value), Some(&value), "{what}");
            let look = Allotment::new(&new, &keys).reads(&seen);
            assert!(look.iter().all(|key| seen.knows(key)), "{what}");
            assert!(seen.knows(&keys.tail(&scope)), "{what}");
        }
    }

    #[test]
    fn what_a_hint_forbids_or_leaves_open_is_looked_at() {
        let mut world = World::new();
        let remembered = world.hold(&ask("a", Order::Next));
        let without = |class: fn(&Key) -> bool| {
            let mut rest = remembered.clone();
            rest.retain(|key| !world.keys.parse(key).is_ok_and(|key| class(&key)));
            rest
        };
        for lacking in [
            without(|key| matches!(key, Key::Meta)),
            without(|key| matches!(key, Key::Cursor(..))),
            without(|key| matches!(key, Key::Page(..))),
        ] {
            assert!(world.first(&ask("b", Order::Next), &lacking).is_none(), "{lacking:?}");
        }
        let mut suspect = Meta::first("s".into());
        suspect.suspect = Some(1);
        let mut known = remembered.clone();
        let meta =
            known.entry(&world.keys.meta()).map(|meta| Entry { value: suspect.encode(), ..meta.clone() });
        known.set(&world.keys.meta(), meta);
        assert!(world.first(&ask("b", Order::Next), &known).is_none());
        let mut asked = ask("b", Order::Next);
        asked.ranges().requests =
            vec![Some("10.0.0.3".parse::<std::net::IpAddr>().expect("an address").into())];
        assert!(world.first(&asked, &remembered).is_none(), "nobody knows whether it is taken");
    }
}
