//! The census of owners. Their records are read twice, because there may be hundreds of thousands: first to know what
//! to ask Kubernetes about, and then to judge each by the answers. So only those are kept that are not judged at once.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use metes_core::keys::{Bytes, Key, Keys};
use metes_core::plan::free;
use metes_core::pool::{ClusterName, NodeName, Owner, OwnerKind, OwnerRecord, Pod, Record};
use metes_core::snapshot::Snapshot;
use metes_core::txn::Entry;
use metes_engine::kv::{Failure, Kv};
use metes_engine::session::Session;
use metes_engine::walk::walk;

use crate::held::HeldAddresses;
use crate::holder::{HoldFacts, Holder, OwnerFacts, Stamp};
use crate::holds::HoldState;
use crate::verdict::{Graces, Keep, orphaned};
use crate::world::{Nodes, Pods};

/// The number of owners of an earlier boot that are looked up at once. After a power cut all owners may be of an
/// earlier boot.
const TOGETHER: usize = 100;

/// All owners at one revision, before Kubernetes is asked.
#[derive(Debug, Default)]
pub(crate) struct Census {
    pub(crate) revision: i64,
    pub(crate) owners: usize,
    /// The number of this cluster's.
    pub(crate) ours: usize,
    /// The addresses that they hold, for whichever pods.
    pub(crate) held: HeldAddresses,
    /// The pods and claims that the verdict will ask for, none of them seen yet.
    pub(crate) pods: Pods,
    pub(crate) nodes: HashSet<NodeName>,
    /// The nodes of this cluster's owners, and of those whose record does not decode.
    pub(crate) own_nodes: HashSet<NodeName>,
    /// The holds that containers use.
    used: HashSet<Owner>,
}

/// The owners of a census by what Kubernetes has answered since.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// The owners that are none of `open`, by why they keep what they have.
    pub(crate) kept: BTreeMap<Keep, usize>,
    /// The holds that are none of `open`.
    pub(crate) holds: BTreeMap<HoldState, usize>,
    /// The owners with running pods on nodes that Kubernetes does not know.
    pub(crate) misnamed: BTreeMap<NodeName, usize>,
    /// Orphans, unused holds, owners that may have been replaced, and those that do not decode, in the order of their
    /// keys.
    pub(crate) open: Vec<Holder>,
}

impl Census {
    /// Reads every owner record of the prefix.
    ///
    /// # Errors
    /// [`Failure`] if it could not be read to its end.
    pub(crate) async fn take<K: Kv>(session: Session<'_, K>, cluster: &ClusterName) -> Result<Self, Failure> {
        let keys = session.keys;
        let see = |census: &mut Census, entry: Entry| census.see(keys, cluster, &entry);
        let (census, revision) = walk(session, &keys.owners(), Census::default, see).await?;
        Ok(Census { revision, ..census })
    }

