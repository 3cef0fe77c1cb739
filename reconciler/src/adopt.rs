//! After etcd was restored from a backup, or lost: what running pods use is written down again.
//!
//! Nothing is handed out meanwhile, because the store stays under suspicion until every address that a
//! running pod was seen to use is reserved for that pod. Reservations are listed before pods, and whoever stands in
//! the way is asked for once more right before it is replaced, as in a pass. It may be killed
//! anywhere and run again.
//!
//! When a node was started anew since the backup, its pods may have changed addresses among them: each holds what another
//! uses. Whoever says itself that it uses something else gives up what it holds, together with all that are in its way, in
//! one transaction.

mod demand;
pub mod report;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use metes::audit::accept;
use metes::config::Settings;
use metes::limits;
use metes::pool::names::ClusterName;
use metes::pool::record::{self, Meta, Record, Reservation};
use metes::pool::{Addr, NetworkName};
use metes::store::keys::{Key, Keys};
use metes::store::kv::{Failure, Kv};
use metes::store::meta::{self, MetaError};
use metes::store::session::Session;
use metes::store::snapshot::BadRecord;
use metes::store::txn::Entry;
use metes::store::walk::walk;
use tokio::time::Instant;

use crate::api::{Api, ApiError};
use crate::claim::{
    Claim, ClaimError, Claimed, Gone, Made, Together, Under, Why, claim, claim_all, foresee, foresee_all,
};
use crate::holder::{Holder, Stamp, Summary};
use crate::identity::{First, NameError, claim_name};
use crate::kubernetes::Kubernetes;
use crate::nad::{Definitions, Network};
use crate::running::Running;
use crate::second_look::pods_now;
use crate::verdict::{Graces, is_named, orphaned};
use crate::world::{Nodes, Pods};
use demand::{Demand, Demands};
use report::{Adopted, Conflict, Kind, Report};

/// How many claims are made at the same time.
const AT_ONCE: usize = 8;
/// How long one claim may take.
const CLAIM_DEADLINE: Duration = Duration::from_secs(10);
/// How often those that change addresses among them are looked at: each time one more of their records is known.
const TRADE_ROUNDS: usize = 1000;

/// Why an adoption ended before its end. What it had reserved until then stays reserved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    /// Kubernetes.
    #[error("{0}; the store is not taken into service")]
    Api(#[from] ApiError),
    /// etcd.
    #[error("{0}; run it again")]
    Store(#[from] Failure),
    /// What everybody relies on does not decode.
    #[error("stored state cannot be decoded: {0}; nothing is adopted; run `metes check`")]
    Bad(#[from] BadRecord),
    /// Written by newer programs.
    #[error(
        "the store is for writers of version {0} or newer: nothing is adopted; use a newer metes-reconciler"
    )]
    Newer(u32),
    /// The API of another cluster.
    #[error("{0}: nothing is adopted; point --kubeconfig to the right cluster")]
    OtherCluster(NameError),
    /// Somebody else took the store into service, or began a migration.
    #[error("somebody else changed {0} meanwhile: look at `metes check`, and run it again")]
    Changed(String),
    /// Not everything that is in use can be written down.
    #[error(
        "{0} conflicts: the store stays suspect, and ADD fails until they are settled; run it again then"
    )]
    Conflicts(usize),
    /// Others share the store.
    #[error(
        "what this cluster uses is written down, but the clusters {} share the store, which stays suspect until the last \
         has adopted: run it in each of them, and in the last with --last", .0.join(", ")
    )]
    OtherClusters(Vec<String>),
    /// As was asked for.
    #[error(
        "what this cluster uses is written down; the store stays suspect until the last cluster has adopted"
    )]
    NotLast,
    /// Out of time.
    #[error("it took longer than {}; the store is not taken into service; raise --timeout", humantime::format_duration(*.0))]
    Timeout(Duration),
}

impl Stop {
    /// Whether it ended before everything was looked at.
    #[must_use]
    pub fn is_abort(&self) -> bool {
        !matches!(self, Stop::Conflicts(_) | Stop::OtherClusters(_) | Stop::NotLast)
    }
}

