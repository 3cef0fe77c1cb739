//! The commands that a runtime gives: for each verb one type, with exactly what that verb needs, checked.

use std::collections::HashSet;
use std::net::IpAddr;

use super::network::{Config, Static, StickyConfig, StickyTo};
use super::settings::{IpamSettings, PodsOf, Settings};
use crate::cni::previous::{prev_result_addresses, valid_attachments};
use crate::cni::request::Attachment;
use crate::cni::result::{Dns, Route};
use crate::cni::{Error, Request, Version};
use metes_core::plan::ask::Sticky;
use metes_core::pool::{ContainerId, Held, Labels, Owner, Pod, PodUid, RangeSet, RangesWanted, Wanted};

/// A command of CNI that works with the store. VERSION, which does not, is none of them.
#[derive(Debug)]
pub enum StoreCommand {
    /// Give an interface its addresses.
    Add(Box<AddConfig>),
    /// Take them back.
    Del(DelConfig),
    /// Say whether they are still held.
    Check(CheckConfig),
    /// Free all that belongs to no valid attachment.
    Gc(GcConfig),
    /// Say whether an ADD could be served.
    Status,
}

/// The input of an ADD.
#[derive(Debug)]
pub struct AddConfig {
    /// The interface that gets the addresses.
    pub attachment: Attachment,
    /// The labels that the records get.
    pub labels: Labels,
    /// The addresses to be reserved.
    pub wanted: Wanted,
    /// The addresses outlive the pod; none: they end with the container.
    pub sticky: Option<Sticky>,
    /// What the result says besides.
    pub result: ResultConfig,
}

/// The result of an ADD, apart from the addresses of range sets.
#[derive(Debug)]
pub struct ResultConfig {
    /// The version to answer in.
    pub version: Version,
    /// The static addresses, with prefix lengths and gateways.
    pub statics: Vec<Static>,
    /// Routes.
    pub routes: Vec<Route>,
    /// DNS.
    pub dns: Dns,
    /// A file in resolv.conf's format whose content is the DNS instead; the caller reads it.
    pub resolv_conf: Option<String>,
}

/// The input of a DEL. Nothing of `ipam` is in it: a DEL must not fail over that.
#[derive(Debug)]
pub struct DelConfig {
    /// The interface whose addresses are freed.
    pub attachment: Attachment,
    /// The pod's UID, if it is known.
    pub pod_uid: Option<PodUid>,
}

/// The input of a CHECK.
#[derive(Debug)]
pub struct CheckConfig {
    /// The interface whose addresses are looked at.
    pub attachment: Attachment,
    /// The pod's UID, if it is known.
    pub pod_uid: Option<PodUid>,
    /// The hold that the interface most likely uses, by the configuration as it is now.
    pub hold: Option<Owner>,
    /// The range sets that the configuration has now.
    pub sets: Vec<RangeSet>,
    /// The addresses of the previous result.
    pub previous: Vec<IpAddr>,
}

/// The input of a GC.
#[derive(Debug)]
pub struct GcConfig {
    /// The network's `name` for CNI.
    pub cni_network: String,
    /// The containers that the list of valid attachments names. None: the runtime gives no list, and nothing is freed.
    pub containers: Option<HashSet<ContainerId>>,
    /// The seconds by which an owner must be older than this GC to be freed.
    pub grace_s: u64,
}

impl AddConfig {
    /// Reads all of the configuration, on a node with these settings. The texts say which keys have no effect, for the
    /// log and the details of an error.
    ///
    /// # Errors
    /// As [`Config::parse`] and [`Settings::check_allowed`].
    pub fn parse(request: Request, settings: &Settings) -> Result<(Self, Vec<String>), Error> {
        let pods = PodsOf::Namespace(&request.args.pod.namespace);
        let (config, notes) = judge_add(&request, settings, pods);
        let config = config.map_err(|e| e.with_notes(&notes))?;
        let sticky = config.sticky.map(|sticky| sticky_of(&request, settings, sticky)).transpose();
        let sticky = sticky.map_err(|e| e.with_notes(&notes))?;
        let Config { sets, requests, statics, pools, order, cooldown, routes, dns, resolv_conf, .. } = config;
        let wanted = match pools {
            Some(mut pools) => {
                pools.node_labels = settings.node_labels.clone();
                pools.allowed = settings.allowed.pools(pods).filter(|_| pools.has_auto());
                Wanted::Pools(pools)
            }
            None => {
                let held = |fixed: &Static| Held::new(fixed.address.ip(), fixed.network.clone());
                let statics = statics.iter().map(held).collect();
                Wanted::Ranges(RangesWanted { sets, requests, statics, order, cooldown })
            }
        };
        let add = Self {
            attachment: request.attachment()?.clone(),
            labels: Labels { pod: request.args.pod, cni_network: request.name },
            wanted,
            sticky,
            result: ResultConfig { version: request.version, statics, routes, dns, resolv_conf },
        };
        Ok((add, notes))
    }
}

