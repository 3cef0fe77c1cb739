//! ADD: an address for one interface of one container.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Run, errors};
use crate::cni::error::{Code, Error};
use crate::limits;
use crate::local::recall::LeftBehind;
use crate::local::remember::Leaving;
use crate::pool::cooldown::{Cooldown, WhenFull};
use crate::pool::names::PoolName;
use crate::pool::record::Held;
use crate::pool::{NetworkName, Range, RangeSet, Standing, Wanted};
use crate::store::allot::{Added, Allotment, Allotted, Refused};
use crate::store::ask::Ask;
use crate::store::drive::{Driver, Stopped};
use crate::store::keys::{Bytes, Key, LeaseId};
use crate::store::known_pool::decode_pool;
use crate::store::kv::{Failure, Kv};
use crate::store::pools::{PoolRefused, PoolResult, ReadPools};
use crate::store::repair::{CoolingSeen, SomeRepaired, repair_some};
use crate::store::snapshot::Snapshot;
use crate::store::source::Full;
use crate::store::txn::{Entry, List, Op, Txn};

/// What an ADD comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddDone {
    /// The addresses, in result order.
    pub held: Vec<Held>,
    /// Whether the owner held them before this run.
    pub repeats: bool,
    /// What the pools that they are from add to the result.
    pub of_pools: PoolResult,
}

/// Reserves what `ask` asks for.
///
/// First it carries out what an earlier run of this owner has spooled. If a set seems full, it clears stray bits before
/// it answers so.
///
/// # Errors
/// A CNI error. Then the owner holds nothing new, or a spooled DEL will free it.
pub async fn add<K: Kv>(run: &Run<'_, K>, ask: &Ask) -> Result<AddDone, Error> {
    for kept in run.spool.of(&ask.owner) {
        run.carry_out_spooled(&kept, run.session.until).await?;
    }
    run.must_go_on()?;
    let mut allotment = Allotment::new(ask, run.session.keys);
    let left = LeftBehind::read(run.read_mark(), &run.scope_hints, run.session.keys, &allotment);
    if left.is_nothing() {
        run.must_be_one_etcd().await?;
    }
    let recall = run.recalling(left.known());
    let mut witness = run.witness(&recall, run.own_value(&ask.stamp.created_at));
    if left.is_nothing() {
        witness.other_store = run.node.other_store();
    }
    if !left.has_own_key(&run.own_key) {
        run.node.names().keep_present();
    }
    allotment.keep_ranges(|key| left.has_kept_ranges(key, &ask.stamp.created_at));
    let is_wanted = || run.must_go_on().is_ok();
    let fence = run.session.keys.fence(&run.identity.node);
    let policy = left.policy(&run.start, fence, run.session.until, witness, &is_wanted);
    let mut driver = Driver::new(run.session, policy).expecting(left.pools().clone());
    let added = allot(run, ask, &mut allotment, &left, &mut driver).await;
    if added.is_err() && driver.may_be_served() {
        undo(run, ask).await;
    }
    added
}

async fn allot<K: Kv>(
    run: &Run<'_, K>,
    ask: &Ask,
    allotment: &mut Allotment<'_>,
    left: &LeftBehind,
    driver: &mut Driver<'_, K>,
) -> Result<AddDone, Error> {
    let mut repairs = 0;
    // Of the first pool of which all that is free is cooling.
    let mut all_cool = None;
    loop {
        let allotted = driver.run(allotment).await;
        let leaving = Leaving {
            keys: run.session.keys,
            mark: &run.mark,
            scope_hints: &run.scope_hints,
            start: &run.start,
            now: (run.clock)(),
        };
        leaving.remember(allotment, driver, left);
        let full = match allotted {
            Ok(Allotted::Held(Added { held, repeats })) => {
                let of_pools = match &ask.wanted {
                    Wanted::Ranges(_) => PoolResult::default(),
                    Wanted::Pools(_) => in_result(run, &allotment.pools(driver.shared()), &held).await?,
                };
                return Ok(AddDone { held, repeats, of_pools });
            }
            Ok(Allotted::Full(full)) => full,
            Err(stopped) => return Err(error(run, ask, stopped).await),
        };
        let said = |taken| match &full {
            Full::Ranges(set, _) => errors::full(set, taken),
            Full::Pool { pool, .. } => errors::pool_full(&pool.definition, taken),
        };
        // Stray bits may fill the set, and others may have freed something since.
        let is_wanted = || run.must_go_on().is_ok();
        let may_repair = repairs < limits::REPAIRS;
        let repaired = match full.set() {
            Some((set, Cooldown { when_full, .. })) => {
                // The last look is only to tell what is cooling.
                let when_full = if may_repair { when_full } else { WhenFull::Wait };
                repair_some(run.session, set, driver.shared(), when_full, &is_wanted).await?
            }
            None => SomeRepaired::default(),
        };
        if repaired.may_have_room && may_repair {
            repairs += 1;
        } else {
            if all_cool.is_none() && !repaired.cooling.is_empty() {
                let left = first_end(run, &repaired.cooling).await;
                all_cool = Some(errors::all_cool(repaired.cooling.len(), left, said(errors::OR_COOLING)));
            }
            if !allotment.turn_to_next_pool(&full) {
                return Err(match (all_cool, full.set()) {
                    (Some(all_cool), _) => all_cool,
                    (None, Some((set, _))) => {
                        errors::with_set_aside(said(errors::HELD), set_aside(run, set).await)
                    }
                    (None, None) => said(errors::HELD),
                });
            }
            repairs = 0;
        }
        driver.forget_shared();
    }
}

