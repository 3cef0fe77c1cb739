//! A cluster switches from whereabouts to metes without restarting a pod: metes reserves what whereabouts has handed
//! out, for the containers that whereabouts' pools name.
//!
//! The switch has two steps, and an administrator changes the NetworkAttachmentDefinitions between them. The first step
//! pauses the store, so that metes hands out nothing while whereabouts still may. The second step begins when no
//! whereabouts can be at work any more. It takes over what was handed out since the first step, and ends the pause.
//! Pools are read before pods, so that if an entry has no pod, that pod is gone. Either step may be killed at any point
//! and run again.
//!
//! - `objects` reads from Kubernetes; `facts` keeps the needed parts.
//! - `nads`, `pools` and [`gather`] work out the assignments (`gathered`); pure.
//! - `take` assigns the addresses of each interface, and `asked` leaves the ranges for people.
//! - `pause` keeps ADD waiting, and remembers for how long the definitions have not changed.

mod asked;
mod error;
pub mod facts;
pub mod gather;
pub mod gathered;
pub mod nads;
pub mod objects;
pub mod pause;
pub mod pools;
pub mod report;
mod take;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use metes_core::keys::Key;
use metes_core::pool::{ContainerKind, NetworkName, Owner, OwnerKind, OwnerRecord, PodUid, Record};
use metes_core::txn::Entry;
use metes_engine::kv::Kv;
use metes_engine::release::release_as_read;
use metes_engine::walk::walk;
use metes_node::node::timestamp;

use crate::api::Phase;
use crate::assign::Made;
use crate::context::{AT_ONCE, Context, within};
use crate::kubernetes::Kubernetes;
pub use error::ImportError;
use error::whole_seconds;
use facts::{HeldByPods, PodFacts, PodRef, World};
use gathered::{Gathered, Group, Refused};
use nads::{Nad, Use};
use pause::{Pause, PauseState, digest};
use report::{GivenUp, ImportReport, Taken, Unusable, pod_name};
use take::TakeOver;

/// The time between two reads of the definitions while they must not change.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// A step of a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ImportStep {
    /// Before the definitions are changed.
    Begin,
    /// After the definitions were changed.
    Finish,
    /// Ends the switch without its second step.
    Cancel,
}

impl ImportStep {
    /// The flag without its hyphens.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ImportStep::Begin => "begin",
            ImportStep::Finish => "finish",
            ImportStep::Cancel => "cancel",
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct ImportOptions {
    pub(crate) step: ImportStep,
    /// Wait until the definitions have been unchanged for long enough.
    pub(crate) wait: bool,
    /// End the pause even if something could not be taken over.
    pub(crate) force: bool,
    /// For how long the definitions must be unchanged before the end.
    pub(crate) settle: Duration,
}

/// An import under way.
pub struct Import<'a, K> {
    /// The store, the cluster and its Kubernetes.
    pub(crate) context: Context<'a, K, Kubernetes>,
    pub(crate) options: ImportOptions,
    /// The result so far.
    pub(crate) report: &'a mut ImportReport,
}

/// Runs an import, at most for `timeout`.
///
/// # Errors
/// [`ImportError`]; `report` has the work done until then.
pub async fn run<K: Kv>(mut import: Import<'_, K>, timeout: Duration) -> Result<(), ImportError> {
    let ended = within(timeout, "it", Box::pin(import.run())).await;
    import.report.sort();
    ended
}

/// A record that an import has written.
struct Imported {
    owner: Owner,
    revision: i64,
    record: OwnerRecord,
}

