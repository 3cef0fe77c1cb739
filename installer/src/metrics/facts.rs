//! What the files of the node say: its host file, its state, its certificates, and its plugin.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use metes_config::Settings;
use metes_node::setup;
use metes_node::state::{NodeState, state_folder};
use metes_serve::exposition::Exposition;

use crate::trial;

/// What is read anew for each answer.
#[derive(Default)]
pub(super) struct NodeFacts {
    /// Where runs leave their lines; none without a valid host file.
    pub(super) state_folder: Option<PathBuf>,
    spooled: Option<usize>,
    /// Whose certificates they are, and when they end, in seconds since 1970 in UTC.
    certificates: BTreeMap<&'static str, u64>,
}

impl NodeFacts {
    /// Reads them. The host file says where node state is on the node, and this pod has it in `state_dir`.
    pub(super) fn read(host_file: &Path, state_dir: &Path) -> Self {
        let host = setup::host_file(Some(&host_file.to_string_lossy()), None).ok().flatten();
        let Some(settings) = host.and_then(|host| Settings::from_host(host).ok()) else {
            return Self::default();
        };
        let settings = Settings { spool_dir: state_dir.to_string_lossy().into_owned(), ..settings };
        Self {
            state_folder: Some(state_folder(&settings)),
            spooled: spooled(&settings),
            certificates: settings.tls.as_ref().map(setup::certificate_ends).unwrap_or_default(),
        }
    }

    pub(super) fn show(&self, text: &mut Exposition) {
        if let Some(spooled) = self.spooled {
            text.gauge("metes_node_spooled_dels", "DELs of this node that wait for etcd.", spooled);
        }
        text.labelled(
            "metes_node_certificate_not_after_timestamp_seconds",
            "gauge",
            "When the certificates of the installed host file end: the node's own, and the last one of its authority.",
            "certificate",
            &self.certificates,
        );
    }
}

/// The DELs that wait for etcd. Before an ADD has left a mark, it is not known whose they are.
fn spooled(settings: &Settings) -> Option<usize> {
    let (state, is_known) = NodeState::by_its_mark(settings)?;
    let survey = state.spool().survey().ok()?;
    Some(if is_known { survey.own } else { survey.own + survey.others })
}

/// The plugin on the node, which says its version itself.
#[derive(Clone)]
pub(super) struct InstalledPlugin {
    path: PathBuf,
    /// What tells this file from another one.
    asked: Option<(u64, u64, i64, i64)>,
    version: String,
}

impl InstalledPlugin {
    pub(super) fn at(path: PathBuf) -> Self {
        Self { path, asked: None, version: String::new() }
    }

    /// Asks the plugin for its version if it is another one than before.
    pub(super) fn ask(&mut self) {
        let of = |meta: fs::Metadata| (meta.dev(), meta.ino(), meta.mtime(), meta.mtime_nsec());
        let there = fs::metadata(&self.path).ok().map(of);
        if there != self.asked {
            self.version = there.and_then(|_| trial::version_of(&self.path)).unwrap_or_default();
            self.asked = there;
        }
    }

    pub(super) fn show(&self, text: &mut Exposition) {
        text.head(
            "metes_node_info",
            "gauge",
            "The versions of the plugin on this node and of its installer.",
        );
        let labels = [("version", &*self.version), ("installer_version", env!("CARGO_PKG_VERSION"))];
        text.sample("metes_node_info", &labels, 1);
    }
}
