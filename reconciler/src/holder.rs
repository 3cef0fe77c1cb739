//! What the verdict needs to know of an owner that holds addresses.

use std::rc::Rc;

use metes::pool::record::{Owner, Pod};

/// An owner with its record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Who.
    pub owner: Owner,
    /// The mod revision of its record: what a free compares.
    pub revision: i64,
    /// What its record says; none if it does not decode.
    pub record: Option<Summary>,
}

/// What counts of an owner record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Whose pods it is to be judged by.
    pub stamp: Stamp,
    /// Its pod, as far as it is known.
    pub pod: Pod,
    /// The boot that it was reserved in; none in adopted records.
    pub boot: Option<Rc<str>>,
    /// Whether the pod index names another owner for every network that it holds an address in.
    pub replaced: bool,
}

/// Whose cluster's pods can speak for a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stamp {
    /// This cluster's.
    Ours,
    /// Another's.
    Other,
    /// Nobody knows.
    None,
}

impl Stamp {
    /// What the cluster's name on a record means in cluster `ours`.
    #[must_use]
    pub fn of(stamped: &str, ours: &str) -> Self {
        match stamped {
            "" => Stamp::None,
            _ if stamped == ours => Stamp::Ours,
            _ => Stamp::Other,
        }
    }
}
