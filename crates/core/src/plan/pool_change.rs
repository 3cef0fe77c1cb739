//! The operator's changes of pools: what they rely on, judged against all pools as they were read. Pure.
//!
//! Every change compares and writes `v1/pools`. So of two changes that were judged side by side only one is applied,
//! and the other is judged anew against it. What it writes there says of all pools whom they are for: an ADD that asks
//! for `auto` reads and compares this one key.

use std::collections::BTreeMap;

use super::known_pool::decode_pool;
use crate::builder::Builder;
use crate::keys::{Key, Keys};
use crate::meta::{self, OutOfService};
use crate::pool::auto::{AutoPool, auto_pools};
use crate::pool::{
    Meta, NetworkName, POOL_BYTES, POOL_CHANGES_BYTES, PoolChanges, PoolDefinition, PoolName, PoolRecord,
    Range, RangeState, Record, Standing,
};
use crate::snapshot::{BadRecord, Snapshot};
use crate::txn::{Entry, Reply, Txn};

/// All pools of a store, and what else a change of one relies on, as of one revision.
#[derive(Debug, Clone, Default)]
pub struct StoredPools {
    seen: Snapshot,
    pools: BTreeMap<PoolName, PoolDefinition>,
    bad: Vec<BadRecord>,
    has_allocations: bool,
    /// True if what `auto` chooses by is not what the pools say. Somebody has changed it with other tools.
    is_contradicted: bool,
}

/// The wanted state of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PoolIntent {
    /// It is to be so.
    Put(Box<PoolDefinition>),
    /// It is to be gone.
    Delete(PoolName),
}

/// The numbers of held addresses that decide about a change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeldOfPool {
    /// Of the addresses that were taken from the pool.
    pub from_pool: usize,
    /// Of the addresses in the pool's ranges as they are stored, wherever they were taken from.
    pub in_ranges: usize,
}

/// Why a change of a pool is refused. Nothing is written then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PoolChangeRefused {
    /// The store takes no new addresses, so it takes no pools either.
    #[error("the store takes no change of a pool: {}", .0.words())]
    OutOfService(OutOfService),
    /// A record does not decode, so the pools cannot be judged.
    #[error("stored state cannot be decoded: {0}; a newer metes may have written it")]
    Bad(BadRecord),
    /// There is no pool of this name.
    #[error("there is no pool {:?}", .0.as_str())]
    Missing(PoolName),
    /// The record would be too large.
    #[error(
        "pool {pool} has {bytes} bytes when it is stored: at most {POOL_BYTES} are allowed; make two pools of it"
    )]
    TooLarge {
        /// The pool.
        pool: PoolName,
        /// The size of its record.
        bytes: usize,
    },
    /// The record that says whom each pool is for would be too large.
    #[error(
        "the `for` of all pools together would have {bytes} bytes: at most {POOL_CHANGES_BYTES} are allowed; use \
         patterns, or fewer pools that have a `for`"
    )]
    TooManySelectors {
        /// The size of the record that says it.
        bytes: usize,
    },
    /// The network cannot change: the addresses of the pool that are held are held in the old network.
    #[error(
        "the network of pool {pool} cannot change from {from} to {to}: a range of it is open, or addresses of it are \
         held in {from} ({held} now); make a pool of another name in {to}, and drain this one"
    )]
    NetworkChanges {
        /// The pool.
        pool: PoolName,
        /// Its network.
        from: NetworkName,
        /// The network that it was to have.
        to: NetworkName,
        /// The number of its addresses that are held.
        held: usize,
    },
    /// An address would have two gateways or two prefix lengths.
    #[error(
        "range {range} of pool {pool} overlaps {other_range} of pool {other}, and their gateways or prefix lengths \
         differ ({sides}): give both the same, or ranges that do not overlap"
    )]
    Overlap {
        /// The pool.
        pool: PoolName,
        /// Its range.
        range: String,
        /// The other pool of the network.
        other: PoolName,
        /// Its range.
        other_range: String,
        /// Prefix length and gateway of each, in words.
        sides: String,
    },
    /// One pool would give the gateway of another one to a pod.
    #[error(
        "{address} is the gateway of a range of pool {of}, and pool {by} would give it to a pod: exclude it there"
    )]
    GivesGateway {
        /// The gateway.
        address: std::net::IpAddr,
        /// The pool whose gateway it is.
        of: PoolName,
        /// The pool that has it in a range.
        by: PoolName,
    },
    /// A pool is deleted only if all its ranges are closed and empty.
    #[error("pool {pool} is not deleted: {}; see `metes list {pool} --as pool`", in_use(ranges, *held))]
    InUse {
        /// The pool.
        pool: PoolName,
        /// The ranges that are not closed.
        ranges: Vec<String>,
        /// The number of held addresses in its ranges.
        held: usize,
    },
}

