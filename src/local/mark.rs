//! What a node's runs leave to later ones: the high-water mark, leases that they share, and whether they met others.
//!
//! The high-water mark is the highest revision of the store that this node has seen. An etcd that was restored from a
//! backup has forgotten who holds what, and would give away addresses of running pods. A node notices that, because the
//! revision of an answer to its own write is lower than one that it saw before.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::node::Identity;
use super::own_file::{self, Whose};
use crate::limits;
use crate::pool::record::RunStart;
use crate::store::cooling::CoolingLeases;
use crate::store::keys::LeaseId;
use crate::store::meta::HighWater;

/// What a node's runs leave to the next one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// What was seen of the store.
    pub seen: HighWater,
    /// Never trusted.
    #[serde(default)]
    pub hints: Hints,
}

/// What saves a later run a request. If a hint is wrong, an answer of etcd shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hints {
    /// A lease for the commits of ADDs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<NodeLease>,
    /// A lease for the tickets of ADDs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tickets: Option<NodeLease>,
    /// A lease for tombstones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tombstones: Option<NodeLease>,
    /// Leases for what cools, by the cooldown in seconds.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cooling: BTreeMap<u32, NodeLease>,
    /// When a run last met others in a queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crowded: Option<RunStart>,
}

impl Hints {
    /// The lease for an ADD that begins at `start`. What is left of it is longer than any run may last.
    #[must_use]
    pub fn lease_for(&self, start: &RunStart) -> Option<NodeLease> {
        self.lease.clone().filter(|lease| lease.serves(start, limits::LEASE_SHARED))
    }

    /// The lease for the ticket of an ADD that begins at `start`. What is left of it is longer than any run may last.
    #[must_use]
    pub fn tickets_for(&self, start: &RunStart) -> Option<NodeLease> {
        self.tickets.clone().filter(|lease| lease.serves(start, limits::LEASE_SHARED))
    }

    /// The lease for the tombstone of a DEL that begins at `start`. The DEL asks etcd how long it will live.
    #[must_use]
    pub fn tombstones_for(&self, start: &RunStart) -> Option<NodeLease> {
        self.tombstones.clone().filter(|lease| lease.serves(start, limits::TOMBSTONE_SHARED))
    }

    /// The leases for what a free that begins at `start` lets cool.
    #[must_use]
    pub fn cooling_for(&self, start: &RunStart) -> CoolingLeases {
        let mut leases = CoolingLeases::default();
        for (cooldown_s, lease) in &self.cooling {
            if let (true, Some(age)) =
                (lease.serves(start, limits::COOLING_USED_WITHIN), start.since(&lease.since))
            {
                leases.left_behind(*cooldown_s, LeaseId(lease.id), age);
            }
        }
        leases
    }

    /// Notes the leases that a free of the run which began at `start` was granted. Those that are too old go.
    pub fn keep_cooling(&mut self, leases: &CoolingLeases, start: &RunStart) {
        self.cooling.retain(|_, lease| lease.serves(start, limits::COOLING_USED_WITHIN));
        let new = leases
            .new_ones()
            .map(|(cooldown_s, LeaseId(id))| (cooldown_s, NodeLease { id, since: start.clone() }));
        self.cooling.extend(new.take(COOLING_HINTS));
    }

    /// Whether a run that begins at `start` must expect others in its queue.
    #[must_use]
    pub fn is_crowded(&self, start: &RunStart) -> bool {
        // Another run may have met them since this one began.
        let is_later = |at: &RunStart| at.boot == start.boot && at.ns > start.ns;
        self.crowded.as_ref().is_some_and(|at| is_later(at) || is_within(at, start, limits::CROWD_MEMORY))
    }
}

/// How many cooldowns a run leaves leases for.
const COOLING_HINTS: usize = 8;

/// Whether `now` is after `then`, by less than `most`.
fn is_within(then: &RunStart, now: &RunStart, most: Duration) -> bool {
    now.since(then).is_some_and(|gap| gap < most)
}

/// A lease that one run was granted and others use as well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLease {
    /// The lease's id.
    pub id: i64,
    /// The start of the run that asked for it: it was granted later.
    pub since: RunStart,
}

impl NodeLease {
    /// Whether a run that begins at `start` may use it, if it may be shared for `most`. No id is below 1: etcd takes 0
    /// for no lease at all, and then a commit would have no fence.
    fn serves(&self, start: &RunStart, most: Duration) -> bool {
        self.id > 0 && is_within(&self.since, start, most)
    }
}

/// The file that keeps the mark. It may be missing at any time.
#[derive(Debug, Clone)]
pub struct MarkFile {
    path: PathBuf,
    whose: Whose,
}

impl MarkFile {
    /// The mark in a node's folder, of the store at these endpoints.
    #[must_use]
    pub fn new(folder: &Path, identity: &Identity, endpoints: &[String]) -> Self {
        Self { path: folder.join("mark"), whose: Whose::new(identity, endpoints) }
    }

