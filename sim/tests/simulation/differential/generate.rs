//! Random requests, most of them such that something happens: keys that exist, revisions that match, leases that live.

use metes_core::keys::{Bytes, LeaseId};
use metes_core::limits;
use metes_core::txn::{Compare, List, Op, Txn};
use metes_sim::store::Model;

/// The ends of keys, after the prefix of a key space: a queue that is sorted, bytes at the end of the order, names of
/// which one begins with another.
const NAMES: [&[u8]; 11] =
    [b"a", b"ab", b"b", b"c/1", b"c/2", b"q/1", b"q/2", b"q/3", b"q/4", b"q\xff", b"\xff\xff"];
/// Prefixes in a key space.
const PREFIXES: [&[u8]; 6] = [b"", b"a", b"c/", b"q/", b"q\xff", b"\xff"];
const VALUES: [&[u8]; 4] = [b"", b"x", b"yes", b"a longer value than the others"];

/// A small generator of numbers: the same for the same seed everywhere.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    /// True in `percent` of 100 cases.
    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

/// The keys of one sequence and the leases it has used; the model tells which of them exist.
pub(crate) struct Space {
    pub(crate) prefix: Bytes,
    /// Leases that were granted, living or not.
    pub(crate) leases: Vec<LeaseId>,
    /// A lease that never was.
    pub(crate) no_lease: LeaseId,
}

impl Space {
    pub(crate) fn new(number: usize) -> Self {
        let prefix = format!("/{number:06}/").into_bytes();
        Self { prefix, leases: Vec::new(), no_lease: LeaseId(1 + (number as i64) * 1000) }
    }

    /// The first of the keys that most is done with.
    pub(crate) fn some_keys(&self, count: usize) -> Vec<Bytes> {
        NAMES[..count].iter().map(|name| [&self.prefix, *name].concat()).collect()
    }

    /// An id that is new in all key spaces.
    pub(crate) fn next_lease(&self) -> LeaseId {
        LeaseId(self.no_lease.0 + 1 + self.leases.len() as i64)
    }

    pub(crate) fn some_lease(&self, random: &mut Random) -> LeaseId {
        if self.leases.is_empty() { self.no_lease } else { *random.one_of(&self.leases) }
    }

    pub(crate) fn txn(&self, random: &mut Random, model: &Model) -> Txn {
        if random.chance(1) {
            return self.large(random);
        }
        // Read alone it is answered on another path than with writes.
        let reads = random.chance(25);
        let mut txn = self.txn_of_depth(random, model, reads, 0);
        if !random.chance(8) {
            write_once(&mut txn.then, &[]);
            write_once(&mut txn.otherwise, &[]);
        }
        txn
    }

    /// With others inside, up to two deep.
    fn txn_of_depth(&self, random: &mut Random, model: &Model, reads: bool, depth: usize) -> Txn {
        let mut txn = Txn::default();
        for _ in 0..random.below(4) {
            txn.compares.push(self.compare(random, model));
        }
        for (ops, most) in [(&mut txn.then, 6), (&mut txn.otherwise, 4)] {
            for _ in 0..random.below(most) {
                ops.push(if depth < 2 && random.chance(15) {
                    Op::Nested(Box::new(self.txn_of_depth(random, model, reads, depth + 1)))
                } else {
                    self.op(random, model, reads)
                });
            }
        }
        txn
    }

    /// About as many operations as etcd takes.
    fn large(&self, random: &mut Random) -> Txn {
        let count = limits::TXN_OPS - 1 + random.below(3);
        let conditional = match random.below(3) {
            0 => None,
            1 => Some(delete_if(self.key(random), VALUES[1].to_vec())),
            _ => return self.large_inside(random),
        };
        let reads = std::iter::repeat_with(|| Op::Get(self.prefix.clone())).take(count);
        let then: Vec<Op> = conditional.into_iter().chain(reads).take(count).collect();
        if random.chance(50) {
            Txn { then, ..Txn::default() }
        } else {
            // A branch that is not taken counts all the same.
            Txn { otherwise: then, ..Txn::default() }
        }
    }

    /// About as many operations as etcd takes, in lists inside one another.
    fn large_inside(&self, random: &mut Random) -> Txn {
        let get = || Op::Get(self.prefix.clone());
        let outer = 1 + random.below(60);
        let middle = 1 + random.below(60);
        let inner = limits::TXN_OPS - outer - middle - 1 + random.below(3);
        let nest = |then: Vec<Op>| Op::Nested(Box::new(Txn { then, ..Txn::default() }));
        let middle = [vec![nest(vec![get(); inner])], vec![get(); middle - 1]].concat();
        let outer = [vec![get(); outer - 1], vec![nest(middle)]].concat();
        Txn { then: outer, ..Txn::default() }
    }

