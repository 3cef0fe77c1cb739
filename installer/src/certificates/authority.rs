//! A certificate authority (CA): its certificate, and its key, which is read once in a run.

use std::path::Path;

use k8s_openapi::api::core::v1::Secret;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use time::{Duration, OffsetDateTime};

use crate::arguments::AUTHORITY_DAYS;
use crate::failure::Failure;
use crate::files;
use crate::kubernetes::{file, tls_secret};
use crate::log::say;

/// A certificate is valid from this long before now, because the clocks of nodes differ.
const EARLIER: Duration = Duration::hours(1);

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
        let text = |name: &str| {
            let bytes = files::read(&folder.join(name))?;
            String::from_utf8(bytes).map_err(|_| Failure::new(format!("{} holds no PEM", folder.display())))
        };
        Self::new(kind, text("tls.crt")?, text("tls.key")?)
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
            let mut params = params(subject.common_name, subject.names, subject.days)?;
            params.extended_key_usages = subject.usages.to_vec();
            params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
            params.use_authority_key_identifier_extension = true;
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
    let mut params = params(kind.common_name, &[], AUTHORITY_DAYS)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

fn params(common_name: &str, names: &[String], days: i64) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    let now = OffsetDateTime::now_utc();
    params.not_before = now - EARLIER;
    params.not_after = now + Duration::days(days);
    Ok(params)
}
