//! Follows all changes of a prefix, for people who watch.

use std::future::Future;

use tokio::time::Instant;

use super::kv::Failure;
use metes_core::keys::Bytes;

/// A store whose changes can be followed from a revision on.
pub trait Follow {
    /// The changes.
    type Changes: Changes;

    /// Follows all keys that begin with `prefix`, from revision `from` on.
    fn follow(
        &self,
        prefix: &Bytes,
        from: i64,
        until: Instant,
    ) -> impl Future<Output = Result<Self::Changes, Failure>>;
}

/// A stream of changes.
pub trait Changes {
    /// The next changes, in their order; some of one revision may follow later.
    ///
    /// # Errors
    /// [`FollowEnd`]; then nothing more comes.
    fn next(&mut self) -> impl Future<Output = Result<Vec<KeyChange>, FollowEnd>>;
}

/// One key that was written or deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyChange {
    /// The revision that did it.
    pub revision: i64,
    /// The key.
    pub key: Bytes,
    /// Its value before; none if it did not exist, or if that is compacted already.
    pub before: Option<Vec<u8>>,
    /// Its value since; none if it was deleted.
    pub after: Option<Vec<u8>>,
}

/// Why no more changes come.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FollowEnd {
    /// The connection was lost.
    #[error("the connection to etcd was lost")]
    Lost,
    /// The changes that were asked for are compacted: only those from this revision on are left.
    #[error("etcd has compacted all revisions before {0}")]
    Compacted(i64),
}
