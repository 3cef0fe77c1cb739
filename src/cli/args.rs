//! What a person may type.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::audit::Kind;
use crate::config::keys::nearest;
use crate::pool::NetworkName;
use crate::pool::names::{NO_CLUSTER, PoolName};
use crate::pool::record::{Owner, Pod};

/// How many letters of a kind may be wrong, so that it is still suggested.
const KIND_TYPOS: usize = 6;
/// The longest note of a hold, in bytes.
const HOLD_NOTE_MAX: usize = 256;
/// The longest time of a hold.
const HOLD_TIME_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

const LONG_ABOUT: &str = "\
metes is a cluster-wide IPAM plugin for CNI: networks of containers delegate to it, and
every address that it hands out is held once in the whole cluster, agreed on through etcd.

Container runtimes and other plugins call it with CNI_COMMAND set and a configuration on
stdin. Called by a person, without CNI_COMMAND, it shows and repairs what is held.";

const AFTER_HELP: &str = "\
A network that uses metes, as a configuration for the bridge plugin (the same `ipam` serves
macvlan, sriov, ovs, and others, directly or in a NetworkAttachmentDefinition of Multus):

  {
    \"cniVersion\": \"1.0.0\",
    \"name\": \"storage\",
    \"type\": \"bridge\",
    \"bridge\": \"br-storage\",
    \"ipam\": {
      \"type\": \"metes\",
      \"range\": \"10.56.0.0/16\",
      \"exclude\": [\"10.56.0.0/28\"]
    }
  }

The host file says where etcd is; it is --config, else $METES_CONF, else
/etc/cni/net.d/metes.d/metes.conf. Without one, etcd is expected at http://127.0.0.1:2379:

  {
    \"etcd\": {
      \"endpoints\": [\"https://10.0.0.1:2379\", \"https://10.0.0.2:2379\"],
      \"ca_file\": \"/etc/metes/ca.crt\",
      \"cert_file\": \"/etc/metes/client.crt\",
      \"key_file\": \"/etc/metes/client.key\"
    }
  }

Exit codes: 0 done, 1 it failed or `check` found a violation, 2 it was called wrongly, 3 `pool` did
it, and addresses are held outside of the open ranges.";

const VALIDATE_AFTER_HELP: &str = "\
All networks of a cluster:

  kubectl get network-attachment-definitions -A -o yaml | metes validate";

