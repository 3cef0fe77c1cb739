//! The command line.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Parser, Subcommand};
use metes_serve::listen::Listen;

/// The days for which the authority is valid.
pub(crate) const AUTHORITY_DAYS: i64 = 3650;

/// Puts metes and its host file on a node, and makes the certificates of its etcd
///
/// The pods of manifests/ run it. Exit codes: 0 done, 1 failed, 2 wrong usage.
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
    /// Make the certificates of etcd and its clients, as Secrets
    Certificates(CertificatesArgs),
    /// Give nodes certificates for etcd, each with a user of its own
    Signer(SignerArgs),
    /// Find out how this member of etcd begins, and run it
    Etcd(EtcdArgs),
    /// Look after the member of etcd on this node: users and roles, snapshots, defragmentation
    EtcdCare(EtcdCareArgs),
    /// Make etcd's users and roles what they should be, and switch authentication on
    EtcdRoles(MemberArgs),
    /// Shut out a node for good: its user of etcd and all of its certificates
    Revoke(RevokeArgs),
    /// Take a snapshot of the member on this node
    EtcdSnapshot(EtcdCareArgs),
    /// Give back the space of compacted revisions of the member on this node
    EtcdDefragment(MemberArgs),
    /// List the snapshots of etcd on this node
    Snapshots(SnapshotsArgs),
    /// Copy the newest snapshot of etcd on this node to another disk, if it is of the last day
    SnapshotCopy(SnapshotCopyArgs),
    /// Print a snapshot of etcd, to be restored
    SnapshotPrint(SnapshotPrintArgs),
    /// Restore this member of etcd from a snapshot
    EtcdRestore(EtcdRestoreArgs),
    /// Do nothing, in a pod in which people run commands
    Stay,
    /// Copy this program, for a container whose image has no other one
    Copy(CopyArgs),
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
    #[command(flatten)]
    pub(crate) runtime: RuntimeArgs,
    /// Get a certificate for this node alone from the signer of this name, in the place of the files that the host file
    /// names as cert_file and key_file
    #[arg(long, value_name = "NAME", env = "SIGNER", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) signer: Option<String>,
    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,
}

/// The metrics of this node.
#[derive(Debug, Args)]
pub(crate) struct MetricsArgs {
    /// Serve the metrics of this node here, by TLS, to clients with a certificate of the authority in ca_file:
    /// ADDRESS:PORT, or :PORT for every address of this node
    #[arg(long, value_name = "ADDRESS", env = "METRICS_LISTEN")]
    pub(crate) listen: Option<Listen>,
    /// For --listen: where this program finds what the plugin keeps on the node (spool_dir)
    #[arg(long, value_name = "FOLDER", default_value = "/var/lib/cni/metes")]
    pub(crate) state_dir: PathBuf,
}

/// What tells if the node's container runtime looks where the plugin goes.
#[derive(Debug, Args)]
pub(crate) struct RuntimeArgs {
    /// The path of --bin-dir on the node, if it differs
    #[arg(long, value_name = "FOLDER", env = "NODE_BIN_DIR")]
    pub(crate) node_bin_dir: Option<PathBuf>,
    /// The configuration of the node's container runtime, by its path on the node: containerd's, or crio.conf. Install
    /// only where it says that the runtime looks for plugins
    #[arg(long, value_name = "FILE", env = "RUNTIME_CONFIG")]
    pub(crate) runtime_config: Option<PathBuf>,
    /// Where the folder of that file is, if not at its path on the node
    #[arg(long, value_name = "FOLDER")]
    pub(crate) runtime_dir: Option<PathBuf>,
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
    #[command(flatten)]
    pub(crate) namespaces: NamespacesArgs,
    /// How many days certificates are valid, but for the authority's
    #[arg(
        long,
        value_name = "N",
        default_value_t = 365,
        value_parser = clap::value_parser!(i64).range(1..=AUTHORITY_DAYS)
    )]
    pub(crate) days: i64,
    /// Make all anew with the authority that is there, and not only those that have less than half of their time left
    #[arg(long)]
    pub(crate) renew: bool,
    /// Write all Secrets, made anew, to this file, and ask no API server
    #[arg(long, value_name = "FILE", conflicts_with = "renew")]
    pub(crate) out: Option<PathBuf>,
    /// For --out: tls.crt and tls.key of an authority that is there already
    #[arg(long, value_name = "FOLDER", requires_all = ["out", "node_ca"])]
    pub(crate) ca: Option<PathBuf>,
    /// For --out: the same of the authority of the nodes' identities
    #[arg(long, value_name = "FOLDER", requires = "out")]
    pub(crate) node_ca: Option<PathBuf>,
    /// Make one key for all nodes too, where they have no identities of their own
    #[arg(long)]
    pub(crate) one_key: bool,
}

