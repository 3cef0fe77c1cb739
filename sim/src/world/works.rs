//! The real code, as processes: the work of `main` around each verb, apart from reads of its environment.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use metes::commands::{Run, add, check, del, gc};
use metes_audit::accept;
use metes_audit::audit;
use metes_audit::pause;
use metes_audit::repair;
use metes_config::command::CheckConfig;
use metes_core::cooling::CoolingLeases;
use metes_core::keys::Keys;
use metes_core::limits;
use metes_core::plan::ask::Ask;
use metes_core::plan::hold::{HoldRequest, Holding};
use metes_core::pool::{ClusterName, ContainerId, Owner, PodUid, RunStart};
use metes_engine::drive::Driver;
use metes_engine::endpoints::NoStore;
use metes_engine::kv::Failure;
use metes_engine::policy::Policy;
use metes_engine::release::release;
use metes_engine::session::Session;
use metes_node::node::Identity;
use metes_node::spool::Spool;
use metes_node::state::NodeState;
use metes_reconciler::assign::{Assignment, assign};
use metes_reconciler::context::Context;
use metes_reconciler::import::pause::Pause;
use metes_reconciler::lead::Candidate;
use metes_reconciler::pass::{self, Pass, PassOptions};
use metes_reconciler::report::PassReport;
use metes_reconciler::verdict::Graces;
use tokio::time::Instant;

use super::ids::ProcessId;
use super::process::Outcome;
use super::wire::{Line, Wire};

/// A process before it begins.
pub(crate) type Future_ = Pin<Box<dyn Future<Output = ()>>>;

/// The time that a reconciler leads if it does not renew its lead.
const LEAD: Duration = Duration::from_secs(4);
/// The longest time of a pass.
const PASS_MAX: Duration = Duration::from_secs(60);

/// The part that all processes of a world share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) keys: Keys,
    pub(crate) cluster: ClusterName,
    pub(crate) wire: Rc<Wire>,
    /// The number of endpoints that everybody's list names.
    pub(crate) endpoints: usize,
    pub(crate) start: Instant,
    /// The time that hosts were suspended: their monotonic clocks stood still, all others went on.
    pub(crate) suspended: Cell<Duration>,
    /// Counts up, so that no two starts are the same.
    pub(crate) ticks: Cell<u64>,
}

impl Shared {
    /// The world's time.
    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed() + self.suspended.get()
    }

    fn line(&self, process: ProcessId) -> Line {
        Line::new(self.wire.clone(), process, self.endpoints)
    }
}

/// A node's boot, as its processes know it.
#[derive(Debug, Clone)]
pub(crate) struct Boot {
    pub(crate) identity: Identity,
    /// Another machine whose spooled frees are carried out here too, because the check of the machine is left out.
    pub(crate) confused_with: Option<Identity>,
    pub(crate) id: String,
    pub(crate) since: Duration,
    pub(crate) folder: PathBuf,
}

impl Boot {
    /// The state that the node's runs leave to each other; there is one store.
    pub(crate) fn state(&self) -> NodeState {
        let (identity, folder) = (self.identity.clone(), self.folder.clone());
        NodeState { identity, folder, endpoints: Vec::new(), all: None }
    }

    /// The start of a process that begins now.
    pub(crate) fn start(&self, shared: &Shared) -> RunStart {
        shared.ticks.set(shared.ticks.get() + 1);
        let ns = (shared.now() - self.since).as_nanos() as u64 + shared.ticks.get();
        RunStart { boot: self.id.clone(), ns }
    }
}

/// The input of every run of the plugin.
pub(crate) struct Begun {
    pub(crate) shared: Rc<Shared>,
    pub(crate) boot: Boot,
    pub(crate) process: ProcessId,
    pub(crate) start: RunStart,
    pub(crate) is_awaited: Rc<Cell<bool>>,
}