/// What pools add to the result. An owner may hold an address of a pool that is not for it any more.
async fn in_result<K: Kv>(run: &Run<'_, K>, pools: &ReadPools, held: &[Held]) -> Result<PoolResult, Failure> {
    let names = pools.unused(held);
    let keys: Vec<Bytes> = names.iter().map(|name| run.session.keys.pool(name)).collect();
    let mut seen = Snapshot::default();
    run.session.read(&keys, &mut seen).await?;
    let unused = names
        .iter()
        .zip(&keys)
        .filter_map(|(name, key)| decode_pool(name, key, &seen.entry(key)?.value).ok());
    Ok(pools.in_result(held, &unused.collect::<Vec<_>>()))
}

/// For how long the first of these addresses still cools, as far as that is known.
async fn first_end<K: Kv>(run: &Run<'_, K>, cooling: &[CoolingSeen]) -> Option<Duration> {
    let leases: BTreeSet<i64> = cooling.iter().map(|seen| seen.entry.lease).collect();
    let mut first = None;
    for lease in leases.into_iter().take(LEASES_ASKED) {
        let Ok(Some(age)) = run.session.kv.lease_age(LeaseId(lease), run.session.until).await else {
            continue;
        };
        first = first.into_iter().chain([age.left]).min();
    }
    first
}

/// Of how many leases an ADD asks how long they live, to say when an address will be free.
const LEASES_ASKED: usize = 4;

/// The caller did not get the answer. Frees what this run reserved, now or by the spool, unless another run of this
/// owner has answered with it since.
pub async fn undo<K: Kv>(run: &Run<'_, K>, ask: &Ask) {
    let spooled = run.to_spool(&ask.owner, ask.labels.pod.uid.as_ref(), true);
    // In whatever store it was reserved.
    let freed = run.free_spooled(&spooled, None, run.session.until).await;
    // Without a tombstone, a late copy of the commit may still be applied.
    if matches!(freed, Ok((_, false))) {
        return;
    }
    if let Err(kept) = run.spool.keep(&spooled) {
        tracing::error!(?freed, spool = %kept, "an address that nobody heard of cannot be given back");
    }
}

async fn error<K: Kv>(run: &Run<'_, K>, ask: &Ask, stopped: Stopped<Allotted, Refused>) -> Error {
    match stopped {
        Stopped::Refused(Refused::Pool(PoolRefused::Missing(name))) => {
            errors::no_such_pool(&name, &pool_names(run).await)
        }
        Stopped::Refused(why) => why.into(),
        Stopped::Failed(failure) => failure.into(),
        // What the owner held before this run stays held, because another run has answered with it.
        Stopped::Unsettled(Some(Allotted::Held(Added { repeats: true, .. })), failure) => failure.into(),
        Stopped::Unsettled(_, failure) => spool(run, ask, &failure),
        Stopped::Suspect(epoch) => errors::suspect(epoch),
        Stopped::TooOld(text) => Error::new(Code::Refused, text),
        Stopped::OtherUsed(other) => errors::other_store_used(&other),
        Stopped::OutOfTime => run.must_go_on().err().unwrap_or_else(errors::out_of_time),
    }
}

/// How many addresses of a full set are set aside, as far as it can be read.
async fn set_aside<K: Kv>(run: &Run<'_, K>, set: &RangeSet) -> usize {
    let networks: BTreeSet<&NetworkName> = set.ranges().iter().map(Range::network).collect();
    let list = |network: &&NetworkName| {
        let prefix = run.session.keys.hold_owners_of(network);
        Op::List(List { keys_only: true, ..List::prefix(&prefix, limits::LIST_KEYS) })
    };
    let Ok(read) = run.session.txn(&Txn::read(networks.iter().map(list).collect())).await else { return 0 };
    let is_of_set = |entry: &&Entry| {
        let Ok(Key::Owner(owner)) = run.session.keys.parse(&entry.key) else { return false };
        owner.set_aside().is_some_and(|(network, address)| {
            let gives = |range: &Range| range.standing(address) == Standing::Assignable;
            set.ranges().iter().any(|range| *range.network() == network && gives(range))
        })
    };
    read.found.iter().flat_map(|found| &found.entries).filter(is_of_set).count()
}

/// The names of all pools, as far as they can be read.
async fn pool_names<K: Kv>(run: &Run<'_, K>) -> Vec<PoolName> {
    let prefix = run.session.keys.pools();
    let list = Op::List(List { keys_only: true, ..List::prefix(&prefix, 0) });
    let Ok(read) = run.session.txn(&Txn { step: "pools", then: vec![list], ..Txn::default() }).await else {
        return Vec::new();
    };
    let name = |entry: &Entry| match run.session.keys.parse(&entry.key) {
        Ok(Key::Pool(name)) => Some(name),
        _ => None,
    };
    read.found.iter().flat_map(|found| &found.entries).filter_map(name).collect()
}

/// The commit cannot be settled in time. Spools a DEL that frees what it reserved, unless another run of the owner has
/// answered with it since.
fn spool<K: Kv>(run: &Run<'_, K>, ask: &Ask, failure: &Failure) -> Error {
    let text = format!("it is not known whether the address was reserved: {failure}");
    let error = Error::new(Code::TryAgain, text);
    match run.spool.keep(&run.to_spool(&ask.owner, ask.labels.pod.uid.as_ref(), true)) {
        Ok(()) => error.with_details("a spooled DEL frees it; the request may be repeated"),
        Err(e) => {
            error.with_details(format!("and a DEL cannot be spooled ({e}); run DEL for this container"))
        }
    }
}
