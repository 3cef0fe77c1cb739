//! Reads, for an ADD, the mark and the hints that earlier runs of its node have left behind. Nothing relies on a hint.

use tokio::time::Instant;

use super::mark::{Hints, Mark};
use super::owner_hints::{Interface, OwnerHintFile};
use super::scope_hints::{ScopeHintFiles, ScopeHints};
use metes_core::keys::{Bytes, HintName, Key, Keys, LeaseId, NetworkAddress};
use metes_core::known::HighWater;
use metes_core::limits;
use metes_core::plan::allot::Allotment;
use metes_core::plan::change::Change;
use metes_core::plan::left::OwnerLeft;
use metes_core::pool::{AskedRanges, Meta, RunStart};
use metes_core::snapshot::Snapshot;
use metes_engine::policy::{Policy, SharedLease, TicketLease, Witness};

/// The mark and the hints that earlier runs of the node have left behind.
pub struct LeftBehind {
    mark: Mark,
    pools: Snapshot,
    /// The hints of this ADD's scope.
    scope: Option<ScopeHints>,
    /// The hints of its hold; none if it has none to ask for. Then the hints of the scope are no use to it: it may have
    /// nothing to choose.
    hold: Option<Option<ScopeHints>>,
    /// The older sandbox of its pod; none if this node knows of none.
    older: Option<OwnerLeft>,
}

impl LeftBehind {
    /// Reads the hints that this ADD can use.
    #[must_use]
    pub fn read(
        mark: Mark,
        (files, owners): (&ScopeHintFiles, &OwnerHintFile),
        keys: &Keys,
        allotment: &Allotment<'_>,
    ) -> Self {
        let read = |name: HintName| {
            let hints = files.read(&name)?;
            let meta = hints.keys.record::<Meta>(&keys.meta()).ok()??;
            mark.seen.is_of(&meta).then_some(hints)
        };
        let mut pools = Snapshot::default();
        let mut take = |name: Option<HintName>| {
            let hints = name.and_then(read).map(|hints| hints.keys).unwrap_or_default();
            let of_pools = hints.iter().filter(|(key, _)| is_pool(keys, key));
            of_pools.for_each(|(key, entry)| pools.set(key, entry.cloned()));
            pools.clone()
        };
        // The pools that `auto` chooses tell which texts are needed.
        let auto = take(allotment.auto_hints());
        let pools = take(allotment.pools_hints(&auto));
        let scope = allotment.scope(&pools).and_then(|scope| read((&scope).into()));
        let hold = allotment.hold_hints().map(read);
        let (owner, pod_uid) = allotment.owner_and_pod();
        let older = pod_uid.and_then(|_| owners.read(Interface { owner, pod_uid }));
        let older = older.filter(|older| older.is_before(owner) && older.is_of(&mark.seen));
        Self { mark, pools, scope, hold, older }
    }

    /// The bits of its scope that its commit may clear.
    #[must_use]
    pub fn some_stray(&self) -> Vec<NetworkAddress> {
        self.scope.as_ref().map(|scope| scope.some_stray().to_vec()).unwrap_or_default()
    }

    /// The older sandbox of this ADD's pod, if this node knows of one.
    #[must_use]
    pub fn older(&self) -> Option<OwnerLeft> {
        self.older.clone()
    }

    /// The pools of this ADD, as they were read last.
    #[must_use]
    pub fn pools(&self) -> &Snapshot {
        &self.pools
    }

    /// The hold of this ADD, as it was read last.
    pub(super) fn hold(&self) -> Snapshot {
        self.hold.iter().flatten().next().map(|hold| hold.keys.clone()).unwrap_or_default()
    }

    /// The store as the node knew it.
    #[must_use]
    pub fn known(&self) -> HighWater {
        self.mark.seen.clone()
    }

    /// True if the last ADD of this machine left this very key in the store. Then the machine had the name that it has
    /// now.
    #[must_use]
    pub fn has_own_key(&self, own_key: &[u8]) -> bool {
        let key = self.mark.seen.key.as_ref();
        key.is_some_and(|key| key.name.as_bytes() == own_key)
    }

    /// True if an ADD of this node has written the ranges under this key less than [`limits::ASKED_AGAIN`] before
    /// `now`.
    #[must_use]
    pub fn has_kept_ranges(&self, key: &[u8], now: &str) -> bool {
        let kept = || self.scope.as_ref()?.keys.record::<AskedRanges>(key).ok()?;
        kept().is_some_and(|asked| is_young(&asked, now))
    }

    /// The policy of an ADD that began at `start`. Its commits write the key `fence`.
    #[must_use]
    pub fn policy<'a>(
        &self,
        keys: &Keys,
        start: &RunStart,
        fence: Bytes,
        wait_until: Instant,
        witness: Witness<'a>,
        is_wanted: &'a dyn Fn() -> bool,
    ) -> Policy<'a> {
        let hints = self.hints();
        let shared = hints.lease_for(start);
        let mut policy = Policy::add(fence, wait_until);
        policy.lease.shared = shared.map(|lease| SharedLease { id: LeaseId(lease.id), stands: None });
        Policy {
            tickets: TicketLease::Own(hints.tickets_for(start).map(|lease| LeaseId(lease.id))),
            is_crowded: hints.is_crowded(start),
            looks_first: self.hold.is_some(),
            witness: Some(witness),
            remembered: self.remembered(start, keys),
            is_wanted,
            ..policy
        }
    }

    /// The keys that the first commit of a run may be planned on.
    fn remembered(&self, start: &RunStart, keys: &Keys) -> Option<Snapshot> {
        let hints = match &self.hold {
            Some(hold) => hold.as_ref(),
            None => self.scope.as_ref().filter(|scope| scope.serves(start)),
        };
        // A takeover needs none of a scope.
        let mut known = match (hints, &self.older) {
            (None, None) => return None,
            (hints, _) => hints.map(|hints| hints.keys.clone()).unwrap_or_default(),
        };
        self.pools.iter().for_each(|(key, entry)| known.set(key, entry.cloned()));
        if let Some(older) = &self.older {
            older.lay_over(keys, &mut known);
        }
        Some(known)
    }

    pub(super) fn hints(&self) -> Hints {
        self.mark.hints.clone()
    }
}

/// True if a record of ranges is so young that a node need not write it again yet.
pub(super) fn is_young(asked: &AskedRanges, now: &str) -> bool {
    asked.age(now).is_some_and(|age| age < limits::ASKED_AGAIN)
}

fn is_pool(keys: &Keys, key: &[u8]) -> bool {
    matches!(keys.parse(key), Ok(Key::Pool(_) | Key::PoolChanges))
}
