//! The fence. It prevents that a commit is applied late: after its run was stopped for long, has left, or has settled
//! that the commit was not applied.

use super::builder::Builder;
use super::keys::{Bytes, LeaseId};
use super::ticket::Ticket;

/// The fence of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fence {
    /// A ticket: the commit compares that it exists, and removes it.
    Ticket(Ticket),
    /// A lease alone, where nobody queues. The commit writes `key` on it, and etcd refuses a whole transaction that
    /// writes on a lease that has ended.
    Lease {
        /// The node's key for this.
        key: Bytes,
        /// The lease. It was granted before the run's deadline.
        lease: LeaseId,
    },
    /// Nothing. A free needs no fence: it compares the revision of the record that it frees.
    Unfenced {
        /// The lease for a tombstone, or for the time of a hold.
        lease: Option<LeaseId>,
    },
}

impl Fence {
    /// The lease on which the commit may put keys that end by themselves.
    pub(crate) fn lease(&self) -> Option<LeaseId> {
        match self {
            Fence::Ticket(ticket) => Some(ticket.tombstones),
            Fence::Lease { lease, .. } => Some(*lease),
            Fence::Unfenced { lease } => *lease,
        }
    }

    /// Makes the transaction fail once the fence is gone.
    pub fn guard(&self, builder: &mut Builder<'_>) {
        match self {
            Fence::Ticket(ticket) => {
                builder.exactly(ticket.key.clone(), ticket.create_revision);
                builder.delete(ticket.key.clone());
                let end = builder.nest(ticket.end_of_queue(&ticket.key));
                builder.push(ticket.moves_queue());
                builder.effects.removes.push(ticket.key.clone());
                builder.effects.ends.push(end);
            }
            Fence::Lease { key, lease } => builder.put_on(key.clone(), Vec::new(), *lease),
            Fence::Unfenced { .. } => {}
        }
    }
}
