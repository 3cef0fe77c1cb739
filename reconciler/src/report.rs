//! The result of a pass, for people and for programs.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use metes_audit::repair::Repaired;
use metes_audit::{self, PoolCounts};
use metes_core::pool::{Held, Owner, OwnerKind, Pod};
use serde::Serialize;
use serde_json::{Value, json};

use crate::holder::Holder;
use crate::holds::{HoldCounts, HoldState};
use crate::lacking::{LackingAddress, LackingAddresses};
use crate::verdict::{Free, Keep};

/// The consequence, and the remedy.
const DOUBTFUL: &str = "nothing is freed in this network; what two passes in a row have seen stays so until \
    `metes-reconciler adopt` or `metes check --accept-store`";

/// The result of a pass so far.
#[derive(Debug, Default)]
pub struct PassReport {
    /// The cluster's name.
    pub(crate) cluster: String,
    /// True for a dry run, which writes nothing.
    pub(crate) dry_run: bool,
    /// The revision at which owners were listed.
    pub(crate) revision: i64,
    /// The numbers of objects that were looked at.
    pub(crate) scanned: PassScan,
    /// The number of orphans, including those that keep what they have for now.
    pub(crate) orphans: usize,
    /// The number of owners that keep what they have, by reason.
    pub(crate) kept: BTreeMap<Keep, usize>,
    /// The owners that were freed; in a dry run, would have been freed.
    pub(crate) freed: Vec<FreedOwner>,
    /// The numbers of holds.
    pub(crate) holds: HoldCounts,
    /// The numbers of holds for pods of this cluster, before some were ended.
    pub(crate) holds_of_pods: BTreeMap<HoldState, usize>,
    /// The addresses that running pods use and the store lacks.
    pub lacking: LackingAddresses,
    pub(crate) repaired: Repaired,
    /// The number of stray bits.
    pub(crate) stray_bits: usize,
    /// The counts of each pool's addresses.
    pub(crate) pools: Vec<PoolCounts>,
    /// Violations that were not repaired, by kind.
    pub violations: BTreeMap<&'static str, usize>,
    /// The last second in which each certificate of this program for etcd is valid, since 1970 in UTC.
    pub certificates: BTreeMap<&'static str, u64>,
    /// Why nothing was done: a migration is under way.
    pub(crate) paused: Option<String>,
    /// True if the pass ended early. The report then lists the work done and gives no counts.
    pub(crate) aborted: bool,
}

/// The numbers of objects that a pass looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct PassScan {
    /// Owner records, of every cluster.
    pub(crate) owners: usize,
    /// Reservations, of every cluster.
    pub(crate) addresses: usize,
    pub(crate) pods: usize,
    pub(crate) nodes: usize,
}

/// An owner that was freed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FreedOwner {
    /// The owner and its record.
    pub(crate) holder: Holder,
    pub(crate) reason: Free,
    /// The addresses that it held.
    pub(crate) held: Vec<Held>,
}

impl PassReport {
    /// A pass that has done nothing yet.
    #[must_use]
    pub fn new(cluster: &str, dry_run: bool) -> Self {
        Self { cluster: cluster.to_owned(), dry_run, ..Self::default() }
    }

    /// Counts an owner that keeps what it has.
    pub(crate) fn keep(&mut self, why: Keep) {
        *self.kept.entry(why).or_default() += 1;
    }

    /// Adds an owner that was freed.
    pub(crate) fn free(&mut self, holder: &Holder, reason: Free, held: &[Held]) {
        let pod = holder.record.as_ref().map(|record| &record.pod);
        let pod = pod.map(|pod| format!("{}/{}", pod.namespace, pod.name)).unwrap_or_default();
        let action = if self.dry_run { "would free" } else { "freed" };
        let Owner { node, container_id, ifname, .. } = &holder.owner;
        match holder.owner.kind() {
            OwnerKind::Subject(_) => tracing::info!(%pod, %ifname, %reason, "{action} a hold"),
            OwnerKind::Container(_) | OwnerKind::Aside(..) | OwnerKind::Unknown => {
                tracing::info!(%node, container = %container_id, %ifname, %pod, %reason, "{action}");
            }
        }
        self.freed.push(FreedOwner { holder: holder.clone(), reason, held: held.to_vec() });
    }

