//! The reservations from before the adoption, with the pods of their owners.
//!
//! A reservation names its owner, and the owner's record names the pod.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use metes_core::keys::{Key, Keys};
use metes_core::pool::{
    Addr, ClusterName, ContainerKind, NetworkName, Owner, OwnerKind, OwnerRecord, Pod, Record, Reservation,
    SeatRecord,
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
    /// A digest of the owner, which takes a tenth of its space: the owner's record comes later.
    owner: u64,
    /// Empty: no pod, as of a hold that is unused, or its record has not been seen.
    pod: Box<str>,
    ifname: Rc<str>,
}

impl Reserved {
    /// Nothing is reserved yet; these pods use holds.
    pub(crate) fn of(users: Rc<Users>) -> Self {
        Self { users, ..Self::default() }
    }

    /// Takes a key of a network, or, after all of these, that of an owner. A key that is neither, or does not decode,
    /// is skipped: the claim of an address reads it itself.
    pub(crate) fn see(&mut self, keys: &Keys, cluster: &ClusterName, entry: &Entry) {
        match keys.parse(&entry.key) {
            Ok(Key::Ip(network, address)) => {
                let reservation = Reservation::decode(&entry.value);
                reservation
                    .into_iter()
                    .for_each(|of| self.see_holder((network.clone(), address), &of.owner, cluster));
            }
            Ok(Key::Owner(owner)) => {
                let record = OwnerRecord::decode(&entry.value);
                record.into_iter().for_each(|record| self.see_record(&owner, &record, cluster));
            }
            _ => {}
        }
    }

    fn see_holder(&mut self, at: (NetworkName, Addr), owner: &Owner, cluster: &ClusterName) {
        let is_ours = owner.cluster.as_ref() == Some(cluster);
        let pod = match owner.kind() {
            OwnerKind::Subject(_) => self.users.get(owner).and_then(|pod| pod_mark(pod, is_ours)),
            OwnerKind::Container(_) | OwnerKind::Aside(..) | OwnerKind::Unknown => None,
        };
        let (pod, ifname) = (pod.unwrap_or_default(), self.name(owner.ifname.as_str()));
        self.holders.insert(at, Mark { owner: digest(owner), pod, ifname });
    }

    /// Tells the pod of the addresses that are reserved for an owner.
    fn see_record(&mut self, owner: &Owner, record: &OwnerRecord, cluster: &ClusterName) {
        let is_ours = owner.cluster.as_ref() == Some(cluster);
        let pod = &record.labels.pod;
        let is_claim = match owner.kind() {
            OwnerKind::Container(ContainerKind::Claim) => is_ours && pod.uid.is_none(),
            OwnerKind::Container(
                ContainerKind::Runtime | ContainerKind::Adopted | ContainerKind::Imported,
            )
            | OwnerKind::Unknown => false,
            OwnerKind::Subject(_) | OwnerKind::Aside(..) => return,
        };
        let (own, pod) = (digest(owner), pod_mark(pod, is_ours));
        for (network, address) in record.reserved() {
            let mark = self.holders.get_mut(&(network.clone(), address)).filter(|mark| mark.owner == own);
            let Some(mark) = mark else { continue };
            mark.pod = pod.clone().unwrap_or_default();
            if is_claim {
                self.claims.insert((owner.container_id.as_str().into(), address));
            }
        }
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

/// A pod's UID, or else the full name of a pod of this cluster; none if neither is known.
fn pod_mark(pod: &Pod, is_ours: bool) -> Option<Box<str>> {
    match &pod.uid {
        Some(uid) => Some(uid.as_str().into()),
        None if pod.is_unknown() || !is_ours => None,
        None => Some(format!("{}/{}", pod.namespace, pod.name).into()),
    }
}

/// The same for equal owners in one run of a program.
fn digest(owner: &Owner) -> u64 {
    let mut hasher = DefaultHasher::new();
    owner.hash(&mut hasher);
    hasher.finish()
}
