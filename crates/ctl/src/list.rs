//! `metes list`.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::process::ExitCode;

use clap::Args;

use super::filter::{Filter, Place};
use super::input::count;
use super::inventory::{COLUMNS, Inventory, Row};
use super::output::ListOutput;
use super::selector::{self, Found, SIMILAR_NAME_EDITS, WordKind};
use super::{CliError, Context, Terminal, watch};
use metes_config::keys::{did_you_mean, nearest};
use metes_core::pool::{NetworkName, Owner, Pod};
use metes_engine::follow::Follow;
use metes_engine::kv::{Failure, Kv};

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// Only this: an address, a prefix, a container id or its beginning, NAMESPACE/POD, or the name of a network, pool,
    /// namespace or node
    #[arg(value_name = "WHAT")]
    what: Option<String>,
    /// What WHAT is, if it may be several things
    #[arg(long = "as", value_enum, value_name = "KIND", requires = "what")]
    kind: Option<WordKind>,
    #[command(flatten)]
    filter: Filter,
    /// Only the first so many, by network and address
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true, value_parser = count,
          conflicts_with_all = ["watch", "watch_only"])]
    limit: Option<usize>,
    /// After the list, print a line for each address that is given, freed, cooling or set aside, as it happens
    #[arg(short, long)]
    watch: bool,
    /// Print these lines without the list before
    #[arg(long, conflicts_with = "watch")]
    watch_only: bool,
    #[command(flatten)]
    output: ListOutput,
}

/// Lists the held addresses that are wanted.
pub(super) async fn list<K: Kv + Follow>(
    context: &Context<'_, K>,
    args: &ListArgs,
    terminal: &mut Terminal<'_>,
) -> Result<ExitCode, CliError> {
    let (found, filter) = chosen(context, args).await?;
    let filter = &filter;
    let failed = || CliError::store("list the held addresses");
    let is_watch = args.watch || args.watch_only;
    let from = if is_watch { watch::revision(context).await.map_err(failed())? + 1 } else { 0 };
    if args.watch_only {
        return watch::watch(context, from, filter, args.output.format, terminal).await;
    }
    let names = AskedNames::of(filter);
    let (selector, inventory) = match (found, args.limit, filter.network_alone()) {
        (Some(found), ..) => {
            let (selector, inventory) = found.read(context, filter).await.map_err(failed())?;
            (Some(selector), inventory)
        }
        (None, Some(limit), Some(network)) => {
            (None, context.first_of_network(network, limit).await.map_err(failed())?)
        }
        (None, ..) => (None, context.held_among(filter, &|pod| names.see_pod(pod)).await.map_err(failed())?),
    };
    tell_unreadable(&inventory, filter.network.as_ref(), terminal);
    let is_selected = |row: &&Row| selector.as_ref().is_none_or(|selector| selector.has(row));
    let wanted = inventory.rows.iter().filter(is_selected).filter(|row| row.is_wanted(filter));
    let rows: Vec<&Row> = wanted.take(args.limit.unwrap_or(usize::MAX)).collect();
    if rows.is_empty() {
        if let Some(selector) = &selector {
            terminal.tell(&format!("metes: nothing is held of {selector}{filter}"));
        } else if !filter.is_empty() {
            names.tell(context, filter, &inventory, terminal).await.map_err(failed())?;
        } else {
            context.tell_if_unused(terminal).await.map_err(failed())?;
        }
    }
    terminal.list(&COLUMNS, rows, &args.output)?;
    if args.watch {
        // What changed while it was listed is told once more.
        return watch::watch(context, from, filter, args.output.format, terminal).await;
    }
    Ok(ExitCode::SUCCESS)
}

/// What is to be listed: where flags can say the same as a selector, by these alone.
async fn chosen<K: Kv>(
    context: &Context<'_, K>,
    args: &ListArgs,
) -> Result<(Option<Found>, Filter), CliError> {
    let filter = &args.filter;
    let Some(what) = &args.what else { return Ok((None, filter.clone())) };
    let found = selector::find(context, what, args.kind, filter.network.as_ref()).await;
    let found = found.map_err(CliError::store(format!("look up {what:?}")))?;
    let found = found.map_err(CliError::Refused)?;
    match found.selector.as_filter().and_then(|more| filter.and(more)) {
        Some(filter) => Ok((None, filter)),
        None if args.watch || args.watch_only => Err(CliError::Refused(format!(
            "a watch takes a network, pod, namespace or node, and no flag for the same: {what} is {}",
            found.selector
        ))),
        None => Ok((Some(found), filter.clone())),
    }
}

/// A name that was asked for.
struct AskedName {
    /// The kind of the name.
    place: &'static str,
    name: Option<String>,
    is_known: Cell<bool>,
    /// True if only one network or node was looked at for it.
    is_there: Cell<bool>,
    /// Names that are like it.
    similar: RefCell<BTreeSet<String>>,
}

impl AskedName {
    fn new(place: &'static str, name: Option<String>) -> Self {
        Self {
            place,
            name,
            is_known: Cell::new(false),
            is_there: Cell::new(false),
            similar: RefCell::default(),
        }
    }

