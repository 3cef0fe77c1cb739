//! Clears stray bits: those of addresses that have cooled, and those which a DEL leaves when it is short of time. They
//! only make addresses unavailable, so a run that needs addresses clears them.

use super::kv::{Failure, Kv};
use super::session::Session;
use crate::random::{random, random_pause};
use metes_core::builder::{BitChanges, Builder};
use metes_core::keys::{Bytes, Key, Keys, NetworkAddress};
use metes_core::limits;
use metes_core::pool::address::PAGE_ADDRESSES;
use metes_core::pool::{Addr, Bits, NetworkName, Page, RangeSet, Standing, WhenFull};
use metes_core::snapshot::Snapshot;
use metes_core::txn::{self, Entry, List, Op, Txn};

/// The result of a repair.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SomeRepaired {
    /// True if another look at the set makes sense: bits were cleared, or pages differ from those that were judged,
    /// because another run cleared or freed some.
    pub may_have_room: bool,
    /// If not, the addresses of the set that are cooling in the pages that were looked at.
    pub cooling: Vec<CoolingSeen>,
}

/// An address that is cooling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoolingSeen {
    pub(crate) network: NetworkName,
    pub(crate) address: Addr,
    /// Its key, with the lease that says for how long.
    pub entry: Entry,
}

/// Looks through at most [`limits::REPAIR_PAGES`] pages of a set, from a random one, and clears the stray bits that it
/// finds in one transaction. If there are none, `when_full` may say that the address which has been cooling for longest
/// becomes free.
///
/// # Errors
/// [`Failure`]
pub async fn repair_some<K: Kv>(
    session: Session<'_, K>,
    set: &RangeSet,
    judged: &Snapshot,
    when_full: WhenFull,
    is_wanted: &dyn Fn() -> bool,
) -> Result<SomeRepaired, Failure> {
    let pages = some_pages(set, random());
    let room = SomeRepaired { may_have_room: true, cooling: Vec::new() };
    loop {
        let PagesSeen { stray, has_changed, cooling } = look(session, set, &pages, judged).await?;
        let cleared = match when_full {
            _ if !stray.is_empty() => clear(session, &stray).await?,
            _ if has_changed => return Ok(room),
            WhenFull::Reuse if !cooling.is_empty() => {
                let longest =
                    cooling.iter().min_by_key(|seen| seen.entry.mod_revision).expect("there is one");
                end_cooling(session, longest).await?
            }
            WhenFull::Wait | WhenFull::Reuse => return Ok(SomeRepaired { may_have_room: false, cooling }),
        };
        if cleared {
            return Ok(room);
        }
        // A quicker run may have repaired the same bits, or have written something else on a page.
        tokio::time::sleep(random_pause(limits::RACE_PAUSE)).await;
        if !is_wanted() {
            return Ok(room);
        }
    }
}

/// The result of a look through pages.
#[derive(Default)]
struct PagesSeen {
    stray: Vec<NetworkAddress>,
    has_changed: bool,
    cooling: Vec<CoolingSeen>,
}

async fn look<K: Kv>(
    session: Session<'_, K>,
    set: &RangeSet,
    pages: &[(NetworkName, Page)],
    judged: &Snapshot,
) -> Result<PagesSeen, Failure> {
    let mut found = PagesSeen::default();
    // Counting the reservations of a page costs etcd almost nothing; listing them costs a walk over each key. Pages and
    // counts are of one revision: that of this answer.
    let counts = Txn::read(
        pages.iter().flat_map(|(network, page)| count_reads(session.keys, network, *page)).collect(),
    );
    let counted = session.txn(&counts).await?;
    let mut with_cooling = Vec::new();
    for ((network, page), answers) in pages.iter().zip(counted.found.chunks_exact(3)) {
        let [stored, reserved, cooling] = answers else { continue };
        found.has_changed |= hands_out(set, network, *page)
            && is_another(judged, &session.keys.page(network, *page), stored.one());
        if cooling.count > 0 {
            with_cooling.push((network, *page));
        }
        let Some(bits) = stored.one().and_then(|entry| Bits::from_bytes(&entry.value)) else { continue };
        let has_stray = i64::try_from(bits.count()) != Ok(reserved.count + cooling.count);
        if has_stray && found.stray.len() < limits::REPAIR_BITS {
            let [reserved, cooling] =
                [Keys::ip, Keys::cooling].map(|key| (session.keys, key)).map(|key| all(key, network, *page));
            let ops = [reserved, cooling].map(|list| Op::List(List { revision: counted.revision, ..list }));
            let listed = session.txn(&Txn::read(ops.to_vec())).await?;
            let stray = stray_bits(session.keys, bits, &listed.found, *page);
            found.stray.extend(stray.into_iter().map(|address| (network.clone(), address)));
        }
    }
    // Those that this set can hand out come first.
    found.stray.sort_by_key(|(_, address)| set.standing(*address) != Standing::Assignable);
    found.stray.truncate(limits::REPAIR_BITS);
    if found.stray.is_empty() && !found.has_changed {
        for (network, page) in with_cooling {
            found.cooling.extend(cooling_of(session, set, network, page).await?);
        }
    }
    Ok(found)
}

