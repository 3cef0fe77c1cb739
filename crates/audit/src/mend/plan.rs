//! The plan of each mend, made from what was read. Pure.

use super::kept::KeptEntry;
use super::{Finding, Kind, Mend, Mending, Mends};
use metes_core::builder::{BitChanges, Builder};
use metes_core::keys::{Bytes, Key, Keys, NetworkAddress, PodInterface};
use metes_core::plan::free;
use metes_core::pool::bitmap::Bits;
use metes_core::pool::{
    Addr, Held, Labels, NetworkName, Owner, OwnerKind, OwnerRecord, Page, Pod, PodIndex, PoolChanges, Record,
    Reservation, SeatRecord, newer_version,
};
use metes_core::snapshot::Snapshot;
use metes_core::txn::{Compare, Entry, Op, Txn};

/// A record that does not decode may list any address.
const OWNERS_FIRST: &str = "run `metes check --mend undecodable-owner` first";
/// The record of a newer program may say anything.
const OF_NEWER: &str = "a record that a newer metes wrote may have it: mend it with a metes of that version";
/// The most of a value that a sentence shows.
const SHOWN: usize = 80;

const NOT_IN_USE: &str = "make sure that no container uses what is freed: another one may get it at once";
const POD_IS_DELETED: &str =
    "delete the pod, or make sure that the container is gone: another one may get what is freed";
const IN_USE: &str = "a container uses the hold: delete its pod first";
const NOT_SET_ASIDE: &str =
    "make sure that what the address was set aside for does not use it: a container may get it at once";

/// Plans the mend of one finding.
pub(super) struct Planner<'a> {
    pub(super) keys: &'a Keys,
    pub(super) seen: &'a Snapshot,
    pub(super) mends: Mends<'a>,
    pub(super) kind: Kind,
    /// The bits that the reservations of a page need, if it does not decode.
    pub(super) bits: Option<&'a Bits>,
}

/// A mend, or the keys that must be read before it can be planned.
type PlannedMend = Result<Mending, Vec<Bytes>>;

