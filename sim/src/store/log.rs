//! The last changes, the newest at the end: a read in the past undoes them, and a watch shows them.

use std::collections::VecDeque;

use super::{Key, Record};

/// A key that was written or deleted.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) revision: i64,
    pub(super) key: Key,
    /// The record that was there before.
    pub(super) before: Option<Record>,
}

/// The reach of a compaction, and the newest revision then. A member that is behind has not done it yet.
#[derive(Debug, Clone, Copy)]
struct Compaction {
    at: i64,
    to: i64,
}

/// The changes that are kept.
#[derive(Debug, Clone)]
pub(super) struct Log {
    changes: VecDeque<Change>,
    most: usize,
    /// The newest revision of which a change was dropped: the oldest that can be read.
    oldest: i64,
    compactions: Vec<Compaction>,
}

impl Log {
    pub(super) fn new(most: usize) -> Self {
        Self { changes: VecDeque::new(), most, oldest: 1, compactions: Vec::new() }
    }

    pub(super) fn push(&mut self, change: Change) {
        self.changes.push_back(change);
    }

    /// Drops the oldest changes if there are too many, whole revisions only.
    pub(super) fn trim(&mut self) {
        while self.changes.len() > self.most
            && let Some(first) = self.changes.pop_front()
        {
            self.oldest = first.revision;
            while self.changes.front().is_some_and(|next| next.revision == first.revision) {
                self.changes.pop_front();
            }
        }
        self.compactions.retain(|compaction| compaction.to > self.oldest);
    }

    /// The revision of the newest change.
    pub(super) fn newest(&self) -> i64 {
        self.changes.back().map_or(self.oldest, |change| change.revision)
    }

    pub(super) fn oldest(&self) -> i64 {
        self.oldest
    }

    /// The changes after `revision`, the oldest first.
    pub(super) fn after(&self, revision: i64) -> impl DoubleEndedIterator<Item = &Change> {
        let newest_are_meant = self.newest() <= revision;
        let first = if newest_are_meant {
            self.changes.len()
        } else {
            self.changes.partition_point(|change| change.revision <= revision)
        };
        self.changes.range(first..)
    }

    /// Notes a compaction to `to` while `at` is the newest revision.
    pub(super) fn compact(&mut self, at: i64, to: i64) {
        if to > self.compacted_at(at) {
            self.compactions.push(Compaction { at, to });
        }
    }

    /// The oldest revision that can be read at a member that has come as far as `revision`.
    pub(super) fn compacted_at(&self, revision: i64) -> i64 {
        // Before the first compaction etcd has -1, and nobody can ask for less than revision 1.
        let kept = if self.oldest > 1 { self.oldest } else { -1 };
        let done = self.compactions.iter().filter(|compaction| compaction.at <= revision);
        done.map(|compaction| compaction.to).max().unwrap_or(kept).max(kept)
    }
}
