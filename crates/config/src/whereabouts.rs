//! Ranges as whereabouts writes them: `range`, and `ipRanges` with one address from each.

use std::collections::HashSet;
use std::net::IpAddr;

use ipnetwork::IpNetwork;

use super::keys::two_forms;
use super::sections::Sections;
use super::{keys, results};
use crate::cni::address::{Zeros, masked, next, parse_cidr, parse_ip, parse_prefix};
use crate::cni::{Error, Section, Verb};
use metes_core::pool::range::{Range, RangeSet, RangeSpec, excludes_nothing, usable};
use metes_core::pool::{Addr, NetworkName};

/// In this form, leading zeros are decimal.
pub(super) const ZEROS: Zeros = Zeros::Decimal;

/// The most addresses that one `pick_addresses` may list.
const PICKED_MAX: usize = 256;

/// The words of a note for a gateway of the other address family.
pub(super) const OF_NO_RANGE: &str = "is the gateway of no range";

/// The part that all ranges of a configuration have in common.
struct Shared<'a> {
    verb: Verb,
    network: &'a NetworkName,
    domains: Domains,
    gateway: Option<IpAddr>,
    never: Vec<IpAddr>,
    /// The main plugin takes the first address of each subnet for itself.
    first_is_gateway: bool,
}

/// The ranges that exclude each other (`enable_overlapping_ranges`).
enum Domains {
    /// All of the network: no address is given twice, even if ranges overlap.
    Network,
    /// Each range alone: two that overlap may give the same address.
    Range,
}

/// The range sets, `range` first. `gateways` are those of routes and static addresses. They are never given away, nor
/// is the gateway of the configuration.
pub(super) fn sets(
    sections: &Sections<'_>,
    network: &NetworkName,
    gateways: &[IpAddr],
    notes: &mut Vec<String>,
) -> Result<Vec<RangeSet>, Error> {
    let ipam = &sections.ipam;
    let gateway = results::ip(ipam, "gateway", ZEROS)?;
    let domains = match ipam.flag("enable_overlapping_ranges")? {
        Some(false) => Domains::Range,
        Some(true) | None => Domains::Network,
    };
    let never = gateways.iter().copied().chain(gateway).collect();
    let first_is_gateway = gateway.is_none() && sections.first_is_gateway;
    let verb = sections.request.verb;
    let shared = Shared { verb, network, domains, gateway, never, first_is_gateway };
    let mut sets = Vec::new();
    if ipam.has("range") {
        sets.push(set(ipam, &shared, notes)?);
    } else {
        needs_range(ipam)?;
    }
    for entry in ipam.sections("ipRanges")? {
        if let Some(key) = keys::HOST_LOCAL_ENTRY[..3].iter().find(|key| entry.has(key)) {
            return Err(two_forms(&entry.at(key), "host-local", &ipam.at("ipRanges"), "whereabouts"));
        }
        sets.push(set(&entry, &shared, notes)?);
    }
    let mut ranges = sets.iter().flat_map(RangeSet::ranges).peekable();
    if let (Some(gateway), Some(_)) = (gateway, ranges.peek())
        && ranges.all(|range| range.subnet().is_ipv4() != gateway.is_ipv4())
    {
        let key = ipam.at("gateway");
        notes.push(format!("`{key}` {OF_NO_RANGE}: {gateway} is of the other address family"));
    }
    Ok(sets)
}

/// Refuses limits at the top level without `range`: they would limit nothing.
fn needs_range(ipam: &Section<'_>) -> Result<(), Error> {
    match ["range_start", "range_end", "exclude", "pick_addresses"].iter().find(|key| has_content(ipam, key))
    {
        None => Ok(()),
        Some(key) => Err(Error::invalid_config(format!(
            "`{}` needs `{}`, which is missing",
            ipam.at(key),
            ipam.at("range")
        ))
        .with_details("inside ipRanges, each entry has limits of its own")),
    }
}

fn has_content(section: &Section<'_>, key: &str) -> bool {
    section.has(key) && section.get(key).and_then(|value| value.items()).is_none_or(|items| !items.is_empty())
}

fn set(section: &Section<'_>, shared: &Shared<'_>, notes: &mut Vec<String>) -> Result<RangeSet, Error> {
    let at = section.at("range");
    let refused = |e: &dyn std::fmt::Display| Error::invalid_config(format!("`{at}`: {e}"));
    let spec = spec(section, shared, notes)?;
    let is_restricted = !spec.excludes.is_empty() || section.has("pick_addresses");
    let ranges = ranges(section, spec)?.into_iter().map(Range::new).collect::<Result<Vec<_>, _>>();
    let set = RangeSet::new(ranges.map_err(|e| refused(&e))?).map_err(|e| refused(&e))?;
    // A DEL does not need an address that is left.
    if is_restricted && set.size() == 0 && !shared.verb.forgives_config() {
        return Err(refused(&"no address is left: all are excluded or gateways")
            .with_details("exclude less of it, or remove the range"));
    }
    Ok(set)
}

