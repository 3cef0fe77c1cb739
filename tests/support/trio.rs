//! A real etcd of three members, each on a machine of its own as far as the network goes.
//!
//! Every member has a network namespace with an address, and all are plugged into a bridge in one more namespace, as
//! is the test's own. So a member can be cut off from its fellows and from its clients at once, and packets to it
//! vanish: nobody is refused. It needs root, as the namespaces of [`super::netns`] do.
//!
//! Elections are as quick as etcd's defaults make them: a member is missed after a second.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use etcd_client::{Error, StatusResponse};
use tempfile::TempDir;
use tokio::time::timeout;

use super::etcd::{Etcd, EtcdOptions, Ports, Seat};
use super::netns::Netns;
use super::process::{temporary, unique};
use super::run::Run;
use super::store::Store;
use super::tls::Tls;
use super::wait::wait_for;

pub const MEMBERS: usize = 3;

/// A member that is stopped or cut off does not answer at all.
const STATUS_MAX: Duration = Duration::from_millis(500);
const LEADER_MAX: Duration = Duration::from_secs(20);
/// A transfer of the lead takes milliseconds, or does not happen.
const TRANSFER_MAX: Duration = Duration::from_secs(2);
const SUBNET_TRIES_MAX: u32 = 10_000;
const PORTS: Ports = Ports { client: 2379, peer: 2380, metrics: 2381 };

/// Three running members: on drop they are killed, and their namespaces and data removed.
#[derive(Debug)]
pub struct Trio {
    // Before the network that they use.
    members: Vec<Etcd>,
    network: Network,
    // Of the authority and its client.
    tls: Option<Tls>,
    _folder: TempDir,
}

impl Trio {
    pub fn start() -> Self {
        Self::start_with(EtcdOptions::default())
    }

    /// Every member with these flags.
    pub fn with_args(args: &[&str]) -> Self {
        let args = args.iter().map(|&arg| arg.to_owned()).collect();
        Self::start_with(EtcdOptions { args, ..EtcdOptions::default() })
    }

    /// Every member with a server's certificate of its own, for its own address only.
    pub fn start_mtls() -> Self {
        Self::start_with(EtcdOptions { mtls: true, ..EtcdOptions::default() })
    }

    pub fn start_with(options: EtcdOptions) -> Self {
        let network = Network::new();
        let folder = temporary();
        let tls = options.mtls.then(|| Tls::create(&folder.path().join("tls")));
        let members = network.seats().into_iter().map(|seat| {
            let tls = tls.as_ref().map(|tls| tls.with_server(&seat.name, seat.host));
            Etcd::launch(options.clone(), temporary(), seat, tls)
        });
        let mut trio = Self { members: members.collect(), network, tls, _folder: folder };
        trio.members.iter_mut().for_each(Etcd::assert_ready);
        trio
    }

