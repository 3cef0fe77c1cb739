//! One pass: etcd first, then Kubernetes, then the verdict, and what must go goes.
//!
//! The order is what makes it safe. Owners are listed before pods, so that an owner without a pod in
//! the listing has lost it: a pod that is made later cannot have owned anything then. Each orphan's pod is
//! asked for once more right before it is freed, and a free compares the revision of the record
//! that was judged. So a pass may run at any moment, beside another one, and may be killed anywhere.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use metes::audit::{self, repair};
use metes::limits;
use metes::pool::names::ClusterName;
use metes::pool::record::{Held, Meta, Owner, OwnerRecord, Record, VERSION};
use metes::store::free::Freed;
use metes::store::keys::{Bytes, Keys};
use metes::store::kv::{Failure, Kv};
use metes::store::release::{FreeError, release_as_read};
use metes::store::session::Session;
use metes::store::snapshot::{BadRecord, Snapshot};
use tokio::time::Instant;

use crate::api::{self, Api, ApiError};
use crate::census::Census;
use crate::holder::{Holder, Stamp};
use crate::identity::{First, NameError, claim_name};
use crate::report::Report;
use crate::second_look::{pods_now, see_claims};
use crate::sightings::Memory;
use crate::verdict::{Free, Graces, Keep, Orphan, Verdict, judge, orphaned};
use crate::world::{Nodes, Pods};

/// How many owners are freed at the same time: each takes a few round trips, and a ticket in a queue.
const AT_ONCE: usize = 8;
/// How long freeing one owner may take.
const FREE_DEADLINE: Duration = Duration::from_secs(10);
/// So many orphans are never suspicious.
const BRAKE_AT_LEAST: usize = 50;
/// Above that, this share of all records is: one in so many.
const BRAKE_ONE_IN: usize = 5;

/// How a pass goes about its work.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// For how long orphans must have been seen.
    pub graces: Graces,
    /// Write nothing at all.
    pub dry_run: bool,
    /// Free however many orphans there are.
    pub force: bool,
}

/// Why a pass ended early. What it had freed until then stays freed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    /// Kubernetes.
    #[error("{0}; nothing more is freed")]
    Api(#[from] ApiError),
    /// etcd.
    #[error("{0}; nothing more is freed")]
    Store(#[from] Failure),
    /// What all passes rely on does not decode.
    #[error("stored state cannot be decoded: {0}; nothing is freed; run `metes check`")]
    Bad(#[from] BadRecord),
    /// The store went back in time.
    #[error(
        "etcd went back in time in epoch {0}: its records say nothing about what is in use, and nothing is freed; \
         run `metes-reconciler adopt --dry-run`, then `metes-reconciler adopt`"
    )]
    Suspect(u64),
    /// Records without a meta.
    #[error(
        "there are addresses but no {0}: the store has lost keys, and nothing is freed; \
         run `metes check`, then `metes-reconciler adopt`"
    )]
    MetaMissing(String),
    /// Written by newer programs.
    #[error(
        "the store is for writers of version {0} or newer, and this one is of version {VERSION}: nothing is freed"
    )]
    Newer(u32),
    /// Another cluster goes by this cluster's name.
    #[error(
        "{0}: nothing is freed; point --kubeconfig to the right cluster, or give each cluster a `cluster` of its own in the host file"
    )]
    OtherCluster(NameError),
    /// Too many orphans at once.
    #[error(
        "{orphans} of {records} records seem to be orphans, and more than {limit} are suspicious: nothing is freed; \
         look at the report of --dry-run --force, then free them with --force"
    )]
    Brake {
        /// How many there are.
        orphans: usize,
        /// Out of how many of this cluster.
        records: usize,
        /// How many are not.
        limit: usize,
    },
    /// etcd refused to free some.
    #[error(
        "{orphans} orphans cannot be freed, all others are: {why}; look for their records with `metes show`"
    )]
    Refused {
        /// How many.
        orphans: usize,
        /// What was said of the first.
        why: Failure,
    },
    /// Out of time.
    #[error("the pass took longer than {}; nothing more is freed; raise --timeout", humantime::format_duration(*.0))]
    Timeout(Duration),
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

