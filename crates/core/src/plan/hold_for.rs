//! Addresses that a person keeps for a pod's name, as pure changes: a hold that is made beforehand or for a container
//! that has the addresses already, and its hand-over to the container that uses it.
//!
//! As for an address that is set aside, the commits have no fence: each compares the record of the hold, or that of the
//! container, and writes it.

use super::change::{Change, Commit, Step};
use super::given;
use super::hold::HoldRefused;
use super::refused::{Holder, Seated};
use crate::builder::{self, BitChanges, Builder};
use crate::fence::Fence;
use crate::keys::{Bytes, Keys, NetworkAddress, Scope};
use crate::line::Line;
use crate::meta;
use crate::pool::{Held, HoldNote, Meta, Owner, OwnerRecord, Record, Reservation, Seat, SeatRecord, Subject};
use crate::snapshot::{BadRecord, Snapshot};

/// The request of a person: these addresses stay with this name.
#[derive(Debug, Clone)]
pub struct PodHoldRequest {
    /// The owner that the addresses are to have.
    pub hold: Owner,
    /// The name that it is for, as its owner says it.
    pub subject: Subject,
    /// The addresses, in result order.
    pub addresses: Vec<NetworkAddress>,
    /// Why, and for how long after the last use.
    pub note: HoldNote,
    /// When, RFC 3339 in UTC; for people only.
    pub created_at: String,
}

/// The result of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodHoldMade {
    /// The hold is there now, and no container uses it.
    New,
    /// The container that had the addresses uses the hold now.
    OfContainer,
    /// The hold was there. It has this note and time now.
    Again,
    /// The hold was there like this. Nothing was written.
    Stands,
}

/// Why there is no such hold. Nothing is written then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PodHoldRefused {
    /// As for an address that is set aside.
    #[error(transparent)]
    Address(#[from] HoldRefused),
    /// The name has another hold.
    #[error("{} has {}; `metes hold --remove` ends it", .0, Held::words(.1))]
    Other(Owner, Vec<Held>),
    /// The container of this pod has other addresses besides, or in another order.
    #[error("{} holds {}: name all of them, in this order", .0, Held::words(.1))]
    Part(Owner, Vec<Held>),
    /// The container uses another hold.
    #[error("{} uses {}", .0.0, .0.1)]
    Uses(Box<(Owner, Owner)>),
}

impl From<BadRecord> for PodHoldRefused {
    fn from(bad: BadRecord) -> Self {
        Self::Address(bad.into())
    }
}

/// A request as a change of held addresses.
pub struct PodHolding<'a> {
    request: &'a PodHoldRequest,
    keys: &'a Keys,
}

impl<'a> PodHolding<'a> {
    /// The change that `request` asks for.
    #[must_use]
    pub fn new(request: &'a PodHoldRequest, keys: &'a Keys) -> Self {
        Self { request, keys }
    }

    fn seat(&self) -> Seat {
        Seat { hold: self.request.hold.clone(), n: Seat::FIRST }
    }

    /// The first of the reservations that were read which names another owner, with its key.
    fn of_another(&self, seen: &Snapshot) -> Result<Option<(Reservation, Bytes)>, BadRecord> {
        for (network, address) in &self.request.addresses {
            let key = self.keys.ip(network, *address);
            let reservation = seen.record::<Reservation>(&key)?;
            if let Some(other) = reservation.filter(|found| found.owner != self.request.hold) {
                return Ok(Some((other, key)));
            }
        }
        Ok(None)
    }

    /// The record that a hold of these addresses has.
    fn record(&self, held: Vec<Held>, scope: String, cni_network: String) -> OwnerRecord {
        OwnerRecord::of_subject(held, scope, cni_network, self.request.note.clone())
    }

    fn is_asked(&self, held: &[Held]) -> bool {
        let (mut held, mut asked) = (held.iter().map(Held::in_network), self.request.addresses.iter());
        let same = held
            .by_ref()
            .zip(asked.by_ref())
            .all(|(held, (network, address))| held.is_some_and(|held| held == (network, *address)));
        same && held.next().is_none() && asked.next().is_none()
    }

    /// The hold is there: only its note and its time may change.
    fn again(&self, record: &OwnerRecord, seen: &Snapshot) -> Result<Step<PodHoldMade>, PodHoldRefused> {
        if !self.is_asked(&record.addresses) {
            let hold = self.request.hold.clone();
            return Err(PodHoldRefused::Other(hold, record.addresses.clone()));
        }
        if record.hold.as_ref() == Some(&self.request.note) {
            return Ok(Step::Done(PodHoldMade::Stands));
        }
        let mut builder = Builder::new("hold", seen);
        builder.unchanged(self.proof());
        let (scope, cni_network) = (record.scope.clone(), record.labels.cni_network.clone());
        let record = self.record(record.addresses.clone(), scope, cni_network);
        builder.put(self.proof(), record.encode());
        self.put_reservations(&record, &mut builder);
        self.commit(builder, PodHoldMade::Again)
    }

