//! The subjects of the measurement: a server that waits for the disk, nodes of one cluster, and the programs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use std::{env, fs};

use serde_json::{Value, json};

use crate::options::Options;
use support::{Cluster, Etcd, EtcdOptions, Node, Run, SlowTrio, network, network_as, tool};

/// The number of nodes that a storm comes from.
pub(crate) const NODES: usize = 16;

/// A million addresses need more than etcd's usual 2 GiB.
const QUOTA: &str = "--quota-backend-bytes=8589934592";

/// Everything that one section uses. The server is dropped last, because the cluster needs it.
pub(crate) struct Lab {
    pub(crate) cluster: Cluster,
    pub(crate) nodes: Vec<Node>,
    pub(crate) peer: Option<Peer>,
    floor: PathBuf,
    host_local: PathBuf,
    /// The number of floors made so far: they go to the members in turn.
    floors: AtomicUsize,
    server: Server,
}

/// The etcd that a cluster runs on.
enum Server {
    Alone(Etcd),
    Three(SlowTrio),
}

/// Another IPAM plugin, and what it gets on stdin.
pub(crate) struct Peer {
    program: PathBuf,
    configs: Vec<Vec<u8>>,
}

/// The floor's request after it has connected.
#[derive(Clone, Copy)]
pub(crate) enum Floor {
    Put,
    Read,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    Plain,
    Mtls,
}

impl Lab {
    pub(crate) fn new(options: &Options, wire: Wire) -> Self {
        let etcd = Etcd::start_with(EtcdOptions {
            fsync: true,
            mtls: wire == Wire::Mtls,
            args: vec![QUOTA.to_owned()],
            ..EtcdOptions::default()
        });
        Self::of(options, Cluster::on(&etcd), Server::Alone(etcd))
    }

    /// On three members whose links to each other take `one_way`; `None` is for links without relays.
    pub(crate) fn on_slow_links(options: &Options, one_way: Option<Duration>) -> Self {
        let trio = SlowTrio::start(&EtcdOptions { fsync: true, ..EtcdOptions::default() }, one_way);
        Self::of(options, Cluster::on_slow_trio(&trio), Server::Three(trio))
    }

    fn of(options: &Options, cluster: Cluster, server: Server) -> Self {
        Self {
            nodes: (0..NODES).map(|index| cluster.node(&format!("node-{index}"))).collect(),
            peer: options.peer.as_ref().map(|program| Peer::new(program, &options.peer_conf)),
            floor: env::var_os("FLOOR_BIN").expect("FLOOR_BIN names the floor").into(),
            host_local: tool("cni-plugins").join("host-local"),
            floors: AtomicUsize::new(0),
            cluster,
            server,
        }
    }

    /// A node that knows the store and has no lease there, like one whose last ADD was long ago.
    pub(crate) fn quiet_node(&self, name: &str) -> Node {
        let node = self.cluster.node(name);
        node.status().config(&network_as("1.1.0", "quiet", json!({"range": "10.65.0.0/16"}))).run().silent();
        node
    }

    /// A node of this name that knows the same server by other endpoints from now on.
    pub(crate) fn with_other_endpoints(&self, name: &str) -> Node {
        let mut endpoints: Vec<String> = self.members().iter().map(Etcd::endpoint).collect();
        match endpoints.len() {
            1 => endpoints[0] = endpoints[0].replace("127.0.0.1", "localhost"),
            _ => _ = endpoints.pop(),
        }
        self.cluster.node_with(name, json!({"etcd": {"endpoints": endpoints}}))
    }

    /// The server; the first of three members.
    pub(crate) fn etcd(&self) -> &Etcd {
        &self.members()[0]
    }

    pub(crate) fn members(&self) -> &[Etcd] {
        match &self.server {
            Server::Alone(etcd) => std::slice::from_ref(etcd),
            Server::Three(trio) => trio.members(),
        }
    }

    /// The node that runs single processes.
    pub(crate) fn node(&self) -> &Node {
        &self.nodes[0]
    }

    pub(crate) fn floor(&self, does: Floor) -> Run {
        let (program, environment) = self.floor_command(does);
        environment.into_iter().fold(Run::new(program), |run, (name, value)| run.env(name, value))
    }

    /// The program and its environment.
    pub(crate) fn floor_command(&self, does: Floor) -> (&Path, Vec<(&'static str, OsString)>) {
        let does = match does {
            Floor::Put => "put",
            Floor::Read => "read",
        };
        let prefix = format!("/floor{}", self.cluster.prefix());
        let members = self.members();
        let member = &members[self.floors.fetch_add(1, Ordering::Relaxed) % members.len()];
        let mut environment = vec![
            ("FLOOR_DOES", does.into()),
            ("FLOOR_PREFIX", prefix.into()),
            ("FLOOR_ENDPOINT", member.endpoint().into()),
        ];
        if let Some(tls) = member.tls() {
            environment.extend([
                ("FLOOR_CA", tls.ca().into()),
                ("FLOOR_CERT", tls.client_cert().into()),
                ("FLOOR_KEY", tls.client_key().into()),
            ]);
        }
        (&self.floor, environment)
    }

    pub(crate) fn host_local(&self, verb: &str, id: &str) -> Run {
        let data = self.cluster.folder().join("host-local");
        let ipam = json!({"type": "host-local", "subnet": "10.64.0.0/16", "dataDir": data});
        foreign(&self.host_local, verb, id).config(&network(ipam))
    }
}

impl Peer {
    fn new(program: &Path, configs: &[PathBuf]) -> Self {
        let read = |path: &PathBuf| {
            fs::read(path).unwrap_or_else(|error| panic!("--peer-conf {}: {error}", path.display()))
        };
        Self { program: program.to_owned(), configs: configs.iter().map(read).collect() }
    }

    pub(crate) fn name(&self) -> String {
        self.program.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// The number of networks that it serves.
    pub(crate) fn networks(&self) -> usize {
        self.configs.len()
    }

    /// Attaches to one of its networks; they are taken in turn.
    pub(crate) fn run(&self, verb: &str, id: &str, network: usize) -> Run {
        foreign(&self.program, verb, id).stdin(self.configs[network % self.configs.len()].clone())
    }
}

/// Another plugin's process, started as a runtime starts it.
fn foreign(program: &Path, verb: &str, id: &str) -> Run {
    let folder = program.parent().expect("a program lies in a folder");
    let run = Run::new(program).env("CNI_COMMAND", verb).cni_path(folder);
    of_pod(run.container(id).ifname("eth0").netns(format!("/run/netns/made-up-{id}")), id)
}

/// Runtimes name the pod in every ADD, CHECK and DEL.
pub(crate) fn of_pod(run: Run, id: &str) -> Run {
    run.pod("bench", id, &uid(id))
}

/// A UID's 36 characters, different for each container.
pub(crate) fn uid(id: &str) -> String {
    let tail: String = id.chars().filter(char::is_ascii_alphanumeric).collect();
    format!("{tail:0>36}").chars().rev().take(36).collect::<String>().chars().rev().collect()
}

/// A network whose range holds 65,533 addresses.
pub(crate) fn plain_network(name: &str) -> Value {
    network_as("1.0.0", name, json!({"range": "10.65.0.0/16", "network_name": name}))
}

#[cfg(test)]
mod tests {
    use super::uid;

    #[test]
    fn every_container_is_of_a_pod_of_its_own() {
        assert_eq!(uid("round-7").len(), 36);
        assert_eq!(uid(&format!("{}-12", "x".repeat(40))).len(), 36);
        assert!(uid("round-17") != uid("round-18"));
    }
}
