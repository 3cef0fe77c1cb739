//! Networks are judged when somebody writes them to a real kube-apiserver.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{KubeApi, Kubectl, Manifests, Run, Running, Tls, free_ports, reconciler, wait_for};
use tempfile::TempDir;

const SOON: Duration = Duration::from_secs(30);
const NADS: &str = "network-attachment-definitions";
const GOOD: &str = r#"{"cniVersion":"1.0.0","type":"bridge","ipam":{"type":"metes","range":"10.0.0.0/24"}}"#;
const BAD: &str = r#"{"cniVersion":"1.0.0","type":"bridge","ipam":{"type":"metes","rnage":"10.0.0.0/24"}}"#;

/// The webhook, and an API server that asks it.
struct World {
    api: KubeApi,
    kubectl: Kubectl,
    tls: Tls,
    port: u16,
    folder: TempDir,
}

impl World {
    fn new() -> Self {
        let api = KubeApi::start();
        api.install_crds();
        let folder = tempfile::tempdir().expect("a folder can be made");
        let tls = Tls::create(&folder.path().join("tls")).with_server("hook", Ipv4Addr::LOCALHOST);
        let kubectl = Kubectl::new(api.kubeconfig(folder.path()));
        let [port] = free_ports();
        Self { api, kubectl, tls, port, folder }
    }

    fn host_file(&self, keys: &Value) -> PathBuf {
        let path = self.folder.path().join("metes.conf");
        fs::write(&path, keys.to_string()).expect("a file can be written");
        path
    }

    fn start(&self, host_file: &Path) -> Running {
        let path = |path: &Path| path.to_str().expect("a plain path").to_owned();
        let flags = [
            ["--config".to_owned(), path(host_file)],
            ["--listen".to_owned(), format!("127.0.0.1:{}", self.port)],
            ["--cert-file".to_owned(), path(&self.tls.server_cert())],
            ["--key-file".to_owned(), path(&self.tls.server_key())],
        ];
        let run = Run::new(reconciler()).arguments(["webhook"]).arguments(flags.concat());
        let running = run.spawn();
        wait_for("the webhook to answer", SOON, || self.readiness());
        running
    }

    fn readiness(&self) -> Result<(), String> {
        let url = format!("https://127.0.0.1:{}/readyz", self.port);
        let ca = self.tls.ca();
        let arguments = ["--silent", "--fail", "--max-time", "3", "--noproxy", "*", "--cacert"];
        let asked =
            Run::new("curl").arguments(arguments).arguments([ca.to_str().unwrap_or_default(), &url]).run();
        if asked.succeeded() { Ok(()) } else { Err(asked.to_string()) }
    }

    /// Applies the configuration of manifests/webhook, but asked at this machine.
    fn configure(&self) {
        let manifests = Manifests::copy();
        let text = manifests.kustomize("webhook");
        let document = text.split("\n---\n").find(|one| one.contains("kind: ValidatingWebhookConfiguration"));
        let applied = self.kubectl.apply(document.expect("there is one"));
        let mut hook = applied[0]["webhooks"][0].clone();
        assert_eq!((&hook["failurePolicy"], &hook["sideEffects"]), (&json!("Ignore"), &json!("None")));
        let ca = Run::new("base64").arguments(["-w0", self.tls.ca().to_str().expect("a plain path")]).run();
        let url = format!("https://127.0.0.1:{}/validate", self.port);
        hook["clientConfig"] = json!({"url": url, "caBundle": ca.stdout.trim()});
        let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/metes";
        self.api.patch(path, &json!({"webhooks": [hook]}));
    }

    /// Writes a definition: whether it was taken, and all that kubectl said.
    fn write(&self, name: &str, config: &str) -> (bool, String) {
        let nad = json!({
            "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": {"namespace": "default", "name": name}, "spec": {"config": config},
        });
        let outcome = self.kubectl.run(["apply", "-f", "-"], &nad.to_string());
        (outcome.succeeded(), format!("{}{}", outcome.stdout, outcome.stderr))
    }

    #[track_caller]
    fn takes(&self, name: &str, config: &str) -> String {
        let (taken, said) = self.write(name, config);
        assert!(taken, "{said}");
        said
    }

    #[track_caller]
    fn refuses(&self, name: &str, config: &str) -> String {
        let (taken, said) = self.write(name, config);
        assert!(!taken, "{said}");
        said
    }

    /// Sends bytes over TLS, and returns the answer.
    fn send(&self, bytes: &[u8]) -> String {
        let file = self.folder.path().join("request");
        fs::write(&file, bytes).expect("a file can be written");
        let command = format!(
            "(cat {}; sleep 1) | timeout 20 openssl s_client -quiet -verify_quiet -CAfile {} -connect 127.0.0.1:{}",
            file.display(),
            self.tls.ca().display(),
            self.port
        );
        Run::new("bash").arguments(["-c", &command]).run().stdout
    }
}