impl From<MetaError> for Stop {
    fn from(e: MetaError) -> Self {
        match e {
            MetaError::Store(failure) => Stop::Store(failure),
            MetaError::Bad(bad) => Stop::Bad(bad),
            MetaError::Newer(version) => Stop::Newer(version),
        }
    }
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

/// An adoption under way.
pub struct Adoption<'a, K> {
    /// The store.
    pub kv: &'a K,
    /// Its keys.
    pub keys: &'a Keys,
    /// This cluster's name, as it is stamped on records.
    pub cluster: &'a ClusterName,
    /// Kubernetes.
    pub api: &'a Kubernetes,
    /// Which prefixes each network may use.
    pub settings: &'a Settings,
    /// Write nothing at all.
    pub dry_run: bool,
    /// The cluster's own network, if it is of metes: what the nodes have in /etc/cni/net.d.
    pub default_network: Option<Rc<Network>>,
    /// Networks without metes, as in `namespace/name`, whatever their definitions say.
    pub not_metes: &'a [String],
    /// Whether every other cluster that shares the store has adopted what it uses; none: if there is none.
    pub is_last: Option<bool>,
    /// When all must be over.
    pub until: Instant,
    /// What came of it so far.
    pub report: &'a RefCell<Report>,
}

/// Runs an adoption, at most for `timeout`.
///
/// # Errors
/// [`Stop`]; `report` tells what was done until then.
pub async fn run<K: Kv>(adoption: Adoption<'_, K>, timeout: Duration) -> Result<(), Stop> {
    match tokio::time::timeout(timeout, adoption.run()).await {
        Ok(ended) => ended,
        Err(_) => Err(Stop::Timeout(timeout)),
    }
}

/// Who holds each address, as far as a pod can recognise its own.
#[derive(Default)]
pub(crate) struct Reserved {
    holders: HashMap<(NetworkName, Addr), Mark>,
    names: HashMap<Box<str>, Rc<str>>,
}

/// Whose a reservation is: the pod's UID, or its full name where it has none, and the interface.
struct Mark {
    pod: Box<str>,
    ifname: Rc<str>,
}

/// What Kubernetes knows of who might be using addresses.
struct World {
    pods: Pods,
    nodes: Nodes,
    definitions: Definitions,
}

/// What became of one demand.
enum Outcome {
    Present,
    Made(Made),
    Conflict(Conflict),
    /// Its holder's own pod uses something else.
    Trade,
}

