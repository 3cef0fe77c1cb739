//! What an audit may find, by names that stay what they are.

use std::fmt;

/// The name of something that is not as it should be. Scripts rely on these names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A key under the prefix that metes does not write.
    ForeignKey,
    /// A page that is not 512 bytes.
    UndecodablePage,
    /// A summary that is not 512 bytes.
    UndecodableSummary,
    /// A reservation that does not decode.
    UndecodableReservation,
    /// An owner record that does not decode.
    UndecodableOwner,
    /// A pod index entry that does not decode.
    UndecodablePodIndex,
    /// A tombstone that does not decode.
    UndecodableTombstone,
    /// A cursor that is no address.
    UndecodableCursor,
    /// A meta that does not decode.
    UndecodableMeta,
    /// What says which cluster goes by a name, and does not decode.
    UndecodableCluster,
    /// What a reconciler notes for its next pass, and does not decode.
    UndecodableNote,
    /// A reservation whose bit is not set: a scan would try to hand it out.
    ReservationWithoutBit,
    /// A reservation whose owner record is missing or does not list it.
    ReservationWithoutOwner,
    /// An owner's address whose reservation is missing or names another owner.
    OwnerWithoutReservation,
    /// An owner with a pod UID that the pod index does not know.
    OwnerWithoutPodIndex,
    /// A pod index entry whose owner does not exist.
    PodIndexWithoutOwner,
    /// A pod index entry whose owner is another pod's, or has no address in that network.
    PodIndexMismatch,
    /// Two owner records that list one address of one network.
    AddressListedTwice,
    /// A reservation that would vanish with a lease.
    ReservationOnLease,
    /// Another record that would vanish with a lease.
    RecordOnLease,
    /// A tombstone, a ticket in a queue or a reconciler's note that no lease will ever remove.
    StaleWithoutLease,
    /// A summary that calls a page full which is not: its free addresses are never found.
    SummarySaysFull,
    /// Allocations without the meta that all writers agree on.
    MetaMissing,
    /// The store may have gone back in time.
    Suspect,
    /// Written by, or reserved for, a newer program.
    SchemaNewer,
    /// An etcd that metes does not support.
    EtcdTooOld,
    /// Harmless: set bits without a reservation.
    StrayBit,
    /// Harmless: a full page that its summary does not call full; it only costs a read.
    SummaryMissesFull,
}

impl Kind {
    /// The name, in words joined by hyphens.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::ForeignKey => "foreign-key",
            Kind::UndecodablePage => "undecodable-page",
            Kind::UndecodableSummary => "undecodable-summary",
            Kind::UndecodableReservation => "undecodable-reservation",
            Kind::UndecodableOwner => "undecodable-owner",
            Kind::UndecodablePodIndex => "undecodable-pod-index",
            Kind::UndecodableTombstone => "undecodable-tombstone",
            Kind::UndecodableCursor => "undecodable-cursor",
            Kind::UndecodableMeta => "undecodable-meta",
            Kind::UndecodableCluster => "undecodable-cluster",
            Kind::UndecodableNote => "undecodable-note",
            Kind::ReservationWithoutBit => "reservation-without-bit",
            Kind::ReservationWithoutOwner => "reservation-without-owner",
            Kind::OwnerWithoutReservation => "owner-without-reservation",
            Kind::OwnerWithoutPodIndex => "owner-without-pod-index",
            Kind::PodIndexWithoutOwner => "pod-index-without-owner",
            Kind::PodIndexMismatch => "pod-index-mismatch",
            Kind::AddressListedTwice => "address-listed-twice",
            Kind::ReservationOnLease => "reservation-on-lease",
            Kind::RecordOnLease => "record-on-lease",
            Kind::StaleWithoutLease => "stale-without-lease",
            Kind::SummarySaysFull => "summary-says-full",
            Kind::MetaMissing => "meta-missing",
            Kind::Suspect => "suspect",
            Kind::SchemaNewer => "schema-newer",
            Kind::EtcdTooOld => "etcd-too-old",
            Kind::StrayBit => "stray-bit",
            Kind::SummaryMissesFull => "summary-misses-full",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Something that is not as it should be, and where.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The key, or what else it is about.
    pub key: String,
    /// Its name.
    pub kind: Kind,
    /// What is wrong, in one sentence that goes on after the key.
    pub what: String,
}

impl Finding {
    /// A finding about a key.
    #[must_use]
    pub fn new(kind: Kind, key: &[u8], what: impl Into<String>) -> Self {
        Self { key: String::from_utf8_lossy(key).into_owned(), kind, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.kind, self.key, self.what)
    }
}
