//! Why an endpoint of etcd does not serve this client until somebody changes something: the causes, what tells them,
//! and the words for people. Pure.

use std::error::Error;
use std::io;

use rustls::{AlertDescription, CertificateError};

use metes_engine::obstacle::Obstacle;

/// Why an endpoint does not serve this client, however often it asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cause {
    /// `http` to a port that speaks TLS.
    SpeaksTls,
    /// `https` to a port that speaks HTTP without TLS.
    LacksTls,
    /// The port speaks no HTTP/2.
    LacksHttp2,
    /// The port speaks neither TLS nor HTTP.
    SpeaksOther,
    /// The port speaks HTTP/2, and what answers is no etcd.
    NotEtcd,
    /// The member is a learner of its cluster, and serves no requests yet.
    Learner,
    /// etcd wants a client certificate, and there is none.
    NoClientCertificate,
    /// etcd ends the handshake without a client certificate, and does not say why.
    NoHandshake,
    /// The client certificate is of no CA that etcd trusts.
    UnknownClient,
    /// The client certificate has expired or is not valid yet.
    ClientOutOfTime,
    /// etcd refuses the client certificate for another reason: the alert.
    ClientRefused(String),
    /// etcd ends the connection as soon as it knows the client certificate, and does not say why.
    ClosesOnClient,
    /// etcd's certificate is of no CA in `ca_file`.
    UnknownServer,
    /// etcd's certificate is for other names: which one it should have, and those that it has, if that is known.
    ServerName(Option<(String, Vec<String>)>),
    /// etcd's certificate has expired.
    ServerExpired,
    /// etcd's certificate is not valid yet.
    ServerNotYetValid,
    /// etcd's certificate cannot be used for another reason, in words of rustls.
    ServerUnusable(String),
}

impl Cause {
    /// The fault of the endpoint.
    pub(crate) fn what(&self) -> String {
        let text = match self {
            Cause::SpeaksTls => "this port speaks TLS, and the endpoint is written with http",
            Cause::LacksTls => "this port does not speak TLS, and the endpoint is written with https",
            Cause::LacksHttp2 => "this port does not speak HTTP/2, so it is not etcd's port for clients",
            Cause::SpeaksOther => "this port speaks another protocol, so it is not etcd's port for clients",
            Cause::NotEtcd => "what answers on this port is not etcd's service for clients",
            Cause::Learner => "this member of etcd is a learner, which serves no requests",
            Cause::NoClientCertificate => "etcd wants a client certificate, and none is named",
            Cause::NoHandshake => {
                "etcd refuses the TLS handshake: it wants a client certificate, and none is named; or it has no cipher \
                 suite in common with metes"
            }
            Cause::UnknownClient => "etcd does not trust the CA of the client certificate",
            Cause::ClientOutOfTime => "etcd says that the client certificate has expired or is not valid yet",
            Cause::ClientRefused(alert) => return format!("etcd refuses the client certificate ({alert})"),
            Cause::ClosesOnClient => {
                "etcd ends the connection after the TLS handshake, as it does if the client certificate is revoked"
            }
            Cause::UnknownServer => "etcd's certificate is not signed by a CA in `ca_file`",
            Cause::ServerName(None) => "etcd's certificate is not for the name of the endpoint",
            Cause::ServerName(Some((expected, presented))) => {
                let names = if presented.is_empty() { "no name".to_owned() } else { presented.join(", ") };
                return format!("etcd's certificate is not for {expected}: it is for {names}");
            }
            Cause::ServerExpired => "etcd's certificate has expired",
            Cause::ServerNotYetValid => "etcd's certificate is not valid yet",
            Cause::ServerUnusable(why) => return format!("etcd's certificate cannot be used: {why}"),
        };
        text.to_owned()
    }

