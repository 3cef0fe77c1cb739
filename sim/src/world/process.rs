//! One process of a world: a run of the plugin, a pass of the reconciler, or a command of a person.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use metes::commands::add::AddDone;
use metes::commands::del::Done;
use metes_config::cni::Error;
use metes_core::pool::RunStart;
use metes_engine::kv::Failure;
use metes_reconciler::pass::PassError;

use super::ids::{ProcessId, SandboxId};

/// The work of a process.
#[derive(Debug, Clone)]
pub(crate) enum Work {
    Add { sandbox: SandboxId, start: RunStart },
    Del { sandbox: SandboxId, start: RunStart },
    Check { sandbox: SandboxId, start: RunStart },
    Gc,
    Drain,
    Pass,
    Repair,
    Accept,
    Adopt,
    Import,
    Lead,
    Release,
    Hold,
}

impl Work {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Work::Add { .. } => "ADD",
            Work::Del { .. } => "DEL",
            Work::Check { .. } => "CHECK",
            Work::Gc => "GC",
            Work::Drain => "drain",
            Work::Pass => "pass",
            Work::Repair => "repair",
            Work::Accept => "accept",
            Work::Adopt => "adopt",
            Work::Import => "import",
            Work::Lead => "lead",
            Work::Release => "release",
            Work::Hold => "hold",
        }
    }
}

/// The end of a process.
#[derive(Debug)]
pub(crate) enum Outcome {
    Added(Result<AddDone, Error>),
    Deleted(Result<Done, Error>),
    Checked(Result<(), Error>),
    Collected(Result<(), Error>),
    Passed(Result<(), PassError>),
    Repaired(Result<(), Failure>),
    Released,
    /// True if the address is set aside.
    Held(bool),
    /// The number of frees left in a node's spool.
    Drained(usize),
}

/// A process.
pub(crate) struct Process {
    pub(crate) id: ProcessId,
    pub(crate) work: Work,
    /// The node that it runs on; none if it runs elsewhere.
    pub(crate) node: Option<usize>,
    future: Pin<Box<dyn Future<Output = ()>>>,
    waker: Waker,
    /// The number of polls.
    pub(crate) steps: u32,
    pub(crate) crash_at: Option<u32>,
    pub(crate) pause_at: Option<(u32, Duration)>,
    pub(crate) forsaken_at: Option<u32>,
    /// The end of its pause, by the world's clock.
    pub(crate) paused: Option<Duration>,
    pub(crate) is_awaited: Rc<Cell<bool>>,
    /// It could go on, but stands still.
    pub(crate) is_due: bool,
    /// It began when nothing failed any more.
    pub(crate) is_of_healing: bool,
}

impl Process {
    pub(crate) fn new(
        id: ProcessId,
        work: Work,
        node: Option<usize>,
        is_awaited: Rc<Cell<bool>>,
        future: Pin<Box<dyn Future<Output = ()>>>,
        ready: &Arc<Ready>,
    ) -> Self {
        let waker = Waker::from(Arc::new(Alarm { process: id, ready: ready.clone() }));
        Self {
            id,
            work,
            node,
            future,
            waker,
            steps: 0,
            crash_at: None,
            pause_at: None,
            forsaken_at: None,
            paused: None,
            is_awaited,
            is_due: false,
            is_of_healing: false,
        }
    }

    /// Polls it; true when it has ended.
    pub(crate) fn go_on(&mut self) -> bool {
        self.steps += 1;
        self.future.as_mut().poll(&mut Context::from_waker(&self.waker)) == Poll::Ready(())
    }
}

/// The processes that may go on.
#[derive(Debug, Default)]
pub(crate) struct Ready {
    inner: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    processes: Vec<ProcessId>,
    /// The world, while it waits for the clock.
    idle: Option<Waker>,
}

impl Ready {
    pub(crate) fn push(&self, process: ProcessId) {
        let mut queue = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if !queue.processes.contains(&process) {
            queue.processes.push(process);
        }
        if let Some(idle) = queue.idle.take() {
            idle.wake();
        }
    }

    pub(crate) fn take(&self, into: &mut Vec<ProcessId>) {
        into.append(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner).processes);
    }

    /// Ready as soon as a process is.
    pub(crate) fn poll_any(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut queue = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if !queue.processes.is_empty() {
            return Poll::Ready(());
        }
        queue.idle = Some(context.waker().clone());
        Poll::Pending
    }
}

struct Alarm {
    process: ProcessId,
    ready: Arc<Ready>,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.ready.push(self.process);
    }
}
