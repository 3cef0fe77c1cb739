//! The subcommands: each with all that it needs, and what is told of it.

use std::cell::RefCell;
use std::fmt::Display;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::adopt::{self, Adoption};
use crate::cli::{AdoptArgs, Cli, Command, ImportArgs};
use crate::import::{self, Import};
use crate::nad::Network;
use crate::once::{Place, fail, kubernetes, print};

/// Carries a subcommand out and reports it.
///
/// # Errors
/// Why it did not even begin, in words.
pub async fn run(cli: &Cli, command: &Command) -> Result<ExitCode, String> {
    let place = Place::find(cli)?;
    match command {
        Command::Adopt(args) => adopt(cli, args, &place).await,
        Command::ImportWhereabouts(args) => import(cli, args, &place).await,
    }
}

async fn adopt(cli: &Cli, args: &AdoptArgs, place: &Place) -> Result<ExitCode, String> {
    let (kv, api) = (place.etcd()?, kubernetes(cli).await?);
    let report = RefCell::new(adopt::report::Report::new(place.cluster.as_str(), cli.common.dry_run));
    let adoption = Adoption {
        kv: &kv,
        keys: &place.keys,
        cluster: &place.cluster,
        api: &api,
        settings: &place.settings,
        dry_run: cli.common.dry_run,
        default_network: args.default_network.as_deref().map(Network::read).transpose()?,
        not_metes: &args.not_metes,
        is_last: (args.last || args.not_last).then_some(args.last),
        until: Instant::now() + cli.common.timeout,
        report: &report,
    };
    let stop = adopt::run(adoption, cli.common.timeout).await.err();
    let mut report = report.into_inner();
    report.aborted = stop.as_ref().is_some_and(adopt::Stop::is_abort);
    tell(cli, &report, || report.to_json(stop.as_ref()), stop.as_ref())
}

async fn import(cli: &Cli, args: &ImportArgs, place: &Place) -> Result<ExitCode, String> {
    let (kv, api) = (place.etcd()?, kubernetes(cli).await?);
    let options = cli.import_options(args);
    let timeout = cli.common.timeout + if options.wait { options.settle } else { Duration::ZERO };
    let mut report = import::report::Report::new(place.cluster.as_str(), options.step, cli.common.dry_run);
    let import = Import {
        kv: &kv,
        keys: &place.keys,
        cluster: &place.cluster,
        api: &api,
        options,
        until: Instant::now() + timeout,
        report: &mut report,
    };
    let stop = import::run(import, timeout).await.err();
    report.aborted = stop.as_ref().is_some_and(import::Stop::is_abort);
    tell(cli, &report, || report.to_json(stop.as_ref()), stop.as_ref())
}

/// Prints a report, and on stderr why it is not all that was wanted.
fn tell(
    cli: &Cli,
    text: &dyn Display,
    json: impl FnOnce() -> Value,
    stop: Option<&impl Display>,
) -> Result<ExitCode, String> {
    print(cli, text, json).map_err(|e| e.to_string())?;
    Ok(stop.map_or(ExitCode::SUCCESS, |why| fail(&why.to_string())))
}
