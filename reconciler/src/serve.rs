//! Passes one after the other, for a Deployment: one of its processes leads and makes them, the others stand by.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::StatusCode;
use metes::limits;
use metes::random::random;
use metes::store::Store;
use metes::store::etcd::EtcdWatch;
use metes::store::kv::{Kv, Watch};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::cli::{Cli, Listen};
use crate::lead::{Candidate, Standing};
use crate::listen::{self, Page, Pages};
use crate::metrics::{self, Metrics};
use crate::once::{self, Ended, Outcome, Place};
use crate::report::Scanned;

/// A claim holds for so many times --every: it is made anew at least once in each.
const CLAIM_EVERIES: u32 = 2;
/// etcd grants no shorter lease.
const CLAIM_MIN: Duration = Duration::from_secs(2);
/// How long finding out whose turn it is may take.
const CLAIM_DEADLINE: Duration = limits::UNREACHABLE;
/// The shortest pause of one who stands by, however often the key changes.
const STAND_BY_MIN: Duration = Duration::from_millis(200);
/// Without a pass for so many times --every, and one pass's time, something is wrong.
const PATIENCE_EVERIES: u32 = 3;
/// How long a pass may go on after a signal to end.
const LAST_PASS: Duration = Duration::from_secs(3);
/// How long giving up the lead may take.
const RESIGN_DEADLINE: Duration = Duration::from_secs(2);

/// Makes passes until a signal says that it is enough.
///
/// # Errors
/// Why it cannot begin, in words.
pub async fn run(cli: &Cli, listen: &Listen) -> Result<(), String> {
    let place = Place::find(cli)?;
    let signals = Signals::new().map_err(|e| e.to_string())?;
    let every = cli.serve.every;
    let key = place.keys.lead(&place.cluster).map_err(|e| e.to_string())?;
    let ttl = (every * CLAIM_EVERIES).max(CLAIM_MIN);
    let patience = (every * PATIENCE_EVERIES).saturating_add(cli.common.timeout);
    let loops = Loop {
        cli,
        place: &place,
        candidate: Candidate { key, name: own_name(), ttl },
        told: Told(Arc::new(Mutex::new(State::new(patience)))),
    };
    let listener = listen::bind(listen).await.map_err(|e| format!("cannot listen: {e}"))?;
    if let Ok(address) = listener.local_addr() {
        tracing::info!(%address, cluster = place.cluster, name = loops.candidate.name, "serving");
    }
    let server = tokio::spawn(listen::serve(listener, loops.told.clone()));
    loops.run(signals).await;
    server.abort();
    Ok(())
}

/// The pod's name or the machine's, for people; random, so that a restart is another.
fn own_name() -> String {
    let given = std::env::var("POD_NAME").ok().filter(|name| !name.is_empty());
    let machine = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = given.or_else(machine).unwrap_or_default();
    format!("{}-{:016x}", name.trim(), random())
}

