//! The prefix of a store: reads its meta, replaces it, founds it, and puts it under suspicion.

use super::kv::{Failure, Kv};
use super::session::Session;
use crate::random::random_id;
use metes_core::builder::Builder;
use metes_core::known::{HighWater, SeenAs};
use metes_core::meta::{replacement, writable};
use metes_core::pool::{Meta, Record, VERSION};
use metes_core::snapshot::{BadRecord, Snapshot};
use metes_core::txn::Entry;

/// Why a meta was not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetaError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] Failure),
    /// It does not decode.
    #[error("stored state cannot be decoded: {0}")]
    Bad(#[from] BadRecord),
    /// Written by newer programs.
    #[error("the store is for writers of version {0} or newer, and this one is of version {VERSION}")]
    Newer(u32),
}

/// A meta as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredMeta {
    /// The meta; none if there is none.
    pub meta: Option<Meta>,
    /// Its key.
    pub entry: Option<Entry>,
}

/// Reads the meta of a store that this program may write to.
///
/// # Errors
/// [`MetaError`]
pub async fn read<K: Kv>(session: Session<'_, K>) -> Result<StoredMeta, MetaError> {
    let key = session.keys.meta();
    let mut seen = Snapshot::default();
    session.read(std::slice::from_ref(&key), &mut seen).await?;
    let meta = seen.record::<Meta>(&key)?;
    meta.as_ref().map_or(Ok(()), writable).map_err(MetaError::Newer)?;
    Ok(StoredMeta { meta, entry: seen.entry(&key).cloned() })
}

/// Replaces the meta that was read; false if it has changed since.
///
/// # Errors
/// [`Failure`]
pub async fn replace<K: Kv>(
    session: Session<'_, K>,
    step: &'static str,
    stored: Option<&Entry>,
    meta: &Meta,
) -> Result<bool, Failure> {
    Ok(session.txn(&replacement(session.keys, step, stored, meta)).await?.succeeded)
}

/// Why no first meta is written into a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FoundingError {
    /// The store failed.
    Failed(Failure),
    /// This etcd is too old.
    TooOld(String),
}

/// Asks by etcd's version whether a store may be founded here: before the first write into a prefix, not in each run.
///
/// # Errors
/// [`FoundingError`]
pub async fn may_found<K: Kv>(session: Session<'_, K>) -> Result<(), FoundingError> {
    let about = session.kv.about(session.until).await.map_err(FoundingError::Failed)?;
    about.too_old().map_or(Ok(()), |text| Err(FoundingError::TooOld(text)))
}

/// Marks the store that was read as suspect, because it contradicts what a node knows of it, and returns the epoch
/// since when it is. None if only newer programs may write to it.
///
/// It compares meta by its value: two copies of a store have the same revisions. Where the node's key is the evidence,
/// it also compares that the key is older, so that it marks no copy in which the key is not.
pub(crate) async fn accuse<K: Kv>(
    session: Session<'_, K>,
    seen: &Snapshot,
    known: &HighWater,
) -> Result<Option<u64>, Failure> {
    let key = session.keys.meta();
    let Ok(meta) = seen.record::<Meta>(&key) else { return Ok(None) };
    if meta.as_ref().is_some_and(|meta| writable(meta).is_err()) {
        return Ok(None);
    }
    if meta.as_ref().is_none_or(|meta| meta.suspect.is_none()) {
        let evidence = meta.as_ref().and_then(|meta| known.key_in(meta));
        let evidence = evidence.filter(|own| seen.mod_revision(own.name.as_bytes()) < own.revision);
        let mut builder = Builder::new("suspect", seen);
        builder.same_value(key.clone());
        if let Some(own) = evidence.filter(|own| seen.knows(own.name.as_bytes())) {
            builder.older(own.name.clone().into_bytes(), own.revision);
        }
        let mut suspect = meta.unwrap_or_else(|| Meta::first(random_id()));
        suspect.epoch = known.epoch;
        suspect.suspect = Some(known.epoch);
        builder.put(key, suspect.encode());
        if let Ok(txn) = builder.finish() {
            session.txn(&txn).await?;
        }
    }
    Ok(Some(known.epoch))
}

/// True if the store that was read contradicts a node's knowledge of it. If the node's key is gone, it first reads
/// whether a pass has deleted the key.
///
/// # Errors
/// [`Failure`]
pub async fn contradicts<K: Kv>(
    session: Session<'_, K>,
    known: &HighWater,
    seen: &mut Snapshot,
) -> Result<bool, Failure> {
    match known.judge(session.keys, seen, seen.revision) {
        SeenAs::Sound => Ok(false),
        SeenAs::Contradicts => Ok(true),
        SeenAs::KeyAbsent => {
            session.read(&[session.keys.forgotten()], seen).await?;
            Ok(!known.is_forgotten(session.keys, seen))
        }
    }
}
