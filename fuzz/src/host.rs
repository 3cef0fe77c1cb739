//! The host file, and after a zero byte a network configuration that the host file may allow.

use metes_config::cni::{Environment, Json, Request};
use metes_config::settings::{Allowed, AllowedNetwork, PodsOf};
use metes_config::{Config, HostFile, Settings};
use metes_core::pool::{Addr, NetworkName};

use super::config::{check_error, check_settings};

/// A shorter value may occur in any text by chance.
const TELLING: usize = 8;

pub(super) fn host(data: &[u8]) {
    let mut parts = data.splitn(2, |byte| *byte == 0);
    let file = parts.next().unwrap_or_default();
    let settings = match HostFile::parse(file).and_then(Settings::from_host) {
        Ok(settings) => settings,
        Err(e) => {
            check_error(&e);
            return check_says_nothing(file, &e.to_string());
        }
    };
    check_settings(&settings);
    if let Some(config) = parts.next().and_then(config) {
        let is_allowed = settings.check_allowed(&config, PodsOf::Namespace(NAMESPACE)).is_ok()
            && settings.check_pools_only(&config).is_ok()
            && settings.check_resolv_conf(&config).is_ok();
        let should_be = settings.unclear.is_none() && all_allowed(&settings, &config);
        assert_eq!(is_allowed, should_be, "{:?}", settings.allowed);
    }
}

/// The namespace of the pod that asks.
const NAMESPACE: &str = "a";

fn is_for(network: &AllowedNetwork) -> bool {
    network.namespaces.as_ref().is_none_or(|namespaces| namespaces.iter().any(|one| one == NAMESPACE))
}

fn config(stdin: &[u8]) -> Option<Config> {
    let environment = Environment {
        command: "ADD".to_owned(),
        container_id: "c1".to_owned(),
        netns: "/run/netns/c1".to_owned(),
        ifname: "eth0".to_owned(),
        path: "/opt/cni/bin".to_owned(),
        ..Environment::default()
    };
    Config::parse(&Request::parse(&environment, stdin).ok()?).ok()
}

/// True if each address and both ends of each range lie together in one prefix of their network, and the settings name
/// each of its pools and its resolv.conf.
fn all_allowed(settings: &Settings, config: &Config) -> bool {
    if settings.pools_only && config.pools.is_none() {
        return false;
    }
    if config.resolv_conf.iter().any(|path| settings.resolv_conf.iter().all(|allowed| allowed != path)) {
        return false;
    }
    let Allowed::Networks(allowed) = &settings.allowed else { return true };
    let mut pools = config.pools.iter().flat_map(|pools| pools.names());
    if pools.any(|pool| !allowed.values().any(|network| is_for(network) && network.pools.contains(pool))) {
        return false;
    }
    let may = |network: &NetworkName, addresses: &[Addr]| {
        let base = network.as_str().split('@').next().unwrap_or_default();
        let named = allowed.iter().filter(|(name, network)| name.as_str() == base && is_for(network));
        named
            .flat_map(|(_, network)| &network.prefixes)
            .any(|prefix| addresses.iter().all(|address| prefix.contains(address.ip())))
    };
    let ranges = config.sets.iter().flat_map(|set| set.ranges());
    let mut requests = config.sets.iter().zip(&config.requests).filter_map(|(set, request)| {
        let address = (*request)?;
        Some((set.covers(address)?.network(), address))
    });
    let network_of = |fixed: &metes_config::Static| {
        (fixed.network.clone().unwrap_or_else(|| config.network.clone()), Addr::from(fixed.address.ip()))
    };
    ranges.into_iter().all(|range| may(range.network(), &[range.first(), range.last()]))
        && requests.all(|(network, address)| may(network, &[address]))
        && config.statics.iter().map(network_of).all(|(network, address)| may(&network, &[address]))
}

/// An error never repeats a value of the file: if a value occurs in its text, the text is the same for another value.
fn check_says_nothing(file: &[u8], text: &str) {
    let Ok(json) = Json::parse(file) else { return };
    let mut values = Vec::new();
    collect(&json, &mut values);
    for value in values.into_iter().filter(|value| value.len() >= TELLING && text.contains(value.as_str())) {
        let without = replace(&json, &value).to_string();
        let again = HostFile::parse(without.as_bytes()).and_then(Settings::from_host);
        let again = again.err().map(|e| e.to_string());
        assert_eq!(again.as_deref(), Some(text), "{value:?} is repeated");
    }
}

fn collect(json: &Json, values: &mut Vec<String>) {
    match json {
        Json::String(text) => values.push(text.clone()),
        Json::Array(items) => items.iter().for_each(|item| collect(item, values)),
        Json::Object(pairs) => pairs.iter().for_each(|(_, value)| collect(value, values)),
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}

/// The same with another value of the same length in its place.
fn replace(json: &Json, value: &str) -> Json {
    match json {
        Json::String(text) if text == value => Json::String("#".repeat(text.len())),
        Json::Array(items) => Json::Array(items.iter().map(|item| replace(item, value)).collect()),
        Json::Object(pairs) => {
            Json::Object(pairs.iter().map(|(key, inner)| (key.clone(), replace(inner, value))).collect())
        }
        other => other.clone(),
    }
}
