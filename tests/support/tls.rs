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
[dated]
database = dated.txt
policy = any
default_md = sha256
unique_subject = no
rand_serial = yes
crlnumber = number.txt
[any]
commonName = supplied
";

/// For certificates that are not about time.
const VALID: [&str; 2] = ["20200101000000Z", "20800101000000Z"];
const SIGNED: [&str; 4] = ["-CA", "ca.pem", "-CAkey", "ca.key"];
const SERVER_NAMES: &str = "IP:127.0.0.1, DNS:localhost, DNS:etcd.test";

/// The files of one authority, a server of its and a client.
#[derive(Clone, Debug)]
pub struct Tls {
    folder: PathBuf,
    server: String,
}

impl Tls {
    pub fn create(folder: &Path) -> Self {
        fs::create_dir_all(folder).expect("a folder can be made");
        fs::write(folder.join("openssl.cnf"), CONFIG).expect("a file can be written");
        let tls = Self { folder: folder.to_owned(), server: "server".to_owned() };
        tls.certify("ca", "ca", "/CN=metes test authority", &[], SERVER_NAMES);
        tls.certify("server", "server", "/CN=localhost", &SIGNED, SERVER_NAMES);
        // The common name is the user's name where etcd has authentication by certificate.
        tls.client("client", "metes-node");
        tls
    }

    /// The same authority and client with another server: a key and a certificate of its own, for one address only.
    pub fn with_server(&self, name: &str, host: Ipv4Addr) -> Self {
        self.certify(name, "server", &format!("/CN={name}"), &SIGNED, &format!("IP:{host}"));
        Self { folder: self.folder.clone(), server: name.to_owned() }
    }

    /// Gives such a server another certificate and key in place of those that it has, one file after the other.
    pub fn renew_server(&self, name: &str, host: Ipv4Addr) {
        let next = self.with_server(&format!("{name}-next"), host);
        for (file, extension) in [(next.server_cert(), "pem"), (next.server_key(), "key")] {
            fs::rename(file, self.folder.join(format!("{name}.{extension}")))
                .expect("a file can be replaced");
        }
    }

    /// Another client's certificate and key.
    pub fn client(&self, file: &str, common_name: &str) -> (PathBuf, PathBuf) {
        self.certify(file, "client", &subject(common_name), &SIGNED, SERVER_NAMES);
        (self.folder.join(format!("{file}.pem")), self.folder.join(format!("{file}.key")))
    }

    /// Gives the server a certificate that is valid from one of these times to the other, as openssl writes them.
    pub fn date_server(&self, from: &str, to: &str) {
        self.date(&self.server, Some("server"), "localhost", [from, to]);
    }

    /// Gives the server a certificate of X.509 version 1.
    pub fn make_server_version_1(&self) {
        self.date(&self.server, None, "localhost", VALID);
    }

    /// A client's certificate of X.509 version 1.
    pub fn version_1_client(&self, file: &str) -> (PathBuf, PathBuf) {
        self.date(file, None, "metes-node", VALID);
        (self.folder.join(format!("{file}.pem")), self.folder.join(format!("{file}.key")))
    }

    /// The same for a client of the usual name.
    pub fn dated_client(&self, file: &str, from: &str, to: &str) -> (PathBuf, PathBuf) {
        self.dated_client_of(file, "metes-node", [from, to])
    }

    /// The same for a client of that name.
    pub fn dated_client_of(&self, file: &str, common_name: &str, times: [&str; 2]) -> (PathBuf, PathBuf) {
        self.date(file, Some("client"), common_name, times);
        (self.folder.join(format!("{file}.pem")), self.folder.join(format!("{file}.key")))
    }

    /// The certificate of a client who made the key, and this request for it. All are PEM.
    pub fn sign(&self, request: &str, from: &str, to: &str) -> String {
        fs::write(self.folder.join("asked.csr"), request).expect("a file can be written");
        self.sign_dated("asked", Some("client"), [from, to]);
        fs::read_to_string(self.folder.join("asked.pem")).expect("openssl writes text")
    }

