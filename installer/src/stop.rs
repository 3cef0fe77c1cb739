//! Work that ends early when this process is asked to end.

use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use crate::failure::Failure;

/// The result of the work; none if SIGTERM came first. The first process of a container ends by that signal only if it
/// asks for it.
pub(crate) fn unless_terminated<T>(work: impl Future<Output = T>) -> Result<Option<T>, Failure> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Failure::new(format!("cannot begin to wait: {e}")))?;
    Ok(runtime.block_on(async {
        tokio::select! {
            () = terminated() => None,
            done = work => Some(done),
        }
    }))
}

async fn terminated() {
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => drop(terminate.recv().await),
        Err(_) => std::future::pending().await,
    }
}
