//! The metrics of a node, as Prometheus asks for them.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::support::wait_for;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use metes_config::cni::Verb;
use metes_node::runs::RunLine;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};
use rustls::{SupportedProtocolVersion, crypto};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The longest time for one request.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// A reader that has the Secret of Prometheus.
const READER: &str = "metes-metrics";

/// A node's folders, and what a pod has mounted. Each Secret is a folder of its name.
struct Node {
    folder: TempDir,
    port: u16,
}

/// A running installer.
struct Pod<'a> {
    node: &'a Node,
    child: Child,
}

impl Drop for Pod<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Node {
    fn new() -> Self {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let port = free.local_addr().expect("it is bound").port();
        let node = Self { folder: tempfile::tempdir().expect("a folder can be made"), port };
        fs::create_dir(node.path("bin")).expect("a folder can be made");
        node.make_certificates("");
        let secret = |file: &str| node.path("metes-reconciler").join(file);
        let template = json!({"cluster": "c1", "allowed": "any", "etcd": {
            "endpoints": ["https://127.0.0.1:1"], "ca_file": secret("ca.crt"),
            "cert_file": secret("tls.crt"), "key_file": secret("tls.key"),
        }});
        fs::write(node.path("template"), template.to_string()).expect("a file can be written");
        node.write_plugin("1.2.3");
        node
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Makes an authority and what it signs. The folders of the Secrets begin with `prefix`.
    fn make_certificates(&self, prefix: &str) {
        let template = json!({"cluster": "c1", "etcd": {"endpoints": ["https://127.0.0.1:1"]}});
        fs::write(self.path("etcd"), template.to_string()).expect("a file can be written");
        let mut made = self.installer(&["certificates", "--template=etcd", "--out=out", "--namespace=x"]);
        assert!(made.output().expect("metes-install runs").status.success());
        let list: Value =
            serde_json::from_slice(&fs::read(self.path("out")).expect("readable")).expect("JSON");
        for secret in list["items"].as_array().expect("a list").iter().filter(|one| one["kind"] == "Secret") {
            let name = secret["metadata"]["name"].as_str().expect("a name");
            let folder = self.path(&format!("{prefix}{name}"));
            fs::create_dir(&folder).expect("a folder can be made");
            for (file, data) in secret["data"].as_object().expect("data") {
                let content = STANDARD.decode(data.as_str().expect("a text")).expect("base64");
                fs::write(folder.join(file), content).expect("a file can be written");
            }
        }
    }

    fn write_plugin(&self, version: &str) {
        let versions = r#"{"cniVersion":"1.1.0","supportedVersions":["1.1.0"]}"#;
        let script = format!(
            "#!/bin/sh\n[ \"$1\" = --version ] && echo metes {version}\n\
             [ \"$CNI_COMMAND\" = VERSION ] && echo '{versions}'\nexit 0\n"
        );
        fs::write(self.path("plugin"), script).expect("a file can be written");
    }

    fn installer(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        // It ends with the thread of its test.
        command.args(["--pdeathsig", "KILL", env!("CARGO_BIN_EXE_metes-install")]).args(arguments);
        command.env_clear().env("PATH", "/usr/bin:/bin").env("NODE_NAME", "worker-1");
        command.current_dir(self.folder.path());
        command
    }

    fn start(&self) -> Pod<'_> {
        let log = File::create(self.path("log")).expect("a file can be made");
        let mut command = self.installer(&["install", "--template=template", "--binary=plugin"]);
        let listen = format!("--listen=127.0.0.1:{}", self.port);
        let paths = [("bin-dir", "bin"), ("host-dir", "host"), ("state-dir", "state")];
        let paths = paths.map(|(option, name)| format!("--{option}={}", self.path(name).display()));
        command.args(paths).arg(listen).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        Pod { node: self, child: command.spawn().expect("metes-install starts") }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).expect("there is a log")
    }

    /// The folder for the state of this node's store, which the installer has made.
    fn state(&self) -> PathBuf {
        let mut folders = fs::read_dir(self.path("state")).expect("it is there");
        folders.next().expect("a folder").expect("readable").path()
    }

    fn leave(&self, verb: Verb, code: u16, micros: u64, is_suspect: bool) {
        RunLine { verb, code, micros, is_suspect }.leave(&self.state()).expect("added");
    }

    /// Sends the request with the certificate of this Secret, or without one.
    fn ask(
        &self,
        secret: Option<&str>,
        version: &'static SupportedProtocolVersion,
        request: &str,
    ) -> io::Result<String> {
        let secret = secret.map(|name| self.path(name));
        let client = ClientConnection::new(
            Arc::new(client(secret.as_deref(), version)),
            ServerName::try_from("worker-1").expect("a name"),
        );
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        let mut stream = StreamOwned::new(client.map_err(io::Error::other)?, stream);
        stream.write_all(format!("{request} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    fn metrics(&self) -> Result<String, String> {
        let answer = self.ask(Some(READER), &TLS13, "GET /metrics").map_err(|e| e.to_string())?;
        match answer.split_once("\r\n\r\n") {
            Some((head, text)) if head.starts_with("HTTP/1.1 200 ") => Ok(text.to_owned()),
            _ => Err(answer),
        }
    }

    #[track_caller]
    fn shows(&self, samples: &[&str]) {
        let text = self.metrics().expect("metrics are served");
        for sample in samples {
            assert!(text.lines().any(|line| line == *sample), "{sample} is not in\n{text}");
        }
    }
}

impl Pod<'_> {
    /// Waits until the first pass is over.
    #[track_caller]
    fn installs(self) -> Self {
        wait_for("the node to be installed", || {
            let text = self.node.metrics()?;
            if text.contains("\nmetes_node_installed 1\n") { Ok(()) } else { Err(text) }
        });
        self
    }
}

