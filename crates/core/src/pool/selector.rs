//! Patterns for the facts that a plugin knows of a pod without asking anybody.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use wildmatch::WildMatch;

/// A node's labels, by name: its rack, its zone.
pub type NodeLabels = BTreeMap<String, String>;

/// Patterns for each fact. Every fact that has patterns must match one of them. So an empty selector means everybody.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object, such as {namespaces: [team-a]}")]
pub struct Selector {
    /// Clusters, by the name in their host files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clusters: Option<Patterns>,
    /// Namespaces of pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<Patterns>,
    /// Pods, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<Patterns>,
    /// CNI networks, by the `name` of their configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub networks: Option<Patterns>,
    /// Nodes, by the name under which they hold addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Patterns>,
    /// Labels in the host files of nodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_labels: BTreeMap<String, Patterns>,
}

/// At least one pattern, in which `*` stands for any characters and `?` for one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Patterns(Vec<String>);

/// The known facts about an asker. An unknown fact is empty, and only `*` matches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Facts<'a> {
    /// The cluster's name.
    pub cluster: &'a str,
    /// The pod's namespace.
    pub namespace: &'a str,
    /// The pod's name.
    pub pod: &'a str,
    /// The CNI network's name.
    pub network: &'a str,
    /// The node's name.
    pub node: &'a str,
    /// The labels in the node's host file.
    pub node_labels: &'a NodeLabels,
}

impl Selector {
    /// The first fact that no pattern matches, in words for people; none if an asker with these facts is meant.
    pub(crate) fn mismatch(&self, facts: Facts<'_>) -> Option<String> {
        let of = [
            ("cluster", &self.clusters, facts.cluster),
            ("namespace", &self.namespaces, facts.namespace),
            ("pod", &self.pods, facts.pod),
            ("network", &self.networks, facts.network),
            ("node", &self.nodes, facts.node),
        ];
        let is_out = |patterns: &Option<Patterns>, found| {
            patterns.as_ref().is_some_and(|patterns| !patterns.match_one(found))
        };
        let named = of.into_iter().find(|(_, patterns, found)| is_out(patterns, found));
        if let Some((what, _, found)) = named {
            return Some(fact(what, found));
        }
        let label = |name: &String| facts.node_labels.get(name);
        let is_out = |(name, patterns): &(&String, &Patterns)| {
            label(name).is_none_or(|found| !patterns.match_one(found))
        };
        let (name, _) = self.node_labels.iter().find(is_out)?;
        Some(match label(name) {
            Some(found) => format!("node label {name}={found}"),
            None => format!("no node label {name}"),
        })
    }
}

/// `namespace team-a`, or `no namespace`
fn fact(what: &str, found: &str) -> String {
    if found.is_empty() { format!("no {what}") } else { format!("{what} {found}") }
}

/// In words, for people.
impl fmt::Display for Facts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = [
            ("namespace", self.namespace),
            ("pod", self.pod),
            ("network", self.network),
            ("node", self.node),
            ("cluster", self.cluster),
        ];
        named.into_iter().try_for_each(|(what, found)| write!(f, "{}, ", fact(what, found)))?;
        if self.node_labels.is_empty() {
            return f.write_str("no node labels");
        }
        let labels: Vec<String> =
            self.node_labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        write!(f, "node labels {}", labels.join(" "))
    }
}

impl Patterns {
    /// The patterns.
    #[must_use]
    pub fn texts(&self) -> &[String] {
        &self.0
    }

    fn match_one(&self, found: &str) -> bool {
        self.0.iter().any(|pattern| WildMatch::new(pattern).matches(found))
    }
}

impl<'de> Deserialize<'de> for Patterns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OneOrMany)
    }
}

struct OneOrMany;

