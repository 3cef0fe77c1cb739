//! Many runs die while they queue, as when a node reboots or a rollout is aborted, and others come after them.
//!
//! The law: where an address is free and the store healthy, an ADD has it soon, however many are dead; where none is
//! free, it says so.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use metes_config::cni::Error;
use metes_config::cni::error::Code;
use metes_core::keys::{Key, LeaseId, Scope, TicketId};
use metes_core::limits;
use metes_core::pool::{Addr, Owner, Record};
use metes_core::request::TicketRecord;
use metes_core::txn::Op;

use super::cluster::{Labelling, PodSlot};
use super::ids::{ProcessId, SandboxId};
use super::process::{Process, Work};
use super::truth::Asks;
use super::{World, checked};

/// The time in which a run that comes after the dead must have its answer: some eight times the least patience.
const SOON: Duration = Duration::from_secs(3);
/// The most turns in which all who are to die have taken a ticket.
const TURNS: usize = 20_000;

/// The runs of a mass death, and those that come after it.
#[derive(Debug, Default)]
pub(crate) struct Deaths {
    /// The sandboxes of those that died.
    dead: Vec<SandboxId>,
    /// The living, each with the time at which it began.
    comers: HashMap<ProcessId, Duration>,
    /// Every ticket is one of a newer program.
    pub(crate) are_newer: bool,
    /// The number of queues that were begun by hand.
    queues: i64,
}

