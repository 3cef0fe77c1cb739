//! What a command reads of the store: a network's keys, a node's owners or one address where that is enough.
//!
//! A listing of all keys of a prefix is one walk at one revision. What is looked up after it, key by key, is newer: an
//! address that changed hands in between shows its new holder, or is left out.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnetwork::IpNetwork;

use super::Context;
use super::args::{Filter, Place};
use super::inventory::Inventory;
use crate::pool::names::{ClusterName, NodeName};
use crate::pool::record::{Owner, OwnerRecord, Record, Undecodable};
use crate::pool::{Addr, NetworkName};
use crate::store::keys::{Bytes, Key};
use crate::store::kv::{Failure, Kv};
use crate::store::snapshot::Snapshot;
use crate::store::txn::{Entry, List, Op, Txn};
use crate::store::walk::walk;

/// So many owners are looked up one by one; for more, all are listed.
const OWNERS_BY_NAME: usize = 10_000;

/// Whether an owner, with its record if that decodes, is among those that are looked for.
type OwnerTest<'a> = &'a dyn Fn(&Owner, &Result<OwnerRecord, Undecodable>) -> bool;

impl<K: Kv> Context<'_, K> {
    /// Reads what the addresses that are meant are among.
    pub(super) async fn held(&self, filter: &Filter) -> Result<Inventory, Failure> {
        let is_by_pod = |record: &Result<OwnerRecord, Undecodable>| match record {
            Ok(record) => filter.is_of(&record.labels.pod),
            Err(_) => true,
        };
        match (filter, &filter.place.node) {
            (Filter { network: Some(network), .. }, _) => self.of_network(network).await,
            (_, Some(_)) => {
                let prefixes = self.of_node(&filter.place).await?;
                self.of_owners(&prefixes, &|_, _| true).await
            }
            (Filter { namespace: None, pod: None, .. }, None) => self.everything().await,
            _ => self.of_all_owners(&|_, record| is_by_pod(record)).await,
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

    /// Reads the addresses of one network.
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

    /// Reads who holds an address: in these networks, and what else is known of it there.
    pub(super) async fn of_address(
        &self,
        networks: &[NetworkName],
        address: IpAddr,
    ) -> Result<Inventory, Failure> {
        let keys = self.session.keys;
        let of_network =
            |network| [keys.ip(network, Addr::from(address)), keys.cooling(network, Addr::from(address))];
        let mut inventory = Inventory::default();
        self.look_up(networks.iter().flat_map(of_network).collect(), &mut inventory).await?;
        self.with_owners(inventory).await
    }

    /// Reads what those owners hold whose records begin with one of these prefixes.
    async fn of_owners(&self, prefixes: &[Bytes], is_meant: OwnerTest<'_>) -> Result<Inventory, Failure> {
        let keys = self.session.keys;
        let mut inventory = Inventory::default();
        let mut reserved = Vec::new();
        for prefix in prefixes {
            let see = |seen: &mut Vec<Entry>, entry: Entry| {
                let Ok(Key::Owner(owner)) = keys.parse(&entry.key) else { return };
                if is_meant(&owner, &OwnerRecord::decode(&entry.value)) {
                    seen.push(entry);
                }
            };
            let (records, _) = walk(self.session, prefix, Vec::new, see).await?;
            for entry in &records {
                inventory.see(keys, entry);
                let record = OwnerRecord::decode(&entry.value).ok();
                let held = record.iter().flat_map(OwnerRecord::reserved);
                reserved.extend(held.map(|(network, address)| keys.ip(network, address)));
            }
        }
        self.look_up(reserved, &mut inventory).await?;
        Ok(inventory.sorted())
    }

    /// Reads what those of all owners hold that are meant.
    pub(super) async fn of_all_owners(&self, is_meant: OwnerTest<'_>) -> Result<Inventory, Failure> {
        self.of_owners(&[self.session.keys.owners()], is_meant).await
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

    /// The networks of which anything is stored: one request for each, and one more.
    pub(super) async fn networks(&self) -> Result<Vec<NetworkName>, Failure> {
        let names = self.names(&self.session.keys.nets()).await?;
        Ok(names.iter().filter_map(|name| NetworkName::stored(name).ok()).collect())
    }

    /// The clusters that hold an address, as keys name them.
    async fn clusters(&self) -> Result<Vec<String>, Failure> {
        self.names(&self.session.keys.owners()).await
    }

    /// The names that stand between a prefix and the next slash.
    async fn names(&self, prefix: &Bytes) -> Result<Vec<String>, Failure> {
        let mut list = List { keys_only: true, ..List::prefix(prefix, 1) };
        let mut names = Vec::new();
        while let Some(entry) = self.first(&list).await? {
            let rest = &entry.key[prefix.len()..];
            let name = rest.split(|byte| *byte == b'/').next().unwrap_or_default();
            // The byte after the slash: all keys behind this name come before it.
            list.start = [prefix, name, &[b'/' + 1]].concat();
            names.push(String::from_utf8_lossy(name).into_owned());
        }
        Ok(names)
    }

    /// Whether any key begins with this.
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

    /// With the records of the owners, which say from which pool an address is.
    async fn with_owners(&self, mut inventory: Inventory) -> Result<Inventory, Failure> {
        let keys = self.session.keys;
        let owners: BTreeSet<Bytes> =
            inventory.rows.iter().filter_map(|row| row.owner()).map(|owner| keys.owner(owner)).collect();
        match owners.len() {
            0..OWNERS_BY_NAME => self.look_up(owners.into_iter().collect(), &mut inventory).await?,
            _ => self.list(&keys.owners(), &mut inventory).await?,
        }
        Ok(inventory.sorted())
    }
}
