//! The result of an import, for people and for programs.

use std::fmt::{self, Write};
use std::net::IpAddr;

use metes_core::pool::{Held, Owner, Pod};
use serde::Serialize;
use serde_json::{Value, json};

use super::ImportStep;
use super::gathered::{Kept, Refused, Stale};
use crate::report::{aborted_words, told};

/// The result of an import so far.
#[derive(Debug)]
pub(crate) struct ImportReport {
    /// The cluster's name.
    pub(crate) cluster: String,
    pub(crate) step: ImportStep,
    /// True for a dry run, which writes nothing.
    pub(crate) dry_run: bool,
    /// The numbers of objects that were looked at.
    pub(crate) scanned: ImportScan,
    /// The owners that hold something that they did not hold before; in a dry run, would hold.
    pub(crate) taken: Vec<Taken>,
    /// The number of interfaces with all the addresses that they use.
    pub(crate) present: usize,
    /// Owners of earlier sandboxes whose addresses went to the pod's present sandbox.
    pub(crate) moved: Vec<Owner>,
    /// Entries whose pod is gone.
    pub(crate) stale: Vec<Stale>,
    /// Entries whose pod may run on a node that nothing is heard from; they are taken over.
    pub(crate) kept: Vec<Kept>,
    /// The entries that could not be taken over.
    pub(crate) refused: Vec<Refused>,
    /// Addresses that were taken over earlier and that whereabouts has freed since, although the pod runs.
    pub(crate) given_up: Vec<GivenUp>,
    /// Definitions that still lead to whereabouts.
    pub(crate) whereabouts: Vec<String>,
    /// Definitions that metes cannot or will not use, with the reason.
    pub(crate) unusable: Vec<Unusable>,
    /// True if ADD waits after this import; none while nobody knows.
    pub(crate) paused: Option<bool>,
    /// True if it ended early. The report then lists the work done and gives no counts.
    pub(crate) aborted: bool,
}

/// The numbers of objects that an import looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct ImportScan {
    /// NetworkAttachmentDefinitions.
    pub(crate) definitions: usize,
    /// IPPools.
    pub(crate) pools: usize,
    /// OverlappingRangeIPReservations.
    pub(crate) reservations: usize,
    /// Entries of pools, and reservations that do not repeat an entry of a pool.
    pub(crate) entries: usize,
    /// Pods that an entry names, or that use something besides the cluster's own network.
    pub(crate) pods: usize,
}

/// An interface and what was reserved for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) owner: Owner,
    pub(crate) pod: Pod,
    /// The addresses that were not reserved for it before.
    pub(crate) held: Vec<Held>,
    /// The owners that are gone and held some of it.
    pub(crate) replaced: Vec<Owner>,
}

/// An address that metes holds for a running pod and whereabouts does not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct GivenUp {
    /// `namespace/name`.
    pub(crate) pod: String,
    pub(crate) interface: String,
    /// The container that it was taken over for.
    pub(crate) container_id: String,
    pub(crate) address: IpAddr,
}

/// A definition that metes cannot use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Unusable {
    /// `namespace/name`.
    pub(crate) definition: String,
    pub(crate) why: String,
}

impl ImportReport {
    /// An import that has done nothing yet.
    pub(crate) fn new(cluster: &str, step: ImportStep, dry_run: bool) -> Self {
        Self {
            cluster: cluster.to_owned(),
            step,
            dry_run,
            scanned: ImportScan::default(),
            taken: Vec::new(),
            present: 0,
            moved: Vec::new(),
            stale: Vec::new(),
            kept: Vec::new(),
            refused: Vec::new(),
            given_up: Vec::new(),
            whereabouts: Vec::new(),
            unusable: Vec::new(),
            paused: None,
            aborted: false,
        }
    }

    /// The number of addresses of pods that may run and that could not be taken over.
    pub(crate) fn failures(&self) -> usize {
        self.refused.iter().filter(|one| one.is_running).count()
    }

    /// Sorts everything, so that the order does not depend on who was served first.
    pub(crate) fn sort(&mut self) {
        self.taken.sort_by(|one, other| one.owner.cmp(&other.owner));
        self.refused.sort_by(|one, other| (!one.is_running, &one.at).cmp(&(!other.is_running, &other.at)));
    }

