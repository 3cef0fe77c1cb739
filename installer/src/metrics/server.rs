//! Serves the metrics by TLS, in a thread of its own, so that a slow installation delays no answer.
//!
//! The server's certificate is made when it starts, and nobody has signed it: Prometheus finds the node by Kubernetes.
//! Who asks must show a client certificate of the authority that the template names. Without one there is no answer.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use metes_serve::listen::{self, Listen, Open, Pages};
use rcgen::CertifiedKey;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, sleep};
use tokio_rustls::TlsAcceptor;

use crate::failure::Failure;
use crate::files::read;
use crate::log::{Notice, say};
use crate::template::Template;

/// The pause before it is tried again to listen.
const BIND_PAUSE: Duration = Duration::from_secs(5);
/// The time for which the authority's file is believed to be unchanged.
const BELIEVED: Duration = Duration::from_secs(10);

/// Begins to serve. Whatever fails is said, and the installation goes on.
pub(super) fn start(listen: Listen, template: &Path, node: &str, pages: impl Pages + Sync) {
    let (template, node) = (template.to_owned(), node.to_owned());
    let run = move || match prepare(template, node) {
        Ok((runtime, readers)) => {
            runtime.block_on(answer_for_ever(&listen, &readers.into(), &pages));
        }
        Err(e) => say(&format!("no metrics are served: {e}")),
    };
    if let Err(e) = thread::Builder::new().name("metrics".to_owned()).spawn(run) {
        say(&format!("no metrics are served: {e}"));
    }
}

fn prepare(template: PathBuf, node: String) -> Result<(Runtime, Readers), Failure> {
    let own = rcgen::generate_simple_self_signed([node]);
    let own = own.map_err(|e| Failure::new(format!("no certificate can be made: {e}")))?;
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Failure::new(format!("cannot start to wait: {e}")))?;
    Ok((runtime, Readers { own, template, last: Mutex::default() }))
}

async fn answer_for_ever(listen: &Listen, readers: &Arc<Readers>, pages: &impl Pages) -> Infallible {
    let mut told = Notice::default();
    loop {
        match listen::bind(listen).await {
            Ok(listener) => {
                if let Ok(address) = listener.local_addr() {
                    say(&format!("serves metrics on {address}"));
                }
                let answer = |stream| answer(readers.clone(), stream, pages.clone());
                return listen::accept(&listener, &mut Open::new(), answer).await;
            }
            Err(e) => told.say(Some(format!("cannot listen for metrics on {listen}, tried again: {e}"))),
        }
        sleep(BIND_PAUSE).await;
    }
}

async fn answer(readers: Arc<Readers>, stream: TcpStream, pages: impl Pages) {
    let Some(config) = readers.current() else { return };
    // Somebody without a certificate of the authority has nothing to be told.
    let Ok(stream) = TlsAcceptor::from(config).accept(stream).await else { return };
    listen::answer(stream, pages).await;
}

/// Who may read, by the template's authority, and the certificate that they are shown.
struct Readers {
    own: CertifiedKey<rcgen::KeyPair>,
    template: PathBuf,
    last: Mutex<LastAuthority>,
}

/// The last look at the authority's file.
#[derive(Default)]
struct LastAuthority {
    at: Option<Instant>,
    pem: Vec<u8>,
    config: Option<Arc<ServerConfig>>,
    told: Notice,
}

impl Readers {
    /// The configuration for a connection that begins now. While the file is useless, its last good content goes on:
    /// somebody may be replacing it.
    fn current(&self) -> Option<Arc<ServerConfig>> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.at.is_none_or(|at| at.elapsed() >= BELIEVED) {
            last.at = Some(Instant::now());
            let looked = self.look(&mut last);
            last.told.say(looked.err().map(|e| format!("cannot find out who may read metrics: {e}")));
        }
        last.config.clone()
    }

    fn look(&self, last: &mut LastAuthority) -> Result<(), Failure> {
        let path = Template::read(&self.template)?.authority()?;
        let pem = read(&path)?;
        if last.config.is_none() || pem != last.pem {
            let config = self.config(&pem);
            last.config = Some(config.map_err(|e| Failure::new(format!("{}: {e}", path.display())))?);
            last.pem = pem;
        }
        Ok(())
    }

    fn config(&self, authority: &[u8]) -> Result<Arc<ServerConfig>, Box<dyn std::error::Error>> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(authority).filter_map(Result::ok));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let clients = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone()).build()?;
        let key = PrivatePkcs8KeyDer::from(self.own.signing_key.serialize_der());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(clients)
            .with_single_cert(vec![self.own.cert.der().clone()], key.into())?;
        // Each connection shows its certificate.
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }
}
