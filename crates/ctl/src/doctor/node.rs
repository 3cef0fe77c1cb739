//! Looks at what is on the node: the host file, the files that it names, and what runs have left. What is made for
//! a trial is removed at once.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::facts::{
    CertificateFacts, CertificateOf, Chosen, FileFacts, FileOwner, HostFileFacts, MachineFacts, MarkFacts,
    NameFrom, NodeFacts, SpoolFacts,
};
use metes_config::cni::{Code, Error};
use metes_config::etcd::StoreKeys;
use metes_config::{HostFile, Settings};
use metes_core::keys::{Keys, NodeKey};
use metes_core::known::LastWritten;
use metes_engine::obstacle::Obstacle;
use metes_etcd::certificate::Certificate;
use metes_node::files::{self, Trust};
use metes_node::node::{Machine, known_machine};
use metes_node::setup::{self, HOST_FILE};
use metes_node::state::{NodeState, node_name, state_folder};

/// The host file, and the settings as far as there are any; false if etcd must not be asked by them.
pub(super) fn host_file(
    named: Option<&Path>,
    endpoints: &[String],
) -> (HostFileFacts, Option<(Settings, bool)>) {
    let file = chosen(named);
    let owner = file.as_ref().and_then(|(path, _)| owner_of(path));
    let mut facts = HostFileFacts {
        file,
        owner,
        has_other_endpoints: !endpoints.is_empty(),
        wrong: Vec::new(),
        notes: Vec::new(),
        says_who_chooses: true,
    };
    let named = named.map(|path| path.to_string_lossy());
    let host = match setup::host_file(named.as_deref(), None) {
        Ok(host) => host,
        Err(e) => {
            facts.wrong.push(obstacle(e));
            return (facts, None);
        }
    };
    let (settings, refused) = settings(host, endpoints);
    facts.wrong.extend(refused.into_iter().map(obstacle));
    let Some(settings) = settings else { return (facts, None) };
    facts.wrong.extend(settings.unclear.clone().map(obstacle));
    facts.notes.clone_from(&settings.notes);
    facts.says_who_chooses = facts.file.is_none() || settings.says_who_chooses();
    let may_ask = facts.wrong.is_empty() || settings.unclear.is_some() && facts.wrong.len() == 1;
    (facts, Some((settings, may_ask)))
}

/// The settings of a host file, or of none. Where they may not be used, they still say what there is on the node.
fn settings(host: Option<HostFile>, endpoints: &[String]) -> (Option<Settings>, Option<Error>) {
    let of = |host: Option<HostFile>| match host {
        Some(host) => Settings::from_host(host),
        None => Settings::from_network(&StoreKeys::default()),
    };
    let lenient = host.clone().map(HostFile::lenient);
    let used = of(host).and_then(|mut settings| settings.use_endpoints(endpoints).map(|()| settings));
    match used {
        Ok(settings) => (Some(settings), None),
        Err(e) => {
            let mut settings = of(lenient).ok();
            // As many of them as can be read.
            settings.iter_mut().for_each(|settings| _ = settings.use_endpoints(endpoints));
            (settings, Some(e))
        }
    }
}

fn chosen(named: Option<&Path>) -> Option<(PathBuf, Chosen)> {
    if let Some(path) = named.filter(|path| !path.as_os_str().is_empty()) {
        let is_environments = std::env::var_os("METES_CONF").as_deref() == Some(OsStr::new(path));
        let chosen = if is_environments { Chosen::ByEnvironment } else { Chosen::ByOption };
        return Some((path.to_owned(), chosen));
    }
    let usual = Path::new(HOST_FILE);
    usual.exists().then(|| (usual.to_owned(), Chosen::UsualPlace))
}

fn owner_of(path: &Path) -> Option<FileOwner> {
    let meta = fs::metadata(path).ok()?;
    Some(FileOwner { user: meta.uid(), mode: meta.mode() & 0o7777 })
}

pub(super) fn obstacle(e: Error) -> Obstacle {
    Obstacle { what: e.msg, remedy: e.details }
}

