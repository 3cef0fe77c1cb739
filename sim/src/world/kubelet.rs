//! The callers: kubelets and runtimes that create, retry and end sandboxes, in every order that may happen; and people
//! who run metes' other programs.

use std::collections::HashSet;
use std::net::IpAddr;
use std::time::Duration;

use metes::commands::del::Done;
use metes_config::cni::error::Code;
use metes_config::cni::request::Attachment;
use metes_config::command::CheckConfig;
use metes_core::plan::ask::{Ask, RunStamp, Sticky};
use metes_core::pool::{
    ContainerId, Held, Labels, Owner, OwnerRecord, Pod, PodUid, RangesWanted, RunStart, Wanted,
};
use metes_node::spool::Spool;
use metes_reconciler::assign::{Assignment, Gone, Under};
use metes_reconciler::error::RunError;
use metes_reconciler::pass::PassError;

use super::cluster::{IFNAME, Labelling, Life};
use super::ids::{ProcessId, SandboxId};
use super::plan::{Config, Theme, Twins};
use super::process::{Outcome, Process, Work};
use super::tree::{Owned, words};
use super::truth::{Asks, Live, Sandbox};
use super::works::{self, Begun, Future_};
use super::{CLUSTER, World, checked, pools};

/// The UID of a pod, in the form of the API server's; that of a static pod is a digest.
fn uid(number: u64, labelling: Labelling) -> String {
    match labelling {
        Labelling::Static => format!("{number:032x}"),
        Labelling::Whole | Labelling::Named | Labelling::None => {
            format!("{number:08x}-0000-4000-8000-{number:012x}")
        }
    }
}

/// Now and then no pod has a name for so many operations.
const NAME_RESTS: u32 = 8;

