//! Judges suspects by name: reservations against owners, owners against the pod index, and each the other way round.
//! Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::Report;
use super::finding::{Finding, Kind};
use super::links::{Holdings, Suspects};
use metes_core::keys::{Key, Keys, NetworkAddress, PodInterface};
use metes_core::pool::{Owner, OwnerRecord, PodIndex, PodUid, Record, Reservation, Seat, SeatRecord};
use metes_core::txn::Entry;

/// The second look: everything about suspects, and no more.
///
/// A record that is not suspected is in order. It is not judged, because its counterparts are not here.
#[derive(Default)]
pub(super) struct Inquiry {
    pub(super) suspects: Suspects,
    /// By suspected address. None: the reservation does not decode.
    reserved: BTreeMap<NetworkAddress, Option<Owner>>,
    /// The suspected owners, and those that list a suspected address. None as above.
    owners: BTreeMap<Owner, Option<Holdings>>,
    /// By suspected interface. None as above.
    indexed: BTreeMap<PodInterface, Option<Owner>>,
    /// By suspected seat. None as above.
    seated: BTreeMap<Seat, Option<Owner>>,
    /// The holds for pods that have records.
    holds: BTreeSet<Owner>,
}

impl Inquiry {
    pub(super) fn new(suspects: Suspects) -> Self {
        Self { suspects, ..Self::default() }
    }

    /// Takes one key.
    pub(super) fn see(&mut self, keys: &Keys, entry: &Entry) {
        match keys.parse(&entry.key) {
            Ok(Key::Ip(network, address)) if self.suspects.has_address((&network, address)) => {
                let owner = Reservation::decode(&entry.value).ok().map(|record| record.owner);
                self.reserved.insert((network, address), owner);
            }
            Ok(Key::Seat(seat)) if self.suspects.has_seat(&seat) => {
                let user = SeatRecord::decode(&entry.value).ok().map(|seat| seat.user);
                self.seated.insert(seat, user);
            }
            Ok(Key::Owner(owner)) => self.see_owner(owner, OwnerRecord::decode(&entry.value).ok()),
            Ok(Key::Pod(interface)) if self.suspects.has_interface(&interface) => {
                let owner = PodIndex::decode(&entry.value).ok().map(|index| interface.owner(index));
                self.indexed.insert(interface, owner);
            }
            _ => {}
        }
    }

    fn see_owner(&mut self, owner: Owner, record: Option<OwnerRecord>) {
        if self.suspects.need_seats() && owner.is_for_subject() {
            self.holds.insert(owner.clone());
        }
        let holdings = record.map(Holdings::of);
        let has_suspect = |holdings: &Holdings| {
            holdings
                .reserved()
                .iter()
                .any(|(network, address)| self.suspects.has_address((network, *address)))
        };
        if self.suspects.has_owner(&owner) || holdings.as_ref().is_some_and(has_suspect) {
            self.owners.insert(owner, holdings);
        }
    }

    pub(super) fn judge(&self, keys: &Keys, report: &mut Report) {
        self.judge_owners(keys, report);
        self.judge_reservations(keys, report);
        self.judge_indexes(keys, report);
        self.judge_seats(keys, report);
    }

    fn judge_owners(&self, keys: &Keys, report: &mut Report) {
        let mut listed: BTreeMap<&NetworkAddress, &Owner> = BTreeMap::new();
        for (owner, holdings) in &self.owners {
            let Some(holdings) = holdings else { continue };
            let find = |kind, what| Finding::new(kind, &keys.owner(owner), what);
            for held in holdings.reserved().iter().filter(|held| self.suspects.has_address((&held.0, held.1)))
            {
                let (network, address) = held;
                if let Some(other) = listed.insert(held, owner) {
                    let what = format!("lists {address} of network {network}, as does {other}");
                    report.violations.push(find(Kind::AddressListedTwice, what));
                }
                if let Some(what) = self.missing_reservation(owner, held) {
                    report.violations.push(find(Kind::OwnerWithoutReservation, what));
                }
            }
            if let Some(what) = holdings.seat.as_ref().and_then(|seat| self.missing_seat(owner, seat)) {
                report.violations.push(find(Kind::UserWithoutSeat, what));
            }
            for PodInterface { uid, network, .. } in self.unindexed(owner, holdings) {
                // A younger owner of the pod that did not take over, and is freed since, leaves this behind;
                // it only keeps a retried sandbox from taking over.
                let what = format!("belongs to pod {uid}, whose index for network {network} is missing");
                report.harmless.push(find(Kind::OwnerWithoutPodIndex, what));
            }
        }
    }

