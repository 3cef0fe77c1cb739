//! The effect of a change of a pool: addresses gained and lost, and held addresses that are left outside. Pure.

use std::fmt::Write as _;

use super::held::HeldOfPools;
use super::words;
use crate::inventory::{Row, holders};
use crate::table::{or_dash, printable};
use metes_core::plan::pool_change::{HeldOfPool, PoolIntent, StoredPools, overlaps};
use metes_core::pool::{PoolDefinition, PoolRange, Range, RangeState, Standing};

/// A pool with its ranges folded.
pub(super) struct FoldedPool<'a> {
    pub(super) definition: &'a PoolDefinition,
    ranges: Vec<Range>,
}

impl<'a> FoldedPool<'a> {
    pub(super) fn new(definition: &'a PoolDefinition) -> Self {
        Self { definition, ranges: definition.all_ranges().unwrap_or_default() }
    }

    /// Each range as it is written, and folded.
    pub(super) fn ranges(&self) -> impl Iterator<Item = (&'a PoolRange, &Range)> {
        self.definition.ranges.iter().zip(&self.ranges)
    }

    fn open(&self) -> impl Iterator<Item = &Range> {
        self.ranges().filter(|(written, _)| written.state == RangeState::Open).map(|(_, range)| range)
    }

    /// The range that an address of the pool's network lies in, given or not.
    fn range_of(&self, row: &Row) -> Option<(&'a PoolRange, &Range)> {
        let is_of_network = row.network.as_ref() == Some(&self.definition.network);
        let found = self.definition.range_of(row.address.ip()).filter(|_| is_of_network)?;
        self.ranges().find(|(written, _)| std::ptr::eq(*written, found))
    }

    /// True if the address would be given if it were free.
    fn gives(&self, row: &Row) -> bool {
        self.range_of(row).is_some_and(|(written, range)| {
            written.state == RangeState::Open && range.standing(row.address) == Standing::Assignable
        })
    }

    /// The number of addresses that were taken from this pool and lie in none of its ranges.
    pub(super) fn outside_of_all(&self, held: &HeldOfPools<'_>) -> usize {
        held.taken(&self.definition.pool).iter().filter(|row| self.range_of(row).is_none()).count()
    }
}

/// Counts the held addresses that decide about a change of the stored pool.
pub(super) fn held(stored: Option<&PoolDefinition>, held: &HeldOfPools<'_>) -> HeldOfPool {
    let Some(pool) = stored.map(FoldedPool::new) else { return HeldOfPool::default() };
    HeldOfPool {
        from_pool: held.taken(&pool.definition.pool).len(),
        in_ranges: pool.ranges.iter().map(|range| held.inventory.counts(range).held).sum(),
    }
}

/// The effect of an intent, in words, and the number of held addresses that it leaves outside.
pub(super) struct PoolEffect {
    pub(super) words: String,
    /// The number of addresses that are held outside of the open ranges after it.
    pub(super) outside: usize,
}

impl PoolEffect {
    /// `pools` are those that the intent is judged against.
    pub(super) fn of(intent: &PoolIntent, pools: &StoredPools, held: &HeldOfPools<'_>) -> Self {
        let old = pools.get(intent.pool());
        match intent {
            PoolIntent::Put(definition) => {
                put(&FoldedPool::new(definition), old.map(FoldedPool::new).as_ref(), pools, held)
            }
            PoolIntent::Delete(name) => {
                let left = old.map_or(0, |old| held.taken(&old.pool).len());
                let keep = match left {
                    0 => String::new(),
                    left => format!("; addresses that it gave and that stay with their holders: {left}"),
                };
                Self { words: format!("pool {name} is deleted{keep}\n"), outside: 0 }
            }
        }
    }
}