    /// Takes the addresses that running pods use and the store lacks.
    pub(crate) fn lack(&mut self, lacking: LackingAddresses) {
        for one in lacking.certain.iter().filter(|one| one.is_new) {
            tracing::warn!("{one}");
        }
        for network in &lacking.networks {
            let certain = lacking.certain.iter().filter(|one| one.network == *network).count();
            tracing::warn!(%network, certain, "running pods report addresses that the store lacks: {DOUBTFUL}");
        }
        self.lacking = lacking;
    }

    /// Takes the result of an audit of the store.
    pub(crate) fn found(&mut self, audit: &mut metes_audit::Report) {
        self.scanned.addresses = audit.counts.reservations;
        self.stray_bits = audit.stray_bits.len();
        self.pools = std::mem::take(&mut audit.pools);
        for finding in &audit.violations {
            tracing::warn!("{finding}");
            *self.violations.entry(finding.kind.name()).or_default() += 1;
        }
    }

    /// The number of freed owners, by reason.
    pub(crate) fn freed_by_reason(&self) -> BTreeMap<Free, usize> {
        let mut counts = BTreeMap::new();
        for freed in &self.freed {
            *counts.entry(freed.reason).or_default() += 1;
        }
        counts
    }

    pub(crate) fn addresses_freed(&self) -> usize {
        self.freed.iter().map(|freed| freed.held.len()).sum()
    }

    /// As one JSON object; `error` says why the pass did not do all that it should.
    pub(crate) fn to_json(&self, error: Option<&dyn fmt::Display>) -> Value {
        let Repaired { cleared, set, summaries, deleted, emptied, lost } = self.repaired;
        let kept: BTreeMap<_, _> = self.kept.iter().map(|(why, n)| (why.name(), n)).collect();
        let freed: BTreeMap<_, _> =
            self.freed_by_reason().into_iter().map(|(why, n)| (why.name(), n)).collect();
        let holds_of_pods: BTreeMap<_, _> =
            self.holds_of_pods.iter().map(|(state, n)| (state.name(), n)).collect();
        told(json!({
            "cluster": self.cluster,
            "dry_run": self.dry_run,
            "aborted": self.aborted,
            "error": error.map(ToString::to_string),
            "paused": self.paused,
            "revision": self.revision,
            "scanned": self.scanned,
            "orphans": self.orphans,
            "kept": kept,
            "freed": freed,
            "addresses_freed": self.addresses_freed(),
            "freed_owners": self.freed.iter().map(FreedOwner::to_json).collect::<Vec<_>>(),
            "holds": self.holds.found,
            "holds_ended": self.holds.ended,
            "holds_of_pods": holds_of_pods,
            "lacking": self.lacking.certain.iter().map(LackingAddress::to_json).collect::<Vec<_>>(),
            "doubtful": self.lacking.networks,
            "stray_bits": self.stray_bits,
            "repaired": {
                "bits_cleared": cleared,
                "bits_set": set,
                "summaries": summaries,
                "stale_deleted": deleted,
                "empty_deleted": emptied,
                "lost": lost,
            },
            "violations": self.violations,
            "pools": self.pools,
        }))
    }
}

/// A report as it is printed. If the run was aborted, empty values and zeros are left out, because nothing was counted.
pub(crate) fn told(mut report: Value) -> Value {
    if report["aborted"] == true
        && let Some(fields) = report.as_object_mut()
    {
        fields.retain(|_, value| !is_nothing(value));
    }
    report
}

/// Nothing counted, nothing listed, nothing known.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(_) => false,
        Value::Number(number) => number.as_u64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_nothing),
    }
}

/// The first line of the report of an aborted run.
pub(crate) fn aborted_words(cluster: &str, did_something: bool) -> String {
    let done = if did_something { "what was done until then:" } else { "nothing was done" };
    format!("cluster {cluster}: aborted; {done}\n")
}

impl LackingAddress {
    fn to_json(&self) -> Value {
        let Self { network, address, pod, uid, .. } = self;
        json!({"address": address.to_string(), "network": network, "pod": pod, "uid": uid})
    }
}

impl fmt::Display for LackingAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { network, address, pod, .. } = self;
        write!(f, "pod {pod} reports {address} of network {network}, which the store does not hold for it")
    }
}