    /// A list of what is revoked, with this certificate of its own, as etcd reads it.
    pub fn revoke(&self, certificate: &Path, list: &Path) {
        // With a number it is of the version that etcd reads.
        for (file, text) in [("dated.txt", ""), ("number.txt", "01\n")] {
            fs::write(self.folder.join(file), text).expect("a file can be written");
        }
        let by = ["ca", "-config", "openssl.cnf", "-name", "dated", "-cert", "ca.pem", "-keyfile", "ca.key"];
        let certificate = certificate.display().to_string();
        self.openssl(&[by.as_slice(), &["-revoke", &certificate]].concat(), SERVER_NAMES);
        let made = ["-gencrl", "-crldays", "30", "-out", "list.pem"];
        self.openssl(&[by.as_slice(), &made].concat(), SERVER_NAMES);
        let list = list.display().to_string();
        self.openssl(&["crl", "-in", "list.pem", "-outform", "DER", "-out", &list], SERVER_NAMES);
    }

    /// Without a section of extensions it is of version 1.
    fn date(&self, name: &str, section: Option<&str>, common_name: &str, [from, to]: [&str; 2]) {
        let (key, request) = (format!("{name}.key"), format!("{name}.csr"));
        let subject = subject(common_name);
        let asked = ["req", "-new", "-config", "openssl.cnf", "-nodes", "-subj", &subject];
        let made =
            ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-keyout", &key, "-out", &request];
        self.openssl(&[asked.as_slice(), &made].concat(), SERVER_NAMES);
        self.sign_dated(name, section, [from, to]);
    }

    fn sign_dated(&self, name: &str, section: Option<&str>, [from, to]: [&str; 2]) {
        fs::write(self.folder.join("dated.txt"), "").expect("a file can be written");
        let request = format!("{name}.csr");
        let signer = ["ca", "-batch", "-notext", "-config", "openssl.cnf", "-name", "dated", "-outdir", "."];
        let extensions = section.map(|section| ["-extensions", section]);
        let signed = ["-cert", "ca.pem", "-keyfile", "ca.key", "-in", &request];
        let dates = ["-startdate", from, "-enddate", to, "-out", &format!("{name}.pem")];
        let extensions = extensions.as_ref().map_or(&[][..], |words| words);
        self.openssl(&[signer.as_slice(), &signed, &dates, extensions].concat(), SERVER_NAMES);
    }

    pub fn ca(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    pub fn server_cert(&self) -> PathBuf {
        self.folder.join(format!("{}.pem", self.server))
    }

    pub fn server_key(&self) -> PathBuf {
        self.folder.join(format!("{}.key", self.server))
    }

    pub fn client_cert(&self) -> PathBuf {
        self.folder.join("client.pem")
    }

    pub fn client_key(&self) -> PathBuf {
        self.folder.join("client.key")
    }

    fn certify(&self, name: &str, section: &str, subject: &str, signer: &[&str], server_names: &str) {
        let (key, certificate) = (format!("{name}.key"), format!("{name}.pem"));
        let asked = ["req", "-x509", "-config", "openssl.cnf", "-nodes", "-days", "2"];
        let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-keyout", &key];
        let certificate = ["-subj", subject, "-extensions", section, "-out", &certificate];
        self.openssl(&[asked.as_slice(), &key, &certificate, signer].concat(), server_names);
    }

    fn openssl(&self, arguments: &[&str], server_names: &str) {
        let output = Command::new("openssl")
            .args(arguments)
            .env("SERVER_NAMES", server_names)
            .current_dir(&self.folder)
            .output()
            .expect("openssl runs");
        assert!(output.status.success(), "openssl: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// openssl ends a part of a name at a `/`.
fn subject(common_name: &str) -> String {
    format!("/CN={}", common_name.replace('/', "\\/"))
}
