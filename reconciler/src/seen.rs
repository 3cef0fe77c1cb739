//! The nodes that the cluster's Kubernetes has had: one key for each, without a lease.
//!
//! If a node was deleted, its pods are gone too. If a node never existed, its name is wrong, or it belongs to another
//! cluster with the same name. Then it means nothing that its pods are missing. The keys separate the two cases.

use std::collections::{BTreeSet, HashSet};

use metes_core::keys::Key;
use metes_core::pool::{NodeName, Record, SeenNode};
use metes_core::txn::{Entry, Op};
use metes_engine::kv::{Failure, Kv};
use metes_engine::walk::walk;

use crate::sightings::Memory;
use crate::world::Nodes;

/// The nodes that earlier passes wrote down.
#[derive(Debug, Default)]
pub(crate) struct SeenNodes {
    names: BTreeSet<NodeName>,
    /// Keys whose values do not decode. They say nothing and are left alone.
    undecodable: BTreeSet<NodeName>,
}

impl SeenNodes {
    pub(crate) fn names(&self) -> impl Iterator<Item = &NodeName> {
        self.names.iter()
    }
}

impl<K: Kv> Memory<'_, K> {
    /// Reads which nodes earlier passes saw.
    pub(crate) async fn recall_nodes(&self) -> Result<SeenNodes, Failure> {
        let prefix = self.session.keys.seen_nodes(self.cluster);
        let see = |seen: &mut SeenNodes, entry: Entry| {
            let Ok(Key::Seen(_, node)) = self.session.keys.parse(&entry.key) else { return };
            let names = match SeenNode::decode(&entry.value) {
                Ok(_) => &mut seen.names,
                Err(_) => &mut seen.undecodable,
            };
            names.insert(node);
        };
        walk(self.session, &prefix, SeenNodes::default, see).await.map(|(seen, _)| seen)
    }

    /// Writes down the new nodes, and forgets those that are gone and that no record uses.
    ///
    /// # Errors
    /// [`Failure`]; a later pass writes what this one could not write.
    pub(crate) async fn update_nodes(
        &self,
        seen: &SeenNodes,
        nodes: &Nodes,
        used: &HashSet<NodeName>,
    ) -> Result<(), Failure> {
        let key = |node: &NodeName| self.session.keys.seen_node(self.cluster, node);
        let is_new = |node: &NodeName| !seen.names.contains(node) && !seen.undecodable.contains(node);
        let put = |node: NodeName| Op::Put(key(&node), SeenNode::new().encode(), None);
        // If a name is not valid here, no record can name that node.
        let names = nodes.names().filter_map(|node| node.parse().ok());
        let new = names.filter(is_new).map(put);
        let is_over = |node: &&NodeName| !nodes.knows(node.as_str()) && !used.contains(*node);
        let over = seen.names().filter(is_over).map(key).map(Op::Delete);
        self.write("seen-nodes", new.chain(over).collect()).await
    }
}
