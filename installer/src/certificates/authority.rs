//! A certificate authority (CA): its certificate, and its key, which is read once in a run.

use std::path::Path;

use k8s_openapi::api::core::v1::Secret;
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use time::{Duration, OffsetDateTime};

use crate::arguments::AUTHORITY_DAYS;
use crate::failure::Failure;
use crate::issuing::{leaf_params, pair_in, params};
use crate::kubernetes::{file, tls_secret};
use crate::log::say;

/// One of the authorities of an installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kind {
    /// The name of its Secret.
    pub(super) secret: &'static str,
    common_name: &'static str,
}

/// Signs the certificates of etcd, and of the clients that have a fixed name.
pub(super) const OF_ALL: Kind = Kind { secret: "metes-ca", common_name: "metes authority" };
/// Signs the identities of nodes and nothing else: its key cannot make a certificate that etcd or a node takes for a
/// member's.
pub(super) const OF_NODES: Kind = Kind { secret: "metes-node-ca", common_name: "metes node authority" };

/// An authority with its key.
pub(super) struct Authority {
    kind: Kind,
    /// PEM.
    pub(super) certificate: String,
    /// PEM.
    key: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, PEM, and when it ends.
pub(super) struct Certified {
    pub(super) certificate: String,
    pub(super) key: String,
    pub(super) not_after: OffsetDateTime,
}

/// What a certificate is made for.
pub(super) struct Subject<'a> {
    pub(super) common_name: &'a str,
    pub(super) names: &'a [String],
    pub(super) usages: &'a [ExtendedKeyUsagePurpose],
    pub(super) days: i64,
}

impl Authority {
    pub(super) fn another(kind: Kind) -> Result<Self, Failure> {
        let made = || {
            let key = KeyPair::generate()?;
            let certificate = ca_params(kind)?.self_signed(&key)?.pem();
            Ok((certificate, key.serialize_pem()))
        };
        let (certificate, key) = made().map_err(said)?;
        say(&format!("made another certificate authority, {}", kind.secret));
        Self::new(kind, certificate, key)
    }

    /// The authority in a Secret's files.
    pub(super) fn in_secret(kind: Kind, secret: &Secret) -> Result<Self, Failure> {
        let text = |name| file(secret, name).and_then(|content| String::from_utf8(content.to_vec()).ok());
        match (text("tls.crt"), text("tls.key")) {
            (Some(certificate), Some(key)) => Self::new(kind, certificate, key),
            _ => Err(Failure::new(format!(
                "refused: the Secret {} has no tls.crt and tls.key in PEM. Restore it from a backup",
                kind.secret
            ))),
        }
    }

    pub(super) fn in_folder(kind: Kind, folder: &Path) -> Result<Self, Failure> {
        let [certificate, key] = pair_in(folder)?;
        Self::new(kind, certificate, key)
    }

    /// The subject and the key are the authority's, whichever run made its certificate.
    fn new(kind: Kind, certificate: String, key: String) -> Result<Self, Failure> {
        let issuer = ca_params(kind).and_then(|params| Ok(Issuer::new(params, KeyPair::from_pem(&key)?)));
        Ok(Self { kind, certificate, key, issuer: issuer.map_err(said)? })
    }

    pub(super) fn secret(&self, namespace: &str) -> Secret {
        let files = [("tls.crt", &*self.certificate), ("tls.key", &*self.key)];
        tls_secret(namespace, self.kind.secret, &files)
    }

    /// Certifies a new key.
    pub(super) fn certify(&self, subject: &Subject<'_>) -> Result<Certified, Failure> {
        let made = || {
            let key = KeyPair::generate()?;
            let Subject { common_name, names, usages, days } = subject;
            let params = leaf_params(common_name, names, usages, Duration::days(*days))?;
            let certificate = params.signed_by(&key, &self.issuer)?.pem();
            Ok(Certified { certificate, key: key.serialize_pem(), not_after: params.not_after })
        };
        made().map_err(said)
    }
}

fn said(error: rcgen::Error) -> Failure {
    Failure::new(format!("cannot make a certificate: {error}"))
}

fn ca_params(kind: Kind) -> Result<CertificateParams, rcgen::Error> {
    let mut params = params(kind.common_name, &[], Duration::days(AUTHORITY_DAYS))?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}