impl<K: Kv> Import<'_, K> {
    async fn run(&mut self) -> Result<(), ImportError> {
        let before = self.pause().state().await?;
        self.report.paused = Some(before == PauseState::Held);
        self.context.claim_name().await?;
        match self.options.step {
            ImportStep::Begin => self.begin().await,
            ImportStep::Finish | ImportStep::Cancel if before == PauseState::Open => {
                Err(ImportError::NotBegun)
            }
            ImportStep::Finish => self.finish().await,
            ImportStep::Cancel => self.end_pause().await,
        }
    }

    async fn begin(&mut self) -> Result<(), ImportError> {
        let nads = self.nads().await?;
        if !self.context.dry_run {
            self.pause().set().await?;
            self.report.paused = Some(true);
            self.pause().remember(&nads, None).await?;
        }
        self.import(&nads).await?;
        match self.report.failures() {
            0 => Ok(()),
            failures => Err(ImportError::Incomplete { failures, is_paused: false }),
        }
    }

    async fn finish(&mut self) -> Result<(), ImportError> {
        let nads = self.settled().await?;
        self.import(&nads).await?;
        let failures = self.report.failures();
        if failures > 0 && !self.options.force {
            return Err(ImportError::Incomplete { failures, is_paused: true });
        }
        // A definition may have been changed back at the last moment.
        if digest(&objects::nads(self.context.api).await?) != digest(&nads) {
            return Err(ImportError::DefinitionsChanged);
        }
        self.end_pause().await
    }

    async fn end_pause(&mut self) -> Result<(), ImportError> {
        if !self.context.dry_run {
            self.pause().clear().await?;
            self.report.paused = Some(false);
        }
        Ok(())
    }

    fn pause(&self) -> Pause<'_, K> {
        Pause { session: self.context.session, cluster: self.context.cluster, now: timestamp() }
    }

    async fn nads(&mut self) -> Result<Vec<Nad>, ImportError> {
        let nads = objects::nads(self.context.api).await?;
        self.report.scanned.definitions = nads.len();
        let left = nads.iter().filter(|nad| nad.uses_whereabouts());
        self.report.whereabouts = left.map(|nad| nad.id.to_string()).collect();
        let unread = nads.iter().filter_map(|nad| Some((&nad.id, nad.unread.as_ref()?)));
        let uses = nads.iter().flat_map(|nad| &nad.uses);
        let refused = uses.filter_map(|one| Some((&one.nad, one.ranges.as_ref().err()?)));
        let unusable = unread.chain(refused);
        self.report.unusable =
            unusable.map(|(id, why)| Unusable { definition: id.to_string(), why: why.clone() }).collect();
        Ok(nads)
    }

    /// Waits until no whereabouts that a definition started can be at work, and returns the definitions.
    async fn settled(&mut self) -> Result<Vec<Nad>, ImportError> {
        let settle = self.options.settle;
        loop {
            let nads = self.nads().await?;
            if !self.report.whereabouts.is_empty() {
                return Err(ImportError::StillUsed(self.report.whereabouts.clone()));
            }
            let seen = self.pause().seen(&nads).await?;
            let left = settle.saturating_sub(seen.unchanged_for);
            // Pods are listed after the definitions were read: a pod that is made later finds them changed.
            let waiting = objects::waiting(self.context.api).await?;
            if !self.context.dry_run {
                self.pause().remember(&nads, Some(&waiting)).await?;
            }
            let is_older = |uid: &&String| seen.waiting.as_ref().is_none_or(|older| older.contains(*uid));
            let pods = waiting.iter().filter(is_older).count();
            if left.is_zero() || pods == 0 {
                return Ok(nads);
            }
            if !self.options.wait || self.context.dry_run {
                return Err(ImportError::TooEarly { settle, left, pods });
            }
            tracing::info!(pods, left = %whole_seconds(left), "waiting until no whereabouts can be at work");
            tokio::time::sleep(left.min(LOOK_EVERY)).await;
        }
    }

    /// Takes over all that can be taken over now.
    async fn import(&mut self, nads: &[Nad]) -> Result<(), ImportError> {
        let pools = objects::pools(self.context.api).await?;
        let reservations = objects::reservations(self.context.api).await?;
        let (imported, held) = self.imported().await?;
        let mut wanted = gather::wanted_pods(&pools, &reservations);
        wanted.extend(imported.iter().map(|one| pod_ref(&one.record)));
        // Pods are listed after the pools: a pod that is made later has no entry there.
        let pods = objects::pods(self.context.api, &wanted).await?;
        let cut_off = objects::cut_off_nodes(self.context.api).await?;
        let uses: Vec<&Use> = nads.iter().flat_map(|nad| &nad.uses).collect();
        let is_other = |nad: &&Nad| nad.uses.is_empty() && nad.unread.is_none();
        let others: HashSet<String> = nads.iter().filter(is_other).map(|nad| nad.id.to_string()).collect();
        let gathered = gather::gather(&World {
            pools: &pools,
            reservations: &reservations,
            uses: &uses,
            others: &others,
            pods: &pods,
            held: &held,
            cut_off: &cut_off,
            cluster: self.context.cluster,
        });
        let scanned = &mut self.report.scanned;
        (scanned.pools, scanned.reservations) = (pools.len(), reservations.len());
        (scanned.entries, scanned.pods) = (gathered.entries, pods.len());
        self.report.given_up = given_up(&imported, &gathered, &pods);
        self.make_room(&imported, &gathered).await?;
        let Gathered { groups, stale, kept, refused, .. } = gathered;
        (self.report.stale, self.report.kept, self.report.refused) = (stale, kept, refused);
        self.take_all(groups).await?;
        if !self.context.dry_run {
            self.context.leave_asked(nads).await?;
        }
        Ok(())
    }

    /// Reads what earlier imports have written, and all that this cluster's pods hold.
    async fn imported(&self) -> Result<(Vec<Imported>, HeldByPods), ImportError> {
        let Context { session, cluster, .. } = self.context;
        let see = |(found, held): &mut (Vec<Imported>, HeldByPods), entry: Entry| {
            let Ok(Key::Owner(owner)) = session.keys.parse(&entry.key) else { return };
            let Ok(record) = OwnerRecord::decode(&entry.value) else { return };
            if owner.cluster.as_ref() != Some(cluster) {
                return;
            }
            held.see(&owner, &record);
            let may_be_imported = match owner.kind() {
                OwnerKind::Container(ContainerKind::Adopted)
                | OwnerKind::Aside(..)
                | OwnerKind::Subject(_)
                | OwnerKind::Unknown => false,
                // An entry may have named any container. A run writes its start.
                OwnerKind::Container(
                    ContainerKind::Runtime | ContainerKind::Imported | ContainerKind::Claim,
                ) => record.start.is_none(),
            };
            if may_be_imported {
                found.push(Imported { owner, revision: entry.mod_revision, record });
            }
        };
        Ok(walk(session, &session.keys.owners(), Default::default, see).await?.0)
    }

    /// Frees the owners of earlier sandboxes, so that the pod's present sandbox can hold the same addresses. Nobody can
    /// take the addresses in between, because ADD waits.
    async fn make_room(&mut self, imported: &[Imported], gathered: &Gathered) -> Result<(), ImportError> {
        for group in &gathered.groups {
            let is_earlier = |one: &&Imported| {
                one.owner != group.owner
                    && one.owner.ifname == group.owner.ifname
                    && one.record.labels.pod.uid == group.labels.pod.uid
                    && !gathered.containers.contains(&one.owner.container_id)
                    && one.record.addresses.iter().any(|held| held.is_among(&group.held))
            };
            for earlier in imported.iter().filter(is_earlier) {
                if !self.context.dry_run {
                    // The addresses stay with their pod.
                    let session = self.context.for_one_owner();
                    release_as_read(session, &earlier.owner, earlier.revision, None).await?;
                }
                self.report.moved.push(earlier.owner.clone());
            }
        }
        Ok(())
    }

    /// Takes over a few owners at a time. Each result is noted at once, because the first failure or the timeout ends
    /// the work.
    async fn take_all(&mut self, groups: Vec<Group>) -> Result<(), ImportError> {
        let context = self.context;
        let take = |group: Group| async move {
            let taken = context.take_over(&group).await;
            (group, taken)
        };
        let mut takes = std::pin::pin!(stream::iter(groups).map(take).buffer_unordered(AT_ONCE));
        while let Some((group, taken)) = takes.next().await {
            self.note(&group, taken?);
        }
        Ok(())
    }

    fn note(&mut self, group: &Group, taken: TakeOver) {
        let TakeOver { made: Made { held, replaced }, refused } = taken;
        if held.is_empty() && refused.is_empty() {
            self.report.present += 1;
        }
        for (one, why) in refused {
            self.report.refused.push(Refused {
                at: format!("{} of container {}", group.owner.ifname, group.owner.container_id),
                pod: pod_name(&group.labels.pod),
                address: Some(one.address),
                why,
                is_running: group.is_running,
            });
        }
        if !held.is_empty() {
            let (owner, pod) = (group.owner.clone(), group.labels.pod.clone());
            self.report.taken.push(Taken { owner, pod, held, replaced });
        }
    }
}

