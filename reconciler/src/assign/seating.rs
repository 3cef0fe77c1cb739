//! Assigned addresses that stay with a hold for the pod's name: the hold has them, and the owner has its seat. Pure.
//!
//! ```text
//! no hold                                makes the hold, the reservations and the seat
//! the hold has exactly these             takes the seat; a user that is gone is freed
//! the hold has others, and is gone       another one is made in its place
//! the hold has others, and is not gone   a conflict
//! the same, unused, in a paused store    the hold stays, and the container has its addresses itself
//! ```

use metes_core::builder::Builder;
use metes_core::keys::{Bytes, Keys};
use metes_core::plan::ask::Sticky;
use metes_core::plan::free;
use metes_core::pool::{
    Held, HoldNote, Labels, Owner, OwnerKind, OwnerRecord, Record, Reservation, Seat, SeatRecord,
};
use metes_core::snapshot::Snapshot;

use super::{Assignment, Assignments, Gone, Halt, Making, Standing, Under, Why, is_same_pod};

/// The hold that is written or used, and the seat that the owner gets.
#[derive(Debug)]
pub(super) struct Seating {
    pub(super) seat: Seat,
    /// The hold.
    pub(super) record: OwnerRecord,
    /// True if the hold stands with its reservations. Only the seat is taken then.
    pub(super) stands: bool,
}

/// Whether an owner gets a seat of the hold that its addresses are to stay with.
pub(super) enum SeatJudged {
    /// It has its addresses itself.
    Itself,
    /// It has the seat already.
    Already,
    /// It gets the seat. These are freed for it: the hold of the backup, and a user that is gone.
    Seat(Box<Seating>, Vec<(Owner, OwnerRecord)>),
    /// The hold of the name, or its user, is in the way.
    InTheWay(Why),
}

/// The user of a hold.
enum User {
    /// The seats are free.
    None,
    Of(Owner, Box<OwnerRecord>),
    /// The seat's user has no record that names the seat.
    Contradiction(Why),
}

impl User {
    /// The user of a hold, by its seats.
    fn of_hold(keys: &Keys, snapshot: &Snapshot, hold: &Owner) -> Result<Self, Halt> {
        for key in keys.seats_of(hold) {
            let Some(SeatRecord { user, .. }) = snapshot.record(&key)? else { continue };
            let own = keys.owner(&user);
            if !snapshot.knows(&own) {
                return Err(Halt::Read(vec![own, key]));
            }
            let record = snapshot.record::<OwnerRecord>(&own)?;
            let names_it =
                |record: &OwnerRecord| record.seat.as_ref().is_some_and(|seat| keys.seat(seat) == key);
            return match record.filter(names_it) {
                Some(record) => Ok(Self::Of(user, Box::new(record))),
                // They were read one after the other, and the user has left in between.
                None if snapshot.read_at(&own) != snapshot.read_at(&key) => Err(Halt::Read(vec![own, key])),
                None => Ok(Self::Contradiction(Why::NoRecord { owner: user })),
            };
        }
        Ok(Self::None)
    }
}

/// True if the owner's record, as it was read, was judged to be gone.
pub(super) fn is_gone(keys: &Keys, snapshot: &Snapshot, gone: &[&Gone], owner: &Owner) -> bool {
    let revision = snapshot.mod_revision(&keys.owner(owner));
    gone.iter().any(|gone| gone.owner == *owner && gone.revision == revision)
}

/// An owner that is in the way, with its record as it was read.
pub(super) fn holder(keys: &Keys, snapshot: &Snapshot, owner: Owner, record: Box<OwnerRecord>) -> Why {
    let revision = snapshot.mod_revision(&keys.owner(&owner));
    Why::Holder { owner, record, revision }
}

/// The keys of a hold: its record and its seats.
pub(super) fn keys_of(keys: &Keys, hold: &Owner) -> Vec<Bytes> {
    [keys.owner(hold)].into_iter().chain(keys.seats_of(hold)).collect()
}

