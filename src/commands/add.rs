//! ADD: an address for one interface of one container.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Run, errors};
use crate::cni::error::{Code, Error};
use crate::limits;
use crate::local::mark::{Hints, Mark, NodeLease};
use crate::local::node;
use crate::local::scope_hints::ScopeHints;
use crate::pool::asked::AskedRanges;
use crate::pool::cooldown::{Cooldown, WhenFull};
use crate::pool::names::PoolName;
use crate::pool::record::{Held, Meta, OwnerKind, Record, RunStart};
use crate::pool::{NetworkName, Range, RangeSet, Standing};
use crate::store::allot::{Added, Allotment, Allotted, Refused};
use crate::store::ask::Ask;
use crate::store::drive::{Acknowledged, Driver, Stopped};
use crate::store::keys::{Bytes, Key, LeaseId, Scope};
use crate::store::known::HighWater;
use crate::store::kv::{Failure, Kv};
use crate::store::policy::{FencePolicy, LeasePolicy, LeaseUse, Policy, SharedLease, TicketLease, Witness};
use crate::store::pools::{AskedPools, PoolRefused, PoolResult, decode_pool};
use crate::store::repair::{CoolingSeen, SomeRepaired, repair_some};
use crate::store::snapshot::Snapshot;
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
    let left = LeftBehind::read(run, &allotment);
    if left.mark.is_none() {
        run.must_be_one_etcd().await?;
    }
    let recall = run.recalling(left.known());
    let mut witness = run.witness(&recall, run.own_value(&ask.stamp.created_at));
    if left.mark.is_none() {
        witness.other_store = run.node.other_store();
    }
    if !left.is_of_name(run) {
        run.node.names().keep_present();
    }
    allotment.keep_ranges(|key| left.has_kept_ranges(key, &ask.stamp.created_at));
    let is_wanted = || run.must_go_on().is_ok();
    let mut driver =
        Driver::new(run.session, policy(run, &left, witness, &is_wanted)).expecting(left.pools.clone());
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
        leave_hints(run, allotment, driver, left);
        let asked = allotment.asked(driver.shared());
        let pools = asked.as_ref().and_then(|asked| asked.pools.as_ref());
        let set = match allotted {
            Ok(Allotted::Held(Added { held, repeats })) => {
                let of_pools = match pools {
                    Some(pools) => in_result(run, pools, &held).await?,
                    None => PoolResult::default(),
                };
                return Ok(AddDone { held, repeats, of_pools });
            }
            Ok(Allotted::Full { set }) => set,
            Err(stopped) => return Err(error(run, ask, stopped).await),
        };
        let full = |taken| match (pools.and_then(|pools| pools.of_element(set)), asked.as_deref()) {
            (Some(pool), _) => errors::pool_full(pool, taken),
            (None, Some(Ask { wanted, .. })) => match wanted.sets.get(set) {
                Some(set) => errors::full(set, taken),
                None => errors::out_of_time(),
            },
            (None, None) => errors::out_of_time(),
        };
        // Stray bits may fill the set, and others may have freed something since.
        let is_wanted = || run.must_go_on().is_ok();
        let of_set =
            asked.as_ref().and_then(|asked| Some((asked.wanted.sets.get(set)?, asked.cooldown(set))));
        let may_repair = repairs < limits::REPAIRS;
        let repaired = match of_set {
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
                all_cool = Some(errors::all_cool(repaired.cooling.len(), left, full(errors::OR_COOLING)));
            }
            let (full, range_set) = (full(errors::HELD), of_set.map(|(set, _)| set.clone()));
            drop(asked);
            if !allotment.turn_to_next_pool(set, driver.shared()) {
                return Err(match (all_cool, range_set) {
                    (Some(all_cool), _) => all_cool,
                    (None, Some(set)) => errors::with_set_aside(full, set_aside(run, &set).await),
                    (None, None) => full,
                });
            }
            repairs = 0;
        }
        driver.forget_shared();
    }
}

