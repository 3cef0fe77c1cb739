//! The command line, with an environment variable for each flag.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::import::{ImportOptions, ImportStep};
use crate::pass::PassOptions;
use crate::verdict::Graces;

/// Frees the addresses that metes holds for pods that no longer exist.
///
/// Without a subcommand it makes one pass and exits: 0 when all went well, 1 when something failed,
/// 2 on wrong usage, 3 when there were suspiciously many orphans and nothing was freed. With --listen it stays,
/// and makes a pass again and again.
#[derive(Debug, Parser)]
#[command(name = "metes-reconciler", version)]
pub struct Cli {
    /// Which stores and clusters.
    #[command(flatten)]
    pub common: Common,
    /// How a pass goes about it.
    #[command(flatten)]
    pub pass: PassArgs,
    /// Whether it stays.
    #[command(flatten)]
    pub serve: ServeArgs,
    /// Something else than a pass.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What every command takes.
#[derive(Debug, Args)]
pub struct Common {
    /// The host file: where etcd is, under which prefix, and the name of this cluster.
    #[arg(long, env = "METES_CONF", value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,
    /// How the Kubernetes API is reached; else KUBECONFIG, else the cluster that this runs in.
    #[arg(long, env = "METES_RECONCILER_KUBECONFIG", value_name = "FILE", global = true)]
    pub kubeconfig: Option<PathBuf>,
    /// Write nothing at all; say what would be done.
    #[arg(long, env = "METES_RECONCILER_DRY_RUN", global = true)]
    pub dry_run: bool,
    /// How many objects the API may put into one answer.
    #[arg(long, env = "METES_RECONCILER_PAGE_SIZE", value_name = "N", default_value = "500", global = true,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub page_size: u32,
    /// How long all of it may take.
    #[arg(long, env = "METES_RECONCILER_TIMEOUT", value_name = "DURATION", default_value = "4m", global = true,
          value_parser = humantime::parse_duration)]
    pub timeout: Duration,
    /// How to report.
    #[arg(
        long,
        short,
        env = "METES_RECONCILER_OUTPUT",
        value_name = "FORMAT",
        default_value = "text",
        global = true
    )]
    pub output: Output,
}

/// The form of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Text,
    /// One JSON object.
    Json,
}

/// What a pass takes.
#[derive(Debug, Args)]
pub struct PassArgs {
    /// For how long an owner must have been seen without its pod before it is freed; 0s frees at once.
    #[arg(long, env = "METES_RECONCILER_GRACE", value_name = "DURATION", default_value = "5m",
          value_parser = humantime::parse_duration)]
    pub grace: Duration,
    /// The same where the node is Ready and has not been started anew since, if that is longer: there the runtime may
    /// still end the container and call DEL.
    #[arg(long, env = "METES_RECONCILER_READY_GRACE", value_name = "DURATION", default_value = "1h",
          value_parser = humantime::parse_duration)]
    pub ready_grace: Duration,
    /// The same where Kubernetes has never had the node, if that is longer: it may be of another cluster by this
    /// cluster's name. With --force it is --grace.
    #[arg(long, env = "METES_RECONCILER_UNKNOWN_NODE_GRACE", value_name = "DURATION", default_value = "1d",
          value_parser = humantime::parse_duration)]
    pub unknown_node_grace: Duration,
    /// The same for an owner whose pod has succeeded or failed, wherever its node.
    #[arg(long, env = "METES_RECONCILER_FINISHED_GRACE", value_name = "DURATION", default_value = "1h",
          value_parser = humantime::parse_duration)]
    pub finished_grace: Duration,
    /// Free an owner without a pod (cnitool, podman) after it was seen for so long; not given: never.
    #[arg(long, env = "METES_RECONCILER_UNLABELLED_AFTER", value_name = "DURATION",
          value_parser = humantime::parse_duration)]
    pub unlabelled_after: Option<Duration>,
    /// Free even suspiciously many orphans: more than 50 and more than a fifth of all records.
    #[arg(long, env = "METES_RECONCILER_FORCE")]
    pub force: bool,
    /// Write metrics of each pass into this file, for node-exporter's textfile collector.
    #[arg(long, env = "METES_RECONCILER_METRICS_FILE", value_name = "FILE")]
    pub metrics_file: Option<PathBuf>,
    /// Tell of each freed pod by an Event in its namespace; the API must allow to create events.
    #[arg(long, env = "METES_RECONCILER_EVENTS")]
    pub events: bool,
}

/// What it takes to stay.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Stay, and serve /metrics and /healthz here: ADDRESS:PORT, or :PORT for every address of this machine.
    #[arg(long, env = "METES_RECONCILER_LISTEN", value_name = "ADDRESS")]
    pub listen: Option<Listen>,
    /// With --listen: how often a pass begins, from 1s to 1d.
    #[arg(long, env = "METES_RECONCILER_EVERY", value_name = "DURATION", default_value = "1m", requires = "listen",
          value_parser = every)]
    pub every: Duration,
}

