//! Networks that hold very many addresses, written as that many ADDs would have left them.
//!
//! The library makes the records, so `metes check` finds nothing wrong with them.

use std::collections::BTreeMap;

use etcd_client::{Client, Error, Txn, TxnOp};
use metes_core::keys::{Keys, Scope, digest_hex};
use metes_core::pool::{
    Addr, Bits, Held, Labels, NetworkName, Owner, OwnerRecord, Page, Pod, Record, Reservation, Summary,
};
use tokio::task::JoinSet;

use support::Store;

/// etcd's default for `--max-txn-ops`.
const TXN_OPS: usize = 128;
/// Transactions under way: enough that one wait for the disk serves several of them.
const AT_A_TIME: usize = 16;
const NODES: usize = 1000;

/// A network and what it holds: a run of addresses, each of an owner of its own.
pub(crate) struct HeldRun {
    pub(crate) network: NetworkName,
    pub(crate) scope: Scope,
    pub(crate) first: Addr,
    pub(crate) count: usize,
}

pub(crate) type Entry = (Vec<u8>, Vec<u8>);

impl HeldRun {
    pub(crate) fn entries<'a>(&'a self, keys: &'a Keys) -> impl Iterator<Item = Entry> + 'a {
        let holders = (0..self.count).flat_map(|number| self.holder(keys, number));
        holders.chain(self.bitmaps(keys))
    }

    fn address(&self, number: usize) -> Addr {
        Addr(self.first.0 + number as u128)
    }

    /// The reservation and the owner's record.
    fn holder(&self, keys: &Keys, number: usize) -> [Entry; 2] {
        let owner = Owner {
            node: format!("held-{}", number % NODES).parse().expect("a plain name"),
            container_id: format!("{}{number:032x}", digest_hex(self.network.as_str().as_bytes()))
                .parse()
                .expect("a plain name"),
            ifname: "eth0".parse().expect("a plain name"),
            cluster: Some("test".parse().expect("a plain name")),
        };
        let pod = Pod { namespace: "held".to_owned(), name: format!("pod-{number}"), uid: None };
        let cni_network = self.network.to_string();
        let labels = Labels { pod, cni_network };
        let address = self.address(number);
        let held = vec![Held::new(address.ip(), Some(self.network.clone()))];
        let record = OwnerRecord::new(held, None, self.scope.to_string(), labels);
        let own = keys.owner(&owner);
        let reservation = Reservation::new(owner, "2026-01-02T03:04:05Z".to_owned());
        [(keys.ip(&self.network, address), reservation.encode()), (own, record.encode())]
    }

    fn bitmaps(&self, keys: &Keys) -> Vec<Entry> {
        let mut pages: BTreeMap<Page, Bits> = BTreeMap::new();
        for address in (0..self.count).map(|number| self.address(number)) {
            pages.entry(address.page()).or_insert_with(Bits::empty).set(address.bit());
        }
        let mut summaries: BTreeMap<Summary, Bits> = BTreeMap::new();
        for page in pages.iter().filter(|(_, bits)| bits.is_full()).map(|(page, _)| page) {
            summaries.entry(page.summary()).or_insert_with(Bits::empty).set(page.bit());
        }
        let pages = pages.iter().map(|(page, bits)| (keys.page(&self.network, *page), bits.to_bytes()));
        let full = summaries.iter().map(|(at, bits)| (keys.summary(&self.network, *at), bits.to_bytes()));
        pages.chain(full).collect()
    }
}

/// Very many keys in large transactions.
pub(crate) fn put(store: &Store, entries: impl Iterator<Item = Entry>) {
    put_ops(store, entries.map(|(key, value)| TxnOp::put(key, value, None)));
}

pub(crate) fn put_ops(store: &Store, ops: impl Iterator<Item = TxnOp>) {
    store.run(async |client| put_many(client, ops).await);
}

async fn put_many(client: &Client, ops: impl Iterator<Item = TxnOp>) -> Result<(), Error> {
    let mut ops = ops.peekable();
    let mut under_way = JoinSet::new();
    while ops.peek().is_some() || !under_way.is_empty() {
        while under_way.len() < AT_A_TIME && ops.peek().is_some() {
            let some: Vec<TxnOp> = ops.by_ref().take(TXN_OPS).collect();
            let mut client = client.clone();
            under_way.spawn(async move { client.txn(Txn::new().and_then(some)).await });
        }
        if let Some(done) = under_way.join_next().await {
            done.expect("a transaction does not panic")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn pages_and_summaries_say_what_is_held() {
        let network = NetworkName::default();
        let base = Addr::from(std::net::IpAddr::from(Ipv4Addr::new(10, 0, 0, 0)));
        let scope = Scope::stored("-").expect("a scope");
        // All of the first page but its first address, all of the second, and two of the third.
        let run =
            HeldRun { network: network.clone(), scope, first: Addr(base.0 + 1), count: 4095 + 4096 + 2 };
        let keys = Keys::new("/bench/");
        let entries: BTreeMap<Vec<u8>, Vec<u8>> = run.entries(&keys).collect();
        assert_eq!(entries.len(), 2 * run.count + 3 + 1);
        let bits = |key: Vec<u8>| Bits::from_bytes(&entries[&key]).expect("a bitmap");
        let page = |number| keys.page(&network, Page(base.page().0 + number));
        assert_eq!([0, 1, 2].map(|number| bits(page(number)).count()), [4095, 4096, 2]);
        let full = bits(keys.summary(&network, base.page().summary()));
        assert_eq!((full.count(), full.get(Page(base.page().0 + 1).bit())), (1, true));
        assert!(entries.contains_key(&keys.ip(&network, Addr(base.0 + 8193))));
        assert!(!entries.contains_key(&keys.ip(&network, Addr(base.0 + 8194))));
    }
}
