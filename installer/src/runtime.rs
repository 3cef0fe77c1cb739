//! The folder in which the container runtime of this node looks for plugins, by its own configuration.
//!
//! A plugin in another folder never runs, so the installer refuses to put it there. If the configuration cannot be
//! found or read, the installer says so and goes on.

mod containerd;
mod crio;
mod node_files;

use std::path::PathBuf;

use crate::arguments::InstallArgs;
use crate::failure::Failure;
use node_files::NodeFiles;

const REMEDY: &str = "apply the overlay of your distribution (manifests/overlays), or change the volume `cni-bin` \
                      and NODE_BIN_DIR of the DaemonSet";

/// Fails unless the folder for the plugin is there, and is one of those in which the runtime looks. If it is not known
/// where the runtime looks: why.
pub(crate) fn judge(arguments: &InstallArgs) -> Result<Option<String>, Failure> {
    let bin_dir = &arguments.place.bin_dir;
    let on_node = arguments.runtime.node_bin_dir.as_ref().unwrap_or(bin_dir);
    if !bin_dir.is_dir() {
        let folder = on_node.display();
        return Err(Failure::new(format!("refused: {folder} is not a folder of this node: {REMEDY}")));
    }
    let Some(config) = &arguments.runtime.runtime_config else { return Ok(None) };
    let files = NodeFiles::new(config, arguments.runtime.runtime_dir.as_deref());
    match plugin_folders(&files) {
        Ok(folders) if folders.contains(on_node) => Ok(None),
        Ok(folders) => Err(Failure::new(format!(
            "refused: the runtime of this node looks for plugins in {}, not in {}, says {}: {REMEDY}",
            listed(&folders),
            on_node.display(),
            config.display()
        ))),
        Err(why) => Ok(Some(format!(
            "metes goes to {}, but it is not known if the runtime of this node looks there: {why}",
            on_node.display()
        ))),
    }
}

fn plugin_folders(files: &NodeFiles<'_>) -> Result<Vec<PathBuf>, String> {
    match files.config.file_name().is_some_and(|name| name == "crio.conf") {
        true => crio::plugin_folders(files),
        false => containerd::plugin_folders(files),
    }
}

fn listed(folders: &[PathBuf]) -> String {
    // Without the slash that some have at the end.
    let plain = folders.iter().map(|folder| folder.components().collect::<PathBuf>());
    plain.map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(" and ")
}