impl<K: Kv> Adoption<'_, K> {
    fn session(&self) -> Session<'_, K> {
        Session { kv: self.kv, keys: self.keys, until: self.until }
    }

    /// Does all of it.
    ///
    /// # Errors
    /// [`Stop`]
    pub async fn run(&self) -> Result<(), Stop> {
        let first = if self.dry_run { First::OnlyLooks } else { First::Registers };
        claim_name(self.kv, self.keys, self.cluster, self.api, first, self.until).await?;
        let begun = self.begin().await?;
        let reserved = self.reserved().await?;
        let (demands, world) = self.look(&reserved).await?;
        self.settle(demands, &world).await?;
        let conflicts = self.report.borrow().conflicts.len();
        if conflicts > 0 {
            return Err(Stop::Conflicts(conflicts));
        }
        match self.is_last {
            Some(true) => {}
            Some(false) => return Err(Stop::NotLast),
            None => self.expect_no_others().await?,
        }
        let Some(begun) = begun else { return Ok(()) };
        let epoch = accept::finish(self.session(), &begun).await?;
        self.report.borrow_mut().epoch = Some(epoch.ok_or_else(|| self.changed())?);
        Ok(())
    }

    /// Whoever else has registered here: of what their pods use nothing is known in this cluster.
    async fn expect_no_others(&self) -> Result<(), Stop> {
        let see = |names: &mut Vec<String>, entry: Entry| match self.keys.parse(&entry.key) {
            Ok(Key::Cluster(name)) if name != *self.cluster => names.push(name.to_string()),
            _ => {}
        };
        let (others, _) = walk(self.session(), &self.keys.clusters(), Vec::new, see).await?;
        if others.is_empty() { Ok(()) } else { Err(Stop::OtherClusters(others)) }
    }

    fn changed(&self) -> Stop {
        Stop::Changed(String::from_utf8_lossy(&self.keys.meta()).into_owned())
    }

    /// From here on no ADD hands out anything; a dry run only looks whether it could be so.
    async fn begin(&self) -> Result<Option<(Meta, i64)>, Stop> {
        if self.dry_run {
            meta::read(self.session()).await?;
            return Ok(None);
        }
        Ok(Some(accept::begin(self.session()).await?))
    }

    /// Reads every reservation at one revision.
    async fn reserved(&self) -> Result<Reserved, Stop> {
        let see = |reserved: &mut Reserved, entry: Entry| reserved.see(self.keys, self.cluster, &entry);
        let (reserved, revision) = walk(self.session(), &self.keys.nets(), Reserved::default, see).await?;
        let report = &mut *self.report.borrow_mut();
        report.revision = revision;
        report.scanned.addresses = reserved.holders.len();
        Ok(reserved)
    }

    /// Finds out what running pods use.
    async fn look(&self, reserved: &Reserved) -> Result<(Vec<Demand>, World), Stop> {
        let definitions = match &self.default_network {
            None => Definitions::list(self.api, self.settings).await?,
            Some(_) => Definitions::list_if_known(self.api, self.settings).await?,
        };
        self.report.borrow_mut().scanned.networks = definitions.len();
        let (mut pods, mut nodes) = (Pods::default(), Nodes::default());
        let default_network = self.default_network.clone();
        let mut demands = Demands::new(self.cluster, &definitions, default_network, reserved, self.not_metes);
        let mut see = |pod: &crate::api::Pod, phase, running: Option<Running>| {
            pods.see(pod, phase);
            if let Some(running) = running {
                demands.see(&running);
            }
        };
        Running::list(self.api, &mut see).await?;
        self.api.nodes(&mut |node| nodes.see(node)).await?;
        let Demands { missing, present, conflicts, .. } = demands;
        let report = &mut *self.report.borrow_mut();
        report.scanned.pods = pods.len();
        report.present = present;
        report.conflicts = conflicts;
        Ok((missing, World { pods, nodes, definitions }))
    }

    /// Claims what is missing, a few at a time. The first failure ends it: those under way are brought to their
    /// end, and no other is begun.
    async fn settle(&self, missing: Vec<Demand>, world: &World) -> Result<(), Stop> {
        let failed = &Cell::new(false);
        let settle = |demand: Demand| async move {
            if failed.get() {
                return None;
            }
            let outcome = self.settle_one(&demand, world).await;
            failed.set(failed.get() || outcome.is_err());
            Some((demand, outcome))
        };
        let mut outcomes = stream::iter(missing).map(settle).buffer_unordered(AT_ONCE);
        let (mut stop, mut trades) = (None, Vec::new());
        while let Some(ended) = outcomes.next().await {
            let report = &mut *self.report.borrow_mut();
            match ended {
                Some((demand, Ok(Outcome::Trade))) => trades.push(demand),
                Some((_, Ok(Outcome::Present))) => report.present += 1,
                Some((demand, Ok(Outcome::Made(made)))) => report.adopt(Adopted::new(&demand, made)),
                Some((_, Ok(Outcome::Conflict(conflict)))) => report.conflicts.push(conflict),
                Some((_, Err(why))) => stop = stop.or(Some(why)),
                None => {}
            }
        }
        if stop.is_none() {
            stop = self.trade_all(trades, world).await.err();
        }
        self.report.borrow_mut().sort();
        stop.map_or(Ok(()), Err)
    }

    /// One after the other, because each takes along all that are in its way.
    async fn trade_all(&self, mut trades: Vec<Demand>, world: &World) -> Result<(), Stop> {
        trades.sort_by(|one, other| one.owner.cmp(&other.owner));
        let mut done = HashSet::new();
        for demand in trades {
            if !done.contains(&demand.owner) {
                done.extend(self.trade(demand, world).await?);
            }
        }
        Ok(())
    }

    /// Claims what one interface uses together with what those use who give it up for that; returns for whom.
    async fn trade(&self, demand: Demand, world: &World) -> Result<Vec<record::Owner>, Stop> {
        let mut claims = vec![self.claim_of(&demand)];
        let mut demands = vec![demand];
        let mut wanted = None;
        for _ in 0..TRADE_ROUNDS {
            let until = self.until.min(Instant::now() + CLAIM_DEADLINE);
            let ended = match self.dry_run {
                true => foresee_all(self.session().by(until), &claims).await,
                false => claim_all(self.session().by(until), &claims).await,
            };
            let (at, conflict) = match ended {
                Ok(Together::Present) => {
                    self.report.borrow_mut().present += 1;
                    return Ok(Vec::new());
                }
                Ok(Together::Made(made)) => {
                    self.traded(&demands, made);
                    return Ok(demands.into_iter().map(|demand| demand.owner).collect());
                }
                Ok(Together::Conflict(at, conflict)) => (at, *conflict),
                Err(ClaimError::Bad(bad)) => {
                    let why = format!("stored state cannot be decoded: {bad}");
                    self.keep(&demands[0], Kind::Undecodable, None, why);
                    return Ok(Vec::new());
                }
                Err(e) => return Err(self.stop_of(e)),
            };
            let wanted = &*wanted.get_or_insert_with(|| conflict.held.clone());
            let (kind, why) = match conflict.why {
                Why::Holder { owner, record, revision } => {
                    let holder = self.holder(&owner, &record, revision);
                    let stays = self.stays(&holder, world).await?;
                    if let Some(keep) = stays {
                        match self.uses_now(&owner, &record, &conflict.held, world).await? {
                            Some(other) if demands.iter().all(|known| known.owner != other.owner) => {
                                claims.push(self.claim_of(&other));
                                demands.push(other);
                            }
                            Some(_) => {}
                            None => {
                                let why = format!("held by {}: {keep}", whom(&owner, &record.labels.pod));
                                let why = in_trade(&demands[at], wanted, &conflict.held, why);
                                self.keep(&demands[0], Kind::Held, Some(wanted), why);
                                return Ok(Vec::new());
                            }
                        }
                    }
                    claims[at].gone.push(Gone { owner, revision });
                    continue;
                }
                Why::TooMany if claims.len() > 1 => return self.trade_one_by_one(demands, claims).await,
                why => reason(why),
            };
            let why = in_trade(&demands[at], wanted, &conflict.held, why);
            self.keep(&demands[0], kind, Some(wanted), why);
            return Ok(Vec::new());
        }
        let why = "its holders keep changing; run it again".to_owned();
        self.keep(&demands[0], Kind::Changed, None, why);
        Ok(Vec::new())
    }

    /// More of them than one transaction takes. Each is sound in itself: the one whose record goes is the next to be
    /// written, the store stays suspect until the last is, and another run finishes what a crash leaves.
    async fn trade_one_by_one(
        &self,
        demands: Vec<Demand>,
        claims: Vec<Claim>,
    ) -> Result<Vec<record::Owner>, Stop> {
        let gone: Vec<Gone> = claims.iter().flat_map(|claim| claim.gone.clone()).collect();
        for (demand, wanted) in demands.iter().zip(claims) {
            let wanted = Claim { gone: gone.clone(), ..wanted };
            let until = self.until.min(Instant::now() + CLAIM_DEADLINE);
            match claim(self.session().by(until), &wanted).await {
                Ok(Claimed::Present) => self.report.borrow_mut().present += 1,
                Ok(Claimed::Made(made)) => self.traded(std::slice::from_ref(demand), vec![made]),
                Ok(Claimed::Conflict(conflict)) => {
                    let (kind, why) = reason(conflict.why);
                    self.keep(demand, kind, Some(&conflict.held), why);
                }
                Err(e) => return Err(self.stop_of(e)),
            }
        }
        Ok(demands.into_iter().map(|demand| demand.owner).collect())
    }

    fn traded(&self, demands: &[Demand], made: Vec<Made>) {
        let report = &mut *self.report.borrow_mut();
        for (demand, made) in demands.iter().zip(made).filter(|(_, made)| !made.held.is_empty()) {
            let adopted = Adopted::new(demand, made);
            // In a dry run what was foreseen for it alone is foreseen once more.
            let is_same =
                |known: &Adopted| (&known.pod, &known.interface) == (&adopted.pod, &adopted.interface);
            if !self.dry_run || !report.adopted.iter().any(is_same) {
                report.adopt(adopted);
            }
        }
    }

    fn keep(&self, demand: &Demand, kind: Kind, held: Option<&record::Held>, why: String) {
        let conflict = demand.conflict(kind, held.map(|held| held.address), why);
        self.report.borrow_mut().conflicts.push(conflict);
    }

    /// What a holder's own pod says that it uses now by that interface, if it says that it does not use `held`.
    async fn uses_now(
        &self,
        owner: &record::Owner,
        record: &record::OwnerRecord,
        held: &record::Held,
        world: &World,
    ) -> Result<Option<Demand>, Stop> {
        let pod = &record.labels.pod;
        let is_ours = Stamp::of(owner.cluster.as_ref(), self.cluster) == Stamp::Ours;
        let Some(uid) = pod.uid.as_ref().filter(|_| is_ours && is_named(pod)) else { return Ok(None) };
        let Some(running) = Running::get(self.api, &pod.namespace, &pod.name).await? else { return Ok(None) };
        let is_it = *uid == *running.uid || *uid == *running.pod.uid;
        // What a node wrote that is not heard of may be older than the record.
        if !is_it || world.nodes.is_cut_off(&running.node) {
            return Ok(None);
        }
        let (nothing, default_network) = (Reserved::default(), self.default_network.clone());
        let mut demands =
            Demands::new(self.cluster, &world.definitions, default_network, &nothing, self.not_metes);
        demands.see(&running);
        let Demands { missing, conflicts, .. } = demands;
        // Where it says something that nobody can make use of, it may use this, too.
        if !conflicts.is_empty() || missing.iter().any(|demand| demand.has(held)) {
            return Ok(None);
        }
        Ok(missing.into_iter().find(|demand| demand.owner.ifname == owner.ifname))
    }

    fn stop_of(&self, e: ClaimError) -> Stop {
        match e {
            ClaimError::Store(failure) => failure.into(),
            ClaimError::Bad(bad) => bad.into(),
            ClaimError::Newer(version) => Stop::Newer(version),
            ClaimError::InService => self.changed(),
        }
    }

    /// Claims what one interface uses; a holder that is gone is replaced.
    async fn settle_one(&self, demand: &Demand, world: &World) -> Result<Outcome, Stop> {
        let mut wanted = self.claim_of(demand);
        // Each round finds another holder, and no address has two.
        for _ in 0..=demand.held.len() {
            let until = self.until.min(Instant::now() + CLAIM_DEADLINE);
            let claimed = match self.dry_run {
                true => foresee(self.session().by(until), &wanted).await,
                false => claim(self.session().by(until), &wanted).await,
            };
            let conflict = match claimed {
                Ok(Claimed::Present) => return Ok(Outcome::Present),
                Ok(Claimed::Made(made)) => return Ok(Outcome::Made(made)),
                Ok(Claimed::Conflict(conflict)) => *conflict,
                Err(ClaimError::Bad(bad)) => {
                    let why = format!("stored state cannot be decoded: {bad}");
                    return Ok(Outcome::Conflict(demand.conflict(Kind::Undecodable, None, why)));
                }
                Err(e) => return Err(self.stop_of(e)),
            };
            let (kind, why) = match conflict.why {
                Why::Holder { owner, record, revision } => {
                    let holder = self.holder(&owner, &record, revision);
                    let Some(keep) = self.stays(&holder, world).await? else {
                        wanted.gone.push(Gone { owner, revision });
                        continue;
                    };
                    if self.uses_now(&owner, &record, &conflict.held, world).await?.is_some() {
                        return Ok(Outcome::Trade);
                    }
                    (Kind::Held, format!("held by {}: {keep}", whom(&owner, &record.labels.pod)))
                }
                why => reason(why),
            };
            return Ok(Outcome::Conflict(demand.conflict(kind, Some(conflict.held.address), why)));
        }
        let why = "its holders keep changing; run it again".to_owned();
        Ok(Outcome::Conflict(demand.conflict(Kind::Changed, None, why)))
    }

    fn claim_of(&self, demand: &Demand) -> Claim {
        Claim {
            owner: demand.owner.clone(),
            held: demand.held.clone(),
            scope: demand.network.scope(),
            labels: record::Labels {
                pod: demand.pod.clone(),
                cni_network: demand.network.cni_network().to_owned(),
            },
            created_at: metes::local::node::timestamp(),
            under: Under::Suspect,
            gone: Vec::new(),
        }
    }

    fn holder(&self, owner: &record::Owner, record: &record::OwnerRecord, revision: i64) -> Holder {
        let summary = Summary {
            stamp: Stamp::of(owner.cluster.as_ref(), self.cluster),
            pod: record.labels.pod.clone(),
            boot: None,
            replaced: false,
        };
        Holder { owner: owner.clone(), revision, record: Some(summary) }
    }

    /// Why a holder keeps what it has; none if its pod is gone, by what was listed and by a second look.
    async fn stays(&self, holder: &Holder, world: &World) -> Result<Option<String>, Stop> {
        if let Err(keep) = orphaned(holder, &world.pods, &world.nodes, &Graces::NONE) {
            return Ok(Some(keep.to_string()));
        }
        let pods = pods_now(self.api, holder).await?;
        Ok(orphaned(holder, &pods, &world.nodes, &Graces::NONE).err().map(|keep| keep.to_string()))
    }
}

