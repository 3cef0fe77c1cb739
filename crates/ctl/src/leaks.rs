//! `metes leaks`: owners whose containers are probably gone, by what etcd alone knows.
//!
//! Nothing is judged here. An owner counts by the reconciler's sightings, which are read, or by the reconciler's rule
//! for replaced sandboxes.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::filter::Filter;
use super::inventory::{COLUMNS as ROW_COLUMNS, Inventory, Row};
use super::list::{AskedNames, tell_unreadable};
use super::output::ListOutput;
use super::table::{CellForm, Column, Listed};
use super::{CliError, Context, Terminal};
use metes_core::keys::{Key, Keys};
use metes_core::limits;
use metes_core::plan::free;
use metes_core::pool::{ClusterName, Owner, OwnerRecord, Record, Sighting, UNLABELLED};
use metes_core::snapshot::Snapshot;
use metes_core::txn::Entry;
use metes_engine::kv::Kv;
use metes_engine::walk::walk;

#[derive(Debug, Args)]
pub(super) struct LeaksArgs {
    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    output: ListOutput,
}

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
    let walked = walk(session, &keys.root(), Evidence::default, see).await;
    let (mut evidence, _) = walked.map_err(failed())?;
    let leases = evidence.sightings.iter().map(|(.., lease)| *lease).collect();
    let ages = session.lease_ages(leases).await.map_err(failed())?;
    let inventory = std::mem::take(&mut evidence.inventory).sorted();
    tell_unreadable(&inventory, args.filter.network.as_ref(), terminal);
    let braked = evidence.braked(&ages);
    for (cluster, (orphans, records)) in &braked {
        let cluster = cluster.as_ref().map_or("-", |cluster| cluster.as_str());
        terminal.tell(&format!(
            "metes: {orphans} of {records} records of cluster {cluster} are orphans: the reconciler frees none of so \
             many, unless it runs with --force (its brake)"
        ));
    }
    let reasons = evidence.judge(keys, &ages, &braked);
    let leaked = |row: &'_ Row| Some(reasons.get(row.container()?)?.join("; "));
    let wanted = inventory.rows.iter().filter(|row| row.is_wanted(&args.filter));
    let rows: Vec<_> = wanted.filter_map(|row| leaked(row).map(|why| LeakedRow { row, why })).collect();
    if rows.is_empty() {
        let names = AskedNames::of(&args.filter);
        names.tell(context, &args.filter, &inventory, terminal).await.map_err(failed())?;
    }
    terminal.list(&COLUMNS, rows, &args.output)?;
    Ok(ExitCode::SUCCESS)
}

/// The signs of a leak, and the held addresses.
#[derive(Default)]
struct Evidence {
    inventory: Inventory,
    /// Each owner with its record and the record's mod revision.
    records: Vec<(Owner, OwnerRecord, i64)>,
    pod_index: Snapshot,
    /// The notes of the reconciler, each with its lease.
    sightings: Vec<(Owner, Sighting, i64)>,
}

impl Evidence {
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

