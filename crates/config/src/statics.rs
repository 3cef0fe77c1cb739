//! Static addresses: `addresses`, and all addresses of a configuration without ranges.

use std::net::IpAddr;

use ipnetwork::IpNetwork;

use super::sections::Sections;
use super::{requests, results};
use crate::cni::address::{self, Zeros, parse_cidr, parse_ip};
use crate::cni::{Error, Section};

/// A static address, before it is decided in which network it is reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) address: IpNetwork,
    pub(super) gateway: Option<IpAddr>,
}

/// `addresses`.
pub(super) fn configured(ipam: &Section<'_>, zeros: Zeros) -> Result<Vec<Given>, Error> {
    let given = |section: &Section<'_>| {
        let address = section.parsed("address", address::CIDR, |text| parse_cidr(text, zeros))?;
        let address = address.ok_or_else(|| section.invalid("address", address::CIDR))?;
        Ok(Given { address, gateway: results::ip(section, "gateway", zeros)? })
    };
    ipam.sections("addresses")?.iter().map(given).collect()
}

/// The static addresses of a configuration without ranges. As in the static plugin, args.cni.ips replaces `addresses`
/// and CNI_ARGS, and runtimeConfig.ips replaces all of them.
pub(super) fn without_ranges(sections: &Sections<'_>, configured: Vec<Given>) -> Result<Vec<Given>, Error> {
    for list in [&sections.runtime, &sections.args_cni].into_iter().flatten() {
        let ips =
            list.parsed_list("ips", "an address with a prefix length, such as 10.0.0.5/24", |text| {
                parse_cidr(text, Zeros::Refused)
            })?;
        if !ips.is_empty() {
            return Ok(ips.into_iter().map(|address| Given { address, gateway: None }).collect());
        }
    }
    let mut all = configured;
    all.extend(from_environment(sections)?);
    Ok(all)
}

/// CNI_ARGS: each address with the gateway that its subnet contains.
fn from_environment(sections: &Sections<'_>) -> Result<Vec<Given>, Error> {
    let args = &sections.request.args;
    let ip = |text: &str| parse_ip(text, Zeros::Refused);
    let gateways = all_or_known(sections, "GATEWAY", address::IP, &args.gateways, ip)?;
    let cidr = |text: &str| parse_cidr(text, Zeros::Refused);
    let addresses = all_or_known(sections, "IP", address::CIDR, &args.ips, cidr)?;
    let given = |address: IpNetwork| {
        let gateway = gateways.iter().rev().find(|gateway| address.contains(**gateway));
        Given { address, gateway: gateway.copied() }
    };
    Ok(addresses.into_iter().map(given).collect())
}

/// All of them for an ADD. Other verbs must not fail over CNI_ARGS: they get those that can be read.
fn all_or_known<T>(
    sections: &Sections<'_>,
    key: &str,
    expected: &str,
    texts: &[String],
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Vec<T>, Error> {
    if !sections.is_add() {
        return Ok(texts.iter().filter_map(|text| parse(text)).collect());
    }
    let parsed = |text: &String| parse(text).ok_or_else(|| requests::bad_arg(key, expected, text));
    texts.iter().map(parsed).collect()
}
