//! The end of a pass, for the metrics, the server and the exit code.

use std::time::{Duration, SystemTime};

use crate::pass::PassError;
use crate::report::PassReport;

/// A pass that did not do all that it should.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// It could not begin: something on this machine cannot be used.
    #[error("{0}")]
    Setup(String),
    /// It began, and did not do all that it should.
    #[error(transparent)]
    Pass(#[from] PassError),
}

metes_core::named_enum! {
    /// The result of a pass that has ended.
    pub enum PassOutcome {
        /// All was done.
        Success = "success",
        /// A migration is under way, so nothing had to be done.
        Paused = "paused",
        /// Suspiciously many orphans: nothing was freed.
        Brake = "brake",
        /// It failed.
        Failure = "failure",
    }
}

/// A pass that has ended.
#[derive(Debug)]
pub struct Ended {
    /// Its report.
    pub report: PassReport,
    /// Why it did not do all that it should.
    pub trouble: Option<Trouble>,
    /// Its duration.
    pub took: Duration,
    /// When it ended.
    pub at: SystemTime,
}

impl Ended {
    /// A pass that could not begin.
    pub(crate) fn before_it_began(trouble: Trouble) -> Self {
        Self {
            report: PassReport::default(),
            trouble: Some(trouble),
            took: Duration::ZERO,
            at: SystemTime::now(),
        }
    }

    /// The result, in one word.
    pub(crate) fn outcome(&self) -> PassOutcome {
        match &self.trouble {
            None if self.report.paused.is_some() => PassOutcome::Paused,
            None => PassOutcome::Success,
            Some(Trouble::Pass(PassError::Brake { .. })) => PassOutcome::Brake,
            Some(_) => PassOutcome::Failure,
        }
    }
}