impl Making {
    /// True if the hold stands and only its seat is taken.
    pub(super) fn joins(&self) -> bool {
        self.seating.as_ref().is_some_and(|seating| seating.stands)
    }

    /// True if it writes this hold.
    pub(super) fn writes_hold(&self, hold: &Owner) -> bool {
        !self.made.is_empty() && self.seating.as_ref().is_some_and(|seating| seating.seat.hold == *hold)
    }
}

impl Assignment {
    /// Finds whether the owner gets a seat. Keys that must be read first come as an error.
    pub(super) fn judge_seat(
        &self,
        keys: &Keys,
        snapshot: &Snapshot,
        gone: &[&Gone],
        mine: Option<&OwnerRecord>,
    ) -> Result<SeatJudged, Halt> {
        let Some(sticky) = &self.sticky else { return Ok(SeatJudged::Itself) };
        if mine.is_some_and(|record| record.seat.is_none()) || self.has_some_itself(keys, snapshot, gone)? {
            return Ok(SeatJudged::Itself);
        }
        let hold = snapshot.record::<OwnerRecord>(&keys.owner(&sticky.hold))?;
        let fits = match &hold {
            Some(record) => self.fits(keys, snapshot, (&sticky.hold, record))?,
            None => false,
        };
        let is_gone = |owner: &Owner| is_gone(keys, snapshot, gone, owner);
        let mut replaced = Vec::new();
        match User::of_hold(keys, snapshot, &sticky.hold)? {
            // ADDs have made such a hold, or a person.
            User::None if hold.is_some() && !fits && self.under == Under::Pause => {
                return Ok(SeatJudged::Itself);
            }
            User::None => {}
            User::Contradiction(why) => return Ok(SeatJudged::InTheWay(why)),
            User::Of(user, record) if is_gone(&user) => replaced.push((user, *record)),
            User::Of(user, record) if fits && self.is_of_same_interface(&user, &record) => {
                return Ok(SeatJudged::Already);
            }
            User::Of(user, record) => return Ok(SeatJudged::InTheWay(holder(keys, snapshot, user, record))),
        }
        let seat = Seat { hold: sticky.hold.clone(), n: Seat::FIRST };
        let seating = match hold {
            Some(record) if fits => Seating { seat, record, stands: true },
            Some(record) if !is_gone(&sticky.hold) => {
                let why = holder(keys, snapshot, sticky.hold.clone(), Box::new(record));
                return Ok(SeatJudged::InTheWay(why));
            }
            stale => {
                replaced.extend(stale.map(|record| (sticky.hold.clone(), record)));
                Seating { seat, record: self.hold_record(sticky), stands: false }
            }
        };
        Ok(SeatJudged::Seat(Box::new(seating), replaced))
    }

    /// The owner of an address that a hold has.
    pub(super) fn standing_of_hold(
        &self,
        keys: &Keys,
        snapshot: &Snapshot,
        gone: &[&Gone],
        making: &Making,
        (hold, record): (Owner, OwnerRecord),
    ) -> Result<Standing, Halt> {
        if making.replaces(&hold) {
            return Ok(Standing::Of(vec![(hold, record)]));
        }
        // Read one after the other, the hold could be as it was, and its user that of the hold in its place.
        let its = keys_of(keys, &hold);
        let at = snapshot.read_at(&keys.owner(&hold));
        if its.iter().any(|key| !snapshot.knows(key) || snapshot.read_at(key) != at) {
            return Err(Halt::Read(its));
        }
        let is_gone = |owner: &Owner| is_gone(keys, snapshot, gone, owner);
        let mut owners = Vec::new();
        match User::of_hold(keys, snapshot, &hold)? {
            User::None => {}
            User::Contradiction(why) => return Ok(Standing::InTheWay(why)),
            User::Of(user, used) if is_gone(&user) => owners.push((user, *used)),
            User::Of(user, used) if self.is_of_same_interface(&user, &used) => return Ok(Standing::Ours),
            User::Of(user, used) => return Ok(Standing::InTheWay(holder(keys, snapshot, user, used))),
        }
        if !is_gone(&hold) {
            return Ok(Standing::InTheWay(holder(keys, snapshot, hold, Box::new(record))));
        }
        owners.push((hold, record));
        Ok(Standing::Of(owners))
    }

