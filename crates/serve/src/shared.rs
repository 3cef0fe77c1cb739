//! The state of a program that its work changes and its server shows.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::listen::{Page, Pages};

/// A state with the three usual pages.
pub trait Shown: Send + 'static {
    /// `/metrics`.
    fn metrics(&self) -> Page;

    /// `/healthz`: bad where a restart may help.
    fn health(&self) -> Page;

    /// `/readyz`.
    fn readiness(&self) -> Page;
}

/// A state that several threads share.
#[derive(Debug)]
pub struct Shared<S>(Arc<Mutex<S>>);

impl<S> Shared<S> {
    /// Shares a state.
    #[must_use]
    pub fn new(state: S) -> Self {
        Self(Arc::new(Mutex::new(state)))
    }

    /// The state. No other thread has it meanwhile.
    pub fn state(&self) -> MutexGuard<'_, S> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S> Clone for Shared<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S: Shown> Pages for Shared<S> {
    fn page(&self, path: &str) -> Option<Page> {
        match path {
            "/metrics" => Some(self.state().metrics()),
            "/healthz" => Some(self.state().health()),
            "/readyz" => Some(self.state().readiness()),
            _ => None,
        }
    }
}
