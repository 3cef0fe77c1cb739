//! `metes hold` and `metes holds`.

mod network;
mod pod;

pub(super) use pod::read_unused;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use ipnetwork::IpNetwork;
use serde::Serialize;

use super::filter::{PodName, pod_name};
use super::input::duration;
use super::output::ListOutput;
use super::table::{CellForm, Column, Listed, or_dash};
use super::{CliError, Context, Terminal};
use metes_core::keys::{Key, LeaseId, NetworkAddress};
use metes_core::plan::free::Freed;
use metes_core::plan::hold::{HoldMade, HoldRefused, HoldRequest, Holding};
use metes_core::pool::{
    Addr, ClusterName, HoldNote, InterfaceName, Keep, NetworkName, Owner, OwnerKind, OwnerRecord, Reservation,
};
use metes_core::snapshot::Snapshot;
use metes_core::txn::Entry;
use metes_engine::drive::{Driver, OutOfTime, Stopped};
use metes_engine::kv::{Failure, Kv};
use metes_engine::policy::Policy;
use metes_engine::release::{self, FreeError};
use metes_engine::walk::walk;
use metes_node::node;

/// The longest note of a hold, in bytes.
const HOLD_NOTE_MAX: usize = 256;
/// The most addresses of one prefix or span.
const HOLD_SPAN_MAX: u128 = 1024;
/// The longest time of a hold.
const HOLD_TIME_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("subjects").args(["pod", "file"]))]
pub(super) struct HoldArgs {
    /// The addresses, prefixes (10.0.0.0/28) or spans (10.0.0.5-10.0.0.9)
    #[arg(required_unless_present = "file", value_name = "ADDRESS", value_parser = hold_addresses)]
    addresses: Vec<Addresses>,
    /// Their network; the default is the one with a range that the address lies in
    #[arg(long, value_parser = NetworkName::stored)]
    network: Option<NetworkName>,
    /// Also in a network that the store does not know yet
    #[arg(long, requires = "network")]
    force: bool,
    /// Why; an ADD that asks for the address gets this note
    #[arg(long, required_unless_present_any = ["remove", "pod", "file"], value_parser = hold_note)]
    note: Option<String>,
    /// For how long, like 2h or 7d, at most a year; the default is until --remove. The reconciler ends it
    #[arg(long = "for", value_name = "DURATION", value_parser = hold_time, conflicts_with = "subjects")]
    time: Option<Duration>,
    /// Keep them for the pods of this name: one hold, with the addresses in the order of the result
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = pod_name, requires = "interface")]
    pod: Option<PodName>,
    /// The interface of the pod that gets them
    #[arg(long, value_name = "NAME", requires = "pod")]
    interface: Option<InterfaceName>,
    /// Keep addresses for the pods of each line of this file, NAMESPACE/NAME INTERFACE ADDRESS...; - for stdin
    #[arg(short = 'f', long = "file", value_name = "FILE", conflicts_with_all = ["addresses", "remove"])]
    file: Option<PathBuf>,
    /// The pod's cluster; the default is that of the host file
    #[arg(long, requires = "subjects")]
    cluster: Option<ClusterName>,
    /// For how long they stay after their last use, like 7d, or forever; the default is 1d
    #[arg(long, value_name = "DURATION", requires = "subjects")]
    keep: Option<Keep>,
    /// End it: containers may get the addresses again. If a pod uses them, its container keeps them until it ends
    #[arg(long, conflicts_with_all = ["note", "time", "force", "pod"])]
    remove: bool,
}

#[derive(Debug, Args)]
pub(super) struct HoldsArgs {
    /// Only addresses of this network
    #[arg(value_name = "NETWORK", value_parser = network_alone)]
    only: Option<NetworkName>,
    /// Only addresses of this network
    #[arg(long, value_parser = NetworkName::stored, conflicts_with = "only")]
    network: Option<NetworkName>,
    #[command(flatten)]
    output: ListOutput,
}

/// A network where an address may be meant.
fn network_alone(text: &str) -> Result<NetworkName, String> {
    if text.parse::<IpAddr>().is_ok() {
        return Err(format!("expected a network; metes show {text} says if it is set aside"));
    }
    NetworkName::stored(text).map_err(|e| e.to_string())
}

fn hold_address(text: &str) -> Result<IpAddr, String> {
    let address: IpAddr = text.parse().map_err(|_| "expected an IPv4 or IPv6 address".to_owned())?;
    match address {
        IpAddr::V6(six) if six.to_ipv4_mapped().is_some() => {
            Err("write an IPv4 address as one, like 10.56.0.77".to_owned())
        }
        _ if address.is_unspecified() || address.is_multicast() => {
            Err("expected an address that an interface can have".to_owned())
        }
        _ => Ok(address),
    }
}

