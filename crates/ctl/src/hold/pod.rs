//! Holds for pods: made beforehand or for a running pod, listed, and ended or handed over.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use serde::Serialize;

use super::network::{self, Placed};
use super::{HoldArgs, HoldRow, hold_address};
use crate::filter::{PodName, pod_name};
use crate::input::read_lines;
use crate::{CliError, Context, Terminal};
use metes_core::cooling::CoolingLeases;
use metes_core::keys::{Key, NetworkAddress};
use metes_core::plan::free::Freed;
use metes_core::plan::hold_for::{
    HandOver, HandOverRefused, HandedOver, PodHoldMade, PodHoldRefused, PodHoldRequest, PodHolding,
};
use metes_core::pool::{
    Addr, ClusterName, ContainerId, Held, HoldNote, InterfaceName, Keep, NetworkName, NodeName, Owner,
    OwnerKind, OwnerRecord, PodUid, Record, Reservation, SeatRecord, Subject,
};
use metes_core::snapshot::Snapshot;
use metes_core::txn::Entry;
use metes_engine::drive::{Driver, Stopped};
use metes_engine::kv::{Failure, Kv};
use metes_engine::policy::Policy;
use metes_engine::release::{self, FreeError};
use metes_engine::walk::walk;
use metes_node::node;

/// The interface of a pod that addresses stay with.
#[derive(Serialize)]
pub(super) struct PodInterfaceRow {
    cluster: Option<ClusterName>,
    namespace: String,
    name: String,
    ifname: InterfaceName,
}

/// As a command line names it: `prod/db-0 net1`.
impl fmt::Display for PodInterfaceRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} {}", self.namespace, self.name, self.ifname)
    }
}

/// The container that uses a hold.
#[derive(Serialize)]
pub(super) struct UserRow {
    node: NodeName,
    container_id: ContainerId,
    pod_uid: Option<PodUid>,
    since: String,
}

impl fmt::Display for UserRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.container_id, self.node)
    }
}

/// The addresses of a pod's interface, as they are asked for.
pub(super) struct OfPod {
    pod: PodName,
    ifname: InterfaceName,
    addresses: Vec<IpAddr>,
}

impl OfPod {
    /// A line of a file: `prod/db-0 net1 10.56.0.77`.
    fn of_line(line: &str) -> Result<Self, String> {
        let mut words = line.split_whitespace();
        let expected = "expected NAMESPACE/NAME INTERFACE ADDRESS...";
        let (Some(pod), Some(ifname)) = (words.next(), words.next()) else { return Err(expected.to_owned()) };
        let pod = pod_name(pod).map_err(|why| format!("{pod:?}: {why}"))?;
        let ifname = ifname.parse().map_err(|why| format!("{ifname:?}: {why}"))?;
        let address = |word: &str| hold_address(word).map_err(|why| format!("{word:?}: {why}"));
        let addresses: Vec<IpAddr> = words.map(address).collect::<Result<_, _>>()?;
        if addresses.is_empty() {
            return Err(format!("{expected}, found no address after {ifname}"));
        }
        Ok(Self { pod, ifname, addresses })
    }
}

/// The pods that the command line names, or the file that it names; none if the addresses are for nobody.
pub(super) fn asked(args: &HoldArgs) -> Result<Vec<OfPod>, CliError> {
    if let (Some(pod), Some(ifname)) = (&args.pod, &args.interface) {
        let (pod, ifname, addresses) = (pod.clone(), ifname.clone(), args.addresses());
        return Ok(vec![OfPod { pod, ifname, addresses }]);
    }
    let Some(file) = &args.file else { return Ok(Vec::new()) };
    let (name, asked) = read_lines(file, "nothing is kept", OfPod::of_line)?;
    match asked.is_empty() {
        true => Err(CliError::Refused(format!(
            "nothing is kept: {name} names no pod: write lines NAMESPACE/NAME INTERFACE ADDRESS..."
        ))),
        false => Ok(asked),
    }
}

