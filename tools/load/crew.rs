//! Many clients at once on a few threads, for a bounded time.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::task::{JoinSet, LocalSet, spawn_local};
use tokio::time::{Instant, sleep_until};

/// How often each thread looks how late it is.
const LOOKS: Duration = Duration::from_millis(20);

/// A client that sends one request after the other.
pub(crate) trait Client {
    /// Sends requests until `until`; then it waits for the last answer.
    async fn work(self, until: Instant) -> Log;
}

/// The answers that clients have got.
#[derive(Default)]
pub(crate) struct Log {
    /// ADDs, or puts.
    pub(crate) main: Timings,
    pub(crate) dels: Timings,
    /// By code.
    pub(crate) failures: BTreeMap<String, Failures>,
    /// The addresses held at the end, each with its network.
    pub(crate) held: Vec<(String, std::net::IpAddr)>,
    /// The times from the start until all of a pod's networks were there.
    pub(crate) pods: Timings,
    /// The tries of pods, by their number: the first tries, the second ones, ...
    pub(crate) waves: BTreeMap<usize, Wave>,
}

/// The tries of the same number.
#[derive(Clone, Copy, Default)]
pub(crate) struct Wave {
    pub(crate) begun: usize,
    pub(crate) failed: usize,
}

/// The times of requests of one kind.
#[derive(Default)]
pub(crate) struct Timings {
    took: Vec<Duration>,
}

/// Failures of one code.
pub(crate) struct Failures {
    pub(crate) count: usize,
    pub(crate) example: String,
}

/// The work that a crew has done.
#[derive(Default)]
pub(crate) struct Shift {
    pub(crate) log: Log,
    /// From the start to the last answer.
    pub(crate) elapsed: Duration,
    /// CPU time of the generator's threads meanwhile.
    pub(crate) generator_cpu: Duration,
    /// How late its threads came to what was due: what they measure is too long by as much.
    pub(crate) lateness: Timings,
}

/// The numbers of clients and threads, and the length of a shift.
#[derive(Clone, Copy)]
pub(crate) struct Crew {
    pub(crate) clients: usize,
    pub(crate) threads: usize,
    pub(crate) window: Duration,
}

impl Crew {
    /// Makes (and connects) each client; when all are there, calls `begin` and lets them work.
    pub(crate) fn work<C, M>(self, make: M, begin: impl FnOnce()) -> Shift
    where
        C: Client + 'static,
        M: AsyncFn(usize) -> C + Sync,
    {
        let make = &make;
        thread::scope(|scope| {
            let (ready, all_ready) = mpsc::channel();
            let mut starts = Vec::new();
            let mut workers = Vec::new();
            for thread in 0..self.threads {
                let (start, started) = mpsc::channel();
                let ready = ready.clone();
                starts.push(start);
                workers.push(scope.spawn(move || self.one_thread(thread, make, ready, &started)));
            }
            drop(ready);
            for _ in 0..self.threads {
                all_ready.recv().expect("all clients connect");
            }
            begin();
            let start = Instant::now();
            starts.iter().for_each(|go| go.send(start).expect("all threads wait for it"));
            let mut whole = Shift::default();
            for worker in workers {
                whole.merge(worker.join().expect("no client panics"));
            }
            whole
        })
    }

    /// Every `threads`-th client, from `thread` on.
    fn one_thread<C, M>(
        self,
        thread: usize,
        make: &M,
        ready: mpsc::Sender<()>,
        started: &mpsc::Receiver<Instant>,
    ) -> Shift
    where
        C: Client + 'static,
        M: AsyncFn(usize) -> C,
    {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let local = LocalSet::new();
        let mut clients = Vec::new();
        for index in (thread..self.clients).step_by(self.threads) {
            clients.push(local.block_on(&runtime, make(index)));
        }
        ready.send(()).expect("somebody waits for it");
        // Dropped before this thread waits, so that nobody waits for a thread that has panicked.
        drop(ready);
        let start = started.recv().expect("the others are ready too");
        let cpu_before = thread_cpu();
        let lateness = Rc::new(RefCell::new(Timings::default()));
        let log = local.block_on(&runtime, async {
            let looking = spawn_local(look_how_late(lateness.clone()));
            let mut working = JoinSet::new();
            for client in clients {
                working.spawn_local(client.work(start + self.window));
            }
            let mut log = Log::default();
            while let Some(done) = working.join_next().await {
                log.merge(done.expect("no client panics"));
            }
            looking.abort();
            log
        });
        Shift {
            log,
            elapsed: start.elapsed(),
            generator_cpu: thread_cpu().saturating_sub(cpu_before),
            lateness: lateness.take(),
        }
    }
}

async fn look_how_late(lateness: Rc<RefCell<Timings>>) {
    loop {
        let due = Instant::now() + LOOKS;
        sleep_until(due).await;
        lateness.borrow_mut().take(due.elapsed());
    }
}

impl Shift {
    fn merge(&mut self, other: Shift) {
        self.log.merge(other.log);
        self.elapsed = self.elapsed.max(other.elapsed);
        self.generator_cpu += other.generator_cpu;
        self.lateness.merge(other.lateness);
    }
}

impl Log {
    pub(crate) fn fail(&mut self, code: impl ToString, example: impl ToString) {
        let failures = self
            .failures
            .entry(code.to_string())
            .or_insert_with(|| Failures { count: 0, example: example.to_string() });
        failures.count += 1;
    }

    pub(crate) fn failed(&self) -> usize {
        self.failures.values().map(|failures| failures.count).sum()
    }

    pub(crate) fn merge(&mut self, other: Log) {
        self.main.merge(other.main);
        self.dels.merge(other.dels);
        self.held.extend(other.held);
        self.pods.merge(other.pods);
        for (number, Wave { begun, failed }) in other.waves {
            let wave = self.waves.entry(number).or_default();
            wave.begun += begun;
            wave.failed += failed;
        }
        for (code, Failures { count, example }) in other.failures {
            self.failures.entry(code).or_insert(Failures { count: 0, example }).count += count;
        }
    }
}

impl Timings {
    pub(crate) fn take(&mut self, took: Duration) {
        self.took.push(took);
    }

    pub(crate) fn count(&self) -> usize {
        self.took.len()
    }

    pub(crate) fn percentiles_ms<const N: usize>(&self, percents: [usize; N]) -> [f64; N] {
        let mut took = self.took.clone();
        took.sort();
        percents.map(|percent| {
            let index = (took.len() * percent).div_ceil(100).max(1) - 1;
            took.get(index).map_or(f64::NAN, |took| took.as_secs_f64() * 1000.0)
        })
    }

    fn merge(&mut self, other: Timings) {
        self.took.extend(other.took);
    }
}

fn thread_cpu() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}
