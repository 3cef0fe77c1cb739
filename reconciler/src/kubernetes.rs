//! The Kubernetes API of a real cluster.
//!
//! No request is repeated: an answer that cannot be relied on ends a pass, and the next pass begins again. No listing
//! names a resource version, so that etcd answers it and not a cache.

use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use futures_util::io::AsyncReadExt;
use http::Request;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::core::params::{GetParams, ListParams};
use kube::core::response::Status;
use kube::{Client, Config};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer};

use crate::api::{Api, ApiError, ClaimList, Node, Phase, Pod, PodFilter};
use crate::object::{Condition, Metadata, PodObject};

/// The longest time for opening one connection.
const CONNECT: Duration = Duration::from_secs(5);
/// The longest time for one answer.
const ANSWER: Duration = Duration::from_secs(30);
const DEFINITIONS: &str = "/apis/k8s.cni.cncf.io/v1/network-attachment-definitions";
/// The path of the API of ResourceClaims, without a version.
const RESOURCES: &str = "/apis/resource.k8s.io";
/// An administrator sets this taint to declare that a node's machine is certainly off.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// The field selector for the pods that will never run again.
const FINISHED: &str = "status.phase!=Pending,status.phase!=Running,status.phase!=Unknown";

/// A real cluster.
pub struct Kubernetes {
    client: Client,
    server: String,
    page_size: u32,
}

impl Kubernetes {
    /// Prepares to speak to the cluster that `kubeconfig` names, otherwise to the one that KUBECONFIG names, otherwise
    /// to the one that this program runs in. Nothing is sent before the first request.
    ///
    /// `page_size`: the number of objects that one answer may hold.
    ///
    /// # Errors
    /// [`ApiError`] if there is no configuration that can be used.
    pub async fn new(kubeconfig: Option<&Path>, page_size: u32) -> Result<Self, ApiError> {
        let mut config = config(kubeconfig).await?;
        config.connect_timeout = Some(CONNECT);
        config.read_timeout = Some(ANSWER);
        config.write_timeout = Some(ANSWER);
        config.reset_reader_on_write = true;
        config.default_retry = false;
        config.proxy_url = None;
        let server = config.cluster_url.to_string();
        let client = Client::try_from(config).map_err(|e| ApiError {
            asked: "reach the API".to_owned(),
            why: format!("{server}: {}", causes(&e)),
        })?;
        Ok(Self { client, server, page_size })
    }

    /// An error that names the server, unless it is the server's own answer.
    fn error(&self, asked: &str, error: &kube::Error) -> ApiError {
        let why = match error {
            kube::Error::Api(status) if status.reason.is_empty() => {
                format!("{} {}", status.code, status.message)
            }
            kube::Error::Api(status) => format!("{} {}: {}", status.code, status.reason, status.message),
            other => format!(
                "{}: {}; check that the API server runs, and that the kubeconfig names it",
                self.server,
                causes(other)
            ),
        };
        ApiError { asked: asked.to_owned(), why }
    }

