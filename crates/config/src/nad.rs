//! The plugins of a network's configuration that get their addresses from metes, each with its stdin. Everybody who
//! reads networks reads them here, and then as the plugin does.

use serde_json::{Map, Value, json};

use super::Config;
use super::keys::{HOST_LOCAL, SLIP_EDITS, WHEREABOUTS, nearest};
use crate::cni::{Environment, Error, Json, Request, Verb};
use metes_core::pool::PoolName;

/// The kind of a network's definition, as kubectl calls it.
pub const NAD_KIND: &str = "NetworkAttachmentDefinition";

/// The annotation by which a device of a network is requested.
const RESOURCE: &str = "k8s.v1.cni.cncf.io/resourceName";

/// A NetworkAttachmentDefinition, as far as it matters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nad {
    /// Its namespace; empty if it has none.
    pub(crate) namespace: String,
    /// Its name.
    pub name: String,
    /// The resource whose devices the network hands out; empty if there is none.
    pub(crate) resource: String,
    /// Its configuration; none if that is a file on the nodes.
    pub config: Option<String>,
    /// The key of `spec` that may be meant to have it, if there is no configuration: another key, or `config` itself
    /// if that is no text.
    pub(crate) instead: Option<String>,
    /// Its place in the document.
    pub key: String,
}

impl Nad {
    /// The definition that an object is; `path` is the object's place in its document.
    #[must_use]
    pub fn of(object: &Value, path: &str) -> Option<Self> {
        if object["kind"] != NAD_KIND {
            return None;
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &object["metadata"];
        let config = object["spec"]["config"].as_str().filter(|config| !config.trim().is_empty());
        let instead = if config.is_some() { None } else { instead(&object["spec"]) };
        let key = format!("spec.{}", instead.as_deref().unwrap_or("config"));
        Some(Self {
            namespace: text(&metadata["namespace"]),
            name: text(&metadata["name"]),
            resource: text(&metadata["annotations"][RESOURCE]),
            config: config.map(str::to_owned),
            instead,
            key: if path.is_empty() { key } else { format!("{path}.{key}") },
        })
    }

    /// `namespace/name`
    #[must_use]
    pub fn label(&self) -> String {
        label(&self.namespace, &self.name)
    }
}

/// `namespace/name`; the name alone if there is no namespace.
pub(crate) fn label(namespace: &str, name: &str) -> String {
    match namespace {
        "" => name.to_owned(),
        namespace => format!("{namespace}/{name}"),
    }
}

/// The key of a `spec` without a configuration that may be meant to have it.
fn instead(spec: &Value) -> Option<String> {
    if !spec["config"].is_null() && !spec["config"].is_string() {
        return Some("config".to_owned());
    }
    let others: Vec<&str> =
        spec.as_object()?.keys().map(String::as_str).filter(|key| *key != "config").collect();
    let near = others.iter().find(|key| nearest(key, &["config"], SLIP_EDITS).is_some());
    near.or(others.first()).map(|key| (*key).to_owned())
}

/// A plugin whose `ipam` is metes.
#[derive(Debug, Clone)]
pub struct MetesPlugin {
    /// Its place in the network's configuration, as a JSON pointer.
    pub place: String,
    /// The same as a path of keys, like `plugins[0]`; empty if it is the whole configuration.
    pub(crate) path: String,
    /// The configuration that a runtime gives to it.
    pub(crate) config: Json,
}

/// The plugins in the configuration of a network whose `ipam` is metes, at any depth of delegation. `name` is the
/// network's, if the configuration has none.
#[must_use]
pub fn metes_plugins(config: &Json, name: &str) -> Vec<MetesPlugin> {
    let mut found = Vec::new();
    find(config, String::new(), String::new(), &mut found);
    for plugin in &mut found {
        plugin.config = delegated(&plugin.config, config, name);
    }
    found
}

fn find(value: &Json, place: String, path: String, found: &mut Vec<MetesPlugin>) {
    let ipam_type = value.get("ipam").and_then(|ipam| ipam.get("type")).and_then(Json::text);
    if ipam_type == Some("metes") {
        found.push(MetesPlugin { place, path, config: value.clone() });
        return;
    }
    for (key, inner) in value.pairs().unwrap_or_default() {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        find(inner, format!("{place}/{}", escaped(key)), path, found);
    }
    for (at, inner) in value.items().unwrap_or_default().iter().enumerate() {
        find(inner, format!("{place}/{at}"), format!("{path}[{at}]"), found);
    }
}

/// An object whose `type` is metes, or almost, and which is no `ipam` of metes all the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AlmostMetes {
    /// Its place, as a path of keys.
    pub(crate) path: String,
    /// Its `type`.
    pub(crate) named: String,
    /// True if it is an `ipam`, so that only its type is wrong.
    pub(crate) is_ipam: bool,
}

