//! Which plugins of a network's configuration get their addresses from metes, and what each of them is given on stdin.
//! Everybody who reads networks reads them here, and then as the plugin does.

use serde_json::{Map, Value, json};

use super::Config;
use super::keys::{HOST_LOCAL, WHEREABOUTS};
use crate::cni::{Environment, Error, Json, Request, Verb};
use crate::pool::names::PoolName;

/// A plugin whose `ipam` is metes.
#[derive(Debug, Clone)]
pub struct MetesPlugin {
    /// Where it stands in the network's configuration, as a JSON pointer.
    pub place: String,
    /// The same as a path of keys, like `plugins[0]`; empty if it is the whole configuration.
    pub path: String,
    /// The configuration that a runtime gives to it.
    pub config: Json,
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

fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// What a runtime gives to a plugin: every plugin in a list has the list's name and version.
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
    /// What a run of the plugin for some container would be asked.
    ///
    /// # Errors
    /// As [`Request::parse`].
    pub fn request(&self, verb: Verb) -> Result<Request, Error> {
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

    /// Whether `ipam` names a network for addresses to be reserved in.
    #[must_use]
    pub fn names_network(&self) -> bool {
        let name = self.config.get("ipam").and_then(|ipam| ipam.get("network_name"));
        name.and_then(Json::text).is_some_and(|name| !name.is_empty())
    }
}
/// Puts pools in the place of all that `ipam` says of ranges: one address is taken from each.
pub fn put_pools(ipam: &mut Map<String, Value>, pools: &[PoolName]) {
    let of_ranges = ["gateway", "network_name", "addresses", "order", "cooldown", "cooldown_when_full"];
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
}
