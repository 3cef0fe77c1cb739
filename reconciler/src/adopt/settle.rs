//! Assignments of missing addresses. An owner whose pod is gone is replaced.

use std::cell::Cell;

use futures_util::stream::{self, StreamExt};
use metes_core::pool::{Held, Labels, Owner, OwnerRecord, Pod};
use metes_engine::kv::Kv;

use super::demand::{Demand, Demands};
use super::report::{AdoptionConflict, ConflictKind};
use super::reserved::Reserved;
use super::{Adoption, AdoptionError, InUse};
use crate::assign::{AssignError, Assigned, Assignment, Gone, Made, Under, Why};
use crate::context::AT_ONCE;
use crate::error::RunError;
use crate::holder::{Holder, OwnerFacts, Stamp};
use crate::running::Running;
use crate::second_look::pods_now;
use crate::verdict::{Graces, is_named, orphaned};

/// The result of one demand.
enum Settled {
    Present,
    Made(Made),
    Conflict(AdoptionConflict),
    /// The pod of the owner that holds the address uses something else.
    Trade,
}

impl<K: Kv> Adoption<'_, K> {
    /// Assigns what is missing, a few demands at a time. After the first failure no other assignment begins, and those
    /// that have begun are carried to their end.
    pub(super) async fn settle_all(&self, missing: Vec<Demand>, in_use: &InUse) -> Result<(), AdoptionError> {
        let failed = &Cell::new(false);
        let settle = |demand: Demand| async move {
            if failed.get() {
                return None;
            }
            let settled = self.settle(&demand, in_use).await;
            failed.set(failed.get() || settled.is_err());
            Some((demand, settled))
        };
        let mut all = stream::iter(missing).map(settle).buffer_unordered(AT_ONCE);
        let (mut error, mut trades) = (None, Vec::new());
        while let Some(ended) = all.next().await {
            let report = &mut *self.report.borrow_mut();
            match ended {
                Some((demand, Ok(Settled::Trade))) => trades.push(demand),
                Some((_, Ok(Settled::Present))) => report.present += 1,
                Some((demand, Ok(Settled::Made(made)))) => report.adopt(demand.adopted(made)),
                Some((_, Ok(Settled::Conflict(conflict)))) => report.conflicts.push(conflict),
                Some((_, Err(e))) => error = error.or(Some(e)),
                None => {}
            }
        }
        if error.is_none() {
            error = self.trade_all(trades, in_use).await.err();
        }
        self.report.borrow_mut().sort();
        error.map_or(Ok(()), Err)
    }

    async fn settle(&self, demand: &Demand, in_use: &InUse) -> Result<Settled, AdoptionError> {
        let mut wanted = self.assignment_of(demand);
        // Each round finds another owner. An address has at most two of them, a hold and its user, and so has the name.
        for _ in 0..=2 * (demand.held.len() + 1) {
            let conflict = match self.context.assign(&wanted).await {
                Ok(Assigned::Present) => return Ok(Settled::Present),
                Ok(Assigned::Made(made)) => return Ok(Settled::Made(made)),
                Ok(Assigned::Conflict(conflict)) => *conflict,
                Err(AssignError::Bad(bad)) => {
                    let why = format!("stored state cannot be decoded: {bad}");
                    return Ok(Settled::Conflict(demand.conflict(ConflictKind::Undecodable, None, why)));
                }
                Err(e) => return Err(self.error_of(e)),
            };
            let (kind, why) = match conflict.why {
                Why::Holder { owner, record, revision } => {
                    let Some(keep) = self.stays(demand, (&owner, &record, revision), in_use).await? else {
                        wanted.gone.push(Gone { owner, revision });
                        continue;
                    };
                    if self.uses_instead(&owner, &record, &conflict.held, in_use).await?.is_some() {
                        return Ok(Settled::Trade);
                    }
                    (ConflictKind::Held, format!("held by {}: {keep}", whom(&owner, &record.labels.pod)))
                }
                why => reason(why),
            };
            return Ok(Settled::Conflict(demand.conflict(kind, Some(conflict.held.address), why)));
        }
        let why = "its holders keep changing; run it again".to_owned();
        Ok(Settled::Conflict(demand.conflict(ConflictKind::Changed, None, why)))
    }

    pub(super) fn assignment_of(&self, demand: &Demand) -> Assignment {
        Assignment {
            owner: demand.owner.clone(),
            held: demand.held.clone(),
            scope: demand.network.scope(),
            labels: Labels { pod: demand.pod.clone(), cni_network: demand.network.cni_network().to_owned() },
            created_at: metes_node::node::timestamp(),
            sticky: demand.sticky.clone(),
            under: Under::Suspect,
            gone: Vec::new(),
        }
    }

    pub(super) fn error_of(&self, e: AssignError) -> AdoptionError {
        RunError::of_assignment(e).map_or_else(|| self.changed(), AdoptionError::from)
    }

    /// The reason why an owner keeps its addresses. None if its pod is gone, both in the listing and at a second look;
    /// or if it is a hold of this cluster, or the owner of the demand's own interface, and the pod of the demand still
    /// uses what it was seen to use. No container uses such a hold, because its user would be in the way first.
    pub(super) async fn stays(
        &self,
        demand: &Demand,
        (owner, record, revision): (&Owner, &OwnerRecord, i64),
        in_use: &InUse,
    ) -> Result<Option<String>, AdoptionError> {
        let stamp = Stamp::of(owner.cluster.as_ref(), self.context.cluster);
        let uid = &demand.pod.uid;
        let is_own = uid.is_some() && record.labels.pod.uid == *uid && owner.ifname == demand.owner.ifname;
        if stamp == Stamp::Ours && (owner.is_for_subject() || is_own) {
            let is_used = self.is_used_still(demand, in_use).await?;
            let Pod { namespace, name, .. } = &demand.pod;
            let why = || {
                format!(
                    "the report of pod {namespace}/{name} cannot be confirmed now; `metes hold --remove` ends a hold"
                )
            };
            return Ok((!is_used).then(why));
        }
        let facts =
            OwnerFacts { stamp, pod: record.labels.pod.clone(), boot: None, replaced: false, hold: None };
        let holder = Holder { owner: owner.clone(), revision, record: Some(facts) };
        if let Err(keep) = orphaned(&holder, &in_use.pods, &in_use.nodes, &Graces::NONE) {
            return Ok(Some(keep.to_string()));
        }
        let pods = pods_now(self.context.api, &holder).await?;
        Ok(orphaned(&holder, &pods, &in_use.nodes, &Graces::NONE).err().map(|keep| keep.to_string()))
    }

    /// The addresses that the owner's own pod now reports for that interface, if it reports that it does not use
    /// `held`.
    pub(super) async fn uses_instead(
        &self,
        owner: &Owner,
        record: &OwnerRecord,
        held: &Held,
        in_use: &InUse,
    ) -> Result<Option<Demand>, AdoptionError> {
        let is_ours = Stamp::of(owner.cluster.as_ref(), self.context.cluster) == Stamp::Ours;
        if !is_ours || !is_named(&record.labels.pod) {
            return Ok(None);
        }
        let Some(used) = self.used_now(&record.labels.pod, in_use).await? else { return Ok(None) };
        if used.iter().any(|demand| held.is_among(&demand.held)) {
            return Ok(None);
        }
        Ok(used.into_iter().find(|demand| demand.owner.ifname == owner.ifname))
    }

    /// True if the pod of a demand reports the same addresses for that interface. The addresses of a ResourceClaim do
    /// not change.
    async fn is_used_still(&self, demand: &Demand, in_use: &InUse) -> Result<bool, AdoptionError> {
        if demand.pod.uid.is_none() {
            return Ok(true);
        }
        let used = self.used_now(&demand.pod, in_use).await?.unwrap_or_default();
        Ok(used.iter().any(|now| now.owner == demand.owner && now.held == demand.held))
    }

    /// All that a pod now reports to use. None if that is not known: the pod is not there, nothing is heard from its
    /// node, so what the node wrote may be older than the records, or a part of the report cannot be understood.
    async fn used_now(&self, pod: &Pod, in_use: &InUse) -> Result<Option<Vec<Demand>>, AdoptionError> {
        let Some(uid) = &pod.uid else { return Ok(None) };
        let Some(running) = Running::get(self.context.api, &pod.namespace, &pod.name).await? else {
            return Ok(None);
        };
        let is_it = *uid == *running.uid || *uid == *running.pod.uid;
        if !is_it || in_use.nodes.is_cut_off(&running.node) {
            return Ok(None);
        }
        let nothing = Reserved::default();
        let mut demands = self.demands(&in_use.definitions, &nothing);
        demands.see(&running);
        let Demands { missing, conflicts, .. } = demands;
        Ok(conflicts.is_empty().then_some(missing))
    }
}

