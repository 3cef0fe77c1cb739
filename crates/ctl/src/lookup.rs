//! Reads the part of the store that a command needs: a network's keys, a node's owners or one address where that is
//! enough.
//!
//! A listing of all keys of a prefix is one walk at one revision. Keys that are read one by one after the walk are
//! newer. An address that changed hands in between shows its new holder, or is left out.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnetwork::IpNetwork;

use super::filter::{Filter, Place};
use super::inventory::{Inventory, Row};
use super::{Context, Terminal};
use metes_core::keys::{Bytes, Key, prefix_end};
use metes_core::pool::{
    Addr, ClusterName, Held, NetworkName, NodeName, Owner, OwnerKind, OwnerRecord, Pod, Record,
};
use metes_core::snapshot::Snapshot;
use metes_core::txn::{Entry, List, Op, Txn};
use metes_engine::kv::{Failure, Kv};
use metes_engine::walk::walk;

/// So many owners are looked up one by one; for more, all are listed.
const OWNERS_BY_NAME: usize = 10_000;

/// The most owners among which a static address that is only recorded is looked for, if the request does not say that
/// it is one.
const STATICS_SOUGHT: usize = 1000;

/// True if an owner, with its record if that decodes, is among those that are looked for.
pub(super) type OwnerTest<'a> = &'a dyn Fn(&Owner, Option<&OwnerRecord>) -> bool;

