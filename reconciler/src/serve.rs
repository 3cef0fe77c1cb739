//! Makes passes again and again, for a Deployment: one of its processes leads and makes them, the others stand by.

use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;
use std::time::Duration;

use metes_core::limits;
use metes_engine::kv::{Kv, Watch};
use metes_engine::random::random;
use metes_etcd::Store;
use metes_etcd::client::EtcdWatch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::cli::Cli;
use crate::ended::{Ended, PassOutcome, Trouble};
use crate::exposition::Exposition;
use crate::lead::{Candidate, Leadership};
use crate::listen::{self, Listen, Page, bad, good};
use crate::metrics::Totals;
use crate::once::{self, Place};
use crate::pass::PassError;
use crate::report::PassScan;
use crate::shared::{Shared, Shown};
use crate::signals::Signals;

/// A claim of the lead lasts for this many times --every. It is renewed at least once in each of them.
const CLAIM_EVERIES: u32 = 2;
/// etcd grants no shorter lease.
const CLAIM_MIN: Duration = Duration::from_secs(2);
/// The longest time for finding the leader.
const CLAIM_DEADLINE: Duration = limits::UNREACHABLE;
/// The shortest pause of a process that stands by, however often the key changes.
const STAND_BY_MIN: Duration = Duration::from_millis(200);
/// Something is wrong if there was no good pass for this many times --every plus the time of one pass.
const PATIENCE_EVERIES: u32 = 3;
/// The time that a turn may take on top of its pause and its pass. In this time it finds the leader and reports freed
/// pods.
const TURN_MORE: Duration = Duration::from_secs(30);
/// The longest time that a pass may continue after a signal to end.
const LAST_PASS: Duration = Duration::from_secs(3);
/// The longest time for giving up the lead.
const RESIGN_DEADLINE: Duration = Duration::from_secs(2);

/// Makes passes until a signal asks it to end.
///
/// # Errors
/// Why it cannot begin, in words.
pub async fn run(cli: &Cli, listen: &Listen) -> Result<(), String> {
    let Place { cluster, .. } = Place::find(cli)?;
    let signals = Signals::new().map_err(|e| e.to_string())?;
    let every = cli.serve.every;
    let patience = (every * PATIENCE_EVERIES).saturating_add(cli.common.timeout);
    let loops = Loop { cli, name: own_name(), told: Shared::new(ServeState::new(patience)) };
    let listener =
        listen::bind(listen).await.map_err(|e| format!("--listen {listen}: cannot listen: {e}"))?;
    if let Ok(address) = listener.local_addr() {
        tracing::info!(%address, %cluster, name = loops.name, "serving");
    }
    let server = tokio::spawn(listen::serve(listener, loops.told.clone()));
    loops.run(signals).await;
    server.abort();
    Ok(())
}

/// The name of the pod or of the machine, for people, and a random part, so that a restarted process has another name.
fn own_name() -> String {
    let given = std::env::var("POD_NAME").ok().filter(|name| !name.is_empty());
    let machine = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = given.or_else(machine).unwrap_or_default();
    format!("{}-{:016x}", name.trim(), random())
}

/// The passes, and their needs.
struct Loop<'a> {
    cli: &'a Cli,
    /// Its name as a candidate.
    name: String,
    told: Shared<ServeState>,
}

/// The result of a look at the lead.
enum Turn {
    /// This process makes the pass. The connection is for keeping the lead; a dry run has none.
    Lead(Option<Box<Store>>),
    /// Another process makes it.
    StandBy(Box<Watching>),
}

/// An open watch, and the connection that it needs.
struct Watching {
    watch: EtcdWatch,
    _kv: Store,
}

/// The pause between two turns.
struct Rest {
    until: Instant,
    /// A change of this key ends the pause earlier.
    watching: Option<Box<Watching>>,
}

