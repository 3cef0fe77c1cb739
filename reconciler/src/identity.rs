//! The registration of a cluster under its name: two clusters that share a store never share a name.

use metes_core::limits;
use metes_core::pool::{ClusterId, Record};
use metes_core::txn::{Compare, Op, Txn};
use metes_engine::endpoints;
use metes_engine::kv::Kv;

use crate::api::Api;
use crate::context::{Context, read};
use crate::error::RunError;

impl<K: Kv, A: Api> Context<'_, K, A> {
    /// Makes sure that the API is the one of the cluster that is registered under this cluster's name. If nobody is
    /// registered under it, this cluster registers, except in a dry run. Before that, it makes sure that the endpoints
    /// are of one store.
    pub(crate) async fn claim_name(&self) -> Result<(), RunError> {
        // Whatever is written from here on is written to the store that more than half of the endpoints show.
        endpoints::ask_all(self.session, None, limits::ALL_ASKED).await?;
        let found = self.api.cluster_uid().await?;
        let key = self.session.keys.cluster(self.cluster);
        let (mut registered, _) = read::<K, ClusterId>(self.session, &key).await?;
        if registered.is_none() && !self.dry_run {
            let txn = Txn {
                step: "identity",
                compares: vec![Compare::Create(key.clone(), 0)],
                then: vec![Op::Put(key.clone(), ClusterId::new(found.clone()).encode(), None)],
                ..Txn::default()
            };
            self.session.txn(&txn).await?;
            // Another one may have registered first. Or this one's write succeeded, and its answer was lost.
            (registered, _) = read(self.session, &key).await?;
        }
        match registered {
            Some(ClusterId { uid: registered, .. }) if registered != found => {
                let key = String::from_utf8_lossy(&key).into_owned();
                Err(RunError::OtherCluster { name: self.cluster.to_string(), registered, found, key })
            }
            _ => Ok(()),
        }
    }
}
