//! A certificate authority of a test's own, made by the openssl command.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Extensions by section, for each of the three certificates. Keys are written 0600 by openssl itself.
const CONFIG: &str = "\
[req]
distinguished_name = name
[name]
[ca]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:FALSE
extendedKeyUsage = serverAuth
subjectAltName = $ENV::SERVER_NAMES
[client]
basicConstraints = critical, CA:FALSE
extendedKeyUsage = clientAuth
";

const SIGNED: [&str; 4] = ["-CA", "ca.pem", "-CAkey", "ca.key"];
const SERVER_NAMES: &str = "IP:127.0.0.1, DNS:localhost, DNS:etcd.test";

/// The files of one authority, a server of its and a client.
#[derive(Clone, Debug)]
pub(crate) struct Tls {
    folder: PathBuf,
    server: String,
}

impl Tls {
    pub(crate) fn create(folder: &Path) -> Self {
        fs::create_dir_all(folder).expect("a folder can be made");
        fs::write(folder.join("openssl.cnf"), CONFIG).expect("a file can be written");
        let tls = Self { folder: folder.to_owned(), server: "server".to_owned() };
        tls.certify("ca", "ca", "/CN=metes test authority", &[], SERVER_NAMES);
        tls.certify("server", "server", "/CN=localhost", &SIGNED, SERVER_NAMES);
        // The common name is the user's name where etcd has authentication by certificate.
        tls.client("client", "metes");
        tls
    }

    /// The same authority and client with another server: a key and a certificate of its own, for one address only.
    pub(crate) fn with_server(&self, name: &str, host: Ipv4Addr) -> Self {
        self.certify(name, "server", &format!("/CN={name}"), &SIGNED, &format!("IP:{host}"));
        Self { folder: self.folder.clone(), server: name.to_owned() }
    }

    /// Another client's certificate and key.
    pub(crate) fn client(&self, file: &str, common_name: &str) -> (PathBuf, PathBuf) {
        self.certify(file, "client", &format!("/CN={common_name}"), &SIGNED, SERVER_NAMES);
        (self.folder.join(format!("{file}.pem")), self.folder.join(format!("{file}.key")))
    }

    pub(crate) fn ca(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    pub(crate) fn server_cert(&self) -> PathBuf {
        self.folder.join(format!("{}.pem", self.server))
    }

    pub(crate) fn server_key(&self) -> PathBuf {
        self.folder.join(format!("{}.key", self.server))
    }

    pub(crate) fn client_cert(&self) -> PathBuf {
        self.folder.join("client.pem")
    }

    pub(crate) fn client_key(&self) -> PathBuf {
        self.folder.join("client.key")
    }

    fn certify(&self, name: &str, section: &str, subject: &str, signer: &[&str], server_names: &str) {
        let output = Command::new("openssl")
            .args(["req", "-x509", "-config", "openssl.cnf", "-nodes", "-days", "2"])
            .args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
            .args(["-subj", subject, "-extensions", section])
            .args(["-keyout", &format!("{name}.key"), "-out", &format!("{name}.pem")])
            .args(signer)
            .env("SERVER_NAMES", server_names)
            .current_dir(&self.folder)
            .output()
            .expect("openssl runs");
        assert!(output.status.success(), "openssl: {}", String::from_utf8_lossy(&output.stderr));
    }
}
