//! Reads every key with a prefix at one revision.

use std::cell::RefCell;

use super::kv::{Failure, Kv};
use super::session::Session;
use metes_core::keys::{Bytes, prefix_end};
use metes_core::limits;
use metes_core::txn::{Entry, Found, List, Op, Txn};

/// The number of walks that are tried if etcd compacts the revision that they read.
const STARTS: usize = 5;
/// The factor by which the next listing goes further after one that has found nothing.
const GAP: u64 = 64;
/// The number of bytes by which the assumed common beginning of names becomes shorter after a second listing that has
/// found nothing.
const HIGHER: usize = 2;
/// The distance that a listing then goes: that of two numbers that differ in their second byte by 1. If it went
/// further, etcd would count all that is left of a tree after each network of it.
const STEP: u64 = 1 << 48;

/// After a listing was refused as too large, the number of listings that must be full before the next ones may be
/// larger again.
const CALM: u32 = 8;

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
    walk_between(session, (prefix, &prefix_end(prefix)), fresh, see).await
}

/// As [`walk`], from the first key up to, without, the second one.
///
/// # Errors
/// As [`walk`].
pub async fn walk_between<K: Kv, S>(
    session: Session<'_, K>,
    (start, end): (&[u8], &[u8]),
    fresh: impl Fn() -> S,
    see: impl Fn(&mut S, Entry),
) -> Result<(S, i64), Failure> {
    unless_compacted(async || {
        let mut state = fresh();
        let see = |entry| see(&mut state, entry);
        let revision = walk_once(session, (start, end), (limits::LIST_KEYS, 0), see).await?;
        Ok((state, revision))
    })
    .await
}

/// Tries `work`, which reads at one revision, again from its start if etcd compacts that meanwhile.
///
/// # Errors
/// As `work`; [`Failure::Compacted`] only if each of five tries met a compaction.
pub async fn unless_compacted<T>(work: impl AsyncFn() -> Result<T, Failure>) -> Result<T, Failure> {
    for _ in 1..STARTS {
        match work().await {
            Err(Failure::Compacted) => {}
            ended => return ended,
        }
    }
    work().await
}

/// Shows every key from the first bound to the last one to `see`, all as of `revision` (0: the newest), and returns
/// that. The three parts between the bounds are read side by side, so that neither etcd nor this program waits for the
/// other. Only within a part the keys come in order. Each part has up to `limit` keys in memory. One that ends where it
/// begins is not read.
///
/// # Errors
/// [`Failure`]
pub async fn walk_parts<K: Kv>(
    session: Session<'_, K>,
    [first, second, third, end]: [&[u8]; 4],
    (limit, mut revision): (i64, i64),
    see: impl FnMut(Entry),
) -> Result<i64, Failure> {
    if revision == 0 {
        // It finds a member that answers, too.
        revision = session.txn(&Txn::read(vec![Op::Get(first.to_vec())])).await?.revision;
    }
    let see = RefCell::new(see);
    let part = async |start, end| {
        let see = |entry| see.borrow_mut()(entry);
        if start < end {
            walk_once(session, (start, end), (limit, revision), see).await
        } else {
            Ok(revision)
        }
    };
    tokio::try_join!(part(first, second), part(second, third), part(third, end))?;
    Ok(revision)
}

/// etcd counts all keys from the start to the end of a listing, even if it returns few. So only the first listing
/// reaches to the end. After it, a listing goes about as far as it can return keys ([`Bounds`]).
async fn walk_once<K: Kv>(
    session: Session<'_, K>,
    (start, end): (&[u8], &[u8]),
    (limit, revision): (i64, i64),
    mut see: impl FnMut(Entry),
) -> Result<i64, Failure> {
    let mut rest = List { start: start.to_vec(), end: end.to_vec(), limit, revision, keys_only: false };
    let mut bounds = Bounds::new(end);
    let mut cut_short = 0;
    loop {
        let (found, newest) = match read(session, rest.clone()).await {
            // The values may be too large for one answer.
            Err(Failure::Refused(_)) if rest.limit > 1 => {
                rest.limit /= 2;
                cut_short = 0;
                continue;
            }
            read => read?,
        };
        if rest.revision == 0 {
            rest.revision = newest;
        }
        cut_short += u32::from(found.count > found.entries.len() as i64);
        if cut_short == CALM {
            cut_short = 0;
            rest.limit = (rest.limit * 2).min(limit);
        }
        let more = bounds.go_on(&mut rest, &found);
        found.entries.into_iter().for_each(&mut see);
        if !more {
            return Ok(rest.revision);
        }
    }
}

async fn read<K: Kv>(session: Session<'_, K>, list: List) -> Result<(Found, i64), Failure> {
    let reply = session.txn(&Txn::walk(list)).await?;
    Ok((reply.found.into_iter().next().unwrap_or_default(), reply.revision))
}

/// The end of the next listing of a walk: about as far on as the last one came, if names are spread evenly.
///
/// After the bytes in which all names of the last listing are alike, the next eight bytes of a name are taken as a
/// number.
struct Bounds {
    /// Of the whole walk.
    end: Bytes,
    /// The common beginning of the names of the last listing that found several.
    alike: Bytes,
    /// The distance of its first and its last name.
    span: u64,
    /// The number of listings that have found nothing since.
    empty: u32,
}

