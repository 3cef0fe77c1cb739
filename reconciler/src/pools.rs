//! The pools in etcd.

use std::collections::BTreeMap;

use metes::pool::definition::PoolDefinition;
use metes::pool::names::PoolName;
use metes::store::keys::Key;
use metes::store::known_pool::decode_pool;
use metes::store::kv::{Failure, Kv};
use metes::store::session::Session;
use metes::store::txn::Entry;
use metes::store::walk::walk;

/// All pools by name. One that does not decode, or has another name than its key, is not among them.
pub type Pools = BTreeMap<PoolName, PoolDefinition>;

/// Reads all pools.
///
/// # Errors
/// [`Failure`]
pub async fn read<K: Kv>(session: Session<'_, K>) -> Result<Pools, Failure> {
    let see = |pools: &mut Pools, entry: Entry| {
        if let Ok(Key::Pool(name)) = session.keys.parse(&entry.key)
            && let Ok(pool) = decode_pool(&name, &entry.key, &entry.value)
        {
            pools.insert(name, pool);
        }
    };
    Ok(walk(session, &session.keys.pools(), Pools::default, see).await?.0)
}
