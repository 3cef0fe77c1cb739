//! The metrics of this node, for whoever has a client certificate of the template's authority.
//!
//! They are made when they are asked for: runs of the plugin from the lines that these leave in node state, the rest
//! from the files of the node. What cannot be read is left out; nothing of it stops the installation.

mod counts;
mod facts;
mod server;

use std::path::PathBuf;

use metes_node::runs_reader::{NewRuns, RunsReader};
use metes_serve::exposition::Exposition;
use metes_serve::listen::{Page, Pages};
use metes_serve::shared::Shared;

use crate::arguments::InstallArgs;
use crate::install::{HOST_FILE, PLUGIN};
use crate::log::Notice;
use counts::RunCounts;
use facts::{InstalledPlugin, NodeFacts};

/// What is known of this node between two questions.
#[derive(Clone)]
pub(crate) struct NodeMetrics(Shared<KnownNode>);

struct KnownNode {
    host_file: PathBuf,
    /// Where node state is in this pod.
    state_dir: PathBuf,
    runs: Option<(PathBuf, RunsReader)>,
    counts: RunCounts,
    is_installed: bool,
    plugin: InstalledPlugin,
    told: Notice,
}

/// Begins to serve them, if an address was given.
pub(crate) fn serve(arguments: &InstallArgs) -> Option<NodeMetrics> {
    let listen = arguments.metrics.listen.clone()?;
    let mut known = KnownNode {
        host_file: arguments.place.host_dir.join(HOST_FILE),
        state_dir: arguments.metrics.state_dir.clone(),
        runs: None,
        counts: RunCounts::default(),
        is_installed: false,
        plugin: InstalledPlugin::at(arguments.place.bin_dir.join(PLUGIN)),
        told: Notice::default(),
    };
    known.look();
    let metrics = NodeMetrics(Shared::new(known));
    server::start(listen, &arguments.template.template, &arguments.node, metrics.clone());
    Some(metrics)
}

impl NodeMetrics {
    /// Notes the end of a pass of the installation.
    pub(crate) fn passed(&self, is_installed: bool) {
        let mut plugin = self.0.state().plugin.clone();
        // Nobody waits for a plugin that does not answer.
        plugin.ask();
        let mut known = self.0.state();
        (known.is_installed, known.plugin) = (is_installed, plugin);
        // If Prometheus does not ask, nobody else keeps the file short.
        known.look();
    }
}

impl Pages for NodeMetrics {
    const PATHS: &'static str = "there is /metrics";

    fn page(&self, path: &str) -> Option<Page> {
        (path == "/metrics").then(|| Page::metrics(self.0.state().text()))
    }
}

impl KnownNode {
    /// Takes in what runs have left since the last look, and what else the node's files say.
    fn look(&mut self) -> NodeFacts {
        let facts = NodeFacts::read(&self.host_file, &self.state_dir);
        let looked = facts.state_folder.as_ref().map(|folder| self.look_at_runs(folder.clone()));
        self.told
            .say(looked.and_then(Result::err).map(|e| format!("runs of the plugin are not counted: {e}")));
        facts
    }

    fn look_at_runs(&mut self, folder: PathBuf) -> std::io::Result<()> {
        let new = match &mut self.runs {
            Some((of, reader)) if *of == folder => reader.look()?,
            runs => {
                let (reader, NewRuns { lines, .. }) = RunsReader::begin(&folder)?;
                *runs = Some((folder, reader));
                // Another process has counted them, or none. But the last of them says how the store was found.
                lines.iter().for_each(|line| self.counts.see_store(line));
                return Ok(());
            }
        };
        self.counts.add(&new);
        Ok(())
    }

    fn text(&mut self) -> String {
        let facts = self.look();
        let mut text = Exposition::default();
        self.counts.show(&mut text);
        facts.show(&mut text);
        text.gauge(
            "metes_node_installed",
            "1 if the last pass of the installer left the node in its target state.",
            u8::from(self.is_installed),
        );
        self.plugin.show(&mut text);
        text.into_text()
    }
}
