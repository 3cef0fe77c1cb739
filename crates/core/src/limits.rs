//! Every bound in one place: the times that a run may take, wait and retry, and the amounts that it may ask for.

use std::time::Duration;

/// A whole ADD.
pub const ADD_DEADLINE: Duration = Duration::from_secs(20);
/// A whole CHECK.
pub const CHECK_DEADLINE: Duration = Duration::from_secs(5);
/// A whole DEL.
pub const DEL_DEADLINE: Duration = Duration::from_secs(3);
/// A whole STATUS: containerd asks while it holds a lock and without a deadline of its own.
pub const STATUS_DEADLINE: Duration = Duration::from_secs(1);
/// The time for which STATUS succeeds although no member of etcd answers. It covers restarts, updates and elections of
/// etcd's members. A node that is not Ready after that loses its pods by Kubernetes' default 5 minutes later.
pub const STATUS_GRACE: Duration = Duration::from_secs(5 * 60);
/// A whole GC.
pub const GC_DEADLINE: Duration = Duration::from_secs(20);
/// A whole command of a person.
pub const CLI_DEADLINE: Duration = Duration::from_secs(60);
/// All names that a shell completes a word with.
pub const COMPLETION_DEADLINE: Duration = Duration::from_secs(1);
/// All that `metes doctor` asks of etcd.
pub const DOCTOR_DEADLINE: Duration = Duration::from_secs(3);
/// The longest that it tries to reach an endpoint.
pub const DOCTOR_UNREACHABLE: Duration = Duration::from_secs(1);
/// The lease of the key that it writes.
pub const DOCTOR_TTL: Duration = Duration::from_secs(10);

/// The lease of a ticket, and of a run that is neither ADD nor DEL: above every deadline of CNI, so it needs no
/// keepalive.
pub const LEASE_TTL: Duration = Duration::from_secs(30);
/// The age up to which another run of its node may begin with a lease: the time that is left is still above every
/// deadline.
pub const LEASE_SHARED: Duration = Duration::from_secs(9);
/// The lease that fences the commits of a node's ADDs.
pub const FENCE_TTL: Duration = Duration::from_secs(180);
/// [`LEASE_SHARED`] for that lease. An ADD of a node that has got none for so long waits for a new one.
pub const FENCE_SHARED: Duration = Duration::from_secs(120);
/// The longest lease that may fence a commit of an ADD. etcd grants what it is asked for, unless one and a half of its
/// election timeout is more: 75 s at most ([`ELECTION_TIMEOUT_MAX`]).
pub const FENCE_MOST: Duration = Duration::from_secs(190);
/// The lease that a DEL's tombstone hangs on. It outlives every fence of an ADD that began earlier, also where etcd
/// ends that late. etcd revokes at most [`LEASES_REVOKED`] leases a second. A new leader gives all leases their whole
/// time again and the election timeout more, and spreads those that would end together, [`LEASES_SPREAD`] a second. So
/// it holds for [`LEASES`] leases in that etcd. With lease checkpoints a new leader gives a tombstone no more than was
/// left of it: then it holds for half of them, and for one new leader.
pub const TOMBSTONE_TTL: Duration = Duration::from_secs(20 * 60);
/// [`LEASE_SHARED`] for tombstones.
pub const TOMBSTONE_SHARED: Duration = Duration::from_secs(5 * 60);
/// The least time that a tombstone must stand from its put. By its end, no ADD that began before it can commit any
/// more.
pub const TOMBSTONE_STANDS: Duration = Duration::from_secs(15 * 60);
/// The time by which the grant of a tombstone's lease is sent ahead of the free that puts the tombstone on it. etcd
/// handles requests that arrive together in any order.
pub const GRANT_AHEAD: Duration = Duration::from_micros(300);
/// The longest election timeout that etcd can be given.
pub(crate) const ELECTION_TIMEOUT_MAX: Duration = Duration::from_secs(50);
/// The leases that one etcd may have, those of others included.
pub const LEASES: u64 = 400_000;
/// The leases that etcd revokes in a second, at most.
pub const LEASES_REVOKED: u64 = 1000;
/// The leases that a new leader of etcd lets end in a second, where there are more.
pub(crate) const LEASES_SPREAD: u64 = 750;
/// The time that a lease for cooling keys lives beyond the cooldown, so that the frees of a node can share it.
pub(crate) const COOLING_SHARED: Duration = Duration::from_secs(15);
/// The age up to which such a lease is used when a free is planned. The rest of [`COOLING_SHARED`] is for the commit
/// itself.
pub const COOLING_USED_WITHIN: Duration = Duration::from_secs(10);
/// The time after a meeting of others in a queue in which the runs of a node take a ticket without looking first.
pub const CROWD_MEMORY: Duration = Duration::from_secs(1);
/// A run that has taken longer has met an etcd that is slow, overloaded or away.
pub const SLOW_RUN: Duration = Duration::from_secs(1);
/// The time after an ADD or a DEL that etcd did not answer in which DELs of its node are spooled at once: there are two
/// for each network of a pod whose ADD has failed.
pub const UNANSWERED_MEMORY: Duration = Duration::from_secs(8);