    /// True if a container of this interface of the pod has one of the addresses itself.
    fn has_some_itself(&self, keys: &Keys, snapshot: &Snapshot, gone: &[&Gone]) -> Result<bool, Halt> {
        for (network, address) in self.reserved() {
            let key = keys.ip(network, address);
            let Some(Reservation { owner, .. }) = snapshot.record(&key)? else { continue };
            if !matches!(owner.kind(), OwnerKind::Container(_)) || owner.ifname != self.owner.ifname {
                continue;
            }
            let own = keys.owner(&owner);
            if !snapshot.knows(&own) {
                return Err(Halt::Read(vec![own, key]));
            }
            let record = snapshot.record::<OwnerRecord>(&own)?;
            let is_its = record.is_some_and(|record| self.is_of_same_interface(&owner, &record));
            if is_its && !is_gone(keys, snapshot, gone, &owner) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// True if the hold has exactly these addresses.
    fn fits(
        &self,
        keys: &Keys,
        snapshot: &Snapshot,
        (hold, record): (&Owner, &OwnerRecord),
    ) -> Result<bool, Halt> {
        if !record.addresses.iter().map(Held::in_network).eq(self.held.iter().map(Held::in_network)) {
            return Ok(false);
        }
        for (network, address) in self.reserved() {
            let reservation = snapshot.record::<Reservation>(&keys.ip(network, address))?;
            if reservation.is_none_or(|reservation| reservation.owner != *hold) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// True if it is an owner of this interface of the pod.
    pub(super) fn is_of_same_interface(&self, owner: &Owner, record: &OwnerRecord) -> bool {
        let is_same = is_same_pod((owner, &record.labels.pod), (&self.owner, &self.labels.pod));
        is_same && owner.ifname == self.owner.ifname
    }

    /// The hold that is made for the addresses.
    fn hold_record(&self, sticky: &Sticky) -> OwnerRecord {
        let note = HoldNote { note: String::new(), seconds: sticky.keep.unwrap_or_default().seconds() };
        let (scope, Labels { cni_network, .. }) = (self.scope.as_str().to_owned(), self.labels.clone());
        OwnerRecord::of_subject(self.held.clone(), scope, cni_network, note)
    }

    /// Writes the hold, if it does not stand, and the seat. The hold is in use from now on, so a sighting is deleted.
    pub(super) fn put_seating(&self, keys: &Keys, making: &Making, builder: &mut Builder<'_>) {
        let Some(Seating { seat, record, stands }) = &making.seating else { return };
        keys_of(keys, &seat.hold).into_iter().for_each(|key| builder.unchanged(key));
        if !stands {
            builder.put(keys.owner(&seat.hold), record.encode());
        }
        let taken = SeatRecord::new(self.owner.clone(), self.labels.clone(), self.created_at.clone());
        builder.put(keys.seat(seat), taken.encode());
        builder.delete(keys.orphan(&seat.hold));
    }
}

impl Assignments<'_> {
    /// Frees the part of an owner that holds add: the seat that it uses, or, of a hold, the sighting. No container uses
    /// a hold that is freed, or its user is freed too.
    pub(super) fn free_seating(
        &self,
        keys: &Keys,
        (owner, record): (&Owner, &OwnerRecord),
        all: &[Making],
        builder: &mut Builder<'_>,
    ) {
        let is_written = |hold: &Owner| all.iter().any(|making| making.writes_hold(hold));
        if record.seat.as_ref().is_some_and(|seat| !is_written(&seat.hold)) {
            free::free_seat(keys, owner, record, builder);
        }
        if owner.is_for_subject() && !is_written(owner) {
            keys.seats_of(owner).into_iter().for_each(|seat| builder.unchanged(seat));
            builder.delete(keys.orphan(owner));
        }
    }
}
