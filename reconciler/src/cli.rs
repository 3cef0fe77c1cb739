//! The command line, with an environment variable for each flag.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::import::{ImportOptions, ImportStep};
use crate::listen::Listen;
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
    pub(crate) common: Common,
    /// How a pass goes about it.
    #[command(flatten)]
    pub(crate) pass: PassArgs,
    /// Whether it stays.
    #[command(flatten)]
    pub serve: ServeArgs,
    /// Something else than a pass.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What every command takes.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// The host file: where etcd is, under which prefix, and the name of this cluster.
    // An empty variable is as good as none.
    #[arg(long, env = "METES_CONF", value_name = "FILE", global = true,
          value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub(crate) config: Option<PathBuf>,
    /// A kubeconfig, which says how to reach the Kubernetes API; else KUBECONFIG, else the cluster that this runs in.
    #[arg(long, env = "METES_RECONCILER_KUBECONFIG", value_name = "FILE", global = true)]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Write nothing; only say what would be done.
    #[arg(long, env = "METES_RECONCILER_DRY_RUN", global = true)]
    pub(crate) dry_run: bool,
    /// How many objects the API may put into one answer.
    #[arg(long, env = "METES_RECONCILER_PAGE_SIZE", value_name = "N", default_value = "500", global = true,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) page_size: u32,
    /// How long the whole command may take.
    #[arg(long, env = "METES_RECONCILER_TIMEOUT", value_name = "DURATION", default_value = "4m", global = true,
          value_parser = duration)]
    pub(crate) timeout: Duration,
    /// How to report.
    #[arg(
        long,
        short,
        env = "METES_RECONCILER_OUTPUT",
        value_name = "FORMAT",
        default_value = "text",
        global = true
    )]
    pub(crate) output: Output,
}

/// The form of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    Text,
    /// One JSON object.
    Json,
}

/// What a pass takes.
#[derive(Debug, Args)]
pub(crate) struct PassArgs {
    /// How long an owner must have been without its pod before it is freed; 0s frees at once.
    #[arg(long, env = "METES_RECONCILER_GRACE", value_name = "DURATION", default_value = "5m",
          value_parser = duration)]
    pub(crate) grace: Duration,
    /// The same if the node is Ready and has not rebooted since, if that is longer: the runtime may still end the
    /// container and call DEL.
    #[arg(long, env = "METES_RECONCILER_READY_GRACE", value_name = "DURATION", default_value = "1h",
          value_parser = duration)]
    pub(crate) ready_grace: Duration,
    /// The same if Kubernetes has never had the node, if that is longer: the node may belong to another cluster with
    /// the name of this one. With --force it is --grace.
    #[arg(long, env = "METES_RECONCILER_UNKNOWN_NODE_GRACE", value_name = "DURATION", default_value = "1d",
          value_parser = duration)]
    pub(crate) unknown_node_grace: Duration,
    /// The same for an owner whose pod has succeeded or failed, on any node.
    #[arg(long, env = "METES_RECONCILER_FINISHED_GRACE", value_name = "DURATION", default_value = "1h",
          value_parser = duration)]
    pub(crate) finished_grace: Duration,
    /// Free an owner that belongs to no pod (cnitool, podman) after this time; the default is never.
    #[arg(long, env = "METES_RECONCILER_UNLABELLED_AFTER", value_name = "DURATION",
          value_parser = duration)]
    pub(crate) unlabelled_after: Option<Duration>,
    /// Delete a machine's own key after Kubernetes has not had its node for this time, if the machine holds nothing.
    #[arg(long, env = "METES_RECONCILER_MACHINE_GRACE", value_name = "DURATION", default_value = "30d",
          value_parser = duration)]
    pub(crate) machine_grace: Duration,
    /// Free even suspiciously many orphans: more than 50 and more than a fifth of all records.
    #[arg(long, env = "METES_RECONCILER_FORCE")]
    pub(crate) force: bool,
    /// Create an Event in the namespace of each freed pod; needs the right to create events.
    #[arg(long, env = "METES_RECONCILER_EVENTS")]
    pub(crate) events: bool,
}

/// What it takes to stay.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Keep running, and serve /metrics and /healthz here: ADDRESS:PORT, or :PORT for every address of this machine.
    #[arg(long, env = "METES_RECONCILER_LISTEN", value_name = "ADDRESS")]
    pub listen: Option<Listen>,
    /// With --listen: how often a pass begins, from 1s to 1d.
    #[arg(long, env = "METES_RECONCILER_EVERY", value_name = "DURATION", default_value = "1m", requires = "listen",
          value_parser = every)]
    pub(crate) every: Duration,
}

fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|_| "expected a duration, such as 30s, 5m or 1h 30m".to_owned())
}

/// Long enough for etcd's leases, which count whole seconds and live for at least two.
fn every(text: &str) -> Result<Duration, String> {
    let every = duration(text)?;
    let fits = (Duration::from_secs(1)..=Duration::from_secs(24 * 3600)).contains(&every);
    if fits { Ok(every) } else { Err("not between 1s and 1d".to_owned()) }
}

