//! What keeps a commit from being applied late: after its run was stopped for long, was evicted, or has settled that it was
//! not applied.

use super::builder::Builder;
use super::keys::{Bytes, LeaseId};
use super::ticket::Ticket;

/// What a commit stands behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fence {
    /// A ticket: the commit compares that it stands, and removes it.
    Ticket(Ticket),
    /// A lease alone, where nobody queues: the commit writes `key` on it, and etcd refuses all of a transaction that
    /// writes on a lease which has ended.
    Lease {
        /// The node's key for this.
        key: Bytes,
        /// The lease. It was granted before the run's deadline.
        lease: LeaseId,
    },
    /// Nothing. A free needs no fence: it compares the revision of the record that it frees.
    None {
        /// What a tombstone may hang on.
        lease: Option<LeaseId>,
    },
}

impl Fence {
    /// The lease on which the commit may put what ends by itself.
    #[must_use]
    pub fn lease(&self) -> Option<LeaseId> {
        match self {
            Fence::Ticket(ticket) => Some(ticket.lease),
            Fence::Lease { lease, .. } => Some(*lease),
            Fence::None { lease } => *lease,
        }
    }

    /// The transaction takes effect only as long as the fence stands.
    pub fn guard(&self, builder: &mut Builder<'_>) {
        match self {
            Fence::Ticket(ticket) => {
                builder.exactly(ticket.key.clone(), ticket.create_revision);
                ticket.removal().into_iter().for_each(|op| builder.push(op));
            }
            Fence::Lease { key, lease } => builder.put_on(key.clone(), Vec::new(), *lease),
            Fence::None { .. } => {}
        }
    }
}
