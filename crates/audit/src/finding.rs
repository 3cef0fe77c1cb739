//! The kinds of findings of an audit. Their names stay as they are.

use std::borrow::Cow;
use std::fmt;

use metes_core::keys::Bytes;

metes_core::named_enum! {
    /// The name of something that is not as it should be. Scripts rely on these names.
    pub enum Kind {
        /// A key under the prefix that metes does not write.
        ForeignKey = "foreign-key",
        /// A page that is not 512 bytes.
        UndecodablePage = "undecodable-page",
        /// A summary that is not 512 bytes.
        UndecodableSummary = "undecodable-summary",
        /// A reservation that does not decode.
        UndecodableReservation = "undecodable-reservation",
        /// An owner record that does not decode.
        UndecodableOwner = "undecodable-owner",
        /// A pod index entry that does not decode.
        UndecodablePodIndex = "undecodable-pod-index",
        /// A seat of a hold that does not decode.
        UndecodableSeat = "undecodable-seat",
        /// A tombstone that does not decode.
        UndecodableTombstone = "undecodable-tombstone",
        /// A cursor that is no address.
        UndecodableCursor = "undecodable-cursor",
        /// A meta that does not decode.
        UndecodableMeta = "undecodable-meta",
        /// The record of the cluster that goes by a name, if it does not decode.
        UndecodableCluster = "undecodable-cluster",
        /// A note that an address is cooling, one of the ranges that a configuration asks for, or one of a reconciler
        /// for its next pass, and does not decode.
        UndecodableNote = "undecodable-note",
        /// A pool does not decode: no address is given from it.
        UndecodablePool = "undecodable-pool",
        /// The index by which `auto` chooses pools contradicts the pools.
        PoolsMismatch = "pools-mismatch",
        /// A reservation whose bit is not set: a scan would try to hand it out.
        ReservationWithoutBit = "reservation-without-bit",
        /// A reservation whose owner record is missing or does not list it.
        ReservationWithoutOwner = "reservation-without-owner",
        /// An owner's address whose reservation is missing or names another owner.
        OwnerWithoutReservation = "owner-without-reservation",
        /// An owner with a pod UID that the pod index does not know.
        OwnerWithoutPodIndex = "owner-without-pod-index",
        /// A pod index entry whose owner does not exist.
        PodIndexWithoutOwner = "pod-index-without-owner",
        /// A pod index entry whose owner is another pod's, or has no address in that network.
        PodIndexMismatch = "pod-index-mismatch",
        /// An owner's record that names a seat which is free, or another owner's.
        UserWithoutSeat = "user-without-seat",
        /// A seat whose user has no owner record, or one that does not name the seat.
        SeatWithoutUser = "seat-without-user",
        /// A seat of a hold that does not exist.
        SeatWithoutHold = "seat-without-hold",
        /// The record of a hold that is not for its address alone, or does not say that it is a hold.
        HoldMismatch = "hold-mismatch",
        /// Two owner records that list one address of one network.
        AddressListedTwice = "address-listed-twice",
        /// A reservation that would vanish with a lease.
        ReservationOnLease = "reservation-on-lease",
        /// Another record that would vanish with a lease.
        RecordOnLease = "record-on-lease",
        /// A tombstone, a ticket in a queue or a reconciler's note that no lease will ever remove.
        StaleWithoutLease = "stale-without-lease",
        /// A summary that calls a page full which is not: its free addresses are never found.
        SummarySaysFull = "summary-says-full",
        /// Allocations without the meta that all writers agree on.
        MetaMissing = "meta-missing",
        /// The store may have gone back in time.
        Suspect = "suspect",
        /// Running pods use an address that the store lacks: it may have gone back in time.
        AddressLacking = "address-lacking",
        /// Written by, or reserved for, a newer program.
        SchemaNewer = "schema-newer",
        /// A record that a newer program wrote.
        RecordNewer = "record-newer",
        /// An etcd that metes does not support.
        EtcdTooOld = "etcd-too-old",
        /// Harmless: the time of a hold that does not exist; it goes with its lease.
        TimeWithoutHold = "time-without-hold",
        /// Harmless: an address that is cooling although it is reserved, or whose bit is not set, so that it may be
        /// given too early; it ends with its lease.
        CoolingMismatch = "cooling-mismatch",
        /// Harmless: set bits without a reservation.
        StrayBit = "stray-bit",
        /// Harmless: a full page that its summary does not call full; it only costs a read.
        SummaryMissesFull = "summary-misses-full",
    }
}

/// Something that is not as it should be, and where.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The key, or another name of the place.
    pub key: Bytes,
    /// Its name.
    pub kind: Kind,
    /// The fault, in one sentence that goes on after the key.
    pub what: String,
}

impl Finding {
    /// A finding about a key.
    #[must_use]
    pub fn new(kind: Kind, key: &[u8], what: impl Into<String>) -> Self {
        Self { key: key.to_vec(), kind, what: what.into() }
    }

    /// The key as people read it. Not every foreign key is text.
    #[must_use]
    pub fn key_text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.key)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.kind, self.key_text(), self.what)
    }
}