#[test]
fn networks_are_refused_and_warned_of_when_they_are_written() {
    let world = World::new();
    let host_file = world.host_file(&json!({
        "etcd": {"endpoints": ["http://127.0.0.1:2379"]},
        "allowed": {"default": {"prefixes": ["10.0.0.0/8"], "pools": ["storage"]}},
    }));
    let running = world.start(&host_file);
    world.configure();
    // The server needs a moment to know of the configuration. An object that it has taken it does not judge again.
    let mut tries = 0;
    wait_for("the API to ask the webhook", SOON, || {
        tries += 1;
        match world.write(&format!("first-{tries}"), BAD) {
            (true, said) => Err(said),
            (false, _) => Ok(()),
        }
    });
    let said = world.refuses("bad", BAD);
    assert!(said.contains("metes would refuse an ADD") && said.contains("did you mean `range`"), "{said}");
    let outside = GOOD.replace("10.0.0.0/24", "192.168.0.0/24");
    assert!(world.refuses("outside", &outside).contains("allowed"), "the host file counts");
    let list = |inner: &str| {
        format!(r#"{{"cniVersion":"1.0.0","name":"n","plugins":[{inner},{{"type":"tuning"}}]}}"#)
    };
    assert!(world.refuses("list", &list(BAD)).contains("rnage"));
    let pools = |pools: &str| GOOD.replace(r#""range":"10.0.0.0/24""#, pools);
    assert!(world.refuses("pools", &pools(r#""pools":"storage""#)).contains("must be an array"));
    assert!(world.refuses("no-json", r#"{"ipam":{"type":"metes",}}"#).contains("not JSON"));

    world.takes("good", GOOD);
    world.takes("list", &list(GOOD));
    world.takes("pools", &pools(r#""pool":"storage""#));
    let odd = GOOD.replace("\"range\"", "\"colour\":\"red\",\"range\"");
    let said = world.takes("odd", &odd);
    assert!(said.contains("Warning: metes: ") && said.contains("colour"), "{said}");
    assert!(!world.takes("good", GOOD).contains("Warning"));
    // An update is judged too.
    assert!(world.refuses("good", BAD).contains("rnage"));
    assert!(world.refuses("escaped", &BAD.replace("metes", r"m\u0065tes")).contains("rnage"));
    // A network of another plugin is none of its business. Mostly it does not even see it.
    let other = r#"{"type":"bridge","ipam":{"type":"host-local","rnage":"10.0.0.0/24"}}"#;
    world.takes("other", other);
    let said = world.takes("spelt", &other.replace("host", r"h\u006fst"));
    assert!(!said.contains("Warning"), "{said}");

    running.terminate();
    let outcome = running.wait();
    assert!(outcome.succeeded() && outcome.stderr.contains("ended as asked"), "{outcome}");
    assert!(outcome.stderr.contains("default/odd") && !outcome.stderr.contains("default/other"), "{outcome}");
    // Nobody judges, and networks are written all the same.
    world.takes("bad", BAD);
    let running = world.start(&host_file);
    // A user may label a bad object that is there already, and is told.
    let label = ["label", NADS, "bad", "a=b"];
    let labelled = world.kubectl.run(label, "");
    assert!(labelled.succeeded() && labelled.stderr.contains("Warning: metes: "), "{labelled}");
    running.terminate();
    assert!(running.wait().succeeded());
}

#[test]
fn the_webhook_renews_its_certificate_and_bounds_what_it_is_sent() {
    let world = World::new();
    let host_file = world.host_file(&json!({"etcd": {"endpoints": ["http://127.0.0.1:2379"]}}));
    let running = world.start(&host_file);
    // Nothing whole, on more connections than it takes at once.
    let mut silent: Vec<TcpStream> = (0..40)
        .map(|_| TcpStream::connect((Ipv4Addr::LOCALHOST, world.port)).expect("it is accepted"))
        .collect();
    silent.iter_mut().for_each(|stream| stream.write_all(b"\x16\x03").expect("it is taken"));
    let begun = Instant::now();
    wait_for("a place", SOON, || world.readiness());
    silent.iter_mut().for_each(|stream| {
        stream.set_read_timeout(Some(SOON)).expect("a timeout can be set");
        // It may be reset instead of closed.
        let _ = stream.read(&mut [0]);
    });
    assert!(begun.elapsed() < SOON);
    for (request, status) in [
        ("POST /validate HTTP/1.1\r\nHost: m\r\nContent-Length: 2\r\n\r\n{}", "400"),
        ("POST /validate HTTP/1.1\r\nHost: m\r\nContent-Length: 3\r\n\r\nabc", "400"),
        ("POST /validate HTTP/1.1\r\nHost: m\r\nContent-Length: 99999999\r\n\r\n", "413"),
        ("GET /validate HTTP/1.1\r\nHost: m\r\n\r\n", "405"),
        ("GET /metrics HTTP/1.1\r\nHost: m\r\n\r\n", "404"),
    ] {
        let answer = world.send(request.as_bytes());
        assert_eq!(answer.split(' ').nth(1), Some(status), "{request}: {answer}");
    }
    let before = fs::read(world.tls.server_cert()).expect("there is one");
    world.tls.renew_server("hook", Ipv4Addr::LOCALHOST);
    assert_ne!(before, fs::read(world.tls.server_cert()).expect("there is one"));
    let shown = |text: &str| {
        let file = world.folder.path().join("shown.pem");
        fs::write(&file, text).expect("a file can be written");
        let der = format!("openssl x509 -in {} -noout -fingerprint", file.display());
        Run::new("bash").arguments(["-c", &der]).run().stdout
    };
    let renewed = shown(&fs::read_to_string(world.tls.server_cert()).expect("it is text"));
    wait_for("the new certificate", SOON, || {
        let command = format!("openssl s_client -connect 127.0.0.1:{} </dev/null", world.port);
        let served = shown(&Run::new("bash").arguments(["-c", &command]).run().stdout);
        if served == renewed { Ok(()) } else { Err(served) }
    });
    running.terminate();
    let outcome = running.wait();
    assert!(outcome.succeeded() && outcome.stderr.contains("the certificate was renewed"), "{outcome}");
    let broken = Run::new(reconciler())
        .arguments(["webhook", "--cert-file", "/nonexistent", "--key-file", "/x"])
        .run();
    assert!(broken.status.code() == Some(1) && broken.stderr.contains("/nonexistent"), "{broken}");
}
