//! The facts that a doctor has seen, before it judges. Pure.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use metes_core::keys::NodeKey;
use metes_core::known::{HighWater, LastWritten};
use metes_core::pool::{ClusterName, Meta, NodeName, Owner};
use metes_engine::kv::{About, Failure};
use metes_engine::obstacle::Obstacle;
use metes_etcd::certificate::Certificate;
use metes_node::spool::Survey;

/// All that was seen.
pub(super) struct DoctorFacts {
    /// The present time by this node's clock, in seconds since 1970 in UTC.
    pub(super) now: u64,
    /// As which user this program runs.
    pub(super) user: u32,
    pub(super) host_file: HostFileFacts,
    pub(super) files: Vec<FileFacts>,
    pub(super) certificates: Vec<CertificateFacts>,
    pub(super) etcd: EtcdFacts,
    /// None if the host file does not say where it is.
    pub(super) node: Option<NodeFacts>,
}

/// The host file that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chosen {
    ByOption,
    ByEnvironment,
    UsualPlace,
}

pub(super) struct HostFileFacts {
    /// None if there is none.
    pub(super) file: Option<(PathBuf, Chosen)>,
    /// None if it cannot be looked at.
    pub(super) owner: Option<FileOwner>,
    /// True if its endpoints do not count, because others are named for this run.
    pub(super) has_other_endpoints: bool,
    /// Its faults, the worst first.
    pub(super) wrong: Vec<Obstacle>,
    /// Keys that have no effect.
    pub(super) notes: Vec<String>,
    /// True if it says who chooses the addresses of pods.
    pub(super) says_who_chooses: bool,
}

/// The owner and the mode of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileOwner {
    pub(super) user: u32,
    pub(super) mode: u32,
}

/// A file that the host file names.
pub(super) struct FileFacts {
    pub(super) key: &'static str,
    pub(super) path: String,
    pub(super) owner: Option<FileOwner>,
    pub(super) wrong: Option<Obstacle>,
}

/// The party that a certificate belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CertificateOf {
    /// This node's, that etcd sees.
    Client,
    /// An authority that signs etcd's.
    Authority,
    /// The one that an endpoint shows.
    Server,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CertificateFacts {
    pub(super) of: CertificateOf,
    /// The file or the endpoint.
    pub(super) place: String,
    pub(super) certificate: Certificate,
}

/// The answers of etcd.
pub(super) enum EtcdFacts {
    /// It was not asked, because nothing says how.
    Unknown,
    /// It was not asked, because files for TLS or the login cannot be used, or the host file; each endpoint with why it
    /// accepts no connection, if it does not.
    NotAsked { why: Option<Obstacle>, endpoints: Vec<(String, Option<String>)> },
    Asked {
        endpoints: Vec<EndpointFacts>,
        /// True if etcd asks for users; none if that is not known, or if it is on this machine.
        users: Option<bool>,
        store: Box<StoreFacts>,
    },
}

/// The answers of one endpoint.
pub(super) struct EndpointFacts {
    pub(super) url: String,
    /// The time of a read, once there was a connection.
    pub(super) read: Result<Duration, Failure>,
    pub(super) about: Result<About, Failure>,
}

/// The answer of the store, by whichever endpoint.
pub(super) struct StoreFacts {
    pub(super) prefix: String,
    pub(super) read: Result<StoreSeen, Failure>,
    /// The time of a write; none if none was tried.
    pub(super) write: Option<Result<Duration, Failure>>,
    /// The other machines that hold addresses under this node's name; none if that was not asked.
    pub(super) others: Option<Result<Machines, Failure>>,
}

/// The number of owners of each machine, with one of them as an example, by the machine's digest.
pub(super) type Machines = BTreeMap<String, (usize, Owner)>;

/// The store's meta as it was read.
pub(super) struct StoreSeen {
    /// Its fault, if it does not decode.
    pub(super) meta: Result<Option<Meta>, String>,
    pub(super) revision: i64,
    /// True if there is anything that must not be without a meta.
    pub(super) has_allocations: bool,
    /// True if it contradicts what this node knows.
    pub(super) is_another: bool,
    /// Former names of this node under which another machine may live.
    pub(super) used_names: Vec<NodeKey>,
    /// True if this machine has left its own key there under its present name.
    pub(super) has_own_key: bool,
}

/// The node's own files.
pub(super) struct NodeFacts {
    /// The name and where it is from, or why there is none.
    pub(super) name: Result<(NodeName, NameFrom), Obstacle>,
    pub(super) cluster: Option<ClusterName>,
    /// None if the machine has no id.
    pub(super) machine: Option<MachineFacts>,
    /// The folder of one store's state.
    pub(super) folder: PathBuf,
    /// True if a run has made it.
    pub(super) has_folder: bool,
    pub(super) mark: MarkFacts,
    /// The names that the machine had before, and when it has written its own key under each last.
    pub(super) former: Vec<(NodeKey, Option<LastWritten>)>,
    /// Why the prefix in the host file is most likely a wrong one.
    pub(super) other_prefix: Option<Obstacle>,
    /// Another store that the machine has used, in words.
    pub(super) other_store: Option<String>,
    pub(super) spool: SpoolFacts,
    /// Why a run could write nothing into the folder; none if it could, or if that is not known.
    pub(super) unwritable: Option<String>,
    /// For how long etcd has answered no STATUS; none if it has, or if there was none. Or why that is not known.
    pub(super) outage: Result<Option<Duration>, String>,
}

/// Where a node's name is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameFrom {
    HostFile,
    Machine,
}

/// The digest that tells the machine from others.
pub(super) struct MachineFacts {
    pub(super) digest: String,
    pub(super) file: PathBuf,
}

/// The node's mark: the newest state of the store that its runs have seen.
pub(super) enum MarkFacts {
    /// Nothing yet.
    None,
    /// There is a file, and what is in it does not count here.
    NotThisNodes,
    /// It is of this machine in another cluster, which these words name.
    OtherCluster(String),
    /// The user who runs the command may not read it.
    Hidden,
    Known(HighWater),
}

/// The DELs that wait.
pub(super) enum SpoolFacts {
    /// Nothing in it is carried out; why.
    NotTrusted(String),
    /// The user who runs the command may not read it.
    Hidden,
    /// The entries, and the age of this node's oldest one in seconds.
    Known(Survey, Option<u64>),
}
