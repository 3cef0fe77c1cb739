//! Why an ADD ends without an address, and why a decision cannot go on. Pure.

use std::fmt;

use super::pools::PoolRefused;
use crate::keys::{Bytes, Keys, NetworkAddress};
use crate::meta::OutOfService;
use crate::pool::choose::Refusal;
use crate::pool::{Addr, Held, NetworkName, Owner, OwnerRecord, Pod, Reservation};
use crate::snapshot::{BadRecord, Snapshot};
use crate::txn::Op;

/// Why an ADD ends without an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// A DEL of this owner began after this ADD.
    Deleted,
    /// A younger owner of the same interface of the same pod exists.
    Outlived(Owner),
    /// Another machine holds addresses under the names of this owner.
    OtherMachine(Box<OtherMachine>),
    /// The owner holds addresses that are not those of the configuration, which the words name.
    Unfit(Vec<Held>, String),
    /// Its pools give no address.
    Pool(PoolRefused),
    /// A container uses the hold of its pod's name.
    Seated(Box<Seated>),
    /// The hold of its pod's name has addresses that are not those of the configuration, which the words name.
    HoldUnfit(Box<(Owner, Vec<Held>, String)>),
    /// A requested address cannot be had.
    Address(Addr, NetworkName, Refusal),
    /// A requested address is held.
    Held(Addr, NetworkName, Box<Holder>),
    /// A requested address is set aside, with this note.
    SetAside(Addr, NetworkName, String),
    /// A requested address was freed a short while ago.
    Cooling(Addr, NetworkName),
    /// The store hands out nothing.
    OutOfService(OutOfService),
    /// A record does not decode.
    Bad(BadRecord),
    /// Records contradict each other.
    Contradiction(String),
}

impl Refused {
    /// A requested address cannot be had. If it is taken, what was read of it may say by whom.
    ///
    /// # Errors
    /// The keys that must be read first to know the holder.
    pub(crate) fn address(
        (network, address): NetworkAddress,
        why: Refusal,
        keys: &Keys,
        seen: &Snapshot,
    ) -> Result<Self, Vec<Bytes>> {
        let key = keys.ip(&network, address);
        let held = seen.record::<Reservation>(&key).ok().flatten();
        Ok(match held.filter(|_| why == Refusal::Taken) {
            Some(Reservation { hold: Some(hold), .. }) => Refused::SetAside(address, network, hold.note),
            Some(held) => Refused::Held(address, network, Box::new(Holder::of(held, key, keys, seen)?)),
            None => Refused::Address(address, network, why),
        })
    }
}

/// The holder of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The owner.
    pub owner: Owner,
    /// Its pod, as far as its record says it.
    pub pod: Pod,
    /// Since when it has the address, RFC 3339 in UTC.
    pub since: String,
}

impl Holder {
    /// The holder by a reservation, which is under this key. Its owner's record names the pod.
    ///
    /// # Errors
    /// Both keys, if they were not read at the same time: the address may have changed hands in between.
    pub(crate) fn of(
        reservation: Reservation,
        key: Bytes,
        keys: &Keys,
        seen: &Snapshot,
    ) -> Result<Self, Vec<Bytes>> {
        let Reservation { owner, created_at: since, .. } = reservation;
        let own = keys.owner(&owner);
        if !seen.knows(&own) || seen.read_at(&own) != seen.read_at(&key) {
            return Err(vec![own, key]);
        }
        let record = seen.record::<OwnerRecord>(&own).ok().flatten();
        Ok(Self { owner, pod: record.map(|record| record.labels.pod).unwrap_or_default(), since })
    }
}

/// The use of a hold by a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seated {
    /// The hold.
    pub hold: Owner,
    /// The container.
    pub user: Owner,
    /// Its pod.
    pub pod: Pod,
    /// Since when, RFC 3339 in UTC.
    pub taken_at: String,
}

/// A machine that holds addresses under an owner's names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherMachine {
    /// The owner.
    pub owner: Owner,
    /// The machine that holds them.
    pub theirs: String,
    /// The machine of this run.
    pub ours: String,
}

impl fmt::Display for OtherMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { owner, theirs, ours } = self;
        write!(f, "machine {theirs} holds addresses as {owner}, and this is machine {ours}")
    }
}

/// Why a decision cannot go on: it must read something, or it refuses.
pub(crate) enum Halt {
    Read(Vec<Op>),
    Refuse(Refused),
}

impl Halt {
    pub(crate) fn read(keys: Vec<Bytes>) -> Self {
        Halt::Read(keys.into_iter().map(Op::Get).collect())
    }
}

impl From<BadRecord> for Halt {
    fn from(bad: BadRecord) -> Self {
        Halt::Refuse(Refused::Bad(bad))
    }
}

/// Asks for the keys that were not read yet.
pub(crate) fn require(snapshot: &Snapshot, keys: Vec<Bytes>) -> Result<(), Halt> {
    let missing: Vec<Bytes> = keys.into_iter().filter(|key| !snapshot.knows(key)).collect();
    if missing.is_empty() { Ok(()) } else { Err(Halt::read(missing)) }
}