/// A client that takes any certificate of a server: each node makes its own.
fn client(secret: Option<&Path>, version: &'static SupportedProtocolVersion) -> ClientConfig {
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[version])
        .expect("ring has it")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody));
    let Some(secret) = secret else { return builder.with_no_client_auth() };
    let chain = CertificateDer::pem_file_iter(secret.join("tls.crt")).expect("it is there");
    let key = PrivateKeyDer::from_pem_file(secret.join("tls.key")).expect("a key");
    let chain = chain.map(|one| one.expect("a certificate")).collect();
    builder.with_client_auth_cert(chain, key).expect("they belong together")
}

#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = default_provider().signature_verification_algorithms;
        crypto::verify_tls12_signature(message, certificate, signature, &algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = default_provider().signature_verification_algorithms;
        crypto::verify_tls13_signature(message, certificate, signature, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider().signature_verification_algorithms.supported_schemes()
    }
}

#[test]
fn only_who_has_a_client_certificate_of_the_authority_reads_metrics() {
    let node = Node::new();
    node.make_certificates("other-");
    let _pod = node.start().installs();
    let ask = |secret, version| node.ask(secret, version, "GET /metrics");
    assert!(ask(Some(READER), &TLS13).is_ok_and(|answer| answer.contains("metes_node_installed 1")));
    for (what, secret, version) in [
        ("no certificate", None, &TLS13),
        ("that of a server", Some("metes-webhook"), &TLS13),
        ("that of another authority", Some("other-metes-metrics"), &TLS13),
        ("an older TLS", Some(READER), &TLS12),
    ] {
        assert!(ask(secret, version).is_err(), "{what}: {:?}", ask(secret, version));
    }
    for (request, status) in [("GET /", "404"), ("GET /healthz", "404"), ("POST /metrics", "405")] {
        let answer = node.ask(Some(READER), &TLS13, request).expect("an answer");
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {answer}");
    }
    let mut plain = TcpStream::connect((Ipv4Addr::LOCALHOST, node.port)).expect("it listens");
    plain.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{}", String::from_utf8_lossy(&answer));
}

#[test]
fn another_authority_counts_from_the_moment_in_which_the_template_has_it() {
    let node = Node::new();
    let _pod = node.start().installs();
    node.make_certificates("other-");
    fs::copy(node.path("other-metes-ca/tls.crt"), node.path("metes-reconciler/ca.crt")).expect("copied");
    wait_for("the new authority's reader to be let in", || {
        node.ask(Some("other-metes-metrics"), &TLS13, "GET /metrics").map_err(|e| e.to_string())
    });
    assert!(node.metrics().is_err(), "the old one's is not");
}

