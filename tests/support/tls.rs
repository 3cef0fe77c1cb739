//! A certificate authority of a test's own, made by the openssl command.

use std::fs;
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
subjectAltName = IP:127.0.0.1, DNS:localhost, DNS:etcd.test
[client]
basicConstraints = critical, CA:FALSE
extendedKeyUsage = clientAuth
";

/// The files of one authority, its server and its client.
#[derive(Clone, Debug)]
pub(crate) struct Tls {
    folder: PathBuf,
}

impl Tls {
    pub(crate) fn create(folder: &Path) -> Self {
        fs::create_dir_all(folder).expect("a folder can be made");
        fs::write(folder.join("openssl.cnf"), CONFIG).expect("a file can be written");
        let tls = Self { folder: folder.to_owned() };
        tls.certify("ca", "/CN=metes test authority", &[]);
        tls.certify("server", "/CN=localhost", &["-CA", "ca.pem", "-CAkey", "ca.key"]);
        // The common name is the user's name where etcd has authentication by certificate.
        tls.certify("client", "/CN=metes", &["-CA", "ca.pem", "-CAkey", "ca.key"]);
        tls
    }

    pub(crate) fn ca(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    pub(crate) fn server_cert(&self) -> PathBuf {
        self.folder.join("server.pem")
    }

    pub(crate) fn server_key(&self) -> PathBuf {
        self.folder.join("server.key")
    }

    pub(crate) fn client_cert(&self) -> PathBuf {
        self.folder.join("client.pem")
    }

    pub(crate) fn client_key(&self) -> PathBuf {
        self.folder.join("client.key")
    }

    fn certify(&self, name: &str, subject: &str, signer: &[&str]) {
        let output = Command::new("openssl")
            .args(["req", "-x509", "-config", "openssl.cnf", "-nodes", "-days", "2"])
            .args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
            .args(["-subj", subject, "-extensions", name])
            .args(["-keyout", &format!("{name}.key"), "-out", &format!("{name}.pem")])
            .args(signer)
            .current_dir(&self.folder)
            .output()
            .expect("openssl runs");
        assert!(output.status.success(), "openssl: {}", String::from_utf8_lossy(&output.stderr));
    }
}
