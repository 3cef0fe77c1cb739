//! DEL: frees all addresses of one interface of one container. It succeeds if there is nothing to free. It also
//! succeeds if etcd cannot be reached: then it spools the free.

use std::fmt::Display;

use super::Run;
use crate::commands::errors::ToCni;
use metes_config::cni::error::{Code, Error};
use metes_core::cooling::CoolingLeases;
use metes_core::keys::{Key, LeaseId, digest_hex};
use metes_core::known::HighWater;
use metes_core::limits;
use metes_core::plan::free::{Free, FreeGuard, Freed};
use metes_core::pool::{Caller, Clock, Owner, PodUid, RunStart};
use metes_core::snapshot::Snapshot;
use metes_engine::drive::OutOfTime;
use metes_engine::endpoints::NoStore;
use metes_engine::kv::{Failure, Kv};
use metes_engine::policy::WitnessRun;
use metes_engine::release::{self, FreeError, FreeHints, Left, NotFreed};
use metes_node::mark::{Mark, NodeLease, Unanswered};
use metes_node::owner_hints::Interface;

/// The result of a DEL that succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done {
    /// The owner holds nothing that an older run reserved.
    Freed,
    /// The store could not be reached: a later run on this node frees it.
    Spooled,
}

/// Frees what `owner` holds, if a run older than this one reserved it, for the same container: `pod_uid` is the pod's,
/// if it is known. What it holds under a former name of the node is freed, too.
///
/// # Errors
/// A CNI error if it is neither freed nor spooled.
pub async fn del<K: Kv>(run: &Run<'_, K>, owner: &Owner, pod_uid: Option<&PodUid>) -> Result<Done, Error> {
    let known = run.read_mark();
    let former = run.former(owner, known.as_ref());
    if known.is_none()
        && let Some(other) = run.node.other_prefix()
    {
        if other.may_hold(Interface { owner, pod_uid }) {
            return Err(other.error(Code::TryAgain));
        }
        let Error { msg, details, .. } = other.error(Code::StoredState);
        tracing::warn!(%owner, "{msg}; nothing is known of this container there: {details}");
    }
    let mark = match known {
        Some(mark) => Ok(Some(mark)),
        None => run.mark_or_ask(limits::ALL_ASKED_DEL).await,
    };
    let mark = match mark {
        Ok(mark) => mark,
        Err(NoStore::Failed(failure)) if !can_wait(&failure) => return Err(failure.to_cni()),
        // An etcd that knows nothing of the addresses would answer that there is nothing to free.
        Err(why) => return spool(run, owner, pod_uid, (&why, NoStore::MEMBERS_OF_ONE)),
    };
    let unanswered = mark.as_ref().and_then(|mark| mark.hints.unanswered_before(&run.start));
    // One that is repeated asks.
    if unanswered.is_some_and(|other| other.owner.as_ref() != Some(&digest_of(run, owner))) {
        let why = "etcd has not answered another run a moment ago";
        match spool(run, owner, pod_uid, (&why, OutOfTime::REASONS)) {
            Ok(done) => return Ok(done),
            // etcd may be well again.
            Err(neither) => tracing::warn!(%owner, "{}: asking etcd all the same", neither.msg),
        }
    }
    let clock = Clock::new(run.clock);
    let free = Free {
        caller: Some(Caller { machine: &run.identity.machine, pod_uid }),
        tombstone: Some(&run.start),
        former: &former,
        ..Free::of(owner, FreeGuard::OlderThan(&run.start, Some(&clock)))
    };
    let mut leases = mark.as_ref().map(|mark| mark.hints.cooling_for(&run.start)).unwrap_or_default();
    let recall = run.recalling(mark.as_ref().map(|mark| mark.seen.clone()));
    let witness = Some(run.witness(&recall, WitnessRun::Frees));
    let left = mark.as_ref().and_then(|mark| owner_left(run, &mark.seen, Interface { owner, pod_uid }));
    let hints = hints(run, mark.as_ref(), left.as_ref());
    match release::carry_out(run.session, free, (hints, witness), Some(&mut leases)).await {
        Ok((freed, left)) => {
            leave_hints(run, &left, &leases);
            match freed {
                Freed::Younger => {
                    tracing::info!(container = %owner.container_id, "a younger ADD holds the addresses; they stay");
                }
                Freed::Elsewhere(theirs) => tracing::warn!(
                    %owner, machine = %run.identity.machine, holder = %theirs,
                    "another machine holds addresses under this node's name: they stay, until it or `metes \
                     release` frees them"
                ),
                Freed::Nothing => {
                    tracing::info!(%owner, "nothing was held");
                }
                Freed::Addresses(_) => {}
            }
            if let Some(epoch) = left.suspect {
                return spool_besides(run, owner, pod_uid, epoch);
            }
            // Without a tombstone, another node may still serve a ticket of an older ADD. So the DEL is carried out
            // again until etcd has the space for one.
            if left.lacks_tombstone {
                return match run.spool.keep(&run.to_spool(owner, pod_uid, false)) {
                    Ok(()) => Ok(Done::Freed),
                    Err(e) => Err(neither(&"etcd has no space for its tombstone", &e)),
                };
            }
            forget_spooled(run, owner, |start| *start == run.start || is_older(run, start));
            Ok(Done::Freed)
        }
        Err(NotFreed::Failed(FreeError::Store(failure))) if can_wait(&failure) => {
            if let Failure::Unreachable(_) | Failure::Unknown(_) = failure {
                note_unanswered(run, owner);
            }
            spool(run, owner, pod_uid, (&failure, failure.remedy()))
        }
        Err(NotFreed::Failed(FreeError::OutOfTime(late))) => {
            spool(run, owner, pod_uid, (&late, OutOfTime::REASONS))
        }
        Err(e) => Err(e.to_cni()),
    }
}

