//! Which ranges configurations ask for addresses of, as they are kept for people. Pure.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::names::ClusterName;
use super::record::{Record, VERSION};
use super::{Range, RangeSet};

/// A record of more bytes is not written.
const ASKED_BYTES_MAX: usize = 16 * 1024;

/// `v1/asked/<digest>`: the ranges of one configuration. Its nodes write it with a commit of an ADD, at most every few
/// minutes. Nothing relies on it: it says how large ranges are, and which of them nobody asks for any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedRanges {
    v: u32,
    /// The cluster of the nodes that ask, if it has a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterName>,
    /// The name of the CNI network.
    pub cni_network: String,
    /// Its ranges. It asks for an address of each set.
    pub sets: Vec<RangeSet>,
    /// When an ADD last asked, by the clock of its node; RFC 3339, for people.
    pub asked_at: String,
}

impl AskedRanges {
    /// A record of this program's version; none if the configuration has no range, or too many.
    #[must_use]
    pub fn new(
        cluster: Option<ClusterName>,
        cni_network: String,
        sets: Vec<RangeSet>,
        asked_at: String,
    ) -> Option<Self> {
        let asked = Self { v: VERSION, cluster, cni_network, sets, asked_at };
        (!asked.sets.is_empty() && asked.encode().len() <= ASKED_BYTES_MAX).then_some(asked)
    }

    /// What tells it from the records of other configurations.
    #[must_use]
    pub fn identity(&self) -> Vec<u8> {
        let Self { cluster, cni_network, sets, .. } = self;
        serde_json::to_vec(&(cluster, cni_network, sets)).expect("records have only string keys")
    }

    /// Its ranges.
    pub fn ranges(&self) -> impl Iterator<Item = &Range> {
        self.sets.iter().flat_map(RangeSet::ranges)
    }

    /// Whether a range of it has addresses that one of the other has.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        let meets = |one: &Range, two: &Range| {
            one.network() == two.network() && one.first() <= two.last() && two.first() <= one.last()
        };
        self.ranges().any(|one| other.ranges().any(|two| meets(one, two)))
    }

    /// Whether a younger record has all addresses that it has.
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

    /// How long before `now` it was written; none if one of the two is no time, or the clock was set back.
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
    use super::*;
    use crate::pool::range::fixtures::{cidr, set};

    fn asked(sets: Vec<RangeSet>, asked_at: &str) -> Option<AskedRanges> {
        AskedRanges::new(None, "net".to_owned(), sets, asked_at.to_owned())
    }

    #[test]
    fn its_identity_is_what_is_asked_for_and_not_when() {
        let at = |subnet: &str, asked_at: &str| asked(vec![set([cidr(subnet)])], asked_at).expect("small");
        let one = at("10.0.0.0/24", "2026-01-02T03:04:05Z");
        assert_eq!(one.identity(), at("10.0.0.0/24", "2026-02-02T03:04:05Z").identity());
        assert_ne!(one.identity(), at("10.0.0.0/25", "2026-01-02T03:04:05Z").identity());
        assert_eq!(AskedRanges::decode(&one.encode()).as_ref(), Ok(&one));
    }

    #[test]
    fn its_age_is_known_if_both_times_are() {
        let one = asked(vec![set([cidr("10.0.0.0/24")])], "2026-01-02T03:04:05Z").expect("small");
        assert_eq!(one.age("2026-01-02T03:05:06Z"), Some(Duration::from_secs(61)));
        assert_eq!(one.age("2026-01-02T03:04:04Z"), None);
        assert_eq!(one.age(""), None);
    }

    #[test]
    fn what_has_no_range_or_too_many_is_not_kept() {
        let many = |count: u8| (0..count).map(|third| cidr(&format!("10.0.{third}.0/24")));
        assert!(asked(Vec::new(), "").is_none());
        assert!(asked(vec![set(many(100))], "").is_some());
        assert!(asked(vec![set(many(250))], "").is_none());
    }
}
