//! The census of holders: every owner record, read at one revision. Only the part of a record that the verdict needs is
//! kept, because there may be a hundred thousand records.

use std::collections::{BTreeSet, HashSet};
use std::rc::Rc;

use metes_core::keys::{Bytes, Key, Keys};
use metes_core::plan::free;
use metes_core::pool::{ClusterName, Owner, OwnerKind, OwnerRecord, Pod, Record};
use metes_core::snapshot::Snapshot;
use metes_core::txn::Entry;
use metes_engine::kv::{Failure, Kv};
use metes_engine::session::Session;
use metes_engine::walk::walk;

use crate::held::HeldAddresses;
use crate::holder::{HoldFacts, Holder, OwnerFacts, Stamp};
use crate::world::Nodes;

/// The number of owners of an earlier boot that are looked up at once. After a power cut all owners may be of an
/// earlier boot.
const TOGETHER: usize = 100;

/// Every owner at one revision.
#[derive(Debug, Default)]
pub(crate) struct Census {
    /// The owners, in the order of their keys.
    pub(crate) holders: Vec<Holder>,
    pub(crate) revision: i64,
    /// The addresses that they hold, for whichever pods.
    pub(crate) held: HeldAddresses,
    /// The holds that containers use.
    used: HashSet<Owner>,
    /// Each boot's id, stored once.
    boots: BTreeSet<Rc<str>>,
}

impl Census {
    /// Reads every owner record of the prefix.
    ///
    /// # Errors
    /// [`Failure`] if it could not be read to its end.
    pub(crate) async fn take<K: Kv>(session: Session<'_, K>, cluster: &ClusterName) -> Result<Self, Failure> {
        let keys = session.keys;
        let see = |census: &mut Census, entry: Entry| census.see(keys, cluster, &entry);
        let (mut census, revision) = walk(session, &keys.owners(), Census::default, see).await?;
        // A seat exists exactly if a record names it.
        for Holder { owner, record, .. } in &mut census.holders {
            if let Some(hold) = record.as_mut().and_then(|record| record.hold.as_mut()) {
                hold.is_used = census.used.contains(owner);
            }
        }
        Ok(Census { revision, ..census })
    }

    fn see(&mut self, keys: &Keys, cluster: &ClusterName, entry: &Entry) {
        // A key that is not one of metes' is left to the audit to report.
        let Ok(Key::Owner(owner)) = keys.parse(&entry.key) else { return };
        let record = OwnerRecord::decode(&entry.value).ok().map(|record| {
            let stamp = Stamp::of(owner.cluster.as_ref(), cluster);
            self.see_held(&record, stamp);
            self.used.extend(record.seat.map(|seat| seat.hold));
            let boot = record.start.map(|start| self.boot(&start.boot));
            let (pod, hold) = match owner.kind() {
                OwnerKind::Subject(subject) => {
                    let hold = record.hold.map(|hold| HoldFacts { seconds: hold.seconds, is_used: false });
                    (subject.into(), hold)
                }
                OwnerKind::Container(_) | OwnerKind::Aside(..) | OwnerKind::Unknown => {
                    (record.labels.pod, None)
                }
            };
            OwnerFacts { stamp, pod, boot, replaced: false, hold }
        });
        self.holders.push(Holder { owner, revision: entry.mod_revision, record });
    }

    /// Names are unique in a cluster, UIDs everywhere.
    fn see_held(&mut self, record: &OwnerRecord, stamp: Stamp) {
        let Pod { namespace, name, uid } = &record.labels.pod;
        let pod = match uid {
            Some(uid) => uid.to_string(),
            None if stamp == Stamp::Ours => format!("{namespace}/{name}"),
            None => return,
        };
        record.used().for_each(|(_, address)| self.held.see(address, &pod));
    }

    fn boot(&mut self, id: &str) -> Rc<str> {
        if let Some(known) = self.boots.get(id) {
            return known.clone();
        }
        let id: Rc<str> = id.into();
        self.boots.insert(id.clone());
        id
    }

    /// Finds out which owners of a boot that has ended were replaced by a newer sandbox of their pod.
    pub(crate) async fn find_replaced<K: Kv>(
        &mut self,
        session: Session<'_, K>,
        nodes: &Nodes,
    ) -> Result<(), Failure> {
        let may_be = |holder: &&mut Holder| {
            let node = &holder.owner.node;
            holder.record.as_ref().is_some_and(|record| {
                let is_ours = record.stamp == Stamp::Ours && record.pod.uid.is_some();
                is_ours && nodes.has_lost(node.as_str(), record.boot.as_deref())
            })
        };
        let mut candidates: Vec<&mut Holder> = self.holders.iter_mut().filter(may_be).collect();
        for some in candidates.chunks_mut(TOGETHER) {
            let owners: Vec<&Owner> = some.iter().map(|holder| &holder.owner).collect();
            let replaced = are_replaced(session, &owners).await?;
            for (record, replaced) in some.iter_mut().map(|holder| &mut holder.record).zip(replaced) {
                record.iter_mut().for_each(|record| record.replaced = replaced);
            }
        }
        Ok(())
    }
}

/// One answer for each owner: true if a younger sandbox of its pod has replaced it.
async fn are_replaced<K: Kv>(session: Session<'_, K>, owners: &[&Owner]) -> Result<Vec<bool>, Failure> {
    let keys = session.keys;
    let mut snapshot = Snapshot::default();
    let own: Vec<Bytes> = owners.iter().map(|owner| keys.owner(owner)).collect();
    session.read(&own, &mut snapshot).await?;
    let record = |key: &Bytes| snapshot.record::<OwnerRecord>(key).ok().flatten();
    let held: Vec<(&Owner, OwnerRecord)> =
        owners.iter().zip(&own).filter_map(|(owner, key)| Some((*owner, record(key)?))).collect();
    let index = held.iter().flat_map(|(owner, record)| free::index_keys(keys, owner, record));
    session.read(&index.collect::<Vec<_>>(), &mut snapshot).await?;
    let replaced = held.iter().filter(|(owner, record)| free::is_replaced(keys, owner, record, &snapshot));
    let replaced: BTreeSet<&Owner> = replaced.map(|(owner, _)| *owner).collect();
    Ok(owners.iter().map(|owner| replaced.contains(owner)).collect())
}
