//! `metes list --watch`: what happens to addresses, as it happens.

use std::collections::BTreeMap;
use std::io;
use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::filter::Filter;
use super::inventory::{COLUMNS, Holder, Row};
use super::output::ListFormat;
use super::table::{Listed, TableForm, table_of};
use super::{CliError, Context, Terminal};
use metes_core::keys::{Key, Keys, NetworkAddress};
use metes_core::limits;
use metes_core::pool::{OwnerRecord, Record, Reservation};
use metes_core::snapshot::Snapshot;
use metes_core::txn::{List, Op, Txn};
use metes_engine::follow::{Changes, Follow, FollowEnd, KeyChange};
use metes_engine::kv::{Failure, Kv};
use metes_node::node;

/// After so long without a change, etcd is asked whether it is still there.
const SILENCE: Duration = Duration::from_secs(10);
/// The pause before a lost connection is opened again.
const PAUSE: Duration = Duration::from_secs(1);
/// The time of a watch for which no time is given.
const EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The revision of the store.
pub(super) async fn revision<K: Kv>(context: &Context<'_, K>) -> Result<i64, Failure> {
    let session = context.renewed().session;
    let mut snapshot = Snapshot::default();
    session.read(&[session.keys.meta()], &mut snapshot).await?;
    Ok(snapshot.revision)
}

