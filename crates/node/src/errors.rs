//! Errors and warnings about a store that contradicts this node.

use std::path::Path;

use metes_config::cni::error::{Code, Error};

/// The remedy where the store is suspect, and nowhere else.
const ADOPT: &str = "run `metes-reconciler adopt`; outside Kubernetes, when no running container holds an address that \
                     `metes list` does not show, run `metes check --accept-store`";

/// The store has gone back in time, was emptied, or is another one.
#[must_use]
pub fn suspect(epoch: u64) -> Error {
    Error::new(
        Code::StoredState,
        format!(
            "etcd is not the store that was in use in epoch {epoch}: it went back in time, was emptied, or is another \
             one, and may have forgotten addresses that are in use"
        ),
    )
    .with_details(ADOPT)
}

/// Endpoints, etcd and store are all others than those that this node knows.
#[must_use]
pub fn stranger(known: &str, found: Option<&str>) -> Error {
    let found = found.map_or_else(|| "no store".to_owned(), |id| format!("store {id}"));
    Error::new(
        Code::StoredState,
        format!("this node knows store {known}, and `etcd.endpoints`, which have changed since, show {found}"),
    )
    .with_details(
        "correct `etcd.endpoints`; if they named a wrong etcd before, drain the node and remove its `mark` below \
         `spool_dir`; if the store was rebuilt here, run `metes check --accept-store` on this node when no running \
         container holds an address that `metes list` does not show",
    )
}

/// The store knows this node, and the folder of the node's state knows nothing of the store.
#[must_use]
pub fn lost_state(folder: &Path) -> String {
    format!(
        "this node has used this store before, and {} knows nothing of it: `spool_dir` was changed, or the folder was \
         emptied; DELs that were spooled in another folder are not carried out",
        folder.display()
    )
}

/// True if an error says that the store is suspect.
pub(crate) fn is_suspect(error: &Error) -> bool {
    error.details.starts_with(ADOPT)
}

/// Nothing is stored here, and this machine has used another store, in words.
#[must_use]
pub fn other_store_used(other: &str) -> Error {
    Error::new(Code::StoredState, format!("this machine has used {other}, and nothing is stored here"))
        .with_details(
            "correct `etcd` in the host file; if a new store is meant, `metes check --accept-store` makes it",
        )
}