/// The addresses of a page that the set could give if they were not cooling.
async fn cooling_of<K: Kv>(
    session: Session<'_, K>,
    set: &RangeSet,
    network: &NetworkName,
    page: Page,
) -> Result<Vec<CoolingSeen>, Failure> {
    let list = Op::List(all((session.keys, Keys::cooling), network, page));
    let listed = session.txn(&Txn::read(vec![list])).await?;
    let entries = listed.found.into_iter().next().map(|found| found.entries).unwrap_or_default();
    let of_set = |entry: Entry| match session.keys.parse(&entry.key) {
        Ok(Key::Cooling(network, address)) if set.standing(address) == Standing::Assignable => {
            Some(CoolingSeen { network, address, entry })
        }
        _ => None,
    };
    Ok(entries.into_iter().filter_map(of_set).collect())
}

/// True if the set may hand out an address of the page. A page that the set never looks at does not matter.
fn hands_out(set: &RangeSet, network: &NetworkName, page: Page) -> bool {
    let ranges = set.ranges().iter().filter(|range| range.network() == network);
    let mut spans = ranges.flat_map(|range| range.spans());
    spans.any(|span| span.first.page() <= page && page <= span.last.page())
}

/// True if a page has changed since the set seemed full. A page that was not read then was full by its summary.
fn is_another(judged: &Snapshot, key: &[u8], stored: Option<&Entry>) -> bool {
    if judged.knows(key) {
        return judged.mod_revision(key) != stored.map_or(0, |entry| entry.mod_revision);
    }
    stored.is_none_or(|entry| Bits::from_bytes(&entry.value).is_some_and(|bits| !bits.is_full()))
}

/// The page, and how many addresses of it are reserved, and how many are cooling.
fn count_reads(keys: &Keys, network: &NetworkName, page: Page) -> [Op; 3] {
    let count = |key| Op::List(List { limit: 1, ..all((keys, key), network, page) });
    [Op::Get(keys.page(network, page)), count(Keys::ip), count(Keys::cooling)]
}

/// A kind of key of a network's addresses.
type AddressKey<'a> = (&'a Keys, fn(&Keys, &NetworkName, Addr) -> Bytes);

/// The bits that a page must have: those of its reserved and of its cooling addresses.
///
/// # Errors
/// [`Failure`]
pub async fn needed_bits<K: Kv>(
    session: Session<'_, K>,
    network: &NetworkName,
    page: Page,
) -> Result<Bits, Failure> {
    let keys: [AddressKey<'_>; 2] = [(session.keys, Keys::ip), (session.keys, Keys::cooling)];
    let listed = session.txn(&Txn::read(keys.map(|key| Op::List(all(key, network, page))).to_vec())).await?;
    let mut bits = Bits::empty();
    for entry in listed.found.iter().flat_map(|found| &found.entries) {
        if let Ok(Key::Ip(_, address) | Key::Cooling(_, address)) = session.keys.parse(&entry.key) {
            bits.set(address.bit());
        }
    }
    Ok(bits)
}

/// Reads the names of the keys of a page's addresses.
fn all((keys, key): AddressKey<'_>, network: &NetworkName, page: Page) -> List {
    let mut past = key(keys, network, page.last());
    past.push(0);
    let limit = PAGE_ADDRESSES as i64;
    List { start: key(keys, network, page.first()), end: past, limit, revision: 0, keys_only: true }
}

/// The bits of addresses that are neither reserved nor cooling.
fn stray_bits(keys: &Keys, mut bits: Bits, listed: &[txn::Found], page: Page) -> Vec<Addr> {
    for entry in listed.iter().flat_map(|found| &found.entries) {
        if let Ok(Key::Ip(_, address) | Key::Cooling(_, address)) = keys.parse(&entry.key) {
            bits.clear(address.bit());
        }
    }
    bits.ones().map(|bit| page.address(bit)).collect()
}

/// Clears the bits in one transaction. It compares each page, and that each address is neither reserved nor cooling.
/// Returns true if the compares were true.
async fn clear<K: Kv>(session: Session<'_, K>, stray: &[NetworkAddress]) -> Result<bool, Failure> {
    let neither = |builder: &mut Builder<'_>| {
        for (network, address) in stray {
            builder.absent(session.keys.ip(network, *address));
            builder.absent(session.keys.cooling(network, *address));
        }
    };
    clear_bits(session, stray, Snapshot::default(), neither).await
}

/// The result of a wish to end a cooldown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CooldownEnd {
    /// The address may be given at once.
    Ended,
    /// It does not cool.
    NotCooling,
    /// It is reserved, whether it cools or not.
    Reserved,
}

