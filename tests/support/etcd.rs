//! Real etcd servers: alone on free ports of the loopback, or members of a [`super::trio::Trio`].

use std::collections::hash_map::RandomState;
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::process::{signal, spawn_bound, stop, temporary};
use super::tls::Tls;
use super::tool::tool;
use super::wait::wait_for;

const READY_MAX: Duration = Duration::from_secs(30);
const HTTP_MAX: Duration = Duration::from_secs(10);
/// Another process may take a port between its choice and its use.
const START_TRIES_MAX: u32 = 5;
const PORT_TRIES_MAX: u32 = 1000;
/// Below the ephemeral ports: no outgoing connection takes one of these while a server is down.
const PORT_FIRST: u16 = 10_000;
const PORT_COUNT: u64 = 20_000;
const LOG_TAIL_LINES: usize = 20;

/// The differences of a server from the usual one.
#[derive(Clone, Debug)]
pub struct EtcdOptions {
    /// The binary.
    pub program: PathBuf,
    /// More flags.
    pub args: Vec<String>,
    /// Only what measures wants to wait for the disk.
    pub fsync: bool,
    /// Serve TLS only, and only to clients with a certificate.
    pub mtls: bool,
}

impl Default for EtcdOptions {
    fn default() -> Self {
        Self { program: tool("etcd"), args: Vec::new(), fsync: false, mtls: false }
    }
}

/// A running server: on drop it is killed and its data removed; it is killed too when the test process dies.
#[derive(Debug)]
pub struct Etcd {
    options: EtcdOptions,
    folder: TempDir,
    seat: Seat,
    tls: Option<Tls>,
    child: Child,
}

/// The addresses of a server and of its fellow members.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    pub(crate) name: String,
    pub(crate) host: Ipv4Addr,
    pub(crate) ports: Ports,
    /// The address for the other members: its own peer port, or a relay before that.
    pub(crate) reached: SocketAddr,
    /// The namespace that has `host`, if that is not the test's own.
    pub(crate) netns: Option<PathBuf>,
    /// Names and peer addresses of the others, in etcd's words.
    pub(crate) others: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    pub(crate) client: u16,
    pub(crate) peer: u16,
    pub(crate) metrics: u16,
}