pub(super) const POOL_AFTER_HELP: &str = "\
A pool as a file for `metes pool apply -f`:

  pool: storage
  network: storage            # no address is held twice in it; pools may share one
  ranges:
  - {range: 10.56.0.0/16, gateway: 10.56.255.254, exclude: [10.56.0.0/28]}
  - {range: 10.57.0.5-10.57.0.9/20, state: draining}     # open (default), draining or closed
  order: next                 # lowest, next or spread
  routes: [{dst: 10.0.0.0/8, gw: 10.56.255.254}]
  dns: {nameservers: [10.56.0.53], search: [storage.example]}
  allow: {clusters: [prod-1], namespaces: [\"team-*\"], nodes: [\"gpu-*\"]}
  for: {node_labels: {rack: \"7\"}}     # \"pool\": \"auto\" means this pool on such nodes
  priority: 10                # higher first; 0 if it is not given
  note: owner netops

Only `pool` and `ranges` are needed. A network uses it with `\"ipam\": {\"type\": \"metes\", \"pool\": \"storage\"}`.

Exit codes: 0 done, 1 refused or failed, and nothing was written for what was refused, 2 it was
called wrongly, 3 done, and addresses are held outside of the open ranges.";

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "metes",
    version,
    about = "A cluster-wide CNI IPAM plugin coordinated through etcd",
    long_about = LONG_ABOUT,
    after_long_help = AFTER_HELP
)]
pub(super) struct Cli {
    /// The host file, which says where etcd is
    #[arg(long, global = true, env = "METES_CONF", value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Where etcd is, instead of what the host file says; its certificates and prefix stay
    #[arg(long, global = true, value_name = "URL,...", value_delimiter = ',')]
    pub(super) endpoints: Vec<String>,
    /// How long etcd may take for all that is asked of it, like 30s; else 1m
    #[arg(long, global = true, value_name = "DURATION", value_parser = timeout)]
    pub(super) timeout: Option<Duration>,
    /// What to do.
    #[command(subcommand)]
    pub(super) verb: CliVerb,
}

/// What to do, with the store or without it.
#[derive(Debug, Subcommand)]
pub(super) enum CliVerb {
    /// With the store.
    #[command(flatten)]
    Store(Command),
    /// Say what is wrong with networks, host files and pools before a pod starts
    ///
    /// Reads NetworkAttachmentDefinitions (YAML or JSON, lists too), CNI configurations, `ipam` sections, host
    /// files and pools, as the plugin reads them, and compares the networks with each other. Networks are judged
    /// as on a node with the host file of --config. Etcd is not asked.
    ///
    /// Exit codes: 0 nothing is wrong but notes, 1 something is, 2 something cannot be read.
    #[command(after_help = VALIDATE_AFTER_HELP)]
    Validate(ValidateArgs),
    /// Print what makes a shell complete commands and flags
    ///
    /// For bash, in ~/.bashrc: source <(metes completion bash)
    Completion(CompletionArgs),
    /// Say which version this is and, with --server, those of etcd's members and of what is stored
    Version(VersionArgs),
}

/// What to do with the store.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List the addresses that are held
    #[command(visible_aliases = ["ls", "get"])]
    List(ListArgs),
    /// Show all that is known of an address, or of all that a container, pod, network, prefix or pool holds
    ///
    /// An address may have a prefix length behind it, as in 10.56.0.16/16. With --network it is looked up
    /// alone; without, each network is asked, and where none has it, static addresses that are only recorded.
    Show(ShowArgs),
    /// Show how much of each range is used
    ///
    /// A range is one of a pool, or one that a configuration has asked for. Starts, ends, excludes and
    /// gateways are taken off its size. It is "older" if its CNI network has asked for other ranges since:
    /// who still holds an address that only such a range gives is named. Addresses outside of all ranges
    /// are counted in the row "-".
    Usage(UsageArgs),
    /// Count who holds the most addresses
    ///
    /// What no container has, or nobody knows, is counted in the row "-". In a store of several clusters, --cluster
    /// tells their nodes and pods apart.
    Top(TopArgs),
    /// List addresses that may be leaked, with why
    ///
    /// By what etcd alone knows: what the reconciler has seen as an orphan and not freed yet, and old
    /// sandboxes of pods that have newer ones since their node was started again. Look before you free: -o
    /// name prints what `release -f -` takes.
    Leaks(LeaksArgs),
    /// Print a line for each address that is given, freed, cooling or set aside, as it happens
    ///
    /// Until it is interrupted, or for the time that --timeout gives. Static addresses that are only recorded are not
    /// watched.
    Watch(WatchArgs),
    /// Prove that all that is stored fits together
    ///
    /// Reads everything at one moment and names each violation. Exit 1 if there is any.
    /// Bits that are set without a reservation are harmless and reported with exit 0.
    Check(CheckArgs),
    /// Free all that owners (interfaces of containers) hold
    ///
    /// An owner is freed as a whole, with all its addresses. Make sure that nothing uses them any
    /// more: they may be handed out again at once. All that would be freed is told, and asked for once.
    Release(ReleaseArgs),
    /// Set addresses aside, so that no container gets them
    ///
    /// For what has its address from elsewhere: a printer, a gateway, a machine outside of the cluster. An
    /// address that somebody holds is refused. With the note that it has, an address is set aside once
    /// more, with the new time.
    Hold(HoldArgs),
    /// List the addresses that are set aside
    Holds(HoldsArgs),
    /// Show and change named pools of addresses
    #[command(after_help = POOL_AFTER_HELP)]
    Pool(PoolArgs),
}

/// How to print a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ListFormat {
    /// For people
    Table,
    /// With all columns, and nothing shortened
    Wide,
    /// For programs
    Json,
    /// For programs and people
    Yaml,
    /// Names alone, as other commands take them
    Name,
}

/// How a list is printed.
#[derive(Debug, Args)]
pub(super) struct ListOutput {
    /// How to print
    #[arg(short = 'o', long = "output", value_enum, default_value_t = ListFormat::Table)]
    pub(super) format: ListFormat,
    /// No first line with the names of the columns
    #[arg(long)]
    pub(super) no_headers: bool,
    /// The column to sort by
    #[arg(long, value_name = "FIELD")]
    pub(super) sort_by: Option<String>,
}

