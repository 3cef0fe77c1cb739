//! What each kind of finding means, and what to do about it; for people. Pure.

use super::Kind;

/// What a kind of finding means for a cluster, and its remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Explanation {
    /// What it is, and what comes of it.
    pub meaning: &'static str,
    /// What to do.
    pub remedy: &'static str,
}

const REPAIR: &str = "Run `metes check --repair`.";
const DELETE_KEY: &str = "Delete the key with `etcdctl del`.";
const DELETE_AND_REPAIR: &str = "Delete the key with `etcdctl del`, then run `metes check --repair`.";
const NOTHING: &str = "Nothing has to be done.";

impl Kind {
    /// What it means, and what to do about it.
    #[must_use]
    pub fn explain(self) -> Explanation {
        let (meaning, remedy) = match self {
            Kind::ForeignKey => (
                "Another program writes below the prefix of metes, or a newer metes does. Nothing relies on the key.",
                "Give the other program a prefix of its own, and delete the key with `etcdctl del`.",
            ),
            Kind::UndecodablePage => (
                "What says which addresses of a page are taken is damaged. ADDs give none of its addresses.",
                "Delete the key with `etcdctl del`, then run `metes check --repair`: it sets the bits of all \
                 reservations again.",
            ),
            Kind::UndecodableSummary => (
                "What says which pages are full is damaged. ADDs look at the pages themselves.",
                DELETE_AND_REPAIR,
            ),
            Kind::UndecodableReservation => (
                "What says who holds the address is damaged. The address stays taken.",
                "If no container uses the address, delete the key with `etcdctl del`, then run `metes check --repair`.",
            ),
            Kind::UndecodableOwner => (
                "What says what a container holds is damaged. Its addresses stay taken, and nothing frees them.",
                "Delete the pod. Then delete this key and the reservations that name its container with `etcdctl del`, \
                 and run `metes check --repair`.",
            ),
            Kind::UndecodablePodIndex => (
                "What says which container is the youngest of a pod is damaged. A new sandbox of the pod gets no \
                 address.",
                DELETE_KEY,
            ),
            Kind::UndecodableTombstone => (
                "What says that a container is gone is damaged. An ADD for this container is refused.",
                "Wait two minutes, then delete the key with `etcdctl del`.",
            ),
            Kind::UndecodableCursor => (
                "What says which address was given last is damaged. ADDs begin with the lowest one.",
                DELETE_KEY,
            ),
            Kind::UndecodableMeta => (
                "What all writers have agreed on is damaged, or a newer metes has written it. Nothing is given or \
                 freed.",
                "Install the newest metes that the cluster has had. If that is no help, delete the key with \
                 `etcdctl del` and run `metes check --accept-store`.",
            ),
            Kind::UndecodableCluster => (
                "What says which cluster goes by a name is damaged. The reconciler of that cluster stops.",
                "Delete the key with `etcdctl del`: the next pass of the reconciler writes it.",
            ),
            Kind::UndecodableNote => (
                "A note is damaged. No address depends on it, but a pass may wait for it to end.",
                DELETE_KEY,
            ),
            Kind::UndecodablePool => (
                "A pool is damaged, or a newer metes has written it. No address is given from it.",
                "Delete the key with `etcdctl del`, then write the pool again with `metes pool apply`.",
            ),
            Kind::PoolsMismatch => (
                "What `auto` chooses pools by is not what the pools say. ADDs with `auto` may take another pool.",
                "Run `metes pool apply` with any of the pools.",
            ),
            Kind::ReservationWithoutBit => {
                ("The address is held, but its bit is not set. ADDs try to give it and lose time.", REPAIR)
            }
            Kind::ReservationWithoutOwner => (
                "The address is taken, and no record says that its container holds it. So nothing frees it.",
                "If no container uses the address, delete the key with `etcdctl del`, then run `metes check --repair`.",
            ),
            Kind::OwnerWithoutReservation => (
                "A container holds the address by its record, and it is not reserved for it. Another container may \
                 have it, or get it.",
                "Delete the pod. Then delete this key and the reservations that name its container with `etcdctl del`, \
                 and run `metes check --repair`.",
            ),
            Kind::OwnerWithoutPodIndex => (
                "A new sandbox of this pod cannot take over what the present one holds. It gets another address.",
                NOTHING,
            ),
            Kind::PodIndexWithoutOwner => (
                "The index names a container that holds nothing. A new sandbox of the pod finds nothing.",
                DELETE_KEY,
            ),
            Kind::PodIndexMismatch => (
                "The index names another pod's container, or one without an address in this network.",
                DELETE_KEY,
            ),
            Kind::HoldMismatch => (
                "The record of an address that is set aside says something else.",
                "Delete the key and the reservation of the address with `etcdctl del`, run `metes check --repair`, and \
                 set the address aside again with `metes hold`.",
            ),
            Kind::AddressListedTwice => (
                "Two containers hold one address by their records. Both may use it.",
                "Delete one of the two pods. Then delete its owner record with `etcdctl del`, and run `metes check`.",
            ),
            Kind::ReservationOnLease => (
                "The reservation hangs on a lease, so it will vanish while its container uses the address. Another \
                 program has written it.",
                "Delete the pod: the one that replaces it gets an address of its own.",
            ),
            Kind::RecordOnLease => (
                "The record hangs on a lease, so it will vanish. Another program has written it.",
                "If it is a container's record, delete the pod. If it is a pool, run `metes pool apply`.",
            ),
            Kind::StaleWithoutLease => {
                ("The key should end with a lease and hangs on none, so it would stay for ever.", REPAIR)
            }
            Kind::SummarySaysFull => (
                "A summary calls a page full which is not. The free addresses of the page are never given.",
                REPAIR,
            ),
            Kind::MetaMissing => (
                "Addresses are held, and what all writers have agreed on is missing: somebody has deleted it, or the \
                 store was restored in part. ADDs fail.",
                "Run `metes-reconciler adopt`. Outside Kubernetes, see that no running container has an address that \
                 `metes list` does not show, then run `metes check --accept-store`.",
            ),
            Kind::Suspect => (
                "The store went back in time, was emptied, or is another one. It may have forgotten addresses that are \
                 in use, so ADDs fail.",
                "Run `metes-reconciler adopt`. Outside Kubernetes, see that no running container has an address that \
                 `metes list` does not show, then run `metes check --accept-store`.",
            ),
            Kind::SchemaNewer => (
                "A newer metes has written to the store, or reserved it for itself.",
                "Install the newer metes on this node.",
            ),
            Kind::EtcdTooOld => ("etcd is too old for metes.", "Upgrade etcd."),
            Kind::TimeWithoutHold => {
                ("The time of a hold that does not exist. It ends with its lease and stops nothing.", NOTHING)
            }
            Kind::CoolingMismatch => (
                "An address that is cooling is reserved, too, or it may be given too early. It ends with its lease.",
                NOTHING,
            ),
            Kind::StrayBit => (
                "A bit is set and nobody holds its address: a DEL was short of time, or a cooldown is over. The next \
                 ADD that finds nothing else clears it, or the next pass of the reconciler does.",
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
