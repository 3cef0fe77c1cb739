//! The settings of the program besides the network configuration, and the rules of trust.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnetwork::IpNetwork;

use super::etcd::{Endpoint, EtcdConfig, Login, Scheme, StoreKeys, TlsFiles};
use super::network::Config;
use super::sections::document;
use crate::cni::{Error, Request, Verb};
use metes_core::pool::{ClusterName, NetworkName, NodeLabels, NodeName, PoolName, some_of};

/// The default folder for the state of a node.
pub(crate) const DEFAULT_SPOOL_DIR: &str = "/var/lib/cni/metes";

/// The only file that `resolvConf` may name by default. Everybody may read it.
const DEFAULT_RESOLV_CONF: &str = "/etc/resolv.conf";

/// GC's grace by default, in seconds.
pub(crate) const DEFAULT_GC_GRACE_S: u64 = 300;

/// The variable in a runtime's environment that lets networks say where etcd is, on a node without a host file.
pub const ALLOW_NAD_ETCD: &str = "METES_ALLOW_NAD_ETCD";

/// The keys of `ipam` about the store and the host file. The rest of `ipam` is not judged, because a DEL must work in
/// spite of any fault in it.
#[derive(Debug, Clone, Default)]
pub struct IpamSettings {
    /// The keys about etcd.
    pub store: StoreKeys,
    /// The last place to look for the host file.
    pub configuration_path: Option<String>,
    has_log_file: bool,
}

impl IpamSettings {
    /// Reads the valid keys.
    #[must_use]
    pub fn of(request: &Request) -> Self {
        let Ok(Some(ipam)) = document(request).section("ipam") else {
            return Self::default();
        };
        let configuration_path = ipam.text("configuration_path").ok().flatten().map(str::to_owned);
        Self { store: StoreKeys::of(&ipam), configuration_path, has_log_file: ipam.has("log_file") }
    }

    /// One line for each key without effect: a tenant may write a network, so the host file alone names the files of a
    /// node.
    pub(crate) fn without_effect(&self) -> impl Iterator<Item = String> {
        let keys =
            [("log_file", self.has_log_file), ("configuration_path", self.configuration_path.is_some())];
        let given = keys.into_iter().filter(|(_, is_given)| *is_given);
        given.map(|(key, _)| format!("`ipam.{key}` has no effect: the host file decides"))
    }
}

/// The settings of the program besides the network configuration.
#[derive(Debug, Clone)]
pub struct Settings {
    /// At least one endpoint.
    pub endpoints: Vec<Endpoint>,
    /// The prefix of all keys; starts and ends with `/`.
    pub prefix: String,
    /// Files for TLS; given exactly if an endpoint wants TLS.
    pub tls: Option<TlsFiles>,
    /// The user of etcd, if it asks for one.
    pub login: Option<Login>,
    /// The node's name, if the host file gives one.
    pub node_name: Option<NodeName>,
    /// The node's labels, for the pools that are for such nodes.
    pub node_labels: NodeLabels,
    /// The name of the cluster among those that share the prefix, if the host file gives one.
    pub cluster: Option<ClusterName>,
    /// The folder for the state of this node.
    pub spool_dir: String,
    /// Other prefixes that this machine is meant to use, by other host files.
    pub other_prefixes: Vec<String>,
    /// The seconds by which an owner must be older than a GC to be freed by it.
    pub gc_grace_s: u64,
    /// The log file.
    pub log_file: Option<String>,
    /// The log level, if a known one is given.
    pub log_level: Option<LogLevel>,
    /// True if endpoints on other machines may have no TLS.
    pub allow_plaintext: bool,
    /// Who chooses which addresses networks use.
    pub allowed: Allowed,
    /// True if configurations may have no ranges and addresses of their own.
    pub pools_only: bool,
    /// The files that `resolvConf` of a configuration may name.
    pub resolv_conf: Vec<String>,
    /// The reason why no ADD can use the host file: one of its keys makes it ambiguous.
    pub unclear: Option<Error>,
    /// True if one of these keys says where the store is, or names this node's records there: then no verb can use the
    /// file.
    pub is_store_unclear: bool,
    /// One line for each key of the host file that has no effect, for the log.
    pub notes: Vec<String>,
    /// The origin of the settings.
    pub rule: Rule,
}

