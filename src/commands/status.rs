//! STATUS: whether an ADD could be served now. A full range is no failure.

use super::Run;
use crate::commands::errors::ToCni;
use metes_config::cni::error::{Code, Error};
use metes_core::snapshot::Snapshot;
use metes_core::txn::{Op, Txn};
use metes_engine::kv::{Failure, Kv};
use metes_node::errors::other_store_used;

/// Succeeds if etcd answers, has a leader, takes writes and is new enough, and if its store is one that serves an ADD.
///
/// # Errors
/// Code 50.
pub async fn status<K: Kv>(run: &Run<'_, K>) -> Result<(), Error> {
    let not_available = |text: String| Error::new(Code::NotAvailable, text);
    let known = run.known();
    let txn = Txn::read(run.judged_by(known.as_ref()).into_iter().map(Op::Get).collect());
    // The read is linearizable, so it needs a quorum. A member's status does not.
    let (read, about) = tokio::join!(run.session.txn(&txn), run.session.kv.about(run.session.until));
    let read = read.map_err(no_answer)?;
    let mut snapshot = Snapshot::default();
    snapshot.absorb(&txn.then, &read);
    let is_first = known.is_none() && snapshot.entry(&run.session.keys.meta()).is_none();
    if let Some(suspect) = run.suspicion(known, &mut snapshot).await {
        return Err(Error { code: Code::NotAvailable, ..suspect });
    }
    if is_first && let Some(other) = run.node.other_store() {
        return Err(Error { code: Code::NotAvailable, ..other_store_used(&other) });
    }
    let about = about.map_err(no_answer)?;
    if let Some(text) = about.too_old() {
        return Err(not_available(text));
    }
    // A runtime asks every few seconds, so this is no warning. `metes doctor` warns.
    if let Some(text) = about.unmaintained() {
        tracing::info!("{text}");
    }
    if !about.has_leader() {
        return Err(not_available("etcd has no leader".to_owned()));
    }
    let refusal = about
        .refuses_writes()
        .map(|(alarm, remedy)| not_available(format!("etcd refuses writes: {alarm}")).with_details(remedy));
    refusal.map_or(Ok(()), Err)
}

/// The text and the remedy are those of any verb.
fn no_answer(failure: Failure) -> Error {
    Error { code: Code::NotAvailable, ..failure.to_cni() }
}
