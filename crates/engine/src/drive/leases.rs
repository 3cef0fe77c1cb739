//! The leases of a run: of its commits, of its tickets, and of what cools.

use std::time::Duration;

use tokio::time::Instant;

use super::Driver;
use crate::kv::{Failure, Kv};
use crate::policy::{FencePolicy, LeaseUse, TicketLease};
use crate::random::random_pause;
use crate::session::{Session, new_lease};
use metes_core::cooling;
use metes_core::keys::LeaseId;
use metes_core::limits;
use metes_core::plan::change::Change;
use metes_core::snapshot::Snapshot;

/// A request for the lease of a run.
#[derive(Debug, Clone, Copy)]
pub(super) enum ForLease {
    /// Does the lease that another run has left still live for so long?
    Confirm(LeaseId, Duration),
    /// A new lease.
    Grant(LeaseId),
}

impl ForLease {
    pub(super) fn id(self) -> LeaseId {
        match self {
            ForLease::Confirm(lease, _) | ForLease::Grant(lease) => lease,
        }
    }

    /// The time that a lease must still live, if that is not known yet.
    pub(super) fn stands(self) -> Option<Duration> {
        if let ForLease::Confirm(_, stands) = self { Some(stands) } else { None }
    }
}

impl<K: Kv> Driver<'_, K> {
    /// The request for the run's lease that travels beside its first one.
    pub(super) fn for_lease(&mut self) -> Option<ForLease> {
        match (self.lease, self.unconfirmed.take()) {
            (Some(lease), stands) => stands.map(|stands| ForLease::Confirm(lease, stands)),
            (None, _) if self.policy.lease.used == LeaseUse::Always => Some(ForLease::Grant(new_lease())),
            (None, _) => None,
        }
    }

    /// Carries out a request, and beside it that for the run's lease. The second result is that of the latter.
    pub(super) async fn beside_lease<T>(
        &mut self,
        for_lease: Option<ForLease>,
        request: impl Future<Output = T>,
    ) -> Result<(T, Result<(), Failure>), Failure> {
        let Session { kv, until, .. } = self.session;
        let Some(for_lease) = for_lease else { return Ok((request.await, Ok(()))) };
        // Connected first, so that both requests travel together.
        kv.connect(until).await?;
        let lease = for_lease.id();
        match for_lease {
            ForLease::Confirm(_, stands) => {
                let (age, answer) = tokio::join!(kv.lease_age(lease, until), request);
                // If a tombstone ends too early, an older ADD can still commit. So etcd is asked how long the lease
                // still lives. The run that left it only gave a hint.
                let is_confirmed = matches!(age, Ok(Some(age)) if age.left >= stands);
                self.lease = self.lease.filter(|_| is_confirmed);
                Ok((answer, Ok(())))
            }
            ForLease::Grant(_) => {
                let (granted, answer) = tokio::join!(kv.grant(lease, self.policy.lease.ttl, until), request);
                let leased = match granted {
                    Ok(granted) => self.judge_lease(granted).map(|()| {
                        (self.lease, self.is_new) = (Some(lease), true);
                    }),
                    // If it was granted and the answer was lost, it ends by itself.
                    Err(Failure::Unknown(_) | Failure::LeaseExists) => Ok(()),
                    Err(failure) => Err(failure),
                };
                Ok((answer, leased))
            }
        }
    }

    /// The lease for a commit without a queue. It is granted if there is none.
    pub(super) async fn fence_lease(&mut self) -> Result<LeaseId, Failure> {
        if let Some(lease) = self.lease {
            return Ok(lease);
        }
        let (lease, granted) = self.granted(self.policy.lease.ttl).await?;
        self.judge_lease(granted)?;
        (self.lease, self.is_new) = (Some(lease), true);
        Ok(lease)
    }

    /// Refuses a lease that was granted for longer than the commit of an ADD may use it.
    pub(super) fn judge_lease(&self, granted: Duration) -> Result<(), Failure> {
        match self.policy.fencing != FencePolicy::Nothing && granted > limits::FENCE_MOST {
            true => Err(Failure::LongLease(granted)),
            false => Ok(()),
        }
    }

    pub(super) async fn ticket_lease(&mut self) -> Result<LeaseId, Failure> {
        let lease = match self.tickets {
            TicketLease::OfCommits => return self.fence_lease().await,
            TicketLease::Own(Some(lease)) => lease,
            // A lease for commits is as good, if no other run knows it and this run uses it for no commit any more.
            TicketLease::Own(None) => {
                let is_short = self.policy.fencing != FencePolicy::Nothing;
                match self.lease.take_if(|_| self.is_new && is_short) {
                    Some(lease) => lease,
                    None => {
                        let (lease, granted) = self.granted(limits::LEASE_TTL).await?;
                        self.judge_lease(granted)?;
                        if granted > limits::FENCE_MOST {
                            // Such a long lease is good enough for the ticket of a free, but no other run may use it.
                            return Ok(lease);
                        }
                        lease
                    }
                }
            }
        };
        self.tickets = TicketLease::Own(Some(lease));
        Ok(lease)
    }

    /// The lease for the tombstone of a free whose ticket is on the lease `ticket`.
    pub(super) async fn tombstone_lease(&mut self, ticket: LeaseId) -> Result<LeaseId, Failure> {
        let puts_tombstone =
            self.policy.fencing == FencePolicy::Nothing && self.policy.lease.used == LeaseUse::Always;
        if puts_tombstone { self.fence_lease().await } else { Ok(ticket) }
    }

    /// Gets the leases for the addresses that cool after the change has freed them.
    pub(super) async fn supply_cooling<C: Change>(
        &self,
        change: &mut C,
        seen: &Snapshot,
    ) -> Result<(), Failure> {
        let Some((cooldowns, leases)) = change.cooling(seen) else { return Ok(()) };
        for cooldown_s in cooldowns {
            let now = Instant::now().into_std();
            if leases.lacks(cooldown_s, now) {
                leases.granted(cooldown_s, self.granted(cooling::ttl(cooldown_s)).await?.0, now);
            }
        }
        Ok(())
    }

    /// Gets a new lease. Returns it with the time for which it was granted.
    pub(super) async fn granted(&self, ttl: Duration) -> Result<(LeaseId, Duration), Failure> {
        let until = self.session.until;
        loop {
            let lease = new_lease();
            match self.session.kv.grant(lease, ttl, until).await {
                Ok(granted) => return Ok((lease, granted)),
                Err(Failure::LeaseExists) => {}
                Err(Failure::Unknown(_)) if Instant::now() + limits::RETRY_PAUSE < until => {
                    tokio::time::sleep(random_pause(limits::RETRY_PAUSE)).await;
                }
                Err(failure) => return Err(failure),
            }
        }
    }
}
