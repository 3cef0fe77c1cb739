//! What a person may type.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use serde::Serialize;

use crate::audit::Kind;
use crate::config::keys::did_you_mean;
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
metes is an IPAM plugin for CNI. It gives addresses to the interfaces of containers, and gives
each address only once in a whole cluster. The nodes agree through etcd.

Container runtimes and other plugins call it with CNI_COMMAND set and a configuration on
stdin. Without CNI_COMMAND, it has commands for people, who see and repair what is held.";

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

The host file says where etcd is. It is the file of --config, else of $METES_CONF, else
/etc/cni/net.d/metes.d/metes.conf. If there is none, etcd is at http://127.0.0.1:2379:

  {
    \"etcd\": {
      \"endpoints\": [\"https://10.0.0.1:2379\", \"https://10.0.0.2:2379\"],
      \"ca_file\": \"/etc/metes/ca.crt\",
      \"cert_file\": \"/etc/metes/client.crt\",
      \"key_file\": \"/etc/metes/client.key\"
    }
  }

Exit codes: 0 done, 1 failed, or `check` or `doctor` found something wrong, 2 wrong usage,
3 (only `pool`) done, but somebody still holds addresses outside of the open ranges.";

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

Exit codes: 0 done, 1 refused or failed (nothing is written for what is refused), 2 wrong usage,
3 done, but somebody still holds addresses outside of the open ranges.";

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
    /// The host file, which says where etcd is; the default is the file of METES_CONF in the environment
    // Not read by clap: it takes an empty variable for a mistake, and calls a given one required in its usage.
    #[arg(long, global = true, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Where etcd is, instead of the endpoints of the host file; its certificates and prefix are still used
    #[arg(long, global = true, value_name = "URL,...", value_delimiter = ',')]
    pub(super) endpoints: Vec<String>,
    /// How long etcd may take, like 30s; the default is 1m, and 3s for `doctor`. `check` reads twice or more, and has
    /// as much each time. `watch` and `pool drain --wait` have no limit unless it is given
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
    /// Find mistakes in networks, host files and pools before a pod starts
    ///
    /// Reads NetworkAttachmentDefinitions (YAML or JSON, lists too), CNI configurations, `ipam` sections, host
    /// files and pools with the parser of the plugin, and compares the networks with each other. It judges
    /// networks as on a node with the host file of --config. It does not ask etcd.
    ///
    /// Exit codes: 0 nothing is wrong (there may be notes), 1 there are errors or warnings, 2 a file cannot be read, or
    /// nothing in the files is of metes.
    #[command(after_help = VALIDATE_AFTER_HELP)]
    Validate(ValidateArgs),
    /// Say what is wrong with this node, its files and its etcd, and what to do about it
    ///
    /// Looks at the host file and the files that it names, at each endpoint of etcd, at certificates and the clock,
    /// at the rights on the prefix, and at what this node keeps. It goes on where something fails, and takes a few
    /// seconds at most. A key is written to etcd and removed again. Exit 1 if anything is bad.
    Doctor(DoctorArgs),
    /// Print a script that makes a shell complete commands and flags
    ///
    /// For bash, in ~/.bashrc: source <(metes completion bash)
    Completion(CompletionArgs),
    /// Show the version; with --server also the versions of etcd's members and of the stored records
    Version(VersionArgs),
}

