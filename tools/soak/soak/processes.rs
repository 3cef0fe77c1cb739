//! The plugin's processes, while they run: callers wait for them, and the nemesis kills and stops them.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use support::{Outcome, Run, Running};

const POLL: Duration = Duration::from_millis(2);
/// Longer than every deadline of the plugin and every stop together.
const RUN_MAX: Duration = Duration::from_secs(60);

/// The processes by numbers of their own, because the kernel uses process ids again. To signal a process takes the
/// lock, so that nobody reaps it meanwhile.
#[derive(Debug, Default)]
pub(super) struct Processes {
    running: Mutex<BTreeMap<u64, Slot>>,
    next: AtomicU64,
}

#[derive(Debug)]
struct Slot {
    running: Running,
    since: Instant,
    was_stopped: bool,
}

/// The end of a wait.
pub(super) enum End {
    /// Its outcome; true if the nemesis had stopped it.
    Done(Outcome, bool),
    /// It still runs, under this number.
    RunsOn(u64),
}

impl Processes {
    pub(super) fn start(&self, run: Run) -> u64 {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let slot = Slot { running: run.spawn(), since: Instant::now(), was_stopped: false };
        self.running.lock().expect("nobody panics with it").insert(id, slot);
        id
    }

    /// Waits for its end, or only so long. A process is waited for until it has begun: a DEL frees nothing of an ADD
    /// that begins after it.
    pub(super) fn wait(&self, id: u64, patience: Option<Duration>) -> End {
        let start = Instant::now();
        loop {
            if let Some(done) = self.take_if_done(id) {
                return done;
            }
            if patience.is_some_and(|patience| start.elapsed() >= patience) && self.has_begun(id) {
                return End::RunsOn(id);
            }
            thread::sleep(POLL);
        }
    }

    pub(super) fn kill(&self, id: u64) {
        if let Some(slot) = self.running.lock().expect("nobody panics with it").get_mut(&id) {
            slot.running.kill();
        }
    }

    pub(super) fn stop(&self, id: u64) {
        if let Some(slot) = self.running.lock().expect("nobody panics with it").get_mut(&id)
            && slot.running.is_running()
        {
            slot.running.stop();
            slot.was_stopped = true;
        }
    }

    pub(super) fn resume(&self, id: u64) {
        if let Some(slot) = self.running.lock().expect("nobody panics with it").get_mut(&id)
            && slot.running.is_running()
        {
            slot.running.resume();
        }
    }

    pub(super) fn ids(&self) -> Vec<u64> {
        self.running.lock().expect("nobody panics with it").keys().copied().collect()
    }

    fn has_begun(&self, id: u64) -> bool {
        self.running.lock().expect("nobody panics with it")[&id].running.has_read_stdin()
    }

    fn take_if_done(&self, id: u64) -> Option<End> {
        let mut all = self.running.lock().expect("nobody panics with it");
        let slot = all.get_mut(&id).expect("only one waits for it");
        if slot.running.is_running() {
            assert!(slot.since.elapsed() < RUN_MAX, "runs for {RUN_MAX:?}: {:?}", slot.running);
            return None;
        }
        let Slot { running, was_stopped, .. } = all.remove(&id).expect("it was just there");
        drop(all);
        Some(End::Done(running.wait(), was_stopped))
    }
}
