//! The faults beside single requests and processes: leaders change, space runs out, nodes reboot, hosts are suspended,
//! and people give orders to the store or write to it with other tools.

use std::time::Duration;

use metes_core::keys::{Key, LeaseId, PodInterface};
use metes_core::known::HighWater;
use metes_core::limits;
use metes_core::pool::{
    Addr, Bits, Labels, Meta, NetworkName, Owner, OwnerRecord, Page, PodIndex, Record, RunStart, Tombstone,
    VERSION,
};
use metes_core::txn::{Compare, Op, Txn};
use metes_node::mark::MarkFile;
use metes_node::spool::Spool;

use super::plan::{LONG_LEASE, Theme, Twins};
use super::requests::Step;
use super::tree::Place;
use super::works::Boot;
use super::{World, checked};
use crate::mutant::Guard;
use crate::store::with_nested;

/// Something that happens beside the processes.
type Event<'w> = fn(&mut World<'w>) -> Result<(), String>;

impl<'w> World<'w> {
    /// Lets something go wrong, as chance decides.
    pub(crate) fn happen(&mut self) -> Result<(), String> {
        let events = self.plan.events;
        let all: [(u32, Event<'w>); 18] = [
            (events.new_leader, Self::new_leader),
            (events.compaction, Self::compact),
            (events.space, Self::lose_space),
            (events.reboot, Self::reboot),
            (events.clock_back, Self::turn_clock_back),
            (events.suspend, Self::suspend),
            (events.node_lost, Self::lose_node),
            (events.pause, Self::pause),
            (events.mark, Self::forge_mark),
            (events.newer, Self::raise_min_writer),
            (events.hand, Self::lend_a_hand),
            (events.long_leases, Self::lengthen_leases),
            (events.copy, Self::copy_files),
            (events.image, Self::begin_from_image),
            (events.strangers, Self::come_from_elsewhere),
            (events.emptied, Self::empty),
            (events.pool, Self::edit_pools),
            (events.restored, Self::snapshot_or_restore),
        ];
        let sum: u32 = all.iter().map(|(parts, _)| parts).sum();
        if !self.chance.happens(sum) {
            return Ok(());
        }
        let mut at = self.chance.below(u64::from(sum)) as u32;
        for (parts, event) in all {
            if at < parts {
                return event(self);
            }
            at -= parts;
        }
        Ok(())
    }

    fn new_leader(&mut self) -> Result<(), String> {
        self.count("new leader");
        self.note(|| "etcd has a new leader".to_owned());
        self.model.promote_leader();
        self.truth.leases_prolonged = true;
        Ok(())
    }

    /// Lets etcd grant leases, for some time, that live longer than a tombstone.
    pub(crate) fn lengthen_leases(&mut self) -> Result<(), String> {
        if self.long_leases_until.is_none() {
            self.count("long leases");
            self.note(|| format!("etcd grants no lease below {LONG_LEASE:?}"));
            self.model.grant_at_least(LONG_LEASE);
            self.long_leases_until = Some(self.after(1_000, 30_000));
        }
        Ok(())
    }

    fn compact(&mut self) -> Result<(), String> {
        self.count("compaction");
        let revision = self.model.revision() - self.chance.below(3) as i64;
        self.note(|| format!("compacted to {revision}"));
        self.model.compact(revision);
        Ok(())
    }

    fn lose_space(&mut self) -> Result<(), String> {
        if self.full_until.is_some() {
            return Ok(());
        }
        self.count("no space");
        self.note(|| "etcd is out of space".to_owned());
        match self.chance.one_in(2) {
            true => self.model.set_space_noticed_late(),
            false => self.model.set_space(true),
        }
        self.full_until = Some(self.after(10, 20_000));
        Ok(())
    }

    fn reboot(&mut self) -> Result<(), String> {
        self.count("reboot");
        let node = self.chance.index(self.nodes.len());
        self.boot_anew(node);
        if self.chance.one_in(3) {
            self.forget_store(node);
        }
        if self.plan.twins != Twins::None {
            self.come_back(node);
        }
        Ok(())
    }

    /// A virtual machine is put back to a snapshot of its memory and its disk: boot id and clock go back with it, and
    /// so do its processes and what they have spooled since. Its containers run on.
    fn turn_clock_back(&mut self) -> Result<(), String> {
        let node = self.chance.index(self.nodes.len());
        let now = self.now();
        let since = &mut self.nodes[node].boot.since;
        let by = Duration::from_millis(self.chance.between(0, (now - *since).as_millis() as u64));
        *since += by;
        self.count("clock went back");
        self.tree.clock_went_back = true;
        self.note(|| format!("the clock of node {node} goes back by {by:?}"));
        self.end_processes(node);
        let boot = &self.nodes[node].boot;
        let (spool, clock) = (Spool::new(&boot.folder, &boot.identity), boot.start(&self.shared));
        let since = spool.some(usize::MAX, 0).into_iter();
        let since = since.filter(|kept| {
            let start = &kept.spooled.start;
            start.boot == clock.boot && start.is_of_another_boot(&clock)
        });
        for kept in since.collect::<Vec<_>>() {
            spool.forget(&kept);
            for sandbox in self.truth.sandboxes.iter_mut().filter(|s| s.owner == kept.spooled.owner) {
                sandbox.spooled = 0;
                sandbox.given_back.clear();
            }
        }
        Ok(())
    }

    pub(crate) fn end_processes(&mut self, node: usize) {
        while let Some(index) = self.processes.iter().position(|process| process.node == Some(node)) {
            self.kill(index, "dies with its node");
        }
    }

    /// All that runs on the node ends.
    fn boot_anew(&mut self, node: usize) {
        self.note(|| format!("node {node} comes up anew"));
        self.end_processes(node);
        let now = self.now();
        self.nodes[node].reboot(now);
        for id in 0..self.truth.sandboxes.len() {
            if self.truth.sandboxes[id].node == node {
                self.truth.end(id);
            }
        }
    }

    /// The node's mark is lost.
    pub(crate) fn forget_store(&self, node: usize) {
        let _ = std::fs::remove_file(self.nodes[node].boot.folder.join("mark"));
    }

    /// A machine is made from the disk of its twin.
    fn copy_files(&mut self) -> Result<(), String> {
        self.count("copied files");
        if self.plan.twins == Twins::OfOneMachine {
            return self.copy_disk();
        }
        let (from, to) = self.some_twins();
        self.note(|| format!("node {to} gets what node {from} has spooled"));
        let [source, target] =
            [from, to].map(|node| Spool::new(&self.nodes[node].boot.folder, &self.nodes[node].boot.identity));
        for kept in source.some(usize::MAX, 0) {
            target.keep(&kept.spooled).map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    /// A machine is made from an image of its twin, and gets another name. The twin has run an ADD since the image: one
    /// that has not is not told from a machine that was renamed.
    fn copy_disk(&mut self) -> Result<(), String> {
        let Some(image) = self.image.take() else {
            let (from, _) = self.some_twins();
            self.image = self.nodes[from].image();
            return Ok(());
        };
        let lives_on = self.model.entry(&image.key).is_some_and(|entry| entry.mod_revision > image.revision);
        if !lives_on {
            self.image = Some(image);
            return Ok(());
        }
        let to = image.of ^ 1;
        self.note(|| format!("node {to} is made from an image of node {}", image.of));
        self.boot_anew(to);
        // As young as the key of the one that lives on: then nothing tells the clone from it.
        let fresh = if self.is_left_out(Guard::FORMER_NAME) { self.nodes[image.of].image() } else { None };
        let image = fresh.unwrap_or(image);
        image.install(&self.nodes[to].boot.folder).map_err(|e| e.to_string())
    }

    fn some_twins(&self) -> (usize, usize) {
        let from = self.chance.index(self.nodes.len());
        (from, from ^ 1)
    }

    /// A node's mark is that of a machine whose disk it was made from, in another cluster.
    fn begin_from_image(&mut self) -> Result<(), String> {
        self.count("mark of an image");
        let (_, node) = self.some_twins();
        if self.is_strange(node) {
            return Ok(());
        }
        let Boot { identity, folder, .. } = &self.nodes[node].boot;
        let mut of_image = identity.clone();
        if !self.is_left_out(Guard::MARK_MACHINE) {
            of_image.machine = "image".to_owned();
        }
        let seen = HighWater {
            store: "image".to_owned(),
            epoch: 1,
            revision: 1,
            key: None,
            etcd: 0,
            elsewhere: false,
        };
        MarkFile::new(folder, &of_image, &[]).make(seen);
        self.note(|| format!("node {node} has a mark of another machine"));
        Ok(())
    }

    /// Deletes all that the store holds. Addresses in use may be given to others from then on. One node knows nothing
    /// of that, and may found the store anew.
    fn empty(&mut self) -> Result<(), String> {
        self.count("emptied");
        let founder = self.chance.index(self.nodes.len());
        self.boot_anew(founder);
        self.forget_store(founder);
        self.note(|| "all keys are deleted".to_owned());
        for id in 0..self.truth.sandboxes.len() {
            self.truth.end(id);
            // Tombstones are deleted too.
            self.truth.sandboxes[id].freed = 0;
            // So a ticket that comes late is served. The reconciler frees what its run does not know of.
            self.truth.sandboxes[id].failed.clear();
        }
        let owners: Vec<Owner> = self.tree.owners.keys().cloned().collect();
        owners.iter().for_each(|owner| self.tree.spoil(owner));
        let keys: Vec<Vec<u8>> = self.model.entries().map(|(key, _)| key.to_vec()).collect();
        self.by_hand(keys.into_iter().map(Op::Delete).collect())?;
        self.emptied = Some(self.model.revision());
        Ok(())
    }

    /// True if this guard, which tells machines, clusters or stores apart, is left out.
    pub(crate) fn is_left_out(&self, guard: Guard) -> bool {
        self.setup.mutant.is_some_and(|mutant| mutant.0 == guard)
    }

    /// All hosts are suspended, and etcd is not: deadlines stand still, leases do not.
    pub(crate) fn suspend(&mut self) -> Result<(), String> {
        self.count("suspended");
        let by = Duration::from_millis(self.chance.between(1_000, 150_000));
        self.note(|| format!("all hosts are suspended for {by:?}"));
        self.shared.suspended.set(self.shared.suspended.get() + by);
        self.time_has_passed()
    }

    fn lose_node(&mut self) -> Result<(), String> {
        let node = self.chance.index(self.nodes.len());
        if self.nodes[node].is_ready {
            self.count("node not ready");
            self.note(|| format!("node {node} is not heard of"));
            self.nodes[node].is_ready = false;
            self.nodes[node].lost_until = Some(self.after(10, 60_000));
        }
        Ok(())
    }

    pub(crate) fn pause(&mut self) -> Result<(), String> {
        if self.hold_until.is_some() {
            return Ok(());
        }
        self.count("paused");
        self.hold_until = Some(self.after(10, 10_000));
        self.change_meta(|meta| meta.paused = Some("a migration".to_owned()))
    }

    /// A person takes the store into service: ADD hands out addresses again.
    pub(crate) fn take_into_service(&mut self) -> Result<(), String> {
        self.change_meta(|meta| {
            meta.paused = None;
            meta.epoch += u64::from(meta.suspect.take().is_some());
        })
    }

    /// A person ends the pause that a migration has left.
    pub(crate) fn release_pause(&mut self) -> Result<(), String> {
        self.change_meta(|meta| meta.paused = None)
    }

    fn raise_min_writer(&mut self) -> Result<(), String> {
        if self.newer_until.is_some() {
            return Ok(());
        }
        self.count("newer");
        self.newer_until = Some(self.after(10, 5_000));
        self.change_meta(|meta| meta.min_writer = VERSION + 1)
    }

    /// A node's mark says that the node has seen a later revision than the store has.
    fn forge_mark(&mut self) -> Result<(), String> {
        self.count("forged mark");
        let node = self.chance.index(self.nodes.len());
        let file = self.nodes[node].mark();
        let (store, epoch) =
            self.tree.meta.as_ref().map_or((String::new(), 1), |meta| (meta.id.clone(), meta.epoch));
        let revision = self.model.revision() + 1000;
        self.note(|| format!("node {node} has seen revision {revision} of epoch {epoch}"));
        file.make(HighWater { store, epoch, revision, key: None, etcd: 0, elsewhere: false });
        Ok(())
    }

    fn after(&self, least_ms: u64, most_ms: u64) -> Duration {
        self.now() + Duration::from_millis(self.chance.between(least_ms, most_ms))
    }

    /// The times at which something will be over.
    pub(crate) fn ends(&self) -> impl Iterator<Item = Duration> {
        let nodes = self.nodes.iter().filter_map(|node| node.lost_until);
        [self.hold_until, self.newer_until, self.full_until, self.long_leases_until]
            .into_iter()
            .flatten()
            .chain(nodes)
    }

    /// Ends the events that have lasted long enough.
    pub(crate) fn end_what_is_over(&mut self) -> Result<(), String> {
        let now = self.now();
        let is_healing = self.is_healing;
        let is_over =
            |until: &mut Option<Duration>| until.take_if(|until| *until <= now || is_healing).is_some();
        if is_over(&mut self.full_until) {
            self.note(|| "etcd has space again".to_owned());
            self.model.set_space(false);
        }
        if is_over(&mut self.long_leases_until) {
            self.model.grant_at_least(Duration::ZERO);
        }
        if is_over(&mut self.hold_until) {
            self.change_meta(|meta| meta.paused = None)?;
        }
        if is_over(&mut self.newer_until) {
            self.change_meta(|meta| meta.min_writer = VERSION)?;
        }
        for node in 0..self.nodes.len() {
            if is_over(&mut self.nodes[node].lost_until) {
                self.note(|| format!("node {node} is heard of again"));
                self.nodes[node].is_ready = true;
                for (pod, uid) in std::mem::take(&mut self.nodes[node].unheard) {
                    self.excuse(pod, &uid);
                }
            }
        }
        Ok(())
    }

    fn change_meta(&mut self, change: impl FnOnce(&mut Meta)) -> Result<(), String> {
        let Some(mut meta) = self.tree.meta.clone() else { return Ok(()) };
        change(&mut meta);
        self.note(|| format!("a person changes meta to {meta:?}"));
        self.by_hand(vec![Op::Put(self.shared.keys.meta(), meta.encode(), None)])
    }

    /// Somebody writes to etcd with other tools.
    pub(crate) fn by_hand(&mut self, ops: Vec<Op>) -> Result<(), String> {
        self.note(|| format!("by hand: {:?}", ops.iter().map(key_of).collect::<Vec<_>>()));
        if self.full_until.take().is_some() {
            // A person who writes with other tools makes room first.
            self.model.set_space(false);
        }
        let owner = |op: &Op| match op {
            Op::Put(key, ..) => match self.shared.keys.parse(key) {
                Ok(Key::Owner(owner)) => Some(owner),
                _ => None,
            },
            _ => None,
        };
        let owners: Vec<Owner> = ops.iter().filter_map(owner).collect();
        self.truth.written_by_hand.extend(owners);
        self.is_by_hand = true;
        self.tree.is_by_hand = true;
        for ops in ops.chunks(limits::TXN_OPS) {
            let done = self.model.txn(&Txn { step: "by hand", then: ops.to_vec(), ..Txn::default() });
            debug_assert!(done.is_ok(), "{done:?}");
        }
        let followed = self.follow();
        self.is_by_hand = false;
        self.tree.is_by_hand = false;
        followed
    }

    fn lend_a_hand(&mut self) -> Result<(), String> {
        self.count("foreign hand");
        match self.plan.theme {
            Theme::Full if self.chance.one_in(6) => self.fill_pages(),
            Theme::First => match self.aim().iter().any(|compare| matches!(compare, Compare::Empty(_))) {
                true => self.write_before_meta(),
                false => Ok(()),
            },
            Theme::Meta => {
                let meta = self.shared.keys.meta();
                if !self.aim().iter().any(|compare| *compare.key() == meta) {
                    return Ok(());
                }
                if self.chance.one_in(2) { self.pause() } else { self.raise_min_writer() }
            }
            _ if self.tree.meta.is_none() => Ok(()),
            _ if self.plan.theme != Theme::Hand || self.chance.one_in(2) => {
                let compares = self.aim();
                match compares.is_empty() {
                    true => Ok(()),
                    false => self.touch(&compares[self.chance.index(compares.len())]),
                }
            }
            _ => match self.chance.below(6) {
                0 | 1 => self.clear_bit(),
                2 => self.set_stray_bit(),
                3 => self.drop_reservation(),
                4 => self.drop_index(),
                _ => self.stay_dead(),
            },
        }
    }

    fn some_place(&self) -> Option<Place> {
        let tickets = &self.tree.reservations;
        let at = if tickets.is_empty() { return None } else { self.chance.index(tickets.len()) };
        tickets.keys().nth(at).cloned()
    }

    fn clear_bit(&mut self) -> Result<(), String> {
        let Some((network, address)) = self.some_place() else { return Ok(()) };
        let mut bits = self.tree.bits(&network, address.page());
        if bits.is_full() {
            return Ok(());
        }
        bits.clear(address.bit());
        self.tree.spoilt_bits.insert((network.clone(), address));
        self.tree.cleared_by_hand.insert((network.clone(), address));
        self.put_page(&network, address.page(), &bits)
    }

    fn put_page(&mut self, network: &NetworkName, page: Page, bits: &Bits) -> Result<(), String> {
        self.by_hand(vec![Op::Put(self.shared.keys.page(network, page), bits.to_bytes(), None)])
    }

    fn set_stray_bit(&mut self) -> Result<(), String> {
        let config = self.chance.index(self.plan.configs.len());
        let range = &self.plan.configs[config].sets[0].ranges()[0];
        let size = (range.last().0 - range.first().0 + 1) as u64;
        let (network, address) =
            (range.network().clone(), Addr(range.first().0 + u128::from(self.chance.below(size))));
        let mut bits = self.tree.bits(&network, address.page());
        bits.set(address.bit());
        self.put_page(&network, address.page(), &bits)
    }

    /// Deletes a reservation, with or without its bit; the owner's record lists an address that it does not hold any
    /// more.
    fn drop_reservation(&mut self) -> Result<(), String> {
        let Some(place) = self.some_place() else { return Ok(()) };
        let (network, address) = place.clone();
        let Some(owner) = self.tree.reservations.get(&place).cloned() else { return Ok(()) };
        let mut bits = self.tree.bits(&network, address.page());
        if bits.is_full() {
            return Ok(());
        }
        if self.chance.below(2) == 0 {
            bits.clear(address.bit());
        }
        if let Some(id) = self.truth.sandbox_of(&owner) {
            self.truth.end(id);
        }
        self.tree.cleared_by_hand.insert(place);
        self.tree.spoil(&owner);
        let keys = &self.shared.keys;
        let ops = vec![
            Op::Put(keys.page(&network, address.page()), bits.to_bytes(), None),
            Op::Delete(keys.ip(&network, address)),
        ];
        self.by_hand(ops)
    }

    fn drop_index(&mut self) -> Result<(), String> {
        let Some(PodInterface { cluster, uid, ifname, network }) = self.tree.index.keys().min() else {
            return Ok(());
        };
        let key = self.shared.keys.pod(cluster.as_ref(), uid, ifname, network);
        self.by_hand(vec![Op::Delete(key)])
    }

    /// A tombstone without a lease, as one that was restored from a dump of the keys.
    fn stay_dead(&mut self) -> Result<(), String> {
        if self.truth.sandboxes.is_empty() {
            return Ok(());
        }
        let newest = self.truth.sandboxes.len().saturating_sub(8);
        let id = newest + self.chance.index(self.truth.sandboxes.len() - newest);
        let sandbox = &self.truth.sandboxes[id];
        let key = self.shared.keys.tombstone(&sandbox.owner);
        if self.model.entry(&key).is_some() {
            return Ok(());
        }
        let start = RunStart { boot: self.nodes[sandbox.node].boot.id.clone(), ns: 0 };
        self.by_hand(vec![Op::Put(key, Tombstone::new(start).encode(), None)])
    }

    /// One key of a tree without its meta, as if somebody restored it key by key.
    fn write_before_meta(&mut self) -> Result<(), String> {
        if self.tree.meta.is_some() || self.tree.has_allocations() {
            return Ok(());
        }
        let (node, container_id, ifname) = (checked("n9"), checked("restored"), checked("net1"));
        let owner = Owner { node, container_id, ifname, cluster: None };
        self.tree.spoil(&owner);
        let keys = &self.shared.keys;
        let network = NetworkName::configured("restored").unwrap_or_default();
        let op = match self.chance.below(3) {
            0 => Op::Put(keys.page(&network, Page(7)), Bits::empty().to_bytes(), None),
            1 => {
                let record = OwnerRecord::new(Vec::new(), None, "-".to_owned(), Labels::default());
                Op::Put(keys.owner(&owner), record.encode(), None)
            }
            _ => {
                let key = keys.pod(None, &checked("u-restored"), &owner.ifname, &network);
                Op::Put(key, PodIndex::new(&owner).encode(), None)
            }
        };
        self.by_hand(vec![op])
    }

    /// The compares of some transaction that is on its way.
    fn aim(&self) -> Vec<Compare> {
        let on_its_way: Vec<&Txn> =
            self.steps.iter().filter_map(Step::transaction).flat_map(with_nested).collect();
        if on_its_way.is_empty() {
            return Vec::new();
        }
        on_its_way[self.chance.index(on_its_way.len())].compares.clone()
    }

    /// Writes once more, unchanged, a key on which a transaction relies that is on its way; or removes the ticket of
    /// the run that has sent it.
    pub(crate) fn touch(&mut self, compare: &Compare) -> Result<(), String> {
        let op = match compare {
            Compare::Create(key, 1..) => Op::Delete(key.clone()),
            Compare::Mod(key, 1..) => {
                let Some(record) = self.model.entry(key) else { return Ok(()) };
                let lease = Some(LeaseId(record.lease)).filter(|lease| lease.0 != 0);
                Op::Put(key.clone(), record.value.to_vec(), lease)
            }
            _ => return Ok(()),
        };
        self.by_hand(vec![op])
    }

    /// Sets every bit of the ranges' pages, except for addresses that they may hand out.
    pub(crate) fn fill_pages(&mut self) -> Result<(), String> {
        let mut pages: Vec<(NetworkName, Page)> = Vec::new();
        let ranges = self.plan.configs.iter().flat_map(|config| &config.sets).flat_map(|set| set.ranges());
        let ranges: Vec<_> = ranges.cloned().collect();
        for range in &ranges {
            pages.push((range.network().clone(), range.first().page()));
            pages.push((range.network().clone(), range.last().page()));
        }
        pages.sort();
        pages.dedup();
        for (network, page) in pages {
            let mut bits = Bits::full();
            let now = self.tree.bits(&network, page);
            for range in ranges.iter().filter(|range| *range.network() == network) {
                for address in range.first().0..=range.last().0 {
                    let address = Addr(address);
                    if address.page() == page && !now.get(address.bit()) {
                        bits.clear(address.bit());
                    }
                }
            }
            self.put_page(&network, page, &bits)?;
        }
        if self.tree.meta.is_none() {
            return self.by_hand(vec![Op::Put(
                self.shared.keys.meta(),
                Meta::first("s".into()).encode(),
                None,
            )]);
        }
        Ok(())
    }
}

fn key_of(op: &Op) -> String {
    match op {
        Op::Put(key, ..) | Op::Delete(key) => String::from_utf8_lossy(key).into_owned(),
        _ => String::new(),
    }
}
