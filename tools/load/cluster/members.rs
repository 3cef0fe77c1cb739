//! The three members that serve a cluster, with TLS and slow links, and what they use.

use std::fs;
use std::time::Duration;

use metes_core::limits;
use metes_etcd::client::{Access, Tls};
use rustix::process::{Pid, setpriority_process};
use rustix::time::{ClockId, clock_gettime};
use support::{EtcdOptions, SlowTrio, in_parallel};

use super::floor::transport;
use super::host;
use crate::puts::connect;
use crate::server::{block_on, machine_ticks, revoke_all, sum};

/// In which the kernel counts the processor's time for programs, on every machine.
const TICKS_PER_SECOND: f64 = 100.0;
/// A thread of a member has a tenth of the share of one of the generator, while both have work.
const NICE: i32 = 10;
/// openssl processes that make certificates at the same time.
const SIGNERS: usize = 4;

pub(super) struct Members {
    trio: SlowTrio,
    prefix: String,
}

/// The counts of all at one moment, or their differences between two.
#[derive(Clone, Default)]
pub(super) struct Used {
    pub(super) members: Vec<OfMember>,
    /// That all members carry out.
    pub(super) proposals: f64,
    /// Requests that have one answer, and streams: a watch.
    pub(super) requests: f64,
    pub(super) streams: f64,
    pub(super) leases_granted: f64,
    pub(super) leases_revoked: f64,
    pub(super) store_bytes: f64,
    /// Of the first member's log: how often it waited for the disk, and for how long.
    pub(super) fsyncs: f64,
    pub(super) fsync_s: f64,
    /// That were opened in this network namespace.
    pub(super) connections: f64,
    /// Of the generator, the relays included.
    pub(super) own_cpu_s: f64,
    pub(super) busy_ticks: f64,
    pub(super) all_ticks: f64,
}

/// The part of one member.
#[derive(Clone, Default)]
pub(super) struct OfMember {
    pub(super) leads: bool,
    pub(super) cpu_s: f64,
    /// Connections that ended in the handshake.
    pub(super) broken: f64,
    /// The memory now, and at most since it began: never differences.
    pub(super) rss_mib: f64,
    pub(super) peak_mib: f64,
    /// By how much the memory has grown; of a moment nothing.
    pub(super) grown_mib: f64,
}

impl Members {
    pub(super) fn start(links: Duration, prefix: &str) -> Self {
        let options = EtcdOptions { fsync: true, mtls: true, ..EtcdOptions::default() };
        let trio = SlowTrio::start(&options, Some(links));
        trio.members().iter().for_each(give_way);
        Self { trio, prefix: prefix.to_owned() }
    }

    /// For each node, with a certificate of its own.
    pub(super) fn access(&self, nodes: usize) -> Vec<Access> {
        let authority = self.trio.tls().expect("it has TLS");
        let read = |path| fs::read(path).expect("openssl has written it");
        let certify = |index| {
            let (cert, key) = authority.client(&format!("client-{index}"), &host::name(index));
            Access {
                endpoints: self.trio.endpoints(),
                tls: Some(Tls {
                    ca: read(authority.ca()),
                    identity: Some((read(cert), read(key))),
                    server_name: None,
                }),
                user: None,
                prefix: self.prefix.clone(),
                patience: limits::UNREACHABLE.into(),
            }
        };
        in_parallel(SIGNERS, 0..nodes, certify)
    }

    /// Ends the leases of the step before, so that they do not end during the next one.
    pub(super) fn end_leases(&self, access: &Access) {
        block_on(async {
            let tls = access.tls.as_ref().map(transport);
            revoke_all(connect(&access.endpoints[0], tls).await.expect("etcd accepts connections")).await;
        });
    }

    pub(super) fn read(&self) -> Used {
        let (busy_ticks, all_ticks) = machine_ticks();
        let (connections, own_cpu_s) = (opened(), own_cpu());
        let metrics: Vec<String> = self.trio.members().iter().map(support::Etcd::metrics).collect();
        let members = self.trio.members().iter().zip(&metrics);
        let begun = |kind: &str| -> f64 {
            metrics.iter().map(|metrics| sum(metrics, "grpc_server_started_total", &[kind])).sum()
        };
        Used {
            members: members.map(|(member, metrics)| OfMember::read(member, metrics)).collect(),
            proposals: sum(&metrics[0], "etcd_server_proposals_committed_total", &[]),
            requests: begun("grpc_type=\"unary\""),
            streams: begun("grpc_type=\"bidi_stream\""),
            leases_granted: sum(&metrics[0], "etcd_debugging_lease_granted_total", &[]),
            leases_revoked: sum(&metrics[0], "etcd_debugging_lease_revoked_total", &[]),
            store_bytes: sum(&metrics[0], "etcd_mvcc_db_total_size_in_use_in_bytes", &[]),
            fsyncs: sum(&metrics[0], "etcd_disk_wal_fsync_duration_seconds_count", &[]),
            fsync_s: sum(&metrics[0], "etcd_disk_wal_fsync_duration_seconds_sum", &[]),
            connections,
            own_cpu_s,
            busy_ticks,
            all_ticks,
        }
    }
}

