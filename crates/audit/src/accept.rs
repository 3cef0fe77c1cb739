//! Takes a store that may have gone back in time into service again.
//!
//! Only a person can say that a restored store holds exactly the addresses that the cluster uses ([`accept`]), or
//! somebody who has looked at every pod ([`begin`], [`finish`]). The next epoch begins: high-water marks of an earlier
//! one do not count any more.

use tokio::time::Instant;

use super::{MetaState, Report};
use metes_core::known::HighWater;
use metes_core::limits;
use metes_core::pool::Meta;
use metes_core::txn::Entry;
use metes_engine::drive::OutOfTime;
use metes_engine::endpoints::{self, NoStore};
use metes_engine::kv::{Failure, Kv};
use metes_engine::prefix::{self, MetaError, StoredMeta};
use metes_engine::random::{random_id, random_pause};
use metes_engine::session::Session;

/// The outcome of a request to accept the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    /// It was not under suspicion and lacks nothing; nothing was written.
    NotNeeded,
    /// It was; this epoch begins.
    Epoch(u64),
    /// Its allocations had no meta; one was made, of this epoch.
    Made(u64),
    /// It was empty; its first meta was made.
    Founded,
    /// Its meta is not for this program; nothing was written.
    Unreadable,
    /// Its meta changed meanwhile; nothing was written.
    Changed,
}

/// The meta to write, with the key that it replaces; none if nothing is to be done.
fn successor<'r>(report: &'r Report, known: Option<&HighWater>) -> Option<(Meta, Option<&'r Entry>)> {
    let (mut meta, replaces) = match &report.meta {
        MetaState::Missing => (Meta::in_place_of_any(random_id()), None),
        MetaState::Known(meta, entry)
            if meta.suspect.is_some()
                || report.has(super::Kind::AddressLacking)
                || known.is_some_and(|known| is_other(meta, known)) =>
        {
            (Meta::clone(meta), Some(entry))
        }
        MetaState::Known(..) | MetaState::Unreadable => return None,
    };
    in_service(&mut meta);
    if let Some(known) = known.filter(|known| is_other(&meta, known)) {
        in_place_of(&mut meta, known);
    }
    Some((meta, replaces))
}

/// True if the node that accepts knows another store, and does not follow this one.
fn is_other(meta: &Meta, known: &HighWater) -> bool {
    meta.id != known.store && known.contradicts(Some(meta), i64::MAX)
}

/// The nodes that know the other store follow this one from now on.
fn in_place_of(meta: &mut Meta, known: &HighWater) {
    meta.replace(&known.store);
    meta.epoch = meta.epoch.max(known.epoch + 1);
}

fn in_service(meta: &mut Meta) {
    // Every node that worked with these allocations knew the epoch before, the first one at least.
    meta.epoch = meta.epoch.max(meta.suspect.unwrap_or_default()) + 1;
    meta.suspect = None;
}

impl Report {
    /// True if there is something to accept.
    #[must_use]
    pub fn can_be_accepted(&self, known: Option<&HighWater>) -> bool {
        self.is_empty() || successor(self, known).is_some()
    }

    /// True if there are allocations without a meta.
    #[must_use]
    pub fn lacks_meta(&self) -> bool {
        self.has(super::Kind::MetaMissing)
    }

    /// True if nothing is stored.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.meta == MetaState::Missing && !self.lacks_meta()
    }

    fn has(&self, kind: super::Kind) -> bool {
        self.violations.iter().any(|finding| finding.kind == kind)
    }
}

/// Accepts the store that `report` is of, if it is under suspicion, empty, or lacks addresses that are in use, or if
/// the node that accepts it knows another one: `known`. Nodes that know that one follow from then on.
///
/// # Errors
/// [`NoStore`]; with a failure that leaves the outcome open, asking again does no harm.
pub async fn accept<K: Kv>(
    session: Session<'_, K>,
    report: &Report,
    known: Option<&HighWater>,
) -> Result<Accepted, NoStore> {
    if report.meta == MetaState::Unreadable {
        return Ok(Accepted::Unreadable);
    }
    if report.is_empty() {
        let mut first = Meta::first(random_id());
        if let Some(known) = known {
            in_place_of(&mut first, known);
        }
        endpoints::found(session, &first).await?;
        return Ok(Accepted::Founded);
    }
    let Some((meta, replaces)) = successor(report, known) else { return Ok(Accepted::NotNeeded) };
    if !prefix::replace(session, "meta", replaces, &meta).await? {
        return Ok(Accepted::Changed);
    }
    Ok(match replaces {
        None => Accepted::Made(meta.epoch),
        Some(_) => Accepted::Epoch(meta.epoch),
    })
}

/// Why a store was not put under suspicion.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BeginError {
    /// Its meta cannot be read or written.
    #[error(transparent)]
    Meta(#[from] MetaError),
    /// Others wrote the meta as long as there was time.
    #[error(transparent)]
    OutOfTime(#[from] OutOfTime),
}

/// Puts the store under suspicion, if it is not, so that no ADD hands out anything from now on: a store without
/// a meta too, whatever else it has lost. Returns the meta with its key.
///
/// # Errors
/// [`BeginError`]; asking again does no harm.
pub async fn begin<K: Kv>(session: Session<'_, K>) -> Result<(Meta, Entry), BeginError> {
    loop {
        let StoredMeta { meta, entry } = prefix::read(session).await?;
        let mut meta = match (meta, &entry) {
            (Some(meta), Some(entry)) if meta.suspect.is_some() => return Ok((meta, entry.clone())),
            // Somebody who has looked at every pod takes it into service in place of whatever was lost.
            (meta, _) => meta.unwrap_or_else(|| Meta::in_place_of_any(random_id())),
        };
        meta.suspect = Some(meta.epoch);
        match prefix::replace(session, "meta", entry.as_ref(), &meta).await {
            // The next read shows if it was applied.
            Ok(_) | Err(Failure::Unknown(_)) if Instant::now() < session.until => {}
            Ok(_) => return Err(OutOfTime.into()),
            Err(failure) => return Err(MetaError::from(failure).into()),
        }
        tokio::time::sleep(random_pause(limits::RACE_PAUSE)).await;
    }
}

/// Takes the store into service whose meta was read as `begun`, in the next epoch; returns that. None: the
/// meta has changed since, and nothing was written.
///
/// # Errors
/// [`Failure`]; with one that leaves the outcome open, the store may be in service.
pub async fn finish<K: Kv>(session: Session<'_, K>, begun: &(Meta, Entry)) -> Result<Option<u64>, Failure> {
    let (mut meta, entry) = begun.clone();
    in_service(&mut meta);
    Ok(prefix::replace(session, "meta", Some(&entry), &meta).await?.then_some(meta.epoch))
}