/// Each Secret is where the pods are that mount it.
#[derive(Debug, Args)]
pub(crate) struct NamespacesArgs {
    /// The namespace of etcd and of what has its keys: the authority's Secret and those of etcd and the nodes
    #[arg(long, value_name = "NAME", env = "NAMESPACE", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) namespace: String,
    /// The namespace of all other pods, with their Secrets
    #[arg(
        long,
        value_name = "NAME",
        env = "PODS_NAMESPACE",
        default_value = "metes",
        value_parser = NonEmptyStringValueParser::new()
    )]
    pub(crate) pods_namespace: String,
}

#[derive(Debug, Args)]
pub(crate) struct SignerArgs {
    #[command(flatten)]
    pub(crate) template: TemplateArgs,
    /// The namespace of the installer's pods
    #[arg(long, value_name = "NAME", env = "NAMESPACE", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) namespace: String,
    /// tls.crt and tls.key of the authority of nodes
    #[arg(long, value_name = "FOLDER", default_value = "/etc/metes/node-ca")]
    pub(crate) authority: PathBuf,
    /// The seconds after which a node that is gone loses its user. For tests
    #[arg(long, value_name = "SECONDS", default_value_t = 24 * 3600, hide = true)]
    pub(crate) forget_seconds: u32,
}

/// One member of etcd.
#[derive(Debug, Args)]
pub(crate) struct MemberArgs {
    #[command(flatten)]
    pub(crate) template: TemplateArgs,
    /// This member's address
    #[arg(long, value_name = "ADDRESS", env = "NODE_IP")]
    pub(crate) node_ip: IpAddr,
    /// The configuration of all members
    #[arg(long, value_name = "FILE", default_value = "/etc/metes/etcd.json")]
    pub(crate) base: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct EtcdArgs {
    #[command(flatten)]
    pub(crate) member: MemberArgs,
    /// The configuration of this member, to be written
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// The size at which etcd takes no more writes; etcd's own without it
    #[arg(long, value_name = "BYTES")]
    pub(crate) quota_bytes: Option<u64>,
    /// etcd's program
    #[arg(long, value_name = "FILE", default_value = "/usr/local/bin/etcd")]
    pub(crate) etcd: PathBuf,
}

/// Where snapshots are kept, and how many.
#[derive(Debug, Args)]
pub(crate) struct KeptArgs {
    /// Where the snapshots are
    #[arg(long, value_name = "FOLDER", default_value = "/snapshots")]
    pub(crate) folder: PathBuf,
    /// How many snapshots stay when one is added
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) keep: u16,
}

#[derive(Debug, Args)]
pub(crate) struct EtcdCareArgs {
    #[command(flatten)]
    pub(crate) member: MemberArgs,
    /// The list of revoked certificates that this member reads, to be kept as it should be
    #[arg(long, value_name = "FILE")]
    pub(crate) crl: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) kept: KeptArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RevokeArgs {
    #[command(flatten)]
    pub(crate) member: MemberArgs,
    /// The node's name
    #[arg(value_name = "NODE", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) node: String,
}

