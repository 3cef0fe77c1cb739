//! Reads every key with a prefix at one revision.

use super::keys::Bytes;
use super::kv::{Failure, Kv};
use super::session::Session;
use super::txn::{Entry, Found, List, Op, Txn};
use crate::limits;

/// How many walks are tried if etcd compacts the revision that they read.
const STARTS: usize = 5;
/// How many names are asked for at once: the longest fit into [`limits::REPLY_BYTES`].
const NAMES: i64 = 20_000;

/// Shows every key below `prefix`, all as of one revision, to `see`, in the order of the keys.
///
/// etcd may compact that revision during a walk. Then the state is dropped, and a walk at a newer revision begins with
/// another `fresh` state.
///
/// Returns the state and the revision.
///
/// # Errors
/// [`Failure`]; [`Failure::Compacted`] only if each of five walks met a compaction.
pub async fn walk<K: Kv, S>(
    session: Session<'_, K>,
    prefix: &[u8],
    fresh: impl Fn() -> S,
    see: impl Fn(&mut S, Entry),
) -> Result<(S, i64), Failure> {
    for _ in 1..STARTS {
        let mut state = fresh();
        match walk_once(session, prefix, |entry| see(&mut state, entry)).await {
            Ok(revision) => return Ok((state, revision)),
            Err(Failure::Compacted) => {}
            Err(failure) => return Err(failure),
        }
    }
    let mut state = fresh();
    let revision = walk_once(session, prefix, |entry| see(&mut state, entry)).await?;
    Ok((state, revision))
}

/// etcd counts all keys from the start to the end of a listing, even if it returns few. So only the first listing
/// reaches to the end. After it, many names are listed at once, and then the values between two names.
async fn walk_once<K: Kv>(
    session: Session<'_, K>,
    prefix: &[u8],
    mut see: impl FnMut(Entry),
) -> Result<i64, Failure> {
    let all = List::prefix(prefix, limits::LIST_KEYS);
    let names = List { limit: NAMES, keys_only: true, ..all.clone() };
    let ((mut found, revision), mut has_values) = match read(session, all).await {
        // The values may be too large for one answer.
        Err(Failure::Refused(_)) => (read(session, names.clone()).await?, false),
        read => (read?, true),
    };
    let mut rest = List { revision, ..names };
    loop {
        let more = go_on(&mut rest, &found);
        match has_values {
            true => found.entries.into_iter().for_each(&mut see),
            false => values(session, &found.entries, revision, &mut see).await?,
        }
        if !more {
            return Ok(revision);
        }
        (found, _) = read(session, rest.clone()).await?;
        has_values = false;
    }
}

/// The values of these names, as many at once as an answer holds.
async fn values<K: Kv>(
    session: Session<'_, K>,
    mut names: &[Entry],
    revision: i64,
    mut see: impl FnMut(Entry),
) -> Result<(), Failure> {
    let mut together = limits::LIST_KEYS as usize;
    while let (Some(first), some) = (names.first(), &names[..together.min(names.len())]) {
        let end = after(&some[some.len() - 1].key);
        let list =
            List { start: first.key.clone(), end, limit: limits::LIST_KEYS, revision, keys_only: false };
        match read(session, list).await {
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

async fn read<K: Kv>(session: Session<'_, K>, list: List) -> Result<(Found, i64), Failure> {
    let reply = session.txn(&Txn::read(vec![Op::List(list)])).await?;
    Ok((reply.found.into_iter().next().unwrap_or_default(), reply.revision))
}

/// Moves the start of the next read behind what was found. Returns whether anything is left to read.
fn go_on(rest: &mut List, found: &Found) -> bool {
    let Some(last) = found.entries.last() else { return false };
    rest.start = after(&last.key);
    found.count > found.entries.len() as i64
}

/// The first key after `key`.
fn after(key: &[u8]) -> Bytes {
    [key, &[0]].concat()
}
