//! Keeps the node in its target state: the plugin, the host file, and the certificates that it names.
//!
//! A plugin may start between any two steps. So the order is: first a new folder of certificates, which nothing names
//! yet; then the host file, which names it; then the plugin. A run that has read the older host file uses the older
//! folder, which stays for longer than a plugin runs. So a run never reads the certificate of one generation and the
//! key of another.
//!
//! The plugin is tried before it takes the place of the one that is there. The host file goes first, so that both are
//! asked with the one that they will have, and so that a plugin that is refused keeps no certificate from the node.
//!
//! Nothing is written if the plugin's folder is not there, or is not one in which the runtime looks.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::arguments::InstallArgs;
use crate::failure::Failure;
use crate::files;
use crate::log::say;
use crate::runtime;
use crate::template::{Named, Template};
use crate::trial::Trial;

pub(crate) const PLUGIN: &str = "metes";
pub(crate) const HOST_FILE: &str = "metes.conf";
pub(crate) const TLS_PREFIX: &str = "tls-";

/// The time for which an older folder stays: longer than any run of the plugin.
const OLD_FOLDER_STAYS: Duration = Duration::from_secs(600);

/// The target state of the node: the files, and their places.
struct Wanted {
    template: Template,
    files: Vec<Named>,
    node: String,
    host_dir: PathBuf,
    source: PathBuf,
    plugin: PathBuf,
}

impl Wanted {
    fn read(arguments: &InstallArgs) -> Result<Self, Failure> {
        let template = Template::read(&arguments.template.template)?;
        template.expect_who_chooses()?;
        Ok(Self {
            files: template.files()?,
            template,
            node: node_name(&arguments.node)?,
            host_dir: arguments.place.host_dir.clone(),
            source: arguments.place.binary.clone(),
            plugin: arguments.place.bin_dir.join(PLUGIN),
        })
    }

    fn host_file(&self) -> PathBuf {
        self.host_dir.join(HOST_FILE)
    }

    /// The folder that has the right files, if the node has one.
    fn current_folder(&self) -> Result<Option<PathBuf>, Failure> {
        for folder in tls_folders(&self.host_dir)?.into_iter().rev() {
            if holds_exactly(&folder, &self.files)? {
                return Ok(Some(folder));
            }
        }
        Ok(None)
    }

    fn is_host_file_current(&self, folder: &Path) -> Result<bool, Failure> {
        let text = self.template.host_file(&self.node, folder);
        Ok(files::read_if_there(&self.host_file())?.as_deref() == Some(text.as_bytes()))
    }

    fn is_plugin_current(&self) -> Result<bool, Failure> {
        // Mostly the length differs already, and nothing is read.
        let length = |path: &Path| fs::metadata(path).map(|meta| meta.len()).ok();
        if length(&self.plugin) != length(&self.source) {
            return Ok(false);
        }
        let new = files::read(&self.source)?;
        Ok(files::read_if_there(&self.plugin)?.as_deref() == Some(new.as_slice()))
    }
}

fn node_name(name: &str) -> Result<String, Failure> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    if name.len() <= 253 && name.bytes().all(plain) {
        return Ok(name.to_owned());
    }
    Err(Failure::new(format!("the node's name {name:?} has characters that metes does not take")))
}

/// Brings the node into its target state, and tells each change. Returns the reason why the plugin may be in the wrong
/// folder.
pub(crate) fn pass(arguments: &InstallArgs) -> Result<Option<String>, Failure> {
    let wanted = Wanted::read(arguments)?;
    let doubt = runtime::judge(arguments)?;
    fs::create_dir_all(&wanted.host_dir).map_err(Failure::on("make", &wanted.host_dir))?;
    let folder = match wanted.current_folder()? {
        Some(folder) => folder,
        None => {
            let folder = new_folder(&wanted)?;
            say(&format!("new certificates in {}", folder.display()));
            folder
        }
    };
    if !wanted.is_host_file_current(&folder)? {
        let path = wanted.host_file();
        let text = wanted.template.host_file(&wanted.node, &folder);
        files::replace(&path, text.as_bytes(), 0o600)?;
        say(&format!("{} is for node {}", path.display(), wanted.node));
    }
    if !wanted.is_plugin_current()? {
        replace_plugin(&wanted, &arguments.place.bin_dir)?;
    }
    remove_old_folders(&wanted, &folder)?;
    Ok(doubt)
}

