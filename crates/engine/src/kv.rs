//! A store, as the verbs see it: its requests, and the ways in which they fail.
//!
//! The interface is narrow, so that a model can replace etcd in tests of failures that cannot be provoked in a real
//! etcd.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

use super::obstacle::Obstacle;
use metes_core::keys::{Bytes, LeaseId};
use metes_core::limits;
use metes_core::txn::{Entry, Reply, Txn};

/// A store that behaves like etcd.
pub trait Kv {
    /// A watch on some keys.
    type Watch: Watch;

    /// Connects if there is no connection yet. Then requests that are sent at the same time travel at the same time,
    /// and an etcd that cannot be reached is tried only once for all of them.
    ///
    /// # Errors
    /// [`Failure`], never an open one: no request was sent.
    fn connect(&self, until: Instant) -> impl Future<Output = Result<(), Failure>>;

    /// Carries out a transaction.
    ///
    /// A transaction that only reads is tried on every endpoint until `until`. One that writes
    /// is sent again only while it is certain that no attempt was applied.
    fn txn(&self, txn: &Txn, until: Instant) -> impl Future<Output = Result<Reply, Failure>>;

    /// Grants a lease of `ttl` (whole seconds) under an id of the caller's choice. Returns the time for which it was
    /// granted: etcd may have made that longer.
    fn grant(
        &self,
        lease: LeaseId,
        ttl: Duration,
        until: Instant,
    ) -> impl Future<Output = Result<Duration, Failure>>;

    /// Ends a lease and deletes the keys on it. A lease that has ended already is no failure. The request is repeated
    /// until it is answered, because only the answer makes it certain.
    fn revoke(&self, lease: LeaseId, until: Instant) -> impl Future<Output = Result<(), Failure>>;

    /// The age of a lease and its remaining time; none if it has ended.
    fn lease_age(
        &self,
        lease: LeaseId,
        until: Instant,
    ) -> impl Future<Output = Result<Option<LeaseAge>, Failure>>;

    /// Opens a watch on each of `keys` from now on, on one stream, and returns when the store has confirmed all of
    /// them.
    fn watch(&self, keys: &[Bytes], until: Instant) -> impl Future<Output = Result<Self::Watch, Failure>>;

    /// The status of the member that answers.
    fn about(&self, until: Instant) -> impl Future<Output = Result<About, Failure>>;

    /// Sets the id of the etcd that this node knows; 0 for none. A read that another etcd answers goes on to the next
    /// endpoint.
    fn expect(&self, cluster: u64);

    /// The id of the etcd whose answers count for this run; none before its first answer.
    fn cluster(&self) -> Option<u64>;

    /// True if an endpoint has refused this client, or is of another etcd than the one that counts. Else a request
    /// without an answer shows nothing but that no member has answered in time.
    fn has_refused(&self) -> bool;

    /// The endpoints of the store, as people name them.
    fn endpoints(&self) -> Vec<String>;

    /// Lets each endpoint by itself carry out these reads, which its etcd's quorum must confirm. `hear` gets the place
    /// of an endpoint and its answer, and says until when to wait for the others; none if that is enough.
    ///
    /// A store with one endpoint answers like to any read.
    fn ask_each(&self, reads: &Txn, until: Instant, hear: &mut Hear<'_>) -> impl Future<Output = ()> {
        async move {
            let answer = self.txn(reads, until).await;
            let cluster = self.cluster().unwrap_or_default();
            hear(0, answer.map(|reply| Voice { cluster, member: 0, reply }));
        }
    }

    /// Sends nothing more to the endpoints at these places. A store with one endpoint has no other.
    fn leave_out(&self, _places: &[usize]) {}
}

/// The answer of one endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Voice {
    /// The id of its etcd.
    pub cluster: u64,
    /// The id of its member.
    pub member: u64,
    /// What it has read.
    pub reply: Reply,
}

/// Hears what the endpoint at a place answers, and says until when the others are waited for.
pub type Hear<'h> = dyn FnMut(usize, Result<Voice, Failure>) -> Option<Instant> + 'h;