/// Keeps addresses for pods, those of one interface in one transaction. One that is refused does not stop the others.
/// Returns true if none was.
pub(super) async fn hold_all<K: Kv>(
    context: &Context<'_, K>,
    args: &HoldArgs,
    asked: Vec<OfPod>,
    terminal: &mut Terminal<'_>,
) -> Result<bool, CliError> {
    let all: Vec<IpAddr> = asked.iter().flat_map(|one| one.addresses.iter().copied()).collect();
    let mut placed = network::of_new(context, args, &all).await?.into_iter();
    let mut done = true;
    for one in asked {
        let of_one: Vec<Placed> = placed.by_ref().take(one.addresses.len()).collect();
        done &= hold(context, args, (&one.pod, one.ifname), of_one, terminal).await?;
    }
    Ok(done)
}

/// Keeps all of the addresses for the pods of a name, in one transaction. Returns true if that is so now.
async fn hold<K: Kv>(
    context: &Context<'_, K>,
    args: &HoldArgs,
    (PodName { namespace, name }, ifname): (&PodName, InterfaceName),
    placed: Vec<Placed>,
    terminal: &mut Terminal<'_>,
) -> Result<bool, CliError> {
    let session = context.session;
    let subject = Subject { namespace: namespace.clone(), name: name.clone() };
    let Some(cluster) = args.cluster.clone().or_else(|| context.settings.cluster.clone()) else {
        return Err(CliError::Refused(
            "nothing is kept: the host file has no `cluster`; name it with --cluster".to_owned(),
        ));
    };
    let hold = Owner::of_pod(cluster, &subject, ifname)
        .map_err(|e| CliError::Refused(format!("nothing is kept: {e}")))?;
    let mut addresses: Vec<NetworkAddress> = Vec::new();
    let mut refused = Vec::new();
    for (address, network) in placed {
        match network {
            Ok(network) => addresses.push((network, Addr::from(address))),
            Err(why) => refused.push(format!("metes: {address} is not kept: {why}")),
        }
    }
    if !refused.is_empty() {
        refused.iter().for_each(|why| terminal.tell(why));
        return Ok(false);
    }
    context.must_have_store("nothing is kept").await?;
    let keep = args.keep.unwrap_or_default();
    let note = HoldNote { note: args.note.clone().unwrap_or_default(), seconds: keep.seconds() };
    let request = PodHoldRequest { hold, subject, addresses, note, created_at: node::timestamp() };
    let mut driver = Driver::new(session, Policy::hold(None, session.until));
    let doing = || format!("keep addresses for {}", request.subject);
    let made = match driver.run(&mut PodHolding::new(&request, session.keys)).await {
        Ok(made) => made,
        Err(stopped) => return stopped_words(stopped, doing(), terminal),
    };
    let named: Vec<String> = request.addresses.iter().map(|(_, address)| address.to_string()).collect();
    let time = match keep {
        Keep::Seconds(_) => format!("{keep} after their last use"),
        Keep::Forever => "until they are removed".to_owned(),
    };
    let made = match made {
        PodHoldMade::New => "now, and no container uses them yet",
        PodHoldMade::OfContainer => "now, and the container that has them uses them",
        PodHoldMade::Again => "as before, with this note and time",
        PodHoldMade::Stands => "as before",
    };
    let (ifname, subject) = (&request.hold.ifname, &request.subject);
    let addresses = named.join(" ");
    terminal.answer(&format!("{addresses} stays with {ifname} of {subject} {made}: {time}\n"))?;
    Ok(true)
}

/// Tells why nothing was done.
fn stopped_words(
    stopped: Stopped<PodHoldMade, PodHoldRefused>,
    doing: String,
    terminal: &mut Terminal<'_>,
) -> Result<bool, CliError> {
    match stopped {
        Stopped::Refused(why) => {
            terminal.tell(&format!("metes: cannot {doing}: {why}"));
            Ok(false)
        }
        Stopped::Failed(failure) | Stopped::Unsettled(_, failure) => Err(CliError::store(doing)(failure)),
        Stopped::OutOfTime => Err(CliError::OutOfTime(doing)),
        Stopped::Suspect(_) => unreachable!("without a witness nobody doubts the store"),
    }
}

