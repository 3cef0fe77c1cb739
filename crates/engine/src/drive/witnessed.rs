//! The part of the driver that compares the store's answers with its node's knowledge ([`metes_core::known`]).
//!
//! That knowledge is read again before each request, and the answer is judged by it. Only an acknowledged write proves
//! that a store has forgotten something: a read may be answered by a member that is behind.

use super::applied::AppliedAt;
use super::{Approach, Driver, Stopped};
use crate::endpoints;
use crate::kv::{Failure, Kv};
use crate::policy::WitnessRun;
use crate::prefix::{self, Doubt};
use metes_core::fence::Fence;
use metes_core::known::{HighWater, OwnKey, SeenAs, judged_by};
use metes_core::plan::change::Commit;
use metes_core::pool::{FIRST_EPOCH, Meta};
use metes_core::snapshot::Snapshot;
use metes_core::ticket::Ticket;
use metes_core::txn::{Compare, Entry, Op, Txn};

/// The log line if a suspect store cannot be marked. The run does not go on either.
const NOT_MARKED: &str = "the store has gone back, and cannot be marked as suspect now";

impl<K: Kv> Driver<'_, K> {
    /// Reads the node's knowledge, for the request that follows.
    pub(super) fn recall(&mut self) {
        self.known = self.policy.witness.as_ref().and_then(|witness| (witness.recall)());
    }

    /// The keys that an answer must show to be judged.
    pub(super) fn judged_by(&self) -> Vec<Op> {
        let own = self.policy.witness.as_ref().map(|witness| &witness.own_key);
        let keys = own.map(|own| judged_by(self.session.keys, own, self.known.as_ref()));
        keys.unwrap_or_default().into_iter().map(Op::Get).collect()
    }

    /// The store's epoch, as far as it is known.
    pub(super) fn epoch(&self, seen: &Snapshot) -> u64 {
        let meta = seen.record::<Meta>(&self.session.keys.meta()).ok().flatten();
        let known = self.known.as_ref().map(|known| known.epoch);
        meta.map(|meta| meta.epoch).or(known).unwrap_or(FIRST_EPOCH)
    }

    /// The node's key as a commit compares it in the store that was read; none where it compares none.
    fn compared_key(&self, seen: &Snapshot) -> Option<&OwnKey> {
        let meta = seen.record::<Meta>(&self.session.keys.meta()).ok().flatten()?;
        self.known.as_ref().filter(|_| !self.is_forgotten)?.key_in(&meta)
    }

    /// Lets a commit be applied only in a store in which the node's key is not older than it knows. A commit without a
    /// ticket also puts the key; a ticket has put it already.
    ///
    /// "Not older", not "as it was read": runs of one node are no contenders here.
    pub(super) fn add_own_key<D>(&self, commit: &mut Commit<D>, fence: &Fence, seen: &Snapshot) {
        let Some((own_key, value)) = self.own_key() else { return };
        self.compare_own_key(&mut commit.txn, seen);
        if matches!(fence, Fence::Lease { .. }) {
            commit.txn.then.push(Op::Put(own_key.clone(), value.clone(), None));
            commit.effects.puts_own_key = true;
        }
    }

    /// Lets a transaction that reserves for any run be applied only in a store in which the node's key is not older
    /// than it knows.
    pub(super) fn compare_own_key(&self, txn: &mut Txn, seen: &Snapshot) {
        if let Some(own) = self.compared_key(seen) {
            let name = own.name.clone().into_bytes();
            txn.compares.push(Compare::NotOlder(name, own.revision));
        }
        for read in self.judged_by() {
            if !txn.otherwise.contains(&read) {
                txn.otherwise.push(read);
            }
        }
    }

    /// The operation that puts the node's key beside a ticket, by what the node knows now. It is a transaction of its
    /// own inside: in a store that has gone back, the ticket is taken, which proves it, and the key stays as evidence.
    pub(super) fn own_key_beside_ticket(&self) -> Option<Op> {
        let (own_key, value) = self.own_key()?;
        let known = self.policy.witness.as_ref().and_then(|witness| (witness.recall)());
        let own = known.and_then(|known| known.key);
        let compares = own.map(|own| Compare::NotOlder(own.name.into_bytes(), own.revision));
        Some(Op::Nested(Box::new(Txn {
            step: "own-key",
            compares: compares.into_iter().collect(),
            then: vec![Op::Put(own_key.clone(), value.clone(), None)],
            ..Txn::default()
        })))
    }

    /// True if this run reserves for a node.
    fn reserves(&self) -> bool {
        self.own_key().is_some()
    }

    /// The node's key and its value, if this run puts it.
    fn own_key(&self) -> Option<(&Vec<u8>, &Vec<u8>)> {
        let witness = self.policy.witness.as_ref()?;
        match &witness.run {
            WitnessRun::Reserves(value) => Some((&witness.own_key, value)),
            WitnessRun::Frees | WitnessRun::FreesInSound => None,
        }
    }

    /// True if the store seems to have forgotten something that this node has seen.
    pub(super) fn is_doubtful(&self, seen: &Snapshot, revision: i64) -> bool {
        let judged = self.known.as_ref().map(|known| known.judge(self.session.keys, seen, revision));
        match judged {
            None | Some(SeenAs::Sound) => false,
            Some(SeenAs::KeyAbsent) => !self.is_forgotten,
            Some(SeenAs::Contradicts) => true,
        }
    }

    /// Notes what an answer shows of the store, for the node's mark.
    pub(super) fn witness(&mut self, seen: &Snapshot, revision: i64) {
        let Some(witness) = self.policy.witness.as_ref().filter(|_| self.suspect.is_none()) else { return };
        let keys = self.session.keys;
        let put = self.put_at.map(|at| OwnKey::new(&witness.own_key, at));
        let etcd = self.session.kv.cluster().unwrap_or_default();
        let shown = HighWater::shown(keys, seen, &witness.own_key, self.known.as_ref());
        self.seen_store = shown.map(|shown| {
            let key = put.or(shown.key);
            // The write that put the key made a revision, and `revision` may be the one before.
            let revision = key.as_ref().map_or(revision, |key| revision.max(key.revision));
            HighWater { revision, key, etcd, ..shown }
        });
    }

    /// Judges the answer to a write: to taking a ticket, or to a commit that was refused. A store that contradicts what
    /// the node knows is marked as suspect. `revision` is that of the store before the write.
    pub(super) async fn check_known<D, R>(
        &mut self,
        seen: &mut Snapshot,
        revision: i64,
    ) -> Result<(), Stopped<D, R>> {
        if !self.is_doubtful(seen, revision) {
            self.witness(seen, revision);
            return Ok(());
        }
        if !self.reserves() {
            return self.confirm(seen).await;
        }
        let Some(known) = self.known.clone() else { return Ok(()) };
        if self.is_key_forgotten(&known, seen, revision).await? {
            return Ok(());
        }
        self.turn_to_sound(&known, seen).await?;
        match self.accuse(seen, &known).await {
            Ok(Some(doubt)) => Err(Stopped::Suspect(doubt)),
            Ok(None) => Ok(()),
            Err(why) => {
                tracing::warn!(%why, "{NOT_MARKED}");
                Err(Stopped::Suspect(Doubt::Suspect(known.epoch)))
            }
        }
    }

    async fn accuse(&self, seen: &Snapshot, known: &HighWater) -> Result<Option<Doubt>, Failure> {
        let own_key = self.policy.witness.as_ref().map(|witness| witness.own_key.as_slice());
        prefix::accuse(self.session, seen, known, own_key.unwrap_or_default()).await
    }

    /// True if another endpoint shows a store that contradicts nothing. From here on only such are asked.
    async fn is_sound_elsewhere(&self, known: &HighWater) -> bool {
        let own_key = self.policy.witness.as_ref().map(|witness| witness.own_key.as_slice());
        endpoints::is_sound_elsewhere(self.session, known, own_key.unwrap_or_default()).await
    }

    /// Before the store is accused: ends the attempt if another endpoint shows a sound one. What was read and granted
    /// here counts for nothing there, so the next attempt begins as after the end of its lease.
    async fn turn_to_sound<D, R>(
        &mut self,
        known: &HighWater,
        seen: &mut Snapshot,
    ) -> Result<(), Stopped<D, R>> {
        if !self.is_sound_elsewhere(known).await {
            return Ok(());
        }
        *seen = Snapshot::default();
        self.approach = Approach::Look;
        Err(Stopped::Failed(Failure::LeaseNotFound))
    }

    /// True if the node's key is gone because a pass has deleted it.
    async fn is_key_forgotten(
        &mut self,
        known: &HighWater,
        seen: &mut Snapshot,
        revision: i64,
    ) -> Result<bool, Failure> {
        if known.judge(self.session.keys, seen, revision) != SeenAs::KeyAbsent {
            return Ok(false);
        }
        self.session.read(&[self.session.keys.forgotten()], seen).await?;
        self.is_forgotten = known.is_forgotten(self.session.keys, seen);
        Ok(self.is_forgotten)
    }

    /// A free has read a store that seems to have forgotten something. It asks once more by a request that is a write
    /// to etcd and changes nothing. If the store is marked as suspect then, a DEL goes on; what was spooled waits.
    pub(super) async fn confirm<D, R>(&mut self, seen: &mut Snapshot) -> Result<(), Stopped<D, R>> {
        if self.suspect.is_some() {
            return Ok(());
        }
        self.recall();
        let txn = confirmation(self.session.keys.root(), self.judged_by());
        let reply = self.session.txn(&txn).await?;
        seen.absorb(txn.branch(reply.succeeded), &reply);
        let Some(known) = self.known.clone().filter(|_| self.is_doubtful(seen, reply.revision)) else {
            return Ok(());
        };
        if self.is_key_forgotten(&known, seen, reply.revision).await? {
            return Ok(());
        }
        self.turn_to_sound(&known, seen).await?;
        let suspect = match self.accuse(seen, &known).await {
            Ok(doubt) => Stopped::Suspect(doubt.unwrap_or(Doubt::Suspect(known.epoch))),
            Err(why) => {
                let why =
                    format!("the store is not the one that this node knows, and cannot be marked so: {why}");
                return Err(Stopped::Failed(Failure::Unknown(why)));
            }
        };
        match self.policy.witness.as_ref().map(|witness| &witness.run) {
            Some(WitnessRun::Frees) => {
                self.suspect = Some(known.epoch);
                Ok(())
            }
            _ => Err(suspect),
        }
    }

    /// A commit was applied, by this run or for it. Only now is it certain that the store which applied
    /// it has forgotten nothing.
    pub(super) async fn acknowledge_store<D, R>(
        &mut self,
        AppliedAt { revision, least }: AppliedAt,
        seen: &mut Snapshot,
    ) -> Result<(), Stopped<D, R>> {
        // A free compares what it frees, and may have written nothing.
        if !self.reserves() || !self.is_doubtful(seen, least) {
            self.witness(seen, revision);
            return Ok(());
        }
        let Some(known) = self.known.clone() else { return Ok(()) };
        // What was applied in a store that has forgotten something stays there, and nobody has heard of it.
        self.turn_to_sound(&known, seen).await?;
        self.may_be_served = true;
        let accused = async {
            self.session.read(&[self.session.keys.meta()], seen).await?;
            self.accuse(seen, &known).await
        };
        Err(Stopped::Suspect(match accused.await {
            Ok(doubt) => doubt.unwrap_or(Doubt::Suspect(known.epoch)),
            Err(why) => {
                tracing::warn!(%why, "{NOT_MARKED}");
                Doubt::Suspect(known.epoch)
            }
        }))
    }

    /// The node's key was put beside the ticket, after it was read there.
    pub(super) fn has_put_beside(&mut self, ticket: &Ticket, seen: &mut Snapshot) {
        let Some((key, value)) = self.own_key().map(|(key, value)| (key.clone(), value.clone())) else {
            return;
        };
        let revision = ticket.create_revision;
        let entry = Entry { key, value, create_revision: revision, mod_revision: revision, lease: 0 };
        seen.set(&entry.key.clone(), Some(entry));
        self.put_at = Some(revision);
    }
}

/// A request that etcd carries out as a write, and that changes nothing: no key has the name of the root.
fn confirmation(root: Vec<u8>, reads: Vec<Op>) -> Txn {
    let then = reads.into_iter().chain([Op::Delete(root)]).collect();
    Txn { step: "confirm", then, ..Txn::default() }
}
