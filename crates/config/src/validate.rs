//! The mistakes in the configurations of networks, found before any pod starts. Pure.
//!
//! Each network is read by the code that reads it for an ADD, so that there is no second opinion. Networks are also
//! compared with each other, which an ADD of one of them cannot do.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnetwork::IpNetwork;

use super::allowed::Need;
use super::command::judge_add;
use super::host::NOT_JSON;
use super::keys::{SLIP_EDITS, did_you_mean};
use super::nad::{AlmostMetes, MetesPlugin, Nad, almost_metes, metes_plugins};
use super::settings::PodsOf;
use super::whereabouts::OF_NO_RANGE;
use super::workload::Workload;
use super::{Config, HostFile, IpamSettings, Settings, Source};
use crate::cni::{Code, Error, Json, Verb, Version};
use metes_core::pool::range::{EXCLUDES_NOTHING, is_on_link};
use metes_core::pool::{Addr, Range};

metes_core::named_enum! {
    /// The kinds of issues.
    pub enum IssueId {
        /// An ADD is refused before it asks etcd.
        Refused = "refused",
        /// A configuration is not JSON.
        NotJson = "not-json",
        /// A definition has no configuration.
        NoConfiguration = "no-configuration",
        /// A definition has its configuration where nobody looks for it.
        MisplacedConfiguration = "misplaced-configuration",
        /// A network does not use metes.
        OfAnother = "not-of-metes",
        /// A network does not use metes, and most likely should.
        AlmostMetes = "almost-metes",
        /// A key is not known.
        UnknownKey = "unknown-key",
        /// A key has no effect.
        NoEffect = "no-effect",
        /// A gateway is not in the subnet of its addresses.
        GatewayOutside = "gateway-outside",
        /// An exclude is not in the subnet of its range.
        ExcludeOutside = "exclude-outside",
        /// Requested addresses do not reach metes.
        NoIpsCapability = "no-ips-capability",
        /// Two networks give addresses of one range with different prefix lengths or gateways.
        RangesDiffer = "ranges-differ",
        /// One subnet of one link is in two networks, so each address can be given twice.
        SubnetTwice = "subnet-in-two-networks",
        /// Pods of a definition's own namespace may not use its network.
        NotForItsNamespace = "not-for-its-namespace",
        /// Two VLANs share a network that nobody has named, so an address of one is missing in the other.
        VlansShareNetwork = "vlans-share-network",
        /// A network gives more addresses than a result of its version can name.
        UnnamedAddresses = "unnamed-addresses",
        /// Pods with random names are in a network whose addresses outlive their pods.
        RandomNames = "random-names",
        /// A host file cannot be used.
        HostFile = "invalid-host-file",
        /// A host file has values that are to be edited.
        Unedited = "unedited-host-file",
        /// The text of a pool is wrong.
        Pool = "invalid-pool",
    }
}

metes_core::named_enum! {
    /// The severity of an issue. The names are those of SARIF.
    pub enum Severity {
        /// ADDs fail.
        Error = "error",
        /// ADDs succeed, and most likely do something else than was meant.
        Warning = "warning",
        /// Nothing has to be done.
        Note = "note",
    }
}

impl IssueId {
    /// The severity of such an issue.
    #[must_use]
    pub fn severity(self) -> Severity {
        match self {
            Self::Refused | Self::NotJson | Self::HostFile | Self::Unedited | Self::Pool => Severity::Error,
            Self::MisplacedConfiguration
            | Self::AlmostMetes
            | Self::UnknownKey
            | Self::GatewayOutside
            | Self::ExcludeOutside
            | Self::RangesDiffer
            | Self::SubnetTwice
            | Self::NotForItsNamespace
            | Self::VlansShareNetwork
            | Self::UnnamedAddresses
            | Self::RandomNames => Severity::Warning,
            Self::NoConfiguration | Self::OfAnother | Self::NoEffect | Self::NoIpsCapability => {
                Severity::Note
            }
        }
    }

