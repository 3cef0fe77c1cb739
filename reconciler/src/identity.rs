//! Which cluster goes by a name: two clusters that share a store never share one.

use metes::pool::names::ClusterName;
use metes::pool::record::{ClusterId, Record};
use metes::store::keys::{Bytes, Keys};
use metes::store::kv::{Failure, Kv};
use metes::store::session::Session;
use metes::store::snapshot::{BadRecord, Snapshot};
use metes::store::txn::{Compare, Op, Txn};
use tokio::time::Instant;

use crate::api::{Api, ApiError};

/// Why nothing is done in a cluster's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Kubernetes.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// etcd.
    #[error(transparent)]
    Store(#[from] Failure),
    /// What is registered does not decode.
    #[error(transparent)]
    Bad(#[from] BadRecord),
    /// Another cluster goes by this name.
    #[error(
        "the name {name} belongs to the cluster whose namespace kube-system has UID {registered}, and the API that answers \
         has {found} (if that cluster was made anew under its old name, delete the key {key} with etcdctl)"
    )]
    Other {
        /// The name.
        name: String,
        /// The UID that it was registered with.
        registered: String,
        /// The UID of the API that answered.
        found: String,
        /// Where that is written.
        key: String,
    },
}

/// Whether the first to come writes down whose the name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum First {
    /// It does.
    Registers,
    /// Nothing is written.
    OnlyLooks,
}

/// Makes sure that the cluster behind `api` is the one that goes by the name `cluster`.
///
/// # Errors
/// [`NameError`]
pub async fn claim_name<K: Kv, A: Api>(
    kv: &K,
    keys: &Keys,
    cluster: &ClusterName,
    api: &A,
    first: First,
    until: Instant,
) -> Result<(), NameError> {
    let found = api.cluster_uid().await?;
    let key = keys.cluster(cluster);
    let mut registered = read(Session { kv, keys, until }, &key).await?;
    if registered.is_none() && first == First::Registers {
        let txn = Txn {
            step: "identity",
            compares: vec![Compare::Create(key.clone(), 0)],
            then: vec![Op::Put(key.clone(), ClusterId::new(found.clone()).encode(), None)],
            otherwise: Vec::new(),
        };
        kv.txn(&txn, until).await?;
        // Another one may have been first, and this one's write may have come through unheard.
        registered = read(Session { kv, keys, until }, &key).await?;
    }
    match registered {
        Some(ClusterId { uid, .. }) if uid != found => {
            let key = String::from_utf8_lossy(&key).into_owned();
            Err(NameError::Other { name: cluster.to_string(), registered: uid, found, key })
        }
        _ => Ok(()),
    }
}

async fn read<K: Kv>(session: Session<'_, K>, key: &Bytes) -> Result<Option<ClusterId>, NameError> {
    let mut snapshot = Snapshot::default();
    session.read(std::slice::from_ref(key), &mut snapshot).await?;
    Ok(snapshot.record(key)?)
}
