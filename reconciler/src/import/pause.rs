//! What keeps ADD from handing out anything while a cluster switches plugins, and for how long its
//! NetworkAttachmentDefinitions have been as they are.

use std::collections::BTreeSet;
use std::time::Duration;

use metes::local::node::timestamp;
use metes::pool::names::ClusterName;
use metes::pool::record::{Definitions, Meta, Record, VERSION};
use metes::random::random_id;
use metes::store::keys::{Bytes, Keys, LeaseId, digest_hex};
use metes::store::kv::{Failure, Kv, LeaseAge};
use metes::store::session::Session;
use metes::store::snapshot::Snapshot;
use metes::store::ticket::new_lease;
use metes::store::txn::{Compare, Entry, Op, Txn};
use tokio::time::Instant;

use super::Stop;
use super::nads::Nad;

/// For how long it is remembered when the definitions changed. After that it counts as a moment ago.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);
/// How often a change of meta is tried: others change it rarely.
const TRIES: usize = 5;
/// Of more pods than so many it is not remembered that they may be waiting: a value of etcd takes no more.
const WAITING_MAX: usize = 20_000;

/// A cluster's own pause of the store.
pub struct Pause<'a, K> {
    /// The store.
    pub kv: &'a K,
    /// Its keys.
    pub keys: &'a Keys,
    /// The cluster's name.
    pub cluster: &'a ClusterName,
    /// When reading and writing must be over.
    pub until: Instant,
}

/// How the store stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// ADD works.
    Open,
    /// This cluster's migration is under way.
    Held,
}