impl Rest {
    async fn over(self) {
        let Some(mut watching) = self.watching else { return sleep_until(self.until).await };
        // A watch that ends at once, again and again, must not keep this process busy.
        let changed = async { tokio::join!(watching.watch.next(), sleep(STAND_BY_MIN)) };
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
                    // A pass that does not end in time is like one that was killed.
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

    /// Looks who leads, and makes a pass if this process does.
    async fn turn(&self) -> Rest {
        let until = Instant::now() + self.cli.serve.every;
        let watching = self.try_turn().await.unwrap_or_else(|trouble| {
            self.ended(&Ended::before_it_began(trouble));
            None
        });
        Rest { until, watching }
    }

    /// Endpoints, certificates and everything else in the host file may have changed since the last pass.
    async fn try_turn(&self) -> Result<Option<Box<Watching>>, Trouble> {
        let place = Place::find_again(self.cli).map_err(Trouble::Setup)?;
        let candidate = self.candidate(&place)?;
        match self.stand(&place, &candidate).await? {
            Turn::StandBy(watching) => Ok(Some(watching)),
            Turn::Lead(kv) => {
                let ended = tokio::select! {
                    ended = once::pass(&place, self.cli) => ended,
                    never = self.keep_lead(&candidate, kv) => match never {},
                };
                self.ended(&ended);
                Ok(None)
            }
        }
    }

    fn candidate(&self, place: &Place) -> Result<Candidate, Trouble> {
        let key = place.keys.lead(&place.cluster);
        let ttl = (self.cli.serve.every * CLAIM_EVERIES).max(CLAIM_MIN);
        Ok(Candidate { key, name: self.name.clone(), ttl })
    }

    /// Finds out who leads.
    async fn stand(&self, place: &Place, candidate: &Candidate) -> Result<Turn, Trouble> {
        if self.cli.common.dry_run {
            self.told.state().leads(&self.name);
            return Ok(Turn::Lead(None));
        }
        let kv = place.etcd().map_err(Trouble::Setup)?;
        let until = Instant::now() + CLAIM_DEADLINE;
        // The watch is opened before the look, so that no later change is missed.
        let watch = kv.watch(std::slice::from_ref(&candidate.key), until).await.map_err(PassError::from)?;
        match candidate.claim(&kv, until).await.map_err(PassError::from)? {
            Leadership::Leader => {
                self.told.state().leads(&self.name);
                Ok(Turn::Lead(Some(Box::new(kv))))
            }
            Leadership::Follower(name) => {
                self.told.state().stands_by(&name);
                Ok(Turn::StandBy(Box::new(Watching { watch, _kv: kv })))
            }
        }
    }

    /// Claims the lead again and again during a pass. If another process has taken it, the pass goes on: two passes at
    /// once are safe.
    async fn keep_lead(&self, candidate: &Candidate, kv: Option<Box<Store>>) -> Infallible {
        let Some(kv) = kv else { return pending().await };
        loop {
            sleep(self.cli.serve.every).await;
            let claim = candidate.claim(&*kv, Instant::now() + CLAIM_DEADLINE).await;
            tracing::debug!(?claim, "claimed during a pass");
        }
    }

    /// Gives up the lead, so that the next process need not wait for the lease to end.
    async fn resign(&self) {
        if !self.told.state().is_leader() || self.cli.common.dry_run {
            return;
        }
        if self.try_to_resign().await.is_none() {
            tracing::warn!("the lead could not be given up: it ends with its lease");
        }
    }

    async fn try_to_resign(&self) -> Option<()> {
        let place = Place::find_again(self.cli).ok()?;
        let candidate = self.candidate(&place).ok()?;
        let kv = place.etcd().ok()?;
        let until = Instant::now() + RESIGN_DEADLINE;
        timeout(RESIGN_DEADLINE, candidate.resign(&kv, until)).await.ok()?.ok()
    }

    /// Reports the result of a pass.
    fn ended(&self, ended: &Ended) {
        self.told.state().ended(ended);
        let report = &ended.report;
        let PassScan { owners, addresses, pods, nodes } = report.scanned;
        let took_ms = ended.took.as_millis() as u64;
        match &ended.trouble {
            None if report.paused.is_some() => {
                tracing::info!(why = report.paused, took_ms, "nothing was done: a migration is under way");
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
                let (outcome, freed) = (ended.outcome().name(), report.freed.len());
                tracing::error!(outcome, %why, freed, took_ms, "pass failed");
            }
        }
    }
}

/// The state that the server reports: the passes so far, and their health.
struct ServeState {
    totals: Totals,
    /// The name of the leader, if it is known.
    leader: Option<String>,
    /// The last time that something went well: a pass, or a look that found another process in the lead.
    good: Instant,
    /// When the last turn ended, whatever its result.
    turned: Instant,
    /// Since when no pass can even begin.
    unable: Option<Instant>,
    /// The longest time without anything going well.
    patience: Duration,
    /// The last thing that went wrong.
    trouble: String,
}

impl ServeState {
    /// The start counts as good, so that there is time for the first pass.
    fn new(patience: Duration) -> Self {
        Self {
            totals: Totals::default(),
            leader: None,
            good: Instant::now(),
            turned: Instant::now(),
            unable: None,
            patience,
            trouble: "there was none yet".to_owned(),
        }
    }

    fn is_leader(&self) -> bool {
        self.totals.leads
    }

    fn leads(&mut self, name: &str) {
        if !std::mem::replace(&mut self.totals.leads, true) {
            tracing::info!("leading: the passes are this process's");
        }
        self.leader = Some(name.to_owned());
    }

    fn stands_by(&mut self, name: &str) {
        if self.leader.as_deref() != Some(name) {
            tracing::info!(leader = name, "standing by");
        }
        self.leader = Some(name.to_owned());
        self.totals.leads = false;
        self.good = Instant::now();
        self.turned = self.good;
        self.unable = None;
    }

