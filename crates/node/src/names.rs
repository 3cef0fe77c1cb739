//! The names that this machine has had. An address is held under the name that its node had at the time, so a DEL looks
//! under the former names, too.
//!
//! A disk is copied with the machine id that is on it. So another machine may live on under a former name of this one,
//! and its containers are not this machine's. The own key under that name tells: this machine has not written it since
//! it was renamed. So for each name, the file keeps when this machine has done so last. The mark has that of the latest
//! name alone.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::files;
use super::node::Identity;
use super::own_file::{self, OwnFile, Reader, Whose};
use metes_core::keys::{Key, Keys, NodeKey};
use metes_core::known::{HighWater, LastWritten};
use metes_core::limits;
use metes_core::plan::free::Former;
use metes_core::pool::{ClusterName, NodeName, Owner};

/// A name of a machine: a node of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Called {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cluster: Option<ClusterName>,
    node: NodeName,
    /// When the machine has written its own key under this name last, once it has another name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    written: Option<LastWritten>,
}

impl Called {
    fn is(&self, identity: &Identity) -> bool {
        self.cluster == identity.cluster && self.node == identity.node
    }
}

/// The file that keeps a machine's names, whatever cluster it is in now.
#[derive(Debug, Clone)]
pub struct NamesFile {
    path: PathBuf,
    reader: Reader<Vec<Called>>,
    present: Identity,
}

impl NamesFile {
    /// The names in a node's folder.
    pub(crate) fn new(folder: &Path, identity: &Identity) -> Self {
        let reader = Reader::new(Whose::new(&Identity { cluster: None, ..identity.clone() }));
        Self { path: folder.join("names"), reader, present: identity.clone() }
    }

    /// Notes the present name, before the first ADD under it. `seen` is the store as the machine has seen it last.
    pub fn keep_present(&self, keys: &Keys, seen: Option<&HighWater>) {
        let mut names = self.read();
        if names.first().is_some_and(|name| name.is(&self.present)) {
            return;
        }
        note_last(&mut names, keys, &self.present, seen);
        names.retain(|name| !name.is(&self.present));
        let Identity { cluster, node, .. } = self.present.clone();
        names.insert(0, Called { cluster, node, written: None });
        names.truncate(1 + limits::FORMER_NAMES);
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        let kept = own_file::encode(&self.reader.whose, names).and_then(|content| {
            files::make_folder(folder).and_then(|()| files::write_whole(&self.path, &content))
        });
        if let Err(e) = kept {
            tracing::warn!(file = %self.path.display(), error = %e, "the name of this node cannot be kept");
        }
    }

    /// Each former name, and when the machine has written its own key under it last, if that is known. `seen` is the
    /// store as the machine has seen it last.
    #[must_use]
    pub fn former_names(&self, keys: &Keys, seen: Option<&HighWater>) -> Vec<(NodeKey, Option<LastWritten>)> {
        let mut names = self.read();
        note_last(&mut names, keys, &self.present, seen);
        let former = names.into_iter().filter(|name| !name.is(&self.present));
        let former = former.map(|Called { cluster, node, written }| {
            (NodeKey { cluster, node, machine: self.present.machine.clone() }, written)
        });
        former.collect()
    }

    /// The same container's interface under each former name.
    #[must_use]
    pub fn former(&self, keys: &Keys, owner: &Owner, seen: Option<&HighWater>) -> Vec<Former> {
        let former = self.former_names(keys, seen).into_iter().map(|(name, written)| {
            let own_key = keys.node(&name);
            let NodeKey { cluster, node, .. } = name;
            Former { owner: Owner { node, cluster, ..owner.clone() }, own_key, written }
        });
        former.collect()
    }

    /// True if the machine has been in this cluster.
    pub(crate) fn has_been_in(&self, cluster: Option<&ClusterName>) -> bool {
        self.read().iter().any(|name| name.cluster.as_ref() == cluster)
    }

    /// The names, the latest first; none if there are none of this machine.
    fn read(&self) -> Vec<Called> {
        match self.reader.read(&self.path) {
            OwnFile::Own(names) => names,
            OwnFile::Nothing | OwnFile::Others(..) => Vec::new(),
            OwnFile::Unreadable(why) => {
                tracing::warn!(file = %self.path.display(), %why, "the former names of this node are not known");
                Vec::new()
            }
        }
    }
}

