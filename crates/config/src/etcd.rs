//! The section `etcd` under all of its names: in the host file, or in a network configuration where there is no host
//! file.

use std::fmt;
use std::net::IpAddr;

use super::keys;
use crate::cni::section::Shows;
use crate::cni::{Error, Json, Section};

/// What a prefix may be.
pub(super) const PREFIX_EXPECTED: &str = "names from A-Z a-z 0-9 . _ - with / between";
/// The longest key prefix, in bytes.
const PREFIX_MAX: usize = 255;

/// The most endpoints.
const ENDPOINTS_MAX: usize = 16;

/// The keys of a network configuration about the store: the pairs as written, not yet judged. They may hold a password,
/// so Debug names only their keys.
#[derive(Clone, Default)]
pub struct StoreKeys {
    pairs: Vec<(String, Json)>,
}

impl StoreKeys {
    /// The pairs of `ipam` that are about the store.
    pub(super) fn of(ipam: &Section<'_>) -> Self {
        let about_store = |(key, value): &&(String, Json)| keys::is_store_key(key) && *value != Json::Null;
        Self { pairs: ipam.pairs().iter().filter(about_store).cloned().collect() }
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Refuses keys about etcd beside a host file, which alone says which etcd is meant: a namespace's user can write a
    /// network configuration.
    ///
    /// # Errors
    /// Code 7 if there are any.
    pub fn refuse_beside_host_file(&self) -> Result<(), Error> {
        match self.pairs.first() {
            None => Ok(()),
            Some((key, _)) => Err(Error::invalid_config(format!(
                "`ipam.{key:.64}` is not allowed: the host file alone says how etcd is reached"
            ))
            .with_details("remove the key from the network configuration")),
        }
    }

    pub(super) fn section(&self) -> Section<'_> {
        Section::new("ipam", &self.pairs, Shows::Kinds)
    }
}

impl fmt::Debug for StoreKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.pairs.iter().map(|(key, _)| key)).finish()
    }
}

/// One endpoint of etcd.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    scheme: Scheme,
    host: String,
    port: u16,
}

/// The protocol that an endpoint speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Scheme {
    /// Plain text.
    Http,
    /// With TLS.
    Https,
}

impl Endpoint {
    /// Reads `http://host:port`, `https://host:port`, or `host:port` with the default scheme.
    pub(crate) fn parse(text: &str, default: Scheme) -> Option<Self> {
        let (scheme, rest) = match text.split_once("://") {
            None => (default, text),
            Some((name, rest)) if name.eq_ignore_ascii_case("http") => (Scheme::Http, rest),
            Some((name, rest)) if name.eq_ignore_ascii_case("https") => (Scheme::Https, rest),
            Some(_) => return None,
        };
        let (host, port) = rest.strip_suffix('/').unwrap_or(rest).rsplit_once(':')?;
        let digits = port.bytes().all(|b| b.is_ascii_digit());
        let port = port.parse().ok().filter(|port| digits && *port != 0)?;
        is_host(host).then(|| Self { scheme, host: host.to_ascii_lowercase(), port })
    }

    /// The URL, `http://host:port` or `https://host:port`.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.is_tls() { "https" } else { "http" };
        format!("{scheme}://{}:{}", self.host, self.port)
    }

    /// The name or address, an IPv6 address without its brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// True if the scheme is TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.scheme == Scheme::Https
    }

    /// True if the endpoint is on this machine.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        match self.host().parse::<IpAddr>() {
            Ok(ip) => ip.to_canonical().is_loopback(),
            Err(_) => self.host == "localhost",
        }
    }
}

fn is_host(host: &str) -> bool {
    if let Some(inner) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return inner.parse::<std::net::Ipv6Addr>().is_ok();
    }
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
    };
    let name = host.strip_suffix('.').unwrap_or(host);
    name.len() <= 253 && name.split('.').all(label)
}

/// Files for TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificates of the authorities that may sign a server's.
    pub ca_file: String,
    /// The client's certificate and key, if it shows one.
    pub client: Option<ClientFiles>,
    /// The name that a server's certificate must carry, if it is not the endpoint's.
    pub server_name: Option<String>,
}

