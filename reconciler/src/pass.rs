//! One pass: it reads etcd first, then Kubernetes, then judges each owner and frees the orphans.
//!
//! This order makes it safe. Owners are listed before pods. So if an owner has no pod in the listing, that pod is gone:
//! a pod that is made later did not own anything yet. Right before an orphan is freed, its pod is asked for once more.
//! The free compares the revision of the record that was judged. So a pass may run at any moment, also beside another
//! one, and may be killed at any point.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use metes_audit::repair;
use metes_config::Settings;
use metes_core::cooling::CoolingLeases;
use metes_core::limits;
use metes_core::plan::free::Freed;
use metes_core::pool::{Held, Meta, NetworkName, NodeName, Owner, OwnerRecord, VERSION};
use metes_core::txn::Compare;
use metes_engine::kv::{Failure, Kv};
use metes_engine::prefix::StoredMeta;
use metes_engine::release::{FreeError, release_if};
use metes_node::node;

use crate::api::{self, Api};
use crate::census::{Census, Survey};
use crate::context::{AT_ONCE, Context, read, read_meta, within};
use crate::error::RunError;
use crate::holder::Holder;
use crate::holds::{HoldState, end_holds};
use crate::lacking::Look;
use crate::machines::forget_machines;
use crate::nad::Definitions;
use crate::pools;
use crate::report::PassReport;
use crate::reported::{Reported, Unheld};
use crate::second_look::{pods_now, see_claims};
use crate::sightings::Memory;
use crate::verdict::{Free, Graces, Keep, Orphan, Verdict, judge, orphaned};
use crate::world::{Nodes, Pods};

/// A hold that stays for a shorter time than this is ended after few passes.
const HASTY: Duration = Duration::from_secs(3600);

/// The options of a pass.
#[derive(Debug, Clone, Copy)]
pub struct PassOptions {
    /// The times for which orphans must have been seen as such.
    pub graces: Graces,
    /// Free all orphans, however many there are.
    pub force: bool,
}

/// A pass that did not do all that it should. Owners freed until then stay freed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PassError {
    /// The pass ended early.
    #[error("{}{}", .0, advice(.0))]
    Run(RunError),
    /// Too many orphans at once.
    #[error(
        "{orphans} of {records} records seem to be orphans, and more than {limit} are suspicious: nothing is freed; \
         look at the report of --dry-run --force, then free them with --force"
    )]
    Brake {
        /// The number of orphans.
        orphans: usize,
        /// The number of records of this cluster.
        records: usize,
        /// The number of orphans that is never suspicious.
        limit: usize,
    },
    /// Too many holds at once that stay for less than an hour.
    #[error(
        "{holds} holds for pods that stay for less than an hour are unused, and more than {limit} are suspicious: \
         none of these is ended; look at the report of --dry-run --force, then end them with --force"
    )]
    HoldsBrake {
        /// The number of these holds.
        holds: usize,
        /// The number that is never suspicious.
        limit: usize,
    },
    /// etcd refused to free some orphans.
    #[error(
        "{orphans} orphans cannot be freed, all others are: {why}; look for their records with `metes show`"
    )]
    Refused {
        /// The number of orphans.
        orphans: usize,
        /// The error for the first of them.
        why: Failure,
    },
}

impl<E: Into<RunError>> From<E> for PassError {
    fn from(e: E) -> Self {
        PassError::Run(e.into())
    }
}

/// The meaning of an error for a pass, and the remedy.
fn advice(e: &RunError) -> String {
    match e {
        RunError::Api(_) | RunError::Store(_) | RunError::OutOfTime(_) => {
            "; nothing more is freed".to_owned()
        }
        RunError::Bad(_) => "; nothing is freed; run `metes check`".to_owned(),
        RunError::NoStore(_) => ": nothing is freed".to_owned(),
        RunError::Suspect(_) => ": its records say nothing about what is in use, and nothing is freed; \
            run `metes-reconciler adopt --dry-run`, then `metes-reconciler adopt`"
            .to_owned(),
        RunError::MetaMissing(_) => {
            ", and nothing is freed; run `metes check`, then `metes-reconciler adopt`".to_owned()
        }
        RunError::Newer(_) => format!(", and this one is of version {VERSION}: nothing is freed"),
        RunError::OtherCluster { .. } => ": nothing is freed; point --kubeconfig to the right cluster, \
            or give each cluster a `cluster` of its own in the host file"
            .to_owned(),
        RunError::Timeout(..) => "; nothing more is freed; raise --timeout".to_owned(),
    }
}

