//! Frees all that one owner holds, for DEL, GC, a person's release and the reconciler.

use tokio::time::Instant;

use super::drive::{Acknowledged, Driver, OutOfTime, Stopped};
use super::kv::{Failure, Kv};
use super::policy::{Policy, SharedLease, TicketLease, Witness};
use super::prefix::Doubt;
use super::session::Session;
use metes_core::cooling::CoolingLeases;
use metes_core::keys::{LeaseId, NetworkAddress, Scope};
use metes_core::known::HighWater;
use metes_core::limits;
use metes_core::plan::first::FirstRequest;
use metes_core::plan::free::{Free, FreeGuard, Freed, Freeing, HeldFormerly, Mode};
use metes_core::pool::{Addr, NetworkName, Owner};
use metes_core::snapshot::{BadRecord, Snapshot};
use metes_core::txn::Compare;

/// Why an owner could not be freed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FreeError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] Failure),
    /// A record does not decode. What cannot be read is never freed.
    #[error(transparent)]
    Bad(#[from] BadRecord),
    /// There was no time left.
    #[error(transparent)]
    OutOfTime(#[from] OutOfTime),
}

/// Why a run of a node has not freed an owner.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotFreed {
    /// As for everybody.
    #[error(transparent)]
    Failed(#[from] FreeError),
    /// The store is not the one that the node knows, or has gone back.
    #[error("the store is not as this node knows it: it has gone back, was emptied or is another one")]
    Suspect(Doubt),
}

/// A hint that may save a run a request. It is never trusted.
#[derive(Debug, Clone, Copy, Default)]
pub struct FreeHints<'a> {
    /// A lease for tombstones. It is used if etcd says that it still lives for [`limits::TOMBSTONE_STANDS`].
    pub lease: Option<LeaseId>,
    /// A lease for tickets.
    pub tickets: Option<LeaseId>,
    /// There are others in the queue.
    pub is_crowded: bool,
    /// The owner's keys as its ADD has left them ([`metes_core::plan::left`]), meta, and pages. With them the first
    /// request is the free itself.
    pub left: Option<&'a Snapshot>,
}

/// Knowledge gained by a free, besides [`Freed`], for the next run of the node.
#[derive(Debug, Clone, Default)]
pub struct Left {
    /// A lease that was granted for the tombstone.
    pub lease: Option<LeaseId>,
    /// A lease that was granted for the ticket.
    pub tickets: Option<LeaseId>,
    /// True if other runs were in the queue.
    pub met_others: bool,
    /// The scope in which pages were written, and these as they are now.
    pub pages: Option<(Scope, Snapshot)>,
    /// Addresses that were freed and whose bits are still set.
    pub stray: Vec<NetworkAddress>,
    /// No tombstone was left although one was asked for, because etcd has no space.
    pub lacks_tombstone: bool,
    /// The state of the store by its answers, if it contradicts nothing that the node knows.
    pub seen_store: Option<HighWater>,
    /// The epoch since which the store is suspect; set if the free was carried out all the same.
    pub suspect: Option<u64>,
}

/// Frees an owner whose record is as it is now, for a person or the reconciler. It leaves no tombstone. A record that
/// is written again meanwhile stays. `leases` are for what cools; without them nothing does.
///
/// # Errors
/// [`FreeError`]
pub async fn release<K: Kv>(
    session: Session<'_, K>,
    owner: &Owner,
    leases: Option<&mut CoolingLeases>,
) -> Result<Freed, FreeError> {
    let key = session.keys.owner(owner);
    let mut seen = Snapshot::default();
    session.read(std::slice::from_ref(&key), &mut seen).await?;
    match seen.mod_revision(&key) {
        0 => Ok(Freed::Nothing),
        revision => release_as_read(session, owner, revision, leases).await,
    }
}

