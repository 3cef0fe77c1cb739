//! The laws of transactions: each transaction is judged when it is applied. Together with the invariants of the store
//! afterwards (`tree`) and with the knowledge of callers (`truth`), these are the promises of the protocol.

use std::collections::HashSet;

use metes_core::keys::Key;
use metes_core::plan::first::is_of_hold;
use metes_core::pool::choose::Order;
use metes_core::pool::{Addr, Bits, Meta, NetworkName, Page, RangeSet, VERSION};
use metes_core::txn::{Compare, Op, Reply, Txn, answered};

use super::batches::SERVE;
use super::ids::ProcessId;
use super::plan::Theme;
use super::process::Work;
use super::tree::Place;
use super::works::candidate;
use super::{Seen, World};
use crate::store::with_nested;

/// The most commits that an ADD loses where nothing fails: one on its node's hints, those before it queues, and some at
/// the head, to runs that had looked before anybody queued. One in 3,000 worlds has an ADD that loses 14. With a queue
/// for each range that shares the page, some lose 22.
const LOST_MAX: u32 = 18;
/// All ADDs together lose at most as many as there are, and so many more: those that all begin at once. With a queue
/// for each range, they do in a fifth of all worlds.
const LOST_BESIDES: u32 = 12;

/// The state before a transaction, as far as it is needed to judge it.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    meta: Option<Meta>,
    is_in_service: bool,
    had_allocations: bool,
    /// An owner whose index entry it deletes, and whose record it leaves.
    foreign_index: Option<String>,
    /// True if it deletes a tail that names a ticket which it leaves.
    foreign_tail: bool,
    /// The owner whose record it deletes, and the node that has written that record.
    freed: Option<(String, usize)>,
    /// An owner to which it assigns something although the owner was deleted.
    buried: Option<String>,
    /// The leader, if the transaction gives up the lead.
    led_by: Option<String>,
    /// A key that it deletes as stale although a lease will remove it.
    deletes_leased: Option<String>,
    pages: Vec<(NetworkName, Page, Bits)>,
    /// An address whose bit a free clears although it deletes no reservation of it.
    clears_unreserved: Option<Addr>,
    /// A free address that the order should have given first.
    skipped: Option<String>,
    /// A key that it overwrites or deletes although its process has not seen the present version.
    unseen: Option<String>,
    /// True if the ticket that it commits from is gone.
    lost_ticket: bool,
    /// True if it goes first although others queue.
    passes_queue: bool,
    /// A hold that it ends before its time.
    ends_early: Option<String>,
    /// The wrong that it does to others.
    misserves: Option<String>,
    /// An address that it gives although it is cooling, or that it frees and that is to cool and does not.
    misses_cooldown: Option<String>,
}

