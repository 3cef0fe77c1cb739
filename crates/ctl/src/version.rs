//! `metes version`.

use std::process::ExitCode;
use std::slice;

use clap::Args;
use serde::Serialize;
use tokio::time::Instant;

use super::output::Output;
use super::table::{or_dash, table};
use super::{CliError, Terminal};
use metes_config::Settings;
use metes_config::cni::{Error, Version};
use metes_core::keys::Keys;
use metes_core::limits;
use metes_core::pool::{Meta, VERSION};
use metes_core::snapshot::Snapshot;
use metes_engine::kv::Kv;
use metes_engine::session::Session;
use metes_node::files::Trust;
use metes_node::setup;

#[derive(Debug, Args)]
pub(super) struct VersionArgs {
    /// Ask etcd, too
    #[arg(long)]
    server: bool,
    #[command(flatten)]
    output: Output,
}

/// Prints the version of this program and, if they are asked for, those of etcd's members and of the store.
pub(super) async fn version(
    settings: impl FnOnce() -> Result<Settings, Error>,
    args: &VersionArgs,
    terminal: &mut Terminal<'_>,
) -> Result<ExitCode, CliError> {
    let refused = |error: Error| CliError::Refused(error.to_string());
    let server = match args.server {
        true => Some(ServerVersions::ask(&settings().map_err(refused)?).await.map_err(refused)?),
        false => None,
    };
    let is_known = |server: &ServerVersions| {
        server.unreadable.is_none() && server.members.iter().any(|one| one.version.is_some())
    };
    let is_known = server.as_ref().is_none_or(is_known);
    let cni = Version::ALL.map(Version::name).to_vec();
    let client = ClientVersion { version: env!("CARGO_PKG_VERSION"), records: VERSION, cni };
    let versions = Versions { client, server };
    terminal.document(&versions, args.output.format, || versions.words())?;
    Ok(if is_known { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[derive(Serialize)]
struct Versions {
    client: ClientVersion,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<ServerVersions>,
}

#[derive(Serialize)]
struct ClientVersion {
    version: &'static str,
    /// The version of the records that it reads and writes.
    records: u32,
    /// The versions of CNI that it speaks.
    cni: Vec<&'static str>,
}

#[derive(Serialize)]
struct ServerVersions {
    members: Vec<MemberVersion>,
    /// None if nothing is stored, or it cannot be read.
    store: Option<StoreVersion>,
    /// Why it cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    unreadable: Option<String>,
}

/// A member of etcd, or why its version is not known.
#[derive(Serialize)]
struct MemberVersion {
    endpoint: String,
    version: Option<String>,
    why: Option<String>,
}

#[derive(Serialize)]
struct StoreVersion {
    records: u32,
    /// The oldest version of a writer that may write.
    min_writer: u32,
    epoch: u64,
    id: String,
}

impl ServerVersions {
    /// Asks each member by itself, and the first that answers for the store.
    async fn ask(settings: &Settings) -> Result<Self, Error> {
        let keys = Keys::new(&settings.prefix);
        let mut versions = Self { members: Vec::new(), store: None, unreadable: None };
        for endpoint in &settings.endpoints {
            let alone = Settings { endpoints: vec![endpoint.clone()], ..settings.clone() };
            let kv = metes_etcd::open(setup::access(&alone, Trust::of_commands(), limits::UNREACHABLE)?);
            let session = Session { kv: &kv, keys: &keys, until: Instant::now() + limits::UNREACHABLE };
            let (version, why) = match kv.about(session.until).await {
                Ok(about) => (Some(about.version), None),
                Err(failure) => (None, Some(failure.to_string())),
            };
            if version.is_some() && versions.store.is_none() {
                match stored(session).await {
                    Ok(store) => (versions.store, versions.unreadable) = (store, None),
                    Err(why) => versions.unreadable = Some(why),
                }
            }
            versions.members.push(MemberVersion { endpoint: endpoint.url(), version, why });
        }
        Ok(versions)
    }
}

/// The store's versions; none if nothing is stored. Else why they cannot be read.
async fn stored<K: Kv>(session: Session<'_, K>) -> Result<Option<StoreVersion>, String> {
    let mut snapshot = Snapshot::default();
    let key = session.keys.meta();
    let read = session.read(slice::from_ref(&key), &mut snapshot).await;
    read.map_err(|failure| format!("{failure}; {}", failure.remedy()))?;
    let meta: Option<Meta> =
        snapshot.record(&key).map_err(|_| "its meta does not decode; metes check says more")?;
    let version = |meta: Meta| {
        let Meta { min_writer, epoch, .. } = meta;
        StoreVersion { records: meta.schema(), min_writer, epoch, id: meta.id }
    };
    Ok(meta.map(version))
}

impl Versions {
    fn words(&self) -> String {
        let ClientVersion { version, records, cni } = &self.client;
        let mut text = format!("metes {version}, records of version {records}, CNI {}\n", cni.join(", "));
        let Some(ServerVersions { members, store, unreadable }) = &self.server else { return text };
        let row = |member: &MemberVersion| {
            [member.endpoint.clone(), or_dash(member.version.as_deref().or(member.why.as_deref()))]
        };
        text.push_str(&table(["ENDPOINT", "ETCD"], &members.iter().map(row).collect::<Vec<_>>()));
        text.push_str(&match (store, unreadable) {
            (Some(StoreVersion { records, min_writer, epoch, id }), _) => format!(
                "store {id}: records of version {records} for writers of version {min_writer} or newer, epoch {epoch}\n"
            ),
            (None, Some(why)) => format!("store: it cannot be read: {why}\n"),
            (None, None) if members.iter().all(|one| one.version.is_none()) => String::new(),
            (None, None) => "store: nothing of metes is in it yet\n".to_owned(),
        });
        text
    }
}
