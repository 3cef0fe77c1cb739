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
        // Each round finds another owner, and no address has two of them.
        for _ in 0..=demand.held.len() {
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
                    let Some(keep) = self.stays(&owner, &record, revision, in_use).await? else {
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
            under: Under::Suspect,
            gone: Vec::new(),
        }
    }

    pub(super) fn error_of(&self, e: AssignError) -> AdoptionError {
        RunError::of_assignment(e).map_or_else(|| self.changed(), AdoptionError::from)
    }

    /// The reason why an owner keeps its addresses. None if its pod is gone, both in the listing and at a second look.
    pub(super) async fn stays(
        &self,
        owner: &Owner,
        record: &OwnerRecord,
        revision: i64,
        in_use: &InUse,
    ) -> Result<Option<String>, AdoptionError> {
        let facts = OwnerFacts {
            stamp: Stamp::of(owner.cluster.as_ref(), self.context.cluster),
            pod: record.labels.pod.clone(),
            boot: None,
            replaced: false,
            hold: None,
        };
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
        let pod = &record.labels.pod;
        let is_ours = Stamp::of(owner.cluster.as_ref(), self.context.cluster) == Stamp::Ours;
        let Some(uid) = pod.uid.as_ref().filter(|_| is_ours && is_named(pod)) else { return Ok(None) };
        let Some(running) = Running::get(self.context.api, &pod.namespace, &pod.name).await? else {
            return Ok(None);
        };
        let is_it = *uid == *running.uid || *uid == *running.pod.uid;
        // If nothing is heard from a node, what it wrote may be older than the record.
        if !is_it || in_use.nodes.is_cut_off(&running.node) {
            return Ok(None);
        }
        let nothing = Reserved::default();
        let mut demands = self.demands(&in_use.definitions, &nothing);
        demands.see(&running);
        let Demands { missing, conflicts, .. } = demands;
        // A part of the report cannot be understood, and that part may be about `held`.
        if !conflicts.is_empty() || missing.iter().any(|demand| held.is_among(&demand.held)) {
            return Ok(None);
        }
        Ok(missing.into_iter().find(|demand| demand.owner.ifname == owner.ifname))
    }
}

/// The obstacle in words, if no pod can be asked about it.
pub(super) fn reason(why: Why) -> (ConflictKind, String) {
    match why {
        Why::Holder { owner, record, .. } => {
            (ConflictKind::Held, format!("held by {}", whom(&owner, &record.labels.pod)))
        }
        Why::NoRecord { owner, pod } => {
            let why = format!("reserved for {}, which has no record of it", whom(&owner, &pod));
            (ConflictKind::Contradiction, why)
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
