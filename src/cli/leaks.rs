//! `metes leaks`: owners whose containers are probably gone, by what etcd alone knows.
//!
//! What counts is judged elsewhere: by the reconciler, whose sightings are read, and by its rule for replaced
//! sandboxes.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;

use super::args::LeaksArgs;
use super::inventory::{COLUMNS as ROW_COLUMNS, Inventory, Row};
use super::list::tell_unreadable;
use super::table::{CellForm, Column, Listed};
use super::{CliError, Context, Terminal};
use crate::pool::record::{Owner, OwnerRecord, Record, Sighting};
use crate::store::free;
use crate::store::keys::{Key, Keys, LeaseId};
use crate::store::kv::{Failure, Kv};
use crate::store::snapshot::Snapshot;
use crate::store::txn::Entry;
use crate::store::walk::walk;

/// Lists the addresses of owners that are suspected to be gone, with why.
pub(super) async fn leaks<K: Kv>(
    context: &Context<'_, K>,
    args: &LeaksArgs,
    terminal: &mut Terminal<'_>,
) -> Result<ExitCode, CliError> {
    let failed = || CliError::store("look for leaked addresses");
    let session = context.session;
    let keys = session.keys;
    let see = |evidence: &mut Evidence, entry: Entry| evidence.see(keys, entry);
    let walked = walk(session, &keys.root(), Evidence::new, see).await;
    let (mut evidence, _) = walked.map_err(failed())?;
    let sightings = ages(context, std::mem::take(&mut evidence.sightings)).await.map_err(failed())?;
    let inventory = std::mem::take(&mut evidence.inventory).sorted();
    tell_unreadable(&inventory, args.filter.network.as_ref(), terminal);
    let reasons = evidence.judge(keys, sightings);
    let leaked = |row: &'_ Row| Some(reasons.get(row.container()?)?.join("; "));
    let wanted = inventory.rows.iter().filter(|row| row.is_wanted(&args.filter));
    let rows = wanted.filter_map(|row| leaked(row).map(|why| LeakedRow { row, why })).collect();
    terminal.list(&COLUMNS, rows, &args.output)?;
    Ok(ExitCode::SUCCESS)
}

/// The reason for which the reconciler notes owners that belong to no pod.
const UNLABELLED: &str = "unlabelled";

/// What speaks for a leak, and what is held.
struct Evidence {
    inventory: Inventory,
    /// Each owner with its record and the record's mod revision.
    records: Vec<(Owner, OwnerRecord, i64)>,
    pod_index: Snapshot,
    /// What the reconciler has noted, each with its lease.
    sightings: Vec<(Owner, Sighting, i64)>,
}

impl Evidence {
    fn new() -> Self {
        Self {
            inventory: Inventory::default(),
            records: Vec::new(),
            pod_index: Snapshot::default(),
            sightings: Vec::new(),
        }
    }

    fn see(&mut self, keys: &Keys, entry: Entry) {
        self.inventory.see(keys, &entry);
        match keys.parse(&entry.key) {
            Ok(Key::Owner(owner)) => {
                let record = OwnerRecord::decode(&entry.value).ok();
                self.records.extend(record.map(|record| (owner, record, entry.mod_revision)));
            }
            Ok(Key::Orphan(owner)) => {
                let sighting = Sighting::decode(&entry.value).ok();
                self.sightings.extend(sighting.map(|sighting| (owner, sighting, entry.lease)));
            }
            Ok(Key::Pod(_)) => self.pod_index.set(&entry.key.clone(), Some(entry)),
            _ => {}
        }
    }