impl FreedOwner {
    fn to_json(&self) -> Value {
        let owner = &self.holder.owner;
        let container = match owner.kind() {
            OwnerKind::Subject(_) => None,
            OwnerKind::Container(_) | OwnerKind::Aside(..) | OwnerKind::Unknown => Some(owner),
        };
        json!({
            "node": container.map(|owner| &owner.node),
            "container_id": container.map(|owner| &owner.container_id),
            "ifname": owner.ifname,
            "pod": self.holder.record.as_ref().map(|record| pod_json(&record.pod)),
            "reason": self.reason.name(),
            "addresses": self.held.iter().map(address_json).collect::<Vec<_>>(),
        })
    }
}

/// The names are those of `metes list`; what is not known is null.
fn pod_json(pod: &Pod) -> Value {
    let known = |label: &str| (!label.is_empty()).then(|| label.to_owned());
    json!({"namespace": known(&pod.namespace), "name": known(&pod.name), "uid": pod.uid})
}

fn address_json(held: &Held) -> Value {
    json!({"address": held.address, "network": held.network})
}

/// For people: the numbers looked at, the owners kept and freed with the reasons, and the repairs.
impl fmt::Display for PassReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(why) = &self.paused {
            return writeln!(f, "nothing was done: a migration is under way ({why})");
        }
        let PassScan { owners, addresses, pods, nodes } = self.scanned;
        if self.aborted {
            f.write_str(&aborted_words(
                &self.cluster,
                !self.freed.is_empty() || self.repaired != Repaired::default(),
            ))?;
        } else {
            writeln!(
                f,
                "cluster {}: {owners} owners, {pods} pods, {nodes} nodes, {addresses} addresses",
                self.cluster
            )?;
            for (why, count) in &self.kept {
                writeln!(f, "  {:<18} {count:>7}  {why}", "kept")?;
            }
        }
        let freed = if self.dry_run { "would be freed" } else { "freed" };
        for (why, count) in self.freed_by_reason() {
            writeln!(f, "  {freed:<18} {count:>7}  {why}")?;
        }
        for owner in &self.freed {
            writeln!(f, "  {owner}")?;
        }
        if self.holds.ended > 0 {
            let ended = if self.dry_run { "would be ended" } else { "ended" };
            writeln!(f, "  {ended:<18} {:>7}  holds of addresses whose time is over", self.holds.ended)?;
        }
        for one in &self.lacking.certain {
            writeln!(f, "  {:<18} {one}", "lacking")?;
        }
        for network in &self.lacking.networks {
            writeln!(f, "  {:<18} network {network}: {DOUBTFUL}", "doubtful")?;
        }
        let Repaired { cleared, set, summaries, deleted, emptied, .. } = self.repaired;
        let repaired = [
            (cleared, "bits without a reservation cleared"),
            (set, "bits of reservations set"),
            (summaries, "summaries put right"),
            (deleted, "tombstones and tickets without a lease deleted"),
            (emptied, "empty pages and summaries deleted"),
        ];
        for (count, what) in repaired.into_iter().filter(|(count, _)| *count > 0) {
            writeln!(f, "  {:<18} {count:>7}  {what}", "repaired")?;
        }
        if self.dry_run && self.stray_bits > 0 {
            writeln!(f, "  {:<18} {:>7}  bits without a reservation", "would be repaired", self.stray_bits)?;
        }
        for (kind, count) in &self.violations {
            writeln!(f, "  {:<18} {count:>7}  {kind}: run `metes check`", "found")?;
        }
        Ok(())
    }
}

impl fmt::Display for FreedOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owner = &self.holder.owner;
        let pod = self.holder.record.as_ref().map(|record| &record.pod);
        let pod = pod.map(|pod| format!("{}/{}", pod.namespace, pod.name)).unwrap_or_default();
        let mut addresses = String::new();
        for held in &self.held {
            let _ = write!(addresses, " {}", held.address);
        }
        match owner.kind() {
            OwnerKind::Subject(_) => write!(f, "{}: {owner}:{addresses}", self.reason),
            OwnerKind::Container(_) | OwnerKind::Aside(..) | OwnerKind::Unknown => write!(
                f,
                "{}: {} of container {} on {}, pod {pod}:{addresses}",
                self.reason, owner.ifname, owner.container_id, owner.node
            ),
        }
    }
}

/// The count of this key; 0 if there is none.
pub(crate) fn of<K: Ord>(counts: &BTreeMap<K, usize>, key: K) -> usize {
    counts.get(&key).copied().unwrap_or_default()
}
