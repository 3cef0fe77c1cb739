//! Mutants: each takes away one guard, that is, one thing that keeps a transaction from doing harm.

use std::fmt;

use metes_core::keys::{Key, Keys};
use metes_core::pool::{Meta, OwnerKind, Record};
use metes_core::txn::{Compare, Op, Txn};

use crate::store::with_nested;

/// The kinds of guards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A key must not exist.
    Absent,
    /// A key must not have been made anew.
    Create,
    /// A key must be as it was read.
    Mod,
    /// A key must not be older than the node knows it.
    NotOlder,
    /// A key must be older than the node knows it.
    Older,
    /// A key must have this value.
    Value,
    /// No key begins with this.
    Empty,
    /// A write is refused if its lease has ended.
    Lease,
    /// The transaction writes a key that stops later transactions.
    Put,
    /// The transaction deletes a key that others rely on.
    Delete,
    /// A lease that others rely on is ended.
    Revoke,
    /// A record says whose it is.
    Identity,
}

/// One guard of one step of the protocol: all compares of one kind on one class of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Guard {
    /// The step, as transactions name it.
    pub step: &'static str,
    /// The kind.
    pub kind: Kind,
    /// The class of the keys that it looks at.
    pub class: &'static str,
}

/// Leaves out one guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mutant(pub Guard);

impl fmt::Display for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{:?}/{}", self.step, self.kind, self.class)
    }
}

impl Guard {
    pub(crate) fn of_compare(step: &'static str, compare: &Compare, keys: &Keys) -> Self {
        let (kind, key) = match compare {
            Compare::Create(key, 0) => (Kind::Absent, key),
            Compare::Create(key, _) => (Kind::Create, key),
            Compare::Mod(key, _) => (Kind::Mod, key),
            Compare::NotOlder(key, _) => (Kind::NotOlder, key),
            Compare::Older(key, _) => (Kind::Older, key),
            Compare::Value(key, _) => (Kind::Value, key),
            Compare::Empty(prefix) => (Kind::Empty, prefix),
        };
        Self { step, kind, class: class(key, keys) }
    }

    fn of_op(step: &'static str, op: &Op, keys: &Keys) -> Option<Self> {
        match op {
            Op::Put(key, _, Some(_)) => match class(key, keys) {
                "fence" => Some(Self { step, kind: Kind::Lease, class: "fence" }),
                class @ ("tombstone" | "cooling") => Some(Self { step, kind: Kind::Put, class }),
                _ => None,
            },
            Op::Delete(key) if step == "settle" => {
                Some(Self { step, kind: Kind::Delete, class: class(key, keys) })
            }
            _ => None,
        }
    }

    /// The guards that a run relies on when it has settled the outcome of its commit.
    pub(crate) const REVOKE: Self = Self { step: "settle", kind: Kind::Revoke, class: "lease" };

    /// The guards that tell one machine, cluster or store from another. They are no compares of a transaction; they
    /// decide which transactions are made.
    pub const IDENTITIES: [Self; 7] = [
        Self::OWNER_MACHINE,
        Self::OWNER_CLUSTER,
        Self::SPOOL_MACHINE,
        Self::MARK_MACHINE,
        Self::MARK_STORE,
        Self::FORMER_NAME,
        Self::STRANGER_MACHINE,
    ];
    /// The machine in owner records.
    pub(crate) const OWNER_MACHINE: Self = Self { step: "owner", kind: Kind::Identity, class: "machine" };
    /// The cluster in owners' keys.
    pub(crate) const OWNER_CLUSTER: Self = Self { step: "owner", kind: Kind::Identity, class: "cluster" };
    /// The machine in spooled frees.
    pub(crate) const SPOOL_MACHINE: Self = Self { step: "spool", kind: Kind::Identity, class: "machine" };
    /// The machine in a node's mark.
    pub(crate) const MARK_MACHINE: Self = Self { step: "mark", kind: Kind::Identity, class: "machine" };
    /// The store's id in a node's mark.
    pub(crate) const MARK_STORE: Self = Self { step: "mark", kind: Kind::Identity, class: "store" };
    /// The revision of the own key under a former name.
    pub(crate) const FORMER_NAME: Self = Self { step: "former", kind: Kind::Identity, class: "name" };
    /// The machine in the key of a node that came from elsewhere.
    pub(crate) const STRANGER_MACHINE: Self =
        Self { step: "stranger", kind: Kind::Identity, class: "machine" };

    /// An ADD commits under no lease that etcd grants for too long. This guard is no compare either: without it, the
    /// ADD is told of a lease that is short enough.
    pub const LONG_FENCE: Self = Self { step: "add", kind: Kind::Lease, class: "granted" };

