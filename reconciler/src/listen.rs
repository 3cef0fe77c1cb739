//! A small HTTP server: only GET, few connections, one short request for each connection.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::error::Elapsed;
use tokio::time::{sleep, timeout};

use crate::cli::Listen;

/// The number of connections that are open at the same time; more wait to be accepted.
const CONNECTIONS: usize = 16;
/// The longest time for one connection, from its acceptance to the end of the answer.
pub(crate) const CONNECTION_MAX: Duration = Duration::from_secs(5);
/// The pause after a connection could not be accepted, for example for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The most bytes of a request that are held until it is complete.
const REQUEST_BYTES: usize = 16 << 10;

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    pub(crate) status: StatusCode,
    /// The content type.
    pub(crate) kind: &'static str,
    pub(crate) body: String,
}

impl Page {
    /// A page of plain text.
    pub(crate) fn text(status: StatusCode, text: &str) -> Self {
        Self { status, kind: "text/plain; charset=utf-8", body: format!("{text}\n") }
    }

    /// The whole answer.
    pub(crate) fn into_response(self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(Bytes::from(self.body)));
        *response.status_mut() = self.status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(self.kind));
        response
    }
}

/// The pages that a server has.
pub(crate) trait Pages: Clone + Send + 'static {
    /// The page of a path; none if there is none.
    fn page(&self, path: &str) -> Option<Page>;
}

/// Listens on the first address that can be used.
///
/// # Errors
/// [`io::Error`] of the last address.
pub(crate) async fn bind(listen: &Listen) -> io::Result<TcpListener> {
    TcpListener::bind(&listen.0[..]).await
}

/// Serves pages for ever.
pub(crate) async fn serve(listener: TcpListener, pages: impl Pages) -> Infallible {
    accept(&listener, &mut JoinSet::new(), |stream| answer(stream, pages.clone())).await
}

/// The connections that are being answered.
pub(crate) type Open = JoinSet<Result<(), Elapsed>>;

/// Lets each connection be answered, for ever. Those that are `open` end by themselves, in [`CONNECTION_MAX`].
pub(crate) async fn accept<A>(
    listener: &TcpListener,
    open: &mut Open,
    answer: impl Fn(TcpStream) -> A,
) -> Infallible
where
    A: Future<Output = ()> + Send + 'static,
{
    loop {
        tokio::select! {
            accepted = listener.accept(), if open.len() < CONNECTIONS => match accepted {
                Ok((stream, _)) => _ = open.spawn(timeout(CONNECTION_MAX, answer(stream))),
                Err(_) => sleep(ACCEPT_PAUSE).await,
            },
            Some(_) = open.join_next() => {}
        }
    }
}

/// HTTP with one request for each connection.
pub(crate) fn one_request() -> http1::Builder {
    let mut server = http1::Builder::new();
    server.keep_alive(false).max_buf_size(REQUEST_BYTES);
    server
}

async fn answer(stream: TcpStream, pages: impl Pages) {
    let service = service_fn(move |request| {
        let response = respond(&request, &pages);
        async move { Ok::<_, Infallible>(response) }
    });
    // If a client closes its connection early, that is not an error of the server.
    let _ = one_request().serve_connection(TokioIo::new(stream), service).await;
}

fn respond(request: &Request<Incoming>, pages: &impl Pages) -> Response<Full<Bytes>> {
    let page = match pages.page(request.uri().path()) {
        None => Page::text(StatusCode::NOT_FOUND, "there are /metrics, /healthz and /readyz"),
        Some(_) if request.method() != Method::GET => {
            Page::text(StatusCode::METHOD_NOT_ALLOWED, "this can only be read")
        }
        Some(page) => page,
    };
    let is_refused = page.status == StatusCode::METHOD_NOT_ALLOWED;
    let mut response = page.into_response();
    if is_refused {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
    }
    response
}