/// Something else than a pass.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// After etcd was restored from a backup or lost: reserves what running pods use, and takes the store into
    /// service again.
    Adopt(AdoptArgs),
    /// Takes over the addresses that whereabouts has given out, so that a cluster switches to metes without
    /// restarting a pod: see docs/migration.md.
    ImportWhereabouts(ImportArgs),
    /// Judges NetworkAttachmentDefinitions when they are written to the Kubernetes API: refuses what the plugin would
    /// refuse, and warns of what is odd. See docs/validate.md.
    Webhook(WebhookArgs),
    /// Serves metrics of what is in etcd, over HTTP: the last pass, the addresses of each range, the snapshots of
    /// etcd's members. It reads once a minute, writes nothing, and does not ask Kubernetes. See docs/monitoring.md.
    View(ViewArgs),
}

/// What a view takes.
#[derive(Debug, Args)]
pub struct ViewArgs {
    /// Serve /metrics, /healthz and /readyz here: ADDRESS:PORT, or :PORT for every address of this machine.
    #[arg(
        long = "listen",
        id = "view-listen",
        env = "METES_VIEW_LISTEN",
        value_name = "ADDRESS",
        default_value = ":12382"
    )]
    pub(crate) listen: Listen,
    /// For tests, which cannot wait for a minute.
    #[arg(long = "every", id = "view-every", hide = true, default_value = "1m", value_parser = every)]
    pub(crate) every: Duration,
}

/// What the webhook takes.
#[derive(Debug, Args)]
pub struct WebhookArgs {
    /// Serve HTTPS here: ADDRESS:PORT, or :PORT for every address of this machine.
    #[arg(
        long = "listen",
        id = "webhook-listen",
        env = "METES_WEBHOOK_LISTEN",
        value_name = "ADDRESS",
        default_value = ":8443"
    )]
    pub(crate) listen: Listen,
    /// The certificate of this server, PEM. It is read again when it is renewed.
    #[arg(long, env = "METES_WEBHOOK_CERT_FILE", value_name = "FILE")]
    pub(crate) cert_file: PathBuf,
    /// Its key, PEM.
    #[arg(long, env = "METES_WEBHOOK_KEY_FILE", value_name = "FILE")]
    pub(crate) key_file: PathBuf,
}

/// What an adoption takes.
#[derive(Debug, Args)]
pub struct AdoptArgs {
    /// The configuration of the cluster's default network, if metes gives out its addresses, too: the file that
    /// the nodes have in /etc/cni/net.d. Then the pods' own addresses are adopted.
    #[arg(long, env = "METES_RECONCILER_DEFAULT_NETWORK", value_name = "FILE")]
    pub(crate) default_network: Option<PathBuf>,
    /// A network that does not use metes, if its definition is missing or is a file on the nodes, or a DRA driver that
    /// does not; may be repeated.
    #[arg(long, env = "METES_RECONCILER_NOT_METES", value_name = "NAMESPACE/NAME", value_delimiter = ',')]
    pub(crate) not_metes: Vec<String>,
    /// Take the store into service: every other cluster that shares it has already adopted what its pods use.
    #[arg(long)]
    pub(crate) last: bool,
    /// Leave the store suspect: another cluster that shares it, and that the store has forgotten, must still adopt.
    #[arg(long, conflicts_with = "last")]
    pub(crate) not_last: bool,
}

/// What an import takes.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// Which part of it.
    #[command(flatten)]
    pub(crate) step: StepArgs,
    /// Wait until whereabouts cannot be at work any more: until every pod that existed when the
    /// NetworkAttachmentDefinitions were changed has its interfaces, at most 7 minutes.
    #[arg(long, conflicts_with_all = ["begin", "cancel"])]
    pub(crate) wait: bool,
    /// End the pause, even if addresses of running pods could not be taken over.
    #[arg(long = "force", id = "force-import", conflicts_with_all = ["begin", "cancel"])]
    pub(crate) force: bool,
    /// For tests, which cannot wait for 7 minutes. With a shorter time, an address may be given twice.
    #[arg(long, hide = true, default_value = "7m", value_name = "DURATION",
          value_parser = duration)]
    pub(crate) settle: Duration,
}

/// Exactly one of them.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct StepArgs {
    /// Pause ADD of metes, and take over the present addresses.
    #[arg(long)]
    pub(crate) begin: bool,
    /// After the NetworkAttachmentDefinitions were changed to metes: take over what is new, and end the pause.
    #[arg(long)]
    pub(crate) finish: bool,
    /// Give up: end the pause and take over nothing more. What was taken over is freed with its pods.
    #[arg(long)]
    pub(crate) cancel: bool,
}

impl Cli {
    /// The options of an import.
    pub(crate) fn import_options(&self, args: &ImportArgs) -> ImportOptions {
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
    pub(crate) fn options(&self) -> PassOptions {
        PassOptions {
            graces: Graces {
                gone: self.pass.grace,
                ready: self.pass.ready_grace,
                unknown_node: if self.pass.force { self.pass.grace } else { self.pass.unknown_node_grace },
                finished: self.pass.finished_grace,
                unlabelled: self.pass.unlabelled_after,
                machine: self.pass.machine_grace,
            },
            force: self.pass.force,
        }
    }
}
