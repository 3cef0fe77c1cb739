//! A run's ticket in a queue, and the transaction that takes it. Pure; `metes_engine::queue` waits with it.

use super::keys::{Bytes, LeaseId};
use super::request::TicketRecord;
use super::snapshot::Snapshot;
use super::txn::{Compare, Entry, Op, Reply, Txn};
use crate::plan::effects::{END_OF_QUEUE, Position};
use crate::pool::{ClusterName, Record};

/// The number of operations of the transaction that takes a ticket, without the reads for the run.
pub const TICKET_OPS: usize = 6;

/// A run's ticket in its queue, as the key was read after it was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket {
    /// The key.
    pub key: Bytes,
    /// A commit compares it, so a ticket that was removed and made again does not count.
    pub create_revision: i64,
    /// The lease that the ticket hangs on.
    pub lease: LeaseId,
    /// The cluster of its run: at the head, the run serves those of its own cluster alone.
    pub cluster: Option<ClusterName>,
    /// The lease for a tombstone, which stands for longer.
    pub tombstones: LeaseId,
    /// The key that names the ticket which was taken last.
    pub tail: Bytes,
    /// The key that every commit from the queue writes, so that those who wait see that it moves.
    pub moved: Bytes,
}

impl Ticket {
    /// The place, in its removal, of the transaction that ends the queue.
    pub const END: Position = END_OF_QUEUE;

    /// The operations that remove the ticket, and also the tail if it still names this ticket.
    #[must_use]
    pub fn removal(&self) -> [Op; 2] {
        self.removal_of(&self.key)
    }

    /// The operations that remove a ticket of the same queue in the same way.
    pub(crate) fn removal_of(&self, ticket: &Bytes) -> [Op; 2] {
        [Op::Delete(ticket.clone()), Op::Nested(Box::new(self.end_of_queue(ticket)))]
    }

    /// The transaction that removes the tail if it names the ticket of this key: then nobody waits.
    pub(crate) fn end_of_queue(&self, ticket: &[u8]) -> Txn {
        let names_it = Compare::Value(self.tail.clone(), tail_value(ticket).to_vec());
        let then = vec![Op::Delete(self.tail.clone())];
        Txn { step: "end-of-queue", compares: vec![names_it], then, ..Txn::default() }
    }

    /// The operation that shows those who wait that the queue moves.
    pub(crate) fn moves_queue(&self) -> Op {
        Op::Put(self.moved.clone(), Vec::new(), Some(self.lease))
    }

    /// The value of [`Ticket::moved`] with which a commit says that its head has given a run its turn, by this
    /// commit or by an earlier one.
    pub(crate) fn turn_given() -> Vec<u8> {
        TURN_GIVEN.to_vec()
    }

    /// True if the ticket existed when its key was read last.
    #[must_use]
    pub fn stands(&self, seen: &Snapshot) -> bool {
        seen.entry(&self.key).is_some_and(|entry| entry.create_revision == self.create_revision)
    }
}

/// The value of [`Ticket::moved`] after a commit of a head that has given a run its turn. That run may be dead.
const TURN_GIVEN: &[u8] = b"turn";

/// True if the head of the last commit from the queue has given a run its turn, by the entry of [`Ticket::moved`].
#[must_use]
pub fn awaits_turn(moved: Option<&Entry>) -> bool {
    moved.is_some_and(|moved| moved.value == TURN_GIVEN)
}

/// The value of a tail that names the ticket of this key: the id, with which the key ends.
fn tail_value(ticket: &[u8]) -> &[u8] {
    &ticket[ticket.len().saturating_sub(16)..]
}

/// The transaction that takes a ticket, and reads what the run needs. What is beside it comes last, so that the reads
/// show what was there before.
pub fn ticket_txn(ticket: &Ticket, record: &TicketRecord, reads: &[Op], beside: Option<Op>) -> Txn {
    let Ticket { key, tail, moved, lease, .. } = ticket;
    let mut then = vec![
        Op::Get(tail.clone()),
        Op::Put(tail.clone(), tail_value(key).to_vec(), Some(*lease)),
        Op::Put(key.clone(), record.encode(), Some(*lease)),
        Op::Get(key.clone()),
        Op::Get(moved.clone()),
    ];
    let mut otherwise = vec![Op::Get(tail.clone()), Op::Get(key.clone()), Op::Get(moved.clone())];
    then.extend_from_slice(reads);
    then.extend(beside);
    otherwise.extend_from_slice(reads);
    let compares = vec![Compare::Create(key.clone(), 0)];
    Txn { step: "ticket", compares, then, otherwise, ..Txn::default() }
}

/// True if the transaction beside a ticket was carried out: it is the last operation of the one that took the ticket.
pub fn has_carried_out(reply: &Reply) -> bool {
    let beside = reply.found.last().and_then(|found| found.nested.as_ref());
    reply.succeeded && beside.is_some_and(|beside| beside.succeeded)
}