/// Adds to the names what the own key in the mark says of the latest of them: also where it is missing, because the
/// file is lost.
fn note_last(names: &mut Vec<Called>, keys: &Keys, present: &Identity, seen: Option<&HighWater>) {
    let Some((key, written)) = seen.and_then(LastWritten::of) else { return };
    let Ok(Key::Node(NodeKey { cluster, node, machine })) = keys.parse(key.as_bytes()) else { return };
    if machine != present.machine {
        return;
    }
    match names.iter_mut().find(|name| name.cluster == cluster && name.node == node) {
        Some(name) => name.written = Some(written),
        None => names.insert(0, Called { cluster, node, written: Some(written) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use metes_core::known::OwnKey;

    fn identity(machine: &str, node: &str, cluster: &str) -> Identity {
        let node = node.parse().expect("a node name");
        Identity { node, cluster: cluster.parse().ok(), machine: machine.into() }
    }

    /// The store after an ADD of this node, at this revision.
    fn seen(keys: &Keys, identity: &Identity, revision: i64) -> HighWater {
        let key = Some(OwnKey::new(&keys.node(&identity.key()), revision));
        HighWater { store: "s".to_owned(), epoch: 1, revision, key, etcd: 0, elsewhere: false }
    }

    /// The former names, each with `?` if it is not known when the machine has used it last.
    fn former(file: &NamesFile, keys: &Keys, seen: Option<&HighWater>) -> Vec<String> {
        let owner = Owner::named(["now", "n9", "c", "eth0"]).expect("plain names");
        let mark = |former: &Former| if former.written.is_some() { "" } else { "?" };
        let words = |former: Former| {
            format!("{}/{}{}", former.owner.cluster_or_dash(), former.owner.node, mark(&former))
        };
        file.former(keys, &owner, seen).into_iter().map(words).collect()
    }

    #[test]
    fn a_machine_remembers_its_last_names_and_no_other_machines() {
        let folder = tempfile::tempdir().expect("a folder");
        let keys = Keys::new("/m/");
        let of = |machine: &str, node: &str, cluster: &str| {
            NamesFile::new(folder.path(), &identity(machine, node, cluster))
        };
        let mut last = None;
        for (node, revision) in ["n0", "n1", "n2", "n1", "n3", "n4", "n5"].into_iter().zip(1..) {
            of("m", node, "east").keep_present(&keys, last.as_ref());
            last = Some(seen(&keys, &identity("m", node, "east"), revision));
        }
        let renamed = of("m", "n9", "west");
        assert_eq!(former(&renamed, &keys, None), ["east/n5?", "east/n4", "east/n3", "east/n1", "east/n2"]);
        assert_eq!(former(&renamed, &keys, last.as_ref())[0], "east/n5", "the mark knows the latest");
        assert!(renamed.has_been_in("east".parse().ok().as_ref()) && !renamed.has_been_in(None));
        renamed.keep_present(&keys, last.as_ref());
        assert_eq!(former(&renamed, &keys, None), ["east/n5", "east/n4", "east/n3", "east/n1"]);
        assert!(former(&of("copied", "n9", "west"), &keys, last.as_ref()).is_empty());
    }

    #[test]
    fn a_name_that_only_the_mark_knows_is_taken_from_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let keys = Keys::new("/m/");
        let last = seen(&keys, &identity("m", "n1", "east"), 7);
        let renamed = NamesFile::new(folder.path(), &identity("m", "n2", "east"));
        assert_eq!(former(&renamed, &keys, Some(&last)), ["east/n1"]);
        std::fs::write(folder.path().join("names"), "damaged").expect("written");
        renamed.keep_present(&keys, Some(&last));
        assert_eq!(former(&renamed, &keys, None), ["east/n1"]);
        // The mark names the present name by then.
        renamed.keep_present(&keys, Some(&seen(&keys, &identity("m", "n2", "east"), 9)));
        assert_eq!(former(&renamed, &keys, None), ["east/n1"]);
    }
}
