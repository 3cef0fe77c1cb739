//! The known ranges: those of pools, and those that configurations ask for. Pure.

use std::time::Duration;

use super::Range;
use super::asked::AskedRanges;
use super::definition::{PoolDefinition, RangeState};
use super::names::PoolName;

/// If nobody has asked for ranges for so long, and others of the same CNI network were asked for since, they are older.
const OLDER: Duration = Duration::from_secs(3600);

/// The ranges that a configuration asks for, and the revisions of their record.
#[derive(Debug)]
pub struct AskedSeen {
    /// The record.
    pub asked: AskedRanges,
    /// The revision that made it.
    pub created: i64,
    /// The revision that wrote it last.
    pub written: i64,
}

impl AskedSeen {
    /// The CNI network, with its cluster.
    #[must_use]
    pub fn asked_by(&self) -> String {
        let AskedRanges { cluster, cni_network, .. } = &self.asked;
        cluster.as_ref().map_or_else(|| cni_network.clone(), |cluster| format!("{cluster}/{cni_network}"))
    }

    /// True if this is asked for instead of `other`: by the same CNI network, with ranges that overlap. Besides, nobody
    /// has asked for the other one since this one was made, or for `quiet` before this one was last asked for. Where
    /// nothing overlaps, the two may be for different nodes or namespaces.
    pub(crate) fn came_after(&self, other: &Self, quiet: Duration) -> bool {
        let (new, old) = (&self.asked, &other.asked);
        new.cni_network == old.cni_network
            && new.cluster == old.cluster
            && new.sets != old.sets
            && new.overlaps(old)
            && (self.created > other.written || old.age(&new.asked_at).is_some_and(|age| age >= quiet))
    }
}

crate::named_enum! {
    /// The state of a known range.
    pub enum KnownState {
        /// Of a pool, which gives its addresses.
        Open = "open",
        /// Of a pool, which gives no more addresses of it, so that it empties.
        Draining = "draining",
        /// Of a pool, which gives no more addresses of it.
        Closed = "closed",
        /// A configuration asks for it.
        Asked = "asked",
        /// Its CNI networks have asked for other ranges since.
        Older = "older",
    }
}

impl KnownState {
    fn of_pool(state: RangeState) -> Self {
        match state {
            RangeState::Open => Self::Open,
            RangeState::Draining => Self::Draining,
            RangeState::Closed => Self::Closed,
        }
    }
}

/// A range, and where it comes from.
#[derive(Debug)]
pub struct KnownRange<'a> {
    /// The range.
    pub range: Range,
    /// As people write it.
    pub text: String,
    /// The pool that it belongs to; none if configurations ask for it.
    pub pool: Option<&'a PoolName>,
    /// Its state.
    pub state: KnownState,
    /// The configurations that ask for it.
    pub asked: Vec<&'a AskedSeen>,
}

/// The ranges of all pools and of all configurations, each once, by network.
pub fn known_ranges<'a>(
    pools: impl Iterator<Item = &'a PoolDefinition>,
    asked: &'a [AskedSeen],
) -> Vec<KnownRange<'a>> {
    let mut known = Vec::new();
    for pool in pools {
        // A definition that was read has sound ranges.
        for (written, range) in pool.ranges.iter().zip(pool.all_ranges().unwrap_or_default()) {
            let (text, state) = (written.range.to_string(), KnownState::of_pool(written.state));
            known.push(KnownRange { range, text, pool: Some(&pool.pool), state, asked: Vec::new() });
        }
    }
    let of_pools = known.len();
    for seen in asked {
        for range in seen.asked.ranges() {
            match known[of_pools..].iter_mut().find(|known| known.range == *range) {
                Some(known) => known.asked.push(seen),
                None => known.push(KnownRange {
                    range: range.clone(),
                    text: range.to_string(),
                    pool: None,
                    state: KnownState::Asked,
                    asked: vec![seen],
                }),
            }
        }
    }
    let is_older = |seen: &&AskedSeen| asked.iter().any(|other| other.came_after(seen, OLDER));
    for known in &mut known[of_pools..] {
        if known.asked.iter().all(is_older) {
            known.state = KnownState::Older;
        }
    }
    known.sort_by(|a, b| order(a).cmp(&order(b)));
    known
}

fn order<'a>(known: &'a KnownRange<'_>) -> impl Ord + use<'a> {
    let KnownRange { range, text, pool, .. } = known;
    (range.network(), range.first(), range.last(), pool.map(PoolName::as_str), text)
}
