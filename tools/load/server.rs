//! The etcd under load, and its counts.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use std::{fs, thread};

use etcd_client::{Client, DeleteOptions};
use tokio::task::JoinSet;

use crate::puts::connect;
use support::{Etcd, EtcdOptions, SlowTrio};

/// A lease lives for 30 s, and etcd ends at most 1,000 in a second.
const LEASES_END_MAX: Duration = Duration::from_secs(90);
const PAUSE: Duration = Duration::from_millis(100);
const REVOKED_AT_ONCE: usize = 64;

/// An etcd of this run's own, or a given one.
pub(crate) struct Server {
    /// Of its members.
    endpoints: Vec<String>,
    own: Own,
    /// That others had when this began.
    foreign_leases: f64,
}

/// The processes that run as long as this does.
enum Own {
    Nothing,
    Alone(Etcd),
    Three(SlowTrio),
}

/// The counts of etcd and the machine at one moment, or their differences between two.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reading {
    pub(crate) proposals: f64,
    /// Requests that have one answer; watches are left out.
    pub(crate) requests: f64,
    /// Transactions that named a lease which had ended: each is one proposal more.
    pub(crate) leases_not_found: f64,
    pub(crate) fsyncs: f64,
    pub(crate) fsync_s: f64,
    pub(crate) etcd_cpu_s: f64,
    leases_granted: f64,
    leases_revoked: f64,
    busy_ticks: f64,
    all_ticks: f64,
}

impl Server {
    /// A given one, or a new one that writes to the disk as a real one does: three members if there are links.
    pub(crate) fn new(given: Option<&str>, links: Option<Duration>) -> Self {
        let options = EtcdOptions { fsync: true, ..EtcdOptions::default() };
        let own = match (given, links) {
            (Some(_), _) => Own::Nothing,
            (None, None) => Own::Alone(Etcd::start_with(options)),
            (None, Some(one_way)) => Own::Three(SlowTrio::start(&options, Some(one_way))),
        };
        let endpoints = match &own {
            Own::Nothing => given.into_iter().map(str::to_owned).collect(),
            Own::Alone(etcd) => vec![etcd.endpoint()],
            Own::Three(trio) => trio.endpoints(),
        };
        let mut server = Self { endpoints, own, foreign_leases: 0.0 };
        server.foreign_leases = server.read().leases();
        server
    }

    /// Of the first member.
    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoints[0]
    }

    pub(crate) fn endpoints(&self) -> &[String] {
        &self.endpoints
    }

    pub(crate) fn read(&self) -> Reading {
        let members: Vec<String> = self.endpoints.iter().map(|endpoint| metrics(endpoint)).collect();
        // Each member does what is committed, writes it to its own disk, and ends each lease.
        let sum = |name: &str| sum(&members[0], name, &[]);
        let of_all = |name: &str, labels: &[&str]| -> f64 {
            members.iter().map(|metrics| self::sum(metrics, name, labels)).sum()
        };
        let (busy_ticks, all_ticks) = machine_ticks();
        Reading {
            proposals: sum("etcd_server_proposals_committed_total"),
            requests: of_all("grpc_server_handled_total", &["grpc_type=\"unary\""]),
            leases_not_found: of_all(
                "grpc_server_handled_total",
                &["grpc_method=\"Txn\"", "grpc_code=\"NotFound\""],
            ),
            fsyncs: sum("etcd_disk_wal_fsync_duration_seconds_count"),
            fsync_s: sum("etcd_disk_wal_fsync_duration_seconds_sum"),
            etcd_cpu_s: of_all("process_cpu_seconds_total", &[]),
            leases_granted: sum("etcd_debugging_lease_granted_total"),
            leases_revoked: sum("etcd_debugging_lease_revoked_total"),
            busy_ticks,
            all_ticks,
        }
    }

    /// Ends the leases of the step before, so that they do not end during the next one. In an etcd that others use too,
    /// a lease does not tell whose it is: there this waits until as many leases are left as were at the start.
    pub(crate) fn end_leases(&self) {
        if self.is_own() {
            return block_on(async { revoke_all(self.client().await).await });
        }
        let start = Instant::now();
        while self.read().leases() > self.foreign_leases && start.elapsed() < LEASES_END_MAX {
            thread::sleep(PAUSE);
        }
    }

    /// Removes what this run has stored, for an etcd that goes on.
    pub(crate) fn remove(&self, prefixes: &[&str]) {
        if self.is_own() {
            return;
        }
        block_on(async {
            let mut client = self.client().await;
            for prefix in prefixes {
                let options = DeleteOptions::new().with_prefix();
                client.delete(*prefix, Some(options)).await.expect("own keys can be deleted");
            }
        });
    }

    async fn client(&self) -> Client {
        connect(self.endpoint(), None).await.expect("etcd accepts connections")
    }

    fn is_own(&self) -> bool {
        !matches!(self.own, Own::Nothing)
    }
}

