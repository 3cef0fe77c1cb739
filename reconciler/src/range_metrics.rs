//! The metrics of ranges: the numbers of held and free addresses. Pure.

use std::collections::BTreeMap;

use metes_audit::CountedRange;
use metes_core::pool::{PoolName, RangeCounts};

use crate::exposition::Exposition;

/// The most rows, each of up to seven samples.
const ROWS_MAX: usize = 1000;

/// The name of the metric of addresses.
const ADDRESSES: &str = "metes_addresses";

/// The ranges of a pass, in not too many rows.
#[derive(Debug, Default)]
pub struct RangeRows {
    rows: Vec<CountedRange>,
    /// The number of ranges.
    known: usize,
    /// The number of ranges that no row counts.
    omitted: usize,
}

impl RangeRows {
    /// If there are too many ranges, there is one row for each network and pool; if these are too many, only the
    /// fullest ones.
    #[must_use]
    pub fn of(ranges: Vec<CountedRange>) -> Self {
        Self::at_most(ROWS_MAX, ranges)
    }

    fn at_most(most: usize, ranges: Vec<CountedRange>) -> Self {
        let known = ranges.iter().filter(|range| range.range.is_some()).count();
        if ranges.len() <= most {
            return Self { rows: ranges, known, omitted: 0 };
        }
        let mut summed = summed(ranges);
        summed.sort_by(|(one, _), (other, _)| emptiness(one).total_cmp(&emptiness(other)));
        let omitted = summed.drain(most.min(summed.len())..).map(|(_, ranges)| ranges).sum();
        let mut rows: Vec<CountedRange> = summed.into_iter().map(|(row, _)| row).collect();
        rows.sort_by(|one, other| (&one.network, &one.pool).cmp(&(&other.network, &other.pool)));
        Self { rows, known, omitted }
    }

    /// Adds the metrics of the rows.
    pub fn expose(&self, text: &mut Exposition) {
        text.head(ADDRESSES, "gauge", "Addresses of a range by state; docs/monitoring.md says what each is.");
        // Rows that were summed up have some states in common.
        let mut samples: Vec<([(&str, &str); 5], u128)> = Vec::new();
        let mut places = BTreeMap::new();
        for row in &self.rows {
            for (state, count) in states(row) {
                let pool = row.pool.as_ref().map_or("", PoolName::as_str);
                let range = row.range.as_deref().unwrap_or_default();
                let network = row.network.as_str();
                // An interface that gets both families has no use for one of them alone.
                let family = match (&row.range, row.is_ipv6) {
                    (None, _) => "",
                    (Some(_), false) => "ipv4",
                    (Some(_), true) => "ipv6",
                };
                let labels = [
                    ("network", network),
                    ("pool", pool),
                    ("family", family),
                    ("range", range),
                    ("state", state),
                ];
                let place = *places.entry(labels).or_insert(samples.len());
                match samples.get_mut(place) {
                    Some((_, sum)) => *sum = sum.saturating_add(count),
                    None => samples.push((labels, count)),
                }
            }
        }
        for (labels, count) in samples {
            text.sample(ADDRESSES, &labels, count);
        }
        text.gauge("metes_ranges", "Ranges that give addresses, or did.", self.known);
        text.gauge("metes_ranges_omitted", "Ranges that are too many for metes_addresses.", self.omitted);
    }
}

/// One row for each network, pool and family, what is given apart from what is not, with how many ranges it sums up.
fn summed(ranges: Vec<CountedRange>) -> Vec<(CountedRange, usize)> {
    let mut rows: BTreeMap<_, (CountedRange, usize)> = BTreeMap::new();
    for range in ranges {
        let is_range = range.range.is_some();
        let key = (range.network.clone(), range.pool.clone(), range.is_ipv6, range.is_given, is_range);
        match rows.get_mut(&key) {
            Some((sum, count)) => {
                add(sum, &range);
                *count += usize::from(is_range);
            }
            None => {
                let row = CountedRange { range: is_range.then(String::new), ..range };
                rows.insert(key, (row, usize::from(is_range)));
            }
        }
    }
    rows.into_values().collect()
}

fn add(sum: &mut CountedRange, range: &CountedRange) {
    let RangeCounts { size, held, set_aside, cooling, free } = range.counts;
    sum.counts.size = sum.counts.size.saturating_add(size);
    sum.counts.free = sum.counts.free.saturating_add(free);
    sum.counts.held += held;
    sum.counts.set_aside += set_aside;
    sum.counts.cooling += cooling;
    sum.orphaned += range.orphaned;
    sum.unused += range.unused;
}

