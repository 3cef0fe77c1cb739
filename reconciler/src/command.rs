//! The subcommands: each prepares what it needs, runs, and reports.

use std::cell::RefCell;
use std::fmt::Display;
use std::process::ExitCode;
use std::time::Duration;

use metes_engine::kv::Failure;
use serde_json::Value;

use crate::adopt::report::AdoptionReport;
use crate::adopt::{self, Adoption, AdoptionError};
use crate::cli::{AdoptArgs, Cli, Command, ImportArgs};
use crate::error::RunError;
use crate::import::report::ImportReport;
use crate::import::{self, Import, ImportError};
use crate::nad::Network;
use crate::once::{Place, fail, kubernetes, print};
use crate::pools;
use crate::view;
use crate::webhook;

/// Carries a subcommand out and reports it.
///
/// # Errors
/// Why it could not begin, in words.
pub async fn run(cli: &Cli, command: &Command) -> Result<ExitCode, String> {
    match command {
        Command::Adopt(args) => adopt(cli, args, &Place::find(cli)?).await,
        Command::ImportWhereabouts(args) => import(cli, args, &Place::find(cli)?).await,
        Command::Webhook(args) => webhook::run(cli, args).await.map(|()| ExitCode::SUCCESS),
        Command::View(args) => view::run(cli, args).await.map(|()| ExitCode::SUCCESS),
    }
}

async fn adopt(cli: &Cli, args: &AdoptArgs, place: &Place) -> Result<ExitCode, String> {
    let (kv, api) = (place.etcd()?, kubernetes(cli).await?);
    let report = RefCell::new(AdoptionReport::new(place.cluster.as_str(), cli.common.dry_run));
    let context = place.context(&kv, &api, &cli.common, cli.common.timeout);
    let unread = |e: Failure| format!("cannot read the pools: {}", RunError::from(e));
    let pools = pools::read(context.session).await.map_err(unread)?;
    let default_network = args.default_network.as_deref().map(|file| Network::read(file, &pools));
    let adoption = Adoption {
        context,
        settings: &place.settings,
        pools: &pools,
        default_network: default_network.transpose()?,
        not_metes: &args.not_metes,
        is_last: (args.last || args.not_last).then_some(args.last),
        report: &report,
    };
    let error = adopt::run(adoption, cli.common.timeout).await.err();
    let mut report = report.into_inner();
    report.aborted = error.as_ref().is_some_and(AdoptionError::is_abort);
    tell(cli, &report, || report.to_json(error.as_ref().map(|e| e as _)), error.as_ref())
}

async fn import(cli: &Cli, args: &ImportArgs, place: &Place) -> Result<ExitCode, String> {
    let (kv, api) = (place.etcd()?, kubernetes(cli).await?);
    let options = cli.import_options(args);
    let timeout = cli.common.timeout + if options.wait { options.settle } else { Duration::ZERO };
    let mut report = ImportReport::new(place.cluster.as_str(), options.step, cli.common.dry_run);
    let import =
        Import { context: place.context(&kv, &api, &cli.common, timeout), options, report: &mut report };
    let error = import::run(import, timeout).await.err();
    report.aborted = error.as_ref().is_some_and(ImportError::is_abort);
    tell(cli, &report, || report.to_json(error.as_ref().map(|e| e as _)), error.as_ref())
}

/// Prints a report, and prints to stderr why the run did not do all that it should.
fn tell(
    cli: &Cli,
    text: &dyn Display,
    json: impl FnOnce() -> Value,
    error: Option<&impl Display>,
) -> Result<ExitCode, String> {
    print(cli, text, json).map_err(|e| e.to_string())?;
    Ok(error.map_or(ExitCode::SUCCESS, |e| fail(&e.to_string())))
}