/// As [`release`], if the owner's record still has this mod revision.
///
/// # Errors
/// [`FreeError`]
pub async fn release_as_read<K: Kv>(
    session: Session<'_, K>,
    owner: &Owner,
    revision: i64,
    leases: Option<&mut CoolingLeases>,
) -> Result<Freed, FreeError> {
    release_if(session, owner, (revision, &[]), leases).await
}

/// As [`release_as_read`], if these conditions are met besides.
///
/// # Errors
/// [`FreeError`]
pub async fn release_if<K: Kv>(
    session: Session<'_, K>,
    owner: &Owner,
    (revision, only_if): (i64, &[Compare]),
    leases: Option<&mut CoolingLeases>,
) -> Result<Freed, FreeError> {
    let free = Free { only_if, ..Free::of(owner, FreeGuard::AsRead(revision)) };
    as_judged_by_nobody(carry_out(session, free, (FreeHints::default(), None), leases).await)
}

/// Frees a hold whose record still has this mod revision, if its time is over.
///
/// # Errors
/// [`FreeError`]
pub async fn end_hold<K: Kv>(
    session: Session<'_, K>,
    (network, address): (&NetworkName, Addr),
    revision: i64,
) -> Result<Freed, FreeError> {
    let owner = Owner::of_hold(network, address);
    let only_if = &[Compare::Create(session.keys.hold(network, address), 0)];
    release_if(session, &owner, (revision, only_if), None).await
}

fn as_judged_by_nobody(freed: Result<(Freed, Left), NotFreed>) -> Result<Freed, FreeError> {
    match freed {
        Ok((freed, _)) => Ok(freed),
        Err(NotFreed::Failed(failed)) => Err(failed),
        Err(NotFreed::Suspect(_)) => unreachable!("without a witness nobody doubts the store"),
    }
}

/// Frees an owner. It may be repeated; a repetition finds nothing to do. `leases` are for what cools; without them
/// nothing does.
///
/// If others queue, it takes a ticket while there is time. Without time, it takes no ticket and clears no bits. If
/// etcd is out of space, it uses deletes alone. `witness` is the node that frees and knows the store.
///
/// # Errors
/// [`NotFreed`]
pub async fn carry_out<K: Kv>(
    session: Session<'_, K>,
    free: Free<'_>,
    (hints, witness): (FreeHints<'_>, Option<Witness<'_>>),
    mut leases: Option<&mut CoolingLeases>,
) -> Result<(Freed, Left), NotFreed> {
    let (mut freed, mut left, formerly) =
        free_one(session, free, (hints, witness.clone()), leases.as_deref_mut()).await?;
    let hints = FreeHints { left: None, ..hints };
    for HeldFormerly { owner, is_ours } in &formerly {
        if !is_ours {
            tracing::warn!(
                %owner,
                "nothing is freed under a name that this node had before: another machine with the same machine id may \
                 use it; the reconciler frees what no pod uses"
            );
            continue;
        }
        let free = Free { owner, former: &[], ..free };
        let (of_former, left_there, _) =
            free_one(session, free, (hints, witness.clone()), leases.as_deref_mut()).await?;
        tracing::warn!(%owner, freed = ?of_former, "freed under a name that this node had before");
        left.lacks_tombstone |= left_there.lacks_tombstone;
        left.suspect = left.suspect.or(left_there.suspect);
        if freed == Freed::Nothing {
            freed = of_former;
        }
    }
    Ok((freed, left))
}

