//! Ends the pause that a migration has put on a store, without asking the cluster that did: it may be gone, or its API.

use super::{MetaState, Report};
use metes_engine::kv::{Failure, Kv};
use metes_engine::prefix;
use metes_engine::session::Session;

/// The outcome of a request to end the pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// ADD works again, as far as the pause kept it from that.
    Done,
    /// There was no pause; nothing was written.
    NotPaused,
    /// The store's meta is not for this program; nothing was written.
    Unreadable,
    /// The meta changed since it was read; nothing was written.
    Changed,
}

/// Ends the pause that `report` tells of.
///
/// # Errors
/// [`Failure`]; with one that leaves the outcome open, asking again does no harm.
pub async fn end<K: Kv>(session: Session<'_, K>, report: &Report) -> Result<Ended, Failure> {
    let (mut meta, entry) = match &report.meta {
        MetaState::Unreadable => return Ok(Ended::Unreadable),
        MetaState::Known(meta, entry) if meta.paused.is_some() => (meta.clone(), entry),
        MetaState::Missing | MetaState::Known(..) => return Ok(Ended::NotPaused),
    };
    meta.end_pause();
    let is_replaced = prefix::replace(session, "pause", Some(entry), &meta).await?;
    Ok(if is_replaced { Ended::Done } else { Ended::Changed })
}