/// How to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For people
    Table,
    /// For programs
    Json,
    /// For programs and people
    Yaml,
}

/// The choice of a format.
#[derive(Debug, Args)]
pub(super) struct Output {
    /// How to print
    #[arg(short = 'o', long = "output", value_enum, default_value_t = Format::Table)]
    pub(super) format: Format,
}

/// Where an owner is.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct Place {
    /// Only what is held on nodes of this name
    #[arg(long)]
    pub(super) node: Option<String>,
    /// Only what is held by nodes of this cluster; - for those whose host file names no cluster
    #[arg(long)]
    pub(super) cluster: Option<String>,
}

impl Place {
    /// Whether the owner is there.
    pub(super) fn holds(&self, owner: &Owner) -> bool {
        self.node.as_ref().is_none_or(|node| owner.node == **node)
            && self.cluster.as_ref().is_none_or(|cluster| owner.cluster_or_dash() == cluster)
    }

    /// Whether nothing is asked of it.
    pub(super) fn is_anywhere(&self) -> bool {
        self.node.is_none() && self.cluster.is_none()
    }
}

/// In words, each with a blank before.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(node) = &self.node {
            write!(f, " on node {node}")?;
        }
        match &self.cluster {
            Some(cluster) => write!(f, " in cluster {cluster}"),
            None => Ok(()),
        }
    }
}

/// `metes validate`
#[derive(Debug, Args)]
pub(super) struct ValidateArgs {
    /// Files; - for stdin
    #[arg(value_name = "FILE", default_value = "-")]
    pub(super) files: Vec<PathBuf>,
    /// How to print
    #[arg(short = 'o', long = "output", value_enum, default_value_t = ValidateFormat::Table)]
    pub(super) format: ValidateFormat,
}

/// How to print what is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ValidateFormat {
    /// For people
    Table,
    /// For programs
    Json,
    /// For code hosts, which show it beside the lines
    Sarif,
}

/// Which addresses are meant.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct Filter {
    /// Only addresses of this network
    #[arg(long, value_parser = NetworkName::stored)]
    pub(super) network: Option<NetworkName>,
    /// Where they are held.
    #[command(flatten)]
    pub(super) place: Place,
    /// Only addresses of pods in this namespace
    #[arg(long)]
    pub(super) namespace: Option<String>,
    /// Only addresses of this pod
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = pod_name)]
    pub(super) pod: Option<PodName>,
}

impl Filter {
    /// Whether all addresses are meant.
    pub(super) fn is_empty(&self) -> bool {
        let Self { network, place, namespace, pod } = self;
        network.is_none() && place.is_anywhere() && namespace.is_none() && pod.is_none()
    }

    /// Whether addresses of this pod are meant.
    pub(super) fn is_of(&self, pod: &Pod) -> bool {
        let is_by = |wanted: &PodName| pod.namespace == wanted.namespace && pod.name == wanted.name;
        self.namespace.as_ref().is_none_or(|wanted| pod.namespace == *wanted)
            && self.pod.as_ref().is_none_or(is_by)
    }
}

/// In words, each with a blank before.
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(network) = &self.network {
            write!(f, " in network {network}")?;
        }
        write!(f, "{}", self.place)?;
        if let Some(namespace) = &self.namespace {
            write!(f, " in namespace {namespace}")?;
        }
        match &self.pod {
            Some(PodName { namespace, name }) => write!(f, " by pod {namespace}/{name}"),
            None => Ok(()),
        }
    }
}

/// `metes list`
#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// Which ones.
    #[command(flatten)]
    pub(super) filter: Filter,
    /// Then print a line for each change, as `watch` does
    #[arg(short, long)]
    pub(super) watch: bool,
    /// How to print.
    #[command(flatten)]
    pub(super) output: ListOutput,
}

/// `metes leaks`
#[derive(Debug, Args)]
pub(super) struct LeaksArgs {
    /// Which ones.
    #[command(flatten)]
    pub(super) filter: Filter,
    /// How to print.
    #[command(flatten)]
    pub(super) output: ListOutput,
}