/// The number of former names that a machine remembers. A DEL reads under each of them.
pub const FORMER_NAMES: usize = 4;

/// The longest that a run tries to change the node's mark while others do. It holds the lock for less than a
/// millisecond.
pub const MARK_LOCK: Duration = Duration::from_millis(50);
/// The time for which a mark that does not decode is read again: another run may be overwriting it.
pub const MARK_READ: Duration = Duration::from_millis(10);
/// The pause between two tries of either.
pub const LOCK_PAUSE: Duration = Duration::from_millis(1);

/// The time after which a node writes again the ranges that a configuration asks for.
pub const ASKED_AGAIN: Duration = Duration::from_secs(10 * 60);
/// The time for which asked ranges are remembered, if nobody holds an address of them.
pub const ASKED_FORGOTTEN: Duration = Duration::from_secs(7 * 24 * 3600);
/// The number of scopes that a node has hints for.
pub const SCOPE_HINTS: usize = 64;
/// The number of holds that a node has hints for: those of its pods of some days.
pub const HOLD_HINTS: usize = 256;
/// The number of stray bits of a scope that a node notes.
pub const STRAY_HINTS: usize = 64;
/// The number of those that one ADD clears with its commit.
pub const STRAY_CLEARED: usize = 16;
/// The most owners that a node has hints for. The place of a hint follows from the owner's name, so a younger owner may
/// push out an older one.
pub const OWNER_HINTS: u64 = 2048;
/// The size of such a hint, in bytes.
pub const OWNER_HINT_BYTES: usize = 4 << 10;
/// The most reads of `auto`'s choice by one ADD before it looks further, if pools change meanwhile.
pub const CHOICE_READS: usize = 3;
/// The size of the hints of one scope, in bytes in base64: more than a walk reads that finds an address.
pub const SCOPE_HINTS_BYTES: usize = 96 << 10;
/// The time for which a node's runs look first in a scope after its hints were wrong. It doubles with each time.
pub const MISS_PAUSE: Duration = Duration::from_secs(1);
/// The longest such time.
pub const MISS_PAUSE_MAX: Duration = Duration::from_secs(60);

/// The time after which a client that waits for a connection, TLS included, begins one to the next endpoint beside it.
/// It also bounds the question what an endpoint speaks.
pub const CONNECT_ATTEMPT: Duration = Duration::from_millis(300);
/// The same where the endpoint has accepted the connection, and its handshake is not over: it is busy, and so may be
/// the others. Many clients that begin a second handshake early make them so.
pub const HANDSHAKE_ALONE: Duration = Duration::from_secs(1);
/// The time after which it looks again whether it may wait on, when there is no other endpoint, or none that was any
/// quicker: a lost SYN is sent again after 1 s.
pub const CONNECT_ATTEMPT_ALONE: Duration = Duration::from_millis(1500);
/// The time that an endpoint which has accepted a connection has for the handshake. Half of an ADD: its host may have
/// died meanwhile.
pub const HANDSHAKE_ATTEMPT: Duration = Duration::from_secs(10);
/// The longest that a run which knows no store asks all endpoints which store they are: a member that is slow has most
/// of an ADD, and what is left of that is enough for the ADD itself.
pub const ALL_ASKED: Duration = Duration::from_secs(8);
/// The same for DEL, which has a spool to fall back on.
pub const ALL_ASKED_DEL: Duration = Duration::from_secs(1);
/// The most tries of a run to found a store, of which each but the last has got no answer.
pub const FOUND_TRIES: u32 = 3;
/// The stores whose place one store may be in: each was lost, and this one taken into service for it.
pub const STORES_REPLACED: usize = 8;
/// The time for which a machine that knows another store is remembered. Within it, a second one must come for the store
/// to be suspect.
pub const STRANGER: Duration = Duration::from_secs(24 * 3600);
/// The longest that the others have to object once more than half agree; never more than half of the time that is left.
pub const OTHERS_OBJECT: Duration = Duration::from_secs(2);
/// One attempt of a request.
pub const REQUEST_ATTEMPT: Duration = Duration::from_millis(1500);
/// The same for a listing of a walk: etcd counts all keys up to its end, a million in 0.4 s where it has nothing else
/// to do.
pub const WALK_ATTEMPT: Duration = Duration::from_secs(10);
/// The time that an attempt of either has at least, in times that its connection took to open, or the last answer to
/// come.
pub const REQUEST_IN_ANSWERS: u32 = 4;
/// The longest that a run tries to reach an etcd of which no endpoint accepts a connection.
pub const UNREACHABLE: Duration = Duration::from_secs(5);
/// The same for DEL, which has a spool to fall back on.
pub const UNREACHABLE_DEL: Duration = Duration::from_millis(1000);

