//! The certificate that an endpoint of etcd shows, also if this client does not accept it.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use super::certificate::Certificate;
use super::probe;
use super::tls::{Tls, Trusting};

/// Shakes hands with an endpoint like `https://host:port`, and returns the certificate that it showed; none if it
/// showed none that can be read. The caller bounds it.
pub async fn presented(endpoint: &str, tls: &Tls) -> Option<Certificate> {
    let (_, address) = endpoint.split_once("://")?;
    let shown = Arc::new(Mutex::new(None));
    let config = tls.config_by(|roots| recording(roots, shown.clone())).ok()?;
    // Whether etcd goes on after it, and what it says then, does not matter.
    let _ = probe::first_words_by_tls(address, config, probe::server_name(address, tls)?).await;
    let shown = shown.lock().unwrap_or_else(PoisonError::into_inner).take();
    Certificate::parse(&shown?)
}

/// The certificate that was shown, in DER.
type Shown = Arc<Mutex<Option<Vec<u8>>>>;

fn recording(roots: RootCertStore, shown: Shown) -> Result<Trusting, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let judge = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
    let judge = judge.map_err(|e| Error::General(io::Error::other(e).to_string()))?;
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.dangerous().with_custom_certificate_verifier(Arc::new(Recording { judge, shown })))
}

/// Judges as ever, and keeps what it has judged.
#[derive(Debug)]
struct Recording {
    judge: Arc<WebPkiServerVerifier>,
    shown: Shown,
}

impl ServerCertVerifier for Recording {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = Some(end_entity.to_vec());
        self.judge.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.judge.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.judge.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.judge.supported_verify_schemes()
    }
}
