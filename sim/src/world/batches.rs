//! The work of the run at the head of a queue for the runs behind it. Whoever commits, a run gets exactly the writes
//! that it has asked for, and its ticket stands.

use std::collections::{HashMap, HashSet};

use metes_core::keys::{Bytes, Key};
use metes_core::pool::choose::Order;
use metes_core::pool::{Addr, Bits, NetworkName, Owner, OwnerRecord, Page, Record};
use metes_core::request::TicketRecord;
use metes_core::txn::{Found, Op, Reply, Txn};

use super::World;
use super::ids::{ProcessId, SandboxId};
use super::plan::Theme;
use super::process::Work;
use super::tree::{Place, words};
use super::truth::Sandbox;
use crate::store::{Model, with_nested};

/// The step of the transaction inside a commit that serves one run.
pub(crate) const SERVE: &str = "serve";
/// The step of the one that gives a run its turn.
const SIGNAL: &str = "signal";
/// The step of the one that removes the ticket of a deleted owner.
const DROP: &str = "drop";

/// The runs in queues, and those that serve others.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    /// The process that has each ticket, and its work.
    tickets: HashMap<Bytes, (ProcessId, Work)>,
    /// The processes that have sent a commit for others.
    heads: HashSet<ProcessId>,
}

impl Crowd {
    /// True if a process has a ticket in a queue, whose tickets begin with `queue`.
    pub(crate) fn stands(&self, process: ProcessId, queue: &[u8], model: &Model) -> bool {
        let mut own = self.tickets.iter().filter(|(_, (of, _))| *of == process);
        own.any(|(ticket, _)| ticket.starts_with(queue) && model.entry(ticket).is_some())
    }
}