/// A pass under way.
pub struct Pass<'a, K, A> {
    /// The store.
    pub kv: &'a K,
    /// Its keys.
    pub keys: &'a Keys,
    /// This cluster's name, as it is stamped on records.
    pub cluster: &'a ClusterName,
    /// Kubernetes.
    pub api: &'a A,
    /// How to go about it.
    pub options: Options,
    /// When all must be over.
    pub until: Instant,
    /// What came of it so far.
    pub report: &'a RefCell<Report>,
}

/// An orphan that is to be freed.
type Due = (Holder, Orphan);

/// What came of looking at everybody.
struct Looked {
    due: Vec<Due>,
    nodes: Nodes,
    /// Whether the nodes and orphans that are new could be remembered.
    remembered: Result<(), Failure>,
}

impl<'a, K: Kv, A: Api> Pass<'a, K, A> {
    fn session(&self) -> Session<'a, K> {
        Session { kv: self.kv, keys: self.keys, until: self.until }
    }

    /// Does all of it.
    ///
    /// # Errors
    /// [`Stop`]
    pub async fn run(&self) -> Result<(), Stop> {
        if let Some(why) = self.meta().await? {
            self.report.borrow_mut().held = Some(why);
            return Ok(());
        }
        let first = if self.options.dry_run { First::OnlyLooks } else { First::Registers };
        claim_name(self.kv, self.keys, self.cluster, self.api, first, self.until).await?;
        let Looked { due, nodes, remembered } = self.look().await?;
        let refused = self.free(due, &nodes).await?;
        remembered?;
        self.repair().await?;
        refused.map_or(Ok(()), Err)
    }

    /// Reads what all writers have agreed on: whether a migration is under way, and why.
    async fn meta(&self) -> Result<Option<String>, Stop> {
        let key = self.keys.meta();
        let Some(meta) = self.read::<Meta>(&key).await? else { return Ok(None) };
        match meta.suspect {
            _ if meta.min_writer > VERSION => Err(Stop::Newer(meta.min_writer)),
            Some(epoch) => Err(Stop::Suspect(epoch)),
            None => Ok(meta.paused),
        }
    }

    async fn read<R: Record>(&self, key: &Bytes) -> Result<Option<R>, Stop> {
        let mut snapshot = Snapshot::default();
        Session { kv: self.kv, keys: self.keys, until: self.until }
            .read(std::slice::from_ref(key), &mut snapshot)
            .await?;
        Ok(snapshot.record(key)?)
    }

    /// Finds out who is an orphan, and for how long; returns those that are due.
    async fn look(&self) -> Result<Looked, Stop> {
        let mut census = Census::take(self.session(), self.cluster).await?;
        self.report.borrow_mut().revision = census.revision;
        self.report.borrow_mut().scanned.owners = census.holders.len();
        if !census.holders.is_empty() && self.read::<Meta>(&self.keys.meta()).await?.is_none() {
            return Err(self.meta_missing());
        }
        let pods = self.pods(&census).await?;
        let (nodes, nodes_remembered) = self.nodes(&census).await?;
        self.report.borrow_mut().scanned.pods = pods.len();
        self.report.borrow_mut().scanned.nodes = nodes.len();
        self.warn_of_misnamed_nodes(&census, &pods, &nodes);
        census.find_replaced(self.kv, self.keys, &nodes, self.until).await?;
        let (due, remembered) = self.judge(&census, &pods, &nodes).await?;
        Ok(Looked { due, nodes, remembered: remembered.and(nodes_remembered) })
    }

    fn meta_missing(&self) -> Stop {
        Stop::MetaMissing(String::from_utf8_lossy(&self.keys.meta()).into_owned())
    }

    async fn pods(&self, census: &Census) -> Result<Pods, Stop> {
        let mut pods = Pods::for_holders(&census.holders);
        self.api.pods(api::PodFilter::All, &mut |pod| pods.see(&pod, api::Phase::Active)).await?;
        // Listed second: a pod that has finished never runs again, whenever the first listing was.
        self.api.pods(api::PodFilter::Finished, &mut |pod| pods.see(&pod, api::Phase::Finished)).await?;
        see_claims(self.api, &mut pods, None).await?;
        Ok(pods)
    }

    /// The nodes that there are, with the names of those that there were; and whether new ones could be remembered.
    async fn nodes(&self, census: &Census) -> Result<(Nodes, Result<(), Failure>), Stop> {
        let mut nodes = Nodes::default();
        self.api.nodes(&mut |node| nodes.see(node)).await?;
        let memory = self.memory();
        let seen = memory.recall_nodes().await?;
        seen.names().for_each(|node| nodes.remember(node.to_string()));
        let remembered = match self.options.dry_run {
            true => Ok(()),
            false => memory.update_nodes(&seen, &nodes, &census.holders).await,
        };
        Ok((nodes, unless_full(remembered)?))
    }

    /// Says so where pods run on nodes that Kubernetes calls otherwise: that they are not Ready, or were
    /// started anew, cannot be seen then.
    fn warn_of_misnamed_nodes(&self, census: &Census, pods: &Pods, nodes: &Nodes) {
        let runs_there = |holder: &&Holder| {
            let record = holder.record.as_ref().filter(|record| record.stamp == Stamp::Ours);
            record.is_some_and(|record| pods.phase(&record.pod) == Some(api::Phase::Active))
                && !nodes.knows(holder.owner.node.as_str())
        };
        let mut misnamed = census.holders.iter().filter(runs_there);
        let Some(Holder { owner: first, .. }) = misnamed.next() else { return };
        let owners = 1 + misnamed.count();
        tracing::warn!(
            owners,
            node = %first.node,
            "pods hold addresses on nodes that Kubernetes does not know: node_name in a node's host file must be the Node's name"
        );
    }

    /// Says so where it is not even certain whose an orphan is.
    fn warn_of_strange_nodes(&self, orphans: &[(&Holder, Orphan)]) {
        let mut strange = orphans.iter().filter(|(_, orphan)| orphan.meanwhile == Keep::NodeUnknown);
        let Some((Holder { owner: first, .. }, _)) = strange.next() else { return };
        let owners = 1 + strange.count();
        tracing::warn!(
            owners,
            node = %first.node,
            "owners without a pod are of nodes that Kubernetes has never had: another cluster may go by this cluster's name"
        );
    }

    /// Judges everybody, applies the brake, and remembers who is an orphan.
    async fn judge(
        &self,
        census: &Census,
        pods: &Pods,
        nodes: &Nodes,
    ) -> Result<(Vec<Due>, Result<(), Failure>), Stop> {
        let graces = &self.options.graces;
        let memory = self.memory();
        let sightings = memory.recall().await?;
        let mut orphans = Vec::new();
        let mut due = Vec::new();
        let mut suspicious = 0;
        for holder in &census.holders {
            let orphaned = orphaned(holder, pods, nodes, graces);
            let seen_for =
                orphaned.map_or(Duration::ZERO, |orphan| sightings.seen_for(holder, orphan.reason));
            if let Ok(orphan) = orphaned {
                orphans.push((holder, orphan));
                // What belongs to no pod is there from its first day on, and what is of a strange node is not judged yet:
                // neither says anything of the API.
                let is_foreign = orphan.reason == Free::Unlabelled || orphan.meanwhile == Keep::NodeUnknown;
                suspicious += usize::from(!is_foreign || seen_for >= orphan.grace);
            }
            match judge(orphaned, seen_for) {
                Verdict::Keep(why) => {
                    if why == Keep::Undecodable {
                        let Owner { node, container_id, ifname, .. } = &holder.owner;
                        tracing::warn!(%node, container = %container_id, %ifname, "a record does not decode");
                    }
                    self.report.borrow_mut().keep(why);
                }
                Verdict::Free(_) => due.extend(orphaned.map(|orphan| (holder.clone(), orphan))),
            }
        }
        self.report.borrow_mut().orphans = orphans.len();
        self.warn_of_strange_nodes(&orphans);
        let is_ours = |holder: &&Holder| holder.record.as_ref().is_some_and(|r| r.stamp == Stamp::Ours);
        let records = census.holders.iter().filter(is_ours).count();
        let limit = BRAKE_AT_LEAST.max(records / BRAKE_ONE_IN);
        let remembered = match self.options.dry_run {
            true => Ok(()),
            false => memory.update(&sightings, &orphans, graces).await,
        };
        let remembered = unless_full(remembered)?;
        if suspicious > limit && !self.options.force {
            return Err(Stop::Brake { orphans: suspicious, records, limit });
        }
        Ok((due, remembered))
    }

    fn memory(&self) -> Memory<'a, K> {
        Memory { kv: self.kv, keys: self.keys, cluster: self.cluster, until: self.until }
    }

    /// Frees all that are due, a few at a time, and reports each at once: nobody knows when the pass is
    /// ended. The first failure ends it: those under way are brought to their end, and no other is begun. What
    /// etcd refuses says something of that one owner alone, and is returned.
    async fn free(&self, due: Vec<Due>, nodes: &Nodes) -> Result<Option<Stop>, Stop> {
        let failed = Cell::new(false);
        let mut stop = None;
        let mut refused = Vec::new();
        let mut gone = Vec::new();
        let failed = &failed;
        let free = |(holder, orphan): Due| async move {
            if failed.get() {
                return None;
            }
            let freed = self.free_one(&holder, orphan, nodes).await;
            let is_its_own = matches!(freed, Ok(_) | Err(Stop::Store(Failure::Refused(_))));
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
                Some((holder, _, Err(Stop::Store(failure @ Failure::Refused(_))))) => {
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
        if !self.options.dry_run {
            self.memory().forget(gone.iter()).await?;
        }
        let orphans = refused.len();
        Ok(refused.into_iter().next().map(|why| Stop::Refused { orphans, why }))
    }

    /// Looks at one orphan a second time and frees it; else says why it keeps what it has.
    async fn free_one(
        &self,
        holder: &Holder,
        orphan: Orphan,
        nodes: &Nodes,
    ) -> Result<Result<Vec<Held>, Keep>, Stop> {
        if self.meta().await?.is_some() || !self.is_still_orphaned(holder, orphan, nodes).await? {
            return Ok(Err(Keep::Changed));
        }
        if self.options.dry_run {
            let own = self.keys.owner(&holder.owner);
            let record = self.read::<OwnerRecord>(&own).await?;
            return Ok(record.map(|record| record.addresses).ok_or(Keep::Changed));
        }
        let until = self.until.min(Instant::now() + FREE_DEADLINE);
        let session = Session { kv: self.kv, keys: self.keys, until };
        // Its pod is gone, and with it every ADD that could still be on its way: no tombstone is left.
        match release_as_read(session, &holder.owner, holder.revision).await {
            Ok(Freed::Addresses(held)) => Ok(Ok(held)),
            Ok(Freed::Nothing | Freed::Younger | Freed::Elsewhere(_)) => Ok(Err(Keep::Changed)),
            Err(FreeError::Bad(bad)) => {
                tracing::warn!(%bad, "an orphan cannot be freed");
                Ok(Err(Keep::Undecodable))
            }
            Err(FreeError::Store(failure)) => Err(failure.into()),
        }
    }

    /// Asks the API for the orphan's pod or claim as it is now.
    async fn is_still_orphaned(&self, holder: &Holder, orphan: Orphan, nodes: &Nodes) -> Result<bool, Stop> {
        let pods = pods_now(self.api, holder).await?;
        Ok(orphaned(holder, &pods, nodes, &self.options.graces) == Ok(orphan))
    }

    /// Repairs what costs addresses or time, and says what a person should look at.
    async fn repair(&self) -> Result<(), Stop> {
        let audit = audit::audit_bits(self.session()).await?;
        self.report.borrow_mut().scanned.addresses = audit.counts.reservations;
        self.report.borrow_mut().found(&audit);
        if audit.violations.iter().any(|finding| finding.kind == audit::Kind::MetaMissing) {
            return Err(self.meta_missing());
        }
        if !self.options.dry_run {
            let repaired = repair::tidy(self.session(), audit.repairs).await?;
            self.report.borrow_mut().repaired = repaired;
        }
        Ok(())
    }
}

/// What could not be remembered because etcd is out of space ends no pass: only what is new is lost. Those that are due
/// were seen before, and to free them takes no space.
fn unless_full(remembered: Result<(), Failure>) -> Result<Result<(), Failure>, Stop> {
    match remembered {
        Ok(()) | Err(Failure::NoSpace(_)) => Ok(remembered),
        Err(failure) => Err(failure.into()),
    }
}

/// Runs a pass, at most for `timeout`.
///
/// # Errors
/// [`Stop`]; `report` tells what was done until then.
pub async fn run<K: Kv, A: Api>(pass: Pass<'_, K, A>, timeout: Duration) -> Result<(), Stop> {
    // Ended in the middle, a pass is like one that was killed.
    match tokio::time::timeout(timeout, pass.run()).await {
        Ok(ended) => ended,
        Err(_) => Err(Stop::Timeout(timeout)),
    }
}

const _: () = assert!(FREE_DEADLINE.as_secs() < limits::LEASE_TTL.as_secs());
