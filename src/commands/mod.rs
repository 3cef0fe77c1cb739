//! The verbs of CNI, one in each file, and what a run of any of them needs.

pub mod add;
pub mod check;
pub mod del;
pub mod errors;
pub mod gc;
pub mod status;

use tokio::time::Instant;

use crate::cni::error::{Code, Error};
use crate::cni::request::Attachment;
use crate::limits;
use crate::local::mark::{Mark, MarkFile};
use crate::local::node::{self, Identity};
use crate::local::scope_hints::ScopeHintFiles;
use crate::local::spool::{Kept, Spool, Spooled};
use crate::local::state::NodeState;
use crate::pool::Wanted;
use crate::pool::names::PodUid;
use crate::pool::record::{Caller, Labels, Meta, Owner, RunStart};
use crate::random::{random, random_id};
use crate::store::ask::{Ask, RunStamp};
use crate::store::cooling::CoolingLeases;
use crate::store::free::{Free, FreeGuard, Freed};
use crate::store::kv::{Failure, Kv};
use crate::store::release::{self, FreeError};
use crate::store::session::Session;
use crate::store::snapshot::Snapshot;

/// What every verb needs to do its work.
pub struct Run<'a, K> {
    /// The store; its deadline is the one by which the verb must have answered.
    pub session: Session<'a, K>,
    /// Who this node is.
    pub identity: &'a Identity,
    /// When this run began.
    pub start: RunStart,
    /// The present boot-time clock, in the form of a start.
    pub clock: &'a dyn Fn() -> RunStart,
    /// Whether whoever called still waits for the answer.
    pub awaited: &'a dyn Fn() -> bool,
    /// Frees that wait for the store.
    pub spool: Spool,
    /// The highest revision seen on this node.
    pub mark: MarkFile,
    /// What runs of this node leave behind of each scope.
    pub scope_hints: ScopeHintFiles,
}

impl<'a, K: Kv> Run<'a, K> {
    /// A run of `node` that began at `start`.
    pub fn new(
        session: Session<'a, K>,
        node: &'a NodeState,
        start: RunStart,
        clock: &'a dyn Fn() -> RunStart,
        awaited: &'a dyn Fn() -> bool,
    ) -> Self {
        let (spool, mark, scope_hints) = (node.spool(), node.mark(), node.scope_hints());
        Self { session, identity: &node.identity, start, clock, awaited, spool, mark, scope_hints }
    }

    /// The owner that a container's interface is on this node of this cluster.
    #[must_use]
    pub fn owner(&self, attachment: &Attachment) -> Owner {
        let Identity { node, cluster, .. } = self.identity.clone();
        let Attachment { container_id, ifname } = attachment.clone();
        Owner { node, container_id, ifname, cluster }
    }

    /// What an ADD of this run asks for.
    #[must_use]
    pub fn ask(&self, owner: Owner, labels: Labels, wanted: Wanted) -> Ask {
        let (start, machine) = (self.start.clone(), self.identity.machine.clone());
        let stamp = RunStamp { start, machine, store_id: random_id(), created_at: node::timestamp() };
        Ask::new(owner, labels, wanted, stamp)
    }

    /// Fails if nobody waits for the answer any more: there is no time left, or the calling process is gone, which
    /// would have used the address.
    ///
    /// The clock of the deadline stops while the host is suspended, but etcd's leases do not. When the run wakes up,
    /// the tombstone of a later DEL may have ended already. The clock of a start does not stop, so it is compared, too.
    ///
    /// # Errors
    /// Code 11.
    pub fn must_go_on(&self) -> Result<(), Error> {
        let has_overslept = node::has_outlasted(&self.start, &(self.clock)(), limits::ADD_DEADLINE);
        if Instant::now() >= self.session.until || has_overslept {
            return Err(errors::out_of_time());
        }
        if !(self.awaited)() {
            return Err(Error::new(Code::TryAgain, "the process that asked for an address is gone"));
        }
        Ok(())
    }

