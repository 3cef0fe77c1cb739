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

/// The file's length is a multiple of this.
const PADDED_BYTES: usize = 512;

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
        self.crowded.as_ref().is_some_and(|at| is_within(at, birth, limits::CROWD_MEMORY))
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
        serde_json::from_slice(&bytes).ok()
    }

    /// Raises the mark to `mark`. Of runs that end at the same time the last one counts: its mark may
    /// be a few revisions lower, and every later run raises it again. A mark that cannot be written is
    /// no reason to fail.
    pub fn raise(&self, mark: &Mark) {
        let Ok(mut content) = serde_json::to_vec(mark) else { return };
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