impl StoredPools {
    /// Takes one key as it was read.
    pub fn see(&mut self, keys: &Keys, entry: &Entry) {
        match keys.parse(&entry.key) {
            Ok(Key::Meta | Key::PoolChanges) => self.seen.set(&entry.key, Some(entry.clone())),
            Ok(Key::Pool(name)) => {
                self.seen.set(&entry.key, Some(entry.clone()));
                match decode_pool(&name, &entry.key, &entry.value) {
                    Ok(definition) => _ = self.pools.insert(name, definition),
                    Err(bad) => self.bad.push(bad),
                }
            }
            Ok(
                Key::Page(..)
                | Key::Summary(..)
                | Key::Ip(..)
                | Key::Cursor(..)
                | Key::Owner(_)
                | Key::Pod(_),
            ) => {
                self.has_allocations = true;
            }
            _ => {}
        }
    }

    /// Everything was read, at this revision: what was not seen does not exist.
    pub fn complete(&mut self, keys: &Keys, revision: i64) {
        self.seen.revision = revision;
        for key in [keys.meta(), keys.pool_changes()] {
            if !self.seen.knows(&key) {
                self.seen.set(&key, None);
            }
        }
        self.is_contradicted = self.auto(keys).is_ok_and(|auto| auto != auto_pools(self.iter()));
    }

    /// The pools, by name.
    pub fn iter(&self) -> impl Iterator<Item = &PoolDefinition> {
        self.pools.values()
    }

    /// The pool of this name.
    #[must_use]
    pub fn get(&self, name: &PoolName) -> Option<&PoolDefinition> {
        self.pools.get(name)
    }

    /// The mod revision of a pool; 0 if there is none.
    #[must_use]
    pub fn revision_of(&self, keys: &Keys, name: &PoolName) -> i64 {
        self.seen.mod_revision(&keys.pool(name))
    }

    /// The pools that do not decode.
    #[must_use]
    pub fn bad(&self) -> &[BadRecord] {
        &self.bad
    }

    /// The pools that `auto` may choose, as an ADD reads them.
    ///
    /// # Errors
    /// [`BadRecord`]
    pub fn auto(&self, keys: &Keys) -> Result<Vec<AutoPool>, BadRecord> {
        let changes = self.seen.record::<PoolChanges>(&keys.pool_changes())?;
        Ok(changes.map(|changes| changes.auto).unwrap_or_default())
    }

    /// True if nothing is stored: a store must be founded before the first pool is written.
    #[must_use]
    pub fn lacks_store(&self, keys: &Keys) -> bool {
        self.seen.entry(&keys.meta()).is_none() && !self.has_allocations
    }

    /// Takes it that a store was founded, to foresee what a change would do.
    pub fn assume_founded(&mut self, keys: &Keys) {
        let (key, value) = (keys.meta(), Meta::first(String::new()).encode());
        let entry = Entry { key: key.clone(), value, create_revision: 0, mod_revision: 0, lease: 0 };
        self.seen.set(&key, Some(entry));
    }