fn pod_ref(record: &OwnerRecord) -> PodRef {
    let pod = &record.labels.pod;
    PodRef { namespace: pod.namespace.clone(), name: pod.name.clone() }
}

/// The addresses that earlier imports reserved for a running pod and that whereabouts no longer lists.
fn given_up(imported: &[Imported], gathered: &Gathered, pods: &HashMap<PodRef, PodFacts>) -> Vec<GivenUp> {
    let held =
        gathered.groups.iter().flat_map(|group| group.held.iter().map(|one| (&group.labels.pod.uid, one)));
    let held: HashSet<(&Option<PodUid>, &NetworkName, _)> =
        held.filter_map(|(uid, one)| Some((uid, one.network.as_ref()?, one.address))).collect();
    let refused: HashSet<_> = gathered.refused.iter().filter_map(|one| one.address).collect();
    let mut found = Vec::new();
    for Imported { owner, record, .. } in imported {
        let pod = &record.labels.pod;
        let facts = pods.get(&pod_ref(record));
        if facts.is_none_or(|facts| !facts.goes_by(pod.uid.as_ref()) || facts.phase != Phase::Active) {
            continue;
        }
        for one in &record.addresses {
            let Some(network) = &one.network else { continue };
            if !held.contains(&(&pod.uid, network, one.address)) && !refused.contains(&one.address) {
                let (interface, container_id) = (owner.ifname.to_string(), owner.container_id.to_string());
                found.push(GivenUp { pod: pod_name(pod), interface, container_id, address: one.address });
            }
        }
    }
    found
}