/// How long a client tries to connect.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// While no endpoint accepts a connection.
    pub unreachable: Duration,
    /// While one has accepted a connection, and its handshake is not over: it is overloaded, or hangs.
    pub busy: Duration,
}

impl From<Duration> for Patience {
    fn from(each: Duration) -> Self {
        Self { unreachable: each, busy: each }
    }
}

/// A time that depends on how long a durable write takes: so many of them, between two bounds.
#[derive(Debug, Clone, Copy)]
pub struct InWrites {
    /// The number of durable writes.
    pub writes: u32,
    /// The shortest time.
    pub least: Duration,
    /// The longest time.
    pub most: Duration,
}

impl InWrites {
    /// The time where a durable write takes `latency`.
    pub fn at(self, latency: Duration) -> Duration {
        (latency * self.writes).clamp(self.least, self.most)
    }
}

/// The time for which a run tries where each endpoint refuses it for a reason that lasts: somebody may be replacing
/// certificates at that moment.
pub const REPLACEMENT: Duration = Duration::from_millis(500);
/// The time for which a run waits until a certificate and its key fit each other: a person copies one file after the
/// other.
pub const FILES_REPLACEMENT: Duration = Duration::from_millis(1500);
/// The pause between two looks at these files.
pub const REPLACEMENT_PAUSE: Duration = Duration::from_millis(10);

/// The longest pause between two tries; every pause is random, from a tenth of it up.
pub const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// The number of commits that a run tries where nobody queues before it queues itself. Also the number of commits that
/// a head loses while it serves others before it stops.
pub const CLEAR_TRIES: u32 = 2;
/// A commit that was lost after a longer time is not tried again without a ticket: many others are on their way, too.
pub const CLEAR_WITHIN: Duration = Duration::from_millis(300);
/// The longest pause after a lost race. It doubles with each race that a run loses.
pub const RACE_PAUSE: Duration = Duration::from_millis(5);
/// The most that it comes to with a ticket: a head that sleeps for longer is passed by.
pub const RACE_PAUSE_WITH_TICKET: Duration = Duration::from_millis(100);
/// The most that it comes to without one.
pub const RACE_PAUSE_ALONE: Duration = Duration::from_secs(1);

/// The least time for which a waiter sees nothing move before it goes to the head from where it stands; at most twice
/// that.
pub const PATIENCE: InWrites =
    InWrites { writes: 4, least: Duration::from_millis(200), most: Duration::from_secs(8) };
/// A waiter that sees the queue move looks more and more rarely, until so much time is between two looks.
pub const PATIENCE_AT_MOST: InWrites =
    InWrites { writes: 4, least: Duration::from_secs(2), most: Duration::from_secs(8) };
/// When a ticket is seen to vanish, the owner's record is seen so soon if the run was served.
pub const SERVED_WITHIN: Duration = Duration::from_millis(20);
/// The time for which a run that has its own result serves others.
pub const HEAD_SERVES: InWrites =
    InWrites { writes: 4, least: Duration::from_millis(100), most: Duration::from_secs(1) };
/// The most time that it takes beyond that to give the next run its turn: a turn that is not given costs all who wait
/// more.
pub const HEAD_ENDS: InWrites =
    InWrites { writes: 3, least: Duration::from_millis(500), most: Duration::from_secs(3) };
/// The number of tickets that a head reads at once.
pub const LINE_TICKETS: i64 = 200;
/// The largest ticket, in bytes. A larger request is left out of it, and its run is not served by others.
pub(crate) const TICKET_BYTES: usize = 16 << 10;
/// The number of runs to which a head that has seen nothing move gives their turns at once: some of them are probably
/// dead. Those who live race with each other. Other heads give one turn.
pub const TURNS: usize = 8;

/// The longest that a run takes to remove its ticket on its way out. That is less than one attempt, so it is sent only
/// once.
pub const LEAVE: InWrites =
    InWrites { writes: 2, least: Duration::from_millis(300), most: Duration::from_millis(1200) };