impl<K: Kv> Pause<'_, K> {
    /// What is said to whoever asks for an address meanwhile.
    fn text(&self) -> String {
        format!("the addresses that whereabouts has handed out in cluster {} are taken over", self.cluster)
    }

    /// Looks how the store stands.
    ///
    /// # Errors
    /// [`Stop`], also if the store is not to be used at all, or another migration is under way.
    pub async fn state(&self) -> Result<State, Stop> {
        Ok(self.read().await?.0)
    }

    /// From here on no ADD hands out anything.
    ///
    /// # Errors
    /// [`Stop`]
    pub async fn set(&self) -> Result<(), Stop> {
        let key = self.keys.meta();
        for _ in 0..TRIES {
            let (state, meta, revision) = self.read().await?;
            if state == State::Held {
                return Ok(());
            }
            let (mut meta, mut compares) = match meta {
                Some(meta) => (meta, Vec::new()),
                // Without meta there must be no allocations either.
                None => (
                    Meta::first(random_id()),
                    self.keys.allocations().into_iter().map(Compare::Empty).collect(),
                ),
            };
            compares.push(Compare::Mod(key.clone(), revision));
            meta.paused = Some(self.text());
            meta.paused_since = Some(timestamp());
            let then = vec![Op::Put(key.clone(), meta.encode(), None)];
            let reply =
                self.kv.txn(&Txn { step: "pause", compares, then, ..Txn::default() }, self.until).await?;
            if reply.succeeded {
                return Ok(());
            }
            if revision == 0 && self.read().await?.1.is_none() {
                return Err(Stop::MetaMissing(String::from_utf8_lossy(&key).into_owned()));
            }
        }
        Err(Stop::Changed)
    }

    /// ADD works again, and nothing is remembered of the definitions.
    ///
    /// # Errors
    /// [`Stop`]
    pub async fn clear(&self) -> Result<(), Stop> {
        let key = self.keys.meta();
        for _ in 0..TRIES {
            let (State::Held, Some(mut meta), revision) = self.read().await? else { return Ok(()) };
            meta.end_pause();
            let txn = Txn {
                step: "pause",
                compares: vec![Compare::Mod(key.clone(), revision)],
                then: vec![Op::Put(key.clone(), meta.encode(), None), Op::Delete(self.import_key())],
                otherwise: Vec::new(),
            };
            if self.kv.txn(&txn, self.until).await?.succeeded {
                return Ok(());
            }
        }
        Err(Stop::Changed)
    }

    async fn read(&self) -> Result<(State, Option<Meta>, i64), Stop> {
        let key = self.keys.meta();
        let mut snapshot = Snapshot::default();
        Session { kv: self.kv, keys: self.keys, until: self.until }
            .read(std::slice::from_ref(&key), &mut snapshot)
            .await?;
        let Some(meta) = snapshot.record::<Meta>(&key)? else { return Ok((State::Open, None, 0)) };
        let state = match (&meta.suspect, &meta.paused) {
            _ if meta.min_writer > VERSION => return Err(Stop::Newer(meta.min_writer)),
            (Some(epoch), _) => return Err(Stop::Suspect(*epoch)),
            (None, None) => State::Open,
            (None, Some(why)) if *why == self.text() => State::Held,
            (None, Some(why)) => return Err(Stop::OtherPause(why.clone())),
        };
        Ok((state, Some(meta), snapshot.mod_revision(&key)))
    }

    /// What is known of the definitions as they are: nothing, if they are seen so for the first time.
    ///
    /// # Errors
    /// [`Stop`]
    pub async fn seen(&self, nads: &[Nad]) -> Result<Seen, Stop> {
        let Some((entry, known)) = self.known(nads).await? else { return Ok(Seen::default()) };
        let age = self.kv.lease_age(LeaseId(entry.lease), self.until).await?;
        let unchanged_for = age.map_or(Duration::ZERO, LeaseAge::age);
        Ok(Seen { unchanged_for, waiting: known.waiting.map(|uids| uids.into_iter().collect()) })
    }

    /// Remembers how the definitions are, and which pods may be waiting that were made before, as far as that is not known.
    ///
    /// # Errors
    /// [`Stop`]
    pub async fn remember(&self, nads: &[Nad], waiting: Option<&BTreeSet<String>>) -> Result<(), Stop> {
        let waiting = waiting.filter(|uids| uids.len() <= WAITING_MAX);
        let known = self.known(nads).await?;
        let lease = match &known {
            Some((_, known)) if known.waiting.is_some() || waiting.is_none() => return Ok(()),
            Some((entry, _)) => LeaseId(entry.lease),
            None => {
                let lease = new_lease();
                self.kv.grant(lease, REMEMBERED, self.until).await?;
                lease
            }
        };
        let value =
            Definitions::new(digest(nads), waiting.map(|uids| uids.iter().cloned().collect())).encode();
        let then = vec![Op::Put(self.import_key(), value, Some(lease))];
        self.kv.txn(&Txn { step: "pause", then, ..Txn::default() }, self.until).await?;
        Ok(())
    }

    /// What is remembered of the definitions, if they are as they were then.
    async fn known(&self, nads: &[Nad]) -> Result<Option<(Entry, Definitions)>, Stop> {
        let key = self.import_key();
        let mut snapshot = Snapshot::default();
        Session { kv: self.kv, keys: self.keys, until: self.until }
            .read(std::slice::from_ref(&key), &mut snapshot)
            .await?;
        let known = |entry: &Entry| Some((entry.clone(), Definitions::decode(&entry.value).ok()?));
        Ok(snapshot.entry(&key).and_then(known).filter(|(_, known)| known.digest == digest(nads)))
    }

    fn import_key(&self) -> Bytes {
        self.keys.import(self.cluster)
    }
}

/// What is known of the definitions as they are.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// For how long they have been so at least.
    pub unchanged_for: Duration,
    /// The pods that may have been waiting when somebody first looked; none if nobody has.
    pub waiting: Option<BTreeSet<String>>,
}

/// Another one for every change of any definition.
pub fn digest(nads: &[Nad]) -> String {
    let line = |nad: &Nad| format!("{} {} {}\n", nad.id, nad.uid, nad.resource_version);
    digest_hex(nads.iter().map(line).collect::<String>().as_bytes())
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Stop::Store(failure)
    }
}
