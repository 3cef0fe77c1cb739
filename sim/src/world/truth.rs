//! The knowledge of the callers: the sandboxes, the answer of each ADD, and the beginning of each DEL. The store is
//! judged by this.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use metes_core::pool::{Held, Owner, OwnerRecord, RunStart};

use super::ids::{ProcessId, SandboxId};
use super::tree::{Owned, OwnerChange, words};

/// The answer of an ADD, which the container uses.
#[derive(Debug, Clone)]
pub(crate) struct Live {
    pub(crate) held: Vec<Held>,
    /// The order of the run that answered.
    pub(crate) order: u64,
}

/// The request of the ADDs of a sandbox.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asks {
    pub(crate) config: usize,
    pub(crate) request: Option<std::net::IpAddr>,
    /// The configuration's static address too.
    pub(crate) with_fixed: bool,
}

/// A sandbox of a pod, with its one interface: an owner.
#[derive(Debug)]
pub(crate) struct Sandbox {
    pub(crate) owner: Owner,
    pub(crate) pod: usize,
    /// The pod of the slot that it belongs to.
    pub(crate) uid: String,
    pub(crate) node: usize,
    pub(crate) config: usize,
    pub(crate) request: Option<std::net::IpAddr>,
    pub(crate) with_fixed: bool,
    /// ADDs under way.
    pub(crate) adds: Vec<ProcessId>,
    pub(crate) dels: u32,
    /// It runs with these addresses.
    pub(crate) live: Option<Live>,
    /// It was replaced by a younger sandbox, or its pod is gone, or its node is: somebody may free it.
    pub(crate) is_over: bool,
    /// The order of the youngest DEL that has begun, and of the youngest that has said that nothing is held.
    pub(crate) deleted: u64,
    pub(crate) freed: u64,
    /// Starts whose ADD has failed and promised that nothing is held.
    pub(crate) failed: HashSet<RunStart>,
    /// The order of the youngest DEL that is left in the spool.
    pub(crate) spooled: u64,
    /// Starts whose ADD has failed and has left a DEL in the spool, for the addresses that that very run may have been
    /// given.
    pub(crate) given_back: HashSet<RunStart>,
    /// The start that the present record was created with.
    creator: Option<RunStart>,
    pub(crate) tries: u32,
}

/// All that callers know.
#[derive(Debug, Default)]
pub(crate) struct Truth {
    pub(crate) sandboxes: Vec<Sandbox>,
    /// By owner and node, because two machines may go by one name.
    by_owner: HashMap<(Owner, usize), SandboxId>,
    youngest: HashMap<Owner, SandboxId>,
    /// The node of each boot.
    boots: HashMap<String, usize>,
    /// Owners that sandboxes of two machines have had.
    shared: HashSet<Owner>,
    /// The position of each start among all starts, and the world's time then.
    starts: HashMap<RunStart, (u64, Duration)>,
    /// ADDs whose answer may be outdated when it comes.
    pub(crate) excused: HashSet<ProcessId>,
    /// The time after its start by which an ADD has committed.
    pub(crate) fenced: Duration,
    /// A new leader has prolonged leases: fences last longer.
    pub(crate) leases_prolonged: bool,
    /// The time at which the store went back last.
    pub(crate) restored_at: Duration,
    /// Owners whose records were written with other tools: an ADD cannot know whether another run has answered with
    /// such a record since.
    pub(crate) written_by_hand: HashSet<Owner>,
}

impl Truth {
    /// Nothing yet. An ADD can commit for so long after its start.
    pub(crate) fn new(fenced: Duration) -> Self {
        Self { fenced, ..Self::default() }
    }

    pub(crate) fn new_sandbox(
        &mut self,
        owner: Owner,
        pod: usize,
        uid: String,
        node: usize,
        asks: Asks,
    ) -> SandboxId {
        let id = self.sandboxes.len();
        if self.sandbox_of(&owner).is_some_and(|other| self.sandboxes[other].node != node) {
            self.shared.insert(owner.clone());
        }
        self.by_owner.insert((owner.clone(), node), id);
        self.youngest.insert(owner.clone(), id);
        self.sandboxes.push(Sandbox {
            owner,
            pod,
            uid,
            node,
            config: asks.config,
            request: asks.request,
            with_fixed: asks.with_fixed,
            adds: Vec::new(),
            dels: 0,
            live: None,
            is_over: false,
            deleted: 0,
            freed: 0,
            failed: HashSet::new(),
            spooled: 0,
            given_back: HashSet::new(),
            creator: None,
            tries: 0,
        });
        id
    }