/// Why a trade for `wanted` cannot be made, where `held` is in the way of one of those that take part.
fn in_trade(of: &Demand, wanted: &record::Held, held: &record::Held, why: String) -> String {
    if held == wanted {
        return why;
    }
    let Demand { pod, owner, .. } = of;
    format!(
        "its holder would give it up, but {} of pod {}/{} cannot have {}: {why}",
        owner.ifname, pod.namespace, pod.name, held.address
    )
}

/// What stands in the way that no pod can be asked about, in words.
fn reason(why: Why) -> (Kind, String) {
    match why {
        Why::Holder { owner, record, .. } => {
            (Kind::Held, format!("held by {}", whom(&owner, &record.labels.pod)))
        }
        Why::NoRecord { owner, pod } => {
            let why = format!("reserved for {}, which has no record of it", whom(&owner, &pod));
            (Kind::Contradiction, why)
        }
        Why::Undecodable(bad) => (Kind::Undecodable, format!("stored state cannot be decoded: {bad}")),
        Why::Deleted => (Kind::Changed, "it was deleted a moment ago; run it again".to_owned()),
        Why::TooMany => (Kind::TooMany, "more than etcd takes in one transaction".to_owned()),
    }
}

/// A holder in words.
fn whom(owner: &record::Owner, pod: &record::Pod) -> String {
    let record::Owner { node, container_id, ifname, .. } = owner;
    match pod.name.as_str() {
        "" => owner.to_string(),
        name => format!("{ifname} of pod {}/{name}, container {container_id} on {node}", pod.namespace),
    }
}