/// The hold for a pod that has an address; none if none has.
pub(super) async fn holder<K: Kv>(
    context: &Context<'_, K>,
    (network, address): (&NetworkName, IpAddr),
) -> Result<Option<Owner>, CliError> {
    let key = context.session.keys.ip(network, Addr::from(address));
    let mut seen = Snapshot::default();
    let read = context.session.read(std::slice::from_ref(&key), &mut seen).await;
    read.map_err(CliError::store(format!("look up {address}")))?;
    let owner = seen.record::<Reservation>(&key).ok().flatten().map(|reservation| reservation.owner);
    Ok(owner.filter(|owner| owner.is_for_subject()))
}

/// Ends a hold for a pod. If a container uses it, the container has the addresses itself from now on. Returns true if
/// the hold is gone.
pub(super) async fn end<K: Kv>(
    context: &Context<'_, K>,
    hold: &Owner,
    terminal: &mut Terminal<'_>,
) -> Result<bool, CliError> {
    let session = context.session;
    let (doing, now) = (|| format!("end {hold}"), node::timestamp());
    let mut driver = Driver::new(session, Policy::hold(None, session.until));
    let refused = match driver.run(&mut HandOver::new(hold, session.keys, &now)).await {
        Ok(HandedOver::To(user)) => {
            let (container, node) = (&user.container_id, &user.node);
            let text =
                format!("{hold} is ended: container {container} on {node} keeps the addresses itself\n");
            terminal.answer(&text)?;
            return Ok(true);
        }
        Ok(HandedOver::Unused) => return free(context, hold, terminal).await,
        Ok(HandedOver::Nothing) => "does not exist".to_owned(),
        Err(Stopped::Refused(why @ (HandOverRefused::Twice(..) | HandOverRefused::Contradiction))) => {
            format!("stays: {why}")
        }
        Err(Stopped::Refused(HandOverRefused::Bad(bad))) => {
            format!("stays: {bad}; what cannot be decoded counts as held")
        }
        Err(Stopped::Failed(failure) | Stopped::Unsettled(_, failure)) => {
            return Err(CliError::store(doing())(failure));
        }
        Err(Stopped::OutOfTime) => return Err(CliError::OutOfTime(doing())),
        Err(Stopped::Suspect(_)) => unreachable!("without a witness nobody doubts the store"),
    };
    terminal.tell(&format!("metes: {hold} {refused}"));
    Ok(false)
}

/// Frees the addresses of a hold that no container uses.
async fn free<K: Kv>(
    context: &Context<'_, K>,
    hold: &Owner,
    terminal: &mut Terminal<'_>,
) -> Result<bool, CliError> {
    let mut leases = CoolingLeases::default();
    let refused = match release::release(context.session, hold, Some(&mut leases)).await {
        Ok(Freed::Addresses(held)) => {
            terminal.answer(&format!("{hold} is ended: {} is free\n", Held::words(&held)))?;
            return Ok(true);
        }
        Ok(Freed::Nothing) => "does not exist".to_owned(),
        Ok(Freed::Younger | Freed::Elsewhere(_)) => {
            "stays: a container has taken it at the same time; try again".to_owned()
        }
        Err(FreeError::Bad(bad)) => format!("stays: {bad}; what cannot be decoded counts as held"),
        Err(FreeError::Store(failure)) => return Err(CliError::store(format!("end {hold}"))(failure)),
        Err(FreeError::OutOfTime(_)) => return Err(CliError::OutOfTime(format!("end {hold}"))),
    };
    terminal.tell(&format!("metes: {hold} {refused}"));
    Ok(false)
}

