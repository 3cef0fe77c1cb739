//! An ADD makes room where nothing is free, or turns to the next pool.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::commands::Run;
use crate::commands::errors::{self, OrCni};
use metes_config::cni::error::Error;
use metes_core::keys::{Key, LeaseId};
use metes_core::limits;
use metes_core::plan::allot::Allotment;
use metes_core::plan::source::Full;
use metes_core::pool::{Cooldown, NetworkName, OwnerKind, Range, Standing, WhenFull};
use metes_core::snapshot::Snapshot;
use metes_core::txn::{Entry, List, Op, Txn};
use metes_engine::kv::{Failure, Kv};
use metes_engine::repair::{CoolingSeen, SomeRepaired, repair_some};

/// The shortage that an ADD meets, and its remedies so far.
#[derive(Default)]
pub(super) struct Shortage {
    /// So many repairs of the present set or pool made room.
    repairs: u32,
    /// The first set or pool in which all that nobody holds is cooling, as an error.
    all_cool: Option<Error>,
}

impl Shortage {
    /// After this, another look makes sense: bits were cleared, or the next pool is used. `judged` is what the set
    /// seemed full by.
    ///
    /// # Errors
    /// There is no room. Or the store failed.
    pub(super) async fn relieve<K: Kv>(
        &mut self,
        run: &Run<'_, K>,
        full: &Full,
        allotment: &mut Allotment<'_>,
        judged: &Snapshot,
    ) -> Result<(), Error> {
        let may_repair = self.repairs < limits::REPAIRS;
        let repaired = repair(run, full, judged, may_repair).await.or_cni()?;
        if repaired.may_have_room && may_repair {
            self.repairs += 1;
            return Ok(());
        }
        if self.all_cool.is_none() && !repaired.cooling.is_empty() {
            let left = first_end(run, &repaired.cooling).await;
            let full = in_words(full, errors::OR_COOLING);
            self.all_cool = Some(errors::all_cool(repaired.cooling.len(), left, full));
        }
        if allotment.turn_to_next_pool(full) {
            self.repairs = 0;
            return Ok(());
        }
        match self.all_cool.take() {
            Some(all_cool) => Err(all_cool),
            None => Err(errors::with_set_aside(in_words(full, errors::HELD), set_aside(run, full).await)),
        }
    }
}

/// Stray bits may fill the set, and others may have freed something since. The last look only shows the addresses that
/// are cooling.
async fn repair<K: Kv>(
    run: &Run<'_, K>,
    full: &Full,
    judged: &Snapshot,
    may_repair: bool,
) -> Result<SomeRepaired, Failure> {
    let Some((set, Cooldown { when_full, .. })) = full.set() else { return Ok(SomeRepaired::default()) };
    let when_full = if may_repair { when_full } else { WhenFull::Wait };
    repair_some(run.session, set, judged, when_full, &|| run.must_go_on().is_ok()).await
}

/// `taken` is said of the addresses: [`errors::HELD`] or [`errors::OR_COOLING`].
fn in_words(full: &Full, taken: &str) -> Error {
    match full {
        Full::Ranges(set, _) => errors::full(set, taken),
        Full::Pool { pool, .. } => errors::pool_full(&pool.definition, taken),
    }
}

/// The time until the first of these addresses has cooled, as far as that is known.
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

/// An ADD asks so many leases how long they live, to say when an address will be free.
const LEASES_ASKED: usize = 4;

/// The number of addresses of a full set that are set aside, as far as it can be read.
async fn set_aside<K: Kv>(run: &Run<'_, K>, full: &Full) -> usize {
    let Some((set, _)) = full.set() else { return 0 };
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
            OwnerKind::Container(_) | OwnerKind::Subject(_) | OwnerKind::Unknown => false,
        }
    };
    read.found.iter().flat_map(|found| &found.entries).filter(is_of_set).count()
}
