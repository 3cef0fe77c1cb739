//! The addresses of running pods, judged by what multus wrote: those reserved for the pods, those missing, and those
//! that nobody can decide about. Pure.

use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;

use metes_config::selection::Selection;
use metes_core::plan::ask::Sticky;
use metes_core::pool::{Addr, ClusterName, ContainerId, Held, InvalidName, NetworkName, Owner, Pod};

use super::report::{Adopted, AdoptionConflict, ConflictKind};
use super::reserved::Reserved;
use crate::assign::Made;
use crate::nad::{Definition, Definitions, Network};
use crate::running::{Interface, Running};

/// The addresses that one interface uses and that are not reserved for it.
pub(crate) struct Demand {
    pub(crate) owner: Owner,
    pub(crate) pod: Pod,
    pub(crate) held: Vec<Held>,
    pub(crate) network: Rc<Network>,
    /// The hold that they stay with, if the network keeps them for the pod's name.
    pub(crate) sticky: Option<Sticky>,
}

impl Demand {
    /// The entry of the report once it is reserved.
    pub(crate) fn adopted(&self, made: Made) -> Adopted {
        Adopted {
            pod: format!("{}/{}", self.pod.namespace, self.pod.name),
            interface: self.owner.ifname.to_string(),
            node: self.owner.node.to_string(),
            addresses: made.held,
            replaced: made.replaced,
        }
    }

    pub(crate) fn conflict(
        &self,
        kind: ConflictKind,
        address: Option<IpAddr>,
        why: String,
    ) -> AdoptionConflict {
        let pod = format!("{}/{}", self.pod.namespace, self.pod.name);
        let address = address.map(|ip| ip.to_string());
        AdoptionConflict { pod, interface: self.owner.ifname.to_string(), address, kind, why }
    }
}

/// Takes pods one by one.
pub(crate) struct Demands<'a> {
    pub(crate) missing: Vec<Demand>,
    /// The number of interfaces with all the addresses that they use.
    pub(crate) present: usize,
    pub(crate) conflicts: Vec<AdoptionConflict>,
    pub(super) cluster: &'a ClusterName,
    definitions: &'a Definitions,
    pub(super) reserved: &'a Reserved,
    default_network: Option<Rc<Network>>,
    pub(super) not_metes: &'a [String],
    /// The interface that was the first to use each address.
    pub(super) users: HashMap<(NetworkName, Addr), String>,
    /// The number of addresses that each interface of the present pod uses.
    used: HashMap<String, usize>,
}

/// The meaning of a network's name.
enum NamedNetwork {
    Network(Rc<Network>),
    NotMetes,
    Unclear(String),
}

impl<'a> Demands<'a> {
    pub(crate) fn new(
        cluster: &'a ClusterName,
        definitions: &'a Definitions,
        default_network: Option<Rc<Network>>,
        reserved: &'a Reserved,
        not_metes: &'a [String],
    ) -> Self {
        Self {
            missing: Vec::new(),
            present: 0,
            conflicts: Vec::new(),
            cluster,
            definitions,
            reserved,
            default_network,
            not_metes,
            users: HashMap::new(),
            used: HashMap::new(),
        }
    }

    /// Takes a pod that has not finished.
    pub(crate) fn see(&mut self, pod: &Running) {
        self.used.clear();
        if let Some(network) = self.default_network.clone()
            && let Some(ips) = &pod.own
            && (pod.is_up || !ips.is_empty())
        {
            let interface = Interface::of_default_network(ips.clone());
            let seen = self.see_addresses(pod, &interface, "of the cluster's own", network);
            self.conflicts.extend(seen.err());
        }
        match &pod.interfaces {
            Some(Ok(interfaces)) => {
                let interfaces = pod.named(interfaces);
                for interface in &interfaces {
                    let seen = self.see_interface(pod, interface);
                    self.conflicts.extend(seen.err());
                }
                self.see_unlisted(pod, &interfaces);
            }
            Some(Err(why)) => {
                let why = format!("its annotation network-status cannot be read: {why}");
                self.conflicts.push(conflict(pod, "", None, ConflictKind::NoStatus, why));
            }
            None if pod.is_up => self.see_without_status(pod),
            // Its sandbox is still being made; so are its addresses.
            None => {}
        }
    }

