//! The errors that end a run of any kind early. Each kind of run adds their meaning and the remedy.

use std::time::Duration;

use metes_audit::accept::BeginError;
use metes_core::keys::Keys;
use metes_core::snapshot::BadRecord;
use metes_engine::drive::OutOfTime;
use metes_engine::endpoints::NoStore;
use metes_engine::kv::Failure;
use metes_engine::prefix::MetaError;
use metes_engine::release::FreeError;

use crate::api::ApiError;
use crate::assign::AssignError;

/// The early end of a run of any kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// Kubernetes.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// etcd.
    #[error("{}; {}", .0, .0.remedy())]
    Store(#[from] Failure),
    /// The endpoints are not of one store, or none can be founded.
    #[error("{}", no_store(.0))]
    NoStore(NoStore),
    /// There was no time left for one owner, or for the meta.
    #[error("{}; {}", .0, OutOfTime::REASONS)]
    OutOfTime(#[from] OutOfTime),
    /// A record that every run relies on does not decode.
    #[error("stored state cannot be decoded: {0}")]
    Bad(#[from] BadRecord),
    /// The store went back in time.
    #[error("etcd went back in time in epoch {0}")]
    Suspect(u64),
    /// There are records but no meta: the name of meta's key.
    #[error("there are addresses but no {0}: the store has lost keys")]
    MetaMissing(String),
    /// The store was written by newer programs.
    #[error("the store is for writers of version {0} or newer")]
    Newer(u32),
    /// Another cluster uses this cluster's name.
    #[error(
        "the name {name} belongs to the cluster whose namespace kube-system has UID {registered}, and the API that \
         answers has {found} (if that cluster was made anew under its old name, delete the key {key} with etcdctl)"
    )]
    OtherCluster {
        /// The name.
        name: String,
        /// The UID that the name was registered with.
        registered: String,
        /// The UID of the API that answered.
        found: String,
        /// The key that holds the registered UID.
        key: String,
    },
    /// The run took too long: what it is, and how long it may take.
    #[error("{} took longer than {}", .0, humantime::format_duration(*.1))]
    Timeout(&'static str, Duration),
}

impl RunError {
    pub(crate) fn meta_missing(keys: &Keys) -> Self {
        RunError::MetaMissing(String::from_utf8_lossy(&keys.meta()).into_owned())
    }

    /// None if the cause is that somebody let ADD hand out addresses again.
    pub(crate) fn of_assignment(e: AssignError) -> Option<Self> {
        match e {
            AssignError::Store(failure) => Some(RunError::Store(failure)),
            AssignError::Bad(bad) => Some(RunError::Bad(bad)),
            AssignError::Newer(version) => Some(RunError::Newer(version)),
            AssignError::OutOfTime(late) => Some(RunError::OutOfTime(late)),
            AssignError::InService => None,
        }
    }
}

impl From<FreeError> for RunError {
    fn from(e: FreeError) -> Self {
        match e {
            FreeError::Store(failure) => RunError::Store(failure),
            FreeError::Bad(bad) => RunError::Bad(bad),
            FreeError::OutOfTime(late) => RunError::OutOfTime(late),
        }
    }
}

impl From<NoStore> for RunError {
    fn from(e: NoStore) -> Self {
        match e {
            NoStore::Failed(failure) => RunError::Store(failure),
            NoStore::Bad(bad) => RunError::Bad(bad),
            NoStore::LostMeta(key) => RunError::MetaMissing(key),
            NoStore::Differ(_) | NoStore::TooOld(_) => RunError::NoStore(e),
        }
    }
}

impl From<BeginError> for RunError {
    fn from(e: BeginError) -> Self {
        match e {
            BeginError::Meta(why) => why.into(),
            BeginError::OutOfTime(late) => RunError::OutOfTime(late),
        }
    }
}

impl From<MetaError> for RunError {
    fn from(e: MetaError) -> Self {
        match e {
            MetaError::Store(failure) => RunError::Store(failure),
            MetaError::Bad(bad) => RunError::Bad(bad),
            MetaError::Newer(version) => RunError::Newer(version),
        }
    }
}

fn no_store(why: &NoStore) -> String {
    match why {
        NoStore::Differ(_) => format!("{why}; {}", NoStore::MEMBERS_OF_ONE),
        _ => why.to_string(),
    }
}
