//! `metes-reconciler`: frees the addresses that metes holds for pods that no longer exist.
//!
//! So far it lists what it would look at: every owner in the store, as one line of JSON each. It
//! frees nothing.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use metes::audit::walk::walk;
use metes::limits;
use metes::local::setup;
use metes::pool::record::{OwnerRecord, Record};
use metes::store::etcd::Etcd;
use metes::store::keys::{Key, Keys};
use metes::store::txn::Entry;
use serde_json::{Value, json};
use tokio::time::Instant;

/// Frees the addresses that metes holds for pods that no longer exist.
///
/// This version frees nothing yet: it lists the owners that it would look at, one JSON object a line.
#[derive(Debug, Parser)]
#[command(name = "metes-reconciler", version)]
struct Cli {
    /// The host file: where etcd is, and under which prefix.
    #[arg(long, env = "METES_CONF", value_name = "FILE")]
    config: Option<PathBuf>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match list(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            // Where stderr is closed nobody listens.
            let _ = writeln!(io::stderr(), "metes-reconciler: {e}");
            ExitCode::FAILURE
        }
    }
}

fn list(cli: &Cli) -> Result<(), Box<dyn std::error::Error>> {
    let settings = setup::own_settings(cli.config.as_deref())?;
    setup::start_log(None, settings.log_level.as_deref());
    let kv = Etcd::new(setup::access(&settings, limits::UNREACHABLE)?);
    let keys = Keys::new(&settings.prefix);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let until = Instant::now() + limits::CLI_DEADLINE;
    let see = |lines: &mut Vec<Value>, entry: Entry| lines.extend(line(&keys, &entry));
    let (lines, _) = runtime.block_on(walk(&kv, &keys.owners(), until, Vec::new, see))?;
    let mut out = io::stdout().lock();
    for line in lines {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// What there is to know of one owner. A record that does not decode counts as held.
fn line(keys: &Keys, entry: &Entry) -> Option<Value> {
    let Ok(Key::Own(owner)) = keys.parse(&entry.key) else { return None };
    let record = OwnerRecord::decode(&entry.value);
    let (addresses, pod) = match &record {
        Ok(record) => (json!(record.addresses), json!(record.labels.pod)),
        Err(why) => (json!(why.to_string()), Value::Null),
    };
    Some(json!({
        "node": owner.node,
        "container_id": owner.container_id,
        "ifname": owner.ifname,
        "addresses": addresses,
        "pod": pod,
    }))
}
