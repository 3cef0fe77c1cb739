//! The commands of CNI.

use std::fmt;
use std::time::Duration;

use crate::limits;

/// A command of CNI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Give an interface its addresses.
    Add,
    /// Take them back.
    Del,
    /// Say whether they are still held.
    Check,
    /// Say whether an ADD could be served.
    Status,
    /// Free what belongs to no valid attachment.
    Gc,
    /// Name the versions spoken.
    Version,
}

impl Verb {
    pub(super) const ALL: [Verb; 6] =
        [Verb::Add, Verb::Del, Verb::Check, Verb::Status, Verb::Gc, Verb::Version];

    /// The verb that CNI_COMMAND spells so.
    pub(super) fn named(text: &str) -> Option<Self> {
        Verb::ALL.into_iter().find(|verb| verb.as_str() == text)
    }

    /// The verb as CNI_COMMAND spells it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Add => "ADD",
            Verb::Del => "DEL",
            Verb::Check => "CHECK",
            Verb::Status => "STATUS",
            Verb::Gc => "GC",
            Verb::Version => "VERSION",
        }
    }

    /// How long the verb may take, from the start of the process on.
    #[must_use]
    pub fn deadline(self) -> Duration {
        match self {
            Verb::Add => limits::ADD_DEADLINE,
            Verb::Del => limits::DEL_DEADLINE,
            Verb::Check => limits::CHECK_DEADLINE,
            Verb::Gc => limits::GC_DEADLINE,
            Verb::Status | Verb::Version => limits::STATUS_DEADLINE,
        }
    }

    /// How long the verb tries to reach an etcd that does not answer.
    #[must_use]
    pub fn gives_up_after(self) -> Duration {
        match self {
            Verb::Del => limits::UNREACHABLE_DEL,
            Verb::Status | Verb::Version => limits::STATUS_DEADLINE,
            Verb::Add | Verb::Check | Verb::Gc => limits::UNREACHABLE,
        }
    }

    pub(super) fn is_for_one_interface(self) -> bool {
        matches!(self, Verb::Add | Verb::Del | Verb::Check)
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
