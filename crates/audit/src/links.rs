//! The links between records, as sums of digests: enough to see if records agree, and which do not. Pure.
//!
//! Each link is asserted from both of its ends: a reservation names its owner, and the owner's record lists the
//! address. The digest of the link is added for the one end and subtracted for the other, both in the bucket of the
//! address and in that of the owner. So the sums of records that agree are 0 (an additive multiset hash, Clarke et al.,
//! ASIACRYPT 2003). All names of a bucket whose sum is not 0 are suspects, and are read again. The chance that a sum is
//! 0 although records do not agree is 1 in 2^64.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use metes_core::keys::{NetworkAddress, PodInterface};
use metes_core::pool::{Addr, NetworkName, Owner, OwnerRecord, PodUid, Seat};

/// A digest that stands for a name or a link.
type Digest = u64;

/// The links that all records of a tree assert.
#[derive(Default)]
pub(super) struct Links {
    /// By address: reservations against the lists in owner records.
    addresses: Sums,
    /// By interface of a pod: the pod index against owner records.
    interfaces: Sums,
    /// By seat: seats against the owner records that name them.
    seats: Sums,
    /// By owner: all of these.
    owners: Sums,
    /// The hold of each seat, with the seat.
    seats_of_holds: Vec<(Digest, Digest)>,
    /// The holds for pods that have records.
    holds: BTreeSet<Digest>,
}

/// Names about which records do not agree, each with all others of its bucket.
#[derive(Default)]
pub(super) struct Suspects {
    addresses: Buckets,
    interfaces: Buckets,
    seats: Buckets,
    owners: Buckets,
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
        let (address, owner) = (digest(address), digest(owner));
        assert_link(&End::Near, (&mut self.addresses, address), (&mut self.owners, owner));
    }

    /// The record of this owner says that it holds this.
    pub(super) fn hold(&mut self, owner: &Owner, holdings: &Holdings) {
        let by = digest(owner);
        let mut far = |sums: &mut Sums, name| assert_link(&End::Far, (sums, name), (&mut self.owners, by));
        holdings.reserved().iter().for_each(|address| far(&mut self.addresses, digest(address)));
        holdings.interfaces(owner).iter().for_each(|one| far(&mut self.interfaces, digest(one)));
        holdings.seat.iter().for_each(|seat| far(&mut self.seats, digest(seat)));
        if owner.is_for_subject() {
            self.holds.insert(by);
        }
    }

    /// The pod index of this interface names this owner.
    pub(super) fn index(&mut self, interface: &PodInterface, owner: &Owner) {
        let (interface, owner) = (digest(interface), digest(owner));
        assert_link(&End::Near, (&mut self.interfaces, interface), (&mut self.owners, owner));
    }

    /// This seat names this user; none if it does not decode.
    pub(super) fn sit(&mut self, seat: &Seat, user: Option<&Owner>) {
        let name = digest(seat);
        self.seats_of_holds.push((digest(&seat.hold), name));
        if let Some(user) = user {
            assert_link(&End::Near, (&mut self.seats, name), (&mut self.owners, digest(user)));
        }
    }

    /// The names of links that only one end asserts, and the seats without a hold. A pod's older owner is among them,
    /// and so is one whose index or seat does not decode: the second look finds nothing about these.
    pub(super) fn suspects(self) -> Suspects {
        let mut seats = self.seats.unequal();
        let without_hold = self.seats_of_holds.iter().filter(|(hold, _)| !self.holds.contains(hold));
        seats.0.extend(without_hold.map(|(_, seat)| bucket(*seat)));
        Suspects {
            addresses: self.addresses.unequal(),
            interfaces: self.interfaces.unequal(),
            seats,
            owners: self.owners.unequal(),
        }
    }
}

impl Suspects {
    pub(super) fn is_empty(&self) -> bool {
        let Self { addresses, interfaces, seats, owners } = self;
        [addresses, interfaces, seats, owners].into_iter().all(|buckets| buckets.0.is_empty())
    }

    /// True if seats must be read to say what is wrong.
    pub(super) fn need_seats(&self) -> bool {
        !self.seats.0.is_empty()
    }

    pub(super) fn has_seat(&self, seat: &Seat) -> bool {
        self.seats.has(seat)
    }

    /// True if reservations must be read to say what is wrong.
    pub(super) fn need_reservations(&self) -> bool {
        !self.addresses.0.is_empty()
    }

    /// True if entries of the pod index must be read to say what is wrong.
    pub(super) fn need_indexes(&self) -> bool {
        !self.interfaces.0.is_empty()
    }

    pub(super) fn has_address(&self, address: (&NetworkName, Addr)) -> bool {
        self.addresses.has(address)
    }

    pub(super) fn has_interface(&self, interface: &PodInterface) -> bool {
        self.interfaces.has(interface)
    }

    pub(super) fn has_owner(&self, owner: &Owner) -> bool {
        self.owners.has(owner)
    }
}

/// The end of a link that asserts it.
enum End {
    /// A reservation, an index or a seat.
    Near,
    /// The record of an owner.
    Far,
}

/// Adds the link between a name and an owner, as one of its ends asserts it, to the sums of both.
fn assert_link(end: &End, (of_names, name): (&mut Sums, Digest), (of_owners, owner): (&mut Sums, Digest)) {
    let link = digest((name, owner));
    let link = match end {
        End::Near => link,
        End::Far => link.wrapping_neg(),
    };
    of_names.add(name, link);
    of_owners.add(owner, link);
}

/// For each bucket of names, the sum of the links that are asserted of them.
struct Sums(Vec<Digest>);

impl Default for Sums {
    fn default() -> Self {
        Self(vec![0; 1 << Bucket::BITS])
    }
}

impl Sums {
    fn add(&mut self, name: Digest, link: Digest) {
        let sum = &mut self.0[usize::from(bucket(name))];
        *sum = sum.wrapping_add(link);
    }

    fn unequal(&self) -> Buckets {
        let unequal = |bucket: &Bucket| self.0[usize::from(*bucket)] != 0;
        Buckets((Bucket::MIN..=Bucket::MAX).filter(unequal).collect())
    }
}

/// Some buckets of names.
#[derive(Default)]
struct Buckets(BTreeSet<Bucket>);

impl Buckets {
    fn has(&self, name: impl Hash) -> bool {
        self.0.contains(&bucket(digest(name)))
    }
}

/// Of a million names, 15 share one.
type Bucket = u16;

fn bucket(name: Digest) -> Bucket {
    (name >> (Digest::BITS - Bucket::BITS)) as Bucket
}

/// The same for equal values, borrowed or not, in one run of a program.
fn digest(of: impl Hash) -> Digest {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_only_one_end_asserts_makes_suspects_of_both() {
        let (mut names, mut owners) = (Sums::default(), Sums::default());
        let (name, owner, other) = (digest("name"), digest("owner"), digest("other"));
        let mut link = |end, by| assert_link(end, (&mut names, name), (&mut owners, by));
        link(&End::Near, owner);
        link(&End::Far, other);
        link(&End::Far, owner);
        let suspects = [&names, &owners].map(Sums::unequal);
        assert_eq!(suspects.each_ref().map(|buckets| buckets.0.len()), [1, 1]);
        assert!(suspects[0].has("name") && suspects[1].has("other") && !suspects[1].has("owner"));
        assert_link(&End::Near, (&mut names, name), (&mut owners, other));
        assert!([&names, &owners].iter().all(|sums| sums.unequal().0.is_empty()));
    }
}
