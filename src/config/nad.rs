//! Where metes stands in the configuration of a network: in one plugin's, or in a list of plugins.

use serde_json::{Map, Value, json};

use super::keys::{HOST_LOCAL, WHEREABOUTS};
use crate::pool::names::PoolName;

/// A JSON pointer to the plugin whose `ipam` is metes, at any depth of delegation; none if there is no such plugin.
#[must_use]
pub fn place_of_metes(config: &Value) -> Option<String> {
    let below = |key: &str, value| Some(format!("/{}{}", escaped(key), place_of_metes(value)?));
    match config {
        Value::Object(keys) if keys.get("ipam").is_some_and(|ipam| ipam["type"] == "metes") => {
            Some(String::new())
        }
        Value::Object(keys) => keys.iter().find_map(|(key, value)| below(key, value)),
        Value::Array(items) => items.iter().enumerate().find_map(|(at, item)| below(&at.to_string(), item)),
        _ => None,
    }
}

fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// The configuration that a runtime gives to the plugin at `place`: every plugin in a list has the list's name and
/// version. `name` is the network's, if the configuration has none.
#[must_use]
pub fn plugin_at(config: &Value, place: &str, name: &str) -> Option<Value> {
    let mut plugin = config.pointer(place)?.clone();
    plugin["name"] = config.get("name").cloned().unwrap_or_else(|| json!(name));
    if let Some(version) = config.get("cniVersion") {
        plugin["cniVersion"] = version.clone();
    }
    Some(plugin)
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
