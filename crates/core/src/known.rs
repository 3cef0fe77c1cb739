//! A node's knowledge of its store, and the judgement whether an answer contradicts it. Pure.
//!
//! An etcd that was restored from a backup, emptied, or is another one has forgotten who holds what, and would give
//! away addresses of running pods. Three things show this: the store's id and epoch in meta, the store's revision, and
//! the node's own key. Others may have used a restored store beyond every revision that this node has seen. But only
//! this node writes its own key. So if the key is older than the node knows it, the store was restored.

use serde::{Deserialize, Serialize};

use super::keys::{Bytes, Keys};
use super::snapshot::Snapshot;
use crate::pool::{Forgotten, Meta};

/// The store as a node has seen it: the high-water mark.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HighWater {
    /// The store's id (see [`Meta::id`]).
    pub store: String,
    /// Its epoch. Revisions, ids and keys are compared only within one epoch.
    pub epoch: u64,
    /// The highest revision that was seen.
    pub revision: i64,
    /// The key that the node has left there; none if it has left none in this epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<OwnKey>,
    /// The id of the etcd that answered last; 0 if it is not known.
    #[serde(default)]
    pub etcd: u64,
    /// True if that was seen at other endpoints than those in use now. The mark keeps the endpoints.
    #[serde(skip)]
    pub elsewhere: bool,
}

/// A key that a node has left in the store. It is named, because the node may have another name since.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnKey {
    /// The key.
    pub name: String,
    /// Its mod revision when the node wrote it last.
    pub revision: i64,
}

impl OwnKey {
    /// A key as it was read or written at this revision.
    #[must_use]
    pub fn new(name: &[u8], revision: i64) -> Self {
        Self { name: String::from_utf8_lossy(name).into_owned(), revision }
    }
}

/// When, in the history of a store, a machine has written its own key last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastWritten {
    /// The store's id.
    store: String,
    /// The epoch in which the revision counts.
    epoch: u64,
    /// The key's mod revision.
    revision: i64,
}

impl LastWritten {
    /// That of the key which is named in the knowledge of a machine, with the key's name.
    #[must_use]
    pub fn of(seen: &HighWater) -> Option<(&str, Self)> {
        let HighWater { store, epoch, key, .. } = seen;
        let OwnKey { name, revision } = key.as_ref()?;
        Some((name, Self { store: store.clone(), epoch: *epoch, revision: *revision }))
    }

    /// True if nobody has written the key since, whose mod revision is `found` in a store with this meta; 0 if it was
    /// deleted. In another store or epoch, revisions prove nothing.
    #[must_use]
    pub fn is_last_of(&self, meta: Option<&Meta>, found: i64) -> bool {
        meta.is_some_and(|meta| meta.id == self.store && meta.epoch == self.epoch) && found <= self.revision
    }
}

/// The meaning of an answer for the store that gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeenAs {
    /// Nothing contradicts what the node knows.
    Sound,
    /// The node's key does not exist. [`Forgotten`] may say that a pass has deleted it.
    KeyAbsent,
    /// The store has forgotten something, or is another one.
    Contradicts,
}

impl HighWater {
    /// The state of a store that an answer shows: its meta, and the node's key `own`, or else the key that the node is
    /// known to have left under a former name. None if it shows no meta.
    ///
    /// The key under a former name stays as this node has left it: whoever has written it since is another machine,
    /// from whose disk this one was made.
    #[must_use]
    pub fn shown(keys: &Keys, seen: &Snapshot, own: &[u8], known: Option<&Self>) -> Option<Self> {
        let meta: Meta = seen.record(&keys.meta()).ok().flatten()?;
        let key = match seen.mod_revision(own) {
            0 => known.and_then(|known| known.key_in(&meta)).cloned(),
            revision => Some(OwnKey::new(own, revision)),
        };
        let Meta { id: store, epoch, .. } = meta;
        Some(Self { store, epoch, revision: seen.revision, key, etcd: 0, elsewhere: false })
    }

    /// True if this is the meta of the store that was seen, in the epoch that was seen.
    #[must_use]
    pub fn is_of(&self, meta: &Meta) -> bool {
        meta.id == self.store && meta.epoch == self.epoch
    }

    /// True if a store with this meta at this revision has lost something that this node has seen: it is another store,
    /// has lost its meta, or has gone back. An epoch only grows, and a new one settles what was before. Another store
    /// counts only if a person has taken it into service in place of this one: any etcd may have a later epoch.
    #[must_use]
    pub fn contradicts(&self, meta: Option<&Meta>, revision: i64) -> bool {
        match meta {
            None => true,
            Some(meta) if meta.id != self.store => {
                meta.epoch <= self.epoch || !meta.has_replaced(&self.store)
            }
            Some(meta) if meta.epoch != self.epoch => meta.epoch < self.epoch,
            Some(_) => revision < self.revision,
        }
    }

