//! STATUS: whether an ADD could be served now. A full range is no failure.
//!
//! Where metes serves the default network, a STATUS that fails makes the node NotReady, and Kubernetes evicts its pods,
//! though no running pod needs etcd. So a node that knows its store bears an etcd that is away for
//! [`limits::STATUS_GRACE`]: the one case in which waiting may help, and in which no answer, nor the last one before,
//! says anything else.

use super::{Judged, Run};
use crate::commands::errors::ToCni;
use metes_config::cni::error::{Code, Error};
use metes_core::limits;
use metes_core::snapshot::Snapshot;
use metes_core::txn::{Op, Txn};
use metes_engine::endpoints::NoStore;
use metes_engine::kv::{About, Failure, Kv};
use metes_node::errors::other_store_used;

/// What a STATUS that succeeded goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Served {
    /// etcd has answered well, and the node knew its store before.
    Known,
    /// etcd has answered well on a node that knew no store, or it is away and that is borne.
    Unknown,
}

/// Why no ADD could be served now.
enum Unserved {
    /// Somebody must do something.
    Verdict(Error),
    /// No member has answered in time, and nothing else is known.
    Away(Error),
}

/// Succeeds if etcd answers, has a leader, takes writes and is new enough, and if its store is one that serves an ADD;
/// for some minutes also if etcd is away.
///
/// # Errors
/// Code 50.
pub async fn status<K: Kv>(run: &Run<'_, K>) -> Result<Served, Error> {
    let knows_store = run.known().is_some();
    if !knows_store && let Some(other) = run.node.other_prefix() {
        return Err(other.error(Code::NotAvailable));
    }
    match ask(run).await {
        Ok(()) => {
            run.node.outage().end();
            Ok(if knows_store { Served::Known } else { Served::Unknown })
        }
        Err(Unserved::Away(error)) if knows_store => bear(run, error).map(|()| Served::Unknown),
        // Whatever is wrong is still wrong while etcd is away.
        Err(Unserved::Verdict(error)) if knows_store => {
            if let Err(why) = run.node.outage().note_verdict() {
                tracing::warn!(error = %why, "a verdict is not noted: STATUS may bear an outage after it");
            }
            Err(error)
        }
        Err(Unserved::Verdict(error) | Unserved::Away(error)) => Err(error),
    }
}

async fn ask<K: Kv>(run: &Run<'_, K>) -> Result<(), Unserved> {
    let mark = run.mark_or_ask(limits::ALL_ASKED).await.map_err(|why| match why {
        NoStore::Failed(failure) => no_answer(failure, false),
        why => Unserved::Verdict(Error { code: Code::NotAvailable, ..why.to_cni() }),
    })?;
    let known = mark.map(|mark| mark.seen);
    let txn = Txn::read(run.judged_by(known.as_ref()).into_iter().map(Op::Get).collect());
    // The read is linearizable, so it needs a quorum. A member's status does not.
    let (read, about) = tokio::join!(run.session.txn(&txn), run.session.kv.about(run.session.until));
    let has_refused = run.session.kv.has_refused();
    let member = about.map_err(|failure| no_answer(failure, has_refused)).and_then(|about| judge(&about));
    let read = match (read.map_err(|failure| no_answer(failure, has_refused)), &member) {
        (Err(Unserved::Away(error)), Err(Unserved::Verdict(_))) => Err(Unserved::Verdict(error)),
        (read, _) => read,
    }?;
    let mut snapshot = Snapshot::default();
    snapshot.absorb(&txn.then, &read);
    let is_first = known.is_none() && snapshot.entry(&run.session.keys.meta()).is_none();
    if let Judged::Suspect(suspect) = run.judge(known, &mut snapshot).await {
        return Err(Unserved::Verdict(Error { code: Code::NotAvailable, ..suspect }));
    }
    if is_first && let Some(other) = run.node.other_store() {
        return Err(Unserved::Verdict(Error { code: Code::NotAvailable, ..other_store_used(&other) }));
    }
    member
}

/// What the status of a member says.
fn judge(about: &About) -> Result<(), Unserved> {
    let not_available = |text: String| Error::new(Code::NotAvailable, text);
    if let Some(text) = about.too_old() {
        return Err(Unserved::Verdict(not_available(text)));
    }
    // A runtime asks every few seconds, so this is no warning. `metes doctor` warns.
    if let Some(text) = about.unmaintained() {
        tracing::info!("{text}");
    }
    if let Some((alarm, remedy)) = about.refuses_writes() {
        let refusal = not_available(format!("etcd refuses writes: {alarm}")).with_details(remedy);
        return Err(Unserved::Verdict(refusal));
    }
    if !about.has_leader() {
        return Err(Unserved::Away(not_available("etcd has no leader".to_owned())));
    }
    Ok(())
}

/// A request has failed. The text and the remedy are those of any verb.
fn no_answer(failure: Failure, has_refused: bool) -> Unserved {
    // Without a leader, members answer nothing else, and that is among these.
    let is_away = !has_refused && matches!(failure, Failure::Unreachable(_) | Failure::Unknown(_));
    let error = Error { code: Code::NotAvailable, ..failure.to_cni() };
    if is_away { Unserved::Away(error) } else { Unserved::Verdict(error) }
}

/// Succeeds as long as etcd has been away for less than the grace. Without a record of since when, it fails.
fn bear<K: Kv>(run: &Run<'_, K>, error: Error) -> Result<(), Error> {
    let lasts = match run.node.outage().note(run.clock) {
        Ok(lasts) => lasts,
        Err(why) => {
            tracing::warn!(error = %why, "STATUS fails at once: the time since when etcd is away is not known");
            return Err(error);
        }
    };
    let (seconds, most) = (lasts.as_secs(), limits::STATUS_GRACE.as_secs());
    if lasts >= limits::STATUS_GRACE {
        let msg = format!("{}; etcd has answered no STATUS for {seconds} s", error.msg);
        return Err(Error { msg, ..error });
    }
    // A runtime asks every few seconds.
    match seconds {
        0 => tracing::warn!("{}; STATUS goes on succeeding for {most} s", error.msg),
        _ => tracing::info!(
            "{}; STATUS has succeeded without an answer for {seconds} s of {most} s",
            error.msg
        ),
    }
    Ok(())
}