fn put(
    new: &FoldedPool<'_>,
    old: Option<&FoldedPool<'_>>,
    pools: &StoredPools,
    held: &HeldOfPools<'_>,
) -> PoolEffect {
    let PoolDefinition { pool, network, .. } = new.definition;
    let concerned = held.concerned([Some(new), old].into_iter().flatten().map(|pool| pool.definition));
    let mut words = match old {
        Some(old) if old.definition == new.definition => format!("pool {pool}: nothing changes\n"),
        Some(old) => format!("pool {pool} of network {network} changes\n") + &differences(new, old),
        None => format!("pool {pool} of network {network} is new\n") + &gains(new),
    };
    for other in pools.others(new.definition) {
        let folded = FoldedPool::new(other);
        for (at, other_at) in overlaps(&new.ranges, &folded.ranges) {
            let (range, other_range) = (&new.definition.ranges[at].range, &other.ranges[other_at].range);
            let _ = writeln!(words, "  {range} shares addresses with {other_range} of pool {}", other.pool);
        }
    }
    let is_outside = |row: &Row| {
        let was_in = row.pool.is_none() && old.is_some_and(|old| old.range_of(row).is_some());
        (row.is_from(pool) || new.range_of(row).is_some() || was_in) && !new.gives(row)
    };
    let outside: Vec<&Row> = concerned.iter().copied().filter(|row| is_outside(row)).collect();
    if !outside.is_empty() {
        let _ = writeln!(words, "  held outside of the open ranges: {}", outside.len());
        words.push_str(&holders(&outside));
    }
    let differs = |row: &Row| {
        let (Some(from), Some((_, range))) = (&row.pool, new.range_of(row)) else { return false };
        row.is_from(pool) && (from.prefix_len, from.gateway) != (range.prefix_len(), range.gateway())
    };
    let differ: Vec<&Row> = concerned.into_iter().filter(|row| differs(row)).collect();
    if !differ.is_empty() {
        let _ =
            writeln!(words, "  running pods that keep another gateway or prefix length: {}", differ.len());
        words.push_str(&holders(&differ));
    }
    PoolEffect { words, outside: outside.len() }
}

fn gains(new: &FoldedPool<'_>) -> String {
    let line = |(written, range): (&PoolRange, &Range)| {
        let gateway = written.gateway.map(|gateway| format!(", gateway {gateway}")).unwrap_or_default();
        let size = range.size();
        format!("  {} {}: addresses {size}{gateway}\n", written.range, written.state)
    };
    new.ranges().map(line).collect()
}

fn differences(new: &FoldedPool<'_>, old: &FoldedPool<'_>) -> String {
    let mut text = String::new();
    for (written, range) in new.ranges() {
        let gained = if written.state == RangeState::Open { beyond(range, old.open()) } else { 0 };
        let Some(before) = old.definition.ranges.iter().find(|old| old.range == written.range) else {
            let _ = writeln!(text, "  {}: new, {}{}", written.range, written.state, count("gained", gained));
            continue;
        };
        let was = old.ranges().find(|(old, _)| old.range == written.range);
        let lost = was.map_or(0, |(before, range)| lost(before, range, new));
        let mut parts = Vec::new();
        if before.state != written.state {
            parts.push(format!("state {}, now {}", before.state, written.state));
        }
        if before.gateway != written.gateway {
            let words =
                |gateway: Option<std::net::IpAddr>| or_dash(gateway.map(|g| g.to_string()).as_deref());
            parts.push(format!("gateway {}, now {}", words(before.gateway), words(written.gateway)));
        }
        if before.exclude != written.exclude {
            parts.push(format!("exclude {}, now {}", words::exclude(before), words::exclude(written)));
        }
        if parts.is_empty() && gained == 0 && lost == 0 {
            continue;
        }
        let parts = if parts.is_empty() { String::new() } else { format!(" {}", parts.join(", ")) };
        let counts = count("gained", gained) + &count("lost", lost);
        let _ = writeln!(text, "  {}:{}", written.range, parts + &counts);
    }
    for (written, range) in old.ranges() {
        if !new.definition.ranges.iter().any(|new| new.range == written.range) {
            let lost = lost(written, range, new);
            let _ = writeln!(text, "  {}: removed{}", written.range, count("lost", lost));
        }
    }
    let mut fields: Vec<(&str, String, String)> = Vec::new();
    let mut field = |name, words: &dyn Fn(&PoolDefinition) -> String| {
        fields.push((name, words(old.definition), words(new.definition)));
    };
    field("network", &|pool| pool.network.to_string());
    field("order", &|pool| or_dash(pool.order.map(|order| order.to_string()).as_deref()));
    field("routes", &words::routes);
    field("dns", &words::dns);
    field("cooldown", &words::cooldown);
    field("keep", &words::keep);
    field("allow", &words::allow);
    field("for", &words::chosen_for);
    field("priority", &|pool| pool.priority.to_string());
    field("note", &words::note);
    for (name, before, after) in fields.into_iter().filter(|(_, before, after)| before != after) {
        let _ = writeln!(text, "  {name}: {}, now {}", printable(&before), printable(&after));
    }
    if text.is_empty() {
        text.push_str("  the ranges stand in another order, or are written in another way\n");
    }
    text
}