metes_core::named_enum! {
    /// The least that is logged.
    #[derive(Default)]
    pub enum LogLevel {
        /// Failures.
        Error = "error",
        /// Also things to look at.
        #[default]
        Warning = "warning",
        /// Also each step that changes something.
        Info = "info",
        /// Also how it was decided.
        Debug = "debug",
    }
}

impl LogLevel {
    pub(crate) const EXPECTED: &str = "error, warning, info or debug";

    /// The level of a word, also of whereabouts'. Case does not count.
    #[must_use]
    pub(crate) fn parse(word: &str) -> Option<Self> {
        match word.to_ascii_lowercase().as_str() {
            "panic" => Some(Self::Error),
            "warn" => Some(Self::Warning),
            "verbose" => Some(Self::Info),
            name => Self::named(name),
        }
    }
}

/// Who chooses which addresses and pools networks use on a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Allowed {
    /// Their authors, because the host file does not say it.
    #[default]
    Unsaid,
    /// Their authors.
    Any,
    /// The host file: each of these networks may use this, and other networks nothing.
    Networks(BTreeMap<NetworkName, AllowedNetwork>),
}

/// What one network may use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowedNetwork {
    /// The prefixes in which its ranges and addresses lie.
    pub prefixes: Vec<IpNetwork>,
    /// The pools.
    pub pools: BTreeSet<PoolName>,
    /// The namespaces whose pods may use all of this; none: those of every namespace, and containers without one.
    pub namespaces: Option<BTreeSet<String>>,
}

/// The pods for which a network is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodsOf<'a> {
    /// Those of this namespace; empty if the runtime gives none.
    Namespace(&'a str),
    /// Those of some namespace that may use the network: nobody knows yet who asks.
    Any,
}

impl AllowedNetwork {
    fn is_for(&self, pods: PodsOf<'_>) -> bool {
        match (&self.namespaces, pods) {
            (None, _) => true,
            (Some(namespaces), PodsOf::Namespace(namespace)) => namespaces.contains(namespace),
            (Some(namespaces), PodsOf::Any) => !namespaces.is_empty(),
        }
    }
}

impl Allowed {
    /// The word for networks whose authors choose.
    pub const ANY: &str = "any";

    /// The pools that configurations may name for these pods; none: all.
    #[must_use]
    pub fn pools(&self, pods: PodsOf<'_>) -> Option<BTreeSet<PoolName>> {
        let Self::Networks(networks) = self else { return None };
        let theirs = networks.values().filter(|network| network.is_for(pods));
        Some(theirs.flat_map(|network| network.pools.iter().cloned()).collect())
    }
}

/// What says where etcd is, for the runs on a node.
#[derive(Debug, Clone)]
pub enum Source {
    /// The host file.
    HostFile(Box<HostFile>),
    /// The network's configuration: there is no host file, and the runtime's environment has [`ALLOW_NAD_ETCD`].
    Network,
}

impl Default for Source {
    /// A host file without keys.
    fn default() -> Self {
        Self::HostFile(Box::default())
    }
}

impl Source {
    /// The source on a node with this host file, or with none; no source if there is none and the environment gives
    /// no leave.
    #[must_use]
    pub fn of(host: Option<HostFile>, is_nad_etcd_allowed: bool) -> Option<Self> {
        match host {
            Some(host) => Some(Self::HostFile(Box::new(host))),
            None => is_nad_etcd_allowed.then_some(Self::Network),
        }
    }
}

/// The origin of settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// The host file: the node has one store, whatever its endpoints are.
    HostFile,
    /// Each network's configuration: networks may have different stores.
    Network,
}