/// What to do with the store.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List the addresses that are held
    #[command(visible_aliases = ["ls", "get"])]
    List(ListArgs),
    /// Show everything about an address, or about all addresses of a container, pod, network, prefix or pool
    ///
    /// An address may end with a prefix length, as in 10.56.0.16/16. With --network it is looked up in this
    /// network only. Without, it is looked up in each network, and then among the static addresses that are only
    /// recorded, if at most 1000 interfaces hold anything. /ADDRESS looks among all of these.
    Show(ShowArgs),
    /// Show how much of each range is used
    ///
    /// A range belongs to a pool, or a configuration has asked for it. Its size is without excludes, gateways
    /// and what lies outside of start and end. It is "older" if its CNI network has asked for other ranges
    /// since. If somebody still holds an address that only an older range gives, a line below says who. The
    /// row "-" counts addresses outside of all ranges.
    Usage(UsageArgs),
    /// Draw how full ranges are, and who holds their addresses
    ///
    /// On a terminal, or as a page for a browser: metes map storage -o html >map.html. A cell of the picture is a
    /// block of addresses, as large as needed for all to fit. On a terminal with colours and UTF-8, each character
    /// shows two cells; else each cell is a letter. A range of more than 2^24 addresses is drawn as far as something
    /// is held in it.
    Map(MapArgs),
    /// Count who holds the most addresses
    ///
    /// The row "-" counts addresses that have no namespace, pod, node or network, such as those that are set aside. If
    /// several clusters share the store, use --cluster to count the nodes and pods of one of them.
    Top(TopArgs),
    /// List addresses that may be leaked, with the reasons
    ///
    /// It uses only what etcd knows: what the reconciler has seen as an orphan and not freed yet, and old sandboxes
    /// of pods that got newer ones after a restart of their node. If there are so many orphans that the reconciler
    /// frees none, it says so. Make sure that no container uses an address before you free it. `metes leaks -o name`
    /// prints what `metes release -f -` takes.
    Leaks(LeaksArgs),
    /// Print a line for each address that is given, freed, cooling or set aside, as it happens
    ///
    /// Runs until Ctrl-C, or for the time of --timeout. Static addresses without a network are not watched.
    Watch(WatchArgs),
    /// Check that all stored records fit together
    ///
    /// Reads everything at one moment and names each violation. The exit code is 1 if there is one.
    /// Bits that are set without a reservation are harmless: the exit code is 0.
    Check(CheckArgs),
    /// Free all addresses of owners (interfaces of containers)
    ///
    /// It frees all addresses of an owner, never one of several. Make sure that nothing uses them any
    /// more: they may be given out again at once. It shows what it would free, and asks once.
    Release(ReleaseArgs),
    /// Set addresses aside, so that no container gets them
    ///
    /// For a printer, a gateway, or a machine outside of the cluster. It is refused if somebody holds the
    /// address. If you give the note that the address already has, its time begins again with the new --for.
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
    /// A table with all columns, and nothing shortened
    Wide,
    /// For programs
    Json,
    /// For programs and people
    Yaml,
    /// Only names, in the form that other commands take
    Name,
}

/// How a list is printed.
#[derive(Debug, Args)]
pub(super) struct ListOutput {
    /// How to print
    #[arg(short = 'o', long = "output", value_enum, default_value_t = ListFormat::Table)]
    pub(super) format: ListFormat,
    /// Leave out the first line, which has the names of the columns
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

/// `metes doctor`
#[derive(Debug, Args)]
pub(super) struct DoctorArgs {
    /// How to print.
    #[command(flatten)]
    pub(super) output: Output,
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
        self.namespace.as_ref().is_none_or(|wanted| pod.namespace == *wanted)
            && self.pod.as_ref().is_none_or(|wanted| wanted.is(pod))
    }

    /// The network, if nothing else is asked of addresses.
    pub(super) fn network_alone(&self) -> Option<&NetworkName> {
        let Self { network, place, namespace, pod } = self;
        let is_alone = place.is_anywhere() && namespace.is_none() && pod.is_none();
        network.as_ref().filter(|_| is_alone)
    }

    /// Whether all that is stored must be read to find what is meant.
    pub(super) fn needs_everything(&self) -> bool {
        let Self { network, place, namespace, pod } = self;
        network.is_none() && place.node.is_none() && namespace.is_none() && pod.is_none()
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
    /// Only the first so many, by network and address
    #[arg(long, value_name = "COUNT", conflicts_with = "watch")]
    pub(super) limit: Option<usize>,
    /// After the list, print a line for each change, as `watch` does
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
    /// What WHAT is, if it may be several things
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

/// `metes map`
#[derive(Debug, Args)]
pub(super) struct MapArgs {
    /// A network, a pool or a prefix
    #[arg(value_name = "WHAT")]
    pub(super) what: String,
    /// What it is, if the name stands for both
    #[arg(long = "as", value_enum, value_name = "KIND")]
    pub(super) kind: Option<MapKind>,
    /// What cells are coloured by
    #[arg(long, value_enum, default_value_t = MapBy::Fill)]
    pub(super) by: MapBy,
    /// Only this network, if a prefix is drawn
    #[arg(long, value_parser = NetworkName::stored)]
    pub(super) network: Option<NetworkName>,
    /// How to print
    #[arg(short = 'o', long = "output", value_enum, default_value_t = MapFormat::Table)]
    pub(super) format: MapFormat,
}

/// What a name of something drawn may stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum MapKind {
    /// A network
    Network,
    /// A pool
    Pool,
}

impl MapKind {
    pub(super) fn word(self) -> &'static str {
        match self {
            MapKind::Network => "network",
            MapKind::Pool => "pool",
        }
    }
}

