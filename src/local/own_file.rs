//! Files in a node's folder that each run overwrites in place, and that belong to one machine and one store.
//!
//! Somebody who reads one meanwhile may get half of the old and half of the new content. So the first line is a digest
//! of all that follows, and what does not fit its digest counts as not there.

use std::io;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::files;
use super::node::Identity;
use crate::pool::names::ClusterName;
use crate::store::keys::digest_hex;

/// A file's length is a multiple of this, so that it seldom changes: then the file is overwritten in place.
const PADDED_BYTES: usize = 2048;
/// The most that such a file may hold, in bytes.
pub(super) const OWN_FILE_BYTES: u64 = 128 << 10;

/// Whose file it is: a disk may have been copied from another machine or cluster, and another etcd has other revisions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Whose {
    machine: String,
    cluster: Option<ClusterName>,
    /// Sorted.
    endpoints: Vec<String>,
}

impl Whose {
    /// What belongs to this machine and the store at these endpoints.
    pub(super) fn new(identity: &Identity, endpoints: &[String]) -> Self {
        let Identity { machine, cluster, .. } = identity.clone();
        let mut endpoints = endpoints.to_vec();
        endpoints.sort();
        Self { machine, cluster, endpoints }
    }
}

#[derive(Serialize, Deserialize)]
struct Content<T> {
    whose: Whose,
    kept: T,
}

/// What is in the file at `path`, if it is whole and belongs to `whose`.
pub(super) fn read<T: DeserializeOwned>(path: &Path, whose: &Whose) -> Option<T> {
    let bytes = files::read_trusted(path, OWN_FILE_BYTES, files::Trust::OwnerWrites).ok()?;
    let (digest, content) = std::str::from_utf8(bytes.trim_ascii_end()).ok()?.split_once('\n')?;
    if digest != digest_hex(content.as_bytes()) {
        return None;
    }
    let Content { whose: owner, kept } = serde_json::from_str(content).ok()?;
    (owner == *whose).then_some(kept)
}

/// Overwrites the file at `path`, and makes its folder if there is none.
///
/// # Errors
/// [`io::Error`]
pub(super) fn overwrite<T: Serialize>(path: &Path, whose: &Whose, kept: T) -> io::Result<()> {
    let text = serde_json::to_string(&Content { whose: whose.clone(), kept })?;
    let mut content = format!("{}\n{text}", digest_hex(text.as_bytes())).into_bytes();
    content.resize(content.len().next_multiple_of(PADDED_BYTES), b' ');
    let overwrite = || files::overwrite(path, &content);
    let folder = path.parent().unwrap_or(Path::new("/"));
    overwrite().or_else(|_| files::make_folder(folder).and_then(|()| overwrite()))
}