/// The host file, read and checked key by key: settings of which the endpoints are still to be judged.
#[derive(Debug, Clone)]
pub struct HostFile(pub(crate) Settings);

impl HostFile {
    /// The same file with the leave for endpoints without TLS.
    #[must_use]
    pub fn lenient(self) -> Self {
        Self(Settings { allow_plaintext: true, ..self.0 })
    }
}

impl Settings {
    /// The settings for a verb.
    ///
    /// # Errors
    /// As [`Settings::from_host`] and [`Settings::from_network`]. Code 7 too if there is a host file and `ipam` says
    /// which etcd is meant; but a DEL must not fail over that.
    pub fn for_verb(verb: Verb, source: Source, said: &IpamSettings) -> Result<Settings, Error> {
        let host = match source {
            Source::HostFile(host) => *host,
            Source::Network => return Self::from_network(&said.store),
        };
        if !verb.forgives_config() {
            said.store.refuse_beside_host_file()?;
        }
        Self::from_host(host)
    }

    /// The settings of a node with a host file.
    ///
    /// # Errors
    /// Code 7 if an endpoint on another machine has no TLS and the file does not allow that.
    pub fn from_host(HostFile(settings): HostFile) -> Result<Settings, Error> {
        // The leave may stand where it has no effect.
        settings.check_plaintext().map_err(|e| match &settings.unclear {
            Some(unclear) => e.with_notes(std::slice::from_ref(&unclear.msg)),
            None => e,
        })?;
        Ok(settings)
    }

    /// The settings of a node without a host file, by these keys of a network.
    ///
    /// # Errors
    /// Code 7, naming the key; also for one that names a secret.
    pub fn from_network(store: &StoreKeys) -> Result<Settings, Error> {
        let settings = Self::defaults(EtcdConfig::of_network(&store.section())?);
        settings.check_plaintext()?;
        Ok(settings)
    }

    /// True if the host file says who chooses the addresses of pods.
    #[must_use]
    pub fn says_who_chooses(&self) -> bool {
        self.pools_only || self.allowed != Allowed::Unsaid
    }

    /// Checks a configuration against `allowed` of the host file, which says which networks may use which prefixes, and
    /// for whose pods.
    ///
    /// # Errors
    /// Code 7 if a range, a request, a static address or a pool is not allowed, or if that is unclear.
    pub fn check_allowed(&self, config: &Config, pods: PodsOf<'_>) -> Result<(), Error> {
        if let Some(unclear) = &self.unclear {
            return Err(unclear.clone());
        }
        let Allowed::Networks(allowed) = &self.allowed else {
            return Ok(());
        };
        for pool in config.pools.iter().flat_map(|pools| pools.names()) {
            let mut listed = allowed.values().filter(|network| network.pools.contains(pool)).peekable();
            if listed.peek().is_none() {
                return Err(Error::invalid_config(format!("pool {pool} may not be used on this node"))
                    .with_details(
                        "the host file's `allowed` gives it to no network: use another pool, or ask an \
                         administrator to add it to `pools` there",
                    ));
            }
            if !listed.any(|network| network.is_for(pods)) {
                return Err(not_for(pods, &format!("pool {pool}")));
            }
        }
        for (network, first, last) in spans(config) {
            check_span(allowed, pods, network, first, last)?;
        }
        Ok(())
    }

    /// Checks a configuration against `pools_only` of the host file. Pods that run keep what they have.
    ///
    /// # Errors
    /// Code 7 if it has ranges or addresses of its own and may not.
    pub fn check_pools_only(&self, config: &Config) -> Result<(), Error> {
        if self.pools_only && config.pools.is_none() {
            return Err(Error::invalid_config(
                "on this node addresses come from pools alone, and `ipam` names none",
            )
            .with_details("name a pool in `ipam.pool`: the host file has `pools_only`"));
        }
        Ok(())
    }

