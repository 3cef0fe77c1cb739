//! An ADD raises the mark of its node, and leaves hints that may save the next run a request.

use super::mark::{MarkFile, NodeLease, Unanswered};
use super::node;
use super::owner_hints::{Interface, OwnerHintFile};
use super::recall::{LeftBehind, is_young};
use super::scope_hints::{ScopeHintFiles, ScopeHints};
use metes_core::keys::{Bytes, HintName, Key, Keys, LeaseId, Scope};
use metes_core::plan::allot::Allotment;
use metes_core::plan::first::{self, FirstRequest};
use metes_core::plan::left::OwnerLeft;
use metes_core::pool::{AskedRanges, Record, RunStart};
use metes_core::snapshot::Snapshot;
use metes_core::txn::Entry;
use metes_engine::drive::{Acknowledged, Driver};
use metes_engine::kv::Kv;

/// Where a run leaves something behind, and when.
pub struct Leaving<'a> {
    /// The keys of the store.
    pub keys: &'a Keys,
    /// The mark of the node.
    pub mark: &'a MarkFile,
    /// The hints of the node.
    pub scope_hints: &'a ScopeHintFiles,
    /// Those of the owners on the node.
    pub owner_hints: &'a OwnerHintFile,
    /// The start of the run.
    pub start: &'a RunStart,
    /// The present boot-time clock, in the form of a start.
    pub now: RunStart,
}