    /// In the order of the members' numbers.
    pub fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(Etcd::endpoint).collect()
    }

    /// The authority and its client.
    pub fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    /// Gives a member another certificate, which it reads for the next connection.
    pub fn renew_certificate(&self, index: usize) {
        let tls = self.tls.as_ref().expect("it has TLS");
        tls.renew_server(&member_name(index), self.network.host(index));
    }

    pub fn member(&self, index: usize) -> &Etcd {
        &self.members[index]
    }

    /// The number of the member that leads; waits for an election to end.
    #[track_caller]
    pub fn leader(&self) -> usize {
        wait_for("a leader", LEADER_MAX, || {
            let mut statuses = (0..MEMBERS).filter_map(|index| Some((index, self.status(index)?)));
            let leads = |status: &StatusResponse| id(status) == status.leader();
            let leader = statuses.find(|(_, status)| leads(status));
            leader.map(|(index, _)| index).ok_or_else(|| "nobody says that it leads".to_owned())
        })
    }

    /// One of the two that do not lead.
    #[track_caller]
    pub fn follower(&self) -> usize {
        (self.leader() + 1) % MEMBERS
    }

    /// Makes another member the leader, as an operator does before an upgrade.
    #[track_caller]
    pub fn move_leader(&self, to: usize) {
        let target = id(&self.status(to).expect("a member that is to lead answers"));
        wait_for("the lead to move", LEADER_MAX, || {
            let leader = self.leader();
            if leader == to {
                return Ok(());
            }
            // etcd waits without a bound for a transfer that comes to nothing.
            let asked = self.through(leader).try_run(async |client| {
                let mut maintenance = client.maintenance_client();
                Ok(timeout(TRANSFER_MAX, maintenance.move_leader(target)).await.is_ok())
            });
            Err(format!("member {leader} leads, and was asked: {asked:?}"))
        });
    }

    /// SIGSTOP: connections stay open and new ones are accepted, nothing answers.
    pub fn stop(&self, index: usize) {
        self.members[index].stop();
    }

    /// SIGCONT.
    pub fn resume(&self, index: usize) {
        self.members[index].resume();
    }

    /// SIGKILL, and waits for the end: from here on connections are refused.
    pub fn kill(&mut self, index: usize) {
        self.members[index].kill();
    }

    /// Starts a member again with its data, and waits until it answers; that takes a quorum.
    pub fn restart(&mut self, index: usize) {
        self.restart_all(&[index]);
    }

    /// Several at once, which together may be the quorum.
    pub fn restart_all(&mut self, indexes: &[usize]) {
        indexes.iter().for_each(|&index| self.members[index].relaunch());
        indexes.iter().for_each(|&index| self.members[index].assert_ready());
    }

    /// From now on every packet from and to this member vanishes.
    pub fn blackhole(&self, index: usize) {
        self.network.set_plugged(index, false);
    }

    /// From now on this member reaches no other, and is reached by its clients as before.
    pub fn isolate(&self, index: usize) {
        self.network.set_isolated(index, true);
    }

    /// Ends [`Trio::isolate`].
    pub fn rejoin(&self, index: usize) {
        self.network.set_isolated(index, false);
    }

    /// Ends [`Trio::blackhole`].
    pub fn heal(&self, index: usize) {
        self.network.set_plugged(index, true);
    }

    /// Access to one member, for requests to each: its status, its defragmentation.
    pub fn through(&self, index: usize) -> Store {
        let member = &self.members[index];
        Store::of(vec![member.endpoint()], self.tls(), "/")
    }

    fn status(&self, index: usize) -> Option<StatusResponse> {
        let status = self.through(index).try_run(async |client| {
            match timeout(STATUS_MAX, client.maintenance_client().status()).await {
                Ok(status) => status,
                Err(_) => Err(Error::WatchError("no answer".to_owned())),
            }
        });
        status.ok()
    }
}

fn id(status: &StatusResponse) -> u64 {
    status.header().expect("an answer has a header").member_id()
}

/// The namespaces of the members, and one with the bridge between them and the test's own.
#[derive(Debug)]
struct Network {
    switch: Netns,
    machines: Vec<Netns>,
    /// Of 198.18.0.0/15, which is for measurements in closed networks.
    subnet: [u8; 3],
}

impl Network {
    fn new() -> Self {
        // So that no two tests of this process choose the same.
        static CHOOSING: Mutex<()> = Mutex::new(());
        let _choosing = CHOOSING.lock().unwrap_or_else(PoisonError::into_inner);
        let machines = (0..MEMBERS).map(|_| Netns::new()).collect();
        let network = Self { switch: Netns::new(), machines, subnet: free_subnet() };
        network.build();
        network
    }

    fn seats(&self) -> Vec<Seat> {
        let seat = |(index, machine): (usize, &Netns)| Seat {
            name: member_name(index),
            host: self.host(index),
            ports: PORTS,
            reached: SocketAddr::from((self.host(index), PORTS.peer)),
            netns: Some(machine.path()),
            others: Vec::new(),
        };
        Seat::introduce(self.machines.iter().enumerate().map(seat).collect())
    }