/// The client's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientFiles {
    /// The certificate.
    pub cert_file: String,
    /// Its private key.
    pub key_file: String,
}

/// The place of the password.
#[derive(Clone, PartialEq, Eq)]
pub enum Password {
    /// In the configuration itself.
    Inline(String),
    /// In a file.
    File(String),
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Password::Inline(_) => f.write_str("Inline(..)"),
            Password::File(path) => write!(f, "File({path:?})"),
        }
    }
}

/// A user of etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    /// The name.
    pub username: String,
    /// The password.
    pub password: Password,
}

/// The endpoints of etcd, and the way to connect to them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdConfig {
    /// At least one, each once, in the order written.
    pub(crate) endpoints: Vec<Endpoint>,
    /// The prefix of all keys; starts and ends with `/`.
    pub(crate) prefix: String,
    /// Files for TLS; given exactly if an endpoint wants TLS.
    pub(crate) tls: Option<TlsFiles>,
    /// The user, if etcd asks for one.
    pub(crate) login: Option<Login>,
}

/// The keys that name or hold a secret of the node, in `etcd` and beside it.
const SECRETS: [(&str, &str); 4] = [
    ("key_file", "etcd_key_file"),
    ("cert_file", "etcd_cert_file"),
    ("password_file", "etcd_password"),
    ("username", "etcd_username"),
];

/// The `etcd` section and, beside it, whereabouts' names for its keys.
struct Names<'a> {
    beside: &'a Section<'a>,
    etcd: Option<Section<'a>>,
}

impl<'a> Names<'a> {
    /// A text under either of its names. Both are too many: which one is meant?
    fn text(&self, key: &str, other: Option<&str>) -> Result<Option<&'a str>, Error> {
        let inside = self.etcd.as_ref().map(|etcd| etcd.text(key)).transpose()?.flatten();
        let Some(other) = other else {
            return Ok(inside);
        };
        match (inside, self.beside.text(other)?) {
            (Some(_), Some(_)) => Err(self.twice(key, other)),
            (inside, beside) => Ok(inside.or(beside)),
        }
    }

    /// The path of a file, from `/` on: a plugin's working directory may be anywhere.
    fn path(&self, key: &str, other: Option<&str>) -> Result<Option<String>, Error> {
        match self.text(key, other)? {
            Some(path) if !path.starts_with('/') => {
                Err(self.refused(key, "must be a path that starts with /"))
            }
            path => Ok(path.map(str::to_owned)),
        }
    }

    /// Refuses the keys that name or hold a secret of the node: somebody else may have named the server that gets it.
    fn refuse_secrets(&self) -> Result<(), Error> {
        let has = |(inside, beside): &(&str, &str)| {
            let inside = self.etcd.as_ref().filter(|etcd| etcd.has(inside)).map(|etcd| etcd.at(inside));
            inside.or_else(|| self.beside.has(beside).then(|| self.beside.at(beside)))
        };
        match SECRETS.iter().find_map(has) {
            None => Ok(()),
            Some(key) => Err(Error::invalid_config(format!(
                "`{key}` is not allowed: a login or a client's key belongs in the host file"
            ))
            .with_details("remove the key from the network configuration, and write it in the host file")),
        }
    }

    fn at(&self, key: &str) -> String {
        self.beside.at(&format!("etcd.{key}"))
    }

    fn refused(&self, key: &str, why: &str) -> Error {
        Error::invalid_config(format!("`{}` {why}", self.at(key)))
    }

    fn twice(&self, key: &str, other: &str) -> Error {
        let (key, other) = (self.at(key), self.beside.at(other));
        Error::invalid_config(format!("`{key}` and `{other}` are two names for one thing: give one of them"))
    }
}

impl EtcdConfig {
    /// Reads the section `etcd` of the host file, and whereabouts' names beside it.
    pub(super) fn of_host_file(beside: &Section<'_>) -> Result<EtcdConfig, Error> {
        Self::read(Names { beside, etcd: beside.section("etcd")? })
    }

    /// The same of a network's configuration, which may name no secret.
    pub(super) fn of_network(beside: &Section<'_>) -> Result<EtcdConfig, Error> {
        let names = Names { beside, etcd: beside.section("etcd")? };
        names.refuse_secrets()?;
        Self::read(names)
    }

