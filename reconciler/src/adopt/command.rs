//! `metes-reconciler adopt`, from the command line to a report.

use std::cell::RefCell;
use std::io::{self, Write};
use std::process::ExitCode;

use tokio::time::Instant;

use super::report::Report;
use super::{Adoption, adopt};
use crate::cli::{AdoptArgs, Cli, Output};
use crate::kubernetes::Kubernetes;
use crate::nad::Network;
use crate::once::{Place, fail};

/// Adopts and reports.
///
/// # Errors
/// Why it could not begin, or that nobody takes the report, in words.
pub async fn run(cli: &Cli, args: &AdoptArgs) -> Result<ExitCode, String> {
    let place = Place::find(cli)?;
    let kv = place.etcd()?;
    let api = Kubernetes::new(cli.common.kubeconfig.as_deref(), cli.common.page_size);
    let api = api.await.map_err(|e| e.to_string())?;
    let report = RefCell::new(Report::new(&place.cluster, cli.common.dry_run));
    let adoption = Adoption {
        kv: &kv,
        keys: &place.keys,
        cluster: &place.cluster,
        api: &api,
        dry_run: cli.common.dry_run,
        default_network: args.default_network.as_deref().map(Network::read).transpose()?,
        not_metes: &args.not_metes,
        until: Instant::now() + cli.common.timeout,
        report: &report,
    };
    let stop = adopt(adoption, cli.common.timeout).await.err();
    let report = report.into_inner();
    let text = match cli.common.output {
        Output::Text => report.to_string(),
        Output::Json => format!("{:#}\n", report.to_json(stop.as_ref())),
    };
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|e| e.to_string())?;
    Ok(stop.map_or(ExitCode::SUCCESS, |why| fail(&why.to_string())))
}
