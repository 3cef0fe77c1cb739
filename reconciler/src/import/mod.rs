//! A cluster switches from whereabouts to metes without restarting a pod: what whereabouts has handed out is
//! reserved in metes, under the containers that its pools name.
//!
//! Two steps, and between them somebody changes the NetworkAttachmentDefinitions. The first one pauses the
//! store, so that metes hands out nothing while whereabouts still may. The second one comes when no
//! whereabouts can be at work any more, takes over what came meanwhile, and ends the pause. Pools are read before
//! pods, so that an entry without its pod has lost it. Either may be killed anywhere and run again.
//!
//! - [`objects`]: what is read from Kubernetes.
//! - [`nads`], [`pools`], [`gather`]: what follows from it; pure.
//! - [`pause`]: what keeps ADD waiting, and for how long the definitions have been as they are.

pub mod gather;
pub mod nads;
pub mod objects;
pub mod pause;
pub mod pools;
pub mod report;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use metes::pool::NetworkName;
use metes::pool::names::{ClusterName, PodUid};
use metes::pool::record::{Held, Owner, OwnerRecord, Record};
use metes::store::keys::{Key, Keys};
use metes::store::kv::{Failure, Kv};
use metes::store::release::{FreeError, release_as_read};
use metes::store::session::Session;
use metes::store::snapshot::BadRecord;
use metes::store::txn::Entry;
use metes::store::walk::walk;
use tokio::time::Instant;

use crate::api::{Api, ApiError, Phase};
use crate::claim::{Claim, ClaimError, Claimed, Gone, Made, Under, Why, claim, foresee};
use crate::holder::Stamp;
use crate::identity::{First, NameError, claim_name};
use crate::kubernetes::Kubernetes;
use crate::verdict::is_named;
use gather::{Gathered, Group, HeldByPods, PodFacts, PodRef, Refused, World};
use nads::{Nad, Use};
use pause::{Pause, State, digest};
use report::{GivenUp, Report, Taken, Unusable, pod_name};

/// How many interfaces are taken over at the same time.
const AT_ONCE: usize = 8;
/// How long one of them may take.
const ONE_DEADLINE: Duration = Duration::from_secs(10);
/// How often the definitions are looked at while they have to stay as they are.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// What an adopted owner's container begins with.
const ADOPTED: &str = "adopted-";

/// Which part of a switch it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Before the definitions are changed.
    Begin,
    /// After that.
    Finish,
    /// Instead of that.
    Cancel,
}

impl Step {
    /// The flag without its hyphens.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Step::Begin => "begin",
            Step::Finish => "finish",
            Step::Cancel => "cancel",
        }
    }
}

/// How to go about it.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Which part.
    pub step: Step,
    /// Write nothing at all.
    pub dry_run: bool,
    /// Wait until the definitions have not changed for long enough.
    pub wait: bool,
    /// End the pause whatever could not be taken over.
    pub force: bool,
    /// For how long the definitions must not have changed before the end.
    pub settle: Duration,
}

