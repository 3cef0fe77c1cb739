//! Strikes at a guard: while a transaction that carries the guard (or would carry it, if it were not left out) is on
//! its way, the very thing happens that it guards against. By chance alone, some of these would happen too rarely.

use std::net::IpAddr;

use metes_core::keys::Key;
use metes_core::pool::bitmap::Bits;
use metes_core::pool::{
    Addr, ContainerId, Cooling, Held, HoldNote, Labels, Meta, NetworkName, Owner, OwnerRecord, Pod, Record,
    Reservation, RunStart, SeatRecord, Tombstone,
};
use metes_core::txn::{Compare, Op, Txn};

use super::process::{Process, Work};
use super::requests::Step;
use super::wire::{Ask, Sent};
use super::{CLUSTER, World, checked};
use crate::mutant::{Guard, Kind};
use crate::store::with_nested;

fn is_commit_of_add(txn: &Txn) -> bool {
    matches!(txn.step, "commit" | "commit-first")
}

impl World<'_> {
    /// True if a request that is sent should come late: after the lease that it relies on.
    pub(crate) fn strikes_with_delay(&self, sent: &Sent) -> bool {
        let Some(guard) = self.setup.target else { return false };
        let Ask::Txn(txn) = &sent.ask else { return false };
        if guard == Guard::LONG_FENCE {
            return is_commit_of_add(txn) && self.chance.one_in(2);
        }
        matches!(guard.kind, Kind::Lease | Kind::Create)
            && Guard::all_of(txn, &self.shared.keys).any(|found| found == guard)
            && self.chance.one_in(2)
    }

    /// True if an answer should come slowly: that of an ADD, so that its DEL overtakes it and relies on its tombstone;
    /// or that of a DEL which leaves the queue for want of time.
    pub(crate) fn strikes_with_pause(&self, work: &Work) -> bool {
        let Some(Guard { step, kind: Kind::Put, class: "tombstone" }) = self.setup.target else {
            return false;
        };
        let is_meant = match work {
            Work::Add { .. } => true,
            Work::Del { .. } => step == "free-quick",
            _ => false,
        };
        is_meant && !self.is_healing && self.chance.one_in(4)
    }

    /// Changes a key that a transaction on its way relies on, as chance decides.
    pub(crate) fn strike(&mut self) -> Result<(), String> {
        let Some(guard) = self.setup.target else { return Ok(()) };
        if guard == Guard::LONG_FENCE {
            return self.outlast_fence();
        }
        self.hurry_what_is_settled(guard);
        let relied_on = self.relied_on(guard);
        // A first commit is seldom, and short on its way.
        if relied_on.is_empty() || guard.step != "commit-first" && !self.chance.one_in(3) {
            return Ok(());
        }
        self.count("strike");
        match relied_on[self.chance.index(relied_on.len())].clone() {
            Compare::Mod(..) if guard.class == "pool" => self.close_pools(),
            Compare::Mod(..) if guard.class == "pools" => self.outrank(),
            Compare::Mod(..) | Compare::Value(..) if guard.class == "meta" && guard.step == "assign" => {
                self.take_into_service()
            }
            Compare::Value(..) => self.pause(),
            Compare::Mod(_, 0) if guard.class == "meta" => self.found_by_hand(),
            Compare::Mod(..) if guard.class == "meta" && self.chance.one_in(2) => self.pause(),
            Compare::NotOlder(key, _) => self.forget_by_hand(&key),
            Compare::Older(key, _) if guard.class == "tombstone" => self.bury_by_hand(&key),
            Compare::Older(key, revision) => self.renew_by_hand(&key, revision),
            Compare::Mod(key, 0) | Compare::Create(key, 0) if guard.class == "tombstone" => {
                self.bury_by_hand(&key)
            }
            Compare::Mod(key, _) if matches!(guard.step, "repair" | "clear") && guard.class == "ip" => {
                self.free_by_hand(&key)
            }
            Compare::Mod(key, 0) | Compare::Create(key, 0) if guard.class == "subject" => {
                self.hold_by_hand(&key)
            }
            Compare::Create(key, 0) if guard.class == "hold" => self.prolong_by_hand(&key),
            Compare::Create(key, 0) if guard.class == "cooling" => self.cool_by_hand(&key),
            Compare::Mod(key, _) if guard.class == "orphan" => self.use_by_hand(&key),
            Compare::Mod(key, 0) | Compare::Create(key, 0) if guard.class == "seat" => self.sit_by_hand(&key),
            Compare::Create(key, 0) => self.reserve_by_hand(&key),
            compare => self.touch(&compare),
        }
    }

    /// Lets a request that must not take effect any more arrive before its process has tried again.
    fn hurry_what_is_settled(&mut self, guard: Guard) {
        let keys = &self.shared.keys;
        let carries = |txn: &Txn| Guard::all_of(txn, keys).any(|found| found == guard);
        let is_meant = |step: &Step| step.is_settled() && step.transaction().is_some_and(carries);
        if let Some(at) = self.held.iter().position(|(_, step)| is_meant(step)) {
            let (_, step) = self.held.swap_remove(at);
            self.steps.push(step);
        }
    }

    /// Lets etcd grant leases that are too long, ends a run whose commit is on its way, so that nobody settles it,
    /// and lets time pass until nothing but its fence keeps that commit from taking effect.
    fn outlast_fence(&mut self) -> Result<(), String> {
        if self.chance.one_in(8) {
            self.lengthen_leases()?;
        }
        let is_commit = |step: &Step| !step.is_settled() && step.transaction().is_some_and(is_commit_of_add);
        let late = self.held.iter().filter(|(_, step)| is_commit(step));
        let senders: Vec<_> = late.filter_map(|(_, step)| step.sender()).collect();
        let is_sender = |process: &Process| senders.contains(&process.id);
        match self.processes.iter().position(is_sender) {
            _ if senders.is_empty() || !self.chance.one_in(4) => Ok(()),
            Some(index) => {
                self.count("strike");
                self.kill(index, "dies before it settles");
                Ok(())
            }
            None => self.suspend(),
        }
    }

    /// The keys that the guard looks at in transactions that are on their way.
    fn relied_on(&self, guard: Guard) -> Vec<Compare> {
        let keys = &self.shared.keys;
        let held = self.held.iter().map(|(_, step)| step);
        let on_its_way = self.steps.iter().chain(held).filter_map(Step::transaction);
        let guarded = |txn: &Txn| {
            let compares = with_nested(txn).into_iter().flat_map(|txn| {
                let is_it = |compare: &&Compare| Guard::of_compare(txn.step, compare, keys) == guard;
                txn.compares.iter().filter(is_it)
            });
            compares.cloned().collect::<Vec<_>>()
        };
        on_its_way.flat_map(guarded).collect()
    }

    /// Writes a tombstone where there was none, older than every run.
    pub(crate) fn bury_by_hand(&mut self, key: &[u8]) -> Result<(), String> {
        let Ok(Key::Tombstone(owner)) = self.shared.keys.parse(key) else { return Ok(()) };
        let node = self.truth.sandbox_of(&owner).map_or(0, |id| self.truth.sandboxes[id].node);
        let boot = self.nodes[node].boot.id.clone();
        let start = RunStart { boot, ns: 0 };
        self.by_hand(vec![Op::Put(key.to_vec(), Tombstone::new(start).encode(), None)])
    }

    /// Somebody else makes the first meta and allocates nothing, as one who defines a pool or begins a migration does.
    fn found_by_hand(&mut self) -> Result<(), String> {
        if self.tree.meta.is_some() || self.tree.has_allocations() {
            return Ok(());
        }
        let meta = Meta::first("of-another".to_owned());
        self.by_hand(vec![Op::Put(self.shared.keys.meta(), meta.encode(), None)])
    }

    /// A node's key is gone, and all else is as it was: as if the store went back to a snapshot that is older than the
    /// key and younger than the tickets of those who wait.
    fn forget_by_hand(&mut self, key: &[u8]) -> Result<(), String> {
        match self.model.entry(key) {
            Some(_) => self.by_hand(vec![Op::Delete(key.to_vec())]),
            None => Ok(()),
        }
    }

    /// A node's key is as young as the node knows it, and meta is as it was: as if another copy of the store answered,
    /// the one that did not go back.
    fn renew_by_hand(&mut self, key: &[u8], revision: i64) -> Result<(), String> {
        match self.model.entry(key) {
            Some(record) if self.model.revision() + 1 >= revision => {
                let value = record.value.to_vec();
                self.by_hand(vec![Op::Put(key.to_vec(), value, None)])
            }
            _ => Ok(()),
        }
    }

    /// Deletes a reservation, and leaves its page as it is.
    fn free_by_hand(&mut self, key: &[u8]) -> Result<(), String> {
        let Ok(Key::Ip(network, address)) = self.shared.keys.parse(key) else { return Ok(()) };
        let Some(owner) = self.tree.reservations.get(&(network, address)).cloned() else { return Ok(()) };
        if let Some(id) = self.truth.sandbox_of(&owner) {
            self.truth.end(id);
        }
        self.tree.spoil(&owner);
        self.by_hand(vec![Op::Delete(key.to_vec())])
    }

    /// As if the address had been asked for, and freed again.
    fn cool_by_hand(&mut self, key: &[u8]) -> Result<(), String> {
        let Ok(Key::Cooling(network, address)) = self.shared.keys.parse(key) else { return Ok(()) };
        if !self.tree.has_bit(&network, address) {
            return Ok(());
        }
        self.by_hand(vec![Op::Put(key.to_vec(), Cooling::new(60).encode(), None)])
    }

    /// A pod takes a seat of a hold and gives it back.
    fn use_by_hand(&mut self, sighting: &[u8]) -> Result<(), String> {
        let Ok(Key::Orphan(hold)) = self.shared.keys.parse(sighting) else { return Ok(()) };
        self.left_at.insert(hold, self.now());
        self.by_hand(vec![Op::Delete(sighting.to_vec())])
    }

    /// Makes a hold for a pod's name, of a network that nothing else uses, as a person does.
    fn hold_by_hand(&mut self, key: &[u8]) -> Result<(), String> {
        let keys = &self.shared.keys;
        let Ok(Key::Owner(hold)) = keys.parse(key) else { return Ok(()) };
        let network = NetworkName::configured("printers").unwrap_or_default();
        let address = Addr::from(IpAddr::from([10, 200, 0, 1]));
        let page = keys.page(&network, address.page());
        if self.model.entry(key).is_some() || self.model.entry(&page).is_some() {
            return Ok(());
        }
        let mut bits = Bits::empty();
        bits.set(address.bit());
        let held = vec![Held::new(address.ip(), Some(network.clone()))];
        let note = HoldNote { note: "a printer".to_owned(), seconds: Some(60) };
        let record = OwnerRecord::of_subject(held, "-".to_owned(), String::new(), note);
        let reservation = Reservation::of_record(&hold, &record, String::new());
        let ip = keys.ip(&network, address);
        self.left_at.insert(hold, self.now());
        self.by_hand(vec![
            Op::Put(key.to_vec(), record.encode(), None),
            Op::Put(ip, reservation.encode(), None),
            Op::Put(page, bits.to_bytes(), None),
        ])
    }

    /// Takes a free seat for an owner that names it, as a restore key by key does.
    fn sit_by_hand(&mut self, key: &[u8]) -> Result<(), String> {
        let keys = &self.shared.keys;
        let Ok(Key::Seat(seat)) = keys.parse(key) else { return Ok(()) };
        let Some(hold) = self.tree.owners.get(&seat.hold).filter(|_| self.model.entry(key).is_none()) else {
            return Ok(());
        };
        let (owner, labels) = restored(checked(&format!("restored-{}-{}", seat.hold.container_id, seat.n)));
        let held = hold.record.addresses.clone();
        let record = OwnerRecord::new(held, None, "-".to_owned(), labels.clone());
        let record = record.in_seat(Some(seat));
        let (own, seat) = (keys.owner(&owner), SeatRecord::new(owner, labels, String::new()));
        self.by_hand(vec![Op::Put(own, record.encode(), None), Op::Put(key.to_vec(), seat.encode(), None)])
    }

    /// Writes a reservation where there was none, of an owner that lists it, as a restore key by key does.
    fn reserve_by_hand(&mut self, key: &[u8]) -> Result<(), String> {
        let keys = &self.shared.keys;
        let Ok(Key::Ip(network, address)) = keys.parse(key) else { return Ok(()) };
        if self.model.entry(key).is_some() || !self.tree.has_bit(&network, address) {
            return Ok(());
        }
        // With an IPv6 address it is no container's id.
        let Ok(container_id) = format!("restored-{address}").parse() else { return Ok(()) };
        let (owner, labels) = restored(container_id);
        let own = keys.owner(&owner);
        let held = vec![Held::new(address.ip(), Some(network))];
        let record = OwnerRecord::new(held, None, "-".to_owned(), labels.clone());
        let reservation = Reservation::new(owner, String::new());
        let ops =
            vec![Op::Put(own, record.encode(), None), Op::Put(key.to_vec(), reservation.encode(), None)];
        self.by_hand(ops)
    }
}

/// A container that a restore key by key has brought back. Its pod is gone, so that a pass will free it.
fn restored(container_id: ContainerId) -> (Owner, Labels) {
    let owner =
        Owner { node: checked("n9"), container_id, ifname: checked("net1"), cluster: Some(checked(CLUSTER)) };
    let pod = Pod { namespace: "ns".into(), name: "restored".into(), uid: Some(checked("u-restored")) };
    (owner, Labels { pod, cni_network: "one".into() })
}
