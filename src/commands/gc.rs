//! GC: frees what this node holds for a network and whose container no valid attachment names.

use std::collections::HashSet;

use super::Run;
use crate::commands::errors::OrCni;
use metes_config::cni::Error;
use metes_core::cooling::CoolingLeases;
use metes_core::keys::{Key, prefix_end};
use metes_core::limits;
use metes_core::plan::free::{Free, FreeGuard};
use metes_core::pool::{Caller, ContainerId, FIRST_EPOCH, Meta, Owner, OwnerRecord, Record, RunStart};
use metes_core::snapshot::Snapshot;
use metes_core::txn::{Entry, List, Op, Txn};
use metes_engine::kv::Kv;
use metes_engine::policy::WitnessRun;
use metes_engine::release::{self, FreeHints};
use metes_node::node::Identity;

/// Frees what this node holds for a network of CNI and no container needs any more.
///
/// These are the owners of this node of this cluster whose record was written on this machine and names `cni_network`,
/// whose container is not in `containers`, and that are of another boot or more than `grace_s` seconds older than this
/// run.
///
/// An interface that the list does not name is kept while the list names another one of its container. A runtime lists
/// the interfaces that it made itself: containerd and CRI-O make `eth0`, and do not know `net1`, which Multus adds to
/// the running container, perhaps in a network of the same name.
///
/// It does not free what a pod held when the store was last taken into service. A store that went back may name an
/// earlier sandbox of a running pod, which is no valid attachment. Its DEL frees it, or the reconciler.
///
/// # Errors
/// A CNI error. What was freed before stays freed, and GC may be repeated.
pub async fn gc<K: Kv>(
    run: &Run<'_, K>,
    cni_network: &str,
    containers: &HashSet<ContainerId>,
    grace_s: u64,
) -> Result<(), Error> {
    let Some(since) = in_service_since(run).await? else {
        tracing::warn!("the store is suspect: nothing is freed");
        return Ok(());
    };
    let Identity { node, cluster, .. } = run.identity;
    let prefix = run.session.keys.owners_of(cluster.as_ref(), node);
    let (mut start, end) = (prefix.clone(), prefix_end(&prefix));
    let mut leases = CoolingLeases::default();
    loop {
        let list = List {
            start: start.clone(),
            end: end.clone(),
            limit: limits::LIST_KEYS,
            revision: 0,
            keys_only: false,
        };
        let reply = run.session.txn(&Txn::read(vec![Op::List(list)])).await.or_cni()?;
        let entries = reply.found.into_iter().next().map(|found| found.entries).unwrap_or_default();
        for entry in &entries {
            let may_be_restored = entry.mod_revision <= since;
            if let Some(owner) = stale(run, entry, cni_network, containers, grace_s, may_be_restored) {
                free(run, &owner, entry.mod_revision, &mut leases).await?;
            }
        }
        match entries.last() {
            Some(last) if entries.len() as i64 == limits::LIST_KEYS => {
                start = last.key.clone();
                start.push(0);
            }
            _ => return Ok(()),
        }
    }
}

/// The revision up to which a record may be one that a restore brought back, 0 in the first epoch; none
/// while the store is suspect.
async fn in_service_since<K: Kv>(run: &Run<'_, K>) -> Result<Option<i64>, Error> {
    let key = run.session.keys.meta();
    run.mark_or_ask(limits::ALL_ASKED).await.or_cni()?;
    let mut snapshot = Snapshot::default();
    if run.read_judged(&[], &mut snapshot).await?.is_some() {
        return Ok(None);
    }
    Ok(match snapshot.record::<Meta>(&key).or_cni()? {
        Some(meta) if meta.epoch > FIRST_EPOCH => Some(snapshot.mod_revision(&key)),
        _ => Some(0),
    })
}

/// The owner of a record that GC frees. What does not decode stays.
fn stale<K: Kv>(
    run: &Run<'_, K>,
    entry: &Entry,
    cni_network: &str,
    containers: &HashSet<ContainerId>,
    grace_s: u64,
    may_be_restored: bool,
) -> Option<Owner> {
    let Ok(Key::Owner(owner)) = run.session.keys.parse(&entry.key) else { return None };
    let record = OwnerRecord::decode(&entry.value).ok()?;
    // Without a pod's UID, GC cannot know whether another machine's container is the one in the list.
    let is_own = Caller { machine: &run.identity.machine, pod_uid: None }.means(&record);
    let is_stale = is_own
        && record.labels.cni_network == cni_network
        && (!may_be_restored || record.labels.pod.uid.is_none())
        && !containers.contains(&owner.container_id)
        && record.start.is_some_and(|start| is_past_grace(&start, (&run.start, &(run.clock)()), grace_s));
    is_stale.then_some(owner)
}

/// True if a record's `start` is of another boot, or more than `grace_s` before the start of this GC. `now` is the
/// clock, read after the record was.
fn is_past_grace(start: &RunStart, (gc, now): (&RunStart, &RunStart), grace_s: u64) -> bool {
    start.is_of_another_boot(now) || start.ns.saturating_add(grace_s.saturating_mul(1_000_000_000)) < gc.ns
}

/// Frees the record that was judged, but not one that was written since.
async fn free<K: Kv>(
    run: &Run<'_, K>,
    owner: &Owner,
    mod_revision: i64,
    leases: &mut CoolingLeases,
) -> Result<(), Error> {
    run.must_go_on()?;
    // The attachment ended long ago, so no ADD of this owner is under way, and no tombstone is needed.
    let free = Free::of(owner, FreeGuard::AsRead(mod_revision));
    let recall = || run.known();
    let witness = run.witness(&recall, WitnessRun::FreesInSound);
    let hints = FreeHints::default();
    let (freed, _) =
        release::carry_out(run.session, free, (hints, Some(witness)), Some(leases)).await.or_cni()?;
    tracing::info!(container = %owner.container_id, ifname = %owner.ifname, ?freed, "freed by GC");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grace_counts_on_one_boot_only() {
        let start = |boot: &str, s: u64| RunStart { boot: boot.into(), ns: s * 1_000_000_000 };
        let (gc, now) = (start("b", 1000), start("b", 1002));
        for (of, past) in [
            (start("a", 999), true),
            (start("b", 700), false),
            (start("b", 699), true),
            (start("b", 1001), false),
            // From before the clock went back.
            (start("b", 1003), true),
        ] {
            assert_eq!(is_past_grace(&of, (&gc, &now), 300), past, "{of:?}");
        }
    }
}
