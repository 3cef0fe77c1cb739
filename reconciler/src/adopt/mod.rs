//! Adoption after etcd was restored from a backup, or lost: the addresses of running pods are reserved again.
//!
//! Nothing is handed out meanwhile. The store stays suspect until every address that a running pod was seen to use is
//! reserved for that pod. Reservations are listed before pods. When another owner holds an address, its pod is asked
//! for once more right before that owner is replaced, as in a pass. An adoption may be killed at any point and run
//! again.
//!
//! If a node was started again since the backup, its pods may have exchanged addresses: each holds what another one
//! uses.
//!
//! The address of a pod under a sticky definition is reserved for the hold of its name. A hold that stands in the way
//! of a running pod is one of the backup if no container uses it: it ends.
//!
//! - `reserved`: the reservations from before.
//! - `demand`: the addresses of running pods, and those of them that are missing; pure.
//! - `claims`: the same for ResourceClaims; pure.
//! - `settle`: assigns the addresses of one interface, and replaces an owner that is gone.
//! - `trade`: assignments that are made together, for interfaces that hold each other's addresses.

mod claims;
mod demand;
mod error;
pub mod report;
mod reserved;
mod settle;
mod trade;

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use metes_audit::accept;
use metes_config::Settings;
use metes_config::settings::PodsOf;
use metes_core::keys::{Key, prefix_end};
use metes_core::pool::Meta;
use metes_core::txn::Entry;
use metes_engine::kv::Kv;
use metes_engine::prefix;
use metes_engine::walk::{walk, walk_between};

use crate::api::{self, Api};
use crate::context::{Context, within};
use crate::kubernetes::Kubernetes;
use crate::nad::{Definition, Definitions, Network};
use crate::pools::Pools;
use crate::resource_claims::{self, Device};
use crate::running::Running;
use crate::world::{Nodes, Pods};
use demand::{Demand, Demands};
pub use error::AdoptionError;
use report::AdoptionReport;
use reserved::{Reserved, Users};

/// An adoption under way.
pub struct Adoption<'a, K> {
    /// The store, the cluster and its Kubernetes.
    pub(crate) context: Context<'a, K, Kubernetes>,
    /// The prefixes that each network may use.
    pub(crate) settings: &'a Settings,
    /// The pools that definitions may name.
    pub(crate) pools: &'a Pools,
    /// The cluster's own network, if its addresses come from metes: the one that the nodes have in /etc/cni/net.d.
    pub(crate) default_network: Option<Rc<Network>>,
    /// Networks that do not use metes, as `namespace/name`, whatever their definitions say.
    pub(crate) not_metes: &'a [String],
    /// True if every other cluster that shares the store has adopted what it uses; none if no other cluster shares it.
    pub(crate) is_last: Option<bool>,
    /// The result so far.
    pub(crate) report: &'a RefCell<AdoptionReport>,
}

/// Runs an adoption, at most for `timeout`.
///
/// # Errors
/// [`AdoptionError`]; `report` has the work done until then.
pub async fn run<K: Kv>(adoption: Adoption<'_, K>, timeout: Duration) -> Result<(), AdoptionError> {
    within(timeout, "it", Box::pin(adoption.run())).await
}

/// Kubernetes' knowledge of who may be using addresses.
struct InUse {
    pods: Pods,
    nodes: Nodes,
    definitions: Definitions,
}

impl<'a, K: Kv> Adoption<'a, K> {
    async fn run(&self) -> Result<(), AdoptionError> {
        self.context.claim_name().await?;
        let begun = self.begin().await?;
        let reserved = self.reserved().await?;
        let (missing, in_use) = self.look(&reserved).await?;
        self.settle_all(missing, &in_use).await?;
        let conflicts = self.report.borrow().conflicts.len();
        if conflicts > 0 {
            return Err(AdoptionError::Conflicts(conflicts));
        }
        match self.is_last {
            Some(true) => {}
            Some(false) => return Err(AdoptionError::NotLast),
            None => self.expect_no_others().await?,
        }
        let Some(begun) = begun else { return Ok(()) };
        let epoch = accept::finish(self.context.session, &begun).await?;
        self.report.borrow_mut().epoch = Some(epoch.ok_or_else(|| self.changed())?);
        Ok(())
    }

    /// From here on no ADD hands out anything. A dry run only checks that this would be possible.
    async fn begin(&self) -> Result<Option<(Meta, Entry)>, AdoptionError> {
        if self.context.dry_run {
            prefix::read(self.context.session).await?;
            return Ok(None);
        }
        Ok(Some(accept::begin(self.context.session).await?))
    }

