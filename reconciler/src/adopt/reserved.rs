//! The reservations from before the adoption, with their owners.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use metes_core::keys::{Key, Keys};
use metes_core::pool::{
    Addr, ClusterName, ContainerKind, NetworkName, Owner, OwnerKind, Pod, Record, Reservation, SeatRecord,
};
use metes_core::txn::Entry;

/// Takes a key below the seats. One that is not a seat, or does not decode, is skipped: its hold counts as unused.
pub(crate) fn see_seat(users: &mut Users, keys: &Keys, entry: &Entry) {
    if let (Ok(Key::Seat(seat)), Ok(record)) = (keys.parse(&entry.key), SeatRecord::decode(&entry.value)) {
        users.insert(seat.hold, record.labels.pod);
    }
}

/// The holder of each address, in the form in which a pod can recognise its own reservations.
#[derive(Default)]
pub(crate) struct Reserved {
    holders: HashMap<(NetworkName, Addr), Mark>,
    names: HashMap<Box<str>, Rc<str>>,
    /// The addresses of ResourceClaims, by the claims' UIDs.
    claims: HashSet<(Box<str>, Addr)>,
    /// The pods that use holds.
    users: Rc<Users>,
}

/// The pod that uses each hold.
pub(crate) type Users = HashMap<Owner, Pod>;

/// The holder of a reservation: the interface, and the pod's UID, or its full name if it has no UID. Of a hold for pods
/// it is the pod that uses it.
struct Mark {
    /// Empty: no pod, as of a hold that is unused.
    pod: Box<str>,
    ifname: Rc<str>,
}

impl Reserved {
    /// Nothing is reserved yet; these pods use holds.
    pub(crate) fn of(users: Rc<Users>) -> Self {
        Self { users, ..Self::default() }
    }

    /// Takes a key of a network. A key that is not a reservation, or does not decode, is skipped: the claim of that
    /// address reads it itself.
    pub(crate) fn see(&mut self, keys: &Keys, cluster: &ClusterName, entry: &Entry) {
        let Ok(Key::Ip(network, address)) = keys.parse(&entry.key) else { return };
        let Ok(reservation) = Reservation::decode(&entry.value) else { return };
        let mut pod = reservation.labels.pod;
        let is_ours = reservation.owner.cluster.as_ref() == Some(cluster);
        match reservation.owner.kind() {
            OwnerKind::Container(ContainerKind::Claim) if is_ours && pod.uid.is_none() => {
                self.claims.insert((reservation.owner.container_id.as_str().into(), address));
            }
            OwnerKind::Container(
                ContainerKind::Claim
                | ContainerKind::Runtime
                | ContainerKind::Adopted
                | ContainerKind::Imported,
            )
            | OwnerKind::Aside(..)
            | OwnerKind::Unknown => {}
            OwnerKind::Subject(_) => pod = self.users.get(&reservation.owner).cloned().unwrap_or_default(),
        }
        let pod = match &pod.uid {
            Some(uid) => uid.to_string(),
            None if pod.is_unknown() => String::new(),
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

    /// The number of reserved addresses.
    pub(crate) fn len(&self) -> usize {
        self.holders.len()
    }

    /// True if an address is reserved for the ResourceClaim with this UID, in whatever network.
    pub(crate) fn has_claim(&self, uid: &str, address: Addr) -> bool {
        self.claims.contains(&(uid.into(), address))
    }

    /// True if an address is reserved for this interface of a pod that has one of these names.
    pub(crate) fn is_for(&self, at: &(NetworkName, Addr), names: &[&str], ifname: &str) -> bool {
        self.interface_of(at, names) == Some(ifname)
    }

    /// The interface that an address is reserved for, if its pod has one of these names.
    pub(crate) fn interface_of(&self, at: &(NetworkName, Addr), names: &[&str]) -> Option<&str> {
        let mark = self.holders.get(at)?;
        names.iter().any(|name| **name == *mark.pod).then_some(&*mark.ifname)
    }
}