pub(super) fn named_files(settings: &Settings) -> (Vec<FileFacts>, Vec<CertificateFacts>) {
    let (mut files, mut certificates) = (Vec::new(), Vec::new());
    for file in setup::named_files(settings, Trust::of_commands()) {
        let all = file.certificates.as_deref().map(Certificate::all_in).unwrap_or_default();
        // What stands behind a client's certificate is between it and its authority.
        let (of, count) = match file.key {
            "cert_file" => (CertificateOf::Client, 1),
            _ => (CertificateOf::Authority, usize::MAX),
        };
        certificates.extend(all.into_iter().take(count).map(|certificate| CertificateFacts {
            of,
            place: file.path.clone(),
            certificate,
        }));
        files.push(FileFacts {
            key: file.key,
            owner: owner_of(Path::new(&file.path)),
            wrong: file.certificates.err().map(obstacle),
            path: file.path,
        });
    }
    (files, certificates)
}

/// The node's identity, and the files that its runs have left.
pub(super) fn node(settings: &Settings, now: SystemTime) -> NodeFacts {
    let machine = known_machine(Path::new(&settings.spool_dir));
    let from = if settings.node_name.is_some() { NameFrom::HostFile } else { NameFrom::Machine };
    let name = node_name(settings).map_err(obstacle);
    let folder = state_folder(settings);
    let state = NodeState::known(settings);
    let spool_folder = folder.join("spool");
    let spool = spool(state.as_ref(), &spool_folder, now);
    NodeFacts {
        name: name.map(|name| (name, from)),
        cluster: settings.cluster.clone(),
        machine: machine.map(|Machine { digest, file }| MachineFacts { digest, file }),
        has_folder: folder.exists(),
        mark: mark(state.as_ref(), &folder.join("mark")),
        former: state.as_ref().map(|state| former(state, settings)).unwrap_or_default(),
        other_prefix: state
            .as_ref()
            .and_then(NodeState::other_prefix)
            .map(|other| obstacle(other.error(Code::StoredState))),
        other_store: state.as_ref().and_then(NodeState::other_store),
        unwritable: unwritable(&spool, &spool_folder),
        outage: outage(state.as_ref(), &folder.join("outage")),
        spool,
        folder,
    }
}

fn former(state: &NodeState, settings: &Settings) -> Vec<(NodeKey, Option<LastWritten>)> {
    state.names().former_names(&Keys::new(&settings.prefix), state.mark().seen_by_machine().as_ref())
}

fn outage(state: Option<&NodeState>, file: &Path) -> Result<Option<Duration>, String> {
    let Some(state) = state else { return Ok(None) };
    // What another user may read says nothing of the plugin, which runs as root.
    if fs::File::open(file).is_err_and(|e| e.kind() == ErrorKind::PermissionDenied) {
        return Ok(None);
    }
    let now = metes_node::node::start().map_err(|e| e.msg)?;
    state.outage().lasts(&now).map_err(|e| e.to_string())
}

fn mark(state: Option<&NodeState>, file: &Path) -> MarkFacts {
    if let Some(metes_node::mark::Mark { seen, .. }) = state.and_then(|state| state.mark().read()) {
        return MarkFacts::Known(seen);
    }
    if let Some(cluster) = state.and_then(|state| state.mark().other_cluster()) {
        return MarkFacts::OtherCluster(cluster);
    }
    match fs::read(file) {
        Ok(_) => MarkFacts::NotThisNodes,
        Err(e) if e.kind() == ErrorKind::NotFound => MarkFacts::None,
        Err(_) => MarkFacts::Hidden,
    }
}

/// Why a run could keep no DEL. Where nobody would read it, that is said already.
fn unwritable(spool: &SpoolFacts, folder: &Path) -> Option<String> {
    let SpoolFacts::Known(..) = spool else { return None };
    let why = files::try_folder(folder).err()?;
    // The plugin runs as root, so what another user may do says nothing.
    let says_nothing = why.kind() == ErrorKind::PermissionDenied && !rustix::process::geteuid().is_root();
    (!says_nothing).then(|| why.to_string())
}

fn spool(state: Option<&NodeState>, folder: &Path, now: SystemTime) -> SpoolFacts {
    if fs::read_dir(folder).is_err_and(|e| e.kind() == ErrorKind::PermissionDenied) {
        return SpoolFacts::Hidden;
    }
    match state.map(|state| state.spool().survey()).unwrap_or_else(|| Ok(Default::default())) {
        Ok(survey) => {
            let age = survey.oldest.and_then(|oldest| now.duration_since(oldest).ok());
            SpoolFacts::Known(survey, age.map(|age| age.as_secs()))
        }
        Err(e) => SpoolFacts::NotTrusted(e.to_string()),
    }
}
