//! What running pods use, as far as it can be told from what multus wrote: what is reserved for them, what is
//! missing, and what nobody can decide. Pure.

use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;

use metes::pool::record::{Held, Owner, Pod};
use metes::pool::{Addr, NetworkName};

use super::Reserved;
use super::report::{Conflict, Kind};
use crate::nad::{Definition, Definitions, Network};
use crate::running::{Interface, Running};

/// What one interface uses and is not reserved for it.
pub(crate) struct Demand {
    pub(crate) owner: Owner,
    pub(crate) pod: Pod,
    pub(crate) held: Vec<Held>,
    pub(crate) network: Rc<Network>,
}

impl Demand {
    pub(crate) fn conflict(&self, kind: Kind, address: Option<IpAddr>, why: String) -> Conflict {
        let pod = format!("{}/{}", self.pod.namespace, self.pod.name);
        let address = address.map(|ip| ip.to_string());
        Conflict { pod, interface: self.owner.ifname.clone(), address, kind, why }
    }
}

/// Takes pods one by one.
pub(crate) struct Demands<'a> {
    pub(crate) missing: Vec<Demand>,
    /// How many interfaces have all that they use.
    pub(crate) present: usize,
    pub(crate) conflicts: Vec<Conflict>,
    cluster: &'a str,
    definitions: &'a Definitions,
    reserved: &'a Reserved,
    default_network: Option<Rc<Network>>,
    not_metes: &'a [String],
    /// Which interface was the first to use each address.
    users: HashMap<(NetworkName, Addr), String>,
    /// How many addresses each interface of the pod uses that is being seen.
    used: HashMap<String, usize>,
}

/// What a network's name leads to.
enum Found {
    Network(Rc<Network>),
    NotMetes,
    Unclear(String),
}

impl<'a> Demands<'a> {
    pub(crate) fn new(
        cluster: &'a str,
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
                for interface in interfaces {
                    let seen = self.see_interface(pod, interface);
                    self.conflicts.extend(seen.err());
                }
            }
            Some(Err(why)) => {
                let why = format!("its annotation network-status cannot be read: {why}");
                self.conflicts.push(conflict(pod, "", None, Kind::NoStatus, why));
            }
            None if pod.is_up => self.see_without_status(pod),
            // Its sandbox is still being made, and with it its addresses.
            None => {}
        }
    }

    fn find(&self, name: &str) -> Found {
        if self.not_metes.iter().any(|other| other == name) {
            return Found::NotMetes;
        }
        match self.definitions.get(name) {
            Some(Definition::Metes(network)) => Found::Network(network.clone()),
            Some(Definition::Other) => Found::NotMetes,
            Some(Definition::Unclear(why)) => Found::Unclear(why.clone()),
            None => Found::Unclear("there is no NetworkAttachmentDefinition of this name".to_owned()),
        }
    }

    /// Containers run, and nobody wrote down with which addresses.
    fn see_without_status(&mut self, pod: &Running) {
        for name in &pod.asked {
            if let Found::Network(_) = self.find(name) {
                let why = format!("it runs in network {name} without an annotation network-status");
                self.conflicts.push(conflict(pod, "", None, Kind::NoStatus, why));
            }
        }
    }

    fn see_interface(&mut self, pod: &Running, interface: &Interface) -> Result<(), Conflict> {
        let name = pod.full_name(&interface.name);
        let network = match self.find(&name) {
            Found::Network(network) => network,
            Found::NotMetes => return Ok(()),
            // The cluster's own network: its configuration lies on the nodes.
            Found::Unclear(_) if interface.default && self.definitions.get(&name).is_none() => return Ok(()),
            Found::Unclear(why) => {
                let why = format!("network {name}: {why}; if it is not of metes, say --not-metes {name}");
                return Err(conflict(pod, &interface.interface, None, Kind::UnknownNetwork, why));
            }
        };
        self.see_addresses(pod, interface, &name, network)
    }

    fn see_addresses(
        &mut self,
        pod: &Running,
        interface: &Interface,
        name: &str,
        network: Rc<Network>,
    ) -> Result<(), Conflict> {
        let bad = |address: Option<String>, kind, why: String| {
            Err(conflict(pod, &interface.interface, address, kind, why))
        };
        let addresses = match interface.addresses() {
            Ok(addresses) => addresses,
            Err(text) => return bad(Some(text), Kind::NoStatus, "this is no address".to_owned()),
        };
        if addresses.is_empty() || interface.interface.is_empty() || pod.node.is_empty() {
            let why = format!("it does not tell what it uses in network {name}");
            return bad(None, Kind::NoStatus, why);
        }
        let held = match network.held(&addresses) {
            Ok(held) => held,
            Err(ip) => {
                let why = format!("outside every range of network {name}");
                return bad(Some(ip.to_string()), Kind::Outside, why);
            }
        };
        self.demand(pod, interface, held, network)
    }

    fn demand(
        &mut self,
        pod: &Running,
        interface: &Interface,
        held: Vec<Held>,
        network: Rc<Network>,
    ) -> Result<(), Conflict> {
        let at = |held: &Held| Some((held.network.clone()?, Addr::from(held.address)));
        let reserved: Vec<(NetworkName, Addr)> = held.iter().filter_map(at).collect();
        let user = format!("{}/{} {}", pod.pod.namespace, pod.pod.name, interface.interface);
        // Said twice: of the cluster's own network, by the API and by multus.
        if !reserved.is_empty() && reserved.iter().all(|at| self.users.get(at) == Some(&user)) {
            return Ok(());
        }
        // An annotation is written by whoever may patch the pod, and an owner of many addresses could never be
        // freed: that takes one transaction.
        let used = self.used.entry(interface.interface.clone()).or_default();
        *used += held.len();
        if *used > network.most_addresses() {
            let why = format!("more than the {} of its network", network.most_addresses());
            return Err(conflict(pod, &interface.interface, None, Kind::TooMany, why));
        }
        for (at, held) in reserved.iter().zip(held.iter().filter(|held| held.network.is_some())) {
            if let Some(other) = self.users.get(at) {
                let address = Some(held.address.to_string());
                let why = format!("in use by {other}, too");
                return Err(conflict(pod, &interface.interface, address, Kind::TwoUsers, why));
            }
            self.users.insert(at.clone(), user.clone());
        }
        let label = pod.label();
        let full = format!("{}/{}", label.namespace, label.name);
        let mut names = vec![label.uid.as_str(), pod.pod.uid.as_str(), full.as_str()];
        names.extend(pod.pod.static_uids.iter().map(String::as_str));
        if reserved.iter().all(|at| self.reserved.is_for(at, &names, &interface.interface)) {
            self.present += usize::from(!reserved.is_empty());
            return Ok(());
        }
        let owner = Owner::adopted(self.cluster, &pod.node, &label.uid, &interface.interface);
        self.missing.push(Demand { owner, pod: label, held, network });
        Ok(())
    }
}

fn conflict(pod: &Running, interface: &str, address: Option<String>, kind: Kind, why: String) -> Conflict {
    let pod = format!("{}/{}", pod.pod.namespace, pod.pod.name);
    Conflict { pod, interface: interface.to_owned(), address, kind, why }
}
