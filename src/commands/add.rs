//! ADD: an address for one interface of one container.

mod full;
mod give_back;
mod stopped;

use self::full::Shortage;
pub use self::give_back::undo;
use super::Run;
use crate::commands::errors::OrCni;
use metes_config::cni::error::{Code, Error};
use metes_core::keys::Bytes;
use metes_core::plan::allot::{Added, Allotment, Allotted};
use metes_core::plan::ask::Ask;
use metes_core::plan::known_pool::decode_pool;
use metes_core::plan::pools::{PoolResult, ReadPools};
use metes_core::pool::{Clock, Held, Wanted};
use metes_core::snapshot::Snapshot;
use metes_engine::drive::Driver;
use metes_engine::kv::{Failure, Kv};
use metes_node::recall::LeftBehind;

/// The addresses that an ADD has reserved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddDone {
    /// The addresses, in result order.
    pub held: Vec<Held>,
    /// True if the owner held them before this run.
    pub repeats: bool,
    /// The part of the result that comes from their pools.
    pub of_pools: PoolResult,
}

/// Reserves the addresses that `ask` asks for.
///
/// A node that knows no store yet asks all endpoints which one they are, and founds it where there is none. Then the
/// run carries out the frees that earlier runs of this owner have spooled. It plans on the hints that earlier runs of
/// the node have left behind, or on a look, and leaves such hints for the next run. If no address is free, it tries
/// to make room before it answers that a range or pool is full.
///
/// # Errors
/// A CNI error. Then the owner holds nothing new, or a spooled DEL will free it.
pub async fn add<K: Kv>(run: &Run<'_, K>, ask: &Ask) -> Result<AddDone, Error> {
    let mut mark = run.mark_or_found().await?;
    if run.carry_out_spooled_of(&ask.owner).await? {
        // What it has seen of the store is newer.
        mark = run.read_mark().unwrap_or(mark);
    }
    let clock = Clock::new(run.clock);
    let mut allotment = Allotment::new(ask, run.session.keys).by_clock(&clock);
    let left = LeftBehind::read(mark, (&run.scope_hints, &run.owner_hints), run.session.keys, &allotment);
    if !left.has_own_key(&run.own_key) {
        run.node.names().keep_present(run.session.keys, Some(&left.known()));
    }
    allotment.clear_stray(left.some_stray());
    if let Some(older) = left.older() {
        allotment.expect_older(older);
    }
    allotment.keep_ranges(|key| left.has_kept_ranges(key, &ask.stamp.created_at));
    let recall = run.recalling(Some(left.known()));
    let witness = run.witness(&recall, run.own_value(&ask.stamp.created_at));
    let is_wanted = || run.must_go_on().is_ok();
    let fence = run.session.keys.fence(&run.identity.node);
    let policy = left.policy(run.session.keys, &run.start, fence, run.session.until, witness, &is_wanted);
    let mut driver = Driver::new(run.session, policy).expecting(left.pools().clone());
    let added = allot(run, ask, &mut allotment, &left, &mut driver).await;
    if added.is_err() && driver.may_be_served() {
        undo(run, ask).await;
    }
    if added.as_ref().is_err_and(|e| e.code == Code::TryAgain) && run.was_slow() {
        run.leaving().unanswered(&mut driver, &left);
    }
    added
}

/// Drives the allotment until it is made, or until no room can be made for it.
async fn allot<K: Kv>(
    run: &Run<'_, K>,
    ask: &Ask,
    allotment: &mut Allotment<'_>,
    left: &LeftBehind,
    driver: &mut Driver<'_, K>,
) -> Result<AddDone, Error> {
    let mut shortage = Shortage::default();
    loop {
        let allotted = driver.run(allotment).await;
        let reserved = matches!(&allotted, Ok(Allotted::Held(added)) if !added.repeats);
        run.leaving().remember(allotment, driver, left, reserved);
        match allotted {
            Ok(Allotted::Held(Added { held, repeats })) => {
                let of_pools = match &ask.wanted {
                    Wanted::Ranges(_) => Ok(PoolResult::default()),
                    Wanted::Pools(_) => {
                        in_result(run, &allotment.pools(driver.shared()), &held).await.or_cni()
                    }
                };
                if of_pools.is_err() {
                    undo(run, ask).await;
                }
                return Ok(AddDone { held, repeats, of_pools: of_pools? });
            }
            Ok(Allotted::Full(full)) => shortage.relieve(run, &full, allotment, driver.shared()).await?,
            Err(stopped) => return Err(stopped::error(run, ask, stopped).await),
        }
        driver.forget_shared();
    }
}

/// The part of the result that comes from pools. An owner may hold an address of a pool that the allotment did not use,
/// because that pool is not for it any more. Such pools are read here.
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
