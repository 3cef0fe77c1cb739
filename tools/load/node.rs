//! A virtual node: all that a node with the plugin has of its own. Many of them share one process.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use metes::commands::{Run, add, del};
use metes_config::cni::request::Attachment;
use metes_core::keys::Keys;
use metes_core::limits;
use metes_core::plan::ask::Ask;
use metes_core::pool::{
    Labels, NetworkName, Order, Owner, Pod, Range, RangeSet, RangeSpec, RangesWanted, RunStart,
};
use metes_engine::kv::Kv;
use metes_engine::random::random_below;
use metes_engine::session::Session;
use metes_etcd::client::Etcd;
use metes_node::node::{self, Identity};
use metes_node::state::NodeState;
use tokio::time::Instant;

use crate::crew::{Client, Log};
use support::plain_store;

/// The most addresses that a node holds if it also gives some back.
const HELD_MAX: usize = 8;
/// More than any step reserves.
const SUBNET: &str = "10.16.0.0/12";

/// The network of the next ADD.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pick {
    /// Always the same for one node.
    Own,
    /// A random one for each ADD.
    Random,
}

/// The parts that all nodes of one step share.
#[derive(Clone)]
pub(crate) struct Place<'a> {
    /// Of the members; the nodes use them in turn.
    pub(crate) endpoints: &'a [String],
    pub(crate) prefix: &'a str,
    /// For the folders of the nodes.
    pub(crate) folder: &'a Path,
    /// The beginning of the networks' and nodes' names.
    pub(crate) step: String,
    pub(crate) networks: usize,
    pub(crate) pick: Pick,
    pub(crate) order: Order,
    pub(crate) dels: bool,
}

/// One virtual node, with a connection of its own.
pub(crate) struct Node {
    kv: Etcd,
    keys: Keys,
    state: NodeState,
    index: usize,
    sets: Rc<[RangeSet]>,
    pick: Pick,
    order: Order,
    dels: bool,
    held: VecDeque<(Owner, String, IpAddr)>,
    log: Log,
}

impl Node {
    /// Makes a node that is connected already: requests are measured, not connections.
    pub(crate) async fn connect(place: &Place<'_>, index: usize) -> Self {
        let name = format!("{}-node-{index}.example", place.step);
        let state = NodeState {
            folder: place.folder.join(&name),
            identity: Identity::of(name.parse().expect("a plain name")),
            endpoints: place.endpoints.to_vec(),
            all: None,
        };
        let endpoint = &place.endpoints[index % place.endpoints.len()];
        let kv = plain_store(endpoint, limits::UNREACHABLE);
        kv.connect(Instant::now() + limits::ADD_DEADLINE).await.expect("etcd can be reached");
        let networks = match place.pick {
            Pick::Own => index % place.networks..index % place.networks + 1,
            Pick::Random => 0..place.networks,
        };
        Self {
            kv,
            keys: Keys::new(place.prefix),
            state,
            index,
            sets: networks.map(|network| set(&format!("{}-{network}", place.step))).collect(),
            pick: place.pick,
            order: place.order,
            dels: place.dels,
            held: VecDeque::new(),
            log: Log::default(),
        }
    }

    async fn add(&mut self, number: usize) {
        let set = match self.pick {
            Pick::Own => &self.sets[0],
            Pick::Random => &self.sets[random_below(self.sets.len() as u64) as usize],
        };
        let (network, set) = (set.ranges()[0].network().to_string(), set.clone());
        let start = Instant::now();
        let run = self.run(limits::ADD_DEADLINE);
        // As long as the ids that runtimes make.
        let owner = run.owner(&Attachment {
            container_id: format!("{:032x}{number:032x}", self.index).parse().expect("hex digits"),
            ifname: "eth0".parse().expect("a plain name"),
        });
        let ask = self.ask(&run, owner, set, number);
        let added = add::add(&run, &ask).await;
        let answered = Instant::now();
        run.drain_spool().await;
        match added {
            Ok(added) => {
                self.log.main.take(answered - start);
                self.held.push_back((ask.owner, network, added.held[0].address));
            }
            Err(e) => self.log.fail(format!("ADD {}", e.code.number()), e),
        }
    }

    async fn del_oldest(&mut self) {
        let Some((owner, ..)) = self.held.pop_front() else { return };
        let start = Instant::now();
        let run = self.run(limits::DEL_DEADLINE);
        match del::del(&run, &owner, None).await {
            Ok(del::Done::Freed) => self.log.dels.take(start.elapsed()),
            Ok(del::Done::Spooled) => self.log.fail("DEL spooled", "freed by a later run of the node"),
            Err(e) => self.log.fail(format!("DEL {}", e.code.number()), e),
        }
    }

    /// Makes a run as the plugin makes one for each of its processes.
    fn run(&self, deadline: Duration) -> Run<'_, Etcd> {
        let session = Session { kv: &self.kv, keys: &self.keys, until: Instant::now() + deadline };
        Run::new(session, &self.state, now(), &now, &|| true)
    }

    fn ask(&self, run: &Run<'_, Etcd>, owner: Owner, set: RangeSet, number: usize) -> Ask {
        let pod = Pod {
            namespace: "production".to_owned(),
            name: format!("frontend-7d4b9c6f5d-{number:05}"),
            uid: format!("0c7f3f0e-3d6e-{:04x}-{number:04x}-7a7c7f2f3b11", self.index).parse().ok(),
        };
        let labels = Labels { pod, cni_network: "net".to_owned() };
        run.ask(owner, labels, RangesWanted { order: self.order, ..RangesWanted::lowest_of(vec![set]) })
    }
}

impl Client for Node {
    async fn work(mut self, until: Instant) -> Log {
        let mut number = 0;
        while Instant::now() < until {
            self.add(number).await;
            number += 1;
            if self.dels && self.held.len() > HELD_MAX {
                self.del_oldest().await;
            }
        }
        self.log.held = self.held.into_iter().map(|(_, network, address)| (network, address)).collect();
        self.log
    }
}

pub(crate) fn set(network: &str) -> RangeSet {
    let subnet: ipnetwork::Ipv4Network = SUBNET.parse().expect("a subnet");
    let range = Range::new(RangeSpec {
        network: NetworkName::configured(network).expect("a plain name"),
        subnet: subnet.into(),
        first: subnet.network().into(),
        last: subnet.broadcast().into(),
        excludes: Vec::new(),
        never: Vec::new(),
        gateway: None,
    });
    RangeSet::new(vec![range.expect("a range")]).expect("a set")
}

pub(crate) fn now() -> RunStart {
    node::start().expect("the kernel tells its boot id")
}