    /// Sends a request that kube has prepared.
    pub(crate) async fn ask<T: DeserializeOwned>(
        &self,
        asked: &str,
        request: Result<Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<T, ApiError> {
        let request = request.map_err(|e| self.error(asked, &kube::Error::BuildRequest(e)))?;
        self.client.request(request).await.map_err(|e| self.error(asked, &e))
    }

    /// The pod of this name as it is now; none if the API answers that this very object does not exist.
    pub(crate) async fn pod_object(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<PodObject>, ApiError> {
        let asked = format!("get pod {namespace}/{name}");
        let path = format!("/api/v1/namespaces/{namespace}/pods");
        let request = kube::core::Request::new(path).get(name, &GetParams::default());
        let request = request.map_err(|e| self.error(&asked, &kube::Error::BuildRequest(e)))?;
        let found: PodObject = match self.client.request(request).await {
            Ok(found) => found,
            Err(kube::Error::Api(status)) if is_missing(&status, name) => return Ok(None),
            Err(e) => return Err(self.error(&asked, &e)),
        };
        found.metadata.check(&asked, namespace, name)?;
        Ok(Some(found))
    }

    /// Like [`Kubernetes::ask`], for a part of the API that may be missing. None if the API has no such page (404), or
    /// does not show it to this program (403).
    async fn ask_if_shown<T: DeserializeOwned>(
        &self,
        asked: &str,
        request: Request<Vec<u8>>,
    ) -> Result<Option<T>, ApiError> {
        match self.client.request(request).await {
            Ok(found) => Ok(Some(found)),
            Err(e) => match &e {
                kube::Error::Api(status) if matches!(status.code, 403 | 404) => {
                    let why = self.error(asked, &e);
                    tracing::warn!(
                        %why,
                        "records of ResourceClaims are kept: nobody can say whether their claims exist"
                    );
                    Ok(None)
                }
                _ => Err(self.error(asked, &e)),
            },
        }
    }

    /// The path of all ResourceClaims; none if the API has none.
    pub(crate) async fn claims_path(&self) -> Result<Option<String>, ApiError> {
        let group = Request::get(RESOURCES).body(Vec::new());
        let group = group.map_err(kube::core::request::Error::BuildRequest);
        match self.ask("list resourceclaims", group).await {
            Ok(ApiGroup { preferred }) => {
                Ok(Some(format!("{RESOURCES}/{}/resourceclaims", preferred.version)))
            }
            Err(e) if e.is_not_found() => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Reads a whole answer into `body`, which each page uses again. A page of a listing takes megabytes, and kube
    /// would hold three copies of it at once.
    async fn read(&self, asked: &str, request: Request<Vec<u8>>, body: &mut Vec<u8>) -> Result<(), ApiError> {
        let answer = self.client.request_stream(request).await.map_err(|e| self.error(asked, &e))?;
        body.clear();
        let unreadable = |why: &dyn std::error::Error| ApiError {
            asked: asked.to_owned(),
            why: format!("{}: {}", self.server, causes(why)),
        };
        pin!(answer).read_to_end(body).await.map_err(|e| unreadable(&e))?;
        str::from_utf8(body).map(|_| ()).map_err(|e| unreadable(&e))
    }

    /// Passes every object below `path` to `see`, page by page. The pages are all of one moment.
    ///
    /// # Errors
    /// [`ApiError`], also if that moment is too long ago to continue (410). Nothing that was seen may be relied on
    /// then.
    pub(crate) async fn list<T: DeserializeOwned>(
        &self,
        asked: &str,
        path: &str,
        detail: Detail,
        fields: Option<&str>,
        see: &mut dyn FnMut(T),
    ) -> Result<(), ApiError> {
        let mut params = ListParams {
            limit: Some(self.page_size),
            field_selector: fields.map(str::to_owned),
            ..ListParams::default()
        };
        let mut body = Vec::new();
        loop {
            let request = kube::core::Request::new(path);
            let request = match detail {
                Detail::Whole => request.list(&params),
                Detail::Metadata => request.list_metadata(&params),
            };
            let request = request.map_err(|e| self.error(asked, &kube::Error::BuildRequest(e)))?;
            self.read(asked, request, &mut body).await?;
            let page: ListPage<T> =
                serde_json::from_slice(&body).map_err(|e| self.error(asked, &kube::Error::SerdeError(e)))?;
            if !page.kind.ends_with("List") {
                let why = format!("it answered with a {}", page.kind);
                return Err(ApiError { asked: asked.to_owned(), why });
            }
            page.items.into_iter().for_each(&mut *see);
            match page.metadata.next {
                Some(next) if !next.is_empty() => params.continue_token = Some(next),
                _ => return Ok(()),
            }
        }
    }
}

/// The part of each object that a listing contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    /// All of it.
    Whole,
    /// Its metadata.
    Metadata,
}

impl Api for Kubernetes {
    async fn cluster_uid(&self) -> Result<String, ApiError> {
        let asked = "get namespace kube-system";
        let request =
            kube::core::Request::new("/api/v1/namespaces").get("kube-system", &GetParams::default());
        let BareObject { metadata } = self.ask(asked, request).await?;
        metadata.check(asked, "", "kube-system")?;
        Ok(metadata.uid)
    }

    async fn pods(&self, which: PodFilter, see: &mut dyn FnMut(Pod)) -> Result<(), ApiError> {
        let (asked, fields) = match which {
            PodFilter::All => ("list pods", None),
            PodFilter::Finished => ("list finished pods", Some(FINISHED)),
        };
        let mut see = |pod: BareObject| see(pod.metadata.into_pod());
        self.list(asked, "/api/v1/pods", Detail::Metadata, fields, &mut see).await
    }

    async fn nodes(&self, see: &mut dyn FnMut(Node)) -> Result<(), ApiError> {
        let mut see = |node: NodeObject| see(node.into_node());
        self.list("list nodes", "/api/v1/nodes", Detail::Whole, None, &mut see).await
    }

    async fn definitions(&self, see: &mut dyn FnMut(&str, &str, &str)) -> Result<(), ApiError> {
        let mut see = |DefinitionObject { metadata, spec }: DefinitionObject| {
            see(&metadata.namespace, &metadata.name, &spec.config);
        };
        let asked = "list network-attachment-definitions";
        self.list(asked, DEFINITIONS, Detail::Whole, None, &mut see).await
    }

    async fn claims(
        &self,
        namespace: Option<&str>,
        see: &mut dyn FnMut(&str),
    ) -> Result<ClaimList, ApiError> {
        let asked = "list resourceclaims";
        let request = |path: &str| Request::get(path).body(Vec::new());
        let unsaid = |e: http::Error| self.error(asked, &kube::Error::HttpError(e));
        let group = request(RESOURCES).map_err(unsaid)?;
        let Some(ApiGroup { preferred }) = self.ask_if_shown(asked, group).await? else {
            return Ok(ClaimList::Withheld);
        };
        let within = namespace.map(|name| format!("/namespaces/{name}")).unwrap_or_default();
        let path = format!("{RESOURCES}/{}{within}/resourceclaims", preferred.version);
        let first = request(&format!("{path}?limit=1")).map_err(unsaid)?;
        if self.ask_if_shown::<IgnoredAny>(asked, first).await?.is_none() {
            return Ok(ClaimList::Withheld);
        }
        let mut see = |claim: BareObject| see(&claim.metadata.uid);
        self.list(asked, &path, Detail::Metadata, None, &mut see).await?;
        Ok(ClaimList::Shown)
    }

    async fn pod(&self, namespace: &str, name: &str) -> Result<Option<(Pod, Phase)>, ApiError> {
        let Some(PodObject { metadata, status, .. }) = self.pod_object(namespace, name).await? else {
            return Ok(None);
        };
        let mut pod = metadata.into_pod();
        pod.is_in_flux |= status.lacks_sandbox();
        Ok(Some((pod, Phase::of(&status.phase))))
    }
}

async fn config(kubeconfig: Option<&Path>) -> Result<Config, ApiError> {
    let which = kubeconfig.map_or_else(|| "KUBECONFIG".to_owned(), |path| path.display().to_string());
    let unusable = |e: KubeconfigError| {
        let why = match &e {
            // The parser quotes what it does not understand, and this may be a token.
            KubeconfigError::Parse(_) => "it is not a kubeconfig in YAML or JSON".to_owned(),
            KubeconfigError::CurrentContextNotSet => {
                "it has no current-context: it is not a kubeconfig, or `kubectl config use-context` has chosen none"
                    .to_owned()
            }
            KubeconfigError::LoadContext(name) => {
                format!("its current-context is {name:?}, and none of its contexts has that name")
            }
            KubeconfigError::LoadClusterOfContext(name) => {
                format!("its context names cluster {name:?}, and none of its clusters has that name")
            }
            KubeconfigError::ReadConfig(e, _) => e.to_string(),
            e => causes(e),
        };
        ApiError { asked: "find the API".to_owned(), why: format!("{which} cannot be used: {why}") }
    };
    let given = match kubeconfig {
        Some(path) => Some(Kubeconfig::read_from(path).map_err(unusable)?),
        None => Kubeconfig::from_env().map_err(unusable)?,
    };
    match given {
        Some(given) => {
            Config::from_custom_kubeconfig(given, &KubeConfigOptions::default()).await.map_err(unusable)
        }
        None => Config::incluster().map_err(|e| ApiError {
            asked: "find the API".to_owned(),
            why: format!(
                "give --kubeconfig FILE or set KUBECONFIG: this is not a pod of a cluster either ({})",
                causes(&e)
            ),
        }),
    }
}

/// True if the object itself is missing, and not the page, the API or the way to it. A wrong proxy or load balancer
/// also answers 404.
fn is_missing(status: &Status, name: &str) -> bool {
    let is_it = status.details.as_ref().is_some_and(|details| details.name == name);
    status.code == 404 && status.reason == "NotFound" && is_it
}

/// An error with its causes, outermost first.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let words = cause.to_string();
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        next = cause.source();
    }
    text
}

/// A page of a listing. If a field is missing here, the answer cannot be relied on. So no field has a default: it could
/// look like an empty cluster.
#[derive(Deserialize)]
#[serde(bound = "T: Deserialize<'de>")]
struct ListPage<T> {
    kind: String,
    metadata: ListMetadata,
    #[serde(deserialize_with = "null_is_empty")]
    items: Vec<T>,
}

#[derive(Deserialize)]
struct ListMetadata {
    /// Every listing has this field; an answer without it is not a listing.
    #[serde(rename = "resourceVersion")]
    _revision: String,
    #[serde(rename = "continue")]
    next: Option<String>,
}

/// The API server writes null for a listing of metadata without items.
fn null_is_empty<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

#[derive(Deserialize)]
struct BareObject {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct DefinitionObject {
    metadata: Metadata,
    #[serde(default)]
    spec: DefinitionSpec,
}

#[derive(Default, Deserialize)]
struct DefinitionSpec {
    #[serde(default)]
    config: String,
}

/// The versions of a group that the API has.
#[derive(Deserialize)]
struct ApiGroup {
    #[serde(rename = "preferredVersion")]
    preferred: GroupVersion,
}

#[derive(Deserialize)]
struct GroupVersion {
    version: String,
}

#[derive(Deserialize)]
struct NodeObject {
    metadata: Metadata,
    #[serde(default)]
    spec: NodeSpec,
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Default, Deserialize)]
struct NodeSpec {
    #[serde(default)]
    taints: Vec<Taint>,
}

#[derive(Deserialize)]
struct Taint {
    key: String,
}

#[derive(Default, Deserialize)]
struct NodeStatus {
    #[serde(default)]
    conditions: Vec<Condition>,
    #[serde(rename = "nodeInfo", default)]
    info: NodeInfo,
}

#[derive(Default, Deserialize)]
struct NodeInfo {
    #[serde(rename = "bootID", default)]
    boot: String,
}

impl NodeObject {
    fn into_node(self) -> Node {
        let says_ready = |condition: &Condition| condition.says("Ready", "True");
        Node {
            name: self.metadata.name,
            ready: self.status.conditions.iter().any(says_ready),
            out_of_service: self.spec.taints.iter().any(|taint| taint.key == OUT_OF_SERVICE),
            boot: self.status.info.boot,
        }
    }
}
