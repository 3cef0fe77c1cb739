//! The certificates with which a member speaks to the others: those that its etcd uses.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::client::TlsFiles;
use crate::failure::Failure;
use crate::files::read;

/// For asking the steps of other members and answering them, and for etcd.
#[derive(Clone)]
pub(super) struct Tls {
    pub(super) answering: Arc<ServerConfig>,
    pub(super) asking: Arc<ClientConfig>,
}

impl Tls {
    /// As a member among members: each side shows its certificate, and the same authority has signed both.
    pub(super) fn of_peer(files: &TlsFiles) -> Result<Self, Failure> {
        let wrong = |e: &dyn std::fmt::Display| Failure::new(format!("{}: {e}", files.certificate.display()));
        let certificates: Result<Vec<_>, _> =
            CertificateDer::pem_slice_iter(&read(&files.certificate)?).collect();
        let certificates = certificates.map_err(|e| wrong(&e))?;
        let key = PrivateKeyDer::from_pem_slice(&read(&files.key)?);
        let key = key.map_err(|e| Failure::new(format!("{}: {e}", files.key.display())))?;
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(
            CertificateDer::pem_slice_iter(&read(&files.ca)?).filter_map(Result::ok),
        );
        let roots = Arc::new(roots);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone()).build();
        let verifier = verifier.map_err(|e| Failure::new(format!("{}: {e}", files.ca.display())))?;
        let answering = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .and_then(|builder| {
                let builder = builder.with_client_cert_verifier(verifier);
                builder.with_single_cert(certificates.clone(), key.clone_key())
            });
        let asking =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().and_then(
                |builder| builder.with_root_certificates(roots).with_client_auth_cert(certificates, key),
            );
        Ok(Self {
            answering: Arc::new(answering.map_err(|e| wrong(&e))?),
            asking: Arc::new(asking.map_err(|e| wrong(&e))?),
        })
    }
}