    fn compare(&self, random: &mut Random, model: &Model) -> Compare {
        match random.below(10) {
            0 => Compare::Empty(self.some_prefix(random)),
            1 => Compare::Empty(self.key(random)),
            2 => {
                let key = self.key(random);
                let stored = model.entry(&key).map(|record| record.value.to_vec());
                let value = stored.filter(|_| random.chance(60));
                Compare::Value(key, value.unwrap_or_else(|| random.one_of(&VALUES).to_vec()))
            }
            kind => {
                let key = self.key(random);
                let record = model.entry(&key);
                let create = record.map_or(0, |record| record.create_revision);
                let modified = record.map_or(0, |record| record.mod_revision);
                // One revision is often the other one, or just beside it.
                let revision = match random.below(12) {
                    0 => modified,
                    1 => create,
                    2 => 0,
                    3 => modified + 1,
                    4 => modified - 1,
                    _ if kind < 6 => create,
                    _ => modified,
                };
                if kind < 6 { Compare::Create(key, revision) } else { Compare::Mod(key, revision) }
            }
        }
    }

    fn op(&self, random: &mut Random, model: &Model, read: bool) -> Op {
        match if read { random.below(8) } else { random.below(20) } {
            0..3 => Op::Get(self.key(random)),
            3..6 => Op::List(self.list(random, model)),
            6..8 => Op::Tickets(self.some_prefix(random), some_limit(random)),
            8..14 => Op::Put(self.key(random), random.one_of(&VALUES).to_vec(), self.lease_of_put(random)),
            14..17 => Op::Delete(self.key(random)),
            _ => {
                let key = self.key(random);
                let stored = model.entry(&key).map(|record| record.value.to_vec());
                let value = stored.filter(|_| random.chance(60));
                delete_if(key, value.unwrap_or_else(|| random.one_of(&VALUES).to_vec()))
            }
        }
    }

    fn lease_of_put(&self, random: &mut Random) -> Option<LeaseId> {
        match random.below(20) {
            0 => Some(self.no_lease),
            1..8 => Some(self.some_lease(random)),
            _ => None,
        }
    }

    fn list(&self, random: &mut Random, model: &Model) -> List {
        let start = self.key(random);
        let end = match random.below(10) {
            0 => Vec::new(),
            1 => vec![0],
            2..6 => self.key(random),
            _ => return self.list_of_all(random, model),
        };
        // To the end of the store it must have a limit: other sequences have left much there.
        let limit = if end == [0] { 1 + random.below(3) as i64 } else { some_limit(random) };
        List { start, end, limit, revision: some_revision(random, model), keys_only: random.chance(30) }
    }

    fn list_of_all(&self, random: &mut Random, model: &Model) -> List {
        List {
            revision: some_revision(random, model),
            keys_only: random.chance(30),
            ..List::prefix(&self.prefix, some_limit(random))
        }
    }

    fn key(&self, random: &mut Random) -> Bytes {
        match random.below(400) {
            0 => Vec::new(),
            1 => self.prefix.clone(),
            _ => [&self.prefix, *random.one_of(&NAMES)].concat(),
        }
    }

    fn some_prefix(&self, random: &mut Random) -> Bytes {
        [&self.prefix, *random.one_of(&PREFIXES)].concat()
    }
}

fn some_limit(random: &mut Random) -> i64 {
    *random.one_of(&[-1, 0, 0, 1, 2, 3, 5, 100])
}

/// Mostly the newest; else one of the last, whether or not it is compacted, or one that is yet to come.
fn some_revision(random: &mut Random, model: &Model) -> i64 {
    match random.below(10) {
        0..6 => 0,
        6 => model.revision() + random.below(3) as i64,
        7 => 1,
        _ => (model.revision() - random.below(40) as i64).max(1),
    }
}

/// Leaves out writes that etcd refuses, and a few more: a second write of a key where one is a put. `around` is written
/// around these operations.
fn write_once(ops: &mut Vec<Op>, around: &[Bytes]) {
    let mut written = around.to_vec();
    // etcd looks at nested transactions before it looks at the puts around them.
    for op in ops.iter() {
        if let Op::Delete(key) = op {
            written.push(key.clone());
        }
    }
    for op in ops.iter_mut() {
        if let Op::Nested(txn) = op {
            write_once(&mut txn.then, &written);
            write_once(&mut txn.otherwise, &written);
            collect_written(txn, &mut written);
        }
    }
    let mut put: Vec<Bytes> = Vec::new();
    ops.retain(|op| {
        let Op::Put(key, ..) = op else { return true };
        let clashes = put.contains(key) || written.contains(key);
        put.push(key.clone());
        !clashes
    });
}

fn collect_written(txn: &Txn, written: &mut Vec<Bytes>) {
    for op in txn.then.iter().chain(&txn.otherwise) {
        match op {
            Op::Put(key, ..) | Op::Delete(key) => written.push(key.clone()),
            Op::Nested(txn) => collect_written(txn, written),
            Op::Get(_) | Op::List(_) | Op::Tickets(..) => {}
        }
    }
}

/// Deletes a key if it has this value.
fn delete_if(key: Bytes, value: Vec<u8>) -> Op {
    let compares = vec![Compare::Value(key.clone(), value)];
    Op::Nested(Box::new(Txn { compares, then: vec![Op::Delete(key)], ..Txn::default() }))
}
