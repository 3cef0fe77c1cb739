//! The real cnitool, running real main plugins that delegate to metes.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::cluster::Node;
use super::netns::Netns;
use super::process::{temporary, unique};
use super::run::Run;
use super::tool::{metes, tool};

/// cnitool keeps the results of ADD here, and no flag changes that.
const RESULTS: &str = "/var/lib/cni/results";

/// One network on one node: a folder with its conflist, and one with the plugins and metes.
#[derive(Debug)]
pub struct Cnitool {
    network: String,
    folder: TempDir,
    node: Node,
}

impl Cnitool {
    /// `plugins` is the conflist's list; the network's name is made up, for cnitool's results are the host's.
    pub fn new(node: &Node, cni_version: &str, plugins: Value) -> Self {
        let network = unique("metes-test-");
        let folder = temporary();
        let conflist = json!({"cniVersion": cni_version, "name": network, "plugins": plugins});
        fs::write(folder.path().join("net.conflist"), conflist.to_string()).expect("it can be written");
        // The distribution's plugins end at 1.0.0.
        let source = if cni_version == "1.1.0" { "cni-plugins-1.1" } else { "cni-plugins" };
        link_plugins(&tool(source), &folder.path().join("bin"));
        Self { network, folder, node: node.clone() }
    }

    pub fn network(&self) -> &str {
        &self.network
    }

    pub fn add(&self, netns: &Netns) -> Run {
        self.verb("add", netns)
    }

    pub fn del(&self, netns: &Netns) -> Run {
        self.verb("del", netns)
    }

    pub fn check(&self, netns: &Netns) -> Run {
        self.verb("check", netns)
    }

    /// libcni lists every attachment except those that cnitool is told are gone; here all of the network are gone.
    pub fn gc(&self, netns: &Netns) -> Run {
        self.verb("gc", netns)
    }

    pub fn status(&self, netns: &Netns) -> Run {
        self.verb("status", netns)
    }

    fn verb(&self, verb: &str, netns: &Netns) -> Run {
        let path = netns.path();
        self.prepared().arguments([verb, self.network.as_str(), &path.to_string_lossy()])
    }

    fn prepared(&self) -> Run {
        let mut run = Run::new(tool("cnitool"))
            .cni_path(self.bin())
            .env("NETCONFPATH", self.folder.path())
            .ifname("eth0");
        for (name, value) in self.node.environment() {
            run = run.env(&name, value);
        }
        run
    }

    fn bin(&self) -> PathBuf {
        self.folder.path().join("bin")
    }
}

impl Drop for Cnitool {
    fn drop(&mut self) {
        let Ok(entries) = fs::read_dir(RESULTS) else { return };
        let own = format!("{}-", self.network);
        for entry in entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(&own)) {
            // A DEL has removed it when all went well.
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn link_plugins(source: &Path, bin: &Path) {
    fs::create_dir(bin).expect("a folder can be made");
    for name in ["bridge", "ptp", "host-local", "static", "loopback"] {
        symlink(source.join(name), bin.join(name)).expect("a plugin can be linked");
    }
    symlink(metes(), bin.join("metes")).expect("metes can be linked");
}
