//! Floors: runs that do no more than any plugin on etcd must do, a connection and a durable put.

use std::sync::Arc;

use etcd_client as ec;
use metes_engine::random::random_id;
use metes_etcd::client::{Access, Tls};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use crate::crew::{Client, Log};
use crate::puts::{VALUE, connect};

/// A node that does floors instead of ADDs.
#[derive(Clone)]
pub(super) struct Floors {
    access: Access,
    index: usize,
    /// How many go on at once, and how many follow each other in each of these lines.
    lines: usize,
    each: usize,
    turns: Arc<Semaphore>,
}

impl Floors {
    pub(super) fn of(access: Access, index: usize, [lines, each]: [usize; 2], turns: Arc<Semaphore>) -> Self {
        Self { access, index, lines, each, turns }
    }

    async fn line(self) -> Log {
        let mut log = Log::default();
        let _turn = self.turns.acquire().await;
        for number in 0..self.each {
            let start = Instant::now();
            match self.floor(number).await {
                Ok(()) => log.main.take(start.elapsed()),
                Err(e) => log.fail("floor", e),
            }
        }
        log
    }

    async fn floor(&self, number: usize) -> Result<(), ec::Error> {
        // As long as a reservation's key.
        let key = format!("/metes-load-floors/{}", random_id());
        let endpoint = &self.access.endpoints[(self.index + number) % self.access.endpoints.len()];
        let tls = self.access.tls.as_ref().map(transport);
        connect(endpoint, tls).await?.put(key, VALUE, None).await.map(|_| ())
    }
}

impl Client for Floors {
    async fn work(self, _: Instant) -> Log {
        let mut lines = JoinSet::new();
        for _ in 0..self.lines {
            lines.spawn_local(self.clone().line());
        }
        let mut log = Log::default();
        while let Some(done) = lines.join_next().await {
            log.merge(done.expect("no floor panics"));
        }
        log
    }
}

/// The same files for a connection without the plugin's code.
pub(super) fn transport(tls: &Tls) -> ClientTlsConfig {
    let config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&tls.ca));
    match &tls.identity {
        Some((cert, key)) => config.identity(Identity::from_pem(cert, key)),
        None => config,
    }
}
