//! How much of each pool is held. Pure.

use std::collections::BTreeMap;

use serde::Serialize;

use super::seen::Network;
use crate::pool::definition::{PoolDefinition, RangeState};
use crate::pool::names::PoolName;
use crate::pool::{Addr, NetworkName, Standing};

/// How many addresses of a pool are held, and free.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PoolCounts {
    /// The pool.
    pub pool: PoolName,
    /// The network of its addresses.
    pub network: NetworkName,
    /// The addresses that its open ranges give, held or not.
    pub size: u128,
    /// Held in open ranges, by whomever.
    pub held: usize,
    /// Those of `size` that nobody holds and that are not cooling.
    pub free: u128,
    /// Those of `size` that are cooling.
    pub cooling: usize,
    /// Held in draining and closed ranges, by whomever.
    pub draining: usize,
}

impl PoolCounts {
    pub(super) fn of(definition: &PoolDefinition, networks: &BTreeMap<NetworkName, Network>) -> Self {
        let PoolDefinition { pool, network, .. } = definition;
        let (pool, name) = (pool.clone(), network.clone());
        let mut counts = Self { pool, network: name, size: 0, held: 0, free: 0, cooling: 0, draining: 0 };
        let reserved = networks.get(network).map(|network| &network.ips);
        let resting = networks.get(network).map(|network| &network.cooling);
        // A definition that was read has sound ranges.
        let ranges = definition.all_ranges().unwrap_or_default();
        for (written, range) in definition.ranges.iter().zip(&ranges) {
            let held = || reserved.into_iter().flat_map(|ips| ips.range(range.first()..=range.last()));
            if written.state != RangeState::Open {
                counts.draining += held().count();
                continue;
            }
            let given = held().filter(|(address, _)| range.standing(**address) == Standing::Assignable);
            let is_resting = |address: &&Addr| {
                let is_held = reserved.is_some_and(|ips| ips.contains_key(*address));
                range.standing(**address) == Standing::Assignable && !is_held
            };
            let resting = resting.into_iter().flat_map(|all| all.range(range.first()..=range.last()));
            let cooling = resting.filter(is_resting).count();
            counts.size = counts.size.saturating_add(range.size());
            counts.held += held().count();
            counts.cooling += cooling;
            let free = range.size() - given.count() as u128 - cooling as u128;
            counts.free = counts.free.saturating_add(free);
        }
        counts
    }
}