    /// Where a signer gives each node its certificate, nobody renews it by hand.
    fn remedy_for_node(&self) -> &'static str {
        match self {
            Cause::UnknownClient => SIGNER,
            Cause::ClientOutOfTime => {
                "metes-signer gives this node another certificate: see the log of the installer's pod on this node; \
                 check the clocks of this node and of etcd"
            }
            Cause::ClosesOnClient => {
                "metes-signer gives this node another certificate, unless the node is revoked: see the log of the \
                 installer's pod on this node"
            }
            _ => self.remedy(),
        }
    }

    fn remedy(&self) -> &'static str {
        match self {
            Cause::SpeaksTls => "write https:// in `etcd.endpoints`, and name `etcd.ca_file`",
            Cause::LacksTls => "let etcd serve TLS on this port, or write http:// in `etcd.endpoints`",
            Cause::LacksHttp2 | Cause::SpeaksOther | Cause::NotEtcd => {
                "name etcd's port for clients in `etcd.endpoints`, usually 2379; 2380 is for its members"
            }
            Cause::Learner => {
                "name voting members in `etcd.endpoints`, or make this one a voting member: `etcdctl member promote`"
            }
            Cause::NoClientCertificate => "name `etcd.cert_file` and `etcd.key_file`",
            Cause::NoHandshake => {
                "name `etcd.cert_file` and `etcd.key_file`; if etcd wants none, see its --cipher-suites: metes speaks \
                 TLS 1.3, and TLS 1.2 with ECDHE and AES-GCM or ChaCha20"
            }
            Cause::UnknownClient => "`cert_file` must be signed by a CA that is in etcd's --trusted-ca-file",
            Cause::ClientOutOfTime => {
                "renew the certificate in `cert_file`; check the clocks of this node and of etcd"
            }
            Cause::ClientRefused(_) => {
                "the certificate in `cert_file` must be for client authentication (clientAuth)"
            }
            Cause::ClosesOnClient => {
                "check if the serial number of the certificate in `cert_file` is in etcd's --client-crl-file"
            }
            Cause::UnknownServer => "put the CA that signed etcd's certificate into `ca_file`",
            Cause::ServerName(_) => {
                "name the endpoint as the certificate does, or put a name of the certificate into `server_name`"
            }
            Cause::ServerExpired => "renew etcd's certificate; check the clock of this node",
            Cause::ServerNotYetValid => "check the clock of this node",
            Cause::ServerUnusable(_) => {
                "give etcd an X.509 version 3 certificate for server authentication that is not a CA's"
            }
        }
    }
}

/// What users of etcd that are nodes with identities begin with.
const NODE: &str = "metes-node/";
/// Who helps such a node.
const SIGNER: &str =
    "metes-signer gives this node another certificate: see the log of the installer's pod on this node";

/// All causes in words: endpoints with the same cause together. `client` is the common name of the client certificate.
pub(crate) fn in_words<'a>(
    causes: impl IntoIterator<Item = (&'a str, &'a Cause)>,
    client: Option<&str>,
) -> Obstacle {
    let is_node = client.is_some_and(|client| client.starts_with(NODE));
    let mut groups: Vec<(Vec<&str>, &Cause)> = Vec::new();
    for (endpoint, cause) in causes {
        match groups.iter_mut().find(|(_, other)| *other == cause) {
            Some((endpoints, _)) => endpoints.push(endpoint),
            None => groups.push((vec![endpoint], cause)),
        }
    }
    let what = groups.iter().map(|(endpoints, cause)| format!("{}: {}", endpoints.join(", "), cause.what()));
    let remedy = |cause: &Cause| if is_node { cause.remedy_for_node() } else { cause.remedy() };
    let mut remedies: Vec<&str> = groups.iter().map(|(_, cause)| remedy(cause)).collect();
    remedies.dedup();
    Obstacle::new(what.collect::<Vec<_>>().join("; "), remedies.join("; "))
}

/// The meaning of an error for the endpoint.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// It stays so until somebody changes something.
    Lasting(Cause),
    /// It may be better the next time.
    Passing,
    /// The connection broke: that alone can have either reason.
    Unclear,
}

