//! The identity of a node: what the installer asks of a real kube-apiserver, and what it makes of each answer. A signer
//! of the test's own answers, as metes-signer does.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use support::{ApiProxy, KubeApi, Rule, Run, Running, Tls, metes_install, wait_for};
use tempfile::TempDir;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const SIGNER: &str = "metes.dev/etcd-client";
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Longer than one pass waits for an answer.
const PASS_MAX: Duration = Duration::from_secs(100);
const ADDED: [&str; 2] = ["-1 hour", "+14 days"];

/// A node of a cluster, and who signs for it.
struct Lab {
    api: &'static KubeApi,
    /// The cluster has this name too: other tests ask the same server.
    cluster: String,
    authority: Tls,
    folder: TempDir,
    kubeconfig: PathBuf,
}

impl Lab {
    fn new() -> Self {
        let (api, folder) = (KubeApi::shared(), tempfile::tempdir().expect("a folder can be made"));
        let kubeconfig = api.kubeconfig(folder.path());
        let authority = Tls::create(&folder.path().join("authority"));
        let lab = Self { api, cluster: api.new_namespace(), authority, folder, kubeconfig };
        for name in ["bin", "tls"] {
            fs::create_dir(lab.path(name)).expect("a folder can be made");
        }
        lab.write("tls/ca.crt", "an authority");
        lab.trust(&lab.authority);
        lab.template(json!({}));
        lab.plugin("first");
        lab
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("a file can be written");
    }

    /// The authority of the nodes, as the ConfigMap metes-ca has it.
    fn trust(&self, authority: &Tls) {
        fs::copy(authority.ca(), self.path("tls/nodes.crt")).expect("a file can be copied");
    }

    fn template(&self, more: Value) {
        let file = |name: &str| self.path("tls").join(name);
        let etcd = json!({
            "endpoints": ["https://10.0.0.1:12379"],
            "ca_file": file("ca.crt"), "cert_file": file("tls.crt"), "key_file": file("tls.key"),
        });
        let mut template = json!({"cluster": self.cluster, "allowed": "any", "etcd": etcd});
        for (key, value) in more.as_object().expect("an object") {
            template[key] = value.clone();
        }
        self.write("template", &template.to_string());
    }

    fn plugin(&self, text: &str) {
        let versions = r#"{"cniVersion":"1.1.0","supportedVersions":["1.1.0"]}"#;
        self.write("plugin", &format!("#!/bin/sh\n# {text}\necho '{versions}'\n"));
    }

    fn user(&self) -> String {
        format!("metes-node/{}/n1", self.cluster)
    }

    fn installer(&self, verb: &str) -> Run {
        let option = |name: &str, path: &str| format!("--{name}={}", self.path(path).display());
        Run::new(metes_install())
            .env("KUBECONFIG", &self.kubeconfig)
            .env("NODE_NAME", "n1")
            .arguments(["install", verb, &format!("--signer={SIGNER}")])
            .arguments([option("template", "template"), option("binary", "plugin")])
            .arguments([option("bin-dir", "bin"), option("host-dir", "host")])
    }

    fn is_ready(&self) -> bool {
        self.installer("--check").run().succeeded()
    }

    /// Requests for this node without an answer.
    fn open(&self) -> Vec<Value> {
        let all = self.api.get(REQUESTS);
        let is_open =
            |one: &&Value| one["status"]["conditions"].is_null() && self.subject(one) == self.user();
        all["items"].as_array().expect("a list").iter().filter(is_open).cloned().collect()
    }

    fn subject(&self, request: &Value) -> String {
        let file = self.path(request["metadata"]["name"].as_str().expect("a name"));
        fs::write(&file, csr(request)).expect("a file can be written");
        let said = openssl(&["req", "-noout", "-subject", "-verify", "-in", &file.display().to_string()]);
        said.split("CN").nth(1).unwrap_or_default().trim_start_matches([' ', '=']).trim().to_owned()
    }

    fn wait_for_request(&self) -> Value {
        wait_for("a request", ANSWER_MAX, || match self.open().as_slice() {
            [one] => Ok(one.clone()),
            others => Err(format!("{others:?}")),
        })
    }

    fn answer(&self, request: &Value, kind: &str, message: &str) {
        let condition = json!({"type": kind, "status": "True", "reason": "Test", "message": message});
        let change = json!({"status": {"conditions": [condition]}});
        self.api.patch(&format!("{}/approval", path_of(request)), &change);
    }

