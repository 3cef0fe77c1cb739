//! What a change decides, from what was read. Pure; `metes_engine::drive` carries it out.

use super::effects::{Effects, Planned};
use crate::cooling::CoolingLeases;
use crate::fence::Fence;
use crate::keys::{Bytes, LeaseId, Scope};
use crate::line::Line;
use crate::pool::Owner;
use crate::request::TicketRecord;
use crate::snapshot::Snapshot;
use crate::txn::{Entry, Op, Txn};

/// A change of what is held: pure, so that a test, a simulation or another run can make the same decision.
pub trait Change {
    /// Its result.
    type Done;
    /// Why it cannot be made, by what was read.
    type Refused;

    /// Whose addresses change. A ticket shows it to people.
    fn owner(&self) -> &Owner;

    /// The queue of all runs that change the same pages. None while that is not known from what was read, or if nobody
    /// else changes the same.
    fn scope(&self, seen: &Snapshot) -> Option<Scope>;

    /// The keys to read before its queue is known, apart from those that it reads first.
    fn unread(&self, _seen: &Snapshot) -> Vec<Bytes> {
        Vec::new()
    }

    /// The keys to read first, and again at the head of a queue.
    fn reads(&self, seen: &Snapshot) -> Vec<Bytes>;

    /// Whether, by what was read, it writes nothing that others in the queue write. Then it does not wait for its turn.
    fn is_unhindered(&self, _seen: &Snapshot) -> bool {
        false
    }

    /// The keys that no other run writes, and that do not exist unless this change was tried before.
    fn own_keys(&self, _seen: &Snapshot) -> Vec<Bytes> {
        Vec::new()
    }

    /// The cooldowns, in seconds, of what it frees by what was read, and the leases for them, if it frees what cools.
    fn cooling(&mut self, _seen: &Snapshot) -> Option<(Vec<u32>, &mut CoolingLeases)> {
        None
    }

    /// Forgets the leases for what cools: one of them may have ended.
    fn forget_leases(&mut self) {}

    /// Remembers what an answer shows, if the next one may not show it any more.
    fn learn(&mut self, _seen: &Snapshot) {}

    /// The next step. The plan of an ADD serves the others in the queue too, together with itself.
    ///
    /// # Errors
    /// Why the change cannot be made.
    fn plan(&self, seen: &Snapshot, fence: &Fence, line: &Line) -> Result<Step<Self::Done>, Self::Refused>;

    /// The record of its ticket. `epoch` is that of the store, and `tombstones` the lease for a tombstone.
    fn ticket(&self, _seen: &Snapshot, _epoch: u64, _tombstones: LeaseId) -> TicketRecord {
        TicketRecord::of(self.owner().clone())
    }

    /// The key that shows that another run at the head of the queue has served this one.
    fn proof(&self) -> Bytes;

    /// What another run has made for this one, by the entry of its proof.
    fn served(&self, _found: &Entry) -> Option<Self::Done> {
        None
    }

    /// What it comes to if a batch serves it, where its plan serves nobody else; none if the plan does.
    fn done_by_batch(&self) -> Option<Self::Done> {
        None
    }

    /// What a settled commit came to, if it was applied. `found` is the entry of its `proof`. A change without a fence
    /// is not settled; it is planned again.
    fn applied(&self, _commit: Commit<Self::Done>, _found: Option<&Entry>) -> Option<Self::Done> {
        None
    }
}

/// The next step of a [`Change`].
#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant, reason = "there is one at a time, and most are commits")]
pub enum Step<D> {
    /// Carry out these reads, then plan again.
    Read(Vec<Op>),
    /// Commit this.
    Commit(Commit<D>),
    /// Nothing is to be written.
    Done(D),
}

/// A commit.
#[derive(Debug, Clone)]
pub struct Commit<D> {
    /// The transaction.
    pub txn: Txn,
    /// Its effects if it is applied.
    pub effects: Effects,
    /// Its result; none: plan again after it.
    pub done: Option<D>,
    /// The key that tells whether it was applied.
    pub proof: Bytes,
}

impl<D> Commit<D> {
    /// The commit of what was planned.
    #[must_use]
    pub fn new(Planned { txn, effects }: Planned, done: Option<D>, proof: Bytes) -> Self {
        Self { txn, effects, done, proof }
    }
}

impl<D> Step<D> {
    /// Reads these keys.
    #[must_use]
    pub fn read(keys: Vec<Bytes>) -> Self {
        Step::Read(keys.into_iter().map(Op::Get).collect())
    }
}
