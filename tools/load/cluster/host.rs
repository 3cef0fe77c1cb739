//! A node of a cluster: its names, certificate and state are its own, and each run connects anew, as a process of the
//! plugin does. Only the start of that process is left out.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use metes::commands::{Run, add, del};
use metes_config::cni::Verb;
use metes_config::cni::request::Attachment;
use metes_core::keys::{Keys, digest_hex};
use metes_core::plan::ask::Ask;
use metes_core::pool::{Labels, Order, Pod, RangeSet, RangesWanted, RunStart};
use metes_engine::random::random_id;
use metes_engine::session::Session;
use metes_etcd::client::{Access, Etcd};
use metes_node::node::Identity;
use metes_node::state::NodeState;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::crew::Log;
use crate::node::{now, set};

/// The parts that all nodes share.
pub(super) struct Site<'a> {
    /// One for each node.
    pub(super) access: &'a [Access],
    pub(super) prefix: &'a str,
    /// For the folders of the nodes.
    pub(super) folder: &'a Path,
    /// The beginning of the networks' names.
    pub(super) name: &'a str,
    /// How many each pod has.
    pub(super) networks: usize,
    /// How many each node starts at once.
    pub(super) pods: usize,
    pub(super) order: Order,
    /// The id of another boot than this one.
    pub(super) boot: Option<&'a str>,
    /// One for each pod that there may be at a time.
    pub(super) turns: Arc<Semaphore>,
}

pub(super) struct Host {
    access: Access,
    keys: Keys,
    state: NodeState,
    boot: Option<String>,
    order: Order,
    pub(super) pods: usize,
    pub(super) networks: Vec<RangeSet>,
    pub(super) turns: Arc<Semaphore>,
}

/// A container that holds the namespace of a pod.
pub(super) struct Sandbox {
    container: String,
    pod: Pod,
}

impl Host {
    /// A node that has not begun. What earlier ones of its index have left behind is its own.
    pub(super) fn of(site: &Site<'_>, index: usize) -> Self {
        let folder = site.folder.join(name(index));
        let identity = Identity {
            machine: digest_hex(format!("machine {index}").as_bytes()),
            ..Identity::of(name(index).parse().expect("a plain name"))
        };
        let access = site.access[index].clone();
        let state = NodeState {
            identity,
            folder: folder.join("store"),
            endpoints: access.endpoints.clone(),
            all: None,
        };
        Self {
            access,
            keys: Keys::new(site.prefix),
            state,
            boot: site.boot.map(str::to_owned),
            order: site.order,
            pods: site.pods,
            networks: (0..site.networks).map(|network| set(&format!("{}-{network}", site.name))).collect(),
            turns: site.turns.clone(),
        }
    }

    /// The same pod has another one with each try.
    pub(super) fn sandbox(&self, pod: usize) -> Sandbox {
        let uid = digest_hex(format!("{} {:?} {pod}", self.state.identity.node, self.boot).as_bytes());
        let parts = [&uid[..8], &uid[8..12], &uid[12..16], &uid[16..20], &uid[20..]];
        let pod = Pod {
            namespace: "production".to_owned(),
            name: format!("frontend-7d4b9c6f5d-{}", &uid[..5]),
            uid: parts.join("-").parse().ok(),
        };
        // As long as the ids that runtimes make.
        Sandbox { container: random_id() + &random_id(), pod }
    }

    /// An ADD for the network of this number; none if it failed.
    pub(super) async fn add(&self, sandbox: &Sandbox, network: usize, log: &mut Log) -> Option<IpAddr> {
        let began = Instant::now();
        let kv = self.store(Verb::Add);
        let clock = || self.now();
        let run = self.run(&kv, (Verb::Add, began), &clock);
        let ask = self.ask(&run, sandbox, network);
        let added = add::add(&run, &ask).await;
        let answered = Instant::now();
        let address = match added {
            Ok(added) => {
                log.main.take(answered - began);
                Some(added.held[0].address)
            }
            Err(e) => {
                log.fail(format!("ADD {}, {}", e.code.number(), first_words(&e.msg)), e);
                return None;
            }
        };
        run.drain_spool().await;
        address
    }

    pub(super) async fn del(&self, sandbox: &Sandbox, network: usize, log: &mut Log) {
        let began = Instant::now();
        let kv = self.store(Verb::Del);
        let clock = || self.now();
        let run = self.run(&kv, (Verb::Del, began), &clock);
        let owner = run.owner(&sandbox.attachment(network));
        match del::del(&run, &owner, sandbox.pod.uid.as_ref()).await {
            Ok(del::Done::Freed) => {
                log.dels.take(began.elapsed());
                run.drain_spool().await;
            }
            Ok(del::Done::Spooled) => log.fail("DEL spooled", "freed by a later run of the node"),
            Err(e) => log.fail(format!("DEL {}", e.code.number()), e),
        }
    }

    /// Not connected yet.
    fn store(&self, verb: Verb) -> Etcd {
        Etcd::new(Access { patience: verb.patience(), ..self.access.clone() })
    }

    fn run<'a>(
        &'a self,
        kv: &'a Etcd,
        (verb, began): (Verb, Instant),
        clock: &'a dyn Fn() -> RunStart,
    ) -> Run<'a, Etcd> {
        let session = Session { kv, keys: &self.keys, until: began + verb.deadline() };
        Run::new(session, &self.state, clock(), clock, &|| true)
    }

    fn ask(&self, run: &Run<'_, Etcd>, sandbox: &Sandbox, network: usize) -> Ask {
        let labels = Labels { pod: sandbox.pod.clone(), cni_network: "net".to_owned() };
        let set = self.networks[network].clone();
        let wanted = RangesWanted { order: self.order, ..RangesWanted::lowest_of(vec![set]) };
        run.ask(run.owner(&sandbox.attachment(network)), labels, wanted)
    }

    fn now(&self) -> RunStart {
        let now = now();
        RunStart { boot: self.boot.clone().unwrap_or(now.boot), ns: now.ns }
    }
}

impl Sandbox {
    /// The interfaces have the names that Multus gives them.
    fn attachment(&self, network: usize) -> Attachment {
        let ifname = if network == 0 { "eth0".to_owned() } else { format!("net{network}") };
        Attachment {
            container_id: self.container.parse().expect("hex digits"),
            ifname: ifname.parse().expect("a plain name"),
        }
    }
}

/// Without what differs from one failure to the next.
fn first_words(text: &str) -> &str {
    text.split([':', ';', '(']).next().unwrap_or_default().trim()
}

/// Of the node of this index.
pub(super) fn name(index: usize) -> String {
    format!("node-{index:04}.rack-{:02}.example", index % 50)
}