    /// The meaning, in a sentence.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Refused => "an ADD is refused before it asks etcd",
            Self::NotJson => "a configuration is not JSON",
            Self::NoConfiguration => "a definition has no configuration: it is a file on the nodes",
            Self::MisplacedConfiguration => "the configuration of a definition is where nobody looks for it",
            Self::OfAnother => "a network does not use metes",
            Self::AlmostMetes => "a network does not use metes, and most likely should",
            Self::UnknownKey => "a key is not known and has no effect",
            Self::NoEffect => "a key has no effect",
            Self::GatewayOutside => "a gateway is outside of the subnet of its addresses",
            Self::ExcludeOutside => "an exclude is outside of the subnet of its range",
            Self::NoIpsCapability => "requested addresses do not reach metes",
            Self::RangesDiffer => "ranges of one network overlap and differ in prefix length or gateway",
            Self::SubnetTwice => {
                "one subnet of one link is in two networks, so an address can be given twice"
            }
            Self::NotForItsNamespace => "pods of a definition's own namespace may not use its network",
            Self::VlansShareNetwork => {
                "two VLANs share a network without a name, so an address of one is missing in the other"
            }
            Self::UnnamedAddresses => "a network gives more addresses than a result of its version can name",
            Self::RandomNames => "pods with random names are in a network whose addresses outlive their pods",
            Self::HostFile => "a host file cannot be used",
            Self::Unedited => "a host file has values that are to be edited",
            Self::Pool => "the text of a pool is wrong",
        }
    }
}

const EXCLUDE_REMEDY: &str = "correct `exclude` or take it out";

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    /// The kind.
    pub id: IssueId,
    /// The code that an ADD answers, if it is refused.
    pub code: Option<u16>,
    /// The place, as a path of keys like `plugins[0].ipam.range`; empty if it is not known.
    pub key: String,
    /// The line and the column in the configuration, if no key says where.
    pub at: Option<(usize, usize)>,
    /// In words.
    pub what: String,
    /// The remedy.
    pub remedy: String,
}

impl Issue {
    /// An exclude of a pool that excludes nothing, in a sentence.
    #[must_use]
    pub fn exclude_outside(key: &str, what: String) -> Self {
        Self::new(IssueId::ExcludeOutside, key, what, EXCLUDE_REMEDY)
    }

    /// An issue at a key.
    #[must_use]
    pub fn new(id: IssueId, key: &str, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { id, code: None, key: key.to_owned(), at: None, what: what.into(), remedy: remedy.into() }
    }

    /// A text that should be JSON.
    pub(crate) fn not_json(error: &serde_json::Error) -> Self {
        let at = Some((error.line(), error.column()));
        Self {
            at,
            ..Self::new(
                IssueId::NotJson,
                "",
                without_place(&error.to_string(), error),
                "correct it: runtimes read JSON alone",
            )
        }
    }

    fn refused(error: &Error, plugin: &MetesPlugin) -> Self {
        let remedy = match (&*error.details, error.code) {
            ("", Code::IncompatibleVersion) => "write a `cniVersion` that metes speaks",
            ("", _) => "correct the value",
            (details, _) => details,
        };
        let key = of_plugin(plugin, key_in(&error.msg));
        let code = Some(error.code.number());
        Self { code, ..Self::new(IssueId::Refused, &key, error.msg.clone(), remedy) }
    }

    /// An object that looks as if metes were meant.
    fn almost(AlmostMetes { path, named, is_ipam }: &AlmostMetes) -> Self {
        let key =
            [path.as_str(), "type"].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(".");
        let (what, remedy) = match is_ipam {
            true => (
                format!("`{key}` is {named:?}, so another plugin is called; did you mean \"metes\"?"),
                "correct the type",
            ),
            false => (
                format!("`{key}` is {named:?}, and it is not in `ipam`, where metes is called"),
                "write it in `ipam` of the main plugin",
            ),
        };
        Self::new(IssueId::AlmostMetes, &key, what, remedy)
    }

