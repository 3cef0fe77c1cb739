//! The decisions of a change, made from the keys that its run has read. Pure; `metes_engine::drive` carries them out.

use super::effects::{Effects, Planned};
use crate::cooling::CoolingLeases;
use crate::fence::Fence;
use crate::keys::{Bytes, LeaseId, Scope};
use crate::line::Line;
use crate::pool::Owner;
use crate::request::TicketRecord;
use crate::snapshot::Snapshot;
use crate::txn::{Entry, Op, Txn};

/// A change of held addresses. It is pure, so that a test, a simulation or another run can make the same decision.
pub trait Change {
    /// Its result.
    type Done;
    /// The reason why the change cannot be made.
    type Refused;

    /// The owner whose addresses change. Its ticket shows it to people.
    fn owner(&self) -> &Owner;

    /// The queue of all runs that change the same pages. None while the keys read so far do not tell it, or if no other
    /// run changes the same pages.
    fn scope(&self, seen: &Snapshot) -> Option<Scope>;

    /// The keys that must be read before its queue is known, besides those of `reads`.
    fn unread(&self, _seen: &Snapshot) -> Vec<Bytes> {
        Vec::new()
    }

    /// The keys to read first, and again at the head of a queue.
    fn reads(&self, seen: &Snapshot) -> Vec<Bytes>;

    /// True if, by the keys read, it writes no key that other runs in the queue write. Then it does not wait for its
    /// turn.
    fn is_unhindered(&self, _seen: &Snapshot) -> bool {
        false
    }

    /// The keys that no other run writes, and that do not exist unless this change was tried before.
    fn own_keys(&self, _seen: &Snapshot) -> Vec<Bytes> {
        Vec::new()
    }

    /// The cooldowns, in seconds, of the addresses that it frees by the keys read, and its leases for them. None, or no
    /// cooldown, if none of these addresses cools.
    fn cooling(&mut self, _seen: &Snapshot) -> Option<(Vec<u32>, &mut CoolingLeases)> {
        None
    }

    /// Forgets the leases for cooling addresses: one of them may have ended.
    fn forget_leases(&mut self) {}

    /// Remembers facts that this answer shows and a later one may not show any more, such as a tombstone.
    fn learn(&mut self, _seen: &Snapshot) {}

    /// The next step. The plan of an ADD serves the others in the queue too, together with itself.
    ///
    /// # Errors
    /// Why the change cannot be made.
    fn plan(&self, seen: &Snapshot, fence: &Fence, line: &Line) -> Result<Step<Self::Done>, Self::Refused>;

    /// The commit to send as the first request, by keys that another run of the node has `left` behind. None if the
    /// change looks first.
    fn plan_first(&self, _left: &Snapshot, _fence: &Fence) -> Option<Commit<Self::Done>> {
        None
    }

    /// The record of its ticket. `epoch` is that of the store, and `tombstones` the lease for a tombstone.
    fn ticket(&self, _seen: &Snapshot, _epoch: u64, _tombstones: LeaseId) -> TicketRecord {
        TicketRecord::of(self.owner().clone())
    }

    /// The key that shows that another run at the head of the queue has served this one.
    fn proof(&self) -> Bytes;

    /// The result that another run has made for this one, by the entry of its `proof`. None if that does not show one.
    fn served(&self, _found: &Entry) -> Option<Self::Done> {
        None
    }

    /// The result if a batch serves it, for a change whose own plan serves no other run. None if its own plan serves
    /// others.
    fn done_by_batch(&self) -> Option<Self::Done> {
        None
    }

    /// The result of a settled commit; none if it was not applied. `found` is the entry of its `proof`. A change
    /// without a fence is not settled; it is planned again.
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
    /// The change's result after this commit; none if the change must then be planned again.
    pub done: Option<D>,
    /// The key that tells whether it was applied.
    pub proof: Bytes,
}

impl<D> Commit<D> {
    /// The commit of a planned transaction.
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