    /// Takes the name of something that is held. Only those that are like it are kept: there may be a million.
    fn see(&self, other: &str) {
        let Some(name) = &self.name else { return };
        if name == other {
            self.is_known.set(true);
        } else if nearest(name, &[other], SIMILAR_NAME_EDITS).is_some() {
            self.similar.borrow_mut().insert(other.to_owned());
        }
    }

    /// True if nothing was seen that has this name.
    fn is_in_doubt(&self) -> bool {
        self.name.is_some() && !self.is_known.get()
    }

    /// A sentence, if nothing held has this name.
    fn hint(&self) -> Option<String> {
        let name = self.name.as_deref().filter(|_| !self.is_known.get())?;
        let similar = self.similar.borrow();
        let similar: Vec<&str> = similar.iter().map(String::as_str).collect();
        let similar = did_you_mean(name, &similar, SIMILAR_NAME_EDITS);
        let there = if self.is_there.get() { " there" } else { "" };
        Some(format!("metes: no address is held{there} {} {name:?}{similar}", self.place))
    }
}

/// The names that were asked for, so that one that nobody has is told.
pub(super) struct AskedNames {
    network: AskedName,
    node: AskedName,
    cluster: AskedName,
    namespace: AskedName,
    pod: AskedName,
}

impl AskedNames {
    pub(super) fn of(filter: &Filter) -> Self {
        let Filter { network, place: Place { node, cluster }, namespace, pod } = filter;
        let pod = pod.as_ref().map(|pod| format!("{}/{}", pod.namespace, pod.name));
        Self {
            network: AskedName::new("in network", network.as_ref().map(NetworkName::to_string)),
            node: AskedName::new("on node", node.clone()),
            cluster: AskedName::new("in cluster", cluster.clone()),
            namespace: AskedName::new("in namespace", namespace.clone()),
            pod: AskedName::new("by pod", pod),
        }
    }

    fn see_pod(&self, pod: &Pod) {
        self.namespace.see(&pod.namespace);
        if self.pod.name.is_some() {
            self.pod.see(&format!("{}/{}", pod.namespace, pod.name));
        }
    }

    fn see_owner(&self, owner: &Owner) {
        self.node.see(owner.node.as_str());
        self.cluster.see(owner.cluster_or_dash());
    }

    /// Where nothing is held of what a filter means: tells which of its names nobody has.
    pub(super) async fn tell<K: Kv>(
        &self,
        context: &Context<'_, K>,
        filter: &Filter,
        read: &Inventory,
        terminal: &mut Terminal<'_>,
    ) -> Result<(), Failure> {
        self.look(context, filter, read).await?;
        self.hints().iter().for_each(|hint| terminal.tell(hint));
        Ok(())
    }

    /// Finds out which names are known. Of networks, nodes and clusters names alone are read, and of pods nothing that
    /// was not read before: all records would have to be.
    async fn look<K: Kv>(
        &self,
        context: &Context<'_, K>,
        filter: &Filter,
        read: &Inventory,
    ) -> Result<(), Failure> {
        for row in &read.rows {
            self.network.see(row.network.as_ref().map_or("", NetworkName::as_str));
            row.container().into_iter().for_each(|owner| self.see_owner(owner));
            row.holder.iter().for_each(|holder| self.see_pod(&holder.labels.pod));
        }
        if filter.needs_everything() {
            return Ok(());
        }
        // Who has no address in one network may have some in another.
        let is_part = filter.network.is_some() || filter.place.node.is_some();
        for asked in [&self.namespace, &self.pod].into_iter().filter(|_| is_part) {
            asked.is_there.set(true);
            asked.is_known.set(asked.is_known.get() || read.rows.is_empty());
        }
        if self.network.is_in_doubt() {
            let others = context.networks().await?;
            let others = others.iter().filter(|other| Some(*other) != filter.network.as_ref());
            others.for_each(|other| self.network.see(other.as_str()));
        }
        if !self.node.is_in_doubt() && !self.cluster.is_in_doubt() {
            return Ok(());
        }
        for cluster in context.clusters().await? {
            self.cluster.see(&cluster);
            if self.node.is_in_doubt() {
                let nodes = context.nodes_of(&cluster).await?;
                nodes.iter().for_each(|node| self.node.see(node));
            }
        }
        Ok(())
    }

    fn hints(&self) -> Vec<String> {
        let Self { network, node, cluster, namespace, pod } = self;
        [network, node, cluster, namespace, pod].into_iter().filter_map(AskedName::hint).collect()
    }
}

/// Names what does not decode: it is held by somebody all the same.
pub(super) fn tell_unreadable(
    inventory: &Inventory,
    wanted: Option<&NetworkName>,
    terminal: &mut Terminal<'_>,
) {
    for unreadable in &inventory.unreadable {
        if wanted.is_none() || unreadable.network.is_none() || unreadable.network.as_ref() == wanted {
            terminal.tell_damaged(&unreadable.what);
        }
    }
}