    /// A note about a key that has no effect.
    fn note(text: &str, plugin: Option<&MetesPlugin>) -> Self {
        let (id, remedy) = match text {
            _ if text.starts_with("unknown key") => (IssueId::UnknownKey, "correct the key or remove it"),
            _ if text.contains(EXCLUDES_NOTHING) => (IssueId::ExcludeOutside, EXCLUDE_REMEDY),
            _ if text.contains(OF_NO_RANGE) => (IssueId::GatewayOutside, "correct `gateway` or remove it"),
            _ if text.contains(" must be ") => (IssueId::NoEffect, "correct the value"),
            _ => (IssueId::NoEffect, "remove the key, or leave it for other programs"),
        };
        let key = key_in(text);
        let key = plugin.map_or(key.to_owned(), |plugin| of_plugin(plugin, key));
        Self::new(id, &key, text, remedy)
    }
}

/// The message of an error of JSON without the place that it ends with: that is told apart from it.
fn without_place<'t>(text: &'t str, error: &serde_json::Error) -> &'t str {
    let place = format!(" at line {} column {}", error.line(), error.column());
    text.strip_suffix(&place).unwrap_or(text)
}

/// The key that a message names first.
fn key_in(text: &str) -> &str {
    text.split('`').nth(1).unwrap_or_default()
}

fn of_plugin(plugin: &MetesPlugin, key: &str) -> String {
    let parts = [plugin.path.as_str(), key];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(".")
}

/// The ranges that one plugin of a network gives addresses of.
#[derive(Debug, Clone)]
pub struct NetworkUse {
    /// The network's name, for people.
    pub label: String,
    /// The plugin, for the place of an issue.
    pub key: String,
    /// The link that its interfaces are on, if that is known.
    pub link: Option<String>,
    /// The VLAN of its link, if that is known and nobody has named the network in etcd.
    pub unnamed_vlan: Option<String>,
    /// The ranges.
    pub ranges: Vec<Range>,
    /// The key that names the network in etcd.
    pub network_key: &'static str,
    /// True if its addresses outlive their pods.
    pub is_sticky: bool,
}

/// The configuration of a network.
#[derive(Debug, Clone, Copy)]
pub struct NetworkText<'a> {
    /// The name of the network, for people and for a configuration without one.
    pub label: &'a str,
    /// The namespace of its definition; empty if it is not known.
    pub namespace: &'a str,
    /// The name of its definition.
    pub name: &'a str,
    /// The device that Kubernetes hands out for it; empty if there is none.
    pub resource: &'a str,
    /// The configuration of a plugin, or a list of plugins.
    pub config: &'a str,
}

/// The issues and the uses of a network.
#[derive(Debug, Default)]
pub struct JudgedNetwork {
    /// The issues.
    pub issues: Vec<Issue>,
    /// The ranges that its plugins give addresses of.
    pub uses: Vec<NetworkUse>,
    /// What its plugins need in `allowed`.
    pub needs: Vec<Need>,
    /// True if it is known that no plugin of it uses metes.
    pub is_of_another: bool,
}

/// Judges a network by its definition, for nodes with this source of settings.
#[must_use]
pub fn judge_nad(nad: &Nad, source: &Source) -> JudgedNetwork {
    let Nad { namespace, name, resource, config, key, .. } = nad;
    match config {
        Some(config) => {
            judge_network(NetworkText { label: &nad.label(), namespace, name, resource, config }, source)
        }
        None => JudgedNetwork { issues: vec![without_configuration(nad, key)], ..JudgedNetwork::default() },
    }
}

fn without_configuration(nad: &Nad, key: &str) -> Issue {
    let file = "and looks for a file with the configuration on each node";
    let (what, remedy) = match nad.instead.as_deref() {
        None => {
            let what = "it has no `spec.config`: the nodes have its configuration in a file";
            return Issue::new(IssueId::NoConfiguration, key, what, "validate that file");
        }
        Some("config") => (
            format!("`spec.config` is not a string: Multus does not read it, {file}"),
            "write it as a string: `config: |`",
        ),
        Some(other) => {
            let near = did_you_mean(other, &["config"], SLIP_EDITS);
            (
                format!("`spec.{other}` is not read by Multus, which finds no `spec.config` {file}{near}"),
                "correct the key",
            )
        }
    };
    Issue::new(IssueId::MisplacedConfiguration, key, what, remedy)
}