/// A pass under way.
pub struct Pass<'a, K, A> {
    /// The store, the cluster and its Kubernetes.
    pub context: Context<'a, K, A>,
    /// Its options.
    pub options: PassOptions,
    /// The prefixes that each network may use. Without them the pass does not compare the reports of pods with the
    /// store.
    pub settings: Option<&'a Settings>,
    /// The result so far.
    pub report: &'a RefCell<PassReport>,
}

/// An orphan that is to be freed.
struct Due {
    holder: Holder,
    orphan: Orphan,
    /// Conditions of its free, besides that its record is as it was judged.
    only_if: Vec<Compare>,
}

/// The result of judging all owners.
struct Orphans {
    due: Vec<Due>,
    /// The reason why none of them may be freed, if there are suspiciously many.
    brake: Option<PassError>,
    /// The reason why no hold that stays for a short time may be ended, if there are suspiciously many.
    holds_brake: Option<PassError>,
    nodes: Nodes,
    /// An error if new nodes or new orphans could not be remembered.
    remembered: Result<(), Failure>,
}

impl<'a, K: Kv, A: Api> Pass<'a, K, A> {
    /// Makes the pass.
    ///
    /// # Errors
    /// [`PassError`]
    pub async fn run(&self) -> Result<(), PassError> {
        if let Some(why) = self.paused().await? {
            self.report.borrow_mut().paused = Some(why);
            return Ok(());
        }
        self.context.claim_name().await?;
        let Orphans { due, brake, holds_brake, nodes, remembered } = self.look().await?;
        if let Some(brake) = brake {
            // The counts of the pools are of interest just then. Nothing is repaired.
            if let Err(why) = self.audit().await {
                tracing::warn!(%why, "the addresses cannot be counted");
            }
            return Err(brake);
        }
        let refused = self.free(due, &nodes).await?;
        self.end_holds().await?;
        remembered?;
        self.repair().await?;
        refused.or(holds_brake).map_or(Ok(()), Err)
    }

    /// The reason for a migration that is under way; none if there is no migration.
    async fn paused(&self) -> Result<Option<String>, RunError> {
        let StoredMeta { meta, .. } = read_meta(self.context.session).await?;
        Ok(meta.and_then(|meta| meta.paused))
    }

    /// Finds out which owners are orphans, and for how long. Returns those that are due.
    async fn look(&self) -> Result<Orphans, PassError> {
        let Context { session, cluster, .. } = self.context;
        let mut census = Census::take(session, cluster).await?;
        self.report.borrow_mut().revision = census.revision;
        self.report.borrow_mut().scanned.owners = census.owners;
        if census.owners > 0 && read::<K, Meta>(session, &session.keys.meta()).await?.0.is_none() {
            return Err(RunError::meta_missing(session.keys).into());
        }
        let definitions = self.definitions().await?;
        let mut reported = Reported::new(&definitions, &census.held);
        let pods = self.pods(take(&mut census.pods), &mut reported).await?;
        let lacking_remembered = self.find_lacking(reported.unheld, &definitions, &pods).await?;
        let (nodes, nodes_remembered) = self.nodes(&census).await?;
        self.report.borrow_mut().scanned.pods = pods.count();
        self.report.borrow_mut().scanned.nodes = nodes.count();
        let machines_forgotten = self.forget_machines(&census, &nodes).await?;
        let survey = census.survey(session, cluster, (&pods, &nodes, &self.options.graces)).await?;
        warn_of_misnamed_nodes(&survey.misnamed);
        let judged = self.judge(survey, census.ours, &pods, nodes).await?;
        let written = nodes_remembered.and(lacking_remembered).and(machines_forgotten);
        Ok(Orphans { remembered: judged.remembered.and(written), ..judged })
    }

    /// The networks of this cluster's pods, if the pass compares the reports of pods.
    async fn definitions(&self) -> Result<Definitions, PassError> {
        let Some(settings) = self.settings else { return Ok(Definitions::default()) };
        let pools = pools::read(self.context.session).await?;
        Ok(Definitions::list_if_shown(self.context.api, settings, &pools).await?)
    }

    async fn pods(&self, mut pods: Pods, reported: &mut Reported<'_>) -> Result<Pods, PassError> {
        let mut see = |pod: api::Pod| {
            reported.see(&pod);
            pods.see(&pod, api::Phase::Active);
        };
        self.context.api.pods(api::PodFilter::All, &mut see).await?;
        // Finished pods are listed second: a pod that has finished never runs again, whenever the first listing was
        // made.
        self.context
            .api
            .pods(api::PodFilter::Finished, &mut |pod| pods.see(&pod, api::Phase::Finished))
            .await?;
        see_claims(self.context.api, &mut pods, None).await?;
        Ok(pods)
    }

