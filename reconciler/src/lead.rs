//! Whose turn it is among the reconcilers of a cluster that run all the time: a key in etcd on a lease.
//!
//! It only saves work. Two passes at once are safe, so nothing checks in the middle of one whether it is
//! still its turn, and no clock of this machine is compared with another's.

use std::time::Duration;

use metes::pool::record::{Leader, Record};
use metes::store::keys::Bytes;
use metes::store::kv::{Failure, Kv};
use metes::store::ticket::new_lease;
use metes::store::txn::{Compare, Entry, Op, Txn};
use tokio::time::Instant;

/// One who wants to lead.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The key.
    pub key: Bytes,
    /// A name that no other process has.
    pub name: String,
    /// For how long a claim holds.
    pub ttl: Duration,
}

/// Whose turn it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leadership {
    /// The candidate's own.
    Leader,
    /// Another's, of this name.
    Follower(String),
}

impl Candidate {
    /// Takes the lead if nobody has it, or keeps it for another while.
    ///
    /// # Errors
    /// [`Failure`]; the next claim finds out what this one came to.
    pub async fn claim<K: Kv>(&self, kv: &K, until: Instant) -> Result<Leadership, Failure> {
        let entry = self.read(kv, until).await?;
        let compare = match &entry {
            None => Compare::Create(self.key.clone(), 0),
            Some(entry) => match holder(entry) {
                name if name == self.name => Compare::Mod(self.key.clone(), entry.mod_revision),
                name => return Ok(Leadership::Follower(name)),
            },
        };
        // A lease of its own each time: the one before ends by itself, with nothing hanging on it.
        let lease = new_lease();
        kv.grant(lease, self.ttl, until).await?;
        let value = Leader::new(self.name.clone()).encode();
        let txn = Txn {
            step: "lead",
            compares: vec![compare],
            then: vec![Op::Put(self.key.clone(), value, Some(lease))],
            otherwise: vec![Op::Get(self.key.clone())],
        };
        let reply = kv.txn(&txn, until).await?;
        if reply.succeeded {
            return Ok(Leadership::Leader);
        }
        let faster = reply.found.first().and_then(|found| found.one()).map(holder);
        Ok(Leadership::Follower(faster.unwrap_or_else(|| "nobody".to_owned())))
    }

    /// Gives the lead to whoever takes it next, if this candidate has it.
    ///
    /// # Errors
    /// [`Failure`]; then its lease ends it.
    pub async fn resign<K: Kv>(&self, kv: &K, until: Instant) -> Result<(), Failure> {
        let Some(entry) = self.read(kv, until).await? else { return Ok(()) };
        if holder(&entry) != self.name {
            return Ok(());
        }
        let txn = Txn {
            step: "step-down",
            compares: vec![Compare::Mod(self.key.clone(), entry.mod_revision)],
            then: vec![Op::Delete(self.key.clone())],
            otherwise: Vec::new(),
        };
        kv.txn(&txn, until).await.map(|_| ())
    }

    async fn read<K: Kv>(&self, kv: &K, until: Instant) -> Result<Option<Entry>, Failure> {
        let reply = kv.txn(&Txn::read(vec![Op::Get(self.key.clone())]), until).await?;
        Ok(reply.found.first().and_then(|found| found.one().cloned()))
    }
}

/// Who leads. A record that does not decode is a newer version's, and its lease ends it as any other.
fn holder(entry: &Entry) -> String {
    Leader::decode(&entry.value).map_or_else(|bad| bad.to_string(), |leader| leader.holder)
}
