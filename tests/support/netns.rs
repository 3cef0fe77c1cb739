//! Real network namespaces and bridges, each under a name of its own and gone on drop.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use super::outcome::Outcome;
use super::process::unique;
use super::run::Run;

/// A network namespace with its loopback up.
#[derive(Debug)]
pub struct Netns {
    name: String,
}

impl Netns {
    pub fn new() -> Self {
        let netns = Self { name: unique("metes-test-") };
        ip(["netns", "add", &netns.name]).silent();
        ip(["-n", &netns.name, "link", "set", "lo", "up"]).silent();
        netns
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn path(&self) -> PathBuf {
        PathBuf::from("/run/netns").join(&self.name)
    }

    /// Runs a program inside: `netns.exec(["ping", "-c", "1", "10.0.0.1"])`.
    #[track_caller]
    pub fn exec<const N: usize>(&self, command: [&str; N]) -> Outcome {
        Run::new("ip").arguments(["netns", "exec", &self.name]).arguments(command).run()
    }

    /// The addresses of an interface with their prefix lengths, link-local ones left out.
    #[track_caller]
    pub fn addresses(&self, interface: &str) -> Vec<String> {
        let links = ip(["-j", "-n", &self.name, "address", "show", "dev", interface]).ok();
        let infos = links.as_array().into_iter().flatten().flat_map(|link| link["addr_info"].as_array());
        infos
            .flatten()
            .filter(|info| info["scope"] != "link")
            .map(|info| format!("{}/{}", info["local"].as_str().unwrap_or_default(), info["prefixlen"]))
            .collect()
    }

    /// Three pings, one of which must come back.
    #[track_caller]
    pub fn ping(&self, address: &str) {
        let outcome = self.exec(["ping", "-c", "3", "-i", "0.2", "-W", "2", address]);
        assert!(outcome.succeeded(), "no answer from {address}: {outcome}");
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        forget(["netns", "delete", &self.name]);
    }
}

/// The name of a bridge that a bridge plugin will make.
#[derive(Debug)]
pub struct Bridge {
    name: String,
}

impl Bridge {
    /// At most 15 bytes, as every interface name.
    pub fn new() -> Self {
        Self { name: unique("mt") }
    }

    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        forget(["link", "delete", &self.name]);
    }
}

#[track_caller]
fn ip<const N: usize>(arguments: [&str; N]) -> Outcome {
    Run::new("ip").arguments(arguments).run()
}

/// For drops: a namespace may be gone already, and a failing test must show its own failure.
fn forget<const N: usize>(arguments: [&str; N]) {
    let _ = Command::new("ip").args(arguments).output();
}

/// A configuration of the bridge plugin that delegates to metes.
pub fn bridge_plugin(bridge: &Bridge, ipam: &Value) -> Value {
    serde_json::json!({"type": "bridge", "bridge": bridge.name(), "ipam": ipam})
}
