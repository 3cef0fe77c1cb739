//! An ADD gives back what nobody has heard of.

use crate::commands::Run;
use metes_config::cni::error::{Code, Error};
use metes_core::limits;
use metes_core::plan::ask::Ask;
use metes_core::plan::free::Freed;
use metes_core::pool::Owner;
use metes_core::snapshot::Snapshot;
use metes_engine::kv::{Failure, Kv};
use metes_engine::release::{NotFreed, release_as_read};
use metes_node::spool::Spooled;
use tokio::time::Instant;

/// The caller did not get the answer. Frees what this run reserved, now or by the spool, unless another run of this
/// owner has answered with it since. A hold that this run made for the pod's name ends with it, unless it is used: in a
/// store that has gone back, its addresses may be those of a running pod.
pub async fn undo<K: Kv>(run: &Run<'_, K>, ask: &Ask) {
    let spooled = run.to_spool(&ask.owner, ask.labels.pod.uid.as_ref(), true);
    // An etcd that has not answered in time does not answer this in time either.
    let has_time = Instant::now() + limits::REQUEST_ATTEMPT < run.session.until;
    let freed = if has_time { Some(give_back_now(run, ask, &spooled).await) } else { None };
    // Without a tombstone, a late copy of the commit may still be applied.
    if matches!(freed, Some(Ok((_, false)))) {
        return;
    }
    if let Err(kept) = run.spool.keep(&spooled) {
        tracing::error!(?freed, spool = %kept, "an address that nobody heard of cannot be given back");
    }
}

async fn give_back_now<K: Kv>(
    run: &Run<'_, K>,
    ask: &Ask,
    spooled: &Spooled,
) -> Result<(Freed, bool), NotFreed> {
    let made = hold_made(run, ask).await;
    // In whatever store it was reserved.
    let freed = run.free_spooled(spooled, None, run.session.until).await;
    if let (Ok(_), Some((hold, revision))) = (&freed, made) {
        // Should this fail, it stays for its time.
        let _ = release_as_read(run.session, hold, revision, None).await;
    }
    freed
}

/// The hold that one transaction has made with the owner's record, and its revision.
async fn hold_made<'a, K: Kv>(run: &Run<'_, K>, ask: &'a Ask) -> Option<(&'a Owner, i64)> {
    let hold = &ask.sticky.as_ref()?.hold;
    let [of_owner, of_hold] = [&ask.owner, hold].map(|owner| run.session.keys.owner(owner));
    let mut seen = Snapshot::default();
    run.session.read(&[of_owner.clone(), of_hold.clone()], &mut seen).await.ok()?;
    let (record, made) = (seen.entry(&of_owner)?, seen.entry(&of_hold)?);
    (record.create_revision == made.create_revision).then_some((hold, made.mod_revision))
}

/// The commit cannot be settled in time. Spools a DEL that frees what it reserved, unless another run of the owner has
/// answered with it since.
pub(super) fn spool<K: Kv>(run: &Run<'_, K>, ask: &Ask, failure: &Failure) -> Error {
    let text = format!("it is not known whether the address was reserved: {failure}");
    let error = Error::new(Code::TryAgain, text);
    match run.spool.keep(&run.to_spool(&ask.owner, ask.labels.pod.uid.as_ref(), true)) {
        Ok(()) => error.with_details("a spooled DEL frees it; the request may be repeated"),
        Err(e) => {
            error.with_details(format!("and a DEL cannot be spooled ({e}); run DEL for this container"))
        }
    }
}
