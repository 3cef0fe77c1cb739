//! Secrets with certificates, in the cluster of this program.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client, Config, Error};

use crate::failure::{Failure, innermost};

/// The time for an answer of the API server.
const ANSWER: Duration = Duration::from_secs(30);
/// The owner of the fields that this program writes.
const MANAGER: &str = "metes-install";

/// A Secret in the form that Kubernetes and cert-manager use for certificates.
pub(crate) fn tls_secret(namespace: &str, name: &str, files: &[(&str, &str)]) -> Secret {
    let data = files.iter().map(|(name, text)| ((*name).to_owned(), ByteString(text.as_bytes().to_vec())));
    Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            labels: Some(BTreeMap::from([("app.kubernetes.io/part-of".to_owned(), "metes".to_owned())])),
            ..ObjectMeta::default()
        },
        type_: Some("kubernetes.io/tls".to_owned()),
        data: Some(data.collect()),
        ..Secret::default()
    }
}

/// The content of one of its files; none if it has no such file.
pub(crate) fn file<'a>(secret: &'a Secret, name: &str) -> Option<&'a [u8]> {
    secret.data.as_ref()?.get(name).map(|content| content.0.as_slice())
}

/// The API server.
pub(crate) struct Kubernetes {
    client: Client,
}

impl Kubernetes {
    /// That of KUBECONFIG, otherwise that of the cluster in which this pod runs. Nothing is sent.
    pub(crate) async fn new() -> Result<Self, Failure> {
        let unknown = |e: &dyn std::error::Error| Failure::new(format!("no API server is known: {e}"));
        let mut config = Config::infer().await.map_err(|e| unknown(&e))?;
        config.connect_timeout = Some(ANSWER);
        config.read_timeout = Some(ANSWER);
        config.write_timeout = Some(ANSWER);
        config.proxy_url = None;
        Ok(Self { client: Client::try_from(config).map_err(|e| unknown(&e))? })
    }

    /// For other kinds than Secrets.
    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    fn secrets(&self, namespace: &str) -> Api<Secret> {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub(crate) async fn find(&self, namespace: &str, name: &str) -> Result<Option<Secret>, Failure> {
        let found = self.secrets(namespace).get_opt(name).await;
        found.map_err(|e| failed("read", namespace, name, &e))
    }

    /// Writes a Secret that must not be there.
    pub(crate) async fn create(&self, secret: &Secret) -> Result<(), Failure> {
        let (namespace, name) = place_of(secret);
        let created = self.secrets(namespace).create(&PostParams::default(), secret).await;
        created.map(drop).map_err(|e| failed("create", namespace, name, &e))
    }

    /// Writes a Secret, whether it is there or not.
    pub(crate) async fn apply(&self, secret: &Secret) -> Result<(), Failure> {
        let (namespace, name) = place_of(secret);
        let params = PatchParams::apply(MANAGER).force();
        let applied = self.secrets(namespace).patch(name, &params, &Patch::Apply(secret)).await;
        applied.map(drop).map_err(|e| failed("write", namespace, name, &e))
    }
}

/// The namespace and name of a Secret that [`tls_secret`] made.
fn place_of(secret: &Secret) -> (&str, &str) {
    let ObjectMeta { namespace, name, .. } = &secret.metadata;
    (namespace.as_deref().unwrap_or_default(), name.as_deref().unwrap_or_default())
}

fn failed(what: &str, namespace: &str, name: &str, error: &Error) -> Failure {
    Failure::new(format!("cannot {what} the Secret {namespace}/{name}: {}", in_words(error)))
}

/// The server's own words, or those of the innermost cause.
pub(crate) fn in_words(error: &Error) -> String {
    match error {
        Error::Api(status) => status.message.clone(),
        other => innermost(other).to_string(),
    }
}