    fn read(names: Names<'_>) -> Result<EtcdConfig, Error> {
        let tls = tls_keys(&names)?;
        let endpoints = endpoints(&names, tls.is_given())?;
        let wants_tls = endpoints.iter().any(Endpoint::is_tls);
        Ok(EtcdConfig {
            prefix: prefix(names.text("prefix", None)?.unwrap_or("/metes/"))
                .ok_or_else(|| names.refused("prefix", &format!("must be {PREFIX_EXPECTED}")))?,
            tls: tls.checked(&names, wants_tls)?,
            login: login(&names)?,
            endpoints,
        })
    }
}

fn endpoints(names: &Names<'_>, is_tls_given: bool) -> Result<Vec<Endpoint>, Error> {
    let listed = match &names.etcd {
        None => Vec::new(),
        Some(etcd) => etcd.texts("endpoints")?,
    };
    let hosts = names.beside.text("etcd_host")?.unwrap_or_default();
    let hosts = hosts.split(',').map(str::trim).filter(|host| !host.is_empty());
    let texts = match (listed.is_empty(), hosts.collect::<Vec<_>>()) {
        (false, hosts) if !hosts.is_empty() => return Err(names.twice("endpoints", "etcd_host")),
        (true, hosts) if hosts.is_empty() => vec!["http://127.0.0.1:2379"],
        (true, hosts) => hosts,
        (false, _) => listed,
    };
    let is_empty =
        |etcd: &Section<'_>| etcd.get("endpoints").is_some_and(|listed| listed.items() == Some(&[]));
    if names.etcd.as_ref().is_some_and(is_empty) {
        return Err(
            names.refused("endpoints", "is empty: write at least one, such as https://10.0.0.11:12379")
        );
    }
    if texts.len() > ENDPOINTS_MAX {
        return Err(names.refused("endpoints", &format!("has more than {ENDPOINTS_MAX} entries")));
    }
    let default = if is_tls_given { Scheme::Https } else { Scheme::Http };
    let mut endpoints = Vec::new();
    for (i, text) in texts.into_iter().enumerate() {
        let endpoint = Endpoint::parse(text, default).ok_or_else(|| {
            names.refused(&format!("endpoints[{i}]"), "must be http://host:port or https://host:port")
        })?;
        if !endpoints.contains(&endpoint) {
            endpoints.push(endpoint);
        }
    }
    Ok(endpoints)
}

/// The keys of TLS as given.
struct TlsKeys {
    ca_file: Option<String>,
    cert_file: Option<String>,
    key_file: Option<String>,
    server_name: Option<String>,
}

fn tls_keys(names: &Names<'_>) -> Result<TlsKeys, Error> {
    Ok(TlsKeys {
        ca_file: names.path("ca_file", Some("etcd_ca_cert_file"))?,
        cert_file: names.path("cert_file", Some("etcd_cert_file"))?,
        key_file: names.path("key_file", Some("etcd_key_file"))?,
        server_name: server_name(names)?,
    })
}

fn server_name(names: &Names<'_>) -> Result<Option<String>, Error> {
    match names.text("server_name", None)? {
        Some(name) if !is_host(name) && name.parse::<IpAddr>().is_err() => {
            Err(names.refused("server_name", "must be a host name or an address"))
        }
        name => Ok(name.map(str::to_owned)),
    }
}

impl TlsKeys {
    fn is_given(&self) -> bool {
        [&self.ca_file, &self.cert_file, &self.key_file, &self.server_name].into_iter().any(Option::is_some)
    }