    /// Every guard of a transaction and of those inside it.
    pub(crate) fn all_of<'t>(txn: &'t Txn, keys: &'t Keys) -> impl Iterator<Item = Self> + 't {
        with_nested(txn).into_iter().flat_map(move |txn| {
            let compares = txn.compares.iter().map(|compare| Self::of_compare(txn.step, compare, keys));
            compares.chain(txn.then.iter().filter_map(|op| Self::of_op(txn.step, op, keys)))
        })
    }
}

impl Mutant {
    /// Takes the guard away, from nested transactions too.
    pub(crate) fn apply(&self, txn: &mut Txn, keys: &Keys) {
        if txn.only_reads() {
            return;
        }
        for op in txn.then.iter_mut().chain(&mut txn.otherwise) {
            if let Op::Nested(inner) = op {
                self.apply(inner, keys);
            }
        }
        let Self(guard) = self;
        if *guard == Guard::MARK_STORE && txn.step == "found" {
            txn.then.iter_mut().for_each(|op| make_equal(op, keys));
        }
        if *guard == Guard::STRANGER_MACHINE {
            txn.then.iter_mut().for_each(|op| make_nobodys(op, keys));
        }
        if txn.step == guard.step {
            guard.leave_out(txn, keys);
        }
    }
}

/// Founds every store with the same id.
fn make_equal(op: &mut Op, keys: &Keys) {
    if let Op::Put(key, value, _) = op
        && *key == keys.meta()
    {
        *value = Meta::first("one".to_owned()).encode();
    }
}

/// Leaves the key of a node that came from elsewhere under the name of no machine.
fn make_nobodys(op: &mut Op, keys: &Keys) {
    if let Op::Put(key, ..) = op
        && let Ok(Key::Stranger(store, _)) = keys.parse(key)
    {
        *key = keys.stranger(&store, "");
    }
}

impl Guard {
    fn leave_out(&self, txn: &mut Txn, keys: &Keys) {
        txn.compares.retain(|compare| Guard::of_compare(txn.step, compare, keys) != *self);
        let is_it = |op: &Op| Guard::of_op(txn.step, op, keys) == Some(*self);
        if matches!(self.kind, Kind::Put | Kind::Delete) {
            // Answers are told by their position.
            txn.then.iter_mut().filter(|op| is_it(op)).for_each(|op| *op = Op::Get(keys.meta()));
            return;
        }
        for op in txn.then.iter_mut().filter(|op| is_it(op)) {
            let bare = match &*op {
                Op::Put(key, value, _) => Op::Put(key.clone(), value.clone(), None),
                other => other.clone(),
            };
            *op = bare;
        }
    }
}

fn class(key: &[u8], keys: &Keys) -> &'static str {
    match keys.parse(key) {
        Ok(Key::Meta) => "meta",
        Ok(Key::Page(..)) => "page",
        Ok(Key::Summary(..)) => "summary",
        Ok(Key::Ip(..)) => "ip",
        Ok(Key::Cooling(..)) => "cooling",
        Ok(Key::Cursor(..)) => "cursor",
        Ok(Key::Owner(owner)) => match owner.kind() {
            OwnerKind::Subject(_) => "subject",
            OwnerKind::Container(_) | OwnerKind::Aside(..) | OwnerKind::Unknown => "owner",
        },
        Ok(Key::Seat(_)) => "seat",
        Ok(Key::Pod(_)) => "pod",
        Ok(Key::Tombstone(_)) => "tombstone",
        Ok(Key::Ticket(..)) => "ticket",
        Ok(Key::Tail(_)) => "tail",
        Ok(Key::Moved(_)) => "moved",
        Ok(Key::Fence(_)) => "fence",
        Ok(Key::Cluster(_)) => "cluster",
        Ok(Key::Orphan(_)) => "orphan",
        Ok(Key::Seen(..)) => "seen",
        Ok(Key::Lacking(..)) => "lacking",
        Ok(Key::Lead(_)) => "lead",
        Ok(Key::Pass(_)) => "pass",
        Ok(Key::Member(_)) => "member",
        Ok(Key::Import(_)) => "import",
        Ok(Key::Pool(_)) => "pool",
        Ok(Key::PoolChanges) => "pools",
        Ok(Key::Hold(..)) => "hold",
        Ok(Key::Asked(_)) => "asked",
        Ok(Key::Node(_)) => "node",
        Ok(Key::GoneMachine(_)) => "gone",
        Ok(Key::Forgotten) => "forgotten",
        Ok(Key::Stranger(..)) => "stranger",
        Err(_) if key == keys.nets() => "nets",
        Err(_) if key == keys.owners() => "owners",
        Err(_) if key == keys.pods() => "pods",
        Err(_) => "other",
    }
}