/// `metes watch`
#[derive(Debug, Args)]
pub(super) struct WatchArgs {
    /// Which ones.
    #[command(flatten)]
    pub(super) filter: Filter,
    /// How to print
    #[arg(short = 'o', long = "output", value_enum, default_value_t = ListFormat::Table)]
    pub(super) format: ListFormat,
}

/// `metes show`
#[derive(Debug, Args)]
pub(super) struct ShowArgs {
    /// An address, NETWORK/ADDRESS, a prefix, a container id or its beginning, NAMESPACE/POD, a network or a pool
    #[arg(value_name = "WHAT")]
    pub(super) what: String,
    /// What it is, where it could be more than one
    #[arg(long = "as", value_enum, value_name = "KIND")]
    pub(super) kind: Option<WordKind>,
    /// Which ones.
    #[command(flatten)]
    pub(super) filter: Filter,
    /// How to print.
    #[command(flatten)]
    pub(super) output: ListOutput,
}

/// What a word may be the name of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum WordKind {
    /// A container, or the beginning of its id
    Container,
    /// A network
    Network,
    /// A pool
    Pool,
}

impl fmt::Display for WordKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WordKind::Container => "container",
            WordKind::Network => "network",
            WordKind::Pool => "pool",
        })
    }
}

/// `metes usage`
#[derive(Debug, Args)]
pub(super) struct UsageArgs {
    /// How to print.
    #[command(flatten)]
    pub(super) output: ListOutput,
}

/// `metes top`
#[derive(Debug, Args)]
pub(super) struct TopArgs {
    /// Whose addresses are counted together
    #[arg(long, value_enum, default_value_t = Consumer::Namespace)]
    pub(super) by: Consumer,
    /// Only so many, those with the most addresses; else all
    #[arg(short = 'n', long = "most", value_name = "COUNT")]
    pub(super) most: Option<usize>,
    /// Which ones.
    #[command(flatten)]
    pub(super) filter: Filter,
    /// How to print.
    #[command(flatten)]
    pub(super) output: ListOutput,
}

/// Whose addresses are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Consumer {
    /// All pods of a namespace
    Namespace,
    /// A pod
    Pod,
    /// All containers of a node
    Node,
    /// All of a network
    Network,
}

/// `metes check`
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("asks").multiple(true).args(["accept_store", "resume"]))]
pub(super) struct CheckArgs {
    /// Say what a kind of violation means and what to do about it; `all` for all of them
    #[arg(long, value_name = "KIND", value_parser = kinds, conflicts_with_all = ["repair", "asks"])]
    pub(super) explain: Option<Explained>,
    /// Repair bits that do not match the reservations, and delete tombstones and tickets in queues
    /// that no lease would ever remove; never touches what cannot be decoded
    #[arg(long)]
    pub(super) repair: bool,
    /// Take a store into service again that was restored from a backup: what it holds counts; asks before
    #[arg(long)]
    pub(super) accept_store: bool,
    /// End the pause of a migration that will not be finished, so that ADD hands out addresses again;
    /// asks before. Works without Kubernetes, and from every cluster that shares the store
    #[arg(long)]
    pub(super) resume: bool,
    /// Do not ask
    #[arg(short = 'y', long, requires = "asks")]
    pub(super) yes: bool,
    /// How to print.
    #[command(flatten)]
    pub(super) output: Output,
}

/// `metes release`
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["targets", "containers", "file"]))]
pub(super) struct ReleaseArgs {
    /// Free the owners that hold these addresses
    #[arg(value_name = "ADDRESS|NETWORK/ADDRESS", value_parser = release_target)]
    pub(super) targets: Vec<ReleaseTarget>,
    /// The network of the addresses, if they are held in several
    #[arg(long, value_parser = NetworkName::stored, conflicts_with = "containers")]
    pub(super) network: Option<NetworkName>,
    /// Free all interfaces of the container with this id, or of the only one whose id begins so; may be given
    /// several times
    #[arg(long = "container", value_name = "ID")]
    pub(super) containers: Vec<String>,
    /// Free what this file has a line for, as `list` and `leaks` print it with -o name; - for stdin. A line for what
    /// nobody holds is passed over
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    pub(super) file: Option<PathBuf>,
    /// Where it is.
    #[command(flatten)]
    pub(super) place: Place,
    /// Let the addresses be given again at once: without it they cool, if their range or pool says so
    #[arg(long)]
    pub(super) now: bool,
    /// Do not ask
    #[arg(short = 'y', long)]
    pub(super) yes: bool,
}

