//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};
use clap_complete::Shell;

use super::check::CheckArgs;
use super::hold::{HoldArgs, HoldsArgs};
use super::input::duration;
use super::leaks::LeaksArgs;
use super::list::ListArgs;
use super::map::MapArgs;
use super::output::Output;
use super::pool::{POOL_AFTER_HELP, PoolVerb};
use super::release::ReleaseArgs;
use super::show::ShowArgs;
use super::top::TopArgs;
use super::usage::UsageArgs;
use super::validate::{VALIDATE_AFTER_HELP, ValidateArgs};
use super::version::VersionArgs;

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
    /// as much each time. `list --watch` and `pool drain --wait` have no limit unless it is given
    #[arg(long, global = true, value_name = "DURATION", value_parser = timeout)]
    pub(super) timeout: Option<Duration>,
    #[command(subcommand)]
    pub(super) verb: CliVerb,
}

/// A command, with the store or without it.
#[derive(Debug, Subcommand)]
pub(super) enum CliVerb {
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
    Doctor(Output),
    /// Print a script that makes a shell complete commands, flags and names
    ///
    /// For bash, in ~/.bashrc: source <(metes completion bash). Networks, pools, namespaces, pods and nodes are those
    /// that etcd knows. If it does not answer within a second, none is offered.
    Completion {
        /// The shell
        shell: Shell,
    },
    /// Show the version; with --server also the versions of etcd's members and of the stored records
    Version(VersionArgs),
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List the addresses that are held
    ///
    /// With --watch or --watch-only, it runs until Ctrl-C, or for the time of --timeout. Static addresses without a
    /// network are not watched.
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
    /// Check that all stored records fit together
    ///
    /// Reads everything at one moment and names each violation. The exit code is 1 if there is one.
    /// Bits that are set without a reservation are harmless: the exit code is 0.
    Check(CheckArgs),
    /// Free all addresses of owners (interfaces of containers)
    ///
    /// It frees all addresses of an owner, never one of several. Make sure that nothing uses them any
    /// more: they may be given out again at once. It shows what it would free, and asks once.
    ///
    /// With --now it frees nothing that is held: it ends the cooldown of addresses that were freed before.
    Release(ReleaseArgs),
    /// Set addresses aside, so that no container gets them, or keep them for a pod
    ///
    /// For a printer, a gateway, or a machine outside of the cluster. It is refused if somebody holds the
    /// address. If you give the note that the address already has, its time begins again with the new --for.
    ///
    /// With --pod the addresses stay with a pod's name: the pods of that name get them one after the other, on any
    /// node, if their network has `sticky`. If a container of such a pod has exactly these addresses, it goes on with
    /// them.
    Hold(HoldArgs),
    /// List the addresses that are set aside, or kept for pods
    Holds(HoldsArgs),
    /// Show and change named pools of addresses
    #[command(subcommand, after_help = POOL_AFTER_HELP)]
    Pool(PoolVerb),
}

fn timeout(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    if time.is_zero() { Err("expected more than 0s".to_owned()) } else { Ok(time) }
}

/// The answer to a call without arguments, as other plugins give it.
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
            "validate -o yaml",
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
            "release --now 10.0.0.1 blue/10.0.0.2 --network a",
            "release --container c1 --no-cooldown",
            "release -f - --yes",
            "top --by node -n 3 -o json",
            "leaks --node a -o name",
            "list --watch-only --network a -o json --timeout 1h",
            "list -w --namespace ns",
            "list storage --as network",
            "usage storage -o json",
            "release team-a/web-0 10.0.0.1 -y",
            "version --server -o yaml",
            "completion zsh",
            "doctor -o yaml --timeout 1s",
            "map storage --as pool --by node -o svg",
            "map 10.0.0.0/24 --network a -o html",
            "show c1 --node a --cluster east",
            "hold 10.0.0.1 --note printer",
            "hold 10.0.0.0/28 10.0.0.40-10.0.0.49 fd00::/118 --note printers",
            "hold 10.0.0.1 fd00::1 --network a --note x --for 365d",
            "hold --remove 10.0.0.1 --network a@00000000000000000000ffff0a000000-24",
            "hold 10.0.0.1 fd00::1 --pod a/b --interface net1 --cluster east --keep 7d --note x",
            "hold -f x --keep forever --network a",
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
            "pool drain storage -y",
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
            "list --as network",
            "list --pod web-0",
            "list --pod ns/",
            "list --network a/b",
            "list -o xml",
            "list --timeout soon",
            "list --limit 1 --watch",
            "list --watch --watch-only",
            "watch",
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
            "release --now",
            "release --now --container c1",
            "release --now 10.0.0.1 --no-cooldown",
            "release --container c1 --network a",
            "release a/b/10.0.0.1",
            "release blue/non/sense",
            "release 10.0.0.1 -f -",
            "hold --note x",
            "hold 10.0.0.1",
            "hold 10.0.0.1/24 --note x",
            "hold 10.0.0.9-10.0.0.5 --note x",
            "hold 10.0.0.1-fd00::1 --note x",
            "hold 10.0.0.0/16 --note x",
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
            "hold 10.0.0.1 --pod a/b",
            "hold 10.0.0.1 --pod b --interface net1",
            "hold 10.0.0.1 --pod a/b --interface net1 --for 1h",
            "hold 10.0.0.1 --pod a/b --interface net1 --keep 0s",
            "hold 10.0.0.1 --note x --keep 1d",
            "hold -f x 10.0.0.1",
            "hold -f x --pod a/b --interface net1",
            "hold -f x --remove",
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
            "pool close storage --range 10.0.0.0/24 --wait",
            "pool delete",
            "pool from-nad",
            "pool from-nad nad.yaml --name a/b",
            "validate -o name",
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