/// Ends the cooldown of an address for a person, and clears its bit.
///
/// # Errors
/// [`Failure`]
pub async fn end_cooldown<K: Kv>(
    session: Session<'_, K>,
    network: &NetworkName,
    address: Addr,
) -> Result<CooldownEnd, Failure> {
    let [reserved, cooling] = [Keys::ip, Keys::cooling].map(|key| key(session.keys, network, address));
    loop {
        let mut seen = Snapshot::default();
        session.read(&[reserved.clone(), cooling.clone()], &mut seen).await?;
        if seen.entry(&reserved).is_some() {
            return Ok(CooldownEnd::Reserved);
        }
        let Some(entry) = seen.entry(&cooling).cloned() else { return Ok(CooldownEnd::NotCooling) };
        if end_cooling(session, &CoolingSeen { network: network.clone(), address, entry }).await? {
            return Ok(CooldownEnd::Ended);
        }
        tokio::time::sleep(random_pause(limits::RACE_PAUSE)).await;
    }
}

/// Lets an address not cool any longer, and clears its bit. It compares that the address is cooling since the same
/// moment: it may have been given and freed again meanwhile.
async fn end_cooling<K: Kv>(session: Session<'_, K>, seen: &CoolingSeen) -> Result<bool, Failure> {
    let at = [(seen.network.clone(), seen.address)];
    let key = &seen.entry.key;
    let mut snapshot = Snapshot::default();
    snapshot.set(key, Some(seen.entry.clone()));
    let is_same = |builder: &mut Builder<'_>| {
        builder.absent(session.keys.ip(&seen.network, seen.address));
        builder.unchanged(key.clone());
        builder.delete(key.clone());
    };
    clear_bits(session, &at, snapshot, is_same).await
}

/// Clears the bits of these addresses in one transaction that compares each page, too.
async fn clear_bits<K: Kv>(
    session: Session<'_, K>,
    addresses: &[NetworkAddress],
    mut snapshot: Snapshot,
    compares: impl Fn(&mut Builder<'_>),
) -> Result<bool, Failure> {
    let mut changes = BitChanges::default();
    addresses.iter().for_each(|(network, address)| changes.clear(network, *address));
    loop {
        let mut builder = Builder::new("clear", &snapshot);
        compares(&mut builder);
        changes.plan(session.keys, &mut builder);
        match builder.finish() {
            Err(missing) => session.read(&missing, &mut snapshot).await?,
            Ok(txn) => return Ok(session.txn(&txn).await?.succeeded),
        }
    }
}

/// Up to [`limits::REPAIR_PAGES`] pages of the set in a row, wrapping, from the one that `seed`
/// selects.
fn some_pages(set: &RangeSet, seed: u64) -> Vec<(NetworkName, Page)> {
    let pages_of = |first: Addr, last: Addr| last.page().0 - first.page().0 + 1;
    let total: u128 = set.ranges().iter().map(|range| pages_of(range.first(), range.last())).sum();
    let start = u128::from(seed) % total;
    (0..total.min(limits::REPAIR_PAGES))
        .filter_map(|i| {
            let mut position = (start + i) % total;
            for range in set.ranges() {
                let pages = pages_of(range.first(), range.last());
                if position < pages {
                    return Some((range.network().clone(), Page(range.first().page().0 + position)));
                }
                position -= pages;
            }
            None
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use metes_core::pool::Range;
    use metes_core::pool::range::fixtures::cidr;

    fn range(subnet: &str, first: &str, last: &str) -> Range {
        cidr(subnet).bounds(first, last).range()
    }

    /// The pages of a search, as numbers of the pages of the set.
    fn searched(set: &RangeSet, all: &[Page], seed: u64) -> Vec<usize> {
        let number = |page: Page| all.iter().position(|one| *one == page).expect("a page of the set");
        some_pages(set, seed).into_iter().map(|(_, page)| number(page)).collect()
    }

    #[test]
    fn a_search_that_begins_late_goes_on_with_the_first_pages() {
        let page = |text: &str| Addr::from(text.parse::<std::net::IpAddr>().expect("an address")).page();
        // 3 pages of one range and 17 of another.
        let ranges = vec![
            range("10.0.0.0/18", "10.0.0.1", "10.0.47.254"),
            range("10.8.0.0/15", "10.8.0.1", "10.9.15.9"),
        ];
        let set = RangeSet::new(ranges).expect("a set");
        let of_range = |first: Page, count: u128| (0..count).map(move |i| Page(first.0 + i));
        let all: Vec<Page> = of_range(page("10.0.0.1"), 3).chain(of_range(page("10.8.0.1"), 17)).collect();
        for seed in 0..40 {
            let expected: Vec<usize> = (0..16).map(|i| (seed as usize + i) % 20).collect();
            assert_eq!(searched(&set, &all, seed), expected, "{seed}");
        }
        // All of a small set, wherever it begins.
        let set = RangeSet::new(vec![range("10.0.0.0/18", "10.0.0.1", "10.0.47.254")]).expect("a set");
        for seed in [0, 1, 2, u64::MAX] {
            let mut found = searched(&set, &all[..3], seed);
            assert_eq!(found[0], (seed % 3) as usize);
            found.sort_unstable();
            assert_eq!(found, [0, 1, 2], "{seed}");
        }
    }
}