/// Frees the addresses that the owner holds under one name. Also returns the owner under those former names under which
/// it holds something.
async fn free_one<K: Kv>(
    session: Session<'_, K>,
    free: Free<'_>,
    (hints, witness): (FreeHints<'_>, Option<Witness<'_>>),
    mut leases: Option<&mut CoolingLeases>,
) -> Result<(Freed, Left, Vec<HeldFormerly>), NotFreed> {
    let mut driver = Driver::new(session, policy(session, free, (hints, witness.clone())));
    let mut change = Freeing::new(free, session.keys, Mode::Whole, leases.as_deref_mut());
    let freed = driver.run(&mut change).await;
    let formerly = change.held_formerly().to_vec();
    let freed = match freed {
        // Its first request has freed them, and then the tombstone alone was put again.
        Ok(Freed::Nothing) if driver.first() == FirstRequest::Applied => {
            Ok(Freed::Addresses(change.held().to_vec()))
        }
        Err(Stopped::OutOfTime) => {
            driver.use_all_time();
            driver.run(&mut Freeing::new(free, session.keys, Mode::Quick, leases)).await
        }
        freed => freed,
    };
    let lease = driver.lease().filter(|lease| free.tombstone.is_some() && Some(*lease) != hints.lease);
    let Acknowledged { scope, stray, .. } = driver.take_acknowledged().unwrap_or_default();
    let pages = scope.map(|scope| (scope, driver.shared().clone()));
    let tickets = driver.own_ticket_lease().filter(|lease| Some(*lease) != hints.tickets);
    let left = Left {
        lease,
        tickets,
        met_others: driver.met_others(),
        pages,
        stray,
        lacks_tombstone: false,
        seen_store: driver.seen_store().cloned(),
        suspect: driver.suspect(),
    };
    match freed {
        // The next read shows what of it was applied.
        Err(Stopped::Failed(Failure::NoSpace(_))) => {
            let (freed, suspect) = delete_only(session, Free { tombstone: None, ..free }, witness).await?;
            let suspect = left.suspect.or(suspect);
            Ok((freed, Left { lacks_tombstone: free.tombstone.is_some(), suspect, ..left }, formerly))
        }
        freed => Ok((freed?, left, formerly)),
    }
}

/// With a driver of its own, because it may not be granted a lease: that takes space. Also returns since which epoch
/// the store is suspect.
async fn delete_only<K: Kv>(
    session: Session<'_, K>,
    free: Free<'_>,
    witness: Option<Witness<'_>>,
) -> Result<(Freed, Option<u64>), NotFreed> {
    let policy = policy(session, free, (FreeHints::default(), witness));
    let policy = Policy { wait_until: session.until, ..policy };
    // Nothing can be put, so nothing says that an address cools. Its bit stays all the same.
    let mut change = Freeing::new(free, session.keys, Mode::DeleteOnly, None);
    let mut driver = Driver::new(session, policy);
    let freed = driver.run(&mut change).await?;
    Ok((freed, driver.suspect()))
}

fn policy<'a, K>(
    session: Session<'_, K>,
    free: Free<'_>,
    (hints, witness): (FreeHints<'_>, Option<Witness<'a>>),
) -> Policy<'a> {
    let rest = session.until.saturating_duration_since(Instant::now());
    let wait_until = session.until - limits::DEL_RESERVE.min(rest);
    let mut policy = Policy::free(free.tombstone.is_some(), wait_until);
    let shared = |id| SharedLease { id, stands: Some(limits::TOMBSTONE_STANDS) };
    policy.lease.shared = hints.lease.map(shared);
    if let TicketLease::Own(lease) = &mut policy.tickets {
        *lease = hints.tickets;
    }
    let FreeHints { is_crowded, left, .. } = hints;
    // A free by hints waits for no other.
    Policy { is_crowded, looks_first: left.is_some(), remembered: left.cloned(), witness, ..policy }
}

impl From<Stopped<Freed, BadRecord>> for NotFreed {
    fn from(stopped: Stopped<Freed, BadRecord>) -> Self {
        match stopped {
            Stopped::Refused(bad) => FreeError::Bad(bad).into(),
            Stopped::Failed(failure) | Stopped::Unsettled(_, failure) => FreeError::Store(failure).into(),
            Stopped::OutOfTime => FreeError::from(OutOfTime).into(),
            Stopped::Suspect(doubt) => NotFreed::Suspect(doubt),
        }
    }
}
