//! The command line.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Parser, Subcommand};

/// How long the authority is valid.
pub(crate) const AUTHORITY_DAYS: i64 = 3650;

/// Puts metes and its host file on a node, and makes the certificates of its etcd
///
/// The pods of manifests/ run it. Exit codes: 0 done, 1 it failed, 2 it was called wrongly.
#[derive(Debug, Parser)]
#[command(name = "metes-install", version)]
pub(crate) struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Put metes and its host file on this node, and keep them there
    Install(InstallArgs),
    /// Remove metes from this node, unless something on it holds an address
    Uninstall(UninstallArgs),
    /// Make etcd's certificates, as Secrets for kubectl
    Certificates(CertificatesArgs),
    /// Write this member's configuration of etcd
    EtcdConfig(EtcdConfigArgs),
}

/// The host file of all nodes.
#[derive(Debug, Args)]
pub(crate) struct TemplateArgs {
    /// The host file of all nodes
    #[arg(long, value_name = "FILE", default_value = "/etc/metes/metes.conf")]
    pub(crate) template: PathBuf,
}

/// Where metes is, and where it goes.
#[derive(Debug, Args)]
pub(crate) struct NodeArgs {
    /// The plugin
    #[arg(long, value_name = "FILE", default_value = "/metes")]
    pub(crate) binary: PathBuf,
    /// Where the plugin goes
    #[arg(long, value_name = "FOLDER", default_value = "/opt/cni/bin")]
    pub(crate) bin_dir: PathBuf,
    /// Where the host file goes, by its path on the node
    #[arg(long, value_name = "FOLDER", default_value = "/etc/cni/net.d/metes.d")]
    pub(crate) host_dir: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct InstallArgs {
    /// Install once, and end
    #[arg(long, conflicts_with = "check")]
    pub(crate) once: bool,
    /// Change nothing, and fail if anything is not as it should be
    #[arg(long)]
    pub(crate) check: bool,
    #[command(flatten)]
    pub(crate) template: TemplateArgs,
    /// This node's name
    #[arg(long, value_name = "NAME", env = "NODE_NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) node: String,
    #[command(flatten)]
    pub(crate) place: NodeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct UninstallArgs {
    /// Try again until nothing holds an address, and stay after that
    #[arg(long, conflicts_with = "check")]
    pub(crate) wait: bool,
    /// Change nothing, and fail if anything of metes is there
    #[arg(long)]
    pub(crate) check: bool,
    /// This node's name, if its host file has none
    #[arg(long, value_name = "NAME", env = "NODE_NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) node: Option<String>,
    #[command(flatten)]
    pub(crate) place: NodeArgs,
    /// What the plugin keeps on the node
    #[arg(long, value_name = "FOLDER", default_value = "/var/lib/cni/metes")]
    pub(crate) state_dir: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct CertificatesArgs {
    #[command(flatten)]
    pub(crate) template: TemplateArgs,
    /// The namespace of the Secrets and of etcd's Service
    #[arg(long, value_name = "NAME", env = "NAMESPACE", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) namespace: String,
    /// tls.crt and tls.key of an authority that is there already
    #[arg(long, value_name = "FOLDER", default_value = "/etc/metes/ca")]
    pub(crate) ca: PathBuf,
    /// How many days certificates are valid, but for the authority's
    #[arg(
        long,
        value_name = "N",
        default_value_t = 365,
        value_parser = clap::value_parser!(i64).range(1..=AUTHORITY_DAYS)
    )]
    pub(crate) days: i64,
    /// What to write
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct EtcdConfigArgs {
    #[command(flatten)]
    pub(crate) template: TemplateArgs,
    /// This member's address
    #[arg(long, value_name = "ADDRESS", env = "NODE_IP")]
    pub(crate) node_ip: IpAddr,
    /// The configuration of all members
    #[arg(long, value_name = "FILE", default_value = "/etc/metes/etcd.json")]
    pub(crate) base: PathBuf,
    /// What to write
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepted_and_refused() {
        let parse =
            |line: &str| Arguments::try_parse_from(["metes-install"].into_iter().chain(line.split(' ')));
        let install = parse("install --once --node n2 --binary=/x").expect("valid").verb;
        let Verb::Install(install) = install else { panic!("another verb") };
        assert!(install.once && !install.check);
        assert_eq!((install.node.as_str(), install.place.binary), ("n2", "/x".into()));
        assert_eq!(install.place.bin_dir, PathBuf::from("/opt/cni/bin"));
        for good in [
            "uninstall --wait",
            "certificates --namespace metes --out x --days 3650",
            "etcd-config --node-ip fd00::1 --out x",
        ] {
            assert!(parse(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "remove",
            "install extra --node n",
            "install --node",
            "install --node=",
            "install --node n --once --check",
            "install --nodes n1",
            "-x",
            "uninstall --once",
            "uninstall --wait=1",
            "certificates --namespace metes",
            "certificates --namespace metes --out x --days 3651",
            "certificates --namespace metes --out x --days 0",
            "etcd-config --node-ip node --out x",
        ] {
            assert_eq!(parse(bad).map_err(|e| e.exit_code()).err(), Some(2), "{bad}");
        }
    }
}