    fn find(&self, name: &str) -> NamedNetwork {
        if self.not_metes.iter().any(|other| other == name) {
            return NamedNetwork::NotMetes;
        }
        match self.definitions.get(name) {
            Some(Definition::Metes(network)) => NamedNetwork::Network(network.clone()),
            Some(Definition::Other) => NamedNetwork::NotMetes,
            Some(Definition::Unclear(why)) => NamedNetwork::Unclear(why.clone()),
            None => NamedNetwork::Unclear("there is no NetworkAttachmentDefinition of this name".to_owned()),
        }
    }

    /// Containers run, but nobody wrote down which addresses they use.
    fn see_without_status(&mut self, pod: &Running) {
        for name in pod.asked.iter().map(|one| &one.network).chain(&pod.default_network) {
            let why = format!("it runs in network {name} without an annotation network-status");
            self.see_untold(pod, "", name, why);
        }
    }

    /// Multus does not list interfaces of plugins that speak a version before 0.3.0. Each of them has an address all
    /// the same.
    fn see_unlisted(&mut self, pod: &Running, interfaces: &[Interface]) {
        let full = |one: &Interface| pod.full_name(&one.name);
        for (at, Selection { network, interface }) in pod.asked.iter().enumerate() {
            let is_it = |one: &&Selection| one.network == *network;
            let before = pod.asked[..at].iter().filter(is_it).count();
            if before >= interfaces.iter().filter(|one| !one.default && full(one) == *network).count() {
                let why = format!(
                    "it asked for network {network}, which its annotation network-status does not list"
                );
                self.see_untold(pod, interface.as_deref().unwrap_or_default(), network, why);
            }
        }
        if let Some(network) = &pod.default_network {
            let name = |text: &str| text.rsplit('/').next().unwrap_or_default().to_owned();
            if !interfaces.iter().any(|one| one.default && name(&one.name) == name(network)) {
                let why = format!(
                    "it asked for {network} as its own network, which its annotation network-status does not list"
                );
                self.see_untold(pod, "", network, why);
            }
        }
    }

    /// The pod is in this network, but nobody knows with which address.
    fn see_untold(&mut self, pod: &Running, interface: &str, network: &str, why: String) {
        let untold = match self.find(network) {
            NamedNetwork::Network(_) => conflict(pod, interface, None, ConflictKind::NoStatus, why),
            NamedNetwork::NotMetes => return,
            NamedNetwork::Unclear(unclear) => unknown(pod, interface, network, &unclear),
        };
        self.conflicts.push(untold);
    }

    fn see_interface(&mut self, pod: &Running, interface: &Interface) -> Result<(), AdoptionConflict> {
        let name = pod.full_name(&interface.name);
        let network = match self.find(&name) {
            NamedNetwork::Network(network) => network,
            NamedNetwork::NotMetes => return Ok(()),
            // The cluster's own network: its configuration is on the nodes.
            NamedNetwork::Unclear(_) if interface.default && self.definitions.get(&name).is_none() => {
                return Ok(());
            }
            NamedNetwork::Unclear(why) => return Err(unknown(pod, &interface.interface, &name, &why)),
        };
        self.see_addresses(pod, interface, &name, network)
    }

    fn see_addresses(
        &mut self,
        pod: &Running,
        interface: &Interface,
        name: &str,
        network: Rc<Network>,
    ) -> Result<(), AdoptionConflict> {
        let bad = |address: Option<String>, kind, why: String| {
            Err(conflict(pod, &interface.interface, address, kind, why))
        };
        let addresses = match interface.addresses() {
            Ok(addresses) => addresses,
            Err(text) => return bad(Some(text), ConflictKind::NoStatus, "this is not an address".to_owned()),
        };
        if addresses.is_empty() || pod.node.is_empty() {
            let why = format!("it does not say which address it uses in network {name}");
            return bad(None, ConflictKind::NoStatus, why);
        }
        let held = match network.held(&addresses) {
            Ok(held) => held,
            Err(ip) => {
                let why = format!("outside every range of network {name}");
                return bad(Some(ip.to_string()), ConflictKind::Outside, why);
            }
        };
        if !interface.interface.is_empty() {
            return self.demand(pod, interface, held, network);
        }
        let Some(reserved) = self.reserved_interface(pod, &held) else {
            let why = format!("it does not say which interface uses this in network {name}");
            return bad(Some(addresses[0].to_string()), ConflictKind::NoStatus, why);
        };
        self.demand(pod, &Interface { interface: reserved, ..interface.clone() }, held, network)
    }