/// `, addresses gained: 7`
fn count(what: &str, count: u128) -> String {
    if count == 0 { String::new() } else { format!(", addresses {what}: {count}") }
}

/// The number of addresses of a range of the old pool that the new pool does not give.
fn lost(written: &PoolRange, range: &Range, new: &FoldedPool<'_>) -> u128 {
    if written.state == RangeState::Open { beyond(range, new.open()) } else { 0 }
}

/// The number of addresses of a range that none of the others gives. Those must have no address in common.
fn beyond<'r>(range: &Range, others: impl Iterator<Item = &'r Range>) -> u128 {
    let shared = others.flat_map(Range::spans).fold(0, |sum: u128, other| {
        let within = range.spans().iter().filter_map(|span| span.within(*other));
        within.fold(sum, |sum, span| sum.saturating_add(span.size()))
    });
    range.size().saturating_sub(shared)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::{Holder, Inventory};
    use metes_core::pool::range::fixtures::addr;
    use metes_core::pool::{FromPool, Labels, NetworkName, Owner, Pod};

    fn pool(ranges: &str) -> PoolDefinition {
        serde_json::from_str(&format!(r#"{{"pool":"a","network":"blue","ranges":[{ranges}]}}"#))
            .expect(ranges)
    }

    /// An address of network `blue`, taken from pool `a` if a prefix length and a gateway are given.
    fn row(address: &str, from: Option<(u8, Option<&str>)>) -> Row {
        let pod = Pod { namespace: "ns".into(), name: format!("p{address}"), uid: None };
        Row {
            kept: None,
            network: NetworkName::configured("blue").ok(),
            address: addr(address),
            holder: Some(Holder {
                owner: Owner::named(["east", "n1", "c1", "eth0"]).expect("plain names"),
                labels: Labels { pod, cni_network: "net".into() }.into(),
                created_at: Some("2026-01-02T03:04:05Z".into()),
                hold: None,
            }),
            pool: from.map(|(prefix_len, gateway)| FromPool {
                name: "a".parse().expect("a name"),
                prefix_len,
                gateway: gateway.map(|gateway| gateway.parse().expect("an address")),
            }),
        }
    }

    fn effect(old: Option<&PoolDefinition>, new: &PoolDefinition, rows: Vec<Row>) -> PoolEffect {
        let mut pools = StoredPools::default();
        old.iter().for_each(|old| pools.assume(&PoolIntent::put((*old).clone())));
        let mut inventory = Inventory::default();
        inventory.rows = rows;
        let inventory = inventory.sorted();
        PoolEffect::of(&PoolIntent::put(new.clone()), &pools, &HeldOfPools::new(&inventory))
    }

    #[test]
    fn what_is_gained_and_lost_is_counted_once() {
        let old = pool(r#"{"range":"10.0.0.0/28"},{"range":"10.0.1.0/29"},{"range":"10.0.2.0/29"}"#);
        let new = pool(concat!(
            r#"{"range":"10.0.0.0/29","gateway":"10.0.0.1"},{"range":"10.0.0.8/29"},"#,
            r#"{"range":"10.0.1.0/29","state":"draining"},{"range":"10.0.2.0/29"}"#
        ));
        let expected = "\
pool a of network blue changes
  10.0.0.0/29: new, open
  10.0.0.8/29: new, open
  10.0.1.0/29: state open, now draining, addresses lost: 6
  10.0.0.0/28: removed, addresses lost: 3
";
        assert_eq!(effect(Some(&old), &new, Vec::new()).words, expected);
        assert_eq!(effect(Some(&new), &new, Vec::new()).words, "pool a: nothing changes\n");
        let turned = PoolDefinition { ranges: new.ranges.iter().rev().cloned().collect(), ..new.clone() };
        assert!(effect(Some(&new), &turned, Vec::new()).words.contains("stand in another order"));
        let mut rests = new.clone();
        rests.cooldown = "5m".parse().expect("a time");
        let words = effect(Some(&new), &rests, Vec::new()).words;
        assert_eq!(
            words,
            "pool a of network blue changes\n  cooldown: 0s, if full: wait, now 5m, if full: wait\n"
        );
        let note = PoolDefinition { note: "x\u{1b}[2J\ny".into(), ..new.clone() };
        assert!(
            effect(Some(&new), &note, Vec::new()).words.ends_with("  note: -, now x\u{fffd}[2J\u{fffd}y\n")
        );
    }

    #[test]
    fn who_is_left_outside_is_named() {
        let old = pool(r#"{"range":"10.0.0.0/24","gateway":"10.0.0.254"}"#);
        let new = pool(r#"{"range":"10.0.0.1-10.0.0.9/24","gateway":"10.0.0.200","exclude":["10.0.0.4"]}"#);
        let from = |address| row(address, Some((24, Some("10.0.0.254"))));
        let mut foreign = row("10.0.0.44", None);
        foreign.network = NetworkName::configured("green").ok();
        let rows = vec![
            from("10.0.0.1"),
            row("10.0.0.2", Some((24, Some("10.0.0.200")))),
            row("10.0.0.3", None),
            // Excluded now.
            row("10.0.0.4", None),
            // Removed.
            from("10.0.0.33"),
            row("10.0.0.34", None),
            foreign,
        ];
        let effect = effect(Some(&old), &new, rows);
        assert_eq!(effect.outside, 3);
        let (_, outside) =
            effect.words.split_once("  held outside of the open ranges: 3\n").expect("they are told");
        let (outside, differ) = outside.split_once("  running pods").expect("they are told");
        let addresses = |text: &str| {
            let lines = text.lines().filter_map(|line| line.trim().strip_prefix("10.0.0."));
            lines.map(|line| line.split(' ').next().unwrap_or_default().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(addresses(outside), ["4", "33", "34"]);
        assert_eq!(addresses(differ), ["1"]);
        assert!(
            outside.contains("10.0.0.33  east     n1    ns/p10.0.0.33  2026-01-02T03:04:05Z  c1\n"),
            "{outside}"
        );
    }

    #[test]
    fn twenty_holders_are_named_and_the_others_counted() {
        let closed = pool(r#"{"range":"10.0.0.0/24","state":"closed"}"#);
        let rows = (1..=23).map(|at| row(&format!("10.0.0.{at}"), None)).collect();
        let effect = effect(None, &closed, rows);
        assert_eq!((effect.outside, effect.words.matches("ns/p10").count()), (23, 20));
        assert!(effect.words.ends_with("    and 3 more\n"), "{}", effect.words);
    }
}