/// What asks this process to end.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        let terminate = signal(SignalKind::terminate())?;
        Ok(Self { terminate, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn asked(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// The passes and what they need.
struct Loop<'a> {
    cli: &'a Cli,
    place: &'a Place,
    candidate: Candidate,
    told: Told,
}

/// What a look at the lead came to.
enum Turn {
    /// This process makes the pass; with it a connection to keep the lead by, which a dry run has not.
    Lead(Option<Box<Store>>),
    /// Another one does.
    StandBy(Box<Watching>),
}

/// An open watch and the connection that it lives by.
struct Watching {
    watch: EtcdWatch,
    _kv: Store,
}

/// Until when to rest.
struct Rest {
    until: Instant,
    /// Ends it earlier.
    watching: Option<Box<Watching>>,
}

impl Rest {
    async fn over(self) {
        let Some(mut watching) = self.watching else { return sleep_until(self.until).await };
        // A watch that ends at once, again and again, must not keep this process busy.
        let changed = async { tokio::join!(watching.watch.changed(), sleep(STAND_BY_MIN)) };
        tokio::select! {
            () = sleep_until(self.until) => {}
            _ = changed => {}
        }
    }
}

impl Loop<'_> {
    async fn run(&self, mut signals: Signals) {
        loop {
            let mut turn = pin!(self.turn());
            let rest = tokio::select! {
                rest = &mut turn => rest,
                () = signals.asked() => {
                    // What does not come to its end in time is like a pass that was killed.
                    if timeout(LAST_PASS, turn).await.is_err() {
                        tracing::warn!("a pass was given up");
                    }
                    break;
                }
            };
            tokio::select! {
                () = rest.over() => {}
                () = signals.asked() => break,
            }
        }
        self.resign().await;
        tracing::info!("ended as asked");
    }

    /// Looks whose turn it is, and makes a pass if it is this one's.
    async fn turn(&self) -> Rest {
        let until = Instant::now() + self.cli.serve.every;
        let watching = match self.stand().await {
            Ok(Turn::StandBy(watching)) => Some(watching),
            Ok(Turn::Lead(kv)) => {
                let ended = tokio::select! {
                    ended = once::pass(self.place, self.cli) => ended,
                    never = self.keep_lead(kv) => match never {},
                };
                self.ended(&ended);
                None
            }
            Err(why) => {
                self.ended(&Ended::before_it_began(why));
                None
            }
        };
        Rest { until, watching }
    }

    /// Finds out whose turn it is.
    async fn stand(&self) -> Result<Turn, String> {
        if self.cli.common.dry_run {
            self.told.state().leads(&self.candidate.name);
            return Ok(Turn::Lead(None));
        }
        let kv = self.place.etcd()?;
        let until = Instant::now() + CLAIM_DEADLINE;
        // Opened first: what happens after the look is not missed.
        let watch = kv.watch(&self.candidate.key, until).await.map_err(|e| e.to_string())?;
        match self.candidate.claim(&kv, until).await.map_err(|e| e.to_string())? {
            Standing::Leader => {
                self.told.state().leads(&self.candidate.name);
                Ok(Turn::Lead(Some(Box::new(kv))))
            }
            Standing::Follower(name) => {
                self.told.state().stands_by(&name);
                Ok(Turn::StandBy(Box::new(Watching { watch, _kv: kv })))
            }
        }
    }

    /// Claims the lead again and again while a pass is under way. Should another have taken it, the pass
    /// goes on: two at once are safe.
    async fn keep_lead(&self, kv: Option<Box<Store>>) -> Infallible {
        let Some(kv) = kv else { return pending().await };
        loop {
            sleep(self.cli.serve.every).await;
            let claim = self.candidate.claim(&*kv, Instant::now() + CLAIM_DEADLINE).await;
            tracing::debug!(?claim, "claimed during a pass");
        }
    }

    /// The next one need not wait for the lease to end.
    async fn resign(&self) {
        if !self.told.state().is_leader() || self.cli.common.dry_run {
            return;
        }
        let Ok(kv) = self.place.etcd() else { return };
        let until = Instant::now() + RESIGN_DEADLINE;
        if !matches!(timeout(RESIGN_DEADLINE, self.candidate.resign(&kv, until)).await, Ok(Ok(()))) {
            tracing::warn!("the lead could not be given up: it ends with its lease");
        }
    }

    /// Tells what came of a pass.
    fn ended(&self, ended: &Ended) {
        let mut state = self.told.state();
        state.ended(ended);
        if let Some(path) = &self.cli.pass.metrics_file {
            state.metrics.write(path);
        }
        drop(state);
        let report = &ended.report;
        let Scanned { owners, addresses, pods, nodes } = report.scanned;
        let took_ms = ended.took.as_millis() as u64;
        match &ended.trouble {
            None if report.held.is_some() => {
                tracing::info!(why = report.held, took_ms, "nothing was done: a migration is under way");
            }
            None => tracing::info!(
                owners,
                addresses,
                pods,
                nodes,
                orphans = report.orphans,
                freed = report.freed.len(),
                took_ms,
                "pass done"
            ),
            Some(why) => {
                tracing::error!(outcome = ended.outcome().name(), %why, freed = report.freed.len(), took_ms, "pass failed");
            }
        }
    }
}

/// What the server tells: of the passes so far, and whether all is well.
struct State {
    metrics: Metrics,
    /// Who leads, as far as it is known.
    leader: Option<String>,
    is_leader: bool,
    /// When something went as it should: a pass, or finding another one in the lead.
    good: Instant,
    /// For how long nothing may.
    patience: Duration,
    /// What went wrong last.
    trouble: String,
}

impl State {
    /// The start counts as good: the first pass has its time.
    fn new(patience: Duration) -> Self {
        Self {
            metrics: Metrics::of_many_passes(),
            leader: None,
            is_leader: false,
            good: Instant::now(),
            patience,
            trouble: "there was none yet".to_owned(),
        }
    }

    fn is_leader(&self) -> bool {
        self.is_leader
    }

    fn leads(&mut self, name: &str) {
        if !std::mem::replace(&mut self.is_leader, true) {
            tracing::info!("leading: the passes are this process's");
        }
        self.leader = Some(name.to_owned());
        self.metrics.leads(true);
    }

    fn stands_by(&mut self, name: &str) {
        if self.leader.as_deref() != Some(name) {
            tracing::info!(leader = name, "standing by");
        }
        self.leader = Some(name.to_owned());
        self.is_leader = false;
        self.metrics.leads(false);
        self.good = Instant::now();
    }

    fn ended(&mut self, ended: &Ended) {
        self.metrics.ended(ended);
        // One that was braked looked at everything: to start this process anew would change nothing.
        if ended.outcome() != Outcome::Failure {
            self.good = Instant::now();
        }
        if let Some(why) = &ended.trouble {
            self.trouble = why.to_string();
        }
    }

    fn health(&self) -> Page {
        let ago = self.good.elapsed();
        if ago <= self.patience {
            return Page::text(StatusCode::OK, "ok");
        }
        let ago = humantime::format_duration(Duration::from_secs(ago.as_secs()));
        let text = format!("no pass has come to its end for {ago}; the last trouble: {}", self.trouble);
        Page::text(StatusCode::SERVICE_UNAVAILABLE, &text)
    }

    fn metrics(&self) -> Page {
        Page { status: StatusCode::OK, kind: metrics::CONTENT_TYPE, body: self.metrics.text() }
    }
}

/// The state, which the server and the passes share.
#[derive(Clone)]
struct Told(Arc<Mutex<State>>);

impl Told {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pages for Told {
    fn page(&self, path: &str) -> Option<Page> {
        match path {
            "/metrics" => Some(self.state().metrics()),
            "/healthz" => Some(self.state().health()),
            _ => None,
        }
    }
}
