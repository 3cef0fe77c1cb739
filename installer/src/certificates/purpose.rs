//! The certificates that an installation needs, each in a Secret of its own, and when one can be kept.

use k8s_openapi::api::core::v1::Secret;
use rcgen::ExtendedKeyUsagePurpose;
use serde::{Deserialize, Serialize};
use serde_json::json;
use time::{Duration, OffsetDateTime};

use super::Authorities;
use super::authority::{Certified, Subject};
use crate::arguments::NamespacesArgs;
use crate::failure::Failure;
use crate::kubernetes::{file, tls_secret};

/// The file of a Secret that describes its certificate. It saves reading the certificate itself.
const MADE: &str = "made.json";
/// The file of etcd's Secret with all authorities whose clients etcd lets in.
pub(super) const CLIENTS: &str = "clients.crt";
/// The Secret of the nodes, where one key serves them all.
const ONE_KEY: &str = "metes-node";

/// The properties that a certificate was made with.
#[derive(Debug, Serialize, Deserialize)]
struct Made {
    /// The names and addresses that it is for.
    names: Vec<String>,
    /// When it ends, in seconds since 1970 in UTC.
    not_after: i64,
}

/// A certificate to make, and its use.
pub(super) struct Purpose<'a> {
    pub(super) namespace: &'a str,
    /// The name of its Secret, and its common name: the client's user in etcd.
    pub(super) secret: &'static str,
    names: &'a [String],
    usages: &'static [ExtendedKeyUsagePurpose],
    /// Whether it lets in clients: then it names the authorities of them all.
    lets_clients_in: bool,
}

const BOTH: &[ExtendedKeyUsagePurpose] =
    &[ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
const SERVER: &[ExtendedKeyUsagePurpose] = &[ExtendedKeyUsagePurpose::ServerAuth];
const CLIENT: &[ExtendedKeyUsagePurpose] = &[ExtendedKeyUsagePurpose::ClientAuth];

/// The names that servers are asked by.
pub(super) struct ServerNames {
    pub(super) etcd: Vec<String>,
    pub(super) peers: Vec<String>,
    pub(super) webhook: [String; 2],
}

/// All of them. `one_key`: the nodes share one, and have no identities.
pub(super) fn purposes<'a>(
    namespaces: &'a NamespacesArgs,
    names: &'a ServerNames,
    one_key: bool,
) -> Vec<Purpose<'a>> {
    let NamespacesArgs { namespace, pods_namespace: pods } = namespaces;
    let purpose = |namespace, secret, names, usages| Purpose {
        namespace,
        secret,
        names,
        usages,
        lets_clients_in: false,
    };
    let client = |namespace, secret| purpose(namespace, secret, &[], CLIENT);
    let mut all = vec![
        Purpose { lets_clients_in: true, ..purpose(namespace, "metes-etcd-server", &names.etcd, BOTH) },
        purpose(namespace, "metes-etcd-peer", &names.peers, BOTH),
        // Gives nodes their users in etcd.
        client(namespace, "metes-signer"),
    ];
    all.extend(one_key.then(|| client(namespace, ONE_KEY)));
    all.extend([
        client(pods, "metes-reconciler"),
        client(pods, "metes-viewer"),
        client(pods, "metes-admin"),
        // No user of etcd: it shows who may read etcd's metrics.
        client(pods, "metes-metrics"),
        // Not for etcd: the API server asks it about networks.
        purpose(pods, "metes-webhook", &names.webhook, SERVER),
    ]);
    all
}

impl Purpose<'_> {
    /// True if this Secret has a certificate for the same names, and half of its days are left. It is of the
    /// authorities: others are refused before.
    pub(super) fn is_good(&self, secret: &Secret, days: i64) -> bool {
        // A file that does not decode was not made like this.
        let made = file(secret, MADE).and_then(|made| serde_json::from_slice::<Made>(made).ok());
        let half: Duration = Duration::days(days) / 2;
        let until = (OffsetDateTime::now_utc() + half).unix_timestamp();
        let made = made.filter(|made| made.names == self.names && made.not_after >= until);
        let is_whole = |name| file(secret, name).is_some();
        made.is_some() && is_whole("ca.crt") && (!self.lets_clients_in || is_whole(CLIENTS))
    }

    /// With a new key.
    pub(super) fn secret(&self, authorities: &Authorities, days: i64) -> Result<Secret, Failure> {
        let subject = Subject { common_name: self.secret, names: self.names, usages: self.usages, days };
        let Certified { certificate, key, not_after } = authorities.all.certify(&subject)?;
        let made = Made { names: self.names.to_vec(), not_after: not_after.unix_timestamp() };
        let (made, clients) = (json!(made).to_string(), authorities.of_clients());
        let mut files = vec![
            ("ca.crt", &*authorities.all.certificate),
            ("tls.crt", &*certificate),
            ("tls.key", &*key),
            (MADE, &*made),
        ];
        files.extend(self.lets_clients_in.then_some((CLIENTS, &*clients)));
        Ok(tls_secret(self.namespace, self.secret, &files))
    }
}
