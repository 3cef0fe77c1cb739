//! The owners whose addresses the ADDs of a node have reserved last, each as its commit has left it. A DEL may plan on
//! that without a look ([`metes_core::plan::left`]). They are hints: nothing relies on them.
//!
//! All are in one file of slots, which are overwritten in place. An owner's name decides on its slot, so a younger
//! owner may push out an older one.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::files;
use super::node::Identity;
use super::own_file::{self, OwnFile, Reader, Whose};
use metes_core::keys::digest_hex;
use metes_core::limits;
use metes_core::plan::left::OwnerLeft;
use metes_core::pool::{Owner, PodUid};

/// An owner as it is kept. Its record and meta are JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct KeptOwner {
    owner: Owner,
    record: String,
    revision: i64,
    meta: String,
}

/// The file with the owners of a node. It may be missing at any time.
#[derive(Debug, Clone)]
pub struct OwnerHintFile {
    path: PathBuf,
    reader: Reader<KeptOwner>,
}

/// The interface of a pod, so that a later sandbox of the pod finds the owner before it; without the pod's UID, that of
/// a container.
#[derive(Debug, Clone, Copy)]
pub struct Interface<'a> {
    /// The container's owner.
    pub owner: &'a Owner,
    /// The pod, if it is known.
    pub pod_uid: Option<&'a PodUid>,
}

impl Interface<'_> {
    /// The place of its slot in the file, in bytes.
    fn place(self) -> u64 {
        let Self { owner, pod_uid } = self;
        let of = pod_uid.map_or(owner.container_id.as_str(), PodUid::as_str);
        let digest = digest_hex(format!("{of}/{}", owner.ifname).as_bytes());
        let number = u64::from_str_radix(&digest[..8], 16).unwrap_or_default();
        number % limits::OWNER_HINTS * limits::OWNER_HINT_BYTES as u64
    }
}

impl OwnerHintFile {
    /// The file in a node's folder.
    #[must_use]
    pub fn new(folder: &Path, identity: &Identity) -> Self {
        Self { path: folder.join("owners"), reader: Reader::new(Whose::new(identity)) }
    }

    /// The owner that was kept last in the slot of this interface, whichever interface it is of. None if it is of
    /// another machine or cluster, or does not decode.
    #[must_use]
    pub fn read(&self, interface: Interface<'_>) -> Option<OwnerLeft> {
        let bytes = files::read_own_at(&self.path, interface.place(), limits::OWNER_HINT_BYTES).ok()?;
        if bytes.iter().all(|byte| matches!(byte, 0 | b' ')) {
            return None;
        }
        match self.reader.decode(&bytes) {
            OwnFile::Own(KeptOwner { owner, record, revision, meta }) => {
                let [record, meta] = [record, meta].map(String::into_bytes);
                Some(OwnerLeft { owner, record, revision, meta })
            }
            OwnFile::Nothing => None,
            OwnFile::Others(whose, _) => {
                tracing::debug!(of = %whose, "the hint of an owner is of another machine or cluster");
                None
            }
            OwnFile::Unreadable(why) => {
                tracing::debug!(%why, "the hint of an owner cannot be used");
                None
            }
        }
    }

    /// Keeps an owner in the slot of this interface. If it cannot be kept, the DEL looks first.
    pub fn keep(&self, interface: Interface<'_>, left: OwnerLeft) {
        if let Err(e) = self.write(interface, left) {
            tracing::debug!(file = %self.path.display(), error = %e, "the hint of an owner cannot be kept");
            self.forget(interface);
        }
    }

