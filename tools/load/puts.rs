//! Plain durable puts: nothing that is stored in etcd can cost less.

use etcd_client::{self as ec, Channel, Client as EtcdClient};
use metes_engine::random::random;
use tokio::time::Instant;
use tonic::transport::{ClientTlsConfig, Endpoint};

use crate::crew::{Client, Log};

/// As large as a reservation with a pod's name and UID.
pub(crate) const VALUE: [u8; 256] = [b'x'; 256];

/// Puts one key after the other, each once.
pub(crate) struct Putter {
    client: EtcdClient,
    prefix: String,
}

impl Putter {
    pub(crate) async fn connect(endpoint: &str, prefix: &str, index: usize) -> Self {
        let series = random();
        let client = connect(endpoint, None).await.expect("etcd accepts connections");
        Self { client, prefix: format!("{prefix}{index:04}-{series:016x}/") }
    }
}

impl Client for Putter {
    async fn work(mut self, until: Instant) -> Log {
        let mut log = Log::default();
        let mut next = 0_u64;
        while Instant::now() < until {
            let start = Instant::now();
            // As long as a reservation's key.
            let key = format!("{}{next:016}", self.prefix);
            match self.client.put(key, VALUE, None).await {
                Ok(_) => log.main.take(start.elapsed()),
                Err(e) => log.fail("put", e),
            }
            next += 1;
        }
        log
    }
}

/// A connection of the client library that metes uses, without metes.
pub(crate) async fn connect(endpoint: &str, tls: Option<ClientTlsConfig>) -> Result<EtcdClient, ec::Error> {
    let mut endpoint = Endpoint::from_shared(endpoint.to_owned())?.tcp_nodelay(true);
    if let Some(tls) = tls {
        endpoint = endpoint.tls_config(tls)?;
    }
    EtcdClient::from_channel(Channel::Tonic(endpoint.connect().await?), None).await
}
