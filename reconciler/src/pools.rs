//! The pools in etcd.

use std::collections::BTreeMap;

use metes_core::keys::Key;
use metes_core::plan::known_pool::decode_pool;
use metes_core::pool::{PoolDefinition, PoolName};
use metes_core::txn::Entry;
use metes_engine::kv::{Failure, Kv};
use metes_engine::session::Session;
use metes_engine::walk::walk;

/// All pools by name. One that does not decode, or has another name than its key, is not among them.
pub type Pools = BTreeMap<PoolName, PoolDefinition>;

pub(crate) async fn read<K: Kv>(session: Session<'_, K>) -> Result<Pools, Failure> {
    let see = |pools: &mut Pools, entry: Entry| {
        if let Ok(Key::Pool(name)) = session.keys.parse(&entry.key)
            && let Ok(pool) = decode_pool(&name, &entry.key, &entry.value)
        {
            pools.insert(name, pool);
        }
    };
    Ok(walk(session, &session.keys.pools(), Pools::default, see).await?.0)
}
