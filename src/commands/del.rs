//! DEL: gives back all that one interface of one container holds. It succeeds when there is
//! nothing to give back, and when etcd cannot be reached: then the spool remembers.

use std::cell::Cell;

use super::Run;
use crate::cni::error::{Code, Error};
use crate::local::mark::{Mark, NodeLease};
use crate::local::spool::Spooled;
use crate::pool::record::Owner;
use crate::store::free::{Free, FreeError, Freed, Hints, Which};
use crate::store::keys::LeaseId;
use crate::store::kv::{Failure, Kv};

/// What a DEL that succeeded came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done {
    /// The owner holds nothing that an older run reserved.
    Freed,
    /// The store could not be reached: a later run on this node frees it.
    Spooled,
}

/// Frees what `owner` holds, if a run older than this one reserved it.
///
/// # Errors
/// A CNI error if it is neither freed nor spooled.
pub async fn del<K: Kv>(run: &Run<'_, K>, owner: &Owner) -> Result<Done, Error> {
    let mark = run.read_mark();
    let free = Free {
        kv: run.kv,
        keys: run.keys,
        owner,
        which: Which::OlderThan(&run.birth),
        tombstone: Some(&run.birth),
        until: run.deadline,
        hints: Cell::new(hints(run, mark.as_ref())),
    };
    match free.run().await {
        Ok(freed) => {
            leave_hints(run, free.hints.get());
            if freed == Freed::Younger {
                tracing::info!(container = %owner.container_id, "a younger ADD holds the addresses; they stay");
            }
            // Without a tombstone, one that was spooled before has still to leave it.
            if !free.hints.get().lacks_tombstone {
                forget_spooled(run, owner);
            }
            Ok(Done::Freed)
        }
        Err(FreeError::Store(failure)) if can_wait(&failure) => spool(run, owner, &failure),
        Err(e) => Err(e.into()),
    }
}

fn hints<K: Kv>(run: &Run<'_, K>, mark: Option<&Mark>) -> Hints {
    let Some(Mark { hints, .. }) = mark else { return Hints::default() };
    let lease = hints.tombstones_for(&run.birth).map(|lease| LeaseId(lease.id));
    Hints { lease, is_crowded: hints.is_crowded(&run.birth), ..Hints::default() }
}

/// For the next run on this node, where this one knows more than the one before. DEL has no meta to raise the mark with.
fn leave_hints<K: Kv>(run: &Run<'_, K>, found: Hints) {
    if found == Hints::default() {
        return;
    }
    // Read again: other runs may have raised it meanwhile.
    let Some(Mark { epoch, revision, mut hints, .. }) = run.read_mark() else { return };
    if let Some(lease) = found.lease {
        hints.tombstones = Some(NodeLease { id: lease.0, since: run.birth.clone() });
    }
    if found.is_crowded {
        hints.crowded = Some((run.clock)());
    }
    run.raise_mark(epoch, revision, hints);
}

/// Whether the failure passes by itself, so that the free is only put off.
fn can_wait(failure: &Failure) -> bool {
    match failure {
        Failure::Unreachable(_)
        | Failure::Unknown(_)
        | Failure::LeaseNotFound
        | Failure::LeaseExists
        | Failure::Compacted
        | Failure::NoSpace(_) => true,
        Failure::Denied(_) | Failure::Refused(_) => false,
    }
}

/// What was spooled for this owner before is done with this DEL.
fn forget_spooled<K: Kv>(run: &Run<'_, K>, owner: &Owner) {
    for kept in run.spool.of(owner) {
        let birth = &kept.spooled.birth;
        if *birth == run.birth || run.birth.is_after(Some(birth)) {
            run.spool.forget(&kept);
        }
    }
}

fn spool<K: Kv>(run: &Run<'_, K>, owner: &Owner, failure: &Failure) -> Result<Done, Error> {
    let spooled = Spooled { owner: owner.clone(), birth: run.birth.clone(), unanswered: false };
    match run.spool.keep(&spooled) {
        Ok(()) => {
            tracing::warn!(container = %owner.container_id, ifname = %owner.ifname, why = %failure, "DEL is spooled");
            Ok(Done::Spooled)
        }
        Err(e) => {
            Err(Error::new(Code::TryAgain, format!("DEL can neither be done ({failure}) nor spooled ({e})"))
                .with_details(
                    "check that etcd is reachable and that the spool folder can be written; repeat the DEL",
                ))
        }
    }
}