/// The range; or, with `pick_addresses`, a range of one address for each of them, in their order.
fn ranges(section: &Section<'_>, spec: RangeSpec) -> Result<Vec<RangeSpec>, Error> {
    if section.get("pick_addresses").is_none() {
        return Ok(vec![spec]);
    }
    let expected = format!("an address from {} to {}", spec.first, spec.last);
    let inside = |ip: &IpAddr| ip.is_ipv4() == spec.subnet.is_ipv4() && spec.first <= *ip && *ip <= spec.last;
    let picked =
        section.parsed_list("pick_addresses", &expected, |text| parse_ip(text, ZEROS).filter(inside))?;
    if !(1..=PICKED_MAX).contains(&picked.len()) {
        return Err(section.invalid("pick_addresses", &format!("an array of 1 to {PICKED_MAX} addresses")));
    }
    // Each has the excludes and gateways that concern it alone, because there may be very many.
    let alone = |ip: IpAddr| RangeSpec {
        network: spec.network.clone(),
        subnet: spec.subnet,
        first: ip,
        last: ip,
        excludes: spec.excludes.iter().filter(|exclude| exclude.contains(ip)).copied().collect(),
        never: spec.never.iter().filter(|never| **never == ip).copied().collect(),
        gateway: spec.gateway,
    };
    let mut once = HashSet::new();
    Ok(picked.into_iter().filter(|ip| once.insert(*ip)).map(alone).collect())
}

/// The address that the main plugin takes for itself, if it does.
fn bridges_own(shared: &Shared<'_>, subnet: IpNetwork) -> Option<IpAddr> {
    shared.first_is_gateway.then(|| next(subnet.ip()))
}

fn spec(section: &Section<'_>, shared: &Shared<'_>, notes: &mut Vec<String>) -> Result<RangeSpec, Error> {
    let written = written_range(section)?;
    let subnet = masked(written.end_and_len);
    let (first, last) = bounds(section, &written, subnet, notes)?;
    let excludes =
        section.parsed_list("exclude", "a prefix or an address", |text| parse_prefix(text, ZEROS))?;
    let told = excludes
        .iter()
        .enumerate()
        .find_map(|(at, exclude)| excludes_nothing(&section.at(&format!("exclude[{at}]")), *exclude, subnet));
    notes.extend(told);
    Ok(RangeSpec {
        network: match shared.domains {
            Domains::Network => shared.network.clone(),
            Domains::Range => shared.network.of_range(Addr::from(subnet.ip()), subnet.prefix()),
        },
        subnet,
        first,
        last,
        // An exclude of the other family excludes nothing, here as in whereabouts.
        excludes: excludes.into_iter().filter(|e| e.is_ipv4() == subnet.is_ipv4()).collect(),
        never: shared.never.iter().copied().chain(bridges_own(shared, subnet)).collect(),
        gateway: shared.gateway.filter(|gateway| gateway.is_ipv4() == subnet.is_ipv4()),
    })
}

/// `range` as written: "B/n", or "A-B/n".
struct Written {
    start: Option<IpAddr>,
    end_and_len: IpNetwork,
}

fn written_range(section: &Section<'_>) -> Result<Written, Error> {
    let expected = "a prefix such as 10.0.0.0/24, or first and last address such as 10.0.0.5-10.0.0.9/24";
    let parse = |text: &str| match text.split_once('-') {
        None => Some(Written { start: None, end_and_len: parse_cidr(text.trim(), ZEROS)? }),
        Some((start, end)) => {
            let start = Some(parse_ip(start.trim(), ZEROS)?);
            Some(Written { start, end_and_len: parse_cidr(end.trim(), ZEROS)? })
        }
    };
    section.parsed("range", expected, parse)?.ok_or_else(|| section.invalid("range", expected))
}

/// The first and last address of a range. "A-B/n" overrides range_start and range_end.
fn bounds(
    section: &Section<'_>,
    written: &Written,
    subnet: IpNetwork,
    notes: &mut Vec<String>,
) -> Result<(IpAddr, IpAddr), Error> {
    let (lowest, highest) = usable(subnet);
    let (start, end) =
        (results::ip(section, "range_start", ZEROS)?, results::ip(section, "range_end", ZEROS)?);
    let (start, end, keys) = match written.start {
        None => (start, end, ["range_start", "range_end"]),
        Some(first) => (Some(first), Some(written.end_and_len.ip()), ["range", "range"]),
    };
    if keys[0] == "range" && (section.has("range_start") || section.has("range_end")) {
        notes.push(format!(
            "`{}` gives first and last address: range_start and range_end are ignored",
            section.at("range")
        ));
    }
    let expected = format!("inside {subnet}");
    let inside = |key, ip: Option<IpAddr>| match ip {
        Some(ip) if !subnet.contains(ip) => Err(section.invalid(key, &expected)),
        ip => Ok(ip),
    };
    let first = inside(keys[0], start)?.filter(|ip| *ip != subnet.network()).unwrap_or(lowest);
    let last = inside(keys[1], end)?.filter(|ip| *ip != subnet.broadcast()).unwrap_or(highest);
    if first > last {
        if first > highest {
            return Err(section.invalid(keys[0], &format!("at most {highest}")));
        }
        let what = format!("{first} or higher, because that is the first address of the range");
        return Err(section.invalid(keys[1], &what));
    }
    Ok((first, last))
}