fn replace_plugin(wanted: &Wanted, bin_dir: &Path) -> Result<(), Failure> {
    let plugin = files::read(&wanted.source)?;
    let trial = Trial { bin_dir, host_file: &wanted.host_file() };
    let said = files::replace_if(&wanted.plugin, &plugin, 0o755, |new| trial.judge(new, &wanted.plugin))?;
    let though = said.map_or(String::new(), |said| format!(", though its STATUS {said}"));
    say(&format!("{} is new{though}", wanted.plugin.display()));
    Ok(())
}

/// Fails unless the node is in its target state.
pub(crate) fn check(arguments: &InstallArgs) -> Result<(), Failure> {
    let wanted = Wanted::read(arguments)?;
    runtime::judge(arguments)?;
    let folder =
        wanted.current_folder()?.ok_or_else(|| Failure::new("the certificates are not there yet"))?;
    if !wanted.is_host_file_current(&folder)? {
        return Err(Failure::new(format!("{} is not there or not current", wanted.host_file().display())));
    }
    if !wanted.is_plugin_current()? {
        return Err(Failure::new(format!("{} is not there or not current", wanted.plugin.display())));
    }
    Ok(())
}

/// All folders of certificates, the oldest first.
pub(crate) fn tls_folders(host_dir: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut folders = files::list(host_dir)?;
    folders.retain(|path| number(path).is_some());
    folders.sort_by_key(|path| number(path));
    Ok(folders)
}

fn number(folder: &Path) -> Option<u64> {
    folder.file_name()?.to_str()?.strip_prefix(TLS_PREFIX)?.parse().ok()
}

fn holds_exactly(folder: &Path, wanted: &[Named]) -> Result<bool, Failure> {
    if files::list(folder)?.len() != wanted.len() {
        return Ok(false);
    }
    for file in wanted {
        if files::read_if_there(&folder.join(&file.name))?.as_ref() != Some(&file.content) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A new folder, with a name after all others. No host file ever names a folder that was left half-written.
fn new_folder(wanted: &Wanted) -> Result<PathBuf, Failure> {
    let last = tls_folders(&wanted.host_dir)?.last().and_then(|folder| number(folder)).unwrap_or(0);
    let folder = wanted.host_dir.join(format!("{TLS_PREFIX}{}", last + 1));
    files::make_private_folder(&folder)?;
    for file in &wanted.files {
        let path = folder.join(&file.name);
        files::write_new(&path, &file.content, 0o600).map_err(Failure::on("write", &path))?;
    }
    files::sync(&folder)?;
    files::sync(&wanted.host_dir)?;
    Ok(folder)
}

/// Removes older folders, once the host file is so old that no run can have read the one before it.
fn remove_old_folders(wanted: &Wanted, current: &Path) -> Result<(), Failure> {
    let path = wanted.host_file();
    let changed =
        fs::metadata(&path).and_then(|meta| meta.modified()).map_err(Failure::on("look at", &path))?;
    if changed.elapsed().unwrap_or_default() < OLD_FOLDER_STAYS {
        return Ok(());
    }
    let old = tls_folders(&wanted.host_dir)?.into_iter().filter(|folder| folder != current);
    old.into_iter().try_for_each(|folder| files::remove_if_there(&folder))
}

/// The names of node and cluster in an installed host file, if it has them.
pub(crate) struct Names {
    pub(crate) node: Option<String>,
    pub(crate) cluster: Option<String>,
}

/// The names that an installed host file has.
pub(crate) fn installed_names(host_file: &Path, content: &[u8]) -> Result<Names, Failure> {
    let keys = crate::template::object(host_file, content)?;
    let name = |key| keys.get(key).and_then(Value::as_str).map(str::to_owned);
    Ok(Names { node: name("node_name"), cluster: name("cluster") })
}
