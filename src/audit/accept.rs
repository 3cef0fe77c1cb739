//! Takes a store that may have gone back in time into service again.
//!
//! Only a person can say that what a restored store holds is what the cluster uses ([`accept`]), or somebody
//! who has looked at every pod ([`begin`], [`finish`]). The next epoch begins: high-water marks of an
//! earlier one do not count any more.

use tokio::time::Instant;

use super::{MetaState, Report};
use crate::limits;
use crate::pool::record::Meta;
use crate::random::{random_id, random_pause};
use crate::store::kv::{Failure, Kv};
use crate::store::meta::{self, MetaError, StoredMeta};
use crate::store::session::Session;

/// What became of a request to accept the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    /// It was not under suspicion; nothing was written.
    NotNeeded,
    /// It was; this epoch begins.
    Epoch(u64),
    /// Its allocations had no meta; one was made, of this epoch.
    Made(u64),
    /// Its meta is not for this program; nothing was written.
    Unreadable,
    /// Its meta changed meanwhile; nothing was written.
    Changed,
}

/// The meta to write, with the mod revision that it replaces; none if nothing is to be done.
fn successor(report: &Report) -> Option<(Meta, i64)> {
    let (mut meta, replaces) = match &report.meta {
        MetaState::Missing if report.lacks_meta() => (Meta::first(random_id()), 0),
        MetaState::Known(meta, revision) if meta.suspect.is_some() => (meta.clone(), *revision),
        MetaState::Missing | MetaState::Known(..) | MetaState::Unreadable => return None,
    };
    in_service(&mut meta);
    Some((meta, replaces))
}

fn in_service(meta: &mut Meta) {
    // Every node that worked with these allocations knew the epoch before, the first one at least.
    meta.epoch = meta.epoch.max(meta.suspect.unwrap_or_default()) + 1;
    meta.suspect = None;
}

impl Report {
    /// Whether there is something to accept.
    #[must_use]
    pub fn can_be_accepted(&self) -> bool {
        successor(self).is_some()
    }

    /// Whether there are allocations without a meta.
    #[must_use]
    pub fn lacks_meta(&self) -> bool {
        self.violations.iter().any(|finding| finding.kind == super::Kind::MetaMissing)
    }
}

/// Accepts the store that `report` is of, if it is under suspicion.
///
/// # Errors
/// [`Failure`]; with one that leaves the outcome open, asking again does no harm.
pub async fn accept<K: Kv>(session: Session<'_, K>, report: &Report) -> Result<Accepted, Failure> {
    if report.meta == MetaState::Unreadable {
        return Ok(Accepted::Unreadable);
    }
    let Some((meta, replaces)) = successor(report) else { return Ok(Accepted::NotNeeded) };
    if !meta::replace(session, "meta", replaces, &meta).await? {
        return Ok(Accepted::Changed);
    }
    Ok(if replaces == 0 { Accepted::Made(meta.epoch) } else { Accepted::Epoch(meta.epoch) })
}

/// Puts the store under suspicion, if it is not, so that no ADD hands out anything from now on: a store without
/// a meta too, whatever else it has lost. Returns the meta with its mod revision.
///
/// # Errors
/// [`MetaError`]; asking again does no harm.
pub async fn begin<K: Kv>(session: Session<'_, K>) -> Result<(Meta, i64), MetaError> {
    loop {
        let StoredMeta { meta, revision } = meta::read(session).await?;
        let mut meta = match meta {
            Some(meta) if meta.suspect.is_some() => return Ok((meta, revision)),
            meta => meta.unwrap_or_else(|| Meta::first(random_id())),
        };
        meta.suspect = Some(meta.epoch);
        match meta::replace(session, "meta", revision, &meta).await {
            // Whether it was applied shows when it is read again.
            Ok(_) | Err(Failure::Unknown(_)) if Instant::now() < session.until => {}
            Ok(_) => return Err(Failure::Unknown("the time is over".to_owned()).into()),
            Err(failure) => return Err(failure.into()),
        }
        tokio::time::sleep(random_pause(limits::RACE_PAUSE)).await;
    }
}

/// Takes the store into service whose meta was read as `begun`, in the next epoch; returns that. None: the
/// meta has changed since, and nothing was written.
///
/// # Errors
/// [`Failure`]; with one that leaves the outcome open, the store may be in service.
pub async fn finish<K: Kv>(session: Session<'_, K>, begun: &(Meta, i64)) -> Result<Option<u64>, Failure> {
    let (mut meta, revision) = begun.clone();
    in_service(&mut meta);
    Ok(meta::replace(session, "meta", revision, &meta).await?.then_some(meta.epoch))
}
