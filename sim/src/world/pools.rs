//! A pool whose text changes while runs are under way. Whatever they had read, no address is given that the pool does
//! not give at that moment.

use std::net::IpAddr;

use metes::pool::definition::RangeState;
use metes::pool::names::PoolName;
use metes::pool::record::{PoolChanges, PoolRecord, Record, Reservation};
use metes::pool::{Addr, PoolElement, PoolsWanted, Range, Standing};
use metes::store::keys::Key;
use metes::store::txn::{Op, Txn};

use super::plan::Config;
use super::tree::words;
use super::{World, checked};

/// The only pool.
fn name() -> PoolName {
    checked("storage")
}

/// What a sandbox of this configuration asks of the pool.
pub(crate) fn wanted(config: &Config, request: Option<IpAddr>) -> PoolsWanted {
    let elements = vec![PoolElement::of(vec![name()])];
    let requests = request.into_iter().collect();
    PoolsWanted { order: Some(config.order), requests, ..PoolsWanted::of(elements) }
}

impl World<'_> {
    /// Every range is open.
    pub(crate) fn open_pool(&mut self) -> Result<(), String> {
        self.put_pool(|_, _| RangeState::Open)
    }

    /// No range is open any more.
    pub(crate) fn close_pool(&mut self) -> Result<(), String> {
        self.put_pool(|_, _| RangeState::Draining)
    }

    /// An operator opens, drains and closes ranges, or deletes the pool.
    pub(crate) fn edit_pool(&mut self) -> Result<(), String> {
        self.count("pool changed");
        if self.chance.one_in(10) {
            return self.by_hand(vec![Op::Delete(self.shared.keys.pool(&name()))]);
        }
        self.put_pool(|world, _| *world.chance.pick(&RangeState::ALL))
    }

    fn put_pool(&mut self, state: impl Fn(&Self, usize) -> RangeState) -> Result<(), String> {
        let Some(pooled) = self.plan.configs.iter().find(|config| config.is_pooled) else { return Ok(()) };
        let ranges = pooled.sets[0].ranges();
        let text = |(at, range): (usize, &Range)| {
            let (first, last, prefix_len) = (range.first(), range.last(), range.prefix_len());
            format!(r#"{{"range":"{first}-{last}/{prefix_len}","state":"{}"}}"#, state(self, at))
        };
        let texts: Vec<String> = ranges.iter().enumerate().map(text).collect();
        let (name, network) = (name(), ranges[0].network());
        let pool = format!(r#"{{"pool":"{name}","network":"{network}","ranges":[{}]}}"#, texts.join(","));
        let text = format!(r#"{{"v":1,"definition":{pool}}}"#);
        let record = PoolRecord::decode(text.as_bytes()).map_err(|e| format!("{text}: {e}"))?;
        let keys = &self.shared.keys;
        let ops = vec![
            Op::Put(keys.pool(&name), record.encode(), None),
            Op::Put(keys.pool_changes(), PoolChanges::of([&record.definition]).encode(), None),
        ];
        self.by_hand(ops)
    }

    /// What a transaction newly gives to a sandbox, and the pool does not give now.
    pub(crate) fn takes_closed(&self, txn: &Txn) -> Option<String> {
        if !self.plan.configs.iter().any(|config| config.is_pooled) {
            return None;
        }
        let keys = &self.shared.keys;
        let pool =
            self.model.entry(&keys.pool(&name())).and_then(|stored| PoolRecord::decode(&stored.value).ok());
        let open = pool.and_then(|pool| pool.definition.open_ranges(&[]).ok()).unwrap_or_default();
        self.model.path(txn).effects().into_iter().find_map(|(step, op)| {
            let Op::Put(key, value, _) = op else { return None };
            let Ok(Key::Ip(_, address)) = keys.parse(key) else { return None };
            let owner = Reservation::decode(value).ok()?.owner;
            let sandbox = &self.truth.sandboxes[self.truth.sandbox_of(&owner)?];
            let is_new = self.model.entry(key).is_none() && step != "claim";
            let gives = |range: &Range| range.standing(address) == Standing::Assignable;
            let is_wrong = is_new && self.plan.configs[sandbox.config].is_pooled && !open.iter().any(gives);
            is_wrong.then(|| {
                let address = Addr::ip(address);
                format!("{} was given {address}, which the pool does not give", words(&owner))
            })
        })
    }
}
