//! The names that this machine has had. An address is held under the name that its node had at the time, so a DEL looks
//! under the former names, too.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::files;
use super::node::Identity;
use super::own_file::{self, OwnFile, Reader, Whose};
use metes_core::limits;
use metes_core::pool::{ClusterName, NodeName, Owner};

/// A name of a machine: a node of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Called {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cluster: Option<ClusterName>,
    node: NodeName,
}

/// The file that keeps a machine's names, whatever cluster it is in now.
#[derive(Debug, Clone)]
pub struct NamesFile {
    path: PathBuf,
    reader: Reader<Vec<Called>>,
    present: Called,
}

impl NamesFile {
    /// The names in a node's folder.
    pub(crate) fn new(folder: &Path, identity: &Identity) -> Self {
        let Identity { node, cluster, .. } = identity.clone();
        let reader = Reader::new(Whose::new(&Identity { cluster: None, ..identity.clone() }));
        Self { path: folder.join("names"), reader, present: Called { cluster, node } }
    }

    /// Notes the present name, before the first ADD under it.
    pub fn keep_present(&self) {
        let mut names = self.read();
        if names.first() == Some(&self.present) {
            return;
        }
        names.retain(|name| *name != self.present);
        names.insert(0, self.present.clone());
        names.truncate(1 + limits::FORMER_NAMES);
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        let kept = own_file::encode(&self.reader.whose, names).and_then(|content| {
            files::make_folder(folder).and_then(|()| files::write_whole(&self.path, &content))
        });
        if let Err(e) = kept {
            tracing::warn!(file = %self.path.display(), error = %e, "the name of this node cannot be kept");
        }
    }

    /// The same container's interface under each former name.
    #[must_use]
    pub fn former_owners(&self, owner: &Owner) -> Vec<Owner> {
        let former = self.read().into_iter().filter(|name| *name != self.present);
        former.map(|Called { cluster, node }| Owner { node, cluster, ..owner.clone() }).collect()
    }

    /// True if the machine has been in this cluster.
    pub(crate) fn has_been_in(&self, cluster: Option<&ClusterName>) -> bool {
        self.read().iter().any(|name| name.cluster.as_ref() == cluster)
    }

    /// The names, the latest first; none if there are none of this machine.
    fn read(&self) -> Vec<Called> {
        match self.reader.read(&self.path) {
            OwnFile::Own(names) => names,
            OwnFile::Nothing | OwnFile::Others(_) => Vec::new(),
            OwnFile::Unreadable(why) => {
                tracing::warn!(file = %self.path.display(), %why, "the former names of this node are not known");
                Vec::new()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(folder: &Path, machine: &str, node: &str, cluster: &str) -> NamesFile {
        let node = node.parse().expect("a node name");
        NamesFile::new(folder, &Identity { node, cluster: cluster.parse().ok(), machine: machine.into() })
    }

    #[test]
    fn a_machine_remembers_its_last_names_and_no_other_machines() {
        let folder = tempfile::tempdir().expect("a folder");
        let owner = Owner::named(["now", "n9", "c", "eth0"]).expect("plain names");
        let former = |file: &NamesFile| -> Vec<String> {
            let owners = file.former_owners(&owner);
            owners.iter().map(|owner| format!("{}/{}", owner.cluster_or_dash(), owner.node)).collect()
        };
        for node in ["n0", "n1", "n2", "n1", "n3", "n4", "n5"] {
            of(folder.path(), "m", node, "east").keep_present();
        }
        let renamed = of(folder.path(), "m", "n9", "west");
        assert_eq!(former(&renamed), ["east/n5", "east/n4", "east/n3", "east/n1", "east/n2"]);
        assert!(renamed.has_been_in("east".parse().ok().as_ref()) && !renamed.has_been_in(None));
        renamed.keep_present();
        assert_eq!(former(&renamed), ["east/n5", "east/n4", "east/n3", "east/n1"]);
        assert!(former(&of(folder.path(), "copied", "n9", "west")).is_empty());
    }
}
