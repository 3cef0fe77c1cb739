//! The program: from the command line to an exit code.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use metes::config::Settings;
use metes::limits;
use metes::local::files::Trust;
use metes::local::setup;
use metes::store::etcd::Etcd;
use metes::store::keys::Keys;
use metes_reconciler::cli::{Cli, Output};
use metes_reconciler::kubernetes::Kubernetes;
use metes_reconciler::pass::{self, Pass, Stop};
use metes_reconciler::report::Report;
use tokio::time::Instant;

/// What a pass that found suspiciously many orphans exits with.
const BRAKE: u8 = 3;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => return fail(&e.to_string()),
    };
    match runtime.block_on(run(&cli)) {
        Ok(code) => code,
        Err(e) => fail(&e.to_string()),
    }
}

fn fail(why: &str) -> ExitCode {
    // Where stderr is closed nobody listens.
    let _ = writeln!(io::stderr(), "metes-reconciler: {why}");
    ExitCode::FAILURE
}

async fn run(cli: &Cli) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let settings = setup::own_settings(cli.common.config.as_deref())?;
    setup::start_log(None, settings.log_level.as_deref().or(Some("info")));
    settings.notes.iter().for_each(|note| tracing::warn!("{note}"));
    let cluster = cluster_name(&settings)?;
    let kv = Etcd::new(setup::access(&settings, Trust::GroupReads, limits::UNREACHABLE)?);
    let keys = Keys::new(&settings.prefix);
    let api = Kubernetes::new(cli.common.kubeconfig.as_deref(), cli.common.page_size).await?;
    let mut report = Report::new(&cluster, cli.common.dry_run);
    let pass = Pass {
        kv: &kv,
        keys: &keys,
        cluster: &cluster,
        api: &api,
        options: cli.options(),
        until: Instant::now() + cli.common.timeout,
        report: &mut report,
    };
    let ended = pass::run(pass, cli.common.timeout).await;
    let stop = ended.as_ref().err();
    let mut out = io::stdout().lock();
    match cli.common.output {
        Output::Text => write!(out, "{report}")?,
        Output::Json => writeln!(out, "{:#}", report.to_json(stop))?,
    }
    out.flush()?;
    Ok(match stop {
        None => ExitCode::SUCCESS,
        Some(why) => {
            let failed = fail(&why.to_string());
            if matches!(why, Stop::Brake { .. }) { ExitCode::from(BRAKE) } else { failed }
        }
    })
}

/// Without a name of its own a cluster cannot tell its records from others'.
fn cluster_name(settings: &Settings) -> Result<String, String> {
    settings.cluster.clone().ok_or_else(|| {
        "the host file names no cluster: set `cluster`, on the nodes too, so that each record is stamped with it"
            .to_owned()
    })
}
