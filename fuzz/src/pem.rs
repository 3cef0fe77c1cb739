//! The files that a host file names: certificates, a key, a password. They are read as a run reads them, and handed to
//! TLS. The first byte says which file the other bytes are the content of.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use metes_config::{HostFile, Settings};
use metes_core::txn::{Op, Txn};
use metes_engine::kv::Kv;
use metes_etcd::client::Etcd;
use metes_node::files::Trust;
use metes_node::setup;
use serde_json::json;
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

use super::config::check_error;

const FILES: [&str; 4] = ["ca", "cert", "key", "password"];
/// Well framed, and no certificate at all.
const OTHERS: [&str; 4] = [
    "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n",
    "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n",
    "-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n",
    "secret",
];
/// Too short for a second attempt.
const PATIENCE: Duration = Duration::from_millis(20);
/// A shorter line may occur in any text by chance.
const TELLING: usize = 16;

thread_local! {
    static RUNTIME: Runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
}

pub(super) fn pem(data: &[u8]) {
    let (which, content) =
        data.split_first().map_or((0, data), |(first, rest)| (usize::from(*first) % 4, rest));
    let folder = tempfile::tempdir().expect("a folder");
    for (at, name) in FILES.iter().enumerate() {
        put(&folder.path().join(name), if at == which { content } else { OTHERS[at].as_bytes() });
    }
    // Nobody is about to replace a file, and no etcd is tried twice.
    let access = setup::access(&settings(folder.path()), Trust::OwnerReads, Duration::ZERO);
    let failure = match access {
        Ok(access) => RUNTIME.with(|runtime| runtime.block_on(ask(Etcd::new(access)))),
        Err(e) => {
            check_error(&e);
            e.to_string()
        }
    };
    check_says_nothing(content, &failure);
}

/// Nobody listens there, so each case ends in an error, at the latest when it connects.
async fn ask(etcd: Etcd) -> String {
    let txn = Txn { then: vec![Op::Get(b"/metes/v1/meta".to_vec())], ..Txn::default() };
    let asked = etcd.txn(&txn, Instant::now() + PATIENCE).await;
    asked.expect_err("nobody listens there").to_string()
}

fn settings(folder: &Path) -> Settings {
    let path = |name: &str| folder.join(name);
    let file = json!({"etcd": {
        "endpoints": ["https://127.0.0.1:1"],
        "ca_file": path("ca"), "cert_file": path("cert"), "key_file": path("key"),
        "username": "u", "password_file": path("password"),
    }});
    HostFile::parse(file.to_string().as_bytes()).and_then(Settings::from_host).expect("a host file")
}

fn put(path: &Path, content: &[u8]) {
    fs::write(path, content).expect("a file");
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("its mode");
}

/// No line of a file that may be a key or a password is repeated.
fn check_says_nothing(content: &[u8], text: &str) {
    let lines = content.split(|byte| matches!(byte, b'\n' | b'\r')).filter(|line| line.len() >= TELLING);
    for line in lines.filter_map(|line| std::str::from_utf8(line).ok()) {
        assert!(!text.contains(line.trim()) || line.trim().len() < TELLING, "{line:?} is repeated: {text}");
    }
}