impl Planner<'_> {
    pub(super) fn plan(&self, finding: &Finding) -> PlannedMend {
        let Finding { key, kind, .. } = finding;
        if self.seen.mod_revision(key) > self.mends.audited {
            return Ok(Mending::Changed);
        }
        let parsed = self.keys.parse(key).ok();
        let entry = match (kind, self.seen.entry(key)) {
            (Kind::PoolsMismatch, _) => return self.pools(None),
            (Kind::MetaMissing | Kind::EtcdTooOld, _) => return Ok(instead(*kind)),
            (_, None) => return Ok(Mending::Changed),
            (_, Some(entry)) => entry,
        };
        match (kind, parsed) {
            (Kind::ForeignKey, _) => {
                let first = "make sure that no other program needs it, nor a newer metes";
                self.delete(entry, "what this metes does not write", Some(first))
            }
            (Kind::UndecodablePage, Some(Key::Page(network, page))) => {
                let what = format!("the bits of {} to {} of network {network}", page.first(), page.last());
                self.page(entry, (&network, page), &what)
            }
            (Kind::UndecodableSummary, _) => self.delete(entry, "what says which pages are full", None),
            (Kind::UndecodableSeat, _) => {
                let what = "which container uses the addresses of a hold";
                self.delete(entry, what, Some(POD_IS_DELETED))
            }
            (Kind::UserWithoutSeat, Some(Key::Owner(owner))) => self.unseated(entry, &owner),
            (Kind::SeatWithoutUser, Some(Key::Seat(_))) => self.seat(entry),
            (Kind::UndecodableCursor, _) => self.delete(entry, "the address that was given last", None),
            (Kind::UndecodablePodIndex, _) => self.delete(entry, "the youngest container of a pod", None),
            (Kind::UndecodableCluster, _) => {
                let first =
                    "make sure that no other cluster uses this name: the one that is reconciled next gets it";
                self.delete(entry, "which cluster goes by a name", Some(first))
            }
            (Kind::UndecodableNote, Some(Key::Cooling(..))) if entry.lease != 0 => Ok(Mending::Instead(
                "the address rests as long as the key is there, and its lease ends it".into(),
            )),
            (Kind::UndecodableNote, Some(Key::Cooling(..))) => {
                let first = "make sure that nobody needs the address to rest any longer";
                self.delete(entry, "that an address rests", Some(first))
            }
            (Kind::UndecodableNote, _) => self.delete(entry, "a note", None),
            (Kind::UndecodableTombstone, Some(Key::Tombstone(owner))) => {
                let what = format!("that {owner} is gone");
                self.delete(entry, &what, Some("make sure that the container has been gone for two minutes"))
            }
            (Kind::UndecodableMeta, _) => self.delete(
                entry,
                "what all writers have agreed on",
                Some(
                    "make sure that no newer metes has written it. After it, take the store into service again: \
                     `metes-reconciler adopt`, or outside Kubernetes `metes check --accept-store`",
                ),
            ),
            (Kind::UndecodablePool, Some(Key::Pool(name))) => {
                let others = self.mends.related.pools.iter().filter(|pool| pool.pool != name);
                self.pools(Some((entry, PoolChanges::of(others))))
            }
            (Kind::UndecodablePool, _) => self.pools(None),
            (Kind::UndecodableOwner, Some(Key::Owner(owner))) => self.undecodable_owner(entry, &owner),
            (
                Kind::UndecodableReservation | Kind::ReservationWithoutOwner,
                Some(Key::Ip(network, address)),
            ) => self.reservation(entry, (network, address)),
            (Kind::OwnerWithoutReservation, Some(Key::Owner(owner))) => self.unreserved(entry, &owner),
            (Kind::AddressListedTwice, Some(Key::Owner(owner))) => self.listed_twice(entry, &owner),
            (Kind::HoldMismatch, Some(Key::Owner(owner))) => self.hold(entry, &owner),
            (Kind::PodIndexWithoutOwner | Kind::PodIndexMismatch, Some(Key::Pod(interface))) => {
                self.pod_index(entry, &interface)
            }
            (Kind::RecordOnLease | Kind::ReservationOnLease, _) => self.off_lease(entry),
            (Kind::StaleWithoutLease, Some(Key::Hold(network, address))) => {
                self.time_of_hold(entry, &Owner::of_hold(&network, address))
            }
            (
                Kind::StaleWithoutLease
                | Kind::ReservationWithoutBit
                | Kind::SummarySaysFull
                | Kind::StrayBit
                | Kind::SummaryMissesFull,
                _,
            ) => Ok(Mending::ByRepair),
            _ => Ok(instead(*kind)),
        }
    }

    /// Deletes a key that nothing else relies on.
    fn delete(&self, entry: &Entry, what: &str, first: Option<&'static str>) -> PlannedMend {
        let mut builder = self.builder(entry);
        builder.delete(entry.key.clone());
        let stands = vec![format!("{}: {what}; its value is {}", name(entry), shown(&entry.value))];
        self.possible(stands, vec!["deletes the key".to_owned()], first, builder.finish())
    }

    fn page(&self, entry: &Entry, (network, page): (&NetworkName, Page), what: &str) -> PlannedMend {
        let Some(mut bits) = self.bits.cloned() else { return Ok(Mending::Changed) };
        // A container may use the addresses that its record lists, although they are not reserved.
        if self.mends.related.has_newer_owner {
            return Ok(Mending::Instead(OF_NEWER.to_owned()));
        }
        if self.mends.related.has_undecodable_owner {
            return Ok(Mending::Instead(OWNERS_FIRST.to_owned()));
        }
        self.mends.related.listed_in(network, page).for_each(|address| bits.set(address.bit()));
        let mut builder = self.builder(entry);
        let does = match bits.count() {
            0 => {
                builder.delete(entry.key.clone());
                "deletes the key: none of these addresses is held".to_owned()
            }
            count => {
                builder.put(entry.key.clone(), bits.to_bytes());
                format!("writes them anew: {count} of these addresses are held or cooling")
            }
        };
        let stands = vec![format!("{}: {what}; its value has {} bytes", name(entry), entry.value.len())];
        self.possible(stands, vec![does], None, builder.finish())
    }

    /// Frees the addresses reserved for an owner whose record says nothing, and the record.
    fn undecodable_owner(&self, entry: &Entry, owner: &Owner) -> PlannedMend {
        if self.mends.related.has_newer_reservation {
            return Ok(Mending::Instead(OF_NEWER.to_owned()));
        }
        let reserved = self.mends.related.reserved.get(owner).map_or(&[][..], Vec::as_slice);
        self.require(reserved.iter().map(|(network, address)| self.keys.ip(network, *address)))?;
        let is_its = |(network, address): &&NetworkAddress| {
            self.reservation_of(network, *address).is_some_and(|one| one.owner == *owner)
        };
        let held = reserved.iter().filter(is_its);
        let held = held.map(|(network, address)| Held::new(address.ip(), Some(network.clone()))).collect();
        let uid = self.mends.related.pods.get(owner).cloned();
        let pod = uid.as_ref().map(|uid| format!(" (of the pod with the UID {uid})")).unwrap_or_default();
        let stands =
            vec![format!("the record of {owner}{pod}, which does not decode: {}", shown(&entry.value))];
        let labels = Labels { pod: Pod { uid, ..Pod::default() }, ..Labels::default() };
        let record = OwnerRecord::new(held, None, "-".to_owned(), labels);
        self.free(owner, &record, stands)
    }

    /// A reservation that no record stands behind goes to who lists its address, or is freed.
    fn reservation(&self, entry: &Entry, held: NetworkAddress) -> PlannedMend {
        let (network, address) = &held;
        let named = Reservation::decode(&entry.value).ok();
        let named_key = named.as_ref().map(|reservation| self.keys.owner(&reservation.owner));
        let listing = self.mends.related.listing(&held);
        self.require(named_key.iter().cloned().chain(listing.iter().map(|owner| self.keys.owner(owner))))?;
        let mut stands = vec![match &named {
            Some(Reservation { owner, .. }) => format!(
                "{address} of network {network} is reserved for {owner}{}, whose record does not list it",
                self.pod_of(owner)
            ),
            None => {
                let value = shown(&entry.value);
                format!("the reservation of {address} of network {network} does not decode: {value}")
            }
        }];
        let lists = |owner: &&Owner| self.record_of(owner).is_some_and(|record| lists(&record, &held));
        if named.as_ref().is_some_and(|reservation| lists(&&reservation.owner)) {
            return Ok(Mending::Changed);
        }
        let mut builder = self.builder(entry);
        named_key.into_iter().for_each(|key| builder.unchanged(key));
        match listing.iter().filter(lists).collect::<Vec<_>>()[..] {
            [] if self.mends.related.has_newer_owner => Ok(Mending::Instead(OF_NEWER.to_owned())),
            // A record that does not decode may list the address.
            [] if named.is_none() && self.mends.related.has_undecodable_owner => {
                Ok(Mending::Instead(OWNERS_FIRST.to_owned()))
            }
            [] => {
                if let Some(hold) = named.as_ref().map(|named| &named.owner)
                    && self.is_seated(hold)?
                {
                    return Ok(Mending::Instead(IN_USE.to_owned()));
                }
                let owner = Owner::of_hold(network, *address);
                let record = self.keys.owner(&owner);
                let hold = named.filter(|named| named.owner == owner).and_then(|named| named.hold);
                // The reservation has all that the record had. A record that is there says something else.
                if let (Some(hold), None) = (&hold, self.seen.entry(&record)) {
                    let does = format!("writes the record of {owner} anew, with the note {:?}", hold.note);
                    builder.put(record, OwnerRecord::of_hold(network, *address, hold.clone()).encode());
                    return self.possible(stands, vec![does], None, builder.finish());
                }
                builder.delete(entry.key.clone());
                let mut bits = BitChanges::default();
                bits.clear(network, *address);
                bits.plan(self.keys, &mut builder);
                let does = format!("frees {address} of network {network}");
                let first = if hold.is_some() { NOT_SET_ASIDE } else { NOT_IN_USE };
                self.possible(stands, vec![does], Some(first), builder.finish())
            }
            [owner] => {
                let record = self.record_of(owner).unwrap_or_else(|| unreachable!("it lists the address"));
                stands.push(format!("the record of {owner}{} lists it", pod_words(&record.labels.pod)));
                builder.unchanged(self.keys.owner(owner));
                builder.put(entry.key.clone(), self.reservation_for(owner, &record).encode());
                let does = format!("reserves {address} of network {network} for {owner}");
                let first = "make sure that no other container uses the address";
                self.possible(stands, vec![does], Some(first), builder.finish())
            }
            _ => Ok(Mending::Instead(twice_first(&held))),
        }
    }

    /// Reserves again the addresses of a record. If one is reserved for another owner, all that the record lists is
    /// freed.
    fn unreserved(&self, entry: &Entry, owner: &Owner) -> PlannedMend {
        let Ok(record) = OwnerRecord::decode(&entry.value) else { return Ok(Mending::Changed) };
        self.require(record.reserved().map(|(network, address)| self.keys.ip(network, address)))?;
        let pod = pod_words(&record.labels.pod);
        let mut builder = self.builder(entry);
        let mut bits = BitChanges::default();
        let (mut stands, mut does) = (Vec::new(), Vec::new());
        for (network, address) in record.reserved() {
            let held = (network.clone(), address);
            let key = self.keys.ip(network, address);
            match (self.seen.entry(&key), self.reservation_of(network, address)) {
                (Some(_), Some(Reservation { owner: other, .. })) if other != *owner => {
                    self.require(std::iter::once(self.keys.owner(&other)))?;
                    let of_other = format!("{other}{}", self.pod_of(&other));
                    let stands = vec![format!(
                        "the record of {owner}{pod} lists {address} of network {network}, which is reserved for \
                         {of_other}"
                    )];
                    return self.free(owner, &record, stands);
                }
                (Some(_), _) => {}
                (None, _) if self.mends.related.listing(&held).iter().any(|other| other != owner) => {
                    return Ok(Mending::Instead(twice_first(&held)));
                }
                (None, _) => {
                    stands.push(format!(
                        "the record of {owner}{pod} lists {address} of network {network}, which is not reserved"
                    ));
                    does.push(format!("reserves {address} of network {network} for {owner}"));
                    builder.absent(key.clone());
                    builder.put(key, self.reservation_for(owner, &record).encode());
                    bits.set(network, address);
                }
            }
        }
        if does.is_empty() {
            return Ok(Mending::Changed);
        }
        bits.plan(self.keys, &mut builder);
        self.possible(
            stands,
            does,
            Some("make sure that no other container uses the address"),
            builder.finish(),
        )
    }

    /// Frees the owner for which the address is not reserved; if it is reserved for neither, the one that was found.
    /// The other one gets the reservations of the addresses that both list.
    fn listed_twice(&self, entry: &Entry, owner: &Owner) -> PlannedMend {
        let Ok(record) = OwnerRecord::decode(&entry.value) else { return Ok(Mending::Changed) };
        let mut of_each = record.reserved().map(|(network, address)| (network.clone(), address));
        let twice = of_each.find(|held| self.mends.related.listing(held).iter().any(|one| one != owner));
        let Some(held) = twice else { return Ok(Mending::Changed) };
        let others = || self.mends.related.listing(&held).iter().filter(|other| *other != owner);
        self.require(std::iter::once(self.keys.ip(&held.0, held.1)))?;
        self.require(others().map(|other| self.keys.owner(other)))?;
        let Some(other) =
            others().find(|other| self.record_of(other).is_some_and(|other| lists(&other, &held)))
        else {
            return Ok(Mending::Changed);
        };
        let holder = self.reservation_of(&held.0, held.1).map(|reservation| reservation.owner);
        let (freed, kept) = if holder.as_ref() == Some(owner) { (other, owner) } else { (owner, other) };
        let (Some(record), Some(kept_record)) = (self.record_of(freed), self.record_of(kept)) else {
            return Ok(Mending::Changed);
        };
        let words = |owner: &Owner| format!("{owner}{}", self.pod_of(owner));
        let reserved = match &holder {
            Some(holder) if holder == kept => format!("it is reserved for {kept}"),
            _ => {
                format!("it is reserved for neither; to free {kept} instead, say no and use `metes release`")
            }
        };
        let stands = vec![
            format!(
                "{} of network {} is listed by the records of {} and of {}",
                held.1,
                held.0,
                words(owner),
                words(other)
            ),
            reserved,
        ];
        self.free_beside(freed, &record, Some((kept, &kept_record)), stands)
    }

    fn hold(&self, entry: &Entry, owner: &Owner) -> PlannedMend {
        let Ok(record) = OwnerRecord::decode(&entry.value) else { return Ok(Mending::Changed) };
        let note =
            record.hold.as_ref().map_or("without a note".to_owned(), |hold| format!("{:?}", hold.note));
        let held: Vec<String> = record.addresses.iter().map(|held| held.address.to_string()).collect();
        let stands = vec![format!("the record of {owner}, {note}, lists {}", held.join(", "))];
        self.free(owner, &record, stands)
    }

    fn pod_index(&self, entry: &Entry, interface: &PodInterface) -> PlannedMend {
        let Ok(index) = PodIndex::decode(&entry.value) else { return Ok(Mending::Changed) };
        let owner = interface.owner(index);
        let stands = format!("{} names {owner}", name(entry));
        self.misnaming(entry, &owner, stands, ("deletes the key", None))
    }

    /// Deletes a key that names an owner, whose record, as it was audited, does not agree.
    fn misnaming(
        &self,
        entry: &Entry,
        owner: &Owner,
        stands: String,
        (does, first): (&str, Option<&'static str>),
    ) -> PlannedMend {
        let key = self.keys.owner(owner);
        self.require(std::iter::once(key.clone()))?;
        if self.seen.mod_revision(&key) > self.mends.audited {
            return Ok(Mending::Changed);
        }
        let mut builder = self.builder(entry);
        builder.unchanged(key);
        builder.delete(entry.key.clone());
        self.possible(vec![stands], vec![does.to_owned()], first, builder.finish())
    }

    /// Takes again the seat that a record names, if it is free and has its hold.
    fn unseated(&self, entry: &Entry, owner: &Owner) -> PlannedMend {
        let record = OwnerRecord::decode(&entry.value).ok();
        let Some((seat, labels)) = record.and_then(|record| Some((record.seat?, record.labels))) else {
            return Ok(Mending::Changed);
        };
        let (key, hold) = (self.keys.seat(&seat), self.keys.owner(&seat.hold));
        self.require([key.clone(), hold.clone()].into_iter())?;
        if self.seen.entry(&key).is_some() || self.seen.entry(&hold).is_none() {
            return Ok(Mending::Instead("delete its pod: the DEL frees what is left of it".to_owned()));
        }
        let mut builder = self.builder(entry);
        builder.unchanged(hold);
        builder.absent(key.clone());
        let pod = pod_words(&labels.pod);
        builder.put(key, SeatRecord::new(owner.clone(), labels, self.mends.now.to_owned()).encode());
        let stands = vec![format!("the record of {owner}{pod} names seat {} of {}", seat.n, seat.hold)];
        let does = vec!["writes the seat".to_owned()];
        self.possible(
            stands,
            does,
            Some("make sure that no other container uses the addresses"),
            builder.finish(),
        )
    }

    /// Gives back a seat whose user does not name it.
    fn seat(&self, entry: &Entry) -> PlannedMend {
        let Ok(SeatRecord { user, labels, .. }) = SeatRecord::decode(&entry.value) else {
            return Ok(Mending::Changed);
        };
        let stands = format!("{} names {user}{}", name(entry), pod_words(&labels.pod));
        let does = "deletes the key: the seat is free then";
        self.misnaming(entry, &user, stands, (does, Some(POD_IS_DELETED)))
    }

    /// The same bytes without a lease.
    fn off_lease(&self, entry: &Entry) -> PlannedMend {
        let mut builder = self.builder(entry);
        builder.put(entry.key.clone(), entry.value.clone());
        let stands = vec![format!("{} hangs on lease {:x}", name(entry), entry.lease)];
        let does = vec!["writes the same without a lease, so that it stays".to_owned()];
        self.possible(stands, does, None, builder.finish())
    }

    fn time_of_hold(&self, entry: &Entry, hold: &Owner) -> PlannedMend {
        let key = self.keys.owner(hold);
        self.require(std::iter::once(key.clone()))?;
        if self.seen.entry(&key).is_some() {
            return Ok(Mending::Instead("`metes hold --remove` ends the hold".to_owned()));
        }
        let mut builder = self.builder(entry);
        builder.unchanged(key);
        builder.delete(entry.key.clone());
        let stands = vec![format!("{}: the time of {hold}, which does not exist", name(entry))];
        self.possible(stands, vec!["deletes the key".to_owned()], None, builder.finish())
    }

    /// Writes anew the record that all pools make together, after deleting one that does not decode.
    fn pools(&self, deleted: Option<(&Entry, PoolChanges)>) -> PlannedMend {
        let together = self.keys.pool_changes();
        self.require(std::iter::once(together.clone()))?;
        if self.seen.mod_revision(&together) > self.mends.related.revision {
            return Ok(Mending::Changed);
        }
        if self.mends.related.has_newer_pool {
            return Ok(Mending::Instead(OF_NEWER.to_owned()));
        }
        let mut builder = Builder::new("mend", self.seen);
        builder.unchanged(together.clone());
        let (mut stands, mut does) = (Vec::new(), Vec::new());
        let (changes, first) = match deleted {
            Some((entry, changes)) => {
                builder.unchanged(entry.key.clone());
                builder.delete(entry.key.clone());
                // Nothing else has its text any more.
                let value = String::from_utf8_lossy(&entry.value);
                stands.push(format!("{}: a pool; its value is {value:?}", name(entry)));
                does.push("deletes the pool".to_owned());
                (changes, Some("keep the pool's text, to write it again with `metes pool apply`"))
            }
            None => {
                stands
                    .push(format!("{}: what `auto` knows of the pools", String::from_utf8_lossy(&together)));
                (PoolChanges::of(self.mends.related.pools.iter()), None)
            }
        };
        does.push("writes anew what `auto` knows of the pools".to_owned());
        builder.put(together, changes.encode());
        self.possible(stands, does, first, builder.finish())
    }

    /// Frees all that an owner holds, as `metes release` does.
    fn free(&self, owner: &Owner, record: &OwnerRecord, stands: Vec<String>) -> PlannedMend {
        self.free_beside(owner, record, None, stands)
    }

    /// The same beside another owner, for which the addresses that its record lists too are reserved, unless somebody
    /// else has them.
    fn free_beside(
        &self,
        owner: &Owner,
        record: &OwnerRecord,
        kept: Option<(&Owner, &OwnerRecord)>,
        mut stands: Vec<String>,
    ) -> PlannedMend {
        let mut builder = Builder::new("mend", self.seen);
        let mut bits = BitChanges::default();
        if self.is_seated(owner)? {
            return Ok(Mending::Instead(IN_USE.to_owned()));
        }
        let mut does = vec![format!("deletes the record of {owner}")];
        let own = self.keys.owner(owner);
        builder.unchanged(own.clone());
        builder.delete(own);
        kept.iter().for_each(|(kept, _)| builder.unchanged(self.keys.owner(kept)));
        let mut rest = record.clone();
        rest.addresses.retain(|held| {
            let Some(network) = &held.network else { return false };
            let address = Addr::from(held.address);
            let (at, key) = ((network.clone(), address), self.keys.ip(network, address));
            let holder = self.reservation_of(network, address).map(|reservation| reservation.owner);
            let is_own = holder.as_ref() == Some(owner);
            let has_other = self.seen.entry(&key).is_some() && !is_own;
            if let Some((kept, record)) = kept.filter(|(_, record)| !has_other && lists(record, &at)) {
                builder.unchanged(key.clone());
                builder.put(key, self.reservation_for(kept, record).encode());
                bits.set(network, address);
                does.push(format!("reserves {address} of network {network} for {kept}"));
                return false;
            }
            match holder {
                Some(_) if is_own => does.push(format!("frees {address} of network {network}")),
                Some(other) => stands.push(format!("{address} of network {network} stays with {other}")),
                None => {}
            }
            true
        });
        free::free_reservations(self.keys, owner, &rest, &mut builder, &mut bits);
        free::free_index(self.keys, owner, record, &mut builder);
        free::free_seat(self.keys, owner, record, &mut builder);
        bits.plan(self.keys, &mut builder);
        let first = match owner.kind() {
            OwnerKind::Aside(network, address) => {
                let time = self.keys.hold(&network, address);
                builder.unchanged(time.clone());
                builder.delete(time);
                NOT_SET_ASIDE
            }
            OwnerKind::Subject(_) => {
                self.keys.seats_of(owner).into_iter().for_each(|seat| builder.absent(seat));
                NOT_IN_USE
            }
            OwnerKind::Container(_) | OwnerKind::Unknown => POD_IS_DELETED,
        };
        self.possible(stands, does, Some(first), builder.finish())
    }

    /// True if it is a hold for a pod that a container uses.
    fn is_seated(&self, owner: &Owner) -> Result<bool, Vec<Bytes>> {
        if !owner.is_for_subject() {
            return Ok(false);
        }
        let seats = self.keys.seats_of(owner);
        self.require(seats.iter().cloned())?;
        Ok(seats.iter().any(|seat| self.seen.entry(seat).is_some()))
    }

    fn possible(
        &self,
        stands: Vec<String>,
        does: Vec<String>,
        first: Option<&'static str>,
        planned: Result<Txn, Vec<Bytes>>,
    ) -> PlannedMend {
        let mut txn = Txn { step: "mend", ..planned? };
        if txn.compares.iter().any(|compare| self.is_newer(compare.key())) {
            return Ok(Mending::Instead(OF_NEWER.to_owned()));
        }
        if let Some(revision) = self.mends.meta_revision {
            txn.compares.push(Compare::Mod(self.keys.meta(), revision));
        }
        if !txn.fits() {
            return Ok(Mending::Instead("it is too large for one transaction of etcd".to_owned()));
        }
        Ok(Mending::Possible(Mend { stands, does, first, kept: self.kept(&txn), txn }))
    }

    /// The keys that a transaction deletes or replaces. Bits follow from what is held, so a bitmap is kept only if it
    /// does not decode.
    fn kept(&self, txn: &Txn) -> Vec<KeptEntry> {
        let lost = txn.then.iter().filter_map(|op| match op {
            Op::Delete(key) => self.seen.entry(key),
            Op::Put(key, value, _) => self.seen.entry(key).filter(|entry| entry.value != *value),
            _ => None,
        });
        let is_bitmap = |entry: &&Entry| {
            let key = self.keys.parse(&entry.key);
            let is_of_bits = matches!(key, Ok(Key::Page(..) | Key::Summary(..)));
            is_of_bits && Bits::from_bytes(&entry.value).is_some()
        };
        lost.filter(|entry| !is_bitmap(entry))
            .map(|entry| KeptEntry::new(self.keys, self.kind, entry))
            .collect()
    }

    fn is_newer(&self, key: &[u8]) -> bool {
        self.seen.entry(key).is_some_and(|entry| newer_version(&entry.value).is_some())
    }

    /// A transaction on the condition that the finding's key is as it was read.
    fn builder(&self, entry: &Entry) -> Builder<'_> {
        let mut builder = Builder::new("mend", self.seen);
        builder.unchanged(entry.key.clone());
        builder
    }

    fn require(&self, keys: impl Iterator<Item = Bytes>) -> Result<(), Vec<Bytes>> {
        let missing: Vec<Bytes> = keys.filter(|key| !self.seen.knows(key)).collect();
        if missing.is_empty() { Ok(()) } else { Err(missing) }
    }

    /// The reservation that a record stands for. When it was first made is not known any more.
    fn reservation_for(&self, owner: &Owner, record: &OwnerRecord) -> Reservation {
        Reservation::of_record(owner, record, self.mends.now.to_owned())
    }

    fn record_of(&self, owner: &Owner) -> Option<OwnerRecord> {
        self.seen.record(&self.keys.owner(owner)).ok().flatten()
    }

    fn pod_of(&self, owner: &Owner) -> String {
        pod_of(self.seen, &self.keys.owner(owner))
    }

    fn reservation_of(&self, network: &NetworkName, address: Addr) -> Option<Reservation> {
        self.seen.record(&self.keys.ip(network, address)).ok().flatten()
    }
}

fn instead(kind: Kind) -> Mending {
    Mending::Instead(kind.explain().remedy.to_owned())
}

fn twice_first((network, address): &NetworkAddress) -> String {
    format!(
        "several records list {address} of network {network}: run `metes check --mend address-listed-twice` first"
    )
}

fn lists(record: &OwnerRecord, (network, address): &NetworkAddress) -> bool {
    record.reserved().any(|held| held == (network, *address))
}

/// The pod of the owner with this key, as far as its record says it.
pub(super) fn pod_of(seen: &Snapshot, own: &[u8]) -> String {
    let record = seen.record::<OwnerRecord>(own).ok().flatten();
    record.map(|record| pod_words(&record.labels.pod)).unwrap_or_default()
}

fn pod_words(Pod { namespace, name, .. }: &Pod) -> String {
    if name.is_empty() { String::new() } else { format!(" (pod {namespace}/{name})") }
}

pub(super) fn name(entry: &Entry) -> String {
    String::from_utf8_lossy(&entry.key).into_owned()
}

/// The beginning of a value.
pub(super) fn shown(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(&value[..value.len().min(SHOWN)]);
    let more = if value.len() > SHOWN { "..." } else { "" };
    format!("{text:?}{more}")
}
