//! Reads the files of a node that a run needs: the host file, certificates, keys and passwords. Also sets up the log.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::files::{self, Trust};
use metes_config::cni::{Code, Error};
use metes_config::etcd::{ClientFiles, Login, Password, StoreKeys, TlsFiles};
use metes_config::settings::{ALLOW_NAD_ETCD, LogLevel};
use metes_config::{HostFile, Settings};
use metes_core::limits::{self, Patience};
use metes_engine::obstacle::Obstacle;
use metes_etcd::certificate::Certificate;
use metes_etcd::client::{Access, Tls};

/// Where the host file is when METES_CONF does not say otherwise.
pub const HOST_FILE: &str = "/etc/cni/net.d/metes.d/metes.conf";

/// True if the environment lets networks say where etcd is, on a node without a host file.
#[must_use]
pub fn is_nad_etcd_allowed() -> bool {
    std::env::var_os(ALLOW_NAD_ETCD).is_some_and(|value| value == "1")
}

/// Code 7, for a node that needs a host file and has none.
#[must_use]
pub fn no_host_file() -> Error {
    Error::invalid_config(format!(
        "this node has no host file {HOST_FILE}, and a network may not say where etcd is"
    ))
    .with_details(format!(
        "the installer or an administrator writes it (docs/install.md); for a trial without one, set \
         {ALLOW_NAD_ETCD}=1 in the environment of the runtime"
    ))
}

/// Finds and reads the host file: the one that METES_CONF or --config names (it must exist), else the one
/// at [`HOST_FILE`], else the one that the network's configuration names.
///
/// # Errors
/// Code 7 if it is missing where it must exist, not to be trusted, or invalid.
pub fn host_file(named: Option<&str>, from_network: Option<&str>) -> Result<Option<HostFile>, Error> {
    if let Some(path) = named.filter(|path| !path.is_empty()) {
        return read_host_file(Path::new(path), "named by METES_CONF or --config").map(Some);
    }
    if Path::new(HOST_FILE).exists() {
        return read_host_file(Path::new(HOST_FILE), "at its usual place").map(Some);
    }
    from_network.map(|path| read_host_file(Path::new(path), "named by configuration_path")).transpose()
}

/// The settings of a program that a person or a timer starts: the host file's, or the defaults.
///
/// # Errors
/// As [`host_file`].
pub fn own_settings(named: Option<&Path>) -> Result<Settings, Error> {
    let named = named.map(|path| path.to_string_lossy());
    let settings = match host_file(named.as_deref(), None)? {
        Some(host) => Settings::from_host(host)?,
        None => Settings::from_network(&StoreKeys::default())?,
    };
    settings.unclear.clone().map_or(Ok(settings), Err)
}

fn read_host_file(path: &Path, how: &str) -> Result<HostFile, Error> {
    let bytes = files::read_trusted(path, limits::INPUT_BYTES, Trust::OwnerWrites).map_err(|e| {
        let path = path.display();
        let needed = "it must exist, belong to root, and be writable by nobody else";
        Error::invalid_config(format!("the host file {path}, {how}, cannot be used: {}", plain(&e)))
            .with_details(remedy(&e, needed))
    })?;
    HostFile::parse_at(&path.to_string_lossy(), &bytes)
}

/// Reads the certificates, keys and passwords that the settings name. `secrets` says who may read keys and passwords.
///
/// # Errors
/// Code 7 if one cannot be used; its content is never repeated.
pub fn access(settings: &Settings, secrets: Trust, patience: impl Into<Patience>) -> Result<Access, Error> {
    let patience = patience.into();
    Ok(Access {
        endpoints: settings.urls(),
        tls: settings.tls.as_ref().map(|files| read_tls(files, secrets, patience.unreachable)).transpose()?,
        user: user(settings, secrets)?,
        prefix: settings.prefix.clone(),
        patience,
    })
}

/// Reads the files for TLS. If they cannot be used, it repeats that for a short time, never longer than `give_up`:
/// somebody may be replacing them.
fn read_tls(files: &TlsFiles, secrets: Trust, give_up: Duration) -> Result<Tls, Error> {
    let until = Instant::now() + limits::FILES_REPLACEMENT.min(give_up);
    let unfit = |Obstacle { what, remedy }| {
        Error::invalid_config(format!("the files for TLS cannot be used: {what}")).with_details(remedy)
    };
    loop {
        match read_tls_once(files, secrets).and_then(|tls| tls.check().map(|()| tls).map_err(unfit)) {
            Err(_) if Instant::now() < until => thread::sleep(limits::REPLACEMENT_PAUSE),
            read => return read,
        }
    }
}