impl Bounds {
    fn new(end: &[u8]) -> Self {
        Self { end: end.to_vec(), alike: Bytes::new(), span: 1, empty: 0 }
    }

    /// Moves the next listing behind the keys that were found. Returns true if any may be left to read.
    fn go_on(&mut self, rest: &mut List, found: &Found) -> bool {
        let is_whole = found.count <= found.entries.len() as i64;
        if is_whole && rest.end >= self.end {
            return false;
        }
        match &found.entries[..] {
            [] => self.go_further(),
            [_] => {}
            [first, .., last] => {
                let (first, last) = (&first.key, &last.key);
                let alike = first.iter().zip(last).take_while(|(one, other)| one == other).count();
                self.alike = last[..alike].to_vec();
                self.span = number(&last[alike..]) - number(&first[alike..]);
                self.empty = 0;
            }
        }
        rest.start = match found.entries.last() {
            Some(last) if !is_whole => after(&last.key),
            _ => std::mem::take(&mut rest.end),
        };
        if is_whole && !found.entries.is_empty() {
            self.span = self.span.saturating_mul(2);
        }
        rest.end = self.bound(&rest.start);
        true
    }

    /// Only some bytes occur in names, so there are gaps. At the end of a part of the tree, the next names have a
    /// shorter common beginning.
    fn go_further(&mut self) {
        self.empty += 1;
        self.span = self.span.saturating_mul(GAP);
        if self.empty > 1 {
            self.alike.truncate(self.alike.len().saturating_sub(HIGHER));
            self.span = STEP;
        }
    }

    fn bound(&mut self, start: &[u8]) -> Bytes {
        loop {
            let number = start
                .strip_prefix(&self.alike[..])
                .and_then(|rest| number(rest).checked_add(self.span.max(1)));
            if let Some(number) = number {
                return [&self.alike[..], &number.to_be_bytes()].concat().min(self.end.clone());
            }
            if self.alike.pop().is_none() {
                return self.end.clone();
            }
            self.span = STEP;
        }
    }
}

/// The first eight bytes as a number.
fn number(bytes: &[u8]) -> u64 {
    let mut eight = [0; 8];
    eight.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    u64::from_be_bytes(eight)
}

/// The first key after `key`.
fn after(key: &[u8]) -> Bytes {
    [key, &[0]].concat()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn entry(key: &Bytes) -> Entry {
        Entry { key: key.clone(), value: Vec::new(), create_revision: 1, mod_revision: 1, lease: 0 }
    }

    /// The keys that a walk sees of these, and the number of keys that etcd counts for it.
    fn listed(keys: &BTreeSet<Bytes>, prefix: &[u8], limit: usize) -> (Vec<Bytes>, usize) {
        let mut rest = List::prefix(prefix, limit as i64);
        let mut bounds = Bounds::new(&prefix_end(prefix));
        let (mut seen, mut counted) = (Vec::new(), 0);
        for _ in 0..20_000 {
            assert!(rest.start < rest.end);
            let some: Vec<&Bytes> = keys.range(rest.start.clone()..rest.end.clone()).collect();
            let entries: Vec<Entry> = some.iter().take(limit).map(|key| entry(key)).collect();
            counted += some.len();
            seen.extend(entries.iter().map(|entry| entry.key.clone()));
            if !bounds.go_on(&mut rest, &Found::read(entries, some.len() as i64)) {
                return (seen, counted);
            }
        }
        panic!("it never ends");
    }

    /// Each network has as many addresses as a listing returns, or more. After the last one of a network, a listing
    /// must not count all that is left.
    #[test]
    fn etcd_does_not_count_the_rest_of_a_tree_after_each_network() {
        for (networks, addresses) in [(200, 100), (200, 140), (40, 500), (20, 1000)] {
            let key = |at: usize| {
                format!(
                    "p/net/rack-{}/ip/{:032x}",
                    at / addresses,
                    0xffff_0a00_0000_u64 + (at % addresses) as u64
                )
            };
            let keys: BTreeSet<Bytes> = (0..networks * addresses).map(|at| key(at).into_bytes()).collect();
            let (seen, counted) = listed(&keys, b"p/", 100);
            assert_eq!(seen.len(), keys.len());
            assert!(counted < 25 * keys.len(), "{networks} networks: {counted} keys for {}", keys.len());
        }
    }

    proptest! {
        /// Each name is found once, in order, however names are spread.
        #[test]
        fn listings_that_end_early_find_every_name(
            keys in prop::collection::btree_set(prop::collection::vec(0u8..4, 0..9), 0..200),
            high in prop::collection::btree_set(prop::collection::vec(250u8.., 1..4), 0..20),
            limit in 1usize..9,
        ) {
            let keys: BTreeSet<Bytes> = keys.into_iter().chain(high).map(|key| [b"p/", &key[..]].concat()).collect();
            let (seen, _) = listed(&keys, b"p/", limit);
            prop_assert_eq!(seen, keys.into_iter().collect::<Vec<_>>());
        }
    }
}
