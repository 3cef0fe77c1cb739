//! The ranges that configurations ask for addresses of, as they are kept for people. Pure.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::names::ClusterName;
use super::range::{identify_length, identify_text};
use super::record::{Record, VERSION};
use super::{Range, RangeSet};

/// A record of more ranges is not kept.
const ASKED_RANGES_MAX: usize = 150;
/// A record of more bytes is not kept.
const ASKED_BYTES_MAX: usize = 16 * 1024;

/// `v1/asked/<digest>`: the ranges of one configuration. Its nodes write it with a commit of an ADD, at most every few
/// minutes. Nothing relies on it: it says how large ranges are, and which of them nobody asks for any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedRanges {
    v: u32,
    /// The cluster of the nodes that ask, if it has a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cluster: Option<ClusterName>,
    pub(crate) cni_network: String,
    /// Its ranges. It asks for an address of each set.
    pub sets: Vec<RangeSet>,
    /// When an ADD last asked, by the clock of its node; RFC 3339, for people.
    pub asked_at: String,
}

impl AskedRanges {
    /// A record of this program's version.
    #[must_use]
    pub fn new(
        cluster: Option<ClusterName>,
        cni_network: String,
        sets: Vec<RangeSet>,
        asked_at: String,
    ) -> Self {
        Self { v: VERSION, cluster, cni_network, sets, asked_at }
    }

    /// The record as it is stored; none if it has no range, or too many to be kept.
    #[must_use]
    pub fn encode_to_keep(&self) -> Option<Vec<u8>> {
        if !(1..=ASKED_RANGES_MAX).contains(&self.ranges().count()) {
            return None;
        }
        Some(self.encode()).filter(|bytes| bytes.len() <= ASKED_BYTES_MAX)
    }

    /// The bytes that tell it from the records of other configurations. Each ADD works them out, so they are no JSON.
    pub(crate) fn identity(&self) -> Vec<u8> {
        let Self { v: _, cluster, cni_network, sets, asked_at: _ } = self;
        let mut bytes = Vec::new();
        identify_text(cluster.as_ref().map_or("", |cluster| cluster.as_str()), &mut bytes);
        identify_text(cni_network, &mut bytes);
        for set in sets {
            identify_length(set.ranges().len(), &mut bytes);
            set.ranges().iter().for_each(|range| range.identify(&mut bytes));
        }
        bytes
    }

    /// Its ranges.
    pub fn ranges(&self) -> impl Iterator<Item = &Range> {
        self.sets.iter().flat_map(RangeSet::ranges)
    }

    /// True if a range of it has addresses that one of the other has.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let meets = |one: &Range, two: &Range| {
            one.network() == two.network() && one.first() <= two.last() && two.first() <= one.last()
        };
        self.ranges().any(|one| other.ranges().any(|two| meets(one, two)))
    }

    /// True if a younger record has all addresses that it has.
    #[must_use]
    pub fn is_within(&self, younger: &Self) -> bool {
        let covers = |wide: &Range, range: &Range| {
            wide.network() == range.network() && wide.first() <= range.first() && range.last() <= wide.last()
        };
        self.asked_at < younger.asked_at
            && self.ranges().all(|range| younger.ranges().any(|wide| covers(wide, range)))
    }

    /// The same without its ranges, for a node that only has to know when it was written.
    #[must_use]
    pub fn without_ranges(self) -> Self {
        Self { sets: Vec::new(), ..self }
    }

    /// The time from its writing until `now`; none if one of the two is no time, or the clock was set back.
    #[must_use]
    pub fn age(&self, now: &str) -> Option<Duration> {
        let time = |text: &str| humantime::parse_rfc3339(text).ok();
        time(now)?.duration_since(time(&self.asked_at)?).ok()
    }
}

impl Record for AskedRanges {
    const KIND: &'static str = "asked ranges";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::pool::RangeSpec;
    use crate::pool::range::fixtures::{cidr, set};

    fn asked(sets: Vec<RangeSet>, asked_at: &str) -> AskedRanges {
        AskedRanges::new(None, "net".to_owned(), sets, asked_at.to_owned())
    }

    #[test]
    fn its_identity_is_what_is_asked_for_and_not_when() {
        let at = |subnet: &str, asked_at: &str| asked(vec![set([cidr(subnet)])], asked_at);
        let one = at("10.0.0.0/24", "2026-01-02T03:04:05Z");
        assert_eq!(one.identity(), at("10.0.0.0/24", "2026-02-02T03:04:05Z").identity());
        let whole = || cidr("10.0.0.0/24");
        let others = [
            vec![set([cidr("10.0.0.0/25")])],
            vec![set([whole().bounds("10.0.0.1", "10.0.0.253")])],
            vec![set([whole().exclude(&["10.0.0.7/32"])])],
            vec![set([RangeSpec { gateway: "10.0.0.1".parse().ok(), ..whole() }])],
            vec![set([RangeSpec { never: vec!["10.0.0.1".parse().expect("an address")], ..whole() }])],
            vec![set([whole().network("other")])],
            vec![set([whole(), cidr("10.0.1.0/24")])],
            vec![set([whole()]), set([cidr("10.0.1.0/24")])],
        ];
        let identities: BTreeSet<Vec<u8>> =
            others.into_iter().map(|sets| asked(sets, "").identity()).collect();
        assert!(identities.len() == 8 && !identities.contains(&one.identity()));
        assert_eq!(AskedRanges::decode(&one.encode()).as_ref(), Ok(&one));
    }

    #[test]
    fn its_age_is_known_if_both_times_are() {
        let one = asked(vec![set([cidr("10.0.0.0/24")])], "2026-01-02T03:04:05Z");
        assert_eq!(one.age("2026-01-02T03:05:06Z"), Some(Duration::from_secs(61)));
        assert_eq!(one.age("2026-01-02T03:04:04Z"), None);
        assert_eq!(one.age(""), None);
    }

    #[test]
    fn what_has_no_range_or_too_many_is_not_kept() {
        let many = |count: u8| (0..count).map(|third| cidr(&format!("10.0.{third}.0/24")));
        let kept = |sets| asked(sets, "").encode_to_keep();
        assert_eq!(kept(Vec::new()), None);
        assert!(kept(vec![set(many(100))]).is_some());
        assert_eq!(kept(vec![set(many(151))]), None);
        let long = "x".repeat(ASKED_BYTES_MAX);
        let one = AskedRanges::new(None, long, vec![set(many(1))], String::new());
        assert_eq!(one.encode_to_keep(), None);
    }
}
