//! Pools: `pool`, and `pools` with one address from each element.

use std::net::IpAddr;

use super::keys;
use super::requests;
use super::sections::Sections;
use crate::cni::address::Zeros;
use crate::cni::{Error, Json, Section};
use metes_core::pool::{AUTO, Order, POOLED_MAX, POOLS_MAX, PoolElement, PoolName, PoolsWanted};

/// The type of `pools`, in words.
const LIST: &str = "an array of pool names, \"auto\" or arrays of pool names that are tried in order";

/// The name of this form, as users know it.
pub(super) const FORM: &str = "pools";

/// The key that says that addresses come from pools.
pub(super) fn key(ipam: &Section<'_>) -> Option<String> {
    keys::POOLS.iter().find(|key| ipam.has(key)).map(|key| ipam.at(key))
}

/// Reads the wish for pools. `gateways` are those of the configuration's routes.
pub(super) fn wanted(
    sections: &Sections<'_>,
    order: Option<Order>,
    gateways: Vec<IpAddr>,
) -> Result<PoolsWanted, Error> {
    let ipam = &sections.ipam;
    if ipam.has("pool") && ipam.has("pools") {
        return Err(Error::invalid_config(format!(
            "`{}` and `{}` cannot be combined",
            ipam.at("pool"),
            ipam.at("pools")
        ))
        .with_details("name all pools in `pools`: one address is taken from each element"));
    }
    for key in ["network_name", "gateway", "addresses", "cooldown", "cooldown_when_full", "keep"] {
        if ipam.has(key) {
            let own = self::key(ipam).unwrap_or_default();
            return Err(Error::invalid_config(format!(
                "`{}` belongs to the pool, and not beside `{own}`",
                ipam.at(key)
            ))
            .with_details("remove it: metes pool show NAME says what the pool has"));
        }
    }
    let elements = match ipam.parsed("pool", PoolName::EXPECTED, one)? {
        Some(element) => vec![element],
        None => ipam.list("pools")?.iter().map(|json| element(ipam, json)).collect::<Result<_, _>>()?,
    };
    if elements.is_empty() || elements.len() > POOLED_MAX {
        return Err(Error::invalid_config(format!(
            "`{}` has {} elements: expected 1 to {POOLED_MAX}",
            ipam.at("pools"),
            elements.len()
        )));
    }
    let names = elements.iter().map(|element| element.names.len()).sum::<usize>();
    if names > POOLS_MAX {
        return Err(Error::invalid_config(format!(
            "`{}` names {names} pools: expected at most {POOLS_MAX}",
            ipam.at("pools")
        )));
    }
    let asked = if sections.is_add() { requests::wanted(sections, Zeros::Refused)? } else { Vec::new() };
    if asked.len() > elements.len() {
        return Err(Error::invalid_config(format!(
            "{} addresses are requested, and {} taken from pools",
            asked.len(),
            elements.len()
        )));
    }
    Ok(PoolsWanted { order, requests: asked, never: gateways, ..PoolsWanted::of(elements) })
}

/// A pool's name, or `auto`.
fn one(text: &str) -> Option<PoolElement> {
    match text {
        AUTO => Some(PoolElement::auto()),
        name => Some(PoolElement::of(vec![name.parse().ok()?])),
    }
}

fn element(ipam: &Section<'_>, json: &Json) -> Result<PoolElement, Error> {
    let invalid = || ipam.invalid("pools", LIST);
    let Some(items) = json.items() else { return json.text().and_then(one).ok_or_else(invalid) };
    if items.iter().any(|item| item.text() == Some(AUTO)) {
        return Err(Error::invalid_config(format!("`{}` has {AUTO:?} among other pools", ipam.at("pools")))
            .with_details("write \"auto\" in place of an inner array: the pools say whom they are for"));
    }
    let name = |json: &Json| json.text().and_then(|text| text.parse().ok());
    let names: Option<Vec<PoolName>> = items.iter().map(name).collect();
    names.filter(|names| !names.is_empty()).map(PoolElement::of).ok_or_else(invalid)
}
