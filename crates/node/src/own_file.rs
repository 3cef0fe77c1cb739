//! Files in a node's folder that each run overwrites in place, and that belong to one machine and one store.
//!
//! Somebody who reads one meanwhile may get half of the old and half of the new content. So the first line is a digest
//! of all that follows, and what does not fit its digest counts as not there.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::path::Path;

use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};

use super::files;
use super::node::Identity;
use metes_core::keys::digest_hex;
use metes_core::pool::ClusterName;

/// A file's length is a multiple of this, so that it seldom changes: then the file is overwritten in place.
const PADDED_BYTES: usize = 2048;
/// The most that such a file may hold, in bytes.
pub(super) const OWN_FILE_BYTES: u64 = 128 << 10;

/// The machine and the cluster that a file belongs to: a disk may have been copied from another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Whose {
    machine: String,
    cluster: Option<ClusterName>,
}

impl Whose {
    /// A value that belongs to this machine and cluster.
    pub(super) fn new(identity: &Identity) -> Self {
        let Identity { machine, cluster, .. } = identity.clone();
        Self { machine, cluster }
    }

    /// The machine; empty if it has no id.
    pub(super) fn machine(&self) -> &str {
        &self.machine
    }

    pub(super) fn cluster_words(&self) -> String {
        format!("cluster {}", self.cluster.as_ref().map_or("-", ClusterName::as_str))
    }

    /// True if both are of one machine. A machine without an id is told from none.
    pub(super) fn is_same_machine(&self, other: &Self) -> bool {
        !self.machine.is_empty() && self.machine == other.machine
    }
}

impl fmt::Display for Whose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "machine {:?} of {}", self.machine, self.cluster_words())
    }
}

#[derive(Serialize, Deserialize)]
struct Content<T> {
    whose: Whose,
    kept: T,
}

/// The content of a file.
pub(super) enum OwnFile<T> {
    /// There is no file.
    Nothing,
    /// It belongs to this machine and cluster.
    Own(T),
    /// It belongs to others, and this is in it.
    Others(Whose, T),
    /// It cannot be read, or does not decode; why.
    Unreadable(String),
}

/// The machine and the cluster of the file at `path`; none if the file is not whole.
pub(super) fn whose(path: &Path) -> Option<Whose> {
    let bytes = files::read_trusted(path, OWN_FILE_BYTES, files::Trust::OwnerWrites).ok()?;
    let content = content::<IgnoredAny>(&bytes).ok()?;
    Some(content.whose)
}

/// Reads files of one kind that belong to `whose`. A run reads a file more than once, and decodes it again only if it
/// has changed.
#[derive(Debug, Clone)]
pub(super) struct Reader<T> {
    pub(super) whose: Whose,
    /// The value that was decoded last, with its bytes.
    last: RefCell<Option<(Vec<u8>, T)>>,
}

impl<T: DeserializeOwned + Clone> Reader<T> {
    pub(super) fn new(whose: Whose) -> Self {
        Self { whose, last: RefCell::default() }
    }

    /// The content of the file at `path`.
    pub(super) fn read(&self, path: &Path) -> OwnFile<T> {
        match files::read_trusted(path, OWN_FILE_BYTES, files::Trust::OwnerWrites) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => OwnFile::Nothing,
            Err(e) => OwnFile::Unreadable(e.to_string()),
            Ok(bytes) => self.decode(&bytes),
        }
    }

    /// The value of a file with these bytes.
    pub(super) fn decode(&self, bytes: &[u8]) -> OwnFile<T> {
        let mut last = self.last.borrow_mut();
        if let Some((_, kept)) = last.as_ref().filter(|(before, _)| before == bytes) {
            return OwnFile::Own(kept.clone());
        }
        match content::<T>(bytes) {
            Ok(Content { whose, kept }) if whose == self.whose => {
                *last = Some((bytes.to_vec(), kept.clone()));
                OwnFile::Own(kept)
            }
            Ok(Content { whose, kept }) => OwnFile::Others(whose, kept),
            Err(why) => OwnFile::Unreadable(why),
        }
    }
}

fn content<T: DeserializeOwned>(bytes: &[u8]) -> Result<Content<T>, String> {
    let text = std::str::from_utf8(bytes.trim_ascii_end()).ok();
    let (digest, content) = text.and_then(|text| text.split_once('\n')).ok_or("metes did not write it")?;
    if digest != digest_hex(content.as_bytes()) {
        return Err("it is damaged: its digest is not that of its content".to_owned());
    }
    serde_json::from_str(content).map_err(|e| format!("another version of metes has written it: {e}"))
}

/// The bytes of a file that belongs to `whose`.
///
/// # Errors
/// [`io::Error`] if it cannot be written as JSON.
pub(super) fn encode<T: Serialize>(whose: &Whose, kept: T) -> io::Result<Vec<u8>> {
    let text = serde_json::to_string(&Content { whose: whose.clone(), kept })?;
    let mut content = format!("{}\n{text}", digest_hex(text.as_bytes())).into_bytes();
    content.resize(content.len().next_multiple_of(PADDED_BYTES), b' ');
    Ok(content)
}

/// Does `write`, and makes the folder of `path` if that fails, before it does it again.
pub(super) fn with_folder(path: &Path, write: impl Fn() -> io::Result<()>) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    match write() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => files::make_folder(folder).and_then(|()| write()),
        written => written,
    }
}

/// Overwrites the file at `path`, and makes its folder if there is none.
pub(super) fn overwrite<T: Serialize>(path: &Path, whose: &Whose, kept: T) -> io::Result<()> {
    let content = encode(whose, kept)?;
    with_folder(path, || files::overwrite(path, &content))
}
