//! Reads every key below a prefix as it was at one moment.

use tokio::time::Instant;

use crate::limits;
use crate::store::kv::{Failure, Kv};
use crate::store::txn::{Entry, List, Op, Txn};

/// How often a walk starts over because etcd compacted the revision that it reads.
const STARTS: usize = 5;

/// Shows every key below `prefix`, all as of one revision, to `see`, in the order of the keys.
///
/// A compaction can take the revision away in the middle: everything seen so far is dropped
/// and a walk of a newer revision begins with another `fresh` state.
///
/// Returns the state and the revision.
///
/// # Errors
/// [`Failure`], [`Failure::Compacted`] only if it happened in several walks on end.
pub async fn walk<K: Kv, S>(
    kv: &K,
    prefix: &[u8],
    until: Instant,
    fresh: impl Fn() -> S,
    see: impl Fn(&mut S, Entry),
) -> Result<(S, i64), Failure> {
    for _ in 1..STARTS {
        let mut state = fresh();
        match walk_once(kv, prefix, until, |entry| see(&mut state, entry)).await {
            Ok(revision) => return Ok((state, revision)),
            Err(Failure::Compacted) => {}
            Err(failure) => return Err(failure),
        }
    }
    let mut state = fresh();
    let revision = walk_once(kv, prefix, until, |entry| see(&mut state, entry)).await?;
    Ok((state, revision))
}

async fn walk_once<K: Kv>(
    kv: &K,
    prefix: &[u8],
    until: Instant,
    mut see: impl FnMut(Entry),
) -> Result<i64, Failure> {
    let mut list = List::prefix(prefix, limits::LIST_KEYS);
    loop {
        let reply = kv.txn(&Txn::read(vec![Op::List(list.clone())]), until).await?;
        if list.revision == 0 {
            list.revision = reply.revision;
        }
        let Some(found) = reply.found.into_iter().next() else { return Ok(list.revision) };
        let more = found.count > found.entries.len() as i64;
        if let Some(last) = found.entries.last() {
            list.start.clone_from(&last.key);
            list.start.push(0);
        }
        let nothing = found.entries.is_empty();
        found.entries.into_iter().for_each(&mut see);
        if !more || nothing {
            return Ok(list.revision);
        }
    }
}