/// `metes hold`
#[derive(Debug, Args)]
pub(super) struct HoldArgs {
    /// The addresses
    #[arg(required = true, value_name = "ADDRESS", value_parser = hold_address)]
    pub(super) addresses: Vec<IpAddr>,
    /// Their network
    #[arg(long, default_value = "default", value_parser = NetworkName::stored)]
    pub(super) network: NetworkName,
    /// Why: whoever asks for the address is told
    #[arg(long, required_unless_present = "remove", value_parser = hold_note)]
    pub(super) note: Option<String>,
    /// For how long, like 2h or 7d, at most a year; else until it is removed. The reconciler ends it
    #[arg(long = "for", value_name = "DURATION", value_parser = hold_time)]
    pub(super) time: Option<Duration>,
    /// End it: from now on containers may get the addresses
    #[arg(long, conflicts_with_all = ["note", "time"])]
    pub(super) remove: bool,
}

/// `metes holds`
#[derive(Debug, Args)]
pub(super) struct HoldsArgs {
    /// Only addresses of this network
    #[arg(long, value_parser = NetworkName::stored)]
    pub(super) network: Option<NetworkName>,
    /// How to print.
    #[command(flatten)]
    pub(super) output: ListOutput,
}

/// `metes completion`
#[derive(Debug, Args)]
pub(super) struct CompletionArgs {
    /// The shell
    pub(super) shell: Shell,
}

/// `metes version`
#[derive(Debug, Args)]
pub(super) struct VersionArgs {
    /// Ask etcd, too
    #[arg(long)]
    pub(super) server: bool,
    /// How to print.
    #[command(flatten)]
    pub(super) output: Output,
}

/// `metes pool`
#[derive(Debug, Args)]
pub(super) struct PoolArgs {
    /// What to do.
    #[command(subcommand)]
    pub(super) verb: PoolVerb,
}

/// What to do with pools.
#[derive(Debug, Subcommand)]
pub(super) enum PoolVerb {
    /// List the pools
    #[command(visible_aliases = ["ls", "get"])]
    List(PoolListArgs),
    /// Show all that one pool says, and how much of each range is held
    Show(PoolShowArgs),
    /// Count how many addresses of each pool are held and free
    ///
    /// SIZE, HELD and FREE are of the open ranges. DRAINING and CLOSED are what is still held in such
    /// ranges. OUTSIDE is what was taken from the pool and lies in none of its ranges now. COOLING is what was
    /// freed a short while ago, and so is not free. ASIDE is what is
    /// set aside, among all that is held in its ranges.
    Status(PoolStatusArgs),
    /// Make or change the pools of a file
    ///
    /// Prints what changes, and who holds addresses outside of the open ranges after it; asks, and
    /// writes each pool in one transaction. When it has returned, no pod gets an address by the old
    /// text. Running pods keep their addresses. Nothing is written if any pool of the file is wrong.
    Apply(PoolApplyArgs),
    /// Print what `apply` would change
    Diff(PoolFileArgs),
    /// Give no more addresses of a range; who holds one keeps it
    Drain(PoolDrainArgs),
    /// Give no more addresses of a range, as `drain` does, and say that it is to stay so
    ///
    /// A pool can be deleted when all its ranges are closed.
    Close(PoolRangeArgs),
    /// Give addresses of a range again
    Open(PoolRangeArgs),
    /// Delete a pool whose ranges are all closed, and of which nothing is held
    Delete(PoolDeleteArgs),
    /// Print pools as YAML that `apply` takes
    Export(PoolExportArgs),
    /// Print the pools that the ranges of a NetworkAttachmentDefinition make, as YAML that `apply` takes
    ///
    /// Nothing is written, and etcd is not asked. Apply the pools first, then the definition that
    /// --nad prints. Pods that run keep their addresses. Stderr says what will be different.
    FromNad(PoolFromNadArgs),
    /// Say which pools `"pool": "auto"` means for a pod, and why
    ///
    /// What is not given is not known, as it is for the plugin when the runtime does not say it. Node,
    /// cluster and node labels are those of the host file; with --node of another node there are no
    /// labels but those that are given. Exit 1 if there is no pool for the pod.
    Which(PoolWhichArgs),
}