    fn sign(&self, request: &Value, by: &Tls, [from, to]: [&str; 2]) -> String {
        let certificate = by.sign(&csr(request), &at(from), &at(to));
        self.answer(request, "Approved", "of this test");
        let change = json!({"status": {"certificate": STANDARD.encode(&certificate)}});
        self.api.patch(&format!("{}/status", path_of(request)), &change);
        certificate
    }

    /// A pass in which the signer gives a certificate of that time.
    #[track_caller]
    fn install_signed(&self, times: [&str; 2]) -> (String, String) {
        let running = self.installer("--once").spawn();
        let certificate = self.sign(&self.wait_for_request(), &self.authority, times);
        let outcome = running.wait();
        assert!(outcome.succeeded(), "{outcome}");
        (certificate, outcome.stderr)
    }

    /// A pass in which the signer refuses; what it says, and whether it succeeds.
    fn install_denied(&self, message: &str) -> (String, bool) {
        let running = self.installer("--once").spawn();
        self.answer(&self.wait_for_request(), "Denied", message);
        let outcome = running.wait();
        (outcome.stderr.clone(), outcome.succeeded())
    }

    /// A pass in which nobody is asked.
    #[track_caller]
    fn install_without_asking(&self) -> String {
        let outcome = self.installer("--once").run();
        assert!(outcome.succeeded() && !outcome.stderr.contains("asks"), "{outcome}");
        assert!(self.open().is_empty());
        outcome.stderr
    }

    fn host_file(&self) -> Value {
        let text = fs::read_to_string(self.path("host/metes.conf")).expect("a host file");
        serde_json::from_str(&text).expect("JSON")
    }

    /// A file that the host file names.
    fn named(&self, key: &str) -> PathBuf {
        PathBuf::from(self.host_file()["etcd"][key].as_str().expect("a path"))
    }

    fn certificate(&self) -> String {
        fs::read_to_string(self.named("cert_file")).expect("it is there")
    }

    /// What an installation with other certificates has left on the node.
    fn place(&self, (certificate, key): (PathBuf, PathBuf)) {
        fs::create_dir_all(self.path("host/tls-1")).expect("a folder can be made");
        for (from, name) in [(certificate, "tls.crt"), (key, "tls.key"), (self.path("tls/ca.crt"), "ca.crt")]
        {
            fs::copy(from, self.path("host/tls-1").join(name)).expect("a file can be copied");
        }
        let template = fs::read_to_string(self.path("template")).expect("it is there");
        let inside = self.path("host/tls-1").display().to_string();
        self.write("host/metes.conf", &template.replace(&self.path("tls").display().to_string(), &inside));
    }

    fn has_nothing(&self) -> bool {
        let is_empty =
            |name| fs::read_dir(self.path(name)).map_or(true, |mut folder| folder.next().is_none());
        is_empty("host") && is_empty("bin")
    }
}

fn path_of(request: &Value) -> String {
    format!("{REQUESTS}/{}", request["metadata"]["name"].as_str().expect("a name"))
}

fn csr(request: &Value) -> String {
    let base64 = request["spec"]["request"].as_str().expect("a text");
    String::from_utf8(STANDARD.decode(base64).expect("base64")).expect("PEM")
}

