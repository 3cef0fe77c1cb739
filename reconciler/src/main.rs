//! The program: from the command line to an exit code.

use std::cell::RefCell;
use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use metes::config::Settings;
use metes::limits;
use metes::local::files::Trust;
use metes::local::setup;
use metes::store::etcd::Etcd;
use metes::store::keys::Keys;
use metes_reconciler::adopt::{self, Adoption};
use metes_reconciler::cli::{Cli, Command, Output};
use metes_reconciler::import::{self, Import};
use metes_reconciler::kubernetes::Kubernetes;
use metes_reconciler::nad::Network;
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
    if let Some(Command::Adopt(args)) = &cli.command {
        let report = RefCell::new(adopt::report::Report::new(&cluster, cli.common.dry_run));
        let adoption = Adoption {
            kv: &kv,
            keys: &keys,
            cluster: &cluster,
            api: &api,
            dry_run: cli.common.dry_run,
            default_network: args.default_network.as_deref().map(Network::read).transpose()?,
            not_metes: &args.not_metes,
            until: Instant::now() + cli.common.timeout,
            report: &report,
        };
        let ended = adopt::run(adoption, cli.common.timeout).await;
        let (stop, report) = (ended.as_ref().err(), report.into_inner());
        print(cli, &report, || report.to_json(stop))?;
        return Ok(stop.map_or(ExitCode::SUCCESS, |why| fail(&why.to_string())));
    }
    if let Some(Command::ImportWhereabouts(args)) = &cli.command {
        let options = cli.import_options(args);
        let timeout = cli.common.timeout + if options.wait { options.settle } else { Duration::ZERO };
        let mut report = import::report::Report::new(&cluster, options.step, cli.common.dry_run);
        let import = Import {
            kv: &kv,
            keys: &keys,
            cluster: &cluster,
            api: &api,
            options,
            until: Instant::now() + timeout,
            report: &mut report,
        };
        let ended = import::run(import, timeout).await;
        let stop = ended.as_ref().err();
        print(cli, &report, || report.to_json(stop))?;
        return Ok(stop.map_or(ExitCode::SUCCESS, |why| fail(&why.to_string())));
    }
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
    print(cli, &report, || report.to_json(stop))?;
    Ok(match stop {
        None => ExitCode::SUCCESS,
        Some(why) => {
            let failed = fail(&why.to_string());
            if matches!(why, Stop::Brake { .. }) { ExitCode::from(BRAKE) } else { failed }
        }
    })
}

fn print(cli: &Cli, text: &impl Display, json: impl FnOnce() -> serde_json::Value) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match cli.common.output {
        Output::Text => write!(out, "{text}")?,
        Output::Json => writeln!(out, "{:#}", json())?,
    }
    out.flush()
}

/// Without a name of its own a cluster cannot tell its records from others'.
fn cluster_name(settings: &Settings) -> Result<String, String> {
    settings.cluster.clone().ok_or_else(|| {
        "the host file names no cluster: set `cluster`, on the nodes too, so that each record is stamped with it"
            .to_owned()
    })
}