/// `metes pool list`
#[derive(Debug, Args)]
pub(super) struct PoolListArgs {
    /// Only pools of this network
    #[arg(long, value_parser = NetworkName::stored)]
    pub(super) network: Option<NetworkName>,
    /// How to print.
    #[command(flatten)]
    pub(super) output: ListOutput,
}

/// `metes pool show`
#[derive(Debug, Args)]
pub(super) struct PoolShowArgs {
    /// The pool
    pub(super) name: PoolName,
    /// How to print.
    #[command(flatten)]
    pub(super) output: Output,
}

/// `metes pool status`
#[derive(Debug, Args)]
pub(super) struct PoolStatusArgs {
    /// Only this pool
    pub(super) name: Option<PoolName>,
    /// Only pools of this network
    #[arg(long, value_parser = NetworkName::stored)]
    pub(super) network: Option<NetworkName>,
    /// How to print.
    #[command(flatten)]
    pub(super) output: ListOutput,
}

/// The file with pools.
#[derive(Debug, Args)]
pub(super) struct PoolFileArgs {
    /// A file with pools in YAML or JSON, several as documents; - for stdin
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    pub(super) file: PathBuf,
}

/// `metes pool apply`
#[derive(Debug, Args)]
pub(super) struct PoolApplyArgs {
    /// The file.
    #[command(flatten)]
    pub(super) file: PoolFileArgs,
    /// Only print what would change
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Do not ask
    #[arg(short = 'y', long)]
    pub(super) yes: bool,
}

/// One range of a pool.
#[derive(Debug, Args)]
pub(super) struct PoolRangeArgs {
    /// The pool
    pub(super) name: PoolName,
    /// The range, exactly as `metes pool show` prints it
    #[arg(long)]
    pub(super) range: String,
    /// Do not ask
    #[arg(short = 'y', long)]
    pub(super) yes: bool,
}

/// `metes pool drain`
#[derive(Debug, Args)]
pub(super) struct PoolDrainArgs {
    /// The range.
    #[command(flatten)]
    pub(super) range: PoolRangeArgs,
    /// Wait until nobody holds an address of the range; says who is left each time that changes
    #[arg(long)]
    pub(super) wait: bool,
}

/// `metes pool delete`
#[derive(Debug, Args)]
pub(super) struct PoolDeleteArgs {
    /// The pool
    pub(super) name: PoolName,
    /// Do not ask
    #[arg(short = 'y', long)]
    pub(super) yes: bool,
}

/// `metes pool export`
#[derive(Debug, Args)]
pub(super) struct PoolExportArgs {
    /// Only this pool
    pub(super) name: Option<PoolName>,
}

/// `metes pool from-nad`
#[derive(Debug, Args)]
pub(super) struct PoolFromNadArgs {
    /// The definition in YAML or JSON, as kubectl prints it, or a CNI configuration; - for stdin
    pub(super) file: PathBuf,
    /// The name of the pool, or what its name begins with if there are several; without it, the
    /// definition's name
    #[arg(long, value_name = "POOL")]
    pub(super) name: Option<PoolName>,
    /// Print the definition that uses the pools, not the pools
    #[arg(long)]
    pub(super) nad: bool,
}

/// `metes pool which`
#[derive(Debug, Args)]
pub(super) struct PoolWhichArgs {
    /// The pod's namespace
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(super) namespace: String,
    /// The pod's name
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(super) pod: String,
    /// The CNI network, by the `name` of its configuration
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(super) network: String,
    /// The node
    #[arg(long)]
    pub(super) node: Option<String>,
    /// The cluster
    #[arg(long)]
    pub(super) cluster: Option<String>,
    /// A label of the node, instead of those of the host file; may be given several times
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label)]
    pub(super) labels: Vec<(String, String)>,
    /// How to print.
    #[command(flatten)]
    pub(super) output: Output,
}

/// The kinds of findings that are to be explained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Explained(pub(super) Vec<Kind>);

