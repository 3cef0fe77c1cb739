//! containerd: one file, which may import others. Later files override earlier ones.

use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::node_files::{DEFAULT, NodeFiles, texts};

/// The names of the plugin that serves the kubelet: since containerd 2, before that, and in files without a version.
const PLUGINS: [&str; 3] = ["io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri", "cri"];
/// containerd 1 cannot read files from this version on.
const FIRST_OF_CONTAINERD_2: i64 = 3;

pub(super) fn plugin_folders(files: &NodeFiles<'_>) -> Result<Vec<PathBuf>, String> {
    let mut settings = Settings::default();
    let mut read = BTreeSet::new();
    let mut pending = VecDeque::from([files.config.to_owned()]);
    while let Some(path) = pending.pop_front() {
        if read.contains(&path) {
            continue;
        }
        let table = files.table(&path)?;
        settings.take(&table);
        let folder = path.parent().unwrap_or(Path::new("/"));
        for import in texts(table.get("imports")) {
            pending.extend(files.files_like(&folder.join(import))?);
        }
        read.insert(path);
    }
    match settings.is_disabled {
        true => Err(format!("{} disables the plugin that serves the kubelet", files.config.display())),
        false => Ok(settings.folders()),
    }
}

/// The settings in the files that were read so far.
#[derive(Debug, Default)]
struct Settings {
    bin_dir: Option<PathBuf>,
    bin_dirs: Vec<PathBuf>,
    may_be_forgotten: bool,
    is_disabled: bool,
}

impl Settings {
    /// Takes the settings of the next file.
    fn take(&mut self, file: &Table) {
        let disabled = texts(file.get("disabled_plugins"));
        self.is_disabled |= disabled.iter().any(|name| PLUGINS.contains(name));
        let version = file.get("version").and_then(Value::as_integer).unwrap_or(1);
        let Some(plugins) = file.get("plugins") else { return };
        for plugin in PLUGINS.iter().filter_map(|name| plugins.get(*name)) {
            // If a later file names a plugin, containerd 1 forgets all that earlier ones say of it. containerd 2 does
            // not, and it reads files of older versions too.
            self.may_be_forgotten = !self.take_plugin(plugin) && version < FIRST_OF_CONTAINERD_2;
        }
    }

    /// If it names folders.
    fn take_plugin(&mut self, plugin: &Value) -> bool {
        let Some(cni) = plugin.get("cni") else { return false };
        let bin_dir = cni.get("bin_dir").and_then(Value::as_str).filter(|folder| !folder.is_empty());
        let bin_dirs = texts(cni.get("bin_dirs"));
        if let Some(bin_dir) = bin_dir {
            self.bin_dir = Some(bin_dir.into());
        }
        if !bin_dirs.is_empty() {
            self.bin_dirs = bin_dirs.iter().map(PathBuf::from).collect();
        }
        bin_dir.is_some() || !bin_dirs.is_empty()
    }

    /// All folders in which it may look.
    fn folders(self) -> Vec<PathBuf> {
        let mut folders: Vec<PathBuf> = self.bin_dir.into_iter().chain(self.bin_dirs).collect();
        if folders.is_empty() || self.may_be_forgotten {
            folders.push(DEFAULT.into());
        }
        folders
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn settings(files: &[&str]) -> Settings {
        let mut settings = Settings::default();
        files.iter().for_each(|text| settings.take(&text.parse().expect("TOML")));
        settings
    }

    #[test]
    fn the_last_file_that_names_folders_counts() {
        let old = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".cni]\nbin_dir = \"/a\"";
        let new = "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\nbin_dirs = ['/b', '/c']";
        let gpu = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd]\ndefault_runtime_name = \"nvidia\"";
        let gpu_3 =
            "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd]\ndefault_runtime_name = 'n'";
        for (files, folders) in [
            (vec![""], vec![DEFAULT]),
            (vec!["version = 2\n[grpc]\nuid = 0"], vec![DEFAULT]),
            (vec!["[plugins.cri.cni]\nbin_dir = \"/a\""], vec!["/a"]),
            (vec![old], vec!["/a"]),
            (vec![old, "imports = []"], vec!["/a"]),
            (vec![new], vec!["/b", "/c"]),
            (vec![gpu], vec![DEFAULT]),
            // Only containerd 1 forgets what a later file does not repeat.
            (vec![old, gpu], vec!["/a", DEFAULT]),
            (vec![new, gpu_3], vec!["/b", "/c"]),
            (vec![gpu, old], vec!["/a"]),
            // As `containerd config default` of 2.1 writes it.
            (
                vec!["[plugins.'io.containerd.cri.v1.runtime'.cni]\nbin_dir = ''\nbin_dirs = ['/b']"],
                vec!["/b"],
            ),
        ] {
            let folders: Vec<PathBuf> = folders.into_iter().map(PathBuf::from).collect();
            assert_eq!(settings(&files).folders(), folders, "{files:?}");
        }
    }

    #[test]
    fn one_without_the_plugin_serves_no_kubelet() {
        // As Docker's package for containerd has it.
        assert!(settings(&["disabled_plugins = [\"cri\"]"]).is_disabled);
        assert!(settings(&["", "disabled_plugins = ['io.containerd.grpc.v1.cri']"]).is_disabled);
        assert!(!settings(&["disabled_plugins = [\"io.containerd.internal.v1.restart\"]"]).is_disabled);
    }

    #[test]
    fn what_is_of_another_type_says_nothing() {
        for odd in ["plugins = 1", "plugins.cri = 'x'", "plugins.cri.cni = []", "plugins.cri.cni.bin_dir = 7"]
        {
            assert_eq!(settings(&[odd]).folders(), [PathBuf::from(DEFAULT)], "{odd}");
        }
    }
}
