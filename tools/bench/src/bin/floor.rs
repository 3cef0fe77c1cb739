//! The floor of the benchmark: the least that any plugin on etcd must do.
//!
//! Connects to `$FLOOR_ENDPOINT`, does one durable put of a reservation's size (`FLOOR_DOES=put`) or one
//! linearizable read (`FLOOR_DOES=read`) under `$FLOOR_PREFIX`, then ends. With `$FLOOR_CA`, `$FLOOR_CERT` and
//! `$FLOOR_KEY` it speaks TLS and shows a certificate.

use std::error::Error;
use std::time::{SystemTime, UNIX_EPOCH};
use std::{env, fs, process};

use etcd_client::{Channel, Client};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

/// As large as a reservation with a pod's name and UID.
const VALUE: [u8; 256] = [b'x'; 256];

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(once())
}

async fn once() -> Result<(), Box<dyn Error>> {
    let channel = endpoint()?.tcp_nodelay(true).connect().await?;
    let mut client = Client::from_channel(Channel::Tonic(channel), None).await?;
    match env::var("FLOOR_DOES")?.as_str() {
        "put" => _ = client.put(new_key()?, VALUE, None).await?,
        "read" => _ = client.get(env::var("FLOOR_PREFIX")?, None).await?,
        other => return Err(format!("FLOOR_DOES is put or read, not {other:?}").into()),
    }
    Ok(())
}

fn endpoint() -> Result<Endpoint, Box<dyn Error>> {
    let endpoint = Endpoint::from_shared(env::var("FLOOR_ENDPOINT")?)?;
    let Some(ca) = env::var_os("FLOOR_CA") else { return Ok(endpoint) };
    let identity = Identity::from_pem(fs::read(env::var("FLOOR_CERT")?)?, fs::read(env::var("FLOOR_KEY")?)?);
    let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(fs::read(ca)?)).identity(identity);
    Ok(endpoint.tls_config(tls)?)
}

/// The kernel uses process ids again, but not at the same moment. Padded to the length of a reservation's key.
fn new_key() -> Result<String, Box<dyn Error>> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok(format!("{}{:0>32}/{}", env::var("FLOOR_PREFIX")?, now.as_nanos(), process::id()))
}
