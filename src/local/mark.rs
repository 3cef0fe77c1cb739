//! What a node's runs leave to the next one: the high-water mark, and the lease that they share.
//!
//! The high-water mark is the highest revision of the store that this node has seen.
//! An etcd that was restored from a backup has forgotten who holds what, and would give addresses
//! of running pods away. A node notices: the revision of an answer to its own write is lower than
//! one that it saw before it asked.

use std::path::{Path, PathBuf};

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
    /// A lease of the node's, for whichever run it is not too old for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<NodeLease>,
}

/// A lease that one run was granted and others use as well. It is never trusted: etcd tells whoever uses one that has
/// ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLease {
    /// The lease's id.
    pub id: i64,
    /// The birth of the run that asked for it: it was granted later.
    pub since: Birth,
}

impl NodeLease {
    /// Whether it will live for longer than a run may last that begins at `birth`.
    #[must_use]
    pub fn serves(&self, birth: &Birth) -> bool {
        let age_ns = birth.ns.checked_sub(self.since.ns);
        let is_young = age_ns.is_some_and(|ns| u128::from(ns) < limits::LEASE_SHARED.as_nanos());
        self.since.boot == birth.boot && is_young
    }
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
