//! Work that this process waits for, and that may end early when it is asked to end.

use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use crate::failure::Failure;

/// The result of the work; none if SIGTERM came first. The first process of a container ends by that signal only if it
/// asks for it.
pub(crate) fn unless_terminated<T>(work: impl Future<Output = T>) -> Result<Option<T>, Failure> {
    at_its_end(async {
        tokio::select! {
            () = terminated() => None,
            done = work => Some(done),
        }
    })
}

/// The result of the work, which may be ended with this process at any moment.
pub(crate) fn at_its_end<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Failure::new(format!("cannot start to wait: {e}")))?;
    Ok(runtime.block_on(work))
}

async fn terminated() {
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => drop(terminate.recv().await),
        Err(_) => std::future::pending().await,
    }
}