/// Judges one network, for nodes with this source of settings.
#[must_use]
pub fn judge_network(network: NetworkText<'_>, source: &Source) -> JudgedNetwork {
    let mut judged = JudgedNetwork::default();
    let config = match Json::parse(network.config.as_bytes()) {
        Ok(config) => config,
        Err(e) => {
            judged.issues.push(Issue::not_json(&e));
            return judged;
        }
    };
    let plugins = metes_plugins(&config, network.name);
    judged.is_of_another = plugins.is_empty();
    for plugin in plugins {
        if let Some((of_plugin, need)) = judge_plugin(&plugin, network, source, &mut judged.issues) {
            judged.uses.push(of_plugin);
            judged.needs.push(need);
        }
    }
    let almost = almost_metes(&config);
    judged.issues.extend(almost.iter().map(Issue::almost));
    if judged.is_of_another && almost.is_empty() {
        judged.issues.push(Issue::new(
            IssueId::OfAnother,
            "",
            "no plugin of this network has metes as its `ipam.type`: it is not judged",
            "nothing, if another plugin gives its addresses",
        ));
    }
    judged
}

fn judge_plugin(
    plugin: &MetesPlugin,
    network: NetworkText<'_>,
    source: &Source,
    issues: &mut Vec<Issue>,
) -> Option<(NetworkUse, Need)> {
    let plugin = &completed(plugin);
    let read = plugin.request(Verb::Add).and_then(|request| {
        let settings = Settings::for_verb(Verb::Add, source.clone(), &IpamSettings::of(&request))?;
        let (read, notes) = judge_add(&request, &settings, PodsOf::Any);
        issues.extend(notes.iter().map(|note| Issue::note(note, Some(plugin))));
        let config = read?;
        // Pods of other namespaces may name the definition, too.
        if !network.namespace.is_empty()
            && let Err(e) = settings.check_allowed(&config, PodsOf::Namespace(network.namespace))
        {
            let key = of_plugin(plugin, "ipam");
            issues.push(Issue::new(IssueId::NotForItsNamespace, &key, e.msg, e.details));
        }
        Ok((config, request.version))
    });
    let (config, version) = match read {
        Ok(read) => read,
        Err(e) => {
            issues.push(Issue::refused(&e, plugin));
            return None;
        }
    };
    issues.extend(gateways_outside(plugin, &config));
    issues.extend(unnamed_addresses(plugin, &config, version));
    let takes_requests = !config.sets.is_empty() || config.pools.is_some();
    if takes_requests && is_started_by_runtime(plugin) && !has_ips(&plugin.config) {
        issues.push(Issue::new(
            IssueId::NoIpsCapability,
            &of_plugin(plugin, "capabilities"),
            "without the capability `ips` the plugin does not get the addresses that a pod asks for in `ips`",
            "write \"capabilities\": {\"ips\": true} beside `ipam`, if pods ask for addresses",
        ));
    }
    let need = Need::of(&config, (network.label, network.namespace), is_of_flannel(plugin));
    let of_plugin = NetworkUse {
        label: network.label.to_owned(),
        key: of_plugin(plugin, "ipam"),
        link: link(&plugin.config, network.resource),
        unnamed_vlan: vlan(&plugin.config).filter(|_| !names_network(&plugin.config)),
        ranges: match is_of_flannel(plugin) {
            true => Vec::new(),
            false => config.sets.iter().flat_map(|set| set.ranges().to_vec()).collect(),
        },
        network_key: "network_name",
        is_sticky: config.sticky.is_some(),
    };
    Some((of_plugin, need))
}

