//! An ADD gives back what nobody has heard of.

use crate::commands::Run;
use metes_config::cni::error::{Code, Error};
use metes_core::plan::ask::Ask;
use metes_engine::kv::{Failure, Kv};

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