/// Reads an error of a connection with its chain of causes. `has_certificate`: whether this client has shown one.
pub(crate) fn read(error: &(dyn Error + 'static), has_certificate: bool) -> Reading {
    let mut next = Some(error);
    while let Some(error) = next {
        let io = error.downcast_ref::<io::Error>();
        // An I/O error hides what it wraps from the chain.
        let inner = io.and_then(|io| io.get_ref()?.downcast_ref::<rustls::Error>());
        if let Some(tls) = inner.or_else(|| error.downcast_ref()) {
            return read_tls(tls, has_certificate);
        }
        if io.is_some_and(|io| !is_broken(io.kind())) {
            return Reading::Passing;
        }
        next = error.source();
    }
    Reading::Unclear
}

/// True if a connection that stood broke. All else, such as a refused connection, passes with what causes it.
pub(crate) fn is_broken(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{
        BrokenPipe, ConnectionAborted, ConnectionReset, InvalidData, NotConnected, UnexpectedEof,
    };
    matches!(
        kind,
        BrokenPipe | ConnectionAborted | ConnectionReset | InvalidData | NotConnected | UnexpectedEof
    )
}

fn read_tls(error: &rustls::Error, has_certificate: bool) -> Reading {
    use rustls::Error::{AlertReceived, InvalidCertificate, InvalidMessage, NoApplicationProtocol};
    match error {
        // The other side spoke, but not TLS.
        InvalidMessage(_) => Reading::Unclear,
        InvalidCertificate(why) => Reading::Lasting(of_server(why)),
        NoApplicationProtocol | AlertReceived(AlertDescription::NoApplicationProtocol) => {
            Reading::Lasting(Cause::LacksHttp2)
        }
        AlertReceived(alert) => of_alert(*alert, has_certificate).map_or(Reading::Passing, Reading::Lasting),
        _ => Reading::Passing,
    }
}

/// Why etcd's certificate does not do.
fn of_server(why: &CertificateError) -> Cause {
    match why {
        // A CA of the same name as the right one is found, and has not made the signature.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => Cause::UnknownServer,
        CertificateError::NotValidForName => Cause::ServerName(None),
        CertificateError::NotValidForNameContext { expected, presented } => {
            let plain = |name: &String| match name.split_once('(') {
                Some((_, name)) => name.trim_end_matches(')').trim_matches('"').to_owned(),
                None => name.clone(),
            };
            let presented = presented.iter().map(plain).collect();
            Cause::ServerName(Some((expected.to_str().into_owned(), presented)))
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => Cause::ServerExpired,
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            Cause::ServerNotYetValid
        }
        other => Cause::ServerUnusable(other.to_string()),
    }
}

/// What etcd says of the client's certificate in an alert; none if the alert is about something else.
fn of_alert(alert: AlertDescription, has_certificate: bool) -> Option<Cause> {
    use AlertDescription as Alert;
    let about_certificate = match alert {
        // So says a server of TLS 1.2 where a certificate is missing, and where no cipher suite is in common.
        Alert::HandshakeFailure if !has_certificate => return Some(Cause::NoHandshake),
        Alert::CertificateRequired => Cause::NoClientCertificate,
        Alert::UnknownCA => Cause::UnknownClient,
        Alert::CertificateExpired => Cause::ClientOutOfTime,
        Alert::BadCertificate
        | Alert::UnsupportedCertificate
        | Alert::CertificateRevoked
        | Alert::CertificateUnknown
        | Alert::AccessDenied => Cause::ClientRefused(format!("{alert:?}")),
        _ => return None,
    };
    Some(if has_certificate { about_certificate } else { Cause::NoClientCertificate })
}

/// What tonic says before the status of an answer in HTTP/2 that is not gRPC, without and with a body.
const BEFORE_STATUS: [&str; 2] = ["mapped from HTTP status code ", "while receiving response with status: "];
/// The words of a gRPC server for a service that it does not have.
const NO_SUCH_SERVICE: &str = "unknown service";
/// What a server says that has no such service: who asks may not, there is nothing, or it takes no such request. Other
/// statuses may come from a proxy before etcd, and pass.
const NOT_SERVED: [&str; 5] = ["401", "403", "404", "405", "415"];

/// True if this is said of an answer that no etcd has given.
pub(crate) fn is_not_etcd(said: &str) -> bool {
    let status = BEFORE_STATUS.iter().find_map(|before| Some(said.split_once(before)?.1));
    status.is_some_and(|status| NOT_SERVED.iter().any(|code| status.starts_with(code)))
        || said.contains(NO_SUCH_SERVICE)
}

/// The protocol of a port, by its answer to the beginning of HTTP/2 or of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spoken {
    Http2,
    Http1,
    Tls,
    Other,
    /// It has not said enough.
    Nothing,
}

/// The length of the head of a frame of HTTP/2, and where its type stands in it.
const FRAME_HEAD: usize = 9;
const FRAME_TYPE: usize = 3;
/// The first frame of a server in HTTP/2.
const SETTINGS: u8 = 4;
/// The first bytes of a record of TLS: an alert or a handshake, and then the version.
const TLS: [[u8; 2]; 2] = [[21, 3], [22, 3]];

