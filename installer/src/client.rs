//! A client of etcd, with the certificate of a member: its user in etcd has all rights, where etcd has users.

use std::error::Error as _;
use std::path::PathBuf;
use std::time::Duration;

use etcd_client::{Certificate, Client, ConnectOptions, Error, Identity, TlsOptions};
use tokio::time::timeout;

use crate::failure::{Failure, innermost};
use crate::files::read;

/// Where the files of one kind are.
#[derive(Debug, Clone)]
pub(crate) struct TlsFiles {
    pub(crate) ca: PathBuf,
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// As a client of etcd.
pub(crate) fn tls(files: &TlsFiles) -> Result<TlsOptions, Failure> {
    let ca = Certificate::from_pem(read(&files.ca)?);
    let identity = Identity::from_pem(read(&files.certificate)?, read(&files.key)?);
    Ok(TlsOptions::new().ca_certificate(ca).identity(identity))
}

/// A connection to the member of this URL. Its certificate must have the name that metes.conf pins, if it pins one.
pub(crate) async fn connect(
    url: &str,
    server_name: Option<&str>,
    mut tls: TlsOptions,
    limit: Duration,
) -> Result<Client, String> {
    if let Some(name) = server_name {
        tls = tls.domain_name(name);
    }
    let options = ConnectOptions::new().with_tls(tls).with_connect_timeout(limit);
    within(limit, Client::connect([url], Some(options))).await
}

/// The answer, or why there is none, in etcd's words.
pub(crate) async fn within<T>(
    limit: Duration,
    request: impl Future<Output = Result<T, Error>>,
) -> Result<T, String> {
    match timeout(limit, request).await {
        Ok(answer) => answer.map_err(|e| in_words(&e)),
        Err(_) => Err(format!("no answer in {} s", limit.as_secs())),
    }
}

/// etcd's own words, or those of the innermost cause.
pub(crate) fn in_words(error: &Error) -> String {
    let Error::GRpcStatus(status) = error else { return error.to_string() };
    status.source().map_or_else(|| status.message().to_owned(), |cause| innermost(cause).to_string())
}