    /// A container has an address. If it is this pod's and has exactly these, it uses the hold from now on.
    fn of_container(
        &self,
        (other, key): (Reservation, Bytes),
        seen: &Snapshot,
    ) -> Result<Step<PodHoldMade>, PodHoldRefused> {
        let holder = match Holder::of(other, key, self.keys, seen) {
            Ok(holder) => holder,
            Err(unread) => return Ok(Step::read(unread)),
        };
        let Subject { namespace, name } = &self.request.subject;
        let (owner, pod) = (holder.owner.clone(), &holder.pod);
        let is_its = (&owner.cluster, &owner.ifname)
            == (&self.request.hold.cluster, &self.request.hold.ifname)
            && (&pod.namespace, &pod.name) == (namespace, name)
            && pod.uid.is_some();
        if !is_its {
            return Err(HoldRefused::Held(Box::new(holder)).into());
        }
        let own = self.keys.owner(&owner);
        let record = seen.record::<OwnerRecord>(&own)?.ok_or(HoldRefused::Contradiction)?;
        if let Some(seat) = record.seat {
            return Err(PodHoldRefused::Uses(Box::new((owner, seat.hold))));
        }
        if !self.is_asked(&record.addresses) {
            return Err(PodHoldRefused::Part(owner, record.addresses));
        }
        let mut builder = Builder::new("hold", seen);
        builder.unchanged(own.clone());
        builder.absent(self.proof());
        let hold =
            self.record(record.addresses.clone(), record.scope.clone(), record.labels.cni_network.clone());
        builder.put(self.proof(), hold.encode());
        self.put_reservations(&hold, &mut builder);
        let labels = record.labels.clone();
        builder.put(own, record.in_seat(Some(self.seat())).encode());
        let seat = SeatRecord::new(owner, labels, self.request.created_at.clone());
        builder.put(self.keys.seat(&self.seat()), seat.encode());
        self.commit(builder, PodHoldMade::OfContainer)
    }

    fn new_hold(&self, seen: &Snapshot) -> Result<Step<PodHoldMade>, PodHoldRefused> {
        let PodHoldRequest { addresses, created_at, .. } = self.request;
        let held = |(network, address): &NetworkAddress| Held::new(address.ip(), Some(network.clone()));
        let record = self.record(addresses.iter().map(held).collect(), "-".to_owned(), String::new());
        let mut builder = Builder::new("hold", seen);
        builder.same_value(self.keys.meta());
        builder.absent(self.proof());
        builder.put(self.proof(), record.encode());
        let mut changes = BitChanges::default();
        let reservation = Reservation::of_record(&self.request.hold, &record, created_at.clone()).encode();
        for (network, address) in addresses {
            given::reserve(self.keys, (network, *address), reservation.clone(), &mut builder, &mut changes);
        }
        changes.plan(self.keys, &mut builder);
        self.commit(builder, PodHoldMade::New)
    }

    fn put_reservations(&self, record: &OwnerRecord, builder: &mut Builder<'_>) {
        let created_at = self.request.created_at.clone();
        let reservation = Reservation::of_record(&self.request.hold, record, created_at).encode();
        for (network, address) in &self.request.addresses {
            builder.put(self.keys.ip(network, *address), reservation.clone());
        }
    }

    fn commit(&self, builder: Builder<'_>, made: PodHoldMade) -> Result<Step<PodHoldMade>, PodHoldRefused> {
        match builder.planned() {
            Ok(planned) => Ok(Step::Commit(Commit::new(planned, Some(made), self.proof()))),
            Err(missing) => Ok(Step::read(missing)),
        }
    }
}

impl Change for PodHolding<'_> {
    type Done = PodHoldMade;
    type Refused = PodHoldRefused;

    fn owner(&self) -> &Owner {
        &self.request.hold
    }

    /// It waits in no queue, as for an address that is set aside.
    fn scope(&self, _seen: &Snapshot) -> Option<Scope> {
        None
    }

    fn reads(&self, _seen: &Snapshot) -> Vec<Bytes> {
        let mut reads = vec![self.keys.meta(), self.proof(), self.keys.seat(&self.seat())];
        for (network, address) in &self.request.addresses {
            reads.extend(given::reads(self.keys, network, *address));
        }
        reads
    }

    fn proof(&self) -> Bytes {
        self.keys.owner(&self.request.hold)
    }

    fn plan(
        &self,
        seen: &Snapshot,
        _fence: &Fence,
        _line: &Line,
    ) -> Result<Step<PodHoldMade>, PodHoldRefused> {
        let reads = self.reads(seen);
        let mut addresses = self.request.addresses.iter();
        let are_read = reads.iter().all(|key| seen.knows(key));
        if !are_read
            || !addresses.all(|(network, address)| given::is_read(self.keys, seen, network, *address))
        {
            return Ok(Step::read(reads));
        }
        let meta = seen.record::<Meta>(&self.keys.meta())?;
        meta::judge(meta.as_ref()).map_err(HoldRefused::OutOfService)?;
        for (network, address) in &self.request.addresses {
            let page = self.keys.page(network, address.page());
            if builder::bits(seen, &page).is_none() {
                return Err(BadRecord::page(&page).into());
            }
        }
        if let Some(record) = seen.record::<OwnerRecord>(&self.proof())? {
            return self.again(&record, seen);
        }
        match self.of_another(seen)? {
            Some(other) => self.of_container(other, seen),
            None => self.new_hold(seen),
        }
    }
}

