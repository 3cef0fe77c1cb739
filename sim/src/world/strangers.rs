//! Nodes whose host files named another etcd until now: their marks are of its store. Wrong host files come one at a
//! time, so the first such machine fails alone. A store that was rebuilt elsewhere concerns many, so a second machine
//! makes the store suspect.

use metes_core::keys::Key;
use metes_core::known::HighWater;
use metes_core::pool::Record;
use metes_core::txn::{Op, Txn};
use metes_node::mark::MarkFile;

use super::World;
use super::ids::ProcessId;
use super::plan::Theme;
use super::wire::CLUSTER_ID;

/// The id of the store behind the other etcd.
const ELSEWHERE: &str = "0e15e";

impl World<'_> {
    /// The host file of a node is put right. At times a person takes the store into service after that, in place of the
    /// other one.
    pub(crate) fn come_from_elsewhere(&mut self) -> Result<(), String> {
        self.count("came from elsewhere");
        if self.chance.one_in(3)
            && let Some(mut meta) = self.tree.meta.clone()
            && meta.suspect.take().is_some()
        {
            meta.epoch += 1;
            meta.replace(ELSEWHERE);
            self.note(|| "a person accepts the store in place of the other one".to_owned());
            return self.by_hand(vec![Op::Put(self.shared.keys.meta(), meta.encode(), None)]);
        }
        let node = self.chance.index(self.nodes.len());
        self.note(|| format!("node {node} has used another etcd until now"));
        self.end_processes(node);
        self.forget_store(node);
        self.strangers.insert(self.nodes[node].boot.identity.machine.clone());
        let boot = &self.nodes[node].boot;
        let mark = MarkFile::new(&boot.folder, &boot.identity, &[ELSEWHERE.to_owned()]);
        let (store, etcd) = (ELSEWHERE.to_owned(), CLUSTER_ID + 1);
        mark.make(HighWater { store, epoch: 1, revision: 1, key: None, etcd, elsewhere: false });
        Ok(())
    }

    /// True if a node knows the other store, and not that this one is in its place.
    pub(crate) fn is_strange(&self, node: usize) -> bool {
        let known = self.nodes[node].mark().read().map(|mark| mark.seen);
        known.is_some_and(|known| {
            known.store == ELSEWHERE && known.contradicts(self.tree.meta.as_ref(), i64::MAX)
        })
    }

    /// What nobody may do where nodes came from elsewhere, and the store has forgotten nothing: give an address as such
    /// a node, or accuse the store as anybody else than a second such machine.
    pub(crate) fn is_too_bold(&self, process: ProcessId, txn: &Txn) -> Option<&'static str> {
        if self.plan.theme != Theme::Twins {
            return None;
        }
        // The requests of one that has ended are not judged: its node may have another mark by now.
        let node = self.process(process)?.node;
        let is_strange = || node.is_some_and(|node| self.is_strange(node));
        let keys = &self.shared.keys;
        let effects = self.model.path(txn).effects();
        let puts = |is_meant: &dyn Fn(&[u8]) -> bool| {
            effects.iter().any(|(_, op)| matches!(op, Op::Put(key, ..) if is_meant(key)))
        };
        if txn.step == "suspect" && puts(&|key| *key == keys.meta()) {
            let own = node.map(|node| self.nodes[node].boot.identity.machine.as_str());
            let is_second =
                is_strange() && self.strangers.iter().any(|machine| Some(machine.as_str()) != own);
            return (!is_second).then_some("a store was put under suspicion that has forgotten nothing");
        }
        // As a head, a DEL of this node may serve ADDs of nodes that know this store.
        let gives = matches!(txn.step, "commit" | "commit-first")
            && puts(&|key| matches!(keys.parse(key), Ok(Key::Owner(_))));
        (gives && is_strange()).then_some("a node that knows another store has given an address")
    }
}
