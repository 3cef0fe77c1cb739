//! One pass with all that it needs, and what is told of it: what a CronJob runs.

use std::cell::RefCell;
use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use metes::config::Settings;
use metes::limits;
use metes::local::files::Trust;
use metes::local::setup;
use metes::pool::names::ClusterName;
use metes::store::keys::Keys;
use metes::store::{self, Store};
use serde_json::Value;
use tokio::time::Instant;

use crate::cli::{Cli, Output};
use crate::events;
use crate::kubernetes::Kubernetes;
use crate::metrics::Metrics;
use crate::pass::{self, Pass, Stop};
use crate::report::Report;

/// What a pass that found suspiciously many orphans exits with.
const BRAKE: u8 = 3;

/// Where passes are at work.
pub struct Place {
    /// What the host file says.
    pub settings: Settings,
    /// The cluster's name.
    pub cluster: ClusterName,
    /// The keys of the store.
    pub keys: Keys,
}

impl Place {
    /// Reads the host file and starts the log.
    ///
    /// # Errors
    /// What is wrong with the host file, in words.
    pub fn find(cli: &Cli) -> Result<Self, String> {
        let settings = setup::own_settings(cli.common.config.as_deref()).map_err(|e| e.to_string())?;
        setup::start_log(None, settings.log_level.as_deref().or(Some("info")));
        settings.notes.iter().for_each(|note| tracing::warn!("{note}"));
        Self::of(settings)
    }

    /// Reads the host file as it is now: it may have been replaced since the log was started.
    ///
    /// # Errors
    /// As [`Place::find`].
    pub fn find_again(cli: &Cli) -> Result<Self, String> {
        setup::own_settings(cli.common.config.as_deref()).map_err(|e| e.to_string()).and_then(Self::of)
    }

    fn of(settings: Settings) -> Result<Self, String> {
        let cluster = cluster_name(&settings)?;
        Ok(Self { cluster, keys: Keys::new(&settings.prefix), settings })
    }

    /// A new connection to etcd. The certificates are read anew each time: they may have been replaced.
    ///
    /// # Errors
    /// What is wrong with a certificate, key or password, in words.
    pub fn etcd(&self) -> Result<Store, String> {
        let access = setup::access(&self.settings, Trust::GroupReads, limits::UNREACHABLE);
        access.map(store::open).map_err(|e| e.to_string())
    }
}

/// Without a name of its own a cluster cannot tell its records from others'.
fn cluster_name(settings: &Settings) -> Result<ClusterName, String> {
    settings.cluster.clone().ok_or_else(|| {
        "the host file names no cluster: set `cluster`, on the nodes too, so that each record is stamped with it"
            .to_owned()
    })
}

/// Why a pass did not do all that it should.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// It did not even begin: something on this machine cannot be used.
    #[error("{0}")]
    Setup(String),
    /// It ended early.
    #[error(transparent)]
    Stop(#[from] Stop),
}

metes::named_enum! {
    /// How a pass ended. Metrics name these.
    pub enum Outcome {
        /// All was done.
        Success = "success",
        /// A migration is under way, so nothing was to be done.
        Paused = "paused",
        /// Suspiciously many orphans: nothing was freed.
        Brake = "brake",
        /// It failed.
        Failure = "failure",
    }
}

/// A pass that has ended.
#[derive(Debug)]
pub struct Ended {
    /// What came of it.
    pub report: Report,
    /// Why it did not do all that it should.
    pub trouble: Option<Trouble>,
    /// How long it took.
    pub took: Duration,
    /// When it ended.
    pub at: SystemTime,
}

impl Ended {
    /// One that could not begin.
    #[must_use]
    pub fn before_it_began(trouble: Trouble) -> Self {
        Self {
            report: Report::default(),
            trouble: Some(trouble),
            took: Duration::ZERO,
            at: SystemTime::now(),
        }
    }

    /// How it ended.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match &self.trouble {
            None if self.report.held.is_some() => Outcome::Paused,
            None => Outcome::Success,
            Some(Trouble::Stop(Stop::Brake { .. })) => Outcome::Brake,
            Some(_) => Outcome::Failure,
        }
    }
}

/// Makes a pass.
pub async fn pass(place: &Place, cli: &Cli) -> Ended {
    let began = Instant::now();
    let report = RefCell::new(Report::new(place.cluster.as_str(), cli.common.dry_run));
    let trouble = try_pass(place, cli, &report).await.err();
    let mut report = report.into_inner();
    // These two come after everything was looked at.
    report.aborted = trouble
        .as_ref()
        .is_some_and(|why| !matches!(why, Trouble::Stop(Stop::Brake { .. } | Stop::Refused { .. })));
    Ended { report, trouble, took: began.elapsed(), at: SystemTime::now() }
}

async fn try_pass(place: &Place, cli: &Cli, report: &RefCell<Report>) -> Result<(), Trouble> {
    let kv = place.etcd().map_err(Trouble::Setup)?;
    let api = kubernetes(cli).await.map_err(Trouble::Setup)?;
    let pass = Pass {
        kv: &kv,
        keys: &place.keys,
        cluster: &place.cluster,
        api: &api,
        options: cli.options(),
        until: Instant::now() + cli.common.timeout,
        report,
    };
    let ended = pass::run(pass, cli.common.timeout).await;
    if cli.pass.events && !cli.common.dry_run {
        let freed = report.borrow().freed.clone();
        events::tell(&api, &freed).await;
    }
    Ok(ended?)
}

/// Makes one pass and reports it.
///
/// # Errors
/// [`io::Error`] if nobody takes the report.
pub async fn run(cli: &Cli) -> io::Result<ExitCode> {
    let ended = match Place::find(cli) {
        Ok(place) => pass(&place, cli).await,
        Err(why) => Ended::before_it_began(Trouble::Setup(why)),
    };
    if let Some(path) = &cli.pass.metrics_file {
        Metrics::of_one_pass(&ended).write(path);
    }
    let stop = match &ended.trouble {
        Some(Trouble::Setup(why)) => return Ok(fail(why)),
        Some(Trouble::Stop(stop)) => Some(stop),
        None => None,
    };
    print(cli, &ended.report, || ended.report.to_json(stop))?;
    let failed = stop.map(|why| fail(&why.to_string()));
    Ok(match ended.outcome() {
        Outcome::Brake => ExitCode::from(BRAKE),
        _ => failed.unwrap_or(ExitCode::SUCCESS),
    })
}

/// The Kubernetes API that the command line names.
///
/// # Errors
/// Why it cannot be used, in words.
pub async fn kubernetes(cli: &Cli) -> Result<Kubernetes, String> {
    let api = Kubernetes::new(cli.common.kubeconfig.as_deref(), cli.common.page_size).await;
    api.map_err(|e| e.to_string())
}

/// Prints a report in the form that was asked for.
///
/// # Errors
/// [`io::Error`] if nobody takes it.
pub fn print(cli: &Cli, text: &dyn Display, json: impl FnOnce() -> Value) -> io::Result<()> {
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
    // Where stderr is closed nobody listens.
    let _ = writeln!(io::stderr(), "metes-reconciler: {why}");
    ExitCode::FAILURE
}
