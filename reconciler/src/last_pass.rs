//! The result of a pass in etcd. A CronJob's pod is gone when Prometheus asks: the viewer shows what it has left.

use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

use metes_core::pool::{ClusterName, PassRecord, Record};
use metes_core::txn::{Compare, Op, Txn};
use metes_engine::kv::Kv;
use metes_engine::prefix;
use metes_engine::session::Session;

use crate::context::read;
use crate::ended::{Ended, Trouble};
use crate::error::RunError;
use crate::holds::HoldState;
use crate::pass::PassError;
use crate::report::{PassReport, of};
use crate::verdict::{Free, Keep};

/// The most networks with lacking addresses that a record names.
const LACKING_MAX: usize = 100;

/// Leaves the result of a pass for the viewer. A failure is only logged, because the work of the pass is done.
pub(crate) async fn leave<K: Kv>(session: Session<'_, K>, cluster: &ClusterName, ended: &Ended) {
    // The record is that of the cluster whose name it is.
    if matches!(ended.trouble, Some(Trouble::Pass(PassError::Run(RunError::OtherCluster { .. })))) {
        return;
    }
    if let Err(why) = try_to_leave(session, cluster, &record(ended)).await {
        tracing::warn!(%why, "the result of the pass cannot be left in etcd");
    }
}

/// A store for newer programs, and a record that does not decode, stay as they are; so does the result of a pass that
/// has ended meanwhile.
async fn try_to_leave<K: Kv>(
    session: Session<'_, K>,
    cluster: &ClusterName,
    record: &PassRecord,
) -> Result<(), RunError> {
    prefix::read(session).await?;
    let key = session.keys.pass(cluster);
    let (_, revision) = read::<K, PassRecord>(session, &key).await?;
    let txn = Txn {
        step: "last-pass",
        compares: vec![Compare::Mod(key.clone(), revision)],
        then: vec![Op::Put(key, record.encode(), None)],
        ..Txn::default()
    };
    session.txn(&txn).await?;
    Ok(())
}

/// The result of a pass, as it is stored.
#[must_use]
pub fn record(ended: &Ended) -> PassRecord {
    let report = &ended.report;
    let figures = [
        ("owners", report.scanned.owners),
        ("reservations", report.scanned.addresses),
        ("pods", report.scanned.pods),
        ("nodes", report.scanned.nodes),
        ("orphans", report.orphans),
        ("holds", report.holds.found),
        ("holds_ended", report.holds.ended),
        ("stray", report.stray_bits),
    ];
    let mut record = PassRecord::new(ended.outcome().name().to_owned());
    record.suspect = matches!(ended.trouble, Some(Trouble::Pass(PassError::Run(RunError::Suspect(_)))));
    record.at_ms = ended.at.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
    record.took_ms = ended.took.as_millis() as u64;
    record.figures = named(figures);
    record.by = BTreeMap::from(by(report).map(|(name, figures)| (name.to_owned(), figures)));
    record
}

type Figures = BTreeMap<String, u64>;

/// All reasons and states are there, also those that met nothing.
fn by(report: &PassReport) -> [(&'static str, Figures); 7] {
    let freed = report.freed_by_reason();
    let repaired = [
        ("bits_cleared", report.repaired.cleared),
        ("bits_set", report.repaired.set),
        ("summaries", report.repaired.summaries),
        ("stale_deleted", report.repaired.deleted),
        ("empty_deleted", report.repaired.emptied),
    ];
    let lacking = report.lacking.by_network().into_iter().take(LACKING_MAX);
    [
        ("kept", named(Keep::ALL.map(|why| (why.name(), of(&report.kept, why))))),
        ("freed", named(Free::ALL.map(|why| (why.name(), of(&freed, why))))),
        (
            "holds_of_pods",
            named(HoldState::ALL.map(|state| (state.name(), of(&report.holds_of_pods, state)))),
        ),
        ("lacking", lacking.map(|(network, count)| (network.to_string(), count as u64)).collect()),
        ("repaired", named(repaired)),
        ("violations", named(report.violations.clone())),
        ("certificates", report.certificates.iter().map(|(name, end)| ((*name).to_owned(), *end)).collect()),
    ]
}

fn named(figures: impl IntoIterator<Item = (&'static str, usize)>) -> Figures {
    figures.into_iter().map(|(name, count)| (name.to_owned(), count as u64)).collect()
}
