//! What is in the cluster already, and whether its authorities are those of this run.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};

use super::authority::{Authority, Kind, OF_ALL, OF_NODES};
use super::purpose::{CLIENTS, Purpose};
use super::trusted;
use crate::arguments::NamespacesArgs;
use crate::failure::Failure;
use crate::kubernetes::{Kubernetes, file, text};

/// All that a run may find.
pub(super) struct Found<'a> {
    pub(super) all: Option<Authority>,
    pub(super) of_nodes: Option<Authority>,
    pub(super) secrets: Vec<(&'a Purpose<'a>, Option<Secret>)>,
    pub(super) trusted: Option<ConfigMap>,
    namespace: &'a str,
}

/// An object that names another authority than this run's.
#[derive(PartialEq, Eq)]
struct Other<'a> {
    namespace: &'a str,
    kind: &'static str,
    name: &'a str,
}

impl<'a> Found<'a> {
    pub(super) async fn read(
        api: &Kubernetes,
        namespaces: &'a NamespacesArgs,
        purposes: &'a [Purpose<'a>],
    ) -> Result<Self, Failure> {
        let namespace = &namespaces.namespace;
        let authority = async |kind: Kind| {
            let found = api.find(namespace, kind.secret).await?;
            found.map(|secret| Authority::in_secret(kind, &secret)).transpose()
        };
        let (all, of_nodes) = (authority(OF_ALL).await?, authority(OF_NODES).await?);
        let mut secrets = Vec::new();
        for purpose in purposes {
            secrets.push((purpose, api.find(purpose.namespace, purpose.secret).await?));
        }
        Ok(Self { all, of_nodes, secrets, trusted: api.find(namespace, trusted::NAME).await?, namespace })
    }

    /// Another authority beside certificates of an older one would cut off etcd, nodes and pods, each at another
    /// moment.
    pub(super) fn refuse_to_replace(&self) -> Result<(), Failure> {
        refuse(OF_ALL, self.all.as_ref(), &self.of_another_than_all())?;
        refuse(OF_NODES, self.of_nodes.as_ref(), &self.of_other_nodes())
    }

    fn of_another_than_all(&self) -> Vec<Other<'a>> {
        let is_of_another = |secret: &Secret| names_another(self.all.as_ref(), file(secret, "ca.crt"));
        let mut others = self.secrets_where(is_of_another);
        let trusted = self.trusted.as_ref().and_then(|trusted| text(trusted, trusted::FILE));
        if names_another(self.all.as_ref(), trusted.map(str::as_bytes)) {
            others.push(Other { namespace: self.namespace, kind: "configmap", name: trusted::NAME });
        }
        others.sort_by_key(|other| other.namespace != self.namespace);
        others
    }

    fn of_other_nodes(&self) -> Vec<Other<'a>> {
        self.secrets_where(|secret| names_another(self.of_nodes.as_ref(), file(secret, CLIENTS)))
    }

    fn secrets_where(&self, is_it: impl Fn(&Secret) -> bool) -> Vec<Other<'a>> {
        let those = self.secrets.iter().filter(|(_, secret)| secret.as_ref().is_some_and(&is_it));
        those.map(|(of, _)| Other { namespace: of.namespace, kind: "secret", name: of.secret }).collect()
    }
}

fn refuse(kind: Kind, authority: Option<&Authority>, others: &[Other<'_>]) -> Result<(), Failure> {
    if others.is_empty() {
        return Ok(());
    }
    let what =
        if authority.is_some() { "has another authority than" } else { "is gone, and its authority signed" };
    Err(Failure::new(format!(
        "refused: the Secret {} {what} what is in other objects. Restore it from a backup. To begin with another \
         authority, delete those objects, run this Job again, and then restart etcd's pods, as docs/install.md says: \
         etcd is away for about a minute{}",
        kind.secret,
        deletes(others)
    )))
}

fn deletes(others: &[Other<'_>]) -> String {
    let alike = |one: &Other<'_>, next: &Other<'_>| (one.namespace, one.kind) == (next.namespace, next.kind);
    let command = |chunk: &[Other<'_>]| {
        let names: Vec<&str> = chunk.iter().map(|other| other.name).collect();
        format!("\n  kubectl -n {} delete {} {}", chunk[0].namespace, chunk[0].kind, names.join(" "))
    };
    others.chunk_by(alike).map(command).collect()
}

/// While an authority is replaced by hand, a file has both.
fn names_another(authority: Option<&Authority>, certificates: Option<&[u8]>) -> bool {
    let names_it = |certificates: &[u8]| {
        authority.is_some_and(|it| words(certificates).contains(&words(it.certificate.as_bytes())))
    };
    certificates.is_some_and(|certificates| !names_it(certificates))
}

/// PEM with single spaces in the place of lines.
fn words(pem: &[u8]) -> String {
    String::from_utf8_lossy(pem).split_whitespace().collect::<Vec<_>>().join(" ")
}