/// Reads the first bytes of an answer.
pub(crate) fn spoken(bytes: &[u8]) -> Spoken {
    if TLS.iter().any(|record| bytes.starts_with(record)) {
        Spoken::Tls
    } else if bytes.starts_with(b"HTTP/1") {
        Spoken::Http1
    } else if bytes.len() < FRAME_HEAD {
        Spoken::Nothing
    } else if bytes[0] == 0 && bytes[FRAME_TYPE] == SETTINGS {
        Spoken::Http2
    } else {
        Spoken::Other
    }
}

/// Why the files of this client cannot be used for TLS.
pub(crate) fn of_own_files(error: &rustls::Error) -> Obstacle {
    use rustls::Error::{InconsistentKeys, InvalidCertificate};
    match error {
        InconsistentKeys(_) => Obstacle::new(
            "the certificate in cert_file and the key in key_file do not belong together",
            "key_file must hold the key of the first certificate in cert_file",
        ),
        InvalidCertificate(why) if why.to_string().contains("UnsupportedCertVersion") => Obstacle::new(
            "the certificate in cert_file is not of X.509 version 3",
            "make one of version 3: openssl does where extensions are given, such as extendedKeyUsage = clientAuth",
        ),
        InvalidCertificate(why) => Obstacle::new(
            format!("the certificate in cert_file cannot be used: {why}"),
            "cert_file must hold the client's certificate first, then those between it and its CA",
        ),
        other => Obstacle::new(
            format!("key_file cannot be used: {other}"),
            "key_file must hold an RSA, ECDSA or Ed25519 key that is not encrypted",
        ),
    }
}

/// As whom this client asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Identified {
    /// By user and password.
    User(String),
    /// By the common name of its certificate.
    Certificate(String),
    /// It gives no name.
    Nobody,
}