/// The addresses of one argument, in their order.
#[derive(Debug, Clone)]
struct Addresses(Vec<IpAddr>);

/// Reads an address, a prefix, or two addresses with a hyphen between.
fn hold_addresses(text: &str) -> Result<Addresses, String> {
    let ends = match (text.split_once('-'), text.contains('/')) {
        (Some((first, last)), false) => (hold_address(first)?, hold_address(last)?),
        (None, true) => {
            let prefix: IpNetwork = text.parse().map_err(|e| format!("expected a prefix: {e}"))?;
            if prefix.ip() != prefix.network() {
                let whole = format!("{}/{}", prefix.network(), prefix.prefix());
                return Err(format!(
                    "expected an address without /{}, or the prefix {whole}",
                    prefix.prefix()
                ));
            }
            (hold_address(&prefix.network().to_string())?, prefix.broadcast())
        }
        _ => return hold_address(text).map(|address| Addresses(vec![address])),
    };
    let (first, last) = (Addr::from(ends.0), Addr::from(ends.1));
    if first > last || first.is_v4() != last.is_v4() {
        return Err("expected the lower address first, and two of one family".to_owned());
    }
    match last.0 - first.0 {
        more if more < HOLD_SPAN_MAX => Ok(Addresses((first.0..=last.0).map(|one| Addr(one).ip()).collect())),
        more => Err(format!(
            "it has {} addresses, and one hold {HOLD_SPAN_MAX} at most: exclude them from the range or the pool",
            more.saturating_add(1)
        )),
    }
}

impl HoldArgs {
    fn addresses(&self) -> Vec<IpAddr> {
        self.addresses.iter().flat_map(|Addresses(all)| all.iter().copied()).collect()
    }
}

fn hold_note(text: &str) -> Result<String, String> {
    let is_right = !text.trim().is_empty() && text.len() <= HOLD_NOTE_MAX && !text.contains(char::is_control);
    match is_right {
        true => Ok(text.to_owned()),
        false => Err(format!("expected 1 to {HOLD_NOTE_MAX} bytes without control characters")),
    }
}

fn hold_time(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    match (Duration::from_secs(1)..=HOLD_TIME_MAX).contains(&time) {
        true => Ok(time),
        false => Err("expected at least 1s and at most 365d".to_owned()),
    }
}

const UNDONE: &str = "no address was set aside, and no hold was ended";

