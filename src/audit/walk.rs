//! Reads every key below a prefix as it was at one moment.

use tokio::time::Instant;

use crate::limits;
use crate::store::keys::Bytes;
use crate::store::kv::{Failure, Kv};
use crate::store::txn::{Entry, Found, List, Op, Txn};

/// How often a walk starts over because etcd compacted the revision that it reads.
const STARTS: usize = 5;
/// How many names are asked for at once: the longest fit into [`limits::REPLY_BYTES`].
const NAMES: i64 = 20_000;

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

/// etcd counts all keys from a listing's start to its end, however few it returns. So only the
/// first listing is open to the end; then names are listed, many at once, and between two names
/// their values.
async fn walk_once<K: Kv>(
    kv: &K,
    prefix: &[u8],
    until: Instant,
    mut see: impl FnMut(Entry),
) -> Result<i64, Failure> {
    let all = List::prefix(prefix, limits::LIST_KEYS);
    let names = List { limit: NAMES, keys_only: true, ..all.clone() };
    let ((mut found, revision), mut has_values) = match read(kv, all, until).await {
        // They may be too large for one answer.
        Err(Failure::Refused(_)) => (read(kv, names.clone(), until).await?, false),
        read => (read?, true),
    };
    let mut rest = List { revision, ..names };
    loop {
        let more = go_on(&mut rest, &found);
        match has_values {
            true => found.entries.into_iter().for_each(&mut see),
            false => values(kv, &found.entries, revision, until, &mut see).await?,
        }
        if !more {
            return Ok(revision);
        }
        (found, _) = read(kv, rest.clone(), until).await?;
        has_values = false;
    }
}

/// The values of these names, as many at once as an answer holds.
async fn values<K: Kv>(
    kv: &K,
    mut names: &[Entry],
    revision: i64,
    until: Instant,
    mut see: impl FnMut(Entry),
) -> Result<(), Failure> {
    let mut together = limits::LIST_KEYS as usize;
    while let (Some(first), some) = (names.first(), &names[..together.min(names.len())]) {
        let end = after(&some[some.len() - 1].key);
        let list =
            List { start: first.key.clone(), end, limit: limits::LIST_KEYS, revision, keys_only: false };
        match read(kv, list, until).await {
            Ok((found, _)) => found.entries.into_iter().for_each(&mut see),
            Err(Failure::Refused(_)) if together > 1 => {
                together = some.len().div_ceil(2).min(together / 2);
                continue;
            }
            Err(failure) => return Err(failure),
        }
        names = &names[some.len()..];
    }
    Ok(())
}

async fn read<K: Kv>(kv: &K, list: List, until: Instant) -> Result<(Found, i64), Failure> {
    let reply = kv.txn(&Txn::read(vec![Op::List(list)]), until).await?;
    Ok((reply.found.into_iter().next().unwrap_or_default(), reply.revision))
}

/// Moves the start of what is to be read behind what was found; whether anything is left there.
fn go_on(rest: &mut List, found: &Found) -> bool {
    let Some(last) = found.entries.last() else { return false };
    rest.start = after(&last.key);
    found.count > found.entries.len() as i64
}

/// The first key after `key`.
fn after(key: &[u8]) -> Bytes {
    [key, &[0]].concat()
}
