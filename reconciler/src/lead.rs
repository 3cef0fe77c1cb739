//! Decides which of a cluster's long-running reconcilers makes the passes: a key in etcd on a lease.
//!
//! This only saves work. Two passes at once are safe, so no pass checks whether its process still leads. No clock of
//! this machine is compared with another's.

use std::time::Duration;

use metes_core::keys::Bytes;
use metes_core::pool::{Leader, Record};
use metes_core::txn::{Compare, Entry, Op, Txn};
use metes_engine::kv::{Failure, Kv};
use metes_engine::session::new_lease;
use tokio::time::Instant;

/// A process that wants to lead.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The key of the lead.
    pub key: Bytes,
    /// A name that no other process has.
    pub name: String,
    /// The time that a claim lasts.
    pub ttl: Duration,
}

/// The leader, as a candidate sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leadership {
    /// The candidate.
    Leader,
    /// Another candidate, with this name.
    Follower(String),
}

impl Candidate {
    /// Takes the lead if nobody has it, or extends it if this candidate has it.
    ///
    /// # Errors
    /// [`Failure`]; the next claim finds out the result of this one.
    pub async fn claim<K: Kv>(&self, kv: &K, until: Instant) -> Result<Leadership, Failure> {
        let entry = self.read(kv, until).await?;
        let compare = match &entry {
            None => Compare::Create(self.key.clone(), 0),
            Some(entry) => match holder(entry) {
                name if name == self.name => Compare::Mod(self.key.clone(), entry.mod_revision),
                name => return Ok(Leadership::Follower(name)),
            },
        };
        // Each claim has a new lease. The old lease ends by itself, and no key depends on it.
        let lease = new_lease();
        kv.grant(lease, self.ttl, until).await?;
        let value = Leader::new(self.name.clone()).encode();
        let txn = Txn {
            step: "lead",
            compares: vec![compare],
            then: vec![Op::Put(self.key.clone(), value, Some(lease))],
            otherwise: vec![Op::Get(self.key.clone())],
            ..Txn::default()
        };
        let reply = kv.txn(&txn, until).await?;
        if reply.succeeded {
            return Ok(Leadership::Leader);
        }
        let faster = reply.found.first().and_then(|found| found.one()).map(holder);
        Ok(Leadership::Follower(faster.unwrap_or_else(|| "nobody".to_owned())))
    }

    /// Gives up the lead, if this candidate has it, so that another candidate can take it at once.
    ///
    /// # Errors
    /// [`Failure`]; the lead then ends with its lease.
    pub async fn resign<K: Kv>(&self, kv: &K, until: Instant) -> Result<(), Failure> {
        let Some(entry) = self.read(kv, until).await? else { return Ok(()) };
        if holder(&entry) != self.name {
            return Ok(());
        }
        let txn = Txn {
            step: "step-down",
            compares: vec![Compare::Mod(self.key.clone(), entry.mod_revision)],
            then: vec![Op::Delete(self.key.clone())],
            ..Txn::default()
        };
        kv.txn(&txn, until).await.map(|_| ())
    }

    async fn read<K: Kv>(&self, kv: &K, until: Instant) -> Result<Option<Entry>, Failure> {
        let reply = kv.txn(&Txn::read(vec![Op::Get(self.key.clone())]), until).await?;
        Ok(reply.found.first().and_then(|found| found.one().cloned()))
    }
}

/// The name of the leader. A record that does not decode was written by a newer version; it ends with its lease as any
/// other.
fn holder(entry: &Entry) -> String {
    Leader::decode(&entry.value).map_or_else(|bad| bad.to_string(), |leader| leader.holder)
}