impl Begun {
    /// Calls `verb` with a run that must be over after `limit`. If `verb` returns true, the DELs that others have
    /// spooled are carried out afterwards.
    fn run(
        self,
        limit: Duration,
        verb: impl AsyncFnOnce(&Run<'_, Line>, &Rc<Wire>) -> bool + 'static,
    ) -> Future_ {
        let deadline = Instant::now() + limit;
        Box::pin(async move {
            let Self { shared, boot, process, start, is_awaited } = self;
            let line = shared.line(process);
            let clock = || boot.start(&shared);
            let awaited = || is_awaited.get();
            let node = boot.state();
            let session = Session { kv: &line, keys: &shared.keys, until: deadline };
            let mut run = Run::new(session, &node, start, &clock, &awaited);
            if verb(&run, &shared.wire).await {
                run.drain_spool().await;
                if let Some(other) = &boot.confused_with {
                    run.spool = Spool::new(&boot.folder, other);
                    run.drain_spool().await;
                }
            }
        })
    }

    /// `gives_back`: where nobody waits for the answer, the ADD undoes itself, as it does if it cannot print.
    pub(crate) fn add(self, ask: Ask, gives_back: bool) -> Future_ {
        let process = self.process;
        self.run(limits::ADD_DEADLINE, async move |run, wire| {
            let added = add::add(run, &ask).await;
            let (is_new, failed) = (added.as_ref().is_ok_and(|added| !added.repeats), added.is_err());
            let is_heard = (run.awaited)();
            wire.report(process, Outcome::Added(added));
            if !failed && !is_heard && gives_back {
                if is_new {
                    add::undo(run, &ask).await;
                }
                return false;
            }
            !failed
        })
    }

    pub(crate) fn del(self, owner: Owner, uid: Option<PodUid>) -> Future_ {
        let process = self.process;
        self.run(limits::DEL_DEADLINE, async move |run, wire| {
            let deleted = del::del(run, &owner, uid.as_ref()).await;
            let goes_on = matches!(deleted, Ok(del::Done::Freed));
            wire.report(process, Outcome::Deleted(deleted));
            goes_on
        })
    }

    pub(crate) fn check(self, config: CheckConfig) -> Future_ {
        let process = self.process;
        self.run(limits::CHECK_DEADLINE, async move |run, wire| {
            let checked = check::check(run, &config).await;
            let goes_on = checked.is_ok();
            wire.report(process, Outcome::Checked(checked));
            goes_on
        })
    }

    pub(crate) fn gc(self, cni_network: String, containers: HashSet<ContainerId>, grace_s: u64) -> Future_ {
        let process = self.process;
        self.run(limits::GC_DEADLINE, async move |run, wire| {
            let collected = gc::gc(run, &cni_network, &containers, grace_s).await;
            let goes_on = collected.is_ok();
            wire.report(process, Outcome::Collected(collected));
            goes_on
        })
    }

    /// Carries out the DELs that are left in the spool.
    pub(crate) fn drain(self) -> Future_ {
        let process = self.process;
        self.run(limits::GC_DEADLINE, async move |run, wire| {
            run.drain_spool().await;
            wire.report(process, Outcome::Drained(run.spool.some(usize::MAX, 0).len()));
            false
        })
    }
}

/// A pass of the reconciler.
pub(crate) fn pass(shared: Rc<Shared>, process: ProcessId, grace: Duration) -> Future_ {
    let until = Instant::now() + PASS_MAX;
    Box::pin(async move {
        let line = shared.line(process);
        let report = RefCell::new(PassReport::new(shared.cluster.as_str(), false));
        let session = Session { kv: &line, keys: &shared.keys, until };
        let graces = Graces { gone: grace, finished: grace, machine: grace, ..Graces::NONE };
        let pass = Pass {
            context: Context { session, cluster: &shared.cluster, api: &line, dry_run: false },
            options: PassOptions { graces, force: false },
            settings: None,
            report: &report,
        };
        let passed = pass::run(pass, PASS_MAX).await;
        shared.wire.report(process, Outcome::Passed(passed));
    })
}

/// `metes check --repair`
pub(crate) fn repair(shared: Rc<Shared>, process: ProcessId) -> Future_ {
    let until = Instant::now() + limits::CLI_DEADLINE;
    Box::pin(async move {
        let line = shared.line(process);
        let repaired = async {
            let session = Session { kv: &line, keys: &shared.keys, until };
            let report = audit(session).await?;
            repair::tidy(session, report.repairs, "").await
        };
        let repaired = repaired.await.map(|_| ());
        shared.wire.report(process, Outcome::Repaired(repaired));
    })
}

/// `metes check --accept-store`
pub(crate) fn accept(shared: Rc<Shared>, process: ProcessId) -> Future_ {
    let until = Instant::now() + limits::CLI_DEADLINE;
    Box::pin(async move {
        let line = shared.line(process);
        let accepted = async {
            let session = Session { kv: &line, keys: &shared.keys, until };
            let report = audit(session).await?;
            accept::accept(session, &report, None).await
        };
        let accepted = accepted.await.map(|_| ()).map_err(|why: NoStore| match why {
            NoStore::Failed(failure) => failure,
            other => Failure::Refused(other.to_string()),
        });
        shared.wire.report(process, Outcome::Repaired(accepted));
    })
}

/// The work of `metes-reconciler adopt` on the store, once it knows the addresses that running pods use.
pub(crate) fn adopt(shared: Rc<Shared>, process: ProcessId, assignments: Vec<Assignment>) -> Future_ {
    let until = Instant::now() + limits::CLI_DEADLINE;
    Box::pin(async move {
        let line = shared.line(process);
        let adopted = async {
            let session = Session { kv: &line, keys: &shared.keys, until };
            let begun = accept::begin(session).await.ok()?;
            for one in &assignments {
                // An address that another owner holds is a conflict, which a person has to decide.
                assign(session, one).await.ok()?;
            }
            accept::finish(session, &begun).await.ok()
        };
        let _ = adopted.await;
        shared.wire.report(process, Outcome::Repaired(Ok(())));
    })
}

/// The work of `metes-reconciler import` on the store, once it knows the addresses that pods use. `by_hand`: a person
/// ends the pause.
pub(crate) fn import(
    shared: Rc<Shared>,
    process: ProcessId,
    assignments: Vec<Assignment>,
    by_hand: bool,
) -> Future_ {
    let until = Instant::now() + limits::CLI_DEADLINE;
    Box::pin(async move {
        let line = shared.line(process);
        let session = Session { kv: &line, keys: &shared.keys, until };
        let pause = Pause { session, cluster: &shared.cluster, now: String::new() };
        let imported = async {
            pause.set().await.ok()?;
            for one in &assignments {
                assign(session, one).await.ok()?;
            }
            if by_hand {
                let report = audit(session).await.ok()?;
                pause::end(session, &report).await.ok()?;
                return Some(());
            }
            pause.clear().await.ok()
        };
        let _ = imported.await;
        shared.wire.report(process, Outcome::Repaired(Ok(())));
    })
}

/// The name of a reconciler that wants to lead.
pub(crate) fn candidate(process: ProcessId) -> String {
    format!("r{process}")
}

/// One of the reconcilers of a cluster that run all the time: it takes turns with the others.
pub(crate) fn lead(shared: Rc<Shared>, process: ProcessId) -> Future_ {
    let until = Instant::now() + limits::CLI_DEADLINE;
    Box::pin(async move {
        let line = shared.line(process);
        let key = shared.keys.lead(&shared.cluster);
        let candidate = Candidate { key, name: candidate(process), ttl: LEAD };
        for _ in 0..3 {
            let _ = candidate.claim(&line, until).await;
            tokio::time::sleep(LEAD / 2).await;
        }
        let _ = candidate.resign(&line, until).await;
        shared.wire.report(process, Outcome::Repaired(Ok(())));
    })
}

/// `metes release`
pub(crate) fn let_go(shared: Rc<Shared>, process: ProcessId, owner: Owner) -> Future_ {
    let until = Instant::now() + limits::CLI_DEADLINE;
    Box::pin(async move {
        let line = shared.line(process);
        let mut leases = CoolingLeases::default();
        let session = Session { kv: &line, keys: &shared.keys, until };
        let _ = release(session, &owner, Some(&mut leases)).await;
        shared.wire.report(process, Outcome::Released);
    })
}

pub(crate) fn hold(shared: Rc<Shared>, process: ProcessId, request: HoldRequest) -> Future_ {
    let until = Instant::now() + limits::CLI_DEADLINE;
    Box::pin(async move {
        let line = shared.line(process);
        let session = Session { kv: &line, keys: &shared.keys, until };
        let policy = Policy::hold(request.hold.seconds.map(Duration::from_secs), until);
        let held = Driver::new(session, policy).run(&mut Holding::new(&request, &shared.keys)).await;
        shared.wire.report(process, Outcome::Held(held.is_ok()));
    })
}
