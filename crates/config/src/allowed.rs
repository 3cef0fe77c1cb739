//! What definitions need in `allowed` of the host file, printed as it is written there. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnetwork::IpNetwork;

use super::Config;
use super::settings::{AllowedNetwork, base_name, spans};
use crate::cni::Json;
use metes_core::pool::NetworkName;

/// What one plugin of a network needs, so that an ADD by its definition is not refused.
#[derive(Debug, Clone)]
pub struct Need {
    /// The definition, for people.
    pub(crate) label: String,
    /// Its namespace; empty if it is not known.
    pub(crate) namespace: String,
    /// What it uses of each network; a pool stands under its own name.
    networks: BTreeMap<NetworkName, AllowedNetwork>,
    /// What it uses besides, and does not say itself, in words.
    besides: Option<&'static str>,
}

impl Need {
    /// The need of a configuration; `is_filled_in` is true if another program writes its ranges.
    pub(crate) fn of(config: &Config, (label, namespace): (&str, &str), is_filled_in: bool) -> Self {
        let mut networks: BTreeMap<NetworkName, AllowedNetwork> = BTreeMap::new();
        let spans = if is_filled_in { Vec::new() } else { spans(config) };
        for (network, first, last) in spans {
            networks.entry(base_name(network)).or_default().prefixes.push(around(first, last));
        }
        for pool in config.pools.iter().flat_map(|pools| pools.names()) {
            if let Ok(network) = NetworkName::configured(pool.as_str()) {
                networks.entry(network).or_default().pools.insert(pool.clone());
            }
        }
        let has_auto = config.pools.as_ref().is_some_and(|pools| pools.has_auto());
        let besides = match (is_filled_in, has_auto) {
            (true, _) => Some("the ranges that its main plugin fills in"),
            (_, true) => Some("the pools that `auto` chooses from"),
            (false, false) => None,
        };
        Self { label: label.to_owned(), namespace: namespace.to_owned(), networks, besides }
    }
}

/// The smallest prefix with both addresses, which are of one family.
fn around(first: IpAddr, last: IpAddr) -> IpNetwork {
    let (width, differ) = match (first, last) {
        (IpAddr::V4(first), IpAddr::V4(last)) => (32, (u32::from(first) ^ u32::from(last)).leading_zeros()),
        (IpAddr::V6(first), IpAddr::V6(last)) => {
            (128, (u128::from(first) ^ u128::from(last)).leading_zeros())
        }
        // A range has one family.
        _ => return IpNetwork::from(first),
    };
    let length = u8::try_from(differ.min(width)).unwrap_or(u8::MAX);
    let prefix = IpNetwork::new(first, length).unwrap_or_else(|_| IpNetwork::from(first));
    IpNetwork::new(prefix.network(), length).unwrap_or(prefix)
}

/// The member `allowed` of a host file that lets these definitions work, and no others; and one line for each thing
/// that a person must decide.
#[must_use]
pub fn printed(needs: &[Need]) -> (String, Vec<String>) {
    let mut networks: BTreeMap<&NetworkName, AllowedNetwork> = BTreeMap::new();
    let mut of_every: BTreeMap<&NetworkName, &str> = BTreeMap::new();
    for need in needs {
        for (name, part) in &need.networks {
            let network = networks.entry(name).or_default();
            network.prefixes.extend(&part.prefixes);
            network.pools.extend(part.pools.iter().cloned());
            network.namespaces.get_or_insert_default().insert(need.namespace.clone());
            if need.namespace.is_empty() {
                of_every.entry(name).or_insert(&need.label);
            }
        }
    }
    let mut told: Vec<String> = of_every
        .iter()
        .map(|(name, label)| {
            format!(
                "{label} has no namespace, so network {name} is for pods of every namespace: else add `namespaces`"
            )
        })
        .collect();
    told.extend(needs.iter().filter_map(|need| Some((need, need.besides?))).map(|(need, besides)| {
        format!("{} also needs {besides}, which it does not name: add them by hand", need.label)
    }));
    for name in of_every.into_keys() {
        networks.entry(name).or_default().namespaces = None;
    }
    let lines: Vec<String> = networks
        .into_iter()
        .map(|(name, network)| format!("  {}: {}", text(name), member(network)))
        .collect();
    let body = if lines.is_empty() { String::new() } else { format!("\n{}\n", lines.join(",\n")) };
    (format!("\"allowed\": {{{body}}}\n"), told)
}

fn member(AllowedNetwork { prefixes, pools, namespaces }: AllowedNetwork) -> String {
    let is_in = |inner: &IpNetwork, outer: &IpNetwork| {
        inner != outer && outer.prefix() <= inner.prefix() && outer.contains(inner.network())
    };
    let widest = prefixes.iter().filter(|inner| !prefixes.iter().any(|outer| is_in(inner, outer)));
    let prefixes = array(widest.collect::<BTreeSet<_>>());
    if pools.is_empty() && namespaces.is_none() {
        return prefixes;
    }
    let pools = (!pools.is_empty()).then(|| format!("\"pools\": {}", array(pools)));
    let namespaces = namespaces.map(|namespaces| format!("\"namespaces\": {}", array(namespaces)));
    let prefixes = (prefixes != "[]").then(|| format!("\"prefixes\": {prefixes}"));
    let keys: Vec<String> = [prefixes, pools, namespaces].into_iter().flatten().collect();
    format!("{{{}}}", keys.join(", "))
}

fn array<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    format!("[{}]", items.into_iter().map(|item| text(&item)).collect::<Vec<_>>().join(", "))
}

fn text(item: &impl ToString) -> String {
    Json::from(item.to_string().as_str()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_prefix_has_both_ends() {
        for (first, last, expected) in [
            ("10.0.0.1", "10.0.255.254", "10.0.0.0/16"),
            ("10.0.0.5", "10.0.0.5", "10.0.0.5/32"),
            ("10.0.0.16", "10.0.0.31", "10.0.0.16/28"),
            ("0.0.0.1", "255.255.255.254", "0.0.0.0/0"),
            ("fd00::1", "fd00::ffff:ffff:ffff:fffe", "fd00::/64"),
            ("fd00::7", "fd00::7", "fd00::7/128"),
        ] {
            let ip = |text: &str| text.parse::<IpAddr>().expect(text);
            assert_eq!(around(ip(first), ip(last)).to_string(), expected);
        }
    }
}
