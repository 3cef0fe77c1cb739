//! Serves metrics of what is in etcd: the last pass, the addresses of each range, and the snapshots of its members. It
//! only reads, and does not ask Kubernetes.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use metes_audit::audit_bits;
use metes_core::keys::Key;
use metes_core::pool::{ClusterName, MemberRecord, Owner, OwnerRecord, PassRecord, Record};
use metes_core::txn::Entry;
use metes_engine::kv::{Failure, Kv};
use metes_engine::session::Session;
use metes_engine::walk::walk;
use tokio::time::{Instant, sleep};

use crate::cli::{Cli, ViewArgs};
use crate::context;
use crate::error::RunError;
use crate::exposition::Exposition;
use crate::listen::{self, Page};
use crate::metrics;
use crate::once::Place;
use crate::range_metrics::RangeRows;
use crate::serve::whole;
use crate::shared::{Shared, Shown};
use crate::signals::Signals;

/// The longest time for one read of etcd.
const READ: Duration = Duration::from_secs(30);
/// Something is wrong if no read was good, or none has ended, for this time.
const PATIENCE: Duration = Duration::from_secs(300);

/// Reads and serves until a signal asks it to end.
///
/// # Errors
/// Why it cannot begin, in words.
pub(crate) async fn run(cli: &Cli, args: &ViewArgs) -> Result<(), String> {
    let Place { cluster, .. } = Place::find(cli)?;
    let mut signals = Signals::new().map_err(|e| e.to_string())?;
    let listener = listen::bind(&args.listen)
        .await
        .map_err(|e| format!("--listen {}: cannot listen: {e}", args.listen))?;
    if let Ok(address) = listener.local_addr() {
        tracing::info!(%address, %cluster, "serving");
    }
    let shown = Shared::new(ViewState::new());
    let reads = async {
        loop {
            let read = read(cli).await;
            shown.state().ended(read);
            sleep(args.every).await;
        }
    };
    tokio::select! {
        () = signals.asked() => Ok(()),
        never = reads => never,
        never = listen::serve(listener, shown.clone()) => match never {},
    }
}

/// All metrics of what is in etcd. The host file and the certificates may have been replaced since the last read.
async fn read(cli: &Cli) -> Result<Exposition, String> {
    let place = Place::find_again(cli)?;
    let kv = place.etcd()?;
    let session = Session { kv: &kv, keys: &place.keys, until: Instant::now() + READ };
    read_from(session, &place.cluster).await.map_err(|e| e.to_string())
}

async fn read_from<K: Kv>(session: Session<'_, K>, cluster: &ClusterName) -> Result<Exposition, RunError> {
    let mut text = Exposition::default();
    match context::read::<K, PassRecord>(session, &session.keys.pass(cluster)).await {
        Ok((pass, _)) => pass.iter().for_each(|pass| metrics::expose(pass, &mut text)),
        // The rest is worth showing.
        Err(RunError::Bad(bad)) => tracing::warn!(%bad, "the last pass cannot be shown"),
        Err(why) => return Err(why),
    }
    let idle = idle(session, cluster).await?;
    let report = audit_bits(session, idle).await?;
    RangeRows::of(report.ranges).expose(&mut text);
    expose_members(session, &mut text).await?;
    Ok(text)
}

/// The owners that nobody uses, as far as etcd says it: those that the last pass saw as orphans, and holds without an
/// end that have no user.
async fn idle<K: Kv>(session: Session<'_, K>, cluster: &ClusterName) -> Result<BTreeSet<Owner>, Failure> {
    let keys = session.keys;
    let see = |idle: &mut BTreeSet<Owner>, entry: Entry| match keys.parse(&entry.key) {
        Ok(Key::Orphan(owner)) => _ = idle.insert(owner),
        Ok(Key::Owner(owner)) if is_endless(&owner, &entry.value) => _ = idle.insert(owner),
        _ => {}
    };
    let (mut idle, _) = walk(session, &keys.orphans(cluster), BTreeSet::new, see).await?;
    idle.extend(walk(session, &keys.pod_holds(cluster), BTreeSet::new, see).await?.0);
    let see = |used: &mut BTreeSet<Owner>, entry: Entry| {
        used.extend(keys.parse(&entry.key).ok().and_then(|key| match key {
            Key::Seat(seat) => Some(seat.hold),
            _ => None,
        }));
    };
    let (used, _) = walk(session, &keys.seats(), BTreeSet::new, see).await?;
    idle.retain(|owner| !used.contains(owner));
    Ok(idle)
}