/// The addresses to listen on: the first one that can be used is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen(pub Vec<SocketAddr>);

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = "neither ADDRESS:PORT, [ADDRESS]:PORT nor :PORT";
        let Some(port) = text.strip_prefix(':') else {
            return text.parse().map(|address| Self(vec![address])).map_err(|_| wrong.to_owned());
        };
        let port = port.parse().map_err(|_| wrong.to_owned())?;
        // If the machine has IPv6, its unspecified address serves for both.
        Ok(Self(vec![(Ipv6Addr::UNSPECIFIED, port).into(), (Ipv4Addr::UNSPECIFIED, port).into()]))
    }
}

/// Long enough for etcd's leases, which count whole seconds and live for at least two.
fn every(text: &str) -> Result<Duration, String> {
    let every = humantime::parse_duration(text).map_err(|e| e.to_string())?;
    let fits = (Duration::from_secs(1)..=Duration::from_secs(24 * 3600)).contains(&every);
    if fits { Ok(every) } else { Err("not between 1s and 1d".to_owned()) }
}

/// Something else than a pass.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Writes down what running pods use, after etcd was restored from a backup or lost, and takes the
    /// store into service again.
    Adopt(AdoptArgs),
    /// Takes over what whereabouts has handed out, so that a cluster switches to metes without restarting a
    /// pod: see docs/migration.md.
    ImportWhereabouts(ImportArgs),
}

/// What an adoption takes.
#[derive(Debug, Args)]
pub struct AdoptArgs {
    /// The configuration of the cluster's own network, if its addresses are of metes too: the file that
    /// the nodes have in /etc/cni/net.d. Then pods' own addresses are adopted.
    #[arg(long, env = "METES_RECONCILER_DEFAULT_NETWORK", value_name = "FILE")]
    pub default_network: Option<PathBuf>,
    /// A network that is not of metes, though its definition is gone or lies on the nodes; may be repeated.
    #[arg(long, env = "METES_RECONCILER_NOT_METES", value_name = "NAMESPACE/NAME", value_delimiter = ',')]
    pub not_metes: Vec<String>,
    /// Every other cluster that shares the store has adopted what its pods use: take the store into service.
    #[arg(long)]
    pub last: bool,
    /// Another cluster that shares the store has yet to adopt, and the store has forgotten it: leave it suspect.
    #[arg(long, conflicts_with = "last")]
    pub not_last: bool,
}

/// What an import takes.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// Which part of it.
    #[command(flatten)]
    pub step: StepArgs,
    /// Wait until no whereabouts can be at work any more: until every pod that was there when the
    /// NetworkAttachmentDefinitions were changed has its interfaces, at most 7 minutes.
    #[arg(long, conflicts_with_all = ["begin", "cancel"])]
    pub wait: bool,
    /// End the pause, whatever addresses of running pods could not be taken over.
    #[arg(long = "force", id = "force-import", conflicts_with_all = ["begin", "cancel"])]
    pub force: bool,
    /// For tests, which cannot wait for 7 minutes. An address can be given twice if it is any shorter.
    #[arg(long, hide = true, default_value = "7m", value_name = "DURATION",
          value_parser = humantime::parse_duration)]
    pub settle: Duration,
}

/// Exactly one of them.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct StepArgs {
    /// Pause ADD of metes and take over what there is.
    #[arg(long)]
    pub begin: bool,
    /// After the NetworkAttachmentDefinitions were changed to metes: take over what came since, and end the pause.
    #[arg(long)]
    pub finish: bool,
    /// Give it up: end the pause and take over nothing. What was taken over goes with its pods.
    #[arg(long)]
    pub cancel: bool,
}

impl Cli {
    /// The options of an import.
    #[must_use]
    pub fn import_options(&self, args: &ImportArgs) -> ImportOptions {
        ImportOptions {
            step: match args.step {
                StepArgs { begin: true, .. } => ImportStep::Begin,
                StepArgs { cancel: true, .. } => ImportStep::Cancel,
                StepArgs { .. } => ImportStep::Finish,
            },
            wait: args.wait,
            force: args.force,
            settle: args.settle,
        }
    }

    /// The options of a pass.
    #[must_use]
    pub fn options(&self) -> PassOptions {
        PassOptions {
            graces: Graces {
                gone: self.pass.grace,
                ready: self.pass.ready_grace,
                unknown_node: if self.pass.force { self.pass.grace } else { self.pass.unknown_node_grace },
                finished: self.pass.finished_grace,
                unlabelled: self.pass.unlabelled_after,
            },
            force: self.pass.force,
        }
    }
}