fn kinds(text: &str) -> Result<Explained, String> {
    if text == "all" {
        return Ok(Explained(Kind::ALL.to_vec()));
    }
    let kind = Kind::named(text);
    kind.map(|kind| Explained(vec![kind])).ok_or_else(|| {
        let known = Kind::ALL.map(Kind::name);
        let near = nearest(text, &known, KIND_TYPOS).map(|near| format!("; did you mean {near:?}?"));
        format!(
            "there is no such kind{}; `metes check --explain all` names them all",
            near.unwrap_or_default()
        )
    })
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}

/// A pod as a person names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PodName {
    /// Its namespace.
    pub(super) namespace: String,
    /// Its name.
    pub(super) name: String,
}

pub(super) fn pod_name(text: &str) -> Result<PodName, String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok(PodName { namespace: namespace.to_owned(), name: name.to_owned() })
        }
        _ => Err("expected NAMESPACE/NAME".to_owned()),
    }
}

/// Whom to free.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReleaseTarget {
    /// Who holds an address, in any network.
    Address(IpAddr),
    /// Who holds an address in a network; in none: who has it as a static address that is only recorded.
    InNetwork(Option<NetworkName>, IpAddr),
    /// All interfaces of the container with this id, or of the only one whose id begins so.
    Container(String),
    /// An interface of a container.
    Owner(Owner),
}

/// Reads an address, a network and an address with a slash between, or the names of an owner with slashes between. What
/// stands for no network and no cluster is nothing: a hyphen would look like a flag.
pub(super) fn release_target(text: &str) -> Result<ReleaseTarget, String> {
    let address = |text: &str| text.parse::<IpAddr>();
    let target = match text.split('/').collect::<Vec<_>>()[..] {
        [one] => address(one).ok().map(ReleaseTarget::Address),
        ["", recorded] => address(recorded).ok().map(|address| ReleaseTarget::InNetwork(None, address)),
        [network, held] => NetworkName::stored(network)
            .ok()
            .zip(address(held).ok())
            .map(|(network, address)| ReleaseTarget::InNetwork(Some(network), address)),
        [cluster, node, container, ifname] => {
            let cluster = if cluster.is_empty() { NO_CLUSTER } else { cluster };
            Owner::named([cluster, node, container, ifname]).ok().map(ReleaseTarget::Owner)
        }
        _ => None,
    };
    target.ok_or_else(|| {
        "expected ADDRESS, NETWORK/ADDRESS or CLUSTER/NODE/CONTAINER/INTERFACE, as `-o name` prints them"
            .to_owned()
    })
}

fn timeout(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|e| e.to_string())?;
    if time.is_zero() { Err("expected more than 0s".to_owned()) } else { Ok(time) }
}

fn hold_address(text: &str) -> Result<IpAddr, String> {
    let address: IpAddr = text.parse().map_err(|_| "expected an IPv4 or IPv6 address".to_owned())?;
    match address {
        IpAddr::V6(six) if six.to_ipv4_mapped().is_some() => {
            Err("write an IPv4 address as one, like 10.56.0.77".to_owned())
        }
        _ if address.is_unspecified() || address.is_multicast() => {
            Err("expected an address that an interface can have".to_owned())
        }
        _ => Ok(address),
    }
}

fn hold_note(text: &str) -> Result<String, String> {
    let is_right = !text.trim().is_empty() && text.len() <= HOLD_NOTE_MAX && !text.contains(char::is_control);
    match is_right {
        true => Ok(text.to_owned()),
        false => Err(format!("expected 1 to {HOLD_NOTE_MAX} bytes without control characters")),
    }
}

fn hold_time(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|e| e.to_string())?;
    match (Duration::from_secs(1)..=HOLD_TIME_MAX).contains(&time) {
        true => Ok(time),
        false => Err("expected at least 1s and at most 365d".to_owned()),
    }
}