/// What the cells of a picture are coloured by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum MapBy {
    /// How full they are
    Fill,
    /// The namespace of most pods
    Namespace,
    /// The node of most containers
    Node,
    /// For how long most have been held
    Age,
}

impl MapBy {
    pub(super) fn word(self) -> &'static str {
        match self {
            MapBy::Fill => "fill",
            MapBy::Namespace => "namespace",
            MapBy::Node => "node",
            MapBy::Age => "age",
        }
    }
}

/// How to print a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum MapFormat {
    /// For a terminal
    Table,
    /// A drawing
    Svg,
    /// A page for a browser
    Html,
    /// For programs
    Json,
    /// For programs and people
    Yaml,
}

/// `metes top`
#[derive(Debug, Args)]
pub(super) struct TopArgs {
    /// Whose addresses are counted together
    #[arg(long, value_enum, default_value_t = Consumer::Namespace)]
    pub(super) by: Consumer,
    /// Show only so many, those with the most addresses; the default is all
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
#[command(group = clap::ArgGroup::new("asks").multiple(true).args(["accept_store", "resume", "mend", "restore"]))]
pub(super) struct CheckArgs {
    /// Say what a kind of violation means and what to do; `all` for all kinds
    #[arg(long, value_name = "KIND", value_parser = kinds, conflicts_with_all = ["repair", "asks"])]
    pub(super) explain: Option<Explained>,
    /// Repair bits that do not match the reservations, and delete tombstones and tickets in queues
    /// that no lease would ever remove; never touches what cannot be decoded
    #[arg(long)]
    pub(super) repair: bool,
    /// Mend what a repair does not touch: all findings of a kind, the one with this key, or `all`. Says for each what
    /// is there and what would be done, and asks first. May free what a container had
    #[arg(long, value_name = "KIND|KEY|all", value_parser = mend_target)]
    pub(super) mend: Option<MendTarget>,
    /// The file that keeps what --mend deletes and replaces. It must not exist. The default is one in the current
    /// folder that is named after the time
    #[arg(long, value_name = "FILE", requires = "mend")]
    pub(super) backup: Option<PathBuf>,
    /// Put back what a --mend deleted or replaced, by the file that keeps it: all that an owner had, where nothing
    /// stands there since. Asks first
    #[arg(long, value_name = "FILE", conflicts_with = "mend")]
    pub(super) restore: Option<PathBuf>,
    /// Take a store into service again that was restored from a backup, with what it holds; asks first
    #[arg(long)]
    pub(super) accept_store: bool,
    /// End the pause of a migration that will not be finished, so that ADD gives out addresses again;
    /// asks first. Works without Kubernetes, and from every cluster that shares the store
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
    /// Free what the lines of this file name, in the form that `list` and `leaks` print with -o name; - for stdin.
    /// Lines that name what nobody holds are ignored
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    pub(super) file: Option<PathBuf>,
    /// Where it is.
    #[command(flatten)]
    pub(super) place: Place,
    /// Without a cooldown: the addresses may be given out again at once
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
    /// Their network; the default is the one with a range that the address lies in
    #[arg(long, value_parser = NetworkName::stored)]
    pub(super) network: Option<NetworkName>,
    /// Also in a network that the store does not know yet
    #[arg(long, requires = "network")]
    pub(super) force: bool,
    /// Why; an ADD that asks for the address gets this note
    #[arg(long, required_unless_present = "remove", value_parser = hold_note)]
    pub(super) note: Option<String>,
    /// For how long, like 2h or 7d, at most a year; the default is until --remove. The reconciler ends it
    #[arg(long = "for", value_name = "DURATION", value_parser = hold_time)]
    pub(super) time: Option<Duration>,
    /// End it: containers may get the addresses again
    #[arg(long, conflicts_with_all = ["note", "time", "force"])]
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
    /// Show one pool, and how much of each range is held
    Show(PoolShowArgs),
    /// Count how many addresses of each pool are held and free
    ///
    /// SIZE, HELD and FREE count the open ranges. DRAINING and CLOSED count what is still held in such
    /// ranges. OUTSIDE counts addresses of the pool that are in none of its ranges any more. COOLING counts
    /// addresses that were freed a short while ago, and so are not free. ASIDE counts the held addresses that
    /// are set aside.
    Status(PoolStatusArgs),
    /// Make or change the pools of a file
    ///
    /// Prints what changes, and who holds addresses outside of the open ranges after it. Asks, and
    /// writes each pool in one transaction. As soon as it has returned, no pod gets an address by the old
    /// text. Running pods keep their addresses. If a pool of the file is wrong, nothing is written.
    Apply(PoolApplyArgs),
    /// Print what `apply` would change
    Diff(PoolFileArgs),
    /// Give out no more addresses of a range; pods keep those that they have
    Drain(PoolDrainArgs),
    /// Give out no more addresses of a range, as `drain` does, and for good
    ///
    /// A pool can be deleted when all its ranges are closed.
    Close(PoolRangeArgs),
    /// Give out addresses of a range again
    Open(PoolRangeArgs),
    /// Delete a pool of which all ranges are closed and no address is held
    Delete(PoolDeleteArgs),
    /// Print pools as YAML that `apply` takes
    Export(PoolExportArgs),
    /// Make pools from the ranges of a NetworkAttachmentDefinition, and print them as YAML that `apply` takes
    ///
    /// It changes nothing and does not ask etcd. Apply the pools first, then the definition that
    /// --nad prints. Running pods keep their addresses. Stderr says what will be different.
    FromNad(PoolFromNadArgs),
    /// Say which pools `"pool": "auto"` chooses for a pod, and why
    ///
    /// A value that you do not give is unknown, as for the plugin if the runtime does not say it. Node,
    /// cluster and node labels come from the host file. With --node of another node, only the labels that you
    /// give are known. The exit code is 1 if there is no pool for the pod.
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
    /// A file with pools in YAML or JSON; it may have several documents; - for stdin
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
    /// Wait until nobody holds an address of the range; each time the holders change, print who is left
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
    named_kind(text).map(|kind| Explained(vec![kind]))
}

fn named_kind(text: &str) -> Result<Kind, String> {
    Kind::named(text).ok_or_else(|| {
        let known = Kind::ALL.map(Kind::name);
        let near = did_you_mean(text, &known, KIND_TYPOS);
        format!("there is no such kind{near}; `metes check --explain all` names them all")
    })
}

/// Which findings are to be mended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MendTarget {
    /// All violations.
    All,
    /// Those of a kind.
    Kind(Kind),
    /// Those about a key, as it is printed.
    Key(String),
}