impl<'de> Visitor<'de> for OneOrMany {
    type Value = Patterns;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a pattern or a list of patterns, with quotes where it is a number")
    }

    fn visit_str<E: Error>(self, pattern: &str) -> Result<Patterns, E> {
        Ok(Patterns(vec![pattern.to_owned()]))
    }

    /// An empty list would mean everybody, or nobody: it is more likely that something was left out.
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Patterns, A::Error> {
        let mut patterns = Vec::new();
        while let Some(pattern) = list.next_element()? {
            patterns.push(pattern);
        }
        if patterns.is_empty() {
            return Err(A::Error::custom("the list is empty: write a pattern, such as \"*\", or no list"));
        }
        Ok(Patterns(patterns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(labels: &[(&str, &str)]) -> NodeLabels {
        labels.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    fn selector(text: &str) -> Selector {
        serde_json::from_str(text).expect(text)
    }

    #[test]
    fn every_fact_that_has_patterns_must_match() {
        let node_labels = &labels(&[("rack", "7"), ("zone", "a")]);
        let facts = Facts {
            cluster: "prod-1",
            namespace: "team-a",
            pod: "web-0",
            network: "storage",
            node: "gpu-7",
            node_labels,
        };
        for (text, expected) in [
            ("{}", None),
            (r#"{"clusters":["prod-1"],"namespaces":["team-*"],"nodes":["gpu-?"]}"#, None),
            (r#"{"clusters":"prod-1","namespaces":["x","team-a"]}"#, None),
            (r#"{"pods":"web-*","networks":["sto?age"],"node_labels":{"rack":["6","7"],"zone":"*"}}"#, None),
            (r#"{"clusters":["prod-2"],"namespaces":["team-*"]}"#, Some("cluster prod-1")),
            (r#"{"namespaces":["team"],"nodes":["gpu-*"]}"#, Some("namespace team-a")),
            (r#"{"namespaces":["*"],"nodes":["gpu-??"]}"#, Some("node gpu-7")),
            (r#"{"pods":["web"],"nodes":["x"]}"#, Some("pod web-0")),
            (r#"{"networks":["blue"]}"#, Some("network storage")),
            (r#"{"node_labels":{"rack":"8"}}"#, Some("node label rack=7")),
            (r#"{"node_labels":{"Rack":"*"}}"#, Some("no node label Rack")),
        ] {
            assert_eq!(selector(text).mismatch(facts).as_deref(), expected, "{text}");
        }
        let outside = Facts { namespace: "", ..facts };
        let some = selector(r#"{"namespaces":["team-*"]}"#);
        assert_eq!(some.mismatch(outside).as_deref(), Some("no namespace"));
        assert_eq!(selector(r#"{"namespaces":["*"]}"#).mismatch(outside), None);
        assert_eq!(
            Facts { cluster: "", ..outside }.to_string(),
            "no namespace, pod web-0, network storage, node gpu-7, no cluster, node labels rack=7 zone=a"
        );
        let bare = Facts { node_labels: &NodeLabels::default(), ..facts };
        assert!(bare.to_string().ends_with("cluster prod-1, no node labels"), "{bare}");
    }

    #[test]
    fn patterns_are_one_or_several_and_come_back_as_a_list() {
        let read = selector(r#"{"namespaces":"a","node_labels":{"rack":"7"}}"#);
        let written = serde_json::to_string(&read).expect("JSON");
        assert_eq!(written, r#"{"namespaces":["a"],"node_labels":{"rack":["7"]}}"#);
        for (text, expected) in [
            (r#"{"nodes":[]}"#, "the list is empty"),
            (r#"{"nodes":7}"#, "invalid type: integer `7`, expected a pattern or a list of patterns"),
            (r#"{"node_labels":{"rack":[]}}"#, "the list is empty"),
            (r#"{"node_labels":["rack"]}"#, "expected a map"),
            (r#"{"node":["a"]}"#, "unknown field `node`, expected one of `clusters`"),
        ] {
            let why = serde_json::from_str::<Selector>(text).expect_err(text).to_string();
            assert!(why.contains(expected), "{text}: {why}");
        }
    }
}
