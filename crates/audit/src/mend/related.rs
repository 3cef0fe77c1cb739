//! The records elsewhere in a tree that a mend depends on: the reservations and the pod that a damaged record left, and
//! the owners that list an address.

use std::collections::{BTreeMap, BTreeSet};

use super::{Finding, Kind};
use metes_core::keys::{Key, Keys, NetworkAddress};
use metes_core::plan::pool_change::StoredPools;
use metes_core::pool::{
    Addr, NetworkName, Owner, OwnerRecord, Page, PodIndex, PodUid, Record, Reservation, Undecodable,
    newer_version,
};
use metes_core::snapshot::Snapshot;
use metes_core::txn::Entry;
use metes_engine::kv::{Failure, Kv};
use metes_engine::session::Session;
use metes_engine::walk::walk;

/// The records of a tree that the mends of some findings depend on.
#[derive(Debug, Default)]
pub struct Related {
    /// The addresses that are reserved for an owner whose record does not decode.
    pub(super) reserved: BTreeMap<Owner, Vec<NetworkAddress>>,
    /// The pods of such owners, by the index.
    pub(super) pods: BTreeMap<Owner, PodUid>,
    /// The owners whose records list an address.
    pub(super) listed_by: BTreeMap<NetworkAddress, Vec<Owner>>,
    /// True if the record of some owner does not decode: it may list any address.
    pub(super) has_undecodable_owner: bool,
    /// True if a newer program wrote the record of some owner: it too may list any address.
    pub(super) has_newer_owner: bool,
    /// True if a newer program wrote some reservation: it may be anybody's.
    pub(super) has_newer_reservation: bool,
    /// True if a newer program wrote some pool: it may be one that `auto` chooses.
    pub(super) has_newer_pool: bool,
    pub(super) pools: StoredPools,
    /// The revision that was read.
    pub(super) revision: i64,
}

/// The records to look for.
#[derive(Default)]
struct WantedKeys {
    owners: BTreeSet<Owner>,
    addresses: BTreeSet<NetworkAddress>,
    /// All addresses of these.
    pages: BTreeSet<(NetworkName, Page)>,
}

impl Related {
    /// Reads it for these findings: the whole tree, if one of them needs it.
    ///
    /// # Errors
    /// [`Failure`]
    pub async fn read<K: Kv>(session: Session<'_, K>, findings: &[&Finding]) -> Result<Self, Failure> {
        let keys = session.keys;
        let wanted = WantedKeys::of(session, findings).await?;
        let is_of_pools =
            |finding: &&&Finding| matches!(finding.kind, Kind::UndecodablePool | Kind::PoolsMismatch);
        let needs_pools = findings.iter().any(|finding| is_of_pools(&finding));
        if wanted.owners.is_empty() && !wanted.has_addresses() && !needs_pools {
            return Ok(Self::default());
        }
        let see = |related: &mut Self, entry: Entry| related.see(keys, &wanted, &entry);
        let (related, revision) = walk(session, &keys.root(), Self::default, see).await?;
        Ok(Self { revision, ..related })
    }

    fn see(&mut self, keys: &Keys, wanted: &WantedKeys, entry: &Entry) {
        self.pools.see(keys, entry);
        match keys.parse(&entry.key) {
            Ok(Key::Ip(network, address)) if !wanted.owners.is_empty() => {
                let record = Reservation::decode(&entry.value);
                self.has_newer_reservation |= record.as_ref().is_err_and(Undecodable::is_newer);
                let owner = record.ok().map(|record| record.owner);
                if let Some(owner) = owner.filter(|owner| wanted.owners.contains(owner)) {
                    self.reserved.entry(owner).or_default().push((network, address));
                }
            }
            Ok(Key::Owner(owner)) if wanted.has_addresses() => {
                let record = OwnerRecord::decode(&entry.value);
                self.has_newer_owner |= record.as_ref().is_err_and(Undecodable::is_newer);
                self.has_undecodable_owner |= record.as_ref().is_err_and(|why| !why.is_newer());
                for (network, address) in record.iter().flat_map(OwnerRecord::reserved) {
                    let held = (network.clone(), address);
                    if wanted.has_address(&held) {
                        self.listed_by.entry(held).or_default().push(owner.clone());
                    }
                }
            }
            Ok(Key::Pod(interface)) if !wanted.owners.is_empty() => {
                let owner = PodIndex::decode(&entry.value).ok().map(|index| interface.owner(index));
                if let Some(owner) = owner.filter(|owner| wanted.owners.contains(owner)) {
                    self.pods.insert(owner, interface.uid);
                }
            }
            Ok(Key::Pool(_)) => self.has_newer_pool |= newer_version(&entry.value).is_some(),
            _ => {}
        }
    }

    /// The addresses of a page that records list.
    pub(super) fn listed_in(&self, network: &NetworkName, page: Page) -> impl Iterator<Item = Addr> {
        let of_page = (network.clone(), page.first())..=(network.clone(), page.last());
        self.listed_by.range(of_page).map(|((_, address), _)| *address)
    }

    /// The owners whose records list an address.
    pub(super) fn listing(&self, held: &NetworkAddress) -> &[Owner] {
        self.listed_by.get(held).map_or(&[], Vec::as_slice)
    }
}

impl WantedKeys {
    async fn of<K: Kv>(session: Session<'_, K>, findings: &[&Finding]) -> Result<Self, Failure> {
        let mut wanted = Self::default();
        let mut records = Vec::new();
        for finding in findings {
            match (finding.kind, session.keys.parse(&finding.key)) {
                (Kind::UndecodableOwner, Ok(Key::Owner(owner))) => _ = wanted.owners.insert(owner),
                (Kind::UndecodablePage, Ok(Key::Page(network, page))) => {
                    wanted.pages.insert((network, page));
                }
                (
                    Kind::UndecodableReservation | Kind::ReservationWithoutOwner,
                    Ok(Key::Ip(network, address)),
                ) => _ = wanted.addresses.insert((network, address)),
                (Kind::OwnerWithoutReservation | Kind::AddressListedTwice, Ok(Key::Owner(_))) => {
                    records.push(finding.key.clone());
                }
                _ => {}
            }
        }
        let mut seen = Snapshot::default();
        session.read(&records, &mut seen).await?;
        for key in records {
            let record = seen.record::<OwnerRecord>(&key).ok().flatten();
            let reserved = record.iter().flat_map(OwnerRecord::reserved);
            wanted.addresses.extend(reserved.map(|(network, address)| (network.clone(), address)));
        }
        Ok(wanted)
    }

    fn has_addresses(&self) -> bool {
        !self.addresses.is_empty() || !self.pages.is_empty()
    }

    fn has_address(&self, held: &NetworkAddress) -> bool {
        self.addresses.contains(held) || self.pages.contains(&(held.0.clone(), held.1.page()))
    }
}
