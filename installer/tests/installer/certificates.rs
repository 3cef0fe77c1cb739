//! The certificates, as openssl judges them.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use crate::support::open_read_fifo;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

const ALL: [&str; 11] = [
    "metes-ca",
    "metes-node-ca",
    "metes-etcd-server",
    "metes-etcd-peer",
    "metes-signer",
    "metes-reconciler",
    "metes-viewer",
    "metes-admin",
    "metes-metrics",
    "metes-webhook",
    TRUSTED,
];
/// What nodes trust: the ConfigMap metes-ca.
const TRUSTED: &str = "trusted";

/// Runs the program in `folder`, and unpacks each object into a folder of its name.
fn make(folder: &Path) -> Vec<String> {
    make_with(folder, &[])
}

fn make_with(folder: &Path, arguments: &[&str]) -> Vec<String> {
    let template = json!({"cluster": "c1", "etcd": {
        "endpoints": ["https://10.0.0.1:12379", "https://[fd00::2]:12379"], "server_name": "etcd.example",
    }});
    fs::write(folder.join("template"), template.to_string()).expect("a file can be written");
    let output = certificates(folder).args(arguments).output().expect("metes-install runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mode = fs::metadata(folder.join("out.json")).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    let list: Value =
        serde_json::from_slice(&fs::read(folder.join("out.json")).expect("readable")).expect("JSON");
    list["items"].as_array().expect("a list").iter().map(|object| unpack(folder, object)).collect()
}

fn certificates(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_metes-install"));
    command.args(["certificates", "--template", "template", "--out", "out.json"]);
    if folder.join("metes-ca").exists() {
        command.args(["--ca", "metes-ca", "--node-ca", "metes-node-ca"]);
    }
    command.env("NAMESPACE", "metes-system").current_dir(folder);
    command
}

fn unpack(folder: &Path, object: &Value) -> String {
    let is_secret = object["kind"] == "Secret";
    assert_eq!(object["type"], if is_secret { json!("kubernetes.io/tls") } else { Value::Null });
    let name = object["metadata"]["name"].as_str().expect("a name");
    let of_pods = ["metes-reconciler", "metes-viewer", "metes-admin", "metes-metrics", "metes-webhook"];
    let namespace = if of_pods.contains(&name) { "metes" } else { "metes-system" };
    assert_eq!(object["metadata"]["namespace"], namespace);
    let name = if is_secret { name } else { TRUSTED };
    fs::create_dir_all(folder.join(name)).expect("a folder can be made");
    for (file, data) in object["data"].as_object().expect("data") {
        let data = data.as_str().expect("a text");
        let content = if is_secret { STANDARD.decode(data).expect("base64") } else { data.into() };
        fs::write(folder.join(name).join(file), content).expect("a file can be written");
    }
    name.to_owned()
}

fn openssl(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new("openssl").args(arguments).current_dir(folder).output().expect("openssl runs");
    let text = |bytes| String::from_utf8(bytes).expect("a text");
    assert!(output.status.success(), "{arguments:?}: {} {}", text(output.stdout), text(output.stderr));
    text(output.stdout)
}

fn verify(folder: &Path, ca: &str, purpose: &str, certificate: &str) {
    openssl(folder, &["verify", "-x509_strict", "-CAfile", ca, "-purpose", purpose, certificate]);
}

#[test]
fn each_is_good_for_its_use() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let folder = folder.path();
    assert_eq!(make(folder), ALL);
    for (name, purposes) in [
        ("metes-etcd-server", ["sslserver", "sslclient"].as_slice()),
        ("metes-etcd-peer", &["sslserver", "sslclient"]),
        ("metes-signer", &["sslclient"]),
        ("metes-reconciler", &["sslclient"]),
        ("metes-viewer", &["sslclient"]),
        ("metes-admin", &["sslclient"]),
        ("metes-metrics", &["sslclient"]),
        ("metes-webhook", &["sslserver"]),
    ] {
        for purpose in purposes {
            verify(folder, &format!("{name}/ca.crt"), purpose, &format!("{name}/tls.crt"));
        }
        let public = |file: &str, kind: &[&str]| {
            openssl(folder, &[kind, &["-in", &format!("{name}/{file}")]].concat())
        };
        assert_eq!(
            public("tls.crt", &["x509", "-noout", "-pubkey"]),
            public("tls.key", &["pkey", "-pubout"])
        );
        // The user in etcd.
        let subject = public("tls.crt", &["x509", "-noout", "-subject"]).replace(' ', "");
        assert!(subject.trim_end().ends_with(&format!("CN={name}")), "{subject}");
    }
    for (option, name) in [
        ("-checkhost", "etcd.example"),
        ("-checkhost", "etcd.metes-system.svc"),
        ("-checkip", "10.0.0.1"),
        ("-checkip", "fd00::2"),
    ] {
        let text = openssl(folder, &["x509", "-noout", "-in", "metes-etcd-server/tls.crt", option, name]);
        assert!(text.contains("does match"), "{text}");
    }
}