/// The share that is free. A row that gives nothing comes last.
fn emptiness(row: &CountedRange) -> f64 {
    if row.is_given { row.counts.free as f64 / row.counts.size.max(1) as f64 } else { 2.0 }
}

/// The states of a row, each with its number of addresses. Every held address is in one of `held`, `draining` and
/// `outside`.
fn states(row: &CountedRange) -> Vec<(&'static str, u128)> {
    let RangeCounts { size, held, set_aside, cooling, free } = row.counts;
    let of_held =
        [("aside", set_aside as u128), ("orphaned", row.orphaned as u128), ("unused", row.unused as u128)];
    let main = match (row.is_given, &row.range) {
        (true, _) => {
            vec![("size", size), ("held", held as u128), ("cooling", cooling as u128), ("free", free)]
        }
        (false, Some(_)) => vec![("draining", held as u128)],
        (false, None) => vec![("outside", held as u128)],
    };
    main.into_iter().chain(of_held).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use metes_core::pool::NetworkName;

    use super::*;

    fn range(network: &str, pool: &str, range: &str, (size, held): (u128, usize)) -> CountedRange {
        let counts = RangeCounts { size, held, free: size - held as u128, ..RangeCounts::default() };
        CountedRange {
            network: NetworkName::stored(network).expect("a network"),
            pool: pool.parse().ok(),
            range: (!range.is_empty()).then(|| range.to_owned()),
            is_ipv6: range.contains(':'),
            is_given: true,
            counts,
            orphaned: 0,
            unused: 0,
        }
    }

    fn exposed(rows: &RangeRows) -> Vec<String> {
        let mut text = Exposition::default();
        rows.expose(&mut text);
        text.into_text().lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    }

    #[test]
    fn each_held_address_is_in_one_state_that_says_what_its_range_is_good_for() {
        let mut given = range("d", "s", "10.0.0.0/29", (6, 3));
        (given.counts.set_aside, given.counts.cooling, given.counts.free, given.orphaned) = (1, 2, 1, 1);
        given.unused = 2;
        let draining = CountedRange { is_given: false, ..range("d", "s", "10.1.0.0/30", (2, 1)) };
        let mut outside = CountedRange { is_given: false, ..range("b", "", "", (9, 9)) };
        outside.counts.size = 0;
        let asked = range("v", "", "fd::/64", ((1 << 64) - 2, 0));
        assert_eq!(
            exposed(&RangeRows::of(vec![outside, given, draining, asked])),
            [
                "metes_addresses{network=\"b\",state=\"outside\"} 9",
                "metes_addresses{network=\"b\",state=\"aside\"} 0",
                "metes_addresses{network=\"b\",state=\"orphaned\"} 0",
                "metes_addresses{network=\"b\",state=\"unused\"} 0",
                "metes_addresses{network=\"d\",pool=\"s\",family=\"ipv4\",range=\"10.0.0.0/29\",state=\"size\"} 6",
                "metes_addresses{network=\"d\",pool=\"s\",family=\"ipv4\",range=\"10.0.0.0/29\",state=\"held\"} 3",
                "metes_addresses{network=\"d\",pool=\"s\",family=\"ipv4\",range=\"10.0.0.0/29\",state=\"cooling\"} 2",
                "metes_addresses{network=\"d\",pool=\"s\",family=\"ipv4\",range=\"10.0.0.0/29\",state=\"free\"} 1",
                "metes_addresses{network=\"d\",pool=\"s\",family=\"ipv4\",range=\"10.0.0.0/29\",state=\"aside\"} 1",
                "metes_addresses{network=\"d\",pool=\"s\",family=\"ipv4\",range=\"10.0.0.0/29\",state=\"orphaned\"} 1",
                "metes_addresses{network=\"d\",pool=\"s\",family=\"ipv4\",range=\"10.0.0.0/29\",state=\"unused\"} 2",
                "metes_addresses{network=\"d\",pool=\"s\",family=\"ipv4\",range=\"10.1.0.0/30\",state=\"draining\"} 1",
                "metes_addresses{network=\"d\",pool=\"s\",family=\"ipv4\",range=\"10.1.0.0/30\",state=\"aside\"} 0",
                "metes_addresses{network=\"d\",pool=\"s\",family=\"ipv4\",range=\"10.1.0.0/30\",state=\"orphaned\"} 0",
                "metes_addresses{network=\"d\",pool=\"s\",family=\"ipv4\",range=\"10.1.0.0/30\",state=\"unused\"} 0",
                "metes_addresses{network=\"v\",family=\"ipv6\",range=\"fd::/64\",state=\"size\"} 18446744073709551614",
                "metes_addresses{network=\"v\",family=\"ipv6\",range=\"fd::/64\",state=\"held\"} 0",
                "metes_addresses{network=\"v\",family=\"ipv6\",range=\"fd::/64\",state=\"cooling\"} 0",
                "metes_addresses{network=\"v\",family=\"ipv6\",range=\"fd::/64\",state=\"free\"} 18446744073709551614",
                "metes_addresses{network=\"v\",family=\"ipv6\",range=\"fd::/64\",state=\"aside\"} 0",
                "metes_addresses{network=\"v\",family=\"ipv6\",range=\"fd::/64\",state=\"orphaned\"} 0",
                "metes_addresses{network=\"v\",family=\"ipv6\",range=\"fd::/64\",state=\"unused\"} 0",
                "metes_ranges 3",
                "metes_ranges_omitted 0",
            ]
        );
    }

    #[test]
    fn too_many_ranges_are_summed_up_and_then_only_the_fullest_are_told() {
        let many = || {
            vec![
                range("a", "", "10.0.0.0/24", (254, 4)),
                range("a", "", "10.0.1.0/24", (254, 6)),
                range("a", "p", "10.0.2.0/24", (254, 254)),
                range("b", "", "10.0.0.0/24", (254, 200)),
            ]
        };
        let held = |rows: &RangeRows| -> Vec<String> {
            exposed(rows)
                .into_iter()
                .filter(|line| !line.contains("state=") || line.contains("held"))
                .collect()
        };
        assert_eq!(held(&RangeRows::at_most(4, many())).len(), 6);
        assert_eq!(
            held(&RangeRows::at_most(3, many())),
            [
                "metes_addresses{network=\"a\",family=\"ipv4\",state=\"held\"} 10",
                "metes_addresses{network=\"a\",pool=\"p\",family=\"ipv4\",state=\"held\"} 254",
                "metes_addresses{network=\"b\",family=\"ipv4\",state=\"held\"} 200",
                "metes_ranges 4",
                "metes_ranges_omitted 0",
            ]
        );
        assert_eq!(
            held(&RangeRows::at_most(2, many())),
            [
                "metes_addresses{network=\"a\",pool=\"p\",family=\"ipv4\",state=\"held\"} 254",
                "metes_addresses{network=\"b\",family=\"ipv4\",state=\"held\"} 200",
                "metes_ranges 4",
                "metes_ranges_omitted 2",
            ]
        );
    }

    /// Prometheus takes only one sample of each set of labels.
    #[test]
    fn no_sample_is_told_twice_where_ranges_are_summed_up() {
        let draining = CountedRange { is_given: false, ..range("a", "p", "10.1.0.0/24", (254, 1)) };
        let outside = CountedRange { is_given: false, orphaned: 2, ..range("a", "", "", (9, 9)) };
        let mut open = range("a", "p", "10.0.0.0/24", (254, 4));
        open.orphaned = 3;
        let asked = CountedRange { orphaned: 1, ..range("a", "", "10.2.0.0/24", (254, 1)) };
        let of_six = range("a", "", "fd00::/120", (255, 5));
        let empty = range("a", "p", "10.3.0.0/24", (254, 0));
        let lines = exposed(&RangeRows::at_most(5, vec![draining, outside, open, asked, of_six, empty]));
        let names: BTreeSet<&str> = lines.iter().filter_map(|line| Some(line.rsplit_once(' ')?.0)).collect();
        assert_eq!(names.len(), lines.len(), "{lines:#?}");
        for line in [
            "metes_addresses{network=\"a\",state=\"orphaned\"} 2",
            "metes_addresses{network=\"a\",family=\"ipv4\",state=\"held\"} 1",
            "metes_addresses{network=\"a\",family=\"ipv6\",state=\"held\"} 5",
            "metes_addresses{network=\"a\",pool=\"p\",family=\"ipv4\",state=\"orphaned\"} 3",
            "metes_addresses{network=\"a\",pool=\"p\",family=\"ipv4\",state=\"draining\"} 1",
        ] {
            assert!(lines.iter().any(|found| found == line), "{line} of {lines:#?}");
        }
    }
}
