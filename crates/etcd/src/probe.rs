//! The protocol of an endpoint whose connection broke without a reason.
//!
//! A client of HTTP/2 sends before the other side has said anything. If that side then closes the connection, the
//! client fails to send more and does not read why. So the endpoint is asked once more, by connections that send little
//! and then wait for its first words.

use std::io::{self, Read, Write};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tokio::net::TcpStream;

use super::cause::{Cause, Reading, Spoken, is_broken, read, spoken};
use super::tls::{self, Tls};

/// How a connection of HTTP/2 begins: the preface, and a frame of settings without any.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";

/// Why the endpoint does not serve this client; none if it does, or if that cannot be told. `tls` for `https`. The
/// caller bounds it.
pub(crate) async fn probe(endpoint: &str, tls: Option<&Tls>) -> Option<Cause> {
    let (_, address) = endpoint.split_once("://")?;
    match tls {
        None => plain(address).await,
        Some(tls) => secured(address, tls).await,
    }
}

async fn plain(address: &str) -> Option<Cause> {
    match first_words(address, PREFACE).await? {
        Spoken::Http2 => None,
        Spoken::Tls => Some(Cause::SpeaksTls),
        Spoken::Http1 => Some(Cause::LacksHttp2),
        Spoken::Other => Some(Cause::SpeaksOther),
        // A server of TLS may close the connection without a word.
        Spoken::Nothing => match first_words(address, &hello()?).await? {
            Spoken::Tls => Some(Cause::SpeaksTls),
            _ => None,
        },
    }
}

async fn secured(address: &str, tls: &Tls) -> Option<Cause> {
    let name = server_name(address, tls)?;
    let said = first_words_by_tls(address, tls.client_config().ok()?, name).await;
    match said.map_err(|e| read(&e, tls.identity.is_some())) {
        Ok(Spoken::Http2) | Err(Reading::Passing) => None,
        // etcd judges some of a client's certificate only after the handshake, and gives no reason then.
        Ok(Spoken::Nothing) => tls.identity.is_some().then_some(Cause::ClosesOnClient),
        Ok(_) => Some(Cause::LacksHttp2),
        Err(Reading::Lasting(cause)) => Some(cause),
        Err(Reading::Unclear) => match first_words(address, PREFACE).await? {
            Spoken::Http2 | Spoken::Http1 => Some(Cause::LacksTls),
            Spoken::Other => Some(Cause::SpeaksOther),
            Spoken::Tls | Spoken::Nothing => None,
        },
    }
}

/// The name that the certificate of the server at an address must carry.
pub(crate) fn server_name(address: &str, tls: &Tls) -> Option<ServerName<'static>> {
    let host = address.rsplit_once(':')?.0.trim_start_matches('[').trim_end_matches(']');
    Some(ServerName::try_from(tls.server_name.as_deref().unwrap_or(host)).ok()?.to_owned())
}

/// Sends `words` and reads what the other side says first; none if there is no connection.
async fn first_words(address: &str, words: &[u8]) -> Option<Spoken> {
    let stream = TcpStream::connect(address).await.ok()?;
    stream.writable().await.ok()?;
    // They fit into the buffer of a new connection.
    stream.try_write(words).ok()?;
    let mut said = Vec::new();
    loop {
        match spoken(&said) {
            Spoken::Nothing => {}
            words => return Some(words),
        }
        stream.readable().await.ok()?;
        let mut buffer = [0; 64];
        match stream.try_read(&mut buffer) {
            Ok(0) => return Some(Spoken::Nothing),
            Ok(count) => said.extend_from_slice(&buffer[..count]),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return Some(Spoken::Nothing),
        }
    }
}

/// The beginning of a TLS connection.
fn hello() -> Option<Vec<u8>> {
    let config = tls::trusting(RootCertStore::empty()).ok()?;
    let name = ServerName::try_from("etcd").ok()?;
    let mut connection = ClientConnection::new(Arc::new(config.with_no_client_auth()), name).ok()?;
    let mut hello = Vec::new();
    connection.write_tls(&mut hello).ok()?;
    Some(hello)
}

/// Shakes hands, and reads what the other side says first: with TLS 1.3 it judges the client's certificate only then,
/// and not every server that agrees on HTTP/2 speaks it. Nothing is said by one that ends the connection instead.
pub(crate) async fn first_words_by_tls(
    address: &str,
    config: ClientConfig,
    name: ServerName<'static>,
) -> io::Result<Spoken> {
    let mut connection = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    // It is sent as soon as the handshake is done.
    connection.writer().write_all(PREFACE)?;
    let stream = TcpStream::connect(address).await?;
    match said_by_tls(&mut connection, &stream).await {
        Err(e) if is_broken(e.kind()) && !connection.is_handshaking() => Ok(Spoken::Nothing),
        said => said,
    }
}

async fn said_by_tls(connection: &mut ClientConnection, stream: &TcpStream) -> io::Result<Spoken> {
    let mut said = Vec::new();
    loop {
        while connection.wants_write() {
            stream.writable().await?;
            match connection.write_tls(&mut Nonblocking(stream)) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                other => _ = other?,
            }
        }
        stream.readable().await?;
        match connection.read_tls(&mut Nonblocking(stream)) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => continue,
            other => _ = other?,
        }
        let state = connection.process_new_packets().map_err(io::Error::other)?;
        let mut new = vec![0; state.plaintext_bytes_to_read()];
        connection.reader().read_exact(&mut new)?;
        said.extend(new);
        match spoken(&said) {
            Spoken::Nothing => {}
            words => return Ok(words),
        }
    }
}

/// A stream for what reads and writes without waiting.
struct Nonblocking<'a>(&'a TcpStream);

impl Read for Nonblocking<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

impl Write for Nonblocking<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
