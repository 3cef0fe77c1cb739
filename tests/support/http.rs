//! HTTP/1.1 in blocking form, as much as the API server and the proxy before it need: no upgrades, no streams.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

const ANSWER_MAX: Duration = Duration::from_secs(60);
const LINE_BYTES_MAX: u64 = 64 * 1024;

/// A request or an answer. Its body is whole: lengths and chunks are the business of [`Message::read`] and
/// [`Message::to_bytes`], and `headers` has neither.
#[derive(Clone, Debug, Default)]
pub(crate) struct Message {
    /// The first line, without its end.
    pub start: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Message {
    pub(crate) fn new(start: impl Into<String>, body: impl Into<Vec<u8>>) -> Self {
        Self { start: start.into(), headers: Vec::new(), body: body.into() }
    }

    pub(crate) fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let named = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.as_str())
    }

    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
        let at = self.headers.iter().position(|(known, _)| known.eq_ignore_ascii_case(name))?;
        Some(self.headers.remove(at).1)
    }

    /// The status of an answer.
    pub(crate) fn status(&self) -> u16 {
        let status = self.start.split(' ').nth(1).and_then(|status| status.parse().ok());
        status.unwrap_or_else(|| panic!("no answer begins with {:?}", self.start))
    }

    /// The next message, or none where the other side has ended in between.
    pub(crate) fn read(from: &mut impl BufRead) -> io::Result<Option<Self>> {
        let start = line(from)?;
        if start.is_empty() {
            return Ok(None);
        }
        let mut message = Self::new(start, []);
        loop {
            let header = line(from)?;
            if header.is_empty() {
                break;
            }
            let (name, value) = header.split_once(':').ok_or(io::ErrorKind::InvalidData)?;
            message.headers.push((name.to_owned(), value.trim().to_owned()));
        }
        let chunked = message.take("transfer-encoding").is_some_and(|value| value == "chunked");
        let length = message.take("content-length").map(|length| length.parse());
        message.body = match length {
            _ if chunked => chunks(from)?,
            Some(length) => exactly(from, length.map_err(|_| io::ErrorKind::InvalidData)?)?,
            None => Vec::new(),
        };
        Ok(Some(message))
    }

    /// As it is sent; the body always has a length.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.start.clone().into_bytes();
        for (name, value) in &self.headers {
            bytes.extend_from_slice(format!("\r\n{name}: {value}").as_bytes());
        }
        bytes.extend_from_slice(format!("\r\nContent-Length: {}\r\n\r\n", self.body.len()).as_bytes());
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

fn line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    from.take(LINE_BYTES_MAX).read_line(&mut line)?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

fn exactly(from: &mut impl BufRead, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn chunks(from: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let size = line(from)?;
        let size = size.split(';').next().unwrap_or_default();
        let size = usize::from_str_radix(size, 16).map_err(|_| io::ErrorKind::InvalidData)?;
        body.append(&mut exactly(from, size)?);
        // The end of the chunk, or the empty line after the last one: Go's server sends no trailers.
        line(from)?;
        if size == 0 {
            return Ok(body);
        }
    }
}

type Connection = BufReader<StreamOwned<ClientConnection, TcpStream>>;

/// A client of one server of this machine, for any number of threads. Connections are kept.
#[derive(Debug)]
pub(crate) struct HttpsClient {
    port: u16,
    config: Arc<ClientConfig>,
    idle: Mutex<Vec<Connection>>,
}

impl HttpsClient {
    /// Trusts the certificates of this authority.
    pub(crate) fn new(port: u16, authority: &Path) -> Self {
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_file(authority).expect("the authority's file is PEM");
        roots.add(authority).expect("the authority is a certificate");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring has the usual versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self { port, config: Arc::new(config), idle: Mutex::new(Vec::new()) }
    }

    pub(crate) fn send(&self, request: &Message) -> io::Result<Message> {
        // A kept connection may have ended meanwhile; a new one tells the real fault.
        let kept = self.idle.lock().expect("nobody panics with it").pop();
        if let Some(connection) = kept
            && let Ok(answer) = self.exchange(connection, request)
        {
            return Ok(answer);
        }
        self.exchange(self.connect()?, request)
    }

    fn exchange(&self, mut connection: Connection, request: &Message) -> io::Result<Message> {
        connection.get_mut().write_all(&request.to_bytes())?;
        connection.get_mut().flush()?;
        let answer = Message::read(&mut connection)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        if answer.header("connection").is_none_or(|value| !value.eq_ignore_ascii_case("close")) {
            self.idle.lock().expect("nobody panics with it").push(connection);
        }
        Ok(answer)
    }

    fn connect(&self) -> io::Result<Connection> {
        let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(ANSWER_MAX))?;
        let name = ServerName::IpAddress(Ipv4Addr::LOCALHOST.into());
        let session = ClientConnection::new(Arc::clone(&self.config), name).map_err(io::Error::other)?;
        Ok(BufReader::new(StreamOwned::new(session, socket)))
    }
}