/// The workloads whose pods have random names in networks whose addresses outlive their pods, each with its index.
#[must_use]
pub fn random_names(workloads: &[Workload], uses: &[NetworkUse]) -> Vec<(usize, Issue)> {
    let sticky = |workload: &Workload| uses.iter().find(|one| one.is_sticky && workload.asks_for(&one.label));
    let issue = |(at, workload): (usize, &Workload)| {
        let what = format!(
            "pods of {} have random names, and network {} keeps an address for each name after its pod",
            workload.label,
            sticky(workload)?.label
        );
        let remedy = "use a StatefulSet, whose pods have fixed names, or a network without `sticky`";
        Some((at, Issue::new(IssueId::RandomNames, &workload.key, what, remedy)))
    };
    workloads.iter().enumerate().filter_map(issue).collect()
}

/// Gateways that are in no subnet from which they can be reached. An ADD does not refuse them, as whereabouts and
/// host-local do not: another plugin may set a route to them.
fn gateways_outside(plugin: &MetesPlugin, config: &Config) -> Vec<Issue> {
    let ranges = || config.sets.iter().flat_map(|set| set.ranges());
    let ipam = plugin.config.get("ipam");
    // In whereabouts' form it is for all ranges of its family, which may be of several subnets.
    let for_all = ipam.and_then(|ipam| ipam.get("gateway")).and_then(Json::text);
    let for_all = for_all.and_then(|text| text.parse::<IpAddr>().ok());
    let is_reached = |subnet: IpNetwork, gateway: IpAddr| {
        is_on_link(subnet, gateway)
            || for_all == Some(gateway) && ranges().any(|range| is_on_link(range.subnet(), gateway))
    };
    let of_ranges = ranges().filter_map(|range| Some((range.subnet(), range.gateway()?)));
    let of_statics = config.statics.iter().filter_map(|given| Some((given.address, given.gateway?)));
    let mut told = BTreeSet::new();
    let outside = of_ranges.chain(of_statics).filter(|(subnet, gateway)| !is_reached(*subnet, *gateway));
    let outside = outside.filter(|(_, gateway)| told.insert(*gateway));
    let issue = |(subnet, gateway): (IpNetwork, IpAddr)| {
        let what = format!(
            "gateway {gateway} is outside of {subnet}: pods have no route to it, so that routes through it fail"
        );
        let remedy = "correct `gateway`; leave it if another plugin sets a route to it";
        Issue::new(IssueId::GatewayOutside, &of_plugin(plugin, "ipam.gateway"), what, remedy)
    };
    outside.map(issue).collect()
}

/// Addresses that pods hold and that no interface gets: a result of the oldest versions has one for each family.
fn unnamed_addresses(plugin: &MetesPlugin, config: &Config, version: Version) -> Option<Issue> {
    if version > Version::V0_2_0 {
        return None;
    }
    let of_sets = config.sets.iter().map(|set| set.ranges()[0].subnet().is_ipv4());
    let of_all: Vec<bool> =
        of_sets.chain(config.statics.iter().map(|given| given.address.is_ipv4())).collect();
    let count = |is_ipv4: bool| of_all.iter().filter(|one| **one == is_ipv4).count();
    let (number, family) =
        [(count(true), "IPv4"), (count(false), "IPv6")].into_iter().find(|(number, _)| *number > 1)?;
    let what = format!(
        "it gives {number} {family} addresses, and a result in cniVersion {version} names one: the others are held, \
         and no interface gets them"
    );
    let remedy = "write a `cniVersion` from 0.3.1 on, or one range for each family";
    Some(Issue::new(IssueId::UnnamedAddresses, &of_plugin(plugin, "ipam"), what, remedy))
}

/// The configuration that metes gets from a main plugin that fills in the ranges itself.
fn completed(plugin: &MetesPlugin) -> MetesPlugin {
    let mut plugin = plugin.clone();
    if is_of_flannel(&plugin)
        && let Json::Object(pairs) = &mut plugin.config
        && let Some((_, Json::Object(ipam))) =
            pairs.iter_mut().find(|(key, _)| key.eq_ignore_ascii_case("ipam"))
    {
        let subnet = vec![("subnet".to_owned(), Json::from(SUBNET_OF_FLANNEL))];
        ipam.retain(|(key, _)| key != "ranges");
        ipam.push(("ranges".to_owned(), Json::Array(vec![Json::Array(vec![Json::Object(subnet)])])));
    }
    plugin
}

