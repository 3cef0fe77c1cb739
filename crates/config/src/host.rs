//! The host file: root's word on the etcd that is meant, the name of this node, and the rights of networks.
//!
//! Errors name keys and the expected form, but never repeat the content of the file: they reach everybody who may read
//! a pod's events.

use std::collections::BTreeMap;

use super::etcd::{self, EtcdConfig};
use super::keys::{self, Findings, Level};
use super::settings::{Allowed, AllowedNetwork, HostFile, LogLevel, Rule, Settings};
use crate::cni::address::{Zeros, parse_prefix};
use crate::cni::section::Shows;
use crate::cni::{Error, Json, Section};
use metes_core::limits;
use metes_core::pool::{ClusterName, NetworkName, NodeLabels, NodeName};

/// The largest host file that is read, in bytes.
pub(crate) const MAX_HOST_FILE_BYTES: usize = limits::INPUT_BYTES as usize;

/// The beginning of errors about a text that has no keys.
pub(crate) const NOT_JSON: &str = "the host file is not a JSON object";

/// The longest grace of GC: a year, in seconds.
const GC_GRACE_MAX_S: u64 = 365 * 24 * 3600;

/// The most labels of a node.
const NODE_LABELS_MAX: usize = 64;
/// The longest name of a label, in bytes.
const LABEL_NAME_MAX: usize = 253;
/// The longest value of a label, in bytes.
const LABEL_VALUE_MAX: usize = 63;

const KEYS: [&str; 19] = [
    "etcd",
    "other_prefixes",
    "node_name",
    "node_labels",
    "cluster",
    "spool_dir",
    "gc_grace_s",
    "log_file",
    "log_level",
    "allow_plaintext",
    "allowed",
    "pools_only",
    "resolv_conf",
    "etcd_host",
    "etcd_username",
    "etcd_password",
    "etcd_key_file",
    "etcd_cert_file",
    "etcd_ca_cert_file",
];

/// Without one of these that was meant, others than the addresses that are meant may be given, or under other names, or
/// more may be allowed.
pub(super) const LEVEL: Level<'_> = Level {
    known: &KEYS,
    deciding: &[
        "etcd",
        "etcd_host",
        "node_labels",
        "allowed",
        "pools_only",
        "resolv_conf",
        "cluster",
        "node_name",
    ],
};

/// True if a host file has this key, or one that most likely means it, or if the key says at the top level where etcd
/// is.
#[must_use]
pub fn is_key(key: &str) -> bool {
    let is_of_etcd = keys::nearest(key, keys::ETCD.deciding, 0).is_some();
    is_of_etcd || keys::nearest(key, &KEYS, keys::SLIP_EDITS).is_some()
}

impl Default for HostFile {
    /// A file without keys.
    fn default() -> Self {
        Self::parse(b"{}").expect("every key is optional")
    }
}

impl HostFile {
    /// Reads the content of the file at a path, which all errors name.
    ///
    /// # Errors
    /// As [`HostFile::parse`].
    pub fn parse_at(path: &str, bytes: &[u8]) -> Result<HostFile, Error> {
        let of_file = |e: Error| Error { msg: format!("host file {path}: {}", e.msg), ..e };
        let Self(settings) = Self::parse(bytes).map_err(of_file)?;
        Ok(Self(Settings { unclear: settings.unclear.map(of_file), ..settings }))
    }

    /// Reads the content of the file.
    ///
    /// # Errors
    /// Code 7, naming the key.
    pub fn parse(bytes: &[u8]) -> Result<HostFile, Error> {
        let not_json = |why: &str| Error::invalid_config(format!("{NOT_JSON}: {why}"));
        if bytes.len() > MAX_HOST_FILE_BYTES {
            return Err(not_json("it is larger than 1 MiB"));
        }
        let json = Json::parse(bytes).map_err(|e| match bytes.trim_ascii_start().first() {
            None => not_json("it is empty; {} is one without keys"),
            Some(b'{' | b'[') => not_json(&e.to_string()),
            Some(_) => {
                not_json(&format!("it has no {{ at line {}, where it begins, and YAML is not read", e.line()))
            }
        })?;
        let pairs = json.pairs().ok_or_else(|| not_json(&format!("it is {}", json.kind())))?;
        Self::read(&Section::new("", pairs, Shows::Kinds))
    }

