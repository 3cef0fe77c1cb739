//! The holders of each pool's addresses, found in one pass over all held addresses. Pure.

use std::collections::BTreeMap;

use crate::inventory::{Inventory, Row};
use metes_core::pool::{Addr, PoolDefinition, PoolName};

/// All that is held, by the pool that it was taken from.
pub(super) struct HeldOfPools<'i> {
    pub(super) inventory: &'i Inventory,
    taken: BTreeMap<&'i PoolName, Vec<&'i Row>>,
}

impl<'i> HeldOfPools<'i> {
    pub(super) fn new(inventory: &'i Inventory) -> Self {
        let mut taken: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for row in &inventory.rows {
            if let Some(from) = &row.pool {
                taken.entry(&from.name).or_default().push(row);
            }
        }
        Self { inventory, taken }
    }

    /// The addresses taken from this pool.
    pub(super) fn taken(&self, pool: &PoolName) -> &[&'i Row] {
        self.taken.get(pool).map_or(&[], Vec::as_slice)
    }

    /// The addresses that were taken from one of these pools, or lie in a range of theirs; once each, in the
    /// inventory's order.
    pub(super) fn concerned<'p>(&self, pools: impl IntoIterator<Item = &'p PoolDefinition>) -> Vec<&'i Row> {
        let mut rows: Vec<&Row> = Vec::new();
        for PoolDefinition { pool, network, ranges, .. } in pools {
            rows.extend(self.taken(pool));
            for written in ranges {
                let (first, last) = written.range.bounds();
                rows.extend(self.inventory.between(network, Addr::from(first), Addr::from(last)));
            }
        }
        // All of them are in one slice.
        rows.sort_by_key(|row| std::ptr::from_ref(*row));
        rows.dedup_by(|a, b| std::ptr::eq(*a, *b));
        rows
    }
}