/// Some subnet of a node.
const SUBNET_OF_FLANNEL: &str = "10.244.0.0/24";

fn is_of_flannel(plugin: &MetesPlugin) -> bool {
    plugin.config.get("type").and_then(Json::text) == Some("flannel")
}

/// True if a runtime starts it. A runtime gives capabilities to such plugins alone.
fn is_started_by_runtime(plugin: &MetesPlugin) -> bool {
    let place = plugin.place.strip_prefix("/plugins/");
    plugin.place.is_empty() || place.is_some_and(|at| at.bytes().all(|b| b.is_ascii_digit()))
}

fn has_ips(plugin: &Json) -> bool {
    plugin.get("capabilities").and_then(|given| given.get("ips")) == Some(&Json::Bool(true))
}

/// Keys of main plugins that name a link, or a part of it.
const LINK_KEYS: [&str; 5] = ["master", "bridge", "device", "vlan", "vlanId"];

/// Main plugins that have a link without naming one.
const WITH_A_LINK: [&str; 3] = ["bridge", "macvlan", "ipvlan"];

/// The main plugin and the link that it attaches to.
fn link(plugin: &Json, resource: &str) -> Option<String> {
    let main = plugin.get("type").and_then(Json::text)?;
    let named = LINK_KEYS.iter().filter_map(|key| {
        let value = plugin.get(key).filter(|value| !matches!(value, Json::Null))?;
        Some(format!("{key} {}", value.text().map_or_else(|| value.to_string(), str::to_owned)))
    });
    let mut parts: Vec<String> = named.collect();
    parts.extend((!resource.is_empty()).then(|| format!("resource {resource}")));
    if parts.is_empty() && !WITH_A_LINK.contains(&main) {
        return None;
    }
    Some([main.to_owned()].into_iter().chain(parts).collect::<Vec<_>>().join(", "))
}

/// The VLAN of a main plugin's link: as the plugin names it (0 is none), or as the name of its interface ends.
fn vlan(plugin: &Json) -> Option<String> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let named = ["vlan", "vlanId"].iter().find_map(|key| match plugin.get(key)? {
        Json::Null => None,
        value => Some(value.text().map_or_else(|| value.to_string(), str::to_owned)),
    });
    let of_interface = || {
        let interface = ["master", "device"].iter().find_map(|key| plugin.get(key)?.text())?;
        Some(interface.rsplit_once('.')?.1.to_owned())
    };
    named.or_else(of_interface).filter(|vlan| is_number(vlan) && vlan != "0")
}

fn names_network(plugin: &Json) -> bool {
    plugin.get("ipam").and_then(|ipam| ipam.get("network_name")).is_some()
}

/// A value in manifests/base/metes.conf before it is edited.
pub const UNEDITED: &str = "change-me";

/// The addresses of etcd in manifests/base/metes.conf before it is edited. Documents use them, and no server has them.
const UNEDITED_ENDPOINTS: &str = "https://192.0.2.";

/// The values of a host file that are as they were delivered.
fn unedited(host_file: &Json) -> Vec<Issue> {
    let text = |key: &str| host_file.get(key).and_then(Json::text);
    let endpoints = host_file.get("etcd").and_then(|etcd| etcd.get("endpoints"));
    let endpoint = match endpoints {
        Some(Json::Array(endpoints)) => endpoints.iter().find_map(Json::text),
        _ => None,
    };
    [
        (
            "cluster",
            text("cluster").filter(|value| *value == UNEDITED),
            "give this cluster a name of its own",
        ),
        (
            "allowed",
            text("allowed").filter(|value| *value == UNEDITED),
            "write the networks that `metes validate --print-allowed FILES` prints, or \"any\"",
        ),
        (
            "etcd.endpoints",
            endpoint.filter(|value| value.starts_with(UNEDITED_ENDPOINTS)),
            "write the addresses of the servers of etcd",
        ),
    ]
    .into_iter()
    .filter_map(|(key, value, remedy)| {
        let what = format!("`{key}` is still {:?}, as manifests/base/metes.conf is delivered", value?);
        Some(Issue::new(IssueId::Unedited, key, what, remedy))
    })
    .collect()
}

