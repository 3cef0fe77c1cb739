//! A store, its keys and a deadline: all that a request needs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::kv::{Failure, Kv};
use crate::random::random_positive;
use metes_core::keys::{Bytes, Keys, LeaseId};
use metes_core::limits;
use metes_core::snapshot::Snapshot;
use metes_core::txn::{Op, Reply, Txn};

/// A store, the keys of one prefix, and a deadline.
pub struct Session<'a, K> {
    /// The store.
    pub kv: &'a K,
    /// Its keys.
    pub keys: &'a Keys,
    /// The deadline of every request.
    pub until: Instant,
}

impl<K> Clone for Session<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Session<'_, K> {}

impl<'a, K: Kv> Session<'a, K> {
    /// The same with another deadline.
    #[must_use]
    pub fn by(self, until: Instant) -> Self {
        Self { until, ..self }
    }

    /// Carries out a transaction; see [`Kv::txn`].
    ///
    /// # Errors
    /// [`Failure`]
    pub async fn txn(&self, txn: &Txn) -> Result<Reply, Failure> {
        self.kv.txn(txn, self.until).await
    }

    /// Reads keys into a snapshot, as many in one request as etcd allows.
    ///
    /// # Errors
    /// [`Failure`]
    pub async fn read(&self, keys: &[Bytes], snapshot: &mut Snapshot) -> Result<(), Failure> {
        self.read_all(keys.iter().cloned().map(Op::Get).collect(), snapshot).await
    }

    /// The age of each of these leases; one that has ended is left out.
    ///
    /// # Errors
    /// [`Failure`]
    pub async fn lease_ages(&self, leases: BTreeSet<i64>) -> Result<BTreeMap<i64, Duration>, Failure> {
        let mut ages = BTreeMap::new();
        for lease in leases {
            let age = self.kv.lease_age(LeaseId(lease), self.until).await?;
            ages.extend(age.map(|age| (lease, age.age())));
        }
        Ok(ages)
    }

    /// Carries out reads of any kind, as many in one request as etcd allows.
    ///
    /// # Errors
    /// [`Failure`]
    pub async fn read_all(&self, ops: Vec<Op>, snapshot: &mut Snapshot) -> Result<(), Failure> {
        for ops in ops.chunks(limits::TXN_OPS) {
            let txn = Txn::read(ops.to_vec());
            let reply = self.txn(&txn).await?;
            snapshot.absorb(&txn.then, &reply);
        }
        Ok(())
    }
}

/// A new random lease id.
#[must_use]
pub fn new_lease() -> LeaseId {
    LeaseId(random_positive())
}
