//! The differences between ADD, DEL, GC, release, adopt and import in the way the driver carries out their changes.

use std::time::Duration;

use tokio::time::Instant;

use metes_core::keys::{Bytes, LeaseId};
use metes_core::known::HighWater;
use metes_core::limits;
use metes_core::snapshot::Snapshot;

/// The fence against a late copy of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FencePolicy {
    /// A ticket; where nobody queues, a lease alone, on which the commit writes this key (ADD).
    LeaseOrTicket(Bytes),
    /// A ticket (adopt, import).
    Ticket,
    /// Nothing: it compares the revision of the record that it frees, or of the page that it writes, so a late copy
    /// finds another one (DEL, GC, release, hold).
    Nothing,
}

impl FencePolicy {
    /// A run queues after so many lost commits.
    pub(crate) fn tries(&self) -> u32 {
        match self {
            FencePolicy::LeaseOrTicket(_) => limits::CLEAR_TRIES,
            FencePolicy::Ticket => 0,
            FencePolicy::Nothing => 1,
        }
    }
}

/// When a run takes a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseUse {
    /// With its first request: each of its commits needs one.
    Always,
    /// With its ticket.
    ForTicket,
}

/// A lease that another run of the node has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedLease {
    /// The lease. Whether it exists is for etcd to say.
    pub id: LeaseId,
    /// The time that it must still live by etcd's clock; none: any time is enough.
    pub stands: Option<Duration>,
}

/// The lease of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeasePolicy {
    /// When it takes one.
    pub(crate) used: LeaseUse,
    /// The time of a lease that it grants.
    pub(crate) ttl: Duration,
    /// One that it may use instead of a new one.
    pub shared: Option<SharedLease>,
}

/// The lease of a run's tickets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TicketLease {
    /// The lease of its commits: nothing ever revokes that.
    OfCommits,
    /// Another one: who settles a commit of an ADD revokes its lease, and with that of a tombstone a dead DEL would
    /// stay in the queue for minutes. Perhaps another run of the node has left one.
    Own(Option<LeaseId>),
}

/// A node with its knowledge of the store.
#[derive(Clone)]
pub struct Witness<'a> {
    /// The node's knowledge, read again each time: other runs of the node may have seen more.
    pub recall: &'a dyn Fn() -> Option<HighWater>,
    /// The key that its runs leave in the store.
    pub own_key: Bytes,
    /// What this run may do in a store that contradicts its node.
    pub run: WitnessRun,
}

/// The behaviour of a run in a store that contradicts its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WitnessRun {
    /// It reserves, so it ends. In a sound store its commits leave this value under the node's key.
    Reserves(Vec<u8>),
    /// It marks the store as suspect, and then frees what it finds (DEL).
    Frees,
    /// It ends: the free waits for a store that contradicts nothing (the spool, GC).
    FreesInSound,
}

/// The way in which the changes of one run are carried out.
pub struct Policy<'a> {
    /// The fence of its commits.
    pub fencing: FencePolicy,
    /// The lease of its commits, and its time.
    pub lease: LeasePolicy,
    /// The lease for its tickets.
    pub tickets: TicketLease,
    /// True if others queued a moment ago. Then it takes a ticket at once, unless it looks first.
    pub is_crowded: bool,
    /// True if it looks before it takes a ticket: it may have nothing to wait for.
    pub looks_first: bool,
    /// The end of its wait for its turn.
    pub wait_until: Instant,
    /// This node's knowledge of the store, with which the store's answers are compared; none if no node asks.
    pub witness: Option<Witness<'a>>,
    /// The keys of the scope that another run of the node has left behind. If there are any, and a shared lease, the
    /// first request is a commit ([`metes_core::plan::first`]).
    pub remembered: Option<Snapshot>,
    /// True if the change is still wanted.
    pub is_wanted: &'a dyn Fn() -> bool,
}

impl Policy<'_> {
    /// An ADD. Where nobody queues, each of its commits writes `fence`.
    #[must_use]
    pub fn add(fence: Bytes, until: Instant) -> Self {
        let mut policy = Self::of(FencePolicy::LeaseOrTicket(fence), LeaseUse::Always, until);
        (policy.lease.ttl, policy.tickets) = (limits::FENCE_TTL, TicketLease::Own(None));
        policy
    }

    /// A free, which may put a tombstone.
    pub(crate) fn free(puts_tombstone: bool, until: Instant) -> Self {
        let used = if puts_tombstone { LeaseUse::Always } else { LeaseUse::ForTicket };
        let mut policy = Self::of(FencePolicy::Nothing, used, until);
        if puts_tombstone {
            (policy.lease.ttl, policy.tickets) = (limits::TOMBSTONE_TTL, TicketLease::Own(None));
        }
        policy
    }

    /// An assignment of addresses that are in use already (adopt, import).
    #[must_use]
    pub fn assign(until: Instant) -> Self {
        Self::of(FencePolicy::Ticket, LeaseUse::ForTicket, until)
    }

    /// A hold, for so long or without an end. It has no fence: see [`metes_core::plan::hold`].
    #[must_use]
    pub fn hold(time: Option<Duration>, until: Instant) -> Self {
        let used = if time.is_some() { LeaseUse::Always } else { LeaseUse::ForTicket };
        let mut policy = Self::of(FencePolicy::Nothing, used, until);
        policy.lease.ttl = time.unwrap_or(policy.lease.ttl);
        policy
    }

    /// A run that nobody has left anything for, and that knows nothing.
    fn of(fencing: FencePolicy, used: LeaseUse, until: Instant) -> Self {
        Self {
            fencing,
            lease: LeasePolicy { used, ttl: limits::LEASE_TTL, shared: None },
            tickets: TicketLease::OfCommits,
            is_crowded: false,
            looks_first: false,
            wait_until: until,
            witness: None,
            remembered: None,
            is_wanted: &|| true,
        }
    }
}
