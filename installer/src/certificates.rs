//! The certificates of etcd and of its clients: a certificate authority (CA), and one certificate for each use.
//!
//! The CA is made once, and kept in its own Secret, which no run changes. A run certifies new keys with it, for the
//! uses whose certificates cannot be [kept](Purpose::is_good), or for all of them.

use std::net::IpAddr;
use std::path::Path;

use k8s_openapi::api::core::v1::Secret;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use time::{Duration, OffsetDateTime};

use crate::arguments::{AUTHORITY_DAYS, CertificatesArgs, NamespacesArgs};
use crate::failure::Failure;
use crate::files;
use crate::kubernetes::{Kubernetes, file, tls_secret};
use crate::log::say;
use crate::stop::unless_terminated;
use crate::template::Template;

const AUTHORITY: &str = "metes authority";
/// The authority's Secret.
const AUTHORITY_SECRET: &str = "metes-ca";
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
    namespace: &'a str,
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
    let CertificatesArgs { template, namespaces, .. } = arguments;
    let template = Template::read(&template.template)?;
    let names = server_names(&template, &namespaces.namespace)?;
    // Peers know each other only by address.
    let peers: Vec<String> = names.iter().filter(|name| name.parse::<IpAddr>().is_ok()).cloned().collect();
    let webhook = ["svc", "svc.cluster.local"]
        .map(|suffix| format!("metes-webhook.{}.{suffix}", namespaces.pods_namespace));
    let purposes = purposes(namespaces, &names, &peers, &webhook);
    match &arguments.out {
        Some(out) => write(arguments, &purposes, out),
        None => unless_terminated(store(arguments, &purposes))?
            .unwrap_or_else(|| Err(Failure::new("stopped before its end"))),
    }
}

