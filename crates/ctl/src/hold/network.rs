//! Finds the network of an address to set aside: the one that is named, else the only one that the address lies in.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::HoldArgs;
use crate::{CliError, Context};
use metes_config::keys::{SLIP_EDITS, nearest};
use metes_core::keys::NetworkAddress;
use metes_core::pool::{Addr, KnownRange, NetworkName, OwnerRecord, Record, known_ranges};
use metes_core::txn::Entry;
use metes_engine::kv::{Failure, Kv};
use metes_engine::walk::walk;

/// The most networks that a message names; it leaves out the rest.
const NAMED_MAX: usize = 20;

/// An address and its network; else a sentence that says why it is not known.
pub(super) type Placed = (IpAddr, Result<NetworkName, String>);

/// The network of each address that is to be set aside.
///
/// # Errors
/// [`CliError::Refused`] if the store knows nothing of the network that is named.
pub(super) async fn of_new<K: Kv>(
    context: &Context<'_, K>,
    args: &HoldArgs,
    addresses: &[IpAddr],
) -> Result<Vec<Placed>, CliError> {
    let doing = || CliError::store("look up the networks");
    if let Some(network) = &args.network {
        let is_used =
            args.force || context.has_any(&context.session.keys.net(network)).await.map_err(doing())?;
        if !is_used {
            let networks = context.networks().await.map_err(doing())?;
            is_known(network, &networks).map_err(CliError::Refused)?;
        }
        return Ok(named(network, addresses));
    }
    let seen = context.ranges().await.map_err(doing())?;
    let known = known_ranges(seen.pools.iter(), &seen.asked);
    let mut placed: Vec<Placed> =
        addresses.iter().map(|&address| (address, by_range(address, &known))).collect();
    if placed.iter().any(|(_, network)| network.is_err()) {
        let networks = context.networks().await.map_err(doing())?;
        let refused = placed.iter_mut().filter_map(|(_, network)| network.as_mut().err());
        refused.for_each(|why| why.push_str(&listed(&networks)));
    }
    Ok(placed)
}

/// The addresses, of these, that no container can get: they lie outside of all known ranges of the network that is
/// named. A range may still come.
pub(super) async fn outside<K: Kv>(
    context: &Context<'_, K>,
    network: &NetworkName,
    addresses: &[IpAddr],
) -> Result<Vec<IpAddr>, Failure> {
    let seen = context.ranges().await?;
    let known = known_ranges(seen.pools.iter(), &seen.asked);
    let of_network: Vec<_> = known.into_iter().filter(|known| known.range.network() == network).collect();
    let is_outside = |address: &&IpAddr| !of_network.iter().any(|known| has(known, **address));
    Ok(addresses.iter().filter(is_outside).copied().collect())
}

/// The network in which each address is set aside.
pub(super) async fn of_old<K: Kv>(
    context: &Context<'_, K>,
    args: &HoldArgs,
) -> Result<Vec<Placed>, CliError> {
    if let Some(network) = &args.network {
        return Ok(named(network, &args.addresses()));
    }
    let aside =
        held_aside(context).await.map_err(CliError::store("list the addresses that are set aside"))?;
    Ok(args.addresses().into_iter().map(|address| (address, by_hold(address, &aside))).collect())
}

fn named(network: &NetworkName, addresses: &[IpAddr]) -> Vec<Placed> {
    addresses.iter().map(|address| (*address, Ok(network.clone()))).collect()
}

/// The addresses that are set aside, and those that are kept for pods.
async fn held_aside<K: Kv>(context: &Context<'_, K>) -> Result<Vec<NetworkAddress>, Failure> {
    let keys = context.session.keys;
    let mut prefixes = vec![keys.hold_owners()];
    let clusters = context.clusters().await?;
    prefixes.extend(clusters.iter().filter_map(|name| Some(keys.pod_holds(&name.parse().ok()?))));
    let mut aside = Vec::new();
    for prefix in prefixes {
        let see = |aside: &mut Vec<NetworkAddress>, entry: Entry| {
            let Ok(record) = OwnerRecord::decode(&entry.value) else { return };
            aside.extend(record.reserved().map(|(network, address)| (network.clone(), address)));
        };
        aside.extend(walk(context.session, &prefix, Vec::new, see).await?.0);
    }
    Ok(aside)
}

/// The network that is named must be one of these.
fn is_known(network: &NetworkName, networks: &[NetworkName]) -> Result<(), String> {
    if networks.contains(network) {
        return Ok(());
    }
    let names: Vec<&str> = networks.iter().map(NetworkName::as_str).collect();
    let meant = match nearest(network.as_str(), &names, SLIP_EDITS) {
        Some(near) => format!("; did you mean {near:?}?"),
        None => listed(networks),
    };
    Err(format!(
        "nothing is set aside: no pool and no configuration has network {network}, and no address of it was ever \
         given{meant} If the name is right, add --force"
    ))
}

/// The only network with a range that the address lies in.
fn by_range(address: IpAddr, known: &[KnownRange<'_>]) -> Result<NetworkName, String> {
    let mut networks: BTreeMap<&NetworkName, String> = BTreeMap::new();
    for KnownRange { range, text, pool, .. } in known.iter().filter(|known| has(known, address)) {
        let of_pool = pool.map(|pool| format!(" of pool {pool}")).unwrap_or_default();
        networks.entry(range.network()).or_insert_with(|| format!("{text}{of_pool}"));
    }
    one_of(networks).map_err(|several| match several.as_str() {
        "" => {
            "it lies in no range that a pool has or a configuration asks for; name its network with --network"
                .to_owned()
        }
        several => format!("it lies in ranges of several networks, {several}; say which with --network"),
    })
}

fn has(known: &KnownRange<'_>, address: IpAddr) -> bool {
    (known.range.first()..=known.range.last()).contains(&Addr::from(address))
}

/// The only network in which the address is set aside.
fn by_hold(address: IpAddr, aside: &[NetworkAddress]) -> Result<NetworkName, String> {
    let of_address = aside.iter().filter(|(_, held)| held.ip() == address);
    one_of(of_address.map(|(network, _)| (network, String::new())).collect()).map_err(|several| match several
        .as_str()
    {
        "" => "is not set aside; metes holds lists what is".to_owned(),
        several => format!("is set aside in several networks, {several}; say which with --network"),
    })
}

/// The only one of these networks; else all of them, in words.
fn one_of(networks: BTreeMap<&NetworkName, String>) -> Result<NetworkName, String> {
    let mut names = networks.keys();
    match (names.next(), names.next()) {
        (Some(network), None) => Ok((*network).clone()),
        _ => {
            let words = networks.iter().take(NAMED_MAX).map(|(network, range)| match range.as_str() {
                "" => network.to_string(),
                range => format!("{network} ({range})"),
            });
            Err(words.collect::<Vec<_>>().join(", "))
        }
    }
}

fn listed(networks: &[NetworkName]) -> String {
    let names: Vec<&str> = networks.iter().take(NAMED_MAX).map(NetworkName::as_str).collect();
    let more = if networks.len() > NAMED_MAX { ", ..." } else { "" };
    match names.as_slice() {
        [] => ". The store knows no network yet.".to_owned(),
        names => format!(". The store knows {}{more}.", names.join(", ")),
    }
}