    fn read(file: &Section<'_>) -> Result<HostFile, Error> {
        let Findings { refused, is_store_unclear, mut notes, .. } = keys_found(file)?;
        let refused = refused.map(|why| {
            Error::invalid_config(why)
                .with_details("correct the key or remove it: metes does not guess what you mean")
        });
        // A value that is missing may stand where it is not read.
        let values = Self::values(file).map_err(|e| refused.clone().unwrap_or(e))?;
        if values.log_level.is_none() && file.has("log_level") {
            let expected = LogLevel::EXPECTED;
            notes.push(format!("`log_level` must be {expected}: {:?} is used", LogLevel::default().name()));
        }
        Ok(Self(Settings { unclear: refused, is_store_unclear, notes, ..values }))
    }

    fn values(file: &Section<'_>) -> Result<Settings, Error> {
        let defaults = Settings::defaults(EtcdConfig::of_host_file(file)?);
        Ok(Settings {
            node_name: file.parsed("node_name", NodeName::EXPECTED, |text| text.parse().ok())?,
            node_labels: node_labels(file)?,
            cluster: file.parsed("cluster", ClusterName::EXPECTED, |text| text.parse().ok())?,
            spool_dir: path(file, "spool_dir")?.unwrap_or(defaults.spool_dir),
            other_prefixes: file.parsed_list("other_prefixes", etcd::PREFIX_EXPECTED, etcd::prefix)?,
            gc_grace_s: gc_grace_s(file)?.unwrap_or(defaults.gc_grace_s),
            log_file: path(file, "log_file")?,
            log_level: file.text("log_level")?.and_then(LogLevel::parse),
            allow_plaintext: file.flag("allow_plaintext")?.unwrap_or(false),
            allowed: read_allowed(file)?,
            pools_only: file.flag("pools_only")?.unwrap_or(false),
            resolv_conf: resolv_conf(file)?.unwrap_or(defaults.resolv_conf),
            rule: Rule::HostFile,
            ..defaults
        })
    }
}

fn path(file: &Section<'_>, key: &str) -> Result<Option<String>, Error> {
    file.parsed(key, "a path that starts with /", absolute)
}

fn resolv_conf(file: &Section<'_>) -> Result<Option<Vec<String>>, Error> {
    let paths = file.parsed_list("resolv_conf", "a path that starts with /", absolute)?;
    Ok(file.get("resolv_conf").map(|_| paths))
}

fn absolute(text: &str) -> Option<String> {
    text.starts_with('/').then(|| text.to_owned())
}

fn gc_grace_s(file: &Section<'_>) -> Result<Option<u64>, Error> {
    let seconds = |n: i64| u64::try_from(n).ok().filter(|n| *n <= GC_GRACE_MAX_S);
    match file.integer("gc_grace_s")? {
        None => Ok(None),
        Some(n) => {
            seconds(n).map(Some).ok_or_else(|| file.invalid("gc_grace_s", "seconds, from 0 to a year"))
        }
    }
}

/// Labels by name. Names keep their case, as in Kubernetes.
fn node_labels(file: &Section<'_>) -> Result<NodeLabels, Error> {
    let Some(section) = file.section("node_labels")? else { return Ok(NodeLabels::default()) };
    if section.pairs().len() > NODE_LABELS_MAX {
        return Err(Error::invalid_config(format!(
            "`node_labels` has {} labels: expected at most {NODE_LABELS_MAX}",
            section.pairs().len()
        )));
    }
    let mut labels = NodeLabels::default();
    for pair in section.pairs() {
        let name = &pair.0;
        if !(1..=LABEL_NAME_MAX).contains(&name.len()) || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Error::invalid_config(format!(
                "`node_labels` has a name that no label can have: expected 1 to {LABEL_NAME_MAX} visible ASCII \
                 characters"
            )));
        }
        // A section of this pair alone: keys of sections match in any case.
        let alone = Section::new("node_labels", std::slice::from_ref(pair), Shows::Kinds);
        let is_value = |text: &str| text.len() <= LABEL_VALUE_MAX && !text.chars().any(char::is_control);
        let expected = format!("a string of at most {LABEL_VALUE_MAX} bytes without control characters");
        let value = alone.parsed(name, &expected, |text| is_value(text).then(|| text.to_owned()))?;
        labels.insert(name.clone(), value.unwrap_or_default());
    }
    Ok(labels)
}