    fn ended(&mut self, ended: &Ended) {
        self.totals.ended(ended);
        self.turned = Instant::now();
        self.unable = match &ended.trouble {
            Some(Trouble::Setup(_)) => self.unable.or(Some(self.turned)),
            _ => None,
        };
        // A pass that the brake stopped has looked at everything.
        if ended.outcome() != PassOutcome::Failure {
            self.good = self.turned;
        }
        if let Some(why) = &ended.trouble {
            self.trouble = why.to_string();
        }
    }
}

impl Shown for ServeState {
    /// Good while passes go well.
    fn readiness(&self) -> Page {
        match self.good.elapsed() {
            ago if ago <= self.patience => good(),
            ago => bad(&format!("no pass has finished for {}; the last error: {}", whole(ago), self.trouble)),
        }
    }

    /// Bad if it may help to start this process again. It may help if files cannot be used, because they may be others
    /// after a restart, or if a turn does not end. It does not help if etcd or the API fails, or if their answers stop
    /// a pass: the next pass asks both again.
    fn health(&self) -> Page {
        let unable = self.unable.map(|since| since.elapsed()).unwrap_or_default();
        match self.turned.elapsed() {
            ago if ago > self.patience + TURN_MORE => {
                bad(&format!("nothing has finished for {}, with or without success", whole(ago)))
            }
            _ if unable > self.patience => {
                bad(&format!("no pass can begin for {}: {}", whole(unable), self.trouble))
            }
            _ => good(),
        }
    }

    fn metrics(&self) -> Page {
        let mut text = Exposition::default();
        self.totals.expose(&mut text);
        Page::metrics(text.into_text())
    }
}

/// Cuts off parts of a second, for people.
pub(crate) fn whole(time: Duration) -> humantime::FormattedDuration {
    humantime::format_duration(Duration::from_secs(time.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ApiError;
    use crate::report::PassReport;

    const PATIENCE: Duration = Duration::from_secs(100);
    const STEP: Duration = Duration::from_secs(90);

    fn passed(trouble: Option<Trouble>) -> Ended {
        let took = Duration::ZERO;
        Ended { report: PassReport::default(), trouble, took, at: std::time::SystemTime::UNIX_EPOCH }
    }

    fn api_is_down() -> Option<Trouble> {
        let down = ApiError { asked: "list pods".to_owned(), why: "refused".to_owned() };
        Some(Trouble::Pass(down.into()))
    }

    fn files_are_bad() -> Option<Trouble> {
        Some(Trouble::Setup("no such file".to_owned()))
    }

    /// The statuses of /healthz and /readyz.
    fn pages(state: &ServeState) -> [u16; 2] {
        [state.health(), state.readiness()].map(|page| page.status.as_u16())
    }

    /// The statuses after passes that end in this way, one pass in each step.
    async fn after(troubles: impl IntoIterator<Item = Option<Trouble>>) -> [u16; 2] {
        let mut state = ServeState::new(PATIENCE);
        for trouble in troubles {
            tokio::time::advance(STEP).await;
            state.ended(&passed(trouble));
        }
        pages(&state)
    }

    #[tokio::test(start_paused = true)]
    async fn health_fails_only_where_a_restart_may_help() {
        let brake = || Some(Trouble::Pass(PassError::Brake { orphans: 60, records: 60, limit: 50 }));
        assert_eq!(after([]).await, [200, 200]);
        assert_eq!(after([None, None, None]).await, [200, 200]);
        assert_eq!(after([brake(), brake(), brake()]).await, [200, 200]);
        assert_eq!(after([None, api_is_down(), api_is_down()]).await, [200, 503]);
        assert_eq!(after([None, files_are_bad(), files_are_bad()]).await, [200, 503]);
        assert_eq!(after([None, files_are_bad(), files_are_bad(), files_are_bad()]).await, [503, 503]);
        let files_then_api = [files_are_bad(), files_are_bad(), api_is_down(), files_are_bad()];
        assert_eq!(after(files_then_api).await, [200, 503]);
    }

    #[tokio::test(start_paused = true)]
    async fn health_fails_when_nothing_comes_to_its_end() {
        let mut state = ServeState::new(PATIENCE);
        let why = |state: &ServeState| state.health().body;
        tokio::time::advance(PATIENCE + TURN_MORE).await;
        assert_eq!(pages(&state), [200, 503]);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(pages(&state), [503, 503]);
        assert!(why(&state).contains("nothing has finished for 2m 11s"), "{}", why(&state));
        // A process that stands by looks who leads.
        state.stands_by("another");
        assert_eq!(pages(&state), [200, 200]);
        tokio::time::advance(PATIENCE + TURN_MORE + Duration::from_secs(1)).await;
        assert_eq!(pages(&state), [503, 503]);
        state.ended(&passed(api_is_down()));
        assert_eq!(pages(&state), [200, 503]);
    }
}