/// True for a hold for pods that a person must end.
fn is_endless(owner: &Owner, record: &[u8]) -> bool {
    let hold = || OwnerRecord::decode(record).ok()?.hold;
    owner.is_for_subject() && hold().is_some_and(|hold| hold.seconds.is_none())
}

/// What the members of etcd say of themselves; nothing where metes does not run them.
async fn expose_members<K: Kv>(session: Session<'_, K>, text: &mut Exposition) -> Result<(), Failure> {
    let see = |members: &mut Vec<(String, MemberRecord)>, entry: Entry| {
        if let (Ok(Key::Member(ip)), Ok(member)) =
            (session.keys.parse(&entry.key), MemberRecord::decode(&entry.value))
        {
            members.push((ip.to_string(), member));
        }
    };
    let (members, _) = walk(session, &session.keys.members(), Vec::new, see).await?;
    let help = "When a member of etcd took its last snapshot; 0 if it has none.";
    let snapshots = members.iter().map(|(ip, member)| (ip, member.snapshot.unwrap_or_default()));
    text.labelled("metes_etcd_snapshot_timestamp_seconds", "gauge", help, "member", snapshots);
    let help = "When the first certificate of a member of etcd ends.";
    let ends = members.iter().filter_map(|(ip, member)| Some((ip, member.certificate_end?)));
    text.labelled("metes_etcd_certificate_not_after_timestamp_seconds", "gauge", help, "member", ends);
    Ok(())
}

/// The metrics of the last good read, and how the reads go.
struct ViewState {
    /// Already formatted; empty before the first good read.
    figures: String,
    /// When that read ended.
    read_at: Option<SystemTime>,
    /// The same, or the start, for the time since then.
    good: Instant,
    /// When the last read ended, whatever its result.
    turned: Instant,
    /// Why the last read failed.
    trouble: Option<String>,
}

impl ViewState {
    fn new() -> Self {
        let (good, trouble) = (Instant::now(), Some("there was no read yet".to_owned()));
        Self { figures: String::new(), read_at: None, good, turned: good, trouble }
    }

    fn ended(&mut self, read: Result<Exposition, String>) {
        self.turned = Instant::now();
        match read {
            Ok(figures) => {
                self.figures = figures.into_text();
                self.read_at = Some(SystemTime::now());
                self.good = self.turned;
                self.trouble = None;
            }
            Err(why) => {
                tracing::error!(%why, "etcd cannot be read: the last figures stay");
                self.trouble = Some(why);
            }
        }
    }
}

impl Shown for ViewState {
    fn metrics(&self) -> Page {
        let mut text = Exposition(self.figures.clone());
        text.gauge(
            "metes_viewer_last_read_success",
            "Whether the last read of etcd was good.",
            u8::from(self.trouble.is_none()),
        );
        if let Some(at) = self.read_at {
            let at = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
            text.gauge("metes_viewer_last_read_timestamp_seconds", "When the last good read ended.", at);
        }
        Page::metrics(text.into_text())
    }

    /// Good from the first good read, and while reads are good.
    fn readiness(&self) -> Page {
        match &self.trouble {
            Some(why) if self.read_at.is_none() || self.good.elapsed() > PATIENCE => {
                listen::bad(&format!("no good read of etcd for {}: {why}", whole(self.good.elapsed())))
            }
            _ => listen::good(),
        }
    }

    /// Bad only where a restart may help.
    fn health(&self) -> Page {
        match self.turned.elapsed() {
            ago if ago > PATIENCE => listen::bad(&format!("no read has ended for {}", whole(ago))),
            _ => listen::good(),
        }
    }
}
