//! The links between records, as digests: enough to see if they agree, and to find again the records that do not. Pure.
//!
//! A record that does not agree goes unnoticed only if a digest of 64 bits is by chance that of another record. If one
//! record of a million is wrong, the chance is 1 in 10^13. A digest names nobody: suspects are read again.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use metes_core::keys::{NetworkAddress, PodInterface};
use metes_core::pool::{Addr, NetworkName, Owner, OwnerRecord, PodUid, Seat};

/// A digest that stands for a name, and takes a tenth of its space.
type Digest = u64;
/// A link: an owner has an address of a network, or an interface of a pod in one.
type Said = (Digest, Digest);

/// The links that all records of a tree assert.
#[derive(Default)]
pub(super) struct Links {
    /// The address and the owner of each reservation.
    reserved: Vec<Said>,
    /// The addresses that owner records list, each with its owner.
    listed: Vec<Said>,
    /// The interface and the owner of each pod index entry.
    indexed: Vec<Said>,
    /// The interface of each entry that does not decode.
    illegible: BTreeSet<Digest>,
    /// The interfaces of pods that have addresses by owner records, each with its owner.
    attached: Vec<Said>,
    /// The seat and the user of each seat.
    seated: Vec<Said>,
    /// The seats that owner records name, each with its owner.
    sitting: Vec<Said>,
    /// The hold of each seat, with the seat.
    seats: Vec<Said>,
    /// The holds for pods that have records.
    holds: BTreeSet<Digest>,
}

/// Names about which records do not agree. Some may be in order, and so may names that have the same digest by chance.
#[derive(Default)]
pub(super) struct Suspects {
    addresses: BTreeSet<Digest>,
    interfaces: BTreeSet<Digest>,
    owners: BTreeSet<Digest>,
    seats: BTreeSet<Digest>,
    /// True if a pod index entry names an owner that has not its interface.
    has_misnamed: bool,
}

/// The content of an owner record.
pub(super) struct Holdings {
    /// All addresses in networks: its own, or those of the hold that it uses.
    pub(super) listed: Vec<NetworkAddress>,
    pub(super) uid: Option<PodUid>,
    /// The seat in which it uses a hold. Then it has reserved nothing.
    pub(super) seat: Option<Seat>,
}

impl Holdings {
    pub(super) fn of(record: OwnerRecord) -> Self {
        let listed = record.used().map(|(network, address)| (network.clone(), address)).collect();
        Self { listed, uid: record.labels.pod.uid, seat: record.seat }
    }

    /// The addresses that are reserved for it.
    pub(super) fn reserved(&self) -> &[NetworkAddress] {
        if self.seat.is_none() { &self.listed } else { &[] }
    }

    /// The entries that the pod index needs for `owner`, which holds this.
    pub(super) fn interfaces(&self, owner: &Owner) -> BTreeSet<PodInterface> {
        let uids = self.uid.iter().cycle();
        let interface = |(uid, (network, _)): (&PodUid, &NetworkAddress)| PodInterface {
            cluster: owner.cluster.clone(),
            uid: uid.clone(),
            ifname: owner.ifname.clone(),
            network: network.clone(),
        };
        uids.zip(&self.listed).map(interface).collect()
    }
}

impl Links {
    /// A reservation of this address names this owner.
    pub(super) fn reserve(&mut self, address: (&NetworkName, Addr), owner: &Owner) {
        self.reserved.push((digest(address), digest(owner)));
    }

    /// The record of this owner says that it holds this.
    pub(super) fn hold(&mut self, owner: &Owner, holdings: &Holdings) {
        let by = digest(owner);
        self.listed.extend(holdings.reserved().iter().map(|address| (digest(address), by)));
        self.sitting.extend(holdings.seat.iter().map(|seat| (digest(seat), by)));
        if owner.is_for_subject() {
            self.holds.insert(by);
        }
        self.attached.extend(holdings.interfaces(owner).iter().map(|interface| (digest(interface), by)));
    }

    /// The pod index of this interface names this owner; none if it does not decode.
    pub(super) fn index(&mut self, interface: &PodInterface, owner: Option<&Owner>) {
        match owner {
            Some(owner) => self.indexed.push((digest(interface), digest(owner))),
            None => _ = self.illegible.insert(digest(interface)),
        }
    }

