//! `metes release --now`: ends cooldowns, and frees nothing that is held.

use std::net::IpAddr;
use std::process::ExitCode;

use super::{ReleaseArgs, ReleaseTarget};
use crate::inventory::{Inventory, Row};
use crate::{CliError, Context, Terminal};
use metes_core::pool::{Addr, NetworkName, Owner};
use metes_engine::kv::Kv;
use metes_engine::prefix::{self, MetaError};
use metes_engine::repair::{CooldownEnd, end_cooldown};

/// Ends the cooldown of each address, in a transaction of its own. One that is held does not stop the others.
pub(super) async fn end_cooldowns<K: Kv>(
    context: &Context<'_, K>,
    args: &ReleaseArgs,
    terminal: &mut Terminal<'_>,
) -> Result<ExitCode, CliError> {
    const UNDONE: &str = "no cooldown was ended";
    let targets: Vec<_> =
        args.targets.iter().map(|target| address_of(target, args)).collect::<Result<_, _>>()?;
    context.must_know_store(UNDONE).await?;
    prefix::read(context.session).await.map_err(|why| match why {
        MetaError::Store(failure) => CliError::store("read what the store is")(failure),
        MetaError::Bad(_) | MetaError::Newer(_) => CliError::Refused(format!("{UNDONE}: {why}")),
    })?;
    let mut code = ExitCode::SUCCESS;
    for (network, address) in targets {
        match end(&context.renewed(), network, address).await? {
            Ok(done) => terminal.answer(&(done + "\n"))?,
            Err(refused) => {
                terminal.tell(&format!("metes: {refused}"));
                code = ExitCode::FAILURE;
            }
        }
    }
    context.remember_store().await;
    Ok(code)
}

/// The address that is meant, and its network if that is given.
fn address_of<'a>(
    target: &'a ReleaseTarget,
    args: &'a ReleaseArgs,
) -> Result<(Option<&'a NetworkName>, IpAddr), CliError> {
    match target {
        ReleaseTarget::Address(address) => Ok((args.network.as_ref(), *address)),
        ReleaseTarget::InNetwork(Some(network), address) => Ok((Some(network), *address)),
        _ => Err(CliError::Refused(
            "no cooldown was ended: --now takes addresses, as ADDRESS or NETWORK/ADDRESS; metes release without \
             --now frees what containers and pods hold"
                .to_owned(),
        )),
    }
}

/// Ends the cooldown of an address. Returns what was done, or why that was refused.
async fn end<K: Kv>(
    context: &Context<'_, K>,
    network: Option<&NetworkName>,
    address: IpAddr,
) -> Result<Result<String, String>, CliError> {
    let failed = || CliError::store(format!("end the cooldown of {address}"));
    let networks = match network {
        Some(network) => vec![network.clone()],
        None => context.networks().await.map_err(failed())?,
    };
    let held = context.of_address(&networks, address).await.map_err(failed())?;
    let mut cooling = context.cooling_in(&networks, address).await.map_err(failed())?;
    // What is reserved is not cooling, whatever stands beside it.
    cooling.retain(|network| holder(&held, network, address).is_none());
    let network = match &cooling[..] {
        [network] => network,
        [] => return Ok(nothing_cools(&held, network, address)),
        several => {
            let names: Vec<&str> = several.iter().map(NetworkName::as_str).collect();
            let names = names.join(" and ");
            return Ok(Err(format!(
                "{address} is cooling in the networks {names}: say which with --network"
            )));
        }
    };
    let ended = end_cooldown(context.session, network, Addr::from(address)).await.map_err(failed())?;
    Ok(match ended {
        CooldownEnd::Ended => Ok(format!("{address} of network {network} is not cooling any more")),
        CooldownEnd::NotCooling => {
            Ok(format!("the cooldown of {address} of network {network} has just ended by itself"))
        }
        CooldownEnd::Reserved => Err(format!(
            "{address} of network {network} has just been given: metes show {address} says to whom"
        )),
    })
}

fn holder<'a>(held: &'a Inventory, network: &NetworkName, address: IpAddr) -> Option<&'a Row> {
    let is_it = |row: &&Row| row.network.as_ref() == Some(network) && row.address == Addr::from(address);
    held.rows.iter().find(is_it)
}

/// What an address is that does not cool.
fn nothing_cools(held: &Inventory, network: Option<&NetworkName>, address: IpAddr) -> Result<String, String> {
    let Some(row) = held.rows.iter().find(|row| row.address == Addr::from(address)) else {
        let of = network.map(|network| format!(" of network {network}")).unwrap_or_default();
        return Ok(format!("{address}{of} is neither held nor cooling: there is nothing to do"));
    };
    let network = row.network.as_ref().map_or("-", NetworkName::as_str);
    let by = row.owner().map_or_else(|| "a record that cannot be decoded".to_owned(), Owner::to_string);
    let remedy = match row.container() {
        Some(_) => format!("metes release {network}/{address} frees it"),
        None => format!("metes show {network}/{address} says more"),
    };
    Err(format!("{address} of network {network} is not cooling: it is held by {by}; {remedy}"))
}
