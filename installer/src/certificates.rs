//! The certificates of etcd and of its clients: a certificate authority (CA), and one certificate for each use.
//!
//! The CA is made once and kept in its own Secret. A run certifies new keys with it, for all purposes or for those
//! whose certificates cannot be [kept](Made).

use std::net::IpAddr;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};

use crate::arguments::{AUTHORITY_DAYS, CertificatesArgs};
use crate::failure::Failure;
use crate::files;
use crate::kubernetes::{list, tls_secret};
use crate::template::Template;

const AUTHORITY: &str = "metes authority";
/// A certificate is valid from this long before now, because the clocks of nodes differ.
const EARLIER: Duration = Duration::hours(1);

/// A certificate and its key, PEM.
struct Pair {
    certificate: String,
    key: String,
}

/// The file of a Secret that describes its certificate. It saves reading the certificate itself.
const MADE: &str = "made.json";

/// The properties that a certificate was made with.
#[derive(Debug, Serialize, Deserialize)]
struct Made {
    /// The names and addresses that it is for.
    names: Vec<String>,
    /// When it ends, in seconds since 1970 in UTC.
    not_after: i64,
}

/// A certificate to make, and its use.
struct Purpose<'a> {
    /// The name of its Secret, and its common name: the client's user in etcd.
    secret: &'static str,
    names: &'a [String],
    usages: &'static [ExtendedKeyUsagePurpose],
}

const BOTH: &[ExtendedKeyUsagePurpose] =
    &[ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
const SERVER: &[ExtendedKeyUsagePurpose] = &[ExtendedKeyUsagePurpose::ServerAuth];
const CLIENT: &[ExtendedKeyUsagePurpose] = &[ExtendedKeyUsagePurpose::ClientAuth];

pub(crate) fn make(arguments: &CertificatesArgs) -> Result<(), Failure> {
    let CertificatesArgs { template, namespace, ca, days, keep, out } = arguments;
    let template = Template::read(&template.template)?;
    let kept = kept_authority(ca)?;
    refuse_to_replace(keep.as_deref(), kept.as_ref(), namespace)?;
    let authority = kept.map_or_else(new_authority, Ok).map_err(said)?;
    let names = server_names(&template, namespace)?;
    // Peers know each other only by address.
    let peers: Vec<String> = names.iter().filter(|name| name.parse::<IpAddr>().is_ok()).cloned().collect();
    let mut needed = Vec::new();
    let webhook = ["svc", "svc.cluster.local"].map(|suffix| format!("metes-webhook.{namespace}.{suffix}"));
    for purpose in purposes(&names, &peers, &webhook) {
        let is_kept = match keep {
            Some(folder) => purpose.is_good(&folder.join(purpose.secret), *days)?,
            None => false,
        };
        if !is_kept {
            needed.push(purpose);
        }
    }
    let items = secrets(&authority, namespace, &needed, *days).map_err(said)?;
    let text = list(&items).to_string();
    files::replace(out, text.as_bytes(), 0o600)
}

fn said(error: rcgen::Error) -> Failure {
    Failure::new(format!("cannot make a certificate: {error}"))
}

/// All names and addresses under which the plugin, a peer, or a pod reaches a member of etcd.
fn server_names(template: &Template, namespace: &str) -> Result<Vec<String>, Failure> {
    let mut names = vec![
        format!("etcd.{namespace}.svc"),
        format!("etcd.{namespace}.svc.cluster.local"),
        "localhost".to_owned(),
        "127.0.0.1".to_owned(),
    ];
    names.extend(template.server_name().map(str::to_owned));
    names.extend(template.endpoints()?.into_iter().map(|endpoint| endpoint.host));
    let mut seen = Vec::new();
    names.retain(|name| {
        !seen.contains(name) && {
            seen.push(name.clone());
            true
        }
    });
    Ok(names)
}

fn kept_authority(folder: &Path) -> Result<Option<Pair>, Failure> {
    let read = |name: &str| files::read_if_there(&folder.join(name));
    let text = |bytes| {
        String::from_utf8(bytes).map_err(|_| Failure::new(format!("{} holds no PEM", folder.display())))
    };
    match (read("tls.crt")?, read("tls.key")?) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => Ok(Some(Pair { certificate: text(certificate)?, key: text(key)? })),
        _ => {
            Err(Failure::new(format!("{} has one of tls.crt and tls.key: both or neither", folder.display())))
        }
    }
}

