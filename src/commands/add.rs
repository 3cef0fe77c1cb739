//! ADD: an address for one interface of one container.

use super::{Run, errors};
use crate::cni::error::{Code, Error};
use crate::limits;
use crate::local::mark::{Hints, Mark, NodeLease};
use crate::local::scope_hints::ScopeHints;
use crate::pool::record::Meta;
use crate::store::allot::{Added, Allotment, Allotted, Refused};
use crate::store::ask::Ask;
use crate::store::drive::{Acknowledged, Driver, Stopped};
use crate::store::keys::LeaseId;
use crate::store::kv::{Failure, Kv};
use crate::store::meta::HighWater;
use crate::store::policy::{FencePolicy, LeasePolicy, LeaseUse, Policy, SharedLease, TicketLease};
use crate::store::repair::repair_some;

/// Reserves what `ask` asks for.
///
/// First it carries out what an earlier run of this owner has spooled. If a set seems full, it clears stray bits before
/// it answers so.
///
/// # Errors
/// A CNI error. Then the owner holds nothing new, or a spooled DEL will free it.
pub async fn add<K: Kv>(run: &Run<'_, K>, ask: &Ask) -> Result<Added, Error> {
    for kept in run.spool.of(&ask.owner) {
        run.carry_out_spooled(&kept, run.session.until).await?;
    }
    run.must_go_on()?;
    let left = LeftBehind::read(run, ask);
    let is_wanted = || run.must_go_on().is_ok();
    let mut driver = Driver::new(run.session, policy(run, &left, &is_wanted));
    let added = allot(run, ask, &left, &mut driver).await;
    if added.is_err() && driver.may_be_served() {
        undo(run, ask).await;
    }
    added
}

async fn allot<K: Kv>(
    run: &Run<'_, K>,
    ask: &Ask,
    left: &LeftBehind,
    driver: &mut Driver<'_, K>,
) -> Result<Added, Error> {
    let mut allotment = Allotment::new(ask, run.session.keys);
    let mut repairs = 0;
    loop {
        let allotted = driver.run(&mut allotment).await;
        leave_hints(run, driver, left);
        let set = match allotted {
            Ok(Allotted::Held(added)) => return Ok(added),
            Ok(Allotted::Full { set }) => set,
            Err(stopped) => return Err(error(run, ask, stopped)),
        };
        // Stray bits may fill the set, and others may have freed something since.
        let is_wanted = || run.must_go_on().is_ok();
        if repairs == limits::REPAIRS
            || !repair_some(run.session, &ask.wanted.sets[set], driver.shared(), &is_wanted).await?
        {
            return Err(errors::full(&ask.wanted.sets[set]));
        }
        repairs += 1;
        driver.forget_shared();
    }
}

/// The caller did not get the answer. Frees what this run reserved, now or by the spool, unless another run of this
/// owner has answered with it since.
pub async fn undo<K: Kv>(run: &Run<'_, K>, ask: &Ask) {
    let spooled = run.to_spool(&ask.owner, ask.labels.pod.uid.as_ref(), true);
    let freed = run.free_spooled(&spooled, run.session.until).await;
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
    /// Of the scope of this ADD.
    scope: Option<ScopeHints>,
}

impl LeftBehind {
    /// Without a mark there are no hints: they may be of another store.
    fn read<K: Kv>(run: &Run<'_, K>, ask: &Ask) -> Self {
        let Some(mark) = run.mark.read() else { return Self::default() };
        let is_of_store = |hints: &ScopeHints| {
            let meta = hints.keys.record::<Meta>(&run.session.keys.meta());
            meta.is_ok_and(|meta| meta.is_some_and(|meta| mark.seen.is_of(&meta)))
        };
        let scope = run.scope_hints.read(&ask.scope()).filter(is_of_store);
        Self { mark: Some(mark), scope }
    }

    fn hints(&self) -> Hints {
        self.mark.as_ref().map(|mark| mark.hints.clone()).unwrap_or_default()
    }
}

fn policy<'a, K: Kv>(run: &'a Run<'_, K>, left: &LeftBehind, is_wanted: &'a dyn Fn() -> bool) -> Policy<'a> {
    let hints = left.hints();
    let shared = hints.lease_for(&run.start);
    let serving = left.scope.as_ref().filter(|scope| scope.serves(&run.start));
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
        high_water: left.mark.as_ref().map(|mark| mark.seen.clone()),
        remembered: serving.map(|scope| scope.keys.clone()),
        is_wanted,
    }
}

/// Raises the mark, and leaves hints that may save the next run of the node a request.
fn leave_hints<K: Kv>(run: &Run<'_, K>, driver: &mut Driver<'_, K>, before: &LeftBehind) {
    let Some(Acknowledged { revision, scope }) = driver.take_acknowledged() else { return };
    let keys = driver.shared();
    let Ok(Some(Meta { id: store, epoch, .. })) = keys.record::<Meta>(&run.session.keys.meta()) else {
        return;
    };
    let hints = before.hints();
    let since_when = |LeaseId(id), known: &Option<NodeLease>| match known {
        Some(known) if known.id == id => known.clone(),
        _ => NodeLease { id, since: run.start.clone() },
    };
    let lease = driver.lease().map(|lease| since_when(lease, &hints.lease));
    let tickets = driver.own_ticket_lease().map(|lease| since_when(lease, &hints.tickets));
    let now = (run.clock)();
    let crowded = if driver.met_others() { Some(now.clone()) } else { hints.crowded.clone() };
    // Without a scope, what this run has read of the pages is older than what another run has written for it.
    if let Some(scope) = scope {
        let known = before.scope.clone().unwrap_or_default();
        run.scope_hints.keep(&scope, &known.left(keys.clone(), driver.first(), now));
    }
    let hints = Hints { lease, tickets, crowded, ..hints };
    run.leave_mark(Mark { seen: HighWater { store, epoch, revision }, hints });
}

fn error<K: Kv>(run: &Run<'_, K>, ask: &Ask, stopped: Stopped<Allotted, Refused>) -> Error {
    match stopped {
        Stopped::Refused(why) => why.into(),
        Stopped::Failed(failure) => failure.into(),
        // What the owner held before this run stays held, because another run has answered with it.
        Stopped::Unsettled(Some(Allotted::Held(Added { repeats: true, .. })), failure) => failure.into(),
        Stopped::Unsettled(_, failure) => spool(run, ask, &failure),
        Stopped::Suspect(epoch) => errors::suspect(epoch),
        Stopped::TooOld(text) => Error::new(Code::Refused, text),
        Stopped::OutOfTime => run.must_go_on().err().unwrap_or_else(errors::out_of_time),
    }
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