fn read_tls_once(files: &TlsFiles, secrets: Trust) -> Result<Tls, Error> {
    let identity = match &files.client {
        None => None,
        Some(client) => Some((
            read_certificates("cert_file", &client.cert_file)?,
            read_key("key_file", &client.key_file, secrets)?,
        )),
    };
    let ca = read_certificates("ca_file", &files.ca_file)?;
    Ok(Tls { ca, identity, server_name: files.server_name.clone() })
}

/// A file that the host file names, as it can be used.
pub struct NamedFile {
    /// The key that names it.
    pub key: &'static str,
    /// Where it is.
    pub path: String,
    /// Its certificates in PEM, and nothing of a secret; or why it cannot be used.
    pub certificates: Result<Vec<u8>, Error>,
}

/// Reads each file that the settings name for TLS and the login by itself. `secrets` says who may read keys and
/// passwords.
#[must_use]
pub fn named_files(settings: &Settings, secrets: Trust) -> Vec<NamedFile> {
    let no_secret = |read: Result<_, Error>| read.map(|_| Vec::new());
    let mut files = Vec::new();
    let mut add =
        |key, path: &str, certificates| files.push(NamedFile { key, path: path.into(), certificates });
    if let Some(TlsFiles { ca_file, client, .. }) = &settings.tls {
        add("ca_file", ca_file, read_certificates("ca_file", ca_file));
        if let Some(ClientFiles { cert_file, key_file }) = client {
            add("cert_file", cert_file, read_certificates("cert_file", cert_file));
            add("key_file", key_file, no_secret(read_key("key_file", key_file, secrets)));
        }
    }
    if let Some(Login { password: Password::File(path), .. }) = &settings.login {
        add("password_file", path, no_secret(read_secret("password_file", path, secrets)));
    }
    files
}

fn read_certificates(key: &str, path: &str) -> Result<Vec<u8>, Error> {
    let pem = read_secret(key, path, Trust::OwnerWrites)?;
    let mut certificates = CertificateDer::pem_slice_iter(&pem).peekable();
    if certificates.peek().is_some() && certificates.all(|certificate| certificate.is_ok()) {
        return Ok(pem);
    }
    Err(not_pem(key, path, "certificates"))
}

fn read_key(key: &str, path: &str, secrets: Trust) -> Result<Vec<u8>, Error> {
    let pem = read_secret(key, path, secrets)?;
    match PrivateKeyDer::from_pem_slice(&pem) {
        Ok(_) => Ok(pem),
        Err(_) => Err(not_pem(key, path, "a private key")),
    }
}

fn not_pem(key: &str, path: &str, what: &str) -> Error {
    Error::invalid_config(format!("{key}: {path} does not hold {what} in PEM")).with_details(match what {
        "certificates" => "expected a block CERTIFICATE; a private key belongs in key_file",
        _ => "expected a block PRIVATE KEY that is not encrypted; a certificate belongs in cert_file",
    })
}

fn user(settings: &Settings, secrets: Trust) -> Result<Option<(String, String)>, Error> {
    let Some(login) = &settings.login else { return Ok(None) };
    let password = match &login.password {
        Password::Inline(text) => text.clone(),
        Password::File(path) => {
            let bytes = read_secret("password_file", path, secrets)?;
            let text = String::from_utf8(bytes)
                .map_err(|_| Error::invalid_config(format!("password_file {path} is not UTF-8")))?;
            text.trim_end_matches(['\r', '\n']).to_owned()
        }
    };
    Ok(Some((login.username.clone(), password)))
}

fn read_secret(key: &str, path: &str, trust: Trust) -> Result<Vec<u8>, Error> {
    files::read_trusted(Path::new(path), limits::INPUT_BYTES, trust).map_err(|e| {
        let needed = match trust {
            Trust::OwnerReads => "and have mode 0600 or stricter",
            Trust::GroupReads => {
                "and have mode 0600 or stricter, or 0640 with a group that this program is in"
            }
            Trust::OwnerWrites | Trust::Anybody => "and be writable by nobody else",
        };
        Error::invalid_config(format!("{key}: {path} cannot be used: {}", plain(&e)))
            .with_details(remedy(&e, &format!("it must exist, belong to root, {needed}")))
    })
}

