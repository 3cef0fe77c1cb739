//! Links that take a while, as between racks and zones: relays that hold every byte back for a given time, and three
//! members of etcd that reach each other through such relays.
//!
//! A relay keeps the order and limits no bandwidth: bytes that are read are stamped with the time at which they are
//! due, and the next part is read at once. One thread carries all connections of a group of relays. It waits by ppoll,
//! which is exact to some microseconds; tokio's timers are rounded up to milliseconds.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, PipeReader, PipeWriter, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use tempfile::TempDir;

use super::etcd::{Etcd, EtcdOptions, Ports, Seat, free_ports};
use super::process::temporary;
use super::tls::Tls;
use super::trio::MEMBERS;

/// The most bytes of a part.
const PART_BYTES: usize = 64 << 10;

/// Relays on the loopback, one before each of some servers. On drop they close every connection.
#[derive(Debug)]
pub struct Relays {
    addresses: Vec<SocketAddr>,
    /// Closed, it ends the thread.
    end: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl Relays {
    /// Everything takes `one_way` to a server, and as long back.
    pub fn before(servers: &[SocketAddr], one_way: Duration) -> Self {
        let routes: Vec<Route> = servers.iter().map(|&server| Route::to(server)).collect();
        let address = |route: &Route| route.listener.local_addr().expect("a listener has an address");
        let addresses = routes.iter().map(address).collect();
        let (ended, end) = io::pipe().expect("a pipe can be made");
        let mut carrier = Carrier { routes, one_way, connections: Vec::new(), buffer: vec![0; PART_BYTES] };
        let thread = thread::spawn(move || while carrier.turn(&ended) {});
        Self { addresses, end: Some(end), thread: Some(thread) }
    }

    /// Before a single server at `http://HOST:PORT` or `https://HOST:PORT`. The relay's own address has the same form.
    pub fn before_endpoint(endpoint: &str, one_way: Duration) -> (Self, String) {
        let parts =
            endpoint.split_once("://").and_then(|(scheme, server)| Some((scheme, server.parse().ok()?)));
        let (scheme, server) = parts.expect("an endpoint like http://HOST:PORT");
        let relays = Self::before(&[server], one_way);
        let endpoint = format!("{scheme}://{}", relays.addresses[0]);
        (relays, endpoint)
    }
}

impl Drop for Relays {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // A panic there has shown by itself.
            let _ = thread.join();
        }
    }
}

/// The address on which a relay listens, and the server behind it.
struct Route {
    listener: TcpListener,
    server: SocketAddr,
}

impl Route {
    fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of the loopback is free");
        listener.set_nonblocking(true).expect("a listener need not block");
        Self { listener, server }
    }
}

/// All that the thread works on.
struct Carrier {
    routes: Vec<Route>,
    one_way: Duration,
    connections: Vec<Connection>,
    buffer: Vec<u8>,
}

/// A client and its server.
struct Connection {
    ends: [TcpStream; 2],
    /// From the end of the same index to the other one.
    lanes: [Lane; 2],
}

/// One direction.
#[derive(Default)]
struct Lane {
    parts: VecDeque<Part>,
    /// The end of the parts was read.
    is_read: bool,
    /// It was handed on.
    is_written: bool,
    /// The receiver takes nothing more at this time.
    is_blocked: bool,
}

/// Bytes that were read at once; none stand for the end.
struct Part {
    due: Instant,
    bytes: Vec<u8>,
    written: usize,
}

impl Carrier {
    /// Waits until something can be done, and does it; false at the end.
    fn turn(&mut self, ended: &PipeReader) -> bool {
        let (ready, is_over) = self.wait(ended);
        for (connection, end) in ready {
            self.connections[connection].read(end, self.one_way, &mut self.buffer);
        }
        self.connections.retain_mut(|connection| connection.write().is_ok_and(|()| connection.is_open()));
        for route in &self.routes {
            // Nobody waits, or the client has gone already.
            while let Ok((client, _)) = route.listener.accept() {
                // A server that is down closes the connections to its relay.
                self.connections.extend(Connection::new(client, route.server).ok());
            }
        }
        !is_over
    }

    /// The ends that can be read, by connection and side; and whether this is the end.
    fn wait(&self, ended: &PipeReader) -> (Vec<(usize, usize)>, bool) {
        let mut polled = vec![PollFd::new(ended, PollFlags::IN)];
        polled.extend(self.routes.iter().map(|route| PollFd::new(&route.listener, PollFlags::IN)));
        let first = polled.len();
        let mut sides = Vec::new();
        for (index, connection) in self.connections.iter().enumerate() {
            for (end, stream) in connection.ends.iter().enumerate() {
                let mut wanted = PollFlags::empty();
                wanted.set(PollFlags::IN, !connection.lanes[end].is_read);
                wanted.set(PollFlags::OUT, connection.lanes[1 - end].is_blocked);
                // One that nothing is wanted of may be closed, which would be told again and again.
                if !wanted.is_empty() {
                    polled.push(PollFd::new(stream, wanted));
                    sides.push((index, end));
                }
            }
        }
        let lanes = self.connections.iter().flat_map(|connection| &connection.lanes);
        let due =
            lanes.filter(|lane| !lane.is_blocked).filter_map(|lane| Some(lane.parts.front()?.due)).min();
        let left = due.map(|due| due.saturating_duration_since(Instant::now()));
        let left = left.map(|left| Timespec::try_from(left).expect("a link takes no years"));
        retry_on_intr(|| poll(&mut polled, left.as_ref())).expect("own files can be polled");
        let readable = PollFlags::IN | PollFlags::HUP | PollFlags::ERR;
        let is_ready = |fd: &PollFd<'_>| fd.revents().intersects(readable);
        let ready = polled[first..].iter().zip(sides).filter(|(fd, _)| is_ready(fd)).map(|(_, side)| side);
        (ready.collect(), is_ready(&polled[0]))
    }
}