/// The store is not the one that this node knows. It is marked so, and what was found there is freed. The DEL is
/// carried out again in a store that contradicts nothing: the address may be held there.
fn spool_besides<K: Kv>(
    run: &Run<'_, K>,
    owner: &Owner,
    pod_uid: Option<&PodUid>,
    epoch: u64,
) -> Result<Done, Error> {
    tracing::warn!(%owner, epoch, "the store is not as this node knows it; the DEL stays spooled besides");
    match run.spool.keep(&run.to_spool(owner, pod_uid, false)) {
        Ok(()) => Ok(Done::Spooled),
        Err(e) => Err(neither(&"the store is not the one that this node knows", &e)),
    }
}

/// The hints of earlier runs of the node. Without a mark there are none: they may be of another store.
fn hints<'l, K: Kv>(run: &Run<'_, K>, mark: Option<&Mark>, left: Option<&'l Snapshot>) -> FreeHints<'l> {
    let Some(Mark { hints, .. }) = mark else { return FreeHints::default() };
    let lease = hints.tombstones_for(&run.start).map(|lease| LeaseId(lease.id));
    let tickets = hints.tickets_for(&run.start).map(|lease| LeaseId(lease.id));
    FreeHints { lease, tickets, is_crowded: hints.is_crowded(&run.start), left }
}

/// The owner's keys as its ADD has left them, and the pages of its scope as the node knows them.
fn owner_left<K: Kv>(run: &Run<'_, K>, seen: &HighWater, interface: Interface<'_>) -> Option<Snapshot> {
    let left = run.owner_hints.read(interface).filter(|left| left.owner == *interface.owner)?;
    run.owner_hints.forget(interface);
    if !left.is_of(seen) {
        return None;
    }
    let pages = left.scope().and_then(|scope| run.scope_hints.read(&(&scope).into()));
    let mut known = pages.map(|hints| hints.keys).unwrap_or_default();
    known.retain(|key| is_of_pages(run, key));
    left.lay_over(run.session.keys, &mut known);
    Some(known)
}

fn is_of_pages<K: Kv>(run: &Run<'_, K>, key: &[u8]) -> bool {
    matches!(run.session.keys.parse(key), Ok(Key::Page(..) | Key::Summary(..)))
}

/// Raises the mark to what this run has seen, and leaves hints for the next run on this node.
fn leave_hints<K: Kv>(run: &Run<'_, K>, left: &Left, leases: &CoolingLeases) {
    if let Some((scope, pages)) = &left.pages {
        run.scope_hints.correct(&scope.into(), pages, |key| is_of_pages(run, key), &left.stray);
    }
    let Some(seen) = left.seen_store.clone() else { return };
    let new = |lease: LeaseId| NodeLease { id: lease.0, since: run.start.clone() };
    run.mark.raise(seen, |hints| {
        hints.unanswered = None;
        hints.tombstones = left.lease.map(new).or(hints.tombstones.take());
        hints.tickets = left.tickets.map(new).or(hints.tickets.take());
        hints.keep_cooling(leases, &run.start);
        if left.met_others {
            hints.crowded = Some((run.clock)());
        }
    });
}

/// Tells the other DELs of the node that etcd does not answer. A node without a mark has nowhere to.
fn note_unanswered<K: Kv>(run: &Run<'_, K>, owner: &Owner) {
    let unanswered = Unanswered { owner: Some(digest_of(run, owner)), at: (run.clock)() };
    run.mark.leave(|hints| hints.unanswered = Some(unanswered));
}

fn digest_of<K: Kv>(run: &Run<'_, K>, owner: &Owner) -> String {
    digest_hex(&run.session.keys.owner(owner))
}

/// True if the failure may pass by itself. Then the free is spooled.
fn can_wait(failure: &Failure) -> bool {
    match failure {
        Failure::Unreachable(_)
        | Failure::Unknown(_)
        | Failure::LeaseNotFound
        | Failure::LeaseExists
        | Failure::LongLease(_)
        | Failure::Compacted
        | Failure::NoSpace(_)
        | Failure::Corrupt(_) => true,
        Failure::Denied(_) | Failure::Refused(_) => false,
    }
}

/// Forgets the spooled DELs of this owner whose starts `does` accepts: this DEL has done their work.
fn forget_spooled<K: Kv>(run: &Run<'_, K>, owner: &Owner, does: impl Fn(&RunStart) -> bool) {
    for kept in run.spool.of(owner).iter().filter(|kept| does(&kept.spooled.start)) {
        run.spool.forget(kept);
    }
}

/// True if a run that was spooled is older than this one.
fn is_older<K: Kv>(run: &Run<'_, K>, spooled: &RunStart) -> bool {
    run.start.is_after(Some((spooled, 0)), Some(&Clock::new(run.clock)))
}

fn spool<K: Kv>(
    run: &Run<'_, K>,
    owner: &Owner,
    pod_uid: Option<&PodUid>,
    (why, remedy): (&dyn Display, &str),
) -> Result<Done, Error> {
    let spooled = run.to_spool(owner, pod_uid, false);
    match run.spool.keep(&spooled) {
        Ok(()) => {
            let container = &owner.container_id;
            tracing::warn!(%container, ifname = %owner.ifname, %why, remedy, "DEL is spooled");
            forget_spooled(run, owner, |start| is_older(run, start));
            Ok(Done::Spooled)
        }
        Err(e) => Err(neither(why, &e)),
    }
}

fn neither(why: &dyn Display, e: &std::io::Error) -> Error {
    Error::new(Code::TryAgain, format!("DEL can neither be done ({why}) nor spooled ({e})"))
        .with_details("check that etcd is reachable and that the spool folder can be written; repeat the DEL")
}