    fn checked(self, names: &Names<'_>, wants_tls: bool) -> Result<Option<TlsFiles>, Error> {
        if !wants_tls {
            // A user who names certificates expects TLS: do not go without it in silence.
            return match self.is_given() {
                false => Ok(None),
                true => Err(names
                    .refused(
                        "endpoints",
                        "has no https entry, and beside it stand keys for TLS, such as `ca_file`",
                    )
                    .with_details("write https:// in the endpoints, or remove these keys")),
            };
        }
        let ca_file = self.ca_file.ok_or_else(|| {
            names
                .refused("ca_file", "is missing: an https endpoint needs it")
                .with_details("no root certificates are built in, and the system's are not used")
        })?;
        let client = match (self.cert_file, self.key_file) {
            (None, None) => None,
            (Some(cert_file), Some(key_file)) => Some(ClientFiles { cert_file, key_file }),
            (Some(_), None) => return Err(names.refused("cert_file", "needs `key_file`, which is missing")),
            (None, Some(_)) => return Err(names.refused("key_file", "needs `cert_file`, which is missing")),
        };
        Ok(Some(TlsFiles { ca_file, client, server_name: self.server_name }))
    }
}

fn login(names: &Names<'_>) -> Result<Option<Login>, Error> {
    let inline = names.beside.text("etcd_password")?;
    let password = match (names.path("password_file", None)?, inline) {
        (Some(_), Some(_)) => return Err(names.twice("password_file", "etcd_password")),
        (Some(path), None) => Some(Password::File(path)),
        (None, inline) => inline.map(|password| Password::Inline(password.to_owned())),
    };
    match (names.text("username", Some("etcd_username"))?, password) {
        (None, None) => Ok(None),
        (Some(username), Some(password)) => Ok(Some(Login { username: username.to_owned(), password })),
        (Some(_), None) => Err(names.refused("username", "needs `password_file`, which is missing")),
        (None, Some(_)) => Err(names.refused("password_file", "needs `username`, which is missing")),
    }
}

/// The prefix with a `/` at both ends.
pub(super) fn prefix(text: &str) -> Option<String> {
    let inner = text.strip_prefix('/').unwrap_or(text);
    let inner = inner.strip_suffix('/').unwrap_or(inner);
    let part = |part| metes_core::pool::is_plain_name(part, PREFIX_MAX);
    if inner.len() <= PREFIX_MAX && inner.split('/').all(part) {
        return Some(format!("/{inner}/"));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_normalised() {
        let url = |text| Endpoint::parse(text, Scheme::Http).map(|e| e.url());
        let table = [
            ("http://127.0.0.1:2379", "http://127.0.0.1:2379"),
            ("HTTPS://Etcd-0.Example:2379/", "https://etcd-0.example:2379"),
            ("etcd:2379", "http://etcd:2379"),
            ("https://[FD00::1]:2379", "https://[fd00::1]:2379"),
        ];
        for (text, expected) in table {
            assert_eq!(url(text).as_deref(), Some(expected));
        }
        let bad = [
            "",
            "http://",
            "etcd",
            "http://etcd",
            "ftp://etcd:1",
            "http://etcd:0",
            "http://etcd:65536",
            "http://etcd:+1",
            "http://u:p@etcd:2379",
            "http://etcd:2379/x",
            "http://etcd:2379?x",
            "http://fd00::1:2379",
            "http://[x]:1",
            "http://a b:1",
            "http://:2379",
            "unix:///run/etcd.sock",
        ];
        for text in bad {
            assert_eq!(url(text), None, "{text:?}");
        }
    }

    #[test]
    fn loopback() {
        for (text, expected) in [
            ("127.0.0.1:1", true),
            ("127.9.9.9:1", true),
            ("[::1]:1", true),
            ("localhost:1", true),
            ("LOCALHOST:1", true),
            ("10.0.0.1:1", false),
            ("localhost.example:1", false),
            ("127.0.0.1.example:1", false),
            ("[::]:1", false),
        ] {
            let endpoint = Endpoint::parse(text, Scheme::Http).expect(text);
            assert_eq!(endpoint.is_loopback(), expected, "{text}");
        }
    }

    #[test]
    fn prefixes() {
        for text in ["/metes/", "metes", "/metes", "metes/"] {
            assert_eq!(prefix(text).as_deref(), Some("/metes/"));
        }
        assert_eq!(prefix("a/b.c/d").as_deref(), Some("/a/b.c/d/"));
        for bad in ["/", "//", "a//b", "/a/../b/", "a b", "ä", &"x".repeat(256)] {
            assert!(prefix(bad).is_none(), "{bad:?}");
        }
    }
}
