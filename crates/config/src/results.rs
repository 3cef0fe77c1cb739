//! Routes and DNS: parts of the result that go through as they are written.

use std::net::IpAddr;

use crate::cni::address::{self, Zeros, parse_cidr, parse_ip};
use crate::cni::result::{Dns, Route};
use crate::cni::{Error, Section};

pub(super) fn routes(ipam: &Section<'_>, zeros: Zeros) -> Result<Vec<Route>, Error> {
    ipam.sections("routes")?.iter().map(|section| route(section, zeros)).collect()
}

fn route(section: &Section<'_>, zeros: Zeros) -> Result<Route, Error> {
    let dst = section.parsed("dst", address::CIDR, |text| parse_cidr(text, zeros))?;
    Ok(Route {
        dst: dst.ok_or_else(|| section.invalid("dst", address::CIDR))?,
        gw: ip(section, "gw", zeros)?,
        mtu: section.integer("mtu")?.unwrap_or(0),
        advmss: section.integer("advmss")?.unwrap_or(0),
        priority: section.integer("priority")?.unwrap_or(0),
        table: section.integer("table")?,
        scope: section.integer("scope")?,
    })
}

pub(super) fn dns(ipam: &Section<'_>) -> Result<Dns, Error> {
    let Some(section) = ipam.section("dns")? else {
        return Ok(Dns::default());
    };
    let texts = |key| Ok::<_, Error>(section.texts(key)?.into_iter().map(str::to_owned).collect());
    Ok(Dns {
        nameservers: texts("nameservers")?,
        domain: section.text("domain")?.unwrap_or_default().to_owned(),
        search: texts("search")?,
        options: texts("options")?,
    })
}

pub(super) fn ip(section: &Section<'_>, key: &str, zeros: Zeros) -> Result<Option<IpAddr>, Error> {
    section.parsed(key, address::IP, |text| parse_ip(text, zeros))
}
