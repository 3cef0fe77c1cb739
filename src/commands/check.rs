//! CHECK: whether an interface still holds what ADD gave it, or what was adopted for its pod since.

use std::net::IpAddr;

use ipnetwork::IpNetwork;

use super::Run;
use crate::commands::errors::OrCni;
use metes_config::cni::error::{Code, Error};
use metes_config::command::CheckConfig;
use metes_core::keys::Bytes;
use metes_core::limits;
use metes_core::plan::allot::OtherMachine;
use metes_core::pool::{
    Addr, Caller, ContainerId, Held, Owner, OwnerRecord, RangeSet, Reservation, Seat, SeatRecord,
};
use metes_core::snapshot::Snapshot;
use metes_engine::kv::Kv;

/// Succeeds if the owner's record and all its reservations exist and name it, and if every address of the previous
/// result that lies in a range of the configuration is among them. Where the owner uses a hold, its seat must name it,
/// and the reservations the hold. If the record is missing, what was adopted for the pod counts, if its UID is known.
///
/// # Errors
/// Code 102 if a record contradicts another, 7 if an address is not this owner's, and those of
/// the store.
pub async fn check<K: Kv>(run: &Run<'_, K>, config: &CheckConfig) -> Result<(), Error> {
    let CheckConfig { attachment, pod_uid, hold, sets, previous } = config;
    let (owner, uid) = (&run.owner(attachment), pod_uid.as_ref());
    let mut snapshot = Snapshot::default();
    let adopted = uid.map(|uid| Owner { container_id: ContainerId::adopted(uid), ..owner.clone() });
    let candidates: Vec<&Owner> = [owner].into_iter().chain(&adopted).collect();
    // The record most likely names these reservations, so they are read with it.
    let seat = hold.iter().map(|hold| run.session.keys.seat(&Seat { hold: hold.clone(), n: Seat::FIRST }));
    let records = candidates.iter().map(|owner| run.session.keys.owner(owner)).collect();
    let keys = [records, likely_reservations(run, sets, previous), seat.collect()].concat();
    let suspect = run.read_judged(&keys, &mut snapshot).await?;
    let Some((holder, record)) = first_record(run, &candidates, &snapshot)? else {
        // In a store that went back in time or was emptied, this says nothing of the pod.
        if let Some(suspect) = suspect {
            return Err(suspect);
        }
        let text = format!("interface {} of container {} holds no address", owner.ifname, owner.container_id);
        return Err(Error::new(Code::StoredState, text).with_details(
            "ADD was never answered, or the address was freed since; the pod must be restarted",
        ));
    };
    let caller = Caller { machine: &run.identity.machine, pod_uid: uid };
    if !caller.means(&record) {
        let (theirs, ours) = (record.machine, caller.machine.to_owned());
        let text = OtherMachine { owner: owner.clone(), theirs, ours }.to_string();
        return Err(Error::new(Code::StoredState, text)
            .with_details("give each machine a node_name of its own in its host file"));
    }
    check_reservations(run, holder, &record, &mut snapshot).await?;
    check_seat(run, holder, &record, &snapshot)?;
    let is_held = |ip: &IpAddr| record.addresses.iter().any(|held| held.address == *ip);
    // Of a pool only what was given is known: another address of the same prefix is not this interface's.
    let is_beside = |ip: &IpAddr, held: &Held| {
        let prefix_len = held.pool.as_ref().map(|from| from.prefix_len);
        prefix_len.and_then(|len| IpNetwork::new(held.address, len).ok()).is_some_and(|net| net.contains(*ip))
    };
    let in_ranges = |ip: &IpAddr| {
        sets.iter().any(|set| set.covers(Addr::from(*ip)).is_some())
            || record.addresses.iter().any(|held| is_beside(ip, held))
    };
    let is_missing = |held: &&Held| held.pool.is_some() && !previous.contains(&held.address);
    if let Some(missing) = record.addresses.iter().find(is_missing).filter(|_| !previous.is_empty()) {
        let text = format!(
            "interface {} of container {} holds {}, which is not in the previous result",
            owner.ifname, owner.container_id, missing.address
        );
        return Err(Error::new(Code::StoredState, text).with_details("`metes show` says what it holds"));
    }
    match previous.iter().find(|ip| in_ranges(ip) && !is_held(ip)) {
        None => Ok(()),
        Some(ip) => {
            let text = format!(
                "{ip} is in the previous result, but interface {} of container {} does not hold it",
                owner.ifname, owner.container_id
            );
            Err(Error::new(Code::StoredState, text).with_details("`metes show` says who holds it"))
        }
    }
}

