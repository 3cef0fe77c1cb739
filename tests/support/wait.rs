//! Bounded waiting and bounded parallelism.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(10);
const WORKER_STACK: usize = 16 << 20;

/// Asks again until `look` answers `Ok`; its last `Err` stands in the panic.
pub fn wait_for<T>(what: &str, deadline: Duration, mut look: impl FnMut() -> Result<T, String>) -> T {
    let start = Instant::now();
    loop {
        match look() {
            Ok(value) => return value,
            Err(status) if start.elapsed() >= deadline => {
                panic!("waited {deadline:?} for {what}; last: {status}")
            }
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

/// Does every job, at most `workers` at a time; the answers stand in the order of the jobs.
pub fn in_parallel<J: Send, R: Send>(
    workers: usize,
    jobs: impl IntoIterator<Item = J>,
    work: impl Fn(J) -> R + Sync,
) -> Vec<R> {
    let jobs: Vec<J> = jobs.into_iter().collect();
    let queue = Mutex::new(jobs.into_iter().enumerate());
    let mut done: Vec<(usize, R)> = thread::scope(|scope| {
        let worker = || {
            let mut mine = Vec::new();
            loop {
                let next = queue.lock().expect("no worker panics while it takes a job").next();
                let Some((index, job)) = next else { return mine };
                mine.push((index, work(job)));
            }
        };
        // Futures that are not optimised are large, and a whole world of them may stand in one.
        let spawn = || thread::Builder::new().stack_size(WORKER_STACK).spawn_scoped(scope, worker);
        let handles: Vec<_> = (0..workers).map(|_| spawn().expect("a thread can be started")).collect();
        handles.into_iter().flat_map(|handle| handle.join().expect("a worker panicked")).collect()
    });
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

/// For tests of which one at a time may run in a program: each holds the guard to its end.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