    /// Why each owner is suspected, in words.
    fn judge(self, keys: &Keys, sightings: Vec<(Owner, Sighting, Duration)>) -> BTreeMap<Owner, Vec<String>> {
        let mut reasons: BTreeMap<Owner, Vec<String>> = BTreeMap::new();
        let mut suspect = |owner: &Owner, why: String| reasons.entry(owner.clone()).or_default().push(why);
        let revisions: BTreeMap<&Owner, i64> =
            self.records.iter().map(|(owner, _, revision)| (owner, *revision)).collect();
        for (owner, sighting, age) in &sightings {
            // Of a record that was written again since, it says nothing. Who belongs to no pod may well be running.
            if revisions.get(owner) == Some(&sighting.revision) && sighting.reason != UNLABELLED {
                let age = humantime::format_duration(*age);
                suspect(
                    owner,
                    format!("the reconciler has seen it as an orphan for {age} ({})", sighting.reason),
                );
            }
        }
        let boots = youngest_boots(&self.records);
        for (owner, record, _) in &self.records {
            let boot = record.start.as_ref().map(|start| start.boot.as_str());
            let has_lost_its_boot = boot.is_some_and(|boot| {
                boots.get(&machine_of(owner, record)).is_some_and(|(_, last)| *last != boot)
            });
            // One of the two is no proof: a DEL, or a sandbox that takes over, may still come.
            if has_lost_its_boot && free::is_replaced(keys, owner, record, &self.pod_index) {
                let why =
                    "its node was started again, and a younger sandbox of its pod has addresses of its own";
                suspect(owner, why.to_owned());
            }
        }
        reasons
    }
}

/// Machines may share a name.
type MachineOfNode<'a> = (Option<&'a str>, &'a str, &'a str);

fn machine_of<'a>(owner: &'a Owner, record: &'a OwnerRecord) -> MachineOfNode<'a> {
    (owner.cluster.as_ref().map(|cluster| cluster.as_str()), owner.node.as_str(), &record.machine)
}

/// The boot of each machine in which it wrote last, with the revision of that.
fn youngest_boots(records: &[(Owner, OwnerRecord, i64)]) -> BTreeMap<MachineOfNode<'_>, (i64, &str)> {
    let mut boots = BTreeMap::new();
    for (owner, record, revision) in records {
        let Some(start) = &record.start else { continue };
        let youngest = boots.entry(machine_of(owner, record)).or_insert((0, ""));
        *youngest = (*youngest).max((*revision, &start.boot));
    }
    boots
}

/// For how long the reconciler has noted owners as orphans: the age of the leases. One that has ended is left out.
async fn ages<K: Kv>(
    context: &Context<'_, K>,
    sightings: Vec<(Owner, Sighting, i64)>,
) -> Result<Vec<(Owner, Sighting, Duration)>, Failure> {
    let mut ages = BTreeMap::new();
    for lease in sightings.iter().map(|(_, _, lease)| *lease).collect::<BTreeSet<_>>() {
        let age = context.session.kv.lease_age(LeaseId(lease), context.session.until).await?;
        ages.insert(lease, age.map(|age| age.age()));
    }
    let age = |lease| ages.get(&lease).copied().flatten();
    Ok(sightings
        .into_iter()
        .filter_map(|(owner, sighting, lease)| Some((owner, sighting, age(lease)?)))
        .collect())
}

/// An address that may be leaked.
#[derive(Serialize)]
struct LeakedRow<'a> {
    #[serde(flatten)]
    row: &'a Row,
    why: String,
}

/// The columns of leaks.
pub(super) const COLUMNS: [Column; 12] = {
    let mut columns = [("WHY", CellForm::Text); 12];
    let mut at = 0;
    while at < ROW_COLUMNS.len() {
        columns[at] = ROW_COLUMNS[at];
        at += 1;
    }
    columns
};

impl Listed for LeakedRow<'_> {
    fn cells(&self) -> Vec<String> {
        let mut cells = self.row.cells();
        cells.push(self.why.clone());
        cells
    }

    /// Its owner, not its address: until that is freed, another container may have got the address.
    fn name(&self) -> String {
        let name = |Owner { cluster, node, container_id, ifname }: &Owner| {
            let cluster = cluster.as_ref().map_or("", |cluster| cluster.as_str());
            format!("{cluster}/{node}/{container_id}/{ifname}")
        };
        self.row.container().map(name).unwrap_or_default()
    }
}
