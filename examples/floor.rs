//! The floor of the benchmark: the least that any plugin on etcd must do.
//!
//! Connects to `$FLOOR_ENDPOINT` and does one durable put of a reservation's size under `$FLOOR_PREFIX`, with a
//! key that no other process has, then ends.

use std::error::Error;
use std::{env, process};

use etcd_client::{Channel, Client};
use tonic::transport::Endpoint;

/// What a reservation with a pod's name and UID takes.
const VALUE: [u8; 256] = [b'x'; 256];

fn main() -> Result<(), Box<dyn Error>> {
    let endpoint = env::var("FLOOR_ENDPOINT")?;
    let prefix = env::var("FLOOR_PREFIX")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(put_once(endpoint, key(&prefix)?))
}

/// A process id comes again, a process id at one moment does not. Padded to the length of a reservation's key.
fn key(prefix: &str) -> Result<String, Box<dyn Error>> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    Ok(format!("{prefix}{:0>32}/{}", now.as_nanos(), process::id()))
}

async fn put_once(endpoint: String, key: String) -> Result<(), Box<dyn Error>> {
    let channel = Endpoint::from_shared(endpoint)?.tcp_nodelay(true).connect().await?;
    let mut client = Client::from_channel(Channel::Tonic(channel), None).await?;
    client.put(key, VALUE, None).await?;
    Ok(())
}
