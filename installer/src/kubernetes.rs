//! Objects with certificates, in the cluster of this program.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::{ByteString, NamespaceResourceScope};
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client, Config, Error, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::failure::{Failure, innermost};

/// The time for an answer of the API server.
const ANSWER: Duration = Duration::from_secs(30);
/// The owner of the fields that this program writes.
const MANAGER: &str = "metes-install";

/// The status of HTTP for what an account may not do.
const FORBIDDEN: u16 = 403;

/// A kind of object that is in a namespace.
pub(crate) trait Kept:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned
{
}

impl Kept for Secret {}
impl Kept for ConfigMap {}

/// A Secret in the form that Kubernetes and cert-manager use for certificates.
pub(crate) fn tls_secret(namespace: &str, name: &str, files: &[(&str, &str)]) -> Secret {
    let data = files.iter().map(|(name, text)| ((*name).to_owned(), ByteString(text.as_bytes().to_vec())));
    Secret {
        metadata: metadata(namespace, name),
        type_: Some("kubernetes.io/tls".to_owned()),
        data: Some(data.collect()),
        ..Secret::default()
    }
}

/// A ConfigMap with these files.
pub(crate) fn config_map(namespace: &str, name: &str, files: &[(&str, &str)]) -> ConfigMap {
    let data = files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
    ConfigMap { metadata: metadata(namespace, name), data: Some(data.collect()), ..ConfigMap::default() }
}

fn metadata(namespace: &str, name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(namespace.to_owned()),
        labels: Some(BTreeMap::from([("app.kubernetes.io/part-of".to_owned(), "metes".to_owned())])),
        ..ObjectMeta::default()
    }
}

/// The content of one of its files; none if it has no such file.
pub(crate) fn file<'a>(secret: &'a Secret, name: &str) -> Option<&'a [u8]> {
    secret.data.as_ref()?.get(name).map(|content| content.0.as_slice())
}

/// The same of a ConfigMap.
pub(crate) fn text<'a>(map: &'a ConfigMap, name: &str) -> Option<&'a str> {
    map.data.as_ref()?.get(name).map(String::as_str)
}

/// Why the API server does not do what was asked.
pub(crate) struct NotDone {
    /// It stays so until somebody gives this account the right.
    pub(crate) is_forbidden: bool,
    pub(crate) why: Failure,
}

impl NotDone {
    fn new(verb: &str, object: &str, error: &Error) -> Self {
        let is_forbidden = matches!(error, Error::Api(status) if status.code == FORBIDDEN);
        Self { is_forbidden, why: failed(verb, object, error) }
    }
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

    fn of<K: Kept>(&self, namespace: &str) -> Api<K> {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub(crate) async fn find<K: Kept>(&self, namespace: &str, name: &str) -> Result<Option<K>, Failure> {
        let found = self.of::<K>(namespace).get_opt(name).await;
        found.map_err(|e| failed("read", &place::<K>(namespace, name), &e))
    }

    /// Writes an object that must not be there.
    pub(crate) async fn create<K: Kept>(&self, object: &K) -> Result<(), Failure> {
        let (namespace, name) = place_of(object);
        let created = self.of::<K>(namespace).create(&PostParams::default(), object).await;
        created.map(drop).map_err(|e| failed("create", &place::<K>(namespace, name), &e))
    }

    /// Writes an object, whether it is there or not.
    pub(crate) async fn apply<K: Kept>(&self, object: &K) -> Result<(), Failure> {
        let (namespace, name) = place_of(object);
        let params = PatchParams::apply(MANAGER).force();
        let applied = self.of::<K>(namespace).patch(name, &params, &Patch::Apply(object)).await;
        applied.map(drop).map_err(|e| failed("write", &place::<K>(namespace, name), &e))
    }

    /// Asks for a certificate. The request, as the server has named it.
    pub(crate) async fn request(
        &self,
        request: &CertificateSigningRequest,
    ) -> Result<CertificateSigningRequest, NotDone> {
        let created = Api::all(self.client.clone()).create(&PostParams::default(), request).await;
        created.map_err(|e| NotDone::new("create", "a CertificateSigningRequest", &e))
    }

    /// The request of this name; none if it is gone.
    pub(crate) async fn requested(&self, name: &str) -> Result<Option<CertificateSigningRequest>, NotDone> {
        let found = Api::all(self.client.clone()).get_opt(name).await;
        found.map_err(|e| NotDone::new("read", &format!("the CertificateSigningRequest {name}"), &e))
    }
}

fn place<K: Kept>(namespace: &str, name: &str) -> String {
    format!("the {} {namespace}/{name}", K::kind(&()))
}

/// The namespace and name of an object that was made here.
fn place_of<K: Kept>(object: &K) -> (&str, &str) {
    let ObjectMeta { namespace, name, .. } = object.meta();
    (namespace.as_deref().unwrap_or_default(), name.as_deref().unwrap_or_default())
}

fn failed(what: &str, object: &str, error: &Error) -> Failure {
    Failure::new(format!("cannot {what} {object}: {}", in_words(error)))
}

/// The server's own words, or those of the innermost cause.
pub(crate) fn in_words(error: &Error) -> String {
    match error {
        Error::Api(status) => status.message.clone(),
        other => innermost(other).to_string(),
    }
}
