//! The certificate and the key of a server. Their renewer replaces the files and tells this program nothing. So it
//! reads them again every few seconds, if somebody connects.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use metes_core::limits;
use metes_node::files::{Trust, read_trusted};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::time::Instant;

/// The time for which the files are believed to be unchanged.
const BELIEVED: Duration = Duration::from_secs(10);

/// The files, PEM.
#[derive(Debug, Clone)]
pub(crate) struct IdentityFiles {
    /// The certificate, and those between it and the authority's.
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

/// The certificate and the key in use, and the last look at their files.
pub(crate) struct ServerIdentity {
    files: IdentityFiles,
    last: Mutex<LastRead>,
}

struct LastRead {
    at: Instant,
    pem: [Vec<u8>; 2],
    config: Arc<ServerConfig>,
}

impl ServerIdentity {
    /// Reads the files for the first time.
    ///
    /// # Errors
    /// Why they cannot be used, in words, without their content.
    pub(crate) fn read(files: IdentityFiles) -> Result<Self, String> {
        let pem = files.read()?;
        let last = Mutex::new(LastRead { at: Instant::now(), config: config(&pem)?, pem });
        Ok(Self { files, last })
    }

    /// The configuration for a connection that begins now. If the files have become useless, their last good content
    /// goes on serving: somebody may be replacing them.
    pub(crate) fn current(&self) -> Arc<ServerConfig> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.at.elapsed() >= BELIEVED {
            last.at = Instant::now();
            match self.files.read() {
                Ok(pem) if pem == last.pem => {}
                read => match read.and_then(|pem| Ok((config(&pem)?, pem))) {
                    Ok((config, pem)) => {
                        (last.config, last.pem) = (config, pem);
                        tracing::info!("the certificate was renewed");
                    }
                    Err(why) => tracing::warn!(%why, "the certificate cannot be renewed"),
                },
            }
        }
        last.config.clone()
    }
}

impl IdentityFiles {
    fn read(&self) -> Result<[Vec<u8>; 2], String> {
        let read = |flag: &str, path: &PathBuf, trust| {
            let read = read_trusted(path, limits::INPUT_BYTES, trust);
            read.map_err(|e| format!("{flag} {} cannot be used: {e}", path.display()))
        };
        Ok([
            read("--cert-file", &self.cert, Trust::OwnerWrites)?,
            read("--key-file", &self.key, Trust::GroupReads)?,
        ])
    }
}

fn config([cert, key]: &[Vec<u8>; 2]) -> Result<Arc<ServerConfig>, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(cert).collect();
    let chain = chain.map_err(|_| "--cert-file has no certificate in PEM".to_owned())?;
    let key =
        PrivateKeyDer::from_pem_slice(key).map_err(|_| "--key-file has no private key in PEM".to_owned())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = builder.and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key));
    config
        .map(Arc::new)
        .map_err(|e| format!("the certificate of --cert-file and the key of --key-file do not serve: {e}"))
}
