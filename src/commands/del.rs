//! DEL: frees all addresses of one interface of one container. It succeeds if there is nothing to free. It also
//! succeeds if etcd cannot be reached: then it spools the free.

use std::fmt::Display;

use super::Run;
use crate::cni::error::{Code, Error};
use crate::local::mark::{Mark, NodeLease};
use crate::pool::names::{NodeName, PodUid};
use crate::pool::record::{Caller, Owner};
use crate::store::cooling::CoolingLeases;
use crate::store::free::{Free, FreeGuard, Freed};
use crate::store::keys::LeaseId;
use crate::store::kv::{Failure, Kv};
use crate::store::release::{self, FreeError, FreeHints, Left};
use crate::store::snapshot::Snapshot;

/// What a DEL that succeeded came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done {
    /// The owner holds nothing that an older run reserved.
    Freed,
    /// The store could not be reached: a later run on this node frees it.
    Spooled,
}

/// Frees what `owner` holds, if a run older than this one reserved it, for the same container: `pod_uid` is the pod's,
/// if it is known. `former` is the node's name without its host file's `node_name`, where that is another one.
///
/// # Errors
/// A CNI error if it is neither freed nor spooled.
pub async fn del<K: Kv>(
    run: &Run<'_, K>,
    owner: &Owner,
    pod_uid: Option<&PodUid>,
    former: Option<&NodeName>,
) -> Result<Done, Error> {
    let mark = run.mark.read();
    let free = Free {
        owner,
        guard: FreeGuard::OlderThan(&run.start),
        caller: Some(Caller { machine: &run.identity.machine, pod_uid }),
        tombstone: Some(&run.start),
    };
    let mut leases = mark.as_ref().map(|mark| mark.hints.cooling_for(&run.start)).unwrap_or_default();
    match release::carry_out(run.session, free, hints(run, mark.as_ref()), Some(&mut leases)).await {
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
                    warn_of_former_name(run, owner, former).await;
                }
                Freed::Addresses(_) => {}
            }
            // Without a tombstone, another node may still serve a ticket of an older ADD. So the DEL is carried out
            // again until etcd has the space for one.
            if left.lacks_tombstone {
                return match run.spool.keep(&run.to_spool(owner, pod_uid, false)) {
                    Ok(()) => Ok(Done::Freed),
                    Err(e) => Err(neither(&"etcd has no space for its tombstone", &e)),
                };
            }
            forget_spooled(run, owner);
            Ok(Done::Freed)
        }
        Err(FreeError::Store(failure)) if can_wait(&failure) => spool(run, owner, pod_uid, &failure),
        Err(e) => Err(e.into()),
    }
}

/// If a container was attached before its node was given a name, its record is under the derived name.
async fn warn_of_former_name<K: Kv>(run: &Run<'_, K>, owner: &Owner, former: Option<&NodeName>) {
    let Some(node) = former else { return };
    let former = Owner { node: node.clone(), ..owner.clone() };
    let key = run.session.keys.owner(&former);
    let mut snapshot = Snapshot::default();
    let read = run.session.read(std::slice::from_ref(&key), &mut snapshot).await;
    if read.is_ok() && snapshot.entry(&key).is_some() {
        tracing::warn!(
            %owner, %former,
            "nothing was held under the node's present name, and something is under the one it had without \
             `node_name`: \
             `metes release --container {} --node {node}` frees it",
            owner.container_id
        );
    }
}

fn hints<K: Kv>(run: &Run<'_, K>, mark: Option<&Mark>) -> FreeHints {
    let Some(Mark { hints, .. }) = mark else { return FreeHints::default() };
    let lease = hints.tombstones_for(&run.start).map(|lease| LeaseId(lease.id));
    FreeHints { lease, is_crowded: hints.is_crowded(&run.start) }
}

/// Leaves hints for the next run on this node, if this run knows more. DEL reads no meta, so it does not raise the
/// mark.
fn leave_hints<K: Kv>(run: &Run<'_, K>, left: &Left, leases: &CoolingLeases) {
    if let Some((scope, pages)) = &left.pages {
        run.scope_hints.correct(scope, pages);
    }
    if left.lease.is_none() && !left.met_others && leases.new_ones().next().is_none() {
        return;
    }
    // It is read again, because other runs may have raised it meanwhile.
    let Some(Mark { seen, mut hints }) = run.mark.read() else { return };
    if let Some(lease) = left.lease {
        hints.tombstones = Some(NodeLease { id: lease.0, since: run.start.clone() });
    }
    hints.keep_cooling(leases, &run.start);
    if left.met_others {
        hints.crowded = Some((run.clock)());
    }
    run.leave_mark(Mark { seen, hints });
}

/// Whether the failure may pass by itself. Then the free is spooled.
fn can_wait(failure: &Failure) -> bool {
    match failure {
        Failure::Unreachable(_)
        | Failure::Unknown(_)
        | Failure::LeaseNotFound
        | Failure::LeaseExists
        | Failure::Compacted
        | Failure::NoSpace(_)
        | Failure::Corrupt(_) => true,
        Failure::Denied(_) | Failure::Refused(_) => false,
    }
}

/// This DEL has also done what was spooled for this owner before.
fn forget_spooled<K: Kv>(run: &Run<'_, K>, owner: &Owner) {
    for kept in run.spool.of(owner) {
        let start = &kept.spooled.start;
        if *start == run.start || run.start.is_after(Some(start)) {
            run.spool.forget(&kept);
        }
    }
}

fn spool<K: Kv>(
    run: &Run<'_, K>,
    owner: &Owner,
    pod_uid: Option<&PodUid>,
    failure: &Failure,
) -> Result<Done, Error> {
    let spooled = run.to_spool(owner, pod_uid, false);
    match run.spool.keep(&spooled) {
        Ok(()) => {
            let (container, remedy) = (&owner.container_id, failure.remedy());
            tracing::warn!(%container, ifname = %owner.ifname, why = %failure, remedy, "DEL is spooled");
            Ok(Done::Spooled)
        }
        Err(e) => Err(neither(failure, &e)),
    }
}

fn neither(why: &dyn Display, e: &std::io::Error) -> Error {
    Error::new(Code::TryAgain, format!("DEL can neither be done ({why}) nor spooled ({e})"))
        .with_details("check that etcd is reachable and that the spool folder can be written; repeat the DEL")
}