    /// True if the node seems to have come from elsewhere: endpoints, etcd and store are all others than those that it
    /// knows. Then its host file may have named a wrong etcd before, or names one now.
    #[must_use]
    pub fn is_strange_to(&self, meta: Option<&Meta>, etcd: Option<u64>) -> bool {
        let is_other_etcd = self.etcd != 0 && etcd.is_some_and(|etcd| etcd != self.etcd);
        self.elsewhere && is_other_etcd && meta.is_none_or(|meta| meta.id != self.store)
    }

    /// Judges a store by the keys that were read: meta, and the node's key if that was read. `revision` is the store's
    /// at that time. A meta that does not decode is refused elsewhere.
    #[must_use]
    pub fn judge(&self, keys: &Keys, seen: &Snapshot, revision: i64) -> SeenAs {
        let Ok(meta) = seen.record::<Meta>(&keys.meta()) else { return SeenAs::Sound };
        if self.contradicts(meta.as_ref(), revision) {
            return SeenAs::Contradicts;
        }
        // Before its revision the key was another one in the sound store, too.
        let is_read = |own: &&OwnKey| seen.knows_since(own.name.as_bytes(), own.revision);
        let Some(own) = self.key.as_ref().filter(is_read) else { return SeenAs::Sound };
        let is_of_epoch = meta.is_some_and(|meta| self.is_of(&meta));
        match seen.mod_revision(own.name.as_bytes()) {
            _ if !is_of_epoch => SeenAs::Sound,
            0 => SeenAs::KeyAbsent,
            found if found < own.revision => SeenAs::Contradicts,
            _ => SeenAs::Sound,
        }
    }

    /// True if a pass has deleted the node's key, by `v1/forgotten` as it was read. What does not decode says nothing.
    #[must_use]
    pub fn is_forgotten(&self, keys: &Keys, seen: &Snapshot) -> bool {
        let forgotten = seen.record::<Forgotten>(&keys.forgotten()).ok().flatten();
        let own = self.key.as_ref();
        own.zip(forgotten).is_some_and(|(own, forgotten)| own.revision <= forgotten.revision)
    }

    /// The key that a commit compares, in a store with this meta.
    #[must_use]
    pub fn key_in(&self, meta: &Meta) -> Option<&OwnKey> {
        self.key.as_ref().filter(|_| self.is_of(meta))
    }

    /// The knowledge after both were seen: the one of the later epoch, else the higher revision and the younger key. If
    /// `newer` is of another store in the same epoch, nothing of it is taken: `self` is the evidence.
    #[must_use]
    pub fn merged(self, newer: Self) -> Self {
        if newer.epoch != self.epoch {
            return if newer.epoch > self.epoch { newer } else { self };
        }
        if newer.store != self.store {
            return self;
        }
        let key = self.key.into_iter().chain(newer.key).max_by_key(|own| own.revision);
        let etcd = if newer.etcd == 0 { self.etcd } else { newer.etcd };
        Self { revision: self.revision.max(newer.revision), key, etcd, ..newer }
    }
}