#[derive(Debug, Args)]
pub(crate) struct SnapshotsArgs {
    /// Where the snapshots are
    #[arg(long, value_name = "FOLDER", default_value = "/snapshots")]
    pub(crate) folder: PathBuf,
    /// Stay after the list, as the pods of a DaemonSet must
    #[arg(long)]
    pub(crate) stay: bool,
    /// This node's name
    #[arg(long, value_name = "NAME", env = "NODE_NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) node: String,
}

#[derive(Debug, Args)]
pub(crate) struct SnapshotCopyArgs {
    /// Where this node's snapshots are
    #[arg(long, value_name = "FOLDER")]
    pub(crate) from: PathBuf,
    #[command(flatten)]
    pub(crate) kept: KeptArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SnapshotPrintArgs {
    /// Where the snapshots are
    #[arg(long, value_name = "FOLDER", default_value = "/snapshots")]
    pub(crate) folder: PathBuf,
    /// Which one; the newest without it
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct EtcdRestoreArgs {
    #[command(flatten)]
    pub(crate) template: TemplateArgs,
    /// This member's address
    #[arg(long, value_name = "ADDRESS", env = "NODE_IP")]
    pub(crate) node_ip: IpAddr,
    /// The snapshot, the same one for all members
    #[arg(long, value_name = "FILE", default_value = "/snapshots/restore.db")]
    pub(crate) snapshot: PathBuf,
    /// The data of the member: what is there is set aside
    #[arg(long, value_name = "FOLDER", default_value = "/var/lib/etcd/data")]
    pub(crate) data_dir: PathBuf,
    /// etcd's program that restores
    #[arg(long, value_name = "FILE", default_value = "/usr/local/bin/etcdutl")]
    pub(crate) etcdutl: PathBuf,
    /// Do nothing if the member has been restored under this name before: the UID of a pod, which may start again
    #[arg(long, value_name = "NAME", env = "POD_UID", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) once_for: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CopyArgs {
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
        assert_eq!(install.runtime.runtime_config, None);
        for good in [
            "install --node n --runtime-config /etc/crio/crio.conf --runtime-dir /r --node-bin-dir /b",
            "install --node n --signer metes.dev/etcd-client",
            "install --node n --listen 10.0.0.1:12383 --state-dir /s",
            "install --node n --listen fd00::1:12383",
            "uninstall --wait",
            "certificates --namespace metes-system --days 3650",
            "certificates --namespace metes-system --pods-namespace metes --renew",
            "certificates --namespace metes-system --out x --ca y --node-ca z",
            "certificates --namespace metes-system --one-key",
            "signer --namespace metes-system --authority /x",
            "etcd --node-ip fd00::1 --out x --quota-bytes 1610612736 --etcd /y",
            "etcd-care --node-ip fd00::1 --keep 1 --folder /x",
            "etcd-care --node-ip 10.0.0.1 --crl /var/lib/etcd/data.crl",
            "etcd-roles --node-ip 10.0.0.1",
            "revoke n1 --node-ip 10.0.0.1",
            "etcd-snapshot --node-ip 10.0.0.1",
            "snapshots --node n --stay",
            "snapshot-copy --from /node --folder /x --keep 14",
            "snapshot-print",
            "snapshot-print etcd-20261123T024701Z.db --folder /x",
            "etcd-restore --node-ip 10.0.0.1",
            "copy --out /tools/metes-install",
            "stay",
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
            "install --node n --signer=",
            "install --node n --listen 12383",
            "-x",
            "uninstall --once",
            "uninstall --wait=1",
            "certificates",
            "certificates --namespace metes-system --days 3651",
            "certificates --namespace metes-system --days 0",
            "certificates --namespace metes-system --out x --renew",
            "certificates --namespace metes-system --ca y",
            "certificates --namespace metes-system --node-ca y",
            "etcd --node-ip node --out x",
            "etcd-care --node-ip 10.0.0.1 --keep 0",
            "revoke --node-ip 10.0.0.1",
            "snapshots --node n --keep 1",
            "snapshots --node=",
            "snapshot-copy",
            "etcd-restore --node-ip node",
            "copy",
        ] {
            assert_eq!(parse(bad).map_err(|e| e.exit_code()).err(), Some(2), "{bad}");
        }
    }
}
