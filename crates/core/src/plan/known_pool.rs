//! Pools as a run has read them. Pure.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;

use crate::keys::Keys;
use crate::pool::auto::AutoPool;
use crate::pool::{PoolChanges, PoolDefinition, PoolName, PoolRecord, RangeSet, Record, Undecodable};
use crate::snapshot::{BadRecord, Snapshot};

/// A pool as it was read.
#[derive(Debug, PartialEq, Eq)]
pub struct KnownPool {
    /// The stored record.
    text: Vec<u8>,
    /// The definition in it.
    pub definition: PoolDefinition,
    /// The ranges that addresses are given from; none if no range is open.
    pub(crate) open: Option<RangeSet>,
}

/// Reads a stored pool. Its record must have the name of its key.
///
/// # Errors
/// [`BadRecord`] if it does not decode.
pub fn decode_pool(name: &PoolName, key: &[u8], record: &[u8]) -> Result<PoolDefinition, BadRecord> {
    let bad = |why| BadRecord { key: String::from_utf8_lossy(key).into_owned(), why };
    let PoolRecord { definition, .. } = PoolRecord::decode(record).map_err(bad)?;
    if definition.pool != *name {
        let reason = format!("it is named {}", definition.pool);
        return Err(bad(Undecodable::Malformed { kind: PoolRecord::KIND, reason }));
    }
    Ok(definition)
}

/// The open ranges without these gateways; none if there is none.
pub(crate) fn open_set(pool: &PoolDefinition, never: &[IpAddr]) -> Option<RangeSet> {
    RangeSet::new(pool.open_ranges(never).ok()?).ok()
}

/// Pools that a run has decoded already. It decides several times on the same texts, which may have hundreds of ranges.
#[derive(Debug, Default)]
pub struct DecodedPools {
    pools: RefCell<BTreeMap<PoolName, Rc<KnownPool>>>,
    /// The stored record, and the pools that `auto` may choose by it.
    auto: RefCell<(Vec<u8>, Rc<[AutoPool]>)>,
}

impl DecodedPools {
    /// The pool of this name; none if it does not exist.
    pub(crate) fn read(
        &self,
        keys: &Keys,
        seen: &Snapshot,
        name: &PoolName,
    ) -> Result<Option<Rc<KnownPool>>, BadRecord> {
        let key = keys.pool(name);
        let Some(entry) = seen.entry(&key) else { return Ok(None) };
        if let Some(known) = self.pools.borrow().get(name).filter(|known| known.text == entry.value) {
            return Ok(Some(known.clone()));
        }
        let definition = decode_pool(name, &entry.key, &entry.value)?;
        let open = open_set(&definition, &[]);
        let known = Rc::new(KnownPool { text: entry.value.clone(), definition, open });
        self.pools.borrow_mut().insert(name.clone(), known.clone());
        Ok(Some(known))
    }

    /// The pools that `auto` may choose.
    pub(crate) fn auto(&self, keys: &Keys, seen: &Snapshot) -> Result<Rc<[AutoPool]>, BadRecord> {
        let key = keys.pool_changes();
        let Some(entry) = seen.entry(&key) else { return Ok(Rc::default()) };
        let mut known = self.auto.borrow_mut();
        if known.0 != entry.value {
            let changes = seen.record::<PoolChanges>(&key)?;
            *known = (entry.value.clone(), changes.map(|changes| changes.auto).unwrap_or_default().into());
        }
        Ok(known.1.clone())
    }
}
