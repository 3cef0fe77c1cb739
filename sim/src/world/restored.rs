//! A store that goes back to a snapshot, with and without a raised revision, and the knowledge of its nodes then.
//!
//! Other nodes may use it beyond every revision that a node has seen, before that node comes back. The node's own key
//! tells it all the same.

use metes_core::keys::Key;
use metes_core::known::HighWater;
use metes_core::pool::{Forgotten, Owner, Record};
use metes_core::txn::{Compare, Op, Txn};

use super::World;
use super::cluster::Node;
use super::ids::ProcessId;
use super::plan::Theme;
use super::process::Work;
use super::wire::{Ask, Sent};

impl World<'_> {
    /// Takes a snapshot of the store, or brings it back to the one that was taken.
    pub(crate) fn snapshot_or_restore(&mut self) -> Result<(), String> {
        match self.snapshot.take() {
            None => {
                self.count("snapshot");
                let revision = self.model.revision();
                self.note(|| format!("a snapshot is taken at revision {revision}"));
                self.snapshot = Some((self.model.clone(), self.tree.clone()));
                Ok(())
            }
            Some(snapshot) => self.restore(snapshot),
        }
    }

    /// The old store has stopped: all requests on their way there are lost.
    fn restore(&mut self, (model, tree): (crate::store::Model, super::tree::Tree)) -> Result<(), String> {
        self.count("restored");
        let bump = *self.chance.pick(&[0, 0, 1_000]);
        self.note(|| format!("the store goes back to revision {} and {bump} more", model.revision()));
        for step in self.steps.iter_mut().chain(self.held.iter_mut().map(|(_, step)| step)) {
            step.lose();
        }
        let watches: Vec<_> = self.watches.iter().map(|watch| watch.id()).collect();
        watches.into_iter().for_each(|watch| self.end_watch(watch));
        // Addresses that are in use may be given to others, by nodes that know nothing else.
        for id in 0..self.truth.sandboxes.len() {
            self.truth.end(id);
            self.truth.sandboxes[id].freed = 0;
        }
        let under_way = self.processes.iter().map(|process| process.id);
        self.truth.excused.extend(under_way);
        self.truth.restored_at = self.shared.now();
        // They have judged the store that was there.
        self.doubting.clear();
        // Processes have seen revisions that the store does not know any more.
        self.seen = None;
        self.model.restore(&model, bump);
        self.watched = self.model.revision();
        self.tree.go_back(tree, self.model.revision());
        let owners: Vec<Owner> = self.tree.owners.keys().cloned().collect();
        owners.iter().for_each(|owner| self.tree.spoil(owner));
        Ok(())
    }

    /// True if Kubernetes has no such node just now. No container runs on such a node.
    pub(crate) fn is_absent(&self, node: &Node) -> bool {
        let turn = self.shared.now().as_millis() / 64;
        let runs_none = || {
            let mut there = self.truth.sandboxes.iter().filter(|sandbox| sandbox.node == node.number);
            node.is_ready && there.all(|sandbox| sandbox.live.is_none())
        };
        self.plan.theme == Theme::Restored && (turn + node.number as u128).is_multiple_of(3) && runs_none()
    }

    /// The store as the node of a process knows it, where that is judged.
    pub(crate) fn known_to(&self, process: ProcessId) -> Option<HighWater> {
        if self.plan.theme != Theme::Restored || self.is_healing {
            return None;
        }
        let node = self.process(process)?.node?;
        Some(self.nodes[node].mark().read()?.seen)
    }

    /// The store as the node of a process knows it, where its request is judged by that. An accusation is, if the
    /// node's key is the evidence. If the store's revision is the evidence, no compare tells one copy of a store from
    /// another.
    pub(crate) fn known_at(&self, sent: &Sent) -> Option<HighWater> {
        let is_judged = match &sent.ask {
            Ask::Txn(txn) if txn.step == "suspect" => {
                txn.compares.iter().any(|compare| matches!(compare, Compare::Older(..)))
            }
            _ => true,
        };
        self.known_to(sent.process).filter(|_| is_judged)
    }

    /// True if the present store contradicts that, by its meta and by the node's key.
    fn contradicts(&self, known: &HighWater) -> bool {
        // A commit compares no revision of the store; its answer is judged by that.
        known.contradicts(self.tree.meta.as_ref(), i64::MAX) || self.older_key(known).is_some()
    }

    /// The node's own key, if it is older than the node knows it.
    fn older_key<'k>(&self, known: &'k HighWater) -> Option<&'k [u8]> {
        let own = self.tree.meta.as_ref().and_then(|meta| known.key_in(meta))?;
        let found = self.model.entry(own.name.as_bytes()).map_or(0, |key| key.mod_revision);
        let is_forgotten = found == 0 && own.revision <= self.forgotten();
        (found < own.revision && !is_forgotten).then_some(own.name.as_bytes())
    }

    /// The highest mod revision of a node's key that a pass has deleted.
    fn forgotten(&self) -> i64 {
        let entry = self.model.entry(&self.shared.keys.forgotten());
        entry.and_then(|entry| Forgotten::decode(&entry.value).ok()).map_or(0, |forgotten| forgotten.revision)
    }

    /// No commit of an ADD takes effect in a store that its node knows otherwise, and no free by hints. If the node's
    /// own key tells that, an ADD frees nothing there either, and no run of the node destroys the evidence by putting
    /// the key. If the key was the evidence, and is not any more, nobody accuses the store. `known` is the store as the
    /// node knew it when the transaction was sent.
    pub(crate) fn forgets(&self, known: Option<&HighWater>, txn: &Txn) -> Option<String> {
        let known = known?;
        let effects = self.model.path(txn).effects();
        let keys = &self.shared.keys;
        let puts = |is_meant: &dyn Fn(&[u8]) -> bool| {
            effects.iter().any(|(_, op)| matches!(op, Op::Put(key, ..) if is_meant(key)))
        };
        let is_record = |key: &[u8]| matches!(keys.parse(key), Ok(Key::Owner(_)));
        let older = self.older_key(known);
        if txn.step == "suspect" {
            // If a pass has deleted the key, the store's revision may tell it.
            let own = self.tree.meta.as_ref().and_then(|meta| known.key_in(meta));
            let tells = own.is_some_and(|own| self.model.entry(own.name.as_bytes()).is_some());
            let is_wrong = tells && older.is_none() && puts(&|key| *key == keys.meta());
            return is_wrong.then(|| "a store that has forgotten nothing was put under suspicion".to_owned());
        }
        if puts(&|key| Some(key) == older) {
            return Some("the key of a node was put over an older one".to_owned());
        }
        let frees = |meant: &str| {
            effects.iter().any(|(step, op)| *step == meant && matches!(op, Op::Delete(key) if is_record(key)))
        };
        if older.is_some() && frees("free-first") {
            return Some("an ADD has freed in a store that its node knows otherwise".to_owned());
        }
        let is_known = self.tree.meta.as_ref().is_some_and(|meta| known.is_of(meta)) && older.is_none();
        if !is_known && frees("free-hinted") {
            return Some("a DEL has freed by hints in a store that its node knows otherwise".to_owned());
        }
        let reserves = matches!(txn.step, "commit" | "commit-first" | "batch") && puts(&is_record);
        (reserves && self.contradicts(known))
            .then(|| "an ADD took effect in a store that its node knows otherwise".to_owned())
    }

    /// A DEL that has begun in a store which its node knows otherwise stays spooled, unless that store has been taken
    /// into service since.
    pub(crate) fn note_doubt(&mut self, process: ProcessId) {
        if let Some(known) = self.known_to(process)
            && self.contradicts(&known)
        {
            self.doubting.insert(process);
        }
    }

    /// When the DEL sent this request, its node did not know the store otherwise: the store was taken into service
    /// since the DEL began. An older run of the node may still tell the node of the store that was there before.
    pub(crate) fn note_trust(&mut self, process: ProcessId, known: Option<&HighWater>) {
        if known.is_some_and(|known| !self.contradicts(known)) {
            self.doubting.remove(&process);
        }
    }

    /// True if a DEL that has freed should have stayed in the spool.
    pub(crate) fn forgets_to_spool(&self, process: ProcessId) -> bool {
        let is_del = matches!(self.process(process).map(|process| &process.work), Some(Work::Del { .. }));
        is_del
            && self.doubting.contains(&process)
            && self.known_to(process).is_some_and(|known| self.contradicts(&known))
    }
}