/// Judges the content of a host file.
#[must_use]
pub fn judge_host_file(bytes: &[u8]) -> Vec<Issue> {
    let mut issues = Json::parse(bytes).map_or_else(|_| Vec::new(), |host_file| unedited(&host_file));
    let keys: BTreeSet<String> = issues.iter().map(|issue| issue.key.clone()).collect();
    issues.extend(wrong_in_host_file(bytes).into_iter().filter(|issue| !keys.contains(&issue.key)));
    issues
}

fn wrong_in_host_file(bytes: &[u8]) -> Vec<Issue> {
    let not_json = Json::parse(bytes).err();
    let wrong = |e: &Error| {
        let msg = not_json.as_ref().map_or(e.msg.as_str(), |not_json| without_place(&e.msg, not_json));
        let remedy = if e.details.is_empty() { "correct it" } else { &e.details };
        let key = if msg.starts_with(NOT_JSON) { "" } else { key_in(msg) };
        Issue::new(IssueId::HostFile, key, msg, remedy)
    };
    match HostFile::parse(bytes).and_then(Settings::from_host) {
        Err(e) => {
            let at = not_json.as_ref().map(|e| (e.line(), e.column()));
            vec![Issue { at, ..wrong(&e) }]
        }
        Ok(Settings { unclear, notes, .. }) => {
            let unclear = unclear.iter().map(wrong);
            unclear.chain(notes.iter().map(|note| Issue::note(note, None))).collect()
        }
    }
}

/// Compares networks. Each issue is of the later one of two, which is named by its place in the list.
#[must_use]
pub fn compare(uses: &[NetworkUse]) -> Vec<(usize, Issue)> {
    let mut all = ranges_that_differ(uses);
    all.extend(subnets_in_two_networks(uses));
    all.extend(vlans_in_one_network(uses));
    all.sort_by_key(|(at, issue)| (*at, issue.id));
    all
}

/// A range, and the network that has it.
#[derive(Clone, Copy)]
struct UsedRange<'a> {
    at: usize,
    range: &'a Range,
}

impl UsedRange<'_> {
    /// The network's own name, also where the range is a network of its own.
    fn base(&self) -> &str {
        self.range.network().as_str().split('@').next().unwrap_or_default()
    }

    fn words(&self) -> String {
        let subnet = self.range.subnet();
        match self.range.gateway() {
            Some(gateway) => format!("{subnet} with gateway {gateway}"),
            None => format!("{subnet} without a gateway"),
        }
    }
}

fn used(uses: &[NetworkUse]) -> impl Iterator<Item = UsedRange<'_>> {
    uses.iter().enumerate().flat_map(|(at, one)| one.ranges.iter().map(move |range| UsedRange { at, range }))
}

/// Pairs of ranges of two networks that have the same group and overlap, if `is_issue` says so: at most one for the
/// later network of each.
fn pairs<'a, G: Ord>(
    mut ranges: Vec<(G, (Addr, Addr), UsedRange<'a>)>,
    is_issue: impl Fn(&UsedRange<'_>, &UsedRange<'_>) -> bool,
) -> Vec<(UsedRange<'a>, UsedRange<'a>)> {
    ranges.sort_by(|(a, span, _), (b, other, _)| (a, span).cmp(&(b, other)));
    let (mut found, mut told) = (Vec::new(), BTreeSet::new());
    // Those before, as far as they reach up to here.
    let mut before: Vec<usize> = Vec::new();
    for (here, (group, (first, _), range)) in ranges.iter().enumerate() {
        before.retain(|other| ranges[*other].0 == *group && ranges[*other].1.1 >= *first);
        for (_, _, other) in before.iter().map(|other| &ranges[*other]) {
            let (earlier, later) = if other.at < range.at { (*other, *range) } else { (*range, *other) };
            if earlier.at != later.at && is_issue(&earlier, &later) && told.insert(later.at) {
                found.push((earlier, later));
            }
        }
        before.push(here);
    }
    found
}

