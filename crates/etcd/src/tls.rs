//! The TLS files of a connection to etcd.

use std::sync::Arc;

use rustls::client::WantsClientCert;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use super::cause;
use super::certificate::common_name;
use metes_engine::obstacle::Obstacle;

/// The TLS files, as PEM.
#[derive(Clone)]
pub struct Tls {
    /// The certificates of the authorities that sign etcd's.
    pub ca: Vec<u8>,
    /// This client's certificate and key.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// The name in etcd's certificate, if it is not the endpoint's host.
    pub server_name: Option<String>,
}

/// A configuration that says whom a client trusts, and not yet which certificate it shows.
pub(crate) type Trusting = ConfigBuilder<ClientConfig, WantsClientCert>;

/// The name of HTTP/2 in a handshake.
const HTTP2: &[u8] = b"h2";

impl Tls {
    /// Whether the files can be used, and belong together: a certificate and its key are replaced one after the other.
    ///
    /// # Errors
    /// The file that does not fit, without any of its content.
    pub fn check(&self) -> Result<(), Obstacle> {
        self.client_config().map(|_| ())
    }

    /// For a connection of this program's own, with the same certificates.
    pub(crate) fn client_config(&self) -> Result<ClientConfig, Obstacle> {
        self.config_by(trusting)
    }

    /// The same, where `trusting` says how etcd's certificate is judged by these authorities.
    pub(crate) fn config_by(
        &self,
        trusting: impl FnOnce(RootCertStore) -> Result<Trusting, rustls::Error>,
    ) -> Result<ClientConfig, Obstacle> {
        let mut roots = RootCertStore::empty();
        let (usable, _) = roots.add_parsable_certificates(certificates(&self.ca));
        if usable == 0 {
            return Err(Obstacle::new(
                "ca_file holds no certificate that can be used",
                "put the CA that signed etcd's certificate into ca_file",
            ));
        }
        let unfit = |e: rustls::Error| cause::of_own_files(&e);
        let builder = trusting(roots).map_err(unfit)?;
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => {
                let key = PrivateKeyDer::from_pem_slice(key);
                let key = key.map_err(|_| unfit(rustls::Error::General("it is not PEM".to_owned())))?;
                builder.with_client_auth_cert(certificates(cert).collect(), key).map_err(unfit)?
            }
        };
        config.alpn_protocols.push(HTTP2.to_vec());
        Ok(config)
    }

    /// The same for tonic.
    pub(crate) fn transport(&self) -> ClientTlsConfig {
        let mut config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&self.ca));
        if let Some((cert, key)) = &self.identity {
            config = config.identity(Identity::from_pem(cert, key));
        }
        if let Some(name) = &self.server_name {
            config = config.domain_name(name);
        }
        config
    }

    /// The common name of the client's certificate.
    pub(crate) fn common_name(&self) -> Option<String> {
        let (cert, _) = self.identity.as_ref()?;
        common_name(&certificates(cert).next()?)
    }
}

fn certificates(pem: &[u8]) -> impl Iterator<Item = CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem).filter_map(Result::ok)
}

/// A client that trusts these authorities, with the cryptography that tonic uses.
pub(crate) fn trusting(roots: RootCertStore) -> Result<Trusting, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(roots))
}