/// The key of what signs the nodes' certificates cannot make one that a node or a member takes for etcd's.
#[test]
fn only_etcd_lets_in_what_the_nodes_authority_signs() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let folder = folder.path();
    make(folder);
    let subject =
        openssl(folder, &["x509", "-noout", "-subject", "-in", "metes-node-ca/tls.crt"]).replace(' ', "");
    assert!(subject.trim_end().ends_with("CN=metesnodeauthority"), "{subject}");
    let [node, other] = ["metes-node-ca/tls.crt", "metes-ca/tls.crt"];
    for authority in [node, other] {
        openssl(folder, &["verify", "-x509_strict", "-CAfile", "metes-etcd-server/clients.crt", authority]);
    }
    let read = |name: &str| fs::read(folder.join(name)).expect("readable");
    for name in ["metes-etcd-server", "metes-etcd-peer", "metes-signer", "metes-viewer", TRUSTED] {
        assert_eq!(read(&format!("{name}/ca.crt")), read(other), "{name}");
    }
    assert_eq!(read(&format!("{TRUSTED}/nodes.crt")), read(node));
}

#[test]
fn one_key_for_all_nodes_is_made_where_it_is_asked_for() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let folder = folder.path();
    let mut expected = ALL.to_vec();
    expected.insert(5, "metes-node");
    assert_eq!(make_with(folder, &["--one-key"]), expected);
    verify(folder, "metes-ca/tls.crt", "sslclient", "metes-node/tls.crt");
}

#[test]
fn a_renewal_keeps_the_authorities() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let folder = folder.path();
    make(folder);
    let read = |name: &str| fs::read(folder.join(name)).expect("readable");
    let authorities = || [read("metes-ca/tls.crt"), read("metes-node-ca/tls.crt")];
    let (before, client) = (authorities(), read("metes-signer/tls.crt"));
    fs::write(folder.join("old-ca.crt"), &before[0]).expect("a file can be written");
    make(folder);
    assert_eq!(authorities(), before);
    assert_ne!(read("metes-signer/tls.crt"), client);
    verify(folder, "old-ca.crt", "sslclient", "metes-signer/tls.crt");
}

/// What is in memory when it is ended is the authority's key.
#[test]
fn no_core_file_holds_the_authoritys_key() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let folder = folder.path();
    make(folder);
    let key = folder.join("metes-ca/tls.key");
    let secret = fs::read(&key).expect("readable");
    fs::remove_file(&key).expect("it is there");
    assert!(Command::new("mkfifo").arg(&key).status().expect("mkfifo runs").success());
    let before = fs::read_dir(folder).expect("a folder").count();
    let program = env!("CARGO_BIN_EXE_metes-install");
    let command = format!(
        "ulimit -c unlimited && \
         exec '{program}' certificates --template template --ca metes-ca --node-ca metes-node-ca --out other \
         --namespace metes-system"
    );
    let mut child = Command::new("sh").args(["-c", &command]).current_dir(folder).spawn().expect("sh runs");
    // Opened when it reads; it waits for the end of the file.
    let mut writer = open_read_fifo(&key);
    writer.write_all(&secret).expect("it can be written");
    let limits = fs::read_to_string(format!("/proc/{}/limits", child.id())).expect("it runs");
    let limit = limits.lines().find(|line| line.starts_with("Max core file size")).expect("it has a limit");
    let zeros = limit.split_whitespace().filter(|word| *word == "0").count();
    kill_process(Pid::from_child(&child), Signal::ABORT).expect("a child can be ended");
    let status = child.wait().expect("it ends");
    assert_eq!(zeros, 2, "{limit}");
    assert_eq!(status.signal(), Some(Signal::ABORT.as_raw()), "{status}");
    assert!(!status.core_dumped(), "it left a core file");
    assert_eq!(fs::read_dir(folder).expect("a folder").count(), before);
}

#[test]
fn an_authority_that_is_not_whole_or_not_there_is_refused() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let folder = folder.path();
    make(folder);
    fs::remove_file(folder.join("out.json")).expect("it is there");
    for file in ["tls.key", "tls.crt"] {
        fs::remove_file(folder.join("metes-ca").join(file)).expect("it is there");
        let output = certificates(folder).output().expect("metes-install runs");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains("cannot read metes-ca/tls.") && !folder.join("out.json").exists(), "{text}");
    }
}
