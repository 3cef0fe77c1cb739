//! A small HTTP server: only GET, few connections, one short request for each connection.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::error::Elapsed;
use tokio::time::{sleep, timeout};

use crate::exposition;

/// The number of connections that are open at the same time; more wait to be accepted.
const CONNECTIONS: usize = 16;
/// The longest time for one connection, from its acceptance to the end of the answer.
pub const CONNECTION_MAX: Duration = Duration::from_secs(5);
/// The pause after a connection could not be accepted, for example for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The most bytes of a request that are held until it is complete.
const REQUEST_BYTES: usize = 16 << 10;

/// The addresses to listen on: the first one that can be used is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen(pub Vec<SocketAddr>);

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "neither ADDRESS:PORT, [ADDRESS]:PORT nor :PORT".to_owned();
        let (address, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port: u16 = port.parse().map_err(|_| format!("{port:?} is not a port: expected 0 to 65535"))?;
        if address.is_empty() {
            // If the machine has IPv6, its unspecified address serves for both.
            return Ok(Self(vec![
                (Ipv6Addr::UNSPECIFIED, port).into(),
                (Ipv4Addr::UNSPECIFIED, port).into(),
            ]));
        }
        // Kubernetes gives an address of IPv6 without brackets.
        let address: IpAddr = match text.parse::<SocketAddr>() {
            Ok(both) => return Ok(Self(vec![both])),
            Err(_) => address.parse().map_err(|_| wrong())?,
        };
        Ok(Self(vec![(address, port).into()]))
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses: Vec<String> = self.0.iter().map(SocketAddr::to_string).collect();
        f.write_str(&addresses.join(" or "))
    }
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The status.
    pub status: StatusCode,
    /// The content type.
    pub kind: &'static str,
    /// The content.
    pub body: String,
}

impl Page {
    /// A page of plain text.
    #[must_use]
    pub fn text(status: StatusCode, text: &str) -> Self {
        Self { status, kind: "text/plain; charset=utf-8", body: format!("{text}\n") }
    }

    /// Metrics in Prometheus' text format.
    #[must_use]
    pub fn metrics(body: String) -> Self {
        Self { status: StatusCode::OK, kind: exposition::CONTENT_TYPE, body }
    }

    /// The whole answer.
    #[must_use]
    pub fn into_response(self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(Bytes::from(self.body)));
        *response.status_mut() = self.status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(self.kind));
        response
    }
}

/// The page of something that is well.
#[must_use]
pub fn good() -> Page {
    Page::text(StatusCode::OK, "ok")
}

/// The page of something that is not, and why.
#[must_use]
pub fn bad(why: &str) -> Page {
    Page::text(StatusCode::SERVICE_UNAVAILABLE, why)
}

/// The pages that a server has.
pub trait Pages: Clone + Send + 'static {
    /// The answer to who asks for another page.
    const PATHS: &'static str = "there are /metrics, /healthz and /readyz";

    /// The page of a path; none if there is none.
    fn page(&self, path: &str) -> Option<Page>;
}

/// Listens on the first address that can be used.
///
/// # Errors
/// [`io::Error`] of the last address.
pub async fn bind(listen: &Listen) -> io::Result<TcpListener> {
    TcpListener::bind(&listen.0[..]).await
}

/// Serves pages forever.
pub async fn serve(listener: TcpListener, pages: impl Pages) -> Infallible {
    accept(&listener, &mut JoinSet::new(), |stream| answer(stream, pages.clone())).await
}

/// The connections that are being answered.
pub type Open = JoinSet<Result<(), Elapsed>>;

/// Lets each connection be answered, forever. Those that are `open` end by themselves, in [`CONNECTION_MAX`].
pub async fn accept<A>(listener: &TcpListener, open: &mut Open, answer: impl Fn(TcpStream) -> A) -> Infallible
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
#[must_use]
pub fn one_request() -> http1::Builder {
    let mut server = http1::Builder::new();
    server.keep_alive(false).max_buf_size(REQUEST_BYTES);
    server
}

/// Answers the one request of a connection.
pub async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin, pages: impl Pages) {
    let service = service_fn(move |request| {
        let response = respond(&request, &pages);
        async move { Ok::<_, Infallible>(response) }
    });
    // If a client closes its connection early, that is not an error of the server.
    let _ = one_request().serve_connection(TokioIo::new(stream), service).await;
}

fn respond<P: Pages>(request: &Request<Incoming>, pages: &P) -> Response<Full<Bytes>> {
    let page = match pages.page(request.uri().path()) {
        None => Page::text(StatusCode::NOT_FOUND, P::PATHS),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_ipv6_needs_no_brackets() {
        let found = |text: &str| text.parse::<Listen>().map(|listen| listen.to_string());
        for (text, expected) in [
            ("10.0.0.1:80", "10.0.0.1:80"),
            ("[fd00::1]:80", "[fd00::1]:80"),
            ("fd00::1:80", "[fd00::1]:80"),
            (":80", "[::]:80 or 0.0.0.0:80"),
        ] {
            assert_eq!(found(text).as_deref(), Ok(expected), "{text}");
        }
        for bad in ["", "80", "10.0.0.1", "10.0.0.1:x", "10.0.0.1:65536", "node:80"] {
            assert!(found(bad).is_err(), "{bad}");
        }
    }
}
