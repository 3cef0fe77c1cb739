//! The answer to the caller of a command that has succeeded.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use metes_config::cni::result::{Dns, IpConfig, Route, Success};
use metes_config::cni::version::version_json;
use metes_config::cni::{Error, Version};
use metes_config::command::ResultConfig;
use metes_core::plan::pools::PoolResult;
use metes_core::pool::dns::{PoolDns, add};
use metes_core::pool::{Addr, Held, RangeSet, Wanted};

/// The printed answer.
pub(super) enum VerbAnswer {
    /// Most commands print nothing.
    Nothing,
    /// The versions that the plugin speaks.
    Versions,
    /// The result of an ADD, in the shape of a version.
    Addresses(Success, Version),
}

impl VerbAnswer {
    /// What is held: with the prefix lengths and gateways of the configuration, or with those that a pool had when it
    /// gave an address.
    pub(super) fn addresses(
        wanted: &Wanted,
        held: &[Held],
        of_pools: PoolResult,
        result: ResultConfig,
    ) -> Self {
        let longest = |held: &Held| if held.address.is_ipv4() { 32 } else { 128 };
        let from_set = |(set, held): (&RangeSet, &Held)| {
            let range = set.covers(Addr::from(held.address));
            IpConfig {
                address: held.address,
                prefix_len: range.map_or(longest(held), |range| range.prefix_len()),
                gateway: range.and_then(|range| range.gateway()),
            }
        };
        let from_pool = |held: &Held| {
            let pool = held.pool.as_ref();
            let prefix_len = pool.map_or(longest(held), |from| from.prefix_len);
            IpConfig { address: held.address, prefix_len, gateway: pool.and_then(|from| from.gateway) }
        };
        let ResultConfig { version, statics, routes, dns, .. } = result;
        let mut ips: Vec<IpConfig> = match wanted {
            Wanted::Ranges(ranges) => ranges.sets.iter().zip(held).map(from_set).collect(),
            Wanted::Pools(_) => held.iter().map(from_pool).collect(),
        };
        let routes =
            of_pools.routes.iter().map(|route| Route::new(route.dst, route.gw)).chain(routes).collect();
        ips.extend(statics.iter().map(|fixed| IpConfig {
            address: fixed.address.ip(),
            prefix_len: fixed.address.prefix(),
            gateway: fixed.gateway,
        }));
        VerbAnswer::Addresses(Success { ips, routes, dns: joined(&of_pools.dns, &dns) }, version)
    }

    /// Prints the answer; from then on the caller has it.
    ///
    /// # Errors
    /// Code 7 if the version cannot say it, 5 if it cannot be written.
    pub(super) fn print(&self, out: &mut impl Write, answered: &AtomicBool) -> Result<(), Error> {
        let text = match self {
            VerbAnswer::Nothing => {
                answered.store(true, Ordering::Relaxed);
                return Ok(());
            }
            VerbAnswer::Versions => version_json(),
            VerbAnswer::Addresses(success, version) => success.render(*version)?,
        };
        #[cfg(feature = "failpoints")]
        metes_engine::failpoints::pass("print.before");
        let printed = writeln!(out, "{text}").and_then(|()| out.flush());
        answered.store(printed.is_ok(), Ordering::Relaxed);
        #[cfg(feature = "failpoints")]
        metes_engine::failpoints::pass("print.after");
        printed.map_err(|e| Error::io(format!("the answer cannot be written to stdout: {e}")))
    }
}

/// What pools say of DNS, and after that what the network says, whose local domain counts if it has one.
fn joined(of_pools: &PoolDns, own: &Dns) -> Dns {
    let mut all = Dns {
        nameservers: of_pools.nameservers.iter().map(ToString::to_string).collect(),
        domain: if own.domain.is_empty() { &of_pools.domain } else { &own.domain }.clone(),
        search: of_pools.search.clone(),
        options: of_pools.options.clone(),
    };
    add(&mut all.nameservers, &own.nameservers);
    add(&mut all.search, &own.search);
    add(&mut all.options, &own.options);
    all
}