impl Used {
    pub(super) fn since(&self, before: &Self) -> Self {
        let members = self.members.iter().zip(&before.members);
        Self {
            members: members.map(|(now, before)| now.since(before)).collect(),
            proposals: self.proposals - before.proposals,
            requests: self.requests - before.requests,
            streams: self.streams - before.streams,
            leases_granted: self.leases_granted - before.leases_granted,
            leases_revoked: self.leases_revoked - before.leases_revoked,
            store_bytes: self.store_bytes - before.store_bytes,
            fsyncs: self.fsyncs - before.fsyncs,
            fsync_s: self.fsync_s - before.fsync_s,
            connections: self.connections - before.connections,
            own_cpu_s: self.own_cpu_s - before.own_cpu_s,
            busy_ticks: self.busy_ticks - before.busy_ticks,
            all_ticks: self.all_ticks - before.all_ticks,
        }
    }

    pub(super) fn etcd_cpu_s(&self) -> f64 {
        self.members.iter().map(|member| member.cpu_s).sum()
    }

    /// Of the member that used most.
    pub(super) fn busiest_cpu_s(&self) -> f64 {
        self.members.iter().map(|member| member.cpu_s).fold(0.0, f64::max)
    }

    /// The share of all cores that was busy, with whatever process.
    pub(super) fn machine_busy(&self) -> f64 {
        self.busy_ticks / self.all_ticks
    }

    pub(super) fn broken(&self) -> f64 {
        self.members.iter().map(|member| member.broken).sum()
    }
}

impl OfMember {
    fn read(member: &support::Etcd, metrics: &str) -> Self {
        let of_process = |file: &str| {
            let path = format!("/proc/{}/{file}", member.pid());
            fs::read_to_string(path).expect("a running member has it")
        };
        let stat = of_process("stat");
        // The name, which may have blanks, ends with the bracket; user and system are the 12th and 13th after it.
        let (_, after_name) = stat.rsplit_once(')').expect("the kernel's form");
        let ticks = after_name.split_whitespace().skip(11).take(2);
        let ticks: f64 = ticks.filter_map(|ticks| ticks.parse::<f64>().ok()).sum();
        let status = of_process("status");
        let mib = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
            kib.unwrap_or_default() / 1024.0
        };
        Self {
            leads: sum(metrics, "etcd_server_is_leader", &[]) > 0.0,
            cpu_s: ticks / TICKS_PER_SECOND,
            broken: member.log().matches("rejected connection on client endpoint").count() as f64,
            rss_mib: mib("VmRSS:"),
            peak_mib: mib("VmHWM:"),
            grown_mib: 0.0,
        }
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            cpu_s: self.cpu_s - before.cpu_s,
            broken: self.broken - before.broken,
            grown_mib: self.rss_mib - before.rss_mib,
            ..self.clone()
        }
    }
}

/// Lowers the priority of all threads of a member, and of those that they will begin. Nodes have processors of their
/// own: a generator that waits for a core while etcd uses it makes runs late that would not be.
fn give_way(member: &support::Etcd) {
    let threads = fs::read_dir(format!("/proc/{}/task", member.pid())).expect("a running member has threads");
    for thread in threads {
        let name = thread.expect("the kernel lists them").file_name();
        let id = name.to_str().and_then(|id| id.parse().ok()).and_then(Pid::from_raw);
        // Without an id it would be the generator.
        let id = id.expect("a thread has its id as its name");
        setpriority_process(Some(id), NICE).expect("each may be lowered");
    }
}

/// The connections that this network namespace has opened.
fn opened() -> f64 {
    let counts = fs::read_to_string("/proc/self/net/snmp").expect("the kernel counts connections");
    let mut rows = counts.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = rows.next().zip(rows.next()).expect("names, and their values");
    let named = names.split(' ').zip(values.split(' '));
    let opened = named.filter(|(name, _)| *name == "ActiveOpens").find_map(|(_, value)| value.parse().ok());
    opened.unwrap_or_default()
}

fn own_cpu() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}