/// The obstacle in words, if no pod can be asked about it.
pub(super) fn reason(why: Why) -> (ConflictKind, String) {
    match why {
        Why::Holder { owner, record, .. } => {
            (ConflictKind::Held, format!("held by {}", whom(&owner, &record.labels.pod)))
        }
        Why::NoRecord { owner } => {
            (ConflictKind::Contradiction, format!("reserved for {owner}, which has no record of it"))
        }
        Why::UsesHold(hold) => {
            let why =
                format!("its record uses {hold}, which has other addresses: `metes hold --remove` ends that");
            (ConflictKind::Held, why)
        }
        Why::Undecodable(bad) => {
            (ConflictKind::Undecodable, format!("stored state cannot be decoded: {bad}"))
        }
        Why::Deleted => (ConflictKind::Changed, "it was deleted a moment ago; run it again".to_owned()),
        Why::TooMany => (ConflictKind::TooMany, "more than etcd takes in one transaction".to_owned()),
    }
}

/// An owner in words.
pub(super) fn whom(owner: &Owner, pod: &Pod) -> String {
    let Owner { node, container_id, ifname, .. } = owner;
    match pod.name.as_str() {
        "" => owner.to_string(),
        name => format!("{ifname} of pod {}/{name}, container {container_id} on {node}", pod.namespace),
    }
}