impl Leaving<'_> {
    /// Leaves the run's knowledge after a commit of the run was acknowledged. `before` is the knowledge that it began
    /// with, and `reserved` is true if the owner held nothing before.
    pub fn remember<K: Kv>(
        self,
        allotment: &Allotment<'_>,
        driver: &mut Driver<'_, K>,
        before: &LeftBehind,
        reserved: bool,
    ) {
        driver.share_lease();
        let hold = allotment.hold_hints();
        if let (Some(hold), FirstRequest::Missed) = (&hold, driver.first()) {
            self.scope_hints.forget(hold);
        }
        let Some(Acknowledged { scope, asked, proof, .. }) = driver.take_acknowledged() else { return };
        let Some(seen) = driver.seen_store().cloned() else { return };
        self.leave_owner(allotment, driver.shared(), proof.filter(|_| reserved));
        let hints = before.hints();
        let since_when = |LeaseId(id), known: &Option<NodeLease>| match known {
            Some(known) if known.id == id => known.clone(),
            _ => NodeLease { id, since: self.start.clone() },
        };
        let lease = driver.lease().map(|lease| since_when(lease, &hints.lease));
        let tickets = driver.own_ticket_lease().map(|lease| since_when(lease, &hints.tickets));
        let crowded = driver.met_others().then(|| self.now.clone());
        // Without a scope, what this run has read of the pages is older than what another run has written for it.
        if let Some(scope) = scope {
            self.leave_scope(allotment, driver, &scope, asked);
        }
        self.leave_pools(allotment, driver.shared(), before.pools());
        if let Some(name) = hold {
            self.leave_unless_known(&name, driver.shared(), &before.hold(), first::is_of_hold);
        }
        self.mark.raise(seen, |hints| {
            (hints.lease, hints.tickets) = (lease, tickets);
            hints.unanswered = None;
            hints.crowded = crowded.or(hints.crowded.take());
        });
    }

    /// Tells the node's DELs that etcd has not answered this ADD, and leaves the leases that it has got all the same:
    /// an overloaded etcd must not grant them once more. A node without a mark has nowhere to.
    pub fn unanswered<K: Kv>(self, driver: &mut Driver<'_, K>, before: &LeftBehind) {
        driver.share_lease();
        let (hints, since) = (before.hints(), self.start.clone());
        let new = |lease: Option<LeaseId>, known: &Option<NodeLease>| {
            let lease = lease.filter(|lease| known.as_ref().is_none_or(|known| known.id != lease.0));
            lease.map(|LeaseId(id)| NodeLease { id, since: since.clone() })
        };
        let lease = new(driver.lease(), &hints.lease);
        let tickets = new(driver.own_ticket_lease(), &hints.tickets);
        self.mark.leave(|hints| {
            hints.lease = lease.or(hints.lease.take());
            hints.tickets = tickets.or(hints.tickets.take());
            hints.unanswered = Some(Unanswered { owner: None, at: self.now });
        });
    }

    /// Leaves the owner's record for its DEL. A repeated ADD has written it anew, but not the reservations; then
    /// nothing is left.
    fn leave_owner(&self, allotment: &Allotment<'_>, seen: &Snapshot, record: Option<Entry>) {
        let (owner, pod_uid) = allotment.owner_and_pod();
        let interface = Interface { owner, pod_uid };
        match (record, seen.entry(&self.keys.meta())) {
            (Some(Entry { value: record, mod_revision: revision, .. }), Some(meta)) => {
                let (owner, meta) = (owner.clone(), meta.value.clone());
                self.owner_hints.keep(interface, OwnerLeft { owner, record, revision, meta });
            }
            _ => self.owner_hints.forget(interface),
        }
    }

    /// Leaves what this run knows of its scope, beside what runs of other ranges have left there.
    fn leave_scope<K: Kv>(
        &self,
        allotment: &Allotment<'_>,
        driver: &Driver<'_, K>,
        scope: &Scope,
        asked: Option<(Bytes, Vec<u8>)>,
    ) {
        let meta = self.keys.meta();
        let meta_of = |keys: &Snapshot| keys.entry(&meta).map(|meta| meta.value.clone());
        let (name, mut shared) = (HintName::from(scope), driver.shared().clone());
        // It is read again, because other runs of the node may have left something meanwhile.
        let known = self.scope_hints.read(&name).filter(|known| meta_of(&known.keys) == meta_of(&shared));
        let mut known = known.unwrap_or_default();
        // Whether this run has cleared them or not: what it could not clear is in use by now.
        known.stray.retain(|noted| !allotment.stray().contains(noted));
        let own_cursors = allotment.cursors(&shared);
        shared.retain(|key| match self.keys.parse(key) {
            Ok(Key::Pool(_) | Key::PoolChanges) => false,
            Ok(key) if first::is_of_hold(&key) => false,
            // A head has read the cursors of all whom it has served.
            Ok(Key::Cursor(..)) => known.keys.knows(key) || own_cursors.iter().any(|own| own == key),
            _ => true,
        });
        // No look reads the records of ranges that are asked for. So what this run has written is added to what was
        // known. Only their time is kept: the ranges of many configurations would be too much.
        let now_for_people = node::timestamp();
        let is_asked = |key: &[u8]| matches!(self.keys.parse(key), Ok(Key::Asked(_)));
        let earlier = known.keys.iter().filter(|(key, _)| is_asked(key));
        let earlier = earlier.filter_map(|(key, entry)| Some((key.clone(), entry?.value.clone())));
        for (key, value) in earlier.chain(asked) {
            let record = AskedRanges::decode(&value).ok();
            if let Some(young) = record.filter(|asked| is_young(asked, &now_for_people)) {
                let value = young.without_ranges().encode();
                let entry = Entry { key, value, create_revision: 0, mod_revision: 0, lease: 0 };
                shared.set(&entry.key.clone(), Some(entry));
            }
        }
        known.keys.retain(|key| !is_asked(key));
        // The first request of an ADD with a hold says nothing of the pages, nor does a takeover.
        let of_pages = allotment.hold_hints().is_none() && !allotment.expects_older();
        let first = if of_pages { driver.first() } else { FirstRequest::Look };
        self.scope_hints.keep(&name, &known.left(shared, first, self.now.clone()));
    }

    /// Leaves what `auto` chooses by, and the texts of the pools that it has chosen or that were named.
    fn leave_pools(&self, allotment: &Allotment<'_>, seen: &Snapshot, before: &Snapshot) {
        if let Some(name) = allotment.auto_hints() {
            self.leave_unless_known(&name, seen, before, |key| matches!(key, Key::PoolChanges));
        }
        if let Some(name) = allotment.pools_hints(seen) {
            self.leave_unless_known(&name, seen, before, |key| matches!(key, Key::Pool(_)));
        }
    }

    /// Leaves the keys that are meant, unless they were known `before`. Meta goes with them: it says of which store
    /// they are.
    fn leave_unless_known(
        &self,
        name: &HintName,
        seen: &Snapshot,
        before: &Snapshot,
        is_meant: impl Fn(&Key) -> bool,
    ) {
        let meta = self.keys.meta();
        let mut keys = seen.clone();
        keys.retain(|key| *key == *meta || self.keys.parse(key).is_ok_and(|key| is_meant(&key)));
        let is_known = |(key, entry): (&Bytes, Option<&Entry>)| {
            *key == meta || before.knows(key) && before.entry(key) == entry
        };
        if !keys.iter().all(is_known) {
            self.scope_hints.keep(name, &ScopeHints { keys, missed: None, stray: Vec::new() });
        }
    }
}