    /// As one JSON object; `error` says why the import did not do all that it should.
    pub(crate) fn to_json(&self, error: Option<&dyn fmt::Display>) -> Value {
        told(json!({
            "cluster": self.cluster,
            "step": self.step.name(),
            "dry_run": self.dry_run,
            "aborted": self.aborted,
            "error": error.map(ToString::to_string),
            "paused": self.paused,
            "scanned": self.scanned,
            "taken_over": self.taken.iter().map(Taken::to_json).collect::<Vec<_>>(),
            "present": self.present,
            "moved": self.moved,
            "stale": self.stale,
            "kept": self.kept,
            "not_taken_over": self.refused,
            "given_up_by_whereabouts": self.given_up,
            "definitions_with_whereabouts": self.whereabouts,
            "unusable_definitions": self.unusable,
        }))
    }
}

impl Taken {
    fn to_json(&self) -> Value {
        json!({
            "pod": pod_name(&self.pod),
            "uid": self.pod.uid,
            "node": self.owner.node,
            "container_id": self.owner.container_id,
            "interface": self.owner.ifname,
            "addresses": self.held,
            "replaced": self.replaced,
        })
    }
}

/// `namespace/name`.
pub(super) fn pod_name(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace, pod.name)
}

/// For people: the numbers looked at, the entries taken over and refused, and the next step.
impl fmt::Display for ImportReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ImportScan { definitions, pools, reservations, entries, .. } = self.scanned;
        if self.aborted {
            let did_something = !self.taken.is_empty() || !self.moved.is_empty() || !self.refused.is_empty();
            f.write_str(&aborted_words(&self.cluster, did_something))?;
        } else {
            writeln!(
                f,
                "cluster {}: {definitions} NetworkAttachmentDefinitions, {pools} pools, {reservations} reservations of \
                 overlapping ranges, {entries} entries",
                self.cluster
            )?;
        }
        let taken = if self.dry_run { "would be taken over" } else { "taken over" };
        let addresses: usize = self.taken.iter().map(|one| one.held.len()).sum();
        let counts = [
            (taken, addresses, "addresses"),
            ("present", self.present, "interfaces with all that they use"),
            ("moved", self.moved.len(), "from an earlier sandbox of the pod to the present one"),
            ("stale", self.stale.len(), "entries whose pod is gone"),
            ("kept", self.kept.len(), "entries whose pod is gone and may run on a node that is not Ready"),
            ("not taken over", self.refused.len(), "entries"),
            ("given up", self.given_up.len(), "addresses that whereabouts no longer holds for a running pod"),
        ];
        for (what, count, of) in counts.into_iter().filter(|(_, count, _)| *count > 0) {
            writeln!(f, "  {what:<20} {count:>7}  {of}")?;
        }
        for one in &self.taken {
            writeln!(f, "  {taken}: {one}")?;
        }
        for Stale { at, pod, address } in &self.stale {
            writeln!(f, "  stale: {at}: {} of pod {pod}", shown(*address))?;
        }
        for Kept { at, pod, address, nodes } in &self.kept {
            let nodes = nodes.join(" or ");
            writeln!(f, "  kept: {at}: {} of pod {pod}, which may run on {nodes}", shown(*address))?;
        }
        for Refused { at, pod, address, why, is_running } in &self.refused {
            let running = if *is_running { ", which runs" } else { "" };
            writeln!(f, "  not taken over: {at}: {} of pod {pod:?}{running}: {why}", shown(*address))?;
        }
        for GivenUp { pod, interface, container_id, address } in &self.given_up {
            writeln!(f, "  given up: {address} of {interface} of pod {pod}, container {container_id}")?;
        }
        for Unusable { definition, why } in &self.unusable {
            writeln!(f, "  NetworkAttachmentDefinition {definition} is of no use to metes: {why}")?;
        }
        self.next(f)
    }
}

impl ImportReport {
    fn next(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.paused, self.step) {
            (Some(true), _) => writeln!(f, "ADD of metes is paused")?,
            (Some(false), ImportStep::Finish | ImportStep::Cancel) => {
                writeln!(f, "ADD of metes is not paused")?
            }
            (Some(false), ImportStep::Begin) | (None, _) => {}
        }
        if self.whereabouts.is_empty() {
            return Ok(());
        }
        writeln!(f, "to be changed from whereabouts to metes: {}", self.whereabouts.join(", "))
    }
}

fn shown(address: Option<IpAddr>) -> String {
    address.map_or_else(|| "an address".to_owned(), |ip| ip.to_string())
}

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut addresses = String::new();
        for held in &self.held {
            let _ = write!(addresses, " {}", held.address);
        }
        let Owner { node, container_id, ifname, .. } = &self.owner;
        write!(f, "{ifname} of pod {}, container {container_id} on {node}:{addresses}", pod_name(&self.pod))
    }
}