impl World<'_> {
    /// The state that a transaction finds.
    pub(crate) fn before(&self, txn: &Txn, process: ProcessId, work: Option<&Work>) -> Facts {
        let mut facts = Facts {
            meta: self.tree.meta.clone(),
            is_in_service: self.tree.is_in_service(),
            had_allocations: self.tree.has_allocations(),
            misserves: self.misserves(txn, work),
            ..Facts::default()
        };
        let keys = &self.shared.keys;
        // The operations that really take effect, in the transactions inside it too.
        let effects = self.model.path(txn).effects();
        if let Some(seen) = &self.seen {
            facts.unseen = effects.iter().find_map(|(step, op)| self.unseen(step, op, process, seen));
        }
        // A run that takes a seat, or the addresses of an older sandbox, writes no page.
        let writes_page = effects.iter().any(|(_, op)| match op {
            Op::Put(key, ..) => matches!(keys.parse(key), Ok(Key::Page(..))),
            _ => false,
        });
        facts.passes_queue = txn.step == "commit-first"
            && writes_page
            && txn.otherwise.iter().any(|op| match op {
                Op::Get(key) => {
                    matches!(keys.parse(key), Ok(Key::Tail(_))) && self.model.entry(key).is_some()
                }
                _ => false,
            });
        facts.misses_cooldown =
            effects.iter().find_map(|(step, op)| self.misses_cooldown(step, op, &effects, work));
        let goes = |key: &[u8]| effects.iter().any(|(_, op)| matches!(op, Op::Delete(other) if other == key));
        for (step, op) in &effects {
            match op {
                Op::Delete(key) => match keys.parse(key) {
                    Ok(Key::Pod(interface)) => {
                        let named = self.tree.index.get(&interface);
                        let record_goes = |owner| goes(&keys.owner(owner));
                        if *step != "delete-stale"
                            && let Some(owner) = named
                            && !record_goes(owner)
                        {
                            facts.foreign_index = Some(super::tree::words(owner));
                        }
                    }
                    Ok(Key::Tail(_)) => {
                        if let Some(tail) = self.model.entry(key) {
                            let names =
                                |op: &Op| matches!(op, Op::Delete(ticket) if ticket.ends_with(&tail.value));
                            // A run that drops out of a batch keeps its ticket, though the tail names it.
                            let mut all = with_nested(txn).into_iter().flat_map(|txn| &txn.then);
                            facts.foreign_tail |= !all.any(names);
                        }
                    }
                    Ok(Key::Owner(owner)) => {
                        facts.ends_early = facts.ends_early.or_else(|| self.ends_early(&owner, work));
                        let record = self.tree.owners.get(&owner).map(|owned| &owned.record);
                        let writer = record.and_then(|record| self.truth.writer(record));
                        facts.freed = facts.freed.or(writer.map(|node| (super::tree::words(&owner), node)));
                    }
                    Ok(Key::Lead(cluster)) => facts.led_by = self.tree.leads.get(&cluster).cloned(),
                    Ok(Key::Ticket(..))
                        if matches!(
                            *step,
                            "commit" | "batch" | "serve" | "free" | "free-first" | "assign"
                        ) =>
                    {
                        facts.lost_ticket |= self.model.entry(key).is_none();
                    }
                    Ok(Key::Ticket(..) | Key::Tombstone(_))
                        if *step == "delete-stale"
                            && self.model.entry(key).is_some_and(|record| record.lease != 0) =>
                    {
                        facts.deletes_leased = Some(String::from_utf8_lossy(key).into_owned());
                    }
                    _ => {}
                },
                Op::Put(key, ..) if *step == "assign" => {
                    if let Ok(Key::Owner(owner)) = keys.parse(key)
                        && self.tree.is_buried(&owner)
                    {
                        facts.buried = Some(super::tree::words(&owner));
                    }
                }
                Op::Put(key, ..) if matches!(*step, "repair" | "clear") => {
                    if let Ok(Key::Page(network, page)) = keys.parse(key) {
                        let bits = self.tree.bits(&network, page);
                        facts.pages.push((network, page, bits));
                    }
                }
                Op::Put(key, value, _) if matches!(*step, "free" | "free-first" | "free-bits") => {
                    if let (Ok(Key::Page(network, page)), Some(after)) =
                        (keys.parse(key), Bits::from_bytes(value))
                    {
                        let before = self.tree.bits(&network, page);
                        let cleared =
                            before.ones().filter(|bit| !after.get(*bit)).map(|bit| page.address(bit));
                        let mut unreserved = cleared.filter(|address| !goes(&keys.ip(&network, *address)));
                        facts.clears_unreserved = facts.clears_unreserved.or(unreserved.next());
                    }
                }
                _ => {}
            }
        }
        facts
    }

    /// Gives an address that is cooling, or lets one not cool that should.
    fn misses_cooldown(
        &self,
        step: &str,
        op: &Op,
        effects: &[(&'static str, &Op)],
        work: Option<&Work>,
    ) -> Option<String> {
        let keys = &self.shared.keys;
        match op {
            Op::Put(key, ..) => match keys.parse(key) {
                Ok(Key::Ip(network, address)) if step != "assign" && self.model.entry(key).is_none() => {
                    let is_cooling = self.tree.cooling.contains(&(network, address));
                    is_cooling.then(|| format!("{address} was given while it was cooling"))
                }
                _ => None,
            },
            Op::Delete(key) if matches!(step, "free" | "free-hinted" | "free-quick" | "free-first") => {
                let Ok(Key::Owner(owner)) = keys.parse(key) else { return None };
                // An address that no caller heard of does not cool. Only an ADD gives it back, or the spool, which runs
                // of other verbs carry out, too. That free leaves a tombstone.
                let tombstone = keys.tombstone(&owner);
                let buries =
                    effects.iter().any(|(_, op)| matches!(op, Op::Put(put, ..) if *put == tombstone));
                let cools = match work? {
                    // The addresses that a pod's older sandbox gives up.
                    _ if step == "free-first" => true,
                    Work::Del { sandbox, .. } => self.truth.sandboxes[*sandbox].owner == owner,
                    Work::Gc | Work::Pass | Work::Release => !buries,
                    _ => false,
                };
                let record = &self.tree.owners.get(&owner).filter(|_| cools)?.record;
                let is_own = |place: &Place| self.tree.reservations.get(place) == Some(&owner);
                let cools = |network, address| {
                    let key = keys.cooling(network, address);
                    effects.iter().any(|(_, op)| matches!(op, Op::Put(put, _, Some(_)) if *put == key))
                };
                record.cooling().find_map(|(network, address, _)| {
                    let is_missed = is_own(&(network.clone(), address)) && !cools(network, address);
                    is_missed.then(|| format!("{address} was freed and does not cool"))
                })
            }
            _ => None,
        }
    }

    /// The key that an operation writes, if its process has last seen another version of it. Keys on leases are left
    /// out.
    fn unseen(&self, step: &str, op: &Op, process: ProcessId, seen: &Seen) -> Option<String> {
        let (Op::Put(key, ..) | Op::Delete(key)) = op else { return None };
        match self.shared.keys.parse(key) {
            Ok(
                Key::Ticket(..)
                | Key::Tail(_)
                | Key::Moved(_)
                | Key::Fence(_)
                | Key::Orphan(_)
                | Key::GoneMachine(_)
                | Key::Stranger(..)
                | Key::Seen(..)
                | Key::Hold(..)
                | Key::Asked(_),
            )
            | Err(_) => {
                return None;
            }
            // Only a pass that deletes it compares that it is as it was read.
            Ok(Key::Node(_)) if step != "forget" => return None,
            // The compare is of its value, whichever revision wrote it.
            Ok(Key::Meta) if step == "suspect" => return None,
            // The meta that the process has seen was deleted since, with all other keys.
            Ok(Key::Meta) if step == "found" && self.model.entry(key).is_none() => return None,
            Ok(Key::Meta)
                if matches!(step, "meta" | "pause")
                    && seen.get(&(process, key.clone())).is_some_and(|then| *then > 0) =>
            {
                return None;
            }
            // A write that reserves an address for an owner, or sets it aside, ends its cooldown, seen or not.
            Ok(Key::Cooling(..)) if step != "clear" => return None,
            // It counts only that nobody holds it or leads now and that no tombstone stands now, whatever was before.
            Ok(Key::Ip(..) | Key::Lead(_) | Key::Tombstone(_)) if self.model.entry(key).is_none() => {
                return None;
            }
            // Nor does the past of such a key count for another run.
            Ok(Key::Owner(_) | Key::Pod(_) | Key::Seat(_))
                if step == SERVE && self.model.entry(key).is_none() =>
            {
                return None;
            }
            Ok(_) => {}
        }
        let now = self.model.entry(key).map_or(0, |record| record.mod_revision);
        let then = seen.get(&(process, key.clone())).copied().unwrap_or(0);
        (now != then)
            .then(|| format!("{} as of revision {now}, seen as of {then},", String::from_utf8_lossy(key)))
    }

    /// Notes the knowledge that a process which sends its commit first has from its node's hints. It has read them a
    /// moment ago.
    pub(crate) fn note_hints(&mut self, txn: &Txn, process: ProcessId) {
        if self.seen.is_none() {
            return;
        }
        let compared = |txn: &Txn| {
            let revision = |compare: &Compare| match compare {
                Compare::Mod(key, revision) => Some((key.clone(), *revision)),
                Compare::Create(key, 0) => Some((key.clone(), 0)),
                _ => None,
            };
            txn.compares.iter().filter_map(revision).collect::<Vec<_>>()
        };
        match txn.step {
            "commit-first" => {}
            // The hints of an owner say no more than what is compared. Its seat was written with its record.
            "free-hinted" => {
                let own = |key: &[u8]| matches!(self.shared.keys.parse(key), Ok(Key::Owner(_)));
                let written =
                    compared(txn).into_iter().find(|(key, _)| own(key)).map(|(_, revision)| revision);
                let seat = txn.then.iter().find_map(|op| match op {
                    Op::Delete(key) => {
                        matches!(self.shared.keys.parse(key), Ok(Key::Seat(_))).then_some(key.clone())
                    }
                    _ => None,
                });
                let known = with_nested(txn).into_iter().flat_map(compared).chain(seat.zip(written));
                let known = known.collect::<Vec<_>>();
                let Some(seen) = &mut self.seen else { return };
                seen.extend(known.into_iter().map(|(key, revision)| ((process, key), revision)));
                return;
            }
            _ => return,
        }
        let scopes = txn.otherwise.iter().filter_map(|op| match op {
            Op::Get(key) => self.shared.keys.parse(key).ok(),
            _ => None,
        });
        let scope =
            scopes.filter_map(|key| if let Key::Tail(scope) = key { Some(scope) } else { None }).next_back();
        let files = self.node_of(process).map(|node| self.nodes[node].boot.state().scope_hints());
        let hints = scope.zip(files).and_then(|(scope, files)| files.read(&(&scope).into()));
        let Some(seen) = &mut self.seen else { return };
        let hints = hints.iter().flat_map(|hints| hints.keys.iter());
        let hints = hints.map(|(key, entry)| (key.clone(), entry.map_or(0, |entry| entry.mod_revision)));
        // Those of a hold neither, nor those of an older sandbox.
        let is_own = |key: &[u8]| {
            self.shared.keys.parse(key).is_ok_and(|key| {
                is_of_hold(&key) || matches!(key, Key::Seat(_) | Key::Owner(_) | Key::Pod(_) | Key::Ip(..))
            })
        };
        let compared = compared(txn).into_iter();
        for (key, revision) in hints.chain(compared.filter(|(key, _)| is_own(key))) {
            seen.insert((process, key), revision);
        }
    }

    /// Notes the knowledge that a process gets from an answer.
    pub(crate) fn note_seen(&mut self, txn: &Txn, reply: &Reply, process: ProcessId) {
        let Some(seen) = &mut self.seen else { return };
        let mut note = |key: &Vec<u8>, revision: i64| {
            let known = seen.entry((process, key.clone())).or_default();
            // A member that is behind may answer, or one free of a pass later than another. An older answer does not
            // take back newer knowledge: a commit that was planned on it may still be on its way.
            if *known <= reply.revision {
                *known = revision;
            }
        };
        for (op, found) in answered(txn.branch(reply.succeeded), &reply.found) {
            match op {
                Op::Get(key) => note(key, found.one().map_or(0, |entry| entry.mod_revision)),
                Op::List(_) => found.entries.iter().for_each(|entry| note(&entry.key, entry.mod_revision)),
                Op::Put(key, ..) => note(key, reply.revision),
                Op::Delete(key) => note(key, 0),
                Op::Tickets(..) | Op::Nested(_) => {}
            }
        }
    }

    /// Judges a transaction that was applied.
    pub(crate) fn obeys(
        &self,
        txn: &Txn,
        reply: &Reply,
        process: ProcessId,
        work: Option<&Work>,
        facts: &Facts,
    ) -> Result<(), String> {
        if !reply.succeeded {
            return Ok(());
        }
        if let Some(key) = &facts.unseen {
            return Err(format!("{key} was overwritten"));
        }
        if facts.passes_queue {
            return Err("a first commit went before those that queue".to_owned());
        }
        if let Some(hold) = &facts.ends_early {
            return Err(format!("{hold} was freed before its time"));
        }
        if let Some(why) = &facts.misses_cooldown {
            return Err(why.clone());
        }
        if let Some(why) = &facts.misserves {
            return Err(why.clone());
        }
        if let Some(address) = facts.clears_unreserved {
            return Err(format!(
                "a free cleared the bit of {address}, which others may list, without a reservation"
            ));
        }
        if facts.lost_ticket {
            return Err("it took effect from a ticket that was gone".to_owned());
        }
        let done: Vec<&Op> = answered(&txn.then, &reply.found).into_iter().map(|(op, _)| op).collect();
        let meta = self.shared.keys.meta();
        if facts.meta.is_none()
            && facts.had_allocations
            && matches!(txn.step, "commit" | "pause" | "found")
            && done.iter().any(|op| matches!(op, Op::Put(key, ..) if *key == meta))
        {
            return Err("meta was made anew beside allocations".to_owned());
        }
        let is_kept_by = |meta: &Meta| meta.paused.is_none() && meta.min_writer <= VERSION;
        match txn.step {
            "commit" | "commit-first" | "batch" => {
                // A batch may do no more than give a run its turn.
                let reserves = |op: &&Op| matches!(op, Op::Put(key, ..) if self.is_owners(key));
                if !facts.is_in_service && done.iter().any(reserves) {
                    return Err(format!("an ADD took effect in a store with {:?}", facts.meta));
                }
                if txn.step != "batch"
                    && let (Some(seen), Some(emptied)) = (self.known.get(&process), self.emptied)
                    && *seen <= emptied
                {
                    return Err("an ADD took effect in a store that its node has known otherwise".to_owned());
                }
                if let Some(skipped) = &facts.skipped {
                    return Err(format!("{skipped} was free and left out"));
                }
            }
            "repair" | "delete-stale"
                if matches!(work, Some(Work::Pass | Work::Repair))
                    && !facts.meta.as_ref().is_none_or(is_kept_by) =>
            {
                return Err(format!("a repair took effect in a store with {:?}", facts.meta));
            }
            "hold" if !facts.is_in_service => {
                return Err(format!("an address was set aside in a store with {:?}", facts.meta));
            }
            "assign" if facts.buried.is_some() => {
                return Err(format!("{:?} was deleted, and gets something all the same", facts.buried));
            }
            "assign"
                if !facts
                    .meta
                    .as_ref()
                    .is_some_and(|meta| meta.suspect.is_some() || meta.paused.is_some()) =>
            {
                return Err(format!("an assignment took effect in a store with {:?}", facts.meta));
            }
            "step-down" if facts.led_by.as_ref().is_some_and(|name| *name != candidate(process)) => {
                return Err(format!("the lead of {:?} was given up by another", facts.led_by));
            }
            "ticket" => self.names_last(&done)?,
            _ => {}
        }
        if let Some(owner) = &facts.foreign_index {
            return Err(format!("the index entry of {owner} was deleted"));
        }
        if facts.foreign_tail {
            return Err("the tail of a queue was deleted by one that it does not name".to_owned());
        }
        if let Some(key) = &facts.deletes_leased {
            return Err(format!("{key} was deleted, which will go with its lease"));
        }
        // A pod's sandboxes are on one machine here.
        if let (Some((owner, writer)), Some(node)) = (&facts.freed, self.node_of(process))
            && txn.step.starts_with("free")
            && *writer != node
        {
            return Err(format!("{owner} was freed by another machine than that which holds it"));
        }
        for (network, page, before) in &facts.pages {
            self.repairs_well(&done, network, *page, before)?;
        }
        Ok(())
    }

    /// If nothing fails, runs that write one page stand in one queue: an ADD loses few commits, however many runs there
    /// are.
    pub(crate) fn wastes_little(
        &mut self,
        txn: &Txn,
        reply: &Reply,
        process: ProcessId,
    ) -> Result<(), String> {
        if self.plan.theme != Theme::Slices
            || self.setup.target.is_some()
            || reply.succeeded
            || !matches!(txn.step, "commit" | "commit-first")
        {
            return Ok(());
        }
        let lost = self.lost.entry(process).or_default();
        *lost += 1;
        match *lost {
            ..=LOST_MAX => Ok(()),
            lost => Err(format!("#{process} has lost {lost} commits")),
        }
    }

    /// All of them lose few in all. This tells more than the most that one loses, which is chance.
    pub(crate) fn has_wasted_little(&self) -> Result<(), String> {
        let (lost, adds) =
            (self.lost.values().sum::<u32>(), self.truth.sandboxes.iter().map(|one| one.tries).sum::<u32>());
        match lost > adds + LOST_BESIDES {
            true => Err(format!("{adds} ADDs have lost {lost} commits")),
            false => Ok(()),
        }
    }

    /// The node that a run of the plugin is on.
    fn node_of(&self, process: ProcessId) -> Option<usize> {
        self.process(process)?.node
    }

    fn is_owners(&self, key: &[u8]) -> bool {
        matches!(self.shared.keys.parse(key), Ok(Key::Owner(_)))
    }

    /// A tail that is written names the youngest ticket.
    fn names_last(&self, done: &[&Op]) -> Result<(), String> {
        for op in done {
            let Op::Put(key, value, _) = op else { continue };
            let Ok(Key::Tail(scope)) = self.shared.keys.parse(key) else { continue };
            let prefix = self.shared.keys.queue(&scope);
            let created = |named: bool| {
                let tickets = self
                    .model
                    .entries()
                    .filter(|(ticket, _)| ticket.starts_with(&prefix) && (ticket.ends_with(value) == named));
                tickets.map(|(_, record)| record.create_revision).max()
            };
            if created(false) > created(true) {
                return Err("the tail of a queue names one that is not the last".to_owned());
            }
        }
        Ok(())
    }

    /// A repair sets no bit whose address is not reserved.
    fn repairs_well(
        &self,
        done: &[&Op],
        network: &NetworkName,
        page: Page,
        before: &Bits,
    ) -> Result<(), String> {
        let key = self.shared.keys.page(network, page);
        let put = done.iter().find_map(|op| match op {
            Op::Put(other, value, _) if *other == key => Bits::from_bytes(value),
            _ => None,
        });
        let Some(after) = put else { return Ok(()) };
        let is_stray = |bit: &usize| {
            let ticket = (network.clone(), page.address(*bit));
            !before.get(*bit) && !self.tree.reservations.contains_key(&ticket)
        };
        match after.ones().find(is_stray) {
            None => Ok(()),
            Some(bit) => Err(format!("repair set the bit of {}, which is free", page.address(bit))),
        }
    }

    /// The address that a commit of an ADD has wrongly left out, by the order in which addresses are handed out.
    pub(crate) fn skips(&self, txn: &Txn, work: Option<&Work>) -> Option<String> {
        let Some(Work::Add { sandbox, .. }) = work else { return None };
        let sandbox = &self.truth.sandboxes[*sandbox];
        let config = &self.plan.configs[sandbox.config];
        if !matches!(txn.step, "commit" | "commit-first")
            || config.order != Order::Next
            || config.is_pooled
            || sandbox.request.is_some()
            || sandbox.with_fixed
            // Then the cursor names an address that was asked for.
            || self.serves_one_that_asks(txn)
        {
            return None;
        }
        // Reservations of runs that dropped out count, too.
        let all = with_nested(txn).into_iter().flat_map(|txn| &txn.then);
        let reserved: HashSet<Place> = all.filter_map(|op| self.reserves(op)).collect();
        let is_set = self.sets(txn);
        let is_passed = |place: &Place| reserved.contains(place) || is_set(place);
        config.sets.iter().find_map(|set| {
            let key = self.shared.keys.cursor(set, None);
            let put = txn.then.iter().find_map(|op| match op {
                Op::Put(other, value, _) if *other == key => Some(value.as_slice()),
                _ => None,
            });
            let (last, picked) = (address(&self.model.entry(&key)?.value)?, address(put?)?);
            self.free_between(set, last, picked, is_passed)
        })
    }

    fn free_between(
        &self,
        set: &RangeSet,
        last: Addr,
        picked: Addr,
        is_passed: impl Fn(&Place) -> bool,
    ) -> Option<String> {
        let all: Vec<(NetworkName, Addr)> = set
            .ranges()
            .iter()
            .flat_map(|range| {
                range.spans().iter().flat_map(|span| {
                    (span.first.0..=span.last.0).map(|address| (range.network().clone(), Addr(address)))
                })
            })
            .collect();
        let at = all.iter().position(|(_, address)| *address == last)?;
        for (network, address) in all.iter().cycle().skip(at + 1).take(all.len()) {
            if *address == picked {
                return None;
            }
            // Another page that was full when the run looked may have room now. And where a foreign hand has cleared
            // the bit, the page does not change when the reservation is freed.
            let place = (network.clone(), *address);
            let is_taken = address.page() != picked.page()
                || is_passed(&place)
                || self.tree.cleared_by_hand.contains(&place)
                || self.tree.has_bit(network, *address)
                || self.tree.reservations.contains_key(&place);
            if !is_taken {
                return Some(format!("{address}, next after {last}, before {picked},"));
            }
        }
        None
    }

    /// Meta only goes forward, and nobody undoes the writes of others.
    pub(crate) fn judge_meta(&self, before: Option<&Meta>, after: Option<&Meta>) -> Result<(), String> {
        if self.is_by_hand {
            return Ok(());
        }
        let change = || format!("meta changed from {before:?} to {after:?}");
        let Some(after) = after else { return Err(change()) };
        let Some(before) = before else { return Ok(()) };
        // A migration begins or ends, and nothing else changes.
        let mut as_before = after.clone();
        as_before.paused.clone_from(&before.paused);
        as_before.paused_since.clone_from(&before.paused_since);
        if as_before == *before {
            return Ok(());
        }
        // The epoch and the suspicion are judged below, and the rest stays.
        (as_before.epoch, as_before.suspect) = (before.epoch, before.suspect);
        // A node that knows another store says which one.
        if before.suspect.is_none() && after.suspect.is_some() {
            as_before.replaces.clone_from(&before.replaces);
        }
        let keeps = after.paused == before.paused && as_before == *before;
        let is_next = match (before.suspect, after.suspect) {
            // The store is taken into service.
            (Some(suspect), None) => after.epoch == before.epoch.max(suspect) + 1,
            // The store is put under suspicion by a node that may have seen a later epoch.
            (None, Some(epoch)) => after.epoch >= before.epoch && epoch == after.epoch,
            _ => after == before,
        };
        if keeps && is_next { Ok(()) } else { Err(change()) }
    }
}

impl Facts {
    pub(crate) fn with_skipped(self, skipped: Option<String>) -> Self {
        Self { skipped, ..self }
    }
}

fn address(value: &[u8]) -> Option<Addr> {
    let ip: std::net::IpAddr = std::str::from_utf8(value).ok()?.parse().ok()?;
    Some(Addr::from(ip))
}
