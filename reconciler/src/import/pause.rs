//! Keeps ADD from handing out anything while a cluster switches plugins, and remembers for how long its
//! NetworkAttachmentDefinitions have not changed.

use std::collections::BTreeSet;
use std::time::Duration;

use metes_core::keys::{Bytes, LeaseId, digest_hex};
use metes_core::meta;
use metes_core::pool::{ClusterName, Definitions, Meta, Record};
use metes_core::snapshot::Snapshot;
use metes_core::txn::{Entry, Op, Txn};
use metes_engine::endpoints;
use metes_engine::kv::{Kv, LeaseAge};
use metes_engine::prefix::StoredMeta;
use metes_engine::random::random_id;
use metes_engine::session::{Session, new_lease};

use super::error::ImportError;
use super::nads::Nad;
use crate::context::read_meta;

/// For how long the time of the last change of the definitions is remembered. After that they count as just changed.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);
/// The step of the protocol, for logs and tests.
const STEP: &str = "pause";
/// The most tries of one change of meta. Others change it rarely.
const TRIES: usize = 5;
/// The largest number of waiting pods that is remembered: a value in etcd holds no more.
const WAITING_MAX: usize = 20_000;

/// A cluster's own pause of the store.
pub struct Pause<'a, K> {
    /// The store.
    pub session: Session<'a, K>,
    /// The cluster's name.
    pub cluster: &'a ClusterName,
    /// The time, for people: RFC 3339 in UTC.
    pub now: String,
}

/// The state of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PauseState {
    /// ADD works.
    Open,
    /// This cluster's migration is under way.
    Held,
}

impl<K: Kv> Pause<'_, K> {
    /// The message for everybody who asks for an address meanwhile.
    fn text(&self) -> String {
        format!("the addresses that whereabouts has handed out in cluster {} are taken over", self.cluster)
    }

    /// Reads the state of the store.
    ///
    /// # Errors
    /// [`ImportError`], also if the store cannot be used at all, or another migration is under way.
    pub(crate) async fn state(&self) -> Result<PauseState, ImportError> {
        Ok(self.read().await?.0)
    }

    /// Pauses the store: from here on no ADD hands out anything.
    ///
    /// # Errors
    /// [`ImportError`]
    pub async fn set(&self) -> Result<(), ImportError> {
        let keys = self.session.keys;
        for _ in 0..TRIES {
            let (state, StoredMeta { meta, entry }) = self.read().await?;
            if state == PauseState::Held {
                return Ok(());
            }
            let Some(mut meta) = meta else {
                endpoints::found(self.session, &Meta::first(random_id())).await?;
                continue;
            };
            meta.paused = Some(self.text());
            meta.paused_since = Some(self.now.clone());
            let txn = meta::replacement(keys, STEP, entry.as_ref(), &meta);
            if self.session.txn(&txn).await?.succeeded {
                return Ok(());
            }
        }
        Err(ImportError::Changed)
    }

    /// Ends the pause: ADD works again, and what was remembered of the definitions is deleted.
    ///
    /// # Errors
    /// [`ImportError`]
    pub async fn clear(&self) -> Result<(), ImportError> {
        for _ in 0..TRIES {
            let (PauseState::Held, StoredMeta { meta: Some(mut meta), entry }) = self.read().await? else {
                return Ok(());
            };
            meta.end_pause();
            let mut txn = meta::replacement(self.session.keys, STEP, entry.as_ref(), &meta);
            txn.then.push(Op::Delete(self.import_key()));
            if self.session.txn(&txn).await?.succeeded {
                return Ok(());
            }
        }
        Err(ImportError::Changed)
    }

    async fn read(&self) -> Result<(PauseState, StoredMeta), ImportError> {
        let stored = read_meta(self.session).await?;
        let state = match stored.meta.as_ref().and_then(|meta| meta.paused.as_ref()) {
            None => PauseState::Open,
            Some(why) if *why == self.text() => PauseState::Held,
            Some(why) => return Err(ImportError::OtherPause(why.clone())),
        };
        Ok((state, stored))
    }

    /// The memory of the definitions in their present state; empty if this state is seen for the first time.
    pub(crate) async fn seen(&self, nads: &[Nad]) -> Result<SeenDefinitions, ImportError> {
        let Some((entry, known)) = self.known(nads).await? else { return Ok(SeenDefinitions::default()) };
        let Session { kv, until, .. } = self.session;
        let age = kv.lease_age(LeaseId(entry.lease), until).await?;
        let unchanged_for = age.map_or(Duration::ZERO, LeaseAge::age);
        Ok(SeenDefinitions { unchanged_for, waiting: known.waiting.map(|uids| uids.into_iter().collect()) })
    }

    /// Remembers the state of the definitions, and which older pods may be waiting, unless both are already known.
    pub(crate) async fn remember(
        &self,
        nads: &[Nad],
        waiting: Option<&BTreeSet<String>>,
    ) -> Result<(), ImportError> {
        let waiting = waiting.filter(|uids| uids.len() <= WAITING_MAX);
        let known = self.known(nads).await?;
        let lease = match &known {
            Some((_, known)) if known.waiting.is_some() || waiting.is_none() => return Ok(()),
            Some((entry, _)) => LeaseId(entry.lease),
            None => {
                let lease = new_lease();
                self.session.kv.grant(lease, REMEMBERED, self.session.until).await?;
                lease
            }
        };
        let value =
            Definitions::new(digest(nads), waiting.map(|uids| uids.iter().cloned().collect())).encode();
        let then = vec![Op::Put(self.import_key(), value, Some(lease))];
        self.session.txn(&Txn { step: STEP, then, ..Txn::default() }).await?;
        Ok(())
    }

    /// The memory of the definitions, if they have not changed since.
    async fn known(&self, nads: &[Nad]) -> Result<Option<(Entry, Definitions)>, ImportError> {
        let key = self.import_key();
        let mut snapshot = Snapshot::default();
        self.session.read(std::slice::from_ref(&key), &mut snapshot).await?;
        let known = |entry: &Entry| Some((entry.clone(), Definitions::decode(&entry.value).ok()?));
        Ok(snapshot.entry(&key).and_then(known).filter(|(_, known)| known.digest == digest(nads)))
    }

    fn import_key(&self) -> Bytes {
        self.session.keys.import(self.cluster)
    }
}

/// The memory of the definitions in their present state.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SeenDefinitions {
    /// For how long, at least, they have not changed.
    pub(crate) unchanged_for: Duration,
    /// The pods that may have been waiting at the first look; none if there was no look yet.
    pub(crate) waiting: Option<BTreeSet<String>>,
}

/// A digest that changes with every change of any definition.
pub(crate) fn digest(nads: &[Nad]) -> String {
    let line = |nad: &Nad| format!("{} {} {}\n", nad.id, nad.uid, nad.resource_version);
    digest_hex(nads.iter().map(line).collect::<String>().as_bytes())
}