impl Reserved {
    fn see(&mut self, keys: &Keys, cluster: &ClusterName, entry: &Entry) {
        let Ok(Key::Ip(network, address)) = keys.parse(&entry.key) else { return };
        // What does not decode is in the way of its claim, which looks for itself.
        let Ok(reservation) = Reservation::decode(&entry.value) else { return };
        let pod = reservation.labels.pod;
        let is_ours = reservation.owner.cluster.as_ref() == Some(cluster);
        let pod = match &pod.uid {
            Some(uid) => uid.to_string(),
            None if is_ours => format!("{}/{}", pod.namespace, pod.name),
            None => return,
        };
        let ifname = self.name(reservation.owner.ifname.as_str());
        self.holders.insert((network, address), Mark { pod: pod.into(), ifname });
    }

    fn name(&mut self, name: &str) -> Rc<str> {
        if let Some(known) = self.names.get(name) {
            return known.clone();
        }
        let known: Rc<str> = name.into();
        self.names.insert(name.into(), known.clone());
        known
    }

    /// Whether an address is reserved for an interface of a pod that goes by one of these names.
    pub(crate) fn is_for(&self, at: &(NetworkName, Addr), names: &[&str], ifname: &str) -> bool {
        self.interface_of(at, names) == Some(ifname)
    }

    /// The interface that an address is reserved for, of a pod that goes by one of these names.
    pub(crate) fn interface_of(&self, at: &(NetworkName, Addr), names: &[&str]) -> Option<&str> {
        let mark = self.holders.get(at)?;
        names.iter().any(|name| **name == *mark.pod).then_some(&*mark.ifname)
    }
}

const _: () = assert!(CLAIM_DEADLINE.as_secs() < limits::LEASE_TTL.as_secs());