/// What pools add to the result. An owner may hold an address of a pool that is not for it any more.
async fn in_result<K: Kv>(
    run: &Run<'_, K>,
    pools: &AskedPools,
    held: &[Held],
) -> Result<PoolResult, Failure> {
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

/// What earlier runs of the node have left behind.
#[derive(Default)]
struct LeftBehind {
    mark: Option<Mark>,
    /// The pools of this ADD, as they were read last.
    pools: Snapshot,
    /// Of the scope of this ADD.
    scope: Option<ScopeHints>,
}

impl LeftBehind {
    /// Without a mark there are no hints: they may be of another store.
    fn read<K: Kv>(run: &Run<'_, K>, allotment: &Allotment<'_>) -> Self {
        let Some(mark) = run.read_mark() else { return Self::default() };
        let is_of_store = |hints: &ScopeHints| {
            let meta = hints.keys.record::<Meta>(&run.session.keys.meta());
            meta.is_ok_and(|meta| meta.is_some_and(|meta| mark.seen.is_of(&meta)))
        };
        let mut pools = Snapshot::default();
        let mut take = |scope: Option<Scope>| {
            let hints = scope.and_then(|scope| run.scope_hints.read(&scope)).filter(is_of_store);
            let keys = hints.map(|hints| hints.keys).unwrap_or_default();
            let of_pools = keys.iter().filter(|(key, _)| is_pool(run, key));
            of_pools.for_each(|(key, entry)| pools.set(key, entry.cloned()));
            pools.clone()
        };
        // What `auto` chooses by says which texts it needs.
        let auto = take(allotment.auto_scope());
        let pools = take(allotment.pools_scope(&auto));
        let asked = allotment.asked(&pools);
        let scope = asked.and_then(|asked| run.scope_hints.read(&asked.scope())).filter(is_of_store);
        Self { mark: Some(mark), pools, scope }
    }

    /// What the first commit of a run may be planned on.
    fn remembered(&self, start: &RunStart) -> Option<Snapshot> {
        let mut keys = self.scope.as_ref().filter(|scope| scope.serves(start))?.keys.clone();
        self.pools.iter().for_each(|(key, entry)| keys.set(key, entry.cloned()));
        Some(keys)
    }

    /// Whether the node has kept the ranges under this key a short while before `now`.
    fn has_kept_ranges(&self, key: &[u8], now: &str) -> bool {
        let kept = || self.scope.as_ref()?.keys.record::<AskedRanges>(key).ok()?;
        kept().is_some_and(|asked| is_young(&asked, now))
    }

    /// Whether the last ADD of this machine had the name that it has now.
    fn is_of_name<K>(&self, run: &Run<'_, K>) -> bool {
        let key = self.mark.as_ref().and_then(|mark| mark.seen.key.as_ref());
        key.is_some_and(|key| key.name.as_bytes() == run.own_key)
    }

    fn known(&self) -> Option<HighWater> {
        self.mark.as_ref().map(|mark| mark.seen.clone())
    }

    fn hints(&self) -> Hints {
        self.mark.as_ref().map(|mark| mark.hints.clone()).unwrap_or_default()
    }
}

/// Whether a node need not write again yet which ranges are asked for.
fn is_young(asked: &AskedRanges, now: &str) -> bool {
    asked.age(now).is_some_and(|age| age < limits::ASKED_AGAIN)
}

fn policy<'a, K: Kv>(
    run: &'a Run<'_, K>,
    left: &LeftBehind,
    witness: Witness<'a>,
    is_wanted: &'a dyn Fn() -> bool,
) -> Policy<'a> {
    let hints = left.hints();
    let shared = hints.lease_for(&run.start);
    Policy {
        fencing: FencePolicy::LeaseOrTicket(run.session.keys.fence(&run.identity.node)),
        lease: LeasePolicy {
            used: LeaseUse::Always,
            ttl: limits::LEASE_TTL,
            shared: shared.map(|lease| SharedLease { id: LeaseId(lease.id), stands: None }),
        },
        tickets: TicketLease::Own(hints.tickets_for(&run.start).map(|lease| LeaseId(lease.id))),
        is_crowded: hints.is_crowded(&run.start),
        wait_until: run.session.until,
        witness: Some(witness),
        remembered: left.remembered(&run.start),
        is_wanted,
    }
}

