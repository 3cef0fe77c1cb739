//! The server of the webhook: HTTPS, few connections, one short request for each connection.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use metes_config::settings::LogLevel;
use metes_config::{HostFile, Source};
use metes_node::setup;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::identity::{IdentityFiles, ServerIdentity};
use super::review::Admission;
use crate::cli::{Cli, WebhookArgs};
use crate::listen::{self, Open, Page};
use crate::signals::Signals;

/// The largest request. The API takes no object of more than 1.5 MiB, and an update sends two.
const REQUEST_BYTES: usize = 4 << 20;
/// The time in which it still takes connections after a signal to end: some API servers do not know of it yet.
const LAST_CONNECTIONS: Duration = Duration::from_secs(3);
const JSON: &str = "application/json";

/// The state that all connections share.
struct Webhook {
    identity: ServerIdentity,
    /// The host file of the nodes, if it is named.
    host_file: Option<PathBuf>,
}

/// Serves until a signal asks it to end.
///
/// # Errors
/// Why it cannot begin, in words.
pub async fn run(cli: &Cli, args: &WebhookArgs) -> Result<(), String> {
    setup::start_log(None, LogLevel::Info);
    let files = IdentityFiles { cert: args.cert_file.clone(), key: args.key_file.clone() };
    let identity = ServerIdentity::read(files)?;
    let webhook = Arc::new(Webhook { identity, host_file: cli.common.config.clone() });
    webhook.host_file()?;
    let mut signals = Signals::new().map_err(|e| e.to_string())?;
    let listener = listen::bind(&args.listen)
        .await
        .map_err(|e| format!("--listen {}: cannot listen: {e}", args.listen))?;
    if let Ok(address) = listener.local_addr() {
        tracing::info!(%address, "serving");
    }
    let mut open = Open::new();
    let answer = |stream| webhook.clone().answer(stream);
    tokio::select! {
        never = listen::accept(&listener, &mut open, answer) => match never {},
        () = async {
            signals.asked().await;
            tokio::time::sleep(LAST_CONNECTIONS).await;
        } => {}
    }
    drop(listener);
    // Each of them ends by itself.
    while open.join_next().await.is_some() {}
    tracing::info!("ended as asked");
    Ok(())
}

impl Webhook {
    fn host_file(&self) -> Result<HostFile, String> {
        let named = self.host_file.as_deref().map(|path| path.to_string_lossy());
        setup::host_file(named.as_deref(), None).map(Option::unwrap_or_default).map_err(|e| e.to_string())
    }

    async fn answer(self: Arc<Self>, stream: TcpStream) {
        let acceptor = TlsAcceptor::from(self.identity.current());
        // Somebody who does not trust the certificate, or speaks plain HTTP, has nothing to be told.
        let Ok(stream) = acceptor.accept(stream).await else { return };
        let service = service_fn(move |request| {
            let webhook = self.clone();
            async move { Ok::<_, Infallible>(webhook.respond(request).await) }
        });
        // If a client closes its connection early, that is not an error of the server.
        let _ = listen::one_request().serve_connection(TokioIo::new(stream), service).await;
    }

    async fn respond(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let page = match (request.uri().path(), request.method()) {
            ("/validate", &Method::POST) => self.validate(request).await,
            ("/healthz" | "/readyz", &Method::GET) => Page::text(StatusCode::OK, "ok"),
            ("/validate" | "/healthz" | "/readyz", _) => {
                Page::text(StatusCode::METHOD_NOT_ALLOWED, "POST /validate; GET /healthz and /readyz")
            }
            _ => Page::text(StatusCode::NOT_FOUND, "there are /validate, /healthz and /readyz"),
        };
        page.into_response()
    }

    async fn validate(&self, request: Request<Incoming>) -> Page {
        let is_too_large = request.body().size_hint().lower() > REQUEST_BYTES as u64;
        let body = match is_too_large {
            true => None,
            false => Limited::new(request.into_body(), REQUEST_BYTES).collect().await.ok(),
        };
        let Some(body) = body else {
            return Page::text(
                StatusCode::PAYLOAD_TOO_LARGE,
                "the request is too large, or was not sent to its end",
            );
        };
        let source = match self.host_file() {
            Ok(host) => Source::HostFile(Box::new(host)),
            Err(why) => {
                tracing::error!(%why, "nothing can be judged");
                return Page::text(StatusCode::INTERNAL_SERVER_ERROR, &why);
            }
        };
        let review = serde_json::from_slice(&body.to_bytes()).map_err(|e| format!("this is not JSON: {e}"));
        match review.and_then(|review| Admission::of(&review, &source)) {
            Err(why) => Page::text(StatusCode::BAD_REQUEST, &why),
            Ok(admission) => {
                let Admission { label, refusals, warnings, .. } = &admission;
                tracing::info!(network = label, ?refusals, ?warnings, "judged");
                Page { status: StatusCode::OK, kind: JSON, body: admission.to_json().to_string() }
            }
        }
    }
}
