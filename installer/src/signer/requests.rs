//! The API server: requests for certificates, and what it knows of their pods and nodes. Nothing of it is kept.

use futures_util::stream::{BoxStream, StreamExt};
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestCondition, CertificateSigningRequestStatus,
};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client, Error, ResourceExt};

use crate::kubernetes::in_words;

/// The signer in whose name requests are made.
pub(super) const SIGNER: &str = "metes.dev/etcd-client";
/// The reason in all conditions.
const REASON: &str = "MetesSigner";
/// The objects of one answer: nodes, of which only the names are read, and requests.
const PAGE: u32 = 500;
const REQUESTS: u32 = 50;
/// A larger request is not answered: the API server might not take it with an answer in it.
const ANSWERED_BYTES: usize = 32 << 10;
/// The seconds of one watch: less than the client waits for an answer.
const WATCH_SECONDS: u32 = 20;

/// The API server, and the namespace of the installer.
pub(super) struct Requests {
    requests: Api<CertificateSigningRequest>,
    pods: Api<Pod>,
    nodes: Api<Node>,
}

/// Why something was not written.
pub(super) enum NotWritten {
    /// Another replica has changed or somebody has deleted it meanwhile.
    Changed,
    Trouble(String),
}

/// What a watch tells.
pub(super) enum News {
    Request(Box<CertificateSigningRequest>),
    /// A later place in the order of changes.
    Place(String),
}

impl Requests {
    pub(super) fn new(client: &Client, namespace: &str) -> Self {
        Self {
            requests: Api::all(client.clone()),
            pods: Api::namespaced(client.clone(), namespace),
            nodes: Api::all(client.clone()),
        }
    }

    /// All requests of which something is left to do, and the place in the order of changes from which on a watch tells
    /// the rest. Everyone who may ask can make large ones, so few are in memory at a time.
    pub(super) async fn list(&self) -> Result<(Vec<CertificateSigningRequest>, String), String> {
        let mut params = ListParams::default().fields(&format!("spec.signerName={SIGNER}")).limit(REQUESTS);
        let mut open = Vec::new();
        loop {
            let page = self.requests.list(&params).await.map_err(|e| failed("list the requests", &e))?;
            let place = page.metadata.resource_version.clone().unwrap_or_default();
            open.extend(page.items.into_iter().filter(|request| !is_done(request) && !is_large(request)));
            params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if params.continue_token.is_none() {
                return Ok((open, place));
            }
        }
    }

    /// What happens after a place. It ends by itself soon.
    pub(super) async fn watch(
        &self,
        place: &str,
    ) -> Result<BoxStream<'static, Result<News, String>>, String> {
        let params =
            WatchParams::default().fields(&format!("spec.signerName={SIGNER}")).timeout(WATCH_SECONDS);
        let watched =
            self.requests.watch(&params, place).await.map_err(|e| failed("watch the requests", &e))?;
        Ok(watched.map(news).boxed())
    }

    pub(super) async fn request(&self, name: &str) -> Result<Option<CertificateSigningRequest>, String> {
        self.requests.get_opt(name).await.map_err(|e| failed("read a request", &e))
    }

    pub(super) async fn pod(&self, name: &str) -> Result<Option<Pod>, String> {
        self.pods.get_opt(name).await.map_err(|e| failed("read a pod", &e))
    }

    pub(super) async fn has_node(&self, name: &str) -> Result<bool, String> {
        let found = self.nodes.get_metadata_opt(name).await.map_err(|e| failed("read a node", &e))?;
        Ok(found.is_some())
    }

    /// The names of all nodes.
    pub(super) async fn nodes(&self) -> Result<Vec<String>, String> {
        let (mut names, mut params) = (Vec::new(), ListParams::default().limit(PAGE));
        loop {
            let page = self.nodes.list_metadata(&params).await.map_err(|e| failed("list the nodes", &e))?;
            names.extend(page.items.iter().map(ResourceExt::name_any));
            params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if params.continue_token.is_none() {
                return Ok(names);
            }
        }
    }

    /// Approves a request, or denies it with this message. It must be as it was read.
    pub(super) async fn decide(
        &self,
        request: &mut CertificateSigningRequest,
        type_: &str,
        message: &str,
    ) -> Result<(), NotWritten> {
        add(request, type_, message);
        let name = request.name_any();
        let written =
            self.requests.replace_subresource("approval", &name, &PostParams::default(), request).await;
        *request = written.map_err(|e| not_written("decide about a request", &e))?;
        Ok(())
    }

    /// Denies a request that somebody else has approved.
    pub(super) async fn fail(
        &self,
        request: &mut CertificateSigningRequest,
        message: &str,
    ) -> Result<(), NotWritten> {
        add(request, "Failed", message);
        self.replace_status(request).await
    }

    /// Gives the certificate out.
    pub(super) async fn give(
        &self,
        request: &mut CertificateSigningRequest,
        pem: &str,
    ) -> Result<(), NotWritten> {
        status(request).certificate = Some(ByteString(pem.as_bytes().to_vec()));
        self.replace_status(request).await
    }

    async fn replace_status(&self, request: &mut CertificateSigningRequest) -> Result<(), NotWritten> {
        let written =
            self.requests.replace_status(&request.name_any(), &PostParams::default(), request).await;
        *request = written.map_err(|e| not_written("sign a request", &e))?;
        Ok(())
    }
}

fn news(event: kube::Result<WatchEvent<CertificateSigningRequest>>) -> Result<News, String> {
    match event.map_err(|e| failed("watch the requests", &e))? {
        WatchEvent::Added(request) | WatchEvent::Modified(request) => Ok(News::Request(Box::new(request))),
        WatchEvent::Deleted(request) => Ok(News::Place(request.resource_version().unwrap_or_default())),
        WatchEvent::Bookmark(bookmark) => Ok(News::Place(bookmark.metadata.resource_version)),
        WatchEvent::Error(status) => Err(format!("cannot watch the requests: {}", status.message)),
    }
}

fn status(request: &mut CertificateSigningRequest) -> &mut CertificateSigningRequestStatus {
    request.status.get_or_insert_default()
}

fn add(request: &mut CertificateSigningRequest, type_: &str, message: &str) {
    let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::now());
    let condition = CertificateSigningRequestCondition {
        type_: type_.to_owned(),
        status: "True".to_owned(),
        reason: Some(REASON.to_owned()),
        message: Some(message.to_owned()),
        last_update_time: Some(now),
        last_transition_time: None,
    };
    status(request).conditions.get_or_insert_default().push(condition);
}

/// True if a request has this condition.
pub(super) fn is(request: &CertificateSigningRequest, type_: &str) -> bool {
    let conditions = request.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == type_)
}

/// True if a request is so large that it is passed in silence.
pub(super) fn is_large(request: &CertificateSigningRequest) -> bool {
    request.spec.request.0.len() > ANSWERED_BYTES
}

/// True if nothing is to be done for a request any more.
pub(super) fn is_done(request: &CertificateSigningRequest) -> bool {
    let certificate = request.status.as_ref().and_then(|status| status.certificate.as_ref());
    is(request, "Denied") || is(request, "Failed") || certificate.is_some_and(|pem| !pem.0.is_empty())
}

fn failed(what: &str, error: &Error) -> String {
    format!("cannot {what}: {}", in_words(error))
}

fn not_written(what: &str, error: &Error) -> NotWritten {
    match error {
        Error::Api(status) if status.is_conflict() || status.is_not_found() => NotWritten::Changed,
        other => NotWritten::Trouble(failed(what, other)),
    }
}
