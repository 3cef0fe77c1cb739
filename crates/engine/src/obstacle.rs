//! Why a store does not serve this client, in words for people, with the remedy. Pure.

use std::fmt;

/// An obstacle with its remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Obstacle {
    /// The obstacle.
    pub what: String,
    /// The remedy.
    pub remedy: String,
}

impl Obstacle {
    /// An obstacle with its remedy.
    pub fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what: what.into(), remedy: remedy.into() }
    }

    /// Both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self::new(format!("{}; {}", self.what, other.what), format!("{}; {}", self.remedy, other.remedy))
    }
}

/// What the standard library says before the words of the resolver.
const NO_ADDRESS: &str = "failed to lookup address information";
/// What is said of an endpoint that is named by a name and does not answer: nothing tells whether it was resolved.
pub const NOT_RESOLVED: &str = ", or its name was not resolved";

/// An obstacle that may pass by itself.
impl<T: Into<String>> From<T> for Obstacle {
    fn from(what: T) -> Self {
        let what = what.into();
        let remedy = if what.contains(NO_ADDRESS) {
            "correct the name in `etcd.endpoints`, or let the DNS of this node resolve it"
        } else if what.contains(NOT_RESOLVED) {
            "check that etcd runs, and that this node resolves and reaches `etcd.endpoints`"
        } else {
            "check that etcd runs, and that this node reaches `etcd.endpoints`"
        };
        Self::new(what, remedy)
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}
