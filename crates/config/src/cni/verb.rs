//! The commands of CNI.

use std::time::Duration;

use metes_core::limits::{self, Patience};

metes_core::named_enum! {
    /// A command of CNI.
    pub enum Verb {
        /// Give an interface its addresses.
        Add = "ADD",
        /// Take them back.
        Del = "DEL",
        /// Say whether they are still held.
        Check = "CHECK",
        /// Say whether an ADD could be served.
        Status = "STATUS",
        /// Free all that belongs to no valid attachment.
        Gc = "GC",
        /// Name the versions spoken.
        Version = "VERSION",
    }
}

impl Verb {
    /// The verb's deadline, counted from the start of the process.
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

    /// How long the verb tries to connect. An ADD waits for an etcd that is overloaded: if it fails, Multus and the
    /// runtime send two DELs for each network of the pod, and kubelet sends all ADDs again.
    #[must_use]
    pub fn patience(self) -> Patience {
        match self {
            Verb::Add => Patience { unreachable: limits::UNREACHABLE, busy: limits::ADD_DEADLINE },
            Verb::Del => limits::UNREACHABLE_DEL.into(),
            Verb::Status | Verb::Version => limits::STATUS_DEADLINE.into(),
            Verb::Check | Verb::Gc => limits::UNREACHABLE.into(),
        }
    }

    pub(super) fn is_for_one_interface(self) -> bool {
        match self {
            Verb::Add | Verb::Del | Verb::Check => true,
            Verb::Status | Verb::Gc | Verb::Version => false,
        }
    }

    /// True if the verb goes on with an ambiguous configuration: a DEL must not fail over that.
    pub(crate) fn forgives_config(self) -> bool {
        match self {
            Verb::Del => true,
            Verb::Add | Verb::Check | Verb::Status | Verb::Gc | Verb::Version => false,
        }
    }

    pub(super) fn needs_netns(self) -> bool {
        match self {
            Verb::Add | Verb::Check => true,
            // The namespace may be gone when its container is.
            Verb::Del | Verb::Status | Verb::Gc | Verb::Version => false,
        }
    }

    pub(super) fn needs_path(self) -> bool {
        match self {
            Verb::Add | Verb::Del | Verb::Check | Verb::Status | Verb::Gc => true,
            Verb::Version => false,
        }
    }
}
