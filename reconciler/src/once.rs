//! One pass, with all that it needs, and its report: the work of a CronJob.

use std::cell::RefCell;
use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use metes_config::Settings;
use metes_config::settings::LogLevel;
use metes_core::keys::Keys;
use metes_core::limits;
use metes_core::pool::ClusterName;
use metes_engine::session::Session;
use metes_etcd::{self, Store};
use metes_node::files::Trust;
use metes_node::setup;
use serde_json::Value;
use tokio::time::Instant;

use crate::cli::{Cli, Common, Output};
use crate::context::Context;
use crate::ended::{Ended, PassOutcome, Trouble};
use crate::events;
use crate::kubernetes::Kubernetes;
use crate::last_pass;
use crate::pass::{self, Pass, PassError};
use crate::report::PassReport;

/// The exit code of a pass that found suspiciously many orphans.
const BRAKE: u8 = 3;

/// The store and the cluster that passes work on.
pub(crate) struct Place {
    /// The content of the host file.
    pub(crate) settings: Settings,
    pub(crate) cluster: ClusterName,
    pub(crate) keys: Keys,
}

impl Place {
    /// Reads the host file and starts the log.
    ///
    /// # Errors
    /// The fault of the host file, in words.
    pub(crate) fn find(cli: &Cli) -> Result<Self, String> {
        let settings = setup::own_settings(cli.common.config.as_deref()).map_err(|e| e.to_string())?;
        setup::start_log(None, settings.log_level.unwrap_or(LogLevel::Info));
        settings.notes.iter().for_each(|note| tracing::warn!("{note}"));
        Self::of(settings)
    }

    /// Reads the host file as it is now. It may have been replaced since the log was started.
    ///
    /// # Errors
    /// Like [`Place::find`].
    pub(crate) fn find_again(cli: &Cli) -> Result<Self, String> {
        setup::own_settings(cli.common.config.as_deref()).map_err(|e| e.to_string()).and_then(Self::of)
    }

    fn of(settings: Settings) -> Result<Self, String> {
        let cluster = settings.cluster.clone().ok_or(
            "the host file (--config, METES_CONF) has no `cluster`: set it, on the nodes too, so that each record is \
             stamped with it",
        )?;
        Ok(Self { cluster, keys: Keys::new(&settings.prefix), settings })
    }

    /// The context of a run that begins now and may take `timeout`.
    pub(crate) fn context<'a, A>(
        &'a self,
        kv: &'a Store,
        api: &'a A,
        common: &Common,
        timeout: Duration,
    ) -> Context<'a, Store, A> {
        let session = Session { kv, keys: &self.keys, until: Instant::now() + timeout };
        Context { session, cluster: &self.cluster, api, dry_run: common.dry_run }
    }

    /// A new connection to etcd. The certificates are read again each time, because they may have been replaced.
    ///
    /// # Errors
    /// The fault of a certificate, key or password, in words.
    pub(crate) fn etcd(&self) -> Result<Store, String> {
        let access = setup::access(&self.settings, Trust::GroupReads, limits::UNREACHABLE);
        access.map(metes_etcd::open).map_err(|e| e.to_string())
    }
}

pub(crate) async fn pass(place: &Place, cli: &Cli) -> Ended {
    let began = Instant::now();
    let mut report = PassReport::new(place.cluster.as_str(), cli.common.dry_run);
    report.certificates = place.settings.tls.as_ref().map(setup::certificate_ends).unwrap_or_default();
    let report = RefCell::new(report);
    let kv = place.etcd().map_err(Trouble::Setup);
    let trouble = match &kv {
        Ok(kv) => try_pass(place, cli, kv, &report).await.err(),
        Err(why) => Some(why.clone()),
    };
    let mut report = report.into_inner();
    // All other errors come after the pass has looked at everything.
    report.aborted = matches!(trouble, Some(Trouble::Setup(_) | Trouble::Pass(PassError::Run(_))));
    let ended = Ended { report, trouble, took: began.elapsed(), at: SystemTime::now() };
    if let (Ok(kv), false) = (&kv, cli.common.dry_run) {
        let session = Session { kv, keys: &place.keys, until: Instant::now() + limits::UNREACHABLE };
        last_pass::leave(session, &place.cluster, &ended).await;
    }
    ended
}

async fn try_pass(place: &Place, cli: &Cli, kv: &Store, report: &RefCell<PassReport>) -> Result<(), Trouble> {
    let api = kubernetes(cli).await.map_err(Trouble::Setup)?;
    let pass = Pass {
        context: place.context(kv, &api, &cli.common, cli.common.timeout),
        options: cli.options(),
        settings: Some(&place.settings),
        report,
    };
    let ended = pass::run(pass, cli.common.timeout).await;
    if cli.pass.events && !cli.common.dry_run {
        let (freed, lacking) = (report.borrow().freed.clone(), report.borrow().lacking.certain.clone());
        events::tell(&api, &lacking, &freed).await;
    }
    Ok(ended?)
}

/// Makes one pass and reports it.
///
/// # Errors
/// [`io::Error`] if the report cannot be written.
pub async fn run(cli: &Cli) -> io::Result<ExitCode> {
    let ended = match Place::find(cli) {
        Ok(place) => pass(&place, cli).await,
        Err(why) => Ended::before_it_began(Trouble::Setup(why)),
    };
    let error = match &ended.trouble {
        Some(Trouble::Setup(why)) => return Ok(fail(why)),
        Some(Trouble::Pass(e)) => Some(e as &dyn Display),
        None => None,
    };
    print(cli, &ended.report, || ended.report.to_json(error))?;
    let failed = error.map(|e| fail(&e.to_string()));
    Ok(match ended.outcome() {
        PassOutcome::Brake => ExitCode::from(BRAKE),
        _ => failed.unwrap_or(ExitCode::SUCCESS),
    })
}

/// The Kubernetes API that the command line names.
///
/// # Errors
/// Why it cannot be used, in words.
pub(crate) async fn kubernetes(cli: &Cli) -> Result<Kubernetes, String> {
    let api = Kubernetes::new(cli.common.kubeconfig.as_deref(), cli.common.page_size).await;
    api.map_err(|e| e.to_string())
}

/// Prints a report in the requested form.
///
/// # Errors
/// [`io::Error`] if it cannot be written.
pub(crate) fn print(cli: &Cli, text: &dyn Display, json: impl FnOnce() -> Value) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match cli.common.output {
        Output::Text => write!(out, "{text}")?,
        Output::Json => writeln!(out, "{:#}", json())?,
    }
    out.flush()
}

/// Says on stderr why this program fails.
#[must_use]
pub fn fail(why: &str) -> ExitCode {
    // If stderr is closed, nobody reads it.
    let _ = writeln!(io::stderr(), "metes-reconciler: {why}");
    ExitCode::FAILURE
}
