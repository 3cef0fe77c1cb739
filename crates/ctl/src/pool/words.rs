//! Parts of a pool in words, for people. Pure.

use crate::table::or_dash;
use metes_config::keys::no_such_pool;
use metes_core::plan::pool_change::StoredPools;
use metes_core::pool::dns::PoolDns;
use metes_core::pool::{Patterns, PoolDefinition, PoolName, PoolRange, Selector};

pub(super) fn exclude(range: &PoolRange) -> String {
    let all: Vec<String> = range.exclude.iter().map(|excluded| excluded.0.to_string()).collect();
    or_dash(Some(&all.join(" ")))
}

pub(super) fn routes(pool: &PoolDefinition) -> String {
    let all = pool.routes.iter().map(|route| match route.gw {
        Some(gw) => format!("{} via {gw}", route.dst),
        None => route.dst.to_string(),
    });
    or_dash(Some(&all.collect::<Vec<_>>().join("; ")))
}

pub(super) fn dns(pool: &PoolDefinition) -> String {
    let PoolDns { nameservers, domain, search, options } = &pool.dns;
    let servers: Vec<String> = nameservers.iter().map(ToString::to_string).collect();
    let parts = [
        servers.join(" "),
        format!("domain {domain}"),
        format!("search {}", search.join(" ")),
        options.join(" "),
    ];
    let given = [!servers.is_empty(), !domain.is_empty(), !search.is_empty(), !options.is_empty()];
    let given = parts.into_iter().zip(given).filter_map(|(part, is_given)| is_given.then_some(part));
    or_dash(Some(&given.collect::<Vec<_>>().join("; ")))
}

pub(super) fn allow(pool: &PoolDefinition) -> String {
    pool.allow.as_ref().map_or_else(|| "everybody".to_owned(), selector)
}

/// The pods that `auto` gives addresses of the pool; `-` for none.
pub(super) fn chosen_for(pool: &PoolDefinition) -> String {
    or_dash(pool.selector.as_ref().map(selector).as_deref())
}

pub(super) fn selector(selector: &Selector) -> String {
    let Selector { clusters, namespaces, pods, networks, nodes, node_labels } = selector;
    let lists = [
        ("clusters", clusters),
        ("namespaces", namespaces),
        ("pods", pods),
        ("networks", networks),
        ("nodes", nodes),
    ];
    let list = |(what, patterns): (&str, &Option<Patterns>)| {
        Some(format!("{what} {}", patterns.as_ref()?.texts().join(" ")))
    };
    let label = |(name, patterns): (&String, &Patterns)| format!("{name}={}", patterns.texts().join(","));
    let labels: Vec<String> = node_labels.iter().map(label).collect();
    let labels = (!labels.is_empty()).then(|| format!("node_labels {}", labels.join(" ")));
    let words: Vec<String> = lists.into_iter().filter_map(list).chain(labels).collect();
    if words.is_empty() { "everybody, by an empty selector".to_owned() } else { words.join("; ") }
}

pub(super) fn cooldown(pool: &PoolDefinition) -> String {
    format!("{}, if full: {}", pool.cooldown, pool.cooldown_when_full)
}

/// For how long addresses stay with a pod's name.
pub(super) fn keep(pool: &PoolDefinition) -> String {
    or_dash(pool.keep.map(|keep| keep.to_string()).as_deref())
}

pub(super) fn note(pool: &PoolDefinition) -> String {
    or_dash(Some(&pool.note))
}

/// There is no pool of this name.
pub(super) fn missing(name: &PoolName, pools: &StoredPools) -> String {
    let why = no_such_pool(name, pools.iter().map(|pool| &pool.pool));
    format!("{why}; metes pool list prints the pools")
}