/// Why an import ended before its end, or did not take over everything. What it had reserved until then stays
/// reserved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    /// Kubernetes.
    #[error("{0}; run it again")]
    Api(#[from] ApiError),
    /// etcd.
    #[error("{0}; run it again")]
    Store(Failure),
    /// What everybody relies on does not decode.
    #[error("stored state cannot be decoded: {0}; run `metes check`")]
    Bad(#[from] BadRecord),
    /// The store went back in time.
    #[error("etcd went back in time in epoch {0}: nothing is taken over; run `metes-reconciler adopt` first")]
    Suspect(u64),
    /// Written by newer programs.
    #[error(
        "the store is for writers of version {0} or newer: nothing is taken over; use a newer metes-reconciler"
    )]
    Newer(u32),
    /// Records without a meta.
    #[error("there are addresses but no {0}: the store has lost keys; run `metes check`")]
    MetaMissing(String),
    /// The API of another cluster.
    #[error(
        "{0}: nothing is taken over; point --kubeconfig to the right cluster, or give each cluster a `cluster` of its own in the host file"
    )]
    OtherCluster(NameError),
    /// Somebody else's pause.
    #[error("another migration is under way: {0}")]
    OtherPause(String),
    /// Nothing to finish.
    #[error("no import is under way in this cluster: run import-whereabouts --begin first")]
    NotBegun,
    /// Too early by far.
    #[error("ADD stays paused: whereabouts still hands out addresses for {}; change `type` in their `ipam` to metes", .0.join(", "))]
    StillUsed(Vec<String>),
    /// Too early.
    #[error(
        "ADD stays paused: whereabouts may still be at work for {pods} pods, which have no annotation network-status yet; until they have, \
         the NetworkAttachmentDefinitions must not have changed for {}: run it again in {} or with --wait",
        humantime::format_duration(*.settle), whole_seconds(*.left)
    )]
    TooEarly {
        /// For how long nothing must have changed.
        settle: Duration,
        /// How much of that is left.
        left: Duration,
        /// How many pods it is waited for.
        pods: usize,
    },
    /// Changed in the middle.
    #[error("ADD stays paused: a NetworkAttachmentDefinition was changed meanwhile; run it again")]
    DefinitionsChanged,
    /// Somebody else changed meta, or ended the pause.
    #[error(
        "somebody else ended the pause, or changed what all writers rely on: look at `metes check`, and run it again"
    )]
    Changed,
    /// Not everything was taken over.
    #[error(
        "{failures} addresses of running pods could not be taken over{}",
        if *.is_paused { ": ADD stays paused; settle them and run it again, or end the pause with --force" } else { "" }
    )]
    Incomplete {
        /// How many.
        failures: usize,
        /// Whether ADD waits.
        is_paused: bool,
    },
    /// Out of time.
    #[error("it took longer than {}; run it again, with a longer --timeout", humantime::format_duration(*.0))]
    Timeout(Duration),
}

impl Stop {
    /// Whether it ended before everything was looked at.
    #[must_use]
    pub fn is_abort(&self) -> bool {
        !matches!(self, Stop::Incomplete { .. })
    }
}

/// A time that is not over before it is said to be.
fn whole_seconds(left: Duration) -> String {
    let seconds = left.as_secs() + u64::from(left.subsec_nanos() > 0);
    humantime::format_duration(Duration::from_secs(seconds)).to_string()
}

impl From<NameError> for Stop {
    fn from(e: NameError) -> Self {
        match e {
            NameError::Api(e) => Stop::Api(e),
            NameError::Store(failure) => Stop::Store(failure),
            NameError::Bad(bad) => Stop::Bad(bad),
            NameError::Other { .. } => Stop::OtherCluster(e),
        }
    }
}

impl From<FreeError> for Stop {
    fn from(e: FreeError) -> Self {
        match e {
            FreeError::Store(failure) => Stop::Store(failure),
            FreeError::Bad(bad) => Stop::Bad(bad),
        }
    }
}

/// An import under way.
pub struct Import<'a, K> {
    /// The store.
    pub kv: &'a K,
    /// Its keys.
    pub keys: &'a Keys,
    /// This cluster's name, as it is stamped on records.
    pub cluster: &'a ClusterName,
    /// Kubernetes.
    pub api: &'a Kubernetes,
    /// How to go about it.
    pub options: Options,
    /// When all must be over.
    pub until: Instant,
    /// What came of it so far.
    pub report: &'a mut Report,
}

/// Runs an import, at most for `timeout`.
///
/// # Errors
/// [`Stop`]; `report` tells what was done until then.
pub async fn run<K: Kv>(mut import: Import<'_, K>, timeout: Duration) -> Result<(), Stop> {
    // Ended in the middle, it is like one that was killed.
    let ended = tokio::time::timeout(timeout, import.run()).await;
    import.report.sort();
    ended.unwrap_or(Err(Stop::Timeout(timeout)))
}