/// Open watches on some keys.
pub trait Watch {
    /// The largest revision that a confirmation of these watches named: every change after it will be shown, unless the
    /// watch ends before. Watches are confirmed one after the other, so earlier changes of some keys may be shown, too.
    /// The member that has confirmed may be behind the others.
    fn since(&self) -> i64;

    /// Waits for the next change. None if the watch has ended for any reason, or if one of the keys is not watched.
    /// Then the caller reads the keys again. Changes of one key come in order.
    fn next(&mut self) -> impl Future<Output = Option<Event>>;
}

/// A change of a watched key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The key.
    pub key: Bytes,
    /// Its entry after the change; none if it was deleted.
    pub entry: Option<Entry>,
}

/// A lease's age by etcd's clock, which all runs share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseAge {
    /// The time for which it was granted.
    pub granted: Duration,
    /// The time that is left of it. A new leader of etcd starts all leases again. So an age may be too small, never too
    /// large.
    pub left: Duration,
}

impl LeaseAge {
    /// The time since the lease was granted, at least.
    #[must_use]
    pub fn age(self) -> Duration {
        self.granted.saturating_sub(self.left)
    }
}

/// The status of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// Its version, like `3.6.14`.
    pub version: String,
    /// Alarms and other trouble that it reports.
    pub errors: Vec<String>,
    /// The id of its cluster.
    pub cluster: u64,
    /// Its own id.
    pub member: u64,
    /// The id of the member that leads; 0 if it knows none.
    pub leader: u64,
}

/// The oldest etcd that metes works with. Before 3.5.5 a single member that crashes may lose a write that it has
/// acknowledged (etcd's issue 14370). Before 3.5.6 members that crash while they are defragmented may have different
/// revisions afterwards (14685).
const OLDEST_ETCD: (u32, u32, u32) = (3, 5, 6);

/// The oldest release line that still gets corrections: etcd's project maintains the newest line and the one before,
/// and 3.7 is out.
const MAINTAINED_ETCD: (u32, u32) = (3, 6);

/// The alarms under which etcd refuses writes, each with its remedy for an operator.
const REFUSES_WRITES: [(&str, &str); 2] =
    [("NOSPACE", "compact and defragment etcd, then clear its alarm"), ("CORRUPT", REPLACE_MEMBER)];

impl About {
    /// True if it knows a leader.
    #[must_use]
    pub fn has_leader(&self) -> bool {
        self.leader != 0
    }

    /// The alarm under which it refuses writes, in etcd's words, with the remedy for an operator.
    #[must_use]
    pub fn refuses_writes(&self) -> Option<(&str, &'static str)> {
        REFUSES_WRITES.iter().find_map(|(alarm, remedy)| {
            let told = self.errors.iter().find(|error| error.contains(alarm))?;
            Some((told.trim(), *remedy))
        })
    }

    /// The reason why an etcd of this version cannot be used; none if it can. A version that cannot be parsed counts as
    /// a new one.
    #[must_use]
    pub fn too_old(&self) -> Option<String> {
        let (major, minor, patch) = self.parsed_version()?;
        ((major, minor, patch) < OLDEST_ETCD).then(|| {
            let (major, minor, patch) = OLDEST_ETCD;
            format!("etcd {} is too old: metes needs {major}.{minor}.{patch} or newer", self.version)
        })
    }

    /// A sentence if this version gets no corrections any more; none if it does, or if it cannot be parsed.
    #[must_use]
    pub fn unmaintained(&self) -> Option<String> {
        let (major, minor, _) = self.parsed_version()?;
        ((major, minor) < MAINTAINED_ETCD)
            .then(|| format!("etcd {} is of a release line that gets no fixes any more", self.version))
    }

    /// The parts of its version. A patch that is no number counts as the last one of its line.
    fn parsed_version(&self) -> Option<(u32, u32, u32)> {
        let mut parts = self.version.split('.').map(|part| part.parse::<u32>().ok());
        let (major, minor) = (parts.next()??, parts.next()??);
        Some((major, minor, parts.next().flatten().unwrap_or(u32::MAX)))
    }
}