/// The content of the resolv.conf that host-local's form names, which the host file allows.
///
/// # Errors
/// Code 7 if it cannot be read or is no regular file of root.
pub fn resolv_conf(path: &str) -> Result<String, Error> {
    let bytes = files::read_trusted(Path::new(path), limits::RESOLV_CONF_BYTES, Trust::OwnerWrites)
        .map_err(|e| Error::invalid_config(format!("resolvConf: {path} cannot be used: {}", plain(&e))))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// What is needed of a file; or, if the kernel refuses it to this user, another user.
fn remedy(e: &std::io::Error, needed: &str) -> String {
    match e.raw_os_error() {
        Some(code) if code == rustix::io::Errno::ACCESS.raw_os_error() => "run it as root".to_owned(),
        _ => needed.to_owned(),
    }
}

/// An error of the file system, in words that no runtime takes for "already gone".
fn plain(e: &std::io::Error) -> String {
    match e.kind() {
        ErrorKind::NotFound => "it does not exist".to_owned(),
        _ => e.to_string(),
    }
}

/// Starts the log: to a file if one is named, else to stderr.
///
/// A log that cannot be opened is no reason to leave a pod without an address: then the log goes to stderr and says
/// why.
pub fn start_log(file: Option<&str>, level: LogLevel) {
    let opened = file.map(|path| files::open_log(Path::new(path)));
    let (writer, refused) = match opened {
        Some(Ok(file)) => (BoxMakeWriter::new(Mutex::new(file)), None),
        Some(Err(e)) => (BoxMakeWriter::new(std::io::stderr), Some(e)),
        None => (BoxMakeWriter::new(std::io::stderr), None),
    };
    let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_target(false).with_writer(writer);
    // What the libraries log is of no use to an operator.
    let ours = Targets::new().with_target("metes", filter(level));
    let started = tracing_subscriber::registry().with(lines.with_filter(ours)).try_init();
    if started.is_err() {
        return;
    }
    if let Some(e) = refused {
        tracing::error!(log_file = file, error = %e, "the log file cannot be opened; logging to stderr");
    }
}

fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warning => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
    }
}

/// The error for a stdin that cannot be read, or that holds more than a configuration may.
#[must_use]
pub fn stdin_error(e: &std::io::Error) -> Error {
    let error = |code, why: &str| Error::new(code, format!("error reading from stdin: {why}"));
    match e.kind() {
        ErrorKind::FileTooLarge => error(Code::Decode, &plain(e)),
        ErrorKind::TimedOut => error(Code::Io, "it did not end in the time that this command may take")
            .with_details("the caller must close stdin after the network configuration"),
        _ => error(Code::Io, &plain(e)),
    }
}

/// When the certificates for etcd end, in seconds since 1970 in UTC: the client's own, and the last one of the
/// authorities. What cannot be read is left out: a program that cannot read it cannot reach etcd, and is told so there.
#[must_use]
pub fn certificate_ends(files: &TlsFiles) -> BTreeMap<&'static str, u64> {
    let read = |path: &str| {
        let pem = files::read_trusted(Path::new(path), limits::INPUT_BYTES, Trust::OwnerWrites);
        Certificate::all_in(&pem.unwrap_or_default())
    };
    // Of a chain the first one is its own.
    let own = files.client.as_ref().and_then(|client| read(&client.cert_file).into_iter().next());
    let own = own.map(|certificate| ("client", certificate.not_after));
    let authority = read(&files.ca_file).into_iter().map(|certificate| certificate.not_after).max();
    own.into_iter().chain(authority.map(|not_after| ("ca", not_after))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of root is as it should be, and only root can see that.
    #[test]
    fn another_user_is_told_to_be_root() {
        let denied = std::io::Error::from(rustix::io::Errno::ACCESS);
        assert_eq!(remedy(&denied, "it must belong to root"), "run it as root");
        let missing = std::io::Error::from(rustix::io::Errno::NOENT);
        assert_eq!(remedy(&missing, "it must belong to root"), "it must belong to root");
    }
}