    /// This seat names this user; none if it does not decode.
    pub(super) fn sit(&mut self, seat: &Seat, user: Option<&Owner>) {
        self.seats.push((digest(&seat.hold), digest(seat)));
        self.seated.extend(user.map(|user| (digest(seat), digest(user))));
    }

    /// The names for which one of these does not hold. Each reservation has one record that lists it, and each address
    /// of a record its reservation. The owner that an index names has the interface, and each interface has an index.
    /// It may have older owners. The user that a seat names has the seat, and the other way round, and a seat has its
    /// hold.
    pub(super) fn suspects(mut self) -> Suspects {
        let of_addresses = [&mut self.reserved, &mut self.listed, &mut self.indexed, &mut self.attached];
        for pairs in of_addresses.into_iter().chain([&mut self.seated, &mut self.sitting]) {
            pairs.sort_unstable();
        }
        let mut suspects = Suspects::default();
        for (address, owner) in unequal(&self.reserved, &self.listed) {
            suspects.addresses.insert(address);
            suspects.owners.insert(owner);
        }
        for (seat, user) in unequal(&self.seated, &self.sitting) {
            suspects.seats.insert(seat);
            suspects.owners.insert(user);
        }
        let without_hold = self.seats.iter().filter(|(hold, _)| !self.holds.contains(hold));
        suspects.seats.extend(without_hold.map(|(_, seat)| seat));
        let is_attached = |pair: &&Said| self.attached.binary_search(pair).is_ok();
        let is_indexed = |(one, _): &&Said| {
            self.indexed.binary_search_by_key(one, |(interface, _)| *interface).is_ok()
                || self.illegible.contains(one)
        };
        let mut misnamed = self.indexed.iter().filter(|pair| !is_attached(pair)).peekable();
        suspects.has_misnamed = misnamed.peek().is_some();
        let unindexed = self.attached.iter().filter(|pair| !is_indexed(pair));
        for (interface, owner) in misnamed.chain(unindexed) {
            suspects.interfaces.insert(*interface);
            suspects.owners.insert(*owner);
        }
        suspects
    }
}

impl Suspects {
    pub(super) fn is_empty(&self) -> bool {
        let Self { addresses, interfaces, owners, seats, has_misnamed: _ } = self;
        [addresses, interfaces, owners, seats].into_iter().all(BTreeSet::is_empty)
    }

    /// True if seats must be read to say what is wrong.
    pub(super) fn need_seats(&self) -> bool {
        !self.seats.is_empty()
    }

    pub(super) fn has_seat(&self, seat: &Seat) -> bool {
        self.seats.contains(&digest(seat))
    }

    /// True if reservations must be read to say what is wrong.
    pub(super) fn need_reservations(&self) -> bool {
        !self.addresses.is_empty()
    }

    /// True if entries of the pod index must be read. The absence of one is certain without them.
    pub(super) fn need_indexes(&self) -> bool {
        self.has_misnamed
    }

    pub(super) fn has_address(&self, address: (&NetworkName, Addr)) -> bool {
        self.addresses.contains(&digest(address))
    }

    pub(super) fn has_interface(&self, interface: &PodInterface) -> bool {
        self.interfaces.contains(&digest(interface))
    }

    pub(super) fn has_owner(&self, owner: &Owner) -> bool {
        self.owners.contains(&digest(owner))
    }
}

/// The same for equal values, borrowed or not, in one run of a program.
fn digest(of: impl Hash) -> Digest {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// The links that the one has more often than the other. Both are sorted.
fn unequal(one: &[Said], other: &[Said]) -> Vec<Said> {
    let (mut one, mut other) = (one.iter().copied().peekable(), other.iter().copied().peekable());
    let mut unequal = Vec::new();
    while let Some(next) = one.peek().into_iter().chain(other.peek()).min().copied() {
        if one.next_if_eq(&next).is_some() != other.next_if_eq(&next).is_some() {
            unequal.push(next);
        }
    }
    unequal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_that_the_other_has_as_often_are_equal() {
        let (a, b, c) = ((1, 1), (1, 2), (2, 1));
        assert_eq!(unequal(&[a, b, c], &[a, b, c]), []);
        assert_eq!(unequal(&[a, c], &[a, b, b]), [b, b, c]);
        assert_eq!(unequal(&[a], &[a, a]), [a]);
        assert_eq!(unequal(&[], &[c]), [c]);
    }
}