    pub(crate) fn note_start(&mut self, start: &RunStart, node: usize, now: Duration) {
        self.boots.entry(start.boot.clone()).or_insert(node);
        let order = self.starts.len() as u64 + 1;
        self.starts.insert(start.clone(), (order, now));
    }

    /// The position of a start among all starts; 0 for one that nobody had.
    pub(crate) fn order(&self, start: Option<&RunStart>) -> u64 {
        start.and_then(|start| self.starts.get(start)).map_or(0, |(order, _)| *order)
    }

    /// The world's time at which the run of this start began.
    pub(crate) fn began(&self, start: &RunStart) -> Option<Duration> {
        self.starts.get(start).map(|(_, began)| *began)
    }

    /// True if this start comes later by its clock than the one at this position of the same boot.
    pub(crate) fn seems_younger(&self, start: &RunStart, order: u64) -> bool {
        let is_it = |other: &RunStart, at: u64| at == order && other.boot == start.boot;
        self.starts.iter().any(|(other, (at, _))| is_it(other, *at) && other.ns < start.ns)
    }

    /// From now on the sandbox may lose its addresses.
    pub(crate) fn end(&mut self, id: SandboxId) {
        let sandbox = &mut self.sandboxes[id];
        sandbox.live = None;
        sandbox.is_over = true;
    }

    /// Judges how an owner's record has changed.
    pub(crate) fn follow(&mut self, change: &OwnerChange, now: Duration) -> Result<(), String> {
        let name = || words(&change.owner);
        let of = |owned: Option<&Owned>| self.sandbox_in(&change.owner, owned);
        let (before, after) = (of(change.before.as_ref()), of(change.after.as_ref()));
        if let Some(id) = before
            && before != after
            && change.after.is_some()
            && self.sandboxes[id].live.is_some()
        {
            return Err(format!("{} is alive, and its record was taken by another machine", name()));
        }
        let Some(id) = after.or(before) else { return Ok(()) };
        let sandbox = &self.sandboxes[id];
        if let Some(live) = &sandbox.live {
            match &change.after {
                None => return Err(format!("{} is alive, and its record was freed", name())),
                Some(after) if after.record.addresses != live.held => {
                    return Err(format!("{} is alive, and its addresses were changed", name()));
                }
                Some(_) => {}
            }
        }
        let Some(after) = &change.after else {
            self.sandboxes[id].creator = None;
            return Ok(());
        };
        if change.before.is_some() {
            return Ok(());
        }
        let start = after.record.start.clone();
        let order = self.order(start.as_ref());
        // Another machine's tombstone replaces this machine's.
        if order < sandbox.freed && !self.shared.contains(&change.owner) {
            return Err(format!("{} holds something again, of a run that was before its DEL", name()));
        }
        if let Some(start) = &start {
            if sandbox.failed.contains(start) {
                return Err(format!("{} holds something after its ADD has failed", name()));
            }
            // A ticket that a snapshot brings back has the time of its lease once more.
            let since = self.began(start).map_or(now, |since| since.max(self.restored_at));
            if !self.leases_prolonged && now > since + self.fenced {
                return Err(format!("an ADD of {} took effect {:?} after it began", name(), now - since));
            }
        }
        self.sandboxes[id].creator = start;
        Ok(())
    }

    /// An ADD has failed. `spooled` says that it has left a DEL, `holds` that the record is of its start.
    pub(crate) fn failed(
        &mut self,
        id: SandboxId,
        start: &RunStart,
        spooled: bool,
        holds: bool,
    ) -> Result<(), String> {
        let sandbox = &mut self.sandboxes[id];
        if spooled {
            sandbox.given_back.insert(start.clone());
            return Ok(());
        }
        sandbox.failed.insert(start.clone());
        if holds && sandbox.creator.as_ref() == Some(start) {
            return Err(format!("the ADD of {} has failed and holds something", words(&sandbox.owner)));
        }
        Ok(())
    }

    /// The node whose run has written a record; none if nobody knows.
    pub(crate) fn writer(&self, record: &OwnerRecord) -> Option<usize> {
        self.boots.get(&record.start.as_ref()?.boot).copied()
    }

    /// The sandbox that holds a record.
    fn sandbox_in(&self, owner: &Owner, owned: Option<&Owned>) -> Option<SandboxId> {
        let record = &owned?.record;
        match self.writer(record) {
            Some(node) => self.by_owner.get(&(owner.clone(), node)).copied(),
            None => self.sandbox_of(owner),
        }
    }

    pub(crate) fn sandbox_of(&self, owner: &Owner) -> Option<SandboxId> {
        self.youngest.get(owner).copied()
    }
}