impl Etcd {
    /// The server that all tests of this process share. It lives as long as the process.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Etcd> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    pub fn start() -> Self {
        Self::start_with(EtcdOptions::default())
    }

    /// With more flags, for instance `--quota-backend-bytes=...` or `--max-txn-ops=...`.
    pub fn with_args(args: &[&str]) -> Self {
        let args = args.iter().map(|&arg| arg.to_owned()).collect();
        Self::start_with(EtcdOptions { args, ..EtcdOptions::default() })
    }

    /// For users with passwords. To verify one takes the usual server so long on a busy machine that a run gives its
    /// connection up.
    pub fn start_with_cheap_passwords() -> Self {
        Self::with_args(&["--bcrypt-cost=4"])
    }

    /// A server that is too old for metes.
    pub fn start_version_34() -> Self {
        // The older flag set has no --unsafe-no-fsync.
        let program = tool("etcd-3.4");
        Self::start_with(EtcdOptions { program, fsync: true, ..EtcdOptions::default() })
    }

    pub fn start_mtls() -> Self {
        Self::start_with(EtcdOptions { mtls: true, ..EtcdOptions::default() })
    }

    /// With certificates that `prepare` has changed.
    pub fn start_mtls_with(prepare: impl Fn(&Tls)) -> Self {
        Self::start_prepared(EtcdOptions { mtls: true, ..EtcdOptions::default() }, prepare)
    }

    pub fn start_with(options: EtcdOptions) -> Self {
        Self::start_prepared(options, |_| {})
    }

    fn start_prepared(options: EtcdOptions, prepare: impl Fn(&Tls)) -> Self {
        for _ in 0..START_TRIES_MAX {
            let folder = temporary();
            let tls = options.mtls.then(|| Tls::create(&folder.path().join("tls")));
            tls.iter().for_each(&prepare);
            let mut etcd = Self::launch(options.clone(), folder, Seat::alone(), tls);
            match etcd.wait_ready() {
                Ok(()) => return etcd,
                Err(Dead) if etcd.log().contains("address already in use") => {}
                Err(Dead) => panic!("etcd ended at once; its last words:\n{}", etcd.log_tail()),
            }
        }
        panic!("no free ports for etcd in {START_TRIES_MAX} tries");
    }

    /// Does not wait until the server answers: a member does that only when more than half of all members run.
    pub(crate) fn launch(options: EtcdOptions, folder: TempDir, seat: Seat, tls: Option<Tls>) -> Self {
        let child = spawn(&options, folder.path(), &seat, tls.as_ref());
        Self { options, folder, seat, tls, child }
    }

    /// The address for clients, with its scheme.
    pub fn endpoint(&self) -> String {
        self.seat.client_url(self.tls.is_some())
    }

    /// The address for other members, which serves no clients.
    pub fn peer_address(&self) -> SocketAddr {
        SocketAddr::from((self.seat.host, self.seat.ports.peer))
    }

    pub fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    /// The host file's `etcd` object for this server.
    pub fn host_keys(&self, prefix: &str) -> Value {
        host_keys(&[self.endpoint()], self.tls(), prefix)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGSTOP: connections stay open, nothing answers.
    pub fn stop(&self) {
        stop(&self.child);
    }

    /// SIGCONT.
    pub fn resume(&self) {
        signal(&self.child, Signal::CONT);
    }

    /// SIGKILL, and waits for the end: from here on connections are refused.
    pub fn kill(&mut self) {
        self.child.kill().expect("an own child can be killed");
        self.child.wait().expect("an own child can be waited for");
    }

    /// Starts it again on the same ports with the same data.
    pub fn restart(&mut self) {
        self.relaunch();
        self.assert_ready();
    }

    /// The same with other flags than it was started with.
    pub fn restart_with(&mut self, args: &[&str]) {
        self.options.args = args.iter().map(|&arg| arg.to_owned()).collect();
        self.restart();
    }

    /// [`Etcd::restart`] without waiting for its answer.
    pub(crate) fn relaunch(&mut self) {
        self.kill();
        self.child = spawn(&self.options, self.folder.path(), &self.seat, self.tls.as_ref());
    }

    #[track_caller]
    pub(crate) fn assert_ready(&mut self) {
        if let Err(Dead) = self.wait_ready() {
            panic!("etcd did not come up; its last words:\n{}", self.log_tail());
        }
    }

    /// A copy of its data folder, to be put back by [`Etcd::restore_data`]: a store that went back in time.
    pub fn copy_data(&mut self) -> PathBuf {
        self.kill();
        let copy = self.folder.path().join("copy");
        copy_folder(&self.data(), &copy);
        self.restart();
        copy
    }

    pub fn restore_data(&mut self, copy: &Path) {
        self.kill();
        fs::remove_dir_all(self.data()).expect("the data of a dead server can be removed");
        copy_folder(copy, &self.data());
        self.restart();
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
    }

    /// As Prometheus reads them.
    pub fn metrics(&self) -> String {
        http_get(self.seat.metrics(), "/metrics").expect("etcd tells its metrics")
    }

    /// Where it shows them without TLS.
    pub fn metrics_port(&self) -> u16 {
        self.seat.ports.metrics
    }

    /// The sum of a metric over all lines that contain each of `labels`.
    pub fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let text = self.metrics();
        let is_meant = |line: &&str| {
            let rest = line.strip_prefix(name).unwrap_or_default();
            rest.starts_with([' ', '{']) && labels.iter().all(|label| rest.contains(label))
        };
        let value = |line: &str| line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok());
        text.lines().filter(is_meant).filter_map(value).sum()
    }

    fn wait_ready(&mut self) -> Result<(), Dead> {
        let metrics = self.seat.metrics();
        let child = &mut self.child;
        wait_for("etcd to answer", READY_MAX, || {
            if child.try_wait().expect("an own child can be asked").is_some() {
                return Ok(Err(Dead));
            }
            healthy(metrics).map(Ok)
        })
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // It may be dead already, and a failing test must show its own failure.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A learner of another server's cluster: it has all data and serves no requests.
#[derive(Debug)]
pub struct Learner(Etcd);

impl Learner {
    pub fn of(etcd: &Etcd) -> Self {
        let seat = Seat { name: "learner".to_owned(), others: vec![etcd.seat.entry()], ..Seat::alone() };
        let peer = format!("--peer-urls=http://{}", seat.reached);
        let endpoint = format!("--endpoints={}", etcd.endpoint());
        let added = Command::new(tool("etcd-clients").join("etcdctl"))
            .args([endpoint.as_str(), "member", "add", "learner", "--learner", peer.as_str()])
            .output()
            .expect("etcdctl runs");
        assert!(added.status.success(), "{added:?}");
        let args = vec!["--initial-cluster-state=existing".to_owned()];
        let options = EtcdOptions { args, ..etcd.options.clone() };
        let learner = Etcd::launch(options, temporary(), seat, None);
        let port = SocketAddr::from((learner.seat.host, learner.seat.ports.client));
        wait_for("the learner to listen", READY_MAX, || {
            TcpStream::connect_timeout(&port, HTTP_MAX).map(|_| ()).map_err(|e| e.to_string())
        });
        Self(learner)
    }

    pub fn endpoint(&self) -> String {
        self.0.endpoint()
    }
}

/// The process ended before it answered.
#[derive(Debug)]
struct Dead;

impl Seat {
    fn alone() -> Self {
        let [client, peer, metrics] = free_ports();
        let ports = Ports { client, peer, metrics };
        let host = Ipv4Addr::LOCALHOST;
        let reached = SocketAddr::from((host, peer));
        Self { name: "test".to_owned(), host, ports, reached, netns: None, others: Vec::new() }
    }

    pub(crate) fn client_url(&self, is_tls: bool) -> String {
        let scheme = if is_tls { "https" } else { "http" };
        format!("{scheme}://{}:{}", self.host, self.ports.client)
    }

    /// Tells each of them who the others are.
    pub(crate) fn introduce(mut seats: Vec<Self>) -> Vec<Self> {
        let entries: Vec<String> = seats.iter().map(Self::entry).collect();
        for (index, seat) in seats.iter_mut().enumerate() {
            let others = entries.iter().enumerate().filter(|(at, _)| *at != index);
            seat.others = others.map(|(_, entry)| entry.clone()).collect();
        }
        seats
    }

    /// Its entry in `--initial-cluster`.
    fn entry(&self) -> String {
        format!("{}=http://{}", self.name, self.reached)
    }

    fn metrics(&self) -> SocketAddr {
        SocketAddr::from((self.host, self.ports.metrics))
    }
}

/// The host file's `etcd` object.
pub(crate) fn host_keys(endpoints: &[String], tls: Option<&Tls>, prefix: &str) -> Value {
    let mut keys = json!({"endpoints": endpoints, "prefix": prefix});
    if let Some(tls) = tls {
        keys["ca_file"] = json!(tls.ca());
        keys["cert_file"] = json!(tls.client_cert());
        keys["key_file"] = json!(tls.client_key());
    }
    keys
}

/// Ports that nobody listens on at this moment.
pub fn free_ports<const N: usize>() -> [u16; N] {
    let mut chosen: Vec<u16> = Vec::new();
    for _ in 0..PORT_TRIES_MAX {
        let random = RandomState::new().build_hasher().finish() % PORT_COUNT;
        let port = PORT_FIRST + u16::try_from(random).expect("PORT_COUNT fits u16");
        if chosen.contains(&port) || TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_err() {
            continue;
        }
        chosen.push(port);
        if let Ok(ports) = <[u16; N]>::try_from(chosen.as_slice()) {
            return ports;
        }
    }
    panic!("no {N} free ports in {PORT_TRIES_MAX} tries");
}

fn spawn(options: &EtcdOptions, folder: &Path, seat: &Seat, tls: Option<&Tls>) -> Child {
    let log = File::options().create(true).append(true).open(folder.join("log")).expect("a log can be made");
    let errors = log.try_clone().expect("a file handle can be doubled");
    let (program, before) = match &seat.netns {
        None => (options.program.as_path(), Vec::new()),
        Some(path) => {
            let netns = format!("--net={}", path.display());
            (Path::new("nsenter"), vec![netns.into(), options.program.clone().into_os_string()])
        }
    };
    spawn_bound(program, |command| {
        command.args(before).args(flags(options, folder, seat, tls)).args(&options.args);
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
    })
    .unwrap_or_else(|error| panic!("cannot start {}: {error}", options.program.display()))
}

fn flags(options: &EtcdOptions, folder: &Path, seat: &Seat, tls: Option<&Tls>) -> Vec<String> {
    let client = seat.client_url(tls.is_some());
    let mut fellows = vec![seat.entry()];
    fellows.extend(seat.others.iter().cloned());
    let mut flags = vec![
        format!("--name={}", seat.name),
        "--log-level=warn".to_owned(),
        "--logger=zap".to_owned(),
        format!("--data-dir={}", folder.join("data").display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls=http://{}:{}", seat.host, seat.ports.peer),
        format!("--initial-advertise-peer-urls=http://{}", seat.reached),
        format!("--initial-cluster={}", fellows.join(",")),
        format!("--listen-metrics-urls=http://{}", seat.metrics()),
    ];
    if !options.fsync {
        flags.push("--unsafe-no-fsync".to_owned());
    }
    if let Some(tls) = tls {
        flags.push(format!("--trusted-ca-file={}", tls.ca().display()));
        flags.push(format!("--cert-file={}", tls.server_cert().display()));
        flags.push(format!("--key-file={}", tls.server_key().display()));
        flags.push("--client-cert-auth".to_owned());
    }
    flags
}

/// Asks the server's own /health; a store that is full is healthy enough to be tested.
fn healthy(metrics: SocketAddr) -> Result<(), String> {
    let answer = http_get(metrics, "/health?exclude=NOSPACE").map_err(|error| error.to_string())?;
    if answer.contains("\"health\":\"true\"") { Ok(()) } else { Err(answer) }
}

fn http_get(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, HTTP_MAX)?;
    stream.set_read_timeout(Some(HTTP_MAX))?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder can be made");
    for entry in fs::read_dir(from).expect("the folder can be read") {
        let entry = entry.expect("its entries can be read");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("an entry has a type").is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("a file can be copied");
        }
    }
}