/// The remedy for members of etcd that do not have the same data.
const REPLACE_MEMBER: &str = "replace the member whose data differ, then clear etcd's alarm";

/// The reason why a request failed. The kinds differ in their meaning for the sender.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Certainly not applied: no endpoint could be reached, or none would take it in time.
    #[error("etcd cannot be reached: {0}")]
    Unreachable(Obstacle),
    /// It is not known whether it was applied: there was no answer, or the answer does not tell.
    #[error("etcd did not answer: {0}")]
    Unknown(String),
    /// etcd is out of space. A write may still have been applied.
    #[error("etcd is out of space: {0}")]
    NoSpace(String),
    /// Certainly not applied: etcd takes no writes, because its members do not have the same data.
    #[error("etcd takes no writes: {0}")]
    Corrupt(String),
    /// Certainly not applied: the lease does not exist (yet, or any more).
    #[error("the lease does not exist")]
    LeaseNotFound,
    /// Not granted: a lease with this id exists.
    #[error("the lease exists already")]
    LeaseExists,
    /// Granted, but for this time, which is too long for a commit.
    #[error(
        "etcd granted {} s for a lease of {} s, and a commit of an ADD hangs on {} s at most",
        .0.as_secs(), limits::FENCE_TTL.as_secs(), limits::FENCE_MOST.as_secs()
    )]
    LongLease(Duration),
    /// Certainly not applied: etcd does not allow it to this user, or does not know the user.
    #[error("etcd denies permission: {0}")]
    Denied(Obstacle),
    /// Certainly not applied: beyond a limit of etcd's, or refused for another reason.
    #[error("etcd refuses the request: {0}")]
    Refused(String),
    /// The revision that was asked for has been compacted.
    #[error("the revision was compacted while it was read")]
    Compacted,
}

impl Failure {
    /// True if the request may have been applied, or may still be applied.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self, Failure::Unknown(_) | Failure::NoSpace(_))
    }

    /// The remedy, in the words of all programs.
    #[must_use]
    pub fn remedy(&self) -> &str {
        match self {
            Failure::Unreachable(obstacle) | Failure::Denied(obstacle) => &obstacle.remedy,
            Failure::Unknown(_) | Failure::LeaseNotFound | Failure::LeaseExists => {
                "etcd is slow or without a leader; the request may be repeated"
            }
            Failure::LongLease(_) => {
                "etcd makes each lease as long as one and a half of its --election-timeout: lower that"
            }
            Failure::Compacted => "etcd compacts faster than the tree can be read: try again",
            Failure::NoSpace(_) => {
                "compact and defragment etcd, then clear its alarm; DEL and GC work meanwhile"
            }
            Failure::Corrupt(_) => REPLACE_MEMBER,
            Failure::Refused(_) => {
                "etcd's --max-txn-ops must be at least 128 and --max-request-bytes 1.5 MiB, their defaults"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(version: &str) -> About {
        About { version: version.to_owned(), errors: Vec::new(), cluster: 1, member: 2, leader: 2 }
    }

    #[test]
    fn old_versions_are_told_from_new_ones() {
        for old in ["3.4.30", "3.3.0", "2.3.8", "3.5.0", "3.5.5"] {
            let text = about(old).too_old().unwrap_or_else(|| panic!("accepted: {old}"));
            assert!(text.contains(old) && text.contains("3.5.6 or newer"), "{text}");
        }
        for fine in ["3.5.6", "3.5.35", "3.6.0", "3.6.14", "3.8.0-alpha.0", "4.0.0", "", "unknown"] {
            assert!(about(fine).too_old().is_none(), "{fine}");
        }
    }

    #[test]
    fn release_lines_without_corrections_are_told() {
        for old in ["3.4.44", "3.5.6", "3.5.35"] {
            assert!(about(old).unmaintained().is_some_and(|text| text.contains(old)), "{old}");
        }
        for fine in ["3.6.0", "3.7.1", "4.0.0", "unknown"] {
            assert!(about(fine).unmaintained().is_none(), "{fine}");
        }
    }
}