/// Raises the mark, and leaves hints that may save the next run of the node a request.
fn leave_hints<K: Kv>(
    run: &Run<'_, K>,
    allotment: &Allotment<'_>,
    driver: &mut Driver<'_, K>,
    before: &LeftBehind,
) {
    let Some(Acknowledged { scope, asked }) = driver.take_acknowledged() else { return };
    let keys = driver.shared();
    let Some(seen) = driver.seen_store().cloned() else { return };
    let hints = before.hints();
    let since_when = |LeaseId(id), known: &Option<NodeLease>| match known {
        Some(known) if known.id == id => known.clone(),
        _ => NodeLease { id, since: run.start.clone() },
    };
    let lease = driver.lease().map(|lease| since_when(lease, &hints.lease));
    let tickets = driver.own_ticket_lease().map(|lease| since_when(lease, &hints.tickets));
    let now = (run.clock)();
    let crowded = driver.met_others().then(|| now.clone());
    // Without a scope, what this run has read of the pages is older than what another run has written for it.
    if let Some(scope) = scope {
        leave_scope(run, allotment, driver, &scope, asked, now);
    }
    if let Some(scope) = allotment.auto_scope() {
        leave_pools(run, &scope, keys, &before.pools, |key| matches!(key, Key::PoolChanges));
    }
    if let Some(scope) = allotment.pools_scope(keys) {
        leave_pools(run, &scope, keys, &before.pools, |key| matches!(key, Key::Pool(_)));
    }
    run.leave_mark(seen, |hints| {
        (hints.lease, hints.tickets) = (lease, tickets);
        hints.crowded = crowded.or(hints.crowded.take());
    });
}

/// Leaves what this run knows of its scope, beside what runs of other ranges have left there.
fn leave_scope<K: Kv>(
    run: &Run<'_, K>,
    allotment: &Allotment<'_>,
    driver: &Driver<'_, K>,
    scope: &Scope,
    asked: Option<(Bytes, Vec<u8>)>,
    now: RunStart,
) {
    let meta = run.session.keys.meta();
    let meta_of = |keys: &Snapshot| keys.entry(&meta).map(|meta| meta.value.clone());
    let mut shared = driver.shared().clone();
    // It is read again, because other runs of the node may have left something meanwhile.
    let known = run.scope_hints.read(scope).filter(|known| meta_of(&known.keys) == meta_of(&shared));
    let mut known = known.unwrap_or_default();
    let own_cursors = allotment.cursors(&shared);
    shared.retain(|key| match run.session.keys.parse(key) {
        Ok(Key::Pool(_) | Key::PoolChanges) => false,
        // A head has read the cursors of all whom it has served.
        Ok(Key::Cursor(..)) => known.keys.knows(key) || own_cursors.iter().any(|own| own == key),
        _ => true,
    });
    // No look reads the records of ranges that are asked for. So what this run has written is added to what was known.
    // Only their time is kept: the ranges of many configurations would be too much.
    let now_for_people = node::timestamp();
    let is_asked = |key: &[u8]| matches!(run.session.keys.parse(key), Ok(Key::Asked(_)));
    let earlier = known.keys.iter().filter(|(key, _)| is_asked(key));
    let earlier = earlier.filter_map(|(key, entry)| Some((key.clone(), entry?.value.clone())));
    for (key, value) in earlier.chain(asked) {
        let record = AskedRanges::decode(&value).ok();
        if let Some(young) = record.filter(|asked| is_young(asked, &now_for_people)) {
            let value = young.without_ranges().encode();
            let entry = Entry { key, value, create_revision: 0, mod_revision: 0, lease: 0 };
            shared.set(&entry.key.clone(), Some(entry));
        }
    }
    known.keys.retain(|key| !is_asked(key));
    run.scope_hints.keep(scope, &known.left(shared, driver.first(), now));
}

/// Leaves what its pools say for the next run, unless that is known. Meta goes with them: it says of which store
/// they are.
fn leave_pools<K: Kv>(
    run: &Run<'_, K>,
    scope: &Scope,
    seen: &Snapshot,
    before: &Snapshot,
    is_meant: impl Fn(&Key) -> bool,
) {
    let meta = run.session.keys.meta();
    let mut pools = seen.clone();
    pools.retain(|key| *key == *meta || run.session.keys.parse(key).is_ok_and(|key| is_meant(&key)));
    let is_known = |(key, entry): (&Bytes, Option<&Entry>)| {
        *key == meta || before.knows(key) && before.entry(key) == entry
    };
    if !pools.iter().all(is_known) {
        run.scope_hints.keep(scope, &ScopeHints { keys: pools, missed: None });
    }
}

fn is_pool<K>(run: &Run<'_, K>, key: &[u8]) -> bool {
    matches!(run.session.keys.parse(key), Ok(Key::Pool(_) | Key::PoolChanges))
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
        match owner.kind() {
            OwnerKind::Aside(network, address) => {
                let gives = |range: &Range| range.standing(address) == Standing::Assignable;
                set.ranges().iter().any(|range| *range.network() == network && gives(range))
            }
            OwnerKind::Container(_) | OwnerKind::Unknown => false,
        }
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