/// Why etcd does not let the client in, or denies a request, in words. `said` are etcd's, `prefix` is where all keys
/// are.
pub(crate) fn denied(said: &str, who: &Identified, prefix: &str) -> Obstacle {
    let user = match who {
        Identified::User(user) => format!("user {user}"),
        Identified::Certificate(name) => format!("user {name} (the common name of the client certificate)"),
        Identified::Nobody => "no user".to_owned(),
    };
    let says = |words: &str| said.contains(words);
    if says("authentication is not enabled") {
        return Obstacle::new(
            format!("{user} cannot log in, because authentication is not enabled in etcd"),
            "take `etcd.username` and its password away, or enable authentication: etcdctl auth enable",
        );
    }
    if says("invalid user ID or password") {
        return Obstacle::new(
            format!("{user} is not known to etcd, or the password is wrong"),
            "check `etcd.username` and `etcd.password_file`",
        );
    }
    if *who == Identified::Nobody || says("user name is empty") {
        return Obstacle::new(
            format!("etcd wants a user for the prefix {prefix}, and none is named ({said})"),
            "name `etcd.username` and `etcd.password_file`, or a client certificate whose common name is the user",
        );
    }
    if matches!(who, Identified::Certificate(name) if name.starts_with(NODE)) {
        return Obstacle::new(
            format!("{user} may not do this below the prefix {prefix} ({said})"),
            "etcd does not have this user, or not with the role metes-node: metes-signer gives it both with a \
             certificate, unless the node is revoked: see the log of the installer's pod on this node",
        );
    }
    Obstacle::new(
        format!("{user} may not do this below the prefix {prefix} ({said})"),
        format!(
            "a node's user needs a role that may read and write below {prefix}, and only read pools; who changes pools \
             needs one that may write them too, as metes-admin has: etcdctl role grant-permission"
        ),
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::{InconsistentKeys, InvalidMessage, OtherError};

    use super::*;

    /// An error around another one, as libraries nest them.
    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] Box<dyn Error + Send + Sync>);

    fn nested(error: impl Into<Box<dyn Error + Send + Sync>>) -> Outer {
        Outer(Box::new(Outer(error.into())))
    }

    #[test]
    fn each_error_of_tls_has_its_cause_however_deep_it_stands() {
        use CertificateError as Bad;
        let alert = rustls::Error::AlertReceived;
        let own = |why: Bad| rustls::Error::InvalidCertificate(why);
        let names = Bad::NotValidForNameContext {
            expected: "etcd.test".try_into().expect("a name"),
            presented: vec!["DnsName(\"a.test\")".to_owned(), "IpAddress(10.0.0.1)".to_owned()],
        };
        let shown = Some(("etcd.test".to_owned(), vec!["a.test".to_owned(), "10.0.0.1".to_owned()]));
        let version = Bad::Other(OtherError(Arc::new(io::Error::other("UnsupportedCertVersion"))));
        let rows = [
            (alert(AlertDescription::CertificateRequired), Reading::Lasting(Cause::NoClientCertificate)),
            (alert(AlertDescription::UnknownCA), Reading::Lasting(Cause::UnknownClient)),
            (alert(AlertDescription::CertificateExpired), Reading::Lasting(Cause::ClientOutOfTime)),
            (
                alert(AlertDescription::BadCertificate),
                Reading::Lasting(Cause::ClientRefused("BadCertificate".to_owned())),
            ),
            (alert(AlertDescription::NoApplicationProtocol), Reading::Lasting(Cause::LacksHttp2)),
            // etcd is reading its files while they are replaced.
            (alert(AlertDescription::InternalError), Reading::Passing),
            (own(Bad::UnknownIssuer), Reading::Lasting(Cause::UnknownServer)),
            (own(Bad::BadSignature), Reading::Lasting(Cause::UnknownServer)),
            (own(Bad::Expired), Reading::Lasting(Cause::ServerExpired)),
            (own(Bad::NotValidYet), Reading::Lasting(Cause::ServerNotYetValid)),
            (own(Bad::NotValidForName), Reading::Lasting(Cause::ServerName(None))),
            (own(names), Reading::Lasting(Cause::ServerName(shown))),
            (own(version.clone()), Reading::Lasting(Cause::ServerUnusable(version.to_string()))),
            (rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType), Reading::Unclear),
            (rustls::Error::HandshakeNotComplete, Reading::Passing),
        ];
        for (error, expected) in rows {
            assert_eq!(read(&nested(error.clone()), true), expected, "{error}");
            let inside = io::Error::new(io::ErrorKind::InvalidData, error.clone());
            assert_eq!(read(&nested(inside), true), expected, "{error}");
        }
        assert_eq!(
            read(&alert(AlertDescription::BadCertificate), false),
            Reading::Lasting(Cause::NoClientCertificate)
        );
        assert_eq!(
            read(&alert(AlertDescription::HandshakeFailure), false),
            Reading::Lasting(Cause::NoHandshake)
        );
        for words in ["client certificate", "cipher suite"] {
            assert!(Cause::NoHandshake.what().contains(words), "{words}");
        }
        assert_eq!(read(&alert(AlertDescription::HandshakeFailure), true), Reading::Passing);
    }

    #[test]
    fn only_a_connection_that_broke_is_unclear() {
        use io::ErrorKind as Kind;
        for kind in [Kind::UnexpectedEof, Kind::ConnectionReset, Kind::BrokenPipe] {
            assert_eq!(read(&nested(io::Error::from(kind)), true), Reading::Unclear, "{kind}");
        }
        let passing =
            [Kind::ConnectionRefused, Kind::TimedOut, Kind::HostUnreachable, Kind::NetworkUnreachable];
        for kind in passing.into_iter().chain([Kind::AddrNotAvailable, Kind::Other]) {
            assert_eq!(read(&nested(io::Error::from(kind)), true), Reading::Passing, "{kind}");
        }
        assert_eq!(read(&nested("what no library names"), true), Reading::Unclear);
    }

    #[test]
    fn what_no_etcd_has_said() {
        for said in [
            "grpc-status header missing, mapped from HTTP status code 404",
            "protocol error: invalid compression flag: 123 while receiving response with status: 403 Forbidden",
            "unknown service etcdserverpb.KV",
        ] {
            assert!(is_not_etcd(said), "{said}");
        }
        for said in [
            "grpc-status header missing, mapped from HTTP status code 503",
            "grpc-status header missing, mapped from HTTP status code 429",
            "etcdserver: request timed out",
        ] {
            assert!(!is_not_etcd(said), "{said}");
        }
    }

    #[test]
    fn first_bytes() {
        let rows: [(&[u8], Spoken); 10] = [
            (b"", Spoken::Nothing),
            (b"\x15", Spoken::Nothing),
            (b"\x15\x03\x01\x00\x02\x02\x46", Spoken::Tls),
            (b"\x16\x03\x03", Spoken::Tls),
            (b"HTTP/1.1 400 Bad Request", Spoken::Http1),
            (b"SSH-2.0-", Spoken::Nothing),
            (b"SSH-2.0-OpenSSH", Spoken::Other),
            (b"\x00\x00\x06\x04\x00\x00\x00\x00\x00", Spoken::Http2),
            (b"\x00\x00\x06\x04", Spoken::Nothing),
            (b"\x00\x00\x06\x07\x00\x00\x00\x00\x00", Spoken::Other),
        ];
        for (bytes, expected) in rows {
            assert_eq!(spoken(bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn endpoints_with_one_cause_are_told_together() {
        let causes = [("a", &Cause::SpeaksTls), ("b", &Cause::LacksHttp2), ("c", &Cause::SpeaksTls)];
        let told = in_words(causes, None);
        assert!(told.what.starts_with("a, c: this port speaks TLS") && told.what.contains("; b: "), "{told}");
        assert!(told.remedy.contains("https://") && told.remedy.contains("2379"), "{told:?}");
        // One remedy for two causes is told once.
        let told = in_words([("a", &Cause::LacksHttp2), ("b", &Cause::SpeaksOther)], None);
        assert_eq!(told.remedy.matches("2379").count(), 1, "{told:?}");
    }

    #[test]
    fn a_node_with_an_identity_is_told_who_gives_it_another_one() {
        for cause in [Cause::UnknownClient, Cause::ClientOutOfTime, Cause::ClosesOnClient] {
            let remedy = |client| in_words([("a", &cause)], client).remedy;
            let signer = |client| remedy(client).contains("metes-signer gives this node another certificate");
            assert!(signer(Some("metes-node/c1/n1")), "{cause:?}");
            assert!(!signer(Some("metes-node")) && !signer(None), "{cause:?}");
        }
        // etcd's own certificate is not the signer's business.
        let told = in_words([("a", &Cause::ServerExpired)], Some("metes-node/c1/n1"));
        assert!(!told.remedy.contains("metes-signer"), "{told:?}");
    }

    #[test]
    fn each_cause_is_in_the_documents() {
        let documents = include_str!("../../../docs/operations.md");
        let shown = Some(("NAME".to_owned(), vec!["...".to_owned()]));
        for cause in [
            Cause::SpeaksTls,
            Cause::LacksTls,
            Cause::LacksHttp2,
            Cause::SpeaksOther,
            Cause::NotEtcd,
            Cause::NoClientCertificate,
            Cause::UnknownClient,
            Cause::ClientOutOfTime,
            Cause::ClientRefused("...".to_owned()),
            Cause::ClosesOnClient,
            Cause::UnknownServer,
            Cause::ServerName(shown),
            Cause::ServerExpired,
            Cause::ServerNotYetValid,
            Cause::ServerUnusable("...".to_owned()),
        ] {
            let what = cause.what();
            let (what, _) = what.split_once(", so it is").unwrap_or((&what, ""));
            assert!(documents.contains(&format!("`{what}")), "{what}");
        }
    }

    #[test]
    fn own_files() {
        let version = OtherError(Arc::new(io::Error::other("UnsupportedCertVersion")));
        let rows = [
            (rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch), "do not belong together"),
            (rustls::Error::InvalidCertificate(CertificateError::Other(version)), "X.509 version 3"),
            (rustls::Error::InvalidCertificate(CertificateError::BadEncoding), "cert_file"),
            (rustls::Error::General("no key".to_owned()), "key_file"),
        ];
        for (error, words) in rows {
            let told = of_own_files(&error);
            assert!(told.what.contains(words), "{told}");
        }
    }

    #[test]
    fn a_denial_names_the_user_and_the_prefix() {
        let [user, cn] = ["metes", "node-1"].map(str::to_owned);
        let (user, cn) = (Identified::User(user), Identified::Certificate(cn));
        let rows = [
            ("etcdserver: permission denied", &user, ["user metes", "/metes/"]),
            ("etcdserver: permission denied", &cn, ["user node-1 (the common name", "/metes/"]),
            ("etcdserver: authentication is not enabled", &user, ["user metes", "not enabled"]),
            (
                "etcdserver: authentication failed, invalid user ID or password",
                &user,
                ["user metes", "password is wrong"],
            ),
            ("etcdserver: user name is empty", &Identified::Nobody, ["none is named", "/metes/"]),
            ("etcdserver: user name is empty", &cn, ["none is named", "/metes/"]),
        ];
        let remedy = denied(rows[0].0, &user, "/metes/").remedy;
        // Who asks may have the one role, and need the other.
        assert!(["a node's user", "metes-admin"].iter().all(|role| remedy.contains(role)), "{remedy}");
        for (said, who, words) in rows {
            let told = denied(said, who, "/metes/");
            assert!(words.iter().all(|word| told.what.contains(word)), "{told}");
        }
    }
}
