//! Reserving an address that is given, not chosen: one that is set aside, or one that is in use without a reservation.
//! Pure. The caller judges whether the owner may have it.

use crate::builder::{BitChanges, Builder};
use crate::keys::{Bytes, Keys};
use crate::pool::{Addr, NetworkName};
use crate::snapshot::Snapshot;

/// The keys to read before an address is reserved: its reservation, its cooling key and its page.
#[must_use]
pub fn reads(keys: &Keys, network: &NetworkName, address: Addr) -> [Bytes; 3] {
    [keys.ip(network, address), keys.cooling(network, address), keys.page(network, address.page())]
}

/// True if the cooling key was read no earlier than the reservation. A free that comes between two reads may let the
/// address cool.
#[must_use]
pub fn is_read(keys: &Keys, seen: &Snapshot, network: &NetworkName, address: Addr) -> bool {
    let read_at = seen.read_at(&keys.ip(network, address));
    seen.knows(&keys.ip(network, address)) && seen.knows_since(&keys.cooling(network, address), read_at)
}

/// Writes the address's reservation, if that is as it was read, and sets its bit. It is in use now, so it does not cool
/// any more.
pub fn reserve(
    keys: &Keys,
    (network, address): (&NetworkName, Addr),
    reservation: Vec<u8>,
    builder: &mut Builder<'_>,
    changes: &mut BitChanges,
) {
    let (key, cooling) = (keys.ip(network, address), keys.cooling(network, address));
    match builder.seen().entry(&key) {
        None => builder.absent(key.clone()),
        Some(_) => builder.unchanged(key.clone()),
    }
    builder.put(key, reservation);
    if builder.seen().entry(&cooling).is_some() {
        builder.delete(cooling);
    }
    changes.set(network, address);
}