/// Prints a line for each change from a revision on, until it is interrupted, or until the time is over that was given
/// for it.
pub(super) async fn watch<K: Kv + Follow>(
    context: &Context<'_, K>,
    from: i64,
    filter: &Filter,
    format: ListFormat,
    terminal: &mut Terminal<'_>,
) -> Result<ExitCode, CliError> {
    let until = Instant::now() + context.timeout.unwrap_or(EVER);
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted.map_err(CliError::Output)?,
        () = sleep_until(until) => {}
        ended = follow(context, from, filter, format, terminal) => ended?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Ends only when nobody reads any more.
async fn follow<K: Kv + Follow>(
    context: &Context<'_, K>,
    mut from: i64,
    filter: &Filter,
    format: ListFormat,
    terminal: &mut Terminal<'_>,
) -> Result<(), CliError> {
    let keys = context.session.keys;
    loop {
        let until = context.deadline();
        let mut changes = match context.session.kv.follow(&keys.nets(), from, until).await {
            Ok(changes) => changes,
            Err(failure @ (Failure::Unreachable(_) | Failure::Unknown(_))) => {
                terminal.tell(&format!("metes: {failure}; trying again"));
                sleep(PAUSE).await;
                continue;
            }
            Err(failure) => return Err(CliError::store("watch")(failure)),
        };
        let end = loop {
            let some = match timeout(SILENCE, changes.next()).await {
                Ok(Ok(some)) => some,
                Ok(Err(end)) => break Some(end),
                // The connection may be dead without anybody knowing it. Watching again from here loses nothing.
                Err(_) => match revision(context).await {
                    Ok(now) => {
                        // The store may have gone back in time.
                        from = from.min(now + 1);
                        break None;
                    }
                    Err(_) => break Some(FollowEnd::Lost),
                },
            };
            let mut rows = changed(keys, &some);
            if label(context, &mut rows).await.is_err() {
                break Some(FollowEnd::Lost);
            }
            from = some.last().map_or(from, |change| from.max(change.revision + 1));
            rows.retain(|changed| changed.row.is_wanted(filter));
            match print(&rows, format, terminal) {
                Ok(()) => {}
                Err(CliError::Output(e)) if e.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                Err(failed) => return Err(failed),
            }
        };
        let Some(end) = end else { continue };
        match end {
            FollowEnd::Lost => terminal.tell(&format!("metes: {end}; watching again from revision {from}")),
            FollowEnd::Compacted(first) => {
                terminal
                    .tell(&format!("metes: {end}: changes from revision {from} on until then are not shown"));
                from = from.max(first);
            }
        }
        sleep(PAUSE).await;
    }
}

/// A change of an address.
#[derive(Serialize)]
struct ChangedRow {
    /// By the clock of whoever watches.
    time: String,
    event: &'static str,
    #[serde(flatten)]
    row: Row,
    /// The revision as of which the holder's record has the labels.
    #[serde(skip)]
    labelled_at: i64,
}

/// Reads the labels of all holders, each at its own revision: a container may be gone again. Of records that etcd has
/// compacted the labels are not known.
async fn label<K: Kv>(context: &Context<'_, K>, rows: &mut [ChangedRow]) -> Result<(), Failure> {
    let session = context.renewed().session;
    for some in rows.chunks_mut(limits::TXN_OPS) {
        let record = |changed: &ChangedRow| {
            let start = session.keys.owner(changed.row.owner()?);
            let end = [&*start, &[0]].concat();
            Some(Op::List(List { start, end, limit: 1, revision: changed.labelled_at, keys_only: false }))
        };
        let found = match session.txn(&Txn::read(some.iter().filter_map(record).collect())).await {
            Err(Failure::Compacted) => continue,
            read => read?.found,
        };
        for (changed, found) in some.iter_mut().filter(|changed| changed.row.holder.is_some()).zip(found) {
            let record = found.one().and_then(|entry| OwnerRecord::decode(&entry.value).ok());
            let Some(OwnerRecord { labels, .. }) = record else { continue };
            changed.row.holder = changed.row.holder.take().map(|holder| holder.labelled(&labels.into()));
        }
    }
    Ok(())
}

fn changed(keys: &Keys, changes: &[KeyChange]) -> Vec<ChangedRow> {
    let holder = |value: &Option<Vec<u8>>| {
        let record = value.as_ref().and_then(|value| Reservation::decode(value).ok());
        record.map(Holder::of)
    };
    // Whose address is cooling, is told by its last reservation.
    let last: BTreeMap<NetworkAddress, (Holder, i64)> = changes
        .iter()
        .filter_map(|change| match (keys.parse(&change.key), &change.after) {
            (Ok(Key::Ip(network, address)), None) => {
                Some(((network, address), (holder(&change.before)?, change.revision - 1)))
            }
            _ => None,
        })
        .collect();
    let row = |KeyChange { revision, key, before, after }: &KeyChange| {
        let mut labelled_at = *revision;
        let (event, network, address, holder) = match (keys.parse(key), after) {
            (Ok(Key::Ip(network, address)), Some(_)) => {
                let (old, new) = (holder(before), holder(after));
                if old.is_some() && old.as_ref().map(Holder::identity) == new.as_ref().map(Holder::identity) {
                    return None;
                }
                let is_aside = new.as_ref().is_some_and(|new| new.hold.is_some());
                (if is_aside { "aside" } else { "given" }, network, address, new)
            }
            (Ok(Key::Ip(network, address)), None) => {
                labelled_at -= 1;
                ("freed", network, address, holder(before))
            }
            (Ok(Key::Cooling(network, address)), Some(_)) if before.is_none() => {
                let last = last.get(&(network.clone(), address)).cloned();
                labelled_at = last.as_ref().map_or(labelled_at, |(_, at)| *at);
                ("cooling", network, address, last.map(|(holder, _)| holder))
            }
            _ => return None,
        };
        let row = Row { network: Some(network), address, holder, pool: None, kept: None };
        Some(ChangedRow { time: node::timestamp(), event, row, labelled_at })
    };
    changes.iter().filter_map(row).collect()
}

fn print(rows: &[ChangedRow], format: ListFormat, terminal: &mut Terminal<'_>) -> Result<(), CliError> {
    let of_each = |text: &dyn Fn(&ChangedRow) -> Result<String, io::Error>| rows.iter().map(text).collect();
    let text: Result<String, io::Error> = match format {
        ListFormat::Table | ListFormat::Wide => of_each(&|changed| {
            let is_wide = format == ListFormat::Wide;
            let form = TableForm { is_wide, no_headers: true, ..TableForm::default() };
            let row = table_of(&COLUMNS, vec![changed.row.cells()], form);
            Ok(format!("{}  {:<7}  {row}", changed.time, changed.event))
        }),
        ListFormat::Json => of_each(&|changed| Ok(serde_json::to_string(changed)? + "\n")),
        ListFormat::Yaml => of_each(&|changed| {
            let text = yaml_serde::to_string(changed).map_err(io::Error::other)?;
            Ok(format!("---\n{text}"))
        }),
        ListFormat::Name => of_each(&|changed| Ok(format!("{} {}\n", changed.event, changed.row.name()))),
    };
    let text = text.map_err(CliError::Output)?;
    terminal.out.write_all(text.as_bytes()).and_then(|()| terminal.out.flush()).map_err(CliError::Output)
}