/// A record that an import has written.
struct Imported {
    owner: Owner,
    revision: i64,
    record: OwnerRecord,
}

/// What became of one group.
#[derive(Default)]
struct Outcome {
    made: Made,
    refused: Vec<(Held, String)>,
}

impl<K: Kv> Import<'_, K> {
    /// Does all of it.
    ///
    /// # Errors
    /// [`Stop`]
    pub async fn run(&mut self) -> Result<(), Stop> {
        let before = self.pause().state().await?;
        self.report.paused = Some(before == State::Held);
        let first = if self.options.dry_run { First::OnlyLooks } else { First::Registers };
        claim_name(self.kv, self.keys, self.cluster, self.api, first, self.until).await?;
        match self.options.step {
            Step::Begin => self.begin().await,
            Step::Finish | Step::Cancel if before == State::Open => Err(Stop::NotBegun),
            Step::Finish => self.finish().await,
            Step::Cancel => self.end_pause().await,
        }
    }

    async fn begin(&mut self) -> Result<(), Stop> {
        let nads = self.nads().await?;
        if !self.options.dry_run {
            self.pause().set().await?;
            self.report.paused = Some(true);
            self.pause().remember(&nads, None).await?;
        }
        self.import(&nads).await?;
        match self.report.failures() {
            0 => Ok(()),
            failures => Err(Stop::Incomplete { failures, is_paused: false }),
        }
    }

    async fn finish(&mut self) -> Result<(), Stop> {
        let nads = self.settled().await?;
        self.import(&nads).await?;
        let failures = self.report.failures();
        if failures > 0 && !self.options.force {
            return Err(Stop::Incomplete { failures, is_paused: true });
        }
        // Changed back in the last moment.
        if digest(&objects::nads(self.api).await?) != digest(&nads) {
            return Err(Stop::DefinitionsChanged);
        }
        self.end_pause().await
    }

    async fn end_pause(&mut self) -> Result<(), Stop> {
        if !self.options.dry_run {
            self.pause().clear().await?;
            self.report.paused = Some(false);
        }
        Ok(())
    }

    fn pause(&self) -> Pause<'_, K> {
        Pause { kv: self.kv, keys: self.keys, cluster: self.cluster, until: self.until }
    }

    async fn nads(&mut self) -> Result<Vec<Nad>, Stop> {
        let nads = objects::nads(self.api).await?;
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

    /// The definitions, once no whereabouts that was started for one of them can be at work.
    async fn settled(&mut self) -> Result<Vec<Nad>, Stop> {
        let settle = self.options.settle;
        loop {
            let nads = self.nads().await?;
            if !self.report.whereabouts.is_empty() {
                return Err(Stop::StillUsed(self.report.whereabouts.clone()));
            }
            let seen = self.pause().seen(&nads).await?;
            let left = settle.saturating_sub(seen.unchanged_for);
            // After the definitions: whoever is made later finds them changed.
            let waiting = objects::waiting(self.api).await?;
            if !self.options.dry_run {
                self.pause().remember(&nads, Some(&waiting)).await?;
            }
            let is_older = |uid: &&String| seen.waiting.as_ref().is_none_or(|older| older.contains(*uid));
            let pods = waiting.iter().filter(is_older).count();
            if left.is_zero() || pods == 0 {
                return Ok(nads);
            }
            if !self.options.wait || self.options.dry_run {
                return Err(Stop::TooEarly { settle, left, pods });
            }
            tracing::info!(pods, left = %whole_seconds(left), "waiting until no whereabouts can be at work");
            tokio::time::sleep(left.min(LOOK_EVERY)).await;
        }
    }

    /// Takes over all that is to be taken over now.
    async fn import(&mut self, nads: &[Nad]) -> Result<(), Stop> {
        let pools = objects::pools(self.api).await?;
        let reservations = objects::reservations(self.api).await?;
        let (imported, held) = self.imported().await?;
        let mut wanted = gather::wanted_pods(&pools, &reservations);
        wanted.extend(imported.iter().map(|one| pod_ref(&one.record)));
        // After the pools: a pod that is made later has no entry there.
        let pods = objects::pods(self.api, &wanted).await?;
        let cut_off = objects::cut_off_nodes(self.api).await?;
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
            cluster: self.cluster,
        });
        let scanned = &mut self.report.scanned;
        (scanned.pools, scanned.reservations) = (pools.len(), reservations.len());
        (scanned.entries, scanned.pods) = (gathered.entries, pods.len());
        self.report.given_up = given_up(&imported, &gathered, &pods);
        self.make_room(&imported, &gathered).await?;
        let Gathered { groups, stale, kept, refused, .. } = gathered;
        (self.report.stale, self.report.kept, self.report.refused) = (stale, kept, refused);
        self.take_all(groups).await
    }

    /// What earlier imports have written, and all that this cluster's pods hold.
    async fn imported(&self) -> Result<(Vec<Imported>, HeldByPods), Stop> {
        let see = |(found, held): &mut (Vec<Imported>, HeldByPods), entry: Entry| {
            let Ok(Key::Owner(owner)) = self.keys.parse(&entry.key) else { return };
            let Ok(record) = OwnerRecord::decode(&entry.value) else { return };
            if owner.cluster.as_ref() != Some(self.cluster) {
                return;
            }
            held.see(&owner, &record);
            if record.start.is_none() && !owner.container_id.as_str().starts_with(ADOPTED) {
                found.push(Imported { owner, revision: entry.mod_revision, record });
            }
        };
        let session = Session { kv: self.kv, keys: self.keys, until: self.until };
        Ok(walk(session, &self.keys.owners(), Default::default, see).await?.0)
    }

    /// A pod's new sandbox holds what an earlier one held when it was taken over. Nobody else can come in
    /// between: ADD waits.
    async fn make_room(&mut self, imported: &[Imported], gathered: &Gathered) -> Result<(), Stop> {
        for group in &gathered.groups {
            let is_earlier = |one: &&Imported| {
                one.owner != group.owner
                    && one.owner.ifname == group.owner.ifname
                    && one.record.labels.pod.uid == group.labels.pod.uid
                    && !gathered.containers.contains(&one.owner.container_id)
                    && one.record.addresses.iter().any(|held| group.held.contains(held))
            };
            for earlier in imported.iter().filter(is_earlier) {
                if !self.options.dry_run {
                    let until = self.until.min(Instant::now() + ONE_DEADLINE);
                    let session = Session { kv: self.kv, keys: self.keys, until };
                    release_as_read(session, &earlier.owner, earlier.revision).await?;
                }
                self.report.moved.push(earlier.owner.clone());
            }
        }
        Ok(())
    }

    /// A few at a time. What is done is noted at once: the first failure ends it, or its time is over.
    async fn take_all(&mut self, groups: Vec<Group>) -> Result<(), Stop> {
        let taking = Taking {
            kv: self.kv,
            keys: self.keys,
            cluster: self.cluster,
            api: self.api,
            dry_run: self.options.dry_run,
            until: self.until,
        };
        let take = |group: Group| async {
            let outcome = taking.take(&group).await;
            (group, outcome)
        };
        let mut takes = std::pin::pin!(stream::iter(groups).map(take).buffer_unordered(AT_ONCE));
        while let Some((group, outcome)) = takes.next().await {
            self.note(&group, outcome?);
        }
        Ok(())
    }

    fn note(&mut self, group: &Group, outcome: Outcome) {
        let Outcome { made: Made { held, replaced }, refused } = outcome;
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

/// What taking over one interface needs.
struct Taking<'a, K> {
    kv: &'a K,
    keys: &'a Keys,
    cluster: &'a ClusterName,
    api: &'a Kubernetes,
    dry_run: bool,
    until: Instant,
}