fn openssl(arguments: &[&str]) -> String {
    let output = Command::new("openssl").args(arguments).output().expect("openssl runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("a text")
}

/// A time from now, as openssl writes it.
fn at(when: &str) -> String {
    let date = Command::new("date").args(["-u", "-d", when, "+%Y%m%d%H%M%SZ"]).output().expect("date runs");
    String::from_utf8(date.stdout).expect("a text").trim().to_owned()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o7777
}

#[test]
fn a_node_gets_a_certificate_for_itself_and_keeps_it() {
    let lab = Lab::new();
    assert!(!lab.is_ready());
    let running = lab.installer("--once").spawn();
    let request = lab.wait_for_request();
    let expected = json!({
        "signerName": SIGNER, "usages": ["digital signature", "client auth"], "expirationSeconds": 14 * 86_400,
    });
    for (key, value) in expected.as_object().expect("an object") {
        assert_eq!(request["spec"][key], *value, "{key}");
    }
    assert!(request["metadata"]["name"].as_str().expect("a name").starts_with("metes-node-"));
    let file = lab.path("request");
    fs::write(&file, csr(&request)).expect("a file can be written");
    let text = openssl(&["req", "-noout", "-text", "-in", &file.display().to_string()]);
    assert!(text.contains("prime256v1") && !text.contains("Alternative"), "{text}");
    assert!(lab.has_nothing(), "a key without a certificate is in memory alone");

    let certificate = lab.sign(&request, &lab.authority, ADDED);
    let outcome = running.wait();
    assert!(outcome.succeeded() && outcome.stderr.contains(&lab.user()), "{outcome}");
    assert_eq!(lab.certificate(), certificate);
    assert_eq!(mode(&lab.named("key_file")), 0o600);
    let public = |arguments: &[&str], key: &str| {
        openssl(&[arguments, &["-in", &lab.named(key).display().to_string()]].concat())
    };
    let of_certificate = public(&["x509", "-noout", "-pubkey"], "cert_file");
    assert_eq!(public(&["pkey", "-pubout"], "key_file"), of_certificate);
    assert!(lab.is_ready());
    assert_eq!(lab.install_without_asking(), "");
}

#[test]
fn it_is_renewed_when_it_is_four_days_old() {
    let lab = Lab::new();
    let (young, _) = lab.install_signed(["-2 days", "+253 hours"]);
    lab.install_without_asking();
    fs::remove_dir_all(lab.path("host")).expect("it can be removed");
    let (old, _) = lab.install_signed(["-5 days", "+239 hours"]);
    assert_ne!(young, old);
    let before = lab.named("cert_file");
    let (new, _) = lab.install_signed(ADDED);
    assert_eq!(lab.certificate(), new);
    assert!(before.exists(), "a run may have read the older host file");
    lab.install_without_asking();
}

/// The signer may need some minutes, and its answer is for one key.
#[test]
fn a_request_is_waited_for_and_its_log_says_who_answers() {
    let lab = Lab::new();
    let log = lab.path("log");
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL"])
        .arg(metes_install())
        .args(["install", &format!("--signer={SIGNER}")])
        .args(
            [("template", "template"), ("binary", "plugin"), ("bin-dir", "bin"), ("host-dir", "host")]
                .map(|(name, path)| format!("--{name}={}", lab.path(path).display())),
        )
        .env("KUBECONFIG", &lab.kubeconfig)
        .env("NODE_NAME", "n1")
        .stderr(File::create(&log).expect("a file can be made"));
    let mut child = command.spawn().expect("the installer runs");
    let says = |words: &[&str]| {
        wait_for("the log", PASS_MAX, || {
            let said = fs::read_to_string(&log).expect("it is there");
            if words.iter().all(|words| said.contains(words)) { Ok(()) } else { Err(said) }
        });
    };
    let request = lab.wait_for_request();
    let name = request["metadata"]["name"].as_str().expect("a name");
    let who = "kubectl -n metes-system get pods -l app.kubernetes.io/name=metes-signer";
    says(&[&format!("the request {name} is pending for"), who]);
    // The next pass goes on to wait for the same one.
    says(&["not installed", "this node has no certificate of its own yet"]);
    assert_eq!(lab.open().len(), 1);
    let certificate = lab.sign(&request, &lab.authority, ADDED);
    says(&["new certificates in"]);
    wait_for("the host file", ANSWER_MAX, || {
        if lab.path("host/metes.conf").exists() { Ok(()) } else { Err(String::new()) }
    });
    assert_eq!(lab.certificate(), certificate);
    child.kill().expect("it runs");
    child.wait().expect("it ends");
}

#[test]
fn a_denied_node_gets_nothing_and_says_why() {
    let lab = Lab::new();
    let (said, succeeded) =
        lab.install_denied("the user metes-node/c1/n1 is revoked:\nmetes-install unrevoke");
    let why = "Denied: the user metes-node/c1/n1 is revoked: metes-install unrevoke";
    assert!(!succeeded && said.contains(why) && lab.has_nothing(), "{said}");
    // It asks again with its next pass.
    lab.install_signed(ADDED);
    assert!(lab.is_ready());
}

#[test]
fn a_clock_that_differs_is_named_with_both_times() {
    let lab = Lab::new();
    let running = lab.installer("--once").spawn();
    lab.sign(&lab.wait_for_request(), &lab.authority, ["+1 day", "+15 days"]);
    let outcome = running.wait();
    let now = Command::new("date").args(["-u", "+%Y-%m-%dT%H:"]).output().expect("date runs");
    let now = String::from_utf8(now.stdout).expect("a text");
    let words = ["clock says", &now.trim()[..10], "valid from", &at("+1 day")[6..8]];
    assert!(!outcome.succeeded() && words.iter().all(|words| outcome.stderr.contains(words)), "{outcome}");
    assert!(lab.has_nothing());
}

/// A signer that is away stops neither an upgrade nor a change of the host file, and pods start as long as they can.
#[test]
fn all_else_is_kept_up_to_date_while_a_renewal_fails() {
    let lab = Lab::new();
    for (times, words) in [
        (["-5 days", "+239 hours"], "is not renewed, and is good for 9 more days"),
        (
            ["-10 days", "+95 hours"],
            "warning: the certificate of this node is not renewed, and is good for 3 more",
        ),
    ] {
        let (certificate, _) = lab.install_signed(times);
        lab.plugin(times[0]);
        lab.template(json!({"log_level": times[0]}));
        let (said, succeeded) = lab.install_denied("not now");
        assert!(succeeded && said.contains(words) && said.contains("not now"), "{said}");
        assert_eq!(lab.certificate(), certificate);
        assert_eq!(lab.host_file()["log_level"], times[0]);
        assert_eq!(fs::read(lab.path("bin/metes")).ok(), fs::read(lab.path("plugin")).ok());
        assert!(lab.is_ready(), "it can be used");
        fs::remove_dir_all(lab.path("host")).expect("it can be removed");
    }
}

#[test]
fn an_expired_certificate_is_replaced() {
    let lab = Lab::new();
    lab.place(lab.authority.dated_client_of("expired", &lab.user(), [&at("-14 days"), &at("-1 minute")]));
    assert!(!lab.is_ready());
    lab.template(json!({"log_level": "debug"}));
    let (said, succeeded) = lab.install_denied("not now");
    assert!(succeeded && said.contains("is not valid, until") && said.contains("ADDs fail"), "{said}");
    assert_eq!(lab.host_file()["log_level"], "debug");
    assert!(!lab.is_ready());
    lab.install_signed(ADDED);
    assert!(lab.is_ready());
}

/// From one key for all nodes: the plugin has it until the node has its own.
#[test]
fn the_key_of_all_nodes_serves_until_the_node_has_its_own() {
    let lab = Lab::new();
    let (certificate, key) = lab.authority.client("shared", "metes-node");
    let shared = fs::read_to_string(&certificate).expect("it is there");
    lab.place((certificate, key));
    let (said, succeeded) = lab.install_denied("not now");
    assert!(succeeded && said.contains("it is for the user metes-node)"), "{said}");
    assert_eq!(lab.certificate(), shared);
    assert!(!lab.is_ready());
    let (own, _) = lab.install_signed(ADDED);
    assert_eq!(lab.certificate(), own);
    assert!(lab.path("host/tls-1/tls.key").exists(), "a run may have read the older host file");
}

/// etcd does not know the authority that signed it.
#[test]
fn a_certificate_of_an_authority_that_was_replaced_is_replaced() {
    let lab = Lab::new();
    lab.install_signed(ADDED);
    let other = Tls::create(&lab.path("other"));
    lab.trust(&other);
    assert!(!lab.is_ready());
    let running = lab.installer("--once").spawn();
    // A signer that has the older one still.
    lab.sign(&lab.wait_for_request(), &lab.authority, ADDED);
    let outcome = running.wait();
    assert!(outcome.stderr.contains("no present authority of the nodes has signed it"), "{outcome}");
    let running: Running = lab.installer("--once").spawn();
    let certificate = lab.sign(&lab.wait_for_request(), &other, ADDED);
    assert!(running.wait().succeeded());
    assert_eq!(lab.certificate(), certificate);
    assert!(lab.is_ready());
}

/// A node that starts with its cluster asks as soon as it can: its first pods wait for that.
#[test]
fn an_api_that_fails_at_first_is_asked_again_at_once() {
    let lab = Lab::new();
    let proxy = ApiProxy::before(lab.api);
    proxy.rule(Rule::of("POST", REQUESTS).nth(1).hang_up());
    let running = lab.installer("--once").env("KUBECONFIG", proxy.kubeconfig(lab.folder.path())).spawn();
    lab.sign(&lab.wait_for_request(), &lab.authority, ADDED);
    let outcome = running.wait();
    assert!(outcome.succeeded() && proxy.asked_for("POST", REQUESTS).len() == 2, "{outcome}");
    assert!(lab.is_ready());
}

/// An account that may not ask, and no API server at all.
#[test]
fn a_node_that_cannot_ask_says_what_it_lacks() {
    let lab = Lab::new();
    let account = lab.api.kubeconfig_for_service_account(lab.folder.path(), &lab.cluster, "somebody");
    let outcome = lab.installer("--once").env("KUBECONFIG", account).run();
    let refused = "cannot create a CertificateSigningRequest: ";
    assert!(!outcome.succeeded() && outcome.stderr.contains(refused), "{outcome}");
    assert!(outcome.stderr.contains("is forbidden"), "{outcome}");
    let outcome = lab.installer("--once").without("KUBECONFIG").run();
    assert!(!outcome.succeeded() && outcome.stderr.contains("no API server is known"), "{outcome}");
    assert!(lab.has_nothing());
}