/// Why a hold is not ended, nor handed over. Nothing is written then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HandOverRefused {
    /// Two containers use it.
    #[error("two containers use it: {} and {}", .0.user, .1.user)]
    Twice(Box<Seated>, Box<Seated>),
    /// A record does not decode.
    #[error("stored state cannot be decoded: {0}; `metes check` says more")]
    Bad(#[from] BadRecord),
    /// A seat and the record of its user contradict each other.
    #[error("stored state contradicts itself: `metes check` says more")]
    Contradiction,
}

/// The end of a hand-over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HandedOver {
    /// This container has the addresses itself now.
    To(Box<Owner>),
    /// No container uses the hold.
    Unused,
    /// There is no such hold.
    Nothing,
}

/// The end of a hold whose addresses go to the container that uses it.
pub struct HandOver<'a> {
    hold: &'a Owner,
    keys: &'a Keys,
    /// When, RFC 3339 in UTC; for people only.
    now: &'a str,
}

impl<'a> HandOver<'a> {
    /// The hand-over of this hold, `now`.
    #[must_use]
    pub fn new(hold: &'a Owner, keys: &'a Keys, now: &'a str) -> Self {
        Self { hold, keys, now }
    }
}

impl Change for HandOver<'_> {
    type Done = HandedOver;
    type Refused = HandOverRefused;

    fn owner(&self) -> &Owner {
        self.hold
    }

    fn scope(&self, _seen: &Snapshot) -> Option<Scope> {
        None
    }

    fn reads(&self, _seen: &Snapshot) -> Vec<Bytes> {
        [self.proof()].into_iter().chain(self.keys.seats_of(self.hold)).collect()
    }

    fn proof(&self) -> Bytes {
        self.keys.owner(self.hold)
    }

    fn plan(
        &self,
        seen: &Snapshot,
        _fence: &Fence,
        _line: &Line,
    ) -> Result<Step<HandedOver>, HandOverRefused> {
        let reads = self.reads(seen);
        if !reads.iter().all(|key| seen.knows(key)) {
            return Ok(Step::read(reads));
        }
        let Some(hold) = seen.record::<OwnerRecord>(&self.proof())? else {
            return Ok(Step::Done(HandedOver::Nothing));
        };
        let mut seats = Vec::new();
        for key in self.keys.seats_of(self.hold) {
            let seat = seen.record::<SeatRecord>(&key)?;
            seats.extend(seat.map(|seat| (key, seat)));
        }
        let (seat, SeatRecord { user, .. }) = match &seats[..] {
            [] => return Ok(Step::Done(HandedOver::Unused)),
            [one] => one,
            [(_, one), (_, other), ..] => {
                let seated = |SeatRecord { user, labels, taken_at, .. }: &SeatRecord| {
                    let (hold, pod) = (self.hold.clone(), labels.pod.clone());
                    Box::new(Seated { hold, user: user.clone(), pod, taken_at: taken_at.clone() })
                };
                return Err(HandOverRefused::Twice(seated(one), seated(other)));
            }
        };
        let own = self.keys.owner(user);
        if !seen.knows_since(&own, seen.mod_revision(seat)) {
            return Ok(Step::read(vec![own, seat.clone()]));
        }
        let Some(record) = seen.record::<OwnerRecord>(&own)? else {
            return Err(HandOverRefused::Contradiction);
        };
        let named = record.seat.as_ref().map(|named| self.keys.seat(named));
        if named.as_ref() != Some(seat) {
            return Err(HandOverRefused::Contradiction);
        }
        let mut builder = Builder::new("hand-over", seen);
        builder.unchanged(own.clone());
        for other in self.keys.seats_of(self.hold).into_iter().filter(|other| other != seat) {
            builder.absent(other);
        }
        let record = record.in_seat(None);
        for (network, address) in hold.reserved() {
            let reservation = Reservation::of_record(user, &record, self.now.to_owned());
            builder.put(self.keys.ip(network, address), reservation.encode());
        }
        builder.put(own, record.encode());
        for key in [self.proof(), seat.clone(), self.keys.orphan(self.hold)] {
            builder.delete(key);
        }
        match builder.planned() {
            Ok(planned) => {
                let done = HandedOver::To(Box::new(user.clone()));
                Ok(Step::Commit(Commit::new(planned, Some(done), self.proof())))
            }
            Err(missing) => Ok(Step::read(missing)),
        }
    }
}
