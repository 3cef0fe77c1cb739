//! The addresses of ResourceClaims, judged by the reports of their devices. Pure.
//!
//! A DRA driver for networks calls the plugin with the claim's UID as container id, and with the name of the pod that
//! the claim is reserved for. An adopted address gets the same names, so the driver's DEL frees it.

use std::net::IpAddr;
use std::rc::Rc;

use metes_core::pool::{Addr, Held, InvalidName, Owner, Pod};

use super::demand::{Demand, Demands, place};
use super::report::{AdoptionConflict, ConflictKind};
use crate::nad::{Definition, Network};
use crate::resource_claims::Device;
use crate::running::parse_addresses;

impl Demands<'_> {
    /// Takes a device with what its configuration says, and the node that it is on, if that is known.
    pub(crate) fn see_device(&mut self, device: &Device, definition: &Definition, node: Option<&str>) {
        let seen = self.demand_of(device, definition, node);
        self.conflicts.extend(seen.err());
    }

    fn demand_of(
        &mut self,
        device: &Device,
        definition: &Definition,
        node: Option<&str>,
    ) -> Result<(), AdoptionConflict> {
        if matches!(definition, Definition::Other) || self.not_metes.contains(&device.driver) {
            return Ok(());
        }
        let no_address =
            |text| conflict(device, Some(text), ConflictKind::NoStatus, "this is not an address");
        let addresses = parse_addresses(&device.ips).map_err(no_address)?;
        let [_, _, uid] = &device.claim;
        if addresses.iter().all(|ip| self.reserved.has_claim(uid, Addr::from(*ip))) {
            self.present += 1;
            return Ok(());
        }
        let (held, network) = placed(device, definition, &addresses)?;
        self.use_once(device, &held)?;
        let nowhere = || conflict(device, None, ConflictKind::NoStatus, "nothing says on which node it is");
        let owner = self.owner_of(device, node.ok_or_else(nowhere)?);
        let owner = owner.map_err(|e| conflict(device, None, ConflictKind::Undecodable, &e.to_string()))?;
        let pod = Pod { namespace: device.claim[0].clone(), name: pod_name(device).to_owned(), uid: None };
        self.missing.push(Demand { owner, pod, held, network, sticky: None });
        Ok(())
    }

    /// Nobody else uses these addresses.
    fn use_once(&mut self, device: &Device, held: &[Held]) -> Result<(), AdoptionConflict> {
        let user = format!("ResourceClaim {}/{}", device.claim[0], device.claim[1]);
        for at in held.iter().filter_map(place) {
            if let Some(other) = self.users.get(&at) {
                let why = format!("in use by {other}, too");
                return Err(conflict(device, Some(at.1.to_string()), ConflictKind::TwoUsers, &why));
            }
            self.users.insert(at, user.clone());
        }
        Ok(())
    }

    fn owner_of(&self, device: &Device, node: &str) -> Result<Owner, InvalidName> {
        Ok(Owner {
            node: node.parse()?,
            container_id: device.claim[2].parse()?,
            ifname: device.interface.parse()?,
            cluster: Some(self.cluster.clone()),
        })
    }
}

/// The addresses as an owner holds them, and their network.
fn placed(
    device: &Device,
    definition: &Definition,
    addresses: &[IpAddr],
) -> Result<(Vec<Held>, Rc<Network>), AdoptionConflict> {
    let bad = |address, kind, why: &str| Err(conflict(device, address, kind, why));
    let network = match definition {
        Definition::Metes(network) => network,
        Definition::Unclear(why) => {
            let driver = &device.driver;
            let why = format!("{why}; if driver {driver} does not use metes, say --not-metes {driver}");
            return bad(device.ips.first().cloned(), ConflictKind::UnknownNetwork, &why);
        }
        Definition::Other => return bad(None, ConflictKind::UnknownNetwork, "it does not use metes"),
    };
    if addresses.len() > network.most_addresses() {
        return bad(None, ConflictKind::TooMany, "more addresses than its network gives");
    }
    match network.held(addresses) {
        Ok(held) => Ok((held, network.clone())),
        Err(ip) => bad(Some(ip.to_string()), ConflictKind::Outside, "outside every range of its network"),
    }
}

/// A claim that no pod has reserved at the moment goes by its own name.
fn pod_name(device: &Device) -> &str {
    device.pod.as_ref().map_or(&device.claim[1], |[name, _]| name)
}

fn conflict(device: &Device, address: Option<String>, kind: ConflictKind, why: &str) -> AdoptionConflict {
    let [namespace, claim, _] = &device.claim;
    let pod = format!("{namespace}/{}", pod_name(device));
    let why = format!("its ResourceClaim {claim}: {why}");
    AdoptionConflict { pod, interface: device.interface.clone(), address, kind, why }
}
