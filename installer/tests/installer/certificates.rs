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

const ALL: [&str; 8] = [
    "metes-ca",
    "metes-etcd-server",
    "metes-etcd-peer",
    "metes-node",
    "metes-reconciler",
    "metes-viewer",
    "metes-admin",
    "metes-webhook",
];

/// Runs the program in `folder`, and unpacks each Secret into a folder of its name.
fn make(folder: &Path) -> Vec<String> {
    make_with(folder, &[])
}

fn make_with(folder: &Path, arguments: &[&str]) -> Vec<String> {
    let template = json!({"cluster": "c1", "etcd": {
        "endpoints": ["https://10.0.0.1:12379", "https://[fd00::2]:12379"], "server_name": "etcd.example",
    }});
    fs::write(folder.join("template"), template.to_string()).expect("a file can be written");
    let output = certificates(folder, arguments).output().expect("metes-install runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mode = fs::metadata(folder.join("out.json")).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    let list: Value =
        serde_json::from_slice(&fs::read(folder.join("out.json")).expect("readable")).expect("JSON");
    list["items"].as_array().expect("a list").iter().map(|secret| unpack(folder, secret)).collect()
}

fn certificates(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_metes-install"));
    command.args(["certificates", "--template", "template", "--ca", "metes-ca", "--out", "out.json"]);
    command.args(arguments).env("NAMESPACE", "metes").current_dir(folder);
    command
}

fn unpack(folder: &Path, secret: &Value) -> String {
    assert_eq!(secret["type"], "kubernetes.io/tls");
    assert_eq!(secret["metadata"]["namespace"], "metes");
    let name = secret["metadata"]["name"].as_str().expect("a name").to_owned();
    fs::create_dir_all(folder.join(&name)).expect("a folder can be made");
    for (file, data) in secret["data"].as_object().expect("data") {
        let content = STANDARD.decode(data.as_str().expect("a text")).expect("base64");
        fs::write(folder.join(&name).join(file), content).expect("a file can be written");
    }
    name
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
        ("metes-node", &["sslclient"]),
        ("metes-reconciler", &["sslclient"]),
        ("metes-viewer", &["sslclient"]),
        ("metes-admin", &["sslclient"]),
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
        ("-checkhost", "etcd.metes.svc"),
        ("-checkip", "10.0.0.1"),
        ("-checkip", "fd00::2"),
    ] {
        let text = openssl(folder, &["x509", "-noout", "-in", "metes-etcd-server/tls.crt", option, name]);
        assert!(text.contains("does match"), "{text}");
    }
}

#[test]
fn a_renewal_keeps_the_authority() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let folder = folder.path();
    make(folder);
    let read = |name: &str| fs::read(folder.join(name)).expect("readable");
    let (authority, client) = (read("metes-ca/tls.crt"), read("metes-node/tls.crt"));
    fs::write(folder.join("old-ca.crt"), &authority).expect("a file can be written");
    make(folder);
    assert_eq!(read("metes-ca/tls.crt"), authority);
    assert_ne!(read("metes-node/tls.crt"), client);
    verify(folder, "old-ca.crt", "sslclient", "metes-node/tls.crt");
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
         exec '{program}' certificates --template template --ca metes-ca --out other --namespace metes"
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
fn half_an_authority_is_refused() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    make(folder.path());
    fs::remove_file(folder.path().join("metes-ca/tls.key")).expect("it is there");
    let output = Command::new(env!("CARGO_BIN_EXE_metes-install"))
        .args([
            "certificates",
            "--template",
            "template",
            "--ca",
            "metes-ca",
            "--out",
            "other",
            "--namespace",
            "metes",
        ])
        .current_dir(folder.path())
        .output()
        .expect("metes-install runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(!folder.path().join("other").exists());
}

/// The Job of manifests/ runs at each sync of a GitOps tool: it changes only what is not as it should be.
#[test]
fn good_certificates_are_kept() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let folder = folder.path();
    let keep = ["--keep", "."];
    assert_eq!(make_with(folder, &keep), ALL);
    let authority = fs::read(folder.join("metes-ca/tls.crt")).expect("readable");
    assert_eq!(make_with(folder, &keep), ["metes-ca"]);
    assert_eq!(fs::read(folder.join("metes-ca/tls.crt")).expect("readable"), authority);
    // Half of their time is not left any more, as a longer time shows.
    assert_eq!(make_with(folder, &[&keep[..], &["--days", "800"]].concat()), ALL);
    assert_eq!(make_with(folder, &[&keep[..], &["--days", "800"]].concat()), ["metes-ca"]);
    // Its names are others.
    let made = folder.join("metes-etcd-peer/made.json");
    let mut other: Value = serde_json::from_slice(&fs::read(&made).expect("readable")).expect("JSON");
    other["names"] = json!(["10.0.0.9"]);
    fs::write(&made, other.to_string()).expect("a file can be written");
    fs::write(folder.join("metes-node/made.json"), "half").expect("a file can be written");
    assert_eq!(make_with(folder, &keep), ["metes-ca", "metes-etcd-peer", "metes-node"]);
    // Another authority, by renewing all at once.
    fs::rename(folder.join("metes-ca"), folder.join("old-ca")).expect("it is there");
    assert_eq!(make(folder), ALL, "without it, all are made anew");
}

#[test]
fn an_authority_that_is_gone_is_not_replaced_in_silence() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let folder = folder.path();
    let (made, out) = (folder.join("made"), folder.join("out.json"));
    make(folder);
    fs::remove_dir_all(folder.join("metes-ca")).expect("it is there");
    fs::remove_file(&out).expect("it is there");
    fs::create_dir(&made).expect("a folder can be made");
    for name in ["metes-node", "metes-etcd-server"] {
        fs::rename(folder.join(name), made.join(name)).expect("it is there");
    }
    let refused = |words: &[&str]| {
        let output = certificates(folder, &["--keep", "made"]).output().expect("metes-install runs");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && !out.exists(), "{text}");
        assert!(words.iter().all(|words| text.contains(words)), "{text}");
    };
    let delete = "kubectl -n metes delete secret metes-etcd-server metes-node";
    refused(&["metes-ca is gone", "Restore metes-ca", delete]);
    // Somebody has put another one there.
    let other = tempfile::tempdir().expect("a folder can be made");
    make(other.path());
    fs::rename(other.path().join("metes-ca"), folder.join("metes-ca")).expect("it is there");
    refused(&["metes-ca has another authority", "Restore metes-ca", delete]);
    fs::remove_dir_all(folder.join("metes-ca")).expect("it is there");
    for name in ["metes-node", "metes-etcd-server"] {
        fs::remove_dir_all(made.join(name)).expect("it is there");
    }
    assert_eq!(make_with(folder, &["--keep", "made"]), ALL, "somebody has deleted the Secrets");
}