    /// The interface of the pod for which all of this is reserved.
    fn reserved_interface(&self, pod: &Running, held: &[Held]) -> Option<String> {
        let names = names(pod);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut of = held.iter().filter_map(place).map(|at| self.reserved.interface_of(&at, &names));
        let first = of.next()??;
        of.all(|other| other == Some(first)).then(|| first.to_owned())
    }

    fn demand(
        &mut self,
        pod: &Running,
        interface: &Interface,
        held: Vec<Held>,
        network: Rc<Network>,
    ) -> Result<(), AdoptionConflict> {
        let reserved: Vec<(NetworkName, Addr)> = held.iter().filter_map(place).collect();
        let user = format!("{}/{} {}", pod.pod.namespace, pod.pod.name, interface.interface);
        // The API and multus both report the address of the cluster's own network.
        if !reserved.is_empty() && reserved.iter().all(|at| self.users.get(at) == Some(&user)) {
            return Ok(());
        }
        // Anybody who may patch the pod can write the annotation. An owner of too many addresses could never be freed,
        // because one transaction frees them all.
        let used = self.used.entry(interface.interface.clone()).or_default();
        *used += held.len();
        if *used > network.most_addresses() {
            let why = format!("more than the {} of its network", network.most_addresses());
            return Err(conflict(pod, &interface.interface, None, ConflictKind::TooMany, why));
        }
        for (at, held) in reserved.iter().zip(held.iter().filter(|held| held.network.is_some())) {
            if let Some(other) = self.users.get(at) {
                let address = Some(held.address.to_string());
                let why = format!("in use by {other}, too");
                return Err(conflict(pod, &interface.interface, address, ConflictKind::TwoUsers, why));
            }
            self.users.insert(at.clone(), user.clone());
        }
        let names = names(pod);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        if reserved.iter().all(|at| self.reserved.is_for(at, &names, &interface.interface)) {
            self.present += usize::from(!reserved.is_empty());
            return Ok(());
        }
        let bad = |e: InvalidName| {
            conflict(pod, &interface.interface, None, ConflictKind::Undecodable, e.to_string())
        };
        let (owner, pod) = (self.owner(pod, interface).map_err(bad)?, pod.label().map_err(bad)?);
        let sticky = network.sticky_of(&owner, &pod, &held).map_err(bad)?;
        self.missing.push(Demand { owner, pod, held, network, sticky });
        Ok(())
    }

    fn owner(&self, pod: &Running, interface: &Interface) -> Result<Owner, InvalidName> {
        Ok(Owner {
            node: pod.node.parse()?,
            container_id: ContainerId::adopted(&pod.uid.parse()?),
            ifname: interface.interface.parse()?,
            cluster: Some(self.cluster.clone()),
        })
    }
}

/// The network in which an address is reserved; none if the address is only recorded.
pub(super) fn place(held: &Held) -> Option<(NetworkName, Addr)> {
    Some((held.network.clone()?, Addr::from(held.address)))
}

/// The names by which reservations may refer to a pod.
fn names(pod: &Running) -> Vec<String> {
    let crate::api::Pod { namespace, name, uid, static_uids, .. } = &pod.pod;
    let mut names = vec![pod.uid.clone(), uid.clone(), format!("{namespace}/{name}")];
    names.extend(static_uids.iter().cloned());
    names
}

fn unknown(pod: &Running, interface: &str, network: &str, why: &str) -> AdoptionConflict {
    let why = format!("network {network}: {why}; if it is not of metes, say --not-metes {network}");
    conflict(pod, interface, None, ConflictKind::UnknownNetwork, why)
}

fn conflict(
    pod: &Running,
    interface: &str,
    address: Option<String>,
    kind: ConflictKind,
    why: String,
) -> AdoptionConflict {
    let pod = format!("{}/{}", pod.pod.namespace, pod.pod.name);
    AdoptionConflict { pod, interface: interface.to_owned(), address, kind, why }
}