    /// Raises the mark after an acknowledged write, and leaves hints for the next run.
    pub fn leave_mark(&self, mark: Mark) {
        #[cfg(feature = "failpoints")]
        crate::failpoints::pass("mark.before");
        self.mark.raise(mark);
    }

    /// Why a store with this meta hands out no address: it is suspect, or the next ADD of this node will mark it so.
    /// The mark is of a time before the snapshot was read: meanwhile another run may have raised it.
    fn suspicion(&self, mark: Option<Mark>, snapshot: &Snapshot) -> Option<Error> {
        // A meta that does not decode has its own error.
        let meta = snapshot.record::<Meta>(&self.session.keys.meta()).ok()?;
        let suspect = meta.as_ref().and_then(|meta| meta.suspect);
        let known = || {
            mark.filter(|mark| mark.seen.contradicts(meta.as_ref(), snapshot.revision))
                .map(|mark| mark.seen.epoch)
        };
        suspect.or_else(known).map(errors::suspect)
    }

    /// The spool entry that frees what this run has reserved or was asked to free.
    fn to_spool(&self, owner: &Owner, pod_uid: Option<&PodUid>, unanswered: bool) -> Spooled {
        let (owner, start, machine) = (owner.clone(), self.start.clone(), self.identity.machine.clone());
        Spooled { owner, start, machine, pod_uid: pod_uid.cloned(), unanswered }
    }

    /// Frees what was spooled for one owner. It stays in the spool as long as etcd has no space for its tombstone.
    ///
    /// # Errors
    /// [`FreeError`]; then the entry stays in the spool.
    pub async fn carry_out_spooled(&self, kept: &Kept, until: Instant) -> Result<Freed, FreeError> {
        let (freed, lacks_tombstone) = self.free_spooled(&kept.spooled, until).await?;
        let Owner { container_id, ifname, .. } = &kept.spooled.owner;
        tracing::info!(container = %container_id, %ifname, ?freed, "carried out a spooled DEL");
        // Without a tombstone, an older ADD that is still under way may reserve something. So the entry is carried out
        // again later.
        if !lacks_tombstone {
            self.spool.forget(kept);
        }
        Ok(freed)
    }

    /// Frees what was or would be spooled. Also returns whether the tombstone is missing that it should have left.
    async fn free_spooled(&self, spooled: &Spooled, until: Instant) -> Result<(Freed, bool), FreeError> {
        let Spooled { owner, start, machine, pod_uid, unanswered } = spooled;
        let boot = &self.start.boot;
        let guard = if *unanswered { FreeGuard::Unanswered(start) } else { FreeGuard::UpTo { start, boot } };
        // Another node may still serve a ticket of an earlier boot, so it needs a tombstone, too.
        let tombstone = Some(start);
        let caller = Some(Caller { machine, pod_uid: pod_uid.as_ref() });
        let free = Free { owner, guard, caller, tombstone };
        // What nobody heard of does not cool.
        let (hints, mut leases) = (release::FreeHints::default(), CoolingLeases::default());
        let leases = (!unanswered).then_some(&mut leases);
        let (freed, left) = release::carry_out(self.session.by(until), free, hints, leases).await?;
        Ok((freed, left.lacks_tombstone))
    }

    /// Carries out what other runs spooled, for a bounded time. A run does this after its answer. However slow etcd is,
    /// one entry has the time that a DEL has, so the spool empties in the end.
    pub async fn drain_spool(&self) {
        let began = Instant::now();
        let mut until = began + limits::DEL_DEADLINE;
        for kept in self.spool.some(limits::DRAIN_ENTRIES, random()) {
            if Instant::now() >= until {
                return;
            }
            let carried_out = self.carry_out_spooled(&kept, until).await;
            until = began + limits::DRAIN;
            match carried_out {
                Ok(_) => {}
                Err(FreeError::Store(Failure::Unreachable(_) | Failure::Unknown(_))) => return,
                Err(why) => {
                    let container = &kept.spooled.owner.container_id;
                    tracing::warn!(%container, %why, "a spooled DEL cannot be carried out");
                }
            }
        }
    }
}