    fn see(&mut self, keys: &Keys, cluster: &ClusterName, entry: &Entry) {
        let Some((owner, record)) = decode(keys, entry) else { return };
        let stamp = Stamp::of(owner.cluster.as_ref(), cluster);
        self.owners += 1;
        self.nodes.insert(owner.node.clone());
        if stamp == Stamp::Ours || record.is_none() {
            self.own_nodes.insert(owner.node.clone());
        }
        if let Some(record) = &record {
            self.ours += usize::from(stamp == Stamp::Ours);
            self.see_held(record, stamp);
            self.used.extend(record.seat.as_ref().map(|seat| seat.hold.clone()));
        }
        self.pods.want(&self.holder(owner, record, stamp, entry));
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

    fn holder(&self, owner: Owner, record: Option<OwnerRecord>, stamp: Stamp, entry: &Entry) -> Holder {
        let record = record.map(|record| {
            let boot = record.start.map(|start| start.boot);
            let (pod, hold) = match owner.kind() {
                OwnerKind::Subject(subject) => {
                    // A seat exists exactly if a record names it.
                    let is_used = self.used.contains(&owner);
                    let hold = record.hold.map(|hold| HoldFacts { seconds: hold.seconds, is_used });
                    (subject.into(), hold)
                }
                OwnerKind::Container(_) | OwnerKind::Aside(..) | OwnerKind::Unknown => {
                    (record.labels.pod, None)
                }
            };
            OwnerFacts { stamp, pod, boot, replaced: false, hold }
        });
        Holder { owner, revision: entry.mod_revision, record }
    }

    /// Reads the records again, and judges those that the census has read. A younger one may be of a pod that was made
    /// after Kubernetes had answered.
    ///
    /// # Errors
    /// [`Failure`]
    pub(crate) async fn survey<K: Kv>(
        &self,
        session: Session<'_, K>,
        cluster: &ClusterName,
        (pods, nodes, graces): (&Pods, &Nodes, &Graces),
    ) -> Result<Survey, Failure> {
        let see = |survey: &mut Survey, entry: Entry| {
            let known = Some(&entry).filter(|entry| entry.mod_revision <= self.revision);
            let Some((owner, record)) = known.and_then(|entry| decode(session.keys, entry)) else { return };
            let stamp = Stamp::of(owner.cluster.as_ref(), cluster);
            let holder = self.holder(owner, record, stamp, &entry);
            survey.see(holder, pods, nodes, graces);
        };
        let (mut survey, _) = walk(session, &session.keys.owners(), Survey::default, see).await?;
        let seen = survey.kept.values().sum::<usize>() + survey.open.len();
        if let changed @ 1.. = self.owners.saturating_sub(seen) {
            survey.kept.insert(Keep::Changed, changed);
        }
        find_replaced(&mut survey.open, session, nodes).await?;
        Ok(survey)
    }
}

impl Survey {
    fn see(&mut self, holder: Holder, pods: &Pods, nodes: &Nodes, graces: &Graces) {
        let orphaned = orphaned(&holder, pods, nodes, graces);
        let state = HoldState::of(&holder, orphaned);
        if orphaned == Err(Keep::PodExists) && !nodes.knows(holder.owner.node.as_str()) {
            *self.misnamed.entry(holder.owner.node.clone()).or_default() += 1;
        }
        match orphaned {
            Err(Keep::PodExists) if may_be_replaced(&holder, nodes) => self.open.push(holder),
            Err(why) if why != Keep::Undecodable && state != Some(HoldState::Unused) => {
                *self.kept.entry(why).or_default() += 1;
                state.into_iter().for_each(|state| *self.holds.entry(state).or_default() += 1);
            }
            _ => self.open.push(holder),
        }
    }
}

/// The owner and its record, if that decodes. A key that is not one of metes' is left to the audit to report.
fn decode(keys: &Keys, entry: &Entry) -> Option<(Owner, Option<OwnerRecord>)> {
    let Ok(Key::Owner(owner)) = keys.parse(&entry.key) else { return None };
    Some((owner, OwnerRecord::decode(&entry.value).ok()))
}

/// True if an owner is of a boot that has ended.
fn may_be_replaced(holder: &Holder, nodes: &Nodes) -> bool {
    holder.record.as_ref().is_some_and(|record| {
        let is_ours = record.stamp == Stamp::Ours && record.pod.uid.is_some();
        is_ours && nodes.has_lost(holder.owner.node.as_str(), record.boot.as_deref())
    })
}

/// Finds out which owners of a boot that has ended were replaced by a newer sandbox of their pod.
async fn find_replaced<K: Kv>(
    holders: &mut [Holder],
    session: Session<'_, K>,
    nodes: &Nodes,
) -> Result<(), Failure> {
    let mut candidates: Vec<_> = holders.iter_mut().filter(|holder| may_be_replaced(holder, nodes)).collect();
    for some in candidates.chunks_mut(TOGETHER) {
        let owners: Vec<&Owner> = some.iter().map(|holder| &holder.owner).collect();
        let replaced = are_replaced(session, &owners).await?;
        for (record, replaced) in some.iter_mut().map(|holder| &mut holder.record).zip(replaced) {
            record.iter_mut().for_each(|record| record.replaced = replaced);
        }
    }
    Ok(())
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
