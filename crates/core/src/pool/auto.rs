//! The pools that `"pool": "auto"` means. An ADD and `metes pool which` decide by the same function.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

use super::definition::{PoolDefinition, is_default};
use super::names::PoolName;
use super::selector::{Facts, Selector};

/// A pool that `auto` may choose, as `v1/pools` has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AutoPool {
    /// The pool.
    pub pool: PoolName,
    /// A pool of a higher priority is chosen first.
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: i32,
    /// The pods that it is for.
    #[serde(rename = "for")]
    pub selector: Selector,
}

/// The verdict of `auto` on a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AutoVerdict {
    /// It does.
    Chosen,
    /// The pool is for the asker, and so is this pool of a higher priority.
    Outranked(PoolName),
    /// The pool is not for this fact.
    Mismatch(String),
}

/// The pools that `auto` may choose: higher priorities first, and names in order.
#[must_use]
pub fn auto_pools<'a>(pools: impl IntoIterator<Item = &'a PoolDefinition>) -> Vec<AutoPool> {
    let auto_pool = |pool: &PoolDefinition| {
        let (pool, priority, selector) = (pool.pool.clone(), pool.priority, pool.selector.clone()?);
        Some(AutoPool { pool, priority, selector })
    };
    let mut pools: Vec<AutoPool> = pools.into_iter().filter_map(auto_pool).collect();
    pools.sort_by(|a, b| (Reverse(a.priority), &a.pool).cmp(&(Reverse(b.priority), &b.pool)));
    pools
}

/// Judges each pool, in the order of [`auto_pools`]: those that are for an asker with these facts are chosen, as far as
/// they have the priority of the first of them.
pub fn judge<'a>(
    pools: &'a [AutoPool],
    facts: Facts<'_>,
) -> impl Iterator<Item = (&'a AutoPool, AutoVerdict)> {
    let mut first: Option<&AutoPool> = None;
    pools.iter().map(move |pool| {
        if let Some(fact) = pool.selector.mismatch(facts) {
            return (pool, AutoVerdict::Mismatch(fact));
        }
        let first = *first.get_or_insert(pool);
        if first.priority == pool.priority {
            (pool, AutoVerdict::Chosen)
        } else {
            (pool, AutoVerdict::Outranked(first.pool.clone()))
        }
    })
}

/// The pools that are chosen for an asker with these facts, in the order in which they are used.
#[must_use]
pub fn chosen(pools: &[AutoPool], facts: Facts<'_>) -> Vec<PoolName> {
    let is_chosen = |(_, verdict): &(&AutoPool, AutoVerdict)| *verdict == AutoVerdict::Chosen;
    judge(pools, facts).filter(is_chosen).map(|(pool, _)| pool.pool.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::NodeLabels;

    fn pools(texts: &[&str]) -> Vec<AutoPool> {
        let pool = |text: &&str| {
            let text = format!(r#"{{"ranges":[{{"range":"10.0.0.0/24"}}],{text}}}"#);
            serde_json::from_str::<PoolDefinition>(&text).expect("a pool")
        };
        auto_pools(&texts.iter().map(pool).collect::<Vec<_>>())
    }

    fn facts<'a>(namespace: &'a str, node_labels: &'a NodeLabels) -> Facts<'a> {
        Facts { cluster: "", namespace, pod: "web-0", network: "storage", node: "n", node_labels }
    }

    fn names(pools: &[AutoPool], namespace: &str, rack: &NodeLabels) -> Vec<String> {
        chosen(pools, facts(namespace, rack)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_highest_priority_that_matches_is_chosen_and_its_pools_in_the_order_of_their_names() {
        let pools = pools(&[
            r#""pool":"plain""#,
            r#""pool":"b","for":{"namespaces":"team-a"},"priority":5"#,
            r#""pool":"a","for":{"namespaces":"team-*"},"priority":5"#,
            r#""pool":"rest","for":{}"#,
            r#""pool":"rack","for":{"node_labels":{"rack":"7"}},"priority":9"#,
            r#""pool":"last","for":{},"priority":-1"#,
        ]);
        let order: Vec<&str> = pools.iter().map(|pool| pool.pool.as_str()).collect();
        assert_eq!(order, ["rack", "a", "b", "rest", "last"]);
        let rack = |rack: &str| NodeLabels::from([("rack".to_owned(), rack.to_owned())]);
        for (namespace, rack, expected) in [
            ("team-a", rack("7"), &["rack"][..]),
            ("team-a", rack("8"), &["a", "b"]),
            ("team-b", rack("8"), &["a"]),
            ("other", NodeLabels::default(), &["rest"]),
        ] {
            assert_eq!(names(&pools, namespace, &rack), expected, "{namespace} {rack:?}");
        }
        assert!(names(&pools[..3], "other", &NodeLabels::default()).is_empty());
    }

    #[test]
    fn every_pool_is_judged_with_the_reason() {
        let pools = pools(&[
            r#""pool":"a","for":{"namespaces":"team-a"},"priority":5"#,
            r#""pool":"b","for":{"node_labels":{"rack":"7"}},"priority":5"#,
            r#""pool":"rest","for":{}"#,
        ]);
        let verdicts = |namespace| {
            let judged = judge(&pools, facts(namespace, &NodeLabels::default())).collect::<Vec<_>>();
            judged.into_iter().map(|(_, verdict)| verdict).collect::<Vec<_>>()
        };
        let no_rack = || AutoVerdict::Mismatch("no node label rack".to_owned());
        let outranked = AutoVerdict::Outranked(pools[0].pool.clone());
        assert_eq!(verdicts("team-a"), [AutoVerdict::Chosen, no_rack(), outranked]);
        let other = AutoVerdict::Mismatch("namespace other".to_owned());
        assert_eq!(verdicts("other"), [other, no_rack(), AutoVerdict::Chosen]);
    }
}