    /// Checks a configuration against `resolv_conf` of the host file. The error is the same for all other paths: it
    /// does not tell which files exist.
    ///
    /// # Errors
    /// Code 7 if its `resolvConf` names another file.
    pub fn check_resolv_conf(&self, config: &Config) -> Result<(), Error> {
        match &config.resolv_conf {
            Some(path) if !self.resolv_conf.contains(path) => Err(Error::invalid_config(format!(
                "`ipam.resolvConf` is {path:?}, and the host file does not allow it"
            ))
            .with_details(format!(
                "add it to `resolv_conf` in the host file, or write one of those there: \
                     {DEFAULT_RESOLV_CONF} by default"
            ))),
            _ => Ok(()),
        }
    }

    /// Checks that addresses which outlive a pod have a cluster to belong to: several clusters may share the store, and
    /// each may have a pod of that name.
    ///
    /// # Errors
    /// Code 7 if the host file names no cluster.
    pub fn check_sticky(&self, config: &Config) -> Result<(), Error> {
        if config.sticky.is_some() && self.cluster.is_none() {
            return Err(Error::invalid_config(
                "`ipam.sticky` needs the name of the cluster, and this node has none",
            )
            .with_details("set `cluster` in the host file: several clusters may have a pod of one name"));
        }
        Ok(())
    }

    /// Takes these endpoints instead of its own, in the scheme of its own where they name none; no endpoints change
    /// nothing.
    ///
    /// # Errors
    /// Code 7 for one that is none, is plain http to another machine, or needs certificates that are not named.
    pub fn use_endpoints(&mut self, endpoints: &[String]) -> Result<(), Error> {
        if endpoints.is_empty() {
            return Ok(());
        }
        let scheme = if self.tls.is_some() { Scheme::Https } else { Scheme::Http };
        let parse = |text: &String| {
            Endpoint::parse(text.trim(), scheme).ok_or_else(|| {
                Error::invalid_config(format!(
                    "--endpoints: {text:?} is not an endpoint like https://host:2379"
                ))
            })
        };
        self.endpoints = endpoints.iter().map(parse).collect::<Result<_, _>>()?;
        if self.tls.is_none() && self.endpoints.iter().any(Endpoint::is_tls) {
            return Err(Error::invalid_config("--endpoints: https needs `etcd.ca_file` in the host file"));
        }
        self.tls = self.tls.take().filter(|_| self.endpoints.iter().any(Endpoint::is_tls));
        self.check_plaintext()
    }

    /// The endpoints as URLs.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.endpoints.iter().map(Endpoint::url).collect()
    }

    pub(crate) fn defaults(etcd: EtcdConfig) -> Settings {
        Settings {
            endpoints: etcd.endpoints,
            prefix: etcd.prefix,
            tls: etcd.tls,
            login: etcd.login,
            node_name: None,
            node_labels: NodeLabels::default(),
            cluster: None,
            spool_dir: DEFAULT_SPOOL_DIR.to_owned(),
            other_prefixes: Vec::new(),
            gc_grace_s: DEFAULT_GC_GRACE_S,
            log_file: None,
            log_level: None,
            allow_plaintext: false,
            allowed: Allowed::Unsaid,
            pools_only: false,
            resolv_conf: vec![DEFAULT_RESOLV_CONF.to_owned()],
            unclear: None,
            is_store_unclear: false,
            notes: Vec::new(),
            rule: Rule::Network,
        }
    }

    /// True if an endpoint of etcd is on another machine.
    #[must_use]
    pub fn is_over_a_network(&self) -> bool {
        self.endpoints.iter().any(|endpoint| !endpoint.is_loopback())
    }

    fn check_plaintext(&self) -> Result<(), Error> {
        let is_exposed = |endpoint: &Endpoint| !endpoint.is_tls() && !endpoint.is_loopback();
        match self.endpoints.iter().position(is_exposed) {
            Some(i) if !self.allow_plaintext => Err(Error::invalid_config(format!(
                "`etcd.endpoints[{i}]` is plain http to another machine, which is not allowed"
            ))
            .with_details("use https, or set \"allow_plaintext\": true in the host file")),
            _ => Ok(()),
        }
    }
}

