//! The links between records, as digests: enough to see if they agree, and to find again the records that do not. Pure.
//!
//! A record that does not agree goes unnoticed only if a digest of 64 bits is by chance that of another record. If one
//! record of a million is wrong, the chance is 1 in 10^13. A digest names nobody: suspects are read again.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use metes_core::keys::{NetworkAddress, PodInterface};
use metes_core::pool::{Addr, NetworkName, Owner, OwnerRecord, PodUid};

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
}

/// Names about which records do not agree. Some may be in order, and so may names that have the same digest by chance.
#[derive(Default)]
pub(super) struct Suspects {
    addresses: BTreeSet<Digest>,
    interfaces: BTreeSet<Digest>,
    owners: BTreeSet<Digest>,
    /// True if a pod index entry names an owner that has not its interface.
    has_misnamed: bool,
}

/// The content of an owner record.
pub(super) struct Holdings {
    pub(super) reserved: Vec<NetworkAddress>,
    pub(super) uid: Option<PodUid>,
}

impl Holdings {
    pub(super) fn of(record: OwnerRecord) -> Self {
        let reserved = record.reserved().map(|(network, address)| (network.clone(), address)).collect();
        Self { reserved, uid: record.labels.pod.uid }
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
        uids.zip(&self.reserved).map(interface).collect()
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
        self.listed.extend(holdings.reserved.iter().map(|address| (digest(address), by)));
        self.attached.extend(holdings.interfaces(owner).iter().map(|interface| (digest(interface), by)));
    }

    /// The pod index of this interface names this owner; none if it does not decode.
    pub(super) fn index(&mut self, interface: &PodInterface, owner: Option<&Owner>) {
        match owner {
            Some(owner) => self.indexed.push((digest(interface), digest(owner))),
            None => _ = self.illegible.insert(digest(interface)),
        }
    }

    /// The names for which one of these does not hold. Each reservation has one record that lists it, and each address
    /// of a record its reservation. The owner that an index names has the interface, and each interface has an index.
    /// It may have older owners.
    pub(super) fn suspects(mut self) -> Suspects {
        for pairs in [&mut self.reserved, &mut self.listed, &mut self.indexed, &mut self.attached] {
            pairs.sort_unstable();
        }
        let mut suspects = Suspects::default();
        for (address, owner) in unequal(&self.reserved, &self.listed) {
            suspects.addresses.insert(address);
            suspects.owners.insert(owner);
        }
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
        self.addresses.is_empty() && self.interfaces.is_empty() && self.owners.is_empty()
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
