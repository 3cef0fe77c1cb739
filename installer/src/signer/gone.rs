//! Which users of etcd belong to nodes that have been gone for so long that they may be forgotten, and which nodes have
//! none.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::identity::{is_digest, user};

/// The users of one cluster, as this process has seen them.
pub(super) struct Gone {
    cluster: String,
    /// How long a node must be gone.
    after: Duration,
    /// The nodes of users whose names do not tell them; none for a user of another cluster.
    hashed: HashMap<String, Option<String>>,
    /// Since when the node of a user has been missing.
    missing: HashMap<String, Instant>,
}

impl Gone {
    pub(super) fn new(cluster: &str, after: Duration) -> Self {
        let (hashed, missing) = (HashMap::new(), HashMap::new());
        Self { cluster: cluster.to_owned(), after, hashed, missing }
    }

    /// The users that may be forgotten now: of all those in etcd, given the nodes that are there.
    pub(super) fn look(&mut self, nodes: &[String], users: &[String], now: Instant) -> Vec<String> {
        let there: HashMap<String, &String> =
            nodes.iter().map(|node| (user(&self.cluster, node), node)).collect();
        let hashed = there.iter().filter(|(user, _)| named(user, &self.cluster).is_none());
        self.hashed.extend(hashed.map(|(user, node)| (user.clone(), Some((*node).clone()))));
        let is_missing = |user: &&String| self.is_own(user) && !there.contains_key(*user);
        let mut missing: Vec<&String> = users.iter().filter(is_missing).collect();
        missing.sort();
        self.missing.retain(|user, _| missing.binary_search(&user).is_ok());
        for user in missing {
            self.missing.entry(user.clone()).or_insert(now);
        }
        let is_long = |(_, since): &(&String, &Instant)| now.duration_since(**since) >= self.after;
        let mut gone: Vec<String> =
            self.missing.iter().filter(is_long).map(|(user, _)| user.clone()).collect();
        gone.sort();
        gone
    }

    /// The users whose names do not tell their nodes, and of which nothing is known yet.
    pub(super) fn unknown<'a>(&self, users: &'a [String]) -> Vec<&'a String> {
        let is_unknown = |user: &&String| is_digest(user) && !self.hashed.contains_key(*user);
        users.iter().filter(is_unknown).collect()
    }

    /// Takes in for which node a user was made.
    pub(super) fn learn(&mut self, of: &str, node: String) {
        let is_own = user(&self.cluster, &node) == of;
        self.hashed.insert(of.to_owned(), is_own.then_some(node));
    }

    /// The nodes that have no user.
    pub(super) fn without_user(&self, nodes: &[String], users: &[String]) -> Vec<String> {
        let users: HashSet<&String> = users.iter().collect();
        nodes.iter().filter(|node| !users.contains(&user(&self.cluster, node))).cloned().collect()
    }

    /// The node of a user that may be forgotten.
    pub(super) fn node_of(&self, user: &str) -> String {
        let named = named(user, &self.cluster).map(str::to_owned);
        named.or_else(|| self.hashed.get(user).cloned().flatten()).unwrap_or_default()
    }

    /// An etcd may serve several clusters.
    fn is_own(&self, user: &str) -> bool {
        named(user, &self.cluster).is_some() || self.hashed.get(user).is_some_and(Option::is_some)
    }
}

/// The node in the name of a user of this cluster. A node has no slash: with one, it is another cluster's.
fn named<'a>(user: &'a str, cluster: &str) -> Option<&'a str> {
    let node = user.strip_prefix("metes-node/")?.strip_prefix(cluster)?.strip_prefix('/')?;
    (!node.is_empty() && !node.contains('/')).then_some(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn names(all: &[&str]) -> Vec<String> {
        all.iter().map(|one| (*one).to_owned()).collect()
    }

    #[test]
    fn a_node_that_comes_back_begins_a_new_day() {
        let (mut gone, start) = (Gone::new("c1", DAY), Instant::now());
        let users = names(&["metes-node/c1/n1", "metes-node/c1/n2"]);
        let mut look =
            |nodes: &[&str], hours: u32| gone.look(&names(nodes), &users, start + hours * DAY / 24);
        assert!(look(&["n2"], 0).is_empty());
        assert!(look(&["n2"], 23).is_empty());
        assert_eq!(look(&["n2"], 24), ["metes-node/c1/n1"]);
        assert!(look(&["n1", "n2"], 25).is_empty());
        assert!(look(&[], 26).is_empty());
        assert_eq!(look(&["n2"], 50), ["metes-node/c1/n1"]);
        assert_eq!(gone.without_user(&names(&["n2", "n3"]), &users), ["n3"]);
    }

    #[test]
    fn users_of_others_are_not_judged() {
        let long = "n".repeat(80);
        let (mut gone, start) = (Gone::new("c1", DAY), Instant::now());
        let users =
            names(&["root", "metes-node", "metes-node/c2/n1", "metes-node/c1/zone/n1", "metes-node/c1/"]);
        let users = [users, vec![user("c1", &long), user("c2", &long)]].concat();
        // The node of a digest must be known.
        assert!(gone.look(&[], &users, start).is_empty());
        assert!(gone.look(&[], &users, start + DAY).is_empty());
        assert_eq!(gone.unknown(&users), [&user("c1", &long), &user("c2", &long)]);
        gone.learn(&user("c1", &long), long.clone());
        gone.learn(&user("c2", &long), long.clone());
        assert!(gone.unknown(&users).is_empty());
        gone.look(&[], &users, start + DAY);
        assert_eq!(gone.look(&[], &users, start + 2 * DAY), [user("c1", &long)]);
        // Or seen.
        let (mut gone, longer) = (Gone::new("c1", DAY), "n".repeat(81));
        let users = [user("c1", &longer)];
        gone.look(std::slice::from_ref(&longer), &users, start);
        assert!(gone.unknown(&users).is_empty());
        gone.look(&[], &users, start);
        assert_eq!(gone.look(&[], &users, start + DAY), users);
    }
}
