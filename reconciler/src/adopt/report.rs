//! The result of an adoption, for people and for programs.

use std::fmt::{self, Write};

use metes_core::pool::{Held, Owner, OwnerKind};
use serde::Serialize;
use serde_json::{Value, json};

use crate::report::{aborted_words, told};

/// The result of an adoption so far.
#[derive(Debug, Default)]
pub(crate) struct AdoptionReport {
    /// The cluster's name.
    pub(crate) cluster: String,
    /// True for a dry run, which writes nothing.
    pub(crate) dry_run: bool,
    /// The revision at which reservations were listed.
    pub(crate) revision: i64,
    /// The numbers of objects that were looked at.
    pub(crate) scanned: AdoptionScan,
    /// The number of interfaces with all the addresses that they use.
    pub(crate) present: usize,
    /// The interfaces that addresses were reserved for; in a dry run, would have been reserved for.
    pub(crate) adopted: Vec<Adopted>,
    /// The obstacles to the end of the adoption.
    pub(crate) conflicts: Vec<AdoptionConflict>,
    /// The epoch that began.
    pub(crate) epoch: Option<u64>,
    /// True if it ended early. The report then lists the work done and gives no counts.
    pub(crate) aborted: bool,
}

/// The numbers of objects that an adoption looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct AdoptionScan {
    /// Reservations, of every cluster.
    pub(crate) addresses: usize,
    pub(crate) pods: usize,
    /// NetworkAttachmentDefinitions.
    pub(crate) networks: usize,
}

/// An interface whose addresses were reserved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Adopted {
    /// As `namespace/name`.
    pub(crate) pod: String,
    pub(crate) interface: String,
    pub(crate) node: String,
    /// The addresses that were not reserved for it before.
    pub(crate) addresses: Vec<Held>,
    /// The owners that are gone and held some of it.
    pub(crate) replaced: Vec<Owner>,
}

/// Something that a person must settle.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct AdoptionConflict {
    /// As `namespace/name`.
    pub(crate) pod: String,
    /// The interface, if it is known.
    pub(crate) interface: String,
    /// The address, if the conflict is about one.
    pub(crate) address: Option<String>,
    pub(crate) kind: ConflictKind,
    /// The reason, in words.
    pub(crate) why: String,
}

/// The kinds of conflicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ConflictKind {
    /// An owner that may still exist holds the address.
    Held,
    /// Two running pods use it.
    TwoUsers,
    /// A stored value that does not decode.
    Undecodable,
    /// A reservation without its owner's record.
    Contradiction,
    /// The address is not in the network's ranges.
    Outside,
    /// The network's configuration is not known.
    UnknownNetwork,
    /// The pod does not tell what it uses.
    NoStatus,
    /// More addresses than fit into one transaction.
    TooMany,
    /// It changed while the adoption was at work.
    Changed,
}

impl AdoptionReport {
    /// An adoption that has done nothing yet.
    pub(crate) fn new(cluster: &str, dry_run: bool) -> Self {
        Self { cluster: cluster.to_owned(), dry_run, ..Self::default() }
    }

    /// Addresses were reserved for an interface.
    pub(crate) fn adopt(&mut self, adopted: Adopted) {
        let action = if self.dry_run { "would adopt" } else { "adopted" };
        tracing::info!("{action} {adopted}");
        self.adopted.push(adopted);
    }

    /// Sorts everything, so that the order does not depend on who was first.
    pub(crate) fn sort(&mut self) {
        self.adopted.sort_by(|a, b| (&a.pod, &a.interface).cmp(&(&b.pod, &b.interface)));
        self.conflicts.sort();
    }

    /// As one JSON object; `error` says why the store is not in service.
    pub(crate) fn to_json(&self, error: Option<&dyn fmt::Display>) -> Value {
        let replaced: Vec<&Owner> = self.adopted.iter().flat_map(|adopted| &adopted.replaced).collect();
        told(json!({
            "cluster": self.cluster,
            "dry_run": self.dry_run,
            "aborted": self.aborted,
            "error": error.map(ToString::to_string),
            "revision": self.revision,
            "scanned": self.scanned,
            "present": self.present,
            "adopted": self.adopted,
            "replaced": replaced,
            "conflicts": self.conflicts,
            "epoch": self.epoch,
        }))
    }
}

/// For people: the findings, the new reservations, and the work left to do.
impl fmt::Display for AdoptionReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AdoptionScan { addresses, pods, networks } = self.scanned;
        let Self { cluster, present, .. } = self;
        if self.aborted {
            f.write_str(&aborted_words(cluster, !self.adopted.is_empty() || !self.conflicts.is_empty()))?;
        } else {
            writeln!(
                f,
                "cluster {cluster}: {pods} pods, {networks} networks, {addresses} addresses reserved before"
            )?;
            let adopted = if self.dry_run { "would be adopted" } else { "adopted" };
            for (count, what) in
                [(*present, "present"), (self.adopted.len(), adopted), (self.conflicts.len(), "conflicts")]
            {
                writeln!(f, "  {what:<18} {count:>7}")?;
            }
        }
        for adopted in &self.adopted {
            writeln!(f, "  {adopted}")?;
        }
        for conflict in &self.conflicts {
            writeln!(f, "  {conflict}")?;
        }
        match self.epoch {
            Some(epoch) => writeln!(f, "the store is in service: epoch {epoch} begins"),
            None if self.dry_run => writeln!(f, "nothing was written"),
            // The state of the store is not known.
            None if self.aborted => Ok(()),
            None => writeln!(f, "the store is suspect: ADD fails"),
        }
    }
}

impl fmt::Display for Adopted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut addresses = String::new();
        for held in &self.addresses {
            write!(addresses, " {}", held.address)?;
        }
        write!(f, "{} of pod {} on {}:{addresses}", self.interface, self.pod, self.node)?;
        for owner in &self.replaced {
            let Owner { node, container_id, ifname, .. } = owner;
            match owner.kind() {
                OwnerKind::Subject(_) => write!(f, "; {owner} is ended")?,
                _ => write!(f, ", which {ifname} of container {container_id} on {node} held")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for AdoptionConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pod, interface, address, why, .. } = self;
        write!(f, "conflict: pod {pod}")?;
        if !interface.is_empty() {
            write!(f, ", {interface}")?;
        }
        if let Some(address) = address {
            write!(f, ", {address}")?;
        }
        write!(f, ": {why}")
    }
}
