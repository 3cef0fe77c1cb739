//! The end of a world: nothing fails any more. All processes finish. Every pod that wants an address gets one if there
//! is one. The leftovers are freed by the spools, by the runtimes' DELs, and by two passes of the reconciler.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use metes_audit::Audit;
use metes_core::pool::{ContainerKind, Owner, OwnerKind, PodUid};
use metes_core::txn::Entry;

use super::World;
use super::cluster::Life;
use super::ids::SandboxId;
use super::plan::Theme;
use super::tree::words;

/// More turns than any healing takes.
const TURNS: u64 = 200_000;
/// Longer than any request is on its way, and than any lease of a run lives.
const LONG: Duration = Duration::from_secs(3_600);
/// The most times that each node's spool is drained: a run carries out 16 frees, and a suspect store leaves hundreds.
const DRAINS: usize = 100;

impl World<'_> {
    pub(crate) async fn heal(&mut self) -> Result<(), String> {
        self.note(|| "heals".to_owned());
        self.is_healing = true;
        for process in &mut self.processes {
            process.paused = None;
        }
        for node in &self.nodes {
            // A forged mark would put the store under suspicion again.
            let _ = std::fs::remove_file(node.boot.folder.join("mark"));
        }
        self.open_pools()?;
        self.end_what_is_over()?;
        self.finish().await?;
        self.pass(LONG).await?;
        self.finish().await?;
        if self.plan.theme == Theme::Adopted {
            // An import that was killed leaves its pause.
            self.release_pause()?;
        }
        if matches!(
            self.plan.theme,
            Theme::First | Theme::Rogue | Theme::Twins | Theme::Emptied | Theme::Restored | Theme::Endpoints
        ) {
            return Ok(());
        }
        if self.tree.meta.as_ref().is_some_and(|meta| meta.suspect.is_some()) {
            self.begin_accept();
            self.finish().await?;
        }
        self.drain().await?;
        self.end_lasting_holds();
        self.finish().await?;
        if self.plan.is_sticky() {
            // The pods of these names are gone, and their containers still have the seats.
            for _ in 0..2 {
                self.begin_pass();
                self.finish().await?;
            }
        }
        self.serve().await?;
        self.clean().await?;
        self.judge_end()?;
        self.fill_up().await
    }

    /// Waits until all that is under way has ended.
    pub(super) async fn finish(&mut self) -> Result<(), String> {
        for _ in 0..TURNS {
            if self.is_quiet() {
                return Ok(());
            }
            self.turn().await?;
        }
        let left: Vec<_> = self.processes.iter().map(|process| (process.id, process.work.name())).collect();
        Err(format!("these do not end: {left:?}"))
    }

    /// Every node's spool is carried out.
    async fn drain(&mut self) -> Result<(), String> {
        for _ in 0..DRAINS {
            self.spool_left = 0;
            for node in 0..self.nodes.len() {
                self.begin_drain(node);
            }
            self.finish().await?;
            if self.spool_left == 0 {
                return self.judge_spooled();
            }
        }
        // Nobody has founded the store yet. What is spooled then waits for the first ADD, and nothing is held.
        if self.model.entry(&self.shared.keys.meta()).is_none() && self.tree.owners.is_empty() {
            return Ok(());
        }
        Err(format!("{} frees stay in the spool", self.spool_left))
    }

    /// No owner holds addresses that a spooled DEL should have freed, as a failed ADD has promised.
    fn judge_spooled(&self) -> Result<(), String> {
        for sandbox in &self.truth.sandboxes {
            let Some(owned) = self.tree.owners.get(&sandbox.owner) else { continue };
            let start = owned.record.start.as_ref();
            // A run that has answered with it has written the record again.
            let stored = self.model.entry(&self.shared.keys.owner(&sandbox.owner));
            let is_unanswered = stored.is_some_and(|record| record.create_revision == record.mod_revision);
            let is_given_back = start.is_some_and(|start| sandbox.given_back.contains(start));
            // The clock went back before that DEL, and has caught up since: now the record seems to be younger.
            let seems_younger = start.is_some_and(|start| self.truth.seems_younger(start, sandbox.spooled));
            let is_older = self.truth.order(start) <= sandbox.spooled && !seems_younger;
            if is_older || is_given_back && is_unanswered {
                return Err(format!("{} holds what a spooled DEL should have freed", words(&sandbox.owner)));
            }
        }
        Ok(())
    }

    /// Each pod that should run gets its address, and runtimes call DEL for the sandboxes that they know and that do
    /// not run.
    async fn serve(&mut self) -> Result<(), String> {
        for id in 0..self.truth.sandboxes.len() {
            if self.is_for_runtime(id) {
                self.begin_del(id);
            }
        }
        self.finish().await?;
        for pod in 0..self.pods.len() {
            let slot = &self.pods[pod];
            let runs = slot.current.is_some_and(|id| self.truth.sandboxes[id].live.is_some());
            if slot.life == Life::Active && !slot.is_doomed && !runs {
                self.replace(pod);
            }
        }
        self.finish().await?;
        for id in 0..self.truth.sandboxes.len() {
            if self.is_for_runtime(id) {
                self.begin_del(id);
            }
        }
        self.finish().await
    }

    /// True if a sandbox that does not run still holds something that no reconciler will free: its pod lives, or nobody
    /// knows its pod.
    fn is_for_runtime(&self, id: SandboxId) -> bool {
        let sandbox = &self.truth.sandboxes[id];
        let Some(owned) = self.tree.owners.get(&sandbox.owner) else { return false };
        let lives = |uid: &PodUid| self.pods.iter().any(|pod| pod.life == Life::Active && *uid == *pod.uid);
        sandbox.live.is_none()
            && (owned.record.labels.pod.uid.as_ref().is_none_or(|uid| lives(uid) || !uid.is_of_api())
                || self.tree.spoilt_owners.contains(&sandbox.owner))
    }

    /// Two passes and a repair.
    async fn clean(&mut self) -> Result<(), String> {
        for _ in 0..2 {
            self.begin_pass();
            self.finish().await?;
        }
        self.begin_repair();
        self.finish().await
    }

    /// The store holds exactly the addresses of running sandboxes, and the audit that people use finds nothing.
    fn judge_end(&self) -> Result<(), String> {
        let runs: BTreeMap<&Owner, &_> = self
            .truth
            .sandboxes
            .iter()
            .filter_map(|sandbox| Some((&sandbox.owner, sandbox.live.as_ref()?)))
            .collect();
        let held: BTreeSet<&Owner> = self.tree.owners.keys().filter(|owner| !self.may_stay(owner)).collect();
        let running: BTreeSet<&Owner> = runs.keys().copied().collect();
        if held != running {
            let named =
                |owners: Vec<&&Owner>| owners.into_iter().map(|owner| words(owner)).collect::<Vec<_>>();
            let (left, lost) =
                (named(held.difference(&running).collect()), named(running.difference(&held).collect()));
            return Err(format!("left over: {left:?}; lost: {lost:?}"));
        }
        self.audit()
    }

    /// True if it may stay without a sandbox that runs.
    fn may_stay(&self, owner: &Owner) -> bool {
        match owner.kind() {
            OwnerKind::Container(ContainerKind::Adopted) | OwnerKind::Subject(_) => true,
            OwnerKind::Container(ContainerKind::Runtime | ContainerKind::Imported | ContainerKind::Claim)
            | OwnerKind::Aside(..)
            | OwnerKind::Unknown => false,
        }
    }

    fn audit(&self) -> Result<(), String> {
        let entries: Vec<Entry> = self
            .model
            .entries()
            .map(|(key, record)| Entry {
                key: key.to_vec(),
                value: record.value.to_vec(),
                create_revision: record.create_revision,
                mod_revision: record.mod_revision,
                lease: record.lease,
            })
            .collect();
        let report = Audit::new(&self.shared.keys).judge(entries.iter());
        let found: Vec<String> = report
            .violations
            .iter()
            .chain(&report.harmless)
            .filter(|finding| finding.kind != metes_audit::Kind::OwnerWithoutPodIndex)
            .map(ToString::to_string)
            .collect();
        if found.is_empty() && report.stray_bits.is_empty() {
            return Ok(());
        }
        Err(format!("the audit finds {found:?} and stray bits {:?}", report.stray_bits))
    }

    /// One more pod of each kind gets an address exactly if there is a free one.
    async fn fill_up(&mut self) -> Result<(), String> {
        for config in 0..self.plan.configs.len() {
            let has_room = self.plan.configs[config].sets.iter().all(|set| {
                let free = |address: u128, network: &metes_core::pool::NetworkName| {
                    !self.tree.reservations.contains_key(&(network.clone(), metes_core::pool::Addr(address)))
                };
                set.ranges().iter().any(|range| {
                    range
                        .spans()
                        .iter()
                        .any(|span| (span.first.0..=span.last.0).any(|a| free(a, range.network())))
                })
            });
            let id = self.add_one(config);
            self.finish().await?;
            let is_served = self.truth.sandboxes[id].live.is_some();
            if is_served != has_room {
                return Err(format!("room in configuration {config}: {has_room}, served: {is_served}"));
            }
        }
        Ok(())
    }
}
