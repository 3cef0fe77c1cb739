//! Frees all that one owner holds, for DEL, GC, a person's release and the reconciler.

use tokio::time::Instant;

use super::cooling::CoolingLeases;
use super::drive::{Driver, Stopped};
use super::free::{Free, FreeGuard, Freed, Freeing, Mode};
use super::keys::{LeaseId, Scope};
use super::kv::{Failure, Kv};
use super::policy::{FencePolicy, LeasePolicy, LeaseUse, Policy, SharedLease, TicketLease};
use super::session::Session;
use super::snapshot::{BadRecord, Snapshot};
use crate::limits;
use crate::pool::record::Owner;

/// Why an owner could not be freed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FreeError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] Failure),
    /// A record does not decode. What cannot be read is never freed.
    #[error(transparent)]
    Bad(#[from] BadRecord),
}

/// What may save a run a request. It is never trusted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FreeHints {
    /// A lease for tombstones. It is used if etcd says that it still lives for [`limits::TOMBSTONE_STANDS`].
    pub lease: Option<LeaseId>,
    /// There are others in the queue.
    pub is_crowded: bool,
}

/// What a free came to besides [`Freed`]; the next run of the node may use it.
#[derive(Debug, Clone, Default)]
pub struct Left {
    /// A lease that was granted for the tombstone.
    pub lease: Option<LeaseId>,
    /// There were others in the queue.
    pub met_others: bool,
    /// The scope in which pages were written, and these as they are now.
    pub pages: Option<(Scope, Snapshot)>,
    /// No tombstone was left although one was asked for, because etcd has no space.
    pub lacks_tombstone: bool,
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
    let free = Free { owner, guard: FreeGuard::AsRead(revision), caller: None, tombstone: None };
    Ok(carry_out(session, free, FreeHints::default(), leases).await?.0)
}

/// Frees a hold whose record still has this mod revision, if its time is over.
///
/// # Errors
/// [`FreeError`]
pub async fn end_hold<K: Kv>(
    session: Session<'_, K>,
    owner: &Owner,
    revision: i64,
) -> Result<Freed, FreeError> {
    let free = Free { owner, guard: FreeGuard::Over(revision), caller: None, tombstone: None };
    Ok(carry_out(session, free, FreeHints::default(), None).await?.0)
}

/// Frees an owner. It may be repeated; a repetition finds nothing to do. `leases` are for what cools; without them
/// nothing does.
///
/// If others queue, it takes a ticket while there is time. Without time, it takes no ticket and clears no bits. If
/// etcd is out of space, it uses deletes alone.
///
/// # Errors
/// [`FreeError`]
pub async fn carry_out<K: Kv>(
    session: Session<'_, K>,
    free: Free<'_>,
    hints: FreeHints,
    mut leases: Option<&mut CoolingLeases>,
) -> Result<(Freed, Left), FreeError> {
    let mut driver = Driver::new(session, policy(session, free, hints));
    let freed =
        match driver.run(&mut Freeing::new(free, session.keys, Mode::Whole, leases.as_deref_mut())).await {
            Err(Stopped::OutOfTime) => {
                driver.use_all_time();
                driver.run(&mut Freeing::new(free, session.keys, Mode::Quick, leases)).await
            }
            freed => freed,
        };
    let lease = driver.lease().filter(|lease| free.tombstone.is_some() && Some(*lease) != hints.lease);
    let scope = driver.take_acknowledged().and_then(|acknowledged| acknowledged.scope);
    let pages = scope.map(|scope| (scope, driver.shared().clone()));
    let left = Left { lease, met_others: driver.met_others(), pages, lacks_tombstone: false };
    match freed {
        // The next read shows what of it was applied.
        Err(Stopped::Failed(Failure::NoSpace(_))) => {
            let freed = delete_only(session, Free { tombstone: None, ..free }).await?;
            Ok((freed, Left { lacks_tombstone: free.tombstone.is_some(), ..left }))
        }
        freed => Ok((freed?, left)),
    }
}

/// With a driver of its own, because it may not be granted a lease: that takes space.
async fn delete_only<K: Kv>(session: Session<'_, K>, free: Free<'_>) -> Result<Freed, FreeError> {
    let policy = Policy { wait_until: session.until, ..policy(session, free, FreeHints::default()) };
    // Nothing can be put, so nothing says that an address cools. Its bit stays all the same.
    let mut change = Freeing::new(free, session.keys, Mode::DeleteOnly, None);
    Ok(Driver::new(session, policy).run(&mut change).await?)
}

fn policy<K>(session: Session<'_, K>, free: Free<'_>, hints: FreeHints) -> Policy<'static> {
    let rest = session.until.saturating_duration_since(Instant::now());
    let (used, ttl) = match free.tombstone {
        Some(_) => (LeaseUse::Always, limits::TOMBSTONE_TTL),
        None => (LeaseUse::ForTicket, limits::LEASE_TTL),
    };
    let shared = |id| SharedLease { id, stands: Some(limits::TOMBSTONE_STANDS) };
    Policy {
        fencing: FencePolicy::Nothing,
        lease: LeasePolicy { used, ttl, shared: hints.lease.map(shared) },
        tickets: TicketLease::OfCommits,
        is_crowded: hints.is_crowded,
        wait_until: session.until - limits::DEL_RESERVE.min(rest),
        high_water: None,
        remembered: None,
        is_wanted: &|| true,
    }
}

impl From<Stopped<Freed, BadRecord>> for FreeError {
    fn from(stopped: Stopped<Freed, BadRecord>) -> Self {
        let unknown = |text: &str| FreeError::Store(Failure::Unknown(text.to_owned()));
        match stopped {
            Stopped::Refused(bad) => FreeError::Bad(bad),
            Stopped::Failed(failure) | Stopped::Unsettled(_, failure) => FreeError::Store(failure),
            Stopped::OutOfTime => unknown("the time for this free is over"),
            Stopped::Suspect(_) | Stopped::TooOld(_) => {
                unknown("a free compares no high-water mark and makes no meta")
            }
        }
    }
}
