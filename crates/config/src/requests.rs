//! Requested addresses, each with the range set that it is taken from.

use std::net::IpAddr;

use super::sections::Sections;
use crate::cni::address::{self, Zeros, parse_cidr, parse_ip};
use crate::cni::{Error, Section};
use metes_core::pool::range::RangeSet;
use metes_core::pool::{Addr, place};

/// The address that is asked of each set, by `IP=` in CNI_ARGS, args.cni.ips or runtimeConfig.ips. The prefix length of
/// the range counts, not one that is written there.
pub(super) fn of_sets(
    sections: &Sections<'_>,
    zeros: Zeros,
    sets: &[RangeSet],
) -> Result<Vec<Option<Addr>>, Error> {
    let wanted = wanted(sections, zeros)?.into_iter().map(Addr::from);
    place(wanted, sets).map_err(|addr| unmatched(addr, sets))
}

/// The error for a part of CNI_ARGS that cannot be read.
pub(super) fn bad_arg(key: &str, expected: &str, found: &str) -> Error {
    let shown: String = found.chars().take(64).collect();
    Error::environment(format!("CNI_ARGS: {key} must be {expected}, found {shown:?}"))
}

/// All requested addresses, each once.
pub(super) fn wanted(sections: &Sections<'_>, zeros: Zeros) -> Result<Vec<IpAddr>, Error> {
    let mut wanted = Vec::new();
    for text in &sections.request.args.ips {
        wanted.push(with_or_without_prefix(text, zeros).ok_or_else(|| bad_arg("IP", address::IP, text))?);
    }
    for list in [&sections.args_cni, &sections.runtime].into_iter().flatten() {
        wanted.extend(ips(list, zeros)?);
    }
    let mut once = Vec::new();
    for ip in wanted {
        if !once.contains(&ip) {
            once.push(ip);
        }
    }
    Ok(once)
}

fn ips(list: &Section<'_>, zeros: Zeros) -> Result<Vec<IpAddr>, Error> {
    list.parsed_list("ips", "an address", |text| with_or_without_prefix(text, zeros))
}

fn with_or_without_prefix(text: &str, zeros: Zeros) -> Option<IpAddr> {
    match text.contains('/') {
        true => parse_cidr(text, zeros).map(|cidr| cidr.ip()),
        false => parse_ip(text, zeros),
    }
}

fn unmatched(addr: Addr, sets: &[RangeSet]) -> Error {
    if sets.iter().any(|set| set.covers(addr).is_some()) {
        return Error::invalid_config(format!(
            "the requested address {addr} lies only in ranges that another requested address is taken from"
        ))
        .with_details("one address is taken from each range set: request at most one from each");
    }
    let ranges: Vec<_> =
        sets.iter().flat_map(RangeSet::ranges).take(8).map(|r| r.subnet().to_string()).collect();
    Error::invalid_config(format!("the requested address {addr} lies outside every range of the network"))
        .with_details(format!("the ranges are {}", ranges.join(", ")))
}