impl<K: Kv> Context<'_, K> {
    /// Reads the part of the store that has the addresses of the filter; it may have others, too.
    pub(super) async fn held(&self, filter: &Filter) -> Result<Inventory, Failure> {
        self.held_among(filter, &|_| ()).await
    }

    /// The same; `see` gets each pod whose record is read for that, also if it is not meant.
    pub(super) async fn held_among(&self, filter: &Filter, see: &dyn Fn(&Pod)) -> Result<Inventory, Failure> {
        if filter.needs_everything() {
            return self.everything().await;
        }
        let is_by_pod = |owner: &Owner, record: &OwnerRecord| {
            let pod = match owner.kind() {
                OwnerKind::Subject(subject) => Pod::from(subject),
                OwnerKind::Container(_) | OwnerKind::Aside(..) | OwnerKind::Unknown => {
                    record.labels.pod.clone()
                }
            };
            see(&pod);
            filter.is_of(&pod)
        };
        match (filter, &filter.place.node) {
            (Filter { network: Some(network), .. }, _) => self.of_network(network).await,
            (_, Some(_)) => {
                let prefixes = self.of_node(&filter.place).await?;
                self.of_owners(&prefixes, &|_, _| true).await
            }
            _ => {
                self.of_all_owners(&|owner, record| record.is_none_or(|record| is_by_pod(owner, record)))
                    .await
            }
        }
    }

    /// Reads all that is held, at one moment.
    pub(super) async fn everything(&self) -> Result<Inventory, Failure> {
        let see = |inventory: &mut Inventory, entry| inventory.see(self.session.keys, &entry);
        let root = self.session.keys.root();
        let (mut inventory, revision) = walk(self.session, &root, Inventory::default, see).await?;
        inventory.pools.complete(self.session.keys, revision);
        Ok(inventory.sorted())
    }

    pub(super) async fn of_network(&self, network: &NetworkName) -> Result<Inventory, Failure> {
        let mut inventory = Inventory::default();
        self.list(&self.session.keys.ips(network), &mut inventory).await?;
        self.with_owners(inventory).await
    }

    /// Reads the addresses that lie in a prefix, of these networks.
    pub(super) async fn of_prefix(
        &self,
        networks: &[NetworkName],
        prefix: IpNetwork,
    ) -> Result<Inventory, Failure> {
        let mut inventory = Inventory::default();
        for network in networks {
            self.list(&self.session.keys.ips_of(network, prefix), &mut inventory).await?;
        }
        inventory.rows.retain(|row| prefix.contains(row.address.ip()));
        self.with_owners(inventory).await
    }

    /// Where nothing was found: says so if nothing was ever stored.
    pub(super) async fn tell_if_unused(&self, terminal: &mut Terminal<'_>) -> Result<(), Failure> {
        if let Some(unused) = self.unused_words().await? {
            terminal.tell(&format!("metes: {unused}"));
        }
        Ok(())
    }

    /// That nothing was ever stored, because another prefix may be meant; none if there is something.
    pub(super) async fn unused_words(&self) -> Result<Option<String>, Failure> {
        let (meta, prefix) = (self.session.keys.meta(), &self.settings.prefix);
        // A slow etcd has as much time for it as for the listing before.
        let (has_meta, _) = walk(self.session, &meta, || false, |found: &mut bool, _| *found = true).await?;
        Ok((!has_meta).then(|| {
            format!(
                "nothing is stored below {prefix}: no ADD has written there, or `etcd.prefix` is not that of the nodes"
            )
        }))
    }

    /// Reads the ranges of pools, and those that configurations ask for.
    pub(super) async fn ranges(&self) -> Result<Inventory, Failure> {
        let keys = self.session.keys;
        let see = |seen: &mut Inventory, entry| seen.see(keys, &entry);
        let (mut inventory, _) = walk(self.session, &keys.pools(), Inventory::default, see).await?;
        self.list(&keys.all_asked(), &mut inventory).await?;
        Ok(inventory)
    }

    /// Adds the addresses of these networks that are held or cooling, of a prefix or all; not which pools they are
    /// from.
    pub(super) async fn read_held(
        &self,
        networks: &[NetworkName],
        within: Option<IpNetwork>,
        inventory: &mut Inventory,
    ) -> Result<(), Failure> {
        let keys = self.session.keys;
        for network in networks {
            let held = within.map_or_else(|| keys.ips(network), |prefix| keys.ips_of(network, prefix));
            self.list(&held, inventory).await?;
            self.list(&keys.all_cooling(network), inventory).await?;
        }
        Ok(())
    }

    /// Reads the owners that hold an address in these networks.
    pub(super) async fn of_address(
        &self,
        networks: &[NetworkName],
        address: IpAddr,
    ) -> Result<Inventory, Failure> {
        let keys = self.session.keys;
        let reservations = networks.iter().map(|network| keys.ip(network, Addr::from(address)));
        let mut inventory = Inventory::default();
        self.look_up(reservations.collect(), &mut inventory).await?;
        self.with_owners(inventory).await
    }

    /// The networks, of these, in which an address is cooling.
    pub(super) async fn cooling_in(
        &self,
        networks: &[NetworkName],
        address: IpAddr,
    ) -> Result<Vec<NetworkName>, Failure> {
        let keys = self.session.keys;
        let cooling = networks.iter().map(|network| keys.cooling(network, Addr::from(address)));
        let mut inventory = Inventory::default();
        self.look_up(cooling.collect(), &mut inventory).await?;
        Ok(inventory.cooling.into_iter().map(|(network, _)| network).collect())
    }

    /// Reads the addresses of the owners whose keys begin with one of these prefixes, and that `is_meant` accepts.
    pub(super) async fn of_owners(
        &self,
        prefixes: &[Bytes],
        is_meant: OwnerTest<'_>,
    ) -> Result<Inventory, Failure> {
        let keys = self.session.keys;
        let mut inventory = Inventory::default();
        let mut reserved = Vec::new();
        for prefix in prefixes {
            let see = |seen: &mut Vec<_>, entry: Entry| {
                let Ok(Key::Owner(owner)) = keys.parse(&entry.key) else { return };
                let record = OwnerRecord::decode(&entry.value);
                if is_meant(&owner, record.as_ref().ok()) {
                    seen.push((entry, owner, record));
                }
            };
            let (records, _) = walk(self.session, prefix, Vec::new, see).await?;
            for (entry, owner, record) in records {
                let used = record.iter().flat_map(OwnerRecord::used);
                reserved.extend(used.map(|(network, address)| keys.ip(network, address)));
                let seat = record.iter().filter_map(|record| record.seat.as_ref());
                reserved.extend(seat.map(|seat| keys.seat(seat)));
                if owner.is_for_subject() {
                    reserved.extend(keys.seats_of(&owner));
                }
                inventory.see_owner(&entry, owner, record);
            }
        }
        self.look_up(reserved, &mut inventory).await?;
        Ok(inventory.sorted())
    }

    /// Reads the addresses of all owners that `is_meant` accepts.
    pub(super) async fn of_all_owners(&self, is_meant: OwnerTest<'_>) -> Result<Inventory, Failure> {
        self.of_owners(&[self.session.keys.owners()], is_meant).await
    }

    /// Reads the addresses of the owners that have such a static address, which is only recorded.
    pub(super) async fn recorded(&self, is_it: &dyn Fn(IpAddr) -> bool) -> Result<Inventory, Failure> {
        let is_recorded = |held: &Held| held.network.is_none() && is_it(held.address);
        let has_one = |record: &OwnerRecord| record.addresses.iter().any(is_recorded);
        self.of_all_owners(&|_, record| record.is_none_or(has_one)).await
    }

    /// The prefixes of the owners of a node: in one cluster, or in each.
    async fn of_node(&self, place: &Place) -> Result<Vec<Bytes>, Failure> {
        let Some(Ok(node)) = place.node.as_ref().map(|node| node.parse::<NodeName>()) else {
            return Ok(Vec::new());
        };
        let clusters = match &place.cluster {
            Some(cluster) => vec![cluster.clone()],
            None => self.clusters().await?,
        };
        let clusters = clusters.iter().filter_map(|cluster| ClusterName::or_none(cluster).ok());
        Ok(clusters.map(|cluster| self.session.keys.owners_of(cluster.as_ref(), &node)).collect())
    }

    /// The clusters that hold an address, as keys name them.
    pub(super) async fn clusters(&self) -> Result<Vec<String>, Failure> {
        self.names(&self.session.keys.owners(), BTreeSet::new()).await
    }

    /// The nodes of a cluster, by its name in keys, that hold an address.
    pub(super) async fn nodes_of(&self, cluster: &str) -> Result<Vec<String>, Failure> {
        let prefix = [&self.session.keys.owners(), cluster.as_bytes(), b"/"].concat();
        let names = self.names(&prefix, BTreeSet::new()).await?;
        Ok(names.into_iter().filter(|name| name.parse::<NodeName>().is_ok()).collect())
    }

    /// Reads the owners that have this static address, which is only recorded. No key names such an address, so all
    /// records are read for it. If there are too many, none is read.
    pub(super) async fn recorded_among_few(&self, address: IpAddr) -> Result<Option<Inventory>, Failure> {
        let owners = self.session.keys.owners();
        let end = prefix_end(&owners);
        if self.count(&[(owners, end)]).await?.iter().sum::<usize>() > STATICS_SOUGHT {
            return Ok(None);
        }
        self.recorded(&|held| held == address).await.map(Some)
    }

    /// True if any key begins with this.
    pub(super) async fn has_any(&self, prefix: &Bytes) -> Result<bool, Failure> {
        Ok(self.first(&List { keys_only: true, ..List::prefix(prefix, 1) }).await?.is_some())
    }

    async fn first(&self, list: &List) -> Result<Option<Entry>, Failure> {
        let reply = self.session.txn(&Txn::read(vec![Op::List(list.clone())])).await?;
        Ok(reply.found.into_iter().next().and_then(|found| found.entries.into_iter().next()))
    }

    async fn list(&self, prefix: &Bytes, inventory: &mut Inventory) -> Result<(), Failure> {
        let see = |seen: &mut Inventory, entry| seen.see(self.session.keys, &entry);
        let (seen, _) = walk(self.session, prefix, Inventory::default, see).await?;
        inventory.take(seen);
        Ok(())
    }

    async fn look_up(&self, wanted: Vec<Bytes>, inventory: &mut Inventory) -> Result<(), Failure> {
        let mut snapshot = Snapshot::default();
        self.session.read(&wanted, &mut snapshot).await?;
        let entries = snapshot.iter().filter_map(|(_, entry)| entry);
        entries.for_each(|entry| inventory.see(self.session.keys, entry));
        Ok(())
    }

    /// With the records of the owners, which say whose an address is, and from which pool.
    pub(super) async fn with_owners(&self, mut inventory: Inventory) -> Result<Inventory, Failure> {
        let keys = self.session.keys;
        self.look_up_owners(&mut inventory).await?;
        // An owner that has no record any more was freed since: its addresses may have got other owners.
        let left: Vec<Row> = inventory.take_rows_without_record();
        if !left.is_empty() {
            let key = |row: Row| Some(keys.ip(row.network.as_ref()?, row.address));
            self.look_up(left.into_iter().filter_map(key).collect(), &mut inventory).await?;
            self.look_up_owners(&mut inventory).await?;
        }
        Ok(inventory.sorted())
    }

    /// Reads the records of all owners of rows that were not read yet, and the seats of holds.
    async fn look_up_owners(&self, inventory: &mut Inventory) -> Result<(), Failure> {
        let keys = self.session.keys;
        let owners = inventory.rows.iter().filter_map(Row::owner);
        let owners: BTreeSet<Bytes> =
            owners.filter(|owner| !inventory.has_read(owner)).map(|owner| keys.owner(owner)).collect();
        let holds: BTreeSet<&Owner> =
            inventory.rows.iter().filter_map(|row| Some(&row.kept.as_ref()?.hold)).collect();
        let seats = holds.into_iter().flat_map(|hold| keys.seats_of(hold)).collect();
        self.look_up(seats, inventory).await?;
        match owners.len() {
            0..OWNERS_BY_NAME => self.look_up(owners.into_iter().collect(), inventory).await,
            _ => self.list(&keys.owners(), inventory).await,
        }
    }
}
