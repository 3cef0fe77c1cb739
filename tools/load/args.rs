//! The flags.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use metes_core::pool::Order;

const LIMITS: &str = "\
What limits a step (the last column of the table):
  cores  etcd, this generator and others used nearly all that the machine has.
  disk   etcd's log waited for the disk nearly all the time.
  turns  neither: requests waited for each other, in etcd's log or in the queue of one network.";

/// Measures how many ADDs a second many virtual nodes get through, next to plain puts on the same etcd.
#[derive(Parser)]
#[command(name = "hack/load", bin_name = "hack/load", after_help = LIMITS)]
pub(crate) struct Args {
    /// An etcd to use, http://HOST:PORT; without it one of its own is started.
    #[arg(long, conflicts_with = "links_ms")]
    pub(crate) endpoint: Option<String>,
    /// Starts three members whose links to each other take so many milliseconds one way; nodes use them in turn.
    #[arg(long, value_name = "MS")]
    links_ms: Option<u64>,
    /// A file that gets the figures as JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Threads of the generator, each with an equal share of the virtual nodes.
    #[arg(long, default_value_t = 1, value_parser = at_least_one)]
    pub(crate) threads: usize,
    /// How many clients do plain puts, and how many nodes do ADDs on many networks.
    #[arg(long, default_value_t = 64, value_parser = at_least_one)]
    pub(crate) clients: usize,
    /// How many networks "many networks" are [default: 64], or how many each pod of --cluster has [default: 16].
    #[arg(long, value_parser = at_least_one)]
    networks: Option<usize>,
    /// How often puts and ADDs on many networks are compared.
    #[arg(long, default_value_t = 3, value_parser = at_least_one)]
    pub(crate) rounds: usize,
    /// For how many seconds each step starts new requests.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// The numbers of virtual nodes on one network; 0 for no curve.
    #[arg(long, value_delimiter = ',', default_value = "1,2,5,10,20,50,100,200,500,1000")]
    curve: Vec<usize>,
    /// Each node keeps at most 8 addresses and gives the oldest back for each further one.
    #[arg(long)]
    pub(crate) dels: bool,
    /// The order of allocation.
    #[arg(long, value_parser = order_names(), default_value = "lowest")]
    pub(crate) order: Order,
    /// Turns a cluster on instead of all this: every node has a pod that wants its networks, at once. Three members
    /// with TLS, and links of 1 ms or --links-ms; floors before and after it. Give it a machine for itself.
    #[arg(long, conflicts_with_all = ["endpoint", "clients", "rounds", "seconds", "curve", "dels"])]
    pub(crate) cluster: bool,
    /// How many nodes --cluster has.
    #[arg(long, requires = "cluster", default_value_t = 2000, value_parser = at_least_one)]
    pub(crate) nodes: usize,
    /// How many pods each of them starts at once.
    #[arg(long, requires = "cluster", default_value_t = 1, value_parser = at_least_one)]
    pub(crate) pods: usize,
    /// How many pods are started at a time, at most, and so how many runs of the plugin there are: the other pods wait
    /// for their turn, as if their nodes were turned on later.
    #[arg(long, requires = "cluster", value_name = "PODS", value_parser = at_least_one)]
    pub(crate) in_flight: Option<usize>,
    /// The nodes and the store are new: no node has a mark, and the store has no meta.
    #[arg(long, requires = "cluster")]
    pub(crate) new: bool,
}

impl Args {
    /// Of "many networks".
    pub(crate) fn networks(&self) -> usize {
        self.networks.unwrap_or(64)
    }

    /// Of each pod of a cluster.
    pub(crate) fn pod_networks(&self) -> usize {
        self.networks.unwrap_or(16)
    }

    /// Of the members of a cluster.
    pub(crate) fn cluster_links(&self) -> Duration {
        self.links().unwrap_or(Duration::from_millis(1))
    }

    pub(crate) fn window(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    pub(crate) fn links(&self) -> Option<Duration> {
        self.links_ms.map(Duration::from_millis)
    }

    pub(crate) fn curve(&self) -> impl Iterator<Item = usize> + '_ {
        self.curve.iter().copied().filter(|&nodes| nodes > 0)
    }
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number @ 1..) => Ok(number),
        _ => Err("a number from 1 on".to_owned()),
    }
}

fn order_names() -> impl TypedValueParser<Value = Order> {
    PossibleValuesParser::new(Order::ALL.map(Order::name))
        .try_map(|name| Order::named(&name).ok_or("no order"))
}
