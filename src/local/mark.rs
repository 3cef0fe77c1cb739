//! The high-water mark: the highest revision of the store that this node has seen.
//!
//! An etcd that was restored from a backup has forgotten who holds what, and would give addresses
//! of running pods away. A node notices: the revision of an answer to its own write is lower than
//! one that it saw before it asked.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::files;

/// What a node has seen of a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The endpoints, sorted: another etcd has other revisions.
    pub endpoints: Vec<String>,
    /// The store's epoch: revisions are compared only within one.
    pub epoch: u64,
    /// The highest revision.
    pub revision: i64,
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

    /// Raises the mark to `mark`, unless it stands as high already in the same epoch of the same
    /// store. A mark that cannot be written is no reason to fail: the next run raises it.
    pub fn raise(&self, mark: &Mark) {
        let stands = self.read().is_some_and(|old| {
            old.endpoints == mark.endpoints && old.epoch == mark.epoch && old.revision >= mark.revision
        });
        if stands {
            return;
        }
        let Ok(content) = serde_json::to_vec(mark) else { return };
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        if let Err(e) = files::write_whole(&self.path, &content, false).or_else(|_| {
            files::make_folder(folder).and_then(|()| files::write_whole(&self.path, &content, false))
        }) {
            tracing::warn!(file = %self.path.display(), error = %e, "the highest revision seen cannot be kept");
        }
    }
}
