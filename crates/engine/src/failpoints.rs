//! Named points at which a test stops or ends this process; only in a build with the feature `failpoints`.
//!
//! `METES_FAIL` names points and what happens there: `commit.sent=kill,read#2.before=sleep:50`. A point is
//! `<name>.<boundary>`; `<name>#<n>.<boundary>` is the n-th of its name, and without `#n` the first is meant. The name
//! of a request to the store is its transaction's step, or `grant`, `revoke`, `lease-age`, `watch` or `about`. It has
//! the boundaries `before`, `sent` (nothing of its answer was read) and `answered` (nothing was done with its answer).
//! Besides there are `print.before`, `print.after`, `mark.before`, `spool.before` and `spool.after`.
//!
//! `METES_FAIL_LIST` names a file that takes a line for each point that was passed and for each lease that was asked
//! for. `METES_FAIL_LEASE` is the longest life of the leases that fence commits and keep tombstones, in seconds.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};

use metes_core::limits;

/// Where in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Boundary {
    /// Nothing was sent.
    Before,
    /// It is on its way, and nothing of its answer was read.
    Sent,
    /// The answer came, and nothing was done with it.
    Answered,
}

impl Boundary {
    fn name(self) -> &'static str {
        match self {
            Boundary::Before => "before",
            Boundary::Sent => "sent",
            Boundary::Answered => "answered",
        }
    }
}

/// The answers that a point can give instead of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Injected {
    /// The outcome of the request is not known.
    Unknown,
    /// It never reached the store.
    Unreachable,
    /// The store is out of space.
    NoSpace,
}

/// The action at a point.
#[derive(Debug, Clone)]
enum Action {
    Kill,
    Stop,
    Panic,
    Exit,
    Sleep(Duration),
    Error(Injected),
}

/// The requests of the environment.
struct Plan {
    actions: HashMap<String, Action>,
    list: Option<PathBuf>,
    longest_lease: Option<Duration>,
    /// The number of visits of each name.
    visits: Mutex<HashMap<String, usize>>,
}

/// One request, or one passing of another point.
pub(crate) struct Visit {
    name: String,
    number: usize,
}

/// Passes a point that is no request's.
///
/// # Panics
/// If that is what the point is to do, or if `METES_FAIL` is wrong.
pub fn pass(point: &str) {
    let (name, boundary) = point.split_once('.').expect("a point has a name and a boundary");
    let visit = Visit { name: name.to_owned(), number: count(point) };
    assert!(visit.act(boundary).is_ok(), "METES_FAIL: there is no answer at {point} that could be an error");
}

/// A request by that name begins.
pub(crate) fn visit(name: &str) -> Visit {
    Visit { name: name.to_owned(), number: count(name) }
}

/// Notes a new lease, and returns its life: `ttl`, but for leases of runs and tombstones no more than
/// `METES_FAIL_LEASE`.
pub(crate) fn lease(id: i64, ttl: Duration) -> Duration {
    note(&format!("lease {id}"));
    let is_of_a_run = [limits::LEASE_TTL, limits::FENCE_TTL, limits::TOMBSTONE_TTL].contains(&ttl);
    plan().longest_lease.filter(|_| is_of_a_run).map_or(ttl, |longest| longest.min(ttl))
}

impl Visit {
    /// True if there is an action at this boundary.
    pub(crate) fn is_marked(&self, boundary: Boundary) -> bool {
        plan().actions.contains_key(&self.point(boundary.name()))
    }

    /// Passes a boundary.
    ///
    /// # Errors
    /// [`Injected`]: what is to be the answer.
    ///
    /// # Panics
    /// If that is what the point is to do, or if `METES_FAIL` is wrong.
    pub(crate) fn pass(&self, boundary: Boundary) -> Result<(), Injected> {
        self.act(boundary.name())
    }

    fn point(&self, boundary: &str) -> String {
        format!("{}#{}.{boundary}", self.name, self.number)
    }

    fn act(&self, boundary: &str) -> Result<(), Injected> {
        let point = self.point(boundary);
        note(&point);
        match plan().actions.get(&point) {
            None => {}
            Some(Action::Kill) => raise(Signal::KILL),
            Some(Action::Stop) => raise(Signal::STOP),
            Some(Action::Panic) => panic!("asked to at {point}"),
            #[allow(
                clippy::disallowed_methods,
                reason = "a process that ends here is what the test is about"
            )]
            Some(Action::Exit) => std::process::exit(3),
            Some(Action::Sleep(time)) => std::thread::sleep(*time),
            Some(Action::Error(answer)) => return Err(*answer),
        }
        Ok(())
    }
}

fn raise(signal: Signal) {
    kill_process(getpid(), signal).expect("a process can signal itself");
}

fn count(name: &str) -> usize {
    let mut visits = plan().visits.lock().expect("nobody panics with it");
    let visit = visits.entry(name.to_owned()).or_default();
    *visit += 1;
    *visit
}

fn note(line: &str) {
    let Some(path) = &plan().list else { return };
    let file = File::options().create(true).append(true).open(path);
    file.and_then(|mut file| writeln!(file, "{line}")).expect("the file of METES_FAIL_LIST can be written");
}

fn plan() -> &'static Plan {
    static PLAN: OnceLock<Plan> = OnceLock::new();
    PLAN.get_or_init(|| {
        let actions = std::env::var("METES_FAIL").unwrap_or_default();
        let seconds = std::env::var("METES_FAIL_LEASE").ok();
        Plan {
            actions: actions.split(',').filter(|entry| !entry.is_empty()).map(parse).collect(),
            list: std::env::var_os("METES_FAIL_LIST").map(PathBuf::from),
            longest_lease: seconds
                .map(|s| Duration::from_secs(s.parse().expect("METES_FAIL_LEASE is seconds"))),
            visits: Mutex::default(),
        }
    })
}

fn parse(entry: &str) -> (String, Action) {
    let wrong = || -> ! { panic!("METES_FAIL: {entry} is not <name>[#<n>].<boundary>=<action>") };
    let Some((point, action)) = entry.split_once('=') else { wrong() };
    let Some((name, boundary)) = point.split_once('.') else { wrong() };
    if !["before", "sent", "answered", "after"].contains(&boundary) {
        wrong()
    }
    let point = if name.contains('#') { point.to_owned() } else { format!("{name}#1.{boundary}") };
    let Some(action) = action_of(action) else { wrong() };
    (point, action)
}

fn action_of(text: &str) -> Option<Action> {
    Some(match text.split_once(':') {
        None if text == "kill" => Action::Kill,
        None if text == "stop" => Action::Stop,
        None if text == "panic" => Action::Panic,
        None if text == "exit" => Action::Exit,
        Some(("sleep", ms)) => Action::Sleep(Duration::from_millis(ms.parse().ok()?)),
        Some(("error", "unknown")) => Action::Error(Injected::Unknown),
        Some(("error", "unreachable")) => Action::Error(Injected::Unreachable),
        Some(("error", "nospace")) => Action::Error(Injected::NoSpace),
        _ => return None,
    })
}
