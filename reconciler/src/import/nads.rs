//! The ways in which NetworkAttachmentDefinitions hand out addresses. Pure.
//!
//! The plugin's own parser reads the configurations, so that an address goes into the same network in which a later ADD
//! looks for it.

use std::collections::BTreeSet;
use std::fmt;

use metes_config::Config;
use metes_config::cni::section::Shows;
use metes_config::cni::{Environment, Json, Request, Section, Verb, version};
use metes_core::keys::Scope;
use metes_core::pool::range::RangeSet;
use metes_core::pool::{Held, Keep};

/// The depth to which plugins are searched for inside a configuration: a list, a plugin, and the plugin that it
/// delegates to.
const DEPTH_MAX: usize = 6;

/// The name of a NetworkAttachmentDefinition.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NadId {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl fmt::Display for NadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A NetworkAttachmentDefinition.
#[derive(Debug, Clone)]
pub struct Nad {
    pub(crate) id: NadId,
    pub(crate) uid: String,
    /// A value that changes with every change of the definition.
    pub(crate) resource_version: String,
    /// Its `ipam` sections.
    pub uses: Vec<Use>,
    /// Why its content is not known.
    pub unread: Option<String>,
}

/// The plugin that hands out the addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plugin {
    /// The plugin that the cluster switches from.
    Whereabouts,
    /// The plugin that the cluster switches to.
    Metes,
}

/// One `ipam` section.
#[derive(Debug, Clone)]
pub struct Use {
    /// The definition that it is in.
    pub nad: NadId,
    /// The plugin that it asks.
    pub plugin: Plugin,
    /// The network's `name` for CNI.
    pub(crate) cni_network: String,
    /// The addresses that it asks for, or the reason why metes refuses it.
    pub ranges: Result<Ranges, String>,
}

/// The addresses that an `ipam` section in whereabouts' form asks for.
#[derive(Debug, Clone)]
pub struct Ranges {
    /// The beginning of its pools' names: `network_name` and a hyphen, or nothing.
    pub prefix: String,
    /// True if each node has pools of its own (`node_slice_size`).
    pub(crate) is_sliced: bool,
    /// In result order.
    pub sets: Vec<RangeSet>,
    /// Static addresses; whereabouts does not record them.
    pub statics: Vec<Held>,
    /// For how long an address stays with a pod's name after its last use; none: it ends with the container.
    pub(crate) keep: Option<Keep>,
    /// The scope whose queue a run with this configuration waits in.
    pub scope: Scope,
}

impl Nad {
    /// Reads a definition.
    #[must_use]
    pub fn read(id: NadId, uid: String, resource_version: String, config: Option<&str>) -> Self {
        let mut nad = Self { id, uid, resource_version, uses: Vec::new(), unread: None };
        match config.map(str::trim).filter(|text| !text.is_empty()) {
            None => nad.unread = Some("it has no configuration: the nodes have it in files".to_owned()),
            Some(text) => match Json::parse(text.as_bytes()) {
                Ok(json) => collect(&json, &nad.id, &nad.id.name, DEPTH_MAX, &mut nad.uses),
                Err(e) => nad.unread = Some(format!("its configuration is not JSON: {e}")),
            },
        }
        nad
    }

    /// True if whereabouts still hands out addresses for it.
    #[must_use]
    pub fn uses_whereabouts(&self) -> bool {
        self.uses.iter().any(|one| one.plugin == Plugin::Whereabouts)
    }
}

/// The prefixes that an object's name may have before an address or a range, longest first.
#[must_use]
pub fn prefixes(uses: &[&Use]) -> Vec<String> {
    let readable = uses.iter().filter_map(|one| one.ranges.as_ref().ok());
    let set: BTreeSet<&str> = readable.map(|ranges| ranges.prefix.as_str()).collect();
    let mut prefixes: Vec<String> = set.into_iter().map(str::to_owned).collect();
    prefixes.sort_by_key(|prefix| std::cmp::Reverse(prefix.len()));
    prefixes
}

/// Every plugin whose `ipam` is of one of the two types, also inside lists and delegates.
fn collect(json: &Json, nad: &NadId, name: &str, depth: usize, uses: &mut Vec<Use>) {
    let Some(depth) = depth.checked_sub(1) else { return };
    let name = json.get("name").and_then(Json::text).filter(|name| !name.is_empty()).unwrap_or(name);
    let kind = json.get("ipam").and_then(|ipam| ipam.get("type")).and_then(Json::text);
    let plugin = match kind {
        Some("whereabouts") => Some(Plugin::Whereabouts),
        Some("metes") => Some(Plugin::Metes),
        _ => None,
    };
    if let Some(plugin) = plugin {
        let (nad, cni_network) = (nad.clone(), name.to_owned());
        uses.push(Use { nad, plugin, cni_network, ranges: ranges(json, name) });
    }
    let inside = json.pairs().unwrap_or_default().iter().map(|(_, value)| value);
    for value in inside.chain(json.items().unwrap_or_default()) {
        collect(value, nad, name, depth, uses);
    }
}

