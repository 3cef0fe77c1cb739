//! The errors that end an adoption without taking the store into service.

use crate::api::ApiError;
use crate::error::RunError;

/// An adoption that did not do all that it should. Addresses reserved until then stay reserved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdoptionError {
    /// The run ended early.
    #[error("{}{}", .0, advice(.0))]
    Run(RunError),
    /// The cluster has no NetworkAttachmentDefinitions, and no default network is given.
    #[error(
        "{0}; this cluster has no NetworkAttachmentDefinitions (Multus is not installed), and --default-network is not \
         given, so nothing says which networks use metes; the store is not taken into service. If metes serves the \
         cluster's default network, give its configuration from /etc/cni/net.d of any node: with --default-network \
         FILE, or for the Jobs of manifests/adopt in the ConfigMap metes-default-network (docs/operations.md)"
    )]
    NoDefinitions(ApiError),
    /// Somebody else took the store into service, or began a migration: the name of the key.
    #[error("somebody else changed {0} meanwhile: look at `metes check`, and run it again")]
    Changed(String),
    /// Not everything that is in use could be reserved.
    #[error(
        "{0} conflicts: the store stays suspect, and ADD fails until they are settled; run it again then"
    )]
    Conflicts(usize),
    /// Other clusters share the store.
    #[error(
        "what this cluster uses is written down, but the clusters {} share the store, which stays suspect until the \
         last has adopted: run it in each of them, and in the last with --last", .0.join(", ")
    )]
    OtherClusters(Vec<String>),
    /// The store was left suspect, as the command line asked.
    #[error(
        "what this cluster uses is written down; the store stays suspect until the last cluster has adopted"
    )]
    NotLast,
}

impl AdoptionError {
    /// True if it ended before it had looked at everything.
    pub(crate) fn is_abort(&self) -> bool {
        matches!(self, AdoptionError::Run(_) | AdoptionError::NoDefinitions(_) | AdoptionError::Changed(_))
    }
}

impl<E: Into<RunError>> From<E> for AdoptionError {
    fn from(e: E) -> Self {
        AdoptionError::Run(e.into())
    }
}

/// The meaning of an error for an adoption, and the remedy.
fn advice(e: &RunError) -> &'static str {
    match e {
        RunError::Api(_) => "; the store is not taken into service",
        RunError::Store(_) | RunError::OutOfTime(_) => "; run it again",
        RunError::Bad(_) => "; nothing is adopted; run `metes check`",
        RunError::NoStore(_) => ": nothing is adopted",
        RunError::Newer(_) => ": nothing is adopted; use a newer metes-reconciler",
        RunError::OtherCluster { .. } => ": nothing is adopted; point --kubeconfig to the right cluster",
        RunError::Timeout(..) => "; the store is not taken into service; raise --timeout",
        // An adoption exists to end these two states.
        RunError::Suspect(_) | RunError::MetaMissing(_) => "",
    }
}
