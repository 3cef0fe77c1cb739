//! The parts that every run (a pass, an adoption or an import) has: the store, this cluster, and its Kubernetes.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use metes_core::keys::Bytes;
use metes_core::limits;
use metes_core::pool::{ClusterName, Record};
use metes_core::snapshot::Snapshot;
use metes_engine::kv::Kv;
use metes_engine::prefix::{self, StoredMeta};
use metes_engine::session::Session;
use tokio::time::Instant;

use crate::assign::{AssignError, Assigned, Assignment, Together, assign, assign_all, foresee, foresee_all};
use crate::error::RunError;

/// The number of owners that are written at the same time. Each takes a few round trips and a ticket in a queue.
pub(crate) const AT_ONCE: usize = 8;
/// The longest time for writing one owner.
const OWNER_DEADLINE: Duration = Duration::from_secs(10);

/// The parts that every run has.
pub struct Context<'a, K, A> {
    /// The store, and the time by which the run must end.
    pub session: Session<'a, K>,
    /// This cluster's name, which is written on records.
    pub cluster: &'a ClusterName,
    /// Kubernetes.
    pub api: &'a A,
    /// Write nothing at all.
    pub dry_run: bool,
}

impl<K, A> Clone for Context<'_, K, A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, A> Copy for Context<'_, K, A> {}

impl<'a, K: Kv, A> Context<'a, K, A> {
    /// The store, with the deadline for the work on one owner.
    pub(crate) fn for_one_owner(&self) -> Session<'a, K> {
        self.session.by(self.session.until.min(Instant::now() + OWNER_DEADLINE))
    }

    /// Carries out an assignment. A dry run only foresees the result.
    pub(crate) async fn assign(&self, wanted: &Assignment) -> Result<Assigned, AssignError> {
        match self.dry_run {
            true => foresee(self.for_one_owner(), wanted).await,
            false => assign(self.for_one_owner(), wanted).await,
        }
    }

    /// Like [`Context::assign`], for assignments that are made together.
    pub(crate) async fn assign_all(&self, wanted: &[Assignment]) -> Result<Together, AssignError> {
        match self.dry_run {
            true => foresee_all(self.for_one_owner(), wanted).await,
            false => assign_all(self.for_one_owner(), wanted).await,
        }
    }
}

/// A record and its mod revision.
pub(crate) async fn read<K: Kv, R: Record>(
    session: Session<'_, K>,
    key: &Bytes,
) -> Result<(Option<R>, i64), RunError> {
    let mut snapshot = Snapshot::default();
    session.read(std::slice::from_ref(key), &mut snapshot).await?;
    Ok((snapshot.record(key)?, snapshot.mod_revision(key)))
}

/// Meta, which all writers agree on.
///
/// # Errors
/// [`RunError`], also if the store is for newer programs, or may have gone back in time.
pub(crate) async fn read_meta<K: Kv>(session: Session<'_, K>) -> Result<StoredMeta, RunError> {
    let stored = prefix::read(session).await?;
    match stored.meta.as_ref().and_then(|meta| meta.suspect) {
        Some(epoch) => Err(RunError::Suspect(epoch)),
        None => Ok(stored),
    }
}

/// Ends a run after `timeout`, as if it had been killed. `what` names the run in the error.
pub(crate) async fn within<E: From<RunError>>(
    timeout: Duration,
    what: &'static str,
    // In a box, because the compiler fails on futures that are nested too deep.
    run: Pin<Box<impl Future<Output = Result<(), E>>>>,
) -> Result<(), E> {
    let ended = tokio::time::timeout(timeout, run).await;
    ended.unwrap_or_else(|_| Err(RunError::Timeout(what, timeout).into()))
}

const _: () = assert!(OWNER_DEADLINE.as_secs() < limits::LEASE_TTL.as_secs());