    /// Finds out which addresses that running pods report the store lacks; and whether they could be remembered.
    async fn find_lacking(
        &self,
        unheld: Vec<Unheld>,
        definitions: &Definitions,
        pods: &Pods,
    ) -> Result<Result<(), Failure>, PassError> {
        if self.settings.is_none() {
            return Ok(Ok(()));
        }
        let look = Look { context: self.context, definitions, pods };
        let (lacking, remembered) = look.find(unheld).await?;
        self.report.borrow_mut().lack(lacking);
        unless_full(remembered)
    }

    /// The networks in which nothing is freed.
    fn doubtful(&self) -> BTreeSet<NetworkName> {
        self.report.borrow().lacking.networks.clone()
    }

    /// The present nodes, with the names of the earlier ones; and whether the new ones could be remembered.
    async fn nodes(&self, census: &Census) -> Result<(Nodes, Result<(), Failure>), PassError> {
        let mut nodes = Nodes::default();
        self.context.api.nodes(&mut |node| nodes.see(node)).await?;
        let memory = self.memory();
        let seen = memory.recall_nodes().await?;
        seen.names().for_each(|node| nodes.remember(node.to_string()));
        let remembered = match self.context.dry_run {
            true => Ok(()),
            false => memory.update_nodes(&seen, &nodes, &census.own_nodes).await,
        };
        Ok((nodes, unless_full(remembered)?))
    }

    /// Deletes the keys of machines that are gone; and says whether it could.
    async fn forget_machines(
        &self,
        census: &Census,
        nodes: &Nodes,
    ) -> Result<Result<(), Failure>, PassError> {
        if self.context.dry_run {
            return Ok(Ok(()));
        }
        let grace = self.options.graces.machine;
        let forgotten = forget_machines(self.memory(), (nodes, &census.nodes), grace).await;
        if let Ok(machines @ 1..) = forgotten {
            tracing::info!(machines, "deleted the keys of machines that Kubernetes does not have any more");
        }
        unless_full(forgotten.map(|_| ()))
    }

    /// Warns if it is not certain which cluster an orphan belongs to.
    fn warn_of_strange_nodes(&self, orphans: &[(&Holder, Orphan)]) {
        let mut strange = orphans.iter().filter(|(_, orphan)| orphan.meanwhile == Keep::NodeUnknown);
        let Some((Holder { owner: first, .. }, _)) = strange.next() else { return };
        let owners = 1 + strange.count();
        tracing::warn!(
            owners,
            node = %first.node,
            "owners without a pod are of nodes that Kubernetes has never had: another cluster may go by this \
             cluster's name"
        );
    }

    /// Judges the open owners, says whether the brake is on for so many records, and remembers the orphans.
    async fn judge(
        &self,
        survey: Survey,
        records: usize,
        pods: &Pods,
        nodes: Nodes,
    ) -> Result<Orphans, PassError> {
        let graces = &self.options.graces;
        let memory = self.memory();
        let sightings = memory.recall().await?;
        self.report.borrow_mut().kept = survey.kept;
        self.report.borrow_mut().holds_of_pods = survey.holds;
        let mut orphans = Vec::new();
        let mut due = Vec::new();
        let (mut suspicious, mut hasty) = (0, 0);
        for holder in &survey.open {
            let orphaned = orphaned(holder, pods, &nodes, graces);
            let seen_for =
                orphaned.map_or(Duration::ZERO, |orphan| sightings.seen_for(holder, orphan.reason));
            if let Ok(orphan) = orphaned {
                orphans.push((holder, orphan));
                // These two kinds say nothing about the API. An owner without a pod has been an orphan since its first
                // day. An owner of an unknown node is not judged yet.
                let is_foreign = orphan.reason == Free::Unlabelled || orphan.meanwhile == Keep::NodeUnknown;
                let is_hold = orphan.reason == Free::Unused;
                suspicious += usize::from(!is_hold && (!is_foreign || seen_for >= orphan.grace));
                let is_due = seen_for >= orphan.grace;
                hasty += usize::from(is_hold && is_due && orphan.grace < HASTY);
            }
            if let Some(state) = HoldState::of(holder, orphaned) {
                *self.report.borrow_mut().holds_of_pods.entry(state).or_default() += 1;
            }
            match judge(orphaned, seen_for) {
                Verdict::Keep(why) => {
                    if why == Keep::Undecodable {
                        let Owner { node, container_id, ifname, .. } = &holder.owner;
                        tracing::warn!(%node, container = %container_id, %ifname, "a record does not decode");
                    }
                    self.report.borrow_mut().keep(why);
                }
                // A pod that has used the hold since, and is gone again, has deleted the sighting.
                Verdict::Free(reason) => due.extend(orphaned.map(|orphan| Due {
                    only_if: match reason {
                        Free::Unused => vec![sightings.unchanged(self.context.session.keys, &holder.owner)],
                        _ => Vec::new(),
                    },
                    holder: holder.clone(),
                    orphan,
                })),
            }
        }
        self.report.borrow_mut().orphans = orphans.len();
        self.warn_of_strange_nodes(&orphans);
        let limit = limits::BRAKE_AT_LEAST.max(records / limits::BRAKE_ONE_IN);
        // Each pass for the whole of its time has seen a hold unused. Only where that time is short may a wrong answer
        // have made all of them so.
        let holds_brake = (hasty > limit && !self.options.force).then(|| {
            due.retain(|due| due.orphan.reason != Free::Unused || due.orphan.grace >= HASTY);
            PassError::HoldsBrake { holds: hasty, limit }
        });
        let remembered = match self.context.dry_run {
            true => Ok(()),
            false => memory.update(&sightings, &orphans, graces).await,
        };
        let remembered = unless_full(remembered)?;
        let brakes = suspicious > limit && !self.options.force;
        let brake = brakes.then_some(PassError::Brake { orphans: suspicious, records, limit });
        Ok(Orphans { due, brake, holds_brake, nodes, remembered })
    }