/// The hold that the addresses of a pod's interface belong to.
fn sticky_of(
    request: &Request,
    settings: &Settings,
    StickyConfig { to: StickyTo::Pod, keep }: StickyConfig,
) -> Result<Sticky, Error> {
    let Pod { namespace, name, uid } = &request.args.pod;
    let given = [!namespace.is_empty(), !name.is_empty(), uid.is_some()];
    let missing = ["K8S_POD_NAMESPACE", "K8S_POD_NAME", "K8S_POD_UID"].into_iter().zip(given);
    let missing: Vec<&str> = missing.filter(|(_, is_given)| !is_given).map(|(key, _)| key).collect();
    if !missing.is_empty() {
        return Err(Error::invalid_config(format!(
            "`ipam.sticky` is \"pod\", and CNI_ARGS does not say {}",
            missing.join(", ")
        ))
        .with_details("such addresses are for pods of Kubernetes, whose runtime gives these names"));
    }
    // `Settings::check_sticky` has seen it.
    let cluster =
        settings.cluster.clone().ok_or_else(|| Error::invalid_config("the host file has no cluster"))?;
    let ifname = request.attachment()?.ifname.clone();
    let sticky = Sticky::of_pod(cluster, &request.args.pod, ifname, keep);
    sticky.map_err(|e| Error::invalid_config(format!("CNI_ARGS: {e}")))
}

/// The configuration of an ADD, if the node allows it to these pods, and one line for each key that has no effect.
pub(super) fn judge_add(
    request: &Request,
    settings: &Settings,
    pods: PodsOf<'_>,
) -> (Result<Config, Error>, Vec<String>) {
    let (read, mut notes) = Config::judge(request);
    notes.extend(IpamSettings::of(request).without_effect());
    let allowed = read.and_then(|config| {
        settings.check_allowed(&config, pods)?;
        settings.check_pools_only(&config)?;
        settings.check_resolv_conf(&config)?;
        settings.check_sticky(&config)?;
        Ok(config)
    });
    (allowed, notes)
}

impl DelConfig {
    /// Reads the request. `ipam` is not read.
    ///
    /// # Errors
    /// As [`Request::attachment`].
    pub fn parse(request: Request) -> Result<Self, Error> {
        Ok(Self { attachment: request.attachment()?.clone(), pod_uid: request.args.pod.uid })
    }
}

impl CheckConfig {
    /// Reads the configuration and the previous result.
    ///
    /// # Errors
    /// As [`Config::parse`] and [`prev_result_addresses`].
    pub fn parse(request: Request, settings: &Settings) -> Result<Self, Error> {
        let Config { sets, sticky, .. } = Config::parse(&request)?;
        let sticky = sticky.and_then(|sticky| sticky_of(&request, settings, sticky).ok());
        let previous = prev_result_addresses(&request.config)?.unwrap_or_default();
        Ok(Self {
            attachment: request.attachment()?.clone(),
            pod_uid: request.args.pod.uid,
            hold: sticky.map(|sticky| sticky.hold),
            sets,
            previous: previous.into_iter().map(|(address, _)| address).collect(),
        })
    }
}

impl GcConfig {
    /// Reads the list of valid attachments. `ipam` is not read.
    ///
    /// # Errors
    /// As [`valid_attachments`].
    pub fn parse(request: Request, settings: &Settings) -> Result<Self, Error> {
        let valid = valid_attachments(&request.config)?;
        let containers =
            valid.map(|valid| valid.into_iter().map(|attachment| attachment.container_id).collect());
        Ok(Self { cni_network: request.name, containers, grace_s: settings.gc_grace_s })
    }
}