/// The objects in the configuration of a network that look as if metes were meant.
pub(crate) fn almost_metes(config: &Json) -> Vec<AlmostMetes> {
    let mut found = Vec::new();
    find_almost(config, "", String::new(), &mut found);
    found
}

fn find_almost(value: &Json, key: &str, path: String, found: &mut Vec<AlmostMetes>) {
    let is_ipam = key.eq_ignore_ascii_case("ipam");
    match value.get("type").and_then(Json::text) {
        Some("metes") if is_ipam => return,
        Some(named) if nearest(named, &["metes"], SLIP_EDITS).is_some() => {
            found.push(AlmostMetes { path: path.clone(), named: named.to_owned(), is_ipam });
        }
        _ => {}
    }
    for (key, inner) in value.pairs().unwrap_or_default() {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        find_almost(inner, key, path, found);
    }
    for (at, inner) in value.items().unwrap_or_default().iter().enumerate() {
        find_almost(inner, "", format!("{path}[{at}]"), found);
    }
}

fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// The configuration that a runtime gives to a plugin: every plugin in a list has the list's name and version.
fn delegated(plugin: &Json, list: &Json, name: &str) -> Json {
    let of_list = |key: &str| {
        let mut pairs = list.pairs().unwrap_or_default().iter().rev();
        pairs.find(|(found, _)| found == key).map(|(_, value)| value.clone())
    };
    let name = of_list("name").unwrap_or_else(|| Json::from(name));
    let given = [("name", Some(name)), ("cniVersion", of_list("cniVersion"))];
    let mut pairs = plugin.pairs().unwrap_or_default().to_vec();
    for (key, value) in given {
        if let Some(value) = value {
            pairs.retain(|(found, _)| found != key);
            pairs.push((key.to_owned(), value));
        }
    }
    Json::Object(pairs)
}

impl MetesPlugin {
    /// The request that a run of the plugin would get for some container.
    ///
    /// # Errors
    /// As [`Request::parse`].
    pub(crate) fn request(&self, verb: Verb) -> Result<Request, Error> {
        let environment = Environment {
            command: verb.name().to_owned(),
            container_id: "none".to_owned(),
            netns: "/".to_owned(),
            ifname: "net1".to_owned(),
            path: "/".to_owned(),
            ..Environment::default()
        };
        Request::parse(&environment, self.config.to_string().as_bytes())
    }

    /// The configuration as a run with this verb reads it. DEL checks the least.
    ///
    /// # Errors
    /// As [`Request::parse`] and [`Config::parse`].
    pub fn read(&self, verb: Verb) -> Result<Config, Error> {
        Config::parse(&self.request(verb)?)
    }