impl<K: Kv> Taking<'_, K> {
    /// Reserves what one interface uses, as far as nobody else who may exist holds it.
    async fn take(&self, group: &Group) -> Result<Outcome, Stop> {
        let mut wanted = Claim {
            owner: group.owner.clone(),
            held: group.held.clone(),
            scope: group.scope.clone(),
            labels: group.labels.clone(),
            created_at: metes::local::node::timestamp(),
            under: Under::Pause,
            gone: Vec::new(),
        };
        let mut refused = Vec::new();
        // Each round ends it, finds a holder that is gone, or gives one address up.
        while wanted.held.iter().any(|held| held.network.is_some()) {
            let until = self.until.min(Instant::now() + ONE_DEADLINE);
            let claimed = match self.dry_run {
                true => foresee(Session { kv: self.kv, keys: self.keys, until }, &wanted).await,
                false => claim(Session { kv: self.kv, keys: self.keys, until }, &wanted).await,
            };
            let conflict = match claimed {
                Ok(Claimed::Present) => break,
                Ok(Claimed::Made(made)) => return Ok(Outcome { made, refused }),
                Ok(Claimed::Conflict(conflict)) => *conflict,
                Err(ClaimError::Store(failure)) => return Err(failure.into()),
                Err(ClaimError::Bad(bad)) => return Err(bad.into()),
                Err(ClaimError::Newer(version)) => return Err(Stop::Newer(version)),
                Err(ClaimError::InService) => return Err(Stop::Changed),
            };
            match self.judge(&wanted, conflict.why).await? {
                Ok(gone) => wanted.gone.push(gone),
                Err(why) => {
                    wanted.held.retain(|held| *held != conflict.held);
                    refused.push((conflict.held, why));
                }
            }
        }
        Ok(Outcome { made: Made::default(), refused })
    }

    /// Whether whoever stands in the way is gone, or in words why not.
    async fn judge(&self, wanted: &Claim, why: Why) -> Result<Result<Gone, String>, Stop> {
        Ok(Err(match why {
            Why::Holder { owner, record, revision } => {
                let is_new = wanted.gone.iter().all(|gone| gone.owner != owner);
                if is_new && self.is_gone(&owner, &record).await? {
                    return Ok(Ok(Gone { owner, revision }));
                }
                format!("metes holds it for {}", whom(&owner, &pod_name(&record.labels.pod)))
            }
            Why::NoRecord { owner, pod } => {
                let whom = whom(&owner, &pod_name(&pod));
                format!("it is reserved for {whom}, which has no record of it: run `metes check`")
            }
            Why::Undecodable(bad) => format!("stored state cannot be decoded: {bad}: run `metes check`"),
            Why::Deleted => "metes deleted this container's interface a moment ago: run it again".to_owned(),
            Why::TooMany => "its interface has more addresses than etcd takes in one transaction".to_owned(),
        }))
    }

    /// Asks Kubernetes whether the pod of a record of this cluster is gone or will never run again.
    async fn is_gone(&self, owner: &Owner, record: &OwnerRecord) -> Result<bool, Stop> {
        let pod = &record.labels.pod;
        if Stamp::of(owner.cluster.as_ref(), self.cluster) != Stamp::Ours || !is_named(pod) {
            return Ok(false);
        }
        Ok(match self.api.pod(&pod.namespace, &pod.name).await? {
            None | Some((_, Phase::Finished)) => true,
            Some((found, Phase::Active)) => {
                let is_it =
                    |uid: &PodUid| *uid == *found.uid || found.static_uids.iter().any(|one| *uid == **one);
                pod.uid.as_ref().is_some_and(|uid| !is_it(uid))
            }
        })
    }
}

fn pod_ref(record: &OwnerRecord) -> PodRef {
    let pod = &record.labels.pod;
    PodRef { namespace: pod.namespace.clone(), name: pod.name.clone() }
}

fn whom(owner: &Owner, pod: &str) -> String {
    let Owner { node, container_id, ifname, .. } = owner;
    format!("{ifname} of pod {pod:?}, container {container_id} on {node}")
}

/// What earlier imports reserved for a pod that runs, and whereabouts has nowhere any more.
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
