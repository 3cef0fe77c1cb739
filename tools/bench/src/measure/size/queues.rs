//! ADDs while very many runs wait in another queue, and the cost of a ticket in that queue.

use std::time::{Duration, Instant};

use etcd_client::{PutOptions, TxnOp};
use metes_core::keys::{Keys, LeaseId, Scope, TicketId};
use metes_core::limits;
use metes_core::pool::{Owner, Record};
use metes_core::request::TicketRecord;
use metes_core::snapshot::Snapshot;
use metes_engine::queue::Queue;
use metes_engine::session::Session;
use metes_etcd::client::Etcd as EtcdClient;
use tokio::runtime::Runtime;

use super::add_and_del;
use super::fill;
use crate::lab::{Lab, Wire, plain_network};
use crate::options::{Options, Section};
use crate::results::Results;
use crate::samples::Sample;
use support::{Store, plain_store};

const WAITERS: usize = 5000;
/// Rounds without and with the waiters in turn, so that a slow moment hits both.
const BLOCK: usize = 25;

pub(super) fn measure(options: &Options, results: &mut Results) {
    let lab = Lab::new(options, Wire::Plain);
    let config = plain_network("head");
    add_and_del(lab.node(), "first", &config);
    let crowd = Crowd::new(&lab);
    let (mut alone, mut beside) = (Sample::default(), Sample::default());
    let (mut empty, mut crowded) = (Sample::default(), Sample::default());
    for block in 0..options.rounds.div_ceil(BLOCK) {
        let round = |index| format!("round-{block}-{index}");
        (0..BLOCK).for_each(|index| alone.add(add_and_del(lab.node(), &round(index), &config)));
        crowd.come();
        (0..BLOCK).for_each(|index| beside.add(add_and_del(lab.node(), &round(index), &config)));
        crowd.time_tickets(&mut empty, &mut crowded);
        crowd.go();
    }
    lab.cluster.assert_whole();
    let mut add = |name, what: String, sample, to| {
        results.add_times(Section::Size, name, what, sample, to);
    };
    add("add-nobody-waits", "ADD while nobody waits".to_owned(), alone, "add-nobody-waits");
    add("add-others-wait", format!("ADD while {WAITERS} wait elsewhere"), beside, "add-nobody-waits");
    add("ticket-empty", "only a ticket, empty queue".to_owned(), empty, "ticket-empty");
    add("ticket-crowded", format!("only a ticket, behind {WAITERS}"), crowded, "ticket-empty");
}

/// Tickets of one queue, each on a lease of its own, as that many runs would have taken them.
struct Crowd<'a> {
    store: &'a Store,
    keys: Keys,
    scope: Scope,
    nobody: Scope,
    leases: Vec<i64>,
    runtime: Runtime,
    client: EtcdClient,
}

impl<'a> Crowd<'a> {
    fn new(lab: &'a Lab) -> Self {
        let store = lab.cluster.store();
        let keys = Keys::new(lab.cluster.prefix());
        let scope = |text| Scope::stored(text).expect("a scope's characters");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Self {
            scope: scope("crowd,00000000000000000000ffff0a000000-8"),
            nobody: scope("nobody,00000000000000000000ffff0a000000-8"),
            leases: grant(store),
            runtime: runtime.expect("a runtime can be built"),
            client: plain_store(&lab.etcd().endpoint(), limits::UNREACHABLE),
            store,
            keys,
        }
    }

    fn come(&self) {
        let value = TicketRecord::of(owner()).encode();
        let ticket = |lease: &i64| {
            let options = PutOptions::new().with_lease(*lease);
            TxnOp::put(self.keys.ticket(&self.scope, TicketId(*lease)), value.clone(), Some(options))
        };
        fill::put_ops(self.store, self.leases.iter().map(ticket));
        self.put_tail();
    }

    /// Writes the queue's tail, which names the youngest ticket and hangs on that ticket's lease.
    fn put_tail(&self) {
        let youngest = self.leases[self.leases.len() - 1];
        let options = PutOptions::new().with_lease(youngest);
        let tail = TxnOp::put(self.keys.tail(&self.scope), format!("{youngest:016x}"), Some(options));
        fill::put_ops(self.store, [tail].into_iter());
    }

    fn go(&self) {
        self.store.delete_prefix("v1/ticket/");
        self.store.delete_prefix("v1/tail/");
    }

    /// Takes a ticket, as an ADD does once it has connected, in an empty queue and behind all the others.
    fn time_tickets(&self, empty: &mut Sample, crowded: &mut Sample) {
        for _ in 0..BLOCK {
            self.runtime.block_on(async {
                assert!(self.time_ticket(&self.nobody, empty).await);
                assert!(!self.time_ticket(&self.scope, crowded).await);
            });
            self.put_tail();
        }
    }

    /// Times the taking of a ticket, which it then gives back. True if it was the first of its queue.
    async fn time_ticket(&self, scope: &Scope, sample: &mut Sample) -> bool {
        let until = tokio::time::Instant::now() + Duration::from_secs(20);
        let queue = Queue::new(Session { kv: &self.client, keys: &self.keys, until }, scope);
        let start = Instant::now();
        let record = TicketRecord::of(owner());
        let taken = queue
            .take(
                (LeaseId(self.leases[0]), LeaseId(self.leases[0])),
                (&record, &self.keys.owner(&record.owner)),
                (&[], &|| None),
                &mut Snapshot::default(),
                &mut false,
            )
            .await;
        sample.add(start.elapsed());
        let taken = taken.unwrap_or_else(|error| panic!("no ticket in a queue: {error}"));
        let _ = queue.leave(&taken.ticket, &[], limits::LEAVE.least).await;
        taken.is_first
    }
}

fn owner() -> Owner {
    Owner::named(["-", "crowd", "waiter", "eth0"]).expect("plain names")
}

fn grant(store: &Store) -> Vec<i64> {
    const TTL_S: i64 = 3600;
    store.run(async |client| {
        let mut leases = Vec::new();
        for _ in 0..WAITERS {
            leases.push(client.lease_grant(TTL_S, None).await?.id());
        }
        Ok(leases)
    })
}