/// Sets addresses aside or ends that, each in a transaction of its own. One that is refused does not stop the others.
pub(super) async fn hold<K: Kv>(
    context: &Context<'_, K>,
    args: &HoldArgs,
    terminal: &mut Terminal<'_>,
) -> Result<ExitCode, CliError> {
    let of_pods = pod::asked(args)?;
    context.must_know_store(UNDONE).await?;
    let done = match &args.note {
        _ if !of_pods.is_empty() => pod::hold_all(context, args, of_pods, terminal).await?,
        Some(note) => hold_all(context, args, note, terminal).await?,
        None => remove_all(context, args, terminal).await?,
    };
    context.remember_store().await;
    Ok(if done { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Sets each of the addresses aside. Returns true if none was refused.
async fn hold_all<K: Kv>(
    context: &Context<'_, K>,
    args: &HoldArgs,
    note: &str,
    terminal: &mut Terminal<'_>,
) -> Result<bool, CliError> {
    let session = context.session;
    let placed = network::of_new(context, args, &args.addresses()).await?;
    if let Some(network) = args.network.as_ref().filter(|_| !args.force) {
        let outside = network::outside(context, network, &args.addresses()).await;
        for address in outside.map_err(CliError::store("look up the ranges"))? {
            terminal.tell(&format!(
                "metes: {address} is in no known range of network {network}: no container would get it anyway"
            ));
        }
    }
    // What is refused founds no store.
    if placed.iter().any(|(_, network)| network.is_ok()) {
        context.must_have_store(UNDONE).await?;
    }
    // etcd counts whole seconds.
    let seconds = args.time.map(|time| time.as_secs() + u64::from(time.subsec_nanos() > 0));
    let policy = Policy::hold(seconds.map(Duration::from_secs), session.until);
    let mut driver = Driver::new(session, policy);
    let (mut refused, mut written) = (false, false);
    let mut stopped = None;
    for (address, network) in placed {
        let network = match network {
            Ok(network) => network,
            Err(why) => {
                refused = true;
                terminal.tell(&format!("metes: cannot set {address} aside: {why}"));
                continue;
            }
        };
        let of_network = format!("{address} of network {network}");
        let doing = format!("set {of_network} aside");
        let request = HoldRequest {
            network,
            address: Addr::from(address),
            hold: HoldNote { note: note.to_owned(), seconds },
            created_at: node::timestamp(),
        };
        let made = driver.run(&mut Holding::new(&request, session.keys)).await;
        let ended = match made.map_err(HoldError::from) {
            Ok(made) => {
                written |= made != HoldMade::Stands;
                terminal.answer(&format!("{of_network} {}\n", made_words(made, args.time)))?;
                continue;
            }
            Err(HoldError::Refused(why)) => {
                refused = true;
                terminal.tell(&format!("metes: cannot {doing}: {why}"));
                continue;
            }
            Err(HoldError::Store(failure)) => CliError::store(doing)(failure),
            Err(HoldError::OutOfTime(_)) => CliError::OutOfTime(doing),
        };
        stopped = Some(ended);
        break;
    }
    if let (Some(lease), false) = (driver.lease(), written || stopped.is_some()) {
        // It is no use to anybody. Should this fail, it ends by itself.
        let _ = session.kv.revoke(lease, session.until).await;
    }
    stopped.map_or(Ok(!refused), Err)
}

fn made_words(made: HoldMade, time: Option<Duration>) -> String {
    let made = match made {
        HoldMade::New => "is set aside",
        HoldMade::Again | HoldMade::Stands => "stays set aside",
    };
    match time {
        None => format!("{made} until it is removed"),
        Some(time) => format!("{made} for {}", humantime::format_duration(time)),
    }
}

/// Ends the hold of each of the addresses. Returns true if all of them were set aside.
async fn remove_all<K: Kv>(
    context: &Context<'_, K>,
    args: &HoldArgs,
    terminal: &mut Terminal<'_>,
) -> Result<bool, CliError> {
    let mut done = true;
    for (address, network) in network::of_old(context, args).await? {
        let network = match network {
            Ok(network) => network,
            Err(why) => {
                done = false;
                terminal.tell(&format!("metes: {address} {why}"));
                continue;
            }
        };
        if let Some(hold) = pod::holder(context, (&network, address)).await? {
            done &= pod::end(context, &hold, terminal).await?;
            continue;
        }
        let doing = || format!("end the hold of {address}");
        let freed =
            release::release(context.session, &Owner::of_hold(&network, Addr::from(address)), None).await;
        let refused = match freed {
            Ok(Freed::Addresses(_)) => {
                terminal.answer(&format!("{address} of network {network} is not set aside any more\n"))?;
                continue;
            }
            Ok(Freed::Nothing) => "is not set aside; metes holds lists what is".to_owned(),
            Ok(Freed::Younger | Freed::Elsewhere(_)) => {
                "was set aside once more at the same time; try again".to_owned()
            }
            Err(FreeError::Bad(bad)) => {
                format!("stays set aside: {bad}; what cannot be decoded counts as held")
            }
            Err(FreeError::Store(failure)) => return Err(CliError::store(doing())(failure)),
            Err(FreeError::OutOfTime(_)) => return Err(CliError::OutOfTime(doing())),
        };
        done = false;
        terminal.tell(&format!("metes: {address} of network {network} {refused}"));
    }
    Ok(done)
}

/// Lists the addresses that are set aside, and those that stay with pods.
pub(super) async fn holds<K: Kv>(
    context: &Context<'_, K>,
    args: &HoldsArgs,
    terminal: &mut Terminal<'_>,
) -> Result<ExitCode, CliError> {
    let network = args.only.as_ref().or(args.network.as_ref());
    let mut rows = read_holds(context, network, terminal).await?;
    rows.extend(pod::read_holds(context, network, terminal).await?);
    rows.sort_by(|one, other| (&one.network, one.address).cmp(&(&other.network, other.address)));
    if let (true, Some(network)) = (rows.is_empty(), network) {
        terminal.tell(&format!(
            "metes: nothing is set aside or kept in network {network}; metes holds shows all"
        ));
    }
    terminal.list(&COLUMNS, rows, &args.output)?;
    Ok(ExitCode::SUCCESS)
}

/// An address that is set aside, or stays with a pod's name.
#[derive(Serialize)]
struct HoldRow {
    network: NetworkName,
    address: std::net::IpAddr,
    note: String,
    /// By the clock of whoever set it aside.
    created_at: Option<String>,
    /// The time of the hold; none: until it is removed. For a pod it is the time after its last use.
    for_seconds: Option<u64>,
    /// The rest of that time. At 0 the next pass of the reconciler frees the address. None for a pod.
    seconds_left: Option<u64>,
    /// The pod's interface that it stays with; none if it is set aside.
    pod: Option<pod::PodInterfaceRow>,
    /// The container that uses it.
    used_by: Option<pod::UserRow>,
}

/// The columns of holds.
pub(super) const COLUMNS: [Column; 8] = [
    Column::new("NETWORK", CellForm::Name),
    Column::new("ADDRESS", CellForm::Whole),
    Column::new("FOR", CellForm::Name),
    Column::new("USED BY", CellForm::Name).spare(2),
    Column::new("NOTE", CellForm::Text),
    Column::new("SINCE", CellForm::Time("AGE")).spare(3),
    Column::new("LEFT", CellForm::Whole),
    Column::new("KEPT", CellForm::Whole).spare(1),
];

impl Listed for HoldRow {
    fn cells(&self) -> Vec<String> {
        let left = self.seconds_left.map(|left| match left {
            0 => "over".to_owned(),
            left => humantime::format_duration(Duration::from_secs(left)).to_string(),
        });
        vec![
            self.network.to_string(),
            self.address.to_string(),
            or_dash(self.pod.as_ref().map(ToString::to_string).as_deref()),
            or_dash(self.used_by.as_ref().map(ToString::to_string).as_deref()),
            or_dash(Some(&*self.note).filter(|note| !note.is_empty())),
            or_dash(self.created_at.as_deref()),
            or_dash(left.as_deref()),
            or_dash(self.pod.as_ref().map(|_| Keep::of_seconds(self.for_seconds).to_string()).as_deref()),
        ]
    }

    fn name(&self) -> String {
        format!("{}/{}", self.network, self.address)
    }
}

async fn read_holds<K: Kv>(
    context: &Context<'_, K>,
    wanted: Option<&NetworkName>,
    terminal: &mut Terminal<'_>,
) -> Result<Vec<HoldRow>, CliError> {
    let session = context.session;
    let keys = session.keys;
    let doing = || CliError::store("list the addresses that are set aside");
    let prefix = wanted.map_or_else(|| keys.hold_owners(), |network| keys.hold_owners_of(network));
    let see = |seen: &mut Snapshot, entry: Entry| seen.set(&entry.key.clone(), Some(entry));
    let (records, _) = walk(session, &prefix, Snapshot::default, see).await.map_err(doing())?;
    let held: Vec<NetworkAddress> = records
        .iter()
        .filter_map(|(key, _)| match keys.parse(key) {
            Ok(Key::Owner(owner)) => match owner.kind() {
                OwnerKind::Aside(network, address) => Some((network, address)),
                OwnerKind::Container(_) | OwnerKind::Subject(_) | OwnerKind::Unknown => None,
            },
            _ => None,
        })
        .collect();
    let mut seen = Snapshot::default();
    let of_each =
        held.iter().flat_map(|(network, address)| [keys.ip(network, *address), keys.hold(network, *address)]);
    session.read(&of_each.collect::<Vec<_>>(), &mut seen).await.map_err(doing())?;
    // Addresses that were set aside together share a lease.
    let mut left: BTreeMap<i64, u64> = BTreeMap::new();
    let mut rows = Vec::new();
    for (network, address) in held {
        let record = match records.record::<OwnerRecord>(&keys.owner(&Owner::of_hold(&network, address))) {
            Ok(record) => record,
            Err(bad) => {
                terminal.tell_damaged(&bad);
                continue;
            }
        };
        let Some(HoldNote { note, seconds }) = record.and_then(|record| record.hold) else { continue };
        let lease = seen.entry(&keys.hold(&network, address)).map_or(0, |entry| entry.lease);
        if let (Some(_), true) = (seconds, lease != 0 && !left.contains_key(&lease)) {
            let age = session.kv.lease_age(LeaseId(lease), session.until).await.map_err(doing())?;
            left.insert(lease, age.map_or(0, |age| age.left.as_secs()));
        }
        let reservation = seen.record::<Reservation>(&keys.ip(&network, address)).ok().flatten();
        rows.push(HoldRow {
            address: address.ip(),
            note,
            created_at: reservation.map(|reservation| reservation.created_at),
            for_seconds: seconds,
            seconds_left: seconds.map(|_| left.get(&lease).copied().unwrap_or_default()),
            network,
            pod: None,
            used_by: None,
        });
    }
    Ok(rows)
}

/// Why an address could not be set aside.
#[derive(Debug, thiserror::Error)]
enum HoldError {
    /// Refused by the keys that were read. Nothing was written.
    #[error(transparent)]
    Refused(#[from] HoldRefused),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] Failure),
    /// There was no time left.
    #[error(transparent)]
    OutOfTime(#[from] OutOfTime),
}

impl From<Stopped<HoldMade, HoldRefused>> for HoldError {
    fn from(stopped: Stopped<HoldMade, HoldRefused>) -> Self {
        match stopped {
            Stopped::Refused(why) => why.into(),
            Stopped::Failed(failure) | Stopped::Unsettled(_, failure) => failure.into(),
            Stopped::OutOfTime => OutOfTime.into(),
            Stopped::Suspect(_) => unreachable!("without a witness nobody doubts the store"),
        }
    }
}