    /// The reconciler's sightings that are about the present revision of a record, each with its age. `ages` has the
    /// ages of the leases that sightings are on.
    fn orphans(&self, ages: &BTreeMap<i64, Duration>) -> Vec<(&Owner, &Sighting, Duration)> {
        let revisions: BTreeMap<&Owner, i64> =
            self.records.iter().map(|(owner, _, revision)| (owner, *revision)).collect();
        let current = |(owner, sighting, lease): &'_ (Owner, Sighting, i64)| {
            // If the lease has ended, the sighting's age is unknown. If the record was written again since, the
            // sighting does not count.
            let age = *ages.get(lease)?;
            (revisions.get(owner) == Some(&sighting.revision)).then_some(age)
        };
        let sightings = self.sightings.iter();
        sightings.filter_map(|seen| Some((&seen.0, &seen.1, current(seen)?))).collect()
    }

    /// The clusters with so many orphans that a pass frees none of them, with how many orphans and records there are.
    /// A pass does not note that it braked: it is found out by its rule.
    fn braked(&self, ages: &BTreeMap<i64, Duration>) -> BTreeMap<Option<ClusterName>, (usize, usize)> {
        let mut counts: BTreeMap<Option<ClusterName>, (usize, usize)> = BTreeMap::new();
        for (owner, ..) in &self.records {
            counts.entry(owner.cluster.clone()).or_default().1 += 1;
        }
        for (owner, sighting, age) in self.orphans(ages) {
            // An owner without a pod says nothing about Kubernetes until its grace is over.
            if sighting.reason != UNLABELLED || age >= Duration::from_secs(sighting.grace_s) {
                counts.entry(owner.cluster.clone()).or_default().0 += 1;
            }
        }
        counts.retain(|_, (orphans, records)| {
            *orphans > limits::BRAKE_AT_LEAST.max(*records / limits::BRAKE_ONE_IN)
        });
        counts
    }

    /// Why each owner is suspected, in words; `ages` are those of the leases that sightings are on.
    fn judge(
        self,
        keys: &Keys,
        ages: &BTreeMap<i64, Duration>,
        braked: &BTreeMap<Option<ClusterName>, (usize, usize)>,
    ) -> BTreeMap<Owner, Vec<String>> {
        let mut reasons: BTreeMap<Owner, Vec<String>> = BTreeMap::new();
        let mut suspect = |owner: &Owner, why: String| reasons.entry(owner.clone()).or_default().push(why);
        for (owner, sighting, age) in self.orphans(ages) {
            // Who belongs to no pod may well be running.
            if sighting.reason != UNLABELLED {
                suspect(owner, seen_words(sighting, age, braked.contains_key(&owner.cluster)));
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

/// The note of the reconciler, and the time at which it frees the owner.
fn seen_words(Sighting { reason, grace_s, .. }: &Sighting, age: Duration, is_braked: bool) -> String {
    let grace = Duration::from_secs(*grace_s);
    let when = match age < grace {
        _ if is_braked => "its brake holds it back".to_owned(),
        true => format!("it frees it after {}", humantime::format_duration(grace)),
        false => "its next pass frees it".to_owned(),
    };
    format!(
        "the reconciler has seen it as an orphan for {} ({reason}): {when}",
        humantime::format_duration(age)
    )
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

/// An address that may be leaked.
#[derive(Serialize)]
struct LeakedRow<'a> {
    #[serde(flatten)]
    row: &'a Row,
    why: String,
}

/// The columns of leaks.
pub(super) const COLUMNS: [Column; 12] = {
    let mut columns = [Column::new("WHY", CellForm::Text); 12];
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

#[cfg(test)]
mod tests {
    use super::*;
    use metes_core::pool::Labels;

    /// So many records of a cluster, the first of which are orphans that were seen for ten seconds.
    fn evidence(orphans: usize, records: usize, reason: &str) -> Evidence {
        let mut evidence = Evidence::default();
        for at in 0..records {
            let owner = Owner::named(["east", "n1", &format!("c{at}"), "eth0"]).expect("plain names");
            let record = OwnerRecord::new(Vec::new(), None, "-".into(), Labels::default());
            evidence.records.push((owner.clone(), record, 5));
            if at < orphans {
                evidence.sightings.push((
                    owner,
                    Sighting::new(reason.to_owned(), 5, Duration::from_secs(60)),
                    7,
                ));
            }
        }
        evidence
    }

    #[test]
    fn so_many_orphans_that_none_is_freed_are_told() {
        let ages = BTreeMap::from([(7, Duration::from_secs(10))]);
        let braked = |orphans, records| {
            evidence(orphans, records, "pod-gone").braked(&ages).into_values().collect::<Vec<_>>()
        };
        assert_eq!(braked(50, 50), []);
        assert_eq!(braked(51, 254), [(51, 254)]);
        assert_eq!(braked(51, 255), []);
        assert_eq!(braked(52, 255), [(52, 255)]);
        assert!(
            evidence(99, 99, UNLABELLED).braked(&ages).is_empty(),
            "these say nothing before they are due"
        );
        assert!(evidence(99, 99, "pod-gone").braked(&BTreeMap::new()).is_empty(), "the leases have ended");

        let evidence = evidence(51, 51, "pod-gone");
        let braked = evidence.braked(&ages);
        let reasons = evidence.judge(&Keys::new("/metes/"), &ages, &braked);
        assert_eq!(reasons.len(), 51);
        assert!(
            reasons.values().all(|why| why[0].ends_with("(pod-gone): its brake holds it back")),
            "{reasons:?}"
        );
    }
}
