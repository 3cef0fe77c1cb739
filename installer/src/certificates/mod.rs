//! The certificates of etcd and of its clients: two certificate authorities (CAs), and one certificate for each use.
//!
//! One CA signs what is made here. The other one signs the identities of nodes, which metes-signer gives out. Each is
//! made once, and kept in its own Secret, which no run changes. A run certifies new keys, for the uses whose
//! certificates cannot be [kept](Purpose::is_good), or for all of them.

mod authority;
mod found;
mod purpose;
mod trusted;

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::arguments::CertificatesArgs;
use crate::failure::Failure;
use crate::files;
use crate::kubernetes::Kubernetes;
use crate::log::say;
use crate::stop::unless_terminated;
use crate::template::Template;
use authority::{Authority, OF_ALL, OF_NODES};
use found::Found;
use purpose::{Purpose, ServerNames, purposes};

/// The authorities of an installation.
struct Authorities {
    /// Of etcd, and of clients with a fixed name.
    all: Authority,
    of_nodes: Authority,
}

impl Authorities {
    /// Those whose clients etcd lets in.
    fn of_clients(&self) -> String {
        format!("{}\n{}", self.all.certificate.trim_end(), self.of_nodes.certificate)
    }
}

pub(crate) fn make(arguments: &CertificatesArgs) -> Result<(), Failure> {
    let CertificatesArgs { template, namespaces, one_key, .. } = arguments;
    let template = Template::read(&template.template)?;
    let etcd = server_names(&template, &namespaces.namespace)?;
    // Peers know each other only by address.
    let peers = etcd.iter().filter(|name| name.parse::<IpAddr>().is_ok()).cloned().collect();
    let webhook = ["svc", "svc.cluster.local"]
        .map(|suffix| format!("metes-webhook.{}.{suffix}", namespaces.pods_namespace));
    let names = ServerNames { etcd, peers, webhook };
    let purposes = purposes(namespaces, &names, *one_key);
    match &arguments.out {
        Some(out) => write(arguments, &purposes, out),
        None => unless_terminated(store(arguments, &purposes))?
            .unwrap_or_else(|| Err(Failure::new("stopped before it finished"))),
    }
}

/// All objects as one file, which kubectl takes.
fn write(arguments: &CertificatesArgs, purposes: &[Purpose<'_>], out: &Path) -> Result<(), Failure> {
    let authority = |folder: Option<&PathBuf>, kind| match folder {
        Some(folder) => Authority::in_folder(kind, folder),
        None => Authority::another(kind),
    };
    let authorities = Authorities {
        all: authority(arguments.ca.as_ref(), OF_ALL)?,
        of_nodes: authority(arguments.node_ca.as_ref(), OF_NODES)?,
    };
    let namespace = &arguments.namespaces.namespace;
    let mut items =
        vec![json!(authorities.all.secret(namespace)), json!(authorities.of_nodes.secret(namespace))];
    for purpose in purposes {
        items.push(json!(purpose.secret(&authorities, arguments.days)?));
    }
    items.push(json!(trusted::object(&authorities, namespace)));
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    files::replace(out, list.to_string().as_bytes(), 0o600)
}

/// Writes what is missing or old to the API server.
async fn store(arguments: &CertificatesArgs, purposes: &[Purpose<'_>]) -> Result<(), Failure> {
    let CertificatesArgs { namespaces, days, renew, .. } = arguments;
    let namespace = &namespaces.namespace;
    let api = Kubernetes::new().await?;
    let there = Found::read(&api, namespaces, purposes).await?;
    there.refuse_to_replace()?;
    let authority = async |found, kind| match found {
        Some(authority) => Ok(authority),
        None => {
            let authority = Authority::another(kind)?;
            // If another run has made one meanwhile, this one fails here, and has made nothing of its own.
            api.create(&authority.secret(namespace)).await.map(|()| authority)
        }
    };
    let authorities = Authorities {
        all: authority(there.all, OF_ALL).await?,
        of_nodes: authority(there.of_nodes, OF_NODES).await?,
    };
    for (purpose, found) in there.secrets {
        let is_kept = !renew && found.is_some_and(|secret| purpose.is_good(&secret, *days));
        if !is_kept {
            api.apply(&purpose.secret(&authorities, *days)?).await?;
        }
        say(&format!("{} {}/{}", if is_kept { "kept" } else { "made" }, purpose.namespace, purpose.secret));
    }
    if !there.trusted.is_some_and(|found| trusted::is_good(&found, &authorities)) {
        api.apply(&trusted::object(&authorities, namespace)).await?;
    }
    Ok(())
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