/// Another authority beside certificates of an older one would cut off etcd, nodes and pods, each at another moment.
fn refuse_to_replace(keep: Option<&Path>, authority: Option<&Pair>, namespace: &str) -> Result<(), Failure> {
    let mut others = Vec::new();
    let folders = keep.map(files::list).transpose()?.unwrap_or_default();
    for folder in folders.into_iter().filter(|path| path.is_dir()) {
        let is_of = |ca: &Vec<u8>| authority.is_some_and(|kept| ca == kept.certificate.as_bytes());
        if files::read_if_there(&folder.join("ca.crt"))?.is_some_and(|ca| !is_of(&ca)) {
            others.extend(folder.file_name().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    if others.is_empty() {
        return Ok(());
    }
    let what =
        if authority.is_some() { "has another authority than" } else { "is gone, and its authority signed" };
    Err(Failure::new(format!(
        "refused: the Secret metes-ca {what} what is in the Secrets {}. Restore metes-ca from a backup. To begin with \
         another authority, delete those Secrets (kubectl -n {namespace} delete secret {}), run this Job again, and \
         then restart etcd's pods, as docs/install.md says: etcd is away for about a minute",
        others.join(", "),
        others.join(" ")
    )))
}

fn authority_params() -> Result<CertificateParams, rcgen::Error> {
    let mut params = params(AUTHORITY, &[], AUTHORITY_DAYS)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

fn new_authority() -> Result<Pair, rcgen::Error> {
    let key = KeyPair::generate()?;
    let certificate = authority_params()?.self_signed(&key)?.pem();
    Ok(Pair { certificate, key: key.serialize_pem() })
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

fn purposes<'a>(names: &'a [String], peers: &'a [String], webhook: &'a [String]) -> [Purpose<'a>; 7] {
    let client = |name| Purpose { secret: name, names: &[], usages: CLIENT };
    [
        Purpose { secret: "metes-etcd-server", names, usages: BOTH },
        Purpose { secret: "metes-etcd-peer", names: peers, usages: BOTH },
        client("metes-node"),
        client("metes-reconciler"),
        client("metes-viewer"),
        client("metes-admin"),
        // Not for etcd: the API server asks it about networks.
        Purpose { secret: "metes-webhook", names: webhook, usages: SERVER },
    ]
}

impl Purpose<'_> {
    /// True if the Secret in this folder has a certificate for the same names, and half of its days are left. It is of
    /// the authority: another one is refused before.
    fn is_good(&self, folder: &Path, days: i64) -> Result<bool, Failure> {
        let read = |name: &str| files::read_if_there(&folder.join(name));
        let (Some(_), Some(made)) = (read("ca.crt")?, read(MADE)?) else { return Ok(false) };
        // A file that does not decode was not made like this.
        let Ok(made) = serde_json::from_slice::<Made>(&made) else { return Ok(false) };
        let half: Duration = Duration::days(days) / 2;
        let until = OffsetDateTime::now_utc() + half;
        Ok(made.names == self.names && made.not_after >= until.unix_timestamp())
    }
}

/// The Secrets of the authority, which stays as it is if it was there, and of what is made anew.
fn secrets(
    authority: &Pair,
    namespace: &str,
    purposes: &[Purpose<'_>],
    days: i64,
) -> Result<Vec<Value>, rcgen::Error> {
    // The subject and the key are the CA's, whichever run made its certificate.
    let issuer = Issuer::new(authority_params()?, KeyPair::from_pem(&authority.key)?);
    let mut items = vec![tls_secret(
        namespace,
        "metes-ca",
        &[("tls.crt", &authority.certificate), ("tls.key", &authority.key)],
    )];
    for purpose in purposes {
        let (pair, made) = certified(&issuer, purpose, days)?;
        let files = [
            ("ca.crt", &*authority.certificate),
            ("tls.crt", &pair.certificate),
            ("tls.key", &pair.key),
            (MADE, &json!(made).to_string()),
        ];
        items.push(tls_secret(namespace, purpose.secret, &files));
    }
    Ok(items)
}

fn certified(
    issuer: &Issuer<'_, KeyPair>,
    purpose: &Purpose<'_>,
    days: i64,
) -> Result<(Pair, Made), rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = params(purpose.secret, purpose.names, days)?;
    params.extended_key_usages = purpose.usages.to_vec();
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    let made = Made { names: purpose.names.to_vec(), not_after: params.not_after.unix_timestamp() };
    let certificate = params.signed_by(&key, issuer)?.pem();
    Ok((Pair { certificate, key: key.serialize_pem() }, made))
}
