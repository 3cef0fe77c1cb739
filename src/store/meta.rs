//! The meta of a prefix: only this file judges it and writes it.
//!
//! A prefix without a meta is new, or has lost it. So the transaction that writes the first meta compares that there
//! are no allocations.

use serde::{Deserialize, Serialize};

use super::builder::Builder;
use super::keys::Keys;
use super::kv::{Failure, Kv};
use super::session::Session;
use super::snapshot::{BadRecord, Snapshot};
use super::txn::{Compare, List, Op, Txn};
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
    /// Its mod revision; 0 if there is none.
    pub revision: i64,
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
    Ok(StoredMeta { meta, revision: seen.mod_revision(&key) })
}

/// The transaction that replaces the meta of this mod revision, 0 for none. `step` names it for logs and tests.
#[must_use]
pub fn replacement(keys: &Keys, step: &'static str, revision: i64, meta: &Meta) -> Txn {
    Txn {
        step,
        compares: vec![Compare::Mod(keys.meta(), revision)],
        then: vec![Op::Put(keys.meta(), meta.encode(), None)],
        ..Txn::default()
    }
}

/// Replaces the meta of this mod revision; false if it has changed since.
///
/// # Errors
/// [`Failure`]
pub async fn replace<K: Kv>(
    session: Session<'_, K>,
    step: &'static str,
    revision: i64,
    meta: &Meta,
) -> Result<bool, Failure> {
    Ok(session.txn(&replacement(session.keys, step, revision, meta)).await?.succeeded)
}

/// The transaction that makes the first meta, in a prefix without allocations.
#[must_use]
pub fn founding(keys: &Keys, step: &'static str, meta: &Meta) -> Txn {
    let mut txn = replacement(keys, step, 0, meta);
    txn.compares.extend(keys.allocations().into_iter().map(Compare::Empty));
    txn
}

/// Makes a commit rely on the meta as it was read, or write `first` into a prefix without allocations.
pub fn rely_on(keys: &Keys, seen: &Snapshot, first: &Meta, builder: &mut Builder<'_>) {
    let key = keys.meta();
    builder.unchanged(key.clone());
    if seen.knows(&key) && seen.entry(&key).is_none() {
        keys.allocations().into_iter().for_each(|prefix| builder.empty(prefix));
        builder.put(key, first.encode());
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

/// Checks etcd's version. This is done before the first write into a prefix, not in each run.
///
/// # Errors
/// [`FoundingError`]
pub async fn check_version<K: Kv>(session: Session<'_, K>) -> Result<(), FoundingError> {
    let about = session.kv.about(session.until).await.map_err(FoundingError::Failed)?;
    about.too_old().map_or(Ok(()), |text| Err(FoundingError::TooOld(text)))
}

/// The high-water mark: what a node has seen of the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HighWater {
    /// The store's id (see [`Meta::id`]).
    pub store: String,
    /// Its epoch. Revisions and ids are compared only within one epoch.
    pub epoch: u64,
    /// The highest revision that was seen.
    pub revision: i64,
}

impl HighWater {
    /// Whether this is the meta of the store that was seen, in the epoch that was seen.
    #[must_use]
    pub fn is_of(&self, meta: &Meta) -> bool {
        meta.id == self.store && meta.epoch == self.epoch
    }

    /// Whether a store with this meta at this revision has lost something that this node has seen: it is another store,
    /// has lost its meta, or has gone back. An epoch only grows, and a new one settles what was before.
    #[must_use]
    pub fn contradicts(&self, meta: Option<&Meta>, revision: i64) -> bool {
        match meta {
            None => true,
            Some(meta) if meta.epoch != self.epoch => meta.epoch < self.epoch,
            Some(meta) => meta.id != self.store || revision < self.revision,
        }
    }

    /// The same, with the meta that was read. A meta that does not decode is refused elsewhere.
    #[must_use]
    pub fn contradicts_read(&self, keys: &Keys, seen: &Snapshot, revision: i64) -> bool {
        seen.record(&keys.meta()).is_ok_and(|meta| self.contradicts(meta.as_ref(), revision))
    }

    /// Marks the store that was read as suspect, and returns the epoch since when it is. None if only newer programs
    /// may write to it.
    ///
    /// # Errors
    /// [`Failure`]
    pub async fn accuse<K: Kv>(
        &self,
        session: Session<'_, K>,
        seen: &Snapshot,
    ) -> Result<Option<u64>, Failure> {
        let key = session.keys.meta();
        let Ok(meta) = seen.record::<Meta>(&key) else { return Ok(None) };
        if meta.as_ref().is_some_and(|meta| writable(meta).is_err()) {
            return Ok(None);
        }
        if meta.as_ref().is_none_or(|meta| meta.suspect.is_none()) {
            let mut suspect = meta.unwrap_or_else(|| Meta::first(random_id()));
            suspect.epoch = self.epoch;
            suspect.suspect = Some(self.epoch);
            replace(session, "suspect", seen.mod_revision(&key), &suspect).await?;
        }
        Ok(Some(self.epoch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_has_forgotten_something_is_told_from_one_that_has_not() {
        let known = HighWater { store: "s".to_owned(), epoch: 2, revision: 100 };
        let meta = |id: &str, epoch| {
            let mut meta = Meta::first(id.to_owned());
            meta.epoch = epoch;
            meta
        };
        for (found, revision, expected) in [
            (None, 100, true),
            (None, 1000, true),
            (Some(meta("s", 2)), 100, false),
            (Some(meta("s", 2)), 99, true),
            (Some(meta("other", 2)), 1000, true),
            (Some(meta("s", 1)), 1000, true),
            (Some(meta("other", 3)), 1, false),
        ] {
            assert_eq!(known.contradicts(found.as_ref(), revision), expected, "{found:?} {revision}");
        }
    }
}
