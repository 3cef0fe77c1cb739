//! Interfaces that hold each other's addresses. An owner whose pod reports that it uses something else gives up what it
//! holds. One transaction does this for the owner and for all owners that are in its way.

use std::collections::HashSet;

use metes_core::pool::{Held, Owner};
use metes_engine::kv::Kv;

use super::demand::Demand;
use super::report::{Adopted, ConflictKind};
use super::settle::{reason, whom};
use super::{Adoption, AdoptionError, InUse};
use crate::assign::{AssignError, Assigned, Assignment, Gone, Made, Together, Why};

/// The most plans for one trade. Each plan knows the record of one more owner that takes part.
const ROUNDS: usize = 1000;

impl<K: Kv> Adoption<'_, K> {
    /// One after the other, because each trade includes all owners that are in its way.
    pub(super) async fn trade_all(
        &self,
        mut trades: Vec<Demand>,
        in_use: &InUse,
    ) -> Result<(), AdoptionError> {
        trades.sort_by(|one, other| one.owner.cmp(&other.owner));
        let mut done = HashSet::new();
        for demand in trades {
            if !done.contains(&demand.owner) {
                done.extend(self.trade(demand, in_use).await?);
            }
        }
        Ok(())
    }

    /// Assigns what one interface uses, together with what the owners use that give it up. Returns the owners assigned
    /// for.
    async fn trade(&self, demand: Demand, in_use: &InUse) -> Result<Vec<Owner>, AdoptionError> {
        let mut assignments = vec![self.assignment_of(&demand)];
        let mut demands = vec![demand];
        let mut wanted = None;
        for _ in 0..ROUNDS {
            let (at, conflict) = match self.context.assign_all(&assignments).await {
                Ok(Together::Present) => {
                    self.report.borrow_mut().present += 1;
                    return Ok(Vec::new());
                }
                Ok(Together::Made(made)) => {
                    self.traded(&demands, made);
                    return Ok(demands.into_iter().map(|demand| demand.owner).collect());
                }
                Ok(Together::Conflict(at, conflict)) => (at, *conflict),
                Err(AssignError::Bad(bad)) => {
                    let why = format!("stored state cannot be decoded: {bad}");
                    self.keep(&demands[0], ConflictKind::Undecodable, None, why);
                    return Ok(Vec::new());
                }
                Err(e) => return Err(self.error_of(e)),
            };
            let wanted = &*wanted.get_or_insert_with(|| conflict.held.clone());
            let (kind, why) = match conflict.why {
                Why::Holder { owner, record, revision } => {
                    let Some(keep) = self.stays(&demands[at], (&owner, &record, revision), in_use).await?
                    else {
                        assignments[at].gone.push(Gone { owner, revision });
                        continue;
                    };
                    match self.uses_instead(&owner, &record, &conflict.held, in_use).await? {
                        None => {
                            let whom = whom(&owner, &record.labels.pod);
                            (ConflictKind::Held, format!("held by {whom}: {keep}"))
                        }
                        Some(other) => {
                            assignments[at].gone.push(Gone { owner, revision });
                            if demands.iter().all(|known| known.owner != other.owner) {
                                assignments.push(self.assignment_of(&other));
                                demands.push(other);
                            }
                            continue;
                        }
                    }
                }
                Why::TooMany if assignments.len() > 1 => {
                    return self.trade_one_by_one(demands, assignments).await;
                }
                why => reason(why),
            };
            let why = in_trade(&demands[at], wanted, &conflict.held, why);
            self.keep(&demands[0], kind, Some(wanted), why);
            return Ok(Vec::new());
        }
        let why = "its holders keep changing; run it again".to_owned();
        self.keep(&demands[0], ConflictKind::Changed, None, why);
        Ok(Vec::new())
    }

    /// For a trade that is too large for one transaction. The store is consistent after each step: a step frees the
    /// record of an owner, and the next step writes that owner again. The store stays suspect until the last step.
    /// After a crash another run does the rest.
    async fn trade_one_by_one(
        &self,
        demands: Vec<Demand>,
        assignments: Vec<Assignment>,
    ) -> Result<Vec<Owner>, AdoptionError> {
        let gone: Vec<Gone> = assignments.iter().flat_map(|assignment| assignment.gone.clone()).collect();
        for (demand, wanted) in demands.iter().zip(assignments) {
            let wanted = Assignment { gone: gone.clone(), ..wanted };
            match self.context.assign(&wanted).await {
                Ok(Assigned::Present) => self.report.borrow_mut().present += 1,
                Ok(Assigned::Made(made)) => self.traded(std::slice::from_ref(demand), vec![made]),
                Ok(Assigned::Conflict(conflict)) => {
                    let (kind, why) = reason(conflict.why);
                    self.keep(demand, kind, Some(&conflict.held), why);
                }
                Err(e) => return Err(self.error_of(e)),
            }
        }
        Ok(demands.into_iter().map(|demand| demand.owner).collect())
    }

    fn traded(&self, demands: &[Demand], made: Vec<Made>) {
        let report = &mut *self.report.borrow_mut();
        for (demand, made) in demands.iter().zip(made).filter(|(_, made)| !made.held.is_empty()) {
            let adopted = demand.adopted(made);
            // In a dry run the same result may already have been foreseen for this interface alone.
            let is_same =
                |known: &Adopted| (&known.pod, &known.interface) == (&adopted.pod, &adopted.interface);
            if !self.context.dry_run || !report.adopted.iter().any(is_same) {
                report.adopt(adopted);
            }
        }
    }

    fn keep(&self, demand: &Demand, kind: ConflictKind, held: Option<&Held>, why: String) {
        let conflict = demand.conflict(kind, held.map(|held| held.address), why);
        self.report.borrow_mut().conflicts.push(conflict);
    }
}

/// The reason why a trade for `wanted` cannot be made: `held` is in the way of an owner that takes part.
fn in_trade(of: &Demand, wanted: &Held, held: &Held, why: String) -> String {
    if held == wanted {
        return why;
    }
    let Demand { pod, owner, .. } = of;
    format!(
        "its holder would give it up, but {} of pod {}/{} cannot have {}: {why}",
        owner.ifname, pod.namespace, pod.name, held.address
    )
}