/// What metes says of itself when a person calls it without arguments, as other plugins do.
pub(super) fn about(versions: &[&str]) -> String {
    format!(
        "metes {}: a cluster-wide CNI IPAM plugin coordinated through etcd (metes --help says more)\n\
         CNI protocol versions supported: {}\n",
        env!("CARGO_PKG_VERSION"),
        versions.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(std::iter::once("metes").chain(line.split_whitespace()))
    }

    #[test]
    fn accepted_and_refused() {
        for good in [
            "list",
            "list --network n1 --node a --cluster east --pod ns/web-0 -o json",
            "--config /x list",
            "list --config /x",
            "show 10.0.0.1 -o json",
            "usage",
            "validate",
            "validate - a.yaml b.conflist -o sarif --config /x",
            "usage -o wide --no-headers --sort-by free",
            "ls --namespace ns --sort-by POD -o yaml",
            "get -o name",
            "pool ls --network n1 --sort-by size -o yaml",
            "pool status -o wide",
            "holds --no-headers --sort-by left",
            "list --endpoints http://a:1,http://b:2 --timeout 30s",
            "check --repair --accept-store",
            "check --resume -y",
            "check --explain stray-bit",
            "check --explain all",
            "check --accept-store --resume --yes",
            "release 10.0.0.1 --network a --yes",
            "release --container c1 --cluster - -y",
            "release 10.0.0.1 blue/10.0.0.2 /192.0.2.1 /n1/c1/eth0 east/n1/c1/eth0",
            "release --container c1 --container c2",
            "release -f - --yes",
            "top --by node -n 3 -o json",
            "leaks --node a -o name",
            "watch --network a -o json --timeout 1h",
            "list -w --namespace ns",
            "version --server -o yaml",
            "completion zsh",
            "show c1 --node a --cluster east",
            "hold 10.0.0.1 --note printer",
            "hold 10.0.0.1 fd00::1 --network a --note x --for 365d",
            "hold --remove 10.0.0.1 --network a@00000000000000000000ffff0a000000-24",
            "holds",
            "holds --network a -o json",
            "pool list -o json",
            "pool show storage",
            "pool status",
            "pool status storage -o json",
            "pool apply -f - --yes",
            "pool apply -f pools.yaml --dry-run",
            "pool diff -f pools.yaml",
            "pool drain storage --range 10.0.0.0/24 --wait -y",
            "pool close storage --range 10.0.0.5-10.0.0.9/24",
            "pool open storage --range 10.0.0.0/24 --config /x",
            "pool delete storage --yes",
            "pool export",
            "pool export storage",
            "pool from-nad nad.yaml",
            "pool from-nad - --name storage --nad",
            "pool which --namespace team-a --pod web-0 --node n1 --network storage --cluster east --label rack=7",
            "pool which --label rack=7 --label zone= -o json",
        ] {
            assert!(parse(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "lsit",
            "list --pod web-0",
            "list --pod ns/",
            "list --network a/b",
            "list -o xml",
            "list --timeout soon",
            "list --timeout 0s",
            "pool show storage -o wide",
            "show",
            "release",
            "release nonsense",
            "check --yes",
            "check --explain stray",
            "check --explain stray-bit --repair",
            "check --repair --yes",
            "release 10.0.0.1 --container c1",
            "release --container c1 --network a",
            "release a/b/10.0.0.1",
            "release blue/nonsense",
            "release 10.0.0.1 -f -",
            "hold --note x",
            "hold 10.0.0.1",
            "hold 10.0.0.1/24 --note x",
            "hold ::ffff:10.0.0.1 --note x",
            "hold 0.0.0.0 --note x",
            "hold ff02::1 --note x",
            "hold 10.0.0.1 --network a/b --note x",
            "hold 10.0.0.1 --note=",
            "hold 10.0.0.1 --note x --for 0s",
            "hold 10.0.0.1 --note x --for 999ms",
            "hold 10.0.0.1 --note x --for 366d",
            "hold 10.0.0.1 --note x --for soon",
            "hold --remove 10.0.0.1 --note x",
            "hold --remove 10.0.0.1 --for 1h",
            "hold --remove",
            "holds 10.0.0.1",
            "completion",
            "completion tcsh",
            "pool",
            "pool show",
            "pool show a/b",
            "pool apply",
            "pool diff -f a --yes",
            "pool drain storage",
            "pool close storage --range 10.0.0.0/24 --wait",
            "pool delete",
            "pool from-nad",
            "pool from-nad nad.yaml --name a/b",
            "validate -o yaml",
            "pool which --label rack",
            "pool which --label =7",
        ] {
            let error = parse(bad).expect_err(bad);
            assert_eq!(error.exit_code(), 2, "{bad}");
        }
    }

    #[test]
    fn it_says_which_versions_it_speaks() {
        assert!(about(&["0.1.0", "1.1.0"]).ends_with("CNI protocol versions supported: 0.1.0, 1.1.0\n"));
    }
}
