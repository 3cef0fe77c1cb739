//! The errors that end an import early, or leave something that is not taken over.

use std::time::Duration;

use crate::error::RunError;

/// An import that did not do all that it should. Addresses reserved until then stay reserved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// The run ended early.
    #[error("{}{}", .0, advice(.0))]
    Run(RunError),
    /// Somebody else has paused the store.
    #[error("another migration is under way: {0}")]
    OtherPause(String),
    /// There is nothing to finish.
    #[error("no import is under way in this cluster: run import-whereabouts --begin first")]
    NotBegun,
    /// Too early: whereabouts is still configured.
    #[error(
        "ADD stays paused: whereabouts still hands out addresses for {}; change `type` in their `ipam` to metes",
        .0.join(", ")
    )]
    StillUsed(Vec<String>),
    /// Too early: whereabouts may still be at work.
    #[error(
        "ADD stays paused: whereabouts may still be at work for {pods} pods, which have no annotation \
         network-status yet; until they have, the NetworkAttachmentDefinitions must not have changed for {}: \
         run it again in {} or with --wait",
        humantime::format_duration(*.settle), whole_seconds(*.left)
    )]
    TooEarly {
        /// The time for which the definitions must not have changed.
        settle: Duration,
        /// The rest of that time.
        left: Duration,
        /// The number of pods that it waits for.
        pods: usize,
    },
    /// The definitions changed during the import.
    #[error("ADD stays paused: a NetworkAttachmentDefinition was changed meanwhile; run it again")]
    DefinitionsChanged,
    /// Somebody else changed meta, or ended the pause.
    #[error(
        "somebody else ended the pause, or changed what all writers rely on: look at `metes check`, and run it again"
    )]
    Changed,
    /// Not everything could be taken over.
    #[error(
        "{failures} addresses of running pods could not be taken over{}",
        if *.is_paused { ": ADD stays paused; settle them and run it again, or end the pause with --force" } else { "" }
    )]
    Incomplete {
        /// The number of addresses.
        failures: usize,
        /// True if ADD waits.
        is_paused: bool,
    },
}

impl ImportError {
    /// True if it ended before it had looked at everything.
    pub(crate) fn is_abort(&self) -> bool {
        !matches!(self, ImportError::Incomplete { .. })
    }
}

impl<E: Into<RunError>> From<E> for ImportError {
    fn from(e: E) -> Self {
        ImportError::Run(e.into())
    }
}

/// The meaning of an error for an import, and the remedy.
fn advice(e: &RunError) -> &'static str {
    match e {
        RunError::Api(_) | RunError::Store(_) | RunError::OutOfTime(_) => "; run it again",
        RunError::Bad(_) | RunError::MetaMissing(_) => "; run `metes check`",
        RunError::Suspect(_) => ": nothing is taken over; run `metes-reconciler adopt` first",
        RunError::NoStore(_) => ": nothing is taken over",
        RunError::Newer(_) => ": nothing is taken over; use a newer metes-reconciler",
        RunError::OtherCluster { .. } => {
            ": nothing is taken over; point --kubeconfig to the right cluster, or give each cluster a `cluster` of its \
             own in the host file"
        }
        RunError::Timeout(..) => "; run it again, with a longer --timeout",
    }
}

/// Rounded up, so that the time is over when the message says so.
pub(super) fn whole_seconds(left: Duration) -> String {
    let seconds = left.as_secs() + u64::from(left.subsec_nanos() > 0);
    humantime::format_duration(Duration::from_secs(seconds)).to_string()
}