fn first_record<'o, K>(
    run: &Run<'_, K>,
    candidates: &[&'o Owner],
    snapshot: &Snapshot,
) -> Result<Option<(&'o Owner, OwnerRecord)>, Error> {
    for owner in candidates {
        let key = run.session.keys.owner(owner);
        if let Some(record) = snapshot.record::<OwnerRecord>(&key).or_cni()? {
            return Ok(Some((*owner, record)));
        }
    }
    Ok(None)
}

/// The reservations of the previous result's addresses, in the networks that their ranges are in.
fn likely_reservations<K>(run: &Run<'_, K>, sets: &[RangeSet], previous: &[IpAddr]) -> Vec<Bytes> {
    let reservation = |ip: &IpAddr| {
        let address = Addr::from(*ip);
        let range = sets.iter().find_map(|set| set.covers(address))?;
        Some(run.session.keys.ip(range.network(), address))
    };
    previous.iter().filter_map(reservation).take(limits::TXN_OPS / 2).collect()
}

async fn check_reservations<K: Kv>(
    run: &Run<'_, K>,
    owner: &Owner,
    record: &OwnerRecord,
    snapshot: &mut Snapshot,
) -> Result<(), Error> {
    let key_of = |held: &Held| {
        let (network, address) = held.in_network()?;
        Some((run.session.keys.ip(network, address), held.address))
    };
    let expected: Vec<(Bytes, IpAddr)> = record.addresses.iter().filter_map(key_of).collect();
    let seat = record.seat.as_ref().map(|seat| run.session.keys.seat(seat));
    let all = expected.iter().map(|(key, _)| key).chain(&seat);
    let keys: Vec<Bytes> = all.filter(|key| !snapshot.knows(key)).cloned().collect();
    run.session.read(&keys, snapshot).await.or_cni()?;
    let reserved_for = record.seat.as_ref().map_or(owner, |seat| &seat.hold);
    for (key, address) in expected {
        let holder = snapshot.record::<Reservation>(&key).or_cni()?.map(|reservation| reservation.owner);
        if holder.as_ref() == Some(reserved_for) {
            continue;
        }
        let by = holder.map_or_else(|| "nobody".to_owned(), |holder| holder.to_string());
        let text = format!("{address} of container {} is reserved by {by}", owner.container_id);
        return Err(Error::new(Code::StoredState, text).with_details("run `metes check`"));
    }
    Ok(())
}

/// The seat that a record names must name the owner. It was read with the reservations.
fn check_seat<K: Kv>(
    run: &Run<'_, K>,
    owner: &Owner,
    record: &OwnerRecord,
    snapshot: &Snapshot,
) -> Result<(), Error> {
    let Some(seat) = &record.seat else { return Ok(()) };
    let user = snapshot.record::<SeatRecord>(&run.session.keys.seat(seat)).or_cni()?.map(|seat| seat.user);
    if user.as_ref() == Some(owner) {
        return Ok(());
    }
    let user = user.map_or_else(|| "nobody".to_owned(), |user| user.to_string());
    let text = format!("{} of container {} is used by {user}", seat.hold, owner.container_id);
    Err(Error::new(Code::StoredState, text).with_details("run `metes check`"))
}