    /// The fault of the reservation of an address that `owner` lists.
    fn missing_reservation(&self, owner: &Owner, held: &NetworkAddress) -> Option<String> {
        let (network, address) = held;
        match self.reserved.get(held) {
            None => Some(format!("lists {address} of network {network}, which is not reserved")),
            Some(Some(holder)) if holder != owner => {
                Some(format!("lists {address} of network {network}, which is reserved for {holder}"))
            }
            Some(_) => None,
        }
    }

    /// The interfaces for which no index entry stands. An entry that names a younger owner does; one that is wrong in
    /// itself is judged by itself.
    fn unindexed(&self, owner: &Owner, holdings: &Holdings) -> impl Iterator<Item = PodInterface> {
        let is_missing = |interface: &PodInterface| {
            self.suspects.has_interface(interface) && !self.indexed.contains_key(interface)
        };
        holdings.interfaces(owner).into_iter().filter(is_missing)
    }

    fn judge_reservations(&self, keys: &Keys, report: &mut Report) {
        for (held, owner) in &self.reserved {
            let missing = owner.as_ref().and_then(|owner| self.missing_owner(owner, held));
            report
                .violations
                .extend(missing.map(|what| {
                    Finding::new(Kind::ReservationWithoutOwner, &keys.ip(&held.0, held.1), what)
                }));
        }
    }

    fn missing_owner(&self, owner: &Owner, held: &NetworkAddress) -> Option<String> {
        match self.owners.get(owner) {
            _ if !self.suspects.has_owner(owner) => None,
            None => Some(format!("reserved for {owner}, which has no owner record")),
            Some(Some(holdings)) if !holdings.reserved().contains(held) => {
                Some(format!("reserved for {owner}, whose owner record does not list it"))
            }
            Some(_) => None,
        }
    }

    fn judge_indexes(&self, keys: &Keys, report: &mut Report) {
        for (interface, owner) in &self.indexed {
            let wrong = owner.as_ref().and_then(|owner| self.misnamed(owner, interface));
            let PodInterface { cluster, uid, ifname, network } = interface;
            report.violations.extend(wrong.map(|(kind, what)| {
                Finding::new(kind, &keys.pod(cluster.as_ref(), uid, ifname, network), what)
            }));
        }
    }

    /// The fault of the seat that the record of `owner` names.
    fn missing_seat(&self, owner: &Owner, seat: &Seat) -> Option<String> {
        let Seat { hold, n } = seat;
        match self.seated.get(seat) {
            _ if !self.suspects.has_seat(seat) => None,
            None => Some(format!("names seat {n} of {hold}, which is free")),
            Some(Some(user)) if user != owner => Some(format!("names seat {n} of {hold}, which {user} has")),
            Some(_) => None,
        }
    }

    fn judge_seats(&self, keys: &Keys, report: &mut Report) {
        for (seat, user) in &self.seated {
            let mut find = |kind, what| report.violations.push(Finding::new(kind, &keys.seat(seat), what));
            if !self.holds.contains(&seat.hold) {
                find(Kind::SeatWithoutHold, format!("is a seat of {}, which does not exist", seat.hold));
            }
            if let Some(what) = user.as_ref().and_then(|user| self.missing_user(user, seat)) {
                find(Kind::SeatWithoutUser, what);
            }
        }
    }

    /// The fault of the user that a seat names.
    fn missing_user(&self, user: &Owner, seat: &Seat) -> Option<String> {
        match self.owners.get(user) {
            _ if !self.suspects.has_owner(user) => None,
            None => Some(format!("names {user}, which has no owner record")),
            Some(Some(holdings)) if holdings.seat.as_ref() != Some(seat) => {
                Some(format!("names {user}, whose owner record does not name it"))
            }
            Some(_) => None,
        }
    }

    /// The fault of the owner that an index names.
    fn misnamed(&self, owner: &Owner, interface: &PodInterface) -> Option<(Kind, String)> {
        let PodInterface { uid, network, .. } = interface;
        let mismatch = |what: &str| Some((Kind::PodIndexMismatch, format!("names {owner}, {what}")));
        match self.owners.get(owner) {
            _ if !self.suspects.has_owner(owner) => None,
            None => Some((Kind::PodIndexWithoutOwner, format!("names {owner}, which holds nothing"))),
            Some(None) => None,
            Some(Some(holdings)) if holdings.uid.as_ref() != Some(uid) => {
                let of_other = holdings.uid.as_ref().map_or("", PodUid::as_str);
                mismatch(&format!("which belongs to pod {of_other:?}"))
            }
            Some(Some(holdings)) if !holdings.listed.iter().any(|(held, _)| held == network) => {
                mismatch("which holds nothing in it")
            }
            Some(Some(_)) => None,
        }
    }
}