/// The keys by which a store is judged, besides the key that the mark names.
#[must_use]
pub fn judged_by(keys: &Keys, own: &[u8], known: Option<&HighWater>) -> Vec<Bytes> {
    let named = known.and_then(|known| known.key.as_ref()).map(|key| key.name.clone().into_bytes());
    let named = named.filter(|named| named != own);
    [keys.meta(), own.to_vec()].into_iter().chain(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Record;
    use crate::txn::Entry;

    fn known() -> HighWater {
        let key = Some(OwnKey { name: "/m/v1/node/east/n/-".to_owned(), revision: 90 });
        HighWater { store: "s".to_owned(), epoch: 2, revision: 100, key, etcd: 7, elsewhere: false }
    }

    fn meta(id: &str, epoch: u64) -> Meta {
        let mut meta = Meta::first(id.to_owned());
        meta.epoch = epoch;
        meta
    }

    fn in_place_of(store: &str, mut meta: Meta) -> Meta {
        meta.replace(store);
        meta
    }

    #[test]
    fn a_node_is_strange_only_where_endpoints_etcd_and_store_are_all_others() {
        let (there, other) = (meta("s", 2), meta("other", 1));
        for (elsewhere, etcd, found, expected) in [
            (true, Some(8), Some(&other), true),
            (true, Some(8), None, true),
            (false, Some(8), Some(&other), false),
            (true, Some(7), Some(&other), false),
            (true, None, Some(&other), false),
            (true, Some(8), Some(&there), false),
        ] {
            let known = HighWater { elsewhere, ..known() };
            assert_eq!(known.is_strange_to(found, etcd), expected, "{elsewhere} {etcd:?} {found:?}");
        }
    }

    #[test]
    fn a_store_that_has_forgotten_something_is_told_from_one_that_has_not() {
        for (found, revision, expected) in [
            (None, 100, true),
            (None, 1000, true),
            (Some(meta("s", 2)), 100, false),
            (Some(meta("s", 2)), 99, true),
            (Some(meta("other", 2)), 1000, true),
            (Some(meta("s", 1)), 1000, true),
            (Some(meta("other", 3)), 1, true),
            (Some(in_place_of("s", meta("other", 3))), 1, false),
            (Some(in_place_of("s", meta("other", 2))), 1000, true),
            (Some(in_place_of("t", meta("other", 3))), 1, true),
            (Some(in_place_of("*", meta("other", 3))), 1, false),
            (Some(meta("s", 3)), 1, false),
        ] {
            assert_eq!(known().contradicts(found.as_ref(), revision), expected, "{found:?} {revision}");
        }
    }

    #[test]
    fn an_own_key_that_is_older_than_the_node_knows_it_was_restored() {
        let keys = Keys::new("/m/");
        let judged = |epoch, own: Option<i64>, forgotten: Option<i64>| {
            let mut seen = Snapshot::default();
            seen.revision = 1000;
            let mut set = |key: Bytes, value: Option<Vec<u8>>, mod_revision| {
                let entry = value.map(|value| Entry {
                    key: key.clone(),
                    value,
                    create_revision: 1,
                    mod_revision,
                    lease: 0,
                });
                seen.set(&key, entry);
            };
            set(keys.meta(), Some(meta("s", epoch).encode()), 1);
            set(b"/m/v1/node/east/n/-".to_vec(), own.map(|_| b"{}".to_vec()), own.unwrap_or_default());
            set(keys.forgotten(), forgotten.map(|revision| Forgotten::new(revision).encode()), 1);
            (known().judge(&keys, &seen, 1000), known().is_forgotten(&keys, &seen))
        };
        assert_eq!(judged(2, Some(90), None), (SeenAs::Sound, false));
        assert_eq!(judged(2, Some(91), None).0, SeenAs::Sound, "another run of the node has written it");
        assert_eq!(judged(2, Some(89), None).0, SeenAs::Contradicts, "a quiet node has used the store since");
        assert_eq!(judged(3, Some(89), None).0, SeenAs::Sound, "it was taken into service since");
        assert_eq!(judged(2, None, None), (SeenAs::KeyAbsent, false));
        assert_eq!(judged(2, None, Some(89)), (SeenAs::KeyAbsent, false));
        assert_eq!(judged(2, None, Some(90)), (SeenAs::KeyAbsent, true));
    }

    #[test]
    fn a_name_is_another_machines_if_its_key_is_younger_or_of_another_time() {
        let known = known();
        let (_, written) = LastWritten::of(&known).expect("it names a key");
        for (id, epoch, found, expected) in [
            ("s", 2, 90, true),
            ("s", 2, 0, true),
            ("s", 2, 91, false),
            ("s", 3, 90, false),
            ("s", 3, 0, false),
            ("other", 2, 90, false),
        ] {
            assert_eq!(written.is_last_of(Some(&meta(id, epoch)), found), expected, "{id} {epoch} {found}");
        }
        assert!(!written.is_last_of(None, 0));
    }

    /// Else a clone would take the key that its original writes for its own.
    #[test]
    fn no_answer_raises_the_key_under_a_former_name() {
        let keys = Keys::new("/m/");
        let shown = |own: &[u8], epoch| {
            let mut seen = Snapshot::default();
            seen.revision = 1000;
            let mut set = |key: Bytes, value: Vec<u8>, mod_revision| {
                let entry = Entry { key: key.clone(), value, create_revision: 1, mod_revision, lease: 0 };
                seen.set(&key, Some(entry));
            };
            set(keys.meta(), meta("s", epoch).encode(), 1);
            set(b"/m/v1/node/east/n/-".to_vec(), b"{}".to_vec(), 95);
            HighWater::shown(&keys, &seen, own, Some(&known())).expect("a meta").key
        };
        assert_eq!(shown(b"/m/v1/node/east/n/-", 2).map(|key| key.revision), Some(95));
        assert_eq!(shown(b"/m/v1/node/east/clone/-", 2), known().key);
        assert_eq!(shown(b"/m/v1/node/east/clone/-", 3), None);
    }

    #[test]
    fn what_two_runs_have_seen_is_merged_and_no_evidence_is_lost() {
        let of = |store: &str, epoch, revision, key: Option<i64>| HighWater {
            key: key.map(|revision| OwnKey { name: "k".to_owned(), revision }),
            ..HighWater { store: store.to_owned(), epoch, revision, ..known() }
        };
        for (stored, newer, expected) in [
            (of("s", 2, 100, Some(90)), of("s", 2, 99, Some(91)), of("s", 2, 100, Some(91))),
            (of("s", 2, 100, Some(90)), of("s", 2, 101, None), of("s", 2, 101, Some(90))),
            (of("s", 2, 100, Some(90)), of("s", 3, 7, None), of("s", 3, 7, None)),
            (of("s", 2, 100, Some(90)), of("s", 1, 700, None), of("s", 2, 100, Some(90))),
            (of("s", 2, 100, Some(90)), of("other", 2, 700, None), of("s", 2, 100, Some(90))),
        ] {
            assert_eq!(stored.clone().merged(newer.clone()), expected, "{stored:?} {newer:?}");
        }
    }
}
