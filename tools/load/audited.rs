//! What must be true of the store at the end.

use std::collections::BTreeSet;
use std::net::IpAddr;

use metes_audit::audit;
use metes_core::keys::Keys;
use metes_core::limits;
use metes_engine::session::Session;
use metes_etcd::client::Etcd;
use tokio::time::Instant;

/// The violations that the audit of the whole tree finds.
pub(crate) async fn violations(kv: &Etcd, prefix: &str) -> Vec<String> {
    let keys = Keys::new(prefix);
    let session = Session { kv, keys: &keys, until: Instant::now() + limits::CLI_DEADLINE };
    let report = audit(session).await.expect("the tree can be read");
    report.violations.iter().map(|finding| format!("{}: {}", finding.key_text(), finding.what)).collect()
}

/// The number of addresses that two or more hold, counted once for each holder after the first.
pub(crate) fn doubles<'a>(held: impl Iterator<Item = &'a (String, IpAddr)>) -> usize {
    let mut seen = BTreeSet::new();
    held.filter(|&held| !seen.insert(held)).count()
}
