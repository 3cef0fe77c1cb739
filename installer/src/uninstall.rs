//! Removes metes from a node, unless something on that node holds an address: a DEL that finds no plugin leaves its
//! address held.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::arguments::{NodeArgs, UninstallArgs};
use crate::failure::Failure;
use crate::files;
use crate::install::{HOST_FILE, Names, PLUGIN, installed_names, tls_folders};

/// The value of `metes list --cluster` for records without a cluster.
const NO_CLUSTER: &str = "-";
/// The most owners that a refusal names.
const NAMED_MAX: usize = 5;

/// Removes everything, the host file last: while it is there, a removal that was interrupted can go on.
pub(crate) fn pass(arguments: &UninstallArgs) -> Result<Vec<String>, Failure> {
    let NodeArgs { binary, bin_dir, host_dir } = &arguments.place;
    let plugin = bin_dir.join(PLUGIN);
    let host_file = host_dir.join(HOST_FILE);
    let Some(content) = files::read_if_there(&host_file)? else {
        return match plugin.exists() {
            true => Err(Failure::new(format!(
                "refused: {} is there, but without {} nobody can say what this node holds",
                plugin.display(),
                host_file.display()
            ))),
            false => Ok(Vec::new()),
        };
    };
    let Names { node, cluster } = installed_names(&host_file, &content)?;
    let node = node.or_else(|| arguments.node.clone());
    let node = node.ok_or_else(|| Failure::new("--node is missing, and the host file has no `node_name`"))?;
    // Another cluster that shares the store may have a node of this name.
    let cluster = cluster.as_deref().unwrap_or(NO_CLUSTER);
    let held = || held_on(binary, &host_file, &node, cluster);
    refuse(&held()?)?;
    take_plugin_away(&plugin, held)?;
    files::remove_if_there(&arguments.state_dir)?;
    tls_folders(host_dir)?.iter().try_for_each(|folder| files::remove_if_there(folder))?;
    files::remove_if_there(&host_file)?;
    files::sync(host_dir)?;
    Ok(vec![format!("metes is gone from node {node}")])
}

/// Asks once more after the plugin is gone: a pod may have started between the first question and the removal, and none
/// can start now.
fn take_plugin_away(plugin: &Path, held: impl Fn() -> Result<Vec<String>, Failure>) -> Result<(), Failure> {
    let aside = plugin.with_file_name(".metes-install-removed");
    match fs::rename(plugin, &aside) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        moved => moved.map_err(Failure::on("move", plugin))?,
    }
    if let Err(e) = held().and_then(|held| refuse(&held)) {
        if aside.exists() {
            fs::rename(&aside, plugin).map_err(Failure::on("put back", plugin))?;
        }
        return Err(e);
    }
    files::remove_if_there(&aside)
}

/// Fails unless nothing of metes is on the node.
pub(crate) fn check(place: &NodeArgs) -> Result<(), Failure> {
    for path in [place.bin_dir.join(PLUGIN), place.host_dir.join(HOST_FILE)] {
        if path.exists() {
            return Err(Failure::new(format!("{} is there", path.display())));
        }
    }
    Ok(())
}

fn refuse(held: &[String]) -> Result<(), Failure> {
    if held.is_empty() {
        return Ok(());
    }
    let named = held.iter().take(NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = held.len().saturating_sub(NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Err(Failure::new(format!(
        "refused: this node holds {named}{more}; delete the pods that use metes here first"
    )))
}

/// The addresses that the node holds, one text for each.
fn held_on(metes: &Path, host_file: &Path, node: &str, cluster: &str) -> Result<Vec<String>, Failure> {
    let output = Command::new(metes)
        .arg("--config")
        .arg(host_file)
        .args(["list", "--node", node, "--cluster", cluster, "-o", "json"])
        .output()
        .map_err(Failure::on("run", metes))?;
    let unclear = |why: &str| Failure::new(format!("refused: cannot find out what node {node} holds: {why}"));
    if !output.status.success() {
        return Err(unclear(String::from_utf8_lossy(&output.stderr).trim()));
    }
    let listed: Value = serde_json::from_slice(&output.stdout).map_err(|e| unclear(&e.to_string()))?;
    let rows = listed.as_array().ok_or_else(|| unclear("`metes list` gave no list"))?;
    Ok(rows.iter().map(holder).collect())
}

fn holder(row: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    match (row["pod"]["namespace"].as_str(), row["pod"]["name"].as_str()) {
        (Some(namespace), Some(name)) => format!("{} (pod {namespace}/{name})", text(&row["address"])),
        _ => format!("{} (container {})", text(&row["address"]), text(&row["container_id"])),
    }
}