    /// The transaction that carries out an intent; none if there is nothing to change.
    ///
    /// # Errors
    /// [`PoolChangeRefused`]
    pub fn plan(
        &mut self,
        keys: &Keys,
        intent: &PoolIntent,
        held: &HeldOfPool,
    ) -> Result<Option<Txn>, PoolChangeRefused> {
        self.in_service(keys)?;
        let name = intent.pool();
        let stored = self.pools.get(name);
        match intent {
            PoolIntent::Put(definition) if stored == Some(&**definition) && !self.is_contradicted => {
                return Ok(None);
            }
            PoolIntent::Put(definition) => self.judge(definition, stored, held)?,
            PoolIntent::Delete(_) => {
                may_be_deleted(stored.ok_or_else(|| PoolChangeRefused::Missing(name.clone()))?, held)?;
            }
        }
        let key = keys.pool(name);
        if !self.seen.knows(&key) {
            self.seen.set(&key, None);
        }
        let mut builder = Builder::new("pool", &self.seen);
        builder.same_value(keys.meta());
        builder.unchanged(keys.pool_changes());
        builder.unchanged(key.clone());
        let new = match intent {
            PoolIntent::Put(definition) => Some(&**definition),
            PoolIntent::Delete(_) => None,
        };
        let others = self.pools.values().filter(|pool| pool.pool != *name);
        let changes = PoolChanges::of(others.chain(new)).encode();
        if changes.len() > POOL_CHANGES_BYTES {
            return Err(PoolChangeRefused::TooManySelectors { bytes: changes.len() });
        }
        builder.put(keys.pool_changes(), changes);
        match intent {
            PoolIntent::Put(definition) => {
                let record = PoolRecord::new(PoolDefinition::clone(definition)).encode();
                if record.len() > POOL_BYTES {
                    return Err(PoolChangeRefused::TooLarge { pool: name.clone(), bytes: record.len() });
                }
                builder.put(key, record);
            }
            PoolIntent::Delete(_) => builder.delete(key),
        }
        Ok(Some(builder.finish().expect("all that it relies on is known")))
    }

    /// Takes over what an applied transaction has written.
    pub fn applied(&mut self, intent: &PoolIntent, txn: &Txn, reply: &Reply) {
        self.seen.apply(txn, reply);
        self.assume(intent);
    }

    /// Takes over an intent as if it were carried out, so that the next one is judged by it.
    pub fn assume(&mut self, intent: &PoolIntent) {
        self.is_contradicted = false;
        match intent {
            PoolIntent::Put(definition) => {
                self.pools.insert(definition.pool.clone(), PoolDefinition::clone(definition));
            }
            PoolIntent::Delete(name) => _ = self.pools.remove(name),
        }
    }

    /// Checks that the store may be written to, by the same rules as an ADD.
    fn in_service(&self, keys: &Keys) -> Result<(), PoolChangeRefused> {
        let meta = self.seen.record::<Meta>(&keys.meta()).map_err(PoolChangeRefused::Bad)?;
        meta::judge(meta.as_ref()).map_err(PoolChangeRefused::OutOfService)?;
        self.seen.record::<PoolChanges>(&keys.pool_changes()).map_err(PoolChangeRefused::Bad)?;
        self.bad.first().map_or(Ok(()), |bad| Err(PoolChangeRefused::Bad(bad.clone())))
    }

    fn judge(
        &self,
        new: &PoolDefinition,
        stored: Option<&PoolDefinition>,
        held: &HeldOfPool,
    ) -> Result<(), PoolChangeRefused> {
        // Where a range is open, an ADD may take an address between this judgement and the change.
        let may_be_held = |old: &PoolDefinition| {
            held.from_pool > 0 || old.ranges.iter().any(|range| range.state == RangeState::Open)
        };
        if let Some(old) = stored.filter(|old| old.network != new.network && may_be_held(old)) {
            return Err(PoolChangeRefused::NetworkChanges {
                pool: new.pool.clone(),
                from: old.network.clone(),
                to: new.network.clone(),
                held: held.from_pool,
            });
        }
        let ranges = new.all_ranges().unwrap_or_default();
        for other in self.others(new) {
            let other_ranges = other.all_ranges().unwrap_or_default();
            for (range, other_range) in overlaps(&ranges, &other_ranges) {
                let sides = [&ranges[range], &other_ranges[other_range]];
                if sides[0].prefix_len() != sides[1].prefix_len() || sides[0].gateway() != sides[1].gateway()
                {
                    return Err(PoolChangeRefused::Overlap {
                        pool: new.pool.clone(),
                        range: new.ranges[range].range.to_string(),
                        other: other.pool.clone(),
                        other_range: other.ranges[other_range].range.to_string(),
                        sides: sides.map(side).join(" and "),
                    });
                }
            }
            gives_no_gateway(other, new, &ranges)?;
            gives_no_gateway(new, other, &other_ranges)?;
        }
        Ok(())
    }