impl World<'_> {
    /// Begins an operation if it is time for one; whether it did.
    pub(crate) fn begin_something(&mut self) -> Result<bool, String> {
        if self.result.operations >= self.plan.operations
            || self.processes.len() >= self.plan.width
            || !(self.steps.is_empty() || self.chance.one_in(3))
        {
            return Ok(false);
        }
        let before = self.result.operations;
        match self.chance.below(100) {
            roll if roll < self.plan.passes => self.begin_pass(),
            roll if roll < self.plan.passes + self.plan.collections => {
                let node = self.chance.index(self.nodes.len());
                self.begin_gc(node);
            }
            94.. if self.plan.is_sticky() => self.begin_end_of_subject(),
            80.. if self.plan.theme == Theme::Adopted => self.begin_takeover(),
            // An import may be the first to write to a store, and who accepts an empty one.
            90.. if self.plan.theme == Theme::First => self.begin_accept(),
            80.. if self.plan.theme == Theme::First => self.begin_import(),
            70.. if self.plan.theme == Theme::Holds => self.begin_hold(),
            99 => self.begin_persons_work(),
            _ => {
                for _ in 0..6 {
                    let pod = self.chance.index(self.pods.len());
                    self.act(pod);
                    if self.result.operations > before {
                        break;
                    }
                }
            }
        }
        Ok(self.result.operations > before)
    }

    fn begin_persons_work(&mut self) {
        // Nobody takes an emptied store into service as if it held all that is in use.
        // Nor does a person write to one of several etcds without a look.
        if matches!(self.plan.theme, Theme::Emptied | Theme::Endpoints) {
            return self.begin_repair();
        }
        let is_suspect = self.tree.meta.as_ref().is_some_and(|meta| meta.suspect.is_some());
        match self.chance.below(4) {
            0 | 1 if is_suspect => self.begin_accept(),
            2 if is_suspect => self.begin_adopt(),
            0 => self.begin_accept(),
            1 => {
                let dead: Vec<Owner> =
                    self.tree.owners.keys().filter(|owner| !self.is_used(owner)).cloned().collect();
                if let Some(owner) = dead.into_iter().min() {
                    self.begin(None, Work::Release, |world, id| {
                        works::let_go(world.shared.clone(), id, owner)
                    });
                }
            }
            _ => self.begin_repair(),
        }
    }

    /// True if a sandbox runs with an address, or may do so soon. Two machines of one name may have containers of one
    /// id.
    fn is_used(&self, owner: &Owner) -> bool {
        let mut sandboxes = self.truth.sandboxes.iter().filter(|sandbox| sandbox.owner == *owner).peekable();
        sandboxes.peek().is_none() || sandboxes.any(|sandbox| sandbox.live.is_some() || !sandbox.is_over)
    }

    /// Begins an operation for one pod.
    fn act(&mut self, pod: usize) {
        let slot = &self.pods[pod];
        let is_active = slot.life == Life::Active;
        match slot.current {
            None if slot.rests > 0 => self.pods[pod].rests -= 1,
            None if !is_active && (slot.old.is_empty() || self.chance.one_in(4)) => self.create_pod(pod),
            None if is_active && !slot.is_doomed => self.new_sandbox(pod),
            None if self.chance.one_in(3) => self.clean_up(pod),
            None => {}
            Some(current) => self.act_on(pod, current),
        }
    }

    fn act_on(&mut self, pod: usize, current: SandboxId) {
        let is_active = self.pods[pod].life == Life::Active && !self.pods[pod].is_doomed;
        let sandbox = &self.truth.sandboxes[current];
        let (is_live, is_adding, tries) = (sandbox.live.is_some(), !sandbox.adds.is_empty(), sandbox.tries);
        let roll = self.chance.below(100);
        if is_adding {
            match roll {
                0..6 => self.begin_add(current),
                6..16 => self.forsake(pod, current),
                16..20 => self.end_pod(pod),
                20..23 => self.clean_up(pod),
                _ => {}
            }
        } else if is_live {
            match roll {
                0..25 => self.begin_check(current),
                25..32 => self.begin_add(current),
                32..50 => self.retire(pod, is_active),
                50..55 => self.clean_up(pod),
                55..62 => {
                    // The runtime starts the same sandbox again.
                    self.begin_del(current);
                    self.begin_add(current);
                }
                62..80 => {}
                _ => self.end_pod(pod),
            }
        } else if is_active {
            match roll {
                0..40 if tries < 4 => self.begin_add(current),
                40..50 => self.end_pod(pod),
                _ => self.retire(pod, true),
            }
        } else {
            self.end_pod(pod);
        }
    }

    pub(crate) fn create_pod(&mut self, pod: usize) {
        self.pods_made += 1;
        let has_twins = self.plan.twins != Twins::None;
        let node = match has_twins {
            // Two slots that may have one container id are on different machines.
            true => 2 * self.chance.index(self.nodes.len() / 2) + pod % 2,
            false => self.chance.index(self.nodes.len()),
        };
        let labelling = match self.chance.below(12) {
            0 => Labelling::Named,
            1 => Labelling::None,
            2..7 if has_twins => Labelling::None,
            7 => Labelling::Static,
            _ => Labelling::Whole,
        };
        let slot = &mut self.pods[pod];
        slot.generation += 1;
        slot.uid = uid(self.pods_made, labelling);
        slot.name = format!("p{pod}");
        slot.node = node;
        slot.config = self.chance.index(self.plan.configs.len());
        slot.labelling = labelling;
        slot.life = Life::Active;
        slot.is_doomed = false;
        slot.sandboxes = 0;
        slot.old.clear();
        let (uid, name) = (slot.uid.clone(), slot.name.clone());
        self.note(|| format!("pod {name} {uid} is created on node {node}, {labelling:?}"));
    }

    /// The next sandbox of a pod: from now on, the addresses of an earlier one may be freed.
    fn new_sandbox(&mut self, pod: usize) {
        let slot = &mut self.pods[pod];
        slot.sandboxes += 1;
        // Without a pod the container id is derived from a path, as cnitool does.
        let container_id = match self.plan.twins != Twins::None && slot.labelling == Labelling::None {
            true => format!("path-{}-{}-{}", pod / 2, slot.generation, slot.sandboxes),
            false => format!("{}-{}", slot.uid, slot.sandboxes),
        };
        let node = slot.node;
        let config = match self.chance.one_in(8) {
            true => self.chance.index(self.plan.configs.len()),
            false => slot.config,
        };
        let uid = slot.uid.clone();
        let older: Vec<SandboxId> = self
            .truth
            .sandboxes
            .iter()
            .enumerate()
            .filter(|(_, s)| s.pod == pod && s.uid == uid)
            .map(|(id, _)| id)
            .collect();
        for id in older {
            self.truth.end(id);
        }
        let owner = self.nodes[node].owner(&container_id);
        let request =
            (self.chance.below(100) < self.plan.requests).then(|| self.some_address(config)).flatten();
        let is_sticky = self.plan.configs[config].keep.is_some();
        let with_fixed = !is_sticky && self.plan.configs[config].fixed.is_some() && self.chance.one_in(4);
        let id = self.truth.new_sandbox(owner, pod, uid, node, Asks { config, request, with_fixed });
        self.pods[pod].current = Some(id);
        self.begin_add(id);
    }

    /// Replaces the pod's sandbox by another one.
    pub(crate) fn replace(&mut self, pod: usize) {
        self.set_aside(pod);
        self.new_sandbox(pod);
    }

    /// One more pod, of which nothing is known yet.
    pub(crate) fn add_one(&mut self, config: usize) -> SandboxId {
        let pod = self.pods.len();
        self.pods.push(super::cluster::PodSlot::default());
        self.create_pod(pod);
        self.pods[pod].config = config;
        let node = self.pods[pod].node;
        let owner = self.nodes[node].owner(&format!("one-more-{config}"));
        let uid = self.pods[pod].uid.clone();
        let id =
            self.truth.new_sandbox(owner, pod, uid, node, Asks { config, request: None, with_fixed: false });
        self.pods[pod].current = Some(id);
        self.begin_add(id);
        id
    }

    pub(crate) fn some_address(&mut self, config: usize) -> Option<IpAddr> {
        let range = self.plan.configs[config].sets[0].ranges().first()?;
        let size = range.last().0 - range.first().0 + 1;
        let at = range.first().0 + u128::from(self.chance.below(size as u64));
        Some(metes_core::pool::Addr(at).ip())
    }

    /// The runtime has lost patience with an ADD: it calls DEL, at once or later.
    fn forsake(&mut self, pod: usize, current: SandboxId) {
        let adds = self.truth.sandboxes[current].adds.clone();
        for add in adds {
            let Some(index) = self.processes.iter().position(|process| process.id == add) else { continue };
            if self.chance.one_in(3) {
                self.count("killed");
                self.kill(index, "is killed by the runtime");
            } else {
                self.processes[index].is_awaited.set(false);
                self.note(|| format!("#{add}: nobody waits for it any more"));
            }
        }
        if self.chance.one_in(4) {
            self.set_aside(pod);
        } else {
            self.begin_del(current);
        }
    }

    fn set_aside(&mut self, pod: usize) {
        if let Some(current) = self.pods[pod].current.take() {
            self.pods[pod].old.push(current);
        }
    }

    /// A sandbox is given up for another one, with or without its DEL, before or after.
    fn retire(&mut self, pod: usize, with_next: bool) {
        let Some(current) = self.pods[pod].current else { return };
        match self.chance.below(3) {
            0 => {
                self.begin_del(current);
                self.set_aside(pod);
            }
            1 if with_next => {
                self.set_aside(pod);
                self.new_sandbox(pod);
            }
            _ => {
                self.set_aside(pod);
                self.begin_del(current);
                if with_next {
                    self.new_sandbox(pod);
                }
            }
        }
    }

    /// A DEL of an earlier sandbox, once more.
    fn clean_up(&mut self, pod: usize) {
        if self.pods[pod].old.is_empty() {
            return;
        }
        let index = self.chance.index(self.pods[pod].old.len());
        let id = self.pods[pod].old[index];
        if self.chance.one_in(5) {
            self.pods[pod].old.swap_remove(index);
        }
        self.begin_del(id);
    }

    /// A pod ends in one of the ways in which pods end.
    fn end_pod(&mut self, pod: usize) {
        let uid = self.pods[pod].uid.clone();
        self.pods[pod].is_doomed = true;
        match self.chance.below(6) {
            0 => self.delete_pod(pod),
            1 if self.pods[pod].life == Life::Active => {
                self.note(|| format!("pod {uid} has finished"));
                self.pods[pod].life = Life::Finished;
                self.excuse(pod, &uid);
            }
            2 => {
                self.delete_pod(pod);
                self.set_aside(pod);
            }
            _ => {
                if let Some(current) = self.pods[pod].current {
                    self.begin_del(current);
                    self.set_aside(pod);
                } else if self.pods[pod].life != Life::None {
                    self.delete_pod(pod);
                }
            }
        }
    }

    fn delete_pod(&mut self, pod: usize) {
        let uid = self.pods[pod].uid.clone();
        self.note(|| format!("pod {uid} is deleted"));
        self.pods[pod].life = Life::None;
        if self.plan.is_sticky() && self.chance.one_in(2) {
            self.pods[pod].rests = NAME_RESTS;
        }
        // A node that Kubernetes does not hear may keep the container running.
        let node = &mut self.nodes[self.pods[pod].node];
        if node.is_ready {
            self.excuse(pod, &uid);
        } else {
            node.unheard.push((pod, uid));
        }
    }

    /// The reconciler may free all that the pod's sandboxes hold. It frees nothing of an owner whose pod it does not
    /// know; but then nobody uses that either.
    pub(crate) fn excuse(&mut self, pod: usize, uid: &str) {
        for id in 0..self.truth.sandboxes.len() {
            if self.truth.sandboxes[id].pod == pod && self.truth.sandboxes[id].uid == uid {
                self.truth.end(id);
            }
        }
    }

    pub(crate) fn begin_add(&mut self, id: SandboxId) {
        let sandbox = &mut self.truth.sandboxes[id];
        sandbox.tries += 1;
        let pod = sandbox.pod;
        let gives_back = self.chance.one_in(2);
        self.begin_run(
            id,
            |start| Work::Add { sandbox: id, start },
            |world, begun| {
                let ask = world.ask(id, pod, &begun);
                begun.add(ask, gives_back)
            },
        );
        let process = self.processes_made;
        self.truth.sandboxes[id].adds.push(process);
        if self.plan.theme == Theme::Emptied
            && let Some(mark) = self.nodes[self.truth.sandboxes[id].node].mark().read()
        {
            self.known.insert(process, mark.seen.revision);
        }
    }

    /// A machine has rebooted, and its container gets the addresses of its old id, which is derived from a path.
    pub(crate) fn come_back(&mut self, node: usize) {
        for pod in 0..self.pods.len() {
            let slot = &self.pods[pod];
            let Some(current) = slot.current else { continue };
            if slot.node != node
                || slot.labelling != Labelling::None
                || slot.life != Life::Active
                || slot.is_doomed
            {
                continue;
            }
            let Sandbox { owner, uid, config, request, with_fixed, .. } = &self.truth.sandboxes[current];
            let asks = Asks { config: *config, request: *request, with_fixed: *with_fixed };
            let (owner, uid) = (owner.clone(), uid.clone());
            let id = self.truth.new_sandbox(owner, pod, uid, node, asks);
            self.pods[pod].current = Some(id);
        }
    }

    fn ask(&self, id: SandboxId, pod: usize, begun: &Begun) -> Ask {
        let sandbox = &self.truth.sandboxes[id];
        let config = &self.plan.configs[sandbox.config];
        let mut requests = vec![None; config.sets.len()];
        requests[0] = sandbox.request.map(metes_core::pool::Addr::from);
        let statics = config.fixed.iter().filter(|_| sandbox.with_fixed).cloned().collect();
        let Config { order, cooldown, .. } = *config;
        let sets = config.sets.clone();
        let wanted: Wanted = match config.is_pooled {
            true => pools::wanted(config, sandbox.request).into(),
            false => RangesWanted { sets, requests, statics, order, cooldown }.into(),
        };
        let stamp = RunStamp {
            start: begun.start.clone(),
            machine: begun.boot.identity.machine.clone(),
            created_at: String::new(),
        };
        let labels = self.labels(sandbox.config, pod);
        let sticky = self.sticky(sandbox.config, &labels.pod);
        let ask = Ask::new(sandbox.owner.clone(), labels, wanted, stamp).sticky(sticky);
        Ask { node_seed: sandbox.node as u64 * 7, ..ask }
    }

    /// The hold that a pod's addresses stay with, if its network says so.
    fn sticky(&self, config: usize, pod: &Pod) -> Option<Sticky> {
        let keep = self.plan.configs[config].keep.filter(|_| pod.uid.is_some())?;
        let sticky = Sticky::of_pod(checked(CLUSTER), pod, checked(IFNAME), Some(keep));
        Some(sticky.expect("the world's names keep the rules"))
    }

    pub(crate) fn labels(&self, config: usize, pod: usize) -> Labels {
        Labels { pod: self.pods[pod].labels(), cni_network: self.plan.configs[config].cni_network.clone() }
    }

    pub(crate) fn begin_del(&mut self, id: SandboxId) {
        let owner = self.truth.sandboxes[id].owner.clone();
        let uid = self.pods[self.truth.sandboxes[id].pod].labels().uid;
        self.begin_run(id, |start| Work::Del { sandbox: id, start }, |_, begun| begun.del(owner, uid));
        let start = match &self.processes.last().map(|process| process.work.clone()) {
            Some(Work::Del { start, .. }) => start.clone(),
            _ => return,
        };
        self.note_doubt(self.processes_made);
        let order = self.truth.order(Some(&start));
        let sandbox = &mut self.truth.sandboxes[id];
        sandbox.dels += 1;
        sandbox.deleted = order;
        sandbox.live = None;
    }

    fn begin_check(&mut self, id: SandboxId) {
        let sandbox = &self.truth.sandboxes[id];
        let Owner { container_id, ifname, .. } = sandbox.owner.clone();
        let live = sandbox.live.iter().flat_map(|live| &live.held);
        let config = CheckConfig {
            attachment: Attachment { container_id, ifname },
            pod_uid: self.pods[sandbox.pod].labels().uid,
            hold: None,
            sets: self.plan.configs[sandbox.config].sets.clone(),
            previous: live.map(|held| held.address).collect(),
        };
        self.begin_run(id, |start| Work::Check { sandbox: id, start }, |_, begun| begun.check(config));
    }

    pub(crate) fn begin_gc(&mut self, node: usize) {
        let config = self.chance.index(self.plan.configs.len());
        let cni_network = self.plan.configs[config].cni_network.clone();
        let grace_s = if self.is_healing { 0 } else { self.plan.grace_s };
        let boot = self.nodes[node].boot.clone();
        let start = self.start(node);
        let mut valid = HashSet::new();
        for index in 0..self.truth.sandboxes.len() {
            let sandbox = &self.truth.sandboxes[index];
            if sandbox.node != node {
                continue;
            }
            let listed = sandbox.live.is_some() || (!sandbox.adds.is_empty() && !self.chance.one_in(3));
            if listed {
                valid.insert(sandbox.owner.container_id.clone());
                continue;
            }
            if self.plan.configs[sandbox.config].cni_network != cni_network {
                continue;
            }
            for add in sandbox.adds.clone() {
                let born = match self.process(add).map(|process| &process.work) {
                    Some(Work::Add { start, .. }) => start.clone(),
                    _ => continue,
                };
                let is_past_grace =
                    born.boot != start.boot || born.ns.saturating_add(grace_s * 1_000_000_000) < start.ns;
                if is_past_grace {
                    self.truth.excused.insert(add);
                }
            }
        }
        let work = Work::Gc;
        self.begin(Some(node), work, |world, process| {
            let is_awaited = world.awaited();
            let begun = Begun { shared: world.shared.clone(), boot, process, start, is_awaited };
            begun.gc(cni_network, valid, grace_s)
        });
    }

    pub(crate) fn begin_drain(&mut self, node: usize) {
        let (boot, start) = (self.nodes[node].boot.clone(), self.start(node));
        self.begin(Some(node), Work::Drain, |world, process| {
            let is_awaited = world.awaited();
            Begun { shared: world.shared.clone(), boot, process, start, is_awaited }.drain()
        });
    }

    pub(crate) fn begin_pass(&mut self) {
        let grace = if self.is_healing { 0 } else { self.plan.orphan_grace_s };
        self.begin(None, Work::Pass, |world, id| {
            works::pass(world.shared.clone(), id, Duration::from_secs(grace))
        });
    }

    pub(crate) fn begin_repair(&mut self) {
        self.begin(None, Work::Repair, |world, id| works::repair(world.shared.clone(), id));
    }

    pub(crate) fn begin_accept(&mut self) {
        self.begin(None, Work::Accept, |world, id| works::accept(world.shared.clone(), id));
    }

    /// A restored store is adopted, pools of another plugin are taken over, or a reconciler wants to lead.
    fn begin_takeover(&mut self) {
        match self.chance.below(8) {
            0..3 => self.begin_adopt(),
            3..6 => self.begin_import(),
            _ => self.begin(None, Work::Lead, |world, id| works::lead(world.shared.clone(), id)),
        }
    }

    fn begin_import(&mut self) {
        let assignments = self.assignments_of_others(Under::Pause);
        let by_hand = self.chance.one_in(3);
        self.begin(None, Work::Import, |world, id| {
            works::import(world.shared.clone(), id, assignments, by_hand)
        });
    }

    /// Assignments for pods that nobody knows any more: of free addresses, or of addresses whose owner may be gone.
    fn assignments_of_others(&mut self, under: Under) -> Vec<Assignment> {
        let mut assignments = Vec::new();
        for _ in 0..self.chance.between(1, 3) {
            let config = self.chance.index(self.plan.configs.len());
            let Some(address) = self.some_address(config) else { continue };
            let set = &self.plan.configs[config].sets[0];
            let network = set.ranges()[0].network().clone();
            let held = vec![Held::new(address, Some(network.clone()))];
            let holder = self.tree.reservations.get(&(network, metes_core::pool::Addr::from(address)));
            let gone = holder.filter(|owner| !self.is_used(owner)).and_then(|owner| {
                let revision = self.tree.owners.get(owner)?.revision;
                Some(Gone { owner: owner.clone(), revision })
            });
            self.pods_made += 1;
            let uid: PodUid = checked(&format!("u-other-{}", self.pods_made));
            let node = self.chance.index(self.nodes.len());
            let node = self.nodes[node].boot.identity.node.clone();
            let pod = Pod { namespace: "ns".into(), name: "other".into(), uid: Some(uid.clone()) };
            assignments.push(Assignment {
                owner: Owner {
                    node,
                    container_id: ContainerId::adopted(&uid),
                    ifname: checked(IFNAME),
                    cluster: Some(checked(CLUSTER)),
                },
                held,
                scope: metes_core::keys::Scope::of(&self.plan.configs[config].sets, None),
                labels: Labels { pod, cni_network: self.plan.configs[config].cni_network.clone() },
                created_at: String::new(),
                sticky: None,
                under,
                gone: gone.into_iter().collect(),
            });
        }
        assignments
    }

    /// Assigns the addresses of living sandboxes to owners that stand for their pods, as `metes-reconciler adopt` does.
    fn begin_adopt(&mut self) {
        let mut assignments = match self.plan.theme {
            Theme::Adopted => self.assignments_of_others(Under::Suspect),
            _ => Vec::new(),
        };
        for sandbox in &self.truth.sandboxes {
            let Some(live) = &sandbox.live else { continue };
            if self.pods[sandbox.pod].labelling != Labelling::Whole {
                continue;
            }
            let scope = metes_core::keys::Scope::of(&self.plan.configs[sandbox.config].sets, None);
            let labels = self.labels(sandbox.config, sandbox.pod);
            let sticky = self.sticky(sandbox.config, &labels.pod);
            assignments.push(Assignment {
                gone: self.gone_holds(sticky.as_ref(), &live.held),
                sticky,
                owner: Owner {
                    container_id: ContainerId::adopted(&checked(&sandbox.uid)),
                    ..sandbox.owner.clone()
                },
                held: live.held.clone(),
                scope,
                labels,
                created_at: String::new(),
                under: Under::Suspect,
            });
        }
        self.begin(None, Work::Adopt, |world, id| works::adopt(world.shared.clone(), id, assignments));
    }

    /// The holds that are in the way of a pod that uses these addresses, and their users, if none of them may be used.
    fn gone_holds(&self, sticky: Option<&Sticky>, held: &[Held]) -> Vec<Gone> {
        let holders = held.iter().filter_map(|held| {
            let (network, address) = held.in_network()?;
            self.tree.reservations.get(&(network.clone(), address))
        });
        let own = sticky.map(|sticky| &sticky.hold);
        let holds = holders.chain(own).filter(|owner| owner.is_for_subject());
        let mut gone = Vec::new();
        for hold in holds {
            let uses = |owned: &Owned| owned.record.seat.as_ref().is_some_and(|seat| seat.hold == *hold);
            let users: Vec<_> = self.tree.owners.iter().filter(|(_, owned)| uses(owned)).collect();
            if users.iter().any(|(user, _)| self.is_used(user)) {
                continue;
            }
            let hold = self.tree.owners.get_key_value(hold);
            let judged =
                |(owner, owned): (&Owner, &Owned)| Gone { owner: owner.clone(), revision: owned.revision };
            gone.extend(users.into_iter().chain(hold).map(judged));
        }
        gone
    }

    fn awaited(&self) -> std::rc::Rc<std::cell::Cell<bool>> {
        std::rc::Rc::new(std::cell::Cell::new(true))
    }

    fn start(&mut self, node: usize) -> RunStart {
        let start = self.nodes[node].boot.start(&self.shared);
        let now = self.now();
        self.truth.note_start(&start, node, now);
        start
    }

    /// A run of the plugin for a sandbox, on its node.
    fn begin_run(
        &mut self,
        id: SandboxId,
        work: impl FnOnce(RunStart) -> Work,
        verb: impl FnOnce(&Self, Begun) -> Future_,
    ) {
        let node = self.truth.sandboxes[id].node;
        let start = self.start(node);
        let boot = self.nodes[node].boot.clone();
        let is_awaited = self.awaited();
        let work = work(start.clone());
        let owner = self.truth.sandboxes[id].owner.clone();
        self.note(|| format!("{} of {} at {}", work.name(), words(&owner), start.ns));
        let awaited = is_awaited.clone();
        self.begin(Some(node), work, |world, process| {
            verb(world, Begun { shared: world.shared.clone(), boot, process, start, is_awaited })
        });
        if let Some(process) = self.processes.last_mut() {
            process.is_awaited = awaited;
        }
    }

    pub(super) fn begin(
        &mut self,
        node: Option<usize>,
        work: Work,
        future: impl FnOnce(&Self, ProcessId) -> Future_,
    ) {
        self.result.operations += 1;
        *self.result.outcomes.entry(work.name()).or_default() += 1;
        self.processes_made += 1;
        let id = self.processes_made;
        let future = future(self, id);
        self.note(|| format!("#{id} is {}", work.name()));
        let mut process = Process::new(id, work, node, self.awaited(), future, &self.ready);
        process.is_of_healing = self.is_healing;
        if !self.is_healing {
            let (fates, chance) = (self.plan.fates, &self.chance);
            let steps = |chance: &crate::chance::Chance| chance.between(1, 24) as u32;
            process.crash_at = chance.happens(fates.crash).then(|| steps(chance));
            process.pause_at = chance.happens(fates.pause).then(|| {
                let millis = match chance.below(4) {
                    0 => chance.between(1, 500),
                    1 => chance.between(500, 5_000),
                    2 => chance.between(5_000, 35_000),
                    _ => chance.between(35_000, 120_000),
                };
                (steps(chance), Duration::from_millis(millis))
            });
            process.forsaken_at = chance.happens(fates.forsaken).then(|| steps(chance));
        }
        self.processes.push(process);
        self.ready.push(id);
    }

    /// Takes note of how a process has ended.
    pub(crate) fn heard(
        &mut self,
        id: ProcessId,
        work: &Work,
        is_awaited: bool,
        outcome: Outcome,
    ) -> Result<(), String> {
        let is_of_healing = self.process(id).is_some_and(|process| process.is_of_healing);
        match (work, outcome) {
            (Work::Add { sandbox, start }, Outcome::Added(Ok(added))) => {
                self.tally("ADD ok");
                self.judge_comer(id, *sandbox, None)?;
                self.heard_addresses(id, *sandbox, start, is_awaited, &added.held)
            }
            (Work::Add { sandbox, start }, Outcome::Added(Err(error))) => {
                self.tally(match error.code {
                    Code::NoFreeAddress => "ADD full",
                    Code::AddressNotAvailable => "ADD taken",
                    Code::TryAgain => "ADD again",
                    Code::StoredState => "ADD stored state",
                    Code::Refused => "ADD refused",
                    _ => "ADD other",
                });
                self.judge_comer(id, *sandbox, Some(&error))?;
                let is_full = matches!(
                    error.code,
                    Code::NoFreeAddress | Code::AddressNotAvailable | Code::InvalidConfig
                );
                if is_of_healing && !is_full {
                    return Err(format!("#{id}: an ADD failed though nothing was in its way: {error:?}"));
                }
                let is_spooled =
                    error.details.starts_with("a spooled DEL") || self.has_spooled(*sandbox, start);
                let owner = self.truth.sandboxes[*sandbox].owner.clone();
                // A record that was written again counts as another run's answer: it stays for the container's DEL.
                let stands_as_made = || {
                    let entry = self.model.entry(&self.shared.keys.owner(&owner));
                    entry.is_some_and(|entry| entry.create_revision == entry.mod_revision)
                };
                let holds = self
                    .tree
                    .owners
                    .get(&owner)
                    .is_some_and(|owned| owned.record.start.as_ref() == Some(start))
                    && stands_as_made()
                    && !self.truth.written_by_hand.contains(&owner);
                self.truth.failed(*sandbox, start, is_spooled, holds).map_err(|why| format!("#{id} {why}"))
            }
            (Work::Del { sandbox, start }, Outcome::Deleted(Ok(done))) => {
                self.tally(if done == Done::Freed { "DEL ok" } else { "DEL spooled" });
                self.heard_deleted(id, *sandbox, start, done)
            }
            (Work::Del { .. }, Outcome::Deleted(Err(error))) => {
                self.tally("DEL failed");
                Err(format!("#{id}: a DEL failed that could have been spooled: {error:?}"))
            }
            (Work::Check { sandbox, start }, Outcome::Checked(checked)) => {
                let order = self.truth.order(Some(start));
                let sandbox = &self.truth.sandboxes[*sandbox];
                match checked {
                    Err(error)
                        if error.code == Code::StoredState
                            && sandbox.live.is_some()
                            && sandbox.deleted < order
                            && !self.was_alone_with_wrong(start) =>
                    {
                        Err(format!("#{id}: CHECK of a sandbox that lives: {error:?}"))
                    }
                    _ => Ok(()),
                }
            }
            (Work::Gc, Outcome::Collected(Err(error))) if is_of_healing => {
                Err(format!("#{id}: GC failed though nothing was in its way: {error:?}"))
            }
            (Work::Pass, Outcome::Passed(Err(stop))) if is_of_healing && !self.plan.rogue => {
                Err(format!("#{id}: a pass failed though nothing was in its way: {stop}"))
            }
            (Work::Pass, Outcome::Passed(Err(PassError::Run(RunError::Bad(bad))))) => {
                Err(format!("#{id}: a pass: {bad}"))
            }
            (Work::Repair | Work::Accept | Work::Adopt, Outcome::Repaired(Err(failure))) if is_of_healing => {
                Err(format!("#{id}: {} failed though nothing was in its way: {failure}", work.name()))
            }
            (Work::Hold, Outcome::Held(is_held)) => {
                self.tally(if is_held { "hold ok" } else { "hold refused" });
                Ok(())
            }
            (Work::Drain, Outcome::Drained(left)) => {
                self.spool_left += left;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// True if a DEL is in the node's spool that frees the addresses that a run may have been given.
    fn has_spooled(&self, id: SandboxId, start: &RunStart) -> bool {
        let sandbox = &self.truth.sandboxes[id];
        let boot = &self.nodes[sandbox.node].boot;
        let kept = Spool::new(&boot.folder, &boot.identity).of(&sandbox.owner);
        let order = self.truth.order(Some(start));
        kept.iter().any(|kept| self.truth.order(Some(&kept.spooled.start)) >= order)
    }

    pub(crate) fn tally(&mut self, what: &'static str) {
        *self.result.outcomes.entry(what).or_default() += 1;
    }

    /// An ADD has answered: its addresses must be held, unless somebody may have freed them since.
    fn heard_addresses(
        &mut self,
        id: ProcessId,
        sandbox_id: SandboxId,
        start: &RunStart,
        is_awaited: bool,
        held: &[metes_core::pool::Held],
    ) -> Result<(), String> {
        let order = self.truth.order(Some(start));
        let sandbox = &self.truth.sandboxes[sandbox_id];
        if sandbox.is_over || sandbox.deleted > order || self.truth.excused.contains(&id) {
            return Ok(());
        }
        let name = words(&sandbox.owner);
        if self.tree.spoilt_owners.contains(&sandbox.owner) {
            return Ok(());
        }
        let owned = self.tree.owners.get(&sandbox.owner);
        if let Some(writer) = owned.and_then(|owned| self.truth.writer(&owned.record))
            && writer != sandbox.node
        {
            return Err(format!("#{id}: ADD of {name} answered with what another machine holds: {owned:?}"));
        }
        if owned.is_none_or(|owned| owned.record.addresses != held) {
            return Err(format!("#{id}: ADD of {name} answered {held:?}, and the store holds {owned:?}"));
        }
        if let Some(live) = &sandbox.live
            && live.held != held
        {
            return Err(format!("#{id}: ADD of {name} answered {held:?} after {:?}", live.held));
        }
        if is_awaited {
            let held = held.to_vec();
            let order = order.max(sandbox.live.as_ref().map_or(0, |live| live.order));
            self.truth.sandboxes[sandbox_id].live = Some(Live { held, order });
        }
        Ok(())
    }

    /// A DEL has answered: nothing that an earlier run has reserved may be held.
    fn heard_deleted(
        &mut self,
        id: ProcessId,
        sandbox_id: SandboxId,
        start: &RunStart,
        done: Done,
    ) -> Result<(), String> {
        let order = self.truth.order(Some(start));
        let sandbox = &self.truth.sandboxes[sandbox_id];
        let held = self.tree.owners.get(&sandbox.owner);
        if done == Done::Spooled {
            let sandbox = &mut self.truth.sandboxes[sandbox_id];
            sandbox.spooled = sandbox.spooled.max(order);
            return Ok(());
        }
        if self.forgets_to_spool(id) {
            return Err(format!(
                "#{id}: DEL of {} has answered in a store that its node knows otherwise",
                words(&sandbox.owner)
            ));
        }
        if self.truth.excused.contains(&id) {
            return Ok(());
        }
        let is_own = |record: &OwnerRecord| self.truth.writer(record).is_none_or(|node| node == sandbox.node);
        // The clock went back before that DEL, and has caught up before the DEL saw the record.
        let clock = self.nodes[sandbox.node].boot.start(&self.shared);
        let seems_younger = |record: &OwnerRecord| {
            let is_reached = |other: &&RunStart| other.ns > start.ns && !other.is_of_another_boot(&clock);
            record.start.as_ref().filter(is_reached).is_some_and(|other| other.boot == start.boot)
        };
        if let Some(held) = held
            && is_own(&held.record)
            && !seems_younger(&held.record)
            && self.emptied.is_none()
            && self.truth.order(held.record.start.as_ref()) < order
            && !self.tree.spoilt_owners.contains(&sandbox.owner)
            && !self.lacked_space(id)
        {
            return Err(format!(
                "#{id}: DEL of {} has answered, and it holds {held:?}",
                words(&sandbox.owner)
            ));
        }
        // The tombstones were deleted with the other keys.
        if self.emptied.is_some() {
            return Ok(());
        }
        // A DEL leaves no tombstone if there is no space.
        if !self.lacked_space(id) {
            let sandbox = &mut self.truth.sandboxes[sandbox_id];
            sandbox.freed = sandbox.freed.max(order);
        }
        Ok(())
    }
}