/// All Secrets as one file, which kubectl takes.
fn write(arguments: &CertificatesArgs, purposes: &[Purpose<'_>], out: &Path) -> Result<(), Failure> {
    let authority = match &arguments.ca {
        Some(folder) => authority_in_folder(folder)?,
        None => another_authority()?,
    };
    let mut items = vec![authority.secret(&arguments.namespaces)];
    for purpose in purposes {
        items.push(purpose.secret(&authority, arguments.days).map_err(said)?);
    }
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    files::replace(out, list.to_string().as_bytes(), 0o600)
}

/// Writes what is missing or old to the API server.
async fn store(arguments: &CertificatesArgs, purposes: &[Purpose<'_>]) -> Result<(), Failure> {
    let CertificatesArgs { namespaces, days, renew, .. } = arguments;
    let api = Kubernetes::new().await?;
    let authority = api.find(&namespaces.namespace, AUTHORITY_SECRET).await?;
    let authority = authority.map(|secret| authority_in(&secret)).transpose()?;
    let mut found = Vec::new();
    for purpose in purposes {
        found.push((purpose, api.find(purpose.namespace, purpose.secret).await?));
    }
    refuse_to_replace(authority.as_ref(), &found)?;
    let authority = match authority {
        Some(authority) => authority,
        None => {
            let authority = another_authority()?;
            // If another run has made one meanwhile, this one fails here, and has written nothing.
            api.create(&authority.secret(namespaces)).await?;
            authority
        }
    };
    for (purpose, found) in found {
        let is_kept = !renew && found.is_some_and(|secret| purpose.is_good(&secret, *days));
        if !is_kept {
            api.apply(&purpose.secret(&authority, *days).map_err(said)?).await?;
        }
        say(&format!("{} {}/{}", if is_kept { "kept" } else { "made" }, purpose.namespace, purpose.secret));
    }
    Ok(())
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

/// The authority in a Secret's files.
fn authority_in(secret: &Secret) -> Result<Pair, Failure> {
    let text = |name| file(secret, name).and_then(|content| String::from_utf8(content.to_vec()).ok());
    match (text("tls.crt"), text("tls.key")) {
        (Some(certificate), Some(key)) => Ok(Pair { certificate, key }),
        _ => Err(Failure::new(format!(
            "refused: the Secret {AUTHORITY_SECRET} has no tls.crt and tls.key in PEM. Restore it from a backup"
        ))),
    }
}

fn authority_in_folder(folder: &Path) -> Result<Pair, Failure> {
    let text = |name: &str| {
        let bytes = files::read(&folder.join(name))?;
        String::from_utf8(bytes).map_err(|_| Failure::new(format!("{} holds no PEM", folder.display())))
    };
    Ok(Pair { certificate: text("tls.crt")?, key: text("tls.key")? })
}

/// Another authority beside certificates of an older one would cut off etcd, nodes and pods, each at another moment.
fn refuse_to_replace(
    authority: Option<&Pair>,
    found: &[(&Purpose<'_>, Option<Secret>)],
) -> Result<(), Failure> {
    // While an authority is replaced by hand, a file has both.
    let signs = |of: &[u8]| {
        authority.is_some_and(|authority| words(of).contains(&words(authority.certificate.as_bytes())))
    };
    let is_of_another = |secret: &Secret| file(secret, "ca.crt").is_some_and(|of| !signs(of));
    let others = found.iter().filter(|(_, secret)| secret.as_ref().is_some_and(is_of_another));
    let others: Vec<&Purpose<'_>> = others.map(|(purpose, _)| *purpose).collect();
    if others.is_empty() {
        return Ok(());
    }
    let what =
        if authority.is_some() { "has another authority than" } else { "is gone, and its authority signed" };
    let deletes: String = others
        .chunk_by(|one, next| one.namespace == next.namespace)
        .map(|chunk| {
            let names: Vec<&str> = chunk.iter().map(|purpose| purpose.secret).collect();
            format!("\n  kubectl -n {} delete secret {}", chunk[0].namespace, names.join(" "))
        })
        .collect();
    Err(Failure::new(format!(
        "refused: the Secret {AUTHORITY_SECRET} {what} what is in other Secrets. Restore it from a backup. To begin \
         with another authority, delete those Secrets, run this Job again, and then restart etcd's pods, as \
         docs/install.md says: etcd is away for about a minute{deletes}"
    )))
}

/// PEM with single spaces in the place of lines.
fn words(pem: &[u8]) -> String {
    String::from_utf8_lossy(pem).split_whitespace().collect::<Vec<_>>().join(" ")
}

fn authority_params() -> Result<CertificateParams, rcgen::Error> {
    let mut params = params(AUTHORITY, &[], AUTHORITY_DAYS)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

fn another_authority() -> Result<Pair, Failure> {
    let authority = new_authority().map_err(said)?;
    say("made another certificate authority");
    Ok(authority)
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

impl Pair {
    fn secret(&self, namespaces: &NamespacesArgs) -> Secret {
        let files = [("tls.crt", &*self.certificate), ("tls.key", &self.key)];
        tls_secret(&namespaces.namespace, AUTHORITY_SECRET, &files)
    }
}

fn purposes<'a>(
    namespaces: &'a NamespacesArgs,
    names: &'a [String],
    peers: &'a [String],
    webhook: &'a [String],
) -> [Purpose<'a>; 8] {
    let NamespacesArgs { namespace, pods_namespace: pods } = namespaces;
    let client = |namespace, secret| Purpose { namespace, secret, names: &[], usages: CLIENT };
    [
        Purpose { namespace, secret: "metes-etcd-server", names, usages: BOTH },
        Purpose { namespace, secret: "metes-etcd-peer", names: peers, usages: BOTH },
        client(namespace, "metes-node"),
        client(pods, "metes-reconciler"),
        client(pods, "metes-viewer"),
        client(pods, "metes-admin"),
        // No user of etcd: it shows who may read etcd's metrics.
        client(pods, "metes-metrics"),
        // Not for etcd: the API server asks it about networks.
        Purpose { namespace: pods, secret: "metes-webhook", names: webhook, usages: SERVER },
    ]
}

impl Purpose<'_> {
    /// True if this Secret has a certificate for the same names, and half of its days are left. It is of the authority:
    /// another one is refused before.
    fn is_good(&self, secret: &Secret, days: i64) -> bool {
        // A file that does not decode was not made like this.
        let made = file(secret, MADE).and_then(|made| serde_json::from_slice::<Made>(made).ok());
        let half: Duration = Duration::days(days) / 2;
        let until = (OffsetDateTime::now_utc() + half).unix_timestamp();
        let made = made.filter(|made| made.names == self.names && made.not_after >= until);
        made.is_some() && file(secret, "ca.crt").is_some()
    }

    /// With a new key.
    fn secret(&self, authority: &Pair, days: i64) -> Result<Secret, rcgen::Error> {
        // The subject and the key are the CA's, whichever run made its certificate.
        let issuer = Issuer::new(authority_params()?, KeyPair::from_pem(&authority.key)?);
        let key = KeyPair::generate()?;
        let mut params = params(self.secret, self.names, days)?;
        params.extended_key_usages = self.usages.to_vec();
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let made = Made { names: self.names.to_vec(), not_after: params.not_after.unix_timestamp() };
        let files = [
            ("ca.crt", authority.certificate.clone()),
            ("tls.crt", params.signed_by(&key, &issuer)?.pem()),
            ("tls.key", key.serialize_pem()),
            (MADE, json!(made).to_string()),
        ];
        let files: Vec<(&str, &str)> =
            files.iter().map(|(name, content)| (*name, content.as_str())).collect();
        Ok(tls_secret(self.namespace, self.secret, &files))
    }
}
