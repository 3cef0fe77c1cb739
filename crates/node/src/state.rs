//! A node's identity, and the folder with the state that its runs keep.

use std::path::{Path, PathBuf};

use super::mark::{self, AllState, MarkFile};
use super::names::NamesFile;
use super::node::{self, Identity};
use super::outage::OutageFile;
use super::owner_hints::{Interface, OwnerHintFile};
use super::scope_hints::ScopeHintFiles;
use super::spool::Spool;
use metes_config::Settings;
use metes_config::cni::{Code, Error};
use metes_config::settings::Rule;
use metes_core::keys::digest_hex;
use metes_core::pool::NodeName;

/// A node as its runs know it: what it is called, and the folder for one store.
#[derive(Debug, Clone)]
pub struct NodeState {
    /// The node's identity.
    pub identity: Identity,
    /// Where the mark and the spool are.
    pub folder: PathBuf,
    /// The store's endpoints as URLs: the leases that runs share are those of this etcd.
    pub endpoints: Vec<String>,
    /// The state of every prefix that this machine uses. None where the network's configuration names the endpoints:
    /// there a machine may use one store beside another.
    pub all: Option<AllState>,
}

impl NodeState {
    /// The node by the host file and the machine.
    ///
    /// # Errors
    /// Code 7 if the node has no name.
    pub fn of(settings: &Settings) -> Result<Self, Error> {
        let identity = Identity {
            node: node_name(settings)?,
            cluster: settings.cluster.clone(),
            machine: node::machine(Path::new(&settings.spool_dir)),
        };
        Ok(Self::at(identity, settings))
    }

    /// The same for a program that leaves nothing on the machine; none if the node has no name.
    #[must_use]
    pub fn known(settings: &Settings) -> Option<Self> {
        let machine = node::known_machine(Path::new(&settings.spool_dir));
        let machine = machine.map(|machine| machine.digest).unwrap_or_default();
        let node = node_name(settings).ok()?;
        Some(Self::at(Identity { node, cluster: settings.cluster.clone(), machine }, settings))
    }

    /// The same for a program that does not see the machine's id, as in a container: its machine is that of the mark.
    /// Also says if there is one.
    #[must_use]
    pub fn by_its_mark(settings: &Settings) -> Option<(Self, bool)> {
        let machine = mark::machine_of(&state_folder(settings));
        let is_known = machine.is_some();
        let (node, cluster) = (node_name(settings).ok()?, settings.cluster.clone());
        let identity = Identity { node, cluster, machine: machine.unwrap_or_default() };
        Some((Self::at(identity, settings), is_known))
    }

    /// A node with the state that these settings name.
    pub(crate) fn at(identity: Identity, settings: &Settings) -> Self {
        let all = match settings.rule {
            Rule::HostFile => Some(AllState {
                folder: PathBuf::from(&settings.spool_dir),
                prefix: settings.prefix.clone(),
                meant: settings.other_prefixes.iter().map(|prefix| folder_of(settings, prefix)).collect(),
            }),
            Rule::Network => None,
        };
        Self { identity, folder: state_folder(settings), endpoints: settings.urls(), all }
    }

    /// The node's spooled frees.
    #[must_use]
    pub fn spool(&self) -> Spool {
        Spool::new(&self.folder, &self.identity)
    }

    /// The names of the machine.
    #[must_use]
    pub fn names(&self) -> NamesFile {
        NamesFile::new(&self.folder, &self.identity)
    }

    /// The hints that the node's runs leave behind of each scope.
    #[must_use]
    pub fn scope_hints(&self) -> ScopeHintFiles {
        ScopeHintFiles::new(&self.folder, &self.identity)
    }

    /// The hints of the owners whose addresses the node's ADDs have reserved.
    #[must_use]
    pub fn owner_hints(&self) -> OwnerHintFile {
        OwnerHintFile::new(&self.folder, &self.identity)
    }

    /// The node's high-water mark.
    #[must_use]
    pub fn mark(&self) -> MarkFile {
        MarkFile::new(&self.folder, &self.identity, &self.endpoints)
    }

    /// Since when etcd has given no STATUS an answer.
    #[must_use]
    pub fn outage(&self) -> OutageFile {
        OutageFile::new(&self.folder, &self.identity)
    }

    /// Another store that this machine has used, in words: under another prefix, or in another cluster.
    #[must_use]
    pub fn other_store(&self) -> Option<String> {
        mark::of_other_store(self.all.as_ref()?, &self.folder, &self.identity)
    }

    /// Another prefix that this machine has used and that the host file does not list, if the machine has not used its
    /// own one: then the prefix in the host file has most likely been changed under running containers.
    #[must_use]
    pub fn other_prefix(&self) -> Option<OtherPrefix> {
        let all = self.all.as_ref()?;
        let (folder, own_key) = mark::of_other_prefix(all, &self.folder, &self.identity)?;
        let used = own_key.and_then(|key| Some(key.split_once("v1/node/")?.0.to_owned()));
        let node = Self { folder, ..self.clone() };
        Some(OtherPrefix { used, own: all.prefix.clone(), node })
    }
}

/// A prefix that a machine has used beside the one in its host file.
#[derive(Debug, Clone)]
pub struct OtherPrefix {
    /// The prefix, if an ADD has used it.
    used: Option<String>,
    /// The prefix in the host file.
    own: String,
    /// The node there.
    node: NodeState,
}

impl OtherPrefix {
    /// True if this machine may hold something for this interface under the other prefix: an ADD has left its owner
    /// there, or a DEL waits for it.
    #[must_use]
    pub fn may_hold(&self, interface: Interface<'_>) -> bool {
        let left = self.node.owner_hints().read(interface);
        left.is_some_and(|left| left.owner == *interface.owner)
            || !self.node.spool().of(interface.owner).is_empty()
    }

    /// The error of a run that would use the prefix in the host file.
    #[must_use]
    pub fn error(&self, code: Code) -> Error {
        let Self { used, own, node } = self;
        let folder = node.folder.display();
        let used = used.as_ref().map(|prefix| format!("the prefix {prefix} ")).unwrap_or_default();
        Error::new(
            code,
            format!("this machine has used {used}({folder}), and its host file names {own}, which it has not used"),
        )
        .with_details(format!(
            "correct `etcd.prefix` in the host file; if this machine is meant to use both, name the other one in \
             `other_prefixes` of the host file; if nothing of {folder} is in use any more, remove it"
        ))
    }
}

/// The host file's name for the node, or one derived from the machine.
///
/// # Errors
/// Code 7 if the machine has neither.
pub fn node_name(settings: &Settings) -> Result<NodeName, Error> {
    if let Some(name) = &settings.node_name {
        return Ok(name.clone());
    }
    node::derived_name().map_err(|e| {
        Error::invalid_config(format!("this node has no name: {e}"))
            .with_details("set node_name in the host file")
    })
}

/// The folder for all state of one prefix on this node. Without a host file it is for one prefix of the store at these
/// endpoints alone, because another store knows nothing of the DELs that were spooled for this one.
#[must_use]
pub fn state_folder(settings: &Settings) -> PathBuf {
    folder_of(settings, &settings.prefix)
}

fn folder_of(settings: &Settings, prefix: &str) -> PathBuf {
    let name = prefix.trim_matches('/');
    let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let store = match settings.rule {
        Rule::HostFile => String::new(),
        Rule::Network => settings.urls().join(" "),
    };
    let digest = digest_hex(format!("{prefix} {store}").as_bytes());
    Path::new(&settings.spool_dir).join(format!("{name}-{}", &digest[..8]))
}