/// The addresses that a configuration uses, each with its network: each range as a whole, from its first to its last
/// one, and each address that is named.
pub(super) fn spans(config: &Config) -> Vec<(&NetworkName, IpAddr, IpAddr)> {
    let mut spans = Vec::new();
    for (i, set) in config.sets.iter().enumerate() {
        spans.extend(
            set.ranges().iter().map(|range| (range.network(), range.first().ip(), range.last().ip())),
        );
        if let Some(addr) = config.requests.get(i).copied().flatten() {
            let network = set.covers(addr).map_or(&config.network, |range| range.network());
            spans.push((network, addr.ip(), addr.ip()));
        }
    }
    spans.extend(config.statics.iter().map(|given| {
        let ip = given.address.ip();
        (given.network.as_ref().unwrap_or(&config.network), ip, ip)
    }));
    spans
}

/// Checks that all addresses from `first` to `last` lie in one prefix that the network may use for these pods.
fn check_span(
    allowed: &BTreeMap<NetworkName, AllowedNetwork>,
    pods: PodsOf<'_>,
    network: &NetworkName,
    first: IpAddr,
    last: IpAddr,
) -> Result<(), Error> {
    let base = base_name(network);
    let listed = allowed.get(&base);
    if listed.is_some_and(|network| !network.is_for(pods)) {
        return Err(not_for(pods, &format!("network {base}")));
    }
    let prefixes = listed.map(|network| network.prefixes.as_slice());
    if prefixes.unwrap_or_default().iter().any(|prefix| prefix.contains(first) && prefix.contains(last)) {
        return Ok(());
    }
    let what = if first == last { first.to_string() } else { format!("{first} to {last}") };
    Err(Error::invalid_config(format!("network {base} may not use {what} on this node"))
        .with_details(remedy_of(&base, prefixes)))
}

/// The remedy for addresses outside of the prefixes of their network. Networks of others are not named.
fn remedy_of(network: &NetworkName, prefixes: Option<&[IpNetwork]>) -> String {
    let (may, add) = match prefixes {
        None => (format!("does not list network {network}"), "it"),
        Some([]) => (format!("gives network {network} no prefix"), "one"),
        Some(prefixes) => (format!("gives network {network} {}", some_of(prefixes)), "a prefix"),
    };
    format!("the host file's `allowed` {may}: correct `ipam`, or ask an administrator to add {add} there")
}

/// The error for pods whose namespace is not among those of a network.
fn not_for(pods: PodsOf<'_>, what: &str) -> Error {
    let (msg, remedy) = match pods {
        PodsOf::Namespace("") => (
            format!("{what} is for certain namespaces on this node, and CNI_ARGS has no K8S_POD_NAMESPACE"),
            "only pods of Kubernetes may use it, whose runtime gives the namespace",
        ),
        PodsOf::Namespace(namespace) => (
            format!("pods of namespace {namespace} may not use {what} on this node"),
            "use another one, or ask an administrator to add the namespace there",
        ),
        PodsOf::Any => (
            format!("pods of no namespace may use {what} on this node"),
            "use another one, or ask an administrator to add a namespace there",
        ),
    };
    Error::invalid_config(msg)
        .with_details(format!("`namespaces` in the host file's `allowed` decides: {remedy}"))
}

/// The name that `allowed` has for a network. Where a range has a network of its own, it is the name before the `@`.
pub(super) fn base_name(network: &NetworkName) -> NetworkName {
    let base = network.as_str().split('@').next().unwrap_or_default();
    NetworkName::configured(base).unwrap_or_else(|_| network.clone())
}

#[cfg(test)]
mod tests;
