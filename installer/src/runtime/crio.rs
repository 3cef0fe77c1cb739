//! CRI-O: crio.conf, if it is there, and all files in crio.conf.d, whatever they end in. Later files override earlier
//! ones.

use std::path::PathBuf;

use toml::{Table, Value};

use super::node_files::{DEFAULT, NodeFiles, texts};

pub(super) fn plugin_folders(files: &NodeFiles<'_>) -> Result<Vec<PathBuf>, String> {
    let drop_ins = files.config.with_file_name("crio.conf.d");
    let mut paths = files.files_of(&drop_ins)?;
    if files.is_there(files.config) {
        paths.insert(0, files.config.to_owned());
    }
    if paths.is_empty() {
        let config = files.config.display();
        return Err(format!("there is neither {config} nor a file in {}", drop_ins.display()));
    }
    let mut folders = vec![DEFAULT.into()];
    for path in paths {
        take(&mut folders, &files.table(&path)?);
    }
    Ok(folders)
}

/// Takes the settings of the next file.
fn take(folders: &mut Vec<PathBuf>, file: &Table) {
    let Some(network) = file.get("crio").and_then(|crio| crio.get("network")) else { return };
    let named = texts(network.get("plugin_dirs"));
    // The older name.
    let one = network.get("plugin_dir").and_then(Value::as_str).filter(|folder| !folder.is_empty());
    if one.is_some() || !named.is_empty() {
        *folders = named.into_iter().chain(one).map(PathBuf::from).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_file_that_names_folders_counts() {
        let network = |keys: &str| format!("[crio.network]\n{keys}\n").parse::<Table>().expect("TOML");
        let mut folders = vec![PathBuf::from(DEFAULT)];
        take(&mut folders, &network("network_dir = '/etc/cni/net.d/'"));
        assert_eq!(folders, [PathBuf::from(DEFAULT)]);
        take(&mut folders, &network("plugin_dirs = ['/var/lib/cni/bin', '/usr/libexec/cni/']"));
        // A slash at the end makes no difference.
        assert_eq!(folders, [PathBuf::from("/var/lib/cni/bin"), PathBuf::from("/usr/libexec/cni")]);
        take(&mut folders, &"[crio.runtime]\nselinux = true".parse().expect("TOML"));
        assert_eq!(folders.len(), 2);
        take(&mut folders, &network("plugin_dir = '/a'"));
        assert_eq!(folders, [PathBuf::from("/a")]);
    }
}
