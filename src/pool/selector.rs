//! Who is meant: patterns for what a plugin knows of a pod without asking anybody.

use serde::{Deserialize, Serialize};
use wildmatch::WildMatch;

/// Patterns, in which `*` stands for any characters and `?` for one. Each list that is not empty must have a pattern
/// that matches. So an empty selector means everybody.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Selector {
    /// Clusters, by the name in their host files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<String>,
    /// Namespaces of pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// Nodes, by the name under which they hold addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
}

/// What is known of whoever asks. What is not known is empty, and only `*` matches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts<'a> {
    /// The cluster's name.
    pub cluster: &'a str,
    /// The pod's namespace.
    pub namespace: &'a str,
    /// The node's name.
    pub node: &'a str,
}

impl Selector {
    /// Whether whoever has these facts is meant.
    #[must_use]
    pub fn means(&self, facts: Facts<'_>) -> bool {
        self.mismatch(facts).is_none()
    }

    /// The first fact that no pattern matches, in words for people.
    #[must_use]
    pub fn mismatch(&self, facts: Facts<'_>) -> Option<String> {
        let of = [
            ("cluster", &self.clusters, facts.cluster),
            ("namespace", &self.namespaces, facts.namespace),
            ("node", &self.nodes, facts.node),
        ];
        let is_out = |(_, patterns, found): &(&str, &Vec<String>, &str)| {
            !patterns.is_empty() && !patterns.iter().any(|pattern| WildMatch::new(pattern).matches(found))
        };
        let (what, _, found) = of.into_iter().find(is_out)?;
        Some(if found.is_empty() { format!("no {what}") } else { format!("{what} {found}") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_list_that_is_given_must_match() {
        let list = |patterns: &[&str]| patterns.iter().map(|&pattern| pattern.to_owned()).collect::<Vec<_>>();
        let facts = Facts { cluster: "prod-1", namespace: "team-a", node: "gpu-7" };
        for (clusters, namespaces, nodes, expected) in [
            (&[][..], &[][..], &[][..], None),
            (&["prod-1"][..], &["team-*"][..], &["gpu-?"][..], None),
            (&["prod-1"][..], &["x", "team-a"][..], &[][..], None),
            (&["prod-2"][..], &["team-*"][..], &[][..], Some("cluster prod-1")),
            (&[][..], &["team"][..], &["gpu-*"][..], Some("namespace team-a")),
            (&[][..], &["*"][..], &["gpu-??"][..], Some("node gpu-7")),
        ] {
            let selector =
                Selector { clusters: list(clusters), namespaces: list(namespaces), nodes: list(nodes) };
            assert_eq!(selector.mismatch(facts).as_deref(), expected, "{selector:?}");
        }
        let outside = Facts { namespace: "", ..facts };
        let some = Selector { namespaces: list(&["team-*"]), ..Selector::default() };
        assert_eq!(some.mismatch(outside).as_deref(), Some("no namespace"));
        assert!(Selector { namespaces: list(&["*"]), ..Selector::default() }.means(outside));
    }
}
