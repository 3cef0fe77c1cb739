//! Pools that change while runs are under way. Whatever the runs had read, an address is given only if a pool gives it
//! at that moment that is named, or that is for the pod.

use std::collections::BTreeMap;
use std::net::IpAddr;

use metes_core::keys::Key;
use metes_core::pool::auto::chosen;
use metes_core::pool::{
    Addr, Facts, NodeLabels, PoolChanges, PoolDefinition, PoolElement, PoolName, PoolRecord, PoolsWanted,
    Range, RangeState, Record, Reservation, Standing,
};
use metes_core::txn::{Op, Txn};

use super::plan::Config;
use super::tree::words;
use super::{World, checked};

/// The pool that a configuration names. It has both ranges.
const NAMED: &str = "storage";
/// The pools that `auto` chooses from. Each has one of the ranges.
const CHOSEN: [&str; 2] = ["left", "right"];

/// The wish of a sandbox of this configuration for pools.
pub(crate) fn wanted(config: &Config, request: Option<IpAddr>) -> PoolsWanted {
    let element = if config.is_auto { PoolElement::auto() } else { PoolElement::of(vec![checked(NAMED)]) };
    let requests = request.into_iter().collect();
    PoolsWanted { order: Some(config.order), requests, ..PoolsWanted::of(vec![element]) }
}

