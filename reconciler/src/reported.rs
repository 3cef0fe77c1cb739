//! The addresses that pods report and that no record holds for them. Pure.
//!
//! Multus writes the interfaces of a pod into its annotation `network-status`, and the definition of a network says
//! which of them are of metes. A pod that is being deleted, or whose sandbox is missing, reports what may not be true
//! any more. A report that cannot be understood is left out: `adopt` asks a person about it, a pass goes on.

use metes_config::selection::full_name;
use metes_core::keys::NetworkAddress;
use metes_core::pool::{Addr, NetworkName};

use crate::api::Pod;
use crate::held::HeldAddresses;
use crate::nad::{Definition, Definitions};
use crate::running::Interface;

/// At most so many addresses are kept. Finished pods are among them, until they are told apart: Kubernetes deletes the
/// oldest above 12,500.
const AT_MOST: usize = 20_000;

/// An address that a pod reports, and that is not held for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unheld {
    pub(crate) network: NetworkName,
    pub(crate) address: Addr,
    /// The pod, without its annotation.
    pub(crate) pod: Pod,
}

impl Unheld {
    pub(crate) fn at(&self) -> NetworkAddress {
        (self.network.clone(), self.address)
    }

    /// Sorts by network, then by pod.
    pub(crate) fn order(&self) -> (&NetworkName, &str, &str, Addr) {
        (&self.network, &self.pod.namespace, &self.pod.name, self.address)
    }
}

/// Takes pods one by one.
pub(crate) struct Reported<'a> {
    definitions: &'a Definitions,
    use_metes: bool,
    held: &'a HeldAddresses,
    /// The addresses that they report and that are not held.
    pub(crate) unheld: Vec<Unheld>,
}

impl<'a> Reported<'a> {
    /// No pods yet.
    pub(crate) fn new(definitions: &'a Definitions, held: &'a HeldAddresses) -> Self {
        Self { definitions, use_metes: definitions.use_metes(), held, unheld: Vec::new() }
    }

    pub(crate) fn see(&mut self, pod: &Pod) {
        if !self.use_metes || pod.is_in_flux {
            return;
        }
        let text = pod.network_status.as_deref().unwrap_or_default();
        for interface in serde_json::from_str::<Vec<Interface>>(text).unwrap_or_default() {
            for (network, address) in self.of_metes(pod, &interface) {
                if self.unheld.len() < AT_MOST && !self.held.has(address, pod) {
                    let pod = Pod { network_status: None, ..pod.clone() };
                    self.unheld.push(Unheld { network, address, pod });
                }
            }
        }
    }

    /// The addresses of an interface that metes has given, as far as its network says so.
    fn of_metes(&self, pod: &Pod, interface: &Interface) -> Vec<(NetworkName, Addr)> {
        let name = full_name(&pod.namespace, &interface.name);
        let Some(Definition::Metes(network)) = self.definitions.get(&name) else { return Vec::new() };
        let addresses = interface.addresses().unwrap_or_default();
        // Anybody who may patch the pod can write the annotation.
        if addresses.len() > network.most_addresses() {
            return Vec::new();
        }
        let held = network.held(&addresses).unwrap_or_default();
        held.into_iter().filter_map(|held| Some((held.network?, Addr::from(held.address)))).collect()
    }
}
