//! The talk between the steps of members whose folders are empty: a line of JSON over TLS, each way, on the port where
//! the members' etcds will speak to each other.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::decision::Answer;

const QUESTION: &str = "{\"ask\":\"empty\"}\n";
/// The beginning of etcd's answer to anything that is not HTTP.
const ETCD: &str = "HTTP/";
/// Longer than any line of either side.
const LINE_BYTES: u64 = 4096;
/// For a question and its answer.
const EXCHANGE: Duration = Duration::from_secs(2);
/// An answer may get lost.
const ASKED_MAX: u32 = 3;
/// Questions that are answered at the same time.
const ASKING_MAX: usize = 32;

/// The line that a step answers with.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "folder", rename_all = "lowercase")]
enum Said {
    /// Its folder is empty, and it has seen those of these members empty.
    Empty { seen: BTreeSet<IpAddr> },
}

/// Asks the step of the member at this address.
pub(super) async fn ask(peer: SocketAddr, tls: Arc<ClientConfig>) -> Answer {
    let mut why = String::new();
    for _ in 0..ASKED_MAX {
        let asked = timeout(EXCHANGE, exchange(peer, tls.clone())).await;
        match asked.map_err(|_| format!("no answer in {} s", EXCHANGE.as_secs())).and_then(|line| line) {
            Ok(line) => return heard(&line),
            Err(e) => why = e,
        }
    }
    Answer::Silence(why)
}

async fn exchange(peer: SocketAddr, tls: Arc<ClientConfig>) -> Result<String, String> {
    let said = |e: std::io::Error| e.to_string();
    let stream = TcpStream::connect(peer).await.map_err(said)?;
    let name = ServerName::from(peer.ip());
    let mut stream = TlsConnector::from(tls).connect(name, stream).await.map_err(said)?;
    stream.write_all(QUESTION.as_bytes()).await.map_err(said)?;
    line(&mut stream).await.map_err(said)
}

async fn line(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> std::io::Result<String> {
    let mut line = String::new();
    BufReader::new(stream.take(LINE_BYTES)).read_line(&mut line).await?;
    Ok(line)
}

fn heard(line: &str) -> Answer {
    match serde_json::from_str(line) {
        Ok(Said::Empty { seen }) => Answer::Empty { seen },
        Err(_) if line.starts_with(ETCD) => Answer::Etcd,
        Err(_) => Answer::Silence("it says nothing that is understood".to_owned()),
    }
}

/// The present configuration and line for answers; none before the first.
type Current = Arc<Mutex<Option<(Arc<ServerConfig>, String)>>>;

/// Answers the steps of other members as long as it lives.
pub(super) struct Answering {
    said: Current,
    task: tokio::task::JoinHandle<()>,
}

impl Answering {
    pub(super) fn on(listener: TcpListener) -> Self {
        let said = Current::default();
        Self { task: tokio::spawn(answer_all(listener, said.clone())), said }
    }

    /// Sets the configuration and the line for all later answers.
    pub(super) fn say(&self, tls: Arc<ServerConfig>, seen: BTreeSet<IpAddr>) {
        let line = serde_json::to_string(&Said::Empty { seen }).unwrap_or_default();
        *self.said.lock().unwrap_or_else(PoisonError::into_inner) = Some((tls, line + "\n"));
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer_all(listener: TcpListener, said: Current) {
    let free = Arc::new(Semaphore::new(ASKING_MAX));
    loop {
        let Ok(place) = free.clone().acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else { continue };
        let current = said.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some((tls, line)) = current else { continue };
        tokio::spawn(async move {
            // A step that gets no answer asks again.
            let _ = timeout(EXCHANGE, answer(stream, tls, &line)).await;
            drop(place);
        });
    }
}

async fn answer(stream: TcpStream, tls: Arc<ServerConfig>, said: &str) -> std::io::Result<()> {
    let mut stream = TlsAcceptor::from(tls).accept(stream).await?;
    if line(&mut stream).await? == QUESTION {
        stream.write_all(said.as_bytes()).await?;
    }
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_heard() {
        let seen = BTreeSet::from(["10.0.0.1", "fd00::1"].map(|ip| ip.parse().expect("an address")));
        let line = serde_json::to_string(&Said::Empty { seen: seen.clone() }).expect("JSON");
        assert_eq!(line, r#"{"folder":"empty","seen":["10.0.0.1","fd00::1"]}"#);
        assert_eq!(heard(&line), Answer::Empty { seen });
        assert_eq!(heard("HTTP/1.1 400 Bad Request\r\n"), Answer::Etcd);
        for other in ["", "{}", r#"{"folder":"full","seen":[]}"#, r#"{"folder":"empty"}"#] {
            assert!(matches!(heard(other), Answer::Silence(_)), "{other}");
        }
    }
}
