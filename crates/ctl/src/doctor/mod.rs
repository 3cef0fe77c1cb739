//! `metes doctor`: what is wrong with how this node reaches and uses its store, and what to do about it.
//!
//! - `facts`: what may be seen; pure. `node` and `etcd` look, and stop at nothing that fails.
//! - `judge`, with `about_*`: from facts to lines; pure. `line`: a line, and how it is printed; pure.

mod about_certificates;
mod about_etcd;
mod about_node;
mod etcd;
mod facts;
mod judge;
mod line;
mod node;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::output::Output;
use super::{CliError, Terminal};
pub(super) use about_etcd::{NO_USERS, NO_USERS_REMEDY};
use facts::{DoctorFacts, EtcdFacts};
use line::{Diagnosis, Verdict};
use metes_core::limits;

/// Prints all that is wrong. Exit code 1 if anything is.
pub(super) async fn doctor(
    (config, endpoints): (Option<&Path>, &[String]),
    timeout: Option<Duration>,
    output: &Output,
    terminal: &mut Terminal<'_>,
) -> Result<ExitCode, CliError> {
    let facts = look(config, endpoints, timeout.unwrap_or(limits::DOCTOR_DEADLINE)).await;
    let diagnosis = Diagnosis::of(judge::judge(&facts));
    let screen = terminal.screen;
    terminal.document(&diagnosis, output.format, || diagnosis.words(screen))?;
    Ok(if diagnosis.verdict == Verdict::Bad { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn look(config: Option<&Path>, endpoints: &[String], most: Duration) -> DoctorFacts {
    let (host_file, settings) = node::host_file(config, endpoints);
    let now = SystemTime::now();
    let mut facts = DoctorFacts {
        now: now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        user: rustix::process::geteuid().as_raw(),
        host_file,
        files: Vec::new(),
        certificates: Vec::new(),
        etcd: EtcdFacts::Unknown,
        node: None,
    };
    let Some((settings, may_ask)) = settings else { return facts };
    (facts.files, facts.certificates) = node::named_files(&settings);
    let node = node::node(&settings, now);
    let (etcd, shown) = etcd::ask(&settings, may_ask, &node, most).await;
    facts.certificates.extend(shown);
    (facts.etcd, facts.node) = (etcd, Some(node));
    facts
}
