//! Who holds addresses: every owner record, read at one revision. Keeps of each what the verdict
//! needs, because there may be a hundred thousand of them.

use std::collections::BTreeSet;
use std::rc::Rc;

use metes::audit::walk::walk;
use metes::pool::record::{Owner, OwnerRecord, PodIndex, Record};
use metes::store::keys::{Bytes, Key, Keys};
use metes::store::kv::{Failure, Kv, read_keys};
use metes::store::plan;
use metes::store::snapshot::Snapshot;
use metes::store::txn::Entry;
use tokio::time::Instant;

use crate::holder::{Holder, Stamp, Summary};
use crate::world::Nodes;

/// Every owner at one revision.
#[derive(Debug, Default)]
pub struct Census {
    /// The owners, in the order of their keys.
    pub holders: Vec<Holder>,
    /// The revision.
    pub revision: i64,
    /// Each boot's id once.
    boots: BTreeSet<Rc<str>>,
}

impl Census {
    /// Reads every owner record of the prefix.
    ///
    /// # Errors
    /// [`Failure`] if it could not be read to its end.
    pub async fn take<K: Kv>(kv: &K, keys: &Keys, cluster: &str, until: Instant) -> Result<Self, Failure> {
        let see = |census: &mut Census, entry: Entry| census.see(keys, cluster, &entry);
        let (census, revision) = walk(kv, &keys.owners(), until, Census::default, see).await?;
        Ok(Census { revision, ..census })
    }

    fn see(&mut self, keys: &Keys, cluster: &str, entry: &Entry) {
        // A key that is none of metes' is the audit's to report.
        let Ok(Key::Own(owner)) = keys.parse(&entry.key) else { return };
        let record = OwnerRecord::decode(&entry.value).ok().map(|record| Summary {
            stamp: Stamp::of(&record.labels.cluster, cluster),
            pod: record.labels.pod,
            boot: record.birth.map(|birth| self.boot(&birth.boot)),
            addresses: record.addresses.len(),
            replaced: false,
        });
        self.holders.push(Holder { owner, revision: entry.mod_revision, record });
    }

    fn boot(&mut self, id: &str) -> Rc<str> {
        if let Some(known) = self.boots.get(id) {
            return known.clone();
        }
        let id: Rc<str> = id.into();
        self.boots.insert(id.clone());
        id
    }

    /// Finds out which of the owners that are of an earlier boot of their node have been replaced by
    /// a newer sandbox of their pod.
    ///
    /// # Errors
    /// [`Failure`]
    pub async fn find_replaced<K: Kv>(
        &mut self,
        kv: &K,
        keys: &Keys,
        nodes: &Nodes,
        until: Instant,
    ) -> Result<(), Failure> {
        for holder in &mut self.holders {
            let Some(record) = &mut holder.record else { continue };
            let is_ours = record.stamp == Stamp::Ours && !record.pod.uid.is_empty();
            if is_ours && nodes.has_rebooted_since(&holder.owner.node, record.boot.as_deref()) {
                record.replaced = is_replaced(kv, keys, &holder.owner, until).await?;
            }
        }
        Ok(())
    }
}

/// Whether the pod index names another owner, for every network that this one holds an address in.
async fn is_replaced<K: Kv>(kv: &K, keys: &Keys, owner: &Owner, until: Instant) -> Result<bool, Failure> {
    let Ok(own) = keys.own(owner) else { return Ok(false) };
    let mut snapshot = Snapshot::default();
    read_keys(kv, std::slice::from_ref(&own), &mut snapshot, until).await?;
    let Ok(Some(record)) = snapshot.record::<OwnerRecord>(&own) else { return Ok(false) };
    let entry = |network| keys.pod(&record.labels.pod.uid, &owner.ifname, network).ok();
    let Some(index): Option<Vec<Bytes>> = plan::networks(&record).into_iter().map(entry).collect() else {
        return Ok(false);
    };
    read_keys(kv, &index, &mut snapshot, until).await?;
    let names_another = |key: &Bytes| match snapshot.record::<PodIndex>(key) {
        Ok(Some(index)) => index.owner != *owner,
        Ok(None) | Err(_) => false,
    };
    Ok(!index.is_empty() && index.iter().all(names_another))
}