    /// True if `ipam` names a network for addresses to be reserved in.
    #[must_use]
    pub fn names_network(&self) -> bool {
        let name = self.config.get("ipam").and_then(|ipam| ipam.get("network_name"));
        name.and_then(Json::text).is_some_and(|name| !name.is_empty())
    }
}
/// Puts pools in the place of all that `ipam` says of ranges: one address is taken from each.
pub fn put_pools(ipam: &mut Map<String, Value>, pools: &[PoolName]) {
    let of_ranges =
        ["gateway", "network_name", "addresses", "order", "cooldown", "cooldown_when_full", "keep"];
    for key in WHEREABOUTS.iter().chain(&HOST_LOCAL).chain(&of_ranges) {
        ipam.remove(*key);
    }
    let (key, value) = match pools {
        [pool] => ("pool", json!(pool)),
        pools => ("pools", json!(pools)),
    };
    ipam.insert(key.to_owned(), value);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(String, String, String)> {
        let config = Json::parse(text.as_bytes()).expect("JSON");
        let plugins = metes_plugins(&config, "nad");
        plugins.into_iter().map(|plugin| (plugin.place, plugin.path, plugin.config.to_string())).collect()
    }

    #[test]
    fn each_plugin_gets_what_a_runtime_gives_it() {
        let text = r#"{"cniVersion":"1.0.0","plugins":[{"type":"a","cniVersion":"0.1.0","IPAM":{"Type":"metes"}},
            {"type":"b","ipam":{"type":"static"}},
            {"a/b":{"delegate":{"name":"x","ipam":{"type":"metes","a":1,"a":2}}}}]}"#;
        let expected = [
            (
                "/plugins/0",
                "plugins[0]",
                r#"{"type":"a","IPAM":{"Type":"metes"},"name":"nad","cniVersion":"1.0.0"}"#,
            ),
            (
                "/plugins/2/a~1b/delegate",
                "plugins[2].a/b.delegate",
                r#"{"ipam":{"type":"metes","a":1,"a":2},"name":"nad","cniVersion":"1.0.0"}"#,
            ),
        ];
        assert_eq!(found(text), expected.map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned())));
        let alone = r#"{"name":"n","type":"bridge","ipam":{"type":"metes"}}"#;
        let expected = r#"{"type":"bridge","ipam":{"type":"metes"},"name":"n"}"#;
        assert_eq!(found(alone), [(String::new(), String::new(), expected.to_owned())]);
        assert_eq!(found(r#"[{"ipam":5},"metes"]"#), []);
    }

    #[test]
    fn what_is_almost_metes_is_found() {
        let found = |text: &str| {
            let found = almost_metes(&Json::parse(text.as_bytes()).expect("JSON"));
            found.into_iter().map(|one| (one.path, one.named, one.is_ipam)).collect::<Vec<_>>()
        };
        for (text, expected) in [
            (r#"{"type":"bridge","ipam":{"type":"mets"}}"#, Some(("ipam", "mets", true))),
            (r#"{"type":"bridge","IPAM":{"Type":"Metes"}}"#, Some(("IPAM", "Metes", true))),
            (
                r#"{"plugins":[{"type":"a"},{"ipma":{"type":"metes"}}]}"#,
                Some(("plugins[1].ipma", "metes", false)),
            ),
            (r#"{"type":"metes","range":"x"}"#, Some(("", "metes", false))),
            (r#"{"type":"bridge","ipam":{"type":"metes"}}"#, None),
            (r#"{"type":"bridge","ipam":{"type":"host-local"}}"#, None),
        ] {
            let expected =
                expected.map(|(path, named, is_ipam)| (path.to_owned(), named.to_owned(), is_ipam));
            assert_eq!(found(text), expected.into_iter().collect::<Vec<_>>(), "{text}");
        }
    }

    #[test]
    fn a_definition_without_a_configuration_says_what_it_has_instead() {
        let nad = |spec: Value| Nad::of(&json!({"kind": NAD_KIND, "spec": spec}), "items[3]").expect("a NAD");
        for (spec, instead, key) in [
            (json!({"config": "{}"}), None, "items[3].spec.config"),
            (json!({"other": 1, "conf": "{}"}), Some("conf"), "items[3].spec.conf"),
            (json!({"config": {"type": "bridge"}}), Some("config"), "items[3].spec.config"),
            (json!({"config": " ", "other": 1}), Some("other"), "items[3].spec.other"),
            (json!({}), None, "items[3].spec.config"),
            (Value::Null, None, "items[3].spec.config"),
        ] {
            let nad = nad(spec);
            assert_eq!((nad.instead.as_deref(), &*nad.key), (instead, key));
        }
    }
}