/// The time that DEL keeps in reserve to free without a ticket.
pub const DEL_RESERVE: Duration = Duration::from_millis(1200);
/// The time for which a run that has answered carries out spooled entries of others.
pub const DRAIN: Duration = Duration::from_millis(500);
/// One in this many runs that took longer than [`SLOW_RUN`] still drains the spool.
pub const DRAIN_ONE_IN: u64 = 16;
/// The number of spooled entries that one run carries out.
pub const DRAIN_ENTRIES: usize = 16;
/// The number of spool files that a run reads at once, its own and those of others: 5 ms.
pub const SPOOL_READS: usize = 256;
/// The number of file names that a run takes out of each folder. Those of its own owner are found among all.
pub const SPOOL_NAMES: usize = 16_384;

/// etcd's default for `--max-txn-ops`.
pub const TXN_OPS: usize = 128;
/// etcd's default for `--max-request-bytes`, less room for the envelope.
pub(crate) const REQUEST_BYTES: usize = 1_400_000;
/// The largest answer, in bytes: more than a listing of [`WALK_KEYS`] keys needs.
pub const REPLY_BYTES: usize = 16 << 20;
/// The number of keys that one listing returns.
pub const LIST_KEYS: i64 = 1000;
/// The same where speed matters more than memory, if their values fit into [`REPLY_BYTES`].
pub const WALK_KEYS: i64 = 8 * LIST_KEYS;
/// The number of pages that a run without a free address compares with their reservations.
pub const REPAIR_PAGES: u128 = 16;
/// The number of such repairs in one run: others may take the addresses that it finds, as long as there are some.
pub const REPAIRS: u32 = 12;
/// The number of stray bits that one repair clears: with two compares for each, they fill a transaction beside their
/// pages and summaries.
pub const REPAIR_BITS: usize = 46;

/// A pass of the reconciler never finds this many orphans suspicious.
pub const BRAKE_AT_LEAST: usize = 50;
/// It finds more orphans suspicious if they are more than one in this many records.
pub const BRAKE_ONE_IN: usize = 5;

/// The most that stdin, the host file or a key file may hold, in bytes.
pub const INPUT_BYTES: u64 = 1 << 20;
/// The most that a file of networks to be validated may hold, in bytes.
pub const VALIDATED_BYTES: u64 = 64 << 20;
/// The most that a file to be restored may hold, in bytes.
pub const RESTORED_BYTES: u64 = 256 << 20;
/// The size at which runs add no more lines to the file with those of their node, in bytes: 50,000 lines. Somebody who
/// reads them has removed it before.
pub const RUNS_BYTES: u64 = 1 << 20;
/// The size at which a reader removes that file, in bytes.
pub const RUNS_KEPT: u64 = 256 << 10;
/// The most that a resolv.conf may hold, in bytes.
pub const RESOLV_CONF_BYTES: u64 = 64 << 10;

const _: () = assert!(LEASE_TTL.as_secs() > LEASE_SHARED.as_secs() + ADD_DEADLINE.as_secs());
const _: () = assert!(FENCE_TTL.as_secs() > FENCE_SHARED.as_secs() + ADD_DEADLINE.as_secs());
const _: () = assert!(TOMBSTONE_TTL.as_secs() - TOMBSTONE_SHARED.as_secs() >= TOMBSTONE_STANDS.as_secs());
const _: () =
    assert!(FENCE_MOST.as_secs() > FENCE_TTL.as_secs() && FENCE_TTL.as_secs() > LEASE_TTL.as_secs());
const _: () = assert!(2 * FENCE_MOST.as_secs() > 3 * ELECTION_TIMEOUT_MAX.as_secs());
/// The seconds that are left of a tombstone when the lease of the last ADD before it is over.
const OUTLIVES: u64 = TOMBSTONE_STANDS.as_secs() - ADD_DEADLINE.as_secs() - FENCE_MOST.as_secs();
/// The seconds that a new leader gives that lease, before it spreads the leases.
const STARTED_AGAIN: u64 = ELECTION_TIMEOUT_MAX.as_secs() + FENCE_MOST.as_secs();
const _: () = assert!(OUTLIVES > LEASES / LEASES_REVOKED);
const _: () = assert!(TOMBSTONE_TTL.as_secs() > STARTED_AGAIN + LEASES / LEASES_SPREAD);
const _: () = assert!(OUTLIVES > STARTED_AGAIN + LEASES / 2 / LEASES_SPREAD);
const _: () = assert!(LEASE_TTL.as_secs() > GC_DEADLINE.as_secs());
const _: () = assert!(LINE_TICKETS as usize * TICKET_BYTES < REPLY_BYTES);
const _: () = assert!(2 * REPAIR_BITS + 2 * REPAIR_PAGES as usize <= TXN_OPS);