    /// The other pools of the network of this one.
    pub fn others<'a>(&'a self, pool: &'a PoolDefinition) -> impl Iterator<Item = &'a PoolDefinition> {
        self.iter().filter(|other| other.pool != pool.pool && other.network == pool.network)
    }
}

impl PoolIntent {
    /// A pool is to be so.
    #[must_use]
    pub fn put(definition: PoolDefinition) -> Self {
        Self::Put(Box::new(definition))
    }

    /// The pool that it is about.
    #[must_use]
    pub fn pool(&self) -> &PoolName {
        match self {
            PoolIntent::Put(definition) => &definition.pool,
            PoolIntent::Delete(name) => name,
        }
    }
}

/// The positions of the ranges of two pools that have addresses in common.
#[must_use]
pub fn overlaps(ranges: &[Range], others: &[Range]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for (at, range) in ranges.iter().enumerate() {
        for (other_at, other) in others.iter().enumerate() {
            let same_family = range.family() == other.family();
            if same_family && range.first() <= other.last() && other.first() <= range.last() {
                found.push((at, other_at));
            }
        }
    }
    found
}

/// Refuses ranges of `by` that would give a gateway of `of`.
fn gives_no_gateway(
    of: &PoolDefinition,
    by: &PoolDefinition,
    ranges: &[Range],
) -> Result<(), PoolChangeRefused> {
    let is_given = |&address: &std::net::IpAddr| {
        ranges.iter().any(|range| range.standing(address.into()) == Standing::Assignable)
    };
    match of.ranges.iter().filter_map(|range| range.gateway).find(is_given) {
        None => Ok(()),
        Some(address) => {
            Err(PoolChangeRefused::GivesGateway { address, of: of.pool.clone(), by: by.pool.clone() })
        }
    }
}

fn may_be_deleted(stored: &PoolDefinition, held: &HeldOfPool) -> Result<(), PoolChangeRefused> {
    let is_left = |state: RangeState| state != RangeState::Closed;
    let left = stored.ranges.iter().filter(|range| is_left(range.state));
    let ranges: Vec<String> = left.map(|range| format!("{} is {}", range.range, range.state)).collect();
    // Who has an address of a range that was taken away is a pod of this pool too.
    let held = held.in_ranges.max(held.from_pool);
    if ranges.is_empty() && held == 0 {
        return Ok(());
    }
    Err(PoolChangeRefused::InUse { pool: stored.pool.clone(), ranges, held })
}

fn side(range: &Range) -> String {
    match range.gateway() {
        None => format!("/{} without a gateway", range.prefix_len()),
        Some(gateway) => format!("/{} with gateway {gateway}", range.prefix_len()),
    }
}

fn addresses_are(count: usize) -> String {
    if count == 1 { "1 address is".to_owned() } else { format!("{count} addresses are") }
}

