//! `metes list`.

use std::collections::BTreeSet;
use std::process::ExitCode;

use super::args::{Filter, ListArgs, Place};
use super::inventory::{COLUMNS, Inventory, Row};
use super::{CliError, Context, Terminal, watch};
use crate::config::keys::nearest;
use crate::pool::NetworkName;
use crate::pool::record::Owner;
use crate::store::follow::Follow;
use crate::store::kv::Kv;

/// How many edits a name may be away from one that is suggested for it.
const SIMILAR_NAME_EDITS: usize = 2;

/// Lists the held addresses that are wanted.
pub(super) async fn list<K: Kv + Follow>(
    context: &Context<'_, K>,
    args: &ListArgs,
    terminal: &mut Terminal<'_>,
) -> Result<ExitCode, CliError> {
    let filter = &args.filter;
    let failed = || CliError::store("list the held addresses");
    let revision = if args.watch { watch::revision(context).await.map_err(failed())? } else { 0 };
    let inventory = context.held(filter).await.map_err(failed())?;
    tell_unreadable(&inventory, filter.network.as_ref(), terminal);
    let rows: Vec<&Row> = inventory.rows.iter().filter(|row| row.is_wanted(filter)).collect();
    if rows.is_empty() && !filter.is_empty() {
        // All names that there are: what was read has at most those that were asked for.
        let everything = context.everything().await.map_err(failed())?;
        unknown_names(&everything, filter).iter().for_each(|hint| terminal.tell(hint));
    }
    terminal.list(&COLUMNS, rows, &args.output)?;
    if args.watch {
        // What changed while it was listed is told once more.
        return watch::watch_from(context, revision + 1, filter, args.output.format, terminal).await;
    }
    Ok(ExitCode::SUCCESS)
}

/// A sentence for each name that was asked for and that nothing held has, with the most similar one that there is.
fn unknown_names(inventory: &Inventory, filter: &Filter) -> Vec<String> {
    let Filter { network, place: Place { node, cluster }, namespace, pod } = filter;
    let rows = || inventory.rows.iter();
    let owners = || rows().filter_map(Row::container);
    let pods = || rows().filter_map(|row| row.holder.as_ref()).map(|holder| &holder.labels.pod);
    let pod = pod.as_ref().map(|pod| format!("{}/{}", pod.namespace, pod.name));
    let names: BTreeSet<String> = pods().map(|pod| format!("{}/{}", pod.namespace, pod.name)).collect();
    let asked: [(_, Option<&str>, BTreeSet<&str>); 5] = [
        (
            "in network",
            network.as_ref().map(NetworkName::as_str),
            rows().filter_map(|row| row.network.as_ref()).map(NetworkName::as_str).collect(),
        ),
        ("on node", node.as_deref(), owners().map(|owner| owner.node.as_str()).collect()),
        ("in cluster", cluster.as_deref(), owners().map(Owner::cluster_or_dash).collect()),
        ("in namespace", namespace.as_deref(), pods().map(|pod| pod.namespace.as_str()).collect()),
        ("by pod", pod.as_deref(), names.iter().map(String::as_str).collect()),
    ];
    let hint = |(place, name, known): (&str, Option<&str>, BTreeSet<&str>)| {
        let name = name.filter(|name| !known.contains(name))?;
        let known: Vec<&str> = known.into_iter().collect();
        let similar = nearest(name, &known, SIMILAR_NAME_EDITS);
        let similar = similar.map(|similar| format!("; did you mean {similar:?}?")).unwrap_or_default();
        Some(format!("metes: no address is held {place} {name:?}{similar}"))
    };
    asked.into_iter().filter_map(hint).collect()
}

/// Names what does not decode: it is held by somebody all the same.
pub(super) fn tell_unreadable(
    inventory: &Inventory,
    wanted: Option<&NetworkName>,
    terminal: &mut Terminal<'_>,
) {
    for unreadable in &inventory.unreadable {
        if wanted.is_none() || unreadable.network.is_none() || unreadable.network.as_ref() == wanted {
            terminal.tell(&format!("metes: cannot decode {}", unreadable.what));
        }
    }
}
