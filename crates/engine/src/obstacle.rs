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

/// An obstacle that may pass by itself.
impl<T: Into<String>> From<T> for Obstacle {
    fn from(what: T) -> Self {
        let what = what.into();
        let remedy = match what.contains(NO_ADDRESS) {
            true => "correct the name in `etcd.endpoints`, or let the DNS of this node resolve it",
            false => "check that etcd runs, and that this node reaches `etcd.endpoints`",
        };
        Self::new(what, remedy)
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}