/// The networks, or the word that leaves all to their authors.
fn read_allowed(file: &Section<'_>) -> Result<Allowed, Error> {
    match file.get("allowed") {
        None => Ok(Allowed::Unsaid),
        Some(word) if word.text() == Some(Allowed::ANY) => Ok(Allowed::Any),
        Some(networks) if networks.pairs().is_none() => Err(file
            .invalid("allowed", &format!("an object with a key for each network, or {:?}", Allowed::ANY))
            .with_details("`metes validate --print-allowed FILES` prints it for network definitions")),
        Some(_) => Ok(match file.section("allowed")? {
            Some(networks) => Allowed::Networks(allowed_networks(&networks)?),
            None => Allowed::Unsaid,
        }),
    }
}

/// Networks by name. Names keep their case: `a` and `A` are two networks. Each has an array of prefixes, or an object
/// of `prefixes`, `pools` and `namespaces`.
fn allowed_networks(section: &Section<'_>) -> Result<BTreeMap<NetworkName, AllowedNetwork>, Error> {
    let mut allowed = BTreeMap::new();
    for pair in section.pairs() {
        let network = NetworkName::configured(&pair.0).map_err(|e| {
            Error::invalid_config(format!(
                "`allowed` has a name that no network can have: expected {}",
                e.expected
            ))
        })?;
        // A section of this pair alone: keys of sections match in any case.
        let alone = Section::new("allowed", std::slice::from_ref(pair), Shows::Kinds);
        let prefixes = |section: &Section<'_>, key: &str| {
            section
                .parsed_list(key, "a prefix such as 10.0.0.0/24", |text| parse_prefix(text, Zeros::Refused))
        };
        if pair.1.pairs().is_none() {
            let prefixes = prefixes(&alone, &pair.0)?;
            allowed.insert(network, AllowedNetwork { prefixes, ..AllowedNetwork::default() });
            continue;
        }
        let Some(both) = alone.section(&pair.0)? else { continue };
        let is_known = |key: &str| matches!(key, "prefixes" | "pools" | "namespaces");
        if let Some((key, _)) = both.pairs().iter().find(|(key, _)| !is_known(key)) {
            return Err(Error::invalid_config(format!(
                "`{}` is unknown: expected `prefixes`, `pools` or `namespaces`",
                both.at(key)
            )));
        }
        let prefixes = prefixes(&both, "prefixes")?;
        let pools = both.parsed_list("pools", "the name of a pool", |text| text.parse().ok())?;
        let namespace = |text: &str| is_namespace(text).then(|| text.to_owned());
        let namespaces = both.parsed_list("namespaces", "a namespace of Kubernetes", namespace)?;
        let namespaces = both.get("namespaces").map(|_| namespaces.into_iter().collect());
        allowed.insert(network, AllowedNetwork { prefixes, pools: pools.into_iter().collect(), namespaces });
    }
    Ok(allowed)
}

/// True if Kubernetes can have a namespace of that name: no other is ever equal to one.
fn is_namespace(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(is_inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

fn keys_found(file: &Section<'_>) -> Result<Findings, Error> {
    let mut found = Findings::default();
    found.own_beside(file, &LEVEL, ("etcd", &keys::ETCD));
    if let Some(labels) = file.section("node_labels")? {
        found.names_once(&labels);
    }
    // What it must be is said where it is read.
    if let Ok(Some(allowed)) = file.section("allowed") {
        found.names_once(&allowed);
        let networks = allowed.pairs().iter().filter_map(|(name, of)| Some((name, of.pairs()?)));
        networks.for_each(|(name, of)| {
            found.names_once(&Section::new(&allowed.at(name), of, Shows::Kinds));
        });
    }
    if let Some(etcd) = file.section("etcd")? {
        found.own_beside(&etcd, &keys::ETCD, ("", &LEVEL));
    }
    Ok(found)
}
