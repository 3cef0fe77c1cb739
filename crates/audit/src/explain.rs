//! The meaning of each kind of finding, and its remedy; for people. Pure.

use super::Kind;

/// The meaning of a kind of finding for a cluster, and its remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Explanation {
    /// The fault, and its consequences.
    pub meaning: &'static str,
    /// The remedy.
    pub remedy: &'static str,
}

const REPAIR: &str = "Run `metes check --repair`.";
const NOTHING: &str = "Nothing has to be done.";

impl Kind {
    /// The meaning, and the remedy.
    #[must_use]
    pub fn explain(self) -> Explanation {
        let (meaning, remedy) = match self {
            Kind::ForeignKey => (
                "Another program writes below the prefix of metes, or a newer metes does. Nothing relies on the key.",
                "Give the other program a prefix of its own, then run `metes check --mend foreign-key`.",
            ),
            Kind::UndecodablePage => (
                "The bitmap of a page, which says which addresses are taken, is damaged. ADDs give none \
                 of its addresses.",
                "Run `metes check --mend undecodable-page`: it writes anew the bits of all addresses that are held.",
            ),
            Kind::UndecodableSummary => (
                "A summary, which says which pages are full, is damaged. ADDs look at the pages themselves.",
                "Run `metes check --mend undecodable-summary`.",
            ),
            Kind::UndecodableReservation => (
                "The reservation, which says who holds the address, is damaged. The address stays taken.",
                "Run `metes check --mend undecodable-reservation`: it reserves the address for the container whose \
                 record lists it. If there is none, first make sure that no container uses the address: it is freed.",
            ),
            Kind::UndecodableOwner => (
                "The record of what a container holds is damaged. Its addresses stay taken: a DEL fails, \
                 and nothing else frees them.",
                "Delete the pod, then run `metes check --mend undecodable-owner`: it frees what is reserved for \
                 the container.",
            ),
            Kind::UndecodablePodIndex => (
                "The index, which says which container is the youngest of a pod, is damaged. A new \
                 sandbox of the pod gets no address.",
                "Run `metes check --mend undecodable-pod-index`.",
            ),
            Kind::UndecodableTombstone => (
                "The tombstone, which says that a container is gone, is damaged. An ADD and a DEL for \
                 this container fail.",
                "When the container has been gone for two minutes, run `metes check --mend undecodable-tombstone`.",
            ),
            Kind::UndecodableCursor => (
                "The cursor, which says which address was given last, is damaged. ADDs begin with the lowest one.",
                "Run `metes check --mend undecodable-cursor`.",
            ),
            Kind::UndecodableMeta => (
                "The record about the store itself (meta) is damaged. ADDs fail, and the reconciler frees \
                 nothing. A DEL still frees.",
                "Install the newest metes that the cluster has had. If that does not help, run `metes check --mend \
                 undecodable-meta`, which deletes the key. Then run `metes-reconciler adopt`, or outside \
                 Kubernetes `metes check --accept-store`.",
            ),
            Kind::UndecodableCluster => (
                "The record of the cluster with this name is damaged. The reconciler of that cluster stops.",
                "Run `metes check --mend undecodable-cluster`: the next pass of the reconciler writes the key anew.",
            ),
            Kind::UndecodableNote => (
                "A note is damaged. No address depends on it, but a pass may wait for it to end.",
                "Run `metes check --mend undecodable-note`.",
            ),
            Kind::UndecodablePool => (
                "A pool is damaged. No address is given from it.",
                "Run `metes check --mend undecodable-pool`, then write the pool again with `metes pool apply`.",
            ),
            Kind::PoolsMismatch => (
                "The key by which `auto` chooses pools does not agree with the pools. ADDs with `auto` \
                 may take another pool.",
                "Run `metes check --mend pools-mismatch`.",
            ),
            Kind::ReservationWithoutBit => {
                ("The address is held, but its bit is not set. ADDs try to give it and lose time.", REPAIR)
            }
            Kind::ReservationWithoutOwner => (
                "The address is taken, and no record says that its container holds it. So nothing frees it.",
                "Run `metes check --mend reservation-without-owner`: it reserves the address for the container \
                 whose record lists it. If there is none, first make sure that no container uses the address: it is \
                 freed. An address that is set aside gets its record back.",
            ),
            Kind::OwnerWithoutReservation => (
                "A container holds the address by its record, and it is not reserved for it. Another container may \
                 have it, or get it. If its bit is still set, `--repair` leaves it so: ADDs do not choose the address.",
                "Run `metes check --mend owner-without-reservation`: it reserves the address again. If another \
                 container has got it, delete the pod first: all that the pod holds is freed.",
            ),
            Kind::OwnerWithoutPodIndex => (
                "A new sandbox of this pod cannot take over what the present one holds. It gets another address.",
                NOTHING,
            ),
            Kind::PodIndexWithoutOwner => (
                "The index names a container that holds nothing. A new sandbox of the pod finds nothing.",
                "Run `metes check --mend pod-index-without-owner`.",
            ),
            Kind::PodIndexMismatch => (
                "The index names another pod's container, or one without an address in this network.",
                "Run `metes check --mend pod-index-mismatch`.",
            ),
            Kind::UndecodableSeat => (
                "The seat, which says which container uses the addresses of a hold, is damaged. No other pod of that \
                 name gets them.",
                "Delete the pod, then run `metes check --mend undecodable-seat`: the seat is free then.",
            ),
            Kind::UserWithoutSeat => (
                "A container uses the addresses of a hold by its record, and has no seat of it. A second pod of its \
                 name may get the same addresses.",
                "Run `metes check --mend user-without-seat`: it writes the seat again. If another container has it, \
                 delete the pod whose container has no seat.",
            ),
            Kind::SeatWithoutUser => (
                "A seat of a hold is taken, and no record says that its container uses it. So nothing gives it back, \
                 and no pod of that name gets the addresses.",
                "Make sure that the container is gone, then run `metes check --mend seat-without-user`: the seat is \
                 free then.",
            ),
            Kind::SeatWithoutHold => (
                "A container uses the addresses of a hold that does not exist. Another container may get them.",
                "Delete the pod: its DEL gives the seat back, and the next pod of that name makes a hold anew.",
            ),
            Kind::HoldMismatch => (
                "The record of a hold does not agree with its key.",
                "Run `metes check --mend hold-mismatch`: it ends the hold. Then set an address aside again with \
                 `metes hold`; for a pod, its next ADD makes a hold anew.",
            ),
            Kind::AddressListedTwice => (
                "Two containers hold one address by their records. Both may use it.",
                "Delete the pod for which the address is not reserved: `metes show` says for which it is. Then run \
                 `metes check --mend address-listed-twice`: it frees what the deleted pod held.",
            ),
            Kind::ReservationOnLease => (
                "The reservation hangs on a lease, so it will vanish while its container uses the address. Another \
                 program has written it.",
                "Run `metes check --mend reservation-on-lease`: it writes the same without a lease.",
            ),
            Kind::RecordOnLease => (
                "The record hangs on a lease, so it will vanish. Another program has written it.",
                "Run `metes check --mend record-on-lease`: it writes the same without a lease.",
            ),
            Kind::StaleWithoutLease => (
                "The key should end with a lease and hangs on none, so it would stay forever.",
                "Run `metes check --repair`. Only the time of a hold needs `metes hold --remove`, or `metes check \
                 --mend stale-without-lease` if there is no hold.",
            ),
            Kind::SummarySaysFull => (
                "A summary says that a page is full, and it is not. The free addresses of the page are never given.",
                REPAIR,
            ),
            Kind::MetaMissing => (
                "Addresses are held, and the record about the store itself (meta) is missing: somebody \
                 has deleted it, or the store was restored in part. ADDs fail.",
                "Run `metes-reconciler adopt`. Outside Kubernetes, make sure that no running container has an \
                 address that `metes list` does not show, then run `metes check --accept-store`.",
            ),
            Kind::Suspect => (
                "The store went back in time, was emptied, or is another one. It may have forgotten addresses that are \
                 in use, so ADDs fail.",
                "Run `metes-reconciler adopt`. Outside Kubernetes, make sure that no running container has an \
                 address that `metes list` does not show, then run `metes check --accept-store`.",
            ),
            Kind::AddressLacking => (
                "A running pod reports an address that the store does not hold for it, as two passes of the reconciler \
                 saw. The store has probably gone back in time, and another pod may get the address. Passes free \
                 nothing in this network.",
                "Run `metes-reconciler adopt`. If the pod's annotation network-status is wrong, run `metes check \
                 --accept-store`.",
            ),
            Kind::SchemaNewer => (
                "A newer metes has written to the store, or reserved it for itself.",
                "Install the newer metes on this node.",
            ),
            Kind::RecordNewer => (
                "A newer metes wrote the record. This one cannot judge it: what it may hold stays taken, and nothing \
                 of it is mended here.",
                "Use a metes that reads the version which the finding names.",
            ),
            Kind::EtcdTooOld => {
                ("etcd is older than 3.5.6, and may lose what it has acknowledged.", "Upgrade etcd.")
            }
            Kind::TimeWithoutHold => (
                "There is the time of a hold, but no such hold. It ends with its lease and does no harm.",
                NOTHING,
            ),
            Kind::CoolingMismatch => (
                "An address that is cooling is reserved, too, or it may be given too early. It ends with its lease.",
                NOTHING,
            ),
            Kind::StrayBit => (
                "Usual: a bit is set and nobody holds its address, because a DEL did not know the page as it is, or a \
                 cooldown is over. The next ADD that finds nothing else clears it, or the next pass.",
                "Nothing has to be done; `metes check --repair` clears it now.",
            ),
            Kind::SummaryMissesFull => (
                "A page is full, and its summary does not say so. ADDs read it in vain.",
                "Nothing has to be done; `metes check --repair` corrects it.",
            ),
        };
        Explanation { meaning, remedy }
    }
}
