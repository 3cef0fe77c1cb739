//! The prefix of a store: reads its meta, replaces it, and puts it under suspicion.

use super::kv::{Failure, Kv};
use super::session::{Session, new_lease};
use crate::random::random_id;
use metes_core::builder::Builder;
use metes_core::keys::{Bytes, Key};
use metes_core::known::{HighWater, SeenAs};
use metes_core::limits;
use metes_core::meta::{replacement, writable};
use metes_core::pool::{Meta, NodeRecord, Record, VERSION};
use metes_core::snapshot::{BadRecord, Snapshot};
use metes_core::txn::{Entry, List, Op, Txn};

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

/// Why a node gives no address in a store that contradicts its knowledge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Doubt {
    /// The store is suspect since this epoch, for everybody.
    Suspect(u64),
    /// This node alone doubts it. Endpoints, etcd and store are all others than those that the node knows, so the fault
    /// may be in its host file.
    Stranger {
        /// The id of the store that the node knows.
        known: String,
        /// The id of the store that was found; none if there is no meta.
        found: Option<String>,
    },
}

/// Marks the store that was read as suspect, because it contradicts what a node knows of it; `own_key` is the node's.
/// None if only newer programs may write to it.
///
/// A node that may have come here by a wrong host file says so first, and a second machine that knows the same other
/// store marks it: wrong host files come one at a time, and a store that was rebuilt elsewhere concerns many.
pub(crate) async fn accuse<K: Kv>(
    session: Session<'_, K>,
    seen: &Snapshot,
    known: &HighWater,
    own_key: &[u8],
) -> Result<Option<Doubt>, Failure> {
    let Ok(meta) = seen.record::<Meta>(&session.keys.meta()) else { return Ok(None) };
    if meta.as_ref().is_some_and(|meta| writable(meta).is_err()) {
        return Ok(None);
    }
    let is_marked = meta.as_ref().is_some_and(|meta| meta.suspect.is_some());
    if !is_marked
        && known.is_strange_to(meta.as_ref(), session.kv.cluster())
        && is_first_stranger(session, known, own_key).await?
    {
        let found = meta.map(|meta| meta.id);
        return Ok(Some(Doubt::Stranger { known: known.store.clone(), found }));
    }
    if !is_marked {
        mark_suspect(session, seen, known, meta).await?;
    }
    Ok(Some(Doubt::Suspect(known.epoch)))
}

/// True if no other machine has come here that knows the same other store. Then this one is remembered for
/// [`limits::STRANGER`].
async fn is_first_stranger<K: Kv>(
    session: Session<'_, K>,
    known: &HighWater,
    own_key: &[u8],
) -> Result<bool, Failure> {
    let Ok(Key::Node(node)) = session.keys.parse(own_key) else { return Ok(false) };
    let own = session.keys.stranger(&known.store, &node.machine);
    // What is no store's id was not drawn by a program of metes.
    if session.keys.parse(&own).is_err() {
        return Ok(false);
    }
    let list = List { keys_only: true, ..List::prefix(&session.keys.strangers_from(&known.store), 2) };
    let reply = session.txn(&Txn::read(vec![Op::List(list)])).await?;
    let strangers: Vec<Bytes> =
        reply.found.into_iter().flat_map(|found| found.entries).map(|entry| entry.key).collect();
    if strangers.iter().any(|stranger| *stranger != own) {
        return Ok(false);
    }
    if strangers.is_empty() {
        let (lease, value) = (new_lease(), NodeRecord::new(String::new(), String::new()).encode());
        session.kv.grant(lease, limits::STRANGER, session.until).await?;
        let then = vec![Op::Put(own, value, Some(lease))];
        session.txn(&Txn { step: "stranger", then, ..Txn::default() }).await?;
    }
    Ok(true)
}

/// It compares meta by its value: two copies of a store have the same revisions. Where the node's key is the evidence,
/// it also compares that the key is older, so that it marks no copy in which the key is not.
async fn mark_suspect<K: Kv>(
    session: Session<'_, K>,
    seen: &Snapshot,
    known: &HighWater,
    meta: Option<Meta>,
) -> Result<(), Failure> {
    let key = session.keys.meta();
    let evidence = meta.as_ref().and_then(|meta| known.key_in(meta));
    let evidence = evidence.filter(|own| seen.mod_revision(own.name.as_bytes()) < own.revision);
    let mut builder = Builder::new("suspect", seen);
    builder.same_value(key.clone());
    if let Some(own) = evidence.filter(|own| seen.knows(own.name.as_bytes())) {
        builder.older(own.name.clone().into_bytes(), own.revision);
    }
    let mut suspect = meta.unwrap_or_else(|| Meta::first(random_id()));
    suspect.epoch = suspect.epoch.max(known.epoch);
    suspect.suspect = Some(suspect.epoch);
    // Once it is taken into service, the nodes that know the other store follow.
    suspect.replace(&known.store);
    builder.put(key, suspect.encode());
    if let Ok(txn) = builder.finish() {
        session.txn(&txn).await?;
    }
    Ok(())
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
