//! Leaves the ranges of the definitions for people, who look for them with `metes usage`: no ADD has asked for them
//! yet.

use metes_core::pool::AskedRanges;
use metes_core::txn::{Compare, Op, Txn};
use metes_engine::kv::Kv;
use metes_node::node::timestamp;

use super::error::ImportError;
use super::nads::Nad;
use crate::context::Context;
use crate::kubernetes::Kubernetes;

/// The step's name, for logs.
const STEP: &str = "asked";

impl<K: Kv> Context<'_, K, Kubernetes> {
    /// Writes the ranges that an ADD will ask for, under the key that it will use. What an ADD has written stays.
    pub(super) async fn leave_asked(&self, nads: &[Nad]) -> Result<(), ImportError> {
        let ranges = nads.iter().flat_map(|nad| &nad.uses);
        for (one, ranges) in ranges.filter_map(|one| Some((one, one.ranges.as_ref().ok()?))) {
            let (cluster, name) = (Some(self.cluster.clone()), one.cni_network.clone());
            let asked = AskedRanges::new(cluster, name, ranges.sets.clone(), timestamp());
            let Some(value) = asked.encode_to_keep() else { continue };
            let key = self.session.keys.asked(&asked);
            let compares = vec![Compare::Create(key.clone(), 0)];
            let txn = Txn { step: STEP, compares, then: vec![Op::Put(key, value, None)], ..Txn::default() };
            self.session.txn(&txn).await?;
        }
        Ok(())
    }
}