    /// The address of a member, or of the test's own end for the number after the last.
    fn host(&self, index: usize) -> Ipv4Addr {
        let [a, b, c] = self.subnet;
        Ipv4Addr::from([a, b, c, u8::try_from(index + 1).expect("members are few")])
    }

    fn build(&self) {
        let own = unique("mt");
        let switch = self.switch.name();
        batch(
            None,
            &[
                format!("link add {own} address {} type veth peer name own netns {switch}", mac(MEMBERS)),
                format!("link set {own} up"),
                format!("address add {}/24 dev {own}", self.host(MEMBERS)),
            ],
        );
        let mut lines = vec!["link add bridge type bridge".to_owned(), "link set bridge up".to_owned()];
        for (index, machine) in self.machines.iter().enumerate() {
            let (port, mac) = (member_name(index), mac(index));
            let peer = format!("peer name eth0 address {mac} netns {}", machine.name());
            lines.push(format!("link add {port} type veth {peer}"));
        }
        for port in (0..MEMBERS).map(member_name).chain(["own".to_owned()]) {
            lines.push(format!("link set {port} master bridge up"));
        }
        batch(Some(&self.switch), &lines);
        for (index, machine) in self.machines.iter().enumerate() {
            batch(
                Some(machine),
                &["link set eth0 up".to_owned(), format!("address add {}/24 dev eth0", self.host(index))],
            );
            batch(Some(machine), &self.neighbours(index, "eth0"));
        }
        batch(None, &self.neighbours(MEMBERS, &own));
    }

    /// Written down for good: who asks in vain for an address of the link layer is told that there is no such host.
    fn neighbours(&self, of: usize, device: &str) -> Vec<String> {
        let others = (0..=MEMBERS).filter(|&other| other != of);
        others
            .map(|other| {
                format!("neighbour add {} lladdr {} dev {device} nud permanent", self.host(other), mac(other))
            })
            .collect()
    }

    /// An unplugged member still sees its cable, as behind a switch that has lost its own.
    fn set_plugged(&self, index: usize, is_plugged: bool) {
        let to = if is_plugged { "master bridge" } else { "nomaster" };
        batch(Some(&self.switch), &[format!("link set {} {to}", member_name(index))]);
    }

    fn set_isolated(&self, index: usize, is_isolated: bool) {
        let change = if is_isolated { "add" } else { "delete" };
        let others = (0..MEMBERS).filter(|&other| other != index);
        let lines: Vec<String> =
            others.map(|other| format!("route {change} blackhole {}", self.host(other))).collect();
        batch(Some(&self.machines[index]), &lines);
    }
}

/// Of the member, and of the bridge's port that it is plugged into.
fn member_name(index: usize) -> String {
    format!("member{index}")
}

fn mac(index: usize) -> String {
    format!("02:00:00:00:00:{:02x}", index + 1)
}

/// One that no interface of this machine is in.
fn free_subnet() -> [u8; 3] {
    let routes = Run::new("ip").arguments(["-4", "route"]).run().stdout;
    let random = || RandomState::new().build_hasher().finish().to_be_bytes();
    let subnets = (0..SUBNET_TRIES_MAX).map(|_| random()).map(|[a, b, ..]| [198, 18 + a % 2, b]);
    let is_free = |[a, b, c]: &[u8; 3]| !routes.contains(&format!("{a}.{b}.{c}."));
    subnets.into_iter().find(is_free).expect("one of 198.18.0.0/15 is free")
}

/// Lines for the command `ip`, in the test's own namespace or in another.
#[track_caller]
fn batch(netns: Option<&Netns>, lines: &[String]) {
    let within = netns.map(|netns| ["-n", netns.name()]);
    let arguments = within.into_iter().flatten().chain(["-batch", "-"]);
    Run::new("ip").arguments(arguments).stdin(lines.join("\n") + "\n").run().silent();
}
