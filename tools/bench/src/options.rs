//! The options.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// Times whole processes of metes against the least that any plugin on etcd must do, prints a table with the marks,
/// and says of each mark whether it is met. It exits with 0 either way.
///
/// The binary is the one of the plain workspace build, or $METES_BIN. The server is an etcd of its own that waits for
/// the disk. Run it on an idle machine.
#[derive(Debug, Parser)]
#[command(name = "hack/bench", bin_name = "hack/bench")]
pub(crate) struct Options {
    /// Measures this section alone; may be given several times
    #[arg(long, value_enum, value_name = "SECTION")]
    only: Vec<Section>,
    /// Measures every verb as a ratio to the floor, on one member, and on three whose links take 5 ms
    #[arg(long, conflicts_with_all = ["only", "links_ms"])]
    pub(crate) verbs: bool,
    /// How often each single process is run
    #[arg(long, default_value_t = 500, value_parser = at_least_one, value_name = "N")]
    pub(crate) rounds: usize,
    /// How often all of it is measured: a mark is judged by the median of the runs
    #[arg(long, default_value_t = 1, value_parser = at_least_one, value_name = "N")]
    pub(crate) runs: usize,
    /// How many processes a storm has. The marks are meant for 2048
    #[arg(long, default_value_t = 2048, value_parser = at_least_32, value_name = "N")]
    pub(crate) storm: usize,
    /// How many addresses are held in each large network. The marks are meant for 1000000, which takes some minutes
    #[arg(long, default_value_t = 100_000, value_parser = at_least_one, value_name = "N")]
    pub(crate) held: usize,
    /// How many milliseconds the links of the section slow take one way; the marks are meant for 1 and 5
    #[arg(long, value_delimiter = ',', default_value = "0,1,5", value_name = "MS")]
    links_ms: Vec<u64>,
    /// Another IPAM plugin, to be measured in the sections single and storms
    #[arg(long, value_name = "BINARY", requires = "peer_conf")]
    pub(crate) peer: Option<PathBuf>,
    /// The network configuration that the other plugin gets on stdin; several are taken in turn in storms
    #[arg(long, value_name = "FILE", requires = "peer")]
    pub(crate) peer_conf: Vec<PathBuf>,
    /// Writes everything there, with the quantiles of each kind of process
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Draws the distributions there
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}

/// A part of the measurement, with a server of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Section {
    /// One process after the other
    Single,
    /// Thousands of processes, 128 at a time
    Storms,
    /// Both over mTLS
    Tls,
    /// ADDs from pools of 2 and 200 ranges, beside those from the same ranges in the configuration
    Pools,
    /// Large networks, space per address, long queues
    Size,
    /// Commands for people in a network of `--held` addresses, beside one of ten
    Commands,
    /// Memory, threads, instructions, the binary
    Process,
    /// Three members of etcd, one of which fails
    Cluster,
    /// Three members of etcd whose links to each other take a while
    Slow,
    /// 256 nodes with a range each in one page, beside as many that share one
    Slices,
    /// ADDs beside others that are killed, members that are killed, an etcd that is far away
    Deaths,
    /// Puts while etcd gets a user for each of 2,000 nodes
    Identities,
}

impl Options {
    /// The times of the links of the section slow.
    pub(crate) fn links_ms(&self) -> &[u64] {
        if self.verbs { &[5] } else { &self.links_ms }
    }

    pub(crate) fn asks_for(&self, section: Section) -> bool {
        match self.verbs {
            true => section == Section::Slow,
            false => self.only.is_empty() || self.only.contains(&section),
        }
    }
}

fn at_least_one(text: &str) -> Result<usize, String> {
    at_least(1, text)
}

/// The least number of processes: each of sixteen networks needs one to add and one to delete.
fn at_least_32(text: &str) -> Result<usize, String> {
    at_least(32, text)
}

fn at_least(least: usize, text: &str) -> Result<usize, String> {
    let number = text.parse::<usize>().map_err(|error| error.to_string())?;
    if number >= least { Ok(number) } else { Err(format!("at least {least}")) }
}
