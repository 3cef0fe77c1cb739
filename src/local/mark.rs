//! What a node's runs leave to the next one: the high-water mark, leases that they share, and whether they met others.
//!
//! The high-water mark is the highest revision of the store that this node has seen.
//! An etcd that was restored from a backup has forgotten who holds what, and would give addresses
//! of running pods away. A node notices: the revision of an answer to its own write is lower than
//! one that it saw before it asked.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::files;
use crate::limits;
use crate::pool::record::Birth;

/// The file's length is a multiple of this: more than a mark needs, so that it stays the same.
const PADDED_BYTES: usize = 2048;

/// What a node has seen of a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The endpoints, sorted: another etcd has other revisions.
    pub endpoints: Vec<String>,
    /// The store's epoch: revisions are compared only within one.
    pub epoch: u64,
    /// The highest revision.
    pub revision: i64,
    /// Never trusted.
    #[serde(default)]
    pub hints: Hints,
}

/// The mark as it is kept. The file is overwritten in place, so that its reader may get half of one mark and half of another,
/// with a revision out of the digits of both; then the second copy, at its end, is another one.
#[derive(Serialize, Deserialize)]
struct Kept {
    #[serde(flatten)]
    mark: Mark,
    again: i64,
}

/// What spares the next run a request. Whatever is wrong about it, etcd tells.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hints {
    /// A lease for ADDs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<NodeLease>,
    /// A lease for tombstones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tombstones: Option<NodeLease>,
    /// When a run met others in a queue last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crowded: Option<Birth>,
}

impl Hints {
    /// The lease for an ADD that begins at `birth`: what is left of it is longer than any run may last.
    #[must_use]
    pub fn lease_for(&self, birth: &Birth) -> Option<NodeLease> {
        self.lease.clone().filter(|lease| is_within(&lease.since, birth, limits::LEASE_SHARED))
    }

    /// The lease for the tombstone of a DEL that begins at `birth`.
    #[must_use]
    pub fn tombstones_for(&self, birth: &Birth) -> Option<NodeLease> {
        self.tombstones.clone().filter(|lease| is_within(&lease.since, birth, limits::TOMBSTONE_SHARED))
    }

    /// Whether a run that begins at `birth` must expect others in its queue.
    #[must_use]
    pub fn is_crowded(&self, birth: &Birth) -> bool {
        // Another run may have met them since this one began.
        let is_later = |at: &Birth| at.boot == birth.boot && at.ns > birth.ns;
        self.crowded.as_ref().is_some_and(|at| is_later(at) || is_within(at, birth, limits::CROWD_MEMORY))
    }
}

/// Whether `now` is after `then`, by less than `most`.
fn is_within(then: &Birth, now: &Birth, most: Duration) -> bool {
    now.since(then).is_some_and(|gap| gap < most)
}

/// A lease that one run was granted and others use as well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLease {
    /// The lease's id.
    pub id: i64,
    /// The birth of the run that asked for it: it was granted later.
    pub since: Birth,
}

/// The file that keeps the mark; nothing of it is ever trusted to exist.
#[derive(Debug, Clone)]
pub struct MarkFile {
    path: PathBuf,
}

impl MarkFile {
    /// The mark in a node's folder.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        Self { path: folder.join("mark") }
    }

    /// The mark, if there is one that can be read.
    #[must_use]
    pub fn read(&self) -> Option<Mark> {
        let bytes = files::read_trusted(&self.path, 64 << 10, files::Trust::OwnerWrites).ok()?;
        let Kept { mark, again } = serde_json::from_slice(&bytes).ok()?;
        (mark.revision == again).then_some(mark)
    }

    /// Raises the mark to `mark`. Of runs that end at the same time the last one counts: its mark may
    /// be a few revisions lower, and every later run raises it again. A mark that cannot be written is
    /// no reason to fail.
    pub fn raise(&self, mark: &Mark) {
        let kept = Kept { mark: mark.clone(), again: mark.revision };
        let Ok(mut content) = serde_json::to_vec(&kept) else { return };
        // JSON allows blanks at its end, and a file that keeps its length is overwritten in place.
        content.resize(content.len().next_multiple_of(PADDED_BYTES), b' ');
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        let overwrite = || files::overwrite(&self.path, &content);
        let written = overwrite().or_else(|_| files::make_folder(folder).and_then(|()| overwrite()));
        if let Err(e) = written {
            tracing::warn!(file = %self.path.display(), error = %e, "the highest revision seen cannot be kept");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(revision: i64, endpoint: &str) -> Mark {
        Mark { endpoints: vec![endpoint.to_owned()], epoch: 1, revision, hints: Hints::default() }
    }

    #[test]
    fn half_of_one_mark_and_half_of_another_make_no_third() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = MarkFile::new(folder.path());
        let whole = |revision| {
            file.raise(&mark(revision, "http://127.0.0.1:2379"));
            std::fs::read(&file.path).expect("it was written")
        };
        let revisions = [12_399_999, 12_400_000];
        let [old, new] = revisions.map(whole);
        assert_eq!(file.read(), Some(mark(revisions[1], "http://127.0.0.1:2379")));
        assert_eq!(old.len(), new.len());
        for cut in 0..old.len() {
            std::fs::write(&file.path, [&new[..cut], &old[cut..]].concat()).expect("written");
            let read = file.read().map(|mark| mark.revision);
            assert!(read.is_none_or(|revision| revisions.contains(&revision)), "cut at {cut}: {read:?}");
        }
        for garbage in ["", "{}", "                                                "] {
            std::fs::write(&file.path, garbage).expect("written");
            assert_eq!(file.read(), None, "{garbage:?}");
        }
    }

    #[test]
    fn a_hint_serves_for_a_while_on_one_boot() {
        let at = |boot: &str, ms: u64| Birth { boot: boot.into(), ns: ms * 1_000_000 };
        let lease = Some(NodeLease { id: 7, since: at("b", 1000) });
        let hints = Hints { lease: lease.clone(), tombstones: lease, crowded: Some(at("b", 1000)) };
        for (birth, expected) in [
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
                hints.lease_for(&birth).is_some(),
                hints.tombstones_for(&birth).is_some(),
                hints.is_crowded(&birth),
            ];
            assert_eq!(found, expected, "{birth:?}");
        }
    }
}
