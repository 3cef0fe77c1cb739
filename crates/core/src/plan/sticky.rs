//! Addresses that outlive a pod: a hold for the pod's name owns them, and the container that uses them has a seat.
//! Pure.
//!
//! ```text
//! first pod of the name   chooses as ever; makes the hold, its reservations and the seat     the hold does not exist
//! next pod                takes the seat: no page, no queue                 the hold is as read, the seat is free
//! DEL                     gives the seat back, with its own record             its own record is as read
//! end of the hold         frees the addresses                          the hold is as read, no seat is taken
//! ```
//!
//! The last column is what each transaction compares for it. A seat and its user's record name each other: one
//! transaction writes both, and one deletes both. So a transaction that compares the one relies on the other.

use super::ask::{Ask, Sticky};
use super::pools::PoolRefused;
use super::refused::{Halt, Refused, Seated};
use super::resolved::Resolved;
use super::source::{Source, SourceSet};
use crate::builder::Builder;
use crate::keys::{Bytes, Keys, NetworkAddress};
use crate::pool::{Held, HoldNote, Keep, OwnerRecord, PoolName, Record, Reservation, Seat, SeatRecord};
use crate::snapshot::Snapshot;

/// The records of an owner that gets new addresses.
pub(crate) struct NewRecords {
    pub(crate) record: OwnerRecord,
    /// The hold that has the addresses; none: the owner itself has them.
    hold: Option<NewHold>,
}

impl NewRecords {
    /// The records of an owner that gets these addresses, one from each set.
    pub(crate) fn of(asked: &Resolved<'_>, taken: &[NetworkAddress]) -> Result<Self, PoolRefused> {
        let held = asked.held(taken);
        let hold = NewHold::of(asked, &held)?;
        let seat = hold.as_ref().map(NewHold::seat);
        Ok(Self { record: asked.record(held).in_seat(seat), hold })
    }

    /// Reserves the addresses, if they are free; for the hold, if there is one.
    pub(crate) fn reserve<'p>(
        &self,
        picks: impl Iterator<Item = &'p NetworkAddress>,
        keys: &Keys,
        ask: &Ask,
        builder: &mut Builder<'_>,
    ) {
        let reservation = self.hold.as_ref().map_or_else(|| ask.reservation(), |hold| hold.reservation(ask));
        for (network, address) in picks {
            let key = keys.ip(network, *address);
            builder.absent(key.clone());
            builder.put(key, reservation.clone());
        }
        if let Some(hold) = &self.hold {
            hold.put(keys, ask, builder);
        }
    }
}

/// A hold that an ADD makes together with its first seat.
struct NewHold {
    seat: Seat,
    record: OwnerRecord,
}

impl NewHold {
    /// The hold that an ADD makes for these addresses; none if they end with the container.
    fn of(asked: &Resolved<'_>, held: &[Held]) -> Result<Option<Self>, PoolRefused> {
        let Some(sticky) = &asked.ask.sticky else { return Ok(None) };
        let hold = HoldNote { note: String::new(), seconds: keep(asked, sticky)?.seconds() };
        let (scope, cni_network) = (asked.scope().as_str().to_owned(), asked.ask.labels.cni_network.clone());
        let record = OwnerRecord::of_subject(held.to_vec(), scope, cni_network, hold);
        Ok(Some(Self { seat: Seat { hold: sticky.hold.clone(), n: Seat::FIRST }, record }))
    }

    /// The seat that the ADD takes.
    fn seat(&self) -> Seat {
        self.seat.clone()
    }

    /// The reservation of one of its addresses, as it is stored.
    fn reservation(&self, ask: &Ask) -> Vec<u8> {
        Reservation::of_record(&self.seat.hold, &self.record, ask.stamp.created_at.clone()).encode()
    }

    /// Writes the hold, if there is none, and the seat.
    fn put(&self, keys: &Keys, ask: &Ask, builder: &mut Builder<'_>) {
        let hold = keys.owner(&self.seat.hold);
        builder.absent(hold.clone());
        builder.put(hold, self.record.encode());
        put_seat(keys, &self.seat, ask, builder);
    }
}