impl fmt::Display for MendTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MendTarget::All => f.write_str("all"),
            MendTarget::Kind(kind) => kind.fmt(f),
            MendTarget::Key(key) => f.write_str(key),
        }
    }
}

fn mend_target(text: &str) -> Result<MendTarget, String> {
    match text {
        "all" => Ok(MendTarget::All),
        key if key.starts_with('/') => Ok(MendTarget::Key(key.to_owned())),
        kind => named_kind(kind).map(MendTarget::Kind),
    }
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

impl PodName {
    /// Whether that pod is meant.
    pub(super) fn is(&self, pod: &Pod) -> bool {
        pod.namespace == self.namespace && pod.name == self.name
    }
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
            "list --network a --limit 100",
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
            "check --mend undecodable-owner",
            "check --mend /metes/v1/junk --yes",
            "check --repair --mend all -y",
            "check --mend all --backup /x",
            "check --restore /x -y",
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
            "doctor -o yaml --timeout 1s",
            "map storage --as pool --by node -o svg",
            "map 10.0.0.0/24 --network a -o html",
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
            "list --limit 1 --watch",
            "list --timeout 0s",
            "pool show storage -o wide",
            "show",
            "release",
            "release nonsense",
            "check --yes",
            "check --explain stray",
            "check --mend stray",
            "check --mend",
            "check --backup /x",
            "check --mend all --restore /x",
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
            "map",
            "map storage --by pod",
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