impl World<'_> {
    /// Every range is open, and `auto` may choose each.
    pub(crate) fn open_pools(&mut self) -> Result<(), String> {
        self.set_all(RangeState::Open)
    }

    /// No range is open any more.
    pub(crate) fn close_pools(&mut self) -> Result<(), String> {
        self.set_all(RangeState::Draining)
    }

    fn set_all(&mut self, state: RangeState) -> Result<(), String> {
        let Some(ranges) = self.ranges_of_pools() else { return Ok(()) };
        let [left, right] = [0, 1].map(|at| text(CHOSEN[at], &[(&ranges[at], state)], Some(0)));
        let named: Vec<_> = ranges.iter().map(|range| (range, state)).collect();
        self.put_pools(&[text(NAMED, &named, None), left, right])
    }

    /// The pool that `auto` does not choose comes before the one that it chooses, which stays as it is.
    pub(crate) fn outrank(&mut self) -> Result<(), String> {
        let Some(ranges) = self.ranges_of_pools() else { return Ok(()) };
        let priority = |name: &str| self.stored_pool(&checked(name)).map_or(0, |pool| pool.priority);
        let [left, right] = CHOSEN.map(priority);
        let (at, priority) = if left >= right { (1, left + 1) } else { (0, right + 1) };
        self.put_pools(&[text(CHOSEN[at], &[(&ranges[at], RangeState::Open)], Some(priority))])
    }

    /// An operator opens, drains and closes ranges, changes which pool is chosen, or deletes a pool.
    pub(crate) fn edit_pools(&mut self) -> Result<(), String> {
        self.count("pool changed");
        let Some(ranges) = self.ranges_of_pools() else { return Ok(()) };
        if self.chance.one_in(10) {
            return self.by_hand(vec![Op::Delete(self.shared.keys.pool(&checked(NAMED)))]);
        }
        let state = |world: &Self| *world.chance.pick(&RangeState::ALL);
        let changed = match self.chance.below(4) {
            0 => text(CHOSEN[0], &[(&ranges[0], state(self))], Some(0)),
            1 => text(CHOSEN[1], &[(&ranges[1], state(self))], Some(*self.chance.pick(&[-1, 0, 1]))),
            _ => text(NAMED, &[(&ranges[0], state(self)), (&ranges[1], state(self))], None),
        };
        self.put_pools(&[changed])
    }

    /// The ranges of the configurations with pools, if there are some.
    fn ranges_of_pools(&self) -> Option<Vec<Range>> {
        let pooled = self.plan.configs.iter().find(|config| config.is_pooled)?;
        Some(pooled.sets[0].ranges().to_vec())
    }

    fn put_pools(&mut self, texts: &[String]) -> Result<(), String> {
        let keys = &self.shared.keys;
        let names = [NAMED, CHOSEN[0], CHOSEN[1]].map(checked::<PoolName>);
        let mut pools: BTreeMap<PoolName, PoolDefinition> =
            names.into_iter().filter_map(|name| Some((name.clone(), self.stored_pool(&name)?))).collect();
        let mut ops = Vec::new();
        for text in texts {
            let record = format!(r#"{{"v":1,"definition":{text}}}"#);
            let record = PoolRecord::decode(record.as_bytes()).map_err(|e| format!("{text}: {e}"))?;
            ops.push(Op::Put(keys.pool(&record.definition.pool), record.encode(), None));
            pools.insert(record.definition.pool.clone(), record.definition);
        }
        ops.push(Op::Put(keys.pool_changes(), PoolChanges::of(pools.values()).encode(), None));
        self.by_hand(ops)
    }

    fn stored_pool(&self, name: &PoolName) -> Option<PoolDefinition> {
        let stored = self.model.entry(&self.shared.keys.pool(name))?;
        Some(PoolRecord::decode(&stored.value).ok()?.definition)
    }

    /// The ranges that a sandbox of this configuration may be given an address of now.
    fn given_now(&self, config: &Config) -> Vec<Range> {
        let stored = self.model.entry(&self.shared.keys.pool_changes());
        let auto =
            stored.and_then(|stored| PoolChanges::decode(&stored.value).ok()).map(|changes| changes.auto);
        let labels = NodeLabels::default();
        // These pools are for everybody.
        let facts =
            Facts { cluster: "", namespace: "", pod: "", network: "", node: "", node_labels: &labels };
        let names = match config.is_auto {
            true => chosen(&auto.unwrap_or_default(), facts),
            false => vec![checked(NAMED)],
        };
        let pools = names.iter().filter_map(|name| self.stored_pool(name));
        pools.flat_map(|pool| pool.open_ranges(&[]).unwrap_or_default()).collect()
    }

    /// An address that a transaction newly gives to a sandbox, and that no pool gives now.
    pub(crate) fn takes_closed(&self, txn: &Txn) -> Option<String> {
        if !self.plan.configs.iter().any(|config| config.is_pooled) {
            return None;
        }
        let keys = &self.shared.keys;
        self.model.path(txn).effects().into_iter().find_map(|(step, op)| {
            let Op::Put(key, value, _) = op else { return None };
            let Ok(Key::Ip(_, address)) = keys.parse(key) else { return None };
            let owner = Reservation::decode(value).ok()?.owner;
            let sandbox = &self.truth.sandboxes[self.truth.sandbox_of(&owner)?];
            let is_new = self.model.entry(key).is_none() && step != "assign";
            let gives = |range: &Range| range.standing(address) == Standing::Assignable;
            let config = &self.plan.configs[sandbox.config];
            let is_wrong = is_new && config.is_pooled && !self.given_now(config).iter().any(gives);
            is_wrong.then(|| {
                let address = Addr::ip(address);
                format!("{} was given {address}, which no pool gives it", words(&owner))
            })
        })
    }
}

/// A pool of these ranges, which is for everybody if it has a priority.
fn text(name: &str, ranges: &[(&Range, RangeState)], priority: Option<i32>) -> String {
    let range = |(range, state): &(&Range, RangeState)| {
        let (first, last, prefix_len) = (range.first(), range.last(), range.prefix_len());
        format!(r#"{{"range":"{first}-{last}/{prefix_len}","state":"{state}"}}"#)
    };
    let texts: Vec<String> = ranges.iter().map(range).collect();
    let selector =
        priority.map(|priority| format!(r#","for":{{}},"priority":{priority}"#)).unwrap_or_default();
    let network = ranges[0].0.network();
    format!(r#"{{"pool":"{name}","network":"{network}","ranges":[{}]{selector}}}"#, texts.join(","))
}