#[test]
fn the_nodes_state_versions_and_certificates_are_shown() {
    let node = Node::new();
    let _pod = node.start().installs();
    let spool = node.state().join("spool");
    fs::create_dir_all(&spool).expect("a folder can be made");
    let owner = json!({"node": "worker-1", "container": "c", "ifname": "eth0", "cluster": "c1"});
    let entry = spool.join("1.del");
    fs::write(&entry, json!({"owner": owner, "start": {"boot": "b", "ns": 1}}).to_string()).expect("written");
    fs::set_permissions(&entry, fs::Permissions::from_mode(0o600)).expect("its mode can be set");
    let made = fs::read(node.path("metes-reconciler/made.json")).expect("it says when it ends");
    let made: Value = serde_json::from_slice(&made).expect("JSON");
    let (ours, ends) = (env!("CARGO_PKG_VERSION"), "metes_node_certificate_not_after_timestamp_seconds");
    node.shows(&[
        &format!("metes_node_info{{version=\"1.2.3\",installer_version=\"{ours}\"}} 1"),
        "metes_node_spooled_dels 1",
        "metes_node_mark_suspect 0",
        &format!("{ends}{{certificate=\"client\"}} {}", made["not_after"]),
    ]);
    assert!(node.metrics().expect("served").contains(&format!("\n{ends}{{certificate=\"ca\"}} ")));
}

#[test]
fn each_line_of_a_run_is_counted_once_also_across_files_and_processes() {
    let node = Node::new();
    let pod = node.start().installs();
    node.leave(Verb::Add, 0, 6_000, false);
    node.leave(Verb::Add, 102, 1_000, true);
    node.leave(Verb::Del, 0, 1_000, false);
    let counted = [
        "metes_node_runs_total{verb=\"ADD\",code=\"0\"} 1",
        "metes_node_runs_total{verb=\"ADD\",code=\"102\"} 1",
        "metes_node_runs_total{verb=\"DEL\",code=\"0\"} 1",
        "metes_node_run_duration_seconds_bucket{verb=\"ADD\",le=\"0.005\"} 1",
        "metes_node_run_duration_seconds_count{verb=\"ADD\"} 2",
        "metes_node_mark_suspect 1",
    ];
    node.shows(&counted);
    node.shows(&counted);
    drop(pod);

    // Counters begin again; what was found of the store does not.
    let _pod = node.start().installs();
    node.shows(&["metes_node_runs_total{verb=\"ADD\",code=\"0\"} 0", "metes_node_mark_suspect 1"]);
    let file = node.state().join("runs");
    let many = (256 << 10) / "STATUS 0 1000\n".len() + 1;
    let mut runs = File::options().append(true).open(&file).expect("it is there");
    runs.write_all("STATUS 0 1000\n".repeat(many).as_bytes()).expect("written");
    node.shows(&[
        &format!("metes_node_runs_total{{verb=\"STATUS\",code=\"0\"}} {many}"),
        "metes_node_mark_suspect 0",
    ]);
    assert!(!file.exists(), "a long file is removed");
    // One run had it open, and another one makes a new one.
    runs.write_all(b"STATUS 0 1000\n").expect("written");
    node.leave(Verb::Status, 0, 1_000, false);
    node.shows(&[&format!("metes_node_runs_total{{verb=\"STATUS\",code=\"0\"}} {}", many + 2)]);
    assert!(file.exists());
}

#[test]
fn an_address_that_is_taken_stops_no_installation() {
    let node = Node::new();
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, node.port)).expect("it is free");
    let pod = node.start();
    wait_for("the node to be installed, and the address to be named", || {
        let (log, is_there) = (node.log(), node.path("bin/metes").exists());
        let said = format!("cannot listen for metrics on 127.0.0.1:{}", node.port);
        if is_there && log.contains(&said) { Ok(()) } else { Err(log) }
    });
    drop(taken);
    let _pod = pod.installs();
}

#[test]
fn a_node_that_cannot_be_installed_says_so() {
    let node = Node::new();
    fs::remove_dir(node.path("bin")).expect("it is there");
    let _pod = node.start();
    let text = wait_for("metrics", || node.metrics());
    assert!(text.contains("\nmetes_node_installed 0\n"), "{text}");
}