/// For how long a hold stays after its last use: as the configuration says it, or the longest time of its pools.
fn keep(asked: &Resolved<'_>, sticky: &Sticky) -> Result<Keep, PoolRefused> {
    let of_source = |SourceSet { source, .. }: &SourceSet| match source {
        Source::Config(_) => Ok(sticky.keep.unwrap_or_default()),
        Source::Pool(pool) => {
            let keep = pool.definition.keep;
            keep.ok_or_else(|| PoolRefused::NotSticky(pool.definition.pool.clone()))
        }
    };
    let longest = asked.sets().iter().map(of_source).reduce(|one, other| Ok(one?.max(other?)));
    longest.unwrap_or_else(|| Ok(sticky.keep.unwrap_or_default()))
}

/// Refuses an ADD whose hold none of its pools may make.
pub(crate) fn must_be_sticky(asked: &Resolved<'_>) -> Result<(), PoolRefused> {
    asked.ask.sticky.as_ref().map_or(Ok(()), |sticky| keep(asked, sticky).map(|_| ()))
}

/// The hold of an ADD, which exists and has a free seat.
pub(crate) struct Vacant {
    pub(crate) seat: Seat,
    pub(crate) record: OwnerRecord,
    /// The pools by which the ADD may use it.
    pools: Vec<PoolName>,
}

impl Vacant {
    /// The hold of an ADD by the keys that were read; none if it does not exist, or if the ADD asks for none.
    pub(crate) fn of(asked: &Resolved<'_>, keys: &Keys, seen: &Snapshot) -> Result<Option<Self>, Halt> {
        let Some(Sticky { hold, .. }) = &asked.ask.sticky else { return Ok(None) };
        let seat = Seat { hold: hold.clone(), n: Seat::FIRST };
        let taken = seen.record::<SeatRecord>(&keys.seat(&seat))?;
        let Some(record) = seen.record::<OwnerRecord>(&keys.owner(hold))? else {
            return match taken {
                None => Ok(None),
                Some(_) => Err(without_hold(&seat, keys, seen)),
            };
        };
        let pools = match asked.of_hold(&record.addresses) {
            Ok(pools) => pools,
            Err(Some(why)) => return Err(Halt::Refuse(Refused::Pool(why))),
            Err(None) => {
                let unfit = Box::new((hold.clone(), record.addresses, asked.ask.wanted.to_string()));
                return Err(Halt::Refuse(Refused::HoldUnfit(unfit)));
            }
        };
        match taken {
            None => Ok(Some(Self { seat, record, pools })),
            Some(SeatRecord { user, labels, taken_at, .. }) => {
                let seated = Seated { hold: hold.clone(), user, pod: labels.pod, taken_at };
                Err(Halt::Refuse(Refused::Seated(Box::new(seated))))
            }
        }
    }

    /// Takes the seat, if it is still free and the hold as it was read. The hold is in use from now on, so the sighting
    /// of an unused one is deleted.
    pub(crate) fn take(&self, keys: &Keys, asked: &Resolved<'_>, builder: &mut Builder<'_>) {
        let Self { seat, pools, .. } = self;
        builder.unchanged(keys.owner(&seat.hold));
        builder.absent(keys.seat(seat));
        asked.rely_on_pools_of_hold(pools, keys, builder);
        put_seat(keys, seat, asked.ask, builder);
        builder.delete(keys.orphan(&seat.hold));
    }
}

/// A seat without its hold. One that was read before the other may only look like that.
fn without_hold(seat: &Seat, keys: &Keys, seen: &Snapshot) -> Halt {
    let [hold, seat] = [keys.owner(&seat.hold), keys.seat(seat)];
    match seen.read_at(&hold) == seen.read_at(&seat) {
        true => {
            let seat = String::from_utf8_lossy(&seat);
            Halt::Refuse(Refused::Contradiction(format!("{seat} is taken, and its hold is missing")))
        }
        false => Halt::read(vec![hold, seat]),
    }
}

/// Writes the seat of an ADD.
pub(crate) fn put_seat(keys: &Keys, seat: &Seat, ask: &Ask, builder: &mut Builder<'_>) {
    let (labels, taken_at) = (ask.labels.clone(), ask.stamp.created_at.clone());
    builder.put(keys.seat(seat), SeatRecord::new(ask.owner.clone(), labels, taken_at).encode());
}

/// The key of the seat that a record names.
pub(crate) fn seat_key(keys: &Keys, record: &OwnerRecord) -> Option<Bytes> {
    record.seat.as_ref().map(|seat| keys.seat(seat))
}