    /// Reads every reservation and every owner record at one revision, and before that the users of holds.
    async fn reserved(&self) -> Result<Reserved, AdoptionError> {
        let Context { session, cluster, .. } = self.context;
        let see_seat = |users: &mut Users, entry: Entry| reserved::see_seat(users, session.keys, &entry);
        let (users, _) = walk(session, &session.keys.seats(), Users::new, see_seat).await?;
        let users = Rc::new(users);
        let see = |reserved: &mut Reserved, entry: Entry| reserved.see(session.keys, cluster, &entry);
        let fresh = || Reserved::of(users.clone());
        let between = (&*session.keys.nets(), &*prefix_end(&session.keys.owners()));
        let (reserved, revision) = walk_between(session, between, fresh, see).await?;
        let report = &mut *self.report.borrow_mut();
        report.revision = revision;
        report.scanned.addresses = reserved.len();
        Ok(reserved)
    }

    /// Finds the addresses of running pods, and returns those that are not reserved for them.
    async fn look(&self, reserved: &Reserved) -> Result<(Vec<Demand>, InUse), AdoptionError> {
        let api = self.context.api;
        let definitions = match &self.default_network {
            None => match Definitions::list(api, self.settings, self.pools).await {
                Err(e) if e.is_not_found() => return Err(AdoptionError::NoDefinitions(e)),
                listed => listed?,
            },
            Some(_) => Definitions::list_if_known(api, self.settings, self.pools).await?,
        };
        self.report.borrow_mut().scanned.networks = definitions.count();
        let devices = resource_claims::list(api).await?;
        let mut places = self.places(&devices);
        let (mut pods, mut nodes) = (Pods::default(), Nodes::default());
        let mut demands = self.demands(&definitions, reserved);
        let mut see = |pod: &api::Pod, phase, running: Option<Running>| {
            pods.see(pod, phase);
            if let Some(running) = running {
                if let Some(node) = places.get_mut(&running.pod.uid) {
                    node.clone_from(&running.node);
                }
                demands.see(&running);
            }
        };
        Running::list(api, &mut see).await?;
        api.nodes(&mut |node| nodes.see(node)).await?;
        for device in &devices {
            let of_pod = device.pod.as_ref().and_then(|[_, uid]| places.get(uid));
            let node = of_pod.filter(|node| !node.is_empty()).or(device.node.as_ref());
            demands.see_device(device, &self.definition_of(device), node.map(String::as_str));
        }
        let Demands { missing, present, conflicts, .. } = demands;
        let report = &mut *self.report.borrow_mut();
        report.scanned.pods = pods.count();
        report.present = present;
        report.conflicts = conflicts;
        Ok((missing, InUse { pods, nodes, definitions }))
    }

    /// The pods of claims, whose nodes are not known yet.
    fn places(&self, devices: &[Device]) -> HashMap<String, String> {
        let pods = devices.iter().filter_map(|device| device.pod.as_ref());
        pods.map(|[_, uid]| (uid.clone(), String::new())).collect()
    }

    /// The network that the configuration of a device describes.
    fn definition_of(&self, device: &Device) -> Definition {
        let Some(config) = &device.config else {
            return Definition::Unclear("it has no configuration of CNI".to_owned());
        };
        let allowed = self.settings.allowed.pools(PodsOf::Any);
        Definition::parse(&device.claim[1], config, self.pools, allowed.as_ref()).if_allowed(self.settings)
    }

    fn demands<'d>(&'d self, definitions: &'d Definitions, reserved: &'d Reserved) -> Demands<'d> {
        let default_network = self.default_network.clone();
        Demands::new(self.context.cluster, definitions, default_network, reserved, self.not_metes)
    }

    /// Nobody here knows what the pods of another cluster use, so no other cluster may be registered.
    async fn expect_no_others(&self) -> Result<(), AdoptionError> {
        let Context { session, cluster, .. } = self.context;
        let see = |names: &mut Vec<String>, entry: Entry| match session.keys.parse(&entry.key) {
            Ok(Key::Cluster(name)) if name != *cluster => names.push(name.to_string()),
            _ => {}
        };
        let (others, _) = walk(session, &session.keys.clusters(), Vec::new, see).await?;
        if others.is_empty() { Ok(()) } else { Err(AdoptionError::OtherClusters(others)) }
    }

    fn changed(&self) -> AdoptionError {
        let key = self.context.session.keys.meta();
        AdoptionError::Changed(String::from_utf8_lossy(&key).into_owned())
    }
}