/// Lists the addresses that stay with pods.
pub(super) async fn read_holds<K: Kv>(
    context: &Context<'_, K>,
    wanted: Option<&NetworkName>,
    terminal: &mut Terminal<'_>,
) -> Result<Vec<HoldRow>, CliError> {
    let (session, keys) = (context.session, context.session.keys);
    let doing = || CliError::store("list the addresses that stay with pods");
    let mut records = Vec::new();
    for (owner, entry) in read_records(context).await.map_err(doing())? {
        match OwnerRecord::decode(&entry.value) {
            Ok(record) => records.push((owner, record)),
            Err(why) => {
                let key = String::from_utf8_lossy(&entry.key);
                terminal.tell_damaged(&format_args!("{key}: {why}"));
            }
        }
    }
    let reserved = records.iter().flat_map(|(_, record)| record.reserved());
    let ips: Vec<_> = reserved.map(|(network, address)| keys.ip(network, address)).collect();
    let mut seen = Snapshot::default();
    session.read(&ips, &mut seen).await.map_err(doing())?;
    let seats = read_seats(context).await.map_err(doing())?;
    let mut rows = Vec::new();
    for (owner, record) in records {
        let OwnerKind::Subject(Subject { namespace, name }) = owner.kind() else { continue };
        let HoldNote { note, seconds } =
            record.hold.clone().unwrap_or(HoldNote { note: String::new(), seconds: None });
        for (network, address) in record.reserved() {
            if wanted.is_some_and(|wanted| wanted != network) {
                continue;
            }
            let reservation = seen.record::<Reservation>(&keys.ip(network, address)).ok().flatten();
            rows.push(HoldRow {
                network: network.clone(),
                address: address.ip(),
                note: note.clone(),
                created_at: reservation.map(|reservation| reservation.created_at),
                for_seconds: seconds,
                seconds_left: None,
                pod: Some(PodInterfaceRow {
                    cluster: owner.cluster.clone(),
                    namespace: namespace.clone(),
                    name: name.clone(),
                    ifname: owner.ifname.clone(),
                }),
                used_by: seats.get(&owner).and_then(Option::as_ref).map(
                    |SeatRecord { user, labels, taken_at, .. }| UserRow {
                        node: user.node.clone(),
                        container_id: user.container_id.clone(),
                        pod_uid: labels.pod.uid.clone(),
                        since: taken_at.clone(),
                    },
                ),
            });
        }
    }
    Ok(rows)
}

/// The addresses that stay with pods and that no container uses. A hold that does not decode has none.
pub(crate) async fn read_unused<K: Kv>(
    context: &Context<'_, K>,
) -> Result<BTreeSet<NetworkAddress>, Failure> {
    let (records, seats) = (read_records(context).await?, read_seats(context).await?);
    let unused = records.iter().filter(|(hold, _)| !seats.contains_key(hold));
    let unused = unused.filter_map(|(_, entry)| OwnerRecord::decode(&entry.value).ok());
    let addresses = |record: OwnerRecord| -> Vec<NetworkAddress> {
        record.reserved().map(|(network, address)| (network.clone(), address)).collect()
    };
    Ok(unused.flat_map(addresses).collect())
}

/// The records of all holds for pods, as they are stored.
async fn read_records<K: Kv>(context: &Context<'_, K>) -> Result<BTreeMap<Owner, Entry>, Failure> {
    let (session, keys) = (context.session, context.session.keys);
    let mut holds = BTreeMap::new();
    for cluster in context.clusters().await? {
        let Ok(cluster) = cluster.parse::<ClusterName>() else { continue };
        let see = |seen: &mut Vec<(Owner, Entry)>, entry: Entry| {
            if let Ok(Key::Owner(owner)) = keys.parse(&entry.key) {
                seen.push((owner, entry));
            }
        };
        holds.extend(walk(session, &keys.pod_holds(&cluster), Vec::new, see).await?.0);
    }
    Ok(holds)
}

/// The seat of each hold that a container uses; none where it does not decode.
async fn read_seats<K: Kv>(context: &Context<'_, K>) -> Result<BTreeMap<Owner, Option<SeatRecord>>, Failure> {
    let keys = context.session.keys;
    let see = |seats: &mut BTreeMap<Owner, Option<SeatRecord>>, entry: Entry| {
        if let Ok(Key::Seat(seat)) = keys.parse(&entry.key) {
            seats.insert(seat.hold, SeatRecord::decode(&entry.value).ok());
        }
    };
    Ok(walk(context.session, &keys.seats(), BTreeMap::new, see).await?.0)
}
