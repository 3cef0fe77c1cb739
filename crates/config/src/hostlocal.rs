//! Ranges as host-local writes them: `subnet`, `ranges`, and the capability ipRanges.

use std::net::IpAddr;

use ipnetwork::IpNetwork;

use super::keys::two_forms;
use super::sections::Sections;
use super::{keys, results};
use crate::cni::address::{self, Zeros, next, parse_cidr, previous};
use crate::cni::{Error, Json, Section};
use metes_core::pool::NetworkName;
use metes_core::pool::range::{Range, RangeSet, RangeSpec};

/// In this form, leading zeros are refused.
pub(super) const ZEROS: Zeros = Zeros::Refused;

/// The most ranges that one configuration may have, in all sets together.
const RANGES_MAX: usize = 1024;

/// A checked range, before it knows the gateways of the others.
struct Checked {
    /// Its place in the configuration.
    at: String,
    subnet: IpNetwork,
    first: IpAddr,
    last: IpAddr,
    gateway: IpAddr,
}

/// The range sets, in host-local's order: those of the capability, of `subnet`, of `ranges`. `gateways` are those of
/// routes and static addresses. They are never given away, nor are the gateways of the ranges.
pub(super) fn sets(
    sections: &Sections<'_>,
    network: &NetworkName,
    gateways: &[IpAddr],
    notes: &mut Vec<String>,
) -> Result<Vec<RangeSet>, Error> {
    let mut sets = Vec::new();
    if let Some(runtime) = &sections.runtime {
        sets.extend(checked_sets(runtime, "ipRanges")?);
    }
    sets.extend(old_style(&sections.ipam, notes)?);
    sets.extend(checked_sets(&sections.ipam, "ranges")?);
    if sets.iter().map(Vec::len).sum::<usize>() > RANGES_MAX {
        return Err(Error::invalid_config(format!("`ipam` has more than {RANGES_MAX} ranges")));
    }
    no_overlaps(&sets)?;
    let own = sets.iter().flatten().map(|range| range.gateway);
    let never: Vec<IpAddr> = own.chain(gateways.iter().copied()).collect();
    sets.into_iter().map(|set| build(set, network, &never)).collect()
}

/// `subnet` at the top level of `ipam`: one range.
fn old_style(ipam: &Section<'_>, notes: &mut Vec<String>) -> Result<Option<Vec<Checked>>, Error> {
    if ipam.has("subnet") {
        return Ok(Some(vec![checked(ipam)?]));
    }
    if let Some(key) = ["rangeStart", "rangeEnd"].iter().find(|key| ipam.has(key)) {
        let (key, subnet) = (ipam.at(key), ipam.at("subnet"));
        return Err(Error::invalid_config(format!("`{key}` needs `{subnet}`, which is missing")));
    }
    if ipam.has("gateway") {
        notes.push(
            "key `ipam.gateway` is ignored: without `ipam.subnet`, each range has a gateway of its own"
                .into(),
        );
    }
    Ok(None)
}

/// A list of sets, each a list of ranges.
fn checked_sets(section: &Section<'_>, key: &str) -> Result<Vec<Vec<Checked>>, Error> {
    let mut sets = Vec::new();
    for (i, item) in section.list(key)?.iter().enumerate() {
        let key = format!("{key}[{i}]");
        let expected = "an array of at least one range";
        let ranges = item.items().filter(|ranges| !ranges.is_empty());
        let ranges: &[Json] = ranges.ok_or_else(|| section.invalid_value(&key, expected, item))?;
        let mut set = Vec::new();
        for range in section.sections_in(&key, ranges)? {
            refuse_other_form(&range)?;
            set.push(checked(&range)?);
        }
        sets.push(set);
    }
    Ok(sets)
}

fn refuse_other_form(range: &Section<'_>) -> Result<(), Error> {
    match keys::WHEREABOUTS_ENTRY.iter().find(|key| range.has(key)) {
        None => Ok(()),
        Some(key) => Err(two_forms(&range.at(key), "whereabouts", &range.at("subnet"), "host-local")),
    }
}

fn checked(section: &Section<'_>) -> Result<Checked, Error> {
    let subnet = subnet(section)?;
    let ip = |key| results::ip(section, key, ZEROS);
    let gateway = ip("gateway")?.unwrap_or_else(|| next(subnet.network()));
    let highest = if subnet.is_ipv4() { previous(subnet.broadcast()) } else { subnet.broadcast() };
    let expected = format!("inside {subnet}");
    let inside = |key, default| match ip(key)? {
        Some(ip) if !subnet.contains(ip) => Err(section.invalid(key, &expected)),
        ip => Ok(ip.unwrap_or(default)),
    };
    // A network or broadcast address that is given explicitly is meant.
    let first = inside("rangeStart", next(subnet.network()))?;
    let last = inside("rangeEnd", highest)?;
    if first > last {
        let key = if section.has("rangeStart") { "rangeStart" } else { "rangeEnd" };
        return Err(
            section.invalid(key, &format!("part of a range that is not empty ({first} to {last} is)"))
        );
    }
    Ok(Checked { at: section.at("subnet"), subnet, first, last, gateway })
}

fn subnet(section: &Section<'_>) -> Result<IpNetwork, Error> {
    let subnet = section.parsed("subnet", address::CIDR, |text| parse_cidr(text, ZEROS))?;
    let subnet = subnet.ok_or_else(|| section.invalid("subnet", address::CIDR))?;
    if subnet.ip() != subnet.network() {
        let expected = format!("without host bits ({}/{})", subnet.network(), subnet.prefix());
        return Err(section.invalid("subnet", &expected));
    }
    let longest = if subnet.is_ipv4() { 30 } else { 126 };
    if subnet.prefix() > longest {
        return Err(section.invalid("subnet", &format!("/{longest} or larger")));
    }
    Ok(subnet)
}

/// No address in two ranges, whether of one set or of two.
fn no_overlaps(sets: &[Vec<Checked>]) -> Result<(), Error> {
    let ranges: Vec<&Checked> = sets.iter().flatten().collect();
    for (i, a) in ranges.iter().enumerate() {
        if let Some(b) = ranges[i + 1..].iter().find(|b| a.first <= b.last && b.first <= a.last) {
            return Err(Error::invalid_config(format!(
                "`{}` ({}-{}) overlaps with `{}` ({}-{})",
                a.at, a.first, a.last, b.at, b.first, b.last
            )));
        }
    }
    Ok(())
}

fn build(set: Vec<Checked>, network: &NetworkName, never: &[IpAddr]) -> Result<RangeSet, Error> {
    let at = set.first().map(|range| range.at.clone()).unwrap_or_default();
    let refused = |e: &dyn std::fmt::Display| Error::invalid_config(format!("`{at}`: {e}"));
    if set.iter().any(|range| range.subnet.is_ipv4() != set[0].subnet.is_ipv4()) {
        return Err(refused(&"one range set cannot mix IPv4 and IPv6"));
    }
    let range = |range: Checked| {
        Range::new(RangeSpec {
            network: network.clone(),
            subnet: range.subnet,
            first: range.first,
            last: range.last,
            excludes: Vec::new(),
            never: never.to_vec(),
            gateway: Some(range.gateway).filter(|gateway| gateway.is_ipv4() == range.subnet.is_ipv4()),
        })
    };
    let ranges = set.into_iter().map(range).collect::<Result<Vec<_>, _>>().map_err(|e| refused(&e))?;
    RangeSet::new(ranges).map_err(|e| refused(&e))
}