impl World<'_> {
    /// Now and then a ticket is one of a newer program.
    pub(crate) fn renew_ticket(&mut self, txn: &mut Txn) {
        let is_newer = match self.plan.theme {
            Theme::Dead => self.deaths.are_newer,
            _ => !self.is_healing && self.chance.happens(self.plan.faults.newer_ticket),
        };
        if txn.step != "ticket" || !is_newer {
            return;
        }
        for op in &mut txn.then {
            let Op::Put(key, value, _) = op else { continue };
            let newer = String::from_utf8_lossy(value).replace(r#","v":2}}"#, r#","v":3}}"#);
            if !matches!(self.shared.keys.parse(key), Ok(Key::Ticket(..))) || newer.as_bytes() == value {
                continue;
            }
            *value = newer.into_bytes();
            self.count("newer ticket");
        }
    }

    /// Notes who takes a ticket, and who commits for others.
    pub(crate) fn note_queue(&mut self, txn: &Txn, process: ProcessId, work: Option<&Work>) {
        if let ("ticket", Some(work)) = (txn.step, work) {
            let puts = txn.then.iter().filter_map(|op| match op {
                Op::Put(key, ..) => Some(key),
                _ => None,
            });
            for key in puts.filter(|key| matches!(self.shared.keys.parse(key), Ok(Key::Ticket(..)))) {
                self.crowd.tickets.insert(key.clone(), (process, work.clone()));
            }
        }
        if serves(txn) {
            self.crowd.heads.insert(process);
        }
    }

    /// A process has been ended from without.
    pub(crate) fn note_death(&mut self, process: ProcessId) {
        if self.crowd.heads.contains(&process) {
            self.tally("head died");
        }
    }

    /// Counts the runs that a commit has served, and the turns that it has given.
    pub(crate) fn count_served(&mut self, txn: &Txn, reply: &Reply) {
        if !serves(txn) || !reply.succeeded {
            return;
        }
        self.tally("batch");
        for (op, found) in txn.then.iter().zip(&reply.found) {
            let (Op::Nested(nested), Some(nested_reply)) = (op, &found.nested) else { continue };
            let removes = |reply: &&Found| reply.nested.as_ref().is_some_and(|reply| reply.succeeded);
            if !nested_reply.succeeded && matches!(nested.step, SERVE | SIGNAL) {
                nested_reply
                    .found
                    .iter()
                    .filter(removes)
                    .for_each(|_| self.tally("ticket of a deleted owner"));
            }
            match (nested.step, nested_reply.succeeded) {
                (SERVE, true) => self.tally("served"),
                (SERVE, false) => self.tally("dropped out"),
                (SIGNAL, true) => self.tally("turn given"),
                (SIGNAL, false) => self.tally("turn of one that is gone"),
                (DROP, true) => self.tally("ticket of a deleted owner"),
                _ => {}
            }
        }
    }

    /// The wrong that a transaction does to others, judged by the store before it.
    pub(crate) fn misserves(&self, txn: &Txn, work: Option<&Work>) -> Option<String> {
        let path = self.model.path(txn);
        let done = path.nested().into_iter().filter(|(_, succeeded)| *succeeded);
        let wrong = |(nested, _): (&Txn, bool)| match nested.step {
            SERVE => self.serves_wrongly(nested).err(),
            SIGNAL => self.signals_wrongly(nested).err(),
            _ => None,
        };
        let freed = if path.succeeded() { self.frees_wrongly(txn, work).err() } else { None };
        freed
            .or_else(|| self.drops_wrongly(txn).err())
            .or_else(|| done.filter_map(wrong).next())
            .or_else(|| path.succeeded().then(|| self.skips_lower(txn, work)).flatten())
            .or_else(|| self.takes_closed(txn))
    }

    fn serves_wrongly(&self, nested: &Txn) -> Result<(), String> {
        let keys = &self.shared.keys;
        let ticket = self.ticket_of(nested).ok_or("a run was served and keeps its ticket")?;
        let Some((process, Work::Add { sandbox, start })) = self.crowd.tickets.get(ticket) else {
            return Err(format!("{} was served, which is no ADD's", String::from_utf8_lossy(ticket)));
        };
        let sandbox = &self.truth.sandboxes[*sandbox];
        let name = format!("#{process} of {}", words(&sandbox.owner));
        if self.model.entry(ticket).is_none() {
            return Err(format!("{name} was served, and its ticket is gone"));
        }
        let tombstone = keys.tombstone(&sandbox.owner);
        if self.model.entry(&tombstone).is_some() {
            return Err(format!("{name} was served, and a DEL of its owner has begun"));
        }
        let own = keys.owner(&sandbox.owner);
        if self.model.entry(&own).is_some() {
            return Err(format!("{name} was served, and holds something already"));
        }
        let stored = nested.then.iter().find_map(|op| match op {
            Op::Put(key, value, _) if *key == own => OwnerRecord::decode(value).ok(),
            _ => None,
        });
        let record = stored.ok_or_else(|| format!("{name} was served without a record"))?;
        let labels = self.labels(sandbox.config, sandbox.pod);
        if record.start.as_ref() != Some(start) {
            return Err(format!("{name} was served with the start {:?}", record.start));
        }
        let machine = &self.nodes[sandbox.node].boot.identity.machine;
        if record.machine != *machine && self.setup.mutant.is_none() {
            return Err(format!("{name} was served as machine {:?}, not {machine:?}", record.machine));
        }
        if record.labels.cni_network != labels.cni_network {
            return Err(format!("{name} was served with the labels {:?}", record.labels));
        }
        let config = &self.plan.configs[sandbox.config];
        let asked =
            sandbox.request.map(|request| record.addresses.first().map(|held| held.address) == Some(request));
        if asked == Some(false) {
            return Err(format!(
                "{name} has asked for {:?}, and was served with {:?}",
                sandbox.request, record.addresses
            ));
        }
        let fixed = config.fixed.iter().filter(|_| sandbox.with_fixed).count();
        let of_sets = record.addresses.iter().zip(&config.sets);
        let is_wrong = |(held, set): (&metes_core::pool::Held, &metes_core::pool::RangeSet)| {
            let range = set.covers(Addr::from(held.address));
            range.is_none_or(|range| held.network.as_ref() != Some(range.network()))
        };
        if record.addresses.len() != config.sets.len() + fixed || of_sets.into_iter().any(is_wrong) {
            return Err(format!("{name} was served with {:?}", record.addresses));
        }
        Ok(())
    }

    /// A record that a batch frees is one whose DEL has asked for it, from its node, and after the record was written.
    /// A DEL that is served leaves its tombstone, as one that frees by itself without a ticket does.
    fn frees_wrongly(&self, txn: &Txn, work: Option<&Work>) -> Result<(), String> {
        let buries = |owner: &Owner| {
            let tombstone = self.shared.keys.tombstone(owner);
            txn.then.iter().any(|op| matches!(op, Op::Put(key, _, Some(_)) if *key == tombstone))
        };
        let owner = |op: &Op| match op {
            Op::Delete(key) => match self.shared.keys.parse(key) {
                Ok(Key::Owner(owner)) => Some(owner),
                _ => None,
            },
            _ => None,
        };
        let mut freed = txn.then.iter().filter_map(owner);
        // A pass leaves none.
        if let ("free-quick" | "free-hinted", Some(Work::Del { .. })) = (txn.step, work) {
            return match freed.find(|owner| !buries(owner) && !self.tree.is_buried(owner)) {
                Some(owner) => Err(format!("a DEL of {} has freed and leaves no tombstone", words(&owner))),
                None => Ok(()),
            };
        }
        if !matches!(txn.step, "batch" | "commit") {
            return Ok(());
        }
        let removed = txn.then.iter().filter_map(|op| match op {
            Op::Delete(key) => self.crowd.tickets.get(key),
            _ => None,
        });
        let dels: Vec<_> = removed
            .filter_map(|(_, work)| match work {
                Work::Del { sandbox, start } => Some((&self.truth.sandboxes[*sandbox], start)),
                _ => None,
            })
            .collect();
        for (sandbox, _) in &dels {
            if !buries(&sandbox.owner) {
                return Err(format!("a DEL of {} was served and leaves no tombstone", words(&sandbox.owner)));
            }
        }
        // An ADD frees the record that it takes over, too.
        if txn.step == "commit" {
            return Ok(());
        }
        for owner in freed {
            let Some(owned) = self.tree.owners.get(&owner) else { continue };
            let written = self.truth.order(owned.record.start.as_ref());
            let node = self.truth.writer(&owned.record);
            let is_asked = dels.iter().any(|(sandbox, start)| {
                // A record of another machine is older than any run of this one, if it is of the same pod.
                let is_of_another_machine = node.is_some_and(|node| node != sandbox.node);
                sandbox.owner == owner && (is_of_another_machine || written < self.truth.order(Some(start)))
            });
            if !is_asked {
                return Err(format!("{} was freed, and no DEL of it waits", words(&owner)));
            }
        }
        Ok(())
    }

    fn signals_wrongly(&self, nested: &Txn) -> Result<(), String> {
        for op in &nested.then {
            let Op::Put(key, value, lease) = op else { continue };
            // A run that decides alone is told so.
            let is_same = |stored: &[u8]| {
                let told = TicketRecord::decode(value).ok();
                stored == *value
                    || told.is_some_and(|told| {
                        let stored = TicketRecord::decode(stored);
                        told.is_decided_alone() && stored.is_ok_and(|stored| stored.owner == told.owner)
                    })
            };
            let stands = self.model.entry(key).is_some_and(|record| {
                is_same(&record.value) && lease.map_or(0, |lease| lease.0) == record.lease
            });
            if !stands {
                return Err(format!("{} was given its turn, and is gone", String::from_utf8_lossy(key)));
            }
            if self.is_of_deleted(key) {
                return Err(format!(
                    "{} was given its turn, and its owner was deleted",
                    String::from_utf8_lossy(key)
                ));
            }
        }
        Ok(())
    }

    /// True if the owner of a ticket was deleted after the ticket was taken.
    fn is_of_deleted(&self, ticket: &[u8]) -> bool {
        let Some(stored) = self.model.entry(ticket) else { return false };
        let Ok(record) = TicketRecord::decode(&stored.value) else { return false };
        let tombstone = self.model.entry(&self.shared.keys.tombstone(&record.owner));
        tombstone.is_some_and(|tombstone| tombstone.mod_revision >= stored.create_revision)
    }

    /// A ticket that a head removes without an answer for its run is that of a deleted owner.
    fn drops_wrongly(&self, txn: &Txn) -> Result<(), String> {
        for (step, op) in self.model.path(txn).effects() {
            if let (DROP, Op::Delete(key)) = (step, op)
                && matches!(self.shared.keys.parse(key), Ok(Key::Ticket(..)))
                && self.model.entry(key).is_some()
                && !self.is_of_deleted(key)
            {
                return Err(format!(
                    "{} was dropped, and its owner was not deleted",
                    String::from_utf8_lossy(key)
                ));
            }
        }
        Ok(())
    }

    /// In the order `lowest`, each run of a commit must get the lowest address of its page that is free after the runs
    /// before it. The fault, if one does not.
    fn skips_lower(&self, txn: &Txn, work: Option<&Work>) -> Option<String> {
        if !serves(txn) {
            return None;
        }
        let is_set = self.sets(txn);
        let all = with_nested(txn).into_iter().flat_map(|txn| &txn.then);
        let reserved: HashSet<Place> = all.filter_map(|op| self.reserves(op)).collect();
        let mut taken: HashSet<Place> = HashSet::new();
        let parts = txn.then.iter().filter_map(|op| match op {
            Op::Nested(nested) if nested.step == SERVE => Some(&**nested),
            _ => None,
        });
        for part in std::iter::once(txn).chain(parts) {
            let runs = self.adds_of(part, work);
            if let Some(why) = runs.into_iter().find_map(|id| {
                let is_passed = |place: &Place| {
                    !taken.contains(place)
                        && (reserved.contains(place) || !is_set(place))
                        && self.is_free(place)
                };
                self.passes_over(&self.truth.sandboxes[id], part, is_passed)
            }) {
                return Some(why);
            }
            taken.extend(part.then.iter().filter_map(|op| self.reserves(op)));
        }
        None
    }

    /// True for each address whose bit stands in a page that a transaction writes. A bit that it sets for nobody stands
    /// for a reservation that it has read, and that may be gone since.
    pub(super) fn sets(&self, txn: &Txn) -> impl Fn(&Place) -> bool {
        let pages: HashMap<(NetworkName, Page), Bits> =
            txn.then.iter().filter_map(|op| self.writes_page(op)).collect();
        move |(network, address)| {
            let written = pages.get(&(network.clone(), address.page()));
            written.is_some_and(|bits| bits.get(address.bit()))
        }
    }

    /// True if a transaction serves a run that asks for an address.
    pub(super) fn serves_one_that_asks(&self, txn: &Txn) -> bool {
        let served = with_nested(txn).into_iter().filter(|part| part.step == SERVE);
        let mut sandboxes = served.filter_map(|part| self.adds_of(part, None));
        sandboxes.any(|id| self.truth.sandboxes[id].request.is_some())
    }

    /// The sandbox whose ADD a transaction, or one inside it, commits.
    fn adds_of(&self, part: &Txn, work: Option<&Work>) -> Option<SandboxId> {
        let work = match part.step {
            SERVE => self.ticket_of(part).and_then(|ticket| Some(&self.crowd.tickets.get(ticket)?.1)),
            _ => work,
        };
        match work {
            Some(Work::Add { sandbox, .. }) => Some(*sandbox),
            _ => None,
        }
    }

    /// The ticket that a transaction removes.
    fn ticket_of<'t>(&self, part: &'t Txn) -> Option<&'t Bytes> {
        part.then.iter().find_map(|op| match op {
            Op::Delete(key) if matches!(self.shared.keys.parse(key), Ok(Key::Ticket(..))) => Some(key),
            _ => None,
        })
    }

    /// A free address that a run should have got instead of a higher one of the same page.
    fn passes_over(&self, sandbox: &Sandbox, part: &Txn, is_free: impl Fn(&Place) -> bool) -> Option<String> {
        let config = &self.plan.configs[sandbox.config];
        // Not every range of a pool is open.
        if config.order != Order::Lowest
            || config.is_pooled
            || sandbox.request.is_some()
            || sandbox.with_fixed
        {
            return None;
        }
        let reserved = part.then.iter().filter_map(|op| self.reserves(op));
        // An address that is taken over is not picked.
        let picks: Vec<Place> =
            reserved.filter(|place| !self.tree.reservations.contains_key(place)).collect();
        config.sets.iter().find_map(|set| {
            let all = set.ranges().iter().flat_map(|range| {
                let spans = range.spans().iter();
                spans.flat_map(|span| {
                    (span.first.0..=span.last.0).map(|at| (range.network().clone(), Addr(at)))
                })
            });
            let all: Vec<Place> = all.collect();
            let at = all.iter().position(|place| picks.contains(place))?;
            let page = all[at].1.page();
            let passed = all[..at].iter().find(|place| place.1.page() == page && is_free(place))?;
            let (name, address) = (words(&sandbox.owner), all[at].1);
            Some(format!("{name} was served with {address}, and {} is free", passed.1))
        })
    }

    pub(crate) fn reserves(&self, op: &Op) -> Option<(NetworkName, Addr)> {
        let Op::Put(key, ..) = op else { return None };
        match self.shared.keys.parse(key) {
            Ok(Key::Ip(network, address)) => Some((network, address)),
            _ => None,
        }
    }

    fn writes_page(&self, op: &Op) -> Option<((NetworkName, Page), Bits)> {
        let Op::Put(key, value, _) = op else { return None };
        match self.shared.keys.parse(key) {
            Ok(Key::Page(network, page)) => Some(((network, page), Bits::from_bytes(value)?)),
            _ => None,
        }
    }

    fn is_free(&self, place: &Place) -> bool {
        let (network, address) = place;
        !self.tree.cleared_by_hand.contains(place)
            && !self.tree.has_bit(network, *address)
            && !self.tree.reservations.contains_key(place)
    }
}

/// True if a transaction commits for others.
fn serves(txn: &Txn) -> bool {
    txn.then.iter().any(|op| matches!(op, Op::Nested(nested) if nested.step == SERVE))
}
