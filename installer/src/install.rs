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
//!
//! Where the node has an identity of its own, its certificate and key come from [a signer](crate::request). What is
//! there stays until it has them, and all else is kept up to date meanwhile.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::arguments::InstallArgs;
use crate::failure::Failure;
use crate::files;
use crate::identity;
use crate::log::say;
use crate::request::{Asker, Own, Pair, Present};
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
    own: Option<Own>,
}

impl Wanted {
    fn read(arguments: &InstallArgs) -> Result<Self, Failure> {
        let template = Template::read(&arguments.template.template)?;
        template.expect_who_chooses()?;
        let node = node_name(&arguments.node)?;
        let own = arguments.signer.as_deref().map(|signer| -> Result<Own, Failure> {
            let user = identity::user(template.cluster(), &node);
            Ok(Own { signer: signer.to_owned(), user, authorities: template.authorities_of_nodes()? })
        });
        let own = own.transpose()?;
        Ok(Self {
            files: if own.is_some() { template.files_but_pair() } else { template.files() }?,
            own,
            template,
            node,
            host_dir: arguments.place.host_dir.clone(),
            source: arguments.place.binary.clone(),
            plugin: arguments.place.bin_dir.join(PLUGIN),
        })
    }

    fn host_file(&self) -> PathBuf {
        self.host_dir.join(HOST_FILE)
    }

    /// All files, with the node's own certificate and key, where it has these.
    fn files_with(&self, pair: Option<&Pair>) -> Result<Vec<Named>, Failure> {
        match pair {
            Some(pair) => self.template.with_pair(self.files.clone(), pair),
            None => Ok(self.files.clone()),
        }
    }

    /// The newest certificate and key that are the node's own; otherwise those with which the plugin runs now.
    fn present(&self, own: &Own) -> Result<Option<Present>, Failure> {
        let [certificate, key] = self.template.pair_names()?;
        for folder in tls_folders(&self.host_dir)?.into_iter().rev() {
            let present = Present::read(&folder.join(&certificate), &folder.join(&key), own)?;
            if present.as_ref().is_some_and(|present| present.identity.is_ok()) {
                return Ok(present);
            }
        }
        match installed_pair(&self.host_file())? {
            Some([certificate, key]) => Present::read(&certificate, &key, own),
            None => Ok(None),
        }
    }

    /// The folder that has these files, if the node has one.
    fn current_folder(&self, wanted: &[Named]) -> Result<Option<PathBuf>, Failure> {
        for folder in tls_folders(&self.host_dir)?.into_iter().rev() {
            if holds_exactly(&folder, wanted)? {
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

/// What a pass leaves to be told.
pub(crate) struct Passed {
    /// Why the plugin may be in the wrong folder.
    pub(crate) doubt: Option<String>,
    /// True if the node is in its target state. Without, it has no certificate of its own that is valid.
    pub(crate) is_complete: bool,
}

/// Brings the node into its target state, as far as that is possible now, and tells each change.
pub(crate) fn pass(arguments: &InstallArgs, asker: &mut Asker) -> Result<Passed, Failure> {
    let wanted = Wanted::read(arguments)?;
    let doubt = runtime::judge(arguments)?;
    fs::create_dir_all(&wanted.host_dir).map_err(Failure::on("make", &wanted.host_dir))?;
    let is_complete = match &wanted.own {
        Some(own) => install_with_identity(&wanted, own, asker)?,
        None => install(&wanted, None).map(|()| true)?,
    };
    Ok(Passed { doubt, is_complete })
}

/// What is there first: a signer may be away for days, and an image's plugin may be refused. True if the node has a
/// valid certificate of its own.
fn install_with_identity(wanted: &Wanted, own: &Own, asker: &mut Asker) -> Result<bool, Failure> {
    let present = wanted.present(own)?;
    let installed = present.as_ref().map_or(Ok(()), |present| install(wanted, Some(&present.pair)));
    let is_valid = present.as_ref().is_some_and(Present::is_valid);
    if present.as_ref().is_some_and(|present| !asker.wants_more_than(present)) {
        asker.forget();
        return installed.map(|()| is_valid);
    }
    match (asker.ask(own), present) {
        (Ok(pair), _) => {
            asker.forget();
            install(wanted, Some(&pair)).map(|()| true)
        }
        (Err(unsigned), None) => Err(unsigned.into()),
        (Err(unsigned), Some(present)) => {
            asker.tell(present.identity, &unsigned);
            installed.map(|()| is_valid)
        }
    }
}

fn install(wanted: &Wanted, pair: Option<&Pair>) -> Result<(), Failure> {
    let files = wanted.files_with(pair)?;
    let folder = match wanted.current_folder(&files)? {
        Some(folder) => folder,
        None => {
            let folder = new_folder(&wanted.host_dir, &files)?;
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
        replace_plugin(wanted)?;
    }
    remove_old_folders(wanted, &folder)
}

fn replace_plugin(wanted: &Wanted) -> Result<(), Failure> {
    let plugin = files::read(&wanted.source)?;
    let bin_dir = wanted.plugin.parent().unwrap_or(Path::new("/"));
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
    let pair = wanted.own.as_ref().map(|own| own_pair(&wanted, own)).transpose()?;
    let folder = wanted.current_folder(&wanted.files_with(pair.as_ref())?)?;
    let folder = folder.ok_or_else(|| Failure::new("the certificates are not there yet"))?;
    if !wanted.is_host_file_current(&folder)? {
        return Err(Failure::new(format!("{} is not there or not current", wanted.host_file().display())));
    }
    if !wanted.is_plugin_current()? {
        return Err(Failure::new(format!("{} is not there or not current", wanted.plugin.display())));
    }
    Ok(())
}

/// The node's own certificate and key, if it can use them.
fn own_pair(wanted: &Wanted, own: &Own) -> Result<Pair, Failure> {
    let present = wanted.present(own)?.filter(Present::is_valid);
    let present = present.ok_or_else(|| {
        Failure::new(format!("the node has no certificate for {} that is valid now", own.user))
    });
    present.map(|present| present.pair)
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
fn new_folder(host_dir: &Path, files: &[Named]) -> Result<PathBuf, Failure> {
    let last = tls_folders(host_dir)?.last().and_then(|folder| number(folder)).unwrap_or(0);
    let folder = host_dir.join(format!("{TLS_PREFIX}{}", last + 1));
    files::make_private_folder(&folder)?;
    for file in files {
        let path = folder.join(&file.name);
        files::write_new(&path, &file.content, 0o600).map_err(Failure::on("write", &path))?;
    }
    files::sync(&folder)?;
    files::sync(host_dir)?;
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

/// The certificate and the key that an installed host file names, if there is one that does.
fn installed_pair(host_file: &Path) -> Result<Option<[PathBuf; 2]>, Failure> {
    let Some(content) = files::read_if_there(host_file)? else { return Ok(None) };
    let keys = crate::template::object(host_file, &content)?;
    let path = |key| keys.get("etcd")?.get(key)?.as_str().map(PathBuf::from);
    Ok(path("cert_file").zip(path("key_file")).map(|(certificate, key)| [certificate, key]))
}
