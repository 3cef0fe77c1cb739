//! How much of each pool is held. Pure.

use std::collections::BTreeMap;

use serde::Serialize;

use super::seen::Network;
use crate::pool::definition::{PoolDefinition, RangeState};
use crate::pool::names::PoolName;
use crate::pool::{NetworkName, RangeCounts};

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
        let nobody = Network::default();
        let seen = networks.get(network).unwrap_or(&nobody);
        // A definition that was read has sound ranges.
        let ranges = definition.all_ranges().unwrap_or_default();
        for (written, range) in definition.ranges.iter().zip(&ranges) {
            let bounds = range.first()..=range.last();
            let held = seen.ips.range(bounds.clone()).map(|(address, _)| (*address, false));
            let of_range = RangeCounts::of(range, held, seen.cooling.range(bounds).copied());
            if written.state != RangeState::Open {
                counts.draining += of_range.held;
                continue;
            }
            counts.size = counts.size.saturating_add(of_range.size);
            counts.held += of_range.held;
            counts.cooling += of_range.cooling;
            counts.free = counts.free.saturating_add(of_range.free);
        }
        counts
    }
}
