//! `metes pool which`: which pools `auto` means for a pod, and why.

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use super::{show, words};
use crate::output::Output;
use crate::table::{printable, table};
use crate::{CliError, Context, Terminal};
use metes_config::settings::PodsOf;
use metes_core::plan::pool_change::StoredPools;
use metes_core::pool::auto::{AutoPool, AutoVerdict, judge};
use metes_core::pool::{Facts, PoolName, Selector};
use metes_engine::kv::Kv;
use metes_node::state::node_name;

#[derive(Debug, Args)]
pub(crate) struct PoolWhichArgs {
    /// The pod's namespace
    #[arg(long, default_value = "", hide_default_value = true)]
    namespace: String,
    /// The pod's name
    #[arg(long, default_value = "", hide_default_value = true)]
    pod: String,
    /// The CNI network, by the `name` of its configuration
    #[arg(long, default_value = "", hide_default_value = true)]
    network: String,
    /// The node
    #[arg(long)]
    node: Option<String>,
    /// The cluster
    #[arg(long)]
    cluster: Option<String>,
    /// A label of the node, instead of those of the host file; may be given several times
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    #[command(flatten)]
    output: Output,
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}

/// Decides as an ADD does, and says why.
pub(super) async fn which<K: Kv>(
    context: &Context<'_, K>,
    args: &PoolWhichArgs,
    terminal: &mut Terminal<'_>,
) -> Result<ExitCode, CliError> {
    let pools = show::read(context, terminal).await?;
    let auto = pools.auto(context.session.keys);
    let auto = auto.map_err(|bad| CliError::Refused(format!("stored state cannot be decoded: {bad}")))?;
    let settings = context.settings;
    let here = node_name(settings).map(|name| name.to_string()).unwrap_or_default();
    let node = args.node.as_ref().unwrap_or(&here);
    let node_labels = match &args.labels[..] {
        [] if *node == here => settings.node_labels.clone(),
        given => given.iter().cloned().collect(),
    };
    let of_host_file = settings.cluster.as_ref().map_or("", |cluster| cluster.as_str());
    let facts = Facts {
        cluster: args.cluster.as_deref().unwrap_or(of_host_file),
        namespace: &args.namespace,
        pod: &args.pod,
        network: &args.network,
        node,
        node_labels: &node_labels,
    };
    // What the host file allows is said of this node alone.
    let allowed = settings.allowed.pools(PodsOf::Namespace(&args.namespace)).filter(|_| *node == here);
    let is_allowed = |pool: &PoolName| allowed.as_ref().is_none_or(|allowed| allowed.contains(pool));
    let answer = PoolChoice::new(&auto, facts, &pools, is_allowed);
    terminal.document(&answer, args.output.format, || answer.words())?;
    Ok(if answer.pools.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The decision.
#[derive(Serialize)]
struct PoolChoice<'a> {
    /// The pools that an ADD uses: the first of them that has a free address.
    pools: Vec<&'a PoolName>,
    facts: Facts<'a>,
    /// All pools that have a `for`, in the order in which they are asked.
    judged: Vec<JudgedPool<'a>>,
}

#[derive(Serialize)]
struct JudgedPool<'a> {
    pool: &'a PoolName,
    priority: i32,
    #[serde(rename = "for")]
    selector: &'a Selector,
    used: bool,
    /// Why it is not used.
    why: Option<String>,
}

impl<'a> PoolChoice<'a> {
    fn new(
        auto: &'a [AutoPool],
        facts: Facts<'a>,
        pools: &StoredPools,
        is_allowed: impl Fn(&PoolName) -> bool,
    ) -> Self {
        let judged = |(AutoPool { pool, priority, selector }, verdict): (&'a AutoPool, AutoVerdict)| {
            let why = match verdict {
                AutoVerdict::Mismatch(fact) => Some(format!("it is not for {fact}")),
                AutoVerdict::Outranked(first) => Some(format!("pool {first} has a higher priority")),
                AutoVerdict::Chosen if !is_allowed(pool) => {
                    Some("`allowed` of the host file does not name it for this namespace".to_owned())
                }
                AutoVerdict::Chosen => {
                    let fact = pools.get(pool).and_then(|pool| pool.refuses(facts));
                    fact.map(|fact| format!("its `allow` is not for {fact}"))
                }
            };
            JudgedPool { pool, priority: *priority, selector, used: why.is_none(), why }
        };
        let judged: Vec<JudgedPool<'a>> = judge(auto, facts).map(judged).collect();
        Self {
            pools: judged.iter().filter(|judged| judged.used).map(|judged| judged.pool).collect(),
            facts,
            judged,
        }
    }

    fn words(&self) -> String {
        let names: Vec<&str> = self.pools.iter().map(|pool| pool.as_str()).collect();
        let head = match &names[..] {
            [] if self.judged.is_empty() => {
                "no pool: none has `for`, which says whom `auto` gives it".to_owned()
            }
            [] => "no pool".to_owned(),
            [name] => format!("pool {name}"),
            names => format!("the first of these pools that has a free address: {}", names.join(" ")),
        };
        let cells = |judged: &JudgedPool<'_>| {
            [
                judged.pool.to_string(),
                judged.priority.to_string(),
                if judged.used { "yes" } else { "no" }.to_owned(),
                words::selector(judged.selector),
                judged.why.clone().unwrap_or_default(),
            ]
        };
        let rows: Vec<[String; 5]> = self.judged.iter().map(cells).collect();
        let table = table(["POOL", "PRIORITY", "USED", "FOR", "WHY NOT"], &rows);
        format!("{head}\n{}\n{table}", printable(&self.facts.to_string()))
    }
}