impl World<'_> {
    /// Several mass deaths, one after the other, each in one network.
    pub(crate) async fn die_in_queues(&mut self) -> Result<(), String> {
        self.is_healing = true;
        self.end_what_is_over()?;
        self.finish().await?;
        for _ in 0..self.chance.between(1, 3) {
            let config = self.chance.index(self.plan.configs.len());
            self.clear_away(config).await?;
            self.die_in_queue(config).await?;
            self.come_after(config).await?;
        }
        self.is_healing = false;
        Ok(())
    }

    /// Ends all sandboxes that anybody knows of, so that the network has room.
    async fn clear_away(&mut self, config: usize) -> Result<(), String> {
        for id in 0..self.truth.sandboxes.len() {
            if self.chance.one_in(4) && self.truth.sandboxes[id].config == config {
                continue;
            }
            if self.tree.owners.contains_key(&self.truth.sandboxes[id].owner) {
                self.begin_del(id);
            }
        }
        self.finish().await
    }

    /// Runs stand in the queue of a network, and all of them end there.
    async fn die_in_queue(&mut self, config: usize) -> Result<(), String> {
        self.stand_by_hand(config)?;
        self.deaths.dead.clear();
        let dels = if self.chance.one_in(3) { self.dels_that_queue(config) } else { Vec::new() };
        self.deaths.are_newer = self.chance.one_in(3);
        let asks = self.chance.one_in(3);
        for _ in 0..self.chance.between(4, 60) {
            let request = asks.then(|| self.some_address(config)).flatten();
            let id = self.begin_one(config, request);
            self.deaths.dead.push(id);
        }
        let queue = self.shared.keys.queue(&self.queue_of(config));
        for _ in 0..TURNS {
            let stands = |process: &Process| self.crowd.stands(process.id, &queue, &self.model);
            if self.processes.iter().all(stands) {
                break;
            }
            self.turn().await?;
        }
        while !self.processes.is_empty() {
            self.count("died in a queue");
            self.kill(0, "dies in the queue");
        }
        self.deaths.are_newer = false;
        self.finish().await?;
        if self.chance.one_in(2) {
            self.end_leases_of(&dels)?;
        }
        let share = *self.chance.pick(&[0, 50, 100, 100]);
        for id in self.deaths.dead.clone() {
            if self.chance.below(100) < share {
                self.begin_del(id);
            }
        }
        self.finish().await
    }

    /// Others come, while nothing fails.
    async fn come_after(&mut self, config: usize) -> Result<(), String> {
        self.deaths.comers.clear();
        let asks = self.chance.one_in(3);
        for _ in 0..self.chance.between(1, 20) {
            let request = if asks { self.some_address(config) } else { None };
            self.begin_one(config, request);
            self.deaths.comers.insert(self.processes_made, self.now());
            if self.chance.one_in(4) {
                let by = Duration::from_millis(self.chance.between(1, 100));
                self.pass(by).await?;
            }
        }
        // An old DEL is carried out late, out of a spool. It takes the ticket of a run that lives.
        if self.chance.one_in(4) {
            for _ in 0..self.chance.between(1, 200) {
                self.turn().await?;
            }
            let living = self.processes.iter().find_map(|process| match process.work {
                Work::Add { sandbox, .. } => Some(self.truth.sandboxes[sandbox].owner.clone()),
                _ => None,
            });
            if let Some(owner) = living.filter(|owner| !self.tree.is_buried(owner)) {
                self.count("late tombstone");
                self.bury_by_hand(&self.shared.keys.tombstone(&owner))?;
            }
        }
        self.finish().await?;
        self.deaths.comers.clear();
        Ok(())
    }

    /// A run that begins now for one more pod.
    fn begin_one(&mut self, config: usize, request: Option<std::net::IpAddr>) -> SandboxId {
        let pod = self.pods.len();
        self.pods.push(PodSlot::default());
        self.create_pod(pod);
        let slot = &mut self.pods[pod];
        (slot.config, slot.labelling, slot.sandboxes) = (config, Labelling::Whole, 1);
        let (node, uid) = (slot.node, slot.uid.clone());
        let owner = self.nodes[node].owner(&format!("{uid}-1"));
        let asks = Asks { config, request, with_fixed: false };
        let id = self.truth.new_sandbox(owner, pod, uid, node, asks);
        self.pods[pod].current = Some(id);
        self.begin_add(id);
        id
    }

    fn queue_of(&self, config: usize) -> Scope {
        Scope::of(&self.plan.configs[config].sets[..1], None)
    }

    /// A run that nobody can serve has stood in the queue for some time. So all who come now queue, too.
    fn stand_by_hand(&mut self, config: usize) -> Result<(), String> {
        self.deaths.queues += 1;
        let (lease, scope) = (LeaseId(1_000_000 + self.deaths.queues), self.queue_of(config));
        let granted = self.model.grant(lease, limits::LEASE_TTL);
        granted.map_err(|failure| failure.to_string())?;
        let id = TicketId(self.deaths.queues);
        let owner = Owner {
            node: checked("n9"),
            container_id: checked("stands"),
            ifname: checked("net1"),
            cluster: Some(checked(super::CLUSTER)),
        };
        let keys = &self.shared.keys;
        let (tail, ticket) = (keys.tail(&scope), keys.ticket(&scope, id));
        let name = ticket[ticket.len() - 16..].to_vec();
        let stands = TicketRecord::of(owner).encode();
        self.by_hand(vec![Op::Put(tail, name, Some(lease)), Op::Put(ticket, stands, Some(lease))])
    }

    /// DELs of sandboxes whose nodes know nothing of them any more, so that they queue.
    fn dels_that_queue(&mut self, config: usize) -> Vec<SandboxId> {
        let all = 0..self.truth.sandboxes.len();
        let held: Vec<SandboxId> = all
            .filter(|id| {
                let sandbox = &self.truth.sandboxes[*id];
                sandbox.config == config && self.tree.owners.contains_key(&sandbox.owner)
            })
            .collect();
        for node in &self.nodes {
            let _ = std::fs::remove_dir_all(&node.boot.folder);
        }
        held.iter().for_each(|id| self.begin_del(*id));
        held
    }

    /// The leases for the tombstones of DELs that queue end before their tickets.
    fn end_leases_of(&mut self, dels: &[SandboxId]) -> Result<(), String> {
        let owners: HashSet<&Owner> = dels.iter().map(|id| &self.truth.sandboxes[*id].owner).collect();
        let mut leases = HashSet::new();
        for (key, record) in self.model.entries() {
            let Ok(Key::Ticket(..)) = self.shared.keys.parse(key) else { continue };
            let Ok(ticket) = TicketRecord::decode(&record.value) else { continue };
            let Some((_, rest)) =
                std::str::from_utf8(&record.value).ok().and_then(|text| text.split_once(r#""lease":"#))
            else {
                continue;
            };
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            if owners.contains(&ticket.owner)
                && let Ok(lease) = digits.parse()
            {
                leases.insert(lease);
            }
        }
        for lease in leases {
            self.count("lease of a free ended");
            self.note(|| format!("the lease {lease} ends"));
            _ = self.model.revoke(LeaseId(lease));
            self.follow()?;
        }
        Ok(())
    }

    /// Judges the answer of a run that came after the dead.
    pub(crate) fn judge_comer(
        &mut self,
        id: ProcessId,
        sandbox: SandboxId,
        refused: Option<&Error>,
    ) -> Result<(), String> {
        let Some(began) = self.deaths.comers.get(&id) else { return Ok(()) };
        let took = self.now() - *began;
        if took > SOON {
            return Err(format!("#{id} had its answer {took:?} after it began, behind dead runs"));
        }
        self.tally(if refused.is_some() { "came after the dead in vain" } else { "came after the dead" });
        let Some(error) = refused else { return Ok(()) };
        let sandbox = &self.truth.sandboxes[sandbox];
        let is_free = |network: &metes_core::pool::NetworkName, address: Addr| {
            !self.tree.reservations.contains_key(&(network.clone(), address))
        };
        let mut sets = self.plan.configs[sandbox.config].sets.iter();
        let has_room = match (error.code, sandbox.request) {
            (Code::NoFreeAddress, None) => sets.all(|set| {
                set.ranges().iter().any(|range| {
                    let mut spans = range.spans().iter();
                    spans
                        .any(|span| (span.first.0..=span.last.0).any(|at| is_free(range.network(), Addr(at))))
                })
            }),
            (Code::NoFreeAddress, Some(_)) => false,
            (Code::AddressNotAvailable, Some(request)) => sets.next().is_some_and(|set| {
                let address = Addr::from(request);
                set.covers(address).is_some_and(|range| is_free(range.network(), address))
            }),
            _ => return Err(format!("#{id} failed behind dead runs: {error:?}")),
        };
        match has_room {
            true => Err(format!("#{id} was refused behind dead runs, and there was room: {error:?}")),
            false => Ok(()),
        }
    }
}