    fn memory(&self) -> Memory<'a, K> {
        Memory { session: self.context.session, cluster: self.context.cluster }
    }

    /// Frees the orphans that are due, a few at a time. Each is reported at once, because the pass may be ended at any
    /// moment. After the first failure no other free begins, and those that have begun are carried to their end. If
    /// etcd refuses to free one owner, this says nothing about the others: it is only returned at the end.
    async fn free(&self, due: Vec<Due>, nodes: &Nodes) -> Result<Option<PassError>, PassError> {
        let failed = Cell::new(false);
        let mut stop = None;
        let mut refused = Vec::new();
        let mut gone = Vec::new();
        let failed = &failed;
        let leases = &RefCell::new(CoolingLeases::default());
        let free = |due: Due| async move {
            if failed.get() {
                return None;
            }
            let mut own_leases = leases.borrow().clone();
            let freed = self.free_one(&due, nodes, &mut own_leases).await;
            let Due { holder, orphan, .. } = due;
            leases.borrow_mut().learn(own_leases);
            let is_its_own =
                matches!(freed, Ok(_) | Err(PassError::Run(RunError::Store(Failure::Refused(_)))));
            failed.set(failed.get() || !is_its_own);
            Some((holder, orphan.reason, freed))
        };
        let mut frees = stream::iter(due).map(free).buffer_unordered(AT_ONCE);
        while let Some(freed) = frees.next().await {
            match freed {
                Some((holder, reason, Ok(Ok(held)))) => {
                    self.report.borrow_mut().free(&holder, reason, &held);
                    gone.push(holder.owner);
                }
                Some((_, _, Ok(Err(keep)))) => self.report.borrow_mut().keep(keep),
                Some((holder, _, Err(PassError::Run(RunError::Store(failure @ Failure::Refused(_)))))) => {
                    let Owner { node, container_id, ifname, .. } = &holder.owner;
                    tracing::warn!(%node, container = %container_id, %ifname, %failure, "an orphan cannot be freed");
                    refused.push(failure);
                }
                Some((_, _, Err(why))) => stop = stop.or(Some(why)),
                None => {}
            }
        }
        if let Some(stop) = stop {
            return Err(stop);
        }
        if !self.context.dry_run {
            self.memory().forget(gone.iter()).await?;
        }
        let orphans = refused.len();
        Ok(refused.into_iter().next().map(|why| PassError::Refused { orphans, why }))
    }

    /// Kubernetes has no say in this. But the order of a pass is one for all that it frees.
    async fn end_holds(&self) -> Result<(), PassError> {
        if self.paused().await?.is_none() {
            let counts = end_holds(self.context, &self.doubtful()).await?;
            self.report.borrow_mut().holds = counts;
        }
        Ok(())
    }

    /// Looks at one orphan a second time and frees it; otherwise says why it keeps what it has.
    async fn free_one(
        &self,
        Due { holder, orphan, only_if }: &Due,
        nodes: &Nodes,
        leases: &mut CoolingLeases,
    ) -> Result<Result<Vec<Held>, Keep>, PassError> {
        if self.paused().await?.is_some() || !self.is_still_orphaned(holder, *orphan, nodes).await? {
            return Ok(Err(Keep::Changed));
        }
        let doubtful = self.doubtful();
        if self.context.dry_run || !doubtful.is_empty() {
            let held = self.held(holder, &doubtful).await?;
            if self.context.dry_run || held.is_err() {
                return Ok(held);
            }
        }
        // Its pod is gone, so no ADD for it can still be under way.
        let guard = (holder.revision, only_if.as_slice());
        match release_if(self.context.for_one_owner(), &holder.owner, guard, Some(leases)).await {
            Ok(Freed::Addresses(held)) => Ok(Ok(held)),
            Ok(Freed::Nothing | Freed::Younger | Freed::Elsewhere(_)) => Ok(Err(Keep::Changed)),
            Err(FreeError::Bad(bad)) => {
                tracing::warn!(%bad, "an orphan cannot be freed");
                Ok(Err(Keep::Undecodable))
            }
            Err(why @ (FreeError::Store(_) | FreeError::OutOfTime(_))) => Err(why.into()),
        }
    }

    /// The addresses that the judged record holds; otherwise the reason why none of it is freed.
    async fn held(
        &self,
        holder: &Holder,
        doubtful: &BTreeSet<NetworkName>,
    ) -> Result<Result<Vec<Held>, Keep>, PassError> {
        let own = self.context.session.keys.owner(&holder.owner);
        let (record, revision) = read::<K, OwnerRecord>(self.context.session, &own).await?;
        let Some(record) = record.filter(|_| revision == holder.revision) else {
            return Ok(Err(Keep::Changed));
        };
        let is_doubtful = record.reserved().any(|(network, _)| doubtful.contains(network));
        Ok(if is_doubtful { Err(Keep::NetworkDoubtful) } else { Ok(record.addresses) })
    }

    /// Asks the API for the orphan's pod or claim as it is now.
    async fn is_still_orphaned(
        &self,
        holder: &Holder,
        orphan: Orphan,
        nodes: &Nodes,
    ) -> Result<bool, PassError> {
        let pods = pods_now(self.context.api, holder).await?;
        Ok(orphaned(holder, &pods, nodes, &self.options.graces) == Ok(orphan))
    }

    /// Counts addresses, and reports what a person should look at.
    async fn audit(&self) -> Result<metes_audit::Report, Failure> {
        let mut audit = metes_audit::audit_bits(self.context.session, BTreeSet::new()).await?;
        self.report.borrow_mut().found(&mut audit);
        Ok(audit)
    }

    /// Repairs what costs addresses or time.
    async fn repair(&self) -> Result<(), PassError> {
        let session = self.context.session;
        let mut audit = self.audit().await?;
        audit.repairs.spare(&self.doubtful());
        if audit.violations.iter().any(|finding| finding.kind == metes_audit::Kind::MetaMissing) {
            return Err(RunError::meta_missing(session.keys).into());
        }
        if !self.context.dry_run {
            let repaired = repair::tidy(session, audit.repairs, &node::timestamp()).await?;
            self.report.borrow_mut().repaired = repaired;
        }
        Ok(())
    }
}

/// Warns if pods run on nodes that have another name in Kubernetes. Nobody can then see that such a node is not Ready
/// or was started again.
fn warn_of_misnamed_nodes(misnamed: &BTreeMap<NodeName, usize>) {
    let Some(node) = misnamed.keys().next() else { return };
    let owners = misnamed.values().sum::<usize>();
    tracing::warn!(
        owners,
        %node,
        "pods hold addresses on nodes that Kubernetes does not know: node_name in a node's host file must be the \
         Node's name"
    );
}

/// If etcd has no space left to remember something, the pass goes on: only what is new is lost. Orphans that are due
/// were seen before, and to free them takes no space.
fn unless_full(remembered: Result<(), Failure>) -> Result<Result<(), Failure>, PassError> {
    match remembered {
        Ok(()) | Err(Failure::NoSpace(_)) => Ok(remembered),
        Err(failure) => Err(failure.into()),
    }
}

/// Runs a pass, at most for `timeout`.
///
/// # Errors
/// [`PassError`]; `report` has the work done until then.
pub async fn run<K: Kv, A: Api>(pass: Pass<'_, K, A>, timeout: Duration) -> Result<(), PassError> {
    within(timeout, "the pass", Box::pin(pass.run())).await
}