impl Reading {
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            proposals: self.proposals - before.proposals,
            requests: self.requests - before.requests,
            leases_not_found: self.leases_not_found - before.leases_not_found,
            fsyncs: self.fsyncs - before.fsyncs,
            fsync_s: self.fsync_s - before.fsync_s,
            etcd_cpu_s: self.etcd_cpu_s - before.etcd_cpu_s,
            leases_granted: self.leases_granted - before.leases_granted,
            leases_revoked: self.leases_revoked - before.leases_revoked,
            busy_ticks: self.busy_ticks - before.busy_ticks,
            all_ticks: self.all_ticks - before.all_ticks,
        }
    }

    fn leases(&self) -> f64 {
        self.leases_granted - self.leases_revoked
    }

    /// The share of all cores that was busy, with whatever process.
    pub(crate) fn machine_busy(&self) -> f64 {
        self.busy_ticks / self.all_ticks
    }
}

fn metrics(endpoint: &str) -> String {
    let host = endpoint.strip_prefix("http://").expect("an endpoint like http://HOST:PORT");
    let host = host.trim_end_matches('/');
    let mut answer = String::new();
    TcpStream::connect(host)
        .and_then(|mut stream| {
            write!(stream, "GET /metrics HTTP/1.0\r\nHost: {host}\r\n\r\n")?;
            stream.read_to_string(&mut answer)
        })
        .expect("etcd tells its metrics where it serves its clients");
    answer
}

/// The sum of a metric over all lines with all of `labels`.
pub(crate) fn sum(metrics: &str, name: &str, labels: &[&str]) -> f64 {
    let is_meant = |line: &&str| {
        let rest = line.strip_prefix(name).unwrap_or_default();
        rest.starts_with([' ', '{']) && labels.iter().all(|label| rest.contains(label))
    };
    let value = |line: &str| line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok());
    metrics.lines().filter(is_meant).filter_map(value).sum()
}

/// Ticks of all cores since the machine's start: busy ones, and all.
pub(crate) fn machine_ticks() -> (f64, f64) {
    let stat = fs::read_to_string("/proc/stat").expect("the kernel tells how busy the machine is");
    let cores = stat.lines().next().unwrap_or_default();
    // user nice system idle iowait irq softirq steal; what comes after them is counted in them already.
    let ticks: Vec<f64> =
        cores.split_whitespace().skip(1).take(8).filter_map(|text| text.parse().ok()).collect();
    let all: f64 = ticks.iter().sum();
    (all - ticks[3] - ticks[4], all)
}

pub(crate) async fn revoke_all(mut client: Client) {
    let leases = client.leases().await.expect("etcd lists its leases");
    let ids: Vec<i64> = leases.leases().iter().map(|lease| lease.id()).collect();
    for ids in ids.chunks(REVOKED_AT_ONCE) {
        let revoke = |id: i64, mut client: Client| async move { client.lease_revoke(id).await };
        let revoking: JoinSet<_> = ids.iter().map(|&id| revoke(id, client.clone())).collect();
        // It may have ended by itself meanwhile.
        revoking.join_all().await;
    }
}

pub(crate) fn block_on<F: Future>(work: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(work)
}