    /// The mark, if there is one of this machine, cluster and store that can be read.
    #[must_use]
    pub fn read(&self) -> Option<Mark> {
        own_file::read(&self.path, &self.whose)
    }

    /// Raises the mark to `mark`. If two runs end at the same time, the last one's mark stays. It may be a few
    /// revisions lower, and the next run raises it again. A mark that cannot be written is no reason to fail.
    pub fn raise(&self, mark: Mark) {
        if let Err(e) = own_file::overwrite(&self.path, &self.whose, mark) {
            tracing::warn!(file = %self.path.display(), error = %e, "the highest revision seen cannot be kept");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(revision: i64) -> Mark {
        Mark { seen: HighWater { store: "s".to_owned(), epoch: 1, revision }, hints: Hints::default() }
    }

    fn identity(machine: &str, cluster: &str) -> Identity {
        let node = "n".parse().expect("a node name");
        Identity { node, cluster: cluster.parse().ok(), machine: machine.into() }
    }

    #[test]
    fn a_mark_that_was_copied_from_elsewhere_is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |machine, cluster, endpoints: &[&str]| {
            let endpoints: Vec<String> = endpoints.iter().map(|&one| one.to_owned()).collect();
            MarkFile::new(folder.path(), &identity(machine, cluster), &endpoints)
        };
        file("m", "east", &["a", "b"]).raise(mark(7));
        assert_eq!(file("m", "east", &["b", "a"]).read(), Some(mark(7)));
        assert_eq!(file("other", "east", &["a", "b"]).read(), None);
        assert_eq!(file("m", "west", &["a", "b"]).read(), None);
        assert_eq!(file("m", "east", &["a"]).read(), None);
    }

    #[test]
    fn no_lease_is_used_that_etcd_would_take_for_none() {
        let start = RunStart { boot: "b".into(), ns: 5 };
        for (id, serves) in [(7, true), (0, false), (-1, false)] {
            let lease = Some(NodeLease { id, since: RunStart { ns: 4, ..start.clone() } });
            let hints =
                Hints { lease: lease.clone(), tickets: lease.clone(), tombstones: lease, ..Hints::default() };
            assert_eq!(hints.lease_for(&start).is_some(), serves, "{id}");
            assert_eq!(hints.tickets_for(&start).is_some(), serves, "{id}");
            assert_eq!(hints.tombstones_for(&start).is_some(), serves, "{id}");
        }
    }

    #[test]
    fn half_of_one_mark_and_half_of_another_make_no_third() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = MarkFile::new(folder.path(), &identity("m", "east"), &[]);
        let lease = |id| Hints {
            lease: Some(NodeLease { id, since: RunStart { boot: "b".into(), ns: 1 } }),
            ..Hints::default()
        };
        let marks =
            [12_399_999, 12_400_000].map(|revision| Mark { hints: lease(revision * 7), ..mark(revision) });
        let [old, new] = marks.each_ref().map(|mark| {
            file.raise(mark.clone());
            assert_eq!(file.read().as_ref(), Some(mark));
            std::fs::read(&file.path).expect("it was written")
        });
        assert_eq!(old.len(), new.len());
        for cut in 0..old.len() {
            std::fs::write(&file.path, [&new[..cut], &old[cut..]].concat()).expect("written");
            let read = file.read();
            assert!(read.is_none_or(|read| marks.contains(&read)), "cut at {cut}");
        }
        for garbage in ["", "{}", "                                                "] {
            std::fs::write(&file.path, garbage).expect("written");
            assert_eq!(file.read(), None, "{garbage:?}");
        }
    }

    #[test]
    fn a_hint_serves_for_a_while_on_one_boot() {
        let at = |boot: &str, ms: u64| RunStart { boot: boot.into(), ns: ms * 1_000_000 };
        let lease = Some(NodeLease { id: 7, since: at("b", 1000) });
        let crowded = Some(at("b", 1000));
        let hints = Hints {
            lease: lease.clone(),
            tickets: lease.clone(),
            tombstones: lease,
            crowded,
            ..Hints::default()
        };
        for (start, expected) in [
            (at("b", 1000), [true, true, true]),
            (at("b", 1999), [true, true, true]),
            (at("b", 2001), [true, true, false]),
            (at("b", 9999), [true, true, false]),
            (at("b", 10_001), [false, true, false]),
            (at("b", 16_001), [false, false, false]),
            (at("b", 999), [false, false, true]),
            (at("a", 1001), [false, false, false]),
        ] {
            let found = [
                hints.lease_for(&start).is_some() && hints.tickets_for(&start).is_some(),
                hints.tombstones_for(&start).is_some(),
                hints.is_crowded(&start),
            ];
            assert_eq!(found, expected, "{start:?}");
        }
    }
}