fn ranges(plugin: &Json, name: &str) -> Result<Ranges, String> {
    let request = Request {
        // CHECK is judged by the configuration alone, without what a pod asks for.
        verb: Verb::Check,
        name: name.to_owned(),
        version: version::NEWEST,
        config: as_metes(plugin),
        ..empty_request()?
    };
    let config = Config::parse(&request).map_err(|e| e.msg)?;
    if config.pools.is_some() {
        return Err("`ipam` names a pool: write its ranges there until the import has finished".to_owned());
    }
    let document = Section::new("", request.config.pairs().unwrap_or_default(), Shows::Values);
    let ipam = document.section("ipam").map_err(|e| e.msg)?;
    let given = |key| ipam.as_ref().is_some_and(|ipam| ipam.has(key));
    let prefix = if given("network_name") { format!("{}-", config.network) } else { String::new() };
    let scope = Scope::of(&config.sets, None);
    let statics = config.statics.iter();
    let statics = statics.map(|one| Held::new(one.address.ip(), one.network.clone()));
    // An `ipam` in another form has no pools.
    let sets = if given("range") || given("ipRanges") { config.sets.clone() } else { Vec::new() };
    let keep = config.sticky.as_ref().map(|sticky| sticky.keep.unwrap_or_default());
    Ok(Ranges { prefix, is_sliced: given("node_slice_size"), sets, statics: statics.collect(), keep, scope })
}

/// A request for no verb in particular.
fn empty_request() -> Result<Request, String> {
    let command = Verb::Version.name().to_owned();
    Request::parse(&Environment { command, ..Environment::default() }, b"").map_err(|e| e.msg)
}

/// The plugin's configuration with metes instead of whereabouts.
fn as_metes(plugin: &Json) -> Json {
    let change = |(key, value): &(String, Json)| match value {
        Json::Object(pairs) if key.eq_ignore_ascii_case("ipam") => {
            let mut pairs = pairs.clone();
            pairs.retain(|(key, _)| !key.eq_ignore_ascii_case("type"));
            pairs.push(("type".to_owned(), Json::from("metes")));
            (key.clone(), Json::Object(pairs))
        }
        value => (key.clone(), value.clone()),
    };
    Json::Object(plugin.pairs().unwrap_or_default().iter().map(change).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nad(config: &str) -> Nad {
        let id = NadId { namespace: "ns".into(), name: "nad".into() };
        Nad::read(id, "u".into(), "1".into(), Some(config))
    }

    fn networks(one: &Use) -> Vec<String> {
        let ranges = one.ranges.as_ref().expect("metes takes it");
        ranges.sets.iter().map(|set| set.ranges()[0].network().to_string()).collect()
    }

    #[test]
    fn a_list_and_a_single_plugin_say_the_same() {
        let plugin = r#"{"type":"macvlan","ipam":{"type":"whereabouts","range":"10.0.0.0/24"}}"#;
        let list = format!(
            r#"{{"cniVersion":"1.0.0","name":"list","plugins":[{{"type":"x","ipam":{{}}}},{plugin}]}}"#
        );
        for (config, name) in [(plugin, "nad"), (list.as_str(), "list")] {
            let nad = nad(config);
            assert!(nad.uses_whereabouts() && nad.uses.len() == 1, "{config}");
            assert_eq!(nad.uses[0].cni_network, name);
            assert_eq!(networks(&nad.uses[0]), ["default"]);
        }
    }

    #[test]
    fn the_network_is_the_one_that_the_plugin_uses() {
        let own = "lab@00000000000000000000ffff0a000000-24";
        for (keys, expected, prefix) in [
            (r#""range":"10.0.0.9/24""#, "default", ""),
            (r#""range":"10.0.0.0/24","network_name":"lab""#, "lab", "lab-"),
            (r#""range":"10.0.0.0/24","network_name":"lab","enable_overlapping_ranges":false"#, own, "lab-"),
        ] {
            for kind in ["whereabouts", "metes"] {
                let nad = nad(&format!(r#"{{"type":"ovs","ipam":{{"type":"{kind}",{keys}}}}}"#));
                assert_eq!(networks(&nad.uses[0]), [expected]);
                assert_eq!(nad.uses[0].ranges.as_ref().expect("read").prefix, prefix);
                assert_eq!(nad.uses_whereabouts(), kind == "whereabouts");
            }
        }
    }

    #[test]
    fn what_metes_refuses_is_told_and_still_uses_whereabouts() {
        let nad = nad(r#"{"ipam":{"type":"whereabouts","range":"10.0.0.0/24","range_start":"10.9.9.9"}}"#);
        assert!(nad.uses_whereabouts());
        let why = nad.uses[0].ranges.as_ref().expect_err("refused");
        assert!(why.contains("range_start"), "{why}");
    }

    #[test]
    fn others_and_unreadable_ones_use_nothing() {
        assert!(
            nad(r#"{"type":"macvlan","ipam":{"type":"host-local","subnet":"10.0.0.0/24"}}"#).uses.is_empty()
        );
        assert!(nad("").unread.is_some());
        assert!(nad("{").unread.is_some());
        let deep = "[".repeat(100) + &"]".repeat(100);
        assert!(nad(&deep).uses.is_empty());
    }
}
