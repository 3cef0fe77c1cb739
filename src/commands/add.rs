//! ADD: an address for one interface of one container.

use super::{Run, errors};
use crate::cni::error::{Code, Error};
use crate::limits;
use crate::local::mark::{Hints, Mark, NodeLease};
use crate::pool::record::Meta;
use crate::store::allot::{Added, Allotment, Allotted, Refused};
use crate::store::ask::Ask;
use crate::store::drive::{
    Acknowledged, Driver, FencePolicy, LeasePolicy, LeaseUse, Policy, SharedLease, Stopped,
};
use crate::store::keys::LeaseId;
use crate::store::kv::{Failure, Kv};
use crate::store::meta::HighWater;
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
    let mark = run.mark.read();
    let hints = mark.as_ref().map(|mark| mark.hints.clone()).unwrap_or_default();
    let is_wanted = || run.must_go_on().is_ok();
    let mut driver = Driver::new(run.session, policy(run, mark.as_ref(), &hints, &is_wanted));
    let mut allotment = Allotment::new(ask, run.session.keys);
    let mut repairs = 0;
    loop {
        let allotted = driver.run(&mut allotment).await;
        leave_hints(run, ask, &mut driver, &hints);
        let set = match allotted {
            Ok(Allotted::Held(added)) => return Ok(added),
            Ok(Allotted::Full { set }) => set,
            Err(stopped) => {
                let error = error(run, ask, stopped);
                if driver.may_be_served() {
                    undo(run, ask).await;
                }
                return Err(error);
            }
        };
        // Stray bits may fill the set, and others may have freed something since.
        if repairs == limits::REPAIRS
            || !repair_some(run.session, &ask.wanted.sets[set], driver.pages(), &is_wanted).await?
        {
            return Err(errors::full(&ask.wanted.sets[set]));
        }
        repairs += 1;
        driver.forget_pages();
    }
}

/// The caller did not get the answer. Frees what this run reserved, now or by the spool, unless another run of this
/// owner has answered with it since.
pub async fn undo<K: Kv>(run: &Run<'_, K>, ask: &Ask) {
    let spooled = run.to_spool(&ask.owner, ask.labels.pod.uid.as_ref(), true);
    if let Err(e) = run.free_spooled(&spooled, run.session.until).await
        && let Err(kept) = run.spool.keep(&spooled)
    {
        tracing::error!(error = %e, spool = %kept, "an address that nobody heard of cannot be given back");
    }
}

fn policy<'a, K: Kv>(
    run: &'a Run<'_, K>,
    mark: Option<&Mark>,
    hints: &Hints,
    is_wanted: &'a dyn Fn() -> bool,
) -> Policy<'a> {
    let shared = hints.lease_for(&run.start);
    Policy {
        fencing: FencePolicy::LeaseOrTicket(run.session.keys.fence(&run.identity.node)),
        lease: LeasePolicy {
            used: LeaseUse::Always,
            ttl: limits::LEASE_TTL,
            shared: shared.map(|lease| SharedLease { id: LeaseId(lease.id), stands: None }),
        },
        is_crowded: hints.is_crowded(&run.start),
        wait_until: run.session.until,
        high_water: mark.map(|mark| mark.seen.clone()),
        is_wanted,
    }
}

/// Raises the mark, and leaves hints that may save the next run of the node a request.
fn leave_hints<K: Kv>(run: &Run<'_, K>, ask: &Ask, driver: &mut Driver<'_, K>, before: &Hints) {
    let Some(Acknowledged { revision, meta }) = driver.take_acknowledged() else { return };
    // If there was none, this commit has made it.
    let Meta { id: store, epoch, .. } = meta.unwrap_or_else(|| ask.first_meta());
    let lease = driver.lease().map(|LeaseId(id)| match &before.lease {
        Some(known) if known.id == id => known.clone(),
        _ => NodeLease { id, since: run.start.clone() },
    });
    let crowded = if driver.met_others() { Some((run.clock)()) } else { before.crowded.clone() };
    let hints = Hints { lease, crowded, ..before.clone() };
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
