//! The keys that machines leave in the store, of machines that are gone.
//!
//! By its key a node tells a store that has gone back. So one that is deleted on purpose is noted: `v1/forgotten` gets
//! its mod revision, in the same transaction. Then its node, should it come back, knows that nothing was lost.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use metes_core::builder::Builder;
use metes_core::keys::{Key, NodeKey};
use metes_core::limits;
use metes_core::pool::{Forgotten, NodeName, Record, Sighting};
use metes_core::snapshot::Snapshot;
use metes_core::txn::{Entry, Op};
use metes_engine::kv::{Failure, Kv};
use metes_engine::session::{Session, new_lease};
use metes_engine::walk::walk;

use crate::sightings::{Memory, remembered_for};
use crate::world::Nodes;

/// The reason in a sighting.
const REASON: &str = "machine-gone";

/// A machine's own key, by whose it is.
type Machines = BTreeMap<NodeKey, Entry>;

/// Deletes the keys of this cluster's machines whose nodes Kubernetes does not have, and that hold nothing and have
/// made no ADD, since passes have seen that for `grace`. Returns how many.
///
/// A key that is deleted too early does no harm: the machine's next ADD puts it again.
///
/// # Errors
/// [`Failure`]; what was not deleted is left to a later pass.
pub(crate) async fn forget_machines<K: Kv>(
    memory: Memory<'_, K>,
    (nodes, used): (&Nodes, &HashSet<NodeName>),
    grace: Duration,
) -> Result<usize, Failure> {
    let Memory { session, cluster } = memory;
    let mut gone = machines(session, &session.keys.nodes_of(cluster)).await?;
    gone.retain(|own, _| !nodes.knows(own.node.as_str()) && !used.contains(&own.node));
    let sightings = machines(session, &session.keys.gone_machines(cluster)).await?;
    // A value that does not decode says nothing, and is left alone.
    let is_over = |own: &NodeKey, seen: &Entry| {
        let is_of =
            |sighting: Sighting| gone.get(own).is_some_and(|entry| entry.mod_revision == sighting.revision);
        Sighting::decode(&seen.value).is_ok_and(|sighting| !is_of(sighting))
    };
    let (over, sightings): (Machines, Machines) =
        sightings.into_iter().partition(|(own, seen)| is_over(own, seen));
    memory.write("machines", over.into_values().map(|seen| Op::Delete(seen.key)).collect()).await?;
    let ages = session.lease_ages(sightings.values().map(|seen| seen.lease).collect()).await?;
    let seen_for = |own: &NodeKey| sightings.get(own).and_then(|seen| ages.get(&seen.lease)).copied();
    let is_due = |own: &NodeKey| seen_for(own).unwrap_or_default() >= grace;
    let is_new = |own: &NodeKey| !is_due(own) && !sightings.contains_key(own);
    let new: Vec<_> = gone.iter().filter(|(own, _)| is_new(own)).collect();
    if !new.is_empty() {
        let lease = new_lease();
        session.kv.grant(lease, remembered_for(grace), session.until).await?;
        let put = |(own, entry): (&NodeKey, &Entry)| {
            let sighting = Sighting::new(REASON.to_owned(), entry.mod_revision, grace);
            Op::Put(session.keys.gone_machine(own), sighting.encode(), Some(lease))
        };
        memory.write("machines", new.into_iter().map(put).collect()).await?;
    }
    let due: Vec<_> = gone.iter().filter(|(own, _)| is_due(own)).collect();
    let mut forgotten = 0;
    for some in due.chunks(limits::TXN_OPS / 4) {
        if forget(session, some).await? {
            forgotten += some.len();
        }
    }
    Ok(forgotten)
}

/// The keys of machines below a prefix.
async fn machines<K: Kv>(session: Session<'_, K>, prefix: &[u8]) -> Result<Machines, Failure> {
    let see = |machines: &mut Machines, entry: Entry| {
        if let Ok(Key::Node(own) | Key::GoneMachine(own)) = session.keys.parse(&entry.key) {
            machines.insert(own, entry);
        }
    };
    Ok(walk(session, prefix, Machines::new, see).await?.0)
}

/// Deletes these keys, unless one of them was written since.
async fn forget<K: Kv>(session: Session<'_, K>, gone: &[(&NodeKey, &Entry)]) -> Result<bool, Failure> {
    let key = session.keys.forgotten();
    let mut seen = Snapshot::default();
    session.read(std::slice::from_ref(&key), &mut seen).await?;
    // A value that does not decode was written by a newer metes.
    let Ok(before) = seen.record::<Forgotten>(&key) else { return Ok(false) };
    let youngest = gone.iter().map(|(_, entry)| entry.mod_revision).max().unwrap_or_default();
    let revision = before.map_or(0, |before| before.revision).max(youngest);
    for (_, entry) in gone {
        seen.set(&entry.key, Some(Entry::clone(entry)));
    }
    let mut builder = Builder::new("forget", &seen);
    for (own, entry) in gone {
        builder.unchanged(entry.key.clone());
        builder.delete(entry.key.clone());
        builder.delete(session.keys.gone_machine(own));
    }
    builder.unchanged(key.clone());
    builder.put(key, Forgotten::new(revision).encode());
    match builder.finish() {
        Ok(txn) => Ok(session.txn(&txn).await?.succeeded),
        Err(_) => Ok(false),
    }
}
