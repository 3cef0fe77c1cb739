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
    /// How many networks "many networks" are.
    #[arg(long, default_value_t = 64, value_parser = at_least_one)]
    pub(crate) networks: usize,
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
}

impl Args {
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