impl Connection {
    fn new(client: TcpStream, server: SocketAddr) -> io::Result<Self> {
        let ends = [client, TcpStream::connect(server)?];
        for end in &ends {
            end.set_nonblocking(true)?;
            end.set_nodelay(true)?;
        }
        Ok(Self { ends, lanes: Default::default() })
    }

    fn is_open(&self) -> bool {
        self.lanes.iter().any(|lane| !lane.is_written)
    }

    /// A broken connection ends as a closed one does.
    fn read(&mut self, end: usize, one_way: Duration, buffer: &mut [u8]) {
        if self.lanes[end].is_read {
            return;
        }
        let count = match (&self.ends[end]).read(buffer) {
            Ok(count) => count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return,
            Err(_) => 0,
        };
        let lane = &mut self.lanes[end];
        lane.is_read |= count == 0;
        lane.parts.push_back(Part {
            due: Instant::now() + one_way,
            bytes: buffer[..count].to_vec(),
            written: 0,
        });
    }

    /// Hands on the parts that are due.
    fn write(&mut self) -> io::Result<()> {
        let now = Instant::now();
        for (lane, mut to) in self.lanes.iter_mut().zip(self.ends.iter().rev()) {
            lane.is_blocked = false;
            while let Some(part) = lane.parts.front_mut().filter(|part| part.due <= now) {
                if part.bytes.is_empty() {
                    lane.is_written = true;
                    to.shutdown(Shutdown::Write)?;
                } else {
                    match to.write(&part.bytes[part.written..]) {
                        Ok(count) => part.written += count,
                        Err(error) if error.kind() == ErrorKind::WouldBlock => {
                            lane.is_blocked = true;
                            break;
                        }
                        Err(error) => return Err(error),
                    }
                }
                if part.written == part.bytes.len() {
                    lane.parts.pop_front();
                }
            }
        }
        Ok(())
    }
}

/// Three running members on the loopback, whose links to each other take a while. Clients reach them directly. On drop
/// the members are killed, and their data removed.
#[derive(Debug)]
pub struct SlowTrio {
    members: Vec<Etcd>,
    _relays: Option<Relays>,
    // Of the authority and its client.
    tls: Option<Tls>,
    _folder: TempDir,
}

impl SlowTrio {
    /// Every link takes `one_way` in each direction; without it there are no relays at all.
    pub fn start(options: &EtcdOptions, one_way: Option<Duration>) -> Self {
        let [a, b, c, d, e, f, g, h, i] = free_ports();
        let ports =
            [[a, b, c], [d, e, f], [g, h, i]].map(|[client, peer, metrics]| Ports { client, peer, metrics });
        let peers = ports.map(|ports| SocketAddr::from((Ipv4Addr::LOCALHOST, ports.peer)));
        let relays = one_way.map(|one_way| Relays::before(&peers, one_way));
        let reached = relays.as_ref().map_or(peers.to_vec(), |relays| relays.addresses.clone());
        let seats: Vec<Seat> = (0..MEMBERS)
            .map(|index| Seat {
                name: format!("member{index}"),
                host: Ipv4Addr::LOCALHOST,
                ports: ports[index],
                reached: reached[index],
                netns: None,
                others: Vec::new(),
            })
            .collect();
        let folder = temporary();
        let tls = options.mtls.then(|| Tls::create(&folder.path().join("tls")));
        let launch = |seat: Seat| {
            let tls = tls.as_ref().map(|tls| tls.with_server(&seat.name, seat.host));
            Etcd::launch(options.clone(), temporary(), seat, tls)
        };
        let members = Seat::introduce(seats).into_iter().map(launch).collect();
        let mut trio = Self { members, _relays: relays, tls, _folder: folder };
        trio.wait_until_ready();
        trio
    }

    /// In the order of the members' numbers.
    pub fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(Etcd::endpoint).collect()
    }

    pub fn members(&self) -> &[Etcd] {
        &self.members
    }

    /// The authority and its client.
    pub fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    /// Kills a member and starts it again with its data; does not wait until it answers.
    pub fn relaunch(&mut self, index: usize) {
        self.members[index].relaunch();
    }

    #[track_caller]
    pub fn wait_until_ready(&mut self) {
        self.members.iter_mut().for_each(Etcd::assert_ready);
    }
}