    fn write(&self, interface: Interface<'_>, left: OwnerLeft) -> io::Result<()> {
        let text = |bytes| String::from_utf8(bytes).map_err(io::Error::other);
        let OwnerLeft { owner, record, revision, meta } = left;
        let kept = KeptOwner { owner, record: text(record)?, revision, meta: text(meta)? };
        let mut content = own_file::encode(&self.reader.whose, kept)?;
        if content.len() > limits::OWNER_HINT_BYTES {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        content.resize(limits::OWNER_HINT_BYTES, b' ');
        let at = interface.place();
        own_file::with_folder(&self.path, || files::overwrite_at(&self.path, at, &content))
    }

    /// Empties the slot of this interface.
    pub fn forget(&self, interface: Interface<'_>) {
        // If it is not empty afterwards, a DEL finds out that it is wrong.
        if self.path.exists() {
            let _ = files::overwrite_at(&self.path, interface.place(), &[b' '; BLANK]);
        }
    }
}

/// So many bytes at the beginning of a slot are its digest. Without them the rest is nothing.
const BLANK: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(container: &str) -> Owner {
        Owner::named(["east", "n", container, "eth0"]).expect("plain names")
    }

    fn left(container: &str, bytes: usize) -> OwnerLeft {
        let record = format!("{{{}}}", " ".repeat(bytes)).into_bytes();
        OwnerLeft { owner: owner(container), record, revision: 7, meta: b"{}".to_vec() }
    }

    fn file(folder: &Path, machine: &str) -> OwnerHintFile {
        let node = "n".parse().expect("a node name");
        OwnerHintFile::new(folder, &Identity { machine: machine.into(), ..Identity::of(node) })
    }

    #[test]
    fn an_owner_comes_back_as_it_was_until_it_is_forgotten() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |machine| file(folder.path(), machine);
        let own = file("m");
        let owners: Vec<Owner> = (0..50).map(|i| owner(&format!("c{i}"))).collect();
        let of = |owner| Interface { owner, pod_uid: None };
        assert_eq!(own.read(of(&owners[0])), None);
        own.forget(of(&owners[0]));
        assert!(!own.path.exists(), "there was nothing to forget");
        let kept: Vec<OwnerLeft> = (0..50).map(|i| left(&format!("c{i}"), i)).collect();
        for (owner, left) in owners.iter().zip(&kept) {
            own.keep(of(owner), left.clone());
            assert_eq!(own.read(of(owner)).as_ref(), Some(left));
        }
        assert_eq!(file("another").read(of(&owners[1])), None);
        own.forget(of(&owners[1]));
        assert_eq!(own.read(of(&owners[1])), None);
        let most = limits::OWNER_HINTS * limits::OWNER_HINT_BYTES as u64;
        assert!(std::fs::metadata(&own.path).expect("it is there").len() <= most);
    }

    #[test]
    fn the_sandboxes_of_a_pod_share_a_slot() {
        let uid: PodUid = "u1".parse().expect("a UID");
        let owners = [owner("old"), owner("new")];
        let [old, new] = owners.each_ref().map(|owner| Interface { owner, pod_uid: Some(&uid) }.place());
        assert_eq!(old, new);
        let [old, new] = owners.each_ref().map(|owner| Interface { owner, pod_uid: None }.place());
        assert_ne!(old, new);
    }

    #[test]
    fn a_torn_slot_and_one_that_is_too_large_are_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, owner) = (file(folder.path(), "m"), owner("c"));
        let at = Interface { owner: &owner, pod_uid: None };
        let written = |left: &OwnerLeft| {
            file.keep(at, left.clone());
            files::read_own_at(&file.path, at.place(), limits::OWNER_HINT_BYTES).expect("it was written")
        };
        let kept = [left("c", 0), left("c", 90)];
        let [old, new] = kept.each_ref().map(written);
        for cut in 0..old.len() {
            let torn = [&new[..cut], &old[cut..]].concat();
            files::overwrite_at(&file.path, at.place(), &torn).expect("written");
            let read = file.read(at);
            assert!(read.is_none() || kept.contains(read.as_ref().expect("one")), "cut at {cut}");
        }
        file.keep(at, left("c", limits::OWNER_HINT_BYTES));
        assert_eq!(file.read(at), None, "what was there is wrong");
    }
}
