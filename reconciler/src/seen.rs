//! Which nodes the cluster's Kubernetes has had: one key for each, without a lease.
//!
//! A node that was deleted took its pods along. A node that was never there is misnamed, or another cluster's by the
//! same name, and then the absence of its pods says nothing. The keys tell the two apart.

use std::collections::{BTreeSet, HashSet};

use metes::pool::record::{Record, SeenNode};
use metes::store::keys::{Bytes, Key};
use metes::store::kv::{Failure, Kv};
use metes::store::session::Session;
use metes::store::txn::{Entry, Op};
use metes::store::walk::walk;

use crate::holder::{Holder, Stamp};
use crate::sightings::Memory;
use crate::world::Nodes;

/// What earlier passes wrote down.
#[derive(Debug, Default)]
pub struct SeenNodes {
    names: BTreeSet<String>,
    /// Keys whose values do not decode: they say nothing, and stay as they are.
    undecodable: BTreeSet<String>,
}

impl SeenNodes {
    /// The names of the nodes.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.names.iter()
    }
}

impl<K: Kv> Memory<'_, K> {
    /// Reads which nodes earlier passes saw.
    ///
    /// # Errors
    /// [`Failure`]
    pub async fn recall_nodes(&self) -> Result<SeenNodes, Failure> {
        let Ok(prefix) = self.keys.seen_nodes(self.cluster) else { return Ok(SeenNodes::default()) };
        let see = |seen: &mut SeenNodes, entry: Entry| {
            let Ok(Key::Seen(_, node)) = self.keys.parse(&entry.key) else { return };
            let names = match SeenNode::decode(&entry.value) {
                Ok(_) => &mut seen.names,
                Err(_) => &mut seen.undecodable,
            };
            names.insert(node);
        };
        let session = Session { kv: self.kv, keys: self.keys, until: self.until };
        walk(session, &prefix, SeenNodes::default, see).await.map(|(seen, _)| seen)
    }

    /// Writes down the nodes that are new, and forgets those that are gone and have no record left.
    ///
    /// # Errors
    /// [`Failure`]; a later pass writes what this one did not.
    pub async fn update_nodes(
        &self,
        seen: &SeenNodes,
        nodes: &Nodes,
        holders: &[Holder],
    ) -> Result<(), Failure> {
        let key = |node: &str| self.keys.seen_node(self.cluster, node).ok();
        let is_new = |node: &&str| !seen.names.contains(*node) && !seen.undecodable.contains(*node);
        let put = |key: Bytes| Op::Put(key, SeenNode::new().encode(), None);
        let new = nodes.names().filter(is_new).filter_map(key).map(put);
        let is_ours = |holder: &&Holder| holder.record.as_ref().is_none_or(|one| one.stamp == Stamp::Ours);
        let used: HashSet<&str> =
            holders.iter().filter(is_ours).map(|holder| holder.owner.node.as_str()).collect();
        let is_over = |node: &&String| !nodes.knows(node) && !used.contains(node.as_str());
        let over = seen.names().filter(is_over).filter_map(|node| key(node)).map(Op::Delete);
        self.write("seen-nodes", new.chain(over).collect()).await
    }
}
