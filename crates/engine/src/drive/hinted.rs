//! The first request of a run as a commit ([`metes_core::plan::first`]).

use super::applied::{Applied, before};
use super::leases::ForLease;
use super::{Attempt, Driver, Stopped};
use crate::kv::{Failure, Kv};
use crate::policy::{FencePolicy, LeaseUse};
use metes_core::fence::Fence;
use metes_core::keys::Scope;
use metes_core::limits;
use metes_core::plan::change::Change;
use metes_core::plan::first::{self, FirstRequest};
use metes_core::snapshot::Snapshot;

impl<K: Kv> Driver<'_, K> {
    /// Sends a commit as the first request, planned on the keys that another run has left behind. Returns none if it
    /// was not sent, because the change must look first; or if it was refused. Its answer then shows the same as a
    /// look.
    pub(super) async fn commit_first<C: Change>(
        &mut self,
        change: &mut C,
        scope: Option<&Scope>,
        left: Snapshot,
        seen: &mut Snapshot,
    ) -> Result<Option<Attempt<C::Done>>, Stopped<C::Done, C::Refused>> {
        let keys = self.session.keys;
        // Only an ADD writes what others in its queue rely on. It has its lease already.
        let (fence, tail, for_lease) = match (&self.policy.fencing, self.lease, scope) {
            (FencePolicy::LeaseOrTicket(key), Some(lease), Some(scope)) => {
                (Fence::Lease { key: key.clone(), lease }, Some(keys.tail(scope)), None)
            }
            (FencePolicy::Nothing, ..) if self.policy.lease.used == LeaseUse::Always => {
                let for_lease = self.for_lease();
                let lease = self.lease.or(for_lease.map(ForLease::id));
                (Fence::Unfenced { lease }, None, for_lease)
            }
            _ => return Ok(None),
        };
        let look = self.first_reads(change, scope, &left);
        let Some(mut commit) = first::commit_first(change, keys, &fence, &left, (tail, look)) else {
            self.unconfirmed = for_lease.and_then(ForLease::stands);
            return Ok(None);
        };
        match &fence {
            Fence::Unfenced { .. } => self.compare_own_key(&mut commit.txn, &left),
            Fence::Lease { .. } | Fence::Ticket(_) => self.add_own_key(&mut commit, &fence, &left),
        }
        let (session, grants) = (self.session, matches!(for_lease, Some(ForLease::Grant(_))));
        let request = async {
            if grants {
                tokio::time::sleep(limits::GRANT_AHEAD).await;
            }
            session.txn(&commit.txn).await
        };
        let (mut reply, leased) = self.beside_lease(for_lease, request).await?;
        if grants && reply == Err(Failure::LeaseNotFound) && leased.is_ok() && self.lease.is_some() {
            // The grant was not ahead for long enough. Now it is.
            reply = session.txn(&commit.txn).await;
        }
        match reply {
            Ok(reply) if reply.succeeded => {
                self.first = FirstRequest::Applied;
                *seen = left;
                change.learn(seen);
                seen.apply(&commit.txn, &reply);
                if self.policy.fencing == FencePolicy::Nothing
                    && self.is_doubtful(seen, before(reply.revision))
                {
                    self.confirm(seen).await?;
                }
                self.acknowledge(Applied::own(scope, &commit, &reply), seen).await?;
                // If its lease may end too early, the next attempt puts the tombstone again.
                let is_safe = leased.is_ok() && self.lease.is_some();
                Ok(Some(if is_safe { Attempt::Committed(commit.done) } else { Attempt::Again }))
            }
            Ok(reply) => {
                self.first = FirstRequest::Missed;
                tracing::debug!(step = commit.txn.step, "the hints of an earlier run are wrong");
                seen.absorb(&commit.txn.otherwise, &reply);
                change.learn(seen);
                leased?;
                // Unlike the answer to a look, this is the answer to a write.
                self.check_known(seen, seen.revision).await?;
                Ok(None)
            }
            // The shared lease has ended, or nobody knows of the new one.
            Err(Failure::LeaseNotFound) if for_lease.is_some() => {
                leased?;
                Ok(None)
            }
            Err(failure) if failure.is_open() && self.policy.fencing != FencePolicy::Nothing => {
                *seen = left;
                self.settle_commit(change, &fence, commit, failure, seen).await.map(Some)
            }
            Err(failure) => Err(failure.into()),
        }
    }
}