/// The difference between the addresses of two ranges, and its consequence.
fn difference(a: &Range, b: &Range) -> Option<&'static str> {
    match (a.prefix_len() == b.prefix_len(), a.gateway() == b.gateway()) {
        (true, true) => None,
        (false, true) => Some("prefix lengths"),
        (true, false) => Some("gateways, and one may get the gateway of the other"),
        (false, false) => Some("prefix lengths and gateways, and one may get the gateway of the other"),
    }
}

fn ranges_that_differ(uses: &[NetworkUse]) -> Vec<(usize, Issue)> {
    let ranges = used(uses).map(|one| (one.range.network(), (one.range.first(), one.range.last()), one));
    let differ = |a: &UsedRange<'_>, b: &UsedRange<'_>| difference(a.range, b.range).is_some();
    let issue = |(earlier, later): (UsedRange<'_>, UsedRange<'_>)| {
        let what = format!(
            "{} overlaps {} of {}, and both are in network {}: pods get addresses of one range with different {}",
            later.words(),
            earlier.words(),
            uses[earlier.at].label,
            later.base(),
            difference(earlier.range, later.range).unwrap_or_default(),
        );
        let remedy = format!(
            "write the same prefix length and gateway, or another `{}` if these are two links",
            uses[later.at].network_key
        );
        (later.at, Issue::new(IssueId::RangesDiffer, &uses[later.at].key, what, remedy))
    };
    pairs(ranges.collect(), differ).into_iter().map(issue).collect()
}

fn subnets_in_two_networks(uses: &[NetworkUse]) -> Vec<(usize, Issue)> {
    let ranges = used(uses).filter_map(|one| {
        let subnet = one.range.subnet();
        let span = (Addr::from(subnet.network()), Addr::from(subnet.broadcast()));
        Some((uses[one.at].link.as_deref()?, span, one))
    });
    let differ = |a: &UsedRange<'_>, b: &UsedRange<'_>| a.base() != b.base();
    let issue = |(earlier, later): (UsedRange<'_>, UsedRange<'_>)| {
        let what = format!(
            "{} is in network {}, and {} of {} is in network {}, on one link ({}): each of them may give the same \
             address",
            later.range.subnet(),
            later.base(),
            earlier.range.subnet(),
            uses[earlier.at].label,
            earlier.base(),
            uses[later.at].link.as_deref().unwrap_or_default(),
        );
        let remedy = "write the same `network_name` for both, or none";
        (later.at, Issue::new(IssueId::SubnetTwice, &uses[later.at].key, what, remedy))
    };
    pairs(ranges.collect(), differ).into_iter().map(issue).collect()
}

/// Ranges of two VLANs in one network that only the default has put there. Ranges that differ are told already.
fn vlans_in_one_network(uses: &[NetworkUse]) -> Vec<(usize, Issue)> {
    let vlan = |one: &UsedRange<'_>| uses[one.at].unnamed_vlan.as_deref();
    let ranges = used(uses).filter(|one| vlan(one).is_some());
    let ranges = ranges.map(|one| (one.range.network(), (one.range.first(), one.range.last()), one));
    let share =
        |a: &UsedRange<'_>, b: &UsedRange<'_>| vlan(a) != vlan(b) && difference(a.range, b.range).is_none();
    let issue = |(earlier, later): (UsedRange<'_>, UsedRange<'_>)| {
        let what = format!(
            "{} of VLAN {} overlaps {} of {} in VLAN {}, and both are in network {}, because neither has a \
             `network_name`: an address that a pod has in one VLAN is missing in the other",
            later.range.subnet(),
            vlan(&later).unwrap_or_default(),
            earlier.range.subnet(),
            uses[earlier.at].label,
            vlan(&earlier).unwrap_or_default(),
            later.base(),
        );
        let remedy =
            "write a `network_name` for each VLAN, or the same one for both if no address may be in both";
        (later.at, Issue::new(IssueId::VlansShareNetwork, &uses[later.at].key, what, remedy))
    };
    pairs(ranges.collect(), share).into_iter().map(issue).collect()
}
