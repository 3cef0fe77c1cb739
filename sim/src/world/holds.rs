//! Addresses that an operator sets aside while pods come and go, and the times of these holds.

use std::time::Duration;

use metes_core::keys::Key;
use metes_core::plan::hold::HoldRequest;
use metes_core::pool::{Addr, HoldNote, Owner, OwnerKind};
use metes_core::txn::Op;

use super::World;
use super::plan::Theme;
use super::process::Work;
use super::tree::{Place, words};
use super::works;

/// The number of addresses of a set that are set aside at times.
const SET_ASIDE: u64 = 3;
/// The time of a hold that has one, in seconds.
const TIME_S: u64 = 20;

impl World<'_> {
    /// An operator sets an address aside, or ends that.
    pub(super) fn begin_hold(&mut self) {
        // The first writes of a store have a kind of world of their own.
        if self.tree.meta.is_none() {
            return self.begin_pass();
        }
        let (network, address) = self.place_to_hold();
        if self.chance.one_in(3) {
            return self.begin_end_of_hold(Owner::of_hold(&network, address));
        }
        let note = if self.chance.one_in(4) { "other" } else { "printer" };
        let seconds = self.chance.one_in(2).then_some(TIME_S);
        let request = HoldRequest {
            network,
            address,
            hold: HoldNote { note: note.to_owned(), seconds },
            created_at: String::new(),
        };
        self.begin(None, Work::Hold, |world, id| works::hold(world.shared.clone(), id, request));
    }

    fn begin_end_of_hold(&mut self, owner: Owner) {
        self.begin(None, Work::Release, |world, id| works::let_go(world.shared.clone(), id, owner));
    }

    /// One of the first addresses of a set.
    fn place_to_hold(&self) -> Place {
        let config = self.chance.index(self.plan.configs.len());
        let sets = &self.plan.configs[config].sets;
        let range = &sets[self.chance.index(sets.len())].ranges()[0];
        let address = range.first().0 + u128::from(self.chance.below(SET_ASIDE));
        (range.network().clone(), Addr(address.min(range.last().0)))
    }

    /// A person ends the hold of a pod's name, if no container uses it.
    pub(super) fn begin_end_of_subject(&mut self) {
        let is_subject = |owner: &&Owner| owner.is_for_subject();
        let mut holds: Vec<Owner> = self.tree.owners.keys().filter(is_subject).cloned().collect();
        if holds.is_empty() {
            return self.begin_pass();
        }
        holds.sort();
        let hold = holds.swap_remove(self.chance.index(holds.len()));
        self.begin_end_of_hold(hold);
    }

    /// A person ends all holds that a pass will not end. A hold for a pod stays while a container uses it.
    pub(super) fn end_lasting_holds(&mut self) {
        let lasts = |owner: &Owner| {
            let record = self.tree.owners.get(owner).and_then(|owned| owned.record.hold.as_ref());
            record.is_some_and(|hold| hold.seconds.is_none()) || self.has_time_left(owner)
        };
        let mut lasting: Vec<Owner> = self.tree.owners.keys().filter(|owner| lasts(owner)).cloned().collect();
        lasting.sort();
        lasting.into_iter().for_each(|owner| self.begin_end_of_hold(owner));
    }

    /// A hold that a pass frees although its time is not over.
    pub(super) fn ends_early(&self, owner: &Owner, work: Option<&Work>) -> Option<String> {
        (self.has_time_left(owner) && matches!(work, Some(Work::Pass))).then(|| words(owner))
    }

    /// True if it is a hold whose time is not over.
    fn has_time_left(&self, owner: &Owner) -> bool {
        match owner.kind() {
            OwnerKind::Aside(network, address) => {
                self.model.entry(&self.shared.keys.hold(&network, address)).is_some()
            }
            OwnerKind::Subject(_) => {
                let record = self.tree.owners.get(owner).map(|owned| &owned.record);
                let Some(hold) = record.and_then(|record| record.hold.as_ref()) else { return false };
                let keep = hold.seconds.map_or(Duration::MAX, Duration::from_secs);
                let left_at = self.left_at.get(owner).copied().unwrap_or_default();
                self.now() < left_at.saturating_add(keep)
            }
            OwnerKind::Container(_) | OwnerKind::Unknown => false,
        }
    }

    /// Somebody gives a hold time with other tools.
    pub(super) fn prolong_by_hand(&mut self, key: &[u8]) -> Result<(), String> {
        match self.shared.keys.parse(key) {
            Ok(Key::Hold(..)) if self.plan.theme == Theme::Holds => {
                self.by_hand(vec![Op::Put(key.to_vec(), Vec::new(), None)])
            }
            _ => Ok(()),
        }
    }
}
