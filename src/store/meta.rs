//! The meta of a prefix: only this file judges it and writes it.
//!
//! A prefix without a meta is new, or has lost it. So the transaction that writes the first meta compares that there
//! are no allocations.

use super::builder::Builder;
use super::keys::Keys;
use super::known::{HighWater, SeenAs};
use super::kv::{Failure, Kv};
use super::session::Session;
use super::snapshot::{BadRecord, Snapshot};
use super::txn::{Compare, Entry, List, Op, Txn};
use crate::pool::record::{Meta, Record, VERSION};
use crate::random::random_id;

/// Why a store hands out no addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutOfService {
    /// Only this version or a newer one may write to it.
    Newer(u32),
    /// It has gone back, was emptied or is another one, since this epoch.
    Suspect(u64),
    /// A migration is under way; why.
    Paused(String),
}

impl OutOfService {
    /// Why, for an operator.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            OutOfService::Newer(version) => {
                format!("only writers of version {version} or newer may write to it; use a newer metes")
            }
            OutOfService::Suspect(epoch) => {
                format!("it is under suspicion since epoch {epoch}; `metes check` says what to do")
            }
            OutOfService::Paused(why) => format!("a migration is under way: {why}"),
        }
    }
}

/// Whether a store with this meta hands out addresses.
///
/// # Errors
/// [`OutOfService`]
pub fn judge(meta: &Meta) -> Result<(), OutOfService> {
    writable(meta).map_err(OutOfService::Newer)?;
    match (meta.suspect, &meta.paused) {
        (Some(epoch), _) => Err(OutOfService::Suspect(epoch)),
        (None, Some(why)) => Err(OutOfService::Paused(why.clone())),
        (None, None) => Ok(()),
    }
}

/// Whether this program may write to a store with this meta.
///
/// # Errors
/// The oldest version that may.
pub fn writable(meta: &Meta) -> Result<(), u32> {
    if meta.min_writer > VERSION { Err(meta.min_writer) } else { Ok(()) }
}

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

/// Compares that the meta is as it was read, none if there was none. It compares the value: two copies of a store have
/// the same revisions.
#[must_use]
pub fn as_read(keys: &Keys, stored: Option<&Entry>) -> Compare {
    match stored {
        Some(entry) => Compare::Value(keys.meta(), entry.value.clone()),
        None => Compare::Mod(keys.meta(), 0),
    }
}

/// The transaction that replaces the meta that was read, none if there was none. `step` names it for logs and tests.
#[must_use]
pub fn replacement(keys: &Keys, step: &'static str, stored: Option<&Entry>, meta: &Meta) -> Txn {
    Txn {
        step,
        compares: vec![as_read(keys, stored)],
        then: vec![Op::Put(keys.meta(), meta.encode(), None)],
        ..Txn::default()
    }
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

/// The transaction that makes the first meta, in a prefix without allocations.
#[must_use]
pub fn founding(keys: &Keys, step: &'static str, meta: &Meta) -> Txn {
    let mut txn = replacement(keys, step, None, meta);
    txn.compares.extend(keys.allocations().into_iter().map(Compare::Empty));
    txn
}

/// Makes a commit rely on the meta as it was read, or write `first` into a prefix without allocations.
pub fn rely_on(keys: &Keys, seen: &Snapshot, first: &Meta, builder: &mut Builder<'_>) {
    let key = keys.meta();
    builder.same_value(key.clone());
    if seen.knows(&key) && seen.entry(&key).is_none() {
        keys.allocations().into_iter().for_each(|prefix| builder.empty(prefix));
        builder.put(key, first.encode());
        builder.effects.founds = true;
    }
}

/// Whether a prefix without a meta has allocations. Then it has lost its meta.
pub enum Emptiness {
    /// It has a meta, or no allocations.
    Sound,
    /// It has none, and has allocations.
    Lost,
    /// These reads will say it.
    Unknown(Vec<Op>),
}

/// Judges a prefix whose meta was read.
#[must_use]
pub fn emptiness(keys: &Keys, seen: &Snapshot) -> Emptiness {
    let meta = keys.meta();
    if seen.entry(&meta).is_some() {
        return Emptiness::Sound;
    }
    let prefixes = keys.allocations();
    // Another run may have been the first since it was counted.
    let counts = prefixes.iter().map(|prefix| seen.count(prefix, &meta)).collect::<Option<Vec<i64>>>();
    match counts {
        Some(counts) if counts.iter().all(|count| *count == 0) => Emptiness::Sound,
        Some(_) => Emptiness::Lost,
        None => {
            let count = |prefix: &Vec<u8>| Op::List(List { keys_only: true, ..List::prefix(prefix, 1) });
            Emptiness::Unknown(std::iter::once(Op::Get(meta)).chain(prefixes.iter().map(count)).collect())
        }
    }
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
///
/// # Errors
/// [`Failure`]
pub async fn accuse<K: Kv>(
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

/// Whether the store that was read contradicts what a node knows of it. Where the node's key is gone, it reads whether
/// a pass has deleted it.
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
