//! Watches: each shows the changes of its keys in order, late or never, and ends at any time.

use std::collections::VecDeque;
use std::time::Duration;

use metes_core::keys::Bytes;
use metes_engine::kv::Event;

use super::World;
use super::requests::{Step, delay};
use super::wire::WatchId;

/// A watch that somebody has.
#[derive(Debug)]
pub(crate) struct OpenWatch {
    id: WatchId,
    keys: Vec<Bytes>,
    /// The events that it will show.
    pending: VecDeque<Event>,
    fate: WatchFate,
}

impl OpenWatch {
    pub(crate) fn id(&self) -> WatchId {
        self.id
    }
}

#[derive(Debug, Clone, Copy)]
enum WatchFate {
    Works,
    /// It shows nothing.
    Mute,
    /// It shows everything so much later.
    Late(Duration),
    /// It shows so many events, and ends instead of the next.
    EndsAfter(u32),
}

impl World<'_> {
    /// Opens a watch, and tells from which revision on it shows changes.
    pub(crate) fn open_watch(&mut self, keys: Vec<Bytes>) -> (WatchId, i64) {
        let id = self.wire.open_watch();
        let faults = if self.is_healing { Default::default() } else { self.plan.faults };
        let newest = self.model.revision();
        let mut pending = Vec::new();
        let mut since = 0;
        let is_behind = self.chance.happens(faults.watch);
        for key in &keys {
            // They are confirmed one after the other.
            let behind = if is_behind { self.chance.below(6) as i64 } else { 0 };
            let start = (newest - behind).max(self.model.oldest());
            pending.extend(self.model.events_since(start, std::slice::from_ref(key)));
            since = since.max(start);
        }
        if is_behind {
            self.count("watch on a member that is behind");
        }
        let fate = if self.chance.happens(faults.watch) { self.watch_fate(id) } else { WatchFate::Works };
        self.watches.push(OpenWatch { id, keys, pending: VecDeque::new(), fate });
        self.serve_watch(self.watches.len() - 1, pending);
        (id, since)
    }

    fn watch_fate(&mut self, id: WatchId) -> WatchFate {
        match self.chance.below(8) {
            0..3 => {
                self.count("mute watch");
                WatchFate::Mute
            }
            3..5 => {
                self.count("ended watch");
                self.steps.push(Step::EndWatch(id));
                WatchFate::Works
            }
            5 => {
                self.count("watch that ends later");
                let due = self.now() + delay(&self.chance);
                self.held.push((due, Step::EndWatch(id)));
                WatchFate::Works
            }
            6 => {
                self.count("watch that ends instead of an event");
                WatchFate::EndsAfter(self.chance.below(3) as u32)
            }
            _ => {
                self.count("late watch");
                WatchFate::Late(delay(&self.chance))
            }
        }
    }

    /// Lets all watches know of the changes since the last call.
    pub(crate) fn serve_watches(&mut self) {
        let since = std::mem::replace(&mut self.watched, self.model.revision());
        let Self { watches, wire, .. } = self;
        watches.retain(|watch| wire.is_watched(watch.id));
        for index in 0..self.watches.len() {
            let events = self.model.events_since(since, &self.watches[index].keys);
            self.serve_watch(index, events);
        }
    }

    fn serve_watch(&mut self, index: usize, events: Vec<Event>) {
        let due = self.now();
        let Self { watches, steps, held, .. } = self;
        let watch = &mut watches[index];
        for event in events {
            match &mut watch.fate {
                WatchFate::Mute => continue,
                WatchFate::EndsAfter(0) => {
                    steps.push(Step::EndWatch(watch.id));
                    continue;
                }
                WatchFate::EndsAfter(events) => {
                    *events -= 1;
                    steps.push(Step::Show(watch.id));
                }
                WatchFate::Works => steps.push(Step::Show(watch.id)),
                WatchFate::Late(by) => held.push((due + *by, Step::Show(watch.id))),
            }
            watch.pending.push_back(event);
        }
    }

    pub(crate) fn show(&mut self, id: WatchId) {
        let Some(watch) = self.watches.iter_mut().find(|watch| watch.id == id) else { return };
        if let Some(event) = watch.pending.pop_front() {
            self.wire.show(id, Some(event));
        }
    }

    pub(crate) fn end_watch(&mut self, id: WatchId) {
        self.watches.retain(|watch| watch.id != id);
        self.wire.show(id, None);
    }
}
