//! An applied commit, as its answer shows it.

use super::Acknowledged;
use metes_core::keys::Scope;
use metes_core::plan::change::Commit;
use metes_core::txn::{Entry, Op, Reply};

/// An applied commit, as far as the answer tells it.
pub(super) struct Applied {
    pub(super) at: AppliedAt,
    pub(super) puts_own_key: bool,
    pub(super) noted: Acknowledged,
}

/// The revision of an applied commit.
#[derive(Debug, Clone, Copy)]
pub(super) struct AppliedAt {
    /// The store's revision when the commit was applied, or a later one.
    pub(super) revision: i64,
    /// The latest revision that the node can have known in a sound store when it sent the request that was answered.
    pub(super) least: i64,
}

impl Applied {
    /// By this run's own write, of the pages of `scope`.
    pub(super) fn own<D>(scope: Option<&Scope>, commit: &Commit<D>, reply: &Reply) -> Self {
        let Commit { txn, effects, proof, .. } = commit;
        let at = AppliedAt { revision: reply.revision, least: before(reply.revision) };
        let proof = txn.then.iter().find_map(|op| match op {
            Op::Put(key, value, _) if key == proof => Some(Entry {
                key: key.clone(),
                value: value.clone(),
                create_revision: reply.revision,
                mod_revision: reply.revision,
                lease: 0,
            }),
            _ => None,
        });
        let stray = effects.outcome(&reply.found).stray;
        let noted = Acknowledged { scope: scope.cloned(), asked: effects.asked.clone(), proof, stray };
        Self { at, puts_own_key: effects.puts_own_key, noted }
    }

    /// A later request has found the proof of the commit, at this revision.
    pub(super) fn found(proof: Option<Entry>, revision: i64) -> Self {
        Self::by_proof(proof, AppliedAt { revision, least: revision })
    }

    /// A watch has shown the commit, perhaps before the node learned what it knows now. So this is not judged: the
    /// answer to the ticket was.
    pub(super) fn shown(proof: &Entry) -> Self {
        Self::by_proof(Some(proof.clone()), AppliedAt { revision: proof.mod_revision, least: i64::MAX })
    }

    /// It was not seen to be this run's own, so its pages are not known.
    fn by_proof(proof: Option<Entry>, at: AppliedAt) -> Self {
        let noted = Acknowledged { scope: None, asked: None, proof, stray: Vec::new() };
        Self { at, puts_own_key: false, noted }
    }
}

/// The latest revision that anybody can have seen before a write that was applied at `revision`: each write makes a new
/// one.
pub(super) fn before(revision: i64) -> i64 {
    revision - 1
}