fn in_use(ranges: &[String], held: usize) -> String {
    let open = match ranges {
        [] => String::new(),
        ranges => format!("{}; `metes pool close` closes a range; ", ranges.join(", ")),
    };
    format!("{open}{} held in its ranges", addresses_are(held))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;

    struct World {
        keys: Keys,
        store: Memory,
    }

    fn name(name: &str) -> PoolName {
        name.parse().expect("a name")
    }

    fn definition(text: &str) -> PoolDefinition {
        serde_json::from_str(text).expect(text)
    }

    /// A pool of network `blue` with these ranges.
    fn blue(pool: &str, ranges: &str) -> PoolDefinition {
        definition(&format!(r#"{{"pool":"{pool}","network":"blue","ranges":[{ranges}]}}"#))
    }

    const WHOLE: &str = r#"{"range":"10.0.0.0/24","gateway":"10.0.0.254"}"#;

    impl World {
        fn new(pools: &[PoolDefinition]) -> Self {
            let mut world = Self { keys: Keys::new("/m/"), store: Memory::default() };
            world.store.put(world.keys.meta(), Meta::first("s".into()).encode());
            for pool in pools {
                assert!(world.change(&PoolIntent::put(pool.clone())).expect("it is sound"));
            }
            world
        }

        fn read(&self) -> StoredPools {
            let mut read = StoredPools::default();
            for key in self.store.keys() {
                read.see(&self.keys, self.store.get(key.as_bytes()).expect("it is there"));
            }
            read.complete(&self.keys, 1);
            read
        }

        fn plan(&self, intent: &PoolIntent, held: &HeldOfPool) -> Result<Option<Txn>, PoolChangeRefused> {
            self.read().plan(&self.keys, intent, held)
        }

        /// Plans and applies with nobody who holds anything; whether there was something to change.
        fn change(&mut self, intent: &PoolIntent) -> Result<bool, PoolChangeRefused> {
            let txn = self.plan(intent, &HeldOfPool::default())?;
            Ok(txn.is_some_and(|txn| self.store.apply(&txn).succeeded))
        }
    }

    #[test]
    fn a_pool_is_made_changed_and_deleted() {
        let mut world = World::new(&[blue("a", WHOLE)]);
        assert_eq!(world.read().get(&name("a")), Some(&blue("a", WHOLE)));
        let before = world.store.keys();
        assert_eq!(world.change(&PoolIntent::put(blue("a", WHOLE))), Ok(false), "nothing changes");
        let closed = blue("a", r#"{"range":"10.0.0.0/24","state":"closed"}"#);
        assert_eq!(world.change(&PoolIntent::put(closed)), Ok(true));
        assert_eq!(world.store.keys(), before);
        assert_eq!(world.change(&PoolIntent::Delete(name("a"))), Ok(true));
        assert_eq!(world.store.keys(), ["/m/v1/meta", "/m/v1/pools"]);
        assert_eq!(world.change(&PoolIntent::Delete(name("a"))), Err(PoolChangeRefused::Missing(name("a"))));
    }

    #[test]
    fn of_two_changes_that_were_judged_side_by_side_one_is_applied() {
        let mut world = World::new(&[]);
        let other = r#"{"range":"10.0.0.0/25","gateway":"10.0.0.1"}"#;
        let plan = |pool| world.plan(&PoolIntent::put(pool), &HeldOfPool::default());
        let [one, two] =
            [blue("a", WHOLE), blue("b", other)].map(|pool| plan(pool).expect("sound").expect("new"));
        assert!(world.store.apply(&one).succeeded);
        assert!(!world.store.apply(&two).succeeded, "they overlap");
        let why = world.change(&PoolIntent::put(blue("b", other)));
        assert!(matches!(why, Err(PoolChangeRefused::Overlap { .. })), "{why:?}");
    }

    #[test]
    fn several_documents_are_judged_and_written_one_after_the_other() {
        let mut world = World::new(&[]);
        let mut read = world.read();
        let intents = [blue("a", WHOLE), blue("b", r#"{"range":"10.0.1.0/24"}"#)].map(PoolIntent::put);
        for intent in &intents {
            let txn = read.plan(&world.keys, intent, &HeldOfPool::default());
            let txn = txn.expect("sound").expect("new");
            let reply = world.store.apply(&txn);
            assert!(reply.succeeded);
            read.applied(intent, &txn, &reply);
        }
        assert_eq!(world.read().iter().count(), 2);
    }

    #[test]
    fn a_store_out_of_service_refuses() {
        let intent = PoolIntent::put(blue("a", WHOLE));
        let meta = |change: fn(&mut Meta)| {
            let mut meta = Meta::first("s".into());
            change(&mut meta);
            meta
        };
        for bad in [
            meta(|meta| meta.suspect = Some(1)),
            meta(|meta| meta.paused = Some("import".into())),
            meta(|meta| meta.min_writer = 9),
        ] {
            let mut world = World::new(&[]);
            world.store.put(world.keys.meta(), bad.encode());
            let why = world.change(&intent);
            assert!(matches!(why, Err(PoolChangeRefused::OutOfService(_))), "{why:?}");
        }
        let mut world = World::new(&[]);
        world.store.put(world.keys.pool(&name("other")), b"?".to_vec());
        assert!(matches!(world.change(&intent), Err(PoolChangeRefused::Bad(_))));
    }

    #[test]
    fn without_a_meta_no_pool_is_written() {
        let mut world = World { keys: Keys::new("/m/"), store: Memory::default() };
        let refused = Err(PoolChangeRefused::OutOfService(OutOfService::NoMeta));
        assert_eq!(world.change(&PoolIntent::put(blue("a", WHOLE))), refused);
        assert!(world.read().lacks_store(&world.keys), "one may be founded");
        let mut foreseen = world.read();
        foreseen.assume_founded(&world.keys);
        let planned = foreseen.plan(&world.keys, &PoolIntent::put(blue("a", WHOLE)), &HeldOfPool::default());
        assert!(planned.is_ok_and(|txn| txn.is_some()));
        let address = "10.0.0.1".parse::<std::net::IpAddr>().expect("an address");
        world.store.put(world.keys.ip(&NetworkName::default(), address.into()), b"?".to_vec());
        assert_eq!(world.change(&PoolIntent::put(blue("a", WHOLE))), refused);
        assert!(!world.read().lacks_store(&world.keys), "a lost meta is not made anew");
    }

    #[test]
    fn what_is_held_decides() {
        let world = World::new(&[blue("a", WHOLE)]);
        let moved = definition(r#"{"pool":"a","network":"green","ranges":[{"range":"10.0.0.0/24"}]}"#);
        let held = HeldOfPool { from_pool: 1, in_ranges: 1 };
        let why = world.plan(&PoolIntent::put(moved.clone()), &held);
        assert!(matches!(why, Err(PoolChangeRefused::NetworkChanges { held: 1, .. })), "{why:?}");
        let of_others = HeldOfPool { from_pool: 0, in_ranges: 1 };
        let why = world.plan(&PoolIntent::put(moved.clone()), &of_others);
        assert!(
            matches!(why, Err(PoolChangeRefused::NetworkChanges { .. })),
            "somebody may take one now: {why:?}"
        );
        let closed = World::new(&[blue("a", r#"{"range":"10.0.0.0/24","state":"closed"}"#)]);
        assert!(closed.plan(&PoolIntent::put(moved), &of_others).is_ok());

        let why = world.plan(&PoolIntent::Delete(name("a")), &HeldOfPool::default()).expect_err("it is open");
        assert!(why.to_string().contains("10.0.0.0/24 is open"), "{why}");
        let world = World::new(&[blue("a", r#"{"range":"10.0.0.0/24","state":"closed"}"#)]);
        let outside = HeldOfPool { from_pool: 1, in_ranges: 0 };
        for held in [held, outside] {
            let why = world.plan(&PoolIntent::Delete(name("a")), &held).expect_err("one is held");
            assert!(why.to_string().contains("1 address is held"), "{why}");
        }
    }

    #[test]
    fn pools_of_a_network_agree_where_they_meet() {
        let world = World::new(&[blue("a", WHOLE)]);
        let half = r#"{"range":"10.0.0.1-10.0.0.9/24","gateway":"10.0.0.254"}"#;
        for (other, expected) in [
            (half, None),
            (
                r#"{"range":"10.0.0.1-10.0.0.9/24"}"#,
                Some("(/24 without a gateway and /24 with gateway 10.0.0.254)"),
            ),
            (
                r#"{"range":"10.0.0.0/25","gateway":"10.0.0.126"}"#,
                Some("range 10.0.0.0/25 of pool b overlaps 10.0.0.0/24 of pool a"),
            ),
            (r#"{"range":"10.0.1.0/24","gateway":"10.0.1.254"}"#, None),
        ] {
            let why = world.plan(&PoolIntent::put(blue("b", other)), &HeldOfPool::default()).err();
            let why = why.map(|why| why.to_string());
            match expected {
                None => assert_eq!(why, None, "{other}"),
                Some(expected) => {
                    assert!(why.as_ref().is_some_and(|w| w.contains(expected)), "{other}: {why:?}")
                }
            }
        }
        let elsewhere = definition(r#"{"pool":"b","network":"green","ranges":[{"range":"10.0.0.0/25"}]}"#);
        assert!(world.plan(&PoolIntent::put(elsewhere), &HeldOfPool::default()).is_ok());

        let low = blue("a", r#"{"range":"10.0.0.1-10.0.0.9/24","gateway":"10.0.0.254"}"#);
        let world = World::new(&[low]);
        let high = blue("b", r#"{"range":"10.0.0.100-10.0.0.254/24"}"#);
        let why = world.plan(&PoolIntent::put(high), &HeldOfPool::default()).expect_err("it has the gateway");
        assert!(
            why.to_string().contains("10.0.0.254 is the gateway of a range of pool a, and pool b"),
            "{why}"
        );
    }

    #[test]
    fn every_change_says_whom_all_pools_are_for() {
        let of_team = |pool: &str, priority: i32, selector: &str| {
            let range = format!("10.0.{}.0/24", pool.len());
            let ranges = format!(r#"[{{"range":"{range}","state":"closed"}}]"#);
            definition(&format!(
                r#"{{"pool":"{pool}","for":{selector},"priority":{priority},"ranges":{ranges}}}"#
            ))
        };
        let team = r#"{"namespaces":"team-a"}"#;
        let mut world = World::new(&[of_team("a", 1, team), blue("plain", WHOLE), of_team("bb", 2, "{}")]);
        let names = |world: &World| -> Vec<String> {
            let entry = world.store.get(&world.keys.pool_changes()).expect("it is there");
            let changes = PoolChanges::decode(&entry.value).expect("decodes");
            changes.auto.iter().map(|pool| format!("{} {}", pool.pool, pool.priority)).collect()
        };
        assert_eq!(names(&world), ["bb 2", "a 1"]);
        assert_eq!(world.change(&PoolIntent::put(of_team("a", 3, team))), Ok(true));
        assert_eq!(names(&world), ["a 3", "bb 2"]);
        assert_eq!(world.change(&PoolIntent::Delete(name("a"))), Ok(true));
        assert_eq!(names(&world), ["bb 2"]);

        // What somebody has written with other tools is corrected, also if the pool does not change.
        world.store.put(world.keys.pool_changes(), PoolChanges::of([]).encode());
        assert_eq!(world.change(&PoolIntent::put(of_team("bb", 2, "{}"))), Ok(true));
        assert_eq!(names(&world), ["bb 2"]);
        assert_eq!(world.change(&PoolIntent::put(of_team("bb", 2, "{}"))), Ok(false));

        let many = serde_json::json!({"pods": vec!["p".repeat(60); 900]}).to_string();
        let changed = ["c", "dd", "eee", "ffff", "ggggg"]
            .map(|pool| world.change(&PoolIntent::put(of_team(pool, 0, &many))));
        assert_eq!(changed[..4], [Ok(true), Ok(true), Ok(true), Ok(true)]);
        assert!(matches!(changed[4], Err(PoolChangeRefused::TooManySelectors { .. })), "{:?}", changed[4]);
    }

    #[test]
    fn a_record_of_more_than_64_kib_is_refused() {
        let many: Vec<String> = (0..6000).map(|at| format!("10.{}.{}.0/28", at / 256, at % 256)).collect();
        let ranges = format!(r#"{{"range":"10.0.0.0/8","exclude":{}}}"#, serde_json::json!(many));
        let why = World::new(&[]).change(&PoolIntent::put(blue("a", &ranges)));
        assert!(matches!(why, Err(PoolChangeRefused::TooLarge { .. })), "{why:?}");
    }
}
